//! Threads that wait for several descriptors at once, and the other ends of Unix sockets.
//!
//! A thread in `epoll_wait` or in a `poll` of several descriptors stands in the table of waiters
//! (`crate::shm::waiters`) with one object of its own: the epoll instance, or its group. Who writes to a
//! descriptor finds that object here, by the descriptor's. Entries are overwritten when their line is full
//! and may be out of date: whoever ends a wait because of one names its descriptor, and the thread that
//! wakes up looks whether that one is ready.
//!
//! The other end of a connected Unix socket is known to the kernel alone, which tells it through a netlink
//! socket. The traced program opens no descriptors for us, so an agent leaves the question here, and the
//! collector answers it.

use crate::shm::layout::{UNIX_PEERS, WATCHES, Watch};
use crate::shm::mapping::Mapping;
use crate::sync::Ordering;

/// Entries in which an object may stand, two cache lines: one for each epoll instance that watches it.
pub const WAYS: usize = 4;
/// Entries in which a socket may stand: a cache line.
const PEER_WAYS: usize = 4;

const _: () = assert!(WATCHES.is_power_of_two() && UNIX_PEERS.is_power_of_two());

/// The first entry for an object. Its upper bits are mixed already (`waiters::descriptor`).
#[inline(always)]
fn line_of(object: u64) -> usize {
    (object >> 16) as usize & (WATCHES - 1) & !(WAYS - 1)
}

/// Who watches an object: an entry for each epoll instance.
///
/// # Safety
/// `table` is the first entry of a mapping's table.
#[inline(always)]
pub unsafe fn find<'a>(table: *const Watch, object: u64) -> impl Iterator<Item = &'a Watch> {
    let line = line_of(object);
    // SAFETY: by contract the table has `WATCHES` entries, and lines begin below that.
    let ways: &'a [Watch] = unsafe { core::slice::from_raw_parts(table.add(line), WAYS) };
    ways.iter()
        .filter(move |watch| watch.object.load(Ordering::Relaxed) == object)
}

fn line(mapping: &Mapping, object: u64) -> &[Watch] {
    let line = line_of(object);
    &mapping.watches()[line..line + WAYS]
}

/// An entry of the object that was free or gives way to it.
fn new_entry(mapping: &Mapping, object: u64) -> &Watch {
    let ways = line(mapping, object);
    let free = ways.iter().find(|watch| {
        let taken = watch
            .object
            .compare_exchange(0, object, Ordering::Relaxed, Ordering::Relaxed);
        taken.is_ok()
    });
    let taken = free.unwrap_or(&ways[(object >> 8) as usize % WAYS]);
    taken.object.store(0, Ordering::Relaxed);
    taken.poll.store(0, Ordering::Relaxed);
    taken.group.store(0, Ordering::Relaxed);
    taken.object.store(object, Ordering::Release);
    taken
}

/// The object's entry for an epoll instance.
fn entry_of(mapping: &Mapping, object: u64, poll: u64) -> Option<&Watch> {
    line(mapping, object).iter().find(|watch| {
        watch.object.load(Ordering::Relaxed) == object && watch.poll.load(Ordering::Relaxed) == poll
    })
}

/// An epoll instance watches an object, and says `data` when it is ready.
pub fn watch(mapping: &Mapping, poll: u64, object: u64, data: u64) {
    let of_nobody = || {
        let entry = entry_of(mapping, object, 0)?;
        let taken = entry
            .poll
            .compare_exchange(0, poll, Ordering::Relaxed, Ordering::Relaxed);
        taken.ok().map(|_| entry)
    };
    let entry = entry_of(mapping, object, poll)
        .or_else(of_nobody)
        .unwrap_or_else(|| new_entry(mapping, object));
    entry.data.store(data, Ordering::Relaxed);
    entry.poll.store(poll, Ordering::Relaxed);
}

/// It does not watch it any more.
pub fn unwatch(mapping: &Mapping, poll: u64, object: u64) {
    if let Some(entry) = entry_of(mapping, object, poll) {
        entry.poll.store(0, Ordering::Relaxed);
    }
}

/// A thread waits for the object, among others.
pub fn join_group(mapping: &Mapping, group: u64, object: u64) {
    let mut ways = line(mapping, object).iter();
    let entry = ways
        .find(|watch| watch.object.load(Ordering::Relaxed) == object)
        .unwrap_or_else(|| new_entry(mapping, object));
    entry.group.store(group, Ordering::Relaxed);
}

/// Whether an epoll instance that watches the object says so by data for which `is_said` is true.
pub fn is_reported(
    mapping: &Mapping,
    poll: u64,
    object: u64,
    is_said: impl Fn(u64) -> bool,
) -> bool {
    entry_of(mapping, object, poll).is_some_and(|watch| is_said(watch.data.load(Ordering::Relaxed)))
}

