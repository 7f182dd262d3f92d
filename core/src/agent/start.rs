//! Joining a session and leaving it: at the start of an image, and in a running process.

use super::process_entry::{join, make_own_page, mark_own_page, prepare, take_up};
use super::session::{self, AGENT, origin, state};
#[cfg(any(target_os = "linux", target_os = "android"))]
use super::{alternate, registered, tls};
use super::{registration, systrace, texts};
#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::clock;
#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::cycles::Cycles;
use crate::ids::{Pid, Upid};
use crate::native::own_modules;
use crate::platform;
#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::platform::sandbox;
#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::shm::layout::{ClockSource, sandboxed};
use crate::shm::layout::{TICK_PARKED, entry_state};
use crate::shm::mapping::{Mapping, MappingError};
use crate::shm::registry::{self, NewProcess};
use core::ffi::CStr;
use core::sync::atomic::Ordering;

/// Joins the session whose mapping lies at `path`. Call once, from the constructor, while the process
/// has one thread. False: there is no such session, and every hook passes straight through.
pub fn init(path: &CStr) -> bool {
    if !session::change_state(state::OFF, state::STARTING) {
        return session::is_active();
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
        session::count_own_read(bytes);
    }
    prepare();
    make_own_page();

    let pid = Pid(platform::process_id());
    // Of several images of a process the last one; entries are given back only when the collector comes by.
    let newest = |pid, state| {
        registry::processes(mapping)
            .map(|(_, e)| e)
            .filter(|e| e.pid() == pid)
            .filter(|e| e.state.load(Ordering::Acquire) == state)
            .map(|e| e.upid())
            .max()
    };
    let mut new = NewProcess {
        pid,
        parent_pid: Pid(platform::parent_process_id()),
        parent_upid: Upid(0),
        origin: origin::STARTED,
        cycles: session::now(),
    };
    if let Some(before) = newest(pid, entry_state::EXECED) {
        new.origin = origin::EXECED;
        new.parent_upid = before;
    } else if let Some(parent) = newest(new.parent_pid, entry_state::LIVE) {
        new.parent_upid = parent;
    }
    if !join(mapping, &new) {
        return false;
    }
    registration::start(None, registration::Creator::UNKNOWN, || {});
    texts::write_texts(mapping);
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
        pid: Pid(status.pid),
        parent_pid: Pid(status.parent_pid),
        parent_upid: Upid(0),
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
fn mapping_now(mapping: &Mapping) -> Cycles {
    match mapping.control().clock_source.load(Ordering::Relaxed) {
        source if source == ClockSource::Cycles as u32 => clock::cycles(),
        _ => clock::now(ClockSource::Monotonic),
    }
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
/// `find_object` is the address of `_dl_find_object`, or 0: to be looked for.
pub unsafe fn attach(path: &CStr, find_object: usize) -> Result<(), Refusal> {
    // SAFETY: by contract.
    unsafe { attach_by(|| Mapping::join(path), find_object) }
}

/// The same with a mapping that was joined already: one of this process' own, which has no file.
pub fn attach_with(mapping: Mapping) -> Result<(), Refusal> {
    // SAFETY: the function is looked for.
    unsafe { attach_by(|| Ok(mapping), 0) }
}

/// # Safety
/// As [`attach`].
unsafe fn attach_by(
    join_mapping: impl FnOnce() -> Result<Mapping, MappingError>,
    find_object: usize,
) -> Result<(), Refusal> {
    if !session::change_state(state::OFF, state::STARTING) {
        return Err(match AGENT.state.load(Ordering::Relaxed) {
            state::DISABLED => Refusal::Disabled,
            _ => Refusal::Busy,
        });
    }
    let mapping = match join_mapping() {
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
        unsafe { own_modules::set_find_object(find_object) };
    }
    prepare();
    mark_own_page();
    own_modules::begin_anew();
    let new = NewProcess {
        pid: Pid(platform::process_id()),
        parent_pid: Pid(platform::parent_process_id()),
        parent_upid: Upid(0),
        origin: origin::ATTACHED,
        cycles: session::now(),
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
    leave(false);
}

/// The same where the collector is gone, and answers nothing.
pub fn abandon() {
    leave(true);
}

fn leave(collector_is_gone: bool) {
    if !session::change_state(state::ACTIVE, state::OFF) {
        return;
    }
    // From here on nobody starts one.
    if let Some(mapping) = session::last_mapping().filter(|mapping| mapping.control().has_timers())
    {
        super::kernel_clock::stop_all_of(mapping, collector_is_gone);
    }
    AGENT.forget_signals();
    systrace::stop();
    if let Some(mapping) = session::last_mapping() {
        session::publish_signal(mapping);
        if mapping.replace_by_private().is_ok() {
            // Whoever still holds an entry comes to the slow path, and leaves there.
            let control = mapping.control();
            control.probe_mask.store(u64::MAX, Ordering::Relaxed);
            for tick in control.ticks.as_flattened() {
                tick.count.store(TICK_PARKED, Ordering::Relaxed);
            }
        }
    }
}

/// The handler for the session's signal is in place: running threads may be interrupted from now on. And the
/// same handler for a second signal, for threads that block the first. 0: there is none.
pub fn handlers_installed(first: u32, second: u32) {
    AGENT
        .handler
        .store(platform::signal_handler(first), Ordering::Relaxed);
    AGENT.signal.store(first, Ordering::Relaxed);
    AGENT.second_signal.store(second, Ordering::Relaxed);
    // Threads that begin later do it then.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let Some((entry, _)) = registered(tls::block()) {
        alternate::install(entry);
    }
    if let Some(mapping) = session::mapping() {
        session::publish_signal(mapping);
        // Those that wanted a clock before get it now.
        super::kernel_clock::call_if_asleep(mapping.control());
    }
}
