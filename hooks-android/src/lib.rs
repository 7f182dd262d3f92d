//! Hooks for Android: ART, Android's runtime for Java, bionic, its C library, and what lies between: the loop
//! of messages, frames and Binder.
//!
//! What needs neither a device nor bionic compiles and runs on Linux, where tests load a real ART.

pub mod art;
pub mod backend;
#[cfg(target_pointer_width = "64")]
pub mod bionic;
pub mod doctor;
#[cfg(target_pointer_width = "64")]
pub mod framework;
