//! Waiting for one of several descriptors.

use core::ffi::{c_int, c_short};
use core::sync::atomic::Ordering;
use libc::{epoll_event, fd_set, pollfd};
use stackbeat_core::agent::{self, Awaited, WaitFor};
use stackbeat_core::platform::can_read;
use stackbeat_core::shm::waiters::{Described, descriptor as object_of};

use super::{APART, Found, known, slot, state};

/// Descriptors of one `poll` or `select` that are read.
const POLLED: usize = 32;

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
#[inline(never)]
pub(crate) unsafe fn events_came(
    wait: &WaitFor,
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

/// What a call waits for that waits for one of these descriptors.
fn one_of(files: impl Iterator<Item = c_int>) -> Option<Awaited> {
    let objects = files.filter_map(|file| known(file).map(|found| found.awaited));
    agent::one_of(objects.filter(|object| *object != 0).take(POLLED))
}

const READABLE: c_short = libc::POLLIN | libc::POLLRDNORM | libc::POLLRDHUP | libc::POLLPRI;

fn is_object_of(file: c_int, object: u64) -> bool {
    slot(file).is_some_and(|slot| slot.awaited.load(Ordering::Relaxed) == object)
}

/// What `poll` waits for.
///
/// # Safety
/// `files` has `count` elements, or leads nowhere.
#[cold]
#[inline(never)]
pub(crate) unsafe fn polls(files: *const pollfd, count: usize) -> Option<Awaited> {
    if !can_read(files.addr(), count.min(POLLED) * size_of::<pollfd>()) {
        return None;
    }
    // SAFETY: by contract, and it leads somewhere.
    let files = (0..count.min(POLLED)).map(|i| unsafe { *files.add(i) });
    let readable = files.filter(|file| file.fd >= 0 && file.events & READABLE != 0);
    one_of(readable.map(|file| file.fd))
}

/// `poll` has returned.
///
/// # Safety
/// `files` has `count` elements.
#[inline(never)]
pub(crate) unsafe fn polled(wait: &WaitFor, files: *const pollfd, count: usize, result: c_int) {
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
/// `set` is null or a set of `count` descriptors, or leads nowhere.
#[cold]
#[inline(never)]
pub(crate) unsafe fn selects(set: *const fd_set, count: c_int) -> Option<Awaited> {
    let words = (count.clamp(0, libc::FD_SETSIZE as c_int) as usize).div_ceil(64);
    if !set.is_null() && !can_read(set.addr(), words * size_of::<u64>()) {
        return None;
    }
    // SAFETY: by contract, and it leads somewhere.
    one_of(unsafe { members(set, count) })
}

/// `select` has returned.
///
/// # Safety
/// `set` is null or a set of `count` descriptors.
#[inline(never)]
pub(crate) unsafe fn selected(wait: &WaitFor, set: *const fd_set, count: c_int, result: c_int) {
    wait.end_ready(result.into(), &|object| {
        // SAFETY: by contract.
        unsafe { members(set, count) }.any(|file| is_object_of(file, object))
    });
}
