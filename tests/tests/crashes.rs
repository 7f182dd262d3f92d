//! Faults that end processes of a recording that is to tell of crashes: all die as they would alone, and each
//! death is noted.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use stackbeat_tests::{Program, compile, json_of, scratch, verbatim};

/// Starts a child for each way to die, one after the other, and says how it ended. The child's thread has the
/// way's name.
const CRASHER: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *program;
static sigjmp_buf back;

__attribute__((noinline)) static void fault(void) { *(volatile int *)8 = 1; }

static void install(int number, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigaction(number, &action, NULL);
}
static void take_stack(void) {
    stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    sigaltstack(&stack, NULL);
}
static void says(int number) {
    dprintf(1, "handled %d\n", number);
}
static void raises(int number) {
    dprintf(1, "handled %d\n", number);
    signal(number, SIG_DFL);
    raise(number);
}
static void jumps(int number) {
    dprintf(1, "handled %d\n", number);
    siglongjmp(back, 1);
}
static int deep(int level) {
    volatile char bytes[4000];
    bytes[level % 4000] = 1;
    return deep(level + 1) + bytes[level % 3000];
}
static void *in_thread(void *name) {
    prctl(PR_SET_NAME, name);
    fault();
    return NULL;
}

static void plain(void) { fault(); }
static void thread(void) {
    pthread_t one;
    prctl(PR_SET_NAME, "innocent");
    pthread_create(&one, NULL, in_thread, "thread");
    pthread_join(one, NULL);
}
static pthread_barrier_t start;
static void *at_once_with_another(void *nothing) {
    pthread_barrier_wait(&start);
    fault();
    return nothing;
}
static void both(void) {
    pthread_t one;
    pthread_barrier_init(&start, NULL, 2);
    pthread_create(&one, NULL, at_once_with_another, NULL);
    at_once_with_another(NULL);
}
static void aborts(void) { abort(); }
static void from_outside(void) { for (;;) pause(); }
static void illegal(void) { __builtin_trap(); }
static void trap(void) { raise(SIGTRAP); }
static void divides(void) { kill(getpid(), SIGFPE); }
static void executed(void) { execl(program, program, "executed", (char *)NULL); }
static void at_end(void) { atexit(fault); exit(0); }
static void by_handler(void) { install(SIGSEGV, raises, 0); fault(); }
static void at_once(void) { install(SIGSEGV, raises, SA_NODEFER); fault(); }
static void on_stack(void) { take_stack(); install(SIGSEGV, raises, SA_ONSTACK); fault(); }
static void overflow_seen(void) { take_stack(); deep(0); }
static void on_small_stack(void (*handler)(int)) {
    stack_t stack = {.ss_sp = malloc(1 << 13), .ss_size = 1 << 13};
    sigaltstack(&stack, NULL);
    install(SIGUSR1, handler, SA_ONSTACK);
    raise(SIGUSR1);
}
static void with_buffer(void (*die)(void)) {
    volatile char bytes[3000];
    bytes[0] = bytes[2999] = 0;
    die();
    bytes[1] = 0;
}
static void raises_abort(void) { raise(SIGABRT); }
static void kills(void) { kill(getpid(), SIGFPE); }
static void kills_thread(void) { pthread_kill(pthread_self(), SIGBUS); }
static void late_abort(int number) { with_buffer(abort); }
static void late_raise(int number) { with_buffer(raises_abort); }
static void late_kill(int number) { with_buffer(kills); }
static void late_kill_thread(int number) { with_buffer(kills_thread); }
static void small_abort(void) { on_small_stack(late_abort); }
static void small_raise(void) { on_small_stack(late_raise); }
static void small_kill(void) { on_small_stack(late_kill); }
static void small_thread(void) { on_small_stack(late_kill_thread); }
__attribute__((noinline)) static int calls(int (*where)(int)) {
    volatile int bytes[100] = {1};
    return where(bytes[0]) + bytes[7];
}
static int calls_through(void *where) { return calls((int (*)(int))where) + 1; }
static int data[100];
static void null_call(void) { calls_through(NULL); }
static void data_call(void) { calls_through(data); }
static void wild_call(void) { calls_through((void *)0x4141414141414141); }
static volatile int handled, arrived;
static void in_large_frame(int number) {
    volatile char bytes[400000];
    for (unsigned i = 0; i < sizeof bytes; i += 512) bytes[i] = number;
    arrived++;
}
static void counts(int number) { handled++; }
static void take_storm(int flags) {
    struct itimerval often = {{0, 50}, {0, 50}};
    install(SIGALRM, in_large_frame, flags | SA_RESTART);
    install(SIGFPE, counts, SA_RESTART);
    setitimer(ITIMER_REAL, &often, NULL);
    while (arrived < 100) usleep(10);
}
static void raises_often(int number) {
    volatile char bytes[4096];
    for (int i = 0; i < 4096; i++) bytes[i] = 1;
    for (int i = 0; i < 1000; i++) raise(SIGFPE);
    for (int i = 0; i < 4096; i++) if (bytes[i] != 1) _exit(98);
}
static void storm(void) {
    take_storm(0);
    raises_often(0);
    _exit(handled == 1000 ? 6 : 97);
}
static void storm_on_stack(void) {
    stack_t stack = {.ss_sp = malloc(1 << 20), .ss_size = 1 << 20};
    sigaltstack(&stack, NULL);
    install(SIGUSR1, raises_often, SA_ONSTACK);
    take_storm(SA_ONSTACK);
    raise(SIGUSR1);
    _exit(handled == 1000 ? 7 : 97);
}
static void storm_abort(void) {
    take_storm(0);
    abort();
}
static void not_called(void) {}
__attribute__((aligned(4096))) static int locks_itself(void) {
    void *volatile slots[8];
    for (int i = 0; i < 8; i++) slots[i] = (char *)not_called + 1;
    mprotect((void *)locks_itself, 4096, PROT_READ);
    return slots[7] != NULL;
}
__attribute__((aligned(4096))) static void locked_code(void) { if (locks_itself()) not_called(); }
static void with_flags(void) { install(SIGSEGV, SIG_DFL, SA_NODEFER); fault(); }

