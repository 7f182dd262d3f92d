//! Whether one set of runs is slower than another, where and why.
//!
//! Everything here is pure: no files, no clock, and random numbers come from a seed, so the same runs
//! give the same answer. Formulas and their sources: docs/gate.md.

#![forbid(unsafe_code)]

pub mod names;
pub mod random;
pub mod stats;
