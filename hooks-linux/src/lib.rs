//! `libstackbeat.so`: preloaded into an unmodified program, it stands before libc and tells the engine
//! (`stackbeat_core::agent`) of the calls that pass. Loaded into a running one, it takes libc's place in the
//! slots through which modules call each other (`attach`, `patch`).
//!
//! One file for each family of calls; `table` holds the macros that make a hook out of one line,
//! `resolve` finds what is behind it. Nothing here allocates, locks or logs on a hook's path.

#[macro_use]
mod table;

mod alloc;
mod altstack;
mod api;
mod attach;
mod calls;
mod clock;
mod descriptor;
mod env;
mod futex;
mod interrupted;
mod io;
mod lacking;
mod library;
mod lock;
mod memory;
mod net;
mod patch;
mod poll;
mod process;
mod resolve;
mod sandbox;
mod send;
mod signal;
mod sleep;
mod start;
mod stdio;
mod thread;
mod uring;
mod verify;
mod wait;
mod withdraw;

/// What the agent allocates (at its start, never on a hook's path) does not come from the malloc that it
/// hooks.
#[global_allocator]
static ARENA: stackbeat_core::platform::memory::Arena =
    stackbeat_core::platform::memory::Arena::new();
