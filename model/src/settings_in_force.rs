//! The settings in force at every time, from the events that say when one changed.

use std::collections::HashMap;

use stackbeat_core::ids::{Upid, Utid};
use stackbeat_proto::v1::config::SamplingClock;
use stackbeat_proto::v1::{Config, Event, event};

/// Name of the setting that says which hooks (`Category::bit`) have been taken away from the program since.
pub const UNPATCHED: &str = "withdrawn hooks";

/// The thread whose interval is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity {
    pub utid: Utid,
    pub upid: Upid,
    pub is_main: bool,
}

/// What was switched, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Stretches in which nothing was captured, in order of time; the last one may be open (`u64::MAX`).
    off: Vec<(u64, u64)>,
    /// Intervals from a time on, of threads and of main threads, in order of time.
    intervals: [Vec<(u64, u64)>; 2],
    /// By utid, of threads that have at times an interval of their own (0: no more), in order of time.
    own_intervals: HashMap<Utid, Vec<(u64, u64)>>,
    /// Where all threads have timers: the shortest that these have.
    timer_ns: u64,
    /// By upid, of processes whose threads have timers from a time on: the same.
    of_processes: HashMap<Upid, Vec<(u64, u64)>>,
    /// Since when hooks are missing that count, ns.
    unpatched_ns: Option<u64>,
}

impl Settings {
    /// `events` need not be in order.
    pub(super) fn new(config: &Config, events: &[Event]) -> Settings {
        let mut settings = Settings {
            timer_ns: match config.sampling_clock() {
                SamplingClock::Timer => config.timer_ns,
                _ => 0,
            },
            ..Settings::default()
        };
        settings.intervals[0].push((0, config.interval_ns));
        settings.intervals[1].push((
            0,
            match config.main_interval_ns {
                0 => config.interval_ns,
                ns => ns,
            },
        ));
        let mut events: Vec<&Event> = events.iter().collect();
        events.sort_by_key(|event| event.time_ns);
        for event in events {
            match (event.kind(), event.name.as_str()) {
                (event::Kind::IntervalChanged, name) => {
                    let list = match event.utid {
                        0 if event.upid != 0 => {
                            settings.of_processes.entry(Upid(event.upid)).or_default()
                        }
                        0 => &mut settings.intervals[usize::from(name == "main threads")],
                        utid => settings.own_intervals.entry(Utid(utid)).or_default(),
                    };
                    list.push((event.time_ns, event.value.max(0) as u64));
                }
                (event::Kind::ConfigChanged, "capture") => {
                    settings.switch(event.time_ns, event.value != 0);
                }
                (event::Kind::ConfigChanged, UNPATCHED) => {
                    settings.unpatched_ns.get_or_insert(event.time_ns);
                }
                _ => {}
            }
        }
        settings
    }

    fn switch(&mut self, at: u64, on: bool) {
        match self.off.last_mut() {
            Some((_, end)) if *end == u64::MAX && on => *end = at,
            Some((_, u64::MAX)) => {}
            _ if !on => self.off.push((at, u64::MAX)),
            _ => {}
        }
    }

    /// Since when allocations and frees are not all counted, ns: their hooks were more than the budget could
    /// hold. `None`: counts are exact.
    pub fn counts_end_ns(&self) -> Option<u64> {
        self.unpatched_ns
    }

    /// Whether it was ever off.
    pub fn was_off(&self) -> bool {
        !self.off.is_empty()
    }

    /// Time in which nothing was captured between these two, ns.
    pub fn off_ns(&self, from: u64, to: u64) -> u64 {
        let inside = |(begin, end): &(u64, u64)| (*end).min(to).saturating_sub((*begin).max(from));
        self.off.iter().map(inside).fold(0, u64::saturating_add)
    }

    /// From the first to the last moment between these two at which nothing was captured.
    pub(super) fn off_between(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        if self.off.is_empty() {
            return None;
        }
        let first = self.off.partition_point(|(_, end)| *end <= from);
        let behind = self.off.partition_point(|(begin, _)| *begin < to);
        let inside = self.off.get(first..behind)?;
        let (first, last) = (inside.first()?, inside.last()?);
        let off = (first.0.max(from), last.1.min(to));
        (off.0 < off.1).then_some(off)
    }

    /// The longest interval that was in force for a thread between these two.
    pub(super) fn interval_ns(&self, thread: Identity, from: u64, to: u64) -> u64 {
        let of_class = longest(&self.intervals[usize::from(thread.is_main)], from, to);
        let lists = [
            self.own_intervals.get(&thread.utid),
            self.of_processes.get(&thread.upid),
        ];
        let own = lists.into_iter().flatten();
        let longest_own = own.map(|list| longest(list, from, to)).max();
        longest_own.unwrap_or(0).max(of_class).max(self.timer_ns)
    }

