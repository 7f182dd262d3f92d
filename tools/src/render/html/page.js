// Puts the parts together and reacts to keys.

class Page {
  constructor(data) {
    this.data = data;
    this.view = new View(data);
    this.colors = new Colors(data);
    this.tip = new Tip();
    Object.assign(this, { fitName, fitNames, fitApart });
    this.timeline = new Timeline(data, this.view, this.colors, this.tip);
    this.flame = new Flame(byId("flame"), new CallTree(data, this.view, this.colors), this.colors, this.tip);
    this.tables = new Tables(data, this.view, this.colors, this.timeline);
    this.aroundPanel = new FunctionPanel(data, this.view, this.flame.source, this.colors, this.tip);
    this.address = new Address(() => linkOf(this), (text) => followLink(this, text));
    this.around = null; // number of the function whose callers and callees are shown
    this.tables.onFunction = (index) => this.showAround(index);
    for (const flame of [this.flame, ...this.aroundPanel.flames]) {
      flame.onZoom = () => this.address.keep();
      flame.onChoose = (node) => { if (data.isFunction(node.label)) this.showAround((node.label - LABEL_FUNCTION) / 2); };
    }
    this.timeline.onShow = () => this.address.keep();
    this.tables.onSort = () => this.refresh();
    this.tab = "flame";
    this.fillHeader();
    this.fillLegend();
    this.fillScope();
    this.listen();
    this.view.onChange((changes) => this.changed(changes));
    this.address.open();
    this.timeline.redraw();
  }

  showAround(index) {
    this.around = index;
    this.open("around");
  }

  saveSvg() {
    const { view, flame } = this, isAround = this.tab === "around";
    // Below a table it is not laid out, or as it was before; and what is hidden has no width.
    if (!isAround && this.tab !== "flame") flame.rebuild(byId("detail").clientWidth);
    const range = view.range ? `, ${formatTime(view.range[0])} to ${formatTime(view.range[1])}` : "";
    const title = `${this.data.meta.recording.command.join(" ")} · ${WEIGHTS[view.weight].title}${range}`;
    saveFile("flame-graph.svg", "image/svg+xml", flamesToSvg(isAround ? this.aroundPanel.parts() : [["", flame]], title));
  }

  fillHeader() {
    const { recording: r, verdict, threads, processes, drops, cut } = this.data.meta;
    const command = r.command.join(" ");
    byId("command").textContent = command;
    byId("command").title = command;
    const plural = (n, one, many) => `${formatCount(n)} ${n === 1 ? one : many}`;
    const samples = threads.reduce((sum, t) => sum + t.samples, 0);
    byId("metadata").textContent = [
      formatTime(r.duration_ns), plural(processes.filter((p) => p.pid && !p.replaced_upid).length, "process", "processes"),
      plural(threads.reduce((sum, t) => sum + (t.is_main && processes[t.process].replaced_upid ? 0 : t.merged || 1), 0), "thread", "threads"),
      plural(samples, "sample of time", "samples of time"), "every " + formatTime(r.interval_ns),
    ].join(" · ");
    byId("verdict").textContent = verdict;
    byId("verdict").hidden = !verdict;
    const notes = [];
    if (r.records_lost > 0) notes.push(`${formatCount(r.records_lost)} of ${formatCount(r.records_written)} records were lost`);
    const gapCpu = this.view.evidence().gapCpu, cpu = threads.reduce((sum, t) => sum + t.cpu_ns, 0);
    if (r.hooks_only || gapCpu > 0.05 * cpu) notes.push(`no evidence for ${formatTime(gapCpu)} of ${formatTime(cpu)} of CPU time` + (r.hooks_only ? ", because threads that ran were not interrupted (--no-interrupt): only functions around hooks are known" : ""));
    for (const u of r.unrecorded.slice(0, 3)) {
      const processes = u.processes > 1 ? `${formatCount(u.processes)} processes, ` : "";
      notes.push(`${u.name} ran unrecorded (${processes}${formatTime(u.cpu_ns)} of CPU time)`);
    }
    if (r.unrecorded.length > 3) notes.push(`${r.unrecorded.length - 3} more programs ran unrecorded`);
    if (r.counts_end_ns !== undefined) notes.push(`allocations are counted up to ${formatTime(r.counts_end_ns)} only, because their hooks were more than the budget could hold`);
    if (!r.state.startsWith("complete")) notes.push(r.state);
    for (const cause of ["table_full", "thread_table_full", "process_table_full", "not_hooked", "agent_disabled"]) {
      const loss = drops.find((l) => l.cause === cause);
      if (loss) notes.push(`${formatCount(loss.count)} ${loss.description}`);
    }
    if (manyThreads(threads)) notes.push(manyThreads(threads));
    if (cut.grain_ns) notes.push(`the timeline is coarser than the trace: stretches under ${formatTime(cut.grain_ns)} are drawn together`);
    byId("notice").textContent = notes.length ? notes.join("; ") + "." : "";
    byId("notice").hidden = notes.length === 0;
  }

