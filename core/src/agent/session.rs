//! The session that this process takes part in: whether it does, where the mapping lies, and who the process
//! is in it.
//!
//! All of the agent stands on this; nothing here captures.

use super::registered;
use super::tls::{self, Block};
use crate::clock;
use crate::cycles::Cycles;
use crate::ids::{Pid, Upid};
use crate::native::own_modules;
use crate::platform;
use crate::probe::Category;
use crate::shm::buffer;
use crate::shm::layout::{ClockSource, Control, Mode, ThreadEntry};
use crate::shm::mapping::Mapping;
use crate::shm::signal_gate;
use crate::sync::add_own;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Categories that no mask switches off.
pub(super) const ALWAYS: u64 = Category::Sampler.bit() | Category::User.bit();

/// `proto::v1::process::Origin`.
pub(super) mod origin {
    pub(crate) const STARTED: u32 = 0;
    pub(crate) const FORKED: u32 = 1;
    pub(crate) const EXECED: u32 = 2;
    pub(crate) const ATTACHED: u32 = 3;
}

/// States of the agent.
pub(super) mod state {
    pub(crate) const OFF: u32 = 0;
    pub(crate) const STARTING: u32 = 1;
    pub(crate) const ACTIVE: u32 = 2;
    /// For good: an internal error, or a child that is not to be followed.
    pub(crate) const DISABLED: u32 = 3;
}

pub(super) struct Agent {
    pub(super) state: AtomicU32,
    /// Set before `state` becomes ACTIVE; what it points to is never dropped. Null before the first
    /// session.
    pub(super) mapping: AtomicPtr<Mapping>,
    pub(super) index: AtomicU32,
    pub(super) upid: AtomicU32,
    pub(super) pid: AtomicU32,
    pub(super) collector_pid: AtomicU32,
    pub(super) clock: AtomicU32,
    /// Signal that the handler stands behind, 0: none. Forked children inherit it.
    pub(super) signal: AtomicU32,
    /// The one for threads that block the first; 0: none.
    pub(super) second_signal: AtomicU32,
    /// Called with what a thread blocks when it begins to take part: a `fn(u64)`.
    pub(super) on_mask: AtomicPtr<()>,
    /// That handler, as the kernel has it.
    pub(super) handler: AtomicU64,
    /// Our gates may leave their barrier to the collector (`signal_gate`). Forked children inherit it.
    pub(super) barrier: AtomicU32,
    /// A page that is zeroed in forked children; null where that cannot be had.
    pub(super) own_page: AtomicPtr<AtomicU32>,
    pub(super) main_stack: [AtomicU64; 2],
    /// What is done once in a process has been done.
    pub(super) prepared: AtomicBool,
    /// It came to a running process: threads were not announced when they began.
    pub(super) late: AtomicBool,
}

pub(super) static AGENT: Agent = Agent {
    state: AtomicU32::new(state::OFF),
    mapping: AtomicPtr::new(core::ptr::null_mut()),
    index: AtomicU32::new(0),
    upid: AtomicU32::new(0),
    pid: AtomicU32::new(0),
    collector_pid: AtomicU32::new(0),
    clock: AtomicU32::new(0),
    signal: AtomicU32::new(0),
    second_signal: AtomicU32::new(0),
    on_mask: AtomicPtr::new(core::ptr::null_mut()),
    handler: AtomicU64::new(0),
    barrier: AtomicU32::new(0),
    own_page: AtomicPtr::new(core::ptr::null_mut()),
    main_stack: [AtomicU64::new(0), AtomicU64::new(0)],
    prepared: AtomicBool::new(false),
    late: AtomicBool::new(false),
};

/// True between a successful [`init`] and being switched off.
#[inline(always)]
pub(super) fn is_active() -> bool {
    AGENT.state.load(Ordering::Acquire) == state::ACTIVE
}

/// The session's mapping.
#[inline(always)]
pub(super) fn mapping() -> Option<&'static Mapping> {
    if is_active() { last_mapping() } else { None }
}

/// The mapping of the session under way, or of the last one.
#[inline(always)]
pub(super) fn last_mapping() -> Option<&'static Mapping> {
    // SAFETY: null or a mapping that is never dropped.
    unsafe { AGENT.mapping.load(Ordering::Acquire).as_ref() }
}

/// Whether a thread's entry is one of an earlier session.
#[inline(always)]
pub(super) fn is_stale(entry: &ThreadEntry) -> bool {
    let here = core::ptr::from_ref(entry).addr();
    mapping().is_some_and(|m| !m.contains(here))
}

/// Whether the agent came to a running process.
pub(super) fn is_late() -> bool {
    AGENT.late.load(Ordering::Relaxed)
}

pub(super) fn index() -> u32 {
    AGENT.index.load(Ordering::Relaxed)
}

pub(super) fn upid() -> Upid {
    Upid(AGENT.upid.load(Ordering::Relaxed))
}

pub(super) fn pid() -> Pid {
    Pid(AGENT.pid.load(Ordering::Relaxed))
}

/// Whose signals are the session's.
pub(super) fn collector_pid() -> u32 {
    AGENT.collector_pid.load(Ordering::Relaxed)
}

pub(super) fn main_stack() -> (u64, u64) {
    (
        AGENT.main_stack[0].load(Ordering::Relaxed),
        AGENT.main_stack[1].load(Ordering::Relaxed),
    )
}

pub(super) fn mode(control: &Control) -> Mode {
    match control.mode.load(Ordering::Relaxed) {
        1 => Mode::Ring,
        2 => Mode::Startup,
        _ => Mode::Endless,
    }
}

/// The module epoch, for the roots of stacks.
pub(super) fn epoch() -> u32 {
    own_modules::epoch()
}

