//! What is said of a made-up series of commits, against golden files.

use std::collections::BTreeMap;
use std::path::Path;

use stackbeat_gate::decide::Verdict;
use stackbeat_gate::random::Random;
use stackbeat_gate::run::Side;
use stackbeat_gate::trend::history::History;
use stackbeat_gate::trend::judge;

use super::commits::{Commit, Order};
use super::view::Series;
use super::*;
use crate::commands::gate::read_run::{self, Reader};
use crate::commands::gate::tests::varied;
use crate::table::text_width;
use crate::terminal::Style;
use crate::testing::golden;

const COMMITS: usize = 16;
const RUNS: u64 = 3;

/// Three runs of each commit. From the tenth on `shop::price` computes for half as long again.
fn trend() -> Trend {
    let mut random = Random::new(1);
    let mut reader = Reader::default();
    let mut runs = Vec::new();
    let mut machine = String::new();
    for commit in 0..COMMITS {
        for number in 0..RUNS {
            let factor = if commit < 9 { 1.0 } else { 1.5 };
            let mut report = varied(factor, &mut random, |_| ());
            report.metadata.recording.started_unix_ns += 60 * commit as u64 + number;
            machine = read_run::machine(&report.metadata.recording);
            let path = format!("{commit:07x}/{number}.beat");
            let mut run = reader.run(&report, Path::new(&path), Side::Baseline);
            run.forget_places();
            runs.push((commit, run));
        }
    }
    let history = History::new(runs, reader.names, COMMITS);
    let outcome = judge(&history, &Rules::default(), 0);
    let subject =
        "prices: discounts are looked up for each line of an order, and no longer once for all";
    let commit = |nth: usize| Commit {
        name: format!("{:07x}", 0x3f2a1b0 + nth),
        hash: None,
        subject: if nth == 9 {
            subject.to_owned()
        } else {
            String::new()
        },
        time_unix: None,
    };
    let series = Series {
        what: "shop".to_owned(),
        machine,
        commits: (0..COMMITS).collect(),
        history,
        outcome,
        sources: reader.sources,
        distances: BTreeMap::from([(9, 3)]),
        budgets: Vec::new(),
    };
    Trend {
        folder: "runs".to_owned(),
        order: Order::Started,
        commits: (0..COMMITS).map(commit).collect(),
        series: vec![series],
        since: None,
        required: Rules::default().required,
        policy: None,
        fail_on_counts: false,
    }
}

#[test]
fn a_trend_fits_its_terminal() {
    let trend = trend();
    assert_eq!(trend.verdict(), Verdict::Regression);
    for columns in [60, 80, 140] {
        let text = text::render(&trend, Some(columns), Style::default());
        let widest = text.lines().map(text_width).max();
        assert!(widest <= Some(columns), "{text}");
        if columns >= 80 {
            golden(&format!("trend-{columns}.txt"), &text);
        }
    }
}
