//! Summaries as JSON. docs/json.md says what the fields mean.

pub(crate) mod report;
