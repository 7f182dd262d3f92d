//! Tables for terminals: columns as wide as their content. Where that is too wide, columns are left out,
//! least important first, and the texts that stay share the room: names keep their last component, lists
//! their first items.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use stackbeat_symbolize::short_names::{beginning, fit, fit_apart};
pub(crate) use stackbeat_symbolize::short_names::{text_width, without_middle as shorten};

use crate::terminal::{Style, clean};

/// Narrowest useful column of names: the last one, which the table is about, and others.
const MIN_LAST: usize = 32;
const MIN_NAME: usize = 16;
/// A call with what it waits for, while there are columns that are less important.
const MIN_CALL: usize = 28;
/// A column of names that has no room at all is not narrower.
const LEAST_NAME: usize = 8;

/// One column.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    title: &'static str,
    content: Content,
    /// Columns with a higher number are left out first; 0 always stays.
    optional: u8,
}

/// What stands in a column, which says where it is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    /// Never cut.
    Number,
    Name,
    /// A call with what it waits for.
    Call,
    List,
}

impl Column {
    /// A column of numbers.
    pub(crate) fn number(title: &'static str, optional: u8) -> Column {
        Column {
            title,
            content: Content::Number,
            optional,
        }
    }

    /// A column of names.
    pub(crate) fn text(title: &'static str, optional: u8) -> Column {
        Column {
            content: Content::Name,
            ..Column::number(title, optional)
        }
    }

    /// A column of calls with what they wait for: `pthread_mutex_lock(cache)`.
    pub(crate) fn call(title: &'static str, optional: u8) -> Column {
        Column {
            content: Content::Call,
            ..Column::number(title, optional)
        }
    }

