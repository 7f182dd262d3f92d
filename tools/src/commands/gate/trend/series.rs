//! From a folder of traces to the judged series in it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use stackbeat_gate::rules::Rules;
use stackbeat_gate::run::{Run, Side};
use stackbeat_gate::run_budget::{self, BudgetRow};
use stackbeat_gate::run_table::RunTable;
use stackbeat_gate::trend::history::History;
use stackbeat_gate::trend::judge;

use super::commits::{self, Measured, Source};
use super::view::{Series, Trend};
use crate::cli::TrendArgs;
use crate::commands::gate::read_run::{Reader, load_by_role};
use crate::summary::metadata::Recording;

/// What may not be mixed: times and counts of another machine or program say nothing about this one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    what: String,
    machine: String,
}

/// Runs of one series while they are read.
#[derive(Default)]
struct Open {
    reader: Reader,
    /// With the number of the source.
    runs: Vec<(usize, Run)>,
}

/// Reads the traces, one at a time, and judges each series.
pub(super) fn read(args: &TrendArgs, rules: &Rules) -> Result<Trend> {
    let mut sources = Vec::new();
    let mut open: BTreeMap<Key, Open> = BTreeMap::new();
    for path in commits::traces(&args.folder)? {
        let report = load_by_role(&path)?;
        let recording = &report.metadata.recording;
        let series = open.entry(key(recording)).or_default();
        let mut run = series.reader.run(&report, &path, Side::Baseline);
        // Call trees of hundreds of runs are not needed together.
        run.forget_places();
        series.runs.push((sources.len(), run));
        sources.push(Source {
            path,
            recorded: recording.commit.clone(),
            started_unix_ns: recording.started_unix_ns,
        });
    }
    let repository = args.repo.as_deref();
    let measured = commits::measured(&args.folder, &sources, repository, args.order)?;
    trend(measured, &sources, open, rules, args)
}

/// What the runs of a commit spend of each budget.
fn budgets(runs: &[&Path], rules: &Rules) -> Result<Vec<BudgetRow>> {
    if rules.budgets.is_empty() || runs.is_empty() {
        return Ok(Vec::new());
    }
    // Functions with callees need the call trees, which a series does not keep.
    let mut reader = Reader::default();
    let runs: Result<Vec<Run>> = runs
        .iter()
        .map(|path| Ok(reader.run(&load_by_role(path)?, path, Side::Candidate)))
        .collect();
    Ok(run_budget::rows(&RunTable::new(runs?, reader.names), rules))
}

fn trend(
    measured: Measured,
    sources: &[Source],
    open: BTreeMap<Key, Open>,
    rules: &Rules,
    args: &TrendArgs,
) -> Result<Trend> {
    let since = args.since.as_deref().map(|name| measured.since(name));
    let since = since.transpose()?.unwrap_or(0);
    let newest = measured.commits.len() - 1;
    let series: Result<Vec<Series>> = open
        .into_iter()
        .map(|(key, open)| {
            let mut places: Vec<usize> = open
                .runs
                .iter()
                .map(|(source, _)| measured.of_source[*source])
                .collect();
            places.sort_unstable();
            places.dedup();
            let of_newest = open
                .runs
                .iter()
                .filter(|(s, _)| measured.of_source[*s] == newest);
            let of_newest: Vec<&Path> =
                of_newest.map(|(s, _)| sources[*s].path.as_path()).collect();
            // By its own commits: those that it lacks are no gaps in a test.
            let of = |source: usize| places.partition_point(|p| *p < measured.of_source[source]);
            let runs = open.runs.into_iter().map(|(source, run)| (of(source), run));
            let history = History::new(runs.collect(), open.reader.names, places.len());
            let outcome = judge(&history, rules, places.partition_point(|p| *p < since));
            let distances = outcome
                .findings
                .iter()
                .filter(|f| f.commit > 0)
                .map(|f| {
                    let (from, to) = (places[f.commit - 1], places[f.commit]);
                    (f.commit, measured.distance(from, to))
                })
                .collect();
            Ok(Series {
                budgets: budgets(&of_newest, rules)?,
                what: key.what,
                machine: key.machine,
                commits: places,
                history,
                outcome,
                sources: open.reader.sources,
                distances,
            })
        })
        .collect();
    Ok(Trend {
        folder: args.folder.display().to_string(),
        series: series?,
        order: measured.order,
        commits: measured.commits,
        since: args.since.clone(),
        required: rules.required.clone(),
        policy: args.policy.clone(),
        fail_on_counts: args.fail_on_counts,
    })
}

fn key(recording: &Recording) -> Key {
    let program = recording.command.first().map_or("", String::as_str);
    let program = Path::new(program).file_name().unwrap_or_default();
    Key {
        what: match recording.label.as_str() {
            "" => program.to_string_lossy().into_owned(),
            label => label.to_string(),
        },
        machine: crate::commands::gate::read_run::machine(recording),
    }
}
