//! What a hook calls: the way into the engine from inside the traced program.
//!
//! From what hooks call down to what all of it stands on; no module uses one that uses it:
//!
//! - here: the hot path, as small as it can be
//! - `start`: joining a session and leaving it; `event`: marks, scopes and counters of the program itself;
//!   `signal`: the session's signal; `crash`: signals that end the process; `enter_sandbox`: a seccomp filter
//!   comes; `call_counts`: counts by function
//! - `wake`: waits that other threads end, and ending them; `children`: fork, exec and exit; `thread`:
//!   threads begin and end
//! - `requests`: captures that hooks and signals ask for; `unpatch_request`: hooks that cost too much for the
//!   budget go
//! - `fork`: a forked child becomes a process of its own
//! - `registration`: a thread takes part; `process_entry`: a process does; `texts`, `systrace`: what they
//!   write beside samples
//! - `capture`: the capture itself; `stack`: its place in the CallstackTable
//! - `main_stack`: where stacks lie that nobody announced; `rusage`, `capture_cost`: what is read and paid at
//!   a capture
//! - `kernel_clock`: the clock that the kernel keeps for a thread; `cpu_timer`: the same by a timer of the
//!   thread's own
//! - `own_stack`, `alternate`: the stacks that captures and our signals use instead of the program's
//! - `call_timer`: a signal that a thread sends itself; `context`: what a handler gets from the kernel;
//!   `signal_wait`: waiting for a signal of ours
//! - `wakers`: the tables of waiters; `sandbox`: what a seccomp filter leaves; `event_sampling`: when a
//!   number asks for a capture
//! - `scratch`: a thread's private memory; `lent`: what of it an exec takes; `tls`: the thread-local block
//! - `session`: the session that this process takes part in
//!
//! # Signal safety
//! Everything but [`init`] may be called from signal handlers, before main and after exit, and on
//! stacks of any kind. Nothing allocates, waits for another thread, or calls a hooked function.
//! `errno` is never touched.

#[cfg(any(target_os = "linux", target_os = "android"))]
mod alternate;
mod better_moment;
mod call_counts;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod call_timer;
mod capture;
mod capture_cost;
mod children;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod context;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod cpu_timer;
mod crash;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod enter_sandbox;
mod event;
mod event_sampling;
mod fork;
mod kernel_clock;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod left_handlers;
mod lent;
mod main_stack;
mod own_stack;
mod process_entry;
mod registration;
mod requests;
mod runtime;
mod runtime_table;
mod rusage;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod sandbox;
mod scratch;
mod session;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod signal;
mod signal_wait;
mod stack;
mod start;
mod systrace;
mod texts;
mod thread;
pub mod tls;
mod unpatch_request;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod unseen_calls;
mod wake;
mod wakers;

use self::tls::{Block, flag};
use crate::cycles::Cycles;
use crate::platform::rseq;
use crate::probe::{Category, Probe};
use crate::shm::layout::{ThreadEntry, Tick};
use crate::shm::registry;
use crate::shm::signal_gate;
use crate::shm::throttle;
use crate::sync::add_own;
use crate::system_call::SystemCall;
use crate::unwind;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

#[cfg(any(target_os = "linux", target_os = "android"))]
pub use alternate::{
    alternate_stack, alternate_stack_changed, alternate_stack_changes, frames_grow,
};
use better_moment::add as add_better_moments;
pub use call_counts::called;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub use call_timer::{Alarm, handler_begins, handlers_entered};
pub use children::{
    before_exec, before_fork, caller_of_vfork, calls_vfork, exec_failed, fork_parent, lends_memory,
    process_exiting, vfork_begins, vfork_child, vfork_parent, vfork_returned,
};
pub use crash::{child_ended, watches_crashes};
#[cfg(any(target_os = "linux", target_os = "android"))]
pub use crash::{interrupted, lives_on, on_crash, with_room};
#[cfg(any(target_os = "linux", target_os = "android"))]
pub use enter_sandbox::{Entering, Sandbox, enters_sandbox};
pub use event::{event, event_of_c};
pub use fork::fork_child;
pub use kernel_clock::{leave_timer, stop_kernel_clock};
#[cfg(any(target_os = "linux", target_os = "android"))]
pub use left_handlers::{handler_leaves, program_blocks};
pub use lent::lend;
pub use own_stack::{is_own_stack, on_own_stack};
pub use registration::Creator;
pub use runtime::{add_code, add_method, add_source, begin_wait_at, remove_code};
pub use runtime_table::{
    BYTES as RUNTIME_TABLE_BYTES, Method as RuntimeMethod, Source as RuntimeSource,
    VERSION as RUNTIME_VERSION, runtime_table,
};
#[cfg(any(target_os = "linux", target_os = "android"))]
pub use sandbox::{allows_crash_handlers, allows_handlers, images_can_join};
pub use session::{follow_children, owns_memory, watch_masks};
pub use start::{Refusal, abandon, attach, attach_with, detach, handlers_installed, init};
pub use texts::{list, say};
pub use thread::{creating_thread, own_thread, thread_exiting, thread_started};
pub use unpatch_request::unpatch_by;
pub use wake::{
    Awaited, WaitFor, Wake, announce, announce_descriptor, begin_wait_for, end_of_child,
    finds_wakers, is_own_tid, is_reported, new_number, one_of, own_pid, sends_signal, signals,
    unix_peer, watch, written,
};
pub use wakers::{is_awaited, is_descriptor_awaited};

