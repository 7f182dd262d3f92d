//! The table of hooks in a mapped image: its code calls `read`, `malloc` and `pthread_mutex_lock` as a
//! library of macOS does, and the agent records that.

use core::ffi::{c_int, c_long, c_void};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::File;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use stackbeat_apple::posix::functions;
use stackbeat_apple::rebind::{Rebinder, Resolver};
use stackbeat_core::cycles::Cycles;
use stackbeat_core::ids::Tid;
use stackbeat_core::probe::Probe;
use stackbeat_core::shm::buffer::{self, Pool as _};
use stackbeat_core::shm::layout::Capacity;
use stackbeat_core::shm::mapping::Mapping;
use stackbeat_core::shm::record_format::{RecordKind, Sample, read_sample};
use stackbeat_core::shm::throttle::Ticker;
use stackbeat_core::{agent, clock, platform};

use crate::linkers::{LINKERS, OWN, image};
use crate::rebinding::libc_functions;
use crate::truth::truth;
use crate::world::{Mapped, map, read};

const ALONE: &str = "STACKBEAT_TEST_ALONE";

/// Whether this process is there for one test only. If not, the test has passed in one that is.
pub(crate) fn is_alone(test: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    // Emulation cannot start it again: there this test is run by its name.
    if cfg!(target_arch = "aarch64") {
        return true;
    }
    let output = Command::new(std::env::current_exe().expect("known"))
        .args(["--exact", test, "--nocapture"])
        .env(ALONE, "1")
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    assert!(said.contains("1 passed"), "there is no test {test}: {said}");
    false
}

/// libc, as dyld would find its functions.
struct Libc;

impl Resolver for Libc {
    fn by_name(&self, name: &str) -> Option<u64> {
        let name = CString::new(name).expect("no NUL");
        // SAFETY: a name.
        let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        Some(address.expose_provenance() as u64).filter(|address| *address != 0)
    }

    fn in_library(&self, _library: &[u8], name: &str) -> Option<u64> {
        self.by_name(name)
    }
}

/// A session in which every hook captures and every wait is long.
pub(crate) fn session() -> Mapping {
    let path = format!("/dev/shm/stackbeat-test-apple.{}", std::process::id());
    let path = CString::new(path).expect("no NUL");
    let mapping = Mapping::create(&path, Capacity::default()).expect("created");
    let control = mapping.control();
    control.switch.store(1, Ordering::Relaxed);
    control.depth_limit.store(128, Ordering::Relaxed);
    control.probe_mask.store(u64::MAX, Ordering::Relaxed);
    control.long_wait_cycles.store(Cycles(1), Ordering::Relaxed);
    for class in 0..control.interval_ns.len() {
        control.interval_ns[class].store(1_000, Ordering::Relaxed);
        control.interval_cycles[class].store(Cycles(1), Ordering::Relaxed);
        Ticker::default().by_cycles(control, class);
    }
    assert!(agent::init(&path));
    platform::remove(&path);
    mapping
}

/// Samples of a probe since the last call; those of others are dropped.
pub(crate) fn samples(mapping: &Mapping, probe: Probe) -> Vec<Sample> {
    let mut seen = Vec::new();
    for number in 0..mapping.count() {
        let mut words = Vec::new();
        let Some(drained) = buffer::drain(mapping, number, true, &mut words) else {
            continue;
        };
        buffer::stored(mapping, &drained);
        let mut rest = words.as_slice();
        while let Some(header) = rest.first() {
            let (record, next) = rest.split_at((header >> 8 & 0xff) as usize);
            rest = next;
            if *header as u8 == RecordKind::Sample as u8 {
                seen.push(read_sample(record[0], &record[1..]).expect("a whole record"));
            }
        }
    }
    seen.retain(|sample| sample.probe == probe as u8);
    seen
}

/// Waits until a thread sleeps in the kernel for a while without a break. Gives the cycles of the while.
///
/// One look at its state is not enough: under emulation it also sleeps for the emulator's own locks, on its
/// way.
pub(crate) fn while_it_sleeps(tid: u32) -> Cycles {
    let path = format!("/proc/self/task/{tid}/status");
    // How often it has gone to sleep, where it sleeps.
    let asleep = || {
        let status = std::fs::read_to_string(&path).expect("the thread is there");
        let of = |key| {
            let mut lines = status.lines();
            lines.find_map(|line| line.strip_prefix(key)).expect(key)
        };
        let is_asleep = of("State:").trim_start().starts_with('S');
        is_asleep.then(|| of("voluntary_ctxt_switches:").trim().to_owned())
    };
    loop {
        let before = asleep();
        let begin = clock::cycles();
        std::thread::sleep(Duration::from_millis(5));
        let cycles = clock::cycles() - begin;
        if before.is_some() && before == asleep() {
            return cycles;
        }
    }
}

