//! A session inside the program on Linux and Android: the system is that of a session outside, and the
//! session's own threads are none of the program's.

use std::ffi::{CStr, OsString, c_int};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use stackbeat_core::ids::{Pid, Tid};
use stackbeat_core::platform;
use stackbeat_proto::v1::CounterBatch;

use crate::host::{
    CopyOfCode, Followed, Host, Image, Interruption, Limits, Peers, Resources, Scheduled, State,
    ThreadClock, Usage, Use, Watch, Whose,
};
use crate::linux::host::Linux;
use crate::linux::lock_waits::LockWaits;
use crate::linux::transfers::Transfers;
use crate::linux::{off_cpu, procfs, resources, thread_clock};
use crate::session::clocks::now_ns;
use crate::session::error::RecordError;
use crate::session::options::{Chosen, ClockChoice, Options};
use crate::session::own_threads;
use crate::session::protocol::LocksReply;
use crate::session::shared::Shared;

/// The surroundings of the session with this mapping.
pub(super) fn host(mapping_name: &[u8], own_pid: Pid) -> Arc<dyn Host> {
    #[cfg(all(test, target_arch = "x86_64"))]
    if crate::apple::tests::session::is_wanted() {
        return Arc::new(crate::apple::host::Inside::new(own_pid));
    }
    Arc::new(Inside {
        system: Linux::of_session(mapping_name, own_pid),
        own_pid,
        cpu_ns: AtomicU64::new(0),
    })
}

/// The clock of a session inside: whoever does not compute costs nothing with timers.
pub(super) fn choose_clock(options: &mut Options) -> Result<Chosen, RecordError> {
    options.clock = match thread_clock::probe_timers() {
        #[cfg(all(test, target_arch = "x86_64"))]
        _ if crate::apple::tests::session::is_wanted() => ClockChoice::Tick,
        Ok(_) => ClockChoice::Timer,
        Err(_) => ClockChoice::Tick,
    };
    thread_clock::choose(options)
}

/// When the program began.
pub(super) fn began_at(own_pid: Pid) -> Option<SystemTime> {
    procfs::started_at(own_pid)
}

/// Takes the stacks of threads that still wait, at the session's end.
pub(super) fn look_at_waits(shared: &Arc<Shared>, mapping_name: &[u8]) {
    off_cpu::look_once(shared, mapping_name);
}

/// What threads of the session have read and written that have ended.
static ENDED: Mutex<Option<Transfers>> = Mutex::new(None);

/// The calling thread, which is one of the session's, is about to end.
pub(super) fn leave_thread() {
    if let Some(own) = Transfers::of_ending_thread() {
        let mut ended = ENDED.lock().unwrap_or_else(PoisonError::into_inner);
        *ended = Some(ended.map_or(own, |before| before.and(own)));
    }
}

/// What the program has read and written so far, threads of the session left out.
pub(super) fn transfers() -> Option<Transfers> {
    let ended = *ENDED.lock().unwrap_or_else(PoisonError::into_inner);
    let this = platform::thread_id();
    let others = own_threads::tids().filter(|tid| *tid != this);
    let others = others.filter_map(|tid| Transfers::of_thread(Tid(tid)));
    let own = others.chain(ended).reduce(Transfers::and);
    let (all, of_this) = Transfers::of_own_process_and_thread()?;
    let all = all.since(of_this);
    Some(own.map_or(all, |own| all.since(own)))
}

/// The same since a moment, as counters.
pub(super) fn transfers_since(
    before: Option<Transfers>,
    shared: &Shared,
) -> Option<Vec<CounterBatch>> {
    let since = transfers()?.since(before?);
    let of_program = since.without_agents(shared.mapping.control());
    Some(of_program.counters(now_ns()).collect())
}

/// Threads that wait for locks now, and who holds these.
pub(super) fn locks(shared: &Arc<Shared>, mapping_name: &[u8]) -> LocksReply {
    LockWaits::new(Arc::clone(shared), mapping_name).reply()
}

/// The program's arguments, as the kernel has them.
pub(super) fn command_line() -> Vec<OsString> {
    let bytes = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
    let parts = bytes.split(|b| *b == 0);
    parts
        .map(|part| OsString::from_vec(part.to_vec()))
        .collect()
}

/// Signals by which libc has each thread do something, and waits for it. glibc: threads are cancelled and
/// change their user (`SIGCANCEL` and `SIGSETXID` of its sysdeps/unix/sysv/linux/internal-signals.h).
#[cfg(target_os = "linux")]
const OF_LIBC: std::ops::RangeInclusive<i32> = 32..=33;
/// bionic: a thread prints its stack, and many more (libc/platform/bionic/reserved_signals.h, which leaves
/// them open everywhere).
#[cfg(target_os = "android")]
const OF_LIBC: std::ops::RangeInclusive<i32> = 33..=41;

/// Blocks all signals but those of faults, which are no one's to hold back, and libc's own. Gives what was
/// blocked before.
pub(super) fn block_signals() -> u64 {
    let faults = [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGSYS,
    ];
    let open = faults.into_iter().chain(OF_LIBC);
    let mask = open.fold(u64::MAX, |mask, signal| {
        mask & !platform::signal_bit(signal as u32)
    });
    let before = platform::blocked_signals();
    platform::block_signals(mask);
    before
}

/// Blocks what was blocked before.
pub(super) fn restore_signals(before: u64) {
    platform::block_signals(before);
}

/// The calling thread begins as one of the session's.
pub(super) fn enter_thread(name: &CStr) {
    // SAFETY: sets the calling thread's name, of which the kernel keeps 15 bytes.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    leave_descriptors();
}