/// Stands for the session's mask until there is one.
static NO_PROBES: AtomicU64 = AtomicU64::new(0);

/// Where the session's probe mask stands: in the mapping, so that a change is seen by the next hook, also
/// in a process whose probes were all off.
static PROBE_MASK: AtomicPtr<AtomicU64> = AtomicPtr::new((&raw const NO_PROBES).cast_mut());

/// True when the probe's category captures.
#[inline(always)]
fn is_enabled(probe: Probe) -> bool {
    is_category_enabled(probe.category())
}

#[inline(always)]
fn is_category_enabled(category: Category) -> bool {
    // SAFETY: a static of ours, or in the mapping, which is never unmapped.
    let mask = unsafe { &*PROBE_MASK.load(Ordering::Relaxed) };
    (mask.load(Ordering::Relaxed) | session::ALWAYS) & category.bit() != 0
}

/// The calling thread's entry and tick word; `None` off the hot path.
#[inline(always)]
fn registered(block: &Block) -> Option<(&'static ThreadEntry, &'static Tick)> {
    let entry = block.entry.load(Ordering::Relaxed);
    // SAFETY: a thread's entry and tick pointers lead into the mapping, which is never unmapped, and
    // are set together.
    unsafe {
        match entry.as_ref() {
            Some(entry) => Some((entry, &*block.tick.load(Ordering::Relaxed))),
            None => None,
        }
    }
}

/// The calling thread's entry, block and tick word, for what libc itself does not do without its
/// thread-locals. The entry is the first because the compiler takes that for the mark of `None`: it is asked
/// about anyway.
#[inline(always)]
fn registered_by_libc() -> Option<(&'static ThreadEntry, &'static Block, &'static Tick)> {
    // SAFETY: null or the thread's entry, as in `registered`.
    let entry = unsafe { tls::entry_by_libc().as_ref() }?;
    // Whoever has an entry has a thread pointer of libc's.
    let block = tls::registered_block();
    // SAFETY: as in `registered`.
    let tick = unsafe { &*block.tick.load(Ordering::Relaxed) };
    Some((entry, block, tick))
}

/// The calling thread, whose entry this is, has done something that the collector looks for.
#[inline(always)]
fn show_activity(entry: &ThreadEntry) {
    if entry.has_shown.load(Ordering::Relaxed) == 0
        && let Some(mapping) = session::mapping()
    {
        let index = tls::block().entry_index.load(Ordering::Relaxed);
        registry::show_activity(mapping, index, entry);
    }
}

/// True when a call that does not block needs nothing done: most of the time. Then [`hit`] need not be
/// called. A hook that asks first can jump to its original and needs no stack frame.
#[inline(always)]
pub fn hit_quietly() -> bool {
    match registered(tls::block()) {
        Some((entry, tick)) => throttle::is_quiet(tick, entry),
        None => !session::is_active(),
    }
}

/// Like [`hit_quietly`], for a call that may be a system call: when true, it has been counted, otherwise
/// `made` is to be called.
#[inline(always)]
pub fn count_quietly(probe: Probe) -> bool {
    match registered(tls::block()) {
        Some((entry, tick)) => {
            throttle::is_quiet(tick, entry)
                && (probe.system_call()).is_none_or(|call| event_sampling::add_quietly(entry, call))
        }
        None => !session::is_active(),
    }
}

