//! When run-time compilers write the names of their code: watches how the program's perf maps grow, and gives
//! the drain what is new, with its time (`crate::drain::generated_code`). A map that is open is read to its
//! end even when somebody removes it. Runs on the ticker's thread: no code is compiled while it is parked.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use stackbeat_core::ids::{Pid, Upid};
use stackbeat_core::platform;
use stackbeat_symbolize::paths;
use stackbeat_symbolize::perf_map::file::{self, Tail};

use super::orders::Order;
use super::shared::Shared;
use crate::drain::generated_code::{MapLines, PIECE};

/// Distance between two polls of the maps, ns, and how much longer it is for each map: a poll takes 1 µs.
const POLL_NS: u64 = 2_000_000;
const POLL_EACH_NS: u64 = 1_000_000;
/// The drain takes larger pieces soon: they are not to pile up.
const LARGE: usize = 64 << 10;
/// No more is read while so much waits for the drain, bytes.
const MOST_QUEUED: usize = 1 << 20;
/// Distance between two searches for new maps, ns, and for each process without one.
const SEARCH_NS: u64 = 5_000_000;
const SEARCH_EACH_NS: u64 = 2_000_000;
/// A process' code is looked at so long after its map has grown, and twice as long each time, ns: V8 maps its
/// builtins right after it has opened the map, and once more for each worker.
const LOOK_AT_CODE_NS: u64 = 50_000_000;
const MOST_DOUBLINGS: u32 = 6;
/// Growth by so much is a few lines, of which each holds from a moment of its own on.
const FEW_BYTES: u64 = 256;
/// More lines are taken to have come within so much, ns.
const SPREAD_NS: u64 = 50_000_000;

/// Removes what V8 or .NET has written in these processes because we told it to, and what is of no use to
/// anybody else: the maps, .NET's list of assemblies beside it, and the logs that V8 begins in the current
/// folder as soon as it is to write a map. What other runtimes wrote is their users', and so is a log with
/// anything that somebody may have asked for. Where a file cannot be removed it stays, as it would without
/// us. `folders`: where the processes were.
pub(crate) fn remove(
    pids: impl Iterator<Item = Pid>,
    folders: &BTreeSet<PathBuf>,
    not_before: SystemTime,
) {
    let own = platform::effective_user();
    let is_its = |file: &Path| {
        fs::symlink_metadata(file).is_ok_and(|meta| {
            meta.is_file() && meta.uid() == own && meta.modified().is_ok_and(|at| at >= not_before)
        })
    };
    let mut of_v8 = HashSet::new();
    for pid in pids {
        let map = file::path_of(pid);
        if is_its(&map) && is_of_v8(&map) {
            let _ = fs::remove_file(map);
            of_v8.insert(pid);
            continue;
        }
        let list = list_of_assemblies(pid);
        if is_its(&map) && is_its(&list) && is_of_dotnet(&list) {
            let _ = fs::remove_file(map);
            let _ = fs::remove_file(list);
        }
    }
    if of_v8.is_empty() {
        return;
    }
    for file in folders.iter().flat_map(|folder| paths::files_of(folder)) {
        let is_of_these = log_of(&file).is_some_and(|pid| of_v8.contains(&pid));
        if is_of_these && is_its(&file) && says_nothing(&file) {
            let _ = fs::remove_file(file);
        }
    }
}

/// Whose log a file is by its name, `isolate-0x3652bc0-24047-v8.log` (V8's src/logging/log.cc,
/// `PrepareLogFileName`).
fn log_of(file: &Path) -> Option<Pid> {
    let name = file.file_name()?.to_str()?;
    let middle = name.strip_prefix("isolate-0x")?.strip_suffix("-v8.log")?;
    let (isolate, pid) = middle.split_once('-')?;
    let is_address = isolate.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_address.then_some(())?;
    pid.parse().ok().map(Pid)
}

/// Whether a log has only what V8 writes into each.
fn says_nothing(log: &Path) -> bool {
    const OF_EACH: [&str; 6] = [
        "v8-version",
        "v8-platform",
        "new",
        "delete",
        "heap-capacity",
        "heap-available",
    ];
    let is_of_each = |line: io::Result<String>| {
        line.is_ok_and(|line| OF_EACH.contains(&line.split(',').next().unwrap_or_default()))
    };
    fs::File::open(log).is_ok_and(|log| BufReader::new(log).lines().all(is_of_each))
}

