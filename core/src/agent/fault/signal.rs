//! A fatal signal in the thread that it came to.

use crate::agent::capture::{self, Request};
use crate::agent::{children, process, registered, thread};
use crate::probe::Probe;
use crate::sys::{self, Backing, tls};
use crate::unwind::Registers;
use core::sync::atomic::Ordering;

/// A signal that will end the process has come to this thread, which is noted and captured. The first one counts.
///
/// # Safety
/// `info` and `context` are what the kernel passed to a handler with SA_SIGINFO.
pub unsafe fn on_fault(signal: i32, info: *const libc::siginfo_t, context: *mut core::ffi::c_void) {
    /// A handler may have found an alternate stack with no room for a capture.
    const STACK_BYTES: usize = 64 << 10;

    if !process::is_active() {
        return;
    }
    // SAFETY: by contract.
    let mut fault = unsafe {
        Fault {
            signal,
            code: (*info).si_code,
            registers: capture::registers_of(context),
        }
    };
    let fault = (&raw mut fault).cast();
    match sys::map(STACK_BYTES, Backing::Anonymous, 0) {
        // SAFETY: the mapping is nobody else's; `note` takes a `Fault`, which outlives the call.
        Ok(stack) => unsafe {
            sys::call_on(stack.add(STACK_BYTES), note, fault);
            sys::unmap(stack, STACK_BYTES);
        },
        Err(_) => note(fault),
    }
}

/// A signal that has come.
struct Fault {
    signal: i32,
    code: i32,
    registers: Registers,
}

/// Notes a [`Fault`] and captures where it came.
extern "C" fn note(fault: *mut core::ffi::c_void) {
    // SAFETY: the only callers pass one that lives.
    let fault = unsafe { &*fault.cast::<Fault>() };
    children::check_for_fork();
    let block = tls::block();
    if registered(block).is_none() {
        thread::register();
    }
    let process = process::mapping().and_then(|mapping| mapping.process(process::index()));
    let first = process.filter(|process| {
        let word = &process.fatal_signal;
        word.compare_exchange(0, fault.signal as u32, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    });
    if let Some(process) = first {
        let uid = registered(block).map_or(0, |(entry, _)| entry.uid.load(Ordering::Relaxed));
        process.fatal_thread_uid.store(uid, Ordering::Relaxed);
        process
            .fatal_cycles
            .store(process::now(), Ordering::Relaxed);
        let name = sys::thread_name();
        for (word, part) in process.fatal_name.iter().zip(name.chunks_exact(8)) {
            let part = part.try_into().unwrap_or_default();
            word.store(u64::from_ne_bytes(part), Ordering::Relaxed);
        }
        process.fatal_tid.store(sys::thread_id(), Ordering::Release);
    }
    let node = capture::slow(&Request {
        arg: Some((fault.signal as u64, fault.code.into())),
        interrupted: Some(&fault.registers),
        exempt: true,
        ..Request::point(Probe::Fault)
    });
    if let Some(process) = first {
        process.fatal_node.store(node, Ordering::Release);
    }
}