/// Like [`hit`], for a call that may be a system call, which is counted.
pub fn count_call(probe: Probe, arg: u64) {
    if let Some(call) = probe.system_call() {
        count(call);
    }
    hit(probe, arg);
}

/// A system call is made that is neither a wait ([`begin_wait`] counts those) nor counted by `made`.
#[inline]
pub fn count(call: SystemCall) {
    let entry = match registered(tls::block()) {
        Some((entry, _)) => Some(entry),
        None => registered_now(),
    };
    if let Some(entry) = entry {
        requests::add(entry, call, 1);
    }
}

/// The thread's allocations and their bytes, with one more of this size.
#[inline(always)]
fn with_one_more(entry: &ThreadEntry, bytes: usize) -> (u64, u64) {
    let allocations = entry.allocations.load(Ordering::Relaxed);
    let total = entry.allocated_bytes.load(Ordering::Relaxed);
    (
        allocations.wrapping_add(1),
        total.wrapping_add(bytes as u64),
    )
}

/// Like [`hit_quietly`]: when true, the allocation has been counted, otherwise [`allocated`] is to be
/// called.
#[inline(always)]
pub fn allocated_quietly(bytes: usize) -> bool {
    counted_quietly(bytes, false)
}

/// Like [`hit_quietly`], for a block that takes the place of another one: when true, both have been counted,
/// otherwise [`freed`] and [`allocated`] are to be called.
#[inline(always)]
pub fn replaced_quietly(bytes: usize) -> bool {
    counted_quietly(bytes, true)
}

#[inline(always)]
fn counted_quietly(bytes: usize, replaces: bool) -> bool {
    match registered_by_libc() {
        Some((entry, block, tick)) => {
            let (allocations, total) = with_one_more(entry, bytes);
            if !throttle::is_quiet(tick, entry) || event_sampling::is_due(block, allocations, total)
            {
                return false;
            }
            entry.allocations.store(allocations, Ordering::Relaxed);
            entry.allocated_bytes.store(total, Ordering::Relaxed);
            if replaces {
                add_own(&entry.frees, 1);
            }
            true
        }
        None => !session::is_active(),
    }
}

/// Like [`hit_quietly`]: when true, the block has been counted, otherwise [`freed`] is to be called.
#[inline(always)]
pub fn freed_quietly() -> bool {
    match registered_by_libc() {
        Some((entry, _, tick)) if throttle::is_quiet(tick, entry) => {
            add_own(&entry.frees, 1);
            true
        }
        Some(_) => false,
        None => !session::is_active(),
    }
}

/// A call that does not block was made.
#[inline(always)]
pub fn hit(probe: Probe, arg: u64) {
    match registered(tls::block()) {
        Some((entry, tick)) => hit_of(entry, tick, probe, arg),
        None if session::is_active() => unregistered_hit(probe, arg),
        None => {}
    }
}

/// Like [`hit`], for a call that the agent makes itself, too: on a thread that is not registered nothing
/// happens, so registering one does not come here again.
pub fn hit_of_registered(probe: Probe, arg: u64) {
    if let Some((entry, tick)) = tls::known_block().and_then(registered) {
        hit_of(entry, tick, probe, arg);
    }
}

/// The calling thread is at a moment to which interruptions of it may have been left ([`better_moment`]).
fn at_better_moment(probe: Probe, arg: u64) {
    if registered(tls::block()).is_some() && is_enabled(probe) {
        requests::better_moment(probe, arg);
    }
}

#[inline(always)]
fn hit_of(entry: &ThreadEntry, tick: &Tick, probe: Probe, arg: u64) {
    if !throttle::is_quiet(tick, entry) && is_enabled(probe) {
        requests::point(probe, arg);
    }
}

/// An allocation of this size succeeded.
#[inline(always)]
pub fn allocated(probe: Probe, bytes: usize) {
    let block = tls::block();
    match registered(block) {
        Some((entry, tick)) => {
            let (allocations, total) = with_one_more(entry, bytes);
            entry.allocations.store(allocations, Ordering::Relaxed);
            entry.allocated_bytes.store(total, Ordering::Relaxed);
            if event_sampling::is_due(block, allocations, total) {
                requests::allocations();
            }
            hit_of(entry, tick, probe, bytes as u64);
        }
        None if session::is_active() => unregistered_allocation(probe, bytes),
        None => {}
    }
}

