//! Summaries as JSON. docs/json.md says what the fields mean.

pub(crate) mod deadlocks;
pub(crate) mod focus;
pub(crate) mod report;
pub(crate) mod system_calls;
pub(crate) mod wait_pairs;
