//! The lists of POSIX calls on a second platform: its hooks tell the agent what those of hooks-linux tell it.
#![cfg(target_os = "linux")]

mod function_table;

use core::ffi::{CStr, c_int, c_void};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::sync::atomic::Ordering;
use std::time::Duration;

use libc::{pthread_mutex_t, pthread_t, size_t, ssize_t, timespec};
use stackbeat_core::agent;
use stackbeat_core::clock;
use stackbeat_core::cycles::Cycles;
use stackbeat_core::ids::Tid;
use stackbeat_core::platform;
use stackbeat_core::probe::Probe;
use stackbeat_core::shm::layout::{CLASSES, Capacity};
use stackbeat_core::shm::mapping::Mapping;
use stackbeat_core::shm::record_format::{Sample, read_sample};
use stackbeat_core::shm::throttle::Ticker;
use stackbeat_core::system_call::SystemCall;

use super::agent::{find, own_stack, samples};
use super::alone::is_alone;
use function_table::functions;

macro_rules! bound {
    ($($field:ident: fn($($argument:ty),*) -> $result:ty = $name:literal;)*) => {
        /// What the test's program calls, bound to hooks instead of libc.
        struct Bound {
            $($field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Bound {
            fn to_hooks() -> Bound {
                // SAFETY: the hook has the signature of the function of this name.
                unsafe {
                    Bound {
                        $($field: std::mem::transmute::<
                            *const c_void,
                            unsafe extern "C" fn($($argument),*) -> $result,
                        >(hook($name)),)*
                    }
                }
            }
        }
    };
}

bound! {
    read: fn(c_int, *mut c_void, size_t) -> ssize_t = "read";
    write: fn(c_int, *const c_void, size_t) -> ssize_t = "write";
    malloc: fn(size_t) -> *mut c_void = "malloc";
    mutex_lock: fn(*mut pthread_mutex_t) -> c_int = "pthread_mutex_lock";
    mutex_unlock: fn(*mut pthread_mutex_t) -> c_int = "pthread_mutex_unlock";
    nanosleep: fn(*const timespec, *mut timespec) -> c_int = "nanosleep";
    join: fn(pthread_t, *mut *mut c_void) -> c_int = "pthread_join";
}

fn hook(name: &str) -> *const c_void {
    let function = functions().find(|f| f.name == name);
    function.expect("it is listed").hook
}

/// Puts each original in its place, as a library that rebinds symbols does.
fn find_originals() {
    for function in functions() {
        let name = CString::new(function.name).expect("no NUL");
        // SAFETY: a name.
        let original = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        assert!(!original.is_null(), "{} is not there", function.name);
        function.original.store(original, Ordering::Relaxed);
    }
}

/// A session in which every hook captures and every wait is long.
fn session() -> Mapping {
    let path = CString::new(format!(
        "/dev/shm/stackbeat-test-posix.{}",
        std::process::id()
    ));
    let path: &CStr = &path.expect("no NUL");
    let mapping = Mapping::create(path, Capacity::default()).expect("created");
    let control = mapping.control();
    control.switch.store(1, Ordering::Relaxed);
    control.depth_limit.store(128, Ordering::Relaxed);
    control.probe_mask.store(u64::MAX, Ordering::Relaxed);
    control.long_wait_cycles.store(Cycles(1), Ordering::Relaxed);
    for class in 0..CLASSES {
        control.interval_ns[class].store(1_000, Ordering::Relaxed);
        control.interval_cycles[class].store(Cycles(1), Ordering::Relaxed);
        Ticker::default().by_cycles(control, class);
    }
    assert!(agent::init(path));
    platform::remove(path);
    mapping
}

/// Those of a probe.
fn seen(all: &[Sample], probe: Probe) -> Vec<&Sample> {
    all.iter().filter(|s| s.probe == probe as u8).collect()
}

/// All samples since the last call.
fn drain(mapping: &Mapping) -> Vec<Sample> {
    let (seen, _) = samples(mapping);
    let read = seen.iter().map(|s| read_sample(s.words[0], &s.words[1..]));
    read.map(|s| s.expect("a whole record")).collect()
}

/// Waits until a thread sleeps in the kernel, and then for a while. Gives the cycles of the while.
fn while_it_sleeps(tid: u32) -> Cycles {
    let path = format!("/proc/self/task/{tid}/stat");
    let sleeps = || {
        let stat = std::fs::read_to_string(&path).expect("the thread is there");
        let (_, state) = stat.rsplit_once(") ").expect("a name");
        state.starts_with('S')
    };
    while !sleeps() {
        std::thread::yield_now();
    }
    let begin = clock::cycles();
    std::thread::sleep(Duration::from_millis(5));
    clock::cycles() - begin
}

/// Runs a function in a thread of the session's, and another one with that thread's tid once it sleeps.
fn beside(f: impl FnOnce() + Send, then: impl FnOnce(u32) -> Cycles) -> Cycles {
    std::thread::scope(|scope| {
        let (say, tid) = std::sync::mpsc::channel();
        scope.spawn(move || {
            agent::thread_started(own_stack(), agent::Creator::UNKNOWN);
            say.send(platform::thread_id()).expect("somebody listens");
            f();
        });
        then(tid.recv().expect("the thread runs"))
    })
}

#[test]
fn names_are_listed_once() {
    let names: BTreeSet<_> = functions().map(|f| f.name).collect();
    assert_eq!(names.len(), functions().count());
    assert!(names.len() > 60, "{names:?}");
}

#[test]
fn a_table_of_functions_tells_what_is_called() {
    if !is_alone("posix::a_table_of_functions_tells_what_is_called") {
        return;
    }
    find_originals();
    let bound = &Bound::to_hooks();
    let mapping = &session();
    agent::thread_started(own_stack(), agent::Creator::UNKNOWN);
    let me = find(mapping, platform::thread_id());
    drain(mapping);

    // A call that does not block, with the bytes it asks for.
    let before = me.allocated_bytes.load(Ordering::Relaxed);
    // SAFETY: an allocation, given back.
    unsafe { libc::free((bound.malloc)(1000)) };
    let all = drain(mapping);
    let mallocs = seen(&all, Probe::Malloc);
    assert_eq!(mallocs.len(), 1, "{all:?}");
    assert_eq!(mallocs[0].arg.map(|(bytes, _)| bytes), Some(1000));
    assert_eq!(me.allocated_bytes.load(Ordering::Relaxed) - before, 1000);

    // A wait for a pipe: who reads, how long, how many bytes.
    let mut pipe = [0; 2];
    // SAFETY: room for two descriptors.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    let [from, to] = pipe;
    let waited = beside(
        || {
            let mut bytes = [0u8; 64];
            // SAFETY: room for as many bytes as are said.
            let read = unsafe { (bound.read)(from, bytes.as_mut_ptr().cast(), bytes.len()) };
            assert_eq!(&bytes[..read as usize], b"hello");
            let reader = find(mapping, platform::thread_id());
            let counted = &reader.system_calls[SystemCall::BytesRead as usize].count;
            assert_eq!(counted.load(Ordering::Relaxed), 5);
        },
        |tid| {
            let waited = while_it_sleeps(tid);
            // SAFETY: bytes of our own.
            assert_eq!(unsafe { (bound.write)(to, b"hello".as_ptr().cast(), 5) }, 5);
            waited
        },
    );
    let all = drain(mapping);
    let reads = seen(&all, Probe::Read);
    assert_eq!(reads.len(), 1, "{all:?}");
    assert_eq!(reads[0].arg, Some((from as u64, 5)));
    assert!(reads[0].duration_cycles >= waited, "{all:?}");
    let writes = seen(&all, Probe::Write);
    assert_eq!(writes.len(), 1, "{all:?}");
    assert_eq!(writes[0].arg, Some((to as u64, 5)));

    // A lock that another thread holds: which, how long, and who let go of it.
    let mut mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    let lock = (&raw mut mutex).addr();
    let locked = move || {
        // SAFETY: a mutex that outlives its threads.
        assert_eq!(unsafe { (bound.mutex_lock)(lock as *mut _) }, 0);
    };
    let unlocked = move || {
        // SAFETY: as above.
        assert_eq!(unsafe { (bound.mutex_unlock)(lock as *mut _) }, 0);
    };
    locked();
    let all = drain(mapping);
    let locks = seen(&all, Probe::MutexLock);
    assert_eq!(locks.len(), 1, "{all:?}");
    assert_eq!(locks[0].duration_cycles, Cycles(0));
    let waited = beside(
        || {
            locked();
            unlocked();
        },
        |tid| {
            let waited = while_it_sleeps(tid);
            unlocked();
            waited
        },
    );
    let all = drain(mapping);
    let locks = seen(&all, Probe::MutexLock);
    let long: Vec<_> = locks
        .iter()
        .filter(|s| s.duration_cycles > Cycles(0))
        .collect();
    assert_eq!(long.len(), 1, "{all:?}");
    assert!(long[0].duration_cycles >= waited, "{all:?}");
    assert_eq!(long[0].arg.map(|(object, _)| object), Some(lock as u64));
    assert_eq!(long[0].waker_tid, Some(Tid(platform::thread_id())));
    // The other one, which ended the wait, is a record of a wake.
    assert_eq!(seen(&all, Probe::MutexUnlock).len(), 1, "{all:?}");

    // A sleep.
    let time = timespec {
        tv_sec: 0,
        tv_nsec: 1_000_000,
    };
    let begin = clock::cycles();
    // SAFETY: a time of our own.
    assert_eq!(unsafe { (bound.nanosleep)(&time, std::ptr::null_mut()) }, 0);
    let took = clock::cycles() - begin;
    let all = drain(mapping);
    let sleeps = seen(&all, Probe::Nanosleep);
    assert_eq!(sleeps.len(), 1, "{all:?}");
    assert!(
        (Cycles(1)..=took).contains(&sleeps[0].duration_cycles),
        "{all:?}"
    );

    // The end of a thread.
    extern "C" fn until_it_is_awaited(joiner: *mut c_void) -> *mut c_void {
        while_it_sleeps(joiner.addr() as u32);
        std::ptr::null_mut()
    }
    let own = std::ptr::without_provenance_mut(platform::thread_id() as usize);
    let mut thread = 0;
    // SAFETY: a thread that uses no memory of others, joined once.
    unsafe {
        let (none, result) = (std::ptr::null(), std::ptr::null_mut());
        assert_eq!(
            libc::pthread_create(&mut thread, none, until_it_is_awaited, own),
            0
        );
        assert_eq!((bound.join)(thread, result), 0);
    }
    let all = drain(mapping);
    let joins = seen(&all, Probe::ThreadJoin);
    assert_eq!(joins.len(), 1, "{all:?}");
    assert_eq!(joins[0].arg, Some((thread, 0)));
}
