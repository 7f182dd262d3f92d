//! Numbers of Apple's headers. `tests/headers.rs` compares them with the headers themselves.
//!
//! Source: `mach-o/loader.h`, `mach/machine.h`, `mach/vm_prot.h` (xnu) and `mach-o/fixup-chains.h` (dyld
//! 1378).

pub(super) const MH_MAGIC_64: u32 = 0xfeed_facf;
pub(super) const MH_DYLIB_IN_CACHE: u32 = 0x8000_0000;
pub(super) const FAT_MAGIC: u32 = 0xcafe_babe;
pub(super) const FAT_MAGIC_64: u32 = 0xcafe_babf;

/// `struct mach_header_64`.
pub(super) const HEADER_BYTES: usize = 32;
/// `struct section_64`.
pub(super) const SECTION_BYTES: usize = 80;
/// `struct nlist_64`.
pub(super) const NLIST_BYTES: u64 = 16;

pub(super) const CPU_TYPE_ARM64: u32 = 0x0100_000c;
pub(super) const CPU_SUBTYPE_MASK: u32 = 0xff00_0000;
pub(super) const CPU_SUBTYPE_ARM64E: u32 = 2;
pub(super) const CPU_SUBTYPE_ARM64E_X1: u32 = 12;

pub(super) const LC_REQ_DYLD: u32 = 0x8000_0000;
pub(super) const LC_SYMTAB: u32 = 0x2;
pub(super) const LC_DYSYMTAB: u32 = 0xb;
pub(super) const LC_LOAD_DYLIB: u32 = 0xc;
pub(super) const LC_LOAD_WEAK_DYLIB: u32 = 0x18 | LC_REQ_DYLD;
pub(super) const LC_SEGMENT_64: u32 = 0x19;
pub(super) const LC_UUID: u32 = 0x1b;
pub(super) const LC_REEXPORT_DYLIB: u32 = 0x1f | LC_REQ_DYLD;
pub(super) const LC_LAZY_LOAD_DYLIB: u32 = 0x20;
pub(super) const LC_DYLD_INFO: u32 = 0x22;
pub(super) const LC_LOAD_UPWARD_DYLIB: u32 = 0x23 | LC_REQ_DYLD;
pub(super) const LC_DYLD_CHAINED_FIXUPS: u32 = 0x34 | LC_REQ_DYLD;

pub(super) const VM_PROT_WRITE: u32 = 2;
pub(super) const SG_READ_ONLY: u32 = 0x10;
pub(super) const SECTION_TYPE: u32 = 0xff;
pub(super) const S_NON_LAZY_SYMBOL_POINTERS: u32 = 0x6;
pub(super) const S_LAZY_SYMBOL_POINTERS: u32 = 0x7;
pub(super) const INDIRECT_SYMBOL_LOCAL: u32 = 0x8000_0000;
pub(super) const INDIRECT_SYMBOL_ABS: u32 = 0x4000_0000;

pub(super) const BIND_TYPE_POINTER: u8 = 1;
pub(super) const BIND_OPCODE_DONE: u8 = 0x00;
pub(super) const BIND_OPCODE_SET_DYLIB_ORDINAL_IMM: u8 = 0x10;
pub(super) const BIND_OPCODE_SET_DYLIB_ORDINAL_ULEB: u8 = 0x20;
pub(super) const BIND_OPCODE_SET_DYLIB_SPECIAL_IMM: u8 = 0x30;
pub(super) const BIND_OPCODE_SET_SYMBOL_TRAILING_FLAGS_IMM: u8 = 0x40;
pub(super) const BIND_OPCODE_SET_TYPE_IMM: u8 = 0x50;
pub(super) const BIND_OPCODE_SET_ADDEND_SLEB: u8 = 0x60;
pub(super) const BIND_OPCODE_SET_SEGMENT_AND_OFFSET_ULEB: u8 = 0x70;
pub(super) const BIND_OPCODE_ADD_ADDR_ULEB: u8 = 0x80;
pub(super) const BIND_OPCODE_DO_BIND: u8 = 0x90;
pub(super) const BIND_OPCODE_DO_BIND_ADD_ADDR_ULEB: u8 = 0xa0;
pub(super) const BIND_OPCODE_DO_BIND_ADD_ADDR_IMM_SCALED: u8 = 0xb0;
pub(super) const BIND_OPCODE_DO_BIND_ULEB_TIMES_SKIPPING_ULEB: u8 = 0xc0;

pub(super) const DYLD_CHAINED_IMPORT: u32 = 1;
pub(super) const DYLD_CHAINED_IMPORT_ADDEND: u32 = 2;
pub(super) const DYLD_CHAINED_IMPORT_ADDEND64: u32 = 3;
pub(super) const DYLD_CHAINED_PTR_START_NONE: u16 = 0xffff;
pub(super) const DYLD_CHAINED_PTR_START_MULTI: u16 = 0x8000;
