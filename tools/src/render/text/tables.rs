//! The report as tables for a terminal.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt::Write;

use clap::ValueEnum;
use stackbeat_core::probe::Cause;
use stackbeat_gate::comparable_names;
use stackbeat_model::ThreadIndex;
use stackbeat_proto::v1::drops;

use super::{counters, deadlocks, events, evidence, system_calls, wait_pairs};
use crate::drop_causes;
use crate::render::text::section::{Section, Shown};
use crate::render::text::table_layout::{
    Layout, Others, add_table, indented, more, sentences, title, title_of_table,
};
use crate::summary::call_tree::{Label, Leaf, Profile, ThreadTime};
use crate::summary::evidence::{effective_samples, interval};
use crate::summary::functions::{FunctionRow, Own, blocking_sites, functions, spent_by};
use crate::summary::helpers;
use crate::summary::idle;
use crate::summary::labels::{alike, function_text, gap_cpu_ns, label_text};
use crate::summary::load::Report;
use crate::summary::metadata::Metadata;
use crate::summary::process_waits;
use crate::summary::roles;
use crate::summary::sort_key::SortKey;
use crate::summary::system_calls::Counted;
use crate::summary::told_apart;
use crate::summary::verdict::verdict;
use crate::table::{Column, Table, shorten_list, text_width};
use crate::terminal::{Style, clean};
use crate::units::{bytes, count, duration, percent, plural, share};

/// Lines of the first screen.
const SCREEN: usize = 40;

/// Which tables of the first screen become shorter where it would be longer than that, in this order, and how
/// many rows they keep.
const GIVE_WAY: [(Section, usize); 5] = [
    (Section::Blocking, 3),
    (Section::Threads, 3),
    (Section::Losses, 1),
    (Section::Functions, 5),
    (Section::Losses, 0),
];

/// A section that is shown.
struct Part {
    section: Section,
    rows: usize,
    text: String,
    /// Titles of the columns that were left out.
    no_room: BTreeSet<&'static str>,
}

/// The report, or what of it is shown. `top`: lines of each table, where that was asked for. `notes` follow
/// it.
pub(crate) fn report(
    report: &Report,
    wanted: &dyn Fn(ThreadIndex) -> bool,
    sort: SortKey,
    shown: &Shown,
    top: Option<usize>,
    layout: &Layout,
    notes: &[String],
) -> String {
    let Report {
        metadata, profile, ..
    } = report;
    let mut head = heading(metadata, profile, layout);
    if !matches!(shown, Shown::Only(_))
        && let Some(verdict) = verdict(report, wanted)
    {
        sentences(&mut head, layout, &verdict, Style::bold);
        if let Some(text) = process_waits::text(report, wanted) {
            sentences(&mut head, layout, &text, |_, line| line.to_owned());
        }
    }
    let part = |section: Section, rows: usize| {
        let no_room = RefCell::default();
        let layout = Layout {
            top: rows,
            is_exact: *shown != Shown::Screen,
            others: match (shown, top) {
                (Shown::Screen, None) => Others::InTitle,
                _ => layout.others,
            },
            no_room: Some(&no_room),
            ..*layout
        };
        let mut text = section_text(section, report, wanted, sort, &layout);
        if text.is_empty() && matches!(shown, Shown::Only(_)) {
            text = format!("\n{}: none\n", section.name());
        }
        Part {
            section,
            rows,
            text,
            no_room: no_room.into_inner(),
        }
    };
    let (mut parts, mut left_out) = (Vec::new(), Vec::new());
    for section in Section::value_variants() {
        match shown.lines(*section, top) {
            Some(rows) => parts.push(part(*section, rows)),
            None if *shown == Shown::Screen && !part(*section, 1).text.is_empty() => {
                left_out.push(section.name());
            }
            None => {}
        }
    }
    let whole = |parts: &[Part]| {
        let texts = parts.iter().map(|part| &*part.text);
        let text: String = [&*head].into_iter().chain(texts).collect();
        text + &foot(parts, &left_out, shown, layout, notes)
    };
    let mut text = whole(&parts);
    if *shown != Shown::Screen || top.is_some() {
        return text;
    }
    for (section, least) in GIVE_WAY {
        let Some(i) = parts.iter().position(|part| part.section == section) else {
            continue;
        };
        for rows in (least..parts[i].rows).rev() {
            if text.lines().count() <= SCREEN {
                return text;
            }
            let shorter = part(section, rows);
            // In place of the first row that goes a line says how many there are.
            if shorter.text.lines().count() < parts[i].text.lines().count() {
                parts[i] = shorter;
                text = whole(&parts);
            }
        }
    }
    text
}

