//! What libSystem, libdispatch, libobjc and CoreFoundation do, as far as hooks see it, over Linux: behind the
//! same signatures, by the same rules of waiting and waking. What it shows: that hooks call their originals
//! as these expect it, and what they record. What not: how Apple's libraries behave beyond their headers.

use core::ffi::{CStr, c_int, c_void};
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use stackbeat_core::platform;

use crate::world::Functions;

/// A thread's port, as its unfair locks hold it: the two lowest bits are set.
pub(crate) fn own_port() -> u32 {
    platform::thread_id() << 2 | 3
}

/// mach/thread_act.h: here only `THREAD_IDENTIFIER_INFO`, by which a port's thread is known.
unsafe extern "C" fn thread_info(port: u32, flavor: c_int, to: *mut u64, count: *mut u32) -> c_int {
    // SAFETY: by contract of the call.
    unsafe {
        if flavor != 4 || *count < 6 || port & 3 != 3 {
            // KERN_INVALID_ARGUMENT.
            return 4;
        }
        to.write((port >> 2).into());
    }
    0
}

unsafe fn word<'a>(lock: *mut c_void) -> &'a AtomicU32 {
    // SAFETY: a word of the test's.
    unsafe { &*lock.cast::<AtomicU32>() }
}

unsafe extern "C" fn os_unfair_lock_trylock(lock: *mut c_void) -> bool {
    // SAFETY: by contract of the call.
    let word = unsafe { word(lock) };
    word.compare_exchange(0, own_port(), Ordering::AcqRel, Ordering::Relaxed)
        .is_ok()
}

unsafe extern "C" fn os_unfair_lock_lock(lock: *mut c_void) {
    // SAFETY: by contract of the call.
    let word = unsafe { word(lock) };
    // SAFETY: the same.
    while !unsafe { os_unfair_lock_trylock(lock) } {
        let value = word.load(Ordering::Relaxed);
        if value == 0 {
            continue;
        }
        // Somebody waits from here on, and whoever waits takes it so.
        let waited = value & !1;
        let marked = word.compare_exchange(value, waited, Ordering::AcqRel, Ordering::Relaxed);
        if marked.is_ok() {
            platform::wait(word, waited, None);
        }
    }
}

unsafe extern "C" fn os_unfair_lock_unlock(lock: *mut c_void) {
    // SAFETY: by contract of the call.
    let word = unsafe { word(lock) };
    let before = word.swap(0, Ordering::AcqRel);
    assert_eq!(before | 1, own_port(), "the thread has it");
    if before & 1 == 0 {
        platform::wake(word, i32::MAX as u32);
    }
}

unsafe extern "C" fn ulock_wait(
    operation: u32,
    address: *mut c_void,
    value: u64,
    us: u32,
) -> c_int {
    assert_eq!((operation, us), (1, 0));
    // SAFETY: by contract of the call.
    platform::wait(unsafe { word(address) }, value as u32, None);
    // How many wait after this one.
    2
}

unsafe extern "C" fn ulock_wake(operation: u32, address: *mut c_void, _: u64) -> c_int {
    assert_eq!(operation, 1);
    // SAFETY: by contract of the call.
    platform::wake(unsafe { word(address) }, 1);
    0
}

unsafe extern "C" fn os_sync_wait_on_address(
    address: *mut c_void,
    value: u64,
    size: usize,
    flags: u32,
) -> c_int {
    assert_eq!((size, flags), (4, 0));
    // SAFETY: by contract of the call.
    platform::wait(unsafe { word(address) }, value as u32, None);
    0
}

unsafe extern "C" fn os_sync_wake_by_address_all(address: *mut c_void, _: usize, _: u32) -> c_int {
    // SAFETY: by contract of the call.
    platform::wake(unsafe { word(address) }, i32::MAX as u32);
    0
}

unsafe extern "C" fn objc_sync_enter(object: *mut c_void) -> c_int {
    // The object is the lock here. SAFETY: by contract of the call.
    unsafe { os_unfair_lock_lock(object) };
    0
}

unsafe extern "C" fn objc_sync_try_enter(object: *mut c_void) -> u8 {
    // SAFETY: by contract of the call.
    unsafe { os_unfair_lock_trylock(object) }.into()
}

unsafe extern "C" fn objc_sync_exit(object: *mut c_void) -> c_int {
    // SAFETY: by contract of the call.
    unsafe { os_unfair_lock_unlock(object) };
    0
}