  fillLegend() {
    const { causes, threads } = this.data.meta;
    const present = causes.map((name, cause) => [cause, cause === 0 ? "running" : name])
      .filter(([cause]) => cause === 0 || threads.some((t) => t.blocked_ns[cause] > 0));
    byId("legend").replaceChildren(...present.map(([cause, name]) => this.tables.chip(cause, name)));
  }

  fillScope() {
    const { threads, processes } = this.data.meta, scope = byId("scope");
    scope.append(element("option", { value: "all" }, "All threads"));
    for (const [p, process] of processes.entries()) {
      const own = threads.map((t, i) => [t, i]).filter(([t]) => t.process === p);
      if (processes.length > 1) scope.append(element("option", { value: "p" + p }, process.pid ? `${process.name} (${process.pid})` : process.name));
      for (const [t, i] of own.slice(0, 500)) scope.append(element("option", { value: "t" + i }, `${processes.length > 1 ? "\u2003" : ""}${threadName(t)}`));
    }
  }

  open(tab) {
    this.tab = tab;
    for (const button of document.querySelectorAll('[role="tab"]')) {
      const chosen = button.dataset.tab === tab;
      button.setAttribute("aria-selected", String(chosen));
      button.tabIndex = chosen ? 0 : -1;
    }
    for (const panel of document.querySelectorAll(".panel")) panel.hidden = panel.dataset.panel !== tab;
    this.refresh();
  }

  refresh() {
    if (this.tab === "flame") this.flame.rebuild();
    else if (this.tab === "around") this.around = this.aroundPanel.render(this.around);
    else this.tables.render(this.tab);
    this.address.keep();
  }

  changed(changes) {
    const { view } = this;
    byId("weight").value = view.weight;
    byId("inverted").checked = view.inverted;
    byId("idle").checked = view.idle;
    byId("outer").checked = view.outer;
    byId("library").checked = view.library;
    byId("scope").value = view.scope;
    byId("range").hidden = !view.range;
    if (view.range) byId("range").textContent = `${formatTime(view.range[1] - view.range[0])} selected ✕`;
    byId("compare").hidden = !view.range && !view.baseline;
    byId("compare").textContent = view.baseline ? `compared with ${formatTime(view.baseline[1] - view.baseline[0])} at ${formatTime(view.baseline[0])} ✕` : "Compare";
    if ("outer" in changes || "idle" in changes) this.timeline.place();
    if ("inverted" in changes) this.flame.zoomPath = [];
    showMatched(view.matches, view.matches && formatShare(view.matched(), view.sums().all));
    const isSearch = Object.keys(changes).length === 1 && "search" in changes;
    if (isSearch && this.tab === "flame") this.flame.draw();
    else if (isSearch && this.tab === "around") this.aroundPanel.draw();
    else this.refresh();
    this.address.keep();
    this.timeline.redraw();
  }

  search(text) {
    byId("search").value = text;
    this.view.set({ search: text });
  }

  reset() {
    for (const flame of Object.values(zoomsOf(this))) flame.zoomPath = [];
    byId("search").value = "";
    this.timeline.reset();
    this.view.set({ weight: "wall", inverted: false, idle: false, outer: false, library: false, scope: "all", range: null, baseline: null, search: "" });
  }

