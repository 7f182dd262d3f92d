// The flame graph as it is shown, as an SVG file of its own.

// `title` is a line above it. Text is escaped; nothing in the file runs.
function flameToSvg(flame, title) {
  const { colors, source, rows, width } = flame, top = 26, height = top + rows.length * FLAME_ROW + 4;
  const text = (t) => t.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
  const back = getComputedStyle(document.body).backgroundColor, n = (x) => x.toFixed(1), letter = 6.6;
  const out = [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="monospace" font-size="11">`,
    `<rect width="100%" height="100%" fill="${back}"/><text x="4" y="17" fill="${colors.text}">${text(fitText(title, width - 8, letter))}<\/text>`,
  ];
  rows.forEach((row, i) => {
    for (const { node, x0, x1, dim, skipped } of row) {
      const w = Math.max(x1 - x0 - 0.6, 0.4), y = top + i * FLAME_ROW, match = source.isSearched() && source.isMatch(node);
      const fill = match ? (colors.dark ? "#b0347f" : "#ff7ac6") : node.depth === 0 ? colors.line : source.colorOf(node);
      const name = (skipped ? `… ${skipped} ▸ ` : "") + source.nameOf(node);
      const { title: full, lines } = flame.describe({ node, skipped });
      out.push(`<g${dim ? ' opacity="0.6"' : ""}><title>${text([full, ...lines.map((l) => l.join(": "))].join("\n"))}<\/title>` +
        `<rect x="${n(x0)}" y="${y}" width="${n(w)}" height="${FLAME_ROW - 1}" fill="${fill}"/>` +
        (w > 26 ? `<text x="${n(x0 + 4)}" y="${y + 13}" fill="${colors.text}">${text(fitName(name, w - 8, letter))}</text>` : "") + "</g>");
    }
  });
  return out.join("\n") + "\n</svg>\n";
}

// Hands a text to the browser as a file to keep.
function saveFile(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
