//! What a recording session is on any platform: what it is asked to do and says, what its threads share, the
//! drain's thread, pace and budget, control, dumps, and its end.
//!
//! - `options`, `error`, `attach_error`, `dump_error`, `orders`: what is asked of it, and what can go wrong
//! - `shared`, `storage`, `activity`, `clocks`, `trace_header`: what its threads share; `open`: all of it
//!   made
//! - `own_threads`: those of a session inside the program
//! - `drainer`: the drain's thread; `kept`: what parts of the recorder keep of each live thread
//! - `pace`, `budget`, `cost`: the intervals, and what a recording costs; `cpus`: which processors the
//!   program runs on
//! - `control`, `protocol`, `dump`, `auto_dump`: clients, dumps that are asked for, and those that come by
//!   themselves
//! - `grid`: the common moments of polls
//! - `sigbus_guard`: a mapping that somebody cuts off; `jit_maps`: names of run-time compilers; `finish`: the
//!   end

pub(crate) mod activity;
pub(crate) mod attach_error;
pub(crate) mod auto_dump;
pub(crate) mod bell;
pub(crate) mod budget;
pub(crate) mod clocks;
pub mod control;
mod cost;
mod cpus;
pub(crate) mod drainer;
mod dump;
pub(crate) mod dump_error;
pub(crate) mod error;
pub(crate) mod finish;
pub(crate) mod grid;
pub(crate) mod jit_maps;
pub(crate) mod kept;
pub(crate) mod meter;
pub(crate) mod open;
pub(crate) mod options;
pub(crate) mod orders;
pub(crate) mod own_threads;
mod pace;
pub mod protocol;
pub(crate) mod runtime_folders;
pub(crate) mod shared;
mod sigbus_guard;
pub(crate) mod storage;
pub(crate) mod trace_header;

pub use attach_error::AttachError;
pub use cpus::{CpuList, CpuListError};
pub use dump_error::DumpError;
pub use error::{RecordError, Warning, WhyNot};
pub use options::{
    AttachSession, AttachStep, Attachment, Budget, ClockChoice, Descendants, Dumps, MAX_DEPTH,
    MAX_INTERVAL_NS, MIN_COUNTERS_NS, MIN_INTERVAL_NS, Options, Outcome, Progress, Status,
    Systrace,
};
