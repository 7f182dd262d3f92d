//! Why a metric grew: which of the other metrics can account for its growth.

use crate::explain::{Explanation, change};
use crate::metric::Metric;
use crate::run::Label;
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

/// CPU time inside a call that waits (a sync, a read) is the call's.
pub(crate) fn of_call(table: &Table, place: u32) -> Option<Cause> {
    if !matches!(table.tree.places()[place as usize].label, Label::Call(_)) {
        return None;
    }
    const WAITS: [Metric; 5] = [
        Metric::Io,
        Metric::Net,
        Metric::Lock,
        Metric::Sleep,
        Metric::Wait,
    ];
    let waited = |metric: Metric| mean(&table.own_places(metric)[place as usize]);
    let longest = WAITS
        .into_iter()
        .max_by(|a, b| waited(*a).total_cmp(&waited(*b)))?;
    (waited(longest) > 0.0).then(|| Cause::of(longest))
}

/// What an allocation with its release, a byte of it (written once, read once) and a minor fault (with clearing
/// its page and giving it back: 2 µs in a virtual machine) cost at least, for telling whether their growth can be the reason for more CPU time.
const ALLOCATION_NS: f64 = 60.0;
const BYTE_NS: f64 = 0.05;
const MINOR_FAULT_NS: f64 = 800.0;
/// Share of the growth that it has to account for.
const ACCOUNTS: f64 = 0.3;

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

/// More CPU time is put down to what grew at least as much, relatively, and can account for it.
pub(crate) fn of_cpu(table: &Table, explanation: &Explanation, grown_ns: f64) -> Cause {
    const ALLOCATORS: [&str; 14] = [
        "malloc",
        "calloc",
        "realloc",
        "free",
        "cfree",
        "_int_malloc",
        "_int_free",
        "_int_realloc",
        "malloc_consolidate",
        "unlink_chunk",
        "sysmalloc",
        "operator new",
        "operator delete",
        "posix_memalign",
    ];
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
    let is_allocator = ALLOCATORS
        .iter()
        .any(|a| deepest == *a || deepest.starts_with(&format!("{a}(")));
    let least = ACCOUNTS * grown_ns;
    if is_allocator || allocations >= least {
        Cause::Allocation
    } else if faults >= least {
        Cause::PageFaults
    } else {
        Cause::Cpu
    }
}