/// A block was given back.
#[inline(always)]
pub fn freed() {
    match registered(tls::block()) {
        Some((entry, tick)) => {
            add_own(&entry.frees, 1);
            hit_of(entry, tick, Probe::Free, 0);
        }
        None if session::is_active() => unregistered_free(),
        None => {}
    }
}

#[cold]
#[inline(never)]
fn unregistered_hit(probe: Probe, arg: u64) {
    if thread::register() && is_enabled(probe) {
        requests::point(probe, arg);
    }
}

#[cold]
#[inline(never)]
fn unregistered_allocation(probe: Probe, bytes: usize) {
    let block = tls::block();
    if block.has(flag::FORKING) {
        add_own(&block.pending_allocations, 1);
        add_own(&block.pending_bytes, bytes as u64);
    } else if thread::register()
        && let Some((entry, tick)) = registered(block)
    {
        add_own(&entry.allocations, 1);
        add_own(&entry.allocated_bytes, bytes as u64);
        hit_of(entry, tick, probe, bytes as u64);
    }
}

#[cold]
#[inline(never)]
fn unregistered_free() {
    let block = tls::block();
    if block.has(flag::FORKING) {
        add_own(&block.pending_frees, 1);
    } else if thread::register()
        && let Some((entry, _)) = registered(block)
    {
        add_own(&entry.frees, 1);
    }
}

/// A call that may block, between its begin and its end. The guard is not held meanwhile, so the call
/// may end by cancellation or longjmp: what is left behind is put right at the thread's next capture.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Wait {
    entry: *const ThreadEntry,
    begin: Cycles,
    arg: u64,
    probe: Probe,
    signal_gate_before: u32,
}

/// A call that may block begins: from here to [`Wait::end`] no signal of ours arrives.
#[inline(always)]
pub fn begin_wait(probe: Probe, arg: u64) -> Wait {
    // The hook's own frame, which stays until the call has ended.
    begin_wait_from(probe, arg, unwind::here())
}

/// As [`begin_wait`], seen from outside at this pc, stack pointer and frame pointer.
#[inline(always)]
fn begin_wait_from(probe: Probe, arg: u64, at: [u64; 3]) -> Wait {
    let entry = match registered(tls::block()) {
        Some((entry, _)) => entry,
        None => match registered_now() {
            Some(entry) => entry,
            None => {
                return Wait {
                    entry: core::ptr::null(),
                    begin: Cycles(0),
                    arg,
                    probe,
                    signal_gate_before: 0,
                };
            }
        },
    };
    let signal_gate_before = signal_gate::close(entry, signal_wait::await_signal);
    // Not before: what is stored just before the gate's locked instruction costs a nanosecond more.
    if let Some(call) = probe.system_call() {
        requests::add(entry, call, 1);
    }
    if watch_switches() && signal_gate_before != 0 {
        note_inside(SWITCHED_BEFORE);
    }
    let begin = session::now();
    let [pc, sp, fp] = at;
    if signal_gate_before == 0 || takes_over(entry, sp) {
        entry
            .blocking_section_probe
            .store(probe as u32, Ordering::Relaxed);
        entry.blocking_section_begin.store(begin, Ordering::Relaxed);
        entry.blocking_section_arg.store(arg, Ordering::Relaxed);
        for (word, value) in entry.registers.iter().zip([pc, sp, fp]) {
            word.store(value, Ordering::Relaxed);
        }
    }
    if matches!(probe.category(), Category::Poll) {
        loop_iteration_ends(entry, begin);
    }
    let blocking_section = entry.blocking_section.load(Ordering::Relaxed);
    entry
        .blocking_section
        .store(blocking_section | 1, Ordering::Release);
    show_activity(entry);
    Wait {
        entry,
        begin,
        arg,
        probe,
        signal_gate_before,
    }
}

/// Bits of [`Block::switched_inside`]: what a wait that lies inside of another one has to tell that. The
/// thread was switched away in the outer one before it, and in itself.
const SWITCHED_BEFORE: u8 = 1;
const SWITCHED_WITHIN: u8 = 2;
/// One of our signals came into it, which looks like a switch.
const SIGNALLED: u8 = 4;

/// One of our signals has come into a wait of the calling thread, at the end of a system call.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn is_signalled_inside() {
    note_inside(SIGNALLED);
}

