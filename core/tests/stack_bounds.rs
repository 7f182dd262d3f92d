//! Where the stack of a test's thread lies.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

use stackbeat_core::unwind::StackBounds;

/// The bounds of the current thread's stack.
pub(crate) fn bounds() -> StackBounds {
    // SAFETY: plain queries about the calling thread, whose stack it is.
    unsafe {
        let mut attributes = core::mem::zeroed();
        let this = libc::pthread_self();
        assert_eq!(libc::pthread_getattr_np(this, &mut attributes), 0);
        let (mut low, mut size) = (core::ptr::null_mut(), 0);
        libc::pthread_attr_getstack(&attributes, &mut low, &mut size);
        libc::pthread_attr_destroy(&mut attributes);
        StackBounds::of_stack(low as u64, low as u64 + size as u64)
    }
}
