//! `syscall()`: raw system calls of programs that bring their own locks and parking (Rust, folly, abseil,
//! ART, Go through cgo).
//!
//! Only futex calls and the numbers that block are looked at. Everything else is a jump to the original with
//! all registers as they came.

use core::ffi::{c_int, c_long};

use libc::*;

use super::results::in_messages;
use crate::agent::{self, Awaited};
use crate::ids::Tid;
use crate::platform::blocking_calls::{self, BLOCKING};
use crate::probe::Probe;
use crate::shm::waiters::How;
use crate::system_call::SystemCall;

/// Numbers up to here are in [`looked_at`].
pub const NUMBERS: usize = 512;

/// A bit for each number of [`BLOCKING`], for futex calls and for these.
pub const fn looked_at(others: &[c_long]) -> [u64; NUMBERS / 64] {
    let mut bits = [0; NUMBERS / 64];
    bits[SYS_futex as usize / 64] |= 1 << (SYS_futex as usize % 64);
    let mut i = 0;
    while i < others.len() {
        let number = others[i] as usize;
        bits[number / 64] |= 1 << (number % 64);
        i += 1;
    }
    let mut i = 0;
    while i < BLOCKING.len() {
        let number = BLOCKING[i].0 as usize;
        bits[number / 64] |= 1 << (number % 64);
        i += 1;
    }
    bits
}

/// What a system call does to the calling thread.
#[derive(Debug)]
pub enum Kind {
    /// It may wait; for the futex of the call, if it is said how another thread ends that.
    Waits(Probe, Option<How>),
    /// It ends waits of the call's futex.
    Wakes(How),
    /// Neither.
    Other,
}

/// A system call as the program asked for it.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Which one.
    pub number: c_long,
    /// As many as one can have.
    pub arguments: [c_long; 6],
}

impl Call {
    /// What it does; its number is a blocking one, or that of `futex`.
    pub fn kind(&self) -> Kind {
        let [_, operation, count, ..] = self.arguments;
        if self.number != SYS_futex {
            let probe = blocking_calls::probe_of(self.number, operation as c_int);
            return Kind::Waits(probe.unwrap_or(Probe::FutexWait), None);
        }
        let waits = |how| Kind::Waits(Probe::FutexWait, Some(how));
        match operation as c_int & FUTEX_CMD_MASK {
            FUTEX_WAIT | FUTEX_WAIT_BITSET | FUTEX_WAIT_REQUEUE_PI => waits(How::Wake(1)),
            // FUTEX_LOCK_PI2 is 13.
            FUTEX_LOCK_PI | 13 => waits(How::Release),
            FUTEX_UNLOCK_PI => Kind::Wakes(How::Release),
            FUTEX_WAKE | FUTEX_WAKE_BITSET | FUTEX_WAKE_OP | FUTEX_REQUEUE | FUTEX_CMP_REQUEUE
            // Its third argument says how many.
            | FUTEX_CMP_REQUEUE_PI => Kind::Wakes(How::Wake(count as u32)),
            _ => Kind::Other,
        }
    }

    /// Makes the call, which ends waits of others. `original` captures nothing: the program's stack may be
    /// small.
    #[inline(never)]
    pub fn wake(&self, how: How, original: impl Fn(&Call) -> c_long) -> c_long {
        let id = self.arguments[0] as u64;
        agent::count(SystemCall::Futex);
        if agent::is_awaited(id) {
            let wake = agent::announce(&[id], self.is_shared(), how);
            let result = original(self);
            wake.end(Probe::FutexWake, id);
            return result;
        }
        let result = original(self);
        agent::hit(Probe::FutexWake, id);
        result
    }

    /// Makes the call, which may wait.
    ///
    /// # Safety
    /// The arguments are those of a caller of `syscall`, and `original` is this call.
    #[inline(never)]
    pub unsafe fn wait(
        &self,
        probe: Probe,
        how: Option<How>,
        original: impl Fn(&Call) -> c_long,
    ) -> c_long {
        if self.number == SYS_io_uring_enter {
            agent::leave_timer();
        }
        let id = self.arguments[0] as u64;
        let awaited = how.map(|how| Awaited {
            id,
            is_shared: self.is_shared(),
            owner_tid: Tid(0),
            how,
        });
        let wait = agent::begin_wait_for(probe, id, awaited);
        let result = original(self);
        // SAFETY: by contract.
        wait.end_moving(result, unsafe { self.moved(result) });
        result
    }

    /// Whether processes may share its futex.
    fn is_shared(&self) -> bool {
        self.arguments[1] as c_int & FUTEX_PRIVATE_FLAG == 0
    }

    /// How many bytes it has moved with this result, if it is one that moves any.
    ///
    /// # Safety
    /// As [`Call::wait`]; the call has given this result.
    unsafe fn moved(&self, result: c_long) -> i64 {
        let [_, b, c, ..] = self.arguments;
        if self.number == SYS_sendmmsg || self.number == SYS_recvmmsg {
            // SAFETY: the messages, as many as the result says.
            return unsafe { in_messages(result as c_int, b as *const mmsghdr) };
        }
        if self.number == SYS_msgsnd || self.number == SYS_mq_timedsend {
            return if result == 0 { c } else { 0 };
        }
        result
    }
}

/// Emits the hook: `raw_calls! { NAME = ORIGINAL, LOOKED_AT => looked }`. `ORIGINAL` is a static word with
/// the address of libc's function, `LOOKED_AT` a static with the bits of
/// [`looked_at`](crate::posix::raw_call), and `looked` an `extern "C-unwind"` function with the arguments of
/// `syscall`, which gets the calls with these numbers.
#[macro_export]
macro_rules! raw_calls {
    ($(#[$attribute:meta])* $name:ident = $original:path, $looked_at:path => $looked:path) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!(
                "cmp rdi, {numbers}",
                "jae 2f",
                "lea rax, [rip + {looked_at}]",
                "bt qword ptr [rax], rdi",
                "jc {looked}",
                "2: jmp [rip + {original}]",
                numbers = const $crate::posix::raw_call::NUMBERS,
                looked_at = sym $looked_at,
                looked = sym $looked,
                original = sym $original,
            );
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!(
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
                numbers = const $crate::posix::raw_call::NUMBERS,
                looked_at = sym $looked_at,
                looked = sym $looked,
                original = sym $original,
            );
        }
    };
}
