// Hover, zoom and search for the frames of this picture. Each frame knows its place in the whole:
// data-x (weight to its left), data-w (its weight), data-d (its depth). `fitName` is the pages' (names.js).
(function () {
  "use strict";
  const svg = document.documentElement;
  const width = Number(svg.dataset.width);
  const pad = Number(svg.dataset.pad);
  const total = Number(svg.dataset.total);
  const byId = (id) => document.getElementById(id);
  const details = byId("details");
  const back = byId("back");
  const frames = Array.from(document.querySelectorAll("g.f"), (g) => ({
    g,
    x: Number(g.dataset.x),
    w: Number(g.dataset.w),
    d: Number(g.dataset.d),
    rect: g.querySelector("rect"),
    text: g.querySelector("text"),
    title: g.querySelector("title").textContent,
    name: g.querySelector("title").textContent.replace(/ \([^()]*%\)$/, ""),
  }));

  function label(frame, pixels) {
    return fitName(frame.name, pixels - 6, 7.3);
  }

  // Shows only what lies above and below one frame, which then fills the width.
  function zoom(focus) {
    const scale = (width - 2 * pad) / (focus.w || 1);
    for (const frame of frames) {
      const isParent = frame.d < focus.d && frame.x <= focus.x && frame.x + frame.w >= focus.x + focus.w;
      const isChild = frame.d >= focus.d && frame.x >= focus.x && frame.x + frame.w <= focus.x + focus.w;
      const left = isParent ? pad : pad + (frame.x - focus.x) * scale;
      const pixels = isParent ? width - 2 * pad : frame.w * scale;
      frame.g.classList.toggle("hidden", !(isParent || isChild) || pixels < 0.1);
      frame.g.classList.toggle("parent", isParent);
      frame.rect.setAttribute("x", left);
      frame.rect.setAttribute("width", pixels);
      frame.text.setAttribute("x", left + 3);
      frame.text.textContent = label(frame, pixels);
    }
    back.classList.toggle("hidden", focus.w === total);
  }

  // Colors what matches and says how much of the whole it is, counting nested matches once.
  function search(pattern) {
    let expression = null;
    try {
      expression = pattern ? new RegExp(pattern, "i") : null;
    } catch (error) {
      byId("matched").textContent = String(error.message);
      return;
    }
    const matches = [];
    for (const frame of frames) {
      const isMatch = expression !== null && expression.test(frame.name);
      frame.g.classList.toggle("match", isMatch);
      if (isMatch) matches.push(frame);
    }
    matches.sort((a, b) => a.x - b.x || a.d - b.d);
    let covered = 0;
    let end = -1;
    for (const frame of matches) {
      if (frame.x + frame.w <= end) continue;
      covered += frame.w;
      end = frame.x + frame.w;
    }
    const share = total ? (100 * covered) / total : 0;
    byId("matched").textContent = expression ? "matched: " + share.toFixed(2) + "%" : "";
    byId("search").textContent = expression ? "clear search" : "search";
  }

  const whole = { x: 0, w: total, d: 0 };
  for (const frame of frames) {
    frame.g.addEventListener("click", () => zoom(frame));
    frame.g.addEventListener("mouseover", () => { details.textContent = frame.title; });
    frame.g.addEventListener("mouseout", () => { details.textContent = " "; });
  }
  back.addEventListener("click", () => zoom(whole));
  byId("search").addEventListener("click", () => {
    const isOn = byId("search").textContent === "clear search";
    search(isOn ? "" : window.prompt("Search for (regular expression):", "") || "");
  });
  window.addEventListener("keydown", (event) => {
    if (event.key === "Escape") zoom(whole);
    if ((event.ctrlKey || event.metaKey) && event.key === "f") {
      event.preventDefault();
      search(window.prompt("Search for (regular expression):", "") || "");
    }
  });
})();
