//! `stackbeat attach` to a program that executes another one meanwhile.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::path::Path;
use std::process::{Command, Stdio};

use stackbeat_tests::compile_file;
use stackbeat_tests::tool::stackbeat;

/// Each exec is new ground: the recorder records it, or says what happened, and the program goes on.
#[test]
fn an_exec_meanwhile_is_said_and_does_no_harm() {
    const EXECS: &str = "150";
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let source = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/attach/executes.c"
    ));
    let program = compile_file(at, source, &["-O2", "-pthread"]);
    let mut child = Command::new(program)
        .arg(EXECS)
        .stdout(Stdio::null())
        .spawn()
        .expect("starts");
    let pid = child.id().to_string();
    let mut attempts = Vec::new();
    let status = loop {
        let arguments = ["attach", "-q", "-f", "-d", "5ms", "-o", "t.beat", &pid];
        let output = stackbeat(at, &arguments);
        if let Some(status) = child.try_wait().expect("waited for") {
            break status;
        }
        attempts.push(match output.status.success() {
            true => String::new(),
            false => String::from_utf8_lossy(&output.stderr).into_owned(),
        });
    };
    assert_eq!(status.code(), Some(7));
    let is_told = |said: &&String| said.is_empty() || said.contains("started another program");
    let untold: Vec<_> = attempts.iter().filter(|said| !is_told(said)).collect();
    assert!(untold.is_empty(), "{untold:#?}");
    assert!(attempts.len() > 10, "{attempts:#?}");
}
