//! System calls belong to the stacks of the samples that they caused.

use stackbeat_core::probe::Probe;
use stackbeat_core::system_call::SystemCall;

use super::super::synthetic::{LEAF_PC, NATIVE};
use super::slice_rules::{A, B, C, MS, picture, play};
use super::*;

/// Kind, innermost function and count of what was handed out, in order.
fn calls_of(trace: &Trace, all: &Everything) -> Vec<(SystemCall, String, u64)> {
    let calls = all.calls.iter().map(|call| {
        let frame = *trace.stack_frames(call.stack).last().expect("a stack");
        let name = trace.function(trace.frame(frame).function).name.clone();
        (call.call, name, call.count)
    });
    calls.collect()
}

#[test]
fn calls_belong_to_their_samples_and_the_rest_to_the_last_of_its_kind() {
    let script = |calls: bool| {
        play(|b, t| {
            let ab = b.stack(1, &[A, B], LEAF_PC);
            let ac = b.stack(1, &[A, C], NATIVE);
            t.run(ab, 0, Probe::Running);
            if calls {
                t.call(ac, SystemCall::Read, 40);
                t.call(ab, SystemCall::Open, 3);
                t.call(ab, SystemCall::Read, 20);
            }
            t.run(ab, MS, Probe::Running);
            // One more read; four opens, and one write that no sample met.
            t.system_calls = vec![61, 1, 0, 7];
        })
    };
    let (trace, all) = script(true);
    let (open, read) = (SystemCall::Open, SystemCall::Read);
    let expected = [
        (read, "c", 40),
        (open, "b", 3),
        (read, "b", 20),
        (read, "b", 1),
        (open, "b", 4),
    ];
    let expected = expected.map(|(call, name, count)| (call, name.to_owned(), count));
    assert_eq!(calls_of(&trace, &all), expected);
    // They take no time.
    let (without, none) = script(false);
    let lasting = |trace, all| {
        let mut slices = picture(trace, all);
        slices.retain(|slice| slice.3 != 0);
        slices
    };
    assert_eq!(lasting(&trace, &all), lasting(&without, &none));
    assert!(calls_of(&without, &none).is_empty());
}

#[test]
fn more_than_can_lie_between_two_samples_is_nobodys() {
    let (trace, all) = play(|b, t| {
        let ab = b.stack(1, &[A, B], LEAF_PC);
        t.run(ab, 0, Probe::Running);
        t.call(ab, SystemCall::Read, 10);
        t.system_calls = vec![10_000];
    });
    let read = |count| (SystemCall::Read, "b".to_owned(), count);
    assert_eq!(calls_of(&trace, &all), [read(10), read(40)]);
}
