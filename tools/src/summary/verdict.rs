//! What a trace says, in a sentence: where its threads computed, and what they waited for.
//!
//! The head of `report` and the end of `record` show the same sentence. Shares are of the time of the one
//! thread that does the work, where there is one; of several threads the times are said.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use stackbeat_core::probe::Cause;
use stackbeat_gate::comparable_names;
use stackbeat_model::{FunctionIndex, ProbeId, Spent, ThreadIndex};

use super::evidence::effective_samples;
use crate::summary::call_tree::{Label, Leaf, Profile, ThreadTime};
use crate::summary::deadlocks::Member;
use crate::summary::helpers::helpers;
use crate::summary::idle::{IdleWaits, is_active, is_slow};
use crate::summary::labels::{file_name, source_text};
use crate::summary::load::Report;
use crate::summary::metadata::Metadata;
use crate::summary::own_code::{Lead, OwnCode, lead};
use crate::summary::told_apart;
use crate::summary::wait_kind::WaitKind;
use crate::table::shorten_name;
use crate::terminal::clean;
use crate::units::{duration, plural};

/// Parts of the whole below this are not worth a word.
const WORTH: f64 = 0.05;
/// A thread with this part of the work does it alone, as a runtime's main thread beside its helpers.
const ALONE: f64 = 0.9;
/// With fewer samples no function is named: they would say where the samples fell, not where the time went.
const LEAST_SAMPLES: f64 = 10.0;
/// Who held a lock in this part of the waits for it held it; in half of them, mostly.
const NEARLY_ALL: f64 = 0.9;
/// Waits named of several threads.
const WAITS: usize = 3;
/// Parts of a thread's time, and names of threads, in one sentence.
const NAMED: usize = 3;
/// Room for a name.
const NAME: usize = 48;
/// From so many processes on, where half of them live no longer than so long, ns, they are what takes the
/// time: to begin and to end one takes 1 ms or more.
const MANY_PROCESSES: usize = 100;
const SHORT_LIFE_NS: u64 = 50_000_000;
const GIL: &str = "Python's global interpreter lock";

/// The sentence, for the threads that are `wanted`. `None`: nothing was recorded of them. Processes that help
/// another program are left out.
pub(crate) fn verdict(report: &Report, wanted: &dyn Fn(ThreadIndex) -> bool) -> Option<String> {
    let is_helper = helpers(&report.metadata, &report.profile, wanted);
    let wanted = &|thread: ThreadIndex| wanted(thread) && !is_helper[thread.0 as usize];
    let own = &OwnCode::new(&report.metadata, &report.profile.tree);
    let waits = &waits(report);
    let view = View {
        report,
        own,
        waits,
        wanted,
    };
    let threads = view.threads();
    let running_ns = sum(threads.iter().map(|(_, time)| time.running_ns));
    if threads
        .iter()
        .all(|(_, time)| time.wall_ns() == time.gap_ns)
    {
        return None;
    }
    let mut parts: Vec<String> = view.deadlock().into_iter().collect();
    parts.extend(view.short_processes());
    match view.alone(&threads, running_ns) {
        Some((thread, time)) => parts.push(view.of_one(thread, time, &threads)),
        None => parts.extend(view.of_many(&threads, running_ns)),
    }
    Some(clean(&parts.join("; ")).into_owned())
}

fn sum(times: impl Iterator<Item = u64>) -> u64 {
    times.fold(0, u64::saturating_add)
}

/// Whether a part of a whole is worth a word.
fn is_worth(part: u64, whole: u64) -> bool {
    part > 0 && part as f64 >= WORTH * whole as f64
}

/// That others end is no news, nor are waits that no hook saw.
fn is_news(kind: WaitKind) -> bool {
    let is_none = |cause| {
        matches!(
            cause,
            Cause::None | Cause::Join | Cause::Process | Cause::Unknown
        )
    };
    !matches!(kind, WaitKind::Of(cause) if is_none(cause))
}

