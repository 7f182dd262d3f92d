//! System calls elsewhere (Apple): through libc, which is not what is hooked there.

mod address_wait;
mod memory;

use super::{Backing, Errno, Usage};
use core::ffi::CStr;
use core::sync::atomic::AtomicU32;

use crate::ids::{Pid, Tid};

pub(crate) use memory::own_code;
pub use memory::{is_readable, read_memory, thread_stack};

fn last_error() -> Errno {
    Errno(
        std::io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO),
    )
}

/// Maps `length` bytes.
///
/// A shared or private file mapping may fault when the file is shorter than it.
pub fn map(length: usize, backing: Backing, offset: usize) -> Result<*mut u8, Errno> {
    let (protection, flags, fd) = match backing {
        Backing::Anonymous | Backing::Populated => (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANON,
            -1,
        ),
        Backing::SharedAnonymous => (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANON,
            -1,
        ),
        Backing::Shared(fd) => (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, fd),
        Backing::SharedReadOnly(fd) => (libc::PROT_READ, libc::MAP_SHARED, fd),
        Backing::PrivateReadOnly(fd) => (libc::PROT_READ, libc::MAP_PRIVATE, fd),
    };
    // SAFETY: the kernel chooses the address, so nothing that is mapped is replaced.
    let address = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            length,
            protection,
            flags,
            fd,
            offset as libc::off_t,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(last_error());
    }
    Ok(address.cast())
}

/// Bytes of a page: 16 KiB on arm64, 4 KiB on Intel.
pub fn page_bytes() -> usize {
    // SAFETY: reads a number that does not change.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(16_384)
}

/// Puts private zeros in the place of what [`map`] gave; pages that nobody writes to take no memory.
///
/// # Safety
/// Whoever uses the range must expect it to become zero at any moment.
pub unsafe fn map_zeros_over(address: *mut u8, length: usize) -> Result<(), Errno> {
    // SAFETY: promised by the caller.
    let mapped = unsafe {
        libc::mmap(
            address.cast(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    if mapped == libc::MAP_FAILED {
        return Err(last_error());
    }
    Ok(())
}

/// Maps what lies in a shared mapping once more: not possible here.
pub fn map_again(_page: *mut u8, _length: usize) -> Result<*mut u8, Errno> {
    Err(Errno(libc::ENOSYS))
}

/// Bytes of address space that the process may still take; `None`: there is no limit.
pub fn address_space_left() -> Option<u64> {
    None
}

/// Unmaps what [`map`] gave.
///
/// # Safety
/// Nothing may use the range any more.
pub unsafe fn unmap(address: *mut u8, length: usize) {
    // SAFETY: promised by the caller.
    unsafe { libc::munmap(address.cast(), length) };
}

/// Makes the kernel hand zeroed pages to forked children: `minherit(VM_INHERIT_NONE)` would leave
/// them unmapped instead, so this is refused.
///
/// # Safety
/// None needed: nothing is done.
pub unsafe fn wipe_on_fork(_address: *mut u8, _length: usize) -> Result<(), Errno> {
    Err(Errno(libc::ENOTSUP))
}

/// Opens a file; `flags` as for open(2), close-on-exec is added.
pub fn open(path: &CStr, flags: i32, mode: u32) -> Result<i32, Errno> {
    // SAFETY: the path is a C string.
    let fd = unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, mode) };
    if fd < 0 { Err(last_error()) } else { Ok(fd) }
}

/// Closes a descriptor.
pub fn close(fd: i32) {
    // SAFETY: touches no memory.
    unsafe { libc::close(fd) };
}

/// Reads at the file's position.
pub fn read(fd: i32, buffer: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: at most the buffer's length is written.
    let n = unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) };
    usize::try_from(n).map_err(|_| last_error())
}

/// Size and owner of an open regular file.
pub fn file_size_and_owner(fd: i32) -> Result<(u64, u32), Errno> {
    let mut status = core::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: fstat fills a `stat`.
    let status = unsafe {
        if libc::fstat(fd, status.as_mut_ptr()) != 0 {
            return Err(last_error());
        }
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
    if unsafe { libc::ftruncate(fd, length as libc::off_t) } != 0 {
        return Err(last_error());
    }
    Ok(())
}

/// Locks a file for this descriptor (flock(2)); somebody else's lock on it stays.
pub fn lock(fd: i32) {
    // SAFETY: touches no memory.
    unsafe { libc::flock(fd, libc::LOCK_EX | libc::LOCK_NB) };
}

/// Storage is given by the file system on demand here.
pub fn allocate(_fd: i32, _offset: u64, _length: u64) -> Result<(), Errno> {
    Ok(())
}

/// Not offered here: the caller clears the range instead.
pub fn punch_hole(_fd: i32, _offset: u64, _length: u64) -> Result<(), Errno> {
    Err(Errno(libc::ENOTSUP))
}

/// As [`punch_hole`].
///
/// # Safety
/// None here.
pub unsafe fn clear_shared(_memory: *mut u8, _length: usize) -> Result<(), Errno> {
    Err(Errno(libc::ENOTSUP))
}

/// The target of a symbolic link, without a NUL; the part that fits.
pub fn read_link<'a>(path: &CStr, buffer: &'a mut [u8]) -> Result<&'a [u8], Errno> {
    // SAFETY: at most the buffer's length is written.
    let n = unsafe { libc::readlink(path.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) };
    let n = usize::try_from(n).map_err(|_| last_error())?;
    Ok(buffer.get(..n).unwrap_or(&[]))
}

/// The path that was given to exec: not known here.
pub fn started_as() -> &'static [u8] {
    &[]
}

