//! Hooks for Apple's systems: calls from an app's own images to the system's libraries.
//!
//! - [`macho`]: which words of an image hold addresses of imported functions. Pure, compiled everywhere.
//! - [`rebind`]: puts hooks into these words in all loaded images, and takes them out again.
//! - [`posix`]: the hooks, and the table of them.
//!
//! Calls inside the dyld shared cache pass no such word. They are not seen this way.

pub mod macho;
pub mod posix;
pub mod rebind;
