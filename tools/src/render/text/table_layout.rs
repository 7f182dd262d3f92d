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
