// What is shown (threads, range, weight, search), and the sums that follow from it.

const WEIGHTS = {
  wall: { title: "wall time", format: formatTime },
  cpu: { title: "CPU time", format: formatTime },
  blocked: { title: "blocked time", format: formatTime },
  alloc: { title: "allocated", format: formatBytes },
};

class View {
  constructor(data) {
    this.data = data;
    this.listeners = [];
    this.weight = "wall";
    this.inverted = false;
    this.idle = false; // show idle waits
    this.outer = false; // show frames that everything shares
    this.library = false; // functions of the standard library stand for themselves, and an interpreter's frames are shown
    this.scope = "all"; // all | p<process> | t<thread>
    this.range = null; // [begin, end] in ns
    this.baseline = null; // the range that the other one is compared with
    this.search = "";
    this.matches = null; // by function, or null
    this.cached = null;
  }

  onChange(listener) { this.listeners.push(listener); }

  set(changes) {
    for (const key of ["weight", "inverted", "idle", "scope", "range", "outer", "library", "baseline"]) {
      if (key in changes && changes[key] !== this[key]) { this[key] = changes[key]; this.cached = this.cachedBaseline = null; }
    }
    if ("search" in changes && changes.search !== this.search) {
      this.search = changes.search;
      this.matches = this.matcher(changes.search);
    }
    for (const listener of this.listeners) listener(changes);
  }

  matcher(text) {
    const { meta } = this.data;
    if (text.trim() === "") return null;
    const test = nameTest(text);
    return {
      wrong: test.wrong,
      functions: Uint8Array.from(meta.functions, (f) => (test(f.name) ? 1 : 0)),
      probes: Uint8Array.from(meta.probes, (p) => (p && test(p.name) ? 1 : 0)),
    };
  }

  isMatch(label) {
    if (!this.matches) return false;
    const { data } = this;
    if (data.isFunction(label)) return this.matches.functions[(label - LABEL_FUNCTION) / 2] === 1;
    if (data.isBlocking(label)) return this.matches.probes[(label - LABEL_BLOCKING) / 2] === 1;
    return false;
  }

  // Whether a thread has nothing to do in a place: an idle loop, an executor, or a worker without work.
  isIdle(t, p) {
    const label = this.data.label[p];
    if (label === GAP) return true;
    const cause = this.data.causeOf(label), { idle_causes, idle_causes_of_workers, threads } = this.data.meta;
    if (this.data.forWork[p]) return true;
    if (this.data.atWork[p]) return false;
    return idle_causes.includes(cause) || (idle_causes_of_workers.includes(cause) && !threads[t].is_main);
  }

  hasThread(t) {
    if (this.scope === "all") return true;
    const n = Number(this.scope.slice(1));
    return this.scope[0] === "t" ? t === n : this.data.meta.threads[t].process === n;
  }

  // Sums by place, callees not included, for the chosen threads and range.
  sums() { return (this.cached ||= this.sumsOf(this.range)); }

  // Those of the baseline.
  baselineSums() { return (this.cachedBaseline ||= this.sumsOf(this.baseline)); }

  // What an amount of the baseline would be in the time of the range: ranges differ in length.
  scale() {
    const { range, baseline } = this, whole = [0, this.data.meta.recording.duration_ns], length = ([from, to]) => to - from;
    return length(range || whole) / Math.max(1, length(baseline));
  }

  sumsOf(range) {
    const { data } = this, n = data.count, column = () => new Float64Array(n);
    const own = {
      time: column(), cpu: column(), bytes: column(), allocations: column(), samples: column(), standing: column(), squares: column(),
      minorFaults: column(), majorFaults: column(), voluntary: column(), involuntary: column(),
      count: column(), idle: column(), idleCount: column(), longest: column(), longestAt: column(), longestThread: new Int32Array(n).fill(-1),
    };
    const longest = (place, length, begin, thread) => {
      if (length > own.longest[place]) {
        own.longest[place] = length;
        own.longestAt[place] = begin;
        own.longestThread[place] = thread;
      }
    };
    for (let t = 0; t < data.meta.threads.length; t++) {
      if (!this.hasThread(t)) continue;
      if (range) this.addRange(own, t, range, longest);
      else {
        const c = data.cells[t];
        for (let i = 0; i < c.n; i++) {
          const p = c.place[i];
          own.time[p] += c.time[i];
          own.cpu[p] += c.cpu[i];
          own.bytes[p] += c.bytes[i];
          own.allocations[p] += c.allocations[i];
          own.samples[p] += c.samples[i];
          own.standing[p] += c.standing[i];
          own.squares[p] += c.squares[i];
          own.minorFaults[p] += c.minorFaults[i];
          own.majorFaults[p] += c.majorFaults[i];
          own.voluntary[p] += c.voluntary[i];
          own.involuntary[p] += c.involuntary[i];
          own.count[p] += c.count[i];
          const isIdle = this.isIdle(t, p);
          if (isIdle) { own.idle[p] += c.time[i]; own.idleCount[p] += c.count[i]; }
          if (this.idle || !isIdle) longest(p, c.longest[i], c.longestAt[i], t);
        }
      }
    }
    const self = column();
    const blocked = column();
    let hiddenTime = 0;
    for (let p = 0; p < n; p++) {
      const blocking = data.isBlocking(data.label[p]);
      if (blocking) blocked[p] = own.time[p];
      // What idle threads do allocate and compute is shown.
      const hidden = this.idle ? 0 : own.idle[p];
      hiddenTime += hidden;
      self[p] = this.weight === "wall" ? own.time[p] - hidden : this.weight === "cpu" ? own.cpu[p]
        : this.weight === "alloc" ? own.bytes[p] : blocking ? blocked[p] - hidden : 0;
    }
    own.blocked = blocked;
    const sum = (values) => {
      const total = values.slice();
      for (let p = n - 1; p > 0; p--) total[data.parent[p]] += total[p];
      return total;
    };
    const total = sum(self);
    const lazy = {};
    const amounts = (key) => lazy[key] || (lazy[key] = sum(own[key]));
    return { own, self, total, amounts, all: total[0], hiddenTime };
  }

