//! Hooks for Android: ART, Android's runtime for Java, and bionic, its C library.
//!
//! What needs neither a device nor bionic compiles and runs on Linux, where tests load a real ART.

pub mod art;
pub mod backend;
#[cfg(target_pointer_width = "64")]
pub mod bionic;
pub mod doctor;
