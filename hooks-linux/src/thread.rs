//! Threads: their start, their end, and waiting for it.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use libc::{clockid_t, pthread_attr_t, pthread_key_t, pthread_t, timespec};
use stackbeat_core::agent;
use stackbeat_core::probe::Probe;

stackbeat_core::posix_threads! { hooks }
stackbeat_core::linux_threads! { hooks }

hooks! {
    wait fn pthread_timedjoin_np(thread: pthread_t, result: *mut *mut c_void, deadline: *const timespec) -> c_int = ThreadJoin(thread) [for thread(thread)];
    wait fn pthread_clockjoin_np(thread: pthread_t, result: *mut *mut c_void, clock: clockid_t, deadline: *const timespec) -> c_int = ThreadJoin(thread) [for thread(thread)];
}

type Routine = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// What a new thread needs to know. The creator's stack may be gone before the thread runs, and malloc
/// must not be called, so it lies in a pool.
struct Start {
    taken: AtomicBool,
    what: UnsafeCell<Option<(Routine, *mut c_void, usize, agent::Creator)>>,
}

/// Slots in one piece of the pool. The first piece is static, more are mapped when that many threads
/// are between their creation and their first instruction.
const SLOTS: usize = 128;

struct Pool {
    slots: [Start; SLOTS],
    more: AtomicPtr<Pool>,
}

// SAFETY: `what` is written by the creator that took the slot, read by the thread it created (which
// pthread_create orders after), and given back by that thread.
unsafe impl Sync for Pool {}

static POOL: Pool = Pool {
    slots: [const {
        Start {
            taken: AtomicBool::new(false),
            what: UnsafeCell::new(None),
        }
    }; SLOTS],
    more: AtomicPtr::new(null_mut()),
};

fn take_slot() -> Option<&'static Start> {
    let mut pool = &POOL;
    loop {
        for slot in &pool.slots {
            if !slot.taken.load(Ordering::Relaxed) && !slot.taken.swap(true, Ordering::Acquire) {
                return Some(slot);
            }
        }
        let mut more = pool.more.load(Ordering::Acquire);
        if more.is_null() {
            // SAFETY: a mapping of our own; zeros are a free slot, a missing value and a null pointer.
            unsafe {
                more = crate::memory::map_anonymous(size_of::<Pool>())?.cast();
                for slot in &mut (*more).slots {
                    slot.what = UnsafeCell::new(None);
                }
                if let Err(other) = pool.more.compare_exchange(
                    null_mut(),
                    more,
                    Ordering::AcqRel,
                    Ordering::Acquire,
                ) {
                    crate::memory::unmap(more.cast(), size_of::<Pool>());
                    more = other;
                }
            }
        }
        // SAFETY: not null, and pieces are never given back.
        pool = unsafe { &*more };
    }
}

/// Bytes of the stack that a thread with these attributes gets.
///
/// # Safety
/// `attributes` is null or initialized.
unsafe fn stack_bytes(attributes: *const pthread_attr_t) -> usize {
    let mut bytes = 0;
    // SAFETY: by contract; an attribute object that was only initialized holds no memory.
    unsafe {
        if attributes.is_null() {
            let mut default = core::mem::MaybeUninit::<pthread_attr_t>::uninit();
            libc::pthread_attr_init(default.as_mut_ptr());
            libc::pthread_attr_getstacksize(default.as_ptr(), &mut bytes);
            libc::pthread_attr_destroy(default.as_mut_ptr());
        } else {
            libc::pthread_attr_getstacksize(attributes, &mut bytes);
        }
    }
    bytes
}

/// First function of every thread that the program creates.
unsafe extern "C-unwind" fn run(slot: *mut c_void) -> *mut c_void {
    // SAFETY: `slot` was taken by the creator for this thread alone.
    let (routine, argument) = unsafe {
        let slot = &*slot.cast::<Start>();
        let what = (*slot.what.get()).take();
        slot.taken.store(false, Ordering::Release);
        let Some((routine, argument, stack_bytes, creator)) = what else {
            return null_mut();
        };
        // glibc puts the thread's own block, to which the thread pointer points, and its static
        // thread-locals at the top of its stack: what is walked lies below.
        let high = libc::pthread_self() as usize;
        let low = high.saturating_sub(stack_bytes);
        agent::thread_started(Some((low, high)), creator);
        watch_end();
        (routine, argument)
    };
    // SAFETY: the program's own routine and argument.
    unsafe { routine(argument) }
}

macro_rules! creates {
    ($($name:ident($thread:ident: $thread_type:ty $(, $attributes:ident: $attributes_type:ty)?) stack $bytes:expr;)*) => {$(
        original!(fn $name(thread: $thread_type $(, $attributes: $attributes_type)?, routine: Routine, argument: *mut c_void) -> c_int = ThreadCreate);
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(
            $thread: $thread_type
            $(, $attributes: $attributes_type)?,
            routine: Routine,
            argument: *mut c_void,
        ) -> c_int {
            $name::called();
            let creator = agent::creating_thread();
            let Some(slot) = take_slot() else {
                // SAFETY: the caller's arguments, passed on.
                return unsafe { $name::call($thread $(, $attributes)?, routine, argument) };
            };
            // SAFETY: the slot is ours until the new thread has it; the rest is the caller's.
            unsafe {
                *slot.what.get() = Some((routine, argument, $bytes, creator));
                let slot_pointer = (&raw const *slot).cast_mut().cast();
                let result = $name::call($thread $(, $attributes)?, run, slot_pointer);
                if result != 0 {
                    slot.taken.store(false, Ordering::Release);
                }
                result
            }
        }
    )*};
}

creates! {
    pthread_create(thread: *mut pthread_t, attributes: *const pthread_attr_t) stack stack_bytes(attributes);
    // C11 threads: the routine returns an int, which lies in the same register.
    thrd_create(thread: *mut pthread_t) stack stack_bytes(core::ptr::null());
}

/// The key whose destructor tells that a thread ends, plus 1; 0: none.
static END_KEY: AtomicU32 = AtomicU32::new(0);
/// glibc's PTHREAD_DESTRUCTOR_ITERATIONS.
const DESTRUCTOR_ROUNDS: usize = 4;

/// Makes the key. In the constructor it is among the first 32, whose values need no memory.
pub(crate) fn watch_thread_ends() {
    if END_KEY.load(Ordering::Acquire) != 0 {
        return;
    }
    let mut key: pthread_key_t = 0;
    // SAFETY: `ended` is fit for a thread that is about to end.
    if unsafe { libc::pthread_key_create(&mut key, Some(ended)) } == 0 {
        END_KEY.store(key + 1, Ordering::Release);
    }
}

/// Has `ended` called when the calling thread ends.
pub(crate) fn watch_end() {
    set_round(1);
}

fn set_round(round: usize) {
    let key = END_KEY.load(Ordering::Acquire);
    if key != 0 {
        // SAFETY: the key exists; its value is a number, not a pointer to anything.
        unsafe { libc::pthread_setspecific(key - 1, round as *const c_void) };
    }
}

/// Runs among the destructors of the program's own keys, which call hooks: waits for the last round.
extern "C" fn ended(round: *mut c_void) {
    let round = round as usize;
    if round < DESTRUCTOR_ROUNDS {
        set_round(round + 1);
    } else {
        // SAFETY: always succeeds.
        agent::thread_exiting(unsafe { libc::pthread_self() });
    }
}
