//! `stackbeat ab`: runs a baseline and a candidate in turns, records each, and stops as soon as the answer
//! is clear.
//!
//! Each pair runs in random order (from a seed), so that what drifts (heat, caches, neighbours) meets both
//! sides alike; together, both at the same time, also what changes from one second to the next. Looks at the
//! result are planned before the first run, and what they may spend of the error rate sums up to it.

mod run_order;
mod sides;

use std::collections::HashSet;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, iter, mem};

use anyhow::{Context, Result, bail};
use stackbeat_gate::decide::{Confirmation, Finding, Verdict, Way};
use stackbeat_gate::random::Random;
use stackbeat_gate::rules::{Budget, Pairing, Rules};
use stackbeat_gate::run::{Run, Side};
use stackbeat_gate::run_budget::{BudgetRow, Uncounted};
use stackbeat_gate::run_table::RunTable;
use stackbeat_gate::stats::rank;
use stackbeat_gate::stats::sequential::{self, Look};
use stackbeat_gate::{confirm, explain};
use stackbeat_model::metric::Metric;

use super::read_run::Reader;
use super::view::Gate;
use crate::cli::local::AbArgs;
use crate::commands::requests;
use crate::terminal;
use sides::{Failed, Program, record_pair};

/// Runs the command.
pub(crate) fn run(args: &AbArgs) -> Result<u8> {
    let defaults = Rules {
        pairing: match args.together {
            true => Pairing::Together,
            false => Pairing::None,
        },
        fail_on_counts: args.fail_on_counts,
        ..Rules::default()
    };
    let mut rules = super::policy::read(args.policy.as_deref(), defaults)?;
    // What is wrong is said before anything is made or replaced.
    require_possible_budgets(&rules)?;
    if let Some(cpus) = &args.cpus {
        cpus.run(|| ()).context("--cpus")?;
    }
    requests::interval("--interval", args.interval)?;
    let fewest = rules.fewest_runs();
    if args.runs < fewest {
        terminal::warn(&format!(
            "--runs {}: times cannot be told apart with fewer than {fewest}, only counts",
            args.runs
        ));
    }
    let folder = match &args.output {
        Some(folder) => folder.clone(),
        None => sides::default_folder(Path::new(""), args.force)?,
    };
    let mut sides = [
        Program::new(Side::Baseline, &args.baseline, &folder, args)?,
        Program::new(Side::Candidate, &args.candidate, &folder, args)?,
    ];
    sides.iter().try_for_each(Program::make_folder)?;
    super::check_files(&args.write)?;
    for side in &sides {
        side.remove_traces()?;
    }
    if args.output.is_none() {
        terminal::say(&format!("stackbeat: the traces go to {}", folder.display()));
    }
    if args.together {
        sides.iter_mut().try_for_each(Program::share)?;
    }
    warm_up(&sides, args)?;
    let layout = run_order::choose(&mut sides, &rules, args)?;
    rules.pairing = layout.pairing;
    let looks = plan(args.runs, rules.alpha / 2.0, rules.alpha, rules.pairing);
    let mut gate = measure(&sides, &looks, &rules, args)?;
    gate.outcome.warnings.extend(layout.note);
    super::output(&gate, args.format, &args.write)?;
    Ok(super::exit_code(gate.outcome.verdict))
}

/// Wall time of runs that share a processor has no budget: the answer would be "cannot tell", after all of
/// them.
fn require_possible_budgets(rules: &Rules) -> Result<()> {
    let is_wall = |budget: &Budget| budget.metric == Metric::Wall;
    if rules.pairing == Pairing::Together && rules.budgets.iter().any(is_wall) {
        bail!(
            "--together: the policy's budget of wall time cannot be judged: {}; {}",
            Uncounted::Shared.reason(),
            Uncounted::Shared.remedy()
        );
    }
    Ok(())
}

