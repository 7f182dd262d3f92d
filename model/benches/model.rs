//! Reading a trace: the first pass, samples → segments, samples → slices, and the codec alone.
//!
//!     cargo bench -p stackbeat-model --features testing --bench model
//!
//! One item is one sample. The trace is that of `synthetic::Program`, whose stacks change more than those of
//! real programs; `STACKBEAT_TRACE=FILE` takes a recorded one.

use std::sync::OnceLock;

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use prost::Message;
use stackbeat_model::synthetic::Program;
use stackbeat_model::{SampleRow, Segment, Slice, Trace, Visitor};
use stackbeat_proto::columns::{self, Columns};

const TRACE_BYTES: u64 = 5 << 19;
const THREADS: usize = 8;
const BATCHES: usize = 2000;

fn main() {
    divan::main();
}

fn batches() -> Vec<(u32, Vec<SampleRow>)> {
    let mut program = Program::new(THREADS);
    (0..BATCHES).map(|_| program.rows()).collect()
}

fn encode((thread, rows): &(u32, Vec<SampleRow>)) -> Vec<u8> {
    columns::encode(*thread, rows, columns::time_unit_ns(1_000_000)).encode_to_vec()
}

/// The trace to read, and its number of samples: what `STACKBEAT_TRACE` names, or a synthetic one.
fn trace_bytes() -> &'static (Vec<u8>, u64) {
    static BYTES: OnceLock<(Vec<u8>, u64)> = OnceLock::new();
    BYTES.get_or_init(|| {
        let mut out = Vec::new();
        match std::env::var_os("STACKBEAT_TRACE") {
            Some(path) => out = std::fs::read(path).expect("a readable trace"),
            None => {
                Program::new(THREADS)
                    .write(TRACE_BYTES, &mut out)
                    .expect("memory");
            }
        }
        let trace = Trace::from_bytes("bench.beat", out.clone()).expect("a good trace");
        let mut sum = Sum {
            slices: true,
            ..Sum::default()
        };
        trace.visit(&mut sum).expect("memory");
        let samples = trace.samples();
        let each = |of: u64| of as f64 / samples as f64;
        println!(
            "a sample: {:.2} bytes, {:.2} slices",
            each(trace.sample_bytes()),
            each(sum.count)
        );
        (out, samples)
    })
}

/// Sums up, so that nothing is optimized away.
#[derive(Default)]
struct Sum {
    slices: bool,
    wall_ns: u64,
    count: u64,
}

impl Visitor for Sum {
    fn segment(&mut self, _: &Trace, segment: &Segment) {
        self.wall_ns += segment.wall_ns();
    }
    fn slice(&mut self, _: &Trace, slice: &Slice) {
        self.wall_ns += slice.self_ns;
        self.count += 1;
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
    let batches = batches();
    let count: usize = batches.iter().map(|(_, rows)| rows.len()).sum();
    let encoded: Vec<Vec<u8>> = batches.iter().map(encode).collect();
    let mut rows = Vec::new();
    bencher.counter(ItemsCount::new(count)).bench_local(|| {
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
    let batches = batches();
    let count: usize = batches.iter().map(|(_, rows)| rows.len()).sum();
    bencher
        .counter(ItemsCount::new(count))
        .bench_local(|| -> usize { batches.iter().map(|batch| encode(batch).len()).sum() });
}
