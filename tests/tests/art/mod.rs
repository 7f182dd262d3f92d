//! Android's hooks on real ARTs in Linux processes (scripts/install-art.sh): what the Java program says it
//! did, and what the trace says.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

pub(crate) mod app;
mod kotlin;
mod records;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use stackbeat_core::probe::Probe;
use stackbeat_proto::columns::SampleRow;
use stackbeat_proto::v1::NodeKind;
use stackbeat_tests::plain_reader::{Frame, Trace};
use stackbeat_tests::tool::{binary, json, stackbeat, text};
use stackbeat_tests::tool_json::array;
use stackbeat_tests::{built, scratch, target_folder, viewers, workspace};

/// The folder that has the ARTs.
fn folder() -> PathBuf {
    workspace().join("target/art")
}

/// The versions that are there.
fn versions() -> Vec<u8> {
    let is_there = |version: &u8| folder().join(format!("{version}/run-art")).is_file();
    let found: Vec<u8> = [11, 14].into_iter().filter(is_there).collect();
    if found.is_empty() {
        eprintln!("skipped: no ART is here, scripts/install-art.sh target/art gets them");
    }
    found
}

/// The hooks, where they are also when only the package's tests were built.
fn hooks() -> &'static Path {
    static HOOKS: OnceLock<PathBuf> = OnceLock::new();
    HOOKS.get_or_init(|| {
        built(
            target_folder().join("deps/libstackbeat_art_rig.so"),
            &["--package", "stackbeat-art-rig"],
        )
    })
}

/// Java programs, as dex in a folder of their own.
fn dex<S: AsRef<Path>>(sources: &[S]) -> (tempfile::TempDir, PathBuf) {
    let scratch = scratch();
    let jar = scratch.path().join("program.jar");
    let output = Command::new(folder().join("dex-it"))
        .arg(&jar)
        .args(sources.iter().map(|source| workspace().join(source)))
        .output()
        .expect("dex-it runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    (scratch, jar)
}

/// The Java program, as dex, with a class that has more methods than are named at once.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, program) = PROGRAM.get_or_init(|| {
        let scratch = scratch();
        let large = scratch.path().join("Large.java");
        let methods = (0..400).map(|n| format!("static void m{n}() {{}}\n"));
        let methods: String = methods.collect();
        let stays = "public static void stays(int ms) { Program.stick(ms); }";
        std::fs::write(
            &large,
            format!("public class Large {{\n{methods}{stays}\n}}\n"),
        )
        .expect("is written");
        dex(&[Path::new("tests/tests/art/Program.java"), &large])
    });
    program
}

/// Times are compared, so no two run at once.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One recording of the program.
struct Recorded {
    /// What it said, a line each.
    said: Vec<String>,
    /// The same on stderr.
    errors: String,
    /// With the trace's file.
    folder: tempfile::TempDir,
    trace: Trace,
    /// What the hooks said of themselves: the last word of each line by the others.
    status: BTreeMap<String, u64>,
}

fn record(version: u8, options: &[&str], arguments: &[&str]) -> Recorded {
    record_with(version, options, arguments, &[])
}

fn record_with(version: u8, options: &[&str], arguments: &[&str], variables: &[&str]) -> Recorded {
    record_on(version, &[], options, arguments, variables)
}

