//! Perfetto's protobuf trace.
//!
//! - Slices: a packet sequence for each thread with its own interned names. A slice's begin carries
//!   name, category and source line, its end the amounts, so nothing waits for a slice to close.
//! - Counters and samples: a sequence each. Callstacks are interned once for the whole trace.
//! - Wake-ups and starts of threads: an arrow from the thread that caused it.
//! - Tracks: process and thread descriptors with ids derived from the session, so that traces can
//!   be concatenated (with a system trace, too: our clock is CLOCK_MONOTONIC, snapshots say how it
//!   relates to the others).
//!
//! Packets are not in order of time across sequences; Perfetto sorts them.

mod callstacks;
mod counters;
mod flows;
mod packet_bytes;
mod packets;
mod program_events;
mod session_track;
mod slices;

use std::io::{self, Write};

use anyhow::Result;
use stackbeat_model::{Counter, ProcessIndex, Segment, ThreadIndex, Trace};
use stackbeat_proto::perfetto as pb;
use stackbeat_proto::v1;

use super::arrows::Arrow;
use super::export_names::{self, Names};
use super::feed::{self, Sink};
use super::viewer_ids::Identities;
use super::{Exported, Options, Selection};
use crate::meters::{Emit, Meters, Reading};
use crate::scopes::Work;
use callstacks::Callstacks;
use counters::Counters;
use packets::{Packets, Seen, Sequence, Uuids};
use program_events::Program;
use slices::ThreadTrack;

pub(super) fn write(
    trace: &Trace,
    selection: &Selection,
    options: &Options,
    out: &mut dyn Write,
) -> Result<Exported> {
    let names = Names::new();
    let mut exporter = Exporter {
        names: &names,
        uuids: Uuids::new(&trace.header().session_id, Identities::new(trace)),
        packets: Packets::new(out),
        callstacks: Callstacks::new(trace),
        counters: Counters::default(),
        meters: Meters::new(trace),
        program: Program::default(),
        threads: Vec::new(),
        described: vec![false; trace.processes().len()],
        described_threads: Seen::default(),
        slices: 0,
        arrows: 0,
    };
    exporter.begin(trace, options)?;
    let mut exported = feed::run(trace, selection, &mut exporter)?;
    exporter.finish(trace)?;
    exported.slices = exporter.slices;
    Ok(exported)
}

struct Exporter<'a> {
    names: &'a Names,
    uuids: Uuids,
    packets: Packets<'a>,
    callstacks: Callstacks,
    counters: Counters,
    meters: Meters,
    program: Program,
    threads: Vec<Option<Box<ThreadTrack>>>,
    /// Processes whose descriptor was written.
    described: Vec<bool>,
    described_threads: Seen,
    slices: u64,
    arrows: u32,
}

