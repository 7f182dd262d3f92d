// Flame graphs as they are shown, as an SVG file of its own.

// `parts` are flame graphs below each other, each with its heading (or ""). `title` is a line above them. Text is
// escaped; nothing in the file runs.
function flamesToSvg(parts, title) {
  const { colors } = parts[0][1], width = Math.max(...parts.map(([, flame]) => flame.width));
  const text = (t) => t.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
  const letter = 6.6, line = (y, words, color) => `<text x="4" y="${y + 17}" fill="${color}">${text(fitText(words, width - 8, letter))}<\/text>`;
  const out = [line(0, title, colors.text)];
  let height = FLAME_TITLE;
  for (const [heading, flame] of parts) {
    if (heading) {
      out.push(line(height, heading, colors.dim));
      height += FLAME_TITLE;
    }
    out.push(...framesToSvg(flame, height, text, letter));
    height += flame.rows.length * FLAME_ROW + 4;
  }
  const back = getComputedStyle(document.body).backgroundColor;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="monospace" font-size="11">`,
    `<rect width="100%" height="100%" fill="${back}"/>`, ...out,
  ].join("\n") + "\n</svg>\n";
}

const FLAME_TITLE = 26;

function framesToSvg(flame, top, text, letter) {
  const { colors, source, rows } = flame, n = (x) => x.toFixed(1), out = [];
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
  return out;
}

// Hands a text to the browser as a file to keep.
function saveFile(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
