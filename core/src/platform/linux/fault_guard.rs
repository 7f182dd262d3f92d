//! Loads that fail where they would fault.
//!
//! [`load`] is one instruction of a known address. A handler of SIGSEGV and SIGBUS that meets a fault there
//! goes on behind it, and the load has failed ([`catch`]). Handlers come from elsewhere ([`Provider`]), and
//! only when somebody is going to load ([`want`]). The program's own may stand in their place at any time, so
//! each user of loads asks first ([`FaultGuard::begin`]).

use super::{allows, alternate_stack, signal_handler};
use crate::platform::signal_bit;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

/// What a load gives.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Loaded {
    value: u64,
    is_there: u64,
}

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .text.stackbeat_guarded_load,\"ax\",@progbits",
    ".p2align 4",
    ".hidden stackbeat_guarded_load",
    ".globl stackbeat_guarded_load",
    ".type stackbeat_guarded_load, @function",
    "stackbeat_guarded_load:",
    ".cfi_startproc",
    // Nothing may stand before it: this is the address that handlers know.
    "movq (%rdi), %rax",
    "movl $1, %edx",
    "ret",
    ".hidden stackbeat_guarded_load_failed",
    ".globl stackbeat_guarded_load_failed",
    "stackbeat_guarded_load_failed:",
    "xorl %eax, %eax",
    "xorl %edx, %edx",
    "ret",
    ".cfi_endproc",
    ".size stackbeat_guarded_load, . - stackbeat_guarded_load",
    ".popsection",
    options(att_syntax),
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".pushsection .text.stackbeat_guarded_load,\"ax\",@progbits",
    ".p2align 4",
    ".hidden stackbeat_guarded_load",
    ".globl stackbeat_guarded_load",
    ".type stackbeat_guarded_load, @function",
    "stackbeat_guarded_load:",
    ".cfi_startproc",
    // Nothing may stand before it: this is the address that handlers know.
    "ldr x0, [x0]",
    "mov x1, #1",
    "ret",
    ".hidden stackbeat_guarded_load_failed",
    ".globl stackbeat_guarded_load_failed",
    "stackbeat_guarded_load_failed:",
    "mov x0, #0",
    "mov x1, #0",
    "ret",
    ".cfi_endproc",
    ".size stackbeat_guarded_load, . - stackbeat_guarded_load",
    ".popsection",
);

unsafe extern "C" {
    /// Where a load that faults stands. Handlers written in assembly know both by their names.
    fn stackbeat_guarded_load(address: u64) -> Loaded;
    /// Where it goes on.
    fn stackbeat_guarded_load_failed();
}

/// Loads the word at an aligned address. `None`: there is none.
///
/// # Safety
/// Between [`FaultGuard::begin`] and the guard's end, on the thread that began it.
#[inline]
pub unsafe fn load(address: u64) -> Option<u64> {
    // SAFETY: by contract a handler catches a fault; whatever the word is, it is only a number.
    let loaded = unsafe { stackbeat_guarded_load(address) };
    (loaded.is_there != 0).then_some(loaded.value)
}

/// What a handler of SIGSEGV or SIGBUS begins with. True: it was a load of ours, which goes on when the
/// handler returns.
///
/// # Safety
/// Both are what the kernel passed to a handler with SA_SIGINFO.
pub unsafe fn catch(info: *const libc::siginfo_t, context: *mut core::ffi::c_void) -> bool {
    // SAFETY: by contract. Others' signals have no positive code, whatever they meet.
    if unsafe { (*info).si_code } <= 0 {
        return false;
    }
    // SAFETY: by contract it points to a `ucontext_t`.
    let machine = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext };
    #[cfg(target_arch = "x86_64")]
    let pc = &mut machine.gregs[libc::REG_RIP as usize];
    #[cfg(target_arch = "aarch64")]
    let pc = &mut machine.pc;
    let is_ours = *pc as usize == stackbeat_guarded_load as *const () as usize;
    if is_ours {
        *pc = stackbeat_guarded_load_failed as *const () as usize as _;
    }
    is_ours
}

/// Who installs handlers that catch.
#[derive(Debug)]
pub struct Provider {
    /// Installs them, where the program has none. May be called in captures.
    pub install: fn(),
    /// Whether this handler, as the kernel has it, begins with [`catch`].
    pub catches: fn(handler: u64) -> bool,
}

static PROVIDER: AtomicPtr<Provider> = AtomicPtr::new(core::ptr::null_mut());
static IS_WANTED: AtomicBool = AtomicBool::new(false);

fn provider() -> Option<&'static Provider> {
    // SAFETY: null, or what `set_provider` stored.
    unsafe { PROVIDER.load(Ordering::Acquire).as_ref() }
}

/// Handlers come from here from now on; `None`: none are to be installed any more.
pub fn set_provider(provider: Option<&'static Provider>) {
    let place = provider.map_or(core::ptr::null(), |provider| &raw const *provider);
    PROVIDER.store(place.cast_mut(), Ordering::SeqCst);
    if let Some(provider) = provider
        && IS_WANTED.load(Ordering::SeqCst)
    {
        (provider.install)();
    }
}

