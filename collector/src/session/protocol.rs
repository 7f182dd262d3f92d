//! What client and collector say to each other: one line of JSON each way, then the connection ends.
//!
//! ```text
//!   client     {"stackbeat":1,"command":"set","interval_ns":500000}
//!   collector  {"ok":true,"session":{…}}
//!   collector  {"ok":false,"error":"interval of 1 ns is out of range: …"}
//! ```

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Changes with every incompatible change of the protocol.
pub const VERSION: u64 = 1;
/// Longest request, bytes.
pub const MAX_REQUEST: usize = 64 << 10;
/// Longest text of a mark, bytes.
pub const MAX_MARK: usize = 1024;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Request {
    /// Where the session stands. The answer to every other request says it, too.
    Status {},
    /// Threads that wait for locks now, and who holds these.
    Locks {},
    /// Capture from now on.
    Start {},
    /// Capture nothing from now on; the session goes on.
    Stop {},
    /// Change settings; what is not named stays.
    Set(Settings),
    /// Put a mark into the trace.
    Mark {
        /// Its text, 1 to [`MAX_MARK`] bytes.
        text: String,
    },
    /// Write what the session holds into a trace of its own.
    Dump(DumpRequest),
}

/// Settings to change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Interval between captures of threads that are no main threads, ns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_ns: Option<u64>,
    /// Interval of main threads, ns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub main_interval_ns: Option<u64>,
    /// Names of probe groups; an empty list for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probes: Option<Vec<String>>,
    /// `endless`, `ring` or `startup`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
}

/// What to dump, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DumpRequest {
    /// An absolute path.
    pub output: PathBuf,
    /// Replace an output that exists.
    #[serde(default)]
    pub overwrite: bool,
    /// Only this long before now.
    #[serde(default)]
    pub last_ns: Option<u64>,
    /// Look names of functions up and write them into the dump.
    #[serde(default)]
    pub symbolize: bool,
}

/// The collector's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reply {
    /// The request was carried out.
    pub ok: bool,
    /// Why not; only with `ok` false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Where the session stands after it; with `ok` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionStatus>,
    /// What was dumped: the answer to [`Request::Dump`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dump: Option<DumpReply>,
    /// The answer to [`Request::Locks`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locks: Option<LocksReply>,
}

/// Where a session stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionStatus {
    /// Its name: the collector's pid and a part of the session's id.
    pub session: String,
    /// Release of the collector.
    pub version: String,
    /// The collector's pid, in its own pid namespace.
    pub collector_pid: u32,
    /// Pid of the program that was started or attached to; 0: not started yet.
    pub program_pid: u32,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Path of the trace.
    pub trace: String,
    /// Time since the session began.
    pub elapsed_ns: u64,
    /// False: switched off.
    pub capturing: bool,
    /// Interval that is asked for, of threads that are no main threads.
    pub interval_ns: u64,
    /// Interval that is asked for, of main threads.
    pub main_interval_ns: u64,
    /// What the budget makes of `interval_ns` at the moment.
    pub kept_interval_ns: u64,
    /// What it makes of `main_interval_ns`.
    pub kept_main_interval_ns: u64,
    /// What two samples of a thread that computes are apart at the moment, in the process where they are
    /// furthest apart; 0: not known yet.
    pub sampled_each_ns: u64,
    /// Names of the probe groups that capture.
    pub probes: Vec<String>,
    /// `endless`, `ring` or `startup`.
    pub mode: String,
    /// Recorded processes that live.
    pub pids: Vec<u32>,
    /// Recorded threads that live.
    pub live_threads: u32,
    /// Recorded processes so far.
    pub processes: u32,
    /// Recorded threads so far.
    pub threads: u32,
    /// Samples in the trace so far; where the buffer keeps them, records in it.
    pub samples: u64,
    /// Records known to be lost so far.
    pub lost: u64,
    /// Bytes of the trace so far.
    pub trace_bytes: u64,
    /// The trace cannot be written at the moment.
    pub write_failing: bool,
}

/// Who waits for which lock at this moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LocksReply {
    /// Threads that wait for a mutex or a rwlock; of very many, a part.
    pub waits: Vec<LockReply>,
    /// Circles, as indices into `waits`: each waits for a lock that the next one holds, the last for one
    /// of the first.
    pub deadlocks: Vec<Vec<usize>>,
    /// What is loaded in the processes whose stacks are there.
    pub modules: Vec<ModuleReply>,
}

