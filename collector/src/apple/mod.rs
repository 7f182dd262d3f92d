//! Apple's systems: a session inside an app or a program, which samples threads by suspending them.
//!
//! - `mach`: what Mach is asked, as its headers have it;
//! - `threads`: the threads of this process by tid;
//! - `resources`: what the process uses;
//! - `window`: what runs while a thread is suspended;
//! - `suspension`: how running threads are interrupted; `host`: all that a session asks.
//!
//! Nothing of it has run on a device. Tests run it on Linux, where `tests/world.rs` answers Mach's calls.

pub(crate) mod host;
mod mach;
mod resources;
mod suspension;
#[cfg(test)]
pub(crate) mod tests;
mod threads;
mod window;