/// Somebody is going to load from now on.
pub fn want() {
    if !IS_WANTED.swap(true, Ordering::SeqCst)
        && let Some(provider) = provider()
    {
        (provider.install)();
    }
}

/// Guards under way, and whether none may begin: handlers are about to change.
static GUARDS: AtomicU32 = AtomicU32::new(0);
static CHANGES: AtomicU32 = AtomicU32::new(0);

/// Changes what handles faults, while no thread loads. A guard takes microseconds; a thread that stands still
/// in one (a debugger's) is not waited for longer than a tenth of a second.
pub fn change_handlers<R>(change: impl FnOnce() -> R) -> R {
    const LONGEST_NS: u64 = 100_000_000;

    CHANGES.fetch_add(1, Ordering::SeqCst);
    if GUARDS.load(Ordering::SeqCst) != 0 {
        let until = super::clock_ns(libc::CLOCK_MONOTONIC) + LONGEST_NS;
        while GUARDS.load(Ordering::SeqCst) != 0 && super::clock_ns(libc::CLOCK_MONOTONIC) < until {
            super::yield_now();
        }
    }
    let result = change();
    CHANGES.fetch_sub(1, Ordering::SeqCst);
    result
}

/// In a child after fork: threads that loaded or changed something are not there.
pub fn after_fork() {
    GUARDS.store(0, Ordering::SeqCst);
    CHANGES.store(0, Ordering::SeqCst);
}

/// Smaller alternate stacks may have no room for a frame of the kernel's, which is 11 KiB with AMX, and a
/// handler.
const LEAST_ALTERNATE_BYTES: usize = 32 << 10;

/// Faults of the calling thread's loads are caught.
#[derive(Debug)]
#[must_use]
pub struct FaultGuard {
    /// To be put back.
    alternate: Option<libc::stack_t>,
}

impl FaultGuard {
    /// Begins, where handlers that catch are installed and the thread lets their signals in. Costs three
    /// system calls, or five on an alternate stack.
    ///
    /// `blocked`: the signals that the thread blocks now. `sp`: where the program's stack pointer stands, if
    /// that is another stack than this one, which has to have room for a handler. A handler that asks for the
    /// alternate stack would begin at its top although the program is in the middle of it, because the kernel
    /// looks only where the thread is now (`sas_ss_flags`, include/linux/sched/signal.h). So there is none
    /// meanwhile, nor where it has little room.
    pub fn begin(blocked: u64, sp: usize) -> Option<FaultGuard> {
        GUARDS.fetch_add(1, Ordering::SeqCst);
        let guard = (CHANGES.load(Ordering::SeqCst) == 0)
            .then(|| Self::begin_counted(blocked, sp))
            .flatten();
        if guard.is_none() {
            GUARDS.fetch_sub(1, Ordering::SeqCst);
        }
        guard
    }

    fn begin_counted(blocked: u64, sp: usize) -> Option<FaultGuard> {
        let catches = provider()?.catches;
        let signals = [libc::SIGSEGV as u32, libc::SIGBUS as u32];
        if signals.iter().any(|s| blocked & signal_bit(*s) != 0) {
            return None;
        }
        // Behind a filter nobody may know what is blocked, or a handler may not return.
        let change_mask = [libc::SIG_BLOCK as usize, 1, 1, 8, 0, 0];
        let is_caught = allows(libc::SYS_rt_sigprocmask, change_mask)
            && allows(libc::SYS_rt_sigreturn, [0; 6])
            && signals.iter().all(|signal| {
                allows(libc::SYS_rt_sigaction, [*signal as usize, 0, 1, 8, 0, 0])
                    && catches(signal_handler(*signal))
            });
        if !is_caught {
            return None;
        }
        // SAFETY: only asks.
        let alternate = unsafe { alternate_stack(core::ptr::null()) }.ok()?;
        let distance = sp.wrapping_sub(alternate.ss_sp.addr());
        let is_there = alternate.ss_flags & libc::SS_DISABLE == 0;
        let is_in_use = distance <= alternate.ss_size;
        if !is_there || (!is_in_use && alternate.ss_size >= LEAST_ALTERNATE_BYTES) {
            return Some(FaultGuard { alternate: None });
        }
        // SAFETY: zeros are a valid stack_t.
        let mut none: libc::stack_t = unsafe { core::mem::zeroed() };
        none.ss_flags = libc::SS_DISABLE;
        // SAFETY: takes one away.
        unsafe { alternate_stack(&raw const none) }.ok()?;
        Some(FaultGuard {
            alternate: Some(alternate),
        })
    }

    /// Ends it.
    pub fn end(self) {
        if let Some(alternate) = &self.alternate {
            // SAFETY: what was there before.
            let _ = unsafe { alternate_stack(&raw const *alternate) };
        }
        GUARDS.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(all(test, not(miri), not(loom)))]
pub(crate) mod tests {
    use super::*;
    use core::ffi::{c_int, c_void};
    use std::sync::Once;

