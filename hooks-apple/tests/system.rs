//! Hooks of what only Apple's systems have, from calls of a mapped image to a trace: the image's slots are
//! rebound, a session of the library for apps records, and the trace is read.

use core::ffi::{c_char, c_int, c_long, c_void};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::Path;
use std::ptr::{null, null_mut, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use stackbeat_apple::rebind::Rebinder;
use stackbeat_apple::system;
use stackbeat_apple_app::own_session;
use stackbeat_core::platform;
use stackbeat_core::probe::Probe;
use stackbeat_model::{
    LongWait, Segment, SegmentKind, StackIndex, ThreadIndex, ThreadTotals, Trace, Visitor,
};
use stackbeat_proto::v1::{Event, event::Kind};

use crate::darwin::{self, Counter, Queue};
use crate::linkers::{LINKERS, Linker, OWN, image_of};
use crate::objc::{self, Object};
use crate::posix::{function, is_alone, while_it_sleeps};
use crate::truth::truth;
use crate::world::{Libraries, Mapped, map, read};

/// How long a block works.
const WORK: Duration = Duration::from_millis(30);
/// How long the loop sleeps each time.
const SLEEP: Duration = Duration::from_millis(12);
const FOREVER: u64 = u64::MAX;

static WORKED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn work(number: c_int) {
    WORKED.fetch_add(number as usize, Ordering::SeqCst);
}

extern "C" fn work_with(context: *mut c_void) {
    WORKED.fetch_add(context.addr(), Ordering::SeqCst);
}

unsafe extern "C-unwind" fn work_of_made(_: *mut c_void) {
    WORKED.fetch_add(1000, Ordering::SeqCst);
}

/// When the work of the thread that runs its own began.
static OWN_WORK_BEGAN_NS: AtomicU64 = AtomicU64::new(0);
/// When the work that somebody waits for began last.
static WORK_BEGAN_NS: AtomicU64 = AtomicU64::new(0);

extern "C" fn long_work(number: c_int) -> c_int {
    WORK_BEGAN_NS.store(platform::clock_ns(libc::CLOCK_MONOTONIC), Ordering::SeqCst);
    std::thread::sleep(WORK);
    number + 1
}

fn until_worked(sum: usize) {
    let began = Instant::now();
    while WORKED.load(Ordering::SeqCst) != sum {
        assert!(began.elapsed() < Duration::from_secs(20), "{WORKED:?}");
        std::thread::yield_now();
    }
}

/// A thread with a name that has something to do.
fn thread(name: &str, run: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name(name.to_owned());
        builder.spawn_scoped(scope, run).expect("a thread");
    });
}

/// One thread waits; once it sleeps, another one ends its wait.
fn wait_and_wake(name: &str, wait: impl FnOnce() + Send, wake: impl FnOnce() + Send) {
    let tid = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let waits = || {
            tid.store(platform::thread_id(), Ordering::SeqCst);
            wait();
        };
        let wakes = || {
            while tid.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            while_it_sleeps(tid.load(Ordering::SeqCst));
            wake();
        };
        let named = |name: String| std::thread::Builder::new().name(name);
        named(format!("{name} waits"))
            .spawn_scoped(scope, waits)
            .expect("a thread");
        named(format!("{name} ends"))
            .spawn_scoped(scope, wakes)
            .expect("a thread");
    });
}

/// The same for locks: the one that wakes has it first.
fn contend(
    name: &str,
    image: &Mapped,
    lock: &'static str,
    unlock: &'static str,
    word: &'static AtomicU32,
) {
    let address = word.as_ptr().expose_provenance();
    type Call = extern "C" fn(*mut c_void) -> c_int;
    // SAFETY: functions of `system.c`; what they return is not looked at.
    let (lock, unlock) = unsafe {
        (
            function::<Call>(image, lock),
            function::<Call>(image, unlock),
        )
    };
    let at = move || with_exposed_provenance_mut::<c_void>(address);
    let (has_it, tid) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        let owns = || {
            lock(at());
            has_it.store(1, Ordering::SeqCst);
            while tid.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            while_it_sleeps(tid.load(Ordering::SeqCst));
            unlock(at());
        };
        let waits = || {
            while has_it.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            tid.store(platform::thread_id(), Ordering::SeqCst);
            lock(at());
            unlock(at());
        };
        let named = |name: String| std::thread::Builder::new().name(name);
        named(format!("{name} ends"))
            .spawn_scoped(scope, owns)
            .expect("a thread");
        named(format!("{name} waits"))
            .spawn_scoped(scope, waits)
            .expect("a thread");
    });
}