/// A function of an image.
///
/// # Safety
/// `F` is the type of its address.
pub(crate) unsafe fn function<F: Copy>(mapped: &Mapped, name: &str) -> F {
    // SAFETY: a pointer to a function, by contract.
    unsafe { core::mem::transmute_copy(&mapped.function(name)) }
}

#[test]
fn names_are_listed_once_and_all_have_their_own_hook() {
    let all = functions();
    let names: BTreeSet<_> = all.iter().map(|function| function.name).collect();
    let hooks: BTreeSet<_> = all.iter().map(|function| function.hook.addr()).collect();
    assert_eq!((names.len(), hooks.len()), (all.len(), all.len()));
    assert!(all.len() > 80, "{}", all.len());
}

#[test]
fn calls_of_an_image_are_recorded() {
    if !is_alone("posix::calls_of_an_image_are_recorded") {
        return;
    }
    let rebinder = Rebinder::new(&functions(), &Libc);
    // What Linux does not have.
    let missing: BTreeSet<_> = rebinder.missing().iter().copied().collect();
    assert!(
        missing.is_superset(&BTreeSet::from([
            "kevent",
            "kevent64",
            "select$DARWIN_EXTSN"
        ])),
        "{missing:?}"
    );
    assert!(missing.len() < 10, "{missing:?}");
    let mapping = &session();
    agent::thread_started(None, agent::Creator::UNKNOWN);
    for linker in LINKERS {
        let path = image(linker, OWN);
        let mapped = &map(&read(&path), &truth(&path), &libc_functions(), false);
        // SAFETY: a mapped image; the hooks have the signatures of their functions.
        let report = unsafe { rebinder.add_image(mapped.loaded, || File::open(&path).ok(), &Libc) };
        assert!(report.expect("an image").rebound >= 10);
        // SAFETY: functions of `image.c`, with their signatures.
        let (malloc, malloc_by_pointer, free, read, lock, lock_by_pointer) = unsafe {
            type Malloc = extern "C" fn(usize) -> *mut c_void;
            type Lock = extern "C" fn(*mut c_void) -> c_int;
            (
                function::<Malloc>(mapped, "call_malloc"),
                function::<Malloc>(mapped, "call_malloc_by_pointer"),
                function::<extern "C" fn(*mut c_void) -> c_int>(mapped, "call_free_compares"),
                function::<extern "C" fn(c_int, *mut c_void, usize) -> c_long>(mapped, "call_read"),
                function::<Lock>(mapped, "call_lock"),
                function::<Lock>(mapped, "call_lock_by_pointer"),
            )
        };
        samples(mapping, Probe::Malloc);

        // Allocations: a call, and one by a pointer in data.
        assert_eq!(free(malloc(1000)), 1);
        assert_eq!(free(malloc_by_pointer(2000)), 1);
        let sizes = samples(mapping, Probe::Malloc)
            .into_iter()
            .map(|s| s.arg.map(|arg| arg.0));
        assert_eq!(
            sizes.collect::<Vec<_>>(),
            [Some(1000), Some(2000)],
            "{linker:?}"
        );

        // A wait for a pipe, as long as it lasts.
        let mut pipe = [0; 2];
        // SAFETY: room for two descriptors.
        assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
        let waited = beside(
            || {
                let mut bytes = [0u8; 64];
                assert_eq!(read(pipe[0], bytes.as_mut_ptr().cast(), bytes.len()), 5);
            },
            |tid| {
                let waited = while_it_sleeps(tid);
                // SAFETY: bytes of our own.
                let written = unsafe { libc::write(pipe[1], b"hello".as_ptr().cast(), 5) };
                assert_eq!(written, 5);
                waited
            },
        );
        let reads = samples(mapping, Probe::Read);
        assert_eq!(reads.len(), 1, "{linker:?}: {reads:?}");
        assert_eq!(reads[0].arg, Some((pipe[0] as u64, 5)));
        assert!(reads[0].duration_cycles >= waited, "{reads:?}");

        // A lock that this thread holds, and lets go of through the image.
        let mut mutex = libc::PTHREAD_MUTEX_INITIALIZER;
        let address = (&raw mut mutex).expose_provenance();
        assert_eq!(
            lock_by_pointer(core::ptr::with_exposed_provenance_mut(address)),
            0
        );
        samples(mapping, Probe::MutexLock);
        let waited = beside(
            || assert_eq!(lock(core::ptr::with_exposed_provenance_mut(address)), 0),
            |tid| {
                let waited = while_it_sleeps(tid);
                let unlock = functions()
                    .into_iter()
                    .find(|f| f.name == "pthread_mutex_unlock");
                // SAFETY: the hook has the signature of its function; this thread holds the mutex.
                let result = unsafe {
                    type Unlock = unsafe extern "C" fn(usize) -> c_int;
                    core::mem::transmute::<*const c_void, Unlock>(unlock.expect("listed").hook)(
                        address,
                    )
                };
                assert_eq!(result, 0);
                waited
            },
        );
        let locks = samples(mapping, Probe::MutexLock);
        let long: Vec<_> = locks
            .iter()
            .filter(|s| s.duration_cycles > Cycles(0))
            .collect();
        assert_eq!(long.len(), 1, "{linker:?}: {locks:?}");
        assert!(long[0].duration_cycles >= waited, "{locks:?}");
        assert_eq!(long[0].waker_tid, Some(Tid(platform::thread_id())));

        // SAFETY: the image is mapped.
        assert_eq!(unsafe { rebinder.restore() }, 0);
        assert_eq!(free(malloc(3000)), 1);
        assert!(samples(mapping, Probe::Malloc).is_empty());
    }
}

