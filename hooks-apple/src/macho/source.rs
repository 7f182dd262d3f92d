//! Where an image's bytes come from. Both ways are addressed by offsets in the file, as the load commands do.

use stackbeat_core::address::{Bias, Svma};

use super::format::{FAT_MAGIC, FAT_MAGIC_64, HEADER_BYTES};
use super::image::Range;
use super::{Image, ImageError, commands_length};

/// Architectures in a universal file: there are not as many.
const MOST_SLICES: u64 = 64;

/// Bytes of an image.
pub trait Source {
    /// Fills `out` with what is at an offset of the file; `false`: not all of it is there.
    fn read(&self, offset: u64, out: &mut [u8]) -> bool;
}

/// Memory that may be read at any address without a fault.
pub trait Memory {
    /// Fills `out` with what is at an address; `false`: not all of it can be read.
    fn read(&self, address: u64, out: &mut [u8]) -> bool;
}

/// A file's bytes.
#[derive(Clone, Copy)]
pub struct InFile<'a>(pub &'a [u8]);

impl Source for InFile<'_> {
    fn read(&self, offset: u64, out: &mut [u8]) -> bool {
        let begin = usize::try_from(offset).ok();
        let from = begin.and_then(|begin| self.0.get(begin..)?.get(..out.len()));
        from.map(|from| out.copy_from_slice(from)).is_some()
    }
}

impl Source for std::fs::File {
    fn read(&self, offset: u64, out: &mut [u8]) -> bool {
        std::os::unix::fs::FileExt::read_exact_at(self, out, offset).is_ok()
    }
}

/// An image that is loaded.
#[derive(Clone, Copy)]
pub struct InMemory<'a, M> {
    /// Its load commands.
    pub image: &'a Image,
    /// What is added to its addresses.
    pub slide: Bias,
    /// The process.
    pub memory: &'a M,
}

impl<M: Memory> Source for InMemory<'_, M> {
    fn read(&self, offset: u64, out: &mut [u8]) -> bool {
        let bytes = out.len() as u64;
        let address = self.image.segments.iter().find_map(|segment| {
            let inside = offset.checked_sub(segment.file_offset)?;
            let fits = inside.checked_add(bytes)? <= segment.file_bytes;
            fits.then(|| segment.address.wrapping_add(inside))
        });
        address.is_some_and(|address| self.memory.read(self.slide.in_process(Svma(address)), out))
    }
}

/// A table as the load commands say where it is.
pub(super) fn table(
    source: &impl Source,
    what: &'static str,
    range: Range,
) -> Result<Vec<u8>, ImageError> {
    read_all(source, what, range.offset.into(), range.bytes.into())
}

/// So many bytes. Takes memory only for what is there.
pub(super) fn read_all(
    source: &impl Source,
    what: &'static str,
    offset: u64,
    length: u64,
) -> Result<Vec<u8>, ImageError> {
    const PIECE: u64 = 1 << 20;
    let mut bytes = Vec::new();
    let mut done = 0;
    while done < length {
        let piece = PIECE.min(length - done);
        let at = offset.saturating_add(done);
        bytes.resize((done + piece) as usize, 0);
        if !source.read(at, &mut bytes[done as usize..]) {
            return Err(ImageError::Unreadable { what, offset: at });
        }
        done += piece;
    }
    Ok(bytes)
}

/// The part of a file that is one image.
#[derive(Clone, Copy)]
pub struct Slice<'a, S> {
    file: &'a S,
    begin: u64,
}

impl<S: Source> Source for Slice<'_, S> {
    fn read(&self, offset: u64, out: &mut [u8]) -> bool {
        let at = self.begin.checked_add(offset);
        at.is_some_and(|at| self.file.read(at, out))
    }
}

/// The part of a file that an image was loaded from: the whole, or in a universal file one of several. It
/// must have the same load commands: those of another version, architecture or build differ at least in the
/// UUID.
pub fn slice_of_file<'a, S: Source>(
    file: &'a S,
    image: &Image,
) -> Result<Slice<'a, S>, ImageError> {
    let is_it = |begin: &u64| {
        let commands = read_all(file, "commands", *begin, image.commands.len() as u64);
        commands.is_ok_and(|commands| commands == image.commands)
    };
    let mut header = [0; HEADER_BYTES];
    if !file.read(0, &mut header) {
        return Err(ImageError::Short("the file"));
    }
    let [magic, count] = [0, 4].map(|at| big_endian(&header[at..at + 4]));
    let begin = match magic as u32 {
        // `struct fat_arch`, `fat_arch_64`: types of processors, then offset and size, which have as many
        // bits.
        FAT_MAGIC | FAT_MAGIC_64 => {
            let (entry_bytes, offset_bytes) = match magic as u32 {
                FAT_MAGIC => (20, 4),
                _ => (32, 8),
            };
            let begins = (0..count.min(MOST_SLICES)).filter_map(|number| {
                let mut offset = [0; 8];
                let offset = &mut offset[..offset_bytes];
                file.read(8 + number * entry_bytes + 8, offset)
                    .then(|| big_endian(offset))
            });
            begins.into_iter().find(is_it)
        }
        _ => {
            // Says what it is, if it is no image at all.
            commands_length(&header)?;
            Some(0).filter(is_it)
        }
    };
    let begin = begin.ok_or(ImageError::OtherFile)?;
    Ok(Slice { file, begin })
}

fn big_endian(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}
