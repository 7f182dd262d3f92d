//! Exact counts of the calls of each hooked function, for sessions that were made for it
//! (`Capacity::call_rows`). There the tick words hold a value that lets every hook come to its slow path, so
//! the hot path is the same in all sessions.

use super::session;
use super::tls;
use super::{registered, thread};
use crate::shm::layout::CallRow;
use crate::shm::mapping::Mapping;
use crate::sync::Ordering;

/// A thread that found no row of its own.
const NO_ROW: u32 = u32::MAX;

/// The function with this number was called.
#[cold]
#[inline(never)]
pub fn called(function: usize) {
    let Some(mapping) = session::mapping() else {
        return;
    };
    if mapping.layout().capacity.call_rows == 0 {
        return;
    }
    let row = own_row(mapping).or_else(|| mapping.call_row(0));
    if let Some(count) = row.and_then(|row| row.calls.get(function)) {
        // A handler may interrupt its own thread here, and row 0 is everybody's.
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// The calling thread's row; its first call takes one.
fn own_row(mapping: &Mapping) -> Option<&CallRow> {
    let block = tls::block();
    if registered(block).is_none() {
        thread::register();
    }
    let (entry, _) = registered(block)?;
    match entry.call_row.load(Ordering::Relaxed) {
        NO_ROW => None,
        0 => {
            let taken = mapping
                .control()
                .call_rows_used
                .fetch_add(1, Ordering::Relaxed);
            let index = taken.saturating_add(1);
            let row = mapping.call_row(index);
            entry.call_row.store(
                if row.is_some() { index } else { NO_ROW },
                Ordering::Relaxed,
            );
            let row = row?;
            row.upid.store(session::upid().0, Ordering::Relaxed);
            row.utid
                .store(entry.utid.load(Ordering::Relaxed), Ordering::Relaxed);
            Some(row)
        }
        index => mapping.call_row(index),
    }
}
