//! Foundation's locks: `NSLock`, `NSRecursiveLock`, `NSCondition`, `NSConditionLock`. Foundation itself takes
//! them, too.
//!
//! Source: Foundation's NSLock.h. What they are made of is not public: their methods are replaced, and call
//! the methods that were there before. A wait is tried first, as the header has it (`tryLock`). Where one of
//! these methods calls another one inside its wait, the agent makes one wait of it.

use super::methods::{Method, method};
use super::*;
use stackbeat_core::function_of_table;

use super::owners::{freed, let_go, owner_of, taken};

/// `id`, `SEL`, an `NSDate`.
type Object = *mut c_void;
type Selector = *mut c_void;
/// `BOOL`: a `signed char` on Intel, a `bool` on arm64; one byte either way.
type Bool = u8;

/// A time that is over.
const TIMED_OUT: i64 = -(libc::ETIMEDOUT as i64);

/// What a thread waits for that waits for a condition, not for its lock: an address inside the object that no
/// other object has.
fn condition_of(object: Object) -> u64 {
    object as u64 + 8
}

/// A call that waits for the lock. `try_lock`: takes it if it is free; `None`: there is no such method, or it
/// must not be called. The result says whether it was taken.
#[inline(always)]
fn lock(
    object: Object,
    probe: Probe,
    try_lock: Option<impl FnOnce() -> Bool>,
    call: impl FnOnce() -> Bool,
) -> Bool {
    let address = object as u64;
    agent::hit(probe, address);
    if try_lock.is_some_and(|try_lock| try_lock() != 0) {
        taken(address);
        return 1;
    }
    let wait = agent::begin_wait_for(probe, address, at(address, owner_of(address), How::Release));
    let is_taken = call();
    if is_taken != 0 {
        taken(address);
    }
    wait.end(if is_taken != 0 { 0 } else { TIMED_OUT });
    is_taken
}

/// A call that lets go of the lock.
#[inline(always)]
fn unlock(object: Object, call: impl FnOnce()) {
    let_go(object as u64);
    release(Probe::ObjectUnlock, object as u64, How::Release, call);
}

/// A call that lets go of a condition's lock, waits for the condition, and takes the lock again.
#[inline(always)]
fn wait(object: Object, call: impl FnOnce() -> Bool) -> Bool {
    let (lock, condition) = (object as u64, condition_of(object));
    let_go(lock);
    if agent::is_awaited(lock) {
        agent::announce(&[lock], false, How::Release).end(Probe::ObjectWait, lock);
    }
    let awaited = at(condition, Tid(0), How::Wake(1));
    let wait = agent::begin_wait_for(Probe::ObjectWait, lock, awaited);
    let has_come = call();
    taken(lock);
    wait.end(if has_come != 0 { 0 } else { TIMED_OUT });
    has_come
}

/// The selector of `tryLock`.
static TRY_LOCK: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// What tries a lock, by the class' own method.
macro_rules! try_of {
    ($module:ident, $object:ident) => {
        is_there(&$module::ORIGINAL)
            .then_some(|| $module::call($object, TRY_LOCK.load(Ordering::Relaxed)))
    };
}

macro_rules! locks {
    ($($lock:ident $before:ident $try_lock:ident $unlock:ident;)*) => {$(
        function_of_table! { @ $lock(object: Object, selector: Selector) -> () {
            let call = || { call(object, selector); 1 };
            lock(object, Probe::ObjectLock, try_of!($try_lock, object), call);
        } }
        function_of_table! { @ $before(object: Object, selector: Selector, date: Object) -> Bool {
            let try_lock = try_of!($try_lock, object);
            lock(object, Probe::ObjectLock, try_lock, || call(object, selector, date))
        } }
        function_of_table! { @ $try_lock(object: Object, selector: Selector) -> Bool {
            let is_taken = call(object, selector);
            if is_taken != 0 {
                taken(object as u64);
            }
            agent::hit(Probe::ObjectLock, object as u64);
            is_taken
        } }
        function_of_table! { @ $unlock(object: Object, selector: Selector) -> () {
            unlock(object, || call(object, selector));
        } }
    )*};
}
locks! {
    lock_lock lock_before lock_try lock_unlock;
    recursive_lock recursive_before recursive_try recursive_unlock;
    conditional_lock conditional_before conditional_try conditional_unlock;
}

/// No method of the class tries it, and another class' one must not be called.
const NO_TRY: Option<fn() -> Bool> = None;

