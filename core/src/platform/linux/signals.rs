//! Signals: sending, blocking and taking them off, their stacks and frames, and timers that send them.

use crate::ids::{Pid, Tid};

use super::{Errno, allows, call, process_id, raw, sandbox, syscall, thread_id};

/// Comes with signals of the session to threads of the process that it lives in: such a process may send the
/// same signals by `tgkill` itself.
const SENT_INSIDE: usize = 0x5342_6265_6174;

/// Begins like a `siginfo_t` of a signal that was queued (asm-generic/siginfo.h, `_rt`).
#[repr(C)]
struct Queued {
    signal: i32,
    errno: i32,
    code: i32,
    _unused: i32,
    pid: i32,
    uid: u32,
    value: usize,
    _rest: [u64; 12],
}

const _: () = assert!(size_of::<Queued>() == size_of::<libc::siginfo_t>());

/// Sends a signal of the session's to one thread. [`is_signal_of`] knows it there.
///
/// # Errors
///
/// The system call's.
pub fn signal_thread(process: Pid, thread: Tid, signal: i32) -> Result<(), Errno> {
    let mut arguments = [
        process.0 as usize,
        thread.0 as usize,
        signal as usize,
        0,
        0,
        0,
    ];
    let queued = Queued {
        signal,
        errno: 0,
        code: libc::SI_QUEUE,
        _unused: 0,
        pid: process.0 as i32,
        uid: 0,
        value: SENT_INSIDE,
        _rest: [0; 12],
    };
    let number = match process.0 == process_id() {
        true => {
            arguments[3] = (&raw const queued).expose_provenance();
            libc::SYS_rt_tgsigqueueinfo
        }
        false => libc::SYS_tgkill,
    };
    // SAFETY: the kernel reads a whole siginfo_t, or nothing.
    unsafe { call(number, arguments) }.map(|_| ())
}

/// Whether a signal came by [`signal_thread`] from this process.
///
/// # Safety
/// `info` is what the kernel passed with it.
pub unsafe fn is_signal_of(info: *const libc::siginfo_t, sender: u32) -> bool {
    // SAFETY: by contract; that is its layout for both codes as far as it is read.
    let queued = unsafe { &*info.cast::<Queued>() };
    let is_from = queued.pid as u32 == sender;
    match queued.code {
        libc::SI_TKILL => is_from && process_id() != sender,
        libc::SI_QUEUE => is_from && queued.value == SENT_INSIDE,
        _ => false,
    }
}

/// The signals that the calling thread blocks.
pub fn blocked_signals() -> u64 {
    let mut mask = 0u64;
    // SAFETY: with a null set only the old mask is written: eight bytes, the kernel's sigset_t.
    unsafe {
        syscall(
            libc::SYS_rt_sigprocmask,
            [libc::SIG_BLOCK as usize, 0, &raw mut mask as usize, 8, 0, 0],
        )
    };
    mask
}

/// The calling thread blocks these signals from now on, and no others. Unlike libc's calls it leaves none
/// out.
pub fn block_signals(mask: u64) {
    let from = &raw const mask as usize;
    // SAFETY: the mask is the kernel's sigset_t of eight bytes, and nothing is written.
    unsafe {
        syscall(
            libc::SYS_rt_sigprocmask,
            [libc::SIG_SETMASK as usize, from, 0, 8, 0, 0],
        )
    };
}

/// The calling thread holds signals back until [`HeldSignals::release`].
#[derive(Debug)]
#[must_use]
pub struct HeldSignals {
    before: u64,
    under_way: sandbox::UnderWay,
}

/// The calling thread blocks these signals as well; `None`: a filter does not allow it, and nothing has
/// changed.
#[inline(never)]
pub fn hold_signals(mask: u64) -> Option<HeldSignals> {
    let mut before = 0u64;
    let (from, to) = (&raw const mask as usize, &raw mut before as usize);
    // What the program blocks stays blocked.
    let arguments = [libc::SIG_BLOCK as usize, from, to, 8, 0, 0];
    // Until the end: who installs a filter for all threads waits for the release.
    let under_way = sandbox::UnderWay::begin();
    if !sandbox::allows(libc::SYS_rt_sigprocmask, &arguments) {
        under_way.end();
        return None;
    }
    // SAFETY: both masks are the kernel's sigset_t of eight bytes.
    unsafe { raw::syscall(libc::SYS_rt_sigprocmask, arguments) };
    Some(HeldSignals { before, under_way })
}

