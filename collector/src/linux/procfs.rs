//! What /proc says about a process, and the end of processes that are not our children.

use std::fs;
use std::io;
use std::ops::Range;
use std::ops::RangeBounds;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::param::clock_ticks_per_second;
use rustix::process;
use stackbeat_core::ids::{Pid, Tid};
use stackbeat_core::platform;
use stackbeat_symbolize::paths;

use crate::host::{CopyOfCode, Scheduled, Whose, name_of_file};

/// Notices the end of a process.
#[derive(Debug)]
pub(super) struct Watch(OwnedFd);

impl Watch {
    /// `None` when there is no such process (any more), or the kernel has no pidfds (before 5.3).
    pub(super) fn open(pid: Pid) -> Option<Watch> {
        if !platform::apps_may_call(libc::SYS_pidfd_open) {
            return None;
        }
        // SAFETY: pidfd_open takes a pid and flags and returns a new descriptor or an error; rustix lacks it
        // for Android.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.0 as libc::pid_t, 0) };
        let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
        // SAFETY: the descriptor is new and nobody else's.
        Some(Watch(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Whether all its threads have ended.
    pub(super) fn has_ended(&self) -> bool {
        let mut polled = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec::default())) == Ok(1)
    }
}

/// Readable once all its threads have ended.
impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Who has this pid. An agent in a pid namespace of its own (a sandbox) names a number that means somebody
/// else here, or nobody. Ours is who has the session's mapping mapped; of those that do not let us look, who
/// descends from such a process, or from `first_pid`, in our pid namespace. `mapping` is the file name of the
/// session's mapping; `first_pid` that of the program: kernels count pids up, so that one of its descendants
/// has a lower one only after the numbers have begun anew; and none has started before.
pub(super) fn identify(pid: Pid, mapping: &[u8], first_pid: Pid) -> Whose {
    let maps = match fs::read(format!("/proc/{pid}/maps")) {
        // Another user's, or not dumpable, and we have not the rights of a debugger (ptrace(2)).
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            if is_descendant(pid, mapping, first_pid) {
                return Whose::Ours;
            }
            Vec::new()
        }
        maps => maps.unwrap_or_default(),
    };
    if maps.is_empty() {
        let wrapped = last_pid().is_none_or(|last| last < first_pid);
        let is_older = (pid < first_pid && !wrapped) || has_started_before(pid, first_pid);
        return if is_kernel_thread(pid) || is_older {
            Whose::Foreign
        } else {
            Whose::Gone
        };
    }
    if is_mapped(&maps, mapping) {
        Whose::Ours
    } else {
        Whose::Foreign
    }
}

fn is_mapped(maps: &[u8], mapping: &[u8]) -> bool {
    maps.split(|b| *b == b'\n')
        .any(|line| line.ends_with(mapping))
}

/// Whether a process of our pid namespace descends from one with the mapping, or from `first_pid`. Needs no
/// rights: parents and namespaces are for all to read (proc(5), stat and status).
fn is_descendant(pid: Pid, mapping: &[u8], first_pid: Pid) -> bool {
    // Deeper than programs go.
    const GENERATIONS: usize = 64;
    let is_in_our_namespace = fs::read_to_string(format!("/proc/{pid}/status"))
        .unwrap_or_default()
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))
        .is_some_and(|pids| pids.split_ascii_whitespace().count() == 1);
    is_in_our_namespace
        && std::iter::successors(parent(pid), |pid| parent(*pid))
            .take_while(|pid| *pid > Pid(1))
            .take(GENERATIONS)
            .any(|pid| {
                let maps = || fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
                pid == first_pid || is_mapped(&maps(), mapping)
            })
}

/// The parent: the second field behind the name (proc(5), stat).
pub(super) fn parent(pid: Pid) -> Option<Pid> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(1)?.parse().ok().map(Pid)
}

/// The parent of a process, its parent, and so on.
pub(super) fn ancestors(pid: Pid) -> Vec<Pid> {
    // The parent of a parent that has ended meanwhile may be anybody.
    const GENERATIONS: usize = 1024;
    std::iter::successors(parent(pid), |pid| parent(*pid))
        .take_while(|pid| *pid != Pid(0))
        .take(GENERATIONS)
        .collect()
}

