//! The code of this process: its modules, their unwind rules, and walks of its threads.

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod frame_walk;
pub mod generated_code;
pub mod image_list;
#[cfg_attr(
    not(any(target_os = "linux", target_os = "android")),
    path = "own_modules/elsewhere.rs"
)]
pub mod own_modules;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub mod own_walk;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod rule_cache;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub mod unwind_memory;

/// The walker that captures use.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub type ThreadWalker = own_walk::NativeWalker;
/// The walker that captures use.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub type ThreadWalker = frame_walk::FrameWalker;
