//! What libobjc and Foundation do, as far as hooks see it, over Linux: classes with methods that can be
//! replaced, and Foundation's locks, by the rules of its NSLock.h. What it does not show: what Foundation's
//! locks are made of.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;
use std::sync::{Condvar, LazyLock, Mutex};
use std::time::Duration;

use stackbeat_core::platform;

type Pointer = *mut c_void;
type Implementation = unsafe extern "C-unwind" fn();

struct Class {
    name: &'static str,
    parent: Option<&'static Class>,
    methods: BTreeMap<&'static str, Method>,
}

struct Method(Mutex<Implementation>);

/// An object: 16 bytes of its own, as libmalloc aligns it, and what it is.
#[repr(C, align(16))]
pub(crate) struct Object {
    class: &'static Class,
    state: Mutex<State>,
    changed: Condvar,
    /// Of an `NSConditionLock`: what it is made of.
    inner: Option<&'static Object>,
}

#[derive(Default)]
struct State {
    owner: u32,
    depth: u32,
    /// Signals that nobody has taken, and threads that wait for one.
    signals: u32,
    waiting: u32,
    /// The condition of an `NSConditionLock`.
    condition: isize,
}

impl Object {
    pub(crate) fn new(class: &str) -> &'static Object {
        let class = class_of(class).expect("a class");
        let inner = (class.name == "NSConditionLock").then(|| Object::new("NSCondition"));
        Box::leak(Box::new(Object {
            class,
            state: Mutex::default(),
            changed: Condvar::new(),
            inner,
        }))
    }

    fn address(&'static self) -> Pointer {
        (&raw const *self).cast_mut().cast()
    }

    /// Takes it, and no method is called.
    pub(crate) fn take_unseen(&self) {
        self.take(FOREVER);
    }

    /// Takes it, at once or within a time.
    fn take(&self, time: Duration) -> u8 {
        let own = platform::thread_id();
        let is_recursive = self.class.name == "NSRecursiveLock";
        let is_free = |state: &State| state.owner == 0 || is_recursive && state.owner == own;
        let state = self.state.lock().expect("not poisoned");
        let waits = self
            .changed
            .wait_timeout_while(state, time, |state| !is_free(state));
        let (mut state, _) = waits.expect("not poisoned");
        if !is_free(&state) {
            return 0;
        }
        state.owner = own;
        state.depth += 1;
        1
    }

    fn let_go(&self) {
        let mut state = self.state.lock().expect("not poisoned");
        assert_eq!(state.owner, platform::thread_id(), "the thread has it");
        state.depth -= 1;
        if state.depth == 0 {
            state.owner = 0;
            self.changed.notify_all();
        }
    }

    /// Waits for a signal.
    fn wait(&self, time: Duration) -> u8 {
        self.let_go();
        let mut state = self.state.lock().expect("not poisoned");
        state.waiting += 1;
        let waits = self
            .changed
            .wait_timeout_while(state, time, |state| state.signals == 0);
        let (mut state, _) = waits.expect("not poisoned");
        state.waiting -= 1;
        let has_come = state.signals > 0;
        state.signals -= u32::from(has_come);
        drop(state);
        self.take(FOREVER);
        has_come.into()
    }

    fn signal(&self, all: bool) {
        let mut state = self.state.lock().expect("not poisoned");
        state.signals = if all {
            state.waiting
        } else {
            (state.signals + 1).min(state.waiting)
        };
        self.changed.notify_all();
    }
}

const FOREVER: Duration = Duration::from_secs(1 << 30);

/// An `NSDate` here: ns from now.
unsafe fn until(date: Pointer) -> Duration {
    // SAFETY: a number.
    Duration::from_nanos(unsafe { *date.cast::<u64>() })
}

unsafe fn at(object: Pointer) -> &'static Object {
    // SAFETY: one that `new` gave.
    unsafe { &*object.cast::<Object>() }
}

/// A call of a method without arguments and result, as `objc_msgSend` makes it.
pub(crate) fn send(object: &'static Object, selector: &'static CStr) {
    // SAFETY: methods of this file.
    unsafe {
        type Call = unsafe extern "C-unwind" fn(Pointer, Pointer);
        let call = std::mem::transmute::<Implementation, Call>(implementation(object, selector));
        call(object.address(), selector_of(selector.as_ptr()));
    }
}