/// On a machine that has these options.
fn record_on(
    version: u8,
    machine: &[&str],
    options: &[&str],
    arguments: &[&str],
    variables: &[&str],
) -> Recorded {
    let _one = one_at_a_time();
    let scratch = scratch();
    // Before others: what they take from the program between its clock and ART's call is nobody's error here.
    let mut command = Command::new("nice");
    command.args(["-n", "-10", binary(), "record", "-q", "-f", "-o", "t.beat"]);
    command.current_dir(scratch.path()).stdin(Stdio::null());
    let log = scratch.path().join("status");
    let output = command
        .args(options)
        .arg("--")
        .arg(folder().join(format!("{version}/run-art")))
        .args(machine)
        .arg(program())
        .arg("Program")
        .args(arguments)
        .env("ART_AGENT", hooks())
        .env("ART_AGENT_LOG", &log)
        .env("ART_AGENT_CHECK", "1")
        .envs(variables.iter().map(|name| (name, "1")))
        .output()
        .expect("stackbeat runs");
    assert!(output.status.success(), "ART {version}: {output:?}");
    let status = std::fs::read_to_string(&log).expect("the hooks say what they did");
    let status = status.lines().filter_map(|line| {
        let (what, count) = line.rsplit_once(' ')?;
        Some((what.to_owned(), count.parse().ok()?))
    });
    let recorded = Recorded {
        said: text(&output.stdout).lines().map(str::to_owned).collect(),
        errors: text(&output.stderr).to_owned(),
        trace: Trace::read(&scratch.path().join("t.beat")),
        folder: scratch,
        status: status.collect(),
    };
    // In each of them: walks are what is read without ART, and nothing of a hook is left in the code.
    assert_eq!(recorded.status("different"), 0, "ART {version}");
    assert_eq!(recorded.status("restored"), 1, "ART {version}");
    assert_eq!(recorded.trace.lost_records(), 0, "ART {version}");
    // The listener comes and goes without a suspension of all threads.
    let suspended = recorded.status("suspended-all-for-the-listener");
    assert_eq!(suspended, 0, "ART {version}");
    recorded
}

impl Recorded {
    /// The tid of the thread with this name.
    fn tid(&self, name: &str) -> u32 {
        let threads = self.trace.threads.values();
        let found: Vec<u32> = threads.filter(|t| t.name == name).map(|t| t.tid).collect();
        assert_eq!(found.len(), 1, "threads {name}");
        found[0]
    }

    /// The samples of a probe in a thread.
    fn rows(&self, name: &str, probe: Probe) -> Vec<&SampleRow> {
        let mut rows = self.rows_of_thread(name);
        rows.retain(|row| row.probe == probe as u8);
        rows
    }

    /// All samples in a thread.
    fn rows_of_thread(&self, name: &str) -> Vec<&SampleRow> {
        let tid = self.tid(name);
        let rows = self.trace.all_samples();
        rows.filter(|(thread, _)| self.trace.threads.get(thread).is_some_and(|t| t.tid == tid))
            .map(|(_, row)| row)
            .collect()
    }

    /// Begin and duration of what the program says of one kind, ns of the monotonic clock.
    fn said_waits(&self, what: &str) -> Vec<(u64, u64)> {
        let lines = self.said.iter().filter(|line| line.starts_with(what));
        let wait = |line: &String| {
            let mut words = line.rsplit(' ').map(|word| word.parse().ok());
            let (duration, begin) = (words.next()??, words.next()??);
            Some((begin, duration))
        };
        lines.map(wait).collect::<Option<_>>().expect("numbers")
    }

    fn status(&self, what: &str) -> u64 {
        *self
            .status
            .get(what)
            .unwrap_or_else(|| panic!("{what} in {:?}", self.status))
    }
}

fn is_java(frame: &Frame) -> bool {
    matches!(
        frame.kind,
        NodeKind::Managed | NodeKind::ManagedInlined | NodeKind::ManagedInterpreted
    )
}

/// How well a row's moments are known in ns: cycles are converted.
const CLOCK_NS: u64 = 20_000;

