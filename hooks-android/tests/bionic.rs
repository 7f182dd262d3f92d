//! The hooks of bionic's calls, placed in the slots of libraries. glibc has the same calls.

use std::ffi::{CStr, CString, c_int, c_void};
use std::process::Command;
use std::sync::atomic::Ordering;

use stackbeat_android::backend::slots::Slots;
use stackbeat_android::backend::{HookBackend, Refusal};
use stackbeat_android::bionic;
use stackbeat_core::agent;
use stackbeat_core::platform;
use stackbeat_core::shm::layout::{CLASSES, Capacity, ThreadEntry};
use stackbeat_core::shm::mapping::Mapping;
use stackbeat_core::shm::registry;
use stackbeat_core::shm::throttle::Ticker;
use stackbeat_core::system_call::SystemCall;

use crate::library::{self, Library};

/// Calls others through slots, and says what some hold.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *volatile kept;
/* How many bytes went through a pipe, or the negative errno of a read from nowhere. */
long work(int turns) {
  int ends[2];
  long moved = 0;
  char bytes[100];
  if (pipe(ends)) return -1;
  for (int i = 0; i < turns; i++) {
    kept = malloc(1000);
    free(kept);
    pthread_mutex_lock(&lock);
    moved += write(ends[1], bytes, sizeof bytes);
    pthread_mutex_unlock(&lock);
    moved += read(ends[0], bytes, 10);
  }
  close(ends[0]);
  close(ends[1]);
  return read(-1, bytes, 1) == -1 ? moved * 1000 + errno : -2;
}
static void *thread(void *unused) {
  poll(0, 0, 1);
  return unused;
}
/* Begins threads, one after the other. */
int threads(int count) {
  pthread_t id;
  for (int i = 0; i < count; i++)
    if (pthread_create(&id, 0, thread, 0) || pthread_join(id, 0)) return -1;
  return count;
}
void *volatile slots[2];
void read_slots(void) { slots[0] = (void *)write; slots[1] = (void *)malloc; }
"#;

/// Becomes part of a session in which every call is counted.
fn session() -> Mapping {
    let path = format!("/dev/shm/stackbeat-test-bionic.{}", std::process::id());
    let path = CString::new(path).unwrap();
    let path: &CStr = &path;
    let mapping = Mapping::create(path, Capacity::default()).unwrap();
    let control = mapping.control();
    control.switch.store(1, Ordering::Relaxed);
    control.depth_limit.store(128, Ordering::Relaxed);
    control.probe_mask.store(u64::MAX, Ordering::Relaxed);
    for class in 0..CLASSES {
        control.interval_ns[class].store(1_000_000, Ordering::Relaxed);
        control.interval_cycles[class].store(1_000_000, Ordering::Relaxed);
        Ticker::default().by_cycles(control, class);
    }
    assert!(agent::init(path));
    platform::remove(path);
    mapping
}

/// What the agent counted of the calling thread: allocated bytes, written ones, read ones.
fn counted(mapping: &Mapping) -> [u64; 3] {
    let of_thread = |e: &&ThreadEntry| e.tid.load(Ordering::Relaxed) == platform::thread_id();
    let entry = registry::threads(mapping)
        .map(|(_, e)| e)
        .find(of_thread)
        .unwrap();
    let bytes = |call| {
        entry.system_calls[call as usize]
            .count
            .load(Ordering::Relaxed)
    };
    [
        entry.allocated_bytes.load(Ordering::Relaxed),
        bytes(SystemCall::BytesWritten),
        bytes(SystemCall::BytesRead),
    ]
}

const ALONE: &str = "STACKBEAT_TEST_ALONE";

