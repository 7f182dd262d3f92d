//! What a live view shows, as lines that fit the terminal: the tables of `report`, as many rows as there is
//! room for.

use stackbeat_model::ThreadIndex;
use stackbeat_symbolize::short_names::beginning;

use super::source::Moment;
use crate::render::text::section::Section;
use crate::render::text::table_layout::{Layout, Others, indented, sentences};
use crate::render::text::tables::section_text;
use crate::summary::functions::{Own, functions};
use crate::summary::helpers;
use crate::summary::idle;
use crate::summary::labels::alike;
use crate::summary::sort_key::SortKey;
use crate::summary::verdict::verdict;
use crate::table::{shorten, text_width};
use crate::terminal::{Style, clean};
use crate::units::{count, duration, plural};

/// The tables of the overview, with their parts of the room.
const TABLES: [(Section, usize); 3] = [
    (Section::Threads, 3),
    (Section::Functions, 4),
    (Section::Blocking, 3),
];
/// Rows from which on blank lines stand between tables.
const AIRY: usize = 30;
/// Lines of the verdict: tables say more than the end of a long sentence.
const VERDICT_LINES: usize = 3;
const NOTHING: &str = "nothing has run or waited so far";
/// Rows that are printed where no terminal bounds them.
const PRINTED_ROWS: usize = 48;

const HELP: [&str; 17] = [
    "Keys",
    "",
    "  q, Ctrl-C        quit; a process that was attached to is detached from",
    "  Tab, t, f, w     one table: threads, functions, waits; Escape: all of them",
    "  Up, Down, j, k   scroll one table; Page Up, Page Down and Home too",
    "  s                functions by self, total, cpu, blocked time or allocated bytes",
    "  p, Space         pause: the screen stays, the recording goes on",
    "  c                all since the recording began, or the last seconds again",
    "  +, -             show longer or shorter stretches",
    "  Ctrl-L, Ctrl-Z   draw anew; suspend",
    "",
    "Running is time in code: on a CPU, or ready to run while others had it.",
    "Self is time running in a function itself, total is wall time with callees.",
    "Blocking calls are waits, by who waits. (no evidence): no sample says.",
    "A session keeps what its buffer holds: c shows so much in ring mode.",
    "",
    "Any key goes back.",
];

/// What of it is shown, and how.
#[derive(Clone, Debug)]
pub(super) struct View {
    /// `None`: the overview.
    pub section: Option<Section>,
    pub sort: SortKey,
    /// Rows of the one table that are scrolled past.
    pub scrolled: usize,
    pub is_paused: bool,
    /// All since the recording began, in place of the last seconds.
    pub is_whole: bool,
    pub every_ns: u64,
    pub shows_help: bool,
    pub only_pid: Option<u32>,
    /// This view has attached to the process.
    pub is_own: bool,
}

impl View {
    fn wants(&self, moment: &Moment, thread: ThreadIndex) -> bool {
        let threads = &moment.report.metadata.threads;
        let pid = threads.get(thread.0 as usize).map(|thread| thread.pid);
        self.only_pid.is_none() || self.only_pid == pid
    }

    /// The next table, after the last one the overview.
    pub(super) fn next_section(&mut self) {
        let mut sections = TABLES.iter().map(|(section, _)| *section);
        self.section = match self.section {
            None => sections.next(),
            Some(now) => sections.skip_while(|section| *section != now).nth(1),
        };
        self.scrolled = 0;
    }

    /// Scrolls by so many rows, within the table.
    pub(super) fn scroll(&mut self, rows: isize, moment: Option<&Moment>) {
        let most = (moment.zip(self.section)).map_or(0, |(moment, section)| {
            self.rows(moment, section).saturating_sub(1)
        });
        self.scrolled = self.scrolled.saturating_add_signed(rows).min(most);
    }

