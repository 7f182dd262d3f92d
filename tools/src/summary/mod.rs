//! What a trace amounts to: functions, threads, waits, counters and events, as plain data that can be shown
//! in any way.

pub(crate) mod call_bytes;
pub(crate) mod call_tree;
pub(crate) mod cost;
pub(crate) mod counters;
pub(crate) mod deadlocks;
pub(crate) mod events;
pub(crate) mod evidence;
pub(crate) mod focus;
pub(crate) mod functions;
pub(crate) mod helpers;
pub(crate) mod idle;
pub(crate) mod labels;
pub(crate) mod libraries;
pub(crate) mod load;
pub(crate) mod long_waits;
pub(crate) mod metadata;
pub(crate) mod missing_names;
pub(crate) mod own_code;
pub(crate) mod process_waits;
pub(crate) mod roles;
pub(crate) mod scope_sums;
pub(crate) mod sort_key;
pub(crate) mod system_calls;
pub(crate) mod thread_rows;
pub(crate) mod timeline;
pub(crate) mod told_apart;
pub(crate) mod verdict;
pub(crate) mod wait_kind;
pub(crate) mod wait_pairs;
pub(crate) mod wait_rows;
pub(crate) mod waited_for;