    /// A column of lists, most important first.
    pub(crate) fn list(title: &'static str, optional: u8) -> Column {
        Column {
            content: Content::List,
            ..Column::number(title, optional)
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

    /// Where a column has no room, what it says of rows with one name is added to that.
    pub(crate) fn add_to_names(&mut self, name: usize, column: usize, width: Option<usize>) {
        if self.fit(width).0.contains(&column) {
            return;
        }
        let mut rows_of: BTreeMap<String, usize> = BTreeMap::new();
        for row in &self.rows {
            *rows_of.entry(row[name].clone()).or_default() += 1;
        }
        for row in &mut self.rows {
            if rows_of[&row[name]] > 1 && !row[column].is_empty() {
                row[name] = format!("{} {}", row[name], row[column]);
            }
        }
    }

    /// The titles of the columns that have something to say and no room.
    pub(crate) fn left_out(&self, width: Option<usize>) -> Vec<&'static str> {
        let (shown, _) = self.fit(width);
        let left_out = self.filled().filter(|i| !shown.contains(i));
        left_out.map(|i| self.columns[i].title).collect()
    }

    /// The columns that are not empty, and those that always stay.
    fn filled(&self) -> impl Iterator<Item = usize> {
        let empty = |i: usize| self.rows.iter().all(|r| r[i].is_empty());
        (0..self.columns.len()).filter(move |i| self.columns[*i].optional == 0 || !empty(*i))
    }

    /// The finished text. `width` is `None` when lines may be as long as they like.
    pub(crate) fn render(&self, width: Option<usize>, style: Style) -> String {
        let (shown, rooms) = self.fit(width);
        let titles: Vec<String> = self.columns.iter().map(|c| c.title.to_string()).collect();
        let cut = |row: &Vec<String>| -> Vec<String> {
            let cells = shown.iter().map(|i| match self.columns[*i].content {
                Content::Number => row[*i].clone(),
                Content::Name => shorten_name(&row[*i], rooms[*i]),
                Content::Call => shorten_call(&row[*i], rooms[*i]),
                Content::List => shorten_list(&row[*i], rooms[*i]),
            });
            cells.collect()
        };
        let mut lines: Vec<Vec<String>> = std::iter::once(&titles)
            .chain(&self.rows)
            .map(cut)
            .collect();
        for (n, i) in shown.iter().enumerate() {
            if self.columns[*i].content == Content::Name {
                self.tell_apart(&mut lines[1..], n, *i, rooms[*i]);
                // Again, as a new form may be one that another name has.
                self.tell_apart(&mut lines[1..], n, *i, rooms[*i]);
            }
        }
        let width_of = |n: usize| lines.iter().map(|cells| text_width(&cells[n])).max();
        let taken: Vec<usize> = (0..shown.len()).filter_map(width_of).collect();
        let mut out = String::new();
        for (number, cells) in lines.iter().enumerate() {
            let line = self.line(cells, &shown, &taken);
            match number {
                0 => out.push_str(&style.dim(&line)),
                _ => out.push_str(&line),
            }
            out.push('\n');
        }
        out
    }

    /// Names that became one by being cut, as those of two instances of a template do, show what they differ
    /// in. `n`: the place in `lines` of column `i`.
    fn tell_apart(&self, lines: &mut [Vec<String>], n: usize, i: usize, room: usize) {
        let mut whole: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for (cells, row) in lines.iter().zip(&self.rows) {
            whole.entry(cells[n].clone()).or_default().insert(&row[i]);
        }
        let mut taken: BTreeSet<String> = whole.keys().cloned().collect();
        let mut apart: HashMap<&str, String> = HashMap::new();
        for (form, names) in whole.into_iter().filter(|(_, names)| names.len() > 1) {
            let names = Vec::from_iter(names);
            let forms = fit_apart(&names, room);
            taken.remove(&form);
            let free: BTreeSet<&String> = forms.iter().filter(|f| !taken.contains(*f)).collect();
            // A form that another name has tells nothing.
            if free.len() < 2 {
                taken.insert(form);
                continue;
            }
            taken.extend(forms.iter().cloned());
            apart.extend(names.into_iter().zip(forms));
        }
        for (cells, row) in lines.iter_mut().zip(&self.rows) {
            if let Some(name) = apart.get(&*row[i]) {
                cells[n].clone_from(name);
            }
        }
    }

    /// Leaves out columns until the rest fits: those that are shown, and the room that each has.
    fn fit(&self, width: Option<usize>) -> (Vec<usize>, Vec<usize>) {
        let widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(i, column)| {
                let cells = self.rows.iter().map(|r| text_width(&r[i]));
                cells.max().unwrap_or(0).max(text_width(column.title))
            })
            .collect();
        let mut shown: Vec<usize> = self.filled().collect();
        let mut rooms = widths.clone();
        let Some(width) = width else {
            return (shown, rooms);
        };
        let is_text = |i: &usize| self.columns[*i].content != Content::Number;
        loop {
            let last = shown.iter().copied().rfind(is_text);
            let is_least_important = |column: &usize| {
                let mut shown = shown.iter().map(|i| self.columns[*i].optional);
                !shown.any(|optional| optional > self.columns[*column].optional)
            };
            let least = |i: &usize| match is_text(i) {
                true if Some(*i) == last => widths[*i].min(MIN_LAST),
                true if is_least_important(i) => widths[*i].min(MIN_NAME),
                true => (widths[*i].min(MIN_NAME)).max(self.call_with_object(*i).min(MIN_CALL)),
                false => widths[*i],
            };
            if shown.iter().map(|i| least(i) + 2).sum::<usize>() <= width {
                break;
            }
            let optional = |i: &usize| self.columns[*i].optional;
            let least_important = shown.iter().copied().max_by_key(optional);
            match least_important.filter(|i| optional(i) > 0) {
                Some(column) => shown.retain(|i| *i != column),
                None => break,
            }
        }
        // Short texts get all that they need, and the long ones equal parts of the rest.
        let (mut texts, numbers): (Vec<usize>, Vec<usize>) = shown.iter().partition(|i| is_text(i));
        texts.sort_by_key(|i| widths[*i]);
        let gaps = 2 * shown.len();
        let mut left =
            width.saturating_sub(gaps + numbers.iter().map(|i| widths[*i]).sum::<usize>());
        for (done, i) in texts.iter().enumerate() {
            let part = left / (texts.len() - done);
            let least = text_width(self.columns[*i].title).max(LEAST_NAME);
            rooms[*i] = widths[*i].min(part.max(least));
            left = left.saturating_sub(rooms[*i]);
        }
        (shown, rooms)
    }

