//! Programs of the recorded tree that ran without an agent.

use std::collections::BTreeMap;

use stackbeat_proto::v1;
pub use stackbeat_proto::v1::unrecorded::Reason;

/// Longest name of a thread (TASK_COMM_LEN of include/linux/sched.h, without its NUL).
const COMM_BYTES: usize = 15;

/// All processes that ran the same program unrecorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnrecordedProgram {
    /// The file name of what was started, else the executable's.
    pub name: String,
    /// Path of the executable, or all that is known of it; may be empty.
    pub executable: String,
    /// Why it was not recorded.
    pub reason: Reason,
    /// How many processes.
    pub processes: u64,
    /// CPU time of its own, up to the last look at each.
    pub cpu_ns: u64,
}

/// Sums over processes that ran unrecorded.
#[derive(Clone, Debug, Default)]
pub struct UnrecordedSums {
    programs: BTreeMap<(String, String, i32), (u64, u64)>,
}

impl UnrecordedSums {
    /// Adds a process that ran unrecorded.
    pub fn add(&mut self, process: &v1::Unrecorded) {
        let path = match (
            process.executable.as_str(),
            process.command_line.first().map(String::as_str),
        ) {
            ("", first) => first.unwrap_or_default(),
            (executable, _) => executable,
        };
        let named = match process.started_as.as_str() {
            "" => path,
            started_as => started_as,
        };
        let name = match named.rsplit('/').next() {
            Some(name) if !name.is_empty() => name.to_owned(),
            _ => format!("pid {}", process.pid),
        };
        let key = (name, path.to_owned(), process.reason);
        let (processes, cpu_ns) = self.programs.entry(key).or_default();
        *processes += 1;
        *cpu_ns += process.cpu_ns;
    }

    /// CPU time of all of them.
    pub fn cpu_ns(&self) -> u64 {
        self.programs
            .values()
            .map(|(_, cpu_ns)| *cpu_ns)
            .fold(0, u64::saturating_add)
    }

    /// By CPU time, most first.
    pub fn programs(&self) -> Vec<UnrecordedProgram> {
        // Of a process that was met at its end a thread's name is all that is known: the start of the
        // program's.
        let is_known = |executable: &str| executable.contains('/');
        let mut programs: Vec<UnrecordedProgram> = Vec::new();
        for ((name, executable, reason), (processes, cpu_ns)) in &self.programs {
            programs.push(UnrecordedProgram {
                name: name.clone(),
                executable: executable.clone(),
                reason: Reason::try_from(*reason).unwrap_or(Reason::NotKnown),
                processes: *processes,
                cpu_ns: *cpu_ns,
            });
        }
        let (mut known, named): (Vec<_>, Vec<_>) = programs
            .into_iter()
            .partition(|program| is_known(&program.executable));
        for program in named {
            let same = (known.iter_mut()).find(|k| {
                let shown = k.name.get(..COMM_BYTES).unwrap_or(&k.name);
                shown == program.name
            });
            match same {
                Some(same) => {
                    same.processes += program.processes;
                    same.cpu_ns += program.cpu_ns;
                }
                None => known.push(program),
            }
        }
        known.sort_by_key(|p| std::cmp::Reverse(p.cpu_ns));
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_met_at_its_end_counts_with_its_program() {
        let mut sums = UnrecordedSums::default();
        let mut add = |executable: &str, first: &str, reason: Reason, cpu_ns| {
            sums.add(&v1::Unrecorded {
                pid: 7,
                executable: executable.to_owned(),
                command_line: vec![first.to_owned()],
                cpu_ns,
                reason: reason.into(),
                ..v1::Unrecorded::default()
            });
        };
        let long = "/opt/a_rather_long_name";
        add(long, "a", Reason::Static, 10);
        add("", "a_rather_long_n", Reason::NotKnown, 1);
        add("", "other", Reason::NotKnown, 20);
        assert_eq!(sums.cpu_ns(), 31);
        let programs = sums.programs();
        let shown: Vec<_> = programs
            .iter()
            .map(|p| (p.name.as_str(), p.reason, p.processes, p.cpu_ns))
            .collect();
        assert_eq!(
            shown,
            [
                ("other", Reason::NotKnown, 1, 20),
                ("a_rather_long_name", Reason::Static, 2, 11)
            ]
        );
    }
}
