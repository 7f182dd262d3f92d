// `receive` waits for a pipe into which `feed` of a worker thread writes late.
const { Worker, isMainThread, workerData } = require('worker_threads');
const fs = require('fs');

function feed(sink) {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20);
    fs.writeSync(sink, 'x'); // WAKER
}

function receive(source) {
    const begin = performance.now();
    fs.readSync(source, Buffer.alloc(1), 0, 1, null); // CAUSE
    return performance.now() - begin;
}

if (isMainThread) {
    const path = `${require('os').tmpdir()}/fifo-${process.pid}`;
    require('child_process').execFileSync('mkfifo', [path]);
    const both = fs.openSync(path, 'r+');
    const worker = new Worker(__filename, { workerData: both });
    worker.on('online', () => {
        let waited = 0;
        for (let i = 0; i < 100; i++)
            waited += receive(both);
        fs.unlinkSync(path);
        console.log(JSON.stringify({ wait_s: waited / 1000 }));
    });
} else {
    for (let i = 0; i < 100; i++)
        feed(workerData);
}
