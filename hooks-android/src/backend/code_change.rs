//! Changing the code of the own process.

use core::ffi::c_void;
use core::ptr;
use core::slice;
use core::sync::atomic::{AtomicU64, Ordering};

use super::own_code::regions;

/// Replaces code. Where all bytes that differ are in one aligned word, other threads see the old code or the
/// new one, never a mixture: the word is stored at once. A thread that stands between two of the replaced
/// instructions at that moment goes on in the middle of the new ones; nothing here can know that.
///
/// The pages are writable and executable meanwhile, because other threads may be in them, and get their
/// protection back.
///
/// # Safety
///
/// The new bytes are code that may be run from its first instruction.
pub(super) unsafe fn write(address: usize, new: &[u8]) -> Result<(), i32> {
    // SAFETY: the caller gives code.
    let old: &[u8] =
        unsafe { slice::from_raw_parts(ptr::with_exposed_provenance(address), new.len()) };
    let Some(first) = (0..new.len()).find(|&i| old[i] != new[i]) else {
        return Ok(());
    };
    let last = (0..new.len()).rfind(|&i| old[i] != new[i]).unwrap_or(first);
    let (begin, bytes) = (address + first, &new[first..=last]);
    // SAFETY: a question.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let from = begin & !(page - 1);
    let to = (begin + bytes.len()).next_multiple_of(page);
    let before = regions(from, to - from);
    let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    protect(from, to, all)?;
    // SAFETY: writable now.
    unsafe { store(begin, bytes) };
    let closed = before
        .iter()
        .map(|r| protect(r.begin.max(from), r.end.min(to), r.protection));
    let closed: Result<Vec<()>, i32> = closed.collect();
    // SAFETY: the code that was written.
    unsafe { flush(begin, bytes.len()) };
    closed.map(|_| ())
}

fn protect(from: usize, to: usize, protection: i32) -> Result<(), i32> {
    let address: *mut c_void = ptr::with_exposed_provenance_mut(from);
    // SAFETY: pages of code, which keep being executable.
    let done = unsafe { libc::mprotect(address, to - from, protection) };
    match done {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EACCES)),
    }
}

/// # Safety
///
/// The memory is writable.
unsafe fn store(begin: usize, bytes: &[u8]) {
    let word = begin & !7;
    if begin + bytes.len() <= word + 8 {
        // SAFETY: aligned, within one page that is writable.
        let place = unsafe { AtomicU64::from_ptr(ptr::with_exposed_provenance_mut(word)) };
        let mut value = place.load(Ordering::Relaxed).to_ne_bytes();
        value[begin - word..][..bytes.len()].copy_from_slice(bytes);
        place.store(u64::from_ne_bytes(value), Ordering::SeqCst);
        return;
    }
    // The first word goes last: until then the function begins as it did.
    let head = (word + 8 - begin).min(bytes.len());
    // SAFETY: as the caller says.
    unsafe {
        let tail: *mut u8 = ptr::with_exposed_provenance_mut(begin + head);
        ptr::copy_nonoverlapping(bytes[head..].as_ptr(), tail, bytes.len() - head);
        core::sync::atomic::fence(Ordering::SeqCst);
        store(begin, &bytes[..head]);
    }
}

/// x86 keeps its instruction cache coherent.
///
/// # Safety
///
/// None.
#[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
unsafe fn flush(_: usize, _: usize) {}

/// Makes other processors fetch what was written.
///
/// # Safety
///
/// The range is mapped.
#[cfg(not(any(target_arch = "x86_64", target_arch = "x86")))]
unsafe fn flush(begin: usize, bytes: usize) {
    unsafe extern "C" {
        /// Of the compiler's runtime library.
        fn __clear_cache(begin: *mut c_void, end: *mut c_void);
    }
    // SAFETY: as the caller says.
    unsafe {
        __clear_cache(
            ptr::with_exposed_provenance_mut(begin),
            ptr::with_exposed_provenance_mut(begin + bytes),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::own_code::read;
    use super::*;

    /// Bytes that differ on both sides of a page's end, and pages of two protections.
    #[test]
    fn what_lies_across_two_pages_is_changed_and_protected_as_before() {
        // SAFETY: new memory.
        let begin = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let all = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(ptr::null_mut(), 8192, all, flags, -1, 0)
        }
        .expose_provenance();
        let code = libc::PROT_READ | libc::PROT_EXEC;
        protect(begin, begin + 4096, code).unwrap();
        protect(begin + 4096, begin + 8192, libc::PROT_READ).unwrap();
        let new: Vec<u8> = (1..=20).collect();
        // SAFETY: memory of the test, which nobody executes.
        let read_back = unsafe {
            write(begin + 4090, &new).unwrap();
            read(begin + 4090, 20)
        };
        assert_eq!(read_back, new);
        let protections: Vec<_> = regions(begin, 8192).iter().map(|r| r.protection).collect();
        assert_eq!(protections, [code, libc::PROT_READ]);
    }

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        let zero = ptr::from_ref(&0u8).expose_provenance();
        // SAFETY: nothing differs, so nothing is written.
        assert_eq!(unsafe { write(zero, &[0]) }, Ok(()));
        assert_eq!(protect(0, 4096, libc::PROT_READ), Err(libc::ENOMEM));
    }
}