    /// How many rows a table has.
    fn rows(&self, moment: &Moment, section: Section) -> usize {
        let report = &moment.report;
        let (metadata, profile) = (&report.metadata, &report.profile);
        let wanted = |thread| self.wants(moment, thread);
        match section {
            Section::Threads => {
                let threads = (0..).zip(profile.threads.iter().copied());
                let threads = threads.take(metadata.threads.len());
                let chosen = threads.filter(|(i, _)| wanted(ThreadIndex(*i as u32)));
                let most = usize::MAX;
                helpers::summed_up(
                    metadata,
                    profile,
                    &wanted,
                    chosen.collect(),
                    most,
                    usize::MAX,
                )
                .len()
            }
            Section::Functions => functions(profile, &wanted, self.sort, Own::OfProgram)
                .iter()
                .filter(|row| row.key(self.sort) > 0)
                .count(),
            _ => alike(metadata, profile, idle::apart(&moment.report, &wanted).0).len(),
        }
    }
}

/// The lines of the screen. `rows`: as many as the terminal has; `None`: they are printed.
pub(super) fn lines(
    moment: Option<&Moment>,
    trouble: Option<&str>,
    view: &View,
    columns: usize,
    rows: Option<usize>,
    style: Style,
) -> Vec<String> {
    if view.shows_help {
        return help(columns, rows.unwrap_or(usize::MAX));
    }
    let layout = Layout {
        others: Others::Unsaid,
        // Which of them runs at this moment is what one looks for.
        sums_up_roles: false,
        ..Layout::new(Some(columns), style, usize::MAX)
    };
    let mut text = String::new();
    let room = rows.unwrap_or(PRINTED_ROWS);
    if let Some(moment) = moment {
        heading(&mut text, moment, view, &layout);
        let wanted = |thread| view.wants(moment, thread);
        match verdict(&moment.report, &wanted) {
            Some(verdict) => text.push_str(&beginning_of_verdict(&verdict, &layout)),
            None => sentences(&mut text, &layout, NOTHING, Style::dim),
        }
    }
    if let Some(trouble) = trouble {
        sentences(&mut text, &layout, &clean(trouble), Style::warning);
    }
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let foot = usize::from(rows.is_some());
    if let Some(moment) = moment {
        lines.truncate(room.saturating_sub(foot));
        let left = room.saturating_sub(lines.len() + foot);
        lines.extend(match view.section {
            Some(section) => one_table(moment, view, section, left, &layout),
            None => overview(moment, view, left, &layout),
        });
    }
    if let Some(rows) = rows {
        lines.truncate(rows.saturating_sub(1));
        lines.resize(rows.saturating_sub(1), String::new());
        lines.push(style.dim(&shorten_end(&foot_line(view), columns)));
    }
    lines
}

/// The page about keys and terms.
fn help(columns: usize, rows: usize) -> Vec<String> {
    /// Where it is said what keys do.
    const TEXT_AT: usize = 19;
    let layout = Layout::new(Some(columns), Style::default(), usize::MAX);
    let mut text = String::new();
    for line in HELP {
        let indent = if line.starts_with(' ') { TEXT_AT } else { 0 };
        indented(&mut text, &layout, indent, line, |_, line| line.to_owned());
    }
    text.lines().take(rows).map(str::to_owned).collect()
}

/// The verdict, up to the lines that it may have.
fn beginning_of_verdict(verdict: &str, layout: &Layout) -> String {
    let mut whole = String::new();
    sentences(&mut whole, layout, verdict, |_, line| line.to_owned());
    let mut lines: Vec<String> = whole.lines().map(str::to_owned).collect();
    if lines.len() > VERDICT_LINES {
        lines.truncate(VERDICT_LINES);
        let columns = layout.width.unwrap_or(usize::MAX);
        if let Some(last) = lines.last_mut() {
            while text_width(last) + 2 > columns
                && let Some(word) = last.trim_end().rfind(' ')
            {
                last.truncate(word);
            }
            last.push_str(" …");
        }
    }
    lines
        .iter()
        .map(|line| layout.style.bold(line) + "\n")
        .collect()
}

