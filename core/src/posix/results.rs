//! What the results of calls say: bytes that were moved, errors, children that have ended.
//!
//! Each function gets the result, and most of them one argument of the call.

use crate::agent;
use crate::ids::Pid;
use core::ffi::c_int;
use libc::{MSG_PEEK, pid_t, siginfo_t, size_t, ssize_t};

/// How many bytes a call says that it moved, by its result.
pub trait Moved {
    /// The bytes, negative where the call failed.
    fn bytes(self) -> i64;
}

impl Moved for ssize_t {
    #[inline(always)]
    fn bytes(self) -> i64 {
        self as i64
    }
}

/// Zero or a descriptor, or -1; no number of bytes.
impl Moved for c_int {
    #[inline(always)]
    fn bytes(self) -> i64 {
        0
    }
}

/// What a call has moved that moves all or nothing.
///
/// # Safety
/// None; hooks call it beside others that have a contract.
#[inline(always)]
pub unsafe fn all(result: c_int, bytes: size_t) -> i64 {
    if result == 0 { bytes as i64 } else { 0 }
}

/// What a call has moved that moves this value.
///
/// # Safety
/// None; hooks call it beside others that have a contract.
#[inline(always)]
pub unsafe fn a_number(result: c_int, value: u64) -> i64 {
    if result == 0 {
        size_of_val(&value) as i64
    } else {
        0
    }
}

/// The bytes that a call has received, unless it left them there.
///
/// # Safety
/// None; hooks call it beside others that have a contract.
#[inline(always)]
pub unsafe fn unless_peeked(received: ssize_t, flags: c_int) -> i64 {
    match flags & MSG_PEEK {
        0 => received as i64,
        _ => 0,
    }
}

/// The bytes of the messages that a call has sent or received.
///
/// # Safety
/// There are as many messages as `sent` says, filled in by the call.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[inline(always)]
pub unsafe fn in_messages(sent: c_int, messages: *const libc::mmsghdr) -> i64 {
    let count = usize::try_from(sent).unwrap_or(0);
    // SAFETY: by contract.
    let bytes = (0..count).map(|i| unsafe { (*messages.add(i)).msg_len });
    bytes.map(i64::from).sum()
}

/// What has gone wrong, of a function that gives a number: `EAI_…` are negative, what the `_r` functions give
/// is an error number. Positive, because it is no `errno`.
#[inline(always)]
pub fn of_number(result: c_int) -> i64 {
    i64::from(result).abs()
}

/// 1, of a function that gives null where it fails.
#[inline(always)]
pub fn of_nothing<T>(found: *mut T) -> i64 {
    found.is_null().into()
}

/// A call of the `wait` family has returned this.
///
/// # Safety
/// `status` is null or what the call was given for the status.
pub unsafe fn child_ended(pid: pid_t, status: *const c_int) {
    // SAFETY: null, or filled in where there is a child.
    let status = unsafe { status.as_ref() };
    if let Some(status) = status.filter(|_| pid > 0) {
        agent::child_ended(Pid(pid as u32), *status);
    }
}

/// `waitid` has returned this.
///
/// # Safety
/// `info` is null or what the call was given for the child's change of state.
pub unsafe fn child_changed(result: c_int, info: *const siginfo_t) {
    // SAFETY: null, or filled in; without a child the pid is 0, and these fields are those of SIGCHLD.
    let child = unsafe {
        let info = info.as_ref().filter(|_| result == 0);
        info.map(|info| (info.si_pid(), info.si_code, info.si_status()))
    };
    match child {
        Some((pid, libc::CLD_EXITED, code)) if pid > 0 => {
            agent::child_ended(Pid(pid as u32), (code & 0xff) << 8);
        }
        Some((pid, libc::CLD_KILLED | libc::CLD_DUMPED, signal)) if pid > 0 => {
            agent::child_ended(Pid(pid as u32), signal);
        }
        _ => {}
    }
}
