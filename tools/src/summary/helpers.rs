//! Processes that others start for a moment: the commands of a wrapper script, the stages before the program
//! that matters. A reader looks for that program first, so they are summed up. So are many threads of one
//! role, like a thread for each request.

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use stackbeat_model::ThreadIndex;

use super::call_tree::{Profile, ThreadTime};
use super::metadata::Metadata;
use super::roles::role_of_thread;

/// A program with this part of the computing is what the recording is about.
const LEADS: f64 = 0.5;
/// A process with less than this part of it helps.
const HELPS: f64 = 0.05;
/// All processes of such a program together have less than this.
const HELP_TOGETHER: f64 = 0.2;

/// By `ThreadIndex`: whether a thread is of a process that helps another program. None does where no program
/// has half of the computing.
pub(crate) fn helpers(
    metadata: &Metadata,
    profile: &Profile,
    wanted: &dyn Fn(ThreadIndex) -> bool,
) -> Vec<bool> {
    let rows = || {
        let threads = metadata.threads.iter().zip(&profile.threads).enumerate();
        threads.filter(|(index, _)| wanted(ThreadIndex(*index as u32)))
    };
    let mut is_helper = vec![false; metadata.threads.len()];
    let name = |process: usize| metadata.processes.get(process).map_or("", |p| &*p.name);
    let mut by_process: BTreeMap<usize, u64> = BTreeMap::new();
    let mut by_name: BTreeMap<&str, u64> = BTreeMap::new();
    for (_, (row, time)) in rows() {
        *by_process.entry(row.process).or_default() += time.computing_ns();
        *by_name.entry(name(row.process)).or_default() += time.computing_ns();
    }
    let whole = by_name.values().sum::<u64>() as f64;
    let Some((leader, most)) = by_name.iter().max_by_key(|(_, ns)| **ns) else {
        return is_helper;
    };
    if whole == 0.0 || (*most as f64) < LEADS * whole {
        return is_helper;
    }
    for (index, (row, _)) in rows() {
        let program = name(row.process);
        is_helper[index] = program != *leader
            && (by_process[&row.process] as f64) < HELPS * whole
            && (by_name[program] as f64) < HELP_TOGETHER * whole;
    }
    is_helper
}

/// A row of the table of threads.
#[derive(Clone, Debug)]
pub(crate) struct Row<'a> {
    /// The number of its first thread.
    pub thread: usize,
    /// Threads of helpers that it sums up; 0: it is that one thread.
    pub helpers: u32,
    /// Threads of one role that it sums up; 0: it is that one thread.
    pub of_role: u32,
    /// Whether these are threads of many processes of one program.
    pub is_of_many_processes: bool,
    pub time: ThreadTime,
    /// Whose they are.
    names: Vec<&'a str>,
}

impl<'a> Row<'a> {
    pub(crate) fn of_thread((thread, time): (usize, ThreadTime)) -> Row<'a> {
        Row {
            thread,
            helpers: 0,
            of_role: 0,
            is_of_many_processes: false,
            time,
            names: Vec::new(),
        }
    }

    fn add(&mut self, other: Row<'a>) {
        self.helpers += other.helpers;
        self.time.add(&other.time);
        self.names.extend(other.names);
    }

    /// The programs that help, those that ran longest first.
    pub(crate) fn programs(&self) -> String {
        match self.names.as_slice() {
            [one] => (*one).to_owned(),
            [first, others @ ..] => format!("{first} and {} more", others.len()),
            [] => String::new(),
        }
    }
}

