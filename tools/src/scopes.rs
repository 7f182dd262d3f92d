//! The program's own scopes and asynchronous work, put together from their begins and ends.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use stackbeat_model::{ProcessIndex, ThreadIndex, Trace};
use stackbeat_proto::v1::{Event, event::Kind};

/// A scope that has ended, or was open when its thread did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scope {
    pub thread: ThreadIndex,
    pub name: String,
    pub begin_ns: u64,
    pub end_ns: u64,
    /// Scopes of the thread around it.
    pub depth: usize,
}

/// Scopes that are open.
#[derive(Debug, Default)]
pub(crate) struct Open {
    by_thread: HashMap<ThreadIndex, Vec<(String, u64)>>,
}

impl Open {
    pub(crate) fn begin(&mut self, thread: ThreadIndex, name: &str, at_ns: u64) {
        let open = self.by_thread.entry(thread).or_default();
        open.push((name.to_owned(), at_ns));
    }

    /// The scope that ends; `None` for an end without a begin.
    pub(crate) fn end(&mut self, thread: ThreadIndex, at_ns: u64) -> Option<Scope> {
        let open = self.by_thread.get_mut(&thread)?;
        let (name, begin_ns) = open.pop()?;
        Some(Scope {
            thread,
            name,
            begin_ns,
            end_ns: at_ns.max(begin_ns),
            depth: open.len(),
        })
    }

    /// Those that never ended; they last as long as their threads.
    pub(crate) fn rest(&mut self, end_of: impl Fn(ThreadIndex) -> u64) -> Vec<Scope> {
        let mut threads: Vec<_> = self.by_thread.keys().copied().collect();
        threads.sort();
        let mut rest = Vec::new();
        for thread in threads {
            while let Some(scope) = self.end(thread, end_of(thread)) {
                rest.push(scope);
            }
        }
        rest
    }
}

/// Asynchronous work that has ended, or was under way when its process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    pub process: ProcessIndex,
    /// Where it began.
    pub thread: ThreadIndex,
    pub name: String,
    pub id: i64,
    pub begin_ns: u64,
    pub end_ns: u64,
}

/// A lane for each, in order of their begins: what overlaps, of one name in one process, is in different
/// lanes. Each gets the lowest that is free.
pub(crate) fn lanes(all: &[Work]) -> Vec<usize> {
    /// Of one name in one process.
    #[derive(Default)]
    struct Lanes {
        /// With the end of what is in them.
        taken: BinaryHeap<Reverse<(u64, usize)>>,
        free: BinaryHeap<Reverse<usize>>,
    }
    let mut lanes: HashMap<(ProcessIndex, &str), Lanes> = HashMap::new();
    let lanes = all.iter().map(|work| {
        let key = (work.process, work.name.as_str());
        let Lanes { taken, free } = lanes.entry(key).or_default();
        while let Some(Reverse((until, lane))) = taken.peek().copied()
            && until <= work.begin_ns
        {
            taken.pop();
            free.push(Reverse(lane));
        }
        let lane = match free.pop() {
            Some(Reverse(lane)) => lane,
            None => taken.len(),
        };
        taken.push(Reverse((work.end_ns, lane)));
        lane
    });
    lanes.collect()
}

/// Begins and ends of asynchronous work. Those of several threads come in any order, so they are put together
/// when all are there.
#[derive(Debug, Default)]
pub(crate) struct Asynchronous {
    names: HashMap<String, u32>,
    points: Vec<Point>,
}

#[derive(Clone, Copy, Debug)]
struct Point {
    at_ns: u64,
    ends: bool,
    process: ProcessIndex,
    name: u32,
    id: i64,
    thread: ThreadIndex,
}

impl Asynchronous {
    /// True: it is an event of this kind.
    pub(crate) fn add(&mut self, trace: &Trace, thread: ThreadIndex, event: &Event) -> bool {
        let is_one = matches!(event.kind(), Kind::AsyncBegin | Kind::AsyncEnd);
        if is_one {
            self.point(trace.thread(thread).process, thread, event);
        }
        is_one
    }

    fn point(&mut self, process: ProcessIndex, thread: ThreadIndex, event: &Event) {
        let next = self.names.len() as u32;
        let name = match self.names.get(&event.name) {
            Some(name) => *name,
            None => *self.names.entry(event.name.clone()).or_insert(next),
        };
        self.points.push(Point {
            at_ns: event.time_ns,
            ends: event.kind() == Kind::AsyncEnd,
            process,
            name,
            id: event.value,
            thread,
        });
    }

