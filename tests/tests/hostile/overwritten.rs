//! Programs that spoil what they share with the recorder: it stays small, comes to its end and says so. And
//! programs with little address space, of which the recording takes none.

use stackbeat_proto::v1::drops::Cause;
use stackbeat_tests::{Program, compile, info, python, run, scratch, stackbeat, verbatim};
use std::path::Path;

/// Largest resident set of a recorder whose program writes over the shared memory, KiB: that of the mapping,
/// and as much again for what it keeps of it. In the measure of the kernel's own `ru_maxrss`.
const MOST_RESIDENT_KIB: u64 = 300 << 10;

/// Maps the session's file and does to it what the first argument says.
const SPOIL: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
int main(int count, char **arguments) {
    const char *path = getenv("STACKBEAT_SESSION");
    int fd = path ? open(path, O_RDWR) : -1;
    struct stat status;
    if (count < 3 || fd < 0 || fstat(fd, &status) != 0) return 9;
    srand(atoi(arguments[2]));
    if (strcmp(arguments[1], "cut") == 0) {
        /* Nothing of this process comes near what is cut off: the shell that started it is recorded. */
        if (ftruncate(fd, atol(arguments[2])) != 0) return 9;
        while (clock() < CLOCKS_PER_SEC / 5) {}
        return 5;
    }
    unsigned long *words = mmap(0, status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (strcmp(arguments[1], "ones") == 0) {
        usleep(atol(arguments[2]) * 1000);
        memset(words, 0xff, status.st_size);
        usleep(200000);
        free(malloc(10));
        return 5;
    }
    long all = status.st_size / 8, near = strcmp(arguments[1], "head") == 0 ? 1 << 15 : all;
    for (long step = 0; step < 60; step++) {
        for (int i = 0; i < 20000; i++) {
            long k = ((long)rand() << 16 ^ rand()) % near;
            unsigned long random = (unsigned long)rand() << 33 ^ rand();
            switch (rand() % 5) {
            case 0: words[k] = random; break;
            case 1: words[k] = ~0UL; break;
            case 2: words[k] = random % 100000; break;
            case 3: words[k] = 0; break;
            case 4: words[k] ^= 1UL << rand() % 64; break;
            }
        }
        usleep(10000);
        free(malloc(10));
    }
    return 5;
}
"#;

/// Records a program under `time -v`-like measurement: exit status, what was said, largest resident set in
/// KiB.
fn record_measured(folder: &Path, trace: &Path, arguments: &[&str]) -> (i32, String, u64) {
    // The shell's `times` know nothing of memory; python's `wait4` does.
    let script = "import os, sys\n\
        pid = os.spawnvp(os.P_NOWAIT, sys.argv[1], sys.argv[1:])\n\
        _, status, usage = os.wait4(pid, 0)\n\
        print('resident', usage.ru_maxrss, file=sys.stderr)\n\
        sys.exit(os.waitstatus_to_exitcode(status) & 255)";
    let mut command = std::process::Command::new(python());
    command
        .args(["-c", script])
        .arg(stackbeat())
        .args(["record", "-o"])
        .arg(trace)
        .arg("--")
        .args(arguments)
        .current_dir(folder);
    let run = run(command);
    let said = run.stderr();
    let resident = said
        .lines()
        .find_map(|line| line.strip_prefix("resident "))
        .and_then(|kib| kib.parse().ok())
        .unwrap_or_else(|| panic!("{said}"));
    (run.shell_status(), said, resident)
}

#[test]
fn a_program_that_writes_over_the_shared_memory_does_not_make_the_recorder_grow() {
    let folder = scratch();
    let program = compile(folder.path(), "spoil.c", SPOIL, &["-O1"]);
    let program = program.to_str().expect("UTF-8");
    let trace = folder.path().join("spoiled.beat");
    for (how, seed) in [("all", "1"), ("head", "2"), ("head", "3"), ("all", "4")] {
        let _ = std::fs::remove_file(&trace);
        let (status, said, resident) =
            record_measured(folder.path(), &trace, &[program, how, seed]);
        assert_eq!(status, 5, "{how} {seed}: {said}");
        assert!(!said.contains("panicked"), "{how} {seed}: {said}");
        assert!(resident < MOST_RESIDENT_KIB, "{how} {seed}: {resident} KiB");
        // What is there can be read.
        let read = info(&trace);
        assert_eq!(read["schema"], "stackbeat.info.v1", "{how} {seed}");
    }
}

#[test]
fn what_contradicts_itself_is_said_and_not_summed() {
    let folder = scratch();
    let program = compile(folder.path(), "spoil.c", SPOIL, &["-O1"]);
    let program = program.to_str().expect("UTF-8");
    let trace = folder.path().join("ones.beat");
    // Before the recorder has looked at the program, and after.
    for delay_ms in ["0", "400"] {
        let _ = std::fs::remove_file(&trace);
        let (status, said, _) =
            record_measured(folder.path(), &trace, &[program, "ones", delay_ms]);
        assert_eq!(status, 5, "{delay_ms}: {said}");
        assert!(said.contains("contradict themselves"), "{delay_ms}: {said}");
        let read = info(&trace);
        let number = |value: &serde_json::Value| value.as_u64().expect("a number");
        for dropped in read["drops"].as_array().expect("a list") {
            assert!(
                number(&dropped["count"]) < 1_000_000,
                "{delay_ms}: {dropped}"
            );
        }
        let duration_ns = number(&read["recording"]["duration_ns"]);
        assert!(duration_ns < 60_000_000_000, "{delay_ms}: {duration_ns} ns");
        let mut report = std::process::Command::new(stackbeat());
        report.arg("report").arg(&trace);
        let report = run(report).stdout();
        let mut heading = report.lines().take_while(|line| !line.is_empty());
        let is_said = heading.any(|line| line.contains("damaged"));
        assert!(is_said, "{delay_ms}: {report}");
        assert!(
            read["recording"]["state"].to_string().contains("damaged"),
            "{delay_ms}: {read}"
        );
    }
}

#[test]
fn a_mapping_that_is_cut_off_ends_the_recording_and_not_the_recorder() {
    let folder = scratch();
    let program = compile(folder.path(), "spoil.c", SPOIL, &["-O1"]);
    let trace = folder.path().join("cut.beat");
    for length in ["0", "4096", "1000000", "30000000"] {
        let _ = std::fs::remove_file(&trace);
        // A process that is not recorded cuts it off, and the recorded one sleeps meanwhile in a call of its
        // own.
        let script = "import os, subprocess, sys, time\n\
            session = os.environ['STACKBEAT_SESSION']\n\
            clean = {'STACKBEAT_SESSION': session}\n\
            print('before')\n\
            sys.exit(subprocess.call(sys.argv[1:], env=clean))";
        let command = [
            &python(),
            "-c",
            script,
            program.to_str().expect("UTF-8"),
            "cut",
            length,
        ];
        let (status, said, _) = record_measured(folder.path(), &trace, &command);
        assert!(
            said.contains("has cut the recording's shared memory off"),
            "{length}: {said}"
        );
        assert!(!said.contains("panicked"), "{length}: {said}");
        // The program may have touched what it cut off before the recorder mended it: python passes on the
        // SIGBUS of its child as -7.
        assert!(
            [5, 128 + 7, 256 - 7].contains(&status),
            "{length}: {status} {said}"
        );
        assert_eq!(info(&trace)["schema"], "stackbeat.info.v1", "{length}");
    }
}

#[test]
fn a_mapping_that_was_cut_off_gives_no_reasons() {
    let folder = scratch();
    compile(folder.path(), "first.c", SPOIL, &["-O1", "-static"]);
    compile(folder.path(), "second.c", SPOIL, &["-O1"]);
    let trace = folder.path().join("cut.beat");
    let script = "./first cut 0; ./second cut 0; exit 5";
    // The shell dies if it comes near what was cut off before the recorder does.
    let survives = (0..10).any(|_| {
        let _ = std::fs::remove_file(&trace);
        record_measured(folder.path(), &trace, &["sh", "-c", script]).0 == 5
    });
    assert!(survives);
    let read = info(&trace);
    let unrecorded = read["recording"]["unrecorded"].to_string();
    // All zeros read as if children were not followed.
    assert!(
        unrecorded.contains("second") && !unrecorded.contains("not_followed"),
        "{unrecorded}"
    );
}

/// Takes the address space that it is said to have, and says how much it got. How: before the program starts,
/// or by itself.
const LIMITED: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
static void *begin(void *arg) { return arg; }
int main(int count, char **arguments) {
    if (count > 1) {
        struct rlimit limit = {60 << 20, 60 << 20};
        setrlimit(RLIMIT_AS, &limit);
    }
    int got = 0;
    for (int i = 0; i < 20; i++) {
        char *block = malloc(1 << 20);
        if (block) got++, memset(block, i, 1 << 20);
    }
    pthread_t thread;
    int refused = pthread_create(&thread, 0, begin, 0);
    if (!refused) pthread_join(thread, 0);
    printf("%d blocks, thread %d\n", got, refused);
    return 3;
}
"#;

#[test]
fn a_recorder_with_too_little_address_space_refuses_before_the_program_starts() {
    let folder = scratch();
    let trace = folder.path().join("small.beat");
    for kib in [100_000, 150_000, 200_000, 250_000, 1_000_000] {
        let _ = std::fs::remove_file(&trace);
        let mut command = std::process::Command::new("sh");
        let script = format!("ulimit -v {kib}; exec \"$@\"");
        command.args(["-c", &script, "sh"]).arg(stackbeat());
        command.args(["record", "-o"]).arg(&trace);
        command.args(["--", "sh", "-c", "echo ran; exit 3"]);
        let run = run(command);
        let (status, said) = (run.shell_status(), run.stderr());
        match status {
            3 => assert_eq!(run.stdout(), "ran\n"),
            2 => assert!(
                said.contains("ulimit -v") && run.stdout().is_empty() && kib < 1_000_000,
                "{kib}: {said}"
            ),
            _ => panic!("{kib}: {status}: {said}"),
        }
    }
}

#[test]
fn programs_with_little_address_space_have_it_for_themselves() {
    let folder = scratch();
    let program = compile(folder.path(), "limited.c", LIMITED, &["-O1", "-pthread"]);
    let program = program.to_str().expect("UTF-8");
    let own = Program::new([program, "own"]).record_and_compare(folder.path(), verbatim);
    assert_eq!(own.run.stdout(), "20 blocks, thread 0\n");
    assert!(own.decode().sample_count() > 0);
    let shell = |kib: u64| {
        let line = format!("ulimit -v {kib}; exec {program}");
        Program::new(["sh", "-c", &line]).record_and_compare(folder.path(), verbatim)
    };
    // A sixteenth of this holds neither share of the mapping: the program runs unrecorded, which is said.
    let little = shell(60_000);
    assert_eq!(little.run.stdout(), "20 blocks, thread 0\n");
    let drops = little.decode().drops;
    assert_eq!(
        drops.get(&(0, Cause::NoAddressSpace as i32)),
        Some(&1),
        "{drops:?}"
    );
    // The small share, and the usual one.
    for kib in [250_000, 1_000_000] {
        let some = shell(kib);
        assert_eq!(some.run.stdout(), "20 blocks, thread 0\n");
        let trace = some.decode();
        assert!(trace.processes.len() > 1, "{kib} KiB: not recorded");
    }
}
