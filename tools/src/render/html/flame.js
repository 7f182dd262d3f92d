// The flame graph: the call tree of the chosen threads and range, or its bottom-up reverse.

const FLAME_ROW = 18;

class Flame {
  constructor(data, view, colors, tip) {
    Object.assign(this, { data, view, colors, tip });
    this.box = byId("flame");
    this.canvas = byId("flame-canvas");
    this.zoomPath = []; // labels from the root to the frame that is zoomed to
    this.hovered = null;
    this.rows = [];
    this.box.addEventListener("scroll", () => this.draw());
    this.canvas.addEventListener("pointermove", (e) => this.hover(e));
    this.canvas.addEventListener("pointerleave", () => this.leave());
    this.canvas.addEventListener("click", (e) => this.click(e));
    this.box.addEventListener("keydown", (e) => {
      if (e.key === "Escape" && this.zoomPath.length) { e.stopPropagation(); this.zoomTo([]); }
    });
  }

  // --- Nodes: { label, value, self, parent, depth }, children found when they are needed.

  root() {
    const sums = this.view.sums();
    const root = { label: -1, value: sums.all, self: 0, parent: null, depth: 0, place: 0 };
    if (this.view.inverted) root.entries = null;
    return root;
  }

  children(node) {
    if (node.list) return node.list;
    node.list = this.view.inverted ? this.callers(node) : this.callees(node);
    node.list.sort((a, b) => b.value - a.value || a.label - b.label);
    return node.list;
  }

  callees(node) {
    const { data } = this, { total, self } = this.view.sums(), list = [];
    for (let p = data.firstChild[node.place]; p !== -1; p = data.sibling[p]) {
      if (total[p] > 0) list.push({ label: data.label[p], value: total[p], self: self[p], parent: node, depth: node.depth + 1, place: p });
    }
    return list;
  }

  // `entries` are pairs of (place the weight was spent at, place this node stands for).
  callers(node) {
    const { data } = this, { self } = this.view.sums(), byLabel = new Map();
    const add = (spent, here) => {
      const label = data.label[here];
      let child = byLabel.get(label);
      if (!child) byLabel.set(label, (child = { label, value: 0, self: 0, parent: node, depth: node.depth + 1, entries: [] }));
      child.value += self[spent];
      child.entries.push(spent, here);
    };
    if (node.parent === null) {
      for (let p = 1; p < data.count; p++) if (self[p] > 0) add(p, p);
    } else {
      for (let i = 0; i < node.entries.length; i += 2) {
        const above = data.parent[node.entries[i + 1]];
        if (above > 0) add(node.entries[i], above);
      }
    }
    if (node.depth === 0) for (const child of byLabel.values()) child.self = child.value;
    return [...byLabel.values()];
  }

  // --- Layout

  // Forgets nodes; call when the sums changed.
  rebuild() {
    this.tree = this.root();
    this.layout();
  }

