// A flame graph of both sides: widths are one side's amounts, colours say where the other has more or
// less. DATA.nodes: [parent, name, [[baseline, candidate] by weight]], parents before children.
"use strict";
const ROW = 18;
const byId = (id) => document.getElementById(id);
const children = DATA.nodes.map(() => []);
DATA.nodes.forEach((node, at) => { if (at > 0) children[node[0]].push(at); });
let focus = 0;

DATA.weights.forEach(([title], at) => byId("weight").append(new Option(title, at)));

function text(value, unit) {
  const steps = unit === "ns" ? [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]]
    : unit === "bytes" ? [[1 << 30, "GiB"], [1 << 20, "MiB"], [1 << 10, "KiB"], [1, "B"]]
    : [[1e6, "M"], [1e3, "k"], [1, ""]];
  const [size, name] = steps.find(([size]) => Math.abs(value) >= size) || steps[steps.length - 1];
  return (value / size).toFixed(Math.abs(value) < size * 100 && size > 1 ? 1 : 0) + " " + name;
}

// Red where the candidate has more, blue where it has less, by more than chance would have it; full colour at a tenth of the
// whole graph's amount, or at the largest change when all are smaller.
function color(change, strongest) {
  const strength = Math.min(1, Math.abs(change) / strongest);
  const target = change > 0 ? "214, 60, 50" : "60, 110, 214";
  const percent = Math.round(100 * Math.sqrt(strength));
  return `color-mix(in srgb, rgb(${target}) ${percent}%, rgb(var(--flat)))`;
}

function draw() {
  const weight = Number(byId("weight").value);
  const side = Number(byId("side").value);
  const unit = DATA.weights[weight][1];
  const pair = (at) => DATA.nodes[at][2][weight];
  const whole = pair(focus)[side] || 1;
  let largest = 1;
  DATA.nodes.forEach((_, at) => { if (at > 0) largest = Math.max(largest, Math.abs(pair(at)[1] - pair(at)[0])); });
  const strongest = Math.min(largest, Math.max(pair(0)[0], pair(0)[1], 1) / 10) || 1;
  const graph = byId("graph");
  graph.textContent = "";
  let depth = 0;
  const add = (at, row, left, width) => {
    const [before, after, differs] = pair(at);
    const box = document.createElement("div");
    box.style.cssText = `left:${left}%;top:${row * ROW}px;width:${width}%;background:${color(differs ? after - before : 0, strongest)}`;
    box.textContent = width > 1 ? DATA.nodes[at][1] : "";
    const change = before > 0 ? ` (${after >= before ? "+" : ""}${(100 * (after / before - 1)).toFixed(1)} %)` : after > 0 ? " (new)" : "";
    const says = `${DATA.nodes[at][1]}: ${text(before, unit)} → ${text(after, unit)}${change}${differs || before === after ? "" : ", which may be chance"}`;
    box.title = says;
    box.onmouseover = () => { byId("details").textContent = says; };
    box.onclick = () => { focus = at; draw(); };
    graph.append(box);
    depth = Math.max(depth, row + 1);
  };
  // Callers of what is in focus, then all below it.
  const above = [];
  for (let at = focus; at !== 0; at = DATA.nodes[at][0]) above.unshift(DATA.nodes[at][0]);
  above.forEach((at, row) => add(at, row, 0, 100));
  const open = [[focus, above.length, 0]];
  while (open.length) {
    const [at, row, left] = open.pop();
    const width = (100 * pair(at)[side]) / whole;
    if (width < 0.08) continue;
    add(at, row, left, Math.min(width, 100));
    let next = left;
    const below = children[at].slice().sort((a, b) => (DATA.nodes[a][1] < DATA.nodes[b][1] ? -1 : 1));
    for (const child of below) {
      open.push([child, row + 1, next]);
      next += (100 * pair(child)[side]) / whole;
    }
  }
  graph.style.height = depth * ROW + "px";
  byId("back").hidden = focus === 0;
}

byId("weight").onchange = draw;
byId("side").onchange = draw;
byId("back").onclick = () => { focus = 0; draw(); };
draw();