impl HeldSignals {
    /// The signals that the thread blocked before.
    pub fn before(&self) -> u64 {
        self.before
    }

    /// These are to be blocked from the release on, in place of those of before.
    pub fn change(&mut self, mask: u64) {
        self.before = mask;
    }

    /// Puts back what was there, whatever filters have come meanwhile: they hold for other threads, and
    /// without it this one would never hear a signal again.
    #[inline(never)]
    pub fn release(self) {
        let arguments = [
            libc::SIG_SETMASK as usize,
            (&raw const self.before).expose_provenance(),
            0,
            8,
            0,
            0,
        ];
        // SAFETY: the mask is the kernel's sigset_t of eight bytes.
        unsafe { raw::syscall(libc::SYS_rt_sigprocmask, arguments) };
        self.under_way.end();
    }
}

/// The process' handler for a signal, as the kernel has it; 0: the default, or no such signal.
pub fn signal_handler(signal: u32) -> u64 {
    // The kernel's struct sigaction: the handler comes first, on every architecture with a 64-bit mask.
    let mut action = [0u64; 8];
    // SAFETY: with a null new action only the old one is written: four words at most.
    unsafe {
        syscall(
            libc::SYS_rt_sigaction,
            [signal as usize, 0, action.as_mut_ptr() as usize, 8, 0, 0],
        );
    }
    action[0]
}

/// The calling thread's alternate signal stack, after setting it where that is asked for.
///
/// # Safety
/// `new` is null or describes memory that nothing else uses as long as it is the alternate stack.
pub unsafe fn alternate_stack(new: *const libc::stack_t) -> Result<libc::stack_t, Errno> {
    let mut before = core::mem::MaybeUninit::<libc::stack_t>::zeroed();
    // SAFETY: the kernel reads `new` and fills `before`, a stack_t, whose zeroed value is valid.
    unsafe {
        call(
            libc::SYS_sigaltstack,
            [new as usize, before.as_mut_ptr() as usize, 0, 0, 0, 0],
        )?;
        Ok(before.assume_init())
    }
}

/// Makes a timer that sends this signal to the calling thread, with a value; `None` where the kernel or a
/// filter refuses it.
pub fn create_timer(clock: i32, signal: u32, value: usize) -> Option<i32> {
    let mut timer = 0i32;
    // SAFETY: a sigevent's zeroed value is valid; glibc's is the kernel's
    // (include/uapi/asm-generic/siginfo.h), which reads it and fills in the timer's number.
    unsafe {
        let mut event: libc::sigevent = core::mem::zeroed();
        event.sigev_value.sival_ptr = core::ptr::without_provenance_mut(value);
        event.sigev_signo = signal as i32;
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_notify_thread_id = thread_id() as i32;
        let arguments = [
            clock as usize,
            &raw const event as usize,
            &raw mut timer as usize,
            0,
            0,
            0,
        ];
        (syscall(libc::SYS_timer_create, arguments) == 0).then_some(timer)
    }
}

/// Has a timer go off so many ns from now, and then at this distance.
pub fn start_timer(timer: i32, ns: u64, distance_ns: u64) {
    const SECOND: u64 = 1_000_000_000;
    // Interval and value, two timespecs.
    let times = [
        distance_ns / SECOND,
        distance_ns % SECOND,
        ns / SECOND,
        ns % SECOND,
    ];
    // SAFETY: the kernel reads an itimerspec.
    unsafe {
        syscall(
            libc::SYS_timer_settime,
            [timer as usize, 0, &raw const times as usize, 0, 0, 0],
        )
    };
}

/// Deletes a timer.
pub fn delete_timer(timer: i32) {
    // SAFETY: touches no memory.
    unsafe { syscall(libc::SYS_timer_delete, [timer as usize, 0, 0, 0, 0, 0]) };
}

/// A signal's frame with the registers of AVX-512.
const WITH_AVX_512: usize = 3632;

/// Bytes of stack that the kernel may need to deliver a signal to a process that has asked for all registers
/// it can have.
pub fn largest_signal_frame_bytes() -> usize {
    /// include/uapi/linux/auxvec.h, since Linux 5.14 on x86 (arch/x86/include/uapi/asm/auxvec.h).
    const AT_MINSIGSTKSZ: libc::c_ulong = 51;
    // SAFETY: reads the auxiliary vector.
    match unsafe { libc::getauxval(AT_MINSIGSTKSZ) } {
        // For kernels that do not tell.
        0 => WITH_AVX_512,
        bytes => bytes as usize,
    }
}