/// Hooks of a whole process: other tests would be counted, too.
#[test]
fn calls_of_libraries_are_counted_while_the_hooks_are_there() {
    if std::env::var_os(ALONE).is_none() {
        let name = "bionic::calls_of_libraries_are_counted_while_the_hooks_are_there";
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture", "--test-threads=1"])
            .env(ALONE, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && said.contains("1 passed"),
            "{said}{errors}"
        );
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let now = ["-Wl,-z,now", "-fno-plt", "-fno-builtin"];
    let first = Library::open(&library::build(folder.path(), "first", SOURCE, &now));
    let work = |library: &Library| -> i64 {
        // SAFETY: the library's function.
        unsafe {
            let work: unsafe extern "C" fn(c_int) -> i64 =
                std::mem::transmute(library.address("work"));
            work(7)
        }
    };
    let slots_of = |library: &Library| -> [*mut c_void; 2] {
        // SAFETY: the library's function, and what it fills in.
        unsafe {
            let read: unsafe extern "C" fn() = std::mem::transmute(library.address("read_slots"));
            read();
            *library.address("slots").cast()
        }
    };
    const RESULT: i64 = 7 * 110 * 1000 + libc::EBADF as i64;
    let plain = slots_of(&first);
    assert_eq!(work(&first), RESULT);

    let mapping = &session();
    agent::thread_started(None, agent::Creator::UNKNOWN);
    let before = counted(mapping);
    assert_eq!(work(&first), RESULT);
    assert_eq!(counted(mapping), before, "nothing is hooked yet");

    let backend = Slots::default();
    // SAFETY: the agent is part of a session, and this process has one thread that works.
    let placed = unsafe { bionic::place(&backend) };
    let names: Vec<&str> = placed.report.placed.iter().map(|p| p.name).collect();
    for name in [
        "malloc",
        "pthread_mutex_lock",
        "write",
        "read",
        "close",
        "poll",
        "pthread_create",
    ] {
        assert!(names.contains(&name), "{name} is not among {names:?}");
    }
    // The rest is called by nobody here, or has its code in common with a function that is hooked.
    for (name, reasons) in &placed.report.refused {
        let stackbeat_android::backend::HookError::Refused { why, .. } = &reasons[0] else {
            panic!("{reasons:?}");
        };
        assert!(
            matches!(why, Refusal::NoSlots | Refusal::AlreadyHooked),
            "{name}: {why}"
        );
    }
    assert_eq!(placed.absent, [] as [&str; 0], "glibc has all of them");
    assert_ne!(slots_of(&first), plain);

    let before = counted(mapping);
    assert_eq!(work(&first), RESULT);
    let now_counted = counted(mapping);
    let new: Vec<u64> = now_counted
        .iter()
        .zip(before)
        .map(|(now, then)| now - then)
        .collect();
    assert_eq!(new, [7000, 700, 70]);

    // Threads take part from their begin to their end.
    let ended = || {
        let all = registry::threads(mapping).map(|(_, entry)| entry);
        all.filter(|e| e.end_cycles.load(Ordering::Relaxed) != 0)
            .count()
    };
    let before = ended();
    // SAFETY: the library's function.
    let threads: unsafe extern "C" fn(c_int) -> c_int =
        unsafe { std::mem::transmute(first.address("threads")) };
    // SAFETY: as above.
    assert_eq!(unsafe { threads(3) }, 3);
    assert_eq!(ended() - before, 3);

    // A library that comes later has its calls seen after a look.
    let later = library::build(folder.path(), "later", SOURCE, &now);
    let later = Library::open(&later);
    let before = counted(mapping);
    assert_eq!(work(&later), RESULT);
    assert_eq!(counted(mapping), before);
    assert!(backend.look_for_new() >= 5);
    assert_eq!(work(&later), RESULT);
    assert_eq!(counted(mapping)[1] - before[1], 700);

    // All of them go again.
    let backends: [&dyn HookBackend; 1] = [&backend];
    // SAFETY: libc stays loaded.
    let errors = unsafe { stackbeat_android::backend::remove_all(&backends, placed.report.placed) };
    assert_eq!(errors, []);
    assert_eq!((slots_of(&first), slots_of(&later)), (plain, plain));
    let before = counted(mapping);
    assert_eq!(work(&first), RESULT);
    assert_eq!(counted(mapping), before);
}

#[test]
fn a_function_that_nobody_calls_is_refused_and_stays_free() {
    static ORIGINAL: std::sync::atomic::AtomicPtr<c_void> =
        std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());
    let request = stackbeat_android::backend::Request {
        name: "mine",
        target: (a_function_that_nobody_calls_is_refused_and_stays_free as *const ())
            .cast_mut()
            .cast(),
        size: 0,
        replacement: (session as *const ()).cast_mut().cast(),
        original: &ORIGINAL,
    };
    let backend = Slots::default();
    for _ in 0..2 {
        // SAFETY: nobody calls it through a slot.
        let error = unsafe { backend.place(&request) }.unwrap_err();
        let refused = stackbeat_android::backend::HookError::Refused {
            name: "mine",
            backend: "slots",
            why: Refusal::NoSlots,
        };
        assert_eq!(error, refused);
    }
}
