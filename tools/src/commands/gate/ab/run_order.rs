//! Where the runs of `ab` take place: both of a pair one after the other, or at the same time on one
//! processor.

use std::path::Path;

use anyhow::Result;
use stackbeat_core::probe::Cause;
use stackbeat_gate::rules::{Pairing, Rules};
use stackbeat_gate::stats::median;
use stackbeat_model::metric::Metric;

use super::progress;
use super::sides::{Program, record_pair};
use crate::cli::local::AbArgs;
use crate::summary::load;
use crate::summary::load::Report;
use crate::summary::timeline::Timeline;

/// Runs of the baseline that show how much runs differ.
const PROBES: usize = 3;
/// Share of the CPU time that more than one processor spent at the same time, above which threads compute at
/// the same time.
const AT_ONCE: f64 = 0.05;
/// How exactly that is looked at, ns.
const STEP_NS: u64 = 5_000_000;
/// Share of the wall time that a run may wait longer beside another one.
const IN_THE_WAY: f64 = 0.1;
const BARS: usize = 200_000;

/// What was chosen, and what to say of it.
pub(super) struct Layout {
    pub pairing: Pairing,
    pub note: Option<String>,
}

impl Layout {
    fn in_turns(note: Option<String>) -> Layout {
        Layout {
            pairing: Pairing::None,
            note,
        }
    }
}

/// What was asked for; where nothing was, a few runs that do not count decide.
pub(super) fn choose(sides: &mut [Program; 2], rules: &Rules, args: &AbArgs) -> Result<Layout> {
    if args.together {
        return Ok(Layout {
            pairing: Pairing::Together,
            note: None,
        });
    }
    let has_wall = rules.budgets.iter().any(|b| b.metric == Metric::Wall);
    if args.in_turns || args.cpus.is_some() || has_wall {
        return Ok(Layout::in_turns(None));
    }
    let paired = Rules {
        pairing: Pairing::Together,
        ..rules.clone()
    };
    if args.runs < paired.fewest_runs() {
        // So few pairs could not tell anything.
        return Ok(Layout::in_turns(None));
    }
    let mut alone = Vec::new();
    for number in 0..PROBES {
        progress(&format!("probe {} of {}", number + 1, PROBES + 1));
        alone.push(sides[0].look(RunCost::read)?);
    }
    let noise = noise(&alone);
    if noise <= rules.min_effect {
        return Ok(Layout::in_turns(None));
    }
    progress(&format!("probe {0} of {0}", PROBES + 1));
    let candidate = sides[1].look(RunCost::read)?;
    let all = alone.iter().chain([&candidate]);
    if all.map(|spent| spent.at_once).fold(0.0, f64::max) > AT_ONCE {
        return Ok(Layout::in_turns(None));
    }
    progress("probe of both at the same time");
    sides.iter_mut().try_for_each(Program::share)?;
    let tried = record_pair(sides, [0, 1], 0, Pairing::Together);
    let beside = tried.and_then(|()| {
        let beside = sides.iter().map(|side| RunCost::read(&side.trace(0)));
        beside.collect::<Result<Vec<RunCost>>>()
    });
    for side in sides.iter() {
        let _ = std::fs::remove_file(side.trace(0));
    }
    let is_in_the_way = match &beside {
        Err(_) => true,
        Ok(beside) => {
            let waited = |runs: &[RunCost]| runs.iter().map(|s| s.waits_ns).fold(0.0, f64::max);
            let wall = median(&alone.iter().map(|s| s.wall_ns).collect::<Vec<f64>>());
            let before = waited(&alone).max(candidate.waits_ns);
            waited(beside) > before + IN_THE_WAY * wall
        }
    };
    if is_in_the_way {
        sides.iter_mut().for_each(Program::run_alone);
        return Ok(Layout::in_turns(Some(
            "runs of the baseline vary, and two at the same time are in each other's way: they ran in turns".into(),
        )));
    }
    Ok(Layout {
        pairing: Pairing::Together,
        note: Some(format!(
            "runs of the baseline vary by {:.0} %, so both of a pair ran at the same time on one processor (--in-turns: one \
             after the other)",
            100.0 * noise
        )),
    })
}

