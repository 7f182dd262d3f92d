//! Walks of this process compared with libgcc's unwinder, which reads the same tables by other code.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

use core::ffi::{c_int, c_void};
use stackbeat_core::modules;
use stackbeat_core::unwind::native::NativeWalker;
use stackbeat_core::unwind::{Registers, StackBounds, WalkEnd};

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
        let ip = _Unwind_GetIP(context);
        if ip != 0 {
            (*addresses).push(ip);
        }
    }
    0
}

fn bounds() -> StackBounds {
    // SAFETY: plain queries about the calling thread.
    unsafe {
        let mut attributes = core::mem::zeroed();
        assert_eq!(
            libc::pthread_getattr_np(libc::pthread_self(), &mut attributes),
            0
        );
        let (mut low, mut size) = (core::ptr::null_mut(), 0);
        libc::pthread_attr_getstack(&attributes, &mut low, &mut size);
        libc::pthread_attr_destroy(&mut attributes);
        StackBounds::of_stack(low as u64, low as u64 + size as u64)
    }
}

#[inline(never)]
fn both(walker: &mut NativeWalker) -> (Vec<u64>, Vec<u64>, WalkEnd) {
    let mut truth = Vec::with_capacity(512);
    let registers = Registers::here();
    let end = walker.walk_stack(&registers, &bounds(), true, 512);
    // SAFETY: the callback fits.
    unsafe { _Unwind_Backtrace(note, &mut truth) };
    let ours = walker.stack().frames().iter().rev().map(|f| f.pc).collect();
    (ours, truth, end)
}

#[test]
fn equals_libgcc() {
    modules::init();
    let mut walker = NativeWalker::boxed();
    for _ in 0..3 {
        let (ours, truth, end) = both(&mut walker);
        println!(
            "{ours:x?}\n{truth:x?}\n{end:?} kept {}",
            walker.stack().kept()
        );
        assert_eq!(end, WalkEnd::Root);
        let n = ours.len();
        assert!(n > 5);
        assert_eq!(ours[1..], truth[truth.len() - n + 1..]);
    }
    modules::report_changes(|m, gone| {
        println!(
            "{:x}..{:x} {} {:x?} {gone:?}",
            m.start,
            m.end,
            String::from_utf8_lossy(m.path()),
            m.build_id()
        )
    });
}
