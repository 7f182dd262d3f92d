//! Sessions over real programs that pass no hook: what a program sees of being recorded (nothing), how
//! it ends, and what is refused before it starts.
#![cfg(target_os = "linux")]

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use stackbeat_collector::record;
use stackbeat_collector::session::{Options, Outcome, Progress, RecordError, Warning};
use stackbeat_proto::stream::PacketReader;
use stackbeat_proto::v1::{self, packet, summary};
use tempfile::TempDir;

/// Something harmless to preload in place of the agent.
fn harmless_agent() -> PathBuf {
    let maps = fs::read_to_string("/proc/self/maps").expect("maps");
    let line = maps.lines().find(|l| l.ends_with("libc.so.6"));
    let path = line.and_then(|l| l.split_whitespace().last());
    PathBuf::from(path.expect("a dynamically linked test"))
}

struct Session {
    folder: TempDir,
    options: Options,
}

impl Session {
    fn new(command: &[&str]) -> Session {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let command = command.iter().map(OsString::from).collect();
        let mut options = Options::new(command, harmless_agent(), folder.path().join("run.beat"));
        options.symbolize = false;
        Session { folder, options }
    }

    /// Runs a shell script; `$1` is a file for its answer.
    fn shell(script: &str) -> Session {
        let mut session = Session::new(&["/bin/sh", "-c", script, "sh"]);
        let answer = session.folder.path().join("answer");
        session.options.command.push(answer.into());
        session
    }

    fn run(&self) -> Result<Outcome, RecordError> {
        record(&self.options, &mut |_| {})
    }

    fn answer(&self) -> String {
        fs::read_to_string(self.folder.path().join("answer")).expect("the program's answer")
    }

    fn file(&self, name: &str, content: &str, mode: u32) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, content).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("mode");
        path
    }
}

fn packets(path: &Path) -> Vec<packet::Body> {
    PacketReader::new(fs::File::open(path).expect("the trace"))
        .map(|p| p.expect("a good packet").1.body.expect("a body"))
        .collect()
}

fn summary_of(path: &Path) -> v1::Summary {
    match packets(path).into_iter().next() {
        Some(packet::Body::Header(header)) => header.summary.expect("a summary"),
        other => panic!("no header: {other:?}"),
    }
}

#[test]
fn the_status_is_the_programs() {
    for (script, code, signal) in [
        ("exit 0", Some(0), None),
        ("exit 7", Some(7), None),
        ("kill -TERM $$", None, Some(libc::SIGTERM)),
        ("kill -KILL $$", None, Some(libc::SIGKILL)),
    ] {
        let session = Session::shell(script);
        let outcome = session.run().expect("recorded");
        let status = ExitStatus::from_raw(outcome.wait_status);
        assert_eq!((status.code(), status.signal()), (code, signal), "{script}");
        assert_eq!(outcome.warnings, [Warning::NoAgent]);
        let summary = summary_of(&session.options.output);
        assert_eq!(summary.outcome(), summary::Outcome::Finished);
        let last = packets(&session.options.output).pop();
        assert!(matches!(last, Some(packet::Body::Footer(_))));
    }
}

#[test]
fn the_program_inherits_what_it_would_without_us() {
    // Each asks the kernel about the very process that was started.
    for script in [
        r#"exec ls -l --time-style=+ /proc/self/fd >"$1""#,
        r#"exec grep -E '^(SigPnd|ShdPnd|SigBlk|SigIgn|SigCgt|NoNewPrivs|Seccomp|Groups|Cap)' /proc/self/status >"$1""#,
        r#"exec cat /proc/self/limits /proc/self/timerslack_ns /proc/self/oom_score_adj >"$1""#,
        r#"exec cut -d' ' -f5-8,18-19,40-41 /proc/self/stat >"$1""#,
        r#"{ pwd; umask; } >"$1""#,
        r#"exec env -u LD_PRELOAD -u STACKBEAT_SESSION >"$1""#,
    ] {
        let session = Session::shell(script);
        let plain = std::process::Command::new("/bin/sh")
            .args(["-c", script, "sh"])
            .arg(session.folder.path().join("answer"))
            .status();
        assert!(plain.expect("run").success());
        let without = session.answer();
        session.run().expect("recorded");
        assert_eq!(stable(&session.answer()), stable(&without), "{script}");
        assert!(without.len() > 3, "{script}");
    }
}

/// Without what differs between any two runs: inode numbers and pids, and libc's own two signals
/// (32 and 33), which its posix_spawn leaves ignored.
fn stable(text: &str) -> Vec<String> {
    let line = |l: &str| {
        if let Some(mask) = l.strip_prefix("SigIgn:\t") {
            let mask = u64::from_str_radix(mask, 16).expect("a mask");
            return format!("SigIgn: {:x}", mask & !(3 << 31));
        }
        match l.split_once("-> /proc/") {
            Some((_, rest)) => rest
                .trim_start_matches(|c: char| c.is_ascii_digit())
                .to_owned(),
            None => l.split("-> ").last().unwrap_or(l).to_owned(),
        }
    };
    text.lines().map(line).collect()
}