/// Waits of one thread that another one ends, each as long as the program says, with who ended it.
fn assert_waits(recorded: &Recorded, what: &str, waits: (&str, Probe), ended_by: &str) {
    // Some begin when what they wait for is over.
    let mut said = recorded.said_waits(what);
    said.retain(|(_, ns)| *ns >= 3_500_000);
    assert!(said.len() >= 150, "{said:?}");
    let rows: Vec<&SampleRow> = recorded
        .rows(waits.0, waits.1)
        .into_iter()
        .filter(|row| row.duration_ns >= 3_000_000)
        .collect();
    // Each row lies in the one wait of the program's, as its clock has it.
    let row_in = |&(begin, ns): &(u64, u64)| {
        let until = begin + ns + CLOCK_NS;
        let is_inside = |row: &&&SampleRow| {
            row.time_ns <= until && row.time_ns - row.duration_ns + CLOCK_NS >= begin
        };
        rows.iter().find(is_inside).map(|row| row.duration_ns)
    };
    let found: Vec<_> = said.iter().map(|wait| (wait.1, row_in(wait))).collect();
    let is_close =
        |&&(said, row): &&(u64, Option<u64>)| row.is_some_and(|ns| ns + 1_000_000 > said);
    let close = found.iter().filter(is_close).count();
    let others: Vec<_> = found.iter().filter(|pair| !is_close(pair)).collect();
    eprintln!("{what}: {close} of {}, not {others:?}", said.len());
    // 99 of 100, and some whose thread lost its processor between the program's clock and the wait: only on a
    // busy machine.
    assert!(others.len() <= said.len() / 100 + 3, "{what}: {others:?}");
    let waker = recorded.tid(ended_by);
    let known = rows
        .iter()
        .filter(|row| row.waker_tid == Some(waker))
        .count();
    assert!(
        known * 100 >= rows.len() * 95,
        "{what}: {known} of {} wakers: {:?}",
        rows.len(),
        rows.iter().map(|row| row.waker_tid).collect::<Vec<_>>()
    );
    let in_java = rows.iter().filter(|row| {
        let frames = recorded.trace.frames(row.node);
        frames
            .iter()
            .any(|frame| is_java(frame) && frame.name.starts_with("Program"))
    });
    assert!(in_java.count() >= rows.len() - 4, "{what}");
}

#[test]
fn contended_monitors_say_how_long_and_who_held_them() {
    for version in versions() {
        let recorded = record(version, &[], &["locks", "200"]);
        assert_waits(
            &recorded,
            "enter",
            ("contender", Probe::MonitorEnter),
            "holder",
        );
    }
}

/// What ART's lock waits by is a part of the wait for the lock, in the report and in Perfetto.
#[test]
fn contended_monitors_are_locks_for_whoever_reads() {
    for version in versions() {
        let recorded = record(version, &[], &["locks", "60"]);
        let said = recorded.said_waits("enter").into_iter();
        let said_ns: u64 = said.map(|(_, ns)| ns).filter(|ns| *ns >= 3_500_000).sum();
        let at = recorded.folder.path();
        let report = json(at, &["report", "--json", "t.beat"]);
        let mut threads = array(&report, "threads");
        let contender = threads.find(|t| t["name"] == "contender").expect("it");
        let in_report = contender["blocked_by_cause_ns"]["lock"].as_u64();
        let in_report = in_report.expect("a number");
        let exported = stackbeat(at, &["export", "-t", "perfetto", "-o", "t.p", "t.beat"]);
        assert!(exported.status.success(), "{exported:?}");
        let query = "select sum(slice.dur) as ns from slice join thread_track on slice.track_id = \
                     thread_track.id join thread using (utid) where thread.name = 'contender' and \
                     slice.name like '%[lock]'";
        let rows = viewers::trace_processor(&at.join("t.p"), &[query]);
        let in_perfetto = rows[0]["ns"].as_u64().expect("a number");
        eprintln!(
            "ART {version}: {said_ns} said, {in_report} in the report, {in_perfetto} in Perfetto"
        );
        for found in [in_report, in_perfetto] {
            assert!(found * 10 >= said_ns * 9, "{found} of {said_ns}");
        }
    }
}

#[test]
fn waits_say_how_long_and_who_notified() {
    for version in versions() {
        let recorded = record(version, &[], &["waits", "200"]);
        assert_waits(
            &recorded,
            "wait",
            ("waiter", Probe::MonitorWait),
            "notifier",
        );
    }
}

#[test]
fn parks_say_how_long_and_who_unparked() {
    for version in versions() {
        let recorded = record(version, &[], &["parks", "200"]);
        assert_waits(&recorded, "park", ("parker", Probe::Park), "unparker");
    }
}

