//! On how many samples a figure stands.

mod common;

use std::path::Path;

use serde_json::Value;
use stackbeat_tests::compile;

use common::{json, stackbeat, text};

/// Computes in two functions, three times as long in one; makes a few calls that are hooked in a third.
const PROGRAM: &str = r#"
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static long used_ms(void) {
  struct timespec used;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return used.tv_sec * 1000 + used.tv_nsec / 1000000;
}
static __attribute__((noinline)) void spin(long rounds) {
  for (volatile long i = 0; i < rounds * 1000; i++) {}
}
__attribute__((noinline)) void much(long rounds) { spin(rounds * 3); __asm__ volatile("" ::: "memory"); }
__attribute__((noinline)) void little(long rounds) { spin(rounds); __asm__ volatile("" ::: "memory"); }
__attribute__((noinline)) void hooked(void) { free(malloc(100)); __asm__ volatile("" ::: "memory"); }
int main(int count, char **argument) {
  for (long end = atol(argument[1]); used_ms() < end;) { much(9000); little(9000); hooked(); }
  return 0;
}
"#;

fn record(at: &Path, options: &[&str], ms: &str) -> Value {
    let program = compile(at, "works.c", PROGRAM, &[]);
    let mut words = vec!["record", "-f", "-o", "t.beat"];
    words.extend(options);
    words.extend(["--", program.to_str().expect("text"), ms]);
    let output = stackbeat(at, &words);
    assert!(output.status.success(), "{}", text(&output.stderr));
    json(at, &["report", "t.beat", "--json"])
}

fn function<'a>(report: &'a Value, name: &str) -> &'a Value {
    let functions = report["functions"].as_array().expect("a list");
    let found = functions.iter().find(|f| f["name"] == name);
    found.unwrap_or_else(|| panic!("{name} in {functions:?}"))
}

#[test]
fn without_interruption_hooks_get_no_time_that_nobody_saw() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let report = record(at, &["--no-interrupt"], "1500");
    let totals = &report["totals"];
    let number = |value: &Value| value.as_u64().expect("a number") as f64;
    // Hooks come each 40 ms or more, and speak for 2 ms.
    let (gap, cpu) = (
        number(&totals["no_evidence_cpu_ns"]),
        number(&totals["cpu_ns"]),
    );
    assert!(gap > 0.5 * cpu, "{totals}");
    for f in report["functions"].as_array().expect("a list") {
        let share = &f["running_share"]["share"];
        assert!(share.as_f64().is_none_or(|share| share < 0.4), "{f}");
    }
    let report = text(&stackbeat(at, &["report", "t.beat"]).stdout);
    let first: Vec<&str> = report.lines().take(3).collect();
    assert!(
        first[2].starts_with("no evidence for") && first[2].contains("--no-interrupt"),
        "{report}"
    );
    assert!(report.contains("(no evidence)"), "{report}");
}

#[test]
fn intervals_follow_the_number_of_samples() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let width = |report: &Value| {
        let spin = function(report, "spin");
        let share = &spin["running_share"];
        let [share, low, high] =
            ["share", "low", "high"].map(|n| share[n].as_f64().expect("a number"));
        assert!(low <= share && share <= high && low > 0.0, "{spin}");
        assert!(spin["self"]["running_samples"].as_u64() > Some(0), "{spin}");
        high - low
    };
    let many = width(&record(at, &["--interval", "1ms"], "400"));
    let few = width(&record(at, &["--interval", "100ms"], "400"));
    assert!(few > many, "{few} and {many}");
    let shown = text(&stackbeat(at, &["report", "t.beat"]).stdout);
    let table = shown.split("Functions by").nth(1).expect("a table");
    assert!(
        table.contains("INTERVAL") && table.contains(" … "),
        "{shown}"
    );
}
