//! Makes a call tree small enough for a page: places that matter by no measure are summed up in one
//! place below their nearest caller that stays. Sums over the tree do not change.

use std::collections::HashMap;

use stackbeat_model::ThreadIndex;
use stackbeat_model::layers::CountsFor;

use crate::summary::call_tree::{Cell, Profile, ROOT, Tree};

/// A tree that fits, with its cells, and where each old place went.
#[derive(Debug)]
pub(super) struct Pruned {
    pub tree: Tree,
    pub cells: HashMap<(ThreadIndex, u32), Cell>,
    /// New place by old place.
    pub moved: Vec<u32>,
    /// By new place.
    pub counts_for: CountsFor,
    /// Places that are gone.
    pub cut: u64,
}

/// Keeps the at most `budget` places that matter most.
pub(super) fn prune(profile: &Profile, budget: usize) -> Pruned {
    let keep = keep(profile, budget);
    let (tree, moved) = profile.tree.pruned(|place| keep[place]);
    let mut cells: HashMap<(ThreadIndex, u32), Cell> = HashMap::new();
    for ((thread, place), cell) in &profile.cells {
        cells
            .entry((*thread, moved[*place as usize]))
            .or_default()
            .add(cell);
    }
    let counts_for = CountsFor {
        allocated: of_kept(&profile.counts_for.allocated, &tree, &keep, &moved),
        running: of_kept(&profile.counts_for.running, &tree, &keep, &moved),
    };
    Pruned {
        tree,
        cells,
        moved,
        counts_for,
        cut: keep.iter().filter(|is_kept| !**is_kept).count() as u64,
    }
}

/// For each new place the one that stands in this list for it; itself, where sums of several are. Callers of
/// what is kept are kept.
fn of_kept(places: &[u32], tree: &Tree, keep: &[bool], moved: &[u32]) -> Vec<u32> {
    let mut of_new: Vec<u32> = (0..).take(tree.places().len()).collect();
    for (old, place) in places.iter().enumerate().filter(|(old, _)| keep[*old]) {
        of_new[moved[old] as usize] = moved[*place as usize];
    }
    of_new
}

/// Which places stay. A place's weight is its largest share of any measure, callees included, so a
/// parent never weighs less than its child.
fn keep(profile: &Profile, budget: usize) -> Vec<bool> {
    let places = profile.tree.places();
    if places.len() <= budget {
        return vec![true; places.len()];
    }
    let mut sums = vec![[0u64; 4]; places.len()];
    for ((_, place), cell) in &profile.cells {
        let spent = &cell.spent;
        let more = [
            spent.wall_ns,
            spent.metrics.cpu_ns,
            spent.blocked_ns,
            spent.metrics.allocated_bytes,
        ];
        for (sum, more) in sums[*place as usize].iter_mut().zip(more) {
            *sum += more;
        }
    }
    profile.tree.include_callees(&mut sums, |sums, more| {
        for (sum, more) in sums.iter_mut().zip(more) {
            *sum += more;
        }
    });
    let whole = sums[ROOT as usize];
    let weight = |place: usize| -> f64 {
        let shares = sums[place].iter().zip(whole);
        shares
            .map(|(part, whole)| *part as f64 / whole.max(1) as f64)
            .fold(0.0, f64::max)
    };
    let mut weights: Vec<f64> = (0..places.len()).map(weight).collect();
    let mut sorted = weights.clone();
    sorted.sort_by(|a, b| b.total_cmp(a));
    // Strictly above the first weight that no longer fits: ties go together, and half of the budget
    // is left for the places that sums go to.
    let least = sorted[budget / 2];
    weights[ROOT as usize] = f64::INFINITY;
    weights.iter().map(|w| *w > least).collect()
}

#[cfg(test)]
mod tests {
    use stackbeat_model::{FunctionIndex, SegmentKind};

    use super::*;
    use crate::summary::call_tree::Label;
    use crate::summary::call_tree::tests::segment;

    #[test]
    fn sums_stay_and_the_heavy_part_is_kept() {
        let mut profile = Profile::default();
        let heavy = profile.tree.path(&[FunctionIndex(0), FunctionIndex(1)]);
        profile.add(&segment(0, 1_000_000, SegmentKind::Running), heavy);
        for i in 0..1000u64 {
            let path = [
                FunctionIndex(0),
                FunctionIndex(2 + i as u32),
                FunctionIndex(1),
            ];
            let place = profile.tree.path(&path);
            profile.add(&segment(i, i + 1 + i % 7, SegmentKind::Running), place);
        }
        let pruned = prune(&profile, 200);
        assert!(pruned.tree.places().len() <= 200);
        assert!(pruned.cut > 1500);
        let time = |cells: &HashMap<_, Cell>| {
            cells
                .values()
                .map(|c| c.spent.wall_ns)
                .fold(0, u64::saturating_add)
        };
        assert_eq!(time(&pruned.cells), time(&profile.cells));
        let new = pruned.moved[heavy as usize];
        let path: Vec<_> = pruned.tree.labels(new).collect();
        assert_eq!(
            path,
            [FunctionIndex(1), FunctionIndex(0)].map(Label::Function)
        );
    }

    #[test]
    fn a_small_tree_is_left_alone() {
        let mut profile = Profile::default();
        let place = profile.tree.path(&[FunctionIndex(3)]);
        profile.add(&segment(0, 5, SegmentKind::Running), place);
        let pruned = prune(&profile, 100);
        assert_eq!(pruned.tree.places(), profile.tree.places());
        assert_eq!(pruned.cut, 0);
    }
}
