//! Whether the kernel has switched the calling thread away since a moment, for the price of a load.
//!
//! Restartable sequences (Linux `include/uapi/linux/rseq.h`): the kernel looks at a thread's `rseq_cs`
//! whenever the thread comes back after a switch or takes a signal. When the descriptor that it points to
//! does not cover the place where the thread is, the kernel sets it to null. So a thread that stores the
//! descriptor of an empty stretch of code finds it gone after the next switch.
//!
//! glibc 2.35 and later registers each thread and exports where (`__rseq_offset`, `__rseq_size`). A
//! program that uses restartable sequences itself stores its own descriptor when it enters one, and
//! is never inside one when it calls a hook: neither disturbs the other.

#[cfg(all(target_os = "linux", target_env = "gnu", not(miri), not(loom)))]
mod imp {
    use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

    /// `struct rseq_cs`.
    #[repr(C, align(32))]
    struct Descriptor {
        version: u32,
        flags: u32,
        start: *const u32,
        length: u64,
        abort: *const u32,
    }

    // SAFETY: never changed.
    unsafe impl Sync for Descriptor {}

    /// What the kernel insists on finding before an abort address: RSEQ_SIG of glibc's
    /// `sysdeps/unix/sysv/linux/{x86,aarch64}/bits/rseq.h`.
    #[cfg(target_arch = "x86_64")]
    const SIGNATURE: u32 = 0x5305_3053;
    #[cfg(target_arch = "aarch64")]
    const SIGNATURE: u32 = 0xd428_bc00;

    static ABORT: [u32; 2] = [SIGNATURE, 0];

    /// Covers nothing: a length of 0.
    static EMPTY: Descriptor = Descriptor {
        version: 0,
        flags: 0,
        start: (&raw const ABORT).cast(),
        length: 0,
        // SAFETY: inside `ABORT`.
        abort: unsafe { (&raw const ABORT).cast::<u32>().add(1) },
    };

    /// Offset of `rseq_cs` in `struct rseq`.
    const RSEQ_CS: usize = 8;

    /// Offset of the thread's `rseq_cs` from its thread pointer; 0: not usable.
    static OFFSET: AtomicUsize = AtomicUsize::new(0);

    core::arch::global_asm!(".weak __rseq_offset", ".weak __rseq_size");

