//! Blocks: closures of C, as libdispatch gets them.
//!
//! Source: the "Block Implementation Specification" of clang, and libclosure's Block_private.h: what a block
//! is called through lies at its byte 16. Blocks of `dispatch_block_create` carry more than code (a quality
//! of service, that they were cancelled), which libdispatch looks up by the function that they are called
//! through (its src/queue.c, `_dispatch_block_has_private_data`). Those are left as they are.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use super::symbols::{BLOCK_CLASS, BLOCK_COPY, BLOCK_CREATE, BLOCK_RELEASE};

/// The begin of a block.
#[repr(C)]
struct Literal {
    class: *const c_void,
    flags: c_int,
    reserved: c_int,
    invoke: unsafe extern "C-unwind" fn(*mut c_void),
    descriptor: *const [usize; 2],
}
const _: () = assert!(core::mem::offset_of!(Literal, invoke) == 16);

/// Block_private.h: `BLOCK_IS_GLOBAL`, nothing is copied.
const IS_GLOBAL: c_int = 1 << 28;

/// What blocks of `dispatch_block_create` are called through; 0: not known, and no block is touched then.
static SPECIAL: AtomicUsize = AtomicUsize::new(0);

type Copy = unsafe extern "C" fn(*const c_void) -> *mut c_void;
type Release = unsafe extern "C" fn(*const c_void);

/// Finds out what such blocks are called through, by making one.
pub(super) fn prepare() {
    type Create = unsafe extern "C" fn(usize, *const c_void) -> *mut c_void;
    static DESCRIPTOR: [usize; 2] = [0, size_of::<Literal>()];
    unsafe extern "C-unwind" fn nothing(_: *mut c_void) {}
    SPECIAL.store(0, Ordering::Release);
    // SAFETY: a block as the specification has it; the types are those of dispatch/block.h and Block.h.
    unsafe {
        let (Some(class), Some(create), Some(release), Some(_)) = (
            BLOCK_CLASS.get::<*const c_void>(),
            BLOCK_CREATE.get::<Create>(),
            BLOCK_RELEASE.get::<Release>(),
            BLOCK_COPY.get::<Copy>(),
        ) else {
            return;
        };
        let block = Literal {
            class,
            flags: IS_GLOBAL,
            reserved: 0,
            invoke: nothing,
            descriptor: &raw const DESCRIPTOR,
        };
        let special = create(0, (&raw const block).cast());
        if !special.is_null() {
            SPECIAL.store(
                (*special.cast::<Literal>()).invoke as usize,
                Ordering::Release,
            );
            release(special);
        }
    }
}

/// Whether a block is code and what it has captured, and nothing else. On arm64e no block is: what it is
/// called through is signed.
///
/// # Safety
/// A block, or null.
pub(super) unsafe fn is_plain(block: *const c_void) -> bool {
    let special = SPECIAL.load(Ordering::Acquire);
    let is_signed = cfg!(all(target_arch = "aarch64", target_feature = "paca"));
    // SAFETY: by contract.
    !block.is_null()
        && special != 0
        && !is_signed
        && unsafe { (*block.cast::<Literal>()).invoke as usize != special }
}

/// A block that lives until it is released. Only after [`is_plain`].
///
/// # Safety
/// A block.
pub(super) unsafe fn copy(block: *const c_void) -> *mut c_void {
    // SAFETY: Block.h has this type.
    unsafe {
        BLOCK_COPY
            .get::<Copy>()
            .map_or(core::ptr::null_mut(), |copy| copy(block))
    }
}

/// # Safety
/// What [`copy`] gave, once.
pub(super) unsafe fn release(block: *const c_void) {
    // SAFETY: Block.h has this type.
    if let Some(release) = unsafe { BLOCK_RELEASE.get::<Release>() } {
        // SAFETY: by contract.
        unsafe { release(block) };
    }
}

/// Calls it.
///
/// # Safety
/// A block without arguments and result.
pub(super) unsafe fn run(block: *mut c_void) {
    // SAFETY: by contract.
    unsafe { ((*block.cast::<Literal>()).invoke)(block) }
}
