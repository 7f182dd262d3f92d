//! The process: start, fork, exec, exit, and being switched off.

mod signals;

pub use signals::{handlers_installed, watch_masks};
pub(super) use signals::{look_at_mask, publish_signal};

use super::capture::{self, More, Request, ThreadWriter};
use super::children;
use super::main_stack;
use super::tls::{self, Block};
use super::{PROBE_MASK, own_stack, registered, systrace, thread, wake};
use crate::clock;
use crate::native::modules;
#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::platform::sandbox;
use crate::platform::{self, Backing};
use crate::probe::{Category, Probe};
use crate::shm::buffer::{self, Writer};
use crate::shm::gate;
#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::shm::layout::sandboxed;
use crate::shm::layout::{ClockSource, Control, Mode, TICK_PARKED, ThreadEntry, entry_state};
use crate::shm::mapping::{Mapping, MappingError};
use crate::shm::record::{self, RecordBuffer, TEXT_PART_BYTES, TextKind};
use crate::shm::registry::{self, NewProcess};
use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Categories that no mask switches off.
pub(super) const ALWAYS: u64 = Category::Sampler.bit() | Category::User.bit();

/// `proto::v1::process::Origin`.
pub(super) mod origin {
    pub const STARTED: u32 = 0;
    pub const FORKED: u32 = 1;
    pub const EXECED: u32 = 2;
    pub const ATTACHED: u32 = 3;
}

/// States of the agent.
pub(super) mod state {
    pub const OFF: u32 = 0;
    pub const STARTING: u32 = 1;
    pub const ACTIVE: u32 = 2;
    /// For good: an internal error, or a child that is not to be followed.
    pub const DISABLED: u32 = 3;
}

pub(super) struct Agent {
    pub(super) state: AtomicU32,
    /// Set before `state` becomes ACTIVE; what it points to is never dropped. Null before the first
    /// session.
    mapping: AtomicPtr<Mapping>,
    index: AtomicU32,
    uid: AtomicU32,
    pid: AtomicU32,
    collector_pid: AtomicU32,
    clock: AtomicU32,
    /// Signal that the handler stands behind, 0: none. Forked children inherit it.
    pub(super) signal: AtomicU32,
    /// The one for threads that block the first; 0: none.
    pub(super) second_signal: AtomicU32,
    /// Called with what a thread blocks when it begins to take part: a `fn(u64)`.
    on_mask: AtomicPtr<()>,
    /// That handler, as the kernel has it.
    pub(super) handler: AtomicU64,
    /// Our gates may be light. Forked children inherit it.
    barrier: AtomicU32,
    /// A page that is zeroed in forked children; null where that cannot be had.
    pub(super) own_page: AtomicPtr<AtomicU32>,
    main_stack: [AtomicU64; 2],
    /// What is done once in a process has been done.
    prepared: AtomicBool,
    /// It came to a running process: threads were not announced when they began.
    late: AtomicBool,
}

