//! The shared mapping: the byte layout that the agent in the program and the collector agree on.
//!
//! ```text
//!   offset 0     Header        written once by the collector before the program starts
//!        4096    Control       switch, ticks, intervals: the collector writes, hooks read
//!                ProcessEntry × processes
//!                BufferHeader × buffers
//!                AtomicU32 × WAIT_BUCKETS: how many wait, by bucket
//!                WaitBucket × WAIT_BUCKETS
//!                Watch × WATCHES
//!                UnixPeer × UNIX_PEERS
//!                activity bitmap: a bit for each thread entry; copies of seccomp filters, `FILTER_WORDS`
//!                CallRow × call_rows: only where calls are counted
//!                MethodsHeader; behind it the index, the entries and the texts of methods
//!                two generation slots of the CallstackTable: GenerationHeader, index, nodes
//!                ThreadEntry × threads
//!                sub-buffers, `buffer_bytes` each
//! ```
//!
//! The last two grow with the session: agents map of them what has storage (`crate::shm::mapping`). Methods
//! they map when they find a runtime with managed frames.
//!
//! The mapping is a tmpfs file. Everything an agent may touch has been allocated by the collector beforehand
//! (no SIGBUS on a full tmpfs): thread entries up to `Control::threads_limit`, nodes up to
//! `GenerationHeader::nodes_limit`, methods up to `MethodsHeader::limit`; these limits only grow, the rest is
//! allocated from the start.
//!
//! Every word is an atomic. The file outlives the program and the collector, and the reader trusts
//! nothing in it.

mod methods;
mod thread_entry;
mod waker_tables;

use super::calls::Calls;
use crate::cycles::{AtomicCycles, Cycles};
use crate::ids::{Pid, Upid, Utid};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

pub(crate) use methods::METHOD_BYTES;
#[cfg(not(loom))]
pub(crate) use methods::{METHOD_ENTRIES_AT, METHOD_INDEX_AT, METHOD_WORDS_AT};
pub use methods::{METHOD_PLACES, METHOD_WORDS, METHODS, MethodEntry, MethodsHeader};
pub use thread_entry::{
    CLOCK_ENDED, CallCount, NO_TIMER, OUT_OF_REACH, ThreadEntry, drops, first_strike,
};
pub use waker_tables::{
    UNIX_PEERS, UnixPeer, WAIT_BUCKETS, WAIT_PLACES, WATCHES, WaitBucket, Watch,
};

/// First word of the mapping: `STKBEAT1` in memory order.
pub const MAGIC: u64 = u64::from_le_bytes(*b"STKBEAT1");
/// Changes with every incompatible change of this layout.
pub const ABI_VERSION: u32 = 24;
/// Name of the environment variable that holds the mapping's path.
pub const SESSION_VARIABLE: &str = "STACKBEAT_SESSION";

/// Thread classes with a tick and an interval of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ThreadClass {
    /// Any other.
    Other = 0,
    /// The first thread of a process.
    Main = 1,
}
/// Number of thread classes.
pub const CLASSES: usize = 2;
/// Tick words per class: threads are spread over them, and the ticker advances them in turn, so that
/// captures do not all fall on the edge of an interval.
pub const PHASES: usize = 4;
/// Tick index of a thread that the kernel's clock samples: its tick word stands still.
pub const STILL: u32 = (CLASSES * PHASES) as u32;
/// The same of a thread that a timer of its own CPU time samples.
pub const TIMED: u32 = STILL + 1;

/// Tick value that equals no thread's last tick: the ticker is parked and wants to be woken.
pub const TICK_PARKED: u32 = u32::MAX;
/// Tick value that equals no thread's last tick: high-frequency mode, gate by the cycle counter.
pub const TICK_BY_CYCLES: u32 = u32::MAX - 1;
/// Stands in place of `TICK_PARKED` from the first hook on until the ticker has woken up.
pub const TICK_RUNNING: u32 = u32::MAX - 2;

/// Functions whose calls can be counted: hooks have numbers below it.
pub const FUNCTIONS: usize = 504;

/// A function that the agent hooks, as its library lists them in the section `stackbeat_functions`: the
/// collector reads them there, in the file. Its place is its number.
#[derive(Debug)]
#[repr(C)]
pub struct HookedFunction {
    /// Number of its probe.
    pub probe: u8,
    /// Padded with NUL.
    pub name: [u8; 47],
}

/// Words for copies of the seccomp filters under which processes start others (`crate::platform::sandbox`).
pub const FILTER_WORDS: usize = 8192;

