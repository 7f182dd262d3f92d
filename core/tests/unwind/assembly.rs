//! Frames that only hand-written assembly has: a CFA that hangs on another register, code without
//! tables that keeps a frame pointer, and such that keeps none.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};

use stackbeat_core::native::own_modules;
use stackbeat_core::native::own_walk::NativeWalker;
use stackbeat_core::unwind::WalkEnd;

use super::in_process::{Comparison, bounds, compare};

core::arch::global_asm!(
    // Like glibc's `_dl_runtime_resolve_xsavec`: the stack is realigned, rbx knows the frame.
    "frame_in_rbx:",
    ".cfi_startproc",
    "push rbx",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbx, -16",
    "mov rbx, rsp",
    ".cfi_def_cfa_register rbx",
    "and rsp, -64",
    "sub rsp, 192",
    "call rdi",
    "mov rsp, rbx",
    ".cfi_def_cfa_register rsp",
    "pop rbx",
    ".cfi_def_cfa_offset 8",
    "ret",
    ".cfi_endproc",
    "int3",
    // No tables, but a frame pointer.
    "keeps_frame_pointer:",
    "push rbp",
    "mov rbp, rsp",
    "sub rsp, 64",
    "call rdi",
    "leave",
    "ret",
    "int3",
    // Neither.
    "keeps_nothing:",
    "push rbp",
    "sub rsp, 64",
    "mov ebp, 1",
    "call rdi",
    "add rsp, 64",
    "pop rbp",
    "ret",
    "int3",
);

unsafe extern "C" {
    fn frame_in_rbx(callback: extern "C" fn());
    fn keeps_frame_pointer(callback: extern "C" fn());
    fn keeps_nothing(callback: extern "C" fn());
}

/// Frames in rbx that are still to come.
static LEFT: AtomicUsize = AtomicUsize::new(0);

extern "C" fn look_below_many() {
    match LEFT.load(Ordering::Relaxed) {
        0 => look(),
        left => {
            LEFT.store(left - 1, Ordering::Relaxed);
            // SAFETY: it keeps to the calling convention.
            unsafe { frame_in_rbx(look_below_many) };
            core::hint::black_box(left);
        }
    }
}

thread_local! {
    static FOUND: RefCell<Vec<Comparison>> = const { RefCell::new(Vec::new()) };
    static WALKER: RefCell<Box<NativeWalker>> = RefCell::new(NativeWalker::boxed());
}

extern "C" fn look() {
    let found = WALKER.with_borrow_mut(|walker| compare(walker, &bounds()));
    FOUND.with_borrow_mut(|all| all.push(found));
}

/// A frame between, so that rbx is saved and restored on the way.
extern "C" fn look_deeper() {
    let words = [1u64; 9];
    core::hint::black_box(&words);
    look();
    core::hint::black_box(&words);
}

/// Twice, so that the second walk may reuse the first.
fn found(function: unsafe extern "C" fn(extern "C" fn())) -> Vec<Comparison> {
    own_modules::init();
    for callback in [look, look, look_deeper, look_deeper] {
        // SAFETY: the functions above keep to the calling convention.
        unsafe { function(callback) };
    }
    FOUND.take()
}

#[test]
fn a_frame_that_needs_another_register() {
    for c in found(frame_in_rbx) {
        assert_eq!((&c.ours, c.end), (&c.libgcc, WalkEnd::Root));
        assert!(!c.guessed);
    }
}

/// As in ART's interpreter, where every frame is such.
#[test]
fn many_frames_that_need_another_register() {
    own_modules::init();
    LEFT.store(100, Ordering::Relaxed);
    look_below_many();
    for c in FOUND.take() {
        assert!(c.ours.len() > 200, "{c:x?}");
        assert_eq!((&c.ours, c.end), (&c.libgcc, WalkEnd::Root));
    }
}

#[test]
fn code_without_tables_that_keeps_a_frame_pointer() {
    for c in found(keeps_frame_pointer) {
        // libgcc stops there.
        assert_eq!(c.ours[..c.libgcc.len()], c.libgcc);
        assert!(c.ours.len() > c.libgcc.len() + 5, "{c:x?}");
        assert_eq!(c.end, WalkEnd::Root);
        assert!(c.guessed);
    }
}

#[test]
fn code_without_tables_or_frame_pointer() {
    for c in found(keeps_nothing) {
        assert_eq!((&c.ours, c.end), (&c.libgcc, WalkEnd::Unknown));
        assert!(!c.guessed);
    }
}
