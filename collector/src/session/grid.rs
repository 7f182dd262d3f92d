//! When the recorder's threads wake up that poll now and then: at common moments, so that several of them
//! take the processor away from the program once.

use std::time::Duration;

use super::clocks::now_ns;

/// Distances that are a multiple of one of these end at a multiple of it by the monotonic clock. The longest
/// come first; shorter ones of them share their moments with the longer ones.
const STEPS_NS: [u64; 4] = [100_000_000, 50_000_000, 20_000_000, 10_000_000];

/// The moment by the monotonic clock at which a poll comes that is wanted after this time, ns: as near to it
/// as the grid allows. Others keep their distance.
pub(crate) fn moment_ns(now_ns: u64, distance: Duration) -> u64 {
    let distance_ns = u64::try_from(distance.as_nanos()).unwrap_or(u64::MAX);
    let until_ns = now_ns.saturating_add(distance_ns);
    let is_on_grid = |step: &u64| distance_ns != 0 && distance_ns.is_multiple_of(*step);
    match STEPS_NS.into_iter().find(is_on_grid) {
        // A thread wakes up somewhat after its moment: the nearest is meant.
        Some(step) => until_ns.saturating_add(step / 2) / step * step,
        None => until_ns,
    }
}

/// The time from now on to that moment.
pub(crate) fn time_to(distance: Duration) -> Duration {
    let now = now_ns();
    Duration::from_nanos(moment_ns(now, distance).saturating_sub(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn polls_of_different_distances_come_together() {
        for (distance_ms, each_ms) in [(20, 20), (100, 100), (200, 200), (150, 150), (40, 40)] {
            let mut at_ns = moment_ns(987_654_321, Duration::from_millis(distance_ms));
            for _ in 0..100 {
                let before_ns = at_ns;
                // It wakes up late, and works.
                at_ns = moment_ns(at_ns + 3 * MS, Duration::from_millis(distance_ms));
                assert_eq!(at_ns - before_ns, each_ms * MS);
            }
            let step_ms = if distance_ms % 100 == 0 { 100 } else { 10 };
            assert_eq!(at_ns % (step_ms * MS), 0);
        }
    }

    #[test]
    fn other_distances_are_kept() {
        for ns in [1, 1_500_000, 15 * MS, 123 * MS + 1] {
            assert_eq!(moment_ns(77, Duration::from_nanos(ns)), 77 + ns);
        }
        assert_eq!(moment_ns(77, Duration::ZERO), 77);
        assert!(moment_ns(77, Duration::MAX) > u64::MAX / 2);
    }
}
