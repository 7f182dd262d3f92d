//! Recordings that a clock of the kernel's samples (`--clock kernel` and `--clock timer`): what they hold,
//! and what they leave as it is.

use std::path::Path;

use serde_json::Value;
use stackbeat_tests::tool_json::{array, assert_adds_up, figure, number};
use stackbeat_tests::{
    Program, Recorded, compile, has_kernel_clock, info, json_of, report, scratch, verbatim,
};

/// Calls a test with each of these clocks that can be had here.
fn with_each_clock(test: impl Fn(&str, &Path)) {
    let kernel = has_kernel_clock().then_some("kernel");
    for clock in kernel.into_iter().chain(["timer"]) {
        eprintln!("--clock {clock}");
        test(clock, scratch().path());
    }
}

/// A program of this folder, recorded by a clock.
fn program(clock: &str, folder: &Path, name: &str, source: &str) -> Program {
    let program = compile(folder, name, source, &["-O1", "-g", "-pthread"]);
    Program::new([program.to_str().expect("UTF-8")]).options(&["--clock", clock])
}

#[test]
fn each_interval_of_computing_is_a_sample() {
    with_each_clock(each_interval_of_computing_is_a_sample_by);
}

fn each_interval_of_computing_is_a_sample_by(clock: &str, folder: &Path) {
    let recorded = program(clock, folder, "shares.c", include_str!("shares.c")).record(folder);
    assert!(recorded.run.output.status.success());
    let trace = recorded.trace.to_str().expect("UTF-8");
    let info = json_of(&["info", "--check", "--json", trace]);
    assert_adds_up(&info);
    assert_eq!(info["config"]["clock"], clock);
    // Nobody has sent a signal, nobody has waked up for a tick.
    assert_eq!(figure(&info, "signals_sent"), 0);
    assert!(figure(&info, "ticks") < 500, "{}", figure(&info, "ticks"));

    let report = report(&recorded.trace);
    let thread = array(&report, "threads").next().expect("a thread");
    let cpu_ms = number(thread, "cpu_ns") as f64 / 1e6;
    let samples = number(thread, "samples") as f64;
    assert!(cpu_ms > 1_000.0, "{thread:#}");
    // A tick of the kernel's is 1 to 10 ms, and some samples are those of calls.
    let expected = match clock {
        "kernel" => 0.85..1.35,
        _ => 0.08..1.35,
    };
    assert!(expected.contains(&(samples / cpu_ms)), "{thread:#}");

    let total = |name: &str| {
        let function = array(&report, "functions").find(|f| f["name"] == name);
        number(
            &function.unwrap_or_else(|| panic!("{name}: {report:#}"))["total"],
            "cpu_ns",
        ) as f64
    };
    let share = total("short_part") / (total("short_part") + total("long_part"));
    // 250 + 50 ms of 1,050, within four standard deviations of as many samples.
    let error = if clock == "timer" { 0.13 } else { 0.06 };
    assert!((share - 300.0 / 1_050.0).abs() < error, "{share}");
    // What the child has become computes, too.
    let shell = array(&report, "processes").any(|p| p["name"] == "sh");
    assert!(shell, "{report:#}");
}

/// Records a program that computes in bursts beside others on its processor.
fn beside_rivals(folder: &Path, options: &[&str]) -> Recorded {
    rival(folder).options(options).record(folder)
}

fn rival(folder: &Path) -> Program {
    let program = compile(folder, "shares.c", include_str!("shares.c"), &["-O1", "-g"]);
    Program::new([program.to_str().expect("UTF-8"), "beside"])
}

/// A signal from another processor takes a while. One that comes at a system call's end has found the call,
/// and not what ran when it was sent. Events do not have to come from anywhere.
#[test]
fn system_calls_get_no_time_of_what_runs_between_them() {
    spends_time_in_the_kernel("calls");
}

