//! Code that is compiled at run time, named by `/tmp/perf-PID.map`.

mod source_maps;

use serde_json::Value;
use stackbeat_tests::tool_json::{array, number};
use stackbeat_tests::{Program, compile, report, scratch, stackbeat, target_folder};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

fn program(folder: &Path) -> PathBuf {
    compile(folder, "replaced.c", include_str!("replaced.c"), &[])
}

fn remove_map(said: &str) {
    let pid = said.lines().next().expect("the pid");
    // It may be gone.
    let _ = std::fs::remove_file(format!("/tmp/perf-{pid}.map"));
}

/// Milliseconds of CPU of a function: its own, and with what it calls.
fn cpu_ms(report: &Value, name: &str) -> (u64, u64) {
    let mut functions = array(report, "functions");
    let function = functions.find(|function| function["name"] == name);
    let function = function.unwrap_or_else(|| panic!("no {name}: {report:#}"));
    let ms = |part| number(&function[part], "cpu_ns") / 1_000_000;
    (ms("self"), ms("total"))
}

/// Both functions ran as long. On a busy machine some of their time counts as that of the calls in between.
#[track_caller]
fn assert_both_are_there(trace: &Path, ms: u64) {
    let report = report(trace);
    let functions = ["compiled first", "compiled second"].map(|name| cpu_ms(&report, name));
    for (own, total) in functions {
        assert!(own > total / 8 && own < total * 9 / 10, "{functions:?}");
    }
    let [(_, first), (_, second)] = functions;
    assert!(first + second > ms, "{functions:?} ms");
    // Half of each in truth. Where the processors are busy a change of the code falls between two samples
    // further apart.
    assert!(
        first.abs_diff(second) < (first + second) / 3,
        "{functions:?} ms"
    );
}

#[test]
fn each_sample_has_the_name_that_its_code_had_then() {
    let folder = scratch();
    let program = program(folder.path());
    for arguments in [
        &["0.2", "1"][..],
        &["0.03", "7"],
        // The map is gone before the program ends.
        &["0.2", "1", "remove"],
    ] {
        let command = [&[program.to_str().expect("UTF-8")], arguments].concat();
        let recorded = Program::new(command).record(folder.path());
        remove_map(&recorded.run.stdout());
        assert!(recorded.run.output.status.success());
        assert_both_are_there(&recorded.trace, 205);
        let report = report(&recorded.trace);
        let of_code = array(&report, "functions").filter(|function| {
            let name = function["name"].as_str().expect("a name");
            name.starts_with("compiled ")
        });
        // They are managed frames, of a runtime that nobody knows.
        let modules = of_code.map(|function| &function["module"]);
        assert!(modules.eq(["managed", "managed"]), "{report:#}");
    }
}

/// Names are written while the program runs: after the death of recorder and program, and without the map,
/// nothing but the trace has them. Nor has a dump anything else.
#[test]
fn names_outlive_the_recorder_and_the_map() {
    let folder = scratch();
    let program = program(folder.path());
    let mut recorder = Command::new(stackbeat());
    recorder.args(["record", "-q", "--mode", "ring", "-o", "t.beat", "--"]);
    recorder
        .arg(program)
        .args(["0.2", "1000", "remove"])
        .current_dir(folder.path());
    let mut recorder = recorder.stdout(Stdio::piped()).spawn().expect("started");
    let mut said = String::new();
    let said_by = recorder.stdout.as_mut().expect("a pipe");
    BufReader::new(said_by).read_line(&mut said).expect("said");
    let pid = said.trim();
    // Both have run, and a pass has seen it.
    std::thread::sleep(Duration::from_secs(2));
    assert!(!Path::new(&format!("/tmp/perf-{pid}.map")).exists());
    let dump = stackbeat_tests::tool::stackbeat(folder.path(), &["dump", pid, "-o", "d.beat"]);
    assert!(dump.status.success(), "{dump:?}");
    recorder.kill().expect("it still runs");
    recorder.wait().expect("it ended");
    let killed = Command::new("kill").args(["-KILL", pid]).status();
    assert!(killed.expect("kill runs").success());
    let arguments = ["recover", "t.beat", "-o", "r.beat"];
    let recovered = stackbeat_tests::tool::stackbeat(folder.path(), &arguments);
    assert!(recovered.status.success(), "{recovered:?}");
    for trace in ["d.beat", "r.beat"] {
        assert_both_are_there(&folder.path().join(trace), 300);
    }
}

