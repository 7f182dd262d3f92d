//! Processes of the program's tree that run without our agent: statically linked, privileged or foreign
//! programs, children that are not followed, and those whose agent is off in a sandbox. Nothing in them can
//! be hooked or sampled, so all there is to say is who they are and how much CPU time they took.
//!
//! A process is found by its pid, which is new, and its parent, which is known. One whose parent ended before
//! it was seen is found by the session's name in its environment. It counts as unrecorded when it ends
//! without an agent having registered in it; the drain has the last word, because it knows those that came
//! and went between two polls.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use stackbeat_core::ids::{Pid, Upid};
use stackbeat_core::shm::layout::{SESSION_VARIABLE, entry_state, sandboxed};
use stackbeat_core::shm::registry;
use stackbeat_core::sync::Ordering;
use stackbeat_proto::v1;
use stackbeat_proto::v1::unrecorded::Reason;

use super::find_program::{self, Program};
use super::polls::Poll;
use super::procfs;
use crate::drain::lifecycle::Since;
use crate::host::Whose;
use crate::session::clocks::now_ns;
use crate::session::control::Session;
use crate::session::error::Warning;
use crate::session::orders::Order;

/// Distance between two polls: while unrecorded processes live or new ones of the tree come, and while
/// nothing changes.
const SHORTEST: Duration = Duration::from_millis(20);
/// The first poll comes so soon.
pub(super) const FIRST_POLL: Duration = SHORTEST;
const LONGEST: Duration = Duration::from_millis(200);
/// Pids that were given out since the last poll are tried one by one up to this number: further threads take
/// most of them. After more, the list of all processes is gone through.
const TRIED: u32 = 128;
/// So long a pid that nobody has yet is tried again: a fork may wait for a processor.
const EXPECTED_NS: u64 = 1_000_000_000;
/// Descriptors for the ends of unrecorded processes. Further ones are looked for by their pid.
const WATCHES: usize = 64;
/// An image that used less CPU time was on its way to another one: a child between its fork and its exec, or
/// a program whose agent had not begun yet. An exec and the start of a program take so much on a busy
/// machine; where it is known why no agent can be there, so little tells nothing.
const PASSING_NS: u64 = 10_000_000;
const PASSING_KNOWN_NS: u64 = 1_000_000;
/// CPU time of the program's own process is not known.
const NOT_KNOWN: u64 = u64::MAX;

/// What other threads learn of the search, and tell it.
#[derive(Debug)]
pub(super) struct TreeWatch {
    program_cpu_ns: Arc<AtomicU64>,
    living: Arc<AtomicU32>,
}

impl TreeWatch {
    /// Polls, once the session has a program. `started`: what is started as the program; `None`: it
    /// ran before the session, so what it used until now is not the session's. `session_path`: the mapping,
    /// as the program's environment names it.
    pub(super) fn new(
        session: Arc<Session>,
        session_path: &Path,
        started: Option<Started>,
    ) -> (TreeWatch, impl Poll + use<>) {
        let program_cpu_ns = Arc::new(AtomicU64::new(NOT_KNOWN));
        let living = Arc::new(AtomicU32::new(0));
        let mut variable = SESSION_VARIABLE.as_bytes().to_vec();
        variable.push(b'=');
        variable.extend_from_slice(session_path.as_os_str().as_bytes());
        let control = session.shared.mapping.control();
        let tree = Tree {
            follows_children: control.follow_children.load(Ordering::Relaxed) != 0,
            filters: control.filters.load(Ordering::Relaxed),
            session,
            variable,
            program_cpu_ns: Arc::clone(&program_cpu_ns),
            living: Arc::clone(&living),
            runs_already: started.is_none(),
            started,
            members: HashMap::new(),
            ancestors: procfs::ancestors(Pid(std::process::id())),
            last_pid: Pid(0),
            expected: Vec::new(),
            polled_ns: now_ns(),
            polled_before_ns: now_ns(),
            distance: FIRST_POLL,
        };
        let watch = TreeWatch {
            program_cpu_ns,
            living,
        };
        (watch, tree)
    }

    /// Processes besides the program itself that ran without an agent at the last poll.
    pub(super) fn living(&self) -> u32 {
        self.living.load(Ordering::Relaxed)
    }

