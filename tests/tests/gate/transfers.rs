//! What a program reads and writes is counted exactly, and smaller pieces are found.

use std::path::Path;

use serde_json::Value;

use super::stackbeat;

const BYTES: u64 = 1 << 20;

/// Records a copy in pieces of `size` bytes; gives the counters of the whole program by name.
fn copy(folder: &Path, trace: &str, size: u64) -> impl Fn(&str) -> u64 + use<> {
    let pieces = format!("bs={size}");
    let copy = ["dd", "if=data", "of=copy", "status=none", &pieces];
    let arguments = [&["record", "-q", "-o", trace, "--"], &copy[..]].concat();
    let recorded = stackbeat(folder, &arguments);
    assert!(recorded.status.success(), "{recorded:?}");
    let report = stackbeat(folder, &["report", trace, "--json"]);
    let report: Value = serde_json::from_slice(&report.stdout).expect("JSON");
    move |name| {
        let counters = report["counters"].as_array().expect("a list");
        let found = counters
            .iter()
            .find(|c| c["upid"] == 0 && c["name"] == name);
        let value = found.and_then(|c| c["last"].as_u64());
        value.unwrap_or_else(|| panic!("{name}: {counters:#?}"))
    }
}

#[test]
fn reads_and_writes_are_counted_exactly_and_smaller_ones_are_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    std::fs::write(at.join("data"), vec![1; BYTES as usize]).expect("is written");
    for side in ["large", "again", "small"] {
        std::fs::create_dir(at.join(side)).expect("is made");
    }
    let mut reads = Vec::new();
    let mut bytes = Vec::new();
    for run in 0..2 {
        for (side, size) in [("large", 4096), ("again", 4096), ("small", 1024)] {
            let counted = copy(at, &format!("{side}/{run}.beat"), size);
            assert_eq!(counted("write calls"), BYTES / size, "{side}");
            assert_eq!(counted("bytes written"), BYTES, "{side}");
            // Starting reads libraries, too, always the same.
            reads.push(counted("read calls") - BYTES / size);
            bytes.push(counted("bytes read") - BYTES);
        }
    }
    assert!(reads.iter().all(|r| *r == reads[0]), "{reads:?}");
    assert!(bytes.iter().all(|b| *b == bytes[0]), "{bytes:?}");

    let gate = |candidate: &str| {
        let by_counts = [
            "gate",
            "--fail-on-counts",
            "-b",
            "large",
            "-c",
            candidate,
            "--format",
            "json",
        ];
        let output = stackbeat(at, &by_counts);
        let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        (output.status.code(), json)
    };
    // Who reads more is known, too: the hooks count the same calls.
    let is_of_transfers = |finding: &&Value| {
        ["transfers", "system-calls"].contains(&finding["cause"].as_str().unwrap_or(""))
    };
    let (code, json) = gate("small");
    let findings = json["findings"].as_array().expect("a list");
    let found = findings.iter().find(is_of_transfers);
    let found = found.unwrap_or_else(|| panic!("{json:#}"));
    assert_eq!(code, Some(1));
    assert_eq!(found["metric"], "calls:read", "{found:#}");
    assert_eq!(found["p"], Value::Null, "counted exactly");
    let path = found["path"].as_array().expect("a list");
    let last = path.last().and_then(Value::as_str).unwrap_or("");
    assert!(last.starts_with("dd+"), "who reads: {found:#}");
    assert_eq!(found["role"]["thread"], "main", "{found:#}");
    let also = serde_json::json!(["calls:write", "read-calls", "write-calls"]);
    assert_eq!(found["also"], also, "{found:#}");

    let (_, json) = gate("again");
    let findings = json["findings"].as_array().expect("a list");
    assert!(!findings.iter().any(|f| is_of_transfers(&f)), "{json:#}");
}
