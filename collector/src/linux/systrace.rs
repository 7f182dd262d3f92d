//! Finds the trace_marker that agents write programs' own events to, and judges it. The agents open it
//! themselves; what they find has to be what was judged here.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use stackbeat_core::shm::mapping::{Mapping, Marker};

use crate::session::error::Warning;
use crate::session::options::{Options, Systrace};

/// Where tracefs is mounted, and where it was before Linux 4.1 (Documentation/trace/ftrace.rst).
const USUAL: [&str; 2] = [
    "/sys/kernel/tracing/trace_marker",
    "/sys/kernel/debug/tracing/trace_marker",
];
/// The file's name in tracefs.
const NAME: &str = "trace_marker";
/// `TRACEFS_MAGIC` and `DEBUGFS_MAGIC` of include/uapi/linux/magic.h.
const FILE_SYSTEMS: [i64; 2] = [0x7472_6163, 0x6462_6720];

/// Room for events that nobody has read so far, bytes: some ten thousand. The most that users may ask for
/// (`pipe-max-size`, proc_sys_fs(5)).
const PIPE_BYTES: usize = 1 << 20;
/// How long a reader has for what is left when the program has ended.
const READER_TIMEOUT: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(20);

/// A pipe that the recorder keeps open too, so that a reader who comes late, even after a short program,
/// finds what was written.
pub(super) struct KeptPipe {
    path: PathBuf,
    file: fs::File,
}

impl KeptPipe {
    fn keep(path: &Path, file: fs::File) -> KeptPipe {
        // With less room more is counted as not written.
        let _ = rustix::pipe::fcntl_setpipe_size(&file, PIPE_BYTES);
        KeptPipe {
            path: path.to_owned(),
            file,
        }
    }

    /// Waits a moment for somebody to read what is left. Says so when nobody does.
    pub(super) fn settle(&self) -> Option<Warning> {
        let until = Instant::now() + READER_TIMEOUT;
        loop {
            match rustix::io::ioctl_fionread(&self.file) {
                Ok(0) | Err(_) => return None,
                Ok(bytes) if Instant::now() >= until => {
                    return Some(Warning::SystraceUnread {
                        path: self.path.clone(),
                        bytes,
                    });
                }
                Ok(_) => std::thread::sleep(POLL),
            }
        }
    }
}

/// Tells the agents where to write, if that was asked for. What does not work is a warning: the trace has the
/// same events.
pub(super) fn prepare(
    options: &Options,
    mapping: &Mapping,
    kept: &mut Option<KeptPipe>,
) -> Option<Warning> {
    let path = match options.systrace.as_ref()? {
        Systrace::At(path) => path.clone(),
        Systrace::Usual => usual(),
    };
    // The program may be in another folder when it opens it.
    let path = std::path::absolute(&path).unwrap_or(path);
    match judge(&path) {
        Ok((file, opened)) => {
            *kept = file.is_pipe.then(|| KeptPipe::keep(&path, opened));
            let marker = Marker {
                path: path.as_os_str().as_bytes(),
                device: file.device,
                inode: file.inode,
                is_pipe: file.is_pipe,
            };
            match mapping.set_marker(&marker) {
                true => is_off(&path),
                false => Some(warning(path, &Unfit::PathTooLong)),
            }
        }
        Err(unfit) => Some(warning(path, &unfit)),
    }
}

fn warning(path: PathBuf, unfit: &Unfit) -> Warning {
    let reason = unfit.to_string();
    Warning::NoSystrace { path, reason }
}

fn usual() -> PathBuf {
    let is_there = |path: &&&str| Path::new(path).exists();
    PathBuf::from(USUAL.iter().find(is_there).unwrap_or(&USUAL[0]))
}

/// Why agents do not write to a file.
#[derive(Debug, thiserror::Error)]
enum Unfit {
    #[error("the path is too long")]
    PathTooLong,
    #[error("it is neither the kernel's trace_marker nor a named pipe (`mkfifo`)")]
    OtherFile,
    #[error("it is no file of tracefs, where the kernel's trace_marker is")]
    NotInTracefs,
    #[error(
        "permission denied; record as root, or let users in: `mount -o remount,mode=755 /sys/kernel/tracing` and \
         `chmod a+w` for the file"
    )]
    PermissionDenied,
    #[error(
        "there is no such file; `mount -t tracefs nodev /sys/kernel/tracing` makes the kernel's appear"
    )]
    Missing,
    #[error("{0}")]
    Io(io::Error),
}

impl From<io::Error> for Unfit {
    fn from(error: io::Error) -> Unfit {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Unfit::PermissionDenied,
            io::ErrorKind::NotFound => Unfit::Missing,
            _ => Unfit::Io(error),
        }
    }
}

struct File {
    device: u64,
    inode: u64,
    is_pipe: bool,
}

/// Opens it as the agents will. Other files are refused: writing to one could send the program a signal
/// (SIGXFSZ at its limit of file sizes, SIGTTOU at a terminal), and the other files of tracefs are the
/// kernel's settings.
fn judge(path: &Path) -> Result<(File, fs::File), Unfit> {
    let before = fs::metadata(path)?;
    let is_pipe = before.file_type().is_fifo();
    let is_named = path.file_name().is_some_and(|name| name == NAME);
    if !(is_pipe || before.is_file() && is_named) {
        return Err(Unfit::OtherFile);
    }
    let file = OpenOptions::new()
        .write(true)
        // A pipe nobody reads cannot be opened for writing alone without waiting.
        .read(is_pipe)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)?;
    let status = file.metadata()?;
    let is_right = match is_pipe {
        true => status.file_type().is_fifo(),
        false => is_in_tracefs(&file),
    };
    if !is_right {
        return Err(Unfit::NotInTracefs);
    }
    let judged = File {
        device: status.dev(),
        inode: status.ino(),
        is_pipe,
    };
    Ok((judged, file))
}

fn is_in_tracefs(file: &fs::File) -> bool {
    #[allow(
        clippy::unnecessary_cast,
        reason = "the types differ between architectures"
    )]
    rustix::fs::fstatfs(file).is_ok_and(|status| FILE_SYSTEMS.contains(&(status.f_type as i64)))
}

/// Whether the kernel takes nothing at the moment.
fn is_off(marker: &Path) -> Option<Warning> {
    let switch = marker.with_file_name("tracing_on");
    let is_off = fs::read_to_string(&switch).is_ok_and(|text| text.trim() == "0");
    is_off.then(|| Warning::SystraceOff {
        marker: marker.to_owned(),
        switch,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pipes_and_trace_markers_are_taken() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(at(NAME), "").expect("writes");
        fs::write(at("plain"), "").expect("writes");
        for (path, part) in [
            (at(NAME), "no file of tracefs"),
            (at("plain"), "neither"),
            (folder.path().to_owned(), "neither"),
            ("/dev/null".into(), "neither"),
            (at("missing"), "no such file"),
        ] {
            let unfit = judge(&path).err();
            let reason = unfit.map_or(String::new(), |unfit| unfit.to_string());
            assert!(reason.contains(part), "{}: {reason}", path.display());
        }
        assert_eq!(fs::read(at("plain")).expect("reads"), b"");

        let pipe = at("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("mkfifo runs").success());
        let (file, _) = judge(&pipe).expect("fit");
        let status = fs::metadata(&pipe).expect("is there");
        assert!(file.is_pipe);
        assert_eq!((file.device, file.inode), (status.dev(), status.ino()));
    }
}