/// Loads a library, and asks for one.
fn load(image: &Mapped) {
    // SAFETY: the function of `system.c`.
    let open = unsafe {
        type Open = extern "C" fn(*const c_char, c_int) -> *mut c_void;
        function::<Open>(image, "call_dlopen")
    };
    let begin = image.function("call_dlopen").addr();
    let is_caller = move |from: usize| (begin + 1..begin + 100).contains(&from);
    let paths = [c"@rpath/Kitchen.framework/Kitchen".as_ptr(), null()];
    let paths = paths.map(|path| path.expose_provenance());
    thread("loads", || {
        for (path, mode) in [
            (paths[0], libc::RTLD_NOW),
            (paths[0], libc::RTLD_NOLOAD),
            (paths[1], libc::RTLD_NOW),
        ] {
            let path = std::ptr::with_exposed_provenance(path);
            assert_eq!(open(path, mode).addr(), darwin::LIBRARY);
            let from = darwin::LOADED_FROM.swap(0, Ordering::SeqCst);
            assert!(is_caller(from), "{from:x}");
        }
    });
}

/// Loops of other threads than the main one.
fn run_other_loops(image: &Mapped) {
    // SAFETY: functions of `system.c`, with their signatures.
    let (run, run_in_mode) = unsafe {
        (
            function::<extern "C" fn()>(image, "call_run"),
            function::<extern "C" fn(*const c_char) -> c_int>(image, "call_run_in_mode"),
        )
    };
    // By a slot; twice, with one pair of observers.
    thread("other loop", || {
        let before = darwin::observers();
        for _ in 0..2 {
            darwin::will_sleep(&[SLEEP; 1]);
            run();
        }
        assert_eq!(darwin::observers(), before + 2);
    });
    // In a mode that is none of the common ones.
    thread("own mode", || {
        darwin::will_sleep(&[SLEEP; 2]);
        assert_eq!(run_in_mode(darwin::OWN_MODE.as_ptr()), 3);
    });
    // By a method, which passes no slot.
    thread("by a method", || {
        darwin::will_sleep(&[SLEEP; 1]);
        objc::send(Object::new("NSRunLoop"), c"run");
    });
}