#[test]
fn signals_for_the_collector_reach_the_program() {
    // A shell cannot trap what its parent ignores, as everything under nohup ignores SIGHUP.
    // SAFETY: sets a default disposition, which no code of this test changes.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_DFL) };
    let session = Session::shell(
        "trap 'echo got >\"$1\"; exit 5' HUP; for i in $(seq 1500); do sleep 0.01; done",
    );
    let mut told = false;
    // SAFETY: takes nothing and cannot fail. The calling thread has the signal blocked in `record`,
    // and only it is told.
    let own = unsafe { libc::gettid() };
    let outcome = record(&session.options, &mut |progress| {
        if matches!(progress, Progress::Recording(_)) && !told {
            told = true;
            // SAFETY: sends a signal to this very thread, where it is blocked.
            unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), own, libc::SIGHUP) };
        }
    })
    .expect("recorded");
    assert_eq!(ExitStatus::from_raw(outcome.wait_status).code(), Some(5));
    assert_eq!(session.answer(), "got\n");
}

#[test]
fn what_cannot_run_is_refused_with_its_reason() {
    let refused = |command: &[&str]| match Session::new(command).run() {
        Err(error) => error,
        Ok(outcome) => panic!("{command:?} ran: {outcome:?}"),
    };
    assert!(matches!(
        refused(&["no-such-command-anywhere"]),
        RecordError::NotFound { .. }
    ));
    assert!(matches!(
        refused(&["/no/such/file"]),
        RecordError::NoSuchFile { .. }
    ));
    assert!(matches!(
        refused(&["/etc/passwd/x"]),
        RecordError::NoSuchFile { .. }
    ));
    assert!(matches!(refused(&["/tmp"]), RecordError::Directory { .. }));
    assert!(matches!(
        refused(&["/etc/passwd"]),
        RecordError::NotExecutable { .. }
    ));
    assert!(matches!(refused(&[""]), RecordError::NoCommand));

    let mut session = Session::new(&["x"]);
    let script = session.file("script", "#!/no/such/interpreter\n", 0o755);
    session.options.command = vec![script.into()];
    assert!(matches!(
        session.run(),
        Err(RecordError::NoInterpreter { .. })
    ));
    let broken = session.file("broken", "\x7fELF broken", 0o755);
    session.options.command = vec![broken.into()];
    // The shell tries it, as execvp has it.
    assert!(session.run().is_ok());
}

#[test]
fn options_out_of_range_are_refused() {
    let mut session = Session::new(&["true"]);
    session.options.interval_ns = 49_999;
    let error = session.run().expect_err("below the floor").to_string();
    assert!(
        error.contains("interval") && error.contains("50000"),
        "{error}"
    );
    session.options.interval_ns = 50_000;
    assert!(session.run().is_ok());
    session.options.agent = PathBuf::from("/no/such/agent.so");
    assert!(matches!(session.run(), Err(RecordError::Agent { .. })));
}

#[test]
fn an_output_is_only_replaced_when_asked() {
    let mut session = Session::new(&["true"]);
    fs::write(&session.options.output, "precious").expect("written");
    assert!(matches!(
        session.run(),
        Err(RecordError::OutputExists { .. })
    ));
    assert_eq!(
        fs::read(&session.options.output).expect("read"),
        b"precious"
    );
    session.options.overwrite = true;
    session.run().expect("recorded");
    assert_eq!(
        summary_of(&session.options.output).outcome(),
        summary::Outcome::Finished
    );
    session.options.output = PathBuf::from("/no/such/folder/run.beat");
    assert!(matches!(session.run(), Err(RecordError::Output { .. })));
}

#[test]
fn a_program_that_cannot_be_started_leaves_nothing() {
    let mut session = Session::new(&["true"]);
    // More arguments than the kernel takes.
    let long = "x".repeat(200_000);
    session.options.command.push(long.into());
    match session.run() {
        Err(RecordError::Start { source, .. }) => {
            assert_eq!(source.raw_os_error(), Some(libc::E2BIG));
        }
        other => panic!("{other:?}"),
    }
    assert!(!session.options.output.exists());
}

#[test]
fn scripts_without_an_interpreter_run_in_a_shell() {
    let mut session = Session::new(&["x"]);
    let script = session.file("plain", "exit 9\n", 0o755);
    session.options.command = vec![script.into()];
    let outcome = session.run().expect("recorded");
    assert_eq!(ExitStatus::from_raw(outcome.wait_status).code(), Some(9));
}

#[test]
fn small_shared_memory_is_told_or_replaced() {
    let mut session = Session::new(&["true"]);
    session.options.mapping_folder = Some(PathBuf::from("/no/such/folder"));
    let error = session.run().expect_err("no room").to_string();
    assert!(error.contains("/no/such/folder"), "{error}");
    assert!(!session.options.output.exists());
    // Any folder will do when it is asked for.
    session.options.mapping_folder = Some(session.folder.path().to_path_buf());
    session.run().expect("recorded");
    let left: Vec<_> = fs::read_dir(session.folder.path())
        .expect("listed")
        .flatten()
        .map(|f| f.file_name())
        .collect();
    assert_eq!(left, ["run.beat"], "the mapping is removed at the end");
}
