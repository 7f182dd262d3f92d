//! `stackbeat ab`: runs a baseline and a candidate in turns, records each, and stops as soon as the answer
//! is clear.
//!
//! Each pair runs in random order (from a seed), so that what drifts (heat, caches, neighbours) meets both
//! sides alike; together, both at the same time, also what changes from one second to the next. Looks at the
//! result are planned before the first run, and what they may spend of the error rate sums up to it.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;
use std::{iter, mem};

use anyhow::{Context, Result, anyhow, bail};
use stackbeat_collector::session::CpuList;
use stackbeat_gate::budget::{Budget, BudgetRow, Uncounted};
use stackbeat_gate::compare::{Pairing, Rules};
use stackbeat_gate::confirm::{self, Confirmation};
use stackbeat_gate::decide::{Finding, Verdict, Way};
use stackbeat_gate::explain;
use stackbeat_gate::metric::Metric;
use stackbeat_gate::random::Random;
use stackbeat_gate::run::{Run, Side};
use stackbeat_gate::stats::rank;
use stackbeat_gate::stats::sequential::{self, Look};
use stackbeat_gate::table::Table;
use stackbeat_proto::stream::write_packet;
use stackbeat_proto::v1::{CounterBatch, Packet, packet::Body};

use super::summarize::Reader;
use super::view::Gate;
use crate::cli::AbArgs;
use crate::report::CALIBRATION;
use crate::{record, terminal};

/// Runs the command.
pub fn run(args: &AbArgs) -> Result<u8> {
    let defaults = Rules {
        pairing: match args.together {
            true => Pairing::Together,
            false => Pairing::None,
        },
        ..Rules::default()
    };
    let rules = super::policy::read(args.policy.as_deref(), defaults)?;
    // What is wrong is said before anything is made or replaced.
    require_possible_budgets(&rules)?;
    if let Some(cpus) = &args.cpus {
        cpus.run(|| ()).context("--cpus")?;
    }
    record::interval("--interval", args.interval)?;
    let sides = [
        Program::new(Side::Baseline, &args.baseline, args)?,
        Program::new(Side::Candidate, &args.candidate, args)?,
    ];
    for side in &sides {
        fs::create_dir_all(&side.folder)
            .with_context(|| format!("{}: cannot be made", side.folder.display()))?;
    }
    super::check_files(&args.write)?;
    for side in &sides {
        side.remove_traces()?;
    }
    let looks = plan(args.runs, rules.alpha / 2.0, rules.alpha, rules.pairing);
    let gate = measure(&sides, &looks, &rules, args)?;
    super::output(&gate, args.format, &args.write)?;
    Ok(super::exit_code(gate.outcome.verdict))
}

/// Wall time of runs that share a processor has no budget: the answer would be "cannot tell", after all of them.
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

/// A side's command and where its traces go.
struct Program {
    side: Side,
    words: Vec<String>,
    folder: PathBuf,
    interval: String,
    /// Where it is pinned to.
    cpus: Option<CpuList>,
    ignore_failure: bool,
}

/// A recording that runs.
struct Recording<'a> {
    program: &'a Program,
    recorder: Child,
    trace: PathBuf,
}

impl Program {
    fn new(side: Side, command: &str, args: &AbArgs) -> Result<Program> {
        let flag = side.name();
        let words = shlex::split(command)
            .filter(|words| !words.is_empty())
            .with_context(|| format!("--{flag} {command}: an open quote, or no command"))?;
        let folder = args.output.join(flag);
        let has_traces = folder.exists() && !super::inputs::in_folder(&folder)?.is_empty();
        if has_traces && !args.force {
            bail!(
                "{}: has traces already; name another folder with -o, or replace them with --force",
                folder.display()
            );
        }
        Ok(Program {
            side,
            words,
            folder,
            interval: format!("{}ns", args.interval),
            cpus: match &args.cpus {
                None if args.together => Some(CpuList::allowed()?.last()),
                cpus => cpus.clone(),
            },
            ignore_failure: args.ignore_failure,
        })
    }

    /// Removes those of an earlier time.
    fn remove_traces(&self) -> Result<()> {
        for old in super::inputs::in_folder(&self.folder)? {
            fs::remove_file(&old)
                .with_context(|| format!("{}: cannot be removed", old.display()))?;
        }
        Ok(())
    }

    /// Where the trace of a run goes.
    fn trace(&self, number: usize) -> PathBuf {
        self.folder.join(format!("{number:03}.beat"))
    }

