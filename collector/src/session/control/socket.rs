//! The session's socket. Where others can find it is the system's own way; who is on the other side is asked
//! of the kernel.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketType, socket_with};

#[cfg_attr(
    any(target_os = "linux", target_os = "android"),
    path = "socket/by_name.rs"
)]
#[cfg_attr(
    not(any(target_os = "linux", target_os = "android")),
    path = "socket/by_file.rs"
)]
mod place;

/// Apple's place, for a test on Linux.
#[cfg(all(test, target_os = "linux"))]
#[path = "socket/by_file.rs"]
#[allow(dead_code, reason = "Linux has no such option of sockets")]
mod by_file;

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
    let polled = |stream| PollFd::new(stream, PollFlags::IN);
    let mut polled: Vec<PollFd<'_>> = streams.map(polled).collect();
    // Interrupted it has waited less long.
    let _ = poll(&mut polled, Timespec::try_from(longest).ok().as_ref());
}

fn new() -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, place::FLAGS, None)?;
    place::prepare(&socket)?;
    Ok(UnixStream::from(socket))
}

fn connected(stream: UnixStream, session: &str) -> io::Result<UnixStream> {
    rustix::net::connect(&stream, &place::address(session)?)?;
    Ok(stream)
}

/// The user of `adb`, through which a host reaches an app (`AID_SHELL` of Android's
/// android_filesystem_config.h).
const SHELL: libc::uid_t = 2000;

/// Whether a user may steer the sessions of another one: they are the same, or it is root, or on Android the
/// shell.
pub(super) fn may_steer(user: libc::uid_t, owner: libc::uid_t) -> bool {
    user == owner || user == 0 || (cfg!(target_os = "android") && user == SHELL)
}

#[cfg(test)]
mod tests {
    use std::os::fd::BorrowedFd;

    use rustix::net::sockopt::socket_peercred;

    use super::*;

    /// What Apple's systems say of the other side.
    #[cfg(target_os = "linux")]
    #[unsafe(no_mangle)]
    unsafe extern "C" fn getpeereid(
        socket: libc::c_int,
        user: *mut libc::uid_t,
        group: *mut libc::gid_t,
    ) -> libc::c_int {
        // SAFETY: the caller's descriptor and numbers.
        unsafe {
            let peer = socket_peercred(BorrowedFd::borrow_raw(socket)).expect("a Unix socket");
            (*user, *group) = (peer.uid.as_raw(), peer.gid.as_raw());
        }
        0
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_session_is_found_by_its_file_and_takes_that_of_one_that_was_killed() {
        use std::io::{Read, Write};

        use stackbeat_core::platform;

        let session = format!("test-{}", std::process::id());
        let is_listed = || by_file::sessions().contains(&session);
        let connect = || {
            let stream = new()?;
            rustix::net::connect(&stream, &by_file::address(&session)?)?;
            Ok::<_, io::Error>(stream)
        };
        assert!(!is_listed());
        assert_eq!(
            connect().expect_err("nobody").kind(),
            io::ErrorKind::NotFound
        );
        let listener = by_file::listen(&session).expect("it listens");
        assert!(is_listed());
        let mut client = connect().expect("it is found");
        client.write_all(b"?").expect("written");
        let (mut served, _) = listener.accept().expect("a client");
        served.read_exact(&mut [0]).expect("read");
        for stream in [&client, &served] {
            assert_eq!(
                by_file::peer_uid(stream).expect("known"),
                platform::effective_user()
            );
        }
        // One of this name lives.
        let second = by_file::listen(&session).expect_err("it is taken");
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        // It is killed, and its file stays.
        drop(listener);
        assert!(is_listed());
        let error = connect().expect_err("nobody answers");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let next = by_file::listen(&session).expect("it takes the place");
        connect().expect("it answers");
        by_file::forget(&session);
        assert!(!is_listed());
        drop(next);
    }

    #[test]
    fn owner_and_root_may_steer() {
        assert!(may_steer(1000, 1000) && may_steer(0, 1000));
        assert!(!may_steer(1000, 0) && !may_steer(1000, 1001));
    }
}
