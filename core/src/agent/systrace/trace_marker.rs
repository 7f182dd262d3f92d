//! The descriptor of the trace_marker; see the parent for its rules.

use super::{LINE_BYTES, Threads, line};
use crate::agent::session;
use crate::agent::texts;
use crate::platform::{self, descriptor};
use crate::shm::layout::Control;
use crate::shm::mapping::{Mapping, PATH_BYTES};
use core::ffi::CStr;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

/// In place of a number: not asked for; asked for and not there.
const NONE: i32 = -1;
const LOST: i32 = -2;

/// Whoever closes it again and again does not want it.
const MOST_OPENED: u32 = 64;
/// Numbers beyond make the kernel's table of the process, which fork copies, big.
const HIGH: u64 = 4096;
/// From so far below the limit on, where the number cannot lie above it.
const BELOW_LIMIT: u64 = 16;

struct Own {
    number: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
    opened: AtomicU32,
}

static OWN: Own = Own {
    number: AtomicI32::new(NONE),
    device: AtomicU64::new(0),
    inode: AtomicU64::new(0),
    opened: AtomicU32::new(0),
};

/// Opens what the session names. Call while the process joins it.
pub(crate) fn start(mapping: &Mapping, threads: Threads) {
    let mut buffer = [0; PATH_BYTES];
    let Some(marker) = mapping.marker(&mut buffer) else {
        return;
    };
    OWN.device.store(marker.device, Ordering::Relaxed);
    OWN.inode.store(marker.inode, Ordering::Relaxed);
    OWN.opened.store(0, Ordering::Relaxed);
    let number = open(mapping, threads, &mut buffer);
    OWN.number.store(number.unwrap_or(LOST), Ordering::Release);
    if number.is_none() {
        texts::say(b"events do not reach the trace_marker: it cannot be opened from here");
    }
}

/// Closes it.
pub(crate) fn stop() {
    let number = OWN.number.swap(NONE, Ordering::Relaxed);
    if is_ours(number) {
        platform::close(number);
    }
}

/// Writes an event down, if that is asked for. `line` is memory to do it in.
#[inline(always)]
pub(crate) fn event(
    control: &Control,
    kind: u8,
    name: &[u8],
    value: i64,
    line: &mut [u8; LINE_BYTES],
) {
    let number = OWN.number.load(Ordering::Relaxed);
    if number != NONE {
        write(control, number, kind, name, value, line);
    }
}

#[cold]
#[inline(never)]
fn write(
    control: &Control,
    number: i32,
    kind: u8,
    name: &[u8],
    value: i64,
    line: &mut [u8; LINE_BYTES],
) {
    let number = match is_ours(number) {
        true => Some(number),
        false => open_again(number, line),
    };
    let is_written = number.is_some_and(|number| {
        let length = line::format(kind, session::pid().0, name, value, line);
        let line = line.get(..length).unwrap_or(&[]);
        descriptor::write(number, line).is_ok()
    });
    let counter = match is_written {
        true => &control.markers_written,
        false => &control.markers_failed,
    };
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Whether a number means what the collector has named.
fn is_ours(number: i32) -> bool {
    let named = (
        OWN.device.load(Ordering::Relaxed),
        OWN.inode.load(Ordering::Relaxed),
    );
    number >= 0
        && descriptor::file_identity(number)
            .is_some_and(|(_, device, inode)| (device, inode) == named)
}

/// The program has closed it. What the number means now is left alone.
fn open_again(before: i32, buffer: &mut [u8; LINE_BYTES]) -> Option<i32> {
    if before < 0 || OWN.opened.fetch_add(1, Ordering::Relaxed) >= MOST_OPENED {
        return None;
    }
    // One thread does it; what others write meanwhile is counted as not written.
    OWN.number
        .compare_exchange(before, LOST, Ordering::Relaxed, Ordering::Relaxed)
        .ok()?;
    let opened = session::mapping().and_then(|mapping| open(mapping, Threads::Many, buffer));
    let Some(number) = opened else {
        // Perhaps with the next event: the program may have no number free at the moment.
        let _ = OWN
            .number
            .compare_exchange(LOST, before, Ordering::Relaxed, Ordering::Relaxed);
        return None;
    };
    let kept = OWN
        .number
        .compare_exchange(LOST, number, Ordering::Relaxed, Ordering::Relaxed);
    if kept.is_err() {
        platform::close(number);
        return None;
    }
    Some(number)
}

fn open(mapping: &Mapping, threads: Threads, buffer: &mut [u8; PATH_BYTES]) -> Option<i32> {
    let marker = mapping.marker(buffer)?;
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_APPEND;
    let flags = flags
        | match marker.is_pipe {
            true => libc::O_RDWR,
            false => libc::O_WRONLY,
        };
    let path = CStr::from_bytes_until_nul(buffer).ok()?;
    let low = platform::open(path, flags, 0).ok()?;
    let high = if is_ours(low) {
        move_up(low, threads)
    } else {
        None
    };
    platform::close(low);
    high
}

/// The same under a number that the program will not come across.
fn move_up(low: i32, threads: Threads) -> Option<i32> {
    let (soft, hard) = descriptor::number_limits()?;
    let from = |least: u64| descriptor::duplicate_from(low, least as u32).ok();
    if soft > HIGH {
        return from(HIGH);
    }
    // Limits are the process': raised only while nobody else can meet them so.
    let above = hard.min(soft.saturating_add(BELOW_LIMIT));
    if threads == Threads::One && above > soft && descriptor::set_number_limits(above, hard) {
        let high = from(soft);
        descriptor::set_number_limits(soft, hard);
        if high.is_some() {
            return high;
        }
    }
    from(soft.saturating_sub(BELOW_LIMIT))
}
