//! Parts of the run, which are compared where the whole is worse: processes and roles of threads.

use std::collections::BTreeMap;

use stackbeat_model::metric::Metric;

use super::{Judge, Row};
use crate::run::RoleId;
use crate::run_table::PerRun;
use crate::stats::median;

/// A metric of all threads of the processes with one name.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessRow {
    /// Name of the processes' program.
    pub process: String,
    /// The metric, and how it changed.
    pub row: Row,
}

/// A metric of a role's threads.
#[derive(Clone, Debug, PartialEq)]
pub struct RoleRow {
    /// The threads.
    pub role: RoleId,
    /// The metric, and how it changed.
    pub row: Row,
}

impl Judge<'_> {
    /// Roles, by the metrics that the whole run is worse in.
    pub(super) fn roles(&self, worse: &[Metric]) -> Vec<RoleRow> {
        let roles = self.table.roles();
        let rows = self.below(worse, &roles, &|role, metric| {
            self.table.role(*role, metric)
        });
        rows.into_iter()
            .map(|(role, row)| RoleRow { role: *role, row })
            .collect()
    }

    /// The same for processes.
    pub(super) fn processes(&self, worse: &[Metric]) -> Vec<ProcessRow> {
        let mut processes: BTreeMap<&str, Vec<RoleId>> = BTreeMap::new();
        for role in self.table.roles() {
            let process = &self.table.names.roles()[role.0 as usize].process;
            processes.entry(process).or_default().push(role);
        }
        let is_more_than_a_role = processes.values().any(|roles| roles.len() > 1);
        if processes.len() < 2 || !is_more_than_a_role {
            return Vec::new();
        }
        let processes: Vec<_> = processes.into_iter().collect();
        let rows = self.below(worse, &processes, &|(_, roles), metric| {
            let columns = roles.iter().map(|role| self.table.role(*role, metric));
            let add =
                |sum: PerRun, more: PerRun| sum.iter().zip(more).map(|(a, b)| a + b).collect();
            columns.reduce(add).unwrap_or_default()
        });
        rows.into_iter()
            .map(|((process, _), row)| ProcessRow {
                process: (*process).to_owned(),
                row,
            })
            .collect()
    }

    /// Parts of the run, by the metrics that the whole is worse in: a family for each metric.
    fn below<'p, P>(
        &self,
        worse: &[Metric],
        parts: &'p [P],
        of: &dyn Fn(&P, Metric) -> PerRun,
    ) -> Vec<(&'p P, Row)> {
        let mut rows = Vec::new();
        for metric in worse {
            let columns: Vec<(&P, PerRun)> = parts
                .iter()
                .map(|part| (part, of(part, *metric)))
                .filter(|(_, column)| {
                    let (baseline, candidate) = self.table.split(column);
                    median(baseline).max(median(candidate)) >= self.floor(*metric)
                })
                .collect();
            let family: Vec<_> = columns.iter().map(|(_, c)| (*metric, c)).collect();
            let adjusted = self.adjusted(&family);
            for ((part, column), p) in columns.iter().zip(adjusted) {
                let row = Row {
                    metric: *metric,
                    comparison: self.compare(column, *metric, metric.is_exact()),
                    adjusted_p: Some(p),
                };
                rows.push((*part, row));
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use stackbeat_model::metric::Values;

    use super::*;
    use crate::compare::Answer;
    use crate::decide::judge;
    use crate::random::Random;
    use crate::rules::Rules;
    use crate::run::{About, Builder, Names, Role, Run, Side};
    use crate::run_table::RunTable;

    /// Runs of threads that compute so long, by process and thread: ms in the baseline and in the candidate,
    /// and how many runs these have. 0: there is no such thread.
    fn processes_of(counts: [u64; 2], threads: &[(&str, &str, [u64; 2])]) -> Vec<ProcessRow> {
        let mut names = Names::default();
        let mut random = Random::new(7);
        let mut run = |side: Side, number: u64| -> Run {
            let about = About {
                label: format!("{}-{number}", side.name()),
                started_unix_ns: number,
                complete: true,
                ..About::default()
            };
            let mut builder = Builder::new(side, about);
            let mut whole = 0;
            for (process, thread, ms) in threads {
                let role = names.role(Role {
                    process: (*process).into(),
                    thread: (*thread).into(),
                    is_root: false,
                });
                let noise = random.below(1_000_000) as u64;
                let ms = ms[usize::from(side == Side::Candidate)];
                if ms == 0 {
                    continue;
                }
                let cpu_ns = ms * 1_000_000 + noise;
                whole += cpu_ns;
                let mut values = Values::default();
                values.set(Metric::Cpu, cpu_ns);
                builder.thread(role, &values);
            }
            builder.finish(whole)
        };
        let sides = [(Side::Baseline, counts[0]), (Side::Candidate, counts[1])];
        let runs = sides.map(|(side, count)| {
            let runs = (0..count).map(|number| run(side, number));
            runs.collect::<Vec<Run>>()
        });
        let runs = runs.into_iter().flatten().collect();
        judge(&RunTable::new(runs, names), &Rules::default()).processes
    }

    #[test]
    fn threads_of_a_process_are_compared_together() {
        let rows = processes_of(
            [8, 8],
            &[
                ("server", "main", [100, 120]),
                ("server", "worker-*", [200, 230]),
                ("client", "main", [100, 100]),
            ],
        );
        let of_cpu = rows.iter().filter(|p| p.row.metric == Metric::Cpu);
        let of_cpu: Vec<_> = of_cpu
            .map(|p| {
                let c = &p.row.comparison;
                (p.process.as_str(), c.answer, (c.shift / 1e6).round())
            })
            .collect();
        assert_eq!(
            of_cpu,
            [
                ("client", Answer::Same, 0.0),
                ("server", Answer::Higher, 50.0)
            ]
        );
    }

    #[test]
    fn what_only_the_candidate_has_is_compared_however_few_its_runs_are() {
        let rows = processes_of(
            [16, 5],
            &[
                ("server", "main", [100, 100]),
                ("server", "worker-*", [200, 200]),
                ("helper", "main", [0, 50]),
            ],
        );
        let is_helper = |p: &&ProcessRow| p.process == "helper" && p.row.metric == Metric::Cpu;
        let helper = rows.iter().find(is_helper).expect("a row of the helper");
        assert_eq!(helper.row.comparison.answer, Answer::Higher);
    }

    #[test]
    fn processes_that_are_roles_have_no_rows_of_their_own() {
        let rows = processes_of(
            [8, 8],
            &[
                ("server", "main", [100, 120]),
                ("client", "main", [100, 100]),
            ],
        );
        assert_eq!(rows, []);
        let rows = processes_of(
            [8, 8],
            &[
                ("server", "main", [100, 120]),
                ("server", "worker-*", [200, 230]),
            ],
        );
        assert_eq!(rows, []);
    }
}
