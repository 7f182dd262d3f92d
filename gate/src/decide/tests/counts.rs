//! Counts that became more: notices, unless they decide.

use super::*;

fn metrics(findings: &[Finding]) -> Vec<(Way, Metric)> {
    findings.iter().map(|f| (f.way, f.row.metric)).collect()
}

fn quiet(costs: Vec<Cost<'_>>, allocations: u64) -> Program<'_> {
    Program {
        allocations,
        noise: 0.006,
        ..program(costs)
    }
}

#[test]
fn a_faster_program_that_counts_more_is_no_regression() {
    let faster = quiet(with(shop(), 1, 0.8), 12_000);
    let (_, outcome) = gate(&quiet(shop(), 10_000), &faster, 10, 5);
    assert_eq!(outcome.verdict, Verdict::NoRegression);
    assert_eq!(outcome.findings, []);
    let more = [(Way::Whole, Metric::Allocations)];
    assert_eq!(metrics(&outcome.notices), more);
    // Where counts decide, or this one is required, it is one.
    let required = Rules {
        required: vec![Metric::Wall, Metric::Cpu, Metric::Allocations],
        ..Rules::default()
    };
    for rules in [counting(), required] {
        let (_, outcome) = gate_of(&quiet(shop(), 10_000), &faster, 10, 5, rules);
        assert_eq!(outcome.verdict, Verdict::Regression);
        assert_eq!(metrics(&outcome.findings), more);
        assert_eq!(outcome.notices, []);
    }
    // So it is over budget.
    let budget = Rules {
        budgets: vec![crate::rules::Budget {
            metric: Metric::Allocations,
            max: 11_000.0,
            ..Default::default()
        }],
        ..Rules::default()
    };
    let (_, outcome) = gate_of(&quiet(shop(), 10_000), &faster, 10, 5, budget);
    assert_eq!(outcome.verdict, Verdict::Regression);
    assert_eq!(metrics(&outcome.notices), more);
}

#[test]
fn what_a_library_more_costs_is_not_even_a_notice() {
    // A library more is loaded: 8 KiB of it are read, in a few calls.
    let with_more = |allocations: u64, bytes: u64| {
        let more = Program {
            allocations,
            allocated_bytes: bytes,
            ..program(shop())
        };
        let base = Program {
            allocations: 500,
            allocated_bytes: 100_000,
            ..program(shop())
        };
        gate_of(&base, &more, 6, 5, counting()).1
    };
    assert_eq!(with_more(512, 108_192).findings, []);
    // Of what is much, a percent.
    assert_eq!(with_more(505, 100_000).findings, []);
    let outcome = with_more(600, 150_000);
    assert_eq!(outcome.verdict, Verdict::Regression);
}

#[test]
fn more_allocations_are_found_with_two_runs() {
    let (table, outcome) = gate_of(
        &program(shop()),
        &Program {
            allocations: 10_300,
            ..program(shop())
        },
        2,
        4,
        counting(),
    );
    assert_eq!(outcome.verdict, Verdict::Regression);
    assert_eq!(function(&table, &outcome).1, Cause::Allocation);
}

#[test]
fn a_time_too_short_for_a_finding_is_suspected_behind_counts_that_differ() {
    // 2.6 % of everything: below the least effect, and nobody can say that it is not 3 %.
    let mut slower = shop();
    slower.iter_mut().for_each(|cost| cost.3 *= 1.026);
    let base = quiet(shop(), 10_000);
    let (_, alone) = gate(&base, &quiet(slower.clone(), 10_000), 10, 3);
    assert_eq!((alone.findings, alone.notices), (Vec::new(), Vec::new()));
    let slower = quiet(slower, 10_300);
    let told = [
        (Way::Whole, Metric::Allocations),
        (Way::Suspected, Metric::Wall),
    ];
    let (table, both) = gate(&base, &slower, 10, 3);
    assert_eq!(both.findings, []);
    assert_eq!(metrics(&both.notices), told);
    let suspected = both.notices[1].explanation.function.expect("is known");
    assert_eq!(table.names.text(suspected), "serve");
    // The same where counts decide.
    let (_, both) = gate_of(&base, &slower, 10, 3, counting());
    assert_eq!(both.verdict, Verdict::Regression);
    assert_eq!(metrics(&both.findings), told);
    assert_eq!(both.notices, []);
    // Counts alone are all there is when no time grew.
    let (_, counts) = gate(&base, &quiet(shop(), 10_300), 10, 3);
    assert_eq!(metrics(&counts.notices), told[..1]);
}

#[test]
fn waiting_for_something_else_is_no_regression_of_a_run_that_became_shorter() {
    // Half of what was computed is read instead.
    let mut costs = with(shop(), 1, 0.5);
    costs[6].3 += 30.0 * MS;
    let (_, outcome) = gate(&quiet(shop(), 10_000), &quiet(costs.clone(), 10_000), 10, 5);
    assert_eq!(outcome.verdict, Verdict::NoRegression);
    assert_eq!(metrics(&outcome.notices), [(Way::Whole, Metric::Io)]);
    // Of a run that takes as long it is one.
    costs[3].3 += 70.0 * MS;
    let (_, outcome) = gate(&quiet(shop(), 10_000), &quiet(costs, 10_000), 10, 5);
    assert_eq!(outcome.verdict, Verdict::Regression);
    assert_eq!(outcome.findings[0].row.metric, Metric::Io);
}

#[test]
fn a_suspicion_that_fresh_runs_show_comes_first_and_another_is_dropped() {
    let mut slower = shop();
    slower.iter_mut().for_each(|cost| cost.3 *= 1.026);
    let base = quiet(shop(), 10_000);
    let (_, outcome) = gate(&base, &quiet(slower, 10_300), 10, 3);
    let said = |is_confirmed| Confirmation {
        metric: Metric::Wall,
        runs: 6,
        relative: 0.025,
        p: Some(0.01),
        is_confirmed,
    };
    let settled = |is_confirmed| {
        let mut outcome = outcome.clone();
        outcome.settle(said(is_confirmed));
        metrics(&outcome.notices)
    };
    let (counted, suspected) = (
        (Way::Whole, Metric::Allocations),
        (Way::Suspected, Metric::Wall),
    );
    assert_eq!(settled(true), [suspected, counted]);
    assert_eq!(settled(false), [counted]);
}

#[test]
fn no_function_is_suspected_that_makes_fewer_calls() {
    // All takes a little longer, by chance perhaps, and `serve` writes less often.
    let writing = |factor: f64, calls: f64, allocations| {
        let mut costs = shop();
        costs.iter_mut().for_each(|cost| cost.3 *= factor);
        costs.push(("main", &["main", "serve"], Metric::CallsWrite, calls));
        quiet(costs, allocations)
    };
    let suspected = |calls: f64| {
        let (base, more) = (writing(1.0, 800.0, 10_000), writing(1.026, calls, 10_300));
        let (table, outcome) = gate(&base, &more, 10, 3);
        let finding = outcome.suspected().expect("a time grew").clone();
        let function = finding.explanation.function;
        function.map(|f| table.names.text(f).to_string())
    };
    assert_eq!(suspected(800.0).as_deref(), Some("serve"));
    assert_eq!(suspected(400.0), None);
}
