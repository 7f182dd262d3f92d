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
use crate::host::{Host, Peers};
use crate::session::budget::Keeper;
use crate::session::clocks::now_ns;
use crate::session::grid;
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
/// Distance between two polls of what changes while the kernel samples threads: at first, and once no agent
/// has called for some polls. Agents call when a thread begins.
const CLOCK_POLL: Duration = Duration::from_millis(50);
const CLOCK_POLL_LATER: Duration = Duration::from_millis(200);
const CLOCK_POLLS_AT_FIRST: u32 = 20;
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
    sampler: Sampler,
    budget: Option<Budget>,
    has_counters: bool,
    cpu_before: Duration,
) {
    sampler.host.begin_ticking();
    if shared.mapping.layout().capacity.call_rows > 0 {
        return keep_counting(shared);
    }
    let mut ticking = Ticking::begin(shared, sampler, budget, has_counters, cpu_before);
    let clock_calls = &shared.mapping.control().clock_calls;
    while let Some(calls) = clock_calls.note_unless(|| shared.stopping()) {
        if !is_on(shared) {
            ticking.rest();
        } else if ticking.kernel.is_some() && !ticking.sampler.has_ticks() {
            ticking.leave_it_to_the_kernel(calls);
        } else {
            ticking.tick();
        }
    }
    ticking.finish();
}

/// The ticker's thread at work.
struct Ticking<'a> {
    shared: &'a Shared,
    host: Arc<dyn Host>,
    /// Distance between two ticks of the system, ns.
    system_tick_ns: u64,
    ticker: Ticker,
    sampler: Sampler,
    keeper: Keeper,
    /// `None`: the session has no such clock.
    kernel: Option<KernelClock>,
    upkeep: Upkeep,
    random: Random,
    schedules: [Schedule; CLASSES],
    /// Words that advance in this tick: class and phase.
    due: Vec<(usize, usize)>,
    program_clock: ProgramClock,
    last_activity_ns: u64,
    /// `Control::clock_calls` at the last poll, and polls in a row without a call.
    calls: u32,
    quiet_polls: u32,
}