/// What stands below the tables: what else there is to see.
fn foot(
    parts: &[Part],
    left_out: &[&str],
    shown: &Shown,
    layout: &Layout,
    notes: &[String],
) -> String {
    let mut out = String::new();
    let no_room: BTreeSet<_> = parts
        .iter()
        .flat_map(|part| &part.no_room)
        .copied()
        .collect();
    if !left_out.is_empty() || !no_room.is_empty() {
        out.push('\n');
    }
    if !left_out.is_empty() {
        let names = left_out.join(", ");
        let text = format!("More with --section NAME: {names}. All: --all --top 0.");
        sentences(&mut out, layout, &text, Style::dim);
    }
    if !no_room.is_empty() {
        let mut titles = Vec::from_iter(no_room).join(", ");
        let (before, after) = ("No room for these columns: ", ". COLUMNS=200 makes room.");
        if let (Shown::Screen, Some(columns)) = (shown, layout.width) {
            titles = shorten_list(&titles, columns.saturating_sub(before.len() + after.len()));
        }
        let text = format!("{before}{titles}{after}");
        sentences(&mut out, layout, &text, Style::dim);
    }
    for note in notes {
        sentences(&mut out, layout, note, Style::warning);
    }
    out
}

/// A section; empty where there is nothing to say.
pub(crate) fn section_text(
    section: Section,
    report: &Report,
    wanted: &dyn Fn(ThreadIndex) -> bool,
    sort: SortKey,
    layout: &Layout,
) -> String {
    let Report {
        metadata, profile, ..
    } = report;
    match section {
        Section::Deadlocks => deadlocks::text(&report.deadlocks, metadata, profile, layout),
        Section::Threads => threads(metadata, profile, wanted, layout),
        Section::Functions => function_table(metadata, profile, wanted, sort, layout),
        Section::Blocking => site_table(report, wanted, layout),
        Section::Waits => wait_pairs::table(report, wanted, layout),
        Section::Calls => {
            let mut out = system_calls::table(metadata, wanted, layout);
            for what in [Counted::Calls, Counted::Bytes, Counted::WakeUps] {
                let calls = &report.calls;
                out.push_str(&system_calls::site_table(
                    calls, what, metadata, profile, wanted, layout,
                ));
            }
            out
        }
        Section::Scopes => counters::scope_table(&metadata.scopes, layout),
        Section::Counters => {
            let processes: Vec<_> = metadata
                .processes
                .iter()
                .map(|p| (p.upid, format!("{} {}", p.name, p.pid)))
                .collect();
            counters::counter_table(&metadata.counters, &processes, layout)
        }
        Section::Events => {
            let threads: Vec<_> = metadata
                .threads
                .iter()
                .map(|t| (t.utid, t.name.clone()))
                .collect();
            events::table(metadata, profile, &threads, layout)
        }
        Section::Losses => drops(metadata, layout),
    }
}

/// `3 processes`, and how many programs they executed where that is more.
pub(crate) fn processes(count: usize, programs: usize) -> String {
    let processes = plural(count as u64, "process", "processes");
    match programs > count {
        true => format!("{processes} ({programs} programs)"),
        false => processes,
    }
}

