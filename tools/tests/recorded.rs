//! The kept recording of a real program, `tests/traces/recorded-1.beat`: what `tests/traces/bakery.c` did is
//! known.

use std::path::Path;

use serde_json::{Value, json};
use stackbeat_tests::tool;
use stackbeat_tests::tool_json::{array, assert_adds_up};

/// What a command says of the recording, as JSON.
fn of_recording(arguments: &[&str]) -> Value {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/traces"));
    let arguments = [arguments, &["recorded-1.beat", "--json"]].concat();
    tool::json(folder, &arguments)
}

/// The one entry of a list that has this name.
#[track_caller]
fn named<'a>(value: &'a Value, list: &str, key: &str, name: &str) -> &'a Value {
    let mut found = array(value, list).filter(|entry| entry[key] == name);
    let first = found
        .next()
        .unwrap_or_else(|| panic!("no {name} in {list}"));
    assert!(found.next().is_none(), "two {name} in {list}");
    first
}

#[track_caller]
fn ms(value: &Value) -> f64 {
    value.as_f64().expect("ns") / 1e6
}

#[test]
fn the_kept_recording_reads_and_is_complete() {
    let info = of_recording(&["info", "--check"]);
    assert_eq!(info["format_version"], 1);
    assert_adds_up(&info);
    let recording = &info["recording"];
    assert_eq!(recording["state"], "complete", "{recording}");
    assert_eq!(recording["records_written"], 136);
    assert_eq!(recording["records_stored"], 136);
    assert_eq!(recording["command"], json!(["./bakery"]));
    let report = of_recording(&["report"]);
    assert_eq!(report["damage"], json!([]));
    assert_eq!(report["drops"], json!([]));
}

#[test]
fn the_kept_recording_has_threads_and_what_each_did() {
    let report = of_recording(&["report"]);
    let threads: Vec<_> = array(&report, "threads").map(|t| &t["name"]).collect();
    assert_eq!(threads, ["bakery", "baker", "helper"]);
    let thread = |name| named(&report, "threads", "name", name);
    // Counted exactly: each loaf of 128 bytes, each line of 18 bytes.
    let helper = thread("helper");
    assert_eq!(helper["exact_allocations"], 1000);
    assert_eq!(helper["exact_allocated_bytes"], 128_000);
    assert_eq!(helper["frees"], 1000);
    assert!(ms(&helper["exact_cpu_ns"]) > 30.0, "{helper}");
    let baker = thread("baker");
    let calls = json!({"write": 20, "open": 1, "close": 1, "sync": 20, "sleep": 5});
    assert_eq!(baker["system_calls"], calls);
    assert_eq!(baker["call_bytes"]["written"], 360);
    for thread in [baker, helper] {
        assert_eq!(thread["started_by_utid"], 1);
        assert_eq!(thread["started_at"][0], "main");
    }
    // Names come from the file alone.
    let kneading = named(&report, "functions", "name", "knead_dough");
    assert_eq!(kneading["module"], "/tmp/bakery");
    assert!(
        kneading["file"]
            .as_str()
            .is_some_and(|f| f.ends_with("bakery.c"))
    );
    let cpu_ms = ms(&kneading["total"]["cpu_ns"]);
    assert!((29.0..31.0).contains(&cpu_ms), "{cpu_ms} ms");
}

#[test]
fn the_kept_recording_says_who_waited_for_whom() {
    let report = of_recording(&["report"]);
    // Five rounds of 10 ms.
    let asleep = named(&report, "blocking_sites", "call", "nanosleep");
    assert_eq!(asleep["count"], 5);
    assert_eq!(asleep["stack"][0], "sleep_ms");
    assert_eq!(asleep["stack"][1], "heat_oven");
    assert!((50.0..51.0).contains(&ms(&asleep["total_ns"])), "{asleep}");
    let synced = named(&report, "blocking_sites", "call", "fsync");
    assert_eq!(synced["cause"], "io");
    assert_eq!(synced["stack"][0], "write_receipts");
    let uid = |name| &named(&report, "threads", "name", name)["utid"];
    let wait = named(&report["waits"], "pairs", "call", "pthread_mutex_lock");
    assert_eq!(wait["count"], 5);
    assert!((50.0..52.0).contains(&ms(&wait["total_ns"])), "{wait}");
    assert_eq!(&wait["utid"], uid("helper"));
    assert_eq!(wait["stack"][0], "wait_for_oven");
    assert_eq!(&wait["owner_utids"][0], uid("baker"));
    assert_eq!(&wait["waker_utid"], uid("baker"));
    assert_eq!(wait["waker_stack"][0], "heat_oven");
    assert_eq!(report["waits"]["with_waker"], report["waits"]["count"]);
    let joined = named(&report["waits"], "pairs", "call", "pthread_join");
    assert_eq!(&joined["waker_utid"], uid("baker"));
}
