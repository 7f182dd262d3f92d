//! Every hooked call does under the agent what it does without: results, errno, side effects, exit
//! status; and each is seen.

use stackbeat_core::probe::Probe;
use stackbeat_core::shm::layout::{drops, entry_state};
use stackbeat_core::shm::registry;
use stackbeat_tests::c_programs::{Session, assert_same, compile, run};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Runs a program without the agent, with it (each hook captures), with it while ticks run and its threads
/// are interrupted, and with hooks unpatched. Asserts that all look the same and that the probes were seen.
fn same(file: &str, arguments: &[&str], probes: &[Probe]) {
    same_built(file, &[], arguments, probes);
}

/// As [`same`], of a program that is compiled with these flags.
fn same_built(file: &str, flags: &[&str], arguments: &[&str], probes: &[Probe]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compile(folder.path(), file, flags);
    let arguments: Vec<_> = arguments
        .iter()
        .map(|a| a.replace("FOLDER", folder.path().to_str().expect("UTF-8")))
        .collect();
    let plain = run(Command::new(&program).args(&arguments));

    let session = Session::new().capture_all();
    let hooked = run(session.command(&program).args(&arguments));
    assert_same(file, &plain, &hooked);
    let samples = session.samples();
    for probe in probes {
        assert!(
            samples.contains_key(probe),
            "{file}: no {} among {samples:?}",
            probe.name()
        );
    }

    let session = Session::new()
        .tick(Duration::from_millis(1))
        .interrupt(Duration::from_micros(300));
    let interrupted = run(session.command(&program).args(&arguments));
    assert_same(file, &plain, &interrupted);

    let session = Session::new().unpatch_allocation().capture_all();
    let unpatched = run(session.command(&program).args(&arguments));
    assert_same(file, &plain, &unpatched);
}

#[test]
fn allocations() {
    use Probe::*;
    same(
        "alloc.c",
        &[],
        &[
            Malloc, Calloc, Realloc, Memalign, Mmap, Munmap, Mremap, Mprotect, Madvise,
        ],
    );
}

/// A program that asks whether a function is there gets the answer that it gets alone.
#[test]
fn functions_that_no_library_has() {
    same("absent.c", &[], &[]);
}

#[test]
fn locks() {
    use Probe::*;
    same(
        "locks.c",
        &[],
        &[
            MutexLock,
            MutexUnlock,
            RwlockRead,
            RwlockWrite,
            RwlockUnlock,
            SpinLock,
            ClockRead,
            ThreadCreate,
            ThreadJoin,
        ],
    );
}

#[test]
fn waits() {
    use Probe::*;
    same(
        "waits.c",
        &[],
        &[
            CondWait,
            CondSignal,
            SemWait,
            SemPost,
            SemaphoreSet,
            MessageReceive,
            MessageSend,
            BarrierWait,
            FutexWait,
            FutexWake,
            SignalWait,
            Nanosleep,
            Yield,
            Wait,
        ],
    );
}

#[test]
fn files() {
    use Probe::*;
    same(
        "io.c",
        &["FOLDER/file"],
        &[
            Read, Write, Sendfile, Splice, Open, Close, Fsync, Fcntl, Stat, FileLock,
        ],
    );
}

#[test]
fn streams_of_a_program_with_a_fileno_of_its_own() {
    use Probe::*;
    same(
        "own_fileno.c",
        &["FOLDER/file"],
        &[Open, Read, Write, Close],
    );
}

#[test]
fn sockets_and_polling() {
    use Probe::*;
    same(
        "net.c",
        &[],
        &[
            Connect, Accept, Send, Recv, Getsockopt, Poll, Select, EpollWait,
        ],
    );
}

#[test]
fn signals() {
    same("signals.c", &[], &[]);
}

#[test]
fn signals_where_the_first_of_ours_is_blocked() {
    same_built("signals.c", &["-DOURS=SIGWINCH"], &[], &[]);
}

/// One that is none of ours: its handlers have entrances.
#[test]
fn signals_of_the_programs_own() {
    same_built("signals.c", &["-DOURS=SIGCONT"], &[], &[]);
}

