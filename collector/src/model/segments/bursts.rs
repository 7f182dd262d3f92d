//! Running time between two samples that say nothing about it: two waits, or who ended them.
//!
//! Where a thread runs for less than the interval between two waits, a tick meets few of these *bursts*. What it finds
//! in those stands for the others as well: of bursts of a length L, ticks at an interval I meet the share L / I, so that
//! to each one that was met belong (I − L) / L others of it, of I − L together. This time is *owed* to the stacks in it, and
//! paid with bursts between the same two stacks that no tick met. Bursts of an interval and more are met always.

use std::collections::VecDeque;
use std::hash::Hash;

use hashbrown::HashMap;

use crate::model::StackIndex;

/// Stacks that are kept of one burst. Few ticks meet one that is shorter than the interval.
const OF_ONE: usize = 16;
/// Stacks that are kept of all bursts in one place.
const OF_PLACE: usize = 64;
/// Places that are kept. With more of them all begin anew.
const PLACES: usize = 1024;

/// A thread's burst that goes on.
#[derive(Debug, Default)]
pub struct Burst {
    /// Where ticks met it: the latest.
    stacks: VecDeque<StackIndex>,
    /// How often.
    times: u64,
    /// Running time so far, ns.
    ns: u64,
}

impl Burst {
    /// A tick met it here.
    pub fn met(&mut self, stack: StackIndex) {
        if self.stacks.len() == OF_ONE {
            self.stacks.pop_front();
        }
        self.stacks.push_back(stack);
        self.times += 1;
    }

    pub fn run(&mut self, ns: u64) {
        self.ns = self.ns.saturating_add(ns);
    }
}

/// A stack that a tick met in a burst.
#[derive(Clone, Copy, Debug)]
struct Met {
    stack: StackIndex,
    owed_ns: i64,
}

/// What ticks met in bursts, of all threads: those of a pool do the same work.
#[derive(Debug, Default)]
pub struct Bursts {
    /// Between these two stacks.
    between: HashMap<(StackIndex, StackIndex), VecDeque<Met>>,
    /// After this stack, and before it.
    after: HashMap<StackIndex, VecDeque<Met>>,
    before: HashMap<StackIndex, VecDeque<Met>>,
}

impl Bursts {
    /// A burst between these two stacks is over; at its end ticks came at this interval. `by_chance`: at one of its ends
    /// is a wait that a tick met. There may be others in it that none has met, and it may be of any length.
    pub fn keep(
        &mut self,
        (from, to): (StackIndex, StackIndex),
        burst: &Burst,
        interval_ns: u64,
        by_chance: bool,
    ) {
        let Some(&last) = burst.stacks.back() else {
            return;
        };
        let worth_ns = match by_chance {
            true => interval_ns.saturating_mul(burst.times),
            false => interval_ns,
        };
        let owed_ns = worth_ns.saturating_sub(burst.ns) / burst.times;
        let owed_ns = i64::try_from(owed_ns).unwrap_or(i64::MAX);
        // Of the others nobody is owed anything: they count only while there is nobody else.
        let is_short = owed_ns != 0;
        let met = |stack| Met { stack, owed_ns };
        let add = |known: &mut VecDeque<Met>| match is_short {
            true => burst.stacks.iter().for_each(|s| push(known, met(*s))),
            false if known.is_empty() => known.push_back(met(last)),
            false => {}
        };
        add(place(&mut self.between, (from, to)));
        add(place(&mut self.after, from));
        add(place(&mut self.before, to));
    }

    /// The stack that a burst of so much running time belongs to, which no tick met. `None`: nothing is known of bursts
    /// there.
    pub fn spend(&mut self, from: StackIndex, to: StackIndex, ns: u64) -> Option<StackIndex> {
        let known = (self.between.get_mut(&(from, to)))
            .or_else(|| self.after.get_mut(&from))
            .or_else(|| self.before.get_mut(&to))?;
        // Who is owed most, the latest of them. When all are paid, they get more in turn.
        let most = known.iter_mut().max_by_key(|met| met.owed_ns)?;
        let ns = i64::try_from(ns).unwrap_or(i64::MAX);
        most.owed_ns = most.owed_ns.saturating_sub(ns);
        Some(most.stack)
    }
}

fn place<P: Eq + Hash>(places: &mut HashMap<P, VecDeque<Met>>, place: P) -> &mut VecDeque<Met> {
    if places.len() >= PLACES && !places.contains_key(&place) {
        places.clear();
    }
    places.entry(place).or_default()
}

fn push(known: &mut VecDeque<Met>, met: Met) {
    if known.len() == OF_PLACE {
        known.pop_front();
    }
    known.push_back(met);
}
