//! Why a metric grew: which of the other metrics can account for its growth.

use std::collections::HashMap;

use crate::explain::{Explanation, change};
use crate::metric::Metric;
use crate::names::{self, Form};
use crate::run::{Label, ROOT};
use crate::stats::mean;
use crate::table::Table;

/// What kind of change it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    Cpu,
    Allocation,
    PageFaults,
    Lock,
    Io,
    /// More calls that read or write, or larger ones, whether they wait or not.
    Transfers,
    Net,
    Sleep,
    Wait,
    Scheduling,
    /// Threads that live so short that starting them is what costs.
    Threads,
    /// Nothing stands out.
    Unclear,
}

impl Cause {
    pub fn name(self) -> &'static str {
        match self {
            Cause::Cpu => "cpu",
            Cause::Allocation => "allocation",
            Cause::PageFaults => "page-faults",
            Cause::Lock => "lock",
            Cause::Io => "io",
            Cause::Transfers => "transfers",
            Cause::Net => "net",
            Cause::Sleep => "sleep",
            Cause::Wait => "wait",
            Cause::Scheduling => "scheduling",
            Cause::Threads => "threads",
            Cause::Unclear => "unclear",
        }
    }

    /// In words.
    pub fn describe(self) -> &'static str {
        match self {
            Cause::Cpu => "more computing",
            Cause::Allocation => "more or larger allocations",
            Cause::PageFaults => "more page faults",
            Cause::Lock => "waiting for a lock",
            Cause::Io => "waiting for input or output",
            Cause::Transfers => "more read or written, or in more calls",
            Cause::Net => "waiting for the network",
            Cause::Sleep => "sleeping",
            Cause::Wait => "waiting for another thread or process",
            Cause::Scheduling => "ready to run, but without a CPU",
            Cause::Threads => "more threads started",
            Cause::Unclear => "nothing stands out",
        }
    }

    pub(crate) fn of(metric: Metric) -> Cause {
        match metric {
            Metric::Cpu => Cause::Cpu,
            Metric::Ready | Metric::InvoluntarySwitches => Cause::Scheduling,
            Metric::Lock => Cause::Lock,
            Metric::Io => Cause::Io,
            Metric::Net => Cause::Net,
            Metric::Sleep => Cause::Sleep,
            Metric::Wait | Metric::Poll | Metric::Join | Metric::Process => Cause::Wait,
            Metric::Allocations | Metric::AllocatedBytes | Metric::Frees => Cause::Allocation,
            Metric::MinorFaults | Metric::MajorFaults => Cause::PageFaults,
            metric if metric.is_transfer() => Cause::Transfers,
            _ => Cause::Unclear,
        }
    }
}

/// CPU time inside a call that waits (a sync, a read) is the call's; so is that of the function that makes the call, when its
/// calls wait longer by a fair share of what it computes longer: the kernel's part of a call is seen in its caller.
pub(crate) fn of_call(table: &Table, place: u32) -> Option<Cause> {
    const WAITS: [Metric; 5] = [
        Metric::Io,
        Metric::Net,
        Metric::Lock,
        Metric::Sleep,
        Metric::Wait,
    ];
    let places = table.tree.places();
    let is_call = |at: usize| matches!(places[at].label, Label::Call(_));
    let (calls, least): (Vec<usize>, f64) = match is_call(place as usize) {
        true => (vec![place as usize], 0.0),
        false => {
            let calls = (0..places.len()).filter(|at| is_call(*at) && places[*at].parent == place);
            let cpu = change(table, &table.own_places(Metric::Cpu)[place as usize]);
            (calls.collect(), ACCOUNTS * cpu.max(0.0))
        }
    };
    let waited = |metric: Metric| -> f64 {
        let columns = table.own_places(metric);
        let waited = calls.iter().map(|at| match least {
            0.0 => mean(&columns[*at]),
            _ => change(table, &columns[*at]),
        });
        waited.sum()
    };
    let (longest, most) = WAITS
        .into_iter()
        .map(|metric| (metric, waited(metric)))
        .max_by(|a, b| a.1.total_cmp(&b.1))?;
    (most > 0.0 && most >= least).then(|| Cause::of(longest))
}

/// What an allocation with its release, a byte of it (written once, read once) and a minor fault (with clearing
/// its page and giving it back: 2 µs in a virtual machine) cost at least, for telling whether their growth can be the reason for more CPU time.
const ALLOCATION_NS: f64 = 60.0;
const BYTE_NS: f64 = 0.05;
const MINOR_FAULT_NS: f64 = 800.0;
/// Share of the growth that it has to account for.
const ACCOUNTS: f64 = 0.3;
/// Share of the growth of allocations that a function that allocates more has, callees included.
const ALLOCATES: f64 = 0.05;
/// Share of the growth that is seen in functions that manage memory, above which that is the cause even where it costs several
/// times the least ...
const MANAGES: f64 = 0.5;
/// ... and share that its least cost has to have then.
const PLAUSIBLE: f64 = 0.1;

/// What a thread takes that does nothing, from its start until it was joined: its stack, an arena and two switches
/// of context, 20 to 200 µs; and the few blocks that are allocated for it.
const THREAD_NS: f64 = 100_000.0;
const THREAD_ALLOCATIONS: f64 = 4.0;
const THREAD_BYTES: f64 = 1024.0;
const THREAD_FAULTS: f64 = 16.0;

