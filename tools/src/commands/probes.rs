//! `stackbeat probes`: what can be hooked, and what of it a program calls.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Serialize;
use stackbeat_collector::hooked_calls::{self, Function};
use stackbeat_collector::session::Options;
use stackbeat_core::ids::Utid;
use stackbeat_core::probe::{Category, Cause, Probe};
use stackbeat_gate::comparable_names;
use stackbeat_model::Trace;

use crate::cli::local::ProbesArgs;
use crate::commands::record;
use crate::table::{Column, Table};
use crate::terminal::{self, Style};
use crate::{agent_library, units};

/// Runs the command.
pub(crate) fn run(args: &ProbesArgs) -> Result<u8> {
    let library = agent_library::locate(None)?;
    if !args.count {
        list(&hooked_calls::of_agent(&library)?, args.json)?;
        return Ok(0);
    }
    let (counted, wait_status) = Counted::run(&args.command, library, !args.no_children)?;
    match args.json {
        true => terminal::say(&terminal::json_line(&counted)?),
        false => terminal::say(&counted.text(args.top)),
    }
    Ok(record::exit_code(wait_status))
}

/// A hooked function, for JSON.
#[derive(Debug, Serialize)]
struct Listed<'a> {
    name: &'a str,
    probe: &'static str,
    group: &'static str,
    /// What a thread in it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_for: Option<&'static str>,
}

fn list(functions: &[Function], json: bool) -> Result<()> {
    let waits_for = |probe: Probe| match probe.cause() {
        Cause::None => None,
        cause => Some(cause.name()),
    };
    let mut functions: Vec<&Function> = functions.iter().collect();
    functions.sort_by_key(|f| (f.probe as u8, &f.name));
    if json {
        let listed: Vec<_> = functions
            .iter()
            .map(|f| Listed {
                name: &f.name,
                probe: f.probe.name(),
                group: f.probe.category().name(),
                waits_for: waits_for(f.probe),
            })
            .collect();
        return terminal::print_json(&serde_json::json!({
            "schema": "stackbeat.probes.v1",
            "functions": listed,
        }));
    }
    let mut table = Table::new(vec![
        Column::text("GROUP", 0),
        Column::text("PROBE", 0),
        Column::text("WAITS FOR", 1),
        Column::list("FUNCTIONS", 0),
    ]);
    for category in Category::SELECTABLE {
        for probe in Probe::ALL.iter().filter(|p| p.category() == category) {
            let names = functions.iter().filter(|f| f.probe == *probe);
            let names: Vec<&str> = names.map(|f| f.name.as_str()).collect();
            if !names.is_empty() {
                table.row(vec![
                    category.name().to_owned(),
                    probe.name().to_owned(),
                    waits_for(*probe).unwrap_or_default().to_owned(),
                    names.join(" "),
                ]);
            }
        }
    }
    terminal::print(&table.render(terminal::width(), Style::stdout()))
}

/// What a program has called.
#[derive(Debug, Serialize)]
pub(crate) struct Counted {
    schema: &'static str,
    duration_s: f64,
    calls: u64,
    functions: Vec<Calls>,
}

#[derive(Debug, Serialize)]
struct Calls {
    name: String,
    probe: &'static str,
    group: &'static str,
    calls: u64,
    per_second: f64,
    /// By the roles of the threads, most first.
    roles: Vec<RoleCalls>,
}

#[derive(Debug, Serialize)]
struct RoleCalls {
    role: String,
    calls: u64,
}

impl Counted {
    /// Runs a program and counts; gives its status besides, as `wait` has it.
    pub(crate) fn run(
        command: &[OsString],
        library: PathBuf,
        follow_children: bool,
    ) -> Result<(Counted, i32)> {
        let folder = tempfile::tempdir().context("a folder for the counts")?;
        let output = folder.path().join("calls.beat");
        let mut options = Options::new(command.to_vec(), library, output);
        options.count_calls = true;
        options.follow_children = follow_children;
        options.interrupt_running = false;
        options.counters_ns = None;
        options.symbolize = false;
        let outcome = record::record(&options, true)?;
        for warning in &outcome.warnings {
            terminal::warn(&warning.to_string());
        }
        if let Some(error) = &outcome.write_error {
            anyhow::bail!("the counts could not be kept: {error}");
        }
        let trace = Trace::open(&options.output)?;
        let counted = Counted::read(&trace, outcome.duration.as_secs_f64());
        Ok((counted, outcome.wait_status))
    }

