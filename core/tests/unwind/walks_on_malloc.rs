//! Real programs under a library that walks on `malloc` and checks each reuse against a full walk
//! (`examples/walk_on_malloc.rs`).

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Runs a command under the library; the counts of all its processes together.
fn counts(command: &mut Command) -> HashMap<String, u64> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Beside this test program: target/…/deps and target/…/examples.
    let this = std::env::current_exe().expect("it has a path");
    let library: PathBuf = this
        .ancestors()
        .nth(2)
        .expect("a target folder")
        .join("examples/libwalk_on_malloc.so");
    assert!(library.exists(), "{library:?} is built with the tests");
    let status = command
        .env("LD_PRELOAD", &library)
        .env("WALK_RESULT", folder.path().join("walks"))
        .env("WALK_INTERVAL_US", "20")
        .stdout(Stdio::null())
        .status()
        .expect("it starts");
    assert!(status.success(), "{command:?}: {status}");
    let mut counts = HashMap::new();
    for file in std::fs::read_dir(folder.path()).expect("the folder is there") {
        let file = file.expect("it can be listed").path();
        let text = std::fs::read_to_string(file).expect("it can be read");
        for line in text.lines() {
            let (name, value) = line.split_once(' ').expect("a name and a value");
            if let Ok(value) = value.parse::<u64>() {
                *counts.entry(name.to_string()).or_default() += value;
            }
        }
    }
    counts
}

/// All walks reached the root, reuse happened, and no reuse was wrong.
fn assert_sound(command: &mut Command, least: u64) -> HashMap<String, u64> {
    let counts = counts(command);
    assert!(counts["walks"] >= least, "{counts:?}");
    assert_eq!(counts["differing"], 0, "{counts:?}");
    assert!(counts["kept"] > counts["frames"] / 4, "{counts:?}");
    counts
}

#[test]
fn sqlite() {
    let sql = "create table t(a, b);
with recursive c(x) as (select 1 union all select x + 1 from c where x < 30000)
insert into t select x, hex(randomblob(8)) from c;
create index i on t(b);
select count(*) from t x join t y on x.b = y.b;";
    let counts = assert_sound(Command::new("sqlite3").args([":memory:", sql]), 100);
    assert_eq!(counts["root"], counts["walks"], "{counts:?}");
}

#[test]
fn python() {
    let code = "import json
for i in range(200): json.loads(json.dumps({str(k): [k] * 3 for k in range(100)}))";
    let mut command = Command::new("/usr/bin/python3");
    command.env("PYTHONMALLOC", "malloc").args(["-c", code]);
    let counts = assert_sound(&mut command, 100);
    assert_eq!(counts["root"], counts["walks"], "{counts:?}");
}

#[test]
fn git() {
    let here = env!("CARGO_MANIFEST_DIR");
    let counts = assert_sound(Command::new("git").args(["-C", here, "log", "-p"]), 20);
    assert_eq!(counts["root"], counts["walks"], "{counts:?}");
}

/// JIT code has no tables: most stacks get through it along frame pointers.
#[test]
fn node() {
    let code = "let a = [];
for (let i = 0; i < 100000; i++) a.push({ x: i, s: 'k' + i });
a.sort((p, q) => (p.s < q.s ? -1 : 1));
JSON.parse(JSON.stringify(a));";
    let counts = assert_sound(Command::new("node").args(["-e", code]), 100);
    assert!(counts["root"] * 100 >= counts["walks"] * 99, "{counts:?}");
    assert!(counts["guessed"] > 0, "{counts:?}");
}
