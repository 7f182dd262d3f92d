//! Arrows between threads: a flow from an instant of the one to an instant of the other.

use std::io;

use stackbeat_model::Trace;
use stackbeat_proto::perfetto as pb;

use super::super::arrows::Arrow;
use super::packets::{self, Packets, Sequence, Uuids};

/// Writes one. `flow` is unique in the export.
pub(super) fn write(
    trace: &Trace,
    arrow: &Arrow,
    flow: u64,
    uuids: &Uuids,
    packets: &mut Packets<'_>,
) -> io::Result<()> {
    let [from, to] = arrow.texts(trace);
    let ends = [
        (&arrow.from, from, vec![flow], Vec::new()),
        (&arrow.to, to, Vec::new(), vec![flow]),
    ];
    for (end, text, flow_ids, terminating_flow_ids) in ends {
        packets.write(&pb::TracePacket {
            trusted_packet_sequence_id: Some(Sequence::SESSION.0),
            timestamp: Some(end.time_ns),
            timestamp_clock_id: Some(packets::CLOCK_MONOTONIC),
            track_event: Some(pb::TrackEvent {
                r#type: Some(pb::track_event::Type::Instant as i32),
                track_uuid: Some(uuids.thread(end.thread)),
                name: Some(text),
                categories: vec![arrow.kind.category().to_owned()],
                flow_ids,
                terminating_flow_ids,
                ..pb::TrackEvent::default()
            }),
            ..pb::TracePacket::default()
        })?;
    }
    Ok(())
}
