//! Rows for threads: a program may have a million of them, and nobody reads a million lines. Those that used
//! or lived most have rows of their own; the others are summed up by their role (`worker-17` is one of
//! `worker-*`). Sums over all rows stay exact.

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

use stackbeat_gate::comparable_names;
use stackbeat_model::ThreadIndex;

use super::metadata::{DropsRow, Metadata, ProcessRow, ThreadMetadata};
use crate::summary::call_bytes::CallBytes;
use crate::summary::roles::role_of_thread;

/// One part in so many of the rows is for roles.
const PART_FOR_ROLES: usize = 10;

/// Which row a thread's amounts are added to. A row has the number of a thread wherever a report has one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rows {
    /// By `ThreadIndex`; empty: each thread has the row of its own number.
    row_of: Vec<u32>,
    /// Rows below this are of one thread.
    single: usize,
    /// Of a trace with rows of several threads: the utid of a row by the utid of a thread that has none of
    /// its own.
    utid_of: HashMap<u32, u32>,
}

impl Rows {
    /// Gives the threads at most `most` rows (0: as many as they are), those that are `chosen` first, and
    /// leaves one entry a row in both lists.
    pub(crate) fn limit(metadata: &mut Metadata, chosen: &mut Vec<bool>, most: usize) -> Rows {
        let Metadata {
            threads, processes, ..
        } = metadata;
        if most == 0 || threads.len() <= most {
            return Rows::default();
        }
        let for_roles = (most / PART_FOR_ROLES).max(2);
        let is_single = singles(threads, chosen, most.saturating_sub(for_roles));
        let level = (0..LEVELS).find(|level| {
            let rest = (0..threads.len()).filter(|i| !is_single[*i]);
            let keys = rest.map(|i| key(*level, chosen[i], &threads[i], processes));
            keys.collect::<HashSet<_>>().len() <= for_roles
        });
        // The last level has two keys at most.
        let level = level.unwrap_or(LEVELS - 1);
        let mut rows: Vec<ThreadMetadata> = Vec::new();
        let mut chosen_rows = Vec::new();
        let mut row_of = vec![0; threads.len()];
        for i in (0..threads.len()).filter(|i| is_single[*i]) {
            row_of[i] = rows.len() as u32;
            rows.push(threads[i].clone());
            chosen_rows.push(chosen[i]);
        }
        let single = rows.len();
        let mut by_key: HashMap<Key, usize> = HashMap::new();
        let mut utid_of = HashMap::new();
        for i in (0..threads.len()).filter(|i| !is_single[*i]) {
            let key = key(level, chosen[i], &threads[i], processes);
            let name = key.name.clone();
            let row = *by_key.entry(key).or_insert_with(|| {
                rows.push(ThreadMetadata {
                    name,
                    tid: 0,
                    merged: 0,
                    ..threads[i].clone()
                });
                chosen_rows.push(chosen[i]);
                rows.len() - 1
            });
            row_of[i] = row as u32;
            utid_of.insert(threads[i].utid, rows[row].utid);
            add(&mut rows[row], &threads[i]);
        }
        *threads = rows;
        *chosen = chosen_rows;
        let rows = Rows {
            row_of,
            single,
            utid_of,
        };
        for thread in threads.iter_mut() {
            thread.started_by_utid = rows.utid(thread.started_by_utid);
        }
        metadata.drops = rows.drops(std::mem::take(&mut metadata.drops));
        rows
    }

    pub(crate) fn row(&self, thread: ThreadIndex) -> ThreadIndex {
        let row = self.row_of.get(thread.0 as usize);
        row.map_or(thread, |row| ThreadIndex(*row))
    }

    /// Whether a thread has a row of its own.
    pub(crate) fn is_single(&self, thread: ThreadIndex) -> bool {
        self.row_of.is_empty() || (self.row(thread).0 as usize) < self.single
    }

    /// The utid of the row of the thread with this utid.
    pub(crate) fn utid(&self, utid: u32) -> u32 {
        self.utid_of.get(&utid).copied().unwrap_or(utid)
    }

