//! By what tables of functions are sorted.

use clap::ValueEnum;
use stackbeat_model::metric::Metric;

/// What `--sort` knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SortKey {
    /// Time running in the function itself.
    #[value(name = "self")]
    SelfTime,
    /// Wall time with callees.
    Total,
    /// CPU time of the function itself.
    Cpu,
    /// Blocked time with callees.
    Blocked,
    /// Bytes allocated by the function itself.
    Alloc,
}

impl SortKey {
    /// What is compared.
    pub(crate) fn metric(self) -> Metric {
        match self {
            SortKey::SelfTime => Metric::Running,
            SortKey::Total => Metric::Wall,
            SortKey::Cpu => Metric::Cpu,
            SortKey::Blocked => Metric::Blocked,
            SortKey::Alloc => Metric::AllocatedBytes,
        }
    }

    /// Whether that of callees counts as well.
    pub(crate) fn is_with_callees(self) -> bool {
        matches!(self, SortKey::Total | SortKey::Blocked)
    }
}
