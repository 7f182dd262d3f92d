//! The page: one self-contained file with an interactive flame graph, a timeline and tables.
//!
//! The page never asks the network for anything; its content security policy forbids it. Names come
//! from the recorded program and are hostile until proven otherwise: they travel as JSON with `<`
//! escaped and without characters that steer, and the scripts put them on the page as text only.

#[cfg(test)]
mod browser_tests;
mod packed_numbers;
mod prune;
mod source_lines;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Write};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Result;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde::Serialize;
use serde_json::ser::{CharEscape, CompactFormatter, Formatter};
use stackbeat_core::probe::Cause;
use stackbeat_model::layers::Layer;
use stackbeat_model::{FunctionIndex, ProbeId, ThreadIndex};

use crate::render::markup::escape;
use crate::summary::call_bytes::CallBytes;
use crate::summary::call_tree::{CAUSES, Label, Leaf, Profile, Tree};
use crate::summary::counters::CounterRow;
use crate::summary::events::EventRow;
use crate::summary::functions::{Own, functions};
use crate::summary::idle;
use crate::summary::libraries::is_managed;
use crate::summary::load::Report;
use crate::summary::metadata::{
    DropsRow, FunctionName, Metadata, ProcessRow, Recording, ThreadMetadata,
};
use crate::summary::own_code::OwnCode;
use crate::summary::roles;
use crate::summary::sort_key::SortKey;
use crate::summary::system_calls::{self, CallRow, Counted};
use crate::summary::verdict::verdict;
use crate::terminal::clean;
use prune::Pruned;
use source_lines::SourceLines;

/// Bars that a page's timeline may carry; about 4 bytes of the page each.
pub(crate) const BAR_BUDGET: usize = 600_000;
/// Rows for threads that a page has.
pub(crate) const MOST_THREADS: usize = 2_000;
/// Lines of the table of system calls, for each kind.
const CALL_ROWS: usize = 20;
/// Places of the call tree that a page may carry.
const PLACE_BUDGET: usize = 150_000;

const TEMPLATE: &str = include_str!("html/page.html");
const STYLE: &str = include_str!("html/page.css");
/// The view of one function's callers and callees: what `around.js` fills.
pub(crate) const AROUND: &str = include_str!("html/around.html");
/// Shortens names; pictures have it, too.
pub(crate) const NAMES_SCRIPT: &str = include_str!("html/names.js");
/// What each page with a flame graph has: a style sheet, and parts of a script that share a scope, in this
/// order.
pub(crate) const FLAME_STYLE: &str = include_str!("html/flame.css");
pub(crate) const FLAME_SCRIPTS: [&str; 8] = [
    NAMES_SCRIPT,
    include_str!("html/format.js"),
    include_str!("html/tip.js"),
    include_str!("html/flame.js"),
    include_str!("html/places.js"),
    include_str!("html/around.js"),
    include_str!("html/picture.js"),
    include_str!("html/address.js"),
];
/// The rest of this page's script.
const SCRIPTS: [&str; 11] = [
    include_str!("html/names_apart.js"),
    include_str!("html/data.js"),
    include_str!("html/view.js"),
    include_str!("html/call_tree.js"),
    include_str!("html/function_panel.js"),
    include_str!("html/charts.js"),
    include_str!("html/waits.js"),
    include_str!("html/timeline.js"),
    include_str!("html/tables.js"),
    include_str!("html/link.js"),
    include_str!("html/page.js"),
];

/// Everything but the numbers that are packed apart.
#[derive(Serialize)]
struct Meta<'a> {
    recording: &'a Recording,
    /// What `report` says first.
    verdict: Option<String>,
    /// The last one stands for several, where rows hold threads of several.
    processes: Vec<&'a ProcessRow>,
    threads: Vec<ThreadMeta<'a>>,
    start_stacks: &'a [Vec<String>],
    functions: Vec<&'a FunctionName>,
    /// By number of the function.
    sources: BTreeMap<usize, SourceLines>,
    /// Numbers of the functions of interpreters, and of those that they run.
    interpreter: Vec<usize>,
    interpreted: Vec<usize>,
    causes: Vec<&'static str>,
    /// Numbers of causes for which threads wait that have nothing to do; and those other than the main one.
    idle_causes: Vec<usize>,
    idle_causes_of_workers: Vec<usize>,
    /// Places at which threads wait or sleep in the middle of their work.
    waits_at_work: BTreeSet<u32>,
    /// Places at which whatever thread waits for work.
    waits_for_work: BTreeSet<u32>,
    /// By probe number.
    probes: Vec<Option<ProbeMeta>>,
    drops: Vec<DropsRow>,
    /// What of the file could not be read.
    damage: &'a [String],
    events: &'a [EventRow],
    counters: Vec<CounterMeta<'a>>,
    waits: Vec<WaitMeta<'a>>,
    /// By the place of a blocking call, the variable that it waits for.
    waited_for: BTreeMap<u32, String>,
    /// By the place of a blocking call: from which place to which its callers tell something
    /// ([`OwnCode::told`]).
    told: BTreeMap<u32, (u32, u32)>,
    /// Who makes system calls, in the whole recording.
    calls: Vec<CallRow>,
    /// Who reads and writes so many bytes.
    moved: Vec<CallRow>,
    /// Whose calls sleep how often.
    wake_ups: Vec<CallRow>,
    cut: Cut,
}

