//! The tool as tests call it: no agent but its own, no colours, nothing to read.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// The binary's path, for commands that are made of text.
pub fn binary() -> &'static str {
    crate::stackbeat().to_str().expect("UTF-8")
}

/// The tool, with these arguments and without input.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(crate::stackbeat());
    command
        .args(arguments)
        .env_remove("STACKBEAT_AGENT")
        .env_remove("DEBUGINFOD_URLS")
        .env("NO_COLOR", "1")
        .stdin(Stdio::null());
    command
}

/// The same, in a folder.
pub fn command_in(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = command(arguments);
    command.current_dir(folder);
    command
}

/// Runs it in a folder.
pub fn stackbeat(folder: &Path, arguments: &[&str]) -> Output {
    command_in(folder, arguments).output().expect("runs")
}

/// What a report says before its tables, each sentence on one line.
pub fn heading(report: &str) -> String {
    let lines = report.lines().take_while(|line| !line.is_empty());
    lines.fold(String::new(), |text, line| match line.strip_prefix("  ") {
        Some(rest) => text + " " + rest,
        None => text + "\n" + line,
    })
}

/// Runs it in a folder; gives what it says, which must be JSON.
#[track_caller]
pub fn json(folder: &Path, arguments: &[&str]) -> Value {
    let output = stackbeat(folder, arguments);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// What was printed, as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