/// Effective user id.
pub fn effective_user() -> u32 {
    // SAFETY: cannot fail.
    unsafe { libc::geteuid() }
}

/// Process id.
pub fn process_id() -> u32 {
    // SAFETY: cannot fail.
    unsafe { libc::getpid() as u32 }
}

/// Parent's process id.
pub fn parent_process_id() -> u32 {
    // SAFETY: cannot fail.
    unsafe { libc::getppid() as u32 }
}

/// Thread id as the kernel numbers it.
pub fn thread_id() -> u32 {
    let mut id = 0u64;
    // SAFETY: with a null thread the caller's own id is written.
    unsafe { libc::pthread_threadid_np(0, &mut id) };
    id as u32
}

/// Gives the processor away.
pub fn yield_now() {
    // SAFETY: touches no memory.
    unsafe { libc::sched_yield() };
}

/// Threads are suspended here, not signalled.
pub fn signal_thread(_process: Pid, _thread: Tid, _signal: i32) -> Result<(), Errno> {
    Err(Errno(libc::ENOTSUP))
}

/// Threads are suspended here, not signalled: no asymmetric barrier is needed.
pub fn accept_barriers() -> bool {
    false
}

/// As [`accept_barriers`].
pub fn barrier_everywhere() -> bool {
    false
}

/// Threads are suspended here, not signalled.
pub fn blocked_signals() -> u64 {
    0
}

/// Signals are not held back here.
#[derive(Debug)]
#[must_use]
pub struct HeldSignals;

/// Does nothing.
pub fn hold_signals(_mask: u64) -> Option<HeldSignals> {
    Some(HeldSignals)
}

impl HeldSignals {
    /// There is nothing to change.
    pub fn change(&mut self, _mask: u64) {}

    /// Signals that were blocked before: none is known.
    pub fn before(&self) -> u64 {
        0
    }

    /// Does nothing.
    pub fn release(self) {}
}

/// As above.
pub fn block_signals(_mask: u64) {}

/// Captures run where they stand here.
///
/// # Safety
/// `function` may be called with `argument`.
pub unsafe fn call_on(
    _top: *mut u8,
    function: unsafe extern "C-unwind" fn(*mut core::ffi::c_void),
    argument: *mut core::ffi::c_void,
) {
    // SAFETY: by contract.
    unsafe { function(argument) }
}

/// There is no guard here.
///
/// # Safety
/// Nothing may use the range any more.
pub unsafe fn forbid(_address: *mut u8, _length: usize) {}

/// No signals are sent here.
pub fn signal_handler(_signal: u32) -> u64 {
    0
}

/// No signals are sent here.
pub fn absorb_signal(_set: u64, _sender: u32) {}

/// Wakes up to `count` waiters on a word in memory that may be shared: one, or all.
pub fn wake(word: &AtomicU32, count: u32) {
    address_wait::wake(word, count);
}

/// Sleeps while the word holds `value`, at most `timeout_ns`. Returns for any reason.
pub fn wait(word: &AtomicU32, value: u32, timeout_ns: Option<u64>) {
    address_wait::wait(word, value, timeout_ns);
}

/// Asks the dynamic linker for all that is needed later. It takes locks: not for hooks.
pub fn prepare() {
    address_wait::prepare(|name| {
        // SAFETY: a name.
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.expose_provenance()
    });
    memory::prepare();
}

/// A clock in nanoseconds; 0 when there is no such clock.
pub fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: fills the timespec.
    if unsafe { libc::clock_gettime(clock, &mut time) } != 0 {
        return 0;
    }
    (time.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.tv_nsec as u64)
}

/// CPU time of the calling thread in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Faults and switches are not kept per thread here.
pub fn thread_usage() -> Option<Usage> {
    Some(Usage::default())
}

/// Process id of a forked child.
pub fn forked_process_id() -> u32 {
    process_id()
}

/// Loads that fail where they would fault: no handler is there that catches faults.
pub mod fault_guard {
    /// Nobody installs one.
    pub fn want() {}

    /// There is none.
    #[derive(Debug)]
    #[must_use]
    pub struct FaultGuard;

    impl FaultGuard {
        /// Never begins.
        pub fn begin(_blocked: u64, _sp: usize) -> Option<FaultGuard> {
            None
        }

        /// Does nothing.
        pub fn end(self) {}
    }

    /// Nothing is loaded.
    ///
    /// # Safety
    /// As a [`FaultGuard`] lives, which is never.
    pub unsafe fn load(_address: u64) -> Option<u64> {
        None
    }
}

/// Fills at most 256 bytes with random ones.
///
/// # Errors
/// The system gives none.
pub fn random(to: &mut [u8]) -> Result<(), Errno> {
    // SAFETY: writes so many bytes there.
    match unsafe { libc::getentropy(to.as_mut_ptr().cast(), to.len()) } {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

/// Filters of system calls: an app has none that it could meet.
pub mod sandbox {
    /// Nothing is filtered.
    pub fn baseline() -> u32 {
        0
    }
}

/// The calling thread's name, NUL padded.
pub fn thread_name() -> Option<[u8; 16]> {
    let mut name = [0u8; 16];
    // SAFETY: at most 16 bytes are written, the last of them NUL.
    unsafe { libc::pthread_getname_np(libc::pthread_self(), name.as_mut_ptr().cast(), 16) };
    Some(name)
}

/// Removes a file's name.
pub fn remove(path: &CStr) {
    // SAFETY: the path is a C string.
    unsafe { libc::unlink(path.as_ptr()) };
}
