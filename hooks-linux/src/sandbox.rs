//! Calls by which a program gives up system calls: `prctl`, and `syscall` for that and for seccomp, as
//! libseccomp makes it. The agent has to know of a filter before the kernel does.

use crate::signal::{self, crash};
use core::ffi::{c_int, c_long, c_ulong};
use stackbeat_core::agent::{self, Sandbox};

/// Linux' <linux/prctl.h>, as far as libc lacks it.
const PR_SET_SYSCALL_USER_DISPATCH: c_long = 59;
const PR_SYS_DISPATCH_OFF: c_ulong = 0;
const PR_TSC_SIGSEGV: c_ulong = 2;
/// <linux/seccomp.h>.
const SECCOMP_SET_MODE_STRICT: c_long = 0;
const SECCOMP_SET_MODE_FILTER: c_long = 1;
const SECCOMP_FILTER_FLAG_TSYNC: c_ulong = 1;
const SECCOMP_FILTER_FLAG_NEW_LISTENER: c_ulong = 1 << 3;

/// What a `prctl` with these arguments asks for.
fn by_prctl(option: c_long, a: c_ulong, b: c_ulong) -> Option<Sandbox> {
    let filter = Sandbox::Filter {
        program: b,
        all_threads: false,
    };
    match option {
        option if option == libc::PR_SET_SECCOMP.into() => match a as u32 {
            libc::SECCOMP_MODE_STRICT => Some(Sandbox::Strict),
            libc::SECCOMP_MODE_FILTER => Some(filter),
            _ => None,
        },
        option if option == libc::PR_SET_TSC.into() && a == PR_TSC_SIGSEGV => {
            Some(Sandbox::NoCalls)
        }
        PR_SET_SYSCALL_USER_DISPATCH if a != PR_SYS_DISPATCH_OFF => Some(Sandbox::NoCalls),
        _ => None,
    }
}

original!(fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int);
/// The arguments that libc declares as variable come in the same registers.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn prctl(
    option: c_int,
    a: c_ulong,
    b: c_ulong,
    c: c_ulong,
    d: c_ulong,
) -> c_int {
    // SAFETY: the caller's arguments, passed on.
    let call = || unsafe { prctl::call(option, a, b, c, d) };
    match by_prctl(option.into(), a, b) {
        None => call(),
        Some(sandbox) => enter(sandbox, call, |result| result == 0),
    }
}

/// `syscall(SYS_prctl, …)`.
pub(crate) fn raw_prctl(a: [c_long; 3], call: impl FnOnce() -> c_long) -> c_long {
    // The kernel looks at 32 bits of the first.
    match by_prctl((a[0] as c_int).into(), a[1] as c_ulong, a[2] as c_ulong) {
        None => call(),
        Some(sandbox) => enter(sandbox, call, |result| result == 0),
    }
}

/// `syscall(SYS_seccomp, …)`.
pub(crate) fn raw_seccomp(a: [c_long; 3], call: impl FnOnce() -> c_long) -> c_long {
    let flags = a[1] as c_ulong;
    let sandbox = match a[0] as u32 as c_long {
        // libseccomp asks with flags whether there is such a call, which the kernel refuses.
        SECCOMP_SET_MODE_STRICT if flags == 0 && a[2] == 0 => Sandbox::Strict,
        SECCOMP_SET_MODE_FILTER => Sandbox::Filter {
            program: a[2] as u64,
            all_threads: flags & SECCOMP_FILTER_FLAG_TSYNC != 0,
        },
        _ => return call(),
    };
    // A thread that could not get the filter is named by its tid.
    let gives_descriptor = flags & SECCOMP_FILTER_FLAG_NEW_LISTENER != 0;
    enter(sandbox, call, |result| {
        result == 0 || gives_descriptor && result > 0
    })
}

#[cold]
fn enter<R: Copy>(
    sandbox: Sandbox,
    call: impl FnOnce() -> R,
    has_succeeded: impl FnOnce(R) -> bool,
) -> R {
    let Some(mut entering) = agent::enters_sandbox(sandbox) else {
        return call();
    };
    let (loses_signals, loses_crashes) = (!entering.is_interrupted(), !entering.handles_crashes());
    if loses_signals {
        signal::stop();
    }
    if loses_crashes {
        crash::stop();
    }
    entering.begins(sandbox);
    let result = call();
    let has_succeeded = has_succeeded(result);
    // SAFETY: errno of the calling thread is always there.
    let errno = unsafe { *libc::__errno_location() };
    entering.ends(has_succeeded);
    if !has_succeeded && loses_signals {
        signal::start();
    }
    if !has_succeeded && loses_crashes {
        crash::start();
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    result
}
