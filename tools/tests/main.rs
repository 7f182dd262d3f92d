//! The command line from outside, and what it makes of traces that tests wrote. Recordings of real programs
//! are the package `stackbeat-tests`.

mod cli;
mod damaged;
mod exports;
mod gate_scale;
mod recorded;
mod settings;
