//! Samples that the number of allocations, or of system calls, causes, not a tick: who makes them.
//!
//! A sample at a tick says where time goes. Where allocations go it does not say: few ticks meet a thread
//! in front of an allocation. So a thread also captures at the allocation at which its own counter reaches
//! a number drawn at random, and again at the one that holds a byte drawn at random. A stack is taken
//! as often as it allocates (as many bytes as it allocates), however long it runs: what the counters
//! grew by from one such sample to the next belongs to their stacks (`model/src/sampled_events.rs`).
//!
//! The distance to the next one is drawn from the half to the one and a half of a mean, so that a program
//! that allocates in a rhythm is not met at the same beat again and again. The mean begins small, grows by a
//! quarter with each sample that comes early and shrinks by a fifth with each that comes late: as many steps
//! up as down, which bounds the samples of a long run by time and those of a burst by its logarithm.
//!
//! System calls are sampled in the same way, each kind by itself: a stat between a thousand reads is as
//! likely to be met as it would be alone. They are fewer and more costly than allocations, so their means
//! begin lower and grow in smaller steps. Such a sample says how many calls of its kind it stands for. So are
//! the bytes that calls read and write: a sample is taken at the end of the call that moved a byte drawn at
//! random.

use core::sync::atomic::AtomicU64;

use super::tls::Block;
use crate::probe::Probe;
use crate::shm::layout::ThreadEntry;
use crate::sync::Ordering;
use crate::system_call::{SYSTEM_CALLS, SystemCall};

/// Intervals of the thread's sampling clock, on average, from one sample of each kind to the next.
const INTERVALS: u64 = 8;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Allocations,
    Bytes,
    Calls(SystemCall),
}

pub(super) const OF_ALLOCATION: [Kind; 2] = [Kind::Allocations, Kind::Bytes];
const KINDS: usize = OF_ALLOCATION.len() + SYSTEM_CALLS;

impl Kind {
    /// Every kind, in the order of their numbers.
    fn all() -> impl Iterator<Item = Kind> {
        let calls = SystemCall::ALL.into_iter().map(Kind::Calls);
        OF_ALLOCATION.into_iter().chain(calls)
    }

    fn number(self) -> usize {
        match self {
            Kind::Allocations => 0,
            Kind::Bytes => 1,
            Kind::Calls(call) => OF_ALLOCATION.len() + call as usize,
        }
    }

    pub(super) fn probe(self) -> Probe {
        match self {
            Kind::Allocations => Probe::SampledAllocation,
            Kind::Bytes => Probe::SampledByte,
            Kind::Calls(_) => Probe::SampledCall,
        }
    }

    /// The mean distance that the first thread begins with.
    fn first_mean(self) -> u64 {
        match self {
            Kind::Allocations => 32,
            Kind::Bytes => 4096,
            Kind::Calls(call) if call.is_bytes() => 4096,
            Kind::Calls(_) => 8,
        }
    }

    /// The part of a mean by which it grows. What it shrinks by undoes that.
    fn step(self) -> u64 {
        match self {
            Kind::Allocations | Kind::Bytes => 4,
            // A few large calls are many bytes: samples of a short run would nearly all be of its first
            // calls.
            Kind::Calls(call) if call.is_bytes() => 16,
            Kind::Calls(_) => 8,
        }
    }

    /// The distance at which a thread looks again whether it may capture.
    fn idle(self) -> u64 {
        match self {
            Kind::Allocations => 1 << 12,
            Kind::Bytes => 1 << 20,
            Kind::Calls(call) if call.is_bytes() => 1 << 20,
            Kind::Calls(_) => 1 << 8,
        }
    }

    pub(super) fn counter(self, entry: &ThreadEntry) -> u64 {
        match self {
            Kind::Allocations => entry.allocations.load(Ordering::Relaxed),
            Kind::Bytes => entry.allocated_bytes.load(Ordering::Relaxed),
            Kind::Calls(call) => entry.system_calls[call as usize]
                .count
                .load(Ordering::Relaxed),
        }
    }

    /// The value of the counter at which the thread captures; 0: not drawn yet.
    pub(super) fn next<'a>(self, block: &'a Block, entry: &'a ThreadEntry) -> &'a AtomicU64 {
        match self {
            Kind::Allocations => &block.next_allocation,
            Kind::Bytes => &block.next_byte,
            Kind::Calls(call) => &entry.system_calls[call as usize].next,
        }
    }
}

/// True when counters of these values ask for a sample.
#[inline(always)]
pub(super) fn is_due(block: &Block, allocations: u64, bytes: u64) -> bool {
    // Plain reads, which the compiler can make part of the comparison.
    // SAFETY: words of this thread's own block, which no other thread touches.
    let (next_allocation, next_byte) = unsafe {
        (
            block.next_allocation.as_ptr().read(),
            block.next_byte.as_ptr().read(),
        )
    };
    allocations >= next_allocation || bytes >= next_byte
}

/// Counts a system call, unless it is one to be captured. False: it is.
#[inline(always)]
pub(super) fn add_quietly(entry: &ThreadEntry, call: SystemCall) -> bool {
    add_some_quietly(entry, call, 1)
}

#[inline(always)]
pub(super) fn add_some_quietly(entry: &ThreadEntry, call: SystemCall, more: u64) -> bool {
    let calls = &entry.system_calls[call as usize];
    let count = calls.count.load(Ordering::Relaxed).wrapping_add(more);
    let is_quiet = count < calls.next.load(Ordering::Relaxed);
    if is_quiet {
        calls.count.store(count, Ordering::Relaxed);
    }
    is_quiet
}

/// The mean distance of the process' last draw by kind: what a new thread begins near.
static LAST_MEAN: [AtomicU64; KINDS] = [const { AtomicU64::new(0) }; KINDS];

