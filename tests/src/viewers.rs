//! The programs that read exports back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

use crate::workspace;

/// Runs a command; its standard output. Panics with what it said when it fails.
fn output(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    String::from_utf8(output.stdout).unwrap()
}

/// What each function spent by itself, by `tests/exports/totals.py`; the format by its name.
pub fn totals(format: &str, path: &Path, amount: Option<&str>) -> BTreeMap<String, u64> {
    let script = workspace().join("tests/exports/totals.py");
    let text = output(
        Command::new("python3")
            .arg(script)
            .arg(format)
            .arg(path)
            .args(amount),
    );
    serde_json::from_str(&text).unwrap()
}

/// The folder with Perfetto's UI and trace processor: `PERFETTO_UI_DIR`, or made once.
fn perfetto() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        if let Some(folder) = std::env::var_os("PERFETTO_UI_DIR") {
            return engine(Path::new(&folder));
        }
        let folder = workspace().join("target/perfetto-ui");
        if !folder.join("index.html").exists() {
            let setup = workspace().join("tests/perfetto/setup.sh");
            output(Command::new("sh").arg(setup).arg(&folder));
        }
        engine(&folder)
    })
}

/// The versioned folder inside, where the engine is.
fn engine(folder: &Path) -> PathBuf {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.join("engine_bundle.js").exists())
        .unwrap_or_else(|| panic!("no trace processor in {}", folder.display()))
}

/// The rows that the queries give, all in a row. Fails when Perfetto counted an error or a loss.
pub fn trace_processor(path: &Path, queries: &[&str]) -> Vec<Value> {
    let script = workspace().join("tests/perfetto/tpq.mjs");
    let text = output(
        Command::new("node")
            .arg(script)
            .arg("--ui")
            .arg(perfetto())
            .arg("--strict")
            .arg(path)
            .args(queries),
    );
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The Go toolchain: `GO`, what is in the path, or where Debian puts it.
pub fn go() -> Option<PathBuf> {
    if let Some(go) = std::env::var_os("GO") {
        return Some(go.into());
    }
    let in_path = std::env::var_os("PATH").and_then(|path| {
        std::env::split_paths(&path)
            .map(|folder| folder.join("go"))
            .find(|go| go.is_file())
    });
    in_path.or_else(|| {
        let debian = std::fs::read_dir("/usr/lib").ok()?;
        debian
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| {
                path.file_name()
                    .is_some_and(|name| name.to_string_lossy().starts_with("go-"))
            })
            .map(|path| path.join("bin/go"))
            .find(|go| go.is_file())
    })
}

/// The flat column of `go tool pprof -top`, without zeros.
pub fn pprof_top(go: &Path, path: &Path, sample_type: &str, unit: &str) -> BTreeMap<String, u64> {
    let text = output(
        Command::new(go)
            .args([
                "tool",
                "pprof",
                "-top",
                "-nodecount=100000",
                "-nodefraction=0",
            ])
            .arg(format!("-sample_index={sample_type}"))
            .arg(format!("-unit={unit}"))
            .arg(path),
    );
    let mut flat = BTreeMap::new();
    let table = text
        .lines()
        .skip_while(|line| !line.trim_start().starts_with("flat "))
        .skip(1);
    for line in table {
        // flat flat% sum% cum cum% name
        let (columns, name) = split_columns(line, 5);
        let name = name
            .trim_end_matches(" (inline)")
            .trim_end_matches(" (partial-inline)");
        let digits = columns[0].trim_end_matches(unit);
        let amount: f64 = digits.parse().unwrap();
        if amount != 0.0 {
            *flat.entry(name.to_owned()).or_insert(0) += amount as u64;
        }
    }
    assert!(!flat.is_empty(), "{text}");
    flat
}

/// The first `count` words of a line, and the rest.
fn split_columns(line: &str, count: usize) -> (Vec<&str>, &str) {
    let (mut columns, mut rest) = (Vec::new(), line);
    for _ in 0..count {
        rest = rest.trim_start();
        let end = rest.find(' ').unwrap_or(rest.len());
        columns.push(&rest[..end]);
        rest = &rest[end..];
    }
    (columns, rest.trim())
}
