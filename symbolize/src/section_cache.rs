//! Unpacked debug sections, kept from one recording to the next. Distributions compress their debug files; to
//! unpack libc's takes longer than everything else that its names need. What is kept are the sections
//! themselves, so that names found with and without them are the same.
//!
//! A file in the cache, named after the build id:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | [`MAGIC`], with the version of the format |
//! | 4 | length of the head, little-endian |
//! | 4 | CRC-32 of the head, little-endian |
//! | … | the head, a protobuf [`Head`] |
//! | … | the sections, one after the other |
//!
//! Files appear by renaming. One that is damaged, or belongs to another debug file, counts as absent and is
//! replaced. Nothing here makes a recording fail: what cannot be read or kept is unpacked again next time.

use super::paths;
use prost::Message;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const MAGIC: [u8; 8] = *b"sbsect\0\x01";
/// Bytes of all files together; those that were not used for the longest time go first.
const MOST_BYTES: u64 = 256 << 20;
/// Bytes of one file. A larger one would push out all others.
const MOST_BYTES_OF_ONE: u64 = MOST_BYTES / 2;
/// Bytes that stay free on the disk: the trace may lie on the same one.
#[cfg(any(target_os = "linux", target_os = "android"))]
const LEAST_FREE: u64 = 256 << 20;
/// Less is unpacked faster than it is found.
const LEAST_BYTES: u64 = 64 << 10;
/// File names have 255 bytes, and build ids 16 to 32.
const LONGEST_BUILD_ID: usize = 64;
/// How exactly it is known when a file was last used.
const USE_GRANULARITY: Duration = Duration::from_secs(3600);

/// A folder with unpacked debug sections.
#[derive(Clone, Debug)]
pub struct SymbolCache {
    folder: PathBuf,
    most_bytes: u64,
}

/// Which debug file sections are of.
#[derive(Clone, PartialEq, Message)]
pub struct Identity {
    #[prost(bytes = "vec", tag = "1")]
    build_id: Vec<u8>,
    #[prost(string, tag = "2")]
    path: String,
    #[prost(uint64, tag = "3")]
    bytes: u64,
    #[prost(int64, tag = "4")]
    modified_s: i64,
    #[prost(int64, tag = "5")]
    modified_ns: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Head {
    #[prost(message, required, tag = "1")]
    identity: Identity,
    #[prost(message, repeated, tag = "2")]
    sections: Vec<SectionHead>,
}

#[derive(Clone, PartialEq, Message)]
struct SectionHead {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(uint64, tag = "2")]
    bytes: u64,
    /// CRC-32.
    #[prost(fixed32, tag = "3")]
    checksum: u32,
}

/// Sections by name.
pub(crate) type Sections = Vec<(String, Vec<u8>)>;

impl Identity {
    /// `None`: the file has no build id that can name a file, or has gone.
    pub fn of(path: &Path, build_id: Option<&[u8]>) -> Option<Identity> {
        let build_id = build_id?;
        let metadata = fs::metadata(path).ok()?;
        (1..=LONGEST_BUILD_ID)
            .contains(&build_id.len())
            .then(|| Identity {
                build_id: build_id.to_vec(),
                path: path.to_string_lossy().into_owned(),
                bytes: metadata.len(),
                modified_s: metadata.mtime(),
                modified_ns: metadata.mtime_nsec(),
            })
    }

    fn file_name(&self) -> String {
        self.build_id.iter().map(|b| format!("{b:02x}")).collect()
    }
}

impl SymbolCache {
    /// The one of this user: `$XDG_CACHE_HOME/stackbeat/symbols` or `~/.cache/stackbeat/symbols`. `None`:
    /// there is no such folder and it cannot be made, or others can write to it.
    pub fn of_user() -> Option<SymbolCache> {
        SymbolCache::at(paths::user_caches()?.join("stackbeat/symbols"))
    }

