// Names of functions for little room, in pages and pictures.

// A function's name for little room, as `stackbeat_symbolize::short_names::fit` makes it: see there for the rules.
function fitName(name, width, charWidth) {
  const room = Math.floor(width / charWidth);
  if (room < 3) return "";
  if (name.length <= room) return name;
  const at = name.endsWith("]") ? name.lastIndexOf("  [") : -1;
  const [body, module] = at > 0 ? [name.slice(0, at), name.slice(at)] : [name, ""];
  const forms = shorterNames(body);
  const withModule = forms.slice(0, forms.qualified).find((form) => form.length + module.length <= room);
  if (withModule !== undefined) return withModule + module;
  const fitting = forms.find((form) => form.length <= room);
  if (fitting !== undefined) return fitting;
  const shortest = forms[forms.length - 1], head = Math.floor(((room - 1) * 2) / 3);
  return shortest.slice(0, head) + "…" + shortest.slice(shortest.length - (room - 1 - head));
}

const shorterNamesKnown = new Map();

// All forms of a name, each shorter than the one before. `qualified` of them have all namespaces.
function shorterNames(name) {
  let forms = shorterNamesKnown.get(name);
  if (forms) return forms;
  forms = [name];
  forms.qualified = 1;
  shorterNamesKnown.set(name, forms);
  const brackets = bracketsOf(name);
  if (name.length > 8192 || brackets.depth > 64) return forms;
  const add = (form) => { if (form.length < forms[forms.length - 1].length) forms.push(form); };
  const stub = name.endsWith("@plt") ? "@plt" : "";
  const body = name.slice(0, beforeParameters(name.slice(0, name.length - stub.length), brackets));
  add(body + stub);
  const plain = plainName(name, brackets, 0, body.length);
  add(plain + stub);
  forms.qualified = forms.length;
  const parts = nameParts(plain);
  let last = parts.length - 1;
  while (last >= 0 && (parts[last].startsWith("{") || parts[last].startsWith("'lambda") || parts[last] === "operator()")) last--;
  last = Math.max(last, 0);
  for (let from = 1; from <= last; from++) add(parts.slice(from).join("::") + stub);
  add(parts.slice(last).map((part) => (part.startsWith("{") ? "{…}" : part)).join("::") + stub);
  return forms;
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

// Where the parameters begin, with what stands behind them.
function beforeParameters(name, brackets) {
  let end = name.length;
  while (name.slice(0, end).endsWith("]") && name.slice(0, end).lastIndexOf(" [clone ") >= 0) end = name.slice(0, end).lastIndexOf(" [clone ");
  let text = name.slice(0, end).trimEnd();
  for (let shorter; (shorter = text.replace(/(?: const| volatile| noexcept|&)$/, "").trimEnd()) !== text; ) text = shorter;
  const at = text.endsWith(")") ? brackets.partner(text.length - 1) : undefined;
  if (!(at > 0)) return end;
  const before = name.slice(0, at).trimEnd(), operator = before.lastIndexOf("operator");
  const behind = before[before.length - 1];
  const isParameters = isNameLetter(behind) || (behind !== undefined && ">}]'".includes(behind)) || (operator >= 0 && brackets.operatorEnd(operator) !== undefined);
  return isParameters ? before.length : end;
}

// A name without template arguments and the parameters of outer functions.
function plainName(name, brackets, begin, end) {
  let out = "", at = begin;
  const closeOf = (from) => { const close = brackets.partner(from); return close > from && close < end ? close : undefined; };
  while (at < end) {
    const operatorEnd = brackets.operatorEnd(at);
    if (operatorEnd !== undefined) {
      out += name.slice(at, Math.min(operatorEnd, end));
      at = Math.min(operatorEnd, end);
      if (name[at] === " " && name[at + 1] === "<" && at + 1 < end) at++;
      if (name[at] === "<" && closeOf(at) !== undefined) at = closeOf(at) + 1;
      continue;
    }
    const letter = name[at], close = closeOf(at), last = out[out.length - 1];
    const isBehind = isNameLetter(last) || (last !== undefined && ")}>".includes(last));
    if (close === undefined) {
      out += letter;
      at++;
    } else if (letter === "<" && isBehind) at = close + 1;
    else if (letter === "<" && out.endsWith("::")) {
      out = out.slice(0, -2);
      at = close + 1;
    } else if (letter === "<" && name.slice(close + 1, end).startsWith("::")) {
      out += ownerOf(name, brackets, at + 1, close);
      at = close + 1;
    } else if (letter === "(" && isBehind) {
      const rest = name.slice(close + 1, end), next = rest.includes("::") ? rest.indexOf("::") : rest.length;
      const qualifiers = ["const", "volatile", "const volatile", "&", "&&", "const&", "const &", "const&&"];
      at = close + 1 + (qualifiers.includes(rest.slice(0, next).trim()) ? next : 0);
    } else if (letter === "[" && isBehind) at = close + 1;
    else if (letter === "{" && name[at + 1] === "{" && close > at + 3) {
      out += plainName(name, brackets, at + 1, close);
      at = close + 1;
    } else if (letter === "{") {
      out += "{" + plainName(name, brackets, at + 1, close) + "}";
      at = close + 1;
    } else {
      out += name.slice(at, close + 1);
      at = close + 1;
    }
  }
  return out;
}

// The type in Rust's `<Type as Trait>`.
function ownerOf(name, brackets, begin, end) {
  let at = begin;
  while (at < end && !name.startsWith(" as ", at)) {
    const close = brackets.partner(at);
    at = close > at && close < end ? close + 1 : at + 1;
  }
  const asAt = Math.min(at, end);
  let from = begin;
  for (const prefix of ["&", "mut ", "dyn "]) if (name.slice(from, asAt).startsWith(prefix)) from += prefix.length;
  return plainName(name, brackets, from, asAt);
}

// The parts between `::`.
function nameParts(name) {
  const brackets = bracketsOf(name), parts = [];
  let from = 0;
  for (let at = 0; at < name.length; ) {
    const operatorEnd = brackets.operatorEnd(at), close = brackets.partner(at);
    if (operatorEnd !== undefined) {
      at = operatorEnd;
      if (name[at] === " ") break;
    } else if (close > at) at = close + 1;
    else if (name.startsWith("::", at)) {
      if (at > from) parts.push(name.slice(from, at));
      from = at += 2;
    } else at++;
  }
  if (from < name.length || parts.length === 0) parts.push(name.slice(from));
  return parts;
}
