// Who calls a function and what it calls: two flame graphs with the function on top, for every page that has a flame
// graph of a call tree.

// A source of nodes for `Flame`: the callers or the callees of one label. `whole`, the source of the page's flame graph,
// says what they are called, which colour they have, and what is known of them. Beside what `Flame` asks for it has
//
// - tree: places (places.js) with `repeats`.
// - totals(): amounts by place, callees included.
// - hasAny(place): whether there is anything to show of it, even where its amount is 0.
// - nameOfLabel(label), format(amount), isLeftOut(place): whether its callees are shown in its stead.
//
// A node's `places` are those whose amounts it has; `here` are the places that it stands for.
class Around {
  constructor(whole, direction) {
    Object.assign(this, { whole, direction }); // callers | callees
    this.label = null;
  }

  root() {
    const { label } = this, { tree } = this.whole, total = this.whole.totals(), places = [];
    let value = 0;
    for (let p = 1; p < tree.count; p++) {
      // In a recursion the outermost call has the whole.
      if (tree.label[p] !== label || tree.repeats[p] || !this.whole.hasAny(p)) continue;
      value += total[p];
      places.push(p);
    }
    return { label: label ?? -1, value, parent: null, depth: 0, places, here: places };
  }

  children(node) {
    const { tree } = this.whole, total = this.whole.totals(), byLabel = new Map();
    const add = (from, here) => {
      const label = tree.label[here];
      let child = byLabel.get(label);
      if (!child) byLabel.set(label, (child = { label, value: 0, parent: node, depth: node.depth + 1, places: [], here: [] }));
      child.value += total[from];
      child.places.push(from);
      child.here.push(here);
    };
    const addCaller = (from, here) => {
      let p = tree.parent[here];
      while (p > 0 && this.whole.isLeftOut(p)) p = tree.parent[p];
      if (p > 0) add(from, p);
    };
    node.here.forEach((here, i) => {
      if (this.direction === "callers") addCaller(node.places[i], here);
      else forEachCallee(this.whole, here, (p) => add(p, p));
    });
    return [...byLabel.values()].sort((a, b) => b.value - a.value || a.label - b.label);
  }

  isPassage() { return false; }

  nameOf(node) {
    const name = this.whole.nameOfLabel(node.label);
    return node.depth === 0 ? `${name} · ${this.whole.format(node.value)}` : name;
  }

  colorOf(node) { return this.whole.colorOf(node); }

  isUnknown(node) { return this.whole.isUnknown(node); }

  isSearched() { return this.whole.isSearched(); }

  isMatch(node) { return this.whole.isMatch(node); }

  nothing() { return this.label === null ? "No function is chosen." : this.whole.nothing(this.whole.nameOfLabel(this.label)); }

  describe(node, focus) {
    const { title, where, lines } = this.whole.describe(node, focus, []);
    if (focus.depth === 0 && node !== focus) lines.push(["of the frame on top", formatShare(node.value, focus.value)]);
    return { title, where, lines };
  }
}

class AroundPanel {
  constructor(whole, colors, tip) {
    this.flames = ["callers", "callees"].map((side) => new Flame(byId(side), new Around(whole, side), colors, tip));
  }

  // A function by its label, and where it is; null: none is chosen.
  show(label, where = "") {
    byId("around-name").textContent = label === null ? "" : this.flames[0].source.whole.nameOfLabel(label);
    byId("around-where").textContent = where;
    for (const flame of this.flames) {
      if (flame.source.label !== label) flame.zoomPath = [];
      flame.source.label = label;
      flame.rebuild();
    }
  }

  // What is shown, for `flamesToSvg`.
  parts() { return [["Callers", this.flames[0]], ["Callees", this.flames[1]]]; }

  draw() { for (const flame of this.flames) flame.draw(); }

  layout() { for (const flame of this.flames) if (flame.tree) flame.layout(); }
}
