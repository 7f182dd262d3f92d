//! `stackbeat.h` as C99, C11 and C++, strict and not, with and without the no-op build.

use std::fs;
use std::path::Path;
use std::process::Command;

const PROGRAM: &str = r#"
#include "stackbeat.h"
int main(void) {
    int queue = 3;
    stackbeat_mark("a");
    stackbeat_mark_value("b", queue);
    stackbeat_scope_begin("c");
    stackbeat_counter("d", queue);
    stackbeat_scope_end();
    stackbeat_flow_begin("e", 7u);
    stackbeat_flow_step("e", 7u);
    stackbeat_flow_end("e", 7u);
    stackbeat_async_begin("g", 8u);
    stackbeat_async_end("g", 8u);
    stackbeat_capture();
    SCOPE
    return stackbeat_is_active();
}
"#;

/// Compiles; gives the program's own undefined symbols.
fn undefined(folder: &Path, compiler: &str, file: &str, options: &[&str]) -> String {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let object = folder.join("a.o");
    let warnings = ["-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror"];
    let output = Command::new(compiler)
        .args(warnings)
        .args(options)
        .arg("-I")
        .arg(include)
        .args(["-c", "-O1", "-o"])
        .arg(&object)
        .arg(folder.join(file))
        .output()
        .expect("a compiler is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{compiler} {options:?}: {said}");
    let nm = Command::new("nm").arg("-u").arg(&object).output();
    String::from_utf8_lossy(&nm.expect("nm is installed").stdout).into_owned()
}

#[test]
fn every_dialect_compiles_without_a_warning_and_noop_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, scope: &str| {
        fs::write(folder.path().join(name), PROGRAM.replace("SCOPE", scope)).expect("writes");
    };
    write("a.c", "{ STACKBEAT_SCOPE(\"f\"); }");
    write("strict.c", "");
    write("a.cpp", "{ STACKBEAT_SCOPE(\"f\"); }");
    for (compiler, file, options) in [
        ("gcc", "strict.c", &["-std=c99", "-pedantic"][..]),
        ("gcc", "strict.c", &["-std=c11", "-pedantic"]),
        ("gcc", "a.c", &["-std=gnu17"]),
        ("g++", "a.cpp", &["-std=c++11", "-pedantic"]),
        (
            "g++",
            "a.cpp",
            &["-std=c++20", "-pedantic", "-fno-exceptions"],
        ),
    ] {
        let uses = undefined(folder.path(), compiler, file, options);
        assert!(uses.contains("dlsym"), "{uses}");
        let mut noop = options.to_vec();
        noop.push("-DSTACKBEAT_NOOP");
        let uses = undefined(folder.path(), compiler, file, &noop);
        assert_eq!(uses.trim(), "", "{compiler} {options:?}");
    }
}

#[test]
fn without_an_agent_everything_does_nothing() {
    let _scope = crate::scope("a");
    crate::mark("b");
    crate::mark_value("b", 1);
    crate::counter("c", 2);
    crate::flow_begin("d", 1);
    crate::flow_step("d", 1);
    crate::flow_end("d", 1);
    crate::async_begin("e", 1);
    crate::async_end("e", 1);
    crate::capture();
    assert!(!crate::is_active());
}

/// Whoever attaches looks for the slots in the sections of this name: one word for the crate, one for each
/// file that includes the header.
#[test]
#[cfg(all(target_os = "linux", not(feature = "noop")))]
fn slots_lie_in_sections_of_their_own() {
    crate::mark("a");
    crate::capture();
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("a.cpp"), PROGRAM.replace("SCOPE", "")).expect("writes");
    undefined(folder.path(), "g++", "a.cpp", &["-std=c++17"]);
    let own = std::env::current_exe().expect("a path");
    for file in [own, folder.path().join("a.o")] {
        let output = Command::new("readelf")
            .args(["--sections", "--wide"])
            .arg(&file)
            .output();
        let text = String::from_utf8_lossy(&output.expect("readelf runs").stdout).into_owned();
        for name in ["stackbeat_v1_event", "stackbeat_v1_capture"] {
            let line = text.lines().find(|l| l.contains(&format!(" {name} ")));
            let line = line.unwrap_or_else(|| panic!("{name} in {}", file.display()));
            // Type, address, offset, size, entry size, flags.
            let fields: Vec<_> = line.split_ascii_whitespace().rev().collect();
            assert_eq!((fields[5], fields[3]), ("000008", "WA"), "{line}");
        }
    }
}
