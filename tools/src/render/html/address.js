// What is shown, as the fragment of the page's address: a link that somebody else opens shows the same.

class Address {
  // `text()` gives the state, `follow(text)` brings the page to one.
  constructor(text, follow) {
    Object.assign(this, { text, follow, timer: null });
    window.addEventListener("hashchange", () => this.open());
  }

  open() { this.follow(location.hash.slice(1)); }

  // The address follows what is shown, at most four times a second: browsers refuse more.
  keep() {
    this.timer ||= setTimeout(() => {
      this.timer = null;
      const text = this.text();
      if (text !== location.hash.slice(1)) history.replaceState(null, "", "#" + text);
    }, 250);
  }
}

// A state as text, without what is as at the start; `zooms`: flame graphs by name.
function stateToText(state, defaults, zooms) {
  const parts = new URLSearchParams();
  for (const [key, value] of Object.entries(state)) if (value !== defaults[key]) parts.set(key, value);
  for (const [key, flame] of Object.entries(zooms)) if (flame.zoomPath.length) parts.set(key, flame.zoomPath.join("."));
  return parts.toString();
}

const stateOfText = (text, defaults) => ({ ...defaults, ...Object.fromEntries(new URLSearchParams(text)) });

function followZooms(state, zooms) {
  for (const [key, flame] of Object.entries(zooms)) {
    flame.zoomPath = (state[key] || "").split(".").filter((label) => /^\d{1,9}$/.test(label)).map(Number);
    if (flame.box.clientWidth > 0) flame.zoomTo(flame.zoomPath);
  }
}
