//! Arguments of the commands that show what a trace holds.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use crate::export::{Format, Weight};
use crate::render::text::section::Section;
use crate::summary::sort_key::SortKey;
use crate::units::parse_duration_ns;

const REPORT_EXAMPLES: &str = "\
Examples:
  stackbeat report app.beat
  stackbeat report app.beat --section waits    who waits for whom, and why
  stackbeat report app.beat --html app.html    flame graph, timeline: one file";

const REPORT_MORE: &str = "
  stackbeat report app.beat --sort blocked --top 30
  stackbeat report app.beat --thread worker-3
  stackbeat report app.beat --function parse_row       who calls it, what does it call
  stackbeat report app.beat --json | jq '.functions[:5]'

Running is time in code: on a CPU, or ready to run while others had it (runnable); CPU is the part on one.
Self is time on a CPU in a function itself, total is wall time with its callees. Blocked time is exact:
from the begin to the end of the calls that waited.

The first screen counts time in code of an interpreter, or of the standard library in the
program's file, for the function that calls it (LIB), and sums up idle waits; --all and
--section show each for itself. What is allocated counts for who calls an allocator.";

/// Show where the time of a recording went.
///
/// A screen: what the trace says in a sentence, its threads, functions and blocking calls, and what was lost.
/// All tables with --all; JSON for scripts; a page with a flame graph and a timeline for browsers. Tables are
/// as wide as the terminal, or as COLUMNS says; 100 columns where there is no terminal.
#[derive(Debug, Args)]
#[command(after_help = REPORT_EXAMPLES, after_long_help = format!("{REPORT_EXAMPLES}{REPORT_MORE}"))]
pub(crate) struct ReportArgs {
    /// The trace.
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// What the heaviest functions are heavy by.
    #[arg(long, value_enum, default_value_t = SortKey::SelfTime, hide_short_help = true)]
    pub sort: SortKey,
    /// Show every table.
    #[arg(long, conflicts_with_all = ["section", "function", "json", "html"])]
    pub all: bool,
    /// Show this part only; may be repeated.
    #[arg(long, value_enum, value_name = "NAME", conflicts_with_all = ["function", "json", "html"])]
    pub section: Vec<Section>,
    /// Lines per table; 0 for all.
    ///
    /// By default what fits a screen, 15 with --all and --section, and all in JSON.
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Only threads with this name or thread id.
    ///
    /// A part of the name will do; may be repeated.
    #[arg(long, value_name = "NAME|TID")]
    pub thread: Vec<String>,
    /// Only processes with this name (or part of it) or process id; may be repeated.
    #[arg(long, value_name = "NAME|PID", hide_short_help = true)]
    pub process: Vec<String>,
    /// Rows for threads at most; those beyond are summed up by name, numbers left out. 0 for all. 2,000 on a
    /// page, all otherwise.
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub max_threads: Option<usize>,
    /// Show who calls a function, and what it calls.
    ///
    /// A part of the name will do.
    #[arg(long, value_name = "NAME", conflicts_with = "html")]
    pub function: Option<String>,
    /// Print JSON (docs/json.md).
    #[arg(long, conflicts_with = "html")]
    pub json: bool,
    /// Write a page with flame graph and timeline.
    ///
    /// `-` for standard output.
    #[arg(long, value_name = "OUT", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    /// Replace the page if it exists.
    #[arg(short, long, requires = "html")]
    pub force: bool,
}

/// Show the page of a trace in a browser: flame graph, timeline and tables.
///
/// The page goes to ~/.cache/stackbeat, where it stays for a day, and $BROWSER or xdg-open shows it. Where
/// neither can, its path is printed. `stackbeat report --html` writes it to a file of your own.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stackbeat open app.beat
  BROWSER=firefox stackbeat open app.beat")]
pub(crate) struct OpenArgs {
    /// The trace.
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
}

