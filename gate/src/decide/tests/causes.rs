//! Which function and which cause a gate names.

use super::*;
use crate::wait_partners::Tie;

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
    // Three percent more allocations, and far more computing elsewhere.
    let slower = Program {
        allocations: 10_300,
        ..program(with(shop(), 1, 1.3))
    };
    let (table, outcome) = gate(&program(shop()), &slower, 10, 3);
    assert_eq!(function(&table, &outcome), ("parse".into(), Cause::Cpu));
    let metrics = |outcome: &Outcome| -> Vec<Metric> {
        let all = outcome.findings.iter().chain(&outcome.notices);
        all.map(|f| f.row.metric).collect()
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
    let (table, outcome) = gate(&loud(shop(), 10_000), &loud(more, 10_300), 10, 5);
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

#[test]
fn a_function_without_a_name_is_named_by_its_caller_that_has_one() {
    let path = &["main", "serve", "deflate", "libz.so.1+0x5d80"];
    let mut costs = shop();
    costs.push(("main", path, Metric::Cpu, 100.0 * MS));
    let slower = program(with(costs.clone(), 9, 1.8));
    let (table, outcome) = gate(&program(costs), &slower, 10, 4);
    assert_eq!(function(&table, &outcome), ("deflate".into(), Cause::Cpu));
    let deepest = outcome.findings[0].explanation.deepest;
    assert_eq!(
        deepest.map(|d| table.names.text(d)),
        Some("libz.so.1+0x5d80")
    );
}

#[test]
fn what_is_hardly_anything_but_change_is_named_before_what_has_more_of_it() {
    // A third of what grew is noise of the machine, spread over everything.
    let sorting = &["main", "serve", "sort"];
    let slower = |factor: f64| {
        let mut costs = shop();
        costs.iter_mut().for_each(|cost| cost.3 *= factor);
        costs.push(("main", sorting, Metric::Cpu, 40.0 * MS));
        program(costs)
    };
    let (table, outcome) = gate(&program(shop()), &slower(1.04), 10, 4);
    assert_eq!(function(&table, &outcome), ("sort".into(), Cause::Cpu));
    // The same where threads of two roles do it: neither has enough of it alone.
    let ledger = |factor: f64, ms: f64| {
        let mut costs = with(shop(), 7, factor);
        costs.push((
            "roman",
            &["run", "typeset"],
            Metric::Cpu,
            300.0 * factor * MS,
        ));
        costs.push((
            "gothic",
            &["run", "typeset"],
            Metric::Cpu,
            300.0 * factor * MS,
        ));
        costs.push(("roman", &["run", "write_ledger"], Metric::Cpu, ms * MS));
        costs.push(("gothic", &["run", "write_ledger"], Metric::Cpu, ms * MS));
        program(costs)
    };
    let (table, outcome) = gate(&ledger(1.0, 0.0), &ledger(1.04, 25.0), 10, 4);
    let found = function(&table, &outcome);
    assert_eq!(found, ("write_ledger".into(), Cause::Cpu));
    // A small function that grew by chance has too little of the change.
    let mut costs = with(shop(), 1, 1.3);
    costs.push(("main", &["main", "serve", "tiny"], Metric::Cpu, 8.0 * MS));
    let (table, outcome) = gate(&program(shop()), &program(costs), 10, 4);
    assert_eq!(function(&table, &outcome), ("parse".into(), Cause::Cpu));
}

#[test]
fn memory_that_costs_no_time_is_not_why_it_takes_longer() {
    let costs = |pack: f64, bytes: f64| {
        let mut costs = shop();
        costs.push(("main", &["main", "pack", "deflate"], Metric::Cpu, pack * MS));
        let init = &["main", "pack", "init"];
        costs.push(("main", init, Metric::AllocatedBytes, bytes));
        costs
    };
    let packing = |pack, bytes: u64| Program {
        allocated_bytes: bytes,
        ..program(costs(pack, bytes as f64))
    };
    let base = packing(100.0, 200_000_000);
    let (table, outcome) = gate(&base, &packing(180.0, 900_000_000), 10, 4);
    let found = function(&table, &outcome);
    assert_eq!(
        found,
        ("deflate".into(), Cause::Cpu),
        "{:#?}",
        outcome.findings
    );
    // The same memory, and the time is spent where it is asked for.
    let mut more = packing(100.0, 900_000_000);
    let init = &["main", "pack", "init", "list_dealloc"];
    more.costs.push(("main", init, Metric::Cpu, 80.0 * MS));
    let (table, outcome) = gate(&base, &more, 10, 4);
    assert_eq!(function(&table, &outcome).1, Cause::Allocation);
    // Half of it is seen in what manages memory: that is it, unless next to nothing more is allocated.
    for (bytes, cause) in [(500_000_000, Cause::Allocation), (290_000_000, Cause::Cpu)] {
        let mut more = packing(100.0, bytes);
        let scan = &["main", "pack", "init", "scan"];
        more.costs.push(("main", init, Metric::Cpu, 45.0 * MS));
        more.costs.push(("main", scan, Metric::Cpu, 35.0 * MS));
        let (table, outcome) = gate(&base, &more, 10, 4);
        assert_eq!(function(&table, &outcome).1, cause);
    }
}

#[test]
fn a_function_that_gives_out_something_else_than_memory_computes() {
    for (name, bytes, cause) in [
        ("allocate_registers", 200_000_000, Cause::Cpu),
        ("allocate_raw", 500_000_000, Cause::Allocation),
        // The heap's own work grows with what is in it, too.
        ("_int_malloc", 200_000_000, Cause::Allocation),
    ] {
        let path = ["main", "serve", name];
        let compiling = |ms: f64, bytes| Program {
            allocated_bytes: bytes,
            costs: [shop(), vec![("main", &path, Metric::Cpu, ms * MS)]].concat(),
            ..program(Vec::new())
        };
        let base = compiling(50.0, 200_000_000);
        let (table, outcome) = gate(&base, &compiling(130.0, bytes), 10, 4);
        assert_eq!(function(&table, &outcome), (name.into(), cause));
    }
}

/// Waits of the main thread: who has the lock, and who ends them.
fn waits(metric: Metric, holder: Option<&'static str>, end: Ended<'static>) -> Wait<'static> {
    Wait {
        waiter: "main",
        metric,
        holder,
        end,
        ns: 0.0,
    }
}

