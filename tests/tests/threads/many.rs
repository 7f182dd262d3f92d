//! More threads than anybody reads lines about: those beyond a number are summed up by role, and nothing is
//! lost of sums. A real program with thousands of threads.
#![cfg(target_os = "linux")]

use serde_json::Value;
use stackbeat_tests::compile;
use stackbeat_tests::tool_json::number;

use stackbeat_tests::tool::{json, stackbeat, text};

const THREADS: u64 = 3_000;

/// Short threads `worker-N` and `io-N`, one after the other, and one that computes meanwhile.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static atomic_int done;
static void *busy(void *argument) {
    pthread_setname_np(pthread_self(), "busy");
    while (!done) free(malloc(100));
    return argument;
}
static void *work(void *argument) {
    long number = (long)(intptr_t)argument;
    char name[16];
    snprintf(name, sizeof name, "%s-%ld", number % 2 ? "worker" : "io", number);
    pthread_setname_np(pthread_self(), name);
    for (int i = 0; i < 20; i++) free(malloc(1000));
    struct timespec short_time = { 0, number % 3 ? 0 : 100000 };
    if (short_time.tv_nsec) nanosleep(&short_time, 0);
    return 0;
}
int main(int count, char **arguments) {
    pthread_t thread, one;
    pthread_create(&one, 0, busy, 0);
    long threads = count > 1 ? atol(arguments[1]) : 1;
    for (long i = 0; i < threads; i++) {
        pthread_create(&thread, 0, work, (void *)(intptr_t)i);
        pthread_join(thread, 0);
    }
    done = 1;
    pthread_join(one, 0);
}
"#;

fn sum(report: &Value, field: &str) -> u64 {
    let rows = report["threads"].as_array().expect("rows").iter();
    rows.map(|row| number(row, field)).sum()
}

#[test]
fn threads_beyond_a_number_are_summed_up_by_role_and_sums_stay_exact() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    compile(at, "p.c", PROGRAM, &["-O0"]);
    let threads = THREADS.to_string();
    let recorded = stackbeat(at, &["record", "-q", "-o", "t.beat", "--", "./p", &threads]);
    assert!(recorded.status.success(), "{}", text(&recorded.stderr));

    let all = json(at, &["report", "t.beat", "--json"]);
    let few = json(at, &["report", "t.beat", "--json", "--max-threads", "50"]);
    let rows = |report: &Value| report["threads"].as_array().expect("rows").clone();
    let total = rows(&all).len() as u64;
    assert!(total >= THREADS + 2, "{total}");
    assert!(rows(&few).len() <= 50);
    let in_rows = rows(&few)
        .iter()
        .map(|row| row["merged"].as_u64().unwrap_or(1))
        .sum::<u64>();
    assert_eq!(in_rows, total);
    for name in ["busy", "p"] {
        let row = rows(&few).into_iter().find(|row| row["name"] == name);
        assert!(row.expect(name)["merged"].is_null(), "{name} has its row");
    }
    for role in ["worker-*", "io-*"] {
        let row = rows(&few).into_iter().find(|row| row["name"] == role);
        let row = row.expect(role);
        assert!(number(&row, "merged") > THREADS / 2 - 50, "{row}");
        // Twenty each, counted exactly.
        let expected = number(&row, "merged") * 20;
        assert!(number(&row, "exact_allocations") >= expected, "{row}");
    }
    assert_eq!(few["totals"], all["totals"]);
    assert_eq!(few["functions"], all["functions"]);
    for field in [
        "wall_ns",
        "cpu_ns",
        "blocked_ns",
        "allocations",
        "samples",
        "capture_ns",
    ] {
        assert_eq!(sum(&few, field), sum(&all, field), "{field}");
    }
    for field in ["call", "count", "total_ns", "longest_ns"] {
        let of = |report: &Value| report["blocking_sites"][0][field].clone();
        assert_eq!(of(&few), of(&all), "{field}");
    }
    let utids: Vec<_> = rows(&few).iter().map(|row| row["utid"].clone()).collect();
    for site in few["blocking_sites"].as_array().expect("sites") {
        assert!(utids.contains(&site["longest_utid"]), "{site}");
    }
    // One that is asked for has its row, whatever it used.
    let one = [
        "report",
        "t.beat",
        "--json",
        "--max-threads",
        "50",
        "--thread",
        "worker-777",
    ];
    let shown = rows(&json(at, &one));
    assert_eq!(shown.len(), 1, "{shown:?}");
    assert_eq!(shown[0]["name"], "worker-777");

    let page = stackbeat(at, &["report", "t.beat", "--html", "-"]);
    let page = text(&page.stdout);
    assert_eq!(page.matches("\"name\":\"busy\",\"process\"").count(), 1);
    assert_eq!(page.matches("\"merged\":0").count(), 1_800);
    assert!(page.matches("\"merged\":").count() < 2_000);
}
