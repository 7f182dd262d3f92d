//! Arrows between slices, as flow events: those of the program, wake-ups and starts of threads.
//!
//! A reader ties a flow event to the innermost slice around its time, and complains where there is none. A
//! thread's slices leave no hole between the first and the last one, so each end is moved into that stretch.
//! An arrow of a thread without slices is left out.
//!
//! Perfetto draws an arrow from the slice that began first to the other one. A wait has begun before the call
//! that ends it. So where an arrow leads to, a slice of one nanosecond begins, unless a thread begins there.
//! It stands after all that the thread has at that nanosecond, and ends before the next one.

use std::collections::HashMap;
use std::io::{self, Write};

use stackbeat_model::{ThreadIndex, Trace};
use stackbeat_proto::v1::{self, event::Kind};

use super::super::arrows::{Arrow, Kind as Caused};
use super::super::json_writer::{self, BinaryMicros, Separator};

/// What a flow event is for its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Begin,
    Step,
    End,
}

impl Flow {
    /// Of an event of the program's.
    pub(super) fn of(kind: Kind) -> Option<Flow> {
        match kind {
            Kind::FlowBegin => Some(Flow::Begin),
            Kind::FlowStep => Some(Flow::Step),
            Kind::FlowEnd => Some(Flow::End),
            _ => None,
        }
    }

    fn phase(self) -> &'static str {
        match self {
            Flow::Begin => "s",
            Flow::Step => "t",
            // Ends at the slice around it, like the others, and not at the next one.
            Flow::End => "f\",\"bp\":\"e",
        }
    }
}

/// A point of a program's own flow.
struct Point {
    thread: ThreadIndex,
    time_ns: u64,
    flow: Flow,
    name: String,
    id: u64,
}

/// Collects them until all slices are written.
#[derive(Default)]
pub(super) struct Arrows {
    points: Vec<Point>,
    between: Vec<Arrow>,
    /// From the begin of a thread's first slice to the end of its last one.
    slices: HashMap<ThreadIndex, (u64, u64)>,
}

impl Arrows {
    pub(super) fn note_slice(&mut self, thread: ThreadIndex, begin_ns: u64, end_ns: u64) {
        let (first_ns, last_ns) = self.slices.entry(thread).or_insert((begin_ns, end_ns));
        *first_ns = begin_ns.min(*first_ns);
        *last_ns = end_ns.max(*last_ns);
    }

    pub(super) fn program(&mut self, thread: ThreadIndex, flow: Flow, event: &v1::Event) {
        self.points.push(Point {
            thread,
            time_ns: event.time_ns,
            flow,
            name: event.name.clone(),
            id: event.value as u64,
        });
    }

    pub(super) fn between_threads(&mut self, arrow: Arrow) {
        self.between.push(arrow);
    }

    /// The time within the thread's slices that is next to this one; `None`: it has none.
    fn within_slices(&self, thread: ThreadIndex, time_ns: u64) -> Option<u64> {
        let (first_ns, last_ns) = *self.slices.get(&thread)?;
        // At its end a slice is not around a time any more.
        (last_ns > first_ns).then(|| time_ns.clamp(first_ns, last_ns - 1))
    }

    pub(super) fn write(
        self,
        trace: &Trace,
        separator: &mut Separator,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let mut writer = Writer {
            trace,
            separator,
            out,
        };
        for point in &self.points {
            let Some(time_ns) = self.within_slices(point.thread, point.time_ns) else {
                continue;
            };
            let name = match point.name.is_empty() {
                true => "flow",
                false => &point.name,
            };
            let (thread, id) = (point.thread, point.id);
            if point.flow != Flow::Begin {
                writer.moment("flow", name, thread, time_ns)?;
            }
            writer.flow(point.flow, "flow", name, id, thread, time_ns)?;
        }
        for (id, arrow) in (1..).zip(&self.between) {
            let (from, to) = (arrow.from.thread, arrow.to.thread);
            let Some(to_ns) = self.within_slices(to, arrow.to.time_ns) else {
                continue;
            };
            let from_ns = arrow.from.time_ns.min(to_ns);
            let Some(from_ns) = self.within_slices(from, from_ns) else {
                continue;
            };
            let category = arrow.kind.category();
            let [name, at_its_end] = arrow.texts(trace);
            writer.flow(Flow::Begin, category, &name, id, from, from_ns)?;
            if arrow.kind == Caused::Wakeup {
                writer.moment(category, &at_its_end, to, to_ns)?;
            }
            writer.flow(Flow::End, category, &name, id, to, to_ns)?;
        }
        Ok(())
    }
}

struct Writer<'a> {
    trace: &'a Trace,
    separator: &'a mut Separator,
    out: &'a mut dyn Write,
}

impl Writer<'_> {
    fn flow(
        &mut self,
        flow: Flow,
        category: &str,
        name: &str,
        id: u64,
        thread: ThreadIndex,
        time_ns: u64,
    ) -> io::Result<()> {
        self.event(flow.phase(), category, name)?;
        write!(self.out, ",\"id\":\"{id:#x}\"")?;
        self.end(thread, time_ns)
    }

    /// A slice as short as can be, innermost of those around it.
    fn moment(
        &mut self,
        category: &str,
        name: &str,
        thread: ThreadIndex,
        time_ns: u64,
    ) -> io::Result<()> {
        self.event("X", category, name)?;
        self.out.write_all(b",\"dur\":")?;
        BinaryMicros::SHORTEST.write(self.out)?;
        self.end(thread, time_ns)
    }

    fn event(&mut self, phase: &str, category: &str, name: &str) -> io::Result<()> {
        self.separator.next(self.out)?;
        write!(
            self.out,
            "\n{{\"ph\":\"{phase}\",\"cat\":\"{category}\",\"name\":"
        )?;
        json_writer::string(self.out, name)
    }

    fn end(&mut self, thread: ThreadIndex, time_ns: u64) -> io::Result<()> {
        let thread = self.trace.thread(thread);
        let pid = self.trace.process(thread.process).pid;
        write!(self.out, ",\"pid\":{pid},\"tid\":{},\"ts\":", thread.tid)?;
        let since_ns = time_ns.saturating_sub(self.trace.start_ns());
        BinaryMicros::new(since_ns, BinaryMicros::LAST_STEP).write(self.out)?;
        self.out.write_all(b"}")
    }
}