/// What the recorded process does.
fn record(output: &Path, linker: Linker) {
    let functions = darwin::functions();
    let find = {
        let functions = functions.clone();
        move |name: &str| functions.get(name).copied()
    };
    let replacements = system::prepare(&find);
    // libmalloc tells of allocations itself.
    assert!(
        replacements
            .iter()
            .all(|r| !["malloc", "free", "realloc"].contains(&r.name))
    );
    let libraries = Libraries(functions.clone());
    let rebinder = Rebinder::new(&replacements, &libraries);
    let path = image_of("system", linker, OWN);
    let image = &map(&read(&path), &truth(&path), &functions, false);
    let before = (image.slots(), objc::implementations());
    // SAFETY: a mapped image; the hooks have the signatures of their functions.
    let report = unsafe { rebinder.add_image(image.loaded, || File::open(&path).ok(), &libraries) };
    let report = report.expect("an image");
    assert!(report.rebound == 22 && report.elsewhere == 0, "{report:?}");

    let text = format!(r#"{{"output":{output:?},"overwrite":true,"symbolize":true}}"#);
    let wanted = stackbeat_collector::embedded::Wanted::from_text(&text).expect("in order");
    own_session::start(wanted, None).expect("it begins");
    // SAFETY: what was found stays.
    unsafe { system::place() };
    for line in system::lines(&rebinder, 0) {
        stackbeat_core::agent::say(line.as_bytes());
    }
    assert_eq!(darwin::observers(), 2);
    assert!(!darwin::MALLOC_LOGGER.load(Ordering::SeqCst).is_null());

    use_locks_and_words(image);
    use_semaphores_and_groups(image);
    use_locks_of_foundation();
    use_queues(image);
    // SAFETY: functions of `system.c`; the stand-in does not look at the handle.
    let (allocate, close) = unsafe {
        (
            function::<extern "C" fn()>(image, "call_allocations"),
            function::<extern "C" fn(*mut c_void) -> c_int>(image, "call_dlclose"),
        )
    };
    thread("allocates", || allocate());
    load(image);
    thread("unloads", || assert_eq!(close(null_mut()), 0));
    thread("loop", || {
        let iterations = [SLEEP; 3];
        darwin::run_main_loop(c"kCFRunLoopDefaultMode", &iterations, || {
            std::thread::sleep(SLEEP / 2)
        });
        darwin::run_main_loop(c"UITrackingRunLoopMode", &iterations[..1], || {});
    });

    run_other_loops(image);

    // SAFETY: as above.
    unsafe {
        system::take_away();
        assert_eq!(rebinder.restore(), 0);
    }
    own_session::stop().expect("it ends");
    assert_eq!((image.slots(), objc::implementations()), before);
    for logger in [&darwin::MALLOC_LOGGER, &darwin::SYSCALL_LOGGER] {
        assert!(logger.load(Ordering::SeqCst).is_null());
    }
    assert_eq!((darwin::observers(), darwin::retained()), (0, 0));
    let began = Instant::now();
    while darwin::COPIES.load(Ordering::SeqCst) != 1 {
        // That of `dispatch_block_create`, which the test keeps.
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "{:?}",
            darwin::COPIES
        );
        std::thread::yield_now();
    }
}

fn use_locks_and_words(image: &Mapped) {
    static WORDS: [AtomicU32; 4] = [const { AtomicU32::new(0) }; 4];
    let [lock, object, first, second] = &WORDS;
    WORDS
        .iter()
        .for_each(|word| word.store(0, Ordering::SeqCst));
    contend("unfair", image, "call_lock", "call_unlock", lock);
    contend("objc", image, "call_enter", "call_exit", object);
    // SAFETY: functions of `system.c`, with their signatures.
    let (trylock, unlock, ulock_wait, ulock_wake, wait, wake) = unsafe {
        type One = extern "C" fn(*mut AtomicU32) -> c_int;
        type Two = extern "C" fn(*mut AtomicU32, u64) -> c_int;
        (
            function::<One>(image, "call_trylock"),
            function::<extern "C" fn(*mut AtomicU32)>(image, "call_unlock"),
            function::<Two>(image, "call_ulock_wait"),
            function::<One>(image, "call_ulock_wake"),
            function::<Two>(image, "call_wait_on_address"),
            function::<One>(image, "call_wake_all"),
        )
    };
    let of = |word: &'static AtomicU32| (&raw const *word).cast_mut();
    assert_eq!(trylock(of(lock)), 1);
    assert_eq!(trylock(of(lock)), 0);
    unlock(of(lock));
    wait_and_wake(
        "ulock",
        || assert_eq!(ulock_wait(of(first), 0), 2),
        || {
            first.store(1, Ordering::SeqCst);
            assert_eq!(ulock_wake(of(first)), 0);
        },
    );
    wait_and_wake(
        "address",
        || assert_eq!(wait(of(second), 0), 0),
        || {
            second.store(1, Ordering::SeqCst);
            assert_eq!(wake(of(second)), 0);
        },
    );
}

