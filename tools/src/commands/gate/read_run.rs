//! From one trace to the run that the gate compares: the same profile that reports show, by roles
//! instead of threads.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use anyhow::Result;
use stackbeat_core::probe::{Cause, Probe};
use stackbeat_core::system_call::SystemCalls;
use stackbeat_gate::run::wait_sums::{End, Party, WaitKey};
use stackbeat_gate::run::{self, About, Builder, NameId, Names, Role, RoleId, Run, ScopeSum, Side};
use stackbeat_model::layers::Layer;
use stackbeat_model::metric::{Metric, Values};
use stackbeat_model::{ProbeId, ThreadIndex, Trace, is_runtime, qualified_name, transfers};

use crate::summary::call_tree::{Cell, Label, Leaf, Profile, ROOT, ThreadTime};
use crate::summary::counters::CounterRow;
use crate::summary::libraries::{is_library, is_managed};
use crate::summary::load::{Report, summarize_by};
use crate::summary::metadata::{FunctionName, Metadata, Recording};
use crate::summary::roles::role_of_thread;

/// What stays the same while traces are read one after the other.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    pub names: Names,
    /// The program, as the first trace calls it: two builds may have different file names.
    program: Option<String>,
    pub sources: Sources,
}

/// Where functions come from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    /// File and line.
    places: HashMap<NameId, (String, u32)>,
    libraries: HashSet<NameId>,
    interpreters: HashSet<NameId>,
    interpreted: HashSet<NameId>,
}

impl Sources {
    pub(crate) fn get(&self, function: &NameId) -> Option<&(String, u32)> {
        self.places.get(function)
    }

    /// Whether any function of this name is the system's, the runtime's or a package's. Without debug
    /// information names are so short that a program's own function may share one.
    pub(crate) fn is_library(&self, function: NameId) -> bool {
        self.libraries.contains(&function)
    }

    /// Whether a function of this name is an interpreter's.
    pub(super) fn is_of_interpreter(&self, function: NameId) -> bool {
        self.interpreters.contains(&function)
    }

    /// Whether an interpreter runs a function of this name, or a runtime has compiled it.
    pub(super) fn is_interpreted(&self, function: NameId) -> bool {
        self.interpreted.contains(&function)
    }

    fn note(&mut self, id: NameId, function: &FunctionName) {
        if !function.file.is_empty() {
            let place = (function.file.clone(), function.line);
            self.places.insert(id, place);
        }
        if is_library(function) || is_system(function) {
            self.libraries.insert(id);
        }
        if function.layer() == Layer::Interpreter {
            self.interpreters.insert(id);
        }
        if is_managed(function) {
            self.interpreted.insert(id);
        }
    }
}

impl Reader {
    /// Reads a trace and keeps only its sums.
    #[cfg(target_os = "linux")]
    pub(crate) fn read(&mut self, path: &Path, side: Side) -> Result<Run> {
        let report = load_by_role(path)?;
        Ok(self.run(&report, path, side))
    }

