//! What the end-to-end tests share: running a program with and without stackbeat, and reading the trace.

pub mod c_programs;
pub mod plain_reader;
pub mod process_tree;
pub mod servers;
pub mod tool;
pub mod tool_json;
pub mod viewers;

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The `stackbeat` binary of this build.
pub fn stackbeat() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        // For tests of its own package, cargo has built it, and names it (since 1.94).
        if let Some(built) = std::env::var_os("CARGO_BIN_EXE_stackbeat") {
            return built.into();
        }
        built(
            target_folder().join("stackbeat"),
            &["--package", "stackbeat"],
        )
    })
}

/// An example of this package, a program to record. `cargo test --test NAME` does not build them.
pub fn example(name: &str) -> PathBuf {
    built(
        target_folder().join("examples").join(name),
        &["--package", "stackbeat-tests", "--example", name],
    )
}

/// The program at `path`, built by these arguments of cargo. Tests of the whole workspace have built it, with
/// other features of dependencies: whoever runs those sets `STACKBEAT_TESTS_BUILT`, and nothing is built
/// twice.
pub fn built(path: PathBuf, what: &[&str]) -> PathBuf {
    if std::env::var_os("STACKBEAT_TESTS_BUILT").is_none() {
        build(what);
    }
    path
}

/// Builds with the profile of the test itself.
fn build(what: &[&str]) {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--locked"]).args(what);
    if target_folder().ends_with("release") {
        command.arg("--release");
    }
    let status = command.current_dir(workspace()).status();
    let is_built = status.is_ok_and(|status| status.success());
    assert!(is_built, "cargo build {what:?} fails");
}

/// The folder that this profile's binaries are built into.
pub fn target_folder() -> PathBuf {
    let test = std::env::current_exe().expect("the test knows its path");
    let deps = test.parent().expect("a test binary lies in a folder");
    deps.parent()
        .expect("deps lies in the profile's folder")
        .into()
}

/// The workspace's root.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the tests stand in the workspace")
}

/// A folder for one test's files. It goes away with the value.
pub fn scratch() -> tempfile::TempDir {
    tempfile::Builder::new()
        .prefix("stackbeat-test.")
        .tempdir()
        .expect("a temporary folder")
}

/// The traces of earlier versions that are kept for readers (`tests/traces`), by name.
pub fn kept_traces() -> Vec<(String, Vec<u8>)> {
    let mut traces: Vec<_> = std::fs::read_dir(workspace().join("tests/traces"))
        .expect("kept traces")
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let name = path.file_name()?.to_string_lossy().into_owned();
            let is_trace = path.extension()? == "beat";
            is_trace.then(|| (name, std::fs::read(&path).expect("readable")))
        })
        .collect();
    traces.sort();
    assert!(!traces.is_empty());
    traces
}

/// Builds a C or C++ program from source text.
#[track_caller]
pub fn compile(folder: &Path, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let file = folder.join(name);
    std::fs::write(&file, source).expect("the source can be written");
    compile_file(folder, &file, flags)
}

/// Builds a C or C++ program into a folder. It is called like its source; `stackbeat.h` is at hand.
#[track_caller]
pub fn compile_file(folder: &Path, source: &Path, flags: &[&str]) -> PathBuf {
    let is_cpp = source.extension().is_some_and(|ending| ending == "cpp");
    let program = folder.join(source.file_stem().expect("a name"));
    let output = Command::new(if is_cpp { "g++" } else { "gcc" })
        .args(["-g", "-O1", "-pthread", "-I"])
        .arg(workspace().join("api/include"))
        .arg("-o")
        .args([program.as_path(), source])
        .args(flags)
        .output()
        .expect("the compiler runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    program
}

/// The interpreter itself: its name may lead to a shell script of a version manager.
pub fn python() -> String {
    let mut command = Command::new("python3");
    command.args(["-c", "import sys; print(sys.executable)"]);
    run(command).stdout().trim().to_owned()
}

/// What a program did, on its own or recorded.
#[derive(Debug)]
pub struct Run {
    /// Status, and what it printed.
    pub output: Output,
    /// How long it took.
    pub wall: Duration,
}

impl Run {
    /// What it printed, as text.
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    /// The status as a shell has it in `$?`: for a program that a signal ended 128 + its number.
    pub fn shell_status(&self) -> i32 {
        let status = self.output.status;
        status
            .code()
            .or_else(|| status.signal().map(|signal| 128 + signal))
            .expect("the program ended")
    }

    /// What it printed as errors, as text.
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }
}

