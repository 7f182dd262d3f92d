//! The parts of a report: which of them are shown, and how long each may be.

use clap::ValueEnum;

/// A part of the report, by the name that `--section` takes. In the order in which they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Section {
    /// Threads that waited for each other's locks.
    Deadlocks,
    /// What each thread did.
    Threads,
    /// Where the time was spent.
    Functions,
    /// Calls that waited, by who made them.
    Blocking,
    /// Long waits, with who ended them and who held the lock.
    Waits,
    /// System calls and bytes, by thread and by who makes them; wake-ups.
    Calls,
    /// Scopes of the program.
    Scopes,
    /// Counters of the program and of the recorder.
    Counters,
    /// Marks, and settings that were changed.
    Events,
    /// What the trace does not have.
    Losses,
}

impl Section {
    /// What `--section` calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Section::Deadlocks => "deadlocks",
            Section::Threads => "threads",
            Section::Functions => "functions",
            Section::Blocking => "blocking",
            Section::Waits => "waits",
            Section::Calls => "calls",
            Section::Scopes => "scopes",
            Section::Counters => "counters",
            Section::Events => "events",
            Section::Losses => "losses",
        }
    }

    /// Lines of its table on the first screen; `None`: it is not there.
    fn lines_on_screen(self) -> Option<usize> {
        match self {
            Section::Deadlocks => Some(1),
            Section::Threads => Some(5),
            Section::Functions => Some(8),
            Section::Blocking => Some(5),
            Section::Losses => Some(4),
            Section::Waits
            | Section::Calls
            | Section::Scopes
            | Section::Counters
            | Section::Events => None,
        }
    }
}

/// Lines of a table that is asked for, when nothing says how many.
const LINES: usize = 15;

/// What of the report is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// What fits a screen.
    Screen,
    All,
    Only(Vec<Section>),
}

impl Shown {
    /// How long the table of a section may be; `None`: it is not shown. `asked`: lines that were asked for.
    pub(crate) fn lines(&self, section: Section, asked: Option<usize>) -> Option<usize> {
        let usual = match self {
            Shown::Screen => section.lines_on_screen()?,
            Shown::All => LINES,
            Shown::Only(sections) if sections.contains(&section) => LINES,
            Shown::Only(_) => return None,
        };
        Some(asked.unwrap_or(usual))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_flag() {
        for section in Section::value_variants() {
            let value = section.to_possible_value().expect("is not hidden");
            assert_eq!(value.get_name(), section.name());
        }
    }
}
