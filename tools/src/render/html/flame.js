// A flame graph: layout, zoom, picture and tooltips, for every page that has one. What it shows comes from a source:
//
// - root(): the top row's node, { label, value, parent, depth }. Values are widths.
// - children(node): the nodes below it, in their order. Labels differ among them.
// - isPassage(node, child): whether a node of the second row gives its row to its first child.
// - nameOf(node), colorOf(node), isUnknown(node), isMatch(node).
// - isSearched(): whether matches stand out.
// - nothing(): what to say when there is nothing to show.
// - describe(node, focus, outer): the tooltip, as `Tip` takes it. `focus` is the frame that fills the width, `outer` has
//   the labels of the frames that gave their row to this one.

const FLAME_ROW = 18;

class Flame {
  // `box` is an element with the class `flame`; `colors` are those of the scheme: font, text, dim, line, dark.
  constructor(box, source, colors, tip) {
    Object.assign(this, { box, source, colors, tip });
    this.canvas = element("canvas");
    this.size = element("div", null, this.canvas);
    box.replaceChildren(this.size);
    this.zoomPath = []; // labels from the root to the frame that is zoomed to
    this.onZoom = () => {};
    this.onChoose = () => {}; // a frame was clicked twice
    this.hovered = null;
    this.rows = [];
    this.box.addEventListener("scroll", () => this.draw());
    this.canvas.addEventListener("pointermove", (e) => this.hover(e));
    this.canvas.addEventListener("pointerleave", () => this.leave());
    this.canvas.addEventListener("click", (e) => this.click(e));
    this.canvas.addEventListener("dblclick", (e) => { const frame = this.at(e); if (frame) this.onChoose(frame.node); });
    this.box.addEventListener("keydown", (e) => {
      if (e.key === "Escape" && this.zoomPath.length) { e.stopPropagation(); this.zoomTo([]); }
    });
  }

  children(node) { return (node.list ||= this.source.children(node)); }

  // --- Layout

  // Forgets nodes; call when the sums changed.
  rebuild(width) {
    this.tree = this.source.root();
    this.layout(width);
  }

  layout(width = this.box.clientWidth) {
    this.width = width;
    this.rows = [];
    const put = (row, node, x0, x1, dim, skipped) => {
      (this.rows[row] || (this.rows[row] = [])).push({ node, x0, x1, dim, skipped });
    };
    // The way to the zoomed frame, as wide as the picture; as far as it still exists.
    let focus = this.tree, row = 0;
    put(row, focus, 0, width, this.zoomPath.length > 0, 0);
    for (let i = 0; i < this.zoomPath.length; ) {
      let [child, skipped] = [this.children(focus).find((c) => c.label === this.zoomPath[i]), 0];
      if (!child) { this.zoomPath.length = i; break; }
      i++;
      if (focus === this.tree) {
        // The frames that stand for an outer chain are one row here too.
        const [end, count] = this.innermost(child);
        const path = this.pathOf(end);
        if (path.length <= this.zoomPath.length && path.every((l, n) => l === this.zoomPath[n])) {
          [child, skipped, i] = [end, count, path.length];
        }
      }
      focus = child;
      put(++row, focus, 0, width, i < this.zoomPath.length, skipped);
    }
    this.focus = focus;
    const stack = [[focus, row, 0, width]];
    while (stack.length) {
      const [node, row, x0, x1] = stack.pop();
      if (node.value <= 0) continue;
      const scale = (x1 - x0) / node.value;
      let x = x0;
      for (const child of this.children(node)) {
        const end = x + child.value * scale;
        if (end - x < 0.4) { x = end; continue; }
        const [shown, skipped] = node === this.tree ? this.innermost(child) : [child, 0];
        put(row + 1, shown, x, end, false, skipped);
        stack.push([shown, row + 1, x, end]);
        x = end;
      }
    }
    for (const row of this.rows) row.sort((a, b) => a.x0 - b.x0);
    this.size.style.height = this.rows.length * FLAME_ROW + 4 + "px";
    this.draw();
  }

  // The end of a chain of outermost frames that only call one another, and how many stand before it.
  innermost(node) {
    for (let skipped = 0; ; skipped++) {
      const next = this.children(node)[0];
      if (!next || !this.source.isPassage(node, next)) return [node, skipped];
      node = next;
    }
  }

