//! Names of the counters of the whole program that say what it has read and written. Counters of the program
//! itself have no unit, so the units tell the two apart.

/// Calls that read: `read`, `pread`, `readv`, `sendfile` and the like, whatever they read from. Not `recv`
/// and not mapped files.
pub const READ_CALLS: &str = "read calls";
/// The same for writing.
pub const WRITE_CALLS: &str = "write calls";
/// What the calls that read returned, from files, caches, pipes, devices and sockets.
pub const BYTES_READ: &str = "bytes read";
/// What the calls that write returned, to whatever.
pub const BYTES_WRITTEN: &str = "bytes written";
/// What had to be fetched from storage.
pub const STORAGE_READ: &str = "storage bytes read";
/// What was made dirty for storage.
pub const STORAGE_WRITTEN: &str = "storage bytes written";

/// Unit of the calls.
pub const CALLS: &str = "calls";
/// Unit of the bytes.
pub const BYTES: &str = "bytes";
