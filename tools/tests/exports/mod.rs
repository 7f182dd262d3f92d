//! Exports are read back by programs that share no code with them: `tests/exports/totals.py` (every
//! format but Perfetto's), Perfetto's trace processor, `go tool pprof`. What they find must be what
//! the model says.

mod managed_frames;
mod sample_trace;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use stackbeat_model::call_tree::Leaf;
use stackbeat_model::{AttributedCalls, Segment, Slice, Spent, StackIndex, Trace, Visitor};
use stackbeat_tests::viewers;
use stackbeat_tools::export::{self, Exported, Format, GAP_NAME, Options, UNKNOWN_NAME, Weight};

/// Samples of each of the five threads.
const SAMPLES: u64 = 1_200;

fn trace() -> Trace {
    let trace = Trace::from_bytes("sample.beat", sample_trace::write(SAMPLES)).unwrap();
    assert!(trace.damage().is_empty(), "{:?}", trace.damage());
    trace
}

fn write(trace: &Trace, format: Format, options: &Options, folder: &Path) -> (PathBuf, Exported) {
    let path = folder.join(format!("out.{}", format.extension()));
    let mut file = std::fs::File::create(&path).unwrap();
    let exported = export::export(trace, format, options, &mut file).unwrap();
    assert_eq!(exported.bytes, std::fs::metadata(&path).unwrap().len());
    (path, exported)
}

/// What the model says that each function and leaf spent by itself, and its slices.
#[derive(Default)]
struct Expected {
    own: BTreeMap<String, Spent>,
    total: Spent,
    /// Name, begin, end, depth of each slice.
    slices: Vec<(String, u64, u64, u32)>,
    samples: u64,
    /// System calls by innermost function.
    calls: BTreeMap<String, u64>,
}

impl Visitor for Expected {
    fn segment(&mut self, trace: &Trace, segment: &Segment) {
        let innermost = trace.stack_frames(segment.stack).last().copied();
        let name = match (Leaf::of(segment), innermost) {
            (Leaf::Blocking(probe), _) => export::blocking_name(probe),
            (Leaf::Gap, _) => GAP_NAME.to_owned(),
            (Leaf::Code, None) | (Leaf::NoStack, _) => UNKNOWN_NAME.to_owned(),
            (Leaf::Code, Some(frame)) => trace.function(trace.frame(frame).function).name.clone(),
        };
        self.own.entry(name).or_default().add_segment(segment);
        self.total.add_segment(segment);
    }

    fn wants_slices(&self) -> bool {
        true
    }

    fn slice(&mut self, trace: &Trace, slice: &Slice) {
        let name = match slice.blocking {
            Some(probe) => export::blocking_name(probe),
            None => trace
                .function(trace.frame(slice.frame).function)
                .name
                .clone(),
        };
        self.slices
            .push((name, slice.begin_ns, slice.end_ns, slice.depth));
    }

    fn system_calls(&mut self, trace: &Trace, attributed: &AttributedCalls) {
        let name = match trace.stack_frames(attributed.stack).last() {
            None => UNKNOWN_NAME.to_owned(),
            Some(frame) => trace.function(trace.frame(*frame).function).name.clone(),
        };
        *self.calls.entry(name).or_insert(0) += attributed.count;
    }

    fn sample(
        &mut self,
        _: &Trace,
        _: stackbeat_model::ThreadIndex,
        _: &stackbeat_model::SampleRow,
        _: StackIndex,
    ) {
        self.samples += 1;
    }
}

fn expected(trace: &Trace) -> Expected {
    let mut expected = Expected::default();
    trace.visit(&mut expected).unwrap();
    expected
}

/// The non-zero weights by name; `rename` is what the format does to names.
fn weights(
    expected: &Expected,
    weight: Weight,
    rename: impl Fn(&str) -> String,
) -> BTreeMap<String, u64> {
    let mut weights = BTreeMap::new();
    for (name, amount) in &expected.own {
        let amount = amount.get(weight.metric());
        if amount != 0 {
            *weights.entry(rename(name)).or_insert(0) += amount;
        }
    }
    weights
}

/// Of functions the time on the CPU or ready for it, of other leaves all their time, by name.
fn own_times(expected: &Expected) -> BTreeMap<String, u64> {
    let own = expected.own.iter().map(|(name, amount)| {
        let unseen_ns = if name == GAP_NAME { 0 } else { amount.gap_ns };
        (name.clone(), amount.wall_ns - unseen_ns)
    });
    own.filter(|(_, own_ns)| *own_ns != 0).collect()
}

