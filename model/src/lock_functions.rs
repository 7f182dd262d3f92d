//! Locks that libraries build on futexes and conditions: a wait for one is known by the function that waits.

use stackbeat_core::probe::Probe;

use super::ProbeId;

/// How a name begins and ends, without arguments: the functions in which a thread waits until it has the
/// lock. Waits for conditions in the same libraries do not pass through them.
const FUNCTIONS: &[(&str, &str)] = &[
    // Rust: library/std/src/sys/sync/mutex/futex.rs and rwlock/futex.rs, in other folders before 1.77.
    ("std::sys", "::Mutex::lock_contended"),
    ("std::sys", "::RwLock::read_contended"),
    ("std::sys", "::RwLock::write_contended"),
    // parking_lot: src/raw_mutex.rs, src/raw_rwlock.rs.
    ("parking_lot::raw_mutex::RawMutex::lock_slow", ""),
    ("parking_lot::raw_rwlock::RawRwLock::lock_", ""),
    ("parking_lot::raw_rwlock::RawRwLock::upgrade_slow", ""),
    ("parking_lot::raw_rwlock::RawRwLock::wait_for_readers", ""),
    // HotSpot, Java's monitors: src/hotspot/share/runtime/objectMonitor.cpp, the last two after
    // `Object.wait`.
    ("ObjectMonitor::enter", ""),
    ("ObjectMonitor::EnterI", ""),
    ("ObjectMonitor::reenter", ""),
    ("ObjectMonitor::ReenterI", ""),
    // Android's runtime, Java's monitors and its own locks: runtime/monitor.cc (also after `Object.wait`) and
    // runtime/base/mutex.cc.
    ("art::Monitor::Lock", ""),
    ("art::Mutex::ExclusiveLock", ""),
    // Abseil: absl/synchronization/mutex.cc and absl/base/internal/spinlock.cc, with a namespace for each
    // release. Not `LockSlow`, by which `LockWhen` waits for conditions.
    ("absl::", "::Mutex::Lock"),
    ("absl::", "::Mutex::lock"),
    ("absl::", "::Mutex::ReaderLock"),
    ("absl::", "::Mutex::lock_shared"),
    ("absl::", "::SpinLock::SlowLock"),
    // Chromium's allocator: base/allocator/partition_allocator, spinning_mutex.cc.
    ("partition_alloc::", "::SpinningMutex::LockSlow"),
    // WebKit: Source/WTF/wtf/Lock.cpp.
    ("WTF::Lock", "::lockSlow"),
    // CPython: Python/ceval_gil.c (ceval_gil.h before 3.12).
    ("take_gil", ""),
    // glibc: nptl/lowlevellock.c, of malloc's arenas and of stdio's streams.
    ("__lll_lock_wait", ""),
];

/// Frames that may stand below such a function: what it waits by.
const MOST_BELOW: u8 = 12;

/// Whether a thread that waits below this function waits for a lock.
pub fn waits_for_lock(function: &str) -> bool {
    // Rust's newer mangling says `<Type>::function`.
    let name = without_arguments(function).replace(['<', '>'], "");
    FUNCTIONS
        .iter()
        .any(|(begin, end)| name.starts_with(begin) && name.ends_with(end))
}

/// A name up to its arguments.
pub(super) fn without_arguments(name: &str) -> &str {
    let mut templates = 0_u32;
    for (at, letter) in name.char_indices() {
        match letter {
            '<' => templates += 1,
            '>' => templates = templates.saturating_sub(1),
            '(' if templates == 0 && !name[at..].starts_with("(anonymous") => return &name[..at],
            _ => {}
        }
    }
    name
}

/// How far a stack's innermost frame is from the function of a lock: 0, there is none, or frames + 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BelowLock(u8);

impl BelowLock {
    /// With one frame more.
    pub(crate) fn with(self, is_lock: bool) -> BelowLock {
        match (is_lock, self.0) {
            (true, _) => BelowLock(1),
            (false, 1..=MOST_BELOW) => BelowLock(self.0 + 1),
            _ => BelowLock(0),
        }
    }

    /// What a wait in such a stack is.
    pub(crate) fn probe(self, probe: ProbeId) -> ProbeId {
        match probe.known() {
            _ if self.0 == 0 => probe,
            Some(Probe::FutexWait) => Probe::FutexLock.into(),
            Some(Probe::CondWait) => Probe::ConditionLock.into(),
            _ => probe,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_locks_are_known_and_those_of_conditions_are_not() {
        for lock in [
            "std::sys::sync::mutex::futex::Mutex::lock_contended",
            "<std::sys::sync::mutex::futex::Mutex>::lock_contended",
            "std::sys::unix::locks::futex_mutex::Mutex::lock_contended",
            "std::sys::sync::rwlock::futex::RwLock::write_contended",
            "parking_lot::raw_mutex::RawMutex::lock_slow",
            "parking_lot::raw_rwlock::RawRwLock::lock_shared_slow",
            "ObjectMonitor::enter_internal(JavaThread*)",
            "ObjectMonitor::EnterI(Thread*)",
            "art::Monitor::Lock<(art::LockReason)1>(art::Thread*)",
            "art::Monitor::Lock<(art::LockReason)0>(art::Thread*)",
            "art::Mutex::ExclusiveLock(art::Thread*)",
            "absl::lts_20240722::Mutex::Lock()",
            "absl::base_internal::SpinLock::SlowLock()",
            "partition_alloc::internal::SpinningMutex::LockSlow()",
            "WTF::LockAlgorithm<unsigned char, (unsigned char)1>::lockSlow(WTF::Atomic<unsigned char>&)",
            "__lll_lock_wait_private",
            "take_gil",
        ] {
            assert!(waits_for_lock(lock), "{lock}");
        }
        for other in [
            "<std::sys::sync::condvar::futex::Condvar>::wait_optional_timeout",
            "std::thread::park",
            "parking_lot::condvar::Condvar::wait_until_internal",
            "parking_lot_core::parking_lot::park",
            "ObjectMonitor::wait(long, bool, JavaThread*)",
            "art::Monitor::Wait(art::Thread*, long, int, bool, art::ThreadState)",
            "art::ConditionVariable::Wait(art::Thread*)",
            "ObjectMonitor::exit(JavaThread*, bool)",
            "absl::lts_20240722::Mutex::Await(absl::Condition const&)",
            "absl::CondVar::WaitCommon(absl::Mutex*, absl::KernelTimeout)",
            "my::Mutex::lock_contended",
        ] {
            assert!(!waits_for_lock(other), "{other}");
        }
    }

    #[test]
    fn a_lock_far_above_says_nothing() {
        let mut below = BelowLock::default().with(true);
        assert_eq!(
            below.probe(Probe::FutexWait.into()),
            Probe::FutexLock.into()
        );
        assert_eq!(below.probe(Probe::Read.into()), Probe::Read.into());
        for _ in 0..=MOST_BELOW {
            below = below.with(false);
        }
        assert_eq!(below.probe(Probe::CondWait.into()), Probe::CondWait.into());
    }
}
