//! A session inside the program: what the agent and the library with the session's threads
//! (`libstackbeat_session.so`) say to each other. Both are of one build, and know that by [`VERSION`].
//!
//! The agent loads the library, has it begin, and joins the mapping that it names. At the end of the process
//! the agent says so.

use core::ffi::c_char;

use crate::shm::layout::ABI_VERSION;

/// Names the library; who finds it in its environment begins a session of its own, unless another one records
/// it already.
pub const LIBRARY_VARIABLE: &str = "STACKBEAT_IN_PROCESS";
/// What to record and how, in the words of `stackbeat_collector::embedded::Wanted`.
pub const OPTIONS_VARIABLE: &str = "STACKBEAT_IN_PROCESS_OPTIONS";
/// The pid of the process that had that environment first and began a session; empty: none has. Others that
/// got it from there begin none.
pub const OWNER_VARIABLE: &str = "STACKBEAT_IN_PROCESS_OWNER";
/// Both sides have the same one.
pub const VERSION: u32 = ABI_VERSION;
/// Bytes of a path, with its NUL: Linux' PATH_MAX.
pub const PATH_BYTES: usize = 4096;

/// What the library is told.
#[repr(C)]
#[derive(Debug)]
pub struct Start {
    /// [`VERSION`].
    pub version: u32,
    /// A thread of the session calls it before anything else: no hook registers it from then on.
    pub own_thread: extern "C" fn(),
    /// The text of [`OPTIONS_VARIABLE`].
    pub options: *const c_char,
    /// The mapping of the session that the image before this one began in this process, or null.
    pub previous: *const c_char,
    /// Where the path of the mapping goes, [`PATH_BYTES`].
    pub path: *mut c_char,
}

/// `stackbeat_session_begin`: gives 0 once the session records and its path is filled in. Otherwise there is
/// none, and the library has said why on standard error.
pub type Begin = unsafe extern "C" fn(start: *const Start) -> i32;
/// `stackbeat_session_end`: the process is about to end, or wants its trace now. Returns when the trace is
/// complete. Does nothing in a child of the process that began the session.
pub type End = unsafe extern "C" fn();
