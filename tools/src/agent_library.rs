//! The agent library that this binary carries, and where it is put so that the dynamic loader of the
//! recorded program can map it.
//!
//! The file must lie on a mount that allows execution, in a folder nobody else can write to, and its
//! content must be ours: what a recorded program loads runs with its rights.
//!
//! A file stays when its recording ends. What was recorded may live on with it in LD_PRELOAD, and start
//! programs at any time: without the file the dynamic loader of each would say so on its standard error.
//! Another recorder may have found the file and not started its program yet. So a recording that uses a file
//! sets its time of last change, and removes others: those that nobody has used for a day, no process has
//! mapped, and none was started with.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fs::{self, File, Permissions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use lzma_rust2::XzReader;
use rustix::fs::StatVfsMountFlags;
use stackbeat_symbolize::paths;

use crate::user_folders::{is_private, private_folder};

/// Empty where no agent exists for the target.
static EMBEDDED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libstackbeat.so"));

/// The session inside a program, as the agent.
static EMBEDDED_SESSION: &[u8] =
    include_bytes!(concat!(env!("OUT_DIR"), "/libstackbeat_session.so"));

/// Files that nobody uses stay so long: a program that was recorded with one may start others with it.
const OLD: Duration = Duration::from_secs(24 * 3600);

/// Names another agent library, like `--agent`.
pub(crate) const VARIABLE: &str = "STACKBEAT_AGENT";

/// Bytes of the library inside this binary; 0: none.
pub(crate) fn embedded_bytes() -> usize {
    EMBEDDED.len()
}

/// The library to preload: the one that was asked for, or the embedded one, extracted.
pub(crate) fn locate(asked: Option<&Path>) -> Result<PathBuf> {
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
    take_out(EMBEDDED)
}

/// The library with the session inside a program: beside an agent that was asked for, or the embedded one,
/// extracted.
pub(crate) fn locate_session(asked_agent: Option<&Path>) -> Result<PathBuf> {
    let variable = std::env::var_os(VARIABLE).filter(|v| !v.is_empty());
    let asked = asked_agent.map(Path::to_path_buf);
    if let Some(agent) = asked.or_else(|| variable.map(PathBuf::from)) {
        let beside = agent.with_file_name("libstackbeat_session.so");
        return beside.canonicalize().with_context(|| {
            let path = beside.display();
            format!("{path}: --in-process needs this library beside the agent")
        });
    }
    take_out(EMBEDDED_SESSION)
}

/// The library itself: small binaries carry it packed (`build.rs`).
fn unpacked(embedded: &[u8]) -> io::Result<Cow<'_, [u8]>> {
    const ELF: &[u8] = b"\x7fELF";
    if embedded.is_empty() || embedded.starts_with(ELF) {
        return Ok(Cow::Borrowed(embedded));
    }
    let mut content = Vec::new();
    XzReader::new(embedded, false).read_to_end(&mut content)?;
    Ok(Cow::Owned(content))
}

fn take_out(embedded: &[u8]) -> Result<PathBuf> {
    let content = unpacked(embedded).context("the agent library in this binary is damaged")?;
    let content = &*content;
    if content.is_empty() {
        bail!(
            "this binary carries no agent library (it was built for another platform); name one \
             with --agent or {VARIABLE}"
        );
    }
    let folders = folders();
    let library = extract(&folders, content)?;
    for folder in &folders {
        remove_old(folder, &library);
    }
    Ok(library)
}

/// Folders to try, best first.
fn folders() -> Vec<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let mut folders = Vec::new();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.filter(|folder| folder.is_absolute());
    folders.extend(runtime.map(|p| p.join("stackbeat")));
    folders.extend(paths::user_caches().map(|p| p.join("stackbeat")));
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
    if !is_ours(&path, content)? || !renew(&path) {
        write_atomically(folder, &path, content)?;
    }
    Ok(path)
}

/// Notes that the file is used now. False: somebody has removed it meanwhile.
fn renew(path: &Path) -> bool {
    let Ok(file) = File::open(path) else {
        return false;
    };
    // Before the look: who removes it looks at the time last (`remove`).
    let renewed = file.set_modified(SystemTime::now());
    let inode = |metadata: io::Result<fs::Metadata>| metadata.map(|m| (m.dev(), m.ino())).ok();
    let own = inode(file.metadata());
    renewed.is_ok() && own.is_some() && own == inode(fs::symlink_metadata(path))
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
    let temporary = temporary(folder);
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

/// Removes what other versions, and extractions that were killed, have left in the folder: files of ours that
/// nobody has used for long.
fn remove_old(folder: &Path, own: &Path) {
    if !is_private(folder).unwrap_or(false) {
        return;
    }
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
    let used = in_use(&old);
    for path in &old {
        // Processes are looked through again in a day, not for each recording.
        match used.contains(path.as_path()) {
            true => _ = renew(path),
            false => remove(folder, path),
        }
    }
}

fn is_old(path: &Path) -> bool {
    let modified = fs::symlink_metadata(path).and_then(|m| m.modified());
    modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > OLD))
}

