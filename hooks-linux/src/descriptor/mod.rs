//! What is behind the program's descriptors, as far as threads wait for each other through it: pipes,
//! eventfds, sockets, epoll instances.
//!
//! The kernel is asked at a descriptor's first use, and after that a hook reads what was found: a table by
//! descriptor, in the process' private memory, so a forked child has it too. Calls that make descriptors and
//! that close them keep it right. What libc closes inside itself passes no hook: then an entry may be out of
//! date until the descriptor's next owner is made by a call that is hooked.
//!
//! Nothing is opened for this, and no descriptor is changed.

mod describe;
mod poll_waits;

use core::ffi::{c_int, c_uint};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use libc::{sockaddr, socklen_t};
use stackbeat_core::agent;
use stackbeat_core::platform::can_read;
use stackbeat_core::platform::descriptor::{self as kernel, SocketEnd};
use stackbeat_core::shm::waiters::{Described, How, descriptor as object_of};

use describe::{both_ways, connection, end_of_connection, identify, listener};
pub(crate) use poll_waits::{
    events_came, polled, polls, selected, selects, waits_for_events, watched,
};

/// Descriptors that are known about; the wakers of others stay unknown.
const SLOTS: usize = 16_384;
/// What is known of a descriptor.
mod state {
    pub(super) const UNKNOWN: u32 = 0;
    /// Nobody waits for a thread through it: a file, a terminal, a timer.
    pub(super) const APART: u32 = 1;
    pub(super) const BLOCKING: u32 = 2;
    pub(super) const NONBLOCKING: u32 = 3;
    pub(super) const POLL: u32 = 4;
}

/// Standard input, output and error.
const STANDARD: u32 = 3;

/// In place of an object: the other end of a Unix socket, which the collector was asked for.
const ASKED: u64 = 1;

#[repr(C, align(32))]
struct Slot {
    state: AtomicU32,
    /// Changes when the descriptor does.
    version: AtomicU32,
    /// What a thread waits for that reads, accepts or polls, 0: nothing known.
    awaited: AtomicU64,
    /// What those wait for that a write to it wakes: 0, [`ASKED`] or an object.
    woken: AtomicU64,
    /// Inode of a Unix socket.
    inode: AtomicU64,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        state: AtomicU32::new(state::UNKNOWN),
        version: AtomicU32::new(0),
        awaited: AtomicU64::new(0),
        woken: AtomicU64::new(0),
        inode: AtomicU64::new(0),
    }
}; SLOTS];

/// What stands for the signals of this process, once it has a descriptor for them.
static SIGNALS: AtomicU64 = AtomicU64::new(0);

/// Descriptors below this have been used.
static USED: AtomicU32 = AtomicU32::new(0);

#[inline(always)]
fn slot(file: c_int) -> Option<&'static Slot> {
    TABLE.get(file as usize)
}

/// What was found behind a descriptor.
#[derive(Clone, Copy)]
struct Found {
    state: u32,
    awaited: u64,
    woken: u64,
    inode: u64,
}

const APART: Found = Found {
    state: state::APART,
    awaited: 0,
    woken: 0,
    inode: 0,
};

impl Slot {
    /// A child of `vfork` has descriptors of its own, but its parent's memory: there nothing is kept.
    fn keep(&self, file: c_int, found: Found) {
        if !agent::owns_memory() {
            return;
        }
        USED.fetch_max(file as u32 + 1, Ordering::Relaxed);
        self.inode.store(found.inode, Ordering::Relaxed);
        self.awaited.store(found.awaited, Ordering::Relaxed);
        self.woken.store(found.woken, Ordering::Relaxed);
        self.state.store(found.state, Ordering::Release);
    }

    fn found(&self) -> Found {
        Found {
            state: self.state.load(Ordering::Acquire),
            awaited: self.awaited.load(Ordering::Relaxed),
            woken: self.woken.load(Ordering::Relaxed),
            inode: self.inode.load(Ordering::Relaxed),
        }
    }

    #[inline]
    fn forget(&self) {
        if self.state.load(Ordering::Relaxed) != state::UNKNOWN && agent::owns_memory() {
            self.state.store(state::UNKNOWN, Ordering::Relaxed);
            self.awaited.store(0, Ordering::Relaxed);
            self.woken.store(0, Ordering::Relaxed);
            self.version.fetch_add(1, Ordering::Release);
        }
    }
}

/// Looks behind a descriptor. `None`: wakers are not looked for now.
#[cold]
#[inline(never)]
fn look(file: c_int) -> Option<Found> {
    let slot = slot(file).filter(|_| agent::finds_wakers())?;
    let version = slot.version.load(Ordering::Acquire);
    let found = agent::on_own_stack(|| identify(file))?;
    if slot.version.load(Ordering::Acquire) == version {
        slot.keep(file, found);
    }
    Some(found)
}

