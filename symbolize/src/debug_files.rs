//! Finding what a stripped binary left elsewhere: separate debug files by build id or
//! `.gnu_debuglink`, the file shared by several debug files (`dwz`), split DWARF (`.dwo`), and the
//! symbol table that some distributions compress into `.gnu_debugdata`.

use super::object_file::{FileContent, ObjectFile, build_id};
use super::{DebugSource, paths};
use object::{Object, ObjectSection};
use std::io::Read;
use std::path::{Path, PathBuf};
use typed_arena::Arena;

/// Files opened for one module. They live as long as the module's names are being looked up.
pub(crate) type Files = Arena<FileContent>;
/// Section contents and file images made in memory.
pub(crate) type Buffers = Arena<Vec<u8>>;

/// The largest table that `.gnu_debugdata` may hold when it is unpacked: libraries of 100 MB have some 10 MB.
const MOST_DEBUGDATA_BYTES: u64 = 256 << 20;
/// What the decoder may take besides: the dictionary, which distributions give 8 to 64 MB.
const MOST_DECODER_KB: u32 = 96 << 10;

/// The separate debug file of `binary` (found at `path`), when one is installed and belongs to it.
pub(crate) fn separate<'a>(
    path: &Path,
    binary: &ObjectFile<'a>,
    debug_roots: &[PathBuf],
    files: &'a Files,
) -> Option<(PathBuf, ObjectFile<'a>)> {
    let build_id = build_id(binary);
    if let Some(id) = &build_id {
        for candidate in by_build_id(id, debug_roots) {
            if let Some(file) = open_with_build_id(&candidate, id, files) {
                return Some((candidate, file));
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
        let file = match &build_id {
            Some(id) => open_with_build_id(&candidate, id, files)?,
            None if crc32_of(&candidate)? == crc => files
                .alloc(FileContent::open(&candidate).ok()?)
                .parse()
                .ok()?,
            None => return None,
        };
        Some((candidate, file))
    })
}

/// The id of the file that `dwz` moved common DWARF of several debug files into.
pub(crate) fn supplementary_id<'a>(debug: &ObjectFile<'a>) -> Option<&'a [u8]> {
    Some(debug.gnu_debugaltlink().ok().flatten()?.1)
}

/// That file.
pub(crate) fn supplementary<'a>(
    debug_path: &Path,
    debug: &ObjectFile<'a>,
    debug_roots: &[PathBuf],
    files: &'a Files,
) -> Option<ObjectFile<'a>> {
    let (name, id) = debug.gnu_debugaltlink().ok().flatten()?;
    let beside = debug_path
        .parent()?
        .join(Path::new(std::str::from_utf8(name).ok()?));
    std::iter::once(beside)
        .chain(by_build_id(id, debug_roots))
        .find_map(|candidate| open_with_build_id(&candidate, id, files))
}

/// Whether a file is an object file, or its debug file, of this build.
pub fn is_file_of_build(path: &Path, build_id: &[u8]) -> bool {
    open_with_build_id(path, build_id, &Files::new()).is_some()
}

/// The debug file of a build, or one that it refers to, from elsewhere.
pub(crate) fn fetched<'a>(
    id: &[u8],
    source: &dyn DebugSource,
    files: &'a Files,
    goes_on: &mut dyn FnMut() -> bool,
) -> Option<(PathBuf, ObjectFile<'a>)> {
    let path = source.debug_file(id, goes_on)?;
    let file = open_with_build_id(&path, id, files)?;
    Some((path, file))
}

/// The symbol table inside `.gnu_debugdata`, an xz-compressed ELF file. `None`: there is none that can be
/// read.
pub(crate) fn mini_debug_info(binary: &ObjectFile<'_>) -> Option<Vec<u8>> {
    let section = binary.section_by_name(".gnu_debugdata")?;
    unpack_xz(section.data().ok()?, MOST_DEBUGDATA_BYTES)
}