/// Runs a function in a thread of the session's, and another one with that thread's tid.
fn beside(f: impl FnOnce() + Send, then: impl FnOnce(u32) -> Cycles) -> Cycles {
    std::thread::scope(|scope| {
        let (say, tid) = std::sync::mpsc::channel();
        scope.spawn(move || {
            agent::thread_started(None, agent::Creator::UNKNOWN);
            say.send(platform::thread_id()).expect("somebody listens");
            f();
        });
        then(tid.recv().expect("the thread runs"))
    })
}

/// How long each call below lasts.
const LASTS: Duration = Duration::from_millis(3);

/// Stands for any of them.
extern "C" fn takes_a_while(_: usize, _: usize, _: usize, _: usize, _: usize, _: usize) -> c_int {
    std::thread::sleep(LASTS);
    5
}

/// The lines that only Darwin has: Linux has other functions, or none.
#[test]
fn waits_of_darwins_own_calls_are_recorded() {
    if !is_alone("posix::waits_of_darwins_own_calls_are_recorded") {
        return;
    }
    let all = functions();
    let mapping = &session();
    agent::thread_started(None, agent::Creator::UNKNOWN);
    // The probe, what it says of the call, and its result: what is left of a sleep was cut off by a signal.
    for (name, probe, arg, result) in [
        ("poll", Probe::Poll, 2, 5),
        ("select$1050", Probe::Select, 1, 5),
        ("select$DARWIN_EXTSN", Probe::Select, 1, 5),
        ("pselect$1050", Probe::Select, 1, 5),
        ("pselect$DARWIN_EXTSN", Probe::Select, 1, 5),
        ("kevent", Probe::Poll, 1, 5),
        ("kevent64", Probe::Poll, 1, 5),
        ("connect", Probe::Connect, 1, 5),
        ("accept", Probe::Accept, 1, 5),
        ("sleep", Probe::Nanosleep, 1, libc::EINTR.into()),
        ("open", Probe::Open, 0, 5),
        ("openat", Probe::Open, 1, 5),
    ] {
        let function = all.iter().find(|function| function.name == name);
        let function = function.expect(name);
        let original = takes_a_while as *mut c_void;
        function.original.store(original, Ordering::Release);
        // SAFETY: a hook that passes on words; the stand-in uses none of them.
        let returned = unsafe {
            type Call =
                unsafe extern "C-unwind" fn(usize, usize, usize, usize, usize, usize) -> c_int;
            core::mem::transmute::<*const c_void, Call>(function.hook)(1, 2, 3, 0, 0, 0)
        };
        assert_eq!(returned, 5, "{name}");
        let seen = samples(mapping, probe);
        let seen: Vec<_> = seen
            .iter()
            .map(|sample| (sample.arg, sample.duration_cycles))
            .collect();
        let [(said, lasted)] = seen[..] else {
            panic!("{name}: {seen:?}");
        };
        assert_eq!(said, Some((arg, result)), "{name}");
        assert!(lasted > Cycles(0), "{name}");
    }
}
