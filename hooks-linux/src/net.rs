//! Sockets.

use core::ffi::{c_int, c_uint, c_void};
use libc::{mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t, timespec};
use stackbeat_core::agent;
use stackbeat_core::probe::Probe;

hooks! {
    wait fn connect(socket: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int = Connect, socket;
    wait fn __connect(socket: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int = Connect, socket;
    wait fn accept(socket: c_int, address: *mut sockaddr, bytes: *mut socklen_t) -> c_int = Accept, socket;
    wait fn accept4(socket: c_int, address: *mut sockaddr, bytes: *mut socklen_t, flags: c_int) -> c_int = Accept, socket;

    wait fn send(socket: c_int, buffer: *const c_void, bytes: size_t, flags: c_int) -> ssize_t = Send, socket;
    wait fn __send(socket: c_int, buffer: *const c_void, bytes: size_t, flags: c_int) -> ssize_t = Send, socket;
    wait fn sendto(socket: c_int, buffer: *const c_void, bytes: size_t, flags: c_int, to: *const sockaddr, to_bytes: socklen_t) -> ssize_t = Send, socket;
    wait fn sendmsg(socket: c_int, message: *const msghdr, flags: c_int) -> ssize_t = Send, socket;
    wait fn sendmmsg(socket: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int = Send, socket;

    wait fn recv(socket: c_int, buffer: *mut c_void, bytes: size_t, flags: c_int) -> ssize_t = Recv, socket;
    wait fn __recv_chk(socket: c_int, buffer: *mut c_void, bytes: size_t, room: size_t, flags: c_int) -> ssize_t = Recv, socket;
    wait fn recvfrom(socket: c_int, buffer: *mut c_void, bytes: size_t, flags: c_int, from: *mut sockaddr, from_bytes: *mut socklen_t) -> ssize_t = Recv, socket;
    wait fn __recvfrom_chk(socket: c_int, buffer: *mut c_void, bytes: size_t, room: size_t, flags: c_int, from: *mut sockaddr, from_bytes: *mut socklen_t) -> ssize_t = Recv, socket;
    wait fn recvmsg(socket: c_int, message: *mut msghdr, flags: c_int) -> ssize_t = Recv, socket;
    wait fn recvmmsg(socket: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int = Recv, socket;

    hit fn getsockopt(socket: c_int, level: c_int, option: c_int, value: *mut c_void, bytes: *mut socklen_t) -> c_int = Getsockopt, socket;
    hit fn setsockopt(socket: c_int, level: c_int, option: c_int, value: *const c_void, bytes: socklen_t) -> c_int = Getsockopt, socket;
}
