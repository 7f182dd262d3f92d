//! Keeps the budget: reads now and then what the recording has cost, moves the intervals, and says in the
//! trace which ones are in force and what it cost.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use stackbeat_core::ids::{Upid, Utid};
use stackbeat_core::platform;
use stackbeat_core::probe::Category;
use stackbeat_core::shm::layout::{CLASSES, ThreadClass};
use stackbeat_proto::v1::{Event, event, packet};

use super::clocks::now_ns;
use super::cost::{Cost, Costs};
use super::options::Budget;
use super::orders::Order;
use super::pace::Pace;
use super::shared::{Shared, count};
use crate::drain::counters::Counters;
use stackbeat_model::UNPATCHED;

/// Distance between two polls of what the recording costs, ns; the first comes sooner.
const POLL_NS: u64 = 200_000_000;
const FIRST_POLL_NS: u64 = 50_000_000;
/// Wake-ups between two polls, so that long intervals are judged by more than a few captures; but a poll
/// comes at most so many times later than it would.
const POLL_WAKES: u32 = 16;
const POLL_LATER: u64 = 2;
/// A poll takes at most this part of the time.
const POLL_SHARE: u64 = 1_000;
/// Polls between two packets of the counter.
const COUNTER_POLLS: u32 = 10;

/// The state of the ticker's thread that is about cost.
#[derive(Debug)]
pub(crate) struct Keeper {
    pace: Pace,
    costs: Costs,
    wakes: u32,
    /// Active threads, summed over the wake-ups.
    active: u64,
    /// When the next poll comes, with enough wake-ups and in any case.
    next_ns: u64,
    latest_ns: u64,
    /// Ticks are at least so far apart, ns; and the least that was wanted since the last poll: with a poll
    /// they get further apart, and at once nearer.
    least_ns: u64,
    wanted_ns: Option<u64>,
    /// When polls began, 0: not yet.
    began_ns: u64,
    told: Told,
    /// `None`: the trace is to have no counters.
    counters: Option<Counters>,
    polls: u32,
}

/// Hooks that only count, and nothing else: those of locks and waits keep books together.
const UNPATCHABLE: u64 = Category::Alloc.bit();

/// Has the agents take the hooks away that cost the budget, for the rest of the session: what was not counted
/// cannot be made up for. From here on the trace says that counts are incomplete.
fn unpatch(shared: &Shared, now_ns: u64) {
    let unpatched = &shared.mapping.control().unpatched;
    if unpatched.swap(UNPATCHABLE, Ordering::Relaxed) == UNPATCHABLE {
        return;
    }
    count(&shared.figures.unpatches, 1);
    shared.order(Order::Say(Box::new(packet::Body::Event(Event {
        time_ns: now_ns,
        name: UNPATCHED.to_owned(),
        kind: event::Kind::ConfigChanged.into(),
        value: UNPATCHABLE as i64,
        ..Event::default()
    }))));
}

fn shortest(asked_ns: [u64; CLASSES]) -> u64 {
    asked_ns.into_iter().min().unwrap_or(1)
}

/// The intervals that the trace knows to be in force, ns; 0 for a thread: its class'.
#[derive(Debug)]
struct Told {
    /// The intervals asked for, ns. Whoever asks for others says so in the trace.
    asked: [u64; CLASSES],
    classes: [u64; CLASSES],
    threads: HashMap<Utid, u64>,
}

impl Told {
    fn new(asked_ns: [u64; CLASSES]) -> Told {
        Told {
            asked: asked_ns,
            classes: asked_ns,
            threads: HashMap::new(),
        }
    }

    /// Whether the trace has yet to be told that this is in force, ns, where so much is asked for.
    fn is_news(&mut self, class: usize, asked_ns: u64, in_force_ns: u64) -> bool {
        if std::mem::replace(&mut self.asked[class], asked_ns) != asked_ns {
            self.classes[class] = asked_ns;
        }
        std::mem::replace(&mut self.classes[class], in_force_ns) != in_force_ns
    }
}

impl Keeper {
    /// `asked_ns`: the intervals asked for by class. `cpu_before`: what this process had used when the
    /// session began.
    pub(crate) fn new(
        budget: Option<Budget>,
        has_counters: bool,
        asked_ns: [u64; CLASSES],
        cpu_before: Duration,
    ) -> Keeper {
        Keeper {
            pace: Pace::new(budget, shortest(asked_ns)),
            costs: Costs::new(cpu_before.as_nanos() as u64),
            wakes: 0,
            active: 0,
            next_ns: 0,
            latest_ns: 0,
            least_ns: 0,
            wanted_ns: None,
            began_ns: 0,
            told: Told::new(asked_ns),
            counters: has_counters.then(Counters::default),
            polls: 0,
        }
    }

