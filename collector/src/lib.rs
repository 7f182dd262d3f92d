//! Recording sessions: starting and attaching to programs, sampling, draining, and writing traces.
//!
//! Each of these uses those above it only:
//!
//! - `writer` and [`hooked_calls`]: the file, and what the agent library says of itself;
//! - `host`: what a session needs of its surroundings, as a contract;
//! - `drain`: from the shared memory into packets;
//! - [`session`]: what a session is on any platform;
//! - `sampler`: when and how running threads are interrupted, and the ticker;
//! - `apple`: surroundings of a session inside a process there;
//! - `linux`: what runs and looks into programs there, and the start of a session, which knows all of it;
//! - [`recover`]: a trace from the shared memory of a session that did not come to its end;
//! - [`embedded`]: a session inside the program, of the same parts; `in_process`: the start of a program that
//!   has one.
#![cfg_attr(
    not(any(target_os = "linux", target_os = "android")),
    allow(dead_code, reason = "what only a session beside the program uses")
)]

#[cfg(any(target_vendor = "apple", all(test, target_arch = "x86_64")))]
mod apple;
mod drain;
pub mod embedded;
pub mod hooked_calls;
mod host;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod in_process;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod linux;
mod numbers;
pub mod recover;
mod sampler;
pub mod session;
mod writer;

#[cfg(any(target_os = "linux", target_os = "android"))]
pub use in_process::record_in_process;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub use linux::attach::Target;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub use linux::attached::attach;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub use linux::death::die_of;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub use linux::record::{probe_cpu_timers, probe_kernel_clock, record};
