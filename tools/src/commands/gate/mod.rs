//! `stackbeat gate`: compares the traces of two sets of runs and says whether the candidate is slower,
//! where and why. Keeps the sums of each trace; the statistics are those of `stackbeat-gate` (docs/gate.md).

#[cfg(target_os = "linux")]
pub(crate) mod ab;
mod ci;
pub(crate) mod diff;
mod html;
mod inputs;
mod json;
mod lanes;
mod markdown;
mod policy;
pub(crate) mod read_run;
mod text;
pub(crate) mod trend;
mod view;

use std::collections::BTreeSet;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::mpsc;
use std::{fs, thread};

use anyhow::{Context, Result, bail};
use stackbeat_gate::comparable_names::is_like;
use stackbeat_gate::decide::{Outcome, Verdict, judge};
use stackbeat_gate::rules::{Pairing, Rules};
use stackbeat_gate::run::{Kin, Names, Run, Side, kin};
use stackbeat_gate::run_table::RunTable;
use stackbeat_model::metric::Metric;

use crate::cli::{GateArgs, GateFormat};
use crate::{EXIT_NEGATIVE, EXIT_UNKNOWN, terminal};
use read_run::{Reader, Sources, load_by_role};
use view::Gate;

/// Most traces in memory at one time.
const MOST_READERS: usize = 8;

/// Runs the command.
pub(crate) fn run(args: &GateArgs) -> Result<u8> {
    let defaults = Rules {
        pairing: match (args.together, args.paired) {
            (true, _) => Pairing::Together,
            (false, true) => Pairing::InTurns,
            (false, false) => Pairing::None,
        },
        fail_on_counts: args.fail_on_counts,
        ..Rules::default()
    };
    let rules = policy::read(args.policy.as_deref(), defaults)?;
    check_files(&args.writing.output)?;
    let gate = compare(&args.baseline, &args.candidate, rules)?;
    output(&gate, args.writing.format, &args.writing.output)?;
    Ok(exit_code(gate.outcome.verdict))
}

/// Reads both sides and judges them.
fn compare(baseline: &[String], candidate: &[String], mut rules: Rules) -> Result<Gate> {
    let baseline = inputs::traces("--baseline", baseline)?;
    let candidate = inputs::traces("--candidate", candidate)?;
    let left_out: Vec<String> = baseline.warnings().chain(candidate.warnings()).collect();
    if let Some(first) = left_out.first().filter(|_| rules.pairing.is_paired()) {
        bail!(
            "--{}: {first}, so nothing says which runs are pairs; remove the file and its partner",
            rules.pairing.name()
        );
    }
    let sides = [
        (Side::Baseline, baseline.traces),
        (Side::Candidate, candidate.traces),
    ];
    if rules.pairing.is_paired() && sides[0].1.len() != sides[1].1.len() {
        bail!(
            "--{0}: {1} baseline and {2} candidate runs make no pairs; leave out the runs without a partner, or --{0}",
            rules.pairing.name(),
            sides[0].1.len(),
            sides[1].1.len()
        );
    }
    let (runs, reader) = read_runs(&sides)?;
    let others = require_one_program(&runs, &reader.names)?;
    let (table, sources) = (RunTable::new(runs, reader.names), reader.sources);
    let mixed = take_pairing(&table, &mut rules);
    for run in &table.runs {
        require_scopes(run, &rules.required_scopes)?;
    }
    if rules.pairing == Pairing::Together {
        let apart = pairs_apart(&table);
        if let Some((x, y)) = apart
            .first()
            .filter(|_| apart.len() == table.baseline_count)
        {
            bail!(
                "--together: {} and {} did not run at the same time; --paired is for pairs that ran one after the other",
                x.about.label,
                y.about.label
            );
        }
    }
    let mut outcome = judged(&table, &rules);
    outcome.warnings.extend(others);
    outcome.warnings.extend(mixed);
    outcome.warnings.extend(on_both_sides(&sides));
    outcome.warnings.extend(left_out);
    Ok(Gate {
        outcome,
        table,
        sources,
        confidence: rules.confidence,
        pairing: rules.pairing,
    })
}

