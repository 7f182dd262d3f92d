//! `libstackbeat.so`: preloaded into an unmodified program, it stands before libc and tells the engine
//! (`stackbeat_core::agent`) of the calls that pass. Loaded into a running one, it takes libc's place in the
//! slots through which modules call each other (`attach`, `patch`).
//!
//! How hooks are made:
//! - `hook_macros`: the macros that make a hook out of one line, also of the lists in `stackbeat_core::posix`
//! - `hooked_functions`: the list of hooked functions, by which a hook says that it was called
//! - `resolve`: finds the original behind a hook, in the dynamic linker's list
//! - `lacking`: functions that some libcs lack
//!
//! The hooks, one file a family of calls:
//! - memory: `alloc` (malloc and its relatives), `memory` (mmap and its relatives)
//! - files and sockets: `io`, `stdio`, `net`; `poll`, `uring`: waiting for events and completions
//! - threads: `thread`, `lock`, `wait` (condition variables, semaphores, queues), `sleep`, `clock_reads`;
//!   `futex`: `syscall()`
//! - processes: `fork_exec` (fork, exec, spawn, wait), `send` (kill and its relatives), `sandbox` (prctl,
//!   seccomp)
//! - signals: `signal`, with masks and crashes in its folder; `altstack`
//! - libraries: `patch/library` (dlopen and its relatives)
//!
//! What hooks use:
//! - `objects`: what glibc's locks and threads are, in the words of the lists
//! - `descriptor`: what is behind a descriptor, so that a write finds who reads
//! - `interrupted`: waits that any handler ends
//! - `env`: the preload and the session in the environment of children
//!
//! How the library comes into a process and out of it:
//! - `constructor`: constructor and destructor; `verify`: which hooks the program reaches, reported at the
//!   start
//! - `attach`: the entrance and exit of a running process
//! - `patch`: hooks in slots of modules; `patch/unpatch` takes them away where they cost too much
//! - `own_session`: a session inside the program, whose threads are in a library of their own
//! - `api`: what a program asks for by itself; `runtime`: what a library that knows a runtime of managed code
//!   tells
//!
//! Nothing here allocates, locks or logs on a hook's path.

#[macro_use]
mod hook_macros;

mod alloc;
mod altstack;
mod api;
mod attach;
mod clock_reads;
mod constructor;
mod descriptor;
mod env;
mod fork_exec;
mod futex;
mod hooked_functions;
mod interrupted;
mod io;
mod lacking;
mod lock;
mod memory;
mod net;
mod objects;
mod own_session;
mod patch;
mod poll;
mod resolve;
mod runtime;
mod sandbox;
mod send;
mod signal;
mod sleep;
mod stdio;
mod thread;
mod uring;
mod verify;
mod wait;

/// What the agent allocates (at its start, never on a hook's path) does not come from the malloc that it
/// hooks.
#[global_allocator]
static ARENA: stackbeat_core::platform::agent_memory::Arena =
    stackbeat_core::platform::agent_memory::Arena::new();