/// The call that is about to end, a wait, has let go of an open file: the kernel does that behind it, and
/// what it does there looks like a switch. So it counts as no wake-up, and the clock says whether it has
/// waited.
pub fn has_let_go() {
    watch_switches();
    note_inside(SWITCHED_WITHIN);
}

/// Whether a wait of the calling thread may have lasted, by what the kernel says of switches and what was
/// noted inside of it. Without a switch it has not, and need not look at the clock. All look where the
/// kernel's clock does not see what they work in the kernel.
///
/// So do calls that mostly wait, most of them with a timer: to set one leaves a virtual machine, and when its
/// processor comes back late the timer is over before the thread has been switched away. A lock or semaphore
/// with a timeout, which often does not wait, is not worth the look.
#[inline(always)]
fn may_have_waited(entry: &ThreadEntry, probe: Probe, switched: Option<bool>, noted: u8) -> bool {
    let mostly_waits = matches!(probe.category(), Category::Sleep | Category::Poll)
        || matches!(probe, Probe::CondWait | Probe::SignalWait);
    mostly_waits
        || switched != Some(false)
        || noted & SWITCHED_WITHIN != 0
        || entry.has_user_clock()
}

/// What waits inside of the calling thread's wait have noted.
#[inline(always)]
fn noted_inside() -> u8 {
    tls::block().switched_inside.load(Ordering::Relaxed)
}

fn note_inside(bit: u8) {
    let inside = &tls::block().switched_inside;
    inside.store(inside.load(Ordering::Relaxed) | bit, Ordering::Relaxed);
}

/// From here on it is seen whether the thread is switched away. Gives whether it was, since it was watched
/// last.
#[inline(always)]
fn watch_switches() -> bool {
    let was_switched = rseq::rearm();
    if was_switched {
        tls::block().switched.store(1, Ordering::Relaxed);
    }
    was_switched
}

#[cold]
#[inline(never)]
fn registered_now() -> Option<&'static ThreadEntry> {
    if !session::is_active() || !thread::register() {
        return None;
    }
    registered(tls::block()).map(|(entry, _)| entry)
}

/// The thread waits for events again: what it did since the last ones is an iteration of its event loop.
#[inline(always)]
fn loop_iteration_ends(entry: &ThreadEntry, now: Cycles) {
    let loop_iteration = entry.loop_iteration.load(Ordering::Relaxed);
    if loop_iteration != Cycles(0) {
        loop_iteration_is_over(entry, loop_iteration, now);
    }
}

#[cold]
#[inline(never)]
fn loop_iteration_is_over(entry: &ThreadEntry, loop_iteration: Cycles, now: Cycles) {
    entry.loop_iteration.store(Cycles(0), Ordering::Relaxed);
    if now.saturating_sub(loop_iteration) > session::slow_iteration_cycles().unwrap_or(Cycles::MAX)
    {
        entry
            .slow_iteration
            .store(loop_iteration, Ordering::Relaxed);
    }
}

/// The thread has got its events. Only where slow iterations are asked for it looks at the clock.
#[inline(always)]
fn loop_iteration_begins(entry: &ThreadEntry) {
    if session::slow_iteration_cycles().is_some() {
        entry
            .loop_iteration
            .store(session::now(), Ordering::Relaxed);
        let loop_iterations = entry.loop_iterations.load(Ordering::Relaxed);
        entry
            .loop_iterations
            .store(loop_iterations.wrapping_add(1), Ordering::Relaxed);
    }
}

/// A wait has begun already. Either a signal handler waits inside of it, then the outer one is what the
/// thread is in; or that was left by longjmp or cancellation: its frame lies below this one, on the same
/// stack.
#[cold]
#[inline(never)]
fn takes_over(entry: &ThreadEntry, sp: u64) -> bool {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    call_timer::cancel();
    let low = entry.stack_low.load(Ordering::Relaxed);
    let own = low..entry.stack_high.load(Ordering::Relaxed);
    let outer = entry.registers[1].load(Ordering::Relaxed);
    own.contains(&sp) && own.contains(&outer) && outer < sp
}

impl Wait {
    /// The call has ended with this result (negative: an error).
    #[inline(always)]
    pub fn end(self, result: i64) {
        self.end_moving(result, 0);
    }