/// Rows of threads: those of helpers summed up where several are of one program, others where more than
/// `most_of_role` have one role, or so many processes are of one program. Where there are more than `most`
/// rows even so, all helpers are one.
pub(crate) fn summed_up<'a>(
    metadata: &'a Metadata,
    profile: &Profile,
    wanted: &dyn Fn(ThreadIndex) -> bool,
    rows: Vec<(usize, ThreadTime)>,
    most: usize,
    most_of_role: usize,
) -> Vec<Row<'a>> {
    let is_helper = helpers(metadata, profile, wanted);
    let (helping, others): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(i, _)| is_helper[*i]);
    let others = by_role(metadata, others, most_of_role);
    let others = by_program(metadata, others, most_of_role);
    let mut by_name: BTreeMap<&str, Row<'_>> = BTreeMap::new();
    for (index, time) in helping {
        let thread = &metadata.threads[index];
        let name = &*metadata.processes[thread.process].name;
        let row = Row {
            helpers: thread.merged.max(1),
            names: Vec::new(),
            ..Row::of_thread((index, time))
        };
        match by_name.entry(name) {
            Entry::Occupied(mut sum) => sum.get_mut().add(row),
            Entry::Vacant(free) => free.insert(row).names.push(name),
        }
    }
    let mut rows: Vec<Row<'_>> = by_name.into_values().collect();
    rows.sort_by_key(|row| (Reverse(row.time.running_ns), row.thread));
    if others.len() + rows.len() > most {
        let all = rows.into_iter().reduce(|mut sum, row| {
            sum.add(row);
            sum
        });
        rows = all.into_iter().collect();
    }
    for row in &mut rows {
        if row.helpers == 1 {
            row.helpers = 0;
        }
    }
    rows.extend(others);
    rows
}

/// Rows of threads; more than `most` of one process and role are one.
fn by_role<'a>(
    metadata: &'a Metadata,
    rows: Vec<(usize, ThreadTime)>,
    most: usize,
) -> Vec<Row<'a>> {
    let mut roles: BTreeMap<(usize, String), Vec<(usize, ThreadTime)>> = BTreeMap::new();
    for (index, time) in rows {
        let thread = &metadata.threads[index];
        let process = metadata.processes.get(thread.process);
        let process = process.map_or("", |process| &process.name);
        let role = role_of_thread(thread.is_main, &thread.name, process);
        let of_role = roles.entry((thread.process, role)).or_default();
        of_role.push((index, time));
    }
    let mut rows = Vec::new();
    for threads in roles.into_values() {
        let is_many = threads.len() > most;
        let threads = threads.into_iter().map(|(index, time)| Row {
            of_role: metadata.threads[index].merged.max(1),
            ..Row::of_thread((index, time))
        });
        if is_many {
            rows.extend(threads.reduce(|mut sum, row| {
                sum.of_role += row.of_role;
                sum.time.add(&row.time);
                sum
            }));
        } else {
            rows.extend(threads.map(|row| Row { of_role: 0, ..row }));
        }
    }
    rows
}