/// How far runs of one program lie apart, as a share: by CPU or by wall time.
fn noise(runs: &[RunCost]) -> f64 {
    let range = |of: fn(&RunCost) -> f64| {
        let values: Vec<f64> = runs.iter().map(of).collect();
        let high = values.iter().copied().fold(0.0, f64::max);
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        (high - low) / median(&values).max(1.0)
    };
    range(|spent| spent.cpu_ns).max(range(|spent| spent.wall_ns))
}

/// What a run spends.
#[derive(Clone, Copy, Debug)]
struct RunCost {
    cpu_ns: f64,
    wall_ns: f64,
    /// Waits for locks, files and the network.
    waits_ns: f64,
    /// Share of the CPU time that was spent on more than one processor at a time.
    at_once: f64,
}

impl RunCost {
    fn read(trace: &Path) -> Result<RunCost> {
        Ok(RunCost::of(&load::load(trace, BARS)?))
    }

    fn of(report: &Report) -> RunCost {
        let threads = &report.profile.threads;
        let cpu_ns = threads.iter().map(|t| t.metrics.cpu_ns as f64).sum();
        let waits = [Cause::Lock, Cause::Io, Cause::Net];
        let waited = threads
            .iter()
            .flat_map(|t| waits.map(|c| t.blocked_ns[c as usize]));
        RunCost {
            cpu_ns,
            wall_ns: report.metadata.recording.duration_ns as f64,
            waits_ns: waited.map(|ns| ns as f64).sum(),
            at_once: at_once(&report.timeline),
        }
    }
}

/// Share of the CPU time that is more than one processor can give in the same step.
fn at_once(timeline: &Timeline) -> f64 {
    let bars = || timeline.threads().iter().flatten().filter(|b| b.cpu_ns > 0);
    let begin = bars().map(|b| b.begin_ns).min().unwrap_or(0);
    let end = bars().map(|b| b.end_ns).max().unwrap_or(0);
    let mut steps = vec![0.0; ((end - begin) / STEP_NS + 1) as usize];
    for bar in bars() {
        let length = (bar.end_ns - bar.begin_ns).max(1) as f64;
        let (first, last) = (
            (bar.begin_ns - begin) / STEP_NS,
            (bar.end_ns - begin) / STEP_NS,
        );
        for step in first..=last {
            let from = bar.begin_ns.max(begin + step * STEP_NS);
            let to = bar.end_ns.min(begin + (step + 1) * STEP_NS);
            let inside = to.saturating_sub(from).max(u64::from(first == last));
            steps[step as usize] += bar.cpu_ns as f64 * inside as f64 / length;
        }
    }
    let all: f64 = steps.iter().sum();
    let more: f64 = steps.iter().map(|ns| (ns - STEP_NS as f64).max(0.0)).sum();
    more / all.max(1.0)
}

#[cfg(test)]
mod tests {
    use stackbeat_model::ThreadIndex;

    use super::*;
    use crate::summary::timeline::Bar;

    /// Threads that compute from one ms to another.
    fn threads(computing: &[(u32, u64, u64)]) -> Timeline {
        let mut timeline = Timeline::new(1000);
        for (place, (thread, from, to)) in (1..).zip(computing) {
            let ms = 1_000_000;
            let bar = Bar {
                begin_ns: from * ms,
                end_ns: to * ms,
                place,
                place_ns: (to - from) * ms,
                cpu_ns: (to - from) * ms,
                allocated_bytes: 0,
                common: None,
            };
            timeline.push(ThreadIndex(*thread), bar);
        }
        timeline
    }

    #[test]
    fn threads_that_compute_at_the_same_time_are_told_from_those_that_take_turns() {
        let taking_turns = threads(&[(0, 3, 40), (1, 40, 77), (0, 77, 100)]);
        assert!(at_once(&taking_turns) < 0.01);
        let beside = threads(&[(0, 3, 103), (1, 43, 83)]);
        assert!((at_once(&beside) - 40.0 / 140.0).abs() < 0.03);
        assert_eq!(at_once(&Timeline::new(10)), 0.0);
    }

    #[test]
    fn noise_is_what_runs_lie_apart() {
        let run = |cpu_ns: f64, wall_ns: f64| RunCost {
            cpu_ns,
            wall_ns,
            waits_ns: 0.0,
            at_once: 0.0,
        };
        let runs = [run(100.0, 200.0), run(101.0, 230.0), run(99.0, 200.0)];
        assert!((noise(&runs) - 0.15).abs() < 1e-9);
        assert!((noise(&runs[..1])).abs() < 1e-9);
    }
}