    /// What stood there before: Rust's own, which tells of stack overflows.
    static mut BEFORE: [Option<libc::sigaction>; 2] = [None; 2];

    unsafe extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
        // SAFETY: what the kernel passed; written before this handler was installed.
        unsafe {
            if catch(info, context) {
                return;
            }
            match BEFORE[usize::from(signal == libc::SIGBUS)] {
                Some(before) if before.sa_flags & libc::SA_SIGINFO != 0 => {
                    let go_on: unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                        core::mem::transmute(before.sa_sigaction);
                    go_on(signal, info, context);
                }
                _ => {
                    libc::signal(signal, libc::SIG_DFL);
                }
            }
        }
    }

    /// Installs handlers that catch, once for all tests of this process.
    pub(crate) fn catch_faults() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            for (i, signal) in [libc::SIGSEGV, libc::SIGBUS].into_iter().enumerate() {
                // SAFETY: a handler of the right type; nobody else writes `BEFORE`.
                unsafe {
                    let mut action: libc::sigaction = core::mem::zeroed();
                    let mut before = action;
                    action.sa_sigaction = on_fault as *const () as usize;
                    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
                    assert_eq!(libc::sigaction(signal, core::ptr::null(), &mut before), 0);
                    BEFORE[i] = Some(before);
                    assert_eq!(libc::sigaction(signal, &action, core::ptr::null_mut()), 0);
                }
            }
            static TESTS: Provider = Provider {
                install: || {},
                catches: |handler| handler == on_fault as *const () as u64,
            };
            set_provider(Some(&TESTS));
        });
    }

    /// Whether loads of bad addresses fail, with a guard of the calling thread.
    fn bad_loads_fail(blocked: u64, sp: usize) {
        let guard = FaultGuard::begin(blocked, sp).expect("handlers catch");
        for bad in [0u64, 8, 1 << 20, 1 << 63, u64::MAX - 7] {
            // SAFETY: the guard lives.
            assert_eq!(unsafe { load(bad) }, None, "{bad:#x}");
        }
        let good = 0x1234_5678_9abcu64;
        // SAFETY: as above.
        assert_eq!(unsafe { load(&raw const good as u64) }, Some(good));
        guard.end();
    }

    #[test]
    fn bad_addresses_give_no_word() {
        catch_faults();
        bad_loads_fail(0, 0);
    }

    #[test]
    fn there_is_no_guard_where_a_fault_would_end_the_process() {
        catch_faults();
        for signal in [libc::SIGSEGV, libc::SIGBUS] {
            assert!(FaultGuard::begin(signal_bit(signal as u32), 0).is_none());
        }
    }

    /// The frame of the handler under way lies at the top of the alternate stack, where the kernel would put
    /// a second one.
    #[test]
    fn a_handler_on_the_alternate_stack_lives_through_faults_on_another_one() {
        use std::sync::atomic::AtomicU32;

        static RUNS: AtomicU32 = AtomicU32::new(0);
        const STACK: usize = 64 << 10;

        unsafe extern "C-unwind" fn on_other_stack(sp: *mut c_void) {
            bad_loads_fail(0, sp.addr());
        }

        unsafe extern "C" fn on_signal(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {
            let here = core::hint::black_box([0x5a5a_u64; 32]);
            let mut stack = std::vec![0u128; STACK / 16];
            // SAFETY: the end of memory of this function's; `on_other_stack` takes any number.
            unsafe {
                let top = stack.as_mut_ptr().add(STACK / 16).cast();
                crate::platform::call_on(top, on_other_stack, here.as_ptr() as *mut c_void);
            }
            assert_eq!(core::hint::black_box(&here), &[0x5a5a; 32]);
            RUNS.fetch_add(1, Ordering::Relaxed);
        }

        catch_faults();
        // SAFETY: memory and a handler of this test's, for a signal that nobody else uses here.
        unsafe {
            let mut alternate = std::vec![0u128; STACK / 16];
            let stack = libc::stack_t {
                ss_sp: alternate.as_mut_ptr().cast(),
                ss_flags: 0,
                ss_size: STACK,
            };
            let mut before: libc::stack_t = core::mem::zeroed();
            assert_eq!(libc::sigaltstack(&stack, &mut before), 0);
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = on_signal as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            assert_eq!(
                libc::sigaction(libc::SIGUSR2, &action, core::ptr::null_mut()),
                0
            );
            for _ in 0..100 {
                assert_eq!(libc::raise(libc::SIGUSR2), 0);
            }
            let now = alternate_stack(core::ptr::null()).expect("given");
            assert_eq!((now.ss_sp, now.ss_size), (stack.ss_sp, STACK));
            assert_eq!(libc::sigaltstack(&before, core::ptr::null_mut()), 0);
        }
        assert_eq!(RUNS.load(Ordering::Relaxed), 100);
    }
}
