//! Files and pipes.
//!
//! `open`, `openat` and `fcntl` are variadic in C; their optional argument is an integer or a pointer,
//! which every supported ABI passes like a fixed one, so it is passed on whether the caller gave it or
//! not.

use crate::descriptor;
use core::ffi::{c_char, c_int, c_uint, c_void};
use libc::{iovec, loff_t, mode_t, off_t, sigset_t, size_t, ssize_t, stat as Stat};
use stackbeat_core::agent;
use stackbeat_core::platform::blocking_calls;
use stackbeat_core::probe::Probe;
use stackbeat_core::system_call::SystemCall;

hooks! {
    wait fn read(file: c_int, buffer: *mut c_void, bytes: size_t) -> ssize_t = Read(file) [reads file] aka glibc [__read];
    wait fn __read_chk(file: c_int, buffer: *mut c_void, bytes: size_t, room: size_t) -> ssize_t = Read(file) [reads file];
    wait fn pread(file: c_int, buffer: *mut c_void, bytes: size_t, offset: off_t) -> ssize_t = Read(file) [] aka linux [pread64] glibc [__pread64];
    wait fn __pread_chk(file: c_int, buffer: *mut c_void, bytes: size_t, offset: off_t, room: size_t) -> ssize_t = Read(file) [] aka linux [__pread64_chk];
    wait fn readv(file: c_int, parts: *const iovec, count: c_int) -> ssize_t = Read(file) [reads file];
    wait fn preadv(file: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t = Read(file) [] aka linux [preadv64];
    wait fn preadv2(file: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t = Read(file) [];
    wait fn preadv64v2(file: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t = Read(file) [];

    wait fn write(file: c_int, buffer: *const c_void, bytes: size_t) -> ssize_t = Write(file) [writes file] aka glibc [__write];
    wait fn pwrite(file: c_int, buffer: *const c_void, bytes: size_t, offset: off_t) -> ssize_t = Write(file) [] aka linux [pwrite64] glibc [__pwrite64];
    wait fn writev(file: c_int, parts: *const iovec, count: c_int) -> ssize_t = Write(file) [writes file];
    wait fn pwritev(file: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t = Write(file) [] aka linux [pwritev64];
    wait fn pwritev2(file: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t = Write(file) [];
    wait fn pwritev64v2(file: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t = Write(file) [];

    // Before Linux 6.18, tmpfs gives EINTR whatever SA_RESTART says.
    wait fn fallocate(file: c_int, mode: c_int, offset: off_t, bytes: off_t) -> c_int = Write(file) [] aka linux [fallocate64];
    wait fn posix_fallocate(file: c_int, offset: off_t, bytes: off_t) -> c_int = Write(file) [] aka linux [posix_fallocate64];
    wait fn tcdrain(file: c_int) -> c_int = Write(file) [];
    // Gives fewer bytes when a signal comes, from a page on.
    wait fn getrandom(buffer: *mut c_void, bytes: size_t, flags: c_uint) -> ssize_t = Read(bytes) [];

    wait fn sendfile(out: c_int, file: c_int, offset: *mut off_t, bytes: size_t) -> ssize_t = Sendfile(file) [writes out] aka linux [sendfile64];
    wait fn copy_file_range(file: c_int, offset: *mut loff_t, out: c_int, out_offset: *mut loff_t, bytes: size_t, flags: c_uint) -> ssize_t = Sendfile(file) [];
    wait fn splice(file: c_int, offset: *mut loff_t, out: c_int, out_offset: *mut loff_t, bytes: size_t, flags: c_uint) -> ssize_t = Splice(file) [writes out];
    wait fn tee(file: c_int, out: c_int, bytes: size_t, flags: c_uint) -> ssize_t = Splice(file) [];
    wait fn vmsplice(file: c_int, parts: *const iovec, count: size_t, flags: c_uint) -> ssize_t = Splice(file) [];

    wait fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int = Open(0) [opens] aka linux [open64] glibc [__open __open64];
    wait fn __open_2(path: *const c_char, flags: c_int) -> c_int = Open(0) [opens] aka glibc [__open64_2];
    wait fn openat(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int = Open(0) [opens] aka linux [openat64];
    wait fn __openat_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int = Open(0) [opens] aka glibc [__openat64_2];
    wait fn creat(path: *const c_char, mode: mode_t) -> c_int = Open(0) [opens] aka linux [creat64];
    wait fn close(file: c_int) -> c_int = Close(file) [closes file] aka glibc [__close];

    wait fn fsync(file: c_int) -> c_int = Fsync(file) [];
    wait fn fdatasync(file: c_int) -> c_int = Fsync(file) [];
    wait fn syncfs(file: c_int) -> c_int = Fsync(file) [];
    hit fn sync() -> () = Fsync(0) [];
    wait fn sync_file_range(file: c_int, offset: loff_t, bytes: loff_t, flags: c_uint) -> c_int = Fsync(file) [];
    wait fn msync(address: *mut c_void, bytes: size_t, flags: c_int) -> c_int = Fsync(bytes) [];

    wait fn flock(file: c_int, operation: c_int) -> c_int = FileLock(file) [];
    wait fn lockf(file: c_int, command: c_int, bytes: off_t) -> c_int = FileLock(file) [] aka linux [lockf64];

    wait fn stat(path: *const c_char, status: *mut Stat) -> c_int = Stat(0) [] aka linux [stat64];
    wait fn lstat(path: *const c_char, status: *mut Stat) -> c_int = Stat(0) [] aka linux [lstat64];
    wait fn fstat(file: c_int, status: *mut Stat) -> c_int = Stat(file) [] aka linux [fstat64];
    wait fn fstatat(directory: c_int, path: *const c_char, status: *mut Stat, flags: c_int) -> c_int = Stat(directory) [] aka linux [fstatat64];
    wait fn statx(directory: c_int, path: *const c_char, flags: c_int, mask: c_uint, status: *mut c_void) -> c_int = Stat(directory) [];
}

// What programs linked against glibc before 2.33 call.
hooks! {
    wait fn __xstat(version: c_int, path: *const c_char, status: *mut Stat) -> c_int = Stat(0) [] aka glibc [__xstat64];
    wait fn __lxstat(version: c_int, path: *const c_char, status: *mut Stat) -> c_int = Stat(0) [] aka glibc [__lxstat64];
    wait fn __fxstat(version: c_int, file: c_int, status: *mut Stat) -> c_int = Stat(file) [] aka glibc [__fxstat64];
    wait fn __fxstatat(version: c_int, directory: c_int, path: *const c_char, status: *mut Stat, flags: c_int) -> c_int = Stat(directory) [] aka glibc [__fxstatat64];
}

/// `fcntl`, which may make a double of a descriptor, or keep it from blocking.
macro_rules! controls {
    ($($name:ident)*) => {$(
        original!(fn $name(file: c_int, command: c_int, argument: *mut c_void) -> c_int = Fcntl);
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(file: c_int, command: c_int, argument: *mut c_void) -> c_int {
            if !agent::hit_quietly() {
                $name::called();
            }
            let wait = agent::begin_wait(blocking_calls::control_probe(command), file as u64);
            // SAFETY: the caller's arguments, passed on.
            let result = unsafe { $name::call(file, command, argument) };
            wait.end(result as i64);
            descriptor::controlled(file, command, argument.addr(), result);
            result
        }
    )*};
}
controls! { fcntl fcntl64 __fcntl }

original!(fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int = Close);
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if !agent::count_quietly(Probe::Close) {
        close_range::called();
        agent::count_call(Probe::Close, first as u64);
    }
    // SAFETY: the caller's arguments, passed on.
    let result = unsafe { close_range::call(first, last, flags) };
    descriptor::forget_range(first, last);
    result
}

// What makes descriptors, and doubles of them. None of these blocks.
original!(fn pipe(files: *mut c_int) -> c_int);
original!(fn pipe2(files: *mut c_int, flags: c_int) -> c_int);
original!(fn eventfd(count: c_uint, flags: c_int) -> c_int);
original!(fn dup(file: c_int) -> c_int);
original!(fn dup2(file: c_int, double: c_int) -> c_int = Close);
original!(fn dup3(file: c_int, double: c_int, flags: c_int) -> c_int = Close);

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pipe(files: *mut c_int) -> c_int {
    agent::count(SystemCall::Control);
    // SAFETY: the caller's argument, passed on; after a success both descriptors are there.
    unsafe {
        let result = pipe::call(files);
        if result == 0 {
            descriptor::created_pipe([*files, *files.add(1)], 0);
        }
        result
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pipe2(files: *mut c_int, flags: c_int) -> c_int {
    agent::count(SystemCall::Control);
    // SAFETY: the caller's arguments, passed on; after a success both descriptors are there.
    unsafe {
        let result = pipe2::call(files, flags);
        if result == 0 {
            descriptor::created_pipe([*files, *files.add(1)], flags);
        }
        result
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn eventfd(count: c_uint, flags: c_int) -> c_int {
    agent::count(SystemCall::Control);
    // SAFETY: the caller's arguments, passed on.
    let file = unsafe { eventfd::call(count, flags) };
    descriptor::created_event(file);
    file
}

original!(fn signalfd(file: c_int, mask: *const sigset_t, flags: c_int) -> c_int);
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn signalfd(file: c_int, mask: *const sigset_t, flags: c_int) -> c_int {
    agent::count(SystemCall::Control);
    // SAFETY: the caller's arguments, passed on.
    let file = unsafe { signalfd::call(file, mask, flags) };
    descriptor::created_signals(file);
    file
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dup(file: c_int) -> c_int {
    agent::count(SystemCall::Control);
    // SAFETY: the caller's argument, passed on.
    let double = unsafe { dup::call(file) };
    descriptor::doubled(file, double);
    double
}

/// What makes a double with a number of the program's choice, closing what had it.
macro_rules! doubles {
    ($($name:ident($($flags:ident: $type:ty)?);)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(file: c_int, double: c_int $(, $flags: $type)?) -> c_int {
            agent::count(SystemCall::Control);
            let closes = file != double && descriptor::is_awaited(double);
            let wake = closes.then(|| descriptor::closes(double));
            // SAFETY: the caller's arguments, passed on.
            let result = unsafe { $name::call(file, double $(, $flags)?) };
            if result >= 0 {
                descriptor::doubled(file, double);
            }
            if let Some(wake) = wake {
                $name::called();
                wake.end(Probe::Close, double as u64);
            }
            result
        }
    )*};
}
doubles! {
    dup2();
    dup3(flags: c_int);
}

// libc's own calls in them pass no hook.
original!(fn eventfd_read(file: c_int, value: *mut u64) -> c_int = Read);
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn eventfd_read(file: c_int, value: *mut u64) -> c_int {
    if !agent::hit_quietly() {
        eventfd_read::called();
    }
    let awaited = descriptor::read(file).map(agent::written);
    let wait = agent::begin_wait_for(Probe::Read, file as u64, awaited);
    // SAFETY: the caller's arguments, passed on.
    let result = unsafe { eventfd_read::call(file, value) };
    // What `read` would have said.
    let bytes = if result == 0 { 8 } else { -1 };
    wait.end_moving(bytes, bytes);
    result
}

hooks! {
    wait fn eventfd_write(file: c_int, value: u64) -> c_int = Write(file) [writes file, moves a_number(value)];
}
