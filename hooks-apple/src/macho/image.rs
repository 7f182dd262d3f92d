//! What an image's load commands say.

use super::ImageError;
use super::format::*;
use super::reader::Reader;

/// More than any linker writes: an image of 1,500 libraries has 100 kB of commands.
const MOST_COMMAND_BYTES: u32 = 4 << 20;

/// A part of the image that is mapped as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its name, without the NULs at the end.
    pub name: Vec<u8>,
    /// Where it is before the slide is added.
    pub address: u64,
    /// Its bytes in memory.
    pub memory_bytes: u64,
    /// Where it begins in the file.
    pub file_offset: u64,
    /// Its bytes in the file; the rest is zeros.
    pub file_bytes: u64,
    /// Whether slots may be there.
    pub is_writable: bool,
    /// Whether dyld makes it read-only once it has bound the slots: `__DATA_CONST`.
    pub is_read_only_later: bool,
}

impl Segment {
    /// Whether this many bytes at an address lie in it.
    pub fn contains(&self, address: u64, bytes: u64) -> bool {
        let offset = address.checked_sub(self.address);
        let end = offset.and_then(|offset| offset.checked_add(bytes));
        end.is_some_and(|end| end <= self.memory_bytes)
    }
}

/// A section of symbol pointers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its name, without the NULs at the end.
    pub name: Vec<u8>,
    /// Where it is before the slide is added.
    pub address: u64,
    /// Its length.
    pub bytes: u64,
    /// Whether its pointers may be bound by their first use.
    pub is_lazy: bool,
    /// Its first pointer's place in the indirect symbol table.
    pub first_indirect: u32,
}

/// A range of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) offset: u32,
    pub(super) bytes: u32,
}

/// Tables of symbols.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Symbols {
    pub(super) offset: u32,
    pub(super) count: u32,
    pub(super) names: Range,
}

/// An image's segments and tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Header and load commands as they are.
    pub(super) commands: Vec<u8>,
    /// In the order of the commands: their numbers are used elsewhere.
    pub segments: Vec<Segment>,
    /// Sections of symbol pointers.
    pub pointers: Vec<Section>,
    /// Where the helpers of lazy slots are, if there are any: address and length.
    pub stub_helper: Option<(u64, u64)>,
    /// Libraries that it was linked with, by install name. Their ordinals begin at 1.
    pub libraries: Vec<Vec<u8>>,
    /// The number that the linker has given it; its dSYM has the same one.
    pub uuid: Option<[u8; 16]>,
    /// Whether it is for arm64e, whose pointers are signed.
    pub is_arm64e: bool,
    /// Whether it is part of the dyld shared cache.
    pub is_in_cache: bool,
    pub(super) symbols: Option<Symbols>,
    /// Offset and count.
    pub(super) indirect: Option<(u32, u32)>,
    /// Eager, weak and lazy binds.
    pub(super) opcodes: Option<[Range; 3]>,
    pub(super) chains: Option<Range>,
}

/// How many bytes header and load commands have, by the first 32 bytes.
pub fn commands_length(header: &[u8; HEADER_BYTES]) -> Result<usize, ImageError> {
    let mut reader = Reader::new("the header", header);
    let magic = reader.u32()?;
    if magic != MH_MAGIC_64 {
        return Err(ImageError::Magic(magic));
    }
    reader.take(16)?;
    match reader.u32()? {
        bytes if bytes <= MOST_COMMAND_BYTES => Ok(HEADER_BYTES + bytes as usize),
        bytes => Err(ImageError::Range {
            what: "the size of the load commands",
            value: bytes.into(),
        }),
    }
}

fn without_nuls(name: &[u8]) -> Vec<u8> {
    name.split(|byte| *byte == 0).next().unwrap_or(&[]).to_vec()
}

impl Image {
    /// Reads header and load commands. What follows them is ignored.
    pub fn read(bytes: &[u8]) -> Result<Image, ImageError> {
        let header = bytes.first_chunk::<HEADER_BYTES>();
        let length = commands_length(header.ok_or(ImageError::Short("the header"))?)?;
        let bytes = bytes.get(..length);
        let bytes = bytes.ok_or(ImageError::Short("the list of load commands"))?;
        let mut header = Reader::new("the header", bytes);
        header.u32()?;
        let cpu = header.u32()?;
        let subtype = header.u32()? & !CPU_SUBTYPE_MASK;
        header.u32()?;
        let count = header.u32()?;
        header.u32()?;
        let mut image = Image {
            commands: bytes.to_vec(),
            segments: Vec::new(),
            pointers: Vec::new(),
            stub_helper: None,
            libraries: Vec::new(),
            uuid: None,
            is_arm64e: cpu == CPU_TYPE_ARM64
                && matches!(subtype, CPU_SUBTYPE_ARM64E | CPU_SUBTYPE_ARM64E_X1),
            is_in_cache: header.u32()? & MH_DYLIB_IN_CACHE != 0,
            symbols: None,
            indirect: None,
            opcodes: None,
            chains: None,
        };
        let commands = Reader::new("the list of load commands", bytes);
        let mut at = HEADER_BYTES;
        for _ in 0..count {
            let mut command = commands.from(at)?;
            let (kind, length) = (command.u32()?, command.u32()? as usize);
            if length < 8 {
                return Err(ImageError::Range {
                    what: "the size of a load command",
                    value: length as u64,
                });
            }
            let body = commands.from(at)?.take(length)?;
            image.add(kind, Reader::new("a load command", body).from(8)?)?;
            at += length;
        }
        Ok(image)
    }