    /// The interval in force for one that was asked for, ns.
    pub(crate) fn interval_ns(&self, asked_ns: u64) -> u64 {
        self.pace.interval_ns(asked_ns)
    }

    /// The same of ticks.
    pub(crate) fn tick_interval_ns(&self, asked_ns: u64) -> u64 {
        self.interval_ns(asked_ns).max(self.least_ns)
    }

    /// Ticks need not be nearer than this, ns, as far as is known at this moment.
    pub(crate) fn want_at_least(&mut self, least_ns: u64) {
        let wanted_ns = self.wanted_ns.map_or(least_ns, |ns| ns.min(least_ns));
        self.wanted_ns = Some(wanted_ns);
        if wanted_ns < self.least_ns {
            self.least_ns = wanted_ns;
            (self.next_ns, self.latest_ns) = (0, 0);
        }
    }

    /// The session begins: its start is owed, and the first intervals are put in force. `processes`, here and
    /// below: the live ones, by upid, and their CPU time, ns.
    pub(crate) fn begin(
        &mut self,
        shared: &Shared,
        processes: impl Iterator<Item = (Upid, u64)>,
        asked_ns: [u64; CLASSES],
    ) {
        let now = now_ns();
        self.began_ns = now;
        let cost = self.costs.poll(shared, processes, now, 0.0);
        let started_ns = cost.ticker_ns + cost.besides_ns;
        self.pace.owe(started_ns);
        count(&shared.figures.cost_ns, started_ns);
        self.put_in_force(shared, &cost, asked_ns);
        self.tell(shared, &cost, now, asked_ns);
        self.poll_after(now, FIRST_POLL_NS);
    }

    /// What was used before says nothing about the time after it: the end of a pause.
    pub(crate) fn start_over(
        &mut self,
        shared: &Shared,
        processes: impl Iterator<Item = (Upid, u64)>,
    ) {
        let now = now_ns();
        self.costs.poll(shared, processes, now, 0.0);
        self.poll_after(now, FIRST_POLL_NS);
    }

    fn poll_after(&mut self, now: u64, distance_ns: u64) {
        (self.wakes, self.active) = (0, 0);
        self.next_ns = now + distance_ns;
        self.latest_ns = now + distance_ns * POLL_LATER;
    }

    /// The ticker woke up and met this many active threads. `asked_ns`: the intervals asked for by class.
    pub(crate) fn woke(
        &mut self,
        shared: &Shared,
        processes: impl Iterator<Item = (Upid, u64)>,
        active: usize,
        asked_ns: [u64; CLASSES],
    ) {
        self.wakes += 1;
        self.active += active as u64;
        let now = now_ns();
        if now < self.next_ns || self.wakes < POLL_WAKES && now < self.latest_ns {
            return;
        }
        self.least_ns = self.wanted_ns.take().unwrap_or(self.least_ns);
        // By the clock of this thread: having to wait for a processor is no work.
        let used_ns = platform::thread_cpu_ns();
        let active = self.active as f64 / f64::from(self.wakes);
        let cost = self.costs.poll(shared, processes, now, active);
        self.pace.adjust(&cost, shortest(asked_ns));
        self.pace.retain(|utid| self.costs.has(utid));
        self.told.threads.retain(|utid, _| self.costs.has(*utid));
        self.put_in_force(shared, &cost, asked_ns);
        if self.pace.has_to_unpatch() {
            unpatch(shared, now);
        }
        self.tell(shared, &cost, now, asked_ns);
        self.note(shared, &cost, now);
        let took = platform::thread_cpu_ns().saturating_sub(used_ns);
        // Soon after the beginning, polls are as far apart as that is away.
        let usual_ns = POLL_NS.min(now - self.began_ns);
        self.poll_after(now, usual_ns.max(took * POLL_SHARE));
    }

    /// The session ends: hands over what the trace does not have yet.
    pub(crate) fn finish(mut self, shared: &Shared) {
        self.write(shared);
    }

