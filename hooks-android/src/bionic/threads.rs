//! Threads that the program begins: they take part from their first instruction to their last, and give their
//! memory back.
//!
//! A new thread is told by a box what it is for: of the library's own heap, while `pthread_create` itself
//! takes memory, too.

use core::ffi::{c_int, c_void};
use core::mem::{MaybeUninit, transmute};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use libc::{pthread_attr_t, pthread_key_t, pthread_t};
use stackbeat_core::agent;
use stackbeat_core::posix::function_table::Function;

type Routine = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;
type Create = unsafe extern "C-unwind" fn(
    *mut pthread_t,
    *const pthread_attr_t,
    Routine,
    *mut c_void,
) -> c_int;

static CREATE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

pub(super) const FUNCTIONS: &[Function] = &[Function {
    name: "pthread_create",
    aliases: &[],
    hook: create as *const c_void,
    original: &CREATE,
}];

struct Start {
    routine: Routine,
    argument: *mut c_void,
    creator: agent::Creator,
}

unsafe extern "C-unwind" fn create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    routine: Routine,
    argument: *mut c_void,
) -> c_int {
    let start = Box::into_raw(Box::new(Start {
        routine,
        argument,
        creator: agent::creating_thread(),
    }));
    // SAFETY: whoever uses the table has put the function of this name there; the new thread takes the box.
    unsafe {
        let original = transmute::<*mut c_void, Create>(CREATE.load(Ordering::Relaxed));
        let result = original(thread, attributes, run, start.cast());
        if result != 0 {
            drop(Box::from_raw(start));
        }
        result
    }
}

/// First function of a new thread.
unsafe extern "C-unwind" fn run(start: *mut c_void) -> *mut c_void {
    // SAFETY: the creator has made it for this thread.
    let start = unsafe { *Box::from_raw(start.cast::<Start>()) };
    let Start {
        routine,
        argument,
        creator,
    } = start;
    agent::thread_started(stack(), creator);
    set_round(1);
    // SAFETY: the program's own routine and argument.
    unsafe { routine(argument) }
}

/// Lowest address and end of the calling thread's stack.
pub(crate) fn stack() -> Option<(usize, usize)> {
    let mut attributes = MaybeUninit::<pthread_attr_t>::uninit();
    let (mut low, mut bytes) = (ptr::null_mut(), 0);
    // SAFETY: filled by the first call, and given back.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return None;
        }
        let got = libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut low, &raw mut bytes);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        (got == 0).then(|| (low.addr(), low.addr() + bytes))
    }
}

/// The key whose destructor tells that a thread ends, plus 1; 0: none.
static END_KEY: AtomicU32 = AtomicU32::new(0);
/// Rounds of destructors after which a thread ends for us, one before the last of both C libraries
/// (`PTHREAD_DESTRUCTOR_ITERATIONS`): in the last one the agent's own memory of a thread goes.
const ROUNDS: usize = 3;

/// Makes the key, before the hook is placed.
pub(super) fn watch_ends() {
    let mut key: pthread_key_t = 0;
    if END_KEY.load(Ordering::Acquire) != 0 {
        return;
    }
    // SAFETY: `ended` is fit for a thread that is about to end.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(ended)) } == 0 {
        // It has a sign on Android and none elsewhere.
        let number = u32::from_ne_bytes(key.to_ne_bytes());
        END_KEY.store(number.wrapping_add(1), Ordering::Release);
    }
}

fn set_round(round: usize) {
    let key = END_KEY.load(Ordering::Acquire);
    if key != 0 {
        let key = pthread_key_t::from_ne_bytes((key - 1).to_ne_bytes());
        // SAFETY: the key exists; its value is a number, not a pointer to anything.
        unsafe { libc::pthread_setspecific(key, ptr::without_provenance(round)) };
    }
}

/// Runs among the destructors of the program's own keys, which call hooks.
extern "C" fn ended(round: *mut c_void) {
    let round = round.addr();
    if round < ROUNDS {
        set_round(round + 1);
    } else {
        // SAFETY: always succeeds.
        agent::thread_exiting(unsafe { libc::pthread_self() } as u64);
    }
}