/// What is known of a descriptor, after a look behind it if need be.
fn known(file: c_int) -> Option<Found> {
    let found = slot(file)?.found();
    match found.state {
        state::UNKNOWN => look(file),
        _ => Some(found),
    }
}

/// What a call waits for that reads from a descriptor or accepts on it; `None` when it does not wait for
/// others.
#[inline(always)]
pub(crate) fn read(file: c_int) -> Option<u64> {
    let slot = slot(file)?;
    match slot.state.load(Ordering::Relaxed) {
        state::BLOCKING => Some(slot.awaited.load(Ordering::Relaxed)),
        state::UNKNOWN => first_read(file),
        _ => None,
    }
}

#[cold]
#[inline(never)]
fn first_read(file: c_int) -> Option<u64> {
    let found = look(file)?;
    (found.state == state::BLOCKING).then_some(found.awaited)
}

/// Whether anybody may wait for what is about to be written to a descriptor.
#[inline(always)]
pub(crate) fn is_awaited(file: c_int) -> bool {
    let Some(slot) = slot(file) else {
        return false;
    };
    match slot.woken.load(Ordering::Relaxed) {
        object if object > ASKED => agent::is_descriptor_awaited(object),
        0 if slot.state.load(Ordering::Relaxed) != state::UNKNOWN => false,
        _ => is_awaited_at_first(file),
    }
}

#[cold]
#[inline(never)]
fn is_awaited_at_first(file: c_int) -> bool {
    woken(file).is_some_and(agent::is_descriptor_awaited)
}

/// What a write to the descriptor wakes.
fn woken(file: c_int) -> Option<u64> {
    let found = known(file)?;
    match found.woken {
        0 => None,
        ASKED => {
            let peer = agent::unix_peer(found.inode);
            let woken = (peer != 0).then(|| object_of(Described::UnixSocket, peer))?;
            let slot = slot(file)?;
            if agent::owns_memory() && slot.inode.load(Ordering::Relaxed) == found.inode {
                slot.woken.store(woken, Ordering::Relaxed);
            }
            Some(woken)
        }
        object => Some(object),
    }
}

/// Something is about to be written to a descriptor.
pub(crate) fn writes(file: c_int) -> agent::Wake {
    agent::announce_descriptor(woken(file).unwrap_or(0), How::Wake(1))
}

/// The descriptor, or one way through it, is about to be closed.
pub(crate) fn closes(file: c_int) -> agent::Wake {
    agent::announce_descriptor(woken(file).unwrap_or(0), How::Close)
}

/// Before a descriptor is closed, and whenever its number means something new.
#[inline(always)]
pub(crate) fn forget(file: c_int) {
    if let Some(slot) = slot(file) {
        slot.forget();
    }
}

/// All descriptors from one to another are closed.
#[cold]
pub(crate) fn forget_range(first: c_uint, last: c_uint) {
    let used = USED.load(Ordering::Relaxed).min(SLOTS as u32);
    for file in first..used.min(last.saturating_add(1)) {
        forget(file as c_int);
    }
}

/// The process ends, and with it what it holds open. `each` ends the wake of one descriptor.
pub(crate) fn all_close(each: impl Fn(agent::Wake, c_int)) {
    if !agent::finds_wakers() {
        return;
    }
    let used = USED.load(Ordering::Relaxed).min(SLOTS as u32);
    for file in 0..used.max(STANDARD) as c_int {
        // Nobody has written to them so far, maybe, but others wait for their end.
        let is_known = (file as u32) < STANDARD
            || slot(file).is_some_and(|s| s.woken.load(Ordering::Relaxed) != 0);
        if is_known && is_awaited(file) {
            each(closes(file), file);
        }
    }
}

/// `open` has returned this. What is opened by its path is taken for a file; named pipes are not looked
/// for.
#[inline(always)]
pub(crate) fn opened(file: c_int) {
    if let Some(slot) = slot(file)
        && slot.state.load(Ordering::Relaxed) != state::APART
    {
        slot.forget();
        slot.keep(file, APART);
    }
}

/// A descriptor is another one's double now.
pub(crate) fn doubled(file: c_int, double: c_int) {
    let (Some(from), Some(to)) = (slot(file), slot(double)) else {
        return forget(double);
    };
    if file != double {
        to.forget();
        to.keep(double, from.found());
    }
}

/// `fcntl` has returned this.
#[inline]
pub(crate) fn controlled(file: c_int, command: c_int, argument: usize, result: c_int) {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC if result >= 0 => doubled(file, result),
        libc::F_SETFL if result == 0 => {
            let new = match argument as c_int & libc::O_NONBLOCK {
                0 => state::BLOCKING,
                _ => state::NONBLOCKING,
            };
            if let Some(slot) = slot(file)
                && matches!(
                    slot.state.load(Ordering::Relaxed),
                    state::BLOCKING | state::NONBLOCKING
                )
            {
                slot.state.store(new, Ordering::Relaxed);
            }
        }
        _ => {}
    }
}