/// One thread has a lock until another one waits for it.
fn contend_for(
    name: &str,
    take: impl Fn() + Sync,
    wait: impl FnOnce() + Send,
    let_go: impl Fn() + Sync,
) {
    let (has_it, tid) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        let owns = || {
            take();
            has_it.store(1, Ordering::SeqCst);
            while tid.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            while_it_sleeps(tid.load(Ordering::SeqCst));
            let_go();
        };
        let (has_it, tid) = (&has_it, &tid);
        let waits = move || {
            while has_it.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            tid.store(platform::thread_id(), Ordering::SeqCst);
            wait();
        };
        let named = |name: String| std::thread::Builder::new().name(name);
        named(format!("{name} ends"))
            .spawn_scoped(scope, owns)
            .expect("a thread");
        named(format!("{name} waits"))
            .spawn_scoped(scope, waits)
            .expect("a thread");
    });
}

/// Calls of methods, which pass no slot.
fn use_locks_of_foundation() {
    // Two of Foundation's locks, taken as often as it is let go of.
    for (name, class, times) in [("lock", "NSLock", 1), ("again", "NSRecursiveLock", 2)] {
        let lock = Object::new(class);
        contend_for(
            name,
            || (0..times).for_each(|_| objc::send(lock, c"lock")),
            || {
                objc::send(lock, c"lock");
                objc::send(lock, c"unlock");
            },
            || (0..times).for_each(|_| objc::send(lock, c"unlock")),
        );
        // It is free.
        assert_eq!(objc::send_with(lock, c"tryLock", 0), 1);
        thread(&format!("{name} in time"), || {
            let date = 5_000_000_u64;
            let date = (&raw const date).expose_provenance();
            assert_eq!(objc::send_with(lock, c"lockBeforeDate:", date), 0);
        });
        objc::send(lock, c"unlock");
    }
    // Freed while it is held, and another one at its address: whoever had the first one does not have it.
    let lock = Object::new("NSLock");
    objc::send(lock, c"lock");
    objc::send(lock, c"dealloc");
    contend_for(
        "freed",
        || lock.take_unseen(),
        || {
            objc::send(lock, c"lock");
            objc::send(lock, c"unlock");
        },
        || objc::send(lock, c"unlock"),
    );
    let condition = Object::new("NSCondition");
    wait_and_wake(
        "condition",
        || {
            objc::send(condition, c"lock");
            objc::send(condition, c"wait");
            objc::send(condition, c"unlock");
        },
        || {
            objc::send(condition, c"lock");
            objc::send(condition, c"signal");
            objc::send(condition, c"unlock");
        },
    );
    let conditional = Object::new("NSConditionLock");
    wait_and_wake(
        "when",
        || {
            objc::send_with(conditional, c"lockWhenCondition:", 3);
            objc::send(conditional, c"unlock");
        },
        || {
            objc::send(conditional, c"lock");
            objc::send_with(conditional, c"unlockWithCondition:", 3);
        },
    );
    contend_for(
        "made of",
        || objc::send(conditional, c"lock"),
        || {
            objc::send_with(conditional, c"lockWhenCondition:", 7);
            objc::send(conditional, c"unlock");
        },
        || _ = objc::send_with(conditional, c"unlockWithCondition:", 7),
    );
}

fn use_semaphores_and_groups(image: &Mapped) {
    // SAFETY: functions of `system.c`, with their signatures.
    let (wait, signal, group_wait, leave) = unsafe {
        type Timed = extern "C" fn(*mut c_void, u64) -> c_long;
        type One = extern "C" fn(*mut c_void) -> c_long;
        (
            function::<Timed>(image, "call_semaphore_wait"),
            function::<One>(image, "call_semaphore_signal"),
            function::<Timed>(image, "call_group_wait"),
            function::<extern "C" fn(*mut c_void)>(image, "call_group_leave"),
        )
    };
    let (semaphore, group) = (Counter::new(1), Counter::new(2));
    // What is there is taken, and what is not is not waited for.
    assert_eq!(wait(semaphore.address(), FOREVER), 0);
    assert_eq!(wait(semaphore.address(), 0), 1);
    thread("times out", || {
        assert_eq!(wait(semaphore.address(), 5_000_000), 1);
    });
    wait_and_wake(
        "semaphore",
        || {
            // SAFETY: the calling thread's.
            unsafe { *libc::__errno_location() = 0 };
            assert_eq!(wait(semaphore.address(), FOREVER), 0);
            // The hook has tried first, which the program does not see.
            assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(0));
        },
        || assert_eq!(signal(semaphore.address()), 0),
    );
    // Two leave; the second one ends the wait.
    thread("leaves first", || leave(group.address()));
    wait_and_wake(
        "group",
        || assert_eq!(group_wait(group.address(), FOREVER), 0),
        || leave(group.address()),
    );
}

