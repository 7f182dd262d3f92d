use stackbeat_core::probe::Probe;
use stackbeat_model::{LongWait, SegmentKind, StackIndex, is_runtime};

use super::*;
use crate::summary::call_tree::ROOT;
use crate::summary::call_tree::tests::segment;
use crate::summary::metadata::{FunctionName, ProcessRow, ThreadMetadata};
use crate::testing;

const MS: u64 = 1_000_000;

/// A report of threads with these names, in functions with these names and files.
fn report(threads: &[&str], functions: &[(&str, &str)]) -> Report {
    let mut report = testing::report();
    report.profile = Profile::default();
    let of_thread = |(i, name): (usize, &&str)| ThreadMetadata {
        utid: i as u32 + 1,
        name: (*name).to_owned(),
        is_main: i == 0,
        ..ThreadMetadata::default()
    };
    let of_function = |(name, file): &(&str, &str)| FunctionName {
        name: (*name).to_owned(),
        module: "/usr/bin/shop".to_owned(),
        file: (*file).to_owned(),
        line: u32::from(!file.is_empty()) * 12,
    };
    report.metadata.threads = threads.iter().enumerate().map(of_thread).collect();
    report.metadata.processes = vec![ProcessRow::default()];
    report.metadata.functions = functions.iter().map(of_function).collect();
    report
}

/// Adds so many pieces of 10 ms to a thread of a report.
fn add(report: &mut Report, thread: u32, stack: &[u32], kind: SegmentKind, pieces: u64) {
    let functions: Vec<_> = stack.iter().map(|f| FunctionIndex(*f)).collect();
    let path = report.profile.tree.path(&functions);
    for _ in 0..pieces {
        let mut piece = segment(0, 10 * MS, kind);
        piece.thread = ThreadIndex(thread);
        report.profile.add(&piece, path);
    }
}

fn said(report: &Report) -> String {
    verdict(report, &|_| true).expect("something was recorded")
}

const FUNCTIONS: [(&str, &str); 5] = [
    ("main", "main.py"),
    ("load", "json.py"),
    ("parse", "json.py"),
    ("lookup", ""),
    ("std::sort", ""),
];

#[test]
fn nothing_is_said_of_nothing() {
    assert_eq!(verdict(&report(&["main"], &[]), &|_| true), None);
    let mut only_gaps = report(&["main"], &FUNCTIONS);
    add(&mut only_gaps, 0, &[], SegmentKind::Gap, 5);
    assert_eq!(verdict(&only_gaps, &|_| true), None);
    assert_eq!(verdict(&testing::report(), &|_| false), None);
}

#[test]
fn one_thread_is_described_by_parts_of_its_time() {
    let mut report = report(&["main", "pool"], &FUNCTIONS);
    add(&mut report, 0, &[0, 1, 2], SegmentKind::Running, 70);
    add(&mut report, 0, &[0, 1], SegmentKind::Running, 18);
    let fsync = SegmentKind::Blocked(Probe::Fsync.into());
    add(&mut report, 0, &[0, 1], fsync, 12);
    let idle = SegmentKind::Blocked(Probe::CondWait.into());
    add(&mut report, 1, &[0], idle, 100);
    assert_eq!(
        said(&report),
        "88 % computing (70 % in parse at json.py:12); 12 % waiting for I/O (fsync in load at json.py:12)"
    );
}

#[test]
fn a_caller_of_much_names_what_it_calls_most() {
    let mut report = report(&["main"], &FUNCTIONS);
    add(&mut report, 0, &[0, 1, 2], SegmentKind::Running, 40);
    add(&mut report, 0, &[0, 1, 3], SegmentKind::Running, 30);
    add(&mut report, 0, &[0, 1, 4], SegmentKind::Running, 30);
    assert_eq!(
        said(&report),
        "100 % computing (100 % in load at json.py:12, above all in parse at json.py:12: 40 %)"
    );
}