function_of_table! { @ conditional_lock_when(object: Object, selector: Selector, value: isize) -> () {
    lock(object, Probe::ObjectLock, NO_TRY, || { call(object, selector, value); 1 });
} }
function_of_table! { @ conditional_lock_when_before(object: Object, selector: Selector, value: isize, date: Object) -> Bool {
    lock(object, Probe::ObjectLock, NO_TRY, || call(object, selector, value, date))
} }
function_of_table! { @ conditional_try_when(object: Object, selector: Selector, value: isize) -> Bool {
    let is_taken = call(object, selector, value);
    if is_taken != 0 {
        taken(object as u64);
    }
    agent::hit(Probe::ObjectLock, object as u64);
    is_taken
} }
function_of_table! { @ conditional_unlock_with(object: Object, selector: Selector, value: isize) -> () {
    unlock(object, || call(object, selector, value));
} }

function_of_table! { @ condition_lock(object: Object, selector: Selector) -> () {
    lock(object, Probe::ObjectLock, NO_TRY, || { call(object, selector); 1 });
} }
function_of_table! { @ condition_unlock(object: Object, selector: Selector) -> () {
    unlock(object, || call(object, selector));
} }
function_of_table! { @ condition_wait(object: Object, selector: Selector) -> () {
    wait(object, || { call(object, selector); 1 });
} }
function_of_table! { @ condition_wait_until(object: Object, selector: Selector, date: Object) -> Bool {
    wait(object, || call(object, selector, date))
} }
function_of_table! { @ condition_signal(object: Object, selector: Selector) -> () {
    release(Probe::ObjectSignal, condition_of(object), How::Wake(1), || call(object, selector))
} }
function_of_table! { @ condition_broadcast(object: Object, selector: Selector) -> () {
    release(Probe::ObjectSignal, condition_of(object), How::Wake(u32::MAX), || call(object, selector))
} }

macro_rules! freeings {
    ($($name:ident)*) => {
        $(function_of_table! { @ $name(object: Object, selector: Selector) -> () {
            freed(object as u64);
            call(object, selector);
        } })*
    };
}
freeings! { lock_dealloc recursive_dealloc conditional_dealloc condition_dealloc }

macro_rules! methods {
    ($($class:literal $selector:literal $hook:ident;)*) => {
        /// The methods that are replaced.
        pub(super) static METHODS: [Method; [$($selector),*].len()] =
            [$(method!($class $selector $hook)),*];
    };
}
methods! {
    "NSLock" "lock" lock_lock;
    "NSLock" "lockBeforeDate:" lock_before;
    "NSLock" "tryLock" lock_try;
    "NSLock" "unlock" lock_unlock;
    "NSRecursiveLock" "lock" recursive_lock;
    "NSRecursiveLock" "lockBeforeDate:" recursive_before;
    "NSRecursiveLock" "tryLock" recursive_try;
    "NSRecursiveLock" "unlock" recursive_unlock;
    "NSConditionLock" "lock" conditional_lock;
    "NSConditionLock" "lockBeforeDate:" conditional_before;
    "NSConditionLock" "tryLock" conditional_try;
    "NSConditionLock" "unlock" conditional_unlock;
    "NSConditionLock" "lockWhenCondition:" conditional_lock_when;
    "NSConditionLock" "lockWhenCondition:beforeDate:" conditional_lock_when_before;
    "NSConditionLock" "tryLockWhenCondition:" conditional_try_when;
    "NSConditionLock" "unlockWithCondition:" conditional_unlock_with;
    "NSCondition" "lock" condition_lock;
    "NSCondition" "unlock" condition_unlock;
    "NSCondition" "wait" condition_wait;
    "NSCondition" "waitUntilDate:" condition_wait_until;
    "NSCondition" "signal" condition_signal;
    "NSCondition" "broadcast" condition_broadcast;
    // A lock that is freed while somebody has it.
    "NSLock" "dealloc" lock_dealloc;
    "NSRecursiveLock" "dealloc" recursive_dealloc;
    "NSConditionLock" "dealloc" conditional_dealloc;
    "NSCondition" "dealloc" condition_dealloc;
}

/// # Safety
/// The library stays.
pub(super) unsafe fn place() {
    super::owners::forget();
    TRY_LOCK.store(super::methods::selector(c"tryLock"), Ordering::Relaxed);
    // SAFETY: by contract; each hook has the type of its method.
    unsafe { super::methods::place(&METHODS) };
}

/// # Safety
/// That of [`place`].
pub(super) unsafe fn take_away() {
    // SAFETY: by contract.
    unsafe { super::methods::take_away(&METHODS) };
}
