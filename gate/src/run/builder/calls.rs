//! System calls of places. Few places make any, and these few kinds: they are kept beside the places' other amounts.

use std::collections::HashMap;

use super::Builder;
use crate::metric::{METRICS, Metric, Values};
use crate::run::ROOT;

/// Share of a kind's system calls below which a place is not kept for their sake.
const KEPT_SHARE: f64 = 0.005;

impl Builder {
    /// Adds system calls that were made at a place itself.
    pub fn calls(&mut self, place: u32, metric: Metric, count: u64) {
        *self.calls.entry((place, metric)).or_default() += count;
    }

    /// The highest share of a kind's system calls that each place has, callees included, as a multiple of the least
    /// that is kept.
    pub(super) fn weights_of_calls(&self) -> Vec<f64> {
        let mut sums = Values::<METRICS>::default();
        let mut inclusive: HashMap<(u32, Metric), u64> = HashMap::new();
        for ((place, metric), count) in &self.calls {
            sums.set(*metric, sums.get(*metric) + count);
            let mut at = *place;
            while at != ROOT {
                *inclusive.entry((at, *metric)).or_default() += count;
                at = self.tree.places[at as usize].parent;
            }
        }
        let mut weights = vec![0.0; self.tree.places.len()];
        for ((place, metric), count) in inclusive {
            let least = (sums.get(metric) as f64 * KEPT_SHARE).max(1.0);
            let weight: &mut f64 = &mut weights[place as usize];
            *weight = weight.max(count as f64 / least);
        }
        weights
    }
}
