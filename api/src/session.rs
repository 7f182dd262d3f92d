//! A session inside this program, without a recorder beside it.

use core::ffi::CStr;
use core::fmt;

/// Why there is no session, or none was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionError {
    /// The folder's path is longer than 4096 bytes with the names of the libraries.
    PathTooLong,
    /// The folder has no `libstackbeat.so` that can be loaded.
    NoAgent,
    /// The program is recorded already, or standard error says why not.
    Refused,
    /// There is no session to end.
    NoSession,
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PathTooLong => "the path of stackbeat's folder is too long",
            Self::NoAgent => "stackbeat's folder has no libstackbeat.so that can be loaded",
            Self::Refused => {
                "the program is recorded already, or standard error says why it is not"
            }
            Self::NoSession => "this program began no session",
        })
    }
}

impl core::error::Error for SessionError {}

/// Begins a session: everything is recorded from here on, as by `stackbeat attach`. On Linux with glibc,
/// without the feature `noop`.
///
/// `folder` has `libstackbeat.so` and `libstackbeat_session.so` of one build; `output` is an absolute path
/// that does not exist.
///
/// # Errors
/// Why it did not begin. The program goes on all the same.
pub fn session_start(folder: &CStr, output: &CStr) -> Result<(), SessionError> {
    agent::start(folder, output)
}

/// Ends it. The trace is complete when this returns, and the program runs on as before.
///
/// # Errors
/// [`SessionError::NoSession`].
pub fn session_stop() -> Result<(), SessionError> {
    agent::stop()
}

#[cfg(any(feature = "noop", not(target_os = "linux")))]
mod agent {
    use super::{CStr, SessionError};

    pub(super) fn start(_folder: &CStr, _output: &CStr) -> Result<(), SessionError> {
        Err(SessionError::NoAgent)
    }

    pub(super) fn stop() -> Result<(), SessionError> {
        Err(SessionError::NoSession)
    }
}

#[cfg(all(target_os = "linux", not(feature = "noop")))]
mod agent {
    use core::ffi::{c_char, c_int, c_void};
    use core::mem::transmute;

    use super::{CStr, SessionError};
    use crate::agent_functions::{RTLD_DEFAULT, dlsym};

    /// `dlfcn.h` of glibc.
    const RTLD_NOW: c_int = 2;
    const RTLD_GLOBAL: c_int = 0x100;
    /// Longest path of a library, its NUL included.
    const LONGEST: usize = 4096;

    unsafe extern "C" {
        fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    }

    type Start = unsafe extern "C" fn(library: *const c_char, output: *const c_char) -> c_int;
    type Stop = unsafe extern "C" fn() -> c_int;

    pub(super) fn start(folder: &CStr, output: &CStr) -> Result<(), SessionError> {
        let agent = Path::of(folder, c"/libstackbeat.so")?;
        let session = Path::of(folder, c"/libstackbeat_session.so")?;
        // SAFETY: C strings.
        let found = unsafe {
            let agent = dlopen(agent.as_ptr(), RTLD_NOW | RTLD_GLOBAL);
            if agent.is_null() {
                return Err(SessionError::NoAgent);
            }
            dlsym(agent, c"stackbeat_v1_session_start".as_ptr())
        };
        if found.is_null() {
            return Err(SessionError::NoAgent);
        }
        // SAFETY: the agent's function of this name has this type in every version (v1), and takes C strings.
        let status =
            unsafe { transmute::<*mut c_void, Start>(found)(session.as_ptr(), output.as_ptr()) };
        match status {
            0 => Ok(()),
            _ => Err(SessionError::Refused),
        }
    }

    pub(super) fn stop() -> Result<(), SessionError> {
        // SAFETY: a C string.
        let found = unsafe { dlsym(RTLD_DEFAULT, c"stackbeat_v1_session_stop".as_ptr()) };
        if found.is_null() {
            return Err(SessionError::NoSession);
        }
        // SAFETY: the agent's function of this name has this type in every version (v1).
        match unsafe { transmute::<*mut c_void, Stop>(found)() } {
            0 => Ok(()),
            _ => Err(SessionError::NoSession),
        }
    }

    /// A file in a folder, as a C string.
    struct Path([u8; LONGEST]);

    impl Path {
        fn of(folder: &CStr, name: &CStr) -> Result<Path, SessionError> {
            let (folder, name) = (folder.to_bytes(), name.to_bytes_with_nul());
            let mut path = [0; LONGEST];
            let (begin, rest) = path
                .split_at_mut_checked(folder.len())
                .ok_or(SessionError::PathTooLong)?;
            begin.copy_from_slice(folder);
            rest.get_mut(..name.len())
                .ok_or(SessionError::PathTooLong)?
                .copy_from_slice(name);
            Ok(Path(path))
        }

        fn as_ptr(&self) -> *const c_char {
            self.0.as_ptr().cast()
        }
    }
}