/// A semaphore, or a group: what is waited for is that the number is enough.
#[derive(Default)]
pub(crate) struct Counter {
    value: Mutex<i64>,
    changed: Condvar,
}

impl Counter {
    pub(crate) fn new(value: i64) -> &'static Counter {
        Box::leak(Box::new(Counter {
            value: Mutex::new(value),
            changed: Condvar::new(),
        }))
    }

    pub(crate) fn address(&'static self) -> *mut c_void {
        (&raw const *self).cast_mut().cast()
    }

    unsafe fn at(address: *mut c_void) -> &'static Counter {
        // SAFETY: one that `new` gave.
        unsafe { &*address.cast::<Counter>() }
    }

    fn add(&self, number: i64) {
        *self.value.lock().expect("not poisoned") += number;
        self.changed.notify_all();
    }

    /// 0, or not 0 when the time is over; `u64::MAX` is for ever, and other times are moments from now in ns.
    fn wait(&self, timeout: u64, is_enough: impl Fn(i64) -> bool, takes: i64) -> isize {
        let value = self.value.lock().expect("not poisoned");
        let time = Duration::from_nanos(timeout.min(1 << 40));
        let (mut value, _) = self
            .changed
            .wait_timeout_while(value, time, |value| !is_enough(*value))
            .expect("not poisoned");
        if !is_enough(*value) {
            // As libdispatch does (src/semaphore.c). SAFETY: the calling thread's.
            unsafe { *libc::__errno_location() = libc::ETIMEDOUT };
            return 1;
        }
        *value -= takes;
        0
    }
}

unsafe extern "C" fn dispatch_semaphore_wait(semaphore: *mut c_void, timeout: u64) -> isize {
    // SAFETY: by contract of the call.
    unsafe { Counter::at(semaphore) }.wait(timeout, |value| value > 0, 1)
}

unsafe extern "C" fn dispatch_semaphore_signal(semaphore: *mut c_void) -> isize {
    // SAFETY: by contract of the call.
    unsafe { Counter::at(semaphore) }.add(1);
    0
}

unsafe extern "C" fn dispatch_group_wait(group: *mut c_void, timeout: u64) -> isize {
    // SAFETY: by contract of the call.
    unsafe { Counter::at(group) }.wait(timeout, |value| value == 0, 0)
}

unsafe extern "C" fn dispatch_group_leave(group: *mut c_void) {
    // SAFETY: by contract of the call.
    unsafe { Counter::at(group) }.add(-1);
}

type Work = unsafe extern "C-unwind" fn(*mut c_void);

struct Job {
    work: Work,
    context: usize,
    /// 0: none.
    group: usize,
}

/// A queue with a thread of its own.
pub(crate) struct Queue {
    jobs: Mutex<VecDeque<Job>>,
    changed: Condvar,
    /// Work that somebody waits for runs on that thread, too, as that of the main queue does.
    is_main: bool,
}

impl Queue {
    pub(crate) fn new(name: &str, is_main: bool) -> &'static Queue {
        let queue: &'static Queue = Box::leak(Box::new(Queue {
            jobs: Mutex::default(),
            changed: Condvar::new(),
            is_main,
        }));
        let run = move || {
            loop {
                let jobs = queue.jobs.lock().expect("not poisoned");
                let mut jobs = queue
                    .changed
                    .wait_while(jobs, |jobs| jobs.is_empty())
                    .expect("not poisoned");
                let job = jobs.pop_front().expect("there is one");
                drop(jobs);
                // SAFETY: what was handed over.
                unsafe {
                    (job.work)(std::ptr::with_exposed_provenance_mut(job.context));
                    if job.group != 0 {
                        Counter::at(std::ptr::with_exposed_provenance_mut(job.group)).add(-1);
                    }
                }
            }
        };
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(run)
            .expect("a thread");
        queue
    }

    pub(crate) fn address(&'static self) -> *mut c_void {
        (&raw const *self).cast_mut().cast()
    }

    unsafe fn at(address: *mut c_void) -> &'static Queue {
        // SAFETY: one that `new` gave.
        unsafe { &*address.cast::<Queue>() }
    }

    fn push(&self, work: Work, context: *mut c_void, group: *mut c_void) {
        let job = Job {
            work,
            context: context.expose_provenance(),
            group: group.expose_provenance(),
        };
        self.jobs.lock().expect("not poisoned").push_back(job);
        self.changed.notify_all();
    }
}

