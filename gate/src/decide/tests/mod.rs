//! Gates of made-up programs whose changes are known.

mod causes;
mod counts;
mod system_calls;
mod together;

use super::*;
use crate::comparable_names::Form;
use crate::explain::cause::Cause;
use crate::rules::Pairing;
use crate::run::wait_sums::{End, Party, WaitKey};
use crate::run::{About, Builder, Label, Leaf, Names, ROOT, Role, Run};

/// What a made-up program spends at one place: thread role, functions from the outside in, metric, amount.
type Cost<'a> = (&'a str, &'a [&'a str], Metric, f64);

const MS: f64 = 1e6;

/// A server: a main thread that parses, a worker that stores, a lock between them.
fn shop() -> Vec<Cost<'static>> {
    vec![
        ("main", &["main", "serve"], Metric::Cpu, 40.0 * MS),
        ("main", &["main", "serve", "parse"], Metric::Cpu, 200.0 * MS),
        (
            "main",
            &["main", "serve", "parse", "memcpy"],
            Metric::Cpu,
            60.0 * MS,
        ),
        (
            "main",
            &["main", "serve", "render"],
            Metric::Cpu,
            150.0 * MS,
        ),
        (
            "main",
            &["main", "serve", "render", "memcpy"],
            Metric::Cpu,
            50.0 * MS,
        ),
        ("main", &["main", "serve", "store"], Metric::Lock, 40.0 * MS),
        ("main", &["main", "serve", "store"], Metric::Io, 90.0 * MS),
        ("worker-*", &["work", "store"], Metric::Cpu, 120.0 * MS),
        ("worker-*", &["work"], Metric::Wait, 500.0 * MS),
    ]
}

/// Who ends waits.
#[derive(Clone, Copy)]
enum Ended<'a> {
    By(&'a str),
    Failed,
    NobodyKnown,
    Unknown,
}

/// Long waits of a role's threads.
struct Wait<'a> {
    waiter: &'a str,
    metric: Metric,
    /// Who holds the lock.
    holder: Option<&'a str>,
    end: Ended<'a>,
    ns: f64,
}

struct Program<'a> {
    costs: Vec<Cost<'a>>,
    waits: Vec<Wait<'a>>,
    allocations: u64,
    allocated_bytes: u64,
    /// Threads of the worker's role that spend nothing.
    threads: u64,
    /// Relative deviation of each cost between runs, of all of them together, and of wall time.
    noise: f64,
}

fn role_of(names: &mut Names, thread: &str) -> RoleId {
    names.role(Role {
        process: "shop".into(),
        thread: thread.into(),
        is_root: thread == "main",
    })
}