static void handled_once(void) { install(SIGSEGV, says, SA_RESETHAND); fault(); }
static void overflow(void) { deep(0); }
static void ignored(void) { signal(SIGSEGV, SIG_IGN); fault(); }
static void abort_ignored(void) { signal(SIGABRT, SIG_IGN); abort(); }
static void blocked(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGSEGV);
    sigprocmask(SIG_BLOCK, &set, NULL);
    fault();
}

static void goes_on(void) {
    install(SIGSEGV, jumps, SA_NODEFER);
    for (volatile int i = 0; i < 3; i++) if (sigsetjmp(back, 1) == 0) fault();
    exit(3);
}
static void survives(void) {
    signal(SIGTRAP, SIG_IGN);
    raise(SIGTRAP);
    signal(SIGFPE, says);
    raise(SIGFPE);
    exit(4);
}
static void by_vfork(void) {
    int status;
    pid_t child = vfork();
    if (child == 0) { fault(); _exit(0); }
    waitpid(child, &status, 0);
    dprintf(1, "of a vfork: %d\n", status & 0x7f);
    exit(0);
}
static void killed(void) { raise(SIGKILL); }
static void looks(void) {
    static const int all[] = {SIGSEGV, SIGABRT, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS};
    for (int i = 0; i < 7; i++) {
        struct sigaction found;
        memset(&found, 1, sizeof found);
        sigaction(all[i], NULL, &found);
        dprintf(1, "%d: %d %x", all[i], found.sa_handler == SIG_DFL, found.sa_flags);
        dprintf(1, " %d", signal(all[i], says) == SIG_DFL);
        dprintf(1, " %d", signal(all[i], SIG_DFL) == says);
        dprintf(1, " %d", sigset(all[i], SIG_IGN) == SIG_DFL);
        dprintf(1, " %d\n", signal(all[i], SIG_DFL) == SIG_IGN);
    }
    exit(0);
}

static const struct { const char *name; void (*run)(void); } ways[] = {
    {"plain", plain}, {"thread", thread}, {"both", both}, {"aborts", aborts}, {"from_outside", from_outside},
    {"illegal", illegal}, {"trap", trap}, {"divides", divides}, {"executed", executed},
    {"at_end", at_end}, {"by_handler", by_handler}, {"at_once", at_once}, {"on_stack", on_stack},
    {"overflow_seen", overflow_seen}, {"with_flags", with_flags},
    {"small_abort", small_abort}, {"small_raise", small_raise}, {"small_kill", small_kill},
    {"small_thread", small_thread}, {"null_call", null_call}, {"data_call", data_call},
    {"wild_call", wild_call}, {"locked_code", locked_code}, {"storm_abort", storm_abort},
    {"storm", storm}, {"storm_on_stack", storm_on_stack},
    {"handled_once", handled_once}, {"overflow", overflow}, {"ignored", ignored},
    {"abort_ignored", abort_ignored}, {"blocked", blocked},
    {"goes_on", goes_on}, {"survives", survives}, {"by_vfork", by_vfork}, {"killed", killed},
    {"looks", looks},
};

