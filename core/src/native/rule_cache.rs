//! The process-wide cache of this process' unwind rules, and when it holds no more.

use crate::unwind::cache::{EPOCHS, RuleCache};
use core::sync::atomic::{AtomicU32, Ordering};

/// Lines of the rule cache: 32,768 rules, 512 KB of zero pages until used.
const LINES: usize = 8192;
pub(super) static CACHE: RuleCache<LINES> = RuleCache::new();
/// Raised when the rule of any address may have changed: a module went, or one came to lie where
/// code of no module was met.
pub(super) static GENERATION: AtomicU32 = AtomicU32::new(1);
/// 1 when the cache says of some address that no module lies there.
pub(super) static KNOWS_NOWHERE: AtomicU32 = AtomicU32::new(0);

/// A module was taken in.
pub(super) fn module_came() {
    if KNOWS_NOWHERE.swap(0, Ordering::AcqRel) != 0 {
        module_went();
    }
}

/// A module is no longer there.
pub(super) fn module_went() {
    let before = GENERATION.fetch_add(1, Ordering::AcqRel);
    if before.is_multiple_of(EPOCHS / 2) {
        CACHE.clear();
    }
}
