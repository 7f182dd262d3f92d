//! Advances the ticks, and has the sampler interrupt the running threads whose hooks would come too late.
//! Parks when nothing runs.
//!
//! A sample shall be as likely at one moment of a thread's running time as at any other. A thread that
//! passes its next hook long after the tick would charge everything before to that hook's caller. So
//! running threads are interrupted, and learn before they see the tick that a signal is on its way, for
//! which their hooks then leave the capture. Only threads that pass hooks all the time (they come within
//! [`HOOK_TIME_NS`], nearly always) capture by themselves, which is cheaper.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use stackbeat_core::cycles::Cycles;
use stackbeat_core::shm::layout::{CLASSES, PHASES, buffer_state};
use stackbeat_core::shm::throttle::{self, Ticker};
use stackbeat_core::{clock, platform};

use super::kernel_clock::KernelClock;
use super::{HOOK_TRIAL, Sampler};
use crate::host::Peers;
use crate::session::budget::Keeper;
use crate::session::clocks::now_ns;
use crate::session::jit_maps::JitMaps;
use crate::session::options::{Budget, MAX_INTERVAL_NS, MIN_INTERVAL_NS};
use crate::session::shared::{Place, Shared, count};
use crate::session::storage;

/// From a tick to the poll of who captured by a hook: at most this, ns, and this part of the interval.
const HOOK_TIME_NS: u64 = 2_000;
const HOOK_TIME_PART: u64 = 10;
/// How often it is polled in that time whether they all have come.
const HOOK_POLLS: u64 = 5;
/// Phases advance one after the other, at the price of a wake-up each, only when so many threads were
/// active of late and a step is not shorter than this, ns.
const SPREAD_THREADS: usize = 16;
const MIN_STEP_NS: u64 = 200_000;
/// Intervals without activity before the ticker parks.
const QUIET_INTERVALS: u64 = 8;
/// At least that long without activity, ns.
const QUIET_NS: u64 = 10_000_000;
/// Polls of the program's CPU clocks while parked: first and longest distance, ns. They find threads
/// that run without passing a hook.
const PARKED_POLL_NS: (u64, u64) = (10_000_000, 50_000_000);
/// The kernel adds such a clock up from all threads (0.8 ms for 5,000): polls may take this share of the
/// time, and are no further apart than that, ns. Where that is rarer than above, few threads that are blocked
/// outside hooks are asked about one by one.
const CLOCK_SHARE: u64 = 500;
const CLOCK_LONGEST_NS: u64 = 500_000_000;
/// Parts of an interval in which the first tick after a pause may fall.
const PARTS: u64 = 1024;
/// While switched off: distance between two polls of whether threads need entries, ns.
const RESTING_POLL_NS: u64 = 100_000_000;
/// Distance between two polls of what changes while the kernel samples threads, ns.
const CLOCK_POLL_NS: u64 = 50_000_000;
/// Longest sleep, ns: a change of the intervals is noticed by then.
const LONGEST_SLEEP_NS: u64 = 100_000_000;

/// When the words of one class advance.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    interval_ns: u64,
    next_ns: u64,
    phase: usize,
}

