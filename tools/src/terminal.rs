//! What the terminal can do: colour, width, and being gone (a broken pipe is success).

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};

use anyhow::{Context, Result, bail};
use clap::ColorChoice;

static COLOR: AtomicU8 = AtomicU8::new(0);

/// Remembers `--color`.
pub(crate) fn set_color(choice: ColorChoice) {
    let value = match choice {
        ColorChoice::Auto => 0,
        ColorChoice::Always => 1,
        ColorChoice::Never => 2,
    };
    COLOR.store(value, Ordering::Relaxed);
}

fn wants_color(is_terminal: bool) -> bool {
    match COLOR.load(Ordering::Relaxed) {
        1 => true,
        2 => false,
        // https://no-color.org: any value but the empty one.
        _ => {
            is_terminal
                && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
                && std::env::var_os("TERM").is_none_or(|v| v != "dumb")
        }
    }
}

/// What styles begin with, and how they end.
const STYLES: [&str; 6] = [
    "\x1b[1m",
    "\x1b[2m",
    "\x1b[32m",
    "\x1b[33m",
    "\x1b[31;1m",
    "\x1b[0m",
];

/// ANSI styles, or nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Style {
    enabled: bool,
}

impl Style {
    /// For text that goes to standard output.
    pub(crate) fn stdout() -> Style {
        Style {
            enabled: wants_color(io::stdout().is_terminal()),
        }
    }

    /// For text that goes to standard error.
    pub(crate) fn stderr() -> Style {
        Style {
            enabled: wants_color(io::stderr().is_terminal()),
        }
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.enabled && !text.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_string()
        }
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }

    pub(crate) fn good(self, text: &str) -> String {
        self.wrap("32", text)
    }

    pub(crate) fn warning(self, text: &str) -> String {
        self.wrap("33", text)
    }

    pub(crate) fn bad(self, text: &str) -> String {
        self.wrap("31;1", text)
    }
}

/// `stackbeat`, in the colour of errors.
pub(crate) fn error_label() -> String {
    Style::stderr().bad("stackbeat")
}

/// Whether a character steers a terminal: control characters (C0, DEL, C1), and those that change the
/// direction of text (Unicode, UAX #9), which make a line read otherwise than it is.
pub(crate) fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A name in one line, without what would steer the terminal: names come from recorded programs.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    if text.chars().any(steers) {
        let shown = |c: char| match c {
            '\n' | '\t' | '\r' => ' ',
            c if steers(c) => '\u{fffd}',
            c => c,
        };
        Cow::Owned(text.chars().map(shown).collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// A finished text as a terminal may get it: its lines, and with `styled` the styles of [`Style`]; nothing
/// else steers.
fn harmless(text: &str, styled: bool) -> Cow<'_, str> {
    let stays = |c: char| matches!(c, '\n' | '\t') || !steers(c);
    if text.chars().all(stays) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let style = STYLES.iter().find(|style| rest.starts_with(**style));
        if let Some(style) = style.filter(|_| styled) {
            out.push_str(style);
            rest = &rest[style.len()..];
            continue;
        }
        out.push(if stays(c) { c } else { '\u{fffd}' });
        rest = &rest[c.len_utf8()..];
    }
    Cow::Owned(out)
}

/// A finished text as a file may get it: without styles, and with nothing that would steer a terminal that
/// shows it.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    let unstyled = STYLES.iter().fold(Cow::Borrowed(text), |text, style| {
        match text.contains(style) {
            true => Cow::Owned(text.replace(style, "")),
            false => text,
        }
    });
    match unstyled {
        Cow::Borrowed(text) => harmless(text, false),
        Cow::Owned(text) => Cow::Owned(harmless(&text, false).into_owned()),
    }
}

/// Columns that a table on standard output may take: `COLUMNS`, the terminal's width, or `None` when
/// nobody wraps lines (a file or a pipe).
pub(crate) fn width() -> Option<usize> {
    let of_terminal = || terminal_size::terminal_size_of(io::stdout());
    columns().or_else(|| of_terminal().map(|(w, _)| usize::from(w.0)))
}

/// The same of standard error.
#[cfg(target_os = "linux")]
pub(crate) fn stderr_width() -> Option<usize> {
    let of_terminal = || terminal_size::terminal_size_of(io::stderr());
    columns().or_else(|| of_terminal().map(|(w, _)| usize::from(w.0)))
}

/// What `COLUMNS` says, if it says something.
fn columns() -> Option<usize> {
    let columns = std::env::var("COLUMNS").ok()?.parse().ok()?;
    (columns > 0).then_some(columns)
}

/// What is said when standard output fails.
pub(crate) const NOT_WRITTEN: &str = "standard output: cannot be written";