/// A thread that waits for a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LockReply {
    /// The thread's process, in the pid namespace of the agent in it.
    pub pid: u32,
    /// The thread, in the same namespace.
    pub tid: u32,
    /// What the thread calls itself; empty where that cannot be read.
    pub name: String,
    /// The call that waits.
    pub call: String,
    /// Address of the lock, in the process.
    pub lock: u64,
    /// Who holds the lock. 0: nobody holds it alone, or its memory may not be read.
    pub owner_tid: u32,
    /// How long it has waited.
    pub waited_ns: u64,
    /// Addresses, root first, and whether they are exact places and not return addresses.
    pub frames: Vec<(u64, bool)>,
}

/// A file that is mapped into a process as code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModuleReply {
    /// The process.
    pub pid: u32,
    /// The file, as the process names it.
    pub path: String,
    /// Its build id; empty: it has none.
    pub build_id: Vec<u8>,
    /// First address of the mapping.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// What is added to an address of the file to get one of the process.
    pub bias: u64,
}

/// What was dumped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DumpReply {
    /// The file that was written.
    pub output: String,
    /// Samples in it.
    pub samples: u64,
    /// Threads that lived in its time.
    pub threads: u64,
    /// Its size.
    pub bytes: u64,
    /// From the first sample to the moment of the dump.
    pub covered_ns: u64,
    /// Since the session began.
    pub elapsed_ns: u64,
}

impl Reply {
    /// A refusal.
    pub fn error(reason: impl fmt::Display) -> Reply {
        Reply {
            error: Some(reason.to_string()),
            ..Reply::default()
        }
    }
}

/// The request's line, with its end.
pub fn encode_request(request: &Request) -> Vec<u8> {
    let mut value = serde_json::to_value(request).unwrap_or_default();
    if let Some(object) = value.as_object_mut() {
        object.insert("stackbeat".to_owned(), VERSION.into());
    }
    line(&value)
}

/// A line of JSON.
pub fn line(value: &impl Serialize) -> Vec<u8> {
    // Plain data with names as keys cannot fail.
    let mut bytes = serde_json::to_vec(value).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// Why a line is no request that this collector carries out.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// It cannot be parsed.
    #[error("the request is no JSON in one line: {0}")]
    NotJson(serde_json::Error),
    /// Client and collector are of different releases.
    #[error(
        "the request has version {0} of the protocol, this collector ({release}) speaks version {VERSION}: use the \
         same stackbeat for both", release = env!("CARGO_PKG_VERSION")
    )]
    OtherVersion(u64),
    /// It has no number under `stackbeat`.
    #[error(
        "the request does not begin with the version of the protocol: {{\"stackbeat\":{VERSION},\"command\":…}}"
    )]
    NoVersion,
    /// Its command or one of its fields is unknown or missing.
    #[error("the request is not understood: {0}")]
    NotUnderstood(serde_json::Error),
}

/// Reads a request.
///
/// # Errors
///
/// Says what is wrong with it and what would be right.
pub fn decode_request(line: &[u8]) -> Result<Request, RequestError> {
    let mut value: Value = serde_json::from_slice(line).map_err(RequestError::NotJson)?;
    let version = value.as_object_mut().and_then(|o| o.remove("stackbeat"));
    match version.as_ref().and_then(Value::as_u64) {
        Some(VERSION) => {}
        Some(other) => return Err(RequestError::OtherVersion(other)),
        None => return Err(RequestError::NoVersion),
    }
    serde_json::from_value(value).map_err(RequestError::NotUnderstood)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_the_way() {
        for request in [
            Request::Status {},
            Request::Stop {},
            Request::Mark {
                text: "deploy \"7\"\n".to_owned(),
            },
            Request::Set(Settings {
                interval_ns: Some(500_000),
                probes: Some(Vec::new()),
                ..Settings::default()
            }),
            Request::Dump(DumpRequest {
                output: "/tmp/x.beat".into(),
                overwrite: true,
                last_ns: Some(10),
                symbolize: false,
            }),
        ] {
            let line = encode_request(&request);
            assert_eq!(line.iter().filter(|b| **b == b'\n').count(), 1);
            assert_eq!(decode_request(&line).expect("understood"), request);
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, part) in [
            ("", "no JSON"),
            ("GET / HTTP/1.1", "no JSON"),
            ("[1]", "does not begin with the version"),
            (r#"{"command":"status"}"#, "does not begin with the version"),
            (
                r#"{"stackbeat":2,"command":"status"}"#,
                "version 2 of the protocol",
            ),
            (
                r#"{"stackbeat":1,"command":"reboot"}"#,
                "unknown variant `reboot`, expected one of `status`",
            ),
            (
                r#"{"stackbeat":1,"command":"set","intervall":1}"#,
                "unknown field `intervall`",
            ),
            (
                r#"{"stackbeat":1,"command":"mark"}"#,
                "missing field `text`",
            ),
        ] {
            let error = decode_request(line.as_bytes()).expect_err(line).to_string();
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