/// How big each region is. Chosen by the collector, kept in the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Process entries, of processes that ended and are not drained yet, too.
    pub processes: u32,
    /// Thread entries.
    pub threads: u32,
    /// Sub-buffers, for all threads together.
    pub buffers: u32,
    /// Bytes of one sub-buffer, a multiple of 4096.
    pub buffer_bytes: u32,
    /// Nodes of one generation of the CallstackTable, a power of two.
    pub generation_nodes: u32,
    /// Threads whose calls are counted by function; 0: calls are not counted.
    pub call_rows: u32,
}

impl Default for Capacity {
    fn default() -> Self {
        Capacity {
            processes: 1024,
            threads: 16_384,
            // As many as there may be threads that start, or end, at the same time: each takes one.
            buffers: 2048,
            buffer_bytes: 4096,
            generation_nodes: 1 << 18,
            call_rows: 0,
        }
    }
}

/// Byte offsets of the regions, derived from a `Capacity`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// What it was derived from.
    pub capacity: Capacity,
    /// [`ProcessEntry`]s.
    pub(crate) processes: usize,
    /// [`BufferHeader`]s.
    pub(crate) buffer_headers: usize,
    /// A word for each bucket: how many threads wait for objects of it.
    pub(crate) waiter_counts: usize,
    /// [`WaitBucket`]s.
    pub(crate) waiters: usize,
    /// [`Watch`]es.
    pub(crate) watches: usize,
    /// [`UnixPeer`]s.
    pub(crate) unix_peers: usize,
    /// The activity bitmap.
    pub(crate) activity: usize,
    /// Copies of seccomp filters, [`FILTER_WORDS`] words.
    pub(crate) filters: usize,
    /// [`CallRow`]s.
    pub(crate) call_rows: usize,
    /// Head of the table of methods, and the end of what each process maps from the start of the file.
    pub(crate) methods: usize,
    pub(crate) head_end: usize,
    /// The two slots of the CallstackTable's generations.
    pub(crate) generations: [usize; 2],
    /// [`ThreadEntry`]s.
    pub(crate) threads: usize,
    /// The words of the sub-buffers.
    pub(crate) buffers: usize,
    /// Bytes from a generation's offset to its index and to its nodes.
    pub(crate) index_in_generation: usize,
    /// The same for its nodes.
    pub(crate) nodes_in_generation: usize,
    /// Bytes of the whole mapping.
    pub total: usize,
}

/// Words of the activity bitmap: a bit for each thread entry.
pub const fn activity_words(threads: u32) -> usize {
    threads.div_ceil(u64::BITS) as usize
}

/// Regions that processes map by themselves begin at multiples of this: the largest page that a kernel for
/// this processor has. x86-64: 4 KiB. arm64: 4 KiB, 16 KiB (Darwin; Android from 15 on), or 64 KiB (Linux,
/// arch/arm64/Kconfig: `ARM64_64K_PAGES`).
pub(crate) const LARGEST_PAGE: usize = if cfg!(target_arch = "aarch64") {
    64 << 10
} else {
    4096
};

/// What two threads write to at the same time lies so far apart. Apple's arm64 processors have lines of 128
/// bytes (`sysctl hw.cachelinesize`), Arm's own have 64. On arm64 `repr(align(128))` stands where this is
/// meant.
#[cfg_attr(loom, allow(dead_code, reason = "sizes are others under loom"))]
const LINE: usize = if cfg!(target_arch = "aarch64") {
    128
} else {
    64
};

const fn pages(bytes: usize) -> usize {
    bytes.next_multiple_of(LARGEST_PAGE)
}

impl Layout {
    /// The layout for a capacity, or `None` when a number is zero, not a power of two where it must
    /// be, or the whole exceeds the address space.
    pub fn new(capacity: Capacity) -> Option<Layout> {
        let c = capacity;
        if c.processes == 0
            || c.threads == 0
            || c.buffers == 0
            || c.buffer_bytes < 4096
            || !c.buffer_bytes.is_multiple_of(4096)
            || !c.generation_nodes.is_power_of_two()
            || !(1 << 10..=1 << 26).contains(&c.generation_nodes)
            || c.processes > 1 << 20
            || c.threads > 1 << 22
            || c.buffers > 1 << 22
            || c.call_rows > 1 << 20
            || c.buffer_bytes > 1 << 24
        {
            return None;
        }
        let processes = pages(2 * 4096);
        let buffer_headers = processes + pages(c.processes as usize * size_of::<ProcessEntry>());
        let waiter_counts = buffer_headers + pages(c.buffers as usize * size_of::<BufferHeader>());
        let waiters = waiter_counts + pages(WAIT_BUCKETS * size_of::<AtomicU32>());
        let watches = waiters + pages(WAIT_BUCKETS * size_of::<WaitBucket>());
        let unix_peers = watches + pages(WATCHES * size_of::<Watch>());
        let activity = unix_peers + pages(UNIX_PEERS * size_of::<UnixPeer>());
        let filters = activity + pages(activity_words(c.threads) * 8);
        let call_rows = filters + pages(FILTER_WORDS * 8);
        let methods = call_rows + pages(c.call_rows as usize * size_of::<CallRow>());
        let head_end = methods + size_of::<MethodsHeader>();
        let first = methods + pages(METHOD_BYTES);
        let nodes = c.generation_nodes as usize;
        let index_in_generation = 4096;
        let nodes_in_generation = index_in_generation + pages(nodes * 2 * 4);
        let generation = pages(nodes_in_generation + nodes * size_of::<Node>());
        let threads = first + 2 * generation;
        let buffers = threads + pages(c.threads as usize * size_of::<ThreadEntry>());
        Some(Layout {
            capacity,
            processes,
            buffer_headers,
            waiter_counts,
            waiters,
            watches,
            unix_peers,
            activity,
            filters,
            call_rows,
            methods,
            head_end,
            generations: [first, first + generation],
            threads,
            buffers,
            index_in_generation,
            nodes_in_generation,
            total: buffers + c.buffers as usize * c.buffer_bytes as usize,
        })
    }
}

