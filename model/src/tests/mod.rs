//! The model on synthetic traces.

mod bursts;
mod call_attribution;
mod damage;
mod inferred_waits;
mod managed;
mod names;
mod random_threads;
mod slice_rules;

use super::synthetic::realistic;
use super::*;

fn open(bytes: Vec<u8>) -> Trace {
    Trace::from_bytes("synthetic.beat", bytes).expect("a good header")
}

/// Everything that a visit hands out.
#[derive(Default)]
struct Everything {
    segments: Vec<Segment>,
    slices: Vec<Slice>,
    totals: Vec<(ThreadIndex, ThreadTotals)>,
    samples: u64,
    events: Vec<String>,
    counters: Vec<Counter>,
    calls: Vec<AttributedCalls>,
}

impl Visitor for Everything {
    fn wants_slices(&self) -> bool {
        true
    }
    fn segment(&mut self, _: &Trace, segment: &Segment) {
        self.segments.push(*segment);
    }
    fn slice(&mut self, _: &Trace, slice: &Slice) {
        self.slices.push(*slice);
    }
    fn sample(&mut self, _: &Trace, _: ThreadIndex, _: &SampleRow, _: StackIndex) {
        self.samples += 1;
    }
    fn system_calls(&mut self, _: &Trace, attributed: &AttributedCalls) {
        self.calls.push(*attributed);
    }
    fn event(
        &mut self,
        _: &Trace,
        _: Option<ThreadIndex>,
        event: &stackbeat_proto::v1::Event,
        _: StackIndex,
    ) {
        self.events.push(event.name.clone());
    }
    fn counter(&mut self, _: &Trace, counter: &Counter) {
        self.counters.push(counter.clone());
    }
    fn thread_end(&mut self, _: &Trace, thread: ThreadIndex, totals: &ThreadTotals) {
        self.totals.push((thread, *totals));
    }
}

fn visit(trace: &Trace) -> Everything {
    let mut everything = Everything::default();
    trace.visit(&mut everything).expect("readable");
    everything
}

#[test]
fn a_realistic_trace_reads_and_conserves() {
    let trace = open(realistic());
    assert_eq!(trace.damage(), &[]);
    assert_eq!(trace.processes().len(), 2);
    assert_eq!(trace.threads().len(), 5);
    assert_eq!(trace.modules().len(), 4);
    assert_eq!(trace.process(ProcessIndex(1)).parent, Some(ProcessIndex(0)));
    assert_eq!(conservation(&trace).expect("readable"), &[]);
    let all = visit(&trace);
    assert_eq!(all.samples, trace.samples());
    assert_eq!(all.events, ["cache filled"]);
    // Two were read after the end of the process.
    assert_eq!(all.counters[0].values.len(), 18);
    assert_eq!(all.totals.len(), 5);
}

/// Nothing says when it lived, so it is not said to have lived all the time.
#[test]
fn a_thread_that_only_drops_name_has_no_time() {
    let start_ns = 60_000_000_000_000;
    let mut builder = synthetic::Builder::new(1_000_000, &["lost"], start_ns);
    builder.process(1, 10, 0, start_ns, "/bin/lost");
    builder.thread(1, 1, 10, "lost", start_ns);
    builder.drops(7, 1, 3);
    let trace = open(builder.finish(start_ns + 5_000_000, 0));
    let named: Vec<_> = trace.threads().iter().filter(|t| t.utid.0 == 7).collect();
    assert_eq!(named.len(), 1);
    assert_eq!(named[0].start_ns, named[0].end_ns);
    let latest = trace.threads().iter().map(|t| t.end_ns).max();
    assert_eq!(latest, Some(trace.threads()[0].end_ns));
}

#[test]
fn names_say_what_is_known() {
    let trace = open(realistic());
    let names: Vec<&str> = trace.functions().iter().map(|f| f.name.as_str()).collect();
    for name in [
        "main",
        "render<Page>",
        "server+0x9990",
        "[JIT server]",
        "[truncated]",
    ] {
        assert!(names.contains(&name), "{name}");
    }
    // Two processes of one program share their functions, not their stacks.
    assert_eq!(names.iter().filter(|name| **name == "compute").count(), 1);
    assert_eq!(trace.drops().len(), 2);
    assert_eq!(trace.drops()[0].name(), "no free buffer");
    assert_eq!(ProbeId(77).name(), "probe 77");
    assert_eq!(ProbeId(77).cause(), stackbeat_core::probe::Cause::Unknown);
}

#[test]
fn the_kept_file_of_format_version_1_reads() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/traces/format-1.beat");
    let trace = Trace::open(path).expect("a trace of format version 1");
    assert_eq!(trace.damage(), &[]);
    assert_eq!(trace.threads().len(), 5);
    assert_eq!(trace.samples(), 408);
    assert_eq!(conservation(&trace).expect("readable"), &[]);
}

/// Writes the file that `the_kept_file_of_format_version_1_reads` reads. Only for a new version of
/// the format: the files of released versions never change.
#[test]
#[ignore = "writes a file; see tests/traces/README.md"]
fn write_the_sample_file() {
    let path = std::env::var_os("STACKBEAT_SAMPLE_FILE").expect("the path to write to");
    super::synthetic::write_realistic(path.as_ref()).expect("writable");
}

/// Writes the corpus that fuzzing starts from, `fuzz/corpus/trace`.
#[test]
#[ignore = "writes files; see fuzz/README.md"]
fn write_the_fuzz_corpus() {
    let folder = std::env::var_os("STACKBEAT_CORPUS").expect("the folder to write to");
    let folder = std::path::Path::new(&folder);
    std::fs::write(folder.join("realistic"), realistic()).expect("writable");
    let managed = super::synthetic::managed();
    std::fs::write(folder.join("managed"), managed).expect("writable");
    for seed in 0..12 {
        let name = format!("random-{seed}");
        std::fs::write(folder.join(name), random_threads::trace(seed)).expect("writable");
    }
}
