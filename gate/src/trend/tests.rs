//! Outcomes of made-up series.

use stackbeat_model::metric::Values;

use super::*;
use crate::random::Random;
use crate::run::{About, Builder, Label, Names, ROOT, Role, Run, Side};

/// What a run of a commit spends: CPU time of two functions in ms, allocations, and looks at files (of the
/// second run of a commit `wavers` more).
#[derive(Clone, Copy)]
struct Work {
    price: f64,
    stock: f64,
    allocations: u64,
    looks: u64,
    wavers: u64,
}

const USUAL: Work = Work {
    price: 300.0,
    stock: 200.0,
    allocations: 5000,
    looks: 200,
    wavers: 0,
};

/// Two runs a commit with one percent of noise.
fn history(commits: &[Work]) -> History {
    let mut names = Names::default();
    let mut random = Random::new(11);
    let role = names.role(Role {
        process: "shop".into(),
        thread: "main".into(),
        is_root: true,
    });
    let mut runs: Vec<(usize, Run)> = Vec::new();
    for (commit, work) in commits.iter().enumerate() {
        for nth in 0..2 {
            let about = About {
                started_unix_ns: nth,
                knows_system_calls: true,
                ..About::default()
            };
            let mut builder = Builder::new(Side::Baseline, about);
            let top = builder.tree.child(ROOT, Label::Group(role));
            let mut thread = Values::default();
            for (name, ms) in [("price", work.price), ("stock", work.stock)] {
                let name = names.function(name, false, Side::Baseline);
                let place = builder.tree.child(top, Label::Function(name));
                let mut values = Values::default();
                let ns = (ms * 1e6 * (1.0 + 0.01 * random.normal())) as u64;
                values.set(Metric::Cpu, ns);
                builder.add(place, &values);
                thread.add(&values);
            }
            thread.set(Metric::Allocations, work.allocations);
            thread.set(Metric::CallsStat, work.looks + nth * work.wavers);
            builder.thread(role, &thread);
            let wall_ns = thread.get(Metric::Cpu) + 1_000_000;
            runs.push((commit, builder.finish(wall_ns)));
        }
    }
    History::new(runs, names, commits.len())
}

fn with(commits: usize, change: impl Fn(usize, &mut Work)) -> History {
    let work = (0..commits).map(|at| {
        let mut work = USUAL;
        change(at, &mut work);
        work
    });
    history(&work.collect::<Vec<_>>())
}

/// `commit: metric, metric; ...` of the findings.
fn told(outcome: &Outcome) -> Vec<(usize, Vec<(What, Metric)>)> {
    let of = |f: &Finding| {
        let lines = f.changes.iter().map(|p| &outcome.lines[p.line]);
        (f.commit, lines.map(|l| (l.what, l.metric)).collect())
    };
    outcome.findings.iter().map(of).collect()
}

#[test]
fn the_commit_and_the_function_are_named() {
    let history = with(16, |at, work| {
        if at >= 9 {
            work.price *= 1.2;
        }
    });
    let outcome = judge(&history, &Rules::default(), 0);
    assert_eq!(outcome.verdict, Verdict::Regression);
    let told = told(&outcome);
    let [(9, changes)] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!(changes[0], (What::Whole, Metric::Wall));
    assert!(changes.contains(&(What::Whole, Metric::Cpu)));
    let finding = &outcome.findings[0];
    assert!(finding.is_worse && finding.stands && finding.proof == Proof::Confirmed);
    let price = changes.iter().find_map(|(what, _)| match what {
        What::Function(_, name) => Some(history.names.text(*name)),
        _ => None,
    });
    assert_eq!(price, Some("price"));
    // After that commit nothing became worse.
    let later = judge(&history, &Rules::default(), 10);
    assert_eq!(later.verdict, Verdict::NoRegression);
}

