//! The session's socket: an abstract Unix socket (unix(7)), which leaves no file behind however the
//! collector ends. Everybody can see its name; who is on the other side is asked of the kernel.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

/// What the names of our sockets begin with.
const PREFIX: &str = "stackbeat/1/";

/// Listens as this session.
pub(super) fn listen(session: &str) -> io::Result<UnixListener> {
    let listener = UnixListener::bind_addr(&address(session)?)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn address(session: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("{PREFIX}{session}"))
}

/// Sessions that live on this machine (in this network namespace), everybody's.
pub(super) fn sessions() -> Vec<String> {
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

/// Connects to a session, waiting no longer than `timeout` for anything.
pub(super) fn connect(session: &str, timeout: Duration) -> io::Result<UnixStream> {
    let stream = new(0)?;
    // Also bounds `connect`, which waits while the backlog is full.
    stream.set_write_timeout(Some(timeout))?;
    stream.set_read_timeout(Some(timeout))?;
    connected(stream, session)
}

/// Connects to a session and waits for nothing, now and later: `WouldBlock` where its backlog is full.
pub(super) fn connect_at_once(session: &str) -> io::Result<UnixStream> {
    connected(new(libc::SOCK_NONBLOCK)?, session)
}

/// Waits until one of these can be read, and not for long.
pub(super) fn wait_for<'a>(streams: impl Iterator<Item = &'a UnixStream>, longest: Duration) {
    let mut polled: Vec<libc::pollfd> = streams
        .map(|stream| libc::pollfd {
            fd: stream.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    let ms = longest.as_millis() as libc::c_int;
    // SAFETY: the array has as many elements as it says.
    unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, ms) };
}

fn new(flags: libc::c_int) -> io::Result<UnixStream> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | flags;
    // SAFETY: asks for a new descriptor.
    let fd = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(UnixStream::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

fn connected(stream: UnixStream, session: &str) -> io::Result<UnixStream> {
    let name = format!("\0{PREFIX}{session}");
    // SAFETY: plain data for which all zeros is valid.
    let mut to: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    to.sun_family = libc::AF_UNIX as libc::sa_family_t;
    if name.len() > to.sun_path.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in to.sun_path.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let length = std::mem::offset_of!(libc::sockaddr_un, sun_path) + name.len();
    // SAFETY: the address is valid for `length` bytes.
    let done = unsafe {
        libc::connect(
            stream.as_raw_fd(),
            (&raw const to).cast(),
            length as libc::socklen_t,
        )
    };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(stream)
}

/// The effective user on the other side, when it connected or began to listen.
pub(super) fn peer_uid(stream: &UnixStream) -> io::Result<libc::uid_t> {
    // SAFETY: plain data for which all zeros is valid.
    let mut peer: libc::ucred = unsafe { std::mem::zeroed() };
    let mut length = size_of_val(&peer) as libc::socklen_t;
    // SAFETY: writes at most `length` bytes into `peer`.
    let done = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(peer.uid)
}

/// The user of this process.
pub(super) fn own_uid() -> libc::uid_t {
    // SAFETY: always succeeds.
    unsafe { libc::geteuid() }
}

/// Whether a user may steer the sessions of another one: they are the same, or it is root.
pub(super) fn may_steer(user: libc::uid_t, owner: libc::uid_t) -> bool {
    user == owner || user == 0
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

    #[test]
    fn owner_and_root_may_steer() {
        assert!(may_steer(1000, 1000) && may_steer(0, 1000));
        assert!(!may_steer(1000, 0) && !may_steer(1000, 1001));
    }
}