/// The begin of a block (clang's Block Implementation Specification).
#[repr(C)]
struct Literal {
    class: *const c_void,
    flags: c_int,
    reserved: c_int,
    invoke: Work,
    descriptor: *const [usize; 2],
}

static CLASS: [usize; 4] = [0; 4];
/// Copies that live.
pub(crate) static COPIES: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn block_copy(block: *const c_void) -> *mut c_void {
    // SAFETY: a block, whose size its descriptor says.
    unsafe {
        let bytes = (*(*block.cast::<Literal>()).descriptor)[1];
        let copy = libc::malloc(bytes).cast::<u8>();
        copy.copy_from_nonoverlapping(block.cast(), bytes);
        COPIES.fetch_add(1, Ordering::Relaxed);
        copy.cast()
    }
}

unsafe extern "C" fn block_release(block: *const c_void) {
    COPIES.fetch_sub(1, Ordering::Relaxed);
    // SAFETY: a copy.
    unsafe { libc::free(block.cast_mut()) };
}

/// Those of `__block` variables: the test's blocks run while these live.
unsafe extern "C" fn block_object(_: *mut c_void, _: *const c_void, _: c_int) {}

/// As `dispatch_block_create` makes it: it has what it runs behind the block.
#[repr(C)]
struct Created {
    block: Literal,
    inner: *mut c_void,
}

unsafe extern "C-unwind" fn special(block: *mut c_void) {
    // SAFETY: one of `dispatch_block_create`.
    unsafe {
        let inner = (*block.cast::<Created>()).inner;
        ((*inner.cast::<Literal>()).invoke)(inner);
    }
}

pub(crate) unsafe extern "C" fn dispatch_block_create(
    _: usize,
    block: *const c_void,
) -> *mut c_void {
    static DESCRIPTOR: [usize; 2] = [0, size_of::<Created>()];
    let created = Created {
        block: Literal {
            class: CLASS.as_ptr().cast(),
            flags: 0,
            reserved: 0,
            invoke: special,
            descriptor: &raw const DESCRIPTOR,
        },
        inner: block.cast_mut(),
    };
    // SAFETY: a block.
    unsafe { block_copy((&raw const created).cast()) }
}

/// What runs a copied block, and gives it back: as libdispatch does.
unsafe extern "C-unwind" fn run_and_release(block: *mut c_void) {
    // SAFETY: a copy.
    unsafe {
        ((*block.cast::<Literal>()).invoke)(block);
        block_release(block);
    }
}

/// A block with this function, for calls that get it as it is.
pub(crate) fn global_block(invoke: Work) -> *mut c_void {
    static DESCRIPTOR: [usize; 2] = [0, size_of::<Literal>()];
    let block = Literal {
        class: CLASS.as_ptr().cast(),
        flags: 0,
        reserved: 0,
        invoke,
        descriptor: &raw const DESCRIPTOR,
    };
    Box::into_raw(Box::new(block)).cast()
}

unsafe extern "C" fn dispatch_async_f(queue: *mut c_void, context: *mut c_void, work: Work) {
    // SAFETY: by contract of the call.
    unsafe { Queue::at(queue) }.push(work, context, null_mut());
}

unsafe extern "C" fn dispatch_async(queue: *mut c_void, block: *const c_void) {
    // SAFETY: by contract of the call.
    unsafe { dispatch_async_f(queue, block_copy(block), run_and_release) };
}

unsafe extern "C" fn dispatch_after_f(
    when: u64,
    queue: *mut c_void,
    context: *mut c_void,
    work: Work,
) {
    assert_eq!(when, 1);
    // SAFETY: by contract of the call.
    unsafe { dispatch_async_f(queue, context, work) };
}

unsafe extern "C" fn dispatch_after(when: u64, queue: *mut c_void, block: *const c_void) {
    // SAFETY: by contract of the call.
    unsafe { dispatch_after_f(when, queue, block_copy(block), run_and_release) };
}

unsafe extern "C" fn dispatch_group_async_f(
    group: *mut c_void,
    queue: *mut c_void,
    context: *mut c_void,
    work: Work,
) {
    // SAFETY: by contract of the call.
    unsafe {
        Counter::at(group).add(1);
        Queue::at(queue).push(work, context, group);
    }
}

