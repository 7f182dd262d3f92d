//! Memory that may be gone, and where things lie in this process.

use crate::platform::Errno;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};

/// mach/vm_types.h: all of them are words.
type VmAddress = usize;

unsafe extern "C" {
    /// mach/mach_init.h: what `mach_task_self()` reads.
    static mach_task_self_: u32;
    /// mach/vm_map.h.
    fn vm_read_overwrite(
        task: u32,
        address: VmAddress,
        size: usize,
        data: VmAddress,
        out_size: *mut usize,
    ) -> i32;
}

/// mach/kern_return.h.
const KERN_SUCCESS: i32 = 0;

/// Copies memory of this process. False: not all of it can be read.
fn copy(address: u64, buffer: &mut [u8]) -> bool {
    let mut copied = 0;
    // SAFETY: the kernel writes into the buffer only; the range that it reads is checked by it.
    let result = unsafe {
        vm_read_overwrite(
            mach_task_self_,
            address as VmAddress,
            buffer.len(),
            buffer.as_mut_ptr().expose_provenance(),
            &raw mut copied,
        )
    };
    result == KERN_SUCCESS && copied == buffer.len()
}

/// Whether the eight bytes at an address can be read.
pub fn is_readable(address: u64) -> bool {
    copy(address, &mut [0; 8])
}

/// Copies memory of this process, as much of it as is readable from the start, by pages. Never faults.
pub fn read_memory(process: u32, address: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
    if process != super::process_id() {
        return Err(Errno(libc::ENOTSUP));
    }
    if copy(address, buffer) {
        return Ok(buffer.len());
    }
    let page = super::page_bytes() as u64;
    let mut done = 0;
    while done < buffer.len() {
        let at = address.wrapping_add(done as u64);
        let bytes = (page - at % page).min((buffer.len() - done) as u64) as usize;
        let part = buffer.get_mut(done..done + bytes);
        if !part.is_some_and(|part| copy(at, part)) {
            break;
        }
        done += bytes;
    }
    match done {
        0 => Err(Errno(libc::EFAULT)),
        done => Ok(done),
    }
}

/// The calling thread's stack: lowest address and end.
pub fn thread_stack() -> (u64, u64) {
    // SAFETY: plain queries about the calling thread.
    unsafe {
        let this = libc::pthread_self();
        let high = libc::pthread_get_stackaddr_np(this) as u64;
        (
            high.saturating_sub(libc::pthread_get_stacksize_np(this) as u64),
            high,
        )
    }
}

static OWN_CODE: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// Where this library's own code lies; 0, 0 as long as [`prepare`] has not run.
pub(crate) fn own_code() -> (u64, u64) {
    let high = OWN_CODE[1].load(Ordering::Acquire);
    match high {
        0 => (0, 0),
        high => (OWN_CODE[0].load(Ordering::Relaxed), high),
    }
}

/// mach-o/loader.h: `struct mach_header_64`.
#[repr(C)]
struct Header {
    magic: u32,
    cpu_type: i32,
    cpu_subtype: i32,
    file_type: u32,
    commands: u32,
    bytes_of_commands: u32,
    flags: u32,
    reserved: u32,
}

/// mach-o/loader.h: the head of `struct segment_command_64`.
#[repr(C)]
struct Segment {
    command: u32,
    bytes: u32,
    name: [u8; 16],
    address: u64,
    size: u64,
}

const _: () = {
    assert!(size_of::<Header>() == 32);
    assert!(core::mem::offset_of!(Segment, address) == 24);
    assert!(core::mem::offset_of!(Segment, size) == 32);
};

/// mach-o/loader.h.
const MAGIC_64: u32 = 0xfeed_facf;
const SEGMENT_64: u32 = 0x19;

/// Finds the own code: the segment `__TEXT` of the image that this function is in. May lock.
pub(super) fn prepare() {
    let mut found = core::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let here = prepare as *const () as *const c_void;
    // SAFETY: fills the structure, for which zeros are valid.
    let base = unsafe {
        if libc::dladdr(here, found.as_mut_ptr()) == 0 {
            return;
        }
        found.assume_init().dli_fbase.cast_const()
    };
    if base.is_null() {
        return;
    }
    // SAFETY: an image begins with its header, which is followed by its commands; both stay as long as the
    // image, which this function is a part of.
    unsafe {
        let header = &*base.cast::<Header>();
        if header.magic != MAGIC_64 {
            return;
        }
        let mut at = size_of::<Header>();
        let end = at + header.bytes_of_commands as usize;
        for _ in 0..header.commands {
            if at + size_of::<Segment>() > end {
                return;
            }
            let segment = base.byte_add(at).cast::<Segment>().read_unaligned();
            if segment.command == SEGMENT_64 && segment.name.starts_with(b"__TEXT\0") {
                let low = base.addr() as u64;
                OWN_CODE[0].store(low, Ordering::Relaxed);
                OWN_CODE[1].store(low + segment.size, Ordering::Release);
                return;
            }
            if segment.bytes == 0 {
                return;
            }
            at += segment.bytes as usize;
        }
    }
}
