//! Which threads have done something since a part of the recorder last polled: what thousands of waiting
//! threads cost does not grow with their number.
//!
//! Agents set a bit for each thread that begins, captures, enters or leaves a wait, or ends
//! (`stackbeat_core::shm::registry::show_activity`). The first reader to poll clears the bits and forwards
//! them to the other readers. Each reader gets an entry with two of its polls in a row, because the first may
//! come before what the thread stored last can be seen; and all entries now and then, so that a bit that was
//! not set (the thread was killed just before it, or a signal handler left by longjmp) delays a poll and no
//! more.

use std::sync::{Mutex, PoisonError};

use stackbeat_core::shm::mapping::Mapping;
use stackbeat_core::shm::registry;
use stackbeat_core::sync::Ordering;

/// Distance between two polls of all entries, ns.
const ALL_NS: u64 = 10_000_000_000;

/// Parts of the recorder that read the bitmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Sampler,
    Costs,
    Meter,
    Drain,
    OffCpu,
}
const PARTS: usize = 5;

/// Entries that a part has to poll, a bit for each.
#[derive(Debug, Default)]
struct Wanted {
    fresh: Vec<u64>,
    /// Given once already.
    again: Vec<u64>,
    next_all_ns: u64,
}

/// The activity bits that were taken, by part.
#[derive(Debug, Default)]
pub(crate) struct Activity(Mutex<[Wanted; PARTS]>);

impl Activity {
    /// Puts the entries that a part should poll into `into` (replacing what is there), in their order. True:
    /// these are all that were ever used.
    pub(crate) fn take(
        &self,
        mapping: &Mapping,
        part: Part,
        now_ns: u64,
        into: &mut Vec<u32>,
    ) -> bool {
        into.clear();
        let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let control = mapping.control();
        let used = control.threads_used.load(Ordering::Acquire);
        let used = used
            .min(control.threads_limit.load(Ordering::Relaxed))
            .min(mapping.layout().capacity.threads);
        let words = used.div_ceil(u64::BITS) as usize;
        for word in 0..words {
            let taken = registry::take_activity(mapping, word);
            if taken != 0 {
                for wanted in parts.iter_mut() {
                    wanted.add(word, taken);
                }
            }
        }
        let wanted = &mut parts[part as usize];
        let is_all = now_ns >= wanted.next_all_ns;
        if is_all {
            wanted.next_all_ns = now_ns + ALL_NS;
            into.extend(0..used);
        }
        for word in 0..wanted.fresh.len() {
            let fresh = std::mem::take(&mut wanted.fresh[word]);
            let mut bits = fresh | std::mem::replace(&mut wanted.again[word], fresh);
            while bits != 0 && !is_all {
                into.push(word as u32 * u64::BITS + bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
        is_all
    }
}

impl Wanted {
    fn add(&mut self, word: usize, bits: u64) {
        if self.fresh.len() <= word {
            self.fresh.resize(word + 1, 0);
            self.again.resize(word + 1, 0);
        }
        self.fresh[word] |= bits;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stackbeat_core::shm::layout::Capacity;
    use stackbeat_core::shm::registry::NewThread;

    #[test]
    fn each_reader_gets_each_bit_twice_and_all_entries_now_and_then() {
        let path = std::env::temp_dir().join(format!("stackbeat-activity-{}", std::process::id()));
        let name = std::ffi::CString::new(path.to_str().expect("a name")).expect("a name");
        let capacity = Capacity {
            threads: 256,
            generation_nodes: 1 << 10,
            ..Capacity::default()
        };
        let mapping = Mapping::create(&name, capacity).expect("a mapping");
        std::fs::remove_file(path).expect("it was made");
        for _ in 0..130 {
            registry::add_thread(&mapping, &NewThread::default()).expect("room");
        }
        let activity = Activity::default();
        let mut found = Vec::new();
        let all: Vec<u32> = (0..130).collect();
        // The first poll gives all entries, whatever their bits; the second repeats what it took.
        assert!(activity.take(&mapping, Part::Meter, 1, &mut found) && found == all);
        assert!(!activity.take(&mapping, Part::Meter, 2, &mut found) && found == all);
        assert!(!activity.take(&mapping, Part::Meter, 3, &mut found) && found.is_empty());

        let entry = mapping.thread(129).expect("there");
        registry::show_activity(&mapping, 129, entry);
        for polls in [vec![129], vec![129], vec![]] {
            activity.take(&mapping, Part::Meter, 4, &mut found);
            assert_eq!(found, polls);
        }
        // Somebody else has taken it away meanwhile.
        assert!(activity.take(&mapping, Part::Drain, ALL_NS, &mut found) && found == all);
        registry::show_activity(&mapping, 3, mapping.thread(3).expect("there"));
        activity.take(&mapping, Part::Meter, 5, &mut found);
        assert_eq!(found, [3]);
        activity.take(&mapping, Part::Drain, ALL_NS + 1, &mut found);
        assert!(found.contains(&3) && found.contains(&129));
        assert!(activity.take(&mapping, Part::Drain, 2 * ALL_NS, &mut found) && found == all);
    }
}
