//! Slices on thread tracks.

use std::io;

use prost::Message as _;
use stackbeat_core::ids::Tid;
use stackbeat_core::probe::Cause;
use stackbeat_model::call_tree::Leaf;
use stackbeat_model::{Segment, ThreadIndex, Trace};
use stackbeat_proto::perfetto as pb;

use super::super::export_names::{self, GAP_NAME, Names, UNKNOWN_NAME};
use super::super::nesting::{ARGUMENT_NAMES, Closed, Level, Nesting, Slices};
use super::packet_bytes::Message;
use super::packets::{self, Packets, Seen, Sequence, Uuids};

/// Interned names of what is not a function stand above all functions.
const NAME_BASE: u64 = 1 << 32;
const NAME_GAP: u64 = NAME_BASE + 256;
const NAME_UNKNOWN: u64 = NAME_BASE + 257;
/// Categories: causes by their number + 1, then these.
const CATEGORY_FUNCTION: u64 = Cause::ALL.len() as u64 + 1;
const CATEGORY_GAP: u64 = CATEGORY_FUNCTION + 1;
/// Characters of a text; names of threads are shorter, those in damaged files need not be.
const LONGEST_TEXT: usize = 64;
/// `TracePacket.track_event`.
const TRACK_EVENT: u32 = 11;
/// The annotations after the numbered ones: the name of the waking thread, and of what was waited for.
const WAKER_NAME: u64 = ARGUMENT_NAMES.len() as u64 + 1;
const WAITED_FOR: u64 = WAKER_NAME + 1;

/// A thread's packet sequence.
#[derive(Debug)]
pub(super) struct ThreadTrack {
    thread: ThreadIndex,
    nesting: Nesting,
    state: State,
}

#[derive(Debug)]
struct State {
    functions: Seen,
    sources: Seen,
    others: Seen,
    /// The fields that the packets share, and the event that is being put together.
    common: Vec<u8>,
    event: Message,
    slices: u64,
}

impl ThreadTrack {
    pub(super) fn new(thread: ThreadIndex) -> ThreadTrack {
        ThreadTrack {
            thread,
            nesting: Nesting::new(thread),
            state: State {
                functions: Seen::default(),
                sources: Seen::default(),
                others: Seen::default(),
                common: Sequence::thread(thread).common_fields(),
                event: Message::new(),
                slices: 0,
            },
        }
    }

    /// Opens the sequence: defaults, and the names that all threads share.
    pub(super) fn begin(&self, uuids: &Uuids, packets: &mut Packets<'_>) -> io::Result<()> {
        let uuid = uuids.thread(self.thread);
        let sequence = Sequence::thread(self.thread);
        packets.write(&pb::TracePacket {
            trusted_packet_sequence_id: Some(sequence.0),
            first_packet_on_sequence: Some(true),
            sequence_flags: Some(packets::STATE_CLEARED),
            trace_packet_defaults: Some(pb::TracePacketDefaults {
                timestamp_clock_id: Some(packets::CLOCK_MONOTONIC),
                track_event_defaults: Some(pb::TrackEventDefaults {
                    track_uuid: Some(uuid),
                }),
                ..pb::TracePacketDefaults::default()
            }),
            interned_data: Some(shared_names()),
            ..pb::TracePacket::default()
        })
    }

    /// Describes the thread, once for all images of its process.
    pub(super) fn describe(
        &self,
        trace: &Trace,
        uuids: &Uuids,
        packets: &mut Packets<'_>,
    ) -> io::Result<()> {
        let first = trace.thread(uuids.identities.thread(self.thread));
        let thread = trace.thread(uuids.identities.last_thread(self.thread));
        packets.write(&pb::TracePacket {
            trusted_packet_sequence_id: Some(Sequence::thread(self.thread).0),
            timestamp: Some(first.start_ns),
            track_descriptor: Some(pb::TrackDescriptor {
                uuid: Some(uuids.thread(self.thread)),
                parent_uuid: Some(uuids.process(thread.process)),
                thread: Some(pb::ThreadDescriptor {
                    pid: Some(trace.process(thread.process).pid.0 as i32),
                    tid: Some(i64::from(thread.tid.0)),
                    thread_name: Some(export_names::thread_name(&thread.name).to_owned()),
                }),
                ..pb::TrackDescriptor::default()
            }),
            ..pb::TracePacket::default()
        })
    }

    /// Takes the thread's next segment; how many slices were closed.
    pub(super) fn advance(
        &mut self,
        trace: &Trace,
        names: &Names,
        segment: &Segment,
        packets: &mut Packets<'_>,
    ) -> io::Result<u64> {
        let mut writer = Writer {
            trace,
            names,
            process: trace.thread(self.thread).process,
            state: &mut self.state,
            packets,
        };
        self.nesting.advance(trace, segment, &mut writer)?;
        Ok(std::mem::take(&mut self.state.slices))
    }

    /// Closes what is open.
    pub(super) fn finish(
        &mut self,
        trace: &Trace,
        names: &Names,
        packets: &mut Packets<'_>,
    ) -> io::Result<u64> {
        let mut writer = Writer {
            trace,
            names,
            process: trace.thread(self.thread).process,
            state: &mut self.state,
            packets,
        };
        self.nesting.finish(trace, &mut writer)?;
        Ok(std::mem::take(&mut self.state.slices))
    }
}