/// `pipe` has returned these.
pub(crate) fn created_pipe(files: [c_int; 2], flags: c_int) {
    for file in files {
        forget(file);
    }
    let Some((_, device, inode)) = agent::finds_wakers()
        .then(|| kernel::file_identity(files[0]))
        .flatten()
    else {
        return;
    };
    let pipe = object_of(Described::Pipe, device << 40 ^ inode);
    let found = Found {
        state: match flags & libc::O_NONBLOCK {
            0 => state::BLOCKING,
            _ => state::NONBLOCKING,
        },
        awaited: pipe,
        woken: pipe,
        inode: 0,
    };
    for file in files {
        if let Some(slot) = slot(file) {
            slot.keep(file, found);
        }
    }
}

/// `eventfd` has returned this.
pub(crate) fn created_event(file: c_int) {
    forget(file);
    if let Some(slot) = slot(file).filter(|_| agent::finds_wakers()) {
        let event = object_of(Described::Event, agent::new_number());
        slot.keep(file, both_ways(file, event, event, 0));
    }
}

/// `signalfd` has returned this. Whoever reads from it gets its own process' signals.
pub(crate) fn created_signals(file: c_int) {
    forget(file);
    if let Some(slot) = slot(file).filter(|_| agent::finds_wakers()) {
        SIGNALS.store(agent::signals(), Ordering::Relaxed);
        slot.keep(file, both_ways(file, agent::signals(), 0, 0));
    }
}

/// In a forked child, whose signals are others than its parent's.
pub(crate) fn after_fork() {
    let before = SIGNALS.load(Ordering::Relaxed);
    if before == 0 {
        return;
    }
    let now = agent::signals();
    SIGNALS.store(now, Ordering::Relaxed);
    let used = USED.load(Ordering::Relaxed).min(SLOTS as u32) as usize;
    for slot in &TABLE[..used] {
        let of_parent = |object| (object == before).then_some(now);
        let _ = slot
            .awaited
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, of_parent);
    }
}

/// `socketpair` has returned these.
pub(crate) fn created_pair(files: [c_int; 2]) {
    for file in files {
        forget(file);
    }
    if !agent::finds_wakers() {
        return;
    }
    let [Some((_, _, a)), Some((_, _, b))] = files.map(kernel::file_identity) else {
        return;
    };
    for (file, own, other) in [(files[0], a, b), (files[1], b, a)] {
        let [awaited, woken] = [own, other].map(|inode| object_of(Described::UnixSocket, inode));
        if let Some(slot) = slot(file) {
            slot.keep(file, both_ways(file, awaited, woken, own));
        }
    }
}

/// The bytes of an address that a program gave: no more than `sockaddr_un`, the longest of interest, has.
///
/// # Safety
/// `address` is null or has that many bytes.
unsafe fn bytes_of<'a>(address: *const sockaddr, bytes: socklen_t) -> &'a [u8] {
    match address.is_null() {
        true => &[],
        // SAFETY: by contract.
        false => unsafe { core::slice::from_raw_parts(address.cast(), bytes.min(110) as usize) },
    }
}

/// What those wait for that accept connections at an address; 0: nothing known.
///
/// # Safety
/// `address` is null or has that many bytes, or leads nowhere.
pub(crate) unsafe fn accepting(address: *const sockaddr, bytes: socklen_t) -> u64 {
    if !can_read(address.addr(), bytes.min(110) as usize) {
        return 0;
    }
    // SAFETY: by contract, and it leads somewhere.
    listener(unsafe { bytes_of(address, bytes) }).unwrap_or(0)
}

/// `connect` has returned, or goes on in the background.
///
/// # Safety
/// `address` is null or has that many bytes.
pub(crate) unsafe fn connected(file: c_int, address: *const sockaddr, bytes: socklen_t) {
    forget(file);
    let Some(slot) = slot(file).filter(|_| agent::finds_wakers()) else {
        return;
    };
    let mut buffer = [0; 128];
    let own = kernel::socket_address(file, SocketEnd::Own, &mut buffer).and_then(end_of_connection);
    // SAFETY: by contract.
    let address = unsafe { bytes_of(address, bytes) };
    if let [low, high, ..] = address
        && c_int::from(u16::from_ne_bytes([*low, *high])) == libc::AF_UNIX
    {
        woken(file);
        return;
    }
    let other = end_of_connection(address);
    if let (Some(own), Some(other)) = (own, other)
        && kernel::socket_option(file, libc::SO_TYPE) == Some(libc::SOCK_STREAM)
    {
        slot.keep(file, connection(file, own, other));
    }
}

/// `accept` has returned this: looks behind it now, because the other end of a Unix socket takes a while to
/// find.
pub(crate) fn accepted(file: c_int) {
    forget(file);
    if file >= 0 {
        woken(file);
    }
}
