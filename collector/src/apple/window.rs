//! What is asked of Mach about one thread, and all that runs while that thread is suspended.
//!
//! The suspended thread may hold any lock of the process. So nothing here allocates, locks, logs or panics,
//! and nothing of `std` is used: a test reads this file. Each function is a message to the kernel, whose
//! reply comes to a port that the calling thread has from its first message on.

use core::ffi::c_int;

use stackbeat_core::unwind::Registers;

use super::mach::registers::{FLAVOR, ThreadState};
use super::mach::{
    EXTENDED_INFO, ExtendedInfo, INVALID_ARGUMENT, INVALID_DESTINATION, Port, Return, SUCCESS,
    TERMINATED, mach_task_self_, thread_get_state, thread_info, thread_resume, thread_suspend,
    vm_read_overwrite, words_of,
};

/// Why a thread was not suspended, or could not be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It has ended, or is about to.
    Gone,
    /// Any other reason.
    NotNow,
}

fn refused(result: Return) -> Refused {
    match result {
        INVALID_ARGUMENT | TERMINATED | INVALID_DESTINATION => Refused::Gone,
        _ => Refused::NotNow,
    }
}

/// Asks what the kernel knows of a thread.
pub(super) fn info(thread: Port) -> Result<ExtendedInfo, Refused> {
    let mut info = ExtendedInfo::ZERO;
    let mut count = words_of::<ExtendedInfo>();
    // SAFETY: the kernel writes at most `count` words there.
    let result = unsafe {
        let to = (&raw mut info).cast::<c_int>();
        thread_info(thread, EXTENDED_INFO, to, &raw mut count)
    };
    match result {
        SUCCESS => Ok(info),
        result => Err(refused(result)),
    }
}

/// Suspends a thread and reads its registers. Only after `Ok` it has to be resumed.
pub(super) fn suspend(thread: Port) -> Result<Registers, Refused> {
    // SAFETY: the caller is another thread of this process, and resumes it.
    match unsafe { thread_suspend(thread) } {
        SUCCESS => {}
        result => return Err(refused(result)),
    }
    let mut state = ThreadState::default();
    let mut count = words_of::<ThreadState>();
    // SAFETY: the kernel writes at most `count` words there. It waits until the thread has left its
    // processor.
    let result = unsafe {
        let to = (&raw mut state).cast::<c_int>();
        thread_get_state(thread, FLAVOR, to, &raw mut count)
    };
    match result {
        SUCCESS => Ok(registers_of(&state)),
        result => {
            resume(thread);
            Err(refused(result))
        }
    }
}

#[cfg(target_arch = "aarch64")]
fn registers_of(state: &ThreadState) -> Registers {
    // On arm64e these are signed. The walk strips what it reads; here the same is done for what the registers
    // hold.
    let mask = stackbeat_core::unwind::CodeMask::native();
    Registers {
        pc: mask.strip(state.pc),
        sp: mask.strip(state.sp),
        fp: mask.strip(state.fp),
        lr: state.lr,
        ..Registers::default()
    }
}

#[cfg(target_arch = "x86_64")]
fn registers_of(state: &ThreadState) -> Registers {
    Registers {
        pc: state.rip,
        sp: state.rsp,
        fp: state.rbp,
        ..Registers::default()
    }
}

/// Lets a suspended thread go on.
pub(super) fn resume(thread: Port) {
    // SAFETY: it was suspended by us.
    unsafe { thread_resume(thread) };
}

/// Reads words of a stopped thread's stack, without the kernel: it would copy more than 16 KiB by sharing the
/// pages, and the thread would then fault at its next write to each (xnu, osfmk/vm/vm_map.c,
/// `vm_map_copyin_internal`).
///
/// # Safety
/// The thread was suspended and its registers were read, and it has not begun to end. The words lie between
/// its stack pointer and its stack's end.
pub(super) unsafe fn read_stopped(from: u64, into: &mut [u64]) -> usize {
    let from = core::ptr::with_exposed_provenance::<u64>(from as usize);
    // SAFETY: by contract they are mapped, and nobody writes to them. `into` is not on that thread's stack.
    unsafe { into.as_mut_ptr().copy_from_nonoverlapping(from, into.len()) };
    into.len()
}

/// Reads words of this process' memory. Gives how many could be read, from the first one on.
pub(super) fn read(from: u64, into: &mut [u64]) -> usize {
    /// A part of any page size.
    const PAGE: u64 = 4096;
    if copy(from, into) {
        return into.len();
    }
    // Not all of it is mapped, and the kernel copies all or nothing.
    let mut done = 0;
    loop {
        let at = from.wrapping_add(8 * done as u64);
        let words = (((PAGE - at % PAGE) / 8) as usize).min(into.len() - done);
        let Some(part) = into.get_mut(done..done + words) else {
            break;
        };
        if part.is_empty() || !copy(at, part) {
            break;
        }
        done += words;
    }
    done
}

/// Copies words, all or none.
fn copy(from: u64, into: &mut [u64]) -> bool {
    let bytes = size_of_val(into);
    let mut copied = 0;
    // SAFETY: the kernel writes into the words only, and checks what it reads.
    let result = unsafe {
        vm_read_overwrite(
            mach_task_self_,
            from as usize,
            bytes,
            into.as_mut_ptr().expose_provenance(),
            &raw mut copied,
        )
    };
    result == SUCCESS && copied == bytes
}
