//! Chrome's JSON trace events: a complete event (`X`) for each slice, metadata for names, counters for each
//! process, and arrows between slices (`s`, `f`).
//!
//! A slice is written when it is over, so the file is not in the order of time; readers sort it. Those that
//! begin at one moment they nest in the order of the file, so a slice that begins with its caller waits for
//! it ([`OpenSlice`]).
//!
//! speedscope orders begins and ends by time alone. So what follows an end at the same nanosecond is written
//! a step later, too small for readers that round ([`Moment`]).
//!
//! A reader ties an end of an arrow to the innermost slice around its time. So arrows are written behind all
//! slices, when it is known where there is one ([`Arrows`]).

mod arrows;

use std::io::{self, Write};

use anyhow::Result;
use stackbeat_model::call_tree::Leaf;
use stackbeat_model::{Counter, FunctionIndex, ProcessIndex, Segment, ThreadIndex, Trace};
use stackbeat_proto::v1::{self, event::Kind};

use self::arrows::{Arrows, Flow};
use super::arrows::Arrow;
use super::drops;
use super::export_names::{self, GAP_NAME, Names, UNKNOWN_NAME};
use super::feed::{self, Sink};
use super::json_writer::{self, BinaryMicros, Separator};
use super::nesting::{Closed, Level, Nesting, Slices};
use super::viewer_ids::Identities;
use super::{Exported, Options, Selection};
use crate::meters::{Meters, Reading};
use crate::scopes::{Open, Work};

pub(super) fn write(
    trace: &Trace,
    selection: &Selection,
    options: &Options,
    out: &mut dyn Write,
) -> Result<Exported> {
    out.write_all(br#"{"displayTimeUnit":"ns","otherData":{"exporter":"stackbeat","title":"#)?;
    json_writer::string(out, &export_names::title(trace, options))?;
    write!(
        out,
        r#","start_monotonic_ns":"{}"}},"traceEvents":["#,
        trace.start_ns()
    )?;
    let names = Names::new();
    let mut writer = Writer {
        names: &names,
        origin_ns: trace.start_ns(),
        threads: Vec::new(),
        identities: Identities::new(trace),
        meters: Meters::new(trace),
        scopes: Open::default(),
        separator: Separator::default(),
        slices: 0,
        arrows: Arrows::default(),
        out,
    };
    writer.descriptors(trace, selection)?;
    let mut exported = feed::run(trace, selection, &mut writer)?;
    let arrows = std::mem::take(&mut writer.arrows);
    arrows.write(trace, &mut writer.separator, writer.out)?;
    writer.counters(trace)?;
    writer.losses(trace)?;
    exported.slices = writer.slices;
    writer.out.write_all(b"\n]}\n")?;
    Ok(exported)
}

struct Writer<'a> {
    names: &'a Names,
    origin_ns: u64,
    threads: Vec<Option<ThreadState>>,
    identities: Identities,
    meters: Meters,
    scopes: Open,
    separator: Separator,
    slices: u64,
    arrows: Arrows,
    out: &'a mut dyn Write,
}

