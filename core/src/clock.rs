//! Clocks: what dates records, and how its readings become nanoseconds.

use crate::cycles::Cycles;
use crate::platform;
use crate::shm::layout::ClockSource;

/// The cycle counter.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn cycles() -> Cycles {
    // SAFETY: rdtsc is part of x86-64; a process may be forbidden it (PR_SET_TSC), which no program
    // that wants to be traced does.
    Cycles(unsafe { core::arch::x86_64::_rdtsc() })
}

/// The cycle counter.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub fn cycles() -> Cycles {
    let value: u64;
    // SAFETY: the virtual counter is readable from user space on every supported system.
    unsafe {
        core::arch::asm!("mrs {}, cntvct_el0", out(reg) value, options(nomem, nostack, preserves_flags));
    }
    Cycles(value)
}

/// The moment, by the session's source: with [`ClockSource::Monotonic`] a cycle is a nanosecond.
#[inline(always)]
pub fn now(source: ClockSource) -> Cycles {
    match source {
        ClockSource::Cycles => cycles(),
        ClockSource::Monotonic => Cycles(platform::clock_ns(libc::CLOCK_MONOTONIC)),
    }
}

/// The source to use on this machine: the cycle counter if it runs at one rate on all processors.
/// For the collector.
pub fn best_source() -> ClockSource {
    if counter_is_invariant() {
        ClockSource::Cycles
    } else {
        ClockSource::Monotonic
    }
}

/// What the kernel itself relies on is good: it checks the counters of all processors against each
/// other and stops using them when they drift. (The CPUID bit is often hidden in virtual machines.)
#[cfg(all(
    target_arch = "x86_64",
    any(target_os = "linux", target_os = "android")
))]
fn counter_is_invariant() -> bool {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    match std::fs::read_to_string(path) {
        Ok(name) => {
            matches!(
                name.trim(),
                "tsc" | "kvm-clock" | "hyperv_clocksource_tsc_page"
            ) && (name.trim() == "tsc" || cpuid_says_invariant())
        }
        Err(_) => cpuid_says_invariant(),
    }
}

/// CPUID 8000_0007h, EDX bit 8 (Intel SDM vol. 3, 18.17.1 "Invariant TSC").
#[cfg(target_arch = "x86_64")]
#[cfg_attr(
    not(any(target_os = "linux", target_os = "android")),
    allow(dead_code, reason = "Apple's counter is always invariant")
)]
fn cpuid_says_invariant() -> bool {
    use core::arch::x86_64::__cpuid;
    __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & (1 << 8) != 0
}

#[cfg(not(all(
    target_arch = "x86_64",
    any(target_os = "linux", target_os = "android")
)))]
fn counter_is_invariant() -> bool {
    true
}

/// One moment on all clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The session's clock, see [`ClockSource`].
    pub cycles: Cycles,
    /// CLOCK_MONOTONIC, ns.
    pub monotonic_ns: u64,
    /// Time since boot, sleep included, ns.
    pub boottime_ns: u64,
    /// CLOCK_REALTIME: nanoseconds since 1970.
    pub realtime_ns: u64,
}

#[cfg(any(target_os = "linux", target_os = "android"))]
const BOOTTIME: libc::clockid_t = libc::CLOCK_BOOTTIME;
/// Apple's monotonic clock goes on during sleep, which is what this one is for.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const BOOTTIME: libc::clockid_t = libc::CLOCK_MONOTONIC;

impl Snapshot {
    /// Reads all clocks, close together: of several attempts the tightest.
    pub fn take(source: ClockSource) -> Snapshot {
        let mut best: Option<(Cycles, Snapshot)> = None;
        for _ in 0..8 {
            let before = now(source);
            let monotonic_ns = platform::clock_ns(libc::CLOCK_MONOTONIC);
            let after = now(source);
            let width = after.saturating_sub(before);
            if best.is_none_or(|(w, _)| width < w) {
                let snapshot = Snapshot {
                    cycles: before + width / 2,
                    monotonic_ns,
                    boottime_ns: platform::clock_ns(BOOTTIME),
                    realtime_ns: platform::clock_ns(libc::CLOCK_REALTIME),
                };
                best = Some((width, snapshot));
            }
        }
        let snapshot = best.map_or(
            Snapshot {
                cycles: Cycles(0),
                monotonic_ns: 0,
                boottime_ns: 0,
                realtime_ns: 0,
            },
            |(_, s)| s,
        );
        match source {
            ClockSource::Cycles => snapshot,
            ClockSource::Monotonic => Snapshot {
                cycles: Cycles(snapshot.monotonic_ns),
                ..snapshot
            },
        }
    }
}

/// Turns cycles into CLOCK_MONOTONIC nanoseconds.
///
/// Between two snapshots the line through them is used, so neither a wrong rate nor NTP's slewing
/// adds up; outside of them the line through the first and the last. The result never goes back.
#[derive(Clone, Debug, Default)]
pub struct Converter {
    /// (cycles, ns), rising in both.
    points: std::vec::Vec<(Cycles, u64)>,
}

