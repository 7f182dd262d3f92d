//! Frames whose memory comes and goes while they are read, beside whatever a program does about such faults
//! itself. Nothing of this is to be felt by the program.

use std::path::Path;

use stackbeat_tests::plain_reader::Trace;
use stackbeat_tests::tool::{binary, stackbeat, text};
use stackbeat_tests::{compile, scratch};

use super::managed;

/// Compiles the interpreter and the program into a folder.
fn program(folder: &Path) -> String {
    let interpreter = ["-shared", "-fPIC"];
    let library = compile(
        folder,
        "libpython_stale.c",
        include_str!("stale_interpreter.c"),
        &interpreter,
    );
    let library = library.to_str().expect("UTF-8");
    let program = compile(
        folder,
        "stale_frames.c",
        include_str!("stale_frames.c"),
        &["-pthread", "-Wno-unused-result", library],
    );
    program.to_str().expect("UTF-8").to_owned()
}

/// Records the program with a way to handle faults, at an interval that catches reads in the middle of
/// changes.
fn record(folder: &Path, program: &str, handler: &str) -> std::process::Output {
    let trace = format!("{handler}.beat");
    let arguments = [
        "record",
        "-q",
        "--interval",
        "100us",
        "-o",
        &trace,
        "--",
        program,
        handler,
        "700",
    ];
    stackbeat(folder, &arguments)
}

/// Stacks with and without the frames that come and go.
fn assert_frames(folder: &Path, handler: &str) {
    let trace = Trace::read(&folder.join(format!("{handler}.beat")));
    let stacks = trace
        .all_samples()
        .map(|(_, row)| managed(&trace, row.node));
    let (mut whole, mut with_lost) = (0, 0);
    for stack in stacks.filter(|stack| !stack.is_empty()) {
        let names: Vec<&str> = stack.iter().map(|(name, _)| name.as_str()).collect();
        match names[..] {
            ["stays", "stays" | "comes_and_goes", "stays"] => whole += 1,
            // What cannot be read is left out, with all of its call.
            _ => panic!("{handler}: {names:?}"),
        }
        with_lost += usize::from(names.contains(&"comes_and_goes"));
    }
    assert!(
        whole > 100 && with_lost > 10,
        "{handler}: {whole} {with_lost}"
    );
}

#[test]
fn frames_whose_memory_goes_away_do_no_harm_beside_any_handler_of_faults() {
    let folder = scratch();
    let program = program(folder.path());
    for handler in ["default", "own", "plain", "once", "raw", "blocked"] {
        let output = record(folder.path(), &program, handler);
        let (said, errors) = (text(&output.stdout), text(&output.stderr));
        assert!(
            output.status.success(),
            "{handler}: {:?} {said} {errors}",
            output.status
        );
        assert!(said.starts_with("ok "), "{handler}: {said}");
        assert_frames(folder.path(), handler);
    }
}

/// A real fault ends the program as it would without us.
#[test]
fn a_fault_of_the_programs_own_ends_it() {
    use std::os::unix::process::ExitStatusExt;

    let folder = scratch();
    let program = program(folder.path());
    let output = record(folder.path(), &program, "crash");
    assert!(text(&output.stdout).starts_with("ok "), "{output:?}");
    let signal = output
        .status
        .signal()
        .or(output.status.code().map(|code| code - 128));
    assert_eq!(signal, Some(libc::SIGSEGV), "{} {output:?}", binary());
    assert_frames(folder.path(), "crash");
}