impl Program<'_> {
    fn run(&self, side: Side, number: u64, names: &mut Names, random: &mut Random) -> Run {
        let knows_calls = (self.costs.iter()).any(|(.., metric, _)| metric.is_system_call());
        let about = About {
            label: format!("{}-{number}", side.name()),
            started_unix_ns: number,
            complete: true,
            knows_system_calls: knows_calls,
            knows_callers: knows_calls,
            knows_call_bytes: knows_calls,
            ..About::default()
        };
        let mut builder = Builder::new(side, about);
        let mut roles: Vec<(RoleId, stackbeat_model::metric::Values)> = Vec::new();
        let together = 1.0 + self.noise / 2.0 * random.normal();
        let mut wall = 0.0;
        for (thread, path, metric, amount) in &self.costs {
            let role = role_of(names, thread);
            let mut place = builder.tree.child(ROOT, Label::Group(role));
            for function in *path {
                let is_system = *function == "memcpy";
                let name = names.function(function, is_system, side);
                place = builder.tree.child(place, Label::Function(name));
            }
            let value = amount * together * (1.0 + self.noise * random.normal());
            let mut values = stackbeat_model::metric::Values::default();
            values.set(*metric, value.max(0.0) as u64);
            if *thread == "main" {
                wall += value;
            }
            if matches!(metric, Metric::Lock | Metric::Io) {
                let call = names.function(metric.name(), true, side);
                place = builder.tree.child(place, Label::Leaf(Leaf::Blocking(call)));
                values.set(Metric::Calls, (value / MS) as u64);
            }
            match metric.is_system_call() {
                true => builder.calls(place, *metric, values.get(*metric)),
                false => builder.add(place, &values),
            }
            match roles.iter_mut().find(|(r, _)| *r == role) {
                Some((_, sum)) => sum.add(&values),
                None => roles.push((role, values)),
            }
        }
        for wait in &self.waits {
            let mut party = |thread: &str| Party {
                role: role_of(names, thread),
                function: Some(names.function("let_go", false, side)),
            };
            let key = WaitKey {
                waiter: party(wait.waiter).role,
                metric: wait.metric,
                holder: wait.holder.map(|thread| party(thread).role),
                end: match wait.end {
                    Ended::By(by) => End::By(party(by)),
                    Ended::Failed => End::Failed,
                    Ended::NobodyKnown => End::NobodyKnown,
                    Ended::Unknown => End::Unknown,
                },
            };
            builder.wait(key, 1, wait.ns as u64);
        }
        for (at, (role, values)) in roles.iter_mut().enumerate() {
            let times = values.present();
            let times = times.filter(|(metric, _)| metric.unit() == Unit::Nanoseconds);
            let lived = times.map(|(_, ns)| ns).sum();
            values.set(Metric::Wall, lived);
            if at == 0 {
                values.set(Metric::Allocations, self.allocations);
                values.set(Metric::AllocatedBytes, self.allocated_bytes);
            }
            builder.thread(*role, values);
        }
        if let Some((role, _)) = roles.last() {
            for _ in 0..self.threads {
                builder.thread(*role, &stackbeat_model::metric::Values::default());
            }
        }
        builder.finish(wall as u64)
    }
}

fn program(costs: Vec<Cost<'_>>) -> Program<'_> {
    Program {
        costs,
        waits: Vec::new(),
        allocations: 10_000,
        allocated_bytes: 0,
        threads: 0,
        noise: 0.02,
    }
}

fn gate(a: &Program<'_>, b: &Program<'_>, runs: u64, seed: u64) -> (RunTable, Outcome) {
    gate_of(a, b, runs, seed, Rules::default())
}

/// Rules by which counts decide.
fn counting() -> Rules {
    Rules {
        fail_on_counts: true,
        ..Rules::default()
    }
}

fn gate_of(
    a: &Program<'_>,
    b: &Program<'_>,
    runs: u64,
    seed: u64,
    rules: Rules,
) -> (RunTable, Outcome) {
    let mut random = Random::new(seed);
    let mut names = Names::default();
    let mut all = Vec::new();
    for number in 0..runs {
        all.push(a.run(Side::Baseline, number, &mut names, &mut random));
        all.push(b.run(Side::Candidate, number, &mut names, &mut random));
    }
    let table = RunTable::new(all, names);
    let rules = Rules {
        draws: 600,
        ..rules
    };
    let outcome = judge(&table, &rules);
    (table, outcome)
}

fn function(table: &RunTable, outcome: &Outcome) -> (String, Cause) {
    let explanation = &outcome.findings[0].explanation;
    let name = explanation.function.map_or("", |f| table.names.text(f));
    (name.to_owned(), explanation.cause)
}

/// The costs with one of them changed.
fn with<'a>(mut costs: Vec<Cost<'a>>, at: usize, factor: f64) -> Vec<Cost<'a>> {
    costs[at].3 *= factor;
    costs
}

#[test]
fn a_slower_function_is_found_with_its_cause() {
    let slower = program(with(shop(), 1, 1.25));
    let (table, outcome) = gate(&program(shop()), &slower, 10, 1);
    assert_eq!(outcome.verdict, Verdict::Regression);
    assert_eq!(function(&table, &outcome), ("parse".into(), Cause::Cpu));
    let finding = &outcome.findings[0];
    assert_eq!(finding.explanation.path, ["main", "serve", "parse"]);
    assert!(finding.explanation.share > 0.7);
    assert_eq!(
        outcome.findings.len(),
        1,
        "ancestors and other metrics collapse"
    );
}

