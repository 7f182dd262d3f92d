//! A fatal signal in the thread that it came to.

use crate::agent::capture::Request;
use crate::agent::session;
use crate::agent::tls;
use crate::agent::{context, fork, registered, requests, thread};
use crate::crash_signals::NO_NODE;
use crate::platform::{self, Backing};
use crate::probe::Probe;
use crate::shm::layout::ProcessEntry;
use crate::unwind::Registers;
use core::sync::atomic::Ordering;

/// Bytes of the stack that [`with_room`] maps: a walk and the drawing up of a record take some 10 KiB.
const STACK_BYTES: usize = 64 << 10;

/// Calls `f` on a stack of its own: a handler may stand on an alternate one that has little left. With false:
/// there is no memory for one, and this is the caller's.
pub fn with_room(mut f: impl FnMut(bool)) {
    unsafe extern "C-unwind" fn call<F: FnMut(bool)>(f: *mut core::ffi::c_void) {
        // SAFETY: the only caller passes its own, which lives and which nobody else uses.
        unsafe { (*f.cast::<F>())(true) }
    }

    fn call_on<F: FnMut(bool)>(stack: *mut u8, f: &mut F) {
        // SAFETY: the mapping is nobody else's; `call` takes an `F`.
        unsafe {
            platform::call_on(stack.add(STACK_BYTES), call::<F>, (&raw mut *f).cast());
            platform::unmap(stack, STACK_BYTES);
        }
    }

    match platform::map(STACK_BYTES, Backing::Anonymous, 0) {
        Ok(stack) => call_on(stack, &mut f),
        Err(_) => f(false),
    }
}

/// Where a signal of `crate::crash_signals` interrupted a thread.
///
/// # Safety
/// `info` and `context` are what the kernel passed to a handler with SA_SIGINFO.
pub unsafe fn interrupted(
    info: *const libc::siginfo_t,
    context: *mut core::ffi::c_void,
) -> Registers {
    /// The processor has refused an address, which the kernel does not tell then:
    /// include/uapi/asm-generic/siginfo.h.
    const SI_KERNEL: i32 = 0x80;
    /// That of no program.
    const LEAST_REFUSED: u64 = 1 << 47;

    // SAFETY: by contract; the address belongs to signals that the kernel has made from a fault.
    unsafe {
        let mut registers = context::registers_of(context);
        let is_access =
            matches!((*info).si_signo, libc::SIGSEGV | libc::SIGBUS) && (*info).si_code > 0;
        let is_refused = (*info).si_code == SI_KERNEL;
        let pc = registers.pc;
        registers.is_wild = is_access
            && match is_refused {
                true => pc >= LEAST_REFUSED,
                false => (*info).si_addr().addr() as u64 == pc,
            };
        registers
    }
}

/// A signal that will end the process has come to this thread (or will at once), which is noted and captured.
/// The first one counts.
///
/// `code`: that of its `siginfo_t`. `has_room`: a walk fits on the stack where this runs.
pub fn on_crash(signal: i32, code: i32, registers: &Registers, has_room: bool) {
    if !session::is_active() {
        return;
    }
    let crash = Crash {
        signal,
        code,
        registers,
    };
    if has_room {
        note(&crash);
    } else if tell(&crash)
        && let Some(process) = own_entry()
    {
        process.fatal_node.store(NO_NODE, Ordering::Release);
    }
}

/// The signal that this thread noted has not ended the process after all: something outside took it away.
pub fn lives_on() {
    if let Some(process) = own_entry()
        && process.fatal_tid.load(Ordering::Acquire) == platform::thread_id()
    {
        for word in [&process.fatal_tid, &process.fatal_node] {
            word.store(0, Ordering::Relaxed);
        }
        process.fatal_signal.store(0, Ordering::Release);
    }
}

/// A signal that has come.
struct Crash<'a> {
    signal: i32,
    code: i32,
    registers: &'a Registers,
}

/// Notes a [`Crash`] and captures where it came.
fn note(crash: &Crash) {
    /// For the first one's capture; its thread may have been killed meanwhile.
    const TIMEOUT_NS: u64 = 50_000_000;

    let mut is_first = tell(crash);
    let node = requests::slow(&Request {
        arg: Some((crash.signal as u64, crash.code.into())),
        interrupted: Some(crash.registers),
        exempt: true,
        ..Request::point(Probe::Crash)
    });
    let Some(process) = own_entry() else {
        return;
    };
    if !is_first {
        if process.fatal_node.load(Ordering::Acquire) == 0 {
            // Two at once: the process must not die before the other has its stack.
            platform::wait(&process.fatal_node, 0, Some(TIMEOUT_NS));
        }
        // The other one may live on.
        is_first = tell(crash);
    }
    if is_first {
        let node = match node {
            0 => NO_NODE,
            node => node,
        };
        process.fatal_node.store(node, Ordering::Release);
        platform::wake(&process.fatal_node, u32::MAX >> 1);
    }
}

/// Notes a [`Crash`] without its stack. True: it is the process's first.
fn tell(crash: &Crash) -> bool {
    fork::check_for_fork();
    let block = tls::block();
    if registered(block).is_none() {
        thread::register();
    }
    let first = own_entry().filter(|process| {
        let word = &process.fatal_signal;
        word.compare_exchange(0, crash.signal as u32, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    });
    let Some(process) = first else {
        return false;
    };
    let utid = registered(block).map_or(0, |(entry, _)| entry.utid.load(Ordering::Relaxed));
    process.fatal_utid.store(utid, Ordering::Relaxed);
    process
        .fatal_cycles
        .store(session::now(), Ordering::Relaxed);
    let name = platform::thread_name().unwrap_or_default();
    for (word, part) in process.fatal_name.iter().zip(name.chunks_exact(8)) {
        let part = part.try_into().unwrap_or_default();
        word.store(u64::from_ne_bytes(part), Ordering::Relaxed);
    }
    process
        .fatal_tid
        .store(platform::thread_id(), Ordering::Release);
    true
}

fn own_entry() -> Option<&'static ProcessEntry> {
    session::mapping().and_then(|mapping| mapping.process(session::index()))
}
