//! One thread of another process, stopped by ptrace: its registers, its memory, and calls that it makes
//! for us.
//!
//! A thread that was in a system call when it was stopped goes on in it: the kernel restarts calls by
//! the registers that it finds when the thread leaves the stop in which it was interrupted, so these
//! are put back as they were, in a stop of the same kind.
//!
//! A call returns to address 0, and the fault stops it for us before anybody else hears of it. Where the
//! program ignores SIGSEGV, the kernel would reset that for a fault; there a call returns into a `syscall`
//! instruction of libc, and all system calls of the thread stop it meanwhile.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use stackbeat_core::ids::{Pid, Tid};

use crate::linux::procfs;
use crate::linux::spawn::signal_set;
use crate::session::attach_error::{AttachError, Held};

/// `PTRACE_GETSIGMASK` and `PTRACE_SETSIGMASK` of Linux' include/uapi/linux/ptrace.h.
const PTRACE_GETSIGMASK: libc::c_uint = 0x420a;
const PTRACE_SETSIGMASK: libc::c_uint = 0x420b;
/// `NT_X86_XSTATE` of <elf.h>.
const NT_X86_XSTATE: usize = 0x202;
/// More than the state of any x86-64 processor so far (AMX: 11 KiB).
const XSTATE_BYTES: usize = 32 << 10;
/// A stop at a system call, with `PTRACE_O_TRACESYSGOOD`.
const SYSCALL_STOP: i32 = libc::SIGTRAP | 0x80;

/// In rax: begin the call again unless a handler runs (include/linux/errno.h).
const ERESTARTNOHAND: i64 = -514;
/// Calls that a stop ends with EINTR (signal(7), "Interruption of system calls and library functions by
/// stop signals", and sockets with a timeout), and that have done nothing then.
const GIVES_EINTR: [i64; 14] = [
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_accept,
    libc::SYS_accept4,
];

/// Signals by which a call of ours can fail. All others wait.
const FAULTS: [i32; 6] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// Where calls return to: nothing is mapped below vm.mmap_min_addr.
const NOWHERE: u64 = 0;

/// How long a call in the program may take. Loading waits for whoever is loading something else.
const CALL_TIME: Duration = Duration::from_secs(20);

/// Between two polls of the thread when no signal comes.
const LONGEST_WAIT: Duration = Duration::from_millis(5);

pub(super) type Registers = libc::user_regs_struct;

/// Registers by which a stopped thread begins a call again that the stop has ended with EINTR. `None`: those
/// that it has do.
pub(crate) fn registers_to_begin_again(registers: &Registers) -> Option<Registers> {
    let has_ended = registers.rax as i64 == -i64::from(libc::EINTR)
        && GIVES_EINTR.contains(&(registers.orig_rax as i64));
    has_ended.then_some(Registers {
        rax: ERESTARTNOHAND as u64,
        ..*registers
    })
}

/// Why a thread stopped.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stop {
    /// By our request; in a system call, that call was interrupted.
    Interrupted,
    /// At a system call's begin or end.
    Syscall,
    /// A signal is about to be delivered.
    Signal(i32),
    /// With its process, by a stopping signal.
    Group,
    Ended,
}

/// A thread that is traced by the calling thread. Dropped, it goes on.
#[derive(Debug)]
pub(super) struct Tracee {
    pid: Pid,
    tid: Tid,
    stopped: bool,
    /// The memory of the process.
    memory: File,
}

impl Tracee {
    /// Begins to trace a thread, which goes on.
    pub(super) fn seize(pid: Pid, tid: Tid) -> io::Result<Tracee> {
        let memory = File::options()
            .read(true)
            .write(true)
            .open(format!("/proc/{pid}/mem"))?;
        ptrace(
            libc::PTRACE_SEIZE,
            tid,
            0,
            libc::PTRACE_O_TRACESYSGOOD as usize,
        )?;
        Ok(Tracee {
            pid,
            tid,
            stopped: false,
            memory,
        })
    }

    /// Stops the thread where a signal would: in a call that can be interrupted, or in its own code.
    /// `None`: not within this time (then the request stays).
    pub(super) fn interrupt(&mut self, time: Duration) -> io::Result<Option<Stop>> {
        ptrace(libc::PTRACE_INTERRUPT, self.tid, 0, 0)?;
        let deadline = Instant::now() + time;
        loop {
            match self.wait(deadline)? {
                // What was about to be delivered is delivered; the request stays.
                Some(Stop::Signal(signal)) => self.go_on(libc::PTRACE_CONT, signal)?,
                Some(Stop::Interrupted) => {
                    self.mend_call()?;
                    return Ok(Some(Stop::Interrupted));
                }
                other => return Ok(other),
            }
        }
    }

