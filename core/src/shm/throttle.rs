//! The throttle: hooks compare a tick word with their thread's last; the collector advances it.
//!
//! Each class of threads has `PHASES` tick words, advanced in turn, so that captures spread over the
//! interval. When nothing runs, the ticker parks: it stores `TICK_PARKED` into every word and sleeps.
//! That equals no thread's last tick, so the next hook takes the slow path and wakes it.
//!
//! A thread's last tick is never `TICK_PARKED` or `TICK_BY_CYCLES`. The hook that finds a parked word
//! replaces it by `TICK_RUNNING`, so that it and its neighbours are throttled until the ticker has
//! taken over.

use crate::cycles::Cycles;
use crate::ids::Utid;
use crate::shm::layout::{
    CLASSES, Control, PHASES, TICK_BY_CYCLES, TICK_PARKED, TICK_RUNNING, ThreadEntry, Tick,
};
use crate::sync::{Ordering, fence, read_own};

/// What a hook that saw a new tick is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Capture, and then note this tick as the thread's last.
    Capture {
        /// The tick to note.
        tick: u32,
        /// The ticker sleeps: wake the futex word `control.parked`.
        wake: bool,
    },
    /// Nothing: too soon by the cycle counter.
    NotYet,
}

/// Hook: true when nothing is due. One load from shared memory, one from the thread's own entry.
#[inline(always)]
pub fn is_quiet(tick: &Tick, entry: &ThreadEntry) -> bool {
    // SAFETY: only the calling thread writes the last tick of its entry, and a sampler that has suspended it:
    // never meanwhile.
    tick.count.load(Ordering::Relaxed) == unsafe { read_own(&entry.last_tick) }
}

