//! What the terminal can do: colour, width, and being gone (a broken pipe is success).

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU8, Ordering};

use clap::ColorChoice;

static COLOR: AtomicU8 = AtomicU8::new(0);

/// Remembers `--color`.
pub fn set_color(choice: ColorChoice) {
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

/// ANSI styles, or nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    enabled: bool,
}

impl Style {
    /// For text that goes to standard output.
    pub fn stdout() -> Style {
        Style {
            enabled: wants_color(io::stdout().is_terminal()),
        }
    }

    /// For text that goes to standard error.
    pub fn stderr() -> Style {
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

    pub fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    pub fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }

    pub fn good(self, text: &str) -> String {
        self.wrap("32", text)
    }

    pub fn warning(self, text: &str) -> String {
        self.wrap("33", text)
    }

    pub fn bad(self, text: &str) -> String {
        self.wrap("31;1", text)
    }
}

/// `stackbeat`, in the colour of errors.
pub fn error_label() -> String {
    Style::stderr().bad("stackbeat")
}

/// A name without what would steer the terminal: names come from recorded programs.
pub fn clean(text: &str) -> Cow<'_, str> {
    if text.chars().any(char::is_control) {
        let shown = |c: char| match c {
            '\n' | '\t' | '\r' => ' ',
            c if c.is_control() => '\u{fffd}',
            c => c,
        };
        Cow::Owned(text.chars().map(shown).collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// Columns that a table on standard output may take: `COLUMNS`, the terminal's width, or `None` when
/// nobody wraps lines (a file or a pipe).
pub fn width() -> Option<usize> {
    if let Some(columns) = std::env::var("COLUMNS").ok().and_then(|v| v.parse().ok()) {
        return Some(columns);
    }
    terminal_size::terminal_size_of(io::stdout()).map(|(w, _)| usize::from(w.0))
}

/// Columns of standard error, when it is a terminal.
pub fn stderr_width() -> Option<usize> {
    terminal_size::terminal_size_of(io::stderr()).map(|(w, _)| usize::from(w.0))
}

/// Writes a finished text to standard output.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Writes a value as indented JSON, with a newline at the end.
pub fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    print(&text)
}

/// True when the reader of our output went away: not an error of anybody's.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    })
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
    }
}
