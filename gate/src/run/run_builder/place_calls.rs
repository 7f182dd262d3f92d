//! System calls of places. Few places make any, and these few kinds: they are kept beside the places' other
//! amounts.

use std::collections::HashMap;

use stackbeat_model::metric::{METRICS, Metric, Values};

use super::Builder;
use crate::run::ROOT;

/// Share of a kind's system calls below which a place is not kept for their sake.
const KEPT_SHARE: f64 = 0.005;

impl Builder {
    /// Adds system calls that were made at a place itself.
    pub fn calls(&mut self, place: u32, metric: Metric, count: u64) {
        let sum = self.calls.entry((place, metric)).or_default();
        *sum = sum.saturating_add(count);
    }

    /// The highest share of a kind's system calls that each place has, callees included, as a multiple of the
    /// least that is kept.
    pub(super) fn weights_of_calls(&self) -> Vec<f64> {
        let mut sums = Values::<METRICS>::default();
        let mut inclusive: HashMap<(u32, Metric), u64> = HashMap::new();
        for ((place, metric), count) in &self.calls {
            sums.set(*metric, sums.get(*metric).saturating_add(*count));
            let mut at = *place;
            while at != ROOT {
                let sum = inclusive.entry((at, *metric)).or_default();
                *sum = sum.saturating_add(*count);
                at = self.tree.places()[at as usize].parent;
            }
        }
        let mut weights = vec![0.0; self.tree.places().len()];
        for ((place, metric), count) in inclusive {
            let least = (sums.get(metric) as f64 * KEPT_SHARE).max(1.0);
            let weight: &mut f64 = &mut weights[place as usize];
            *weight = weight.max(count as f64 / least);
        }
        weights
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{About, Label, Names, Role, Side};

    #[test]
    fn counts_of_a_damaged_file_end_at_the_largest() {
        let mut names = Names::default();
        let role = names.role(Role {
            process: "p".into(),
            thread: "t".into(),
            is_root: false,
        });
        let mut builder = Builder::new(Side::Candidate, About::default());
        let thread = builder.tree.child(ROOT, Label::Group(role));
        let places = ["one", "other"].map(|name| {
            let name = names.function(name, false, Side::Candidate);
            builder.tree.child(thread, Label::Function(name))
        });
        for place in places {
            for _ in 0..3 {
                builder.calls(place, Metric::ReadCalls, i64::MAX as u64);
            }
        }
        assert!(builder.calls.values().all(|count| *count == u64::MAX));
        let weights = builder.weights_of_calls();
        assert!(places.iter().all(|place| weights[*place as usize] > 100.0));
    }
}
