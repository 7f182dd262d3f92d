//! One module for each command: it resolves its arguments into options, does what they ask for, and says how it went.

pub mod attach;
pub mod control;
pub mod convert;
pub mod demo;
pub mod doctor;
pub(crate) mod documents;
pub mod gate;
pub mod info;
pub mod probes;
pub mod record;
pub mod recover;
pub mod report;
pub mod self_test;
