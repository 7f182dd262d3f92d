//! The call tree: places that chains of calls lead to, each once, whatever is measured there.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;

use super::{ProbeId, Segment, SegmentKind};

/// What a place in a call tree stands for: `G` tells groups of threads, `F` functions and `C` blocking calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Label<G, F, C = ProbeId> {
    /// The tree's root.
    #[default]
    Root,
    /// Threads that belong together.
    Group(G),
    /// A function, called from the place's parent.
    Function(F),
    /// What stands below the innermost function.
    Leaf(Leaf<C>),
    /// Places too small to be kept, summed up below their caller.
    Small,
}

/// What stands below the innermost frame of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Leaf<C = ProbeId> {
    /// Nothing: the thread was in the code of the innermost frame.
    Code,
    /// A call that blocked.
    Blocking(C),
    /// Time that no sample says anything about: below what both of its ends have in common.
    Gap,
    /// Running, but no stack is known.
    NoStack,
}

impl Leaf {
    /// The leaf of a segment.
    pub fn of(segment: &Segment) -> Leaf {
        match segment.kind {
            SegmentKind::Blocked(probe) if !segment.runs() => Leaf::Blocking(probe),
            SegmentKind::Running | SegmentKind::Blocked(_) => Leaf::Code,
            SegmentKind::Gap => Leaf::Gap,
        }
    }
}

/// A place in a call tree: a chain of calls from the outermost function to this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place<L> {
    /// Index of the caller's place in [`CallTree::places`]; the root's is its own.
    pub parent: u32,
    /// What the place stands for.
    pub label: L,
}

/// The root's index in [`CallTree::places`].
pub const ROOT: u32 = 0;

/// A call tree; parents stand before their children.
#[derive(Clone, Debug)]
pub struct CallTree<L> {
    places: Vec<Place<L>>,
    children: HashMap<Place<L>, u32>,
}

/// Of the root alone, which has the label's default.
impl<L: Default> Default for CallTree<L> {
    fn default() -> CallTree<L> {
        CallTree {
            places: vec![Place {
                parent: ROOT,
                label: L::default(),
            }],
            children: HashMap::new(),
        }
    }
}

impl<L: Copy + Eq + Hash> CallTree<L> {
    /// Every place, parents first.
    pub fn places(&self) -> &[Place<L>] {
        &self.places
    }

    /// The place below `parent`, made when it does not exist.
    pub fn child(&mut self, parent: u32, label: L) -> u32 {
        let place = Place { parent, label };
        *self.children.entry(place).or_insert_with(|| {
            self.places.push(place);
            (self.places.len() - 1) as u32
        })
    }

    /// How many places two places have in common, counted from the root, which does not count.
    pub fn common_depth(&self, a: u32, b: u32) -> u32 {
        let (mut a, mut b) = (a, b);
        // Parents stand before their children: the later one is never an ancestor of the other.
        while a != b {
            if a > b {
                a = self.places[a as usize].parent;
            } else {
                b = self.places[b as usize].parent;
            }
        }
        self.outwards(a).count() as u32
    }

    /// Places and their labels from `place` outwards, without the root.
    pub fn outwards(&self, place: u32) -> impl Iterator<Item = (u32, L)> + '_ {
        let mut at = place;
        std::iter::from_fn(move || {
            if at == ROOT {
                return None;
            }
            let here = self.places[at as usize];
            let item = (at, here.label);
            at = here.parent;
            Some(item)
        })
    }

    /// Labels from `place` outwards, without the root.
    pub fn labels(&self, place: u32) -> impl Iterator<Item = L> + '_ {
        self.outwards(place).map(|(_, label)| label)
    }

    /// The places below each place, in the order in which they were made.
    pub fn callees(&self) -> Vec<Vec<u32>> {
        let mut callees = vec![Vec::new(); self.places.len()];
        for (at, place) in self.places.iter().enumerate().skip(1) {
            callees[place.parent as usize].push(at as u32);
        }
        callees
    }

    /// Makes sums of places themselves, by place, sums with their callees.
    pub fn include_callees<V: Copy>(&self, sums: &mut [V], mut add: impl FnMut(&mut V, &V)) {
        for place in (1..self.places.len()).rev() {
            let below = sums[place];
            add(&mut sums[self.places[place].parent as usize], &below);
        }
    }
}

impl<G, F, C> CallTree<Label<G, F, C>>
where
    Label<G, F, C>: Copy + Eq + Hash,
{
    /// The place that a chain of functions leads to.
    pub fn path(&mut self, functions: &[F]) -> u32
    where
        F: Copy,
    {
        let below = |parent, function: &F| self.child(parent, Label::Function(*function));
        functions.iter().fold(ROOT, below)
    }

    /// The tree without the places that `keep` refuses, which become one [`Label::Small`] below their nearest
    /// caller that stays; and where each old place went.
    pub fn pruned(&self, keep: impl Fn(usize) -> bool) -> (CallTree<Label<G, F, C>>, Vec<u32>) {
        let mut tree = CallTree::default();
        let mut moved = vec![ROOT; self.places.len()];
        for (old, place) in self.places.iter().enumerate().skip(1) {
            let parent = moved[place.parent as usize];
            moved[old] = if keep(old) {
                tree.child(parent, place.label)
            } else if tree.places[parent as usize].label == Label::Small {
                parent
            } else {
                tree.child(parent, Label::Small)
            };
        }
        (tree, moved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Tree = CallTree<Label<(), u32, u32>>;

    #[test]
    fn a_chain_of_calls_is_one_place() {
        let mut tree = Tree::default();
        let inner = tree.path(&[1, 2, 3]);
        assert_eq!(tree.path(&[1, 2, 3]), inner);
        let other = tree.path(&[1, 2, 4]);
        assert_eq!(tree.common_depth(inner, other), 2);
        assert_eq!(tree.common_depth(inner, ROOT), 0);
        let labels: Vec<_> = tree.labels(inner).collect();
        assert_eq!(labels, [3, 2, 1].map(Label::Function));
        let below = &tree.callees()[tree.path(&[1, 2]) as usize];
        assert_eq!(below, &[inner, other]);
    }

    #[test]
    fn what_is_small_is_summed_up_below_its_caller() {
        let mut tree = Tree::default();
        let kept = tree.path(&[1, 2]);
        let small = [tree.path(&[1, 3, 4]), tree.path(&[1, 5])];
        let (pruned, moved) = tree.pruned(|place| place <= kept as usize);
        assert_eq!(pruned.places().len(), 4);
        let sums = small.map(|place| moved[place as usize]);
        assert_eq!(sums[0], sums[1]);
        assert_eq!(pruned.places()[sums[0] as usize].label, Label::Small);
        let outer = pruned.places()[sums[0] as usize].parent;
        assert_eq!(pruned.places()[outer as usize].label, Label::Function(1));
        let mut metrics = vec![1; tree.places().len()];
        tree.include_callees(&mut metrics, |sum, more| *sum += more);
        assert_eq!(metrics[..2], [6, 5]);
    }
}
