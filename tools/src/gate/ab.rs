//! `stackbeat ab`: runs a baseline and a candidate in turns, records each, and stops as soon as the answer
//! is clear.
//!
//! Each pair runs in random order (from a seed), so that what drifts (heat, caches, neighbours) meets both
//! sides alike. Looks at the result are planned before the first run, and what they may spend of the error
//! rate sums up to it.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use stackbeat_gate::compare::Rules;
use stackbeat_gate::decide::{Verdict, judge};
use stackbeat_gate::random::Random;
use stackbeat_gate::run::Side;
use stackbeat_gate::stats::rank;
use stackbeat_gate::stats::sequential::{self, Look};
use stackbeat_gate::table::Table;
use stackbeat_proto::stream::write_packet;
use stackbeat_proto::v1::{CounterBatch, Packet, packet::Body};

use super::summarize::Reader;
use super::view::Gate;
use crate::cli::AbArgs;
use crate::report::CALIBRATION;
use crate::terminal;

/// Runs the command.
pub fn run(args: &AbArgs) -> Result<u8> {
    let rules = match &args.policy {
        Some(policy) => super::policy::read(policy, Rules::default())?,
        None => Rules::default(),
    };
    let sides = [
        Program::new(Side::Baseline, &args.baseline, args)?,
        Program::new(Side::Candidate, &args.candidate, args)?,
    ];
    let looks = plan(args.runs, rules.alpha);
    let gate = measure(&sides, &looks, &rules, args)?;
    super::output(&gate, args.format, &args.write)?;
    Ok(super::exit_code(gate.outcome.verdict))
}

/// A side's command and where its traces go.
struct Program {
    side: Side,
    words: Vec<String>,
    folder: PathBuf,
    interval: String,
}

impl Program {
    fn new(side: Side, command: &str, args: &AbArgs) -> Result<Program> {
        let flag = side.name();
        let words = shlex::split(command)
            .filter(|words| !words.is_empty())
            .with_context(|| format!("--{flag} {command}: an open quote, or no command"))?;
        let folder = args.output.join(flag);
        if folder.exists() && !args.force {
            bail!(
                "{}: exists already; name another folder with -o, or replace its traces with --force",
                folder.display()
            );
        }
        if folder.exists() {
            for old in super::inputs::in_folder(&folder)? {
                fs::remove_file(&old)
                    .with_context(|| format!("{}: cannot be removed", old.display()))?;
            }
        }
        fs::create_dir_all(&folder)
            .with_context(|| format!("{}: cannot be made", folder.display()))?;
        Ok(Program {
            side,
            words,
            folder,
            interval: format!("{}ns", args.interval),
        })
    }

    /// Records one run. What the program prints is not shown: the verdict is what this command prints.
    fn record(&self, number: usize, is_warmup: bool, ignore_failure: bool) -> Result<PathBuf> {
        let trace = self.folder.join(match is_warmup {
            true => "warmup".to_string(),
            false => format!("{number:03}.beat"),
        });
        let calibration_ns = calibrate();
        let mut arguments: Vec<OsString> = ["record", "--quiet", "--force", "--interval"]
            .map(OsString::from)
            .into();
        arguments.push(self.interval.clone().into());
        arguments.push("--output".into());
        arguments.push(trace.clone().into());
        arguments.push("--".into());
        arguments.extend(self.words.iter().map(OsString::from));
        let this = std::env::current_exe().context("the path of this program is not known")?;
        let output = Command::new(this)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .output()
            .context("recording cannot be started")?;
        if !output.status.success() && !ignore_failure {
            let said = String::from_utf8_lossy(&output.stderr);
            let last = said.lines().rev().take(5).collect::<Vec<_>>();
            let last: Vec<&str> = last.into_iter().rev().collect();
            bail!(
                "the {} failed ({}); --ignore-failure takes such runs too\n{}",
                self.side.name(),
                output.status,
                last.join("\n")
            );
        }
        if is_warmup {
            let _ = fs::remove_file(&trace);
        } else {
            add_calibration(&trace, calibration_ns)?;
        }
        Ok(trace)
    }
}

/// Looks for at most `most` runs a side: the first as soon as its share of the error rate can be reached
/// at all.
fn plan(most: usize, alpha: f64) -> Vec<Look> {
    let reachable = |runs: usize| {
        let spent = alpha * (runs as f64 / most as f64).powi(2);
        rank::smallest_p(runs, runs, false) <= spent / 2.0
    };
    let first = (1..=most).find(|runs| reachable(*runs)).unwrap_or(most);
    sequential::looks(first, most, alpha)
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
            side.record(0, true, args.ignore_failure)?;
        }
    }
    let mut random = Random::new(args.seed);
    let mut reader = Reader::default();
    let mut runs = Vec::new();
    let mut number = 0;
    for (at, look) in looks.iter().enumerate() {
        while number < look.runs {
            number += 1;
            // The baseline is read first, so that roles are called by its names.
            let mut order = [0, 1];
            random.shuffle(&mut order);
            let mut traces = [PathBuf::new(), PathBuf::new()];
            for side in order {
                let most = looks.last().map_or(0, |l| l.runs);
                let name = sides[side].side.name();
                progress(&format!("run {number} of at most {most}: {name}"));
                traces[side] = sides[side].record(number, false, args.ignore_failure)?;
            }
            for (side, trace) in sides.iter().zip(&traces) {
                runs.push(reader.read(trace, side.side)?);
            }
        }
        let rules = Rules {
            alpha: look.alpha,
            confidence: 1.0 - (1.0 - rules.confidence) * look.alpha / rules.alpha,
            ..rules.clone()
        };
        let table = Table::new(runs.clone(), reader.names.clone());
        let outcome = judge(&table, &rules);
        if outcome.verdict != Verdict::CannotTell || at + 1 == looks.len() {
            progress("");
            return Ok(Gate {
                outcome,
                table,
                sources: reader.sources,
                confidence: rules.confidence,
            });
        }
    }
    bail!("--runs 0: nothing to compare")
}

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
    fn the_first_look_is_the_first_that_can_answer() {
        let looks = plan(12, 0.01);
        assert_eq!(looks[0].runs, 6, "{looks:?}");
        assert_eq!(looks.last().map(|l| l.runs), Some(12));
        for look in &looks {
            assert!(
                rank::smallest_p(look.runs, look.runs, false) <= look.alpha / 2.0,
                "{look:?}"
            );
        }
        assert_eq!(plan(2, 0.01).len(), 1);
    }

    #[test]
    fn calibration_takes_milliseconds() {
        let ns = calibrate();
        // On a loaded machine it may take any time.
        assert!(ns >= 1_000_000, "{ns}");
    }
}
