//! Processes that have computed for long: their threads leave the ticks for timers of their own, which cost less and go off less
//! often (`ClockChoice::Auto`).

use stackbeat_core::layout::on_ticks;
use stackbeat_core::registry;
use stackbeat_core::sync::Ordering;
use stackbeat_core::sys;
use stackbeat_proto::v1::{Event, event, packet};

use super::{Sampler, live_entry, process_clock};
use crate::session::drainer::Order;
use crate::session::shared::Shared;
use crate::session::ticker::now_ns;

/// CPU time of a process, ns, before its threads leave the ticks: short runs have many samples, long ones have enough.
pub const AT_FIRST_NS: u64 = 1_000_000_000;
/// Distance between two looks, ns.
const LOOK_NS: u64 = 50_000_000;

impl Sampler {
    /// Looks, when it is time, which processes have computed for long. True: threads are to see that their clock is another.
    pub fn look_for_busy(&mut self, shared: &Shared, now_ns: u64) -> bool {
        if now_ns < self.next_busy_look_ns {
            return false;
        }
        self.next_busy_look_ns = now_ns + LOOK_NS;
        let control = shared.mapping.control();
        let asked_ns = control
            .interval_ns
            .each_ref()
            .map(|ns| ns.load(Ordering::Relaxed));
        let first_ns = *self.first_intervals_ns.get_or_insert(asked_ns);
        let timer_ns = control.timer_ns.load(Ordering::Relaxed);
        let begins = control.begins_on_ticks.load(Ordering::Relaxed);
        if begins == on_ticks::AT_FIRST
            && asked_ns != first_ns
            && asked_ns.into_iter().any(|ns| ns < timer_ns)
        {
            self.put_all_on_ticks(shared);
        }
        let mut found = Vec::new();
        for (i, process) in &mut self.processes {
            let is_due = process.is_ours && now_ns >= process.next_cpu_look_ns;
            let entry = shared.mapping.process(*i).filter(|_| is_due);
            let Some(entry) =
                entry.filter(|e| e.on_ticks.load(Ordering::Relaxed) == on_ticks::AT_FIRST)
            else {
                continue;
            };
            let cpu_ns = sys::clock_ns(process_clock(process.pid));
            let used_ns = cpu_ns.saturating_sub(process.cpu_before_ns);
            if used_ns < AT_FIRST_NS {
                // One thread needs that long for the rest; many are found somewhat later.
                process.next_cpu_look_ns = now_ns + (AT_FIRST_NS - used_ns) / 4;
                continue;
            }
            entry.on_ticks.store(on_ticks::NO, Ordering::SeqCst);
            process.has_ticks = false;
            say(shared, process.uid, timer_ns);
            found.push(*i);
        }
        self.put_on_timers(shared, &found);
        !found.is_empty()
    }

    /// A shorter interval has been asked for than timers have: whoever did it wants just that.
    fn put_all_on_ticks(&mut self, shared: &Shared) {
        let begins_on_ticks = &shared.mapping.control().begins_on_ticks;
        begins_on_ticks.store(on_ticks::FOR_GOOD, Ordering::Relaxed);
        for (i, process) in &self.processes {
            let Some(entry) = shared.mapping.process(*i) else {
                continue;
            };
            if entry.on_ticks.swap(on_ticks::FOR_GOOD, Ordering::SeqCst) == on_ticks::NO {
                say(shared, process.uid, 0);
            }
        }
    }

    /// Threads that capture see it by themselves; those that wait are told in advance, so that no tick is needed for them.
    fn put_on_timers(&mut self, shared: &Shared, processes: &[u32]) {
        let of_these = |process: &u32| processes.contains(process);
        let cold = self.cold.extract_if(|_, thread| of_these(&thread.process));
        let waiting: Vec<_> = cold.map(|(_, thread)| thread).collect();
        for thread in waiting {
            match live_entry(&shared.mapping, &thread) {
                Some(entry) => {
                    registry::put_on_timer(entry);
                    self.warm(thread, entry);
                }
                None => self.forget(thread),
            }
        }
    }
}

/// Says in the trace that a process' threads are sampled by timers from here on, which go off no more often than this, ns; 0: not any
/// more.
fn say(shared: &Shared, process_uid: u32, timer_ns: u32) {
    shared.order(Order::Say(Box::new(packet::Body::Event(Event {
        process_uid,
        time_ns: now_ns(),
        name: "process".to_owned(),
        kind: event::Kind::IntervalChanged.into(),
        value: timer_ns.into(),
        ..Event::default()
    }))));
}
