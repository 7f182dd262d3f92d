//! The files into which runtimes write the names of the code that they make, `perf-PID.map`: where they are,
//! and reading them while they grow. Anybody may put a file there, or change one.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use stackbeat_core::ids::Pid;
use stackbeat_core::platform;

/// Where runtimes leave their maps.
pub const FOLDER: &str = "/tmp";
/// No more is read of one file: something is wrong with a larger one.
const MOST_BYTES: u64 = 1 << 28;
/// So much of what was read is compared.
const LAST: usize = 64;

/// Where a process leaves its map.
pub fn path_of(pid: Pid) -> PathBuf {
    Path::new(FOLDER).join(format!("perf-{pid}.map"))
}

/// The same, as long as the process lives: it may have files of its own (a container, chroot).
pub fn path_of_living(pid: Pid) -> PathBuf {
    let link = |of: &str, name: &str| fs::read_link(format!("/proc/{of}/{name}")).ok();
    let is_as_ours = |name| {
        let its = link(&pid.to_string(), name);
        its.is_none() || its == link("self", name)
    };
    match is_as_ours("ns/mnt") && is_as_ours("root") {
        true => path_of(pid),
        false => {
            let root = PathBuf::from(format!("/proc/{pid}/root"));
            root.join(&FOLDER[1..]).join(format!("perf-{pid}.map"))
        }
    }
}

/// A map as it is now.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Its length.
    pub bytes: u64,
    /// How long ago it was written, ns.
    pub age_ns: u64,
    /// When, as the system's clock had it, ns.
    pub modified_ns: u64,
    /// It has no name any more; who has it open may go on writing.
    pub is_removed: bool,
}

/// An open map, read from where the last read ended.
#[derive(Debug)]
pub struct Tail {
    file: File,
    position: u64,
    /// The last bytes before `position`.
    last: Vec<u8>,
}

impl Tail {
    /// `None`: there is no map, or one that is older than `not_before` and so belongs to an earlier process
    /// of that number.
    pub fn open(path: &Path, not_before: Option<SystemTime>) -> Option<Tail> {
        // A link may lead anywhere, and a pipe must not be waited for.
        let mut options = File::options();
        let options = options
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY);
        let file = options.open(path).ok()?;
        let meta = file.metadata().ok().filter(fs::Metadata::is_file)?;
        let is_old = not_before
            .zip(meta.modified().ok())
            .is_some_and(|(limit, modified)| modified < limit);
        // Others may say nothing of this user's programs.
        let own = platform::effective_user();
        let may_say = own == 0 || meta.uid() == own || meta.uid() == 0;
        (!is_old && may_say).then_some(Tail {
            file,
            position: 0,
            last: Vec::new(),
        })
    }

    /// How it is now.
    pub fn look(&self) -> Option<Look> {
        let meta = self.file.metadata().ok()?;
        let now_ns = platform::clock_ns(libc::CLOCK_REALTIME);
        Some(Look {
            bytes: meta.len().min(MOST_BYTES),
            age_ns: now_ns.saturating_sub(modified_ns(&meta)),
            modified_ns: modified_ns(&meta),
            is_removed: meta.nlink() == 0,
        })
    }

    /// How much was read.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The file was cut off, and is written from its begin.
    pub fn begin_anew(&mut self) {
        self.position = 0;
        self.last.clear();
    }

    /// Whether what was read last still stands there: a JVM that is asked for its map once more writes the
    /// file from its begin.
    pub fn goes_on(&self) -> bool {
        let mut now = vec![0; self.last.len()];
        let from = self.position - self.last.len() as u64;
        let read = self.file.read_exact_at(&mut now, from);
        read.is_ok() && now == self.last
    }

    /// All that follows.
    pub fn read_all(&mut self) -> Vec<u8> {
        const PIECE: usize = 1 << 20;
        let mut all = Vec::new();
        loop {
            let mut piece = self.read(PIECE);
            if piece.is_empty() {
                return all;
            }
            all.append(&mut piece);
        }
    }

    /// What follows, at most so much. Empty at the end.
    pub fn read(&mut self, most: usize) -> Vec<u8> {
        let room = MOST_BYTES.saturating_sub(self.position);
        let mut bytes = vec![0; most.min(room as usize)];
        let read = loop {
            match self.file.read_at(&mut bytes, self.position) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read.unwrap_or(0),
            }
        };
        bytes.truncate(read);
        self.position += read as u64;
        self.last.extend(&bytes[read.saturating_sub(LAST)..]);
        self.last.drain(..self.last.len().saturating_sub(LAST));
        bytes
    }
}

fn modified_ns(meta: &fs::Metadata) -> u64 {
    (meta.mtime() as u64)
        .saturating_mul(1_000_000_000)
        .saturating_add(meta.mtime_nsec() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::Command;

    #[test]
    fn only_what_was_appended_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("perf-7.map");
        let mut file = File::create(&path).expect("made");
        let mut write = |text: &str| file.write_all(text.as_bytes()).expect("written");
        write("abc");
        let mut tail = Tail::open(&path, None).expect("is there");
        assert_eq!(tail.read(2), b"ab");
        assert_eq!(tail.read(9), b"c");
        assert_eq!(tail.read(9), b"");
        write("def");
        assert_eq!((tail.look().expect("open").bytes, tail.position()), (6, 3));
        assert!(tail.goes_on());
        fs::write(&path, "xyzdef").expect("written anew");
        assert!(!tail.goes_on());
        tail.begin_anew();
        assert!(tail.goes_on());
        assert_eq!(tail.read(3), b"xyz");
        // A file without a name is still read.
        fs::remove_file(&path).expect("removed");
        assert!(tail.look().expect("open").is_removed);
        assert_eq!(tail.read(9), b"def");
    }

    #[test]
    fn what_others_may_put_there_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("map"), "1000 10 a\n").expect("written");
        std::os::unix::fs::symlink(at("map"), at("link")).expect("made");
        let made = Command::new("mkfifo").arg(at("pipe")).status();
        assert!(made.expect("mkfifo runs").success());
        for name in ["link", "pipe", "none", "."] {
            assert!(Tail::open(&at(name), None).is_none(), "{name}");
        }
        assert!(Tail::open(&at("map"), Some(SystemTime::UNIX_EPOCH)).is_some());
        let later = SystemTime::now() + std::time::Duration::from_secs(60);
        assert!(Tail::open(&at("map"), Some(later)).is_none());
    }
}
