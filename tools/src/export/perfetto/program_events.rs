//! What the program says about itself: scopes on a track of their own below its thread (they need not nest
//! with the calls that samples show), asynchronous work on tracks of its process, flows between moments, and
//! counters, also those that the collector read.

use std::collections::{HashMap, HashSet};
use std::io;

use stackbeat_model::{Counter, ThreadIndex};
use stackbeat_proto::perfetto as pb;
use stackbeat_proto::v1::{Event, event::Kind};

use super::packets::{self, Packets, Sequence, Uuids};
use crate::scopes::{self, Work};

/// What was described and what is open.
#[derive(Debug, Default)]
pub(super) struct Program {
    started: bool,
    described: HashSet<u64>,
    /// Open scopes by thread.
    open: HashMap<ThreadIndex, u32>,
}

impl Program {
    /// True: it was an event of this kind, and is written.
    pub(super) fn write(
        &mut self,
        thread: ThreadIndex,
        event: &Event,
        uuids: &Uuids,
        packets: &mut Packets<'_>,
    ) -> io::Result<bool> {
        let open = self.open.entry(thread).or_default();
        let (kind, category) = match event.kind() {
            Kind::ScopeBegin => {
                *open += 1;
                (pb::track_event::Type::SliceBegin, "scope")
            }
            // An end without a begin is nobody's.
            Kind::ScopeEnd if *open == 0 => return Ok(true),
            Kind::ScopeEnd => {
                *open -= 1;
                (pb::track_event::Type::SliceEnd, "scope")
            }
            Kind::FlowBegin | Kind::FlowStep | Kind::FlowEnd => {
                (pb::track_event::Type::Instant, "flow")
            }
            _ => return Ok(false),
        };
        let track = uuids.scopes(thread);
        self.describe(packets, track, || pb::TrackDescriptor {
            uuid: Some(track),
            parent_uuid: Some(uuids.thread(thread)),
            name: Some("scopes".to_owned()),
            ..pb::TrackDescriptor::default()
        })?;
        let flow = [uuids.named(event.value as u64, &event.name)];
        let (mut flow_ids, mut terminating_flow_ids) = (Vec::new(), Vec::new());
        match event.kind() {
            Kind::FlowBegin | Kind::FlowStep => flow_ids.extend(flow),
            Kind::FlowEnd => terminating_flow_ids.extend(flow),
            _ => {}
        }
        packets.write(&pb::TracePacket {
            trusted_packet_sequence_id: Some(Sequence::PROGRAM.0),
            timestamp: Some(event.time_ns),
            timestamp_clock_id: Some(packets::CLOCK_MONOTONIC),
            track_event: Some(pb::TrackEvent {
                r#type: Some(kind as i32),
                track_uuid: Some(track),
                name: (event.kind() != Kind::ScopeEnd).then(|| event.name.clone()),
                // An end closes the slice with its category only.
                categories: vec![category.to_owned()],
                flow_ids,
                terminating_flow_ids,
                ..pb::TrackEvent::default()
            }),
            ..pb::TracePacket::default()
        })?;
        Ok(true)
    }

    /// Asynchronous work. What overlaps stands on tracks of one name, which Perfetto shows as one.
    pub(super) fn asynchronous(
        &mut self,
        all: &[Work],
        uuids: &Uuids,
        packets: &mut Packets<'_>,
    ) -> io::Result<()> {
        for (work, lane) in all.iter().zip(scopes::lanes(all)) {
            let owner = uuids.process(work.process);
            let track = uuids.lane(uuids.named(owner, &work.name), lane);
            self.describe(packets, track, || pb::TrackDescriptor {
                uuid: Some(track),
                parent_uuid: Some(owner),
                name: Some(work.name.clone()),
                ..pb::TrackDescriptor::default()
            })?;
            for (kind, at_ns, name) in [
                (
                    pb::track_event::Type::SliceBegin,
                    work.begin_ns,
                    Some(work.name.clone()),
                ),
                (pb::track_event::Type::SliceEnd, work.end_ns, None),
            ] {
                packets.write(&pb::TracePacket {
                    trusted_packet_sequence_id: Some(Sequence::PROGRAM.0),
                    timestamp: Some(at_ns),
                    timestamp_clock_id: Some(packets::CLOCK_MONOTONIC),
                    track_event: Some(pb::TrackEvent {
                        r#type: Some(kind as i32),
                        track_uuid: Some(track),
                        name,
                        categories: vec!["async".to_owned()],
                        ..pb::TrackEvent::default()
                    }),
                    ..pb::TracePacket::default()
                })?;
            }
        }
        Ok(())
    }

    /// The values of a counter.
    pub(super) fn counter(
        &mut self,
        counter: &Counter,
        uuids: &Uuids,
        packets: &mut Packets<'_>,
    ) -> io::Result<()> {
        let group = uuids.counters(counter.process);
        if counter.process.is_none() {
            self.describe(packets, group, || pb::TrackDescriptor {
                uuid: Some(group),
                name: Some("counters of the machine and of the recording".to_owned()),
                ..pb::TrackDescriptor::default()
            })?;
        }
        let track = uuids.named(group, &counter.name);
        self.describe(packets, track, || pb::TrackDescriptor {
            uuid: Some(track),
            parent_uuid: Some(group),
            name: Some(match counter.name.as_str() {
                // Samples make one of this name.
                "CPU" => "CPU of the process".to_owned(),
                name => name.to_owned(),
            }),
            counter: Some(pb::CounterDescriptor {
                unit: (counter.unit == "bytes")
                    .then_some(pb::counter_descriptor::Unit::SizeBytes as i32),
                unit_name: match counter.unit.as_str() {
                    "bytes" | "" => None,
                    unit => Some(unit.to_owned()),
                },
            }),
            ..pb::TrackDescriptor::default()
        })?;
        for (at_ns, value) in &counter.values {
            packets.write(&pb::TracePacket {
                trusted_packet_sequence_id: Some(Sequence::PROGRAM.0),
                timestamp: Some(*at_ns),
                timestamp_clock_id: Some(packets::CLOCK_MONOTONIC),
                track_event: Some(pb::TrackEvent {
                    r#type: Some(pb::track_event::Type::Counter as i32),
                    track_uuid: Some(track),
                    counter_value: Some(*value),
                    ..pb::TrackEvent::default()
                }),
                ..pb::TracePacket::default()
            })?;
        }
        Ok(())
    }

    fn describe(
        &mut self,
        packets: &mut Packets<'_>,
        track: u64,
        descriptor: impl FnOnce() -> pb::TrackDescriptor,
    ) -> io::Result<()> {
        if !self.described.insert(track) {
            return Ok(());
        }
        let first = !std::mem::replace(&mut self.started, true);
        packets.write(&pb::TracePacket {
            trusted_packet_sequence_id: Some(Sequence::PROGRAM.0),
            first_packet_on_sequence: first.then_some(true),
            sequence_flags: first.then_some(packets::STATE_CLEARED),
            track_descriptor: Some(descriptor()),
            ..pb::TracePacket::default()
        })
    }
}
