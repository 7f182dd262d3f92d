//! `stackbeat android`: steers a session inside an app on a device, by adb.
//!
//! - `adb`: the program, and what it says when something is missing
//! - `device_session`: the app's session, reached through a forwarded port
//! - `doctor`: which hooks work in an app
//! - `names`: a shrinker's names of Java methods
//! - `record`: a recording from its begin to its end

mod adb;
mod device_session;
mod doctor;
mod names;
mod record;

use anyhow::Result;

use crate::cli::android::{AndroidArgs, AndroidCommand};

/// Runs the command.
pub(crate) fn run(args: &AndroidArgs) -> Result<u8> {
    match &args.command {
        AndroidCommand::Record(args) => record::run(args),
        AndroidCommand::Doctor(args) => doctor::run(args),
    }
}
