//! Reading a trace: the first pass, samples → segments, samples → slices, and the codec alone.
//!
//!     cargo bench -p stackbeat-collector --bench model
//!
//! One item is one sample. The trace: 8 threads, 250,000 samples, 4,000 stacks of 24 frames, like a
//! program at 1 ms.

use std::sync::OnceLock;

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use prost::Message;
use stackbeat_collector::model::{SampleRow, Segment, Slice, Trace, Visitor};
use stackbeat_proto::columns::{self, Columns};
use stackbeat_proto::stream::write_packet;
use stackbeat_proto::v1::SampleBatch;
use stackbeat_proto::v1::{self, NodeKind, Packet, packet::Body};

const SAMPLES: u64 = 250_000;
const THREADS: u64 = 8;
const STACKS: u64 = 4000;
const DEPTH: u64 = 24;
const BATCH: usize = 110;

fn main() {
    divan::main();
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % limit
    }
}

fn append(out: &mut Vec<u8>, body: Body) {
    write_packet(&Packet { body: Some(body) }, out);
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
            path.push(push(
                parent,
                0x5500_0000_0000 + (random.below(6000) as i64) * 64,
            ));
        }
        leaves.push(path[path.len() - 1] as u32);
        paths.push(path);
    }
    let count = nodes.id.len() as u32 - 1;
    nodes.kind_runs = vec![1, NodeKind::Root as u32, count, NodeKind::Native as u32];
    (nodes, leaves)
}

/// Rows of one batch, continuing `last`.
fn rows(random: &mut Random, last: &mut SampleRow, leaves: &[u32]) -> Vec<SampleRow> {
    (0..BATCH)
        .map(|_| {
            let step = 1_000_000 + random.below(80_000);
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
            // Most samples are near the one before.
            if random.below(3) != 0 {
                last.node = leaves[random.below(leaves.len() as u64) as usize];
            }
            last.probe = 10;
            match random.below(10) {
                0 => {
                    last.probe = 50;
                    last.duration_ns = 100_000 + random.below(1 << 20);
                    last.flags = 16;
                    last.arg = Some((random.below(9), 4096));
                }
                1 | 2 => last.probe = 1,
                _ => {}
            }
            *last
        })
        .collect()
}

fn batches() -> (v1::CallstackNodes, Vec<SampleBatch>) {
    let mut random = Random(77);
    let (nodes, leaves) = nodes(&mut random);
    let mut threads: Vec<SampleRow> = (0..THREADS)
        .map(|_| SampleRow {
            time_ns: 1 << 42,
            ..SampleRow::default()
        })
        .collect();
    let count = SAMPLES as usize / BATCH;
    let batches = (0..count)
        .map(|i| {
            let thread = i % threads.len();
            let rows = rows(&mut random, &mut threads[thread], &leaves);
            columns::encode(thread as u32 + 1, &rows, columns::time_unit_ns(1_000_000))
        })
        .collect();
    (nodes, batches)
}

fn trace_bytes() -> &'static (Vec<u8>, usize) {
    static BYTES: OnceLock<(Vec<u8>, usize)> = OnceLock::new();
    BYTES.get_or_init(|| {
        let (nodes, batches) = batches();
        let mut out = Vec::new();
        append(
            &mut out,
            Body::Header(v1::SessionHeader {
                format_version: 1,
                config: Some(v1::Config {
                    interval_ns: 1_000_000,
                    ..v1::Config::default()
                }),
                ..v1::SessionHeader::default()
            }),
        );
        append(&mut out, Body::Nodes(nodes));
        let before = out.len();
        let rows: usize = batches.iter().map(|batch| batch.time.len()).sum();
        for batch in batches {
            append(&mut out, Body::Samples(batch));
        }
        let samples = out.len() - before;
        let mut packed = Vec::new();
        stackbeat_proto::stream::write_compressed(&out[before..], 6, &mut packed);
        println!(
            "bytes a sample: {:.2}, compressed {:.2}",
            samples as f64 / rows as f64,
            packed.len() as f64 / rows as f64
        );
        (out, rows)
    })
}

/// Sums up, so that nothing is optimized away.
#[derive(Default)]
struct Sum {
    slices: bool,
    wall_ns: u64,
}

impl Visitor for Sum {
    fn segment(&mut self, _: &Trace, segment: &Segment) {
        self.wall_ns += segment.wall_ns();
    }
    fn slice(&mut self, _: &Trace, slice: &Slice) {
        self.wall_ns += slice.self_ns;
    }
    fn wants_slices(&self) -> bool {
        self.slices
    }
}

#[divan::bench]
fn open(bencher: Bencher) {
    let (bytes, rows) = trace_bytes();
    bencher
        .counter(ItemsCount::new(*rows))
        .counter(BytesCount::new(bytes.len()))
        .bench(|| Trace::from_bytes("bench.beat", bytes.clone()).expect("a good trace"));
}

#[divan::bench(args = [false, true])]
fn visit(bencher: Bencher, slices: bool) {
    let (bytes, rows) = trace_bytes();
    let trace = Trace::from_bytes("bench.beat", bytes.clone()).expect("a good trace");
    bencher.counter(ItemsCount::new(*rows)).bench(|| {
        let mut sum = Sum {
            slices,
            ..Sum::default()
        };
        trace.visit(&mut sum).expect("memory");
        sum.wall_ns
    });
}

#[divan::bench]
fn decode_columns(bencher: Bencher) {
    let (_, batches) = batches();
    let encoded: Vec<Vec<u8>> = batches.iter().map(Message::encode_to_vec).collect();
    let mut rows = Vec::new();
    bencher
        .counter(ItemsCount::new(batches.len() * BATCH))
        .bench_local(|| {
            let mut last = 0;
            for bytes in &encoded {
                let batch = Columns::of(bytes).expect("own encoding");
                batch.rows_into(&mut rows).expect("own columns");
                last ^= rows.last().map_or(0, |row| row.time_ns);
            }
            last
        });
}

#[divan::bench]
fn encode_columns(bencher: Bencher) {
    let (_, batches) = batches();
    let rows: Vec<Vec<SampleRow>> = batches
        .iter()
        .map(|batch| columns::decode(batch).expect("own columns"))
        .collect();
    bencher
        .counter(ItemsCount::new(rows.len() * BATCH))
        .bench_local(|| {
            let mut bytes = 0;
            for rows in &rows {
                bytes += columns::encode(1, rows, 128).encoded_len();
            }
            bytes
        });
}