/// Most of a small function's time it has no frame: its caller is on the stack all the same.
#[test]
fn a_small_function_of_v8s_has_its_caller() {
    let folder = scratch();
    let source = "let sum = 0;
        function leaf(x) { sum += x & 3; return sum; }
        function middle(n) { let r = 0; for (let i = 0; i < n; i++) r += leaf(i); return r; }
        const until = Date.now() + 1500;
        while (Date.now() < until) middle(100000);";
    std::fs::write(folder.path().join("work.js"), source).expect("written");
    let command =
        "record -q -o t.beat --interval 1ms -- node --max-inlined-bytecode-size=0 work.js";
    let words: Vec<&str> = command.split(' ').collect();
    let output = stackbeat_tests::tool::stackbeat(folder.path(), &words);
    assert!(output.status.success(), "{output:?}");
    let words = ["export", "--to", "folded", "-o", "-", "t.beat"];
    let folded = stackbeat_tests::tool::stackbeat(folder.path(), &words).stdout;
    let folded = stackbeat_tests::tool::text(&folded);
    let (mut all_ns, mut whole_ns) = (0, 0);
    for line in folded.lines() {
        let (stack, ns) = line.rsplit_once(' ').expect("a stack and a number");
        let mut frames = stack.rsplit(';');
        if frames.next().is_some_and(|leaf| leaf.starts_with("leaf")) {
            let ns: u64 = ns.parse().expect("a number");
            all_ns += ns;
            let is_whole = frames
                .next()
                .is_some_and(|caller| caller.starts_with("middle"));
            whole_ns += if is_whole { ns } else { 0 };
        }
    }
    assert!(all_ns > 200_000_000, "{folded}");
    assert!(
        whole_ns > all_ns / 100 * 98,
        "{whole_ns} of {all_ns} ns:\n{folded}"
    );
}

/// In a mount namespace: its `/tmp` is not the recorder's.
#[test]
fn a_program_with_files_of_its_own_has_its_names() {
    let folder = tempfile::tempdir_in(target_folder()).expect("a folder");
    let program = program(folder.path());
    let script = "mount -t tmpfs none /tmp && exec \"$0\" 0.2 1";
    let program = program.to_str().expect("UTF-8");
    let command = ["unshare", "-rm", "sh", "-c", script, program];
    let recorded = Program::new(command).record(folder.path());
    assert!(recorded.run.output.status.success());
    let said = recorded.run.stdout();
    let pid = said.lines().next().expect("the pid");
    assert!(!Path::new(&format!("/tmp/perf-{pid}.map")).exists());
    assert_both_are_there(&recorded.trace, 205);
}

#[test]
fn names_from_before_the_recorder_came_are_found() {
    let folder = scratch();
    let trace = folder.path().join("attached.beat");
    let mut running = Command::new(program(folder.path()))
        .args(["60", "1"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut said = String::new();
    let said_by = running.stdout.as_mut().expect("a pipe");
    BufReader::new(said_by).read_line(&mut said).expect("said");
    let attached = Command::new(stackbeat())
        .args(["attach", "--duration", "1s", "-o"])
        .arg(&trace)
        .arg(running.id().to_string())
        .output()
        .expect("stackbeat runs");
    running.kill().expect("it still runs");
    running.wait().expect("it ended");
    remove_map(&said);
    let said = String::from_utf8_lossy(&attached.stderr);
    assert!(attached.status.success(), "{said}");
    let (_, total) = cpu_ms(&report(&trace), "compiled first");
    assert!(total > 0);
}

#[test]
fn code_that_nothing_names_is_summed_up_by_program() {
    let folder = scratch();
    let program = program(folder.path());
    let program = program.to_str().expect("UTF-8");
    // Its map lies where nobody looks.
    let output = stackbeat_tests::tool::stackbeat(
        folder.path(),
        &[
            "record", "-o", "t.beat", "--", program, "0.5", "1", "own.map",
        ],
    );
    let said = stackbeat_tests::tool::text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let hint = "of the running time is generated code without names in replaced: its compiler has to write";
    assert!(said.contains(hint), "{said}");
    let report = report(&folder.path().join("t.beat"));
    let (own, total) = cpu_ms(&report, "[JIT replaced]");
    assert!(
        own > 100 && total > 250,
        "{own} ms, {total} ms with callees"
    );
    let nameless = array(&report, "functions").filter(|function| {
        let name = function["name"].as_str().unwrap_or_default();
        name.starts_with("0x")
    });
    assert_eq!(nameless.count(), 0);
}

/// PHP with its JIT compiler, whose names of functions its own switch gives.
struct Php<'a> {
    folder: &'a Path,
    mode: &'a str,
    names: bool,
}

impl Php<'_> {
    /// Records the script. Gives what it says of each function (name, result, ms of CPU time), the report,
    /// and what the recorder says.
    fn record(&self, arguments: &[&str]) -> (Vec<[String; 3]>, Value, String) {
        let script = self.folder.join("work.php");
        std::fs::write(&script, include_str!("work.php")).expect("written");
        let settings = [
            "opcache.enable_cli=1".to_owned(),
            // A new file is compiled, too.
            "opcache.file_update_protection=0".to_owned(),
            "opcache.jit_buffer_size=16M".to_owned(),
            format!("opcache.jit={}", self.mode),
            format!("opcache.jit_debug={}", if self.names { 16 } else { 0 }),
        ];
        let mut command = vec!["record", "-f", "-o", "t.beat", "--", "php"];
        command.extend(settings.iter().flat_map(|setting| ["-d", setting]));
        command.push(script.to_str().expect("UTF-8"));
        command.extend(arguments);
        let output = stackbeat_tests::tool::stackbeat(self.folder, &command);
        let said = stackbeat_tests::tool::text(&output.stderr);
        assert!(output.status.success(), "{said}");
        let of_function = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            words.try_into().expect("three words")
        };
        let results = stackbeat_tests::tool::text(&output.stdout);
        let results = results.lines().map(of_function).collect();
        let report = report(&self.folder.join("t.beat"));
        let pid = array(&report, "processes").next().expect("a process")["pid"].to_string();
        let map = format!("/tmp/perf-{pid}.map");
        // What the user asks for is the user's.
        assert_eq!(std::fs::remove_file(map).is_ok(), self.names);
        (results, report, said)
    }
}