/// Offset 0. Written once before the program starts.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`ABI_VERSION`]: agent and collector must have the same.
    pub abi_version: AtomicU32,
    /// The process that made the mapping.
    pub collector_pid: AtomicU32,
    /// 128 random bits that tell this recording from others.
    pub session_id: [AtomicU64; 2],
    /// Capacity: process entries.
    pub processes: AtomicU32,
    /// Capacity: thread entries.
    pub threads: AtomicU32,
    /// Capacity: sub-buffers.
    pub buffers: AtomicU32,
    /// Capacity: bytes of one sub-buffer.
    pub buffer_bytes: AtomicU32,
    /// Capacity: nodes of one generation.
    pub generation_nodes: AtomicU32,
    /// Capacity: rows of counted calls.
    pub call_rows: AtomicU32,
    /// Bytes of the whole mapping.
    pub total: AtomicU64,
    /// Path of the trace that the collector writes, for `recover`; UTF-8, NUL padded.
    pub trace_path: [AtomicU64; 128],
    /// Path of the trace_marker, or of the pipe in its place, that agents write events to as they happen, NUL
    /// padded; empty: none.
    pub marker_path: [AtomicU64; 128],
    /// Device of the file.
    pub marker_device: AtomicU64,
    /// Inode of the file.
    pub marker_inode: AtomicU64,
    /// 1: a pipe.
    pub marker_is_pipe: AtomicU32,
}

/// How sub-buffers are used when none is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u32)]
pub enum Mode {
    /// The collector drains; when it cannot keep up, new records are lost and counted.
    #[default]
    Endless = 0,
    /// The oldest complete sub-buffer is overwritten.
    Ring = 1,
    /// Recording stops when the pool is full.
    Startup = 2,
}

/// What dates records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ClockSource {
    /// `rdtsc` or `cntvct_el0`.
    Cycles = 0,
    /// CLOCK_MONOTONIC, in ns.
    Monotonic = 1,
}

/// What says when a thread is sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum SamplingClock {
    /// The collector advances tick words, which hooks read, and interrupts the threads whose hooks would come
    /// too late.
    #[default]
    Tick = 0,
    /// The kernel interrupts each thread when it has computed for an interval; its tick word stands still.
    Kernel = 1,
    /// The same by a timer of each thread, which counts its time in the kernel, too.
    Timer = 2,
}

