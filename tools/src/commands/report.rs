//! `stackbeat report`: sums a trace up and shows it as tables, JSON or a page.

#[cfg(test)]
mod damaged_traces;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use stackbeat_model::{ThreadIndex, Trace};

use crate::cli::ReportArgs;
use crate::render::text::section::Shown;
use crate::render::text::{focus, table_layout, tables};
use crate::render::{html, json};
use crate::summary::load::{Report, summarize_rows, warn_of_damage};
use crate::summary::metadata::Metadata;
use crate::summary::missing_names;
use crate::terminal;

/// Lines of the two trees of a function when nothing else is asked for.
const TREE_LINES: usize = 15;
/// Columns where no terminal says how wide it is: a log, a file, a message.
pub(crate) const COLUMNS: usize = 100;

/// Runs the command.
pub(crate) fn run(args: &ReportArgs) -> Result<u8> {
    let budget = match &args.html {
        Some(_) => html::BAR_BUDGET,
        None => 0,
    };
    if let Some(output) = args
        .html
        .as_deref()
        .filter(|output| *output != Path::new("-"))
    {
        terminal::refuse_to_replace(output, args.force)?;
    }
    let most_threads = match (args.max_threads, &args.html) {
        (Some(most), _) => most,
        (None, Some(_)) => html::MOST_THREADS,
        (None, None) => 0,
    };
    let trace = Trace::open(&args.file)?;
    warn_of_damage(&args.file, &trace);
    let choose = |metadata: &Metadata| choose(metadata, &args.thread, &args.process);
    let (report, chosen) = summarize_rows(&trace, budget, most_threads, &choose)?;
    let wanted = |thread: ThreadIndex| chosen[thread.0 as usize];
    if let Some(output) = &args.html {
        write_page(&report, output)?;
    } else if args.json {
        let top = args.top.filter(|n| *n > 0).unwrap_or(usize::MAX);
        let function = args.function.as_deref();
        terminal::print_json(&json::report::report(
            &report, &wanted, args.sort, top, function,
        )?)?;
    } else {
        let top = args.top.map(|lines| match lines {
            0 => usize::MAX,
            lines => lines,
        });
        let shown = match args.section.as_slice() {
            _ if args.all => Shown::All,
            [] => Shown::Screen,
            sections => Shown::Only(sections.to_vec()),
        };
        let layout = layout(top.unwrap_or(TREE_LINES));
        let notes = match (&shown, &args.function) {
            (Shown::Only(_), _) | (_, Some(_)) => Vec::new(),
            _ => missing_names::lines(&report, &wanted, &missing_names::System::that_shows()),
        };
        let text = match &args.function {
            Some(name) => focus::report(&report, &wanted, name, &layout)?,
            None => tables::report(&report, &wanted, args.sort, &shown, top, &layout, &notes),
        };
        terminal::print(&text)?;
    }
    Ok(0)
}

/// The page of a trace, with as many threads as a page has room for.
pub(crate) fn page(file: &Path) -> Result<String> {
    let trace = Trace::open(file)?;
    warn_of_damage(file, &trace);
    let all = |metadata: &Metadata| Ok(vec![true; metadata.threads.len()]);
    let (report, _) = summarize_rows(&trace, html::BAR_BUDGET, html::MOST_THREADS, &all)?;
    html::render(&report)
}

/// Writes the page of a report to a file, or to standard output for `-`.
pub(crate) fn write_page(report: &Report, output: &Path) -> Result<()> {
    write_text(&html::render(report)?, output)
}

/// Writes a page, and says so; to standard output for `-`.
pub(crate) fn write_text(text: &str, output: &Path) -> Result<()> {
    if output == Path::new("-") {
        return terminal::print_page(text);
    }
    fs::write(output, text).with_context(|| format!("{}: cannot be written", output.display()))?;
    terminal::say(&format!(
        "{}: wrote {} ({})",
        terminal::Style::stderr().bold("stackbeat"),
        output.display(),
        crate::units::bytes(text.len() as u64)
    ));
    Ok(())
}

fn layout(top: usize) -> table_layout::Layout<'static> {
    let width = terminal::width().unwrap_or(COLUMNS);
    table_layout::Layout::new(Some(width), terminal::Style::stdout(), top)
}

/// The first screen of the report of a whole trace, for the demo.
#[cfg(target_os = "linux")]
pub(crate) fn screen(report: &Report) -> String {
    let (sort, layout) = (
        crate::summary::sort_key::SortKey::SelfTime,
        layout(TREE_LINES),
    );
    tables::report(report, &|_| true, sort, &Shown::Screen, None, &layout, &[])
}

/// Which threads are asked for, by index. All when nothing is said.
fn choose(metadata: &Metadata, threads: &[String], processes: &[String]) -> Result<Vec<bool>> {
    let is = |name: &str, number: u32, asked: &String| {
        asked.parse() == Ok(number) || name.contains(asked.as_str())
    };
    for asked in threads {
        if !metadata.threads.iter().any(|t| is(&t.name, t.tid, asked)) {
            bail!(
                "--thread {asked}: no such thread; there are {}",
                some_names(
                    metadata
                        .threads
                        .iter()
                        .map(|t| format!("{} ({})", t.name, t.tid))
                )
            );
        }
    }
    for asked in processes {
        if !metadata.processes.iter().any(|p| is(&p.name, p.pid, asked)) {
            bail!(
                "--process {asked}: no such process; there are {}",
                some_names(
                    metadata
                        .processes
                        .iter()
                        .map(|p| format!("{} ({})", p.name, p.pid))
                )
            );
        }
    }
    let chosen = metadata.threads.iter().map(|t| {
        let process = &metadata.processes[t.process];
        (threads.is_empty() || threads.iter().any(|a| is(&t.name, t.tid, a)))
            && (processes.is_empty() || processes.iter().any(|a| is(&process.name, process.pid, a)))
    });
    Ok(chosen.collect())
}

/// The first names of a list that may be long.
fn some_names(names: impl ExactSizeIterator<Item = String>) -> String {
    const SHOWN: usize = 12;
    let total = names.len();
    let mut text = names.take(SHOWN).collect::<Vec<_>>().join(", ");
    if total > SHOWN {
        text.push_str(&format!(" and {} more", total - SHOWN));
    }
    if total == 0 {
        text.push_str("none");
    }
    text
}
