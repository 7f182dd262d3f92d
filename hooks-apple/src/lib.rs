//! Hooks for Apple's systems: calls from an app's own images to the system's libraries.
//!
//! - [`macho`]: which words of an image hold addresses of imported functions. Pure, compiled everywhere.
//! - [`rebind`]: puts hooks into these words in all loaded images, and takes them out again.
//! - [`posix`]: hooks of POSIX calls, and the table of them.
//! - [`system`]: hooks of what only Apple's systems have, and what needs no such word.
//!
//! Calls inside the dyld shared cache pass no such word. They are not seen this way.

pub mod macho;
pub mod posix;
pub mod rebind;
pub mod system;