    /// The same for a call that has moved this many bytes; a negative number is none.
    #[inline(always)]
    pub fn end_moving(self, result: i64, bytes: i64) {
        if let Some((entry, tick)) = self.still() {
            // A signal that ends a wait wakes its thread: without a switch it was none.
            let may_have_waited =
                || may_have_waited(entry, self.probe, rseq::was_switched(), noted_inside());
            match self.has_failed(result) && may_have_waited() {
                true => self.end_failed(entry, tick, result),
                false => self.end_of(entry, tick, result, bytes, None),
            }
        }
    }

    /// Apart, so that hooks need no room for what it notes.
    #[cold]
    #[inline(never)]
    fn end_failed(&self, entry: &'static ThreadEntry, tick: &Tick, result: i64) {
        let long = wake::interrupted(self, entry, result);
        self.end_of(entry, tick, result, 0, long.as_ref());
    }

    /// Whether the call has ended with an error, which sleeps may give as it is.
    #[inline(always)]
    fn has_failed(&self, result: i64) -> bool {
        result < 0 || result > 0 && matches!(self.probe, Probe::Nanosleep)
    }

    /// The call has started this child, in whose place the caller stood still until it ran its program, and
    /// has ended with this result (negative: an error).
    pub fn end_started(mut self, child: i64, result: i64) {
        self.arg = u64::try_from(child).unwrap_or(0);
        if let Some((entry, tick)) = self.still() {
            let long = wake::waited_for_child(&self, entry);
            self.end_of(entry, tick, result, 0, long.as_ref());
        }
    }

    /// The calling thread's entry and tick word, if they are those with which the wait began.
    #[inline(always)]
    fn still(&self) -> Option<(&'static ThreadEntry, &'static Tick)> {
        registered(tls::block()).filter(|&(entry, _)| core::ptr::eq(entry, self.entry))
    }

    #[inline(always)]
    fn end_of(
        &self,
        entry: &ThreadEntry,
        tick: &Tick,
        result: i64,
        bytes: i64,
        long: Option<&wakers::Long>,
    ) {
        // A capture would arm it again.
        let (switched, noted) = (rseq::was_switched(), noted_inside());
        if self.signal_gate_before == 0 {
            let blocking_section = entry.blocking_section.load(Ordering::Relaxed);
            entry
                .blocking_section
                .store((blocking_section | 1).wrapping_add(1), Ordering::Release);
            show_activity(entry);
        }
        let is_poll = matches!(self.probe.category(), Category::Poll);
        if is_poll {
            loop_iteration_begins(entry);
        }
        let length = match may_have_waited(entry, self.probe, switched, noted) {
            false => requests::Length::Short,
            true => match requests::length(entry, self.begin) {
                // The signal was its sample.
                requests::Length::Met if noted & SIGNALLED != 0 => requests::Length::Short,
                length => length,
            },
        };
        let is_overdue = length == requests::Length::Overdue;
        let is_due =
            is_overdue || length == requests::Length::Met || !throttle::is_quiet(tick, entry);
        // Before the gate opens: a signal in between would put a sample inside this wait.
        if let Some(long) = long {
            requests::long_wait(self, result, long, is_overdue);
        } else if is_due && is_enabled(self.probe) {
            requests::wait(self, entry, result, length);
        } else {
            if length == requests::Length::LeftOut && is_enabled(self.probe) {
                requests::leave_out(entry);
            }
            if is_poll {
                tls::block().has_iterated.store(1, Ordering::Relaxed);
            }
        }
        if bytes > 0 {
            // After the wait's own sample: this one would lie inside of the wait otherwise.
            self.count_bytes(entry, bytes as u64);
        }
        // A signal of ours looks like a switch, and a call that lasted had one.
        let is_long = matches!(
            length,
            requests::Length::Overdue | requests::Length::LeftOut
        );
        if switched == Some(true) && (noted & SIGNALLED == 0 || is_long) {
            requests::add(entry, SystemCall::WakeUps, 1);
        }
        match self.signal_gate_before {
            0 => tls::block().switched_inside.store(0, Ordering::Relaxed),
            _ => leave_to_outer(switched),
        }
        signal_gate::reopen(entry, self.signal_gate_before);
    }
}

/// A wait ends inside of another one, which goes on: that has to know of its own switches, and of those in
/// here apart, which are not to be counted twice.
#[cold]
#[inline(never)]
fn leave_to_outer(switched: Option<bool>) {
    // The outer one may have begun before what is known of lengths.
    tls::block().short_until.store(Cycles(0), Ordering::Relaxed);
    if tls::block().switched_inside.load(Ordering::Relaxed) & SWITCHED_BEFORE != 0 {
        rseq::disarm();
        return;
    }
    watch_switches();
    if switched != Some(false) {
        note_inside(SWITCHED_WITHIN);
    }
}