fn use_queues(image: &Mapped) {
    type Submit = extern "C" fn(*mut c_void, extern "C" fn(c_int), c_int);
    // SAFETY: functions of `system.c`, with their signatures.
    let (submit, submit_f, after, of_group, sync, as_it_is, group_wait) = unsafe {
        type InGroup = extern "C" fn(*mut c_void, *mut c_void, extern "C" fn(c_int), c_int);
        type Sync = extern "C" fn(*mut c_void, extern "C" fn(c_int) -> c_int, c_int) -> c_int;
        type WithContext = extern "C" fn(*mut c_void, *mut c_void, extern "C" fn(*mut c_void));
        (
            function::<Submit>(image, "call_async"),
            function::<WithContext>(image, "call_async_f"),
            function::<Submit>(image, "call_after"),
            function::<InGroup>(image, "call_group_async"),
            function::<Sync>(image, "call_sync"),
            function::<extern "C" fn(*mut c_void, *mut c_void)>(image, "call_async_as_it_is"),
            function::<extern "C" fn(*mut c_void, u64) -> c_long>(image, "call_group_wait"),
        )
    };
    let (queue, main) = (Queue::new("queue", false), Queue::new("main queue", true));
    thread("submits", || {
        submit(queue.address(), work, 1);
        submit_f(
            queue.address(),
            std::ptr::without_provenance_mut(10),
            work_with,
        );
        after(queue.address(), work, 100);
    });
    until_worked(111);
    let group = Counter::new(0);
    static JOINS: AtomicU32 = AtomicU32::new(0);
    JOINS.store(0, Ordering::SeqCst);
    thread("joins", || {
        extern "C" fn work_while_it_sleeps(number: c_int) {
            while JOINS.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            while_it_sleeps(JOINS.load(Ordering::SeqCst));
            work(number);
        }
        of_group(group.address(), queue.address(), work_while_it_sleeps, 1);
        JOINS.store(platform::thread_id(), Ordering::SeqCst);
        assert_eq!(group_wait(group.address(), FOREVER), 0);
    });
    until_worked(112);
    thread("runs itself", || {
        assert_eq!(sync(queue.address(), long_work, 6), 7);
        OWN_WORK_BEGAN_NS.store(WORK_BEGAN_NS.load(Ordering::SeqCst), Ordering::SeqCst);
    });
    thread("lets run", || {
        assert_eq!(sync(main.address(), long_work, 8), 9)
    });
    // SAFETY: a block.
    let made = unsafe { darwin::dispatch_block_create(0, darwin::global_block(work_of_made)) };
    let made = made.expose_provenance();
    thread("hands over", || {
        as_it_is(queue.address(), with_exposed_provenance_mut(made))
    });
    until_worked(1112);
    // So many that all records are in use once, and are used again.
    thread("submits many", || {
        for _ in 0..10_000 {
            submit(queue.address(), work, 1);
        }
    });
    until_worked(11_112);
}

#[derive(Default)]
struct Seen {
    waits: Vec<LongWait>,
    /// Events by thread.
    events: Vec<(String, Kind, String, i64, u64)>,
    blocked: Vec<(String, Probe, u64)>,
    totals: HashMap<String, ThreadTotals>,
    /// Handing over, by the thread that does.
    handed_over: BTreeMap<String, usize>,
}

impl Visitor for Seen {
    fn segment(&mut self, trace: &Trace, segment: &Segment) {
        if let SegmentKind::Blocked(probe) = segment.kind
            && let Some(probe) = probe.known()
        {
            let name = trace.thread(segment.thread).name.clone();
            self.blocked.push((name, probe, segment.wall_ns()));
        }
    }

