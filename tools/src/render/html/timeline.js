// Threads over time: a strip with the whole recording, and one track a thread that opens into the
// stack of its calls.

const LABEL_WIDTH = innerWidth < 600 ? 140 : 190, RULER = 20, STRIP = 18, SLICE = 15, TRACK_GAP = 5;

class Timeline {
  constructor(data, view, colors, tip) {
    Object.assign(this, { data, view, colors, tip });
    this.overview = byId("overview");
    this.box = byId("tracks");
    this.canvas = byId("tracks-canvas");
    this.duration = Math.max(data.meta.recording.duration_ns, ...data.bars.map((b) => (b.n ? b.end[b.n - 1] : 0)), 1);
    this.shown = [0, this.duration]; // what the tracks show, ns
    this.selected = null; // { thread, depth, begin, end }
    this.hovered = null;
    this.pending = false;
    this.onShow = () => {};
    this.charts = new Charts(data);
    this.order();
    this.listen();
  }

  // Tracks by process, busiest first, then by running time, helpers of a runtime last; the busiest open.
  order() {
    const { threads } = this.data.meta;
    const busy = (t) => t.running_ns;
    const byProcess = new Map();
    for (const t of threads) byProcess.set(t.process, (byProcess.get(t.process) || 0) + busy(t));
    // Rows of many threads have sums, and no order of time.
    const order = threads.map((_, i) => i).filter((i) => !threads[i].merged).sort((a, b) =>
      byProcess.get(threads[b].process) - byProcess.get(threads[a].process) || threads[a].process - threads[b].process ||
      threads[a].serves_runtime - threads[b].serves_runtime || busy(threads[b]) - busy(threads[a]) || threads[b].is_main - threads[a].is_main || threads[a].begin_ns - threads[b].begin_ns);
    const open = new Set([...order].sort((a, b) => threads[a].serves_runtime - threads[b].serves_runtime || busy(threads[b]) - busy(threads[a])).slice(0, threads.length > 4 ? 1 : 2));
    this.tracks = order.map((t) => ({ t, open: open.has(t), outer: this.outerFrames(t) }));
    this.place();
  }

  // How many outermost frames a thread is in all the time: they say nothing about when.
  outerFrames(t) {
    const { data } = this, cells = data.cells[t], total = new Map();
    let all = 0;
    for (let i = 0; i < cells.n; i++) {
      all += cells.time[i];
      for (let p = cells.place[i]; p > 0; p = data.parent[p]) total.set(p, (total.get(p) || 0) + cells.time[i]);
    }
    let outer = 0;
    for (let place = 0; ; outer++) {
      let next = -1;
      for (let p = data.firstChild[place]; p !== -1; p = data.sibling[p]) {
        if (data.isFunction(data.label[p]) && (total.get(p) || 0) >= 0.99 * all) next = p;
      }
      if (next === -1) break;
      place = next;
    }
    return Math.max(0, outer - 1);
  }

  // Idle waits are hidden here as in all views.
  isHidden(t, place) { return !this.view.idle && this.data.isBlocking(this.data.label[place]) && this.view.isIdle(t, place); }

  // The deepest row that a thread has something in.
  depthOf(t) {
    const { data } = this, { n, place } = data.bars[t];
    let most = 0;
    for (let i = 0; i < n; i++) if (data.depth[place[i]] > most && !this.isHidden(t, place[i])) most = data.depth[place[i]];
    return most;
  }

  // Depth of a track's first row.
  baseOf(track) { return this.view.outer ? 0 : track.outer; }

  place() {
    let y = this.charts.place(RULER + 2), process = -1;
    const many = this.data.meta.processes.length > 1;
    for (const track of this.tracks) {
      const p = this.data.meta.threads[track.t].process;
      track.heading = many && p !== process ? 17 : 0;
      process = p;
      track.y = y + track.heading;
      track.height = STRIP + (track.open ? Math.max(0, this.depthOf(track.t) - this.baseOf(track)) * SLICE + 2 : 0);
      y = track.y + track.height + TRACK_GAP;
    }
    this.height = y + 6;
    byId("tracks-size").style.height = this.height + "px";
  }

