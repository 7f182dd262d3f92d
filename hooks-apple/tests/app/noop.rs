//! The product for release builds: the same functions, which do nothing.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use super::{compile, package};
use crate::linkers::programs;

/// Functions that a header declares, or a library defines.
fn functions(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .filter(|word| word.starts_with("stackbeat_app_") && *word != "stackbeat_app_options")
        .map(str::to_owned)
        .collect()
}

fn library(to: &Path) {
    let source = package().join("swift/Sources/CStackbeatNoop/noop.c");
    compile(&["cc", "-std=c99", "-c", "-O2"], &source, to, &[]);
}

#[test]
fn it_has_all_functions_of_the_header_and_asks_for_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let object = folder.path().join("noop.o");
    library(&object);
    let symbols = Command::new("nm").arg(&object).output().expect("nm");
    let symbols = String::from_utf8_lossy(&symbols.stdout).into_owned();
    assert!(!symbols.contains(" U "), "{symbols}");
    let header = std::fs::read_to_string(package().join("include/stackbeat_app.h")).expect("there");
    let declared: BTreeSet<_> = header
        .lines()
        .filter(|line| line.ends_with(");") && !line.starts_with(' '))
        .flat_map(functions)
        .collect();
    assert_eq!(functions(&symbols), declared);
    assert!(declared.len() >= 8, "{declared:?}");
}

#[test]
fn a_program_runs_with_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let (object, program) = (folder.path().join("noop.o"), folder.path().join("app"));
    library(&object);
    let source = programs().join("app.c");
    let object = object.display().to_string();
    compile(&["cc", "-std=gnu99"], &source, &program, &[&object]);
    let output = Command::new(&program).arg(folder.path()).output();
    let output = output.expect("it runs");
    // Its first start fails with a reason, as the header says.
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("start: this build has no stackbeat"),
        "{said}"
    );
    assert!(!folder.path().join("first.beat").exists());
}
