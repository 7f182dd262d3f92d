//! One thread of another process, stopped by ptrace: its registers, its memory, and calls that it makes
//! for us.
//!
//! A thread that was in a system call when it was stopped goes on in it: the kernel restarts calls by
//! the registers that it finds when the thread leaves the stop in which it was interrupted, so these
//! are put back as they were, in a stop of the same kind.
//!
//! A signal of its own stops it after a call, before it goes on by itself (`way_back`).

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use stackbeat_core::ids::{Pid, Tid};

use super::way_back::{Code, Frame, Registers};
use crate::linux::procfs::{self, Mapping};
use crate::linux::spawn::signal_set;
use crate::session::attach_error::AttachError;

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

/// Bytes below the stack pointer that a function may use (AMD64 psABI, 3.2.2).
const RED_ZONE: u64 = 128;
/// So much of a stack is left alone.
const LEAST_STACK: u64 = 32 << 10;

/// By which a thread says that it has returned from a call.
const RETURNED: i32 = libc::SIGURG;

/// How long a call in the program may take. Loading waits for whoever is loading something else.
const CALL_TIME: Duration = Duration::from_secs(20);
/// The same once job control has stopped the program.
const STOPPED_TIME: Duration = Duration::from_secs(2);
/// A thread that does not stop within this time after a call has failed is left in it, and comes back by
/// itself.
const GIVE_BACK_TIME: Duration = Duration::from_secs(5);

/// Between two polls of the thread when no signal comes.
const LONGEST_WAIT: Duration = Duration::from_millis(5);

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
        self.signal_code().is_some_and(|code| code <= 0)
    }

    /// `si_code` of the signal that is about to be delivered.
    fn signal_code(&self) -> Option<i32> {
        // SAFETY: plain data for which all zeros is valid.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let asked = ptrace(libc::PTRACE_GETSIGINFO, self.tid, 0, (&raw mut info).addr());
        asked.ok().map(|()| info.si_code)
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

    /// Prepares the stopped thread for calls.
    pub(super) fn borrow(&mut self, code: Code) -> io::Result<Borrowed<'_>> {
        let before = Before {
            registers: self.registers()?,
            vectors: self.vectors()?,
            mask: self.signal_mask()?,
        };
        self.write_code(code)?;
        Ok(Borrowed {
            tracee: self,
            before: Some(before),
            code,
            frame: None,
            held_back: Vec::new(),
        })
    }

    /// Writes the code that calls return to, unless it is there. As debuggers write breakpoints: the page is
    /// the process' own from then on.
    fn write_code(&self, code: Code) -> io::Result<()> {
        let (words, _) = Code::BYTES.as_chunks::<8>();
        for (i, word) in words.iter().enumerate() {
            let address = code.0 + 8 * i as u64;
            let word = u64::from_le_bytes(*word);
            if self.read_word(address) != Some(word) {
                ptrace(
                    libc::PTRACE_POKEDATA,
                    self.tid,
                    address as usize,
                    word as usize,
                )?;
            }
        }
        Ok(())
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
    code: Code,
    /// Where the frame lies by which the thread would go on.
    frame: Option<u64>,
    /// Signals that came meanwhile, and whether they were sent to the thread alone.
    held_back: Vec<(i32, bool)>,
}

