//! What a trace amounts to: functions, threads, waits, counters and events, as plain data that can be shown in any way.

pub mod call_tree;
pub mod counters;
pub mod deadlocks;
pub mod events;
pub mod evidence;
pub mod facts;
pub mod functions;
pub mod load;
pub mod long_waits;
pub mod rows;
pub mod scope_sums;
pub mod system_calls;
pub mod timeline;
pub mod waits;