/// Causes that are of interest only where threads compute.
fn is_by_choice(kind: WaitKind) -> bool {
    matches!(kind, WaitKind::Of(Cause::Wait | Cause::Poll | Cause::Sleep))
}

fn waiting(cause: Cause) -> &'static str {
    match cause {
        Cause::Lock => "waiting for a lock",
        Cause::Wait => "waiting for another thread",
        Cause::Io => "waiting for I/O",
        Cause::Net => "waiting for the network",
        Cause::Poll => "waiting for events",
        Cause::Sleep => "sleeping",
        Cause::Join => "waiting for threads to end",
        Cause::Process => "waiting for child processes",
        Cause::Ipc => "waiting for messages",
        Cause::Gc => "in garbage collection",
        Cause::Safepoint => "at safepoints",
        Cause::Binder => "waiting for Binder calls",
        Cause::None | Cause::Unknown => "blocked outside of hooks",
    }
}

/// `12 %`.
fn share(part: u64, whole: u64) -> String {
    let percent = part as f64 * 100.0 / whole.max(1) as f64;
    match percent < 0.5 && part > 0 {
        true => "<1 %".to_owned(),
        false => format!("{percent:.0} %"),
    }
}

/// Threads of processes with one name, and a time of theirs.
#[derive(Clone, Debug, Default)]
struct Program<'a> {
    name: &'a str,
    ns: u64,
    threads: BTreeSet<ThreadIndex>,
}

/// What a thread waited for at a place.
#[derive(Clone, Copy, Debug)]
struct Wait {
    thread: ThreadIndex,
    place: u32,
    probe: ProbeId,
    kind: WaitKind,
    is_idle: bool,
    ns: u64,
}

fn waits(report: &Report) -> Vec<Wait> {
    let Report {
        metadata, profile, ..
    } = report;
    let idle = IdleWaits::of(report);
    let cells = profile.cells.iter().filter_map(|((thread, place), cell)| {
        let Label::Leaf(Leaf::Blocking(probe)) = profile.tree.places()[*place as usize].label
        else {
            return None;
        };
        let is_main = (metadata.threads.get(thread.0 as usize)).is_some_and(|row| row.is_main);
        Some(Wait {
            thread: *thread,
            place: *place,
            probe,
            kind: WaitKind::at(metadata, &profile.tree, *place, probe),
            is_idle: idle.has(probe.cause(), is_main, *place),
            ns: cell.spent.blocked_ns,
        })
    });
    cells.collect()
}

/// A trace, and the threads of it that are asked for.
struct View<'a> {
    report: &'a Report,
    own: &'a OwnCode<'a>,
    waits: &'a [Wait],
    wanted: &'a dyn Fn(ThreadIndex) -> bool,
}

