//! Names of the counters of the whole program that say what it has read and written. Counters of the program itself
//! have no unit, so the units tell the two apart.

/// Calls that read: `read`, `pread`, `readv`, `sendfile` and the like, whatever they read from. Not `recv` and not mapped files.
pub const READ_CALLS: &str = "read calls";
/// The same for writing.
pub const WRITE_CALLS: &str = "write calls";
/// What these calls returned, from files, caches, pipes, devices and sockets.
pub const BYTES_READ: &str = "bytes read";
pub const BYTES_WRITTEN: &str = "bytes written";
/// What storage had to be asked for, and what was made dirty for it.
pub const STORAGE_READ: &str = "storage bytes read";
pub const STORAGE_WRITTEN: &str = "storage bytes written";

/// Unit of the calls.
pub const CALLS: &str = "calls";
/// Unit of the bytes.
pub const BYTES: &str = "bytes";
