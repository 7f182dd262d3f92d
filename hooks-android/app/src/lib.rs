//! `libstackbeat_app.so`: what an app carries to record itself. Agent, hooks and session in one library,
//! because an app has no process beside it, and Android no preload.
//!
//! - `jni`: what Kotlin calls (`dev.stackbeat.Native`)
//! - `exports`: what native code of the app finds: the functions of `stackbeat.h` and `stackbeat_runtime.h`
//! - `session`: from begin to end: the session's threads, the agent, the hooks
//! - `last_run`: what a killed run has left, and how it ended
//! - `log`: where it says what goes wrong
//! - `signal`: the handler of the signal that interrupts threads
//! - `switch`: whether the device's properties want this app recorded
//!
//! Nothing happens when the library is loaded. It allocates from memory of its own, never by the app's
//! malloc.

mod error;
mod exports;
mod jni;
mod last_run;
mod log;
mod session;
mod signal;
mod switch;

use stackbeat_collector::embedded::heap::Heap;

#[global_allocator]
static HEAP: Heap = Heap::new();