/// The same for one that takes a number, or a pointer to one.
pub(crate) fn send_with(object: &'static Object, selector: &'static CStr, argument: usize) -> u8 {
    // SAFETY: methods of this file; what those without result give is not looked at.
    unsafe {
        type Call = unsafe extern "C-unwind" fn(Pointer, Pointer, usize) -> u8;
        let call = std::mem::transmute::<Implementation, Call>(implementation(object, selector));
        call(object.address(), selector_of(selector.as_ptr()), argument)
    }
}

fn implementation(object: &Object, selector: &CStr) -> Implementation {
    let name = selector.to_str().expect("a name");
    let method = method_of(object.class, name).expect("a method");
    *method.0.lock().expect("not poisoned")
}

fn method_of(class: &'static Class, name: &str) -> Option<&'static Method> {
    let own = class.methods.get(name);
    own.or_else(|| method_of(class.parent?, name))
}

/// All methods with what they are at the moment.
pub(crate) fn implementations() -> Vec<(&'static str, &'static str, usize)> {
    let of = |class: &'static Class| {
        let methods = class.methods.iter();
        methods.map(|(name, method)| {
            let now = *method.0.lock().expect("not poisoned");
            (class.name, *name, now as usize)
        })
    };
    CLASSES.iter().flat_map(|class| of(class)).collect()
}

fn class_of(name: &str) -> Option<&'static Class> {
    CLASSES.iter().find(|class| class.name == name).copied()
}

static CLASSES: LazyLock<Vec<&'static Class>> = LazyLock::new(|| {
    let class = |name, parent, methods: &[(&'static str, *const c_void)]| -> &'static Class {
        let methods = methods.iter().map(|(name, function)| {
            // SAFETY: functions of this file.
            let function =
                unsafe { std::mem::transmute::<*const c_void, Implementation>(*function) };
            (*name, Method(Mutex::new(function)))
        });
        Box::leak(Box::new(Class {
            name,
            parent,
            methods: methods.collect(),
        }))
    };
    macro_rules! methods {
        ($($name:literal $function:ident),*) => { &[$(($name, $function as *const c_void)),*] };
    }
    let root = class("NSObject", None, methods!["lockBeforeDate:" lock_before]);
    vec![
        root,
        class(
            "NSLock",
            Some(root),
            methods!["lock" lock, "tryLock" try_lock, "unlock" unlock, "lockBeforeDate:" lock_before,
                "dealloc" dealloc],
        ),
        // The method with a date is the root's here.
        class(
            "NSRecursiveLock",
            Some(root),
            methods!["lock" lock, "tryLock" try_lock, "unlock" unlock],
        ),
        class(
            "NSCondition",
            Some(root),
            methods!["lock" lock, "unlock" unlock, "wait" wait, "waitUntilDate:" wait_until,
                "signal" signal, "broadcast" broadcast],
        ),
        class(
            "NSConditionLock",
            Some(root),
            methods!["lock" conditional_lock, "unlock" conditional_unlock,
                "lockWhenCondition:" lock_when, "unlockWithCondition:" unlock_with],
        ),
        class("NSRunLoop", Some(root), methods!["run" run]),
    ]
});

unsafe extern "C-unwind" fn lock(object: Pointer, _: Pointer) {
    // SAFETY: by contract of the call.
    unsafe { at(object) }.take(FOREVER);
}

unsafe extern "C-unwind" fn try_lock(object: Pointer, selector: Pointer) -> u8 {
    // SAFETY: a selector.
    assert_eq!(unsafe { CStr::from_ptr(selector.cast()) }, c"tryLock");
    // SAFETY: by contract of the call.
    unsafe { at(object) }.take(Duration::ZERO)
}

unsafe extern "C-unwind" fn lock_before(object: Pointer, _: Pointer, date: Pointer) -> u8 {
    // SAFETY: by contract of the call.
    unsafe { at(object).take(until(date)) }
}

unsafe extern "C-unwind" fn unlock(object: Pointer, _: Pointer) {
    // SAFETY: by contract of the call.
    unsafe { at(object) }.let_go();
}

/// The object becomes another one, at the same address.
unsafe extern "C-unwind" fn dealloc(object: Pointer, _: Pointer) {
    // SAFETY: by contract of the call.
    *unsafe { at(object) }.state.lock().expect("not poisoned") = State::default();
}

unsafe extern "C-unwind" fn wait(object: Pointer, _: Pointer) {
    // SAFETY: by contract of the call.
    unsafe { at(object) }.wait(FOREVER);
}

unsafe extern "C-unwind" fn wait_until(object: Pointer, _: Pointer, date: Pointer) -> u8 {
    // SAFETY: by contract of the call.
    unsafe { at(object).wait(until(date)) }
}