/// As in CPython: the interpreter's own functions stand between and below those of the program.
#[test]
fn of_an_interpreted_program_its_own_functions_are_named() {
    let functions = [
        ("parse", "/srv/shop.py"),
        ("loads", "/usr/lib/python3.11/json/__init__.py"),
        ("python3.11+0x4fee40", ""),
        ("PyUnicode_Substring", ""),
    ];
    let mut report = report(&["python3"], &functions);
    for function in &mut report.metadata.functions[..2] {
        function.module = "python".to_owned();
    }
    add(&mut report, 0, &[0, 1, 2], SegmentKind::Running, 50);
    add(&mut report, 0, &[0, 1, 2, 3], SegmentKind::Running, 50);
    let fsync = SegmentKind::Blocked(Probe::Fsync.into());
    add(&mut report, 0, &[0, 2, 3], fsync, 100);
    assert!(is_runtime("python"));
    assert_eq!(
        said(&report),
        "50 % computing (50 % in parse at shop.py:12, above all in loads at __init__.py:12: 50 %); \
         50 % waiting for I/O (fsync in parse at shop.py:12)"
    );
}

#[test]
fn where_no_function_has_half_the_heaviest_are_named() {
    let mut report = report(&["main"], &FUNCTIONS);
    add(&mut report, 0, &[0, 2], SegmentKind::Running, 45);
    add(&mut report, 0, &[0, 3], SegmentKind::Running, 45);
    add(&mut report, 0, &[0], SegmentKind::Running, 10);
    let expected = "100 % computing (45 % in parse at json.py:12, 45 % in lookup [shop], \
                    10 % in main at main.py:12)";
    assert_eq!(said(&report), expected);
}

#[test]
fn few_samples_name_no_function() {
    let mut report = report(&["main"], &FUNCTIONS);
    add(&mut report, 0, &[0, 1, 2], SegmentKind::Running, 5);
    assert_eq!(said(&report), "100 % computing");
}

#[test]
fn of_many_threads_times_are_said_and_who_held_the_lock() {
    let mut report = report(&["main", "worker-1", "worker-2"], &FUNCTIONS);
    report.metadata.recording.duration_ns = 1000 * MS;
    let lock = SegmentKind::Blocked(Probe::MutexLock.into());
    for thread in [1, 2] {
        add(&mut report, thread, &[2], SegmentKind::Running, 60);
    }
    add(&mut report, 2, &[1], lock, 40);
    let join = SegmentKind::Blocked(Probe::ThreadJoin.into());
    add(&mut report, 0, &[0], join, 100);
    wait_for_lock(&mut report, (2, 1), 400, None);
    assert_eq!(
        said(&report),
        "2 threads computed 1.20 s (100 % in parse at json.py:12); 400 ms waiting for a lock held by worker-1 \
         (pthread_mutex_lock in load at json.py:12)"
    );
}

/// A long wait for a lock.
fn wait_for_lock(report: &mut Report, threads: (u32, u32), ms: u64, waking: Option<u32>) {
    wait_for(report, 1, threads, ms, waking);
}

/// The same for the lock at this address.
fn wait_for(report: &mut Report, lock: u64, threads: (u32, u32), ms: u64, waking: Option<u32>) {
    let wait = LongWait {
        thread: ThreadIndex(threads.0),
        owner: Some(ThreadIndex(threads.1)),
        probe: Probe::MutexLock.into(),
        begin_ns: 0,
        end_ns: ms * MS,
        stack: StackIndex::NONE,
        object: lock,
        result: 0,
        waker: Some(ThreadIndex(threads.1)),
        wake: None,
    };
    report.waits.add(&wait, ROOT, waking);
}

