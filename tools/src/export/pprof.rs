//! pprof: a gzipped profile with all amounts of every stack, in raw numbers.

use std::collections::HashMap;
use std::io::Write;

use anyhow::Result;
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use stackbeat_core::system_call::SystemCall;
use stackbeat_model::call_tree::Leaf;
use stackbeat_model::{FrameIndex, FunctionIndex, StackIndex, ThreadIndex, Trace};
use stackbeat_proto::pprof as pb;

use super::drops;
use super::export_names::{self, GAP_NAME, Names, UNKNOWN_NAME};
use super::profile::{Entry, Profile};
use super::{Exported, Options, Selection, Weight};

/// The sample types, in their order in each sample. pprof expects a count first.
const TYPES: [(&str, &str); 12] = [
    ("samples", "count"),
    ("wall", "nanoseconds"),
    ("cpu", "nanoseconds"),
    ("blocked", "nanoseconds"),
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("faults", "count"),
    ("switches", "count"),
    ("system_calls", "count"),
    ("bytes_read", "bytes"),
    ("bytes_written", "bytes"),
    ("wake_ups", "count"),
];

/// Place of a kind among them.
fn type_of(call: SystemCall) -> usize {
    let after = match call {
        SystemCall::WakeUps => 1,
        SystemCall::BytesWritten => 2,
        SystemCall::BytesRead => 3,
        _ => 4,
    };
    TYPES.len() - after
}

pub(super) fn write(
    trace: &Trace,
    selection: &Selection,
    options: &Options,
    out: &mut dyn Write,
) -> Result<Exported> {
    let profile = Profile::collect(trace, selection)?;
    let mut builder = Builder::new(trace);
    builder.mappings();
    for entry in &profile.entries {
        builder.entry(entry);
    }
    for ((thread, stack, call), count) in &profile.calls {
        builder.calls(*thread, *stack, *call, *count);
    }
    let encoded = builder.finish(options).encode_to_vec();
    let mut gzip = GzEncoder::new(out, Compression::default());
    gzip.write_all(&encoded)?;
    gzip.finish()?;
    Ok(profile.exported)
}

struct Builder<'a> {
    trace: &'a Trace,
    names: Names,
    profile: pb::Profile,
    strings: HashMap<String, i64>,
    /// pprof's function id by ours; ids are positions + 1.
    functions: HashMap<FunctionIndex, u64>,
    synthetic: HashMap<Leaf, u64>,
    /// By a frame and what is inlined into it, outermost first.
    locations: HashMap<Box<[FrameIndex]>, u64>,
    /// By module path and build id: (start, end, mapping id).
    ranges: Vec<(u64, u64, u64, String)>,
    labels: HashMap<ThreadIndex, Vec<pb::Label>>,
    frames: Vec<FrameIndex>,
}