/// Hook's slow path: what a tick that differs from the last means. When `wake` comes back true, the
/// caller wakes the futex word `control.parked`.
pub fn due(
    control: &Control,
    tick: &Tick,
    entry: &ThreadEntry,
    class: usize,
    cycles: impl FnOnce() -> Cycles,
) -> Due {
    match tick.count.load(Ordering::Relaxed) {
        TICK_PARKED => {
            // Pairs with the ticker's release store of TICK_PARKED: its store to `parked` before
            // that is now seen, so the swap below cannot be overtaken by it.
            fence(Ordering::Acquire);
            let wake = control.parked.swap(0, Ordering::SeqCst) != 0;
            let _ = tick.count.compare_exchange(
                TICK_PARKED,
                TICK_RUNNING,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            Due::Capture {
                tick: TICK_RUNNING,
                wake,
            }
        }
        TICK_BY_CYCLES => {
            let interval = control
                .interval_cycles
                .get(class)
                .map_or(Cycles(0), |i| i.load(Ordering::Relaxed));
            let last = entry.last_capture_cycles.load(Ordering::Relaxed);
            if cycles().wrapping_sub(last) < interval {
                Due::NotYet
            } else {
                // Any ordinary value that is not the tick: the next hook comes here again.
                Due::Capture {
                    tick: entry.last_tick.load(Ordering::Relaxed),
                    wake: false,
                }
            }
        }
        tick => Due::Capture { tick, wake: false },
    }
}

/// Intervals for which a thread's moments are an interval apart: so a time holds one as often as its length
/// says, and no rhythm of the program falls in with them for long.
const EQUALLY_SPACED: u64 = 32;

/// Where no ticks come, each thread has moments of its own instead: one in each interval since the counter
/// was 0, drawn at random but always the same. A time holds one as likely as it would hold a tick. The first
/// from `from` on; `None`: there is no interval.
pub fn next_moment(utid: Utid, interval: Cycles, from: Cycles) -> Option<Cycles> {
    let interval = interval.0;
    let first = from.0.checked_div(interval)?;
    let moment = |i: u64| {
        let drawn = mixed((i / EQUALLY_SPACED) ^ (u64::from(utid.0) << 40));
        let part = (u128::from(drawn) * u128::from(interval)) >> 64;
        Cycles(i.saturating_mul(interval).saturating_add(part as u64))
    };
    match moment(first) {
        of_first if of_first >= from => Some(of_first),
        _ => Some(moment(first.saturating_add(1))),
    }
}

/// A number in which each bit depends on each of this one's (the finalizer of MurmurHash3).
fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let number = (number ^ (number >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    number ^ (number >> 33)
}

/// The tick word of a thread.
pub fn tick_of(control: &Control, tick_index: u32) -> &Tick {
    let i = tick_index as usize;
    match control.ticks.get(i / PHASES) {
        Some(class) => &class[i % PHASES],
        None => &control.still,
    }
}

/// The tick that follows this one.
pub fn after(tick: u32) -> u32 {
    if tick >= TICK_RUNNING - 1 {
        1
    } else {
        tick + 1
    }
}

/// The ticker's side: the counts behind the words.
#[derive(Debug)]
pub struct Ticker {
    counts: [[u32; PHASES]; CLASSES],
    still: u32,
}

impl Default for Ticker {
    fn default() -> Self {
        Ticker {
            // A thread's last tick starts as 0, so that its first hook captures.
            counts: [[1; PHASES]; CLASSES],
            still: 1,
        }
    }
}

impl Ticker {
    /// Advances one word, at the moment `now` by the session's clock: the threads of this class and phase
    /// capture at their next hook.
    pub fn advance(&mut self, control: &Control, class: usize, phase: usize, now: Cycles) {
        let count = &mut self.counts[class][phase];
        *count = after(*count);
        let tick = &control.ticks[class][phase];
        tick.at.store(now, Ordering::Relaxed);
        tick.count.store(*count, Ordering::Release);
    }

    /// Advances every word.
    pub fn advance_all(&mut self, control: &Control, now: Cycles) {
        self.advance_ticks(control, now);
        self.move_still(control);
    }

    /// Advances the words of all threads on ticks.
    pub fn advance_ticks(&mut self, control: &Control, now: Cycles) {
        for class in 0..CLASSES {
            for phase in 0..PHASES {
                self.advance(control, class, phase, now);
            }
        }
    }

    /// Has the threads that no ticks come to look once at what their entries say.
    pub fn move_still(&mut self, control: &Control) {
        self.still = after(self.still);
        control.still.count.store(self.still, Ordering::Release);
    }

    /// Lets hooks of a class gate themselves by the cycle counter (intervals too short for ticks).
    pub fn by_cycles(&self, control: &Control, class: usize) {
        for tick in &control.ticks[class] {
            tick.count.store(TICK_BY_CYCLES, Ordering::Release);
        }
    }

    /// After a pause: threads that captured when it ended stay quiet until the next tick, the others capture
    /// at their next hook.
    pub fn resume(&self, control: &Control) {
        for tick in control.ticks.as_flattened() {
            tick.count.store(TICK_RUNNING, Ordering::Release);
        }
    }

    /// Parks: from here on the first hook of any thread sets `control.parked` to 0 and wakes it.
    /// Sleep with `platform::wait(&control.parked, 1, …)` while [`is_parked`] holds, then call
    /// [`Ticker::resume`].
    pub fn park(&self, control: &Control) {
        control.parked.store(1, Ordering::SeqCst);
        for tick in control.ticks.as_flattened() {
            tick.count.store(TICK_PARKED, Ordering::Release);
        }
    }
}

/// Ticker: true until a hook woke it.
pub fn is_parked(control: &Control) -> bool {
    control.parked.load(Ordering::SeqCst) != 0
}

/// Ticker: leaves the parked state by itself. Follow with [`Ticker::resume`].
pub fn unpark(control: &Control) {
    control.parked.store(0, Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::next_moment;
    use crate::cycles::Cycles;
    use crate::ids::Utid;
    use core::ops::Range;

    fn has_moment(utid: Utid, interval: Cycles, time: Range<Cycles>) -> bool {
        next_moment(utid, interval, time.start).is_some_and(|moment| moment < time.end)
    }

    /// Calls of any length are met in proportion to it, by each thread's own moments.
    #[test]
    fn a_moment_lies_in_a_time_as_often_as_a_tick_would() {
        const INTERVAL: u64 = 3_000_017;
        for length in [INTERVAL / 20, INTERVAL / 3, INTERVAL - 1] {
            let met = |utid| {
                let starts = (0..20_000u64).map(|i| (1 << 50) + i * 7_654_321);
                let times = starts.map(|start| Cycles(start)..Cycles(start + length));
                times
                    .filter(|time| has_moment(Utid(utid), Cycles(INTERVAL), time.clone()))
                    .count()
            };
            let share = met(1) as f64 / 20_000.0;
            let expected = length as f64 / INTERVAL as f64;
            assert!((share - expected).abs() < 0.02, "{share} of {expected}");
            assert_ne!(met(1), met(2));
        }
        // Each moment is met once, by calls that follow one another.
        let calls = (0..100_000u64).map(|i| Cycles(i * 30_000)..Cycles((i + 1) * 30_000));
        let met = calls
            .filter(|call| has_moment(Utid(3), Cycles(INTERVAL), call.clone()))
            .count() as u64;
        assert!(met.abs_diff(100_000 * 30_000 / INTERVAL) <= 1, "{met}");
        assert!(!has_moment(Utid(1), Cycles(0), Cycles(0)..Cycles(10)));
    }
}
