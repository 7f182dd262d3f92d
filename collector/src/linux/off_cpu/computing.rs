//! Threads that do nothing but compute: they are looked at less often. The scheduler says afterwards whether
//! one of them has waited.

use stackbeat_core::ids::Utid;

use crate::host::Scheduled;

/// Threads that are asked about in a pass. More are taken to wait now and then.
const MOST: usize = 4;
/// This part of the time a thread may wait all the same, and so much more, ns. The scheduler notes CPU time
/// with its tick, up to 10 ms later.
const WAITED_SHARE: u64 = 8;
const WAITED_NS: u64 = 12_000_000;
/// Passes in a row that find that a thread has waited for longer. Time ready for a processor is counted when
/// the thread gets one, so a single pass may take that for a wait.
const PASSES: u32 = 3;

/// The threads that had moved at the last pass.
#[derive(Debug, Default)]
pub(super) struct Computing {
    threads: Vec<Known>,
    at_ns: u64,
    /// `None`: one of them has waited, or nobody knows.
    since_ns: Option<u64>,
    /// One of them seems to have waited.
    is_doubtful: bool,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    utid: Utid,
    /// Time in which it neither ran nor was ready, ns, as far as that is no news.
    waited_ns: u64,
    /// Passes in a row that found more.
    passes: u32,
}

impl Computing {
    /// Since when they have only computed, ns, for all that is known.
    pub(super) fn since_ns(&self) -> Option<u64> {
        self.since_ns.filter(|_| !self.is_doubtful)
    }

    /// The threads of these entries have moved. `scheduled` says whose an entry is, and what the scheduler
    /// has counted.
    pub(super) fn poll(
        &mut self,
        entries: &[usize],
        now_ns: u64,
        mut scheduled: impl FnMut(usize) -> Option<(Utid, Scheduled)>,
    ) {
        let before = std::mem::take(&mut self.threads);
        let passed_ns = now_ns.saturating_sub(std::mem::replace(&mut self.at_ns, now_ns));
        self.is_doubtful = false;
        if entries.len() > MOST {
            self.since_ns = None;
            return;
        }
        let mut compute = true;
        for at in entries {
            let Some((utid, now)) = scheduled(*at) else {
                compute = false;
                continue;
            };
            // By an origin that does not change.
            let waited_ns = now_ns.wrapping_sub(now.run_ns).wrapping_sub(now.ready_ns);
            let known = before.iter().find(|known| known.utid == utid);
            let known = known.map(|known| known.after(waited_ns, passed_ns));
            compute &= known.is_some_and(|known| known.passes < PASSES);
            self.is_doubtful |= known.is_some_and(|known| known.passes > 0);
            let newcomer = Known {
                utid,
                waited_ns,
                passes: 0,
            };
            self.threads.push(match known {
                Some(known) if known.passes < PASSES => known,
                _ => newcomer,
            });
        }
        self.since_ns = compute.then(|| self.since_ns.unwrap_or(now_ns));
    }
}

impl Known {
    fn after(self, waited_ns: u64, passed_ns: u64) -> Known {
        let usual_ns = self.waited_ns.wrapping_add(passed_ns / WAITED_SHARE);
        let is_more = waited_ns.wrapping_sub(usual_ns).cast_signed() > WAITED_NS.cast_signed();
        let is_less = waited_ns.wrapping_sub(usual_ns).cast_signed() < 0;
        Known {
            utid: self.utid,
            waited_ns: if is_less { waited_ns } else { usual_ns },
            passes: if is_more { self.passes + 1 } else { 0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Passes 20 ms apart over a thread that computes and waits for a processor in turn, and waits elsewhere
    /// for so long in the pass with this number. `pending` ns of its being ready are not counted yet.
    fn since(passes: u64, waits: impl Fn(u64) -> u64, pending: impl Fn(u64) -> u64) -> Option<u64> {
        let mut computing = Computing::default();
        let mut total = Scheduled::default();
        for pass in 0..passes {
            let used_ns = 20 * MS - waits(pass);
            total.run_ns += used_ns / 2;
            total.ready_ns += used_ns / 2;
            let seen = Scheduled {
                ready_ns: total.ready_ns - pending(pass).min(total.ready_ns),
                ..total
            };
            computing.poll(&[0], (pass + 1) * 20 * MS, |_| Some((Utid(1), seen)));
        }
        computing.since_ns()
    }

    #[test]
    fn a_thread_that_waits_for_long_does_not_only_compute() {
        let none = |_| 0;
        // Nothing is known of it before the second pass.
        assert_eq!(since(1, none, none), None);
        assert_eq!(since(50, none, none), Some(40 * MS));
        assert_eq!(since(50, |_| 2 * MS, none), Some(40 * MS));
        let waits_at = |at| move |pass| if pass == at { 20 * MS } else { 0 };
        // Not sure, sure, and sure again that it does not.
        for at in 47..50 {
            assert_eq!(since(50, waits_at(at), none), None);
        }
        assert!(since(80, waits_at(30), none).is_some_and(|ns| ns > 600 * MS));
        // Never for long.
        assert!(since(50, |_| 8 * MS, none).is_none_or(|ns| ns > 800 * MS));
    }

    #[test]
    fn who_waits_for_a_processor_while_it_is_looked_at_computes() {
        let pending = |pass| if pass % 3 == 1 { 18 * MS } else { 0 };
        assert_eq!(since(48, |_| 0, pending), Some(40 * MS));
        // Not sure at that moment.
        assert_eq!(since(50, |_| 0, pending), None);
    }

    #[test]
    fn of_many_threads_and_of_those_that_are_gone_nothing_is_known() {
        let mut computing = Computing::default();
        let poll = |computing: &mut Computing, entries: &[usize], ns| {
            let scheduled = Scheduled {
                run_ns: ns,
                ..Scheduled::default()
            };
            let of = |at| (at != 9).then_some((Utid(at as u32 + 1), scheduled));
            computing.poll(entries, ns, of);
            computing.since_ns().is_some()
        };
        assert!(!poll(&mut computing, &[0, 1], 20 * MS));
        assert!(poll(&mut computing, &[0, 1], 40 * MS));
        // One that was not there.
        assert!(!poll(&mut computing, &[0, 1, 2], 60 * MS));
        assert!(poll(&mut computing, &[0, 1, 2], 80 * MS));
        assert!(!poll(&mut computing, &[0, 9], 100 * MS));
        assert!(!poll(&mut computing, &[0, 1, 2, 3, 4], 120 * MS));
    }
}
