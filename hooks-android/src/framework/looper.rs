//! Iterations of message loops. One is what a thread does between two waits of its `Looper`: first what
//! native code does with what came (input, a vsync), then the message that Java takes from its queue. It
//! stands in the trace as asynchronous work with a number, as a run loop's on Apple's systems.
//!
//! ```text
//! MessageQueue.next                         handles a message
//!   Looper::pollOnce                                     pollOnce
//!     epoll_wait ... | callbacks of native code |          epoll_wait ...
//!                    |<------------ iteration ------------>|
//! ```
//!
//! The wait itself is that of `epoll_wait`, which libutils calls through its slots: the hooks of bionic
//! record it.
//!
//! Source: system/core, libutils/Looper.cpp (`pollOnce` polls once, unless results of the last poll are left)
//! and frameworks/base, core/jni/android_os_MessageQueue.cpp (`nativePollOnce`, once for each message).

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use libc::pthread_key_t;
use stackbeat_core::agent;
use stackbeat_core::shm::record_format::event_kind::{ASYNC_BEGIN, ASYNC_END};

/// What an iteration is called.
const NAME: &[u8] = b"message loop";

pub(super) static ORIGINAL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Whether anything is told.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// Iterations so far. Numbers go on from session to session, so one that was left open in the last session is
/// known.
static ITERATIONS: AtomicU64 = AtomicU64::new(0);
/// The first number of this session.
static FIRST: AtomicU64 = AtomicU64::new(1);

/// The key of a thread's [`State`], plus 1; 0: none.
static KEY: AtomicU32 = AtomicU32::new(0);

/// What a thread knows of its loop: the value of its key, so nothing is allocated for it.
#[derive(Clone, Copy)]
struct State {
    /// It is in `pollOnce`.
    polls: bool,
    /// The number of the iteration that is under way; 0: none is.
    iteration: u64,
}

fn key() -> Option<pthread_key_t> {
    let key = KEY.load(Ordering::Acquire).checked_sub(1)?;
    Some(pthread_key_t::from_ne_bytes(key.to_ne_bytes()))
}

impl State {
    fn of_value(value: *mut c_void) -> State {
        let bits = value.addr() as u64;
        State {
            polls: bits & 1 != 0,
            iteration: bits >> 1,
        }
    }

    /// The calling thread's.
    fn get() -> Option<State> {
        // SAFETY: the key exists.
        key().map(|key| State::of_value(unsafe { libc::pthread_getspecific(key) }))
    }

    fn set(self) {
        let bits = (self.iteration << 1 | u64::from(self.polls)) as usize;
        if let Some(key) = key() {
            // SAFETY: the key exists; its value is a number, not a pointer to anything.
            unsafe { libc::pthread_setspecific(key, ptr::without_provenance::<c_void>(bits)) };
        }
    }

    fn begin(&mut self) {
        if self.iteration == 0 && IS_ON.load(Ordering::Acquire) {
            self.iteration = ITERATIONS.fetch_add(1, Ordering::Relaxed) + 1;
            agent::event(ASYNC_BEGIN, NAME, self.iteration as i64);
        }
    }

    fn end(&mut self) {
        let iteration = core::mem::take(&mut self.iteration);
        let is_of_session = iteration >= FIRST.load(Ordering::Acquire);
        if iteration != 0 && is_of_session && IS_ON.load(Ordering::Acquire) {
            agent::event(ASYNC_END, NAME, iteration as i64);
        }
    }
}

/// Before the hook is placed.
pub(super) fn begin() {
    if KEY.load(Ordering::Acquire) == 0 {
        let mut key: pthread_key_t = 0;
        // SAFETY: `thread_ends` is fit for a thread that is about to end.
        if unsafe { libc::pthread_key_create(&raw mut key, Some(thread_ends)) } == 0 {
            // It has a sign on Android and none elsewhere.
            let number = u32::from_ne_bytes(key.to_ne_bytes());
            KEY.store(number.wrapping_add(1), Ordering::Release);
        }
    }
    let so_far = ITERATIONS.load(Ordering::Relaxed);
    FIRST.store(so_far + 1, Ordering::Release);
    IS_ON.store(true, Ordering::Release);
}

/// When the hook is gone. Threads may still be in it.
pub(super) fn end() {
    IS_ON.store(false, Ordering::Release);
}

/// A loop that has quit leaves its last iteration open.
extern "C" fn thread_ends(value: *mut c_void) {
    State::of_value(value).end();
}

/// The calling thread has waited for events: in `pollOnce` an iteration begins here.
#[inline]
pub(crate) fn has_polled() {
    if IS_ON.load(Ordering::Acquire)
        && let Some(mut state) = State::get()
        && state.polls
        && state.iteration == 0
    {
        state.begin();
        state.set();
    }
}

type PollOnce = unsafe extern "C-unwind" fn(
    *mut c_void,
    c_int,
    *mut c_int,
    *mut c_int,
    *mut *mut c_void,
) -> c_int;

/// `Looper::pollOnce`.
pub(super) unsafe extern "C-unwind" fn poll_once(
    looper: *mut c_void,
    timeout_ms: c_int,
    file: *mut c_int,
    events: *mut c_int,
    data: *mut *mut c_void,
) -> c_int {
    if let Some(mut state) = State::get() {
        state.end();
        state.polls = true;
        state.set();
    }
    // SAFETY: of this type; stored before anybody comes here. The caller's arguments, passed on.
    let result = unsafe {
        let original: PollOnce = core::mem::transmute(ORIGINAL.load(Ordering::Acquire));
        original(looper, timeout_ms, file, events, data)
    };
    if let Some(mut state) = State::get() {
        // Where nothing had to be waited for, or the wait passed no hook.
        state.begin();
        state.polls = false;
        state.set();
    }
    result
}
