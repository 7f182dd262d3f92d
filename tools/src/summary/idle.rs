//! Waits of threads that have nothing to do: event loops, executors, sleeps, and workers without work.
//! Whoever looks for what holds a program up looks at the others first.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use stackbeat_core::probe::Cause;
use stackbeat_model::layers::{Layer, is_of_executor};
use stackbeat_model::{FunctionIndex, ThreadIndex};

use super::call_tree::{Label, Leaf, Profile, ThreadTime, Tree};
use super::functions::{SiteRow, blocking_sites, blocking_sites_of};
use super::labels::is_managed;
use super::libraries::{self, is_library, package};
use super::load::Report;
use super::metadata::Metadata;
use super::own_code::OwnCode;
use crate::units::{duration, plural};

/// Waits that a thread spends by choice, not because something holds it up.
pub(crate) const CAUSES: [Cause; 2] = [Cause::Poll, Cause::Sleep];

/// Other threads than the main one wait for work in these: condition variables, semaphores, futexes.
pub(crate) const CAUSES_OF_WORKERS: [Cause; 1] = [Cause::Wait];

/// A thread that computes this part of its time is at work: what it sleeps in between holds that up.
const AT_WORK: f64 = 0.2;

/// A thread that computes this part of its time does something now and then.
const ACTIVE: f64 = 0.02;

/// Whether a thread does something now and then.
pub(crate) fn is_active(time: &ThreadTime) -> bool {
    time.computing_ns() as f64 >= ACTIVE * time.wall_ns() as f64
}

/// Whether a program computes little: then it is of interest what threads wait for that are active.
pub(crate) fn is_slow(computed_ns: u64, duration_ns: u64) -> bool {
    computed_ns < duration_ns / 2
}

/// Whether a thread computes so much of its time that its sleeps hold up its work.
fn is_at_work(time: &ThreadTime) -> bool {
    time.computing_ns() as f64 >= AT_WORK * time.wall_ns() as f64
}

/// Threads, and functions in which they let go of locks that others waited for.
pub(crate) type Holders = BTreeSet<(ThreadIndex, FunctionIndex)>;

/// Who held locks while others waited for them.
pub(crate) fn holders(report: &Report) -> Holders {
    let tree = &report.profile.tree;
    let own = OwnCode::new(&report.metadata, tree);
    let held = report.held().into_iter();
    held.filter_map(|held| Some((held.by, own.innermost(held.until?)?)))
        .collect()
}

/// Whether an interpreted function of the program's own waits at a place, and not one of the library that it
/// was called by, as a pool's worker without work and an event loop are. Node.js' loop has no functions
/// around it, so there what its library waits in, the program has called.
fn waits_in_own_function(metadata: &Metadata, tree: &Tree, place: u32) -> bool {
    let functions = tree.labels(place).filter_map(|label| match label {
        Label::Function(f) => metadata.functions.get(f.0 as usize),
        _ => None,
    });
    let mut interpreted = functions.filter(|f| libraries::is_managed(f));
    let waits = interpreted.find(|function| !function.file.starts_with("node:"));
    waits.is_some_and(|function| !is_library(function))
}

