//! What is said at the end of a recording.

use std::fmt::Write;

use serde::Serialize;
use stackbeat_collector::session::{Options, Outcome};

use super::progress::plural;
use crate::{terminal, units};

/// The summary for people.
pub fn text(options: &Options, outcome: &Outcome) -> String {
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
        plural(status.samples, "sample", "samples"),
        match outcome.records_lost {
            0 => "none lost".to_string(),
            lost => style.warning(&format!("{} lost", units::count(lost))),
        },
        units::bytes(status.bytes),
    );
    for (cause, count) in &outcome.losses {
        let _ = writeln!(
            out,
            "  {:>10}  {}",
            units::count(*count),
            crate::losses::describe(*cause)
        );
    }
    if let Some(error) = &outcome.write_error {
        let _ = writeln!(
            out,
            "  {}: {error}; {output} holds what was written before",
            style.bad("the trace is not complete")
        );
    }
    let _ = writeln!(out, "  see it: stackbeat report {output}");
    out
}

/// The summary for scripts, on one line. Documented in docs/json.md.
pub fn json(options: &Options, outcome: &Outcome) -> String {
    #[derive(Serialize)]
    struct Loss {
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
        processes: u32,
        threads: u32,
        samples: u64,
        trace_bytes: u64,
        records_written: u64,
        records_stored: u64,
        records_lost: u64,
        losses: Vec<Loss>,
        write_error: Option<String>,
        warnings: Vec<String>,
    }
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
        processes: outcome.status.processes,
        threads: outcome.status.threads,
        samples: outcome.status.samples,
        trace_bytes: outcome.status.bytes,
        records_written: outcome.records_written,
        records_stored: outcome.records_stored,
        records_lost: outcome.records_lost,
        losses: outcome
            .losses
            .iter()
            .map(|(cause, count)| Loss {
                cause: crate::losses::name(*cause),
                count: *count,
            })
            .collect(),
        write_error: outcome.write_error.clone(),
        warnings: outcome.warnings.iter().map(|w| w.to_string()).collect(),
    };
    serde_json::to_string(&summary).unwrap_or_default()
}

fn program_name(options: &Options) -> String {
    let program = options.command.first().cloned().unwrap_or_default();
    std::path::Path::new(&program)
        .file_name()
        .unwrap_or(&program)
        .to_string_lossy()
        .into_owned()
}