impl Exporter<'_> {
    /// Clocks, and a track for the recording itself.
    fn begin(&mut self, trace: &Trace, options: &Options) -> io::Result<()> {
        let header = trace.header();
        let snapshots = [header.start.as_ref(), trace.clock().last()];
        for (index, snapshot) in snapshots.into_iter().flatten().enumerate() {
            let clock = |clock_id, timestamp| pb::clock_snapshot::Clock {
                clock_id: Some(clock_id),
                timestamp: Some(timestamp),
            };
            self.packets.write(&pb::TracePacket {
                trusted_packet_sequence_id: Some(Sequence::SESSION.0),
                first_packet_on_sequence: (index == 0).then_some(true),
                timestamp: Some(snapshot.boottime_ns),
                clock_snapshot: Some(pb::ClockSnapshot {
                    clocks: vec![
                        clock(packets::CLOCK_BOOTTIME, snapshot.boottime_ns),
                        clock(packets::CLOCK_MONOTONIC, snapshot.monotonic_ns),
                        clock(packets::CLOCK_REALTIME, snapshot.realtime_ns),
                    ],
                }),
                ..pb::TracePacket::default()
            })?;
        }
        session_track::begin(
            trace,
            &export_names::title(trace, options),
            &self.uuids,
            &mut self.packets,
        )?;
        self.callstacks.begin(trace, &mut self.packets)
    }

    fn describe_process(&mut self, trace: &Trace, index: ProcessIndex) -> io::Result<()> {
        let first = self.uuids.identities.process(index);
        if std::mem::replace(&mut self.described[first.0 as usize], true) {
            return Ok(());
        }
        let last = self.uuids.identities.last_image(index);
        let process = trace.process(last);
        self.write_parent(trace, first, last)?;
        self.packets.write(&pb::TracePacket {
            trusted_packet_sequence_id: Some(Sequence::SESSION.0),
            timestamp: Some(trace.process(first).start_ns),
            timestamp_clock_id: Some(packets::CLOCK_MONOTONIC),
            track_descriptor: Some(pb::TrackDescriptor {
                uuid: Some(self.uuids.process(first)),
                process: Some(pb::ProcessDescriptor {
                    pid: Some(process.pid.0 as i32),
                    cmdline: process.command_line.clone(),
                    process_name: Some(export_names::process_name(trace, last)),
                }),
                ..pb::TrackDescriptor::default()
            }),
            ..pb::TracePacket::default()
        })?;
        self.packets.write(&pb::TracePacket {
            trusted_packet_sequence_id: Some(Sequence::SESSION.0),
            track_descriptor: Some(pb::TrackDescriptor {
                uuid: Some(self.uuids.counters(Some(first))),
                parent_uuid: Some(self.uuids.process(first)),
                name: Some("counters".to_owned()),
                ..pb::TrackDescriptor::default()
            }),
            ..pb::TracePacket::default()
        })
    }

    /// Says whose child a process is, where that is in the trace. `last`: the image that names it.
    fn write_parent(
        &mut self,
        trace: &Trace,
        first: ProcessIndex,
        last: ProcessIndex,
    ) -> io::Result<()> {
        let Some(parent) = trace.process(first).parent else {
            return Ok(());
        };
        let process = trace.process(last);
        // Perfetto names a process by the first word of this.
        let name = export_names::process_name(trace, last);
        let arguments = process.command_line.iter().skip(1).cloned();
        self.packets.write(&pb::TracePacket {
            trusted_packet_sequence_id: Some(Sequence::SESSION.0),
            timestamp: Some(trace.process(first).start_ns),
            timestamp_clock_id: Some(packets::CLOCK_MONOTONIC),
            process_tree: Some(pb::ProcessTree {
                processes: vec![pb::process_tree::Process {
                    pid: Some(process.pid.0 as i32),
                    ppid: Some(trace.process(parent).pid.0 as i32),
                    cmdline: std::iter::once(name).chain(arguments).collect(),
                }],
            }),
            ..pb::TracePacket::default()
        })
    }

    fn finish(&mut self, trace: &Trace) -> io::Result<()> {
        let meters = std::mem::take(&mut self.meters);
        for (process, readings) in meters.processes(|image| self.uuids.identities.process(image)) {
            self.describe_process(trace, process)?;
            for reading in &readings {
                let owner = counters::Owner::Process(process);
                self.counters
                    .write(owner, reading, &self.uuids, &mut self.packets)?;
            }
        }
        session_track::drops(trace, &self.uuids, &mut self.packets)?;
        self.packets.flush()
    }

    /// The thread's track; describes it on first use.
    fn track(&mut self, trace: &Trace, thread: ThreadIndex) -> io::Result<Box<ThreadTrack>> {
        let index = thread.0 as usize;
        if self.threads.len() <= index {
            self.threads.resize_with(index + 1, || None);
        }
        if let Some(track) = self.threads[index].take() {
            return Ok(track);
        }
        self.describe_process(trace, trace.thread(thread).process)?;
        let track = Box::new(ThreadTrack::new(thread));
        track.begin(&self.uuids, &mut self.packets)?;
        let first = self.uuids.identities.thread(thread);
        if self.described_threads.insert(first.0 as usize) {
            track.describe(trace, &self.uuids, &mut self.packets)?;
        }
        Ok(track)
    }

    fn meter(
        &mut self,
        trace: &Trace,
        take: impl FnOnce(&mut Meters, &mut Emit<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let Self {
            meters,
            counters,
            packets,
            uuids,
            ..
        } = self;
        take(meters, &mut |thread: ThreadIndex, reading: &Reading| {
            let first = uuids.identities.thread(thread);
            let owner = counters::Owner::Thread(first, trace.thread(first).tid.0);
            // Its first bucket may begin before it, while an image before it still has the track.
            let reading = Reading {
                time_ns: reading.time_ns.max(trace.thread(thread).start_ns),
                ..*reading
            };
            counters.write(owner, &reading, uuids, packets)
        })
    }
}

impl Sink for Exporter<'_> {
    fn segment(&mut self, trace: &Trace, segment: &Segment) -> io::Result<()> {
        let mut track = self.track(trace, segment.thread)?;
        self.slices += track.advance(trace, self.names, segment, &mut self.packets)?;
        self.threads[segment.thread.0 as usize] = Some(track);
        self.callstacks
            .segment(trace, self.names, segment, &mut self.packets)?;
        self.meter(trace, |meters, emit| meters.add(trace, segment, emit))
    }

    fn event(
        &mut self,
        trace: &Trace,
        thread: Option<ThreadIndex>,
        event: &v1::Event,
    ) -> io::Result<()> {
        let thread = thread.map(|thread| self.uuids.identities.thread(thread));
        if let Some(thread) = thread {
            self.describe_process(trace, trace.thread(thread).process)?;
            if self
                .program
                .write(thread, event, &self.uuids, &mut self.packets)?
            {
                return Ok(());
            }
        }
        session_track::event(trace, thread, event, &self.uuids, &mut self.packets)
    }

    fn asynchronous(&mut self, trace: &Trace, mut all: Vec<Work>) -> io::Result<()> {
        for work in &mut all {
            work.process = self.uuids.identities.process(work.process);
            self.describe_process(trace, work.process)?;
        }
        self.program
            .asynchronous(&all, &self.uuids, &mut self.packets)
    }

    fn counter(&mut self, trace: &Trace, counter: &Counter) -> io::Result<()> {
        if let Some(process) = counter.process {
            self.describe_process(trace, process)?;
        }
        self.program
            .counter(counter, &self.uuids, &mut self.packets)
    }

    fn arrow(&mut self, trace: &Trace, arrow: &Arrow) -> io::Result<()> {
        for end in [&arrow.from, &arrow.to] {
            let track = self.track(trace, end.thread)?;
            self.threads[end.thread.0 as usize] = Some(track);
        }
        self.arrows += 1;
        let id = self.uuids.arrow(self.arrows);
        flows::write(trace, arrow, id, &self.uuids, &mut self.packets)
    }

    fn thread_end(&mut self, trace: &Trace, thread: ThreadIndex) -> io::Result<()> {
        let Some(mut track) = self
            .threads
            .get_mut(thread.0 as usize)
            .and_then(Option::take)
        else {
            return Ok(());
        };
        self.slices += track.finish(trace, self.names, &mut self.packets)?;
        self.meter(trace, |meters, emit| meters.finish(trace, thread, emit))
    }
}