/// Whether a process is one that its user lets look into it: one of another user takes root's rights. A
/// process that is not dumpable belongs to root here (proc(5), /proc/pid).
pub(super) fn may_be_inspected(pid: Pid) -> bool {
    let user = platform::effective_user();
    user == 0 || fs::metadata(format!("/proc/{pid}")).is_ok_and(|folder| folder.uid() == user)
}

/// Whether a process may open files that only the recorder's user may: it is that user's, or root's, whose
/// are also those that are not dumpable (proc(5), /proc/pid).
pub(super) fn may_open_ours(pid: Pid) -> bool {
    let own = platform::effective_user();
    let user = fs::metadata(format!("/proc/{pid}")).map(|folder| folder.uid());
    user.is_ok_and(|user| user == own || user == 0)
}

/// When a process started, in clock ticks since boot: the twentieth field behind the name (proc(5), stat).
fn start_ticks(pid: Pid) -> Option<u64> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(19)?.parse().ok()
}

/// Whether one process started before another, and both are there.
fn has_started_before(pid: Pid, other: Pid) -> bool {
    let started = start_ticks(pid).zip(start_ticks(other));
    started.is_some_and(|(one, other)| one < other)
}

/// When a process started.
pub(crate) fn started_at(pid: Pid) -> Option<SystemTime> {
    let ticks = start_ticks(pid)?;
    let ticks_ns = ticks.checked_mul(1_000_000_000)?;
    let start_ns = ticks_ns.checked_div(clock_ticks_per_second())?;
    let age_ns = platform::clock_ns(libc::CLOCK_BOOTTIME).saturating_sub(start_ns);
    SystemTime::now().checked_sub(Duration::from_nanos(age_ns))
}

/// Flag PF_KTHREAD (include/linux/sched.h) in the seventh field behind the name (proc(5), stat).
pub(super) fn is_kernel_thread(pid: Pid) -> bool {
    const PF_KTHREAD: u64 = 0x0020_0000;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let flags = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.split(' ').nth(6)?.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & PF_KTHREAD != 0)
}

/// Every process whose pid is among these, and its parent.
pub(super) fn parents(pids: impl RangeBounds<Pid>) -> Vec<(Pid, Pid)> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok().map(Pid))
        .filter(|pid| pids.contains(pid))
        .filter_map(|pid| Some((pid, parent(pid)?)))
        .collect()
}

/// The pid that was given out last (proc(5), loadavg).
pub(super) fn last_pid() -> Option<Pid> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().last()?.parse().ok().map(Pid)
}

/// Whether a process with this pid exists.
pub(super) fn exists(pid: Pid) -> bool {
    let pid = i32::try_from(pid.0).ok().and_then(process::Pid::from_raw);
    pid.is_some_and(|pid| process::test_kill_process(pid) != Err(Errno::SRCH))
}

/// Whether a pid is that of a process, not of one of its further threads, which are numbered with them.
pub(super) fn is_process(pid: Pid) -> bool {
    // A thread has no descriptor of this kind (pidfd_open(2), PIDFD_THREAD aside).
    Watch::open(pid).is_some()
}

/// The CPU clock of a process (include/linux/posix-timers_types.h: MAKE_PROCESS_CPUCLOCK(pid,
/// CPUCLOCK_SCHED)).
pub(super) fn process_clock(pid: Pid) -> libc::clockid_t {
    const CPUCLOCK_SCHED: libc::clockid_t = 2;
    (!(pid.0 as libc::clockid_t) << 3) | CPUCLOCK_SCHED
}

/// CPU time of a process so far, also of one that has ended and nobody has waited for.
pub(super) fn process_cpu_ns(pid: Pid) -> Option<u64> {
    match platform::clock_ns(process_clock(pid)) {
        0 => None,
        ns => Some(ns),
    }
}