    /// All of it, by begin. An end without a begin is nobody's; with two begins it ends the later.
    pub(crate) fn finish(mut self, end_of: impl Fn(ProcessIndex) -> u64) -> Vec<Work> {
        let mut names = vec![String::new(); self.names.len()];
        for (name, number) in self.names {
            names[number as usize] = name;
        }
        // What happened at one moment stays in the order of its thread.
        self.points.sort_by_key(|point| point.at_ns);
        let mut open: HashMap<(ProcessIndex, u32, i64), Vec<Point>> = HashMap::new();
        let mut ended = Vec::new();
        for point in self.points {
            let key = (point.process, point.name, point.id);
            if !point.ends {
                open.entry(key).or_default().push(point);
            } else if let Some(begin) = open.get_mut(&key).and_then(Vec::pop) {
                ended.push((begin, point.at_ns));
            }
        }
        for begin in open.into_values().flatten() {
            ended.push((begin, end_of(begin.process).max(begin.at_ns)));
        }
        // What is open comes in no order.
        ended.sort_by_key(|(begin, end_ns)| {
            let of = (begin.process, begin.name, begin.thread);
            (begin.at_ns, begin.id, *end_ns, of)
        });
        let work = ended.into_iter().map(|(begin, end_ns)| Work {
            process: begin.process,
            thread: begin.thread,
            name: names[begin.name as usize].clone(),
            id: begin.id,
            begin_ns: begin.at_ns,
            end_ns,
        });
        work.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asynchronous_work_is_put_together_across_threads_and_overlaps_in_lanes() {
        let (a, b) = (ThreadIndex(1), ThreadIndex(2));
        let (here, there) = (ProcessIndex(0), ProcessIndex(1));
        let mut all = Asynchronous::default();
        let mut at = |process, thread, time_ns, kind: Kind, id| {
            let event = Event {
                time_ns,
                name: "get".to_owned(),
                kind: kind.into(),
                value: id,
                ..Event::default()
            };
            all.point(process, thread, &event);
        };
        // Not in order of time, as threads are read one after the other.
        at(here, b, 40, Kind::AsyncEnd, 1);
        at(here, b, 5, Kind::AsyncEnd, 3);
        at(there, b, 50, Kind::AsyncEnd, 2);
        at(here, a, 10, Kind::AsyncBegin, 1);
        at(here, a, 20, Kind::AsyncBegin, 2);
        at(here, a, 40, Kind::AsyncBegin, 1);
        at(here, a, 45, Kind::AsyncEnd, 1);
        let work = all.finish(|_| 99);
        let seen: Vec<_> = work
            .iter()
            .zip(lanes(&work))
            .map(|(w, lane)| (w.thread, w.id, w.begin_ns, w.end_ns, lane))
            .collect();
        assert_eq!(
            seen,
            [(a, 1, 10, 40, 0), (a, 2, 20, 99, 1), (a, 1, 40, 45, 0)]
        );
    }

    #[test]
    fn work_that_never_ends_takes_a_lane_each_and_comes_in_one_order() {
        let all = || {
            let mut all = Asynchronous::default();
            for number in 0..100_000_u32 {
                let event = Event {
                    time_ns: u64::from(number / 10),
                    name: "get".to_owned(),
                    kind: Kind::AsyncBegin.into(),
                    ..Event::default()
                };
                let process = ProcessIndex(number % 10);
                all.point(process, ThreadIndex(number % 10), &event);
            }
            all.finish(|_| 1_000_000)
        };
        let work = all();
        assert_eq!(work, all());
        let lanes = lanes(&work);
        assert_eq!(lanes.iter().max(), Some(&9_999));
    }

    #[test]
    fn scopes_nest_and_odd_ends_do_nothing() {
        let (a, b) = (ThreadIndex(1), ThreadIndex(2));
        let mut open = Open::default();
        assert_eq!(open.end(a, 1), None);
        open.begin(a, "outer", 10);
        open.begin(b, "other", 11);
        open.begin(a, "inner", 12);
        let inner = open.end(a, 20).expect("was open");
        assert_eq!((inner.name.as_str(), inner.depth), ("inner", 1));
        assert_eq!((inner.begin_ns, inner.end_ns), (12, 20));
        assert_eq!(open.end(a, 30).map(|s| s.depth), Some(0));
        assert_eq!(open.end(a, 31), None);
        let rest = open.rest(|_| 99);
        assert_eq!(rest.len(), 1);
        assert_eq!((rest[0].name.as_str(), rest[0].end_ns), ("other", 99));
    }
}
