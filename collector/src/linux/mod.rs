//! Linux: what runs programs there, attaches to them, samples them and looks into them. From what is used to who uses it:
//!
//! - `procfs` and `system`: what /proc says, and what of it the drain asks; `find_program`, `spawn`, `group_sentinel`, `supervise`,
//!   `death`: a program's start, life and end; `transfers`, `systrace`, `unix_peers`: single questions to the kernel;
//! - `remote_unwind`: other processes' stacks, walked from outside; `attach`, `sharing`, `descendants`: the agent in processes that
//!   run already;
//! - `sampler`, `ticker`: when and how threads are interrupted; `off_cpu`, `lock_waits`: threads that wait; `meter`:
//!   counters; `unrecorded`: processes without an agent;
//! - `record`, `attached`: a recording from its begin to its end.

pub(crate) mod attach;
pub(crate) mod attached;
pub(crate) mod death;
mod descendants;
pub(crate) mod find_program;
pub(crate) mod group_sentinel;
mod lock_waits;
mod meter;
pub(crate) mod off_cpu;
mod procfs;
pub(crate) mod record;
mod remote_unwind;
pub(crate) mod runtime_options;
pub(crate) mod sampler;
mod sharing;
pub(crate) mod spawn;
pub(crate) mod supervise;
pub(crate) mod system;
mod systrace;
pub(crate) mod ticker;
mod transfers;
mod unix_peers;
mod unrecorded;
