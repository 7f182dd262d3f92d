//! Samples that the number of allocations causes, not a tick: who allocates.
//!
//! A sample at a tick says where time goes. Where allocations go it does not say: few ticks meet a thread
//! in front of an allocation. So a thread also captures at the allocation at which its own counter reaches
//! a number drawn at random, and again at the one that holds a byte drawn at random. A stack is taken
//! as often as it allocates (as many bytes as it allocates), however long it runs: what the counters
//! grew by from one such sample to the next belongs to their stacks (`collector/src/model/counted.rs`).
//!
//! The distance to the next one is drawn from the half to the one and a half of a mean, so that a program that
//! allocates in a rhythm is not met at the same beat again and again. The mean begins small, grows by a quarter with each sample
//! that comes early and shrinks by a fifth with each that comes late: as many steps up as down, which
//! bounds the samples of a long run by time and those of a burst by its logarithm.

use core::sync::atomic::AtomicU64;

use super::registered;
use crate::layout::ThreadEntry;
use crate::probe::Probe;
use crate::sync::Ordering;
use crate::sys::tls::{self, Block};

/// Intervals of running, on average, from one sample of each kind to the next.
const INTERVALS: u64 = 8;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Allocations,
    Bytes,
}

impl Kind {
    const ALL: [Kind; 2] = [Kind::Allocations, Kind::Bytes];

    pub fn of(probe: Probe) -> Option<Kind> {
        match probe {
            Probe::CountedAllocation => Some(Kind::Allocations),
            Probe::CountedByte => Some(Kind::Bytes),
            _ => None,
        }
    }

    fn probe(self) -> Probe {
        match self {
            Kind::Allocations => Probe::CountedAllocation,
            Kind::Bytes => Probe::CountedByte,
        }
    }

    /// The mean distance that the first thread begins with.
    fn first_mean(self) -> u64 {
        match self {
            Kind::Allocations => 32,
            Kind::Bytes => 4096,
        }
    }

    /// The distance at which a thread looks again whether it may capture.
    fn idle(self) -> u64 {
        match self {
            Kind::Allocations => 1 << 12,
            Kind::Bytes => 1 << 20,
        }
    }

    fn counter(self, entry: &ThreadEntry) -> u64 {
        match self {
            Kind::Allocations => entry.allocations.load(Ordering::Relaxed),
            Kind::Bytes => entry.allocated_bytes.load(Ordering::Relaxed),
        }
    }

    /// The value of the counter at which the thread captures; 0: not drawn yet.
    fn next(self, block: &Block) -> &AtomicU64 {
        match self {
            Kind::Allocations => &block.next_allocation,
            Kind::Bytes => &block.next_byte,
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

/// The thread's counters have reached what was drawn.
#[cold]
#[inline(never)]
pub(super) fn capture() {
    let block = tls::block();
    for kind in Kind::ALL {
        let Some((entry, _)) = registered(block) else {
            return;
        };
        if kind.counter(entry) >= kind.next(block).load(Ordering::Relaxed) {
            super::capture::slow(&super::Request::point(kind.probe()));
        }
    }
}

/// The mean distance of the process' last draw by kind: what a new thread begins near.
static LAST_MEAN: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// What a thread remembers of its draws.
#[repr(C)]
pub(super) struct State {
    random: u64,
    pace: [Pace; 2],
}

#[repr(C)]
struct Pace {
    /// 0: nothing was drawn yet.
    mean: u64,
    /// The thread's CPU time when the mean was last thought over.
    cpu_ns: u64,
}

impl State {
    /// Forgets: the next allocation draws. `seed` sets the thread apart from others.
    pub fn reset(&mut self, block: &Block, seed: u64) {
        self.random = seed | 1;
        for kind in Kind::ALL {
            self.pace[kind as usize] = Pace { mean: 0, cpu_ns: 0 };
            kind.next(block).store(0, Ordering::Relaxed);
        }
    }

    /// Nothing is captured now.
    pub fn rest(&mut self, kind: Kind, block: &Block, entry: &ThreadEntry) {
        let next = kind.counter(entry).saturating_add(kind.idle());
        kind.next(block).store(next, Ordering::Relaxed);
    }

    /// Draws when the next sample of this kind is taken. False: for the first time, so that none is due now.
    pub fn draw(
        &mut self,
        kind: Kind,
        block: &Block,
        entry: &ThreadEntry,
        interval_ns: u32,
    ) -> bool {
        let pace = &mut self.pace[kind as usize];
        let is_first = pace.mean == 0;
        if is_first {
            let last = LAST_MEAN[kind as usize].load(Ordering::Relaxed);
            pace.mean = kind.first_mean().max(last / 4);
        } else if pace.is_late(entry, interval_ns) {
            pace.shorten();
        } else {
            pace.mean = pace.mean.saturating_add((pace.mean / 4).max(1));
        }
        pace.cpu_ns = entry.cpu_ns.load(Ordering::Relaxed);
        LAST_MEAN[kind as usize].store(pace.mean, Ordering::Relaxed);
        let next = kind.counter(entry).saturating_add(self.distance(kind));
        kind.next(block).store(next, Ordering::Relaxed);
        !is_first
    }

    /// At a tick: a thread that has come to allocate less than before is not waited for as long.
    pub fn catch_up(&mut self, block: &Block, entry: &ThreadEntry, interval_ns: u32) {
        for kind in Kind::ALL {
            let pace = &mut self.pace[kind as usize];
            if pace.mean != 0 && pace.is_late(entry, interval_ns) {
                pace.shorten();
                pace.cpu_ns = entry.cpu_ns.load(Ordering::Relaxed);
                let next = kind.next(block);
                let sooner = kind.counter(entry).saturating_add(self.distance(kind));
                next.store(sooner.min(next.load(Ordering::Relaxed)), Ordering::Relaxed);
            }
        }
    }

    /// A random distance around the mean, at least 1.
    fn distance(&mut self, kind: Kind) -> u64 {
        // Marsaglia, "Xorshift RNGs" (2003), the triple 13, 7, 17.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let mean = self.pace[kind as usize].mean.max(1);
        let least = mean.div_ceil(2);
        least.saturating_add(self.random % (2 * (mean - least) + 1))
    }
}

impl Pace {
    /// The thread has run for longer than planned, as far as its last capture at a tick tells.
    fn is_late(&self, entry: &ThreadEntry, interval_ns: u32) -> bool {
        let cpu_ns = entry.cpu_ns.load(Ordering::Relaxed);
        cpu_ns.saturating_sub(self.cpu_ns) >= u64::from(interval_ns) * INTERVALS
    }

    fn shorten(&mut self) {
        self.mean = self.mean.saturating_sub((self.mean / 5).max(1)).max(1);
    }
}
