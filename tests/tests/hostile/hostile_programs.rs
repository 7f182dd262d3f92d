//! Programs that do to themselves what breaks tracers: they close descriptors, replace signal handlers,
//! leave without saying so, exec, daemonize, limit resources or start very many threads.

use stackbeat_core::probe::Probe;
use stackbeat_proto::columns::SampleRow;
use stackbeat_proto::v1::drops::Cause;
use stackbeat_tests::tool_json::array;
use stackbeat_tests::{
    Program, Recorded, compile, json_of, plain_reader, run, scratch, verbatim, wait_until,
};
use std::path::Path;

/// Compiles `WORK` with the rest of a C program, runs it both ways, and gives the recording.
fn both_ways(folder: &Path, rest: &str) -> Recorded {
    let program = compile(folder, "program.c", &format!("{WORK}{rest}"), &[]);
    let recorded = Program::new([program.to_str().unwrap()])
        .folder(folder)
        .record_and_compare(folder, verbatim);
    recorded.decode().assert_sound();
    recorded
}

/// Work that takes some tens of milliseconds and allocates.
const WORK: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
__attribute__((noinline)) long work(long rounds) {
    long sum = 0;
    for (long i = 0; i < rounds; i++) {
        char *p = malloc(64 + i % 512);
        memset(p, (int)i, 64);
        sum += p[i % 64];
        free(p);
    }
    return sum;
}
"#;

#[test]
fn closing_all_descriptors() {
    let folder = scratch();
    let recorded = both_ways(
        folder.path(),
        r#"
        int main(void) {
            int kept = dup(1);
            for (int fd = 0; fd < 1024; fd++) if (fd != kept) close(fd);
            work(9000000);
            // All numbers are free, as they would be without us.
            int a = open("/dev/null", O_RDONLY), b = open("/dev/null", O_RDONLY);
            dprintf(kept, "%d %d\n", a, b);
            return 3;
        }"#,
    );
    assert_eq!(recorded.run.stdout(), "0 1\n");
    assert!(recorded.decode().sample_count() > 5);
}

