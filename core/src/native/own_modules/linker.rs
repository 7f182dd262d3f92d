//! The dynamic linker's own answer to the question which object lies at an address: glibc's
//! `_dl_find_object`.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use super::read_safely;
use crate::address::{Bias, Svma};
use crate::managed::memory::{Copied, Memory};
use crate::unwind::elf;

/// Address of `_dl_find_object`, 0: not there.
static FIND_OBJECT: AtomicUsize = AtomicUsize::new(0);

/// glibc's `struct dl_find_object` (dlfcn.h, 2.35) on processors without `DLFO_STRUCT_HAS_EH_DBASE`.
#[repr(C)]
pub(super) struct FoundObject {
    flags: u64,
    pub map_start: *mut c_void,
    map_end: *mut c_void,
    pub link_map: *mut LinkMap,
    eh_frame: *mut c_void,
    reserved: [u64; 7],
}

/// The public head of glibc's `struct link_map` (link.h).
#[repr(C)]
pub(super) struct LinkMap {
    pub address: u64,
    pub name: *const libc::c_char,
}

/// Says before [`super::init`] where `_dl_find_object` is, so that nobody need look for it.
///
/// # Safety
/// It is there.
pub(crate) unsafe fn set_find_object(address: usize) {
    FIND_OBJECT.store(address, Ordering::Release);
}

/// Looks for it in all objects, unless it is known. False: it is not there. Takes the dynamic linker's lock.
pub(super) fn look_for_find_object() -> bool {
    if !can_find_object() {
        // SAFETY: the callback has the right type and does not unwind.
        unsafe { libc::dl_iterate_phdr(Some(look_into), core::ptr::null_mut()) };
    }
    can_find_object()
}

/// Whether [`find_object`] can find anything.
pub(super) fn can_find_object() -> bool {
    FIND_OBJECT.load(Ordering::Relaxed) != 0
}

/// Asks the dynamic linker which object lies at an address.
pub(super) fn find_object(address: u64) -> Option<FoundObject> {
    let function = FIND_OBJECT.load(Ordering::Relaxed);
    if function == 0 {
        return None;
    }
    // SAFETY: the address is that of glibc's `_dl_find_object`, whose type this is (dlfcn.h).
    let function: extern "C" fn(*mut c_void, *mut FoundObject) -> c_int =
        unsafe { core::mem::transmute(function) };
    let mut found = FoundObject {
        flags: 0,
        map_start: core::ptr::null_mut(),
        map_end: core::ptr::null_mut(),
        link_map: core::ptr::null_mut(),
        eh_frame: core::ptr::null_mut(),
        reserved: [0; 7],
    };
    (function(address as *mut c_void, &mut found) == 0).then_some(found)
}

unsafe extern "C" fn look_into(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    _data: *mut c_void,
) -> c_int {
    // SAFETY: the dynamic linker passes a valid description.
    let info = unsafe { &*info };
    let headers = info.dlpi_phdr as u64;
    let Some(image) = elf::image(&mut read_safely, headers, info.dlpi_phnum as usize) else {
        return 0;
    };
    if image.dynamic == Svma(0) {
        return 0;
    }
    // It reads word after word, which a system call for each would make a millisecond.
    let mut copied = Copied::<4>::new();
    let mut read = |address: u64, buffer: &mut [u8]| {
        copied.bytes(address, buffer) || read_safely(address, buffer)
    };
    match elf::symbol(
        &mut read,
        image.dynamic,
        Bias(info.dlpi_addr),
        b"_dl_find_object",
    ) {
        Some(address) => {
            FIND_OBJECT.store(address as usize, Ordering::Release);
            1
        }
        None => 0,
    }
}