const EXPORT_EXAMPLES: &str = "\
Examples:
  stackbeat export app.beat                    app.pftrace, for ui.perfetto.dev
  stackbeat export app.beat --to pprof -o app.pb.gz
  stackbeat export app.beat --to chrome --from 1s --until 1500ms";

const EXPORT_MORE: &str = "
  stackbeat export app.beat --to svg --weight alloc-bytes
  stackbeat export app.beat --to folded -o - | sort | head
  stackbeat export app.beat --to perfetto --thread worker-3";

/// Write a trace in the format of another tool.
///
/// Amounts stay what they are: nothing is rounded away, scaled or left out (docs/exports.md).
#[derive(Debug, Args)]
#[command(after_help = EXPORT_EXAMPLES, after_long_help = format!("{EXPORT_EXAMPLES}{EXPORT_MORE}"))]
pub(crate) struct ExportArgs {
    /// The trace.
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// The format.
    #[arg(short, long, alias = "format", value_enum, value_name = "FORMAT", default_value_t = Format::Perfetto)]
    pub to: Format,
    /// Where to write; beside the trace by default.
    ///
    /// Numbered if that exists. `-` for standard output.
    #[arg(short, long, value_name = "OUT", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Replace the file if it exists.
    #[arg(short, long)]
    pub force: bool,
    /// What widths stand for in formats that know one amount only; wall by default.
    #[arg(long, value_enum, value_name = "AMOUNT", hide_short_help = true)]
    pub weight: Option<Weight>,
    /// Only threads with this name or thread id.
    ///
    /// A part of the name will do; may be repeated.
    #[arg(long, value_name = "NAME|TID")]
    pub thread: Vec<String>,
    /// Leave out what was before: 1s after the start.
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns)]
    pub from: Option<u64>,
    /// Leave out what was after: 1500ms after the start.
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns)]
    pub until: Option<u64>,
    /// Headline; the recorded command by default.
    #[arg(long, hide_short_help = true)]
    pub title: Option<String>,
    /// Print what was written as JSON (docs/json.md).
    #[arg(long)]
    pub json: bool,
}

/// Show what differs between two traces, or two sets of traces.
///
/// For a person who looks for something: tables; on a page the main threads of both (the first trace of each
/// set) on one axis of time, and a differential flame graph. No verdict: what is noise and what is not is
/// said by `stackbeat gate`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stackbeat diff before.beat after.beat
  stackbeat diff main/ branch/           means over all traces of each folder
  stackbeat diff before.beat after.beat --html diff.html")]
pub(crate) struct DiffArgs {
    /// A trace, a folder of traces, or a pattern in quotes.
    #[arg(value_hint = ValueHint::AnyPath)]
    pub a: String,
    /// What to compare it with.
    #[arg(value_hint = ValueHint::AnyPath)]
    pub b: String,
    /// Lines per table; 0 for all. 15 by default, all in JSON.
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Print JSON (docs/json.md).
    #[arg(long, conflicts_with = "html")]
    pub json: bool,
    /// Write a page with timelines and a differential flame graph; `-` for standard output.
    #[arg(long, value_name = "OUT", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    /// Replace the page if it exists.
    #[arg(short, long, requires = "html")]
    pub force: bool,
}

/// Show what a trace holds, what recording it cost, and whether it is complete.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stackbeat info app.beat
  stackbeat info app.beat --verbose      settings, hooks, the recorder
  stackbeat info app.beat --check        exit code 1 when a sum is wrong
  stackbeat info app.beat --json | jq .losses")]
pub(crate) struct InfoArgs {
    /// The trace.
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Check that every thread's times, CPU time and allocations add up.
    #[arg(long)]
    pub check: bool,
    /// Show also the settings, the machine, the hooks, the recorder's figures and the first modules.
    #[arg(short, long)]
    pub verbose: bool,
    /// List every module.
    #[arg(long)]
    pub modules: bool,
    /// Print JSON (docs/json.md).
    #[arg(long)]
    pub json: bool,
}