/// What was recorded, in two lines, and what was not.
pub(crate) fn heading(metadata: &Metadata, profile: &Profile, layout: &Layout) -> String {
    let r = &metadata.recording;
    let samples: u64 = profile
        .threads
        .iter()
        .map(|t| t.metrics.samples)
        .fold(0, u64::saturating_add);
    let mut out = String::new();
    let intervals = (metadata.events.iter()).filter(|event| event.kind == "interval");
    let longest_ns = intervals
        .filter_map(|event| event.value.try_into().ok())
        .max();
    let timers = (metadata.events.iter()).filter(|event| event.kind == "timers");
    let timer_ns = timers.filter_map(|event| event.value.try_into().ok()).max();
    let command = r.command.join(" ");
    let command = crate::table::shorten(clean(&command).trim_end(), layout.width.unwrap_or(200));
    let _ = writeln!(out, "{}", layout.style.bold(&command));
    let summary = format!(
        "{}, {}, {}, {}, every {}{}{}",
        duration(r.duration_ns),
        processes(metadata.process_count(), metadata.processes.len()),
        plural(metadata.thread_count() as u64, "thread", "threads"),
        plural(samples, "sample of time", "samples of time"),
        duration(r.interval_ns),
        match (timer_ns, longest_ns) {
            (Some(ns), _) => format!(", then {}", duration(ns)),
            (None, Some(_)) => " at first".to_owned(),
            (None, None) => String::new(),
        },
        match r.is_complete() {
            true => format!("; {}", r.state),
            false => String::new(),
        }
    );
    sentences(&mut out, layout, &summary, |_, line| line.to_owned());
    let mut warn = |text: &str| sentences(&mut out, layout, &clean(text), Style::warning);
    if !r.is_complete() {
        warn(&r.state);
    }
    if let Some(text) = without_evidence(metadata, profile) {
        warn(&text);
    }
    if let Some(longest_ns) = longest_ns.filter(|ns| *ns > r.interval_ns) {
        let left_out: u64 = (metadata.drops.iter())
            .filter(|dropped| dropped.cause == drop_causes::name(drops::Cause::WaitLeftOut))
            .map(|dropped| dropped.count)
            .fold(0, u64::saturating_add);
        let waits = match left_out {
            0 => String::new(),
            1 => ": 1 shorter wait is no record, but time without evidence".to_owned(),
            _ => format!(": {left_out} shorter waits are no records, but time without evidence"),
        };
        let text = format!(
            "the interval of some threads was up to {} for a while{waits}",
            duration(longest_ns)
        );
        warn(&text);
    }
    if let Some(unrecorded) = r.unrecorded_text() {
        warn(&format!("not recorded: {unrecorded}"));
    }
    out
}

/// Says that functions are known of a part of the time only, where that is worth a word.
fn without_evidence(metadata: &Metadata, profile: &Profile) -> Option<String> {
    let gap_ns = gap_cpu_ns(profile, &|_| true);
    let cpu_ns: u64 = profile
        .threads
        .iter()
        .map(|t| t.metrics.cpu_ns)
        .fold(0, u64::saturating_add);
    let is_worth_it = gap_ns as f64 > WORTH * cpu_ns as f64;
    let hooks_only = metadata.recording.hooks_only;
    let was_off = metadata.events.iter().any(|event| event.is_off);
    (is_worth_it || hooks_only).then(|| {
        let amount = format!("{} of {} of CPU time", duration(gap_ns), duration(cpu_ns));
        let why = if hooks_only {
            "threads that run were not interrupted (--no-interrupt), so only functions around hooks are known"
        } else if was_off {
            "capturing was off for a while (--start-disabled, `stackbeat stop`), until `stackbeat start`"
        } else if metadata.recording.records_lost == 0 {
            "threads ended before their first sample, or none could be taken"
        } else {
            "samples were lost there, or none could be taken, or threads ended before their first"
        };
        format!("no evidence for {amount}: {why}")
    })
}

/// Time without evidence is worth a word from this part on.
const WORTH: f64 = 0.05;

/// So many threads of one role have rows of their own: workers may differ in what they do.
const MOST_OF_ROLE: usize = 16;