    /// Begins to record one run. What the program prints is not shown: the verdict is what this command prints.
    fn start(&self, trace: PathBuf) -> Result<Recording<'_>> {
        let mut arguments: Vec<OsString> = ["record", "--quiet", "--force", "--interval"]
            .map(OsString::from)
            .into();
        arguments.push(self.interval.clone().into());
        if let Some(cpus) = &self.cpus {
            arguments.extend(["--cpus".into(), cpus.to_string().into()]);
        }
        arguments.push("--output".into());
        arguments.push(trace.clone().into());
        arguments.push("--".into());
        arguments.extend(self.words.iter().map(OsString::from));
        let this = std::env::current_exe().context("the path of this program is not known")?;
        let recorder = Command::new(this)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        Ok(Recording {
            program: self,
            recorder: recorder.context("recording cannot be started")?,
            trace,
        })
    }

    /// A run that does not count.
    fn warm_up(&self) -> Result<()> {
        let trace = self.start(self.folder.join("warmup"))?.finish()?;
        let _ = fs::remove_file(&trace);
        Ok(())
    }
}

impl Recording<'_> {
    /// Waits for the end; an error says what the program said last.
    fn finish(self) -> Result<PathBuf> {
        let output = self.recorder.wait_with_output();
        let output = output.context("the recorder's end is not known")?;
        // Without a trace it was not recorded, whatever is ignored.
        let is_recorded = self.trace.exists();
        if !is_recorded || !output.status.success() && !self.program.ignore_failure {
            let said = String::from_utf8_lossy(&output.stderr);
            let last = said.lines().rev().take(5).collect::<Vec<_>>();
            let last: Vec<&str> = last.into_iter().rev().collect();
            let advice = match is_recorded {
                true => "; --ignore-failure takes such runs too",
                false => " and left no trace",
            };
            bail!(
                "the {} failed ({}){advice}\n{}",
                self.program.side.name(),
                output.status,
                last.join("\n")
            );
        }
        Ok(self.trace)
    }
}