/// Whether V8 has written a map: its own functions come first, `18c4000 300
/// Builtin:DeoptimizationEntry_Eager`.
fn is_of_v8(map: &Path) -> bool {
    const FIRST_BYTES: u64 = 256;

    let mut first = Vec::new();
    let read = fs::File::open(map).and_then(|map| map.take(FIRST_BYTES).read_to_end(&mut first));
    let line = first.split(|byte| *byte == b'\n').next();
    let name = line.and_then(|line| line.splitn(3, |byte| *byte == b' ').nth(2));
    read.is_ok() && name.is_some_and(|name| name.starts_with(b"Builtin:"))
}

/// Where .NET lists the assemblies of a process that writes a map (`PerfInfo` of
/// src/coreclr/vm/perfinfo.cpp).
fn list_of_assemblies(pid: Pid) -> PathBuf {
    Path::new(file::FOLDER).join(format!("perfinfo-{pid}.map"))
}

/// Whether .NET has written such a list; one of a process that ended early is empty.
fn is_of_dotnet(list: &Path) -> bool {
    const BEGIN: &[u8] = b"ImageLoad;";

    let mut first = Vec::new();
    let read =
        fs::File::open(list).and_then(|list| list.take(BEGIN.len() as u64).read_to_end(&mut first));
    read.is_ok() && (first.is_empty() || first == BEGIN)
}

/// The maps of the program's processes.
#[derive(Debug, Default)]
pub(crate) struct JitMaps {
    /// By the process' upid.
    processes: HashMap<Upid, Process>,
    next_poll_ns: u64,
    next_search_ns: u64,
}

#[derive(Debug)]
struct Process {
    path: PathBuf,
    /// `None`: none was found so far.
    map: Option<Map>,
}

#[derive(Debug)]
struct Map {
    tail: Tail,
    /// How long it was when it was last looked at, and when that was.
    bytes: u64,
    modified_ns: u64,
    polled_ns: u64,
    /// What was not read yet holds from then on, ns: lines one after the other between these two.
    from_ns: u64,
    until_ns: u64,
    begins_anew: bool,
    is_removed: bool,
    /// When the process' code is to be looked at: after growth.
    look_at_code_ns: Option<u64>,
    /// How often that was done.
    looks: u32,
}

impl JitMaps {
    /// Looks, if it is time. `processes`: upid and pid of those that live.
    pub(crate) fn step(
        &mut self,
        shared: &Shared,
        processes: impl Iterator<Item = (Upid, Pid)>,
        now_ns: u64,
    ) {
        if now_ns < self.next_poll_ns && now_ns < self.next_search_ns {
            return;
        }
        self.poll(shared, now_ns);
        if now_ns >= self.next_search_ns {
            self.next_search_ns = now_ns + self.search(shared, processes, now_ns);
        }
        let maps = self.processes.values().filter(|p| p.map.is_some()).count();
        self.next_poll_ns = match maps as u64 {
            0 => u64::MAX,
            maps => now_ns + POLL_NS.max(maps * POLL_EACH_NS),
        };
    }

    /// Finds the maps of processes that had none, and those that took the place of a removed one, and forgets
    /// processes that ended. Gives the distance to the next search, ns.
    fn search(
        &mut self,
        shared: &Shared,
        processes: impl Iterator<Item = (Upid, Pid)>,
        now_ns: u64,
    ) -> u64 {
        let mut living = HashSet::new();
        let mut searched = 0;
        for (upid, pid) in processes {
            living.insert(upid);
            let process = self.processes.entry(upid).or_insert_with(|| Process {
                path: file::path_of_living(pid),
                map: None,
            });
            if process.map.as_ref().is_some_and(|map| !map.is_removed) {
                continue;
            }
            searched += 1;
            if let Some(tail) = Tail::open(&process.path, Some(shared.program_began_at)) {
                let begins_anew = match &mut process.map {
                    Some(removed) => {
                        removed.read_rest(shared, upid, now_ns);
                        true
                    }
                    None => {
                        shared.folders.add_that_of(pid);
                        false
                    }
                };
                process.map = Some(Map::new(tail, begins_anew));
            }
        }
        self.processes.retain(|upid, process| {
            let lives = living.contains(upid);
            if let (false, Some(map)) = (lives, &mut process.map) {
                map.read_rest(shared, *upid, now_ns);
            }
            lives
        });
        SEARCH_NS.max(searched * SEARCH_EACH_NS)
    }

