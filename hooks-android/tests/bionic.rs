//! The hooks of bionic's calls, placed in the slots of libraries. glibc has the same calls.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::process::Command;
use std::sync::atomic::Ordering;

use stackbeat_android::backend::slots::Slots;
use stackbeat_android::backend::{HookBackend, Refusal};
use stackbeat_android::bionic;
use stackbeat_core::agent;
use stackbeat_core::cycles::Cycles;
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
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
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
/* Loads another library and lets it work, as a program does. */
long work_of(const char *path, int turns) {
  void *library = dlopen(path, RTLD_NOW);
  if (!library) return -1;
  long (*other)(int) = (long (*)(int))dlsym(library, "work");
  return other ? other(turns) : -2;
}
/* Resized and freed. */
void frees(int count) {
  for (int i = 0; i < count; i++) {
    kept = realloc(malloc(10), 20);
    free(kept);
    free(0);
  }
}
static int status_of(pid_t child) {
  int status;
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
/* The status of a child that becomes another program, and of one that is made as such. An exec that fails changes nothing. */
int children(void) {
  char *arguments[] = {"sh", "-c", "exit 5", 0}, *none[] = {0};
  pid_t child = fork();
  if (!child) {
    execv("/bin/sh", arguments);
    _exit(1);
  }
  int status = status_of(child);
  if (posix_spawn(&child, "/bin/sh", 0, 0, arguments, none)) return -1;
  if (execve("/nowhere", arguments, none) != -1 || errno != ENOENT) return -2;
  return status * 10 + status_of(child);
}
/* What execs give whose arguments are a list, in children that have the memory of their parent. */
#define BECOMES(...)                                                                  \
  ({                                                                                  \
    pid_t child = vfork();                                                            \
    if (!child) {                                                                     \
      kept = malloc(10);                                                              \
      free(kept);                                                                     \
      __VA_ARGS__;                                                                    \
      _exit(errno == ENOENT ? 98 : 97);                                               \
    }                                                                                 \
    status_of(child);                                                                 \
  })
int lists(void) {
  char *environment[] = {"STATUS=42", 0};
  int many = BECOMES(execl("/bin/sh", "sh", "-c", "exit $#", "", "1", "2", "3", "4", "5", "6", "7", "8", "9", (char *)0));
  int few = BECOMES(execlp("sh", "sh", "-c", "exit 3", (char *)0));
  int with = BECOMES(execle("/bin/sh", "sh", "-c", "exit $STATUS", "", "1", "2", "3", "4", "5", (char *)0, environment));
  int none = BECOMES(execl("/nowhere", "x", (char *)0));
  if (execlp("nowhere-at-all", "x", (char *)0) != -1 || errno != ENOENT) return -1;
  return many == 9 && few == 3 && with == 42 && none == 98 ? 0 : -2;
}
/* Waits and wakes by numbers, and what passes unseen. */
int raw_calls(int count) {
  int word = 0;
  char bytes[10] = {0};
  int ends[2];
  if (pipe(ends)) return -1;
  for (int i = 0; i < count; i++) {
    if (syscall(SYS_futex, &word, 129 /* FUTEX_WAKE_PRIVATE */, 1) != 0) return -2;
    if (syscall(SYS_futex, &word, 128 /* FUTEX_WAIT_PRIVATE */, 1, 0, 0, 0) != -1 || errno != EAGAIN) return -3;
    if (syscall(SYS_write, ends[1], bytes, 10l) != 10 || syscall(SYS_read, ends[0], bytes, 10l) != 10) return -4;
  }
  close(ends[0]);
  close(ends[1]);
  char *page = (char *)syscall(SYS_mmap, 0l, 4096l, 3l, 34l, -1l, 0l);
  *page = 1;
  return syscall(SYS_munmap, page, 4096l) == 0 && syscall(SYS_getpid) == getpid() ? 0 : -5;
}
/* A connection to oneself. */
int connects(void) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t bytes = sizeof address;
  struct sockaddr *at = (struct sockaddr *)&address;
  int server = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(server, at, bytes) || listen(server, 1) || getsockname(server, at, &bytes)) return -1;
  if (connect(client, at, bytes)) return -2;
  int other = accept(server, at, &bytes);
  close(other);
  close(client);
  close(server);
  return other >= 0 ? 0 : -3;
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
        control.interval_cycles[class].store(Cycles(1_000_000), Ordering::Relaxed);
        Ticker::default().by_cycles(control, class);
    }
    assert!(agent::init(path));
    platform::remove(path);
    mapping
}

