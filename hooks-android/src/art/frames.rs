//! What the agent calls in a capture: the calling thread's Java frames.

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::agent::{Agent, Search};
use super::chain::{self, Moment};
use super::methods::{self, Known, Names};
use super::nterp;
use super::start::Checks;
use super::threads::{self, Place};
use super::walk::{Frames, Walker};

/// What captures need, for good.
pub(crate) struct Capture {
    pub(crate) agent: &'static Agent,
    pub(crate) walker: Walker,
    pub(crate) names: Names,
    pub(crate) checks: Checks,
}

static CAPTURE: AtomicPtr<Capture> = AtomicPtr::new(core::ptr::null_mut());

/// Walks by ART, reads of the chain, and how many of the walks were not what was read.
pub(crate) static WALKS: AtomicU32 = AtomicU32::new(0);
pub(crate) static READS: AtomicU32 = AtomicU32::new(0);
pub(crate) static DIFFERENT: AtomicU32 = AtomicU32::new(0);
/// Captures whose Java frames are not known.
pub(crate) static NOT_KNOWN: AtomicU32 = AtomicU32::new(0);

/// Begins to find frames. False: the agent has no room for another runtime.
pub(crate) fn begin(capture: Capture, code: (u64, u64)) -> bool {
    let agent = capture.agent;
    CAPTURE.store(Box::into_raw(Box::new(capture)), Ordering::Release);
    agent.add_source(code, find)
}

/// For tests: interruptions see no Java frames, as where all of it is compiled.
pub(crate) fn is_blind() -> bool {
    capture().is_some_and(|capture| capture.checks.is_blind)
}

fn capture() -> Option<&'static Capture> {
    // SAFETY: null, or what `begin` has stored for good.
    unsafe { CAPTURE.load(Ordering::Acquire).as_ref() }
}

/// At a hook, before the agent is told: names methods that captures have met elsewhere.
///
/// It calls ART and malloc, so the thread is not at [`Place::Hook`] here: a signal's capture must not do
/// that, too.
pub(crate) fn at_hook() {
    if let Some(capture) = capture()
        && threads::own().is_some_and(threads::Own::has_room)
    {
        // SAFETY: the thread is there.
        unsafe { capture.names.name_wanted(capture.agent) };
        if cfg!(feature = "rig") && capture.checks.always {
            walk_and_name(capture);
        }
    }
}

/// What a capture does, without one.
#[cold]
fn walk_and_name(capture: &Capture) {
    let thread = threads::current();
    if thread.is_null() {
        return;
    }
    let mut frames = Frames::new();
    // SAFETY: the thread's own, in a hook; its methods are on its stack.
    unsafe {
        capture.walker.walk(thread, 0, &mut frames);
        for frame in frames.all() {
            capture.names.name(capture.agent, frame.method);
        }
    }
    WALKS.fetch_add(1, Ordering::Relaxed);
}

/// Compares a walk with what is read without ART.
#[cold]
fn compare(search: &Search, thread: u64, walked: &Frames) {
    let mut read = Frames::new();
    let is_read = chain::read(search, thread, Moment::Call, &mut read);
    if is_read && !chain::is_part_of(walked.all(), read.all()) {
        DIFFERENT.fetch_add(1, Ordering::Relaxed);
    }
}

unsafe extern "C-unwind" fn find(_: *mut c_void, search: *mut c_void) {
    let thread = threads::current();
    let Some(capture) = capture().filter(|_| !thread.is_null()) else {
        return;
    };
    // SAFETY: the agent's, for this call.
    let search = unsafe { Search::new(capture.agent, search) };
    let at_hook = threads::own_if_any().is_some_and(|own| own.place.get() == Place::Hook);
    let mut frames = Frames::new();
    let address = thread.addr() as u64;
    if at_hook {
        let innermost = chain::innermost(&search, address).unwrap_or(0);
        // SAFETY: the thread's own, in a hook.
        unsafe { capture.walker.walk(thread, innermost, &mut frames) };
        WALKS.fetch_add(1, Ordering::Relaxed);
        chain::learn(&search, address, frames.all());
        if cfg!(feature = "rig") && capture.checks.compares {
            compare(&search, address, &frames);
        }
    } else {
        let sp = search.native_frame(0).map_or(u64::MAX, |[_, sp]| sp);
        if !chain::read(&search, address, Moment::Interrupted(sp), &mut frames) {
            NOT_KNOWN.fetch_add(1, Ordering::Relaxed);
        }
        nterp::read(&search, &mut frames);
        frames.sort();
    }
    READS.fetch_add(1, Ordering::Relaxed);
    for frame in frames.all() {
        let known = match methods::known(frame.method) {
            Known::No if frame.method == 0 => Known::Number(0),
            // SAFETY: the method is on this thread's stack, and the thread in a hook.
            Known::No if at_hook => unsafe {
                methods::want_all_of_class(&search, frame.method);
                capture.names.name(capture.agent, frame.method)
            },
            Known::No => {
                methods::want_all_of_class(&search, frame.method);
                Known::No
            }
            known => known,
        };
        let number = match known {
            Known::Number(number) => number,
            Known::NoFrame => continue,
            Known::No => 0,
        };
        if number == 0 {
            methods::UNNAMED.fetch_add(1, Ordering::Relaxed);
        }
        if !search.begin_run(frame.at) || !search.add_frame(number, frame.dex_pc) {
            return;
        }
    }
}