    /// Losses by row and cause.
    pub(crate) fn drops(&self, drops: Vec<DropsRow>) -> Vec<DropsRow> {
        if self.utid_of.is_empty() {
            return drops;
        }
        let mut sums: BTreeMap<(u32, &str), DropsRow> = BTreeMap::new();
        for mut dropped in drops {
            dropped.utid = self.utid(dropped.utid);
            match sums.entry((dropped.utid, dropped.cause)) {
                Entry::Occupied(mut sum) => {
                    sum.get_mut().count = sum.get_mut().count.saturating_add(dropped.count);
                }
                Entry::Vacant(free) => drop(free.insert(dropped)),
            }
        }
        sums.into_values().collect()
    }
}

/// The threads that keep a row: chosen ones first, then by CPU time and the time that they lived.
fn singles(threads: &[ThreadMetadata], chosen: &[bool], most: usize) -> Vec<bool> {
    let weight = |i: &usize| {
        let thread = &threads[*i];
        let lived_ns = thread.end_ns.saturating_sub(thread.begin_ns);
        let used_ns = thread.exact_cpu_ns.unwrap_or(0);
        (chosen[*i], lived_ns.saturating_add(used_ns))
    };
    let mut order: Vec<usize> = (0..threads.len()).collect();
    order.sort_by_key(|i| (Reverse(weight(i)), *i));
    let mut is_single = vec![false; threads.len()];
    for i in order.into_iter().take(most) {
        is_single[i] = true;
    }
    is_single
}

/// How coarse roles may be, until there are few enough: of one process, of processes of one name, all threads
/// of such processes, all threads.
const LEVELS: u32 = 4;

/// What the threads of one row have in common.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    chosen: bool,
    process: Option<usize>,
    program: String,
    name: String,
}

fn key(level: u32, chosen: bool, thread: &ThreadMetadata, processes: &[ProcessRow]) -> Key {
    let program = &processes[thread.process].name;
    Key {
        chosen,
        process: (level == 0).then_some(thread.process),
        program: match level {
            1 | 2 => comparable_names::role(program),
            _ => String::new(),
        },
        name: match level {
            0 | 1 => role_of_thread(thread.is_main, &thread.name, program),
            _ => "*".to_owned(),
        },
    }
}

