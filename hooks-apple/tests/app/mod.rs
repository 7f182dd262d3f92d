//! The library for an app in a program of C, on Linux: sessions begin, are steered and end as an app asks for
//! it. What hooks record is tested beside this.

mod c_api;
mod noop;

use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the library's package.
fn package() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../apple")
}

/// Compiles a program with the header.
fn compile(compiler: &[&str], source: &Path, to: &Path, others: &[&str]) {
    let output = Command::new(compiler[0])
        .args(&compiler[1..])
        .args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-I"])
        .arg(package().join("include"))
        .arg("-o")
        .arg(to)
        .arg(source)
        .args(others)
        .output()
        .expect("a compiler");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// What cargo has built beside the test.
fn library_folder() -> PathBuf {
    let test = std::env::current_exe().expect("known");
    test.parent().expect("a folder").to_owned()
}
