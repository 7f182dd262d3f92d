//! Processes: fork, vfork, exec, spawn, wait and the end.
//!
//! All of this runs in vfork children too, which share this memory and this thread's registers with
//! their parent: nothing here allocates, and a thread-local flag says "not me" to the engine that the
//! parent clears when it goes on.

use crate::{descriptor, env, lacking};
use core::arch::naked_asm;
use core::ffi::{c_char, c_int, c_void};
use libc::{id_t, idtype_t, pid_t, rusage, siginfo_t};
use stackbeat_core::agent;
use stackbeat_core::posix::exec_list::{PLAIN, SEARCH_PATH, Strings, WITH_ENVIRONMENT, with_list};
use stackbeat_core::probe::Probe;
use stackbeat_core::system_call::SystemCall;

stackbeat_core::posix_processes! { hooks }

hooks! {
    wait fn wait3(status: *mut c_int, options: c_int, usage: *mut rusage) -> pid_t = Wait(0) [for child(0), tells child_ended(status)];
}

extern "C" fn before_fork() {
    agent::before_fork();
}

extern "C" fn fork_parent() {
    agent::fork_parent();
}

extern "C" fn fork_child() {
    crate::signal::after_fork();
    crate::patch::unpatch::after_fork();
    agent::fork_child();
    descriptor::after_fork();
}

/// Registers for every fork, also those that libc does by itself (`daemon`, `forkpty`).
pub(crate) fn watch_forks() {
    // They call nothing of libc.
    lacking::at_fork(before_fork, fork_parent, fork_child);
}

original!(fn fork() -> pid_t = Fork);
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fork() -> pid_t {
    fork::called();
    agent::count(SystemCall::Process);
    agent::force(Probe::Fork, 0);
    // SAFETY: no arguments.
    unsafe { fork::call() }
}

original!(fn _Fork() -> pid_t = Fork);
/// Runs no fork handlers.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn _Fork() -> pid_t {
    _Fork::called();
    agent::count(SystemCall::Process);
    agent::force(Probe::Fork, 0);
    agent::before_fork();
    // SAFETY: no arguments.
    let pid = unsafe { _Fork::call() };
    if pid == 0 {
        fork_child();
    } else {
        agent::fork_parent();
    }
    pid
}

mod counted_vfork {
    crate::hooked_functions::function!(vfork = Vfork);
}

extern "C" fn vfork_begins(pc: u64, sp: u64, fp: u64) {
    agent::vfork_begins([pc, sp, fp]);
}

extern "C" fn vfork_child() {
    agent::vfork_child();
}

extern "C" fn vfork_parent(child: pid_t) {
    agent::vfork_parent(child.into());
    counted_vfork::called();
}

extern "C" fn vfork_failed(error: c_int) -> c_int {
    agent::vfork_parent(-i64::from(error));
    failed(error)
}

fn failed(error: c_int) -> c_int {
    // SAFETY: errno of the calling thread is always there.
    unsafe { *libc::__errno_location() = error };
    -1
}