fn threads(
    metadata: &Metadata,
    profile: &Profile,
    wanted: &dyn Fn(ThreadIndex) -> bool,
    layout: &Layout,
) -> String {
    let rows: Vec<(usize, ThreadTime)> = profile
        .threads
        .iter()
        .copied()
        .enumerate()
        .filter(|(i, _)| *i < metadata.threads.len() && wanted(ThreadIndex(*i as u32)))
        .collect();
    // Where little is known of threads, that comes before what is known.
    let sum = |part: fn(&ThreadTime) -> u64| rows.iter().map(|(_, time)| part(time)).sum::<u64>();
    let is_gap_large = sum(|time| time.gap_ns) as f64 >= WORTH * sum(ThreadTime::wall_ns) as f64;
    let mut table = Table::new(vec![
        Column::number("WALL", 0),
        Column::number("RUNNING", 0),
        Column::number("CPU", 3),
        Column::number("RUNNABLE", 6),
        Column::number("BLOCKED", 0),
        Column::number("NO EVIDENCE", if is_gap_large { 0 } else { 6 }),
        Column::number("ALLOCATED", 5),
        Column::number("TID", 4),
        Column::text("PROCESS", 7),
        Column::text("THREAD", 0),
        Column::list("BLOCKED ON", 2),
    ]);
    const TID: usize = 7;
    const NAME: usize = 9;
    // On the first screen those that only help a program are one line for each of theirs.
    let mut rows: Vec<helpers::Row> = match layout.is_exact {
        true => rows.into_iter().map(helpers::Row::of_thread).collect(),
        false => {
            let has_room = !layout.sums_up_roles || rows.len() <= layout.top;
            let most_of_role = if has_room { usize::MAX } else { MOST_OF_ROLE };
            helpers::summed_up(metadata, profile, wanted, rows, layout.top, most_of_role)
        }
    };
    // What one looks for are the threads of the program; those of its runtime stand below them.
    rows.sort_by_key(|row| {
        let thread = &metadata.threads[row.thread];
        (
            roles::serves_runtime(thread.is_main, &thread.name),
            Reverse((row.time.running_ns, row.time.wall_ns())),
            row.thread,
        )
    });
    let many = metadata.processes.len() > 1;
    let told_apart = told_apart::by_arguments(metadata);
    for row in layout.part(&rows) {
        let time = &row.time;
        let thread = &metadata.threads[row.thread];
        let process = &metadata.processes[thread.process];
        let row_count = thread.merged.max(row.helpers).max(row.of_role);
        table.row(vec![
            duration(time.wall_ns()),
            duration(time.running_ns),
            duration(time.metrics.cpu_ns),
            match time.metrics.runnable_ns {
                0 => String::new(),
                ns => duration(ns),
            },
            duration(time.all_blocked_ns()),
            match time.gap_ns {
                0 => String::new(),
                ns => duration(ns),
            },
            bytes(time.metrics.allocated_bytes),
            match row_count {
                0 => thread.tid.to_string(),
                _ => String::new(),
            },
            match many {
                true if thread.upid == 0 => "several".to_owned(),
                true if row.helpers > 0 => row.programs(),
                true if row.is_of_many_processes => process.name.clone(),
                true => format!("{} {}", process.name, process.pid),
                false => String::new(),
            },
            match (row_count, row.helpers) {
                (0, _) if thread.is_main && !told_apart[thread.process].is_empty() => {
                    format!("{}  [{}]", thread.name, told_apart[thread.process])
                }
                (0, _) => thread.name.clone(),
                (n, 0) => format!("{} × {n}", comparable_names::role(&thread.name)),
                (1, _) => "helper".to_owned(),
                (n, _) => format!("{n} helpers"),
            },
            causes(time),
        ]);
    }
    table.add_to_names(NAME, TID, layout.width);
    let mut out = String::new();
    title_of_table(&mut out, layout, "Threads", rows.len());
    add_table(&mut out, layout, &table, rows.len());
    out
}

/// `lock 1.2 s, io 30 ms`: heaviest first.
fn causes(time: &ThreadTime) -> String {
    let mut causes: Vec<(u64, Cause)> = Cause::ALL
        .into_iter()
        .map(|c| (time.blocked_ns[c as usize], c))
        .filter(|(ns, _)| *ns > 0)
        .collect();
    causes.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
    let texts = causes
        .iter()
        .map(|(ns, cause)| format!("{} {}", cause.name(), duration(*ns)));
    texts.collect::<Vec<_>>().join(", ")
}

