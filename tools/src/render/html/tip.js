// The box beside the pointer that says what is below it.

class Tip {
  constructor() { this.box = byId("tip"); }

  show(event, { title, where, lines }) {
    const rows = lines.map(([name, value]) => element("tr", null, element("td", null, name), element("td", null, value)));
    const places = (where ? where.split("\n") : []).map((text) => element("div", { class: "where" }, text));
    this.box.replaceChildren(element("b", null, title), ...places, ...(rows.length ? [element("table", null, ...rows)] : []));
    this.box.hidden = false;
    const { width, height } = this.box.getBoundingClientRect();
    const x = event.clientX + 14 + width > innerWidth ? Math.max(4, Math.min(event.clientX - width - 10, innerWidth - width - 4)) : event.clientX + 14;
    const y = event.clientY + 16 + height > innerHeight ? Math.max(4, event.clientY - height - 10) : event.clientY + 16;
    this.box.style.left = x + "px";
    this.box.style.top = y + "px";
  }

  hide() { this.box.hidden = true; }
}
