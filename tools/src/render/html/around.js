// Who calls a function and what it calls: two flame graphs with the function on top, and its source lines.

// A source of nodes for `Flame`: the callers or the callees of one function, of the chosen threads and range.
class Around extends CallTree {
  constructor(data, view, colors, direction) {
    super(data, view, colors);
    this.direction = direction; // callers | callees
    this.label = null;
  }

  // Entries are places; those of callers are pairs of (place of the function, place that the node stands for).
  root() {
    const { data, label } = this, { total } = this.view.sums(), entries = [];
    let value = 0;
    for (let p = 1; p < data.count; p++) {
      // In a recursion the outermost call has the whole.
      if (data.label[p] !== label || data.repeats[p] || !(total[p] > 0)) continue;
      value += total[p];
      entries.push(p, p);
    }
    return { label: label ?? -1, value, parent: null, depth: 0, entries };
  }

  children(node) {
    const { data } = this, { total } = this.view.sums(), byLabel = new Map();
    const add = (from, here, value) => {
      const label = data.label[here];
      let child = byLabel.get(label);
      if (!child) byLabel.set(label, (child = { label, value: 0, parent: node, depth: node.depth + 1, entries: [] }));
      child.value += value;
      child.entries.push(from, here);
    };
    for (let i = 0; i < node.entries.length; i += 2) {
      const from = node.entries[i], here = node.entries[i + 1];
      if (this.direction === "callers") {
        if (data.parent[here] > 0) add(from, data.parent[here], total[from]);
      } else {
        for (let p = data.firstChild[here]; p !== -1; p = data.sibling[p]) if (total[p] > 0) add(p, p, total[p]);
      }
    }
    return [...byLabel.values()].sort((a, b) => b.value - a.value || a.label - b.label);
  }

  isPassage() { return false; }

  nameOf(node) {
    const name = this.data.nameOf(node.label);
    return node.depth === 0 ? `${name} · ${WEIGHTS[this.view.weight].format(node.value)}` : name;
  }

  amountIn(node, sums) {
    let sum = 0;
    for (let i = 0; i < node.entries.length; i += 2) sum += sums.total[node.entries[i]];
    return sum;
  }

  nothing() { return this.label === null ? "No function is chosen." : super.nothing(); }

  describe(node, focus) {
    const { format, title } = WEIGHTS[this.view.weight], whole = this.view.sums().all;
    const lines = [[title[0].toUpperCase() + title.slice(1), `${format(node.value)}  ${formatShare(node.value, whole)}`]];
    if (focus.value > 0 && node !== focus) lines.push(["of the frame on top", formatShare(node.value, focus.value)]);
    lines.push(...this.changeLines(node));
    return { ...describeLabel(this.data, node.label), lines };
  }
}

class AroundPanel {
  constructor(data, view, colors, tip) {
    Object.assign(this, { data, view });
    this.flames = ["callers", "callees"].map((side) => new Flame(byId(side), new Around(data, view, colors, side), colors, tip));
  }

  // The function by its number; without one the busiest of what is selected. Says which it is.
  render(index) {
    const { data, view } = this, { functions } = data.meta;
    if (index === null) index = view.functions().reduce((best, r) => (best && best.running >= r.running ? best : r), null)?.index ?? -1;
    const f = index === -1 ? null : functions[index], label = f ? LABEL_FUNCTION + 2 * index : null;
    byId("around-name").textContent = f ? f.name : "";
    byId("around-where").textContent = f ? [f.file + (f.file && f.line ? ":" + f.line : ""), f.module].filter(Boolean).join(" · ") : "";
    this.source(data.meta.sources[index]);
    for (const flame of this.flames) {
      if (flame.source.label !== label) flame.zoomPath = [];
      flame.source.label = label;
      flame.rebuild();
    }
    return f ? index : null;
  }

  source(lines) {
    byId("source").hidden = !lines;
    if (!lines) return;
    byId("source").replaceChildren(...lines.text.map((text, i) =>
      element("div", { class: lines.from + i === lines.line ? "first" : undefined }, element("span", null, String(lines.from + i)), text)));
  }

  draw() { for (const flame of this.flames) flame.draw(); }

  layout() { for (const flame of this.flames) if (flame.tree) flame.layout(); }
}