#[test]
fn a_lock_that_workers_hold_in_turn_has_a_place_and_holders() {
    let mut report = report(&["main", "worker-1", "worker-2", "worker-3"], &FUNCTIONS);
    report.metadata.recording.duration_ns = 1000 * MS;
    let lock = SegmentKind::Blocked(Probe::MutexLock.into());
    // No function has half of the waits, and no thread had the lock in half of them.
    for (thread, function) in [(1, 1), (2, 2), (3, 3)] {
        add(&mut report, thread, &[function], SegmentKind::Running, 20);
        add(&mut report, thread, &[function], lock, 40);
    }
    let path = report.profile.tree.path(&[FunctionIndex(3)]);
    for threads in [(1, 2), (2, 3), (3, 1)] {
        wait_for_lock(&mut report, threads, 400, Some(path));
    }
    let expected = "1.20 s waiting for a lock held by worker-* in lookup [shop] (33 % \
                    pthread_mutex_lock in load at json.py:12, 33 % pthread_mutex_lock in parse at \
                    json.py:12, 33 % pthread_mutex_lock in lookup [shop])";
    assert!(said(&report).ends_with(expected), "{}", said(&report));
    // One that hardly counts is none.
    wait_for(&mut report, 2, (1, 2), 50, Some(path));
    assert!(said(&report).contains("waiting for a lock held by worker-*"));
    wait_for(&mut report, 3, (1, 2), 900, Some(path));
    assert!(said(&report).contains("waiting for 2 locks mostly held by worker-2"));
    // Where all have one name, the place is what there is to say.
    for thread in &mut report.metadata.threads {
        thread.name = "shop".to_owned();
    }
    assert!(said(&report).contains("waiting for 2 locks held in lookup [shop] (33 %"));
}

#[test]
fn the_interpreters_lock_is_called_so_and_has_no_holder() {
    let functions = [FUNCTIONS[0], FUNCTIONS[1], ("take_gil", "")];
    let mut report = report(&["main", "worker-1", "worker-2"], &functions);
    report.metadata.recording.duration_ns = 1000 * MS;
    let lock = SegmentKind::Blocked(Probe::MutexLock.into());
    for (thread, owner) in [(1, 2), (2, 1)] {
        add(&mut report, thread, &[1], SegmentKind::Running, 40);
        add(&mut report, thread, &[1, 2], lock, 40);
        wait_for_lock(&mut report, (thread, owner), 400, None);
    }
    assert!(
        said(&report).ends_with(
            "800 ms waiting for Python's global interpreter lock (in load at json.py:12)"
        ),
        "{}",
        said(&report)
    );
}

#[test]
fn the_interpreters_lock_is_known_without_symbols() {
    let functions = [("load", "json.py"), ("python3.11+0x1c5f0", "")];
    let mut report = report(&["main", "worker-1", "worker-2"], &functions);
    report.metadata.recording.duration_ns = 1000 * MS;
    report.metadata.functions[0].module = "python".to_owned();
    report.metadata.functions[1].module = "/usr/bin/python3.11".to_owned();
    let wait = SegmentKind::Blocked(Probe::CondWait.into());
    for thread in [1, 2] {
        add(&mut report, thread, &[0], SegmentKind::Running, 40);
        add(&mut report, thread, &[0, 1], wait, 40);
    }
    let gil = "800 ms waiting for Python's global interpreter lock (in load at json.py:12)";
    assert!(said(&report).ends_with(gil), "{}", said(&report));
    report.metadata.functions[1].name = "_some_exported_function".to_owned();
    assert!(!said(&report).contains(gil), "{}", said(&report));
}

#[test]
fn workers_that_wait_in_the_programs_own_code_are_held_up_however_much_is_computed() {
    let functions = [
        ("thumb", "/srv/shop.py"),
        ("observe", "/srv/shop.py"),
        ("get", "/usr/lib/python3.11/queue.py"),
    ];
    let mut report = report(&["main", "worker-1", "worker-2"], &functions);
    report.metadata.recording.duration_ns = 1000 * MS;
    let wait = SegmentKind::Blocked(Probe::SemWait.into());
    for thread in [1, 2] {
        add(&mut report, thread, &[0], SegmentKind::Running, 60);
        add(&mut report, thread, &[1], wait, 90);
        // Without work.
        add(&mut report, thread, &[2], wait, 200);
    }
    let own = "1.80 s waiting for another thread (sem_wait in observe at shop.py:12)";
    assert!(!said(&report).contains("waiting"), "{}", said(&report));
    for function in &mut report.metadata.functions {
        function.module = "python".to_owned();
    }
    assert!(said(&report).ends_with(own), "{}", said(&report));
}