    fn add(&mut self, kind: u32, mut command: Reader<'_>) -> Result<(), ImageError> {
        match kind {
            LC_SEGMENT_64 => self.add_segment(command)?,
            LC_LOAD_DYLIB | LC_LOAD_WEAK_DYLIB | LC_REEXPORT_DYLIB | LC_LAZY_LOAD_DYLIB
            | LC_LOAD_UPWARD_DYLIB => {
                // Offset from the command's begin, of which kind and length are left out here.
                let offset = command.u32()? as usize;
                self.libraries.push(command.from(offset)?.name()?.to_vec());
            }
            LC_UUID => self.uuid = command.take(16)?.first_chunk().copied(),
            LC_SYMTAB => {
                let (offset, count) = (command.u32()?, command.u32()?);
                let names = range(&mut command)?;
                self.symbols = Some(Symbols {
                    offset,
                    count,
                    names,
                });
            }
            LC_DYSYMTAB => {
                command.take(48)?;
                self.indirect = Some((command.u32()?, command.u32()?));
            }
            // With and without LC_REQ_DYLD.
            _ if kind & !LC_REQ_DYLD == LC_DYLD_INFO => {
                range(&mut command)?;
                let [eager, weak, lazy] = [(); 3].map(|()| range(&mut command));
                self.opcodes = Some([eager?, weak?, lazy?]);
            }
            LC_DYLD_CHAINED_FIXUPS => self.chains = Some(range(&mut command)?),
            _ => {}
        }
        Ok(())
    }

    fn add_segment(&mut self, mut command: Reader<'_>) -> Result<(), ImageError> {
        let name = without_nuls(command.take(16)?);
        let (address, memory_bytes) = (command.u64()?, command.u64()?);
        let (file_offset, file_bytes) = (command.u64()?, command.u64()?);
        let _most = command.u32()?;
        let protection = command.u32()?;
        let (sections, flags) = (command.u32()?, command.u32()?);
        let ends = (
            address.checked_add(memory_bytes),
            file_offset.checked_add(file_bytes),
        );
        if ends.0.is_none() || ends.1.is_none() || file_bytes > memory_bytes {
            return Err(ImageError::Range {
                what: "a segment",
                value: address,
            });
        }
        for _ in 0..sections {
            let mut section =
                Reader::new("a segment's list of sections", command.take(SECTION_BYTES)?);
            let name = without_nuls(section.take(16)?);
            section.take(16)?;
            let (address, bytes) = (section.u64()?, section.u64()?);
            section.take(16)?;
            let (flags, first_indirect) = (section.u32()?, section.u32()?);
            if name == b"__stub_helper" {
                self.stub_helper = Some((address, bytes));
            }
            let kind = flags & SECTION_TYPE;
            if matches!(kind, S_LAZY_SYMBOL_POINTERS | S_NON_LAZY_SYMBOL_POINTERS) {
                self.pointers.push(Section {
                    name,
                    address,
                    bytes,
                    is_lazy: kind == S_LAZY_SYMBOL_POINTERS,
                    first_indirect,
                });
            }
        }
        self.segments.push(Segment {
            name,
            address,
            memory_bytes,
            file_offset,
            file_bytes,
            is_writable: protection & VM_PROT_WRITE != 0,
            is_read_only_later: flags & SG_READ_ONLY != 0,
        });
        Ok(())
    }

    /// Whether its slots are described by fixup chains.
    pub fn has_chains(&self) -> bool {
        self.chains.is_some()
    }

    /// Where the image wants to be: the header's address before the slide is added.
    pub fn preferred_address(&self) -> Option<u64> {
        let holds_header = |s: &&Segment| s.file_offset == 0 && s.file_bytes > 0;
        self.segments.iter().find(holds_header).map(|s| s.address)
    }

    /// The segment that a slot lies in, if slots may be there.
    pub fn segment_of_slot(&self, address: u64) -> Option<&Segment> {
        let mut writable = self.segments.iter().filter(|s| s.is_writable);
        writable.find(|s| s.contains(address, 8))
    }

    /// No image has more slots than this.
    pub(super) fn most_slots(&self) -> u64 {
        let writable = self.segments.iter().filter(|s| s.is_writable);
        let bytes = writable.fold(0u64, |sum, s| sum.saturating_add(s.file_bytes));
        (bytes / 4).min(1 << 28)
    }
}

fn range(command: &mut Reader<'_>) -> Result<Range, ImageError> {
    Ok(Range {
        offset: command.u32()?,
        bytes: command.u32()?,
    })
}
