//! What the unwinder asks of the kernel.

use core::ffi::CStr;

use crate::platform::{self, Backing};

/// Reads this process' memory wherever it lies; false when it cannot be read. Costs a system call.
pub fn read_memory(address: u64, buffer: &mut [u8]) -> bool {
    platform::read_memory(platform::process_id(), address, buffer) == Ok(buffer.len())
}

/// Reads words of one page from anywhere in this process: how many could be read. The address is a
/// multiple of 8.
pub fn read_words(address: u64, words: &mut [u64]) -> usize {
    let in_page = (4096 - address % 4096) as usize / 8;
    let count = in_page.min(words.len());
    let words = &mut words[..count];
    // SAFETY: the bytes of initialized words; any bytes make valid words.
    let bytes = unsafe {
        core::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), size_of_val(words))
    };
    platform::read_memory(platform::process_id(), address, bytes).unwrap_or(0) / 8
}

/// Whether `read_memory` works here (user-mode emulators and seccomp filters refuse it).
pub fn can_read_memory() -> bool {
    let word = 0x5eed_u64;
    let mut copy = [0; 8];
    read_memory(&raw const word as u64, &mut copy) && u64::from_ne_bytes(copy) == word
}

/// Anonymous zeroed memory that is never given back; null when there is none.
pub fn map_memory(bytes: usize) -> *mut u8 {
    platform::map(bytes, Backing::Anonymous, 0).unwrap_or_default()
}

/// Maps a part of a file read-only; `offset` is a multiple of the page size. `None`: it cannot be
/// opened, is no regular file, or is shorter than that.
pub fn map_file(path: &CStr, offset: u64, bytes: usize) -> Option<*mut u8> {
    // A path may name anything by now: never block in a pipe or take a terminal.
    let flags = libc::O_RDONLY | libc::O_NOCTTY | libc::O_NONBLOCK;
    let end = offset.checked_add(bytes as u64)?;
    let file = platform::open(path, flags, 0).ok()?;
    let mapped = match platform::file_size_and_owner(file) {
        Ok((size, _)) if size >= end => {
            platform::map(bytes, Backing::PrivateReadOnly(file), offset as usize).ok()
        }
        _ => None,
    };
    platform::close(file);
    mapped
}