/// Events go off in user mode. What page faults take is sampled by their number.
#[test]
fn page_faults_are_time_of_the_function_that_touches_the_pages() {
    spends_time_in_the_kernel("faults");
}

/// Neither an event nor a hook sees them: such a process leaves its events.
#[test]
fn system_calls_that_no_hook_sees_have_their_time() {
    spends_time_in_the_kernel("unseen");
}

fn spends_time_in_the_kernel(by: &str) {
    if !has_kernel_clock() {
        eprintln!("not run: the kernel gives no such clock");
        return;
    }
    let scratch = scratch();
    let folder = scratch.path();
    let source = include_str!("kernel_time.c");
    let program = compile(folder, "kernel_time.c", source, &["-O1", "-g"]);
    let program = Program::new([program.to_str().expect("UTF-8"), by]);
    let recorded = program.options(&["--clock", "auto"]).record(folder);
    let report = report(&recorded.trace);
    let of = |name: &str| {
        let function = array(&report, "functions").find(|f| f["name"] == name);
        function.map_or(0, |f| number(&f["total"], "cpu_ns")) as f64
    };
    let said = recorded.run.stdout();
    let exact: Vec<f64> = (said.lines())
        .filter_map(|line| line.rsplit_once(' ')?.1.parse().ok())
        .collect();
    let [computes, in_kernel, used] = exact[..] else {
        panic!("{said}");
    };
    // Mapping and unmapping is time of the functions around it.
    let part_of = |name: &str| of(name) / (of("computes") + of(name));
    let true_part = in_kernel / (computes + in_kernel);
    let all = number(&report["totals"], "cpu_ns") as f64;
    let (found, true_share) = match by {
        "faults" => (part_of("touches"), true_part),
        "unseen" => (part_of("asks"), true_part),
        _ => (of("computes") / all, computes / used),
    };
    // 700 samples: four standard deviations are 0.08. What leaves its events does so after a part of its
    // time, and has 250 samples a second then. A fault counts for what one took when the recorder began.
    let within = if by == "calls" { 0.1 } else { 0.2 };
    assert!((found - true_share).abs() < within, "{found}, {said}");
}

/// Timers go off with the kernel's tick, with which a thread that has waited for a processor begins to run,
/// too. So the default leaves such a process with events.
#[test]
fn shares_are_true_beside_rivals_for_the_processor() {
    let scratch = scratch();
    let recorded = beside_rivals(scratch.path(), &["--clock", "auto"]);
    assert_short_part_is_a_quarter(&recorded);
}

/// Without events it is on ticks, which get as far apart as timers go off when it has computed for a second.
#[test]
fn shares_are_true_beside_rivals_without_events() {
    let scratch = scratch();
    let folder = scratch.path();
    let program = rival(folder).variable("STACKBEAT_NO_EVENTS", "1");
    let recorded = program.options(&["--clock", "auto"]).record(folder);
    assert_short_part_is_a_quarter(&recorded);
    let info = info(&recorded.trace);
    let of = ["kept", "by_budget", "asked"];
    let [kept, by_budget, asked] = of.map(|of| figure(&info, &format!("intervals_{of}_ns")));
    let stretch = kept as f64 / asked as f64;
    assert!(stretch > 1.2, "ticks {stretch} times as far apart");
    assert_eq!(by_budget, asked, "the budget has no part in it");
}

fn assert_short_part_is_a_quarter(recorded: &Recorded) {
    let report = report(&recorded.trace);
    let parts = ["short_part", "long_part"].map(|name| {
        let function = array(&report, "functions").find(|f| f["name"] == name);
        number(&function.expect("is there")["total"], "cpu_ns") as f64
    });
    let share = parts[0] / (parts[0] + parts[1]);
    // Timers give up to 0.8. What ticks 4 ms apart give scatters by some 0.04 on a busy machine.
    assert!((share - 0.25).abs() < 0.15, "{share}");
}