/// Whether a process is in a pid namespace below ours, so that it has another pid for itself.
pub(super) fn is_in_other_pid_namespace(pid: Pid) -> bool {
    fs::read_to_string(format!("/proc/{pid}/status"))
        .unwrap_or_default()
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))
        .is_some_and(|pids| pids.split_ascii_whitespace().count() > 1)
}

/// The command line, empty when it cannot be read.
pub(super) fn command_line(pid: Pid) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let Some(bytes) = bytes.strip_suffix(b"\0") else {
        return Vec::new();
    };
    bytes
        .split(|b| *b == 0)
        .map(|part| String::from_utf8_lossy(part).into_owned())
        .collect()
}

/// Whether an entry (`NAME=value`) stands in the environment that a process' program began with. Takes the
/// rights of a debugger.
pub(super) fn has_in_environment(pid: Pid, entry: &[u8]) -> bool {
    let bytes = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    bytes.split(|b| *b == 0).any(|e| e == entry)
}

/// The path of the executable, empty when it cannot be read.
pub(super) fn executable(pid: Pid) -> String {
    fs::read_link(format!("/proc/{pid}/exe"))
        .map(|path| path.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// The path that was given to exec (`AT_EXECFN`, getauxval(3)), empty when it cannot be read.
pub(super) fn started_as(pid: Pid) -> String {
    let auxv = auxiliary_vector(pid).unwrap_or_default();
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
    let mut entries = auxv.chunks_exact(16);
    let Some(entry) = entries.find(|entry| word(&entry[..8]) == libc::AT_EXECFN) else {
        return String::new();
    };
    let address = word(&entry[8..]);
    let mut path = [0; 4096];
    let length = platform::read_memory(pid.0, address, &mut path).unwrap_or(0);
    let path = &path[..length];
    let end = path.iter().position(|b| *b == 0).unwrap_or(0);
    name_of_file(String::from_utf8_lossy(&path[..end]).into_owned())
}

/// The auxiliary vector (getauxval(3)). Its addresses differ from one exec to the next, unless the program
/// has switched the kernel's randomization off. `None`: it cannot be read, or the process is in an exec.
pub(super) fn auxiliary_vector(pid: Pid) -> Option<Vec<u8>> {
    let vector = fs::read(format!("/proc/{pid}/auxv")).ok()?;
    (!vector.is_empty()).then_some(vector)
}

/// Code of a file that lies inside of a larger piece of the same file elsewhere.
pub(super) fn copies_of_code(pid: Pid) -> Vec<CopyOfCode> {
    let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    copies_in(&String::from_utf8_lossy(&maps))
}

fn copies_in(maps: &str) -> Vec<CopyOfCode> {
    let pieces: Vec<_> = maps.lines().filter_map(executable_piece).collect();
    let copy = |piece: &ExecutablePiece| {
        let original = pieces.iter().find(|larger| {
            larger.file == piece.file
                && larger.end - larger.start > piece.end - piece.start
                && larger.offset <= piece.offset
                && piece.offset - larger.offset + (piece.end - piece.start)
                    <= larger.end - larger.start
        })?;
        Some(CopyOfCode {
            start: piece.start,
            end: piece.end,
            original: original.start + (piece.offset - original.offset),
        })
    };
    pieces.iter().filter_map(copy).collect()
}

/// A line of /proc/PID/maps about code of a file.
struct ExecutablePiece<'a> {
    start: u64,
    end: u64,
    /// Where it begins in the file.
    offset: u64,
    /// Device and inode.
    file: (&'a str, &'a str),
}

fn executable_piece(line: &str) -> Option<ExecutablePiece<'_>> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?;
    let offset = fields.next()?;
    let file = (fields.next()?, fields.next()?);
    let hex = |text| u64::from_str_radix(text, 16).ok();
    (permissions.contains('x') && file.1 != "0").then_some(())?;
    Some(ExecutablePiece {
        start: hex(start)?,
        end: hex(end)?,
        offset: hex(offset)?,
        file,
    })
}

/// A piece of a process' address space.
#[derive(Debug)]
pub(super) struct Mapping {
    #[cfg_attr(
        not(all(target_os = "linux", target_arch = "x86_64")),
        expect(dead_code, reason = "for those who attach")
    )]
    pub range: Range<u64>,
    /// The path of its file, a name of the kernel's in brackets, or nothing.
    pub name: String,
}

