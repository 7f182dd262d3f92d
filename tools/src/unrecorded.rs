//! Programs of the recorded tree that ran without an agent, in words.

use serde::Serialize;
use stackbeat_model::{Reason, UnrecordedProgram};

use crate::units::{self, plural};

/// Programs named in a line.
const NAMED: usize = 3;
/// CPU time that is in no process that was seen and is worth a word, ns: below are starts and ends of
/// processes.
const UNSEEN_NS: u64 = 10_000_000;

/// All processes that ran the same program unrecorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct UnrecordedRow {
    pub name: String,
    pub executable: String,
    /// `static`, `privileged`, `architecture`, `loader`, `not_followed`, `sandbox`, `user`, `not_known`.
    pub reason: &'static str,
    pub processes: u64,
    pub cpu_ns: u64,
    #[serde(skip)]
    because: &'static str,
}

impl From<&UnrecordedProgram> for UnrecordedRow {
    fn from(program: &UnrecordedProgram) -> UnrecordedRow {
        let (reason, because) = match program.reason {
            Reason::Static => (
                "static",
                "statically linked, so no call of it can be hooked",
            ),
            Reason::Privileged => ("privileged", "setuid or with capabilities"),
            Reason::Architecture => ("architecture", "built for another machine"),
            Reason::Loader => ("loader", "another dynamic loader than glibc's"),
            Reason::NotFollowed => ("not_followed", "children are not followed"),
            Reason::Sandbox => ("sandbox", "in a sandbox (seccomp) that keeps the agent out"),
            Reason::User => (
                "user",
                "another user's, who may not open the recording's memory",
            ),
            Reason::NotKnown => ("not_known", "no agent was loaded into it"),
        };
        UnrecordedRow {
            name: program.name.clone(),
            executable: program.executable.clone(),
            reason,
            processes: program.processes,
            cpu_ns: program.cpu_ns,
            because,
        }
    }
}

/// The rows of a trace or a recording.
pub(crate) fn rows(programs: &[UnrecordedProgram]) -> Vec<UnrecordedRow> {
    programs.iter().map(UnrecordedRow::from).collect()
}

/// What ran unrecorded, in one line; `None`: nothing.
pub(crate) fn text(rows: &[UnrecordedRow], unseen_ns: u64) -> Option<String> {
    if rows.is_empty() {
        return None;
    }
    let mut parts: Vec<String> = rows.iter().take(NAMED).map(one).collect();
    if let Some(more) = rows.get(NAMED..).filter(|more| !more.is_empty()) {
        let cpu_ns = more
            .iter()
            .map(|row| row.cpu_ns)
            .fold(0, u64::saturating_add);
        parts.push(format!(
            "{} ({})",
            plural(more.len() as u64, "more program", "more programs"),
            units::duration(cpu_ns)
        ));
    }
    let mut text = parts.join(", ");
    if unseen_ns >= UNSEEN_NS {
        text.push_str(&format!(
            "; {} of CPU time more in processes too short to be seen, and in starts and ends of all",
            units::duration(unseen_ns)
        ));
    }
    Some(text)
}

fn one(row: &UnrecordedRow) -> String {
    let processes = match row.processes {
        1 => String::new(),
        n => format!("{}, ", plural(n, "process", "processes")),
    };
    format!(
        "{} ({processes}{} of CPU time; {})",
        row.name,
        units::duration(row.cpu_ns),
        row.because
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(name: &str, reason: Reason, processes: u64, cpu_ms: u64) -> UnrecordedProgram {
        UnrecordedProgram {
            name: name.to_owned(),
            executable: format!("/bin/{name}"),
            reason,
            processes,
            cpu_ns: cpu_ms * 1_000_000,
        }
    }

    #[test]
    fn a_line_names_the_heaviest_programs() {
        let programs = [
            program("compile", Reason::Static, 50, 14_000),
            program("go", Reason::Static, 1, 1_200),
            program("sudo", Reason::Privileged, 1, 20),
            program("busybox", Reason::Static, 2, 3),
            program("sh", Reason::NotFollowed, 1, 1),
        ];
        assert_eq!(
            text(&rows(&programs), 300_000_000).as_deref(),
            Some(
                "compile (50 processes, 14.0 s of CPU time; statically linked, so no call of it can be hooked), go (1.20 s of CPU \
                 time; statically linked, so no call of it can be hooked), sudo (20.0 ms of CPU time; setuid or with capabilities), \
                 2 more programs (4.00 ms); 300 ms of CPU time more in processes too short to be seen, and in starts \
                 and ends of all"
            )
        );
        assert_eq!(text(&[], 300_000_000), None);
    }
}