#[test]
fn who_holds_the_lock_is_named() {
    let kept = |ms: f64| Program {
        waits: vec![Wait {
            ns: ms * MS,
            ..waits(Metric::Lock, Some("worker-*"), Ended::By("worker-*"))
        }],
        ..program(with(shop(), 5, ms / 40.0))
    };
    let (table, outcome) = gate(&kept(40.0), &kept(100.0), 10, 3);
    assert_eq!(function(&table, &outcome), ("store".into(), Cause::Lock));
    let held = &outcome.findings[0].explanation.waited_for;
    assert_eq!(held.len(), 1, "{held:?}");
    assert_eq!((held[0].tie, held[0].change()), (Tie::Held, 60.0 * MS));
    let by = held[0].party.expect("is known");
    assert_eq!(table.names.roles()[by.role.0 as usize].thread, "worker-*");
    assert_eq!(by.function.map(|f| table.names.text(f)), Some("let_go"));
}

#[test]
fn what_the_holder_of_a_lock_waits_for_is_the_reason() {
    // The main thread waits for a worker, the worker for a lock, and who holds that syncs a file.
    let syncing = |ms: f64, is_known: bool| {
        let mut costs = shop();
        costs.push(("main", &["main", "join"], Metric::Join, ms * MS));
        let kind = if is_known { Metric::Lock } else { Metric::Wait };
        costs.push(("worker-*", &["work", "take"], kind, 1.05 * ms * MS));
        costs.push(("keeper", &["keep", "sync_journal"], Metric::Io, ms * MS));
        costs.push(("keeper", &["keep"], Metric::Poll, 400.0 * MS));
        let mut waits = vec![Wait {
            ns: ms * MS,
            ..waits(Metric::Join, None, Ended::By("worker-*"))
        }];
        if is_known {
            waits.push(Wait {
                waiter: "worker-*",
                metric: Metric::Lock,
                holder: Some("keeper"),
                end: Ended::By("keeper"),
                ns: 1.05 * ms * MS,
            });
        }
        Program {
            waits,
            ..program(costs)
        }
    };
    // Whether traces know who held the lock, or each wait for it was too short for that.
    for is_known in [true, false] {
        let (base, slower) = (syncing(20.0, is_known), syncing(180.0, is_known));
        let (table, outcome) = gate(&base, &slower, 10, 3);
        let found = function(&table, &outcome);
        assert_eq!(found, ("sync_journal".into(), Cause::Io), "{is_known}");
        let held = &outcome.findings[0].explanation.waited_for;
        let is_held = held.first().is_some_and(|w| w.tie == Tie::Held);
        assert_eq!(is_held, is_known, "{held:?}");
    }
}

