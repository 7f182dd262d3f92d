//! The process-wide cache of unwind rules: code address → rule, two words an entry, no lock.
//!
//! A set-associative cache in lines of four entries, in two parts: a small one that comes first, so that a
//! short-lived process touches few pages, and a large one for what finds no place there. An entry is written
//! under a per-entry sequence: its key becomes `BUSY`, then the rule is stored, then the new key, which
//! counts how often the entry was written. A reader takes the key, the rule and the key again, and believes
//! the rule only if both keys are the same. So entries can be replaced at any time: stale ones (of an older
//! epoch) first, else one chosen by the address. The key holds the epoch, so raising it empties the cache at
//! no cost; before epochs repeat, `clear` is called.
//!
//! A thread that dies between the two stores leaves one entry busy for good; nothing else happens.

use core::sync::atomic::{AtomicU64, Ordering};

use super::rule::Rule;

/// Entries in one line of the cache (64 bytes).
const WAYS: usize = 4;
/// Rules in the small part: 64 KB.
const SMALL: usize = 4096;
/// Key of an entry that is being written.
const BUSY: u64 = u64::MAX;
/// Code addresses have 47 bits in user space.
const ADDRESS_BITS: u32 = 47;
/// Epochs repeat after so many: `clear` at least twice as often.
pub const EPOCHS: u32 = 1 << 10;
/// The epoch's place in a key, and that of the count of writes behind it.
const EPOCH_SHIFT: u32 = ADDRESS_BITS + 1;
const COUNT_SHIFT: u32 = EPOCH_SHIFT + EPOCHS.trailing_zeros();

#[repr(C)]
#[derive(Debug)]
struct Entry {
    /// Address | exact << 47 | epoch << 48 | count of writes << 58; 0: empty.
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
    small: Small,
    large: [Line; LINES],
}

/// The small part, in lines of `WAYS` entries.
#[repr(C, align(64))]
#[derive(Debug)]
struct Small([Entry; SMALL]);

impl Entry {
    const fn new() -> Entry {
        Entry {
            key: AtomicU64::new(0),
            rule: AtomicU64::new(0),
        }
    }

    /// The rule, if the entry is that of a key.
    #[inline(always)]
    fn rule_of(&self, want: u64) -> Option<Rule> {
        let key = self.key.load(Ordering::Acquire);
        if identity(key) != want {
            return None;
        }
        let rule = self.rule.load(Ordering::Acquire);
        (self.key.load(Ordering::Relaxed) == key).then_some(Rule::from_word(rule))
    }
}

impl Line {
    const fn new() -> Line {
        Line([const { Entry::new() }; WAYS])
    }
}

impl<const LINES: usize> Default for RuleCache<LINES> {
    fn default() -> Self {
        Self::new()
    }
}

