// A program for node whose change is said by its arguments: work.js [KIND AMOUNT].
// Equal units of parsing, sorting and string work; AMOUNT is spread evenly over them.
"use strict";

const UNITS = 180;
const KIND = process.argv[2] || "none";
const AMOUNT = Number(process.argv[3] || 0);

const share = (unit) =>
  Math.floor((AMOUNT * (unit + 1)) / UNITS) - Math.floor((AMOUNT * unit) / UNITS);

const document = JSON.stringify(
  Array.from({ length: 200 }, (_, id) => ({ id, name: "row " + id, tags: [id, id + 1, id + 2] })),
);

function parse() {
  return JSON.parse(document).length;
}

function sort() {
  const words = [];
  for (let i = 0; i < 1500; i++) words.push(String((i * 7919) % 10007));
  return words.sort()[700].length;
}

function garbage(count) {
  let kept = null;
  for (let i = 0; i < count; i++) kept = { before: i % 64 ? kept : null, block: new Array(64).fill(i) };
  return kept ? 1 : 0;
}

let result = 0;
for (let unit = 0; unit < UNITS; unit++) {
  for (let i = 0; i < 6; i++) result += parse();
  result += sort();
  const amount = share(unit);
  if (KIND === "parsed-again") for (let i = 0; i < amount; i++) parse();
  if (KIND === "garbage") result += garbage(amount) * 0;
}
console.log(result);
