//! The engine of stackbeat inside the traced program.
#![no_std]
extern crate std;

pub mod layout;
pub mod probe;
pub mod record;
pub mod unwind;
