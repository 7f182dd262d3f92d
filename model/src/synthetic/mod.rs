//! Makes traces without a recording: for the tests of everything that reads traces, and as the sample
//! of the format's first version that `tests/` keeps.

mod builder;
mod large;
mod wire;

use std::io;
use std::path::Path;

use stackbeat_core::probe::Probe;

pub use builder::{
    AWAITING, Builder, LEAF_PC, MANAGED, MANAGED_AWAITING, MANAGED_INLINED, MANAGED_INTERPRETED,
    NATIVE, Name, ROOT, Script, TRUNCATED,
};
pub use large::Program;
pub use wire::Message;

const MS: u64 = 1_000_000;
const START: u64 = 5_000 * MS;
const SERVER: &str = "/usr/bin/server";
const LIBC: &str = "/usr/lib/x86_64-linux-gnu/libc.so.6";

const MAIN: u64 = 0x5500_0000_1100;
const LOOP: u64 = 0x5500_0000_1200;
const HANDLE: u64 = 0x5500_0000_1300;
const PARSE: u64 = 0x5500_0000_1400;
const PARSE_PC: u64 = 0x5500_0000_1410;
const RENDER: u64 = 0x5500_0000_1500;
const UNNAMED: u64 = 0x5500_0000_9990;
const WORKER: u64 = 0x5500_0000_2100;
const COMPUTE_PC: u64 = 0x5500_0000_2200;
const STORE: u64 = 0x5500_0000_2300;
const START_THREAD: u64 = 0x7f00_0000_3000;
const JIT: u64 = 0x7e00_0000_0040;

/// A small server: 2 processes, 5 threads, 200 ms at 1 ms, with inlined frames, a blocking call of each
/// cause, a gap, a loss, truncated stacks, code without symbols and a counter.
pub fn realistic() -> Vec<u8> {
    let mut b = Builder::new(MS, &["server", "--port", "80"], START);
    b.process(1, 4000, 0, START, SERVER);
    for process in [1, 2] {
        b.module(process, SERVER, 0x5500_0000_0000, 0x5500_0001_0000);
        b.module(process, LIBC, 0x7f00_0000_0000, 0x7f00_0020_0000);
    }
    let mut samples = 0;
    let mut threads = vec![
        (server_main(&mut b), 1, 4000, "server"),
        (worker(&mut b, 2), 1, 4001, "worker-1"),
        (worker(&mut b, 3), 1, 4002, "worker-2"),
        (logger(&mut b), 1, 4003, "logger"),
    ];
    b.process(2, 4010, 1, START + 20 * MS, SERVER);
    threads.push((helper(&mut b), 2, 5000, "server"));
    for (script, process, tid, name) in &mut threads {
        b.thread(script.utid, *process, *tid, name, script.start_ns);
        samples += script.rows.len() as u64;
        script.flush(&mut b);
    }
    let end = threads.iter().map(|(script, ..)| script.now_ns).max();
    let end = end.unwrap_or(START) + MS / 2;
    for (script, process, ..) in &threads {
        if *process == 2 || script.utid != 3 {
            b.thread_end(script.utid, script.now_ns, &script.totals, script.written);
        }
    }
    b.process_end(2, START + 90 * MS, None);
    b.process_end(1, end, Some(0));
    b.drops(2, 1, 40);
    b.drops(3, 5, 2);
    let values: Vec<(u64, u64)> = (0..20)
        .map(|i| (START + i * 10 * MS, 1000 + i * i))
        .collect();
    b.counter(1, "resident memory", "KiB", &values);
    b.mark(1, START + 50 * MS, "cache filled", 42);
    name_addresses(&mut b);
    b.finish(end, samples)
}

