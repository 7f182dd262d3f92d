//! Where the dynamic linker tells of images (Apple), the platform's hooks keep the list of modules
//! ([`image_list`](crate::native::image_list)): nothing is looked for here.

use crate::platform;

pub use super::image_list::{begin_anew, epoch};

/// There is no list. What the platform needs to know from the dynamic linker is asked now, and never in a
/// capture.
pub fn init() {
    platform::prepare();
}

/// Where this library's own code lies; 0, 0 before [`init`].
pub fn own_code() -> (u64, u64) {
    platform::own_code()
}

/// There is no lookup function.
///
/// # Safety
/// None needed: nothing is done.
pub(crate) unsafe fn set_find_object(_address: usize) {}

/// There is no list.
pub fn after_fork() {}

/// Walks do not look at modules.
pub fn unloading_begins() {}

/// Walks do not look at modules.
pub fn unloading_ends() {}