/// Runs until the session stops.
///
/// `cpu_before`: CPU time that this process had used when the session began.
pub(crate) fn run(
    shared: &Shared,
    mut sampler: Sampler,
    budget: Option<Budget>,
    has_counters: bool,
    cpu_before: Duration,
) {
    let host = Arc::clone(&sampler.host);
    host.begin_ticking();
    let system_tick_ns = host.system_tick_ns();
    let control = shared.mapping.control();
    let mut ticker = Ticker::default();
    if shared.mapping.layout().capacity.call_rows > 0 {
        return keep_counting(shared);
    }
    let mut random = Random(clock::cycles().0 | 1);
    let mut upkeep = Upkeep::new(host.peers());
    let mut schedules = begin(shared, now_ns());
    ticker.advance_all(control);
    let asked = asked_ns(&schedules);
    let mut keeper = Keeper::new(budget, has_counters, asked, cpu_before);
    keeper.begin(shared, sampler.cpu_by_process(), asked);
    let mut kernel = control.has_kernel_clock().then(KernelClock::default);
    let mut last_activity_ns = now_ns();
    let mut due = Vec::new();
    let mut program_clock = ProgramClock::default();
    while !shared.stopping() {
        if !is_on(shared) {
            if let Some(clock) = &mut kernel {
                clock.end_all(shared);
            }
            rest(shared, &mut ticker);
            sampler.make_all_due(true, now_ns());
            ticker.advance_all(control);
            schedules = begin(shared, now_ns());
            last_activity_ns = now_ns();
            keeper.start_over(shared, sampler.cpu_by_process());
            continue;
        }
        if let Some(clock) = &mut kernel
            && !sampler.has_ticks()
        {
            let calls = control.clock_calls.load(Ordering::SeqCst);
            upkeep.step(shared, &sampler, now_ns());
            let now = now_ns();
            count(&shared.figures.ticks, 1);
            let next_ns = sampler.find_threads(shared, now);
            poll_kernel_clock(shared, &mut sampler, &mut ticker, clock, &mut keeper);
            if sampler.awaits_timers() {
                ticker.advance_ticks(control);
            }
            if !sampler.has_ticks() {
                let next_ns = next_ns.min(
                    upkeep
                        .peers
                        .as_ref()
                        .map_or(u64::MAX, |peers| peers.next_ns()),
                );
                let wait_ns = next_ns.saturating_sub(now).min(CLOCK_POLL_NS);
                // Inside the program the drain calls when there was something, and agents when entries get
                // scarce.
                let is_called = shared.place == Place::Inside && !sampler.awaits_timers();
                let wait_ns = (!is_called).then_some(wait_ns);
                platform::wait(&control.clock_calls, calls, wait_ns);
            }
            // Somebody may be on ticks from here on.
            schedules = begin(shared, now_ns());
            last_activity_ns = now_ns();
            continue;
        }
        host.sleep_until(next_wake(&schedules, &sampler).min(now_ns() + LONGEST_SLEEP_NS));
        let now = now_ns();
        count(&shared.figures.ticks, 1);
        let ticks = shared.figures.ticks.load(Ordering::Relaxed);
        let mut hook_time_ns = HOOK_TIME_NS;
        // One for all classes: those of one interval share their wake-ups.
        let jitter = random.fraction();
        for (class, schedule) in schedules.iter_mut().enumerate() {
            if schedule.set_interval(interval_ns(shared, class), now) {
                keeper.asked(class, schedule.interval_ns);
            }
            let interval_ns = keeper.tick_interval_ns(schedule.interval_ns);
            while schedule.next_ns <= now {
                let phases = sampler.phases(class);
                let steps = u64::from(phases.count_ones()).max(1);
                let spread = sampler.active_threads(class) >= SPREAD_THREADS
                    && interval_ns / steps >= MIN_STEP_NS;
                let step_ns = if spread {
                    interval_ns / steps
                } else {
                    interval_ns
                };
                hook_time_ns = hook_time_ns.min(schedule.interval_ns / HOOK_TIME_PART);
                for _ in 0..PHASES {
                    let phase = schedule.phase % PHASES;
                    schedule.phase += 1;
                    let used = phases & 1 << phase != 0;
                    if used || !spread {
                        due.push((class, phase));
                    }
                    if used && spread {
                        break;
                    }
                }
                schedule.next_ns = next_tick_ns(schedule.next_ns, step_ns, jitter, system_tick_ns);
                if schedule.next_ns <= now {
                    count(&shared.figures.ticks_late, 1);
                    schedule.next_ns = now + step_ns / 2;
                }
            }
        }
        sampler.refresh(shared, now);
        upkeep.step(shared, &sampler, now);
        if let Some(clock) = &mut kernel {
            let periods_ns = asked_ns(&schedules).map(|asked| keeper.interval_ns(asked));
            sampler.poll_busy(shared, clock.active(), now);
            sampler.poll_untimed(shared, now);
            clock.follow(shared, &mut sampler, &mut ticker, periods_ns);
        }
        let mut active = usize::from(sampler.poll_all(shared, now));
        let is_trial = ticks.is_multiple_of(HOOK_TRIAL);
        // Those that are going to be interrupted know it before their hooks see the tick.
        for word in &due {
            sampler.poll_running(shared, *word, is_trial, now);
        }
        sampler.announce(shared);
        for (class, phase) in &due {
            ticker.advance(control, *class, *phase);
        }
        let tick_ns = now_ns();
        sampler.send(shared);
        let waits = due
            .iter()
            .any(|(class, phase)| sampler.expects_hooks(*class, *phase, is_trial));
        if waits {
            wait_for_hooks(tick_ns, hook_time_ns, || {
                let mut words = due.iter();
                words.all(|(class, phase)| {
                    sampler.hooks_came(&shared.mapping, *class, *phase, is_trial)
                })
            });
        }
        for word in due.drain(..) {
            active += sampler.step(shared, word, waits, now);
        }
        if active > 0 {
            last_activity_ns = now;
        }
        let shortest = schedules.iter().map(|s| s.interval_ns).min().unwrap_or(1);
        keeper.want_at_least(sampler.least_interval_ns());
        keeper.woke(
            shared,
            sampler.cpu_by_process(),
            active,
            asked_ns(&schedules),
        );
        let kept_ns = keeper.tick_interval_ns(shortest);
        count(&shared.figures.intervals_kept_ns, kept_ns);
        count(&shared.figures.intervals_asked_ns, shortest);
        let longest = schedules.iter().map(|s| s.interval_ns).max().unwrap_or(0);
        let longest_ns = keeper.tick_interval_ns(longest);
        if now - last_activity_ns > (QUIET_INTERVALS * longest_ns).max(QUIET_NS) {
            park(
                shared,
                &mut ticker,
                &mut sampler,
                &mut program_clock,
                |ticker, sampler| {
                    if let Some(clock) = &mut kernel {
                        // Their threads go on.
                        upkeep.step(shared, sampler, now_ns());
                        poll_kernel_clock(shared, sampler, ticker, clock, &mut keeper);
                    }
                },
            );
            ticker.resume(control);
            last_activity_ns = now_ns();
            // The pause ended because somebody woke up: the first tick is as likely at one moment after that
            // as at any other.
            schedules = begin(shared, last_activity_ns);
            let part = random.below(PARTS);
            for schedule in &mut schedules {
                schedule.next_ns += schedule.interval_ns * part / PARTS;
            }
        }
    }
    if let Some(clock) = &mut kernel {
        clock.end_all(shared);
    }
    upkeep.jit_maps.poll(shared, now_ns());
    keeper.finish(shared);
    shared
        .figures
        .ticker_cpu_ns
        .store(platform::thread_cpu_ns(), Ordering::Relaxed);
}

