//! What is left out of runs because it is not known of all of them.

use stackbeat_model::metric::Metric;

use super::{Run, metric};
use crate::packed::Metrics;

/// Allocations of runs are compared only if all of them counted to the end, callers of system calls only if
/// they are known of all.
pub(crate) fn keep_comparable<'a>(runs: impl Iterator<Item = &'a mut Run>) {
    let mut runs: Vec<_> = runs.collect();
    if runs.iter().any(|run| run.about.counts_end_early) {
        for run in &mut runs {
            run.forget_allocations();
        }
    }
    if !runs.iter().all(|run| run.about.knows_callers) {
        for run in &mut runs {
            forget(&mut run.entries, Metric::is_system_call);
        }
    }
    if !runs.iter().all(|run| run.about.knows_call_bytes) {
        for run in &mut runs {
            forget(&mut run.entries, |metric| {
                metric.is_call_bytes() || metric == Metric::WakeUps
            });
        }
    }
}

/// Whether all runs counted, to their end, what the metric is of.
pub(crate) fn all_count<'a>(
    mut runs: impl Iterator<Item = &'a Run> + Clone,
    metric: Metric,
) -> bool {
    match metric {
        metric if metric.is_of_allocation() => !runs.any(|run| run.about.counts_end_early),
        // Where the kernel does not tell, there are none.
        Metric::WakeUps => runs.all(|run| run.about.knows_call_bytes && run.whole.get(metric) > 0),
        metric if metric.is_call_bytes() => runs.all(|run| run.about.knows_call_bytes),
        metric if metric.is_system_call() => runs.all(|run| run.about.knows_system_calls),
        metric if metric.is_transfer() => runs.all(Run::knows_transfers),
        _ => true,
    }
}

impl Run {
    /// Drops what was counted of allocations.
    fn forget_allocations(&mut self) {
        let values = self.roles.iter_mut().map(|(_, values)| values);
        let scopes = self.scopes.iter_mut().map(|scope| &mut scope.values);
        for values in values.chain(scopes).chain([&mut self.whole]) {
            for metric in Metric::ALL.into_iter().filter(|m| m.is_of_allocation()) {
                values.set(metric, 0);
            }
        }
        for metrics in [&mut self.functions, &mut self.entries] {
            forget(metrics, Metric::is_of_allocation);
        }
    }
}

fn forget(metrics: &mut Metrics, is_one: fn(Metric) -> bool) {
    let kept = metrics.iter().filter(|(key, _)| !is_one(metric(*key)));
    *metrics = Metrics::new(kept.collect());
}