/// Offset 4096. The collector writes; agents read, except where noted.
#[repr(C, align(4096))]
#[derive(Debug, Default)]
pub struct Control {
    /// 0 off, 1 on.
    pub switch: AtomicU32,
    /// A [`Mode`].
    pub mode: AtomicU32,
    /// A [`ClockSource`].
    pub clock_source: AtomicU32,
    /// Most frames of a stack; deeper ones are cut and counted.
    pub depth_limit: AtomicU32,
    /// Bit `Category::bit` set: the category's probes capture.
    pub probe_mask: AtomicU64,
    /// Forced captures a second that one thread may do.
    pub forced_per_second: AtomicU32,
    /// Number of the CallstackTable's current generation; its slot is `generation % 2`.
    pub generation: AtomicU32,
    /// Thread entries that may be used: allocated by the collector, only grows.
    pub threads_limit: AtomicU32,
    /// Agents add: highest thread entry ever used + 1, so that readers need not scan all.
    pub threads_used: AtomicU32,
    /// The same for process entries.
    pub processes_used: AtomicU32,
    /// The next process' upid: agents take it by `fetch_add`.
    pub next_upid: AtomicU32,
    /// The next thread's utid, likewise.
    pub next_utid: AtomicU32,
    /// Agents count up once an entry can be seen: then there is something to look for.
    pub announced: AtomicU32,
    /// Agents add: threads that found no entry.
    pub threads_refused: AtomicU32,
    /// The same for processes.
    pub processes_refused: AtomicU32,
    /// Agents add: agents that switched themselves off after an internal error.
    pub agents_disabled: AtomicU32,
    /// Agents add: reads of their own, which the kernel counts as the program's.
    pub own_read_calls: AtomicU32,
    /// Bytes that those reads returned.
    pub own_read_bytes: AtomicU64,
    /// 1 while the collector sleeps on it (futex word); an agent that finds `TICK_PARKED` stores 0 and
    /// wakes it.
    pub parked: AtomicU32,
    /// 1 when child processes are followed.
    pub follow_children: AtomicU32,
    /// Signal that interrupts running threads, 0: none.
    pub signal: AtomicU32,
    /// Where a search for a free thread entry begins. Agents set it behind the entry they took, the
    /// collector sets it back to one that it freed.
    pub threads_hint: AtomicU32,
    /// Interval per class that was asked for, ns.
    pub interval_ns: [AtomicU32; CLASSES],
    /// The same in cycles.
    pub interval_cycles: [AtomicCycles; CLASSES],
    /// Tick words by class and phase. A thread compares its last tick with one of them.
    pub ticks: [[Tick; PHASES]; CLASSES],
    /// The word of all threads with the tick index [`STILL`] or [`TIMED`]. It advances only to have them read
    /// their tick index.
    pub still: Tick,
    /// 1 until somebody wants the sub-buffers drained soon (futex word): agents that see few free ones,
    /// and the collector itself, store 0 and wake the drain. It stores 1 when it begins a pass.
    pub drain: AtomicU32,
    /// A wait that is longer, in cycles, is captured with who ended it; 0: none is.
    pub long_wait_cycles: AtomicCycles,
    /// Iterations of event loops that take longer, in cycles, are noted in their threads' entries; 0: none.
    pub slow_iteration_cycles: AtomicCycles,
    /// Sub-buffers that may be used: allocated by the collector, only grows.
    pub buffers_limit: AtomicU32,
    /// Agents take the next by `fetch_add`; row 0 is nobody's own.
    pub call_rows_used: AtomicU32,
    /// Agents add: Unix sockets whose other end was asked for.
    pub peers_asked: AtomicU32,
    /// Interval in force per class, ns: what the budget makes of `interval_ns`. 0: the same.
    pub kept_interval_ns: [AtomicU32; CLASSES],
    /// Length from which on a wait is a record of its own, per class, ns: what the budget makes of
    /// `interval_ns`. 0: the same.
    pub kept_wait_ns: [AtomicU32; CLASSES],
    /// Bit `Category::bit` set: agents unpatch the category's hooks (`agent::unpatch_by`).
    pub unpatched: AtomicU64,
    /// Agents add: events that were written to `Header::marker_path`.
    pub markers_written: AtomicU64,
    /// Agents add: events that could not be written there.
    pub markers_failed: AtomicU64,
    /// 1: processes say in their entries which signal ended them (`crate::crash_signals`).
    pub watch_crashes: AtomicU32,
    /// Seccomp filters that the collector itself is under (`crate::platform::sandbox::Status`).
    pub filters: AtomicU32,
    /// Agents add: processes that stay out of the session because their address space is limited (RLIMIT_AS).
    pub processes_without_room: AtomicU32,
    /// What says when threads are sampled: a [`SamplingClock`]. Single processes and threads may be on ticks
    /// all the same.
    pub sampling_clock: AtomicU32,
    /// Agents call when a thread wants the kernel's clock, or does not want it any more.
    pub clock_calls: Calls,
    /// What [`ProcessEntry::sampled_by`] begins with.
    pub at_first: AtomicU32,
    /// Shortest time between two signals of a thread's timer, ns: the kernel's tick.
    pub timer_ns: AtomicU32,
    /// 1: the drain sleeps without an end, because nothing was captured of late. The next capture stores 0
    /// and wakes it. Only a session inside the program sleeps so.
    pub asleep: AtomicU32,
    /// 1: stacks of tasks have the coroutines that await them (`crate::managed::cpython::asyncio`).
    pub await_chains: AtomicU32,
}

impl Control {
    /// Whether the kernel says when threads are sampled.
    #[inline]
    pub fn has_kernel_clock(&self) -> bool {
        self.sampling_clock.load(Ordering::Relaxed) != SamplingClock::Tick as u32
    }

    /// Whether it does so by timers of the threads, at least once they have computed for long.
    pub fn has_timers(&self) -> bool {
        self.sampling_clock.load(Ordering::Relaxed) == SamplingClock::Timer as u32
    }