    pub(super) fn run(&mut self, report: &Report, path: &Path, side: Side) -> Run {
        let Report {
            metadata, profile, ..
        } = report;
        let mut builder = Builder::new(side, about(report, path));
        let roles = self.roles(metadata);
        let functions: Vec<NameId> = metadata
            .functions
            .iter()
            .map(|f| {
                let name = qualified_name(&f.name, &f.module, &f.file);
                self.names.function(&name, is_system(f), side)
            })
            .collect();
        self.note_builds(metadata, &functions, side);
        for (function, id) in metadata.functions.iter().zip(&functions) {
            self.sources.note(*id, function);
        }
        let mut finder = Finder {
            profile,
            functions: &functions,
            calls: self.calls_that_wait(profile, side),
            builder: &mut builder,
            places: HashMap::new(),
        };
        let mut cells: Vec<_> = profile.cells.iter().collect();
        cells.sort_by_key(|(key, _)| **key);
        for ((thread, place), cell) in cells {
            let label = profile.tree.places()[*place as usize].label;
            let at = finder.place(roles[thread.0 as usize], *place);
            finder.builder.add(at, &cell_values(label, cell));
        }
        let mut sites: Vec<_> = report.calls.iter().collect();
        sites.sort_unstable();
        for (thread, place, call, count) in sites {
            let at = finder.place(roles[thread.0 as usize], place);
            let metric = Metric::SYSTEM_CALLS[call as usize];
            finder.builder.calls(at, metric, count);
        }
        for (thread, time) in profile.threads.iter().enumerate() {
            let calls = metadata.threads[thread].system_calls;
            builder.thread(roles[thread], &thread_values(time, calls));
        }
        self.waits(report, &roles, &functions, &mut builder);
        for (metric, name, unit) in TRANSFERS {
            let is_it = |c: &&CounterRow| c.upid == 0 && c.name == name && c.unit == unit;
            if let Some(counter) = metadata.counters.iter().find(is_it) {
                builder.whole(metric, u64::try_from(counter.last).unwrap_or(0));
            }
        }
        let scopes = metadata.scopes.iter().map(|scope| {
            let inside = scope.inside.unwrap_or_default();
            let mut values = thread_values(&inside.time, Some(inside.system_calls));
            values.set(Metric::Wall, scope.total_ns);
            ScopeSum {
                name: scope.name.clone(),
                count: scope.count,
                longest_ns: scope.longest_ns,
                values,
                knows_inside: scope.inside.is_some(),
            }
        });
        builder.scopes = scopes.collect();
        builder.finish(metadata.recording.duration_ns)
    }

    /// Says which builds the run has loaded, and which functions are in each.
    fn note_builds(&mut self, metadata: &Metadata, functions: &[NameId], side: Side) {
        let mut builds = HashMap::new();
        for (path, build_ids) in &metadata.builds {
            let numbers = build_ids.iter().map(|id| match id.is_empty() {
                true => None,
                false => Some(self.names.build(id, side)),
            });
            builds.insert(path, numbers.collect::<Vec<_>>());
        }
        for (function, id) in metadata.functions.iter().zip(functions) {
            let known = builds.get(&function.module).map(Vec::as_slice);
            for build in known.unwrap_or(&[None]) {
                self.names.is_in(*id, *build);
            }
        }
    }

    /// The names of calls that waited.
    fn calls_that_wait(&mut self, profile: &Profile, side: Side) -> HashMap<ProbeId, NameId> {
        let labels = profile.tree.places().iter().map(|place| place.label);
        let probes = labels.filter_map(|label| match label {
            Label::Leaf(Leaf::Blocking(probe)) => Some(probe),
            _ => None,
        });
        probes
            .map(|probe| (probe, self.names.function(&probe.name(), true, side)))
            .collect()
    }

    /// Long waits: who held what was waited for, and who ended the wait.
    fn waits(
        &self,
        report: &Report,
        roles: &[RoleId],
        functions: &[NameId],
        builder: &mut Builder,
    ) {
        let role = |thread: ThreadIndex| roles.get(thread.0 as usize).copied();
        let own_function = |place: u32| {
            let labels = report.profile.tree.outwards(place);
            let names = labels.filter_map(|(_, label)| match label {
                Label::Function(f) => functions.get(f.0 as usize).copied(),
                _ => None,
            });
            let names: Vec<NameId> = names.collect();
            let is_system = |name: &NameId| self.names.names()[name.0 as usize].is_system;
            names
                .iter()
                .find(|name| !is_system(name))
                .or(names.first())
                .copied()
        };
        for wait in report.waits.sums() {
            let Some(waiter) = role(wait.thread) else {
                continue;
            };
            let end = match wait.waker.and_then(role) {
                _ if wait.failed => End::Failed,
                Some(role) => End::By(Party {
                    role,
                    function: wait.waking.and_then(own_function),
                }),
                None if is_ended_by_others(wait.probe) => End::NobodyKnown,
                None => End::Unknown,
            };
            let key = WaitKey {
                waiter,
                metric: Metric::of_cause(wait.probe.cause()),
                holder: wait.owner.and_then(role),
                end,
            };
            builder.wait(key, wait.count, wait.total_ns);
        }
    }