/// A signal that comes between a program's look at its handler's flag and its wait is missed hardly more
/// often than without us.
#[test]
fn signals_before_waits() {
    const CHANCE: u32 = 60;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compile(folder.path(), "missed.c", &["-D_GNU_SOURCE"]);
    let session = || {
        Session::new()
            .tick(Duration::from_millis(1))
            .interrupt(Duration::from_micros(300))
    };
    let missed = |command: &mut Command| {
        let output = run(command);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.trim()
            .parse::<u32>()
            .unwrap_or_else(|_| panic!("{output:?}"))
    };
    let plain = missed(&mut Command::new(&program));
    let hooked = missed(&mut session().command(&program));
    println!("of 10000 signals {plain} are missed plain, {hooked} recorded");
    assert!(
        hooked <= 2 * plain + CHANCE,
        "of 10000 signals {hooked} are missed, {plain} without the agent"
    );

    // In the hook for certain.
    let said = |how| {
        let output = run(session().command(&program).arg(how));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(said("once"), "came 1: -1 EINTR\nready: 1\n");
    assert_eq!(
        said("jump"),
        "handlers 1, jumps 1, interrupted 0, timers 0\n"
    );
}

#[test]
fn ignored_and_pending_signals() {
    same("ignored.c", &[], &[Probe::Spawn]);
}

/// Go's runtime installs its own handler by a raw system call.
#[test]
fn signals_as_before_glibc_2_34() {
    same("old_kill.c", &[], &[Probe::SignalSend]);
}

#[test]
fn handlers_installed_past_the_hooks() {
    same("raw_handler.c", &[], &[]);
}

#[test]
fn small_stacks() {
    same("altstack.c", &[], &[]);
}

#[test]
fn cancellation_and_thread_ends() {
    same("cancel.c", &[], &[Probe::ThreadCreate]);
}

#[test]
fn threads_that_end_at_any_instruction() {
    same("ends.c", &[], &[Probe::SignalWait]);
}

#[test]
fn handlers_on_the_stack_that_was_interrupted() {
    same("nested.c", &[], &[]);
}

#[test]
fn handlers_that_need_their_small_stack() {
    same("small_handler.c", &[], &[]);
}

#[test]
fn faults_that_are_blocked_stay_pending() {
    same("pending.c", &[], &[Probe::Malloc]);
}

#[test]
fn children_that_share_thread_locals() {
    same("shared_block.c", &[], &[Probe::Read, Probe::Write]);
}

/// No capture is refused because one before has been left.
#[test]
fn handlers_that_jump_out_of_captures() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compile(folder.path(), "jumps.c", &[]);
    let plain = run(&mut Command::new(&program));
    let session = Session::new().capture_all();
    let hooked = run(&mut session.command(&program));
    assert_same("jumps.c", &plain, &hooked);
    let refused = session.total(|entry| {
        let refused = &entry.drops[drops::REENTRANT];
        refused.load(Ordering::Relaxed)
    });
    assert_eq!(refused, 0);
    let captured = session.total(|entry| entry.samples.load(Ordering::Relaxed).into());
    assert!(captured > 2000, "{captured}");
}

#[test]
fn exceptions() {
    same("throw.cpp", &[], &[]);
}

#[test]
fn before_main_and_after_it() {
    same("life.c", &[], &[]);
}

#[test]
fn processes() {
    use Probe::*;
    same("process.c", &[], &[Fork, Exec, Spawn, Wait, Exit]);
}

#[test]
fn children_that_share_memory() {
    same("clone.c", &[], &[Probe::Vfork, Probe::Mremap]);
}

/// What they do is not their parent's doing.
#[test]
fn children_that_share_memory_are_others() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compile(folder.path(), "clone.c", &[]);
    let session = Session::new().capture_all();
    assert!(run(&mut session.command(&program)).status.success());
    let states: Vec<_> = registry::processes(&session.mapping)
        .map(|(_, process)| process.state.load(Ordering::Relaxed))
        .collect();
    // The program and what two of its children run.
    assert_eq!(states, [entry_state::LIVE; 3]);
}

/// A child whose environment was cleared, replaced or has another preload is recorded all the same.
#[test]
fn children_keep_the_agent() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compile(folder.path(), "process.c", &[]);
    let session = Session::new();
    let output = run(&mut session.command(&program));
    let errors = String::from_utf8_lossy(&output.stderr);
    let children = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter(|l| l.starts_with("child ") && !l.starts_with("child ended"))
        .count();
    let with_agent = errors.lines().filter(|l| *l == "preload 2").count();
    assert!(children > 20, "{children} children");
    assert_eq!(with_agent, children, "{errors}");
}

/// `dlopen` from a library finds what lies on that library's own RUNPATH.
#[test]
fn libraries_by_runpath() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let inner = folder.path().join("inner");
    std::fs::create_dir(&inner).expect("a folder");
    compile(&inner, "inner.c", &["-shared", "-fPIC"]);
    let runpath = format!("-Wl,--enable-new-dtags,-rpath,{}", inner.display());
    let outer = compile(folder.path(), "outer.c", &["-shared", "-fPIC", &runpath]);
    let program = compile(folder.path(), "library.c", &[]);
    let plain = run(Command::new(&program).arg(&outer));
    let session = Session::new().capture_all();
    let hooked = run(session.command(&program).arg(&outer));
    assert_same("library.c", &plain, &hooked);
    assert!(session.samples().contains_key(&Probe::LibraryLoad));
}
