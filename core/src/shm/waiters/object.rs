//! What threads wait for, as a number: addresses, children, things behind descriptors.

/// The scope of what means the same in all processes.
pub const EVERYWHERE: u32 = 0;

/// Something that threads wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// Address in the process, or what stands for a descriptor.
    pub id: u64,
    /// Index of the process in which the address counts, plus 1, or [`EVERYWHERE`].
    pub scope: u32,
}

/// What stands for a lock where threads wait to share it.
#[inline(always)]
pub const fn shared(lock: u64) -> u64 {
    lock ^ 1 << 62
}

/// What a thread waits for that waits for the end of this child process. No address has these bits.
pub const fn child(pid: u32) -> u64 {
    0xA << 60 | (pid as u64) << 3
}

/// What a thread of this process waits for that waits for the end of any child.
pub const fn any_child(parent_pid: u32) -> u64 {
    0xC << 60 | (parent_pid as u64) << 3
}

/// Kinds of things behind descriptors, for [`descriptor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Described {
    /// The signals of a process, by its pid: what comes out of its signalfds.
    Signals = 0,
    /// By its inode: what is written into any of its ends comes out of any.
    Pipe = 1,
    /// An eventfd.
    Event = 2,
    /// By its inode: what comes out of this end.
    UnixSocket = 3,
    /// By addresses and ports, local ones first.
    Connection = 4,
    /// By its address.
    Listener = 5,
    /// An epoll instance.
    Poll = 6,
    /// Whatever a thread waits for at once, by the thread's utid.
    Group = 7,
}

/// What stands for a thing behind descriptors, in all processes. `number` tells it from others of its kind.
pub const fn descriptor(kind: Described, number: u64) -> u64 {
    // Steps of an odd constant are a permutation: neighbours get far away from each other.
    let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    0x9 << 60 | (kind as u64) << 57 | mixed >> 10 << 3
}