  listen() {
    const { view, timeline } = this;
    byId("tabs").addEventListener("click", (e) => { const b = e.target.closest("[data-tab]"); if (b) this.open(b.dataset.tab); });
    byId("tabs").addEventListener("keydown", (e) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
      if (!step) return;
      e.stopPropagation();
      const buttons = [...byId("tabs").children], at = buttons.findIndex((b) => b.dataset.tab === this.tab);
      const to = buttons[(at + step + buttons.length) % buttons.length];
      this.open(to.dataset.tab);
      to.focus();
    });
    byId("weight").addEventListener("change", (e) => view.set({ weight: e.target.value }));
    byId("inverted").addEventListener("change", (e) => view.set({ inverted: e.target.checked }));
    byId("idle").addEventListener("change", (e) => view.set({ idle: e.target.checked }));
    byId("outer").addEventListener("change", (e) => view.set({ outer: e.target.checked }));
    byId("library").addEventListener("change", (e) => view.set({ library: e.target.checked }));
    byId("scope").addEventListener("change", (e) => view.set({ scope: e.target.value }));
    byId("search").addEventListener("input", (e) => view.set({ search: e.target.value }));
    byId("range").addEventListener("click", () => { timeline.selected = null; view.set({ range: null }); });
    byId("compare").addEventListener("click", () => {
      timeline.selected = null;
      view.set(view.baseline ? { baseline: null } : { baseline: view.range, range: null });
    });
    byId("svg").addEventListener("click", () => this.saveSvg());
    byId("reset").addEventListener("click", () => this.reset());
    byId("help-button").addEventListener("click", () => byId("help").showModal());
    byId("theme").addEventListener("click", () => {
      document.documentElement.dataset.theme = this.colors.dark ? "light" : "dark";
      this.recolor();
    });
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recolor());
    this.listenSplitter();
    new ResizeObserver(() => { timeline.overviewKey = null; timeline.redraw(); }).observe(byId("time"));
    new ResizeObserver(() => { if (this.tab === "flame") this.flame.layout(); }).observe(byId("flame"));
    new ResizeObserver(() => { if (this.tab === "around") this.aroundPanel.layout(); }).observe(byId("detail"));
    window.addEventListener("resize", () => this.tables.fitNames());
    document.addEventListener("keydown", (e) => this.key(e));
  }

  recolor() {
    this.colors.refresh();
    this.fillLegend();
    this.timeline.overviewKey = null;
    this.timeline.redraw();
    this.refresh();
  }

  listenSplitter() {
    const splitter = byId("splitter"), main = document.querySelector("main");
    const move = (y) => {
      const box = main.getBoundingClientRect(), share = Math.min(85, Math.max(12, (100 * (y - box.top)) / box.height));
      document.documentElement.style.setProperty("--split", share + "%");
    };
    splitter.addEventListener("pointerdown", (e) => { e.preventDefault(); splitter.setPointerCapture(e.pointerId); });
    splitter.addEventListener("pointermove", (e) => { if (splitter.hasPointerCapture(e.pointerId)) move(e.clientY); });
    splitter.addEventListener("keydown", (e) => {
      const step = { ArrowUp: -24, ArrowDown: 24 }[e.key];
      if (step) { e.stopPropagation(); move(splitter.getBoundingClientRect().top + step); }
    });
  }

  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey || byId("help").open) return;
    const typing = e.target.matches("input[type=search], select");
    const { timeline, view } = this;
    if (e.key === "Escape") {
      if (typing) { this.search(""); e.target.blur(); }
      else if (view.range || view.scope !== "all") { timeline.selected = null; view.set({ range: null, scope: "all" }); }
      else if (view.baseline) view.set({ baseline: null });
      else if (this.flame.zoomPath.length) this.flame.zoomTo([]);
      return;
    }
    if (typing) return;
    const actions = {
      "/": () => { byId("search").focus(); byId("search").select(); },
      "?": () => byId("help").showModal(),
      0: () => this.reset(),
      w: () => timeline.zoom(0.7), "+": () => timeline.zoom(0.7), "=": () => timeline.zoom(0.7), ArrowUp: () => timeline.zoom(0.7),
      s: () => timeline.zoom(1 / 0.7), "-": () => timeline.zoom(1 / 0.7), ArrowDown: () => timeline.zoom(1 / 0.7),
      a: () => timeline.pan(-0.15), ArrowLeft: () => timeline.pan(-0.15),
      d: () => timeline.pan(0.15), ArrowRight: () => timeline.pan(0.15),
      f: () => { if (view.range) timeline.fit({ begin: view.range[0], end: view.range[1] }); },
    };
    const action = actions[e.key.length === 1 ? e.key.toLowerCase() : e.key];
    if (action) { e.preventDefault(); action(); }
  }
}

// What tests and curious people reach from the console.
window.stackbeat = loadData().then((data) => new Page(data)).catch((error) => {
  byId("notice").textContent = `This page cannot be shown: ${error.message}`;
  byId("notice").hidden = false;
  throw error;
});