/// A recorded run and its trace.
#[derive(Debug)]
pub struct Recorded {
    /// What the program did.
    pub run: Run,
    /// Its trace file.
    pub trace: PathBuf,
}

impl Recorded {
    /// The decoded trace.
    pub fn decode(&self) -> plain_reader::Trace {
        plain_reader::Trace::read(&self.trace)
    }
}

/// A command to be run with and without stackbeat.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Where it runs; `None`: where the test does.
    pub folder: Option<PathBuf>,
    /// The file that it reads as standard input; `None`: nothing.
    pub input: Option<PathBuf>,
    /// Environment variables, beside those of the test.
    pub variables: Vec<(String, String)>,
    /// Arguments of `stackbeat record`.
    pub options: Vec<String>,
}

impl Program {
    /// A command without input, in the folder and environment of the test.
    pub fn new<S: AsRef<str>>(command: impl IntoIterator<Item = S>) -> Program {
        Program {
            command: command.into_iter().map(|s| s.as_ref().to_owned()).collect(),
            ..Default::default()
        }
    }

    /// Sets where it runs.
    pub fn folder(mut self, folder: &Path) -> Program {
        self.folder = Some(folder.into());
        self
    }

    /// Sets its standard input.
    pub fn input(mut self, file: &Path) -> Program {
        self.input = Some(file.into());
        self
    }

    /// Adds an environment variable.
    pub fn variable(mut self, name: &str, value: &str) -> Program {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// Adds arguments of `stackbeat record`.
    pub fn options(mut self, options: &[&str]) -> Program {
        self.options.extend(options.iter().map(|s| s.to_string()));
        self
    }

    fn prepare(&self, mut command: Command) -> Command {
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        for (name, value) in &self.variables {
            command.env(name, value);
        }
        match &self.input {
            Some(file) => command.stdin(std::fs::File::open(file).expect("the input exists")),
            None => command.stdin(Stdio::null()),
        };
        command
    }

    /// The command as it is.
    pub fn plain_command(&self) -> Command {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]);
        self.prepare(command)
    }

    /// The command under `stackbeat record`, quiet, so that all output is the program's own.
    pub fn recorded_command(&self, trace: &Path) -> Command {
        let mut command = Command::new(stackbeat());
        command
            .env_remove("DEBUGINFOD_URLS")
            .args(["record", "--quiet", "--force", "-o"])
            .arg(trace);
        command.args(&self.options).arg("--").args(&self.command);
        self.prepare(command)
    }

    /// Runs it without stackbeat.
    pub fn run(&self) -> Run {
        run(self.plain_command())
    }

    /// Records it, with the trace in `folder`.
    pub fn record(&self, folder: &Path) -> Recorded {
        let trace = folder.join("trace.beat");
        let run = run(self.recorded_command(&trace));
        assert!(trace.exists(), "no trace was written: {}", run.stderr());
        Recorded { run, trace }
    }

    /// Runs both ways; output and status must be the same once `normalize` has removed what differs
    /// between any two runs (durations, process ids).
    pub fn record_and_compare(&self, folder: &Path, normalize: fn(&str) -> String) -> Recorded {
        let plain = self.run();
        let recorded = self.record(folder);
        assert_eq!(
            plain.shell_status(),
            recorded.run.shell_status(),
            "{:?}: other status; recorded: {}",
            self.command,
            recorded.run.stderr()
        );
        assert_eq!(
            normalize(&plain.stdout()),
            normalize(&recorded.run.stdout()),
            "{:?}",
            self.command
        );
        assert_eq!(
            normalize(&plain.stderr()),
            normalize(&recorded.run.stderr()),
            "{:?}",
            self.command
        );
        recorded
    }
}

