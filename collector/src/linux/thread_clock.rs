//! The kernel's clock: an event of each thread counts the CPU time that it computes, and sends it a signal
//! after each interval of that (perf_event_open(2), `PERF_COUNT_SW_TASK_CLOCK`). So nobody needs to look who
//! runs, and no process beside the program wakes up for each sample.
//!
//! The signal is the session's first, by way of the descriptor (fcntl(2), `F_SETSIG`, `F_SETOWN_EX`), and not
//! the SIGTRAP that events can raise by themselves since Linux 5.13: where a program installs a handler by a
//! bare system call, as Go's runtime does for every signal, an unknown SIGTRAP ends it, and SIGURG does
//! nothing. The kernel sends the signal from an interrupt that it raises for itself while the one of the
//! clock lasts, so it arrives before the program's next instruction. Time in the kernel must not be counted
//! then (`exclude_kernel`): a signal that is sent in the middle of a system call would end it. The calls that
//! hooks know are recorded with the time that they took (`stackbeat_core::shm::throttle::next_moment`). A
//! second event (`PERF_COUNT_SW_PAGE_FAULTS`) goes off after as many page faults as take about an interval.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::OnceLock;

use perf_event_open_sys::bindings::{
    PERF_COUNT_SW_PAGE_FAULTS, PERF_COUNT_SW_TASK_CLOCK, PERF_FLAG_FD_CLOEXEC, PERF_TYPE_SOFTWARE,
    perf_event_attr,
};
use perf_event_open_sys::{ioctls, perf_event_open};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_getres};
use stackbeat_core::clock;
use stackbeat_core::ids::Tid;
use stackbeat_core::platform;
use stackbeat_core::shm::layout::{SamplingClock, first_strike, sampled_by};

use crate::host::ThreadClock;
use crate::session::error::{RecordError, WhyNot};
use crate::session::options::{Chosen, ClockChoice, Options};

/// An event does not go off more often than this, ns, while a drawn period is in force.
const LEAST_NS: u64 = 100_000;

/// A thread's events. They end with their descriptors.
#[derive(Debug)]
pub(super) struct Events {
    time: Event,
    faults: Event,
    /// Signals that had come when the period under way was drawn.
    strikes: u32,
}

impl Events {
    /// Events of the thread with this tid, which do not count yet. Makes room for their descriptors where
    /// there is none.
    pub(super) fn open(tid: Tid, period_ns: u64) -> io::Result<Events> {
        let open = || {
            Ok(Events {
                time: Event::open(tid, PERF_COUNT_SW_TASK_CLOCK, period_ns)?,
                faults: Event::open(tid, PERF_COUNT_SW_PAGE_FAULTS, faults_in(period_ns))?,
                strikes: 0,
            })
        };
        let opened = open();
        let is_full = |error: &io::Error| error.raw_os_error() == Some(libc::EMFILE);
        if !opened.as_ref().is_err_and(is_full) {
            return opened;
        }
        make_room();
        open()
    }
}

impl ThreadClock for Events {
    fn numbers(&self) -> [u32; 2] {
        [&self.time, &self.faults].map(|event| event.file.as_raw_fd() as u32 + 1)
    }

    fn start(&self, tid: Tid, signal: i32) -> io::Result<()> {
        self.time.start(tid, signal)?;
        self.faults.start(tid, signal)
    }

    fn go_on(&mut self, struck: u32) {
        if struck & first_strike::TIME != 0 {
            self.time.go_on();
        }
        if struck & first_strike::FAULTS != 0 {
            self.faults.go_on();
        }
    }

    fn set_period(&mut self, period_ns: u64, strikes: u32) {
        if self.time.period != period_ns {
            self.time.set_period(period_ns);
            self.faults.set_period(faults_in(period_ns));
            self.strikes = strikes;
        } else if self.time.in_force != InForce::Period && strikes != self.strikes {
            self.time.go_on();
        }
    }
}

/// An event of a thread, which goes off in user mode.
#[derive(Debug)]
struct Event {
    file: OwnedFd,
    /// Of what it counts.
    period: u64,
    /// It counts time, and no page faults.
    of_time: bool,
    in_force: InForce,
}

/// What an event goes off after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InForce {
    /// A drawn part of the period: as far as we know it has not gone off. Then it stands still, or goes on
    /// with that part.
    First {
        goes_on: bool,
    },
    /// A drawn part of a period that has become longer. It goes on with that part.
    Longer,
    Period,
}

impl Event {
    fn open(tid: Tid, counts: u32, period: u64) -> io::Result<Event> {
        let mut attributes = perf_event_attr {
            type_: PERF_TYPE_SOFTWARE,
            config: counts.into(),
            ..perf_event_attr::default()
        };
        let of_time = counts == PERF_COUNT_SW_TASK_CLOCK;
        let first = draw_up_to(period);
        attributes.__bindgen_anon_1.sample_period = first;
        attributes.set_disabled(1);
        attributes.set_exclude_kernel(1);
        attributes.set_exclude_hv(1);
        // Linux 5.13. Where it is missing and this clock is wanted all the same, the signal is ignored from
        // the exec to when we see it.
        attributes.set_remove_on_exec(1);
        let mut opened = open(&mut attributes, tid);
        if opened.as_ref().is_err_and(is_too_new) {
            attributes.set_remove_on_exec(0);
            opened = open(&mut attributes, tid);
        }
        Ok(Event {
            file: opened?,
            period,
            of_time,
            in_force: InForce::First {
                goes_on: of_time && first >= least_of(period),
            },
        })
    }