#[derive(Serialize)]
struct ThreadMeta<'a> {
    utid: u32,
    tid: u32,
    name: &'a str,
    process: usize,
    is_main: bool,
    serves_runtime: bool,
    /// Threads that are summed up here; 0: it is one thread.
    merged: u32,
    begin_ns: u64,
    end_ns: u64,
    /// Uid of the thread that started it, 0: not known; and the place of the stack in which it did.
    started_by: u32,
    start_stack: usize,
    running_ns: u64,
    blocked_ns: [u64; CAUSES],
    gap_ns: u64,
    cpu_ns: u64,
    runnable_ns: u64,
    allocated_bytes: u64,
    samples: u64,
    /// System calls, and how many of each kind in words; `None`: not known.
    calls: Option<u64>,
    call_bytes: Option<CallBytes>,
    calls_by_kind: String,
}

/// A counter's values over time.
#[derive(Serialize)]
struct CounterMeta<'a> {
    name: &'a str,
    unit: &'a str,
    /// Place in the list of processes; none: the machine's.
    process: Option<usize>,
    /// Since the recording's start, ns.
    times: Vec<u64>,
    values: Vec<i64>,
}

/// A long wait: thread, begin, end (ns since the recording's start), what for, the thread that held it, the
/// thread that ended it, and where that was (a place of the tree).
#[derive(Serialize)]
struct WaitMeta<'a>(
    u32,
    u64,
    u64,
    &'a str,
    Option<u32>,
    Option<u32>,
    Option<u32>,
);

#[derive(Clone, Serialize)]
struct ProbeMeta {
    name: Cow<'static, str>,
    cause: usize,
}

/// What was left out to keep the page small.
#[derive(Serialize)]
struct Cut {
    /// Bars shorter than this are drawn together; 0: none.
    grain_ns: u64,
    joined: u64,
    /// Places summed up below their callers.
    places: u64,
}

/// A row that holds threads of several processes.
fn is_of_several(row: &ThreadMetadata) -> bool {
    row.merged > 1 && row.upid == 0
}

/// By the place of a blocking call in what is left of the tree: the variable that it waits for.
fn waited_for(profile: &Profile, pruned: &Pruned) -> BTreeMap<u32, String> {
    let kept = (0..).zip(&pruned.moved).filter_map(|(place, moved)| {
        let Label::Leaf(Leaf::Blocking(probe)) = pruned.tree.places()[*moved as usize].label else {
            return None;
        };
        let name = (profile.waited_for).at(profile.caller_of(place), probe)?;
        Some((*moved, name))
    });
    kept.collect()
}

/// By the place of a blocking call: between which places its callers tell something.
fn told(metadata: &Metadata, tree: &Tree) -> BTreeMap<u32, (u32, u32)> {
    let own = OwnCode::new(metadata, tree);
    let blocking = (0..).zip(tree.places()).filter_map(|(place, at)| {
        let Label::Leaf(Leaf::Blocking(_)) = at.label else {
            return None;
        };
        let told = own.told(at.parent)?;
        Some((place, (told.from, told.to)))
    });
    blocking.collect()
}

