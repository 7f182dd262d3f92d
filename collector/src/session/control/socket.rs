//! The session's socket. Where others can find it is the system's own way; who is on the other side is asked of the
//! kernel.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

#[cfg_attr(
    any(target_os = "linux", target_os = "android"),
    path = "socket/by_name.rs"
)]
#[cfg_attr(
    not(any(target_os = "linux", target_os = "android")),
    path = "socket/by_file.rs"
)]
mod place;

pub(super) use place::{forget, peer_uid, sessions};

/// Listens as this session.
pub(super) fn listen(session: &str) -> io::Result<UnixListener> {
    let listener = place::listen(session)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Connects to a session, waiting no longer than `timeout` for anything.
pub(super) fn connect(session: &str, timeout: Duration) -> io::Result<UnixStream> {
    let stream = new()?;
    // Also bounds `connect`, which waits while the backlog is full.
    stream.set_write_timeout(Some(timeout))?;
    stream.set_read_timeout(Some(timeout))?;
    connected(stream, session)
}

/// Connects to a session and waits for nothing, now and later: `WouldBlock` where its backlog is full.
pub(super) fn connect_at_once(session: &str) -> io::Result<UnixStream> {
    let stream = new()?;
    stream.set_nonblocking(true)?;
    connected(stream, session)
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

fn new() -> io::Result<UnixStream> {
    // SAFETY: asks for a new descriptor.
    let fd = unsafe { libc::socket(libc::AF_UNIX, place::KIND, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    place::prepare(&fd)?;
    Ok(UnixStream::from(fd))
}

fn connected(stream: UnixStream, session: &str) -> io::Result<UnixStream> {
    let (to, length) = address(&place::path(session))?;
    // SAFETY: the address is valid for `length` bytes.
    let done = unsafe { libc::connect(stream.as_raw_fd(), (&raw const to).cast(), length) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(stream)
}

/// What connect(2) takes for a path.
fn address(path: &[u8]) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    // SAFETY: plain data for which all zeros is valid.
    let mut to: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    to.sun_family = libc::AF_UNIX as libc::sa_family_t;
    if path.len() > to.sun_path.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in to.sun_path.iter_mut().zip(path) {
        *to = *from as libc::c_char;
    }
    let length = std::mem::offset_of!(libc::sockaddr_un, sun_path) + path.len();
    Ok((to, length as libc::socklen_t))
}

/// The user of this process.
pub(super) fn own_uid() -> libc::uid_t {
    // SAFETY: always succeeds.
    unsafe { libc::geteuid() }
}

/// The user of `adb`, through which a host reaches an app (`AID_SHELL` of Android's android_filesystem_config.h).
const SHELL: libc::uid_t = 2000;

/// Whether a user may steer the sessions of another one: they are the same, or it is root, or on Android the shell.
pub(super) fn may_steer(user: libc::uid_t, owner: libc::uid_t) -> bool {
    user == owner || user == 0 || (cfg!(target_os = "android") && user == SHELL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_and_root_may_steer() {
        assert!(may_steer(1000, 1000) && may_steer(0, 1000));
        assert!(!may_steer(1000, 0) && !may_steer(1000, 1001));
    }
}
