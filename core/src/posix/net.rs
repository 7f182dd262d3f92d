//! Sockets.

/// Sockets: what all platforms have.
#[macro_export]
macro_rules! posix_net {
    ($emit:ident) => {
        $emit! {
            wait fn send(socket: c_int, buffer: *const c_void, bytes: size_t, flags: c_int) -> ssize_t = Send(socket) [writes socket] aka glibc [__send];
            wait fn sendto(socket: c_int, buffer: *const c_void, bytes: size_t, flags: c_int, to: *const sockaddr, to_bytes: socklen_t) -> ssize_t = Send(socket) [writes socket];
            wait fn sendmsg(socket: c_int, message: *const msghdr, flags: c_int) -> ssize_t = Send(socket) [writes socket];
            wait fn recv(socket: c_int, buffer: *mut c_void, bytes: size_t, flags: c_int) -> ssize_t = Recv(socket) [reads socket if flags & MSG_DONTWAIT == 0, moves unless_peeked(flags)];
            wait fn recvfrom(socket: c_int, buffer: *mut c_void, bytes: size_t, flags: c_int, from: *mut sockaddr, from_bytes: *mut socklen_t) -> ssize_t = Recv(socket) [reads socket if flags & MSG_DONTWAIT == 0, moves unless_peeked(flags)];
            wait fn recvmsg(socket: c_int, message: *mut msghdr, flags: c_int) -> ssize_t = Recv(socket) [reads socket if flags & MSG_DONTWAIT == 0, moves unless_peeked(flags)];
            hit fn getsockopt(socket: c_int, level: c_int, option: c_int, value: *mut c_void, bytes: *mut socklen_t) -> c_int = Getsockopt(socket) [];
            hit fn setsockopt(socket: c_int, level: c_int, option: c_int, value: *const c_void, bytes: socklen_t) -> c_int = Getsockopt(socket) [];
        }
    };
}

/// Sockets: what glibc and bionic have.
#[macro_export]
macro_rules! linux_net {
    ($emit:ident) => {
        $emit! {
            wait fn sendmmsg(socket: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int = Send(socket) [writes socket, moves in_messages(messages)];
            wait fn __recvfrom_chk(socket: c_int, buffer: *mut c_void, bytes: size_t, room: size_t, flags: c_int, from: *mut sockaddr, from_bytes: *mut socklen_t) -> ssize_t = Recv(socket) [reads socket if flags & MSG_DONTWAIT == 0, moves unless_peeked(flags)];
            wait fn recvmmsg(socket: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int = Recv(socket) [reads socket if flags & MSG_DONTWAIT == 0, moves in_messages(messages)];
        }
    };
}