    /// One in this folder, which is made.
    pub fn at(folder: PathBuf) -> Option<SymbolCache> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&folder).ok()?;
        let is_private = is_own(&folder)? && is_own(folder.parent()?)?;
        is_private.then_some(SymbolCache {
            folder,
            most_bytes: MOST_BYTES,
        })
    }

    /// The sections of a debug file, all of them.
    pub fn load(&self, identity: &Identity) -> Option<Sections> {
        let mut file = File::open(self.folder.join(identity.file_name())).ok()?;
        let metadata = file.metadata().ok()?;
        let mut left = metadata.len();
        let mut next = |bytes: u64| {
            left = left.checked_sub(bytes)?;
            read(&mut file, bytes)
        };
        let (magic, length, checksum) = (next(8)?, next(4)?, next(4)?);
        if magic != MAGIC {
            return None;
        }
        let number = |bytes: Vec<u8>| Some(u32::from_le_bytes(bytes.try_into().ok()?));
        let head = next(number(length)?.into())?;
        if crc32fast::hash(&head) != number(checksum)? {
            return None;
        }
        let head = Head::decode(head.as_slice()).ok()?;
        if head.identity != *identity {
            return None;
        }
        let mut sections = Sections::new();
        for section in head.sections {
            let content = next(section.bytes)?;
            if crc32fast::hash(&content) != section.checksum {
                return None;
            }
            sections.push((section.name, content));
        }
        if left > 0 {
            return None;
        }
        let now = SystemTime::now();
        let used = metadata.modified().ok()?;
        if (now.duration_since(used)).is_ok_and(|unused| unused > USE_GRANULARITY) {
            // At worst it is removed too early.
            let _ = file.set_modified(now);
        }
        Some(sections)
    }

    /// Keeps the sections of a debug file, unless they are too small or too large for that.
    pub fn store(&self, identity: Identity, sections: &[(&str, &[u8])]) {
        let bytes: u64 = sections
            .iter()
            .map(|(_, content)| content.len() as u64)
            .sum();
        if (LEAST_BYTES..=MOST_BYTES_OF_ONE).contains(&bytes) && self.has_room(bytes) {
            // A full disk, a quota, a folder that has gone: they are unpacked again next time.
            let _ = self.write(identity, sections);
            self.remove_old();
        }
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn has_room(&self, bytes: u64) -> bool {
        let free = rustix::fs::statvfs(&self.folder)
            .map(|status| status.f_bavail.saturating_mul(status.f_frsize));
        free.is_ok_and(|free| free >= bytes + LEAST_FREE)
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn has_room(&self, _bytes: u64) -> bool {
        true
    }

    fn write(&self, identity: Identity, sections: &[(&str, &[u8])]) -> io::Result<()> {
        let path = self.folder.join(identity.file_name());
        let head = |(name, content): &(&str, &[u8])| SectionHead {
            name: (*name).to_owned(),
            bytes: content.len() as u64,
            checksum: crc32fast::hash(content),
        };
        let head = Head {
            identity,
            sections: sections.iter().map(head).collect(),
        };
        let head = head.encode_to_vec();
        let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
        file.write_all(&MAGIC)?;
        file.write_all(&(head.len() as u32).to_le_bytes())?;
        file.write_all(&crc32fast::hash(&head).to_le_bytes())?;
        file.write_all(&head)?;
        for (_, content) in sections {
            file.write_all(content)?;
        }
        file.persist(path).map_err(|error| error.error)?;
        Ok(())
    }

    /// Removes what was not used for the longest time, until the rest is small enough; also what a writer
    /// that was killed has left.
    fn remove_old(&self) {
        let mut files: Vec<(SystemTime, u64, PathBuf)> = paths::files_of(&self.folder)
            .into_iter()
            .filter_map(|path| {
                let metadata = fs::symlink_metadata(&path).ok();
                let metadata = metadata.filter(fs::Metadata::is_file)?;
                Some((metadata.modified().ok()?, metadata.len(), path))
            })
            .collect();
        files.sort_unstable_by(|a, b| b.cmp(a));
        let mut bytes = 0;
        for (_, length, path) in files {
            bytes += length;
            if bytes > self.most_bytes {
                // Another recorder may have been faster.
                let _ = fs::remove_file(path);
            }
        }
    }
}

fn read(file: &mut File, bytes: u64) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    content.try_reserve_exact(bytes.try_into().ok()?).ok()?;
    file.take(bytes).read_to_end(&mut content).ok()?;
    (content.len() as u64 == bytes).then_some(content)
}