/// What is recorded, how, and what it amounts to.
fn heading(out: &mut String, moment: &Moment, view: &View, layout: &Layout) {
    let Moment { report, status, .. } = moment;
    let columns = layout.width.unwrap_or(usize::MAX);
    let command = status.command.join(" ");
    let command = shorten(clean(&command).trim_end(), columns);
    out.push_str(&layout.style.bold(&command));
    out.push('\n');
    let wanted = |thread| view.wants(moment, thread);
    let samples = (report.profile.threads.iter().enumerate())
        .filter(|(i, _)| wanted(ThreadIndex(*i as u32)))
        .map(|(_, thread)| thread.metrics.samples)
        .fold(0, u64::saturating_add);
    let who = match view.only_pid {
        Some(pid) => format!("pid {pid} of {}", plural_pids(status.pids.len())),
        None if status.pids.len() == 1 => format!("pid {}", status.pids[0]),
        None => format!(
            "pid {}, {}",
            status.program_pid,
            plural_pids(status.pids.len())
        ),
    };
    let how = match view.is_own {
        true => "attached",
        false => "recorded",
    };
    let state = match (status.capturing, view.is_paused) {
        (false, _) => "; stopped: `stackbeat start` goes on",
        (_, true) => "; paused",
        _ => "",
    };
    let summary = format!(
        "{who}, {how} {}; last {}, {}, every {}{state}",
        duration(status.elapsed_ns),
        duration(report.metadata.recording.duration_ns),
        plural(samples, "sample", "samples"),
        duration(status.interval_ns.max(status.kept_interval_ns)),
    );
    sentences(out, layout, &summary, |_, line| line.to_owned());
    if status.write_failing {
        sentences(
            out,
            layout,
            "the trace cannot be written at the moment",
            Style::warning,
        );
    }
    if status.lost > 0 {
        let text = format!("{} records lost so far", count(status.lost));
        sentences(out, layout, &text, Style::warning);
    }
}

fn plural_pids(count: usize) -> String {
    plural(count as u64, "process", "processes")
}

/// All tables, each with its part of the room; what one does not need, the others get.
fn overview(moment: &Moment, view: &View, room: usize, layout: &Layout) -> Vec<String> {
    let is_airy = room + 4 >= AIRY;
    let tables = TABLES.map(|(section, part)| {
        let layout = Layout {
            top: room,
            ..*layout
        };
        (table(moment, view, section, is_airy, &layout), part)
    });
    let heads = tables.each_ref().map(|(table, _)| table.head);
    let mut left = room.saturating_sub(heads.iter().sum());
    let mut parts = [0; TABLES.len()];
    let needs = tables
        .each_ref()
        .map(|(table, _)| table.lines.len() - table.head);
    for (i, (_, part)) in tables.iter().enumerate() {
        parts[i] = needs[i].min(left * part / 10);
    }
    left = left.saturating_sub(parts.iter().sum());
    for i in [1, 0, 2] {
        let more = left.min(needs[i] - parts[i]);
        parts[i] += more;
        left -= more;
    }
    let shown = tables.into_iter().zip(parts);
    shown
        .flat_map(|((table, _), part)| {
            let lines = table.head + part;
            table.lines.into_iter().take(lines)
        })
        .collect()
}

fn one_table(
    moment: &Moment,
    view: &View,
    section: Section,
    room: usize,
    layout: &Layout,
) -> Vec<String> {
    const HEAD: usize = 3;
    let layout = Layout {
        // A line says how many more there are.
        top: room.saturating_sub(HEAD + 1),
        skipped: view.scrolled,
        others: Others::Below("Down"),
        ..*layout
    };
    table(moment, view, section, true, &layout).lines
}

/// The lines of a table, and how many of them stand above its rows.
struct Lines {
    head: usize,
    lines: Vec<String>,
}

