//! The two commands of `ab`, and how runs of them are recorded.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;
use std::{fmt, iter, thread};

use anyhow::{Context, Result, anyhow, bail};
use stackbeat_collector::session::CpuList;
use stackbeat_gate::rules::Pairing;
use stackbeat_gate::run::Side;
use stackbeat_proto::stream::write_packet;
use stackbeat_proto::v1::{CounterBatch, Packet, packet::Body};

use crate::cli::local::AbArgs;
use crate::commands::gate::inputs;
use crate::summary::load::CALIBRATION;

/// A side's command and where its traces go.
#[derive(Debug)]
pub(super) struct Program {
    pub side: Side,
    words: Vec<String>,
    folder: PathBuf,
    interval: String,
    /// Where it is pinned to.
    cpus: Option<CpuList>,
    /// Another run shares that processor.
    shares: bool,
    ignore_failure: bool,
}

/// Whether a command has what only a shell understands: pipes, redirections, several commands, variables,
/// patterns.
fn needs_shell(command: &str) -> bool {
    let assigns = |word: &str| {
        let name = word.split_once('=').map(|(name, _)| name);
        let is_letter = |c: char| c == '_' || c.is_ascii_alphanumeric();
        name.is_some_and(|name| !name.is_empty() && name.chars().all(is_letter))
    };
    let first = command.split_whitespace().next();
    if first.is_some_and(assigns) {
        return true;
    }
    let mut quote = None;
    let mut before = ' ';
    let mut letters = command.chars();
    while let Some(c) = letters.next() {
        match (quote, c) {
            (Some('\''), '\'') | (Some('"'), '"') => quote = None,
            (Some('\''), _) => {}
            (_, '\\') => {
                letters.next();
            }
            (_, '$' | '`') => return true,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '~') if before.is_whitespace() => return true,
            (None, c) if "|&;<>()*?[\n".contains(c) => return true,
            (None, _) => {}
        }
        before = c;
    }
    false
}

fn has_traces(folder: &Path) -> Result<bool> {
    Ok(folder.exists() && !inputs::in_folder(folder)?.is_empty())
}

/// Where the traces go that no folder was named for: beside those of earlier times.
pub(super) fn default_folder(at: &Path, force: bool) -> Result<PathBuf> {
    const FOLDER: &str = "stackbeat-ab";
    let numbered = (2..).map(|number| format!("{FOLDER}.{number}"));
    for name in iter::once(FOLDER.to_owned()).chain(numbered) {
        let folder = at.join(name);
        let mut sides = [Side::Baseline, Side::Candidate].into_iter();
        let is_used = sides.try_fold(false, |is_used, side| {
            Ok::<_, anyhow::Error>(is_used | has_traces(&folder.join(side.name()))?)
        })?;
        if force || !is_used {
            return Ok(folder);
        }
    }
    unreachable!("the numbers do not end")
}

/// A recording that runs.
struct Recording<'a> {
    program: &'a Program,
    recorder: Child,
    trace: PathBuf,
}

impl Program {
    pub(super) fn new(side: Side, command: &str, output: &Path, args: &AbArgs) -> Result<Program> {
        let flag = side.name();
        let words = shlex::split(command)
            .filter(|words| !words.is_empty())
            .with_context(|| format!("--{flag} {command}: an open quote, or no command"))?;
        let words = match needs_shell(command) {
            true => ["/bin/sh", "-c", command].map(String::from).into(),
            false => words,
        };
        let folder = output.join(flag);
        if has_traces(&folder)? && !args.force {
            bail!(
                "{}: has traces already; name another folder with -o, or replace them with --force",
                folder.display()
            );
        }
        Ok(Program {
            side,
            words,
            folder,
            interval: format!("{}ns", args.interval),
            cpus: args.cpus.clone(),
            shares: false,
            ignore_failure: args.ignore_failure,
        })
    }

    /// From now on another run shares its processor: that which was asked for, or the last one.
    pub(super) fn share(&mut self) -> Result<()> {
        self.shares = true;
        if self.cpus.is_none() {
            self.cpus = Some(CpuList::allowed()?.last());
        }
        Ok(())
    }

    /// From now on it runs where the kernel places it.
    pub(super) fn run_alone(&mut self) {
        self.shares = false;
        self.cpus = None;
    }

    /// Makes the folder.
    pub(super) fn make_folder(&self) -> Result<()> {
        let context = || format!("{}: cannot be made", self.folder.display());
        fs::create_dir_all(&self.folder).with_context(context)
    }

    /// Removes those of an earlier time.
    pub(super) fn remove_traces(&self) -> Result<()> {
        for old in inputs::in_folder(&self.folder)? {
            fs::remove_file(&old)
                .with_context(|| format!("{}: cannot be removed", old.display()))?;
        }
        Ok(())
    }

    /// Where the trace of a run goes.
    pub(super) fn trace(&self, number: usize) -> PathBuf {
        self.folder.join(format!("{number:03}.beat"))
    }

    /// Begins to record one run. What the program prints is not shown: the verdict is what this command
    /// prints.
    fn start(&self, trace: PathBuf) -> Result<Recording<'_>> {
        let mut arguments: Vec<OsString> = ["record", "--quiet", "--force", "--interval"]
            .map(OsString::from)
            .into();
        arguments.push(self.interval.clone().into());
        if let Some(cpus) = &self.cpus {
            arguments.extend(["--cpus".into(), cpus.to_string().into()]);
        }
        if self.shares {
            arguments.push("--shares-processor".into());
        }
        arguments.push("--output".into());
        arguments.push(trace.clone().into());
        arguments.push("--".into());
        arguments.extend(self.words.iter().map(OsString::from));
        let this = std::env::current_exe().context("the path of this program is not known")?;
        let recorder = Command::new(this)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        Ok(Recording {
            program: self,
            recorder: recorder.context("recording cannot be started")?,
            trace,
        })
    }

    /// A run that does not count.
    pub(super) fn warm_up(&self) -> Result<()> {
        self.look(|_| Ok(()))
    }

    /// Records a run that does not count, and looks at its trace.
    pub(super) fn look<T>(&self, at: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
        let trace = self.start(self.folder.join("warmup"))?.finish()?;
        let seen = at(&trace);
        let _ = fs::remove_file(&trace);
        seen
    }
}

