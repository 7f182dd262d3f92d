//! A trace with everything that exports must cope with, written packet by packet: two processes, one of which
//! execs another image, threads of equal names, recursion, inlined functions, names full of markup, blocking
//! calls of every cause, a waker, gaps, samples without a stack, probes of a newer version.

use stackbeat_core::probe::{Cause, Probe};
use stackbeat_proto::columns::{self, Rusage, SampleRow};
use stackbeat_proto::stream::write_packet;
use stackbeat_proto::v1::{self, packet::Body};

/// CLOCK_MONOTONIC when the recording starts.
pub(super) const START_NS: u64 = 5_000_000_000_000;
/// Stacks that a thread goes through before it begins again, as programs do.
const STACKS: usize = 500;
const INTERVAL_NS: u64 = 1_000_000;
const TEXT_START: u64 = 0x5555_0000_0000;
const LIBRARY_START: u64 = 0x7fff_0000_0000;

/// Function names by number; the address of function n is `address(n)`.
pub(super) const FUNCTIONS: [&str; 10] = [
    "main",
    "run<[u8; 4]>(\"a\" & b)",
    "parse",
    "parse_inner",
    "compress",
    "<T as Iterator>::next",
    "sqlite3_step",
    "spin",
    "worker",
    "_start",
];

fn address(function: usize) -> u64 {
    let base = if function == 6 {
        LIBRARY_START
    } else {
        TEXT_START
    };
    base + 0x1000 + function as u64 * 0x100 + 0x17
}

/// xorshift64*: the same trace on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }
}

/// Nodes of the CallstackTable, as an agent would number them.
#[derive(Default)]
struct Nodes {
    known: std::collections::HashMap<(u32, u64, i32), u32>,
    list: Vec<(u32, u32, u64, v1::NodeKind)>,
}

impl Nodes {
    fn node(&mut self, parent: u32, address: u64, kind: v1::NodeKind) -> u32 {
        let next = self.list.len() as u32 + 1;
        let id = *self
            .known
            .entry((parent, address, kind as i32))
            .or_insert(next);
        if id == next {
            self.list.push((id, parent, address, kind));
        }
        id
    }

    fn packet(&self) -> v1::CallstackNodes {
        let mut packet = v1::CallstackNodes::default();
        let (mut last_id, mut last_address) = (0_i64, 0_u64);
        for (id, parent, address, kind) in &self.list {
            packet.id.push(i64::from(*id) - last_id);
            last_id = i64::from(*id);
            packet.parent.push(if *parent == 0 {
                0
            } else {
                i64::from(*id) - i64::from(*parent)
            });
            packet
                .address
                .push(address.wrapping_sub(last_address) as i64);
            last_address = *address;
            packet.kind_runs.extend([1, *kind as u32]);
        }
        packet
    }
}