impl Writer<'_> {
    fn descriptors(&mut self, trace: &Trace, selection: &Selection) -> io::Result<()> {
        for index in (0..trace.processes().len() as u32).map(ProcessIndex) {
            if self.identities.process(index) == index {
                let name = export_names::process_name(trace, self.identities.last_image(index));
                self.name("process_name", trace.process(index).pid.0, None, &name)?;
            }
        }
        for index in (0..trace.threads().len() as u32).map(ThreadIndex) {
            if selection.has_thread(index) && self.identities.thread(index) == index {
                let thread = trace.thread(self.identities.last_thread(index));
                let pid = trace.process(thread.process).pid;
                let name = export_names::thread_name(&thread.name);
                self.name("thread_name", pid.0, Some(thread.tid.0), name)?;
            }
        }
        Ok(())
    }

    fn name(&mut self, kind: &str, pid: u32, tid: Option<u32>, name: &str) -> io::Result<()> {
        self.separator.next(self.out)?;
        write!(
            self.out,
            "\n{{\"ph\":\"M\",\"name\":\"{kind}\",\"pid\":{pid}"
        )?;
        if let Some(tid) = tid {
            write!(self.out, ",\"tid\":{tid}")?;
        }
        self.out.write_all(br#","args":{"name":"#)?;
        json_writer::string(self.out, name)?;
        self.out.write_all(b"}}")
    }

    /// An event of a thread, or across everything.
    fn instant(
        &mut self,
        trace: &Trace,
        thread: Option<ThreadIndex>,
        event: &v1::Event,
    ) -> io::Result<()> {
        let kind = export_names::event_kind(event.kind());
        if let Some(flow) = Flow::of(event.kind())
            && let Some(thread) = thread
        {
            self.arrows.program(thread, flow, event);
            return Ok(());
        }
        // A scope's end names its begin; one without a begin is nobody's.
        let ended = match (event.kind(), thread) {
            (Kind::ScopeBegin, Some(thread)) => {
                self.scopes.begin(thread, &event.name, event.time_ns);
                None
            }
            (Kind::ScopeEnd, Some(thread)) => match self.scopes.end(thread, event.time_ns) {
                Some(scope) => Some(scope.name),
                None => return Ok(()),
            },
            _ => None,
        };
        let (phase, category) = match event.kind() {
            Kind::ScopeBegin => ("b", "scope"),
            Kind::ScopeEnd => ("e", "scope"),
            _ => ("i", kind),
        };
        self.separator.next(self.out)?;
        write!(
            self.out,
            "\n{{\"ph\":\"{phase}\",\"cat\":\"{category}\",\"name\":"
        )?;
        let name = match &ended {
            Some(name) => name,
            None if event.name.is_empty() => kind,
            None => &event.name,
        };
        json_writer::string(self.out, name)?;
        // A global instant belongs to some process all the same.
        let (scope, thread) = match thread {
            Some(thread) => ("t", trace.threads().get(thread.0 as usize)),
            None => ("g", trace.threads().first()),
        };
        let pid = thread.map_or(0, |t| trace.process(t.process).pid.0);
        let tid = thread.map_or(0, |t| t.tid.0);
        match event.kind() {
            // Scopes of a thread are nested below one id.
            Kind::ScopeBegin | Kind::ScopeEnd => write!(self.out, ",\"id\":\"{pid}.{tid}\"")?,
            _ => write!(self.out, ",\"s\":\"{scope}\"")?,
        }
        write!(self.out, ",\"pid\":{pid},\"tid\":{tid},\"ts\":")?;
        json_writer::micros(self.out, event.time_ns.saturating_sub(self.origin_ns))?;
        write!(self.out, ",\"args\":{{\"value\":{}}}}}", event.value)
    }

    /// What is missing, as instants across everything.
    fn losses(&mut self, trace: &Trace) -> io::Result<()> {
        let pid = trace.processes().first().map_or(0, |process| process.pid.0);
        for line in drops::lines(trace) {
            self.separator.next(self.out)?;
            self.out
                .write_all(b"\n{\"ph\":\"i\",\"s\":\"g\",\"cat\":\"loss\",\"name\":")?;
            json_writer::string(self.out, &format!("missing: {line}"))?;
            write!(self.out, ",\"pid\":{pid},\"tid\":{pid},\"ts\":")?;
            json_writer::micros(
                self.out,
                drops::time_ns(trace).saturating_sub(self.origin_ns),
            )?;
            self.out.write_all(b"}")?;
        }
        Ok(())
    }

    /// Each pair has an id of its own, because the same one may be used again and meanwhile.
    fn work(&mut self, trace: &Trace, all: Vec<Work>) -> io::Result<()> {
        for (number, work) in all.into_iter().enumerate() {
            let (pid, tid) = (
                trace.process(work.process).pid,
                trace.thread(work.thread).tid,
            );
            for (phase, at_ns) in [("b", work.begin_ns), ("e", work.end_ns)] {
                self.separator.next(self.out)?;
                write!(
                    self.out,
                    "\n{{\"ph\":\"{phase}\",\"cat\":\"async\",\"name\":"
                )?;
                json_writer::string(self.out, &work.name)?;
                write!(
                    self.out,
                    ",\"id\":\"a{number}\",\"pid\":{pid},\"tid\":{tid},\"ts\":"
                )?;
                json_writer::micros(self.out, at_ns.saturating_sub(self.origin_ns))?;
                write!(self.out, ",\"args\":{{\"value\":{}}}}}", work.id)?;
            }
        }
        Ok(())
    }

    fn counters(&mut self, trace: &Trace) -> io::Result<()> {
        let meters = std::mem::take(&mut self.meters);
        for (process, readings) in meters.processes(|image| self.identities.process(image)) {
            let pid = trace.process(process).pid;
            for Reading {
                time_ns,
                cpu_percent,
                totals,
            } in readings
            {
                for (name, value) in [
                    ("CPU %", cpu_percent),
                    ("allocated bytes", totals.allocated_bytes as f64),
                    ("page faults", totals.faults as f64),
                ] {
                    self.separator.next(self.out)?;
                    write!(
                        self.out,
                        "\n{{\"ph\":\"C\",\"name\":\"{name}\",\"pid\":{pid},\"ts\":"
                    )?;
                    json_writer::micros(self.out, time_ns.saturating_sub(self.origin_ns))?;
                    write!(self.out, ",\"args\":{{\"value\":{value}}}}}")?;
                }
            }
        }
        Ok(())
    }
}