#[test]
fn what_others_do_is_no_reason_for_waits_that_they_do_not_end() {
    let waiting = |more: f64, end: Ended<'static>| {
        let mut costs = shop();
        costs.push(("main", &["main", "ask"], Metric::Wait, more * MS));
        // Another thread has more time without evidence, because all takes longer.
        costs.push(("logger", &["log"], Metric::Gap, more * MS));
        costs.push((
            "worker-*",
            &["work", "answer"],
            Metric::Cpu,
            0.5 * more * MS,
        ));
        Program {
            waits: vec![Wait {
                ns: more * MS,
                ..waits(Metric::Wait, None, end)
            }],
            ..program(costs)
        }
    };
    let asked = |end| {
        let (table, outcome) = gate(&waiting(10.0, end), &waiting(90.0, end), 10, 4);
        (
            function(&table, &outcome),
            outcome.findings[0].explanation.waited_for.clone(),
        )
    };
    // They timed out.
    let (found, ends) = asked(Ended::Failed);
    assert_eq!(found, ("ask".into(), Cause::Wait));
    assert_eq!(
        (ends.len(), ends[0].tie, ends[0].party),
        (1, Tie::Failed, None)
    );
    // The worker ended them, not the logger.
    let (found, _) = asked(Ended::By("worker-*"));
    assert_eq!(found, ("answer".into(), Cause::Cpu));
    // Nothing is known: who is seen to take longer, and not of whom there is no evidence.
    let (found, ends) = asked(Ended::Unknown);
    assert_eq!((found.0.as_str(), ends.len()), ("answer", 0));
    // They got something, and nobody is known who sent it.
    let (found, ends) = asked(Ended::NobodyKnown);
    assert_eq!(found, ("ask".into(), Cause::Wait));
    assert_eq!(
        (ends.len(), ends[0].tie, ends[0].party),
        (1, Tie::NobodyKnown, None)
    );
}

#[test]
fn who_works_longer_by_what_nobody_known_made_wait_is_named() {
    // A datagram from a worker: traces do not know who sent it.
    let asking = |ms: f64, of_worker: f64| {
        let mut costs = shop();
        costs.push(("main", &["main", "ask"], Metric::Poll, ms * MS));
        costs.push(("worker-*", &["work", "answer"], Metric::Cpu, of_worker * MS));
        Program {
            waits: vec![Wait {
                ns: ms * MS,
                ..waits(Metric::Poll, None, Ended::NobodyKnown)
            }],
            ..program(costs)
        }
    };
    let named = |of_worker| {
        let (table, outcome) = gate(&asking(10.0, 10.0), &asking(90.0, of_worker), 10, 4);
        function(&table, &outcome)
    };
    assert_eq!(named(88.0), ("answer".into(), Cause::Cpu));
    assert_eq!(named(50.0), ("ask".into(), Cause::Wait));
}