    #[cfg(target_arch = "x86_64")]
    macro_rules! weak_address {
        ($name:literal) => {{
            let address: usize;
            // SAFETY: loads the symbol's address from the GOT; 0 when nobody defines it.
            unsafe {
                core::arch::asm!(
                    concat!("mov {}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                    out(reg) address,
                    options(pure, readonly, nostack, preserves_flags),
                );
            }
            address
        }};
    }

    #[cfg(target_arch = "aarch64")]
    macro_rules! weak_address {
        ($name:literal) => {{
            let address: usize;
            // SAFETY: loads the symbol's address from the GOT; 0 when nobody defines it.
            unsafe {
                core::arch::asm!(
                    concat!("adrp {0}, :got:", $name),
                    concat!("ldr {0}, [{0}, :got_lo12:", $name, "]"),
                    out(reg) address,
                    options(pure, readonly, nostack, preserves_flags),
                );
            }
            address
        }};
    }

    #[inline(always)]
    fn thread_pointer() -> usize {
        let pointer: usize;
        // SAFETY: reads the thread pointer, as the ABI has it.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            core::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(pure, readonly, nostack, preserves_flags));
            #[cfg(target_arch = "aarch64")]
            core::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(pure, nomem, nostack, preserves_flags));
        }
        pointer
    }

    /// The calling thread's `rseq_cs`.
    #[inline(always)]
    fn place() -> Option<&'static AtomicU64> {
        let offset = OFFSET.load(Ordering::Relaxed);
        if offset == 0 {
            return None;
        }
        let address = thread_pointer().wrapping_add(offset);
        // SAFETY: glibc said that the thread's `struct rseq` lies there, aligned to 32; it lives as
        // long as the thread.
        Some(unsafe { &*core::ptr::with_exposed_provenance(address) })
    }

    fn token() -> u64 {
        (&raw const EMPTY).expose_provenance() as u64
    }

    pub(super) fn arm() {
        if let Some(place) = place() {
            place.store(token(), Ordering::Relaxed);
        }
    }

    pub(super) fn disarm() {
        if let Some(place) = place() {
            place.store(0, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    pub(super) fn rearm() -> bool {
        let Some(place) = place() else {
            return false;
        };
        let was_switched = place.load(Ordering::Relaxed) != token();
        if was_switched {
            place.store(token(), Ordering::Relaxed);
        }
        was_switched
    }

    #[inline(always)]
    pub(super) fn was_switched() -> Option<bool> {
        place().map(|place| place.load(Ordering::Relaxed) != token())
    }

    pub(super) fn init() -> bool {
        let (offset, size) = (weak_address!("__rseq_offset"), weak_address!("__rseq_size"));
        if offset == 0 || size == 0 {
            return false;
        }
        // SAFETY: glibc defines `const ptrdiff_t __rseq_offset` and `const unsigned int __rseq_size`
        // (sys/rseq.h).
        let (offset, size) = unsafe {
            (
                *core::ptr::with_exposed_provenance::<isize>(offset),
                *core::ptr::with_exposed_provenance::<u32>(size),
            )
        };
        // 0: the kernel refused the registration.
        if size == 0 {
            return false;
        }
        OFFSET.store(
            offset.wrapping_add(RSEQ_CS as isize) as usize,
            Ordering::Relaxed,
        );
        // A sleep is a switch: the kernel must have noticed.
        let never = AtomicU32::new(0);
        for _ in 0..3 {
            arm();
            crate::platform::wait(&never, 0, Some(20_000));
            if was_switched() == Some(true) {
                return true;
            }
        }
        disarm();
        OFFSET.store(0, Ordering::Relaxed);
        false
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu", not(miri), not(loom))))]
mod imp {
    pub(super) fn arm() {}
    pub(super) fn disarm() {}
    pub(super) fn rearm() -> bool {
        false
    }
    pub(super) fn was_switched() -> Option<bool> {
        None
    }
    pub(super) fn init() -> bool {
        false
    }
}

/// Finds out whether this works here, once, at the start; takes some 20 µs.
pub fn init() -> bool {
    imp::init()
}

/// From now on [`was_switched`] tells whether the calling thread was.
#[inline(always)]
pub fn arm() {
    imp::arm();
}

/// Until the next [`arm`], the calling thread counts as switched away.
#[cold]
#[inline(never)]
pub fn disarm() {
    imp::disarm();
}

/// [`arm`], which also tells whether the thread was switched away before.
#[inline(always)]
pub fn rearm() -> bool {
    imp::rearm()
}

/// Whether the calling thread was switched away, or took a signal, since it called [`arm`]; `None`
/// when that cannot be told here.
#[inline(always)]
pub fn was_switched() -> Option<bool> {
    imp::was_switched()
}

#[cfg(all(
    test,
    target_os = "linux",
    target_arch = "x86_64",
    not(miri),
    not(loom)
))]
mod tests {
    use super::*;
    use crate::platform;

    #[test]
    fn every_switch_is_seen_and_system_calls_are_none() {
        if !init() {
            // No glibc 2.35, or a kernel that refuses: then nothing is claimed.
            assert_eq!(was_switched(), None);
            return;
        }
        let (mut quiet, mut slept) = (0, 0);
        for _ in 0..200 {
            let before = platform::thread_usage();
            arm();
            for _ in 0..20 {
                platform::process_id();
            }
            let switched = was_switched();
            let after = platform::thread_usage();
            if after == before {
                quiet += u32::from(switched == Some(false));
            }
            let before = platform::thread_usage().map(|usage| usage.voluntary_switches);
            arm();
            std::thread::sleep(core::time::Duration::from_micros(50));
            let switched = was_switched();
            // A timer that fires before the thread has given the processor up lets it go on.
            if platform::thread_usage().map(|usage| usage.voluntary_switches) != before {
                assert_eq!(switched, Some(true), "a sleep is a switch");
                slept += 1;
            }
        }
        assert!(slept > 0, "sleeps give the processor up");
        assert!(quiet > 0, "undisturbed stretches are told apart");
    }
}