/// What is mapped at an address.
pub(super) fn mapping_at(pid: Pid, address: u64) -> Option<Mapping> {
    let maps = fs::read(format!("/proc/{pid}/maps")).ok()?;
    let maps = String::from_utf8_lossy(&maps);
    maps.lines().find_map(|line| {
        let (start, rest) = line.split_once('-')?;
        let (end, rest) = rest.split_once(' ')?;
        let parse = |hex| u64::from_str_radix(hex, 16).ok();
        let range = parse(start)?..parse(end)?;
        let name = rest.find(['/', '[']).map_or("", |at| &rest[at..]);
        range.contains(&address).then(|| Mapping {
            range,
            name: name.to_owned(),
        })
    })
}

/// The path of the file that is mapped at an address, while it is.
pub(super) fn mapped_file(pid: Pid, address: u64) -> Option<String> {
    let name = mapping_at(pid, address)?.name;
    name.starts_with('/').then_some(name)
}

/// Threads of a process: the links of its folder of tasks beyond the usual two (`proc_task_getattr` of
/// fs/proc/base.c). The kernel has this number at hand.
pub(super) fn thread_count(pid: Pid) -> Option<u64> {
    let links = fs::metadata(format!("/proc/{pid}/task")).ok()?.nlink();
    links.checked_sub(2)
}

/// The threads of a process; none when it is gone.
pub(super) fn threads(pid: Pid) -> Vec<Tid> {
    let files = paths::files_of(Path::new(&format!("/proc/{pid}/task")));
    let tid = |path: &PathBuf| path.file_name()?.to_str()?.parse().ok().map(Tid);
    files.iter().filter_map(tid).collect()
}

/// The name of a thread.
pub(super) fn thread_name(pid: Pid, tid: Tid) -> Option<String> {
    let name = fs::read(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
    let name = name.strip_suffix(b"\n").unwrap_or(&name);
    Some(String::from_utf8_lossy(name).into_owned())
}

/// What a thread is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InCall {
    /// On a processor, or ready for one.
    Running,
    /// Not running, in a system call.
    Call {
        number: i64,
        arguments: [u64; 6],
        sp: u64,
        pc: u64,
    },
    /// Not running, and in no system call: it waits for a page, or is stopped.
    Elsewhere { sp: u64, pc: u64 },
}

