//! One thread of a profile: its samples, its markers and the tables that they point into.

use std::collections::HashMap;
use std::io::{self, Write};

use stackbeat_model::call_tree::Leaf;
use stackbeat_model::{
    FrameIndex, FunctionIndex, ProbeId, Segment, SegmentKind, StackIndex, ThreadIndex, Trace,
};

use super::super::export_names::{self, GAP_NAME, Names, UNKNOWN_NAME};
use super::super::json_writer::{self, Separator};
use super::super::spool::Spool;
use super::super::viewer_ids::Identities;
use super::{CATEGORY_CODE, CATEGORY_GAP, Libs, Moment, category_of};

/// What a row of the function and frame tables stands for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Function(FunctionIndex),
    Leaf(Leaf),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum FrameKey {
    Frame(FrameIndex),
    Leaf(Leaf),
}

/// A row of the markers.
#[derive(Clone, Copy)]
enum Marker<'a> {
    Blocked(&'a Segment, ProbeId),
    Moment(&'a Moment),
}

fn blocked_data(out: &mut dyn Write, segment: &Segment, probe: ProbeId) -> io::Result<()> {
    let cause = probe.cause().name();
    write!(out, r#"{{"type":"blocked","cause":"{cause}""#)?;
    if let Some(argument) = segment.arg {
        write!(out, r#","argument":"{argument:#x}""#)?;
    }
    if let Some(result) = segment.result {
        write!(out, r#","result":{result}"#)?;
    }
    if segment.is_inferred {
        write!(out, r#","inferred":true"#)?;
    }
    if let Some(waker_tid) = segment.waker_tid {
        write!(out, r#","wokenBy":{waker_tid}"#)?;
    }
    out.write_all(b"}")
}

/// The tables of one thread: rows are added as samples need them.
pub(super) struct Tables<'a> {
    trace: &'a Trace,
    names: &'a Names,
    libs: &'a Libs,
    identities: &'a Identities,
    thread: ThreadIndex,
    strings: HashMap<String, usize>,
    string_list: Vec<String>,
    functions: HashMap<Key, usize>,
    function_list: Vec<Key>,
    frames: HashMap<FrameKey, usize>,
    /// Frame and its function's row.
    frame_list: Vec<(FrameKey, usize)>,
    stacks: HashMap<(Option<usize>, usize), usize>,
    /// Prefix, frame and category.
    stack_list: Vec<(Option<usize>, usize, usize)>,
    whole_stacks: HashMap<(StackIndex, Leaf), usize>,
    path: Vec<FrameIndex>,
    moments: Vec<&'a Moment>,
}

impl<'a> Tables<'a> {
    pub(super) fn new(
        trace: &'a Trace,
        names: &'a Names,
        libs: &'a Libs,
        identities: &'a Identities,
        thread: ThreadIndex,
    ) -> Self {
        Tables {
            trace,
            names,
            libs,
            identities,
            thread,
            strings: HashMap::new(),
            string_list: Vec::new(),
            functions: HashMap::new(),
            function_list: Vec::new(),
            frames: HashMap::new(),
            frame_list: Vec::new(),
            stacks: HashMap::new(),
            stack_list: Vec::new(),
            whole_stacks: HashMap::new(),
            path: Vec::new(),
            moments: Vec::new(),
        }
    }

    /// Also shows these, which are in order of their begins.
    pub(super) fn with_moments(self, moments: Vec<&'a Moment>) -> Self {
        Tables { moments, ..self }
    }

    fn string(&mut self, text: &str) -> usize {
        if let Some(position) = self.strings.get(text) {
            return *position;
        }
        self.string_list.push(text.to_owned());
        self.strings
            .insert(text.to_owned(), self.string_list.len() - 1);
        self.string_list.len() - 1
    }

    fn frame(&mut self, key: FrameKey) -> usize {
        if let Some(position) = self.frames.get(&key) {
            return *position;
        }
        let function = match key {
            FrameKey::Frame(frame) => Key::Function(self.trace.frame(frame).function),
            FrameKey::Leaf(leaf) => Key::Leaf(leaf),
        };
        let next = self.function_list.len();
        let function_row = *self.functions.entry(function).or_insert(next);
        if function_row == next {
            self.function_list.push(function);
        }
        self.frame_list.push((key, function_row));
        self.frames.insert(key, self.frame_list.len() - 1);
        self.frame_list.len() - 1
    }

    fn child(&mut self, prefix: Option<usize>, frame: usize, category: usize) -> usize {
        let next = self.stack_list.len();
        let stack = *self.stacks.entry((prefix, frame)).or_insert(next);
        if stack == next {
            self.stack_list.push((prefix, frame, category));
        }
        stack
    }

    /// The stack of a segment, with its leaf.
    fn stack(&mut self, stack: StackIndex, leaf: Leaf) -> usize {
        if let Some(position) = self.whole_stacks.get(&(stack, leaf)) {
            return *position;
        }
        let mut path = std::mem::take(&mut self.path);
        self.names.frames_into(self.trace, stack, &mut path);
        let mut prefix = None;
        for index in &path {
            let frame = self.frame(FrameKey::Frame(*index));
            prefix = Some(self.child(prefix, frame, CATEGORY_CODE));
        }
        self.path = path;
        let position = match (leaf, prefix) {
            (Leaf::Code, Some(innermost)) => innermost,
            (leaf, prefix) => {
                let category = match leaf {
                    Leaf::Code | Leaf::NoStack => CATEGORY_CODE,
                    Leaf::Blocking(probe) => category_of(probe),
                    Leaf::Gap => CATEGORY_GAP,
                };
                let frame = self.frame(FrameKey::Leaf(leaf));
                self.child(prefix, frame, category)
            }
        };
        self.whole_stacks.insert((stack, leaf), position);
        position
    }

    pub(super) fn write(&mut self, spool: &mut Spool, out: &mut dyn Write) -> io::Result<()> {
        let trace = self.trace;
        let origin_ns = trace.start_ns();
        let thread = trace.thread(self.thread);
        let process = trace.process(thread.process);
        let process_name =
            export_names::process_name(trace, self.identities.last_image(thread.process));
        out.write_all(br#"{"name":"#)?;
        json_writer::string(out, export_names::thread_name(&thread.name))?;
        write!(
            out,
            r#","isMainThread":{},"processType":"default","processName":"#,
            thread.is_main
        )?;
        json_writer::string(out, &process_name)?;
        write!(
            out,
            r#","pid":"{}","tid":{},"pausedRanges":[],"processStartupTime":"#,
            process.pid, thread.tid
        )?;
        json_writer::millis(out, process.start_ns.saturating_sub(origin_ns))?;
        out.write_all(br#","processShutdownTime":null,"registerTime":"#)?;
        json_writer::millis(out, thread.start_ns.saturating_sub(origin_ns))?;
        out.write_all(br#","unregisterTime":"#)?;
        json_writer::millis(out, thread.end_ns.saturating_sub(origin_ns))?;
        self.samples(spool, origin_ns, out)?;
        self.markers(spool, origin_ns, out)?;
        self.stack_table(out)?;
        self.frame_table(out)?;
        self.function_table(out)?;
        out.write_all(
            br#","nativeSymbols":{"length":0,"libIndex":[],"address":[],"name":[],"functionSize":[]},"stringArray":"#,
        )?;
        json_writer::array(out, &self.string_list, |out, text| {
            json_writer::string(out, text)
        })?;
        out.write_all(b"}")
    }

    /// A pass over the segments for each column. A sample stands at the beginning of its segment;
    /// its CPU delta is what was used since the sample before, so a last one without stack follows.
    fn samples(
        &mut self,
        spool: &mut Spool,
        origin_ns: u64,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let thread = self.thread;
        let mut length = 0;
        let mut end_ns = 0;
        out.write_all(br#","samples":{"weightType":"tracing-ms","stack":["#)?;
        spool.read(thread, |segment| {
            let stack = self.stack(segment.stack, Leaf::of(segment));
            length += 1;
            end_ns = segment.end_ns;
            write!(out, "{stack},")
        })?;
        out.write_all(br#"null],"time":["#)?;
        spool.read(thread, |segment| {
            json_writer::millis(out, segment.begin_ns.saturating_sub(origin_ns))?;
            out.write_all(b",")
        })?;
        json_writer::millis(out, end_ns.saturating_sub(origin_ns))?;
        out.write_all(br#"],"weight":["#)?;
        spool.read(thread, |segment| {
            json_writer::millis(out, segment.end_ns.saturating_sub(segment.begin_ns))?;
            out.write_all(b",")
        })?;
        out.write_all(br#"0],"threadCPUDelta":[0"#)?;
        spool.read(thread, |segment| write!(out, ",{}", segment.metrics.cpu_ns))?;
        write!(out, r#"],"length":{}}}"#, length + 1)
    }

    /// Blocking calls, and between them events, in order of time.
    fn markers(
        &mut self,
        spool: &mut Spool,
        origin_ns: u64,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let thread = self.thread;
        let moments = std::mem::take(&mut self.moments);
        let column = |spool: &mut Spool,
                      out: &mut dyn Write,
                      cell: &mut dyn FnMut(&mut dyn Write, Marker<'_>) -> io::Result<()>|
         -> io::Result<u64> {
            let mut separator = Separator::default();
            let mut length = 0;
            let mut one = |out: &mut dyn Write, marker: Marker<'_>| {
                length += 1;
                separator.next(out)?;
                cell(out, marker)
            };
            let mut rest = &moments[..];
            spool.read(thread, |segment| {
                let SegmentKind::Blocked(probe) = segment.kind else {
                    return Ok(());
                };
                while let Some((moment, later)) = rest.split_first()
                    && moment.begin_ns <= segment.begin_ns
                {
                    one(out, Marker::Moment(moment))?;
                    rest = later;
                }
                one(out, Marker::Blocked(segment, probe))
            })?;
            for moment in rest {
                one(out, Marker::Moment(moment))?;
            }
            Ok(length)
        };
        out.write_all(br#","markers":{"name":["#)?;
        column(spool, out, &mut |out, marker| {
            let name = match marker {
                Marker::Blocked(_, probe) => self.string(&probe.name()),
                Marker::Moment(moment) => self.string(&moment.name),
            };
            write!(out, "{name}")
        })?;
        out.write_all(br#"],"startTime":["#)?;
        column(spool, out, &mut |out, marker| {
            let at = match marker {
                Marker::Blocked(segment, _) => segment.begin_ns,
                Marker::Moment(moment) => moment.begin_ns,
            };
            json_writer::millis(out, at.saturating_sub(origin_ns))
        })?;
        out.write_all(br#"],"endTime":["#)?;
        column(spool, out, &mut |out, marker| match marker {
            Marker::Blocked(segment, _) => {
                json_writer::millis(out, segment.end_ns.saturating_sub(origin_ns))
            }
            Marker::Moment(Moment {
                end_ns: Some(end), ..
            }) => json_writer::millis(out, end.saturating_sub(origin_ns)),
            Marker::Moment(_) => out.write_all(b"null"),
        })?;
        out.write_all(br#"],"phase":["#)?;
        // 0: a moment, 1: an interval.
        column(spool, out, &mut |out, marker| match marker {
            Marker::Moment(Moment { end_ns: None, .. }) => out.write_all(b"0"),
            _ => out.write_all(b"1"),
        })?;
        out.write_all(br#"],"category":["#)?;
        column(spool, out, &mut |out, marker| match marker {
            Marker::Blocked(_, probe) => write!(out, "{}", category_of(probe)),
            Marker::Moment(_) => write!(out, "{CATEGORY_CODE}"),
        })?;
        out.write_all(br#"],"data":["#)?;
        let length = column(spool, out, &mut |out, marker| match marker {
            Marker::Blocked(segment, probe) => blocked_data(out, segment, probe),
            Marker::Moment(Moment { kind, value, .. }) => {
                write!(out, r#"{{"type":"event","kind":"{kind}","value":{value}}}"#)
            }
        })?;
        write!(out, r#"],"length":{length}}}"#)
    }

    fn stack_table(&self, out: &mut dyn Write) -> io::Result<()> {
        let rows = &self.stack_list;
        out.write_all(br#","stackTable":{"prefix":"#)?;
        json_writer::array(out, rows, |out, (prefix, ..)| optional(out, *prefix))?;
        out.write_all(br#","frame":"#)?;
        json_writer::array(out, rows, |out, (_, frame, _)| write!(out, "{frame}"))?;
        out.write_all(br#","category":"#)?;
        json_writer::array(out, rows, |out, (.., category)| write!(out, "{category}"))?;
        out.write_all(br#","subcategory":"#)?;
        json_writer::array(out, rows, |out, _| out.write_all(b"0"))?;
        write!(out, r#","length":{}}}"#, rows.len())
    }

    fn frame_table(&self, out: &mut dyn Write) -> io::Result<()> {
        let rows = &self.frame_list;
        let trace = self.trace;
        out.write_all(br#","frameTable":{"func":"#)?;
        json_writer::array(out, rows, |out, (_, function)| write!(out, "{function}"))?;
        out.write_all(br#","address":"#)?;
        // Names are already there: no address that anybody should look up.
        json_writer::array(out, rows, |out, _| out.write_all(b"-1"))?;
        out.write_all(br#","line":"#)?;
        json_writer::array(out, rows, |out, (key, _)| {
            let line = match key {
                FrameKey::Frame(frame) => trace.frame(*frame).line,
                FrameKey::Leaf(_) => 0,
            };
            optional(out, (line != 0).then_some(line as usize))
        })?;
        for (column, value) in [
            ("inlineDepth", "0"),
            ("category", "null"),
            ("subcategory", "null"),
            ("nativeSymbol", "null"),
            ("innerWindowID", "null"),
            ("implementation", "null"),
            ("column", "null"),
        ] {
            write!(out, r#","{column}":"#)?;
            json_writer::array(out, rows, |out, _| out.write_all(value.as_bytes()))?;
        }
        write!(out, r#","length":{}}}"#, rows.len())
    }

    /// The function table and the resource table that it points into.
    fn function_table(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let rows = std::mem::take(&mut self.function_list);
        let (names, trace, libs) = (self.names, self.trace, self.libs);
        let mut resources: Vec<usize> = Vec::new();
        let mut columns: Vec<(usize, i64, Option<usize>, Option<usize>)> = Vec::new();
        for key in &rows {
            columns.push(match *key {
                Key::Function(index) => {
                    let function = trace.function(index);
                    let resource = libs.positions.get(&function.module).map(|lib| {
                        resources
                            .iter()
                            .position(|known| known == lib)
                            .unwrap_or_else(|| {
                                resources.push(*lib);
                                resources.len() - 1
                            }) as i64
                    });
                    let file = (!function.file.is_empty()).then(|| self.string(&function.file));
                    let line = (function.line != 0).then_some(function.line as usize);
                    let name = self.string(&function.name);
                    (name, resource.unwrap_or(-1), file, line)
                }
                Key::Leaf(leaf) => {
                    let name = match leaf {
                        Leaf::Blocking(probe) => names.blocking(probe),
                        Leaf::Gap => GAP_NAME,
                        Leaf::Code | Leaf::NoStack => UNKNOWN_NAME,
                    };
                    (self.string(name), -1, None, None)
                }
            });
        }
        out.write_all(br#","funcTable":{"name":"#)?;
        json_writer::array(out, &columns, |out, row| write!(out, "{}", row.0))?;
        out.write_all(br#","resource":"#)?;
        json_writer::array(out, &columns, |out, row| write!(out, "{}", row.1))?;
        out.write_all(br#","fileName":"#)?;
        json_writer::array(out, &columns, |out, row| optional(out, row.2))?;
        out.write_all(br#","lineNumber":"#)?;
        json_writer::array(out, &columns, |out, row| optional(out, row.3))?;
        out.write_all(br#","columnNumber":"#)?;
        json_writer::array(out, &columns, |out, _| out.write_all(b"null"))?;
        for column in ["isJS", "relevantForJS"] {
            write!(out, r#","{column}":"#)?;
            json_writer::array(out, &columns, |out, _| out.write_all(b"false"))?;
        }
        write!(out, r#","length":{}}}"#, columns.len())?;
        let modules: Vec<(usize, usize)> = resources
            .iter()
            .map(|lib| {
                let path = &trace.modules()[libs.list[*lib]].path;
                let base = path.rsplit('/').next().unwrap_or_default().to_owned();
                (*lib, self.string(&base))
            })
            .collect();
        out.write_all(br#","resourceTable":{"lib":"#)?;
        json_writer::array(out, &modules, |out, row| write!(out, "{}", row.0))?;
        out.write_all(br#","name":"#)?;
        json_writer::array(out, &modules, |out, row| write!(out, "{}", row.1))?;
        out.write_all(br#","host":"#)?;
        json_writer::array(out, &modules, |out, _| out.write_all(b"null"))?;
        out.write_all(br#","type":"#)?;
        // 1: a library.
        json_writer::array(out, &modules, |out, _| out.write_all(b"1"))?;
        write!(out, r#","length":{}}}"#, modules.len())
    }
}

fn optional(out: &mut dyn Write, value: Option<usize>) -> io::Result<()> {
    match value {
        Some(value) => write!(out, "{value}"),
        None => out.write_all(b"null"),
    }
}