/// A session that counts calls, before its program starts: the words hold a value that sends every hook to
/// its slow path, where it is counted, and captures are an endless time apart.
pub(crate) fn count_all_calls(shared: &Shared) {
    let control = shared.mapping.control();
    for (class, interval) in control.interval_cycles.iter().enumerate() {
        interval.store(Cycles::MAX, stackbeat_core::sync::Ordering::Relaxed);
        Ticker::default().by_cycles(control, class);
    }
}

/// The words stay as they are; threads need entries all the same.
fn keep_counting(shared: &Shared) {
    while !shared.stopping() {
        storage::reserve_threads(&shared.mapping);
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Gives newcomers to the kernel's clock while nobody advances the words.
fn poll_kernel_clock(
    shared: &Shared,
    sampler: &mut Sampler,
    ticker: &mut Ticker,
    clock: &mut KernelClock,
    keeper: &mut Keeper,
) {
    let asked_ns = std::array::from_fn(|class| interval_ns(shared, class));
    let periods_ns = asked_ns.map(|asked| keeper.interval_ns(asked));
    sampler.poll_busy(shared, clock.active(), now_ns());
    sampler.poll_untimed(shared, now_ns());
    let active = clock.follow(shared, sampler, ticker, periods_ns);
    for (class, asked) in asked_ns.into_iter().enumerate() {
        keeper.asked(class, asked);
    }
    keeper.woke(shared, sampler.cpu_by_process(), active, asked_ns);
    let shortest = asked_ns.into_iter().min().unwrap_or(1);
    let kept_ns = keeper.interval_ns(shortest);
    count(&shared.figures.intervals_asked_ns, shortest);
    count(&shared.figures.intervals_kept_ns, kept_ns);
}

/// What goes on beside the sampling of threads.
#[derive(Debug)]
struct Upkeep {
    pool_polls: u16,
    random: Random,
    peers: Option<Box<dyn Peers>>,
    jit_maps: JitMaps,
}

impl Upkeep {
    fn new(peers: Option<Box<dyn Peers>>) -> Upkeep {
        Upkeep {
            pool_polls: 0,
            random: Random(clock::cycles().0 | 1),
            peers,
            jit_maps: JitMaps::default(),
        }
    }

    fn step(&mut self, shared: &Shared, sampler: &Sampler, now_ns: u64) {
        if shared.place == Place::Outside {
            storage::reserve_threads(&shared.mapping);
        }
        watch_pool(shared, &mut self.pool_polls, &mut self.random);
        if let Some(peers) = &mut self.peers {
            peers.step(&shared.mapping, now_ns);
        }
        self.jit_maps.step(shared, sampler.processes(), now_ns);
    }
}

/// When to tick after a tick that was due at `due_ns`. Steps lie on a grid that does not move.
///
/// A jitter of an eighth of a step keeps captures from beating with the program's own periods. Threads that
/// wait for processors get them at ticks of the system, so steps as long as these fall anywhere: at one
/// distance from them, each tick would meet the same moment of such a thread's work.
fn next_tick_ns(due_ns: u64, step_ns: u64, jitter: Fraction, system_tick_ns: u64) -> u64 {
    let room_ns = match step_ns < system_tick_ns {
        true => step_ns / 8,
        false => step_ns,
    };
    due_ns - due_ns % room_ns.max(1) + step_ns + jitter.of(room_ns)
}

/// Classes without threads are no reason to wake up: their ticks advance along with the others'.
fn next_wake(schedules: &[Schedule; CLASSES], sampler: &Sampler) -> u64 {
    let occupied = (0..CLASSES).filter(|class| sampler.phases(*class) != 0);
    let wake = occupied.map(|class| schedules[class].next_ns).min();
    let any = schedules.iter().map(|s| s.next_ns).min();
    wake.or(any).unwrap_or_default()
}

fn begin(shared: &Shared, now: u64) -> [Schedule; CLASSES] {
    std::array::from_fn(|class| Schedule {
        interval_ns: interval_ns(shared, class),
        next_ns: now,
        phase: 0,
    })
}

fn asked_ns(schedules: &[Schedule; CLASSES]) -> [u64; CLASSES] {
    schedules.map(|s| s.interval_ns)
}

fn interval_ns(shared: &Shared, class: usize) -> u64 {
    let intervals = &shared.mapping.control().interval_ns;
    let ns = u64::from(intervals[class].load(Ordering::Relaxed));
    // The program can write there, too.
    ns.clamp(MIN_INTERVAL_NS, MAX_INTERVAL_NS)
}

impl Schedule {
    /// Takes a changed interval over; a shorter one does not wait for the end of the longer one.
    /// True when it has changed.
    fn set_interval(&mut self, interval_ns: u64, now: u64) -> bool {
        let is_new = interval_ns != self.interval_ns;
        if is_new {
            self.interval_ns = interval_ns;
            self.next_ns = self.next_ns.min(now + interval_ns);
        }
        is_new
    }
}

fn is_on(shared: &Shared) -> bool {
    shared.mapping.control().switch.load(Ordering::SeqCst) == 1
}

/// Until the session is switched on. The words keep an ordinary value meanwhile: each thread takes the
/// slow path once and is quiet from then on.
fn rest(shared: &Shared, ticker: &mut Ticker) {
    let control = shared.mapping.control();
    ticker.advance_all(control);
    while !is_on(shared) && !shared.stopping() {
        platform::wait(&control.switch, 0, Some(RESTING_POLL_NS));
        storage::reserve_threads(&shared.mapping);
    }
}

/// Sleeps until a hook is passed, a thread is found running all the same, or the session stops. `meanwhile`
/// is done with each poll.
fn park(
    shared: &Shared,
    ticker: &mut Ticker,
    sampler: &mut Sampler,
    clock: &mut ProgramClock,
    mut meanwhile: impl FnMut(&mut Ticker, &mut Sampler),
) {
    let control = shared.mapping.control();
    count(&shared.figures.parks, 1);
    let mut cpu_before = clock.read(sampler);
    let blocked_before = sampler.blocked_outside_hooks_cpu_ns();
    ticker.park(control);
    let mut poll_ns = PARKED_POLL_NS.0;
    let mut has_moved = false;
    while throttle::is_parked(control) && is_on(shared) && !shared.stopping() && !has_moved {
        meanwhile(ticker, sampler);
        if shared.place == Place::Inside {
            // Threads without a timer that run without a hook are not worth a wake-up.
            platform::wait(&control.parked, 1, None);
            continue;
        }
        platform::wait(&control.parked, 1, Some(poll_ns));
        sampler.refresh(shared, now_ns());
        sampler.find_waits(shared, now_ns());
        if control.has_kernel_clock() {
            // Of processes that nobody on ticks belongs to.
            sampler.poll_unregistered_in_time(shared, now_ns());
        }
        has_moved = match clock.read(sampler) {
            Some(cpu_ns) => cpu_ns != *cpu_before.get_or_insert(cpu_ns),
            None => {
                blocked_before.is_some() && sampler.blocked_outside_hooks_cpu_ns() != blocked_before
            }
        };
        poll_ns = (poll_ns * 2).min(PARKED_POLL_NS.1);
    }
    throttle::unpark(control);
    sampler.make_all_due(has_moved, now_ns());
    shared.want_drain();
}

/// The CPU clocks of the program's processes, which may be costly.
#[derive(Debug, Default)]
struct ProgramClock {
    next_ns: u64,
}

impl ProgramClock {
    /// CPU time so far, ns; `None`: it is too early for another poll.
    fn read(&mut self, sampler: &Sampler) -> Option<u64> {
        if now_ns() < self.next_ns {
            return None;
        }
        // By the clock of this thread: who has to wait for a processor in between learns nothing of the
        // price.
        let used_ns = platform::thread_cpu_ns();
        let cpu_ns = sampler.cpu_ns_on_ticks();
        let distance_ns = platform::thread_cpu_ns().saturating_sub(used_ns) * CLOCK_SHARE;
        // What is cheap is read with each poll.
        if distance_ns > PARKED_POLL_NS.1 {
            self.next_ns = now_ns() + distance_ns.min(CLOCK_LONGEST_NS);
        }
        Some(cpu_ns)
    }
}

/// Gives hooks their time after a tick, or less when all who were waited for have come. Few polls: each
/// takes a cache line away from the thread that is polled.
fn wait_for_hooks(tick_ns: u64, time_ns: u64, mut have_come: impl FnMut() -> bool) {
    for poll in 1..=HOOK_POLLS {
        while now_ns() < tick_ns + time_ns * poll / HOOK_POLLS {
            std::hint::spin_loop();
        }
        if have_come() {
            return;
        }
    }
}

/// Looks at one random sub-buffer (a cache line that is seldom near): when most of those that were looked
/// at of late were taken, the drain is wanted now.
fn watch_pool(shared: &Shared, polls: &mut u16, random: &mut Random) {
    let buffers = u64::from(shared.mapping.buffers());
    let header = shared.mapping.buffer(random.below(buffers) as u32);
    let is_taken =
        header.is_some_and(|h| h.state.load(Ordering::Relaxed) as u32 != buffer_state::FREE);
    *polls = *polls << 1 | u16::from(is_taken);
    if polls.count_ones() > u16::BITS / 2 {
        shared.want_drain();
    }
}

/// xorshift64* (Vigna 2016): good enough to spread ticks.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn fraction(&mut self) -> Fraction {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let word = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d);
        Fraction(word >> 32)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.fraction().of(bound)
    }
}