    /// CPU time of the program's own process at its end, where it is known; before the search is ended.
    pub(super) fn note_program_cpu(&self, cpu: Duration) {
        let ns = cpu.as_nanos() as u64;
        self.program_cpu_ns.store(ns, Ordering::Relaxed);
    }
}

/// What is known of a program before it runs without an agent: it may end before the next poll. Of the one
/// that the recorder starts that is known before it starts.
#[derive(Clone, Debug, Default)]
pub(super) struct Started {
    executable: String,
    started_as: String,
    command_line: Vec<String>,
    reason: Reason,
}

/// A process of the tree.
#[derive(Debug)]
struct Member {
    parent_pid: Pid,
    /// Its end; `None`: not asked for, or no descriptor is left.
    watch: Option<procfs::Watch>,
    /// Its agent names it by another pid: it is in a pid namespace of its own.
    is_elsewhere: bool,
    /// In such a namespace: when it was last seen, no agent was in it.
    was_foreign: bool,
    /// `None`: an agent is in it.
    stretch: Option<Stretch>,
    /// The last agent that was in it.
    agent: Option<Registered>,
    /// What that ran in: its agent may switch itself off, and the process end, before the next poll.
    agents_program: Started,
}

/// An image without an agent.
#[derive(Debug)]
struct Stretch {
    executable: String,
    /// The path given to exec, where it can be read.
    started_as: String,
    command_line: Vec<String>,
    /// The name of its main thread, which the kernel still knows when the rest is gone.
    comm: String,
    reason: Reason,
    begin_ns: u64,
    /// It has not begun before: when the poll was that did not see it, and the last image that an agent was
    /// in and exec has replaced.
    since: Since,
    /// What the recorder itself has started: it is named however little it used.
    is_start: bool,
    /// CPU time of the process when the image began, and so far.
    cpu_before_ns: u64,
    cpu_ns: u64,
}

/// What the registry has for a pid.
#[derive(Clone, Copy, Debug)]
struct Registered {
    upid: Upid,
    index: u32,
    is_replaced: bool,
    /// It has switched itself off in a sandbox.
    is_off: bool,
}

struct Tree {
    session: Arc<Session>,
    /// The session's entry in the environment.
    variable: Vec<u8>,
    /// As the session began: the program may write over the mapping, or cut it off.
    follows_children: bool,
    filters: u32,
    program_cpu_ns: Arc<AtomicU64>,
    living: Arc<AtomicU32>,
    runs_already: bool,
    /// Until the program is met.
    started: Option<Started>,
    /// By pid.
    members: HashMap<Pid, Member>,
    /// Those of the program. A process of the tree whose parent has ended is the child of one of them, a
    /// subreaper or the first process: nobody else's environment is read.
    ancestors: Vec<Pid>,
    /// The pid that was given out last, at the last poll; 0: there was none.
    last_pid: Pid,
    /// Pids that were given out and were nobody's yet: a fork takes its number before its child can be seen.
    /// With when they were given out.
    expected: Vec<(Pid, u64)>,
    /// When this poll and the one before began.
    polled_ns: u64,
    polled_before_ns: u64,
    /// To the next poll.
    distance: Duration,
}

impl Poll for Tree {
    fn poll(&mut self) -> Duration {
        self.distance = match self.search() {
            true => SHORTEST,
            false => (self.distance * 2).min(LONGEST),
        };
        self.distance
    }

    fn finish(&mut self) {
        self.conclude();
    }
}

impl Tree {
    /// Looks for new processes and at those without an agent. Whether there is a reason to poll again soon.
    fn search(&mut self) -> bool {
        let program = Pid(self.session.program_pid.load(Ordering::Relaxed));
        if program == Pid(0) {
            return true;
        }
        self.polled_before_ns = std::mem::replace(&mut self.polled_ns, now_ns());
        let mut registered = self.registered();
        let has_newcomers = self.meet(program, &registered);
        if has_newcomers {
            // Agents have registered meanwhile: a poll of all processes takes milliseconds.
            registered = self.registered();
        }
        let mut pids: Vec<Pid> = self.members.keys().copied().collect();
        pids.sort_unstable();
        for pid in pids {
            self.follow(pid, program, &registered);
        }
        let is_without = |(pid, m): &(&Pid, &Member)| **pid != program && m.stretch.is_some();
        let living = self.members.iter().filter(is_without).count();
        self.living.store(living as u32, Ordering::Relaxed);
        has_newcomers || self.members.values().any(|m| m.stretch.is_some())
    }