unsafe extern "C" fn dispatch_group_async(
    group: *mut c_void,
    queue: *mut c_void,
    block: *const c_void,
) {
    // SAFETY: by contract of the call.
    unsafe { dispatch_group_async_f(group, queue, block_copy(block), run_and_release) };
}

unsafe extern "C" fn dispatch_sync_f(queue: *mut c_void, context: *mut c_void, work: Work) {
    // SAFETY: by contract of the call; the caller waits for its context.
    unsafe {
        let queue = Queue::at(queue);
        if !queue.is_main {
            // A while until the queue is free.
            std::thread::sleep(Duration::from_millis(5));
            work(context);
            return;
        }
        struct Waited {
            work: Work,
            context: usize,
            is_done: Counter,
        }
        unsafe extern "C-unwind" fn run(waited: *mut c_void) {
            // SAFETY: its caller waits.
            unsafe {
                let waited = &*waited.cast::<Arc<Waited>>();
                let waited = Arc::clone(waited);
                (waited.work)(std::ptr::with_exposed_provenance_mut(waited.context));
                waited.is_done.add(1);
            }
        }
        let waited = Arc::new(Waited {
            work,
            context: context.expose_provenance(),
            is_done: Counter::default(),
        });
        queue.push(run, (&raw const waited).cast_mut().cast(), null_mut());
        waited.is_done.wait(u64::MAX, |value| value > 0, 0);
    }
}

unsafe extern "C" fn dispatch_sync(queue: *mut c_void, block: *mut c_void) {
    // SAFETY: by contract of the call.
    unsafe { dispatch_sync_f(queue, block, (*block.cast::<Literal>()).invoke) };
}

/// libmalloc's variable.
pub(crate) static MALLOC_LOGGER: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// `malloc_logger_t`.
type Logger = unsafe extern "C" fn(u32, usize, usize, usize, usize, u32);

fn tell(
    logger: &AtomicPtr<c_void>,
    kind: u32,
    whose: usize,
    a: usize,
    b: usize,
    result: *mut c_void,
) {
    let logger = logger.load(Ordering::Acquire);
    if !logger.is_null() {
        // SAFETY: only loggers are put there.
        unsafe {
            let logger = std::mem::transmute::<*mut c_void, Logger>(logger);
            logger(kind, whose, a, b, result.expose_provenance(), 0);
        }
    }
}

/// The zone comes first, as `stack_logging_flag_zone` says.
fn log(kind: u32, a: usize, b: usize, result: *mut c_void) {
    tell(&MALLOC_LOGGER, kind | 8, 0x1000, a, b, result);
}

unsafe extern "C" fn malloc(bytes: usize) -> *mut c_void {
    // SAFETY: as the call.
    let block = unsafe { libc::malloc(bytes) };
    log(2, bytes, 0, block);
    block
}

unsafe extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
    // SAFETY: as the call.
    let block = unsafe { libc::calloc(count, bytes) };
    log(2 | 64, count * bytes, 0, block);
    block
}

unsafe extern "C" fn realloc(old: *mut c_void, bytes: usize) -> *mut c_void {
    let before = old.expose_provenance();
    // SAFETY: as the call.
    let block = unsafe { libc::realloc(old, bytes) };
    log(2 | 4, before, bytes, block);
    block
}

unsafe extern "C" fn free(block: *mut c_void) {
    log(4, block.expose_provenance(), 0, null_mut());
    // SAFETY: as the call.
    unsafe { libc::free(block) };
}

/// libsystem_kernel's variables.
pub(crate) static SYSCALL_LOGGER: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
pub(crate) static TASK_SELF: u32 = 0x103;

/// As its callers in the shared cache do: no slot is passed.
pub(crate) fn mach_vm_allocate(task: u32, bytes: usize) -> *mut c_void {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: new memory.
    let memory = unsafe { libc::mmap(null_mut(), bytes, protection, flags, -1, 0) };
    // With a tag, `VM_MAKE_TAG(VM_MEMORY_MALLOC)`.
    tell(
        &SYSCALL_LOGGER,
        16 | 1 << 24,
        task as usize,
        bytes,
        0,
        memory,
    );
    memory
}

pub(crate) fn mach_vm_deallocate(task: u32, memory: *mut c_void, bytes: usize) {
    let address = memory.expose_provenance();
    tell(
        &SYSCALL_LOGGER,
        32,
        task as usize,
        address,
        bytes,
        null_mut(),
    );
    // SAFETY: what `mach_vm_allocate` gave.
    unsafe { libc::munmap(memory, bytes) };
}

