//! Files and pipes.
//!
//! `open`, `openat` and `fcntl` are variadic in C; their optional argument is an integer or a pointer,
//! which every supported ABI passes like a fixed one, so it is passed on whether the caller gave it or
//! not.

use core::ffi::{c_char, c_int, c_uint, c_void};
use libc::{iovec, loff_t, mode_t, off_t, size_t, ssize_t, stat as Stat};
use stackbeat_core::agent;
use stackbeat_core::probe::Probe;

hooks! {
    wait fn read(file: c_int, buffer: *mut c_void, bytes: size_t) -> ssize_t = Read, file;
    wait fn __read(file: c_int, buffer: *mut c_void, bytes: size_t) -> ssize_t = Read, file;
    wait fn __read_chk(file: c_int, buffer: *mut c_void, bytes: size_t, room: size_t) -> ssize_t = Read, file;
    wait fn pread(file: c_int, buffer: *mut c_void, bytes: size_t, offset: off_t) -> ssize_t = Read, file;
    wait fn pread64(file: c_int, buffer: *mut c_void, bytes: size_t, offset: off_t) -> ssize_t = Read, file;
    wait fn __pread64(file: c_int, buffer: *mut c_void, bytes: size_t, offset: off_t) -> ssize_t = Read, file;
    wait fn __pread_chk(file: c_int, buffer: *mut c_void, bytes: size_t, offset: off_t, room: size_t) -> ssize_t = Read, file;
    wait fn __pread64_chk(file: c_int, buffer: *mut c_void, bytes: size_t, offset: off_t, room: size_t) -> ssize_t = Read, file;
    wait fn readv(file: c_int, parts: *const iovec, count: c_int) -> ssize_t = Read, file;
    wait fn preadv(file: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t = Read, file;
    wait fn preadv64(file: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t = Read, file;
    wait fn preadv2(file: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t = Read, file;
    wait fn preadv64v2(file: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t = Read, file;

    wait fn write(file: c_int, buffer: *const c_void, bytes: size_t) -> ssize_t = Write, file;
    wait fn __write(file: c_int, buffer: *const c_void, bytes: size_t) -> ssize_t = Write, file;
    wait fn pwrite(file: c_int, buffer: *const c_void, bytes: size_t, offset: off_t) -> ssize_t = Write, file;
    wait fn pwrite64(file: c_int, buffer: *const c_void, bytes: size_t, offset: off_t) -> ssize_t = Write, file;
    wait fn __pwrite64(file: c_int, buffer: *const c_void, bytes: size_t, offset: off_t) -> ssize_t = Write, file;
    wait fn writev(file: c_int, parts: *const iovec, count: c_int) -> ssize_t = Write, file;
    wait fn pwritev(file: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t = Write, file;
    wait fn pwritev64(file: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t = Write, file;
    wait fn pwritev2(file: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t = Write, file;
    wait fn pwritev64v2(file: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t = Write, file;

    // Before Linux 6.18, tmpfs gives EINTR whatever SA_RESTART says.
    wait fn fallocate(file: c_int, mode: c_int, offset: off_t, bytes: off_t) -> c_int = Write, file;
    wait fn fallocate64(file: c_int, mode: c_int, offset: off_t, bytes: off_t) -> c_int = Write, file;
    wait fn posix_fallocate(file: c_int, offset: off_t, bytes: off_t) -> c_int = Write, file;
    wait fn posix_fallocate64(file: c_int, offset: off_t, bytes: off_t) -> c_int = Write, file;
    wait fn tcdrain(file: c_int) -> c_int = Write, file;
    // Gives fewer bytes when a signal comes, from a page on.
    wait fn getrandom(buffer: *mut c_void, bytes: size_t, flags: c_uint) -> ssize_t = Read, bytes;

    wait fn sendfile(out: c_int, file: c_int, offset: *mut off_t, bytes: size_t) -> ssize_t = Sendfile, file;
    wait fn sendfile64(out: c_int, file: c_int, offset: *mut off_t, bytes: size_t) -> ssize_t = Sendfile, file;
    wait fn copy_file_range(file: c_int, offset: *mut loff_t, out: c_int, out_offset: *mut loff_t, bytes: size_t, flags: c_uint) -> ssize_t = Sendfile, file;
    wait fn splice(file: c_int, offset: *mut loff_t, out: c_int, out_offset: *mut loff_t, bytes: size_t, flags: c_uint) -> ssize_t = Splice, file;
    wait fn tee(file: c_int, out: c_int, bytes: size_t, flags: c_uint) -> ssize_t = Splice, file;
    wait fn vmsplice(file: c_int, parts: *const iovec, count: size_t, flags: c_uint) -> ssize_t = Splice, file;

    wait fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int = Open, 0;
    wait fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int = Open, 0;
    wait fn __open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int = Open, 0;
    wait fn __open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int = Open, 0;
    wait fn __open_2(path: *const c_char, flags: c_int) -> c_int = Open, 0;
    wait fn __open64_2(path: *const c_char, flags: c_int) -> c_int = Open, 0;
    wait fn openat(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int = Open, 0;
    wait fn openat64(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int = Open, 0;
    wait fn __openat_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int = Open, 0;
    wait fn __openat64_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int = Open, 0;
    wait fn creat(path: *const c_char, mode: mode_t) -> c_int = Open, 0;
    wait fn creat64(path: *const c_char, mode: mode_t) -> c_int = Open, 0;
    wait fn close(file: c_int) -> c_int = Close, file;
    wait fn __close(file: c_int) -> c_int = Close, file;
    hit fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int = Close, first;

    wait fn fsync(file: c_int) -> c_int = Fsync, file;
    wait fn fdatasync(file: c_int) -> c_int = Fsync, file;
    wait fn syncfs(file: c_int) -> c_int = Fsync, file;
    hit fn sync() -> () = Fsync, 0;
    wait fn sync_file_range(file: c_int, offset: loff_t, bytes: loff_t, flags: c_uint) -> c_int = Fsync, file;
    wait fn msync(address: *mut c_void, bytes: size_t, flags: c_int) -> c_int = Fsync, bytes;

    wait fn fcntl(file: c_int, command: c_int, argument: *mut c_void) -> c_int = Fcntl, file;
    wait fn fcntl64(file: c_int, command: c_int, argument: *mut c_void) -> c_int = Fcntl, file;
    wait fn __fcntl(file: c_int, command: c_int, argument: *mut c_void) -> c_int = Fcntl, file;
    wait fn flock(file: c_int, operation: c_int) -> c_int = FileLock, file;
    wait fn lockf(file: c_int, command: c_int, bytes: off_t) -> c_int = FileLock, file;
    wait fn lockf64(file: c_int, command: c_int, bytes: off_t) -> c_int = FileLock, file;

    wait fn stat(path: *const c_char, status: *mut Stat) -> c_int = Stat, 0;
    wait fn stat64(path: *const c_char, status: *mut Stat) -> c_int = Stat, 0;
    wait fn lstat(path: *const c_char, status: *mut Stat) -> c_int = Stat, 0;
    wait fn lstat64(path: *const c_char, status: *mut Stat) -> c_int = Stat, 0;
    wait fn fstat(file: c_int, status: *mut Stat) -> c_int = Stat, file;
    wait fn fstat64(file: c_int, status: *mut Stat) -> c_int = Stat, file;
    wait fn fstatat(directory: c_int, path: *const c_char, status: *mut Stat, flags: c_int) -> c_int = Stat, directory;
    wait fn fstatat64(directory: c_int, path: *const c_char, status: *mut Stat, flags: c_int) -> c_int = Stat, directory;
    wait fn statx(directory: c_int, path: *const c_char, flags: c_int, mask: c_uint, status: *mut c_void) -> c_int = Stat, directory;
}

// What programs linked against glibc before 2.33 call.
hooks! {
    wait fn __xstat(version: c_int, path: *const c_char, status: *mut Stat) -> c_int = Stat, 0;
    wait fn __xstat64(version: c_int, path: *const c_char, status: *mut Stat) -> c_int = Stat, 0;
    wait fn __lxstat(version: c_int, path: *const c_char, status: *mut Stat) -> c_int = Stat, 0;
    wait fn __lxstat64(version: c_int, path: *const c_char, status: *mut Stat) -> c_int = Stat, 0;
    wait fn __fxstat(version: c_int, file: c_int, status: *mut Stat) -> c_int = Stat, file;
    wait fn __fxstat64(version: c_int, file: c_int, status: *mut Stat) -> c_int = Stat, file;
    wait fn __fxstatat(version: c_int, directory: c_int, path: *const c_char, status: *mut Stat, flags: c_int) -> c_int = Stat, directory;
    wait fn __fxstatat64(version: c_int, directory: c_int, path: *const c_char, status: *mut Stat, flags: c_int) -> c_int = Stat, directory;
}