/// Looks for at most `most` runs a side: the first as soon as its share of the error rate can be reached
/// at all. One test may use `of_test` of `alpha`, and every look can answer.
fn plan(most: usize, of_test: f64, alpha: f64, pairing: Pairing) -> Vec<Look> {
    let reaches = |runs: usize, spent: f64| {
        rank::smallest_p(runs, runs, pairing.is_paired()) <= spent * of_test / alpha
    };
    let spent = |runs: usize| alpha * (runs as f64 / most as f64).powi(2);
    let first = (1..=most).find(|runs| reaches(*runs, spent(*runs)));
    let mut looks = sequential::looks(first.unwrap_or(most), most, alpha);
    // What remains close to the end may be too little for any answer: such a look takes the place of the one
    // before it.
    while let Some(at) = (1..looks.len())
        .rev()
        .find(|at| !reaches(looks[*at].runs, looks[*at].alpha))
    {
        let before = looks.remove(at - 1);
        looks[at - 1].alpha += before.alpha;
    }
    looks
}

/// Both commands' runs, as far as they were made.
struct Measurement<'a> {
    sides: &'a [Program; 2],
    rules: &'a Rules,
    random: Random,
    reader: Reader,
    runs: Vec<Run>,
    /// Runs a side.
    number: usize,
    /// Most of them to find something with.
    most: usize,
    /// How long the recording of pairs took.
    spent: Duration,
    /// Runs that failed and were repeated.
    failed: Vec<Failed>,
}

/// Runs that do not count: what is read from a disk for the first time is in them.
fn warm_up(sides: &[Program; 2], args: &AbArgs) -> Result<()> {
    for number in 0..args.warmup {
        for side in sides {
            progress(&format!(
                "warm-up {} of {}: {}",
                number + 1,
                args.warmup,
                side.side.name()
            ));
            side.warm_up()?;
        }
    }
    Ok(())
}

fn measure(sides: &[Program; 2], looks: &[Look], rules: &Rules, args: &AbArgs) -> Result<Gate> {
    let mut measurement = Measurement {
        sides,
        rules,
        random: Random::new(args.seed),
        reader: Reader::default(),
        runs: Vec::new(),
        number: 0,
        most: args.runs,
        spent: Duration::ZERO,
        failed: Vec::new(),
    };
    for (at, look) in looks.iter().enumerate() {
        let is_last = at + 1 == looks.len();
        // Runs that were to confirm an earlier finding may be more than this look wants.
        if measurement.number >= look.runs && !is_last {
            continue;
        }
        measurement.record_up_to(look.runs, "run", args.runs)?;
        let mut gate = measurement.judge(look.alpha);
        // What is in the way of an answer stays there, however many runs there are.
        let outcome = &gate.outcome;
        let mut is_open = outcome.verdict == Verdict::CannotTell && outcome.obstacle.is_none();
        if !args.no_confirm && confirm::first_of(&gate.outcome.findings).is_some() {
            gate = measurement.confirmed(gate)?;
            is_open = gate.outcome.verdict == Verdict::CannotTell;
        }
        if !is_open || is_last {
            if !args.no_confirm {
                measurement.settle(&mut gate)?;
            }
            progress("");
            let outcome = &mut gate.outcome;
            let wants_runs = outcome.verdict == Verdict::CannotTell
                && outcome.runs_needed.is_some()
                && outcome.obstacle.is_none()
                && measurement.number >= rules.fewest_runs();
            if wants_runs && rules.pairing == Pairing::None {
                outcome.warnings.push(NOISY.into());
            }
            outcome.warnings.extend(measurement.repeated());
            return Ok(gate);
        }
    }
    bail!("no look at the runs was planned")
}

