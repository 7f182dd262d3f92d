//! `syscall()`: what [`raw_call`](stackbeat_core::posix::raw_call) says of it, and the numbers that send
//! signals, enter a sandbox or ask for registers.

use crate::sandbox;
use crate::send::send;
use core::ffi::{c_int, c_long};
use libc::*;
#[cfg(target_arch = "x86_64")]
use stackbeat_core::agent;
use stackbeat_core::ids::Tid;
use stackbeat_core::posix::raw_call::{self, Call, Kind, NUMBERS};

mod original {
    use super::*;
    original!(fn syscall(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long);
}

static LOOKED_AT: [u64; NUMBERS / 64] = raw_call::looked_at(&[
    SYS_kill,
    SYS_tgkill,
    SYS_prctl,
    SYS_seccomp,
    #[cfg(target_arch = "x86_64")]
    SYS_arch_prctl,
]);

stackbeat_core::raw_calls! {
    #[unsafe(no_mangle)]
    syscall = original::syscall::ORIGINAL, LOOKED_AT => looked
}

/// `syscall` with a number of a call that waits.
mod waiting {
    crate::hooked_functions::function!(syscall = FutexWait);
}

/// `syscall` with a futex operation that wakes.
mod waking {
    crate::hooked_functions::function!(syscall = FutexWake);
}

/// The call is `kill` or `tgkill`. Apart, so that others do not need the room for it on the stack.
#[inline(never)]
fn sends(call: &Call, original: impl Fn(&Call) -> c_long) -> c_long {
    let [pid, a, b, ..] = call.arguments;
    let (tid, signal) = match call.number == SYS_tgkill {
        true => (Some(Tid(a as u32)), b),
        false => (None, a),
    };
    send(pid as pid_t, tid, signal as c_int, || original(call))
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
    let original = |call: &Call| {
        let [a, b, c, d, e, f] = call.arguments;
        // SAFETY: the caller's arguments, passed on.
        unsafe { original::syscall::call(call.number, a, b, c, d, e, f) }
    };
    if number == SYS_kill || number == SYS_tgkill {
        return sends(&call, original);
    }
    if number == SYS_prctl {
        return sandbox::raw_prctl([a, b, c], || original(&call));
    }
    if number == SYS_seccomp {
        return sandbox::raw_seccomp([a, b, c], || original(&call));
    }
    #[cfg(target_arch = "x86_64")]
    if number == SYS_arch_prctl {
        /// arch/x86/include/uapi/asm/prctl.h.
        const ARCH_REQ_XCOMP_PERM: c_long = 0x1023;
        if a == ARCH_REQ_XCOMP_PERM {
            agent::frames_grow();
        }
        return original(&call);
    }
    match call.kind() {
        Kind::Waits(probe, how) => {
            waiting::called();
            // SAFETY: the caller's arguments, passed on.
            unsafe { call.wait(probe, how, original) }
        }
        Kind::Wakes(how) => {
            waking::called();
            call.wake(how, original)
        }
        Kind::Other => original(&call),
    }
}
