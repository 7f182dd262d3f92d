//! The process's memory: read without faults, slots exchanged, pages made writable and read-only again.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::macho::Memory;
use stackbeat_core::platform;

/// This process. Reads go through the kernel, which says if something is not mapped.
#[derive(Clone, Copy, Debug)]
pub struct Process;

impl Memory for Process {
    fn read(&self, address: u64, out: &mut [u8]) -> bool {
        #[cfg(target_vendor = "apple")]
        return (platform::read_memory(platform::process_id(), address, out))
            .is_ok_and(|bytes| bytes == out.len());
        // Tests under user-mode emulation have no other way.
        #[cfg(not(target_vendor = "apple"))]
        return std::fs::File::open("/proc/self/mem")
            .is_ok_and(|memory| crate::macho::Source::read(&memory, address, out));
    }
}

/// Why a slot was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// It holds something else.
    Other,
    /// Its page cannot be made writable.
    Protected,
}

/// The word at an address.
pub(super) fn word(address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    Process
        .read(address, &mut bytes)
        .then(|| u64::from_ne_bytes(bytes))
}

/// Puts a value into a slot that holds `old`. `is_read_only`: the loader has made its page so.
///
/// # Safety
/// The slot is a word of a loaded image, aligned, and may be changed so. Nobody else makes its page read-only
/// meanwhile.
pub(super) unsafe fn exchange(
    address: u64,
    old: u64,
    new: u64,
    is_read_only: bool,
) -> Result<(), Failed> {
    let page_bytes = platform::page_bytes() as u64;
    let page = address & !(page_bytes - 1);
    // What the load commands say is not the last word: others change protections as well.
    let before = pages::protection(page).ok_or(Failed::Protected)?;
    let is_closed = is_read_only || !before.is_writable;
    // SAFETY: a page of an image's data gets more rights.
    if is_closed && !unsafe { pages::open(page, page_bytes) } {
        return Err(Failed::Protected);
    }
    let slot = core::ptr::with_exposed_provenance_mut::<AtomicU64>(address as usize);
    // SAFETY: a mapped, writable, aligned word, which is only read and written as a whole.
    let slot = unsafe { &*slot };
    let exchanged = slot.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire);
    if is_closed {
        // SAFETY: the page gets back the rights that it had.
        unsafe { pages::close(page, page_bytes) };
    }
    exchanged.map(drop).map_err(|_| Failed::Other)
}

#[cfg(target_vendor = "apple")]
mod pages {
    //! Mach's calls by mach/vm_map.h, which iOS has; mach/mach_vm.h is for macOS only. `mprotect` refuses
    //! pages whose maximal protection has no write; a private copy of them may be written.

    use core::ffi::c_int;

    pub(super) struct Protection {
        pub(super) is_writable: bool,
    }

    /// mach/vm_prot.h.
    const READ: c_int = 1;
    const WRITE: c_int = 2;
    /// `VM_PROT_COPY`: the pages are copied when they are written to.
    const COPY: c_int = 0x10;
    /// mach/vm_region.h, `VM_REGION_BASIC_INFO_64`.
    const BASIC_INFO_64: c_int = 9;

    /// mach/vm_region.h, `struct vm_region_basic_info_64`; the header packs to 4 bytes.
    #[repr(C, packed(4))]
    struct BasicInfo {
        protection: c_int,
        max_protection: c_int,
        inheritance: u32,
        shared: u32,
        reserved: u32,
        offset: u64,
        behavior: c_int,
        user_wired_count: u16,
    }
    const BASIC_INFO_COUNT_64: u32 = 9;
    const _: () = assert!(size_of::<BasicInfo>() == BASIC_INFO_COUNT_64 as usize * 4);

    unsafe extern "C" {
        /// mach/mach_init.h.
        static mach_task_self_: u32;
        fn vm_protect(task: u32, address: usize, size: usize, maximum: c_int, new: c_int) -> c_int;
        fn vm_region_64(
            task: u32,
            address: *mut usize,
            size: *mut usize,
            flavor: c_int,
            info: *mut BasicInfo,
            count: *mut u32,
            object: *mut u32,
        ) -> c_int;
    }

    pub(super) fn protection(page: u64) -> Option<Protection> {
        let (mut address, mut size, mut count, mut object) =
            (page as usize, 0, BASIC_INFO_COUNT_64, 0);
        let mut info = core::mem::MaybeUninit::<BasicInfo>::zeroed();
        // SAFETY: room for what is written, and as much as is said.
        let info = unsafe {
            let result = vm_region_64(
                mach_task_self_,
                &raw mut address,
                &raw mut size,
                BASIC_INFO_64,
                info.as_mut_ptr(),
                &raw mut count,
                &raw mut object,
            );
            // The next region, if there is none at the address.
            (result == 0 && address as u64 <= page).then(|| info.assume_init())?
        };
        Some(Protection {
            is_writable: info.protection & WRITE != 0,
        })
    }

    /// # Safety
    /// The pages are data of an image.
    pub(super) unsafe fn open(page: u64, bytes: u64) -> bool {
        // SAFETY: by contract.
        unsafe {
            let (page, bytes) = (page as usize, bytes as usize);
            vm_protect(mach_task_self_, page, bytes, 0, READ | WRITE | COPY) == 0
        }
    }

    /// # Safety
    /// The pages are data of an image, and nobody needs to write to them.
    pub(super) unsafe fn close(page: u64, bytes: u64) {
        // SAFETY: by contract.
        unsafe { vm_protect(mach_task_self_, page as usize, bytes as usize, 0, READ) };
    }
}

#[cfg(not(target_vendor = "apple"))]
mod pages {
    //! Elsewhere, for tests: images that a test has mapped.

    pub(super) struct Protection {
        pub(super) is_writable: bool,
    }

    pub(super) fn protection(page: u64) -> Option<Protection> {
        let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
        maps.lines().find_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let (begin, end) = range.split_once('-')?;
            let [begin, end] = [begin, end].map(|n| u64::from_str_radix(n, 16).ok());
            (begin? <= page && page < end?).then(|| Protection {
                is_writable: rest.starts_with("rw"),
            })
        })
    }

    /// # Safety
    /// The pages are data of an image.
    pub(super) unsafe fn open(page: u64, bytes: u64) -> bool {
        // SAFETY: by contract.
        unsafe { protect(page, bytes, libc::PROT_READ | libc::PROT_WRITE) }
    }

    /// # Safety
    /// The pages are data of an image, and nobody needs to write to them.
    pub(super) unsafe fn close(page: u64, bytes: u64) {
        // SAFETY: by contract.
        unsafe { protect(page, bytes, libc::PROT_READ) };
    }

    unsafe fn protect(page: u64, bytes: u64, protection: i32) -> bool {
        let page = core::ptr::with_exposed_provenance_mut(page as usize);
        // SAFETY: by contract.
        unsafe { libc::mprotect(page, bytes as usize, protection) == 0 }
    }
}
