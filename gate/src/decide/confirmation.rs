//! What fresh runs say about a finding.

use stackbeat_model::metric::Metric;

/// What fresh runs say about a finding.
#[derive(Clone, Debug, PartialEq)]
pub struct Confirmation {
    /// The finding's metric.
    pub metric: Metric,
    /// Fresh runs a side.
    pub runs: usize,
    /// The change between them, as a share of the baseline's median.
    pub relative: f64,
    /// Of an increase; `None` for counts that do not vary.
    pub p: Option<f64>,
    /// The fresh runs show the increase, too.
    pub is_confirmed: bool,
}