/// How long an iteration of an event loop may take before it is noted; `None`: nobody asks.
#[inline(always)]
pub(super) fn slow_iteration_cycles() -> Option<Cycles> {
    let cycles = mapping()?
        .control()
        .slow_iteration_cycles
        .load(Ordering::Relaxed);
    (cycles != Cycles(0)).then_some(cycles)
}

/// Whether threads may have timers that sample them.
pub(super) fn has_timers() -> bool {
    mapping().is_some_and(|m| m.control().has_timers())
}

/// Whether the kernel says when threads are sampled.
#[inline(always)]
pub(super) fn has_kernel_clock() -> bool {
    mapping().is_some_and(|m| m.control().has_kernel_clock())
}

/// Tells those outside which epoch is current.
pub(super) fn publish_epoch(mapping: &Mapping) {
    let epoch = epoch();
    if let Some(entry) = mapping.process(index())
        && entry.epoch.load(Ordering::Relaxed) != epoch
    {
        entry.epoch.store(epoch, Ordering::Relaxed);
    }
}

/// The moment, by the session's clock.
#[inline(always)]
pub(super) fn now() -> Cycles {
    if AGENT.clock.load(Ordering::Relaxed) == ClockSource::Cycles as u32 {
        clock::cycles()
    } else {
        without_cycles()
    }
}

#[cold]
#[inline(never)]
fn without_cycles() -> Cycles {
    clock::now(ClockSource::Monotonic)
}

/// The program has entered a sandbox in which the agent cannot go on: it leaves the program alone from here
/// on.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn switch_off(mapping: &'static Mapping, unseen_from_ns: u64) {
    if AGENT.state.swap(state::DISABLED, Ordering::AcqRel) == state::ACTIVE {
        AGENT.forget_signals();
        publish_signal(mapping);
        if let Some(entry) = mapping.process(index()) {
            entry
                .unseen_from_ns
                .store(unseen_from_ns, Ordering::Release);
        }
    }
    leave(tls::block());
}

pub(super) fn change_state(from: u32, to: u32) -> bool {
    AGENT
        .state
        .compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed)
        .is_ok()
}

/// An internal error: the agent leaves the program alone from here on.
#[cold]
pub(super) fn disable() {
    if AGENT.state.swap(state::DISABLED, Ordering::AcqRel) == state::ACTIVE
        && let Some(mapping) = last_mapping()
    {
        AGENT.forget_signals();
        publish_signal(mapping);
        mapping
            .control()
            .agents_disabled
            .fetch_add(1, Ordering::Relaxed);
    }
    leave(tls::block());
}

/// Takes a thread out of an agent that is not active any more.
#[cold]
pub(super) fn leave(block: &Block) {
    if let Some((entry, _)) = registered(block) {
        signal_gate::reopen(entry, 0);
        buffer::end_capture(entry);
    }
    block.entry.store(core::ptr::null_mut(), Ordering::Relaxed);
}

/// Keeps a read of the agent's own apart from those of the program.
pub(super) fn count_own_read(bytes: usize) {
    if let Some(control) = last_mapping().map(Mapping::control) {
        control.own_read_calls.fetch_add(1, Ordering::Relaxed);
        control
            .own_read_bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Whether children are recorded too; false without a session.
pub fn follow_children() -> bool {
    mapping().is_some_and(|m| m.control().follow_children.load(Ordering::Relaxed) != 0)
}

impl Agent {
    /// No thread is interrupted any more.
    pub(super) fn forget_signals(&self) {
        self.signal.store(0, Ordering::Relaxed);
        self.second_signal.store(0, Ordering::Relaxed);
    }

    /// The session's signals, as the kernel has sets of them: signal 1 is bit 0.
    pub(super) fn signals(&self) -> u64 {
        let bit = |signal: &AtomicU32| platform::signal_bit(signal.load(Ordering::Relaxed));
        bit(&self.signal) | bit(&self.second_signal)
    }
}

/// From now on `on_mask` is called with the signals that a thread blocks (signal 1 is bit 0) when it begins
/// to take part. That may be in a signal handler.
pub fn watch_masks(on_mask: fn(u64)) {
    AGENT.on_mask.store(on_mask as *mut (), Ordering::Release);
}

/// The calling thread, which blocks these signals, takes part from now on.
pub(super) fn look_at_mask(mask: u64) {
    let on_mask = AGENT.on_mask.load(Ordering::Acquire);
    if !on_mask.is_null() {
        // SAFETY: `watch_masks` stored a function of this type.
        let on_mask: fn(u64) = unsafe { core::mem::transmute(on_mask) };
        on_mask(mask);
    }
}

pub(super) fn publish_signal(mapping: &Mapping) {
    if let Some(entry) = mapping.process(AGENT.index.load(Ordering::Relaxed)) {
        entry.second_signal.store(
            AGENT.second_signal.load(Ordering::Relaxed),
            Ordering::Relaxed,
        );
        entry
            .barrier
            .store(AGENT.barrier.load(Ordering::Relaxed), Ordering::Relaxed);
        entry
            .signal
            .store(AGENT.signal.load(Ordering::Relaxed), Ordering::Release);
    }
}

/// Whether this memory is the process' own: not in the child of a vfork, nor where the thread pointer is not
/// libc's.
pub fn owns_memory() -> bool {
    !tls::block().has(tls::flag::VFORK_CHILD | tls::flag::FOREIGN)
}

/// In a child on its parent's memory that nobody announced (a raw clone): it is not the process that takes
/// part.
pub(super) fn is_another() -> bool {
    platform::process_id() != pid().0
}

/// One more of what is dropped for this cause (`layout::drops`).
pub(super) fn count(entry: &ThreadEntry, cause: usize) {
    if let Some(counter) = entry.drops.get(cause) {
        add_own(counter, 1);
    }
}