fn shared_names() -> pb::InternedData {
    let categories = Cause::ALL
        .iter()
        .map(|cause| (*cause as u64 + 1, cause.name()))
        .chain([(CATEGORY_FUNCTION, "function"), (CATEGORY_GAP, "gap")]);
    let annotations = ARGUMENT_NAMES
        .iter()
        .copied()
        .chain(["woken_by_name", "waited_for"])
        .zip(1..);
    pb::InternedData {
        event_categories: categories
            .map(|(iid, name)| pb::EventCategory {
                iid: Some(iid),
                name: Some(name.to_owned()),
            })
            .collect(),
        debug_annotation_names: annotations
            .map(|(name, iid)| pb::DebugAnnotationName {
                iid: Some(iid),
                name: Some(name.to_owned()),
            })
            .collect(),
        ..pb::InternedData::default()
    }
}

struct Writer<'a, 'b> {
    trace: &'a Trace,
    names: &'a Names,
    process: stackbeat_model::ProcessIndex,
    state: &'a mut State,
    packets: &'a mut Packets<'b>,
}

impl Writer<'_, '_> {
    /// The slice's name, with the interning entry when this sequence has not seen it.
    fn name(&mut self, level: Level) -> (u64, Option<pb::EventName>) {
        let (iid, is_new, name) = match level {
            Level::Frame(frame) => {
                let function = self.trace.frame(frame).function;
                let is_new = self.state.functions.insert(function.0 as usize);
                let name = &self.trace.function(function).name;
                (u64::from(function.0) + 1, is_new, name.as_str())
            }
            Level::Leaf(Leaf::Blocking(probe)) => (
                NAME_BASE + u64::from(probe.0),
                self.state.others.insert(probe.0 as usize),
                self.names.blocking(probe),
            ),
            Level::Leaf(Leaf::Gap) => (NAME_GAP, self.state.others.insert(256), GAP_NAME),
            Level::Leaf(Leaf::Code | Leaf::NoStack) => {
                (NAME_UNKNOWN, self.state.others.insert(257), UNKNOWN_NAME)
            }
        };
        let entry = is_new.then(|| pb::EventName {
            iid: Some(iid),
            name: Some(name.to_owned()),
        });
        (iid, entry)
    }

    /// Where the code of a frame stands, once for each frame of a sequence.
    fn source(&mut self, level: Level) -> (Option<u64>, Option<pb::SourceLocation>) {
        let Level::Frame(index) = level else {
            return (None, None);
        };
        let frame = self.trace.frame(index);
        let function = self.trace.function(frame.function);
        if function.file.is_empty() {
            return (None, None);
        }
        let iid = u64::from(index.0) + 1;
        let entry = self
            .state
            .sources
            .insert(index.0 as usize)
            .then(|| pb::SourceLocation {
                iid: Some(iid),
                file_name: Some(function.file.clone()),
                function_name: None,
                line_number: (frame.line != 0).then_some(frame.line),
            });
        (Some(iid), entry)
    }
}

impl Slices for Writer<'_, '_> {
    fn open(&mut self, level: Level, begin_ns: u64) -> io::Result<()> {
        let (name_iid, name) = self.name(level);
        let (source_iid, source) = self.source(level);
        let category = match level {
            Level::Frame(_) | Level::Leaf(Leaf::Code | Leaf::NoStack) => CATEGORY_FUNCTION,
            Level::Leaf(Leaf::Gap) => CATEGORY_GAP,
            Level::Leaf(Leaf::Blocking(probe)) => probe.cause() as u64 + 1,
        };
        let interned = (name.is_some() || source.is_some()).then(|| pb::InternedData {
            event_names: name.into_iter().collect(),
            source_locations: source.into_iter().collect(),
            ..pb::InternedData::default()
        });
        let State { common, event, .. } = &mut *self.state;
        event.clear();
        event.number(3, category);
        event.number(9, pb::track_event::Type::SliceBegin as u64);
        event.number(10, name_iid);
        if let Some(source_iid) = source_iid {
            event.number(34, source_iid);
        }
        self.packets
            .write_payload(common, begin_ns, TRACK_EVENT, event.bytes(), interned)
    }

    fn close(&mut self, closed: &Closed<'_>) -> io::Result<()> {
        self.state.slices += 1;
        let State { common, event, .. } = &mut *self.state;
        event.clear();
        closed.numbered_arguments(|position, value| {
            // name_iid and int_value of a DebugAnnotation.
            event.pair(4, (1, position as u64 + 1), (4, value as u64));
            Ok(())
        })?;
        if let Some(tid) = closed.slice.waker_tid {
            let of_process = |thread: &&stackbeat_model::Thread| {
                thread.tid == Tid(tid) && thread.process == self.process
            };
            if let Some(waker) = self.trace.threads().iter().find(of_process) {
                add_text(event, WAKER_NAME, export_names::thread_name(&waker.name));
            }
        }
        if let Some(name) = closed.waited_for(self.trace) {
            add_text(event, WAITED_FOR, name);
        }
        event.number(9, pb::track_event::Type::SliceEnd as u64);
        self.packets.write_payload(
            common,
            closed.slice.end_ns,
            TRACK_EVENT,
            event.bytes(),
            None,
        )
    }
}

/// Adds an annotation that is a text.
fn add_text(event: &mut Message, name_iid: u64, text: &str) {
    let annotation = pb::DebugAnnotation {
        name_iid: Some(name_iid),
        string_value: Some(text.chars().take(LONGEST_TEXT).collect()),
        ..pb::DebugAnnotation::default()
    }
    .encode_to_vec();
    event.begin(4, annotation.len());
    event.append(&annotation);
}
