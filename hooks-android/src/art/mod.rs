//! ART: its symbols by version, walks of Java stacks, and the hooks in its locks, waits, allocator and
//! collector.
//!
//! It joins the process' agent by the table of `stackbeat_runtime.h` and has none of its own.
//!
//! - `symbols`: where libart's functions are, from its ELF
//! - `versions`: which functions there are, by Android's version
//! - `library`: the ART of this process
//! - `threads`: what is kept for a thread
//! - `agent`: the agent's table
//! - `walk`: a walk by ART's own StackVisitor, in the hooks below
//! - `chain`: the interpreter's frames, read without a call of ART, in any capture
//! - `nterp`: the frames of that interpreter on the native stack
//! - `methods`: ART's methods and the agent's numbers for them
//! - `frames`: puts these together when the agent asks for a thread's frames
//! - `hooks`: what is hooked
//! - `heap`: allocations
//! - `entry_points`: by which functions a thread makes objects
//! - `monitors`: whose a monitor is, and its number
//! - `place`: puts hooks in their places
//! - `jni`: the few calls of JNI that this needs
//! - `self_test`: which hooks their calls pass
//! - `start`: where it begins and ends
//! - `error`: why it does not
//! - `suspend`: suspends one thread
//! - `fallback`: threads that pass no hook
//! - `rig`, `trial`: what tests want besides, with the feature `rig`

mod agent;
mod chain;
mod entry_points;
mod error;
mod fallback;
mod frames;
mod heap;
mod hooks;
mod jni;
pub mod library;
mod methods;
mod monitors;
mod nterp;
mod place;
#[cfg(feature = "rig")]
pub mod rig;
mod self_test;
mod start;
mod suspend;
pub mod symbols;
mod threads;
#[cfg(feature = "rig")]
mod trial;
pub mod versions;
mod walk;

pub use agent::of_process as agent_of_process;
pub use fallback::{DEFAULT_GROUPS, MOST_GROUPS, StartThread, Suspenders};
pub use self_test::run as self_test;
pub use start::{begin, end};
