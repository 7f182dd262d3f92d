//! For threads that run Java and pass no hook: a loop that computes, above all in compiled code. An
//! interruption finds such a thread where its Java frames cannot be read. So it asks for the thread to be
//! suspended, by a number in a place of its own, and leaves its sample to that. A thread of ours suspends
//! those who asked, one at a time, and lets each go on at once. On the way into its suspension a thread
//! passes ART's `FullSuspendCheck`, whose hook takes the sample: ART walks there, and methods get names.
//!
//! ```text
//!   clock's signal ── comes() ── ASKED ── our thread: suspend, resume
//!                                              |
//!                            the thread: FullSuspendCheck's hook captures, then it stands still, then goes on
//! ```
//!
//! The window, from suspension to resumption, has nothing of ours in it: no walk, no allocation, no lock, no
//! message. A suspension that ART gives up is a fault; after [`MOST_FAULTS`] nobody asks any more, and such
//! samples stay as the interruption finds them.
//!
//! # Signal safety
//! [`comes`] runs in signal handlers: it reads the thread's own memory, stores two words, and may wake our
//! thread.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::io;

use stackbeat_core::platform;

use super::chain::{self, Top};
use super::jni::Vm;
use super::monitors;
use super::suspend::{Suspended, Suspension};
use super::threads::{self, Place};
use crate::doctor::State;

/// Numbers of threads that asked, each in the place of its lowest bits; 0: nobody. Two threads with one place
/// ask one after the other.
static ASKED: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];
/// Counts up with each question; a futex word.
static QUESTIONS: AtomicU32 = AtomicU32::new(0);

/// What our thread does; a futex word.
static STATE: AtomicU32 = AtomicU32::new(state::NONE);

mod state {
    pub(super) const NONE: u32 = 0;
    /// It has been started.
    pub(super) const BEGINS: u32 = 1;
    pub(super) const RUNS: u32 = 2;
    /// It has had too many faults, and suspends nobody.
    pub(super) const FAULTY: u32 = 3;
    /// It is to end.
    pub(super) const ENDS: u32 = 4;
}

/// Suspensions so far, and those that ART gave up.
pub(crate) static SUSPENDED: AtomicU64 = AtomicU64::new(0);
pub(crate) static FAULTS: AtomicU32 = AtomicU32::new(0);
/// So many faults end it.
const MOST_FAULTS: u32 = 3;

/// Starts a thread that runs this.
pub type StartThread = fn(Box<dyn FnOnce() + Send>) -> io::Result<()>;

/// Begins. Says what became of that.
pub(crate) fn begin(
    suspension: Result<Suspension, &'static str>,
    vm: Option<Vm>,
    start: StartThread,
) -> State {
    let missing = |why: &str| State::NotAvailable(why.to_owned());
    let suspension = match suspension {
        Ok(suspension) => suspension,
        Err(why) => return missing(why),
    };
    let Some(vm) = vm else {
        return missing("the machine is not known");
    };
    FAULTS.store(0, Ordering::Relaxed);
    STATE.store(state::BEGINS, Ordering::Release);
    let started = start(Box::new(move || {
        // SAFETY: the machine; `end` waits for this thread.
        let run = unsafe { vm.attached(c"stackbeat java", |_| run(suspension)) };
        if run.is_none() {
            eprintln!("stackbeat: Java by suspension: the machine takes no thread");
        }
        STATE.store(state::NONE, Ordering::Release);
        platform::wake(&STATE, u32::MAX >> 1);
    }));
    match started {
        Ok(()) => State::Placed("a thread of its own"),
        Err(why) => {
            STATE.store(state::NONE, Ordering::Release);
            missing(&format!("there is no thread for it: {why}"))
        }
    }
}

