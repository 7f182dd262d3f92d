//! Traces of any size, written as a collector writes them: for measurements.

use std::io::{self, Write};

use stackbeat_core::probe::Probe;
use stackbeat_core::shm::record_format::flags;
use stackbeat_proto::columns::{self, SampleRow};
use stackbeat_proto::stream::write_packet;
use stackbeat_proto::v1::{self, NodeKind, Packet, packet::Body};

const STACKS: u64 = 4000;
const DEPTH: u64 = 24;
const BATCH: usize = 110;
const INTERVAL_NS: u64 = 1_000_000;
const START_NS: u64 = 1 << 42;

/// A program at 1 ms whose threads jump about in 4,000 stacks of 24 frames: two of three samples have
/// another stack than the one before, with usually most of its frames new. Without names.
#[derive(Debug)]
pub struct Program {
    random: Random,
    /// Its stacks.
    pub nodes: v1::CallstackNodes,
    leaves: Vec<u32>,
    threads: Vec<SampleRow>,
    next: usize,
}

#[derive(Debug)]
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % limit
    }
}

impl Program {
    pub fn new(threads: usize) -> Program {
        let mut random = Random(77);
        let (nodes, leaves) = nodes(&mut random);
        let first = SampleRow {
            time_ns: START_NS,
            ..SampleRow::default()
        };
        Program {
            random,
            nodes,
            leaves,
            threads: vec![first; threads],
            next: 0,
        }
    }

    /// The next samples: of each thread in turn, (utid, rows).
    pub fn rows(&mut self) -> (u32, Vec<SampleRow>) {
        let thread = self.next;
        self.next = (thread + 1) % self.threads.len();
        let rows = (0..BATCH).map(|_| self.row(thread)).collect();
        (thread as u32 + 1, rows)
    }

    fn row(&mut self, thread: usize) -> SampleRow {
        let Program { random, leaves, .. } = self;
        let last = &mut self.threads[thread];
        let step = INTERVAL_NS + random.below(80_000);
        last.record += 1;
        last.time_ns += step;
        last.duration_ns = 0;
        last.flags = 0;
        last.arg = None;
        last.cpu_ns += step - random.below(30_000);
        let allocated = random.below(200);
        last.allocations += allocated;
        last.frees += allocated - random.below(allocated.min(12) + 1);
        last.allocated_bytes += allocated * 60;
        if random.below(3) != 0 {
            last.node = leaves[random.below(leaves.len() as u64) as usize];
        }
        let probe = match random.below(10) {
            0 => {
                last.duration_ns = 100_000 + random.below(1 << 20);
                last.flags = flags::BLOCKED;
                last.arg = Some((random.below(9), 4096));
                Probe::Read
            }
            1 | 2 => Probe::Running,
            _ => Probe::Malloc,
        };
        last.probe = probe as u8;
        *last
    }

    /// Writes a trace of about `bytes`; how many samples it has.
    pub fn write(&mut self, bytes: u64, out: &mut impl Write) -> io::Result<u64> {
        let mut packets = Vec::new();
        let mut append = |body| write_packet(&Packet { body: Some(body) }, &mut packets);
        append(Body::Header(v1::SessionHeader {
            format_version: 1,
            config: Some(v1::Config {
                interval_ns: INTERVAL_NS,
                ..v1::Config::default()
            }),
            ..v1::SessionHeader::default()
        }));
        append(Body::Process(v1::Process {
            upid: 1,
            pid: 1000,
            start_ns: START_NS,
            executable: "/usr/bin/large".to_owned(),
            ..v1::Process::default()
        }));
        for utid in 1..=self.threads.len() as u32 {
            append(Body::Thread(v1::Thread {
                utid,
                upid: 1,
                tid: 999 + utid,
                is_main: utid == 1,
                start_ns: START_NS,
                ..v1::Thread::default()
            }));
        }
        append(Body::Nodes(self.nodes.clone()));
        let (mut written, mut samples) = (0, 0);
        while written < bytes {
            let (utid, rows) = self.rows();
            samples += rows.len() as u64;
            let batch = columns::encode(utid, &rows, columns::time_unit_ns(INTERVAL_NS));
            let body = Some(Body::Samples(batch));
            write_packet(&Packet { body }, &mut packets);
            if packets.len() >= 1 << 20 || written + packets.len() as u64 >= bytes {
                out.write_all(&packets)?;
                written += packets.len() as u64;
                packets.clear();
            }
        }
        Ok(samples)
    }
}

/// Nodes of stacks that share their outer frames: (nodes packet, leaf ids).
fn nodes(random: &mut Random) -> (v1::CallstackNodes, Vec<u32>) {
    let mut nodes = v1::CallstackNodes::default();
    let (mut id, mut address) = (0i64, 0i64);
    let mut push = |parent: i64, to: i64| {
        id += 1;
        nodes.id.push(1);
        nodes.parent.push(if parent == 0 { 0 } else { id - parent });
        nodes.address.push(to - address);
        address = to;
        id
    };
    let root = push(0, 1 << 32 | 1);
    let mut leaves = Vec::new();
    let mut paths: Vec<Vec<i64>> = vec![vec![root]];
    while leaves.len() < STACKS as usize {
        // Branch off an earlier stack somewhere below its middle.
        let mut path = paths[random.below(paths.len() as u64) as usize].clone();
        path.truncate(1 + random.below(DEPTH) as usize);
        while path.len() <= DEPTH as usize {
            let parent = path[path.len() - 1];
            let address = 0x5500_0000_0000 + (random.below(6000) as i64) * 64;
            path.push(push(parent, address));
        }
        leaves.push(path[path.len() - 1] as u32);
        paths.push(path);
    }
    let count = nodes.id.len() as u32 - 1;
    nodes.kind_runs = vec![1, NodeKind::Root as u32, count, NodeKind::Native as u32];
    (nodes, leaves)
}