/// Takes from the traces whether pairs shared a processor, where nothing else was said; a warning where that
/// is true of some.
fn take_pairing(table: &RunTable, rules: &mut Rules) -> Option<String> {
    let shared = table.runs.iter().filter(|r| r.about.shares_processor);
    let shared = shared.count();
    if rules.pairing.is_paired() || shared == 0 {
        return None;
    }
    let count = table.baseline_count;
    let are_pairs = shared == table.runs.len() && count == table.candidate_count();
    if are_pairs && pairs_apart(table).len() < count {
        rules.pairing = Pairing::Together;
        return None;
    }
    Some(format!(
        "{shared} of {} runs shared a processor with another one, and not in whole pairs of these traces: their wall times have \
         the other's turns in them",
        table.runs.len()
    ))
}

/// An error where traces are of different programs; a warning where nothing says whether they are.
fn require_one_program(runs: &[Run], names: &Names) -> Result<Option<String>> {
    let Some(first) = runs.first() else {
        return Ok(None);
    };
    let of = |run: &Run| run.about.programs.join(", ");
    let mut unknown = None;
    for run in runs {
        match kin(first, run, names) {
            Kin::Same => {}
            Kin::Unknown => unknown = unknown.or(Some(run)),
            Kin::Different => bail!(
                "{} is of {}, and {} of {}, which has hardly any function in common with it: give runs of one program; \
                 `stackbeat diff` shows two of any",
                first.about.label,
                of(first),
                run.about.label,
                of(run)
            ),
        }
    }
    Ok(unknown.map(|run| {
        format!(
            "programs differ, {} and {}; without names of functions nothing says whether they are builds of one",
            of(first),
            of(run)
        )
    }))
}

/// Says so where a trace is compared with itself.
fn on_both_sides(sides: &[(Side, Vec<PathBuf>); 2]) -> Option<String> {
    let real = |(_, traces): &(Side, Vec<PathBuf>)| -> BTreeSet<PathBuf> {
        let real = traces.iter().map(fs::canonicalize);
        real.filter_map(|path| path.ok()).collect()
    };
    let (baseline, candidate) = (real(&sides[0]), real(&sides[1]));
    let both: Vec<&PathBuf> = baseline.intersection(&candidate).collect();
    let first = both.first()?.display();
    Some(format!(
        "{} of {} traces of the candidate are the baseline's, too, {first} for example: what is compared with itself is the same",
        both.len(),
        candidate.len()
    ))
}

/// The verdict, with a warning where runs of pairs should have been at the same time and were not.
fn judged(table: &RunTable, rules: &Rules) -> Outcome {
    let mut outcome = judge(table, rules);
    let apart = match rules.pairing {
        Pairing::Together => pairs_apart(table),
        Pairing::None | Pairing::InTurns => Vec::new(),
    };
    if let Some((x, y)) = apart.first() {
        outcome.warnings.push(format!(
            "{} of {} pairs did not run at the same time, {} and {} for example, and have the noise of runs in turns: repeat \
             the work inside of the program until a run takes longer",
            apart.len(),
            table.baseline_count,
            x.about.label,
            y.about.label
        ));
    }
    outcome
}

/// Pairs whose runs did not run at the same time.
fn pairs_apart(table: &RunTable) -> Vec<(&Run, &Run)> {
    let time = |run: &Run| {
        let begin = run.about.started_unix_ns;
        (begin, begin.saturating_add(run.whole.get(Metric::Wall)))
    };
    let (baseline, candidate) = table.runs.split_at(table.baseline_count);
    let is_apart = |(x, y): &(&Run, &Run)| time(x).0.max(time(y).0) >= time(x).1.min(time(y).1);
    baseline.iter().zip(candidate).filter(is_apart).collect()
}

/// Scopes that a policy requires are in every run of the candidate: one that is not measured any more would
/// pass every budget.
fn require_scopes(run: &Run, required: &[String]) -> Result<()> {
    if run.side == Side::Baseline {
        return Ok(());
    }
    for scope in required {
        if !run.scopes.iter().any(|known| is_like(&known.name, scope)) {
            let known: Vec<&str> = run.scopes.iter().map(|s| s.name.as_str()).collect();
            bail!(
                "{}: the scope `{scope}`, which the policy requires, is missing; {}",
                run.about.label,
                match known.is_empty() {
                    true => "the run has none (docs/marks.md says how a program makes them)".into(),
                    false => format!("the run has {}", known.join(", ")),
                }
            );
        }
    }
    Ok(())
}

