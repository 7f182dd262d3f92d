// What the report's flame graph shows: the call tree of the chosen threads and range, or its bottom-up reverse.
// It is a source of nodes for `Flame`.

class CallTree {
  constructor(data, view, colors) {
    Object.assign(this, { data, view, colors });
  }

  // --- What `Around` asks for

  get tree() { return this.data; }

  totals() { return this.view.sums().total; }

  hasAny(place) { return this.totals()[place] > 0; }

  nameOfLabel(label) { return this.data.nameOf(label); }

  format(value) { return WEIGHTS[this.view.weight].format(value); }

  // What an interpreter's frames between two functions have in themselves is that of the outer one.
  isLeftOut(place) { return !this.view.library && this.data.interprets[place] === 1; }

  // --- What `Flame` asks for

  root() {
    return { label: -1, value: this.view.sums().all, self: 0, parent: null, depth: 0, places: [0] };
  }

  children(node) {
    const list = this.view.inverted ? this.callers(node) : this.callees(node);
    return list.sort((a, b) => b.value - a.value || a.label - b.label);
  }

  callees(node) {
    const { data } = this, { total, self } = this.view.sums(), byLabel = new Map();
    const selfOf = (place) => {
      let sum = self[place];
      for (let p = data.firstChild[place]; p !== -1; p = data.sibling[p]) if (this.isLeftOut(p)) sum += selfOf(p);
      return sum;
    };
    const add = (p) => {
      const label = data.label[p];
      let child = byLabel.get(label);
      if (!child) byLabel.set(label, (child = { label, value: 0, self: 0, parent: node, depth: node.depth + 1, places: [] }));
      child.value += total[p];
      child.self += selfOf(p);
      child.places.push(p);
    };
    for (const place of node.places) forEachCallee(this, place, add);
    return [...byLabel.values()];
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

  // Outermost frames that only call one another are one row.
  isPassage(node, callee) {
    return !this.view.outer && !this.view.inverted && callee.value >= 0.995 * node.value && this.data.isFunction(callee.label);
  }

  nameOf(node) { return node.depth === 0 ? `all · ${this.format(node.value)}` : this.nameOfLabel(node.label); }

  colorOf(node) {
    const { view, colors } = this;
    if (!view.baseline) return colors.of(node.label);
    return changeColor(colors, node.value - this.before(node), Math.max(view.sums().all, view.baselineSums().all * view.scale()) / 10);
  }

  // A node's amount by other sums.
  amountIn(node, sums) {
    let sum = 0;
    if (!node.entries) {
      for (const place of node.places) sum += sums.total[place];
      return sum;
    }
    for (let i = 0; i < node.entries.length; i += 2) sum += sums.self[node.entries[i]];
    return sum;
  }

  // A node's amount in the baseline, for the length of what is shown.
  before(node) { return this.amountIn(node, this.view.baselineSums()) * this.view.scale(); }

  // What a comparison says of a node, for tooltips.
  changeLines(node) {
    if (!this.view.baseline) return [];
    const { format } = WEIGHTS[this.view.weight], before = this.before(node);
    return [["Baseline, for this length", format(before)], ["Change", formatChange(before, node.value)]];
  }

  isUnknown(node) { return node.label === GAP; }

  isSearched() { return this.view.matches !== null; }

  isMatch(node) { return this.view.isMatch(node.label); }

  nothing() {
    const { weight } = this.view, { hiddenTime } = this.view.sums();
    const isHidden = hiddenTime > 0 && (weight === "wall" || weight === "blocked");
    return `No ${WEIGHTS[weight].title} in what is selected${isHidden ? ` but ${formatTime(hiddenTime)} of idle time, which is hidden` : ""}.`;
  }

  // Everything known about a frame.
  describe(node, focus, outer) {
    const { data, view } = this, sums = view.sums(), keys = ["time", "blocked", "cpu", "bytes", "allocations", "samples", "minorFaults", "majorFaults", "voluntary", "involuntary"];
    const sum = {};
    for (const key of keys) {
      sum[key] = 0;
      if (!node.entries) {
        for (const place of node.places) sum[key] += sums.amounts(key)[place];
      } else {
        for (let i = 0; i < node.entries.length; i += 2) sum[key] += sums.own[key][node.entries[i]];
      }
    }
    const { format, title } = WEIGHTS[view.weight];
    const lines = [[title[0].toUpperCase() + title.slice(1), `${format(node.value)}  ${formatShare(node.value, sums.all)}`]];
    lines.push(...this.changeLines(node));
    if (focus.depth > 0 && node.depth > 0) lines.push(["of the zoomed frame", formatShare(node.value, focus.value)]);
    if (!node.entries && node.self > 0) lines.push(["in itself", format(node.self)]);
    if (view.weight !== "wall") lines.push(["Wall time", formatTime(sum.time)]);
    if (sum.blocked > 0 && view.weight !== "blocked") lines.push(["Blocked", formatTime(sum.blocked)]);
    if (view.weight !== "cpu") lines.push(["CPU time", formatTime(sum.cpu)]);
    if (sum.bytes > 0) lines.push(["Allocated", formatBytes(sum.bytes) + (sum.allocations ? ` in ${formatCount(sum.allocations)}` : "")]);
    if (sum.minorFaults + sum.majorFaults > 0) lines.push(["Page faults", `${formatCount(sum.minorFaults)} minor, ${formatCount(sum.majorFaults)} major`]);
    if (sum.voluntary + sum.involuntary > 0) lines.push(["Switches", `${formatCount(sum.voluntary)} voluntary, ${formatCount(sum.involuntary)} involuntary`]);
    if (sum.samples > 0) lines.push(["Samples", formatCount(sum.samples)]);
    if (outer.length) lines.push(["Outer frames", outer.map((l) => data.nameOf(l)).slice(-6).join(" → ")]);
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