/// Those of the files that a process has mapped, or was started with: a program without an agent passes on
/// what is in its environment, too.
fn in_use(files: &[PathBuf]) -> HashSet<&Path> {
    let mut used = HashSet::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        for name in ["maps", "environ"] {
            let Ok(content) = fs::read(process.path().join(name)) else {
                continue;
            };
            for word in content.split(|byte| b"\n\0 :".contains(byte)) {
                let value = word
                    .iter()
                    .position(|byte| *byte == b'=')
                    .map(|at| &word[at + 1..]);
                let is_it = |file: &&PathBuf| {
                    let file = file.as_os_str().as_encoded_bytes();
                    word == file || value == Some(file)
                };
                used.extend(files.iter().find(is_it).map(PathBuf::as_path));
            }
        }
    }
    used
}

/// Removes an old file, unless somebody begins to use it at this moment: who does so renews it and then looks
/// whether it is there, so it is taken away first and then checked once more.
fn remove(folder: &Path, path: &Path) {
    let aside = temporary(folder);
    if fs::rename(path, &aside).is_err() {
        return;
    }
    let _ = match is_old(&aside) {
        true => fs::remove_file(&aside),
        // The content is that of its name, so nothing is lost where another one was made meanwhile.
        false => fs::rename(&aside, path),
    };
}

/// A name in the folder that nobody else uses.
fn temporary(folder: &Path) -> PathBuf {
    folder.join(format!(".{}.{}", std::process::id(), nanos()))
}

fn nanos() -> u128 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |d| d.as_nanos())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;

    use super::*;

    fn scratch() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary folder")
    }

    #[test]
    fn a_packed_library_is_the_same_as_one_that_is_not() {
        let library = [b"\x7fELF", &[7; 5000][..]].concat();
        let options = lzma_rust2::XzOptions::with_preset(9);
        let mut packed = lzma_rust2::XzWriter::new(Vec::new(), options).expect("begins");
        packed.write_all(&library).expect("packs");
        let packed = packed.finish().expect("packs");
        assert!(packed.len() < library.len());
        assert_eq!(unpacked(&packed).expect("unpacks"), library);
        assert_eq!(unpacked(&library).expect("is there"), library);
        assert!(unpacked(&[]).expect("none").is_empty());
        unpacked(&packed[..20]).expect_err("is damaged");
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

    fn make_old(path: &Path) {
        let file = File::open(path).expect("opens");
        let long_ago = SystemTime::now() - 2 * OLD;
        file.set_modified(long_ago).expect("dated");
    }

    #[test]
    fn old_files_that_nobody_uses_go() {
        let scratch = scratch();
        let folder = scratch.path().join("cache");
        let make = |content: &[u8]| extract(std::slice::from_ref(&folder), content);
        let sleep = fs::read("/bin/sleep").expect("is there");
        let mapped = make(&sleep).expect("extracts");
        let [old, young, inherited, again] =
            ["old", "young", "inherited", "again"].map(|c| make(c.as_bytes()).expect("extracts"));
        let others = folder.join("notes.so");
        fs::write(&others, b"mine").expect("writes");
        for path in [&old, &mapped, &inherited, &again, &others] {
            make_old(path);
        }
        // A program that runs without an agent, with one in its environment.
        let mut child = std::process::Command::new("sleep")
            .env(
                "ANY_PRELOAD",
                format!("libother.so:{}", inherited.display()),
            )
            .arg("100")
            .spawn()
            .expect("starts");
        // A copy that is a program is mapped while it runs.
        let mut holder = std::process::Command::new(&mapped);
        holder.arg0("sleep").arg("100");
        let mut holder = loop {
            match holder.spawn() {
                // Another test's child has the file open for writing until its exec.
                Err(e) if e.kind() == io::ErrorKind::ExecutableFileBusy => {}
                holder => break holder.expect("starts"),
            }
        };
        // A parent goes on a moment before its child's memory is complete (vfork).
        while in_use(&[inherited.clone(), mapped.clone()]).len() < 2 {
            std::thread::yield_now();
        }
        // The same version once more: it finds its file, and renews it.
        assert_eq!(make(b"again").expect("is there"), again);
        remove_old(&folder, &young);
        for process in [&mut child, &mut holder] {
            process.kill().expect("ends");
            process.wait().expect("has ended");
        }
        assert!(!old.exists());
        for path in [&young, &mapped, &inherited, &again, &others] {
            assert!(path.exists(), "{}", path.display());
        }
        // In use a moment ago: nobody looks again before a day is over.
        assert!(!is_old(&inherited) && !is_old(&again));
        make_old(&inherited);
        remove_old(&folder, &young);
        assert!(!inherited.exists() && young.exists());
        assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 4);
    }

    #[test]
    fn a_file_that_is_used_at_this_moment_is_put_back() {
        let scratch = scratch();
        let folder = scratch.path().join("cache");
        let path = extract(std::slice::from_ref(&folder), b"agent").expect("extracts");
        remove(&folder, &path);
        assert_eq!(fs::read(&path).expect("is there"), b"agent");
        make_old(&path);
        remove(&folder, &path);
        assert!(!path.exists() && !renew(&path));
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