    /// The role of each thread.
    fn roles(&mut self, metadata: &Metadata) -> Vec<RoleId> {
        let root_pid = metadata.processes.first().map_or(0, |p| p.pid);
        let images = || metadata.processes.iter().filter(|p| p.pid == root_pid);
        let longest = images().max_by_key(|p| p.end_ns - p.begin_ns);
        let longest = longest.map_or_else(String::new, |p| p.name.clone());
        let program = self.program.get_or_insert_with(|| longest.clone()).clone();
        let is_renamed = images().all(|p| p.name != program);
        let threads = metadata.threads.iter().map(|thread| {
            let process = &metadata.processes[thread.process];
            let mut name = process.name.clone();
            if is_renamed && name == longest {
                name.clone_from(&program);
            }
            self.names.role(Role {
                thread: role_of_thread(thread.is_main, &thread.name, &process.name),
                is_root: thread.is_main && process.pid == root_pid,
                process: name,
            })
        });
        threads.collect()
    }
}

/// Reads a trace for `Reader::run`, which knows what is damaged, too: threads of one process and role are
/// summed up together from the beginning.
pub(crate) fn load_by_role(path: &Path) -> Result<Report> {
    let trace = Trace::open(path)?;
    let mut first = HashMap::new();
    let owners = trace.threads().iter().enumerate().map(|(at, thread)| {
        let process = trace.process(thread.process).name();
        let role = role_of_thread(thread.is_main, &thread.name, &process);
        *first
            .entry((thread.process.0, role))
            .or_insert(ThreadIndex(at as u32))
    });
    let owners = owners.collect();
    summarize_by(&trace, 0, owners)
}

/// Finds places of the run's tree for those of a profile.
struct Finder<'a> {
    profile: &'a Profile,
    functions: &'a [NameId],
    calls: HashMap<ProbeId, NameId>,
    builder: &'a mut Builder,
    places: HashMap<(RoleId, u32), u32>,
}

impl Finder<'_> {
    fn place(&mut self, role: RoleId, place: u32) -> u32 {
        if place == ROOT {
            return self.builder.tree.child(run::ROOT, run::Label::Group(role));
        }
        if let Some(known) = self.places.get(&(role, place)) {
            return *known;
        }
        // The chain to the nearest known caller, then back down.
        let mut chain = vec![place];
        let mut at = self.profile.tree.places()[place as usize].parent;
        while at != ROOT && !self.places.contains_key(&(role, at)) {
            chain.push(at);
            at = self.profile.tree.places()[at as usize].parent;
        }
        let mut below = match self.places.get(&(role, at)) {
            Some(known) => *known,
            None => self.builder.tree.child(run::ROOT, run::Label::Group(role)),
        };
        for at in chain.into_iter().rev() {
            let label = match self.profile.tree.places()[at as usize].label {
                Label::Function(f) => run::Label::Function(self.functions[f.0 as usize]),
                Label::Leaf(Leaf::Blocking(probe)) => {
                    run::Label::Leaf(Leaf::Blocking(self.calls[&probe]))
                }
                Label::Leaf(Leaf::Code | Leaf::Gap | Leaf::NoStack) | Label::Root => {
                    run::Label::Leaf(Leaf::Gap)
                }
                Label::Small => run::Label::Small,
                Label::Group(none) => match none {},
            };
            below = self.builder.tree.child(below, label);
            self.places.insert((role, at), below);
        }
        below
    }
}

/// What the program read and wrote: metrics, and the counters that they are in the trace.
const TRANSFERS: [(Metric, &str, &str); 4] = [
    (Metric::ReadCalls, transfers::READ_CALLS, transfers::CALLS),
    (Metric::WriteCalls, transfers::WRITE_CALLS, transfers::CALLS),
    (Metric::ReadBytes, transfers::BYTES_READ, transfers::BYTES),
    (
        Metric::WrittenBytes,
        transfers::BYTES_WRITTEN,
        transfers::BYTES,
    ),
];

/// The machine's fingerprint: what may make the same program faster or slower.
pub(crate) fn machine(r: &Recording) -> String {
    format!("{}, {} CPUs, {} ({})", r.cpu_model, r.cpus, r.os, r.machine)
}