    /// The intervals of threads, or of main threads: the time from which on each is in force, ns, and its
    /// length, ns. The first one begins with the recording and has the time 0.
    pub fn intervals(&self, is_main: bool) -> &[(u64, u64)] {
        &self.intervals[usize::from(is_main)]
    }

    /// The shortest intervals of processes whose threads have timers, by upid.
    pub fn process_intervals(&self) -> impl Iterator<Item = (Upid, &[(u64, u64)])> {
        let lists = self.of_processes.iter();
        lists.map(|(upid, list)| (*upid, list.as_slice()))
    }

    /// The same of the threads that had one of their own, by utid; a length of 0: from here on their class'.
    pub fn own_intervals(&self) -> impl Iterator<Item = (Utid, &[(u64, u64)])> {
        let lists = self.own_intervals.iter();
        lists.map(|(utid, list)| (*utid, list.as_slice()))
    }
}

/// The longest of a list that was in force between these two; 0 when none was.
fn longest(list: &[(u64, u64)], from: u64, to: u64) -> u64 {
    let first = list.partition_point(|(at, _)| *at <= from);
    let behind = list.partition_point(|(at, _)| *at < to);
    let in_force = &list[first.saturating_sub(1)..behind.max(first)];
    in_force.iter().map(|(_, ns)| *ns).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(time_ns: u64, kind: event::Kind, name: &str, value: i64) -> Event {
        Event {
            time_ns,
            kind: kind.into(),
            name: name.to_owned(),
            value,
            ..Event::default()
        }
    }

    #[test]
    fn switches_make_stretches() {
        use event::Kind::ConfigChanged;
        let events = [
            event(50, ConfigChanged, "capture", 1),
            event(10, ConfigChanged, "capture", 0),
            event(20, ConfigChanged, "capture", 1),
            event(40, ConfigChanged, "capture", 0),
            event(90, ConfigChanged, "capture", 0),
            event(95, ConfigChanged, "mode", 0),
        ];
        let settings = Settings::new(&Config::default(), &events);
        assert!(settings.was_off());
        assert_eq!(settings.off_ns(0, 100), 10 + 10 + 10);
        assert_eq!(settings.off_ns(15, 45), 5 + 5);
        assert_eq!(settings.off_between(0, 10), None);
        assert_eq!(settings.off_between(0, 11), Some((10, 11)));
        assert_eq!(settings.off_between(15, 45), Some((15, 45)));
        assert_eq!(settings.off_between(20, 40), None);
        assert_eq!(settings.off_between(0, 100), Some((10, 100)));
        assert_eq!(settings.off_between(200, 300), Some((200, 300)));
        assert_eq!(settings.counts_end_ns(), None);
        let settings = Settings::new(
            &Config::default(),
            &[
                event(70, ConfigChanged, UNPATCHED, 1),
                event(60, ConfigChanged, UNPATCHED, 1),
            ],
        );
        assert_eq!(settings.counts_end_ns(), Some(60));
    }

    fn of_thread(event: Event) -> Event {
        Event { utid: 7, ..event }
    }

    #[test]
    fn the_longest_interval_in_force_counts() {
        use event::Kind::IntervalChanged;
        let config = Config {
            interval_ns: 1000,
            ..Config::default()
        };
        let events = [
            event(10, IntervalChanged, "threads", 5000),
            event(20, IntervalChanged, "threads", 50),
            event(30, IntervalChanged, "main threads", 70),
            of_thread(event(40, IntervalChanged, "thread", 400)),
            of_thread(event(50, IntervalChanged, "thread", 0)),
            Event {
                upid: 3,
                ..event(35, IntervalChanged, "process", 90)
            },
        ];
        let settings = Settings::new(&config, &events);
        let of_process = |utid, upid, is_main, from, to| {
            let thread = Identity {
                utid,
                upid,
                is_main,
            };
            settings.interval_ns(thread, from, to)
        };
        let of = |utid, is_main, from, to| of_process(utid, Upid(1), is_main, from, to);
        assert_eq!(of(Utid(1), false, 0, 5), 1000);
        assert_eq!(of(Utid(1), false, 5, 25), 5000);
        assert_eq!(of(Utid(1), false, 20, 25), 50);
        assert_eq!(of(Utid(1), false, 22, 22), 50);
        assert_eq!(of(Utid(1), true, 0, 25), 1000);
        assert_eq!(of(Utid(1), true, 31, 32), 70);
        // A thread with one of its own, for some time.
        assert_eq!(of(Utid(7), false, 0, 5), 1000);
        assert_eq!(of(Utid(7), false, 21, 25), 50);
        assert_eq!(of(Utid(7), false, 41, 42), 400);
        assert_eq!(of(Utid(7), false, 51, 52), 50);
        // A process whose threads have timers.
        assert_eq!(of_process(Utid(8), Upid(3), false, 25, 26), 50);
        assert_eq!(of_process(Utid(8), Upid(3), false, 36, 37), 90);
        assert_eq!(of_process(Utid(8), Upid(3), false, 12, 36), 5000);
    }
}
