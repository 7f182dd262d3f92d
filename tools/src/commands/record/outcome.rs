//! What is said at the end of a recording.

use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use serde::Serialize;
use stackbeat_collector::session::{AttachSession, AttachStep, Budget, Options, Outcome, Warning};

use super::program_name;
use crate::cli::local::LogArgs;
use crate::drop_causes;
use crate::render::text::table_layout::{Layout, sentences};
use crate::render::text::tables;
use crate::summary::cost::{Cost, cost};
use crate::summary::load::{self, Report};
use crate::summary::missing_names;
use crate::summary::process_waits;
use crate::summary::verdict::verdict;
use crate::terminal;
use crate::units::{self, plural};
use crate::unrecorded::{self, UnrecordedRow};

/// A trace is read again to say what was found if it is not larger than this, or if that takes no more than
/// this part of the recording's time, up to a size: the user waits for the prompt.
const QUICK_BYTES: u64 = 2 << 20;
const QUICK_PART: u32 = 20;
const MOST_BYTES: u64 = 32 << 20;
/// What it takes to read a MiB, CPU time.
const READING: Duration = Duration::from_millis(25);
/// As many bytes are in one of a compressed trace.
const COMPRESSION: u64 = 4;
/// From so many processes on, what it takes to load the agent into each is worth a word.
const MANY_PROCESSES: u32 = 100;
/// A recording that cost more than this, in percent, could cost less.
const CHEAP_PERCENT: f64 = 1.0;
/// One without a budget that cost more than this is not what somebody wants who does not know it.
const EXPENSIVE_PERCENT: f64 = 20.0;
/// A budget was kept up to so many times what it allows.
const BUDGET_TOLERANCE: f64 = 1.25;
/// A program that computed for less than a tenth of its time idles, as for the budget.
const IDLE: f64 = 10.0;
/// In less CPU time of the program a cost is that of the start alone.
const LEAST_CPU: Duration = Duration::from_millis(100);
/// Of a shorter one the start is most of the cost, and no interval changes that.
const LONG: Duration = Duration::from_secs(2);

/// Says it on standard error, in the way that was asked for.
pub(crate) fn print(options: &Options, outcome: &Outcome, how: &LogArgs) {
    if how.json {
        terminal::say(&json(options, outcome));
    } else if !how.quiet {
        let layout = Layout::new(
            terminal::stderr_width(),
            terminal::Style::stderr(),
            usize::MAX,
        );
        let end = End {
            options,
            outcome,
            report: again(options, outcome),
            is_there: options.output.is_file(),
            system: missing_names::System::that_records(),
        };
        terminal::say(&text(end, &layout));
    }
}

/// Linux' asm/signal.h of all architectures that hooks exist for.
const SIGSYS: i32 = 31;

/// What the agent cannot know of: it sees filters that are installed through libc.
const REFUSED_CALL: &str = "a seccomp filter refused a system call (SIGSYS). If that happens only when it is recorded, the program \
     installs its filter past libc and the call was the recording's own: record it with its sandbox switched off";

/// A recording that has ended.
struct End<'a> {
    options: &'a Options,
    outcome: &'a Outcome,
    /// What the trace says, if that was worth the time.
    report: Option<Report>,
    /// The trace is a file, which can be read again.
    is_there: bool,
    system: missing_names::System,
}

