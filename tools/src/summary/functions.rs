//! Amounts by function, and blocking calls by the stack that made them.

use std::cmp::Reverse;
use std::collections::HashMap;

use stackbeat_core::probe::Cause;
use stackbeat_model::{FunctionIndex, ProbeId, Spent, ThreadIndex};

use crate::summary::call_tree::{Label, Leaf, Profile};
use crate::summary::sort_key::SortKey;

/// One line of the table of functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FunctionRow {
    pub function: FunctionIndex,
    /// In the function itself; blocking calls it makes count as its own.
    pub own: Spent,
    /// With callees; a recursive function counts once.
    pub total: Spent,
    /// Of its own running time, that in code of a library which counts for it ([`Own::OfProgram`]).
    pub in_library_ns: u64,
}

/// What counts as a function's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    /// What it did itself, whatever it is.
    Exact,
    /// Also what it called of a standard library's code in the program's file, or of its interpreter's: a
    /// reader looks for functions that somebody wrote.
    OfProgram,
}

impl FunctionRow {
    /// What `--sort` compares.
    pub(crate) fn key(&self, sort: SortKey) -> u64 {
        let spent = match sort.is_with_callees() {
            true => &self.total,
            false => &self.own,
        };
        spent.get(sort.metric())
    }
}

/// Every function of the wanted threads, heaviest first.
pub(crate) fn functions(
    profile: &Profile,
    wanted: &dyn Fn(ThreadIndex) -> bool,
    sort: SortKey,
    own: Own,
) -> Vec<FunctionRow> {
    let mut rows: HashMap<FunctionIndex, FunctionRow> = HashMap::new();
    let mut seen = Vec::new();
    for (place, cell) in profile.by_place(wanted) {
        let counts_at = match own {
            Own::Exact => place,
            Own::OfProgram => profile.runs_for(place),
        };
        // Whether the innermost function was passed, and the one that this counts for.
        let (mut is_below, mut has_counted) = (false, false);
        seen.clear();
        for (at, label) in profile.tree.outwards(place) {
            let Label::Function(function) = label else {
                continue;
            };
            let row = rows.entry(function).or_insert_with(|| FunctionRow {
                function,
                own: Spent::default(),
                total: Spent::default(),
                in_library_ns: 0,
            });
            if !has_counted && at <= counts_at {
                row.own.add(&cell.spent);
                if is_below {
                    row.in_library_ns += cell.spent.running_ns();
                }
                has_counted = true;
            }
            is_below = true;
            if !seen.contains(&function) {
                seen.push(function);
                row.total.add(&cell.spent);
            }
        }
    }
    let mut rows: Vec<_> = rows.into_values().collect();
    rows.sort_by_key(|row| {
        (
            std::cmp::Reverse((row.key(sort), row.total.wall_ns)),
            row.function,
        )
    });
    rows
}

/// What all functions spent together.
pub(crate) fn spent_by(profile: &Profile, wanted: &dyn Fn(ThreadIndex) -> bool) -> Spent {
    let mut sum = Spent::default();
    for ((thread, _), cell) in &profile.cells {
        if wanted(*thread) {
            sum.add(&cell.spent);
        }
    }
    sum
}

/// One line of the table of blocking sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SiteRow {
    pub place: u32,
    pub probe: ProbeId,
    pub cause: Cause,
    pub count: u64,
    pub total_ns: u64,
    /// Of it, in waits that were not seen apart: they are not counted, and none is the longest.
    pub inferred_ns: u64,
    pub longest_ns: u64,
    pub longest_at_ns: u64,
    /// Thread of the longest wait.
    pub longest_thread: ThreadIndex,
}

impl SiteRow {
    /// The call with what it waits for: `pthread_mutex_lock(cache)`.
    pub(crate) fn call(&self, profile: &Profile) -> String {
        (profile.waited_for).call(profile.caller_of(self.place), self.probe)
    }

    /// Adds another site's calls. Ties go to the lower thread, so that equal traces give equal reports.
    pub(crate) fn add(&mut self, other: &SiteRow) {
        self.count += other.count;
        self.total_ns += other.total_ns;
        self.inferred_ns += other.inferred_ns;
        if (other.longest_ns, Reverse(other.longest_thread))
            > (self.longest_ns, Reverse(self.longest_thread))
        {
            self.longest_ns = other.longest_ns;
            self.longest_at_ns = other.longest_at_ns;
            self.longest_thread = other.longest_thread;
        }
    }
}

/// Every place that blocked, longest total first.
pub(crate) fn blocking_sites(
    profile: &Profile,
    wanted: &dyn Fn(ThreadIndex) -> bool,
) -> Vec<SiteRow> {
    blocking_sites_of(profile, &|thread, _| wanted(thread))
}