#[test]
fn what_is_faster_or_merely_moved_is_no_regression() {
    let faster = program(with(shop(), 1, 0.8));
    let (_, outcome) = gate(&program(shop()), &faster, 10, 5);
    assert_eq!(outcome.verdict, Verdict::NoRegression);

    // Another thread.
    let mut elsewhere = shop();
    elsewhere[1].0 = "worker-*";
    // Inlined into its caller, and what it called with it; and the other way round.
    let mut inlined = shop();
    inlined[1].1 = &["main", "serve"];
    inlined[2].1 = &["main", "serve", "memcpy"];
    let cases = [
        (shop(), elsewhere),
        (shop(), inlined.clone()),
        (inlined, shop()),
    ];
    for (before, after) in cases {
        let (_, outcome) = gate(&program(before), &program(after), 10, 6);
        assert_eq!(
            outcome.verdict,
            Verdict::NoRegression,
            "{:#?}",
            outcome.findings
        );
        assert!(!outcome.moved.is_empty());
    }
}

#[test]
fn what_moved_within_a_caller_is_seen_below_the_noise_of_the_whole() {
    // The workers' noise from run to run is larger than all of `parse`.
    let mut before = shop();
    before[7].3 = 8000.0 * MS;
    let mut after = before.clone();
    after[1].1 = &["main", "serve"];
    let (_, outcome) = gate(&program(before), &program(after), 10, 12);
    assert_ne!(
        outcome.verdict,
        Verdict::Regression,
        "{:#?}",
        outcome.findings
    );
    assert!(!outcome.moved.is_empty());
}

/// The shop with other names for functions of the main thread.
fn renamed<'a>(mut costs: Vec<Cost<'a>>, names: [(&'a str, &'a str); 2]) -> Vec<Cost<'a>> {
    for (role, path, ..) in &mut costs {
        if *role == "main" {
            let new = path.iter().map(|function| {
                let found = names.iter().find(|(old, _)| old == function);
                found.map_or(*function, |(_, new)| new)
            });
            *path = Vec::leak(new.collect());
        }
    }
    costs
}

#[test]
fn a_renamed_function_is_the_same_function() {
    // The caller has another name too.
    let names = [("serve", "handle"), ("parse", "read_request")];
    let (table, outcome) = gate(&program(shop()), &program(renamed(shop(), names)), 10, 8);
    let why = (&outcome.findings, &outcome.moved);
    assert_eq!(outcome.verdict, Verdict::NoRegression, "{why:#?}");
    assert!(outcome.moved.is_empty(), "{why:#?}");
    let matches: Vec<(&str, &str, Form)> = table
        .matches
        .iter()
        .map(|m| (m.name.as_str(), m.taken_for.as_str(), m.form))
        .collect();
    let expected = [
        ("handle", "serve", Form::Place),
        ("read_request", "parse", Form::Place),
    ];
    assert_eq!(matches, expected);

    // And slower: still found, as itself.
    let slower = program(with(renamed(shop(), names), 1, 1.3));
    let (table, outcome) = gate(&program(shop()), &slower, 10, 8);
    assert_eq!(outcome.verdict, Verdict::Regression);
    assert_eq!(function(&table, &outcome), ("parse".into(), Cause::Cpu));
}

#[test]
fn a_function_of_the_same_build_was_not_renamed() {
    let matches = |[baseline, candidate]: [&str; 2], functions: &[&str]| {
        let names = [("parse", "read_request"), ("log", "log")];
        let sides = [
            (Side::Baseline, program(shop()), baseline),
            (Side::Candidate, program(renamed(shop(), names)), candidate),
        ];
        let mut random = Random::new(3);
        let mut names = Names::default();
        let mut runs = Vec::new();
        for (side, program, build_id) in sides {
            for number in 0..4 {
                runs.push(program.run(side, number, &mut names, &mut random));
            }
            let build = names.build(build_id.as_bytes(), side);
            for at in 0..names.names().len() {
                let name = &names.names()[at];
                if functions.contains(&name.text.as_str()) && name.sides == side.bit() {
                    names.is_in(NameId(at as u32), Some(build));
                }
            }
        }
        RunTable::new(runs, names).matches
    };
    let both = ["parse", "read_request"];
    // Each side sampled another function of one file.
    assert_eq!(matches(["a", "a"], &both), []);
    assert_eq!(matches(["a", "b"], &both).len(), 1);
    // A trace may not know the build of a file.
    assert_eq!(matches(["a", "a"], &[]).len(), 1);
}

