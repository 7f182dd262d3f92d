//! Unwinding against independent truth: libgcc's unwinder over call chains of every shape, and gdb
//! over stopped real programs.
#![cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]

mod assembly;
mod chains;
mod garbage;
mod gdb;
mod in_process;
mod remote;
mod walks_on_malloc;

/// Held by a test that loads and unloads libraries, or that looks at any address: what came and went is
/// reported once in a process, and an address where no code lay is believed to hold none until a module
/// comes.
static LIBRARIES: std::sync::Mutex<()> = std::sync::Mutex::new(());