/// A thread that computes for 3.6 ms in all has its samples also where it is one of a thousand that want a
/// processor, and the recorder is another one.
#[test]
fn shares_are_true_among_a_thousand_threads_at_once() {
    if !has_kernel_clock() || !may_be_less_nice() {
        eprintln!("not run: the kernel gives no such clock, or the recorder may not be less nice");
        return;
    }
    // The default's samples are 4 ms apart once a second has been computed, and few threads get that far
    // before.
    for (clock, within, least) in [("kernel", 0.1, 1_800.0), ("auto", 0.3, 400.0)] {
        let scratch = scratch();
        let folder = scratch.path();
        let source = include_str!("many_threads.c");
        let flags = ["-O1", "-g", "-pthread"];
        let program = compile(folder, "many_threads.c", source, &flags);
        let program = Program::new([program.to_str().expect("UTF-8"), "1000"]);
        let recorded = program.options(&["--clock", clock]).record(folder);
        let report = report(&recorded.trace);
        let parts = ["short_part", "long_part"].map(|name| {
            let function = array(&report, "functions").find(|f| f["name"] == name);
            let total = &function.unwrap_or_else(|| panic!("{report:#}"))["total"];
            ["cpu_ns", "running_samples"].map(|figure| number(total, figure) as f64)
        });
        let [[short_ns, short], [long_ns, long]] = parts;
        let share = short_ns / (short_ns + long_ns);
        assert!((share - 0.25).abs() < within, "{clock}: {parts:?}");
        // Of 3,600 intervals.
        assert!(short + long > least, "{clock}: {parts:?}");
    }
}

fn may_be_less_nice() -> bool {
    // Of this thread alone, which ends.
    let asked = std::thread::spawn(|| rustix::process::setpriority_process(None, -15).is_ok());
    asked.join().expect("asks")
}

/// An event of the kernel's clock comes about when the kernel's tick does, so others often get the processor
/// in the middle of a capture. That is no cost.
#[test]
fn what_captures_cost_is_cpu_time() {
    if !has_kernel_clock() {
        eprintln!("not run: the kernel gives no such clock");
        return;
    }
    let scratch = scratch();
    let folder = scratch.path();
    let options = ["--clock", "kernel", "--budget", "0"];
    let program = compile(folder, "shares.c", include_str!("shares.c"), &["-O1", "-g"]);
    let alone = Program::new([program.to_str().expect("UTF-8")]).options(&options);
    let [alone, beside] = [alone, rival(folder).options(&options)].map(|program| {
        let info = info(&program.record(folder).trace);
        figure(&info, "cost_captures_ns") as f64 / number(&info["counts"], "samples") as f64
    });
    // A half is usual, because its stacks are fewer; it was 2.5 with the time off the processor.
    assert!(
        beside > 0.0 && beside < 1.5 * alone,
        "{beside} ns each, {alone} without rivals"
    );
}

/// Each sample of a tick stands for as much CPU time as any other, also where bursts of computing are about
/// as long as the interval and others have the processor in the middle of them.
#[test]
fn shares_beside_rivals_are_those_of_the_samples() {
    let scratch = scratch();
    let folder = scratch.path();
    let mut of = [0.0; 4];
    for _ in 0..2 {
        let recorded = beside_rivals(folder, &["--clock", "tick", "--interval", "4ms"]);
        let report = report(&recorded.trace);
        let figures = ["cpu_ns", "running_samples"];
        let all = figures
            .iter()
            .flat_map(|figure| ["short_part", "long_part"].map(|name| (name, *figure)));
        for (sum, (name, figure)) in of.iter_mut().zip(all) {
            let function = array(&report, "functions").find(|f| f["name"] == name);
            *sum += number(&function.expect("is there")["total"], figure) as f64;
        }
    }
    let [short, long, short_samples, long_samples] = of;
    let (by_time, by_count) = (
        short / (short + long),
        short_samples / (short_samples + long_samples),
    );
    assert!(
        (by_time - by_count).abs() < 0.04,
        "{by_time} and {by_count}: {of:?}"
    );
}

