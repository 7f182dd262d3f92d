// Counters over time: small charts above the threads, which zoom and pan with them.

const CHART = 24, CHART_GAP = 3, CHART_HEADING = 18, CHARTS_CLOSED = 2;
// What most people look for first.
const CHART_ORDER = ["CPU", "memory", "allocated", "allocations"];

class Charts {
  constructor(data) {
    const rank = (row) => { const at = CHART_ORDER.indexOf(row.name); return at < 0 ? CHART_ORDER.length : at; };
    const busy = data.meta.processes.map(() => 0);
    for (const t of data.meta.threads) busy[t.process] += t.running_ns;
    const weight = (row) => (row.process === null ? -1 : busy[row.process] || 0);
    this.many = data.meta.processes.length > 1;
    this.processes = data.meta.processes;
    this.rows = [...data.meta.counters].sort((a, b) => weight(b) - weight(a) || rank(a) - rank(b));
    for (const row of this.rows) {
      row.most = Math.max(...row.values);
      row.least = Math.min(...row.values, 0);
    }
    this.open = false;
    this.bottom = 0;
  }

  // Gives each chart its place from `y` down, and what lies below them.
  place(y) {
    this.top = y;
    this.shown = this.open ? this.rows : this.rows.slice(0, CHARTS_CLOSED);
    if (this.rows.length > 0) y += CHART_HEADING;
    for (const row of this.shown) {
      row.y = y;
      y += CHART + CHART_GAP;
    }
    this.bottom = this.rows.length > 0 ? y + CHART_GAP : y;
    return this.bottom;
  }

  title(row) {
    const process = row.process === null ? null : this.processes[row.process];
    return this.many && process ? `${row.name} · ${process.pid}` : row.name;
  }

  // A counter ends with its process.
  end(row, timeline) {
    return row.process === null ? timeline.duration : Math.min(this.processes[row.process].end_ns, timeline.duration);
  }

  // A value with its unit.
  text(row, value) {
    if (row.unit === "bytes") return formatBytes(value);
    if (row.unit === "bytes/s") return formatBytes(value) + "/s";
    if (row.unit === "ns") return formatTime(value);
    if (row.unit === "us/s") return (value / 1e4).toFixed(value < 1e4 ? 2 : 1) + " %";
    if (row.unit === "ppm") return (value / 1e4).toFixed(2) + " %";
    return (Math.abs(value) < 1e4 ? String(value) : formatCount(value)) + (row.unit && row.unit !== "/s" ? " " : "") + row.unit;
  }

  // Index of the last value at or before `time`; −1 before the first.
  before(row, time) {
    let low = 0, high = row.times.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (row.times[middle] > time) high = middle; else low = middle + 1;
    }
    return low - 1;
  }

  draw(c, timeline, top, height) {
    const { colors } = timeline;
    if (this.rows.length === 0 || this.bottom < top) return;
    c.font = "600 11px " + colors.font;
    c.fillStyle = colors.text;
    const rest = this.rows.length - CHARTS_CLOSED;
    const more = rest > 0 ? (this.open ? "▾ " : "▸ ") : "";
    c.fillText(more + "Counters" + (rest > 0 && !this.open ? ` (${rest} more)` : ""), 8, this.top - top + CHART_HEADING / 2);
    for (const row of this.shown) {
      if (row.y + CHART >= top && row.y <= top + height) this.drawRow(c, timeline, row, row.y - top);
    }
  }

  drawRow(c, timeline, row, y) {
    const { colors, width } = timeline, [from, to] = timeline.shown;
    c.fillStyle = colors.panel;
    c.fillRect(LABEL_WIDTH, y, width - LABEL_WIDTH, CHART);
    const heightOf = (value) => ((value - row.least) / (row.most - row.least || 1)) * (CHART - 2);
    c.fillStyle = colors.accent;
    c.globalAlpha = 0.55;
    // A value holds until the next one; of those in one pixel the highest is drawn.
    let pixel = -1, tallest = 0, until = 0;
    const flush = () => { if (pixel >= 0 && tallest > 0) c.fillRect(pixel, y + CHART - tallest, Math.max(until - pixel, 1), tallest); };
    for (let i = Math.max(this.before(row, from), 0); i < row.times.length && row.times[i] < to; i++) {
      const end = i + 1 < row.times.length ? row.times[i + 1] : this.end(row, timeline);
      const x0 = Math.max(Math.floor(timeline.x(row.times[i])), LABEL_WIDTH), x1 = Math.min(timeline.x(end), width);
      if (x1 < LABEL_WIDTH) continue;
      const tall = Math.max(heightOf(row.values[i]), row.values[i] > row.least ? 1 : 0);
      if (x0 !== pixel) {
        if (pixel >= 0) until = Math.min(until, x0);
        flush();
        [pixel, tallest] = [x0, tall];
      } else tallest = Math.max(tallest, tall);
      until = x1;
    }
    flush();
    c.globalAlpha = 1;
    c.font = "11px " + colors.font;
    timeline.drawLabel(c, this.title(row), this.text(row, row.most), y + CHART / 2);
  }

  isHeading(y) { return this.rows.length > CHARTS_CLOSED && y >= this.top && y < this.top + CHART_HEADING; }

  // What a chart says about a moment, as a tip; null where there is none.
  describe(y, time) {
    const row = this.shown.find((r) => y >= r.y && y < r.y + CHART);
    if (!row) return null;
    const at = this.before(row, time), lines = [];
    if (at >= 0) lines.push(["Value", this.text(row, row.values[at])], ["Since", formatTime(row.times[at])]);
    lines.push(["Highest", this.text(row, row.most)], ["Lowest", this.text(row, Math.min(...row.values))]);
    return { title: this.title(row), where: "", lines };
  }
}