fn about(report: &Report, path: &Path) -> About {
    let r = &report.metadata.recording;
    let calls = report.metadata.system_calls(&|_| true);
    let group = path
        .parent()
        .map_or_else(String::new, |p| p.display().to_string());
    About {
        label: path.display().to_string(),
        group,
        command: r.command.join(" "),
        programs: programs(&report.metadata),
        shares_processor: r.shares_processor,
        damage: report.damage.clone(),
        machine: machine(r),
        started_unix_ns: r.started_unix_ns,
        interval_ns: r.interval_ns,
        lost: r.records_lost,
        counts_end_early: r.counts_end_ns.is_some(),
        knows_system_calls: calls.is_some(),
        knows_callers: calls.is_some_and(|calls| calls.sum() == 0)
            || report.calls.iter().next().is_some(),
        knows_call_bytes: report.metadata.call_bytes(&|_| true).is_some(),
        complete: r.outcome == "finished",
        calibration_ns: report.calibration_ns,
    }
}

/// What the recorded process executed.
fn programs(metadata: &Metadata) -> Vec<String> {
    let root = metadata.processes.first().map_or(0, |p| p.pid);
    let images = metadata.processes.iter().filter(|p| p.pid == root);
    let mut names: Vec<String> = images.map(|p| p.name.clone()).collect();
    names.sort();
    names.dedup();
    names
}

/// Part of what every program stands on: named only when nothing of the program itself can be.
fn is_system(function: &FunctionName) -> bool {
    const SYSTEM: [&str; 12] = [
        "libc.",
        "libc-",
        "ld-linux",
        "ld-musl",
        "libpthread",
        "libm.",
        "libm-",
        "libstdc++",
        "libgcc_s",
        "libdl",
        "librt",
        "[vdso]",
    ];
    // Templates and inlined functions of the languages' libraries are compiled into the program.
    const SOURCES: [&str; 3] = ["/usr/include/", "/usr/lib/gcc/", "/rustc/"];
    if SOURCES.iter().any(|s| function.file.starts_with(s)) {
        return true;
    }
    if is_runtime(&function.module) {
        return is_library(function);
    }
    if Layer::of(&function.name, &function.module, &function.file) == Layer::Interpreter {
        return true;
    }
    let file = function.module.rsplit('/').next().unwrap_or("");
    SYSTEM.iter().any(|s| file.starts_with(s)) || file.starts_with("linux-vdso")
}

/// Whether what ends a call is sent by somebody, here or elsewhere: a read may wait for a disk. Whom the
/// trace would know of those that were recorded depends on the descriptor, which it says nothing of.
fn is_ended_by_others(probe: ProbeId) -> bool {
    let of_descriptors = [
        Probe::Accept,
        Probe::Recv,
        Probe::Poll,
        Probe::Select,
        Probe::EpollWait,
    ];
    probe
        .known()
        .is_some_and(|probe| of_descriptors.contains(&probe))
}

fn cell_values(label: Label, cell: &Cell) -> Values {
    let spent = &cell.spent;
    let mut values = metrics(&spent.metrics);
    values.set(Metric::Wall, spent.wall_ns);
    match label {
        Label::Leaf(Leaf::Blocking(probe)) => {
            values.set(Metric::of_cause(probe.cause()), spent.blocked_ns);
            values.set(Metric::Calls, cell.count);
        }
        Label::Leaf(Leaf::Gap) => values.set(Metric::Gap, spent.gap_ns),
        _ => values.set(
            Metric::Ready,
            (spent.running_ns()).saturating_sub(spent.metrics.cpu_ns),
        ),
    }
    values
}

fn thread_values(time: &ThreadTime, calls: Option<SystemCalls>) -> Values {
    let mut values = metrics(&time.metrics);
    for (metric, count) in Metric::SYSTEM_CALLS
        .into_iter()
        .zip(calls.unwrap_or_default().0)
    {
        values.set(metric, count);
    }
    values.set(Metric::Wall, time.wall_ns());
    for cause in Cause::ALL {
        let metric = Metric::of_cause(cause);
        let sum = values.get(metric) + time.blocked_ns[cause as usize];
        values.set(metric, sum);
    }
    values.set(Metric::Gap, time.gap_ns);
    let ready = time.running_ns.saturating_sub(time.metrics.cpu_ns);
    values.set(Metric::Ready, ready);
    values
}

fn metrics(metrics: &stackbeat_model::Metrics) -> Values {
    let mut values = Values::default();
    for metric in [
        Metric::Cpu,
        Metric::Allocations,
        Metric::AllocatedBytes,
        Metric::Frees,
        Metric::MinorFaults,
        Metric::MajorFaults,
        Metric::VoluntarySwitches,
        Metric::InvoluntarySwitches,
    ] {
        values.set(metric, metrics.get(metric));
    }
    values
}

