//! Where a live view has its samples from: a session that records the process already, or one of its own.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process};
use stackbeat_collector::session::control::client::{self, ControlError};
use stackbeat_collector::session::protocol::{DumpRequest, Request, SessionStatus};
use stackbeat_model::Trace;
use tempfile::TempDir;

use super::live_names::LiveNames;
use crate::cli::local::{ProcessArg, TopArgs};
use crate::commands::attach::named_process;
use crate::summary::load::{Report, summarize};

/// Shared memory of a session of its own: some seconds of hundreds of busy threads.
const BUFFER: &str = "32MiB";
/// How long attaching and detaching may take; a process with much memory or a stopped one takes seconds.
const ATTACH_TIME: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

/// What the view keeps up as long as it lives. The recorder ends before its folder goes.
pub(super) struct Held {
    /// Where the session is this view's own.
    recorder: Option<Recorder>,
    folder: TempDir,
}

/// A session that is asked for what it holds.
pub(super) struct Source {
    session: String,
    output: PathBuf,
    names: LiveNames,
}

/// What a session held of one stretch of time.
pub(super) struct Moment {
    pub report: Report,
    pub status: SessionStatus,
    /// How long the session took to answer.
    pub took: Duration,
}

/// A session, found or made.
pub(super) struct Found {
    pub held: Held,
    pub source: Source,
    /// Show only this process of it.
    pub only_pid: Option<u32>,
}

/// Finds the session of what is named, or attaches to the process. `goes_on` is asked meanwhile.
///
/// # Errors
///
/// When there is no such process, or it can neither be asked nor be attached to.
pub(super) fn find(args: &TopArgs, goes_on: &dyn Fn() -> bool) -> Result<Found> {
    let folder = tempfile::Builder::new().prefix("stackbeat-top-").tempdir();
    let mut held = Held {
        recorder: None,
        folder: folder.context("no folder for what is read of the session")?,
    };
    let process = args.process();
    let mut found = client::find(&args.target);
    let mut pid = match process {
        Some(ProcessArg::Pid(pid)) => Some(pid),
        _ => None,
    };
    if let (Err(ControlError::NoSession { .. }), Some(ProcessArg::Name(name))) = (&found, &process)
    {
        let named = named_process::find("top", name)?;
        found = client::find(&named.to_string());
        pid = Some(named);
    }
    let (session, only_pid) = match found {
        Ok(status) => {
            held.let_write(&status)?;
            let only_pid = pid.filter(|pid| status.pids.contains(pid));
            (status.session, only_pid)
        }
        Err(ControlError::NoSession { .. }) => {
            let Some(pid) = pid else {
                bail!(
                    "top {}: no process and no session; `stackbeat status` lists sessions",
                    args.target
                );
            };
            let recorder = Recorder::start(args, pid, &held.folder)?;
            (held.recorder.insert(recorder).session(goes_on)?, None)
        }
        Err(error) => return Err(error.into()),
    };
    let output = held.folder.path().join("moment.beat");
    Ok(Found {
        held,
        source: Source {
            session,
            output,
            names: LiveNames::default(),
        },
        only_pid,
    })
}

impl Held {
    /// Whether the session is this view's own.
    pub(super) fn is_own(&self) -> bool {
        self.recorder.is_some()
    }

    /// A recorder of another user writes as that user; then this one is root.
    fn let_write(&self, status: &SessionStatus) -> Result<()> {
        let recorder = format!("/proc/{}", status.collector_pid);
        if let (Ok(own), Ok(theirs)) = (fs::metadata(self.folder.path()), fs::metadata(recorder))
            && own.uid() != theirs.uid()
        {
            chown(self.folder.path(), Some(theirs.uid()), None)
                .context("the recorder's user cannot be let write what is shown")?;
        }
        Ok(())
    }
}

impl Source {
    /// What the session holds of the last time; `None`: of all of it. `None` as an answer: the session has
    /// ended.
    ///
    /// # Errors
    ///
    /// When the session refuses, or what it wrote cannot be read.
    pub(super) fn moment(&mut self, last_ns: Option<u64>) -> Result<Option<Moment>> {
        let asked_at = Instant::now();
        let asked = client::ask(
            &self.session,
            &Request::Dump(DumpRequest {
                output: self.output.clone(),
                overwrite: true,
                last_ns,
                symbolize: false,
            }),
        );
        let reply = match asked {
            Ok(reply) => reply,
            Err(ControlError::Unreachable { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let took = asked_at.elapsed();
        let status = reply.session.unwrap_or_default();
        self.names
            .add_to(&self.output)
            .with_context(|| format!("{}: names cannot be added", self.output.display()))?;
        let trace = Trace::open(&self.output)?;
        let report = summarize(&trace, 0)?;
        Ok(Some(Moment {
            report,
            status,
            took,
        }))
    }
}

/// `stackbeat attach` as a process of its own: it detaches also when this one crashes.
struct Recorder {
    child: Child,
    says: PathBuf,
}

impl Recorder {
    fn start(args: &TopArgs, pid: u32, folder: &TempDir) -> Result<Recorder> {
        let says = folder.path().join("recorder.txt");
        let program = std::env::current_exe().context("the path of stackbeat is not known")?;
        let mut command = Command::new(program);
        command
            .args(["attach", "--quiet", "--force", "--mode", "ring"])
            .args(["--buffer", BUFFER, "--no-debuginfod", "--live"])
            .arg(std::process::id().to_string())
            .arg("--output")
            .arg(folder.path().join("session.beat"))
            .args(args.children.then_some("--children"))
            .args(args.allow_seccomp.then_some("--allow-seccomp"))
            .arg(pid.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&says).context("no file for what the recorder says")?);
        let child = command.spawn().context("stackbeat cannot be started")?;
        Ok(Recorder { child, says })
    }

    /// Waits until it records.
    fn session(&mut self, goes_on: &dyn Fn() -> bool) -> Result<String> {
        let until = Instant::now() + ATTACH_TIME;
        let target = self.child.id().to_string();
        loop {
            if self.child.try_wait()?.is_some() {
                let said = self.said().unwrap_or_else(|| "it says nothing".to_owned());
                return Err(anyhow!("{said}"));
            }
            match client::find(&target) {
                Ok(status) if !status.pids.is_empty() => return Ok(status.session),
                _ if !goes_on() => bail!("interrupted while attaching"),
                _ if Instant::now() > until => bail!(
                    "attaching takes longer than {} s; is the process stopped?",
                    ATTACH_TIME.as_secs()
                ),
                _ => std::thread::sleep(POLL),
            }
        }
    }

    /// What it said last, without the label that this process' own messages have.
    fn said(&mut self) -> Option<String> {
        let text = fs::read_to_string(&self.says).ok()?;
        let text = text.trim().trim_start_matches("stackbeat: ");
        (!text.is_empty()).then(|| text.to_owned())
    }

    fn end(&mut self) -> io::Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let until = Instant::now() + ATTACH_TIME;
        while self.child.try_wait()?.is_none() && Instant::now() < until {
            std::thread::sleep(POLL);
        }
        Ok(())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // One that cannot be told ends with this process.
        let _ = self.end();
    }
}
