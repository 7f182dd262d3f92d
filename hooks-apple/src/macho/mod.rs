//! Reads Mach-O images, to find the words ("slots") through which an image calls functions of others.
//!
//! All that is read is distrusted: offsets and counts are checked, and damage is an [`ImageError`]. Nothing
//! here knows addresses of the process, writes memory, or has unsafe code.
//!
//! - `format`: numbers of Apple's headers;
//! - [`Image`]: segments, sections and tables, by the load commands;
//! - [`Source`]: where the bytes come from, a file or the memory of a loaded image;
//! - `opcodes`, `chains`, `indirect`: three descriptions of slots; `find` chooses among them.
//!
//! # Which description
//!
//! | image | slots come from | complete? |
//! |---|---|---|
//! | `LC_DYLD_INFO` | bind opcodes, in `__LINKEDIT` of the loaded image | yes |
//! | `LC_DYLD_CHAINED_FIXUPS`, file at hand | the chains of the file | yes |
//! | `LC_DYLD_CHAINED_FIXUPS`, no file | the indirect symbol table of the loaded image | calls only |
//!
//! The chains of a loaded image are gone. The links are in the slots themselves, and dyld (or the kernel,
//! which links pages when they are first touched) has put pointers over them. The file still has them.
//!
//! The indirect symbol table names the slots of symbol pointer sections. These are all that calls use. It
//! does not name pointers in data, such as `static void (*release)(void *) = free`. A program may compare
//! such a pointer with `free` from its code, so both must be rebound, or none: a comparison would change its
//! result. That is why it is the last choice.
//!
//! Slots are not searched by value: a word that equals a function's address may be somebody's saved original.

mod chains;
mod find;
mod format;
mod image;
mod indirect;
mod opcodes;
mod reader;
mod slots;
mod source;

pub use chains::PointerFormat;
pub use find::slots;
pub use image::{Image, Section, Segment, commands_length};
pub use indirect::indirect_slots;
pub use slots::{Authentication, Key, Slot, SlotKind, Slots, Wanted};
pub use source::{InFile, InMemory, Memory, Slice, Source, slice_of_file};

/// Why an image's slots cannot be found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The first word is no magic number of a 64-bit little-endian image.
    #[error("no 64-bit Mach-O image: it begins with {0:#010x}")]
    Magic(u32),
    /// Something ends before it should.
    #[error("damaged image: {0} ends too early")]
    Short(&'static str),
    /// An offset, address or count points out of what it is for.
    #[error("damaged image: {what} has {value:#x}, which is out of range")]
    Range {
        /// What the number is of.
        what: &'static str,
        /// The number.
        value: u64,
    },
    /// There is more of something than an image can have.
    #[error("damaged image: too many of {0}")]
    Many(&'static str),
    /// A pointer format of fixup chains that user programs do not have.
    #[error(
        "fixup chains of pointer format {0} are not supported: only 64-bit formats of user programs are"
    )]
    PointerFormat(u16),
    /// A format of the table of imports.
    #[error("a table of imports of format {0} is not supported")]
    ImportsFormat(u32),
    /// Compressed names; Apple's linkers do not write them.
    #[error("compressed names of imports (format {0}) are not supported")]
    SymbolsFormat(u32),
    /// Fixup chains of another version.
    #[error("fixup chains of version {0} are not supported")]
    ChainsVersion(u32),
    /// A bind opcode that no 64-bit image of a user program has.
    #[error("bind opcode {0:#04x} is not supported; arm64e images before fixup chains have 0xd0")]
    Opcode(u8),
    /// The file is of another image than the one that is loaded.
    #[error("the file holds another image than the one that is loaded")]
    OtherFile,
    /// The file or memory cannot be read there.
    #[error("{what} at offset {offset:#x} cannot be read")]
    Unreadable {
        /// What is there.
        what: &'static str,
        /// In the file.
        offset: u64,
    },
}
