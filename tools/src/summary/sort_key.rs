//! By what tables of functions are sorted.

use clap::ValueEnum;

/// What `--sort` knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SortKey {
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