fn function_table(
    metadata: &Metadata,
    profile: &Profile,
    wanted: &dyn Fn(ThreadIndex) -> bool,
    sort: SortKey,
    layout: &Layout,
) -> String {
    let own = match layout.is_exact {
        true => Own::Exact,
        false => Own::OfProgram,
    };
    let mut rows = functions(profile, wanted, sort, own);
    rows.sort_by_key(|row| Reverse((share_of(row, sort), row.key(sort))));
    let spent = spent_by(profile, wanted);
    let without_evidence_ns = match sort {
        SortKey::SelfTime | SortKey::Cpu => gap_cpu_ns(profile, wanted),
        _ => 0,
    };
    let whole: u64 = rows
        .iter()
        .map(|r| share_of(r, sort))
        .fold(0, u64::saturating_add)
        + without_evidence_ns;
    // Totals overlap, so their shares are of all the threads' time.
    let whole = match sort {
        SortKey::Total | SortKey::Blocked => {
            let chosen = profile.threads.iter().enumerate();
            chosen
                .filter(|(i, _)| wanted(ThreadIndex(*i as u32)))
                .map(|(_, t)| match sort {
                    SortKey::Total => t.wall_ns(),
                    _ => t.all_blocked_ns(),
                })
                .fold(0, u64::saturating_add)
        }
        _ => whole,
    };
    // What is sorted by stays on the narrowest screen.
    let column = |name, key: &[SortKey], rank| {
        Column::number(name, if key.contains(&sort) { 0 } else { rank })
    };
    let mut table = Table::new(vec![
        column("SELF", &[SortKey::SelfTime], 1),
        Column::number("SHARE", 1),
        Column::number("INTERVAL", 6),
        Column::number("LIB", 4),
        Column::number("SAMPLES", 5),
        column("TOTAL", &[SortKey::SelfTime, SortKey::Total], 2),
        column("CPU", &[SortKey::Cpu], 7),
        column("BLOCKED", &[SortKey::Blocked], 3),
        column("ALLOCATED", &[SortKey::Alloc], 8),
        Column::text("FUNCTION", 0),
    ]);
    rows.retain(|row| share_of(row, sort) > 0);
    let in_library_ns = layout.part(&rows).map(|row| row.in_library_ns);
    let has_library = in_library_ns.max().unwrap_or(0) > 0;
    let mut is_said = percent(without_evidence_ns, whole) == percent(0, whole);
    let say_gap = |table: &mut Table| {
        let mut line = vec![String::new(); 10];
        line[0] = duration(without_evidence_ns);
        line[1] = percent(without_evidence_ns, whole);
        line[6] = duration(without_evidence_ns);
        line[9] = label_text(metadata, Label::Leaf(Leaf::Gap));
        table.row(line);
    };
    for row in layout.part(&rows) {
        if !is_said && share_of(row, sort) < without_evidence_ns {
            say_gap(&mut table);
            is_said = true;
        }
        let ends = match sort {
            SortKey::SelfTime | SortKey::Cpu => {
                interval(share_of(row, sort), whole, effective_samples(&spent))
            }
            // Of these the samples do not tell.
            _ => None,
        };
        table.row(vec![
            duration(row.own.computing_ns()),
            percent(share_of(row, sort), whole),
            evidence::text(ends),
            match row.in_library_ns {
                0 => String::new(),
                ns => percent(ns, row.own.running_ns()),
            },
            count(match sort {
                SortKey::Total | SortKey::Blocked => row.total.metrics.samples,
                _ => row.own.evidence.samples,
            }),
            duration(row.total.wall_ns),
            duration(row.own.metrics.cpu_ns),
            duration(row.total.blocked_ns),
            bytes(row.own.metrics.allocated_bytes),
            function_text(metadata, row.function.0),
        ]);
    }
    if !is_said {
        say_gap(&mut table);
    }
    let by = match (sort, has_library) {
        (SortKey::SelfTime, true) => "own time, with library code for them",
        (SortKey::SelfTime, false) => "time running in themselves",
        (SortKey::Cpu, true) => "own CPU time, with library code for them",
        (SortKey::Cpu, false) => "CPU time in themselves",
        (SortKey::Total, _) => "wall time with callees",
        (SortKey::Blocked, _) => "blocked time with callees",
        (SortKey::Alloc, _) => "bytes allocated in themselves",
    };
    let mut out = String::new();
    let heading = format!("Functions by {by}");
    title_of_table(&mut out, layout, &heading, rows.len());
    if table.is_empty() {
        out.push_str("  none\n");
        return out;
    }
    add_table(&mut out, layout, &table, rows.len());
    let waited_ns = spent.running_ns() - spent.computing_ns();
    if sort == SortKey::SelfTime && waited_ns >= whole / 100 && waited_ns > 0 {
        let text = format!(
            "  and {} ready to run while others had the processors",
            duration(waited_ns)
        );
        indented(&mut out, layout, 4, &text, Style::dim);
    }
    out
}

