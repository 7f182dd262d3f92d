//! A process for a test that becomes part of a session: there is one agent in a process, and other tests take
//! modules in and report what came.
#![cfg(target_os = "linux")]

use std::process::Command;

const ALONE: &str = "STACKBEAT_TEST_ALONE";

/// Whether this process is the test's own. If not, the test has run in one, and has passed.
#[track_caller]
pub(crate) fn is_alone(test: &str) -> bool {
    if std::env::var_os(ALONE).is_some_and(|name| name == test) {
        return true;
    }
    let output = Command::new(std::env::current_exe().expect("known"))
        .args(["--exact", test, "--nocapture"])
        .env(ALONE, test)
        .output();
    // User-mode emulation cannot start it: whoever runs it there asks for one test at a time.
    let Ok(output) = output else {
        return true;
    };
    // The C library reports that by shared memory, which emulation does not share: the child only ends with
    // this.
    const NOT_STARTED: Option<i32> = Some(127);
    if output.status.code() == NOT_STARTED && output.stdout.is_empty() {
        return true;
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    assert!(said.contains("1 passed"), "there is no test {test}: {said}");
    false
}
