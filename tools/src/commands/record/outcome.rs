//! What is said at the end of a recording.

use std::fmt::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use serde::Serialize;
use stackbeat_collector::session::{AttachSession, AttachStep, Options, Outcome};

use crate::cli::LogArgs;
use crate::render::text::evidence;
use crate::summary::evidence::{effective_samples, interval};
use crate::summary::functions::{functions, spent_by};
use crate::summary::sort_key::SortKey;
use crate::summary::{labels, load};
use crate::terminal;
use crate::units::{self, plural};
use crate::unrecorded::{self, UnrecordedRow};

/// Functions named in the summary.
const TOP: usize = 5;
/// A trace larger than this is not read again only for the summary.
const QUICK_BYTES: u64 = 256 << 20;

/// Says it on standard error, in the way that was asked for.
pub(crate) fn print(options: &Options, outcome: &Outcome, how: &LogArgs) {
    if how.json {
        terminal::say(&json(options, outcome));
    } else if !how.quiet {
        terminal::say(&text(options, outcome));
    }
}

/// Linux' asm/signal.h of all architectures that hooks exist for.
const SIGSYS: i32 = 31;

/// What the agent cannot know of: it sees filters that are installed through libc.
const REFUSED_CALL: &str = "  a seccomp filter refused a system call (SIGSYS). If that happens only when it is recorded, the program \
     installs its filter past libc and the call was the recording's own: record it with its sandbox switched off";

/// The summary for people.
fn text(options: &Options, outcome: &Outcome) -> String {
    let style = terminal::Style::stderr();
    let status = &outcome.status;
    let output = options.output.display();
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{}: recorded {} of {}: {}, {}, {}, {} → {output} ({})",
        style.bold("stackbeat"),
        units::duration(outcome.duration.as_nanos() as u64),
        program_name(options),
        plural(status.processes.into(), "process", "processes"),
        plural(status.threads.into(), "thread", "threads"),
        plural(status.samples, "sample of any kind", "samples of all kinds"),
        match outcome.records_lost {
            0 => "none lost".to_string(),
            lost => style.warning(&format!("{} lost", units::count(lost))),
        },
        units::bytes(status.bytes),
    );
    let unrecorded = unrecorded::rows(&outcome.unrecorded);
    if let Some(text) = unrecorded::text(&unrecorded, unseen_cpu_ns(outcome)) {
        let text = format!("  not recorded: {}", terminal::clean(&text));
        let _ = writeln!(out, "{}", style.warning(&text));
    }
    if let Some(attach_session) = &outcome.attach_session {
        out.push_str(&attach_session_text(attach_session));
    }
    if let Some(signal) = ExitStatus::from_raw(outcome.wait_status).signal() {
        let _ = writeln!(out, "  the program was killed by signal {signal}");
        if signal == SIGSYS {
            let _ = writeln!(out, "{}", style.warning(REFUSED_CALL));
        }
    }
    if options.budget().is_some_and(|b| b.is_declared) {
        let after_ns = outcome.after_cpu.as_nanos() as u64;
        let _ = writeln!(
            out,
            "  names and the end of the trace took {} of CPU time after the program's end, beside the budget",
            units::duration(after_ns)
        );
    }
    for (cause, count) in &outcome.drops {
        let _ = writeln!(
            out,
            "  {:>10}  {}",
            units::count(*count),
            crate::drop_causes::describe(*cause)
        );
    }
    if let Some(error) = &outcome.write_error {
        let _ = writeln!(
            out,
            "  {}: {error}; {output} holds what was written before",
            style.bad("the trace is not complete")
        );
    }
    for [share, ends, time, name] in top_functions(options, outcome) {
        let width = terminal::stderr_width().unwrap_or(usize::MAX);
        let line = format!("  {share:>7}  {ends:>15}  {time:>8}  {name}");
        let _ = writeln!(out, "{}", crate::table::shorten(&line, width));
    }
    if options.output.is_file() {
        let _ = writeln!(out, "  see more: stackbeat report {output}");
    }
    out
}

/// CPU time that is neither of a recorded thread nor of a named process.
fn unseen_cpu_ns(outcome: &Outcome) -> u64 {
    let figures = outcome.figures.iter();
    (figures.filter(|(name, _)| name == "unseen_cpu_ns"))
        .map(|(_, ns)| *ns)
        .fold(0, u64::saturating_add)
}

/// What attaching and detaching cost the program.
fn attach_session_text(attach_session: &AttachSession) -> String {
    let text = |attach_step: &AttachStep| {
        let ns = |time: std::time::Duration| units::duration(time.as_nanos() as u64);
        format!(
            "{} (one thread stood still {})",
            ns(attach_step.total),
            ns(attach_step.pause)
        )
    };
    let mut out = match &attach_session.detach {
        Some(detach) => format!(
            "  attached in {}, detached in {}\n",
            text(&attach_session.attach),
            text(detach)
        ),
        None => format!("  attached in {}\n", text(&attach_session.attach)),
    };
    if let Some(descendants) = &attach_session.descendants {
        let pause = units::duration(descendants.longest_pause.as_nanos() as u64);
        let _ = writeln!(
            out,
            "  and to {} processes that it had started (a thread of them stood still {pause} at most)",
            descendants.attached
        );
    }
    out
}