/// However little is computed, so that all that threads wait for is of interest.
#[test]
fn workers_of_a_librarys_pool_without_a_job_are_not_held_up() {
    let functions = [
        ("price", "/srv/shop.py"),
        (
            "_worker",
            "/usr/lib/python3.11/concurrent/futures/thread.py",
        ),
    ];
    let mut report = report(&["main", "pool-1", "pool-2"], &functions);
    report.metadata.recording.duration_ns = 1000 * MS;
    for function in &mut report.metadata.functions {
        function.module = "python".to_owned();
    }
    let wait = SegmentKind::Blocked(Probe::SemWait.into());
    for thread in [1, 2] {
        add(&mut report, thread, &[1, 0], SegmentKind::Running, 10);
        add(&mut report, thread, &[1, 0], wait, 20);
        add(&mut report, thread, &[1], wait, 60);
    }
    let own = "400 ms waiting for another thread (sem_wait in price at shop.py:12)";
    assert!(said(&report).ends_with(own), "{}", said(&report));
}

#[test]
fn who_has_a_lock_of_pythons_is_named() {
    let functions = [
        ("observe", "/srv/shop.py"),
        ("PyThread_acquire_lock_timed", ""),
    ];
    let mut report = report(&["main", "worker-1", "worker-2"], &functions);
    report.metadata.recording.duration_ns = 1000 * MS;
    report.metadata.functions[0].module = "python".to_owned();
    for thread in [1, 2] {
        let wait = SegmentKind::Blocked(Probe::SemWait.into());
        add(&mut report, thread, &[0], SegmentKind::Running, 60);
        add(&mut report, thread, &[0, 1], wait, 90);
    }
    let own = "1.80 s waiting for a lock (sem_wait in observe at shop.py:12)";
    assert!(said(&report).ends_with(own), "{}", said(&report));
    let wait = LongWait {
        thread: ThreadIndex(1),
        owner: None,
        probe: Probe::SemWait.into(),
        begin_ns: 0,
        end_ns: 900 * MS,
        stack: StackIndex::NONE,
        object: 1,
        result: 0,
        waker: Some(ThreadIndex(2)),
        wake: None,
    };
    let [waiting, library] =
        [[0, 1], [2, 1]].map(|stack| report.profile.tree.path(&stack.map(FunctionIndex)));
    let waking = report.profile.tree.path(&[FunctionIndex(0)]);
    report.waits.add(&wait, waiting, Some(waking));
    let own = "1.80 s waiting for a lock held by worker-2 in observe at shop.py:12 (sem_wait in observe at \
               shop.py:12)";
    assert!(said(&report).ends_with(own), "{}", said(&report));
    // Of what is made of such a lock, nobody holds it.
    report.metadata.functions.push(FunctionName {
        name: "get".to_owned(),
        module: "python".to_owned(),
        file: "/usr/lib/python3.11/queue.py".to_owned(),
        line: 170,
    });
    let by_queue = LongWait {
        end_ns: 5000 * MS,
        waker: Some(ThreadIndex(0)),
        ..wait
    };
    report.waits.add(&by_queue, library, Some(waking));
    assert!(said(&report).ends_with(own), "{}", said(&report));
}