/// A Python program: native, managed, native and managed frames above each other, in one thread. Of its 40 ms
/// on the CPU 10 are in line 31 of `Page.render`, 10 in line 33 (`escape`, compiled into it, line 52), 10 in
/// a method that is not known, and 10 in `Page.render` at a position that is not known.
pub fn managed() -> Vec<u8> {
    let mut b = Builder::new(MS, &["python3", "app.py"], START);
    b.process(1, 4000, 0, START, SERVER);
    b.module(1, SERVER, 0x5500_0000_0000, 0x5500_0001_0000);
    b.thread(1, 1, 4000, "python3", START);
    // Two entries of a line table that say of no line come first and last.
    let handle = [(0, 0), (4, 10), (16, 12), (40, 0)];
    b.method(1, "handle.<locals>.answer", "/srv/app.py", 9, &handle);
    b.method(
        2,
        "Page.render",
        "/srv/page.py",
        30,
        &[(0, 30), (6, 31), (20, 33)],
    );
    b.method(3, "escape", "/srv/text.py", 50, &[(0, 52)]);
    let at = |number: u64, position: u64, kind| (number << 32 | position, kind);
    let below = |b: &mut Builder, inner: &[(u64, u64)]| {
        let outer = [
            (MAIN, NATIVE),
            at(1, 18, MANAGED_INTERPRETED),
            (HANDLE, NATIVE),
        ];
        b.mixed_stack(1, &[&outer[..], inner].concat())
    };
    let stacks = [
        below(&mut b, &[at(2, 6, MANAGED_INTERPRETED)]),
        below(&mut b, &[at(2, 24, MANAGED), at(3, 8, MANAGED_INLINED)]),
        below(&mut b, &[at(77, 2, MANAGED_INTERPRETED)]),
        below(&mut b, &[at(2, u32::MAX.into(), MANAGED)]),
    ];
    let mut t = Script::new(1, START);
    t.run(stacks[0], 0, Probe::Running);
    for stack in stacks {
        for _ in 0..10 {
            t.run(stack, MS, Probe::Running);
        }
    }
    let samples = t.rows.len() as u64;
    t.flush(&mut b);
    b.thread_end(1, t.now_ns, &t.totals, t.written);
    b.process_end(1, t.now_ns, Some(0));
    name_addresses(&mut b);
    b.finish(t.now_ns, samples)
}

/// Writes [`realistic`] to a file.
pub fn write_realistic(path: &Path) -> io::Result<()> {
    std::fs::write(path, realistic())
}

fn server_main(b: &mut Builder) -> Script {
    let mut t = Script::new(1, START);
    let poll = b.stack(1, &[MAIN, LOOP], NATIVE);
    let parse_alloc = b.stack(1, &[MAIN, LOOP, HANDLE, PARSE], NATIVE);
    let parse_pc = b.stack(1, &[MAIN, LOOP, HANDLE, PARSE_PC], LEAF_PC);
    let render = b.stack(1, &[MAIN, LOOP, HANDLE, RENDER, UNNAMED], NATIVE);
    let send = b.stack(1, &[MAIN, LOOP, HANDLE], NATIVE);
    t.run(poll, 40_000, Probe::ThreadStart);
    for request in 0..20 {
        t.block(poll, Probe::EpollWait, 4 * MS + request * 10_000, (5, 1));
        t.run(parse_alloc, 700_000, Probe::Malloc);
        t.run(parse_pc, MS, Probe::Running);
        t.run(parse_pc, MS + 30_000, Probe::Running);
        t.totals.minor_faults += 4;
        t.run(render, 900_000, Probe::Malloc);
        t.block(send, Probe::Send, 150_000, (9, 1400));
    }
    t.block(poll, Probe::ThreadJoin, 12 * MS, (4001, 0));
    t.block(poll, Probe::Wait, 3 * MS, (4010, 4010));
    t
}

fn worker(b: &mut Builder, utid: u64) -> Script {
    let mut t = Script::new(utid, START + utid * MS);
    let top = b.stack(1, &[START_THREAD, WORKER], NATIVE);
    let compute = b.stack(1, &[START_THREAD, WORKER, COMPUTE_PC], LEAF_PC);
    let store = b.stack(1, &[START_THREAD, WORKER, STORE], NATIVE);
    let cut = b.stack(1, &[0, STORE], NATIVE);
    let jit = b.stack(1, &[0, JIT], LEAF_PC);
    t.run(top, 30_000, Probe::ThreadStart);
    for round in 0..12 {
        t.block(top, Probe::CondWait, 2 * MS, (0x7ffe_0000_1000, 0));
        for _ in 0..4 {
            t.run(compute, MS + 20_000, Probe::Running);
        }
        t.block(store, Probe::MutexLock, MS / 2, (0x7ffe_0000_2000, 0))
            .waker_tid = Some(4003 - (utid as u32 - 2));
        t.run(store, 300_000, Probe::Malloc);
        if round == 5 {
            t.run(cut, 400_000, Probe::Malloc);
            t.run(jit, 800_000, Probe::Running);
        }
        if round == 8 && utid == 2 {
            t.lose(40);
            t.totals.cpu_ns += 8 * MS;
            t.vanish(8 * MS);
        }
        t.block(store, Probe::Fsync, 700_000, (7, 0));
    }
    t
}

