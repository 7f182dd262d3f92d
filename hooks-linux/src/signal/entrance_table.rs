//! Which of the program's handlers each entrance belongs to: what [`super::entrance`] and
//! [`super::fault_entrance`] share.

use core::sync::atomic::{AtomicUsize, Ordering};
use libc::{SIG_DFL, SIG_ERR, SIG_IGN, sighandler_t};

use super::SIG_HOLD;
use crate::env;

/// Bytes of code from one entrance to the next.
pub(super) const STRIDE: usize = 16;

/// The handlers behind so many entrances, whose code lies at `first`, each [`STRIDE`] bytes from the next.
#[repr(transparent)]
pub(super) struct EntranceTable<const ENTRANCES: usize> {
    /// Whose entrance it is, for good; 0: nobody's yet.
    handlers: [AtomicUsize; ENTRANCES],
}

impl<const ENTRANCES: usize> EntranceTable<ENTRANCES> {
    pub(super) const fn new() -> Self {
        EntranceTable {
            handlers: [const { AtomicUsize::new(0) }; ENTRANCES],
        }
    }

    /// The handler behind an entrance, which only x86-64 has.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn handler(&self, index: usize) -> sighandler_t {
        self.handlers[index].load(Ordering::Relaxed)
    }

    /// The handler whose entrance this is; `None`: it is none of these.
    pub(super) fn behind(
        &self,
        first: Option<usize>,
        installed: sighandler_t,
    ) -> Option<sighandler_t> {
        let place = installed.checked_sub(first?)?;
        let handler = self.handlers.get(place / STRIDE)?;
        Some(handler.load(Ordering::Relaxed))
    }

    /// The entrance of a handler. `None`: it is no function, is an entrance itself, none is free, or the
    /// program may ask for its handlers when the agent has gone.
    pub(super) fn of(&self, first: Option<usize>, handler: sighandler_t) -> Option<sighandler_t> {
        let is_function = !matches!(handler, SIG_DFL | SIG_IGN | SIG_HOLD | SIG_ERR);
        let is_entrance = self.behind(first, handler).is_some();
        if !is_function || is_entrance || !env::was_preloaded() {
            return None;
        }
        let is_its_own = |word: &AtomicUsize| {
            let taken = word.compare_exchange(0, handler, Ordering::Relaxed, Ordering::Relaxed);
            taken.is_ok() || taken == Err(handler)
        };
        let index = self.handlers.iter().position(is_its_own)?;
        Some(first? + index * STRIDE)
    }
}