/// The places in a call tree at which threads wait for something in the middle of their work, where the cause
/// alone says that they are idle:
///
/// - for other threads, and for events, in an interpreted function of the program's own
///   ([`waits_in_own_function`]); for events only of threads that are at work;
/// - for other threads in a program that computes little, of threads that are active;
/// - sleeps of threads that are at work, or that wait for work elsewhere, and of functions that hold a lock
///   meanwhile.
pub(crate) fn waits_at_work<'a>(
    metadata: &Metadata,
    tree: &Tree,
    cells: impl Iterator<Item = &'a (ThreadIndex, u32)>,
    threads: &[ThreadTime],
    holders: &Holders,
) -> BTreeSet<u32> {
    let computed_ns = threads.iter().map(ThreadTime::computing_ns);
    let computed_ns = computed_ns.fold(0, u64::saturating_add);
    let is_slow = is_slow(computed_ns, metadata.recording.duration_ns);
    let for_work = waits_for_work(metadata, tree);
    let cells: Vec<_> = cells.collect();
    let workers = cells.iter().filter(|(_, place)| for_work.contains(place));
    let workers: BTreeSet<ThreadIndex> = workers.map(|(thread, _)| *thread).collect();
    let is_held_up = |time: &ThreadTime| is_at_work(time) || is_slow && is_active(time);
    let at_work = cells.into_iter().filter(|(thread, place)| {
        let Label::Leaf(Leaf::Blocking(probe)) = tree.places()[*place as usize].label else {
            return false;
        };
        let time = threads.get(thread.0 as usize);
        let in_own_function = || waits_in_own_function(metadata, tree, *place);
        match probe.cause() {
            Cause::Wait => {
                let is_of_interest = is_slow && time.is_some_and(is_active);
                in_own_function() || is_of_interest && !for_work.contains(place)
            }
            Cause::Poll => time.is_some_and(is_held_up) && in_own_function(),
            Cause::Sleep => {
                let holds =
                    |label| matches!(label, Label::Function(f) if holders.contains(&(*thread, f)));
                workers.contains(thread)
                    || time.is_some_and(is_held_up)
                    || tree.labels(*place).any(holds)
            }
            _ => false,
        }
    });
    at_work.map(|(_, place)| *place).collect()
}

/// The places in a call tree at which whatever thread waits for work: executors of futures
/// ([`is_of_executor`]) and threads with only a package's functions around their wait, as their workers have;
/// and threads that wait with no interpreted function around them but a library's, as a server's for the next
/// request and a pool's for the next job.
pub(crate) fn waits_for_work(metadata: &Metadata, tree: &Tree) -> BTreeSet<u32> {
    let layer = metadata.layers();
    let is_executors = |place: u32| {
        let functions = tree.labels(place).filter_map(|label| match label {
            Label::Function(f) => Some((layer(f), &*metadata.functions.get(f.0 as usize)?.name)),
            _ => None,
        });
        is_of_executor(functions)
    };
    let is_a_librarys = |place: u32| {
        let mut interpreted = tree.labels(place).filter_map(|label| match label {
            Label::Function(f) if is_managed(metadata, label) => {
                metadata.functions.get(f.0 as usize)
            }
            _ => None,
        });
        let mut any = false;
        let all = interpreted.all(|function| {
            any = true;
            is_library(function)
        });
        any && all
    };
    // A package's function is around the wait, as that of an executor's worker, and none of the program's.
    let is_a_packages = |place: u32| {
        let functions = tree.labels(place).filter_map(|label| match label {
            Label::Function(f) => Some((layer(f), metadata.functions.get(f.0 as usize)?)),
            _ => None,
        });
        let mut own_layer = functions
            .filter(|(layer, _)| matches!(layer, Layer::Program | Layer::Nameless))
            .peekable();
        own_layer.peek().is_some() && own_layer.all(|(_, function)| package(function).is_some())
    };
    let of_executors = places_of_waits(tree, &CAUSES_OF_WORKERS)
        .filter(|place| is_executors(*place) || is_a_packages(*place) || is_a_librarys(*place));
    let for_messages = places_of_waits(tree, &[Cause::Net]).filter(|place| is_a_librarys(*place));
    of_executors.chain(for_messages).collect()
}

/// Places of a call tree where threads wait for one of these causes.
fn places_of_waits(tree: &Tree, causes: &[Cause]) -> impl Iterator<Item = u32> {
    let waits = move |label| match label {
        Label::Leaf(Leaf::Blocking(probe)) => causes.contains(&probe.cause()),
        _ => false,
    };
    let places = (0..).zip(tree.places());
    places
        .filter(move |(_, here)| waits(here.label))
        .map(|(place, _)| place)
}

/// Which waits are idle: of an event loop, of an executor, of a worker without work.
#[derive(Clone, Debug)]
pub(crate) struct IdleWaits {
    at_work: BTreeSet<u32>,
    for_work: BTreeSet<u32>,
}