impl Measurement<'_> {
    /// Records pairs, each in random order, until there are so many runs a side.
    fn record_up_to(&mut self, runs: usize, what: &str, most: usize) -> Result<()> {
        while self.number < runs {
            self.number += 1;
            // The baseline is read first, so that roles are called by its names.
            let mut order = [0, 1];
            self.random.shuffle(&mut order);
            progress(&format!(
                "{what} {} of at most {most}{}",
                self.number,
                self.left(most)
            ));
            let begin = Instant::now();
            let mut recorded = self.record_pair(order);
            // A program may crash now and then: once more, and that is reported.
            if let Err(error) = recorded {
                self.failed.push(error.downcast::<Failed>()?);
                recorded = self.record_pair(order);
            }
            recorded?;
            self.spent += begin.elapsed();
            let mut read = |side: &Program| self.reader.read(&side.trace(self.number), side.side);
            let pair = [read(&self.sides[0])?, read(&self.sides[1])?];
            super::require_scopes(&pair[1], &self.rules.required_scopes)?;
            self.runs.extend(pair);
        }
        Ok(())
    }

    /// Records the next pair. Of one that failed nothing stays: the pairs before it are what `gate` can read.
    fn record_pair(&self, order: [usize; 2]) -> Result<()> {
        let recorded = record_pair(self.sides, order, self.number, self.rules.pairing);
        if recorded.is_err() {
            for side in self.sides {
                let _ = fs::remove_file(side.trace(self.number));
            }
        }
        recorded
    }

    /// `2 runs of the candidate failed (signal: 11 (SIGSEGV)) and were repeated`.
    fn repeated(&self) -> impl Iterator<Item = String> {
        [Side::Baseline, Side::Candidate]
            .into_iter()
            .filter_map(|side| {
                let failed = self.failed.iter().filter(|failed| failed.side == side);
                let failed: Vec<&Failed> = failed.collect();
                let (name, status) = (side.name(), failed.first()?.status);
                Some(match failed.len() {
                    1 => format!("a run of the {name} failed ({status}) and was repeated"),
                    n => format!("{n} runs of the {name} failed ({status}) and were repeated"),
                })
            })
    }

    /// `, about 40 s left at most`, once it is known how long a pair takes.
    fn left(&self, most: usize) -> String {
        let done = self.number.saturating_sub(1);
        if done == 0 {
            return String::new();
        }
        let pairs = most.saturating_sub(done) as f64;
        let seconds = (self.spent.as_secs_f64() / done as f64 * pairs).ceil();
        match seconds < 120.0 {
            true => format!(", about {seconds:.0} s left at most"),
            false => format!(", about {:.0} min left at most", seconds / 60.0),
        }
    }

    fn table(&self) -> RunTable {
        RunTable::new(self.runs.clone(), self.reader.names.clone())
    }

    /// What all runs up to now say when so much of the error rate may be spent.
    fn judge(&self, alpha: f64) -> Gate {
        let rules = Rules {
            alpha,
            confidence: 1.0 - (1.0 - self.rules.confidence) * alpha / self.rules.alpha,
            ..self.rules.clone()
        };
        let table = self.table();
        Gate {
            outcome: super::judged(&table, &rules),
            table,
            sources: self.reader.sources.clone(),
            confidence: rules.confidence,
            pairing: rules.pairing,
        }
    }

    /// Makes fresh runs until they confirm the first finding: at most as many as it was found with, and with
    /// those before twice `most`. What is shown stays what was found; what is not confirmed is taken back.
    fn confirmed(&mut self, mut gate: Gate) -> Result<Gate> {
        let Some(finding) = confirm::first_of(&gate.outcome.findings).cloned() else {
            return Ok(gate);
        };
        let known: HashSet<String> = self.runs.iter().map(|r| r.about.label.clone()).collect();
        let is_fresh = |run: &Run| !known.contains(&run.about.label);
        let before = self.number;
        let looks = match finding.row.comparison.p {
            Some(_) => self.fresh_looks(before),
            // Counts that do not vary need no more.
            None => vec![Look {
                runs: 2,
                alpha: confirm::ALPHA,
            }],
        };
        let most = before + looks.last().map_or(0, |look| look.runs);
        for look in looks {
            self.record_up_to(before + look.runs, "fresh run", most)?;
            let said = self.confirm(&finding, is_fresh, look.alpha);
            let is_confirmed = said.is_confirmed;
            gate.outcome.confirmation = Some(said);
            if is_confirmed {
                self.keep_confirmed(&mut gate, &finding, is_fresh);
                return Ok(gate);
            }
        }
        self.retract(&mut gate, is_fresh);
        Ok(gate)
    }

    /// Looks at fresh runs: at most as many as there were before, and with those twice `most`.
    fn fresh_looks(&self, before: usize) -> Vec<Look> {
        let fresh = before.min((2 * self.most).saturating_sub(before));
        plan(
            fresh.max(FEWEST_FRESH),
            confirm::ALPHA,
            confirm::ALPHA,
            self.rules.pairing,
        )
    }

    /// Drops findings beside one that is confirmed which the same fresh runs do not show. Counts that do not
    /// vary stay.
    fn keep_confirmed(&self, gate: &mut Gate, first: &Finding, is_fresh: impl Fn(&Run) -> bool) {
        let findings = mem::take(&mut gate.outcome.findings);
        let (kept, dropped): (Vec<Finding>, Vec<Finding>) =
            findings.into_iter().partition(|finding| {
                let is_known = finding.row.comparison.p.is_none() || finding == first;
                let is_tested = finding.way != Way::Suspected;
                is_known
                    || !is_tested
                    || self
                        .confirm(finding, &is_fresh, confirm::ALPHA)
                        .is_confirmed
            });
        gate.outcome.findings = kept;
        for finding in dropped {
            let line = gate.finding_line(&finding);
            let text = format!("{line}, which the fresh pairs of runs did not show");
            gate.outcome.warnings.push(text);
        }
    }

    /// Tests the first suspicion, if there is one, in runs that took no part in it.
    fn settle(&mut self, gate: &mut Gate) -> Result<()> {
        let Some(finding) = gate.outcome.suspected().cloned() else {
            return Ok(());
        };
        let known: HashSet<&str> = gate
            .table
            .runs
            .iter()
            .map(|r| r.about.label.as_str())
            .collect();
        let before = gate.table.baseline_count;
        let looks = self.fresh_looks(before);
        let most = before + looks.last().map_or(0, |look| look.runs);
        let mut said = None;
        for look in looks {
            self.record_up_to(before + look.runs, "fresh run", most)?;
            let is_fresh = |run: &Run| !known.contains(run.about.label.as_str());
            let answer = self.confirm(&finding, is_fresh, look.alpha);
            let is_confirmed = answer.is_confirmed;
            said = Some(answer);
            if is_confirmed {
                break;
            }
        }
        if let Some(said) = said {
            gate.outcome.settle(said);
        }
        Ok(())
    }

    /// What fresh runs say of a finding.
    fn confirm(
        &self,
        finding: &Finding,
        is_fresh: impl Fn(&Run) -> bool,
        alpha: f64,
    ) -> Confirmation {
        confirm::confirm(&self.table(), finding, is_fresh, alpha, self.rules.pairing)
    }

    /// The counts of a finding that were compared exactly and that fresh runs show again.
    fn certain(
        &self,
        gate: &Gate,
        finding: Finding,
        is_fresh: impl Fn(&Run) -> bool,
    ) -> Option<(Finding, Confirmation)> {
        let whole = |metric: &Metric| gate.outcome.whole.iter().find(|row| row.metric == *metric);
        let beside = finding.also.iter().filter_map(whole).map(|row| Finding {
            way: Way::Whole,
            changed: None,
            row: row.clone(),
            also: Vec::new(),
            explanation: explain::explain(&gate.table, row.metric, self.rules.pairing),
        });
        let beside: Vec<Finding> = beside.collect();
        let all = iter::once(Finding {
            also: Vec::new(),
            ..finding
        });
        let mut certain: Option<(Finding, Confirmation)> = None;
        for finding in all.chain(beside) {
            let is_exact = finding.row.comparison.p.is_none();
            let said = is_exact.then(|| self.confirm(&finding, &is_fresh, confirm::ALPHA));
            let Some(said) = said.filter(|said| said.is_confirmed) else {
                continue;
            };
            match &mut certain {
                Some((first, _)) => first.also.push(finding.row.metric),
                None => certain = Some((finding, said)),
            }
        }
        certain
    }

    /// Takes a finding back that fresh runs did not show. Counts that were found beside it, and that are
    /// apart in the fresh runs as well, stay.
    fn retract(&self, gate: &mut Gate, is_fresh: impl Fn(&Run) -> bool) {
        let Some(confirmation) = gate.outcome.confirmation.take() else {
            return;
        };
        let first = confirm::first_of(&gate.outcome.findings);
        let line = first.map_or_else(String::new, |finding| gate.finding_line(finding));
        let unconfirmed = super::view::unconfirmed(&line, &confirmation);
        let mut counted = Vec::new();
        for finding in mem::take(&mut gate.outcome.findings) {
            counted.extend(self.certain(gate, finding, &is_fresh));
        }
        let outcome = &mut gate.outcome;
        for (finding, said) in counted {
            if finding.decides(self.rules) {
                outcome.findings.push(finding);
                outcome.confirmation.get_or_insert(said);
            } else {
                outcome.notices.push(finding);
            }
        }
        if !outcome.findings.is_empty() {
            outcome.warnings.push(unconfirmed);
            return;
        }
        outcome.confirmation = Some(confirmation);
        outcome.obstacle = Some(unconfirmed);
        if !outcome.budgets.iter().any(BudgetRow::is_exceeded) {
            outcome.verdict = Verdict::CannotTell;
        }
    }
}

