//! Opening object files through ordinary reads: a file that shrinks meanwhile is an error, not a
//! SIGBUS, as it would be with a mapping.

use object::read::macho::{FatArch, MachOFatFile32, MachOFatFile64};
use object::read::{ReadCache, ReadCacheRange};
use object::{FileKind, Object};
use std::fs::File;
use std::io;
use std::path::Path;

/// A parsed object file, ELF or Mach-O; its contents are read as they are asked for.
pub(crate) type ObjectFile<'a> = object::File<'a, &'a ReadCache<Source>>;

/// A program in such a file.
pub(crate) type PartOfFile<'a> = object::File<'a, ReadCacheRange<'a, Source>>;

/// A section of such a file.
pub(crate) type Section<'a> = object::Section<'a, 'a, &'a ReadCache<Source>>;

/// Where the bytes of an object file come from.
#[derive(Debug)]
pub(crate) enum Source {
    File(File),
    Memory(io::Cursor<Vec<u8>>),
}

impl io::Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Source::File(file) => file.read(buffer),
            Source::Memory(memory) => memory.read(buffer),
        }
    }
}

impl io::Seek for Source {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        match self {
            Source::File(file) => file.seek(to),
            Source::Memory(memory) => memory.seek(to),
        }
    }
}

/// An object file that is open, and what was read of it so far.
#[derive(Debug)]
pub(crate) struct FileContent(ReadCache<Source>);

impl FileContent {
    /// Opens a regular file. Anything else could block (a FIFO) or never end (a device).
    pub(crate) fn open(path: &Path) -> io::Result<FileContent> {
        if !std::fs::metadata(path)?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        Ok(FileContent(ReadCache::new(Source::File(File::open(path)?))))
    }

    /// An object file that is not on disk: the vDSO, or an unpacked `.gnu_debugdata`.
    pub(crate) fn from_memory(image: Vec<u8>) -> FileContent {
        FileContent(ReadCache::new(Source::Memory(io::Cursor::new(image))))
    }

    pub(crate) fn parse(&self) -> object::Result<ObjectFile<'_>> {
        object::File::parse(&self.0)
    }

    /// Of a file that holds a program for several processors, the part that is of this build; any other file
    /// as it is.
    pub(crate) fn part_of_build(self, id: &[u8]) -> Option<FileContent> {
        let Some(parts) = self.parts() else {
            return Some(self);
        };
        parts.into_iter().find_map(|(offset, size)| {
            let part = object::File::parse(self.0.range(offset, size)).ok()?;
            (build_id(&part)? == id).then_some(())?;
            let image = object::ReadRef::read_bytes_at(&self.0, offset, size).ok()?;
            Some(FileContent::from_memory(image.to_vec()))
        })
    }

    /// Where the programs for several processors lie. `None`: the file is one program.
    fn parts(&self) -> Option<Vec<(u64, u64)>> {
        match FileKind::parse(&self.0).ok()? {
            FileKind::MachOFat32 => Some(ranges(MachOFatFile32::parse(&self.0).ok()?.arches())),
            FileKind::MachOFat64 => Some(ranges(MachOFatFile64::parse(&self.0).ok()?.arches())),
            _ => None,
        }
    }

    /// What there is to say of each program in the file.
    pub(crate) fn of_each_part<T>(&self, say: impl Fn(&PartOfFile<'_>) -> Option<T>) -> Vec<T> {
        let whole = || vec![(0, object::ReadRef::len(&self.0).unwrap_or(0))];
        let parts = self.parts().unwrap_or_else(whole).into_iter();
        let said = |(offset, size)| {
            let part = object::File::parse(self.0.range(offset, size)).ok()?;
            say(&part)
        };
        parts.filter_map(said).collect()
    }
}

fn ranges<Fat: FatArch>(parts: &[Fat]) -> Vec<(u64, u64)> {
    parts.iter().map(FatArch::file_range).collect()
}

/// What identifies the content of an object file: the linker's note (ELF) or UUID (Mach-O).
pub(crate) fn build_id<'a>(file: &impl Object<'a>) -> Option<Vec<u8>> {
    match file.mach_uuid() {
        Ok(Some(uuid)) => Some(uuid.to_vec()),
        _ => Some(file.build_id().ok()??.to_vec()),
    }
}

/// The vDSO's image as the kernel maps it into every process: read from our own memory.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn vdso_image() -> io::Result<Vec<u8>> {
    use std::io::{Read, Seek};
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let range = maps
        .lines()
        .find(|line| line.ends_with("[vdso]"))
        .and_then(|line| line.split(' ').next())
        .and_then(|range| range.split_once('-'))
        .ok_or_else(|| io::Error::other("no vDSO in this process"))?;
    let parse = |hex| u64::from_str_radix(hex, 16).map_err(io::Error::other);
    let (start, end) = (parse(range.0)?, parse(range.1)?);
    let mut memory = File::open("/proc/self/mem")?;
    memory.seek(io::SeekFrom::Start(start))?;
    let mut image = vec![0; end.saturating_sub(start) as usize];
    memory.read_exact(&mut image)?;
    Ok(image)
}

/// Other systems have no vDSO.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn vdso_image() -> io::Result<Vec<u8>> {
    Err(io::Error::other("this system has no vDSO"))
}