#[test]
fn a_worker_that_is_asked_now_and_then_whether_it_is_done_is_named() {
    let joining = |ms: f64, metric, of_worker: f64| {
        let mut costs = shop();
        costs.push(("main", &["main", "join"], Metric::Wait, ms * MS));
        costs.push(("worker-*", &["work", "sum"], metric, of_worker * MS));
        Program {
            waits: vec![Wait {
                ns: ms * MS,
                ..waits(Metric::Wait, None, Ended::Failed)
            }],
            ..program(costs)
        }
    };
    let named = |metric, of_worker| {
        let base = joining(10.0, metric, 10.0);
        let (table, outcome) = gate(&base, &joining(90.0, metric, of_worker), 10, 4);
        function(&table, &outcome)
    };
    assert_eq!(named(Metric::Cpu, 88.0), ("sum".into(), Cause::Cpu));
    assert_eq!(named(Metric::Sleep, 90.0), ("sum".into(), Cause::Sleep));
    assert_eq!(named(Metric::Io, 90.0), ("sum".into(), Cause::Io));
    // Half of it is not enough where nobody ended the waits.
    assert_eq!(named(Metric::Cpu, 50.0), ("join".into(), Cause::Wait));
    assert_eq!(named(Metric::Io, 50.0), ("join".into(), Cause::Wait));
}

#[test]
fn who_has_nothing_to_do_is_no_reason_for_waits() {
    let beside = |ms: f64, metric, idle: f64, ends: &[Ended<'static>]| {
        let mut costs = shop();
        costs.push(("main", &["main", "join"], Metric::Poll, ms * MS));
        costs.push(("janitor", &["sweep"], metric, idle * MS));
        let wait = |end: &Ended<'static>| Wait {
            ns: ms * MS / ends.len() as f64,
            ..waits(Metric::Poll, None, *end)
        };
        Program {
            waits: ends.iter().map(wait).collect(),
            ..program(costs)
        }
    };
    let named = |metric, ends: &[Ended<'static>]| {
        let base = beside(10.0, metric, 600.0, ends);
        let slower = beside(110.0, metric, 700.0, ends);
        let (table, outcome) = gate(&base, &slower, 10, 4);
        function(&table, &outcome)
    };
    for metric in [Metric::Sleep, Metric::Io, Metric::Net, Metric::Ready] {
        for end in [Ended::Failed, Ended::Unknown] {
            assert_eq!(named(metric, &[end]), ("join".into(), Cause::Wait));
        }
    }
    // Who ended the last of many waits did it, whatever takes up its time.
    let ends = [
        Ended::Failed,
        Ended::Failed,
        Ended::Failed,
        Ended::By("janitor"),
    ];
    assert_eq!(named(Metric::Sleep, &ends), ("sweep".into(), Cause::Sleep));
}

#[test]
fn a_function_that_computes_longer_by_its_callees_does_not_wait() {
    // Two callees that grow alike: the path ends in their caller, which reads something as it did before.
    let slower = |ms: f64, of_table: f64| {
        let mut costs = shop();
        let table = &["main", "table"];
        costs.push(("main", table, Metric::Cpu, of_table * MS));
        costs.push(("main", table, Metric::Io, 5.0 * MS));
        for path in [&["main", "table", "rows"], &["main", "table", "cells"]] {
            costs.push(("main", path, Metric::Cpu, ms * MS));
        }
        program(costs)
    };
    for of_table in [9.0, 11.0] {
        let (table, outcome) = gate(&slower(20.0, 10.0), &slower(70.0, of_table), 10, 4);
        assert_eq!(function(&table, &outcome), ("table".into(), Cause::Cpu));
    }
}