    /// Some calls give EINTR also when no handler has run, because a stop is a signal to them: has the
    /// kernel begin them again, unless a handler runs before.
    fn mend_call(&self) -> io::Result<()> {
        match registers_to_begin_again(&self.registers()?) {
            Some(registers) => self.set_registers(&registers),
            None => Ok(()),
        }
    }

    /// Waits for the next stop. The session has blocked SIGCHLD, by which the kernel reports stops.
    fn wait(&mut self, deadline: Instant) -> io::Result<Option<Stop>> {
        let stops = signal_set(&[libc::SIGCHLD]);
        loop {
            let mut status = 0;
            // SAFETY: the pointer is to a valid object.
            let got = unsafe {
                libc::waitpid(
                    self.tid.0 as libc::pid_t,
                    &raw mut status,
                    libc::__WALL | libc::WNOHANG,
                )
            };
            if got < 0 {
                return Err(io::Error::last_os_error());
            }
            if got != 0 {
                self.stopped = libc::WIFSTOPPED(status);
                return Ok(Some(stop_of(status)));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let time = libc::timespec {
                tv_sec: 0,
                tv_nsec: left.min(LONGEST_WAIT).as_nanos() as libc::c_long,
            };
            // SAFETY: both pointers are to valid objects; no information is wanted.
            unsafe {
                libc::sigtimedwait(&raw const stops, std::ptr::null_mut(), &raw const time);
            }
        }
    }

    fn go_on(&mut self, request: libc::c_uint, signal: i32) -> io::Result<()> {
        ptrace(request, self.tid, 0, signal as usize)?;
        self.stopped = false;
        Ok(())
    }

    pub(super) fn registers(&self) -> io::Result<Registers> {
        // SAFETY: plain data for which all zeros is valid.
        let mut registers: Registers = unsafe { std::mem::zeroed() };
        ptrace(
            libc::PTRACE_GETREGS,
            self.tid,
            0,
            (&raw mut registers).addr(),
        )?;
        Ok(registers)
    }

    fn set_registers(&self, registers: &Registers) -> io::Result<()> {
        let address = std::ptr::from_ref(registers).addr();
        ptrace(libc::PTRACE_SETREGS, self.tid, 0, address)
    }

    /// Vector and floating point registers, in the processor's form.
    fn vectors(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0u8; XSTATE_BYTES];
        let length =
            self.vector_request(libc::PTRACE_GETREGSET, bytes.as_mut_ptr(), bytes.len())?;
        bytes.truncate(length);
        Ok(bytes)
    }

    fn set_vectors(&self, bytes: &mut [u8]) -> io::Result<()> {
        self.vector_request(libc::PTRACE_SETREGSET, bytes.as_mut_ptr(), bytes.len())?;
        Ok(())
    }

    fn vector_request(&self, what: libc::c_uint, at: *mut u8, bytes: usize) -> io::Result<usize> {
        let mut range = libc::iovec {
            iov_base: at.cast(),
            iov_len: bytes,
        };
        ptrace(what, self.tid, NT_X86_XSTATE, (&raw mut range).addr())?;
        Ok(range.iov_len)
    }

    fn signal_mask(&self) -> io::Result<u64> {
        let mut mask = 0u64;
        ptrace(PTRACE_GETSIGMASK, self.tid, 8, (&raw mut mask).addr())?;
        Ok(mask)
    }

    fn set_signal_mask(&self, mask: u64) -> io::Result<()> {
        ptrace(PTRACE_SETSIGMASK, self.tid, 8, (&raw const mask).addr())
    }

    /// Whether the stopped thread has faulted and not got its signal yet: a stop by request comes before that
    /// signal.
    pub(super) fn has_faulted(&self) -> bool {
        let status =
            std::fs::read_to_string(format!("/proc/{}/task/{}/status", self.pid, self.tid));
        set_of(&status.unwrap_or_default(), "SigPnd:").is_none_or(|set| set & faults() != 0)
    }

    /// Whether it is no thread any more.
    fn has_ended(&self) -> bool {
        let state = procfs::state(self.pid, self.tid);
        state.map_or(true, |state| matches!(state, b'Z' | b'X'))
    }

    /// Whether the signal that is about to be delivered was sent, and is no fault of the thread's own.
    fn was_sent(&self) -> bool {
        // SAFETY: plain data for which all zeros is valid.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let asked = ptrace(libc::PTRACE_GETSIGINFO, self.tid, 0, (&raw mut info).addr());
        asked.is_ok() && info.si_code <= 0
    }