  x(time) { return LABEL_WIDTH + ((time - this.shown[0]) / (this.shown[1] - this.shown[0])) * (this.width - LABEL_WIDTH); }

  time(x) { return this.shown[0] + ((x - LABEL_WIDTH) / (this.width - LABEL_WIDTH)) * (this.shown[1] - this.shown[0]); }

  show(from, to) {
    const least = 200; // ns
    let length = Math.min(Math.max(to - from, least), this.duration);
    from = Math.min(Math.max(from, 0), this.duration - length);
    this.shown = [from, from + length];
    this.onShow();
    this.redraw();
  }

  zoom(factor, center) {
    const [from, to] = this.shown;
    if (center === undefined) center = (from + to) / 2;
    this.show(center - (center - from) * factor, center + (to - center) * factor);
  }

  pan(share) {
    const move = (this.shown[1] - this.shown[0]) * share;
    this.show(this.shown[0] + move, this.shown[1] + move);
  }

  reset() {
    this.selected = null;
    this.show(0, this.duration);
  }

  redraw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => { this.pending = false; this.drawTracks(); this.drawOverview(); });
  }

  // --- Picture

  // Fills `bins` (Float64Array of count × 12: running, each cause, gap) for one thread.
  fillBins(t, from, to, count, bins) {
    const { data } = this, bars = data.bars[t], per = (to - from) / count;
    for (let i = firstBarAfter(bars, from); i < bars.n && bars.begin[i] < to; i++) {
      const label = data.label[bars.place[i]];
      const kind = label === GAP ? 11 : data.causeOf(label);
      if (this.isHidden(t, bars.place[i])) continue;
      let begin = Math.max(bars.begin[i], from), end = Math.min(bars.end[i], to);
      let bin = Math.min(count - 1, Math.floor((begin - from) / per));
      while (begin < end) {
        const stop = Math.min(end, from + (bin + 1) * per);
        bins[bin * 12 + kind] += Math.max(stop - begin, 0);
        if (stop >= end || bin === count - 1) break;
        begin = stop;
        bin++;
      }
    }
  }

  // Stacked columns: running at the bottom, then what held it up; time without evidence is left faint.
  drawBins(c, bins, count, whole, x, y, width, height) {
    const alpha = c.globalAlpha, step = width / count, order = [0, 1, 2, 3, 4, 7, 8, 10, 9, 5, 6];
    for (let i = 0; i < count; i++) {
      let base = y + height;
      for (const kind of order) {
        const part = bins[i * 12 + kind];
        if (part === 0) continue;
        const h = Math.min((part / whole) * height, base - y);
        c.fillStyle = this.colors.causes[kind];
        c.fillRect(x + i * step, base - h, step + 0.3, h);
        base -= h;
      }
      const gap = Math.min(bins[i * 12 + 11], ((base - y) / height) * whole);
      if (gap > 0) {
        c.fillStyle = this.colors.dim;
        c.globalAlpha = 0.16;
        c.fillRect(x + i * step, base - (gap / whole) * height, step, (gap / whole) * height);
        c.globalAlpha = alpha;
      }
    }
  }

  drawOverview() {
    const width = byId("overview-box").clientWidth, height = byId("overview-box").clientHeight;
    const c = sizeCanvas(this.overview, width, height), { colors } = this;
    const area = width - LABEL_WIDTH, count = Math.max(1, Math.floor(area / 2));
    const { idle } = this.view, key = count + this.view.scope + idle;
    if (this.overviewKey !== key) {
      this.overviewKey = key;
      this.overviewBins = new Float64Array(count * 12);
      for (const { t } of this.tracks) if (this.view.hasThread(t)) this.fillBins(t, 0, this.duration, count, this.overviewBins);
      // The highest column fills the strip.
      this.overviewWhole = 1;
      for (let i = 0; i < count; i++) {
        let sum = 0;
        for (let kind = 0; kind < 11; kind++) sum += this.overviewBins[i * 12 + kind];
        this.overviewWhole = Math.max(this.overviewWhole, sum);
      }
    }
    c.fillStyle = colors.panel;
    c.fillRect(0, 0, width, height);
    this.drawBins(c, this.overviewBins, count, this.overviewWhole, LABEL_WIDTH, 4, area, height - 4);
    c.font = "11px " + colors.font;
    c.textBaseline = "middle";
    const perThread = this.duration / count;
    c.fillStyle = colors.text;
    c.fillText("Whole recording", 10, 14);
    c.fillStyle = colors.dim;
    fillFitted(c, fitText, `up to ${(this.overviewWhole / perThread).toFixed(1)} threads${idle ? "" : " not idle"}`, 10, 31, LABEL_WIDTH - 14);
    const x = (time) => LABEL_WIDTH + (time / this.duration) * area;
    c.fillStyle = colors.back;
    c.globalAlpha = 0.72;
    c.fillRect(LABEL_WIDTH, 0, x(this.shown[0]) - LABEL_WIDTH, height);
    c.fillRect(x(this.shown[1]), 0, width - x(this.shown[1]), height);
    c.globalAlpha = 1;
    if (this.view.range) {
      c.fillStyle = colors.select;
      c.fillRect(x(this.view.range[0]), 0, Math.max(x(this.view.range[1]) - x(this.view.range[0]), 1.5), height);
    }
    c.strokeStyle = colors.accent;
    c.lineWidth = 1;
    c.strokeRect(x(this.shown[0]) + 0.5, 0.5, Math.max(x(this.shown[1]) - x(this.shown[0]) - 1, 2), height - 1);
  }

  drawTracks() {
    this.width = this.box.clientWidth;
    const height = this.box.clientHeight, top = this.box.scrollTop, { colors } = this;
    if (this.width < LABEL_WIDTH + 50 || height <= 0) return;
    const c = sizeCanvas(this.canvas, this.width, height);
    c.textBaseline = "middle";
    this.charts.draw(c, this, top, height);
    for (const track of this.tracks) {
      if (track.y + track.height < top || track.y - track.heading > top + height) continue;
      this.drawTrack(c, track, track.y - top);
    }
    this.drawRuler(c);
    this.drawEvents(c, height);
    if (this.view.baseline) {
      const [a, b] = this.view.baseline.map((time) => Math.min(Math.max(this.x(time), LABEL_WIDTH), this.width));
      c.fillStyle = colors.dim;
      c.globalAlpha = 0.25;
      c.fillRect(a, 0, Math.max(b - a, 1.5), height);
      c.globalAlpha = 1;
    }
    const range = this.dragRange || this.view.range;
    if (range) {
      // What is not selected steps back.
      const clamp = (x) => Math.min(Math.max(x, LABEL_WIDTH), this.width), a = clamp(this.x(range[0])), b = clamp(this.x(range[1]));
      c.fillStyle = colors.back;
      c.globalAlpha = 0.6;
      c.fillRect(LABEL_WIDTH, RULER, a - LABEL_WIDTH, height);
      c.fillRect(b, RULER, this.width - b, height);
      c.globalAlpha = 1;
      c.fillStyle = colors.select;
      c.fillRect(a, 0, Math.max(b - a, 1.5), RULER);
      c.fillStyle = colors.accent;
      for (const x of [a, b]) if (x > LABEL_WIDTH && x < this.width) c.fillRect(x - 0.5, 0, 1, height);
    }
    if (this.cursor !== undefined && this.cursor >= LABEL_WIDTH) {
      c.strokeStyle = colors.dim;
      c.globalAlpha = 0.5;
      c.beginPath();
      c.moveTo(Math.round(this.cursor) + 0.5, RULER);
      c.lineTo(Math.round(this.cursor) + 0.5, height);
      c.stroke();
      c.globalAlpha = 1;
    }
  }

  drawRuler(c) {
    const { colors } = this, [from, to] = this.shown, area = this.width - LABEL_WIDTH;
    c.fillStyle = colors.panel;
    c.fillRect(0, 0, this.width, RULER);
    c.font = "11px " + colors.font;
    const raw = (to - from) / Math.max(area / 110, 1), power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
    c.strokeStyle = colors.line;
    c.fillStyle = colors.dim;
    c.beginPath();
    for (let i = Math.ceil(from / step); i * step <= to; i++) {
      const x = Math.round(this.x(i * step)) + 0.5;
      c.moveTo(x, RULER - 5);
      c.lineTo(x, RULER);
      const text = formatTime(i * step);
      if (x + 4 + c.measureText(text).width <= this.width) c.fillText(text, x + 4, RULER / 2);
    }
    c.moveTo(0, RULER - 0.5);
    c.lineTo(this.width, RULER - 0.5);
    c.stroke();
    c.fillStyle = colors.panel;
    c.fillRect(0, 0, LABEL_WIDTH, RULER - 1);
    c.fillStyle = colors.dim;
    c.fillText(`showing ${formatTime(to - from)}`, 10, RULER / 2);
  }

  // Marks and changed settings: a line through all tracks, and what they say where there is room.
  drawEvents(c, height) {
    const { colors } = this, events = this.data.meta.events;
    c.font = "11px " + colors.font;
    let painted = -1, texts = -1;
    for (const event of events) {
      const x = Math.round(this.x(event.at_ns)) + 0.5;
      if (x < LABEL_WIDTH || x > this.width || x - painted < 1) continue;
      painted = x;
      c.fillStyle = event.kind === "mark" ? colors.accent : colors.dim;
      c.globalAlpha = 0.75;
      c.fillRect(x - 0.5, RULER, 1, height - RULER);
      c.globalAlpha = 1;
      const width = Math.min(c.measureText(event.text).width, 240) + 6;
      if (x < texts || x + width > this.width) continue;
      texts = x + width + 4;
      c.fillRect(x - 0.5, height - 15, width, 15);
      c.fillStyle = colors.back;
      fillFitted(c, fitText, event.text, x + 2.5, height - 7.5, width - 5);
    }
  }

  drawTrack(c, track, y) {
    const { data, colors, view } = this, thread = data.meta.threads[track.t], area = this.width - LABEL_WIDTH;
    if (track.heading) {
      const process = data.meta.processes[thread.process];
      c.font = "600 11px " + colors.font;
      c.fillStyle = colors.text;
      c.fillText(process.pid ? `${process.name} (${process.pid})` : process.name, 8, y - 8);
    }
    c.globalAlpha = view.hasThread(track.t) ? 1 : 0.35;
    const count = Math.max(1, Math.floor(area / 2)), bins = new Float64Array(count * 12);
    this.fillBins(track.t, this.shown[0], this.shown[1], count, bins);
    c.fillStyle = colors.panel;
    c.fillRect(LABEL_WIDTH, y, area, STRIP);
    this.drawBins(c, bins, count, (this.shown[1] - this.shown[0]) / count, LABEL_WIDTH, y, area, STRIP);
    c.globalAlpha = view.hasThread(track.t) ? 1 : 0.35;
    if (track.open) this.drawSlices(c, track, y + STRIP + 2 - this.baseOf(track) * SLICE);
    c.fillStyle = colors.back;
    c.fillRect(0, y, LABEL_WIDTH - 1, track.height);
    c.font = "11.5px " + colors.font;
    c.fillStyle = colors.dim;
    c.fillText(track.open ? "▾" : "▸", 8, y + STRIP / 2);
    this.drawLabel(c, thread.name || "thread", String(thread.tid), y + STRIP / 2);
    c.globalAlpha = 1;
  }

  // A name left of the tracks and a value behind it, which keeps its room.
  drawLabel(c, name, value, y) {
    const { colors } = this, end = LABEL_WIDTH - 10 - c.measureText(value).width;
    c.fillStyle = colors.text;
    fillFitted(c, fitText, name, 22, y, end - 8 - 22);
    c.fillStyle = colors.dim;
    c.fillText(value, end, y);
  }

  drawSlices(c, track, y) {
    const { data, shown } = this, bars = data.bars[track.t];
    c.save();
    c.beginPath();
    c.rect(LABEL_WIDTH, Math.max(RULER, y + this.baseOf(track) * SLICE), this.width - LABEL_WIDTH, this.box.clientHeight);
    c.clip();
    c.font = "11px " + this.colors.font;
    // Open slices by depth: where they began and what they are; the pixel that is painted last.
    const begin = [], label = [], painted = new Float64Array(bars.maxDepth + 1).fill(-1);
    const base = this.baseOf(track);
    let open = 0, end = 0;
    const close = (depth) => {
      for (let d = open - 1; d >= Math.max(depth, base); d--) this.drawSlice(c, label[d], begin[d], end, y + d * SLICE, painted, d);
      open = Math.min(open, depth);
    };
    for (let i = firstBarAfter(bars, shown[0]); i < bars.n && bars.begin[i] < shown[1]; i++) {
      const isHidden = this.isHidden(track.t, bars.place[i]);
      close(open === 0 || isHidden ? 0 : Math.min(bars.common[i], open));
      if (isHidden) continue;
      end = bars.end[i];
      const depth = data.depth[bars.place[i]];
      for (let d = depth - 1, p = bars.place[i]; d >= open; d--, p = data.parent[p]) {
        begin[d] = bars.begin[i];
        label[d] = data.label[p];
      }
      open = depth;
    }
    close(0);
    if (this.selected && this.selected.thread === track.t) this.outline(c, this.selected, y);
    if (this.hovered && this.hovered.thread === track.t) this.outline(c, this.hovered, y);
    c.restore();
  }

  drawSlice(c, label, begin, end, y, painted, depth) {
    const { colors, view } = this;
    const x0 = Math.max(this.x(begin), LABEL_WIDTH), x1 = Math.min(this.x(end), this.width);
    // Many slices within one pixel: the first one paints it.
    if (x1 - x0 < 0.6 && x1 < painted[depth] + 0.6) return;
    painted[depth] = x1;
    const w = Math.max(x1 - x0 - 0.4, 0.6), match = view.matches && view.isMatch(label), alpha = c.globalAlpha;
    if (view.matches && !match) c.globalAlpha = alpha * 0.35;
    c.fillStyle = match ? (colors.dark ? "#b0347f" : "#ff7ac6") : colors.of(label);
    c.fillRect(x0, y, w, SLICE - 1);
    if (label === GAP) hatch(c, x0, y, w, SLICE - 1, colors.dim);
    if (w > 30) {
      c.fillStyle = colors.text;
      let name = this.data.nameOf(label);
      if (this.data.isBlocking(label) && w > 120) name += ` · ${formatTime(end - begin)}`;
      fillFitted(c, fitName, name, x0 + 3, y + SLICE / 2, w - 6);
    }
    c.globalAlpha = alpha;
  }

  outline(c, slice, y) {
    const x0 = Math.max(this.x(slice.begin), LABEL_WIDTH - 2), x1 = Math.min(this.x(slice.end), this.width + 2);
    c.strokeStyle = this.colors.text;
    c.lineWidth = 1.5;
    c.strokeRect(x0 + 0.5, y + slice.depth * SLICE + 0.5, Math.max(x1 - x0 - 1.5, 1), SLICE - 2);
  }

  // --- What is under a point

  trackAt(y) {
    y += this.box.scrollTop;
    return this.tracks.find((t) => y >= t.y && y < t.y + t.height) || null;
  }

  // The slice under a point with its true begin and end, or null.
  sliceAt(x, y) {
    const track = this.trackAt(y);
    if (!track || x < LABEL_WIDTH || y < RULER) return null;
    const { data } = this, bars = data.bars[track.t], time = this.time(x);
    const at = firstBarAfter(bars, time);
    if (at >= bars.n || bars.begin[at] > time || this.isHidden(track.t, bars.place[at])) return null;
    const inTrack = y + this.box.scrollTop - track.y;
    let place = bars.place[at], depth = data.depth[place] - 1;
    if (inTrack >= STRIP) {
      const wanted = Math.floor((inTrack - STRIP - 2) / SLICE) + this.baseOf(track);
      if (wanted > depth || inTrack < STRIP + 2) return null;
      for (; depth > wanted; depth--) place = data.parent[place];
    }
    return this.extend(track.t, at, depth, data.label[place]);
  }

  extend(thread, at, depth, label) {
    const h = this.hovered, bars = this.data.bars[thread];
    if (h && h.thread === thread && h.depth === depth && h.label === label && bars.begin[at] >= h.begin && bars.end[at] <= h.end) return h;
    let first = at, last = at;
    while (first > 0 && bars.common[first] > depth) first--;
    while (last + 1 < bars.n && bars.common[last + 1] > depth) last++;
    const slice = { thread, depth, label, begin: bars.begin[first], end: bars.end[last], blocked: 0, cpu: 0, bytes: 0 };
    for (let i = first; i <= last; i++) {
      if (this.data.isBlocking(this.data.label[bars.place[i]])) slice.blocked += bars.end[i] - bars.begin[i];
      slice.cpu += bars.cpu[i];
      slice.bytes += bars.bytes[i];
    }
    return slice;
  }

  describe(slice) {
    const thread = this.data.meta.threads[slice.thread];
    const lines = [["Duration", formatTime(slice.end - slice.begin)], ["Begin", formatTime(slice.begin)]];
    if (slice.blocked > 0) lines.push(["Blocked", formatTime(slice.blocked)]);
    lines.push(["CPU time", formatTime(slice.cpu)]);
    if (slice.bytes > 0) lines.push(["Allocated", formatBytes(slice.bytes)]);
    lines.push(["Thread", threadName(thread)]);
    if (this.data.isBlocking(slice.label)) lines.push(...describeWait(this.data, slice));
    return { ...describeLabel(this.data, slice.label), lines };
  }

  // --- Hands

  listen() {
    const { canvas, box } = this;
    const point = (e) => { const r = canvas.getBoundingClientRect(); return [e.clientX - r.left, e.clientY - r.top]; };
    box.addEventListener("scroll", () => this.redraw());
    canvas.addEventListener("wheel", (e) => {
      const [x] = point(e);
      if (x < LABEL_WIDTH) return; // the browser scrolls the tracks
      e.preventDefault();
      if (e.shiftKey) box.scrollTop += e.deltaY || e.deltaX;
      else if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) this.pan(e.deltaX / (this.width - LABEL_WIDTH));
      else this.zoom(Math.exp(Math.max(-1, Math.min(1, e.deltaY * 0.0022))), this.time(x));
    }, { passive: false });
    canvas.addEventListener("pointerdown", (e) => {
      const [x, y] = point(e);
      if (e.button > 1) return;
      e.preventDefault();
      box.focus({ preventScroll: true });
      canvas.setPointerCapture(e.pointerId);
      const pans = e.button === 1 || e.altKey || e.pointerType === "touch";
      this.drag = { x, y, pans, moved: false, from: this.time(x), shown: [...this.shown], label: x < LABEL_WIDTH };
    });
    canvas.addEventListener("pointermove", (e) => { const [x, y] = point(e); this.move(e, x, y); });
    canvas.addEventListener("pointerup", (e) => { const [x, y] = point(e); this.release(x, y); });
    canvas.addEventListener("pointercancel", () => { this.drag = this.dragRange = null; this.redraw(); });
    canvas.addEventListener("pointerleave", () => {
      this.cursor = undefined;
      this.hovered = null;
      this.tip.hide();
      this.redraw();
    });
    canvas.addEventListener("dblclick", (e) => {
      const slice = this.sliceAt(...point(e));
      if (slice) this.fit(slice);
    });
    this.listenOverview();
  }

  move(event, x, y) {
    const { drag } = this;
    this.cursor = x;
    if (drag && !drag.label) {
      if (Math.abs(x - drag.x) > 3) drag.moved = true;
      if (drag.moved && drag.pans) {
        const by = ((drag.x - x) / (this.width - LABEL_WIDTH)) * (drag.shown[1] - drag.shown[0]);
        this.show(drag.shown[0] + by, drag.shown[1] + by);
      } else if (drag.moved) {
        const here = Math.min(Math.max(this.time(x), 0), this.duration), from = Math.max(drag.from, 0);
        this.dragRange = here < from ? [here, from] : [from, here];
        this.tip.show(event, { title: formatTime(this.dragRange[1] - this.dragRange[0]), where: "", lines: [] });
      }
      this.redraw();
      return;
    }
    this.hovered = this.sliceAt(x, y);
    this.canvas.style.cursor = x < LABEL_WIDTH ? "pointer" : "default";
    const chart = x >= LABEL_WIDTH && y >= RULER ? this.charts.describe(y + this.box.scrollTop, this.time(x)) : null;
    if (this.hovered) this.tip.show(event, this.describe(this.hovered));
    else if (chart) this.tip.show(event, chart);
    else this.tip.hide();
    this.redraw();
  }

  release(x, y) {
    const { drag } = this;
    this.drag = null;
    if (!drag) return;
    if (drag.label) {
      const track = this.trackAt(y);
      if (x < LABEL_WIDTH && this.charts.isHeading(y + this.box.scrollTop)) { this.charts.open = !this.charts.open; this.place(); }
      else if (track && x < LABEL_WIDTH) { track.open = !track.open; this.place(); }
    } else if (drag.moved) {
      if (this.dragRange) { this.selected = null; this.view.set({ range: this.dragRange }); }
    } else this.select(this.sliceAt(x, y));
    this.dragRange = null;
    this.redraw();
  }

  // A selected call narrows everything to its time and its thread.
  select(slice) {
    this.selected = slice;
    if (slice) this.view.set({ range: [slice.begin, slice.end], scope: "t" + slice.thread });
    else this.view.set({ range: null, scope: "all" });
  }

  fit(slice) {
    const margin = (slice.end - slice.begin) * 0.05;
    this.show(slice.begin - margin, slice.end + margin);
  }

  // Opens a thread's track, brings it and a moment into view.
  reveal(thread, begin, end) {
    const track = this.tracks.find((t) => t.t === thread);
    if (!track) return;
    track.open = true;
    this.place();
    const margin = Math.max((end - begin) * 0.6, 20e3);
    this.show(begin - margin, end + margin);
    this.box.scrollTop = Math.max(0, track.y - RULER - 24);
    this.redraw();
  }

  listenOverview() {
    const { overview } = this;
    let drag = null;
    const time = (e) => {
      const r = overview.getBoundingClientRect();
      return ((e.clientX - r.left - LABEL_WIDTH) / (r.width - LABEL_WIDTH)) * this.duration;
    };
    overview.addEventListener("pointerdown", (e) => {
      const at = time(e), [from, to] = this.shown, whole = to - from >= this.duration * 0.999;
      e.preventDefault();
      overview.setPointerCapture(e.pointerId);
      drag = { at, grip: !whole && at >= from && at <= to ? at - from : null };
    });
    overview.addEventListener("pointermove", (e) => {
      if (!drag) return;
      const here = time(e), length = this.shown[1] - this.shown[0];
      if (drag.grip !== null) this.show(here - drag.grip, here - drag.grip + length);
      else if (Math.abs(here - drag.at) > this.duration / 400) this.show(Math.min(here, drag.at), Math.max(here, drag.at));
    });
    overview.addEventListener("pointerup", () => { drag = null; });
    overview.addEventListener("dblclick", () => this.show(0, this.duration));
    overview.addEventListener("wheel", (e) => {
      e.preventDefault();
      this.zoom(Math.exp(Math.max(-1, Math.min(1, e.deltaY * 0.0022))), time(e));
    }, { passive: false });
  }
}