/// What a function is ranked by. Own time is that on a processor: on a busy machine functions that never wait
/// would only show how many others there are.
fn share_of(row: &FunctionRow, sort: SortKey) -> u64 {
    match sort {
        SortKey::SelfTime => row.own.computing_ns(),
        _ => row.key(sort),
    }
}

fn site_table(report: &Report, wanted: &dyn Fn(ThreadIndex) -> bool, layout: &Layout) -> String {
    let Report {
        metadata, profile, ..
    } = report;
    let (sites, idle) = match layout.is_exact {
        true => (blocking_sites(profile, wanted), idle::Sum::default()),
        false => idle::apart(report, wanted),
    };
    let sites = alike(metadata, profile, sites);
    let mut out = String::new();
    let heading = "Blocking calls by total time";
    title_of_table(&mut out, layout, heading, sites.len());
    if sites.is_empty() {
        out.push_str("  none\n");
        return out;
    }
    let mut table = Table::new(vec![
        Column::number("TOTAL", 0),
        Column::number("LONGEST", 2),
        Column::number("WAITS", 3),
        Column::text("CAUSE", 0),
        Column::call("CALL", 1),
        Column::list("CALLED FROM", 0),
    ]);
    for (site, callers) in layout.part(&sites) {
        table.row(vec![
            duration(site.total_ns),
            match site.count {
                0 => String::new(),
                _ => duration(site.longest_ns),
            },
            match site.count {
                0 => "inferred".to_owned(),
                n if site.inferred_ns > 0 => format!("{} + inferred", count(n)),
                n => count(n),
            },
            site.cause.name().into(),
            site.call(profile),
            match callers.is_empty() {
                true => label_text(metadata, Label::Leaf(Leaf::NoStack)),
                false => callers.clone(),
            },
        ]);
    }
    add_table(&mut out, layout, &table, sites.len());
    if let Some(text) = idle.text() {
        let mut text = format!("  {text}");
        // How it is made up is no line of its own.
        if layout
            .width
            .is_some_and(|columns| text_width(&text) > columns)
            && let Some((sum, _)) = text.split_once(" (")
        {
            text = format!("{sum} (apart with --all)");
        }
        indented(&mut out, layout, 4, &text, Style::dim);
    }
    out
}

/// What the trace does not have. Always there, so that nobody has to wonder.
pub(crate) fn drops(metadata: &Metadata, layout: &Layout) -> String {
    let r = &metadata.recording;
    let mut out = String::new();
    title(&mut out, layout, "Losses");
    if r.records_lost == 0 {
        let _ = writeln!(out, "  none of {} records", count(r.records_written));
    } else {
        let text = format!(
            "  {} of {} records ({})",
            count(r.records_lost),
            count(r.records_written),
            share(r.records_lost, r.records_written)
        );
        sentences(&mut out, layout, &text, Style::warning);
    }
    if let Some(ns) = r.counts_end_ns {
        let text = format!(
            "  allocations and frees are counted up to {} only: their hooks were more than the budget could hold",
            duration(ns)
        );
        sentences(&mut out, layout, &text, Style::warning);
    }
    let causes = metadata.drops_by_cause();
    for dropped in layout.part(&causes) {
        let what = drop_causes::counted(dropped.count, dropped.description);
        let text = format!("  {:>8}  {what}", count(dropped.count));
        indented(&mut out, layout, 12, &text, |_, line| line.to_owned());
    }
    more(&mut out, layout, causes.len());
    out
}

#[cfg(test)]
mod tests {
    use stackbeat_model::call_tree::ROOT;
    use stackbeat_model::{FunctionIndex, SegmentKind};

    use super::*;
    use crate::render::text::focus;
    use crate::summary::call_tree::tests::segment;
    use crate::summary::events::EventRow;
    use crate::terminal::Style;
    use crate::testing::{self, golden};