/// The summary for people: what was found, what it cost, and what to type next. Between these, what went
/// wrong.
fn text(end: End<'_>, layout: &Layout) -> String {
    let End {
        options,
        outcome,
        report,
        is_there,
        system,
    } = end;
    let status = &outcome.status;
    let mut out = String::new();
    let length = units::duration(outcome.duration.as_nanos() as u64);
    let program = options
        .command
        .first()
        .map_or(OsStr::new(""), |first| first);
    let program = terminal::clean(&program_name(program)).into_owned();
    let found = match report.as_ref().and_then(found) {
        Some(verdict) => format!("stackbeat: {length} of {program}: {verdict}"),
        None => format!("stackbeat: recorded {length} of {program}"),
    };
    sentences(&mut out, layout, &found, |style, line| {
        match line.strip_prefix("stackbeat") {
            Some(rest) => style.bold("stackbeat") + rest,
            None => line.to_owned(),
        }
    });
    let between = (report.as_ref()).and_then(|report| process_waits::text(report, &|_| true));
    if let Some(between) = between {
        let between = format!("  {between}");
        sentences(&mut out, layout, &between, |_, line| line.to_owned());
    }
    let cost = cost_text(options, outcome).map_or_else(String::new, |cost| cost + "; ");
    // The trace knows of processes that ended before they had a record.
    let metadata = report.as_ref().map(|report| &report.metadata);
    let (processes, threads, records) = match metadata {
        Some(metadata) => (
            tables::processes(metadata.process_count(), metadata.processes.len()),
            metadata.thread_count() as u64,
            plural(metadata.recording.records_written, "record", "records"),
        ),
        None => (
            plural(status.processes.into(), "process", "processes"),
            status.threads.into(),
            plural(status.samples, "sample", "samples"),
        ),
    };
    let summary = format!(
        "  {cost}{processes}, {}, {records}, {}, {}",
        plural(threads, "thread", "threads"),
        match outcome.lost() {
            0 => "none lost".to_string(),
            lost => format!("{} lost", units::count(lost)),
        },
        units::bytes(status.bytes),
    );
    sentences(&mut out, layout, &summary, |style, line| {
        match outcome.lost() {
            0 => line.to_owned(),
            _ => style.warning(line),
        }
    });
    let mut warn = |text: &str| {
        let text = format!("  {}", terminal::clean(text));
        sentences(&mut out, layout, &text, terminal::Style::warning);
    };
    for (cause, count) in &outcome.drops {
        let what = drop_causes::counted(*count, drop_causes::describe(*cause));
        warn(&format!("{} {what}", units::count(*count)));
    }
    let unrecorded = unrecorded::rows(&outcome.unrecorded);
    if let Some(text) = unrecorded::text(&unrecorded, unseen_cpu_ns(outcome)) {
        warn(&format!("not recorded: {text}"));
    }
    if let Some(signal) = ExitStatus::from_raw(outcome.wait_status).signal() {
        warn(&format!("the program was killed by signal {signal}"));
        if signal == SIGSYS {
            warn(REFUSED_CALL);
        }
    }
    // Names that nobody waited for may well be here.
    let was_left = |warning: &Warning| matches!(warning, Warning::NamesSkipped { .. });
    let waited = !outcome.warnings.iter().any(was_left);
    let missing = report.filter(|_| waited).map_or_else(Vec::new, |report| {
        missing_names::lines(&report, &|_| true, &system)
    });
    for line in missing {
        warn(&line);
    }
    if let Some(error) = &outcome.write_error {
        const WHAT: &str = "  the trace is not complete";
        let output = options.output.display();
        let text = format!("{WHAT}: {error}; {output} holds what was written before");
        sentences(
            &mut out,
            layout,
            &terminal::clean(&text),
            |style, line| match line.strip_prefix(WHAT) {
                Some(rest) => style.bad(WHAT) + rest,
                None => line.to_owned(),
            },
        );
    }
    if is_there {
        let name = options.output.to_string_lossy();
        let name = shlex::try_quote(&name).unwrap_or_else(|_| name.clone());
        let next =
            format!("  see more: stackbeat report {name}, in the browser: stackbeat open {name}");
        sentences(&mut out, layout, &next, |_, line| line.to_owned());
    }
    out
}

/// The trace's report; `None` where it says nothing, cannot be read (again: it may have gone into a pipe) or
/// is large.
fn again(options: &Options, outcome: &Outcome) -> Option<Report> {
    let factor = if options.compress { COMPRESSION } else { 1 };
    let pieces = (outcome.duration / QUICK_PART).as_nanos() / READING.as_nanos();
    let quick_bytes = ((pieces as u64) << 20).clamp(QUICK_BYTES, MOST_BYTES);
    let is_quick = outcome.status.bytes.saturating_mul(factor) <= quick_bytes;
    let is_quick = is_quick && options.output.is_file();
    if outcome.status.samples == 0 || !is_quick {
        return None;
    }
    load::load(&options.output, 0).ok()
}

