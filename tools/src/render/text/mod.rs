//! Summaries as text: tables for a terminal.

pub(crate) mod counters;
pub(crate) mod deadlocks;
pub(crate) mod events;
pub(crate) mod evidence;
pub(crate) mod focus;
pub(crate) mod section;
pub(crate) mod system_calls;
pub(crate) mod table_layout;
pub(crate) mod tables;
pub(crate) mod wait_pairs;
