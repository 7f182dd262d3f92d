//! `stackbeat doctor`: which hooks and clocks work on this machine, and why not.

mod machine;

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use anyhow::Result;
use stackbeat_core::probe::Category;

use crate::EXIT_NEGATIVE;
use crate::cli::local::DoctorArgs;
use crate::commands::checks::{Check, Status, section};
use crate::commands::self_test::{self, Findings};
use crate::terminal::{self, Style};
use crate::units::plural;

/// Runs the command. A failed check is a negative answer.
pub(crate) fn run(args: &DoctorArgs) -> Result<u8> {
    let machine = machine::checks();
    let recording = if args.no_recording {
        Vec::new()
    } else {
        match self_test::run() {
            Ok(findings) => judge(&findings),
            Err(error) => vec![Check::new(
                "a short recording",
                Status::Failed,
                format!("{error:#}"),
                "see the checks above for the reason",
            )],
        }
    };
    let failed = machine
        .iter()
        .chain(&recording)
        .any(|c| c.status == Status::Failed);
    if args.json {
        terminal::print_json(&serde_json::json!({
            "schema": "stackbeat.doctor.v1",
            "stackbeat_version": env!("CARGO_PKG_VERSION"),
            "ok": !failed,
            "machine": machine,
            "recording": recording,
        }))?;
    } else {
        let text = text(&machine, &recording, terminal::width(), Style::stdout());
        terminal::print(&text)?;
    }
    Ok(if failed { EXIT_NEGATIVE } else { 0 })
}

fn text(machine: &[Check], recording: &[Check], width: Option<usize>, style: Style) -> String {
    const RECORDING: &str = "A short recording of a program that passes every kind of hook";
    let mut text = section("This machine", machine, width, style);
    if !recording.is_empty() {
        text.push('\n');
        text.push_str(&section(RECORDING, recording, width, style));
    }
    text
}

/// What a recording of the self-test must contain: category, its name here, and whether
/// recording is of use without it.
const EXPECTED: [(Category, &str, bool); 5] = [
    (Category::Io, "file hooks", true),
    (Category::Sleep, "sleep hooks", true),
    (Category::Wait, "futex and condition hooks", true),
    (Category::Net, "socket hooks", false),
    (Category::Thread, "thread hooks", false),
];

fn judge(f: &Findings) -> Vec<Check> {
    let good = |is_good: bool, otherwise: Status| if is_good { Status::Ok } else { otherwise };
    let mut checks = Vec::new();
    let status = ExitStatus::from_raw(f.wait_status);
    checks.push(Check::new(
        "the program's own life",
        good(status.success(), Status::Failed),
        format!("ended with {status}"),
        "it ends well without stackbeat: please report this",
    ));
    let loaded = f.hooks.all_samples > 0;
    checks.push(Check::new(
        "agent in the program",
        good(loaded, Status::Failed),
        format!(
            "{}, {}, {}",
            plural(f.hooks.all_samples, "sample", "samples"),
            plural(f.processes as u64, "process", "processes"),
            plural(f.hooks.threads as u64, "thread", "threads")
        ),
        "the program ran without the agent: see the warnings below",
    ));
    checks.extend(hooks(f));
    // Counted on every call; a capture is a matter of chance.
    checks.push(Check::new(
        "allocation hooks",
        good(f.hooks.allocations > 0, Status::Failed),
        format!("{} allocations counted", f.hooks.allocations),
        "no allocation was seen: the program's allocator may stand in front of the agent",
    ));
    for (category, name, needed) in EXPECTED {
        let n = f.hooks.by_category.get(&category).copied().unwrap_or(0);
        let otherwise = if needed {
            Status::Failed
        } else {
            Status::Limited
        };
        checks.push(Check::new(
            name,
            good(n > 0, otherwise),
            format!("{n} samples"),
            "no such call was captured: another preloaded library may stand in front of the agent",
        ));
    }
    checks.push(Check::new(
        "interrupting running threads",
        good(f.hooks.interruptions > 0, Status::Failed),
        format!(
            "{} samples of code that passes no hook",
            f.hooks.interruptions
        ),
        "compute-bound stretches will be missing: the recorder may not read /proc/PID or signal it",
    ));
    checks.push(Check::new(
        "child processes",
        good(f.processes > 1, Status::Limited),
        format!("{} seen", f.processes.saturating_sub(1)),
        "the agent did not get into a started program",
    ));
    // Packages have this program without its symbols: their stacks are right, and no name can be.
    let (reached, what) = match f.named {
        0 => (
            f.reached,
            "this program, whose functions have no names in it",
        ),
        named => (named, "the function that did the work"),
    };
    let share = 100.0 * reached as f64 / f.hooks.all_samples.max(1) as f64;
    checks.push(Check::new(
        "unwinding and names",
        good(share > 30.0, Status::Failed),
        format!("{share:.0} % of the stacks reach {what}"),
        "stacks are wrong: please report it, with the output of `stackbeat doctor --json`",
    ));
    checks.push(Check::new(
        "losses",
        good(f.hooks.records_lost == 0, Status::Limited),
        format!("{} records lost", f.hooks.records_lost),
        "the machine could not keep up; try a larger --buffer",
    ));
    // A busy machine takes the processor away between the readings of two clocks; that is no error of
    // the sums.
    let only_clocks = f
        .violations
        .iter()
        .all(|v| v.contains("cpu time of a segment"));
    let otherwise = if only_clocks {
        Status::Limited
    } else {
        Status::Failed
    };
    checks.push(Check::new(
        "sums",
        good(f.violations.is_empty(), otherwise),
        match f.violations.first() {
            None => "each thread's self, blocked and unknown time add up to its life".to_string(),
            Some(first) => format!("{first} ({} in all)", f.violations.len()),
        },
        match only_clocks {
            true => "the CPU clock and the wall clock disagreed for a moment: the machine is busy",
            false => "the numbers of this machine's traces cannot be trusted: please report this",
        },
    ));
    for warning in &f.warnings {
        checks.push(Check::new("warning", Status::Limited, warning.clone(), ""));
    }
    checks
}

