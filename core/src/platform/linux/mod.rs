//! System calls on Linux and Android.

mod apps_filter;
pub mod blocking_calls;
pub mod descriptor;
pub mod fault_guard;
#[cfg_attr(target_arch = "aarch64", path = "raw_aarch64.rs")]
#[cfg_attr(target_arch = "x86_64", path = "raw_x86_64.rs")]
mod raw;
#[cfg(not(loom))]
pub mod sandbox;
mod signals;
mod virtual_memory;

use super::{Backing, Errno, Usage};
use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicU32, Ordering};

pub use apps_filter::{apps_may_call, set_api_level};
pub use raw::call_on;
pub use signals::*;
pub use virtual_memory::*;

#[cfg(loom)]
mod sandbox {
    #[derive(Debug)]
    pub(super) struct UnderWay;
    impl UnderWay {
        pub(super) fn begin() -> UnderWay {
            UnderWay
        }
        pub(super) fn end(self) {}
    }
    pub(super) fn allows(_: i64, _: &[usize; 6]) -> bool {
        true
    }
}

/// Makes a system call, unless a filter of the program might not allow it; the kernel's own result: −4095..0
/// is an errno.
///
/// # Safety
/// As the system call says.
#[inline(always)]
unsafe fn syscall(number: i64, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    // SAFETY: passed on.
    unsafe { syscall_of_words(a, b, c, d, e, f, number) }
}

/// Apart from its callers, and with its arguments in registers: hooks have little of the program's stack.
#[inline(never)]
unsafe fn syscall_of_words(
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
    number: i64,
) -> isize {
    let under_way = sandbox::UnderWay::begin();
    let arguments = [a, b, c, d, e, f];
    let result = match sandbox::allows(number, &arguments) {
        // SAFETY: passed on.
        true => unsafe { raw::syscall(number, arguments) },
        false => -(REFUSED.0 as isize),
    };
    under_way.end();
    result
}

/// What a call fails with that is not made.
const REFUSED: Errno = Errno(libc::EPERM);

/// Whether the agent may make this system call.
pub fn allows(number: i64, a: [usize; 6]) -> bool {
    sandbox::allows(number, &a)
}

/// The kernel's result as a `Result`.
fn check(result: isize) -> Result<usize, Errno> {
    if (-4095..0).contains(&result) {
        Err(Errno(-result as i32))
    } else {
        Ok(result as usize)
    }
}

/// # Safety
/// As the system call says.
pub(super) unsafe fn call(number: i64, a: [usize; 6]) -> Result<usize, Errno> {
    // SAFETY: passed on.
    check(unsafe { syscall(number, a) })
}

/// Opens a file; `flags` as for open(2), close-on-exec is added.
pub fn open(path: &CStr, flags: i32, mode: u32) -> Result<i32, Errno> {
    // SAFETY: the path is a C string; opening touches no memory of ours.
    let fd = unsafe {
        call(
            libc::SYS_openat,
            [
                libc::AT_FDCWD as usize,
                path.as_ptr() as usize,
                (flags | libc::O_CLOEXEC) as usize,
                mode as usize,
                0,
                0,
            ],
        )?
    };
    Ok(fd as i32)
}

/// Closes a descriptor.
pub fn close(fd: i32) {
    // SAFETY: touches no memory.
    let _ = unsafe { call(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) };
}

/// Reads at the file's position.
pub fn read(fd: i32, buffer: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: the kernel writes at most the buffer's length.
    unsafe {
        call(
            libc::SYS_read,
            [
                fd as usize,
                buffer.as_mut_ptr() as usize,
                buffer.len(),
                0,
                0,
                0,
            ],
        )
    }
}

/// Fills the buffer from an offset of a file; false: not all of it is there.
pub fn read_at(fd: i32, buffer: &mut [u8], offset: u64) -> bool {
    let (address, bytes) = (buffer.as_mut_ptr() as usize, buffer.len());
    // SAFETY: the kernel writes at most the buffer's length.
    let read = unsafe {
        call(
            libc::SYS_pread64,
            [fd as usize, address, bytes, offset as usize, 0, 0],
        )
    };
    read == Ok(bytes)
}

