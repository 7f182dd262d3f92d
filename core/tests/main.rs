//! What core does in a real process, its protocols between threads and processes, and its unwinder against
//! others.

#[cfg(loom)]
mod loom;

#[cfg(not(any(loom, miri)))]
mod agent;
#[cfg(not(any(loom, miri)))]
mod alone;
#[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
mod apple_wait;
#[cfg(not(any(loom, miri)))]
mod attach_detach;
#[cfg(not(any(loom, miri)))]
mod emulated;
#[cfg(not(any(loom, miri)))]
mod frame_pointers;
#[cfg(not(any(loom, miri)))]
mod killed;
#[cfg(not(any(loom, miri)))]
mod posix;
#[cfg(not(loom))]
mod protocols;
#[cfg(not(any(loom, miri)))]
mod stack_bounds;
#[cfg(not(any(loom, miri)))]
mod unwind;
