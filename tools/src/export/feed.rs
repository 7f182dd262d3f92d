//! Hands the selected part of a trace to an exporter that can fail.

use std::collections::{HashMap, HashSet};
use std::io;

use anyhow::Result;
use stackbeat_model::{
    AttributedCalls, Counter, LongWait, ProcessIndex, Segment, StackIndex, Thread, ThreadIndex,
    Trace, Visitor,
};
use stackbeat_proto::columns::SampleRow;
use stackbeat_proto::v1;

use super::arrows::Arrow;
use super::viewer_ids::Identities;
use super::{Exported, Selection};
use crate::scopes::{Asynchronous, Work};

/// An exporter's side: what [`Visitor`] gives, cut to the selection, with errors.
pub(super) trait Sink {
    fn thread_begin(&mut self, _: &Trace, _: ThreadIndex) -> io::Result<()> {
        Ok(())
    }

    fn segment(&mut self, trace: &Trace, segment: &Segment) -> io::Result<()>;

    /// System calls of a kind and a stack.
    fn system_calls(&mut self, _: &AttributedCalls) {}

    /// An event of a thread, or of the whole session, that is none of asynchronous work.
    fn event(&mut self, _: &Trace, _: Option<ThreadIndex>, _: &v1::Event) -> io::Result<()> {
        Ok(())
    }

    /// Values of a counter, in order of time.
    fn counter(&mut self, _: &Trace, _: &Counter) -> io::Result<()> {
        Ok(())
    }

    /// One thread has ended a wait of another, or started it.
    fn arrow(&mut self, _: &Trace, _: &Arrow) -> io::Result<()> {
        Ok(())
    }

    fn thread_end(&mut self, _: &Trace, _: ThreadIndex) -> io::Result<()> {
        Ok(())
    }

    /// All asynchronous work, by begin, after everything else.
    fn asynchronous(&mut self, _: &Trace, _: Vec<Work>) -> io::Result<()> {
        Ok(())
    }
}

/// Streams the trace into `sink`. A failing sink gets nothing more; its error is returned.
pub(super) fn run(trace: &Trace, selection: &Selection, sink: &mut dyn Sink) -> Result<Exported> {
    let mut feed = Feed {
        selection,
        sink,
        exported: Exported::default(),
        asynchronous: Asynchronous::default(),
        counters: HashMap::new(),
        identities: Identities::new(trace),
        known: HashSet::new(),
        result: Ok(()),
    };
    trace.visit(&mut feed)?;
    feed.end_counters(trace);
    feed.result?;
    let work = feed
        .asynchronous
        .finish(|process| trace.process(process).end_ns);
    let mut work: Vec<Work> = work
        .into_iter()
        .filter_map(|work| selection.clip_work(work))
        .collect();
    work.sort_by_key(|work| work.begin_ns);
    feed.sink.asynchronous(trace, work)?;
    Ok(feed.exported)
}

struct Feed<'a> {
    selection: &'a Selection,
    sink: &'a mut dyn Sink,
    exported: Exported,
    /// Of all threads and times: begin and end may be of different ones.
    asynchronous: Asynchronous,
    /// Of processes that end: by process, name and unit the latest value and its time.
    counters: HashMap<(ProcessIndex, String, String), (u64, i64)>,
    /// A process that executes another program keeps its main thread.
    identities: Identities,
    known: HashSet<ThreadIndex>,
    result: io::Result<()>,
}

impl Feed<'_> {
    /// Viewers hold a counter's last value for ever: it is 0 when its process is over.
    fn end_counters(&mut self, trace: &Trace) {
        let counters = std::mem::take(&mut self.counters).into_iter();
        let mut counters: Vec<_> = counters.filter(|(_, (_, value))| *value != 0).collect();
        counters.sort_unstable();
        for ((process, name, unit), _) in counters {
            let end_ns = trace.process(process).end_ns;
            if self.result.is_ok() && self.selection.has_time(end_ns) {
                let counter = Counter {
                    process: Some(process),
                    thread: None,
                    name,
                    unit,
                    values: vec![(end_ns, 0)],
                };
                self.result = self.sink.counter(trace, &counter);
            }
        }
    }
}

impl Visitor for Feed<'_> {
    fn thread_begin(&mut self, trace: &Trace, thread: ThreadIndex) {
        if self.result.is_ok() && self.selection.has_thread(thread) {
            if self.known.insert(self.identities.thread(thread)) {
                self.exported.threads += 1;
            }
            self.result = self.sink.thread_begin(trace, thread);
            let Thread {
                creator, start_ns, ..
            } = *trace.thread(thread);
            if self.result.is_ok()
                && let Some(creator) = creator
                && self.selection.has_thread(creator)
                && self.selection.has_time(start_ns)
            {
                let arrow = Arrow::start(trace, thread, creator);
                self.result = self.sink.arrow(trace, &arrow);
            }
        }
    }

    fn segment(&mut self, trace: &Trace, segment: &Segment) {
        if self.result.is_err() {
            return;
        }
        if let Some(segment) = self.selection.clip(segment) {
            self.exported.segments += 1;
            self.exported.totals.add_segment(&segment);
            self.result = self.sink.segment(trace, &segment);
        }
    }

    fn sample(&mut self, _: &Trace, thread: ThreadIndex, row: &SampleRow, _: StackIndex) {
        if self.result.is_ok()
            && self.selection.has_thread(thread)
            && self.selection.has_time(row.time_ns)
        {
            self.exported.samples += 1;
        }
    }

    fn system_calls(&mut self, _: &Trace, attributed: &AttributedCalls) {
        if self.result.is_ok()
            && self.selection.has_thread(attributed.thread)
            && self.selection.has_time(attributed.time_ns)
        {
            self.sink.system_calls(attributed);
        }
    }

    fn event(
        &mut self,
        trace: &Trace,
        thread: Option<ThreadIndex>,
        event: &v1::Event,
        _: StackIndex,
    ) {
        if thread.is_some_and(|thread| self.asynchronous.add(trace, thread, event)) {
            return;
        }
        if self.result.is_ok()
            && thread.is_none_or(|thread| self.selection.has_thread(thread))
            && self.selection.has_time(event.time_ns)
        {
            self.result = self.sink.event(trace, thread, event);
        }
    }

    fn counter(&mut self, trace: &Trace, counter: &Counter) {
        if self.result.is_err()
            || counter
                .thread
                .is_some_and(|t| !self.selection.has_thread(t))
        {
            return;
        }
        let mut counter = counter.clone();
        let selection = self.selection;
        counter.values.retain(|(at, _)| selection.has_time(*at));
        if let Some(latest) = counter.values.last() {
            if let Some(process) = counter.process
                && trace.process(process).ended
            {
                let key = (process, counter.name.clone(), counter.unit.clone());
                let known = self.counters.entry(key).or_default();
                *known = (*known).max(*latest);
            }
            self.result = self.sink.counter(trace, &counter);
        }
    }

    fn long_wait(&mut self, trace: &Trace, wait: &LongWait) {
        if self.result.is_ok()
            && let Some(waker) = wait.waker
            && [wait.thread, waker]
                .into_iter()
                .all(|thread| self.selection.has_thread(thread))
            && self.selection.has_time(wait.end_ns)
        {
            self.result = self.sink.arrow(trace, &Arrow::wakeup(wait, waker));
        }
    }

    fn thread_end(
        &mut self,
        trace: &Trace,
        thread: ThreadIndex,
        _: &stackbeat_model::ThreadTotals,
    ) {
        if self.result.is_ok() && self.selection.has_thread(thread) {
            self.result = self.sink.thread_end(trace, thread);
        }
    }
}