/// Numbers that libc does not define for every target.
#[cfg_attr(loom, allow(dead_code, reason = "sandboxes are not modelled"))]
pub(crate) mod number {
    /// include/uapi/asm-generic/unistd.h.
    #[cfg(target_arch = "aarch64")]
    pub(crate) const FSTAT: libc::c_long = 80;
    #[cfg(target_arch = "aarch64")]
    pub(crate) const FTRUNCATE: libc::c_long = 46;
    #[cfg(target_arch = "aarch64")]
    pub(crate) const NEWFSTATAT: libc::c_long = 79;
    #[cfg(not(target_arch = "aarch64"))]
    pub(crate) const FSTAT: libc::c_long = libc::SYS_fstat;
    #[cfg(not(target_arch = "aarch64"))]
    pub(crate) const FTRUNCATE: libc::c_long = libc::SYS_ftruncate;
    #[cfg(not(target_arch = "aarch64"))]
    pub(crate) const NEWFSTATAT: libc::c_long = libc::SYS_newfstatat;
}

/// include/uapi/linux/resource.h; libc lacks it for Android.
pub const RUSAGE_THREAD: usize = 1;

/// Size and owner of an open regular file.
pub fn file_size_and_owner(fd: i32) -> Result<(u64, u32), Errno> {
    let mut status = core::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: fstat fills a `stat`, which libc declares as the kernel's on 64-bit Linux.
    let status = unsafe {
        call(
            number::FSTAT,
            [fd as usize, status.as_mut_ptr() as usize, 0, 0, 0, 0],
        )?;
        status.assume_init()
    };
    if status.st_mode & libc::S_IFMT != libc::S_IFREG {
        return Err(Errno(libc::EINVAL));
    }
    Ok((status.st_size as u64, status.st_uid))
}

/// Sets a file's length.
pub fn set_length(fd: i32, length: u64) -> Result<(), Errno> {
    // SAFETY: touches no memory.
    unsafe {
        call(
            number::FTRUNCATE,
            [fd as usize, length as usize, 0, 0, 0, 0],
        )?;
    }
    Ok(())
}

/// Locks a file for this descriptor (flock(2)); somebody else's lock on it stays.
pub fn lock(fd: i32) {
    let how = (libc::LOCK_EX | libc::LOCK_NB) as usize;
    // SAFETY: touches no memory.
    let _ = unsafe { call(libc::SYS_flock, [fd as usize, how, 0, 0, 0, 0]) };
}

/// Gives a part of a file its storage, so that touching its mapping cannot fail.
pub fn allocate(fd: i32, offset: u64, length: u64) -> Result<(), Errno> {
    // SAFETY: touches no memory.
    unsafe {
        call(
            libc::SYS_fallocate,
            [fd as usize, 0, offset as usize, length as usize, 0, 0],
        )?;
    }
    Ok(())
}

/// Takes the storage of a part of a file away; it reads as zeros.
pub fn punch_hole(fd: i32, offset: u64, length: u64) -> Result<(), Errno> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: touches no memory of the caller other than the shared file, which it asks for.
    unsafe {
        call(
            libc::SYS_fallocate,
            [
                fd as usize,
                mode as usize,
                offset as usize,
                length as usize,
                0,
                0,
            ],
        )?;
    }
    Ok(())
}

/// The target of a symbolic link, without a NUL; the part that fits.
pub fn read_link<'a>(path: &CStr, buffer: &'a mut [u8]) -> Result<&'a [u8], Errno> {
    // SAFETY: the kernel writes at most the buffer's length.
    let length = unsafe {
        call(
            libc::SYS_readlinkat,
            [
                libc::AT_FDCWD as usize,
                path.as_ptr() as usize,
                buffer.as_mut_ptr() as usize,
                buffer.len(),
                0,
                0,
            ],
        )?
    };
    Ok(buffer.get(..length).unwrap_or(&[]))
}

/// The path that was given to exec, without a NUL; empty when the kernel does not say.
pub fn started_as() -> &'static [u8] {
    // SAFETY: reads what the kernel put on the initial stack.
    let path = unsafe { libc::getauxval(libc::AT_EXECFN) } as usize;
    if path == 0 {
        return &[];
    }
    // SAFETY: the kernel's string on the initial stack, which is there as long as the process.
    unsafe { CStr::from_ptr(core::ptr::with_exposed_provenance(path)) }.to_bytes()
}

