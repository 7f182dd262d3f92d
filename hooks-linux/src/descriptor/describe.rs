//! What the kernel says of a descriptor, and what stands for it.

use core::ffi::c_int;
use stackbeat_core::platform::descriptor::{self as kernel, SocketEnd};
use stackbeat_core::shm::waiters::{Described, descriptor as object_of};

use super::{APART, ASKED, Found, state};

/// What is behind a descriptor.
pub(super) fn identify(file: c_int) -> Found {
    let Some((kind, device, inode)) = kernel::file_identity(file) else {
        return APART;
    };
    match kind as libc::mode_t {
        libc::S_IFIFO => {
            let pipe = object_of(Described::Pipe, device << 40 ^ inode);
            both_ways(file, pipe, pipe, 0)
        }
        libc::S_IFSOCK => identify_socket(file, inode).unwrap_or(APART),
        _ => APART,
    }
}

pub(super) fn both_ways(file: c_int, awaited: u64, woken: u64, inode: u64) -> Found {
    Found {
        state: match kernel::is_nonblocking(file) {
            true => state::NONBLOCKING,
            false => state::BLOCKING,
        },
        awaited,
        woken,
        inode,
    }
}

fn identify_socket(file: c_int, inode: u64) -> Option<Found> {
    let kind = kernel::socket_option(file, libc::SO_TYPE)?;
    let domain = kernel::socket_option(file, libc::SO_DOMAIN)?;
    let is_connected_kind = match domain {
        libc::AF_UNIX => matches!(kind, libc::SOCK_STREAM | libc::SOCK_SEQPACKET),
        libc::AF_INET | libc::AF_INET6 => kind == libc::SOCK_STREAM,
        _ => false,
    };
    if !is_connected_kind {
        return None;
    }
    let mut buffer = [0; 128];
    let own = kernel::socket_address(file, SocketEnd::Own, &mut buffer)?;
    if kernel::socket_option(file, libc::SO_ACCEPTCONN)? != 0 {
        return Some(both_ways(file, listener(own)?, 0, 0));
    }
    if domain == libc::AF_UNIX {
        let awaited = object_of(Described::UnixSocket, inode);
        return Some(both_ways(file, awaited, ASKED, inode));
    }
    let own = end_of_connection(own)?;
    let mut buffer = [0; 128];
    let other = kernel::socket_address(file, SocketEnd::Other, &mut buffer)?;
    Some(connection(file, own, end_of_connection(other)?))
}

pub(super) fn connection(file: c_int, own: u64, other: u64) -> Found {
    let one_way = |from: u64, to: u64| {
        object_of(
            Described::Connection,
            from.rotate_left(21).wrapping_mul(0xD6E8_FEB8_6659_FD93) ^ to,
        )
    };
    both_ways(file, one_way(own, other), one_way(other, own), 0)
}

/// Address and port in one number. An IPv4 address that is mapped into IPv6 is the IPv4 address.
pub(super) fn end_of_connection(address: &[u8]) -> Option<u64> {
    let family = c_int::from(u16::from_ne_bytes(address.get(..2)?.try_into().ok()?));
    let port = u64::from(u16::from_be_bytes(address.get(2..4)?.try_into().ok()?));
    let host = match family {
        libc::AF_INET => address.get(4..8)?,
        libc::AF_INET6 => match address.get(8..24)? {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, v4 @ ..] => v4,
            v6 => v6,
        },
        _ => return None,
    };
    Some(hash(host) << 16 ^ port)
}

/// What stands for the socket that listens at an address: for those of the internet the port.
pub(super) fn listener(address: &[u8]) -> Option<u64> {
    let family = c_int::from(u16::from_ne_bytes(address.get(..2)?.try_into().ok()?));
    let number = match family {
        libc::AF_INET | libc::AF_INET6 => {
            u64::from(u16::from_be_bytes(address.get(2..4)?.try_into().ok()?))
        }
        // Pathnames may come with or without their NUL.
        libc::AF_UNIX => match address.get(2..)? {
            [] => return None,
            [0, name @ ..] => hash(name) ^ 1,
            path => hash(path.split(|byte| *byte == 0).next()?),
        },
        _ => return None,
    };
    Some(object_of(Described::Listener, number))
}

/// FNV-1a, 64 bits.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}