/// The stacks that the program marks, outermost frame first: what it has of itself, and what the trace has.
fn marked(recorded: &Recorded) -> Vec<(Vec<String>, Vec<Frame>)> {
    let said = recorded.said.iter();
    let said = said.filter_map(|line| line.strip_prefix("stack "));
    let said = said.map(|line| line.split(' ').map(str::to_owned).collect());
    let rows = recorded.rows("marker", Probe::Park).into_iter();
    let rows = rows.filter(|row| row.duration_ns >= 3_000_000);
    let stacks: Vec<_> = rows.map(|row| recorded.trace.frames(row.node)).collect();
    let said: Vec<_> = said.collect();
    assert_eq!(stacks.len(), said.len());
    said.into_iter().zip(stacks).collect()
}

/// Whether the Java frames of a stack are those that the program says, method by method and line by line.
fn is_same_stack(said: &[String], stack: &[&Frame]) -> bool {
    let have: Vec<String> = stack
        .iter()
        .map(|f| format!("{}:{}", f.name, f.line))
        .collect();
    let name = |frame: &str| {
        frame
            .rsplit_once(':')
            .map_or("", |(name, _)| name)
            .to_owned()
    };
    let plain = |frame: &str| match frame.contains("$$Lambda$") {
        // It has no lines.
        true => name(frame),
        false => frame.to_owned(),
    };
    // The Throwable is made a line after the wait.
    let (mark, outer) = said.split_last().expect("frames");
    let same = have.len() > outer.len()
        && have.iter().zip(outer).all(|(a, b)| plain(a) == plain(b))
        && have.get(outer.len()).is_some_and(|marked| name(marked) == name(mark))
        // Behind the mark is what parks.
        && have[outer.len() + 1..].iter().all(|frame| !frame.starts_with("Program"));
    if !same && said.len() < 100 {
        eprintln!("said {said:?}\nhave {have:?}");
    }
    same
}

/// How many of the marked stacks are equal, and how many there are.
fn equal_stacks(recorded: &Recorded) -> (usize, usize) {
    let marked = marked(recorded);
    let is_equal = |(said, stack): &&(Vec<String>, Vec<Frame>)| {
        let java: Vec<&Frame> = stack.iter().filter(|frame| is_java(frame)).collect();
        is_same_stack(said, &java)
    };
    (marked.iter().filter(is_equal).count(), marked.len())
}

/// Stacks of marked points are those that the program has of itself, method by method and line by line.
#[test]
fn stacks_are_those_of_throwable() {
    for version in versions() {
        let recorded = record(version, &[], &["stacks", "60"]);
        let (equal, said) = equal_stacks(&recorded);
        assert_eq!(said, 60);
        // The first walks teach where ART keeps what.
        assert!(equal + 8 >= said, "ART {version}: {equal} of {said}");
    }
}

/// Each object counts, on the thread that makes it.
#[test]
fn allocations_are_those_of_the_program() {
    const COUNT: u64 = 400_000;
    for version in versions() {
        let recorded = record(version, &[], &["allocate", &COUNT.to_string()]);
        let objects = recorded.status("hook ObjectAllocated placed");
        assert!(
            (COUNT..COUNT + 1_000).contains(&objects),
            "ART {version}: {objects}"
        );
        let tid = recorded.tid("allocator");
        let ends = recorded.trace.thread_ends.iter();
        let mut counted = ends.filter_map(|(utid, end)| {
            let thread = recorded.trace.threads.get(utid)?;
            (thread.tid == tid).then_some(end.allocations)
        });
        // ART itself allocates in the thread, some times for the name of each method of its class.
        let counted = counted.next().expect("the thread's end");
        assert!(
            (COUNT..COUNT + 1_500).contains(&counted),
            "ART {version}: {counted}"
        );
        let rows = recorded.trace.all_samples();
        let rows = rows.filter(|(thread, _)| recorded.trace.threads[thread].tid == tid);
        let in_lambda = rows.filter(|(_, row)| {
            let frames = recorded.trace.frames(row.node);
            let java = frames.iter().rfind(|frame| is_java(frame));
            java.is_some_and(|frame| frame.name.starts_with("Program.lambda$allocate"))
        });
        assert!(in_lambda.count() > 3, "ART {version}");
    }
}

