// viewer.mjs svg|speedscope FILE OUT.png: opens an export in Chromium and takes a picture. Exits 1 when the
// page reports an error or shows nothing. Needs npm's playwright-core, and speedscope for its export.
import { chromium } from "playwright-core";
import fs from "node:fs";
import http from "node:http";
import os from "node:os";
import path from "node:path";

const [kind, file, picture] = process.argv.slice(2);
const pages = kind === "speedscope" ? "node_modules/speedscope/dist/release" : ".";
const types = { ".js": "text/javascript", ".html": "text/html", ".css": "text/css", ".svg": "image/svg+xml", ".json": "application/json" };
const server = http.createServer((request, response) => {
  const name = decodeURIComponent(new URL(request.url, "http://x").pathname);
  const found = name === "/" + path.basename(file) ? file : path.join(pages, name);
  if (!fs.existsSync(found) || fs.statSync(found).isDirectory()) return response.writeHead(404).end();
  response.writeHead(200, { "content-type": types[path.extname(found)] ?? "application/octet-stream" });
  fs.createReadStream(found).pipe(response);
});
await new Promise((done) => server.listen(0, "127.0.0.1", done));
const base = `http://127.0.0.1:${server.address().port}`;

const profile = fs.mkdtempSync(path.join(os.tmpdir(), "viewer-"));
const browser = await chromium.launchPersistentContext(profile, {
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  viewport: { width: 1300, height: 900 },
  args: ["--no-sandbox", "--disable-gpu"],
});
const errors = [];
const page = await browser.newPage();
page.on("pageerror", (error) => errors.push(error.message));
// speedscope warns there of events that do not nest, and draws what is left. WebGL's own say how fast drawing is.
page.on("console", (message) => {
  const text = message.text();
  if (["warning", "error"].includes(message.type()) && !text.startsWith("[.WebGL")) errors.push(text);
});
const target = "/" + path.basename(file);
if (kind === "speedscope") {
  await page.goto(`${base}/index.html#profileURL=${encodeURIComponent(base + target)}`);
  // Once a profile is loaded, its name is the title.
  await page.waitForFunction(() => document.title !== "speedscope", null, { timeout: 60000 });
  await page.waitForTimeout(1000);
  console.log("speedscope:", await page.title());
} else {
  await page.goto(base + target);
  const boxes = await page.evaluate(() => document.querySelectorAll("g.f").length);
  if (boxes === 0) errors.push("no boxes");
  // Zoom into a box in the middle of the picture, and look for everything.
  await page.evaluate(() => {
    const boxes = [...document.querySelectorAll("g.f")].filter((box) => box.dataset.d === "3");
    window.prompt = () => ".";
    document.getElementById("search").dispatchEvent(new MouseEvent("click"));
    boxes[boxes.length >> 1]?.dispatchEvent(new MouseEvent("click"));
  });
  const matched = await page.textContent("#matched");
  if (matched !== "matched: 100.00%") errors.push(`search: ${matched}`);
  console.log("boxes:", boxes, matched);
  await page.evaluate(() => document.getElementById("search").dispatchEvent(new MouseEvent("click")));
}
await page.screenshot({ path: picture });
await browser.close();
server.close();
fs.rmSync(profile, { recursive: true, force: true });
for (const error of errors.slice(0, 10)) console.error("error:", error);
if (errors.length > 10) console.error(`error: and ${errors.length - 10} more`);
process.exitCode = errors.length ? 1 : 0;