    /// The width of the longest call with what it waits for, in a column of calls.
    fn call_with_object(&self, column: usize) -> usize {
        let calls = self.rows.iter().map(|row| &row[column]);
        let calls = calls
            .filter(|call| call.ends_with(')'))
            .map(|call| text_width(call));
        match self.columns[column].content {
            Content::Call => calls.max().unwrap_or(0),
            _ => 0,
        }
    }

    /// One line of the columns that are shown, each as wide as it must be.
    fn line(&self, cells: &[String], shown: &[usize], widths: &[usize]) -> String {
        let mut line = String::new();
        for ((i, text), width) in shown.iter().zip(cells).zip(widths) {
            let padding = " ".repeat(width.saturating_sub(text_width(text)));
            let (before, after) = match self.columns[*i].content {
                Content::Number => (&*padding, ""),
                Content::Name | Content::Call | Content::List => ("", &*padding),
            };
            line.extend(["  ", before, text, after]);
        }
        line.trim_end().to_string()
    }
}

fn cut_end(text: &str, room: usize) -> String {
    if text_width(text) <= room {
        return text.to_string();
    }
    format!("{}…", beginning(text, room.saturating_sub(1)))
}

/// What stands between the items of lists, and between the words of a text.
const SEPARATORS: [&str; 3] = [" ← ", ", ", " "];

/// Leaves out the last items of a list that is too long.
pub(crate) fn shorten_list(text: &str, room: usize) -> String {
    if text_width(text) <= room {
        return text.to_string();
    }
    let Some(separator) = SEPARATORS.iter().find(|s| text.contains(**s)) else {
        return shorten_name(text, room);
    };
    let end = format!("{separator}…");
    let mut short = String::new();
    for item in text.split(separator) {
        let more = match short.is_empty() {
            true => item.to_owned(),
            false => format!("{short}{separator}{item}"),
        };
        if text_width(&more) + text_width(&end) > room {
            break;
        }
        short = more;
    }
    if short.is_empty() {
        let first = text.split(separator).next().unwrap_or_default();
        // Of a list of words the first one alone says less than the beginning.
        return match *separator {
            " " => cut_end(text, room),
            _ if room >= 2 * LEAST_NAME + text_width(&end) => {
                shorten_name(first, room - text_width(&end)) + &end
            }
            _ => shorten_name(first, room),
        };
    }
    short + &end
}

/// Cuts a call that is too long so that what it waits for stays: which lock it is says more than the name of
/// the function that takes locks.
fn shorten_call(text: &str, room: usize) -> String {
    let parts = text.strip_suffix(')').and_then(|text| text.split_once('('));
    let Some((call, object)) = parts.filter(|_| text_width(text) > room) else {
        return shorten_name(text, room);
    };
    let room = room.saturating_sub(2);
    let object = shorten(
        object,
        room.saturating_sub(text_width(call).min(LEAST_NAME)),
    );
    let call = shorten(call, room.saturating_sub(text_width(&object)));
    format!("{call}({object})")
}

/// A line that ends with a function's name.
pub(crate) fn line_with_name(before: &str, name: &str, room: usize) -> String {
    let name = shorten_name(name, room.saturating_sub(text_width(before)));
    format!("{before}{name}")
}

/// Cuts a name that is too long so that its last component stays: as [`fit`] does where components stand
/// between `::`; of `json.decoder.raw_decode` the middle goes first, and `raw_decode` last.
pub(crate) fn shorten_name(text: &str, room: usize) -> String {
    if text_width(text) <= room {
        return text.to_string();
    }
    if ["::", "(", "<"].iter().any(|part| text.contains(part)) {
        return fit(text, room).into_owned();
    }
    let name = without_module(text);
    if text_width(name) <= room {
        return name.to_string();
    }
    let last = last_component(name);
    let before = &name[..name.len() - last.len()];
    if before.is_empty() || text_width(last) >= room {
        return shorten(last, room);
    }
    let head = beginning(before, room - text_width(last) - 1);
    format!("{head}…{last}")
}