/// The heap's listener comes and goes while threads allocate, start and end, and the collector works.
#[test]
fn programs_run_as_ever_while_the_listener_comes_and_goes() {
    for version in versions() {
        let jar = program().to_str().expect("UTF-8").to_owned();
        let recorded = record_with(
            version,
            &[],
            &["stress", "3000", &jar],
            &["ART_AGENT_LISTEN"],
        );
        let (listened, changed) = (
            recorded.status("listened"),
            recorded.status("changed-at-checkpoints"),
        );
        eprintln!("ART {version}: {changed} changes of threads, {listened} times");
        // Each time for all of its nine threads and the machine's own.
        assert!(
            listened > 20 && changed > 9 * listened,
            "{changed}, {listened}"
        );
    }
}

/// The library with the native methods of `Program`.
fn sticking_library() -> &'static str {
    static LIBRARY: OnceLock<(tempfile::TempDir, String)> = OnceLock::new();
    let (_, library) = LIBRARY.get_or_init(|| {
        let scratch = scratch();
        let library = scratch.path().join("stick.so");
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .arg(&library)
            .arg(workspace().join("tests/tests/art/stick.c"))
            .output()
            .expect("cc runs");
        assert!(compiled.status.success(), "{compiled:?}");
        let library = library.to_str().expect("UTF-8").to_owned();
        (scratch, library)
    });
    library
}

/// A thread that comes to no safepoint holds up whoever suspends all threads, and not the listener.
#[test]
fn the_listener_waits_for_no_safepoint() {
    const STUCK_MS: u64 = 4000;
    for version in versions() {
        let arguments = ["sticks", &STUCK_MS.to_string(), sticking_library()];
        let recorded = record_with(version, &[], &arguments, &["ART_AGENT_LISTEN"]);
        let longest = recorded.status("longest-change-of-the-listener-ms");
        eprintln!("ART {version}: {longest} ms");
        assert!(recorded.status("listened") > 0, "it came and went");
        assert!(longest < STUCK_MS / 2, "{longest} ms");
    }
}

/// A thread that stays in a native method passes no hook of ART's. Others name what it has on its stack.
#[test]
fn a_thread_in_native_code_gets_names_from_others() {
    for version in versions() {
        let arguments = ["sticks", "2000", sticking_library()];
        let recorded = record(version, &[], &arguments);
        let tid = recorded.tid("sticking");
        let rows = recorded.trace.all_samples();
        let rows = rows.filter(|(thread, _)| recorded.trace.threads[thread].tid == tid);
        let (mut all, mut java, mut unknown) = (0, 0, 0);
        for (_, row) in rows {
            let frames = recorded.trace.frames(row.node);
            let numbers = recorded.trace.methods_of(row.node);
            all += 1;
            java += usize::from(frames.iter().any(is_java));
            unknown += usize::from(numbers.into_iter().any(|number| number == 0));
        }
        eprintln!(
            "ART {version}: {all} samples, {java} with Java, {unknown} of them with unknown methods"
        );
        assert!(java > 50 && unknown * 5 < java, "{unknown} of {java}");
    }
}

/// The same where the method's class has so many that not all of them are asked for.
#[test]
fn a_method_of_a_large_class_gets_its_name_from_others() {
    for version in versions() {
        let recorded = record(version, &[], &["large", "2000", sticking_library()]);
        let tid = recorded.tid("sticking");
        let rows = recorded.trace.all_samples();
        let rows = rows.filter(|(thread, row)| {
            recorded.trace.threads[thread].tid == tid && row.probe != Probe::Safepoint as u8
        });
        let stacks: Vec<_> = rows
            .map(|(_, row)| recorded.trace.stack(row.node))
            .collect();
        let stays = stacks
            .iter()
            .filter(|stack| stack.iter().any(|name| name == "Large.stays"));
        let stays = stays.count();
        eprintln!("ART {version}: {stays} of {} samples", stacks.len());
        assert!(stays > 50, "{stays} of {}", stacks.len());
    }
}

