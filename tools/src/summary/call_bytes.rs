//! Bytes that system calls move.

use serde::Serialize;
use stackbeat_core::system_call::{SystemCall, SystemCalls};

/// Bytes that system calls have moved, as far as they passed hooks. `None`: no hook has seen any. That is not
/// 0, because what the C library does inside itself passes no hook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct CallBytes {
    pub read: Option<u64>,
    pub written: Option<u64>,
}

impl CallBytes {
    /// Those among counts of all kinds.
    pub(crate) fn of(calls: &SystemCalls) -> CallBytes {
        let seen = |kind| Some(calls.of(kind)).filter(|bytes| *bytes > 0);
        CallBytes {
            read: seen(SystemCall::BytesRead),
            written: seen(SystemCall::BytesWritten),
        }
    }
}
