//! Why a metric grew: which of the other metrics can account for its growth.

use std::collections::HashMap;

use stackbeat_model::metric::Metric;

use crate::comparable_names::{self, Form};
use crate::explain::{Explanation, change};
use crate::run::{Label, Leaf, ROOT};
use crate::run_table::{PerRun, RunTable};
use crate::stats::mean;

/// What kind of change it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// More CPU time.
    Cpu,
    /// More or larger allocations.
    Allocation,
    /// More page faults.
    PageFaults,
    /// Blocked longer on locks.
    Lock,
    /// Blocked longer in calls on files.
    Io,
    /// More calls that read or write, or larger ones, whether they wait or not.
    Transfers,
    /// More system calls of a kind, whether they wait or not.
    SystemCalls,
    /// Blocked longer in calls on sockets.
    Net,
    /// Slept longer.
    Sleep,
    /// Blocked longer on other threads or processes.
    Wait,
    /// Ready to run longer, without a CPU.
    Scheduling,
    /// Threads that live so short that starting them is what costs.
    Threads,
    /// Nothing stands out.
    Unclear,
}

impl Cause {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Cpu => "cpu",
            Cause::Allocation => "allocation",
            Cause::PageFaults => "page-faults",
            Cause::Lock => "lock",
            Cause::Io => "io",
            Cause::Transfers => "transfers",
            Cause::SystemCalls => "system-calls",
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
            Cause::SystemCalls => "more system calls",
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
            Metric::Wait | Metric::Poll | Metric::Join | Metric::Process | Metric::WakeUps => {
                Cause::Wait
            }
            Metric::Allocations | Metric::AllocatedBytes | Metric::Frees => Cause::Allocation,
            Metric::MinorFaults | Metric::MajorFaults => Cause::PageFaults,
            metric if metric.is_transfer() || metric.is_call_bytes() => Cause::Transfers,
            metric if metric.is_system_call() => Cause::SystemCalls,
            _ => Cause::Unclear,
        }
    }

    /// What a thread waits for that waits in system calls of a kind.
    pub(crate) fn of_time_in(metric: Metric) -> Option<Cause> {
        match metric {
            Metric::CallsRead
            | Metric::CallsWrite
            | Metric::CallsCopy
            | Metric::CallsOpen
            | Metric::CallsClose
            | Metric::CallsSync
            | Metric::CallsStat
            | Metric::CallsControl
            | Metric::BytesRead
            | Metric::BytesWritten => Some(Cause::Io),
            Metric::CallsSocket | Metric::CallsSend | Metric::CallsReceive => Some(Cause::Net),
            Metric::CallsSleep => Some(Cause::Sleep),
            Metric::CallsProcess => Some(Cause::Wait),
            _ => None,
        }
    }
}

/// CPU time inside a call that waits (a sync, a read) is the call's; so is that of the function that makes
/// the call, when it computes longer itself and its calls take longer by a fair share of `grown_ns`, the
/// growth that is explained: the kernel's part of a call is seen in its caller. A call takes as long as it
/// waits and then is ready to run.
pub(crate) fn of_call(table: &RunTable, place: u32, grown_ns: f64) -> Option<Cause> {
    const WAITS: [Metric; 5] = [
        Metric::Io,
        Metric::Net,
        Metric::Lock,
        Metric::Sleep,
        Metric::Wait,
    ];
    let places = table.tree.places();
    let is_call = |at: usize| matches!(places[at].label, Label::Leaf(Leaf::Blocking(_)));
    let longest = |waited: &dyn Fn(&[PerRun]) -> f64| {
        WAITS
            .into_iter()
            .map(|metric| (metric, waited(&table.own_places(metric))))
            .max_by(|a, b| a.1.total_cmp(&b.1))
    };
    let place = place as usize;
    let (metric, waited, least) = if is_call(place) {
        let (metric, waited) = longest(&|columns| mean(&columns[place]))?;
        (metric, waited, 0.0)
    } else {
        if change(table, &table.own_places(Metric::Cpu)[place]) <= 0.0 {
            return None;
        }
        let calls =
            (0..places.len()).filter(|at| is_call(*at) && places[*at].parent == place as u32);
        let calls: Vec<usize> = calls.collect();
        let (metric, waited) =
            longest(&|columns| calls.iter().map(|at| change(table, &columns[*at])).sum())?;
        let ready = table.own_places(Metric::Ready);
        let ready: f64 = calls
            .iter()
            .chain([&place])
            .map(|at| change(table, &ready[*at]))
            .sum();
        let taken = waited + ready.max(0.0);
        if taken < ACCOUNTS * grown_ns {
            return None;
        }
        (metric, waited, PLAUSIBLE * grown_ns)
    };
    (waited > 0.0 && waited >= least).then(|| Cause::of(metric))
}