/// The other end of a Unix socket, both by their inodes; 0: not known. When nobody has asked for it yet, this
/// does, and calls `ask`.
pub fn unix_peer(mapping: &Mapping, inode: u64, ask: impl FnOnce()) -> u64 {
    let line = inode as usize % (UNIX_PEERS / PEER_WAYS) * PEER_WAYS;
    let ways = &mapping.unix_peers()[line..line + PEER_WAYS];
    if let Some(known) = ways
        .iter()
        .find(|entry| entry.inode.load(Ordering::Relaxed) == inode)
    {
        return known.peer.load(Ordering::Acquire);
    }
    let free = ways.iter().find(|entry| {
        let taken = entry
            .inode
            .compare_exchange(0, u64::MAX, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok()
    });
    let place = (inode as usize / (UNIX_PEERS / PEER_WAYS)) % PEER_WAYS;
    let entry = free.unwrap_or(&ways[place]);
    entry.inode.store(u64::MAX, Ordering::Relaxed);
    entry.peer.store(0, Ordering::Relaxed);
    entry.inode.store(inode, Ordering::Release);
    let control = mapping.control();
    control.peers_asked.fetch_add(1, Ordering::Release);
    ask();
    0
}

/// Collector: answers what was asked. `peer_of` gives the inode of a socket's other end, 0 when it has none
/// yet. Gives how many questions stay open.
pub fn answer(mapping: &Mapping, mut peer_of: impl FnMut(u64) -> u64) -> usize {
    let mut open = 0;
    for entry in mapping.unix_peers() {
        let inode = entry.inode.load(Ordering::Acquire);
        if matches!(inode, 0 | u64::MAX) || entry.peer.load(Ordering::Relaxed) != 0 {
            continue;
        }
        let peer = peer_of(inode);
        if peer == 0 || entry.inode.load(Ordering::Relaxed) != inode {
            open += 1;
        } else {
            entry.peer.store(peer, Ordering::Release);
        }
    }
    open
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use super::*;
    use crate::shm::mapping::tests::small;
    use crate::shm::waiters::{Described, descriptor};
    use std::vec::Vec;

    fn polls(mapping: &Mapping, object: u64) -> Vec<u64> {
        // SAFETY: the mapping's own table.
        let found = unsafe { find(mapping.watches().as_ptr(), object) };
        let mut polls: Vec<_> = found.map(|w| w.poll.load(Ordering::Relaxed)).collect();
        polls.sort_unstable();
        polls
    }

    #[test]
    fn several_epoll_instances_watch_an_object() {
        let mapping = small();
        let object = descriptor(Described::Pipe, 1);
        for poll in 1..=WAYS as u64 {
            watch(&mapping, poll, object, 100 + poll);
            watch(&mapping, poll, object, 200 + poll);
        }
        assert_eq!(polls(&mapping, object), [1, 2, 3, 4]);
        assert!(is_reported(&mapping, 3, object, |data| data == 203));
        assert!(!is_reported(&mapping, 3, object, |data| data == 103));
        unwatch(&mapping, 2, object);
        assert_eq!(polls(&mapping, object), [0, 1, 3, 4]);
        watch(&mapping, 5, object, 205);
        assert_eq!(polls(&mapping, object), [1, 3, 4, 5]);
        // One gives way when all are taken.
        watch(&mapping, 6, object, 206);
        assert_eq!(polls(&mapping, object).len(), WAYS);
        assert!(is_reported(&mapping, 6, object, |data| data == 206));
    }

    #[test]
    fn the_other_end_of_a_socket_is_asked_for_once() {
        let mapping = small();
        let mut asked = 0;
        assert_eq!(unix_peer(&mapping, 77, || asked += 1), 0);
        assert_eq!(unix_peer(&mapping, 77, || asked += 1), 0);
        assert_eq!(asked, 1);
        let asked = mapping.control().peers_asked.load(Ordering::Relaxed);
        assert_eq!(asked, 1);
        assert_eq!(answer(&mapping, |_| 0), 1, "not accepted yet");
        assert_eq!(answer(&mapping, |inode| inode + 1), 0);
        assert_eq!(unix_peer(&mapping, 77, || ()), 78);
        // A full line gives an old answer up.
        for i in 1..=PEER_WAYS as u64 {
            unix_peer(&mapping, 77 + i * (UNIX_PEERS / PEER_WAYS) as u64, || ());
        }
        assert_eq!(answer(&mapping, |inode| inode + 1), 0);
    }
}