/// Adds a thread to a row.
fn add(row: &mut ThreadMetadata, thread: &ThreadMetadata) {
    row.begin_ns = row.begin_ns.min(thread.begin_ns);
    row.end_ns = row.end_ns.max(thread.end_ns);
    row.is_main &= thread.is_main;
    row.merged += 1;
    if row.merged == 1 {
        // It was made from this thread.
        return;
    }
    if row.pid != thread.pid {
        row.pid = 0;
    }
    if row.upid != thread.upid {
        row.upid = 0;
    }
    if (row.started_by_utid, row.start_stack) != (thread.started_by_utid, thread.start_stack) {
        (row.started_by_utid, row.start_stack) = (0, 0);
    }
    let sum = |a: Option<u64>, b: Option<u64>| Some(a? + b?);
    row.exact_cpu_ns = sum(row.exact_cpu_ns, thread.exact_cpu_ns);
    row.exact_allocations = sum(row.exact_allocations, thread.exact_allocations);
    row.exact_allocated_bytes = sum(row.exact_allocated_bytes, thread.exact_allocated_bytes);
    row.system_calls = row
        .system_calls
        .zip(thread.system_calls)
        .map(|(mut sum, more)| {
            sum.add(&more);
            sum
        });
    row.wake_ups = sum(row.wake_ups, thread.wake_ups);
    let known = row.call_bytes.zip(thread.call_bytes);
    row.call_bytes = known.and(row.system_calls.as_ref().map(CallBytes::of));
    row.capture_ns += thread.capture_ns;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many threads of each of the processes `p0`, `p1`, …, of which later ones used more; their names end
    /// in numbers.
    fn threads(processes: usize, each: u32) -> Metadata {
        let rows = (0..processes).map(|p| ProcessRow {
            name: format!("p{p}"),
            ..ProcessRow::default()
        });
        let all = (0..processes).flat_map(|p| (0..each).map(move |i| (p, i)));
        let threads = all.enumerate().map(|(n, (p, i))| ThreadMetadata {
            utid: 100 + n as u32,
            tid: 1 + n as u32,
            name: format!("{}-{i}", ["worker", "io"][i as usize % 2]),
            process: p,
            pid: p as u32,
            begin_ns: 5,
            end_ns: 10,
            exact_cpu_ns: Some(u64::from(i)),
            exact_allocations: (i != 3).then_some(1),
            capture_ns: 2,
            ..ThreadMetadata::default()
        });
        Metadata {
            threads: threads.collect(),
            processes: rows.collect(),
            ..Metadata::default()
        }
    }

    #[test]
    fn few_threads_keep_their_rows() {
        let mut metadata = threads(2, 10);
        let limited = Rows::limit(&mut metadata, &mut vec![true; 20], 20);
        assert_eq!(metadata.threads.len(), 20);
        assert_eq!(limited.row(ThreadIndex(7)), ThreadIndex(7));
        assert!(limited.is_single(ThreadIndex(19)));
        assert_eq!(limited.utid(107), 107);
    }

    #[test]
    fn the_busiest_keep_rows_and_the_rest_is_summed_up_by_role() {
        let mut metadata = threads(2, 100);
        let all = metadata.threads.clone();
        let mut chosen = vec![true; 200];
        let limited = Rows::limit(&mut metadata, &mut chosen, 40);
        let rows = metadata.threads;
        assert_eq!((rows.len(), chosen.len()), (40, 40));
        let single = |row: &&ThreadMetadata| row.merged == 0;
        assert_eq!(rows.iter().filter(single).count(), 36);
        assert!(
            rows.iter()
                .filter(single)
                .all(|row| row.exact_cpu_ns >= Some(82))
        );
        let roles = || rows.iter().filter(|row| row.merged > 0);
        let names: Vec<_> = roles().map(|row| (row.name.as_str(), row.pid)).collect();
        assert_eq!(
            names,
            [("worker-*", 0), ("io-*", 0), ("worker-*", 1), ("io-*", 1)]
        );
        assert_eq!(roles().map(|row| row.merged).sum::<u32>(), 200 - 36);
        let cpu_ns =
            |rows: &[ThreadMetadata]| rows.iter().map(|row| row.exact_cpu_ns).sum::<Option<u64>>();
        assert_eq!(cpu_ns(&rows), cpu_ns(&all));
        let capture_ns = |rows: &[ThreadMetadata]| {
            rows.iter()
                .map(|row| row.capture_ns)
                .fold(0, u64::saturating_add)
        };
        assert_eq!(capture_ns(&rows), capture_ns(&all));
        // One of them does not know its allocations.
        assert!(
            roles()
                .filter(|row| row.name == "io-*")
                .all(|row| row.exact_allocations.is_none())
        );
        for (i, thread) in all.iter().enumerate() {
            let index = ThreadIndex(i as u32);
            let row = &rows[limited.row(index).0 as usize];
            assert_eq!(
                limited.is_single(index),
                row.utid == thread.utid && row.merged == 0
            );
            assert_eq!(limited.utid(thread.utid), row.utid);
        }
        let dropped = |utid, count| DropsRow {
            utid,
            cause: "buffer_full",
            count,
            description: "",
        };
        let drops = limited.drops(vec![
            dropped(0, 1),
            dropped(100, 2),
            dropped(102, 3),
            dropped(199, 4),
        ]);
        let kept: Vec<_> = drops.iter().map(|l| (l.utid, l.count)).collect();
        assert_eq!(kept, [(0, 1), (100, 5), (199, 4)]);
    }

    #[test]
    fn many_processes_do_not_make_many_rows() {
        let mut metadata = threads(100, 3);
        let mut chosen: Vec<bool> = (0..300).map(|i| i == 250).collect();
        Rows::limit(&mut metadata, &mut chosen, 20);
        let rows = metadata.threads;
        assert!(rows.len() <= 20, "{}", rows.len());
        assert_eq!(rows.iter().map(|row| row.merged.max(1)).sum::<u32>(), 300);
        let shown: Vec<_> = rows.iter().zip(&chosen).filter(|(_, c)| **c).collect();
        assert_eq!(
            (shown.len(), shown[0].0.utid),
            (1, 350),
            "what is asked for keeps its row"
        );
        let roles = rows.iter().filter(|row| row.merged > 0);
        let names: Vec<_> = roles.map(|row| (row.name.as_str(), row.pid)).collect();
        assert_eq!(names, [("worker-*", 0), ("io-*", 0)]);
    }
}
