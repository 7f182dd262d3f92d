//! The command from outside: messages, exit codes, and output that goes nowhere.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn stackbeat(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stackbeat"));
    command
        .args(arguments)
        .env_remove("NO_COLOR")
        .env_remove("COLUMNS")
        .env_remove("STACKBEAT_AGENT")
        .stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    stackbeat(arguments).output().expect("runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

/// Runs a command that must fail as an error of ours, and gives its message.
#[track_caller]
fn refused(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert_eq!(stdout(&output), "");
    let said = stderr(&output);
    let parts: Vec<&str> = said.trim_end().split(": ").collect();
    assert!(parts.windows(2).all(|w| w[0] != w[1]), "twice: {said}");
    said
}

#[test]
fn every_error_names_the_thing_the_reason_and_the_next_step() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::write(at("empty.beat"), b"").expect("writes");
    fs::write(at("text.beat"), b"hello, this is not a trace at all").expect("writes");
    fs::write(at("there.beat"), b"x").expect("writes");
    fs::write(at("script"), b"#!/nonexistent/interpreter\n").expect("writes");
    fs::write(at("plain"), b"not a program").expect("writes");
    let out = at("new.beat");
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/traces/format-1.beat").to_owned();
    for (arguments, parts) in [
        (
            vec!["report", &at("missing.beat")],
            vec!["missing.beat", "No such file"],
        ),
        (
            vec!["report", &at("empty.beat")],
            vec!["empty.beat", "is empty", "record again"],
        ),
        (
            vec!["report", &at("text.beat")],
            vec!["text.beat", "not a stackbeat trace"],
        ),
        (
            vec!["info", &at("text.beat")],
            vec!["text.beat", "not a stackbeat trace"],
        ),
        (
            vec!["record", "-o", &at("there.beat"), "--", "true"],
            vec!["there.beat", "exists", "--force"],
        ),
        (
            vec!["record", "-o", &out, "--interval", "10us", "--", "true"],
            vec!["--interval 10.0 µs", "50.0 µs is the shortest"],
        ),
        (
            vec!["record", "-o", &out, "--interval", "1", "--", "true"],
            vec!["--interval", "unit is missing", "1ms"],
        ),
        (
            vec!["record", "-o", &out, "--interval", "1 year", "--", "true"],
            vec!["`year` is not a unit of time"],
        ),
        (
            vec!["record", "-o", &out, "--buffer", "1 acre", "--", "true"],
            vec!["`acre` is not a unit of size"],
        ),
        (
            vec!["record", "-o", &out, "--buffer", "1k", "--", "true"],
            vec!["buffer", "out of range"],
        ),
        (
            vec!["record", "-o", &out, "--depth", "0", "--", "true"],
            vec!["depth", "out of range"],
        ),
        (
            vec!["record", "-o", &out, "--probes", "alloc,disk", "--", "true"],
            vec!["disk", "no such group", "alloc, memory, lock", "none"],
        ),
        (
            vec![
                "record",
                "-o",
                &out,
                "--agent",
                "/nonexistent.so",
                "--",
                "true",
            ],
            vec!["/nonexistent.so", "agent library", "No such file"],
        ),
        (
            vec!["record", "-o", &out, "--", "no-such-program-anywhere"],
            vec!["no-such-program-anywhere", "not found in PATH"],
        ),
        (
            vec!["record", "-o", &out, "--", &at("nothing")],
            vec!["nothing", "no such file"],
        ),
        (
            vec!["record", "-o", &out, "--", &at("plain")],
            vec!["plain", "not executable", "chmod +x"],
        ),
        (
            vec!["record", "-o", &out, "--", "/tmp"],
            vec!["/tmp", "directory"],
        ),
        (vec!["record"], vec!["required", "<COMMAND>"]),
        (vec!["recover", &at("missing")], vec!["missing"]),
        (
            vec!["recover", &at("text.beat"), "-o", &out],
            vec!["text.beat"],
        ),
        (
            vec!["recover", &trace, "-o", &at("there.beat")],
            vec!["there.beat", "exists", "--force"],
        ),
        (
            vec!["recover", &trace, "-o", &trace],
            vec!["format-1.beat", "another output"],
        ),
        (
            vec!["attach", "12", "13"],
            vec!["12 13", "one process", "--children"],
        ),
        (
            vec!["attach", "no-such-program"],
            vec!["no-such-program", "no process", "pgrep -a"],
        ),
        (vec!["attach", "0"], vec!["'0'", "1 to 4194304", "pgrep -a"]),
        (
            vec![
                "export", &trace, "--to", "folded", "-o", &out, "--from", "5s",
            ],
            vec!["format-1.beat", "ms long", "5.00 s on", "earlier --from"],
        ),
        (
            vec![
                "export", &trace, "--to", "folded", "-o", &out, "--from", "2ms", "--until", "1ms",
            ],
            vec!["2.00 ms", "1.00 ms", "before --until"],
        ),
        (
            vec!["trend", &trace],
            vec!["format-1.beat", "is a file", "folder"],
        ),
        (vec!["nonsense"], vec!["unrecognized subcommand 'nonsense'"]),
    ] {
        let message = refused(&arguments);
        for part in parts {
            assert!(
                message.contains(part),
                "{arguments:?}: `{part}` in: {message}"
            );
        }
        assert!(!Path::new(&out).exists(), "{arguments:?} left a file");
    }
}

