//! `libstackbeat_session.so`: a session inside the program. The agent loads it and calls these functions;
//! what they do is in `stackbeat_collector::embedded`.
//!
//! It allocates from memory of its own ([`Heap`]), never by the program's malloc: a thread of the program may
//! stand still while it holds malloc's lock.

#[cfg(target_os = "linux")]
mod static_tls;

use std::ffi::{CStr, OsStr};
#[cfg(any(target_os = "linux", target_os = "android"))]
use std::ffi::{c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use stackbeat_collector::embedded::heap::Heap;
use stackbeat_collector::embedded::{self, Wanted};
use stackbeat_core::embedded::{PATH_BYTES, Start, VERSION};

#[global_allocator]
static HEAP: Heap = Heap::new();

/// See [`stackbeat_core::embedded::Begin`].
///
/// # Safety
/// `start` is what the agent fills in.
#[unsafe(no_mangle)]
unsafe extern "C" fn stackbeat_session_begin(start: *const Start) -> i32 {
    // Android has no thread-locals of libraries: what std keeps by pthread keys lies in our heap.
    #[cfg(target_os = "linux")]
    static_tls::claim();
    let begin = || {
        // SAFETY: by contract; the texts outlive the call.
        let (start, options, previous) = unsafe {
            let start = &*start;
            if start.version != VERSION {
                return -1;
            }
            let previous = start.previous;
            let previous = (!previous.is_null()).then(|| CStr::from_ptr(previous));
            (start, CStr::from_ptr(start.options), previous)
        };
        let previous = previous.map(|p| PathBuf::from(OsStr::from_bytes(p.to_bytes())));
        let wanted = Wanted::from_text(&options.to_string_lossy());
        let session = wanted.and_then(|wanted| embedded::begin(wanted, previous, start.own_thread));
        match session {
            Ok(path) => {
                let bytes = path.as_os_str().as_bytes();
                if bytes.len() >= PATH_BYTES {
                    return -1;
                }
                // SAFETY: there is room for them and a NUL.
                unsafe {
                    start
                        .path
                        .cast::<u8>()
                        .copy_from(bytes.as_ptr(), bytes.len());
                    start.path.add(bytes.len()).write(0);
                }
                0
            }
            Err(error) => {
                say(&format!(
                    "stackbeat: not recorded: {}\n",
                    embedded::error_text(&error)
                ));
                -1
            }
        }
    };
    std::panic::catch_unwind(begin).unwrap_or(-1)
}

/// See [`stackbeat_core::embedded::End`].
#[unsafe(no_mangle)]
extern "C" fn stackbeat_session_end() {
    let _ = std::panic::catch_unwind(embedded::end);
}

/// On the program's standard error.
fn say(text: &str) {
    // SAFETY: the text lives during the call.
    unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
}

/// In place of libc's. What libc allocates for its callers (`realpath`) comes from the program's malloc,
/// which may be another one than libc's: its `free` would end the program. Nothing here asks libc for such
/// memory; if a library does all the same, it stays.
///
/// # Safety
/// None.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[unsafe(no_mangle)]
unsafe extern "C" fn free(_block: *mut c_void) {}

/// In place of libc's, which would keep what it is given in memory of the program's malloc: threads of the
/// session have nothing to clean up, because they live as long as it does.
///
/// # Safety
/// None.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[unsafe(no_mangle)]
unsafe extern "C" fn __cxa_thread_atexit_impl(
    _destructor: *mut c_void,
    _object: *mut c_char,
    _library: *mut c_void,
) -> i32 {
    0
}
