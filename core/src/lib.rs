//! The engine of stackbeat inside the traced program, and the collector's side of what both share.
//!
//! - `posix`: the calls that are hooked on every platform, and what their arguments and results mean
//! - `agent`: what hooks call, from the hot path to a capture
//! - `shm`: the mapping that agents and the collector share, and both sides of each protocol in it
//! - `managed`: frames of runtimes on the own process' stacks
//! - `native`: the code of the own process: its modules, and walks of its threads
//! - `unwind`: from registers to return addresses; asks nobody for anything
//! - `clock`: what dates records
//! - `platform`: what differs between operating systems
//! - the words that all use: `probe`, `system_call`, `crash_signals`, `attach_status`, `embedded`, `ids`,
//!   `address`, `cycles`, `sync`
//!
//! Each uses only what stands below it. Under `cfg(loom)` only the shared protocols are there, with loom's
//! atomics in place of real ones.
#![no_std]
extern crate std;

pub mod address;
#[cfg(not(loom))]
pub mod agent;
pub mod attach_status;
pub mod clock;
pub mod crash_signals;
pub mod cycles;
pub mod embedded;
pub mod ids;
#[cfg(not(loom))]
pub mod managed;
#[cfg(not(loom))]
pub mod native;
pub mod platform;
#[cfg(not(loom))]
pub mod posix;
pub mod probe;
pub mod shm;
pub mod sync;
pub mod system_call;
#[cfg(not(loom))]
pub mod unwind;
