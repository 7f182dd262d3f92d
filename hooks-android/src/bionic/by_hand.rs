//! Functions whose hooks need more than a line: what frees, processes, and sockets that are connected.
//!
//! Signatures: bionic's `sys/socket.h`, `unistd.h`, `spawn.h`.

use core::ffi::{c_char, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use libc::*;
use stackbeat_core::posix::exec_list::{PLAIN, SEARCH_PATH, Strings, WITH_ENVIRONMENT, with_list};
use stackbeat_core::posix::function_table::Function;
use stackbeat_core::probe::Probe;
use stackbeat_core::system_call::SystemCall;
use stackbeat_core::{agent, function_of_table, function_table};

stackbeat_core::freeing_functions! {}

mod listed {
    use super::*;

    function_table! {
        wait fn connect(socket: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int = Connect(socket) [];
        wait fn accept(socket: c_int, address: *mut sockaddr, bytes: *mut socklen_t) -> c_int = Accept(socket) [];
        wait fn accept4(socket: c_int, address: *mut sockaddr, bytes: *mut socklen_t, flags: c_int) -> c_int = Accept(socket) [];
    }
}
pub(super) const LISTED: &[Function] = listed::FUNCTIONS;

/// The process whose hooks these are.
static OWN: AtomicI32 = AtomicI32::new(0);

/// The kernel's answer: one that is kept in memory is the parent's in a vfork child.
fn pid() -> pid_t {
    // SAFETY: touches no memory.
    unsafe { libc::syscall(libc::SYS_getpid) as pid_t }
}

/// Before the hooks are placed.
pub(super) fn begin() {
    OWN.store(pid(), Ordering::Release);
}

/// Whether the caller is the process itself: a vfork child has its memory, and no thread of it.
fn is_own() -> bool {
    pid() == OWN.load(Ordering::Acquire)
}

function_of_table! { @ fork() -> pid_t {
    if !is_own() {
        return call();
    }
    agent::count(SystemCall::Process);
    agent::force(Probe::Fork, 0);
    agent::before_fork();
    let child = call();
    match child {
        0 => agent::fork_child(),
        _ => agent::fork_parent(),
    }
    child
} }

/// The process is about to become another program.
fn replaced(exec: impl FnOnce() -> c_int) -> c_int {
    if !is_own() {
        return exec();
    }
    agent::count(SystemCall::Process);
    agent::force(Probe::Exec, 0);
    agent::before_exec();
    let result = exec();
    agent::exec_failed();
    result
}

macro_rules! execs {
    ($($name:ident($($argument:ident: $type:ty),*))*) => {$(
        function_of_table! { @ $name($($argument: $type),*) -> c_int {
            replaced(|| call($($argument),*))
        } }
    )*};
}

execs! {
    execve(path: *const c_char, arguments: Strings, environment: Strings)
    execv(path: *const c_char, arguments: Strings)
    execvp(file: *const c_char, arguments: Strings)
    execvpe(file: *const c_char, arguments: Strings, environment: Strings)
    fexecve(file: c_int, arguments: Strings, environment: Strings)
}

static EXECL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static EXECLE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static EXECLP: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Their originals are never called: bionic's, too, make an array of the list (libc/bionic/exec.cpp).
pub(super) const LISTS: &[Function] = super::functions! {
    execl = EXECL;
    execle = EXECLE;
    execlp = EXECLP;
};

stackbeat_core::exec_lists! { exec_list:
    execl = PLAIN;
    execle = WITH_ENVIRONMENT;
    execlp = SEARCH_PATH;
}

unsafe extern "C-unwind" fn exec_list(
    path: *const c_char,
    registers: Strings,
    stack: Strings,
    kind: usize,
) -> c_int {
    // SAFETY: the caller's arguments, passed on.
    unsafe {
        with_list(
            registers,
            stack,
            kind == WITH_ENVIRONMENT,
            |list, environment| {
                replaced(|| match kind {
                    WITH_ENVIRONMENT => execve::call(path, list, environment),
                    SEARCH_PATH => execvp::call(path, list),
                    _ => execv::call(path, list),
                })
            },
        )
    }
}

macro_rules! spawns {
    ($($name:ident)*) => {$(
        function_of_table! { @ $name(child: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: Strings, environment: Strings) -> c_int {
            let mut own = 0;
            let child = if child.is_null() { &raw mut own } else { child };
            let wait = agent::begin_wait(Probe::Spawn, 0);
            let result = call(child, path, actions, attributes, arguments, environment);
            wait.end_started(if result == 0 { i64::from(*child) } else { 0 }, result.into());
            result
        } }
    )*};
}
spawns! { posix_spawn posix_spawnp }

pub(super) const BY_HAND: &[Function] = stackbeat_core::by_hand! {
    free realloc fork execve execv execvp execvpe fexecve posix_spawn posix_spawnp
};
