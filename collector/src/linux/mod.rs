//! Linux: what runs programs there, attaches to them, samples them and looks into them. From what is used to
//! who uses it:
//!
//! - `procfs`: what /proc says; `find_program`, `spawn`, `group_sentinel`, `supervise`, `death`: a program's
//!   start, life and end; `transfers`, `resources`, `limits`, `systrace`, `unix_peers`: single questions to
//!   the kernel;
//! - `remote_unwind`: other processes' stacks, walked from outside; `attach`, `sharing`, `descendants`: the
//!   agent in processes that run already;
//! - `thread_state`, `thread_clock`, `ticking`: whether a thread runs, clocks of single threads, and waking
//!   on time; `host`: all that a session asks; `suspension`: interrupting as systems without signals to
//!   threads do it; `off_cpu`, `lock_waits`: threads that wait; `unrecorded`: processes without an agent;
//!   `polls`: the thread of these and of counters;
//! - `record`, `attached`: a recording from its begin to its end.

pub(crate) mod attach;
pub(crate) mod attached;
pub(crate) mod death;
mod descendants;
pub(crate) mod find_program;
pub(crate) mod group_sentinel;
pub(crate) mod host;
mod limits;
pub(crate) mod lock_waits;
pub(crate) mod off_cpu;
mod polls;
pub(crate) mod procfs;
pub(crate) mod record;
mod remote_unwind;
pub(crate) mod resources;
pub(crate) mod runtime_options;
mod sharing;
pub(crate) mod spawn;
pub(crate) mod supervise;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub(crate) mod suspension;
mod systrace;
pub(crate) mod thread_clock;
mod thread_state;
mod ticking;
pub(crate) mod transfers;
mod unix_peers;
mod unrecorded;
