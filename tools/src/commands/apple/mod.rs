//! `stackbeat apple record` and `stackbeat apple doctor`: has an app record itself in a simulator or on a
//! device, by Xcode's tools.
//!
//! - `xcrun`: the program that runs these tools, and what it says when something is missing
//! - `simulator`, `device`: the two places, as one contract
//! - `record`: a recording from its begin to its end
//! - `doctor`: what a short one says of the hooks

mod device;
mod doctor;
mod record;
mod simulator;
mod xcrun;

use std::path::Path;

use anyhow::Result;

use crate::cli::apple::{AppleArgs, AppleCommand};

/// Runs the command.
pub(crate) fn run(args: &AppleArgs) -> Result<u8> {
    match &args.command {
        AppleCommand::Record(args) => record::run(args),
        AppleCommand::Doctor(args) => doctor::run(args),
    }
}

/// Where the app's library writes its trace, below the app's home (apple/src/own_session.rs).
const TRACE: &str = "Library/Caches/stackbeat/app.beat";

/// Where an app runs.
trait Place {
    /// What people call it.
    fn name(&self) -> &str;
    /// Fails unless the app is there.
    fn check(&self, bundle: &str) -> Result<()>;
    /// Starts the app anew with these variables in its environment. Gives its pid.
    fn launch(&self, bundle: &str, variables: &[(&str, String)]) -> Result<u32>;
    /// Whether the process is still there.
    fn is_running(&self, pid: u32) -> Result<bool>;
    /// Copies the app's trace. Until a session has begun there is none: then it fails with what the system
    /// says.
    fn fetch(&self, bundle: &str, to: &Path) -> Result<()>;
}
