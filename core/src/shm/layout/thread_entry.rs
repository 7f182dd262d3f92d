//! The entry of a thread.

use super::{STILL, TIMED};
use crate::cycles::AtomicCycles;
use crate::ids::{Tid, Utid};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::system_call::SYSTEM_CALLS;

/// Indices into `ThreadEntry::drops`; the numbers are those of `proto::v1::drops::Cause`.
pub mod drops {
    /// Records for which there was no free sub-buffer.
    pub const BUFFER_FULL: usize = 1;
    /// Records overwritten in ring mode.
    pub const OVERWRITTEN: usize = 2;
    /// Stacks cut because the CallstackTable was full.
    pub const TABLE_FULL: usize = 3;
    /// Stacks deeper than the limit.
    pub const TRUNCATED_DEPTH: usize = 4;
    /// Stacks that could not be walked to their root.
    pub const TRUNCATED_UNWIND: usize = 5;
    /// Forced captures over the limit for one thread.
    pub const FORCED_OVER_BUDGET: usize = 6;
    /// Captures refused because one was under way in the thread.
    pub const REENTRANT: usize = 7;
    /// Signals that came while a capture was impossible.
    pub const SIGNAL_MISSED: usize = 13;
    /// Waits without a place in the table of waiters: their wakers stay unknown.
    pub const WAITERS_FULL: usize = 15;
    /// Waits over the interval that was asked for, below the longer one in force.
    pub const WAIT_LEFT_OUT: usize = 16;
    /// Captures with managed frames whose method got no number: the table of methods was full.
    pub const METHOD_TABLE_FULL: usize = 20;
    /// Length of the array: whole cache lines.
    pub const COUNT: usize = 24;
}

/// System calls of one kind, or bytes that they moved, beside each other because a hook that counts one looks
/// at both.
#[repr(C)]
#[derive(Debug, Default)]
pub struct CallCount {
    /// Those that hooks have seen.
    pub count: AtomicU64,
    /// The number at which the thread captures (`crate::agent`, `event_sampling`); 0: not drawn yet.
    pub next: AtomicU64,
}

/// One thread. The owner writes lines 0–5 and 8–13, the collector line 6, whoever ends its waits a word of
/// line 7.
#[cfg_attr(target_arch = "aarch64", repr(C, align(128)))]
#[cfg_attr(not(target_arch = "aarch64"), repr(C, align(64)))]
#[derive(Debug, Default)]
pub struct ThreadEntry {
    // Line 0: what every hook touches.
    /// Calls that allocate, counted by hooks.
    pub allocations: AtomicU64,
    /// Bytes that those calls asked for.
    pub allocated_bytes: AtomicU64,
    /// Calls that free.
    pub frees: AtomicU64,
    /// Tick of the last capture.
    pub last_tick: AtomicU32,
    /// Index of this thread's tick word: class × PHASES + phase, [`STILL`] or [`TIMED`].
    pub tick_index: AtomicU32,
    /// Records committed so far: the number of the next one.
    pub records: AtomicU64,
    /// Or when the thread took over what the collector had made for it; 0: neither was.
    pub last_capture_cycles: AtomicCycles,
    /// Sub-buffer in use: index + 1, 0 none.
    pub buffer: AtomicU32,
    /// Generation + 1 of the CallstackTable that a capture under way uses, 0: no capture under way.
    pub capturing: AtomicU32,
    /// CPU time at that moment, or when the collector found the thread.
    pub cpu_ns: AtomicU64,

    // Line 1: who it is.
    /// An `entry_state`.
    pub state: AtomicU32,
    /// Our number of the thread: unique in a recording.
    pub utid: AtomicU32,
    /// The kernel's number of the thread.
    pub tid: AtomicU32,
    /// Index of its process entry.
    pub process: AtomicU32,
    /// A `ThreadClass`.
    pub class: AtomicU32,
    /// Utid of the thread that created it; 0: not known.
    pub creator_utid: AtomicU32,
    /// Node of the stack that created it, 0: not known.
    pub creator_node: AtomicU32,
    /// Samples among the records.
    pub samples: AtomicU32,
    /// When it was registered, in cycles.
    pub start_cycles: AtomicCycles,
    /// When it ended, in cycles.
    pub end_cycles: AtomicCycles,
    /// Lowest address of its stack; 0: not known.
    pub stack_low: AtomicU64,
    /// First address above its stack.
    pub stack_high: AtomicU64,

