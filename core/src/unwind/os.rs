//! What the unwinder needs from the kernel, as raw system calls: a hook's path may not go through
//! libc functions that are hooked themselves, and errno stays untouched.

use core::arch::asm;
use core::ffi::CStr;

#[cfg(target_arch = "x86_64")]
fn syscall(number: libc::c_long, a: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the caller passes arguments that are right for the call; the kernel clobbers rcx and r11.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") a[0], in("rsi") a[1],
            in("rdx") a[2], in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

#[cfg(target_arch = "aarch64")]
fn syscall(number: libc::c_long, a: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the caller passes arguments that are right for the call.
    unsafe {
        asm!("svc #0", in("x8") number, inlateout("x0") a[0] as isize => result, in("x1") a[1],
            in("x2") a[2], in("x3") a[3], in("x4") a[4], in("x5") a[5], options(nostack));
    }
    result
}

/// Reads this process' memory wherever it lies; false when it cannot be read. Costs a system call.
pub fn read_memory(address: u64, buffer: &mut [u8]) -> bool {
    read_partly(address, buffer.as_mut_ptr(), buffer.len()) == buffer.len()
}

/// Bytes that could be read from an address on.
fn read_partly(address: u64, to: *mut u8, bytes: usize) -> usize {
    let local = libc::iovec {
        iov_base: to.cast(),
        iov_len: bytes,
    };
    // The kernel reads whole parts only as far as they can be read, so the second page is a part.
    let first = bytes.min(4096 - (address % 4096) as usize);
    let remote = [
        libc::iovec {
            iov_base: address as *mut _,
            iov_len: first,
        },
        libc::iovec {
            iov_base: address.wrapping_add(first as u64) as *mut _,
            iov_len: bytes - first,
        },
    ];
    let pid = syscall(libc::SYS_getpid, [0; 6]) as usize;
    let parts = if bytes > first { 2 } else { 1 };
    let read = syscall(
        libc::SYS_process_vm_readv,
        [
            pid,
            &raw const local as usize,
            1,
            remote.as_ptr() as usize,
            parts,
            0,
        ],
    );
    usize::try_from(read).unwrap_or(0).min(bytes)
}

/// Reads words from anywhere in this process: how many could be read.
pub fn read_words(address: u64, words: &mut [u64]) -> usize {
    let bytes = size_of_val(words);
    read_partly(address, words.as_mut_ptr().cast(), bytes) / 8
}

/// Whether `read_memory` works here (user-mode emulators and seccomp filters refuse it).
pub fn can_read_memory() -> bool {
    let word = 0x5eed_u64;
    let mut copy = [0; 8];
    read_memory(&raw const word as u64, &mut copy) && u64::from_ne_bytes(copy) == word
}

/// Anonymous zeroed memory that is never given back; null when there is none.
pub fn map_memory(bytes: usize) -> *mut u8 {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
    let address = syscall(libc::SYS_mmap, [0, bytes, protection, flags, usize::MAX, 0]);
    if address < 0 {
        core::ptr::null_mut()
    } else {
        address as *mut u8
    }
}

/// Gives memory of `map_memory` or `map_file` back.
///
/// # Safety
/// Nobody may use it any more.
pub unsafe fn unmap(address: *mut u8, bytes: usize) {
    syscall(libc::SYS_munmap, [address as usize, bytes, 0, 0, 0, 0]);
}

/// Maps a part of a file read-only; `offset` is a multiple of the page size. Null: cannot be opened
/// or is shorter than that.
pub fn map_file(path: &CStr, offset: u64, bytes: usize) -> *const u8 {
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK) as usize;
    let directory = libc::AT_FDCWD as usize;
    let file = syscall(
        libc::SYS_openat,
        [directory, path.as_ptr() as usize, flags, 0, 0, 0],
    );
    if file < 0 {
        return core::ptr::null();
    }
    // SAFETY: all-zero is a valid `stat`.
    let mut status: libc::stat = unsafe { core::mem::zeroed() };
    let known = syscall(
        libc::SYS_fstat,
        [file as usize, &raw mut status as usize, 0, 0, 0, 0],
    );
    let mut address = -1;
    if known == 0
        && status.st_mode & libc::S_IFMT == libc::S_IFREG
        && status.st_size as u64 >= offset.saturating_add(bytes as u64)
    {
        let protection = libc::PROT_READ as usize;
        let flags = libc::MAP_PRIVATE as usize;
        address = syscall(
            libc::SYS_mmap,
            [0, bytes, protection, flags, file as usize, offset as usize],
        );
    }
    syscall(libc::SYS_close, [file as usize, 0, 0, 0, 0, 0]);
    if address < 0 {
        core::ptr::null()
    } else {
        address as *const u8
    }
}

/// Reads a symbolic link; the number of bytes, 0 when it cannot be read.
pub fn read_link(path: &CStr, buffer: &mut [u8]) -> usize {
    let directory = libc::AT_FDCWD as usize;
    let read = syscall(
        libc::SYS_readlinkat,
        [
            directory,
            path.as_ptr() as usize,
            buffer.as_mut_ptr() as usize,
            buffer.len(),
            0,
            0,
        ],
    );
    usize::try_from(read).unwrap_or(0).min(buffer.len())
}
