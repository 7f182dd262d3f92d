//! Addresses that files state, and where a file lies in a process, as types of their own.
//!
//! The rule: an address in a process is a plain number, as registers hold it (the field says avma, actual
//! virtual memory address). What a file states of itself is [`Svma`]. [`Bias`] turns one into the other. So
//! an address is not looked up in a file, or a file's address read from memory, without a bias. The number
//! inside is taken out only where a library that reads files takes it, and where it becomes a word of a
//! record or of the trace.

use core::fmt;

/// Stated virtual memory address: `p_vaddr` and `st_value` in ELF, `vmaddr` in Mach-O, the addresses of
/// DWARF. 0 stands for none, where that is said.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Svma(pub u64);

/// Where a file is loaded: what is added to its own addresses to get those of the process. Apple's slide.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bias(pub u64);

impl Svma {
    /// The address so many bytes later, or the last one that there is.
    #[inline(always)]
    pub const fn saturating_add(self, bytes: u64) -> Svma {
        Svma(self.0.saturating_add(bytes))
    }

    /// The address so many bytes before; wraps.
    #[inline(always)]
    pub const fn wrapping_sub(self, bytes: u64) -> Svma {
        Svma(self.0.wrapping_sub(bytes))
    }

    /// Bytes from `earlier` on; wraps.
    #[inline(always)]
    pub const fn bytes_since(self, earlier: Svma) -> u64 {
        self.0.wrapping_sub(earlier.0)
    }
}

impl Bias {
    /// Of a file whose address `stated` lies at `address`.
    #[inline(always)]
    pub const fn between(address: u64, stated: Svma) -> Bias {
        Bias(address.wrapping_sub(stated.0))
    }

    /// Where an address of the file lies in the process.
    #[inline(always)]
    pub const fn in_process(self, stated: Svma) -> u64 {
        self.0.wrapping_add(stated.0)
    }

    /// What the file calls an address of the process.
    #[inline(always)]
    pub const fn in_file(self, address: u64) -> Svma {
        Svma(address.wrapping_sub(self.0))
    }
}

/// The number alone.
impl fmt::LowerHex for Svma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}
