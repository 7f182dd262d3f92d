//! Qualified names that are made of sources, because older interpreters have none: they are those that Python
//! gives.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use serde_json::Value;
use stackbeat_symbolize::python::{self, Method};
use stackbeat_tests::tool::{stackbeat, text};
use stackbeat_tests::tool_json::array;
use stackbeat_tests::{report, scratch};

use super::interpreters;

/// Name, first line, first and last line of the line table, qualified name.
type Code = (String, u32, u32, u32, String);

/// The first version that says names itself. Later ones compile comprehensions into what they stand in.
const WITH_NAMES: (u32, u32) = (3, 11);

#[test]
fn each_name_made_of_a_source_is_the_one_that_python_gives() {
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/python/qualified_names.py"
    );
    let one_each: BTreeMap<_, _> = interpreters().into_iter().map(|(at, v)| (v, at)).collect();
    let comparable = one_each.range(..=WITH_NAMES);
    assert_ne!(comparable.clone().count(), 0, "no Python up to 3.11");
    for (version, interpreter) in comparable {
        let python = |arguments: &[&str]| {
            let asked = Command::new(interpreter).args(arguments).output();
            let asked = asked.expect("Python runs");
            assert!(asked.status.success(), "{}", text(&asked.stderr));
            text(&asked.stdout)
        };
        let library = python(&["-c", "import os; print(os.path.dirname(os.__file__))"]);
        let output = python(&[script, library.trim()]);
        let (mut all, mut named) = (0usize, 0usize);
        for line in output.lines() {
            let (file, codes): (String, Vec<Code>) = serde_json::from_str(line).expect("JSON");
            let methods = codes.iter().map(|(name, first_line, from, to, _)| Method {
                name,
                file: &file,
                first_line: *first_line,
                lines: *from..*to + 1,
            });
            let methods: Vec<_> = methods.collect();
            let names = python::qualified_names(&methods, SystemTime::now());
            for ((_, line, .., expected), name) in codes.iter().zip(names) {
                all += 1;
                named += usize::from(name.is_some());
                assert_eq!(name.as_ref().unwrap_or(expected), expected, "{file}:{line}");
            }
        }
        let percent = 100.0 * named as f64 / all as f64;
        eprintln!("{version:?}: {named} of {all} functions are named ({percent:.2} %)");
        assert!(all > 5_000 && percent >= 99.0, "{named} of {all}");
    }
}

/// The names of the functions of a file that use the processor.
fn functions(trace: &Path, file: &str) -> Vec<String> {
    let report = report(trace);
    let of_file = array(&report, "functions").filter(|f| f["file"] == file);
    let text = |function: &Value| function["name"].as_str().expect("a name").to_owned();
    let mut names: Vec<_> = of_file.map(text).collect();
    names.sort();
    names
}

#[test]
fn methods_of_older_pythons_have_their_classes() {
    const SHOP: &str = r"
import os, sys, time

class Shop:
    class Till:
        @property
        def sum(self):
            return sum(i * i for i in range(20000))

    def run(self):
        def helper():
            return max([i * i for i in range(20000)])
        return [helper(), self.Till().sum][0]

until = time.monotonic() + 1
if sys.argv[1:]:
    os.utime(__file__)
while time.monotonic() < until:
    Shop().run()
";
    for (python, version) in interpreters() {
        if version >= WITH_NAMES {
            continue;
        }
        let folder = scratch();
        let script = folder.path().join("shop.py");
        let script = script.to_str().expect("UTF-8");
        std::fs::write(script, SHOP).expect("written");
        let python = python.to_str().expect("UTF-8");
        let record = |trace: &str, options: &[&str], more: &[&str]| {
            let recorder = ["record", "-q", "-o", trace];
            let program = ["--", python, script];
            let output = stackbeat(
                folder.path(),
                &[&recorder, options, &program, more].concat(),
            );
            assert!(output.status.success(), "{}", text(&output.stderr));
            functions(&folder.path().join(trace), script)
        };
        for (trace, options) in [("t.beat", &[][..]), ("inside.beat", &["--in-process"])] {
            let names = record(trace, options, &[]);
            for name in [
                "Shop.Till.sum.<locals>.<genexpr>",
                "Shop.run",
                "Shop.run.<locals>.helper.<locals>.<listcomp>",
            ] {
                let is_there = names.iter().any(|found| found == name);
                assert!(is_there, "{trace}: {name}: {names:?}");
            }
        }
        // Nobody knows whether it is still the same.
        let names = record("changed.beat", &[], &["touch"]);
        assert!(names.iter().any(|found| found == "run"), "{names:?}");
        assert!(
            names.iter().all(|found| !found.contains("Shop.")),
            "{names:?}"
        );
    }
}
