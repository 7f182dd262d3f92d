//! Arguments that several commands take.

use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, ValueEnum, ValueHint};

use crate::units::parse_duration_ns;

/// How an app on a phone is recorded.
#[derive(Args, Clone, Debug)]
pub(crate) struct AppRecordingArgs {
    /// Where the trace goes (default: NAME.beat).
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Replace FILE if it exists.
    #[arg(short, long)]
    pub force: bool,
    /// How long to record.
    #[arg(long = "duration", value_name = "TIME", value_parser = parse_duration_ns, default_value = "10s")]
    pub duration_ns: u64,
    /// Time between samples of a thread.
    #[arg(long = "interval", value_name = "TIME", value_parser = parse_duration_ns)]
    pub interval_ns: Option<u64>,
}

impl AppRecordingArgs {
    /// Where the trace of an app goes.
    pub(crate) fn output_of(&self, app: &str) -> PathBuf {
        let of_app = || PathBuf::from(format!("{app}.beat"));
        self.output.clone().unwrap_or_else(of_app)
    }
}

/// What `--mode` knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// Write everything as it comes; what cannot be written in time is counted as lost.
    Endless,
    /// Keep the newest samples that fit.
    Ring,
    /// Keep the oldest samples that fit, then stop.
    Startup,
}

/// A file that a trace is written to. Standard output is the program's, or for what a command says.
pub(super) fn trace_file() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match path == Path::new("-") {
        true => Err(
            "a trace cannot go to standard output; name a file, or a named pipe (mkfifo) \
             that another program reads meanwhile",
        ),
        false => Ok(path),
    })
}