impl Wait {
    /// What the call has moved.
    #[inline(always)]
    fn count_bytes(&self, entry: &ThreadEntry, bytes: u64) {
        let (reads, writes) = self.probe.moves();
        if reads {
            requests::add(entry, SystemCall::BytesRead, bytes);
        }
        if writes {
            requests::add(entry, SystemCall::BytesWritten, bytes);
        }
    }
}

/// Captures even if nothing is due, as long as the thread's budget of such captures lasts.
#[inline(never)]
pub fn force(probe: Probe, arg: u64) {
    if (registered(tls::block()).is_some() || thread::register()) && is_enabled(probe) {
        requests::forced(probe, arg);
    }
}

/// Handles the session's signal. False when it is not from the session's collector: then it is the
/// program's own.
///
/// # Safety
/// `info` and `context` are what the kernel passed to a handler with SA_SIGINFO.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub unsafe fn on_signal(info: *mut libc::siginfo_t, context: *mut core::ffi::c_void) -> bool {
    // SAFETY: passed on.
    unsafe { signal::on_signal(info, context) }
}

/// Runs something during which no signal of ours arrives in the calling thread: those that are on their way
/// arrive before.
pub fn undisturbed<T>(f: impl FnOnce() -> T) -> T {
    let Some((entry, _)) = registered(tls::block()) else {
        return f();
    };
    let before = signal_gate::close(entry, signal_wait::await_signal);
    let result = f();
    signal_gate::reopen(entry, before);
    result
}

/// The calling thread has changed which signals it blocks.
pub fn mask_changes() {
    if let Some((entry, _)) = registered(tls::block()) {
        let calls = entry.mask_calls.load(Ordering::Relaxed);
        entry
            .mask_calls
            .store(calls.wrapping_add(1), Ordering::Release);
    }
}

/// Whether the session's first signal is to stay open in the calling thread where the program blocks it,
/// because it comes at any time in which the thread computes: one that pends would end a later call.
#[inline]
pub fn leaves_signal_open() -> bool {
    let has_clock = || registered(tls::block()).is_some_and(|(entry, _)| entry.has_kernel_clock());
    session::is_active() && (blocks_signal() || has_clock()) && owns_memory()
}

/// Whether the program blocks it all the same, as far as it knows.
pub fn blocks_signal() -> bool {
    tls::block().thread_bits.load(Ordering::Relaxed) & tls::thread_bit::BLOCKS_SIGNAL != 0
}

/// It does from now on, or not any more.
pub fn set_blocks_signal(blocks: bool) {
    let bits = &tls::block().thread_bits;
    match blocks {
        true => bits.fetch_or(tls::thread_bit::BLOCKS_SIGNAL, Ordering::Relaxed),
        false => bits.fetch_and(!tls::thread_bit::BLOCKS_SIGNAL, Ordering::Relaxed),
    };
}

/// 1: the program handles the session's first signal itself. A forked child inherits it.
static HANDLES_SIGNAL: AtomicU32 = AtomicU32::new(0);

/// The program handles the session's first signal itself: the kernel's clock does not use it in this process.
pub fn signal_is_handled() {
    HANDLES_SIGNAL.store(1, Ordering::SeqCst);
    let Some(mapping) = session::mapping() else {
        return;
    };
    if let Some(process) = mapping.process(session::index()) {
        process.handles_signal.store(1, Ordering::SeqCst);
        match mapping.control().has_timers() {
            true => kernel_clock::stop_where(|_| true),
            false => stop_kernel_clock(),
        }
    }
}

/// Whether it does.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn handles_signal() -> bool {
    HANDLES_SIGNAL.load(Ordering::SeqCst) != 0
}

/// The signals that the calling thread blocks; signal 1 is bit 0.
pub fn mask() -> u64 {
    crate::platform::blocked_signals()
}

/// `dlclose` is about to be called: code may go, and other code may come to lie there.
pub fn unloading_begins() {
    crate::native::own_modules::unloading_begins();
}

/// `dlclose` has returned.
pub fn unloading_ends() {
    crate::native::own_modules::unloading_ends();
}