/// Below 1, in parts of 2^32.
#[derive(Clone, Copy, Debug)]
struct Fraction(u64);

impl Fraction {
    /// This part of something, rounded down.
    fn of(self, whole: u64) -> u64 {
        ((u128::from(self.0) * u128::from(whole)) >> 32) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often ticks fall into each quarter of a period, of 4,000.
    fn quarters(step_ns: u64, period_ns: u64) -> [u32; 4] {
        let mut random = Random(7);
        let mut at_ns = 1_234_567_890;
        let mut quarters = [0; 4];
        for _ in 0..4_000 {
            let before_ns = at_ns;
            at_ns = next_tick_ns(at_ns, step_ns, random.fraction(), 4_000_000);
            assert!(at_ns > before_ns && at_ns < before_ns + 2 * step_ns);
            quarters[(at_ns % period_ns * 4 / period_ns) as usize] += 1;
        }
        let passed_ns = at_ns - 1_234_567_890;
        assert!(
            passed_ns.abs_diff(4_000 * step_ns) <= step_ns,
            "{passed_ns}"
        );
        quarters
    }

    #[test]
    fn steps_as_long_as_the_systems_ticks_have_no_phase_in_them() {
        for step_ns in [4_000_000, 8_000_000] {
            for part in quarters(step_ns, 4_000_000) {
                assert!(part.abs_diff(1_000) < 150, "{part}");
            }
        }
    }

    #[test]
    fn shorter_steps_are_nearly_equal() {
        let mut random = Random(7);
        let mut at_ns = 0;
        for _ in 0..1_000 {
            let before_ns = at_ns;
            at_ns = next_tick_ns(at_ns, 1_000_000, random.fraction(), 4_000_000);
            let step_ns = at_ns - before_ns;
            assert!((875_000..1_125_000).contains(&step_ns), "{step_ns}");
        }
    }
}
