//! A session inside an app: found by the name of its socket, reached through a port that adb forwards.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use stackbeat_collector::session::protocol::{Reply, Request, encode_request};

use super::adb::Adb;

/// What the names of sessions' sockets begin with, as `/proc/net/unix` shows them.
const PREFIX: &str = "@stackbeat/1/";
/// How long an app may take until its session listens.
const START: Duration = Duration::from_secs(20);
/// Between two looks.
const MOMENT: Duration = Duration::from_millis(250);
/// A dump looks names up.
const LONGEST_ANSWER: Duration = Duration::from_secs(120);
/// Longest answer, bytes.
const MOST: u64 = 16 << 20;

/// The port of the session is open as long as this lives.
#[derive(Debug)]
pub(super) struct DeviceSession<'a> {
    adb: &'a Adb,
    port: u16,
    /// `PID.ID`.
    pub(super) name: String,
}

/// The session of this process, in the kernel's table of sockets.
fn session_in(table: &str, pid: &str) -> Option<String> {
    let names = table
        .lines()
        .filter_map(|line| line.rsplit(' ').next()?.strip_prefix(PREFIX));
    let mut of_process = names.filter(|name| name.split('.').next() == Some(pid));
    of_process.next().map(str::to_owned)
}

impl DeviceSession<'_> {
    /// Waits for the app's session, and opens its port.
    pub(super) fn wait<'a>(adb: &'a Adb, package: &str) -> Result<DeviceSession<'a>> {
        let began = Instant::now();
        let mut was_there = false;
        loop {
            let pids = adb.shell(&format!("pidof {package}"))?.unwrap_or_default();
            if was_there && pids.is_empty() {
                bail!(
                    "{package} has ended right after its start; `adb -s {} logcat` may say why",
                    adb.serial()
                );
            }
            was_there |= !pids.is_empty();
            let table = adb.shell("cat /proc/net/unix")?.unwrap_or_default();
            if let Some(name) = pids.split(' ').find_map(|pid| session_in(&table, pid)) {
                return DeviceSession::open(adb, name);
            }
            if began.elapsed() > START {
                match was_there {
                    true => bail!(
                        "{package} runs, but no session listens in it: does it call Stackbeat.init, and is this \
                         build not the one with the no-op library? (docs/platforms/android-app.md)"
                    ),
                    false => bail!("{package} did not start within {} s", START.as_secs()),
                }
            }
            std::thread::sleep(MOMENT);
        }
    }

    fn open(adb: &Adb, name: String) -> Result<DeviceSession<'_>> {
        let socket = format!("localabstract:{}{name}", &PREFIX[1..]);
        let port = adb.say(["forward", "tcp:0", &socket])?;
        let port = port
            .parse()
            .with_context(|| format!("adb forward gave `{port}`, which is no port"))?;
        Ok(DeviceSession { adb, port, name })
    }

    /// Asks the session for something.
    pub(super) fn ask(&self, request: &Request) -> Result<Reply> {
        let gone = || format!("session {} does not answer", self.name);
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).with_context(gone)?;
        stream.set_read_timeout(Some(LONGEST_ANSWER))?;
        stream
            .write_all(&encode_request(request))
            .with_context(gone)?;
        let mut line = Vec::new();
        let mut answer = BufReader::new(stream.take(MOST));
        answer.read_until(b'\n', &mut line).with_context(gone)?;
        if line.is_empty() {
            bail!("{}: the app has ended, or was stopped", gone());
        }
        let reply: Reply = serde_json::from_slice(&line).context("the session's answer is none")?;
        match reply.error {
            Some(error) => bail!("session {}: {error}", self.name),
            None => Ok(reply),
        }
    }
}

impl Drop for DeviceSession<'_> {
    fn drop(&mut self) {
        // Where the device is gone, so is the port.
        let _ = self
            .adb
            .run(["forward", "--remove", &format!("tcp:{}", self.port)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_of_a_process_is_found() {
        let table = "Num RefCount Protocol Flags Type St Inode Path\n\
            0: 2 0 10000 1 1 61 @stackbeat/1/417.0badcafe\n\
            0: 2 0 10000 1 1 62 @stackbeat/1/41.00c0ffee\n\
            0: 2 0 10000 1 1 63 @webview_devtools_remote_41\n";
        assert_eq!(session_in(table, "41").as_deref(), Some("41.00c0ffee"));
        assert_eq!(session_in(table, "4"), None);
    }
}
