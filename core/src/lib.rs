//! The engine of stackbeat inside the traced program, and the collector's side of what both share.
//!
//! Under `cfg(loom)` only the shared protocols are there, with loom's atomics in place of real ones.
#![no_std]
extern crate std;

#[cfg(not(loom))]
pub mod agent;
pub mod answer;
pub mod buffer;
pub mod callstack;
pub mod clock;
pub mod fault;
pub mod filter;
pub mod gate;
pub mod handover;
pub mod layout;
#[cfg(not(loom))]
pub mod mapping;
#[cfg(not(loom))]
pub mod memory;
#[cfg(not(loom))]
#[cfg_attr(
    not(any(target_os = "linux", target_os = "android")),
    path = "modules/elsewhere.rs"
)]
pub mod modules;
pub mod probe;
pub mod record;
#[cfg(not(loom))]
pub mod registry;
#[cfg(all(any(target_os = "linux", target_os = "android"), not(loom)))]
pub mod sandbox;
pub mod sync;
pub mod sys;
pub mod system_call;
pub mod throttle;
#[cfg(not(loom))]
pub mod unwind;
#[cfg(not(loom))]
pub mod waiters;
#[cfg(not(loom))]
pub mod watches;
