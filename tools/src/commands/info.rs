//! `stackbeat info`: what a trace says about itself, and whether its sums come out.

use std::collections::BTreeSet;
use std::fmt::Write;

use anyhow::Result;
use serde::Serialize;
use stackbeat_model::{Trace, conservation};

use crate::cli::InfoArgs;
use crate::render::text::table_layout::{Layout, indented};
use crate::render::text::tables::processes;
use crate::summary::cost::{Cost, cost};
use crate::summary::load::recording;
use crate::summary::metadata::Recording;
use crate::terminal::{self, Style, clean};
use crate::units::{self, plural};
use crate::{EXIT_NEGATIVE, drop_causes};

/// Runs the command. With `--check`, a trace whose sums do not come out is a negative answer.
pub(crate) fn run(args: &InfoArgs) -> Result<u8> {
    let trace = Trace::open(&args.file)?;
    let info = collect(&trace, args.check)?;
    if args.json {
        terminal::print_json(&info)?;
    } else {
        terminal::print(&text(&info, args, terminal::width(), Style::stdout()))?;
    }
    Ok(if info.is_sound() { 0 } else { EXIT_NEGATIVE })
}

#[derive(Debug, Serialize)]
struct Info {
    schema: &'static str,
    format_version: u32,
    bytes: u64,
    /// Of these, what samples take.
    sample_bytes: u64,
    recording: Recording,
    working_directory: String,
    session_id: String,
    config: Config,
    counts: Counts,
    processes: Vec<ProcessInfo>,
    modules: Vec<ModuleInfo>,
    drops: Vec<DropsInfo>,
    recorder_figures: Vec<Figure>,
    /// Modules whose functions have no names, and why.
    without_names: Vec<String>,
    /// The intervals that were in force, in order of time.
    intervals: Vec<IntervalInfo>,
    /// `None` in traces that do not say it.
    cost: Option<Cost>,
    /// Parts of the file that could not be read.
    damage: Vec<String>,
    /// Only with `--check`.
    #[serde(skip_serializing_if = "Option::is_none")]
    violations: Option<Vec<String>>,
}

impl Info {
    fn is_sound(&self) -> bool {
        self.violations
            .as_ref()
            .is_none_or(|v| v.is_empty() && self.damage.is_empty())
    }
}

#[derive(Debug, Serialize)]
struct Config {
    depth_limit: u32,
    /// Stacks of tasks have what awaits them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    await_chains: bool,
    buffer_bytes: u64,
    mode: &'static str,
    follow_children: bool,
    /// What says when threads are sampled: `tick`, `timer`, `kernel`, or `auto` (events or ticks, then
    /// timers).
    clock: &'static str,
    /// Why it is not the kernel's clock, where that was wanted; empty otherwise.
    no_kernel_clock: String,
    /// With `auto`: processes begin with events, and not on ticks.
    begins_with_events: bool,
    /// Threads that run were suspended, not sent signals.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    by_suspension: bool,
    /// Records lay in memory without a file.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    in_memory: bool,
}

#[derive(Debug, Serialize)]
struct Counts {
    /// One that executed other programs counts once, and so does its main thread.
    processes: usize,
    /// The programs that they executed.
    programs: usize,
    threads: usize,
    modules: usize,
    functions: usize,
    stacks: u32,
    samples: u64,
}

#[derive(Debug, Serialize)]
struct ProcessInfo {
    upid: u32,
    pid: u32,
    name: String,
    capabilities: Vec<String>,
}

#[derive(Debug, Serialize)]
struct ModuleInfo {
    upid: u32,
    path: String,
    build_id: String,
    start: u64,
    end: u64,
}

#[derive(Debug, Serialize)]
struct DropsInfo {
    cause: &'static str,
    count: u64,
    description: &'static str,
}

#[derive(Debug, Serialize)]
struct IntervalInfo {
    /// Since the recording's start.
    at_ns: u64,
    /// `threads`, `main threads`, `thread` for one that has its own, or `process` for one whose threads have
    /// timers.
    of: &'static str,
    /// 0 unless `of` is `process`.
    upid: u32,
    /// 0 unless `of` is `thread`.
    utid: u32,
    /// 0: from here on that of its kind.
    interval_ns: u64,
}