    fn sample(
        &mut self,
        trace: &Trace,
        thread: ThreadIndex,
        row: &stackbeat_model::SampleRow,
        stack: StackIndex,
    ) {
        if row.probe == Probe::DispatchAsync as u8 && !trace.stack_frames(stack).is_empty() {
            *self
                .handed_over
                .entry(trace.thread(thread).name.clone())
                .or_default() += 1;
        }
    }

    fn event(&mut self, trace: &Trace, thread: Option<ThreadIndex>, event: &Event, _: StackIndex) {
        if let Some(thread) = thread {
            let name = trace.thread(thread).name.clone();
            self.events.push((
                name,
                event.kind(),
                event.name.clone(),
                event.value,
                event.time_ns,
            ));
        }
    }

    fn long_wait(&mut self, _: &Trace, wait: &LongWait) {
        self.waits.push(*wait);
    }

    fn thread_end(&mut self, trace: &Trace, thread: ThreadIndex, totals: &ThreadTotals) {
        self.totals
            .insert(trace.thread(thread).name.clone(), *totals);
    }
}

fn check(path: &Path) {
    let trace = Trace::open(path).expect("a trace");
    assert!(trace.footer().is_some() && trace.damage().is_empty());
    let mut seen = Seen::default();
    trace.visit(&mut seen).expect("it can be read");
    check_hooks(&trace.processes()[0].capabilities);
    check_waits(&trace, &seen);
    check_flows(&seen);
    check_turns(&seen);
    check_load(&seen);
    let totals = seen.totals["allocates"].metrics;
    let counted = (totals.allocations, totals.allocated_bytes, totals.frees);
    assert_eq!(counted, (3, 100 + 120 + 1000, 3));
}

/// What the trace says of its hooks.
fn check_hooks(said: &[String]) {
    let one = |begin: &str| {
        let line = said.iter().find(|line| line.starts_with(begin));
        line.unwrap_or_else(|| panic!("{begin}: {said:?}"))
    };
    assert!(one("apple: ").ends_with(" hooks in place"), "{said:?}");
    let by_slots = one("apple, by slots: ");
    for name in ["os_unfair_lock_lock", "objc_sync_enter", "dispatch_async"] {
        assert!(by_slots.contains(name), "{by_slots}");
    }
    // The image does not call it, and the stand-ins do not have it.
    let read = "apple, not available: this system does not have ";
    assert!(one(read).contains("preadv"), "{said:?}");
    assert!(!by_slots.contains("preadv"), "{said:?}");
    one("apple, by malloc_logger: all allocations");
    one("apple, by __syscall_logger: memory that is mapped");
    let methods = one("apple, by methods: ");
    for method in ["-[NSLock lock], ", "-[NSLock dealloc], "] {
        assert!(methods.contains(method), "{methods}");
    }
    let missing = one("apple, not available: -[");
    assert!(
        missing.contains("-[NSRecursiveLock lockBeforeDate:], "),
        "{missing}"
    );
    one("apple, by observers: iterations of run loops");
    one("apple, not seen: calls inside the dyld shared cache");
}

