//! Arguments of `stackbeat apple`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::common_arguments::AppRecordingArgs;
use crate::units::parse_duration_ns;

/// Record apps in Apple's simulator and on devices.
#[derive(Debug, Args)]
pub(crate) struct AppleArgs {
    #[command(subcommand)]
    pub command: AppleCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AppleCommand {
    Record(AppleRecordArgs),
    Doctor(AppleDoctorArgs),
}

/// The app, and how it is reached.
#[derive(Debug, Args)]
pub(crate) struct AppleAppArgs {
    /// The app's bundle identifier.
    #[arg(short, long, value_name = "NAME")]
    pub bundle: String,
    /// In a simulator: its name or identifier.
    ///
    /// Or `booted` for the only one that runs.
    #[arg(long, value_name = "NAME")]
    pub simulator: Option<String>,
    /// The device, if several are connected: its name or identifier.
    #[arg(long, value_name = "NAME", conflicts_with = "simulator")]
    pub device: Option<String>,
    /// With --simulator: the library, for an app that does not carry it.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "simulator", hide_short_help = true)]
    pub library: Option<PathBuf>,
    /// The xcrun to use (default: that of PATH).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    pub xcrun: Option<PathBuf>,
}

/// Check which hooks work in an app, by Xcode's simctl or devicectl.
///
/// Starts the app anew and records it for a moment. Says which hooks are in place, by what means, and what is
/// not seen. What is not available costs only what it would show.
#[derive(Debug, Args)]
pub(crate) struct AppleDoctorArgs {
    #[command(flatten)]
    pub app: AppleAppArgs,
    /// How long to record.
    #[arg(long = "duration", value_name = "TIME", value_parser = parse_duration_ns, default_value = "3s")]
    pub duration_ns: u64,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Record an app that carries stackbeat, by Xcode's simctl or devicectl.
///
/// Starts the app anew, waits, and fetches the trace that its session has written. How an app carries
/// stackbeat: docs/platforms/apple-app.md.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stackbeat apple record -b com.example.app
  stackbeat apple record -b com.example.app --duration 30s --symbols dSYMs
  stackbeat apple record -b com.example.app --simulator 'iPhone 16'")]
pub(crate) struct AppleRecordArgs {
    #[command(flatten)]
    pub app: AppleAppArgs,
    #[command(flatten)]
    pub recording: AppRecordingArgs,
    /// A folder with the dSYMs of the build: names and lines of functions, by UUID.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub symbols: Option<PathBuf>,
}
