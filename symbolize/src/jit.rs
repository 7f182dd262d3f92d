//! Names of code made at run time: the `/tmp/perf-PID.map` files that V8 (`node --perf-basic-prof`),
//! CPython (`-X perf`), JVM agents and others write for perf. One line a function: start, size, name.
//!
//! Memory of compiled code is used again. A line holds from when it was written until a later one overlaps
//! it, so an address may have several names, one after the other.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use stackbeat_core::ids::Pid;
use stackbeat_proto::v1;

/// Lines read of one file. Above, something is wrong with it.
const MOST_LINES: usize = 8_000_000;
const LONGEST_LINE: u64 = 1 << 16;
/// Times that lines may give or take names of wanted addresses, for the same reason.
const MOST_CHANGES: usize = 64 << 20;
/// Names that one address may have, and those of one process together. Beyond, the last one replaces the one
/// before.
const MOST_NAMES_OF_ADDRESS: usize = 1024;
const MOST_NAMES: usize = 2 << 20;

/// When the bytes of a file were written: each length with the time from which on what it adds holds, ns.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    steps: Vec<(u64, u64)>,
}

impl Growth {
    pub(crate) fn add(&mut self, map: &v1::JitMap) {
        if self.steps.last().is_some_and(|last| map.bytes < last.0) {
            self.steps.clear();
        }
        self.steps.push((map.bytes, map.from_ns));
    }

    /// From when on a line that ends at this byte holds. Lines that nobody saw appear are the latest.
    fn holds_from(&self, end: u64) -> u64 {
        let at = self.steps.partition_point(|(bytes, _)| *bytes < end);
        self.steps.get(at).map_or(u64::MAX, |(_, from_ns)| *from_ns)
    }
}

/// Where the run-time compiler of a process leaves its map.
pub(crate) fn map_of(folder: &Path, pid: Pid) -> PathBuf {
    folder.join(format!("perf-{pid}.map"))
}

/// An address' names: from when on each holds, ns, and its index in [`JitNames::names`]; `None`: none does.
type Timeline = Vec<(u64, Option<u32>)>;

/// The names of some addresses of one process.
#[derive(Debug, Default)]
pub(crate) struct JitNames {
    pub names: Vec<String>,
    /// Of each address, in their order. The first entry is a name that also holds before its time.
    pub timelines: Vec<Timeline>,
    /// Names that were left out because there are too many.
    pub left_out: usize,
}

impl JitNames {
    /// Looks these addresses up, which are sorted and distinct. `None` when there is no map, or when it is
    /// older than `not_before` and so belongs to an earlier process of that number.
    pub(crate) fn open(
        path: &Path,
        not_before: Option<SystemTime>,
        growth: &Growth,
        addresses: &[u64],
    ) -> Option<JitNames> {
        // What anybody may put there must not be waited for.
        let mut options = File::options();
        let options = options
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let file = options.open(path).ok()?;
        let meta = file.metadata().ok()?;
        if !meta.is_file() {
            return None;
        }
        if let (Some(limit), Ok(modified)) = (not_before, meta.modified())
            && modified < limit
        {
            return None;
        }
        let reader = BufReader::new(file);
        Some(JitNames::read(reader, growth, addresses))
    }

    fn read(mut reader: impl BufRead, growth: &Growth, addresses: &[u64]) -> JitNames {
        let mut names = Names {
            found: JitNames {
                timelines: vec![Timeline::new(); addresses.len()],
                ..JitNames::default()
            },
            ..Names::default()
        };
        // The functions in force: by start, the end and the name. None overlaps another.
        let mut in_force: BTreeMap<u64, (u64, Option<u32>)> = BTreeMap::new();
        let range = |start: u64, end: u64| {
            addresses.partition_point(|a| *a < start)..addresses.partition_point(|a| *a < end)
        };
        let mut line = Vec::new();
        let mut position = 0;
        for _ in 0..MOST_LINES {
            line.clear();
            match std::io::Read::take(&mut reader, LONGEST_LINE).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => break,
                Ok(bytes) => position += bytes as u64,
            }
            let text = String::from_utf8_lossy(&line);
            // .NET 8 ends a line by a zero now and then.
            for line in text.split('\0') {
                let Some((start, end, name)) = parse(line) else {
                    continue;
                };
                let from_ns = growth.holds_from(position);
                while let Some((&old_start, &(old_end, old_name))) =
                    in_force.range(..end).next_back()
                    && old_end > start
                {
                    in_force.remove(&old_start);
                    if old_name.is_some() {
                        names.set(range(old_start, old_end), from_ns, None);
                    }
                }
                let wanted = range(start, end);
                let name = (!wanted.is_empty()).then(|| names.index(name));
                names.set(wanted, from_ns, name);
                in_force.insert(start, (end, name));
            }
            if names.changes > MOST_CHANGES {
                break;
            }
        }
        names.found
    }
}

/// Names in the making.
#[derive(Debug, Default)]
struct Names {
    found: JitNames,
    indices: HashMap<Box<str>, u32>,
    entries: usize,
    changes: usize,
}

impl Names {
    fn index(&mut self, name: &str) -> u32 {
        if let Some(index) = self.indices.get(name) {
            return *index;
        }
        let index = self.found.names.len() as u32;
        self.found.names.push(name.to_owned());
        self.indices.insert(name.into(), index);
        index
    }

