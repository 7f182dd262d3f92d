//! The table of the framework's functions by version: against names that a compiler makes of AOSP's
//! declarations.

use std::path::Path;
use std::process::Command;

use stackbeat_android::art::symbols::Symbols;
use stackbeat_android::art::versions::{NEWEST, OLDEST};
use stackbeat_android::framework::table::{Function, ROWS};

#[test]
fn names_are_those_of_the_declarations() {
    let folder = tempfile::tempdir().expect("a folder");
    for version in OLDEST..=NEWEST {
        for function in Function::ALL {
            let part = match function {
                Function::PollOnce => "-DLIBUTILS",
                Function::DispatchVsync => "-DLIBANDROID_RUNTIME",
                Function::Transact => "-DLIBBINDER",
            };
            let library = folder.path().join(function.library());
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/framework.cc");
            let status = Command::new("g++")
                .args(["-std=c++17", "-fPIC", "-shared", part])
                .arg(format!("-DVERSION={version}"))
                .arg("-o")
                .args([&library, &source])
                .status();
            assert!(status.expect("g++ runs").success());
            let rows = || ROWS.iter().filter(|row| row.function == function);
            let names: Vec<&str> = rows().map(|row| row.symbol).collect();
            let symbols = Symbols::of_file(&library, &names).expect("a library");
            // The row of this version is there, and no other one's.
            for row in rows() {
                assert_eq!(
                    symbols.get(row.symbol).is_some(),
                    (row.versions.0..=row.versions.1).contains(&version),
                    "Android {version}: {}",
                    row.symbol
                );
            }
        }
    }
}
