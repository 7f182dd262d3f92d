//! The agent library that this binary carries, and where it is put so that the dynamic loader of the
//! recorded program can map it.
//!
//! The file must lie on a mount that allows execution, in a folder nobody else can write to, and its
//! content must be ours: what a recorded program loads runs with its rights.

use std::fs::{self, DirBuilder, File, Permissions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::fs::StatVfsMountFlags;
use stackbeat_symbolize::SymbolCache;

/// Empty where no agent exists for the target.
static EMBEDDED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libstackbeat.so"));

/// Files of other versions stay so long: a program that was recorded with one may start others with it.
const OLD: Duration = Duration::from_secs(24 * 3600);

/// Names another agent library, like `--agent`.
pub const VARIABLE: &str = "STACKBEAT_AGENT";

/// Bytes of the library inside this binary; 0: none.
pub fn embedded_bytes() -> usize {
    EMBEDDED.len()
}

/// The library to preload: the one that was asked for, or the embedded one, extracted.
pub fn locate(asked: Option<&Path>) -> Result<PathBuf> {
    let asked = match asked {
        Some(path) => Some(path.to_path_buf()),
        None => std::env::var_os(VARIABLE)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from),
    };
    if let Some(path) = asked {
        return path
            .canonicalize()
            .with_context(|| format!("{}: the agent library cannot be used", path.display()));
    }
    if EMBEDDED.is_empty() {
        bail!(
            "this binary carries no agent library (it was built for another platform); name one \
             with --agent or {VARIABLE}"
        );
    }
    extract(&folders(), EMBEDDED)
}

/// Folders to try, best first.
fn folders() -> Vec<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    let mut folders = Vec::new();
    folders.extend(absolute("XDG_RUNTIME_DIR").map(|p| p.join("stackbeat")));
    folders.extend(
        absolute("XDG_CACHE_HOME")
            .or_else(|| absolute("HOME").map(|p| p.join(".cache")))
            .map(|p| p.join("stackbeat")),
    );
    // What root extracts must also be readable by programs that root starts as somebody else.
    if uid == 0 {
        folders.insert(0, PathBuf::from("/run/stackbeat"));
    }
    for parent in ["/dev/shm", "/tmp", "/var/tmp"] {
        folders.push(Path::new(parent).join(format!("stackbeat-{uid}")));
    }
    folders
}

fn extract(folders: &[PathBuf], content: &[u8]) -> Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    let name = format!("libstackbeat-{:016x}.so", hasher.finish());
    let mut refusals = Vec::new();
    for folder in folders {
        match extract_into(folder, &name, content) {
            Ok(path) => return Ok(path),
            Err(error) => refusals.push(format!("{}: {error:#}", folder.display())),
        }
    }
    bail!(
        "no folder can hold the agent library; extract it yourself and name it with --agent\n  {}",
        refusals.join("\n  ")
    )
}

fn extract_into(folder: &Path, name: &str, content: &[u8]) -> Result<PathBuf> {
    // The dynamic loader splits LD_PRELOAD at spaces and colons (ld.so(8)).
    if folder.to_string_lossy().contains([' ', ':', '\t', '\n']) {
        bail!("its name has a space or a colon, which LD_PRELOAD cannot express");
    }
    private_folder(folder)?;
    if rustix::fs::statvfs(folder)?
        .f_flag
        .contains(StatVfsMountFlags::NOEXEC)
    {
        bail!("mounted noexec");
    }
    let path = folder.join(name);
    if !is_ours(&path, content)? {
        write_atomically(folder, &path, content)?;
        remove_old(folder, &path);
    }
    Ok(path)
}

/// Makes the folder, or checks that an existing one is ours alone.
fn private_folder(folder: &Path) -> Result<()> {
    let uid = rustix::process::geteuid().as_raw();
    // Programs that root starts under another identity must be able to load what root extracted;
    // root's files cannot be replaced by them all the same.
    let mode = if uid == 0 { 0o755 } else { 0o700 };
    match DirBuilder::new().recursive(false).mode(mode).create(folder) {
        // Whatever the umask says.
        Ok(()) => fs::set_permissions(folder, Permissions::from_mode(mode))?,
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            // ~/.cache of a new user.
            let parent = folder.parent().context("has no parent")?;
            DirBuilder::new().mode(0o700).create(parent)?;
            DirBuilder::new().mode(mode).create(folder)?;
        }
        Err(e) => return Err(e.into()),
    }
    let metadata = fs::symlink_metadata(folder)?;
    if !metadata.is_dir() || metadata.uid() != uid || metadata.mode() & 0o022 != 0 {
        bail!("exists and is not a private folder of this user");
    }
    Ok(())
}

