//! When run-time compilers write the names of their code: watches how the program's `perf-PID.map` files
//! grow, so that each name holds from its time on (`symbolize::jit`). Runs on the ticker's thread: no code is
//! compiled while it is parked.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use stackbeat_core::ids::{Pid, Upid};
use stackbeat_core::platform;
use stackbeat_proto::v1::{self, packet};
use stackbeat_symbolize::paths;

use super::orders::Order;
use super::shared::Shared;

/// Where compilers leave their maps.
const FOLDER: &str = "/tmp";
/// Distance between two polls of the maps, ns, and how much longer it is for each map: a poll takes 1 to 2
/// µs.
const POLL_NS: u64 = 2_000_000;
const POLL_EACH_NS: u64 = 1_000_000;
/// After so many steps of growth polls are twice as far apart, after twice as many three times: what a long
/// session remembers stays small.
const STEPS: u64 = 1 << 14;
/// Distance between two searches for new maps, ns, and for each process without one.
const SEARCH_NS: u64 = 5_000_000;
const SEARCH_EACH_NS: u64 = 2_000_000;
/// A process' code is looked at so long after its map has grown, and twice as long each time, ns: V8 maps its
/// builtins right after it has opened the map, and once more for each worker.
const LOOK_AT_CODE_NS: u64 = 50_000_000;
const MOST_DOUBLINGS: u32 = 6;
/// Growth by so much is taken for a single line.
const LINE_BYTES: u64 = 256;
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
        let map = map_of(pid);
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
    Path::new(FOLDER).join(format!("perfinfo-{pid}.map"))
}

/// Whether .NET has written such a list; one of a process that ended early is empty.
fn is_of_dotnet(list: &Path) -> bool {
    const BEGIN: &[u8] = b"ImageLoad;";

    let mut first = Vec::new();
    let read =
        fs::File::open(list).and_then(|list| list.take(BEGIN.len() as u64).read_to_end(&mut first));
    read.is_ok() && (first.is_empty() || first == BEGIN)
}

fn map_of(pid: Pid) -> PathBuf {
    Path::new(FOLDER).join(format!("perf-{pid}.map"))
}

/// The maps of the program's processes.
#[derive(Debug, Default)]
pub(crate) struct JitMaps {
    /// By the process' upid.
    maps: HashMap<Upid, Map>,
    next_poll_ns: u64,
    next_search_ns: u64,
    steps: u64,
}

#[derive(Debug)]
struct Map {
    pid: Pid,
    bytes: u64,
    /// When it was last looked at.
    polled_ns: u64,
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
        // Before the search, which forgets those of processes that have ended.
        self.poll(shared, now_ns);
        if now_ns >= self.next_search_ns {
            self.next_search_ns = now_ns + self.search(shared, processes);
        }
        let distance_ns = POLL_NS.max(self.maps.len() as u64 * POLL_EACH_NS);
        self.next_poll_ns = match self.maps.is_empty() {
            true => u64::MAX,
            false => now_ns + distance_ns * (1 + self.steps / STEPS),
        };
    }

    /// Finds the maps of processes that had none, and forgets those of processes that ended. Gives the
    /// distance to the next search, ns.
    fn search(&mut self, shared: &Shared, processes: impl Iterator<Item = (Upid, Pid)>) -> u64 {
        let mut living = HashSet::new();
        let mut searched = 0;
        for (upid, pid) in processes {
            living.insert(upid);
            if self.maps.contains_key(&upid) {
                continue;
            }
            searched += 1;
            if length(pid).is_some() {
                shared.folders.add_that_of(pid);
                let map = Map {
                    pid,
                    bytes: 0,
                    polled_ns: 0,
                    look_at_code_ns: None,
                    looks: 0,
                };
                self.maps.insert(upid, map);
            }
        }
        self.maps.retain(|upid, _| living.contains(upid));
        SEARCH_NS.max(searched * SEARCH_EACH_NS)
    }

    /// Tells how the maps have grown.
    pub(crate) fn poll(&mut self, shared: &Shared, now_ns: u64) {
        for (upid, map) in &mut self.maps {
            if map.look_at_code_ns.is_some_and(|at_ns| at_ns <= now_ns) {
                map.look_at_code_ns = None;
                map.looks += 1;
                shared.order_later(Order::FindCopiesOfCode(*upid));
            }
            let before_ns = std::mem::replace(&mut map.polled_ns, now_ns);
            let Some((bytes, age_ns)) = length(map.pid).filter(|found| found.0 != map.bytes) else {
                continue;
            };
            let grown = bytes.saturating_sub(map.bytes);
            map.bytes = bytes;
            let distance_ns = LOOK_AT_CODE_NS << map.looks.min(MOST_DOUBLINGS);
            (map.look_at_code_ns).get_or_insert(now_ns + distance_ns);
            self.steps += 1;
            // The lines came after the poll before and until the file's time, a single one at that time. Of
            // many the earliest moment counts: new code runs at once, and what was there before is seldom
            // still in use. After a pause the poll before is long ago.
            let written_ns = now_ns.saturating_sub(age_ns);
            let spread_ns = if grown <= LINE_BYTES { 0 } else { SPREAD_NS };
            let from_ns = before_ns.max(written_ns.saturating_sub(spread_ns));
            let body = packet::Body::JitMap(v1::JitMap {
                upid: upid.0,
                from_ns,
                bytes,
            });
            shared.order_later(Order::Say(Box::new(body)));
        }
    }
}

/// The length of a process' map, and how long ago it was written, ns.
fn length(pid: Pid) -> Option<(u64, u64)> {
    let path = map_of(pid);
    let meta = fs::symlink_metadata(path)
        .ok()
        .filter(|meta| meta.is_file())?;
    let now_ns = platform::clock_ns(libc::CLOCK_REALTIME);
    Some((meta.len(), now_ns.saturating_sub(modified_ns(&meta))))
}

fn modified_ns(meta: &fs::Metadata) -> u64 {
    (meta.mtime() as u64)
        .saturating_mul(1_000_000_000)
        .saturating_add(meta.mtime_nsec() as u64)
}
