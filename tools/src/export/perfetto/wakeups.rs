//! Wake-ups: a flow from an instant of the waker to one of the woken thread.

use std::io;

use stackbeat_collector::model::{LongWait, ThreadIndex, Trace};
use stackbeat_proto::perfetto as pb;

use super::super::names;
use super::packets::{self, Packets, Sequence, Uuids};

/// Writes one. `flow` is unique in the export.
pub(super) fn write(
    trace: &Trace,
    wait: &LongWait,
    waker: ThreadIndex,
    flow: u64,
    uuids: &Uuids,
    packets: &mut Packets<'_>,
) -> io::Result<()> {
    let name = |thread| names::thread_name(&trace.thread(thread).name);
    // The woken thread may run before the call that woke it has returned.
    let woken_ns = wait.end_ns;
    let wakes_ns = wait
        .wake
        .map_or(woken_ns, |wake| wake.time_ns)
        .min(woken_ns);
    let moments = [
        (waker, wakes_ns, format!("wakes {}", name(wait.thread))),
        (wait.thread, woken_ns, format!("woken by {}", name(waker))),
    ];
    for (thread, time_ns, text) in moments {
        let is_begin = thread == waker;
        let flows = |wanted: bool| match wanted {
            true => vec![flow],
            false => Vec::new(),
        };
        packets.write(&pb::TracePacket {
            trusted_packet_sequence_id: Some(Sequence::SESSION.0),
            timestamp: Some(time_ns),
            timestamp_clock_id: Some(packets::CLOCK_MONOTONIC),
            track_event: Some(pb::TrackEvent {
                r#type: Some(pb::track_event::Type::Instant as i32),
                track_uuid: Some(uuids.thread(thread)),
                name: Some(text),
                categories: vec!["wakeup".to_owned()],
                flow_ids: flows(is_begin),
                terminating_flow_ids: flows(!is_begin),
                ..pb::TrackEvent::default()
            }),
            ..pb::TracePacket::default()
        })?;
    }
    Ok(())
}