    /// Whether a function was called.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.functions.iter().any(|f| f.name == name)
    }

    fn read(trace: &Trace, duration_s: f64) -> Counted {
        let mut by_function: BTreeMap<(u32, &str), BTreeMap<String, u64>> = BTreeMap::new();
        for counts in trace.call_counts() {
            let role = role(trace, counts.utid);
            let functions = counts.function.iter().zip(&counts.probe);
            for ((name, probe), calls) in functions.zip(&counts.calls) {
                let roles = by_function.entry((*probe, name)).or_default();
                let sum = roles.entry(role.clone()).or_default();
                *sum = sum.saturating_add(*calls);
            }
        }
        let mut functions: Vec<Calls> = by_function
            .into_iter()
            .map(|((probe, name), roles)| {
                let probe = u8::try_from(probe).ok().and_then(Probe::from_number);
                let calls = roles.values().fold(0, |sum: u64, c| sum.saturating_add(*c));
                let mut roles: Vec<_> = roles
                    .into_iter()
                    .map(|(role, calls)| RoleCalls { role, calls })
                    .collect();
                roles.sort_by_key(|r| std::cmp::Reverse(r.calls));
                Calls {
                    name: name.to_owned(),
                    probe: probe.map_or("", Probe::name),
                    group: probe.map_or("", |p| p.category().name()),
                    calls,
                    per_second: calls as f64 / duration_s.max(1e-9),
                    roles,
                }
            })
            .collect();
        functions.sort_by_key(|f| std::cmp::Reverse(f.calls));
        Counted {
            schema: "stackbeat.calls.v1",
            duration_s,
            calls: functions
                .iter()
                .fold(0, |sum, f| sum.saturating_add(f.calls)),
            functions,
        }
    }

    fn text(&self, top: usize) -> String {
        let mut table = Table::new(vec![
            Column::number("CALLS", 0),
            Column::number("PER SECOND", 1),
            Column::text("GROUP", 0),
            Column::text("FUNCTION", 0),
            Column::list("BY", 2),
        ]);
        let shown = match top {
            0 => self.functions.len(),
            top => top,
        };
        for function in self.functions.iter().take(shown) {
            let roles = function.roles.iter();
            let roles = roles.map(|r| format!("{} {}", r.role, units::count(r.calls)));
            table.row(vec![
                units::count(function.calls),
                units::count(function.per_second as u64),
                function.group.to_owned(),
                function.name.clone(),
                roles.collect::<Vec<_>>().join(", "),
            ]);
        }
        let mut groups: BTreeMap<&str, u64> = BTreeMap::new();
        for function in &self.functions {
            *groups.entry(function.group).or_default() += function.calls;
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by_key(|(_, calls)| std::cmp::Reverse(*calls));
        let groups: Vec<_> = groups
            .iter()
            .map(|(group, calls)| format!("{group} {}", units::percent(*calls, self.calls)))
            .collect();
        let mut text = format!(
            "{} calls of {} hooked functions in {}: {}\n",
            units::count(self.calls),
            self.functions.len(),
            units::duration((self.duration_s * 1e9) as u64),
            groups.join(", ")
        );
        text.push_str(&table.render(terminal::stderr_width(), Style::stderr()));
        if let Some(more) = self.functions.len().checked_sub(shown).filter(|n| *n > 0) {
            text.push_str(&format!("and {more} more functions: --top 0\n"));
        }
        text
    }
}

/// What a thread is to its program: its main thread, or those of a name without numbers.
fn role(trace: &Trace, utid: u32) -> String {
    let Some(thread) = trace.threads().iter().find(|t| t.utid == Utid(utid)) else {
        return "others".to_owned();
    };
    let process = &trace.processes()[thread.process.0 as usize];
    let role = match thread.name.as_str() {
        _ if thread.is_main => "main".to_owned(),
        "" => "thread".to_owned(),
        name if name == process.name() => "thread".to_owned(),
        name => comparable_names::role(name),
    };
    format!("{}/{role}", process.name())
}