/// What an allocation with its release, a byte of it (written once, read once) and a minor fault (with
/// clearing its page and giving it back: 2 µs in a virtual machine) cost at least, for telling whether their
/// growth can be the reason for more CPU time.
const ALLOCATION_NS: f64 = 60.0;
const BYTE_NS: f64 = 0.05;
const MINOR_FAULT_NS: f64 = 800.0;
/// What a fault costs at most, in a virtual machine and with the calls that give memory back; and how many
/// times as much as CPU time (and as one percent of it) faults have to grow, relatively, to be its reason
/// when they cost as much.
const COSTLY_FAULT_NS: f64 = 5_000.0;
const STANDS_OUT: f64 = 10.0;
/// Share of the growth that it has to account for.
const ACCOUNTS: f64 = 0.3;
/// Share of the growth of allocations that a function that allocates more has, callees included.
const ALLOCATES: f64 = 0.05;
/// Share of the growth that is seen in functions that manage memory, and of the faults that the function has
/// itself, above which that is the cause even where it costs several times the least ...
const MANAGES: f64 = 0.5;
/// ... and share that its least cost has to have then.
const PLAUSIBLE: f64 = 0.1;

/// What a thread takes that does nothing, from its start until it was joined: its stack, an arena and two
/// switches of context, 20 to 200 µs; and the few blocks that are allocated for it.
const THREAD_NS: f64 = 100_000.0;
const THREAD_ALLOCATIONS: f64 = 4.0;
const THREAD_BYTES: f64 = 1024.0;
const THREAD_FAULTS: f64 = 16.0;

/// Whether threads that were not started before account for the growth of a metric.
pub(crate) fn starts_threads(table: &RunTable, metric: Metric, grown: f64) -> bool {
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

/// Whether a function can do nothing but give out or take back memory, by its name.
fn is_allocator(name: &str) -> bool {
    const ALLOCATORS: [&str; 20] = [
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
        "operator new[]",
        "operator delete",
        "operator delete[]",
        "posix_memalign",
        "PyMem_Malloc",
        "PyMem_Free",
        "PyObject_Malloc",
        "PyObject_Free",
    ];
    ALLOCATORS.contains(&&*comparable_names::reduce(name, Form::Parameters))
}

/// Whether a function sounds as if it gave out or took back memory: `list_dealloc`, `__rust_alloc`,
/// `v8::internal::Heap::AllocateRaw`. What is given out may be something else: `allocate_registers`.
fn may_allocate(name: &str) -> bool {
    const PARTS: [&str; 4] = ["alloc", "Alloc", "unlink_chunk", "operator delete"];
    let name = comparable_names::reduce(name, Form::Parameters);
    // Rust's collections are in a crate named alloc.
    let last = name.rsplit("::").next().unwrap_or(&name);
    is_allocator(last) || PARTS.iter().any(|part| last.contains(part))
}

/// How much more CPU time was seen, in ns, inside of functions that manage memory, and in these and all that
/// lead to more allocations: what a malloc costs is seen in part in the function that called it, and with few
/// samples in its callers.
fn seen_allocating(table: &RunTable) -> (f64, f64) {
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
                .or_insert_with(|| may_allocate(table.names.text(name))),
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

/// More CPU time is put down to what grew at least as much, relatively, and can account for it. Memory that
/// nobody touches costs nothing: so the time has to have been seen where memory is managed or allocated, too.
pub(crate) fn of_cpu(table: &RunTable, explanation: &Explanation, grown_ns: f64) -> Cause {
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
    let all_faults = grown(Metric::MinorFaults);
    let faults = keeps_up(all_faults, MINOR_FAULT_NS);
    // Where the function is the one that has them, they need not account for as much.
    let parts = explanation.parts.iter();
    let own_faults = parts.filter(|part| part.metric == Metric::MinorFaults);
    let own_faults: f64 = own_faults.map(|part| part.change()).sum();
    let has_faults = faults >= PLAUSIBLE * grown_ns && own_faults >= MANAGES * all_faults.0;
    // Faults are counted from one capture to the next, so who has them is known in the long run only.
    let stand_out =
        all_faults.1 >= STANDS_OUT * cpu.max(0.01) && all_faults.0 * COSTLY_FAULT_NS >= grown_ns;
    let deepest = explanation
        .deepest
        .map_or("", |name| table.names.text(name));
    let least = ACCOUNTS * grown_ns;
    let (managing, allocating) = seen_allocating(table);
    let manages = may_allocate(deepest) || managing >= MANAGES * grown_ns;
    let allocates = allocations >= PLAUSIBLE * grown_ns && manages
        || allocations >= least && allocating >= least;
    if is_allocator(deepest) || allocates {
        Cause::Allocation
    } else if faults >= least || has_faults || stand_out {
        Cause::PageFaults
    } else {
        Cause::Cpu
    }
}

#[cfg(test)]
mod tests {
    use super::{is_allocator, may_allocate};

    #[test]
    fn functions_that_manage_memory_are_known_by_their_names() {
        for name in [
            "malloc",
            "_int_free",
            "operator new(unsigned long)",
            "operator delete(void*)",
        ] {
            assert!(is_allocator(name) && may_allocate(name), "{name}");
        }
        for name in [
            "list_dealloc",
            "alloc::alloc::exchange_malloc",
            "v8::internal::Heap::AllocateRaw(int)",
            "allocate_registers",
            "Pool::free",
        ] {
            assert!(may_allocate(name) && !is_allocator(name), "{name}");
        }
        for name in [
            "freeze",
            "parse(Allocator&)",
            "alloc::vec::Vec<T>::push",
            "sort<std::allocator<int>>",
            "operator newer",
            "",
        ] {
            assert!(!may_allocate(name), "{name}");
        }
    }
}
