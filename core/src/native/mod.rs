//! The code of this process: its modules, their unwind rules, and walks of its threads.

#[cfg(any(target_os = "linux", target_os = "android"))]
pub mod memory;
#[cfg_attr(
    not(any(target_os = "linux", target_os = "android")),
    path = "modules/elsewhere.rs"
)]
pub mod modules;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod rule_cache;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub mod walk;

/// The walker that captures use.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub type ThreadWalker = walk::NativeWalker;
/// The walker that captures use.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub type ThreadWalker = crate::unwind::FramePointerWalker;