/// Ends it, and waits for its end.
pub(crate) fn end() {
    if STATE.load(Ordering::Acquire) == state::NONE {
        return;
    }
    STATE.store(state::ENDS, Ordering::Release);
    QUESTIONS.fetch_add(1, Ordering::AcqRel);
    platform::wake(&QUESTIONS, 1);
    loop {
        match STATE.load(Ordering::Acquire) {
            state::NONE => return,
            now => platform::wait(&STATE, now, None),
        }
    }
}

fn run(suspension: Suspension) {
    // A thread's own number is found beside its number of the kernel's. This thread's is another than any
    // that was looked at before.
    monitors::learn_thread(threads::current());
    let own = monitors::thin_lock_id(threads::current());
    let _ = STATE.compare_exchange(
        state::BEGINS,
        state::RUNS,
        Ordering::AcqRel,
        Ordering::Acquire,
    );
    while STATE.load(Ordering::Acquire) != state::ENDS {
        let questions = QUESTIONS.load(Ordering::Acquire);
        for place in &ASKED {
            let id = place.swap(0, Ordering::AcqRel);
            if id != 0 && Some(id) != own && STATE.load(Ordering::Acquire) == state::RUNS {
                // SAFETY: this thread is attached, and runs native code.
                let suspended = unsafe { touch(&suspension, id) };
                note(suspended);
            }
        }
        platform::wait(&QUESTIONS, questions, None);
    }
}

/// The window.
///
/// # Safety
/// As [`Suspension::suspend`].
unsafe fn touch(suspension: &Suspension, id: u32) -> Suspended {
    // SAFETY: by contract; whoever is suspended goes on at once.
    unsafe {
        let suspended = suspension.suspend(id);
        if let Suspended::Yes(thread) = suspended {
            suspension.resume(thread);
        }
        suspended
    }
}

fn note(suspended: Suspended) {
    match suspended {
        Suspended::Yes(_) => {
            SUSPENDED.fetch_add(1, Ordering::Relaxed);
        }
        Suspended::Gone => {}
        Suspended::GivenUp => {
            if FAULTS.fetch_add(1, Ordering::Relaxed) + 1 >= MOST_FAULTS {
                let faulty = STATE.compare_exchange(
                    state::RUNS,
                    state::FAULTY,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                );
                if faulty.is_ok() {
                    let why = "art: Java by suspension has ended: ART gave up to suspend threads";
                    stackbeat_core::agent::say(why.as_bytes());
                    eprintln!("stackbeat: {why}");
                }
            }
        }
    }
}

/// Asked by the agent, in a handler of the sampling clock's signal: whether the calling thread is about to
/// pass `FullSuspendCheck`.
pub(crate) unsafe extern "C-unwind" fn comes() -> c_int {
    if STATE.load(Ordering::Acquire) != state::RUNS {
        return 0;
    }
    let thread = threads::current();
    if thread.is_null()
        || threads::own_if_any().is_some_and(|own| own.place.get() == Place::Hook)
        || !needs(thread.addr() as u64)
    {
        return 0;
    }
    let Some(id) = monitors::thin_lock_id(thread).filter(|id| *id != 0) else {
        return 0;
    };
    if let Some(place) = ASKED.get(id as usize % ASKED.len()) {
        place.store(id, Ordering::Release);
        QUESTIONS.fetch_add(1, Ordering::AcqRel);
        platform::wake(&QUESTIONS, 1);
    }
    1
}

/// Whether the frames of this thread, the calling one, cannot be read where it is, and it comes to a
/// safepoint by itself.
fn needs(thread: u64) -> bool {
    if cfg!(feature = "rig") && super::frames::is_blind() {
        return true;
    }
    match chain::top(thread, threads::own_stack()) {
        // It runs compiled code, or nterp's.
        Top::Code => true,
        // All are interpreted, and each has a name.
        Top::Interpreted { is_named } => !is_named,
        // It is in the runtime, or in a native method, which may take long. Where it does not, its method
        // gets a name.
        Top::Called { is_named } => !is_named,
        Top::NotKnown => true,
    }
}
