//! Processes as the kernel shows them: who descends from whom, and what attaching must leave as it was.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, Mutex};
use std::time::SystemTime;

use crate::without_numbers;

/// The process and its descendants, parents first.
pub fn family(pid: u32) -> Vec<u32> {
    let children = |pid: u32| {
        let tasks = fs::read_dir(format!("/proc/{pid}/task"));
        let tasks = tasks.into_iter().flatten();
        let texts = tasks.filter_map(|t| fs::read_to_string(t.ok()?.path().join("children")).ok());
        let texts: Vec<_> = texts.collect();
        let pids = texts.iter().flat_map(|t| t.split_whitespace());
        pids.filter_map(|p| p.parse().ok()).collect::<Vec<u32>>()
    };
    let mut all = vec![pid];
    let mut next = 0;
    while let Some(pid) = all.get(next) {
        all.extend(children(*pid));
        next += 1;
    }
    all
}

/// Sends a signal: `-INT`, `-KILL`.
#[track_caller]
pub fn send(signal: &str, pid: u32) {
    let pid = pid.to_string();
    let sent = Command::new("kill").args([signal, &pid]).status();
    assert!(sent.expect("kill runs").success(), "{signal} {pid}");
}

/// Kills a process that has not ended yet, and its descendants.
pub fn end_family(child: &mut Child) {
    if matches!(child.try_wait(), Ok(None)) {
        for pid in family(child.id()) {
            // Somebody may have ended by itself.
            let _ = Command::new("kill")
                .args(["-KILL", &pid.to_string()])
                .stderr(Stdio::null())
                .status();
        }
        let _ = child.wait();
    }
}

/// What the kernel says of a process; empty when it is gone.
fn text(pid: u32, file: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default()
}

/// The rest of a line of `/proc/PID/status`.
pub fn status(pid: u32, key: &str) -> String {
    let status = text(pid, "status");
    let rest = status.lines().find_map(|line| line.strip_prefix(key));
    rest.unwrap_or_default()
        .trim_start_matches(':')
        .trim()
        .to_owned()
}

/// CPU time of a process so far, in hundredths of a second (proc_pid_stat(5): fields 14 and 15).
///
/// # Panics
/// When it is gone.
pub fn cpu_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let fields = stat.rsplit_once(") ").expect("a name").1.split(' ');
    let fields = fields.skip(11).take(2);
    fields.map(|f| f.parse::<u64>().expect("a number")).sum()
}

/// What /proc says of the status of each of its threads.
pub fn thread_statuses(pid: u32) -> impl Iterator<Item = String> {
    let status = |task: PathBuf| fs::read_to_string(task.join("status")).ok();
    folder(pid, "task").filter_map(status)
}

/// Whether somebody traces a thread of it.
pub fn is_traced(pid: u32) -> bool {
    thread_statuses(pid).any(|status| !status.contains("TracerPid:\t0\n"))
}

/// Whether it takes part in a session.
pub fn is_attached(pid: u32) -> bool {
    text(pid, "maps").contains("/stackbeat.")
}

/// How often each place of a file is the begin of a mapping of the process.
pub fn file_mappings(pid: u32) -> BTreeMap<(String, u64), usize> {
    let mut counts = BTreeMap::new();
    for file in files(pid) {
        *counts.entry((file.path, file.offset)).or_default() += 1;
    }
    counts
}

fn folder(pid: u32, name: &str) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(format!("/proc/{pid}/{name}"));
    entries.into_iter().flatten().flatten().map(|e| e.path())
}

/// A thread as the kernel shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The kernel's number.
    pub tid: u32,
    /// As the kernel shows it.
    pub name: String,
    /// Number of the system call that it is in.
    pub call: Option<u32>,
    /// How often it was put on a processor.
    pub times: u64,
}

/// The threads of a process.
pub fn tasks(pid: u32) -> Vec<Task> {
    let tasks = folder(pid, "task").filter_map(|task| {
        let text = |file: &str| fs::read_to_string(task.join(file)).ok();
        let call = text("syscall")?;
        Some(Task {
            tid: task.file_name()?.to_str()?.parse().ok()?,
            name: text("comm")?.trim().to_owned(),
            call: call.split(' ').next()?.parse().ok(),
            times: text("schedstat")?.split_whitespace().nth(2)?.parse().ok()?,
        })
    });
    tasks.collect()
}

/// What must be as before: threads, descriptors, handled signals, and nothing of a session mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Their names. Without jemalloc's own, which come when memory is given back.
    pub threads: Vec<String>,
    /// What is behind them, without numbers of sockets. Without postgres' data, whose files its processes
    /// open when they need them.
    pub descriptors: Vec<String>,
    /// Masks of what is blocked, ignored and caught, in hexadecimal.
    pub signals: [String; 3],
    /// Whether something of a session is mapped.
    pub is_attached: bool,
}

