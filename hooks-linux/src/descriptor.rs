//! What is behind the program's descriptors, as far as threads wait for each other through it: pipes,
//! eventfds, sockets, epoll instances.
//!
//! The kernel is asked at a descriptor's first use, and after that a hook reads what was found: a table by
//! descriptor, in the process' private memory, so a forked child has it too. Calls that make descriptors and
//! that close them keep it right. What libc does inside itself (`fclose`) passes no hook: then an entry
//! may be out of date, and a waker stays unknown, until the descriptor's next owner is made by a call that
//! is hooked.
//!
//! Nothing is opened for this, and no descriptor is changed.

use core::ffi::{c_int, c_short, c_uint};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use libc::{epoll_event, fd_set, pollfd, sockaddr, socklen_t};
use stackbeat_core::agent::{self, Awaited, WaitFor};
use stackbeat_core::sys::descriptor::{self as kernel, SocketEnd};
use stackbeat_core::waiters::{Described, How, descriptor as object_of};

/// Descriptors that are known about; the wakers of others stay unknown.
const SLOTS: usize = 16_384;
/// Descriptors of one `poll` or `select` that are looked at.
const POLLED: usize = 32;

/// What is known of a descriptor.
mod state {
    pub const UNKNOWN: u32 = 0;
    /// Nobody waits for a thread through it: a file, a terminal, a timer.
    pub const APART: u32 = 1;
    pub const BLOCKING: u32 = 2;
    pub const NONBLOCKING: u32 = 3;
    pub const POLL: u32 = 4;
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
    fn keep(&self, file: c_int, found: Found) {
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
    let found = identify(file);
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

fn identify(file: c_int) -> Found {
    let Some((kind, device, inode)) = kernel::file_identity(file) else {
        return APART;
    };
    match kind as libc::mode_t {
        libc::S_IFIFO => {
            let pipe = object_of(Described::Pipe, device << 40 ^ inode);
            both_ways(file, pipe, pipe, 0)
        }
        libc::S_IFSOCK => identify_socket(file, inode).unwrap_or(APART),
        _ => APART,
    }
}

fn both_ways(file: c_int, awaited: u64, woken: u64, inode: u64) -> Found {
    Found {
        state: match kernel::is_nonblocking(file) {
            true => state::NONBLOCKING,
            false => state::BLOCKING,
        },
        awaited,
        woken,
        inode,
    }
}

fn identify_socket(file: c_int, inode: u64) -> Option<Found> {
    let kind = kernel::socket_option(file, libc::SO_TYPE)?;
    let domain = kernel::socket_option(file, libc::SO_DOMAIN)?;
    let is_connected_kind = match domain {
        libc::AF_UNIX => matches!(kind, libc::SOCK_STREAM | libc::SOCK_SEQPACKET),
        libc::AF_INET | libc::AF_INET6 => kind == libc::SOCK_STREAM,
        _ => false,
    };
    if !is_connected_kind {
        return None;
    }
    let mut buffer = [0; 128];
    let own = kernel::socket_address(file, SocketEnd::Own, &mut buffer)?;
    if kernel::socket_option(file, libc::SO_ACCEPTCONN)? != 0 {
        return Some(both_ways(file, listener(own)?, 0, 0));
    }
    if domain == libc::AF_UNIX {
        let awaited = object_of(Described::UnixSocket, inode);
        return Some(both_ways(file, awaited, ASKED, inode));
    }
    let own = end_of_connection(own)?;
    let mut buffer = [0; 128];
    let other = kernel::socket_address(file, SocketEnd::Other, &mut buffer)?;
    Some(connection(file, own, end_of_connection(other)?))
}

fn connection(file: c_int, own: u64, other: u64) -> Found {
    let one_way = |from: u64, to: u64| {
        object_of(
            Described::Connection,
            from.rotate_left(21).wrapping_mul(0xD6E8_FEB8_6659_FD93) ^ to,
        )
    };
    both_ways(file, one_way(own, other), one_way(other, own), 0)
}

/// Address and port in one number. An IPv4 address that is mapped into IPv6 is the IPv4 address.
fn end_of_connection(address: &[u8]) -> Option<u64> {
    let family = c_int::from(u16::from_ne_bytes(address.get(..2)?.try_into().ok()?));
    let port = u64::from(u16::from_be_bytes(address.get(2..4)?.try_into().ok()?));
    let host = match family {
        libc::AF_INET => address.get(4..8)?,
        libc::AF_INET6 => match address.get(8..24)? {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, v4 @ ..] => v4,
            v6 => v6,
        },
        _ => return None,
    };
    Some(hash(host) << 16 ^ port)
}

/// What stands for the socket that listens at an address: for those of the internet the port.
fn listener(address: &[u8]) -> Option<u64> {
    let family = c_int::from(u16::from_ne_bytes(address.get(..2)?.try_into().ok()?));
    let number = match family {
        libc::AF_INET | libc::AF_INET6 => {
            u64::from(u16::from_be_bytes(address.get(2..4)?.try_into().ok()?))
        }
        // Pathnames may come with or without their NUL.
        libc::AF_UNIX => match address.get(2..)? {
            [] => return None,
            [0, name @ ..] => hash(name) ^ 1,
            path => hash(path.split(|byte| *byte == 0).next()?),
        },
        _ => return None,
    };
    Some(object_of(Described::Listener, number))
}

/// FNV-1a, 64 bits.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
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
        // Standard streams are often used by libc alone, which no hook sees.
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
        && agent::owns_memory()
    {
        slot.forget();
        slot.state.store(state::APART, Ordering::Relaxed);
    }
}