    /// Reads what was appended, as much as the drain keeps up with.
    fn poll(&mut self, shared: &Shared, now_ns: u64) {
        let mut room = match shared.map_bytes.load(Ordering::Relaxed) > MOST_QUEUED {
            true => 0,
            false => PIECE,
        };
        for (upid, process) in &mut self.processes {
            if let Some(map) = &mut process.map {
                if map.look_at_code_ns.is_some_and(|at_ns| at_ns <= now_ns) {
                    map.look_at_code_ns = None;
                    map.looks += 1;
                    shared.order_later(Order::FindCopiesOfCode(*upid));
                }
                if room > 0 {
                    room = room.saturating_sub(map.poll(shared, *upid, now_ns));
                }
            }
        }
    }

    /// The session ends: reads all that there is.
    pub(crate) fn finish(mut self, shared: &Shared, now_ns: u64) {
        for (upid, process) in &mut self.processes {
            if let Some(map) = &mut process.map {
                map.read_rest(shared, *upid, now_ns);
            }
        }
    }
}

impl Map {
    fn new(tail: Tail, begins_anew: bool) -> Map {
        Map {
            tail,
            bytes: 0,
            modified_ns: 0,
            polled_ns: 0,
            from_ns: 0,
            until_ns: 0,
            begins_anew,
            is_removed: false,
            look_at_code_ns: None,
            looks: 0,
        }
    }

    /// Reads a piece of what was appended, and gives its length.
    fn poll(&mut self, shared: &Shared, upid: Upid, now_ns: u64) -> usize {
        let before_ns = std::mem::replace(&mut self.polled_ns, now_ns);
        let Some(look) = self.tail.look() else {
            return 0;
        };
        self.is_removed = look.is_removed;
        let before = std::mem::replace(&mut self.modified_ns, look.modified_ns);
        let is_written = look.bytes != self.bytes || look.modified_ns != before;
        if look.bytes < self.bytes || is_written && !self.tail.goes_on() {
            self.tail.begin_anew();
            self.begins_anew = true;
            self.bytes = 0;
        }
        if look.bytes > self.bytes {
            let distance_ns = LOOK_AT_CODE_NS << self.looks.min(MOST_DOUBLINGS);
            (self.look_at_code_ns).get_or_insert(now_ns + distance_ns);
            // The lines came after the poll before and until the file's time, the last one at that time. Of
            // many the earliest moment counts: new code runs at once, and what was there before is seldom
            // still in use. After a pause the poll before is long ago.
            let written_ns = now_ns.saturating_sub(look.age_ns);
            let earliest_ns = before_ns.max(written_ns.saturating_sub(SPREAD_NS));
            if self.tail.position() == self.bytes {
                let are_few = look.bytes - self.bytes <= FEW_BYTES;
                self.until_ns = if are_few { written_ns } else { earliest_ns };
                self.from_ns = earliest_ns;
            }
            self.bytes = look.bytes;
        }
        let left = self.bytes.saturating_sub(self.tail.position());
        let bytes = match left {
            0 => return 0,
            _ => self.tail.read(PIECE.min(left as usize)),
        };
        let (read, is_large) = (bytes.len(), bytes.len() >= LARGE);
        shared.map_bytes.fetch_add(read, Ordering::Relaxed);
        let mut order = |from_ns, bytes| {
            let lines = Order::MapLines(MapLines {
                upid,
                from_ns,
                begins_anew: std::mem::take(&mut self.begins_anew),
                bytes,
            });
            match is_large {
                true => shared.order(lines),
                false => shared.order_later(lines),
            }
        };
        let span_ns = self.until_ns.saturating_sub(self.from_ns);
        if span_ns == 0 {
            order(self.from_ns, bytes);
            return read;
        }
        // Nobody knows when each came.
        let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
        for (line, number) in lines.iter().zip(1..) {
            let from_ns = self.from_ns + span_ns * number / lines.len() as u64;
            order(from_ns, line.to_vec());
        }
        read
    }

    /// Reads all that there is now: who writes on is not waited for.
    fn read_rest(&mut self, shared: &Shared, upid: Upid, now_ns: u64) {
        let mut left = self.tail.look().map_or(0, |look| look.bytes as usize);
        while left > 0 {
            match self.poll(shared, upid, now_ns) {
                0 => return,
                read => left = left.saturating_sub(read),
            }
        }
    }
}