macro_rules! vforks {
    ($($name:ident)*) => {$(
        /// The child runs on the parent's stack and overwrites it: the return address waits in a
        /// register. The system call is made here, because the original would return into a frame of
        /// ours that the child has overwritten.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            naked_asm!(
                ".cfi_startproc",
                "mov rdi, [rsp]",
                "lea rsi, [rsp + 8]",
                "mov rdx, rbp",
                "sub rsp, 8",
                ".cfi_adjust_cfa_offset 8",
                "call {begins}",
                "add rsp, 8",
                ".cfi_adjust_cfa_offset -8",
                "pop rdi",
                ".cfi_adjust_cfa_offset -8",
                ".cfi_register rip, rdi",
                "mov eax, {number}",
                "syscall",
                "push rdi",
                ".cfi_adjust_cfa_offset 8",
                ".cfi_rel_offset rip, 0",
                "push rax",
                ".cfi_adjust_cfa_offset 8",
                "test rax, rax",
                "jz 3f",
                "js 2f",
                "mov edi, eax",
                "call {parent}",
                "pop rax",
                ".cfi_adjust_cfa_offset -8",
                "ret",
                ".cfi_adjust_cfa_offset 8",
                "2: neg eax",
                "mov edi, eax",
                "call {failed}",
                "pop rdx",
                ".cfi_adjust_cfa_offset -8",
                "ret",
                ".cfi_adjust_cfa_offset 8",
                "3: call {child}",
                "pop rax",
                ".cfi_adjust_cfa_offset -8",
                // With a shadow stack the child must leave the parent's return address on it.
                "xor edx, edx",
                "rdsspq rdx",
                "test rdx, rdx",
                "jnz 4f",
                "ret",
                "4: pop rdi",
                "jmp rdi",
                ".cfi_endproc",
                number = const libc::SYS_vfork,
                begins = sym vfork_begins,
                parent = sym vfork_parent,
                child = sym vfork_child,
                failed = sym vfork_failed,
            );
            // The return address is in x30; a callee-saved register would be the caller's, so it waits
            // in x9, which a system call leaves alone.
            #[cfg(target_arch = "aarch64")]
            naked_asm!(
                "stp x30, xzr, [sp, #-16]!",
                "mov x0, x30",
                "add x1, sp, #16",
                "mov x2, x29",
                "bl {begins}",
                "ldp x30, xzr, [sp], #16",
                "mov x9, x30",
                "mov x0, {flags}",
                "mov x1, xzr",
                "mov x8, {number}",
                "svc #0",
                "stp x9, x0, [sp, #-16]!",
                "cbz x0, 3f",
                "tbnz x0, #63, 2f",
                "bl {parent}",
                "ldp x30, x0, [sp], #16",
                "ret",
                "2: neg w0, w0",
                "bl {failed}",
                "ldp x30, x1, [sp], #16",
                "ret",
                "3: bl {child}",
                "ldp x30, x0, [sp], #16",
                "ret",
                begins = sym vfork_begins,
                flags = const libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
                number = const libc::SYS_clone,
                parent = sym vfork_parent,
                child = sym vfork_child,
                failed = sym vfork_failed,
            );
        }
    )*};
}
vforks! { vfork __vfork }

type ChildFunction = unsafe extern "C" fn(*mut c_void) -> c_int;

original!(fn clone(function: ChildFunction, stack: *mut c_void, flags: c_int, argument: *mut c_void, parent: *mut pid_t, tls: *mut c_void, child: *mut pid_t) -> c_int = Vfork);
/// What is called vfork is a clone with these flags. One with another stack is used instead of it, because
/// there the child may call functions. The last three arguments are passed only where flags ask for them.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn clone(
    function: ChildFunction,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent: *mut pid_t,
    tls: *mut c_void,
    child: *mut pid_t,
) -> c_int {
    const LENDS: c_int = libc::CLONE_VM | libc::CLONE_VFORK;
    clone::called();
    // SAFETY: the caller's arguments, passed on.
    let call = || unsafe { clone::call(function, stack, flags, argument, parent, tls, child) };
    match flags & (LENDS | libc::CLONE_SETTLS) {
        LENDS => agent::lends_memory(|| call().into()) as c_int,
        _ => call(),
    }
}

/// # Safety
/// A variable of libc.
unsafe fn environment() -> *const *const c_char {
    unsafe extern "C" {
        static mut environ: *const *const c_char;
    }
    // SAFETY: read as libc's own exec functions read it.
    unsafe { environ }
}

/// All functions of the family, which are one call with its arguments in different forms.
mod exec {
    crate::hooked_functions::function!(execve = Exec);
}

/// Runs an exec: no signal of ours may be on its way when the image changes.
///
/// # Safety
/// `envp` is null or a null-terminated array of C strings.
unsafe fn replace(envp: Strings, exec: impl FnOnce(Strings) -> c_int) -> c_int {
    exec::called();
    agent::count(SystemCall::Process);
    agent::force(Probe::Exec, 0);
    agent::before_exec();
    // SAFETY: by contract.
    let result = unsafe { env::with(envp, exec) };
    agent::exec_failed();
    result
}