/// Effective user id; where that may not be asked, the one with which the program began.
pub fn effective_user() -> u32 {
    // SAFETY: touches no memory; the auxiliary vector is there always.
    unsafe {
        let user = call(libc::SYS_geteuid, [0; 6]);
        user.map_or_else(
            |_| libc::getauxval(libc::AT_EUID) as u32,
            |user| user as u32,
        )
    }
}

/// The last answer of [`process_id`].
static PROCESS_ID: AtomicU32 = AtomicU32::new(0);

/// Process id; where it may not be asked for, the last that was known.
pub fn process_id() -> u32 {
    // SAFETY: touches no memory.
    match unsafe { call(libc::SYS_getpid, [0; 6]) } {
        Ok(pid) => {
            if PROCESS_ID.load(Ordering::Relaxed) != pid as u32 {
                PROCESS_ID.store(pid as u32, Ordering::Relaxed);
            }
            pid as u32
        }
        Err(_) => PROCESS_ID.load(Ordering::Relaxed),
    }
}

/// Process id of a forked child, whose only thread asks; 0: not known.
pub fn forked_process_id() -> u32 {
    if allows(libc::SYS_getpid, [0; 6]) {
        return process_id();
    }
    let pid = thread_id();
    PROCESS_ID.store(pid, Ordering::Relaxed);
    pid
}

/// Parent's process id; 0: not known.
pub fn parent_process_id() -> u32 {
    // SAFETY: touches no memory.
    unsafe { call(libc::SYS_getppid, [0; 6]) }.map_or(0, |pid| pid as u32)
}

/// Thread id as the kernel numbers it; 0: not known.
pub fn thread_id() -> u32 {
    // SAFETY: touches no memory.
    match unsafe { call(libc::SYS_gettid, [0; 6]) } {
        Ok(tid) => tid as u32,
        Err(_) if TID_IN_MEMORY.load(Ordering::Relaxed) != 0 => own_tid_in_memory(),
        Err(_) => 0,
    }
}

/// Where the tid stands in what a `pthread_t` points to: glibc's `struct pthread` (nptl/descr.h, 64-bit ABIs
/// since 2.4).
#[cfg(target_arch = "x86_64")]
pub const TID_OFFSET: usize = 720;
/// The same on AArch64.
#[cfg(target_arch = "aarch64")]
pub const TID_OFFSET: usize = 208;

/// 1: the calling thread's tid has been seen to stand where [`own_tid_in_memory`] reads it.
static TID_IN_MEMORY: AtomicU32 = AtomicU32::new(0);

/// The first thread of an image finds out whether libc keeps threads' ids where they are read when they may
/// not be asked for. `pid`: as /proc has it, 0: not known; believed where it may not be asked for, either.
pub fn look_for_ids(pid: u32) {
    PROCESS_ID.store(pid, Ordering::Relaxed);
    let own = match thread_id() {
        0 => pid,
        tid => tid,
    };
    TID_IN_MEMORY.store((own_tid_in_memory() == own).into(), Ordering::Relaxed);
}

/// What stands where glibc keeps the calling thread's id; without a system call. Elsewhere it means something
/// else.
#[cfg(target_env = "gnu")]
pub fn own_tid_in_memory() -> u32 {
    // SAFETY: the calling thread's descriptor is longer than that.
    unsafe {
        let descriptor = libc::pthread_self() as usize;
        core::ptr::with_exposed_provenance::<u32>(descriptor + TID_OFFSET).read()
    }
}

/// Not known.
#[cfg(not(target_env = "gnu"))]
pub fn own_tid_in_memory() -> u32 {
    0
}

/// A moment that is spent without the kernel, where it may not be asked for one.
fn spin() {
    for _ in 0..1000 {
        core::hint::spin_loop();
    }
}

/// Gives the processor away; pending signals are delivered on the way.
pub fn yield_now() {
    // SAFETY: touches no memory.
    if unsafe { call(libc::SYS_sched_yield, [0; 6]) }.is_err() {
        spin();
    }
}

/// Commands of membarrier(2), Linux 4.16: include/uapi/linux/membarrier.h.
mod membarrier {
    pub(super) const GLOBAL_EXPEDITED: usize = 1 << 1;
    pub(super) const REGISTER_GLOBAL_EXPEDITED: usize = 1 << 2;
}

