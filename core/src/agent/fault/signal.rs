//! A fatal signal in the thread that it came to.

use crate::agent::capture::{self, Request};
use crate::agent::{children, process, registered, thread};
use crate::fault::NO_NODE;
use crate::layout::ProcessEntry;
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
        // A walk might not fit where this runs.
        Err(_) => {
            // SAFETY: a `Fault`, as above.
            if tell(unsafe { &*fault.cast::<Fault>() })
                && let Some(process) = own_entry()
            {
                process.fatal_node.store(NO_NODE, Ordering::Release);
            }
        }
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
    /// For the first one's capture; its thread may have been killed meanwhile.
    const PATIENCE_NS: u64 = 50_000_000;

    // SAFETY: the only caller passes one that lives.
    let fault = unsafe { &*fault.cast::<Fault>() };
    let is_first = tell(fault);
    let node = capture::slow(&Request {
        arg: Some((fault.signal as u64, fault.code.into())),
        interrupted: Some(&fault.registers),
        exempt: true,
        ..Request::point(Probe::Fault)
    });
    let Some(process) = own_entry() else {
        return;
    };
    if is_first {
        let node = match node {
            0 => NO_NODE,
            node => node,
        };
        process.fatal_node.store(node, Ordering::Release);
        sys::wake(&process.fatal_node, u32::MAX >> 1);
    } else if process.fatal_node.load(Ordering::Acquire) == 0 {
        // Two at once: the process must not die before the other has its stack.
        sys::wait(&process.fatal_node, 0, Some(PATIENCE_NS));
    }
}

/// Notes a [`Fault`] without its stack. True: it is the process's first.
fn tell(fault: &Fault) -> bool {
    children::check_for_fork();
    let block = tls::block();
    if registered(block).is_none() {
        thread::register();
    }
    let first = own_entry().filter(|process| {
        let word = &process.fatal_signal;
        word.compare_exchange(0, fault.signal as u32, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    });
    let Some(process) = first else {
        return false;
    };
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
    true
}

fn own_entry() -> Option<&'static ProcessEntry> {
    process::mapping().and_then(|mapping| mapping.process(process::index()))
}