    fn layout(width: Option<usize>) -> Layout<'static> {
        Layout::new(width, Style::default(), 6)
    }

    /// The report as one that reads it gets it.
    fn shown(of: &Report, shown: &Shown, width: Option<usize>) -> String {
        let sort = SortKey::SelfTime;
        report(of, &|_| true, sort, shown, None, &layout(width), &[])
    }

    #[test]
    fn reports_fit_their_terminal() {
        let made_up = testing::report();
        for (name, extent) in [("report", Shown::Screen), ("report-all", Shown::All)] {
            for columns in [50, 80, 140] {
                let text = shown(&made_up, &extent, Some(columns));
                let widest = text.lines().map(text_width).max();
                assert!(widest <= Some(columns), "{text}");
                if columns >= 80 {
                    golden(&format!("{name}-{columns}.txt"), &text);
                    let lines = text.lines().count();
                    assert!(extent == Shown::All || lines <= SCREEN, "{text}");
                }
            }
        }
        let wide = testing::report_with_wide_names();
        for columns in [60, 80, 140] {
            let text = shown(&wide, &Shown::All, Some(columns));
            assert!(text.contains('店'), "{text}");
            let widest = text.lines().map(text_width).max();
            assert!(widest <= Some(columns), "{text}");
        }
    }

    #[test]
    fn the_first_screen_stays_one_however_much_there_is() {
        let large = testing::large_report(40, 300, 1000);
        for columns in [80, 140] {
            let text = shown(&large, &Shown::Screen, Some(columns));
            assert!(text.lines().count() <= SCREEN, "{text}");
            assert!(text.contains("worker-* × 40"), "{text}");
        }
        let few = testing::large_report(16, 300, 1000);
        let text = shown(&few, &Shown::Screen, Some(80));
        assert!(text.contains("Threads (5 of 16)"), "{text}");
    }

    #[test]
    fn tables_give_way_to_what_stands_above_and_below_them() {
        let mut large = testing::large_report(16, 300, 1000);
        large.metadata.recording.state = "cut off in the middle of a packet, ".repeat(4);
        large.metadata.recording.outcome = "damaged";
        let note = "1 % of the running time has no names".to_owned();
        let sort = SortKey::SelfTime;
        let text = |notes: &[String], top| {
            let all = |_| true;
            report(
                &large,
                &all,
                sort,
                &Shown::Screen,
                top,
                &layout(Some(80)),
                notes,
            )
        };
        let rows = |text: &str| text.lines().filter(|line| line.starts_with("  ")).count();
        let usual = text(&[], None);
        let few = text(&vec![note.clone(); 3], None);
        for text in [&usual, &few] {
            assert!(text.lines().count() <= SCREEN, "{text}");
        }
        assert!(rows(&few) < rows(&usual), "{few}");
        // Not below what tells something, nor where somebody said how many.
        let least = text(&vec![note.clone(); 40], None);
        assert!(least.lines().count() > SCREEN, "{least}");
        let (_, functions) = least.split_once("FUNCTION\n").expect("a table");
        let functions = functions.lines().take_while(|line| line.contains(" %"));
        assert!(functions.count() >= 5, "{least}");
        let asked = text(&[note], Some(12));
        assert!(asked.lines().count() > SCREEN, "{asked}");
    }

    #[test]
    fn threads_of_a_runtime_stand_below_those_of_the_program() {
        let mut report = testing::report();
        let threads = &mut report.metadata.threads;
        threads[1].name = "GC Thread#0".into();
        threads[2].name = "C2 CompilerThre".into();
        let text = shown(&report, &Shown::Screen, Some(140));
        let (_, table) = text.split_once("BLOCKED ON\n").expect("a table");
        let own = |line: &str| !line.contains("GC Thread") && !line.contains("C2 Compiler");
        let is_own: Vec<bool> = table.lines().take(4).map(own).collect();
        assert_eq!(is_own, [true, true, false, false], "{text}");
    }

    #[test]
    fn helpers_of_a_program_are_one_row() {
        let mut report = testing::report();
        let (rows, times) = (&mut report.metadata.threads, &mut report.profile.threads);
        for _ in 0..20 {
            rows.push(rows[3].clone());
            let mut time = times[3];
            (time.running_ns, time.gap_ns) = (1_000_000, 0);
            times.push(time);
        }
        let rows = |text: &str| {
            let table = text.split("Functions by").next().unwrap_or_default();
            let rows = table.lines().filter(|line| line.contains(" helpers"));
            rows.map(str::to_owned).collect::<Vec<_>>()
        };
        let screen = shown(&report, &Shown::Screen, Some(140));
        assert_eq!(rows(&screen).len(), 1, "{screen}");
        assert!(rows(&screen)[0].contains("21 helpers"), "{screen}");
        let all = shown(&report, &Shown::All, Some(140));
        assert!(rows(&all).is_empty(), "{all}");
    }

    #[test]
    fn sections_that_are_asked_for_come_alone() {
        let made_up = testing::report();
        let sections = vec![Section::Blocking, Section::Scopes];
        let text = shown(&made_up, &Shown::Only(sections), Some(80));
        assert!(text.contains("Blocking calls by"), "{text}");
        assert!(text.contains("scopes: none"), "{text}");
        assert!(
            !text.contains("Functions by") && !text.contains("Losses"),
            "{text}"
        );
    }

    #[test]
    fn filters_and_orders_are_kept() {
        let made_up = testing::report();
        let workers = |t: ThreadIndex| t.0 == 1 || t.0 == 2;
        let layout_100 = layout(Some(100));
        let sort = SortKey::Blocked;
        golden(
            "report-workers-blocked.txt",
            &report(
                &made_up,
                &workers,
                sort,
                &Shown::Screen,
                None,
                &layout_100,
                &[],
            ),
        );
        golden(
            "report-function.txt",
            &focus::report(&made_up, &|_| true, "price", &layout_100).expect("exists"),
        );
        for columns in [50, 80] {
            for name in ["price", "operator", "main"] {
                let layout = layout(Some(columns));
                let text = focus::report(&made_up, &|_| true, name, &layout).expect("exists");
                let widest = text.lines().map(text_width).max();
                assert!(widest <= Some(columns), "{text}");
            }
        }
        let error = focus::report(&made_up, &|_| true, "nonsense", &layout(None));
        assert!(
            error
                .expect_err("is unknown")
                .to_string()
                .contains("nonsense")
        );
    }

    #[test]
    fn time_in_which_capturing_was_off_is_no_loss() {
        let mut off = testing::report();
        off.metadata.recording.hooks_only = false;
        let mut gap = segment(0, 10_000_000_000, SegmentKind::Gap);
        (gap.thread, gap.metrics.cpu_ns) = (ThreadIndex(3), 10_000_000_000);
        off.profile.add(&gap, ROOT);
        let shown = |report: &Report| super::tests::shown(report, &Shown::Screen, Some(140));
        assert!(shown(&off).contains("samples were lost there"));
        let lost = std::mem::take(&mut off.metadata.recording.records_lost);
        assert!(shown(&off).contains(": threads ended before their first sample"));
        off.metadata.recording.records_lost = lost;
        off.metadata.events.push(EventRow {
            at_ns: 0,
            utid: 0,
            kind: "setting",
            text: "capturing off".to_owned(),
            value: 0,
            place: ROOT,
            is_off: true,
        });
        let text = shown(&off);
        assert!(text.contains("capturing was off for a while"), "{text}");
        assert!(!text.contains("lost there"), "{text}");
    }

    #[test]
    fn own_time_is_that_on_a_processor() {
        const MS: u64 = 1_000_000;
        let mut busy = testing::report();
        let functions = vec![Section::Functions];
        let before = shown(&busy, &Shown::Only(functions.clone()), Some(140));
        assert!(before.contains("and 73.1 ms ready to run"), "{before}");
        // It waits for processors alone.
        let path = busy.profile.tree.path(&[FunctionIndex(11)]);
        let mut piece = segment(0, 10_000 * MS, SegmentKind::Running);
        piece.thread = ThreadIndex(3);
        (piece.metrics.cpu_ns, piece.metrics.runnable_ns) = (MS, 9_999 * MS);
        busy.profile.add(&piece, path);
        let text = shown(&busy, &Shown::Only(functions), Some(140));
        assert!(text.contains("and 10.1 s ready to run"), "{text}");
        let rows = |text: &str| {
            let rows = text.lines().filter(|line| line.contains(" %"));
            let names = rows.filter_map(|line| line.split_whitespace().last());
            names.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(rows(&text), rows(&before));
    }

    #[test]
    fn self_times_sum_to_what_the_threads_ran() {
        let made_up = testing::report();
        let rows = functions(&made_up.profile, &|_| true, SortKey::SelfTime, Own::Exact);
        let own: u64 = rows
            .iter()
            .map(|r| r.own.running_ns())
            .fold(0, u64::saturating_add);
        let running: u64 = made_up
            .profile
            .threads
            .iter()
            .map(|t| t.running_ns)
            .fold(0, u64::saturating_add);
        let without_stack = 2 * 2_000_000;
        assert_eq!(own + without_stack, running);
    }
}
