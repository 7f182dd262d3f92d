//! Reads memory that may not be there: a runtime's structures, found by following pointers that may be stale.

use crate::platform;

/// Pages that one capture remembers as readable.
const KNOWN: usize = 64;
const PAGE_BITS: u32 = 12;
/// Addresses of programs end below this (x86-64 and aarch64 with 48 bits).
const HIGHEST: u64 = 1 << 47;

/// Reads a process' memory.
pub trait Memory {
    /// The aligned word at an address; `None`: it cannot be read, or is not aligned.
    fn word(&mut self, address: u64) -> Option<u64>;

    /// The aligned 32 bits at an address.
    #[inline]
    fn half(&mut self, address: u64) -> Option<u32> {
        let word = self.word(address & !7)?;
        match address & 7 {
            0 => Some(word as u32),
            4 => Some((word >> 32) as u32),
            _ => None,
        }
    }

    /// The byte at an address.
    #[inline]
    fn byte(&mut self, address: u64) -> Option<u8> {
        let word = self.word(address & !7)?;
        Some((word >> (8 * (address & 7))) as u8)
    }

    /// Fills the buffer; false: some of it cannot be read.
    fn bytes(&mut self, address: u64, buffer: &mut [u8]) -> bool {
        let mut at = address;
        let mut rest = buffer;
        while !rest.is_empty() {
            let Some(word) = self.word(at & !7) else {
                return false;
            };
            let skip = (at & 7) as usize;
            let count = (8 - skip).min(rest.len());
            rest[..count].copy_from_slice(&word.to_le_bytes()[skip..skip + count]);
            rest = &mut rest[count..];
            at += count as u64;
        }
        true
    }
}

/// Reads of this process' memory during one capture. All-zero is a valid one that knows no page.
///
/// The kernel is asked once for each page whether it can be read (`platform::is_readable`), and then it is read
/// directly. So the memory must not be unmapped within one capture. What a thread's own frames lead to is freed by
/// that thread, which stands still, or by the one that ends the interpreter. A pointer that is stale at that moment may
/// lead elsewhere: if another thread unmaps that page between question and read, the read faults.
///
/// # Signal safety
/// Takes no lock, allocates nothing.
#[derive(Debug)]
#[repr(C)]
pub struct Pages {
    /// Page numbers, each in the place that its low bits say; 0: none.
    known: [u64; KNOWN],
}

impl Pages {
    /// Knows no page.
    pub const fn new() -> Pages {
        Pages { known: [0; KNOWN] }
    }

    /// Forgets which pages can be read. To be called when a capture begins.
    pub fn forget(&mut self) {
        self.known = [0; KNOWN];
    }

    #[inline]
    fn is_readable(&mut self, address: u64) -> bool {
        let page = address >> PAGE_BITS;
        let place = &mut self.known[page as usize % KNOWN];
        if *place == page && page != 0 {
            return true;
        }
        if page == 0 || address >= HIGHEST || !platform::is_readable(address & !7) {
            return false;
        }
        *place = page;
        true
    }
}

/// Reads of this process' memory that no other thread can make fail: the kernel copies each word, about 1 µs.
#[derive(Debug)]
pub struct Copied;

impl Memory for Copied {
    fn word(&mut self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        let read = platform::read_memory(platform::process_id(), address, &mut bytes);
        (address.is_multiple_of(8) && read == Ok(8)).then(|| u64::from_le_bytes(bytes))
    }
}

impl Default for Pages {
    fn default() -> Self {
        Pages::new()
    }
}

impl Memory for Pages {
    #[inline]
    fn word(&mut self, address: u64) -> Option<u64> {
        if !address.is_multiple_of(8) || !self.is_readable(address) {
            return None;
        }
        let place = core::ptr::with_exposed_provenance::<u64>(address as usize);
        // SAFETY: aligned, and its page can be read. Volatile: another thread may write there, and any value will do.
        Some(unsafe { place.read_volatile() })
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Four pages, of which the second cannot be read and the third is not there.
    fn pages_with_holes() -> u64 {
        // SAFETY: a new mapping, of which only parts are taken away.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let base = libc::mmap(core::ptr::null_mut(), 4 << 12, protection, flags, -1, 0);
            assert_ne!(base, libc::MAP_FAILED);
            base.cast::<u8>().write_bytes(0x5a, 4 << 12);
            assert_eq!(libc::mprotect(base.byte_add(1 << 12), 1 << 12, 0), 0);
            assert_eq!(libc::munmap(base.byte_add(2 << 12), 1 << 12), 0);
            base.expose_provenance() as u64
        }
    }

    #[test]
    fn what_is_not_there_is_not_read() {
        let base = pages_with_holes();
        let mut pages = Pages::new();
        for (page, is_there) in [true, false, false, true].into_iter().enumerate() {
            for offset in [0, 8, 4088] {
                let address = base + ((page as u64) << 12) + offset;
                let word = is_there.then_some(0x5a5a_5a5a_5a5a_5a5a);
                assert_eq!(pages.word(address), word, "page {page} + {offset}");
                assert_eq!(pages.byte(address + 3), word.map(|_| 0x5a));
            }
        }
        let mut across = [0; 16];
        assert!(!pages.bytes(base + 4088, &mut across));
        assert!(pages.bytes(base + 4001, &mut across));
        assert_eq!(across, [0x5a; 16]);
        for wild in [0, 8, 4095, 1 << 47, u64::MAX - 7, 0x1000_0000_0000_0000] {
            assert_eq!(pages.word(wild), None, "{wild:#x}");
        }
        pages.forget();
        // SAFETY: the last page of the mapping above.
        unsafe { libc::munmap((base + (3 << 12)) as *mut _, 1 << 12) };
        assert_eq!(pages.word(base + (3 << 12)), None);
    }

    /// Whatever pointer leads wherever, reading it does no harm, also in a signal's handler and nested in one.
    #[test]
    fn random_addresses_do_no_harm() {
        let base = pages_with_holes();
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut found = Vec::new();
        let mut pages = Pages::new();
        for i in 0..200_000 {
            let address = match i % 4 {
                0 => random(),
                1 => random() >> 17,
                2 => base + random() % (5 << 12) - 2048,
                _ => (&raw const found as u64).wrapping_add(random() % (1 << 24)),
            };
            if i % 64 == 0 {
                pages.forget();
            }
            if pages.word(address).is_some() {
                found.push(address);
            }
        }
        assert!(found.iter().any(|at| at >> 12 == base >> 12));
        let hole = |at: &u64| (base + (1 << 12)..base + (3 << 12)).contains(at);
        // Another test of this process may have mapped something to the hole of the third page.
        assert!(
            found
                .iter()
                .filter(|at| hole(at))
                .all(|at| *at >= base + (2 << 12))
        );
    }
}
