//! What all tables share: width, style and titles.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Write;

use crate::table::{Table, text_width};
use crate::terminal::Style;

/// How it is said that a table has more lines than there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Others {
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "the live view is there on Linux only")
    )]
    Unsaid,
    /// In a line of its own, with what shows them.
    Below(&'static str),
    /// By the title, on a screen that is short of lines.
    InTitle,
}

const SHOWS_ALL: &str = "--top 0 shows all";

/// How the text is laid out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout<'a> {
    pub width: Option<usize>,
    pub style: Style,
    /// Lines per table.
    pub top: usize,
    /// Each function and each wait stands for itself; otherwise what only serves others counts for them, and
    /// idle waits are one line.
    pub is_exact: bool,
    /// Many threads of one role are one line, where there is no room for a line each.
    pub sums_up_roles: bool,
    /// Lines of a table that are scrolled past.
    pub skipped: usize,
    pub others: Others,
    /// Collects the titles of columns that were left out.
    pub no_room: Option<&'a RefCell<BTreeSet<&'static str>>>,
}

impl<'a> Layout<'a> {
    /// For a text that is not scrolled, where `--top` says how long a table is.
    pub(crate) fn new(width: Option<usize>, style: Style, top: usize) -> Layout<'a> {
        Layout {
            width,
            style,
            top,
            is_exact: false,
            sums_up_roles: true,
            skipped: 0,
            others: Others::Below(SHOWS_ALL),
            no_room: None,
        }
    }

    /// The lines of a table that are shown.
    pub(crate) fn part<T>(&self, rows: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
        rows.into_iter().skip(self.skipped).take(self.top)
    }
}

pub(crate) fn title(out: &mut String, layout: &Layout, text: &str) {
    let _ = writeln!(out, "\n{}", layout.style.bold(text));
}

/// The title of a table with so many rows.
pub(crate) fn title_of_table(out: &mut String, layout: &Layout, text: &str, rows: usize) {
    match layout.others {
        Others::InTitle if rows > layout.top => {
            title(out, layout, &format!("{text} ({} of {rows})", layout.top));
        }
        _ => title(out, layout, text),
    }
}

/// Adds a table, and how many of its rows were left out.
pub(crate) fn add_table(out: &mut String, layout: &Layout, table: &Table, rows: usize) {
    out.push_str(&table.render(layout.width, layout.style));
    if let Some(no_room) = layout.no_room {
        no_room.borrow_mut().extend(table.left_out(layout.width));
    }
    if layout.others != Others::InTitle {
        more(out, layout, rows);
    }
}

pub(crate) fn more(out: &mut String, layout: &Layout, total: usize) {
    let shown = layout.top.saturating_add(layout.skipped);
    let all_by = match layout.others {
        Others::Unsaid => return,
        Others::Below(all_by) => all_by,
        Others::InTitle => SHOWS_ALL,
    };
    if total > shown {
        let text = format!("  … and {} more ({all_by})", total - shown);
        let _ = writeln!(out, "{}", layout.style.dim(&text));
    }
}

/// Adds sentences, broken between words where they are wider than the layout. Lines after the first are
/// indented.
pub(crate) fn sentences(
    out: &mut String,
    layout: &Layout,
    text: &str,
    style: impl Fn(Style, &str) -> String,
) {
    indented(out, layout, 2, text, style);
}

/// The same, with lines after the first indented by so many columns.
pub(crate) fn indented(
    out: &mut String,
    layout: &Layout,
    columns: usize,
    text: &str,
    style: impl Fn(Style, &str) -> String,
) {
    let width = layout.width.unwrap_or(usize::MAX);
    let begin = text.len() - text.trim_start().len();
    let mut line = text[..begin].to_owned();
    let mut words = text[begin..].split(' ');
    while let Some(word) = words.next() {
        // A number stays with its unit, and `p` with what it is.
        let word = &match word.trim_start_matches('(').parse::<f64>() {
            Ok(_) => with(word, &mut words, 1),
            Err(_) if word == "p" => {
                let is_equal = words.clone().next() == Some("=");
                with(word, &mut words, if is_equal { 2 } else { 1 })
            }
            Err(_) => word.to_owned(),
        };
        let is_full = text_width(&line) + 1 + text_width(word) > width;
        if is_full && !line.trim().is_empty() {
            let _ = writeln!(out, "{}", style(layout.style, &line));
            line = format!("{:columns$}{word}", "");
            continue;
        }
        if !line.trim().is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    let _ = writeln!(out, "{}", style(layout.style, &line));
}

/// A word and so many of those behind it.
fn with<'a>(word: &str, behind: &mut impl Iterator<Item = &'a str>, count: usize) -> String {
    behind
        .take(count)
        .fold(word.to_owned(), |all, word| all + " " + word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_broken_between_words() {
        let layout = Layout::new(Some(15), Style::default(), 1);
        let mut out = String::new();
        sentences(
            &mut out,
            &layout,
            "97 % computing, anextraordinarilylongword sends 3 % out",
            |_, l| l.to_owned(),
        );
        sentences(&mut out, &layout, "  3 records dropped", |_, l| {
            l.to_owned()
        });
        let first = "97 % computing,\n  anextraordinarilylongword\n  sends 3 % out\n";
        assert_eq!(out, format!("{first}  3 records\n  dropped\n"));
        out.clear();
        sentences(&mut out, &layout, "computing (997 % in a)", |_, l| {
            l.to_owned()
        });
        assert_eq!(out, "computing\n  (997 % in a)\n");
        for text in ["it changed, p <0.001", "changed p = 0.01"] {
            out.clear();
            sentences(&mut out, &layout, text, |_, l| l.to_owned());
            let (before, value) = text.split_at(text.rfind("p ").expect("is there") - 1);
            assert_eq!(out, format!("{before}\n {value}\n"));
        }
    }
}
