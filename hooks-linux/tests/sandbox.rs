//! Programs that give up system calls do under the agent what they do without it: no call of the agent's is
//! one that their filters do not allow.

use stackbeat_core::shm::layout::sandboxed;
use stackbeat_tests::c_programs::{Session, assert_same, compile, run};
use std::process::Command;
use std::time::Duration;

/// Runs `sandbox.c` with these arguments without the agent, with it, and with it while its threads are
/// interrupted. The processes' entries must say `bits`, and no others.
fn same(arguments: &str, bits: &[u32]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compile(folder.path(), "sandbox.c", &[]);
    let arguments: Vec<_> = arguments.split(' ').collect();
    let plain = run(Command::new(&program).args(&arguments));
    let sessions = [
        Session::new().capture_all(),
        Session::new()
            .tick(Duration::from_millis(1))
            .interrupt(Duration::from_micros(300)),
    ];
    for session in sessions {
        let recorded = run(session.command(&program).args(&arguments));
        assert_same(&arguments.join(" "), &plain, &recorded);
        let said = session.sandboxed();
        assert_eq!(said, bits, "{arguments:?}");
    }
}

#[test]
fn strict_mode() {
    same("prctl - strict", &[sandboxed::OFF_STRICT]);
    same("seccomp - strict", &[sandboxed::OFF_STRICT]);
}

/// What is allowed is too little for the agent: it is off.
#[test]
fn filters_that_allow_little() {
    let off = sandboxed::FILTERED | sandboxed::OFF_NO_CLOCK;
    for action in ["process", "thread", "trap", "errno"] {
        same(&format!("prctl {action} few"), &[off]);
        same(
            &format!("seccomp {action} mute"),
            &[off | sandboxed::NO_SIGNALS],
        );
    }
}

/// Threads get the filter that have not asked for it, in the middle of what they do.
#[test]
fn filters_that_come_to_all_threads() {
    let off = sandboxed::FILTERED | sandboxed::OFF_NO_CLOCK;
    same("tsync process few", &[off]);
    same("tsync trap mute", &[off | sandboxed::NO_SIGNALS]);
    for action in ["process", "trap"] {
        same(&format!("tsync {action} clock"), &[sandboxed::FILTERED]);
    }
}

#[test]
fn filters_that_allow_enough() {
    for action in ["process", "trap"] {
        same(&format!("raw-prctl {action} clock"), &[sandboxed::FILTERED]);
    }
    same("seccomp log few", &[sandboxed::FILTERED]);
}

/// The program forks, makes threads, and waits.
#[test]
fn filters_that_refuse_what_the_agent_alone_calls() {
    let filtered = sandboxed::FILTERED;
    for action in ["process", "trap", "errno"] {
        same(&format!("prctl {action} most"), &[filtered, filtered]);
        same(&format!("tsync {action} split"), &[filtered, filtered]);
    }
}

#[test]
fn filters_that_the_kernel_refuses() {
    let filtered = sandboxed::FILTERED;
    same("prctl process refused", &[filtered, 0, filtered]);
}

/// The next image is under the filter from its start.
#[test]
fn images_under_a_filter() {
    let filtered = sandboxed::FILTERED;
    for action in ["process", "trap", "errno"] {
        same(&format!("prctl {action} exec"), &[filtered; 4]);
    }
}