#[test]
fn what_a_function_computes_for_its_calls_is_the_calls() {
    // Uncached reads: the kernel works for as long as it waits, and the sample shows the caller.
    let read = &["main", "serve", "pread"];
    let reading = |ms: f64| {
        let mut costs = shop();
        costs.push(("main", read, Metric::Cpu, 2.0 * ms * MS));
        costs.push(("main", read, Metric::Io, ms * MS));
        program(costs)
    };
    let (table, outcome) = gate(&reading(2.0), &reading(40.0), 10, 4);
    assert_eq!(function(&table, &outcome), ("pread".into(), Cause::Io));
    // Calls that wait no longer are no reason.
    let mut slower = reading(2.0);
    slower.costs.push(("main", read, Metric::Cpu, 70.0 * MS));
    let (table, outcome) = gate(&reading(2.0), &slower, 10, 4);
    assert_eq!(function(&table, &outcome), ("pread".into(), Cause::Cpu));
}

#[test]
fn faults_that_stand_out_are_the_reason_where_they_are_costly() {
    // They are counted from one capture to the next: the caller has them.
    let touching = |ms: f64, faults: f64| {
        let mut costs = shop();
        costs.push(("main", &["main", "serve", "touch"], Metric::Cpu, ms * MS));
        costs.push(("main", &["main", "serve"], Metric::MinorFaults, faults));
        program(costs)
    };
    for (faults, cause) in [(16e3, Cause::PageFaults), (4e3, Cause::Cpu)] {
        let (table, outcome) = gate(&touching(1.0, 1e3), &touching(60.0, faults), 10, 4);
        assert_eq!(function(&table, &outcome), ("touch".into(), cause));
    }
}

#[test]
fn the_others_turn_is_no_reason() {
    // What runs beside on the same processor takes as much again, and no sample sees some of it.
    let beside = |flush: f64, ready: f64, unseen: f64| {
        let mut costs = shop();
        let path = &["main", "serve", "flush"];
        costs.push(("main", path, Metric::Io, flush * MS));
        costs.push(("main", path, Metric::Cpu, 0.4 * flush * MS));
        costs.push(("main", &["main", "serve"], Metric::Ready, ready * MS));
        costs.push(("main", &["main", "serve"], Metric::Gap, unseen * MS));
        program(costs)
    };
    let (a, b) = (beside(10.0, 400.0, 50.0), beside(50.0, 470.0, 110.0));
    let rules = Rules {
        pairing: Pairing::Together,
        ..Rules::default()
    };
    let (table, outcome) = gate_of(&a, &b, 10, 4, rules);
    assert_eq!(outcome.findings[0].row.metric, Metric::Wall);
    assert_eq!(function(&table, &outcome), ("flush".into(), Cause::Io));
    let (table, outcome) = gate(&a, &b, 10, 4);
    assert_ne!(function(&table, &outcome), ("flush".into(), Cause::Io));
}

#[test]
fn what_waits_for_the_cpu_comes_after_what_the_program_does() {
    let mut costs = with(shop(), 1, 1.15);
    costs.push(("main", &["main", "serve"], Metric::Ready, 90.0 * MS));
    let (table, outcome) = gate(&program(shop()), &program(costs), 10, 4);
    assert_eq!(function(&table, &outcome), ("parse".into(), Cause::Cpu));
    let last = outcome.findings.last().expect("two findings");
    assert_eq!(last.explanation.cause, Cause::Scheduling);
}

#[test]
fn what_one_callee_took_over_from_another_explains_no_growth() {
    // Longer lists of keys are sought, and answers take another way to the same socket.
    let answering = |one: f64, many: f64, keys: f64| {
        let mut costs = shop();
        for (path, ms) in [
            (&["main", "answer", "write_one"], one),
            (&["main", "answer", "write_many"], many),
            (&["main", "serve", "keys"], keys),
        ] {
            costs.push(("main", path, Metric::Cpu, ms * MS));
        }
        costs.push((
            "main",
            &["main", "answer", "write_many"],
            Metric::Io,
            0.4 * many * MS,
        ));
        program(costs)
    };
    let (table, outcome) = gate(
        &answering(50.0, 2.0, 20.0),
        &answering(4.0, 50.0, 65.0),
        10,
        4,
    );
    assert_eq!(function(&table, &outcome), ("keys".into(), Cause::Cpu));
}
