//! What differs between platforms: system calls, clocks, memory, waiting and waking.
//!
//! On Linux and Android system calls are made directly, because libc's wrappers are what we hook.
//! Everything here may be called from hooks and signal handlers: nothing allocates or locks.

#[cfg(any(target_os = "linux", target_os = "android"))]
mod linux;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub use linux::*;

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod apple;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub use apple::*;

#[cfg(not(loom))]
pub mod agent_memory;
pub mod filter;
pub mod rseq;

/// An `errno` value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl core::fmt::Display for Errno {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(&std::io::Error::from_raw_os_error(self.0), f)
    }
}

impl core::error::Error for Errno {}

/// A signal's bit in a set, as the kernel has them: 1 is bit 0. No signal: 0.
pub fn signal_bit(signal: u32) -> u64 {
    match signal {
        1..=64 => 1 << (signal - 1),
        _ => 0,
    }
}

/// Whether so many bytes, at most a page, can be read. Costs two system calls: for what a program gives to
/// calls that may fail with EFAULT, where a moment later is soon enough.
pub fn can_read(address: usize, bytes: usize) -> bool {
    let Some(last) = bytes.checked_sub(1) else {
        return true;
    };
    [address, address.saturating_add(last)]
        .into_iter()
        .all(|address| is_readable(address as u64 & !7))
}

/// Page faults and context switches of a thread so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Page faults that needed no I/O.
    pub minor_faults: u64,
    /// Page faults that waited for I/O.
    pub major_faults: u64,
    /// Switches because the thread waited.
    pub voluntary_switches: u64,
    /// Switches because the scheduler took the processor away.
    pub involuntary_switches: u64,
}

/// How memory is mapped by [`map`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Private zeroed memory.
    Anonymous,
    /// Private zeroed memory whose pages exist from the start.
    Populated,
    /// Zeroed memory that forked children share, and that can be mapped once more (`map_again`).
    SharedAnonymous,
    /// The file behind a descriptor, shared, readable and writable.
    Shared(i32),
    /// The file behind a descriptor, shared, only readable.
    SharedReadOnly(i32),
    /// The file behind a descriptor, private, only readable.
    PrivateReadOnly(i32),
}
