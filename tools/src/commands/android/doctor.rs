//! `stackbeat android doctor`: which hooks and clocks work in an app on a device, and why not.

use anyhow::Result;
use stackbeat_model::Trace;

use super::adb::Adb;
use super::record::{self, Wanted};
use crate::cli::android::AndroidDoctorArgs;
use crate::commands::app_checks::{self, System};
use crate::commands::hook_findings::look_at;

const ANDROID: System = System {
    schema: "stackbeat.android-doctor.v1",
    if_silent: "the app did nothing meanwhile, or its agent is off: look at `adb logcat -s stackbeat`",
    waits: "futex, condition and poll hooks",
    if_never_interrupted: "the app computed nothing meanwhile, or its signals do not arrive",
};

/// Runs the command. A failed check is a negative answer.
pub(super) fn run(args: &AndroidDoctorArgs) -> Result<u8> {
    let adb = record::connect(&args.app)?;
    let device = device(&adb)?;
    let wanted = Wanted {
        duration_ns: args.duration_ns,
        interval_ns: None,
        tries_hooks: true,
        in_memory: false,
        system_trace: false,
    };
    let (bytes, ..) = record::record(&adb, &args.app, &wanted)?;
    let trace = Trace::from_bytes("the app's trace", bytes)?;
    app_checks::say(
        &ANDROID,
        &look_at(&trace)?,
        &args.app.package,
        &device,
        args.json,
    )
}

/// Which Android, and which processor.
fn device(adb: &Adb) -> Result<String> {
    let property = |name: &str| adb.say(["shell", &format!("getprop {name}")]);
    Ok(format!(
        "{}, Android {} (API level {}), {}",
        adb.serial(),
        property("ro.build.version.release")?,
        property("ro.build.version.sdk")?,
        property("ro.product.cpu.abi")?
    ))
}