/// A raw clone, at work beside its parent: both use one thread-local block. Then it waits while its parent
/// computes: what it waits in is said to be the parent's, which runs.
#[test]
fn children_on_their_parents_memory_are_no_part_of_it() {
    let folder = scratch();
    let recorded = both_ways(
        folder.path(),
        r#"
        #include <sched.h>
        static char stack[256 << 10];
        static int p[2], q[2];
        __attribute__((noinline)) int of_the_child(void *unused) {
            char c = 0;
            long sum = 0;
            for (int i = 0; i < 300; i++) {
                for (volatile long j = 0; j < 300000; j++) sum += j;
                if (write(p[1], &c, 1) != 1 || read(p[0], &c, 1) != 1) return 1;
            }
            for (int i = 0; i < 3; i++) if (read(q[0], &c, 1) != 1) return 2;
            return sum == 7;
        }
        int main(void) {
            int status;
            char c = 0;
            if (pipe(p) || pipe(q)) return 1;
            int pid = clone(of_the_child, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
            for (int i = 0; i < 300; i++) {
                struct timespec time = {0, 300000};
                nanosleep(&time, NULL);
                for (volatile long j = 0; j < 200000; j++) {}
            }
            for (int i = 0; i < 3; i++) {
                for (volatile long j = 0; j < 60000000; j++) {}
                if (write(q[1], &c, 1) != 1) return 1;
            }
            waitpid(pid, &status, 0);
            printf("%d\n", status);
            return 0;
        }"#,
    );
    let trace = recorded.trace.to_str().expect("UTF-8");
    let info = json_of(&["info", "--json", "--check", trace]);
    assert!(array(&info, "violations").next().is_none(), "{info}");
    let report = json_of(&["report", "--json", "--top", "0", trace]);
    let functions: Vec<_> = array(&report, "functions")
        .map(|f| f["name"].to_string())
        .collect();
    assert!(
        functions.iter().any(|name| name.contains("main")),
        "{functions:?}"
    );
    assert!(
        !functions.iter().any(|name| name.contains("of_the_child")),
        "{functions:?}"
    );
}

#[test]
fn descriptors_are_all_the_programs_own() {
    let folder = scratch();
    let script =
        "import os; print(sorted(os.listdir('/proc/self/fd')), len(os.listdir('/proc/self/task')))";
    Program::new(["python3", "-c", script]).record_and_compare(folder.path(), verbatim);
}

#[test]
fn replacing_every_signal_handler_and_blocking_every_signal() {
    let folder = scratch();
    both_ways(
        folder.path(),
        r#"
        static volatile int seen;
        static void handler(int n) { seen += n; }
        int main(void) {
            for (int n = 1; n < 65; n++) if (n != SIGCHLD) signal(n, handler);
            work(200000);
            raise(SIGURG); raise(SIGUSR1); raise(SIGTERM);
            printf("%d\n", seen);
            struct sigaction old;
            sigaction(SIGURG, 0, &old);
            printf("%d\n", old.sa_handler == handler);
            sigset_t all, pending;
            sigfillset(&all);
            sigprocmask(SIG_SETMASK, &all, 0);
            for (int i = 0; i < 40; i++) { volatile long x = 0; for (long j = 0; j < 3000000; j++) x += j; }
            raise(SIGUSR2);
            sigpending(&pending);
            printf("%d %d\n", sigismember(&pending, SIGUSR2), sigismember(&pending, SIGHUP));
            signal(SIGURG, SIG_DFL);
            sigemptyset(&all);
            signal(SIGUSR2, SIG_IGN);
            sigprocmask(SIG_SETMASK, &all, 0);
            work(200000);
            puts("end");
        }"#,
    );
}

#[test]
fn a_vfork_child_that_resets_its_handlers_leaves_its_parents() {
    let folder = scratch();
    let script = "
import os, signal, subprocess
seen = []
signal.signal(signal.SIGURG, lambda number, frame: seen.append(number))
for i in range(3):
    subprocess.run(['true'], check=True)
    os.kill(os.getpid(), signal.SIGURG)
print(len(seen), signal.getsignal(signal.SIGURG) is not None)
";
    Program::new(["python3", "-c", script]).record_and_compare(folder.path(), verbatim);
    both_ways(
        folder.path(),
        r#"
        static volatile int seen;
        static void handler(int n) { seen += n; }
        static void in_child(void) {
            struct sigaction reset = {.sa_handler = SIG_DFL}, old;
            sigaction(SIGURG, &reset, &old);
            signal(SIGURG, SIG_IGN);
            _exit(old.sa_handler == handler);
        }
        int main(void) {
            struct sigaction own = {.sa_handler = handler}, now;
            sigaction(SIGURG, &own, 0);
            int status;
            pid_t child = vfork();
            if (child == 0) in_child();
            waitpid(child, &status, 0);
            sigaction(SIGURG, 0, &now);
            raise(SIGURG);
            printf("%d %d %d\n", WEXITSTATUS(status), now.sa_handler == handler, seen == SIGURG);
        }"#,
    );
}

#[test]
fn blocking_calls_are_not_cut_short_while_other_threads_run() {
    let folder = scratch();
    let recorded = both_ways(
        folder.path(),
        r#"
        #include <poll.h>
        #include <time.h>
        static void *spin(void *_) { volatile long x = 0; for (long i = 0; i < 700000000; i++) x += i; return 0; }
        int main(void) {
            pthread_t other;
            pthread_create(&other, 0, spin, 0);
            int interrupted = 0, pipes[2];
            pipe(pipes);
            for (int i = 0; i < 60; i++) {
                struct timespec t = { 0, 4000000 };
                if (nanosleep(&t, 0)) interrupted++;
                struct pollfd p = { pipes[0], POLLIN, 0 };
                if (poll(&p, 1, 4) != 0) interrupted++;
                if (usleep(3000)) interrupted++;
                work(3000);
            }
            pthread_join(other, 0);
            printf("interrupted %d\n", interrupted);
        }"#,
    );
    assert_eq!(recorded.run.stdout(), "interrupted 0\n");
}

#[test]
fn leaving_by_exit_abort_and_signals() {
    let folder = scratch();
    for (leave, what) in [
        ("_exit(9);", "_exit"),
        ("quick_exit(4);", "quick_exit"),
        ("signal(SIGTERM, SIG_DFL); raise(SIGTERM);", "SIGTERM"),
        ("kill(getpid(), SIGKILL); pause();", "SIGKILL"),
        (
            "struct rlimit none = {0, 0}; setrlimit(RLIMIT_CORE, &none); abort();",
            "abort",
        ),
        (
            "struct rlimit none = {0, 0}; setrlimit(RLIMIT_CORE, &none); *(volatile int *)0 = 1;",
            "SIGSEGV",
        ),
    ] {
        let source = format!(
            "int main(void) {{ work(9000000); fputs(\"before\\n\", stdout); fflush(stdout); {leave} }}"
        );
        let recorded = both_ways(folder.path(), &source);
        assert_eq!(recorded.run.stdout(), "before\n", "{what}");
        let trace = recorded.decode();
        assert!(trace.sample_count() > 5, "{what}");
        assert!(
            trace.cpu_share(|name| name == "work") > 0.5,
            "{what}: {:?}",
            trace.cpu_by_function()
        );
    }
}

#[test]
fn exec_keeps_the_recording_going_also_without_an_environment() {
    let folder = scratch();
    let recorded = both_ways(
        folder.path(),
        r#"
        int main(int argc, char **argv) {
            work(3000000);
            if (argc == 1) {
                char *arguments[] = { argv[0], "again", 0 }, *none[] = { 0 };
                execve("/proc/self/exe", arguments, none);
                return 1;
            }
            extern char **environ;
            for (char **e = environ; *e; e++)
                if (strncmp(*e, "LD_", 3) && strncmp(*e, "STACKBEAT", 9)) puts(*e);
            puts(argv[1]);
            char *arguments[] = { "nothing", 0 };
            // A failed exec changes nothing.
            execv("/nonexistent", arguments);
            work(3000000);
            return errno == ENOENT ? 6 : 1;
        }"#,
    );
    assert_eq!(recorded.run.output.status.code(), Some(6));
    let trace = recorded.decode();
    assert_eq!(trace.processes.len(), 2, "{:?}", trace.processes);
    for process in trace.processes.keys() {
        let samples: usize = trace
            .threads
            .values()
            .filter(|t| t.upid == *process)
            .map(|t| trace.samples.get(&t.utid).map_or(0, Vec::len))
            .sum();
        assert!(samples > 3, "process {process} has {samples} samples");
    }
}

/// The collector looks at processes while execs are under way that fail: they end nothing.
#[test]
fn an_exec_that_fails_is_not_the_end_of_a_process() {
    let folder = scratch();
    let recorded = both_ways(
        folder.path(),
        r#"
        #include <time.h>
        int main(void) {
            char *arguments[] = { "nothing", 0 };
            // Several of the collector's looks find a process that is about to become another one.
            time_t end = time(0) + 3;
            while (time(0) < end) execv("/nonexistent", arguments);
            work(80000000);
            return errno == ENOENT ? 6 : 1;
        }"#,
    );
    assert_eq!(recorded.run.output.status.code(), Some(6));
    let trace = recorded.decode();
    assert_eq!(trace.processes.len(), 1, "{:?}", trace.processes);
    let (upid, process) = trace.processes.first_key_value().expect("one");
    assert_eq!(trace.threads.len(), 1, "{:?}", trace.threads);
    let end = trace.process_ends[upid];
    assert!(!end.execed, "{end:?}");
    // Nor has it become a program that we are not in.
    let not_hooked = (0, Cause::NotHooked as i32);
    assert_eq!(trace.drops.get(&not_hooked), None, "{:?}", trace.drops);
    let last = trace
        .samples
        .values()
        .flatten()
        .map(|row| row.time_ns)
        .max();
    let last_ns = last.expect("samples");
    assert!(end.end_ns >= last_ns, "{end:?}, a sample at {last_ns}");
    assert!(last_ns - process.start_ns > 2_500_000_000);
    // Samples of the work that follows: its time was not lost with the process.
    let share = trace.cpu_share(|name| name == "work");
    assert!(share > 0.05, "{share}: {:?}", trace.cpu_by_function());
}

/// A process that becomes another program many times before the collector comes by: each image follows from
/// the one before, and its child from the last one.
#[test]
fn images_that_follow_quickly_name_the_one_before() {
    let folder = scratch();
    let recorded = both_ways(
        folder.path(),
        r#"
        int main(int argc, char **argv) {
            int left = argc > 1 ? atoi(argv[1]) : 6;
            if (left > 0) {
                char number[16];
                snprintf(number, sizeof number, "%d", left - 1);
                execl("/proc/self/exe", argv[0], number, (char *)0);
                return 1;
            }
            pid_t child = fork();
            if (!child) { work(1000); _exit(4); }
            int status;
            waitpid(child, &status, 0);
            return WEXITSTATUS(status);
        }"#,
    );
    assert_eq!(recorded.run.output.status.code(), Some(4));
    let trace = recorded.decode();
    let processes: Vec<_> = trace.processes.values().collect();
    assert_eq!(processes.len(), 8, "{processes:?}");
    let (images, child) = processes.split_at(7);
    for pair in images.windows(2) {
        assert_eq!(pair[0].pid, pair[1].pid);
        assert_eq!(pair[1].parent_upid, pair[0].upid, "{processes:#?}");
    }
    assert_eq!(child[0].parent_upid, images[6].upid, "{processes:#?}");
}

#[test]
fn forks_vforks_and_posix_spawns() {
    let folder = scratch();
    let recorded = both_ways(
        folder.path(),
        r#"
        #include <spawn.h>
        int main(void) {
            int sum = 0, status;
            for (int i = 0; i < 8; i++) {
                pid_t child = fork();
                if (!child) { work(100000); _exit(i); }
                waitpid(child, &status, 0);
                sum += WEXITSTATUS(status);
            }
            for (int i = 0; i < 8; i++) {
                pid_t child = vfork();
                if (!child) { execl("/bin/sh", "sh", "-c", "exit 2", (char *)0); _exit(99); }
                waitpid(child, &status, 0);
                sum += WEXITSTATUS(status);
            }
            extern char **environ;
            for (int i = 0; i < 8; i++) {
                char *arguments[] = { "sh", "-c", "exit 3", 0 };
                pid_t child;
                if (posix_spawn(&child, "/bin/sh", 0, 0, arguments, environ)) return 1;
                waitpid(child, &status, 0);
                sum += WEXITSTATUS(status);
            }
            printf("%d\n", sum);
        }"#,
    );
    assert_eq!(recorded.run.stdout(), "68\n");
    let trace = recorded.decode();
    assert!(
        trace.processes.len() >= 25,
        "{} processes",
        trace.processes.len()
    );
}

#[test]
fn children_are_left_alone_when_asked() {
    let folder = scratch();
    let recorded = Program::new(["bash", "-c", "ls / | wc -l; exit 4"])
        .options(&["--no-children"])
        .record_and_compare(folder.path(), verbatim);
    assert_eq!(recorded.run.output.status.code(), Some(4));
    let trace = recorded.decode();
    trace.assert_sound();
    assert_eq!(trace.processes.len(), 1, "{:?}", trace.processes);
}

#[test]
fn a_daemon_goes_on_and_is_recorded_when_waited_for() {
    let folder = scratch();
    let done = folder.path().join("done");
    let source = format!(
        r#"{WORK}
        int main(int argc, char **argv) {{
            if (daemon(1, 0)) return 1;
            work(1500000);
            close(open(argv[1], O_CREAT | O_WRONLY, 0600));
            return 0;
        }}"#
    );
    let program = compile(folder.path(), "program.c", &source, &[]);
    let daemon =
        Program::new([program.to_str().unwrap(), done.to_str().unwrap()]).folder(folder.path());
    let recorded = daemon
        .clone()
        .options(&["--wait-children"])
        .record(folder.path());
    assert!(recorded.run.output.status.success());
    wait_until("the daemon is done", || done.exists());
    let trace = recorded.decode();
    trace.assert_sound();
    assert!(
        trace.cpu_share(|name| name == "work") > 0.5,
        "{:?}",
        trace.cpu_by_function()
    );

    // Without waiting the recording ends with its command, and the daemon is none the worse.
    std::fs::remove_file(&done).unwrap();
    let recorded = daemon.record(folder.path());
    assert!(recorded.run.output.status.success());
    wait_until("the daemon is done", || done.exists());
}

#[test]
fn limits_on_descriptors_files_memory_and_stack() {
    let folder = scratch();
    for limit in [
        "RLIMIT_NOFILE, 3",
        "RLIMIT_FSIZE, 0",
        "RLIMIT_NPROC, 0",
        "RLIMIT_STACK, 65536",
        "RLIMIT_AS, 200000000",
        "RLIMIT_DATA, 100000000",
    ] {
        let (which, value) = limit.split_once(", ").unwrap();
        both_ways(
            folder.path(),
            &format!(
                r#"
                int main(void) {{
                    struct rlimit limit = {{ {value}, {value} }};
                    if (setrlimit({which}, &limit)) return 1;
                    work(300000);
                    printf("%d\n", open("/dev/null", O_RDONLY) < 0);
                    void *large = malloc(300000000);
                    printf("%d\n", large == 0);
                    return 0;
                }}"#
            ),
        );
    }
}

#[test]
fn very_many_threads() {
    let folder = scratch();
    let recorded = both_ways(
        folder.path(),
        r#"
        static pthread_barrier_t barrier;
        static void *one(void *n) {
            long sum = work(200);
            pthread_barrier_wait(&barrier);
            return (void *)((long)n & 1 ? sum * 0 + 1 : 0);
        }
        int main(void) {
            enum { ALIVE = 400, WAVES = 10 };
            static pthread_t threads[ALIVE];
            long sum = 0;
            for (int wave = 0; wave < WAVES; wave++) {
                pthread_barrier_init(&barrier, 0, ALIVE);
                pthread_attr_t small;
                pthread_attr_init(&small);
                pthread_attr_setstacksize(&small, 128 << 10);
                for (long i = 0; i < ALIVE; i++) if (pthread_create(&threads[i], &small, one, (void *)i)) return 1;
                for (long i = 0; i < ALIVE; i++) { void *r; pthread_join(threads[i], &r); sum += (long)r; }
            }
            printf("%ld\n", sum);
        }"#,
    );
    assert_eq!(recorded.run.stdout(), "2000\n");
    let trace = recorded.decode();
    assert_eq!(trace.threads.len(), 4001);
    let allocations: u64 = trace.thread_ends.values().map(|end| end.allocations).sum();
    assert!(allocations >= 800_000, "4,000 threads × 200: {allocations}");
}

/// Its last destructor of all waits past our hooks, when the agent has let go of the thread.
#[test]
fn a_thread_that_takes_long_to_end_is_one_thread() {
    let folder = scratch();
    let recorded = both_ways(
        folder.path(),
        r#"
        #include <limits.h>
        static pthread_key_t key;
        static __thread int rounds;
        static void late(void *value) {
            if (++rounds < PTHREAD_DESTRUCTOR_ITERATIONS) {
                pthread_setspecific(key, value);
                return;
            }
            struct timespec time = {1, 500000000};
            long result;
            register void *no_rest __asm__("rsi") = 0;
            __asm__ volatile("syscall" : "=a"(result) : "a"(35), "D"(&time), "r"(no_rest) : "rcx", "r11", "memory");
        }
        static void *one(void *n) {
            pthread_setspecific(key, n);
            return (void *)(long)(work(20000) != 0);
        }
        int main(void) {
            pthread_t thread;
            void *result;
            pthread_key_create(&key, late);
            pthread_create(&thread, 0, one, &key);
            // The processor time of others is what makes the recorder look for threads.
            for (int i = 0; i < 30; i++) { usleep(20000); work(20000); }
            pthread_join(thread, &result);
            printf("%ld\n", (long)result);
        }"#,
    );
    assert_eq!(recorded.run.stdout(), "1\n");
    assert_eq!(recorded.decode().threads.len(), 2);
}

#[test]
fn jumps_exceptions_and_cancellation() {
    let folder = scratch();
    let source = r#"
        #include <csetjmp>
        #include <cstdio>
        #include <cstdlib>
        #include <cstring>
        #include <pthread.h>
        #include <stdexcept>
        #include <string>
        #include <unistd.h>
        static jmp_buf back;
        struct Counted { static int alive; Counted() { alive++; } ~Counted() { alive--; } };
        int Counted::alive;
        __attribute__((noinline)) int thrower(int n) {
            Counted c;
            std::string text(100 + n, 'x');
            if (n == 0) throw std::runtime_error(text);
            return thrower(n - 1) + text.size();
        }
        static int compare(const void *, const void *) { longjmp(back, 1); }
        static void *waiter(void *) { Counted c; for (;;) { usleep(1000); free(malloc(10)); } return nullptr; }
        int main() {
            int caught = 0, jumped = 0;
            for (int i = 0; i < 3000; i++) try { thrower(20); } catch (const std::exception &e) { caught += strlen(e.what()) == 100; }
            for (int i = 0; i < 3000; i++) {
                int numbers[] = {2, 1, 3};
                if (setjmp(back)) jumped++; else qsort(numbers, 3, sizeof(int), compare);
                free(malloc(100));
            }
            for (int i = 0; i < 20; i++) {
                pthread_t thread;
                pthread_create(&thread, nullptr, waiter, nullptr);
                usleep(2500);
                pthread_cancel(thread);
                void *result;
                pthread_join(thread, &result);
                caught += result == PTHREAD_CANCELED;
            }
            printf("%d %d %d\n", caught, jumped, Counted::alive);
        }"#;
    let program = compile(folder.path(), "program.cpp", source, &[]);
    let recorded =
        Program::new([program.to_str().unwrap()]).record_and_compare(folder.path(), verbatim);
    assert_eq!(recorded.run.stdout(), "3020 3000 0\n");
    let trace = recorded.decode();
    trace.assert_sound();
    assert!(
        trace.cpu_share(|name| name == "thrower(int)") > 0.2,
        "{:?}",
        trace.cpu_by_function()
    );
}

#[test]
fn libraries_come_and_go() {
    let folder = scratch();
    let library = "#include <stdlib.h>\n#include <string.h>\n__attribute__((noinline)) long FUNCTION(long n) { long s = 0; for (long i = 0; i < n; i++) { char *p = malloc(99); memset(p, 1, 99); s += p[i % 99]; free(p); } return s; }\n";
    for name in ["first_plugin", "second_plugin"] {
        let text = library.replace("FUNCTION", name);
        std::fs::write(folder.path().join(format!("{name}.c")), text).unwrap();
        let mut build = std::process::Command::new("gcc");
        build.current_dir(folder.path());
        build.args([
            "-O1",
            "-g",
            "-shared",
            "-fPIC",
            "-o",
            &format!("{name}.so"),
            &format!("{name}.c"),
        ]);
        assert!(run(build).output.status.success());
    }
    let source = r#"
        #include <dlfcn.h>
        #include <stdio.h>
        #include <unistd.h>
        int main(void) {
            long sum = 0;
            for (int i = 0; i < 30; i++) {
                const char *name = i & 1 ? "first_plugin" : "second_plugin";
                char path[64];
                snprintf(path, sizeof path, "./%s.so", name);
                // A relative path, and then the program goes elsewhere.
                void *library = dlopen(path, RTLD_NOW);
                chdir("/");
                long (*function)(long) = (long (*)(long))dlsym(library, name);
                sum += function(800000);
                dlclose(library);
                chdir(FOLDER);
            }
            printf("%ld\n", sum);
        }"#;
    let home = format!("-DFOLDER=\"{}\"", folder.path().display());
    let program = compile(folder.path(), "program.c", source, &["-ldl", &home]);
    let recorded = Program::new([program.to_str().unwrap()])
        .folder(folder.path())
        .record_and_compare(folder.path(), verbatim);
    let trace = recorded.decode();
    trace.assert_sound();
    // The second is mapped where the first was: they must not be mixed up.
    let first = trace.cpu_share(|name| name == "first_plugin");
    let second = trace.cpu_share(|name| name == "second_plugin");
    assert!(
        (0.3..0.7).contains(&first) && (0.3..0.7).contains(&second),
        "{first} and {second}"
    );
}

#[test]
fn a_program_killed_in_the_middle_leaves_a_readable_trace() {
    let folder = scratch();
    let trace_file = folder.path().join("trace.beat");
    let script = "import os, signal\nfor i in range(2000000):\n  b = bytearray(50)\n  if i == 900000: os.kill(os.getpid(), signal.SIGKILL)";
    let recorded = run(Program::new(["python3", "-c", script]).recorded_command(&trace_file));
    use std::os::unix::process::ExitStatusExt;
    let status = recorded.output.status;
    assert!(
        status.signal() == Some(9) || status.code() == Some(137),
        "{status:?}"
    );
    let trace = plain_reader::Trace::read(&trace_file);
    trace.assert_sound();
    assert!(trace.sample_count() > 20);
}

/// A thread computes while another sends it a signal of its own, and waits for each to be handled.
const SIGNALS_ITSELF: &str = r#"
#include <sys/syscall.h>
static volatile int handled;
static volatile pid_t computing;
static void on_signal(int signal) { (void)signal; handled++; }
static void *compute(void *unused) {
    computing = syscall(SYS_gettid);
    for (;;) free(malloc(work(1000) & 255));
    return unused;
}
static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}
int main(void) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGURG, &action, 0);
    raise(SIGURG);
    pthread_kill(pthread_self(), SIGURG);
    printf("%d to itself\n", handled);
    pthread_t thread;
    pthread_create(&thread, 0, compute, 0);
    while (!computing) usleep(1000);
    int lost = 0;
    for (int sent = 0; sent < 20000; sent++) {
        int before = handled;
        double begin = seconds();
        syscall(SYS_tgkill, getpid(), computing, SIGURG);
        while (handled == before && seconds() < begin + 2) {}
        lost += handled == before;
    }
    printf("%d lost\n", lost);
    return 0;
}
"#;

/// As Go's runtime does, which sends no other before one has come.
#[test]
fn each_signal_that_the_program_sends_its_threads_comes() {
    let folder = scratch();
    let source = format!("{WORK}{SIGNALS_ITSELF}");
    let program = compile(folder.path(), "signals.c", &source, &[]);
    for options in [
        &[][..],
        &["--clock", "tick", "--interval", "100us", "--budget", "0"],
        &["--clock", "timer"],
        &["--in-process"],
    ] {
        let program = Program::new([program.to_str().expect("UTF-8")]).options(options);
        let recorded = program.record_and_compare(folder.path(), verbatim);
        assert!(recorded.run.stdout().ends_with("0 lost\n"), "{options:?}");
        // It is interrupted all the same.
        let trace = recorded.decode();
        let interrupted = |row: &&SampleRow| row.probe == Probe::Running as u8;
        let samples = trace.all_samples().map(|(_, row)| row);
        let met = samples.filter(interrupted).count();
        assert!(met > 20, "{options:?}: {met}");
    }
}
