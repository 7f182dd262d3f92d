//! The trace of `system` as Perfetto shows it: exported by the tool, read by Perfetto's own trace processor.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use stackbeat_tests::tool::stackbeat;
use stackbeat_tests::viewers::trace_processor;

use crate::darwin;

/// Slices with their threads.
const SLICES: &str =
    "slice s join thread_track r on s.track_id = r.id join thread t on r.utid = t.utid";
/// Arrows with the threads at both ends.
const ARROWS: &str = "flow f join slice s on f.slice_out = s.id join slice e on f.slice_in = e.id \
    join thread_track sr on s.track_id = sr.id join thread st on sr.utid = st.utid \
    join thread_track er on e.track_id = er.id join thread et on er.utid = et.utid";

pub(crate) fn check(trace: &Path) {
    let folder = trace.parent().expect("a folder");
    let name = trace.to_str().expect("UTF-8");
    let export = ["export", name, "--to", "perfetto", "-o"];
    let exported = stackbeat(folder, &[&export, &["t.pftrace", "--force"][..]].concat());
    assert!(exported.status.success(), "{exported:?}");
    let rows = trace_processor(
        &folder.join("t.pftrace"),
        &[
            &format!(
                "select t.name || ': ' || s.name as k, max(s.dur) as n from {SLICES} group by 1"
            ),
            "select name as k, count(*) as n from slice where name like 'run loop %' group by 1",
            "select 'longest ' || name as k, max(dur) as n from slice where name like 'dlopen %' group by 1",
            &format!(
                "select st.name || ' → ' || et.name || ': ' || s.name as k, count(*) as n \
                 from {ARROWS} where s.ts <= e.ts group by 1"
            ),
        ],
    );
    let number = |key: &str| {
        let row = rows.iter().find(|row| row["k"] == key);
        row.and_then(|row| row["n"].as_u64()).unwrap_or_else(|| {
            let all: Vec<&Value> = rows.iter().map(|row| &row["k"]).collect();
            panic!("{key}: {all:?}")
        })
    };
    // Waits, on the tracks of their threads. They sleep for 5 ms before somebody comes.
    for wait in [
        "unfair waits: os_unfair_lock_lock [lock]",
        "objc waits: monitor enter [lock]",
        "ulock waits: os_sync_wait_on_address [wait]",
        "address waits: os_sync_wait_on_address [wait]",
        "semaphore waits: dispatch_semaphore_wait [wait]",
        "group waits: dispatch_group_wait [wait]",
        "lock waits: NSLock lock [lock]",
        "condition waits: NSCondition wait [wait]",
    ] {
        assert!(number(wait) > 4_000_000, "{wait}: {}", number(wait));
    }
    // Arrows from who ends a wait, and from who hands work over to the thread that does it.
    for (arrow, count) in [
        ("unfair ends → unfair waits: wakes unfair waits", 1),
        ("ulock ends → ulock waits: wakes ulock waits", 1),
        ("semaphore ends → semaphore waits: wakes semaphore waits", 1),
        ("condition ends → condition waits: wakes condition waits", 1),
        ("queue → joins: wakes joins", 1),
        ("submits → queue: dispatch_async", 2),
        ("submits → queue: dispatch_after", 1),
        ("joins → queue: dispatch_group_async", 1),
    ] {
        assert_eq!(number(arrow), count, "{arrow}");
    }
    for (iteration, count) in [
        ("run loop kCFRunLoopDefaultMode", 10),
        ("run loop UITrackingRunLoopMode", 2),
        ("run loop example.own", 3),
        // The sleeps between them.
        ("run loop [poll]", 9),
    ] {
        assert_eq!(number(iteration), count, "{iteration}");
    }
    let took = Duration::from_nanos(number("longest dlopen Kitchen"));
    assert!(took >= darwin::INITIALIZERS, "{took:?}");
}