    // Lines 2 to 4.
    /// What was lost, by the indices in [`drops`].
    pub drops: [AtomicU64; drops::COUNT],

    // Line 5: published by blocking hooks, for the off-CPU sampler.
    /// Odd while the thread is inside a call that may block. What follows is written before.
    pub blocking_section: AtomicU32,
    /// Number of the call's `Probe`.
    pub blocking_section_probe: AtomicU32,
    /// When the call began, in cycles.
    pub blocking_section_begin: AtomicCycles,
    /// The call's argument: descriptor, address or size, by probe.
    pub blocking_section_arg: AtomicU64,
    /// Where the hook is: `unwind::here`.
    pub registers: [AtomicU64; 3],
    /// Event loops: when the last wait for events returned, in cycles; 0 while it waits, or never has.
    pub loop_iteration: AtomicCycles,
    /// Begin of the last loop iteration that took longer than `Control::slow_iteration_cycles`.
    pub slow_iteration: AtomicCycles,

    // Line 6: signals. See `crate::shm::signal_gate` for the protocol.
    /// Owner: 1 while no signal of ours may arrive (inside a call that could return EINTR, in exec).
    pub closed: AtomicU32,
    /// Collector: not 0 from before it sends a signal until the handler has run.
    pub in_flight: AtomicU32,
    /// Collector: the thread's utid while its gate leaves the barrier to the collector, otherwise 0.
    pub asymmetric_barrier: AtomicU32,
    /// Owner: waits for events that have returned.
    pub loop_iterations: AtomicU32,
    /// Collector: when it sent the last signal, in cycles; the owner's handler takes it away.
    pub sent_cycles: AtomicCycles,
    /// Collector: CPU time that the thread had used by then, ns, as far as the scheduler had noted it; 0: not
    /// known.
    pub sent_run_ns: AtomicU64,
    /// Collector: the thread takes notice of one in so many ticks, because its captures are far more costly
    /// than those of others; 0 and 1: of each.
    pub every: AtomicU32,
    /// Owner: 1 while its bit in the activity bitmap is set, so that it need not look there; the collector,
    /// which takes bits away, sets it back to 0 (`crate::shm::registry::show_activity`).
    pub has_shown: AtomicU32,
    /// Owner: cycles that captures in this thread took, signals included (`crate::agent`, `capture_cost`).
    pub spent_cycles: AtomicCycles,
    /// Who sent it a signal last: a `crate::shm::waiters::Waker`. The sender writes it.
    pub signalled_by: AtomicU64,
    /// When that was, in cycles.
    pub signalled_cycles: AtomicCycles,

    // Line 7: what it waits for, and who ends that. See `crate::shm::waiters` for the protocol.
    /// Address, or what stands for a descriptor.
    pub wait_object: AtomicU64,
    /// Index of the process in which the object's address counts, plus 1; 0: in all of them.
    pub wait_scope: AtomicU32,
    /// Place in the table of waiters, plus 1; 0: not in it.
    pub wait_place: AtomicU32,
    /// Number of the wait; never 0.
    pub wait_number: AtomicU32,
    /// Tid of the thread that held the lock when the wait began, 0: not known.
    pub wait_owner: AtomicU32,
    /// Waits of others that this thread has ended.
    pub wakes: AtomicU32,
    /// Its row of counted calls, 0: none yet.
    pub call_row: AtomicU32,
    /// Who ends the wait: `wait_number` until somebody does, then a `crate::shm::waiters::Waker`.
    pub woken_by: AtomicU64,
    /// The descriptor's object of which `woken_by` was noted.
    pub woken_for: AtomicU64,
    /// The descriptor's object of which `closed_by` was noted.
    pub closed_for: AtomicU64,
    /// The last that closed what the thread waits for, 0: nobody; a `crate::shm::waiters::Waker`.
    pub closed_by: AtomicU64,