    /// The newest image of each pid that an agent named.
    fn registered(&self) -> HashMap<Pid, Registered> {
        let mut newest: HashMap<Pid, Registered> = HashMap::new();
        for (index, entry) in registry::processes(&self.session.shared.mapping) {
            let state = entry.state.load(Ordering::Acquire);
            if matches!(state, entry_state::FREE | entry_state::CLAIMED) {
                continue;
            }
            let found = Registered {
                upid: entry.upid(),
                index,
                is_replaced: state == entry_state::EXECED,
                is_off: entry.sandboxed.load(Ordering::Acquire) & sandboxed::OFF != 0,
            };
            let known = newest.entry(entry.pid()).or_insert(found);
            if found.upid > known.upid {
                *known = found;
            }
        }
        newest
    }

    /// Takes in processes whose parent is one of the tree, or was. Whether there were any.
    fn meet(&mut self, program: Pid, registered: &HashMap<Pid, Registered>) -> bool {
        let Some(last) = procfs::last_pid() else {
            return false;
        };
        let before = std::mem::replace(&mut self.last_pid, last);
        let late = self.take_late();
        if before == last && late.is_empty() {
            return false;
        }
        let is_first = before == Pid(0);
        // Otherwise the numbers have begun anew.
        let is_ascending = !is_first && before < last;
        let mut new = Vec::new();
        if before != last {
            let first = if is_ascending { before.0 + 1 } else { 1 };
            let newest = (first.max(last.0.saturating_sub(TRIED - 1))..=last.0).map(Pid);
            // Before they are looked for: what comes in between is met twice, and not missed.
            let nobodys = newest.clone().filter(|pid| !procfs::exists(*pid));
            (self.expected).extend(nobodys.map(|pid| (pid, self.polled_ns)));
            new = if is_ascending && last.0 - before.0 <= TRIED {
                newest.filter_map(with_parent).collect()
            } else {
                procfs::parents(Pid(first)..)
            };
        }
        new.extend(late);
        new.sort_unstable();
        new.dedup();
        if is_first {
            self.add(program, procfs::parent(program).unwrap_or(Pid(0)), true);
            self.note_start(program);
        }
        let own = Pid(std::process::id());
        let before = self.members.len();
        // On a busy machine most are other people's.
        if new
            .iter()
            .any(|(_, parent)| !self.members.contains_key(parent))
        {
            let ancestors = procfs::ancestors(program);
            if !ancestors.is_empty() {
                self.ancestors = ancestors;
            }
        }
        let orphans: HashSet<Pid> = (new.iter())
            .filter(|(pid, parent)| {
                ![*pid, *parent].contains(&own)
                    && self.ancestors.contains(parent)
                    && !self.members.contains_key(pid)
            })
            .filter(|(pid, _)| procfs::may_be_inspected(*pid))
            .filter(|(pid, _)| procfs::has_in_environment(*pid, &self.variable))
            .map(|(pid, _)| *pid)
            .collect();
        // A parent may have a higher pid than its child after the numbers began anew.
        loop {
            let known = self.members.len();
            for (pid, parent) in &new {
                if *pid == own || self.members.contains_key(pid) {
                    continue;
                }
                let mapping = &self.session.mapping_name;
                if self.members.contains_key(parent)
                    || (registered.contains_key(pid)
                        && procfs::identify(*pid, mapping, program) == Whose::Ours)
                    || orphans.contains(pid)
                {
                    self.add(*pid, *parent, is_first);
                }
            }
            if self.members.len() == known {
                return is_first || known > before;
            }
        }
    }

    /// Processes that can be seen since the last poll, with their parents, though their pids were given out
    /// before.
    fn take_late(&mut self) -> Vec<(Pid, Pid)> {
        let oldest_ns = self.polled_ns.saturating_sub(EXPECTED_NS);
        let surplus = self.expected.len().saturating_sub(TRIED as usize);
        self.expected.drain(..surplus);
        let mut late = Vec::new();
        self.expected.retain(|(pid, given_ns)| {
            let is_there = procfs::exists(*pid);
            if is_there {
                late.extend(with_parent(*pid));
            }
            !is_there && *given_ns >= oldest_ns
        });
        late
    }