impl Borrowed<'_> {
    /// From here on the thread goes on by itself when the recorder is killed: by a frame at the end of this
    /// memory. Below it calls have their stack. False: it has no room for one.
    pub(super) fn return_by(&mut self, memory: Range<u64>) -> Result<bool, AttachError> {
        let Some(before) = &self.before else {
            return Ok(false);
        };
        let (registers, vectors) = (&before.registers, &before.vectors);
        let frame = Frame::new(self.code, memory.end, registers, vectors, before.mask)
            .map_err(|e| self.failed("its registers are in an unknown form", e))?;
        if frame.at < memory.start {
            return Ok(false);
        }
        self.write(frame.at, &frame.bytes)?;
        self.frame = Some(frame.at);
        self.set(&self.leaving()?)?;
        Ok(true)
    }

    /// As [`Borrowed::return_by`] with memory below the thread's own stack, where the kernel would put the
    /// frame of a handler. Where that is not known to be its stack, a thread whose recorder is killed faults
    /// from here on.
    pub(super) fn return_by_own_stack(&mut self) -> Result<(), AttachError> {
        let stack = self.before.as_ref().and_then(|before| {
            let mapping = procfs::mapping_at(self.tracee.pid, before.registers.rsp)?;
            below_stack(&before.registers, &mapping)
        });
        let is_there = match stack {
            Some(stack) => self.return_by(stack)?,
            None => false,
        };
        if !is_there {
            self.frame = None;
        }
        self.hold_signals()
    }

    /// Signals wait from here on, but that of a return. What a fault of our own would send must not be
    /// blocked, as it is in the program's own handler of that: the kernel would reset its disposition.
    fn hold_signals(&self) -> Result<(), AttachError> {
        let held = self
            .tracee
            .set_signal_mask(!faults() & !(1 << (RETURNED - 1)));
        held.map_err(|e| self.failed("its signals cannot be held back", e))
    }

    /// Makes a system call. Errors of the call itself are negative numbers.
    pub(super) fn system_call(
        &mut self,
        number: i64,
        arguments: [u64; 6],
    ) -> Result<i64, AttachError> {
        let mut registers = self.leaving()?;
        registers.rip = self.code.system_call();
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

    /// Calls a function, after [`Borrowed::return_by`].
    pub(super) fn call(&mut self, function: u64, arguments: [u64; 2]) -> Result<u64, AttachError> {
        let Some(frame) = self.frame else {
            return Err(self.faulted(0));
        };
        let mut registers = self.leaving()?;
        registers.rip = function;
        registers.rsp = frame;
        registers.rbp = 0;
        registers.rax = 0;
        registers.rdi = arguments[0];
        registers.rsi = arguments[1];
        self.set(&registers)?;
        match self.run(libc::PTRACE_CONT)? {
            Stop::Signal(RETURNED) => {}
            Stop::Signal(signal) => return Err(self.faulted(signal)),
            _ => return Err(self.faulted(0)),
        }
        let mut result = [0; 8];
        self.read(Frame::result(frame), &mut result)?;
        Ok(u64::from_le_bytes(result))
    }

    /// The registers by which the thread goes on from anywhere, and with which others begin: not in a system
    /// call, flags as the psABI wants them at calls.
    fn leaving(&self) -> Result<Registers, AttachError> {
        let mut registers = self.get()?;
        registers.orig_rax = u64::MAX;
        // The direction flag (bit 10) is clear at calls.
        registers.eflags &= !(1 << 10);
        registers.rip = self.code.leave();
        // Without a frame it faults.
        registers.rbx = self.frame.map_or(0, Frame::result);
        if let Some(frame) = self.frame {
            registers.rsp = Frame::stack_pointer(frame);
        }
        Ok(registers)
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
        let restored = match self.before.take() {
            Some(before) => self.go_back(before),
            None => Ok(true),
        };
        let (pid, tid) = (self.tracee.pid.0 as libc::pid_t, self.tracee.tid);
        for (signal, is_its_own) in self.held_back.drain(..) {
            // SAFETY: sends what was held back, to the thread that was about to get it, or to the process
            // that was to stop.
            unsafe {
                match is_its_own {
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
        loop {
            match self.tracee.wait(Instant::now() + GIVE_BACK_TIME)? {
                // While the process is stopped, all stops by request are reported so.
                Some(Stop::Interrupted | Stop::Group) => break,
                Some(Stop::Syscall) => self.tracee.go_on(libc::PTRACE_CONT, 0)?,
                Some(Stop::Signal(signal)) => {
                    if self.belongs_to_program(signal) {
                        self.hold_back(signal);
                    }
                    self.tracee.go_on(libc::PTRACE_CONT, 0)?;
                }
                Some(Stop::Ended) => return Ok(false),
                // It is in a call of ours that cannot be interrupted, and comes back by itself.
                None if self.frame.is_some() => return Ok(true),
                None => {}
            }
        }
        self.tracee.set_vectors(&mut before.vectors)?;
        self.tracee.set_signal_mask(before.mask)?;
        self.tracee.set_registers(&before.registers)?;
        self.tracee.detach(0)?;
        Ok(true)
    }

    fn next_syscall(&mut self) -> Result<(), AttachError> {
        match self.run(libc::PTRACE_SYSCALL)? {
            Stop::Signal(signal) => Err(self.faulted(signal)),
            _ => Ok(()),
        }
    }

    /// Goes on to the next stop at a system call (if those are asked for), by a return, or by a fault.
    fn run(&mut self, request: libc::c_uint) -> Result<Stop, AttachError> {
        let mut deadline = Instant::now() + CALL_TIME;
        let mut is_program_stopped = false;
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
                    self.hold_back(signal);
                }
                Some(stop @ (Stop::Signal(_) | Stop::Syscall)) => return Ok(stop),
                Some(Stop::Group) => {
                    is_program_stopped = true;
                    deadline = deadline.min(Instant::now() + STOPPED_TIME);
                }
                Some(Stop::Interrupted) => {}
                Some(Stop::Ended) => {
                    self.before = None;
                    return Err(AttachError::Ended {
                        pid: self.tracee.pid,
                    });
                }
                None if is_program_stopped && self.frame.is_some() => {
                    // A thread that is stopped holds a lock that the call waits for, with others that it has
                    // taken. Once the program goes on it comes back by itself.
                    self.before = None;
                    return Err(AttachError::Stopped {
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

    /// Whether a signal that is about to be delivered was sent, and is no fault or return of our calls.
    fn belongs_to_program(&self, signal: i32) -> bool {
        match signal {
            RETURNED => !self.has_returned(),
            _ => !FAULTS.contains(&signal) || self.tracee.was_sent(),
        }
    }

    /// Whether it has come back from a call.
    fn has_returned(&self) -> bool {
        let sp = self.frame.map(Frame::stack_pointer);
        self.get()
            .is_ok_and(|now| now.rip == self.code.leave() && Some(now.rsp) == sp)
    }

    fn hold_back(&mut self, signal: i32) {
        let is_its_own = self.tracee.signal_code() == Some(libc::SI_TKILL);
        self.held_back
            .push((signal, is_its_own || FAULTS.contains(&signal)));
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

/// The memory below the part of its stack that a thread uses. `None`: the mapping that its stack pointer is
/// in is not known to be its stack (it may be that of a coroutine, with anything below), or little of it is
/// left.
fn below_stack(registers: &Registers, mapping: &Mapping) -> Option<Range<u64>> {
    // glibc has a thread's descriptor at the upper end of its stack.
    let is_stack = mapping.name == "[stack]"
        || mapping.range.contains(&registers.fs_base) && registers.rsp < registers.fs_base;
    let end = registers.rsp.checked_sub(RED_ZONE)?;
    let start = mapping.range.start + LEAST_STACK;
    (is_stack && start < end).then_some(start..end)
}

/// The signals of [`FAULTS`] as a set; signal 1 is bit 0.
fn faults() -> u64 {
    FAULTS.iter().fold(0, |set, signal| set | 1 << (signal - 1))
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
