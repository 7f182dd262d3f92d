//! Advances the ticks, and with each tick has the sampler look at the threads that took no notice of
//! the last one. Parks when nothing runs.

use std::sync::atomic::Ordering;

use stackbeat_core::layout::{CLASSES, PHASES};
use stackbeat_core::throttle::{self, Ticker};
use stackbeat_core::{clock, sys};

use super::sampler::Sampler;
use super::shared::{Shared, count};

/// Steps shorter than this are not worth their wake-ups: the phases of short intervals advance
/// together.
const MIN_STEP_NS: u64 = 200_000;
/// Intervals without a sign of life before the ticker parks.
const QUIET_INTERVALS: u64 = 8;
/// At least that long without a sign of life, ns.
const QUIET_NS: u64 = 10_000_000;
/// Looks at the program's CPU clocks while parked: first and longest distance, ns. They find threads
/// that run without passing a hook.
const PARKED_LOOK_NS: (u64, u64) = (10_000_000, 50_000_000);
/// Thread entries in reserve, so that threads started until the next tick find one.
const SPARE_THREADS: u32 = 384;

/// When the words of one class advance.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    interval_ns: u64,
    next_ns: u64,
    phase: usize,
}

/// Runs until the session stops.
pub fn run(shared: &Shared, mut sampler: Sampler) {
    // Sleeps of this thread end on time: the default slack is 50 µs (prctl(2)).
    // SAFETY: sets a number of the calling thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
    let control = shared.mapping.control();
    let mut ticker = Ticker::default();
    let mut random = Random(clock::cycles() | 1);
    let mut schedules = begin(shared, now_ns());
    ticker.advance_all(control);
    let mut last_activity_ns = now_ns();
    while !shared.stopping() {
        sleep_until(next_wake(&schedules, &sampler));
        let now = now_ns();
        count(&shared.figures.ticks, 1);
        reserve_threads(shared);
        sampler.refresh(&shared.mapping, now);
        let mut active = false;
        for (class, schedule) in schedules.iter_mut().enumerate() {
            while schedule.next_ns <= now {
                let phases = sampler.phases(class).max(1);
                let step_ns = (schedule.interval_ns / u64::from(phases.count_ones()))
                    .max(MIN_STEP_NS)
                    .min(schedule.interval_ns);
                let together = step_ns * u64::from(phases.count_ones()) > schedule.interval_ns;
                for _ in 0..PHASES {
                    let phase = schedule.phase % PHASES;
                    schedule.phase += 1;
                    // Words without an active thread advance on the way: a thread that wakes up
                    // captures at its first hook.
                    let old = control.ticks[class][phase].0.load(Ordering::Relaxed);
                    ticker.advance(control, class, phase);
                    active |= sampler.step(shared, class, phase, old, now);
                    if phases & 1 << phase != 0 && !together {
                        break;
                    }
                }
                // Jitter of an eighth of a step keeps captures from beating with the program's own
                // periods; the grid itself does not move.
                let jitter = random.below(step_ns / 8);
                schedule.next_ns =
                    schedule.next_ns - schedule.next_ns % (step_ns / 8).max(1) + step_ns + jitter;
                if schedule.next_ns <= now {
                    count(&shared.figures.ticks_late, 1);
                    schedule.next_ns = now + step_ns / 2;
                }
            }
        }
        active |= sampler.look_around(shared, now);
        if active {
            last_activity_ns = now;
        }
        let longest = schedules.iter().map(|s| s.interval_ns).max().unwrap_or(0);
        if now - last_activity_ns > (QUIET_INTERVALS * longest).max(QUIET_NS) {
            park(shared, &ticker, &mut sampler);
            ticker.advance_all(control);
            schedules = begin(shared, now_ns());
            last_activity_ns = now_ns();
        }
    }
    shared
        .figures
        .ticker_cpu_ns
        .store(sys::thread_cpu_ns(), Ordering::Relaxed);
}

/// Classes without threads are no reason to wake up: their ticks advance along with the others'.
fn next_wake(schedules: &[Schedule; CLASSES], sampler: &Sampler) -> u64 {
    let occupied = (0..CLASSES).filter(|class| sampler.phases(*class) != 0);
    let wake = occupied.map(|class| schedules[class].next_ns).min();
    let any = schedules.iter().map(|s| s.next_ns).min();
    wake.or(any).unwrap_or_default()
}

fn begin(shared: &Shared, now: u64) -> [Schedule; CLASSES] {
    let intervals = &shared.mapping.control().interval_ns;
    std::array::from_fn(|class| Schedule {
        interval_ns: u64::from(intervals[class].load(Ordering::Relaxed)).max(1),
        next_ns: now,
        phase: 0,
    })
}

/// Sleeps until a hook is passed, a thread is found running all the same, or the session stops.
fn park(shared: &Shared, ticker: &Ticker, sampler: &mut Sampler) {
    let control = shared.mapping.control();
    count(&shared.figures.parks, 1);
    let before = sampler.program_cpu_ns();
    ticker.park(control);
    let mut look_ns = PARKED_LOOK_NS.0;
    while throttle::is_parked(control) && !shared.stopping() {
        sys::wait(&control.parked, 1, Some(look_ns));
        look_ns = (look_ns * 2).min(PARKED_LOOK_NS.1);
        sampler.refresh(&shared.mapping, now_ns());
        if sampler.program_cpu_ns() != before {
            break;
        }
    }
    throttle::unpark(control);
    sampler.suspect_all();
    shared.want_drain();
}

/// Gives more thread entries their storage before agents need them.
fn reserve_threads(shared: &Shared) {
    let control = shared.mapping.control();
    let used = control.threads_used.load(Ordering::Relaxed);
    let limit = control.threads_limit.load(Ordering::Relaxed);
    if used.saturating_add(SPARE_THREADS) > limit
        && limit < shared.mapping.layout().capacity.threads
    {
        // Without room threads stay unregistered, and agents count them.
        let _ = shared.mapping.extend_threads(limit.saturating_mul(2));
    }
}

pub fn now_ns() -> u64 {
    sys::clock_ns(libc::CLOCK_MONOTONIC)
}

fn sleep_until(ns: u64) {
    let time = libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: the pointer is to a valid object, no remainder is wanted.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &raw const time,
            std::ptr::null_mut(),
        )
    };
}

/// xorshift64* (Vigna 2016): good enough to spread ticks.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let word = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d);
        match bound {
            0 => 0,
            _ => (word >> 32) % bound,
        }
    }
}