    /// `is_first`: the first poll found it.
    fn add(&mut self, pid: Pid, parent_pid: Pid, is_first: bool) {
        let cpu_before_ns = match is_first && self.runs_already {
            true => procfs::process_cpu_ns(pid).unwrap_or(0),
            false => 0,
        };
        let stretch = Stretch {
            since: Since {
                ns: self.polled_before_ns,
                ..Since::default()
            },
            ..self.begin(pid, cpu_before_ns)
        };
        let member = Member {
            parent_pid,
            watch: None,
            is_elsewhere: procfs::is_in_other_pid_namespace(pid),
            was_foreign: false,
            stretch: Some(stretch),
            agent: None,
            agents_program: Started::default(),
        };
        self.members.insert(pid, member);
    }

    /// What was started is known, also if it has ended.
    fn note_start(&mut self, program: Pid) {
        let stretch = self.members.get_mut(&program);
        let Some(stretch) = stretch.and_then(|member| member.stretch.as_mut()) else {
            return;
        };
        let Some(started) = self.started.take() else {
            return;
        };
        stretch.is_start = true;
        // An agent that has been in the process since then was in this image, or came after it.
        stretch.begin_ns = stretch.since.ns;
        if stretch.executable.is_empty() {
            stretch.executable = started.executable;
            stretch.started_as = started.started_as;
            stretch.command_line = started.command_line;
            stretch.reason = started.reason;
        } else if stretch.reason == Reason::NotFollowed {
            // It is no child.
            stretch.reason = Reason::NotKnown;
        }
    }

