//! Which function and which cause a gate names.

use super::*;

#[test]
fn work_of_libc_is_its_callers() {
    let slower = program(with(shop(), 4, 2.2));
    let (table, outcome) = gate(&program(shop()), &slower, 10, 2);
    assert_eq!(function(&table, &outcome), ("render".into(), Cause::Cpu));
    let path = &outcome.findings[0].explanation.path;
    assert_eq!(path.last().map(String::as_str), Some("memcpy"));
}

#[test]
fn waiting_for_a_lock_and_for_the_disk_are_told_apart() {
    for (at, cause) in [(5, Cause::Lock), (6, Cause::Io)] {
        let slower = program(with(shop(), at, 2.0));
        let (table, outcome) = gate(&program(shop()), &slower, 10, 3);
        assert_eq!(outcome.verdict, Verdict::Regression);
        assert_eq!(function(&table, &outcome), ("store".into(), cause));
        assert!(!outcome.findings[0].explanation.calls.is_empty());
    }
}

#[test]
fn who_allocates_more_is_named_where_times_say_too_little() {
    // All that the samples of time say is that `main` computes longer.
    let with_allocations = |of_render: f64, cpu: f64, allocations| {
        let mut costs = shop();
        costs.truncate(1);
        costs[0] = ("main", &["main"], Metric::Cpu, cpu * MS);
        let render = &["main", "serve", "render"];
        costs.push(("main", render, Metric::Allocations, of_render));
        costs.push((
            "main",
            &["main", "serve", "parse"],
            Metric::Allocations,
            9e5,
        ));
        Program {
            allocations,
            ..program(costs)
        }
    };
    let base = with_allocations(1e6, 400.0, 1_900_000);
    let more = with_allocations(2e6, 480.0, 2_900_000);
    let (table, outcome) = gate(&base, &more, 10, 4);
    assert_eq!(outcome.findings[0].row.metric, Metric::Wall);
    assert!(outcome.findings[0].also.contains(&Metric::Allocations));
    let found = function(&table, &outcome);
    assert_eq!(found, ("render".into(), Cause::Allocation));
}

#[test]
fn waits_that_were_mostly_not_seen_are_waits() {
    // A sync of half the interval: a sample now and then sees it wait, its own computing is always seen.
    let mut costs = shop();
    costs.push(("main", &["main", "commit"], Metric::Cpu, 24.0 * MS));
    costs.push(("main", &["main", "commit"], Metric::Ready, 22.0 * MS));
    costs.push(("main", &["main", "commit"], Metric::Io, 15.0 * MS));
    costs.push((
        "main",
        &["main", "commit"],
        Metric::VoluntarySwitches,
        800.0,
    ));
    let (table, outcome) = gate(&program(shop()), &program(costs), 10, 4);
    assert_eq!(outcome.findings[0].row.metric, Metric::Wall);
    assert_eq!(function(&table, &outcome), ("commit".into(), Cause::Io));
}

#[test]
fn a_function_that_two_roles_call_is_named() {
    let both = |ms: f64| -> Vec<Cost<'static>> {
        let mut costs = shop();
        costs.push(("roman", &["read", "borrow"], Metric::Lock, ms * MS));
        costs.push(("gothic", &["read", "borrow"], Metric::Lock, ms * MS));
        costs
    };
    let (table, outcome) = gate(&program(both(40.0)), &program(both(80.0)), 10, 4);
    assert_eq!(outcome.findings[0].row.metric, Metric::Lock);
    assert_eq!(function(&table, &outcome), ("borrow".into(), Cause::Lock));
    assert!(outcome.findings[0].explanation.share > 0.9);
}

#[test]
fn threads_that_live_shortly_are_the_cause() {
    let mut costs = shop();
    costs.push(("main", &["main", "ask_helper"], Metric::Cpu, 50.0 * MS));
    let more = Program {
        threads: 300,
        allocations: 10_900,
        ..program(costs.clone())
    };
    let (table, outcome) = gate(&program(shop()), &more, 10, 4);
    let found = function(&table, &outcome);
    assert_eq!(found, ("ask_helper".into(), Cause::Threads));
    assert_eq!(outcome.findings.len(), 1, "{:?}", outcome.findings);
    // One more thread that computes is no such thing.
    let one = Program {
        threads: 1,
        ..program(costs)
    };
    let (table, outcome) = gate(&program(shop()), &one, 10, 4);
    assert_eq!(
        function(&table, &outcome),
        ("ask_helper".into(), Cause::Cpu)
    );
}

#[test]
fn a_time_comes_before_a_count_that_cannot_be_its_reason() {
    // Half a percent more allocations, and far more computing elsewhere.
    let slower = Program {
        allocations: 10_050,
        ..program(with(shop(), 1, 1.3))
    };
    let (table, outcome) = gate(&program(shop()), &slower, 10, 3);
    assert_eq!(function(&table, &outcome), ("parse".into(), Cause::Cpu));
    let metrics = |outcome: &Outcome| -> Vec<Metric> {
        outcome.findings.iter().map(|f| f.row.metric).collect()
    };
    assert_eq!(metrics(&outcome), [Metric::Wall, Metric::Allocations]);

    // A function of its own, in the noise of the whole.
    let loud = |mut costs: Vec<Cost<'static>>, allocations| {
        costs[7].3 = 9000.0 * MS;
        Program {
            allocations,
            ..program(costs)
        }
    };
    let mut more = shop();
    more.push(("proof", &["proofread"], Metric::Cpu, 400.0 * MS));
    let (table, outcome) = gate(&loud(shop(), 10_000), &loud(more, 10_050), 10, 5);
    assert_eq!(
        function(&table, &outcome),
        ("proofread".into(), Cause::Cpu),
        "{:#?}",
        outcome.findings
    );
    assert_eq!(metrics(&outcome).last(), Some(&Metric::Allocations));
}

#[test]
fn who_answers_late_from_outside_is_waited_for() {
    let mut costs = shop();
    costs.push(("main", &["main", "ask"], Metric::Poll, 60.0 * MS));
    // What the rest does longer by is too little to be the reason.
    costs[7].3 += 2.0 * MS;
    costs[0].3 += 2.0 * MS;
    let (table, outcome) = gate(&program(shop()), &program(costs), 10, 4);
    assert_eq!(outcome.findings[0].row.metric, Metric::Wall);
    assert_eq!(function(&table, &outcome), ("ask".into(), Cause::Wait));
}

#[test]
fn computing_longer_on_a_busy_machine_is_computing() {
    // Two thirds of the time that a thread could run, others do.
    let busy = |factor: f64| {
        let mut costs = with(shop(), 1, factor);
        for at in 0..5 {
            let (role, path, _, ns) = costs[at];
            costs.push((role, path, Metric::Ready, 2.0 * ns));
        }
        program(costs)
    };
    let (table, outcome) = gate(&busy(1.0), &busy(1.5), 10, 4);
    assert_eq!(outcome.findings[0].row.metric, Metric::Wall);
    assert_eq!(function(&table, &outcome), ("parse".into(), Cause::Cpu));
    // Pushed out more often without computing longer.
    let mut pushed = busy(1.0);
    pushed.costs[10].3 *= 1.4;
    let (table, outcome) = gate(&busy(1.0), &pushed, 10, 4);
    let found = function(&table, &outcome);
    assert_eq!(found, ("parse".into(), Cause::Scheduling));
}