/// Writes a trace in which each thread has about `samples` samples.
pub(super) fn write(samples: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let clock = |after_ns: u64| v1::ClockSnapshot {
        cycles: START_NS + after_ns,
        monotonic_ns: START_NS + after_ns,
        boottime_ns: START_NS + after_ns + 3_000_000_000,
        realtime_ns: 1_790_000_000_000_000_000 + after_ns,
    };
    let mut put = |body: Body| write_packet(&v1::Packet { body: Some(body) }, &mut out);
    put(Body::Header(v1::SessionHeader {
        format_version: 1,
        session_id: (0..16).collect(),
        stackbeat_version: "0.1.0".into(),
        command_line: vec!["/usr/bin/demo".into(), "--x <y> & z".into()],
        hostname: "host".into(),
        os: "Linux".into(),
        machine: "x86_64".into(),
        cpus: 2,
        config: Some(v1::Config {
            interval_ns: INTERVAL_NS,
            main_interval_ns: INTERVAL_NS,
            depth_limit: 256,
            probes: vec!["alloc".into()],
            ..v1::Config::default()
        }),
        start: Some(clock(0)),
        page_size: 4096,
        ..v1::SessionHeader::default()
    }));
    use v1::process::Origin;
    for (upid, pid, parent_upid, origin) in [
        (1, 4001, 0, Origin::Started),
        (2, 4100, 1, Origin::Forked),
        (3, 4100, 2, Origin::Execed),
    ] {
        put(Body::Process(v1::Process {
            upid,
            pid,
            parent_upid,
            origin: origin as i32,
            start_ns: START_NS,
            command_line: vec![format!("/usr/bin/demo{upid}"), "arg".into()],
            executable: format!("/usr/bin/demo{upid}"),
            ..v1::Process::default()
        }));
        for (path, start, build_id) in [
            (format!("/usr/bin/demo{upid}"), TEXT_START, vec![0xab; 20]),
            (
                "/usr/lib/libsqlite3.so".to_owned(),
                LIBRARY_START,
                vec![0xcd; 20],
            ),
        ] {
            put(Body::Module(v1::Module {
                upid,
                path,
                build_id,
                start,
                end: start + 0x10_0000,
                bias: start,
                ..v1::Module::default()
            }));
        }
    }
    let threads = [
        (1, 1, 4001, "demo", true),
        (2, 1, 4002, "worker", false),
        (3, 1, 4003, "worker", false),
        (4, 2, 4100, "demo", true),
        (5, 3, 4100, "image <3>", true),
    ];
    let mut nodes = Nodes::default();
    let mut batches = Vec::new();
    let mut ends: Vec<v1::ThreadEnd> = Vec::new();
    for (utid, upid, tid, name, is_main) in threads {
        let start_ns = match (utid, ends.last_mut()) {
            (5, Some(before)) => {
                let exec_ns = before.end_ns;
                put(Body::ProcessEnd(v1::ProcessEnd {
                    upid: 2,
                    end_ns: exec_ns,
                    execed: true,
                    ..v1::ProcessEnd::default()
                }));
                // Of the last value nobody knows what it is: the process was over.
                let counter = |upid| v1::CounterBatch {
                    upid,
                    name: "requests".into(),
                    time: vec![(exec_ns - 5_000_000) as i64, 9_000_000],
                    value: vec![40, 2],
                    ..v1::CounterBatch::default()
                };
                put(Body::Counters(counter(2)));
                put(Body::Counters(counter(1)));
                put(Body::Counters(v1::CounterBatch {
                    name: "pressure".into(),
                    ..counter(0)
                }));
                // The end of the thread is noticed when its next image runs already.
                before.end_ns += 3_000_000;
                exec_ns + 1_000_000
            }
            _ => START_NS + u64::from(utid) * 1_000,
        };
        put(Body::Thread(v1::Thread {
            utid,
            upid,
            tid,
            name: name.into(),
            is_main,
            start_ns,
            ..v1::Thread::default()
        }));
        let rows = rows(utid, upid, start_ns, samples, &mut nodes);
        if let Some(last) = rows.last() {
            ends.push(v1::ThreadEnd {
                utid,
                end_ns: last.time_ns + 500_000,
                exited: true,
                cpu_ns: last.cpu_ns + 1_000,
                allocations: last.allocations + 3,
                allocated_bytes: last.allocated_bytes + 300,
                frees: last.frees,
                records_written: rows.len() as u64,
                ..v1::ThreadEnd::default()
            });
        }
        batches.extend(
            rows.chunks(1_000)
                .map(|rows| columns::encode(utid, rows, 1)),
        );
    }
    put(Body::Nodes(nodes.packet()));
    // Threads take turns in the file, as when they are drained.
    let per_thread = batches.len() / threads.len();
    for turn in 0..per_thread {
        for thread in 0..threads.len() {
            put(Body::Samples(batches[thread * per_thread + turn].clone()));
        }
    }
    put(Body::Event(v1::Event {
        utid: 1,
        time_ns: START_NS + 2_000_000,
        name: "checkpoint".into(),
        kind: v1::event::Kind::Mark as i32,
        value: 7,
        node: 0,
        upid: 0,
    }));
    put(Body::Drops(v1::Drops {
        utid: 2,
        cause: v1::drops::Cause::BufferFull as i32,
        count: 12,
    }));
    let end_ns = ends.iter().map(|end| end.end_ns).max().unwrap_or(START_NS);
    for end in ends {
        put(Body::ThreadEnd(end));
    }
    put(Body::Symbols(symbols(&nodes)));
    put(Body::Footer(v1::Footer {
        end_ns,
        end: Some(clock(end_ns - START_NS)),
        ..v1::Footer::default()
    }));
    out
}

