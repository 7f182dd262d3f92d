//! Reads memory that may not be there: a runtime's structures, found by following pointers that may be stale.

use crate::platform::{self, fault_guard};

/// What the kernel copies at a time: a page's part, so that all of it is there or nothing.
const BLOCK_BYTES: usize = 256;

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

/// Reads of this process' memory by loads, whose faults a handler catches (`platform::fault_guard`).
#[derive(Debug)]
pub struct Guarded {
    guard: fault_guard::FaultGuard,
}

impl Guarded {
    /// Begins, if faults are caught; the arguments are those of [`fault_guard::FaultGuard::begin`].
    #[inline]
    pub fn begin(blocked: u64, sp: usize) -> Option<Guarded> {
        let guard = fault_guard::FaultGuard::begin(blocked, sp)?;
        Some(Guarded { guard })
    }

    /// Ends it.
    #[inline]
    pub fn end(self) {
        self.guard.end();
    }
}

impl Memory for Guarded {
    #[inline]
    fn word(&mut self, address: u64) -> Option<u64> {
        if !address.is_multiple_of(8) {
            return None;
        }
        // SAFETY: the guard lives, and is this thread's: it never leaves the search that began it.
        unsafe { fault_guard::load(address) }
    }
}

/// Reads of this process' memory that the kernel copies, a block at a time and each block once: about 1 µs a
/// block, where a load takes a nanosecond. It keeps that many blocks. All-zero is a valid one that has none.
#[derive(Debug)]
#[repr(C)]
pub struct Copied<const BLOCKS: usize> {
    /// By the low bits of its number: the block's number plus 1; 0: none.
    numbers: [u64; BLOCKS],
    blocks: [[u8; BLOCK_BYTES]; BLOCKS],
}

impl<const BLOCKS: usize> Copied<BLOCKS> {
    /// Has no block.
    pub const fn new() -> Self {
        Copied {
            numbers: [0; BLOCKS],
            blocks: [[0; BLOCK_BYTES]; BLOCKS],
        }
    }

    /// Forgets the blocks: what is read from now on is what is there now.
    pub fn forget(&mut self) {
        self.numbers = [0; BLOCKS];
    }
}

impl<const BLOCKS: usize> Default for Copied<BLOCKS> {
    fn default() -> Self {
        Copied::new()
    }
}

impl<const BLOCKS: usize> Memory for Copied<BLOCKS> {
    fn word(&mut self, address: u64) -> Option<u64> {
        if !address.is_multiple_of(8) {
            return None;
        }
        let number = address / BLOCK_BYTES as u64;
        let place = number as usize % BLOCKS;
        let (held, block) = (self.numbers.get_mut(place)?, self.blocks.get_mut(place)?);
        if *held != number + 1 {
            *held = 0;
            let start = number * BLOCK_BYTES as u64;
            if platform::read_memory(platform::process_id(), start, block) != Ok(BLOCK_BYTES) {
                return None;
            }
            *held = number + 1;
        }
        let (words, _) = block.as_chunks::<8>();
        let word = words.get(address as usize % BLOCK_BYTES / 8)?;
        Some(u64::from_le_bytes(*word))
    }
}

/// Reads of this process' memory in one search.
#[derive(Debug)]
pub enum Own<'a> {
    /// By loads.
    Guarded(Guarded),
    /// By the kernel, where faults are not caught.
    Copied(&'a mut Copied<64>),
}

impl Own<'_> {
    /// Ends the search.
    pub fn end(self) {
        if let Own::Guarded(guarded) = self {
            guarded.end();
        }
    }
}

impl Memory for Own<'_> {
    #[inline]
    fn word(&mut self, address: u64) -> Option<u64> {
        match self {
            Own::Guarded(guarded) => guarded.word(address),
            Own::Copied(copied) => copied.word(address),
        }
    }
}

#[cfg(all(test, target_os = "linux", not(miri), not(loom)))]
mod tests {
    use super::*;
    use crate::platform::fault_guard::tests::catch_faults;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::vec::Vec;

    const PAGE: u64 = 4096;
    const FILLED: u64 = 0x5a5a_5a5a_5a5a_5a5a;

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

