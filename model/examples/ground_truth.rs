//! Compares a trace with the exact times of the same run (see `scripts/ground-truth.sh`).
//!
//!     ground_truth LABEL TRACE TRUTH
//!
//! prints one Markdown row a function: exact total and self time, and the difference of the trace's.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::error::Error;

use stackbeat_model::{
    FunctionIndex, Segment, SegmentKind, StackIndex, Trace, Visitor, conservation,
};

#[derive(Clone, Copy, Debug, Default)]
struct Times {
    total_ns: f64,
    self_ns: f64,
    calls: f64,
}

/// Sums up the time of the functions that are in the truth. Others (libc, the logger) belong to the
/// one that called them, as they do in the truth.
struct Sums {
    wanted: HashMap<FunctionIndex, String>,
    sums: HashMap<String, Times>,
    gap_ns: u64,
    wall_ns: u64,
}

impl Visitor for Sums {
    fn segment(&mut self, trace: &Trace, segment: &Segment) {
        let wall = segment.wall_ns();
        self.wall_ns += wall;
        if segment.kind == SegmentKind::Gap {
            self.gap_ns += wall;
        }
        if segment.stack == StackIndex::NONE {
            return;
        }
        let mut instrumented = Vec::new();
        for frame in trace.stack_frames(segment.stack) {
            let function = trace.frame(frame).function;
            if let Some(name) = self.wanted.get(&function) {
                instrumented.push(name);
            } else if trace
                .function(function)
                .name
                .starts_with("__cyg_profile_func")
            {
                // The exact times begin after the logger's work on entry and end before that on exit:
                // it belongs to the caller of the function that it is about.
                instrumented.pop();
            }
        }
        let innermost = instrumented.last().copied();
        let seen: HashSet<_> = instrumented.into_iter().collect();
        for name in seen {
            self.sums.entry(name.clone()).or_default().total_ns += wall as f64;
        }
        if let (Some(name), false) = (innermost, segment.kind == SegmentKind::Gap) {
            self.sums.entry(name.clone()).or_default().self_ns += wall as f64;
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, label, trace, truth] = &arguments[..] else {
        return Err("usage: ground_truth LABEL TRACE TRUTH".into());
    };
    let mut exact: BTreeMap<String, Times> = BTreeMap::new();
    for line in std::fs::read_to_string(truth)?.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, total, own, calls] = words[..] else {
            return Err(format!("{truth}: not a line of truth: {line}").into());
        };
        let times = exact.entry(name.to_owned()).or_default();
        times.total_ns += total.parse::<f64>()?;
        times.self_ns += own.parse::<f64>()?;
        times.calls += calls.parse::<f64>()?;
    }
    let trace = Trace::open(trace)?;
    for violation in conservation(&trace)? {
        eprintln!("{label}: {violation}");
    }
    let mut sums = Sums {
        wanted: trace
            .functions()
            .iter()
            .enumerate()
            .filter(|(_, function)| exact.contains_key(&function.name))
            .map(|(i, function)| (FunctionIndex(i as u32), function.name.clone()))
            .collect(),
        sums: HashMap::new(),
        gap_ns: 0,
        wall_ns: 0,
    };
    trace.visit(&mut sums)?;
    let whole = exact.values().map(|t| t.self_ns).sum::<f64>();
    let (mut wrong, mut rows) = (0.0, Vec::new());
    for (name, exact) in &exact {
        let found = sums.sums.get(name).copied().unwrap_or_default();
        wrong += (found.self_ns - exact.self_ns).abs();
        let off = |found: f64, exact: f64| {
            // Of a function that takes next to nothing, only the share of the whole says something.
            if exact < whole * 0.001 {
                return "–".to_owned();
            }
            format!("{:+.1} %", (found / exact - 1.0) * 100.0)
        };
        rows.push((
            exact.total_ns,
            format!(
                "| {label} | `{name}` | {} | {:.1} | {:.1} | {} | {} |",
                exact.calls,
                exact.total_ns / 1e6,
                exact.self_ns / 1e6,
                off(found.total_ns, exact.total_ns),
                off(found.self_ns, exact.self_ns),
            ),
        ));
    }
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (_, row) in rows {
        println!("{row}");
    }
    println!(
        "| {label} | *all* | | | {:.1} | | {:.2} % misplaced, {:.2} % gap |",
        whole / 1e6,
        // Each misplaced nanosecond is missing in one place and too much in another.
        wrong / 2.0 / whole * 100.0,
        sums.gap_ns as f64 / sums.wall_ns.max(1) as f64 * 100.0,
    );
    Ok(())
}
