// Reads the page's data: names as JSON, numbers as packed varints (written by packed_numbers.rs).

const GAP = 0, NO_STACK = 1, SMALL = 2;
const LABEL_FUNCTION = 3, LABEL_BLOCKING = 4; // + 2 × number

async function loadData() {
  const meta = JSON.parse(byId("meta").textContent);
  const packed = Uint8Array.from(atob(byId("data").textContent), (c) => c.charCodeAt(0));
  const plain = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(plain).arrayBuffer());
  let at = 0;
  const next = () => {
    let value = 0, factor = 1;
    for (;;) {
      const byte = bytes[at++];
      value += (byte & 0x7f) * factor;
      if (byte < 0x80) return value;
      factor *= 128;
    }
  };
  const data = { meta, ...readTree(next, meta), cells: [], bars: [] };
  for (let t = 0; t < meta.threads.length; t++) data.cells.push(readCells(next));
  for (let t = 0; t < meta.threads.length; t++) data.bars.push(readBars(next, data));
  return data;
}

function readTree(next, meta) {
  const count = next();
  const parent = new Int32Array(count), label = new Int32Array(count), depth = new Int32Array(count);
  const firstChild = new Int32Array(count).fill(-1), sibling = new Int32Array(count).fill(-1);
  // For which place what is allocated counts, and for which running time does (model/src/layers.rs).
  const allocates = new Int32Array(count), runs = new Int32Array(count);
  label[0] = -1;
  for (let i = 1; i < count; i++) {
    parent[i] = i - next();
    label[i] = next();
    allocates[i] = i - next();
    runs[i] = i - next();
    depth[i] = depth[parent[i]] + 1;
    sibling[i] = firstChild[parent[i]];
    firstChild[parent[i]] = i;
  }
  const atWork = new Uint8Array(count);
  for (const p of meta.waits_at_work) atWork[p] = 1;
  const forWork = new Uint8Array(count);
  for (const p of meta.waits_for_work) forWork[p] = 1;
  const isFunction = (l) => l >= LABEL_FUNCTION && (l & 1) === 1;
  const isBlocking = (l) => l >= LABEL_BLOCKING && (l & 1) === 0;
  const functionOf = (l) => (isFunction(l) ? meta.functions[(l - LABEL_FUNCTION) / 2] : null);
  const probeOf = (l) => (isBlocking(l) ? meta.probes[(l - LABEL_BLOCKING) / 2] : null);
  const places = { count, parent, label }, repeats = repeatsOf(places, (l) => l >= LABEL_FUNCTION);
  const isInterpreter = new Set(meta.interpreter), isInterpreted = new Set(meta.interpreted);
  const isIn = (functions) => (l) => isFunction(l) && functions.has((l - LABEL_FUNCTION) / 2);
  const interprets = interpretersOf(places, isIn(isInterpreter), isIn(isInterpreted));
  const nameOf = (l) => {
    if (l === -1) return "all";
    if (l === GAP) return "(no evidence)";
    if (l === NO_STACK) return "(no stack)";
    if (l === SMALL) return "(many small stacks)";
    return isFunction(l) ? functionOf(l).name : probeOf(l).name;
  };
  const causeOf = (l) => (isBlocking(l) ? probeOf(l).cause : 0);
  return { count, parent, label, depth, firstChild, sibling, allocates, runs, atWork, forWork, repeats, interprets, isFunction, isBlocking, functionOf, probeOf, nameOf, causeOf };
}

function readCells(next) {
  const n = next(), column = () => new Float64Array(n);
  const cells = {
    n, place: new Int32Array(n), time: column(), count: column(), longest: column(),
    longestAt: column(), cpu: column(), allocations: column(), bytes: column(), samples: column(), standing: column(), squares: column(),
    minorFaults: column(), majorFaults: column(), voluntary: column(), involuntary: column(),
  };
  for (let i = 0, place = 0; i < n; i++) {
    cells.place[i] = place += next();
    cells.time[i] = next();
    cells.count[i] = next();
    cells.longest[i] = next();
    cells.longestAt[i] = next();
    cells.cpu[i] = next();
    cells.allocations[i] = next();
    cells.bytes[i] = next();
    cells.samples[i] = next();
    cells.standing[i] = next();
    cells.squares[i] = next() * 1e6;
    cells.minorFaults[i] = next();
    cells.majorFaults[i] = next();
    cells.voluntary[i] = next();
    cells.involuntary[i] = next();
  }
  return cells;
}

// `common[i]`: how many outermost frames go on from bar i − 1 to bar i.
function readBars(next, data) {
  const n = next(), column = () => new Float64Array(n);
  const bars = {
    n, begin: column(), end: column(), place: new Int32Array(n), common: new Int32Array(n),
    cpu: column(), bytes: column(), maxDepth: 0,
  };
  for (let i = 0, now = 0, place = 0; i < n; i++) {
    const hole = next();
    bars.begin[i] = now + hole;
    now = bars.end[i] = bars.begin[i] + next();
    const coded = next(), hasCommon = coded % 2 === 1, zigzag = Math.floor(coded / 2);
    const before = place;
    place += zigzag % 2 === 0 ? zigzag / 2 : -(zigzag + 1) / 2;
    bars.place[i] = place;
    bars.common[i] = hasCommon ? next() : i === 0 || hole > 0 ? 0 : commonDepth(data, before, place);
    bars.cpu[i] = next();
    bars.bytes[i] = next();
    if (data.depth[place] > bars.maxDepth) bars.maxDepth = data.depth[place];
  }
  return bars;
}

function commonDepth(data, a, b) {
  const { parent, depth } = data;
  while (depth[a] > depth[b]) a = parent[a];
  while (depth[b] > depth[a]) b = parent[b];
  while (a !== b) { a = parent[a]; b = parent[b]; }
  return depth[a];
}

// Index of the first bar that ends after `time`.
function firstBarAfter(bars, time) {
  let low = 0, high = bars.n;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (bars.end[middle] > time) high = middle; else low = middle + 1;
  }
  return low;
}
