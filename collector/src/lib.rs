//! Recording sessions: starting and attaching to programs, sampling, draining, and writing traces.

#[cfg(target_os = "linux")]
pub mod attach;
#[cfg(target_os = "linux")]
pub mod drain;
#[cfg(target_os = "linux")]
pub(crate) mod foreign;
#[cfg(target_os = "linux")]
pub mod functions;
mod numbers;
#[cfg(target_os = "linux")]
pub mod recover;
#[cfg(target_os = "linux")]
pub mod session;
#[cfg(target_os = "linux")]
pub mod writer;
