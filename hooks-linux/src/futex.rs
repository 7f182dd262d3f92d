//! `syscall()`: raw system calls of programs that bring their own locks and parking (Rust, folly,
//! abseil, Go through cgo).
//!
//! Only futex calls and the numbers that block are checked. Everything else is a jump to the
//! original with all registers as they came.

use crate::sandbox;
use crate::send::send;
use core::arch::naked_asm;
use core::ffi::c_long;
use libc::*;
use stackbeat_core::agent::{self, Awaited};
use stackbeat_core::ids::Tid;
use stackbeat_core::platform::blocking_calls::{self, BLOCKING};
use stackbeat_core::posix::results::in_messages;
use stackbeat_core::probe::Probe;
use stackbeat_core::shm::waiters::How;
use stackbeat_core::system_call::SystemCall;

mod original {
    use super::*;
    original!(fn syscall(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long);
}

/// Numbers up to here are in [`LOOKED_AT`].
const NUMBERS: usize = 512;

/// A bit for each number of [`BLOCKING`], for futex calls and for those that send signals, enter a sandbox or
/// ask for registers, for the assembly.
static LOOKED_AT: [u64; NUMBERS / 64] = {
    let mut bits = [0; NUMBERS / 64];
    bits[SYS_futex as usize / 64] |= 1 << (SYS_futex as usize % 64);
    bits[SYS_kill as usize / 64] |= 1 << (SYS_kill as usize % 64);
    bits[SYS_tgkill as usize / 64] |= 1 << (SYS_tgkill as usize % 64);
    bits[SYS_prctl as usize / 64] |= 1 << (SYS_prctl as usize % 64);
    bits[SYS_seccomp as usize / 64] |= 1 << (SYS_seccomp as usize % 64);
    #[cfg(target_arch = "x86_64")]
    {
        bits[SYS_arch_prctl as usize / 64] |= 1 << (SYS_arch_prctl as usize % 64);
    }
    let mut i = 0;
    while i < BLOCKING.len() {
        let number = BLOCKING[i].0 as usize;
        bits[number / 64] |= 1 << (number % 64);
        i += 1;
    }
    bits
};

#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn syscall() {
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        "cmp rdi, {numbers}",
        "jae 2f",
        "lea rax, [rip + {looked_at}]",
        "bt qword ptr [rax], rdi",
        "jc {looked}",
        "2: jmp [rip + {original}]",
        numbers = const NUMBERS,
        looked_at = sym LOOKED_AT,
        looked = sym looked,
        original = sym original::syscall::ORIGINAL,
    );
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        "cmp x0, #{numbers}",
        "b.hs 2f",
        "adrp x16, {looked_at}",
        "add x16, x16, :lo12:{looked_at}",
        "lsr x17, x0, #6",
        "ldr x16, [x16, x17, lsl #3]",
        "lsr x16, x16, x0",
        // A conditional branch reaches 32 KiB only.
        "tbz x16, #0, 2f",
        "b {looked}",
        "2: adrp x16, {original}",
        "ldr x16, [x16, :lo12:{original}]",
        "br x16",
        numbers = const NUMBERS,
        looked_at = sym LOOKED_AT,
        looked = sym looked,
        original = sym original::syscall::ORIGINAL,
    );
}

/// What a futex operation does to the calling thread.
enum Futex {
    Waits(How),
    Wakes(How),
    Neither,
}

/// `count`: the call's third argument, for most operations how many threads it wakes.
fn futex_kind(operation: c_long, count: c_long) -> Futex {
    match operation as c_int & FUTEX_CMD_MASK {
        FUTEX_WAIT | FUTEX_WAIT_BITSET | FUTEX_WAIT_REQUEUE_PI => Futex::Waits(How::Wake(1)),
        // FUTEX_LOCK_PI2 is 13.
        FUTEX_LOCK_PI | 13 => Futex::Waits(How::Release),
        FUTEX_UNLOCK_PI => Futex::Wakes(How::Release),
        FUTEX_WAKE | FUTEX_WAKE_BITSET | FUTEX_WAKE_OP | FUTEX_REQUEUE | FUTEX_CMP_REQUEUE
        | FUTEX_CMP_REQUEUE_PI => Futex::Wakes(How::Wake(count as u32)),
        _ => Futex::Neither,
    }
}

