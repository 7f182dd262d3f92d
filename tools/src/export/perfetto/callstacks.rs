//! Callstack samples: `PerfSample` packets with interned stacks, from which Perfetto makes its own
//! flame graphs.

use std::collections::HashMap;
use std::io;

use stackbeat_core::probe::Cause;
use stackbeat_model::call_tree::Leaf;
use stackbeat_model::{FrameIndex, ProbeId, StackIndex, ThreadIndex, Trace};
use stackbeat_proto::columns::SampleRow;
use stackbeat_proto::perfetto as pb;

use super::super::export_names::{self, Names};
use super::packet_bytes::Message;
use super::packets::{self, Packets, Seen, Sequence};

/// Ids of leaf frames and their names stand above all those of frames and functions.
const LEAF_BASE: u64 = 1 << 32;
/// `TracePacket.perf_sample`.
const PERF_SAMPLE: u32 = 66;
/// The mapping of code outside any module, and of leaves; Perfetto wants one for every frame.
const NO_MODULE: u64 = 1;

#[derive(Debug)]
pub(super) struct Callstacks {
    /// Ids of stacks without and with a leaf, 0 for none yet, and how many there are.
    plain: Vec<u32>,
    with_leaf: HashMap<(StackIndex, Leaf), u32>,
    known: u32,
    common: Vec<u8>,
    sample: Message,
    frames: Seen,
    functions: Seen,
    leaves: Seen,
    /// Mapping id and bias by module path and range.
    modules: HashMap<String, Vec<(u64, u64, u64, u64)>>,
    path: Vec<FrameIndex>,
    samples: u64,
}

impl Callstacks {
    pub(super) fn new(trace: &Trace) -> Callstacks {
        Callstacks {
            plain: vec![0; trace.stack_count() as usize],
            with_leaf: HashMap::new(),
            known: 0,
            common: Sequence::SAMPLES.common_fields(),
            sample: Message::new(),
            frames: Seen::default(),
            functions: Seen::default(),
            leaves: Seen::default(),
            modules: HashMap::new(),
            path: Vec::new(),
            samples: 0,
        }
    }

    /// Opens the sequence and describes the modules.
    pub(super) fn begin(&mut self, trace: &Trace, packets: &mut Packets<'_>) -> io::Result<()> {
        let interval_ns = trace.config().interval_ns;
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
            let is_known = |range: &(u64, u64, u64, u64)| {
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
                        frequency: Some(1_000_000_000 / interval_ns.max(1)),
                        name: Some("stackbeat samples".to_owned()),
                    }),
                }),
                ..pb::TracePacketDefaults::default()
            }),
            interned_data: Some(interned),
            ..pb::TracePacket::default()
        })
    }

    pub(super) fn sample(
        &mut self,
        trace: &Trace,
        names: &Names,
        thread: ThreadIndex,
        row: &SampleRow,
        stack: StackIndex,
        packets: &mut Packets<'_>,
    ) -> io::Result<()> {
        let probe = ProbeId(row.probe);
        if probe.is_sampled_event() {
            // These stand for allocations; the samples here stand for time.
            return Ok(());
        }
        let leaf = if row.duration_ns > 0 && probe.cause() != Cause::None {
            Leaf::Blocking(probe)
        } else {
            Leaf::Code
        };
        if stack == StackIndex::NONE && leaf == Leaf::Code {
            return Ok(());
        }
        self.samples += 1;
        let mut interned = None;
        let next = self.known + 1;
        let slot = match leaf {
            Leaf::Code => &mut self.plain[stack.0 as usize],
            leaf => self.with_leaf.entry((stack, leaf)).or_insert(0),
        };
        if *slot == 0 {
            *slot = next;
        }
        let callstack = u64::from(*slot);
        if *slot == next {
            self.known = next;
            interned = Some(self.intern(trace, names, stack, leaf, callstack));
        }
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
        packets.write_payload(
            &self.common,
            row.time_ns,
            PERF_SAMPLE,
            sample.bytes(),
            interned,
        )
    }

    fn intern(
        &mut self,
        trace: &Trace,
        names: &Names,
        stack: StackIndex,
        leaf: Leaf,
        callstack: u64,
    ) -> pb::InternedData {
        let mut interned = pb::InternedData::default();
        let mut path = std::mem::take(&mut self.path);
        names.frames_into(trace, stack, &mut path);
        let mut frame_ids = Vec::with_capacity(path.len() + 1);
        for index in &path {
            let iid = u64::from(index.0) + 1;
            frame_ids.push(iid);
            if self.frames.insert(index.0 as usize) {
                self.intern_frame(trace, *index, iid, &mut interned);
            }
        }
        self.path = path;
        if let Leaf::Blocking(probe) = leaf {
            let iid = LEAF_BASE + u64::from(probe.0);
            frame_ids.push(iid);
            if self.leaves.insert(probe.0 as usize) {
                interned.function_names.push(pb::InternedString {
                    iid: Some(iid),
                    str: Some(names.blocking(probe).as_bytes().to_vec()),
                });
                interned.frames.push(pb::Frame {
                    iid: Some(iid),
                    function_name_id: Some(iid),
                    mapping_id: Some(NO_MODULE),
                    // Frames are told apart by it.
                    rel_pc: Some(u64::from(probe.0)),
                    ..pb::Frame::default()
                });
            }
        }
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
            Some((_, _, iid, bias)) => (*iid, frame.address.wrapping_sub(*bias)),
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