#[test]
fn no_call_is_interrupted_that_no_hook_sees() {
    with_each_clock(no_call_is_interrupted_that_no_hook_sees_by);
}

fn no_call_is_interrupted_that_no_hook_sees_by(clock: &str, folder: &Path) {
    let storm = program(clock, folder, "storm.c", include_str!("storm.c")).options(&[
        "--interval",
        "50us",
        "--budget",
        "0",
    ]);
    let recorded = storm.record(folder);
    assert_eq!(recorded.run.stdout(), "0 interrupted, 0 cut\n");
    assert!(
        recorded.run.output.status.success(),
        "{}",
        recorded.run.stderr()
    );
    let samples = number(&info(&recorded.trace)["counts"], "samples");
    assert!(
        samples > if clock == "timer" { 50 } else { 1_000 },
        "{samples}"
    );
}

#[test]
fn masks_and_handlers_of_the_program_are_what_they_would_be() {
    with_each_clock(masks_and_handlers_of_the_program_are_what_they_would_be_by);
}

fn masks_and_handlers_of_the_program_are_what_they_would_be_by(clock: &str, folder: &Path) {
    let masks = program(clock, folder, "masks.c", include_str!("masks.c"));
    let recorded = masks.record_and_compare(folder, verbatim);
    let samples = number(&info(&recorded.trace)["counts"], "samples");
    assert!(samples > 20, "{samples}");
}

#[test]
fn waits_for_completions_end_with_all_of_them() {
    with_each_clock(waits_for_completions_end_with_all_of_them_by);
}

/// The kernel handles a timer that has run out in the middle of such a wait, which ends early then.
fn waits_for_completions_end_with_all_of_them_by(clock: &str, folder: &Path) {
    let source = include_str!("uring.c");
    let program = compile(folder, "uring.c", source, &["-O1", "-g", "-luring"]);
    for by in ["syscall", "liburing"] {
        let program = Program::new([program.to_str().expect("UTF-8"), by]);
        let recorded = program
            .options(&["--clock", clock])
            .record_and_compare(folder, verbatim);
        let samples = number(&info(&recorded.trace)["counts"], "samples");
        assert!(samples > 20, "{by}: {samples}");
    }
}

#[test]
fn nothing_comes_where_a_signal_may_not() {
    with_each_clock(nothing_comes_where_a_signal_may_not_by);
}

fn nothing_comes_where_a_signal_may_not_by(clock: &str, folder: &Path) {
    let program = program(clock, folder, "left_alone.c", include_str!("left_alone.c"));
    let recorded = program.record_and_compare(folder, verbatim);
    assert_eq!(
        recorded.run.stdout(),
        "handled 10\ncomputed under a filter\n"
    );
    let samples = number(&info(&recorded.trace)["counts"], "samples");
    assert!(samples > 20, "{samples}");
}

#[test]
fn processes_without_this_clock_are_on_ticks() {
    with_each_clock(processes_without_this_clock_are_on_ticks_by);
}

fn processes_without_this_clock_are_on_ticks_by(clock: &str, folder: &Path) {
    let program = program(clock, folder, "refuses.c", include_str!("refuses.c"));
    let recorded = program.record_and_compare(folder, verbatim);
    assert_eq!(recorded.run.stdout(), "0\n0\n0\n0\n0\n");
    let report = report(&recorded.trace);
    // The second signal reaches those that do not let the first one come.
    for function in ["ignores", "begins_blocked"] {
        let found = array(&report, "functions").find(|f| f["name"] == function);
        let found = found.unwrap_or_else(|| panic!("{function}: {report:#}"));
        let running_ns = number(&found["total"], "running_ns");
        assert!(running_ns > 400_000_000, "{function}: {found:#}");
    }
    // Signals that stop to arrive are missed within half a second.
    let later = array(&report, "functions").find(|f| f["name"] == "replaces_later");
    let samples = number(&later.expect("is there")["total"], "running_samples");
    assert!(samples > 500, "{samples} of 1,800");
    let notes: Vec<&str> = array(&report, "events")
        .filter_map(|event| event["text"].as_str())
        .filter(|text| text.contains("sampled at ticks"))
        .collect();
    for reason in ["ignores SIGURG", "handles SIGURG", "signals do not arrive"] {
        assert!(
            notes.iter().any(|text| text.contains(reason)),
            "{reason}: {notes:?}"
        );
    }
    // That the process began with it blocked is no reason for the others.
    assert_eq!(notes.len(), 4, "{notes:?}");
    let sent = figure(&info(&recorded.trace), "signals_sent");
    assert!(sent > if clock == "timer" { 100 } else { 500 }, "{sent}");
}

