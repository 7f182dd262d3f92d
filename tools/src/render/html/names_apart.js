// Names that became one by being cut: what they differ in stays visible.

const FAIR_DIFFERENCE = 12, LEAST_DIFFERENCE = 5;

// Names of one table, each for its room in letters.
function fitNames(names, rooms) {
  let shown = names.map((name, i) => fitName(name, rooms[i], 1));
  // Again, as a new form may be one that another name has.
  for (let round = 0; round < 2; round++) {
    for (const places of placesOf(shown).values()) {
      const whole = [...new Set(places.map((i) => names[i]))];
      if (whole.length < 2) continue;
      const apart = fitApart(whole, Math.min(...places.map((i) => rooms[i])));
      shown = withMore(shown, places, places.map((i) => apart[whole.indexOf(names[i])]));
    }
  }
  return shown;
}

// By form: where it stands.
function placesOf(forms) {
  const places = new Map();
  forms.forEach((form, i) => (places.has(form) ? places.get(form).push(i) : places.set(form, [i])));
  return places;
}

const differentIn = (forms) => new Set(forms).size;

// Forms with new ones at some places, if more are different then.
function withMore(forms, places, more) {
  const these = [...forms];
  places.forEach((place, i) => { these[place] = more[i]; });
  return differentIn(these) > differentIn(forms) ? these : forms;
}

// As `stackbeat_symbolize::short_names::fit_apart` makes them: see there for the rules.
function fitApart(names, room) {
  const all = names.map(partsOf);
  if (all.some((parts) => !parts)) return cutAround(names, room);
  const ends = all.map(({ shape }) => shape.plain.slice(shape.components[shape.last]));
  if (ends.some((end) => end !== ends[0])) return cutAround(ends, room);
  let forms = [];
  for (const chosen of differencesOf(all)) {
    const these = all.map((parts) => fitDifferences(parts, chosen, room));
    if (differentIn(these) > differentIn(forms)) forms = these;
    if (differentIn(forms) === names.length) return forms;
  }
  if (forms.length === 0) return cutAround(names, room);
  if (differentIn(forms) === 1) return forms; // there is no room
  // Those that are still one have fewer differences among themselves.
  for (const places of placesOf(forms).values()) {
    if (places.length > 1) forms = withMore(forms, places, fitApart(places.map((i) => names[i]), room));
  }
  return forms;
}

// The texts of a name's parts by key: the component from the end, the kind, and which of that kind.
function partsOf(whole) {
  const [name, module] = withoutModule(whole), shape = shapeOf(name);
  if (!shape) return undefined;
  const texts = new Map(), keys = [], count = shape.components.length;
  for (const group of shape.groups) {
    const component = Math.max(shape.components.filter((begin) => begin <= group.at).length - 1, 0);
    let n = 0;
    const key = () => `${count - 1 - component} ${group.kind} ${n}`;
    while (texts.has(key())) n++;
    texts.set(key(), group.text);
    keys.push(key());
  }
  for (let i = 0; i < shape.last; i++) texts.set(`${count - 1 - i} ${COMPONENT} 0`, componentOf(shape, i));
  texts.set(`0 ${MODULE} 0`, module);
  return { name, module, shape, texts, keys, text: (key) => texts.get(key) || "" };
}

// The parts that may tell names apart, with a short text for each name: each that does so alone, the shortest first,
// and then all that differ.
function differencesOf(all) {
  const numbers = (key) => key.split(" ").map(Number);
  const compare = (a, b) => {
    const i = a.findIndex((value, at) => value !== b[at]);
    return i < 0 ? 0 : a[i] - b[i];
  };
  const keys = [...new Set(all.flatMap(({ texts }) => [...texts.keys()]))].sort((a, b) => compare(numbers(a), numbers(b)));
  const differing = new Map();
  for (const key of keys) {
    const texts = [...new Set(all.map((parts) => parts.text(key)))];
    if (texts.length > 1) differing.set(key, shortTexts(numbers(key)[1], texts));
  }
  const alone = [...differing].filter(([, texts]) => texts.size === all.length);
  const cost = ([key, texts]) => [numbers(key)[1] === MODULE ? 1 : 0, Math.max(...[...texts.values()].map(lengthOf))];
  alone.sort((a, b) => compare(cost(a), cost(b)));
  return differing.size ? [...alone.map((one) => new Map([one])), differing] : [];
}