#[test]
fn the_sample_trace_has_all_that_is_to_be_tested() {
    let expected = expected(&trace());
    let total = expected.total;
    assert_eq!(expected.samples, 5 * SAMPLES);
    assert!(total.blocked_ns > 0 && total.gap_ns > 0 && total.metrics.cpu_ns > 0);
    assert!(
        total.metrics.allocated_bytes > 0
            && total.metrics.frees > 0
            && total.metrics.minor_faults > 0
    );
    for name in [
        "parse_inner",
        "read [io]",
        "pthread_mutex_lock [lock]",
        GAP_NAME,
        UNKNOWN_NAME,
    ] {
        assert!(expected.own.contains_key(name), "{name}");
    }
}

/// What a trace does not have is said in every format: records that found no room, and a damaged file.
#[test]
fn losses_are_visible() {
    let folder = tempfile::tempdir().unwrap();
    let (whole_trace, mut cut) = (trace(), sample_trace::write(SAMPLES));
    cut.truncate(cut.len() / 2);
    let cut = Trace::from_bytes("cut.beat", cut).unwrap();
    for format in Format::ALL {
        let text = |trace| {
            let (path, _) = write(trace, format, &Options::default(), folder.path());
            let mut bytes = std::fs::read(&path).unwrap();
            if format == Format::Pprof {
                let packed = std::mem::take(&mut bytes);
                let mut reader = flate2::read::GzDecoder::new(&packed[..]);
                std::io::Read::read_to_end(&mut reader, &mut bytes).unwrap();
            }
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let whole = text(&whole_trace);
        let loss = match format {
            Format::Perfetto => "loss: no free buffer",
            _ => "12 × no free buffer",
        };
        assert!(whole.contains(loss), "{format}");
        assert!(
            text(&cut).contains("damaged: parts of the file cannot be read"),
            "{format}"
        );
        if format == Format::Folded {
            // The first line is a stack, by which readers know the format, and no comment ends in a number.
            assert!(!whole.starts_with('#'));
            let last = whole.lines().last();
            assert_eq!(last, Some("# missing: 12 × no free buffer."));
        }
    }
}

#[test]
fn totals_of_functions_are_the_models_in_every_format() {
    let (trace, folder) = (trace(), tempfile::tempdir().unwrap());
    let expected = expected(&trace);
    let same = |name: &str| name.to_owned();
    let without_semicolons = |name: &str| name.replace(';', ":");
    for weight in Weight::ALL {
        let options = Options {
            weight,
            ..Options::default()
        };
        for format in [Format::Folded, Format::Speedscope] {
            let (path, exported) = write(&trace, format, &options, folder.path());
            let expected = match format {
                Format::Folded => weights(&expected, weight, without_semicolons),
                _ => weights(&expected, weight, same),
            };
            assert_eq!(
                viewers::totals(format.name(), &path, None),
                expected,
                "{format} {weight}"
            );
            assert_eq!(
                exported.totals.get(weight.metric()),
                expected.values().sum::<u64>(),
                "{format} {weight}"
            );
        }
    }
    let options = Options::default();
    let (path, _) = write(&trace, Format::Firefox, &options, folder.path());
    assert_eq!(
        viewers::totals(Format::Firefox.name(), &path, None),
        weights(&expected, Weight::Wall, same)
    );
    let (path, _) = write(&trace, Format::Pprof, &options, folder.path());
    for (sample_type, weight) in [
        ("samples", Weight::Samples),
        ("wall", Weight::Wall),
        ("cpu", Weight::Cpu),
        ("blocked", Weight::Blocked),
        ("alloc_objects", Weight::Allocations),
        ("alloc_space", Weight::AllocBytes),
    ] {
        assert_eq!(
            viewers::totals(Format::Pprof.name(), &path, Some(sample_type)),
            weights(&expected, weight, same),
            "{sample_type}"
        );
    }
    let (path, exported) = write(&trace, Format::Chrome, &options, folder.path());
    assert_eq!(
        viewers::totals(Format::Chrome.name(), &path, None),
        weights(&expected, Weight::Wall, same),
        "from the nesting of events"
    );
    for (argument, expected) in [
        ("self_ns", own_times(&expected)),
        ("self_cpu_ns", weights(&expected, Weight::Cpu, same)),
        (
            "self_allocated_bytes",
            weights(&expected, Weight::AllocBytes, same),
        ),
    ] {
        assert_eq!(
            viewers::totals(Format::Chrome.name(), &path, Some(argument)),
            expected,
            "{argument}"
        );
    }
    assert_eq!(exported.samples, expected.samples);
}

#[test]
fn go_tool_pprof_agrees() {
    let Some(go) = viewers::go() else {
        panic!("no Go toolchain found: install golang-go, or set GO to its `go`");
    };
    let (trace, folder) = (trace(), tempfile::tempdir().unwrap());
    let expected = expected(&trace);
    let (path, _) = write(&trace, Format::Pprof, &Options::default(), folder.path());
    for (sample_type, weight, unit) in [
        ("wall", Weight::Wall, "ns"),
        ("cpu", Weight::Cpu, "ns"),
        ("alloc_space", Weight::AllocBytes, "B"),
    ] {
        let flat = viewers::pprof_top(&go, &path, sample_type, unit);
        // pprof leaves out functions whose share is nothing.
        let expected = weights(&expected, weight, str::to_owned);
        assert_eq!(flat, expected, "{sample_type}");
    }
    let calls = viewers::pprof_top(&go, &path, "system_calls", "count");
    assert_eq!(calls, expected.calls);
}

#[test]
fn threads_and_time_can_be_selected() {
    let (trace, folder) = (trace(), tempfile::tempdir().unwrap());
    let options = Options {
        threads: vec!["worker".to_owned(), "4100".to_owned()],
        range_ns: Some(100_000_000..300_000_000),
        ..Options::default()
    };
    let (path, exported) = write(&trace, Format::Folded, &options, folder.path());
    // Two images of one process have one main thread.
    assert_eq!(exported.threads, 3);
    assert_eq!(exported.totals.wall_ns, 3 * 200_000_000);
    let total: u64 = viewers::totals(Format::Folded.name(), &path, None)
        .values()
        .sum();
    assert_eq!(total, 3 * 200_000_000);

    for wrong in [
        Options {
            threads: vec!["nobody".to_owned()],
            ..Options::default()
        },
        Options {
            range_ns: Some(5..5),
            ..Options::default()
        },
    ] {
        let error = export::export(&trace, Format::Folded, &wrong, &mut Vec::new()).unwrap_err();
        assert!(!format!("{error:#}").is_empty());
    }
}

#[test]
fn boxes_of_the_flame_graph_are_what_stacks_weigh() {
    let folder = tempfile::tempdir().unwrap();
    // So few samples that none is too narrow to be drawn.
    let trace = Trace::from_bytes("small.beat", sample_trace::write(60)).unwrap();
    let options = Options {
        weight: Weight::Samples,
        ..Options::default()
    };
    let (path, _) = write(&trace, Format::FlamegraphSvg, &options, folder.path());
    let wanted = weights(&expected(&trace), Weight::Samples, str::to_owned);
    assert_eq!(
        viewers::totals(Format::FlamegraphSvg.name(), &path, None),
        wanted
    );
    // What is too narrow stays in its parent.
    let trace = self::trace();
    for weight in Weight::ALL {
        let options = Options {
            weight,
            ..Options::default()
        };
        let (path, exported) = write(&trace, Format::FlamegraphSvg, &options, folder.path());
        let found = viewers::totals(Format::FlamegraphSvg.name(), &path, None);
        let total: u64 = found.values().sum();
        assert_eq!(total, exported.totals.get(weight.metric()), "{weight}");
    }
}

/// Fails after some bytes, as a full disk or a closed pipe does.
struct Full(usize);

impl std::io::Write for Full {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        if self.0 == 0 {
            return Err(std::io::ErrorKind::BrokenPipe.into());
        }
        let taken = data.len().min(self.0);
        self.0 -= taken;
        Ok(taken)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_failing_output_ends_the_export_with_its_error() {
    let trace = trace();
    for format in Format::ALL {
        let error = export::export(&trace, format, &Options::default(), &mut Full(1_000))
            .expect_err("the output is full");
        let kind = error
            .chain()
            .find_map(|cause| cause.downcast_ref::<std::io::Error>())
            .map(std::io::Error::kind);
        assert_eq!(
            kind,
            Some(std::io::ErrorKind::BrokenPipe),
            "{format}: {error:#}"
        );
    }
}

#[test]
fn the_same_trace_gives_the_same_bytes() {
    let trace = trace();
    for format in Format::ALL {
        let mut outputs = [Vec::new(), Vec::new()];
        for out in &mut outputs {
            export::export(&trace, format, &Options::default(), out).unwrap();
        }
        assert!(outputs[0] == outputs[1], "{format}");
    }
}

/// What Perfetto's own trace processor finds in the Perfetto and the Chrome export.
mod perfetto {
    use serde_json::Value;

    use super::*;

    fn number(row: &Value, column: &str) -> i64 {
        row[column]
            .as_i64()
            .unwrap_or_else(|| panic!("{column} of {row}"))
    }

    fn text<'a>(row: &'a Value, column: &str) -> &'a str {
        row[column]
            .as_str()
            .unwrap_or_else(|| panic!("{column} of {row}"))
    }

    #[test]
    fn slices_are_the_models() {
        let (trace, folder) = (trace(), tempfile::tempdir().unwrap());
        let expected = expected(&trace);
        let query = "with calls as (select * from slice \
                     where category not in ('session', 'loss', 'mark', 'wakeup', 'flow')) \
                     select name, ts - (select min(ts) from calls) as ts, dur, depth from calls";
        let origin = expected.slices.iter().map(|slice| slice.1).min().unwrap();
        let mut wanted: Vec<_> = expected
            .slices
            .iter()
            .map(|(name, begin, end, depth)| {
                let dur = (end - begin) as i64;
                (
                    name.clone(),
                    (begin - origin) as i64,
                    dur,
                    i64::from(*depth),
                )
            })
            .collect();
        wanted.sort();
        for format in [Format::Perfetto, Format::Chrome] {
            let (path, exported) = write(&trace, format, &Options::default(), folder.path());
            let rows = viewers::trace_processor(&path, &[query]);
            // Perfetto nests complete events without a length that are of one moment in each other.
            let is_told = |dur: i64| format == Format::Perfetto || dur > 0;
            let wanted: Vec<_> = (wanted.iter().cloned())
                .map(|(name, ts, dur, depth)| (name, ts, dur, is_told(dur).then_some(depth)))
                .collect();
            let mut found: Vec<_> = rows
                .iter()
                .filter(|row| row["name"] != UNKNOWN_NAME)
                .map(|row| {
                    (
                        text(row, "name").to_owned(),
                        number(row, "ts"),
                        number(row, "dur"),
                        is_told(number(row, "dur")).then(|| number(row, "depth")),
                    )
                })
                .collect();
            found.sort();
            for (found, wanted) in found.iter().zip(&wanted) {
                assert_eq!(found, wanted, "{format}");
            }
            assert_eq!(found.len(), wanted.len(), "{format}");
            assert_eq!(exported.slices, rows.len() as u64, "{format}");
        }
    }

    #[test]
    fn arguments_add_up_to_the_totals() {
        let (trace, folder) = (trace(), tempfile::tempdir().unwrap());
        let expected = expected(&trace);
        let (path, _) = write(&trace, Format::Perfetto, &Options::default(), folder.path());
        let weights = |weight| weights(&expected, weight, str::to_owned);
        for (argument, expected) in [
            ("self_ns", own_times(&expected)),
            ("self_cpu_ns", weights(Weight::Cpu)),
            ("self_allocated_bytes", weights(Weight::AllocBytes)),
            ("self_allocations", weights(Weight::Allocations)),
        ] {
            let query = format!(
                "select name, sum(int_value) as total from slice join args using (arg_set_id) \
                 where key = 'debug.{argument}' group by name"
            );
            let found: BTreeMap<String, u64> = viewers::trace_processor(&path, &[&query])
                .iter()
                .map(|row| (text(row, "name").to_owned(), number(row, "total") as u64))
                .filter(|(_, total)| *total != 0)
                .collect();
            assert_eq!(found, expected, "{argument}");
        }
        // A blocking call says what it waited for, on what, and who ended it.
        let rows = viewers::trace_processor(
            &path,
            &["select category, \
               extract_arg(arg_set_id, 'debug.argument') as argument, \
               extract_arg(arg_set_id, 'debug.woken_by') as woken_by, \
               extract_arg(arg_set_id, 'debug.woken_by_name') as woken_by_name, \
               extract_arg(arg_set_id, 'debug.blocked_ns') as blocked_ns, dur \
               from slice where name = 'pthread_mutex_lock [lock]' and woken_by is not null"],
        );
        assert!(!rows.is_empty());
        for row in rows {
            assert_eq!(row["category"], "lock");
            assert_eq!(number(&row, "woken_by"), 4002);
            assert!(row["woken_by_name"] == "worker" || row["woken_by_name"].is_null());
            assert!(number(&row, "argument") < 100);
            assert_eq!(number(&row, "blocked_ns"), number(&row, "dur"));
        }
    }

    #[test]
    fn threads_processes_counters_and_drops_are_named() {
        let (trace, folder) = (trace(), tempfile::tempdir().unwrap());
        let expected = expected(&trace);
        let (path, _) = write(&trace, Format::Perfetto, &Options::default(), folder.path());
        let rows = viewers::trace_processor(
            &path,
            &[
                "select thread.name as thread, tid, process.name as process, pid, is_main_thread, \
               (select count(*) from thread_track where thread_track.utid = thread.utid) as tracks \
               from thread join process using (upid) where tid != 0 order by tid",
            ],
        );
        let found: Vec<_> = rows
            .iter()
            .map(|row| {
                (
                    text(row, "thread"),
                    number(row, "tid"),
                    text(row, "process"),
                    number(row, "pid"),
                )
            })
            .collect();
        let wanted = [
            ("demo", 4001, "demo1", 4001),
            ("worker", 4002, "demo1", 4001),
            ("worker", 4003, "demo1", 4001),
            // Two images, one thread: the last one names it.
            ("image <3>", 4100, "demo3", 4100),
        ];
        assert_eq!(found, wanted);
        assert!(
            rows.iter().all(|row| number(row, "tracks") == 1),
            "{rows:?}"
        );
        let parents = viewers::trace_processor(
            &path,
            &["select child.pid, parent.pid as parent from process child \
               join process parent on child.parent_upid = parent.upid"],
        );
        let of = |row: &Value| (number(row, "pid"), number(row, "parent"));
        assert_eq!(parents.iter().map(of).collect::<Vec<_>>(), [(4100, 4001)]);

        let rows = viewers::trace_processor(
            &path,
            &[
                "select cast(sum(value) as int) as value from \
               (select max(value) as value from counter join process_counter_track t \
                on counter.track_id = t.id where t.name = 'allocated bytes' group by t.id)",
                // A thread's counter starts again when its process execs.
                "select cast(sum(iif(value < before, value, value - before)) as int) as value from \
               (select value, lag(value, 1, 0) over (partition by track_id order by ts) as before \
                from counter join thread_counter_track t \
                on counter.track_id = t.id where t.name like 'allocated bytes of%')",
                "select cast(sum(value) as int) as value from \
               (select max(value) as value from counter join process_counter_track t \
                on counter.track_id = t.id where t.name = 'page faults' group by t.id)",
            ],
        );
        let allocated = expected.total.metrics.allocated_bytes as i64;
        let faults =
            (expected.total.metrics.minor_faults + expected.total.metrics.major_faults) as i64;
        let values: Vec<i64> = rows.iter().map(|row| number(row, "value")).collect();
        assert_eq!(values, [allocated, allocated, faults]);

        // Each stands in the group of its process, those of no process in one of their own.
        let groups = viewers::trace_processor(
            &path,
            &[
                "select count(*) as n, g.name as parent, g.type like 'process%' as is_of_process from track t \
               join track g on t.parent_id = g.id where t.name in ('CPU', 'page faults', 'requests') \
               group by 2, 3 order by 2",
                "select count(*) as n, g.name as parent, g.type like 'process%' as is_of_process from track t \
               join track g on t.parent_id = g.id where t.name = 'pressure' group by 2, 3",
            ],
        );
        let of = |row: &Value| {
            let is_of_process = number(row, "is_of_process") == 1;
            (
                number(row, "n"),
                text(row, "parent").to_owned(),
                is_of_process,
            )
        };
        assert_eq!(
            groups.iter().map(of).collect::<Vec<_>>(),
            [
                (6, "counters".to_owned(), true),
                (
                    1,
                    "counters of the machine and of the recording".to_owned(),
                    false
                )
            ]
        );

        // A counter ends with its process.
        let rows = viewers::trace_processor(
            &path,
            &[
                "select group_concat(cast(value as int)) as said, max(c.ts) - min(c.ts) as length from counter c \
               join process_counter_track t on c.track_id = t.id where t.name = 'requests' group by t.id order by said",
            ],
        );
        let said = |row: &Value| (text(row, "said").to_owned(), number(row, "length"));
        assert_eq!(
            rows.iter().map(said).collect::<Vec<_>>(),
            [
                ("40,0".to_owned(), 5_000_000),
                ("40,42".to_owned(), 9_000_000)
            ]
        );
        let rows = viewers::trace_processor(
            &path,
            &["select t.upid as process, max(c.ts) as last, \
               (select max(s.ts + s.dur) from slice s join thread_track k on s.track_id = k.id \
                join thread using (utid) where thread.upid = t.upid) as end_ns \
               from counter c join process_counter_track t on c.track_id = t.id \
               where t.name != 'requests' group by t.upid"],
        );
        assert_eq!(rows.len(), 2);
        for row in rows {
            assert!(number(&row, "last") <= number(&row, "end_ns"), "{row}");
        }

        // The area below the CPU counter is the CPU time, to a tenth of a percent of each bucket.
        let rows = viewers::trace_processor(
            &path,
            &["select sum(value * dur) / 100 as cpu_ns from \
               (select value, coalesce(lead(ts) over (partition by track_id order by ts), ts) - ts as dur \
                from counter join process_counter_track t on counter.track_id = t.id where t.name = 'CPU')"],
        );
        let cpu_ns = rows[0]["cpu_ns"].as_f64().unwrap();
        let wanted = expected.total.metrics.cpu_ns as f64;
        assert!(
            (cpu_ns / wanted - 1.0).abs() < 0.01,
            "{cpu_ns} against {wanted}"
        );

        let rows = viewers::trace_processor(
            &path,
            &[
                "select name, category, extract_arg(arg_set_id, 'debug.count') as count from slice \
               where category in ('loss', 'mark', 'session') order by ts",
            ],
        );
        let names: Vec<_> = rows.iter().map(|row| text(row, "name")).collect();
        let [recording, mark, state, loss] = names[..] else {
            panic!("{names:?}");
        };
        assert_eq!(
            [recording, mark, loss],
            ["recording", "checkpoint", "loss: no free buffer"]
        );
        assert!(state.starts_with("not finished"), "{state}");
        assert_eq!(number(&rows[3], "count"), 12);
    }

    #[test]
    fn samples_have_their_callstacks() {
        let (trace, folder) = (trace(), tempfile::tempdir().unwrap());
        let (path, _) = write(&trace, Format::Perfetto, &Options::default(), folder.path());
        let rows = viewers::trace_processor(
            &path,
            &[
                "select count(*) as count, count(callsite_id) as with_stack from perf_sample",
                "select count(*) as count, count(name) as with_stack from stack_profile_frame",
                // Samples by innermost function.
                "select f.name as name, m.name as module, count(*) as count from perf_sample s \
                 join stack_profile_callsite c on s.callsite_id = c.id \
                 join stack_profile_frame f on c.frame_id = f.id \
                 join stack_profile_mapping m on f.mapping = m.id group by f.name",
            ],
        );
        // One for each millisecond of computing time, and none for waits, also not for a processor.
        let expected = expected(&trace);
        let interval_ns = trace.config().interval_ns;
        assert!(expected.total.metrics.runnable_ns > expected.total.computing_ns() / 10);
        let samples = |own: &Spent| own.computing_ns() as f64 / interval_ns as f64;
        let mut found = 0;
        for row in &rows[2..] {
            let wanted = samples(&expected.own[text(row, "name")]);
            let count = number(row, "count");
            assert!(
                (count as f64 - wanted).abs() <= 4.0 + wanted / 20.0,
                "{row} for {wanted}"
            );
            found += count;
        }
        assert_eq!(found, number(&rows[0], "count"));
        let named = expected
            .own
            .iter()
            .filter(|(name, _)| *name != UNKNOWN_NAME && *name != GAP_NAME);
        let wanted: f64 = named.map(|(_, own)| samples(own)).sum();
        assert!(
            (found as f64 - wanted).abs() <= 0.02 * wanted,
            "{found} for {wanted}"
        );
        assert_eq!(rows[0]["count"], rows[0]["with_stack"]);
        assert_eq!(rows[1]["count"], rows[1]["with_stack"]);
        assert!(
            rows[2..]
                .iter()
                .any(|row| text(row, "module").ends_with("usr/bin/demo1"))
        );
    }
}
