//! Processes that have computed for long: their threads leave the ticks for timers of their own, which cost less and go off less
//! often (`ClockChoice::Auto`).

use stackbeat_core::layout::{CLOCK_ENDED, ThreadEntry, on_ticks};
use stackbeat_core::registry;
use stackbeat_core::sync::Ordering;
use stackbeat_core::sys;
use stackbeat_proto::v1::{Event, event, packet};

use super::{Sampler, Thread, live_entry, process_clock};
use crate::session::drainer::Order;
use crate::session::shared::Shared;
use crate::session::ticker::now_ns;

/// CPU time of a process, ns, before its threads leave the ticks: short runs have many samples, long ones have enough.
pub const AT_FIRST_NS: u64 = 1_000_000_000;
/// Distance between two looks, ns; and for each thread that is to be asked about.
const LOOK_NS: u64 = 50_000_000;
const LOOK_EACH_NS: u64 = 2_000_000;
/// Looks that find a thread running without a timer before it is on ticks for now.
const PATIENT_LOOKS: u32 = 3;

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
            let Some(entry) = shared.mapping.process(*i) else {
                continue;
            };
            let on_ticks = entry.on_ticks.load(Ordering::Relaxed);
            process.has_timers &= on_ticks == on_ticks::NO;
            if on_ticks != on_ticks::AT_FIRST || !is_due {
                continue;
            }
            let cpu_ns = sys::clock_ns(process_clock(process.pid));
            let used_ns = cpu_ns.saturating_sub(process.cpu_before_ns);
            if used_ns < AT_FIRST_NS {
                // One thread needs that long for the rest; many are found somewhat later.
                process.next_cpu_look_ns = now_ns + (AT_FIRST_NS - used_ns) / 4;
                continue;
            }
            entry.on_ticks.store(on_ticks::NO, Ordering::SeqCst);
            process.has_ticks = false;
            process.has_timers = true;
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
        for (i, process) in &mut self.processes {
            process.has_timers = false;
            let Some(entry) = shared.mapping.process(*i) else {
                continue;
            };
            if entry.on_ticks.swap(on_ticks::FOR_GOOD, Ordering::SeqCst) == on_ticks::NO {
                say(shared, process.uid, 0);
            }
        }
    }

    /// Threads that capture see it by themselves; the others wait, and go on without ticks.
    fn put_on_timers(&mut self, shared: &Shared, processes: &[u32]) {
        let of_these = |thread: &Thread| processes.contains(&thread.process);
        let cold = self.cold.extract_if(|_, thread| of_these(thread));
        let waiting: Vec<_> = cold.map(|(_, thread)| thread).collect();
        for thread in waiting {
            match live_entry(&shared.mapping, &thread) {
                Some(entry) => self.await_timer(thread, entry),
                None => self.forget(thread),
            }
        }
    }

    /// Whether the thread is on ticks and is to leave them.
    pub(super) fn is_to_have_timer(&self, thread: &Thread, entry: &ThreadEntry) -> bool {
        let process = self.processes.get(&thread.process);
        process.is_some_and(|process| process.uid == thread.process_uid && process.has_timers)
            && entry.clock_descriptor.load(Ordering::Relaxed) & CLOCK_ENDED == 0
    }

    /// No tick is needed for such a thread while it waits: at the end of a wait that its hook has published it passes that hook,
    /// and where it waits elsewhere it is looked at now and then.
    pub(super) fn await_timer(&mut self, mut thread: Thread, entry: &ThreadEntry) {
        let waits = entry.episode.load(Ordering::Relaxed);
        if self.interrupt && waits.is_multiple_of(2) {
            thread.misses = 0;
            self.doubts -= usize::from(std::mem::take(&mut thread.turn_ns) != 0);
            self.untimed.push(thread);
        } else {
            registry::put_on_timer(entry);
            self.warm(thread, entry);
        }
    }

    /// Interrupts those that go on without having passed a hook: then they start their timers.
    pub fn look_at_untimed(&mut self, shared: &Shared, now_ns: u64) {
        if now_ns < self.next_untimed_look_ns {
            return;
        }
        let each_ns = LOOK_EACH_NS * self.untimed.len() as u64;
        self.next_untimed_look_ns = now_ns + LOOK_NS.max(each_ns);
        for mut thread in std::mem::take(&mut self.untimed) {
            let Some(entry) = live_entry(&shared.mapping, &thread) else {
                self.forget(thread);
                continue;
            };
            let is_there = !entry.has_kernel_clock() && self.is_to_have_timer(&thread, entry);
            if !is_there || thread.misses >= PATIENT_LOOKS {
                // It has one by now, or cannot have one.
                self.warm(thread, entry);
                continue;
            }
            thread.misses += u32::from(self.interrupt(shared, &mut thread, entry, now_ns));
            self.untimed.push(thread);
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