// Without what all begin and end with: `<…int>` and `<…long>`.
function shortTexts(kind, texts) {
  const openerOf = (text) => {
    if (kind === TRAIT) return 4;
    return kind <= PARAMETERS && /[<([]/.test(text) ? text.search(/[<([]/) + 1 : undefined;
  };
  const innerOf = (text) => (openerOf(text) !== undefined && openerOf(text) <= text.length - 1 ? [...text.slice(openerOf(text), -1)] : undefined);
  const inners = texts.map(innerOf).filter((inner) => inner);
  const [before, behind] = inners.length === texts.length ? commonLetters(inners, true) : [0, 0];
  return new Map(texts.map((text) => {
    const inner = innerOf(text);
    if (!inner) return [text, text];
    let end = inner.length - behind;
    const count = (which) => inner.slice(before, end).filter((c) => which.includes(c)).length;
    while (end < inner.length && count("<(") > count(">)")) end++;
    const rest = inner.slice(end);
    const head = before > 1 ? "…" : inner.slice(0, before).join(""), tail = rest.every((c) => ">)] ".includes(c)) ? "" : "…";
    return [text, text.slice(0, openerOf(text)) + head + inner.slice(before, end).join("") + tail + text.slice(-1)];
  }));
}

// How many letters are the same at the begin and at the end of all; whole words where wished.
function commonLetters(texts, byWord) {
  const first = texts[0], shortest = Math.min(...texts.map((text) => text.length));
  const isWord = (letter) => byWord && isNameLetter(letter), fromEnd = (text, at) => text[text.length - 1 - at];
  let before = 0, behind = 0;
  while (before < shortest && texts.every((text) => text[before] === first[before])) before++;
  if (texts.some((text) => isWord(text[before]))) while (before > 0 && isWord(first[before - 1])) before--;
  while (behind < shortest - before && texts.every((text) => fromEnd(text, behind) === fromEnd(first, behind))) behind++;
  if (texts.some((text) => isWord(fromEnd(text, behind)))) while (behind > 0 && isWord(fromEnd(first, behind - 1))) behind--;
  return [before, behind];
}

// The longest form that has room and shows what is chosen.
function fitDifferences(parts, chosen, room) {
  const { name, module, shape } = parts, { components, last } = shape, count = components.length;
  const hasModule = [...chosen.keys()].some((key) => key.split(" ")[1] === String(MODULE));
  const fits = (form) => {
    if (lengthOf(form + module) <= room) return form + module;
    return !hasModule && lengthOf(form) <= room ? form : undefined;
  };
  const whole = (key) => (chosen.has(key) ? parts.text(key) : undefined);
  const short = (key) => (chosen.has(key) ? chosen.get(key).get(parts.text(key)) : undefined);
  const numbers = [...chosen.keys()].map((key) => count - 1 - Number(key.split(" ")[0])).filter((i) => i >= 0);
  const first = Math.min(last, numbers.length ? Math.min(...numbers) : 0);
  const forms = function* () {
    yield name;
    yield renderParts(parts, 0, count, whole, true);
    yield renderParts(parts, 0, count, whole, false);
    yield renderParts(parts, 0, count, short, true);
    for (let from = 0; from <= first; from++) yield renderParts(parts, from, count, short, false);
    // What differs is cut itself.
    const excess = (form) => Math.max(lengthOf(form) + (hasModule ? lengthOf(module) : 0) - room, 0);
    const cut = (form, least) => (key) => (short(key) === undefined ? undefined : cutGroup(short(key), excess(form), least));
    yield renderParts(parts, first, count, cut(renderParts(parts, first, count, short, false), FAIR_DIFFERENCE), false);
    const without = withoutMiddle(parts, first, short);
    yield without;
    yield withoutMiddle(parts, first, cut(without, LEAST_DIFFERENCE));
  };
  for (const form of forms()) if (fits(form) !== undefined) return fits(form);
  return fitName(name, room, 1);
}

// Some components with groups, of which all others are `<…>` and `(…)` where marked.
function renderParts({ shape, keys }, from, to, shown, isMarked) {
  const { plain, groups, components } = shape, begin = components[from], end = components[to - 1] + componentOf(shape, to - 1).length;
  // `const` alone would be read as a name.
  const isBehind = shown(`0 ${TAIL} 0`) !== undefined, added = [];
  groups.forEach((group, i) => {
    if (group.at < begin || group.at > end) return;
    let text = shown(keys[i]);
    if (text === undefined && (isMarked || (isBehind && group.kind === PARAMETERS))) text = markOf(group);
    if (text === undefined) return;
    if (group.opens !== undefined) added.push([Math.max(group.opens, begin), "<"]);
    added.push([group.at, text]);
  });
  added.sort((a, b) => a[0] - b[0]);
  let out = "", at = begin;
  for (const [place, text] of added) {
    out += plain.slice(at, place) + text;
    at = place;
  }
  return out + plain.slice(at, end);
}

// Components without a difference are left out between `first` and those that stay.
function withoutMiddle(parts, first, shown) {
  const { shape } = parts, { components, last } = shape;
  let out = "";
  for (let i = first; i < last; i++) {
    const text = shown(`${components.length - 1 - i} ${COMPONENT} 0`);
    const piece = renderParts(parts, i, i + 1, shown, false).replace(componentOf(shape, i), () => (text === undefined ? "…" : text));
    if (piece !== "…" || !out.endsWith("…::")) out += piece + "::";
  }
  return out + renderParts(parts, last, components.length, shown, false);
}

// Stands for a group that is left out where that is shorter.
function markOf({ kind, text }) {
  const mark = kind === ARGUMENTS && text.startsWith("<") ? "<…>" : kind === PARAMETERS ? "(…)" : undefined;
  return mark && lengthOf(text) <= mark.length ? text : mark;
}

// What differs, shorter by `excess` where `least` is left of it: its begin stays, and the brackets.
function cutGroup(text, excess, least) {
  const letters = [...text], keep = letters.length - excess;
  if (excess === 0 || keep < least) return text;
  const closer = />|\)|\]/.test(letters[letters.length - 1]) ? letters[letters.length - 1] : "";
  return letters.slice(0, keep - 1 - closer.length).join("") + "…" + closer;
}

// Texts that differ somewhere, cut around that.
function cutAround(texts, room) {
  const all = texts.map((text) => [...text]), [before, behind] = commonLetters(all, false);
  return all.map((text, i) => {
    const differs = text.slice(before, text.length - behind), rest = room - differs.length - 2;
    if (text.length <= room) return texts[i];
    if (rest < 0) return cutMiddle(texts[i], room);
    const head = Math.min(before, Math.floor((rest * 2) / 3)), tail = Math.min(behind, rest - head);
    return text.slice(0, head).join("") + (head < before ? "…" : "") + differs.join("") + (tail < behind ? "…" : "") + text.slice(text.length - tail).join("");
  });
}
