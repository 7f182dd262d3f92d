//! Tables through which waiting threads and those that end their waits find each other.

use crate::sync::{AtomicU32, AtomicU64};

/// Buckets of the table of waiters.
pub const WAIT_BUCKETS: usize = 4096;
/// Threads that may wait in one bucket.
pub const WAIT_PLACES: usize = 8;

/// Threads that wait for objects with the same hash, a cache line. See `crate::shm::waiters`.
#[cfg_attr(target_arch = "aarch64", repr(C, align(128)))]
#[cfg_attr(not(target_arch = "aarch64"), repr(C, align(64)))]
#[derive(Debug, Default)]
pub struct WaitBucket {
    /// Index of a waiting thread's entry, plus 1; 0: free.
    pub places: [AtomicU32; WAIT_PLACES],
    /// The last that let go of an object with this hash (a `crate::shm::waiters::Waker`).
    pub released_by: AtomicU64,
    /// `released_by` combined with the object by exclusive or: a reader checks by it that both belong
    /// together.
    pub released: AtomicU64,
    /// Fills the cache line.
    pub padding: [AtomicU64; 2],
}

/// Entries of the table of watches, two a cache line.
pub const WATCHES: usize = 8192;

/// Threads that wait for several descriptors at once find their wakers through this. See
/// `crate::shm::watches`.
#[repr(C, align(32))]
#[derive(Debug, Default)]
pub struct Watch {
    /// What is watched, 0: free.
    pub object: AtomicU64,
    /// The epoll instance that watches it; 0: none.
    pub poll: AtomicU64,
    /// What the epoll instance says when the object is ready.
    pub data: AtomicU64,
    /// The last thread that waited for it among others, as an object; 0: none.
    pub group: AtomicU64,
}

/// Entries of the table of Unix sockets whose other end is looked for.
pub const UNIX_PEERS: usize = 2048;

/// A connected Unix socket: agents ask, the collector answers. See `crate::shm::watches`.
#[repr(C, align(16))]
#[derive(Debug, Default)]
pub struct UnixPeer {
    /// Inode of the socket, 0: free.
    pub inode: AtomicU64,
    /// Inode of its other end, 0: not known yet.
    pub peer: AtomicU64,
}