impl IdleWaits {
    pub(crate) fn of(report: &Report) -> IdleWaits {
        let Report {
            metadata, profile, ..
        } = report;
        let Profile {
            tree,
            cells,
            threads,
            ..
        } = profile;
        let holders = holders(report);
        IdleWaits {
            at_work: waits_at_work(metadata, tree, cells.keys(), threads, &holders),
            for_work: waits_for_work(metadata, tree),
        }
    }

    /// Whether a wait for a cause at a place of the call tree is.
    pub(crate) fn has(&self, cause: Cause, is_main: bool, place: u32) -> bool {
        let may_be = CAUSES.contains(&cause) || CAUSES_OF_WORKERS.contains(&cause) && !is_main;
        self.for_work.contains(&place) || may_be && !self.at_work.contains(&place)
    }
}

/// Idle waits, summed up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    by_cause: BTreeMap<&'static str, u64>,
    threads: BTreeSet<ThreadIndex>,
    /// Of rows that stand for several, each.
    thread_count: u64,
}

impl Sum {
    /// In one line; `None`: there are none.
    pub(crate) fn text(&self) -> Option<String> {
        let whole = self.by_cause.values().copied().fold(0, u64::saturating_add);
        let mut parts: Vec<_> = self.by_cause.iter().collect();
        parts.sort_by_key(|(_, ns)| Reverse(**ns));
        let parts: Vec<String> = (parts.into_iter())
            .map(|(cause, ns)| format!("{cause} {}", duration(*ns)))
            .collect();
        (whole > 0).then(|| {
            format!(
                "and {} idle in {} ({}; apart with --all)",
                duration(whole),
                plural(self.thread_count, "thread", "threads"),
                parts.join(", ")
            )
        })
    }
}

