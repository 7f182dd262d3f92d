// Amounts as people read them (the same rules as tools/src/units.rs), and small helpers for the DOM.

const threeDigits = (value, unit) =>
  (value < 9.995 ? value.toFixed(2) : value < 99.95 ? value.toFixed(1) : value.toFixed(0)) + " " + unit;

function formatTime(ns) {
  ns = Math.round(ns);
  if (ns === 0) return "0";
  if (ns < 0) return "−" + formatTime(-ns);
  if (ns < 1e3) return ns + " ns";
  if (ns < 999.5e3) return threeDigits(ns / 1e3, "µs");
  if (ns < 999.5e6) return threeDigits(ns / 1e6, "ms");
  if (ns < 999.5e9) return threeDigits(ns / 1e9, "s");
  const s = Math.floor(ns / 1e9), two = (n) => String(n).padStart(2, "0");
  return Math.floor(s / 3600) + ":" + two(Math.floor(s / 60) % 60) + ":" + two(s % 60) + " h";
}

function formatBytes(n) {
  n = Math.round(n);
  if (n === 0) return "0";
  if (n < 1024) return n + " B";
  for (const unit of ["KiB", "MiB", "GiB"]) {
    n /= 1024;
    if (n < 999.5) return threeDigits(n, unit);
  }
  return threeDigits(n / 1024, "TiB");
}

function formatCount(n) {
  n = Math.round(n);
  if (n < 1e4) return String(n);
  if (n < 999.5e3) return threeDigits(n / 1e3, "k");
  if (n < 999.5e6) return threeDigits(n / 1e6, "M");
  return threeDigits(n / 1e9, "G");
}

const formatShare = (part, whole) => (whole > 0 ? (100 * part / whole).toFixed(1) + " %" : "");

// How much more or less a later amount is.
const formatChange = (before, after) =>
  before > 0 ? `${after >= before ? "+" : "−"}${Math.abs(100 * (after / before - 1)).toFixed(1)} %` : after > 0 ? "new" : "";

// The 95 % interval of a share that so many samples of equal weight have found (Wilson).
function shareInterval(part, whole, samples) {
  if (!(whole > 0) || !(samples > 0)) return null;
  const z = 1.959963985, share = Math.min(1, part / whole), squared = (z * z) / samples;
  const middle = (share + squared / 2) / (1 + squared);
  const half = (z / (1 + squared)) * Math.sqrt((share * (1 - share)) / samples + squared / (4 * samples));
  return [Math.min(share, Math.max(0, middle - half)), Math.max(share, Math.min(1, middle + half))];
}

const byId = (id) => document.getElementById(id);

// An element with attributes and children; text is never read as markup.
function element(tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) e.setAttribute(name, value === true ? "" : value);
  }
  e.append(...children.filter((c) => c !== null && c !== undefined));
  return e;
}

// The last part of a path.
const baseName = (path) => path.slice(path.lastIndexOf("/") + 1);

// As much of the text as fits, cut in the middle: both ends of a name tell something.
function fitText(text, width, charWidth) {
  const room = Math.floor(width / charWidth);
  if (text.length <= room) return text;
  if (room < 3) return "";
  const head = Math.ceil((room - 1) * 0.6);
  return text.slice(0, head) + "…" + text.slice(text.length - (room - 1 - head));
}

// Writes what `fit` finds room for. Letters differ in width: it finds less where those that are left are wide.
function fillFitted(c, fit, text, x, y, width) {
  const widthOf = (some) => c.measureText(some).width;
  let fitting = fit(text, width, widthOf(text) / (text.length || 1));
  if (widthOf(fitting) > width) fitting = fit(text, width, widthOf(fitting) / fitting.length);
  c.fillText(fitting, x, y, width);
}

// Sizes a canvas for the screen's pixels and gives its context in CSS pixels.
function sizeCanvas(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const w = Math.max(1, Math.round(width * ratio)), h = Math.max(1, Math.round(height * ratio));
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = width + "px";
    canvas.style.height = height + "px";
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

// Whether a name is what is searched for: a part of it, or a regular expression between slashes. A wrong expression
// finds nothing, and `wrong` says why.
function nameTest(text) {
  const pattern = /^\/(.+)\/?$/.exec(text), lower = text.toLowerCase();
  if (!pattern) return (name) => name.toLowerCase().includes(lower);
  try {
    const expression = new RegExp(pattern[1].replace(/\/$/, ""), "i");
    return (name) => expression.test(name);
  } catch (error) {
    const reason = error.message.replace(/^Invalid regular expression: .*: /, "");
    return Object.assign(() => false, { wrong: `not a regular expression: ${reason}` });
  }
}

// What a search has found, or why it cannot find anything.
function showMatched(test, share) {
  byId("matched").textContent = test ? test.wrong || share : "";
  byId("matched").className = test?.wrong ? "wrong" : "";
}

// From the colour of no change towards that of more or less; full colour from a change of `strongest` on.
function changeColor({ flat, more, less }, change, strongest) {
  const strength = Math.sqrt(Math.min(1, Math.abs(change) / (strongest || 1)));
  const [from, to] = [flat, change > 0 ? more : less].map((color) => color.match(/[\d.]+/g).map(Number));
  return `rgb(${from.map((part, i) => Math.round(part + (to[i] - part) * strength))})`;
}

// The colours that the style sheet has under these names, the font, and whether the scheme is dark.
function schemeColors(names) {
  const scheme = document.documentElement.dataset.theme;
  const colors = {
    dark: scheme ? scheme === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches,
    font: getComputedStyle(document.body).getPropertyValue("--font"),
  };
  // Custom properties keep `light-dark()` unresolved; a real property resolves it.
  const probe = element("i", { style: "display:none" });
  document.body.append(probe);
  for (const name of names) {
    probe.style.color = `var(--${name})`;
    colors[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return colors;
}

// A thread, or how many there are of a role.
function threadName(t) { return t.merged ? `${t.name} (${formatCount(t.merged)} threads)` : `${t.name || "thread"} ${t.tid}`; }

// What a page does not have of threads that have no row of their own; empty when each has one.
function manyThreads(threads) {
  const merged = threads.reduce((sum, t) => sum + (t.merged || 0), 0);
  if (merged === 0) return "";
  const single = threads.filter((t) => !t.merged).length;
  return `${formatCount(single)} threads, those that used or lived most, have rows of their own; the other ${formatCount(merged)} are summed up by name, exactly, and are not in the timeline and in selected ranges`;
}