impl State {
    /// What a process is like now.
    pub fn of(pid: u32) -> State {
        let names = folder(pid, "task").map(|task| fs::read_to_string(task.join("comm")));
        let names = names.flatten().map(|name| name.trim().to_owned());
        let mut threads: Vec<_> = names.filter(|name| name != "jemalloc_bg_thd").collect();
        threads.sort_unstable();
        let behind = folder(pid, "fd").map(fs::read_link);
        let behind = behind
            .flatten()
            .map(|link| without_numbers(&link.to_string_lossy()));
        let mut descriptors: Vec<_> = behind.filter(|link| !link.contains("/data/")).collect();
        descriptors.sort_unstable();
        State {
            threads,
            descriptors,
            signals: ["SigBlk", "SigIgn", "SigCgt"].map(|key| status(pid, key)),
            is_attached: is_attached(pid),
        }
    }
}

/// Slots by module and address in it.
pub type Slots = BTreeMap<(String, u64), u64>;

/// Addresses of a module's slots, as `readelf` lists them.
fn listed(path: &str) -> Vec<u64> {
    /// By path and version of the file.
    type Listed = HashMap<(String, Option<SystemTime>), Vec<u64>>;
    static LISTED: LazyLock<Mutex<Listed>> = LazyLock::new(Mutex::default);
    let version = fs::metadata(path).and_then(|file| file.modified()).ok();
    let key = (path.to_owned(), version);
    // The list is made without the lock, so that what fails here fails in one test only.
    let known = LISTED
        .lock()
        .expect("nobody panics in here")
        .get(&key)
        .cloned();
    known.unwrap_or_else(|| {
        let list = listed_by_readelf(path);
        let mut all = LISTED.lock().expect("nobody panics in here");
        all.entry(key).or_insert(list).clone()
    })
}

fn listed_by_readelf(path: &str) -> Vec<u64> {
    let listing = Command::new("readelf").args(["-rW", path]).output();
    let listing = listing.expect("readelf runs").stdout;
    let listing = String::from_utf8_lossy(&listing);
    let is_slot = |line: &&str| line.contains("_JUMP_SLO") || line.contains("_GLOB_DAT");
    let slots = listing.lines().filter(is_slot);
    slots
        .filter_map(|line| line.split_ascii_whitespace().next())
        .map(hex)
        .collect()
}

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text, 16).expect("hexadecimal")
}

/// A mapping that has a file.
struct FileMapping {
    range: Range<u64>,
    offset: u64,
    is_code: bool,
    path: String,
}

fn files(pid: u32) -> Vec<FileMapping> {
    let maps = text(pid, "maps");
    let lines = maps.lines().filter_map(|line| {
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        // A file that has no name any more has another word behind it.
        let [range, rights, offset, _, _, path, ..] = fields[..] else {
            return None;
        };
        let (begin, end) = range.split_once('-')?;
        Some(FileMapping {
            range: hex(begin)..hex(end),
            offset: hex(offset),
            is_code: rights.contains('x'),
            path: path.starts_with('/').then(|| path.to_owned())?,
        })
    });
    lines.collect()
}

/// The file that is mapped at an address; empty where none is.
fn file_at(files: &[FileMapping], address: u64) -> &str {
    let found = files.iter().find(|f| f.range.contains(&address));
    found.map_or("", |f| f.path.as_str())
}

/// Whether calls between modules go through the agent.
pub fn is_hooked(pid: u32) -> bool {
    let files = files(pid);
    let leads_to_agent = |value: &u64| file_at(&files, *value).contains("libstackbeat");
    slots(pid).values().any(leads_to_agent)
}

/// The contents of all slots through which modules call each other, except the agent's own.
pub fn slots(pid: u32) -> Slots {
    let memory = File::open(format!("/proc/{pid}/mem")).expect("readable");
    let files = files(pid);
    let mut found = Slots::new();
    for code in files.iter().filter(|f| f.is_code) {
        let path = &code.path;
        // Its header stands right before it; the agent may have a copy to read elsewhere.
        let before = files.iter().filter(|f| f.path == *path && f.offset == 0);
        let bases = before.map(|f| f.range.start);
        let Some(base) = bases.filter(|base| *base <= code.range.start).max() else {
            continue;
        };
        if path.contains("libstackbeat") {
            continue;
        }
        for address in listed(path) {
            // A program that is not position independent lies at its own addresses.
            let at = if address >= base {
                address
            } else {
                base + address
            };
            let mut value = [0; 8];
            if memory.read_exact_at(&mut value, at).is_ok() {
                found.insert((path.clone(), address), u64::from_le_bytes(value));
            }
        }
    }
    found
}

/// Slots that a visit has left as they were not. One that led to its own module before, because nobody had
/// called through it yet, may have been bound meanwhile, but not to the agent.
pub fn slots_left_changed(pid: u32, before: &Slots) -> Vec<(String, u64)> {
    let files = files(pid);
    let module = |value: u64| file_at(&files, value);
    let after = slots(pid);
    let is_changed = |(slot, value): &(&(String, u64), &u64)| {
        let now = after.get(slot).copied();
        let was_lazy = module(**value) == slot.0;
        let is_bound = now.is_some_and(|now| !module(now).contains("libstackbeat"));
        now != Some(**value) && !(was_lazy && is_bound)
    };
    let changed = before.iter().filter(is_changed);
    changed.map(|(slot, _)| slot.clone()).collect()
}
