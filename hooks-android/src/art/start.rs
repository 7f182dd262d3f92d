//! Where the adapter begins, when the virtual machine is up, and where it ends. It may begin again.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use super::agent::Agent;
use super::chain;
use super::error::ArtError;
use super::fallback::{self, Suspenders};
use super::frames::{self, Capture};
use super::heap;
use super::hooks;
use super::jni::Env;
use super::library::Art;
use super::methods::{self, Names};
use super::monitors;
use super::nterp;
use super::place;
use super::suspend::Suspension;
use super::threads;
use super::versions::Function;
use super::walk::Walker;
use crate::doctor::{Hooks, State};

static ART: AtomicPtr<Art> = AtomicPtr::new(core::ptr::null_mut());
/// Whether hooks are in their places. Who begins or ends has the lock.
pub(super) static IS_STARTED: Mutex<bool> = Mutex::new(false);

/// This process' ART, once it has begun.
pub(crate) fn art() -> Option<&'static Art> {
    // SAFETY: null, or what `prepare` has stored for good.
    unsafe { ART.load(Ordering::Acquire).as_ref() }
}

/// What a test wants besides.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Checks {
    /// Each walk of ART's is compared with what is read.
    pub(crate) compares: bool,
    /// Each hook walks and names, whether or not a capture is due.
    pub(crate) always: bool,
    /// Each interruption takes the frames of its thread for unknown.
    pub(crate) is_blind: bool,
}

/// Suspends all threads that run Java code for as long as this runs. Without the functions it runs as it is.
pub(crate) fn while_suspended(art: &Art, mut f: impl FnMut()) {
    type Suspend = unsafe extern "C" fn(*mut u64, *const core::ffi::c_char, bool);
    type Resume = unsafe extern "C" fn(*mut u64);
    let functions = art
        .address(Function::SuspendAll)
        .zip(art.address(Function::ResumeAll));
    let Some((suspend, resume)) = functions else {
        return f();
    };
    let mut object = 0;
    // SAFETY: functions of these types; the object has no fields.
    unsafe {
        let suspend: Suspend = core::mem::transmute(suspend);
        let resume: Resume = core::mem::transmute(resume);
        suspend(&raw mut object, c"stackbeat".as_ptr(), false);
        f();
        resume(&raw mut object);
    }
}

/// What stays for good: what is known of this ART, and the agent's source of frames.
fn prepare(agent: &'static Agent, checks: Checks) -> Result<&'static Art, ArtError> {
    static IS_TRIED: AtomicBool = AtomicBool::new(false);
    if let Some(art) = art() {
        return Ok(art);
    }
    if IS_TRIED.swap(true, Ordering::AcqRel) {
        return Err(ArtError::TriedBefore);
    }
    let art = Box::new(Art::find().map_err(ArtError::NotFound)?);
    let lacks = |what| ArtError::Lacks {
        version: art.version,
        what,
        functions: art.lacking(),
    };
    let key = art
        .address(Function::SelfKey)
        .ok_or_else(|| lacks("the key of its threads"))?;
    let capture = Capture {
        agent,
        walker: Walker::of(&art).ok_or_else(|| lacks("walks"))?,
        names: Names::of(&art).ok_or_else(|| lacks("names"))?,
        checks,
    };
    if !threads::begin(key.cast()) || !frames::begin(capture, art.code) {
        return Err(ArtError::NoRoom);
    }
    // Where another runtime has these, threads that pass no hook show what an interruption finds.
    agent.add_better_moments(fallback::comes);
    chain::begin(art.version);
    methods::begin(art.version);
    nterp::begin(&art);
    hooks::begin(agent);
    let art: &'static Art = Box::leak(art);
    ART.store((&raw const *art).cast_mut(), Ordering::Release);
    Ok(art)
}

/// Begins. `agent` is the table of `stackbeat_runtime.h`, the same one each time. `suspenders` are the
/// threads for those that pass no hook. Hooks that cannot be placed are left out. Gives what became of each;
/// nothing, if it has begun before.
///
/// # Errors
/// Why nothing is hooked.
///
/// # Safety
/// `env` is the calling thread's, which runs native code. The table is the agent's, for good.
pub unsafe fn begin(
    agent: *const c_void,
    env: *mut c_void,
    suspenders: Option<Suspenders>,
) -> Result<Hooks, ArtError> {
    // SAFETY: by contract.
    unsafe { begin_with(agent, env, suspenders, Checks::default()) }
}

/// # Safety
/// As [`begin`].
pub(crate) unsafe fn begin_with(
    agent: *const c_void,
    env: *mut c_void,
    suspenders: Option<Suspenders>,
    checks: Checks,
) -> Result<Hooks, ArtError> {
    let mut is_started = IS_STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    if *is_started {
        return Ok(Hooks::new("art".to_owned()));
    }
    // SAFETY: by contract.
    let agent = unsafe { Agent::of_table(agent) }.ok_or(ArtError::AgentVersion)?;
    let art = prepare(agent, checks)?;
    let mut all = Hooks::new(format!("art {}", art.version));
    // The dynamic linker is not asked while threads are suspended.
    place::load_backends();
    // Native methods call it all the time, and whoever runs them is not suspended. So it goes as soon as it
    // has seen the heap.
    let of_heap = &hooks::REGISTER_NATIVE_ALLOCATION;
    let is_heap_known = heap::is_known();
    while_suspended(art, || {
        let wanted = |hook: &&&hooks::Hook| !(is_heap_known && core::ptr::eq(**hook, of_heap));
        for hook in hooks::ALL.iter().filter(wanted) {
            // SAFETY: whoever runs these functions is suspended.
            all.add(hook.name, unsafe { hook.place(art) });
        }
    });
    if of_heap.is_placed() {
        // SAFETY: by contract.
        heap::come_to_the_heap(unsafe { Env::new(env) });
        // SAFETY: whoever runs these functions is suspended.
        while_suspended(art, || unsafe { of_heap.remove() });
    }
    // SAFETY: by contract.
    all.add("ObjectAllocated", unsafe { heap::listen(art) });
    monitors::learn_thread(threads::current());
    if let Some(suspenders) = suspenders {
        let state = match hooks::FULL_SUSPEND_CHECK.is_placed() {
            true => fallback::begin(
                Suspension::find(art),
                // SAFETY: by contract.
                unsafe { Env::new(env) }.vm(),
                suspenders,
            ),
            false => State::NotAvailable("FullSuspendCheck has no hook".to_owned()),
        };
        all.add("JavaBySuspension", state);
    }
    *is_started = true;
    Ok(all)
}

/// Takes the hooks away.
///
/// # Safety
/// The calling thread runs native code.
pub unsafe fn end() {
    let mut is_started = IS_STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(art) = art().filter(|_| core::mem::take(&mut *is_started)) else {
        return;
    };
    fallback::end();
    // SAFETY: by contract.
    unsafe { heap::end(art) };
    while_suspended(art, || {
        for hook in hooks::ALL {
            // SAFETY: whoever runs these functions is suspended.
            unsafe { hook.remove() };
        }
    });
}
