//! Tables for terminals: columns as wide as their content, the last one takes what is left; columns
//! that do not fit are left out, least important first, and long names are cut in the middle.

use crate::terminal::{Style, clean};

/// Narrowest useful last column.
const MIN_NAME: usize = 24;

/// One column.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    title: &'static str,
    left: bool,
    /// Cut at the end, not in the middle.
    cut_end: bool,
    /// Columns with a higher number are left out first; 0 always stays.
    optional: u8,
}

impl Column {
    /// A column of numbers.
    pub(crate) fn number(title: &'static str, optional: u8) -> Column {
        Column {
            title,
            left: false,
            cut_end: false,
            optional,
        }
    }

    /// A column of names.
    pub(crate) fn text(title: &'static str, optional: u8) -> Column {
        Column {
            title,
            left: true,
            cut_end: false,
            optional,
        }
    }

    /// A column of lists, most important first.
    pub(crate) fn list(title: &'static str, optional: u8) -> Column {
        Column {
            cut_end: true,
            ..Column::text(title, optional)
        }
    }
}

/// A table that is being filled.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: Vec<Column>) -> Table {
        Table {
            columns,
            rows: Vec::new(),
        }
    }

    /// Adds a row; one text per column.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        let cells = cells.iter().map(|c| clean(c).into_owned());
        self.rows.push(cells.collect());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The finished text. `width` is `None` when lines may be as long as they like.
    pub(crate) fn render(&self, width: Option<usize>, style: Style) -> String {
        let widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(i, column)| {
                let cells = self.rows.iter().map(|r| length(&r[i]));
                cells.max().unwrap_or(0).max(length(column.title))
            })
            .collect();
        let empty = |i: usize| self.rows.iter().all(|r| r[i].is_empty());
        let mut shown: Vec<usize> = (0..self.columns.len())
            .filter(|i| self.columns[*i].optional == 0 || !empty(*i))
            .collect();
        let last_width = self.fit(&mut shown, &widths, width);
        let mut out = String::new();
        let titles: Vec<String> = self.columns.iter().map(|c| c.title.to_string()).collect();
        out.push_str(&style.dim(&self.line(&titles, &shown, &widths, last_width)));
        out.push('\n');
        for row in &self.rows {
            out.push_str(&self.line(row, &shown, &widths, last_width));
            out.push('\n');
        }
        out
    }

    /// Leaves out columns until the rest fits; gives the width of the last one.
    fn fit(&self, shown: &mut Vec<usize>, widths: &[usize], width: Option<usize>) -> Option<usize> {
        let width = width?;
        loop {
            let last = *shown.last()?;
            let others: usize = shown.iter().map(|i| widths[*i] + 2).sum::<usize>() - widths[last];
            let left = width.saturating_sub(others);
            let enough = left >= widths[last].min(MIN_NAME);
            let least_important = shown
                .iter()
                .copied()
                .filter(|i| self.columns[*i].optional > 0)
                .max_by_key(|i| self.columns[*i].optional);
            match least_important {
                Some(column) if !enough => shown.retain(|i| *i != column),
                _ => return Some(left.max(8)),
            }
        }
    }

    fn line(
        &self,
        cells: &[String],
        shown: &[usize],
        widths: &[usize],
        last_width: Option<usize>,
    ) -> String {
        let mut line = String::new();
        for (n, i) in shown.iter().enumerate() {
            line.push_str("  ");
            let is_last = n + 1 == shown.len();
            let text = match last_width {
                Some(room) if is_last && self.columns[*i].cut_end => cut_end(&cells[*i], room),
                Some(room) if is_last => shorten(&cells[*i], room),
                _ => cells[*i].clone(),
            };
            let padding = " ".repeat(widths[*i].saturating_sub(length(&text)));
            match (self.columns[*i].left, is_last) {
                (true, true) => line.push_str(&text),
                (true, false) => {
                    line.push_str(&text);
                    line.push_str(&padding);
                }
                (false, _) => {
                    line.push_str(&padding);
                    line.push_str(&text);
                }
            }
        }
        line.trim_end().to_string()
    }
}

fn length(text: &str) -> usize {
    text.chars().count()
}

fn cut_end(text: &str, room: usize) -> String {
    if length(text) <= room {
        return text.to_string();
    }
    let mut short: String = text.chars().take(room.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// Cuts the middle out of a text that is too long: both ends of a name tell something.
pub(crate) fn shorten(text: &str, room: usize) -> String {
    let n = length(text);
    if n <= room {
        return text.to_string();
    }
    let keep = room.saturating_sub(1);
    let head = keep * 2 / 3;
    let tail = keep - head;
    let mut short: String = text.chars().take(head).collect();
    short.push('…');
    short.extend(text.chars().skip(n - tail));
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut t = Table::new(vec![
            Column::number("SELF", 0),
            Column::number("CPU", 1),
            Column::number("ALLOC", 2),
            Column::text("FUNCTION", 0),
        ]);
        t.row(
            [
                "12.3 ms",
                "1 ms",
                "4 KiB",
                "a_function_with_a_rather_long_name",
            ]
            .map(String::from)
            .into(),
        );
        t.row(["1 s", "1 s", "0", "main"].map(String::from).into());
        t
    }

    #[test]
    fn a_wide_table_shows_everything() {
        assert_eq!(
            table().render(None, Style::default()),
            "     SELF   CPU  ALLOC  FUNCTION\n  \
               12.3 ms  1 ms  4 KiB  a_function_with_a_rather_long_name\n      \
                   1 s   1 s      0  main\n"
        );
    }

    #[test]
    fn a_narrow_table_leaves_out_columns_and_cuts_names() {
        let text = table().render(Some(44), Style::default());
        assert!(text.lines().all(|l| l.chars().count() <= 44), "{text}");
        assert!(!text.contains("ALLOC") && text.contains("CPU"), "{text}");
        assert!(text.contains("a_function_with_a…long_name"), "{text}");
        let text = table().render(Some(20), Style::default());
        assert!(text.lines().all(|l| l.chars().count() <= 20), "{text}");
        assert!(text.contains("SELF") && text.contains("FUNCTION"), "{text}");
    }
}
