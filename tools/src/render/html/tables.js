// The tables below the timeline: the same numbers as the flame graph, line by line.

const ROWS = 300; // a table with more lines is searched, not read
const CHAIN = 48; // letters of a name in a chain of callers, as in the report

// At first each table has these columns in order, descending; threads of a runtime are below the others.
const SORTED = { functions: ["running", -1], blocking: ["total", -1], calls: ["count", -1], moved: ["count", -1], woken: ["count", -1], threads: ["running", -1] };

class Tables {
  constructor(data, view, colors, timeline) {
    Object.assign(this, { data, view, colors, timeline });
    this.sort = { ...SORTED };
  }

  render(name) {
    const panel = document.querySelector(`[data-panel="${name}"]`);
    panel.replaceChildren(...this[name]());
    this.fitNames();
  }

  // Names of functions as short as the column asks for.
  fitNames() {
    const names = [...document.querySelectorAll("[data-name]")].filter((span) => span.offsetParent);
    if (names.length === 0) return;
    const cell = names[0].closest("td"), style = getComputedStyle(cell), c = document.createElement("canvas").getContext("2d");
    // `style.font` is empty where figures are of one width.
    c.font = `${style.fontSize} ${style.fontFamily}`;
    const letter = c.measureText("abcdefghij_:ABCDEmnoil").width / 22;
    const room = cell.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    // All widths are read before the first text changes.
    const rest = names.map((span) => room - (span.nextSibling ? span.nextSibling.offsetWidth + 8 : 0));
    const letters = rest.map((room) => Math.floor(Math.max(room, 24 * letter) / letter));
    fitNames(names.map((span) => span.dataset.name), letters).forEach((name, i) => { names[i].textContent = name; });
  }

  // A table with sortable columns: { key, title, format, name, optional }.
  table(which, columns, rows, onRow) {
    const order = columns.some((c) => c.key === this.sort[which][0]) ? this.sort[which] : SORTED[which];
    const [key, direction] = order, compare = (a, b) =>
      (order === SORTED[which] && a.t?.serves_runtime - b.t?.serves_runtime) ||
      (typeof a[key] === "string" ? direction * a[key].localeCompare(b[key]) : direction * (a[key] - b[key]));
    rows.sort(compare);
    const shown = rows.slice(0, ROWS);
    const classes = (c) => [c.class, c.optional ? "optional" : ""].filter(Boolean).join(" ") || undefined;
    const head = element("tr", null, ...columns.map((c) => {
      // Another column may show the same in another way.
      const sorted = c === columns.find((one) => one.key === key) ? (direction < 0 ? "descending" : "ascending") : undefined;
      const flip = () => {
        this.sort[which] = [c.key, c.key === key ? -direction : c.class ? 1 : -1];
        this.onSort();
      };
      return element("th", { class: classes(c), "aria-sort": sorted, scope: "col" },
        element("button", { type: "button", onclick: flip, title: c.hint }, c.title + (sorted ? (direction < 0 ? " ↓" : " ↑") : "")));
    }));
    const body = shown.map((row) => element("tr", { onclick: () => onRow(row), class: row.chosen ? "chosen" : undefined },
      ...columns.map((c) => {
        const value = row[c.key], cell = c.cell ? c.cell(row) : c.format(value);
        const zero = value === 0 ? " zero" : "";
        return element("td", { class: ((classes(c) || "") + zero).trim() || undefined }, cell === "0" ? "·" : cell);
      })));
    const parts = [element("table", null, element("thead", null, head), element("tbody", null, ...body))];
    if (rows.length > ROWS) parts.push(element("p", { class: "note" }, `${rows.length - ROWS} more lines; search narrows them.`));
    if (rows.length === 0) parts.push(element("p", { class: "note" }, "Nothing in what is selected."));
    return parts;
  }

  share(value, whole, format) {
    const bar = element("span", { class: "share" });
    const fill = element("i");
    fill.style.width = whole > 0 ? `${(100 * value) / whole}%` : "0";
    bar.append(fill);
    return element("span", null, format(value), bar);
  }

