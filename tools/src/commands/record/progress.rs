//! The one line that says where a recording stands.
//!
//! It is drawn only while nothing else can be writing to the terminal: when the program's output goes
//! elsewhere, and again once the program has ended.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use stackbeat_collector::session::{Progress, Status};

use crate::terminal;
use crate::units::{self, plural};

/// A quick recording needs no progress.
const FIRST_AFTER: Duration = Duration::from_millis(500);
const REDRAW_AFTER: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) struct Display {
    quiet: bool,
    /// Standard error is a terminal that understands `\r` and erasing.
    terminal: bool,
    /// The program writes to the same terminal.
    shared: bool,
    drawn: bool,
    last: Instant,
    said_write_failing: bool,
}

impl Display {
    pub(crate) fn new(quiet: bool) -> Display {
        let terminal = io::stderr().is_terminal()
            && std::env::var_os("TERM").is_some_and(|t| !t.is_empty() && t != "dumb");
        Display {
            quiet,
            terminal: terminal && !quiet,
            shared: io::stdout().is_terminal(),
            drawn: false,
            last: Instant::now(),
            said_write_failing: false,
        }
    }

    pub(crate) fn show(&mut self, progress: &Progress) {
        match progress {
            Progress::Warning(warning) => {
                self.clear();
                if !self.quiet {
                    crate::terminal::warn(&warning.to_string());
                }
            }
            Progress::Started { .. } => {}
            Progress::Recording(status) => self.recording(status),
            Progress::Dumped { reason, result } => {
                self.clear();
                if let Some(reason) = reason.as_ref().filter(|_| !self.quiet) {
                    terminal::say(&format!("stackbeat: {reason}"));
                }
                match result {
                    Err(error) => crate::terminal::warn(&format!("no dump was written: {error}")),
                    Ok(dump) if !self.quiet => {
                        terminal::say(&format!(
                            "stackbeat: dumped the last {}, {} → {}",
                            units::duration(dump.covered_ns),
                            plural(dump.samples, "sample", "samples"),
                            dump.output
                        ));
                    }
                    Ok(_) => {}
                }
            }
            Progress::WaitingForChildren { processes } => {
                self.draw(&format!("waiting for {processes} child processes"));
            }
            Progress::Symbolizing {
                done,
                total,
                fetching,
            } => {
                let fetching = fetching.as_ref().map(|what| format!("; {what}"));
                let fetching = fetching.unwrap_or_default();
                self.draw(&format!("looking up names: {done} of {total}{fetching}"));
            }
        }
    }

    fn recording(&mut self, status: &Status) {
        if status.write_failing && !self.said_write_failing && !self.quiet {
            self.said_write_failing = true;
            self.clear();
            crate::terminal::warn(
                "the trace cannot be written at the moment; what comes is counted as lost",
            );
        }
        if self.shared || status.elapsed < FIRST_AFTER {
            return;
        }
        let mut line = format!(
            "recording {}: {}, {}, {}, {}",
            units::duration(status.elapsed.as_nanos() as u64),
            plural(status.live_processes.into(), "process", "processes"),
            plural(status.live_threads.into(), "thread", "threads"),
            plural(status.samples, "sample", "samples"),
            units::bytes(status.bytes),
        );
        if status.lost > 0 {
            line.push_str(&format!(", {} lost", units::count(status.lost)));
        }
        self.draw(&line);
    }

    fn draw(&mut self, text: &str) {
        if !self.terminal || (self.drawn && self.last.elapsed() < REDRAW_AFTER) {
            return;
        }
        let width = crate::terminal::stderr_width().unwrap_or(80);
        let text: String = text.chars().take(width.saturating_sub(12)).collect();
        // Leaves the cursor at the line's start: whatever comes next writes over it.
        let _ = write!(io::stderr(), "\r\x1b[Kstackbeat: {text}\r");
        let _ = io::stderr().flush();
        self.drawn = true;
        self.last = Instant::now();
    }

    /// Takes the line away.
    pub(crate) fn clear(&mut self) {
        if self.drawn {
            let _ = write!(io::stderr(), "\r\x1b[K");
            let _ = io::stderr().flush();
            self.drawn = false;
        }
    }
}