macro_rules! execs {
    ($($name:ident($($arg:ident: $type:ty),*) { $envp:expr => |$with:ident| $call:expr })*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $type),*) -> c_int {
            // SAFETY: the caller's arguments, passed on; the environment is the caller's or libc's.
            unsafe { replace($envp, |$with| $call) }
        }
    )*};
}

original!(fn execve(path: *const c_char, argv: Strings, envp: Strings) -> c_int);
original!(fn execvpe(file: *const c_char, argv: Strings, envp: Strings) -> c_int);
original!(fn fexecve(file: c_int, argv: Strings, envp: Strings) -> c_int);
original!(fn execveat(directory: c_int, path: *const c_char, argv: Strings, envp: Strings, flags: c_int) -> c_int);

execs! {
    execve(path: *const c_char, argv: Strings, envp: Strings) { envp => |with| execve::call(path, argv, with) }
    execv(path: *const c_char, argv: Strings) { environment() => |with| execve::call(path, argv, with) }
    execvp(file: *const c_char, argv: Strings) { environment() => |with| execvpe::call(file, argv, with) }
    execvpe(file: *const c_char, argv: Strings, envp: Strings) { envp => |with| execvpe::call(file, argv, with) }
    fexecve(file: c_int, argv: Strings, envp: Strings) { envp => |with| fexecve::call(file, argv, with) }
    execveat(directory: c_int, path: *const c_char, argv: Strings, envp: Strings, flags: c_int) { envp => |with| execveat::call(directory, path, argv, with, flags) }
}

unsafe extern "C-unwind" fn exec_list(
    path: *const c_char,
    registers: Strings,
    stack: Strings,
    kind: usize,
) -> c_int {
    // SAFETY: the caller's arguments, passed on; the environment is the caller's or libc's.
    unsafe {
        with_list(registers, stack, kind == WITH_ENVIRONMENT, |argv, given| {
            let envp = match kind {
                WITH_ENVIRONMENT => given,
                _ => environment(),
            };
            replace(envp, |with| match kind {
                SEARCH_PATH => execvpe::call(path, argv, with),
                _ => execve::call(path, argv, with),
            })
        })
    }
}

stackbeat_core::exec_lists! { exec_list:
    #[unsafe(no_mangle)]
    execl = PLAIN;
    #[unsafe(no_mangle)]
    execle = WITH_ENVIRONMENT;
    #[unsafe(no_mangle)]
    execlp = SEARCH_PATH;
}

macro_rules! spawns {
    ($($name:ident)*) => {$(
        original!(fn $name(pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void, argv: Strings, envp: Strings) -> c_int = Spawn);
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(
            pid: *mut pid_t,
            path: *const c_char,
            actions: *const c_void,
            attributes: *const c_void,
            argv: Strings,
            envp: Strings,
        ) -> c_int {
            $name::called();
            let mut own = 0;
            let pid = if pid.is_null() { &raw mut own } else { pid };
            let wait = agent::begin_wait(Probe::Spawn, 0);
            // SAFETY: the caller's arguments, passed on; the pid is ours where the caller wants none.
            let (result, child) = unsafe {
                let result = env::with(envp, |with| $name::call(pid, path, actions, attributes, argv, with));
                (result, if result == 0 { *pid } else { 0 })
            };
            wait.end_started(child.into(), result.into());
            result
        }
    )*};
}
spawns! { posix_spawn posix_spawnp }

// The versions before run a file that is no executable by the shell.
#[cfg(target_arch = "x86_64")]
versions! {
    posix_spawn = "GLIBC_2.15";
    posix_spawnp = "GLIBC_2.15";
}

/// The process is about to end: tells those that wait for what its descriptors hold open.
pub(crate) fn descriptors_close() {
    descriptor::all_close(|wake, file| wake.end(Probe::Close, file as u64));
}

macro_rules! ends {
    ($($name:ident)*) => {$(
        original!(fn $name(status: c_int) -> () = Exit);
        /// Ends the process without running destructors.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(status: c_int) {
            $name::called();
            agent::hit(Probe::Exit, status as u64);
            descriptors_close();
            agent::process_exiting();
            crate::own_session::end();
            // SAFETY: the caller's argument, passed on.
            unsafe { $name::call(status) }
        }
    )*};
}
ends! { _exit _Exit }