unsafe extern "C" fn dlclose(_: *mut c_void) -> c_int {
    0
}

/// Where the last call of `dlopen_from` said that it comes from.
pub(crate) static LOADED_FROM: AtomicUsize = AtomicUsize::new(0);
/// How long initializers take, and what they allocate.
pub(crate) const INITIALIZERS: Duration = Duration::from_millis(12);
pub(crate) const INITIALIZERS_BYTES: usize = 777;
/// What a library is known by.
pub(crate) const LIBRARY: usize = 0x77;

/// It would take the hook for its caller.
unsafe extern "C" fn dlopen(_: *const c_void, _: c_int) -> *mut c_void {
    panic!("the hook does not call it");
}

unsafe extern "C" fn dlopen_from(path: *const c_void, mode: c_int, from: usize) -> *mut c_void {
    LOADED_FROM.store(from, Ordering::SeqCst);
    if !path.is_null() && mode & libc::RTLD_NOLOAD == 0 {
        std::thread::sleep(INITIALIZERS);
        // SAFETY: freed at once.
        unsafe { free(malloc(INITIALIZERS_BYTES)) };
    }
    std::ptr::without_provenance_mut(LIBRARY)
}

type Callback = unsafe extern "C" fn(*const c_void, usize, *mut c_void);

/// `CFRunLoopObserverContext`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Context {
    version: isize,
    info: *mut c_void,
    retain: Option<unsafe extern "C" fn(*const c_void) -> *const c_void>,
    release: Option<unsafe extern "C" fn(*const c_void)>,
    description: *const c_void,
}

#[derive(Clone, Copy)]
struct Observer {
    activities: usize,
    order: isize,
    callback: Callback,
    context: Context,
    /// Who has it: whoever made it, and a loop.
    references: usize,
    /// The loop that it is added to, and to which modes.
    added_to: usize,
    is_common: bool,
    /// A text with a NUL, of one more mode.
    mode: usize,
}

// SAFETY: addresses of the hooks' statics.
unsafe impl Send for Observer {}

static OBSERVERS: Mutex<Vec<Observer>> = Mutex::new(Vec::new());
/// What was retained and not released, but for observers.
static RETAINED: AtomicUsize = AtomicUsize::new(0);
static COMMON_MODES: usize = 0xc0;
const MAIN_LOOP: usize = 0xa0;

/// A thread's loop. It goes with its thread, and gives back its observers.
struct Loop {
    number: Cell<usize>,
    /// A text with a NUL.
    mode: Cell<&'static CStr>,
    /// How often it sleeps when it runs next, and how long.
    sleeps: Cell<&'static [Duration]>,
}

thread_local! {
    static LOOP: Loop = {
        static LOOPS: AtomicUsize = AtomicUsize::new(0x1000);
        Loop {
            number: Cell::new(LOOPS.fetch_add(16, Ordering::Relaxed)),
            mode: Cell::new(c""),
            sleeps: Cell::new(&[]),
        }
    };
}

impl Drop for Loop {
    fn drop(&mut self) {
        let added_to = self.number.get();
        let observers = OBSERVERS.lock().expect("not poisoned").clone();
        for (i, observer) in observers.iter().enumerate() {
            if observer.added_to == added_to && added_to != MAIN_LOOP {
                OBSERVERS.lock().expect("not poisoned")[i].added_to = 0;
                release_observer(i);
            }
        }
    }
}

fn release_observer(i: usize) {
    let mut observers = OBSERVERS.lock().expect("not poisoned");
    observers[i].references -= 1;
    let Observer {
        references,
        context,
        ..
    } = observers[i];
    drop(observers);
    if let (0, Some(release)) = (references, context.release) {
        // SAFETY: what was given with it.
        unsafe { release(context.info) };
    }
}

unsafe extern "C" fn run_loop_main() -> *const c_void {
    std::ptr::without_provenance(MAIN_LOOP)
}

unsafe extern "C" fn run_loop_current() -> *const c_void {
    std::ptr::without_provenance(LOOP.with(|own| own.number.get()))
}