fn check_waits(trace: &Trace, seen: &Seen) {
    let name = |thread: Option<ThreadIndex>| {
        thread.map_or("", |thread| trace.thread(thread).name.as_str())
    };
    let of = |thread: &str, probe: Probe| -> Vec<&LongWait> {
        let is_it = |wait: &&LongWait| {
            name(Some(wait.thread)) == thread && wait.probe.known() == Some(probe)
        };
        seen.waits.iter().filter(is_it).collect()
    };
    // Who waited in which call, who had it, who ended the wait.
    let expected = [
        (
            "unfair waits",
            Probe::UnfairLock,
            "unfair ends",
            "unfair ends",
        ),
        ("objc waits", Probe::MonitorEnter, "", "objc ends"),
        ("ulock waits", Probe::AddressWait, "", "ulock ends"),
        ("address waits", Probe::AddressWait, "", "address ends"),
        (
            "semaphore waits",
            Probe::DispatchSemaphoreWait,
            "",
            "semaphore ends",
        ),
        ("group waits", Probe::DispatchGroupWait, "", "group ends"),
        ("lock waits", Probe::ObjectLock, "lock ends", "lock ends"),
        ("again waits", Probe::ObjectLock, "again ends", "again ends"),
        ("freed waits", Probe::ObjectLock, "", "freed ends"),
        ("condition waits", Probe::ObjectWait, "", "condition ends"),
        // Not what it is made of, too.
        ("when waits", Probe::ObjectLock, "", "when ends"),
        (
            "made of waits",
            Probe::ObjectLock,
            "made of ends",
            "made of ends",
        ),
        ("joins", Probe::DispatchGroupWait, "", "queue"),
        ("lets run", Probe::DispatchSync, "", "main queue"),
    ];
    for (thread, probe, owner, waker) in expected {
        let waits = of(thread, probe);
        assert_eq!(waits.len(), 1, "{thread}: {waits:?}");
        let wait = waits[0];
        assert!(wait.succeeded(), "{thread}: {wait:?}");
        assert_eq!(
            (name(wait.owner), name(wait.waker)),
            (owner, waker),
            "{thread}"
        );
        // They sleep for 5 ms before somebody comes.
        assert!(wait.wall_ns() > 4_000_000, "{thread}: {wait:?}");
        let wake = wait.wake.expect("its other half");
        assert!(wait.begin_ns <= wake.time_ns, "{thread}: {wait:?}");
    }
    assert!(of("lets run", Probe::DispatchSync)[0].wall_ns() >= WORK.as_nanos() as u64);
    // The time is over: nobody has ended it.
    let timed_out = of("times out", Probe::DispatchSemaphoreWait);
    assert!(
        timed_out[0].waker.is_none() && !timed_out[0].succeeded(),
        "{timed_out:?}"
    );
    let timed_out = of("lock in time", Probe::ObjectLock);
    assert!(
        timed_out[0].waker.is_none() && !timed_out[0].succeeded(),
        "{timed_out:?}"
    );
    // A method of a superclass is nobody's to replace.
    assert!(of("again in time", Probe::ObjectLock).is_empty());
    assert!(of("when waits", Probe::ObjectWait).is_empty());
    // Until the work begins, and not while it runs.
    let itself = of("runs itself", Probe::DispatchSync);
    assert_eq!(itself.len(), 1, "{itself:?}");
    let began_ns = OWN_WORK_BEGAN_NS.load(Ordering::SeqCst);
    // Times of the trace are converted ones.
    let ends_ns = began_ns - 10_000_000..began_ns + 2_000_000;
    assert!(itself[0].wall_ns() >= 4_000_000, "{itself:?}");
    assert!(ends_ns.contains(&itself[0].end_ns), "{itself:?} {began_ns}");
}

/// One scope, as long as the initializers, and what they allocate.
fn check_load(seen: &Seen) {
    let scopes = seen.events.iter().filter(|event| event.0 == "loads");
    let scopes: Vec<_> = scopes.collect();
    let kinds: Vec<_> = scopes
        .iter()
        .map(|event| (event.1, event.2.as_str()))
        .collect();
    let name = "dlopen Kitchen";
    assert_eq!(
        kinds,
        [(Kind::ScopeBegin, name), (Kind::ScopeEnd, name)],
        "{scopes:?}"
    );
    let took = Duration::from_nanos(scopes[1].4 - scopes[0].4);
    assert!(took >= darwin::INITIALIZERS, "{took:?}");
    let totals = seen.totals["loads"].metrics;
    let allocated = (totals.allocations, totals.allocated_bytes);
    assert_eq!(allocated, (1, darwin::INITIALIZERS_BYTES as u64));
}