/// What a thread remembers of its draws.
#[repr(C)]
pub(super) struct State {
    random: u64,
    pace: [Pace; KINDS],
}

#[repr(C)]
struct Pace {
    /// 0: nothing was drawn yet.
    mean: u64,
    /// The thread's CPU time when the mean was last thought over.
    cpu_ns: u64,
    /// Up to where samples stand for what was counted, or nothing was captured.
    taken: u64,
}

impl State {
    /// Forgets: the next allocation or call draws. `seed` sets the thread apart from others, whose entry is
    /// new.
    pub(super) fn reset(&mut self, block: &Block, seed: u64) {
        self.random = seed | 1;
        for pace in &mut self.pace {
            *pace = Pace {
                mean: 0,
                cpu_ns: 0,
                taken: 0,
            };
        }
        block.next_allocation.store(0, Ordering::Relaxed);
        block.next_byte.store(0, Ordering::Relaxed);
    }

    /// Nothing is captured now.
    pub(super) fn rest(&mut self, kind: Kind, block: &Block, entry: &ThreadEntry) {
        let next = kind.counter(entry).saturating_add(kind.idle());
        kind.next(block, entry).store(next, Ordering::Relaxed);
        self.pace[kind.number()].taken = kind.counter(entry);
    }

    /// Draws when the next sample of this kind is taken. `Some`: one is due now, and stands for so many of
    /// what is counted.
    pub(super) fn draw(
        &mut self,
        kind: Kind,
        block: &Block,
        entry: &ThreadEntry,
        interval_ns: u32,
    ) -> Option<u64> {
        let pace = &mut self.pace[kind.number()];
        let is_first = pace.mean == 0;
        if is_first {
            let last = LAST_MEAN[kind.number()].load(Ordering::Relaxed);
            pace.mean = kind.first_mean().max(last / 4);
        } else if pace.is_late(entry, interval_ns) {
            pace.shorten(kind);
        } else {
            let longer = (pace.mean / kind.step()).max(1);
            pace.mean = pace.mean.saturating_add(longer);
        }
        pace.cpu_ns = entry.cpu_ns.load(Ordering::Relaxed);
        let (mean, taken) = (pace.mean, pace.taken);
        LAST_MEAN[kind.number()].store(mean, Ordering::Relaxed);
        let counter = kind.counter(entry);
        let next = kind.next(block, entry);
        let is_of_calls = matches!(kind, Kind::Calls(_));
        // A thread may make few calls: its first is as likely to be met as any other, and each byte of it.
        let drawn = match (is_of_calls, is_first) {
            (true, true) => taken.saturating_add(1 + self.random() % mean),
            (true, false) => next.load(Ordering::Relaxed).min(counter),
            (false, _) => counter,
        };
        if drawn > counter {
            next.store(drawn, Ordering::Relaxed);
            return None;
        }
        let (last, sooner) = self.next_after(kind, drawn, counter);
        next.store(sooner, Ordering::Relaxed);
        if is_first && !is_of_calls {
            return None;
        }
        self.pace[kind.number()].taken = last.max(taken);
        Some(last.saturating_sub(taken))
    }

    /// The last number drawn up to the counter, and the first one after it, where `drawn` is one. A call that
    /// moves many bytes may hold several. Distances begin at what was drawn, not at the end of the call:
    /// otherwise small calls after a large one would be met less often than their share.
    fn next_after(&mut self, kind: Kind, drawn: u64, counter: u64) -> (u64, u64) {
        const FEW: usize = 8;
        let mut last = drawn;
        for _ in 0..FEW {
            let next = last.saturating_add(self.distance(kind));
            if next > counter {
                return (last, next);
            }
            last = next;
        }
        let behind = self.random() % self.distance(kind);
        last = last.max(counter.saturating_sub(behind));
        let next = last.saturating_add(self.distance(kind));
        (last, next.max(counter.saturating_add(1)))
    }

    /// At a tick: a thread that has come to allocate less, or to make fewer calls, than before is not waited
    /// for as long.
    pub(super) fn catch_up(&mut self, block: &Block, entry: &ThreadEntry, interval_ns: u32) {
        for kind in Kind::all() {
            let pace = &mut self.pace[kind.number()];
            if pace.mean != 0 && pace.is_late(entry, interval_ns) {
                pace.shorten(kind);
                pace.cpu_ns = entry.cpu_ns.load(Ordering::Relaxed);
                let next = kind.next(block, entry);
                let sooner = kind.counter(entry).saturating_add(self.distance(kind));
                next.store(sooner.min(next.load(Ordering::Relaxed)), Ordering::Relaxed);
            }
        }
    }

    /// A random distance around the mean, at least 1.
    fn distance(&mut self, kind: Kind) -> u64 {
        let mean = self.pace[kind.number()].mean.max(1);
        let least = mean.div_ceil(2);
        least.saturating_add(self.random() % (2 * (mean - least) + 1))
    }

    fn random(&mut self) -> u64 {
        // Marsaglia, "Xorshift RNGs" (2003), the triple 13, 7, 17.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

impl Pace {
    /// The thread has run for longer than planned, as far as its last capture at a tick tells.
    fn is_late(&self, entry: &ThreadEntry, interval_ns: u32) -> bool {
        let cpu_ns = entry.cpu_ns.load(Ordering::Relaxed);
        cpu_ns.saturating_sub(self.cpu_ns) >= u64::from(interval_ns) * INTERVALS
    }

    fn shorten(&mut self, kind: Kind) {
        let shorter = (self.mean / (kind.step() + 1)).max(1);
        self.mean = self.mean.saturating_sub(shorter).max(1);
    }
}
