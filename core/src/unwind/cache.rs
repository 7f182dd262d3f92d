//! The process-wide cache of unwind rules: code address → rule, two words an entry, no lock.
//!
//! A set-associative cache in lines of four entries. An entry is written under a per-entry sequence:
//! its key becomes `BUSY`, then the rule is stored, then the new key. A reader takes the key, the rule
//! and the key again, and believes the rule only if both keys are the one it looks for. So entries
//! can be replaced at any time: stale ones (of an older epoch) first, else one chosen by the
//! address. The key holds the epoch, so raising it empties the cache at no cost.
//!
//! A thread that dies between the two stores leaves one entry busy for good; nothing else happens.

use core::sync::atomic::{AtomicU64, Ordering};

use super::rule::Rule;

/// Entries in one line of the cache (64 bytes).
const WAYS: usize = 4;
/// Lines tried for an address.
const LINES_PROBED: usize = 2;
/// Key of an entry that is being written.
const BUSY: u64 = u64::MAX;
/// Code addresses have 47 bits in user space.
const ADDRESS_BITS: u32 = 47;

#[repr(C)]
#[derive(Debug)]
struct Entry {
    /// Address | exact << 47 | epoch << 48; 0: empty.
    key: AtomicU64,
    rule: AtomicU64,
}

/// One line of the cache.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Line([Entry; WAYS]);

/// The cache: in static memory in the agent, boxed outside.
///
/// # Signal safety
/// All methods may be called from a signal handler that interrupted any of them.
#[derive(Debug)]
pub struct RuleCache<const LINES: usize> {
    lines: [Line; LINES],
}

impl Entry {
    /// The rule, if the key still is what it was found to be.
    #[inline(always)]
    fn rule_of(&self, want: u64) -> Option<Rule> {
        let rule = self.rule.load(Ordering::Acquire);
        (self.key.load(Ordering::Relaxed) == want).then_some(Rule::from_word(rule))
    }
}

impl Line {
    const fn new() -> Line {
        Line(
            [const {
                Entry {
                    key: AtomicU64::new(0),
                    rule: AtomicU64::new(0),
                }
            }; WAYS],
        )
    }
}

impl<const LINES: usize> Default for RuleCache<LINES> {
    fn default() -> Self {
        Self::new()
    }
}

/// The key of an address, or `None` for addresses that are not cached.
#[inline(always)]
fn key(address: u64, exact: bool, epoch: u32) -> Option<u64> {
    if address == 0 || address >> ADDRESS_BITS != 0 {
        return None;
    }
    Some(address | (exact as u64) << ADDRESS_BITS | (epoch as u64 & 0xffff) << 48)
}

impl<const LINES: usize> RuleCache<LINES> {
    /// An empty cache; `LINES` is a power of two.
    pub const fn new() -> Self {
        const { assert!(LINES.is_power_of_two()) };
        RuleCache {
            lines: [const { Line::new() }; LINES],
        }
    }

    #[inline(always)]
    fn line(&self, address: u64, probe: usize) -> &Line {
        let hash = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.lines[(hash as usize + probe) & (LINES - 1)]
    }

    /// The rule stored for an address in an epoch. `exact`: the address is that of the next instruction (a leaf,
    /// or a frame that a signal interrupted), not a return address.
    #[inline(always)]
    pub fn get(&self, address: u64, exact: bool, epoch: u32) -> Option<Rule> {
        let want = key(address, exact, epoch)?;
        // Nearly always it is the first of its line.
        let first = &self.line(address, 0).0[0];
        if first.key.load(Ordering::Acquire) == want {
            return first.rule_of(want);
        }
        self.get_elsewhere(address, want)
    }

    #[inline(never)]
    fn get_elsewhere(&self, address: u64, want: u64) -> Option<Rule> {
        (0..LINES_PROBED)
            .flat_map(|probe| &self.line(address, probe).0)
            .find(|entry| entry.key.load(Ordering::Acquire) == want)?
            .rule_of(want)
    }

    /// Stores a rule that was derived while the epoch was `epoch`.
    #[cold]
    pub fn insert(&self, address: u64, exact: bool, epoch: u32, rule: Rule) {
        let Some(new) = key(address, exact, epoch) else {
            return;
        };
        for probe in 0..LINES_PROBED {
            for entry in &self.line(address, probe).0 {
                let old = entry.key.load(Ordering::Relaxed);
                if old == new {
                    return;
                }
                let stale = old == 0 || (old != BUSY && old >> 48 != new >> 48);
                if stale && replace(entry, old, new, rule) {
                    return;
                }
            }
        }
        let way = (address ^ address >> 5) as usize % WAYS;
        let victim = &self.line(address, 0).0[way];
        let old = victim.key.load(Ordering::Relaxed);
        if old != BUSY {
            replace(victim, old, new, rule);
        }
    }
}

/// Writes an entry whose key is still `old`. False: somebody else was faster.
fn replace(entry: &Entry, old: u64, new: u64, rule: Rule) -> bool {
    if entry
        .key
        .compare_exchange(old, BUSY, Ordering::AcqRel, Ordering::Relaxed)
        .is_err()
    {
        return false;
    }
    // Release: a reader that sees this rule sees the busy key (or a later one) when it looks again.
    entry.rule.store(rule.to_word(), Ordering::Release);
    entry.key.store(new, Ordering::Release);
    true
}