  functions() {
    const { view, data } = this;
    const known = view.evidence(), running = known.whole;
    const ends = (r) => (r.running > 0 ? shareInterval(r.running, running, known.samples) : null);
    const before = view.baseline && new Map(view.functions(view.baselineSums()).map((r) => [r.index, r.running]));
    const signed = (ns) => (ns > 0 ? "+" : "") + formatTime(ns);
    const rows = view.functions()
      .filter((r) => !view.matches || view.matches.functions[r.index])
      .map((r) => ({ ...r, name: r.f.name, chosen: view.search === r.f.name }))
      .map((r) => ({ ...r, before: before ? (before.get(r.index) || 0) * view.scale() : 0 }))
      .map((r) => ({ ...r, change: r.running - r.before }))
      .map((r) => ({ ...r, share: running > 0 ? r.running / running : 0, ends: ends(r), low: (ends(r) || [0])[0] }));
    const columns = [
      { key: "running", title: "Self", hint: view.library ? "Running in the function itself" : "Running in the function itself, and in code of the standard library or of the interpreter that it called", cell: (r) => this.share(r.running, running, formatTime) },
      { key: "share", title: "Share", hint: "Of the running time of what is selected, and of its CPU time without evidence", format: (v) => `${(100 * v).toFixed(1)} %` },
      ...(before ? [
        { key: "before", title: "Baseline", hint: "Running in the function itself in the baseline, for the length of what is shown", format: formatTime },
        { key: "change", title: "Change", hint: "Since the baseline", format: signed },
      ] : []),
      {
        key: "low", title: "95 % interval", hint: "In which the share lies, by the number of samples", optional: true,
        cell: (r) => (r.ends ? `${(100 * r.ends[0]).toFixed(1)} … ${(100 * r.ends[1]).toFixed(1)} %` : ""),
      },
      ...(view.library ? [] : [{
        key: "inLibrary", title: "Lib", hint: "Of it, in code of the standard library or of the interpreter that it called", optional: true,
        cell: (r) => (r.inLibrary > 0 ? `${((100 * r.inLibrary) / r.running).toFixed(1)} %` : "·"),
      }]),
      { key: "samples", title: "Samples", hint: "On which the time in the function itself stands", format: formatCount },
      { key: "total", title: "Total", hint: "Wall time with callees", format: formatTime },
      { key: "cpu", title: "CPU", hint: "CPU time of the function itself", format: formatTime, optional: true },
      { key: "totalBlocked", title: "Blocked", hint: "Blocked, with callees", format: formatTime },
      { key: "bytes", title: "Allocated", hint: "Bytes allocated by the function itself", format: formatBytes, optional: true },
      {
        key: "name", title: "Function", class: "name", cell: (r) => {
          const where = r.f.file ? baseName(r.f.file) + (r.f.line ? ":" + r.f.line : "") : baseName(r.f.module);
          return element("span", { title: `${r.f.name}\n${r.f.file}${r.f.line ? ":" + r.f.line : ""}\n${r.f.module}` },
            element("span", { "data-name": r.f.name }, r.f.name), element("span", { class: "where" }, where));
        },
      },
    ];
    return this.table("functions", columns, rows, (r) => this.onFunction(r.index));
  }

  blocking() {
    const { view, data } = this, { own } = view.sums(), rows = [];
    for (let p = 1; p < data.count; p++) {
      const label = data.label[p];
      if (!data.isBlocking(label)) continue;
      const hidden = view.idle ? 0 : own.idle[p], hiddenCount = view.idle ? 0 : own.idleCount[p];
      if (own.time[p] - hidden <= 0) continue;
      const stack = view.outwards(p).slice(1);
      if (view.matches && !view.isMatch(label) && !stack.some((l) => view.isMatch(l))) continue;
      rows.push({
        p, call: data.nameOf(label) + (p in data.meta.waited_for ? `(${data.meta.waited_for[p]})` : ""), cause: data.meta.causes[data.causeOf(label)], causeNumber: data.causeOf(label), count: own.count[p] - hiddenCount,
        total: own.time[p] - hidden, longest: own.longest[p], stack, names: view.callersOf(p).map((l) => fitName(data.nameOf(l), CHAIN, 1)).join(" ← "),
      });
    }
    const columns = [
      { key: "total", title: "Total", format: formatTime },
      { key: "longest", title: "Longest", format: formatTime },
      { key: "count", title: "Waits", hint: "Those seen; short ones between captures are not. Inferred: seen from outside, and not apart", cell: (r) => (r.count ? formatCount(r.count) : "inferred"), optional: true },
      { key: "cause", title: "Cause", class: "short", cell: (r) => this.chip(r.causeNumber, r.cause) },
      { key: "call", title: "Call", class: "short", format: (v) => v },
      { key: "names", title: "Called from", class: "name", cell: (r) => element("span", { title: r.stack.map((l) => data.nameOf(l)).join("\n") }, r.names) },
    ];
    const parts = this.table("blocking", columns, rows, (r) => {
      const thread = own.longestThread[r.p];
      if (thread >= 0) this.timeline.reveal(thread, own.longestAt[r.p], own.longestAt[r.p] + r.longest);
    });
    const { hiddenTime } = view.sums();
    if (hiddenTime > 0) parts.push(element("p", { class: "note" }, `${formatTime(hiddenTime)} of idle time is hidden: “Idle time” shows it.`));
    return parts;
  }

