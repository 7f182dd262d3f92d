//! The other side of the socket: finding sessions and asking them.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use stackbeat_core::platform;

use super::socket;
use crate::session::protocol::{Reply, Request, SessionStatus, encode_request};

/// How long a session may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long all together may take that are asked for a list: anybody may listen under such a name.
const TIMEOUT_FOR_ALL: Duration = Duration::from_secs(1);
/// Sessions that are asked at the same time.
const MOST_ASKED: usize = 256;
/// Between two polls of those that take no connection.
const MOMENT: Duration = Duration::from_millis(20);
/// A dump looks names up, which takes its time.
const DUMP_TIMEOUT: Duration = Duration::from_secs(600);
/// Longest answer, bytes.
const MAX_REPLY: u64 = 16 << 20;
/// Longest status of other users' sessions, bytes: one of a thousand processes takes 10 KB.
const MAX_OTHERS_STATUS: u64 = 256 << 10;

/// Why a session did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No socket of a session has this pid or name.
    #[error(
        "{target}: no live session has this pid or name; `stackbeat status` lists those that live"
    )]
    NoSession {
        /// What was asked for.
        target: String,
    },
    /// The session is another user's, and the caller is not root.
    #[error(
        "{target}: a session of another user (uid {owner}), which only that user and root may steer"
    )]
    NotAllowed {
        /// What was asked for.
        target: String,
        /// The user of the session.
        owner: u32,
    },
    /// More than one live session fits.
    #[error("{target}: several sessions have this pid: {}", sessions.join(", "))]
    Several {
        /// What was asked for.
        target: String,
        /// Their names.
        sessions: Vec<String>,
    },
    /// The session has answered, and has not done it.
    #[error("{session}: {what}")]
    Refused {
        /// Name of the session.
        session: String,
        /// What it answered.
        what: String,
    },
    /// The connection failed, or no answer came in time.
    #[error("{session}: the session cannot be reached")]
    Unreachable {
        /// Name of the session.
        session: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
}

/// A live session: its name, and where it stands or why it does not say so.
#[derive(Debug)]
pub struct Found {
    /// Its name.
    pub session: String,
    /// Its answer to [`Request::Status`].
    pub status: Result<SessionStatus, ControlError>,
}

/// All live sessions on this machine, also those of other users. These are asked together, which takes a
/// second at most.
pub fn list() -> Vec<Found> {
    let mut found = Round::begin(socket::sessions()).run();
    found.sort_by(|a, b| a.session.cmp(&b.session));
    found
}

/// A session that was asked where it stands.
struct Asked {
    session: String,
    stream: UnixStream,
    said: Vec<u8>,
    most: u64,
    until: Instant,
}

/// Sessions that are asked at the same time, without waiting for any of them.
struct Round {
    began: Instant,
    /// Not asked so far, or the other side takes no connection at the moment.
    waiting: VecDeque<String>,
    asked: Vec<Asked>,
    found: Vec<Found>,
}

impl Round {
    fn begin(sessions: Vec<String>) -> Round {
        Round {
            began: Instant::now(),
            waiting: sessions.into(),
            asked: Vec::new(),
            found: Vec::new(),
        }
    }

    fn run(mut self) -> Vec<Found> {
        while !self.waiting.is_empty() || !self.asked.is_empty() {
            for _ in 0..self.waiting.len() {
                if self.asked.len() >= MOST_ASKED {
                    break;
                }
                if let Some(session) = self.waiting.pop_front() {
                    self.ask(session);
                }
            }
            self.listen();
        }
        self.found
    }

    fn ask(&mut self, session: String) {
        let until = self.began + TIMEOUT_FOR_ALL;
        let stream = match socket::connect_at_once(&session) {
            Ok(stream) => stream,
            // Its queue of connections is full: it may be busy.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                match Instant::now() < until {
                    true => self.waiting.push_back(session),
                    false => self.give_up(session, io::ErrorKind::TimedOut.into()),
                }
                return;
            }
            Err(error) => return self.give_up(session, error),
        };
        // Anybody may listen under such a name: what a session is told is not for others.
        let owner = match socket::peer_uid(&stream) {
            Ok(owner) => owner,
            Err(error) => return self.give_up(session, error),
        };
        let own = platform::effective_user();
        if !socket::may_steer(own, owner) {
            let refused = ControlError::NotAllowed {
                target: session.clone(),
                owner,
            };
            self.found.push(Found {
                session,
                status: Err(refused),
            });
            return;
        }
        // A new connection has room for so few bytes.
        match (&stream).write_all(&encode_request(&Request::Status {})) {
            Ok(()) => self.asked.push(Asked {
                session,
                stream,
                said: Vec::new(),
                most: match owner == own {
                    true => MAX_REPLY,
                    false => MAX_OTHERS_STATUS,
                },
                until,
            }),
            Err(error) => self.give_up(session, error),
        }
    }

    /// Reads what has been answered, or waits a moment for it.
    fn listen(&mut self) {
        let streams = self.asked.iter().map(|asked| &asked.stream);
        socket::wait_for(streams, MOMENT);
        for mut asked in std::mem::take(&mut self.asked) {
            match asked.read() {
                Ok(true) => {
                    let status = status_of(&asked.session, &asked.said);
                    self.found.push(Found {
                        session: asked.session,
                        status,
                    });
                }
                Ok(false) if Instant::now() < asked.until => self.asked.push(asked),
                Ok(false) => self.give_up(asked.session, io::ErrorKind::TimedOut.into()),
                Err(error) => self.give_up(asked.session, error),
            }
        }
    }

    /// One that ended while we looked is no session.
    fn give_up(&mut self, session: String, source: io::Error) {
        if source.kind() == io::ErrorKind::TimedOut {
            self.found.push(Found {
                status: Err(ControlError::Unreachable {
                    session: session.clone(),
                    source,
                }),
                session,
            });
        }
    }
}

impl Asked {
    /// Reads what is there. True: the answer is complete.
    fn read(&mut self) -> io::Result<bool> {
        let mut part = [0; 4096];
        loop {
            match self.stream.read(&mut part) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => self.said.extend_from_slice(&part[..bytes]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if self.said.last() == Some(&b'\n') {
                return Ok(true);
            }
            if self.said.len() as u64 > self.most {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
    }
}

/// What the answer of a session says.
fn status_of(session: &str, line: &[u8]) -> Result<SessionStatus, ControlError> {
    let unreachable = |source| ControlError::Unreachable {
        session: session.to_owned(),
        source,
    };
    let reply: Reply =
        serde_json::from_slice(line).map_err(|e| unreachable(io::Error::other(e)))?;
    let what = match (reply.ok, reply.session) {
        (true, Some(status)) => return Ok(status),
        (true, None) => "its answer says nothing".to_owned(),
        (false, _) => reply.error.unwrap_or_default(),
    };
    Err(ControlError::Refused {
        session: session.to_owned(),
        what,
    })
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
    let timeout = match request {
        Request::Dump(_) => DUMP_TIMEOUT,
        _ => TIMEOUT,
    };
    let stream = socket::connect(session, timeout).map_err(unreachable)?;
    // Anybody may listen under such a name: what a session is told is not for others.
    let owner = socket::peer_uid(&stream).map_err(unreachable)?;
    if !socket::may_steer(platform::effective_user(), owner) {
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
