//! speedscope's JSON: a time-ordered chart for each thread, or, for weights other than wall time,
//! the stacks with their weights.

use std::io::{self, Write};

use anyhow::Result;
use stackbeat_model::call_tree::Leaf;
use stackbeat_model::{FunctionIndex, ProbeId, ThreadIndex, Trace};

use super::drops;
use super::export_names::{self, GAP_NAME, Names, UNKNOWN_NAME};
use super::json_writer::{self, Separator};
use super::nesting::{Closed, Level, Nesting, Slices};
use super::profile::Profile;
use super::spool::Spool;
use super::{Exported, Options, Selection, Weight};

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

pub(super) fn write(
    trace: &Trace,
    selection: &Selection,
    options: &Options,
    out: &mut dyn Write,
) -> Result<Exported> {
    write!(
        out,
        r#"{{"$schema":"{SCHEMA}","exporter":"stackbeat","name":"#
    )?;
    let title = export_names::title(trace, options) + &drops::suffix(trace);
    json_writer::string(out, &title)?;
    out.write_all(br#","profiles":["#)?;
    let mut frames = Frames::new(trace);
    let (exported, busiest) = match options.weight {
        Weight::Wall => evented(trace, selection, options, &mut frames, out)?,
        _ => sampled(trace, selection, options, &mut frames, out)?,
    };
    // The profile that is shown first.
    write!(
        out,
        r#"],"activeProfileIndex":{},"shared":{{"frames":"#,
        busiest.position
    )?;
    frames.write(trace, out)?;
    out.write_all(b"}}\n")?;
    Ok(exported)
}

fn evented(
    trace: &Trace,
    selection: &Selection,
    options: &Options,
    frames: &mut Frames,
    out: &mut dyn Write,
) -> Result<(Exported, Busiest)> {
    let mut spool = Spool::fill(trace, selection, options.scratch_folder.as_deref())?;
    let origin_ns = trace.start_ns();
    let mut separator = Separator::default();
    let mut exported = spool.exported;
    let mut busiest = Busiest::default();
    for thread in spool.threads() {
        separator.next(out)?;
        out.write_all(br#"{"type":"evented","name":"#)?;
        json_writer::string(out, &label(trace, thread))?;
        out.write_all(br#","unit":"nanoseconds","events":["#)?;
        let mut nesting = Nesting::new(thread);
        let mut events = Events {
            trace,
            frames,
            out,
            origin_ns,
            separator: Separator::default(),
            slices: 0,
        };
        let (mut begin_ns, mut end_ns, mut cpu_ns) = (u64::MAX, 0, 0);
        spool.read(thread, |segment| {
            begin_ns = begin_ns.min(segment.begin_ns);
            end_ns = segment.end_ns;
            cpu_ns += segment.metrics.cpu_ns;
            nesting.advance(trace, segment, &mut events)
        })?;
        nesting.finish(trace, &mut events)?;
        exported.slices += events.slices;
        busiest.next(cpu_ns);
        write!(
            out,
            r#"],"startValue":{},"endValue":{}}}"#,
            begin_ns.saturating_sub(origin_ns),
            end_ns.saturating_sub(origin_ns),
        )?;
    }
    Ok((exported, busiest))
}

/// Which of the profiles written so far has the most in it.
#[derive(Default)]
struct Busiest {
    profiles: usize,
    position: usize,
    amount: u64,
}

impl Busiest {
    fn next(&mut self, amount: u64) {
        if amount > self.amount {
            self.position = self.profiles;
            self.amount = amount;
        }
        self.profiles += 1;
    }
}

struct Events<'a> {
    trace: &'a Trace,
    frames: &'a mut Frames,
    out: &'a mut dyn Write,
    origin_ns: u64,
    separator: Separator,
    slices: u64,
}

impl Events<'_> {
    fn event(&mut self, kind: &[u8], level: Level, at_ns: u64) -> io::Result<()> {
        let frame = self.frames.of_level(self.trace, level);
        self.separator.next(self.out)?;
        let out = &mut *self.out;
        out.write_all(kind)?;
        json_writer::number(out, frame as u64)?;
        out.write_all(br#","at":"#)?;
        json_writer::number(out, at_ns.saturating_sub(self.origin_ns))?;
        out.write_all(b"}")
    }
}

impl Slices for Events<'_> {
    fn open(&mut self, level: Level, begin_ns: u64) -> io::Result<()> {
        self.slices += 1;
        self.event(br#"{"type":"O","frame":"#, level, begin_ns)
    }

    fn close(&mut self, closed: &Closed<'_>) -> io::Result<()> {
        self.event(
            br#"{"type":"C","frame":"#,
            closed.level,
            closed.slice.end_ns,
        )
    }
}

fn sampled(
    trace: &Trace,
    selection: &Selection,
    options: &Options,
    frames: &mut Frames,
    out: &mut dyn Write,
) -> Result<(Exported, Busiest)> {
    let names = Names::new();
    let profile = Profile::collect(trace, selection)?;
    let unit = match options.weight.unit() {
        "count" => "none",
        unit => unit,
    };
    let mut separator = Separator::default();
    let mut busiest = Busiest::default();
    let mut path = Vec::new();
    for entries in profile.entries.chunk_by(|a, b| a.thread == b.thread) {
        let weighty: Vec<_> = entries
            .iter()
            .map(|entry| (entry, entry.spent.get(options.weight.metric())))
            .filter(|(_, weight)| *weight > 0)
            .collect();
        if weighty.is_empty() {
            continue;
        }
        separator.next(out)?;
        out.write_all(br#"{"type":"sampled","name":"#)?;
        json_writer::string(out, &label(trace, entries[0].thread))?;
        let total: u64 = weighty
            .iter()
            .map(|(_, weight)| *weight)
            .fold(0, u64::saturating_add);
        busiest.next(total);
        write!(
            out,
            r#","unit":"{unit}","startValue":0,"endValue":{total},"samples":"#
        )?;
        json_writer::array(out, &weighty, |out, (entry, _)| {
            names.frames_into(trace, entry.stack, &mut path);
            let mut stack: Vec<usize> = path
                .iter()
                .map(|frame| frames.of_level(trace, Level::Frame(*frame)))
                .collect();
            let leaf = match entry.leaf {
                Leaf::Code if stack.is_empty() => Some(Leaf::NoStack),
                Leaf::Code => None,
                leaf => Some(leaf),
            };
            stack.extend(leaf.map(|leaf| frames.of_level(trace, Level::Leaf(leaf))));
            json_writer::array(out, stack, |out, frame| write!(out, "{frame}"))
        })?;
        out.write_all(br#","weights":"#)?;
        json_writer::array(out, &weighty, |out, (_, weight)| write!(out, "{weight}"))?;
        out.write_all(b"}")?;
    }
    Ok((profile.exported, busiest))
}

fn label(trace: &Trace, thread: ThreadIndex) -> String {
    format!(
        "{} in {}",
        export_names::thread_label(trace, thread),
        export_names::process_label(trace, trace.thread(thread).process)
    )
}

#[derive(Clone, Copy)]
enum Named {
    Function(FunctionIndex),
    Blocking(ProbeId),
    Gap,
    Unknown,
}

/// The shared list of frames: one for each function, so that speedscope adds them up.
struct Frames {
    /// Position in `list` + 1, by function; then by probe, for gaps and unknown stacks.
    functions: Vec<u32>,
    others: [u32; 258],
    list: Vec<Named>,
}

impl Frames {
    fn new(trace: &Trace) -> Frames {
        Frames {
            functions: vec![0; trace.functions().len()],
            others: [0; 258],
            list: Vec::new(),
        }
    }

    fn of_level(&mut self, trace: &Trace, level: Level) -> usize {
        let (slot, named) = match level {
            Level::Frame(frame) => {
                let function = trace.frame(frame).function;
                (
                    &mut self.functions[function.0 as usize],
                    Named::Function(function),
                )
            }
            Level::Leaf(Leaf::Blocking(probe)) => {
                (&mut self.others[probe.0 as usize], Named::Blocking(probe))
            }
            Level::Leaf(Leaf::Gap) => (&mut self.others[256], Named::Gap),
            Level::Leaf(Leaf::Code | Leaf::NoStack) => (&mut self.others[257], Named::Unknown),
        };
        if *slot == 0 {
            self.list.push(named);
            *slot = self.list.len() as u32;
        }
        *slot as usize - 1
    }

    fn write(&self, trace: &Trace, out: &mut dyn Write) -> io::Result<()> {
        json_writer::array(out, &self.list, |out, named| {
            out.write_all(br#"{"name":"#)?;
            match *named {
                Named::Function(function) => {
                    let function = trace.function(function);
                    json_writer::string(out, &function.name)?;
                    if !function.file.is_empty() {
                        out.write_all(br#","file":"#)?;
                        json_writer::string(out, &function.file)?;
                        if function.line != 0 {
                            write!(out, r#","line":{}"#, function.line)?;
                        }
                    }
                }
                Named::Blocking(probe) => {
                    json_writer::string(out, &export_names::blocking_name(probe))?
                }
                Named::Gap => json_writer::string(out, GAP_NAME)?,
                Named::Unknown => json_writer::string(out, UNKNOWN_NAME)?,
            }
            out.write_all(b"}")
        })
    }
}