impl<'a> Builder<'a> {
    fn new(trace: &'a Trace) -> Builder<'a> {
        Builder {
            trace,
            names: Names::new(),
            profile: pb::Profile {
                string_table: vec![String::new()],
                ..pb::Profile::default()
            },
            strings: HashMap::from([(String::new(), 0)]),
            functions: HashMap::new(),
            synthetic: HashMap::new(),
            locations: HashMap::new(),
            ranges: Vec::new(),
            labels: HashMap::new(),
            frames: Vec::new(),
        }
    }

    fn string(&mut self, text: &str) -> i64 {
        if let Some(index) = self.strings.get(text) {
            return *index;
        }
        let index = self.profile.string_table.len() as i64;
        self.profile.string_table.push(text.to_owned());
        self.strings.insert(text.to_owned(), index);
        index
    }

    /// One mapping for each place where a module stood; pprof takes the first for the program.
    fn mappings(&mut self) {
        let mut seen = std::collections::HashSet::new();
        let program = self
            .trace
            .processes()
            .first()
            .map(|process| &process.executable);
        let mut modules: Vec<_> = self.trace.modules().iter().collect();
        modules.sort_by_key(|module| Some(&module.path) != program);
        for module in modules {
            if !seen.insert((module.path.clone(), module.start, module.end)) {
                continue;
            }
            let id = self.profile.mapping.len() as u64 + 1;
            let filename = self.string(&module.path);
            let build_id = self.string(&export_names::hex(&module.build_id));
            self.profile.mapping.push(pb::Mapping {
                id,
                memory_start: module.start,
                memory_limit: module.end,
                file_offset: 0,
                filename,
                build_id,
                has_functions: true,
                has_filenames: true,
                has_line_numbers: true,
                has_inline_frames: true,
            });
            self.ranges
                .push((module.start, module.end, id, module.path.clone()));
        }
        self.ranges.sort();
    }

    /// The mapping of this module that holds the address, 0 for none.
    fn mapping(&self, address: u64, module: &str) -> u64 {
        // Programs may stand at the same addresses in different processes: the path decides.
        let holds = |(start, end, _, path): &&(u64, u64, u64, String)| {
            (*start..*end).contains(&address) && path == module
        };
        self.ranges.iter().find(holds).map_or(0, |range| range.2)
    }

    fn function(&mut self, index: FunctionIndex) -> u64 {
        if let Some(id) = self.functions.get(&index) {
            return *id;
        }
        let function = self.trace.function(index);
        let name = self.string(&function.name);
        let filename = self.string(&function.file);
        let id = self.push_function(name, filename, i64::from(function.line));
        self.functions.insert(index, id);
        id
    }

    fn push_function(&mut self, name: i64, filename: i64, start_line: i64) -> u64 {
        let id = self.profile.function.len() as u64 + 1;
        self.profile.function.push(pb::Function {
            id,
            name,
            // pprof takes a name that equals its system name for one to demangle, and cuts what looks
            // like template arguments out of it.
            system_name: 0,
            filename,
            start_line,
        });
        id
    }

    fn push_location(&mut self, mapping_id: u64, address: u64, line: Vec<pb::Line>) -> u64 {
        let id = self.profile.location.len() as u64 + 1;
        self.profile.location.push(pb::Location {
            id,
            mapping_id,
            address,
            line,
        });
        id
    }

    /// The location of a frame and what is inlined into it (outermost first).
    fn location(&mut self, group: &[FrameIndex]) -> u64 {
        if let Some(id) = self.locations.get(group) {
            return *id;
        }
        let trace = self.trace;
        let frame = trace.frame(group[0]);
        let mapping = self.mapping(frame.address, &trace.function(frame.function).module);
        let line = group
            .iter()
            .rev()
            .map(|index| {
                let frame = trace.frame(*index);
                pb::Line {
                    function_id: self.function(frame.function),
                    line: i64::from(frame.line),
                }
            })
            .collect();
        let id = self.push_location(mapping, frame.address, line);
        self.locations.insert(group.into(), id);
        id
    }

    /// The location of a leaf that is not code.
    fn leaf(&mut self, leaf: Leaf) -> u64 {
        if let Some(id) = self.synthetic.get(&leaf) {
            return *id;
        }
        let name = match leaf {
            Leaf::Blocking(probe) => self.names.blocking(probe).to_owned(),
            Leaf::Gap => GAP_NAME.to_owned(),
            Leaf::Code | Leaf::NoStack => UNKNOWN_NAME.to_owned(),
        };
        let name = self.string(&name);
        let function_id = self.push_function(name, 0, 0);
        let line = vec![pb::Line {
            function_id,
            line: 0,
        }];
        let id = self.push_location(0, 0, line);
        self.synthetic.insert(leaf, id);
        id
    }

    fn labels(&mut self, thread: ThreadIndex) -> Vec<pb::Label> {
        if let Some(labels) = self.labels.get(&thread) {
            return labels.clone();
        }
        let trace = self.trace;
        let metadata = trace.thread(thread);
        let text = |builder: &mut Self, key: &str, value: &str| pb::Label {
            key: builder.string(key),
            str: builder.string(value),
            ..pb::Label::default()
        };
        let number = |builder: &mut Self, key: &str, value: u32| pb::Label {
            key: builder.string(key),
            num: i64::from(value),
            ..pb::Label::default()
        };
        let labels = vec![
            text(self, "thread", export_names::thread_name(&metadata.name)),
            text(
                self,
                "process",
                &export_names::process_name(trace, metadata.process),
            ),
            number(self, "tid", metadata.tid.0),
            number(self, "pid", trace.process(metadata.process).pid.0),
        ];
        self.labels.insert(thread, labels.clone());
        labels
    }

    /// The locations of a stack, innermost first.
    fn stack(&mut self, stack: StackIndex, leaf: Leaf) -> Vec<u64> {
        let mut frames = std::mem::take(&mut self.frames);
        self.names.frames_into(self.trace, stack, &mut frames);
        let mut location_id: Vec<u64> = Vec::with_capacity(frames.len() + 1);
        let trace = self.trace;
        for group in frames.chunk_by(|_, next| trace.frame(*next).inlined) {
            location_id.push(self.location(group));
        }
        if leaf != Leaf::Code || frames.is_empty() {
            location_id.push(self.leaf(leaf));
        }
        location_id.reverse();
        self.frames = frames;
        location_id
    }

    /// System calls of one kind, bytes that they moved, or sleeps in them: they are no part of the time of
    /// their stack, so they stand beside it.
    fn calls(&mut self, thread: ThreadIndex, stack: StackIndex, call: SystemCall, count: u64) {
        let location_id = self.stack(stack, Leaf::Code);
        let mut label = self.labels(thread);
        if call.is_call() {
            label.push(pb::Label {
                key: self.string("system call"),
                str: self.string(call.name()),
                ..pb::Label::default()
            });
        }
        let mut value = vec![0; TYPES.len()];
        value[type_of(call)] = count as i64;
        self.profile.sample.push(pb::Sample {
            location_id,
            value,
            label,
        });
    }

    fn entry(&mut self, entry: &Entry) {
        let location_id = self.stack(entry.stack, entry.leaf);
        let mut label = self.labels(entry.thread);
        if let Leaf::Blocking(probe) = entry.leaf {
            label.push(pb::Label {
                key: self.string("cause"),
                str: self.string(probe.cause().name()),
                ..pb::Label::default()
            });
        }
        let (spent, metrics) = (&entry.spent, &entry.spent.metrics);
        let value = [
            metrics.samples,
            spent.wall_ns,
            metrics.cpu_ns,
            spent.blocked_ns,
            metrics.allocations,
            metrics.allocated_bytes,
            metrics.minor_faults.saturating_add(metrics.major_faults),
            (metrics.voluntary_switches).saturating_add(metrics.involuntary_switches),
            0,
            0,
            0,
            0,
        ];
        self.profile.sample.push(pb::Sample {
            location_id,
            value: value.map(|value| value as i64).to_vec(),
            label,
        });
    }

    fn finish(mut self, options: &Options) -> pb::Profile {
        let header = self.trace.header();
        for (name, unit) in TYPES {
            let value_type = pb::ValueType {
                r#type: self.string(name),
                unit: self.string(unit),
            };
            self.profile.sample_type.push(value_type);
        }
        self.profile.default_sample_type = match options.weight {
            Weight::Wall => self.string("wall"),
            Weight::Cpu => self.string("cpu"),
            Weight::Blocked => self.string("blocked"),
            Weight::AllocBytes => self.string("alloc_space"),
            Weight::Allocations => self.string("alloc_objects"),
            Weight::Samples => self.string("samples"),
        };
        if let Some(start) = &header.start {
            self.profile.time_nanos = start.realtime_ns as i64;
            self.profile.duration_nanos = (self.trace.end_ns() - self.trace.start_ns()) as i64;
        }
        self.profile.period = self.trace.config().interval_ns as i64;
        self.profile.period_type = Some(pb::ValueType {
            r#type: self.string("wall"),
            unit: self.string("nanoseconds"),
        });
        let title = export_names::title(self.trace, options);
        let comment = self.string(&title);
        self.profile.comment.push(comment);
        for line in drops::lines(self.trace) {
            let comment = self.string(&format!("missing: {line}"));
            self.profile.comment.push(comment);
        }
        self.profile
    }
}