    // Lines 8 to 13.
    /// System calls and what they moved by `crate::system_call::SystemCall as usize`.
    pub system_calls: [CallCount; SYSTEM_CALLS],
    /// Collector: CPU time of a thread that it found (`crate::shm::registry::adopted`), before that.
    pub cpu_before_ns: AtomicU64,
    /// Owner: those of `spent_cycles` that went into waits which were records because of their length.
    pub waits_cycles: AtomicCycles,
    /// Collector: the number of its descriptor whose signals to this thread are samples, plus 1; 0: there was
    /// none. With [`CLOCK_ENDED`] none is sent any more (futex word).
    pub clock_descriptor: AtomicU32,
    /// Collector: the number of a second descriptor, which counts the thread's page faults, plus 1. The owner
    /// adds what has gone off for the first time, and the collector takes that away when it has put the
    /// period in force: bits of [`first_strike`].
    pub fault_descriptor: AtomicU32,
    /// Owner: the number of its timer, plus 1; 0: it has none. With [`NO_TIMER`] it is not to have one.
    pub timer: AtomicU32,
    /// Owner: 1 while signals of the one or the other may come.
    pub wants_clock: AtomicU32,
    /// Owner: such signals that have come since there was an event; the collector sets it back to 0 before.
    pub clock_strikes: AtomicU32,
    /// Owner: what its timer is set to, ns. Collector: what lies at least between two signals of its event,
    /// in CPU time, where that is more than the interval.
    pub clock_period_ns: AtomicU32,
    /// Owner: calls that have changed, or were about to change, which signals it blocks.
    pub mask_calls: AtomicU32,
    /// Owner: bytes of the alternate signal stack that the program has given it, 0: none; and
    /// [`OUT_OF_REACH`] while that has no room for a signal of ours.
    pub alternate: AtomicU32,
}

/// Bit of [`ThreadEntry::clock_descriptor`].
pub const CLOCK_ENDED: u32 = 1 << 31;

/// Bits of [`ThreadEntry::fault_descriptor`].
pub mod first_strike {
    /// What counts the thread's time.
    pub const TIME: u32 = 1 << 31;
    /// What counts its page faults.
    pub const FAULTS: u32 = 1 << 30;
    /// Both.
    pub const ANY: u32 = TIME | FAULTS;
}

/// Bit of [`ThreadEntry::timer`].
pub const NO_TIMER: u32 = 1 << 31;

/// Bit of [`ThreadEntry::alternate`].
pub const OUT_OF_REACH: u32 = 1 << 31;

impl ThreadEntry {
    /// The recording's number of the thread that has this entry, or had it last.
    #[inline]
    pub fn utid(&self) -> Utid {
        Utid(self.utid.load(Ordering::Relaxed))
    }

    /// The system's number of that thread, in its own pid namespace.
    #[inline]
    pub fn tid(&self) -> Tid {
        Tid(self.tid.load(Ordering::Relaxed))
    }

    /// Whether no signal of ours may come to it.
    pub fn is_out_of_reach(&self, order: Ordering) -> bool {
        self.alternate.load(order) & OUT_OF_REACH != 0
    }

    /// Whether the kernel samples the thread, by an event or a timer, and not ticks.
    #[inline(always)]
    pub fn has_kernel_clock(&self) -> bool {
        self.tick_index.load(Ordering::Relaxed) >= STILL
    }

    /// Whether it does so by an event, which leaves out what the thread does in the kernel.
    #[inline(always)]
    pub fn has_user_clock(&self) -> bool {
        self.tick_index.load(Ordering::Relaxed) == STILL
    }

    /// Whether it does so by a timer of the thread's own.
    pub fn has_timer(&self) -> bool {
        self.tick_index.load(Ordering::Relaxed) == TIMED
    }

    /// Whether the thread takes notice of this tick.
    pub fn is_due(&self, tick: u32) -> bool {
        let every = self.every.load(Ordering::Relaxed);
        every <= 1
            || tick
                .wrapping_add(self.utid.load(Ordering::Relaxed))
                .is_multiple_of(every)
    }
}
