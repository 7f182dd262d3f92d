// Names of functions for little room, in pages and pictures.

// A function's name for little room, as `stackbeat_symbolize::short_names::fit` makes it: see there for the rules.
function fitName(name, width, charWidth) {
  const room = Math.floor(width / charWidth);
  if (room < 3) return "";
  if (lengthOf(name) <= room) return name;
  const [body, module] = withoutModule(name);
  const forms = shorterNames(body);
  const withModule = forms.slice(0, forms.qualified).find((form) => lengthOf(form) + lengthOf(module) <= room);
  if (withModule !== undefined) return withModule + module;
  const fitting = forms.find((form) => lengthOf(form) <= room);
  return fitting !== undefined ? fitting : cutMiddle(forms[forms.length - 1], room);
}

// As Rust counts, and not in halves of characters.
const lengthOf = (text) => (/[\ud800-\udfff]/.test(text) ? [...text].length : text.length);

function cutMiddle(text, room) {
  const letters = [...text], head = Math.floor(((room - 1) * 2) / 3);
  return letters.slice(0, head).join("") + "…" + letters.slice(letters.length - (room - 1 - head)).join("");
}

function withoutModule(name) {
  const at = name.endsWith("]") ? name.lastIndexOf("  [") : -1;
  return at > 0 ? [name.slice(0, at), name.slice(at)] : [name, ""];
}

const shorterNamesKnown = new Map();

// All forms of a name, each shorter than the one before. `qualified` of them have all namespaces.
function shorterNames(name) {
  let forms = shorterNamesKnown.get(name);
  if (forms) return forms;
  forms = [name];
  forms.qualified = 1;
  shorterNamesKnown.set(name, forms);
  const add = (form) => { if (lengthOf(form) < lengthOf(forms[forms.length - 1])) forms.push(form); };
  const shape = shapeOf(name);
  if (!shape) return forms;
  const { plain, components, last } = shape;
  add(name.slice(0, shape.body) + shape.stub);
  add(plain);
  forms.qualified = forms.length;
  for (let from = 1; from <= last; from++) add(plain.slice(components[from]));
  const closure = (part) => (part.includes("#") ? "{" + part.slice(part.lastIndexOf("#")) : "{…}");
  add(components.slice(last).map((_, i) => componentOf(shape, last + i)).map((part) => (part.startsWith("{") ? closure(part) : part)).join("::"));
  return forms;
}

// Kinds of what may be left out of a name: see `Kind` of `short_names/shape.rs`.
const ARGUMENTS = 0, TRAIT = 1, INNER = 2, PARAMETERS = 3, TAIL = 4, MODULE = 5, COMPONENT = 6;

// What a name consists of: the plain name, where its components begin, and the groups left out of it.
function shapeOf(name) {
  if (name.length > 8192) return undefined;
  const brackets = bracketsOf(name);
  if (brackets.depth > 64) return undefined;
  const stub = name.endsWith("@plt") ? "@plt" : "", before = name.slice(0, name.length - stub.length);
  const [body, end] = parametersOf(before, brackets), groups = [];
  let plain = plainName(name, brackets, 0, body, "", groups);
  if (body < end) groups.push({ at: plain.length, kind: PARAMETERS, text: name.slice(body, end) });
  if (end < before.length) groups.push({ at: plain.length, kind: TAIL, text: before.slice(end) });
  plain += stub;
  const shape = { plain, groups, body, stub, components: partBegins(plain) };
  let last = shape.components.length - 1;
  const saysNothing = (part) => part.startsWith("{") || part.startsWith("'lambda") || part === "operator()";
  while (last >= 0 && saysNothing(componentOf(shape, last))) last--;
  return { ...shape, last: Math.max(last, 0) };
}

function componentOf({ plain, components }, i) {
  return i + 1 < components.length ? plain.slice(components[i], components[i + 1]).replace(/:+$/, "") : plain.slice(components[i]);
}

const OPERATOR = /operator(?![\w$\u0080-\uffff])(?: *(?:new\[\]|delete\[\]|co_await(?![\w$\u0080-\uffff])|delete(?![\w$\u0080-\uffff])|new(?![\w$\u0080-\uffff])|<=>|<<=|>>=|->\*|\(\)|\[\]|""|<<|>>|<=|>=|->|==|!=|&&|\|\||\+\+|--|\+=|-=|\*=|\/=|%=|&=|\|=|\^=|[<>=!+\-*\/%&|^]))?/y;
const isNameLetter = (letter) => letter !== undefined && /[\w$\u0080-\uffff]/.test(letter);

// Which bracket closes which, and where names of operators end.
function bracketsOf(name) {
  const partner = new Map(), operators = new Map(), open = [];
  let depth = 0;
  const close = (at) => { const begin = open.pop(); partner.set(begin, at); partner.set(at, begin); };
  for (let at = 0; at < name.length; at++) {
    OPERATOR.lastIndex = at;
    const operator = name[at] === "o" && !isNameLetter(name[at - 1]) && OPERATOR.exec(name);
    if (operator) {
      operators.set(at, at + operator[0].length);
      at += operator[0].length - 1;
      continue;
    }
    const letter = name[at];
    if ("([{<".includes(letter)) {
      open.push(at);
      depth = Math.max(depth, open.length);
    } else if (letter === ">") {
      if (name[at - 1] !== "-" && name[at - 1] !== "=" && open.length && name[open[open.length - 1]] === "<") close(at);
    } else if (")]}".includes(letter)) {
      let place = open.length - 1;
      while (place >= 0 && name[open[place]] === "<") place--;
      if (place >= 0 && name[open[place]] === { ")": "(", "]": "[", "}": "{" }[letter]) {
        open.length = place + 1;
        close(at);
      }
    }
  }
  return { depth, partner: (at) => partner.get(at), operatorEnd: (at) => operators.get(at) };
}