fn check_flows(seen: &Seen) {
    let of = |kind: Kind| {
        let events = seen.events.iter().filter(move |event| event.1 == kind);
        events.map(|(thread, _, name, flow, time)| (*flow, (thread.as_str(), name.as_str(), *time)))
    };
    let begins: BTreeMap<i64, _> = of(Kind::FlowBegin).collect();
    let ends: BTreeMap<i64, _> = of(Kind::FlowEnd).collect();
    let mut ways: BTreeMap<(&str, &str, &str), usize> = BTreeMap::new();
    for (flow, (from, name, began)) in &begins {
        let (to, end_name, ended) = ends.get(flow).expect("it ends");
        assert_eq!(name, end_name);
        assert!(began <= ended, "{name} {began} {ended}");
        *ways.entry((from, name, to)).or_default() += 1;
    }
    assert_eq!(begins.len(), ends.len());
    let many = ways.remove(&("submits many", "dispatch_async", "queue"));
    assert!(many.is_some_and(|many| many >= 1000), "{many:?}");
    let expected = [
        (("joins", "dispatch_group_async", "queue"), 1),
        (("submits", "dispatch_after", "queue"), 1),
        (("submits", "dispatch_async", "queue"), 2),
    ];
    // What `dispatch_block_create` has made is handed over as it is.
    assert_eq!(ways, BTreeMap::from(expected));
    // With the stacks of who hands over.
    assert_eq!(
        seen.handed_over.get("submits"),
        Some(&3),
        "{:?}",
        seen.handed_over
    );
}

fn check_turns(seen: &Seen) {
    let of = |kind: Kind| {
        let events = seen.events.iter().filter(move |event| event.1 == kind);
        events.map(|(thread, _, name, number, time)| {
            (*number, (thread.as_str(), name.as_str(), *time))
        })
    };
    let begins: BTreeMap<i64, _> = of(Kind::AsyncBegin).collect();
    let ends: BTreeMap<i64, _> = of(Kind::AsyncEnd).collect();
    // Each iteration has a number of its own: all threads count together.
    assert_eq!(begins.len(), of(Kind::AsyncBegin).count());
    let mut iterations: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (number, (thread, name, began)) in &begins {
        let (end_thread, end_name, ended) = ends[number];
        assert_eq!(
            (*thread, *name, *began <= ended),
            (end_thread, end_name, true)
        );
        iterations.entry(thread).or_default().push(name);
    }
    // One before the first sleep, and one after each.
    let [default, tracking, own] = [
        "run loop kCFRunLoopDefaultMode",
        "run loop UITrackingRunLoopMode",
        "run loop example.own",
    ];
    let expected = [
        (
            "loop",
            vec![default, default, default, default, tracking, tracking],
        ),
        ("other loop", vec![default; 4]),
        ("own mode", vec![own; 3]),
        ("by a method", vec![default; 2]),
    ];
    assert_eq!(iterations, BTreeMap::from(expected));
    let mut slept: BTreeMap<&str, usize> = BTreeMap::new();
    for (thread, probe, wall_ns) in &seen.blocked {
        if *probe == Probe::RunLoopWait {
            assert!(*wall_ns >= SLEEP.as_nanos() as u64, "{thread}: {wall_ns}");
            *slept.entry(thread).or_default() += 1;
        }
    }
    let expected = [
        ("loop", 4),
        ("other loop", 2),
        ("own mode", 2),
        ("by a method", 1),
    ];
    assert_eq!(slept, BTreeMap::from(expected));
}

#[test]
fn calls_become_waits_flows_and_iterations_in_a_trace() {
    if !is_alone("system::calls_become_waits_flows_and_iterations_in_a_trace") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for linker in LINKERS {
        WORKED.store(0, Ordering::SeqCst);
        darwin::COPIES.store(0, Ordering::SeqCst);
        let output = folder.path().join(format!("{linker:?}.beat"));
        record(&output, linker);
        check(&output);
        // Emulation has neither the tool nor the viewer.
        #[cfg(target_arch = "x86_64")]
        crate::perfetto::check(&output);
        if let Some(kept) = std::env::var_os("STACKBEAT_KEEP_TRACE") {
            std::fs::copy(&output, kept).expect("copied");
        }
    }
}
