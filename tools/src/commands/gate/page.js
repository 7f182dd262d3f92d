// What the pages of `diff` and `gate` do: a flame graph of both sides, callers and callees of a function, and a search
// through all of the page. Widths are one side's amounts, colours say where the other has more or less.
//
// DATA.labels: [name, kind]. DATA.nodes: [parent, number of the label, [[baseline, candidate, whether
// chance is unlikely] by weight]], parents before children.

const BASELINE = 0, CANDIDATE = 1, DIFFERS = 2;
// Kinds of labels, those of functions last.
const FUNCTION = 1, INTERPRETER = 2, INTERPRETED = 3;
const isFunction = (label) => DATA.labels[label]?.[1] >= FUNCTION;

// The places as columns.
function placesOfNodes(nodes) {
  const count = nodes.length, column = (fill) => new Int32Array(count).fill(fill);
  const tree = { count, parent: column(0), label: column(-1), firstChild: column(-1), sibling: column(-1) };
  nodes.forEach(([parent, label], at) => {
    tree.label[at] = label;
    if (at === 0) return;
    tree.parent[at] = parent;
    tree.sibling[at] = tree.firstChild[parent];
    tree.firstChild[parent] = at;
  });
  const isKind = (kind) => (label) => DATA.labels[label][1] === kind;
  tree.repeats = repeatsOf(tree, isFunction);
  tree.interprets = interpretersOf(tree, isKind(INTERPRETER), isKind(INTERPRETED));
  return tree;
}

class Comparison {
  constructor() {
    this.nodes = DATA.nodes;
    this.tree = placesOfNodes(this.nodes);
    this.colors = {};
    this.test = null;
    this.side = CANDIDATE;
    this.library = false; // show an interpreter's frames
    this.weigh(0);
    this.refresh();
  }

  weigh(weight) {
    this.weight = weight;
    const [before, after] = this.nodes[0][2][weight];
    // Full colour: a tenth of the whole graph's amount.
    this.strongest = Math.max(before, after) / 10;
  }

  // Reads the scheme's colours.
  refresh() { Object.assign(this.colors, schemeColors(["line", "text", "dim", "flat", "more", "less"])); }

  // What matches, nothing twice.
  matched(node) {
    if (node.depth > 0 && this.isMatch(node)) return node.value;
    return this.children(node).reduce((sum, child) => sum + this.matched(child), 0);
  }

  // Both sides' amounts of a node, and the part of their difference that is unlikely to be chance; null: none is.
  // Several places are one node where an interpreter's frames are left out, and in `Around`.
  amounts(node) {
    const sums = { before: 0, after: 0, changed: null };
    for (const place of node.places) {
      const [before, after, differs] = this.nodes[place][2][this.weight];
      sums.before += before;
      sums.after += after;
      if (differs) sums.changed += after - before;
    }
    return sums;
  }

  // --- What `Around` asks for

  totals() {
    const key = `${this.weight} ${this.side}`;
    if (this.known?.key !== key) this.known = { key, totals: this.nodes.map((node) => node[2][this.weight][this.side]) };
    return this.known.totals;
  }

  // Of either side: what one of them lacks counts for the difference.
  hasAny(place) {
    const [before, after] = this.nodes[place][2][this.weight];
    return before > 0 || after > 0;
  }

  isLeftOut(place) { return !this.library && this.tree.interprets[place] === 1; }

  nameOfLabel(label) { return DATA.labels[label][0]; }

  format(value) {
    const unit = DATA.weights[this.weight][1];
    return unit === "ns" ? formatTime(value) : unit === "bytes" ? formatBytes(value) : formatCount(value);
  }

  // --- What `Flame` asks for

  root() { return { label: this.tree.label[0], value: this.totals()[0], parent: null, depth: 0, places: [0] }; }

  // By name: a place stays where it is when amount and side change.
  children(node) {
    const total = this.totals(), byLabel = new Map();
    const add = (place) => {
      const label = this.tree.label[place];
      let child = byLabel.get(label);
      if (!child) byLabel.set(label, (child = { label, value: 0, parent: node, depth: node.depth + 1, places: [] }));
      child.value += total[place];
      child.places.push(place);
    };
    for (const place of node.places) forEachCallee(this, place, add);
    return [...byLabel.values()].sort((a, b) => (this.nameOfLabel(a.label) < this.nameOfLabel(b.label) ? -1 : 1));
  }

  isPassage() { return false; }

  nameOf(node) { return node.depth === 0 ? `all · ${this.format(node.value)}` : this.nameOfLabel(node.label); }

  // Where the candidate has more, and where it has less, by more than chance would have it.
  colorOf(node) {
    const { changed } = this.amounts(node);
    return changed === null ? this.colors.flat : changeColor(this.colors, changed, this.strongest);
  }

  isUnknown() { return false; }

  isSearched() { return this.test !== null; }

  isMatch(node) { return this.test(this.nameOfLabel(node.label)); }

  nothing(name) { return `The ${this.side === CANDIDATE ? "candidate" : "baseline"} has no ${DATA.weights[this.weight][0]}${name ? ` in ${name}` : ""}.`; }

  describe(node, focus) {
    const { before, after, changed } = this.amounts(node), whole = this.nodes[0][2][this.weight][this.side];
    const change = formatChange(before, after);
    const lines = [["baseline", this.format(before)], ["candidate", this.format(after)]];
    if (change) lines.push(["change", change]);
    if (changed === null && before !== after) lines.push(["", "may be chance"]);
    if (node.places[0] > 0) lines.push(["of the whole", formatShare(node.value, whole)]);
    if (focus.depth > 0 && node.depth > 0) lines.push(["of the zoomed frame", formatShare(node.value, focus.value)]);
    return { title: this.nameOfLabel(node.label), lines };
  }
}