#[test]
fn php_functions_have_names_where_its_switch_is_set() {
    let folder = scratch();
    let folder = folder.path();
    for mode in ["tracing", "function"] {
        let php = Php {
            folder,
            mode,
            names: true,
        };
        let (results, report, said) = php.record(&["0.6"]);
        assert_eq!(results.len(), 2);
        for [name, _, ms] in &results {
            let ms: u64 = ms.parse().expect("a number");
            let rows = array(&report, "functions").filter(|row| row["name"] == name.as_str());
            // However many traces it has.
            assert_eq!(rows.count(), 1, "{mode}: {name}");
            let (_, total) = cpu_ms(&report, name);
            // On a busy machine few samples stand for it, and the call at its end may have much of it.
            assert!(
                (ms / 10..ms * 5 / 3).contains(&total),
                "{mode}: {name} took {ms} ms, {total} ms are shown"
            );
        }
        assert!(!said.contains("opcache"), "{said}");
    }
}

#[test]
fn php_without_its_switch_is_told_of_it() {
    let folder = scratch();
    let folder = folder.path();
    let php = Php {
        folder,
        mode: "tracing",
        names: false,
    };
    let hint = "of the running time is generated code without names in php: run it with -d opcache.jit_debug=16";
    let (compiled, report, said) = php.record(&["0.3"]);
    // Of 600 ms and more: on a busy machine the call at its end may have much of it.
    let (own, _) = cpu_ms(&report, "[JIT php]");
    assert!(own > 60, "{own} ms");
    assert!(said.contains(hint), "{said}");
    // Regular expressions have a compiler of their own.
    let php = Php { names: true, ..php };
    let (_, report, said) = php.record(&["0.3", "matches"]);
    let (own, _) = cpu_ms(&report, "[JIT php]");
    assert!(own > 60, "{own} ms");
    assert!(
        said.contains("PHP has named its functions, and regular expressions have no names"),
        "{said}"
    );
    // Without the compiler the interpreter's own function has the time.
    let php = Php {
        mode: "disable",
        names: false,
        ..php
    };
    let (interpreted, report, said) = php.record(&["0.3"]);
    let (_, total) = cpu_ms(&report, "execute_ex");
    assert!(total > 60, "{total} ms");
    assert!(!said.contains("opcache"), "{said}");
    let results = |of: Vec<[String; 3]>| of.into_iter().map(|[name, result, _]| (name, result));
    assert!(results(compiled).eq(results(interpreted)));
}

