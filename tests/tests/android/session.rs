//! Programs that stand in for an app: what they say of themselves, and the traces of their sessions.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use stackbeat_core::probe::Probe;
use stackbeat_proto::columns::SampleRow;
use stackbeat_proto::stream::PacketReader;
use stackbeat_proto::v1::Event;
use stackbeat_proto::v1::event::Kind;
use stackbeat_proto::v1::packet::Body;
use stackbeat_tests::plain_reader::Trace;
use stackbeat_tests::tool::text;
use stackbeat_tests::workspace;

use crate::art::app::library;

/// How well moments of the trace are known: cycles are converted.
pub(super) const CLOCK_NS: i64 = 20_000;
/// What a hook takes beside the wait that it bounds.
pub(super) const NEAR_NS: i64 = 1_000_000;

/// Compiles a program of `hooks-android/tests`, or a part of one.
pub(super) fn compile(folder: &Path, source: &str, output: &str, options: &[&str]) {
    let compiled = Command::new("g++")
        .args(["-std=c++17", "-O2", "-fPIC", "-pthread", "-Wl,-z,now"])
        .arg("-o")
        .arg(folder.join(output))
        .arg(workspace().join("hooks-android/tests").join(source))
        .args(options)
        .current_dir(folder)
        .output()
        .expect("g++ runs");
    assert!(compiled.status.success(), "{}", text(&compiled.stderr));
}

fn run(program: &Path, traces: &Path) -> Vec<String> {
    let output: Output = Command::new(program)
        .arg(library())
        .arg(traces)
        .output()
        .expect("the program runs");
    assert!(output.status.success(), "{output:?}");
    text(&output.stdout).lines().map(str::to_owned).collect()
}

/// One session: what the stand-ins say, and what the trace does.
pub(super) struct Session {
    said: Vec<String>,
    pub(super) path: PathBuf,
    pub(super) trace: Trace,
    events: Vec<Event>,
}

impl Session {
    /// All of a run.
    pub(super) fn all(program: &Path, traces: &Path) -> Vec<Session> {
        let said = run(program, traces);
        let begins = said.iter().enumerate();
        let begins = begins.filter_map(|(n, line)| Some((n, line.strip_prefix("trace ")?)));
        let begins: Vec<(usize, &str)> = begins.collect();
        let ends = begins.iter().skip(1).map(|(n, _)| *n).chain([said.len()]);
        let sessions = begins.iter().zip(ends);
        let sessions = sessions.map(|((begin, trace), end)| Session {
            said: said[*begin..end].to_vec(),
            path: PathBuf::from(trace),
            trace: Trace::read(Path::new(trace)),
            events: bodies(Path::new(trace)).filter_map(event).collect(),
        });
        sessions.collect()
    }

    /// The numbers behind a word, for each line that begins so.
    pub(super) fn said(&self, word: &str) -> Vec<Vec<i64>> {
        let lines = self.said.iter().filter_map(|line| line.strip_prefix(word));
        let numbers = lines.map(|line| line.split_whitespace().map(str::parse).collect());
        numbers.collect::<Result<_, _>>().expect("numbers")
    }

    /// The main thread's utid.
    pub(super) fn main_thread(&self) -> u32 {
        let processes = &self.trace.processes;
        let mut threads = self.trace.threads.iter();
        let main = threads.find(|(_, thread)| processes[&thread.upid].pid == thread.tid);
        *main.expect("it is recorded").0
    }

    /// Waits of the main thread that are in the trace as such, by their begins.
    pub(super) fn waits(&self, probe: Probe) -> Vec<&SampleRow> {
        let rows = self.trace.all_samples();
        let main = self.main_thread();
        let is_wait = |(thread, row): &(u32, &SampleRow)| {
            *thread == main && row.probe == probe as u8 && row.duration_ns > 0
        };
        let mut rows: Vec<_> = rows.filter(is_wait).map(|(_, row)| row).collect();
        rows.sort_by_key(|row| row.time_ns);
        rows
    }

    /// Moments and values of the events with this name.
    pub(super) fn events(&self, kind: Kind, name: &str) -> Vec<(i64, i64)> {
        let events = self.events.iter();
        let mut found: Vec<(i64, i64)> = events
            .filter(|event| event.kind == kind as i32 && event.name == name)
            .map(|event| (event.time_ns as i64, event.value))
            .collect();
        found.sort_unstable();
        found
    }

    /// What the trace says of the hooks, as `doctor` does.
    pub(super) fn line(&self, begin: &str) -> &str {
        let found = self.said.iter().find(|line| line.starts_with(begin));
        found.unwrap_or_else(|| panic!("{begin} in {:#?}", self.said))
    }
}

fn event(body: Body) -> Option<Event> {
    match body {
        Body::Event(event) => Some(event),
        _ => None,
    }
}

/// All packets of a trace.
pub(super) fn bodies(trace: &Path) -> impl Iterator<Item = Body> {
    let bytes = std::fs::read(trace).expect("the trace is there");
    let packets = PacketReader::new(std::io::Cursor::new(bytes));
    packets.filter_map(|packet| packet.expect("a whole packet").1.body)
}

pub(super) fn begin_and_end(row: &SampleRow) -> (i64, i64) {
    let end = row.time_ns as i64;
    (end - row.duration_ns as i64, end)
}

/// Each moment is near its other one; somebody else may take the processor in between, now and then.
#[track_caller]
pub(super) fn assert_near(what: &str, moments: impl Iterator<Item = (i64, i64)>) {
    let apart: Vec<i64> = moments.map(|(said, seen)| seen - said).collect();
    let far = apart.iter().filter(|ns| ns.abs() > NEAR_NS).count();
    assert!(far * 10 <= apart.len(), "{what}: {apart:?}");
}