/// The calling thread's.
fn own_entry(mapping: &Mapping) -> &ThreadEntry {
    let of_thread = |e: &&ThreadEntry| e.tid.load(Ordering::Relaxed) == platform::thread_id();
    let mut entries = registry::threads(mapping).map(|(_, e)| e);
    entries.find(of_thread).unwrap()
}

/// What the agent counted of the calling thread: allocated bytes, written ones, read ones.
fn counted(mapping: &Mapping) -> [u64; 3] {
    let entry = own_entry(mapping);
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

/// Four vforks, four waits, and an exec that fails.
const PROCESSES_OF_LISTS: u64 = 9;

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

    let backend: &'static Slots = Box::leak(Box::default());
    // SAFETY: the agent is part of a session, and this process has one thread that works.
    let placed = unsafe { bionic::place(backend) };
    let names: Vec<&str> = placed.report.placed.iter().map(|p| p.name).collect();
    for name in [
        "malloc",
        "pthread_mutex_lock",
        "write",
        "read",
        "close",
        "poll",
        "pthread_create",
        "free",
        "realloc",
        "connect",
        "accept",
        "fork",
        "execve",
        "posix_spawn",
        "vfork",
        "execl",
        "execle",
        "execlp",
        "syscall",
        "dlopen",
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
        all.filter(|e| e.end_cycles.load(Ordering::Relaxed) != Cycles(0))
            .count()
    };
    let before = ended();
    // SAFETY: the library's function.
    let threads: unsafe extern "C" fn(c_int) -> c_int =
        unsafe { std::mem::transmute(first.address("threads")) };
    // SAFETY: as above.
    assert_eq!(unsafe { threads(3) }, 3);
    assert_eq!(ended() - before, 3);

    // What frees, connects and makes processes.
    let call = |name| -> c_int {
        // SAFETY: the library's function, without arguments and with such a result.
        unsafe {
            let function: unsafe extern "C" fn() -> c_int =
                std::mem::transmute(first.address(name));
            function()
        }
    };
    let of_thread = || {
        let entry = own_entry(mapping);
        let count = |call| {
            entry.system_calls[call as usize]
                .count
                .load(Ordering::Relaxed)
        };
        let frees = entry.frees.load(Ordering::Relaxed);
        (frees, count(SystemCall::Socket), count(SystemCall::Process))
    };
    let before = of_thread();
    // SAFETY: as above.
    let frees: unsafe extern "C" fn(c_int) = unsafe { std::mem::transmute(first.address("frees")) };
    // SAFETY: as above.
    unsafe { frees(9) };
    assert_eq!(of_thread().0 - before.0, 18);
    assert_eq!(call("connects"), 0);
    assert_eq!(of_thread().1 - before.1, 2);
    assert_eq!(call("children"), 55);
    let now_counted = of_thread().2 - before.2;
    // fork, two waits, a spawn and an exec.
    assert_eq!(now_counted, 5);

    // vforks and their waits, and an exec in this process. What children allocate is none of this thread's.
    let before = of_thread();
    let allocated = counted(mapping)[0];
    assert_eq!(call("lists"), 0);
    assert_eq!(of_thread().2 - before.2, PROCESSES_OF_LISTS);
    assert_eq!(of_thread().0 - before.0, 0);
    assert_eq!(counted(mapping)[0], allocated);
    // SAFETY: the library's function.
    let raw_calls: unsafe extern "C" fn(c_int) -> c_int =
        unsafe { std::mem::transmute(first.address("raw_calls")) };
    let futexes = || {
        let calls = &own_entry(mapping).system_calls;
        calls[SystemCall::Futex as usize]
            .count
            .load(Ordering::Relaxed)
    };
    let (before, moved) = (futexes(), counted(mapping));
    // SAFETY: as above.
    assert_eq!(unsafe { raw_calls(5) }, 0);
    assert_eq!(futexes() - before, 10);
    let both = counted(mapping);
    assert_eq!((both[1] - moved[1], both[2] - moved[2]), (50, 50));

    // Libraries that come later have their calls seen.
    let before = counted(mapping);
    for name in ["later", "latest"] {
        let later = library::build(folder.path(), name, SOURCE, &now);
        let path = CString::new(later.to_str().unwrap()).unwrap();
        // SAFETY: the library's function.
        let result = unsafe {
            let work_of: unsafe extern "C" fn(*const c_char, c_int) -> i64 =
                std::mem::transmute(first.address("work_of"));
            work_of(path.as_ptr(), 7)
        };
        assert_eq!(result, RESULT);
    }
    assert_eq!(counted(mapping)[1] - before[1], 1400);
    assert_eq!(backend.look_for_loaded(), 0, "nothing is left");
    let later = Library::open(&folder.path().join("liblater.so"));

    // All of them go again.
    let backends: [&dyn HookBackend; 1] = [backend];
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
