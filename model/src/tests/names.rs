//! What functions are called, and what that says of waits; and counters, which have names, too.

use stackbeat_core::probe::{Cause, Probe};

use super::super::synthetic::{AWAITING, Builder, LEAF_PC, NATIVE, Name};
use super::slice_rules::{A, B, MS, START, picture, play};
use super::*;

const LOCK: u64 = 0x10_1000;
const CONDITION: u64 = 0x10_1100;

fn name(b: &mut Builder, address: u64, function: &'static str) {
    let name = Name {
        function,
        file: "",
        defined: 0,
        line: 0,
    };
    for kind in [NATIVE, LEAF_PC] {
        b.symbol(1, address, kind, "/bin/program", &[name]);
    }
}

/// Gives an address of run-time code a name from this time on; none: it loses it.
fn rename(b: &mut Builder, address: u64, kind: u64, function: Option<&'static str>, from_ns: u64) {
    let name = function.map(|function| Name {
        function,
        file: "",
        defined: 0,
        line: 0,
    });
    b.symbol_from(1, address, kind, "", name.as_slice(), from_ns);
}

/// Its address is the begin of code: it has the name of that, not of what lies before.
#[test]
fn a_function_that_waits_without_a_stack_is_marked() {
    let (trace, _) = play(|b, t| {
        for (kind, function) in [(NATIVE, "before"), (LEAF_PC, "load")] {
            let name = Name {
                function,
                file: "",
                defined: 0,
                line: 0,
            };
            b.symbol(1, 0x10_2000, kind, "/bin/program", &[name]);
        }
        let stack = b.mixed_stack(1, &[(A, NATIVE), (0x10_2000, AWAITING), (B, LEAF_PC)]);
        t.run(stack, MS, Probe::Running);
        t.run(stack, MS, Probe::Running);
    });
    let is_there = |name: &str| trace.functions().iter().any(|f| f.name == name);
    let found = ["load [async]", "before", "before [async]"].map(is_there);
    // Nothing else names what lies before.
    assert_eq!(found, [true, true, false]);
}

#[test]
fn an_address_whose_code_is_replaced_has_the_name_of_each_moment() {
    const OUTER: u64 = 0x7000_0000_0010;
    const INNER: u64 = 0x7000_0000_0020;
    let (trace, all) = play(|b, t| {
        for (name, from_ms) in [(Some("x"), 0), (Some("y"), 20), (None, 40), (Some("x"), 60)] {
            let from_ns = from_ms * MS + u64::from(from_ms != 0) * START;
            for kind in [NATIVE, LEAF_PC] {
                rename(b, INNER, kind, name, from_ns);
            }
        }
        rename(b, OUTER, NATIVE, Some("o"), 0);
        rename(b, OUTER, NATIVE, Some("p"), START + 30 * MS);
        let stack = b.stack(1, &[A, OUTER, INNER], LEAF_PC);
        let below = b.stack(1, &[A, OUTER, INNER, B], LEAF_PC);
        let above = b.stack(1, &[A], NATIVE);
        t.run(stack, 0, Probe::Running);
        for _ in 0..69 {
            t.run(stack, MS, Probe::Running);
        }
        // A later name of a frame above.
        t.run(below, MS, Probe::Running);
        t.block(below, Probe::Read, 10 * MS, (1, 0));
        t.run(above, MS, Probe::Malloc);
        b.wait(
            1,
            stack,
            Probe::BlockedOutside,
            START + 25 * MS,
            START + 26 * MS,
        );
    });
    let mut lengths = std::collections::BTreeMap::new();
    for (depth, name, _, length) in picture(&trace, &all) {
        *lengths.entry((depth, name)).or_insert(0) += (length + 500) / 1000;
    }
    let of = |depth: u32, name: &str| lengths.get(&(depth, name.to_owned())).copied();
    let expected = [(1, "o", 30), (1, "p", 51), (2, "x", 41), (2, "y", 20)];
    for (depth, name, length) in expected {
        let is = of(depth, name).unwrap_or(0);
        assert!(
            is.abs_diff(length) <= 1,
            "{name}: {is} ms of {length}; {lengths:?}"
        );
    }
    let nameless = of(2, "[JIT program]").unwrap_or(0);
    assert!(nameless.abs_diff(20) <= 1, "{lengths:?}");
    assert_eq!(of(4, "read"), Some(10), "{lengths:?}");
}

#[test]
fn a_futex_below_the_function_of_a_lock_is_a_lock() {
    let (_, all) = play(|b, t| {
        name(
            b,
            LOCK,
            "std::sys::sync::mutex::futex::Mutex::lock_contended",
        );
        name(
            b,
            CONDITION,
            "std::sys::sync::condvar::futex::Condvar::wait_optional_timeout",
        );
        let lock = b.stack(1, &[A, LOCK, B], NATIVE);
        let condition = b.stack(1, &[A, CONDITION, B], NATIVE);
        // Whatever a thread does far below it, is the callee's own.
        let far = b.stack(1, &[[A, LOCK].as_slice(), &[B; 20]].concat(), NATIVE);
        let again = b.stack(1, &[A, CONDITION, LOCK, B], NATIVE);
        t.run(lock, MS, Probe::Running);
        t.block(lock, Probe::FutexWait, 7 * MS, (1, 0));
        t.block(condition, Probe::FutexWait, 20 * MS, (1, 0));
        t.block(far, Probe::FutexWait, 20 * MS, (1, 0));
        t.block(again, Probe::CondWait, 7 * MS, (1, 0));
        t.block(lock, Probe::Read, 3 * MS, (1, 0));
        t.vanish(100 * MS);
        b.wait(
            1,
            lock,
            Probe::FutexWait,
            t.now_ns - 80 * MS,
            t.now_ns - 60 * MS,
        );
        t.run(condition, MS, Probe::Running);
    });
    let blocked = |cause: Cause| all.totals[0].1.blocked_ns[cause as usize] / MS;
    assert_eq!(
        [Cause::Lock, Cause::Wait, Cause::Io].map(blocked),
        [34, 40, 3]
    );
    let probes = |wanted: Probe| {
        let blocked = SegmentKind::Blocked(wanted.into());
        all.segments.iter().filter(|s| s.kind == blocked).count()
    };
    assert_eq!([Probe::FutexLock, Probe::ConditionLock].map(probes), [2, 1]);
}

#[test]
fn counters_end_with_their_process() {
    let mut b = Builder::new(MS, &["program"], START);
    for upid in [1, 2] {
        b.process(upid, 1000 * upid, 0, START, "/bin/program");
        b.thread(upid, upid, 1000 * upid, "program", START);
    }
    b.process_end(1, START + 5 * MS, None);
    let values = [4, 5, 6].map(|ms| (START + ms * MS, ms));
    for (upid, name) in [(1, "memory"), (2, "memory"), (0, "pressure")] {
        b.counter(upid, name, "", &values);
    }
    b.counter(1, "late", "", &values[2..]);
    let all = visit(&open(b.finish(START + 9 * MS, 0)));
    let values: Vec<_> = all.counters.iter().map(|c| c.values.len()).collect();
    assert_eq!(values, [2, 3, 3]);
}
