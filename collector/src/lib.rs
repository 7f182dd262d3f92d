//! Recording sessions: starting and attaching to programs, sampling, draining, and writing traces.
//!
//! Each of these uses those above it only:
//!
//! - `writer` and [`hooked_calls`]: the file, and what the agent library says of itself;
//! - `host`: what a session needs of its surroundings, as a contract;
//! - `drain`: from the shared memory into packets;
//! - [`session`]: what a session is on any platform;
//! - `sampler`: when and how running threads are interrupted, and the ticker;
//! - `linux`: what runs and looks into programs there, and the start of a session, which knows all of it;
//! - [`recover`]: a trace from the shared memory of a session that did not come to its end;
//! - [`embedded`]: a session inside the program, of the same parts; `in_process`: the start of a program that has one.

#[cfg(target_os = "linux")]
mod drain;
#[cfg(target_os = "linux")]
pub mod embedded;
#[cfg(target_os = "linux")]
pub mod hooked_calls;
#[cfg(target_os = "linux")]
mod host;
#[cfg(target_os = "linux")]
mod in_process;
#[cfg(target_os = "linux")]
mod linux;
mod numbers;
#[cfg(target_os = "linux")]
pub mod recover;
#[cfg(target_os = "linux")]
mod sampler;
#[cfg(target_os = "linux")]
pub mod session;
#[cfg(target_os = "linux")]
mod writer;

#[cfg(target_os = "linux")]
pub use in_process::record_in_process;
#[cfg(target_os = "linux")]
pub use linux::attach::Target;
#[cfg(target_os = "linux")]
pub use linux::attached::attach;
#[cfg(target_os = "linux")]
pub use linux::death::die_of;
#[cfg(target_os = "linux")]
pub use linux::record::{probe_cpu_timers, probe_kernel_clock, record};
