//! Stacks with one of Swift's async functions, as LLVM and Swift's runtime lay them out.

use super::super::leaf::EXTENDED;
use super::*;

const HEAP: u64 = 0x60_0000_1000;
/// A signature, in the bits above 39.
const SIGNED: u64 = 0x0025_0000_0000_0000;

/// Memory by address: a stack of three records, of which the second is an async function's, and three
/// contexts.
///
/// ```text
/// leaf (0x1000) -> 0x2000 is async -> executor 0x3000 -> 0x4000
///                  waited for by 0x5000, 0x6000, 0x7000
/// ```
fn memory() -> HashMap<u64, u64> {
    let at = |words: u64| STACK_LOW + 8 * words;
    let context = |i: u64| HEAP + 0x40 * i;
    HashMap::from([
        (at(2), at(10)),
        (at(3), 0x2000),
        // The word in front of the record, and the record.
        (at(9), context(0) | SIGNED),
        (at(10), at(20) | EXTENDED),
        (at(11), 0x3000 | SIGNED),
        (at(20), 0),
        (at(21), 0x4000),
        (context(0), context(1) | SIGNED),
        (context(0) + 8, 0x5000 | SIGNED),
        (context(1), context(2)),
        (context(1) + 8, 0x6000),
        (context(2), 0),
        (context(2) + 8, 0x7000),
    ])
}

/// Frames with whether they await, and the end.
fn walk<A: Architecture>(
    walker: &mut FramePointerWalker,
    memory: &HashMap<u64, u64>,
    limit: usize,
) -> (Vec<(u64, bool)>, WalkEnd) {
    let registers = Registers {
        pc: 0x1000,
        sp: STACK_LOW,
        fp: STACK_LOW + 16,
        ..Registers::default()
    };
    let from = Start {
        registers: &registers,
        exact: false,
        high: STACK_HIGH,
        skip: (0, 0),
    };
    let mut out = Frames::new(limit);
    let mut read = |address: u64| memory.get(&address).copied();
    let mask = CodeMask::of_width(39);
    let end = walker.walk_stack::<A>(&from, STACK_LOW, mask, &mut read, &mut out);
    let frames = out.addresses().iter().enumerate();
    let frames = frames.map(|(i, address)| (*address, out.is_awaiting(i)));
    (frames.collect(), end)
}

fn knowing() -> std::boxed::Box<FramePointerWalker> {
    let mut walker = std::boxed::Box::new(FramePointerWalker::new());
    walker.knows_swift();
    walker
}

const CALLERS: [(u64, bool); 4] = [
    (0x1000, false),
    (0x2000, false),
    (0x3000, false),
    (0x4000, false),
];
const ALL: [(u64, bool); 7] = [
    (0x1000, false),
    (0x2000, false),
    (0x5000, true),
    (0x6000, true),
    (0x7000, true),
    (0x3000, false),
    (0x4000, false),
];

#[test]
fn who_waits_stands_between_an_async_function_and_its_executor() {
    let memory = memory();
    assert_eq!(
        walk::<Aarch64>(&mut knowing(), &memory, 64),
        (ALL.to_vec(), WalkEnd::Root)
    );
    assert_eq!(
        walk::<X86_64>(&mut knowing(), &memory, 64),
        (ALL.to_vec(), WalkEnd::Root)
    );
    let (cut, end) = walk::<Aarch64>(&mut knowing(), &memory, 4);
    assert_eq!((&cut[..], end), (&ALL[..4], WalkEnd::Depth));
    // Elsewhere the bit is a tag of the pointer.
    let mut ignorant = FramePointerWalker::new();
    let found = walk::<Aarch64>(&mut ignorant, &memory, 64);
    assert_eq!(found, (CALLERS.to_vec(), WalkEnd::Root));
}

/// One thing wrong anywhere, and no context gives a frame.
#[test]
fn a_chain_of_contexts_that_is_not_whole_gives_no_frame() {
    let context = |i: u64| HEAP + 0x40 * i;
    let wrong = [
        (STACK_LOW + 72, None),
        (STACK_LOW + 72, Some(0)),
        (context(0), Some(context(1) + 8)),
        (context(0) + 8, Some(0x5001)),
        (context(1), Some(context(0))),
        (context(1), Some(context(1))),
        (context(2), Some(context(1))),
        (context(2) + 8, Some(0)),
        (context(2) + 8, None),
        (context(1), Some(0x1234_5670)),
    ];
    for (address, value) in wrong {
        let mut memory = memory();
        match value {
            Some(value) => _ = memory.insert(address, value),
            None => _ = memory.remove(&address),
        }
        let found = walk::<Aarch64>(&mut knowing(), &memory, 64);
        assert_eq!(
            found,
            (CALLERS.to_vec(), WalkEnd::Root),
            "{address:#x} {value:?}"
        );
    }
}

/// Records are kept for the next walk, and contexts are not: another function may wait then.
#[test]
fn a_later_walk_sees_who_waits_then() {
    let (mut walker, mut memory) = (knowing(), memory());
    assert_eq!(walk::<Aarch64>(&mut walker, &memory, 64).0, ALL);
    memory.insert(HEAP + 8, 0x8000);
    let mut changed = ALL;
    changed[2].0 = 0x8000;
    assert_eq!(walk::<Aarch64>(&mut walker, &memory, 64).0, changed);
    // What is outside of the async function is kept.
    assert_eq!(walker.len, 1);
}

/// Whatever memory holds, a walk ends.
#[test]
fn garbage_in_contexts_ends_the_walk() {
    let mut random = Random(99);
    for _ in 0..2_000 {
        let mut memory = memory();
        let addresses: Vec<u64> = memory.keys().copied().collect();
        for address in &addresses {
            if random.one_in(3) {
                let other = addresses[random.below(addresses.len() as u64) as usize];
                memory.insert(*address, other | (random.below(2) * EXTENDED));
            }
        }
        let (frames, _) = walk::<Aarch64>(&mut knowing(), &memory, 256);
        assert!(frames.len() <= 256);
    }
}
