//! What only Darwin has, and hooks whose arguments need more than a line.
//!
//! Signatures: Apple's `poll.h`, `sys/select.h`, `sys/event.h`, `sys/socket.h`, `fcntl.h`, `stdlib.h`,
//! `unistd.h`.

use super::*;

mod listed {
    use super::*;

    // A `kevent` is passed on, not looked at.
    function_table! {
        wait fn poll(files: *mut pollfd, count: nfds_t, timeout_ms: c_int) -> c_int = Poll(count) [ended by handlers];
        wait fn select(count: c_int, read: *mut fd_set, write: *mut fd_set, error: *mut fd_set, timeout: *mut timeval) -> c_int = Select(count) [ended by handlers];
        wait fn select_1050(count: c_int, read: *mut fd_set, write: *mut fd_set, error: *mut fd_set, timeout: *mut timeval) -> c_int = Select(count) [ended by handlers];
        wait fn select_extended(count: c_int, read: *mut fd_set, write: *mut fd_set, error: *mut fd_set, timeout: *mut timeval) -> c_int = Select(count) [ended by handlers];
        wait fn pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, error: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int = Select(count) [ended by handlers];
        wait fn pselect_1050(count: c_int, read: *mut fd_set, write: *mut fd_set, error: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int = Select(count) [ended by handlers];
        wait fn pselect_extended(count: c_int, read: *mut fd_set, write: *mut fd_set, error: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int = Select(count) [ended by handlers];
        wait fn kevent(queue: c_int, changes: *const c_void, change_count: c_int, events: *mut c_void, event_count: c_int, timeout: *const timespec) -> c_int = Poll(queue) [ended by handlers];
        wait fn kevent64(queue: c_int, changes: *const c_void, change_count: c_int, events: *mut c_void, event_count: c_int, flags: c_uint, timeout: *const timespec) -> c_int = Poll(queue) [ended by handlers];
        wait fn connect(socket: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int = Connect(socket) [ended by handlers];
        wait fn accept(socket: c_int, address: *mut sockaddr, bytes: *mut socklen_t) -> c_int = Accept(socket) [ended by handlers];
    }
}
pub(super) const LISTED: &[Function] = listed::FUNCTIONS;

/// Symbols that are no names: Apple's headers give some functions another symbol, by what the program is
/// compiled for (`sys/cdefs.h`). Each variant is a function with an original of its own. Intel's plain `stat`
/// has another layout, and only programs for macOS 10.5 call it: it is not hooked.
pub(super) fn symbol(name: &'static str) -> &'static str {
    const IS_INTEL_MAC: bool = cfg!(all(target_vendor = "apple", target_arch = "x86_64"));
    match name {
        "select_1050" => "select$1050",
        "select_extended" => "select$DARWIN_EXTSN",
        "pselect_1050" => "pselect$1050",
        "pselect_extended" => "pselect$DARWIN_EXTSN",
        "stat" if IS_INTEL_MAC => "stat$INODE64",
        "lstat" if IS_INTEL_MAC => "lstat$INODE64",
        "fstat" if IS_INTEL_MAC => "fstat$INODE64",
        "fstatat" if IS_INTEL_MAC => "fstatat$INODE64",
        name => name,
    }
}

stackbeat_core::freeing_functions! {}

function_of_table! { alloc fn valloc(size: size_t) -> *mut c_void = Memalign(size) [] }

function_of_table! { @ sleep(time_s: c_uint) -> c_uint {
    let wait = agent::begin_wait(Probe::Nanosleep, time_s.into());
    let rest_s = call(time_s);
    wait.end(if rest_s > 0 { EINTR.into() } else { 0 });
    rest_s
} }

/// Where a hook finds the mode of `open`: on Apple's arm64 variadic arguments lie on the stack ("Writing
/// ARM64 code for Apple platforms"), after eight registers of which these are not used. Elsewhere in the next
/// register.
macro_rules! opening {
    ($name:ident($($arg:ident: $type:ty),*) unused ($($unused:ident)*) = $value:expr) => {
        pub(super) mod $name {
            use super::*;

            pub(super) static ORIGINAL: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

            /// # Safety
            /// The contract of the function itself; the mode may be missing, and anything then.
            pub(super) unsafe extern "C-unwind" fn hook(
                $($arg: $type,)*
                $(#[cfg(all(target_vendor = "apple", target_arch = "aarch64"))] $unused: usize,)*
                mode: c_uint,
            ) -> c_int {
                $(#[cfg(all(target_vendor = "apple", target_arch = "aarch64"))]
                let _ = $unused;)*
                let wait = agent::begin_wait(Probe::Open, $value as u64);
                // SAFETY: the rebinder has put the function of this name there; the caller's arguments.
                let file = unsafe {
                    let original = core::mem::transmute::<
                        *mut c_void,
                        unsafe extern "C-unwind" fn($($type,)* ...) -> c_int,
                    >(ORIGINAL.load(Ordering::Relaxed));
                    original($($arg,)* mode)
                };
                wait.end_moving(file.into(), 0);
                file
            }
        }
    };
}
opening!(open(path: *const c_char, flags: c_int) unused (r2 r3 r4 r5 r6 r7) = 0);
opening!(openat(directory: c_int, path: *const c_char, flags: c_int) unused (r3 r4 r5 r6 r7) = directory);

pub(super) const BY_HAND: &[Function] = stackbeat_core::by_hand! { sleep open openat };
/// What allocates and frees, besides the common list.
pub(super) const ALLOCATION: &[Function] = stackbeat_core::by_hand! { free realloc valloc };