    /// Whether the thread is inside a restartable sequence: the kernel would not see that it was left.
    pub(super) fn is_in_restartable_sequence(&self, registers: &Registers) -> bool {
        /// `PTRACE_GET_RSEQ_CONFIGURATION` and its answer (Linux 5.13, include/uapi/linux/ptrace.h).
        const PTRACE_GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;
        #[repr(C)]
        #[derive(Default)]
        struct Configuration {
            address: u64,
            bytes: u32,
            signature: u32,
            flags: u32,
            padding: u32,
        }
        let mut found = Configuration::default();
        let asked = ptrace(
            PTRACE_GET_RSEQ_CONFIGURATION,
            self.tid,
            size_of::<Configuration>(),
            (&raw mut found).addr(),
        );
        if asked.is_err() || found.address == 0 {
            return false;
        }
        // `struct rseq` has the descriptor's address at 8; `struct rseq_cs` begins with version, flags,
        // start and length (include/uapi/linux/rseq.h).
        let Some(descriptor) = self.read_word(found.address + 8).filter(|d| *d != 0) else {
            return false;
        };
        match (
            self.read_word(descriptor + 8),
            self.read_word(descriptor + 16),
        ) {
            (Some(start), Some(bytes)) => registers.rip.wrapping_sub(start) < bytes,
            _ => true,
        }
    }

    fn read_word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.memory.read_exact_at(&mut bytes, address).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    /// Prepares the stopped thread for calls. `syscall`: address of a `syscall` instruction. `held` gets a
    /// message when it cannot be given back.
    pub(super) fn borrow(
        &mut self,
        syscall: u64,
        held: mpsc::Sender<Held>,
    ) -> io::Result<Borrowed<'_>> {
        let before = Before {
            registers: self.registers()?,
            vectors: self.vectors()?,
            mask: self.signal_mask()?,
        };
        // Signals wait. What a fault of our own would send must not be blocked, as it is in the program's own
        // handler of that: the kernel would reset its disposition.
        self.set_signal_mask(!faults())?;
        let faults_are_ignored = faults_are_ignored(self.pid);
        Ok(Borrowed {
            tracee: self,
            before: Some(before),
            syscall,
            faults_are_ignored,
            held_back: Vec::new(),
            held,
        })
    }

    /// Lets a stopped thread go and stops tracing it.
    pub(super) fn release(mut self) -> io::Result<()> {
        self.detach(0)
    }

    fn detach(&mut self, signal: i32) -> io::Result<()> {
        if self.stopped {
            self.stopped = false;
            ptrace(libc::PTRACE_DETACH, self.tid, 0, signal as usize)?;
        }
        Ok(())
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        // Only a stopped thread can be let go. Others are by the kernel when the tracing thread ends.
        let _ = self.detach(0);
    }
}

fn stop_of(status: i32) -> Stop {
    if !libc::WIFSTOPPED(status) {
        return Stop::Ended;
    }
    let signal = libc::WSTOPSIG(status);
    match (status >> 16, signal) {
        (libc::PTRACE_EVENT_STOP, libc::SIGTRAP) => Stop::Interrupted,
        (libc::PTRACE_EVENT_STOP, _) => Stop::Group,
        (_, SYSCALL_STOP) => Stop::Syscall,
        _ => Stop::Signal(signal),
    }
}

/// A thread's state when it was stopped.
struct Before {
    registers: Registers,
    vectors: Vec<u8>,
    mask: u64,
}

/// A stopped thread that makes calls for us. [`Borrowed::give_back`] puts everything back.
pub(super) struct Borrowed<'a> {
    tracee: &'a mut Tracee,
    before: Option<Before>,
    syscall: u64,
    faults_are_ignored: bool,
    /// Signals that came meanwhile, and were sent.
    held_back: Vec<i32>,
    held: mpsc::Sender<Held>,
}

