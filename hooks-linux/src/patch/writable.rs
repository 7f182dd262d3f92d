//! Who may change slots, and how read-only ones become writable for a moment.
//!
//! The dynamic linker makes the pages of most slots read-only. [`Writable`] opens those of one module and
//! closes them again, and the protection of a page is one for all threads: so a thread holds the
//! [`SlotsLock`] while it has any open. `patch` holds the lock of `dl_iterate_phdr` besides, `unpatch` may
//! not. Nothing here waits, allocates, or calls a hook.

use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};

use stackbeat_core::platform;

use super::loaded_module::{Module, SlotAddress};
use crate::memory;

/// A thread changes slots.
static SLOTS_LOCKED: AtomicBool = AtomicBool::new(false);

/// The right to change slots, which one thread has at a time: the protection of a module's pages is one for
/// all threads. Nobody waits for it without a bound, because who has it may be the very thread that asks.
pub(super) struct SlotsLock(());

impl SlotsLock {
    /// `None`: taken.
    pub(super) fn take() -> Option<SlotsLock> {
        let free = SLOTS_LOCKED.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        // Made only when it is ours: dropping one releases the lock, whoever holds it.
        free.is_ok().then(|| SlotsLock(()))
    }
}

impl Drop for SlotsLock {
    fn drop(&mut self) {
        SLOTS_LOCKED.store(false, Ordering::Release);
    }
}

/// In a forked child: the thread that held the lock is not there. Whether one did, and left things half done.
pub(super) fn after_fork() -> bool {
    SLOTS_LOCKED.swap(false, Ordering::Relaxed)
}

/// The part of a module that is read-only, while it is made writable for a moment.
pub(super) struct Writable<'a> {
    _slots_lock: &'a SlotsLock,
    range: Range<usize>,
    is_open: bool,
    /// It may be one that another thread is loading.
    may_load: bool,
    /// It is: the dynamic linker fills its slots in, and has not made them read-only yet.
    pub(super) is_loading: bool,
}

impl<'a> Writable<'a> {
    /// Of a module that has been loaded.
    pub(super) fn new(slots_lock: &'a SlotsLock, module: &Module) -> Writable<'a> {
        Writable {
            _slots_lock: slots_lock,
            range: module.read_only(),
            is_open: false,
            may_load: false,
            is_loading: false,
        }
    }

    /// Of one that another thread may be loading: modules are listed before they are relocated. Taking away
    /// at the end what the dynamic linker still needs would end the program.
    pub(super) fn of_any(slots_lock: &'a SlotsLock, module: &Module) -> Writable<'a> {
        let mut writable = Writable::new(slots_lock, module);
        writable.may_load = true;
        writable
    }

    /// Makes a slot writable, if it is not. False: it cannot be, or the dynamic linker is at work there.
    pub(super) fn make(&mut self, slot: SlotAddress) -> bool {
        if !self.range.contains(&slot.0) || self.is_open {
            return true;
        }
        // Once it is, the whole module is left to the next pass.
        self.is_loading |= self.may_load && platform::is_writable(slot.0) == Some(true);
        if self.is_loading {
            return false;
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: more rights for pages of data; `drop` takes them back.
        self.is_open = unsafe { memory::protect(self.range.start, self.range.len(), protection) };
        self.is_open
    }
}

impl Drop for Writable<'_> {
    fn drop(&mut self) {
        if self.is_open {
            // SAFETY: as the dynamic linker had it.
            unsafe { memory::protect(self.range.start, self.range.len(), libc::PROT_READ) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slots_lock_that_is_not_granted_stays_with_its_holder() {
        let slots_lock = SlotsLock::take();
        assert!(slots_lock.is_some());
        for _ in 0..2 {
            assert!(SlotsLock::take().is_none());
        }
        drop(slots_lock);
        assert!(SlotsLock::take().is_some());
    }
}