int main(int count, char **arguments) {
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    program = arguments[0];
    if (count > 1) {
        prctl(PR_SET_NAME, arguments[1]);
        fault();
    }
    for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
        pid_t child = fork();
        if (child == 0) {
            prctl(PR_SET_NAME, ways[i].name);
            ways[i].run();
            _exit(99);
        }
        if (ways[i].run == from_outside) {
            usleep(100000);
            kill(child, SIGBUS);
        }
        int status = 0;
        waitpid(child, &status, 0);
        dprintf(1, "%s: %x\n", ways[i].name, status);
    }
    return 5;
}
"#;

/// Without lazy binding, which needs kilobytes of its own on a handler's stack.
const FLAGS: [&str; 2] = ["-fno-inline", "-Wl,-z,now"];

/// Those whose thread and stack are known: the signal, and functions of the stack.
const SEEN: [(&str, &str, &str); 25] = [
    ("plain", "SIGSEGV", "fault"),
    ("thread", "SIGSEGV", "in_thread"),
    ("both", "SIGSEGV", "at_once_with_another"),
    ("aborts", "SIGABRT", "abort"),
    ("from_outside", "SIGBUS", "from_outside"),
    ("illegal", "SIGILL", "illegal"),
    ("trap", "SIGTRAP", "trap"),
    ("divides", "SIGFPE", "divides"),
    ("executed", "SIGSEGV", "fault"),
    ("at_end", "SIGSEGV", "fault"),
    ("by_handler", "SIGSEGV", "fault"),
    ("at_once", "SIGSEGV", "fault"),
    ("on_stack", "SIGSEGV", "fault"),
    ("overflow_seen", "SIGSEGV", "deep"),
    ("overflow", "SIGSEGV", "deep"),
    ("with_flags", "SIGSEGV", "fault"),
    ("small_abort", "SIGABRT", "abort"),
    ("small_raise", "SIGABRT", "raises_abort"),
    ("small_kill", "SIGFPE", "kills"),
    ("small_thread", "SIGBUS", "kills_thread"),
    ("null_call", "SIGSEGV", "calls calls_through null_call"),
    ("data_call", "SIGSEGV", "calls calls_through data_call"),
    ("wild_call", "SIGSEGV", "calls calls_through wild_call"),
    ("locked_code", "SIGSEGV", "locks_itself locked_code"),
    ("storm_abort", "SIGABRT", "abort storm_abort"),
];

/// Signals of those of which only the parent can tell.
const TOLD: [&str; 4] = ["SIGABRT", "SIGSEGV", "SIGSEGV", "SIGSEGV"];

/// Most dumps in these recordings.
const MOST: usize = 3;

fn options() -> Vec<String> {
    let options = "--dump-on-crash --dump-every 1ms --dump-most";
    let options = options.split(' ').map(str::to_owned);
    options.chain([MOST.to_string()]).collect()
}

/// What a trace notes of crashes, with the stacks.
#[track_caller]
fn deaths(trace: &Path) -> Vec<(String, String)> {
    let trace = trace.to_str().expect("UTF-8");
    let report = json_of(&["report", "--json", trace]);
    let events = report["events"].as_array().expect("events").iter();
    let notes = events.filter(|event| event["kind"] == "note");
    let deaths = notes.filter(|note| note["text"].to_string().contains("died of"));
    deaths
        .map(|note| {
            let text = note["text"].as_str().expect("text").to_owned();
            let stack = note.get("stack").map_or(String::new(), Value::to_string);
            (text, stack)
        })
        .collect()
}

