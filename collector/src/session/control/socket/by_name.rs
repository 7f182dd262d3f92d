//! Linux and Android: an abstract Unix socket (unix(7)), which leaves no file behind however the collector
//! ends. Everybody can see its name.

use std::fs;
use std::io;
#[cfg(target_os = "android")]
use std::os::android::net::SocketAddrExt;
use std::os::fd::OwnedFd;
#[cfg(target_os = "linux")]
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use rustix::net::sockopt::socket_peercred;
use rustix::net::{SocketAddrUnix, SocketFlags};

/// What the names of our sockets begin with.
const PREFIX: &str = "stackbeat/1/";

/// What socket(2) is asked for.
pub(super) const FLAGS: SocketFlags = SocketFlags::CLOEXEC;

/// A new socket is as it should be.
pub(super) fn prepare(_: &OwnedFd) -> io::Result<()> {
    Ok(())
}

pub(super) fn listen(session: &str) -> io::Result<UnixListener> {
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(format!(
        "{PREFIX}{session}"
    ))?)
}

/// Its name ends with the socket.
pub(in crate::session::control) fn forget(_: &str) {}

/// A session's address.
pub(super) fn address(session: &str) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(
        format!("{PREFIX}{session}").as_bytes(),
    )?)
}

/// Sessions that live on this machine (in this network namespace), everybody's.
pub(in crate::session::control) fn sessions() -> Vec<String> {
    let table = fs::read("/proc/net/unix").unwrap_or_default();
    sessions_in(&String::from_utf8_lossy(&table))
}

/// The kernel shows the first NUL of an abstract name as `@`.
fn sessions_in(table: &str) -> Vec<String> {
    // Connections to a socket stand there under its name as well.
    let mut found: Vec<String> = table
        .lines()
        .filter_map(|line| line.rsplit(' ').next()?.strip_prefix('@'))
        .filter_map(|name| name.strip_prefix(PREFIX))
        .map(str::to_owned)
        .collect();
    found.sort();
    found.dedup();
    found
}

/// The effective user on the other side, when it connected or began to listen.
pub(in crate::session::control) fn peer_uid(stream: &UnixStream) -> io::Result<libc::uid_t> {
    Ok(socket_peercred(stream)?.uid.as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_the_kernels_table() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 61 @stackbeat/1/17.0badcafe\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 64 @stackbeat/1/17.0badcafe\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 62 /run/stackbeat/1/9\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 63 @/tmp/.X11-unix/X0\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 65\n";
        assert_eq!(sessions_in(table), ["17.0badcafe"]);
    }
}
