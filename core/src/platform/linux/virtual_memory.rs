//! Memory, by pages: mapping it, giving it back, and how much room there is.

use super::{Backing, Errno, call, close, open, read};
use core::sync::atomic::{AtomicUsize, Ordering};

/// Maps `length` bytes.
///
/// A shared or private file mapping may fault when the file is shorter than it.
pub fn map(length: usize, backing: Backing, offset: usize) -> Result<*mut u8, Errno> {
    let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let (protection, flags, fd) = match backing {
        Backing::Anonymous => (libc::PROT_READ | libc::PROT_WRITE, anonymous, -1),
        Backing::Populated => (
            libc::PROT_READ | libc::PROT_WRITE,
            anonymous | libc::MAP_POPULATE,
            -1,
        ),
        Backing::SharedAnonymous => (
            libc::PROT_READ | libc::PROT_WRITE,
            // As a file that has holes: what is not written takes nothing.
            libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
        ),
        Backing::Shared(fd) => (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, fd),
        Backing::SharedReadOnly(fd) => (libc::PROT_READ, libc::MAP_SHARED, fd),
        Backing::PrivateReadOnly(fd) => (libc::PROT_READ, libc::MAP_PRIVATE, fd),
    };
    // SAFETY: without MAP_FIXED nothing that is mapped is replaced.
    let address = unsafe {
        call(
            libc::SYS_mmap,
            [
                place_for(length),
                length,
                protection as usize,
                flags as usize,
                fd as usize,
                offset,
            ],
        )?
    };
    Ok(core::ptr::with_exposed_provenance_mut(address))
}

/// Bytes of a page: 4096 on x86-64, up to 65536 on aarch64. libc has it from the kernel at the start and
/// makes no system call, so signal handlers may ask.
pub fn page_bytes() -> usize {
    // SAFETY: reads a list that does not change.
    let bytes = unsafe { libc::getauxval(libc::AT_PAGESZ) } as usize;
    if bytes.is_power_of_two() { bytes } else { 4096 }
}

/// Where the kernel is asked to map so many bytes: far below the libraries. Otherwise it takes what the
/// program has unmapped a moment ago, which some look at (mincore), and what the program maps lies elsewhere
/// than without us.
fn place_for(length: usize) -> usize {
    const BELOW: usize = 16 << 30;
    const ROOM: usize = 8 << 30;
    static USED: AtomicUsize = AtomicUsize::new(0);

    let page = page_bytes();
    let here = (&raw const USED).addr() & !(page - 1);
    let used = USED.fetch_add(length.next_multiple_of(page), Ordering::Relaxed) % ROOM;
    here.checked_sub(BELOW).map_or(0, |low| low + used)
}

/// Puts private zeros in the place of what [`map`] gave; pages that nobody writes to take no memory.
///
/// # Safety
/// Whoever uses the range must expect it to become zero at any moment.
pub unsafe fn map_zeros_over(address: *mut u8, length: usize) -> Result<(), Errno> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: promised by the caller.
    unsafe {
        call(
            libc::SYS_mmap,
            [
                address.expose_provenance(),
                length,
                (libc::PROT_READ | libc::PROT_WRITE) as usize,
                flags as usize,
                usize::MAX,
                0,
            ],
        )
    }
    .map(|_| ())
}

/// Maps `length` bytes of the file behind a shared mapping once more, from the place on that is mapped at
/// `page`; they may reach beyond what is mapped there (mremap(2), "if the value of old_size is zero").
pub fn map_again(page: *mut u8, length: usize) -> Result<*mut u8, Errno> {
    /// include/uapi/linux/mman.h; libc lacks it for Android.
    const MREMAP_MAYMOVE: usize = 1;
    let from = page.expose_provenance();
    // SAFETY: nothing is unmapped or replaced: the old size is 0 and the kernel chooses the new address.
    let address = unsafe { call(libc::SYS_mremap, [from, 0, length, MREMAP_MAYMOVE, 0, 0]) }?;
    Ok(core::ptr::with_exposed_provenance_mut(address))
}

/// Takes the memory of a part of a shared anonymous mapping away; it reads as zeros.
///
/// # Safety
/// The pages are such a mapping's, and for who uses them zeros are valid.
pub unsafe fn clear_shared(memory: *mut u8, length: usize) -> Result<(), Errno> {
    let (address, advice) = (memory.expose_provenance(), libc::MADV_REMOVE as usize);
    // SAFETY: by contract.
    unsafe { call(libc::SYS_madvise, [address, length, advice, 0, 0, 0]) }.map(drop)
}

/// Bytes of address space that the process may still take; `None`: there is no limit.
pub fn address_space_left() -> Option<u64> {
    let mut limit = libc::rlimit64 {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel writes one `rlimit64`.
    let asked = unsafe {
        call(
            libc::SYS_prlimit64,
            [
                0,
                libc::RLIMIT_AS as usize,
                0,
                (&raw mut limit).expose_provenance(),
                0,
                0,
            ],
        )
    };
    if asked.is_err() || limit.rlim_cur == u64::MAX {
        return None;
    }
    let mut text = [0; 64];
    let length = open(c"/proc/self/statm", libc::O_RDONLY, 0).and_then(|fd| {
        let length = read(fd, &mut text);
        close(fd);
        length
    });
    // The first number: pages.
    let digits = text.iter().take(length.unwrap_or(0));
    let digits = digits.take_while(|byte| byte.is_ascii_digit());
    let pages = digits.fold(0u64, |pages, digit| {
        pages
            .saturating_mul(10)
            .saturating_add((digit - b'0').into())
    });
    Some(
        limit
            .rlim_cur
            .saturating_sub(pages.saturating_mul(page_bytes() as u64)),
    )
}

/// Unmaps what [`map`] gave.
///
/// # Safety
/// Nothing may use the range any more.
pub unsafe fn unmap(address: *mut u8, length: usize) {
    // SAFETY: promised by the caller.
    let _ = unsafe {
        call(
            libc::SYS_munmap,
            [address.expose_provenance(), length, 0, 0, 0, 0],
        )
    };
}

/// Takes all access to pages away, so that what runs into them faults.
///
/// # Safety
/// Nothing may use the range any more.
pub unsafe fn forbid(address: *mut u8, length: usize) {
    let protection = libc::PROT_NONE as usize;
    // SAFETY: promised by the caller.
    let _ = unsafe {
        call(
            libc::SYS_mprotect,
            [address.expose_provenance(), length, protection, 0, 0, 0],
        )
    };
}

/// Makes the kernel hand zeroed pages of a private mapping to forked children (Linux 4.14).
///
/// # Safety
/// The pages must belong to the caller, who must expect them zeroed after a fork.
pub unsafe fn wipe_on_fork(address: *mut u8, length: usize) -> Result<(), Errno> {
    // SAFETY: promised by the caller.
    unsafe {
        call(
            libc::SYS_madvise,
            [
                address.expose_provenance(),
                length,
                libc::MADV_WIPEONFORK as usize,
                0,
                0,
                0,
            ],
        )?;
    }
    Ok(())
}