    /// Brings one process up to date.
    fn follow(&mut self, pid: Pid, program: Pid, registered: &HashMap<Pid, Registered>) {
        let watches = (self.members.values().filter(|m| m.watch.is_some())).count();
        let Some(mut member) = self.members.remove(&pid) else {
            return;
        };
        let found = registered.get(&pid).filter(|_| !member.is_elsewhere);
        let has_agent = match found {
            Some(found) => !found.is_replaced && !found.is_off,
            None if member.is_elsewhere => {
                // One whose memory we may not read is not named.
                match procfs::identify(pid, &self.session.mapping_name, program) {
                    _ if member.stretch.is_none() => true,
                    Whose::Foreign => {
                        member.was_foreign = true;
                        false
                    }
                    Whose::Ours => true,
                    Whose::Gone => !member.was_foreign,
                }
            }
            None => false,
        };
        // The program's own end is not taken from here: its CPU time is known exactly then.
        let has_ended = pid != program
            && match &member.watch {
                Some(watch) => watch.has_ended(),
                None => !procfs::exists(pid),
            };
        if has_agent {
            // An image without an agent may have come before this one.
            let before = member.stretch.take();
            if let Some(mut stretch) = before
                && stretch.own_cpu_ns() >= PASSING_KNOWN_NS
                // A program on its way to its agent is no image of its own.
                && stretch.reason != Reason::NotKnown
                && ![String::new(), procfs::executable(pid)].contains(&stretch.executable)
            {
                let end_ns = self.polled_before_ns.max(stretch.begin_ns);
                stretch.since.until_image = found.map_or(Upid(0), |image| image.upid);
                self.say(pid, member.parent_pid, &stretch, end_ns);
            }
            member.watch = None;
            let before = std::mem::replace(&mut member.agent, found.copied());
            if before.map(|image| image.upid) != found.map(|image| image.upid) {
                member.agents_program = Started {
                    executable: procfs::executable(pid),
                    started_as: procfs::started_as(pid),
                    command_line: procfs::command_line(pid),
                    reason: Reason::NotKnown,
                };
            }
            if !has_ended {
                self.members.insert(pid, member);
            }
            return;
        }
        // Its agent was replaced by an exec, or is off. One that the registry does not know any more has
        // ended with its process, or the drain was through with it before this poll.
        if member.stretch.is_none()
            && !has_ended
            && let Some(image) = found.copied().or(member.agent.take())
            && let cpu_ns = self.agents_cpu_ns(image)
            && (found.is_some() || cpu_ns != 0)
        {
            let mut stretch = self.begin(pid, cpu_ns);
            stretch.since.image = image.upid;
            if stretch.executable.is_empty() && image.is_off {
                let program = std::mem::take(&mut member.agents_program);
                stretch.executable = program.executable;
                stretch.started_as = program.started_as;
                stretch.command_line = program.command_line;
            }
            member.stretch = Some(stretch);
        }
        if let Some(stretch) = &mut member.stretch {
            // A process that is met in the middle of an exec: what its agent's image used was recorded.
            if let Some(image) = found.filter(|found| found.is_replaced) {
                let recorded_ns = self.agents_cpu_ns(*image);
                stretch.cpu_before_ns = stretch.cpu_before_ns.max(recorded_ns);
                stretch.since.image = image.upid;
            }
            if found.is_some_and(|found| found.is_off && !found.is_replaced) {
                stretch.reason = Reason::Sandbox;
            }
            if member.watch.is_none() && !has_ended && watches < WATCHES {
                member.watch = procfs::Watch::open(pid);
            }
            let cpu_ns = procfs::process_cpu_ns(pid).unwrap_or(0);
            let executable = procfs::executable(pid);
            let comm = procfs::thread_name(pid, pid.main_thread()).unwrap_or_default();
            let is_renamed = !comm.is_empty() && comm != stretch.comm;
            // One executable may be several programs, by the names of its links.
            let is_other_link = || {
                let started_as = procfs::started_as(pid);
                !started_as.is_empty() && started_as != stretch.started_as
            };
            let is_new = !executable.is_empty()
                && (executable != stretch.executable || is_renamed && is_other_link());
            if !is_new {
                // What was used since the last poll may be a new image's, and the old one on its way to an
                // exec only.
                stretch.cpu_ns = stretch.cpu_ns.max(cpu_ns);
            }
            if executable.is_empty() && is_renamed {
                // It ended as another program than the last poll saw.
                stretch.rename(comm);
            } else if is_new {
                let mut new = self.begin(pid, stretch.cpu_ns);
                new.cpu_ns = new.cpu_ns.max(cpu_ns);
                new.since.image = stretch.since.image;
                if stretch.is_passing() || stretch.own_cpu_ns() < PASSING_KNOWN_NS {
                    new.cpu_before_ns = stretch.cpu_before_ns;
                    // Not before the agent's image that it has replaced.
                    if found.is_none_or(|found| !found.is_replaced) {
                        new.begin_ns = stretch.begin_ns;
                    }
                    new.since.ns = stretch.since.ns;
                } else {
                    // The agent of the image that is there now may have begun meanwhile, and was not in this
                    // one.
                    let end_ns = match stretch.reason {
                        Reason::NotKnown => now_ns(),
                        _ => self.polled_before_ns.max(stretch.begin_ns),
                    };
                    self.say(pid, member.parent_pid, stretch, end_ns);
                }
                *stretch = new;
            } else if is_renamed {
                // Programs name their threads anew.
                stretch.comm = comm;
            }
        }
        match (has_ended, &member.stretch) {
            (true, Some(stretch)) => self.say(pid, member.parent_pid, stretch, now_ns()),
            (true, None) => {}
            (false, _) => {
                self.members.insert(pid, member);
            }
        }
    }

    /// The image that a process has now.
    fn begin(&self, pid: Pid, cpu_before_ns: u64) -> Stretch {
        let executable = procfs::executable(pid);
        let control = self.session.shared.mapping.control();
        let filters = control.filters.load(Ordering::Relaxed).max(self.filters);
        Stretch {
            reason: match reason(pid, &executable, filters) {
                Reason::NotKnown if !self.follows_children => Reason::NotFollowed,
                reason => reason,
            },
            command_line: procfs::command_line(pid),
            started_as: procfs::started_as(pid),
            comm: procfs::thread_name(pid, pid.main_thread()).unwrap_or_default(),
            executable,
            begin_ns: now_ns(),
            since: Since {
                ns: now_ns(),
                ..Since::default()
            },
            is_start: false,
            cpu_before_ns,
            cpu_ns: cpu_before_ns,
        }
    }

    /// CPU time of the process until an exec replaced its agent's image, or the agent switched itself off; 0:
    /// neither.
    fn agents_cpu_ns(&self, image: Registered) -> u64 {
        let entry = self.session.shared.mapping.process(image.index);
        entry
            .filter(|entry| entry.upid() == image.upid)
            .map_or(0, |entry| entry.unseen_from_ns.load(Ordering::Relaxed))
    }