unsafe extern "C" fn run_loop_mode(of: *const c_void) -> *const c_void {
    LOOP.with(|own| {
        assert_eq!(of.addr(), own.number.get());
        RETAINED.fetch_add(1, Ordering::Relaxed);
        own.mode.get().as_ptr().cast()
    })
}

unsafe extern "C" fn observer_create(
    _: *const c_void,
    activities: usize,
    repeats: u8,
    order: isize,
    callback: Callback,
    context: *const Context,
) -> *const c_void {
    // SAFETY: by contract of the call.
    let context = unsafe { *context };
    assert_eq!((repeats, context.version, context.retain), (1, 0, None));
    let mut observers = OBSERVERS.lock().expect("not poisoned");
    observers.push(Observer {
        activities,
        order,
        callback,
        context,
        references: 1,
        added_to: 0,
        is_common: false,
        mode: 0,
    });
    std::ptr::without_provenance(observers.len())
}

unsafe extern "C" fn observer_add(of: *const c_void, observer: *const c_void, mode: *const c_void) {
    let observer = &mut OBSERVERS.lock().expect("not poisoned")[observer.addr() - 1];
    assert!(
        [0, of.addr()].contains(&observer.added_to),
        "one loop has it"
    );
    observer.references += usize::from(observer.added_to == 0);
    observer.added_to = of.addr();
    match mode.addr() {
        mode if mode == COMMON_MODES => observer.is_common = true,
        _ => observer.mode = mode.expose_provenance(),
    }
}

unsafe extern "C" fn observer_remove(
    _: *const c_void,
    observer: *const c_void,
    mode: *const c_void,
) {
    assert_eq!(mode.addr(), COMMON_MODES);
    OBSERVERS.lock().expect("not poisoned")[observer.addr() - 1].added_to = 0;
    release_observer(observer.addr() - 1);
}

unsafe extern "C" fn string_get(
    text: *const c_void,
    to: *mut u8,
    room: isize,
    encoding: u32,
) -> u8 {
    assert_eq!(encoding, 0x0800_0100);
    // SAFETY: a text with a NUL, and room as it says.
    unsafe {
        let text = CStr::from_ptr(text.cast()).to_bytes_with_nul();
        if text.len() > room as usize {
            return 0;
        }
        to.copy_from_nonoverlapping(text.as_ptr(), text.len());
    }
    1
}

unsafe extern "C" fn release(what: *const c_void) {
    let observers = OBSERVERS.lock().expect("not poisoned").len();
    match what.addr() {
        observer @ 1.. if observer <= observers => release_observer(observer - 1),
        _ => _ = RETAINED.fetch_sub(1, Ordering::Relaxed),
    }
}

/// What nobody has given back.
pub(crate) fn retained() -> usize {
    let observers = OBSERVERS.lock().expect("not poisoned");
    let living = observers.iter().filter(|observer| observer.references > 0);
    RETAINED.load(Ordering::Relaxed) + living.count()
}

/// How many observers are added.
pub(crate) fn observers() -> usize {
    let observers = OBSERVERS.lock().expect("not poisoned");
    observers
        .iter()
        .filter(|observer| observer.added_to != 0)
        .count()
}

/// A mode that is none of the common ones.
pub(crate) const OWN_MODE: &CStr = c"example.own";

fn announce(activity: usize) {
    let (own, mode) = LOOP.with(|own| (own.number.get(), own.mode.get()));
    let mut observers = OBSERVERS.lock().expect("not poisoned").clone();
    observers.retain(|observer| {
        let is_of_mode = match mode == OWN_MODE {
            true => observer.mode == mode.as_ptr().addr(),
            false => observer.is_common,
        };
        observer.added_to == own && is_of_mode && observer.activities & activity != 0
    });
    observers.sort_by_key(|observer| observer.order);
    for observer in observers {
        // SAFETY: what was added, with its type.
        unsafe { (observer.callback)(null(), activity, observer.context.info) };
    }
}

fn run_loop(sleeps: &[Duration], mut work: impl FnMut()) {
    announce(1 << 0);
    for sleep in sleeps {
        announce(1 << 5);
        std::thread::sleep(*sleep);
        announce(1 << 6);
        work();
    }
    announce(1 << 7);
}

/// Runs the main loop in a mode, on the calling thread: as often as there are sleeps, sleeps and then works.
pub(crate) fn run_main_loop(mode: &'static CStr, sleeps: &[Duration], work: impl FnMut()) {
    LOOP.with(|own| {
        own.number.set(MAIN_LOOP);
        own.mode.set(mode);
    });
    run_loop(sleeps, work);
}