/// A descriptor is another one's double now.
pub(crate) fn doubled(file: c_int, double: c_int) {
    let (Some(from), Some(to)) = (slot(file), slot(double)) else {
        return forget(double);
    };
    if file != double && agent::owns_memory() {
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
pub(crate) fn made_pipe(files: [c_int; 2], flags: c_int) {
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
pub(crate) fn made_event(file: c_int) {
    forget(file);
    if let Some(slot) = slot(file).filter(|_| agent::finds_wakers()) {
        let event = object_of(Described::Event, agent::new_number());
        slot.keep(file, both_ways(file, event, event, 0));
    }
}

/// `socketpair` has returned these.
pub(crate) fn made_pair(files: [c_int; 2]) {
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
/// `address` is null or has that many bytes.
pub(crate) unsafe fn accepting(address: *const sockaddr, bytes: socklen_t) -> u64 {
    // SAFETY: by contract.
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

/// What stands for an epoll instance.
fn poll_of(file: c_int) -> Option<u64> {
    let slot = slot(file)?;
    let found = slot.found();
    if found.state == state::POLL {
        return Some(found.awaited);
    }
    let is_free = agent::finds_wakers();
    let poll = is_free.then(|| object_of(Described::Poll, agent::new_number()))?;
    slot.forget();
    slot.keep(
        file,
        Found {
            state: state::POLL,
            awaited: poll,
            ..APART
        },
    );
    Some(poll)
}

/// `epoll_ctl` has succeeded.
///
/// # Safety
/// `event` is what the caller gave.
pub(crate) unsafe fn watched(poll: c_int, operation: c_int, file: c_int, event: *mut epoll_event) {
    let Some(poll) = poll_of(poll) else { return };
    let Some(found) = known(file).filter(|found| found.awaited != 0) else {
        return;
    };
    if operation == libc::EPOLL_CTL_DEL || event.is_null() {
        return agent::watch(poll, found.awaited, None);
    }
    // SAFETY: by contract; epoll_ctl has read it.
    let (events, data) = unsafe { ((*event).events, (*event).u64) };
    let wanted = (libc::EPOLLIN | libc::EPOLLRDNORM) as u32;
    let data = (events & wanted != 0).then_some(data);
    agent::watch(poll, found.awaited, data);
}

/// What `epoll_wait` waits for.
pub(crate) fn waits_for_events(poll: c_int) -> Option<Awaited> {
    poll_of(poll).map(agent::written)
}

/// `epoll_wait` has returned.
///
/// # Safety
/// When `count` is above 0, that many events are at `events`.
pub(crate) unsafe fn events_came(
    wait: WaitFor,
    poll: c_int,
    events: *const epoll_event,
    count: c_int,
) {
    let poll = slot(poll).map_or(0, |slot| slot.awaited.load(Ordering::Relaxed));
    let is_there = |data: u64| {
        // SAFETY: by contract; `&raw` makes no reference to the packed field.
        let data_of = |i: usize| unsafe { (&raw const (*events.add(i)).u64).read_unaligned() };
        (0..count.max(0) as usize).any(|i| data_of(i) == data)
    };
    wait.end_ready(count.into(), &|object| {
        agent::is_reported(poll, object, is_there)
    });
}

/// Several descriptors of which a call waits for one.
struct Several {
    objects: [u64; POLLED],
    count: usize,
}

impl Several {
    fn add(&mut self, file: c_int) {
        if let Some(found) = known(file)
            && found.awaited != 0
            && let Some(place) = self.objects.get_mut(self.count)
        {
            *place = found.awaited;
            self.count += 1;
        }
    }

    fn awaited(&self) -> Option<Awaited> {
        agent::one_of(self.objects.get(..self.count)?)
    }
}

const NONE: Several = Several {
    objects: [0; POLLED],
    count: 0,
};

const READABLE: c_short = libc::POLLIN | libc::POLLRDNORM | libc::POLLRDHUP | libc::POLLPRI;

fn is_object_of(file: c_int, object: u64) -> bool {
    slot(file).is_some_and(|slot| slot.awaited.load(Ordering::Relaxed) == object)
}

/// What `poll` waits for.
///
/// # Safety
/// `files` has `count` elements.
#[cold]
pub(crate) unsafe fn polls(files: *const pollfd, count: usize) -> Option<Awaited> {
    let mut several = NONE;
    for i in 0..count.min(POLLED) {
        // SAFETY: by contract.
        let file = unsafe { *files.add(i) };
        if file.fd >= 0 && file.events & READABLE != 0 {
            several.add(file.fd);
        }
    }
    several.awaited()
}

/// `poll` has returned.
///
/// # Safety
/// `files` has `count` elements.
pub(crate) unsafe fn polled(wait: WaitFor, files: *const pollfd, count: usize, result: c_int) {
    wait.end_ready(result.into(), &|object| {
        (0..count.min(POLLED)).any(|i| {
            // SAFETY: by contract.
            let file = unsafe { *files.add(i) };
            file.revents != 0 && is_object_of(file.fd, object)
        })
    });
}

/// The descriptors in a set, which has room for `count`.
///
/// # Safety
/// `set` is null or a set of that size.
unsafe fn members(set: *const fd_set, count: c_int) -> impl Iterator<Item = c_int> {
    let count = if set.is_null() { 0 } else { count.max(0) };
    (0..count.min(libc::FD_SETSIZE as c_int)).filter(move |file| {
        let (word, bit) = (*file as usize / 64, *file as usize % 64);
        // SAFETY: by contract; a set is an array of words.
        unsafe { *set.cast::<u64>().add(word) & 1 << bit != 0 }
    })
}

/// What `select` waits for.
///
/// # Safety
/// `set` is null or a set of `count` descriptors.
#[cold]
pub(crate) unsafe fn selects(set: *const fd_set, count: c_int) -> Option<Awaited> {
    let mut several = NONE;
    // SAFETY: by contract.
    for file in unsafe { members(set, count) } {
        several.add(file);
    }
    several.awaited()
}

/// `select` has returned.
///
/// # Safety
/// `set` is null or a set of `count` descriptors.
pub(crate) unsafe fn selected(wait: WaitFor, set: *const fd_set, count: c_int, result: c_int) {
    wait.end_ready(result.into(), &|object| {
        // SAFETY: by contract.
        unsafe { members(set, count) }.any(|file| is_object_of(file, object))
    });
}
