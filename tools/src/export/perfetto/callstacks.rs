//! Callstack samples: `PerfSample` packets with interned stacks, from which Perfetto makes its own
//! flame graphs.

use std::collections::HashMap;
use std::io;

use stackbeat_core::address::Bias;
use stackbeat_model::{FrameIndex, Segment, Spent, StackIndex, ThreadIndex, Trace};
use stackbeat_proto::perfetto as pb;

use super::super::export_names::{self, Names};
use super::packet_bytes::Message;
use super::packets::{self, Packets, Seen, Sequence};

/// `TracePacket.perf_sample`.
const PERF_SAMPLE: u32 = 66;
/// The mapping of code outside any module; Perfetto wants one for every frame.
const NO_MODULE: u64 = 1;

#[derive(Debug)]
pub(super) struct Callstacks {
    known_stacks: Vec<bool>,
    interval_ns: u64,
    /// Computing time since a thread's last sample.
    computed_ns: Vec<u64>,
    common: Vec<u8>,
    sample: Message,
    frames: Seen,
    functions: Seen,
    /// Mapping id and bias by module path and range.
    modules: HashMap<String, Vec<(u64, u64, u64, Bias)>>,
    path: Vec<FrameIndex>,
    samples: u64,
}

impl Callstacks {
    pub(super) fn new(trace: &Trace) -> Callstacks {
        Callstacks {
            known_stacks: vec![false; trace.stack_count() as usize],
            interval_ns: trace.config().interval_ns.max(1),
            computed_ns: Vec::new(),
            common: Sequence::SAMPLES.common_fields(),
            sample: Message::new(),
            frames: Seen::default(),
            functions: Seen::default(),
            modules: HashMap::new(),
            path: Vec::new(),
            samples: 0,
        }
    }

    /// Opens the sequence and describes the modules.
    pub(super) fn begin(&mut self, trace: &Trace, packets: &mut Packets<'_>) -> io::Result<()> {
        let mut interned = pb::InternedData::default();
        // Id 1 is the name and build id of what is in no module.
        let text = |iid: u64, str: &[u8]| pb::InternedString {
            iid: Some(iid),
            str: Some(str.to_vec()),
        };
        interned.mapping_paths.push(text(NO_MODULE, b"[no module]"));
        interned.build_ids.push(text(NO_MODULE, b""));
        interned.mappings.push(pb::Mapping {
            iid: Some(NO_MODULE),
            build_id: Some(NO_MODULE),
            path_string_ids: vec![NO_MODULE],
            ..pb::Mapping::default()
        });
        for module in trace.modules() {
            let ranges = self.modules.entry(module.path.clone()).or_default();
            let is_known = |range: &(u64, u64, u64, Bias)| {
                range.0 == module.start && range.1 == module.end && range.3 == module.bias
            };
            if ranges.iter().any(is_known) {
                continue;
            }
            let iid = interned.mappings.len() as u64 + 1;
            ranges.push((module.start, module.end, iid, module.bias));
            interned
                .mapping_paths
                .push(text(iid, module.path.trim_start_matches('/').as_bytes()));
            interned.build_ids.push(text(iid, &module.build_id));
            interned.mappings.push(pb::Mapping {
                iid: Some(iid),
                build_id: Some(iid),
                start: Some(module.start),
                end: Some(module.end),
                load_bias: Some(0),
                path_string_ids: vec![iid],
            });
        }
        packets.write(&pb::TracePacket {
            trusted_packet_sequence_id: Some(Sequence::SAMPLES.0),
            first_packet_on_sequence: Some(true),
            sequence_flags: Some(packets::STATE_CLEARED),
            trace_packet_defaults: Some(pb::TracePacketDefaults {
                timestamp_clock_id: Some(packets::CLOCK_MONOTONIC),
                perf_sample_defaults: Some(pb::PerfSampleDefaults {
                    timebase: Some(pb::perf_sample_defaults::Timebase {
                        frequency: Some(1_000_000_000 / self.interval_ns),
                        name: Some("stackbeat samples".to_owned()),
                    }),
                }),
                ..pb::TracePacketDefaults::default()
            }),
            interned_data: Some(interned),
            ..pb::TracePacket::default()
        })
    }