/// As `blocking_sites`, of waits that are chosen by their place, too.
pub(crate) fn blocking_sites_of(
    profile: &Profile,
    wanted: &dyn Fn(ThreadIndex, u32) -> bool,
) -> Vec<SiteRow> {
    let mut sites: HashMap<u32, SiteRow> = HashMap::new();
    for ((thread, place), cell) in &profile.cells {
        let Label::Leaf(Leaf::Blocking(probe)) = profile.tree.places()[*place as usize].label
        else {
            continue;
        };
        if !wanted(*thread, *place) {
            continue;
        }
        let site = SiteRow {
            place: *place,
            probe,
            cause: probe.cause(),
            count: cell.count,
            total_ns: cell.spent.blocked_ns,
            inferred_ns: cell.inferred_ns,
            longest_ns: cell.longest_ns,
            longest_at_ns: cell.longest_at_ns,
            longest_thread: *thread,
        };
        sites
            .entry(*place)
            .and_modify(|row| row.add(&site))
            .or_insert(site);
    }
    let mut sites: Vec<_> = sites.into_values().collect();
    sites.sort_by_key(|s| (Reverse(s.total_ns), s.place));
    sites
}

#[cfg(test)]
mod tests {
    use stackbeat_core::probe::Probe;
    use stackbeat_model::SegmentKind;

    use super::*;
    use crate::summary::call_tree::tests::segment;

    #[test]
    fn recursion_counts_once_and_blocking_is_the_callers_own() {
        let mut profile = Profile::default();
        let [main, fib, other] = [0, 1, 2].map(FunctionIndex);
        let deep = profile.tree.path(&[main, fib, fib, fib]);
        let side = profile.tree.path(&[main, other]);
        profile.add(&segment(0, 100, SegmentKind::Running), deep);
        profile.add(
            &segment(100, 130, SegmentKind::Blocked(Probe::Read.into())),
            deep,
        );
        profile.add(&segment(130, 140, SegmentKind::Running), side);
        let rows = functions(&profile, &|_| true, SortKey::SelfTime, Own::Exact);
        assert_eq!(
            rows.iter().map(|r| r.function).collect::<Vec<_>>(),
            [fib, other, main]
        );
        assert_eq!(rows[0].own.running_ns(), 100);
        assert_eq!(rows[0].own.blocked_ns, 30);
        assert_eq!(rows[0].total.wall_ns, 130);
        assert_eq!(rows[2].own, Spent::default());
        assert_eq!(rows[2].total.wall_ns, 140);
        let by_total = functions(&profile, &|_| true, SortKey::Total, Own::Exact);
        assert_eq!(by_total[0].function, main);
        let sites = blocking_sites(&profile, &|_| true);
        assert_eq!(sites.len(), 1);
        assert_eq!((sites[0].cause, sites[0].total_ns), (Cause::Io, 30));
    }

    #[test]
    fn standard_code_counts_for_its_caller_and_allocations_for_who_allocates() {
        use stackbeat_model::layers::Layer;

        let mut profile = Profile::default();
        let [main, parse, find, new] = [0, 1, 2, 3].map(FunctionIndex);
        let in_find = profile.tree.path(&[main, parse, find]);
        let in_new = profile.tree.path(&[main, parse, find, new]);
        profile.add(&segment(0, 100, SegmentKind::Running), in_find);
        let mut allocates = segment(100, 130, SegmentKind::Running);
        allocates.metrics.allocations = 2;
        allocates.metrics.allocated_bytes = 64;
        profile.add(&allocates, in_new);
        let wait = SegmentKind::Blocked(Probe::FutexWait.into());
        profile.add(&segment(130, 140, wait), in_find);
        profile.set_layers(|function| match function {
            f if f == find => Layer::StandardCode,
            f if f == new => Layer::Allocator,
            _ => Layer::Program,
        });
        let own = |own: Own| {
            let rows = functions(&profile, &|_| true, SortKey::SelfTime, own);
            let row = |f| *rows.iter().find(|row| row.function == f).expect("is there");
            [parse, find, new].map(|f| {
                let row = row(f);
                let allocated = row.own.metrics.allocated_bytes;
                (row.own.running_ns(), row.in_library_ns, allocated)
            })
        };
        assert_eq!(own(Own::Exact), [(0, 0, 64), (100, 0, 0), (30, 0, 0)]);
        // The allocator is called by such code, and serves the same function.
        assert_eq!(own(Own::OfProgram), [(130, 130, 64), (0, 0, 0), (0, 0, 0)]);
        // With their callees, functions stay as they are.
        let by_total = functions(&profile, &|_| true, SortKey::Total, Own::OfProgram);
        assert_eq!(by_total[0].total.metrics.allocated_bytes, 64);
        assert_eq!(spent_by(&profile, &|_| true).metrics.allocations, 2);
    }
}