  addRange(own, t, [from, to], longest) {
    const bars = this.data.bars[t], cells = this.data.cells[t];
    // Bars do not know their samples: a place has them evenly over its time.
    cells.at ||= new Map(Array.from(cells.place, (p, i) => [p, i]));
    for (let i = firstBarAfter(bars, from); i < bars.n && bars.begin[i] < to; i++) {
      const begin = Math.max(bars.begin[i], from), end = Math.min(bars.end[i], to);
      const whole = bars.end[i] - bars.begin[i], part = whole > 0 ? (end - begin) / whole : 1;
      const p = bars.place[i];
      own.time[p] += end - begin;
      own.cpu[p] += bars.cpu[i] * part;
      own.bytes[this.data.allocates[p]] += bars.bytes[i] * part;
      const i0 = cells.at.get(p);
      // What is inferred is in no count.
      const isCounted = i0 === undefined || cells.count[i0] > 0;
      if (isCounted) own.count[p] += 1;
      const isIdle = this.isIdle(t, p);
      if (isIdle) { own.idle[p] += end - begin; own.idleCount[p] += isCounted ? 1 : 0; }
      const share = i0 !== undefined && cells.time[i0] > 0 ? (end - begin) / cells.time[i0] : 0;
      if (share > 0) {
        own.samples[p] += cells.samples[i0] * share;
        own.standing[p] += cells.standing[i0] * share;
        own.squares[p] += cells.squares[i0] * share;
      }
      if (isCounted && (this.idle || !isIdle)) longest(p, end - begin, begin, t);
    }
  }

  // Weight of all stacks in which something matches, without counting any twice.
  matched() {
    const { data } = this, { self } = this.sums();
    const inside = new Uint8Array(data.count);
    let sum = 0;
    for (let p = 1; p < data.count; p++) {
      inside[p] = inside[data.parent[p]] || (this.isMatch(data.label[p]) ? 1 : 0);
      if (inside[p]) sum += self[p];
    }
    return sum;
  }

  // Amounts by function: own and with callees.
  functions(sums = this.sums()) {
    const { data } = this, { own, amounts } = sums;
    const rows = data.meta.functions.map((f, index) => ({
      index, f, running: 0, inLibrary: 0, samples: 0, cpu: 0, bytes: 0, blocked: 0, total: 0, totalBlocked: 0, totalCpu: 0, totalBytes: 0,
    }));
    // The function for which running time at a function's place counts.
    const ownerOf = (p) => rows[(data.label[data.runs[p]] - LABEL_FUNCTION) / 2];
    const time = amounts("time"), cpu = amounts("cpu"), bytes = amounts("bytes"), blocked = amounts("blocked");
    for (let p = 1; p < data.count; p++) {
      const label = data.label[p];
      if (data.isFunction(label)) {
        const row = rows[(label - LABEL_FUNCTION) / 2], owner = this.library ? row : ownerOf(p);
        owner.running += own.time[p];
        owner.samples += own.standing[p];
        owner.cpu += own.cpu[p];
        owner.bytes += own.bytes[p];
        if (owner !== row) owner.inLibrary += own.time[p];
        if (!data.repeats[p]) {
          row.total += time[p];
          row.totalCpu += cpu[p];
          row.totalBytes += bytes[p];
          row.totalBlocked += blocked[p];
        }
      } else if (data.isBlocking(label)) {
        const caller = data.label[data.parent[p]];
        if (data.isFunction(caller)) {
          const row = this.library ? rows[(caller - LABEL_FUNCTION) / 2] : ownerOf(data.parent[p]);
          row.blocked += own.time[p];
          row.cpu += own.cpu[p];
          row.bytes += own.bytes[p];
        }
      }
    }
    return rows.filter((r) => r.total > 0 || r.totalBytes > 0);
  }