pub(super) static AGENT: Agent = Agent {
    state: AtomicU32::new(state::OFF),
    mapping: AtomicPtr::new(core::ptr::null_mut()),
    index: AtomicU32::new(0),
    uid: AtomicU32::new(0),
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
fn last_mapping() -> Option<&'static Mapping> {
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

pub(super) fn uid() -> u32 {
    AGENT.uid.load(Ordering::Relaxed)
}

pub(super) fn pid() -> u32 {
    AGENT.pid.load(Ordering::Relaxed)
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
    modules::epoch()
}

/// How long a turn of an event loop may take, in cycles, before it is noted; `None`: nobody asks.
#[inline(always)]
pub(super) fn slow_turn_cycles() -> Option<u64> {
    let cycles = mapping()?
        .control()
        .slow_turn_cycles
        .load(Ordering::Relaxed);
    (cycles != 0).then_some(cycles)
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
pub(super) fn now() -> u64 {
    if AGENT.clock.load(Ordering::Relaxed) == ClockSource::Cycles as u32 {
        clock::cycles()
    } else {
        without_cycles()
    }
}

#[cold]
#[inline(never)]
fn without_cycles() -> u64 {
    clock::now(ClockSource::Monotonic)
}

/// Joins the session whose mapping lies at `path`. Call once, from the constructor, while the process
/// has one thread. False: there is no such session, and every hook passes straight through.
pub fn init(path: &CStr) -> bool {
    if !change_state(state::OFF, state::STARTING) {
        return is_active();
    }
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let image = sandbox::Image::begins();
    let Ok(mapping) = Mapping::join(path) else {
        AGENT.state.store(state::OFF, Ordering::Relaxed);
        return false;
    };
    #[cfg(any(target_os = "linux", target_os = "android"))]
    platform::look_for_ids(image.status().map_or(0, |status| status.pid));
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if !may_take_part(&mapping, &image) {
        AGENT.state.store(state::DISABLED, Ordering::Release);
        return false;
    }
    let control = mapping.control();
    let collector = mapping.header().collector_pid.load(Ordering::Relaxed);
    // A child's image that still carries our variable: the session wants the program alone, which is
    // the collector's own child through every exec.
    if control.follow_children.load(Ordering::Relaxed) == 0
        && platform::parent_process_id() != collector
        && platform::process_id() != collector
    {
        AGENT.state.store(state::DISABLED, Ordering::Release);
        return false;
    }
    let mapping = take_up(mapping);
    #[cfg(any(target_os = "linux", target_os = "android"))]
    for bytes in image.reads() {
        count_own_read(bytes);
    }
    prepare();
    make_own_page();

    let pid = platform::process_id();
    // Of several images of a process the last one; entries are given back only when the collector comes by.
    let newest = |pid, state| {
        registry::processes(mapping)
            .map(|(_, e)| e)
            .filter(|e| e.pid.load(Ordering::Relaxed) == pid)
            .filter(|e| e.state.load(Ordering::Acquire) == state)
            .map(|e| e.uid.load(Ordering::Relaxed))
            .max()
    };
    let mut new = NewProcess {
        pid,
        parent_pid: platform::parent_process_id(),
        parent_uid: 0,
        origin: origin::STARTED,
        cycles: now(),
    };
    if let Some(before) = newest(pid, entry_state::EXECED) {
        new.origin = origin::EXECED;
        new.parent_uid = before;
    } else if let Some(parent) = newest(new.parent_pid, entry_state::LIVE) {
        new.parent_uid = parent;
    }
    if !join(mapping, &new) {
        return false;
    }
    thread::thread_started(None, thread::Creator::UNKNOWN);
    write_texts(mapping);
    systrace::start(mapping, systrace::Threads::One);
    true
}

/// Whether the image is under no filter, or under such as let it be recorded. If not, an entry says why.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn may_take_part(mapping: &Mapping, image: &sandbox::Image) -> bool {
    let bits = match super::sandbox::look_into(mapping, image) {
        sandbox::Start::Joins => super::sandbox::begins_filtered(mapping),
        sandbox::Start::Unknown => sandboxed::OFF_UNKNOWN,
    };
    if bits & sandboxed::OFF == 0 {
        return true;
    }
    let status = image.status().unwrap_or_default();
    let new = NewProcess {
        pid: status.pid,
        parent_pid: status.parent_pid,
        parent_uid: 0,
        origin: origin::STARTED,
        cycles: mapping_now(mapping),
    };
    if let Some((index, _)) = registry::add_process(mapping, &new)
        && let Some(entry) = mapping.process(index)
    {
        entry.sandboxed.store(bits, Ordering::Release);
    }
    false
}

/// The moment by the clock of a session that is not joined; 0: unknown.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn mapping_now(mapping: &Mapping) -> u64 {
    match mapping.control().clock_source.load(Ordering::Relaxed) {
        source if source == ClockSource::Cycles as u32 => clock::cycles(),
        _ => platform::clock_ns(libc::CLOCK_MONOTONIC),
    }
}

/// The program has entered a sandbox in which the agent cannot go on: it leaves the program alone from here on.
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

fn change_state(from: u32, to: u32) -> bool {
    AGENT
        .state
        .compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed)
        .is_ok()
}

/// Makes a mapping the session's. This thread alone is between STARTING and ACTIVE. It is never dropped:
/// threads may look at it at any time.
fn take_up(mapping: Mapping) -> &'static Mapping {
    let mapping: &'static Mapping = std::boxed::Box::leak(std::boxed::Box::new(mapping));
    AGENT
        .mapping
        .store(core::ptr::from_ref(mapping).cast_mut(), Ordering::Release);
    AGENT.clock.store(
        mapping.control().clock_source.load(Ordering::Relaxed),
        Ordering::Relaxed,
    );
    AGENT.collector_pid.store(
        mapping.header().collector_pid.load(Ordering::Relaxed),
        Ordering::Relaxed,
    );
    mapping
}

/// What is done once in a process.
fn prepare() {
    if AGENT.prepared.swap(true, Ordering::Relaxed) {
        return;
    }
    silence_own_panics();
    platform::rseq::init();
    AGENT
        .barrier
        .store(platform::accept_barriers().into(), Ordering::Relaxed);
    modules::init();
    let (low, high) = main_stack::find();
    AGENT.main_stack[0].store(low, Ordering::Relaxed);
    AGENT.main_stack[1].store(high, Ordering::Relaxed);
}