/// Lets [`barrier_everywhere`] of other processes reach this one, and its forked children. False where
/// the kernel knows no such thing. With more than one thread it takes milliseconds.
pub fn accept_barriers() -> bool {
    let command = membarrier::REGISTER_GLOBAL_EXPEDITED;
    // SAFETY: touches no memory.
    apps_may_call(libc::SYS_membarrier)
        && unsafe { syscall(libc::SYS_membarrier, [command, 0, 0, 0, 0, 0]) == 0 }
}

/// A full memory barrier on every processor that runs a process which accepts them. False where the
/// kernel knows no such thing. Costs microseconds, also those that are interrupted.
pub fn barrier_everywhere() -> bool {
    let command = membarrier::GLOBAL_EXPEDITED;
    // SAFETY: touches no memory.
    apps_may_call(libc::SYS_membarrier)
        && unsafe { syscall(libc::SYS_membarrier, [command, 0, 0, 0, 0, 0]) == 0 }
}

/// Whether the calling process may write at this address, a multiple of 4; what stands there stays as it is.
/// `None`: the kernel does not say.
pub fn is_writable(address: usize) -> Option<bool> {
    /// Adds 0 to the second word, in one step whatever others do with it (futex(2), FUTEX_OP_ADD). Nobody
    /// waits on either.
    const ADD_NOTHING: usize = 1 << 28;
    let unused = AtomicU32::new(0);
    let operation = (libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG) as usize;
    let first = (&raw const unused).addr();
    let arguments = [first, operation, 0, 0, address, ADD_NOTHING];
    // SAFETY: changes nothing, and a bad address is an error.
    match unsafe { call(libc::SYS_futex, arguments) } {
        Ok(_) => Some(true),
        Err(Errno(libc::EFAULT)) => Some(false),
        Err(_) => None,
    }
}

/// Wakes up to `count` waiters on a word in shared memory.
pub fn wake(word: &AtomicU32, count: u32) {
    // SAFETY: the kernel only uses the word's address.
    unsafe {
        syscall(
            libc::SYS_futex,
            [
                word.as_ptr() as usize,
                libc::FUTEX_WAKE as usize,
                count as usize,
                0,
                0,
                0,
            ],
        )
    };
}

/// Sleeps while the shared word holds `value`, at most `timeout_ns`. Returns for any reason.
pub fn wait(word: &AtomicU32, value: u32, timeout_ns: Option<u64>) {
    let timeout = timeout_ns.map(|ns| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as _,
        tv_nsec: (ns % 1_000_000_000) as _,
    });
    let timeout = timeout.as_ref().map_or(0, |t| &raw const *t as usize);
    // SAFETY: the kernel reads the word and the timeout, both alive during the call.
    let waited = unsafe {
        call(
            libc::SYS_futex,
            [
                word.as_ptr() as usize,
                libc::FUTEX_WAIT as usize,
                value as usize,
                timeout,
                0,
                0,
            ],
        )
    };
    if waited == Err(REFUSED) {
        spin();
    }
}

/// A clock in nanoseconds, by system call; 0 when there is no such clock.
pub fn clock_ns(clock: i32) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel fills the timespec.
    let result = unsafe {
        syscall(
            libc::SYS_clock_gettime,
            [clock as usize, &raw mut time as usize, 0, 0, 0, 0],
        )
    };
    if result != 0 {
        return 0;
    }
    (time.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.tv_nsec as u64)
}

/// CPU time of the calling thread in nanoseconds; 0: not known.
pub fn thread_cpu_ns() -> u64 {
    match clock_ns(libc::CLOCK_THREAD_CPUTIME_ID) {
        0 => {
            usage_of(RUSAGE_THREAD).map_or(0, |usage| in_ns(usage.ru_utime) + in_ns(usage.ru_stime))
        }
        ns => ns,
    }
}

fn in_ns(time: libc::timeval) -> u64 {
    (time.tv_sec as u64 * 1_000_000).wrapping_add(time.tv_usec as u64) * 1000
}

/// What the kernel has counted of the calling thread. `None`: refused.
fn usage_of(who: usize) -> Option<libc::rusage> {
    let mut usage = core::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: getrusage fills a `rusage`, for which zeros are valid.
    unsafe {
        let to = usage.as_mut_ptr() as usize;
        call(libc::SYS_getrusage, [who, to, 0, 0, 0, 0]).ok()?;
        Some(usage.assume_init())
    }
}