  // Labels from the root to a frame.
  pathOf(node) {
    const path = [];
    for (let n = node; n.parent; n = n.parent) path.unshift(n.label);
    return path;
  }

  // --- Picture

  draw() {
    if (!this.tree || this.box.clientWidth === 0) return;
    const { colors, source } = this;
    const height = this.box.clientHeight, top = this.box.scrollTop;
    const c = sizeCanvas(this.canvas, this.box.clientWidth, height);
    c.font = "11.5px " + colors.font;
    c.textBaseline = "middle";
    if (this.tree.value === 0) {
      c.fillStyle = colors.dim;
      c.fillText(source.nothing(), 14, 22);
      return;
    }
    const searched = source.isSearched();
    const first = Math.max(0, Math.floor(top / FLAME_ROW)), last = Math.min(this.rows.length, Math.ceil((top + height) / FLAME_ROW));
    for (let row = first; row < last; row++) {
      const y = row * FLAME_ROW - top;
      for (const frame of this.rows[row]) {
        const { node, x0, x1 } = frame, w = x1 - x0;
        const match = searched && source.isMatch(node);
        c.globalAlpha = frame.dim ? 0.55 : searched && !match ? 0.35 : 1;
        c.fillStyle = match ? (colors.dark ? "#b0347f" : "#ff7ac6") : node.depth === 0 ? colors.line : source.colorOf(node);
        c.fillRect(x0, y, Math.max(w - 0.6, 0.4), FLAME_ROW - 1);
        if (source.isUnknown(node)) hatch(c, x0, y, w - 0.6, FLAME_ROW - 1, colors.dim);
        c.globalAlpha = frame.dim ? 0.7 : 1;
        if (w > 26) {
          const name = (frame.skipped ? `… ${frame.skipped} ▸ ` : "") + source.nameOf(node);
          c.fillStyle = colors.text;
          fillFitted(c, fitName, name, x0 + 4, y + FLAME_ROW / 2, w - 8);
        }
        if (frame.node === this.hovered) {
          c.strokeStyle = colors.text;
          c.lineWidth = 1.5;
          c.strokeRect(x0 + 0.75, y + 0.75, Math.max(w - 2, 1), FLAME_ROW - 2.5);
        }
      }
    }
    c.globalAlpha = 1;
  }

  // --- Hands

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top + this.box.scrollTop;
    const row = this.rows[Math.floor(y / FLAME_ROW)] || [];
    return row.find((f) => x >= f.x0 && x < f.x1) || null;
  }

  hover(event) {
    const frame = this.at(event), node = frame && frame.node;
    if (node !== this.hovered) { this.hovered = node; this.draw(); }
    this.canvas.style.cursor = node ? "pointer" : "default";
    if (node) this.tip.show(event, this.describe(frame)); else this.tip.hide();
  }

  leave() {
    this.hovered = null;
    this.tip.hide();
    this.draw();
  }

  click(event) {
    const frame = this.at(event);
    if (!frame) return;
    this.zoomTo(this.pathOf(frame.node));
  }

  zoomTo(path) {
    this.zoomPath = path;
    this.hovered = null;
    this.layout();
    const row = this.rows.findIndex((r) => r.some((f) => f.node === this.focus));
    this.box.scrollTop = Math.max(0, (row - 3) * FLAME_ROW);
    this.onZoom();
  }

  describe({ node, skipped }) {
    return this.source.describe(node, this.focus, skipped ? this.pathOf(node).slice(0, -1) : []);
  }
}

// Diagonal lines: nothing is known here.
function hatch(c, x, y, w, h, color) {
  if (w < 3) return;
  c.save();
  c.beginPath();
  c.rect(x, y, w, h);
  c.clip();
  c.strokeStyle = color;
  c.globalAlpha = 0.5;
  c.lineWidth = 1;
  c.beginPath();
  const from = Math.max(x, 0) - h, to = Math.min(x + w, 8000);
  for (let i = from - (from % 6); i < to; i += 6) {
    c.moveTo(i, y + h);
    c.lineTo(i + h, y);
  }
  c.stroke();
  c.restore();
}
