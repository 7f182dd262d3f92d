//! System calls by kind and role.

use super::*;

/// Runs of two roles that make so many calls of a kind, in each run; the last ones are of the candidate.
fn runs<const N: usize>(calls: &[(&str, Metric, [u64; N])], is_known: bool) -> (RunTable, Outcome) {
    let mut names = Names::default();
    let mut all = Vec::new();
    for number in 0..N {
        let side = [Side::Baseline, Side::Candidate][number / (N / 2)];
        let about = About {
            label: number.to_string(),
            started_unix_ns: number as u64,
            complete: true,
            knows_system_calls: is_known,
            knows_call_bytes: is_known,
            ..About::default()
        };
        let mut builder = Builder::new(side, about);
        for (thread, metric, counts) in calls {
            let mut values = stackbeat_model::metric::Values::default();
            values.set(*metric, counts[number]);
            builder.thread(role_of(&mut names, thread), &values);
        }
        all.push(builder.finish(1_000_000_000));
    }
    let table = RunTable::new(all, names);
    let outcome = judge(&table, &counting());
    (table, outcome)
}

#[test]
fn one_more_call_in_each_round_is_found_with_its_kind_and_its_threads() {
    let calls = [
        ("main", Metric::CallsSync, [7, 7, 7, 7]),
        ("worker-*", Metric::CallsSync, [1000, 1000, 2000, 2000]),
        ("worker-*", Metric::CallsClose, [50, 50, 950, 950]),
        // What time decides is no finding, and hides none.
        ("poller", Metric::CallsPoll, [5, 5, 500, 500]),
        ("poller", Metric::CallsSync, [310, 305, 330, 301]),
    ];
    let (table, outcome) = runs(&calls, true);
    assert_eq!(outcome.verdict, Verdict::Regression);
    let [finding] = &outcome.findings[..] else {
        panic!("{:#?}", outcome.findings);
    };
    assert_eq!(finding.way, Way::Role);
    assert_eq!(finding.row.metric, Metric::CallsSync);
    assert_eq!(finding.row.comparison.shift, 1000.0);
    assert_eq!(finding.also, [Metric::CallsClose]);
    assert_eq!(finding.explanation.cause, Cause::SystemCalls);
    let role = finding.explanation.role.expect("a role");
    assert_eq!(table.names.roles()[role.0 as usize].thread, "worker-*");
    let rows = outcome.roles.iter().map(|r| (r.role, r.row.metric));
    assert!(rows.eq([(role, Metric::CallsSync), (role, Metric::CallsClose)]));

    let (_, outcome) = runs(&calls, false);
    assert!(outcome.findings.is_empty(), "{:#?}", outcome.findings);
}

#[test]
fn what_varies_or_moved_or_is_a_few_is_no_finding() {
    for calls in [
        [
            ("main", Metric::CallsRead, [1000, 1001, 2000, 2000]),
            ("worker-*", Metric::CallsRead, [0, 0, 0, 0]),
        ],
        [
            ("main", Metric::CallsRead, [1000, 1000, 2000, 2100]),
            ("worker-*", Metric::CallsRead, [0, 0, 0, 0]),
        ],
        [
            ("main", Metric::CallsRead, [1000, 1000, 0, 0]),
            ("worker-*", Metric::CallsRead, [0, 0, 1000, 1000]),
        ],
        [
            ("main", Metric::CallsOpen, [20, 20, 30, 30]),
            ("worker-*", Metric::CallsOpen, [0, 0, 0, 0]),
        ],
    ] {
        let (_, outcome) = runs(&calls, true);
        assert!(outcome.findings.is_empty(), "{:#?}", outcome.findings);
    }
}

#[test]
fn what_is_a_little_more_takes_three_runs_a_side() {
    let with_two = [("main", Metric::CallsOpen, [2000, 2000, 2150, 2150])];
    let (_, outcome) = runs(&with_two, true);
    assert!(outcome.findings.is_empty(), "{:#?}", outcome.findings);
    let counts = [2000, 2000, 2000, 2150, 2150, 2150];
    let (_, outcome) = runs(&[("main", Metric::CallsOpen, counts)], true);
    assert_eq!(outcome.verdict, Verdict::Regression);
}

#[test]
fn a_required_kind_that_varies_by_one_can_be_told_to_be_the_same() {
    let counts: [u64; 20] = std::array::from_fn(|number| 1000 + number as u64 % 2);
    let (table, _) = runs(&[("main", Metric::CallsWrite, counts)], true);
    let rules = Rules {
        required: vec![Metric::CallsWrite],
        ..Rules::default()
    };
    let outcome = judge(&table, &rules);
    assert_eq!(outcome.verdict, Verdict::NoRegression, "{outcome:#?}");
}

#[test]
fn what_the_kernel_counts_of_the_same_reads_is_the_same_finding() {
    let calls = [
        ("main", Metric::CallsRead, [100, 100, 500, 500]),
        ("main", Metric::CallsOpen, [100, 100, 400, 400]),
    ];
    let (table, _) = runs(&calls, true);
    let runs = table.runs.into_iter().map(|mut run| {
        let reads = run.whole.get(Metric::CallsRead);
        run.whole.set(Metric::ReadCalls, reads + 20);
        run
    });
    let table = RunTable::new(runs.collect(), table.names);
    let outcome = judge(&table, &counting());
    let [finding] = &outcome.findings[..] else {
        panic!("{:#?}", outcome.findings);
    };
    assert_eq!(finding.row.metric, Metric::CallsRead);
    assert_eq!(finding.also, [Metric::CallsOpen, Metric::ReadCalls]);
}