/// Said where more runs would be the answer.
const NOISY: &str = "runs of one program differ by more than what is looked for; where its threads do not compute at the \
                     same time, `ab --together` has less noise";

/// Fewest fresh pairs that are planned: enough for their error rate.
const FEWEST_FRESH: usize = 5;

/// Says where it stands, on a terminal only.
fn progress(text: &str) {
    let mut err = std::io::stderr();
    if err.is_terminal() {
        let _ = write!(err, "\r\x1b[K{text}");
        let _ = err.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_look_can_answer_and_none_could_earlier() {
        for pairing in [Pairing::None, Pairing::Together] {
            let reaches = |look: &Look| {
                let smallest = rank::smallest_p(look.runs, look.runs, pairing.is_paired());
                smallest <= look.alpha / 2.0
            };
            for (alpha, fewest) in [(0.05, 7), (0.01, 9), (0.001, 13)] {
                for most in fewest..=60 {
                    let looks = plan(most, alpha / 2.0, alpha, pairing);
                    assert!(looks.iter().all(reaches), "{most}: {looks:?}");
                    assert_eq!(looks.last().map(|l| l.runs), Some(most));
                    let spent: f64 = looks.iter().map(|l| l.alpha).sum();
                    assert!((spent - alpha).abs() < 1e-9, "{most}: {looks:?}");
                }
            }
        }
        assert_eq!(plan(12, 0.005, 0.01, Pairing::None)[0].runs, 6);
        assert_eq!(plan(2, 0.005, 0.01, Pairing::None).len(), 1);
        // To confirm takes fewer, pairs more: they can be exchanged in fewer ways.
        let first = |most, alpha, pairing| plan(most, alpha, alpha, pairing)[0].runs;
        assert_eq!(first(6, confirm::ALPHA, Pairing::None), 4);
        assert_eq!(first(12, 0.005, Pairing::Together), 9);
    }
}
