//! The process that traces. It is forked from one with threads and does not exec, so it may call the kernel
//! and nothing else: it allocates nothing and takes no lock.
//!
//! A thread is traced from one suspension to its end and not in between: its signals go their way, and when
//! we die it goes on.

use std::fmt::{self, Write};
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use stackbeat_core::ids::{Pid, Tid};
use stackbeat_core::platform;
use stackbeat_core::unwind::Registers;

use crate::host::Suspended;
use crate::linux::attach::registers_to_begin_again;
use crate::linux::ticking;
use crate::session::clocks::now_ns;

/// So long a thread is waited for, ns. One that is ready may have to wait for a processor; one that waits in
/// the kernel for a page, or for the child of its vfork, stops when that is over.
const LONGEST_NS: u64 = 50_000_000;

/// What stands in [`Page::step`].
mod step {
    /// Nothing is asked for.
    pub(super) const IDLE: u32 = 0;
    /// To be suspended.
    pub(super) const SUSPEND: u32 = 1;
    /// It stands still.
    pub(super) const STILL: u32 = 2;
    /// To go on.
    pub(super) const RESUME: u32 = 3;
    /// It was not suspended: it has ended.
    pub(super) const GONE: u32 = 4;
    /// It was not suspended.
    pub(super) const REFUSED: u32 = 5;
    /// Nobody waits for it any more: it is to go on when it stops.
    pub(super) const GIVEN_UP: u32 = 6;
}

/// What both processes see. Who has to do the next step changes it.
#[repr(C)]
struct Page {
    /// A [`step`]; a futex word.
    step: AtomicU32,
    pid: AtomicU32,
    tid: AtomicU32,
    cpu_ns: AtomicU64,
    /// pc, sp, fp, and the other callee-saved ones.
    registers: [AtomicU64; 8],
}

/// The process, and how to talk to it.
pub(super) struct Tracer {
    page: &'static Page,
    child: libc::pid_t,
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer")
            .field("child", &self.child)
            .finish()
    }
}

impl Tracer {
    pub(super) fn start() -> io::Result<Tracer> {
        // SAFETY: a new mapping; all its words are atomics, for which zeros are valid.
        let page = unsafe {
            let address = libc::mmap(
                std::ptr::null_mut(),
                size_of::<Page>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            if address == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            &*address.cast::<Page>()
        };
        // SAFETY: asks for numbers.
        let parent = unsafe { libc::getpid() };
        // SAFETY: the child calls the kernel only.
        match unsafe { libc::fork() } {
            -1 => {
                let error = io::Error::last_os_error();
                unmap(page);
                Err(error)
            }
            0 => serve(page, parent),
            child => Ok(Tracer { page, child }),
        }
    }

    /// Suspends a thread: when it gives `Yes`, call [`Tracer::resume`].
    pub(super) fn suspend(&mut self, pid: Pid, tid: Tid) -> Suspended {
        let page = self.page;
        if page.step.load(Ordering::Acquire) != step::IDLE {
            // The last one has not stopped yet.
            return Suspended::NotNow;
        }
        page.pid.store(pid.0, Ordering::Relaxed);
        page.tid.store(tid.0, Ordering::Relaxed);
        go_to(page, step::SUSPEND);
        let until_ns = now_ns() + LONGEST_NS;
        loop {
            match page.step.load(Ordering::Acquire) {
                step::STILL => break,
                step::SUSPEND => {
                    let left_ns = until_ns.saturating_sub(now_ns());
                    if left_ns > 0 {
                        platform::wait(&page.step, step::SUSPEND, Some(left_ns));
                    } else if change(page, step::SUSPEND, step::GIVEN_UP) {
                        return Suspended::NotNow;
                    }
                }
                answer => {
                    page.step.store(step::IDLE, Ordering::Release);
                    return match answer {
                        step::GONE => Suspended::Gone,
                        _ => Suspended::NotNow,
                    };
                }
            }
        }
        let get = |i: usize| page.registers[i].load(Ordering::Relaxed);
        Suspended::Yes {
            registers: Registers {
                pc: get(0),
                sp: get(1),
                fp: get(2),
                saved: [get(3), get(4), get(5), get(6), get(7)],
                ..Registers::default()
            },
            cpu_ns: page.cpu_ns.load(Ordering::Relaxed),
        }
    }

    /// Lets it go on.
    pub(super) fn resume(&mut self) {
        go_to(self.page, step::RESUME);
        while self.page.step.load(Ordering::Acquire) == step::RESUME {
            platform::wait(&self.page.step, step::RESUME, Some(LONGEST_NS));
            if self.has_ended() {
                // Killed by somebody: then the kernel has let the thread go on. No other one is suspended
                // from here on.
                return;
            }
        }
    }

    /// Whether the process is gone. It stays to be waited for.
    fn has_ended(&self) -> bool {
        // SAFETY: asks about our own child, and fills in a local structure.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
            libc::waitid(libc::P_PID, self.child as libc::id_t, &raw mut info, how) == 0
                && info.si_pid() == self.child
        }
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // Killed, it lets go of whom it traces.
        // SAFETY: our own child, which nobody has waited for.
        unsafe {
            libc::kill(self.child, libc::SIGKILL);
            libc::waitpid(self.child, std::ptr::null_mut(), 0);
        }
        unmap(self.page);
    }
}

fn unmap(page: &'static Page) {
    // SAFETY: as it was mapped; nobody looks at it any more.
    unsafe {
        libc::munmap(
            std::ptr::from_ref(page).cast_mut().cast(),
            size_of::<Page>(),
        )
    };
}

fn go_to(page: &Page, step: u32) {
    page.step.store(step, Ordering::Release);
    platform::wake(&page.step, 1);
}