fn table(moment: &Moment, view: &View, section: Section, is_airy: bool, layout: &Layout) -> Lines {
    let wanted = |thread| view.wants(moment, thread);
    let text = section_text(section, &moment.report, &wanted, view.sort, layout);
    let text = match is_airy {
        true => &*text,
        false => text.trim_start_matches('\n'),
    };
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    // Title and names of columns.
    let head = (2 + usize::from(is_airy)).min(lines.len());
    Lines { head, lines }
}

/// What keys do now.
fn foot_line(view: &View) -> String {
    let sort = match view.sort {
        SortKey::SelfTime => "self",
        SortKey::Total => "total",
        SortKey::Cpu => "cpu",
        SortKey::Blocked => "blocked",
        SortKey::Alloc => "alloc",
    };
    let pause = match view.is_paused {
        true => "go on",
        false => "pause",
    };
    let stretch = match view.is_whole {
        true => "since the start".to_owned(),
        false => format!("last {}", duration(view.every_ns)),
    };
    format!(" q quit  ? keys  Tab tables  s by {sort}  p {pause}  c {stretch}  +/- its length")
}

fn shorten_end(text: &str, columns: usize) -> String {
    beginning(text, columns).to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use stackbeat_collector::session::protocol::SessionStatus;

    use super::*;
    use crate::testing::{self, golden};

    fn moment() -> Moment {
        Moment {
            report: testing::report(),
            status: SessionStatus {
                program_pid: 1001,
                pids: vec![1001, 1002],
                command: vec!["./shop".into(), "--port".into(), "80\x1b[31m".into()],
                elapsed_ns: 61_500_000_000,
                interval_ns: 1_000_000,
                capturing: true,
                ..SessionStatus::default()
            },
            took: Duration::ZERO,
        }
    }

    fn view() -> View {
        View {
            section: None,
            sort: SortKey::SelfTime,
            scrolled: 0,
            is_paused: false,
            is_whole: false,
            every_ns: 2_000_000_000,
            shows_help: false,
            only_pid: None,
            is_own: true,
        }
    }

    fn on(moment: &Moment, view: &View, columns: usize, rows: usize) -> Vec<String> {
        let lines = lines(
            Some(moment),
            None,
            view,
            columns,
            Some(rows),
            Style::default(),
        );
        assert_eq!(lines.len(), rows, "{lines:#?}");
        let widest = lines.iter().map(|line| text_width(line)).max();
        assert!(widest <= Some(columns.max(50)), "{lines:#?}");
        lines
    }

    #[test]
    fn screens_are_as_large_as_the_terminal() {
        let mut view = view();
        for (columns, rows) in [(80, 24), (140, 40)] {
            let lines = on(&moment(), &view, columns, rows);
            golden(
                &format!("top-{columns}x{rows}.txt"),
                &(lines.join("\n") + "\n"),
            );
        }
        let many = Moment {
            report: testing::large_report(40, 300, 0),
            ..moment()
        };
        for (columns, rows) in [(50, 10), (80, 24), (200, 60), (20, 3), (1, 1)] {
            for section in [None, Some(Section::Threads), Some(Section::Functions)] {
                view.section = section;
                on(&many, &view, columns, rows);
            }
        }
        view.section = None;
        let wide = Moment {
            report: testing::report_with_wide_names(),
            ..moment()
        };
        for (columns, rows) in [(60, 24), (80, 24), (140, 40)] {
            let lines = on(&wide, &view, columns, rows);
            assert!(lines.iter().any(|l| l.contains('店')), "{lines:#?}");
        }
    }

    #[test]
    fn a_long_verdict_says_that_it_goes_on() {
        let layout = Layout::new(Some(30), Style::default(), 1);
        let text = "97 % computing in parse_any; 2 % waiting for a lock of Store::insert";
        let shown = beginning_of_verdict(text, &layout);
        assert_eq!(shown.replace("\n  ", " ").trim_end(), text);
        let longer = format!("{text}; 1 % sleeping for no reason");
        let shown = beginning_of_verdict(&longer, &layout);
        assert!(shown.ends_with(" …\n"), "{shown}");
        assert_eq!(shown.lines().count(), 3, "{shown}");
        assert!(shown.lines().all(|line| text_width(line) <= 30), "{shown}");
    }

    #[test]
    fn the_help_page_fits_its_terminal() {
        for columns in [50, 60, 80] {
            let lines = help(columns, usize::MAX);
            assert!(
                lines.iter().all(|line| text_width(line) <= columns),
                "{lines:#?}"
            );
            let words = lines.join(" ");
            let words = Vec::from_iter(words.split_whitespace()).join(" ");
            assert!(
                words.contains("blocked time or allocated bytes p, Space"),
                "{words}"
            );
        }
    }

    #[test]
    fn each_table_has_rows_on_a_usual_screen() {
        let many = Moment {
            report: testing::large_report(40, 300, 0),
            ..moment()
        };
        let lines = on(&many, &view(), 80, 24);
        let title = |text: &str| {
            lines
                .iter()
                .position(|line| line.starts_with(text))
                .expect("is there")
        };
        let [threads, functions, blocking] = ["Threads", "Functions", "Blocking"].map(title);
        assert!(functions - threads >= 2 + 3, "{lines:#?}");
        assert!(blocking - functions >= 2 + 4, "{lines:#?}");
        assert!(rows_behind(&lines, blocking) >= 3, "{lines:#?}");
    }

    fn rows_behind(lines: &[String], title: usize) -> usize {
        lines[title..]
            .iter()
            .filter(|line| line.starts_with("  "))
            .count()
            - 1
    }

    #[test]
    fn one_table_is_scrolled_to_its_end_and_not_behind_it() {
        let many = Moment {
            report: testing::large_report(40, 300, 0),
            ..moment()
        };
        let mut view = view();
        view.next_section();
        assert_eq!(view.section, Some(Section::Threads));
        let first = on(&many, &view, 80, 24);
        assert!(
            first.iter().any(|line| line.contains("more (Down)")),
            "{first:#?}"
        );
        view.scroll(100, Some(&many));
        assert_eq!(view.scrolled, 39);
        let last = on(&many, &view, 80, 24);
        assert!(
            last.iter().any(|line| line.contains("worker-")),
            "{last:#?}"
        );
        assert!(
            !last.iter().any(|line| line.contains("more (Down)")),
            "{last:#?}"
        );
        view.scroll(-1000, Some(&many));
        assert_eq!(on(&many, &view, 80, 24), first);
        view.next_section();
        view.next_section();
        view.next_section();
        assert_eq!(view.section, None);
    }

    #[test]
    fn one_process_of_a_session_can_be_shown_alone() {
        let mut view = view();
        let all = on(&moment(), &view, 140, 40).join("\n");
        assert!(
            all.contains("pid 1001, 2 processes, attached 61.5 s"),
            "{all}"
        );
        assert!(all.contains("  sh "), "{all}");
        view.only_pid = Some(1001);
        view.is_own = false;
        let one = on(&moment(), &view, 140, 40).join("\n");
        assert!(
            one.contains("pid 1001 of 2 processes, recorded 61.5 s"),
            "{one}"
        );
        assert!(!one.contains("1004  sh"), "{one}");
    }

    #[test]
    fn trouble_is_said_above_the_last_tables() {
        let lines = lines(
            Some(&moment()),
            Some("the program has ended\x1b[2J"),
            &view(),
            80,
            Some(24),
            Style::default(),
        );
        assert!(
            lines
                .iter()
                .any(|line| line == "the program has ended\u{fffd}[2J"),
            "{lines:#?}"
        );
        assert!(
            lines.iter().all(|line| !line.contains('\x1b')),
            "{lines:#?}"
        );
    }
}