/// Records a run of both sides, in this order or together.
fn record_pair(
    sides: &[Program; 2],
    order: [usize; 2],
    number: usize,
    pairing: Pairing,
) -> Result<()> {
    match pairing {
        Pairing::Together => {
            let calibration_ns = calibrate();
            let started = order.map(|side| sides[side].start(sides[side].trace(number)));
            // None waits for the other's end to get rid of what it says.
            let traces = thread::scope(|scope| {
                started
                    .map(|recording| scope.spawn(|| recording?.finish()))
                    .map(|end| end.join())
            });
            for trace in traces {
                let trace = trace.map_err(|_| anyhow!("waiting for a recorder failed"))?;
                add_calibration(&trace?, calibration_ns)?;
            }
        }
        Pairing::None | Pairing::InTurns => {
            for side in order {
                let calibration_ns = calibrate();
                let trace = sides[side].start(sides[side].trace(number))?.finish()?;
                add_calibration(&trace, calibration_ns)?;
            }
        }
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
    // What remains close to the end may be too little for any answer: such a look takes the place of the one before it.
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
}

fn measure(sides: &[Program; 2], looks: &[Look], rules: &Rules, args: &AbArgs) -> Result<Gate> {
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
    let mut measurement = Measurement {
        sides,
        rules,
        random: Random::new(args.seed),
        reader: Reader::default(),
        runs: Vec::new(),
        number: 0,
        most: args.runs,
    };
    for (at, look) in looks.iter().enumerate() {
        let is_last = at + 1 == looks.len();
        // Runs that were to confirm an earlier finding may be more than this look wants.
        if measurement.number >= look.runs && !is_last {
            continue;
        }
        measurement.record_up_to(look.runs, "run")?;
        let mut gate = measurement.judge(look.alpha);
        // What is in the way of an answer stays there, however many runs there are.
        let outcome = &gate.outcome;
        let mut is_open = outcome.verdict == Verdict::CannotTell && outcome.obstacle.is_none();
        if !args.no_confirm && confirm::first_of(&gate.outcome.findings).is_some() {
            gate = measurement.confirmed(gate)?;
            is_open = gate.outcome.verdict == Verdict::CannotTell;
        }
        if !is_open || is_last {
            progress("");
            let outcome = &mut gate.outcome;
            let wants_runs = outcome.verdict == Verdict::CannotTell
                && outcome.runs_needed.is_some()
                && outcome.obstacle.is_none()
                && measurement.number >= rules.fewest_runs();
            if wants_runs && rules.pairing == Pairing::None {
                outcome.warnings.push(NOISY.into());
            }
            return Ok(gate);
        }
    }
    bail!("no look at the runs was planned")
}

impl Measurement<'_> {
    /// Records pairs, each in random order, until there are so many runs a side.
    fn record_up_to(&mut self, runs: usize, what: &str) -> Result<()> {
        while self.number < runs {
            self.number += 1;
            // The baseline is read first, so that roles are called by its names.
            let mut order = [0, 1];
            self.random.shuffle(&mut order);
            progress(&format!("{what} {} of at most {runs}", self.number));
            let recorded = record_pair(self.sides, order, self.number, self.rules.pairing);
            if recorded.is_err() {
                // The pairs before it are what `gate` can read; a run without its partner is not.
                for side in self.sides {
                    let _ = fs::remove_file(side.trace(self.number));
                }
            }
            recorded?;
            let mut read = |side: &Program| self.reader.read(&side.trace(self.number), side.side);
            let pair = [read(&self.sides[0])?, read(&self.sides[1])?];
            super::require_scopes(&pair[1], &self.rules.required_scopes)?;
            self.runs.extend(pair);
        }
        Ok(())
    }

    fn table(&self) -> Table {
        Table::new(self.runs.clone(), self.reader.names.clone())
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

    /// Makes fresh runs until they confirm the first finding: at most as many as it was found with, and with those before
    /// twice `most`. What is shown stays what was found; what is not confirmed is taken back.
    fn confirmed(&mut self, mut gate: Gate) -> Result<Gate> {
        let Some(finding) = confirm::first_of(&gate.outcome.findings).cloned() else {
            return Ok(gate);
        };
        let known: HashSet<String> = self.runs.iter().map(|r| r.about.label.clone()).collect();
        let is_fresh = |run: &Run| !known.contains(&run.about.label);
        let before = self.number;
        let fresh = before.min((2 * self.most).saturating_sub(before));
        let looks = match finding.row.comparison.p {
            Some(_) => plan(
                fresh.max(FEWEST_FRESH),
                confirm::ALPHA,
                confirm::ALPHA,
                self.rules.pairing,
            ),
            // Counts that do not vary need no more.
            None => vec![Look {
                runs: 2,
                alpha: confirm::ALPHA,
            }],
        };
        for look in looks {
            self.record_up_to(before + look.runs, "fresh run")?;
            let said = self.confirm(&finding, is_fresh, look.alpha);
            let is_confirmed = said.is_confirmed;
            gate.outcome.confirmation = Some(said);
            if is_confirmed {
                return Ok(gate);
            }
        }
        self.retract(&mut gate, is_fresh);
        Ok(gate)
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

    /// Takes a finding back that fresh runs did not show. Counts that were found beside it, and that are apart in the fresh
    /// runs as well, stay.
    fn retract(&self, gate: &mut Gate, is_fresh: impl Fn(&Run) -> bool) {
        let Some(confirmation) = gate.outcome.confirmation.take() else {
            return;
        };
        let first = confirm::first_of(&gate.outcome.findings);
        let line = first.map_or_else(String::new, |finding| gate.finding_line(finding));
        let unconfirmed = super::view::unconfirmed(&line, &confirmation);
        for finding in mem::take(&mut gate.outcome.findings) {
            if let Some((finding, said)) = self.certain(gate, finding, &is_fresh) {
                gate.outcome.findings.push(finding);
                gate.outcome.confirmation.get_or_insert(said);
            }
        }
        let outcome = &mut gate.outcome;
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
    if terminal::stderr_width().is_some() {
        eprint!("\r\x1b[K{text}");
        let _ = std::io::stderr().flush();
    }
}

/// The time of a fixed piece of work, the best of three: how fast is the machine now?
fn calibrate() -> u64 {
    const STEPS: u64 = 5_000_000;
    let once = || {
        let begin = Instant::now();
        // Each step needs the one before it: nothing but the clock frequency makes it faster.
        let mut x = black_box(1u64);
        for _ in 0..STEPS {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        }
        black_box(x);
        begin.elapsed().as_nanos() as u64
    };
    (0..3).map(|_| once()).min().unwrap_or(0)
}

/// Appends the calibration to a trace, as a counter of the session.
fn add_calibration(trace: &Path, ns: u64) -> Result<()> {
    let counter = CounterBatch {
        name: CALIBRATION.into(),
        unit: "ns".into(),
        time: vec![0],
        value: vec![ns as i64],
        ..CounterBatch::default()
    };
    let mut bytes = Vec::new();
    let packet = Packet {
        body: Some(Body::Counters(counter)),
    };
    write_packet(&packet, &mut bytes);
    let context = || format!("{}: the calibration cannot be added", trace.display());
    let mut file = OpenOptions::new()
        .append(true)
        .open(trace)
        .with_context(context)?;
    file.write_all(&bytes).with_context(context)
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

    #[test]
    fn calibration_takes_milliseconds() {
        let ns = calibrate();
        // On a loaded machine it may take any time.
        assert!(ns >= 1_000_000, "{ns}");
    }
}