    fn put_in_force(&self, shared: &Shared, cost: &Cost, asked_ns: [u64; CLASSES]) {
        let control = shared.mapping.control();
        for (word, asked_ns) in control.kept_interval_ns.iter().zip(asked_ns) {
            let ns = u32::try_from(self.interval_ns(asked_ns)).unwrap_or(u32::MAX);
            word.store(ns, Ordering::Relaxed);
        }
        for (word, asked_ns) in control.kept_wait_ns.iter().zip(asked_ns) {
            let ns = u32::try_from(self.pace.wait_ns(asked_ns)).unwrap_or(u32::MAX);
            word.store(ns, Ordering::Relaxed);
        }
        shared.leisure.store(self.pace.leisure(), Ordering::Relaxed);
        let ticks_ns = self.tick_interval_ns(shortest(asked_ns));
        shared.ticks_apart_ns.store(ticks_ns, Ordering::Relaxed);
        for thread in &cost.threads {
            if let Some(entry) = shared.mapping.thread(thread.entry)
                && entry.utid() == thread.utid
            {
                entry
                    .every
                    .store(self.pace.every(thread.utid), Ordering::Relaxed);
            }
        }
    }

    /// Says in the trace what has changed.
    fn tell(&mut self, shared: &Shared, cost: &Cost, now: u64, asked_ns: [u64; CLASSES]) {
        let say = |utid, name: &str, interval_ns: u64| {
            shared.order(Order::Say(Box::new(packet::Body::Event(Event {
                utid,
                time_ns: now,
                name: name.to_owned(),
                kind: event::Kind::IntervalChanged.into(),
                value: interval_ns as i64,
                ..Event::default()
            }))));
        };
        for (class, name) in [
            (ThreadClass::Other, "threads"),
            (ThreadClass::Main, "main threads"),
        ] {
            let class = class as usize;
            let interval_ns = self.tick_interval_ns(asked_ns[class]);
            if self.told.is_news(class, asked_ns[class], interval_ns) {
                if let Some(counters) = &mut self.counters {
                    let series = format!("interval of {name}");
                    counters.push(Upid(0), series, "ns", now, interval_ns as i64);
                }
                say(0, name, interval_ns);
            }
        }
        for thread in &cost.threads {
            let every = self.pace.every(thread.utid);
            let entry = shared.mapping.thread(thread.entry);
            let class = entry.map_or(0, |e| e.class.load(Ordering::Relaxed) as usize);
            let of_class = self.tick_interval_ns(asked_ns[class.min(CLASSES - 1)]);
            let interval_ns = match every {
                1 => 0,
                every => of_class * u64::from(every),
            };
            if self.told.threads.get(&thread.utid).copied().unwrap_or(0) != interval_ns {
                match interval_ns {
                    0 => drop(self.told.threads.remove(&thread.utid)),
                    ns => drop(self.told.threads.insert(thread.utid, ns)),
                }
                say(thread.utid.0, "thread", interval_ns);
            }
        }
    }

    /// Keeps what it cost: in the figures, and as a counter.
    fn note(&mut self, shared: &Shared, cost: &Cost, now: u64) {
        count(&shared.figures.cost_ns, cost.total_ns());
        count(&shared.figures.cost_captures_ns, cost.captures_ns());
        count(&shared.figures.cost_hooks_ns, cost.hooks_ns);
        count(&shared.figures.cost_of_ns, cost.program_ns);
        count(&shared.figures.cost_of_inferred_ns, cost.inferred_ns);
        if let Some(counters) = &mut self.counters {
            let ppm = cost.total_ns() * 1_000_000 / cost.program_ns.max(1);
            counters.push(Upid(0), "recording cost".to_owned(), "ppm", now, ppm as i64);
        }
        self.polls += 1;
        if self.polls.is_multiple_of(COUNTER_POLLS) {
            self.write(shared);
        }
    }

    fn write(&mut self, shared: &Shared) {
        for batch in self.counters.iter_mut().flat_map(Counters::finish) {
            shared.order(Order::Say(Box::new(packet::Body::Counters(batch))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_is_not_said_a_second_time() {
        let mut told = Told::new([1_000; CLASSES]);
        assert!(!told.is_news(0, 1_000, 1_000));
        assert!(told.is_news(0, 1_000, 2_000));
        assert!(!told.is_news(0, 1_000, 2_000));
        // Whoever asks for another one says so; what becomes of it is news, and the way back.
        assert!(!told.is_news(0, 300, 300));
        assert!(told.is_news(0, 300, 600));
        assert!(told.is_news(0, 300, 300));
        assert!(told.is_news(0, 500, 2_000));
    }
}