/// A run that failed.
#[derive(Debug)]
pub(super) struct Failed {
    pub side: Side,
    pub status: ExitStatus,
    is_recorded: bool,
    said: String,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let advice = match self.is_recorded {
            true => "; --ignore-failure takes such runs too",
            false => " and left no trace",
        };
        let (side, status) = (self.side.name(), self.status);
        write!(f, "the {side} failed ({status}){advice}\n{}", self.said)
    }
}

impl std::error::Error for Failed {}

impl Recording<'_> {
    /// Waits for the end; an error says what the program said last.
    fn finish(self) -> Result<PathBuf> {
        let output = self.recorder.wait_with_output();
        let output = output.context("the recorder's end is not known")?;
        // Without a trace it was not recorded, whatever is ignored.
        let is_recorded = self.trace.exists();
        if !is_recorded || !output.status.success() && !self.program.ignore_failure {
            let said = String::from_utf8_lossy(&output.stderr);
            let last = said.lines().rev().take(5).collect::<Vec<_>>();
            let last: Vec<&str> = last.into_iter().rev().collect();
            bail!(Failed {
                side: self.program.side,
                status: output.status,
                is_recorded,
                said: last.join("\n"),
            });
        }
        Ok(self.trace)
    }
}

/// Records a run of both sides, in this order or together.
pub(super) fn record_pair(
    sides: &[Program; 2],
    order: [usize; 2],
    number: usize,
    pairing: Pairing,
) -> Result<()> {
    match pairing {
        Pairing::Together => {
            let calibration_ns = calibrate();
            let started = order.map(|side| sides[side].start(sides[side].trace(number)));
            // None waits for the other's end to get rid of what it says.
            let traces = thread::scope(|scope| {
                started
                    .map(|recording| scope.spawn(|| recording?.finish()))
                    .map(|end| end.join())
            });
            for trace in traces {
                let trace = trace.map_err(|_| anyhow!("waiting for a recorder failed"))?;
                add_calibration(&trace?, calibration_ns)?;
            }
        }
        Pairing::None | Pairing::InTurns => {
            for side in order {
                let calibration_ns = calibrate();
                let trace = sides[side].start(sides[side].trace(number))?.finish()?;
                add_calibration(&trace, calibration_ns)?;
            }
        }
    }
    Ok(())
}

/// The time of a fixed piece of work, the best of three: how fast is the machine now?
fn calibrate() -> u64 {
    const STEPS: u64 = 5_000_000;
    let once = || {
        let begin = Instant::now();
        // Each step needs the one before it: nothing but the clock frequency makes it faster.
        let mut x = black_box(1u64);
        for _ in 0..STEPS {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        }
        black_box(x);
        begin.elapsed().as_nanos() as u64
    };
    (0..3).map(|_| once()).min().unwrap_or(0)
}

/// Appends the calibration to a trace, as a counter of the session.
fn add_calibration(trace: &Path, ns: u64) -> Result<()> {
    let counter = CounterBatch {
        name: CALIBRATION.into(),
        unit: "ns".into(),
        time: vec![0],
        value: vec![ns as i64],
        ..CounterBatch::default()
    };
    let mut bytes = Vec::new();
    let packet = Packet {
        body: Some(Body::Counters(counter)),
    };
    write_packet(&packet, &mut bytes);
    let context = || format!("{}: the calibration cannot be added", trace.display());
    let mut file = OpenOptions::new()
        .append(true)
        .open(trace)
        .with_context(context)?;
    file.write_all(&bytes).with_context(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_runs_what_only_it_understands() {
        for command in [
            "a | b",
            "./a > /dev/null",
            "./a && ./b",
            "./a $HOME",
            "./a \"$HOME\"",
            "LANG=C sort x",
            "cat *.txt",
            "cat ~/x",
            "(a; b)",
        ] {
            assert!(needs_shell(command), "{command}");
        }
        for command in [
            "./a 'x | y' --to=3",
            "python3 -c 'print(1); print(2)'",
            "./a a\\|b \"c > d\"",
            "git log HEAD~3",
            "",
        ] {
            assert!(!needs_shell(command), "{command}");
        }
    }

    #[test]
    fn traces_of_an_earlier_time_stay() {
        let at = tempfile::tempdir().expect("a folder");
        let default = |force| default_folder(at.path(), force).expect("reads");
        assert_eq!(default(false), at.path().join("stackbeat-ab"));
        for name in ["stackbeat-ab", "stackbeat-ab.2"] {
            let side = at.path().join(name).join("candidate");
            fs::create_dir_all(&side).expect("is made");
            // An empty folder has nothing to keep.
            assert_eq!(default(false), at.path().join(name));
            fs::write(side.join("001.beat"), "").expect("is written");
        }
        assert_eq!(default(false), at.path().join("stackbeat-ab.3"));
        assert_eq!(default(true), at.path().join("stackbeat-ab"));
    }

    #[test]
    fn calibration_takes_milliseconds() {
        let ns = calibrate();
        // On a loaded machine it may take any time.
        assert!(ns >= 1_000_000, "{ns}");
    }
}