  calls() {
    const { view, data } = this;
    const test = view.search.trim() === "" ? () => true : nameTest(view.search);
    const found = (rows) => rows.filter((r) => r.called_from.split(" ← ").some(test) || test(r.call));
    const columns = (title, format) => [
      { key: "count", title, cell: (r) => this.share(r.count, r.of_kind, format) },
      { key: "call", title: "Kind", class: "short", format: (v) => v },
      { key: "called_from", title: "Called from", class: "name", cell: (r) => element("span", { title: r.called_from.replaceAll(" ← ", "\n") }, r.called_from) },
    ];
    const note = element("p", { class: "note" },
      "By samples of the calls themselves, over the whole recording; bars are shares of a kind. Exact numbers are among the threads.");
    const parts = [...this.table("calls", columns("Calls", formatCount), found(data.meta.calls), () => {})];
    const moved = found(data.meta.moved);
    if (moved.length) {
      parts.push(element("p", { class: "note" }, "Bytes read and written, by whose calls:"),
        ...this.table("moved", columns("Bytes", formatBytes), moved, () => {}));
    }
    const woken = found(data.meta.wake_ups);
    if (woken.length) {
      const [amount, , place] = columns("Wake-ups", formatCount);
      parts.push(element("p", { class: "note" }, "Wake-ups, by whose calls slept:"), ...this.table("woken", [amount, place], woken, () => {}));
    }
    return [...parts, note];
  }

  chip(cause, text) {
    const chip = element("i", { class: "chip" });
    chip.style.background = this.colors.causes[cause];
    return element("span", null, chip, text);
  }

  threads() {
    const { data, view } = this, test = view.search.trim() === "" ? () => true : nameTest(view.search);
    const rows = data.meta.threads.map((t, i) => ({ t, i })).filter(({ t }) => test(threadName(t))).map(({ t, i }) => {
      const blocked = t.blocked_ns.reduce((a, b) => a + b, 0);
      return {
        i, t, name: t.name, tid: t.tid, process: `${data.meta.processes[t.process].name} ${data.meta.processes[t.process].pid || ""}`,
        wall: t.running_ns + blocked + t.gap_ns, running: t.running_ns, cpu: t.cpu_ns, runnable: t.runnable_ns, blocked, gap: t.gap_ns,
        bytes: t.allocated_bytes, calls: t.calls ?? -1, read: t.call_bytes?.read ?? -1, written: t.call_bytes?.written ?? -1, samples: t.samples, chosen: view.scope === "t" + i,
      };
    });
    const moved = (bytes) => (bytes < 0 ? "?" : formatBytes(bytes));
    const kinds = (r) => {
      const bar = element("span", { class: "kinds", title: this.causesOf(r) });
      const parts = [[0, r.running], ...r.t.blocked_ns.map((ns, cause) => [cause, cause ? ns : 0]).slice(1)];
      for (const [cause, ns] of parts) {
        if (!ns || !r.wall) continue;
        const part = element("i");
        part.style.width = `${(100 * ns) / r.wall}%`;
        part.style.background = this.colors.causes[cause];
        bar.append(part);
      }
      return bar;
    };
    // A number of which the name hides the end would be another one: it stands where it is whole.
    const columns = [
      { key: "tid", title: "Tid", cell: (r) => element("span", null, r.t.merged ? `${formatCount(r.t.merged)} threads` : String(r.tid)) },
      { key: "wall", title: "Wall", format: formatTime },
      { key: "running", title: "Running", format: formatTime },
      { key: "cpu", title: "CPU", format: formatTime },
      { key: "runnable", title: "Runnable", format: formatTime, optional: true },
      { key: "blocked", title: "Blocked", format: formatTime },
      { key: "gap", title: "No evidence", format: formatTime, optional: true },
      { key: "bytes", title: "Allocated", format: formatBytes, optional: true },
      {
        key: "calls", title: "System calls", hint: "Those that passed hooks, by kind below the pointer", optional: true,
        cell: (r) => (r.calls < 0 ? "?" : r.calls ? element("span", { title: r.t.calls_by_kind.replaceAll(", ", "\n") }, formatCount(r.calls)) : "0"),
      },
      { key: "read", title: "Read", hint: "Bytes that calls read that passed hooks", format: moved, optional: true },
      { key: "written", title: "Written", hint: "Bytes that calls wrote that passed hooks", format: moved, optional: true },
      { key: "samples", title: "Samples", format: formatCount, optional: true },
      { key: "running", title: "Where", class: "short optional", cell: kinds },
      { key: "process", title: "Process", class: "short", format: (v) => v, optional: true },
      { key: "name", title: "Thread", class: "name", cell: (r) => element("span", { title: this.startOf(r.t) || undefined }, r.name) },
    ];
    const legend = element("p", { class: "note" }, this.chip(0, "running "),
      ...data.meta.causes.map((name, cause) => (cause && rows.some((r) => r.t.blocked_ns[cause] > 0) ? this.chip(cause, name + " ") : null)),
      " Sums over the whole recording. Click a line to look at one thread.");
    return [...this.table("threads", columns, rows, (r) => {
      view.set({ scope: r.chosen ? "all" : "t" + r.i });
    }), legend];
  }

