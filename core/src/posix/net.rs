//! Sockets, and looking up names. `mod.rs` says what a line means.
//!
//! What looks a name or an address up does so by sockets of libc's own that no hook sees.

/// Sockets and names: what all platforms have.
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
            wait fn getaddrinfo(node: *const c_char, service: *const c_char, hints: *const addrinfo, found: *mut *mut addrinfo) -> c_int = Resolve(0) [error of_number];
            wait fn gethostbyname(name: *const c_char) -> *mut hostent = Resolve(0) [error of_nothing];
            wait fn gethostbyaddr(address: *const c_void, bytes: socklen_t, family: c_int) -> *mut hostent = Resolve(0) [error of_nothing];
        }
    };
}

/// Sockets and names: what glibc and bionic have.
#[macro_export]
macro_rules! linux_net {
    ($emit:ident) => {
        $emit! {
            wait fn sendmmsg(socket: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int = Send(socket) [writes socket, moves in_messages(messages)];
            wait fn __recvfrom_chk(socket: c_int, buffer: *mut c_void, bytes: size_t, room: size_t, flags: c_int, from: *mut sockaddr, from_bytes: *mut socklen_t) -> ssize_t = Recv(socket) [reads socket if flags & MSG_DONTWAIT == 0, moves unless_peeked(flags)];
            wait fn recvmmsg(socket: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int = Recv(socket) [reads socket if flags & MSG_DONTWAIT == 0, moves in_messages(messages)];
            wait fn gethostbyname2(name: *const c_char, family: c_int) -> *mut hostent = Resolve(0) [error of_nothing];
            wait fn gethostbyname_r(name: *const c_char, entry: *mut hostent, room: *mut c_char, bytes: size_t, found: *mut *mut hostent, error: *mut c_int) -> c_int = Resolve(0) [error of_number];
            wait fn gethostbyname2_r(name: *const c_char, family: c_int, entry: *mut hostent, room: *mut c_char, bytes: size_t, found: *mut *mut hostent, error: *mut c_int) -> c_int = Resolve(0) [error of_number];
            wait fn gethostbyaddr_r(address: *const c_void, address_bytes: socklen_t, family: c_int, entry: *mut hostent, room: *mut c_char, bytes: size_t, found: *mut *mut hostent, error: *mut c_int) -> c_int = Resolve(0) [error of_number];
        }
    };
}