#[test]
fn a_new_function_that_nothing_vanished_for_is_a_regression() {
    let mut more = shop();
    more.push(("main", &["main", "serve", "log"], Metric::Cpu, 80.0 * MS));
    let (table, outcome) = gate(&program(shop()), &program(more), 10, 9);
    assert_eq!(outcome.verdict, Verdict::Regression);
    assert_eq!(function(&table, &outcome), ("log".into(), Cause::Cpu));
    assert_eq!(table.matches, []);
}

#[test]
fn a_marked_up_name_is_the_same_function() {
    let mut marked = shop();
    marked[1].1 = &["main", "serve", "parse.constprop.0"];
    let (_, outcome) = gate(&program(shop()), &program(marked), 10, 7);
    assert_ne!(outcome.verdict, Verdict::Regression);
    assert!(outcome.moved.is_empty());
}

#[test]
fn too_few_runs_cannot_tell() {
    let (_, outcome) = gate(&program(shop()), &program(shop()), 3, 8);
    assert_eq!(outcome.verdict, Verdict::CannotTell);
    assert!(outcome.runs_needed.is_some_and(|n| n >= 5));
}

#[test]
fn runs_of_a_few_ms_are_never_passed() {
    let scaled = |factor: f64| {
        let mut costs = shop();
        costs.iter_mut().for_each(|cost| cost.3 *= factor);
        Program {
            noise: 0.001,
            ..program(costs)
        }
    };
    let verdict = |factor| {
        let (_, outcome) = gate(&scaled(factor), &scaled(factor), 10, 4);
        (outcome.verdict, outcome.obstacle)
    };
    let (short, obstacle) = verdict(0.01);
    assert_eq!(short, Verdict::CannotTell);
    let obstacle = obstacle.expect("says what would help");
    assert!(obstacle.contains("until a run takes 100 ms"), "{obstacle}");
    assert_eq!(verdict(0.1), (Verdict::NoRegression, None));
    // Where only counts are asked for, how short a run is plays no part.
    let (table, _) = gate(&scaled(0.01), &scaled(0.01), 10, 4);
    let rules = Rules {
        required: vec![Metric::Allocations],
        ..Rules::default()
    };
    assert_eq!(judge(&table, &rules).verdict, Verdict::NoRegression);
}

#[test]
fn equal_programs_are_passed() {
    let mut alarms = 0;
    let mut unknown = 0;
    for seed in 0..120 {
        let (_, outcome) = gate(&program(shop()), &program(shop()), 8, 1000 + seed);
        alarms += usize::from(outcome.verdict == Verdict::Regression);
        unknown += usize::from(outcome.verdict == Verdict::CannotTell);
    }
    assert!(alarms <= 2, "{alarms} of 120");
    assert!(unknown <= 30, "{unknown} of 120");
}

#[test]
fn what_is_higher_by_itself_only_is_open() {
    // The first look of `ab`: 1 of the 924 ways to exchange six runs a side is enough, 2 are too many.
    let rules = Rules {
        alpha: 0.0025,
        draws: 600,
        ignored_functions: vec!["parse".into()],
        ..Rules::default()
    };
    let slower = program(with(shop(), 1, 1.2));
    let (table, _) = gate(&program(shop()), &slower, 6, 38);
    let outcome = judge(&table, &rules);
    let cpu = outcome.whole.iter().find(|row| row.metric == Metric::Cpu);
    let cpu = cpu.expect("is compared");
    let is_enough = |p: Option<f64>| p.is_some_and(|p| p <= rules.alpha_of_half());
    assert!(
        is_enough(cpu.comparison.p) && !is_enough(cpu.adjusted_p),
        "not tried: {cpu:?}"
    );
    assert_eq!(cpu.comparison.answer, Answer::Unknown);
    assert_eq!(outcome.verdict, Verdict::CannotTell, "{outcome:?}");
    assert!(outcome.open.contains(&Metric::Cpu));
    assert_eq!(outcome.runs_needed, Some(8));
}