impl Sink for Writer<'_> {
    fn segment(&mut self, trace: &Trace, segment: &Segment) -> io::Result<()> {
        let index = segment.thread.0 as usize;
        if self.threads.len() <= index {
            self.threads.resize_with(index + 1, || None);
        }
        self.meters.add(trace, segment, &mut |_, _| Ok(()))?;
        let mut state = self.threads[index]
            .take()
            .unwrap_or_else(|| ThreadState::new(segment.thread));
        let ThreadState { nesting, open } = &mut state;
        let mut slices = ThreadSlices::new(trace, segment.thread, self, open);
        let result = nesting.advance(trace, segment, &mut slices);
        self.threads[index] = Some(state);
        result
    }

    fn event(
        &mut self,
        trace: &Trace,
        thread: Option<ThreadIndex>,
        event: &v1::Event,
    ) -> io::Result<()> {
        self.instant(trace, thread, event)
    }

    fn asynchronous(&mut self, trace: &Trace, all: Vec<Work>) -> io::Result<()> {
        self.work(trace, all)
    }

    fn counter(&mut self, trace: &Trace, counter: &Counter) -> io::Result<()> {
        // Those of the machine stand with the first process.
        let first = trace.processes().first().map_or(0, |p| p.pid.0);
        let pid = counter.process.map_or(first, |p| trace.process(p).pid.0);
        for (at_ns, value) in &counter.values {
            self.separator.next(self.out)?;
            self.out.write_all(b"\n{\"ph\":\"C\",\"name\":")?;
            json_writer::string(self.out, &export_names::counter_name(counter))?;
            write!(self.out, ",\"pid\":{pid},\"ts\":")?;
            json_writer::micros(self.out, at_ns.saturating_sub(self.origin_ns))?;
            write!(self.out, ",\"args\":{{\"value\":{value}}}}}")?;
        }
        Ok(())
    }

    fn arrow(&mut self, _: &Trace, arrow: &Arrow) -> io::Result<()> {
        self.arrows.between_threads(*arrow);
        Ok(())
    }

    fn thread_end(&mut self, trace: &Trace, thread: ThreadIndex) -> io::Result<()> {
        self.meters.finish(trace, thread, &mut |_, _| Ok(()))?;
        let state = self.threads.get_mut(thread.0 as usize);
        let Some(ThreadState {
            mut nesting,
            mut open,
        }) = state.and_then(Option::take)
        else {
            return Ok(());
        };
        nesting.finish(
            trace,
            &mut ThreadSlices::new(trace, thread, self, &mut open),
        )
    }
}

/// A thread's slices that are not over.
struct ThreadState {
    nesting: Nesting,
    open: OpenSlices,
}

impl ThreadState {
    fn new(thread: ThreadIndex) -> ThreadState {
        ThreadState {
            nesting: Nesting::new(thread),
            open: OpenSlices::default(),
        }
    }
}

#[derive(Default)]
struct OpenSlices {
    slices: Vec<OpenSlice>,
    moment: Moment,
}

/// A slice that has begun, with the finished ones in it that began at the same moment: they stand behind it
/// in the file. These are few: the first call in each call that is open.
struct OpenSlice {
    begin_ns: u64,
    begin: BinaryMicros,
    behind: Vec<u8>,
}

/// Where the thread's latest begin or end stands. Of those at one nanosecond, begins after an end and ends
/// after a begin are a step later. So a slice without a length has one here, and ends before the next begins.
/// Ends of one function are a step apart, too, because speedscope takes one for the other.
#[derive(Default)]
struct Moment {
    ns: u64,
    step: u64,
    began: bool,
    /// What has ended since the last step.
    ended: Vec<FunctionIndex>,
}

impl Moment {
    fn begin(&mut self, ns: u64) -> BinaryMicros {
        self.reach(ns, !self.began);
        self.began = true;
        BinaryMicros::new(self.ns, self.step)
    }