fn is_ours(path: &Path, content: &[u8]) -> Result<bool> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(e.into()),
    };
    if !metadata.is_file() || metadata.len() != content.len() as u64 {
        return Ok(false);
    }
    let mut found = Vec::with_capacity(content.len());
    File::open(path)?.read_to_end(&mut found)?;
    Ok(found == content)
}

fn write_atomically(folder: &Path, path: &Path, content: &[u8]) -> Result<()> {
    let temporary = folder.join(format!(".{}.{}", std::process::id(), nanos()));
    let write = || -> io::Result<()> {
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o755)
            .open(&temporary)?;
        file.write_all(content)?;
        file.set_permissions(Permissions::from_mode(0o755))?;
        drop(file);
        fs::rename(&temporary, path)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })?;
    Ok(())
}

/// Removes what other versions, and extractions that were killed, have left in the folder: old files of ours that no
/// process has mapped.
fn remove_old(folder: &Path, own: &Path) {
    let is_old = |path: &Path| {
        let modified = fs::symlink_metadata(path).and_then(|m| m.modified());
        modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > OLD))
    };
    let items = fs::read_dir(folder).into_iter().flatten().flatten();
    let old: Vec<PathBuf> = items
        .filter(|item| {
            let name = item.file_name().to_string_lossy().into_owned();
            (name.starts_with("libstackbeat-") && name.ends_with(".so")) || name.starts_with('.')
        })
        .map(|item| item.path())
        .filter(|path| path != own && is_old(path))
        .collect();
    if old.is_empty() {
        return;
    }
    let maps: Vec<Vec<u8>> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|item| fs::read(item.path().join("maps")).ok())
        .collect();
    for path in old {
        let name = path.as_os_str().as_encoded_bytes();
        let is_mapped = |maps: &Vec<u8>| maps.split(|b| *b == b'\n').any(|l| l.ends_with(name));
        if !maps.iter().any(is_mapped) {
            let _ = fs::remove_file(path);
        }
    }
}

fn nanos() -> u128 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| d.as_nanos())
}

/// What of names is kept from one recording to the next.
pub fn symbol_cache(is_unwanted: bool) -> Option<SymbolCache> {
    (!is_unwanted).then(SymbolCache::of_user).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary folder")
    }

    #[test]
    fn extracts_once_and_repairs_a_damaged_file() {
        let scratch = scratch();
        let folder = scratch.path().join("cache");
        let first = extract(std::slice::from_ref(&folder), b"agent").expect("extracts");
        let inode = fs::metadata(&first).expect("exists").ino();
        let again = extract(std::slice::from_ref(&folder), b"agent").expect("extracts");
        assert_eq!(fs::metadata(&again).expect("exists").ino(), inode);
        fs::write(&first, b"agenT").expect("writable");
        extract(std::slice::from_ref(&folder), b"agent").expect("extracts");
        assert_eq!(fs::read(&first).expect("readable"), b"agent");
        assert_eq!(
            fs::read_dir(&folder).expect("a folder").count(),
            1,
            "no temporary file is left"
        );
    }

    #[test]
    fn old_files_that_nobody_uses_go_when_a_new_one_comes() {
        let scratch = scratch();
        let folder = scratch.path().join("cache");
        let old = extract(std::slice::from_ref(&folder), b"old").expect("extracts");
        let young = extract(std::slice::from_ref(&folder), b"young").expect("extracts");
        let others = folder.join("notes.so");
        fs::write(&others, b"mine").expect("writes");
        for path in [&old, &others] {
            let file = File::options().write(true).open(path).expect("opens");
            let long_ago = std::time::SystemTime::now() - 2 * OLD;
            file.set_modified(long_ago).expect("dated");
        }
        let new = extract(std::slice::from_ref(&folder), b"new").expect("extracts");
        assert!(new.exists() && young.exists() && others.exists() && !old.exists());
    }

    #[test]
    fn a_folder_that_others_can_write_is_refused() {
        let scratch = scratch();
        let open = scratch.path().join("open");
        fs::create_dir(&open).expect("creates");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("chmod");
        let error = extract(std::slice::from_ref(&open), b"agent").expect_err("is refused");
        assert!(
            error.to_string().contains("not a private folder"),
            "{error}"
        );
        let link = scratch.path().join("link");
        let real = scratch.path().join("real");
        fs::create_dir(&real).expect("creates");
        std::os::unix::fs::symlink(&real, &link).expect("links");
        extract(&[link], b"agent").expect_err("a link is refused");
        let good = scratch.path().join("good");
        let path = extract(&[open, good.clone()], b"agent").expect("falls back");
        assert!(path.starts_with(good));
    }

    #[test]
    fn a_folder_with_a_space_cannot_be_preloaded_from() {
        let scratch = scratch();
        let error = extract(&[scratch.path().join("a b")], b"agent").expect_err("is refused");
        assert!(error.to_string().contains("LD_PRELOAD"), "{error}");
    }
}