/// The finished page.
pub(crate) fn render(report: &Report) -> Result<String> {
    let Report {
        metadata,
        profile,
        timeline,
        ..
    } = report;
    let pruned = prune::prune(profile, PLACE_BUDGET);
    let packed = packed_numbers::encode(
        metadata.threads.len(),
        metadata.recording.start_ns,
        &pruned,
        timeline,
    );
    let threads = metadata.threads.iter().enumerate().map(|(i, t)| {
        let time = profile.threads.get(i).copied().unwrap_or_default();
        ThreadMeta {
            utid: t.utid,
            tid: t.tid,
            name: &t.name,
            process: match is_of_several(t) {
                true => metadata.processes.len(),
                false => t.process,
            },
            is_main: t.is_main,
            serves_runtime: roles::serves_runtime(t.is_main, &t.name),
            merged: t.merged,
            begin_ns: t.begin_ns,
            end_ns: t.end_ns,
            started_by: t.started_by_utid,
            start_stack: t.start_stack,
            running_ns: time.running_ns,
            blocked_ns: time.blocked_ns,
            gap_ns: time.gap_ns,
            cpu_ns: time.metrics.cpu_ns,
            runnable_ns: time.metrics.runnable_ns,
            allocated_bytes: time.metrics.allocated_bytes,
            samples: time.metrics.samples,
            calls: t.system_calls.map(|calls| calls.sum()),
            call_bytes: t.call_bytes,
            calls_by_kind: system_calls::kinds(&t.system_calls.unwrap_or_default()),
        }
    });
    let mut probes = vec![None; 256];
    for place in pruned.tree.places() {
        if let Label::Leaf(Leaf::Blocking(ProbeId(number))) = place.label {
            probes[usize::from(number)] = Some(ProbeMeta {
                name: ProbeId(number).name(),
                cause: ProbeId(number).cause() as usize,
            });
        }
    }
    let unnamed = FunctionName::default();
    let name = |f: &FunctionIndex| metadata.functions.get(f.0 as usize).unwrap_or(&unnamed);
    let names: Vec<&FunctionName> = packed.functions.iter().map(name).collect();
    let layer = metadata.layers();
    let of_interpreter = |number: &usize| layer(packed.functions[*number]) == Layer::Interpreter;
    let is_interpreted = |number: &usize| is_managed(names[*number]);
    let busiest = functions(profile, &|_| true, SortKey::SelfTime, Own::Exact);
    let ranks: HashMap<u32, usize> = (busiest.iter().map(|row| row.function.0).zip(0..)).collect();
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_by_key(|number| {
        ranks
            .get(&packed.functions[*number].0)
            .copied()
            .unwrap_or(usize::MAX)
    });
    let started = UNIX_EPOCH + Duration::from_nanos(metadata.recording.started_unix_ns);
    let sources = source_lines::read(&names, order.into_iter(), started);
    let several = ProcessRow {
        name: "several processes".to_owned(),
        ..ProcessRow::default()
    };
    let callers = |what| (report.calls).rows(what, metadata, profile, &|_| true, CALL_ROWS);
    let meta = Meta {
        recording: &metadata.recording,
        verdict: verdict(report, &|_| true),
        processes: (metadata.processes.iter())
            .chain(
                metadata
                    .threads
                    .iter()
                    .any(is_of_several)
                    .then_some(&several),
            )
            .collect(),
        threads: threads.collect(),
        start_stacks: &metadata.start_stacks,
        interpreter: (0..names.len()).filter(of_interpreter).collect(),
        interpreted: (0..names.len()).filter(is_interpreted).collect(),
        functions: names,
        sources,
        causes: Cause::ALL.iter().map(|c| c.name()).collect(),
        idle_causes: idle::CAUSES.map(|cause| cause as usize).to_vec(),
        idle_causes_of_workers: idle::CAUSES_OF_WORKERS.map(|cause| cause as usize).to_vec(),
        waits_at_work: idle::waits_at_work(
            metadata,
            &pruned.tree,
            pruned.cells.keys(),
            &profile.threads,
            &idle::holders(report),
        ),
        waits_for_work: idle::waits_for_work(metadata, &pruned.tree),
        probes,
        drops: metadata.drops_by_cause(),
        damage: &report.damage,
        events: &metadata.events,
        counters: metadata
            .counters
            .iter()
            .map(|c| counter(metadata, c))
            .collect(),
        waits: metadata
            .long_waits
            .iter()
            .map(|w| {
                let waking = w.waking.and_then(|p| pruned.moved.get(p as usize).copied());
                let utid = |thread: ThreadIndex| thread.0;
                WaitMeta(
                    w.thread.0,
                    w.begin_ns,
                    w.end_ns,
                    &w.object,
                    w.owner.map(utid),
                    w.waker.map(utid),
                    waking,
                )
            })
            .collect(),
        waited_for: waited_for(profile, &pruned),
        told: told(metadata, &pruned.tree),
        calls: callers(Counted::Calls),
        moved: callers(Counted::Bytes),
        wake_ups: callers(Counted::WakeUps),
        cut: Cut {
            grain_ns: timeline.grain_ns(),
            joined: timeline.joined(),
            places: pruned.cut,
        },
    };
    let title = format!("{} · stackbeat", metadata.recording.command.join(" "));
    let parts = [
        ("{{TITLE}}", escape(&clean(&title))),
        ("{{STYLE}}", [STYLE, FLAME_STYLE].concat()),
        ("{{AROUND}}", AROUND.to_owned()),
        ("{{META}}", json(&meta)?),
        ("{{DATA}}", base64(&compress(&packed.bytes)?)),
        ("{{SCRIPT}}", FLAME_SCRIPTS.concat() + &SCRIPTS.concat()),
    ];
    Ok(fill(TEMPLATE, &parts))
}