impl<'a> Ticking<'a> {
    fn begin(
        shared: &'a Shared,
        sampler: Sampler,
        budget: Option<Budget>,
        has_counters: bool,
        cpu_before: Duration,
    ) -> Ticking<'a> {
        let host = Arc::clone(&sampler.host);
        let control = shared.mapping.control();
        let mut ticker = Ticker::default();
        let schedules = begin(shared, now_ns());
        ticker.advance_all(control, clock::now(shared.clock_source()));
        let asked = asked_ns(&schedules);
        let mut keeper = Keeper::new(budget, has_counters, asked, cpu_before);
        keeper.begin(shared, sampler.cpu_by_process(), asked);
        Ticking {
            shared,
            system_tick_ns: host.system_tick_ns(),
            ticker,
            keeper,
            kernel: control.has_kernel_clock().then(KernelClock::default),
            upkeep: Upkeep::new(host.peers()),
            random: Random(clock::cycles().0 | 1),
            schedules,
            due: Vec::new(),
            program_clock: ProgramClock::default(),
            last_activity_ns: now_ns(),
            calls: 0,
            quiet_polls: 0,
            host,
            sampler,
        }
    }

    /// While the session is switched off.
    fn rest(&mut self) {
        if let Some(clock) = &mut self.kernel {
            clock.end_all(self.shared);
        }
        rest(self.shared, &mut self.ticker);
        self.sampler.make_all_due(true, now_ns());
        let at = clock::now(self.shared.clock_source());
        self.ticker.advance_all(self.shared.mapping.control(), at);
        self.begin_anew();
        self.keeper
            .start_over(self.shared, self.sampler.cpu_by_process());
    }

    /// The first tick is a whole interval away.
    fn begin_anew(&mut self) {
        let now = now_ns();
        self.schedules = begin(self.shared, now);
        self.last_activity_ns = now;
    }

    /// Nobody needs ticks: waits until there is something to do beside the kernel's clock, or there have been
    /// more than so many calls.
    fn leave_it_to_the_kernel(&mut self, calls: u32) {
        let control = self.shared.mapping.control();
        self.upkeep.step(self.shared, &self.sampler, now_ns());
        let now = now_ns();
        count(&self.shared.figures.ticks, 1);
        let next_ns = self.sampler.find_threads(self.shared, now);
        self.poll_kernel_clock();
        if self.sampler.awaits_timers() {
            let at = clock::now(self.shared.clock_source());
            self.ticker.advance_ticks(control, at);
        }
        if !self.sampler.has_ticks() {
            let peers = self.upkeep.peers.as_ref();
            let next_ns = next_ns.min(peers.map_or(u64::MAX, |peers| peers.next_ns()));
            let wait_ns = next_ns
                .min(self.next_clock_poll(now, calls))
                .saturating_sub(now);
            // Inside the program the drain calls when there was something, and agents when entries get
            // scarce.
            let is_called = self.shared.place == Place::Inside && !self.sampler.awaits_timers();
            let wait_ns = (!is_called).then_some(wait_ns);
            control.clock_calls.sleep(calls, wait_ns);
        }
        // Somebody may be on ticks from here on.
        self.begin_anew();
    }

    /// When to poll again, ns, where agents have called so often by now.
    fn next_clock_poll(&mut self, now: u64, calls: u32) -> u64 {
        let is_quiet = calls == self.calls && !self.sampler.awaits_timers();
        self.quiet_polls = match is_quiet {
            true => self.quiet_polls.saturating_add(1),
            false => 0,
        };
        self.calls = calls;
        grid::moment_ns(
            now,
            match self.quiet_polls < CLOCK_POLLS_AT_FIRST {
                true => CLOCK_POLL,
                false => CLOCK_POLL_LATER,
            },
        )
    }

    /// Gives newcomers to the kernel's clock while nobody advances the words.
    fn poll_kernel_clock(&mut self) {
        if let Some(clock) = &mut self.kernel {
            let (sampler, ticker) = (&mut self.sampler, &mut self.ticker);
            poll_kernel_clock(self.shared, sampler, ticker, clock, &mut self.keeper);
        }
    }

    /// Sleeps until words are due, and sees that their threads are captured.
    fn tick(&mut self) {
        let next_ns = next_wake(&self.schedules, &self.sampler);
        self.host
            .sleep_until(next_ns.min(now_ns() + LONGEST_SLEEP_NS));
        let now = now_ns();
        count(&self.shared.figures.ticks, 1);
        let hook_time_ns = self.find_due(now);
        self.sampler.refresh(self.shared, now);
        self.upkeep.step(self.shared, &self.sampler, now);
        if let Some(clock) = &mut self.kernel {
            let periods_ns = asked_ns(&self.schedules).map(|asked| self.keeper.interval_ns(asked));
            self.sampler.poll_busy(self.shared, clock.active(), now);
            self.sampler.poll_untimed(self.shared, now);
            let (sampler, ticker) = (&mut self.sampler, &mut self.ticker);
            clock.follow(self.shared, sampler, ticker, periods_ns);
        }
        let active = self.sample(hook_time_ns, now);
        if active > 0 {
            self.last_activity_ns = now;
        }
        let kept_ns = self.account(active);
        if now - self.last_activity_ns > (QUIET_INTERVALS * kept_ns).max(QUIET_NS) {
            self.park();
        }
    }

    /// Notes which words are due. Gives how long threads may take to pass a hook, ns.
    fn find_due(&mut self, now: u64) -> u64 {
        let mut hook_time_ns = HOOK_TIME_NS;
        // One for all classes: those of one interval share their wake-ups.
        let jitter = self.random.fraction();
        for (class, schedule) in self.schedules.iter_mut().enumerate() {
            schedule.set_interval(interval_ns(self.shared, class), now);
            let interval_ns = self.keeper.tick_interval_ns(schedule.interval_ns);
            while schedule.next_ns <= now {
                let phases = self.sampler.phases(class);
                let steps = u64::from(phases.count_ones()).max(1);
                let spread = self.sampler.active_threads(class) >= SPREAD_THREADS
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
                        self.due.push((class, phase));
                    }
                    if used && spread {
                        break;
                    }
                }
                let due_ns = schedule.next_ns;
                schedule.next_ns = next_tick_ns(due_ns, step_ns, jitter, self.system_tick_ns);
                if schedule.next_ns <= now {
                    count(&self.shared.figures.ticks_late, 1);
                    schedule.next_ns = now + step_ns / 2;
                }
            }
        }
        hook_time_ns
    }

    /// Advances the words that are due, and interrupts threads that pass no hook in time. Gives how many
    /// threads were active.
    fn sample(&mut self, hook_time_ns: u64, now: u64) -> usize {
        let (shared, sampler) = (self.shared, &mut self.sampler);
        let ticks = shared.figures.ticks.load(Ordering::Relaxed);
        let mut active = usize::from(sampler.poll_all(shared, now));
        let is_trial = ticks.is_multiple_of(HOOK_TRIAL);
        // Those that are going to be interrupted know it before their hooks see the tick.
        for word in &self.due {
            sampler.poll_running(shared, *word, is_trial, now);
        }
        sampler.announce(shared);
        let at = clock::now(shared.clock_source());
        for (class, phase) in &self.due {
            self.ticker
                .advance(shared.mapping.control(), *class, *phase, at);
        }
        let tick_ns = now_ns();
        sampler.send(shared);
        let mut words = self.due.iter();
        let waits = words.any(|(class, phase)| sampler.expects_hooks(*class, *phase, is_trial));
        if waits {
            wait_for_hooks(tick_ns, hook_time_ns, || {
                let mut words = self.due.iter();
                words.all(|(class, phase)| {
                    sampler.hooks_came(&shared.mapping, *class, *phase, is_trial)
                })
            });
        }
        for word in self.due.drain(..) {
            active += sampler.step(shared, word, waits, now);
        }
        active
    }

    /// Tells the budget what a tick has cost. Gives the longest interval that is kept now, ns.
    fn account(&mut self, active: usize) -> u64 {
        let (shared, keeper) = (self.shared, &mut self.keeper);
        keeper.want_at_least(self.sampler.least_interval_ns());
        let asked = asked_ns(&self.schedules);
        keeper.woke(shared, self.sampler.cpu_by_process(), active, asked);
        let shortest = asked.into_iter().min().unwrap_or(1);
        let kept_ns = keeper.tick_interval_ns(shortest);
        count(&shared.figures.intervals_kept_ns, kept_ns);
        // On a busy machine ticks are further apart without the budget.
        let by_budget_ns = keeper.interval_ns(shortest);
        count(&shared.figures.intervals_by_budget_ns, by_budget_ns);
        count(&shared.figures.intervals_asked_ns, shortest);
        keeper.tick_interval_ns(asked.into_iter().max().unwrap_or(0))
    }

    /// Nobody was active for a while: waits until somebody is.
    fn park(&mut self) {
        let shared = self.shared;
        park(
            shared,
            &mut self.ticker,
            &mut self.sampler,
            &mut self.program_clock,
            |ticker, sampler| {
                if let Some(clock) = &mut self.kernel {
                    // Their threads go on.
                    self.upkeep.step(shared, sampler, now_ns());
                    poll_kernel_clock(shared, sampler, ticker, clock, &mut self.keeper);
                }
            },
        );
        self.ticker.resume(shared.mapping.control());
        self.begin_anew();
        // The pause ended because somebody woke up: the first tick is as likely at one moment after that as
        // at any other.
        let part = self.random.below(PARTS);
        for schedule in &mut self.schedules {
            schedule.next_ns += schedule.interval_ns * part / PARTS;
        }
    }

    fn finish(mut self) {
        if let Some(clock) = &mut self.kernel {
            clock.end_all(self.shared);
        }
        self.upkeep.jit_maps.finish(self.shared, now_ns());
        self.keeper.finish(self.shared);
        let cpu_ns = &self.shared.figures.ticker_cpu_ns;
        cpu_ns.store(platform::thread_cpu_ns(), Ordering::Relaxed);
    }
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
    keeper.woke(shared, sampler.cpu_by_process(), active, asked_ns);
    let shortest = asked_ns.into_iter().min().unwrap_or(1);
    let kept_ns = keeper.interval_ns(shortest);
    count(&shared.figures.intervals_asked_ns, shortest);
    count(&shared.figures.intervals_by_budget_ns, kept_ns);
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
    fn set_interval(&mut self, interval_ns: u64, now: u64) {
        if interval_ns != self.interval_ns {
            self.interval_ns = interval_ns;
            self.next_ns = self.next_ns.min(now + interval_ns);
        }
    }
}

fn is_on(shared: &Shared) -> bool {
    shared.mapping.control().switch.load(Ordering::SeqCst) == 1
}

/// Until the session is switched on. The words keep an ordinary value meanwhile: each thread takes the
/// slow path once and is quiet from then on.
fn rest(shared: &Shared, ticker: &mut Ticker) {
    let control = shared.mapping.control();
    ticker.advance_all(control, clock::now(shared.clock_source()));
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