/// Whether threads that were not started before account for the growth of a metric.
pub(crate) fn starts_threads(table: &Table, metric: Metric, grown: f64) -> bool {
    let cost = match metric {
        Metric::Cpu | Metric::Ready | Metric::Wait | Metric::Join | Metric::Gap => THREAD_NS,
        Metric::Allocations | Metric::Frees => THREAD_ALLOCATIONS,
        Metric::AllocatedBytes => THREAD_BYTES,
        Metric::MinorFaults => THREAD_FAULTS,
        _ => return false,
    };
    let threads = change(table, &table.whole(Metric::Threads));
    threads >= 1.0 && threads * cost >= ACCOUNTS * grown
}

/// Whether a function gives out or takes back memory, by its name: `malloc`, `_int_free`, `operator new`, `list_dealloc`,
/// `__rust_alloc`, `v8::internal::Heap::AllocateRaw`.
fn is_allocator(name: &str) -> bool {
    const PARTS: [&str; 4] = ["alloc", "Alloc", "unlink_chunk", "operator delete"];
    const RELEASES: [&str; 5] = ["free", "cfree", "_int_free", "PyMem_Free", "PyObject_Free"];
    let name = names::reduce(name, Form::Parameters);
    // Rust's collections are in a crate named alloc.
    let name = name.rsplit("::").next().unwrap_or(&name);
    let is_new = name == "operator new" || name == "operator new[]";
    is_new || PARTS.iter().any(|part| name.contains(part)) || RELEASES.contains(&name)
}

/// How much more CPU time was seen, in ns, inside of functions that manage memory, and in these and all that lead to more
/// allocations: what a malloc costs is seen in part in the function that called it, and with few samples in its callers.
fn seen_allocating(table: &Table) -> (f64, f64) {
    let cpu = table.own_places(Metric::Cpu);
    let allocations = [Metric::Allocations, Metric::AllocatedBytes].map(|metric| {
        let grown = table.places(metric);
        let grown: Vec<f64> = grown.iter().map(|column| change(table, column)).collect();
        let least = ALLOCATES * grown[ROOT as usize];
        (grown, least.max(f64::MIN_POSITIVE))
    });
    let places = table.tree.places();
    let mut known = HashMap::new();
    let mut is_inside = vec![false; places.len()];
    let (mut inside, mut beside) = (0.0, 0.0);
    for (at, place) in places.iter().enumerate() {
        let is_one = match place.label {
            Label::Function(name) => *known
                .entry(name)
                .or_insert_with(|| is_allocator(table.names.text(name))),
            _ => false,
        };
        is_inside[at] = is_one || is_inside[place.parent as usize];
        if is_inside[at] {
            inside += change(table, &cpu[at]);
        } else if allocations.iter().any(|(grown, least)| grown[at] >= *least) {
            beside += change(table, &cpu[at]);
        }
    }
    (inside, inside + beside)
}

/// More CPU time is put down to what grew at least as much, relatively, and can account for it. Memory that nobody touches costs
/// nothing: so the time has to have been seen where memory is managed or allocated, too.
pub(crate) fn of_cpu(table: &Table, explanation: &Explanation, grown_ns: f64) -> Cause {
    // Of the whole run: there they are exact.
    let grown = |metric: Metric| -> (f64, f64) {
        let column = table.whole(metric);
        let grown = change(table, &column);
        (grown, grown / mean(table.split(&column).0).max(1.0))
    };
    let cpu = grown(Metric::Cpu).1;
    let keeps_up = |(amount, relative): (f64, f64), cost: f64| match relative >= cpu {
        true => amount * cost,
        false => 0.0,
    };
    let allocations = keeps_up(grown(Metric::Allocations), ALLOCATION_NS)
        + keeps_up(grown(Metric::AllocatedBytes), BYTE_NS);
    let faults = keeps_up(grown(Metric::MinorFaults), MINOR_FAULT_NS);
    let deepest = explanation
        .deepest
        .map_or("", |name| table.names.text(name));
    let least = ACCOUNTS * grown_ns;
    let (managing, allocating) = seen_allocating(table);
    let allocates = allocations >= PLAUSIBLE * grown_ns && managing >= MANAGES * grown_ns
        || allocations >= least && allocating >= least;
    if is_allocator(deepest) || allocates {
        Cause::Allocation
    } else if faults >= least {
        Cause::PageFaults
    } else {
        Cause::Cpu
    }
}

#[cfg(test)]
mod tests {
    use super::is_allocator;

    #[test]
    fn functions_that_manage_memory_are_known_by_their_names() {
        for name in [
            "malloc",
            "_int_free",
            "operator new(unsigned long)",
            "operator delete(void*)",
            "list_dealloc",
            "alloc::alloc::exchange_malloc",
            "v8::internal::Heap::AllocateRaw(int)",
        ] {
            assert!(is_allocator(name), "{name}");
        }
        for name in [
            "freeze",
            "parse(Allocator&)",
            "alloc::vec::Vec<T>::push",
            "sort<std::allocator<int>>",
            "operator newer",
            "",
        ] {
            assert!(!is_allocator(name), "{name}");
        }
    }
}
