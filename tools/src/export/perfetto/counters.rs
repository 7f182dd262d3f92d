//! Counter tracks, of threads below the thread's, of processes below one that holds all counters of the
//! process.

use std::collections::{HashMap, HashSet};
use std::io;

use stackbeat_model::{ProcessIndex, ThreadIndex};
use stackbeat_proto::perfetto as pb;

use super::packets::{self, Packets, Sequence, Uuids};
use crate::meters::{Reading, Totals};

/// Whose counter it is. Threads carry their id: a counter's name must be unique in its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Owner {
    Process(ProcessIndex),
    Thread(ThreadIndex, u32),
}

/// What a reading's total is called, its unit, and whether it has a track even while it is 0.
struct Total {
    name: &'static str,
    unit: pb::counter_descriptor::Unit,
    always: bool,
    of: fn(&Totals) -> u64,
}

const CPU: &str = "CPU";
/// In the order of their tracks; the CPU's stands before them.
const TOTALS: [Total; 7] = [
    Total {
        name: "allocated bytes",
        unit: pb::counter_descriptor::Unit::SizeBytes,
        always: true,
        of: |totals| totals.allocated_bytes,
    },
    Total {
        name: "page faults",
        unit: pb::counter_descriptor::Unit::Count,
        always: true,
        of: |totals| totals.faults,
    },
    Total {
        name: "allocation count",
        unit: pb::counter_descriptor::Unit::Count,
        always: false,
        of: |totals| totals.allocations,
    },
    Total {
        name: "voluntary switches",
        unit: pb::counter_descriptor::Unit::Count,
        always: false,
        of: |totals| totals.voluntary_switches,
    },
    Total {
        name: "involuntary switches",
        unit: pb::counter_descriptor::Unit::Count,
        always: false,
        of: |totals| totals.involuntary_switches,
    },
    Total {
        name: "lock waits",
        unit: pb::counter_descriptor::Unit::Count,
        always: false,
        of: |totals| totals.lock_waits,
    },
    Total {
        name: "lock wait time",
        unit: pb::counter_descriptor::Unit::TimeNs,
        always: false,
        of: |totals| totals.lock_wait_ns,
    },
];

/// The last values written, to leave out repetitions of each counter alone.
#[derive(Debug, Default)]
pub(super) struct Counters {
    last: HashMap<Owner, Reading>,
    /// Tracks.
    described: HashSet<u64>,
    started: bool,
}

impl Counters {
    pub(super) fn write(
        &mut self,
        owner: Owner,
        reading: &Reading,
        uuids: &Uuids,
        packets: &mut Packets<'_>,
    ) -> io::Result<()> {
        let parent = match owner {
            Owner::Process(process) => uuids.counters(Some(process)),
            Owner::Thread(thread, _) => uuids.thread(thread),
        };
        let last = self.last.insert(owner, *reading);
        if last.is_none() {
            self.describe(owner, parent, 0, packets, uuids)?;
        }
        if last.is_none_or(|last| last.cpu_percent != reading.cpu_percent) {
            packets.write(&pb::TracePacket {
                track_event: Some(pb::TrackEvent {
                    double_counter_value: Some(reading.cpu_percent),
                    ..event(uuids.counter(parent, 0))
                }),
                ..packet(reading.time_ns)
            })?;
        }
        for (counter, total) in (1..).zip(&TOTALS) {
            let value = (total.of)(&reading.totals);
            let before = last.map(|last| ((total.of)(&last.totals), last.time_ns));
            let track = uuids.counter(parent, counter);
            let write = |time_ns, value: u64, packets: &mut Packets<'_>| {
                packets.write(&pb::TracePacket {
                    track_event: Some(pb::TrackEvent {
                        counter_value: Some(value as i64),
                        ..event(track)
                    }),
                    ..packet(time_ns)
                })
            };
            if !self.described.contains(&track) {
                if value == 0 && !total.always {
                    continue;
                }
                self.describe(owner, parent, counter, packets, uuids)?;
                if let Some((_, time_ns)) = before {
                    write(time_ns, 0, packets)?;
                }
            } else if before.is_some_and(|(before, _)| before == value) {
                continue;
            }
            write(reading.time_ns, value, packets)?;
        }
        Ok(())
    }

    /// Counter 0 is the CPU's.
    fn describe(
        &mut self,
        owner: Owner,
        parent: u64,
        counter: usize,
        packets: &mut Packets<'_>,
        uuids: &Uuids,
    ) -> io::Result<()> {
        let total = counter.checked_sub(1).map(|index| &TOTALS[index]);
        let name = total.map_or(CPU, |total| total.name);
        let name = match owner {
            Owner::Process(_) => name.to_owned(),
            Owner::Thread(_, tid) => format!("{name} of thread {tid}"),
        };
        self.described.insert(uuids.counter(parent, counter));
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
                    unit: total.map(|total| total.unit as i32),
                    unit_name: total.is_none().then(|| "%".to_owned()),
                }),
                ..pb::TrackDescriptor::default()
            }),
            ..pb::TracePacket::default()
        })
    }
}

fn packet(time_ns: u64) -> pb::TracePacket {
    pb::TracePacket {
        trusted_packet_sequence_id: Some(Sequence::COUNTERS.0),
        timestamp: Some(time_ns),
        timestamp_clock_id: Some(packets::CLOCK_MONOTONIC),
        ..pb::TracePacket::default()
    }
}

fn event(track_uuid: u64) -> pb::TrackEvent {
    pb::TrackEvent {
        r#type: Some(pb::track_event::Type::Counter as i32),
        track_uuid: Some(track_uuid),
        ..pb::TrackEvent::default()
    }
}