fn symbols(nodes: &Nodes) -> v1::Symbols {
    let mut strings = vec![String::new(), "/src/demo.rs".into()];
    let mut functions = Vec::new();
    for (number, name) in FUNCTIONS.iter().enumerate() {
        strings.push((*name).to_owned());
        functions.push(v1::symbols::Function {
            name: strings.len() as u32 - 1,
            file: 1,
            line: 10 * number as u32 + 1,
            ..v1::symbols::Function::default()
        });
    }
    for module in ["/usr/bin/demo1", "/usr/lib/libsqlite3.so"] {
        strings.push(module.into());
    }
    let module = strings.len() as u32 - 2;
    for (number, function) in functions.iter_mut().enumerate() {
        function.module = if number == 6 { module + 1 } else { module };
    }
    let mut addresses = Vec::new();
    for upid in [1, 2, 3] {
        for function in 0..FUNCTIONS.len() {
            for kind in [v1::NodeKind::Native, v1::NodeKind::LeafPc] {
                if !nodes
                    .list
                    .iter()
                    .any(|node| node.2 == address(function) && node.3 == kind)
                {
                    continue;
                }
                // `parse_inner` is inlined into `parse`.
                let inlined: Vec<u32> = match function {
                    2 => vec![2, 3],
                    other => vec![other as u32],
                };
                addresses.push(v1::symbols::AddressSymbol {
                    upid,
                    address: address(function),
                    kind: kind as i32,
                    line: inlined.iter().map(|f| 10 * f + 5).collect(),
                    function: inlined,
                    ..v1::symbols::AddressSymbol::default()
                });
            }
        }
    }
    v1::Symbols {
        strings,
        functions,
        addresses,
        file: None,
        variables: Vec::new(),
    }
}

/// A walk through calls and returns.
fn stacks(random: &mut Random) -> Vec<Vec<usize>> {
    let mut stack = vec![9, 0];
    let mut stacks = Vec::new();
    while stacks.len() < STACKS {
        for _ in 0..random.below(3) {
            if stack.len() > 2 {
                stack.pop();
            }
        }
        for _ in 0..random.below(3) {
            if stack.len() < 40 {
                stack.push(random.below(9) as usize);
            }
        }
        stacks.push(stack.clone());
    }
    stacks
}

/// One thread's samples: a walk through calls and returns, with waits, pauses and odd samples.
fn rows(utid: u32, upid: u32, start_ns: u64, samples: u64, nodes: &mut Nodes) -> Vec<SampleRow> {
    let mut random = Random(0x9e37_79b9 + u64::from(utid));
    let blocking: Vec<Probe> = Probe::ALL
        .iter()
        .copied()
        .filter(|probe| probe.cause() != Cause::None)
        .collect();
    let stacks = stacks(&mut random);
    let mut row = SampleRow {
        time_ns: start_ns,
        ..SampleRow::default()
    };
    let mut rusage = Rusage::default();
    let mut rows = Vec::new();
    for number in 0..samples {
        let stack = &stacks[number as usize % STACKS];
        let step_ns = INTERVAL_NS + random.below(300_000);
        row.record = number;
        row.cpu_ns += step_ns * 3 / 4;
        row.allocations += random.below(50);
        row.allocated_bytes += random.below(100_000);
        row.frees += random.below(40);
        row.duration_ns = 0;
        row.arg = None;
        row.waker_tid = None;
        row.rusage = None;
        row.time_ns += step_ns;
        row.probe = Probe::Malloc as u8;
        match random.below(12) {
            0 | 1 => {
                let probe = blocking[random.below(blocking.len() as u64) as usize];
                row.probe = probe as u8;
                row.duration_ns = 50_000 + random.below(8_000_000);
                row.time_ns += row.duration_ns;
                row.arg = Some((random.below(100), random.below(5_000) as i64 - 1_000));
                row.waker_tid = (number % 3 == 0).then_some(4002);
            }
            // A pause that nothing explains.
            2 if number % 5 == 0 => row.time_ns += 400_000_000,
            3 => row.probe = Probe::Running as u8,
            4 if number % 7 == 0 => row.probe = 200,
            // System calls, by their kind and number.
            5 if number % 2 == 0 => {
                row.probe = Probe::SampledCall as u8;
                row.arg = Some((random.below(4), 1 + random.below(50) as i64));
            }
            _ => {}
        }
        if number % 4 == 0 {
            rusage.minor_faults += random.below(9);
            rusage.voluntary_switches += random.below(3);
            row.rusage = Some(rusage);
        }
        let mut node = nodes.node(0, u64::from(upid) << 32, v1::NodeKind::Root);
        for (depth, function) in stack.iter().enumerate() {
            let is_leaf = depth + 1 == stack.len() && row.probe == Probe::Running as u8;
            let kind = if is_leaf {
                v1::NodeKind::LeafPc
            } else {
                v1::NodeKind::Native
            };
            node = nodes.node(node, address(*function), kind);
        }
        row.node = if number % 97 == 5 { 0 } else { node };
        rows.push(row);
    }
    rows
}
