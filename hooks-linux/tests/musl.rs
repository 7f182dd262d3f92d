//! The agent asks nothing of libc that another one lacks: musl and older versions of glibc load it.

use stackbeat_core::shm::registry;
use stackbeat_tests::c_programs::{Session, agent, assert_same, run, source};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles `tests/programs/FILE` for musl.
fn compile(folder: &Path, file: &str) -> PathBuf {
    let out = folder.join(file.trim_end_matches(".c"));
    let status = Command::new("musl-gcc")
        .args(["-O2", "-w", "-pthread", "-o"])
        .args([&out, &source(file)])
        .status()
        .expect("musl-gcc runs (scripts/install-test-packages.sh)");
    assert!(status.success(), "{file} does not compile");
    out
}

#[test]
fn programs_of_musl_do_what_they_do() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for file in [
        "altstack.c",
        "churn.c",
        "clone.c",
        "life.c",
        "raw_handler.c",
        "signals.c",
    ] {
        let program = compile(folder.path(), file);
        let plain = run(&mut Command::new(&program));
        let session = Session::new().capture_all();
        let hooked = run(&mut session.command(&program));
        assert_same(file, &plain, &hooked);
        // It has no session: what it would capture leans on glibc's threads.
        assert_eq!(registry::processes(&session.mapping).count(), 0, "{file}");
    }
}

#[test]
fn a_recorded_shell_runs_them() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compile(folder.path(), "life.c");
    let script = format!(
        "{0}; echo status $?; {0} | wc -l; exec {0}",
        program.display()
    );
    let shell = Path::new("/bin/sh");
    let plain = run(Command::new(shell).args(["-c", &script]));
    let session = Session::new().capture_all();
    let hooked = run(session.command(shell).args(["-c", &script]));
    assert_same("sh", &plain, &hooked);
    assert!(registry::processes(&session.mapping).count() > 0);
}

/// A symbol without version is found in any glibc that has one of the name; one that is missing ends the
/// program.
#[test]
fn it_demands_what_every_libc_has() {
    /// All of them are in glibc 2.17 and in musl.
    const ALWAYS_THERE: [&str; 23] = [
        "__errno_location",
        "__tls_get_addr",
        "bcmp",
        "dl_iterate_phdr",
        "environ",
        "getauxval",
        "getcwd",
        "getenv",
        "lseek64",
        "memcpy",
        "memmove",
        "memset",
        "pthread_attr_destroy",
        "pthread_attr_init",
        "pthread_self",
        "readlink",
        "realpath",
        "setenv",
        "sigaddset",
        "sigdelset",
        "sigemptyset",
        "sigismember",
        "strlen",
    ];
    let output = Command::new("readelf")
        .args(["-W", "--dyn-syms", "--dynamic"])
        .arg(agent())
        .output()
        .expect("readelf runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut needed = Vec::new();
    let mut demanded = Vec::new();
    for line in text.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            [_, "(NEEDED)", .., name] => needed.push(name.to_owned()),
            [_, _, _, _, "GLOBAL", _, "UND", name] => demanded.push(name.to_owned()),
            [_, _, _, _, _, _, "UND", name] => {
                assert!(!name.contains('@'), "{name} has a version");
            }
            _ => {}
        }
    }
    assert_eq!(needed, ["[libc.so.6]"]);
    assert!(demanded.iter().any(|name| name == "memcpy"), "{text}");
    demanded.retain(|name| !ALWAYS_THERE.contains(&name.as_str()));
    assert!(demanded.is_empty(), "{demanded:?}");
}
