//! What both sides of the mapping share: its layout, and the protocols in it. Both sides of each protocol
//! stand in one file.

pub mod adoption;
pub mod buffer;
pub mod calls;
pub mod callstack;
pub mod layout;
#[cfg(not(loom))]
pub mod mapping;
pub mod methods;
pub mod record_format;
#[cfg(not(loom))]
pub mod registry;
pub mod signal_gate;
pub mod throttle;
#[cfg(not(loom))]
pub mod wait_table;
#[cfg(not(loom))]
pub mod waiters;
#[cfg(not(loom))]
pub mod watches;
