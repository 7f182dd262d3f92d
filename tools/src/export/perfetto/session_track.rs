//! The recording's own track: what was recorded and how, what was lost, what the program marked.

use std::io;

use stackbeat_model::{ThreadIndex, Trace};
use stackbeat_proto::perfetto as pb;
use stackbeat_proto::v1;

use super::super::{drops, export_names};
use super::packets::{self, Packets, Sequence, Uuids};

/// Describes the track and says what was recorded.
pub(super) fn begin(
    trace: &Trace,
    title: &str,
    uuids: &Uuids,
    packets: &mut Packets<'_>,
) -> io::Result<()> {
    packets.write(&pb::TracePacket {
        trusted_packet_sequence_id: Some(Sequence::SESSION.0),
        sequence_flags: Some(packets::STATE_CLEARED),
        track_descriptor: Some(pb::TrackDescriptor {
            uuid: Some(uuids.session()),
            name: Some("stackbeat recording".to_owned()),
            ..pb::TrackDescriptor::default()
        }),
        ..pb::TracePacket::default()
    })?;
    let header = trace.header();
    let config = trace.config();
    let texts = [
        ("command", title.to_owned()),
        ("stackbeat_version", header.stackbeat_version.clone()),
        ("host", header.hostname.clone()),
        ("system", header.os.clone()),
        ("machine", header.machine.clone()),
        ("probes", config.probes.join(",")),
    ];
    let numbers = [
        ("interval_ns", config.interval_ns as i64),
        ("main_interval_ns", config.main_interval_ns as i64),
        ("depth_limit", i64::from(config.depth_limit)),
    ];
    let annotations = texts
        .into_iter()
        .map(|(name, text)| annotation(name, None, Some(text)))
        .chain(
            numbers
                .into_iter()
                .map(|(name, value)| annotation(name, Some(value), None)),
        )
        .collect();
    instant(
        packets,
        uuids.session(),
        trace.start_ns(),
        "recording",
        "session",
        annotations,
    )
}

/// Says what is missing, by cause, at the end of the recording.
pub(super) fn drops(trace: &Trace, uuids: &Uuids, packets: &mut Packets<'_>) -> io::Result<()> {
    let incomplete = drops::incomplete(trace).map(|state| (state, Vec::new()));
    let causes = drops::by_cause(trace).into_iter().map(|(cause, count)| {
        let count = annotation("count", Some(count as i64), None);
        (format!("loss: {cause}"), vec![count])
    });
    for (name, annotations) in incomplete.into_iter().chain(causes) {
        let time_ns = drops::time_ns(trace);
        instant(
            packets,
            uuids.session(),
            time_ns,
            &name,
            "loss",
            annotations,
        )?;
    }
    Ok(())
}

/// An event as an instant, on the track of its thread or of the session.
pub(super) fn event(
    trace: &Trace,
    thread: Option<ThreadIndex>,
    event: &v1::Event,
    uuids: &Uuids,
    packets: &mut Packets<'_>,
) -> io::Result<()> {
    let kind = export_names::event_kind(event.kind());
    let name = if event.name.is_empty() {
        kind
    } else {
        &event.name
    };
    let mut annotations = vec![annotation("value", Some(event.value), None)];
    let label = thread.map(|thread| export_names::thread_label(trace, thread));
    annotations.extend(label.map(|label| annotation("thread", None, Some(label))));
    let track = thread.map_or(uuids.session(), |thread| uuids.thread(thread));
    instant(packets, track, event.time_ns, name, kind, annotations)
}

fn annotation(name: &str, int_value: Option<i64>, text: Option<String>) -> pb::DebugAnnotation {
    pb::DebugAnnotation {
        name: Some(name.to_owned()),
        int_value,
        string_value: text,
        ..pb::DebugAnnotation::default()
    }
}

fn instant(
    packets: &mut Packets<'_>,
    track: u64,
    time_ns: u64,
    name: &str,
    category: &str,
    debug_annotations: Vec<pb::DebugAnnotation>,
) -> io::Result<()> {
    packets.write(&pb::TracePacket {
        trusted_packet_sequence_id: Some(Sequence::SESSION.0),
        timestamp: Some(time_ns),
        timestamp_clock_id: Some(packets::CLOCK_MONOTONIC),
        track_event: Some(pb::TrackEvent {
            r#type: Some(pb::track_event::Type::Instant as i32),
            track_uuid: Some(track),
            name: Some(name.to_owned()),
            categories: vec![category.to_owned()],
            debug_annotations,
            ..pb::TrackEvent::default()
        }),
        ..pb::TracePacket::default()
    })
}
