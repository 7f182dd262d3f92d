//! Counter tracks below process and thread tracks.

use std::collections::HashMap;
use std::io;

use stackbeat_collector::model::{ProcessIndex, ThreadIndex};
use stackbeat_proto::perfetto as pb;

use super::super::counters::Reading;
use super::packets::{self, Packets, Sequence, Uuids};

/// Whose counter it is. Threads carry their id: a counter's name must be unique in its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Owner {
    Process(ProcessIndex),
    Thread(ThreadIndex, u32),
}

/// Name, unit by name, unit by number.
const COUNTERS: [(&str, Option<&str>, Option<pb::counter_descriptor::Unit>); 3] = [
    ("CPU", Some("%"), None),
    (
        "allocated bytes",
        None,
        Some(pb::counter_descriptor::Unit::SizeBytes),
    ),
    (
        "page faults",
        None,
        Some(pb::counter_descriptor::Unit::Count),
    ),
];

/// The last values written, to leave out repetitions of each counter alone.
#[derive(Debug, Default)]
pub(super) struct Counters {
    last: HashMap<Owner, Reading>,
    started: bool,
}

impl Counters {
    pub fn write(
        &mut self,
        owner: Owner,
        reading: &Reading,
        uuids: &Uuids,
        packets: &mut Packets<'_>,
    ) -> io::Result<()> {
        let parent = match owner {
            Owner::Process(process) => uuids.process(process),
            Owner::Thread(thread, _) => uuids.thread(thread),
        };
        let last = self.last.insert(owner, *reading);
        if last.is_none() {
            self.describe(owner, parent, uuids, packets)?;
        }
        let is_new =
            |get: &dyn Fn(&Reading) -> f64| last.is_none_or(|last| get(&last) != get(reading));
        let values = [
            (is_new(&|r| r.cpu_percent), None, Some(reading.cpu_percent)),
            (
                is_new(&|r| r.allocated_bytes as f64),
                Some(reading.allocated_bytes as i64),
                None,
            ),
            (
                is_new(&|r| r.faults as f64),
                Some(reading.faults as i64),
                None,
            ),
        ];
        for (counter, (is_new, counter_value, double_counter_value)) in
            values.into_iter().enumerate()
        {
            if !is_new {
                continue;
            }
            packets.write(&pb::TracePacket {
                trusted_packet_sequence_id: Some(Sequence::COUNTERS.0),
                timestamp: Some(reading.time_ns),
                timestamp_clock_id: Some(packets::CLOCK_MONOTONIC),
                track_event: Some(pb::TrackEvent {
                    r#type: Some(pb::track_event::Type::Counter as i32),
                    track_uuid: Some(uuids.counter(parent, counter)),
                    counter_value,
                    double_counter_value,
                    ..pb::TrackEvent::default()
                }),
                ..pb::TracePacket::default()
            })?;
        }
        Ok(())
    }

    fn describe(
        &mut self,
        owner: Owner,
        parent: u64,
        uuids: &Uuids,
        packets: &mut Packets<'_>,
    ) -> io::Result<()> {
        for (counter, (name, unit_name, unit)) in COUNTERS.iter().enumerate() {
            let name = match owner {
                Owner::Process(_) => (*name).to_owned(),
                Owner::Thread(_, tid) => format!("{name} of thread {tid}"),
            };
            let first = !std::mem::replace(&mut self.started, true);
            packets.write(&pb::TracePacket {
                trusted_packet_sequence_id: Some(Sequence::COUNTERS.0),
                first_packet_on_sequence: first.then_some(true),
                sequence_flags: first.then_some(packets::STATE_CLEARED),
                track_descriptor: Some(pb::TrackDescriptor {
                    uuid: Some(uuids.counter(parent, counter)),
                    parent_uuid: Some(parent),
                    name: Some(name),
                    counter: Some(pb::CounterDescriptor {
                        unit: unit.map(|unit| unit as i32),
                        unit_name: unit_name.map(str::to_owned),
                    }),
                    ..pb::TrackDescriptor::default()
                }),
                ..pb::TracePacket::default()
            })?;
        }
        Ok(())
    }
}