impl<'a> View<'a> {
    fn metadata(&self) -> &'a Metadata {
        &self.report.metadata
    }

    fn profile(&self) -> &'a Profile {
        &self.report.profile
    }

    fn threads(&self) -> Vec<(ThreadIndex, &'a ThreadTime)> {
        let known = self.metadata().threads.len();
        let all = (0..).map(ThreadIndex).zip(&self.profile().threads);
        all.take(known)
            .filter(|(index, _)| (self.wanted)(*index))
            .collect()
    }

    /// What is said of some of the threads.
    fn of<R>(&self, threads: &BTreeSet<ThreadIndex>, ask: impl FnOnce(&View<'_>) -> R) -> R {
        ask(&View {
            report: self.report,
            own: self.own,
            waits: self.waits,
            wanted: &|thread| threads.contains(&thread),
        })
    }

    /// Times of programs, the longest first; nothing where all threads are of one.
    fn of_programs(
        &self,
        threads: &[(ThreadIndex, &ThreadTime)],
        time: impl Fn(ThreadIndex, &ThreadTime) -> u64,
    ) -> Vec<Program<'a>> {
        let mut programs: BTreeMap<&str, Program<'_>> = BTreeMap::new();
        for (thread, of_thread) in threads {
            let row = &self.metadata().threads[thread.0 as usize];
            let process = self.metadata().processes.get(row.process);
            let name = process.map_or("", |process| &*process.name);
            let program = programs.entry(name).or_default();
            program.name = name;
            program.ns = program.ns.saturating_add(time(*thread, of_thread));
            program.threads.insert(*thread);
        }
        if programs.len() < 2 {
            return Vec::new();
        }
        let mut programs: Vec<_> = programs.into_values().collect();
        programs.sort_by_key(|program| (Reverse(program.ns), program.name));
        programs
    }

    /// ` of PROGRAM` for threads that are all of one, where others were recorded, too.
    fn of_program(&self, threads: &[(ThreadIndex, &ThreadTime)]) -> String {
        let process = threads.first().and_then(|(thread, _)| {
            let row = self.metadata().threads.get(thread.0 as usize)?;
            self.metadata().processes.get(row.process)
        });
        match process.filter(|_| self.metadata().process_count() > 1) {
            Some(process) => format!(" of {}", process.name),
            None => String::new(),
        }
    }

    fn deadlock(&self) -> Option<String> {
        let is_asked_for = |members: &[Member]| members.iter().any(|m| (self.wanted)(m.thread));
        let mut found = self.report.deadlocks.found.iter();
        let (_, members) = found.find(|(_, members)| is_asked_for(members))?;
        let threads = members.iter().map(|member| member.thread).collect();
        Some(format!("a deadlock of {}", self.names(&threads)))
    }

    /// `2801 processes, half of them shorter than 3.1 ms`, as a loop in a shell starts them.
    fn short_processes(&self) -> Option<String> {
        let mut lives: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for (thread, _) in self.threads() {
            let row = &self.metadata().threads[thread.0 as usize];
            let process = self.metadata().processes.get(row.process)?;
            let life = lives.entry(process.pid);
            let life = life.or_insert((process.begin_ns, process.end_ns));
            *life = (life.0.min(process.begin_ns), life.1.max(process.end_ns));
        }
        let mut lived_ns: Vec<u64> = lives
            .values()
            .map(|(from, to)| to.saturating_sub(*from))
            .collect();
        let half = lived_ns.len() / 2;
        let (_, median_ns, _) =
            (lived_ns.len() >= MANY_PROCESSES).then(|| lived_ns.select_nth_unstable(half))?;
        let median_ns = *median_ns;
        (median_ns <= SHORT_LIFE_NS).then(|| {
            let count = lives.len();
            format!(
                "{count} processes, half of them shorter than {}",
                duration(median_ns)
            )
        })
    }

    /// The names of some threads, numbers left out where they are many.
    fn names(&self, threads: &BTreeSet<ThreadIndex>) -> String {
        let known = |thread: &ThreadIndex| self.metadata().threads.get(thread.0 as usize);
        let names: BTreeSet<&str> = (threads.iter().filter_map(known))
            .map(|thread| thread.name.as_str())
            .collect();
        match names.len() {
            0..=2 => Vec::from_iter(names).join(" and "),
            _ => {
                let roles: BTreeSet<String> =
                    names.iter().map(|n| comparable_names::role(n)).collect();
                Vec::from_iter(roles.into_iter().take(NAMED)).join(", ")
            }
        }
    }

    /// What a thread is called where others were recorded, too.
    fn subject(&self, thread: ThreadIndex, threads: usize) -> String {
        let row = &self.metadata().threads[thread.0 as usize];
        let process = self.metadata().processes.get(row.process);
        let is_of_many = self.metadata().process_count() > 1;
        let told_apart = told_apart::by_arguments(self.metadata());
        let of_which = told_apart.get(row.process).filter(|text| !text.is_empty());
        match process.filter(|_| is_of_many) {
            Some(process) if row.is_main => match of_which {
                Some(which) => format!("{} [{which}] ", process.name),
                None => format!("{} ", process.name),
            },
            Some(process) => format!("{} of {} ", row.name, process.name),
            None if row.is_main || threads == 1 => String::new(),
            None => format!("{} ", row.name),
        }
    }

    /// What the thread that does the work did, by the parts of its time.
    fn of_one(
        &self,
        thread: ThreadIndex,
        time: &ThreadTime,
        threads: &[(ThreadIndex, &ThreadTime)],
    ) -> String {
        let whole = time.wall_ns();
        let of_thread = View {
            report: self.report,
            own: self.own,
            waits: self.waits,
            wanted: &|other| other == thread,
        };
        let mut parts: Vec<(u64, String)> = Vec::new();
        if is_worth(time.gap_ns, whole) {
            parts.push((time.gap_ns, "without evidence".to_owned()));
        }
        let computed_ns = time.computing_ns();
        let ready_ns = time.running_ns - computed_ns;
        // On a busy machine what it did is of interest, however long others had the processor.
        if is_worth(computed_ns, whole - ready_ns) {
            let place = of_thread.hot_spot(whole);
            parts.push((computed_ns, format!("computing{place}")));
        }
        if is_worth(ready_ns, whole) {
            parts.push((ready_ns, "waiting for a processor".to_owned()));
        }
        for (kind, ns) in of_thread.by_kind(&|_| true) {
            if is_worth(ns, whole) {
                let what = of_thread.waiting(kind);
                parts.push((ns, what + &of_thread.site(kind, &|_| true)));
            }
        }
        parts.sort_by_key(|(ns, _)| Reverse(*ns));
        let texts = (parts.into_iter().take(NAMED))
            .map(|(ns, text)| format!("{} {text}", share(ns, whole)));
        let texts = texts.collect::<Vec<_>>().join("; ");
        self.subject(thread, threads.len()) + &texts
    }

    /// What several threads did, in the order of what tells more.
    fn of_many(&self, threads: &[(ThreadIndex, &ThreadTime)], running_ns: u64) -> Vec<String> {
        let mut parts = Vec::new();
        let count = self.who_computes(threads, running_ns);
        let is_busy = is_worth(running_ns, self.metadata().recording.duration_ns);
        let computed_ns = sum(threads.iter().map(|(_, time)| time.computing_ns()));
        // What a worker without work waits for is of no interest, nor is the main thread's wait for its
        // workers: those of a program that computes little are, of threads that do something now and then.
        let is_slow = is_slow(computed_ns, self.metadata().recording.duration_ns);
        let is_shown = |wait: &Wait| {
            let row = &self.metadata().threads[wait.thread.0 as usize];
            let time = &self.profile().threads[wait.thread.0 as usize];
            let is_for_workers = wait.kind == WaitKind::Of(Cause::Wait) && row.is_main;
            is_news(wait.kind)
                && !wait.is_idle
                && (is_busy || !is_by_choice(wait.kind))
                && (!is_for_workers || is_slow && is_active(time))
        };
        let by_kind = self.by_kind(&is_shown);
        let mut waits: Vec<(u64, Option<WaitKind>)> = (by_kind.into_iter())
            .map(|(kind, ns)| (ns, Some(kind)))
            .chain([(running_ns - computed_ns, None)])
            .filter(|(ns, _)| is_worth(*ns, running_ns.saturating_add(*ns)))
            .collect();
        waits.sort_by_key(|(ns, _)| Reverse(*ns));
        // A lock is named however long other waits are: it is the program that can make that shorter. And
        // what the machine is short of takes nobody's place.
        let mut rank = 0;
        let is_named = |(_, kind): &(u64, Option<WaitKind>)| {
            rank += usize::from(kind.is_some());
            rank <= WAITS || kind.is_none() || *kind == Some(WaitKind::Of(Cause::Lock))
        };
        let waits = waits.into_iter().filter(is_named);
        let waits = waits.map(|(ns, kind)| {
            let Some(kind) = kind else {
                return format!("{} waiting for a processor", duration(ns));
            };
            let is_of_kind = |wait: &Wait| wait.kind == kind && is_shown(wait);
            let mut by_thread: BTreeMap<ThreadIndex, u64> = BTreeMap::new();
            for wait in self.waits_of(&is_of_kind) {
                let sum = by_thread.entry(wait.thread).or_default();
                *sum = sum.saturating_add(wait.ns);
            }
            let of_thread = |thread| by_thread.get(&thread).copied().unwrap_or(0);
            let what = self.waiting(kind);
            let programs = self.of_programs(threads, |thread, _| of_thread(thread));
            match programs.as_slice() {
                [] => {
                    let counted = by_thread.keys().copied().collect();
                    let site = self.of(&counted, |view| view.site(kind, &is_shown));
                    format!("{} {what}{site}", duration(ns))
                }
                [first, ..] if first.ns.saturating_mul(2) >= ns => {
                    let site = self.of(&first.threads, |view| view.site(kind, &is_shown));
                    format!("{} {what} in {}{site}", duration(first.ns), first.name)
                }
                several => {
                    let several = several.iter().take(NAMED).filter(|of| is_worth(of.ns, ns));
                    let several = several.map(|of| format!("{} {}", of.name, duration(of.ns)));
                    format!(
                        "{} {what} ({})",
                        duration(ns),
                        Vec::from_iter(several).join(", ")
                    )
                }
            }
        });
        let waits: Vec<String> = waits.collect();
        let of = self.of_programs(threads, |_, time| time.computing_ns());
        let of_computing = match of.as_slice() {
            [] => format!(
                "{}{} computed {}{}",
                count,
                self.of_program(threads),
                duration(computed_ns),
                match is_busy {
                    true => self.hot_spot(computed_ns),
                    false => String::new(),
                }
            ),
            several => {
                let several = several
                    .iter()
                    .take(NAMED)
                    .filter(|of| is_worth(of.ns, computed_ns));
                let texts = several.enumerate().map(|(i, of)| {
                    let verb = if i == 0 { " computed" } else { "" };
                    let place = match is_busy && i < 2 {
                        true => self.of(&of.threads, |view| view.hot_spot(of.ns)),
                        false => String::new(),
                    };
                    format!("{}{verb} {}{place}", of.name, duration(of.ns))
                });
                Vec::from_iter(texts).join(", ")
            }
        };
        if is_busy {
            parts.push(of_computing);
            parts.extend(waits);
            return parts;
        }
        // What they wait for says more than that the main thread waits for them.
        let mains = threads
            .iter()
            .filter(|(i, _)| self.metadata().threads[i.0 as usize].is_main);
        if waits.is_empty()
            && let Some((main, time)) = mains.max_by_key(|(_, time)| time.wall_ns())
        {
            let of_main = self.of_one(*main, time, threads);
            parts.push(format!("mostly idle: {of_main}"));
        }
        parts.extend(waits);
        parts.push(of_computing);
        parts
    }

    /// The thread that does all the work: it computes, and the others at most idle.
    fn alone<'b>(
        &self,
        threads: &[(ThreadIndex, &'b ThreadTime)],
        running_ns: u64,
    ) -> Option<(ThreadIndex, &'b ThreadTime)> {
        let (index, time) = *(threads.iter())
            .max_by_key(|(i, time)| (time.running_ns, time.wall_ns(), Reverse(*i)))?;
        let counts = |wait: &Wait| {
            let is_sleep = wait.kind == WaitKind::Of(Cause::Sleep);
            wait.thread != index && is_news(wait.kind) && !wait.is_idle && !is_sleep
        };
        let waits_ns = sum(self.waits_of(&counts).map(|wait| wait.ns));
        let is_alone = time.running_ns as f64 >= ALONE * running_ns as f64
            && !is_worth(waits_ns, time.wall_ns().saturating_add(waits_ns));
        is_alone.then_some((index, time))
    }

    /// The waits that are wanted and count.
    fn waits_of(&self, counts: &dyn Fn(&Wait) -> bool) -> impl Iterator<Item = &'a Wait> {
        let all = self.waits.iter();
        all.filter(move |wait| (self.wanted)(wait.thread) && counts(wait))
    }

    /// How long was waited for each kind, ns.
    fn by_kind(&self, counts: &dyn Fn(&Wait) -> bool) -> BTreeMap<WaitKind, u64> {
        let mut sums: BTreeMap<WaitKind, u64> = BTreeMap::new();
        for wait in self.waits_of(counts) {
            let sum = sums.entry(wait.kind).or_default();
            *sum = sum.saturating_add(wait.ns);
        }
        sums
    }

    /// How many threads did nearly all of the computing, or processes where each is of its own: `6 threads`.
    /// What others did is not worth a word, nor is what each of a runtime's helpers did beside the program's
    /// threads.
    fn who_computes(&self, threads: &[(ThreadIndex, &ThreadTime)], running_ns: u64) -> String {
        let mut busiest: Vec<(u64, ThreadIndex)> = (threads.iter())
            .map(|(thread, time)| (time.running_ns, *thread))
            .collect();
        busiest.sort_by_key(|(ns, _)| Reverse(*ns));
        let most_ns = busiest.first().map_or(0, |(ns, _)| *ns);
        let mut rest_ns = running_ns;
        let computing = busiest.iter().take_while(|(ns, _)| {
            let is_small = rest_ns <= running_ns / 10 && !is_worth(*ns, most_ns);
            let counts = rest_ns > running_ns / 100 && !is_small;
            rest_ns = rest_ns.saturating_sub(*ns);
            counts
        });
        let rows = computing.map(|(_, thread)| &self.metadata().threads[thread.0 as usize]);
        let rows: Vec<_> = rows.collect();
        let count = rows.iter().map(|row| u64::from(row.merged.max(1))).sum();
        let pids: BTreeSet<u32> = rows.iter().map(|row| row.pid).collect();
        match pids.len() == rows.len() && rows.len() as u64 == count {
            true if count > 1 => plural(count, "process", "processes"),
            _ => plural(count, "thread", "threads"),
        }
    }

    /// In which function most of the computing was done, by the rule of `own_code`: ` (70 % in parse at
    /// json.py:12)`.
    fn hot_spot(&self, whole_ns: u64) -> String {
        let mut by_place: BTreeMap<u32, u64> = BTreeMap::new();
        let mut spent = Spent::default();
        for ((thread, place), cell) in &self.profile().cells {
            if (self.wanted)(*thread) {
                *by_place.entry(*place).or_default() += cell.spent.computing_ns();
                spent.add(&cell.spent);
            }
        }
        let running_ns = sum(by_place.values().copied());
        if running_ns == 0 || effective_samples(&spent) < LEAST_SAMPLES {
            return String::new();
        }
        let stacks = by_place.into_iter().filter(|(_, ns)| *ns > 0);
        let stacks: Vec<_> = stacks
            .map(|(place, ns)| self.own.stack(place, ns))
            .collect();
        let of = |(function, ns): (FunctionIndex, u64)| {
            let name = self.function_text(function);
            format!("{} in {name}", share(ns, whole_ns))
        };
        let text = match lead(&stacks) {
            Some(Lead::One(function, Some((inner, ns)))) => {
                let name = self.function_text(inner);
                let inner = format!(", above all in {name}: {}", share(ns, whole_ns));
                of(function) + &inner
            }
            Some(Lead::One(function, None)) => of(function),
            Some(Lead::Several(several)) => {
                let several = several.into_iter();
                let worth = several.filter(|(_, ns)| is_worth(*ns, running_ns));
                Vec::from_iter(worth.map(of)).join(", ")
            }
            None => String::new(),
        };
        match text.is_empty() {
            true => text,
            false => format!(" ({text})"),
        }
    }

    /// Where most of the waits of a kind were, and who held the lock: ` (fsync in unixSync at os.c:12)`.
    fn site(&self, kind: WaitKind, counts: &dyn Fn(&Wait) -> bool) -> String {
        // An event loop is the library's, and so is what a worker without work waits in.
        let is_interpreters = kind == WaitKind::InterpreterLock;
        let may_be_idle = is_interpreters || kind == WaitKind::Of(Cause::Poll);
        let mut sums: BTreeMap<(ProbeId, Option<FunctionIndex>), u64> = BTreeMap::new();
        let mut whole = 0_u64;
        for wait in self.waits_of(&|wait| wait.kind == kind && counts(wait)) {
            let function = match may_be_idle {
                true => self.own.innermost_at_work(wait.place),
                false => self.own.innermost(wait.place),
            };
            let sum = sums.entry((wait.probe, function)).or_default();
            *sum = sum.saturating_add(wait.ns);
            whole = whole.saturating_add(wait.ns);
        }
        let mut text = match kind {
            WaitKind::Of(Cause::Lock) => self.owner().unwrap_or_default(),
            _ => String::new(),
        };
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|(site, ns)| (Reverse(*ns), *site));
        let text_of = |(probe, function): (ProbeId, Option<FunctionIndex>)| match function {
            Some(f) if is_interpreters => format!("in {}", self.function_text(f)),
            Some(f) => format!("{} in {}", probe.name(), self.function_text(f)),
            None => probe.name().into_owned(),
        };
        match sums.first() {
            Some((site, ns)) if *ns >= whole / 2 => {
                let most = match *ns as f64 >= NEARLY_ALL * whole as f64 {
                    true => "",
                    false => "mostly ",
                };
                text += &format!(" ({most}{})", text_of(*site));
            }
            _ => {
                let worth = sums
                    .iter()
                    .take(NAMED)
                    .filter(|(_, ns)| is_worth(*ns, whole));
                let texts =
                    worth.map(|(site, ns)| format!("{} {}", share(*ns, whole), text_of(*site)));
                let texts: Vec<String> = texts.collect();
                if !texts.is_empty() {
                    text += &format!(" ({})", texts.join(", "));
                }
            }
        }
        text
    }

    /// What a thread waits for: of locks, those that nearly all long waits were for.
    fn waiting(&self, kind: WaitKind) -> String {
        let cause = match kind {
            WaitKind::InterpreterLock => return format!("waiting for {GIL}"),
            WaitKind::Of(Cause::Lock) => Cause::Lock,
            WaitKind::Of(cause) => return waiting(cause).to_owned(),
        };
        let locks = self.locks();
        let mut names: Vec<&str> = Vec::new();
        for name in locks.iter().flatten() {
            // Of a process that was forked it is another lock, with the same name.
            if !names.contains(name) {
                names.push(name);
            }
        }
        let all_have_names = locks.iter().all(Option::is_some) && names.len() <= NAMED;
        match names.split_last() {
            Some((last, [])) if all_have_names => format!("waiting for lock {last}"),
            Some((last, others)) if all_have_names => {
                format!("waiting for locks {} and {last}", others.join(", "))
            }
            _ if locks.len() > 1 => format!("waiting for {} locks", locks.len()),
            _ => waiting(cause).to_owned(),
        }
    }

    /// The locks that nearly all long waits for one were for, by their names where they have some.
    fn locks(&self) -> Vec<Option<&'a str>> {
        // An interpreter's own may be several, and its others are no locks for the hooks.
        let mut of_interpreter = self.waits.iter().map(|wait| wait.kind);
        if of_interpreter.any(|kind| kind == WaitKind::InterpreterLock) {
            return Vec::new();
        }
        // An address is another lock in another process.
        let process = |thread: ThreadIndex| {
            let row = self.metadata().threads.get(thread.0 as usize);
            row.map_or(0, |row| row.pid)
        };
        let names = &self.profile().waited_for;
        let mut sums: BTreeMap<(u32, u64), (u64, Option<&str>)> = BTreeMap::new();
        for ((thread, lock), ns) in &self.report.waits.locks {
            if (self.wanted)(*thread) {
                let (sum, name) = sums.entry((process(*thread), *lock)).or_default();
                *sum = sum.saturating_add(*ns);
                *name = name.or(names.name(*thread, *lock));
            }
        }
        let mut locks: Vec<_> = sums.into_values().collect();
        locks.sort_by_key(|(ns, name)| (Reverse(*ns), *name));
        let whole = sum(locks.iter().map(|(ns, _)| *ns)) as f64;
        let mut so_far = 0.0;
        let most = locks.into_iter().take_while(|(ns, _)| {
            let is_needed = so_far < NEARLY_ALL * whole;
            so_far += *ns as f64;
            is_needed
        });
        most.map(|(_, name)| name).collect()
    }

    /// Who held the lock in most of the long waits for one, and where it was let go of: ` held by worker-3 in
    /// flush at cache.c:40`. Nobody is named where all threads have one name.
    fn owner(&self) -> Option<String> {
        let mut by_thread: BTreeMap<ThreadIndex, u64> = BTreeMap::new();
        let mut by_function: BTreeMap<FunctionIndex, u64> = BTreeMap::new();
        let held = self.report.held();
        for held in held.iter().filter(|held| (self.wanted)(held.waiting)) {
            let sum = by_thread.entry(held.by).or_default();
            *sum = sum.saturating_add(held.ns);
            if let Some(function) = held.until.and_then(|place| self.own.innermost(place)) {
                let sum = by_function.entry(function).or_default();
                *sum = sum.saturating_add(held.ns);
            }
        }
        let whole = sum(by_thread.values().copied());
        let mut by_name: BTreeMap<String, u64> = BTreeMap::new();
        let (thread, longest_ns) = by_thread.iter().max_by_key(|(_, ns)| **ns)?;
        let is_one = longest_ns.saturating_mul(2) >= whole;
        let name_of = |thread: &ThreadIndex| {
            let name = self.names(&BTreeSet::from([*thread]));
            match is_one {
                true => name,
                false => comparable_names::role(&name),
            }
        };
        for (thread, ns) in &by_thread {
            *by_name.entry(name_of(thread)).or_default() += ns;
        }
        let name = match is_one {
            true => name_of(thread),
            false => by_name.iter().max_by_key(|(_, ns)| **ns)?.0.clone(),
        };
        let most = |ns: u64| match ns as f64 >= NEARLY_ALL * whole as f64 {
            true => "",
            false => "mostly ",
        };
        let mut threads = self.metadata().threads.iter();
        let is_told_apart =
            threads.any(|t| t.name != name && comparable_names::role(&t.name) != name);
        let ns = by_name.get(&name).copied().unwrap_or(0);
        let has_half = |ns: u64| ns > 0 && ns.saturating_mul(2) >= whole;
        let mut text = String::new();
        if !name.is_empty() && is_told_apart && has_half(ns) {
            text = format!(" {}held by {name}", most(ns));
        }
        let function = by_function
            .into_iter()
            .max_by_key(|(f, ns)| (*ns, Reverse(*f)));
        if let Some((function, ns)) = function.filter(|(_, ns)| has_half(*ns)) {
            let place = self.function_text(function);
            text += &match text.is_empty() {
                true => format!(" {}held in {place}", most(ns)),
                false => format!(" in {place}"),
            };
        }
        (!text.is_empty()).then_some(text)
    }

    /// `parse at json.py:12`, or `memcpy [libc.so.6]`.
    fn function_text(&self, function: FunctionIndex) -> String {
        let Some(known) = self.metadata().functions.get(function.0 as usize) else {
            return "?".to_owned();
        };
        let name = shorten_name(&known.name, NAME);
        let module = file_name(&known.module);
        match known.file.as_str() {
            "" if module.is_empty() || name.starts_with(module) => name,
            "" if module.starts_with('[') => format!("{name} {module}"),
            "" => format!("{name} [{module}]"),
            file => format!("{name} at {}", source_text(file, known.line)),
        }
    }
}

#[cfg(test)]
mod tests;