/// What a thread is in. Takes the rights of a debugger.
///
/// # Errors
///
/// When the thread is gone, or we have not these rights.
pub(super) fn in_call(pid: Pid, tid: Tid) -> io::Result<InCall> {
    let mut text = [0; 256];
    let read = read_task(pid, tid, "syscall", &mut text)?;
    parse_in_call(read).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The call that a thread goes on with in a `restart_syscall`, by the kernel's function that it waits in
/// (proc(5), `/proc/pid/wchan`): only futex, poll and the kinds of sleep are gone on with so
/// (`set_restart_fn` in the kernel). Their arguments are those of the `restart_syscall`. `None`: the kernel
/// does not say.
pub(super) fn restarted_call(pid: Pid, tid: Tid) -> Option<i64> {
    let mut text = [0; 128];
    let function = read_task(pid, tid, "wchan", &mut text).ok()?;
    match function {
        "" | "0" => None,
        _ if function.contains("futex") => Some(libc::SYS_futex),
        #[cfg(target_arch = "x86_64")]
        _ if function.contains("poll") => Some(libc::SYS_poll),
        #[cfg(not(target_arch = "x86_64"))]
        _ if function.contains("poll") => Some(libc::SYS_ppoll),
        _ => Some(libc::SYS_clock_nanosleep),
    }
}

/// The number of the call, its six arguments, sp and pc; or `running`; or -1, sp and pc (proc(5),
/// `/proc/pid/syscall`).
fn parse_in_call(text: &str) -> Option<InCall> {
    let mut words = text.split_ascii_whitespace();
    let first = words.next()?;
    if first == "running" {
        return Some(InCall::Running);
    }
    let number: i64 = first.parse().ok()?;
    let mut next = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    if number < 0 {
        let (sp, pc) = (next()?, next()?);
        return Some(InCall::Elsewhere { sp, pc });
    }
    let mut arguments = [0; 6];
    for argument in &mut arguments {
        *argument = next()?;
    }
    Some(InCall::Call {
        number,
        arguments,
        sp: next()?,
        pc: next()?,
    })
}

/// A thread's state, as a letter: R, S, D, T, Z, … (proc(5), stat).
///
/// # Errors
///
/// When the thread is gone.
pub(super) fn state(pid: Pid, tid: Tid) -> io::Result<u8> {
    let mut text = [0; 128];
    let read = read_task(pid, tid, "stat", &mut text)?;
    // Behind the name, which ends with the last parenthesis.
    let state = read.rsplit_once(") ").map(|(_, rest)| rest);
    let letter = state.and_then(|rest| rest.bytes().next());
    letter.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Whether a thread sleeps or is stopped that is about to do more: not one that ends, and none of the
/// kernel's own that stand among a process' threads (those of io_uring and vhost).
///
/// # Errors
///
/// When the thread is gone.
pub(super) fn is_waiting(pid: Pid, tid: Tid) -> io::Result<bool> {
    let mut text = [0; 128];
    parse_is_waiting(read_task(pid, tid, "stat", &mut text)?)
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The state and the flags (proc(5), `/proc/pid/stat`; the latter of include/linux/sched.h).
fn parse_is_waiting(read: &str) -> Option<bool> {
    const PF_EXITING: u64 = 0x4;
    const PF_IO_WORKER: u64 = 0x10;
    // Since Linux 6.4; before, tasks that load modules had it.
    const PF_USER_WORKER: u64 = 0x4000;
    const NOT_THE_PROGRAMS: u64 = PF_EXITING | PF_IO_WORKER | PF_USER_WORKER;
    let rest = read.rsplit_once(") ").map(|(_, rest)| rest);
    let mut fields = rest.unwrap_or_default().split(' ');
    let waits = matches!(fields.next(), Some("S" | "D" | "T"));
    let flags: u64 = fields.nth(5)?.parse().ok()?;
    Some(waits && flags & NOT_THE_PROGRAMS == 0)
}

/// Whether a process has a thread with this tid; true when that is not known.
pub(super) fn has_thread(pid: Pid, tid: Tid) -> bool {
    fs::exists(format!("/proc/{pid}/task/{tid}")).unwrap_or(true)
}

/// The signals that were sent to this thread alone and wait until the thread takes them (proc(5), status);
/// signal 1 is bit 0.
///
/// # Errors
///
/// When the thread is gone.
pub(super) fn pending_signals(pid: Pid, tid: Tid) -> io::Result<u64> {
    signal_set("SigPnd:", pid, tid)
}

/// The signals that this thread blocks; signal 1 is bit 0.
///
/// # Errors
///
/// When the thread is gone.
pub(super) fn blocked_signals(pid: Pid, tid: Tid) -> io::Result<u64> {
    signal_set("SigBlk:", pid, tid)
}

fn signal_set(name: &str, pid: Pid, tid: Tid) -> io::Result<u64> {
    status(name, pid, tid, |set| u64::from_str_radix(set, 16).ok())
}

/// The thread that traces this one by ptrace, if one does.
///
/// # Errors
///
/// When the thread is gone.
pub(super) fn tracer(pid: Pid, tid: Tid) -> io::Result<Option<Tid>> {
    let tracer = status("TracerPid:", pid, tid, |tracer| tracer.parse().ok())?;
    Ok((tracer != 0).then_some(Tid(tracer)))
}

/// A field of a thread's `status` (proc(5)).
fn status<T>(name: &str, pid: Pid, tid: Tid, parse: impl Fn(&str) -> Option<T>) -> io::Result<T> {
    let mut text = [0; 4096];
    let read = read_task(pid, tid, "status", &mut text)?;
    let value = read.lines().find_map(|line| line.strip_prefix(name));
    value
        .and_then(|value| parse(value.trim()))
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// CPU time of a thread in user mode, ns, to one tick of the kernel's (field 14 of proc_pid_stat(5)).
pub(super) fn user_ns(pid: Pid, tid: Tid) -> io::Result<u64> {
    let mut text = [0; 1024];
    let read = read_task(pid, tid, "stat", &mut text)?;
    // After the name, which may hold anything, stands the state, which is the third field.
    let fields = read
        .rsplit_once(')')
        .map(|(_, rest)| rest.split_ascii_whitespace());
    let ticks = fields.and_then(|mut fields| fields.nth(11)?.parse::<u64>().ok());
    let ticks = ticks.ok_or(io::ErrorKind::InvalidData)?;
    Ok(ticks.saturating_mul(1_000_000_000 / clock_ticks_per_second().max(1)))
}

/// How many seccomp filters a process has (`Status::SOME`: not known how many); 0 when it is gone.
pub(super) fn seccomp_filters(pid: Pid) -> u32 {
    let text = std::fs::read(format!("/proc/{pid}/status")).unwrap_or_default();
    stackbeat_core::platform::sandbox::Status::parse(&text).filters
}

/// What the scheduler has counted of a thread (Documentation/scheduler/sched-stats.rst).
///
/// # Errors
///
/// When the thread is gone, or the kernel counts nothing.
pub(super) fn scheduled(pid: Pid, tid: Tid) -> io::Result<Scheduled> {
    let mut text = [0; 128];
    let mut words = read_task(pid, tid, "schedstat", &mut text)?.split_ascii_whitespace();
    let mut next = || {
        let word = words.next().and_then(|word| word.parse().ok());
        word.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    };
    Ok(Scheduled {
        run_ns: next()?,
        ready_ns: next()?,
        times: next()?,
    })
}

/// How often a thread has given the CPU up and had it taken away.
///
/// # Errors
///
/// When the thread is gone.
pub(super) fn switches(pid: Pid, tid: Tid) -> io::Result<(u64, u64)> {
    let mut text = [0; 4096];
    let text = read_task(pid, tid, "status", &mut text)?;
    let number = |name: &str| {
        let mut lines = text.lines();
        let number = lines.find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        number.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    };
    Ok((
        number("voluntary_ctxt_switches:")?,
        number("nonvoluntary_ctxt_switches:")?,
    ))
}

/// The begin of one of a thread's files.
fn read_task<'a>(pid: Pid, tid: Tid, file: &str, text: &'a mut [u8]) -> io::Result<&'a str> {
    let file = fs::File::open(format!("/proc/{pid}/task/{tid}/{file}"))?;
    let read = file.read_at(text, 0)?;
    std::str::from_utf8(&text[..read]).map_err(|_| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: Pid = Pid(u32::MAX);

    #[test]
    fn code_that_is_mapped_once_more_is_a_copy() {
        let maps = "\
            00b72000-025fe000 r-xp 00772000 fe:00 247580                             /usr/bin/node\n\
            02600000-02601000 r-xp 02200000 fe:00 247580                             /usr/bin/node\n\
            02601000-0563a000 r--p 02201000 fe:00 247580                             /usr/bin/node\n\
            7f885c003000-7f885c03f000 rwxp 00000000 00:00 0 \n\
            7f887be40000-7f887bfd2000 r-xp 014c4000 fe:00 247580                     /usr/bin/node\n\
            7f8882a44000-7f8882b9a000 r-xp 014c4000 fe:00 326269                     /usr/lib/libc.so.6\n\
            7f8882c00000-7f8882d56000 r-xp 014c4000 fe:00 326269                     /usr/lib/libc.so.6\n\
            7f8882fb2000-7f8882fb4000 r-xp 00000000 00:00 0                          [vdso]\n";
        let copy = CopyOfCode {
            start: 0x7f88_7be4_0000,
            end: 0x7f88_7bfd_2000,
            original: 0x18c_4000,
        };
        assert_eq!(copies_in(maps), [copy]);
    }

    #[test]
    fn ancestors_reach_to_the_first_process() {
        let here = Pid(std::process::id());
        let own = ancestors(here);
        assert_eq!(own.first(), parent(here).as_ref());
        assert!(own.iter().all(|pid| parent(*pid).is_some()));
        assert!(own.last().is_some_and(|pid| parent(*pid) == Some(Pid(0))));
        assert!(ancestors(NOBODY).is_empty());
        assert!(may_be_inspected(here));
    }

    #[test]
    fn who_was_there_before_the_program_is_none_of_it() {
        let own = Pid(std::process::id());
        assert!(has_started_before(Pid(1), own));
        assert!(!has_started_before(own, Pid(1)));
        assert!(!has_started_before(own, own));
        assert!(!has_started_before(NOBODY, own) && !has_started_before(Pid(1), NOBODY));
    }

    #[test]
    fn a_number_from_another_namespace_is_not_taken_for_ours() {
        let own = Pid(std::process::id());
        let executable = std::env::current_exe().expect("own path");
        let name = executable.file_name().expect("a name").as_encoded_bytes();
        assert_eq!(identify(own, name, own), Whose::Ours);
        assert_eq!(identify(own, b"no such mapping", own), Whose::Foreign);
        // The kernel's own threads map nothing, and were there long before the program.
        assert_eq!(identify(Pid(2), name, own), Whose::Foreign);
        let mut child = std::process::Command::new("true").spawn().expect("started");
        child.wait().expect("waited");
        assert_eq!(identify(Pid(child.id()), name, own), Whose::Gone);
    }

    #[test]
    fn the_kernel_says_what_a_thread_is_in() {
        assert_eq!(parse_in_call("running\n"), Some(InCall::Running));
        let number = libc::SYS_poll;
        let line = format!("{number} 0x1 0x2 0x3 0x4 0x5 0x6 0x7ffe 0x401000\n");
        let call = InCall::Call {
            number,
            arguments: [1, 2, 3, 4, 5, 6],
            sp: 0x7ffe,
            pc: 0x40_1000,
        };
        assert_eq!(parse_in_call(&line), Some(call));
        let elsewhere = InCall::Elsewhere { sp: 16, pc: 32 };
        assert_eq!(parse_in_call("-1 0x10 0x20\n"), Some(elsewhere));
        assert_eq!(parse_in_call("7 0x1"), None);
        let own = Pid(std::process::id());
        assert_eq!(state(own, sys_thread_id()).ok(), Some(b'R'));
        assert_eq!(is_waiting(own, sys_thread_id()).ok(), Some(false));
        assert!(has_thread(own, sys_thread_id()) && !has_thread(own, Tid(1)));
        // A thread that is new has run for no time until the scheduler looks.
        while scheduled(own, sys_thread_id()).expect("counted").run_ns == 0 {
            std::thread::yield_now();
        }
    }

    fn sys_thread_id() -> Tid {
        Tid(platform::thread_id())
    }

    #[test]
    fn workers_of_the_kernel_do_not_wait_as_threads_do() {
        let waits = |flags: u32, state: char| {
            let line = format!("7 (a b) c) {state} 1 2 3 0 -1 {flags} 10 0 0 0");
            parse_is_waiting(&line)
        };
        assert_eq!(waits(0x40_0100, 'S'), Some(true));
        assert_eq!(waits(0x40_0100, 'R'), Some(false));
        assert_eq!(waits(0x40_0104, 'D'), Some(false));
        // One of io_uring's on Linux 6.18, and one like vhost's.
        assert_eq!(waits(0x40_4050, 'S'), Some(false));
        assert_eq!(waits(0x40_4040, 'S'), Some(false));
        assert_eq!(parse_is_waiting("7 (cat) S 1"), None);
    }

    #[test]
    fn the_end_of_a_process_is_noticed() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("started");
        let watch = Watch::open(Pid(child.id())).expect("a pidfd");
        assert!(!watch.has_ended());
        drop(child.stdin.take());
        child.wait().expect("waited");
        assert!(watch.has_ended());
        assert!(Watch::open(Pid(child.id())).is_none());
    }
}
