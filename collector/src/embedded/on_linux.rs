//! A session inside the program on Linux and Android: the system is that of a session outside, and the session's own threads are
//! none of the program's.

use std::ffi::{CStr, OsString, c_int};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

use stackbeat_core::ids::{Pid, Tid};
use stackbeat_core::platform;

use crate::host::{
    Followed, Host, Image, Interruption, Peers, Scheduled, State, ThreadClock, Usage, Watch, Whose,
};
use crate::linux::host::Linux;
use crate::linux::lock_waits::LockWaits;
use crate::linux::{off_cpu, thread_clock};
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

/// Takes the stacks of threads that still wait, at the session's end.
pub(super) fn look_at_waits(shared: &Arc<Shared>, mapping_name: &[u8]) {
    off_cpu::look_once(shared, mapping_name);
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

/// Signals by which libc has each thread do something, and waits for it. glibc: threads are cancelled and change their user
/// (`SIGCANCEL` and `SIGSETXID` of its sysdeps/unix/sysv/linux/internal-signals.h).
#[cfg(target_os = "linux")]
const OF_LIBC: std::ops::RangeInclusive<i32> = 32..=33;
/// bionic: a thread prints its stack, and many more (libc/platform/bionic/reserved_signals.h, which leaves them open everywhere).
#[cfg(target_os = "android")]
const OF_LIBC: std::ops::RangeInclusive<i32> = 33..=41;

/// Blocks all signals but those of faults, which are no one's to hold back, and libc's own. Gives what was blocked before.
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

/// Gives the calling thread a table of descriptors of its own, in which none of the program's is, and a working directory of its
/// own. The program may close all descriptors and not meet ours; a pipe that it closes is closed.
fn leave_descriptors() {
    const UNSHARE: libc::c_uint = 2; // CLOSE_RANGE_UNSHARE of linux/close_range.h
    // SAFETY: both change the calling thread alone, whose table nobody else uses once it is its own.
    unsafe {
        let is_done = libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, UNSHARE) == 0;
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
}

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

    fn process_cpu_ns(&self, pid: Pid) -> u64 {
        self.system.process_cpu_ns(pid)
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

    fn peers(&self) -> Option<Box<dyn Peers>> {
        self.system.peers()
    }
}
