//! Samples per second written in each format. `cargo bench -p stackbeat --bench exports`

use divan::{Bencher, counter::ItemsCount};
use stackbeat_model::Trace;
use stackbeat_tools::export::{Format, Options, export};

#[path = "../tests/exports/sample_trace.rs"]
mod sample_trace;

fn main() {
    divan::main();
}

/// Of each of the five threads.
const SAMPLES: u64 = 40_000;

#[divan::bench(args = Format::ALL, sample_count = 5, sample_size = 1)]
fn write(bencher: Bencher<'_, '_>, format: Format) {
    let trace = Trace::from_bytes("bench.beat", sample_trace::write(SAMPLES)).unwrap();
    let samples = trace.samples();
    bencher
        .counter(ItemsCount::new(samples))
        .bench_local(|| export(&trace, format, &Options::default(), &mut std::io::sink()).unwrap());
}

/// Reading the trace alone, which every export does.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn read(bencher: Bencher<'_, '_>) {
    struct Nothing;
    impl stackbeat_model::Visitor for Nothing {
        fn segment(&mut self, _: &Trace, segment: &stackbeat_model::Segment) {
            divan::black_box(segment);
        }
    }
    let trace = Trace::from_bytes("bench.beat", sample_trace::write(SAMPLES)).unwrap();
    bencher
        .counter(ItemsCount::new(trace.samples()))
        .bench_local(|| trace.visit(&mut Nothing).unwrap());
}
