//! For threads that run Java and pass no hook: a loop that computes, above all in compiled code. An
//! interruption finds such a thread where its Java frames cannot be read. So it asks for the thread to be
//! suspended, by a number in a place of its own, and leaves its sample to that. A thread of ours suspends
//! those who asked, one at a time, and lets each go on at once. On the way into its suspension a thread
//! passes ART's `FullSuspendCheck`, whose hook takes the sample: ART walks there, and methods get names.
//!
//! ```text
//!   clock's signal ── comes() ── asked ── our thread: suspend, resume
//!                                              |
//!                            the thread: FullSuspendCheck's hook captures, then it stands still, then goes on
//! ```
//!
//! A suspension lasts until the thread comes to a safepoint, which may be late. So the main thread has a
//! suspender of its own, and the other threads have one for each [`Group`]: a late thread holds up only those
//! of its group. Suspensions of different threads do not wait for each other in ART.
//!
//! The window, from suspension to resumption, has nothing of ours in it: no walk, no allocation, no lock, no
//! message. A suspension that ART gives up is a fault; after [`MOST_FAULTS`] in all groups together nobody
//! asks any more, and such samples stay as the interruption finds them.
//!
//! # Signal safety
//! [`comes`] runs in signal handlers: it reads the thread's own memory, stores two words, and may wake a
//! thread of ours.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::io;

use stackbeat_core::platform;
use stackbeat_core::shm::calls::Calls;

use super::chain::{self, Top};
use super::jni::Vm;
use super::monitors;
use super::suspend::{Suspended, Suspension};
use super::threads::{self, Place};
use crate::doctor::State;

/// Threads that one thread of ours suspends.
struct Group {
    /// Numbers of threads that asked, each in the place of its lowest bits; 0: nobody. Of two threads with
    /// one place the later one is heard; the other one's next signal asks again.
    asked: [AtomicU32; 64],
    /// Called with each question.
    questions: Calls,
    /// What our thread does; a futex word.
    phase: AtomicU32,
    /// Our thread's number in ART; 0: not known yet.
    own: AtomicU32,
}

mod phase {
    pub(super) const NONE: u32 = 0;
    /// The thread has been started.
    pub(super) const BEGINS: u32 = 1;
    pub(super) const RUNS: u32 = 2;
}

/// Most groups of threads other than the main one.
pub const MOST_GROUPS: u32 = 8;
/// As many as there are if nobody says.
pub const DEFAULT_GROUPS: u32 = 2;

/// The main thread's, and then those of the others.
static GROUPS: [Group; 1 + MOST_GROUPS as usize] = [const {
    Group {
        asked: [const { AtomicU32::new(0) }; 64],
        questions: Calls::new(),
        phase: AtomicU32::new(phase::NONE),
        own: AtomicU32::new(0),
    }
}; 1 + MOST_GROUPS as usize];
/// How many groups the other threads have; 0: they share the main thread's.
static OTHERS: AtomicU32 = AtomicU32::new(0);

/// The main thread's number in ART: `ThreadList::kMainThreadId` (runtime/thread_list.h, Android 8 to 16).
const MAIN_THREAD: u32 = 1;

/// What all groups do.
static STATE: AtomicU32 = AtomicU32::new(state::NONE);

mod state {
    pub(super) const NONE: u32 = 0;
    pub(super) const RUNS: u32 = 1;
    /// There were too many faults: nobody is suspended any more.
    pub(super) const FAULTY: u32 = 2;
    /// Our threads are to end.
    pub(super) const ENDS: u32 = 3;
}

/// Suspensions so far, and those that ART gave up.
pub(crate) static SUSPENDED: AtomicU64 = AtomicU64::new(0);
pub(crate) static FAULTS: AtomicU32 = AtomicU32::new(0);
/// So many faults end it.
const MOST_FAULTS: u32 = 3;

/// Starts a thread that runs this.
pub type StartThread = fn(Box<dyn FnOnce() + Send>) -> io::Result<()>;

/// The threads that suspend others.
#[derive(Clone, Copy, Debug)]
pub struct Suspenders {
    /// Starts each of them.
    pub start: StartThread,
    /// Groups of threads other than the main one, at most [`MOST_GROUPS`]; 0: one thread suspends all.
    pub groups: u32,
}

