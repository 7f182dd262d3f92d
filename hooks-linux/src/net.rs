//! Sockets.

use crate::descriptor;
use core::ffi::{c_char, c_int, c_uint, c_void};
use libc::{
    MSG_DONTWAIT, addrinfo, hostent, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t,
    timespec,
};
use stackbeat_core::agent;
use stackbeat_core::probe::Probe;
use stackbeat_core::shm::waiters::How;
use stackbeat_core::system_call::SystemCall;

stackbeat_core::posix_net! { hooks }
stackbeat_core::linux_net! { hooks }

hooks! {
    wait fn __recv_chk(socket: c_int, buffer: *mut c_void, bytes: size_t, room: size_t, flags: c_int) -> ssize_t = Recv(socket) [reads socket if flags & MSG_DONTWAIT == 0, moves unless_peeked(flags)];
    // bionic has other types for the lengths.
    wait fn getnameinfo(address: *const sockaddr, bytes: socklen_t, node: *mut c_char, node_bytes: socklen_t, service: *mut c_char, service_bytes: socklen_t, flags: c_int) -> c_int = Resolve(0) [error of_number];
}

/// `connect` wakes who accepts at the address.
macro_rules! connects {
    ($($name:ident)*) => {$(
        original!(fn $name(socket: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int = Connect);
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(socket: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int {
            if !agent::hit_quietly() {
                $name::called();
            }
            // SAFETY: the caller's arguments.
            let accepting = unsafe { descriptor::accepting(address, bytes) };
            let wake = agent::is_descriptor_awaited(accepting)
                .then(|| agent::announce_descriptor(accepting, How::Wake(1)));
            let wait = agent::begin_wait(Probe::Connect, socket as u64);
            // SAFETY: the caller's arguments, passed on.
            let result = unsafe { $name::call(socket, address, bytes) };
            // SAFETY: errno of the calling thread is always there; the rest are the caller's arguments.
            unsafe {
                if result == 0 || *libc::__errno_location() == libc::EINPROGRESS {
                    descriptor::connected(socket, address, bytes);
                }
            }
            wait.end(result as i64);
            if let Some(wake) = wake {
                wake.end(Probe::Connect, socket as u64);
            }
            result
        }
    )*};
}
connects! { connect __connect }

original!(fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int);
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    agent::count(SystemCall::Socket);
    // SAFETY: the caller's arguments, passed on.
    let socket = unsafe { socket::call(domain, kind, protocol) };
    descriptor::forget(socket);
    socket
}

original!(fn listen(socket: c_int, backlog: c_int) -> c_int);
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn listen(socket: c_int, backlog: c_int) -> c_int {
    agent::count(SystemCall::Socket);
    // SAFETY: the caller's arguments, passed on.
    let result = unsafe { listen::call(socket, backlog) };
    descriptor::forget(socket);
    result
}

original!(fn socketpair(domain: c_int, kind: c_int, protocol: c_int, sockets: *mut c_int) -> c_int);
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn socketpair(
    domain: c_int,
    kind: c_int,
    protocol: c_int,
    sockets: *mut c_int,
) -> c_int {
    agent::count(SystemCall::Socket);
    // SAFETY: the caller's arguments, passed on; after a success both descriptors are there.
    unsafe {
        let result = socketpair::call(domain, kind, protocol, sockets);
        if result == 0 {
            descriptor::created_pair([*sockets, *sockets.add(1)]);
        }
        result
    }
}

original!(fn shutdown(socket: c_int, how: c_int) -> c_int = Close);
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn shutdown(socket: c_int, how: c_int) -> c_int {
    agent::count(SystemCall::Socket);
    let is_end = how != libc::SHUT_RD && descriptor::is_awaited(socket);
    let wake = is_end.then(|| descriptor::closes(socket));
    // SAFETY: the caller's arguments, passed on.
    let result = unsafe { shutdown::call(socket, how) };
    if let Some(wake) = wake {
        shutdown::called();
        wake.end(Probe::Close, socket as u64);
    }
    result
}

/// `accept` makes a descriptor of whoever connects.
macro_rules! accepts {
    ($($name:ident($($flags:ident: $type:ty)?);)*) => {$(
        original!(fn $name(socket: c_int, address: *mut sockaddr, bytes: *mut socklen_t $(, $flags: $type)?) -> c_int = Accept);
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(socket: c_int, address: *mut sockaddr, bytes: *mut socklen_t $(, $flags: $type)?) -> c_int {
            if !agent::hit_quietly() {
                $name::called();
            }
            let awaited = descriptor::read(socket).map(agent::written);
            let wait = agent::begin_wait_for(Probe::Accept, socket as u64, awaited);
            // SAFETY: the caller's arguments, passed on.
            let result = unsafe { $name::call(socket, address, bytes $(, $flags)?) };
            wait.end(result as i64);
            descriptor::accepted(result);
            result
        }
    )*};
}
accepts! {
    accept();
    accept4(flags: c_int);
}