    /// The session is over.
    fn conclude(&mut self) {
        self.search();
        let program = Pid(self.session.program_pid.load(Ordering::Relaxed));
        let program_cpu_ns = self.program_cpu_ns.load(Ordering::Relaxed);
        for (pid, mut member) in std::mem::take(&mut self.members) {
            let Some(stretch) = &mut member.stretch else {
                continue;
            };
            if pid == program && program_cpu_ns != NOT_KNOWN {
                stretch.cpu_ns = program_cpu_ns;
            }
            let end_ns = match procfs::exists(pid) {
                true => 0,
                false => now_ns(),
            };
            self.say(pid, member.parent_pid, stretch, end_ns);
        }
    }

    /// Hands an image to the drain.
    fn say(&self, pid: Pid, parent_pid: Pid, stretch: &Stretch, end_ns: u64) {
        if stretch.is_passing() {
            return;
        }
        let first = || vec![stretch.comm.clone()];
        let unrecorded = v1::Unrecorded {
            pid: pid.0,
            parent_pid: parent_pid.0,
            executable: stretch.executable.clone(),
            started_as: stretch.started_as.clone(),
            command_line: match stretch.command_line.is_empty() {
                true => first(),
                false => stretch.command_line.clone(),
            },
            begin_ns: stretch.begin_ns,
            end_ns,
            cpu_ns: stretch.own_cpu_ns(),
            reason: stretch.reason.into(),
        };
        (self.session.shared).order(Order::Unrecorded(Box::new(unrecorded), stretch.since));
    }
}

/// A process with its parent; `None`: nobody has this pid, or a further thread.
fn with_parent(pid: Pid) -> Option<(Pid, Pid)> {
    procfs::is_process(pid).then_some(())?;
    Some((pid, procfs::parent(pid)?))
}

impl Started {
    pub(super) fn new(program: &Program, command: &[OsString]) -> Started {
        let path = fs::canonicalize(program.path()).unwrap_or_else(|_| program.path().into());
        let text = |word: &OsString| word.to_string_lossy().into_owned();
        Started {
            executable: path.to_string_lossy().into_owned(),
            started_as: program.path().to_string_lossy().into_owned(),
            command_line: command.iter().map(text).collect(),
            reason: (program.warnings().first()).map_or(Reason::NotKnown, reason_of),
        }
    }
}

impl Stretch {
    fn rename(&mut self, comm: String) {
        self.comm = comm;
        self.executable.clear();
        self.started_as.clear();
        self.command_line.clear();
        self.reason = Reason::NotKnown;
    }

    /// Whether it is no program that ran unrecorded, as far as is known.
    fn is_passing(&self) -> bool {
        !self.is_start && self.reason == Reason::NotKnown && self.own_cpu_ns() < PASSING_NS
    }

    /// CPU time of this image.
    fn own_cpu_ns(&self) -> u64 {
        self.cpu_ns.saturating_sub(self.cpu_before_ns)
    }
}

/// Why no agent is in a program. `filters`: how many every process of the recording has.
fn reason(pid: Pid, executable: &str, filters: u32) -> Reason {
    let path = Path::new(executable);
    if find_program::privileged(path) {
        return Reason::Privileged;
    }
    // Through /proc, because the process may have other mounts than we.
    let Ok(file) = File::open(format!("/proc/{pid}/exe")) else {
        return Reason::NotKnown;
    };
    let mut head = [0; 256];
    let length = file.read_at(&mut head, 0).unwrap_or(0);
    let warning = find_program::judge_elf(path, &file, &head[..length], &mut false);
    match warning.as_ref().map_or(Reason::NotKnown, reason_of) {
        Reason::NotKnown if procfs::seccomp_filters(pid) > filters => Reason::Sandbox,
        Reason::NotKnown if !procfs::may_open_ours(pid) => Reason::User,
        reason => reason,
    }
}

/// The same, as the recorder warns of it.
fn reason_of(warning: &Warning) -> Reason {
    match warning {
        Warning::Static(_) => Reason::Static,
        Warning::Privileged(_) => Reason::Privileged,
        Warning::Architecture { .. } => Reason::Architecture,
        Warning::OtherLoader { .. } => Reason::Loader,
        Warning::Interpreter { because, .. } => reason_of(because),
        _ => Reason::NotKnown,
    }
}