/// Node.js gets its switches, and what they leave behind is removed.
#[test]
fn javascript_has_names_with_nothing_else_to_type() {
    let folder = scratch();
    let script = folder.path().join("work.js");
    let source = "function interpreted_once() { const until = Date.now() + 150; while (Date.now() < until) {} }
        function compiled_often(n) { let s = 0; for (let i = 0; i < n; i++) s += Math.sqrt(i) % 7; return s; }
        interpreted_once();
        const until = Date.now() + 400;
        while (Date.now() < until) compiled_often(1000);
        const { Worker, isMainThread } = require('worker_threads');
        if (isMainThread) new Worker(__filename).on('exit', () => console.log(process.pid, process.env.NODE_OPTIONS));";
    std::fs::write(&script, source).expect("written");
    let script = script.to_str().expect("UTF-8");
    let record = |options: &[&str]| {
        let command = [
            &["record", "-q", "-f", "-o", "t.beat"],
            options,
            &["--", "node", script],
        ];
        let output = stackbeat_tests::tool::stackbeat(folder.path(), &command.concat());
        assert!(output.status.success(), "{output:?}");
        let said = stackbeat_tests::tool::text(&output.stdout);
        let (pid, node_options) = said.trim().split_once(' ').expect("both");
        let map = PathBuf::from(format!("/tmp/perf-{pid}.map"));
        assert!(!map.exists(), "{} is left", map.display());
        let report = report(&folder.path().join("t.beat"));
        let names: Vec<String> = array(&report, "functions")
            .map(|function| function["name"].as_str().unwrap_or_default().to_owned())
            .collect();
        (node_options.to_owned(), names)
    };
    // V8 begins a log for each thread of JavaScript where it is to write a map.
    let logs = || {
        let files = std::fs::read_dir(folder.path())
            .expect("is there")
            .flatten();
        let names = files.filter_map(|file| file.file_name().into_string().ok());
        names
            .filter(|name| name.starts_with("isolate-"))
            .collect::<Vec<_>>()
    };
    let (options, names) = record(&[]);
    assert_eq!(logs(), [""; 0]);
    assert!(options.ends_with("--perf-basic-prof --interpreted-frames-native-stack"));
    for function in ["interpreted_once", "compiled_often"] {
        // One function, however often it was compiled anew.
        let is_named = names
            .iter()
            .filter(|name| name.contains(function))
            .eq([function]);
        assert!(is_named, "{function}: {names:#?}");
    }
    let report = report(&folder.path().join("t.beat"));
    let mut functions = array(&report, "functions");
    let compiled = functions.find(|function| function["name"] == "compiled_often");
    let compiled = compiled.expect("it was found before");
    assert_eq!(compiled["module"], "node");
    assert_eq!(compiled["file"], script);
    // What the user asks for is the user's.
    let arguments = [
        "record", "-q", "-f", "-o", "t.beat", "--", "node", "--prof", script,
    ];
    let output = stackbeat_tests::tool::stackbeat(folder.path(), &arguments);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(logs().len(), 2, "a profile of each thread: {:?}", logs());
    let arguments = [
        "record",
        "-q",
        "-f",
        "-o",
        "t.beat",
        "--",
        "node",
        "--perf-basic-prof",
        script,
    ];
    let output = stackbeat_tests::tool::stackbeat(folder.path(), &arguments);
    let said = stackbeat_tests::tool::text(&output.stdout);
    let pid = said.split(' ').next().expect("the pid");
    std::fs::remove_file(format!("/tmp/perf-{pid}.map")).expect("it is there");
    let (options, names) = record(&["--no-runtime-options"]);
    assert!(!options.contains("--perf-basic-prof"), "{options}");
    assert!(names.iter().all(|name| !name.contains("compiled_often")));
}

/// V8 maps its builtins a second time, near the code that it makes, for each thread of JavaScript. What they
/// do for a function is the function's.
#[test]
fn builtins_of_v8_have_names_where_it_has_copied_them() {
    const MS: u64 = 1000;

    let folder = scratch();
    let script = folder.path().join("parse.js");
    let source = format!(
        "const text = JSON.stringify(Array.from({{length: 2000}}, (_, i) => ({{ name: 'x' + i, on: i % 3 }})));
        const used = () => {{ const cpu = process.cpuUsage(); return (cpu.user + cpu.system) / 1000; }};
        const enough = used() + {MS};
        function parsing() {{ while (used() < enough) JSON.parse(text); }}
        const {{ Worker, isMainThread }} = require('worker_threads');
        if (isMainThread) new Worker(__filename); else parsing();
        if (isMainThread) parsing();"
    );
    std::fs::write(&script, source).expect("written");
    let trace = folder.path().join("t.beat");
    let script = script.to_str().expect("UTF-8");
    let options = ["record", "-q", "-o", "t.beat", "--", "node", script];
    let output = stackbeat_tests::tool::stackbeat(folder.path(), &options);
    assert!(output.status.success(), "{output:?}");
    let report = report(&trace);
    // With what they call, ms; of several the most.
    let total = |begin: &str| {
        let functions = array(&report, "functions");
        let of_name = functions.filter(|function| {
            let name = function["name"].as_str().expect("a name");
            name.starts_with(begin)
        });
        let ns = of_name.map(|function| number(&function["total"], "cpu_ns"));
        ns.max().unwrap_or(0) / 1_000_000
    };
    // By this one code in JavaScript calls what is written in C++, as `JSON.parse`.
    let (parsing, builtin) = (total("parsing"), total("Builtins_CEntry_"));
    let nameless = total("[JIT node]");
    // A thread may begin late, when the other one has used most of it.
    assert!(parsing > MS / 2, "{parsing} ms");
    assert!(builtin * 10 > parsing * 9, "{builtin} of {parsing} ms");
    assert!(nameless * 20 < parsing, "{nameless} beside {parsing} ms");
}
