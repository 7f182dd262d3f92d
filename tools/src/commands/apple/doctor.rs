//! `stackbeat apple doctor`: which hooks work in an app in a simulator or on a device, and why not.

use anyhow::Result;
use stackbeat_model::Trace;

use super::record::{self, Wanted};
use crate::cli::apple::AppleDoctorArgs;
use crate::commands::app_checks::{self, System};
use crate::commands::hook_findings::look_at;

const APPLE: System = System {
    schema: "stackbeat.apple-doctor.v1",
    if_silent: "the app did nothing meanwhile, or its agent is off",
    waits: "condition, semaphore and poll hooks",
    if_never_interrupted: "the app computed nothing meanwhile, or its threads cannot be suspended",
};

/// Runs the command.
pub(super) fn run(args: &AppleDoctorArgs) -> Result<u8> {
    let place = record::connect(&args.app)?;
    let wanted = Wanted {
        duration_ns: args.duration_ns,
        interval_ns: None,
    };
    let fetched = record::record(&*place, &args.app.bundle, &wanted)?;
    let findings = look_at(&Trace::open(fetched.path())?)?;
    app_checks::say(&APPLE, &findings, &args.app.bundle, place.name(), args.json)
}
