//! Recordings on a host without signals to threads (`STACKBEAT_SUSPEND=1`): the recorder suspends threads
//! that run, and takes their stacks from outside.

use std::path::Path;

use stackbeat_tests::tool_json::{array, assert_adds_up, figure, number};
use stackbeat_tests::{Program, Recorded, compile, json_of, report, scratch};

fn record(folder: &Path, arguments: &[&str], options: &[&str]) -> Recorded {
    let flags = ["-O1", "-g", "-pthread"];
    let program = compile(folder, "shares.c", include_str!("shares.c"), &flags);
    let program = [program.to_str().expect("UTF-8")].into_iter();
    let recorded = Program::new(program.chain(arguments.iter().copied()))
        .variable("STACKBEAT_SUSPEND", "1")
        .options(options)
        .record(folder);
    let run = &recorded.run;
    assert!(run.output.status.success(), "{}", run.stderr());
    recorded
}

/// CPU time in the program's two parts, ns, and how many calls were cut short, as it says itself.
fn said(recorded: &Recorded) -> [u64; 3] {
    let text = recorded.run.stdout();
    let numbers: Vec<u64> = (text.split_whitespace())
        .map(|number| number.parse().expect("a number"))
        .collect();
    numbers.try_into().expect("three numbers")
}

#[test]
fn shares_are_those_that_the_program_counts() {
    let folder = scratch();
    let recorded = record(folder.path(), &[], &["--budget", "0"]);
    let [short_ns, long_ns, cut] = said(&recorded);
    assert_eq!(cut, 0, "calls ended early");
    let trace = recorded.trace.to_str().expect("UTF-8");
    let info = json_of(&["info", "--check", "--json", trace]);
    assert_adds_up(&info);
    assert_eq!(info["config"]["by_suspension"], true);
    assert_eq!(figure(&info, "signals_sent"), 0);
    let suspensions = figure(&info, "suspensions");
    assert!(suspensions > 500, "{suspensions}");

    let report = report(&recorded.trace);
    let cpu_ns = |name: &str| {
        let function = array(&report, "functions").find(|f| f["name"] == name);
        let function = function.unwrap_or_else(|| panic!("{name}: {report:#}"));
        number(&function["total"], "cpu_ns") as f64
    };
    let parts = [cpu_ns("short_part"), cpu_ns("long_part")];
    let exact = [short_ns as f64, long_ns as f64];
    let share = |parts: [f64; 2]| parts[0] / (parts[0] + parts[1]);
    let difference = share(parts) - share(exact);
    assert!(difference.abs() < 0.05, "{parts:?} {exact:?}");
    // Nearly all of it has a name.
    let found = (parts[0] + parts[1]) / (exact[0] + exact[1]);
    assert!((0.93..1.05).contains(&found), "{parts:?} {exact:?}");
    // Each stack reaches the thread's function.
    let computing = cpu_ns("compute") / (parts[0] + parts[1]);
    assert!((0.97..1.05).contains(&computing), "{computing}");
}

#[test]
fn a_wait_that_no_hook_sees_is_looked_at_once() {
    let folder = scratch();
    let recorded = record(folder.path(), &["idle"], &[]);
    assert_eq!(said(&recorded)[2], 0, "calls ended early");
    let trace = recorded.trace.to_str().expect("UTF-8");
    let info = json_of(&["info", "--check", "--json", trace]);
    assert_adds_up(&info);
    let report = report(&recorded.trace);
    let waits = array(&report, "functions").find(|f| f["name"] == "waits_unseen");
    let waits = waits.unwrap_or_else(|| panic!("{report:#}"));
    let blocked_ns = number(&waits["total"], "blocked_ns");
    // About six calls of 0.7 s each: of each the first 0.3 s need not be seen, nor the last.
    assert!(blocked_ns > 1_500_000_000, "{waits:#}");
    // Once in each call, and some at the begin.
    let suspensions = figure(&info, "suspensions");
    assert!((4..=20).contains(&suspensions), "{suspensions}");
}

#[test]
fn suspensions_are_paid_from_the_budget() {
    let folder = scratch();
    let options = [
        "--budget",
        "1%",
        "--interval",
        "200us",
        "--main-interval",
        "200us",
    ];
    let recorded = record(folder.path(), &[], &options);
    let trace = recorded.trace.to_str().expect("UTF-8");
    let info = json_of(&["info", "--check", "--json", trace]);
    let kept = figure(&info, "intervals_kept_ns") as f64;
    let asked = figure(&info, "intervals_asked_ns") as f64;
    // 200 µs are not to be had for 1 %.
    assert!(kept > 2.0 * asked, "{kept} of {asked}");
    assert!(figure(&info, "cost_captures_ns") > 0);
}