    /// Runs a check with each way to read.
    fn with_each(mut check: impl FnMut(&mut dyn FnMut() -> Own<'static>)) {
        catch_faults();
        check(&mut || Own::Guarded(Guarded::begin(0, 0).expect("faults are caught")));
        let mut byte = [0];
        let own = (&raw const byte).addr() as u64;
        if platform::read_memory(platform::process_id(), own, &mut byte)
            == Err(platform::Errno(libc::ENOSYS))
        {
            // An emulator may not have the call.
            return;
        }
        check(&mut || Own::Copied(std::boxed::Box::leak(std::boxed::Box::default())));
    }

    #[test]
    fn what_is_not_there_is_not_read() {
        with_each(|begin| {
            let base = pages_with_holes();
            let mut memory = begin();
            for (page, is_there) in [true, false, false, true].into_iter().enumerate() {
                for offset in [0, 8, 4088] {
                    let address = base + page as u64 * PAGE + offset;
                    let word = is_there.then_some(FILLED);
                    assert_eq!(memory.word(address), word, "page {page} + {offset}");
                    assert_eq!(memory.byte(address + 3), word.map(|_| 0x5a));
                }
            }
            let mut across = [0; 16];
            assert!(!memory.bytes(base + 4088, &mut across));
            assert!(memory.bytes(base + 4001, &mut across));
            assert_eq!(across, [0x5a; 16]);
            for wild in [0, 8, 4095, 1 << 47, u64::MAX - 7, 0x1000_0000_0000_0000] {
                assert_eq!(memory.word(wild), None, "{wild:#x}");
            }
            memory.end();
            let mut memory = begin();
            // SAFETY: the last page of the mapping above.
            unsafe { libc::munmap((base + 3 * PAGE) as *mut _, 1 << 12) };
            assert_eq!(memory.word(base + 3 * PAGE), None);
            memory.end();
        });
    }

    /// Whatever pointer leads wherever, reading it does no harm, also while other threads map and unmap what
    /// it leads to.
    #[test]
    fn random_addresses_do_no_harm_while_pages_come_and_go() {
        const PAGES: u64 = 16;

        with_each(|begin| {
            // SAFETY: a new mapping of this test's, whose pages only the thread below changes.
            let base = unsafe {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                let bytes = (PAGES * PAGE) as usize;
                let base = libc::mmap(core::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0);
                base.expose_provenance() as u64
            };
            let stop = AtomicBool::new(false);
            let (mut there, mut gone) = (0u64, 0u64);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut i = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let page = (base + i * 7 % PAGES * PAGE) as *mut libc::c_void;
                        let protection = if i % 3 == 0 { libc::PROT_READ } else { 0 };
                        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
                        // SAFETY: inside the mapping of above.
                        unsafe { libc::mmap(page, PAGE as usize, protection, flags, -1, 0) };
                        i += 1;
                    }
                });
                let mut state = 0x9e37_79b9_7f4a_7c15u64;
                let mut random = || {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    state
                };
                let mut memory = begin();
                for i in 0..200_000 {
                    let address = match i % 4 {
                        0 => random(),
                        1 => random() >> 17,
                        _ => base + ((random() % (PAGES * PAGE)) & !7),
                    };
                    if i % 64 == 0 {
                        memory.end();
                        memory = begin();
                    }
                    let is_there = memory.word(address).is_some();
                    if i % 4 > 1 {
                        *if is_there { &mut there } else { &mut gone } += 1;
                    }
                }
                memory.end();
                stop.store(true, Ordering::Relaxed);
            });
            assert!(there > 100 && gone > 100, "{there} {gone}");
        });
    }

    /// A page of a file that is cut meanwhile: SIGBUS.
    #[test]
    fn pages_behind_the_end_of_a_file_are_not_read() {
        with_each(|begin| {
            // SAFETY: a file and a mapping of this test's.
            unsafe {
                let file = libc::memfd_create(c"cut".as_ptr(), 0);
                assert_eq!(libc::ftruncate(file, 2 * PAGE as i64), 0);
                let flags = libc::MAP_SHARED;
                let bytes = 2 * PAGE as usize;
                let base = libc::mmap(
                    core::ptr::null_mut(),
                    bytes,
                    libc::PROT_READ,
                    flags,
                    file,
                    0,
                );
                let base = base.expose_provenance() as u64;
                let mut memory = begin();
                assert_eq!(memory.word(base + PAGE), Some(0));
                memory.end();
                assert_eq!(libc::ftruncate(file, PAGE as i64), 0);
                let mut memory = begin();
                let words: Vec<_> = [0, PAGE - 8, PAGE].map(|at| memory.word(base + at)).into();
                memory.end();
                assert_eq!(words, [Some(0), Some(0), None]);
                libc::close(file);
                libc::munmap(base as *mut _, bytes);
            }
        });
    }
}
