//! Running time between two samples that say nothing about it: two waits, or who ended them.
//!
//! Where a thread runs for less than the interval between two waits, a tick meets few of these *bursts*. What
//! it finds in those stands for the others as well: of bursts of a length L, ticks at an interval I meet the
//! share L / I, so that to each one that was met belong (I − L) / L others of it, of I − L together. This
//! time is *owed* to the stacks in it, and paid with bursts between the same two stacks that no tick met.
//! Bursts of an interval and more are met always. Lengths are CPU time: others may have the processor in the
//! middle of a burst.

use std::collections::VecDeque;
use std::hash::Hash;

use hashbrown::HashMap;

use crate::{Evidence, StackIndex};

/// Stacks that are kept of one burst. Few ticks meet one that is shorter than the interval.
const OF_ONE: usize = 16;
/// Stacks that are kept of all bursts in one place.
const OF_PLACE: usize = 64;
/// Places that are kept. With more of them all begin anew.
const PLACES: usize = 1024;

/// A thread's burst that goes on.
#[derive(Debug, Default)]
pub(crate) struct Burst {
    /// Where ticks met it: the latest.
    stacks: VecDeque<StackIndex>,
    /// How often.
    times: u64,
    /// Running time so far, ns.
    ns: u64,
    /// The running time that the latest of its samples stands for so far, ns.
    weight_ns: u64,
}

impl Burst {
    /// A tick met it here.
    pub(crate) fn met(&mut self, stack: StackIndex) {
        if self.stacks.len() == OF_ONE {
            self.stacks.pop_front();
        }
        self.stacks.push_back(stack);
        self.times += 1;
        self.weight_ns = 0;
    }

    /// It waits for a processor. The sample before, of its latest stack, stands for so much running time.
    pub(crate) fn goes_on_from(&mut self, weight_ns: u64) {
        self.weight_ns = weight_ns;
    }

    /// So much more of it after a wait for a processor: what the latest tick found goes on. `None`: none has
    /// met it.
    pub(crate) fn more(&mut self, ns: u64) -> Option<Found> {
        let stack = *self.stacks.back()?;
        let evidence = Evidence::of_more(&mut self.weight_ns, ns);
        Some(Found {
            stack,
            evidence: Evidence {
                samples: 0,
                ..evidence
            },
        })
    }

    pub(crate) fn run(&mut self, ns: u64) {
        self.ns = self.ns.saturating_add(ns);
    }
}

/// A stack that a tick met in a burst.
#[derive(Clone, Copy, Debug)]
struct Met {
    stack: StackIndex,
    owed_ns: i64,
    /// The running time that it stands for so far.
    weight_ns: u64,
}

/// Where a burst belongs that no tick met, and what that stands on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub stack: StackIndex,
    pub evidence: Evidence,
}

/// What ticks met in the bursts of one place.
#[derive(Debug, Default)]
struct Known {
    /// The latest; or one of a burst that was no shorter than the interval, while no shorter one was met.
    met: VecDeque<Met>,
    are_short: bool,
}

impl Known {
    /// `owed_ns`: to each of its stacks; 0 for one that is no shorter than the interval.
    fn add(&mut self, burst: &Burst, owed_ns: i64) {
        let weight_ns = burst.ns / burst.times.max(1);
        if owed_ns == 0 {
            if self.met.is_empty() {
                let last = burst.stacks.back();
                (self.met).extend(last.map(|&stack| Met {
                    stack,
                    owed_ns,
                    weight_ns,
                }));
            }
            return;
        }
        if !self.are_short {
            self.met.clear();
            self.are_short = true;
        }
        for &stack in &burst.stacks {
            if self.met.len() == OF_PLACE {
                self.met.pop_front();
            }
            self.met.push_back(Met {
                stack,
                owed_ns,
                weight_ns,
            });
        }
    }
}

/// What ticks met in bursts, of all threads: those of a pool do the same work. A stack is of one process, but
/// for `NONE`, which is no place.
#[derive(Debug, Default)]
pub(crate) struct Bursts {
    /// Between these two stacks.
    between: HashMap<(StackIndex, StackIndex), Known>,
    /// After this stack, and before it.
    after: HashMap<StackIndex, Known>,
    before: HashMap<StackIndex, Known>,
}

impl Bursts {
    /// A burst between these two stacks is over; at its end ticks came at this interval. `by_chance`: at one
    /// of its ends is a wait that a tick met, so there may be others in it that none has met, or others had
    /// the processor in it. It may be of any length.
    pub(crate) fn keep(
        &mut self,
        (from, to): (StackIndex, StackIndex),
        burst: &Burst,
        interval_ns: u64,
        by_chance: bool,
    ) {
        if burst.stacks.is_empty() || is_unknown(from, to) {
            return;
        }
        let worth_ns = match by_chance {
            true => interval_ns.saturating_mul(burst.times),
            false => interval_ns,
        };
        let owed_ns = worth_ns.saturating_sub(burst.ns) / burst.times;
        let owed_ns = i64::try_from(owed_ns).unwrap_or(i64::MAX);
        place(&mut self.between, (from, to)).add(burst, owed_ns);
        place(&mut self.after, from).add(burst, owed_ns);
        place(&mut self.before, to).add(burst, owed_ns);
    }