/// An event loop's thread, in which a function waits for an answer, and a pool whose workers wait for a lock.
#[test]
fn what_holds_up_an_event_loop_and_its_pool_is_named() {
    let functions = [
        ("<module>", "/srv/serve.py"),
        ("select", "/usr/lib/python3.11/selectors.py"),
        ("resolve", "/srv/shop.py"),
        ("price", "/srv/shop.py"),
        ("PyThread_acquire_lock_timed", ""),
    ];
    let mut report = report(&["main", "pool-1", "pool-2"], &functions);
    report.metadata.recording.duration_ns = 1000 * MS;
    for function in &mut report.metadata.functions[..4] {
        function.module = "python".to_owned();
    }
    add(&mut report, 0, &[0, 1], SegmentKind::Running, 10);
    let events = SegmentKind::Blocked(Probe::EpollWait.into());
    add(&mut report, 0, &[0, 1], events, 40);
    let loops = "80 % waiting for events (epoll_wait in select at selectors.py:12)";
    assert!(said(&report).contains(loops), "{}", said(&report));
    let answers = SegmentKind::Blocked(Probe::Poll.into());
    add(&mut report, 0, &[0, 1, 2], answers, 50);
    let both = "90 % waiting for events (mostly poll in resolve at shop.py:12)";
    assert!(said(&report).starts_with(both), "{}", said(&report));
    let lock = SegmentKind::Blocked(Probe::SemWait.into());
    for thread in [1, 2] {
        add(&mut report, thread, &[3, 4], lock, 60);
    }
    let expected = "1.20 s waiting for a lock (sem_wait in price at shop.py:12); 500 ms waiting for events \
                    (poll in resolve at shop.py:12)";
    assert!(said(&report).ends_with(expected), "{}", said(&report));
}

/// A report whose threads are main threads of processes with their names.
fn processes(names: &[&str]) -> Report {
    let mut report = report(names, &FUNCTIONS);
    report.metadata.recording.duration_ns = 1000 * MS;
    let process = |(i, name): (usize, &&str)| ProcessRow {
        pid: 10 + i as u32,
        upid: 1 + i as u32,
        name: (*name).to_owned(),
        end_ns: 1000 * MS,
        ..ProcessRow::default()
    };
    report.metadata.processes = names.iter().enumerate().map(process).collect();
    for (i, thread) in report.metadata.threads.iter_mut().enumerate() {
        (thread.process, thread.pid, thread.is_main) = (i, 10 + i as u32, true);
    }
    report
}

#[test]
fn of_several_programs_each_is_named() {
    let mut report = processes(&["sh", "sed", "sort"]);
    let io = SegmentKind::Blocked(Probe::Read.into());
    add(&mut report, 1, &[0, 2], SegmentKind::Running, 45);
    add(&mut report, 2, &[0, 3], SegmentKind::Running, 40);
    add(&mut report, 2, &[0, 3], io, 60);
    add(&mut report, 1, &[0, 2], io, 50);
    assert_eq!(
        said(&report),
        "sed computed 450 ms (100 % in parse at json.py:12), sort 400 ms (100 % in lookup [shop]); \
         600 ms waiting for I/O in sort (read in lookup [shop])"
    );
}

#[test]
fn a_loop_that_starts_processes_is_told_by_their_number() {
    let names = ["sh"].into_iter().chain(["expr"; 120]);
    let mut report = processes(&names.collect::<Vec<_>>());
    for (i, process) in report.metadata.processes.iter_mut().enumerate().skip(1) {
        process.begin_ns = i as u64 * 8 * MS;
        process.end_ns = process.begin_ns + 5 * MS;
    }
    for thread in 0..121 {
        add(&mut report, thread, &[0, 2], SegmentKind::Running, 1);
    }
    // The shell only helps.
    let begin =
        "120 processes, half of them shorter than 5.00 ms; 119 processes of expr computed 1.20 s";
    assert!(said(&report).starts_with(begin), "{}", said(&report));
    // Those that live for long are no loop's.
    for process in &mut report.metadata.processes {
        (process.begin_ns, process.end_ns) = (0, 800 * MS);
    }
    let long = said(&report);
    assert!(!long.contains("half of them"), "{long}");
}

#[test]
fn a_program_that_helpers_start_is_described_alone() {
    let mut report = processes(&["bash", "python3", "sed"]);
    let io = SegmentKind::Blocked(Probe::Read.into());
    add(&mut report, 0, &[4], SegmentKind::Running, 1);
    add(&mut report, 0, &[4], io, 300);
    add(&mut report, 1, &[0, 2], SegmentKind::Running, 90);
    add(&mut report, 2, &[4], SegmentKind::Running, 1);
    assert_eq!(
        said(&report),
        "python3 100 % computing (100 % in parse at json.py:12)"
    );
    // Those are asked for alone.
    let of_bash = verdict(&report, &|thread| thread == ThreadIndex(0));
    assert!(of_bash.expect("ran").contains("waiting for I/O (read"));
}

