//! What there is to say to who develops the app: into Android's log, or to standard error where there is
//! none. `__android_log_write` of liblog is looked up, so that the library needs no other.

use core::ffi::{c_char, c_int};
use core::mem::transmute;
use std::ffi::CString;

/// `ANDROID_LOG_WARN` of android/log.h.
const WARN: c_int = 5;

pub(crate) fn say(text: &str) {
    type Write = unsafe extern "C" fn(c_int, *const c_char, *const c_char) -> c_int;
    // SAFETY: a name.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__android_log_write".as_ptr()) };
    match CString::new(text).ok().filter(|_| !found.is_null()) {
        Some(text) => {
            // SAFETY: android/log.h declares it so; the texts live during the call.
            unsafe {
                let write = transmute::<*mut libc::c_void, Write>(found);
                write(WARN, c"stackbeat".as_ptr(), text.as_ptr());
            }
        }
        None => eprintln!("stackbeat: {text}"),
    }
}
