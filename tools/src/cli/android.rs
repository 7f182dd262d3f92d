//! Arguments of `stackbeat android`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::common_arguments::AppRecordingArgs;
use crate::units::parse_duration_ns;

/// Record apps on Android devices.
#[derive(Debug, Args)]
pub(crate) struct AndroidArgs {
    #[command(subcommand)]
    pub command: AndroidCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AndroidCommand {
    Record(AndroidRecordArgs),
    Doctor(AndroidDoctorArgs),
}

/// The app, and how it is reached.
#[derive(Debug, Args)]
pub(crate) struct DeviceAppArgs {
    /// The app.
    #[arg(short, long, value_name = "NAME")]
    pub package: String,
    /// The activity to start, such as .MainActivity (default: the one that the launcher starts).
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub activity: Option<String>,
    /// The device, if several are connected.
    #[arg(short, long, value_name = "NUMBER")]
    pub serial: Option<String>,
    /// The adb to use (default: that of PATH).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    pub adb: Option<PathBuf>,
}

/// Check which hooks and clocks work in an app, by adb.
///
/// Starts the app anew, records it for a moment, and has it try its hooks. What is not available costs only
/// what it would show.
#[derive(Debug, Args)]
pub(crate) struct AndroidDoctorArgs {
    #[command(flatten)]
    pub app: DeviceAppArgs,
    /// How long to record.
    #[arg(long = "duration", value_name = "TIME", value_parser = parse_duration_ns, default_value = "3s")]
    pub duration_ns: u64,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
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
    #[command(flatten)]
    pub app: DeviceAppArgs,
    #[command(flatten)]
    pub recording: AppRecordingArgs,
    /// The mapping.txt of the build, where R8 or ProGuard has replaced names.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub mapping: Option<PathBuf>,
    /// A folder with the unstripped libraries of the build: names and lines of native functions, by build id.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub symbols: Option<PathBuf>,
    /// Keep the app's records in memory without a file: no write waits for the disk, but records that are not
    /// in the trace yet are gone if the app is killed.
    #[arg(long, hide_short_help = true)]
    pub in_memory: bool,
    /// Record with the device's own tracer, too, and write both as one Perfetto trace.
    #[arg(long, hide_short_help = true)]
    pub system_trace: bool,
}
