//! What is behind a descriptor, as the kernel says it. Nothing is opened and nothing is changed.

use super::linux::{call, number};
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
    Own,
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
