//! `stackbeat top`: what a running process does now.
//!
//! A session says what it holds of the last seconds by a dump, which goes through the same sums and tables as
//! a trace does in `report`. So the view has nothing of its own but the terminal.
//!
//! Dumps are read on a thread of their own: keys are answered meanwhile.

mod keys;
mod live_names;
mod raw_terminal;
mod screen;
mod source;

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use self::keys::Key;
use self::raw_terminal::{RawTerminal, Signals, can_be_drawn_on};
use self::screen::View;
use self::source::{Found, Moment, Source};
use crate::cli::local::TopArgs;
use crate::cli::local::top::{LEAST_PERIOD_NS, MOST_PERIOD_NS};
use crate::render::text::section::Section;
use crate::summary::sort_key::SortKey;
use crate::terminal::{self, Style};

/// How often signals, answers and the size of the terminal are looked at.
const POLL: Duration = Duration::from_millis(50);
/// The first screen of a process that was just attached to comes soon.
const FIRST: Duration = Duration::from_millis(500);
/// A session is left alone for so many times as long as it took to answer.
const REST: u32 = 4;
/// Columns where nothing says how wide the output is.
const COLUMNS: usize = 100;

/// Runs the command.
pub(crate) fn run(args: &TopArgs) -> Result<u8> {
    let signals = Signals::note().context("signals cannot be noted")?;
    let Found {
        held,
        source,
        only_pid,
    } = source::find(args, &|| !signals.came())?;
    let view = View {
        section: None,
        sort: args.sort,
        scrolled: 0,
        is_paused: false,
        is_whole: false,
        every_ns: args.every,
        shows_help: false,
        only_pid,
        is_own: held.is_own(),
    };
    match args.once || !can_be_drawn_on() {
        true => print_once(source, &view, &signals)?,
        false => Live::begin(source, view, signals)?.run()?,
    }
    // Detaches, with the terminal as it was.
    drop(held);
    Ok(0)
}

/// One screen, after as long as it is about.
fn print_once(mut source: Source, view: &View, signals: &Signals) -> Result<()> {
    let until = Instant::now() + Duration::from_nanos(view.every_ns);
    while view.is_own && Instant::now() < until && !signals.came() {
        thread::sleep(POLL);
    }
    let Some(moment) = source.moment(Some(view.every_ns))? else {
        bail!("the recording has ended; `stackbeat record` keeps one");
    };
    let columns = terminal::width().unwrap_or(COLUMNS);
    let lines = screen::lines(Some(&moment), None, view, columns, None, Style::stdout());
    terminal::print(&(lines.join("\n") + "\n"))
}

/// A view on a terminal.
struct Live {
    view: View,
    signals: Signals,
    terminal: RawTerminal,
    style: Style,
    /// What is asked of the session: how far back.
    ask: Sender<Option<u64>>,
    answers: Receiver<Result<Option<Moment>>>,
    /// When the question was asked that is not answered.
    asked_at: Option<Instant>,
    next_at: Instant,
    moment: Option<Moment>,
    trouble: Option<String>,
    has_ended: bool,
}

impl Live {
    fn begin(mut source: Source, view: View, signals: Signals) -> Result<Live> {
        let (ask, asked) = channel();
        let (answer, answers) = channel();
        thread::Builder::new()
            .name("stackbeat top".to_owned())
            .spawn(move || {
                for last_ns in asked {
                    if answer.send(source.moment(last_ns)).is_err() {
                        break;
                    }
                }
            })
            .context("no thread for reading the session")?;
        let wait = match view.is_own {
            true => FIRST.min(Duration::from_nanos(view.every_ns)),
            false => Duration::ZERO,
        };
        Ok(Live {
            view,
            signals,
            terminal: RawTerminal::enter().context("the terminal cannot be set up")?,
            style: Style::stdout(),
            ask,
            answers,
            asked_at: None,
            next_at: Instant::now() + wait,
            moment: None,
            trouble: None,
            has_ended: false,
        })
    }