    fn start(&self, tid: Tid, signal: i32) -> io::Result<()> {
        /// fcntl(2); `libc` lacks them.
        const F_SETSIG: libc::c_int = 10;
        const F_SETOWN_EX: libc::c_int = 15;
        const F_OWNER_TID: libc::c_int = 0;
        #[repr(C)]
        struct Owner {
            kind: libc::c_int,
            pid: libc::pid_t,
        }
        let file = self.file.as_raw_fd();
        let owner = Owner {
            kind: F_OWNER_TID,
            pid: tid.0 as libc::pid_t,
        };
        // SAFETY: the structure is what the kernel reads there, and lives during the call; the others take
        // numbers.
        let results = unsafe {
            [
                libc::fcntl(file, F_SETOWN_EX, &raw const owner),
                libc::fcntl(file, F_SETSIG, signal),
                libc::fcntl(file, libc::F_SETFL, libc::O_ASYNC),
                match self.in_force {
                    // One signal: the kernel stops it then.
                    InForce::First { goes_on: false } => ioctls::REFRESH(file, 1),
                    _ => ioctls::ENABLE(file, 0),
                },
            ]
        };
        match results.iter().all(|result| *result >= 0) {
            true => Ok(()),
            false => Err(io::Error::last_os_error()),
        }
    }

    fn go_on(&mut self) {
        self.in_force = InForce::Period;
        self.store(self.period);
        // SAFETY: takes numbers.
        unsafe { ioctls::ENABLE(self.file.as_raw_fd(), 0) };
    }

    /// A longer period begins anywhere in its second half: a thread that ends soon would be met no more, or
    /// had its one sample within the shorter one. Not in the first half, because the drawn part is in force
    /// until the next poll.
    fn set_period(&mut self, period: u64) {
        let is_longer = self.of_time && period > self.period;
        self.period = period;
        let drawn = draw_up_to(period);
        let (in_force, next) = match self.in_force {
            first @ InForce::First { goes_on: true } => (first, drawn.max(least_of(period))),
            first @ InForce::First { goes_on: false } => (first, drawn),
            _ if is_longer => (InForce::Longer, drawn.max(period / 2)),
            _ => (InForce::Period, period),
        };
        self.in_force = in_force;
        self.store(next);
    }

    fn store(&self, mut period: u64) {
        // SAFETY: reads the number at this address (the bindings take it for the number), which lives during
        // the call.
        unsafe {
            ioctls::PERIOD(
                self.file.as_raw_fd(),
                (&raw mut period).expose_provenance() as u64,
            )
        };
    }
}

/// A first period. A thread that computes for less than a period is met as often as that part of one is long,
/// and threads that do the same are not all met at the same moment.
fn draw_up_to(period: u64) -> u64 {
    let drawn = clock::cycles().0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
    1 + drawn % period.max(1)
}

/// The least drawn part of a period that may be in force for more than one signal, ns.
fn least_of(period_ns: u64) -> u64 {
    LEAST_NS.max(period_ns / 8)
}

/// How many page faults take about this long.
fn faults_in(ns: u64) -> u64 {
    static FAULT_NS: OnceLock<u64> = OnceLock::new();
    (ns / FAULT_NS.get_or_init(measure_fault_ns)).max(1)
}

/// CPU time of a page fault, ns: the median of a few rounds, in which fresh pages are touched.
fn measure_fault_ns() -> u64 {
    const ROUNDS: usize = 5;
    const PAGES: usize = 64;
    /// Where pages cannot be had.
    const USUAL_NS: u64 = 1_000;
    let bytes = PAGES * platform::page_bytes();
    let mut took_ns = [USUAL_NS; ROUNDS];
    for took_ns in &mut took_ns {
        // SAFETY: a new mapping, which nobody else knows, and which is unmapped before anything refers to it.
        unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            let Ok(pages) = mmap_anonymous(null_mut(), bytes, protection, MapFlags::PRIVATE) else {
                continue;
            };
            let before_ns = platform::thread_cpu_ns();
            for page in (0..bytes).step_by(platform::page_bytes()) {
                pages.cast::<u8>().add(page).write_volatile(1);
            }
            let all_ns = platform::thread_cpu_ns() - before_ns;
            *took_ns = (all_ns / PAGES as u64).clamp(50, 100_000);
            let _ = munmap(pages, bytes);
        }
    }
    took_ns.sort_unstable();
    took_ns[ROUNDS / 2]
}