/// Begins. Says what became of that.
pub(crate) fn begin(
    suspension: Result<Suspension, &'static str>,
    vm: Option<Vm>,
    suspenders: Suspenders,
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
    STATE.store(state::RUNS, Ordering::Release);
    let others = suspenders.groups.min(MOST_GROUPS);
    OTHERS.store(others, Ordering::Relaxed);
    for (started, group) in (0..=others).zip(&GROUPS) {
        match (group.begin(suspension, vm, suspenders.start), started) {
            (Ok(()), _) => {}
            (Err(why), 0) => {
                STATE.store(state::NONE, Ordering::Release);
                return missing(&format!("there is no thread for it: {why}"));
            }
            // The groups that have a thread take all.
            (Err(_), started) => {
                OTHERS.store(started - 1, Ordering::Relaxed);
                break;
            }
        }
    }
    State::Placed("threads of its own")
}

/// Ends it, and waits for the end of our threads.
pub(crate) fn end() {
    if STATE.load(Ordering::Acquire) == state::NONE {
        return;
    }
    STATE.store(state::ENDS, Ordering::SeqCst);
    GROUPS.iter().for_each(Group::ask_to_look);
    GROUPS.iter().for_each(Group::wait_for_end);
    STATE.store(state::NONE, Ordering::Release);
}

impl Group {
    /// That of the thread with this number.
    fn of(id: u32) -> Option<&'static Group> {
        let index = match OTHERS.load(Ordering::Relaxed) {
            0 => 0,
            _ if id == MAIN_THREAD => 0,
            others => 1 + id % others,
        };
        GROUPS.get(index as usize)
    }

    fn begin(&'static self, suspension: Suspension, vm: Vm, start: StartThread) -> io::Result<()> {
        self.phase.store(phase::BEGINS, Ordering::Release);
        let started = start(Box::new(move || {
            // SAFETY: the machine; `end` waits for this thread.
            let run = unsafe { vm.attached(c"stackbeat java", |_| self.run(suspension)) };
            if run.is_none() {
                eprintln!("stackbeat: Java by suspension: the machine takes no thread");
            }
            self.own.store(0, Ordering::Relaxed);
            self.phase.store(phase::NONE, Ordering::Release);
            platform::wake(&self.phase, u32::MAX >> 1);
        }));
        if started.is_err() {
            self.phase.store(phase::NONE, Ordering::Release);
        }
        started
    }

    fn run(&self, suspension: Suspension) {
        // A thread's own number is found beside its number of the kernel's. This thread's is another than any
        // that was looked at before.
        monitors::learn_thread(threads::current());
        let own = monitors::thin_lock_id(threads::current());
        self.own.store(own.unwrap_or(0), Ordering::Relaxed);
        // Left from a recording before.
        let left = self.asked.iter();
        left.for_each(|place| place.store(0, Ordering::Relaxed));
        self.phase.store(phase::RUNS, Ordering::Release);
        while let Some(questions) =
            (self.questions).note_unless(|| STATE.load(Ordering::SeqCst) == state::ENDS)
        {
            for place in &self.asked {
                let id = place.swap(0, Ordering::AcqRel);
                if id != 0 && !is_own(id) && STATE.load(Ordering::Acquire) == state::RUNS {
                    // SAFETY: this thread is attached, and runs native code.
                    let suspended = unsafe { touch(&suspension, id) };
                    note(suspended);
                }
            }
            self.questions.sleep(questions, None);
        }
    }

    /// The thread with this number asks to be suspended. False: nobody would do it.
    fn ask(&self, id: u32) -> bool {
        if self.phase.load(Ordering::Acquire) != phase::RUNS {
            return false;
        }
        if let Some(place) = self.asked.get(id as usize % self.asked.len()) {
            place.store(id, Ordering::Release);
            self.ask_to_look();
        }
        true
    }

    fn ask_to_look(&self) {
        self.questions.call();
    }

    fn wait_for_end(&self) {
        loop {
            match self.phase.load(Ordering::Acquire) {
                phase::NONE => return,
                now => platform::wait(&self.phase, now, None),
            }
        }
    }
}

/// Whether the thread with this number suspends others. Two that suspended each other would go on only
/// because ART looks for that.
fn is_own(id: u32) -> bool {
    let mut groups = GROUPS.iter();
    groups.any(|group| group.own.load(Ordering::Relaxed) == id)
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
    let id = monitors::thin_lock_id(thread).filter(|id| *id != 0 && !is_own(*id));
    let group = id.and_then(|id| Some((Group::of(id)?, id)));
    group.is_some_and(|(group, id)| group.ask(id)).into()
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