/// A thread that waits for completions has no timer from then on, whatever sampled it before.
#[test]
fn waits_for_completions_end_with_all_of_them_when_ticks_are_left() {
    let folder = scratch();
    let source = include_str!("uring.c");
    let program = compile(folder.path(), "uring.c", source, &["-O1", "-g", "-luring"]);
    for by in ["syscall", "liburing"] {
        // Around the moment at which the ticks are left, and after it.
        for ms in ["980", "1060", "1300"] {
            Program::new([program.to_str().expect("UTF-8"), by, ms])
                .options(&["--clock", "auto"])
                .record_and_compare(folder.path(), verbatim);
        }
    }
}

/// By default, without events: ticks at first, and timers once the process has computed for a second.
#[test]
fn a_process_that_computes_for_long_leaves_the_ticks() {
    let (info, report) = leaves_ticks(&[], "1");
    // The wake-ups of the recorder end with the ticks, and so do its signals; a few of its looks come later.
    let [on, off] = on_and_off_ticks_ms(&report);
    let sent = figure(&info, "signals_sent");
    assert!(sent < 3 * on + off / 4, "{sent} in {on} + {off} ms");
    let ticks = figure(&info, "ticks");
    assert!(ticks < on + off / 4, "{ticks} in {on} + {off} ms");
}

/// By default, with events at first: nobody wakes up for a sample, but where rivals for the processors bring
/// the process to ticks for a while.
#[test]
fn a_process_that_computes_for_long_leaves_its_events() {
    if !has_kernel_clock() {
        eprintln!("not run: the kernel gives no such clock");
        return;
    }
    let (info, _) = leaves_ticks(&[], "");
    let (ticks, sent) = (figure(&info, "ticks"), figure(&info, "signals_sent"));
    assert!(ticks < 500 && sent < 500, "{ticks} ticks, {sent} signals");
}

/// A thread that blocks the signal of timers stays on ticks alone.
#[test]
fn a_thread_that_blocks_the_signal_stays_on_ticks() {
    let (_, report) = leaves_ticks(&["blocks"], "1");
    let blocks = array(&report, "functions").find(|f| f["name"] == "blocks_signals");
    let samples = number(&blocks.expect("is there")["total"], "running_samples");
    // Ticks get as far apart as timers go off, and rivals for the processors let some of them come to
    // nothing.
    assert!(samples > 150, "{samples} of 2 s");
}

/// For how long the process was on ticks, and for how long on timers. It comes back to ticks for a while when
/// its threads have to wait for processors.
fn on_and_off_ticks_ms(report: &Value) -> [u64; 2] {
    let mut since_ns = Some(0);
    let mut on_ns = 0;
    let duration_ns = number(&report["recording"], "duration_ns");
    let events = array(report, "events").filter(|event| event["kind"] == "timers");
    for event in events {
        let at_ns = number(event, "at_ns");
        match number(event, "value") {
            0 => since_ns = since_ns.or(Some(at_ns)),
            _ => on_ns += since_ns.take().map_or(0, |since_ns| at_ns - since_ns),
        }
    }
    // Rivals may have brought it back at the end, too.
    on_ns += since_ns.map_or(0, |since_ns| duration_ns - since_ns);
    assert!(on_ns < duration_ns, "it was on timers: {report:#}");
    // Up to six threads compute, or wait for processors, for a second together.
    assert!(on_ns > 150_000_000, "{on_ns}");
    [on_ns, duration_ns - on_ns].map(|ns| ns / 1_000_000)
}