#[derive(Debug, Serialize)]
struct Figure {
    name: String,
    value: u64,
}

fn collect(trace: &Trace, check: bool) -> Result<Info> {
    let header = trace.header();
    let config = trace.config();
    let mut drops: Vec<DropsInfo> = Vec::new();
    for dropped in trace.drops().iter().filter(|l| l.count > 0) {
        let cause = drop_causes::from_number(dropped.cause);
        match drops
            .iter_mut()
            .find(|l| l.cause == drop_causes::name(cause))
        {
            Some(sum) => sum.count = sum.count.saturating_add(dropped.count),
            None => drops.push(DropsInfo {
                cause: drop_causes::name(cause),
                count: dropped.count,
                description: drop_causes::describe(cause),
            }),
        }
    }
    let violations = match check {
        true => Some(conservation(trace)?.iter().map(|v| v.to_string()).collect()),
        false => None,
    };
    Ok(Info {
        schema: "stackbeat.info.v1",
        format_version: header.format_version,
        bytes: trace.bytes(),
        sample_bytes: trace.sample_bytes(),
        recording: recording(trace),
        working_directory: header.working_directory.clone(),
        session_id: hex(&header.session_id),
        config: Config {
            depth_limit: config.depth_limit,
            await_chains: config.await_chains,
            buffer_bytes: config.buffer_bytes,
            mode: match config.mode {
                1 => "ring",
                2 => "startup",
                _ => "endless",
            },
            follow_children: config.follow_children,
            clock: match config.sampling_clock() {
                stackbeat_proto::v1::config::SamplingClock::Tick => "tick",
                stackbeat_proto::v1::config::SamplingClock::Kernel => "kernel",
                stackbeat_proto::v1::config::SamplingClock::Timer => "timer",
                stackbeat_proto::v1::config::SamplingClock::Auto => "auto",
            },
            no_kernel_clock: config.no_kernel_clock.clone(),
            begins_with_events: config.begins_with_events,
            by_suspension: config.by_suspension,
            in_memory: config.in_memory,
        },
        counts: Counts {
            processes: trace.process_count(),
            programs: trace.processes().len(),
            threads: trace.thread_count(),
            modules: trace.modules().len(),
            functions: trace.functions().len(),
            stacks: trace.stack_count(),
            samples: trace.samples(),
        },
        processes: trace
            .processes()
            .iter()
            .map(|p| ProcessInfo {
                upid: p.upid.0,
                pid: p.pid.0,
                name: p.name(),
                capabilities: p.capabilities.clone(),
            })
            .collect(),
        modules: trace
            .modules()
            .iter()
            .map(|m| ModuleInfo {
                upid: trace.process(m.process).upid.0,
                path: m.path.clone(),
                build_id: hex(&m.build_id),
                start: m.start,
                end: m.end,
            })
            .collect(),
        drops,
        recorder_figures: trace
            .figures()
            .iter()
            .map(|f| Figure {
                name: f.name.clone(),
                value: f.value,
            })
            .collect(),
        without_names: (trace.footer()).map_or_else(Vec::new, |f| f.without_names.clone()),
        intervals: intervals(trace),
        cost: cost(trace.figures().iter().map(|f| (f.name.as_str(), f.value))),
        damage: trace
            .damage()
            .iter()
            .map(|d| format!("near byte {}: {}", d.offset, d.what))
            .collect(),
        violations,
    })
}

fn intervals(trace: &Trace) -> Vec<IntervalInfo> {
    let settings = trace.settings();
    let info = |of, utid| {
        move |(at, interval_ns): &(u64, u64)| IntervalInfo {
            at_ns: at.saturating_sub(trace.start_ns()),
            of,
            upid: 0,
            utid,
            interval_ns: *interval_ns,
        }
    };
    let mut all: Vec<IntervalInfo> = Vec::new();
    all.extend(settings.intervals(false).iter().map(info("threads", 0)));
    all.extend(settings.intervals(true).iter().map(info("main threads", 0)));
    for (utid, list) in settings.own_intervals() {
        all.extend(list.iter().map(info("thread", utid.0)));
    }
    for (upid, list) in settings.process_intervals() {
        let of_process = |(at, interval_ns): &(u64, u64)| IntervalInfo {
            upid: upid.0,
            ..info("process", 0)(&(*at, *interval_ns))
        };
        all.extend(list.iter().map(of_process));
    }
    all.sort_by_key(|i| (i.at_ns, i.upid, i.utid));
    all
}

