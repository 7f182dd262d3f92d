//! Apple's systems have no abstract sockets: a file in the user's folder for temporary files, which is the
//! app's own on iOS. The path in an address has 104 bytes (<sys/un.h>), so names are short.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{SocketAddrUnix, SocketFlags};

/// What the names of our sockets begin with.
const PREFIX: &str = "sb1-";

/// What socket(2) is asked for.
pub(super) const FLAGS: SocketFlags = SocketFlags::empty();

unsafe extern "C" {
    /// unistd.h.
    fn getpeereid(
        socket: libc::c_int,
        user: *mut libc::uid_t,
        group: *mut libc::gid_t,
    ) -> libc::c_int;
}

/// Closed on exec, and no signal when the other side is gone (setsockopt(2), `SO_NOSIGPIPE`).
pub(super) fn prepare(socket: &OwnedFd) -> io::Result<()> {
    fcntl_setfd(socket, FdFlags::CLOEXEC)?;
    // For a test Linux lists sessions in the same way, and has no such option.
    #[cfg(target_vendor = "apple")]
    rustix::net::sockopt::set_socket_nosigpipe(socket, true)?;
    Ok(())
}

/// Takes the place of a file that an ended session of this name has left.
pub(super) fn listen(session: &str) -> io::Result<UnixListener> {
    let file = file(session);
    let listener = match UnixListener::bind(&file) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if UnixStream::connect(&file).is_ok() {
                return Err(error);
            }
            fs::remove_file(&file)?;
            UnixListener::bind(&file)?
        }
        other => other?,
    };
    Ok(listener)
}

/// Removes the file of a session that has ended.
pub(in crate::session::control) fn forget(session: &str) {
    // Where it is gone already nothing is left to do.
    let _ = fs::remove_file(file(session));
}

fn file(session: &str) -> PathBuf {
    std::env::temp_dir().join(format!("{PREFIX}{session}"))
}

/// A session's address.
pub(super) fn address(session: &str) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new(file(session))?)
}

/// Sessions of this user. Files of those that were killed are among them: nobody answers there.
pub(in crate::session::control) fn sessions() -> Vec<String> {
    let entries = fs::read_dir(std::env::temp_dir());
    let names = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name());
    let mut found: Vec<String> = names
        .filter_map(|name| name.to_str()?.strip_prefix(PREFIX).map(str::to_owned))
        .collect();
    found.sort();
    found
}

/// The effective user on the other side, when it connected or began to listen.
pub(in crate::session::control) fn peer_uid(stream: &UnixStream) -> io::Result<libc::uid_t> {
    let (mut user, mut group) = (0, 0);
    // SAFETY: writes the two numbers.
    match unsafe { getpeereid(stream.as_raw_fd(), &raw mut user, &raw mut group) } {
        0 => Ok(user),
        _ => Err(io::Error::last_os_error()),
    }
}