    /// The interval that is in force for a thread, whatever its clock makes of it, ns; 0: there is none.
    pub fn thread_interval_ns(&self, entry: &ThreadEntry) -> u32 {
        let class = entry.class.load(Ordering::Relaxed) as usize;
        let every = entry.every.load(Ordering::Relaxed).max(1);
        self.interval_in_force_ns(class).saturating_mul(every)
    }

    /// The time between two samples of a thread by its sampling clock, ns; 0: there is no interval.
    pub fn sampling_interval_ns(&self, entry: &ThreadEntry) -> u32 {
        let ns = self.thread_interval_ns(entry);
        match entry.has_timer() {
            true => ns.max(self.timer_ns.load(Ordering::Relaxed)),
            false if entry.has_user_clock() => {
                ns.max(entry.clock_period_ns.load(Ordering::Relaxed))
            }
            false => ns,
        }
    }

    /// The same in cycles.
    pub fn sampling_interval_cycles(&self, entry: &ThreadEntry) -> Cycles {
        let class = (entry.class.load(Ordering::Relaxed) as usize).min(CLASSES - 1);
        let asked = self.interval_cycles[class].load(Ordering::Relaxed);
        let asked_ns = self.interval_ns[class].load(Ordering::Relaxed);
        match self.sampling_interval_ns(entry) {
            ns if ns == asked_ns || asked_ns == 0 => asked,
            ns => asked.saturating_mul(ns.into()) / u64::from(asked_ns),
        }
    }

    /// What lies between two captures of a class' threads at a tick, ns; 0: there is no interval.
    pub fn interval_in_force_ns(&self, class: usize) -> u32 {
        let class = class.min(CLASSES - 1);
        match self.kept_interval_ns[class].load(Ordering::Relaxed) {
            0 => self.interval_ns[class].load(Ordering::Relaxed),
            kept => kept,
        }
    }

    /// The length from which on a wait of a class' thread is a record of its own, cycles.
    pub fn wait_in_force_cycles(&self, class: usize) -> Cycles {
        let class = class.min(CLASSES - 1);
        let asked = self.interval_cycles[class].load(Ordering::Relaxed);
        let asked_ns = self.interval_ns[class].load(Ordering::Relaxed);
        match self.kept_wait_ns[class].load(Ordering::Relaxed) {
            kept_ns if kept_ns <= asked_ns || asked_ns == 0 => asked,
            kept_ns => asked.saturating_mul(kept_ns.into()) / u64::from(asked_ns),
        }
    }
}

/// A tick on a cache line of its own: hooks of all threads read it all the time.
#[cfg_attr(target_arch = "aarch64", repr(C, align(128)))]
#[cfg_attr(not(target_arch = "aarch64"), repr(C, align(64)))]
#[derive(Debug, Default)]
pub struct Tick {
    /// Which tick it is, or one of the `TICK_*` values.
    pub count: AtomicU32,
    /// When that came, by the session's clock; 0 for threads that no ticks come to.
    pub at: AtomicCycles,
}

/// States of process and thread entries.
pub mod entry_state {
    /// May be taken.
    pub const FREE: u32 = 0;
    /// Being filled in or cleared.
    pub const CLAIMED: u32 = 1;
    /// In use.
    pub const LIVE: u32 = 2;
    /// Ended; the collector frees it when everything was drained.
    pub const ENDED: u32 = 3;
    /// A process that ended by exec: the same pid has a new entry.
    pub const EXECED: u32 = 4;
    /// The collector offers it to a thread that seems to have none; `crate::shm::adoption`.
    pub const OFFERED: u32 = 5;
    /// The collector has made it for a thread that waits and has passed no hook so far.
    pub const ADOPTED: u32 = 6;
}

/// Values of [`ProcessEntry::sampled_by`].
pub mod sampled_by {
    /// The session's clock.
    pub const SESSION_CLOCK: u32 = 0;
    /// Ticks: it cannot have the session's clock.
    pub const TICKS: u32 = 1;
    /// Ticks, until it has computed for long.
    pub const TICKS_AT_FIRST: u32 = 2;
    /// An event of each thread, until it has computed for long.
    pub const EVENTS_AT_FIRST: u32 = 3;
}

