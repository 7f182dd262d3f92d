//! Packs the numbers of a page: LEB128 varints, read again by `page/data.js`.
//!
//! ```text
//!   tree      places, then for each place but the root: its index − its parent's, label, its index − that of the place
//!             for which what it allocates counts, its index − that of the one for which its running time does
//!   label     0 gap | 1 no stack | 2 small | 3 + 2 × function | 4 + 2 × probe
//!   cells     for each thread: cells, then for each: place − previous place, time, count, longest,
//!             begin of the longest, CPU, allocations, allocated bytes, samples, those that stand for running time,
//!             squares (µs²: the sum of the squares of what each of these stands for), minor and major faults,
//!             voluntary and involuntary switches
//!   timeline  for each thread: bars, then for each bar:
//!             hole to the one before (the first: to the recording's start), length,
//!             zigzag(place − previous place) << 1 | has common, [common,] CPU, allocated bytes
//! ```
//!
//! Times are ns; begins count from the recording's start.

use std::collections::HashMap;

use stackbeat_model::FunctionIndex;

use super::prune::Pruned;
use crate::summary::call_tree::{Label, Leaf};
use crate::summary::timeline::Timeline;

/// The packed numbers, and the functions in the order of their numbers there.
#[derive(Debug)]
pub(super) struct Packed {
    pub bytes: Vec<u8>,
    pub functions: Vec<FunctionIndex>,
}

/// Packs tree, cells and timeline of `threads` threads.
pub(super) fn encode(
    threads: usize,
    start_ns: u64,
    pruned: &Pruned,
    timeline: &Timeline,
) -> Packed {
    let mut out = Vec::new();
    let mut functions = Vec::new();
    let mut numbers: HashMap<FunctionIndex, u64> = HashMap::new();
    let places = pruned.tree.places();
    put(&mut out, places.len() as u64);
    for (index, place) in places.iter().enumerate().skip(1) {
        put(&mut out, index as u64 - u64::from(place.parent));
        let label = match place.label {
            Label::Leaf(Leaf::Gap) => 0,
            Label::Leaf(Leaf::Code | Leaf::NoStack) | Label::Root => 1,
            Label::Small => 2,
            Label::Group(none) => match none {},
            Label::Function(function) => {
                let number = *numbers.entry(function).or_insert_with(|| {
                    functions.push(function);
                    functions.len() as u64 - 1
                });
                3 + 2 * number
            }
            Label::Leaf(Leaf::Blocking(probe)) => 4 + 2 * u64::from(probe.0),
        };
        put(&mut out, label);
        let Pruned { counts_for, .. } = pruned;
        for counts_for in [&counts_for.allocated, &counts_for.running] {
            put(
                &mut out,
                (index as u64).saturating_sub(u64::from(counts_for[index])),
            );
        }
    }
    put_cells(&mut out, threads, start_ns, pruned);
    put_timeline(&mut out, threads, start_ns, pruned, timeline);
    Packed {
        bytes: out,
        functions,
    }
}

fn put_cells(out: &mut Vec<u8>, threads: usize, start_ns: u64, pruned: &Pruned) {
    let mut by_thread = vec![Vec::new(); threads];
    for ((thread, place), cell) in &pruned.cells {
        if let Some(cells) = by_thread.get_mut(thread.0 as usize) {
            cells.push((*place, *cell));
        }
    }
    for mut cells in by_thread {
        cells.sort_by_key(|(place, _)| *place);
        put(out, cells.len() as u64);
        let mut previous = 0;
        for (place, cell) in cells {
            put(out, u64::from(place - previous));
            previous = place;
            for value in [
                cell.spent.wall_ns,
                cell.count,
                cell.longest_ns,
                cell.longest_at_ns.saturating_sub(start_ns),
                cell.spent.metrics.cpu_ns,
                cell.spent.metrics.allocations,
                cell.spent.metrics.allocated_bytes,
                cell.spent.metrics.samples,
                cell.spent.evidence.samples,
                u64::try_from(cell.spent.evidence.squares / 1_000_000).unwrap_or(u64::MAX),
                cell.spent.metrics.minor_faults,
                cell.spent.metrics.major_faults,
                cell.spent.metrics.voluntary_switches,
                cell.spent.metrics.involuntary_switches,
            ] {
                put(out, value);
            }
        }
    }
}

fn put_timeline(
    out: &mut Vec<u8>,
    threads: usize,
    start_ns: u64,
    pruned: &Pruned,
    timeline: &Timeline,
) {
    for thread in 0..threads {
        let bars = timeline.threads().get(thread).map_or(&[][..], |b| b);
        put(out, bars.len() as u64);
        let mut end = start_ns;
        let mut previous = 0;
        for bar in bars {
            put(out, bar.begin_ns.saturating_sub(end));
            put(out, bar.end_ns - bar.begin_ns);
            end = bar.end_ns;
            let place = i64::from(pruned.moved[bar.place as usize]);
            let delta = place - previous;
            previous = place;
            let zigzag = ((delta << 1) ^ (delta >> 63)) as u64;
            put(out, zigzag << 1 | u64::from(bar.common.is_some()));
            if let Some(common) = bar.common {
                put(out, u64::from(common));
            }
            put(out, bar.cpu_ns);
            put(out, bar.allocated_bytes);
        }
    }
}

fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_are_leb128() {
        let mut out = Vec::new();
        for value in [0, 127, 128, 300] {
            put(&mut out, value);
        }
        assert_eq!(out, [0, 127, 0x80, 1, 0xac, 2]);
    }
}
