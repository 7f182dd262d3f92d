//! Finding what a stripped binary left elsewhere: separate debug files by build id or
//! `.gnu_debuglink`, the file shared by several debug files (`dwz`), split DWARF (`.dwo`), and the
//! symbol table that some distributions compress into `.gnu_debugdata`.

use super::object_file::{Elf, ElfFile};
use super::paths;
use object::{Object, ObjectSection};
use std::io::Read;
use std::path::{Path, PathBuf};
use typed_arena::Arena;

/// Files opened for one module. They live as long as the module's names are being looked up.
pub(crate) type Files = Arena<ElfFile>;
/// Section contents and file images made in memory.
pub(crate) type Buffers = Arena<Vec<u8>>;

/// The largest `.gnu_debugdata` that is unpacked: it holds one symbol table.
const LARGEST_DEBUGDATA_BYTES: u64 = 256 << 20;

/// The separate debug file of `binary` (found at `path`), when one is installed and belongs to it.
pub(crate) fn separate<'a>(
    path: &Path,
    binary: &Elf<'a>,
    debug_roots: &[PathBuf],
    files: &'a Files,
) -> Option<(PathBuf, Elf<'a>)> {
    let build_id = binary.build_id().ok().flatten();
    if let Some(id) = build_id {
        for candidate in by_build_id(id, debug_roots) {
            if let Some(elf) = open_with_build_id(&candidate, id, files) {
                return Some((candidate, elf));
            }
        }
    }
    let (name, crc) = binary.gnu_debuglink().ok().flatten()?;
    let name = Path::new(std::str::from_utf8(name).ok()?);
    let directory = paths::real(path)?.parent()?.to_owned();
    let mut candidates = vec![directory.join(name), directory.join(".debug").join(name)];
    for root in debug_roots {
        if let Ok(relative) = directory.strip_prefix("/") {
            candidates.push(root.join(relative).join(name));
        }
    }
    candidates.into_iter().find_map(|candidate| {
        if paths::real(&candidate)? == paths::real(path)? {
            return None;
        }
        let elf = match build_id {
            Some(id) => open_with_build_id(&candidate, id, files)?,
            None if crc32_of(&candidate)? == crc => {
                files.alloc(ElfFile::open(&candidate).ok()?).parse().ok()?
            }
            None => return None,
        };
        Some((candidate, elf))
    })
}

/// The file that `dwz` moved common DWARF of several debug files into.
pub(crate) fn supplementary<'a>(
    debug_path: &Path,
    debug: &Elf<'a>,
    debug_roots: &[PathBuf],
    files: &'a Files,
) -> Option<Elf<'a>> {
    let (name, id) = debug.gnu_debugaltlink().ok().flatten()?;
    let beside = debug_path
        .parent()?
        .join(Path::new(std::str::from_utf8(name).ok()?));
    std::iter::once(beside)
        .chain(by_build_id(id, debug_roots))
        .find_map(|candidate| open_with_build_id(&candidate, id, files))
}

/// The symbol table inside `.gnu_debugdata`, an xz-compressed ELF file.
pub(crate) fn mini_debug_info(binary: &Elf<'_>) -> Option<Vec<u8>> {
    let section = binary.section_by_name(".gnu_debugdata")?;
    let mut unpacked = Bounded(Vec::new());
    lzma_rs::xz_decompress(&mut section.data().ok()?, &mut unpacked).ok()?;
    Some(unpacked.0)
}

fn by_build_id(id: &[u8], debug_roots: &[PathBuf]) -> Vec<PathBuf> {
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    match hex.split_at_checked(2) {
        Some((head, tail)) if !tail.is_empty() => debug_roots
            .iter()
            .map(|root| {
                root.join(".build-id")
                    .join(head)
                    .join(format!("{tail}.debug"))
            })
            .collect(),
        _ => Vec::new(),
    }
}

fn open_with_build_id<'a>(path: &Path, id: &[u8], files: &'a Files) -> Option<Elf<'a>> {
    let file = ElfFile::open(path).ok()?;
    let elf = files.alloc(file).parse().ok()?;
    (elf.build_id().ok().flatten() == Some(id)).then_some(elf)
}

fn crc32_of(path: &Path) -> Option<u32> {
    let mut file = std::fs::File::open(path).ok()?;
    let mut hasher = crc32fast::Hasher::new();
    let mut chunk = vec![0; 1 << 16];
    loop {
        match file.read(&mut chunk).ok()? {
            0 => return Some(hasher.finalize()),
            n => hasher.update(&chunk[..n]),
        }
    }
}

/// A sink that refuses to grow beyond `LARGEST_DEBUGDATA_BYTES`.
struct Bounded(Vec<u8>);

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if (self.0.len() + bytes.len()) as u64 > LARGEST_DEBUGDATA_BYTES {
            return Err(std::io::Error::other(".gnu_debugdata is too large"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