/// Runs a command to its end.
pub fn run(mut command: Command) -> Run {
    let begin = Instant::now();
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    Run {
        output,
        wall: begin.elapsed(),
    }
}

/// What a command of stackbeat's says in JSON; it must succeed.
#[track_caller]
pub fn json_of(arguments: &[&str]) -> serde_json::Value {
    let mut command = Command::new(stackbeat());
    command.args(arguments);
    let ended = run(command);
    assert!(
        ended.output.status.success(),
        "{arguments:?}: {}",
        ended.stderr()
    );
    serde_json::from_slice(&ended.output.stdout).expect("JSON")
}

/// A trace's report, with all rows of all tables. No thread ran for longer than it had or wanted a processor.
#[track_caller]
pub fn report(trace: &Path) -> serde_json::Value {
    let trace = trace.to_str().expect("UTF-8");
    let report = json_of(&["report", "--json", "--top", "0", trace]);
    for thread in tool_json::array(&report, "threads") {
        let [running, cpu, runnable] =
            ["running_ns", "cpu_ns", "runnable_ns"].map(|key| tool_json::number(thread, key));
        assert!(running <= cpu + runnable, "{thread:#}");
    }
    report
}

/// What a trace says about itself.
#[track_caller]
pub fn info(trace: &Path) -> serde_json::Value {
    json_of(&["info", "--json", trace.to_str().expect("UTF-8")])
}

/// Whether the kernel lets us have its clock. Where it does not, `record --clock kernel` says that before the
/// program starts.
pub fn has_kernel_clock() -> bool {
    let folder = scratch();
    let trace = folder.path().join("try.beat");
    let program = Program::new(["true"]).options(&["--clock", "kernel"]);
    let tried = run(program.recorded_command(&trace));
    if tried.output.status.success() {
        return true;
    }
    let message = tried.stderr();
    assert!(
        message.contains("perf_event_open") && message.contains("leave `--clock kernel` out"),
        "{message}"
    );
    assert!(!trace.exists());
    eprintln!("not here: {message}");
    false
}

/// The text as it is.
pub fn verbatim(text: &str) -> String {
    text.to_owned()
}

/// The text with every number replaced, for output that contains durations.
pub fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    let mut in_number = false;
    for c in text.chars() {
        let number = c.is_ascii_digit() || in_number && c == '.';
        if number && !in_number {
            out.push('#');
        }
        if !number {
            out.push(c);
        }
        in_number = number;
    }
    out
}

/// A background process that is ended when the value goes, and what it has started with it.
#[derive(Debug)]
pub struct Background(pub Child);

impl Drop for Background {
    fn drop(&mut self) {
        process_tree::end_family(&mut self.0);
    }
}

/// Ends a recorder by Ctrl-C, which must say that all was well; gives its summary. Its standard error is a
/// pipe.
#[track_caller]
pub fn end_recorder(recorder: &mut Background) -> serde_json::Value {
    process_tree::send("-INT", recorder.0.id());
    let mut said = String::new();
    let stderr = recorder.0.stderr.as_mut().expect("is piped");
    stderr.read_to_string(&mut said).expect("reads");
    let status = recorder.0.wait().expect("ends");
    assert!(status.success(), "{status}: {said}");
    serde_json::from_str(said.lines().last().unwrap_or_default()).expect("JSON")
}

/// Waits until something holds; panics after a time that is long also for a loaded machine.
#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    until(what, || holds().then_some(()));
}

/// As [`wait_until`]: waits until there is something, and gives it.
#[track_caller]
pub fn until<T>(what: &str, mut get: impl FnMut() -> Option<T>) -> T {
    until_ok(|| get().ok_or(what))
}

/// The same for what says itself what is missing so far.
#[track_caller]
pub fn until_ok<T, E: std::fmt::Display>(mut get: impl FnMut() -> Result<T, E>) -> T {
    let limit = Duration::from_secs(90);
    let begin = Instant::now();
    loop {
        match get() {
            Ok(found) => return found,
            Err(what) => assert!(begin.elapsed() < limit, "{what}: not within {limit:?}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