/// One program image in one process. The process writes it.
#[cfg_attr(target_arch = "aarch64", repr(C, align(128)))]
#[cfg_attr(not(target_arch = "aarch64"), repr(C, align(64)))]
#[derive(Debug)]
pub struct ProcessEntry {
    /// An [`entry_state`].
    pub state: AtomicU32,
    /// Our number of this image in this process: an exec gives a new one.
    pub upid: AtomicU32,
    /// The kernel's number, in the collector's PID namespace.
    pub pid: AtomicU32,
    /// The kernel's number of its parent.
    pub parent_pid: AtomicU32,
    /// The parent's `upid`; 0: not recorded.
    pub parent_upid: AtomicU32,
    /// `proto::v1::process::Origin`.
    pub origin: AtomicU32,
    /// Number of the current module epoch.
    pub epoch: AtomicU32,
    /// Signal that the agent installed its handler for, 0: none.
    pub signal: AtomicU32,
    /// When the agent began in it, in cycles.
    pub start_cycles: AtomicCycles,
    /// When it ended, in cycles; 0: it has not, or nobody knows when.
    pub end_cycles: AtomicCycles,
    /// 1: the kernel knows this process for `membarrier` calls of others, so that gates of its threads
    /// may use asymmetric barriers (`crate::shm::signal_gate`).
    pub barrier: AtomicU32,
    /// Collector: the thread without an entry to which a signal is on its way, and how far that has got; 0:
    /// none. See `crate::shm::signal_gate`.
    pub unregistered: AtomicU32,
    /// Who sent it a signal last: a `crate::shm::waiters::Waker`. The sender writes it.
    pub signalled_by: AtomicU64,
    /// When that was, in cycles.
    pub signalled_cycles: AtomicCycles,
    /// Signal for its threads that block the first, 0: none (yet). The handler is the same.
    pub second_signal: AtomicU32,
    /// The signal of `crate::crash_signals` that is about to end it, 0: none so far. Where the process could
    /// not say so itself, its parent does when it is over, of any signal, and knows nothing of what follows.
    pub fatal_signal: AtomicU32,
    /// Utid of the thread that got it.
    pub fatal_utid: AtomicU32,
    /// Its tid.
    pub fatal_tid: AtomicU32,
    /// The node of its stack; 0: not yet; `crate::crash_signals::NO_NODE`.
    pub fatal_node: AtomicU32,
    /// Entries that the collector has made for threads of it and that no thread has taken over so far.
    pub adopted: AtomicU32,
    /// When it got the signal, in cycles.
    pub fatal_cycles: AtomicCycles,
    /// Its name, NUL padded.
    pub fatal_name: [AtomicU64; 2],
    /// Where the copy of its seccomp filters begins (`crate::platform::sandbox`), in words; 0: none.
    pub filters: AtomicU32,
    /// What they keep from being recorded: bits of [`sandboxed`].
    pub sandboxed: AtomicU32,
    /// CPU time of the process when the agent switched itself off for them, or at its exec, ns.
    pub unseen_from_ns: AtomicU64,
    /// 1: the program has a handler of its own for `signal`.
    pub handles_signal: AtomicU32,
    /// Collector: what samples its threads, as far as they can have that: see [`sampled_by`].
    pub sampled_by: AtomicU32,
    /// Where the process has what is known of code that runtimes have made
    /// (`crate::native::generated_code::elsewhere`); 0: nowhere.
    pub generated_code: AtomicU64,
    /// 1: a thread that has an event computes much in the kernel, where neither its event nor a hook sees it.
    pub has_unseen_calls: AtomicU32,
    /// For later fields.
    pub reserved: [AtomicU32; 9],
}

impl ProcessEntry {
    /// The recording's number of the image that has this entry, or had it last.
    #[inline]
    pub fn upid(&self) -> Upid {
        Upid(self.upid.load(Ordering::Relaxed))
    }

    /// The system's number of that image's process, in its own pid namespace.
    #[inline]
    pub fn pid(&self) -> Pid {
        Pid(self.pid.load(Ordering::Relaxed))
    }
}

/// Bits of [`ProcessEntry::sandboxed`].
pub mod sandboxed {
    /// The process is under a filter that it has installed or inherited.
    pub const FILTERED: u32 = 1;
    /// No thread is interrupted: a handler could not return.
    pub const NO_SIGNALS: u32 = 2;
    /// The agent is off: strict mode, or a filter that was not to be read.
    pub const OFF_STRICT: u32 = 4;
    /// The agent is off: no clock may be read that it needs.
    pub const OFF_NO_CLOCK: u32 = 8;
    /// The agent is off: there was a filter at the start of which nothing is known.
    pub const OFF_UNKNOWN: u32 = 16;
    /// The agent is off: the program keeps system calls or the cycle counter from its code
    /// (`PR_SET_SYSCALL_USER_DISPATCH`, `PR_SET_TSC`).
    pub const OFF_NO_CALLS: u32 = 32;
    /// Threads that began later had no memory or no number of their own, and are not recorded.
    pub const THREADS_MISSING: u32 = 64;
    /// Any in which the agent is off.
    pub const OFF: u32 = OFF_STRICT | OFF_NO_CLOCK | OFF_UNKNOWN | OFF_NO_CALLS;
}

/// How often one thread has called each hooked function. Row 0 belongs to all threads that have none.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct CallRow {
    /// The thread, 0: none has the row.
    pub utid: AtomicU32,
    /// The thread's process.
    pub upid: AtomicU32,
    /// For later fields.
    pub reserved: [AtomicU64; 7],
    /// Calls by function number.
    pub calls: [AtomicU64; FUNCTIONS],
}