  // Who started a thread, and where.
  startOf(thread) {
    const { meta } = this.data;
    this.threadOfUtid ||= new Map(meta.threads.map((t) => [t.utid, t]));
    const by = this.threadOfUtid.get(thread.started_by);
    return by ? [`started by ${threadName(by)}`, ...(meta.start_stacks[thread.start_stack] || [])].join("\n") : "";
  }

  causesOf(r) {
    const lines = [`running ${formatTime(r.running)}`];
    r.t.blocked_ns.forEach((ns, cause) => { if (ns) lines.push(`${this.data.meta.causes[cause]} ${formatTime(ns)}`); });
    if (r.gap) lines.push(`no evidence ${formatTime(r.gap)}`);
    return lines.join("\n");
  }

  about() {
    const { meta } = this.data, r = meta.recording, list = element("dl", { class: "about" });
    const heading = (text) => list.append(element("h3", null, text));
    const line = (name, value) => { if (value !== "" && value !== undefined) list.append(element("dt", null, name), element("dd", null, String(value))); };
    heading("Recording");
    line("Command", r.command.join(" "));
    line("Started", new Date(r.started_unix_ns / 1e6).toLocaleString());
    line("Duration", formatTime(r.duration_ns));
    line("Interval", formatTime(r.interval_ns) + (r.main_interval_ns !== r.interval_ns ? `, main threads ${formatTime(r.main_interval_ns)}` : ""));
    line("Probes", r.probes.join(", "));
    line("Trace", r.trace);
    line("stackbeat", r.stackbeat_version);
    heading("Machine");
    line("Host", r.hostname);
    line("System", r.os);
    line("Processor", `${r.cpu_model} (${r.cpus} ${r.cpus === 1 ? "CPU" : "CPUs"}, ${r.machine})`);
    heading("Completeness");
    line("State", r.state);
    for (const text of meta.damage) line("Damage", text);
    line("Records", `${r.records_written} written = ${r.records_stored} in the trace + ${r.records_lost} lost`);
    for (const u of r.unrecorded) line("Not recorded", `${u.executable} · ${u.processes} × · ${formatTime(u.cpu_ns)} of CPU time · ${u.reason.replaceAll("_", " ")}`);
    for (const loss of meta.drops) line(loss.cause.replaceAll("_", " "), `${loss.count} · ${loss.description}`);
    if (meta.drops.length === 0) line("Losses", "none");
    heading("This page");
    line("Flame graph", meta.cut.places ? `${meta.cut.places} small stacks are summed up below their callers; sums are exact` : "complete");
    line("Threads", manyThreads(meta.threads) || "each has a row");
    line("Timeline", meta.cut.grain_ns
      ? `${meta.cut.joined} stretches shorter than ${formatTime(meta.cut.grain_ns)} are drawn together with a neighbour; a selected range is exact to that`
      : "complete");
    return [list];
  }
}