    /// Until the user, a signal or the loss of the terminal ends it.
    fn run(mut self) -> Result<()> {
        let mut drawn_size = (0, 0);
        while !self.signals.came() {
            self.ask_if_due();
            let mut is_new = self.take_answers()?;
            let Ok(Some(keys)) = self.terminal.wait_for_keys(POLL) else {
                break;
            };
            for key in keys {
                is_new = true;
                if self.view.shows_help && !matches!(key, Key::Interrupt | Key::Suspend) {
                    self.view.shows_help = false;
                    continue;
                }
                match key {
                    Key::Char('q' | 'Q') | Key::Interrupt => return Ok(()),
                    Key::Suspend => self.terminal.suspend()?,
                    key => self.press(key),
                }
            }
            let size = self.terminal.size();
            if (is_new || size != drawn_size) && self.draw(size).is_err() {
                break;
            }
            drawn_size = size;
        }
        Ok(())
    }

    fn ask_if_due(&mut self) {
        let is_idle = self.asked_at.is_none() && !self.view.is_paused && !self.has_ended;
        if is_idle && Instant::now() >= self.next_at {
            let last_ns = (!self.view.is_whole).then_some(self.view.every_ns);
            self.asked_at = self.ask.send(last_ns).is_ok().then(Instant::now);
        }
    }

    /// Whether there is something new to show.
    fn take_answers(&mut self) -> Result<bool> {
        let Ok(answer) = self.answers.try_recv() else {
            return Ok(false);
        };
        let now = Instant::now();
        let asked_at = self.asked_at.take().unwrap_or(now);
        self.next_at = now.max(asked_at + self.period());
        match answer {
            Ok(Some(moment)) => {
                self.trouble = None;
                self.next_at = self.next_at.max(now + moment.took * REST);
                self.moment = Some(moment);
            }
            Ok(None) => {
                self.has_ended = true;
                self.trouble = Some("the program or its recording has ended: q quits".to_owned());
            }
            // What cannot be asked once cannot be shown.
            Err(error) if self.moment.is_none() => return Err(error),
            Err(error) => self.trouble = Some(format!("{error:#}")),
        }
        Ok(true)
    }

    fn period(&self) -> Duration {
        Duration::from_nanos(self.view.every_ns)
    }

    fn draw(&self, (columns, rows): (usize, usize)) -> std::io::Result<()> {
        let waiting = match self.moment {
            None if self.trouble.is_none() => Some("the first samples are on their way …"),
            _ => self.trouble.as_deref(),
        };
        let moment = self.moment.as_ref();
        let lines = screen::lines(moment, waiting, &self.view, columns, Some(rows), self.style);
        self.terminal.draw(&lines)
    }

    fn press(&mut self, key: Key) {
        const PAGE: isize = 10;
        let moment = self.moment.as_ref();
        match key {
            Key::Char('?' | 'h') => self.view.shows_help = true,
            Key::Char('s') => self.view.sort = next_sort(self.view.sort),
            Key::Char('p' | ' ') => {
                self.view.is_paused ^= true;
                self.next_at = Instant::now();
            }
            Key::Char('c') => {
                self.view.is_whole ^= true;
                self.next_at = Instant::now();
            }
            Key::Char('+' | '=') => self.set_period(self.view.every_ns.saturating_mul(2)),
            Key::Char('-') => self.set_period(self.view.every_ns / 2),
            Key::Tab => self.view.next_section(),
            Key::Char('t') => self.show(Some(Section::Threads)),
            Key::Char('f') => self.show(Some(Section::Functions)),
            Key::Char('w') => self.show(Some(Section::Blocking)),
            Key::Escape => self.show(None),
            Key::Up | Key::Char('k') => self.view.scroll(-1, moment),
            Key::Down | Key::Char('j') => self.view.scroll(1, moment),
            Key::PageUp => self.view.scroll(-PAGE, moment),
            Key::PageDown => self.view.scroll(PAGE, moment),
            Key::Home => self.view.scrolled = 0,
            Key::Char(_) | Key::Interrupt | Key::Suspend | Key::Redraw => {}
        }
    }

    fn show(&mut self, section: Option<Section>) {
        self.view.section = section;
        self.view.scrolled = 0;
    }

    fn set_period(&mut self, ns: u64) {
        self.view.every_ns = ns.clamp(LEAST_PERIOD_NS, MOST_PERIOD_NS);
        self.next_at = self.next_at.min(Instant::now() + self.period());
    }
}

fn next_sort(sort: SortKey) -> SortKey {
    let mut all = SortKey::value_variants().iter().cycle();
    all.find(|other| **other == sort);
    all.next().copied().unwrap_or(sort)
}
