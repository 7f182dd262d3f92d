//! `stackbeat android doctor`: which hooks and clocks work in an app on a device, and why not.

use anyhow::Result;
use stackbeat_core::probe::Category;
use stackbeat_model::Trace;

use super::adb::Adb;
use super::record::{self, Wanted};
use crate::EXIT_NEGATIVE;
use crate::cli::android::AndroidDoctorArgs;
use crate::commands::checks::{Check, Status, section};
use crate::commands::hook_findings::{HookFindings, look_at};
use crate::terminal::{self, Style};

/// Runs the command. A failed check is a negative answer.
pub(super) fn run(args: &AndroidDoctorArgs) -> Result<u8> {
    let adb = record::connect(&args.app)?;
    let device = device(&adb)?;
    let wanted = Wanted {
        duration_ns: args.duration_ns,
        interval_ns: None,
        tries_hooks: true,
        system_trace: false,
    };
    let (bytes, ..) = record::record(&adb, &args.app, &wanted)?;
    let trace = Trace::from_bytes("the app's trace", bytes)?;
    let findings = look_at(&trace)?;
    let checks = judge(&findings);
    let failed = checks.iter().any(|c| c.status() == Status::Failed);
    if args.json {
        terminal::print_json(&serde_json::json!({
            "schema": "stackbeat.android-doctor.v1",
            "stackbeat_version": env!("CARGO_PKG_VERSION"),
            "ok": !failed,
            "device": device,
            "app": checks,
        }))?;
    } else {
        let title = format!("{} on {device}", args.app.package);
        terminal::print(&section(&title, &checks, Style::stdout()))?;
    }
    Ok(if failed { EXIT_NEGATIVE } else { 0 })
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

fn judge(f: &HookFindings) -> Vec<Check> {
    let good = |is_good: bool| if is_good { Status::Ok } else { Status::Limited };
    let mut checks = vec![Check::new(
        "session in the app",
        match f.all_samples {
            0 => Status::Failed,
            _ => Status::Ok,
        },
        format!("{} samples of {} threads", f.all_samples, f.threads),
        "the app did nothing meanwhile, or its agent is off: look at `adb logcat -s stackbeat`",
    )];
    // In the words of the app's library (hooks-android/src/doctor.rs).
    for said in &f.capabilities {
        checks.push(Check::new(
            "hooks",
            good(!said.contains(", not available: ")),
            said.clone(),
            "what it would show is not in the trace; the rest is",
        ));
    }
    if f.capabilities.is_empty() {
        checks.push(Check::new(
            "hooks",
            Status::Failed,
            "the app says nothing of its hooks",
            "its library is older than this command: build the app anew",
        ));
    }
    checks.push(Check::new(
        "allocation hooks",
        good(f.allocations > 0),
        format!("{} allocations counted", f.allocations),
        "no thread has allocated, or no hook of an allocator is in place",
    ));
    for (category, name) in [
        (Category::Io, "file hooks"),
        (Category::Lock, "lock hooks"),
        (Category::Wait, "futex, condition and poll hooks"),
    ] {
        let n = f.by_category.get(&category).copied().unwrap_or(0);
        checks.push(Check::new(
            name,
            good(n > 0),
            format!("{n} samples"),
            "no such call was captured in this time",
        ));
    }
    checks.push(Check::new(
        "interrupting running threads",
        good(f.interruptions > 0),
        format!("{} samples of code that passes no hook", f.interruptions),
        "the app computed nothing meanwhile, or its signals do not arrive",
    ));
    checks.push(Check::new(
        "losses",
        good(f.records_lost == 0),
        format!("{} records lost", f.records_lost),
        "the device could not keep up",
    ));
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_available_is_a_limit_and_says_why() {
        let said = [
            "art 14: 13 of 14 hooks in place",
            "art 14, by dobby: MonitorLock",
            "art 14, not available: Park (this ART does not have it)",
            "bionic, called by no loaded library: lockf",
        ];
        let findings = HookFindings {
            all_samples: 1,
            capabilities: said.map(str::to_owned).to_vec(),
            ..HookFindings::default()
        };
        let checks = judge(&findings);
        let of_hooks: Vec<Status> = checks[1..5].iter().map(Check::status).collect();
        let (ok, limited) = (Status::Ok, Status::Limited);
        assert_eq!(of_hooks, [ok, ok, limited, ok]);
        assert!(checks.iter().all(|check| check.status() != Status::Failed));
        let silent = judge(&HookFindings::default());
        let failed = silent.iter().filter(|c| c.status() == Status::Failed);
        assert_eq!(failed.count(), 2);
    }
}
