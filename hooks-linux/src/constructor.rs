//! The library's constructor and destructor.

use crate::{env, fork_exec, own_session, patch, resolve, runtime, signal, thread, verify};
use core::ffi::{c_char, c_int};
use stackbeat_core::agent;
use stackbeat_core::shm::layout::SESSION_VARIABLE;

/// These hold back signals and run handlers later, on contexts of their own making: beside them the
/// agent stays off.
pub(crate) const DEFERRING_SANITIZERS: &[&[u8]] = &[b"libtsan.", b"libmsan.", b"libclang_rt.tsan"];

/// When set, each stack that reuses frames of the last one is compared with a full walk; `info` shows
/// the counts. For testing the unwinder on programs of one's own.
const CHECK_VARIABLE: &[u8] = b"STACKBEAT_CHECK_UNWIND";

/// glibc passes the program's arguments and environment to constructors, musl does not.
extern "C" fn start(
    _count: c_int,
    _arguments: *const *const c_char,
    environment: *const *const c_char,
) {
    if !resolve::is_glibc() {
        return;
    }
    // SAFETY: `environment` is what the kernel gave.
    let session = unsafe { env::find(environment, SESSION_VARIABLE.as_bytes()) };
    // SAFETY: as above.
    let own = unsafe { own_session::wanted(environment) };
    let is_own = own.is_some() && session.is_none_or(|path| !own_session::records_others(path));
    let is_asked = is_own || session.is_some();
    if !is_asked || resolve::any_loaded(DEFERRING_SANITIZERS) || runtime::is_second() {
        return;
    }
    let session = match own {
        Some(own) if is_own => {
            let begun = own_session::begin(&own, session);
            own_session::tell_children(begun);
            begun
        }
        _ => session,
    };
    let Some(session) = session else { return };
    if !agent::init(session) {
        return;
    }
    // SAFETY: as above.
    if unsafe { env::find(environment, CHECK_VARIABLE) }.is_some() {
        stackbeat_core::native::own_walk::check_walks();
    }
    if agent::follow_children()
        && let Some(own_path) = resolve::own_path()
    {
        env::keep(session, own_path);
    }
    env::set_preloaded();
    fork_exec::watch_forks();
    thread::watch_thread_ends();
    thread::watch_end();
    signal::start();
    signal::crash::start();
    patch::unpatch::start();
    let tables = patch::patch_tables();
    verify::report(tables > 0);
}

extern "C" fn end() {
    fork_exec::descriptors_close();
    agent::process_exiting();
    own_session::end();
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = start;

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

/// AddressSanitizer ends a program in which a library stands before it, unless told otherwise. It asks
/// this function, whose first definition is ours (a program's own goes before).
#[unsafe(no_mangle)]
extern "C" fn __asan_default_options() -> *const c_char {
    c"verify_asan_link_order=0".as_ptr()
}
