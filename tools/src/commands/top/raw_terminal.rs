//! The terminal while a live view has it: keys come at once and are not shown, and the screen is one of its
//! own. Whatever ends the view, the terminal is as before.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, getpid, kill_process};
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use super::keys::{Key, keys};

/// Another screen, without a cursor, where long lines are cut (ECMA-48, and xterm's private modes).
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
/// What a terminal has that does not tell its size.
const USUAL_SIZE: (u16, u16) = (80, 24);

/// Signals that end the view, noted until it looks.
#[derive(Clone, Debug, Default)]
pub(super) struct Signals(Arc<AtomicBool>);

impl Signals {
    pub(super) fn note() -> io::Result<Signals> {
        let signals = Signals::default();
        for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&signals.0))?;
        }
        Ok(signals)
    }

    /// Whether one has come.
    pub(super) fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Whether standard input and output are a terminal that can be drawn on.
pub(super) fn can_be_drawn_on() -> bool {
    io::stdin().is_terminal()
        && io::stdout().is_terminal()
        && std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb")
}

/// The terminal, until it is dropped.
pub(super) struct RawTerminal {
    before: Termios,
}

impl RawTerminal {
    pub(super) fn enter() -> io::Result<RawTerminal> {
        let before = tcgetattr(io::stdin())?;
        let terminal = RawTerminal { before };
        terminal.take()?;
        Ok(terminal)
    }

    fn take(&self) -> io::Result<()> {
        let mut raw = self.before.clone();
        raw.local_modes -=
            LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG | LocalModes::IEXTEN;
        raw.input_modes -= InputModes::IXON | InputModes::ICRNL;
        raw.special_codes[SpecialCodeIndex::VMIN] = 1;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(io::stdin(), OptionalActions::Flush, &raw)?;
        write(ENTER)
    }

    fn give_back(&self) -> io::Result<()> {
        let written = write(LEAVE);
        tcsetattr(io::stdin(), OptionalActions::Flush, &self.before)?;
        written
    }

    /// Columns and rows at this moment.
    pub(super) fn size(&self) -> (usize, usize) {
        let size = terminal_size::terminal_size_of(io::stdout());
        let (columns, rows) = size
            .map(|(width, height)| (width.0, height.0))
            .filter(|(columns, rows)| *columns > 0 && *rows > 0)
            .unwrap_or(USUAL_SIZE);
        (usize::from(columns), usize::from(rows))
    }

    /// Shows the lines, and nothing else.
    pub(super) fn draw(&self, lines: &[String]) -> io::Result<()> {
        write(&drawn(lines))
    }

    /// The keys that were pressed, after the time at the latest. `None`: the terminal is gone.
    pub(super) fn wait_for_keys(&self, time: Duration) -> io::Result<Option<Vec<Key>>> {
        let stdin = io::stdin();
        let time = Timespec {
            tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&time)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(Some(Vec::new())),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let mut bytes = [0; 256];
        match rustix::io::read(stdin.as_fd(), &mut bytes) {
            Ok(0) | Err(rustix::io::Errno::IO) => Ok(None),
            Ok(n) => Ok(Some(keys(&bytes[..n]))),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => Ok(Some(Vec::new())),
            Err(error) => Err(error.into()),
        }
    }

    /// Stops this process, as Ctrl-Z does elsewhere, with the terminal as it was; comes back when the shell
    /// continues it.
    pub(super) fn suspend(&self) -> io::Result<()> {
        self.give_back()?;
        kill_process(getpid(), Signal::STOP)?;
        self.take()
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // Of a terminal that is gone nothing can be restored.
        let _ = self.give_back();
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// What draws these lines over others. Each begins by erasing the one that was there: behind a line that
/// fills its row the cursor still stands on the last letter, and that would be erased.
fn drawn(lines: &[String]) -> String {
    match lines.split_last() {
        Some((last, others)) => {
            let others = others.iter().map(|line| format!("\x1b[K{line}\r\n"));
            format!("\x1b[H{}\x1b[J{last}", others.collect::<String>())
        }
        None => "\x1b[H\x1b[J".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_erased_behind_a_line() {
        let text = drawn(&["a".to_owned(), "b".to_owned()]);
        assert_eq!(text, "\x1b[H\x1b[Ka\r\n\x1b[Jb");
    }
}
