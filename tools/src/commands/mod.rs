//! One module for each command: it resolves its arguments into options, does what they ask for, and says how it went.

pub(crate) mod android;
pub(crate) mod apple;
pub(crate) mod attach;
pub(crate) mod control;
pub(crate) mod convert;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod documents;
pub(crate) mod gate;
pub(crate) mod info;
pub(crate) mod open;
pub(crate) mod probes;
pub(crate) mod record;
pub(crate) mod recover;
pub(crate) mod report;
pub(crate) mod self_test;
pub(crate) mod top;
