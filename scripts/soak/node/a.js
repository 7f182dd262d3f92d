const { Worker, isMainThread, workerData, parentPort } = require('worker_threads'), fs = require('fs'), { execFileSync } = require('child_process');
function deep(n) { return 1 + deep(n + 1); }
function work(n) { let s = 0; try { deep(0) } catch (e) { s++ } for (let i = 0; i < 3e5; i++) s += JSON.stringify({ i: i % 10, n }).length; return s; }
if (!isMainThread) parentPort.postMessage(work(workerData)); else (async () => {
  console.log(work(0)); console.log(await Promise.all([1, 2, 3].map(n => new Promise((y, no) => new Worker(__filename, { workerData: n }).on('message', y).on('error', no)))));
  for (let i = 0; i < 50; i++) { await fs.promises.writeFile('f' + i % 5, 'x'.repeat(i * 1000)); await new Promise(y => setTimeout(y, 3)); }
  console.log(fs.statSync('f4').size, execFileSync('echo', ['child']).toString(), require('crypto').pbkdf2Sync('a', 'b', 50000, 32, 'sha256').toString('hex'), require('zlib').gzipSync('x'.repeat(1e6)).length); })();