    /// Samples of a segment's computing time: one for each interval that a thread computed, with the stack
    /// that it then had. Perfetto's flame graph counts samples, so shares are those of `report`'s own times.
    /// Samples as they were recorded would not do: a wait has one, whether it is long or short, and the time
    /// between two differs.
    pub(super) fn segment(
        &mut self,
        trace: &Trace,
        names: &Names,
        segment: &Segment,
        packets: &mut Packets<'_>,
    ) -> io::Result<()> {
        let mut spent = Spent::default();
        spent.add_segment(segment);
        let computing_ns = spent.computing_ns();
        if computing_ns == 0 {
            return Ok(());
        }
        let index = segment.thread.0 as usize;
        if self.computed_ns.len() <= index {
            // Half an interval: what is left of one is rounded.
            self.computed_ns.resize(index + 1, self.interval_ns / 2);
        }
        let before_ns = self.computed_ns[index];
        let after_ns = before_ns + computing_ns;
        self.computed_ns[index] = after_ns % self.interval_ns;
        if segment.stack == StackIndex::NONE {
            return Ok(());
        }
        for number in 1..=after_ns / self.interval_ns {
            let computed_ns = number * self.interval_ns - before_ns;
            let at_ns = u128::from(segment.wall_ns()) * u128::from(computed_ns);
            let time_ns = segment.begin_ns + (at_ns / u128::from(computing_ns)) as u64;
            self.sample(
                trace,
                names,
                segment.thread,
                time_ns,
                segment.stack,
                packets,
            )?;
        }
        Ok(())
    }

    fn sample(
        &mut self,
        trace: &Trace,
        names: &Names,
        thread: ThreadIndex,
        time_ns: u64,
        stack: StackIndex,
        packets: &mut Packets<'_>,
    ) -> io::Result<()> {
        self.samples += 1;
        let slot = &mut self.known_stacks[stack.0 as usize];
        let is_known = std::mem::replace(slot, true);
        let callstack = u64::from(stack.0) + 1;
        let interned = (!is_known).then(|| self.intern(trace, names, stack, callstack));
        let metadata = trace.thread(thread);
        let sample = &mut self.sample;
        sample.clear();
        for (field, value) in [
            (1, 0), // cpu
            (2, u64::from(trace.process(metadata.process).pid.0)),
            (3, u64::from(metadata.tid.0)),
            (4, callstack),
            (5, pb::perf_sample::CpuMode::ModeUser as u64),
            (6, self.samples), // timebase_count
        ] {
            sample.number(field, value);
        }
        packets.write_payload(&self.common, time_ns, PERF_SAMPLE, sample.bytes(), interned)
    }

    fn intern(
        &mut self,
        trace: &Trace,
        names: &Names,
        stack: StackIndex,
        callstack: u64,
    ) -> pb::InternedData {
        let mut interned = pb::InternedData::default();
        let mut path = std::mem::take(&mut self.path);
        names.frames_into(trace, stack, &mut path);
        let mut frame_ids = Vec::with_capacity(path.len());
        for index in &path {
            let iid = u64::from(index.0) + 1;
            frame_ids.push(iid);
            if self.frames.insert(index.0 as usize) {
                self.intern_frame(trace, *index, iid, &mut interned);
            }
        }
        self.path = path;
        interned.callstacks.push(pb::Callstack {
            iid: Some(callstack),
            frame_ids,
        });
        interned
    }

    fn intern_frame(
        &mut self,
        trace: &Trace,
        index: FrameIndex,
        iid: u64,
        interned: &mut pb::InternedData,
    ) {
        let frame = trace.frame(index);
        let function = trace.function(frame.function);
        let name_id = u64::from(frame.function.0) + 1;
        if self.functions.insert(frame.function.0 as usize) {
            interned.function_names.push(pb::InternedString {
                iid: Some(name_id),
                str: Some(
                    export_names::function_name(trace, index)
                        .as_bytes()
                        .to_vec(),
                ),
            });
            if !function.file.is_empty() {
                interned.source_paths.push(pb::InternedString {
                    iid: Some(name_id),
                    str: Some(function.file.as_bytes().to_vec()),
                });
            }
        }
        let mapping = self.modules.get(&function.module).and_then(|ranges| {
            ranges
                .iter()
                .find(|(start, end, ..)| (*start..*end).contains(&frame.address))
        });
        let (mapping_id, rel_pc) = match mapping {
            Some((_, _, iid, bias)) => (*iid, bias.in_file(frame.address).0),
            None => (NO_MODULE, frame.address),
        };
        interned.frames.push(pb::Frame {
            iid: Some(iid),
            function_name_id: Some(name_id),
            mapping_id: Some(mapping_id),
            rel_pc: Some(rel_pc),
            source_path_iid: (!function.file.is_empty()).then_some(name_id),
            line_number: (frame.line != 0).then_some(frame.line),
        });
    }
}