#[test]
fn system_calls_that_are_certain_name_their_commit() {
    let more = |looks: u64, wavers: u64| {
        let history = with(6, |at, work| {
            work.looks += if at >= 4 { looks } else { 0 };
            work.wavers = wavers;
        });
        let by_counts = Rules {
            fail_on_counts: true,
            ..Rules::default()
        };
        let verdict = judge(&history, &by_counts, 0).verdict;
        (judge(&history, &Rules::default(), 0), verdict)
    };
    let (outcome, by_counts) = more(100, 0);
    let told = told(&outcome);
    let [(4, changes)] = &told[..] else {
        panic!("{told:?}");
    };
    let [(What::Role(_), Metric::CallsStat)] = changes[..] else {
        panic!("{changes:?}");
    };
    let change = &outcome.lines[outcome.findings[0].changes[0].line]
        .levels
        .changes[0];
    assert_eq!((change.before, change.after), (200.0, 300.0));
    assert_eq!(change.proof, Proof::Exact);
    // By itself it is a notice: six commits are too few to say anything of times.
    assert_eq!(outcome.findings[0].deciding, None);
    assert_eq!(outcome.verdict, Verdict::CannotTell);
    assert_eq!(by_counts, Verdict::Regression);
    // After a step that is too small to matter, too.
    let history = with(6, |at, work| work.looks += [0, 0, 8, 8, 300, 300][at]);
    let outcome = judge(&history, &Rules::default(), 0);
    assert_eq!(outcome.findings.len(), 1, "{:?}", outcome.findings);
    assert_eq!(outcome.findings[0].commit, 4);
    // Too few to matter, and numbers that vary.
    for (looks, wavers) in [(10, 0), (100, 1)] {
        assert!(more(looks, wavers).0.findings.is_empty());
    }
}

#[test]
fn a_repaired_regression_is_history() {
    let history = with(24, |at, work| {
        if (8..15).contains(&at) {
            work.price *= 1.3;
        }
    });
    let outcome = judge(&history, &Rules::default(), 0);
    assert_eq!(outcome.verdict, Verdict::NoRegression);
    let commits: Vec<(usize, bool)> = outcome
        .findings
        .iter()
        .map(|f| (f.commit, f.is_worse && f.stands))
        .collect();
    assert_eq!(commits, [(8, false), (15, false)]);
}

#[test]
fn counts_need_no_long_series() {
    let rules = Rules {
        required: vec![Metric::Allocations],
        ..Rules::default()
    };
    let history = with(4, |at, work| {
        work.allocations += if at >= 3 { 500 } else { 0 }
    });
    let outcome = judge(&history, &rules, 0);
    assert_eq!(outcome.verdict, Verdict::Regression);
    assert_eq!(
        told(&outcome),
        [(
            3,
            vec![(What::Whole, Metric::Allocations), ALLOCATIONS_OF_MAIN]
        )]
    );
    assert_eq!(outcome.findings[0].parts[0].share, 1.0);
    let same = with(4, |_, _| {});
    assert_eq!(judge(&same, &rules, 0).verdict, Verdict::NoRegression);
    // For times four commits are too few.
    let outcome = judge(&same, &Rules::default(), 0);
    assert_eq!(outcome.verdict, Verdict::CannotTell);
    assert_eq!(outcome.commits_needed, Some(6));
}

const ALLOCATIONS_OF_MAIN: (What, Metric) = (What::Role(RoleId(0)), Metric::Allocations);

#[test]
fn work_that_moved_is_no_regression() {
    let history = with(20, |at, work| {
        if at >= 10 {
            work.price -= 60.0;
            work.stock += 60.0;
        }
    });
    let outcome = judge(&history, &Rules::default(), 0);
    assert_eq!(
        outcome.verdict,
        Verdict::NoRegression,
        "{:?}",
        told(&outcome)
    );
    assert_eq!(told(&outcome), []);
}

#[test]
fn the_newest_commit_alone_is_a_suspicion() {
    let history = with(20, |at, work| {
        if at == 19 {
            work.price *= 2.0;
        }
    });
    let outcome = judge(&history, &Rules::default(), 0);
    assert_eq!(outcome.verdict, Verdict::CannotTell);
    assert_eq!(outcome.findings[0].commit, 19);
    assert_eq!(outcome.commits_needed, Some(1));
}
