//! Calls that a signal ends whatever its handler asked for (signal(7): those that SA_RESTART does not
//! restart), where a handler of the program's has run in the hook before the call (`signal::entrance`).
//!
//! Without us the signal would most likely have come in the call, and ended it. So it gets another one, of
//! ours: a timer sends it a moment after the call has begun. What is ready at once is given, errors and
//! cancellations are what they are, and a wait ends with EINTR: all of that is the kernel's and libc's own
//! doing.

use libc::sigset_t;
use stackbeat_core::agent;

/// The handlers that had begun on the calling thread when a hook began.
#[derive(Clone, Copy)]
pub(crate) struct Handlers(u32);

impl Handlers {
    #[inline(always)]
    pub(crate) fn so_far() -> Handlers {
        Handlers(agent::handlers_entered())
    }

    /// Makes a call that is ended soon if one has run since.
    #[inline(always)]
    pub(crate) fn run<R>(self, original: impl FnOnce() -> R) -> R {
        match agent::handlers_entered() == self.0 {
            true => original(),
            false => end_soon(0, original),
        }
    }

    /// The same for a call that blocks these signals while it waits.
    ///
    /// # Safety
    /// `mask` is null or what the caller gave as a set.
    #[inline(always)]
    pub(crate) unsafe fn run_masked<R>(
        self,
        mask: *const sigset_t,
        original: impl FnOnce() -> R,
    ) -> R {
        match agent::handlers_entered() == self.0 {
            true => original(),
            false => {
                // SAFETY: by contract.
                let mask = unsafe { mask.as_ref() }.map_or(0, crate::signal::mask_word);
                end_soon(mask as u64, original)
            }
        }
    }
}

#[cold]
#[inline(never)]
fn end_soon<R>(mask: u64, original: impl FnOnce() -> R) -> R {
    let alarm = agent::Alarm::set(mask);
    let result = original();
    if let Some(alarm) = alarm {
        alarm.end();
    }
    result
}