  layout() {
    const width = this.box.clientWidth;
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
        if (end - x < 0.4) break; // the rest is smaller still
        const [shown, skipped] = node === this.tree ? this.innermost(child) : [child, 0];
        put(row + 1, shown, x, end, false, skipped);
        stack.push([shown, row + 1, x, end]);
        x = end;
      }
    }
    for (const row of this.rows) row.sort((a, b) => a.x0 - b.x0);
    byId("flame-size").style.height = this.rows.length * FLAME_ROW + 4 + "px";
    this.draw();
  }

  // The end of a chain of outermost frames that only call one another, and how many stand before it.
  innermost(node) {
    let skipped = 0;
    while (!this.view.outer && !this.view.inverted) {
      const next = this.children(node)[0];
      if (!next || next.value < 0.995 * node.value || !this.data.isFunction(next.label)) break;
      node = next;
      skipped++;
    }
    return [node, skipped];
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
    const { colors, view, data } = this;
    const height = this.box.clientHeight, top = this.box.scrollTop;
    const c = sizeCanvas(this.canvas, this.box.clientWidth, height);
    c.font = "11.5px " + colors.font;
    c.textBaseline = "middle";
    const charWidth = c.measureText("abcdefghij_:ABCDEmnoil").width / 22;
    if (view.sums().all === 0) {
      c.fillStyle = colors.dim;
      c.fillText(`No ${WEIGHTS[view.weight].title} in what is selected.`, 14, 22);
      return;
    }
    const first = Math.max(0, Math.floor(top / FLAME_ROW)), last = Math.min(this.rows.length, Math.ceil((top + height) / FLAME_ROW));
    for (let row = first; row < last; row++) {
      const y = row * FLAME_ROW - top;
      for (const frame of this.rows[row]) {
        const { node, x0, x1 } = frame, w = x1 - x0;
        const match = view.matches && view.isMatch(node.label);
        c.globalAlpha = frame.dim ? 0.55 : view.matches && !match ? 0.35 : 1;
        c.fillStyle = match ? (colors.dark ? "#b0347f" : "#ff7ac6") : node.depth === 0 ? colors.line : colors.of(node.label);
        c.fillRect(x0, y, Math.max(w - 0.6, 0.4), FLAME_ROW - 1);
        if (node.label === GAP) hatch(c, x0, y, w - 0.6, FLAME_ROW - 1, colors.dim);
        c.globalAlpha = frame.dim ? 0.7 : 1;
        if (w > 26) {
          const name = node.depth === 0 ? `all · ${WEIGHTS[view.weight].format(node.value)}` : (frame.skipped ? `… ${frame.skipped} ▸ ` : "") + data.nameOf(node.label);
          c.fillStyle = colors.text;
          c.fillText(fitName(name, w - 8, charWidth), x0 + 4, y + FLAME_ROW / 2);
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
    if (node) this.tip.show(event, this.describe(node, frame.skipped)); else this.tip.hide();
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
  }

  // Everything known about a frame.
  describe(node, skipped) {
    const { data, view } = this, sums = view.sums(), keys = ["time", "blocked", "cpu", "bytes", "allocations", "samples", "minorFaults", "majorFaults", "voluntary", "involuntary"];
    const sum = {};
    for (const key of keys) {
      if (!node.entries) sum[key] = sums.amounts(key)[node.place];
      else {
        sum[key] = 0;
        for (let i = 0; i < node.entries.length; i += 2) sum[key] += sums.own[key][node.entries[i]];
      }
    }
    const { format, title } = WEIGHTS[view.weight];
    const lines = [[title[0].toUpperCase() + title.slice(1), `${format(node.value)}  ${formatShare(node.value, sums.all)}`]];
    if (this.focus !== this.tree && node !== this.tree) lines.push(["of the zoomed frame", formatShare(node.value, this.focus.value)]);
    if (!node.entries && node.self > 0) lines.push(["in itself", format(node.self)]);
    if (view.weight !== "wall") lines.push(["Wall time", formatTime(sum.time)]);
    if (sum.blocked > 0 && view.weight !== "blocked") lines.push(["Blocked", formatTime(sum.blocked)]);
    if (view.weight !== "cpu") lines.push(["CPU time", formatTime(sum.cpu)]);
    if (sum.bytes > 0) lines.push(["Allocated", formatBytes(sum.bytes) + (sum.allocations ? ` in ${formatCount(sum.allocations)}` : "")]);
    if (sum.minorFaults + sum.majorFaults > 0) lines.push(["Page faults", `${formatCount(sum.minorFaults)} minor, ${formatCount(sum.majorFaults)} major`]);
    if (sum.voluntary + sum.involuntary > 0) lines.push(["Switches", `${formatCount(sum.voluntary)} voluntary, ${formatCount(sum.involuntary)} involuntary`]);
    if (sum.samples > 0) lines.push(["Samples", formatCount(sum.samples)]);
    if (skipped) lines.push(["Outer frames", this.pathOf(node).slice(0, -1).map((l) => data.nameOf(l)).slice(-6).join(" → ")]);
    return { ...describeLabel(data, node.label), lines };
  }
}

// Name and origin of a label, for tooltips.
function describeLabel(data, label) {
  const f = data.functionOf(label), where = [];
  if (f) {
    if (f.file) where.push(f.file + (f.line ? ":" + f.line : ""));
    if (f.module) where.push(f.module);
  } else if (data.isBlocking(label)) where.push("blocking call · " + data.meta.causes[data.causeOf(label)]);
  return { title: data.nameOf(label), where: where.join("\n") };
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