#[inline(always)]
fn hash(address: u64) -> u64 {
    address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

/// The key of an address, or `None` for addresses that are not cached.
#[inline(always)]
fn key(address: u64, exact: bool, epoch: u32) -> Option<u64> {
    if address == 0 || address >> ADDRESS_BITS != 0 {
        return None;
    }
    let epoch = (epoch % EPOCHS) as u64;
    Some(address | (exact as u64) << ADDRESS_BITS | epoch << EPOCH_SHIFT)
}

/// A key without its count of writes.
#[inline(always)]
fn identity(key: u64) -> u64 {
    key & ((1 << COUNT_SHIFT) - 1)
}

impl<const LINES: usize> RuleCache<LINES> {
    /// An empty cache; `LINES`, the size of its large part, is a power of two.
    pub const fn new() -> Self {
        const { assert!(LINES.is_power_of_two()) };
        RuleCache {
            small: Small([const { Entry::new() }; SMALL]),
            large: [const { Line::new() }; LINES],
        }
    }

    /// Where an address is most likely to be: its place in the small part. It may also be in the
    /// other places of that line, or in a line of the large part.
    #[inline(always)]
    fn place(address: u64) -> usize {
        (hash(address) as usize) % SMALL
    }

    /// All places of an address, the most likely one first.
    fn places(&self, address: u64) -> impl Iterator<Item = &Entry> {
        let place = Self::place(address);
        let line = place / WAYS * WAYS;
        let small = (0..WAYS).map(move |i| &self.small.0[line + (place + i) % WAYS]);
        small.chain(&self.large_line(address).0)
    }

    fn large_line(&self, address: u64) -> &Line {
        &self.large[(hash(address) >> 12) as usize % LINES]
    }

    /// The rule stored for an address in an epoch. `exact`: the address is that of the next instruction (a
    /// leaf, or a frame that a signal interrupted), not a return address.
    #[inline(always)]
    pub fn get(&self, address: u64, exact: bool, epoch: u32) -> Option<Rule> {
        let want = key(address, exact, epoch)?;
        match self.small.0[Self::place(address)].rule_of(want) {
            Some(rule) => Some(rule),
            None => self.get_elsewhere(address, want),
        }
    }

    #[inline(never)]
    fn get_elsewhere(&self, address: u64, want: u64) -> Option<Rule> {
        self.places(address).find_map(|entry| entry.rule_of(want))
    }

    /// Empties it.
    #[cold]
    pub fn clear(&self) {
        let large = self.large.iter().flat_map(|line| &line.0);
        for entry in self.small.0.iter().chain(large) {
            let key = entry.key.load(Ordering::Relaxed);
            if key != 0 && key != BUSY {
                // An entry that changes meanwhile is of the new epoch.
                let _ = entry
                    .key
                    .compare_exchange(key, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }

    /// Stores a rule that was derived while the epoch was `epoch`.
    #[cold]
    pub fn insert(&self, address: u64, exact: bool, epoch: u32, rule: Rule) {
        let Some(new) = key(address, exact, epoch) else {
            return;
        };
        for entry in self.places(address) {
            let old = entry.key.load(Ordering::Relaxed);
            if old != BUSY && identity(old) == new {
                return;
            }
            let epoch = |key| identity(key) >> EPOCH_SHIFT;
            let stale = old == 0 || (old != BUSY && epoch(old) != epoch(new));
            if stale && replace(entry, old, new, rule) {
                return;
            }
        }
        let victim = &self.large_line(address).0[Self::place(address) % WAYS];
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
    let mut count = (old >> COUNT_SHIFT).wrapping_add(1) << COUNT_SHIFT;
    if new | count == BUSY {
        count = 0;
    }
    entry.key.store(new | count, Ordering::Release);
    true
}

#[cfg(test)]
mod tests {
    use super::super::rule::Kind;
    use super::*;

    /// A rule that tells which address it belongs to.
    fn rule_of(address: u64, exact: bool) -> Rule {
        let number = (address >> 4) as i64 % 100_000 * 8;
        let kind = if exact { Kind::Sp } else { Kind::Fp };
        Rule::new(kind, number, None, Some(-8)).expect("it fits")
    }

    #[test]
    fn exact_addresses_are_kept_apart() {
        let cache = std::boxed::Box::new(RuleCache::<64>::new());
        cache.insert(0x1000, true, 1, rule_of(0x1000, true));
        assert_eq!(cache.get(0x1000, false, 1), None);
        assert_eq!(cache.get(0x1000, true, 1), Some(rule_of(0x1000, true)));
        assert_eq!(cache.get(0, true, 1), None);
        assert_eq!(cache.get(u64::MAX, true, 1), None);
    }

    #[test]
    fn a_new_epoch_empties_it_and_takes_its_places() {
        let cache = std::boxed::Box::new(RuleCache::<64>::new());
        for epoch in 1..100 {
            for address in (0x1000..0x9000).step_by(16) {
                cache.insert(address, false, epoch, rule_of(address, false));
            }
            let held = (0x1000..0x9000)
                .step_by(16)
                .filter(|a| cache.get(*a, false, epoch).is_some());
            assert!(held.count() > 2000, "epoch {epoch}");
            assert_eq!(cache.get(0x1000, false, epoch + 1), None);
        }
    }

    /// Threads that replace each other's entries: what is found always belongs to its address.
    #[test]
    fn readers_never_see_another_addresss_rule() {
        // The small part is full, and the large one is a single line: each insertion replaces something.
        let cache = std::boxed::Box::new(RuleCache::<1>::new());
        for address in (0x100_0000..0x200_0000).step_by(64) {
            cache.insert(address, false, 7, rule_of(address, false));
        }
        let rounds = if cfg!(miri) { 200 } else { 300_000 };
        std::thread::scope(|scope| {
            for seed in 1..5u64 {
                let cache = &cache;
                scope.spawn(move || {
                    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    for _ in 0..rounds {
                        state ^= state << 13;
                        state ^= state >> 7;
                        state ^= state << 17;
                        let address = 0x40_0000 + state % 6 * 16;
                        let exact = state >> 40 & 1 == 1;
                        match cache.get(address, exact, 7) {
                            Some(rule) => assert_eq!(rule, rule_of(address, exact)),
                            None => cache.insert(address, exact, 7, rule_of(address, exact)),
                        }
                    }
                });
            }
        });
    }
}