/// What the trace says in a sentence.
fn found(report: &Report) -> Option<String> {
    verdict(report, &|_| true)
}

/// What recording cost the program, as far as it is known.
fn cost_text(options: &Options, outcome: &Outcome) -> Option<String> {
    let figures = outcome.figures.iter();
    let cost = cost(figures.map(|(name, value)| (name.as_str(), *value)));
    let is_declared = options.budget().is_some_and(|b| b.is_declared);
    let mut parts = Vec::new();
    let least_ns = LEAST_CPU.as_nanos() as u64;
    let is_told = |cost: &Cost| cost.parts_ns.1 >= least_ns || outcome.duration >= LONG;
    if let Some(cost) = cost.filter(is_told) {
        // Of a program that idles any cost is a large part of next to nothing.
        let elapsed_ns = outcome.duration.as_nanos() as f64;
        let (cost_ns, program_ns) = cost.parts_ns;
        let (percent, of) = match program_ns as f64 * IDLE < elapsed_ns {
            true => (cost_ns as f64 * 100.0 / elapsed_ns, "of a processor"),
            false => (cost.percent, "of the CPU time"),
        };
        let is_warned =
            (outcome.warnings.iter()).any(|warning| matches!(warning, Warning::OverBudget { .. }));
        // The budget bounds captures and hooks at once, and the recorder's own work over some seconds.
        let was_slowed =
            (outcome.warnings.iter()).any(|warning| matches!(warning, Warning::Slowed { .. }));
        let advice = match (is_warned, was_slowed) {
            (true, _) => String::new(),
            (_, true) => format!(
                " (captures and hooks {:.1} %, the recorder's own work {:.1} %{})",
                (cost.captures_percent + cost.hooks_percent) * percent / cost.percent,
                cost.recorder_percent * percent / cost.percent,
                match options.budget() {
                    Some(budget) if !budget.is_declared && cost.percent > budget.percent => {
                        "; without --budget, intervals grow to 1 ms at most"
                    }
                    _ => "",
                },
            ),
            _ => advice(percent, options.budget(), outcome.duration >= LONG),
        };
        // That is the loader's and the kernel's work, and nobody counts it.
        let beside = match outcome.status.processes {
            count @ MANY_PROCESSES.. => {
                format!(", beside loading the agent into {count} processes")
            }
            _ => String::new(),
        };
        parts.push(format!(
            "recording cost {percent:.1} % {of}{beside}{advice}"
        ));
    }
    if is_declared {
        let after_ns = outcome.after_cpu.as_nanos() as u64;
        parts.push(format!(
            "{} after the end, beside the budget",
            units::duration(after_ns)
        ));
    }
    parts.extend(outcome.attach_session.as_ref().map(attach_session_text));
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// What is to be said of a cost, so much in percent: why it is over the budget, or how it would be less.
fn advice(percent: f64, budget: Option<Budget>, is_long: bool) -> String {
    match budget {
        Some(budget) if budget.is_declared && percent > budget.percent * BUDGET_TOLERANCE => {
            format!(
                " (the budget of {} % is kept over some seconds: the start alone costs more)",
                budget.percent
            )
        }
        None if percent > EXPENSIVE_PERCENT => {
            " (--budget 0 keeps the interval whatever it costs; --budget 5% bounds that)".to_owned()
        }
        budget if percent > CHEAP_PERCENT && is_long && budget.is_none_or(|b| !b.is_declared) => {
            " (--budget 1% for less)".to_owned()
        }
        _ => String::new(),
    }
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
        let ns = |time: Duration| units::duration(time.as_nanos() as u64);
        format!(
            "{} (one thread stood still {})",
            ns(attach_step.total),
            ns(attach_step.pause)
        )
    };
    let mut out = format!("attached in {}", text(&attach_session.attach));
    if let Some(detach) = &attach_session.detach {
        let _ = write!(out, ", detached in {}", text(detach));
    }
    if let Some(descendants) = &attach_session.descendants {
        let pause = units::duration(descendants.longest_pause.as_nanos() as u64);
        let _ = write!(
            out,
            ", and to {} processes that it had started (a thread of them stood still {pause} at most)",
            descendants.attached
        );
    }
    out
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

#[cfg(test)]
mod tests {
    use stackbeat_model::{Reason, UnrecordedProgram};
    use stackbeat_proto::v1::drops::Cause;

    use super::*;
    use crate::table::text_width;
    use crate::testing::{self, golden};

    /// The made-up program, recorded.
    fn outcome(report: &Report) -> Outcome {
        let recording = &report.metadata.recording;
        let figures = [
            ("cost_of_ns", 900_000_000),
            ("cost_ns", 28_000_000),
            ("cost_captures_ns", 16_000_000),
            ("cost_hooks_ns", 3_000_000),
            ("unseen_cpu_ns", 40_000_000),
        ];
        Outcome {
            wait_status: 0,
            pid: 1001,
            duration: Duration::from_nanos(recording.duration_ns),
            program_cpu: Duration::from_millis(900),
            collector_cpu: Duration::from_millis(9),
            after_cpu: Duration::from_millis(70),
            status: stackbeat_collector::session::Status {
                processes: 2,
                threads: 4,
                samples: 990,
                bytes: 31_400,
                ..Default::default()
            },
            records_written: recording.records_written,
            records_stored: recording.records_written,
            records_lost: 0,
            drops: Vec::new(),
            unrecorded: Vec::new(),
            write_error: None,
            figures: figures.map(|(name, value)| (name.to_owned(), value)).into(),
            warnings: Vec::new(),
            attach_session: None,
        }
    }

    fn compare(
        name: &str,
        options: &Options,
        outcome: &Outcome,
        report: &dyn Fn() -> Option<Report>,
    ) {
        for columns in [50, 80, 140] {
            let end = End {
                options,
                outcome,
                report: report(),
                is_there: true,
                system: missing_names::System::without_packages(),
            };
            let layout = Layout::new(Some(columns), terminal::Style::default(), usize::MAX);
            let text = text(end, &layout);
            let widest = text.lines().map(text_width).max();
            assert!(widest <= Some(columns), "{text}");
            if columns >= 80 {
                golden(&format!("{name}-{columns}.txt"), &text);
            }
        }
    }

    #[test]
    fn the_end_of_a_recording_fits_its_terminal() {
        let command = vec!["./shop".into(), "--verbose".into()];
        let mut options = Options::new(command, "/agent.so".into(), "shop.beat".into());
        let mut outcome = outcome(&testing::report());
        compare("record", &options, &outcome, &|| Some(testing::report()));
        // A trace that was too large to be read again.
        compare("record-unread", &options, &outcome, &|| None);

        options.output = "traces of today/shop.beat".into();
        options.budget_percent = Some(1.0);
        outcome.wait_status = 11;
        outcome.records_stored = 987_000;
        outcome.records_written = 1_000_000;
        outcome.records_lost = 13_000;
        outcome.drops = vec![(Cause::BufferFull, 13_000), (Cause::TruncatedDepth, 2)];
        outcome.unrecorded = vec![UnrecordedProgram {
            name: "busybox".into(),
            executable: "/usr/bin/busybox".into(),
            reason: Reason::Static,
            processes: 3,
            cpu_ns: 210_000_000,
        }];
        outcome.write_error =
            Some("traces of today/shop.beat: No space left on device (os error 28)".into());
        compare("record-troubles", &options, &outcome, &|| {
            Some(testing::report())
        });
    }

    #[test]
    fn a_cost_that_surprises_is_explained() {
        let budget = |percent, is_declared| {
            Some(Budget {
                percent,
                longest_ns: 1_000_000,
                is_declared,
            })
        };
        let short = |percent, budget| advice(percent, budget, false);
        assert!(short(5.3, budget(1.0, true)).contains("budget of 1 % is kept over some seconds"));
        assert_eq!(short(1.2, budget(1.0, true)), "");
        assert!(short(111.0, None).contains("--budget 0 keeps the interval whatever"));
        assert_eq!(short(7.0, budget(5.0, false)), "");
        let long = |percent, budget| advice(percent, budget, true);
        assert_eq!(long(7.0, budget(5.0, false)), " (--budget 1% for less)");
        assert_eq!(long(7.0, None), " (--budget 1% for less)");
        assert_eq!(long(0.8, None), "");
    }
}
