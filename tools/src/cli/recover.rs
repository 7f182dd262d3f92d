//! Arguments of `stackbeat recover`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::common_arguments::trace_file;

/// Put together the trace of a recording that was killed.
///
/// Joins the unfinished trace and what the session's shared memory still holds. Without FILE, lists the
/// sessions in /dev/shm whose recorder is gone.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stackbeat recover                            list what can be recovered
  stackbeat recover app.beat -o saved.beat     from an unfinished trace
  stackbeat recover /dev/shm/stackbeat.1234 -o saved.beat")]
pub(crate) struct RecoverArgs {
    /// The unfinished trace, or the session's mapping in /dev/shm.
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,
    /// Where the recovered trace goes; FILE with `.recovered.beat` by default.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, value_parser = trace_file())]
    pub output: Option<PathBuf>,
    /// Replace the output if it exists.
    #[arg(short, long)]
    pub force: bool,
    /// Leave the shared memory in place afterwards.
    #[arg(long)]
    pub keep: bool,
    /// Keep no unpacked debug files in ~/.cache/stackbeat/symbols, and use none.
    #[arg(long, hide_short_help = true)]
    pub no_symbol_cache: bool,
    /// Name JavaScript by its sources, where source maps say them: comments and files beside.
    #[arg(long, hide_short_help = true)]
    pub source_maps: bool,
    /// Ask no server for debug files, even where DEBUGINFOD_URLS names some.
    #[arg(long, hide_short_help = true)]
    pub no_debuginfod: bool,
    /// Print what was found as JSON.
    #[arg(long)]
    pub json: bool,
}