#[test]
fn children_die_as_ever_and_their_deaths_are_noted() {
    let folder = scratch();
    let crasher = compile(folder.path(), "crasher.c", CRASHER, &FLAGS);
    let options = options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let program = Program::new([crasher.to_str().expect("UTF-8")]).options(&options);
    let recorded = program.record_and_compare(folder.path(), verbatim);
    assert_eq!(recorded.run.shell_status(), 5);
    recorded.decode().assert_sound();
    let noted = deaths(&recorded.trace);
    let mut told = Vec::new();
    let mut seen = BTreeMap::new();
    for (text, stack) in &noted {
        assert!(text.starts_with("process "), "{text}");
        let (_, death) = text.split_once("(crasher) died of ").expect(text);
        match death.split_once(" in thread ") {
            None => told.push(death),
            Some((signal, thread)) => {
                let (_, name) = thread.split_once('(').expect(thread);
                let before = seen.insert(name.trim_end_matches(')'), (signal, stack));
                assert_eq!(before, None, "{text}");
            }
        }
    }
    for (name, signal, functions) in SEEN {
        let (died_of, stack) = seen
            .remove(name)
            .unwrap_or_else(|| panic!("{name}: {noted:#?}"));
        assert_eq!(died_of, signal, "{name}");
        for function in functions.split(' ') {
            let is_there = stack.contains(&format!("\"{function}\""));
            assert!(is_there, "{name}: {function} in {stack}");
        }
    }
    assert!(seen.is_empty(), "{seen:?}");
    told.sort_unstable();
    assert_eq!(told, TOLD);

    // As many dumps as may be, each about a death that it holds.
    let dumps = (1..=MOST + 1).map(|n| folder.path().join(format!("trace.dump-{n}.beat")));
    let dumps = dumps.filter(|dump| dump.exists());
    let held: Vec<usize> = dumps.map(|dump| deaths(&dump).len()).collect();
    assert_eq!(held.len(), MOST, "{held:?}");
    assert!(held[0] >= 1 && held.is_sorted(), "{held:?}");
}

/// A child with a handler of python's own, which says where it was and puts the default back.
#[test]
fn a_child_of_python_says_where_it_crashed_and_is_dumped() {
    let script = "
import ctypes, faulthandler, multiprocessing, os
def crash():
    faulthandler.enable()
    ctypes.string_at(0)
for target in crash, os.abort:
    child = multiprocessing.get_context('fork').Process(target=target)
    child.start()
    child.join()
    print(child.exitcode)
";
    let folder = scratch();
    let options = options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let program = Program::new(["python3", "-c", script]).options(&options);
    let recorded = program.record(folder.path());
    assert_eq!(recorded.run.shell_status(), 0, "{}", recorded.run.stderr());
    assert_eq!(recorded.run.stdout(), "-11\n-6\n");
    let said = recorded.run.stderr();
    assert!(
        said.contains("Fatal Python error: Segmentation fault"),
        "{said}"
    );
    assert!(said.contains("in string_at"), "{said}");
    let dumped = deaths(&folder.path().join("trace.dump-1.beat"));
    let noted = deaths(&recorded.trace);
    assert_eq!(noted.len(), 2, "{noted:?}");
    assert_eq!(dumped[0], noted[0]);
    for ((text, stack), signal) in noted.iter().zip(["SIGSEGV", "SIGABRT"]) {
        assert!(
            text.contains(&format!("died of {signal} in thread")),
            "{text}"
        );
        assert!(stack.contains("PyEval"), "{stack}");
    }
    assert!(noted[1].1.contains("\"abort\""), "{noted:?}");
}

/// Its parent holds the child for two seconds between its abort and its death, as a large core would.
const HELD: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void burns(void) {
    clock_t begin = clock();
    while (clock() - begin < CLOCKS_PER_SEC / 3) {}
}

int main(void) {
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    pid_t child = fork();
    if (child == 0) {
        burns();
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        abort();
    }
    int status = 0;
    while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
        if (WSTOPSIG(status) == SIGABRT) sleep(2);
        ptrace(PTRACE_CONT, child, NULL, (void *)(long)WSTOPSIG(status));
    }
    printf("%d\n", status & 0x7f);
    return 0;
}
"#;

