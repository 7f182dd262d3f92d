//! One module for each command: it resolves its arguments into options, does what they ask for, and says how
//! it went.
//!
//! Commands that start programs of this machine, or look into them, exist on Linux.

pub(crate) mod android;
mod app_checks;
pub(crate) mod apple;
mod checks;
pub(crate) mod control;
pub(crate) mod convert;
pub(crate) mod documents;
pub(crate) mod gate;
mod hook_findings;
pub(crate) mod info;
mod native_names;
pub(crate) mod open;
pub(crate) mod recover;
pub(crate) mod report;
mod requests;
mod trace_content;

#[cfg(target_os = "linux")]
mod attach;
#[cfg(target_os = "linux")]
mod demo;
#[cfg(target_os = "linux")]
mod doctor;
#[cfg(target_os = "linux")]
mod probes;
#[cfg(target_os = "linux")]
mod record;
#[cfg(target_os = "linux")]
mod self_test;
#[cfg(target_os = "linux")]
mod top;

/// Runs a command of Linux.
#[cfg(target_os = "linux")]
pub(crate) fn run_local(command: crate::cli::local::LocalCommand) -> anyhow::Result<u8> {
    use crate::cli::local::LocalCommand;
    match command {
        LocalCommand::Record(args) => record::run(&args),
        LocalCommand::Attach(args) => attach::run(args),
        LocalCommand::Top(args) => top::run(&args),
        LocalCommand::Ab(args) => gate::ab::run(&args),
        LocalCommand::Doctor(args) => doctor::run(&args),
        LocalCommand::Probes(args) => probes::run(&args),
        LocalCommand::Demo(args) => demo::run(&args),
        LocalCommand::DemoWorker(args) => demo::work(&args),
    }
}
