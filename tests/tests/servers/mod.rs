//! Real servers under load: redis, nginx, node, postgres and a service on tokio are steered, switched and
//! dumped while clients use them, and no client sees an error.

mod auto_dumps;
mod control;
mod counters;
mod coverage;
mod postgres_locks;
mod switch;

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use stackbeat_tests::report;
use stackbeat_tests::servers::{Kind, Load, Server};
use stackbeat_tests::tool_json::{array, number};

/// A sum over the threads of each process.
fn by_process(report: &Value, key: &str) -> BTreeMap<u32, u64> {
    let mut sums = BTreeMap::new();
    for thread in array(report, "threads") {
        let pid = number(thread, "pid") as u32;
        *sums.entry(pid).or_default() += number(thread, key);
    }
    sums
}
