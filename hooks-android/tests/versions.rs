//! The table of ART's functions by version: against names that a compiler makes of AOSP's declarations, and
//! against real libraries.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use stackbeat_android::art::symbols::Symbols;
use stackbeat_android::art::versions::{NEWEST, OLDEST, ROWS, of_library};

fn run(command: &mut Command) -> String {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The names that the declarations of a version ask for.
fn declared(version: u8, is_device: bool) -> BTreeSet<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let object = folder.path().join("declarations.o");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/art_declarations.cc");
    let mut compile = Command::new("g++");
    compile.args(["-std=c++17", "-c", &format!("-DVERSION={version}"), "-o"]);
    compile.arg(&object).arg(source);
    if is_device {
        compile.arg("-DDEVICE");
    }
    run(&mut compile);
    let names = run(Command::new("nm").arg("-u").arg(&object));
    let names = names
        .lines()
        .filter_map(|line| line.trim().strip_prefix("U "));
    names.map(str::to_owned).collect()
}

#[test]
fn names_are_those_of_the_declarations() {
    for version in OLDEST..=NEWEST {
        let (device, host) = (declared(version, true), declared(version, false));
        for row in ROWS.iter().filter(|row| row.is_of(version)) {
            let on_host = row.host.unwrap_or(row.device);
            for (names, name) in [(&device, row.device), (&host, on_host)] {
                let function = row.function;
                assert!(
                    names.contains(name),
                    "Android {version}, {function:?}: {name}"
                );
            }
        }
    }
}

#[test]
fn rows_of_a_function_do_not_overlap() {
    for version in OLDEST..=NEWEST {
        let rows = ROWS.iter().filter(|row| row.is_of(version));
        let functions: Vec<_> = rows.map(|row| row.function).collect();
        let different: BTreeSet<_> = functions.iter().collect();
        assert_eq!(functions.len(), different.len(), "Android {version}");
    }
}

#[test]
fn real_libraries_have_all_of_their_version() {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/art");
    for version in [11, 14] {
        let library = folder.join(format!("{version}/lib/libart.so.0"));
        if !library.is_file() {
            eprintln!(
                "skipped: no ART {version} is here, scripts/install-art.sh target/art gets it"
            );
            continue;
        }
        let names: Vec<&str> = ROWS.iter().flat_map(|row| row.names()).collect();
        let symbols = Symbols::of_file(&library, &names).expect("an ELF file");
        let is_there = |name: &str| symbols.get(name).is_some();
        for row in ROWS.iter().filter(|row| row.is_of(version)) {
            assert!(
                row.names().any(is_there),
                "ART {version} lacks {:?}",
                row.function
            );
        }
        // Some versions have the same functions.
        let found = of_library(is_there).expect("a version");
        assert!(
            ROWS.iter()
                .all(|row| row.is_of(found) == row.is_of(version)),
            "{found}"
        );
    }
}
