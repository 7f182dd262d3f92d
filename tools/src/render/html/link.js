// What of this page is in its address.

const LINK_DEFAULTS = { tab: "flame", weight: "wall", inverted: "", idle: "", outer: "", library: "", scope: "all", range: "", compare: "", shown: "", search: "", function: "", sort: "" };

const pairToText = (pair) => (pair ? pair.map((ns) => Math.round(ns)).join("-") : "");

// Two times in ns with time between them, or null.
function pairOfText(text) {
  const found = /^(\d{1,16})-(\d{1,16})$/.exec(text);
  return found && Number(found[1]) < Number(found[2]) ? [Number(found[1]), Number(found[2])] : null;
}

// Flame graphs whose zoom is part of a link, by name.
const zoomsOf = (page) => ({ zoom: page.flame, callers: page.aroundPanel.flames[0], callees: page.aroundPanel.flames[1] });

function linkOf(page) {
  const { view, timeline, tables } = page, [from, to] = timeline.shown, flag = (is) => (is ? "1" : "");
  const state = {
    tab: page.tab, weight: view.weight, inverted: flag(view.inverted), idle: flag(view.idle), outer: flag(view.outer), library: flag(view.library), scope: view.scope,
    range: pairToText(view.range), compare: pairToText(view.baseline), search: view.search,
    shown: from <= 0 && to >= timeline.duration ? "" : pairToText(timeline.shown), function: page.tab === "around" && page.around !== null ? String(page.around) : "",
    sort: Object.entries(tables.sort).filter(([table, order]) => order !== SORTED[table]).map(([table, order]) => [table, ...order].join(".")).join("_"),
  };
  return stateToText(state, LINK_DEFAULTS, zoomsOf(page));
}

// Brings the page to the state of a link. What a link has wrong stays as it was at the start.
function followLink(page, link) {
  const state = stateOfText(link, LINK_DEFAULTS), { view, timeline, tables, data } = page;
  const { threads, processes } = data.meta, scope = /^([pt])(\d{1,9})$/.exec(state.scope);
  const isScope = scope && Number(scope[2]) < (scope[1] === "t" ? threads : processes).length;
  byId("search").value = state.search;
  timeline.selected = null;
  const shown = pairOfText(state.shown);
  timeline.show(...(shown || [0, timeline.duration]));
  page.around = /^\d{1,9}$/.test(state.function) && Number(state.function) < data.meta.functions.length ? Number(state.function) : null;
  page.tab = document.querySelector(`[role="tab"][data-tab="${CSS.escape(state.tab)}"]`) ? state.tab : "flame";
  tables.sort = { ...SORTED };
  for (const [, table, key, direction] of state.sort.matchAll(/(\w+?)\.(\w+?)\.(-?1)(?:_|$)/g)) {
    if (Object.hasOwn(SORTED, table)) tables.sort[table] = [key, Number(direction)];
  }
  view.set({
    weight: Object.hasOwn(WEIGHTS, state.weight) ? state.weight : "wall", inverted: state.inverted === "1", idle: state.idle === "1", outer: state.outer === "1", library: state.library === "1",
    scope: isScope ? state.scope : "all", range: pairOfText(state.range), baseline: pairOfText(state.compare), search: state.search,
  });
  page.open(page.tab);
  followZooms(state, zoomsOf(page));
}
