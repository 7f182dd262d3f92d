//! `stackbeat attach` to programs that see other files than the recorder: in a container, in a chroot.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use stackbeat_tests::compile_file;
use stackbeat_tests::tool::{binary, stackbeat};

/// The program whose functions are asked for.
fn spinners(folder: &Path) -> PathBuf {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/attach/spinners.c");
    compile_file(folder, Path::new(source), &["-O2", "-pthread"])
}

/// `sh` with mounts of its own; `None`: nobody may have them here.
fn apart(script: &str, arguments: &[&Path]) -> Option<Command> {
    let mut try_it = Command::new("unshare");
    let status = try_it
        .args(["--mount", "true"])
        .stderr(Stdio::null())
        .status();
    if !status.is_ok_and(|status| status.success()) {
        eprintln!("no mounts of one's own here");
        return None;
    }
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-ec", script, "sh"])
        .args(arguments);
    Some(command)
}

#[track_caller]
fn assert_spin_is_named(folder: &Path) {
    let output = stackbeat(folder, &["report", "t.beat"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("spin"), "{said}");
}

#[test]
fn a_program_in_a_container_has_the_names_of_its_own_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let (program, inside) = (spinners(at), at.join("inside"));
    fs::create_dir(&inside).expect("made");
    let script = r#"mount -t tmpfs none "$2"; cp "$1" "$2/program"; exec "$2/program""#;
    let Some(mut command) = apart(script, &[&program, &inside]) else {
        return;
    };
    let mut child = command.stdout(Stdio::piped()).spawn().expect("starts");
    let mut said = [0; 8];
    let mut stdout = child.stdout.take().expect("piped");
    stdout.read_exact(&mut said).expect("it says that it runs");
    assert!(!inside.join("program").exists());
    let pid = child.id().to_string();
    let output = stackbeat(at, &["attach", "-d", "500ms", "-o", "t.beat", &pid]);
    child.kill().expect("is ours");
    child.wait().expect("waited for");
    assert!(output.status.success(), "{output:?}");
    assert_spin_is_named(at);
}

/// With /proc, which the agent needs.
#[test]
fn a_program_in_a_chroot_is_recorded() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let program = spinners(at);
    let jail = at.join("jail");
    for inside in ["proc", "tmp"] {
        fs::create_dir_all(jail.join(inside)).expect("made");
    }
    let files = Command::new("ldd").arg(&program).output().expect("runs");
    let files = String::from_utf8(files.stdout).expect("text");
    let files = files
        .split_whitespace()
        .filter(|word| word.starts_with('/'));
    for file in files.map(Path::new) {
        let copy = jail.join(file.strip_prefix("/").expect("absolute"));
        fs::create_dir_all(copy.parent().expect("a folder")).expect("made");
        fs::copy(file, copy).expect("copied");
    }
    fs::rename(&program, jail.join("program")).expect("moved");
    let script = r#"
        mount -t proc none "$2/proc"
        chroot "$2" /program >"$3/said" &
        until grep -q running "$3/said"; do sleep 0.01; done
        "$1" attach -d 500ms -o "$3/t.beat" $! || status=$?
        kill -KILL $!
        exit ${status:-0}"#;
    let Some(mut command) = apart(script, &[Path::new(binary()), &jail, at]) else {
        return;
    };
    let output = command.output().expect("runs");
    assert!(output.status.success(), "{output:?}");
    assert_spin_is_named(at);
}