/// Writes a finished text to standard output.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let text = harmless(text, wants_color(io::stdout().is_terminal()));
    write_out(text.as_bytes())
}

fn write_out(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(bytes).and_then(|()| out.flush());
    written.context(NOT_WRITTEN)
}

/// Writes a page, which is for a browser, to standard output.
pub(crate) fn print_page(page: &str) -> anyhow::Result<()> {
    match io::stdout().is_terminal() {
        true => print(page),
        false => write_out(page.as_bytes()),
    }
}

/// Writes a line, or finished lines, to standard error.
pub(crate) fn say(text: &str) {
    let text = harmless(text, wants_color(io::stderr().is_terminal()));
    let mut out = io::stderr().lock();
    // Nobody is left to tell.
    let _ = out.write_all(text.trim_end_matches('\n').as_bytes());
    let _ = out.write_all(b"\n");
}

/// A value as indented JSON, with a newline at the end. What would steer a terminal is escaped.
pub(crate) fn json(value: &impl serde::Serialize) -> anyhow::Result<String> {
    Ok(escaped(&serde_json::to_string_pretty(value)?) + "\n")
}

/// The same, in one line.
pub(crate) fn json_line(value: &impl serde::Serialize) -> anyhow::Result<String> {
    Ok(escaped(&serde_json::to_string(value)?) + "\n")
}

/// Writes a value as indented JSON.
pub(crate) fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    print(&json(value)?)
}

/// In JSON such characters stand in strings only, where those below U+0020 are escaped already (RFC 8259, 7).
pub(crate) fn escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match steers(c) && c != '\n' {
            true => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => out.push(c),
        }
    }
    out
}

/// True when the reader of our output went away: not an error of anybody's.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// A file is only replaced by who says so. Pipes and devices are there before.
pub(crate) fn refuse_to_replace(output: &Path, force: bool) -> Result<()> {
    if output.is_file() && !force {
        bail!(exists_already(output));
    }
    Ok(())
}

/// `NAME.EXTENSION` in a folder, or `NAME.2.EXTENSION` and so on where that is there and is not to be
/// replaced. For names that nobody has typed; those are refused ([`refuse_to_replace`]).
pub(crate) fn unused(folder: &Path, name: &str, extension: &str, replace: bool) -> PathBuf {
    let first = folder.join(format!("{name}.{extension}"));
    if replace || !first.exists() {
        return first;
    }
    (2u32..)
        .map(|n| folder.join(format!("{name}.{n}.{extension}")))
        .find(|path| !path.exists())
        .unwrap_or(first)
}

/// What is said of an output that would be replaced.
pub(crate) fn exists_already(output: &Path) -> String {
    format!(
        "{}: exists already; choose another name, or replace it with --force",
        output.display()
    )
}

/// Prints a warning in the style of all messages.
pub(crate) fn warn(text: &str) {
    let label = Style::stderr().warning("stackbeat: warning");
    say(&format!("{label}: {text}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_steer_the_terminal() {
        assert_eq!(clean("plain"), "plain");
        assert_eq!(
            clean("a\nb\x1b[31mred\u{9b}x"),
            "a b\u{fffd}[31mred\u{fffd}x"
        );
        assert_eq!(clean("a\u{202e}txt.exe\u{7f}"), "a\u{fffd}txt.exe\u{fffd}");
    }

    #[test]
    fn of_a_text_only_our_own_styles_pass() {
        let style = Style { enabled: true };
        let text = format!("{}: \x1b[2Jgone\x1b[1\r\u{9b}x\ty\n", style.bad("no"));
        let shown = "\x1b[31;1mno\x1b[0m: \u{fffd}[2Jgone\u{fffd}[1\u{fffd}\u{fffd}x\ty\n";
        assert_eq!(harmless(&text, true), shown);
        assert!(!harmless(&text, false).contains('\x1b'));
        let shown = "no: \u{fffd}[2Jgone\u{fffd}[1\u{fffd}\u{fffd}x\ty\n";
        assert_eq!(plain(&text), shown);
        assert_eq!(plain(shown), shown);
        for styled in [
            style.bold("a"),
            style.dim("a"),
            style.good("a"),
            style.warning("a"),
            style.bad("a"),
        ] {
            assert_eq!(harmless(&styled, true), styled);
        }
    }

    #[test]
    fn json_says_the_same_without_steering() {
        let name = "a\x1b[31m\u{7f}\u{9b}\u{202e}é\n";
        for text in [json(&[name]), json_line(&[name])] {
            let text = text.expect("serializes");
            assert!(
                !text.trim_end().chars().any(|c| steers(c) && c != '\n'),
                "{text}"
            );
            let read: Vec<String> = serde_json::from_str(&text).expect("is JSON");
            assert_eq!(read, [name]);
        }
    }
}