/// The blocking sites of the wanted threads without idle waits, and those summed up. Where there are no
/// others, idle waits are what there is to show.
pub(crate) fn apart(report: &Report, wanted: &dyn Fn(ThreadIndex) -> bool) -> (Vec<SiteRow>, Sum) {
    let Report {
        metadata, profile, ..
    } = report;
    let row = |thread: ThreadIndex| metadata.threads.get(thread.0 as usize);
    let idle = IdleWaits::of(report);
    let cause_at = |place: u32| match profile.tree.places()[place as usize].label {
        Label::Leaf(Leaf::Blocking(probe)) => Some(probe.cause()),
        _ => None,
    };
    let is_idle = |thread: ThreadIndex, place: u32| {
        let is_main = row(thread).is_some_and(|row| row.is_main);
        cause_at(place).is_some_and(|cause| idle.has(cause, is_main, place))
    };
    let others = |thread, place| wanted(thread) && !is_idle(thread, place);
    let sites = blocking_sites_of(profile, &others);
    if sites.is_empty() {
        return (blocking_sites(profile, wanted), Sum::default());
    }
    let mut sum = Sum::default();
    let idle = profile
        .cells
        .iter()
        .filter(|((thread, place), _)| wanted(*thread) && is_idle(*thread, *place));
    for ((thread, place), cell) in idle {
        let cause = cause_at(*place).unwrap_or(Cause::None);
        let ns = sum.by_cause.entry(cause.name()).or_default();
        *ns = ns.saturating_add(cell.spent.blocked_ns);
        if sum.threads.insert(*thread) {
            sum.thread_count += u64::from(row(*thread).map_or(1, |row| row.merged.max(1)));
        }
    }
    (sites, sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn waits_with_a_cause_stay_and_the_others_are_one_line() {
        let report = testing::report();
        let (sites, idle) = apart(&report, &|_| true);
        let causes: BTreeSet<&str> = sites.iter().map(|site| site.cause.name()).collect();
        assert_eq!(causes, BTreeSet::from(["io", "lock", "net", "process"]));
        assert_eq!(
            idle.text().as_deref(),
            Some("and 320 ms idle in 3 threads (poll 200 ms, wait 120 ms; apart with --all)")
        );
        // Of the main thread, a wait for another thread is none by choice.
        let all: u64 = blocking_sites(&report.profile, &|_| true)
            .iter()
            .map(|s| s.total_ns)
            .sum();
        let shown: u64 = sites.iter().map(|site| site.total_ns).sum();
        assert_eq!(shown + idle.by_cause.values().sum::<u64>(), all);
    }

    #[test]
    fn where_there_are_only_idle_waits_they_are_shown() {
        let mut report = testing::report();
        for thread in &mut report.metadata.threads {
            thread.is_main = false;
        }
        report.profile.cells.retain(|(_, place), _| {
            let label = report.profile.tree.places()[*place as usize].label;
            let is_idle = |cause| CAUSES.contains(&cause) || CAUSES_OF_WORKERS.contains(&cause);
            matches!(label, Label::Leaf(Leaf::Blocking(probe)) if is_idle(probe.cause()))
        });
        let (sites, idle) = apart(&report, &|_| true);
        assert_eq!(sites.len(), 2);
        assert_eq!(idle.text(), None);
    }

    #[test]
    fn a_worker_that_waits_in_a_function_of_the_program_has_work() {
        let mut report = testing::report();
        let waits = || CAUSES_OF_WORKERS.map(|cause| cause.name());
        let found = |report: &Report| {
            let (sites, _) = apart(report, &|_| true);
            sites
                .iter()
                .any(|site| waits().contains(&site.cause.name()))
        };
        assert!(!found(&report));
        let worker = (report.metadata.functions.iter()).position(|f| f.name == "shop::worker");
        let worker = &mut report.metadata.functions[worker.expect("is there")];
        (worker.module, worker.file) = ("python".into(), "/srv/shop.py".into());
        assert!(found(&report));
        let worker = (report.metadata.functions.iter()).position(|f| f.name == "shop::worker");
        let worker = &mut report.metadata.functions[worker.expect("is there")];
        worker.file = "/usr/lib/python3.11/concurrent/futures/thread.py".into();
        assert!(!found(&report));
    }

    #[test]
    fn a_message_that_only_a_librarys_functions_wait_for_is_work_to_come() {
        let mut report = testing::report();
        let found = |report: &Report| {
            let (sites, _) = apart(report, &|_| true);
            sites.iter().any(|site| site.cause == Cause::Net)
        };
        assert!(found(&report), "no interpreted function waits");
        for function in &mut report.metadata.functions {
            function.module = "python".into();
            function.file = "/usr/lib/python3.11/socketserver.py".into();
        }
        assert!(!found(&report));
        for function in &mut report.metadata.functions {
            if function.name.starts_with("shop::") {
                function.file = "/srv/shop.py".into();
            }
        }
        assert!(found(&report));
    }

    /// A report in which each thread is a main thread.
    fn all_main() -> Report {
        let mut report = testing::report();
        for thread in &mut report.metadata.threads {
            thread.is_main = true;
        }
        report
    }

    /// Whether waits for other threads are among those that are not idle.
    fn waits(report: &Report) -> bool {
        let (sites, _) = apart(report, &|_| true);
        sites.iter().any(|site| site.cause == Cause::Wait)
    }

    #[test]
    fn a_wait_with_only_a_packages_functions_around_it_is_for_work() {
        let mut report = all_main();
        assert!(waits(&report));
        for function in &mut report.metadata.functions {
            function.file = "/me/.cargo/registry/src/index/tokio-1.47.1/src/worker.rs".into();
        }
        assert!(!waits(&report));
        let functions = &mut report.metadata.functions;
        let worker = functions.iter().position(|f| f.name == "shop::worker");
        functions[worker.expect("is there")].file = "/srv/worker.rs".into();
        assert!(waits(&report));
    }

    #[test]
    fn an_executor_is_idle_in_the_main_thread_too() {
        let mut report = all_main();
        assert!(waits(&report));
        let functions = &mut report.metadata.functions;
        let worker = functions.iter().position(|f| f.name == "shop::worker");
        let worker = &mut functions[worker.expect("is there")];
        (worker.name, worker.file) = ("tokio::runtime::park::block_on".into(), String::new());
        assert!(!waits(&report));
    }
}
