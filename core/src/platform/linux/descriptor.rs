//! What is behind a descriptor, as the kernel says it, and writing to one of our own.

use super::{Errno, call, number};
use core::mem::MaybeUninit;

/// Type (`S_IFMT`), device and inode of what is behind a descriptor.
pub fn file_identity(fd: i32) -> Option<(u32, u64, u64)> {
    let mut status = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: fstat fills a `stat`, which libc declares as the kernel's on 64-bit Linux; zeros are one.
    let status = unsafe {
        let to = status.as_mut_ptr() as usize;
        call(number::FSTAT, [fd as usize, to, 0, 0, 0, 0]).ok()?;
        status.assume_init()
    };
    #[allow(
        clippy::unnecessary_cast,
        reason = "the types differ between architectures"
    )]
    Some((
        (status.st_mode & libc::S_IFMT) as u32,
        status.st_dev as u64,
        status.st_ino as u64,
    ))
}

/// Whether calls on the descriptor return instead of blocking (`O_NONBLOCK`).
pub fn is_nonblocking(fd: i32) -> bool {
    let get = libc::F_GETFL as usize;
    // SAFETY: touches no memory.
    let flags = unsafe { call(libc::SYS_fcntl, [fd as usize, get, 0, 0, 0, 0]) };
    flags.is_ok_and(|flags| flags as i32 & libc::O_NONBLOCK != 0)
}

/// An option of `SOL_SOCKET` that is an integer.
pub fn socket_option(fd: i32, option: i32) -> Option<i32> {
    let (mut value, mut bytes) = (0i32, size_of::<i32>() as u32);
    // SAFETY: the kernel writes at most `bytes` to the value, and their number.
    unsafe {
        call(
            libc::SYS_getsockopt,
            [
                fd as usize,
                libc::SOL_SOCKET as usize,
                option as usize,
                (&raw mut value) as usize,
                (&raw mut bytes) as usize,
                0,
            ],
        )
        .ok()?;
    }
    Some(value)
}

/// Which of a socket's two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketEnd {
    /// The end behind the descriptor: `getsockname`.
    Own,
    /// The end that it is connected to: `getpeername`.
    Other,
}

/// The address of one end of a socket: the part of `buffer` (a `sockaddr_storage`'s bytes) that it takes.
pub fn socket_address(fd: i32, end: SocketEnd, buffer: &mut [u8; 128]) -> Option<&[u8]> {
    let number = match end {
        SocketEnd::Own => libc::SYS_getsockname,
        SocketEnd::Other => libc::SYS_getpeername,
    };
    let mut bytes = buffer.len() as u32;
    // SAFETY: the kernel writes at most `bytes` to the buffer, and the address's length.
    unsafe {
        let to = buffer.as_mut_ptr() as usize;
        let length = (&raw mut bytes) as usize;
        call(number, [fd as usize, to, length, 0, 0, 0]).ok()?;
    }
    buffer.get(..bytes as usize)
}

/// Writes at the file's position; the number of bytes taken. Not seen by any hook, `errno` stays.
pub fn write(fd: i32, bytes: &[u8]) -> Result<usize, Errno> {
    // SAFETY: the kernel reads the slice.
    unsafe {
        let from = bytes.as_ptr() as usize;
        call(libc::SYS_write, [fd as usize, from, bytes.len(), 0, 0, 0])
    }
}

/// Another number for the same file, the first that is free from `least` on; closed by exec.
pub fn duplicate_from(fd: i32, least: u32) -> Result<i32, Errno> {
    let command = libc::F_DUPFD_CLOEXEC as usize;
    // SAFETY: touches no memory.
    let new = unsafe {
        call(
            libc::SYS_fcntl,
            [fd as usize, command, least as usize, 0, 0, 0],
        )?
    };
    Ok(new as i32)
}

/// Soft and hard limit of the numbers that descriptors may have (RLIMIT_NOFILE).
pub fn number_limits() -> Option<(u64, u64)> {
    let mut limits = [0u64; 2];
    let to = (&raw mut limits) as usize;
    // SAFETY: the kernel fills a `struct rlimit64`: two words. Process 0 is the caller.
    unsafe {
        let what = libc::RLIMIT_NOFILE as usize;
        call(libc::SYS_prlimit64, [0, what, 0, to, 0, 0]).ok()?;
    }
    Some((limits[0], limits[1]))
}

/// Sets both limits. False: refused.
pub fn set_number_limits(soft: u64, hard: u64) -> bool {
    let limits = [soft, hard];
    let from = (&raw const limits) as usize;
    // SAFETY: the kernel reads a `struct rlimit64`.
    unsafe {
        let what = libc::RLIMIT_NOFILE as usize;
        call(libc::SYS_prlimit64, [0, what, from, 0, 0, 0]).is_ok()
    }
}