    /// The stack that a burst of so much running time belongs to, which no tick met. `None`: nothing is known
    /// of bursts there. No `to`: it goes on. `anybodys`: threads come by this side whatever they do, because
    /// they begin or end there: it says something only together with the other side, and two such sides say
    /// nothing.
    pub(crate) fn spend(
        &mut self,
        (from, to): (StackIndex, Option<StackIndex>),
        anybodys: (bool, bool),
        ns: u64,
    ) -> Option<Found> {
        let (from_is, to_is) = anybodys;
        if is_unknown(from, to.unwrap_or(from)) || from_is && to_is {
            return None;
        }
        let mut known = to.and_then(|to| self.between.get_mut(&(from, to)));
        if !from_is {
            known = known.or_else(|| self.after.get_mut(&from));
        }
        if let Some(to) = to
            && !to_is
        {
            known = known.or_else(|| self.before.get_mut(&to));
        }
        let known = known?;
        // Who is owed most, the latest of them. When all are paid, they get more in turn.
        let most = known.met.iter_mut().max_by_key(|met| met.owed_ns)?;
        let evidence = Evidence::of_more(&mut most.weight_ns, ns);
        let ns = i64::try_from(ns).unwrap_or(i64::MAX);
        most.owed_ns = most.owed_ns.saturating_sub(ns);
        Some(Found {
            stack: most.stack,
            // The sample itself counts where it was taken.
            evidence: Evidence {
                samples: 0,
                ..evidence
            },
        })
    }
}

/// Samples without a stack say nothing of where they are, not even of which process.
fn is_unknown(from: StackIndex, to: StackIndex) -> bool {
    from == StackIndex::NONE || to == StackIndex::NONE
}

fn place<P: Eq + Hash>(places: &mut HashMap<P, Known>, place: P) -> &mut Known {
    if places.len() >= PLACES && !places.contains_key(&place) {
        places.clear();
    }
    places.entry(place).or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const PLACE: (StackIndex, StackIndex) = (StackIndex(1), StackIndex(2));

    fn keep(bursts: &mut Bursts, (from, to): (StackIndex, StackIndex), stack: u32, ns: u64) {
        let mut burst = Burst::default();
        burst.met(StackIndex(stack));
        burst.run(ns);
        bursts.keep((from, to), &burst, MS, false);
    }

    fn spend(bursts: &mut Bursts, (from, to): (StackIndex, StackIndex)) -> Option<u32> {
        let found = bursts.spend((from, Some(to)), (false, false), MS / 10);
        found.map(|found| found.stack.0)
    }

    #[test]
    fn long_bursts_get_nothing_once_a_short_one_was_met() {
        let mut bursts = Bursts::default();
        keep(&mut bursts, PLACE, 7, 2 * MS);
        assert_eq!(spend(&mut bursts, PLACE), Some(7));
        keep(&mut bursts, PLACE, 8, MS / 10);
        keep(&mut bursts, PLACE, 7, 2 * MS);
        for _ in 0..100 {
            assert_eq!(spend(&mut bursts, PLACE), Some(8));
        }
    }

    #[test]
    fn a_place_of_all_threads_says_nothing_alone() {
        let mut bursts = Bursts::default();
        keep(&mut bursts, PLACE, 7, MS / 10);
        let mut spend = |(from, to), anybodys| {
            let found = bursts.spend((from, Some(to)), anybodys, MS / 10);
            found.map(|found| found.stack.0)
        };
        let (from, to) = PLACE;
        let other = StackIndex(3);
        assert_eq!(spend(PLACE, (true, false)), Some(7));
        assert_eq!(spend(PLACE, (true, true)), None);
        for (place, anybodys) in [((from, other), (true, false)), ((other, to), (false, true))] {
            assert_eq!(spend(place, (false, false)), Some(7));
            assert_eq!(spend(place, anybodys), None);
        }
    }

    #[test]
    fn the_latest_samples_of_a_place_are_kept() {
        let mut bursts = Bursts::default();
        for stack in [7, 8] {
            for _ in 0..OF_PLACE {
                keep(&mut bursts, PLACE, stack, MS / 10);
            }
        }
        assert_eq!(bursts.between[&PLACE].met.len(), OF_PLACE);
        assert_eq!(bursts.after[&PLACE.0].met.len(), OF_PLACE);
        assert_eq!(bursts.before[&PLACE.1].met.len(), OF_PLACE);
        for _ in 0..2 * OF_PLACE {
            assert_eq!(spend(&mut bursts, PLACE), Some(8));
        }
    }

    #[test]
    fn many_places_take_no_more_memory() {
        let mut bursts = Bursts::default();
        for i in 0..3 * PLACES as u32 {
            let place = (StackIndex(10 + i), StackIndex(10_000 + i));
            keep(&mut bursts, place, 7, MS / 10);
            assert_eq!(spend(&mut bursts, place), Some(7));
            let places = [
                bursts.between.len(),
                bursts.after.len(),
                bursts.before.len(),
            ];
            assert!(places.iter().all(|n| *n <= PLACES), "{places:?}");
        }
        assert_eq!(
            spend(&mut bursts, (StackIndex(10), StackIndex(10_000))),
            None
        );
    }

    #[test]
    fn samples_without_a_stack_are_no_place() {
        let mut bursts = Bursts::default();
        let (from, to) = PLACE;
        for unknown in [(StackIndex::NONE, to), (from, StackIndex::NONE)] {
            keep(&mut bursts, unknown, 7, MS / 10);
            assert_eq!(spend(&mut bursts, PLACE), None);
            assert_eq!(bursts.between.len(), 0);
        }
        keep(&mut bursts, PLACE, 7, MS / 10);
        for unknown in [(StackIndex::NONE, to), (from, StackIndex::NONE)] {
            assert_eq!(spend(&mut bursts, unknown), None);
        }
    }
}
