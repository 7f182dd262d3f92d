//! The functions of the header, called by a program of C.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use stackbeat_apple_app::api::Options;
use stackbeat_model::{Segment, StackIndex, ThreadIndex, Trace, Visitor};
use stackbeat_proto::v1::{Event, event::Kind};

use super::{compile, library_folder};
use crate::linkers::programs;

#[derive(Default)]
struct Marks(Vec<String>);

impl Visitor for Marks {
    fn segment(&mut self, _: &Trace, _: &Segment) {}

    fn event(&mut self, _: &Trace, _: Option<ThreadIndex>, event: &Event, _: StackIndex) {
        if event.kind() == Kind::Mark {
            self.0.push(event.name.clone());
        }
    }
}

/// Names of the marks in a trace that is complete.
fn marks(path: &Path) -> Vec<String> {
    let trace = Trace::open(path).expect("a trace");
    assert!(trace.footer().is_some() && trace.damage().is_empty());
    let mut marks = Marks::default();
    trace.visit(&mut marks).expect("it can be read");
    marks.0
}

#[test]
fn a_program_records_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("app");
    let libraries = library_folder();
    let search = format!("-L{}", libraries.display());
    let source = programs().join("app.c");
    compile(
        &["cc", "-std=gnu99"],
        &source,
        &program,
        &[&search, "-lstackbeat_apple_app"],
    );
    let run = |others: &[&str]| {
        let mut command = Command::new(&program);
        command.arg(folder.path()).args(others);
        command.env("LD_LIBRARY_PATH", &libraries);
        command.output().expect("it runs")
    };
    let killed = run(&["is killed"]);
    assert_eq!(killed.status.signal(), Some(9), "{killed:?}");
    let output = run(&[]);
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    let [none, tea, present, status] = said.lines().collect::<Vec<_>>()[..] else {
        panic!("{said}");
    };
    assert!(none.contains("call stackbeat_app_start first"), "{none}");
    assert!(
        tea.contains("`tea` is no group of probes: alloc, memory, lock"),
        "{tea}"
    );
    assert!(present.contains("has a session already"), "{present}");
    let status: serde_json::Value = serde_json::from_str(status).expect("JSON");
    assert_eq!(status["interval_ns"], 3_000_000);
    assert_eq!(status["probes"], serde_json::json!(["lock", "wait"]));
    let at = |name: &str| folder.path().join(name);
    // What the last run left is completed by this one.
    assert_eq!(marks(&at("killed.beat")), ["before it is killed"]);
    assert_eq!(marks(&at("dump.beat")), ["first mark"]);
    assert_eq!(marks(&at("first.beat")), ["first mark", "last mark"]);
    assert_eq!(marks(&at("second.beat")), ["second session"]);
    assert_eq!(marks(&at("third.beat")), ["third session"]);
}

/// Its initializer waits for nothing: glibc, like dyld, runs it with a lock held that threads of the session
/// need, too.
#[test]
fn a_library_that_comes_with_dlopen_begins_a_session() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("loads");
    let source = programs().join("loads.c");
    let others = ["-rdynamic", "-ldl", "-pthread"];
    compile(&["cc", "-std=gnu11"], &source, &program, &others);
    let trace = folder.path().join("app.beat");
    let output = Command::new(&program)
        .arg(library_folder().join("libstackbeat_apple_app.so"))
        .env("STACKBEAT_RECORD", "1")
        .env("STACKBEAT_OUTPUT", &trace)
        .output()
        .expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    assert_eq!(marks(&trace), ["loaded"]);
}

/// The header's structure is the library's.
#[test]
fn options_have_the_headers_layout() {
    let folder = tempfile::tempdir().expect("a folder");
    let fields = [
        ("bytes", std::mem::offset_of!(Options, bytes)),
        ("output", std::mem::offset_of!(Options, output)),
        ("interval_ns", std::mem::offset_of!(Options, interval_ns)),
        (
            "main_interval_ns",
            std::mem::offset_of!(Options, main_interval_ns),
        ),
        (
            "budget_percent",
            std::mem::offset_of!(Options, budget_percent),
        ),
        ("probes", std::mem::offset_of!(Options, probes)),
        ("duration_ns", std::mem::offset_of!(Options, duration_ns)),
        (
            "start_disabled",
            std::mem::offset_of!(Options, start_disabled),
        ),
    ];
    let mut code = format!(
        "#include \"stackbeat_app.h\"\nstackbeat_app_options all = STACKBEAT_APP_OPTIONS;\n\
         static_assert(sizeof(stackbeat_app_options) == {}, \"size\");\n",
        size_of::<Options>()
    );
    for (name, offset) in fields {
        code += &format!(
            "static_assert(offsetof(stackbeat_app_options, {name}) == {offset}, \"{name}\");\n"
        );
    }
    let source = folder.path().join("layout.cc");
    std::fs::write(&source, code).expect("written");
    compile(
        &["c++", "-std=c++11", "-c"],
        &source,
        &folder.path().join("layout.o"),
        &[],
    );
}