// Where the parameters begin and end.
function parametersOf(name, brackets) {
  let end = name.length;
  for (let clone; (clone = / \[clone [^\]]*\]$| \(\.[^)]*\)$/.exec(name.slice(0, end))); ) end = clone.index;
  let text = name.slice(0, end).trimEnd();
  for (let shorter; (shorter = text.replace(/(?: const| volatile| noexcept|&)$/, "").trimEnd()) !== text; ) text = shorter;
  const at = text.endsWith(")") ? brackets.partner(text.length - 1) : undefined;
  if (!(at > 0)) return [end, end];
  const before = name.slice(0, at).trimEnd(), operator = before.lastIndexOf("operator");
  const behind = before[before.length - 1];
  const isParameters = isNameLetter(behind) || (behind !== undefined && ">}]'".includes(behind)) || (operator >= 0 && brackets.operatorEnd(operator) !== undefined);
  return isParameters ? [before.length, text.length] : [end, end];
}

// Adds a name to `base` without template arguments and the parameters of outer functions, and those to `groups`.
function plainName(name, brackets, begin, end, base, groups) {
  let out = "", at = begin;
  const closeOf = (from) => { const close = brackets.partner(from); return close > from && close < end ? close : undefined; };
  const leaveOut = (kind, from, to) => {
    if (from < to) groups.push({ at: base.length + out.length, kind, text: name.slice(from, to) });
    at = to;
  };
  const inside = (from, to) => { out += plainName(name, brackets, from, to, base + out, groups); };
  while (at < end) {
    const operatorEnd = brackets.operatorEnd(at);
    if (operatorEnd !== undefined) {
      out += name.slice(at, Math.min(operatorEnd, end));
      at = Math.min(operatorEnd, end);
      const open = name[at] === " " && name[at + 1] === "<" && at + 1 < end ? at + 1 : at;
      if (name[open] === "<" && closeOf(open) !== undefined) leaveOut(ARGUMENTS, at, closeOf(open) + 1);
      else at = open;
      continue;
    }
    const letter = name[at], close = closeOf(at), last = out[out.length - 1];
    const isBehind = isNameLetter(last) || (last !== undefined && ")}>".includes(last));
    if (close === undefined) {
      out += letter;
      at++;
    } else if (letter === "<" && isBehind) leaveOut(ARGUMENTS, at, close + 1);
    else if (letter === "<" && out.endsWith("::")) {
      out = out.slice(0, -2);
      leaveOut(ARGUMENTS, at - 2, close + 1);
    } else if (letter === "<" && name.slice(close + 1, end).startsWith("::")) {
      const [from, asAt] = ownerOf(name, brackets, at + 1, close), opens = base.length + out.length;
      inside(from, asAt);
      if (asAt < close) {
        leaveOut(TRAIT, asAt, close + 1);
        groups[groups.length - 1].opens = opens;
      }
      at = close + 1;
    } else if (letter === "(" && isBehind) {
      const rest = name.slice(close + 1, end), next = rest.includes("::") ? rest.indexOf("::") : rest.length;
      const qualifiers = ["const", "volatile", "const volatile", "&", "&&", "const&", "const &", "const&&"];
      leaveOut(INNER, at, close + 1);
      leaveOut(TAIL, at, at + (qualifiers.includes(rest.slice(0, next).trim()) ? next : 0));
    } else if (letter === "[" && isBehind) leaveOut(ARGUMENTS, at, close + 1);
    else if (letter === "{" && name[at + 1] === "{" && close > at + 3) {
      inside(at + 1, close);
      at = close + 1;
    } else if (letter === "{") {
      out += "{";
      inside(at + 1, close);
      out += "}";
      at = close + 1;
    } else {
      out += name.slice(at, close + 1);
      at = close + 1;
    }
  }
  return out;
}

// Where the type begins and ends in Rust's `<Type as Trait>`.
function ownerOf(name, brackets, begin, end) {
  let at = begin;
  while (at < end && !name.startsWith(" as ", at)) {
    const close = brackets.partner(at);
    at = close > at && close < end ? close + 1 : at + 1;
  }
  const asAt = Math.min(at, end);
  let from = begin;
  for (const prefix of ["&", "mut ", "dyn "]) if (name.slice(from, asAt).startsWith(prefix)) from += prefix.length;
  return [from, asAt];
}

// Where the parts between `::` begin.
function partBegins(name) {
  const brackets = bracketsOf(name), parts = [];
  let from = 0;
  for (let at = 0; at < name.length; ) {
    const operatorEnd = brackets.operatorEnd(at), close = brackets.partner(at);
    if (operatorEnd !== undefined) {
      at = operatorEnd;
      if (name[at] === " ") break;
    } else if (close > at) at = close + 1;
    else if (name.startsWith("::", at)) {
      if (at > from) parts.push(from);
      from = at += 2;
    } else at++;
  }
  if (from < name.length || parts.length === 0) parts.push(from);
  return parts;
}