#[test]
fn what_was_computed_is_said_however_long_others_had_the_processor() {
    let mut report = report(&["main"], &FUNCTIONS);
    let functions = [FunctionIndex(0), FunctionIndex(2)];
    let path = report.profile.tree.path(&functions);
    for _ in 0..40 {
        let mut piece = segment(0, 100 * MS, SegmentKind::Running);
        (piece.metrics.cpu_ns, piece.metrics.runnable_ns) = (2 * MS, 98 * MS);
        piece.evidence.squares = u128::from(2 * MS).pow(2);
        report.profile.add(&piece, path);
    }
    assert_eq!(
        said(&report),
        "98 % waiting for a processor; 2 % computing (2 % in parse at json.py:12)"
    );
}

#[test]
fn threads_that_sleep_between_what_they_compute_are_held_up() {
    let mut report = report(&["main", "worker-1", "worker-2"], &FUNCTIONS);
    report.metadata.recording.duration_ns = 1000 * MS;
    let sleep = SegmentKind::Blocked(Probe::Nanosleep.into());
    for thread in [1, 2] {
        add(&mut report, thread, &[2], SegmentKind::Running, 60);
        add(&mut report, thread, &[1], sleep, 40);
    }
    // One that wakes up now and then is not.
    add(&mut report, 0, &[3], sleep, 95);
    add(&mut report, 0, &[3], SegmentKind::Running, 5);
    assert_eq!(
        said(&report),
        "3 threads computed 1.25 s (96 % in parse at json.py:12); 800 ms sleeping (nanosleep in load at \
         json.py:12)"
    );
}

#[test]
fn a_server_without_work_is_idle() {
    let mut report = report(&["main", "worker-1"], &FUNCTIONS);
    report.metadata.recording.duration_ns = 1000 * MS;
    let events = SegmentKind::Blocked(Probe::EpollWait.into());
    add(&mut report, 0, &[0, 1], events, 99);
    add(&mut report, 0, &[0, 1], SegmentKind::Running, 1);
    add(&mut report, 1, &[2], SegmentKind::Running, 1);
    assert_eq!(
        said(&report),
        "mostly idle: 99 % waiting for events (epoll_wait in load at json.py:12); 2 threads computed 20.0 ms"
    );
    // Threads that all wait for one another are not.
    let lock = SegmentKind::Blocked(Probe::MutexLock.into());
    add(&mut report, 1, &[1], lock, 99);
    assert_eq!(
        said(&report),
        "990 ms waiting for a lock (pthread_mutex_lock in load at json.py:12); 2 threads computed 20.0 ms"
    );
}

#[test]
fn a_wait_for_a_processor_is_no_computing() {
    let mut report = report(&["main", "worker-1"], &FUNCTIONS);
    report.metadata.recording.duration_ns = 1000 * MS;
    let path = report
        .profile
        .tree
        .path(&[FunctionIndex(0), FunctionIndex(2)]);
    for i in 0..200 {
        let mut piece = segment(0, 10 * MS, SegmentKind::Running);
        piece.thread = ThreadIndex(i % 2);
        piece.metrics.cpu_ns = 4 * MS;
        piece.metrics.runnable_ns = 6 * MS;
        report.profile.add(&piece, path);
    }
    assert_eq!(
        said(&report),
        "2 threads computed 800 ms (100 % in parse at json.py:12); 1.20 s waiting for a processor"
    );
    let one = verdict(&report, &|thread| thread == ThreadIndex(0));
    assert_eq!(
        one.as_deref(),
        Some("60 % waiting for a processor; 40 % computing (40 % in parse at json.py:12)")
    );
}