/// A name without the module that stands behind it: `  [libc.so.6]`.
fn without_module(text: &str) -> &str {
    let module = text.rfind("  [").filter(|_| text.ends_with(']'));
    &text[..module.unwrap_or(text.len())]
}

/// What follows the last `.` that stands between names. An address in a module has no components.
fn last_component(name: &str) -> &str {
    const SUFFIXES: [&str; 5] = ["so", "constprop", "isra", "part", "cold"];
    if name.contains("+0x") {
        return name;
    }
    let begin = name.rmatch_indices('.').find(|(at, _)| {
        // `Class.method`, and neither `libc.so.6` nor `f.constprop.0`.
        let word = &name[at + 1..];
        *at > 0
            && word.starts_with(|c: char| c.is_alphabetic() || c == '_')
            && !SUFFIXES.iter().any(|suffix| word.starts_with(suffix))
    });
    begin.map_or(name, |(at, _)| &name[at + 1..])
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
    fn what_a_call_waits_for_stays() {
        for (text, room, short) in [
            ("fsync", 16, "fsync"),
            ("pthread_mutex_lock(cache)", 25, "pthread_mutex_lock(cache)"),
            ("pthread_mutex_lock(cache)", 20, "pthread_…lock(cache)"),
            (
                "sem_wait(shop::(anonymous namespace)::free)",
                24,
                "sem_wait(shop::(a…:free)",
            ),
            (
                "pthread_rwlock_wrlock(table_of_orders)",
                20,
                "pthr…ock(table_…ers)",
            ),
        ] {
            let shown = shorten_call(text, room);
            assert!(text_width(&shown) <= room, "{shown}");
            assert_eq!(shown, short);
        }
    }

    #[test]
    fn other_columns_yield_to_what_a_call_waits_for() {
        let mut t = Table::new(vec![
            Column::number("TOTAL", 0),
            Column::number("LONGEST", 2),
            Column::call("CALL", 1),
            Column::list("CALLED FROM", 0),
        ]);
        let from = "shop::store::Store::insert ← main";
        t.row(
            ["1 s", "12.5 ms", "pthread_mutex_lock(table)", from]
                .map(String::from)
                .into(),
        );
        let text = |columns| t.render(Some(columns), Style::default());
        assert!(text(80).contains("12.5 ms  pthread_mutex_lock(table)"));
        let narrow = text(70);
        assert!(
            narrow.contains("1 s  pthread_mutex_lock(table)"),
            "{narrow}"
        );
        // There is nothing left that could.
        assert!(text(60).contains("(table)"), "{}", text(60));
    }

    #[test]
    fn instances_of_a_template_stay_two() {
        let mut t = Table::new(vec![Column::text("FUNCTION", 0)]);
        for of in ["read::Map", "read::List"] {
            t.row(vec![format!("parse_any<serde_json::{of}>  [shop]")]);
        }
        t.row(vec!["parse_one<serde_json::read::List>  [shop]".to_owned()]);
        let text = t.render(Some(26), Style::default());
        let rows: Vec<&str> = text.lines().skip(1).map(str::trim).collect();
        assert_eq!(
            rows,
            [
                "parse_any<…Map>  [shop]",
                "parse_any<…List>  [shop]",
                "parse_one  [shop]"
            ]
        );
    }

    #[test]
    fn rows_of_one_name_are_told_apart_where_their_number_has_no_room() {
        let text = |columns| {
            let mut t = Table::new(vec![
                Column::number("RUNNING", 0),
                Column::number("TID", 1),
                Column::text("THREAD", 0),
            ]);
            for (tid, name) in [("4711", "node"), ("4712", "node"), ("4713", "main")] {
                t.row(["1 s", tid, name].map(String::from).into());
            }
            t.add_to_names(2, 1, Some(columns));
            t.render(Some(columns), Style::default())
        };
        assert!(text(80).contains("1 s  4711  node\n"), "{}", text(80));
        let narrow = text(20);
        for row in ["1 s  node 4711\n", "1 s  node 4712\n", "1 s  main\n"] {
            assert!(narrow.contains(row), "{narrow}");
        }
    }

    #[test]
    fn a_narrow_table_leaves_out_columns_and_cuts_names() {
        let text = table().render(Some(50), Style::default());
        assert!(text.lines().all(|l| text_width(l) <= 50), "{text}");
        assert!(!text.contains("ALLOC") && text.contains("CPU"), "{text}");
        assert!(text.contains("a_function_with_a_rat…r_long_name"), "{text}");
        let text = table().render(Some(20), Style::default());
        assert!(text.lines().all(|l| text_width(l) <= 20), "{text}");
        assert!(text.contains("SELF") && text.contains("FUNCTION"), "{text}");
    }

    #[test]
    fn texts_share_the_room_wherever_they_stand() {
        let mut t = Table::new(vec![
            Column::list("CALLED FROM", 0),
            Column::text("ENDED BY", 0),
            Column::list("AT", 0),
        ]);
        let chain = "serve ← accept_connections ← run_until_stopped ← main";
        t.row([chain, "worker-1", chain].map(String::from).into());
        let text = t.render(Some(80), Style::default());
        assert!(text.lines().all(|l| text_width(l) <= 80), "{text}");
        let row = "  serve ← accept_connections ← …  worker-1  serve ← accept_connections ← …";
        assert_eq!(text.lines().last(), Some(row));
    }

    #[test]
    fn the_last_component_of_a_name_stays() {
        for (name, room, short) in [
            (
                "shop::store::Store::insert",
                26,
                "shop::store::Store::insert",
            ),
            ("shop::store::Store::insert", 20, "store::Store::insert"),
            ("shop::store::Store::insert", 8, "insert"),
            ("shop::store::Store::insert", 5, "in…rt"),
            (
                "shop::store::Store::insert  [shop]",
                30,
                "shop::store::Store::insert",
            ),
            ("shop::store::Store::insert  [shop]", 13, "Store::insert"),
            (
                "std::map<std::string, std::vector<int>>::operator[]  [shop]",
                36,
                "std::map::operator[]  [shop]",
            ),
            (
                "ns::parse(std::string const&, std::vector<int> const&)",
                30,
                "ns::parse",
            ),
            ("<T as shop::Reads>::read", 18, "T::read"),
            (
                "json.decoder.JSONDecoder.raw_decode",
                20,
                "json.deco…raw_decode",
            ),
            ("libcrypto.so.3+0x1f2034", 16, "libcrypto.…f2034"),
            (
                "sqlite3VdbeExec  [libsqlite3.so.0.8.6]",
                33,
                "sqlite3VdbeExec",
            ),
        ] {
            let shown = shorten_name(name, room);
            assert!(text_width(&shown) <= room, "{shown}");
            assert_eq!(shown, short);
        }
    }

    #[test]
    fn lists_keep_whole_items() {
        for (list, room, short) in [
            ("poll 200 ms, lock 62.5 ms", 25, "poll 200 ms, lock 62.5 ms"),
            ("poll 200 ms, lock 62.5 ms", 24, "poll 200 ms, …"),
            ("a::b<c, d> ← main", 16, "a::b<c, d> ← …"),
            (
                "shop::store::Store::insert ← main",
                24,
                "store::Store::insert ← …",
            ),
            ("shop::store::Store::insert ← main", 12, "insert"),
            ("load test begins", 12, "load test …"),
            ("loadtestbegins now", 12, "loadtestbeg…"),
        ] {
            let shown = shorten_list(list, room);
            assert!(text_width(&shown) <= room, "{shown}");
            assert_eq!(shown, short);
        }
    }
}