/// Why a running process could not join a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It takes part in one.
    Busy,
    /// The agent has switched itself off in this process, after an error of its own.
    Disabled,
    /// The session's mapping cannot be used.
    Mapping(MappingError),
    /// No entry was free.
    Full,
}

/// Joins the session whose mapping lies at `path`, in a process that has been running without one. The
/// calling thread must be at a place where it may allocate and ask the dynamic linker. It is not registered
/// here, but by its next hook like the others: it may have been interrupted in a call in which no signal of
/// ours may arrive.
///
/// # Safety
/// `find_object` is the address of `_dl_find_object`, or 0: to be looked for, which takes milliseconds.
pub unsafe fn attach(path: &CStr, find_object: usize) -> Result<(), Refusal> {
    if !change_state(state::OFF, state::STARTING) {
        return Err(match AGENT.state.load(Ordering::Relaxed) {
            state::DISABLED => Refusal::Disabled,
            _ => Refusal::Busy,
        });
    }
    let mapping = match Mapping::join(path) {
        Ok(mapping) => take_up(mapping),
        Err(error) => {
            AGENT.state.store(state::OFF, Ordering::Relaxed);
            return Err(Refusal::Mapping(error));
        }
    };
    AGENT.late.store(true, Ordering::Relaxed);
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let Some(status) = sandbox::status() {
        platform::look_for_ids(status.pid);
        // Filters that it has already let it load this library, and hold for what it starts, too.
        let filters = &mapping.control().filters;
        filters.fetch_max(status.filters, Ordering::Relaxed);
    }
    if find_object != 0 {
        // SAFETY: by contract.
        unsafe { modules::set_find_object(find_object) };
    }
    prepare();
    mark_own_page();
    modules::begin_anew();
    let new = NewProcess {
        pid: platform::process_id(),
        parent_pid: platform::parent_process_id(),
        parent_uid: 0,
        origin: origin::ATTACHED,
        cycles: now(),
    };
    if !join(mapping, &new) {
        AGENT.state.store(state::OFF, Ordering::Relaxed);
        return Err(Refusal::Full);
    }
    systrace::start(mapping, systrace::Threads::Many);
    Ok(())
}

/// Leaves the session. Hooks pass straight through from here on; threads forget their entries as they
/// come by, and what they still write goes to private memory that lies where the mapping was.
pub fn detach() {
    if !change_state(state::ACTIVE, state::OFF) {
        return;
    }
    // From here on nobody starts one.
    if let Some(mapping) = last_mapping().filter(|mapping| mapping.control().has_timers()) {
        super::kernel_clock::stop_of(mapping, |_| true);
    }
    AGENT.forget_signals();
    systrace::stop();
    if let Some(mapping) = last_mapping() {
        publish_signal(mapping);
        if mapping.replace_by_private().is_ok() {
            // Whoever still holds an entry comes to the slow path, and leaves there.
            let control = mapping.control();
            control.probe_mask.store(u64::MAX, Ordering::Relaxed);
            for tick in control.ticks.as_flattened() {
                tick.0.store(TICK_PARKED, Ordering::Relaxed);
            }
        }
    }
}

/// Makes the page that tells a forked child from its parent, or says that this process is no such child.
fn mark_own_page() {
    // SAFETY: null or the page that `make_own_page` mapped and nobody unmaps.
    match unsafe { AGENT.own_page.load(Ordering::Relaxed).as_ref() } {
        None => make_own_page(),
        Some(word) => {
            if word.swap(1, Ordering::Relaxed) == 0 {
                modules::after_fork();
            }
        }
    }
}