/// Whether a folder is this user's and nobody else can write to it.
fn is_own(folder: &Path) -> Option<bool> {
    let metadata = fs::symlink_metadata(folder).ok()?;
    let user = stackbeat_core::platform::effective_user();
    Some(metadata.is_dir() && metadata.uid() == user && metadata.mode() & 0o022 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const LENGTH: usize = LEAST_BYTES as usize;

    fn identity(build_id: u8) -> Identity {
        Identity {
            build_id: vec![build_id; 20],
            path: "/debug/file".into(),
            bytes: 5,
            modified_s: 6,
            modified_ns: 7,
        }
    }

    fn cache() -> (tempfile::TempDir, SymbolCache) {
        let directory = tempfile::tempdir().unwrap();
        let cache = SymbolCache::at(directory.path().join("a/b")).expect("made");
        (directory, cache)
    }

    /// What is kept for a debug file: one byte, again and again.
    fn store(cache: &SymbolCache, identity: Identity, byte: u8) {
        cache.store(
            identity,
            &[(".debug_info", &[byte; LENGTH]), (".debug_str", b"text")],
        );
    }

    fn files(cache: &SymbolCache) -> Vec<PathBuf> {
        let entries = fs::read_dir(&cache.folder).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    #[test]
    fn sections_come_back_for_the_same_debug_file() {
        let (_directory, cache) = cache();
        assert!(cache.load(&identity(1)).is_none());
        store(&cache, identity(1), 3);
        let sections = cache.load(&identity(1)).expect("kept");
        assert_eq!(sections[0], (".debug_info".into(), vec![3; LENGTH]));
        assert_eq!(sections[1], (".debug_str".into(), b"text".to_vec()));
        assert!(cache.load(&identity(2)).is_none());
        let others: [fn(&mut Identity); 4] = [
            |identity| identity.path.push('2'),
            |identity| identity.bytes += 1,
            |identity| identity.modified_s += 1,
            |identity| identity.modified_ns += 1,
        ];
        for change in others {
            let mut other = identity(1);
            change(&mut other);
            assert!(cache.load(&other).is_none(), "{other:?}");
        }
        let mut replaced = identity(1);
        replaced.bytes += 1;
        store(&cache, replaced.clone(), 4);
        assert!(cache.load(&identity(1)).is_none());
        assert_eq!(cache.load(&replaced).expect("kept")[0].1[0], 4);
        assert_eq!(files(&cache).len(), 1);
    }

    #[test]
    fn what_is_damaged_counts_as_absent_and_is_replaced() {
        let (_directory, cache) = cache();
        store(&cache, identity(1), 3);
        let path = files(&cache).remove(0);
        let whole = fs::read(&path).unwrap();
        let head = whole.len() - LENGTH;
        for at in (0..head).chain((head..whole.len()).step_by(997)) {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            fs::write(&path, damaged).unwrap();
            assert!(cache.load(&identity(1)).is_none(), "byte {at}");
        }
        for length in (0..head).chain([whole.len() - 1]) {
            fs::write(&path, &whole[..length]).unwrap();
            assert!(cache.load(&identity(1)).is_none(), "{length} bytes");
        }
        let longer = [whole.as_slice(), b"x"].concat();
        fs::write(&path, longer).unwrap();
        assert!(cache.load(&identity(1)).is_none());
        store(&cache, identity(1), 3);
        assert_eq!(fs::read(&path).unwrap(), whole);
    }

    #[test]
    fn what_was_not_used_for_the_longest_time_goes_first() {
        let (_directory, mut cache) = cache();
        cache.most_bytes = 3 * LENGTH as u64 + 1024;
        for id in 1..=3 {
            store(&cache, identity(id), id);
            let file = File::open(cache.folder.join(identity(id).file_name())).unwrap();
            let hours = u64::from(10 - id);
            let used = SystemTime::now() - Duration::from_secs(hours * 3600);
            file.set_modified(used).unwrap();
        }
        // As one that a writer left that was killed.
        let abandoned = File::create(cache.folder.join(".tmp1")).unwrap();
        abandoned.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        cache.load(&identity(1)).expect("kept");
        store(&cache, identity(4), 4);
        let left: Vec<bool> = (1..=4)
            .map(|id| cache.load(&identity(id)).is_some())
            .collect();
        assert_eq!(left, [true, false, true, true]);
        assert_eq!(files(&cache).len(), 3);
        // Neither too small nor too large.
        cache.store(identity(5), &[(".debug_info", &[0; LENGTH - 1])]);
        cache.store(
            identity(6),
            &vec![(".debug_info", [0; LENGTH].as_slice()); 2049],
        );
        assert_eq!(files(&cache).len(), 3);
    }

    #[test]
    fn writers_do_not_disturb_each_other() {
        let (_directory, cache) = cache();
        let stop = std::sync::atomic::AtomicBool::new(false);
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        store(&cache, identity(1), 0);
        std::thread::scope(|scope| {
            let (cache, stop) = (&cache, &stop);
            let writers: Vec<_> = (1..=2)
                .map(|byte| {
                    scope.spawn(move || (0..30).for_each(|_| store(cache, identity(1), byte)))
                })
                .collect();
            let reader = scope.spawn(move || {
                while !stop.load(relaxed) {
                    let sections = cache.load(&identity(1)).expect("one of them");
                    let content = &sections[0].1;
                    assert!(content.iter().all(|byte| *byte == content[0]));
                }
            });
            for writer in writers {
                writer.join().unwrap();
            }
            stop.store(true, relaxed);
            reader.join().unwrap();
        });
        assert_eq!(files(&cache).len(), 1);
    }

    #[test]
    fn a_folder_of_others_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join("stackbeat/symbols");
        assert!(SymbolCache::at(folder.clone()).is_some());
        let mode = fs::metadata(&folder).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o700);
        for open in [folder.as_path(), folder.parent().unwrap()] {
            fs::set_permissions(open, fs::Permissions::from_mode(0o770)).unwrap();
            assert!(SymbolCache::at(folder.clone()).is_none());
            fs::set_permissions(open, fs::Permissions::from_mode(0o755)).unwrap();
        }
        assert!(SymbolCache::at(folder.clone()).is_some());
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&folder, &link).unwrap();
        assert!(SymbolCache::at(link).is_none());
        fs::write(directory.path().join("file"), "").unwrap();
        assert!(SymbolCache::at(directory.path().join("file")).is_none());
        assert!(SymbolCache::at(directory.path().join("file/below")).is_none());
        // What has gone meanwhile is no failure.
        let cache = SymbolCache::at(folder.clone()).expect("there");
        fs::remove_dir_all(&folder).unwrap();
        store(&cache, identity(1), 1);
        assert!(cache.load(&identity(1)).is_none());
    }
}