fn logger(b: &mut Builder) -> Script {
    let mut t = Script::new(4, START + MS);
    let top = b.stack(1, &[START_THREAD, WORKER], NATIVE);
    let store = b.stack(1, &[START_THREAD, WORKER, STORE], NATIVE);
    t.run(top, 20_000, Probe::ThreadStart);
    for i in 0..8 {
        t.block(top, Probe::Nanosleep, 10 * MS, (0, 0));
        t.run(store, 200_000, Probe::Malloc);
        t.block(store, Probe::Write, 90_000, (2, 120));
        if i == 3 {
            t.vanish(30 * MS);
        }
    }
    t.block(store, Probe::BlockedOutside, 6 * MS, (0, 0));
    t
}

fn helper(b: &mut Builder) -> Script {
    let mut t = Script::new(5, START + 20 * MS);
    let compute = b.stack(2, &[MAIN, COMPUTE_PC], LEAF_PC);
    let top = b.stack(2, &[MAIN], NATIVE);
    for _ in 0..60 {
        t.run(compute, MS, Probe::Running);
    }
    t.block(top, Probe::Read, 2 * MS, (0, 512));
    t
}

fn name_addresses(b: &mut Builder) {
    let name = |function, file, defined, line| Name {
        function,
        file,
        defined,
        line,
    };
    let main = name("main", "server.c", 10, 22);
    let handle = name("handle_request", "server.c", 60, 71);
    for process in [1, 2] {
        b.symbol(process, MAIN, NATIVE, SERVER, &[main]);
    }
    let event_loop = name("event_loop", "server.c", 30, 41);
    b.symbol(1, LOOP, NATIVE, SERVER, &[event_loop]);
    b.symbol(1, HANDLE, NATIVE, SERVER, &[handle]);
    for (address, kind, line) in [(PARSE, NATIVE, 98), (PARSE_PC, LEAF_PC, 102)] {
        let parse = name("parse_json", "json.c", 80, line);
        let token = name("next_token", "json.c", 12, line - 80);
        b.symbol(1, address, kind, SERVER, &[parse, token]);
    }
    let render = name("render<Page>", "page.cc", 5, 9);
    b.symbol(1, RENDER, NATIVE, SERVER, &[render]);
    let worker = name("worker_main", "worker.c", 20, 35);
    b.symbol(1, WORKER, NATIVE, SERVER, &[worker]);
    for process in [1, 2] {
        let compute = name("compute", "worker.c", 40, 44);
        b.symbol(process, COMPUTE_PC, LEAF_PC, SERVER, &[compute]);
    }
    b.symbol(
        1,
        STORE,
        NATIVE,
        SERVER,
        &[name("store", "worker.c", 60, 66)],
    );
    b.symbol(
        1,
        START_THREAD,
        NATIVE,
        LIBC,
        &[name("start_thread", "", 0, 0)],
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message as _;

    #[test]
    fn the_generated_reader_understands_the_writer() {
        let bytes = realistic();
        let trace = stackbeat_proto::v1::Trace::decode(&bytes[..]).expect("valid protobuf");
        let mut again = Vec::new();
        for packet in &trace.packet {
            stackbeat_proto::stream::write_packet(packet, &mut again);
        }
        let second = stackbeat_proto::v1::Trace::decode(&again[..]).expect("valid protobuf");
        assert_eq!(trace, second);
        // Nothing fell among the unknown fields, which decoding drops without a word.
        let lost = bytes.len() as i64 - again.len() as i64;
        assert!(lost.unsigned_abs() < bytes.len() as u64 / 20, "{lost}");
    }
}