/// CPU time of the calling thread in the kernel, ns, as far as the kernel knows it: where it counts by its
/// tick, that is a sample. 0: refused.
pub fn thread_kernel_ns() -> u64 {
    usage_of(RUSAGE_THREAD).map_or(0, |usage| in_ns(usage.ru_stime))
}

/// Faults and switches of the calling thread. `None`: refused.
pub fn thread_usage() -> Option<Usage> {
    let usage = usage_of(RUSAGE_THREAD)?;
    Some(Usage {
        minor_faults: usage.ru_minflt as u64,
        major_faults: usage.ru_majflt as u64,
        voluntary_switches: usage.ru_nvcsw as u64,
        involuntary_switches: usage.ru_nivcsw as u64,
    })
}

/// Whether the eight bytes at an address can be read. Costs a system call, a tenth of what `read_memory`
/// takes.
///
/// `rt_sigprocmask` reads the new mask before it looks at what to do with it, which is nothing that exists
/// (kernel/signal.c).
pub fn is_readable(address: u64) -> bool {
    const NO_SUCH_WAY: usize = i32::MAX as usize;

    // SAFETY: the kernel reads eight bytes at the address, if it can, and changes nothing.
    let result = unsafe {
        call(
            libc::SYS_rt_sigprocmask,
            [NO_SUCH_WAY, address as usize, 0, 8, 0, 0],
        )
    };
    result == Err(Errno(libc::EINVAL))
}

/// Copies memory of a process, as much of it as is readable from the start. Never faults.
pub fn read_memory(process: u32, address: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
    let local = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast::<c_void>(),
        iov_len: buffer.len(),
    };
    let remote = libc::iovec {
        iov_base: core::ptr::without_provenance_mut(address as usize),
        iov_len: buffer.len(),
    };
    // SAFETY: the kernel writes into the buffer only; the remote range is checked by it.
    unsafe {
        call(
            libc::SYS_process_vm_readv,
            [
                process as usize,
                &raw const local as usize,
                1,
                &raw const remote as usize,
                1,
                0,
            ],
        )
    }
}

/// Fills at most 256 bytes with random ones.
///
/// # Errors
/// The system has none yet, or does not give any.
pub fn random(to: &mut [u8]) -> Result<(), Errno> {
    // SAFETY: writes at most so many bytes there.
    let got = unsafe {
        call(
            libc::SYS_getrandom,
            [to.as_mut_ptr().expose_provenance(), to.len(), 0, 0, 0, 0],
        )?
    };
    match got == to.len() {
        true => Ok(()),
        false => Err(Errno(libc::EAGAIN)),
    }
}

/// The calling thread's name (`comm`), NUL padded. `None`: refused.
pub fn thread_name() -> Option<[u8; 16]> {
    let mut name = [0u8; 16];
    // SAFETY: PR_GET_NAME writes 16 bytes.
    unsafe {
        call(
            libc::SYS_prctl,
            [
                libc::PR_GET_NAME as usize,
                name.as_mut_ptr() as usize,
                0,
                0,
                0,
                0,
            ],
        )
        .ok()?;
    }
    Some(name)
}

/// Removes a file's name.
pub fn remove(path: &CStr) {
    // SAFETY: the path is a C string.
    unsafe {
        syscall(
            libc::SYS_unlinkat,
            [libc::AT_FDCWD as usize, path.as_ptr() as usize, 0, 0, 0, 0],
        )
    };
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_as_large_as_the_kernel_says() {
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("is read");
        let said = maps
            .lines()
            .find_map(|line| line.strip_prefix("KernelPageSize:"));
        let said = said.map(|kib| kib.trim().trim_end_matches(" kB").parse());
        assert_eq!(said, Some(Ok(page_bytes() / 1024)));
    }

    #[test]
    fn nothing_is_mapped_where_the_program_has_unmapped_something() {
        const BYTES: usize = 64 << 10;
        for _ in 0..20 {
            // SAFETY: a mapping of the test's own.
            let gone = unsafe {
                let (read_write, flags) = (
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                );
                let at = libc::mmap(core::ptr::null_mut(), BYTES, read_write, flags, -1, 0);
                libc::munmap(at, BYTES);
                at.addr()
            };
            let ours = map(BYTES, Backing::Anonymous, 0).expect("mapped").addr();
            assert!(ours.abs_diff(gone) >= BYTES, "{ours:#x} {gone:#x}");
        }
    }
}