fn counter<'a>(metadata: &Metadata, row: &'a CounterRow) -> CounterMeta<'a> {
    let mut processes = metadata.processes.iter();
    let (times, values) = row.points.iter().copied().unzip();
    CounterMeta {
        name: &row.name,
        unit: &row.unit,
        process: processes.position(|p| p.upid == row.upid),
        times,
        values,
    }
}

/// Replaces each placeholder once, in the order in which they stand in the template, so that what is
/// filled in is never searched for placeholders itself.
pub(crate) fn fill(template: &str, parts: &[(&str, String)]) -> String {
    let mut out = String::with_capacity(
        template.len() + parts.iter().map(|(_, text)| text.len()).sum::<usize>(),
    );
    let mut rest = template;
    for (placeholder, text) in parts {
        if let Some((before, after)) = rest.split_once(placeholder) {
            out.push_str(before);
            out.push_str(text);
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

/// JSON in a page.
fn json(value: &impl Serialize) -> Result<String> {
    let mut out = Vec::new();
    value.serialize(&mut serde_json::Serializer::with_formatter(
        &mut out, Harmless,
    ))?;
    Ok(String::from_utf8(out)?)
}

/// Writes strings without what would steer a terminal or change the direction of text.
struct Harmless;

impl Formatter for Harmless {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        // `</script>` and `<!--` cannot appear: JSON knows another way to write `<`.
        out.write_all(clean(fragment).replace('<', "\\u003c").as_bytes())
    }

    fn write_char_escape<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        match escape {
            CharEscape::Backspace | CharEscape::FormFeed | CharEscape::AsciiControl(_) => {
                write!(out, "\u{fffd}")
            }
            escape => CompactFormatter.write_char_escape(out, escape),
        }
    }
}

fn compress(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(7));
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

/// Standard base64 (RFC 4648 §4).
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk
            .iter()
            .enumerate()
            .fold(0u32, |w, (i, b)| w | u32::from(*b) << (16 - 8 * i));
        for i in 0..4 {
            if i <= chunk.len() {
                out.push(char::from(ALPHABET[(word >> (18 - 6 * i)) as usize & 63]));
            } else {
                out.push('=');
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_follows_the_rfc() {
        // RFC 4648, section 10.
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }

    #[test]
    fn hostile_names_stay_text() {
        let mut report = crate::testing::report();
        report.metadata.recording.command =
            vec!["</title><script>alert(1)</script>{{DATA}}".into()];
        let page = render(&report).expect("renders");
        assert!(!page.contains("<script>alert"));
        assert_eq!(page.matches("</script>").count(), 3, "meta, data, script");
        assert_eq!(page.matches("</title>").count(), 1);
    }

    #[test]
    fn names_steer_nothing() {
        let mut report = crate::testing::report();
        let name = "a\u{1b}]0;title\u{7}\u{9b}\u{7f}\u{202e}b\"\\";
        report.metadata.recording.command = vec![name.into()];
        report.metadata.threads[0].name = name.into();
        let page = render(&report).expect("renders");
        let (head, _) = page.split_once("</title>").expect("a title");
        assert!(head.ends_with(
            "<title>a\u{fffd}]0;title\u{fffd}\u{fffd}\u{fffd}\u{fffd}b&quot;\\ · stackbeat"
        ));
        let (_, meta) = page.split_once("id=\"meta\">").expect("JSON");
        let (meta, _) = meta.split_once("</script>").expect("its end");
        let meta: serde_json::Value = serde_json::from_str(meta).expect("JSON");
        let shown = "a\u{fffd}]0;title\u{fffd}\u{fffd}\u{fffd}\u{fffd}b\"\\";
        assert_eq!(meta["recording"]["command"][0], shown);
        assert_eq!(meta["threads"][0]["name"], shown);
    }
}
