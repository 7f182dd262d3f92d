// A program for node whose change is said by its arguments: work.js [KIND AMOUNT].
// Equal units of parsing, sorting and string work; AMOUNT is spread evenly over them.
"use strict";

const crypto = require("crypto");
const fs = require("fs");
const os = require("os");
const path = require("path");
const { promisify } = require("util");
const zlib = require("zlib");

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

const data = Buffer.alloc(4096, "stack beat ");
function hash(count) {
  let length = 0;
  for (let i = 0; i < count; i++) length += crypto.createHash("sha256").update(data).digest().length;
  return length;
}

// Nobody ever notifies: each wait lasts its millisecond.
const never = new Int32Array(new SharedArrayBuffer(4));
function waitForNobody(count) {
  for (let i = 0; i < count; i++) Atomics.wait(never, 0, 0, 1);
}

// Compressed by a thread of the pool, while this one waits.
const deflate = promisify(zlib.deflate);
async function compressInPool(count) {
  for (let i = 0; i < count; i++) await deflate(data);
}

const pause = promisify(setTimeout);
async function waitForTimers(count) {
  for (let i = 0; i < count; i++) await pause(1);
}

// The first letters are beyond ASCII: where they belong only the language knows.
const rules = new Intl.Collator("sv");
const names = Array.from({ length: 16 }, (_, i) => "åäöéø"[i % 5] + ((i * 7919) % 10007) + "ö");
function sortByLocale(times) {
  for (let i = 0; i < times; i++) names.slice().sort(rules.compare);
}

// The whole file is on the disk before it gets the name that readers know.
const folder = fs.mkdtempSync(path.join(os.tmpdir(), "work-"));
function save(count) {
  for (let i = 0; i < count; i++) {
    const file = fs.openSync(path.join(folder, "next"), "w");
    fs.writeSync(file, document);
    fs.fsyncSync(file);
    fs.closeSync(file);
    fs.renameSync(path.join(folder, "next"), path.join(folder, "rows.json"));
  }
}

// What is handed out may be changed by who gets it.
let rows = null;
function cloneRows(times) {
  if (times) rows ??= JSON.parse(document);
  for (let i = 0; i < times; i++) structuredClone(rows);
}

// A message of 64 KiB, each in memory of its own.
function writeMessages(count) {
  for (let i = 0; i < count; i++) Buffer.alloc(65536).write(document);
}

async function main() {
  let result = 0;
  for (let unit = 0; unit < UNITS; unit++) {
    for (let i = 0; i < 6; i++) result += parse();
    result += sort();
    const amount = share(unit);
    if (KIND === "parsed-again") for (let i = 0; i < amount; i++) parse();
    if (KIND === "hashes") hash(amount);
    if (KIND === "waits-for-nobody") waitForNobody(amount);
    if (KIND === "pool-compression") await compressInPool(amount);
    if (KIND === "timers") await waitForTimers(amount);
    if (KIND === "sorted-by-locale") sortByLocale(amount);
    if (KIND === "atomic-saves") save(amount);
    if (KIND === "structured-clones") cloneRows(amount);
    if (KIND === "new-buffers") writeMessages(amount);
    if (KIND === "garbage") result += garbage(amount) * 0;
  }
  console.log(result);
  fs.rmSync(folder, { recursive: true });
}

main();
