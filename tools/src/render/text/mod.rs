//! Summaries as text: tables for a terminal.

pub(crate) mod focus;
pub(crate) mod tables;