/// States of a sub-buffer (low 32 bits of `BufferHeader::state`; the high 32 bits are the owner's
/// thread entry index, so that a compare-and-swap names both).
pub mod buffer_state {
    /// May be taken.
    pub const FREE: u32 = 0;
    /// Its owner writes into it.
    pub const WRITING: u32 = 1;
    /// Full, or its owner is done with it: nothing is added any more.
    pub const COMPLETE: u32 = 2;
    /// Claimed by its next owner, who is filling in the head: what it held is gone.
    pub const TAKING: u32 = 3;
    /// Taken away from an idle owner by the collector; see `crate::shm::buffer`.
    pub const REVOKED: u32 = 4;
}

/// Head of one sub-buffer, apart from its words so that scanning for a free one stays in few lines.
#[cfg_attr(target_arch = "aarch64", repr(C, align(128)))]
#[cfg_attr(not(target_arch = "aarch64"), repr(C, align(64)))]
#[derive(Debug, Default)]
pub struct BufferHeader {
    /// Owner entry << 32 | buffer_state.
    pub state: AtomicU64,
    /// Words (low half) and records (high half) committed: stored with release after the words.
    pub committed: AtomicU64,
    /// What of that is in the trace, in the same form (collector).
    pub drained: AtomicU64,
    /// Utid of the owning thread.
    pub utid: AtomicU32,
    /// Upid of the owner's process.
    pub upid: AtomicU32,
    /// Number in the owner's sequence of the record at word 0.
    pub first_record: AtomicU64,
    /// Cycles when the owner took it, for ring order.
    pub taken_cycles: AtomicCycles,
    /// Generation of the CallstackTable in force when it was taken.
    pub generation: AtomicU32,
    /// How often it has been taken.
    pub uses: AtomicU32,
}

impl BufferHeader {
    /// The owning thread.
    #[inline]
    pub fn utid(&self) -> Utid {
        Utid(self.utid.load(Ordering::Relaxed))
    }

    /// The process of the owning thread.
    #[inline]
    pub fn upid(&self) -> Upid {
        Upid(self.upid.load(Ordering::Relaxed))
    }
}

/// Head of one generation slot of the CallstackTable.
#[repr(C, align(4096))]
#[derive(Debug, Default)]
pub struct GenerationHeader {
    /// Number of the generation in this slot.
    pub generation: AtomicU32,
    /// Next free node; agents take it by `fetch_add`. Node 0 is never used.
    pub nodes_used: AtomicU32,
    /// Nodes that may be used: allocated by the collector, only grows.
    pub nodes_limit: AtomicU32,
}

/// One node of the CallstackTable, 16 bytes. `parent` is stored last, with release, and before it `kind`: a
/// node that has no parent and is no root is a hole.
#[repr(C, align(16))]
#[derive(Debug, Default)]
pub struct Node {
    /// Return address, or what the kind says.
    pub address: AtomicU64,
    /// Parent's index in the same generation; 0 for roots.
    pub parent: AtomicU32,
    /// `proto::v1::NodeKind`.
    pub kind: AtomicU32,
}

/// Kinds of nodes; the numbers are those of `proto::v1::NodeKind`.
pub mod node_kind {
    /// An address of code.
    pub const NATIVE: u32 = 0;
    /// The root of a thread's stacks.
    pub const ROOT: u32 = 1;
    /// Frames between here and the root are missing.
    pub const TRUNCATED: u32 = 2;
    /// The exact address at which a thread was interrupted, not a return address.
    pub const LEAF_PC: u32 = 3;
    /// Of a managed frame: compiled, or not known how it runs. The address is a
    /// `crate::shm::methods::managed_address`.
    pub const MANAGED: u32 = 4;
    /// The same, interpreted.
    pub const MANAGED_INTERPRETED: u32 = 5;
    /// The same, inlined into the frame above it.
    pub const MANAGED_INLINED: u32 = 6;
    /// Where an async function goes on that waits for the frame above it. The address is the begin of that
    /// code.
    pub const AWAITING: u32 = 7;
    /// The same of a managed frame, interpreted: where it goes on. The address is a
    /// `crate::shm::methods::managed_address`.
    pub const MANAGED_AWAITING: u32 = 8;

    /// Whether a node is a managed frame.
    pub const fn is_managed(kind: u32) -> bool {
        matches!(kind, MANAGED..=MANAGED_INLINED | MANAGED_AWAITING)
    }
}

