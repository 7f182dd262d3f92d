//! Checks of the hooks in an app, by a trace that it has made of itself: for `android doctor` and `apple
//! doctor`.

use anyhow::Result;
use stackbeat_core::probe::Category;

use super::checks::{Check, Status, section};
use super::hook_findings::HookFindings;
use crate::EXIT_NEGATIVE;
use crate::terminal::{self, Style};

/// What differs between systems.
#[derive(Debug)]
pub(crate) struct System {
    /// Of the JSON.
    pub schema: &'static str,
    /// What to do when the trace has no samples.
    pub if_silent: &'static str,
    /// What waits there.
    pub waits: &'static str,
    /// What to do when no thread was interrupted.
    pub if_never_interrupted: &'static str,
}

/// Says what was found in an app. A failed check is a negative answer.
pub(crate) fn say(
    system: &System,
    findings: &HookFindings,
    app: &str,
    device: &str,
    json: bool,
) -> Result<u8> {
    let checks = judge(system, findings);
    let failed = checks.iter().any(|c| c.status() == Status::Failed);
    if json {
        terminal::print_json(&serde_json::json!({
            "schema": system.schema,
            "stackbeat_version": env!("CARGO_PKG_VERSION"),
            "ok": !failed,
            "device": device,
            "app": checks,
        }))?;
    } else {
        let title = format!("{app} on {device}");
        terminal::print(&section(
            &title,
            &checks,
            terminal::width(),
            Style::stdout(),
        ))?;
    }
    Ok(if failed { EXIT_NEGATIVE } else { 0 })
}

fn judge(system: &System, f: &HookFindings) -> Vec<Check> {
    let good = |is_good: bool| if is_good { Status::Ok } else { Status::Limited };
    let mut checks = vec![Check::new(
        "session in the app",
        match f.all_samples {
            0 => Status::Failed,
            _ => Status::Ok,
        },
        format!("{} samples of {} threads", f.all_samples, f.threads),
        system.if_silent,
    )];
    // In the words of the app's library (hooks-android/src/doctor.rs, hooks-apple/src/system/doctor.rs).
    for said in &f.capabilities {
        checks.push(Check::new(
            "hooks",
            good(
                ![", not available: ", ", not seen: "]
                    .iter()
                    .any(|what| said.contains(what)),
            ),
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
        (Category::Wait, system.waits),
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
        system.if_never_interrupted,
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

    const SYSTEM: System = System {
        schema: "",
        if_silent: "",
        waits: "waits",
        if_never_interrupted: "",
    };

    #[test]
    fn what_is_not_available_is_a_limit_and_says_why() {
        let said = [
            "art 14: 13 of 14 hooks in place",
            "art 14, by dobby: MonitorLock",
            "art 14, not available: Park (this ART does not have it)",
            "bionic, called by no loaded library: lockf",
            "apple, by methods: -[NSLock lock]",
            "apple, not seen: calls inside the dyld shared cache, which pass no slot",
        ];
        let findings = HookFindings {
            all_samples: 1,
            capabilities: said.map(str::to_owned).to_vec(),
            ..HookFindings::default()
        };
        let checks = judge(&SYSTEM, &findings);
        let of_hooks: Vec<Status> = checks[1..7].iter().map(Check::status).collect();
        let (ok, limited) = (Status::Ok, Status::Limited);
        assert_eq!(of_hooks, [ok, ok, limited, ok, ok, limited]);
        assert!(checks.iter().all(|check| check.status() != Status::Failed));
        let silent = judge(&SYSTEM, &HookFindings::default());
        let failed = silent.iter().filter(|c| c.status() == Status::Failed);
        assert_eq!(failed.count(), 2);
    }
}
