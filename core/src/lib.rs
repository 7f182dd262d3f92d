//! The engine of stackbeat inside the traced program.
#![no_std]
extern crate std;

pub mod agent;
pub mod buffer;
pub mod callstack;
pub mod clock;
pub mod gate;
pub mod layout;
pub mod mapping;
pub mod memory;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub mod modules;
pub mod probe;
pub mod record;
pub mod registry;
pub mod sync;
pub mod sys;
pub mod throttle;
pub mod unwind;
