//! Managed frames: what the agent and the collector know of runtimes whose code no file of machine code holds.

pub mod lines;