/// Records the program, and sees that each of its threads has the time that it says it has used.
///
/// `no_events`: not empty, if there are to be none.
fn leaves_ticks(arguments: &[&str], no_events: &str) -> (Value, Value) {
    let folder = scratch();
    let source = include_str!("leaves_ticks.c");
    let options = ["-O1", "-g", "-pthread"];
    let program = compile(folder.path(), "leaves_ticks.c", source, &options);
    let words = [&[program.to_str().expect("UTF-8")], arguments].concat();
    let program = Program::new(words)
        .options(&["--clock", "auto"])
        .variable("STACKBEAT_NO_EVENTS", no_events);
    let recorded = program.record(folder.path());
    let said = recorded.run.stdout();
    assert!(recorded.run.output.status.success(), "{said}");
    let trace = recorded.trace.to_str().expect("UTF-8");
    let info = json_of(&["info", "--check", "--json", trace]);
    assert_adds_up(&info);
    let report = report(&recorded.trace);
    let [on_ticks, _] = on_and_off_ticks_ms(&report);
    for line in said.lines().filter(|line| !line.starts_with("interrupted")) {
        let (function, used_ns) = line.split_once(' ').expect("a name and a number");
        let used_ns: u64 = used_ns.parse().expect("ns");
        let found = array(&report, "functions").find(|f| f["name"] == function);
        let found = found.unwrap_or_else(|| panic!("{function}: {report:#}"));
        // The function is all that its thread does, but for what we do in it.
        let cpu_ns = number(&found["total"], "cpu_ns");
        let most_ns = used_ns + used_ns / 5 + 20_000_000;
        // Who begins to compute after a wait that no hook has seen is found 50 ms later at the latest.
        let unseen_ns = match function {
            "sleeps_unseen_first" => 60_000_000,
            _ => used_ns / 20,
        };
        let expected = used_ns - unseen_ns..most_ns;
        assert!(expected.contains(&cpu_ns), "{line}: {found:#}");
        // 250 samples a second after the first, where a tick of the kernel's is 4 ms; all along by ticks.
        let samples = number(&found["total"], "running_samples");
        let least = used_ns / 4_000_000 / 3;
        let most = used_ns / 4_000_000 * 3 + on_ticks;
        if used_ns > 100_000_000 && function != "blocks_signals" {
            assert!((least..most).contains(&samples), "{line}: {found:#}");
        }
    }
    (info, report)
}

/// What computes for less than that has a sample in each interval, from its first one on.
#[test]
fn a_short_run_by_default_has_a_sample_in_each_millisecond() {
    let folder = scratch();
    let source = "
        #include <stdlib.h>
        #include <time.h>
        __attribute__((noinline)) void work(long ms) {
            struct timespec now;
            do {
                for (int i = 0; i < 20000; i++) free(malloc(64 + i % 1000));
                clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
            } while (now.tv_nsec < ms * 1000000);
        }
        int main(void) { work(60); return 0; }";
    let program = compile(folder.path(), "short.c", source, &["-O1", "-g"]);
    let program = Program::new([program.to_str().expect("UTF-8")]).options(&["--clock", "auto"]);
    // One that finds the machine busy has fewer.
    let samples = (0..5).map(|_| {
        let recorded = program.record(folder.path());
        let report = report(&recorded.trace);
        let work = array(&report, "functions").find(|f| f["name"] == "work");
        work.map_or(0, |work| number(&work["total"], "running_samples"))
    });
    let most = samples.max().expect("five");
    assert!(most >= 30, "{most} samples of 60 ms");
}