fn change(page: &Page, from: u32, to: u32) -> bool {
    let changed = (page.step).compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
    changed.is_ok()
}

/// What the process does until its parent ends.
fn serve(page: &Page, parent: libc::pid_t) -> ! {
    // SAFETY: these change the calling process alone, which has a copy of everything.
    unsafe {
        platform::block_signals(u64::MAX);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_NAME, c"stackbeat pause".as_ptr());
        // Locks on files end with their last descriptor.
        libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0);
        if libc::getppid() != parent {
            libc::_exit(0);
        }
    }
    // Somebody stands still until we have a processor.
    ticking::begin();
    loop {
        match page.step.load(Ordering::Acquire) {
            step::SUSPEND => suspend(page),
            // Before we came to it.
            step::GIVEN_UP => page.step.store(step::IDLE, Ordering::Release),
            other => platform::wait(&page.step, other, None),
        }
    }
}

/// Suspends the thread, waits until it may go on, and lets go of it.
fn suspend(page: &Page) {
    let tid = page.tid.load(Ordering::Relaxed) as libc::pid_t;
    let answer = |answer| {
        if !change(page, step::SUSPEND, answer) {
            // Who has given up does not wait for an answer.
            page.step.store(step::IDLE, Ordering::Release);
        }
        platform::wake(&page.step, 1);
    };
    let counts = open_counts(page.pid.load(Ordering::Relaxed), tid);
    if counts < 0 {
        return answer(step::GONE);
    }
    let stopped = stop(tid);
    if let Err(refusal) = stopped {
        close(counts);
        return answer(refusal);
    }
    let cpu_ns = read_cpu_ns(counts);
    close(counts);
    // SAFETY: plain data for which all zeros is valid.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    let has_registers = ptrace(libc::PTRACE_GETREGS, tid, (&raw mut registers).addr()) == 0;
    if let Some(again) = registers_to_begin_again(&registers) {
        ptrace(libc::PTRACE_SETREGS, tid, (&raw const again).addr());
    }
    let (Some(cpu_ns), true) = (cpu_ns, has_registers) else {
        ptrace(libc::PTRACE_DETACH, tid, 0);
        return answer(step::REFUSED);
    };
    let words = [
        registers.rip,
        registers.rsp,
        registers.rbp,
        registers.rbx,
        registers.r12,
        registers.r13,
        registers.r14,
        registers.r15,
    ];
    for (word, value) in page.registers.iter().zip(words) {
        word.store(value, Ordering::Relaxed);
    }
    page.cpu_ns.store(cpu_ns, Ordering::Relaxed);
    if change(page, step::SUSPEND, step::STILL) {
        platform::wake(&page.step, 1);
        while page.step.load(Ordering::Acquire) == step::STILL {
            platform::wait(&page.step, step::STILL, None);
        }
    }
    ptrace(libc::PTRACE_DETACH, tid, 0);
    page.step.store(step::IDLE, Ordering::Release);
    platform::wake(&page.step, 1);
}

/// Begins to trace a thread and waits until it has stopped. An error is the answer; then nobody traces it.
fn stop(tid: libc::pid_t) -> Result<(), u32> {
    /// `PTRACE_EVENT_STOP` of Linux' include/uapi/linux/ptrace.h.
    const EVENT_STOP: i32 = 128;
    if ptrace(libc::PTRACE_SEIZE, tid, 0) != 0 {
        let is_gone = io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
        return Err(if is_gone { step::GONE } else { step::REFUSED });
    }
    ptrace(libc::PTRACE_INTERRUPT, tid, 0);
    loop {
        let mut status = 0;
        // SAFETY: the pointer is to a valid object.
        let got = unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL) };
        if got != tid || !libc::WIFSTOPPED(status) {
            return Err(step::GONE);
        }
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        match event {
            EVENT_STOP if signal == libc::SIGTRAP => return Ok(()),
            // With its process, by a stopping signal, and it stays so.
            EVENT_STOP => {
                ptrace(libc::PTRACE_DETACH, tid, 0);
                return Err(step::REFUSED);
            }
            // What was about to be delivered is delivered; the request stays.
            _ => _ = ptrace(libc::PTRACE_CONT, tid, signal as usize),
        }
    }
}

fn ptrace(request: libc::c_uint, tid: libc::pid_t, data: usize) -> libc::c_long {
    // SAFETY: `data` is a number, or the address of what the request reads or writes.
    unsafe { libc::ptrace(request, tid, 0usize, data) }
}

/// A file with the thread's CPU time; negative: there is none.
fn open_counts(pid: u32, tid: libc::pid_t) -> libc::c_int {
    let mut path = Path {
        bytes: [0; 64],
        length: 0,
    };
    if write!(path, "/proc/{pid}/task/{tid}/schedstat").is_err() {
        return -1;
    }
    // SAFETY: the path ends with a zero: it is never full.
    unsafe { libc::open(path.bytes.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC) }
}

fn close(file: libc::c_int) {
    // SAFETY: our own descriptor, which nobody uses any more.
    unsafe { libc::close(file) };
}

/// The first number in the file (Documentation/scheduler/sched-stats.rst).
fn read_cpu_ns(file: libc::c_int) -> Option<u64> {
    let mut text = [0u8; 64];
    // SAFETY: reads at most its size into `text`.
    let read = unsafe { libc::pread(file, text.as_mut_ptr().cast(), text.len(), 0) };
    let text = text.get(..usize::try_from(read).ok()?)?;
    let digits = text.split(|b| !b.is_ascii_digit()).next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// A path that is put together without memory of its own; its last byte stays zero.
struct Path {
    bytes: [u8; 64],
    length: usize,
}

impl Write for Path {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        let room = self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.length = end;
        match end < self.bytes.len() {
            true => Ok(()),
            false => Err(fmt::Error),
        }
    }
}
