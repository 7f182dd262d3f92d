// A flame graph of both sides: widths are one side's amounts, colours say where the other has more or
// less. DATA.nodes: [parent, name, [[baseline, candidate, whether chance is unlikely] by weight]], parents before children.

const BASELINE = 0, CANDIDATE = 1, DIFFERS = 2;

class Comparison {
  constructor() {
    this.below = DATA.nodes.map(() => []);
    DATA.nodes.forEach((node, at) => { if (at > 0) this.below[node[0]].push(at); });
    // By name: a place stays where it is when amount and side change.
    for (const list of this.below) list.sort((a, b) => (DATA.nodes[a][1] < DATA.nodes[b][1] ? -1 : 1));
    this.colors = {};
    this.test = null;
    this.side = CANDIDATE;
    this.weigh(0);
    this.refresh();
  }

  weigh(weight) {
    this.weight = weight;
    const [before, after] = DATA.nodes[0][2][weight];
    // Full colour: a tenth of the whole graph's amount.
    this.strongest = Math.max(before, after) / 10;
  }

  // Reads the scheme's colours.
  refresh() { Object.assign(this.colors, schemeColors(["line", "text", "dim", "flat", "more", "less"])); }

  pair(node) { return DATA.nodes[node.label][2][this.weight]; }

  format(value) {
    const unit = DATA.weights[this.weight][1];
    return unit === "ns" ? formatTime(value) : unit === "bytes" ? formatBytes(value) : formatCount(value);
  }

  // What matches, nothing twice.
  matched(node) {
    if (node.depth > 0 && this.isMatch(node)) return node.value;
    return this.children(node).reduce((sum, child) => sum + this.matched(child), 0);
  }

  // --- What `Flame` asks for; labels are places in DATA.nodes.

  node(at, parent) {
    const node = { label: at, parent, depth: parent ? parent.depth + 1 : 0 };
    node.value = this.pair(node)[this.side];
    return node;
  }

  root() { return this.node(0, null); }

  children(node) { return this.below[node.label].map((at) => this.node(at, node)); }

  isPassage() { return false; }

  nameOf(node) { return node.depth === 0 ? `all · ${this.format(node.value)}` : DATA.nodes[node.label][1]; }

  // Where the candidate has more, and where it has less, by more than chance would have it.
  colorOf(node) {
    const pair = this.pair(node), { colors } = this;
    if (!pair[DIFFERS]) return colors.flat;
    return changeColor(colors, pair[CANDIDATE] - pair[BASELINE], this.strongest);
  }

  isUnknown() { return false; }

  isSearched() { return this.test !== null; }

  isMatch(node) { return this.test(DATA.nodes[node.label][1]); }

  nothing() { return `The ${this.side === CANDIDATE ? "candidate" : "baseline"} has no ${DATA.weights[this.weight][0]}.`; }

  describe(node, focus) {
    const [before, after, differs] = this.pair(node), whole = DATA.nodes[0][2][this.weight][this.side];
    const change = formatChange(before, after);
    const lines = [["baseline", this.format(before)], ["candidate", this.format(after)]];
    if (change) lines.push(["change", change]);
    if (!differs && before !== after) lines.push(["", "may be chance"]);
    if (node.depth > 0) lines.push(["of the whole", formatShare(node.value, whole)]);
    if (focus.depth > 0 && node.depth > 0) lines.push(["of the zoomed frame", formatShare(node.value, focus.value)]);
    return { title: DATA.nodes[node.label][1], lines };
  }
}

const comparison = new Comparison();
const flame = new Flame(byId("flame"), comparison, comparison.colors, new Tip());

function showFound() {
  const { tree } = flame, { test } = comparison;
  showMatched(test, test && formatShare(comparison.matched(tree), tree.value));
}

function rebuild() {
  flame.rebuild();
  showFound();
}

// What of this page is in its address.
const STATE_DEFAULTS = { amount: "0", widths: String(CANDIDATE), search: "" }, zooms = { zoom: flame };
const address = new Address(
  () => stateToText({ amount: byId("weight").value, widths: byId("side").value, search: byId("search").value }, STATE_DEFAULTS, zooms),
  (text) => {
    const state = stateOfText(text, STATE_DEFAULTS);
    // What a link has wrong stays as it was at the start.
    for (const [id, key] of [["weight", "amount"], ["side", "widths"]]) {
      byId(id).value = state[key];
      if (byId(id).selectedIndex < 0) byId(id).value = STATE_DEFAULTS[key];
    }
    byId("search").value = state.search;
    apply();
    followZooms(state, zooms);
  },
);

// The page as its controls say.
function apply() {
  comparison.side = Number(byId("side").value);
  comparison.weigh(Number(byId("weight").value));
  comparison.test = byId("search").value.trim() === "" ? null : nameTest(byId("search").value);
  rebuild();
  address.keep();
}

flame.onZoom = () => {
  byId("back").hidden = flame.zoomPath.length === 0;
  address.keep();
};
DATA.weights.forEach(([title], at) => byId("weight").append(new Option(title, at)));
for (const id of ["weight", "side"]) byId(id).addEventListener("change", apply);
byId("search").addEventListener("input", apply);
byId("svg").addEventListener("click", () => saveFile("flame-graph.svg", "image/svg+xml", flameToSvg(flame, document.title)));
byId("back").addEventListener("click", () => flame.zoomTo([]));
window.addEventListener("resize", () => flame.layout());
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { comparison.refresh(); flame.draw(); });
address.open();

// What tests and curious people reach from the console.
window.stackbeat = Promise.resolve({ flame, comparison });
