//! Events of the program itself: marks, scopes, counters, flows. Where it is asked for, they also go to the
//! kernel's trace_marker (`systrace`).

use core::ffi::c_char;

use super::capture::{self, Guard, ThreadWriter};
use super::session;
use super::tls;
use super::{fork, registered, scratch, systrace, thread};
use crate::shm::buffer::{self, Writer};
use crate::shm::layout::drops;
use crate::shm::record_format;
use crate::sync::Ordering;

/// What a library with an agent exports as `stackbeat_v1_event`: see `stackbeat.h`.
///
/// # Safety
/// `name` is null, or readable for `length` bytes.
pub unsafe fn event_of_c(kind: u32, name: *const c_char, length: usize, value: i64) {
    let name = match name.is_null() {
        true => &[],
        // SAFETY: by contract.
        false => unsafe { core::slice::from_raw_parts(name.cast::<u8>(), length) },
    };
    if let Ok(kind) = u8::try_from(kind) {
        event(kind, name, value);
    }
}

/// Writes an event down, as long as the session captures. `kind` is a number of `proto::v1::event::Kind`, or
/// [`record_format::event_kind::COUNTER`]; a name that is too long is cut.
#[inline(never)]
pub fn event(kind: u8, name: &[u8], value: i64) {
    let block = tls::block();
    if registered(block).is_none() && !thread::register() {
        return;
    }
    let Some(mapping) = session::mapping() else {
        return;
    };
    fork::check_for_fork();
    let control = mapping.control();
    let Some((entry, _)) = registered(block) else {
        return;
    };
    if control.switch.load(Ordering::Relaxed) != 1 {
        return;
    }
    let Some(_guard) = Guard::enter(block) else {
        session::count(entry, drops::REENTRANT);
        return;
    };
    // SAFETY: the guard is held.
    let Some(scratch) = (unsafe { scratch::scratch(block) }) else {
        return;
    };
    let now = session::now();
    // First, because the kernel dates what is written by when it comes.
    systrace::event(control, kind, name, value, &mut scratch.line);
    // Also keeps the sub-buffer from being taken away meanwhile.
    let generation = control.generation.load(Ordering::Acquire);
    buffer::begin_capture(entry, generation);
    let writer: ThreadWriter = Writer {
        pool: mapping,
        entry,
        index: block.entry_index.load(Ordering::Relaxed),
        upid: session::upid(),
        mode: session::mode(control),
        generation,
    };
    let words = record_format::write_mark(kind, now, value, name, &mut scratch.record);
    capture::append(&writer, &scratch.record, words, now);
    buffer::end_capture(entry);
}