  // What is known of the running time: CPU time and squares of what each sample stands for
  // (tools/src/summary/evidence.rs), and the CPU time without evidence.
  evidence() {
    const { data } = this, { own } = this.sums();
    let time = 0, cpu = 0, squares = 0, gapCpu = 0;
    for (let p = 1; p < data.count; p++) {
      if (data.label[p] === GAP) gapCpu += own.cpu[p];
      else if (!data.isBlocking(data.label[p])) { time += own.time[p]; cpu += own.cpu[p]; squares += own.squares[p]; }
    }
    return { whole: time + gapCpu, gapCpu, samples: squares > 0 ? (cpu * cpu) / squares : 0 };
  }

  // Labels from a place outwards, without the root.
  outwards(place) {
    const labels = [];
    for (let p = place; p > 0; p = this.data.parent[p]) labels.push(this.data.label[p]);
    return labels;
  }

  // Labels around a blocking call: where the program calls a library, and the program's own functions around
  // that; all where functions of a library stand for themselves.
  callersOf(place) {
    const { parent, label, interprets, meta } = this.data, [from, to] = meta.told[place] || [parent[place], 0];
    if (this.library) return this.outwards(parent[place]);
    const labels = [];
    for (let p = from; p > 0 && p >= to; p = parent[p]) if (!interprets[p]) labels.push(label[p]);
    return labels;
  }
}

// Colours: functions by module and name, blocking calls by cause.
class Colors {
  constructor(data) {
    this.data = data;
    this.labels = new Map();
    this.refresh();
  }

  refresh() {
    Object.assign(this, schemeColors(["back", "panel", "line", "text", "dim", "accent", "select", "flat", "more", "less"]));
    this.labels.clear();
    const d = this.dark;
    // Order of core::probe::Cause: none, lock, wait, io, net, poll, sleep, join, process, unknown, ipc.
    this.causes = d
      ? ["#4f9d69", "#d9534f", "#a678d8", "#3f8fd6", "#2aa5a0", "#566070", "#454c59", "#9a7b56", "#8a8f3c", "#6b6b6b", "#b86f98"]
      : ["#6fbf8b", "#e4655f", "#b48ae0", "#5aa5e6", "#3dbab4", "#b9c1cc", "#d3d8df", "#c39f72", "#aeb354", "#9c9c9c", "#cf8db1"];
    this.running = this.causes[0];
  }

  hash(text) {
    let h = 2166136261;
    for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 16777619);
    h = Math.imul(h ^ (h >>> 15), 0x85ebca6b);
    return (h ^ (h >>> 13)) >>> 0;
  }

  of(label) {
    let color = this.labels.get(label);
    if (color === undefined) this.labels.set(label, (color = this.compute(label)));
    return color;
  }

  compute(label) {
    const { data } = this;
    if (data.isBlocking(label)) return this.causes[data.causeOf(label)];
    const f = data.functionOf(label);
    if (!f) return this.dark ? "#3a3f4a" : "#e3e6eb";
    const name = this.hash(f.name), module = this.hash(f.module), file = baseName(f.module);
    // The C library and its like are cool and quiet, the module that runs most is warm, others vary.
    const system = file === "" || f.module.startsWith("[") || /^(ld-linux.*|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|c\+\+)[.-].*)$/.test(file);
    const hue = system ? 196 + (module % 24) + (name % 12)
      : f.module === this.mainModule() ? 16 + (name % 36) : [78, 104, 135, 262, 292, 326][module % 6] + (name % 18);
    const vary = ((name >>> 8) % 100) / 100, loud = f.module === this.mainModule() ? 1 : 0.7;
    return this.dark
      ? `hsl(${hue} ${system ? 26 : 48 * loud}% ${system ? 30 + vary * 8 : 34 + vary * 9}%)`
      : `hsl(${hue} ${system ? 42 : 82 * loud}% ${system ? 78 + vary * 8 : 72 + vary * 10}%)`;
  }

  // The module whose own code runs longest.
  mainModule() {
    if (this.busiest === undefined) {
      const { data } = this, sums = new Map();
      for (const cells of data.cells) {
        for (let i = 0; i < cells.n; i++) {
          const f = data.functionOf(data.label[cells.place[i]]);
          if (f) sums.set(f.module, (sums.get(f.module) || 0) + cells.time[i]);
        }
      }
      this.busiest = [...sums].reduce((best, one) => (one[1] > best[1] ? one : best), ["", 0])[0];
    }
    return this.busiest;
  }
}
