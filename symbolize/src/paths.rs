//! Questions about paths that the standard library asks libc, which takes memory of the program's malloc for
//! them (`opendir`, `realpath`). Inside a recorded program a thread of the session may not wait for that.
//! Here they are asked of the kernel.

use std::path::{Path, PathBuf};

/// The files of a folder, in no order; none when it cannot be read.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn files_of(folder: &Path) -> Vec<PathBuf> {
    use std::os::unix::ffi::OsStrExt;

    let mut found = Vec::new();
    let Ok(opened) = std::fs::File::open(folder) else {
        return found;
    };
    let mut space = [std::mem::MaybeUninit::uninit(); 8192];
    let mut entries = rustix::fs::RawDir::new(opened, &mut space);
    while let Some(Ok(entry)) = entries.next() {
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            found.push(folder.join(std::ffi::OsStr::from_bytes(name)));
        }
    }
    found
}

/// The same path without links, dots and gaps; `None`: there is no such file.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn real(path: &Path) -> Option<PathBuf> {
    use std::os::fd::AsRawFd;

    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, rustix::fs::Mode::empty()).ok()?;
    // Of this thread: it may have descriptors of its own.
    let link = format!("/proc/thread-self/fd/{}", opened.as_raw_fd());
    std::fs::read_link(link).ok()
}

/// The files of a folder, in no order; none when it cannot be read.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub fn files_of(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// The same path without links, dots and gaps; `None`: there is no such file.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub fn real(path: &Path) -> Option<PathBuf> {
    std::fs::canonicalize(path).ok()
}

/// Where this user's caches are: `$XDG_CACHE_HOME` (XDG Base Directory Specification), or `.cache` in the
/// home folder. A home that does not exist is not made: it is that of nobody (`/nonexistent`).
pub fn user_caches() -> Option<PathBuf> {
    user_caches_by(&|name| std::env::var_os(name).map(PathBuf::from))
}

fn user_caches_by(variable: &dyn Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let absolute = |name| variable(name).filter(|path| path.is_absolute());
    absolute("XDG_CACHE_HOME").or_else(|| {
        let home = absolute("HOME").filter(|home| home.is_dir())?;
        Some(home.join(".cache"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_home_that_does_not_exist_has_no_caches() {
        let of = |set: &[(&str, &str)]| {
            user_caches_by(&|name| {
                let found = set.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| PathBuf::from(value))
            })
        };
        assert_eq!(of(&[("HOME", "/")]), Some("/.cache".into()));
        assert_eq!(of(&[("HOME", "/nonexistent/of/nobody")]), None);
        assert_eq!(of(&[("HOME", "home")]), None);
        let both = [("HOME", "/nonexistent/of/nobody"), ("XDG_CACHE_HOME", "/c")];
        assert_eq!(of(&both), Some("/c".into()));
    }

    #[test]
    fn the_kernel_says_what_libc_says() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path().canonicalize().expect("is there");
        for i in 0..700 {
            std::fs::write(at.join(format!("a file with a long name, number {i}")), "")
                .expect("written");
        }
        let listed: BTreeSet<_> = files_of(&at).into_iter().collect();
        let read = std::fs::read_dir(&at).expect("is there").flatten();
        assert_eq!(listed, read.map(|e| e.path()).collect());
        assert_eq!(files_of(&at.join("none")), Vec::<PathBuf>::new());

        let link = at.join("link");
        std::os::unix::fs::symlink(&at, &link).expect("is made");
        let name = "a file with a long name, number 7";
        assert_eq!(real(&link.join(".").join(name)), Some(at.join(name)));
        assert_eq!(real(&link.join("none")), None);
    }
}
