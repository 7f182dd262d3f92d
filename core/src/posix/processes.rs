//! Threads and processes: waiting for their end. `mod.rs` says what a line means.

/// Waiting for threads: what all platforms have.
#[macro_export]
macro_rules! posix_threads {
    ($emit:ident) => {
        $emit! {
            wait fn pthread_join(thread: pthread_t, result: *mut *mut c_void) -> c_int = ThreadJoin(thread) [for thread(thread)];
        }
    };
}

/// Waiting for threads: what glibc and bionic have.
#[macro_export]
macro_rules! linux_threads {
    ($emit:ident) => {
        $emit! {
            wait fn thrd_join(thread: pthread_t, result: *mut c_int) -> c_int = ThreadJoin(thread) [for thread(thread)];
        }
    };
}

/// Waiting for processes, and their end: what all platforms have.
#[macro_export]
macro_rules! posix_processes {
    ($emit:ident) => {
        $emit! {
            wait fn wait(status: *mut c_int) -> pid_t = Wait(0) [for child(0), tells child_ended(status)] aka glibc [__wait];
            wait fn waitpid(pid: pid_t, status: *mut c_int, options: c_int) -> pid_t = Wait(pid) [for child(pid), tells child_ended(status)] aka glibc [__waitpid];
            wait fn wait4(pid: pid_t, status: *mut c_int, options: c_int, usage: *mut rusage) -> pid_t = Wait(pid) [for child(pid), tells child_ended(status)];
            wait fn waitid(kind: idtype_t, id: id_t, info: *mut siginfo_t, options: c_int) -> c_int = Wait(id) [for child(if kind == libc::P_PID { id as pid_t } else { 0 }), tells child_changed(info)];
            wait fn system(command: *const c_char) -> c_int = Wait(0) [for child(0)];
            hit fn exit(status: c_int) -> () = Exit(status) [];
        }
    };
}