#[test]
fn help_and_version_are_no_errors() {
    for arguments in [
        vec!["--help"],
        vec!["--version"],
        vec!["record", "--help"],
        vec!["help", "report"],
    ] {
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert_eq!(stderr(&output), "");
        assert!(stdout(&output).starts_with(|c: char| c.is_ascii_alphabetic()));
    }
}

#[test]
fn completions_and_the_manual_page_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let text = stdout(&run(&["completions", shell]));
        for word in ["record", "report", "interval", "probes", "doctor"] {
            assert!(text.contains(word), "{word} for {shell}");
        }
        assert!(
            !text.contains("demo-worker what"),
            "hidden commands stay hidden"
        );
    }
    let page = stdout(&run(&["man"]));
    for part in [
        ".TH stackbeat 1",
        "STACKBEAT RECORD",
        "STACKBEAT REPORT",
        "probes",
        "Exit codes",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("WORKER"));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    // More than a pipe holds, read by nobody.
    let mut child = stackbeat(&["completions", "zsh"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    drop(child.stdout.take());
    let mut message = String::new();
    let mut pipe = child.stderr.take().expect("piped");
    pipe.read_to_string(&mut message).expect("UTF-8");
    assert_eq!(child.wait().expect("ends").code(), Some(0), "{message}");
    assert_eq!(message, "");
}

#[test]
fn an_output_that_is_full_is_an_error() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/traces/format-1.beat");
    for arguments in [
        vec!["--help"],
        vec!["--version"],
        vec!["help", "report"],
        vec!["report", "--help"],
        vec!["record", "--help"],
        vec!["man"],
        vec!["completions", "bash"],
        vec!["report", trace],
        vec!["info", "--json", trace],
        vec!["report", "--html", "-", trace],
        vec!["export", trace, "--to", "folded", "-o", "-"],
    ] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full");
        let output = stackbeat(&arguments)
            .stdout(full.expect("Linux has it"))
            .output()
            .expect("runs");
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains("No space left"), "{arguments:?}: {said}");
    }
}

#[test]
fn colours_are_for_terminals_unless_asked_for() {
    let plain = run(&["report", "/nonexistent"]);
    assert!(!stderr(&plain).contains('\x1b'));
    let asked = run(&["--color", "always", "report", "/nonexistent"]);
    assert!(stderr(&asked).contains('\x1b'));
}

#[test]
fn nothing_to_recover_is_said() {
    let output = run(&["recover", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["schema"], "stackbeat.recover-list.v1");
}
