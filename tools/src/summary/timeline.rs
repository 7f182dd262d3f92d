//! The timeline of a page: every thread's segments in order, within a budget.
//!
//! A long recording has more segments than a page can carry or a screen can show. When the budget is
//! reached, the shortest neighbours are drawn together as the one that took most of their time; long
//! waits keep their exact borders. What is summed up elsewhere (tables, flame graph of the whole
//! trace) does not pass through here and stays exact.

use stackbeat_model::ThreadIndex;

/// A stretch of a thread's time on the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bar {
    pub begin_ns: u64,
    pub end_ns: u64,
    /// Place in the profile's tree that took most of it.
    pub place: u32,
    /// How long that place took; the whole bar unless it was drawn together.
    pub place_ns: u64,
    pub cpu_ns: u64,
    pub allocated_bytes: u64,
    /// Frames, counted from the outermost, that go on from the bar before; `None`: as many as the two
    /// places have in common.
    pub common: Option<u32>,
}

impl Bar {
    fn length(&self) -> u64 {
        self.end_ns - self.begin_ns
    }

    /// Takes in the bar that follows.
    fn absorb(&mut self, next: &Bar) {
        self.end_ns = next.end_ns;
        self.cpu_ns += next.cpu_ns;
        self.allocated_bytes += next.allocated_bytes;
        if self.place == next.place {
            self.place_ns += next.place_ns;
        } else if next.place_ns > self.place_ns {
            self.place = next.place;
            self.place_ns = next.place_ns;
        }
    }
}

/// Bars of all threads.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    threads: Vec<Vec<Bar>>,
    bars: usize,
    budget: usize,
    /// Bars shorter than this are drawn together; 0: everything is exact.
    grain_ns: u64,
    /// Segments that were drawn together with a neighbour.
    joined: u64,
}

impl Timeline {
    /// An empty timeline that will hold at most about `budget` bars.
    pub(crate) fn new(budget: usize) -> Timeline {
        Timeline {
            threads: Vec::new(),
            bars: 0,
            budget: budget.max(16),
            grain_ns: 0,
            joined: 0,
        }
    }

    /// Bars by thread.
    pub(crate) fn threads(&self) -> &[Vec<Bar>] {
        &self.threads
    }

    /// Bars shorter than this were drawn together; 0: everything is exact.
    pub(crate) fn grain_ns(&self) -> u64 {
        self.grain_ns
    }

    /// How many segments were drawn together with a neighbour.
    pub(crate) fn joined(&self) -> u64 {
        self.joined
    }

    /// Adds a thread's next segment.
    pub(crate) fn push(&mut self, thread: ThreadIndex, bar: Bar) {
        let index = thread.0 as usize;
        if self.threads.len() <= index {
            self.threads.resize(index + 1, Vec::new());
        }
        if bar.end_ns <= bar.begin_ns && bar.cpu_ns == 0 && bar.allocated_bytes == 0 {
            return;
        }
        let bars = &mut self.threads[index];
        match bars.last_mut() {
            // The same stack going on: nothing is lost by drawing it as one.
            Some(last) if last.place == bar.place && bar.common.is_none() && self.grain_ns == 0 => {
                last.absorb(&bar);
            }
            Some(last) if joins(last, &bar, self.grain_ns) => {
                last.absorb(&bar);
                self.joined += 1;
            }
            _ => {
                bars.push(bar);
                self.bars += 1;
            }
        }
        while self.bars > self.budget && self.coarsen() {}
    }

    /// Doubles the grain. False when that can no longer help.
    fn coarsen(&mut self) -> bool {
        const COARSEST_NS: u64 = 1 << 60;
        if self.grain_ns >= COARSEST_NS {
            return false;
        }
        self.grain_ns = (self.grain_ns * 2).max(10_000);
        let before = self.bars;
        for bars in &mut self.threads {
            let mut kept: Vec<Bar> = Vec::with_capacity(bars.len() / 2);
            for bar in bars.drain(..) {
                match kept.last_mut() {
                    Some(last) if joins(last, &bar, self.grain_ns) => last.absorb(&bar),
                    _ => kept.push(bar),
                }
            }
            *bars = kept;
        }
        self.bars = self.threads.iter().map(Vec::len).sum();
        self.joined += (before - self.bars) as u64;
        true
    }
}

/// Whether two neighbours are drawn together: both are short.
fn joins(last: &Bar, next: &Bar, grain_ns: u64) -> bool {
    grain_ns > 0
        && last.end_ns == next.begin_ns
        && last.length() < grain_ns
        && next.length() < grain_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(begin_ns: u64, end_ns: u64, place: u32) -> Bar {
        Bar {
            begin_ns,
            end_ns,
            place,
            place_ns: end_ns - begin_ns,
            cpu_ns: end_ns - begin_ns,
            allocated_bytes: 1,
            common: None,
        }
    }

    #[test]
    fn equal_neighbours_are_one_bar_without_loss() {
        let mut timeline = Timeline::new(100);
        for i in 0..50 {
            timeline.push(ThreadIndex(0), bar(i * 10, i * 10 + 10, 1));
        }
        assert_eq!(timeline.threads()[0].len(), 1);
        assert_eq!((timeline.grain_ns(), timeline.joined()), (0, 0));
        let cut = Bar {
            common: Some(0),
            ..bar(500, 510, 1)
        };
        timeline.push(ThreadIndex(0), cut);
        assert_eq!(
            timeline.threads()[0].len(),
            2,
            "a new execution is a new bar"
        );
    }

    #[test]
    fn the_budget_holds_time_is_kept_and_long_waits_stay_exact() {
        let mut timeline = Timeline::new(1000);
        let mut now = 0;
        for i in 0..200_000u64 {
            timeline.push(ThreadIndex(0), bar(now, now + 1_000_000, (i % 3) as u32));
            now += 1_000_000;
            if i == 100_000 {
                timeline.push(ThreadIndex(0), bar(now, now + 90_000_000_000, 7));
                now += 90_000_000_000;
            }
        }
        let bars = &timeline.threads()[0];
        assert!(bars.len() <= 1000, "{}", bars.len());
        assert!(bars.len() > 200, "{}", bars.len());
        assert!(timeline.joined() > 100_000);
        assert!(bars.windows(2).all(|w| w[0].end_ns == w[1].begin_ns));
        assert_eq!(bars.iter().map(Bar::length).sum::<u64>(), now);
        assert_eq!(bars.iter().map(|b| b.cpu_ns).sum::<u64>(), now);
        assert_eq!(bars.iter().map(|b| b.allocated_bytes).sum::<u64>(), 200_001);
        let wait = bars.iter().find(|b| b.place == 7).expect("is kept");
        assert_eq!(wait.length(), 90_000_000_000);
    }
}
