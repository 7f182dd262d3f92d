//! Files and pipes. `mod.rs` says what a line means.
//!
//! `open` and `openat` are variadic in C. Their mode is passed on whether the caller gave it or not. That is
//! right where variadic arguments lie as fixed ones do. On Apple's arm64 they lie on the stack, so there
//! these hooks are written by hand.

/// Files and pipes: what all platforms have.
#[macro_export]
macro_rules! posix_io {
    ($emit:ident) => {
        $emit! {
            wait fn read(file: c_int, buffer: *mut c_void, bytes: size_t) -> ssize_t = Read(file) [reads file] aka glibc [__read];
            wait fn pread(file: c_int, buffer: *mut c_void, bytes: size_t, offset: off_t) -> ssize_t = Read(file) [] aka linux [pread64] glibc [__pread64];
            wait fn readv(file: c_int, parts: *const iovec, count: c_int) -> ssize_t = Read(file) [reads file];
            wait fn preadv(file: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t = Read(file) [] aka linux [preadv64];
            wait fn write(file: c_int, buffer: *const c_void, bytes: size_t) -> ssize_t = Write(file) [writes file] aka glibc [__write];
            wait fn pwrite(file: c_int, buffer: *const c_void, bytes: size_t, offset: off_t) -> ssize_t = Write(file) [] aka linux [pwrite64] glibc [__pwrite64];
            wait fn writev(file: c_int, parts: *const iovec, count: c_int) -> ssize_t = Write(file) [writes file];
            wait fn pwritev(file: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t = Write(file) [] aka linux [pwritev64];
            wait fn tcdrain(file: c_int) -> c_int = Write(file) [];
            wait fn creat(path: *const c_char, mode: mode_t) -> c_int = Open(0) [opens] aka linux [creat64];
            wait fn close(file: c_int) -> c_int = Close(file) [closes file] aka glibc [__close];
            wait fn fsync(file: c_int) -> c_int = Fsync(file) [];
            wait fn fdatasync(file: c_int) -> c_int = Fsync(file) [];
            hit fn sync() -> () = Fsync(0) [];
            wait fn msync(address: *mut c_void, bytes: size_t, flags: c_int) -> c_int = Fsync(bytes) [];
            wait fn flock(file: c_int, operation: c_int) -> c_int = FileLock(file) [];
            wait fn lockf(file: c_int, command: c_int, bytes: off_t) -> c_int = FileLock(file) [] aka linux [lockf64];
            wait fn stat(path: *const c_char, status: *mut Stat) -> c_int = Stat(0) [] aka linux [stat64];
            wait fn lstat(path: *const c_char, status: *mut Stat) -> c_int = Stat(0) [] aka linux [lstat64];
            wait fn fstat(file: c_int, status: *mut Stat) -> c_int = Stat(file) [] aka linux [fstat64];
            wait fn fstatat(directory: c_int, path: *const c_char, status: *mut Stat, flags: c_int) -> c_int = Stat(directory) [] aka linux [fstatat64];
        }
    };
}

/// Files and pipes: what glibc and bionic have.
#[macro_export]
macro_rules! linux_io {
    ($emit:ident) => {
        $emit! {
            wait fn __read_chk(file: c_int, buffer: *mut c_void, bytes: size_t, room: size_t) -> ssize_t = Read(file) [reads file];
            wait fn __pread_chk(file: c_int, buffer: *mut c_void, bytes: size_t, offset: off_t, room: size_t) -> ssize_t = Read(file) [] aka linux [__pread64_chk];
            wait fn preadv2(file: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t = Read(file) [] aka linux [preadv64v2];
            wait fn pwritev2(file: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t = Write(file) [] aka linux [pwritev64v2];
            // Before Linux 6.18, tmpfs gives EINTR whatever SA_RESTART says.
            wait fn fallocate(file: c_int, mode: c_int, offset: off_t, bytes: off_t) -> c_int = Write(file) [] aka linux [fallocate64];
            wait fn posix_fallocate(file: c_int, offset: off_t, bytes: off_t) -> c_int = Write(file) [] aka linux [posix_fallocate64];
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
            wait fn syncfs(file: c_int) -> c_int = Fsync(file) [];
            wait fn sync_file_range(file: c_int, offset: loff_t, bytes: loff_t, flags: c_uint) -> c_int = Fsync(file) [];
            wait fn statx(directory: c_int, path: *const c_char, flags: c_int, mask: c_uint, status: *mut c_void) -> c_int = Stat(directory) [];
            wait fn eventfd_write(file: c_int, value: u64) -> c_int = Write(file) [writes file, moves a_number(value)];
        }
    };
}
