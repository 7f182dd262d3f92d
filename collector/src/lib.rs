//! Recording sessions, draining, symbolization and the trace model.

pub mod model;
pub mod symbolize;

#[cfg(target_os = "linux")]
pub mod attach;
#[cfg(target_os = "linux")]
pub mod drain;
#[cfg(target_os = "linux")]
pub(crate) mod foreign;
#[cfg(target_os = "linux")]
pub mod functions;
#[cfg(target_os = "linux")]
pub mod recover;
#[cfg(target_os = "linux")]
pub mod session;
#[cfg(target_os = "linux")]
pub mod writer;