impl Borrowed<'_> {
    /// Makes a system call. Errors of the call itself are negative numbers.
    pub(super) fn system_call(
        &mut self,
        number: i64,
        arguments: [u64; 6],
    ) -> Result<i64, AttachError> {
        let mut registers = self.base()?;
        registers.rip = self.syscall;
        registers.rax = number as u64;
        registers.rdi = arguments[0];
        registers.rsi = arguments[1];
        registers.rdx = arguments[2];
        registers.r10 = arguments[3];
        registers.r8 = arguments[4];
        registers.r9 = arguments[5];
        self.set(&registers)?;
        self.next_syscall()?;
        self.next_syscall()?;
        Ok(self.get()?.rax as i64)
    }

    /// Calls a function on a stack that ends at `stack_end`.
    pub(super) fn call(
        &mut self,
        function: u64,
        arguments: [u64; 2],
        stack_end: u64,
    ) -> Result<u64, AttachError> {
        // As if a call had just pushed its return address: the psABI wants sp + 8 aligned to 16.
        let sp = (stack_end & !63) - 64 - 8;
        let end = if self.faults_are_ignored {
            self.syscall
        } else {
            NOWHERE
        };
        self.write(sp, &end.to_le_bytes())?;
        let mut registers = self.base()?;
        registers.rip = function;
        registers.rsp = sp;
        registers.rbp = 0;
        registers.rax = 0;
        registers.rdi = arguments[0];
        registers.rsi = arguments[1];
        self.set(&registers)?;
        if !self.faults_are_ignored {
            return self.run_to_fault(sp + 8);
        }
        loop {
            self.next_syscall()?;
            let mut now = self.get()?;
            if now.rip == self.syscall + 2 && now.rsp == sp + 8 {
                // It has returned and is about to make a system call of its result: none is made.
                let result = now.orig_rax;
                now.orig_rax = u64::MAX;
                self.set(&now)?;
                self.next_syscall()?;
                return Ok(result);
            }
            self.next_syscall()?;
        }
    }

    /// Lets a call run until it returns to [`NOWHERE`]. Gives its result.
    fn run_to_fault(&mut self, sp: u64) -> Result<u64, AttachError> {
        match self.run(libc::PTRACE_CONT)? {
            Stop::Signal(libc::SIGSEGV) => {
                let now = self.get()?;
                if now.rip == NOWHERE && now.rsp == sp {
                    return Ok(now.rax);
                }
                Err(self.faulted(libc::SIGSEGV))
            }
            Stop::Signal(signal) => Err(self.faulted(signal)),
            _ => Err(self.faulted(0)),
        }
    }

    fn faulted(&self, signal: i32) -> AttachError {
        AttachError::Load {
            pid: self.tracee.pid,
            reason: format!("the call ended with signal {signal}"),
        }
    }

    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> Result<(), AttachError> {
        let written = self.tracee.memory.write_all_at(bytes, address);
        written.map_err(|e| self.failed("its memory cannot be written", e))
    }

    pub(super) fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), AttachError> {
        let read = self.tracee.memory.read_exact_at(bytes, address);
        read.map_err(|e| self.failed("its memory cannot be read", e))
    }

    /// Whether it can be used. After a call that did not come back in time it runs on in there.
    pub(super) fn is_stopped(&self) -> bool {
        self.tracee.stopped
    }

    /// Puts registers and mask back and lets the thread go on where it was.
    pub(super) fn give_back(mut self) -> Result<(), AttachError> {
        self.restore()
    }

    fn restore(&mut self) -> Result<(), AttachError> {
        let Some(before) = self.before.take() else {
            return Ok(());
        };
        let restored = self.go_back(before);
        let (pid, tid) = (self.tracee.pid.0 as libc::pid_t, self.tracee.tid);
        for signal in self.held_back.drain(..) {
            // SAFETY: sends what was held back, to the thread that was about to get it, or to the process
            // that was to stop.
            unsafe {
                match FAULTS.contains(&signal) {
                    true => libc::syscall(libc::SYS_tgkill, pid, tid, signal),
                    false => libc::kill(pid, signal).into(),
                }
            };
        }
        match restored {
            Ok(true) => Ok(()),
            Ok(false) => Err(AttachError::Ended {
                pid: self.tracee.pid,
            }),
            Err(e) => Err(self.failed("its registers cannot be put back", e)),
        }
    }

    /// Once more to a stop of the kind in which the call was interrupted; there everything is put back.
    /// False: the thread has ended.
    fn go_back(&mut self, mut before: Before) -> io::Result<bool> {
        ptrace(libc::PTRACE_INTERRUPT, self.tracee.tid, 0, 0)?;
        if self.tracee.stopped {
            self.tracee.go_on(libc::PTRACE_CONT, 0)?;
        }
        let mut is_reported = false;
        loop {
            match self.tracee.wait(Instant::now() + CALL_TIME)? {
                // While the process is stopped, all stops by request are reported so.
                Some(Stop::Interrupted | Stop::Group) => break,
                Some(Stop::Syscall) => self.tracee.go_on(libc::PTRACE_CONT, 0)?,
                Some(Stop::Signal(signal)) => {
                    if self.belongs_to_program(signal) {
                        self.held_back.push(signal);
                    }
                    self.tracee.go_on(libc::PTRACE_CONT, 0)?;
                }
                Some(Stop::Ended) => return Ok(false),
                // It is in a call of ours: left in there it would end the program.
                None if !is_reported => {
                    is_reported = true;
                    // Nobody may be left who reads it.
                    let _ = self.held.send(Held {
                        pid: self.tracee.pid,
                        tid: self.tracee.tid,
                        time: CALL_TIME,
                    });
                }
                None => {}
            }
        }
        self.tracee.set_vectors(&mut before.vectors)?;
        self.tracee.set_signal_mask(before.mask)?;
        self.tracee.set_registers(&before.registers)?;
        self.tracee.detach(0)?;
        Ok(true)
    }

    /// The registers to begin a call with: not in a system call, flags as the psABI wants them.
    fn base(&self) -> Result<Registers, AttachError> {
        let mut registers = self.get()?;
        registers.orig_rax = u64::MAX;
        // The direction flag (bit 10) is clear at calls.
        registers.eflags &= !(1 << 10);
        Ok(registers)
    }

    fn next_syscall(&mut self) -> Result<(), AttachError> {
        match self.run(libc::PTRACE_SYSCALL)? {
            Stop::Signal(signal) => Err(self.faulted(signal)),
            _ => Ok(()),
        }
    }

    /// Goes on to the next stop at a system call (if those are asked for) or by a fault.
    fn run(&mut self, request: libc::c_uint) -> Result<Stop, AttachError> {
        let deadline = Instant::now() + CALL_TIME;
        loop {
            self.tracee
                .go_on(request, 0)
                .map_err(|e| self.failed("it cannot be continued", e))?;
            let stop = self
                .tracee
                .wait(deadline)
                .map_err(|e| self.failed("it cannot be waited for", e))?;
            match stop {
                Some(Stop::Signal(signal)) if self.belongs_to_program(signal) => {
                    self.held_back.push(signal);
                }
                Some(stop @ (Stop::Signal(_) | Stop::Syscall)) => return Ok(stop),
                Some(Stop::Group | Stop::Interrupted) => {}
                Some(Stop::Ended) => {
                    self.before = None;
                    return Err(AttachError::Ended {
                        pid: self.tracee.pid,
                    });
                }
                None => {
                    return Err(AttachError::Load {
                        pid: self.tracee.pid,
                        reason: format!(
                            "it did not answer within {} s (another thread may be loading a library)",
                            CALL_TIME.as_secs()
                        ),
                    });
                }
            }
        }
    }

    /// Whether a signal that is about to be delivered was sent, and is no fault of our calls.
    fn belongs_to_program(&self, signal: i32) -> bool {
        !FAULTS.contains(&signal) || self.tracee.was_sent()
    }

    fn get(&self) -> Result<Registers, AttachError> {
        let registers = self.tracee.registers();
        registers.map_err(|e| self.failed("its registers cannot be read", e))
    }

    fn set(&self, registers: &Registers) -> Result<(), AttachError> {
        let set = self.tracee.set_registers(registers);
        set.map_err(|e| self.failed("its registers cannot be set", e))
    }

    /// An error with its step.
    pub(super) fn failed(&self, step: &'static str, source: io::Error) -> AttachError {
        match source.raw_os_error() {
            // Also the answer of ptrace for a thread that runs.
            Some(libc::ESRCH) if self.tracee.has_ended() => AttachError::Ended {
                pid: self.tracee.pid,
            },
            _ => AttachError::System {
                pid: self.tracee.pid,
                step,
                source,
            },
        }
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        // An error was reported before.
        let _ = self.restore();
    }
}

/// The signals of [`FAULTS`] as a set; signal 1 is bit 0.
fn faults() -> u64 {
    FAULTS.iter().fold(0, |set, signal| set | 1 << (signal - 1))
}

/// Whether the process ignores SIGSEGV.
fn faults_are_ignored(pid: Pid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    set_of(&status, "SigIgn:").is_none_or(|set| set & 1 << (libc::SIGSEGV - 1) != 0)
}

/// The set of signals in a line of a `status` file.
fn set_of(status: &str, name: &str) -> Option<u64> {
    let set = status.lines().find_map(|line| line.strip_prefix(name))?;
    u64::from_str_radix(set.trim(), 16).ok()
}

/// Arguments that the kernel gives a meaning by the request.
fn ptrace(request: libc::c_uint, tid: Tid, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: the callers pass addresses of objects that are large enough for the request.
    let result = unsafe { libc::ptrace(request, tid.0 as libc::pid_t, address, data) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
