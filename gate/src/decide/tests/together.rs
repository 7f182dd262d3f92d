//! Pairs that shared a processor: the other's turns are in their wall times.

use super::*;

fn together() -> Rules {
    Rules {
        pairing: Pairing::Together,
        draws: 600,
        ..Rules::default()
    }
}

/// Ten pairs of a program with these costs on both sides, whose wall times vary by a tenth.
fn judged(costs: [Vec<Cost<'static>>; 2], switches: f64, seed: u64) -> Outcome {
    let [a, b] = costs.map(|mut costs| {
        let path: &[&str] = &["main"];
        costs.push(("main", path, Metric::VoluntarySwitches, switches));
        costs.push(("main", path, Metric::Poll, 100.0 * MS));
        Program {
            noise: 0.004,
            ..program(costs)
        }
    });
    let (mut table, _) = gate_of(&a, &b, 10, seed, together());
    let mut random = Random::new(seed + 1000);
    for run in &mut table.runs {
        let wall = run.whole.get(Metric::Wall) as f64 * (2.0 + 0.2 * random.normal());
        run.whole.set(Metric::Wall, wall as u64);
        run.about.interval_ns = 1_000_000;
    }
    judge(&table, &together())
}

#[test]
fn what_a_run_takes_itself_is_enough_to_know() {
    let (mut passed, mut alarms) = (0, 0);
    for seed in 0..60 {
        let outcome = judged([shop(), shop()], 40.0, seed);
        passed += usize::from(outcome.verdict == Verdict::NoRegression);
        alarms += usize::from(outcome.verdict == Verdict::Regression);
        let wall = outcome.whole.iter().find(|r| r.metric == Metric::Wall);
        let wall = &wall.expect("is compared").comparison;
        assert!(wall.answer == Answer::Unknown, "not tried: {wall:?}");
    }
    assert!(passed >= 50 && alarms <= 1, "{passed}, {alarms} of 60");
}

#[test]
fn what_may_hide_in_the_wall_time_keeps_it_open() {
    // Sleeps that are too short to be seen.
    let is_open = |switches: f64| {
        let judged = (0..10).map(|seed| judged([shop(), shop()], switches, seed));
        let open = judged.filter(|outcome| outcome.verdict == Verdict::CannotTell);
        open.count()
    };
    // By chance a wall time may be known not to be higher.
    let (few, many) = (is_open(40.0), is_open(2000.0));
    assert!(few <= 2 && many >= 5, "{few}, {many} of 10");
    // An answer from outside that comes later: no cost by itself.
    let mut late = shop();
    late.push(("main", &["main", "ask"], Metric::Poll, 60.0 * MS));
    for seed in 0..10 {
        let outcome = judged([shop(), late.clone()], 40.0, seed);
        assert_ne!(outcome.verdict, Verdict::NoRegression, "{seed}");
    }
    // More computing is found as ever.
    let outcome = judged([shop(), with(shop(), 1, 1.2)], 40.0, 1);
    assert_eq!(outcome.verdict, Verdict::Regression);
}