/// A thread that computes is interrupted anywhere. Where Java runs in the interpreter, its methods are known
/// then, too.
#[test]
fn computing_threads_show_their_methods() {
    for version in versions() {
        let recorded = record(version, &["--interval", "500us"], &["computes", "600"]);
        let tid = recorded.tid("computer");
        let rows: Vec<_> = recorded
            .trace
            .all_samples()
            .filter(|(thread, row)| {
                recorded.trace.threads[thread].tid == tid && row.duration_ns == 0
            })
            .collect();
        let with = |name: &str| {
            let stacks = rows.iter().map(|(_, row)| recorded.trace.stack(row.node));
            stacks
                .filter(|stack| stack.iter().any(|frame| frame == name))
                .count()
        };
        let (all, known) = (rows.len(), with("Program.lambda$computes$8"));
        eprintln!(
            "ART {version}: {all} samples, {known} with the method, {} computing",
            with("Program.compute")
        );
        assert!(all > 50, "{all}");
        // The walk of 11's native stack may end at the first frame of the interpreter: then only the method
        // that runs is known.
        let computing = with("Program.compute");
        assert!(
            known * 2 > all && computing * 2 > all,
            "{known} and {computing} of {all}"
        );
    }
}

/// A thread that passes no hook is brought to a safepoint, where its stack is whole, also if an interruption
/// can read none of its frames.
#[test]
fn a_loop_that_passes_no_hook_shows_its_method() {
    for version in versions() {
        for blind in [&[][..], &["ART_AGENT_BLIND"]] {
            let recorded = record_with(version, &[], &["spins", "1000"], blind);
            let tid = recorded.tid("spinner");
            let rows = recorded.trace.all_samples().filter(|(thread, row)| {
                recorded.trace.threads[thread].tid == tid && row.duration_ns == 0
            });
            let (mut all, mut spinning, mut safepoints, mut whole) = (0, 0, 0, 0);
            for (_, row) in rows {
                all += 1;
                let frames = recorded.trace.frames(row.node);
                let java: Vec<&str> = frames
                    .iter()
                    .filter(|f| is_java(f))
                    .map(|f| &*f.name)
                    .collect();
                spinning += usize::from(java.contains(&"Program.spin"));
                if row.probe == Probe::Safepoint as u8 {
                    safepoints += 1;
                    let stack = [
                        "java.lang.Thread.run",
                        "Program.lambda$spins$9",
                        "Program.spin",
                    ];
                    whole += usize::from(stack.iter().all(|name| java.contains(name)));
                }
            }
            let brought = recorded.status("brought-to-safepoints");
            eprintln!(
                "ART {version} {blind:?}: {all} samples, {spinning} with the method, {safepoints} at safepoints, \
                 {whole} of them whole; {brought} suspensions"
            );
            // On a busy machine the first safepoints come late, and until then nothing has a name.
            assert!(all > 50 && spinning * 2 > all, "{spinning} of {all}");
            assert!(safepoints > 0 && brought > 0);
            if !blind.is_empty() {
                assert!(safepoints > 4, "{safepoints} of {all}");
            }
            // The first walks teach where ART keeps what.
            assert!(whole + 10 >= safepoints, "{whole} of {safepoints}");
        }
    }
}

/// How often these threads were sampled at a safepoint in the time from `from` to `until`.
fn at_safepoints(recorded: &Recorded, utid: u32, from: u64, until: u64) -> usize {
    let rows = recorded.trace.all_samples().filter(|(thread, row)| {
        *thread == utid
            && row.probe == Probe::Safepoint as u8
            && (from..until).contains(&row.time_ns)
    });
    rows.count()
}