    /// These addresses have another name from now on.
    fn set(&mut self, addresses: std::ops::Range<usize>, from_ns: u64, name: Option<u32>) {
        self.changes += addresses.len();
        for timeline in &mut self.found.timelines[addresses] {
            // What held for no time goes; what then repeats the entry before says nothing new.
            while timeline.last().is_some_and(|last| last.0 >= from_ns) {
                timeline.pop();
                self.entries -= 1;
            }
            let last = timeline.last_mut();
            if last.as_ref().map_or(name.is_none(), |last| last.1 == name) {
                continue;
            }
            let is_full = timeline.len() >= MOST_NAMES_OF_ADDRESS || self.entries >= MOST_NAMES;
            match timeline.last_mut() {
                Some(last) if is_full => {
                    last.1 = name;
                    self.found.left_out += 1;
                }
                _ => {
                    timeline.push((from_ns, name));
                    self.entries += 1;
                }
            }
        }
    }
}

/// Start, end and name.
fn parse(line: &str) -> Option<(u64, u64, &str)> {
    let mut words = line.trim_end().splitn(3, ' ');
    let mut hex = || u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok();
    let (start, size) = (hex()?, hex()?);
    let name = words.next()?;
    Some((start, start.checked_add(size)?, name)).filter(|_| size > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of these addresses: from when on, and which.
    fn look_up(
        text: &[u8],
        steps: &[(u64, u64)],
        addresses: &[u64],
    ) -> Vec<Vec<(u64, Option<String>)>> {
        let mut growth = Growth::default();
        for &(bytes, from_ns) in steps {
            growth.add(&v1::JitMap {
                upid: 1,
                from_ns,
                bytes,
            });
        }
        let found = JitNames::read(text, &growth, addresses);
        let name = |index: Option<u32>| index.map(|index| found.names[index as usize].clone());
        let timelines = found.timelines.iter();
        timelines
            .map(|timeline| {
                timeline
                    .iter()
                    .map(|(ns, index)| (*ns, name(*index)))
                    .collect()
            })
            .collect()
    }

    fn last(timeline: &[(u64, Option<String>)]) -> Option<&str> {
        timeline.last().and_then(|(_, name)| name.as_deref())
    }

    fn named(from_ns: u64, name: &str) -> (u64, Option<String>) {
        (from_ns, Some(name.to_owned()))
    }

    #[test]
    fn a_line_that_ends_with_a_zero_is_one() {
        let found = look_up(b"1000 40 f\x000x2000 90 g\n", &[], &[0x1000, 0x2000]);
        let names: Vec<_> = found.iter().map(|timeline| last(timeline)).collect();
        assert_eq!(names, [Some("f"), Some("g")]);
    }

    #[test]
    fn without_times_the_last_entry_counts_and_garbage_is_skipped() {
        let found = look_up(
            b"1000 40 LazyCompile:*old /a.js:1\nnonsense\n\xff\xfe 1 2\n0x2000 10 with space\n1000 20 new\n",
            &[],
            &[0xfff, 0x1000, 0x101f, 0x1020, 0x200f],
        );
        let names: Vec<_> = found.iter().map(|timeline| last(timeline)).collect();
        assert_eq!(
            names,
            [None, Some("new"), Some("new"), None, Some("with space")]
        );
        assert!(found.iter().all(|timeline| timeline.len() <= 1));
    }

    #[test]
    fn each_entry_holds_from_its_time_until_another_overlaps_it() {
        // Lines of 9 bytes.
        let text = b"1000 10 a\n1008 10 b\n1000 10 a\n2000 10 c\n";
        let steps = [(10, 100), (20, 200), (30, 300), (40, 400)];
        let found = look_up(text, &steps, &[0x1000, 0x1008, 0x1010, 0x2000]);
        assert_eq!(found[0], [named(100, "a"), (200, None), named(300, "a")]);
        assert_eq!(
            found[1],
            [named(100, "a"), named(200, "b"), named(300, "a")]
        );
        assert_eq!(found[2], [named(200, "b"), (300, None)]);
        assert_eq!(found[3], [named(400, "c")]);
    }

    #[test]
    fn of_lines_that_appeared_together_the_last_counts() {
        let text = b"1000 10 a\n1000 10 b\n1000 10 a\n1000 10 c\n";
        let found = look_up(text, &[(10, 100), (30, 200)], &[0x1000]);
        assert_eq!(found[0], [named(100, "a"), named(u64::MAX, "c")]);
        // The same name again is no other.
        let found = look_up(text, &[(10, 100), (30, 200), (40, 200)], &[0x1000]);
        assert_eq!(found[0], [named(100, "a"), named(200, "c")]);
    }

    #[test]
    fn a_file_that_was_begun_anew_forgets_its_times() {
        let text = b"1000 10 a\n1000 10 b\n";
        let found = look_up(text, &[(500, 100), (10, 200), (20, 300)], &[0x1000]);
        assert_eq!(found[0], [named(200, "a"), named(300, "b")]);
    }

    #[test]
    fn an_address_has_so_many_names_and_no_more() {
        let count = MOST_NAMES_OF_ADDRESS as u64 + 10;
        let (mut text, mut steps) = (Vec::new(), Vec::new());
        for i in 0..count {
            text.extend(format!("1000 10 f{i}\n").bytes());
            steps.push((text.len() as u64, i));
        }
        let found = look_up(&text, &steps, &[0x1000]);
        assert_eq!(found[0].len(), MOST_NAMES_OF_ADDRESS);
        assert_eq!(found[0][1], named(1, "f1"));
        assert_eq!(last(&found[0]), Some(format!("f{}", count - 1).as_str()));
    }
}