/// A node's id in records and files: unique over the session as long as fewer than
/// 2^32 nodes were made.
pub const fn node_id(generation: u32, generation_nodes: u32, index: u32) -> u32 {
    generation
        .wrapping_mul(generation_nodes)
        .wrapping_add(index)
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Header>() == 4096);
    assert!(size_of::<Control>() == 4096);
    assert!(size_of::<ProcessEntry>() == 192 || size_of::<ProcessEntry>() == 256);
    assert!(size_of::<ThreadEntry>() == 64 * 14);
    assert!(size_of::<WaitBucket>() == LINE);
    assert!(align_of::<ThreadEntry>() == LINE);
    assert!(size_of::<Watch>() == 32);
    assert!(size_of::<UnixPeer>() == 16);
    assert!(size_of::<CallRow>() == 4096);
    assert!(size_of::<BufferHeader>() == LINE);
    assert!(size_of::<Tick>() == LINE);
    assert!(size_of::<Node>() == 16);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_do_not_overlap() {
        let l = Layout::new(Capacity::default()).expect("the default capacity is valid");
        assert!(l.buffer_headers >= l.processes + 1024 * size_of::<ProcessEntry>());
        assert!(l.waiter_counts >= l.buffer_headers + 2048 * size_of::<BufferHeader>());
        assert!(l.waiters >= l.waiter_counts + 4096 * 4);
        assert!(l.watches >= l.waiters + 4096 * size_of::<WaitBucket>());
        assert!(l.unix_peers >= l.watches + 8192 * 32);
        assert!(l.activity >= l.unix_peers + 2048 * 16);
        assert!(l.methods >= l.activity + 2048);
        assert_eq!(l.head_end, l.methods + 4096);
        assert!(l.generations[0] >= l.head_end + 32_768 * 4 + 16_384 * 16 + (4 << 20));
        assert_eq!(
            l.threads - l.generations[1],
            l.generations[1] - l.generations[0]
        );
        assert!(l.buffers >= l.threads + 16_384 * size_of::<ThreadEntry>());
        assert_eq!(l.total, l.buffers + 2048 * 4096);
    }

    /// What each call of a hook reads or writes lies in cache lines that no other thread writes to meanwhile.
    #[test]
    fn words_of_the_hot_path_share_no_cache_line_with_what_others_write() {
        use crate::system_call::SYSTEM_CALLS;
        use core::mem::offset_of;
        let line = |offset: usize| offset / LINE;
        // All threads read their ticks: nothing else lies there.
        assert_eq!((size_of::<Tick>(), align_of::<Tick>()), (LINE, LINE));
        // A thread's own entry: it alone writes the first line, others' words are further behind.
        assert_eq!(
            (size_of::<ThreadEntry>() % LINE, align_of::<ThreadEntry>()),
            (0, LINE)
        );
        let of_hot_path = [
            offset_of!(ThreadEntry, allocations),
            offset_of!(ThreadEntry, allocated_bytes),
            offset_of!(ThreadEntry, frees),
            offset_of!(ThreadEntry, last_tick),
            offset_of!(ThreadEntry, tick_index),
            offset_of!(ThreadEntry, records),
            offset_of!(ThreadEntry, last_capture_cycles),
            offset_of!(ThreadEntry, buffer),
            offset_of!(ThreadEntry, capturing),
            offset_of!(ThreadEntry, cpu_ns),
        ];
        assert!(of_hot_path.iter().all(|word| line(*word) == 0));
        let of_others = [
            offset_of!(ThreadEntry, in_flight),
            offset_of!(ThreadEntry, asymmetric_barrier),
            offset_of!(ThreadEntry, sent_cycles),
            offset_of!(ThreadEntry, sent_run_ns),
            offset_of!(ThreadEntry, every),
            offset_of!(ThreadEntry, signalled_by),
            offset_of!(ThreadEntry, woken_by),
            offset_of!(ThreadEntry, closed_by),
        ];
        let calls = offset_of!(ThreadEntry, system_calls);
        let calls = line(calls)..=line(calls + SYSTEM_CALLS * size_of::<CallCount>() - 1);
        for word in of_others.map(line) {
            assert!(word != 0 && !calls.contains(&word), "line {word}");
        }
        // Threads write into headers and places of their own.
        assert_eq!(align_of::<BufferHeader>(), LINE);
        let l = Layout::new(Capacity::default()).expect("the default capacity is valid");
        for region in [
            l.processes,
            l.buffer_headers,
            l.methods,
            l.generations[0],
            l.generations[1],
            l.threads,
            l.buffers,
        ] {
            assert_eq!(region % LARGEST_PAGE, 0);
        }
    }

    #[test]
    fn bad_capacities_are_refused() {
        let good = Capacity::default();
        for bad in [
            Capacity {
                buffer_bytes: 5000,
                ..good
            },
            Capacity {
                generation_nodes: 3000,
                ..good
            },
            Capacity { threads: 0, ..good },
        ] {
            assert_eq!(Layout::new(bad), None);
        }
    }
}