/// Takes a process entry and becomes active, then writes down what the process is.
pub(super) fn join(mapping: &'static Mapping, new: &NewProcess) -> bool {
    let Some((index, uid)) = registry::add_process(mapping, new) else {
        AGENT.state.store(state::DISABLED, Ordering::Release);
        return false;
    };
    AGENT.index.store(index, Ordering::Relaxed);
    AGENT.uid.store(uid, Ordering::Relaxed);
    AGENT.pid.store(new.pid, Ordering::Relaxed);
    publish_signal(mapping);
    if let Some(process) = mapping.process(index) {
        let handles = super::HANDLES_SIGNAL.load(Ordering::SeqCst);
        process.handles_signal.store(handles, Ordering::SeqCst);
    }
    #[cfg(any(target_os = "linux", target_os = "android"))]
    super::sandbox::show(mapping);
    let mask = core::ptr::from_ref(&mapping.control().probe_mask);
    PROBE_MASK.store(mask.cast_mut(), Ordering::Relaxed);
    wake::use_tables(mapping);
    AGENT.state.store(state::ACTIVE, Ordering::Release);
    true
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

/// Notes the executable, the path that it was started by and the command line.
pub(super) fn write_texts(mapping: &'static Mapping) {
    write(mapping, |writer, record, now| {
        let mut part = [0u8; TEXT_PART_BYTES];
        if let Ok(path) = platform::read_link(c"/proc/self/exe", &mut part) {
            let words = record::write_text(TextKind::Executable, 0, path, record);
            capture::append(writer, record, words, now);
        }
        let words = record::write_text(TextKind::StartedAs, 0, platform::started_as(), record);
        capture::append(writer, record, words, now);
        if let Ok(fd) = platform::open(c"/proc/self/cmdline", libc::O_RDONLY, 0) {
            // A command line may have megabytes; what tells a person which it was is at its beginning.
            const MOST_PARTS: usize = 4;
            let mut offset = 0;
            for _ in 0..MOST_PARTS {
                let length = platform::read(fd, &mut part).unwrap_or(0);
                count_own_read(length);
                if length == 0 {
                    break;
                }
                let text = part.get(..length).unwrap_or(&[]);
                let words = record::write_text(TextKind::CommandLine, offset, text, record);
                capture::append(writer, record, words, now);
                offset += length;
            }
            platform::close(fd);
        }
    });
}

/// Notes something that the process' entry in the trace is to say: what works in it and what does not.
/// At most [`TEXT_PART_BYTES`].
pub fn say(text: &[u8]) {
    let Some(mapping) = mapping() else { return };
    let text = text.get(..TEXT_PART_BYTES).unwrap_or(text);
    write(mapping, |writer, record, now| {
        let words = record::write_text(TextKind::Capability, 0, text, record);
        capture::append(writer, record, words, now);
    });
}

/// Lets a registered thread write records that are no samples.
fn write(
    mapping: &'static Mapping,
    mut records: impl FnMut(&ThreadWriter, &mut RecordBuffer, u64),
) {
    own_stack::run(|_| write_here(mapping, &mut records));
}

fn write_here(
    mapping: &'static Mapping,
    records: &mut impl FnMut(&ThreadWriter, &mut RecordBuffer, u64),
) {
    let block = tls::block();
    let Some((entry, _)) = registered(block) else {
        return;
    };
    let Some(_guard) = capture::Guard::enter(block) else {
        return;
    };
    // SAFETY: the guard is held.
    let Some(scratch) = (unsafe { thread::scratch(block) }) else {
        return;
    };
    let control = mapping.control();
    let generation = control.generation.load(Ordering::Acquire);
    buffer::begin_capture(entry, generation);
    let writer: ThreadWriter = Writer {
        pool: mapping,
        entry,
        index: block.entry_index.load(Ordering::Relaxed),
        process_uid: uid(),
        mode: mode(control),
        generation,
    };
    records(&writer, &mut scratch.record, now());
    buffer::end_capture(entry);
}

/// A panic of the agent's is no message on the program's standard error.
fn silence_own_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(std::boxed::Box::new(move |info| {
        let block = tls::block();
        if [&block.guard, &block.away]
            .iter()
            .all(|word| word.load(Ordering::Relaxed) == 0)
        {
            before(info);
        }
    }));
}

/// Maps the page that tells a forked child from its parent.
fn make_own_page() {
    const PAGE: usize = 4096;
    let Ok(page) = platform::map(PAGE, Backing::Anonymous, 0) else {
        return;
    };
    // SAFETY: the page is this module's own; `check_for_fork` expects it zeroed in children.
    if unsafe { platform::wipe_on_fork(page, PAGE) }.is_err() {
        // SAFETY: nothing refers to it.
        unsafe { platform::unmap(page, PAGE) };
        return;
    }
    let word = page.cast::<AtomicU32>();
    // SAFETY: a mapped page, aligned, zeroed.
    unsafe { (*word).store(1, Ordering::Relaxed) };
    AGENT.own_page.store(word, Ordering::Relaxed);
}

/// The process is about to end; hooks may still be called, and other threads may still run.
pub fn process_exiting() {
    if !is_active()
        || registered(tls::block()).is_none()
        || children::check_for_fork()
        || children::is_another()
    {
        return;
    }
    capture::slow(&Request {
        exempt: true,
        last: true,
        more: wake::announce_end_of_process().map(More::Woke),
        ..Request::point(Probe::Exit)
    });
    if let Some(process) = mapping().and_then(|m| m.process(index())) {
        process.end_cycles.store(now(), Ordering::Release);
    }
}

/// Whether children are recorded too; false without a session.
pub fn follow_children() -> bool {
    mapping().is_some_and(|m| m.control().follow_children.load(Ordering::Relaxed) != 0)
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
        gate::reopen(entry, 0);
        buffer::end_capture(entry);
    }
    block.entry.store(core::ptr::null_mut(), Ordering::Relaxed);
}