/// What the agent said of each hook at its start, and which ones a program that calls them has reached.
fn hooks(f: &Findings) -> Vec<Check> {
    let mut checks: Vec<_> = f
        .hooks
        .capabilities
        .iter()
        .map(|said| {
            let is_obstacle = said.starts_with("hidden by") || said.starts_with("not in");
            Check::new(
                "hooks",
                match is_obstacle {
                    true => Status::Limited,
                    false => Status::Ok,
                },
                said.clone(),
                "calls of these functions are not seen; all others are",
            )
        })
        .collect();
    let names: Vec<_> = f.not_reached.iter().map(|(name, _)| *name).collect();
    let is_needed = f.not_reached.iter().any(|(_, needed)| *needed);
    checks.push(Check::new(
        "hooks reached by their calls",
        match (names.is_empty(), is_needed) {
            (true, _) => Status::Ok,
            (false, true) => Status::Failed,
            (false, false) => Status::Limited,
        },
        match names.is_empty() {
            true => format!("all {} that were tried", self_test::CALLED.len()),
            false => format!("not those of {}", names.join(", ")),
        },
        "another preloaded library may stand in front of the agent (LD_PRELOAD, /etc/ld.so.preload)",
    ));
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::hook_findings::HookFindings;
    use crate::table::text_width;
    use crate::testing::golden;

    #[test]
    fn checks_fit_their_terminal() {
        let machine = [
            Check::new("cycle counter", Status::Ok, "2.9 GHz, invariant", ""),
            Check::new(
                "the kernel's clock",
                Status::Limited,
                "perf_event_open: Operation not permitted (kernel.perf_event_paranoid is 4)",
                "threads are sampled on ticks; `sysctl kernel.perf_event_paranoid=2` allows the other",
            ),
        ];
        let findings = Findings {
            wait_status: 9,
            not_reached: vec![("read", true), ("sendmmsg", false)],
            violations: vec![
                "thread 7: cpu time of a segment is 2 ms longer than its wall time".into(),
            ],
            warnings: vec![
                "a program in the recording was not seen: /usr/bin/busybox (static)".into(),
            ],
            processes: 1,
            ..Findings::default()
        };
        let recording = judge(&findings);
        for columns in [50, 80, 140] {
            let text = text(&machine, &recording, Some(columns), Style::default());
            let widest = text.lines().map(text_width).max();
            assert!(widest <= Some(columns), "{text}");
            if columns >= 80 {
                golden(&format!("doctor-{columns}.txt"), &text);
            }
        }
    }

    #[test]
    fn what_is_missing_is_said() {
        let mut findings = Findings {
            hooks: HookFindings {
                all_samples: 100,
                threads: 3,
                interruptions: 20,
                allocations: 1000,
                ..HookFindings::default()
            },
            named: 90,
            processes: 2,
            ..Findings::default()
        };
        for (category, ..) in EXPECTED {
            findings.hooks.by_category.insert(category, 5);
        }
        assert!(judge(&findings).iter().all(|c| c.status == Status::Ok));
        // Without symbols.
        (findings.named, findings.reached) = (0, 90);
        assert!(judge(&findings).iter().all(|c| c.status == Status::Ok));
        findings.reached = 0;
        let checks = judge(&findings);
        let failed = checks.iter().filter(|c| c.status == Status::Failed);
        assert!(failed.map(|c| c.name).eq(["unwinding and names"]));
        findings.named = 90;
        findings.hooks.allocations = 0;
        findings.hooks.by_category.remove(&Category::Net);
        findings.hooks.interruptions = 0;
        findings.not_reached = vec![("read", true)];
        findings.hooks.capabilities = vec![
            "219 of 220 hooks in place".into(),
            "hidden by /x.so: read".into(),
        ];
        let checks = judge(&findings);
        let not_ok: Vec<_> = checks
            .iter()
            .filter(|c| c.status != Status::Ok)
            .map(|c| (c.name, c.status))
            .collect();
        assert_eq!(
            not_ok,
            [
                ("hooks", Status::Limited),
                ("hooks reached by their calls", Status::Failed),
                ("allocation hooks", Status::Failed),
                ("socket hooks", Status::Limited),
                ("interrupting running threads", Status::Failed)
            ]
        );
        assert!(
            checks
                .iter()
                .all(|c| (c.status == Status::Ok) == c.advice.is_empty())
        );
    }
}
