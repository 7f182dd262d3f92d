//! The filter of system calls that Android puts on apps. A call that it does not know ends the app with
//! SIGSYS, so whoever runs in one asks here before calls that came to the list later.
//!
//! Source: bionic's libc/SYSCALLS.TXT and libc/SECCOMP_*.TXT at the tags android-8.0.0_r1 to
//! android-15.0.0_r1, for arm64. What else stackbeat calls in an app is on the list of Android 8.

use core::ffi::c_long;
use core::sync::atomic::{AtomicU32, Ordering};

/// 0: this is no app of Android's.
static API_LEVEL: AtomicU32 = AtomicU32::new(0);

/// Calls, and the API level from which on apps may make them.
const LATER: [(c_long, u32); 3] = [
    (libc::SYS_membarrier, 29),
    (libc::SYS_pidfd_open, 30),
    (libc::SYS_close_range, 33),
];

/// This process is an app on an Android of this API level.
pub fn set_api_level(level: u32) {
    API_LEVEL.store(level, Ordering::Relaxed);
}

/// Whether the process may make this call, as far as the filter of apps is concerned.
///
/// # Signal safety
/// One load.
pub fn apps_may_call(call: c_long) -> bool {
    let level = API_LEVEL.load(Ordering::Relaxed);
    let since = LATER.iter().find(|(later, _)| *later == call);
    level == 0 || since.is_none_or(|(_, since)| level >= *since)
}
