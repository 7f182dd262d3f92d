//! What all tables share: width, style and titles.

use std::fmt::Write;

use crate::terminal::Style;

/// How the text is laid out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub width: Option<usize>,
    pub style: Style,
    /// Lines per table.
    pub top: usize,
}

pub(crate) fn title(out: &mut String, layout: &Layout, text: &str) {
    let _ = writeln!(out, "\n{}", layout.style.bold(text));
}

pub(crate) fn more(out: &mut String, layout: &Layout, total: usize) {
    if total > layout.top {
        let text = format!("  … and {} more (--top 0 shows all)", total - layout.top);
        let _ = writeln!(out, "{}", layout.style.dim(&text));
    }
}

/// Adds sentences, broken between words where they are wider than the layout. Lines after the first are indented.
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
        // A number stays with its unit.
        let unit = match word.parse::<f64>() {
            Ok(_) => words.next(),
            Err(_) => None,
        };
        let word = &unit.map_or_else(|| word.to_owned(), |unit| format!("{word} {unit}"));
        let is_full = line.chars().count() + 1 + word.chars().count() > width;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_broken_between_words() {
        let layout = Layout {
            width: Some(15),
            style: Style::default(),
            top: 1,
        };
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
    }
}