fn open(attributes: &mut perf_event_attr, tid: Tid) -> io::Result<OwnedFd> {
    attributes.size = size_of::<perf_event_attr>() as u32;
    // SAFETY: the kernel reads `size` bytes, and writes its own size there if that is smaller.
    let file = unsafe {
        let flags = PERF_FLAG_FD_CLOEXEC.into();
        perf_event_open(attributes, tid.0 as libc::pid_t, -1, -1, flags)
    };
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is ours alone.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

/// An older kernel does not know something that was asked for.
fn is_too_new(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::E2BIG))
}

/// Follows what was asked for, as far as the kernel lets us.
///
/// # Errors
/// The kernel's clock was asked for and cannot be had.
pub(crate) fn choose(options: &Options) -> Result<Chosen, RecordError> {
    // Where nobody is interrupted and where calls are only counted, nothing is sampled.
    let is_sampled = options.interrupt_running && !options.count_calls;
    match options.clock {
        _ if !is_sampled => Ok(Chosen::of(SamplingClock::Tick)),
        ClockChoice::Tick => Ok(Chosen::of(SamplingClock::Tick)),
        ClockChoice::Timer => {
            let timer_ns = probe_timers().map_err(RecordError::NoTimers)?;
            Ok(Chosen {
                timer_ns,
                ..Chosen::of(SamplingClock::Timer)
            })
        }
        ClockChoice::Kernel => {
            probe().map_err(RecordError::NoKernelClock)?;
            Ok(Chosen::of(SamplingClock::Kernel))
        }
        ClockChoice::Auto => Ok(match probe_timers() {
            Ok(timer_ns) => {
                let refused = match is_without_events() {
                    true => Some("STACKBEAT_NO_EVENTS is set".to_owned()),
                    false => probe().err().map(|why_not| why_not.to_string()),
                };
                Chosen {
                    at_first: match &refused {
                        None => sampled_by::EVENTS_AT_FIRST,
                        Some(_) => sampled_by::TICKS_AT_FIRST,
                    },
                    timer_ns,
                    why_not: refused.unwrap_or_default(),
                    ..Chosen::of(SamplingClock::Timer)
                }
            }
            Err(why_not) => Chosen {
                why_not: why_not.to_string(),
                ..Chosen::of(SamplingClock::Tick)
            },
        }),
    }
}

/// `STACKBEAT_NO_EVENTS` is set: for tests.
fn is_without_events() -> bool {
    std::env::var_os("STACKBEAT_NO_EVENTS").is_some_and(|value| !value.is_empty())
}

/// Whether this process may have events, and the kernel is known to send their signals in time.
pub(crate) fn probe() -> Result<(), WhyNot> {
    let opened = Event::open(Tid(0), PERF_COUNT_SW_TASK_CLOCK, 1_000_000);
    opened.map_err(|source| WhyNot::Refused {
        advice: advice(&source),
        source,
    })?;
    let release = release();
    if is_older(&release, (5, 13)) {
        return Err(WhyNot::Old(release));
    }
    // There, and 1, on such kernels only (kernel/ksysfs.c).
    let realtime = std::fs::read_to_string("/sys/kernel/realtime").unwrap_or_default();
    match realtime.trim() {
        "1" => Err(WhyNot::RealTime),
        _ => Ok(()),
    }
}

/// The tick of the kernel, ns, where it sends the signals of CPU timers when a thread leaves the kernel.
///
/// # Errors
/// It may send them in the middle of a system call: where it has no `CONFIG_POSIX_CPU_TIMERS_TASK_WORK`. x86
/// has it since Linux 5.9 (arch/x86/Kconfig); of others that is not known here.
pub(crate) fn probe_timers() -> Result<u64, WhyNot> {
    let release = release();
    match cfg!(target_arch = "x86_64") && !is_older(&release, (5, 9)) {
        true => Ok(tick_ns()),
        false => Err(WhyNot::EndsCalls(release)),
    }
}

/// Distance between two ticks of the kernel, ns: no CPU timer goes off more often.
pub(crate) fn tick_ns() -> u64 {
    // The coarse clock advances with the tick (clock_getres(2)).
    let resolution = clock_getres(ClockId::MonotonicCoarse);
    u64::try_from(resolution.tv_nsec).unwrap_or(0)
}

/// The kernel's release, such as 6.18.1.
fn release() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim().to_owned()
}

/// Whether a kernel of this release is older than this version.
fn is_older(release: &str, first: (u32, u32)) -> bool {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next(), numbers.next());
    matches!(version, (Some(major), Some(minor)) if (major, minor) < first)
}

/// What to do about an error of `perf_event_open`.
fn advice(error: &io::Error) -> String {
    const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
    let paranoid = std::fs::read_to_string(PARANOID).unwrap_or_default();
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => format!(
            "kernel.perf_event_paranoid is {}, and must be 2 or less without CAP_PERFMON; containers need a seccomp profile \
             that allows the call",
            paranoid.trim()
        ),
        Some(libc::ENOSYS) => "this kernel has no perf events (CONFIG_PERF_EVENTS)".to_owned(),
        _ => "see perf_event_open(2)".to_owned(),
    }
}

/// Each event is a descriptor: raises this process' limit of them as far as it may. The program has been
/// started before.
fn make_room() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Where this is refused fewer threads have events, and that is said.
    let _ = setrlimit(Resource::Nofile, limit);
}
