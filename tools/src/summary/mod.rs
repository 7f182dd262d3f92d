//! What a trace amounts to: functions, threads, waits, counters and events, as plain data that can be shown in any way.

pub(crate) mod call_bytes;
pub mod call_tree;
pub mod counters;
pub mod deadlocks;
pub mod events;
pub mod evidence;
pub(crate) mod focus;
pub mod functions;
pub(crate) mod labels;
pub mod load;
pub mod long_waits;
pub mod metadata;
pub(crate) mod roles;
pub mod scope_sums;
pub(crate) mod sort_key;
pub mod system_calls;
pub mod thread_rows;
pub mod timeline;
pub mod wait_pairs;
pub(crate) mod wait_rows;