const comparison = new Comparison(), tip = new Tip();
const flame = new Flame(byId("flame"), comparison, comparison.colors, tip);
const aroundPanel = new AroundPanel(comparison, comparison.colors, tip);
const zooms = { zoom: flame, callers: aroundPanel.flames[0], callees: aroundPanel.flames[1] };
let around = null; // label of the function whose callers and callees are shown

// What has a name beside the flame graphs: lines of tables, and frames of the main threads.
const rows = [...document.querySelectorAll("tr[data-name]")].map((row) => [row, row.dataset.name]);
const frames = [...document.querySelectorAll(".lanes g:not(:first-of-type) rect")].map((frame) => {
  const title = frame.querySelector("title").textContent;
  return [frame, title.slice(0, title.lastIndexOf(": "))];
});

function showFound() {
  const { tree } = flame, { test } = comparison;
  showMatched(test, test && `${formatShare(comparison.matched(tree), tree.value)} of ${DATA.weights[comparison.weight][0]}`);
  for (const [row, name] of rows) row.hidden = test !== null && !test(name);
  for (const [frame, name] of frames) {
    const isMatch = test !== null && test(name);
    frame.classList.toggle("match", isMatch);
    frame.classList.toggle("other", test !== null && !isMatch);
  }
}

// Shows a function's callers and callees; null: nobody's.
function showAround(label) {
  around = label;
  byId("around").hidden = label === null;
  aroundPanel.show(label);
  address.keep();
}

// The same, and brings them into view.
function lookAround(label) {
  showAround(label);
  byId("around").scrollIntoView({ block: "nearest" });
}

// What of this page is in its address.
const STATE_DEFAULTS = { amount: "0", widths: String(CANDIDATE), library: "", search: "", function: "" };
const address = new Address(
  () => stateToText({ amount: byId("weight").value, widths: byId("side").value, library: byId("library").checked ? "1" : "", search: byId("search").value, function: String(around ?? "") }, STATE_DEFAULTS, zooms),
  (text) => {
    const state = stateOfText(text, STATE_DEFAULTS);
    // What a link has wrong stays as it was at the start.
    for (const [id, key] of [["weight", "amount"], ["side", "widths"]]) {
      byId(id).value = state[key];
      if (byId(id).selectedIndex < 0) byId(id).value = STATE_DEFAULTS[key];
    }
    byId("library").checked = state.library === "1";
    byId("search").value = state.search;
    around = /^\d{1,9}$/.test(state.function) && isFunction(Number(state.function)) ? Number(state.function) : null;
    apply();
    followZooms(state, around === null ? { zoom: flame } : zooms);
  },
);

// The page as its controls say.
function apply() {
  comparison.side = Number(byId("side").value);
  comparison.weigh(Number(byId("weight").value));
  comparison.library = byId("library").checked;
  const search = byId("search").value;
  comparison.test = search.trim() === "" ? null : nameTest(search);
  flame.rebuild();
  // A frame that was zoomed to may be gone.
  byId("back").hidden = flame.zoomPath.length === 0;
  showFound();
  showAround(around);
}

function search(text) {
  byId("search").value = text;
  apply();
}

flame.onZoom = () => {
  byId("back").hidden = flame.zoomPath.length === 0;
  address.keep();
};
for (const other of aroundPanel.flames) other.onZoom = () => address.keep();
for (const each of [flame, ...aroundPanel.flames]) each.onChoose = ({ label }) => { if (isFunction(label)) lookAround(label); };
DATA.weights.forEach(([title], at) => byId("weight").append(new Option(title, at)));
for (const id of ["weight", "side", "library"]) byId(id).addEventListener("change", apply);
byId("search").addEventListener("input", apply);
const save = (parts) => saveFile("flame-graph.svg", "image/svg+xml", flamesToSvg(parts, `${document.title} · ${DATA.weights[comparison.weight][0]}`));
byId("svg").addEventListener("click", () => save([["", flame]]));
byId("around-svg").addEventListener("click", () => save(aroundPanel.parts()));
byId("back").addEventListener("click", () => flame.zoomTo([]));
byId("around-close").addEventListener("click", () => showAround(null));
// A function in a table leads to its callers and callees.
const labelOfFunction = new Map(DATA.labels.flatMap(([name], label) => (isFunction(label) ? [[name, label]] : [])));
for (const cell of document.querySelectorAll("tr[data-function] td:first-child")) {
  const label = labelOfFunction.get(cell.parentNode.dataset.name);
  if (label === undefined) continue; // too small for the flame graph
  cell.replaceChildren(element("button", { type: "button", class: "function", title: "Callers and callees", onclick: () => lookAround(label) }, ...cell.childNodes));
}
document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  const isTyping = e.target.matches("input[type=search]");
  if (e.key === "Escape" && (isTyping || comparison.test)) {
    search("");
    e.target.blur();
  } else if (e.key === "/" && !isTyping) {
    e.preventDefault();
    byId("search").focus();
    byId("search").select();
  }
});
// Where a window is narrow, the lanes begin where the first thread does.
for (const lanes of document.querySelectorAll(".scroll")) {
  const begins = [...lanes.querySelectorAll("g:first-of-type rect:first-of-type")].map((rect) => rect.getBoundingClientRect().left);
  if (begins.length > 0) lanes.scrollLeft = Math.min(...begins) - lanes.getBoundingClientRect().left;
}
window.addEventListener("resize", () => { flame.layout(); aroundPanel.layout(); });
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { comparison.refresh(); flame.draw(); aroundPanel.draw(); });
address.open();

// What tests and curious people reach from the console.
window.stackbeat = Promise.resolve({ flame, comparison, aroundPanel });