/// How the budget has moved the intervals.
fn moved(intervals: &[IntervalInfo]) -> Vec<String> {
    let mut lines = Vec::new();
    for of in ["threads", "main threads"] {
        let list: Vec<u64> = intervals
            .iter()
            .filter(|i| i.of == of)
            .map(|i| i.interval_ns)
            .collect();
        if let [_, .., last] = list.as_slice() {
            lines.push(format!(
                "of {of} changed {}, {} to {}, at last {}",
                plural(list.len() as u64 - 1, "time", "times"),
                units::duration(list.iter().copied().min().unwrap_or(0)),
                units::duration(list.iter().copied().max().unwrap_or(0)),
                units::duration(*last)
            ));
        }
    }
    let own = intervals.iter().filter(|i| i.of == "thread");
    let own: BTreeSet<u32> = own.map(|i| i.utid).collect();
    if !own.is_empty() {
        lines.push(format!(
            "longer for {} with expensive stacks",
            plural(own.len() as u64, "thread", "threads")
        ));
    }
    let timed = || intervals.iter().filter(|i| i.of == "process");
    if let Some(longest_ns) = timed().map(|i| i.interval_ns).max() {
        let processes: BTreeSet<u32> = timed().map(|i| i.upid).collect();
        lines.push(format!(
            "{} by timers, in {}",
            units::duration(longest_ns),
            plural(processes.len() as u64, "process", "processes")
        ));
    }
    lines
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn text(info: &Info, args: &InfoArgs, width: Option<usize>, style: Style) -> String {
    let mut lines = Lines {
        out: String::new(),
        layout: Layout::new(width, style, usize::MAX),
    };
    lines.recording(info);
    if args.verbose {
        lines.settings(info);
        lines.recorder(info);
    }
    if args.verbose || args.modules {
        lines.modules(info, args.modules);
    }
    lines.findings(info);
    if !args.verbose {
        let more = "(settings, processor, hooks and the recorder's figures: --verbose)";
        lines.styled_line("", more, Style::dim);
    }
    lines.out
}

/// Names and values, one pair a line.
struct Lines {
    out: String,
    layout: Layout<'static>,
}

/// Columns of names, and those before values.
const NAME: usize = 14;
const VALUE_AT: usize = NAME + 2;

impl Lines {
    /// The value may come from a recorded program.
    fn line(&mut self, name: &str, value: String) {
        self.styled_line(name, &value, |_, line| line.to_owned());
    }

    /// Long values go on below.
    fn styled_line(&mut self, name: &str, value: &str, style: impl Fn(Style, &str) -> String) {
        let width = self.layout.width;
        let layout = Layout {
            width: width.map(|columns| columns.saturating_sub(VALUE_AT)),
            ..self.layout
        };
        let mut text = String::new();
        if !value.is_empty() {
            indented(&mut text, &layout, 0, &clean(value), style);
        }
        for (i, line) in text.lines().enumerate() {
            let name = if i == 0 { name } else { "" };
            let name = layout.style.dim(&format!("{name:>NAME$}"));
            let _ = writeln!(self.out, "{name}  {line}");
        }
    }

    /// What was recorded, what it cost, and whether all of it is there.
    fn recording(&mut self, info: &Info) {
        let r = &info.recording;
        self.line("command", r.command.join(" "));
        self.line("started", utc(r.started_unix_ns));
        self.line("duration", units::duration(r.duration_ns));
        match r.is_complete() {
            true => self.line("state", r.state.clone()),
            false => self.styled_line("state", &r.state, Style::warning),
        }
        if let Some(unrecorded) = r.unrecorded_text() {
            self.styled_line("not recorded", &unrecorded, Style::warning);
        }
        self.line(
            "file",
            format!(
                "{}, {}, format {}, written by stackbeat {}",
                r.trace,
                units::bytes(info.bytes),
                info.format_version,
                r.stackbeat_version
            ),
        );
        self.line("label", r.label.clone());
        self.line("commit", r.commit.clone());
        self.line(
            "interval",
            match r.main_interval_ns == r.interval_ns {
                true => units::duration(r.interval_ns),
                false => format!(
                    "{}, main threads {}",
                    units::duration(r.interval_ns),
                    units::duration(r.main_interval_ns)
                ),
            },
        );
        for moved in moved(&info.intervals) {
            self.line("interval", moved);
        }
        if let Some(ns) = r.counts_end_ns {
            self.line(
                "allocations",
                format!(
                    "counted up to {}: their hooks were more than the budget could hold",
                    units::duration(ns)
                ),
            );
        }
        if let Some(cost) = &info.cost {
            let after = match cost.after_cpu_ns {
                0 => String::new(),
                ns => format!(
                    "; {} of CPU time after its end, for names",
                    units::duration(ns)
                ),
            };
            self.line(
                "cost",
                format!(
                    "{:.2} % of the program's CPU time: captures {:.2}, hooks about {:.2}, recorder {:.2}{}",
                    cost.percent,
                    cost.captures_percent,
                    cost.hooks_percent,
                    cost.recorder_percent,
                    after
                ),
            );
        }
        let c = &info.counts;
        self.line(
            "contents",
            format!(
                "{}, {}, {} samples of all kinds, {} stacks, {} functions, {} modules",
                processes(c.processes, c.programs),
                plural(c.threads as u64, "thread", "threads"),
                c.samples,
                c.stacks,
                c.functions,
                c.modules
            ),
        );
        self.line(
            "records",
            format!(
                "{} written = {} in the trace + {} lost",
                r.records_written, r.records_stored, r.records_lost
            ),
        );
        for dropped in &info.drops {
            let what = drop_causes::counted(dropped.count, dropped.description);
            self.line("loss", format!("{} {what}", dropped.count));
        }
    }

    /// Where it was recorded, and how.
    fn settings(&mut self, info: &Info) {
        let r = &info.recording;
        self.line("in", info.working_directory.clone());
        self.line("host", format!("{} · {} · {}", r.hostname, r.os, r.machine));
        self.line("processor", format!("{} × {}", r.cpus, r.cpu_model));
        self.line("probes", r.probes.join(", "));
        self.line(
            "settings",
            format!(
                "depth {}{}, buffer {}, {}, children {}, sampled by {}",
                info.config.depth_limit,
                if info.config.await_chains {
                    ", await chains"
                } else {
                    ""
                },
                units::bytes(info.config.buffer_bytes),
                info.config.mode,
                if info.config.follow_children {
                    "followed"
                } else {
                    "not followed"
                },
                match info.config.clock {
                    "kernel" => "the kernel's clock",
                    "timer" => "timers of their CPU time",
                    _ if info.config.by_suspension => "ticks, threads that run are suspended",
                    "auto" if info.config.begins_with_events =>
                        "events, and timers of their CPU time in processes that computed for longer than a second",
                    "auto" =>
                        "ticks, and timers of their CPU time in processes that computed for longer than a second",
                    _ => "ticks",
                }
            ),
        );
        if info.config.in_memory {
            self.line(
                "records",
                "in memory without a file: a killed app leaves what is in this trace, and no more"
                    .to_owned(),
            );
        }
        if !info.config.no_kernel_clock.is_empty() {
            let why_not = format!("not to be had: {}", info.config.no_kernel_clock);
            self.line("other clock", why_not);
        }
        if info.counts.samples > 0 {
            self.line(
                "per sample",
                format!(
                    "{:.1} bytes; the rest of the file is names, stacks and threads: {}",
                    info.sample_bytes as f64 / info.counts.samples as f64,
                    units::bytes(info.bytes.saturating_sub(info.sample_bytes))
                ),
            );
        }
    }

    /// What the recorder measured about itself, and the hooks that worked.
    fn recorder(&mut self, info: &Info) {
        for figure in &info.recorder_figures {
            let value = match figure.name.ends_with("_ns") {
                true => units::duration(figure.value),
                false => figure.value.to_string(),
            };
            self.line("recorder", format!("{} {value}", figure.name));
        }
        let is_of_hooks = |text: &&String| !text.starts_with("sandbox: ");
        let hooks = (info.processes.iter())
            .map(|p| Vec::from_iter(p.capabilities.iter().filter(is_of_hooks).cloned()))
            .find(|hooks| !hooks.is_empty());
        for (i, line) in hooks.unwrap_or_default().into_iter().enumerate() {
            self.line(if i == 0 { "hooks" } else { "" }, line);
        }
    }

    fn modules(&mut self, info: &Info, all: bool) {
        const SHOWN: usize = 12;
        let mut paths: Vec<&str> = info.modules.iter().map(|m| m.path.as_str()).collect();
        paths.sort_unstable();
        paths.dedup();
        let shown = if all { paths.len() } else { SHOWN };
        for path in paths.iter().take(shown) {
            self.line("module", (*path).to_owned());
        }
        if paths.len() > shown {
            self.line("", format!("and {} more (--modules)", paths.len() - shown));
        }
    }

    /// What is not as it should be.
    fn findings(&mut self, info: &Info) {
        // Processes of one program say the same.
        let mut said: Vec<String> = (info.processes.iter())
            .flat_map(|p| p.capabilities.iter().map(move |text| (p, text)))
            .filter_map(|(p, text)| {
                Some(format!("{}: {}", p.name, text.strip_prefix("sandbox: ")?))
            })
            .collect();
        said.sort_unstable();
        said.dedup();
        for text in said {
            self.line("sandbox", text);
        }
        for reason in &info.without_names {
            self.line("no names", reason.clone());
        }
        for damage in &info.damage {
            self.styled_line("damage", damage, Style::bad);
        }
        match &info.violations {
            Some(violations) if violations.is_empty() => {
                self.styled_line("check", "every thread's sums come out", Style::good);
            }
            Some(violations) => {
                for violation in violations {
                    self.styled_line("check", violation, Style::bad);
                }
            }
            None => {}
        }
    }
}

/// `2026-11-21 08:00:00 UTC`.
fn utc(unix_ns: u64) -> String {
    if unix_ns == 0 {
        return String::new();
    }
    let seconds = unix_ns / 1_000_000_000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days to a date, after Howard Hinnant's `civil_from_days`
    // (https://howardhinnant.github.io/date_algorithms.html).
    let z = days + 719_468;
    let era = z / 146_097;
    let day_of_era = z % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC",
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::text_width;
    use crate::testing::{self, golden};

    /// What is said of the made-up program's trace.
    fn made_up() -> Info {
        let metadata = testing::report().metadata;
        let process = |name: &str, upid, said: &[&str]| ProcessInfo {
            upid,
            pid: 1000 + upid,
            name: name.to_owned(),
            capabilities: said.iter().map(|text| (*text).to_owned()).collect(),
        };
        let module = |path: &str| ModuleInfo {
            upid: 1,
            path: path.to_owned(),
            build_id: "d1b25b63d2f0cbf1".to_owned(),
            start: 0x1000,
            end: 0x2000,
        };
        let interval = |of, at_ns, interval_ns| IntervalInfo {
            at_ns,
            of,
            upid: u32::from(of == "process"),
            utid: u32::from(of == "thread"),
            interval_ns,
        };
        let figures = [
            ("captures", 5210),
            ("drain_cpu_ns", 8_300_000),
            ("cost_of_ns", 912_000_000),
        ];
        let cost = [
            ("cost_of_ns", 912_000_000),
            ("cost_ns", 28_000_000),
            ("cost_captures_ns", 16_000_000),
            ("cost_hooks_ns", 3_000_000),
            ("after_cpu_ns", 70_000_000),
        ];
        Info {
            schema: "stackbeat.info.v1",
            format_version: 1,
            bytes: 31_400,
            sample_bytes: 9_100,
            working_directory: "/home/me/shop".into(),
            session_id: "00".into(),
            config: Config {
                depth_limit: 256,
                await_chains: false,
                buffer_bytes: 8 << 20,
                mode: "endless",
                follow_children: true,
                clock: "auto",
                no_kernel_clock:
                    "perf_event_open: Operation not permitted (perf_event_paranoid is 4)".into(),
                begins_with_events: false,
                by_suspension: false,
                in_memory: false,
            },
            counts: Counts {
                processes: 2,
                programs: 2,
                threads: 4,
                modules: 3,
                functions: metadata.functions.len(),
                stacks: 310,
                samples: 997,
            },
            processes: vec![
                process(
                    "shop",
                    1,
                    &[
                        "219 of 220 hooks in place",
                        "not in this libc: posix_spawn_np",
                    ],
                ),
                process(
                    "sh",
                    2,
                    &[
                        "sandbox: getsockname is refused, so wakers behind descriptors are not known",
                    ],
                ),
            ],
            modules: vec![
                module("/home/me/shop/target/release/shop"),
                module("/usr/lib/x86_64-linux-gnu/libc.so.6"),
            ],
            drops: metadata
                .drops
                .iter()
                .map(|row| DropsInfo {
                    cause: row.cause,
                    count: row.count,
                    description: row.description,
                })
                .collect(),
            recorder_figures: figures
                .map(|(name, value)| Figure {
                    name: name.to_owned(),
                    value,
                })
                .into(),
            without_names: vec!["/usr/bin/dash: no symbols; install dash-dbgsym".into()],
            intervals: vec![
                interval("threads", 0, 1_000_000),
                interval("threads", 500_000_000, 2_000_000),
                interval("threads", 700_000_000, 1_500_000),
                interval("thread", 700_000_000, 4_000_000),
                interval("process", 700_000_000, 4_000_000),
            ],
            cost: super::cost(cost.into_iter()),
            damage: vec![
                "near byte 20417: a packet of 3000 bytes ends behind the file's end".into(),
            ],
            violations: Some(Vec::new()),
            recording: metadata.recording,
        }
    }

    #[test]
    fn what_is_said_of_a_trace_fits_its_terminal() {
        let info = made_up();
        for (name, verbose) in [("info", false), ("info-verbose", true)] {
            let args = InfoArgs {
                file: "shop.beat".into(),
                check: true,
                verbose,
                modules: false,
                json: false,
            };
            for columns in [80, 140] {
                let text = text(&info, &args, Some(columns), Style::default());
                let widest = text.lines().map(text_width).max();
                assert!(widest <= Some(columns), "{text}");
                golden(&format!("{name}-{columns}.txt"), &text);
            }
        }
    }

    #[test]
    fn a_trace_forges_no_lines_and_no_colours() {
        let mut lines = Lines {
            out: String::new(),
            layout: Layout::new(None, Style::default(), 1),
        };
        lines.line("label", "a\n         state  \x1b[32mcomplete".to_owned());
        assert_eq!(
            lines.out,
            "         label  a          state  \u{fffd}[32mcomplete\n"
        );
    }

    #[test]
    fn long_values_go_on_below() {
        let mut lines = Lines {
            out: String::new(),
            layout: Layout::new(Some(36), Style::default(), 1),
        };
        lines.line(
            "command",
            "./shop --local --name 店の名前 --quiet".to_owned(),
        );
        lines.styled_line("state", "cut", Style::warning);
        let text = "       command  ./shop --local\n\
             \x20               --name 店の名前\n\
             \x20               --quiet\n\
             \x20        state  cut\n";
        assert_eq!(lines.out, text);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        // `date -u -d @N`.
        for (seconds, text) in [
            (1, "1970-01-01 00:00:01 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_709_164_799, "2024-02-28 23:59:59 UTC"),
            (1_735_689_600, "2025-01-01 00:00:00 UTC"),
            (4_102_444_799, "2099-12-31 23:59:59 UTC"),
        ] {
            assert_eq!(utc(seconds * 1_000_000_000), text);
        }
    }
}