/// Runs of a thread that makes stats, exactly known, of which functions are known to make so many, in each
/// run.
fn by_function(all: [u64; 6], paths: &[(&[&str], [u64; 6])]) -> (RunTable, Outcome) {
    let mut names = Names::default();
    let mut runs = Vec::new();
    for number in 0..6 {
        let side = [Side::Baseline, Side::Candidate][number / 3];
        let about = About {
            label: number.to_string(),
            started_unix_ns: number as u64,
            complete: true,
            knows_system_calls: true,
            knows_callers: true,
            knows_call_bytes: true,
            ..About::default()
        };
        let mut builder = Builder::new(side, about);
        let role = role_of(&mut names, "main");
        let mut values = stackbeat_model::metric::Values::default();
        values.set(Metric::CallsStat, all[number]);
        builder.thread(role, &values);
        for (path, counts) in paths {
            let mut place = builder.tree.child(ROOT, Label::Group(role));
            for function in *path {
                let name = names.function(function, *function == "fstatat", side);
                place = builder.tree.child(place, Label::Function(name));
            }
            if counts[number] > 0 {
                builder.calls(place, Metric::CallsStat, counts[number]);
            }
        }
        runs.push(builder.finish(1_000_000_000));
    }
    let table = RunTable::new(runs, names);
    let outcome = judge(&table, &counting());
    (table, outcome)
}

#[test]
fn the_function_that_makes_more_calls_is_named() {
    let all = [1000, 1000, 1000, 1500, 1500, 1500];
    let (table, outcome) = by_function(
        all,
        &[
            (
                &["serve", "find", "fstatat"],
                [900, 980, 940, 930, 950, 910],
            ),
            (&["serve", "check", "fstatat"], [0, 0, 0, 510, 480, 500]),
        ],
    );
    let [finding] = &outcome.findings[..] else {
        panic!("{:#?}", outcome.findings);
    };
    assert_eq!(finding.row.comparison.shift, 500.0);
    let explanation = &finding.explanation;
    let function = explanation.function.expect("is known");
    assert_eq!(table.names.text(function), "check");
    assert_eq!(explanation.path, ["serve", "check", "fstatat"]);
    let part = explanation
        .parts
        .iter()
        .find(|p| p.metric == Metric::CallsStat);
    let part = part.expect("is evidence");
    assert_eq!(part.baseline, 0.0);
    assert!((part.candidate - 496.7).abs() < 0.1, "{part:?}");

    // Where it is not known who made more, nobody is named.
    let (_, outcome) = by_function(
        all,
        &[(&["serve", "find"], [1000, 1000, 1000, 1100, 1100, 1100])],
    );
    let [finding] = &outcome.findings[..] else {
        panic!("{:#?}", outcome.findings);
    };
    assert_eq!(finding.explanation.function, None);
    assert_eq!(finding.row.comparison.shift, 500.0);
}

#[test]
fn more_bytes_belong_to_the_calls_that_became_more_or_are_a_finding_of_their_own() {
    let (_, outcome) = runs(
        &[
            ("main", Metric::CallsRead, [100, 100, 200, 200]),
            (
                "main",
                Metric::BytesRead,
                [100_000, 100_000, 200_000, 200_000],
            ),
            // A few more are none.
            (
                "main",
                Metric::BytesWritten,
                [100_000, 100_000, 129_000, 129_000],
            ),
        ],
        true,
    );
    let [finding] = &outcome.findings[..] else {
        panic!("{:#?}", outcome.findings);
    };
    assert_eq!(finding.row.metric, Metric::CallsRead);
    assert_eq!(finding.also, [Metric::BytesRead]);

    let bytes = [
        ("main", Metric::CallsStat, [100, 100, 200, 200]),
        (
            "main",
            Metric::BytesRead,
            [100_000, 100_000, 200_000, 200_000],
        ),
    ];
    let (_, outcome) = runs(&bytes, true);
    let found: Vec<_> = outcome
        .findings
        .iter()
        .map(|f| (f.row.metric, f.explanation.cause))
        .collect();
    let expected = [
        (Metric::CallsStat, Cause::SystemCalls),
        (Metric::BytesRead, Cause::Transfers),
    ];
    assert_eq!(found, expected);
}

#[test]
fn bytes_are_not_compared_where_a_run_does_not_know_its_own() {
    let (table, _) = runs(
        &[("main", Metric::BytesRead, [0, 0, 200_000, 200_000])],
        true,
    );
    let mut all = table.runs;
    all[0].about.knows_call_bytes = false;
    let table = RunTable::new(all, table.names);
    let outcome = judge(&table, &counting());
    assert!(outcome.findings.is_empty(), "{:#?}", outcome.findings);
    assert!(outcome.roles.is_empty(), "{:#?}", outcome.roles);
}

#[test]
fn wake_ups_are_evidence_and_known_where_the_kernel_tells() {
    let (table, outcome) = runs(&[("main", Metric::WakeUps, [500, 500, 900, 900])], true);
    assert!(table.counts(Metric::WakeUps));
    assert!(outcome.findings.is_empty(), "{:#?}", outcome.findings);
    let row = outcome.whole.iter().find(|r| r.metric == Metric::WakeUps);
    assert_eq!(row.expect("a row").comparison.shift, 400.0);
    let (table, _) = runs(&[("main", Metric::WakeUps, [0, 500, 900, 900])], true);
    assert!(!table.counts(Metric::WakeUps));
}
