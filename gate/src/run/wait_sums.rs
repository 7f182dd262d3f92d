//! Long waits of a run, summed up by who waited and who ended them.

use stackbeat_model::metric::Metric;

use super::{NameId, RoleId};

/// Threads of a role, in a function of theirs where it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Party {
    /// What the threads are for.
    pub role: RoleId,
    /// The innermost function of the program itself.
    pub function: Option<NameId>,
}

/// How a wait came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum End {
    /// Somebody let go, signalled, wrote or ended.
    By(Party),
    /// It timed out or failed: nobody ended it.
    Failed,
    /// Something came, and no thread is known that sent it: it came from another process, a timer or the
    /// kernel, or in a way that traces do not follow (docs/limits.md: datagrams, named pipes, descriptors
    /// older than an attach, …).
    NobodyKnown,
    /// The trace does not say.
    Unknown,
}

/// What long waits have in common that are summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WaitKey {
    /// Who waited.
    pub waiter: RoleId,
    /// The kind of blocked time.
    pub metric: Metric,
    /// Who held the lock when the wait began.
    pub holder: Option<RoleId>,
    /// How the waits ended.
    pub end: End,
}

/// Long waits of a run that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitSum {
    /// What they have in common.
    pub key: WaitKey,
    /// How many they are.
    pub count: u64,
    /// Their lengths together, ns.
    pub total_ns: u64,
}