/// `syscall` with a number of a call that waits.
mod waiting {
    crate::hooked_functions::function!(syscall = FutexWait);
}

/// `syscall` with a futex operation that wakes.
mod waking {
    crate::hooked_functions::function!(syscall = FutexWake);
}

/// A system call whose number is in [`LOOKED_AT`].
unsafe extern "C-unwind" fn looked(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    let call = Call {
        number,
        arguments: [a, b, c, d, e, f],
    };
    if number == SYS_kill || number == SYS_tgkill {
        return call.send();
    }
    if number == SYS_prctl {
        return sandbox::raw_prctl([a, b, c], || call.original());
    }
    if number == SYS_seccomp {
        return sandbox::raw_seccomp([a, b, c], || call.original());
    }
    #[cfg(target_arch = "x86_64")]
    if number == SYS_arch_prctl {
        /// arch/x86/include/uapi/asm/prctl.h.
        const ARCH_REQ_XCOMP_PERM: c_long = 0x1023;
        if a == ARCH_REQ_XCOMP_PERM {
            agent::frames_grow();
        }
        return call.original();
    }
    if number == SYS_io_uring_enter {
        agent::leave_timer();
    }
    if number != SYS_futex {
        return call.wait(
            blocking_calls::probe_of(number, b as c_int).unwrap_or(Probe::FutexWait),
            None,
        );
    }
    let is_shared = b as c_int & FUTEX_PRIVATE_FLAG == 0;
    match futex_kind(b, c) {
        Futex::Waits(how) => call.wait(
            Probe::FutexWait,
            Some(Awaited {
                id: a as u64,
                is_shared,
                owner_tid: Tid(0),
                how,
            }),
        ),
        Futex::Wakes(how) => call.wake(is_shared, how),
        Futex::Neither => call.original(),
    }
}

/// A system call as the program asked for it.
struct Call {
    number: c_long,
    arguments: [c_long; 6],
}

impl Call {
    #[inline(always)]
    fn original(&self) -> c_long {
        let [a, b, c, d, e, f] = self.arguments;
        // SAFETY: the caller's arguments, passed on.
        unsafe { original::syscall::call(self.number, a, b, c, d, e, f) }
    }

    #[inline(never)]
    fn send(&self) -> c_long {
        let [pid, a, b, ..] = self.arguments;
        let (tid, signal) = match self.number == SYS_tgkill {
            true => (Some(Tid(a as u32)), b),
            false => (None, a),
        };
        send(pid as pid_t, tid, signal as c_int, || self.original())
    }

    #[inline(never)]
    fn wake(&self, is_shared: bool, how: How) -> c_long {
        let id = self.arguments[0] as u64;
        waking::called();
        agent::count(SystemCall::Futex);
        if agent::is_awaited(id) {
            let wake = agent::announce(&[id], is_shared, how);
            let result = self.original();
            wake.end(Probe::FutexWake, id);
            return result;
        }
        let result = self.original();
        agent::hit(Probe::FutexWake, id);
        result
    }

    #[inline(never)]
    fn wait(&self, probe: Probe, awaited: Option<Awaited>) -> c_long {
        let [id, b, c, ..] = self.arguments;
        waiting::called();
        let wait = agent::begin_wait_for(probe, id as u64, awaited);
        let result = self.original();
        // SAFETY: the call's own arguments, and what it has returned.
        wait.end_moving(result, unsafe { moved(self.number, b, c, result) });
        result
    }
}

/// How many bytes a system call with this result has moved, if it is one that moves any.
///
/// # Safety
/// `b` and `c` are its second and third argument.
unsafe fn moved(number: c_long, b: c_long, c: c_long, result: c_long) -> i64 {
    if number == SYS_sendmmsg || number == SYS_recvmmsg {
        // SAFETY: the messages, as many as the result says.
        return unsafe { in_messages(result as c_int, b as *const mmsghdr) };
    }
    if number == SYS_msgsnd || number == SYS_mq_timedsend {
        return if result == 0 { c } else { 0 };
    }
    result
}