#[test]
fn a_dump_reaches_back_from_the_crash_however_long_the_death_takes() {
    let folder = scratch();
    let held = compile(folder.path(), "held.c", HELD, &["-fno-inline"]);
    let options = ["--dump-on-crash", "--dump-last", "1s"];
    let program = Program::new([held.to_str().expect("UTF-8")]).options(&options);
    let recorded = program.record(folder.path());
    assert_eq!(recorded.run.stdout(), "6\n");
    let dump = folder.path().join("trace.dump-1.beat");
    let dump = dump.to_str().expect("UTF-8");
    let report = json_of(&["report", "--json", dump]);
    assert!(
        report["functions"].to_string().contains("\"burns\""),
        "{report}"
    );
    let [(text, _)] = &deaths(Path::new(dump))[..] else {
        panic!("one death");
    };
    assert!(text.contains("died of SIGABRT"), "{text}");
}

/// The program's child outlives it by seconds: the dump shows how the program died, not what came after.
#[test]
fn the_programs_own_death_is_dumped_at_once() {
    let folder = scratch();
    let script = "
import os, time
program = os.getpid()
if os.fork() == 0:
    while os.getppid() == program: time.sleep(0.01)
    time.sleep(3)
    os._exit(0)
begin = time.process_time()
while time.process_time() - begin < 0.3: pass
os.abort()
";
    let options = ["--dump-on-crash", "--dump-last", "60s", "--mode", "ring"];
    let program = Program::new(["python3", "-c", script]).options(&options);
    let recorded = program.record(folder.path());
    let dump = folder.path().join("trace.dump-1.beat");
    let report = json_of(&["report", "--json", dump.to_str().expect("UTF-8")]);
    let ns = |of: &Value, key: &str| of[key].as_u64().expect("a number");
    // Recorded to the child's end; what is dumped ends before.
    let dumped = Duration::from_nanos(ns(&report["recording"], "duration_ns"));
    let wall = recorded.run.wall;
    assert!(dumped + Duration::from_secs(2) < wall, "{wall:?}: {report}");
    assert!(ns(&report["totals"], "cpu_ns") > 200_000_000, "{report}");
}

/// The first process of a pid namespace, as in a container: the kernel spares it what it sends itself, not a
/// fault.
const FIRST: &str = r#"
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) static void fault(void) { *(volatile int *)8 = 1; }

int main(void) {
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    if (unshare(CLONE_NEWPID) && unshare(CLONE_NEWUSER | CLONE_NEWPID)) return 77;
    for (int faults = 0; faults < 2; faults++) {
        pid_t child = fork();
        if (child == 0) {
            struct sigaction found;
            dprintf(1, "%d %d", raise(SIGABRT), kill(getpid(), SIGBUS));
            sigaction(SIGABRT, NULL, &found);
            dprintf(1, " %d\n", found.sa_handler == SIG_DFL);
            if (faults) fault();
            _exit(3);
        }
        int status = 0;
        waitpid(child, &status, 0);
        dprintf(1, "%x\n", status);
        // A namespace ends with its first process; the next child needs another one.
        if (!faults && unshare(CLONE_NEWPID) && unshare(CLONE_NEWUSER | CLONE_NEWPID)) return 77;
    }
    // Nobody but itself says that it is over: it is believed after a while.
    sleep(5);
    return 0;
}
"#;

#[test]
fn the_first_process_of_a_namespace_is_spared_and_its_crash_is_noted() {
    let folder = scratch();
    let first = compile(folder.path(), "first.c", FIRST, &["-fno-inline"]);
    let program = Program::new([first.to_str().expect("UTF-8")]).options(&["--dump-on-crash"]);
    let recorded = program.record_and_compare(folder.path(), verbatim);
    if recorded.run.shell_status() == 77 {
        eprintln!("pid namespaces are not allowed here: not tested");
        return;
    }
    assert_eq!(recorded.run.stdout(), "0 0 1\n300\n0 0 1\nb\n");
    let [(text, stack)] = &deaths(&recorded.trace)[..] else {
        panic!("one death: {:?}", deaths(&recorded.trace));
    };
    assert!(text.contains("died of SIGSEGV in thread 1 "), "{text}");
    assert!(stack.contains("\"fault\""), "{stack}");
}

/// Without the option nothing of ours looks at faults, and a child's death is its parent's business.
#[test]
fn crashes_are_left_alone_unless_somebody_wants_to_know() {
    let folder = scratch();
    let crasher = compile(folder.path(), "crasher.c", CRASHER, &FLAGS);
    let program = Program::new([crasher.to_str().expect("UTF-8")]);
    let recorded = program.record_and_compare(folder.path(), verbatim);
    assert_eq!(deaths(&recorded.trace), []);
}
