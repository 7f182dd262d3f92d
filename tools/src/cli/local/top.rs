//! Arguments of the live view.

use clap::Args;

use super::record::{ProcessArg, parse_process};
use crate::summary::sort_key::SortKey;
use crate::units::parse_duration_ns;

/// Show what a running process does now: its threads, functions and waits.
///
/// A process that nobody records is attached to, and detached from at the end: nothing stays behind, and no
/// trace is written. One that is recorded goes on as before: its session is asked for its last seconds. Names
/// are those of `report`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stackbeat top 1234
  stackbeat top redis-server
  stackbeat top --every 5s --sort blocked 1234
  stackbeat top --once 1234 > now.txt

Keys: q quits, ? shows all keys. Without a terminal, one screen is printed, as with --once.")]
pub(crate) struct TopArgs {
    /// The process, by its number or its program's name.
    ///
    /// Or a session of `status`, or its recorder.
    #[arg(value_name = "PID|NAME|SESSION")]
    pub target: String,
    /// Time that a screen shows.
    ///
    /// After it the next one comes.
    #[arg(short, long, value_name = "TIME", default_value = "2s", value_parser = parse_period)]
    pub every: u64,
    /// What the heaviest functions are heavy by.
    #[arg(long, value_enum, default_value_t = SortKey::SelfTime)]
    pub sort: SortKey,
    /// Print one screen and end.
    #[arg(long)]
    pub once: bool,
    /// Attach to those that it has started before, too.
    ///
    /// The workers of a server, for example.
    #[arg(long)]
    pub children: bool,
    /// Attach although the program runs under a seccomp filter, which may kill it.
    #[arg(long, hide_short_help = true)]
    pub allow_seccomp: bool,
}

impl TopArgs {
    /// The process that is named, unless it is a session.
    pub(crate) fn process(&self) -> Option<ProcessArg> {
        parse_process(&self.target).ok()
    }
}

/// Shortest time between two screens: below it there is little to show, and much to do for it.
pub(crate) const LEAST_PERIOD_NS: u64 = 200_000_000;
/// Longest.
pub(crate) const MOST_PERIOD_NS: u64 = 60_000_000_000;

fn parse_period(text: &str) -> Result<u64, String> {
    match parse_duration_ns(text) {
        Ok(ns) if (LEAST_PERIOD_NS..=MOST_PERIOD_NS).contains(&ns) => Ok(ns),
        Ok(_) => Err("200ms to 60s are possible".to_owned()),
        Err(error) => Err(error),
    }
}
