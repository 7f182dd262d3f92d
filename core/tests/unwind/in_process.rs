//! Walks of the current thread next to libgcc's `_Unwind_Backtrace`, which reads the same tables by
//! other code.

use core::ffi::{c_int, c_void};
use stackbeat_core::native::own_walk::NativeWalker;
use stackbeat_core::unwind::{Registers, StackBounds, WalkEnd};

pub(super) use crate::stack_bounds::bounds;

#[allow(improper_ctypes)]
unsafe extern "C" {
    fn _Unwind_Backtrace(
        callback: extern "C" fn(*mut c_void, *mut Vec<u64>) -> c_int,
        data: *mut Vec<u64>,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> u64;
}

extern "C" fn note(context: *mut c_void, addresses: *mut Vec<u64>) -> c_int {
    // SAFETY: libgcc passes the context and what `_Unwind_Backtrace` was given.
    unsafe {
        let address = _Unwind_GetIP(context);
        if address != 0 {
            (*addresses).push(address);
        }
    }
    0
}

/// What a walk and libgcc say of the same place. The first address, which is in the walking function
/// itself, is left out.
#[derive(Debug)]
pub(super) struct Comparison {
    pub ours: Vec<u64>,
    pub libgcc: Vec<u64>,
    pub end: WalkEnd,
    pub kept: usize,
    pub guessed: bool,
}

/// Walks from here both ways.
#[inline(never)]
pub(super) fn compare(walker: &mut NativeWalker, bounds: &StackBounds) -> Comparison {
    let mut libgcc = Vec::with_capacity(1024);
    let registers = Registers::here();
    let end = walker.walk_stack(&registers, bounds, true, 512);
    // SAFETY: the callback takes what is passed.
    unsafe { _Unwind_Backtrace(note, &mut libgcc) };
    let stack = walker.stack();
    let ours = stack.frames().iter().rev().map(|frame| frame.pc);
    Comparison {
        ours: ours.skip(1).collect(),
        libgcc: libgcc[1..].to_vec(),
        end,
        kept: stack.kept(),
        guessed: stack.is_guessed(),
    }
}
