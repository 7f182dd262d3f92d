//! A damaged trace is not called complete.

use std::fs;

use stackbeat_proto::stream::{PacketReader, write_packet};
use stackbeat_proto::v1::summary::Outcome;
use stackbeat_proto::v1::{Summary, packet::Body};
use stackbeat_tests::kept_traces;
use stackbeat_tests::tool::{heading, json, stackbeat, text};

/// The same trace, finished; with `damaged`, its largest batch of samples lacks a time.
fn finished(bytes: &[u8], damaged: bool) -> Vec<u8> {
    let mut packets: Vec<_> = PacketReader::new(bytes)
        .map(|packet| packet.expect("is good").1)
        .collect();
    let samples = (packets.iter_mut()).filter_map(|packet| match &mut packet.body {
        Some(Body::Samples(batch)) => Some(batch),
        _ => None,
    });
    let largest = samples.max_by_key(|batch| batch.time.len());
    if damaged {
        largest.expect("samples").time.pop();
    }
    if let Some(Body::Header(header)) = &mut packets[0].body {
        header.summary = Some(Summary {
            outcome: Outcome::Finished.into(),
            ..Summary::default()
        });
    }
    let mut out = Vec::new();
    packets
        .iter()
        .for_each(|packet| write_packet(packet, &mut out));
    out
}

#[test]
fn a_damaged_trace_is_not_called_complete() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    for (name, bytes) in kept_traces() {
        for is_damaged in [true, false] {
            let word = if is_damaged { "damaged" } else { "complete" };
            fs::write(at.join("t.beat"), finished(&bytes, is_damaged)).expect("is written");
            let tables = text(&stackbeat(at, &["report", "t.beat"]).stdout);
            assert!(heading(&tables).contains(word), "{name}: {tables}");
            let said = text(&stackbeat(at, &["info", "t.beat"]).stdout);
            let state = said.lines().find(|line| line.contains("  state  "));
            assert!(
                state.is_some_and(|line| line.contains(word)),
                "{name}: {said}"
            );
            for command in ["report", "info"] {
                let read = json(at, &[command, "t.beat", "--json"]);
                assert_eq!(read["recording"]["outcome"], "finished");
                assert!(read["recording"]["state"].to_string().contains(word));
                let damage = read["damage"].as_array().expect("a list");
                assert_eq!(!damage.is_empty(), is_damaged, "{damage:?}");
            }
        }
    }
}