/// Bytes of stack that the kernel may need to deliver a signal to this process as it is. The tiles of AMX
/// take 8 KiB in the frames of those that have asked for them only (Documentation/arch/x86/xstate.rst).
pub fn signal_frame_bytes() -> usize {
    match largest_signal_frame_bytes() {
        largest if largest > WITH_AVX_512 && !has_dynamic_registers() => WITH_AVX_512,
        largest => largest,
    }
}

/// Whether the process may use registers that have to be asked for, as far as the kernel says.
#[cfg(target_arch = "x86_64")]
fn has_dynamic_registers() -> bool {
    /// arch/x86/include/uapi/asm/prctl.h, since Linux 5.16.
    const ARCH_GET_XCOMP_PERM: usize = 0x1022;
    /// Bit of the tiles' data (`XFEATURE_XTILE_DATA`); those above are not known here.
    const FIRST_DYNAMIC: u32 = 18;
    let mut allowed = u64::MAX;
    let arguments = [ARCH_GET_XCOMP_PERM, &raw mut allowed as usize, 0, 0, 0, 0];
    // SAFETY: the kernel fills in a word.
    let result = unsafe { syscall(libc::SYS_arch_prctl, arguments) };
    result != 0 || allowed >> FIRST_DYNAMIC & 1 != 0
}

#[cfg(not(target_arch = "x86_64"))]
fn has_dynamic_registers() -> bool {
    true
}

/// Takes one of these blocked signals of the calling thread off, if one pends that came from the process
/// `sender` by [`signal_thread`]. One that came from elsewhere is queued again as it was.
pub fn absorb_signal(set: u64, sender: u32) {
    // What came from elsewhere could not be put back.
    let own = [process_id() as usize, thread_id() as usize, 0, 0, 0, 0];
    if !allows(libc::SYS_rt_tgsigqueueinfo, own) && !allows(libc::SYS_tgkill, own) {
        return;
    }
    let at_once = [0u64, 0];
    let mut info = core::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: the set is the kernel's sigset_t of eight bytes, the time a timespec, and the kernel
    // fills a siginfo_t, whose zeroed value is valid; si_pid has a meaning for SI_TKILL.
    unsafe {
        let taken = syscall(
            libc::SYS_rt_sigtimedwait,
            [
                &raw const set as usize,
                info.as_mut_ptr() as usize,
                &raw const at_once as usize,
                8,
                0,
                0,
            ],
        );
        if taken <= 0 {
            return;
        }
        if !is_signal_of(info.as_ptr(), sender) {
            send_again(taken as i32, info.as_ptr());
        }
    }
}

/// Sends the calling thread a signal that it has got, once more and as it was.
///
/// # Safety
/// `info` is what the kernel passed with it.
pub unsafe fn send_again(signal: i32, info: *const libc::siginfo_t) {
    let (pid, tid, signal) = (process_id() as usize, thread_id() as usize, signal as usize);
    let again = [pid, tid, signal, info as usize, 0, 0];
    // SAFETY: queueing a signal to oneself is allowed with any origin; the kernel reads `info`.
    unsafe {
        if call(libc::SYS_rt_tgsigqueueinfo, again).is_err() {
            let _ = call(libc::SYS_tgkill, [pid, tid, signal, 0, 0, 0]);
        }
    }
}

/// Sends the calling thread's process a signal that the thread has got, once more and as it was. Whoever gets
/// it next may be another thread.
///
/// # Safety
/// `info` is what the kernel passed with it.
pub unsafe fn send_again_to_process(signal: i32, info: *const libc::siginfo_t) {
    // By the thread's own number, which is a process to this call: only to oneself any origin is allowed
    // (kernel/signal.c, `do_rt_sigqueueinfo`).
    let (tid, signal) = (thread_id() as usize, signal as usize);
    // SAFETY: the kernel reads `info`.
    unsafe {
        let again = [tid, signal, info as usize, 0, 0, 0];
        if call(libc::SYS_rt_sigqueueinfo, again).is_err() {
            let _ = call(libc::SYS_kill, [process_id() as usize, signal, 0, 0, 0, 0]);
        }
    }
}
