//! Arguments of `stackbeat android`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::common_arguments::AppRecordingArgs;

/// Record apps on Android devices.
#[derive(Debug, Args)]
pub(crate) struct AndroidArgs {
    #[command(subcommand)]
    pub command: AndroidCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AndroidCommand {
    Record(AndroidRecordArgs),
}

/// Record an app that carries stackbeat, by adb.
///
/// Starts the app anew, waits, and fetches what its session holds. How an app carries stackbeat:
/// docs/platforms/android-app.md.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stackbeat android record -p com.example.app
  stackbeat android record -p com.example.app --duration 30s -o start.beat
  stackbeat android record -p com.example.app --system-trace")]
pub(crate) struct AndroidRecordArgs {
    /// The app.
    #[arg(short, long, value_name = "NAME")]
    pub package: String,
    #[command(flatten)]
    pub recording: AppRecordingArgs,
    /// The activity to start, such as .MainActivity (default: the one that the launcher starts).
    #[arg(long, value_name = "NAME")]
    pub activity: Option<String>,
    /// The mapping.txt of the build, where R8 or ProGuard has replaced names.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub mapping: Option<PathBuf>,
    /// Record with the device's own tracer, too, and write both as one Perfetto trace.
    #[arg(long)]
    pub system_trace: bool,
    /// The device, if several are connected.
    #[arg(short, long, value_name = "NUMBER")]
    pub serial: Option<String>,
    /// The adb to use (default: that of PATH).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub adb: Option<PathBuf>,
}