#[cfg(test)]
mod tests {
    use stackbeat_core::system_call::SystemCall;
    use stackbeat_gate::run::wait_sums::WaitSum;
    use stackbeat_model::metric::METRICS;
    use stackbeat_model::{FunctionIndex, LongWait, StackIndex};

    use super::*;
    use crate::summary::load::load;
    use crate::testing;

    #[test]
    fn a_run_has_the_sums_of_the_report() {
        let report = testing::report();
        let mut reader = Reader::default();
        let run = reader.run(&report, Path::new("a/shop.beat"), Side::Baseline);
        let mut all = ThreadTime::default();
        for thread in &report.profile.threads {
            all.add(thread);
        }
        assert_eq!(
            run.whole.get(Metric::Wall),
            report.metadata.recording.duration_ns
        );
        assert_eq!(run.whole.get(Metric::Cpu), all.metrics.cpu_ns);
        assert_eq!(
            run.whole.get(Metric::Lock),
            all.blocked_ns[Cause::Lock as usize]
        );
        assert_eq!(run.whole.get(Metric::Gap), all.gap_ns);
        let sum = |metric| -> u64 {
            let of_metric = run.entries().filter(|e| e.metric == metric);
            of_metric.map(|e| e.value).sum()
        };
        assert_eq!(sum(Metric::Cpu), all.metrics.cpu_ns);
        assert_eq!(sum(Metric::Wall), all.wall_ns());
        assert_eq!((run.about.group.as_str(), run.about.lost), ("a", 3));
        // Two workers are one role; each process has its main thread.
        let roles: Vec<String> = reader.names.roles().iter().map(Role::describe).collect();
        assert_eq!(
            roles,
            [
                "main thread of shop",
                "worker-* of shop",
                "main thread of sh"
            ]
        );
        let workers = run
            .roles
            .iter()
            .find(|(r, _)| r.0 == 1)
            .expect("there are workers");
        assert_eq!(workers.1.get(Metric::Threads), 2);
    }

    #[test]
    fn long_waits_keep_who_held_the_lock_and_who_let_go_of_it() {
        let mut report = testing::report();
        let [main, insert, memcpy] = [0, 4, 6].map(FunctionIndex);
        let waiting = report.profile.tree.path(&[main]);
        // What is of libc is its caller's.
        let waking = report.profile.tree.path(&[insert, memcpy]);
        let (shop, worker) = (ThreadIndex(0), ThreadIndex(1));
        let held = LongWait {
            thread: shop,
            begin_ns: 1_000_000,
            end_ns: 6_000_000,
            stack: StackIndex::NONE,
            probe: Probe::MutexLock.into(),
            object: 0x7ffe_0000,
            result: 0,
            owner: Some(worker),
            waker: Some(worker),
            wake: None,
        };
        let timed_out = LongWait {
            probe: Probe::CondWait.into(),
            result: 110,
            owner: None,
            waker: None,
            ..held
        };
        report.waits.add(&held, waiting, Some(waking));
        report.waits.add(&held, waiting, Some(waking));
        report.waits.add(&timed_out, waiting, None);
        // Something came, and nobody is known who sent it; what a disk ends says nothing of others.
        let received = LongWait {
            probe: Probe::Recv.into(),
            result: 4,
            ..timed_out
        };
        let read = LongWait {
            probe: Probe::Read.into(),
            ..received
        };
        report.waits.add(&received, waiting, None);
        report.waits.add(&read, waiting, None);
        let mut reader = Reader::default();
        let run = reader.run(&report, Path::new("a/shop.beat"), Side::Baseline);
        let [lock, wait, read, received] = run.waits[..] else {
            panic!("{:?}", run.waits);
        };
        assert_eq!((lock.count, lock.total_ns), (2, 10_000_000));
        assert_eq!(lock.key.metric, Metric::Lock);
        let describe = |role: RoleId| reader.names.roles()[role.0 as usize].describe();
        assert_eq!(describe(lock.key.waiter), "main thread of shop");
        let holder = lock.key.holder.map(describe);
        assert_eq!(holder.as_deref(), Some("worker-* of shop"));
        let End::By(by) = lock.key.end else {
            panic!("{:?}", lock.key);
        };
        assert_eq!(describe(by.role), "worker-* of shop");
        let function = by.function.map(|name| reader.names.text(name));
        assert_eq!(function, Some("shop::store::Store::insert"));
        let ends = (wait.key.metric, wait.key.holder, wait.key.end);
        assert_eq!(ends, (Metric::Wait, None, End::Failed));
        let end = |wait: WaitSum| (wait.key.metric, wait.key.end);
        assert_eq!(end(read), (Metric::Io, End::Unknown));
        assert_eq!(end(received), (Metric::Net, End::NobodyKnown));
    }

