//! What a process uses of the system, as its files in /proc say: for counters.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use stackbeat_core::ids::{Pid, Tid};
use stackbeat_core::platform;
use stackbeat_symbolize::paths;

use crate::host::{Resources, Use};

/// A process that is asked about again and again, by a file that stays open.
#[derive(Debug)]
pub(crate) struct OfProcess {
    pid: Pid,
    stat: File,
    page_bytes: u64,
}

impl OfProcess {
    /// `None`: there is no such process, or it does not let us look.
    pub(super) fn open(pid: Pid) -> Option<OfProcess> {
        Some(OfProcess {
            pid,
            stat: File::open(format!("/proc/{pid}/stat")).ok()?,
            page_bytes: platform::page_bytes() as u64,
        })
    }
}

impl Resources for OfProcess {
    fn read(&mut self) -> Use {
        let stat = read_stat(&self.stat);
        Use {
            resident_bytes: stat.map(|stat| stat.resident_pages.saturating_mul(self.page_bytes)),
            threads: stat.map(|stat| stat.threads),
            faults: stat.map(|stat| stat.faults),
            descriptors: descriptors(self.pid),
            others: Vec::new(),
        }
    }
}

/// Minor and major faults of a thread of this process. 0 when it has ended.
pub(crate) fn faults_of_thread(tid: Tid) -> [u64; 2] {
    let stat = File::open(format!("/proc/self/task/{tid}/stat"));
    let stat = stat.ok().and_then(|file| read_stat(&file));
    stat.map_or([0; 2], |stat| stat.faults)
}

/// What /proc/PID/stat says (proc(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    /// Minor and major ones.
    faults: [u64; 2],
    threads: u64,
    resident_pages: u64,
}

fn read_stat(file: &File) -> Option<Stat> {
    let mut text = [0; 512];
    let length = file.read_at(&mut text, 0).ok()?;
    parse_stat(std::str::from_utf8(&text[..length]).ok()?)
}

/// Fields are counted behind the name, which may hold anything but a later `)`. `None` of a process that has
/// ended and nobody has waited for: it has no memory and no threads any more.
fn parse_stat(text: &str) -> Option<Stat> {
    let mut fields = text.rsplit_once(") ")?.1.split(' ');
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    let mut field = |skip: usize| fields.nth(skip)?.parse::<u64>().ok();
    Some(Stat {
        faults: [field(6)?, field(1)?],
        threads: field(7)?,
        resident_pages: field(3)?,
    })
}

/// Open descriptors: the size of the folder since Linux 6.2, its entries before.
fn descriptors(pid: Pid) -> Option<u64> {
    let folder = format!("/proc/{pid}/fd");
    match std::fs::metadata(&folder).ok()?.size() {
        0 => Some(paths::files_of(Path::new(&folder)).len() as u64),
        count => Some(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_stat_are_found_behind_any_name() {
        let text = "77 (a) b) c) S 1 77 77 0 -1 4194560 1234 9 5 0 30 4 0 0 20 0 12 0 99 \
                    1000000 321 18446744073709551615 1 1 0 0 0 0 0 4096 0 0 0 0 17 0 0 0 0 0 0";
        let expected = Stat {
            faults: [1234, 5],
            threads: 12,
            resident_pages: 321,
        };
        assert_eq!(parse_stat(text), Some(expected));
        assert_eq!(parse_stat("77 (x) S 1"), None);
        assert_eq!(parse_stat(&text.replace(") S ", ") Z ")), None);
    }

    #[test]
    fn this_process_is_read() {
        let mut process = OfProcess::open(Pid(std::process::id())).expect("our own");
        let before = process.read();
        let opened: Vec<_> = (0..10).map(|_| File::open("/proc/self/stat")).collect();
        let found = process.read();
        drop(opened);
        assert!(found.resident_bytes > Some(1 << 20), "{found:?}");
        assert!(
            found.threads >= Some(1) && found.descriptors >= Some(10),
            "{found:?}"
        );
        assert!(found.faults >= before.faults, "{found:?}");
    }
}