/// Gives the calling thread a table of descriptors of its own, in which none of the program's is, and a
/// working directory of its own. The program may close all descriptors and not meet ours; a pipe that it
/// closes is closed.
fn leave_descriptors() {
    const UNSHARE: libc::c_uint = 2; // CLOSE_RANGE_UNSHARE of linux/close_range.h
    // SAFETY: both change the calling thread alone, whose table nobody else uses once it is its own.
    unsafe {
        let is_done = platform::apps_may_call(libc::SYS_close_range)
            && libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, UNSHARE) == 0;
        // Linux before 5.9; where a filter refuses it, the table stays the program's.
        if !is_done && libc::unshare(libc::CLONE_FILES) == 0 {
            let mut limit: libc::rlimit = std::mem::zeroed();
            libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
            (0..limit.rlim_cur.min(1 << 20)).for_each(|fd| {
                libc::close(fd as c_int);
            });
        }
        libc::unshare(libc::CLONE_FS);
        // Nothing that is opened later is taken for standard error.
        for _ in 0..3 {
            libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        }
    }
}

/// The surroundings of a session inside the program.
#[derive(Debug)]
struct Inside {
    system: Linux,
    own_pid: Pid,
    /// CPU time of the program's own threads when it was asked for last, ns.
    cpu_ns: AtomicU64,
}

/// The clocks of a process and of its threads are read one after the other: a difference of less is none, ns.
const APART_NS: u64 = 20_000;

impl Host for Inside {
    fn whose(&self, pid: Pid) -> Whose {
        match pid == self.own_pid {
            true => Whose::Ours,
            // Forked children take part, too.
            false => self.system.whose(pid),
        }
    }

    fn thread_count(&self, pid: Pid) -> Option<u64> {
        let all = self.system.thread_count(pid)?;
        Some(all.saturating_sub(own_threads::count(pid)))
    }

    fn threads(&self, pid: Pid) -> Vec<Tid> {
        let mut threads = self.system.threads(pid);
        if pid == self.own_pid {
            threads.retain(|tid| !own_threads::has(*tid));
        }
        threads
    }

    fn exists(&self, pid: Pid) -> bool {
        self.system.exists(pid)
    }

    fn watch(&self, pid: Pid) -> Option<Box<dyn Watch>> {
        self.system.watch(pid)
    }

    fn image(&self, pid: Pid) -> Image {
        self.system.image(pid)
    }

    fn mapped_file(&self, pid: Pid, address: u64) -> Option<String> {
        self.system.mapped_file(pid, address)
    }

    fn copies_of_code(&self, pid: Pid) -> Vec<CopyOfCode> {
        self.system.copies_of_code(pid)
    }

    fn process_cpu_ns(&self, pid: Pid) -> u64 {
        let all_ns = self.system.process_cpu_ns(pid);
        if pid != self.own_pid {
            return all_ns;
        }
        let own_ns = own_threads::cpu().map_or(0, |cpu| cpu.as_nanos() as u64);
        let (now_ns, before_ns) = (
            all_ns.saturating_sub(own_ns),
            self.cpu_ns.load(Ordering::Relaxed),
        );
        if now_ns < before_ns + APART_NS {
            return before_ns;
        }
        self.cpu_ns.store(now_ns, Ordering::Relaxed);
        now_ns
    }

    fn resources(&self, pid: Pid) -> Option<Box<dyn Resources>> {
        let all = self.system.resources(pid)?;
        Some(match pid == self.own_pid {
            true => Box::new(OfProgram(all)),
            false => all,
        })
    }

    fn limits(&self, pid: Pid) -> Option<Box<dyn Limits>> {
        self.system.limits(pid)
    }

    fn has_thread(&self, pid: Pid, tid: Tid) -> bool {
        self.system.has_thread(pid, tid)
    }

    fn thread_name(&self, pid: Pid, tid: Tid) -> Option<String> {
        self.system.thread_name(pid, tid)
    }

    fn usage(&self, pid: Pid, tid: Tid) -> Option<Usage> {
        self.system.usage(pid, tid)
    }

    fn scheduled(&self, pid: Pid, tid: Tid) -> Option<Scheduled> {
        self.system.scheduled(pid, tid)
    }

    fn user_ns(&self, pid: Pid, tid: Tid) -> Option<u64> {
        self.system.user_ns(pid, tid)
    }

    fn state(&self, pid: Pid, tid: Tid) -> State {
        self.system.state(pid, tid)
    }

    fn follow(&self, pid: Pid, tid: Tid) -> Box<dyn Followed> {
        self.system.follow(pid, tid)
    }

    fn is_waiting(&self, pid: Pid, tid: Tid) -> bool {
        self.system.is_waiting(pid, tid)
    }

    fn interruption(&self) -> io::Result<Interruption> {
        self.system.interruption()
    }

    fn thread_clock(&self, tid: Tid, period_ns: u64) -> io::Result<Box<dyn ThreadClock>> {
        self.system.thread_clock(tid, period_ns)
    }

    fn begin_ticking(&self) {
        self.system.begin_ticking();
    }

    fn sleep_until(&self, ns: u64) {
        self.system.sleep_until(ns);
    }

    fn system_tick_ns(&self) -> u64 {
        self.system.system_tick_ns()
    }

    fn peers(&self) -> Option<Box<dyn Peers>> {
        self.system.peers()
    }
}

/// What the process uses without the session's threads. Memory is that of both.
#[derive(Debug)]
struct OfProgram(Box<dyn Resources>);

impl Resources for OfProgram {
    fn read(&mut self) -> Use {
        let mut found = self.0.read();
        for tid in own_threads::tids() {
            found.threads = found.threads.map(|threads| threads.saturating_sub(1));
            let own = resources::faults_of_thread(Tid(tid));
            found.faults = (found.faults).map(|all| [0, 1].map(|i| all[i].saturating_sub(own[i])));
        }
        found
    }
}
