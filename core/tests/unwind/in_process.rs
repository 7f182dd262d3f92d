//! Walks of the current thread next to libgcc's `_Unwind_Backtrace`, which reads the same tables by
//! other code.

use core::ffi::{c_int, c_void};
use stackbeat_core::native::own_walk::NativeWalker;
use stackbeat_core::unwind::{Registers, StackBounds, WalkEnd};

pub(super) use crate::stack_bounds::bounds;

/// Code of no module, interrupted at each of its instructions: the caller of a function without a frame is on
/// the stack, and the frame pointer leads to the caller's caller.
#[cfg(target_arch = "x86_64")]
#[test]
fn an_interrupted_function_without_tables_has_its_caller_at_each_instruction() {
    let _only = super::LIBRARIES.lock();
    stackbeat_core::native::own_modules::init();
    // push rbp; mov rbp, rsp; nop; pop rbp; ret
    let mut code = [0x90u8; 64];
    code[16..23].copy_from_slice(&[0x55, 0x48, 0x89, 0xe5, 0x90, 0x5d, 0xc3]);
    // The call that the function returns to.
    code[43..48].copy_from_slice(&[0xe8, 0, 0, 0, 0]);
    let function = code.as_ptr().addr() as u64 + 16;
    let caller = code.as_ptr().addr() as u64 + 48;
    let module = compare as *const () as u64 + 4;
    let mut stack = vec![0u64; 128];
    let low = stack.as_ptr().addr() as u64;
    let at = |word: u64| low + 8 * word;
    // The caller's frame, and the call.
    (stack[40], stack[41]) = (at(60), module);
    (stack[30], stack[29]) = (caller, at(40));
    // SAFETY: the vector outlives the bounds.
    let bounds = unsafe { StackBounds::of_stack(low, at(128)) };
    let mut walker = NativeWalker::boxed();
    for (offset, sp, fp) in [
        (0, at(30), at(40)),
        (1, at(29), at(40)),
        (4, at(29), at(29)),
        (5, at(29), at(29)),
        (6, at(30), at(40)),
    ] {
        let pc = function + offset;
        let registers = Registers {
            pc,
            sp,
            fp,
            ..Registers::default()
        };
        walker.walk_stack(&registers, &bounds, true, 64);
        let frames = walker.stack().frames().iter().rev().map(|frame| frame.pc);
        let found: Vec<u64> = frames.take(3).collect();
        assert_eq!(found, [pc, caller, module], "at {offset}");
    }
    // What the code says is believed only if a call stands there, and a record only if rbp was pushed: the
    // frame pointer is taken then.
    let mut walk = |pc, word: u64, stack: &mut [u64]| {
        stack[30] = word;
        let registers = Registers {
            pc,
            sp: at(30),
            fp: at(40),
            ..Registers::default()
        };
        walker.walk_stack(&registers, &bounds, true, 64);
        let frames = walker.stack().frames().iter().rev().map(|frame| frame.pc);
        frames.take(2).collect::<Vec<u64>>()
    };
    for word in [0, 1, caller - 1, at(50)] {
        assert_eq!(walk(function + 6, word, &mut stack), [function + 6, module]);
    }
    stack[31] = caller;
    for word in [0, at(36), caller] {
        assert_eq!(walk(function + 1, word, &mut stack), [function + 1, module]);
    }
}

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
