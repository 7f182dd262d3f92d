//! Arguments of the commands that say whether a program became slower, and how they write it.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum, ValueHint};

const GATE_EXAMPLES: &str = "\
Examples:
  stackbeat gate --baseline main/ --candidate branch/
  stackbeat gate -b main/ -c branch/ -o comment.md -o report.html";

const GATE_MORE: &str = "
  stackbeat gate --baseline 'runs/main-*.beat' --candidate 'runs/branch-*.beat'
  stackbeat gate -b main/ -c branch/ --policy stackbeat.toml
  stackbeat gate -b main/ -c branch/ --format github -o summary.md

Exit codes: 0 no regression, 1 a regression, 2 an error, 3 cannot tell: it says how many runs would do.";

/// Say whether a program became slower, where, and why.
///
/// Compares the traces of repeated runs of a baseline and of a candidate, best made in turns on one machine.
/// Times decide, by tests that keep the chance of a false alarm over all comparisons at 1 %. Counts that do
/// not vary are compared exactly: what became more is a notice, or a regression with --fail-on-counts.
/// docs/gate/method.md has every formula.
#[derive(Debug, Args)]
#[command(after_help = GATE_EXAMPLES, after_long_help = format!("{GATE_EXAMPLES}{GATE_MORE}"))]
pub(crate) struct GateArgs {
    /// Traces of the baseline: folders, files, or patterns in quotes.
    #[arg(short, long, required = true, num_args = 1.., value_name = "DIR|GLOB")]
    #[arg(value_hint = ValueHint::AnyPath)]
    pub baseline: Vec<String>,
    /// Traces of the candidate.
    #[arg(short, long, required = true, num_args = 1.., value_name = "DIR|GLOB")]
    #[arg(value_hint = ValueHint::AnyPath)]
    pub candidate: Vec<String>,
    /// The n-th runs of both sides belong together.
    ///
    /// By the time they began.
    #[arg(long)]
    pub paired: bool,
    /// The same, and both runs of a pair shared a processor. Traces of `ab --together` say so themselves.
    #[arg(long, conflicts_with = "paired", hide_short_help = true)]
    pub together: bool,
    /// Counts that became more are a regression, too, even where no time did.
    #[arg(long, hide_short_help = true)]
    pub fail_on_counts: bool,
    /// Thresholds, what to ignore, and budgets (docs/gate.md).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub policy: Option<PathBuf>,
    #[command(flatten)]
    pub writing: WritingArgs,
}

const TREND_EXAMPLES: &str = "\
Examples:
  stackbeat record -o runs/$(git rev-parse HEAD)-1.beat -- ./bench
  stackbeat trend runs/
  stackbeat trend runs/ -o trend.html -o trend.md";

const TREND_MORE: &str = "
  stackbeat trend /data/runs --repo .              the traces lie elsewhere
  stackbeat trend runs/ --since v1.4               only what became worse from that tag on is a regression

Which commit a trace is of: --commit of record, else the hash or tag in the name of its folder or file.
Exit codes: 0 no regression that is there still, 1 a regression or more than a budget allows, 2 an error,
3 cannot tell: too few commits.";

/// Say which commits of a series made a program slower or faster.
///
/// Reads the traces of many commits below one folder and finds where the level of a metric changed. Times
/// need ten commits or more and a few after the change; counts that do not vary need two runs of each.
/// Recordings of different machines or programs are never mixed: each is a series of its own. docs/trend.md
/// has every formula.
#[derive(Debug, Args)]
#[command(after_help = TREND_EXAMPLES, after_long_help = format!("{TREND_EXAMPLES}{TREND_MORE}"))]
pub(crate) struct TrendArgs {
    /// The folder with the traces.
    ///
    /// RUNS/COMMIT/N.beat, RUNS/COMMIT-N.beat, or any names with record --commit.
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
    /// The git repository whose history orders the commits.
    ///
    /// By default the one that DIR lies in.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath)]
    pub repo: Option<PathBuf>,
    /// What orders the commits.
    #[arg(long, value_enum, default_value_t = CommitOrder::Auto, hide_short_help = true)]
    pub order: CommitOrder,
    /// A regression of an older commit is no failure any more.
    ///
    /// A hash, a tag, or the name of a folder.
    #[arg(long, value_name = "COMMIT")]
    pub since: Option<String>,
    /// Counts that became more are a regression, too, even where no time did.
    #[arg(long, hide_short_help = true)]
    pub fail_on_counts: bool,
    /// Thresholds and what to ignore (docs/gate.md).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub policy: Option<PathBuf>,
    #[command(flatten)]
    pub writing: WritingArgs,
}

/// How a verdict is written, and where to.
#[derive(Debug, Args)]
pub(crate) struct WritingArgs {
    /// What to print.
    #[arg(long, value_enum, default_value_t = GateFormat::Text)]
    pub format: GateFormat,
    /// Write it to a file too, as its ending says.
    ///
    /// .md, .json, .html, .sarif, .xml (JUnit) or .txt; may be repeated.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Vec<PathBuf>,
}

/// What `--order` knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CommitOrder {
    /// The repository's history where there is one, else the start of each commit's first run.
    Auto,
    /// The repository's history.
    Git,
    /// The start of each commit's first run.
    Time,
}

/// How a verdict is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GateFormat {
    /// For a terminal.
    Text,
    /// For a comment on a pull request.
    Markdown,
    /// For scripts (docs/json.md).
    Json,
    /// Test results, as most CI systems show them.
    Junit,
    /// For code scanning (SARIF 2.1.0).
    Sarif,
    /// Annotations, as commands that GitHub's runner reads from the output.
    Github,
    /// One page with a differential flame graph.
    Html,
}

impl GateFormat {
    /// The format that a file's name asks for.
    pub(crate) fn of_file(file: &Path) -> anyhow::Result<GateFormat> {
        let ending = file.extension().and_then(|e| e.to_str()).unwrap_or("");
        Ok(match ending {
            "txt" => GateFormat::Text,
            "md" => GateFormat::Markdown,
            "json" => GateFormat::Json,
            "xml" => GateFormat::Junit,
            "sarif" => GateFormat::Sarif,
            "html" => GateFormat::Html,
            _ => anyhow::bail!(
                "{}: the ending names no format; use .txt, .md, .json, .xml, .sarif or .html",
                file.display()
            ),
        })
    }
}
