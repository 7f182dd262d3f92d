//! Reports of damaged traces: never a panic, never without end.

use stackbeat_model::Trace;
use stackbeat_tests::kept_traces;

use super::layout;
use crate::render::html;
use crate::render::text::section::Shown;
use crate::render::text::tables;
use crate::summary::load;
use crate::summary::sort_key::SortKey;

/// Everything that a report can do with a trace; errors are fine.
fn use_it(name: &str, bytes: Vec<u8>) -> Option<u64> {
    let trace = Trace::from_bytes(name, bytes).ok()?;
    let report = load::summarize(&trace, 10_000).ok()?;
    let page = html::render(&report).expect("renders");
    assert!(page.len() < 64 << 20);
    let (sort, layout) = (SortKey::SelfTime, layout(5));
    let text = tables::report(&report, &|_| true, sort, &Shown::All, Some(5), &layout, &[]);
    assert!(text.contains("Losses"));
    Some(report.profile.threads.iter().map(|t| t.wall_ns()).sum())
}

#[test]
fn kept_traces_can_be_shown() {
    for (name, bytes) in kept_traces() {
        let wall = use_it(&name, bytes);
        assert!(wall > Some(0), "{name}");
    }
}

#[test]
fn damaged_traces_are_shown_as_far_as_they_go() {
    // A linear congruential generator (Knuth's MMIX constants): the same damage each time.
    let mut state = 7u64;
    let mut random = move |below: usize| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    for (name, bytes) in kept_traces() {
        let mut shown = 0;
        for round in 0..300 {
            let mut damaged = bytes.clone();
            if round % 3 == 0 {
                damaged.truncate(random(bytes.len()));
            }
            for _ in 0..=random(4) {
                if !damaged.is_empty() {
                    let at = random(damaged.len());
                    damaged[at] ^= 1 << random(8);
                }
            }
            shown += u32::from(use_it(&name, damaged).is_some());
        }
        assert!(shown > 100, "{name}: {shown} of 300 could still be read");
    }
}