/// Reads traces and aligns what stays of them. Each processor has one trace in memory, however many there
/// are. They are taken in order, so that the same traces give the same tables on every machine.
fn read(sides: &[(Side, Vec<PathBuf>)]) -> Result<(RunTable, Sources)> {
    let (runs, reader) = read_runs(sides)?;
    Ok((RunTable::new(runs, reader.names), reader.sources))
}

fn read_runs(sides: &[(Side, Vec<PathBuf>)]) -> Result<(Vec<Run>, Reader)> {
    let traces: Vec<(Side, &PathBuf)> = sides
        .iter()
        .flat_map(|(side, traces)| traces.iter().map(|trace| (*side, trace)))
        .collect();
    let workers = thread::available_parallelism()
        .map_or(1, NonZero::get)
        .min(MOST_READERS);
    let mut reader = Reader::default();
    let mut runs = Vec::new();
    thread::scope(|scope| {
        let loaded: Vec<_> = (0..workers)
            .map(|worker| {
                // Without room: a worker begins with its next trace when this one was taken.
                let (send, receive) = mpsc::sync_channel(0);
                let mut own = traces.iter().skip(worker).step_by(workers);
                // Ends early when nobody takes them any more.
                scope.spawn(move || own.all(|(_, trace)| send.send(load_by_role(trace)).is_ok()));
                receive
            })
            .collect();
        for (at, (side, trace)) in traces.iter().enumerate() {
            let report = loaded[at % workers].recv();
            let report =
                report.with_context(|| format!("{}: reading stopped", trace.display()))??;
            runs.push(reader.run(&report, trace, *side));
        }
        Ok::<(), anyhow::Error>(())
    })?;
    Ok((runs, reader))
}

/// What no verdict can be written to is said before minutes are spent on it.
fn check_files(files: &[PathBuf]) -> Result<()> {
    for file in files {
        GateFormat::of_file(file)?;
        let folder = file
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            bail!(
                "{}: cannot be written: there is no folder {}; make it first",
                file.display(),
                folder.display()
            );
        }
    }
    Ok(())
}

/// Prints the verdict, and writes it to files in the formats that their names say.
fn output(gate: &Gate, format: GateFormat, files: &[PathBuf]) -> Result<()> {
    write(format, files, &|format| render(gate, format))
}

fn write(
    format: GateFormat,
    files: &[PathBuf],
    render: &dyn Fn(GateFormat) -> Result<String>,
) -> Result<()> {
    // First, so that it is not lost with a file that cannot be written. Where nobody reads it any more, the
    // files and the exit code still count.
    let text = render(format)?;
    let printed = match format {
        GateFormat::Html => terminal::print_page(&text),
        _ => terminal::print(&text),
    };
    match printed {
        Err(error) if !terminal::is_broken_pipe(&error) => return Err(error),
        _ => {}
    }
    for file in files {
        let format = GateFormat::of_file(file)?;
        let context = || format!("{}: cannot be written", file.display());
        let text = render(format)?;
        let text = match format {
            GateFormat::Text => terminal::plain(&text).into_owned(),
            _ => text,
        };
        fs::write(file, text).with_context(context)?;
    }
    Ok(())
}

fn render(gate: &Gate, format: GateFormat) -> Result<String> {
    Ok(match format {
        GateFormat::Text => text::render(gate, terminal::width(), terminal::Style::stdout()),
        GateFormat::Markdown => markdown::render(gate),
        GateFormat::Json => terminal::json(&json::render(gate))?,
        GateFormat::Junit => ci::junit(&ci::report(gate)),
        GateFormat::Sarif => terminal::json(&ci::sarif(&ci::report(gate)))?,
        GateFormat::Github => ci::github(&ci::report(gate)),
        GateFormat::Html => html::render(gate),
    })
}

fn exit_code(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::NoRegression => 0,
        Verdict::Regression => EXIT_NEGATIVE,
        Verdict::CannotTell => EXIT_UNKNOWN,
    }
}

#[cfg(test)]
mod tests;