/// `None`: damaged, or larger than that. The unpacked size is known when it has been unpacked, not before.
fn unpack_xz(packed: &[u8], most_bytes: u64) -> Option<Vec<u8>> {
    let decoder = lzma_rust2::XzReader::new_mem_limit(packed, false, MOST_DECODER_KB);
    let mut unpacked = Vec::new();
    let bytes = decoder
        .take(most_bytes.saturating_add(1))
        .read_to_end(&mut unpacked)
        .ok()?;
    (bytes as u64 <= most_bytes).then_some(unpacked)
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

fn open_with_build_id<'a>(path: &Path, id: &[u8], files: &'a Files) -> Option<ObjectFile<'a>> {
    let content = FileContent::open(path).ok()?.part_of_build(id)?;
    let file = files.alloc(content).parse().ok()?;
    (build_id(&file)? == id).then_some(file)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    fn pack(plain: &[u8], options: &[&str]) -> Vec<u8> {
        let mut xz = Command::new("xz")
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("xz");
        let mut stdin = xz.stdin.take().expect("a pipe");
        let plain = plain.to_vec();
        let writer = std::thread::spawn(move || stdin.write_all(&plain));
        let output = xz.wait_with_output().expect("ends");
        writer.join().expect("writes").expect("writes");
        output.stdout
    }

    fn some_bytes(count: u32) -> Vec<u8> {
        (0..count)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8 & 15)
            .collect()
    }

    #[test]
    fn what_xz_packs_is_unpacked() {
        let plain = some_bytes(300_000);
        for options in [
            ["--check=crc32", "-0"],
            ["--check=crc64", "-9"],
            ["--check=sha256", "-6"],
            ["--check=none", "-6"],
            ["--x86", "--lzma2"],
            ["--block-size=50000", "-6"],
        ] {
            let packed = pack(&plain, &options);
            assert!(
                unpack_xz(&packed, 300_000).expect("unpacks") == plain,
                "{options:?}"
            );
        }
        assert_eq!(unpack_xz(&pack(&[], &["-6"]), 0), Some(Vec::new()));
    }

    /// The most memory that this process ever had, bytes.
    #[cfg(target_os = "linux")]
    fn peak_bytes() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").expect("is there");
        let line = status.lines().find(|line| line.starts_with("VmHWM:"));
        let kb = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        1024 * kb.unwrap_or(u64::MAX / 1024)
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_becomes_large_takes_no_memory() {
        let shell = |command: &str| {
            let output = Command::new("sh").args(["-c", command]).output();
            output.expect("a shell").stdout
        };
        let bomb = shell("head -c 512M /dev/zero | xz -1");
        assert!((1 << 16..1 << 20).contains(&bomb.len()), "{}", bomb.len());
        let before = peak_bytes();
        assert_eq!(unpack_xz(&bomb, 1 << 20), None);
        let more = peak_bytes() - before;
        assert!(more < 128 << 20, "{more} bytes");
        // A dictionary larger than any library needs.
        let plain = some_bytes(10_000);
        let modest = pack(&plain, &["--lzma2=dict=64MiB"]);
        assert_eq!(unpack_xz(&modest, 1 << 20), Some(plain.clone()));
        let greedy = pack(&plain, &["--lzma2=dict=1GiB"]);
        assert_eq!(unpack_xz(&greedy, 1 << 20), None);
    }

    #[test]
    fn damaged_and_cut_data_is_refused() {
        let plain = some_bytes(20_000);
        let packed = pack(&plain, &["--check=crc64", "-6"]);
        for length in 0..packed.len() {
            assert_eq!(unpack_xz(&packed[..length], 1 << 20), None, "{length}");
        }
        for at in 0..packed.len() {
            for bit in [1, 0x10, 0x80] {
                let mut damaged = packed.clone();
                damaged[at] ^= bit;
                let unpacked = unpack_xz(&damaged, 1 << 20);
                assert!(unpacked.is_none_or(|unpacked| unpacked == plain), "{at}");
            }
        }
    }
}
