//! The other side of the socket: finding sessions and asking them.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::protocol::{Reply, Request, SessionStatus, encode_request};
use super::socket;

/// How long a session may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// A dump looks names up, which takes its time.
const DUMP_PATIENCE: Duration = Duration::from_secs(600);
/// Longest answer, bytes.
const MAX_REPLY: u64 = 16 << 20;

/// Why a session did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error(
        "{target}: no live session has this pid or name; `stackbeat status` lists those that live"
    )]
    NoSession { target: String },
    #[error(
        "{target}: a session of another user (uid {owner}), which only that user and root may steer"
    )]
    NotAllowed { target: String, owner: u32 },
    #[error("{target}: several sessions have this pid: {}", sessions.join(", "))]
    Several {
        target: String,
        sessions: Vec<String>,
    },
    #[error("{session}: {what}")]
    Refused { session: String, what: String },
    #[error("{session}: the session cannot be reached")]
    Unreachable {
        session: String,
        #[source]
        source: io::Error,
    },
}

/// A live session: its name, and where it stands or why it does not say so.
#[derive(Debug)]
pub struct Found {
    pub session: String,
    pub status: Result<SessionStatus, ControlError>,
}

/// All live sessions on this machine, also those of other users.
pub fn list() -> Vec<Found> {
    let ask = |session: String| Found {
        status: ask(&session, &Request::Status {}).and_then(|reply| {
            reply.session.ok_or_else(|| ControlError::Refused {
                session: session.clone(),
                what: "its answer says nothing".to_owned(),
            })
        }),
        session,
    };
    let found = socket::sessions().into_iter().map(ask);
    // One that ended while we looked is no session.
    found
        .filter(|f| !matches!(f.status, Err(ControlError::Unreachable { .. })))
        .collect()
}

/// The session that `target` means: its name or the begin of it, or the pid of its collector or of one
/// of its processes.
///
/// # Errors
///
/// When there is none, more than one, or it is somebody else's.
pub fn find(target: &str) -> Result<SessionStatus, ControlError> {
    let mut matching = Vec::new();
    let mut refused = None;
    for found in list() {
        let by_name = found.session == target
            || found
                .session
                .split_once('.')
                .is_some_and(|(pid, id)| pid == target || id == target);
        match found.status {
            Ok(status) => {
                let pids = [status.collector_pid, status.program_pid];
                let is_one_of = |pids: &[u32]| pids.iter().any(|p| p.to_string() == target);
                if by_name || is_one_of(&pids) || is_one_of(&status.pids) {
                    matching.push(status);
                }
            }
            Err(error) if by_name => refused = Some(error),
            Err(_) => {}
        }
    }
    let none = || ControlError::NoSession {
        target: target.to_owned(),
    };
    if matching.len() > 1 {
        return Err(ControlError::Several {
            target: target.to_owned(),
            sessions: matching.into_iter().map(|s| s.session).collect(),
        });
    }
    matching.pop().ok_or_else(|| refused.unwrap_or_else(none))
}

/// Asks one session, and gives its answer when it agreed.
///
/// # Errors
///
/// When it cannot be reached, is somebody else's, or refuses.
pub fn ask(session: &str, request: &Request) -> Result<Reply, ControlError> {
    let unreachable = |source| ControlError::Unreachable {
        session: session.to_owned(),
        source,
    };
    let patience = match request {
        Request::Dump(_) => DUMP_PATIENCE,
        _ => PATIENCE,
    };
    let stream = socket::connect(session, patience).map_err(unreachable)?;
    // Anybody may listen under such a name: what a session is told is not for others.
    let owner = socket::peer_uid(&stream).map_err(unreachable)?;
    if !socket::may_steer(socket::own_uid(), owner) {
        return Err(ControlError::NotAllowed {
            target: session.to_owned(),
            owner,
        });
    }
    let reply = exchange(stream, request).map_err(unreachable)?;
    if reply.ok {
        Ok(reply)
    } else {
        Err(ControlError::Refused {
            session: session.to_owned(),
            what: reply.error.unwrap_or_default(),
        })
    }
}

fn exchange(mut stream: UnixStream, request: &Request) -> io::Result<Reply> {
    stream.write_all(&encode_request(request))?;
    let mut line = Vec::new();
    BufReader::new(stream.take(MAX_REPLY)).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    serde_json::from_slice(&line).map_err(io::Error::other)
}