/// Rows of processes; those of more than `most` of one program are one for each role. One that did a good
/// part of what all did keeps its row.
fn by_program<'a>(metadata: &'a Metadata, rows: Vec<Row<'a>>, most: usize) -> Vec<Row<'a>> {
    let mut processes: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    let process_of = |row: &Row<'_>| metadata.threads[row.thread].process;
    let name_of = |row: &Row<'_>| {
        let process = metadata.processes.get(process_of(row));
        process.map_or("", |process| &*process.name)
    };
    for row in &rows {
        processes
            .entry(name_of(row))
            .or_default()
            .insert(process_of(row));
    }
    let whole: u64 = rows.iter().map(|row| row.time.running_ns).sum();
    let mut sums: BTreeMap<(&str, String), Row<'_>> = BTreeMap::new();
    let mut alone = Vec::new();
    for mut row in rows {
        let program = name_of(&row);
        let is_large = row.time.running_ns as f64 >= HELPS * whole as f64;
        if is_large || processes[program].len() <= most {
            alone.push(row);
            continue;
        }
        let thread = &metadata.threads[row.thread];
        let role = role_of_thread(thread.is_main, &thread.name, program);
        row.of_role = row.of_role.max(thread.merged).max(1);
        row.is_of_many_processes = true;
        match sums.entry((program, role)) {
            Entry::Occupied(mut sum) => {
                let sum = sum.get_mut();
                sum.of_role += row.of_role;
                sum.time.add(&row.time);
            }
            Entry::Vacant(free) => drop(free.insert(row)),
        }
    }
    alone.extend(sums.into_values());
    alone
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::metadata::{ProcessRow, ThreadMetadata};

    /// Which of these programs' processes help, by what they computed.
    fn helping(computed: &[(&str, u64)]) -> Vec<bool> {
        let process = |name: &str| ProcessRow {
            name: name.to_owned(),
            ..ProcessRow::default()
        };
        let metadata = Metadata {
            processes: computed.iter().map(|(name, _)| process(name)).collect(),
            threads: (0..computed.len())
                .map(|process| ThreadMetadata {
                    process,
                    ..ThreadMetadata::default()
                })
                .collect(),
            ..Metadata::default()
        };
        let time = |(_, running_ns): &(&str, u64)| ThreadTime {
            running_ns: *running_ns,
            ..ThreadTime::default()
        };
        let profile = Profile {
            threads: computed.iter().map(time).collect(),
            ..Profile::default()
        };
        helpers(&metadata, &profile, &|_| true)
    }

    #[test]
    fn many_threads_of_one_role_are_one_row() {
        let rows_of = |count: usize| {
            let thread = |i: usize| ThreadMetadata {
                name: format!("Thread-{i} (handle)"),
                ..ThreadMetadata::default()
            };
            let pool = ["worker-1", "worker-2"].map(|name| ThreadMetadata {
                name: name.to_owned(),
                ..ThreadMetadata::default()
            });
            let metadata = Metadata {
                processes: vec![ProcessRow::default()],
                threads: (0..count).map(thread).chain(pool).collect(),
                ..Metadata::default()
            };
            let time = ThreadTime {
                running_ns: 10,
                ..ThreadTime::default()
            };
            let times = (0..count + 2).map(|i| (i, time)).collect();
            let rows = by_role(&metadata, times, 16).into_iter();
            rows.map(|row| (row.of_role, row.time.running_ns))
                .collect::<Vec<_>>()
        };
        assert_eq!(rows_of(17), [(17, 170), (0, 10), (0, 10)]);
        assert_eq!(rows_of(16), [(0, 10); 18]);
    }

    #[test]
    fn many_processes_of_one_program_are_one_row() {
        let rows_of = |count: usize| {
            let process = |i: usize| ProcessRow {
                name: if i == 0 { "sh" } else { "sed" }.to_owned(),
                ..ProcessRow::default()
            };
            let thread = |process: usize| ThreadMetadata {
                process,
                is_main: true,
                ..ThreadMetadata::default()
            };
            let metadata = Metadata {
                processes: (0..count).map(process).collect(),
                threads: (0..count).map(thread).collect(),
                ..Metadata::default()
            };
            let time = |i: usize| ThreadTime {
                running_ns: if i < 2 { 100 } else { 1 },
                ..ThreadTime::default()
            };
            let rows = (0..count).map(|i| Row::of_thread((i, time(i))));
            let rows = by_program(&metadata, rows.collect(), 16).into_iter();
            rows.map(|row| (row.of_role, row.time.running_ns))
                .collect::<Vec<_>>()
        };
        assert_eq!(rows_of(20), [(0, 100), (0, 100), (18, 18)]);
        assert_eq!(rows_of(17).len(), 17);
    }

    #[test]
    fn the_commands_of_a_wrapper_help_the_program() {
        let shim = [("bash", 2), ("bash", 3), ("python3", 90), ("sed", 1)];
        assert_eq!(helping(&shim), [true, true, false, true]);
        // Workers do the work, however many there are.
        let workers = [("gcc", 3); 30];
        assert_eq!(helping(&workers), [false; 30]);
        let pipeline = [("sed", 50), ("sort", 40), ("tail", 1)];
        assert_eq!(helping(&pipeline), [false, false, true]);
        assert_eq!(
            helping(&[("a", 40), ("b", 40), ("c", 1), ("d", 19)]),
            [false; 4]
        );
        assert_eq!(helping(&[("a", 0), ("b", 0)]), [false; 2]);
    }
}