impl Converter {
    /// A converter without snapshots: it takes cycles for nanoseconds.
    pub fn new() -> Converter {
        Converter::default()
    }

    /// Adds a snapshot. Those that do not rise in both clocks are left out.
    pub fn add(&mut self, cycles: Cycles, monotonic_ns: u64) {
        let rises = self
            .points
            .last()
            .is_none_or(|&(c, n)| cycles > c && monotonic_ns > n);
        if rises {
            self.points.push((cycles, monotonic_ns));
        }
    }

    /// Snapshots kept.
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// True when nothing was added.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// The moment in ns.
    pub fn to_ns(&self, cycles: Cycles) -> u64 {
        let (Some(&first), Some(&last)) = (self.points.first(), self.points.last()) else {
            return cycles.0;
        };
        if self.points.len() == 1 {
            return if cycles >= first.0 {
                first.1.saturating_add((cycles - first.0).0)
            } else {
                first.1.saturating_sub((first.0 - cycles).0)
            };
        }
        if cycles <= first.0 {
            return first.1.saturating_sub(scale(first.0 - cycles, first, last));
        }
        if cycles >= last.0 {
            return last.1.saturating_add(scale(cycles - last.0, first, last));
        }
        let after = self.points.partition_point(|p| p.0 <= cycles);
        match (
            self.points.get(after.wrapping_sub(1)),
            self.points.get(after),
        ) {
            (Some(&a), Some(&b)) => a.1 + scale(cycles - a.0, a, b),
            _ => last.1,
        }
    }

    /// A duration in ns, by the overall rate.
    pub fn duration_ns(&self, cycles: Cycles) -> u64 {
        match (self.points.first(), self.points.last()) {
            (Some(&first), Some(&last)) if first.0 < last.0 => scale(cycles, first, last),
            _ => cycles.0,
        }
    }

    /// Nanoseconds as cycles, by the overall rate.
    pub fn to_cycles(&self, ns: u64) -> Cycles {
        let cycles = match (self.points.first(), self.points.last()) {
            (Some(&(c0, n0)), Some(&(c1, n1))) if n0 < n1 => {
                (ns as u128 * (c1 - c0).0 as u128 / (n1 - n0) as u128).min(u64::MAX as u128) as u64
            }
            _ => ns,
        };
        Cycles(cycles)
    }
}

/// `cycles` at the rate between two points that differ in cycles.
fn scale(cycles: Cycles, a: (Cycles, u64), b: (Cycles, u64)) -> u64 {
    let wide = cycles.0 as u128 * (b.1 - a.1) as u128 / (b.0 - a.0).0 as u128;
    wide.min(u64::MAX as u128) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversion_goes_through_every_snapshot_and_never_back() {
        let mut c = Converter::new();
        // A counter of 2 GHz whose rate changes a little, far from 0.
        let at = |later: i64| Cycles((u64::MAX / 2).saturating_add_signed(later));
        c.add(at(0), 1_000_000_000_000);
        c.add(at(2_000_000_000), 1_001_000_000_100);
        c.add(at(4_000_000_000), 1_002_000_000_000);
        c.add(at(3_000_000_000), 1_003_000_000_000);
        assert_eq!(c.len(), 3);
        assert_eq!(c.to_ns(at(0)), 1_000_000_000_000);
        assert_eq!(c.to_ns(at(2_000_000_000)), 1_001_000_000_100);
        assert_eq!(c.to_ns(at(1_000_000_000)), 1_000_500_000_050);
        assert_eq!(c.to_ns(at(-2_000_000_000)), 999_000_000_000);
        assert_eq!(c.to_ns(at(6_000_000_000)), 1_003_000_000_000);
        let mut last = 0;
        for step in 0..6000 {
            let ns = c.to_ns(at(-1_000_000_000 + step * 1_000_003));
            assert!(ns >= last);
            last = ns;
        }
        assert_eq!(c.duration_ns(Cycles(2_000)), 1_000);
        assert_eq!(c.to_cycles(1_000), Cycles(2_000));
    }

    #[test]
    fn extremes_do_not_overflow() {
        let mut c = Converter::new();
        assert_eq!(c.to_ns(Cycles(5)), 5);
        c.add(Cycles(10), 10);
        assert_eq!(c.to_ns(Cycles::MAX), u64::MAX);
        assert_eq!(c.to_ns(Cycles(0)), 0);
        c.add(Cycles(11), u64::MAX);
        assert_eq!(c.to_ns(Cycles::MAX), u64::MAX);
        assert_eq!(c.to_ns(Cycles(0)), 0);
    }

    #[cfg(not(miri))]
    #[test]
    fn a_real_sleep_has_its_length() {
        let source = best_source();
        let mut c = Converter::new();
        let a = Snapshot::take(source);
        std::thread::sleep(core::time::Duration::from_millis(20));
        let b = Snapshot::take(source);
        c.add(a.cycles, a.monotonic_ns);
        c.add(b.cycles, b.monotonic_ns);
        let slept = c.to_ns(b.cycles) - c.to_ns(a.cycles);
        assert!(slept >= 20_000_000, "{slept}");
        assert!(a.realtime_ns > 1_600_000_000_000_000_000);
    }
}
