//! The other ends of the program's Unix sockets, which agents ask for (`stackbeat_core::shm::watches`): the
//! kernel tells them through a netlink socket of its socket monitoring interface, sock_diag(7), for the
//! network namespace of the collector.

use std::io;
use std::mem::size_of;
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
use stackbeat_core::shm::mapping::Mapping;
use stackbeat_core::shm::watches;
use stackbeat_core::sync::Ordering;

// include/uapi/linux/{netlink,sock_diag,unix_diag}.h.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const UDIAG_SHOW_PEER: u32 = 4;
const UNIX_DIAG_PEER: u16 = 2;
const NO_COOKIE: u32 = u32::MAX;
/// Of a `unix_diag_msg`.
const MESSAGE_BYTES: usize = 16;
const HEADER_BYTES: usize = size_of::<libc::nlmsghdr>();

/// What is answered for a socket that there is not, or not in this namespace: no inode.
const NONE: u64 = u64::MAX;

/// A socket that nobody has accepted yet has no other end: distances of further polls, ns.
const FIRST_POLL_NS: u64 = 2_000_000;
const LONGEST_POLL_NS: u64 = 2_000_000_000;

/// Answers questions.
#[derive(Debug)]
pub(super) struct UnixPeers {
    /// `None`: not made yet.
    socket: Option<io::Result<OwnedFd>>,
    /// Questions that there had been at the last poll.
    asked: u32,
    /// When to ask again, and the distance from the last poll, ns; 0: all is answered.
    next_ns: u64,
    distance_ns: u64,
}

impl UnixPeers {
    pub(super) fn new() -> UnixPeers {
        UnixPeers {
            socket: None,
            asked: 0,
            next_ns: 0,
            distance_ns: 0,
        }
    }

    /// Answers what is open; one load when nothing is.
    pub(super) fn step(&mut self, mapping: &Mapping, now_ns: u64) {
        let asked = mapping.control().peers_asked.load(Ordering::Acquire);
        let is_new = asked != self.asked;
        let is_time = self.distance_ns != 0 && now_ns >= self.next_ns;
        if !is_new && !is_time {
            return;
        }
        self.asked = asked;
        let Ok(socket) = self.socket.get_or_insert_with(open) else {
            return;
        };
        let open = watches::answer(mapping, |inode| peer_of(socket, inode).unwrap_or(0));
        self.distance_ns = match (open, is_new) {
            (0, _) => 0,
            (_, true) => FIRST_POLL_NS,
            (_, false) => (self.distance_ns * 2).min(LONGEST_POLL_NS),
        };
        self.next_ns = now_ns + self.distance_ns;
    }

    /// When to ask again if nobody asks before.
    pub(super) fn next_ns(&self) -> u64 {
        match self.distance_ns {
            0 => u64::MAX,
            _ => self.next_ns,
        }
    }
}

fn open() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (family, protocol) = (AddressFamily::NETLINK, netlink::SOCK_DIAG);
    Ok(socket_with(family, SocketType::RAW, flags, Some(protocol))?)
}

/// The inode of a socket's other end: 0 when there is none yet, [`NONE`] when there is no such socket.
/// The kernel answers before `send` returns. An error: try again later.
fn peer_of(socket: &OwnedFd, inode: u64) -> io::Result<u64> {
    let Ok(inode) = u32::try_from(inode) else {
        return Ok(NONE);
    };
    let question = question(inode);
    send(socket, &question, SendFlags::empty())?;
    let mut reply = [0u8; 1024];
    let (bytes, _) = recv(socket, &mut reply, RecvFlags::empty())?;
    Ok(peer_in(&reply[..bytes], inode).unwrap_or(0))
}

/// A `nlmsghdr` with a `unix_diag_req`.
fn question(inode: u32) -> [u8; HEADER_BYTES + 24] {
    let mut bytes = [0; HEADER_BYTES + 24];
    let flags = libc::NLM_F_REQUEST as u16;
    let words: [&[u8]; 10] = [
        &(bytes.len() as u32).to_ne_bytes(),
        &SOCK_DIAG_BY_FAMILY.to_ne_bytes(),
        &flags.to_ne_bytes(),
        // Sequence number and port.
        &[0; 8],
        // Family, protocol, padding.
        &[libc::AF_UNIX as u8, 0, 0, 0],
        // Sockets in any state.
        &u32::MAX.to_ne_bytes(),
        &inode.to_ne_bytes(),
        &UDIAG_SHOW_PEER.to_ne_bytes(),
        &NO_COOKIE.to_ne_bytes(),
        &NO_COOKIE.to_ne_bytes(),
    ];
    let mut at = 0;
    for word in words {
        bytes[at..at + word.len()].copy_from_slice(word);
        at += word.len();
    }
    bytes
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let word = bytes.get(at..at + 2)?.try_into().ok()?;
    Some(u16::from_ne_bytes(word))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(word))
}

/// What a reply about a socket says.
fn peer_in(reply: &[u8], inode: u32) -> Option<u64> {
    match u16_at(reply, 4)? {
        SOCK_DIAG_BY_FAMILY => {}
        kind if i32::from(kind) == libc::NLMSG_ERROR => {
            let error = u32_at(reply, HEADER_BYTES)? as i32;
            return (error == -libc::ENOENT).then_some(NONE);
        }
        _ => return None,
    }
    (u32_at(reply, HEADER_BYTES + 4)? == inode).then_some(())?;
    let mut at = HEADER_BYTES + MESSAGE_BYTES;
    loop {
        let bytes = usize::from(u16_at(reply, at)?);
        if u16_at(reply, at + 2)? == UNIX_DIAG_PEER {
            return u32_at(reply, at + 4).map(u64::from);
        }
        at += bytes.max(4).next_multiple_of(4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixStream;

    #[test]
    fn both_ends_of_a_pair_name_each_other() {
        let Ok(netlink) = open() else {
            eprintln!("not run: the kernel gives no sockets of this kind");
            return;
        };
        let (a, b) = UnixStream::pair().expect("a pair");
        let [a, b] = [&a, &b].map(|socket| {
            let path = format!("/proc/self/fd/{}", socket.as_raw_fd());
            std::fs::metadata(path).expect("is there").ino()
        });
        assert_eq!(peer_of(&netlink, a).expect("answers"), b);
        assert_eq!(peer_of(&netlink, b).expect("answers"), a);
        let file = std::fs::metadata("/proc/self/exe").expect("is there").ino();
        assert_eq!(peer_of(&netlink, file).expect("answers"), NONE);
    }
}