    #[test]
    fn threads_of_a_role_that_are_summed_up_early_give_the_same_run() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("server.beat");
        let program = stackbeat_model::synthetic::realistic();
        std::fs::write(&path, program).expect("is written");
        let early = load_by_role(&path).expect("is read");
        let late = load(&path, 0).expect("is read");
        assert!(early.profile.cells.len() < late.profile.cells.len());
        let run = |report| Reader::default().run(report, &path, Side::Baseline);
        let (early, late) = (run(&early), run(&late));
        assert_eq!(early.roles, late.roles);
        assert!(early.functions().eq(late.functions()));
        assert_eq!(early.places().len(), late.places().len());
        let sums = |run: &Run| {
            let mut sums = Values::<METRICS>::default();
            for entry in run.entries() {
                sums.set(entry.metric, sums.get(entry.metric) + entry.value);
            }
            sums
        };
        assert_eq!(sums(&early), sums(&late));
    }

    #[test]
    fn kinds_of_system_calls_are_metrics() {
        let names = |kind: SystemCall| match kind {
            SystemCall::BytesRead => "bytes:read".to_owned(),
            SystemCall::BytesWritten => "bytes:written".to_owned(),
            SystemCall::WakeUps => "wake-ups".to_owned(),
            kind => format!("calls:{}", kind.name()),
        };
        let kinds = SystemCall::ALL.map(names);
        assert_eq!(
            kinds,
            Metric::SYSTEM_CALLS.map(|metric| metric.name().to_owned())
        );
        let report = testing::report();
        let mut reader = Reader::default();
        let run = reader.run(&report, Path::new("a/shop.beat"), Side::Baseline);
        assert!(run.about.knows_system_calls);
        let workers = run
            .roles
            .iter()
            .find(|(r, _)| r.0 == 1)
            .expect("there are workers");
        assert_eq!(workers.1.get(Metric::CallsRead), 3000);
        assert_eq!(workers.1.get(Metric::CallsWrite), 60);
        assert_eq!(run.whole.get(Metric::CallsRead), 6000);
    }

    #[test]
    fn functions_of_a_file_that_both_sides_loaded_are_known() {
        let mut reader = Reader::default();
        for (side, build_id) in [(Side::Baseline, 1), (Side::Candidate, 2)] {
            let mut report = testing::report();
            let paths: Vec<String> = (report.metadata.functions.iter())
                .map(|function| function.module.clone())
                .filter(|module| !module.is_empty())
                .collect();
            // The program was built anew, its libraries were not.
            report.metadata.builds = (paths.into_iter())
                .map(|path| match path.contains("libc") {
                    true => (path, [vec![9]].into()),
                    false => (path, [vec![build_id]].into()),
                })
                .collect();
            reader.run(&report, Path::new("a/shop.beat"), side);
        }
        let names = &reader.names;
        let same: Vec<&str> = (0..names.names().len() as u32)
            .map(NameId)
            .filter(|name| names.is_in_same_builds(*name))
            .map(|name| names.text(name))
            .collect();
        assert_eq!(same, ["memcpy", "malloc", "start_thread"]);
    }

    #[test]
    fn a_renamed_program_keeps_its_role() {
        let mut reader = Reader::default();
        let before = testing::report();
        reader.run(&before, Path::new("a.beat"), Side::Baseline);
        let mut after = testing::report();
        after.metadata.processes[0].name = "shop-new".into();
        reader.run(&after, Path::new("b.beat"), Side::Candidate);
        assert_eq!(reader.names.roles().len(), 3);
    }
}