    fn end(&mut self, ns: u64, function: Option<FunctionIndex>) -> BinaryMicros {
        let again = function.is_some_and(|function| self.ended.contains(&function));
        self.reach(ns, self.began || again);
        self.began = false;
        self.ended.extend(function);
        BinaryMicros::new(self.ns, self.step)
    }

    fn reach(&mut self, ns: u64, takes_step: bool) {
        if self.ns != ns || takes_step {
            self.step = if self.ns == ns { self.step + 1 } else { 0 };
            self.ns = ns;
            self.ended.clear();
        }
    }
}

struct ThreadSlices<'a, 'w> {
    trace: &'a Trace,
    thread: ThreadIndex,
    pid: u32,
    tid: u32,
    writer: &'a mut Writer<'w>,
    open: &'a mut OpenSlices,
}

impl<'a, 'w> ThreadSlices<'a, 'w> {
    fn new(
        trace: &'a Trace,
        index: ThreadIndex,
        writer: &'a mut Writer<'w>,
        open: &'a mut OpenSlices,
    ) -> Self {
        let thread = trace.thread(index);
        ThreadSlices {
            trace,
            thread: index,
            pid: trace.process(thread.process).pid.0,
            tid: thread.tid.0,
            writer,
            open,
        }
    }

    /// The event of a slice that is over.
    fn event(
        &self,
        closed: &Closed<'_>,
        begin: BinaryMicros,
        end: BinaryMicros,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        let (name, category) = match closed.level {
            Level::Frame(frame) => (export_names::function_name(self.trace, frame), "function"),
            Level::Leaf(Leaf::Blocking(probe)) => {
                (self.writer.names.blocking(probe), probe.cause().name())
            }
            Level::Leaf(Leaf::Gap) => (GAP_NAME, "gap"),
            Level::Leaf(Leaf::Code | Leaf::NoStack) => (UNKNOWN_NAME, "function"),
        };
        out.write_all(b"\n{\"ph\":\"X\",\"pid\":")?;
        json_writer::number(out, u64::from(self.pid))?;
        out.write_all(b",\"tid\":")?;
        json_writer::number(out, u64::from(self.tid))?;
        out.write_all(b",\"ts\":")?;
        begin.write(out)?;
        out.write_all(b",\"dur\":")?;
        end.since(begin).write(out)?;
        write!(out, r#","cat":"{category}","name":"#)?;
        json_writer::string(out, name)?;
        out.write_all(br#","args":{"#)?;
        let mut separator = Separator::default();
        closed.arguments(|name, value| {
            separator.next(out)?;
            out.write_all(b"\"")?;
            out.write_all(name.as_bytes())?;
            out.write_all(b"\":")?;
            json_writer::integer(out, value)
        })?;
        if let Some(name) = closed.waited_for(self.trace) {
            separator.next(out)?;
            out.write_all(br#""waited_for":"#)?;
            json_writer::string(out, name)?;
        }
        out.write_all(b"}}")
    }
}

impl Slices for ThreadSlices<'_, '_> {
    fn open(&mut self, _: Level, begin_ns: u64) -> io::Result<()> {
        let begin = (self.open.moment).begin(begin_ns.saturating_sub(self.writer.origin_ns));
        self.open.slices.push(OpenSlice {
            begin_ns,
            begin,
            behind: Vec::new(),
        });
        Ok(())
    }

    fn close(&mut self, closed: &Closed<'_>) -> io::Result<()> {
        let Some(open) = self.open.slices.pop() else {
            return Ok(());
        };
        self.writer.slices += 1;
        (self.writer.arrows).note_slice(self.thread, open.begin_ns, closed.slice.end_ns);
        let function = match closed.level {
            Level::Frame(frame) => Some(self.trace.frame(frame).function),
            Level::Leaf(_) => None,
        };
        let end_ns = closed.slice.end_ns.saturating_sub(self.writer.origin_ns);
        let end = self.open.moment.end(end_ns, function);
        let mut bytes = Vec::new();
        self.event(closed, open.begin, end, &mut bytes)?;
        if !open.behind.is_empty() {
            bytes.push(b',');
            bytes.extend(open.behind);
        }
        match self.open.slices.last_mut() {
            Some(caller) if caller.begin_ns == open.begin_ns => {
                if !caller.behind.is_empty() {
                    caller.behind.push(b',');
                }
                caller.behind.extend(bytes);
                Ok(())
            }
            _ => {
                self.writer.separator.next(self.writer.out)?;
                self.writer.out.write_all(&bytes)
            }
        }
    }
}
