//! Whether one set of runs is slower than another, where and why. Stands behind the reports: the tools
//! sum each trace up into a [`run::Run`] and hand all of them in; what comes out is a [`decide::Outcome`].
//!
//! Everything here is pure: no files, no clock, and random numbers come from a seed, so the same runs
//! give the same answer. Formulas and their sources: docs/gate/method.md.

#![forbid(unsafe_code)]

pub mod comparable_names;
pub mod compare;
pub mod confirm;
pub mod decide;
pub mod explain;
mod packed;
mod pairs;
pub mod random;
pub mod rules;
pub mod run;
pub mod run_budget;
pub mod run_table;
pub mod stats;
pub mod trend;
pub mod wait_partners;