/// What the calling thread's loop does when it runs next.
pub(crate) fn will_sleep(sleeps: &'static [Duration]) {
    LOOP.with(|own| own.sleeps.set(sleeps));
}

fn run_in(mode: &'static CStr) {
    let sleeps = LOOP.with(|own| {
        own.mode.set(mode);
        own.sleeps.get()
    });
    run_loop(sleeps, || {});
}

const DEFAULT_MODE: &CStr = c"kCFRunLoopDefaultMode";

pub(crate) unsafe extern "C" fn run_loop_run() {
    run_in(DEFAULT_MODE);
}

unsafe extern "C" fn run_loop_run_in_mode(
    mode: *const c_void,
    time_s: f64,
    returns_early: u8,
) -> c_int {
    assert_eq!((time_s, returns_early), (2.5, 1));
    // SAFETY: a text with a NUL, which stays.
    run_in(unsafe { CStr::from_ptr(mode.cast()) });
    // `kCFRunLoopRunTimedOut`.
    3
}

/// All of it by the names in C.
pub(crate) fn functions() -> Functions {
    macro_rules! all {
        ($($name:literal = $function:expr;)*) => {
            [$(($name, ($function as *const c_void).expose_provenance() as u64)),*]
        };
    }
    let mut all = BTreeMap::from(all! {
        "thread_info" = thread_info;
        "os_unfair_lock_lock" = os_unfair_lock_lock;
        "os_unfair_lock_trylock" = os_unfair_lock_trylock;
        "os_unfair_lock_unlock" = os_unfair_lock_unlock;
        "__ulock_wait" = ulock_wait;
        "__ulock_wake" = ulock_wake;
        "os_sync_wait_on_address" = os_sync_wait_on_address;
        "os_sync_wake_by_address_all" = os_sync_wake_by_address_all;
        "objc_sync_enter" = objc_sync_enter;
        "objc_sync_try_enter" = objc_sync_try_enter;
        "objc_sync_exit" = objc_sync_exit;
        "dispatch_semaphore_wait" = dispatch_semaphore_wait;
        "dispatch_semaphore_signal" = dispatch_semaphore_signal;
        "dispatch_group_wait" = dispatch_group_wait;
        "dispatch_group_leave" = dispatch_group_leave;
        "dispatch_async" = dispatch_async;
        "dispatch_async_f" = dispatch_async_f;
        "dispatch_after" = dispatch_after;
        "dispatch_after_f" = dispatch_after_f;
        "dispatch_group_async" = dispatch_group_async;
        "dispatch_group_async_f" = dispatch_group_async_f;
        "dispatch_sync" = dispatch_sync;
        "dispatch_sync_f" = dispatch_sync_f;
        "dispatch_block_create" = dispatch_block_create;
        "_Block_copy" = block_copy;
        "_Block_release" = block_release;
        "_Block_object_assign" = block_object;
        "_Block_object_dispose" = block_object;
        "_NSConcreteGlobalBlock" = CLASS.as_ptr();
        "_NSConcreteStackBlock" = CLASS.as_ptr();
        "malloc" = malloc;
        "calloc" = calloc;
        "realloc" = realloc;
        "free" = free;
        "malloc_logger" = &raw const MALLOC_LOGGER;
        "__syscall_logger" = &raw const SYSCALL_LOGGER;
        "mach_task_self_" = &raw const TASK_SELF;
        "dlopen" = dlopen;
        "dlopen_from" = dlopen_from;
        "dlclose" = dlclose;
        "CFRunLoopGetMain" = run_loop_main;
        "CFRunLoopGetCurrent" = run_loop_current;
        "CFRunLoopRun" = run_loop_run;
        "CFRunLoopRunInMode" = run_loop_run_in_mode;
        "CFRunLoopCopyCurrentMode" = run_loop_mode;
        "kCFRunLoopCommonModes" = &raw const COMMON_MODES;
        "CFRunLoopObserverCreate" = observer_create;
        "CFRunLoopAddObserver" = observer_add;
        "CFRunLoopRemoveObserver" = observer_remove;
        "CFStringGetCString" = string_get;
        "CFRelease" = release;
    });
    for (name, function) in crate::objc::functions() {
        all.insert(name, function.expose_provenance() as u64);
    }
    all
}