#[test]
fn samples_that_fall_on_a_neighbour_are_no_regression() {
    // `malloc` gets what other functions had, a little of each, and the whole is the same.
    let mut costs = shop();
    costs[1].3 -= 20.0 * MS;
    costs[3].3 -= 20.0 * MS;
    costs.push(("main", &["main", "serve", "malloc"], Metric::Cpu, 40.0 * MS));
    let (_, outcome) = gate(&program(shop()), &program(costs), 10, 4);
    assert_eq!(outcome.findings, []);
}

#[test]
fn work_that_moved_to_another_thread_is_seen_below_the_noise_of_both() {
    // `pack` is small beside what both threads do, and half of it goes to the other one.
    let costs = |of_main: f64, of_worker: f64| {
        let mut costs = shop();
        costs[1].3 = 4000.0 * MS;
        costs[7].3 = 4000.0 * MS;
        costs.push(("main", &["main", "pack"], Metric::Cpu, of_main * MS));
        costs.push(("worker-*", &["work", "pack"], Metric::Cpu, of_worker * MS));
        costs
    };
    for seed in 0..6 {
        let (before, after) = (costs(160.0, 0.0), costs(80.0, 80.0));
        let (_, outcome) = gate(&program(before), &program(after), 10, seed);
        assert_ne!(
            outcome.verdict,
            Verdict::Regression,
            "{seed}: {:#?}",
            outcome.findings
        );
    }
}

#[test]
fn a_function_that_moved_with_its_callee_is_seen_below_the_noise_of_that() {
    let costs = |of_helper: f64, of_worker: f64| {
        let mut costs = shop();
        for (thread, path, share) in [
            ("helper", ["help", "pack", "fold"].as_slice(), of_helper),
            ("worker-*", ["work", "pack", "fold"].as_slice(), of_worker),
        ] {
            costs.push((thread, path, Metric::Cpu, 600.0 * share * MS));
            costs.push((thread, &path[..2], Metric::Cpu, 8.0 * share * MS));
        }
        costs
    };
    for seed in 0..40 {
        let (before, after) = (costs(0.0, 1.0), costs(1.0, 0.0));
        let (_, outcome) = gate(&program(before), &program(after), 10, seed);
        assert_eq!(outcome.findings, [], "{seed}");
    }
}

#[test]
fn more_work_is_told_from_slower_work() {
    let shop_with = |factor: f64, allocations, allocated_bytes| {
        let mut costs = shop();
        costs.iter_mut().for_each(|cost| cost.3 *= factor);
        Program {
            allocations,
            allocated_bytes,
            ..program(costs)
        }
    };
    let warning = |other: &Program<'_>| {
        let base = shop_with(1.0, 10_000, 3_000_000);
        let (_, outcome) = gate(&base, other, 6, 5);
        let warnings = outcome.warnings.into_iter();
        warnings
            .filter(|w| w.contains("exact counts"))
            .collect::<Vec<_>>()
    };
    let more = warning(&shop_with(1.25, 12_500, 3_740_000));
    assert!(
        more.len() == 1 && more[0].contains("+24.8 %: probably more work"),
        "{more:?}"
    );
    // What a unit costs is about the same.
    let unit = more[0].split("wall time ").nth(1).expect("is said");
    let change: f64 = unit
        .split(' ')
        .next()
        .and_then(|n| n.parse().ok())
        .expect("a number");
    assert!(change.abs() < 3.0, "{more:?}");
    let less = warning(&shop_with(1.0, 8_000, 2_400_000));
    assert!(
        less[0].contains("less work") && less[0].contains("wall time +2"),
        "{less:?}"
    );
    // The same work with far fewer allocations is no less of it.
    assert_eq!(warning(&shop_with(0.6, 100, 30_000)), [""; 0]);
    // Larger allocations are no more work.
    assert_eq!(warning(&shop_with(1.0, 10_000, 3_700_000)), [""; 0]);
    assert_eq!(warning(&shop_with(1.0, 11_000, 3_700_000)), [""; 0]);
}
