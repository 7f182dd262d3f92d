//! Recordings that the kernel's clock samples (`--clock kernel`): what they hold, and what they leave as it is.

use std::path::Path;

use stackbeat_tests::json::{array, assert_adds_up, figure, number};
use stackbeat_tests::{
    Program, compile, has_kernel_clock, info, json_of, report, scratch, verbatim,
};

const KERNEL: [&str; 2] = ["--clock", "kernel"];

/// A program of this folder.
fn program(folder: &Path, name: &str, source: &str) -> Program {
    let program = compile(folder, name, source, &["-O1", "-g", "-pthread"]);
    Program::new([program.to_str().expect("UTF-8")]).options(&KERNEL)
}

#[test]
fn each_interval_of_computing_is_a_sample() {
    let folder = scratch();
    if !has_kernel_clock() {
        return;
    }
    let recorded =
        program(folder.path(), "shares.c", include_str!("shares.c")).record(folder.path());
    assert!(recorded.run.output.status.success());
    let trace = recorded.trace.to_str().expect("UTF-8");
    let info = json_of(&["info", "--check", "--json", trace]);
    assert_adds_up(&info);
    assert_eq!(info["config"]["clock"], "kernel");
    // Nobody has sent a signal, nobody has waked up for a tick.
    assert_eq!(figure(&info, "signals_sent"), 0);
    assert!(figure(&info, "ticks") < 500, "{}", figure(&info, "ticks"));

    let report = report(&recorded.trace);
    let thread = array(&report, "threads").next().expect("a thread");
    let cpu_ms = number(thread, "cpu_ns") as f64 / 1e6;
    let samples = number(thread, "samples") as f64;
    assert!(cpu_ms > 1_000.0, "{thread:#}");
    assert!((0.85..1.35).contains(&(samples / cpu_ms)), "{thread:#}");

    let total = |name: &str| {
        let function = array(&report, "functions").find(|f| f["name"] == name);
        number(
            &function.unwrap_or_else(|| panic!("{name}: {report:#}"))["total"],
            "cpu_ns",
        ) as f64
    };
    let share = total("short_part") / (total("short_part") + total("long_part"));
    // 250 + 50 ms of 1,050.
    assert!((share - 300.0 / 1_050.0).abs() < 0.05, "{share}");
    // What the child has become computes, too.
    let shell = array(&report, "processes").any(|p| p["name"] == "sh");
    assert!(shell, "{report:#}");
}

#[test]
fn no_call_is_interrupted_that_no_hook_sees() {
    let folder = scratch();
    if !has_kernel_clock() {
        return;
    }
    let storm = program(folder.path(), "storm.c", include_str!("storm.c")).options(&[
        "--interval",
        "50us",
        "--budget",
        "0",
    ]);
    let recorded = storm.record(folder.path());
    assert_eq!(recorded.run.stdout(), "0 interrupted, 0 cut\n");
    assert!(
        recorded.run.output.status.success(),
        "{}",
        recorded.run.stderr()
    );
    let samples = number(&info(&recorded.trace)["counts"], "samples");
    assert!(samples > 1_000, "{samples}");
}

#[test]
fn masks_and_handlers_of_the_program_are_what_they_would_be() {
    let folder = scratch();
    if !has_kernel_clock() {
        return;
    }
    let masks = program(folder.path(), "masks.c", include_str!("masks.c"));
    let recorded = masks.record_and_compare(folder.path(), verbatim);
    let samples = number(&info(&recorded.trace)["counts"], "samples");
    assert!(samples > 40, "{samples}");
}

#[test]
fn nothing_comes_where_a_signal_may_not() {
    let folder = scratch();
    if !has_kernel_clock() {
        return;
    }
    let program = program(folder.path(), "left_alone.c", include_str!("left_alone.c"));
    let recorded = program.record_and_compare(folder.path(), verbatim);
    assert_eq!(
        recorded.run.stdout(),
        "handled 10\ncomputed under a filter\n"
    );
    let samples = number(&info(&recorded.trace)["counts"], "samples");
    assert!(samples > 40, "{samples}");
}

#[test]
fn processes_without_this_clock_are_on_ticks() {
    let folder = scratch();
    if !has_kernel_clock() {
        return;
    }
    let program = program(folder.path(), "refuses.c", include_str!("refuses.c"));
    let recorded = program.record_and_compare(folder.path(), verbatim);
    assert_eq!(recorded.run.stdout(), "0\n0\n0\n0\n");
    let report = report(&recorded.trace);
    // The second signal reaches those that do not let the first one come.
    for function in ["ignores", "begins_blocked"] {
        let found = array(&report, "functions").find(|f| f["name"] == function);
        let found = found.unwrap_or_else(|| panic!("{function}: {report:#}"));
        let running_ns = number(&found["total"], "running_ns");
        assert!(running_ns > 400_000_000, "{function}: {found:#}");
    }
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
    assert_eq!(notes.len(), 3, "{notes:?}");
    assert!(figure(&info(&recorded.trace), "signals_sent") > 500);
}
