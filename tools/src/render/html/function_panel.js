// One function in the report's page: its source lines above its callers and callees.

class FunctionPanel extends AroundPanel {
  constructor(data, view, whole, colors, tip) {
    super(whole, colors, tip);
    Object.assign(this, { data, view });
  }

  // The function by its number; without one the busiest of what is selected. Says which it is.
  render(index) {
    const { data, view } = this, { functions } = data.meta;
    if (index === null) index = view.functions().reduce((best, r) => (best && best.running >= r.running ? best : r), null)?.index ?? -1;
    const f = index === -1 ? null : functions[index];
    this.source(data.meta.sources[index]);
    if (f) this.show(LABEL_FUNCTION + 2 * index, [f.file + (f.file && f.line ? ":" + f.line : ""), f.module].filter(Boolean).join(" · "));
    else this.show(null);
    return f ? index : null;
  }

  source(lines) {
    byId("source").hidden = !lines;
    if (!lines) return;
    byId("source").replaceChildren(...lines.text.map((text, i) =>
      element("div", { class: lines.from + i === lines.line ? "first" : undefined }, element("span", null, String(lines.from + i)), text)));
  }
}
