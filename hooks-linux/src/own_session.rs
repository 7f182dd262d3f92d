//! A session inside the program (`stackbeat record --in-process`): its threads are in a library of their own,
//! which the constructor loads, and which ends the session when the process does.
//!
//! The library is loaded with a scope of its own before the program's (RTLD_DEEPBIND): its calls go to libc,
//! past our hooks. It calls [`own_thread`] on each of its threads, so that what libc calls inside itself
//! (`malloc` in `opendir`) registers nobody.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use core::ops::Range;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::ffi::CString;

use stackbeat_core::embedded::{
    Begin, End, LIBRARY_VARIABLE, OPTIONS_VARIABLE, OWNER_VARIABLE, PATH_BYTES, Start, VERSION,
};
use stackbeat_core::shm::layout::SESSION_VARIABLE;
use stackbeat_core::shm::mapping::Mapping;
use stackbeat_core::sync::Ordering::Relaxed;
use stackbeat_core::{agent, platform};

use crate::{env, resolve};

/// Where it is, and what it is to record.
pub(crate) struct Wanted<'a> {
    pub library: &'a CStr,
    pub options: &'a CStr,
}

/// Whether the process is to have a session of its own: not where another one has begun one by this
/// environment, which may have ended since.
///
/// # Safety
/// `environment` is null or a null-terminated array of C strings.
pub(crate) unsafe fn wanted(environment: *const *const c_char) -> Option<Wanted<'static>> {
    // SAFETY: by contract.
    unsafe {
        let owner = env::find(environment, OWNER_VARIABLE.as_bytes()).map(CStr::to_bytes);
        let owner = owner.filter(|owner| !owner.is_empty());
        if owner.is_some_and(|pid| pid != platform::process_id().to_string().as_bytes()) {
            return None;
        }
        Some(Wanted {
            library: env::find(environment, LIBRARY_VARIABLE.as_bytes())?,
            options: env::find(environment, OPTIONS_VARIABLE.as_bytes())?,
        })
    }
}

/// Whether the session with this mapping is another process': then this one is recorded there. A session that
/// the image before this one began ended with its exec.
pub(crate) fn records_others(session: &CStr) -> bool {
    let Ok(mapping) = Mapping::join(session) else {
        return false;
    };
    let collector = mapping.header().collector_pid.load(Relaxed);
    collector != platform::process_id()
}

/// `stackbeat_session_end` of the library; null: there is no session.
static END: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
/// `stackbeat_session_begin`; null: the library is not loaded.
static BEGIN: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
/// The process that began the session.
static OWNER: AtomicU32 = AtomicU32::new(0);

struct Path(core::cell::UnsafeCell<[u8; PATH_BYTES]>);

// SAFETY: written by the constructor, while the process has one thread, and only read afterwards.
unsafe impl Sync for Path {}

static PATH: Path = Path(core::cell::UnsafeCell::new([0; PATH_BYTES]));

/// Whether the module with these addresses is the library: its calls are its own.
pub(crate) fn is_library(range: &Range<usize>) -> bool {
    range.contains(&BEGIN.load(Ordering::Acquire).addr())
}

extern "C" fn own_thread() {
    agent::own_thread();
}

/// Begins the session. Gives the path of its mapping. `None`: there is none, and the program runs unrecorded.
pub(crate) fn begin(wanted: &Wanted<'_>, previous: Option<&CStr>) -> Option<&'static CStr> {
    type Open = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
    type Find = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
    let open = resolve::original(c"dlopen", 0)?;
    let find = resolve::original(c"dlsym", 0)?;
    // SAFETY: libc's functions of these names; the library's functions have these types, which both sides
    // share.
    unsafe {
        let open: Open = transmute::<*mut c_void, Open>(open);
        let find: Find = transmute::<*mut c_void, Find>(find);
        let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_DEEPBIND;
        let library = open(wanted.library.as_ptr(), flags);
        if library.is_null() {
            return None;
        }
        let begin = find(library, c"stackbeat_session_begin".as_ptr());
        let end = find(library, c"stackbeat_session_end".as_ptr());
        if begin.is_null() || end.is_null() {
            return None;
        }
        BEGIN.store(begin, Ordering::Release);
        let start = Start {
            version: VERSION,
            own_thread,
            options: wanted.options.as_ptr(),
            previous: previous.map_or(core::ptr::null(), CStr::as_ptr),
            path: PATH.0.get().cast(),
        };
        if transmute::<*mut c_void, Begin>(begin)(&raw const start) != 0 {
            return None;
        }
        OWNER.store(platform::process_id(), Ordering::Relaxed);
        END.store(end, Ordering::Release);
        CStr::from_bytes_until_nul(&*PATH.0.get()).ok()
    }
}

/// What this process starts finds its session in the environment, also where libc starts it past the hooks
/// (`system`, `popen`): otherwise it would begin one of its own, with a trace in the same place. `None`:
/// there is no session, and none is to begin there either.
pub(crate) fn tell_children(session: Option<&CStr>) {
    let set = |name: &str, value: &CStr| {
        if let Ok(name) = CString::new(name) {
            // SAFETY: the program has not begun, and the session's threads leave the environment alone.
            // `record` gives the first variable, so only the second makes a new array, and the one of before,
            // which somebody may be reading, stays where it is.
            unsafe { libc::setenv(name.as_ptr(), value.as_ptr(), 1) };
        }
    };
    if let Ok(pid) = CString::new(platform::process_id().to_string()) {
        set(OWNER_VARIABLE, &pid);
    }
    if let Some(session) = session {
        set(SESSION_VARIABLE, session);
    }
}

/// Whether this process has one.
pub(crate) fn is_there() -> bool {
    !END.load(Ordering::Acquire).is_null()
        && OWNER.load(Ordering::Relaxed) == platform::process_id()
}

/// The process is about to end: the trace is complete afterwards. Does nothing in children.
pub(crate) fn end() {
    let end = END.load(Ordering::Acquire);
    if end.is_null()
        || !agent::owns_memory()
        || OWNER.load(Ordering::Relaxed) != platform::process_id()
        || END.swap(core::ptr::null_mut(), Ordering::AcqRel).is_null()
    {
        return;
    }
    // SAFETY: the library's function, which has this type.
    unsafe { transmute::<*mut c_void, End>(end)() };
}