unsafe extern "C-unwind" fn signal(object: Pointer, _: Pointer) {
    // SAFETY: by contract of the call.
    unsafe { at(object) }.signal(false);
}

unsafe extern "C-unwind" fn broadcast(object: Pointer, _: Pointer) {
    // SAFETY: by contract of the call.
    unsafe { at(object) }.signal(true);
}

/// An `NSConditionLock` calls the methods of another lock inside its own.
fn inner(object: Pointer) -> &'static Object {
    // SAFETY: by contract of the call.
    unsafe { at(object) }.inner.expect("what it is made of")
}

unsafe extern "C-unwind" fn conditional_lock(object: Pointer, _: Pointer) {
    send(inner(object), c"lock");
}

unsafe extern "C-unwind" fn conditional_unlock(object: Pointer, _: Pointer) {
    send(inner(object), c"unlock");
}

unsafe extern "C-unwind" fn lock_when(object: Pointer, _: Pointer, condition: isize) {
    let is_met = || {
        // SAFETY: by contract of the call.
        unsafe { at(object) }
            .state
            .lock()
            .expect("not poisoned")
            .condition
            == condition
    };
    send(inner(object), c"lock");
    while !is_met() {
        send(inner(object), c"wait");
    }
}

unsafe extern "C-unwind" fn unlock_with(object: Pointer, _: Pointer, condition: isize) {
    // SAFETY: by contract of the call.
    unsafe { at(object) }
        .state
        .lock()
        .expect("not poisoned")
        .condition = condition;
    send(inner(object), c"broadcast");
    send(inner(object), c"unlock");
}

unsafe extern "C-unwind" fn run(_: Pointer, _: Pointer) {
    // SAFETY: the calling thread's loop.
    unsafe { crate::darwin::run_loop_run() };
}

/// A selector is a name here.
unsafe extern "C" fn selector_of(name: *const c_char) -> Pointer {
    static NAMES: Mutex<BTreeMap<&'static CStr, usize>> = Mutex::new(BTreeMap::new());
    // SAFETY: by contract of the call.
    let name = unsafe { CStr::from_ptr(name) };
    let mut names = NAMES.lock().expect("not poisoned");
    if let Some(known) = names.get(name) {
        return std::ptr::with_exposed_provenance_mut(*known);
    }
    let kept: &'static CStr = Box::leak(name.to_owned().into_boxed_c_str());
    names.insert(kept, kept.as_ptr().expose_provenance());
    kept.as_ptr().cast_mut().cast()
}

unsafe extern "C" fn look_up_class(name: *const c_char) -> Pointer {
    // SAFETY: by contract of the call.
    let name = unsafe { CStr::from_ptr(name) };
    class_of(name.to_str().expect("a name")).map_or(null_mut(), pointer_to)
}

fn pointer_to<T>(to: &'static T) -> Pointer {
    (&raw const *to).cast_mut().cast()
}

unsafe extern "C" fn superclass(class: Pointer) -> Pointer {
    // SAFETY: by contract of the call.
    unsafe { &*class.cast::<Class>() }
        .parent
        .map_or(null_mut(), pointer_to)
}

unsafe extern "C" fn instance_method(class: Pointer, selector: Pointer) -> Pointer {
    // SAFETY: by contract of the call.
    let (class, name) = unsafe { (&*class.cast::<Class>(), CStr::from_ptr(selector.cast())) };
    method_of(class, name.to_str().expect("a name")).map_or(null_mut(), pointer_to)
}

unsafe extern "C" fn get_implementation(method: Pointer) -> Implementation {
    // SAFETY: by contract of the call.
    *unsafe { &*method.cast::<Method>() }
        .0
        .lock()
        .expect("not poisoned")
}

unsafe extern "C" fn set_implementation(method: Pointer, new: Implementation) -> Implementation {
    // SAFETY: by contract of the call.
    let mut now = unsafe { &*method.cast::<Method>() }
        .0
        .lock()
        .expect("not poisoned");
    std::mem::replace(&mut *now, new)
}

/// The runtime's functions by their names.
pub(crate) fn functions() -> [(&'static str, *const c_void); 6] {
    [
        ("objc_lookUpClass", look_up_class as *const c_void),
        ("class_getSuperclass", superclass as *const c_void),
        ("class_getInstanceMethod", instance_method as *const c_void),
        ("sel_registerName", selector_of as *const c_void),
        (
            "method_getImplementation",
            get_implementation as *const c_void,
        ),
        (
            "method_setImplementation",
            set_implementation as *const c_void,
        ),
    ]
}