/// A thread that comes to no safepoint for long holds up those of its group. The main thread and the other
/// group are brought to safepoints as before. With one group it holds up all.
#[test]
fn a_late_thread_holds_up_only_its_own_group() {
    for version in versions() {
        for one_group in [&[][..], &["ART_AGENT_ONE_GROUP"]] {
            let recorded = record_on(
                version,
                &["-XX:ThreadSuspendTimeout=60000"],
                &["--interval", "1ms"],
                &["beside", "6000", sticking_library()],
                &[&["ART_AGENT_BLIND"], one_group].concat(),
            );
            let (begin, ns) = recorded.said_waits("late")[0];
            // It asks when it is interrupted first.
            let (from, until) = (begin + ns / 4, begin + ns * 9 / 10);
            let of = |utid: &u32| at_safepoints(&recorded, *utid, from, until);
            let threads = &recorded.trace.threads;
            let main = threads.iter().find(|(_, thread)| thread.is_main);
            let main = main.map(|(utid, _)| of(utid)).expect("the main thread");
            let spinners = threads
                .iter()
                .filter(|(_, thread)| thread.name.starts_with("spinner-"));
            let spinners: Vec<usize> = spinners.map(|(utid, _)| of(utid)).collect();
            eprintln!(
                "ART {version} {one_group:?}: {main} samples of the main thread at safepoints, {spinners:?} of others"
            );
            assert_eq!(recorded.status("faults"), 0);
            assert_eq!(spinners.len(), 4);
            let free = |count: &&usize| **count >= 5;
            let held_up = |count: &&usize| **count == 0;
            let (free, held_up) = (
                spinners.iter().filter(free).count(),
                spinners.iter().filter(held_up).count(),
            );
            match one_group.is_empty() {
                // Numbers of threads follow each other, and so do groups.
                true => assert!(
                    main >= 5 && free >= 1 && held_up >= 1,
                    "{main}, {spinners:?}"
                ),
                false => assert!(main == 0 && held_up == 4, "{main}, {spinners:?}"),
            }
        }
    }
}

/// A thread that comes to no safepoint is given up by ART, three times. Then nobody is suspended any more,
/// and the program never sees it.
#[test]
fn suspensions_that_art_gives_up_end_after_three() {
    for version in versions() {
        let recorded = record_on(
            version,
            &["-XX:ThreadSuspendTimeout=200"],
            &[],
            &["burns", "3000", sticking_library()],
            &["ART_AGENT_BLIND"],
        );
        assert_eq!(recorded.status("faults"), 3, "ART {version}");
        let said = "Java by suspension has ended: ART gave up to suspend threads";
        assert!(recorded.errors.contains(said), "{}", recorded.errors);
        // It is sampled where it is.
        let tid = recorded.tid("burning");
        let rows = recorded.trace.all_samples();
        let rows = rows.filter(|(thread, _)| recorded.trace.threads[thread].tid == tid);
        let in_native = rows.filter(|(_, row)| row.probe != Probe::Safepoint as u8);
        assert!(in_native.count() > 100);
    }
}

/// Each hook walks, while threads allocate, lock, throw, load and unload classes, and collect.
#[test]
fn programs_run_as_ever_while_each_hook_walks() {
    for version in versions() {
        let jar = program().to_str().expect("UTF-8").to_owned();
        let arguments = ["stress", "3000", &jar];
        let recorded = record_with(
            version,
            &["--interval", "100us"],
            &arguments,
            &["ART_AGENT_ALWAYS"],
        );
        assert!(
            recorded
                .said
                .iter()
                .filter(|line| line.starts_with("did "))
                .count()
                == 9
        );
        assert!(recorded.status("walks") > 10_000, "{:?}", recorded.status);
        assert!(recorded.status("forgotten") > 0, "{:?}", recorded.status);
    }
}

/// Threads are suspended at random and their stacks walked, while they allocate, lock, wait, load classes and
/// end.
#[test]
fn threads_that_are_suspended_run_on() {
    for version in versions() {
        let jar = program().to_str().expect("UTF-8").to_owned();
        let arguments = ["stress", "3000", &jar];
        let recorded = record_with(version, &[], &arguments, &["ART_AGENT_SUSPEND"]);
        let suspended = recorded.status("suspended");
        eprintln!("ART {version}: {suspended} suspensions");
        assert!(suspended > 1_000, "{:?}", recorded.status);
        assert!(recorded.status("suspended-frames") > suspended / 2);
        assert_eq!(recorded.status("suspension-timed-out"), 0);
    }
}