/// The functions that ran most: share, its interval, time, name. Empty when the trace cannot be read (again: it may have gone into a
/// pipe) or is large.
fn top_functions(options: &Options, outcome: &Outcome) -> Vec<[String; 4]> {
    let is_quick = outcome.status.bytes <= QUICK_BYTES && options.output.is_file();
    if outcome.status.samples == 0 || !is_quick {
        return Vec::new();
    }
    let Ok(report) = load::load(&options.output, 0) else {
        return Vec::new();
    };
    let spent = spent_by(&report.profile, &|_| true);
    let whole = spent.running_ns() + labels::gap_cpu_ns(&report.profile, &|_| true);
    functions(&report.profile, &|_| true, SortKey::SelfTime)
        .iter()
        .take(TOP)
        .filter(|row| row.own.running_ns() > 0)
        .map(|row| {
            let own = row.own.running_ns();
            let name = labels::function_text(&report.metadata, row.function.0);
            let name = terminal::clean(&name).into_owned();
            let ends = interval(own, whole, effective_samples(&spent));
            [
                units::percent(own, whole),
                evidence::text(ends),
                units::duration(own),
                name,
            ]
        })
        .collect()
}

/// The summary for scripts, on one line. Documented in docs/json.md.
fn json(options: &Options, outcome: &Outcome) -> String {
    #[derive(Serialize)]
    struct Drops {
        cause: &'static str,
        count: u64,
    }
    #[derive(Serialize)]
    struct Summary {
        schema: &'static str,
        trace: String,
        command: Vec<String>,
        pid: u32,
        wait_status: i32,
        duration_ns: u64,
        program_cpu_ns: u64,
        recorder_cpu_ns: u64,
        after_cpu_ns: u64,
        processes: u32,
        threads: u32,
        samples: u64,
        trace_bytes: u64,
        records_written: u64,
        records_stored: u64,
        records_lost: u64,
        #[serde(rename = "losses")]
        drops: Vec<Drops>,
        unrecorded: Vec<UnrecordedRow>,
        unseen_cpu_ns: u64,
        write_error: Option<String>,
        warnings: Vec<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        attach: Option<AttachStepTimes>,
        /// Processes besides that it had started before.
        #[serde(skip_serializing_if = "Option::is_none")]
        attached_descendants: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        detach: Option<AttachStepTimes>,
    }
    #[derive(Serialize)]
    struct AttachStepTimes {
        pause_ns: u64,
        total_ns: u64,
        slots: u64,
    }
    let times = |attach_step: AttachStep| AttachStepTimes {
        pause_ns: attach_step.pause.as_nanos() as u64,
        total_ns: attach_step.total.as_nanos() as u64,
        slots: attach_step.slots,
    };
    let summary = Summary {
        schema: "stackbeat.record.v1",
        trace: options.output.display().to_string(),
        command: options
            .command
            .iter()
            .map(|a| a.to_string_lossy().into_owned())
            .collect(),
        pid: outcome.pid,
        wait_status: outcome.wait_status,
        duration_ns: outcome.duration.as_nanos() as u64,
        program_cpu_ns: outcome.program_cpu.as_nanos() as u64,
        recorder_cpu_ns: outcome.collector_cpu.as_nanos() as u64,
        after_cpu_ns: outcome.after_cpu.as_nanos() as u64,
        processes: outcome.status.processes,
        threads: outcome.status.threads,
        samples: outcome.status.samples,
        trace_bytes: outcome.status.bytes,
        records_written: outcome.records_written,
        records_stored: outcome.records_stored,
        records_lost: outcome.records_lost,
        drops: outcome
            .drops
            .iter()
            .map(|(cause, count)| Drops {
                cause: crate::drop_causes::name(*cause),
                count: *count,
            })
            .collect(),
        unrecorded: unrecorded::rows(&outcome.unrecorded),
        unseen_cpu_ns: unseen_cpu_ns(outcome),
        write_error: outcome.write_error.clone(),
        warnings: outcome.warnings.iter().map(|w| w.to_string()).collect(),
        attach: outcome.attach_session.map(|v| times(v.attach)),
        attached_descendants: outcome
            .attach_session
            .and_then(|v| v.descendants)
            .map(|d| d.attached),
        detach: outcome.attach_session.and_then(|v| v.detach).map(times),
    };
    terminal::json_line(&summary).unwrap_or_default()
}

fn program_name(options: &Options) -> String {
    let program = options.command.first().cloned().unwrap_or_default();
    std::path::Path::new(&program)
        .file_name()
        .unwrap_or(&program)
        .to_string_lossy()
        .into_owned()
}
