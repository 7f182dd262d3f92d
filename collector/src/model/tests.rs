//! The model on synthetic traces.

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
    assert_eq!(all.counters[0].values.len(), 20);
    assert_eq!(all.totals.len(), 5);
}
