//! What a hook adds to a call that is not captured: each call without the agent, with the agent off, and with
//! it recording at 1 ms (gates with asymmetric barriers, as a recording makes them for such loops), in
//! alternation. Run with `cargo bench -p stackbeat-hooks-linux`; `STACKBEAT_AGENT` names another library than
//! the one cargo built.

use stackbeat_tests::c_programs::{Session, agent, compile, run};
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

const PAIRS: usize = 10;

fn main() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compile(folder.path(), "cost.c", &[]);
    let mut costs: BTreeMap<String, [Vec<f64>; 3]> = BTreeMap::new();
    let mut order = Vec::new();
    for _ in 0..PAIRS {
        let session = Session::new()
            .tick(Duration::from_millis(1))
            .asymmetric_barriers();
        let plain = Command::new(&program);
        let mut off = Command::new(&program);
        off.env("LD_PRELOAD", agent());
        let on = session.command(&program);
        for (i, mut command) in [plain, off, on].into_iter().enumerate() {
            let output = run(&mut command);
            assert!(output.status.success());
            for line in String::from_utf8_lossy(&output.stdout).lines() {
                let (name, ns) = line.split_once(' ').expect("name and ns");
                if !order.iter().any(|n| n == name) {
                    order.push(name.to_owned());
                }
                costs.entry(name.to_owned()).or_default()[i].push(ns.parse().expect("a number"));
            }
        }
    }
    println!(
        "{:16}{:>10}{:>12}{:>12}   ns a call, medians of {PAIRS}",
        "", "without", "off", "1 ms"
    );
    for name in order {
        let [plain, off, on] = costs.remove(&name).expect("measured").map(|mut v| {
            v.sort_by(f64::total_cmp);
            v[v.len() / 2]
        });
        println!(
            "{name:16}{plain:10.1}{:+12.1}{:+12.1}",
            off - plain,
            on - plain
        );
    }
}
