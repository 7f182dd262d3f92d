//! The flight recorder: writes what a session holds at one moment, or the last seconds of it, as a trace
//! of its own, while the session goes on.
//!
//! The drain stops for the moment it takes to copy the sub-buffers ([`Frozen::take`]); the rest happens
//! on another thread, from that copy and from what the session's own trace holds by then. A window that
//! begins in the middle is a trace like any other: totals of threads count from its begin.

mod content;
mod window;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use stackbeat_core::clock::Snapshot;
use stackbeat_core::ids::Utid;
use stackbeat_core::shm::mapping::Mapping;
use stackbeat_proto::columns::SampleRow;
use stackbeat_proto::stream::PacketReader;
use stackbeat_proto::v1::{self, Summary, packet, summary};

use self::content::Content;
use self::window::Dump;
use crate::drain::{Drainer, clock_packet};
use crate::writer::{Writer, encode};
use stackbeat_symbolize::{NameSources, Symbolizer};

/// Bytes of packets collected before they are written.
const FLUSH_BYTES: usize = 1 << 20;

/// What a session holds at one moment.
#[derive(Debug)]
pub(crate) struct Frozen {
    /// Its trace, and how much of it there was.
    trace: PathBuf,
    bytes: u64,
    /// What the trace does not have: samples by thread, events and counters.
    rows: Vec<(Utid, Vec<SampleRow>)>,
    events: Vec<packet::Body>,
    /// Totals of those that live, and how many of their records are overwritten.
    living: Vec<(v1::ThreadEnd, u64)>,
    now: Snapshot,
    unit_ns: u32,
}

impl Frozen {
    /// Copies it. Everything was stored just before.
    ///
    /// # Errors
    ///
    /// When the trace cannot be read again, or what belongs to the copy cannot be written to it.
    pub(crate) fn take(
        mapping: &Mapping,
        drainer: &mut Drainer,
        writer: &mut Writer,
    ) -> io::Result<Frozen> {
        if !writer.is_regular() {
            return Err(io::Error::other(
                "the trace goes to a pipe and cannot be read again; record into a file",
            ));
        }
        let (rows, events) = drainer.copy_records(mapping);
        // Stacks, modules and names that these refer to.
        drainer.flush_queue(mapping, writer)?;
        drainer.name_generated_code();
        drainer.flush_queue(mapping, writer)?;
        Ok(Frozen {
            trace: writer.path().to_path_buf(),
            bytes: writer.bytes(),
            rows,
            events,
            living: drainer
                .lifecycle
                .totals_of_living(mapping, &drainer.converter),
            now: drainer.take_snapshot(),
            unit_ns: drainer.unit_ns,
        })
    }
}

/// What to write.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub output: PathBuf,
    pub overwrite: bool,
    /// Only this long before `before_ns` (`None`: now); `None`: everything.
    pub last_ns: Option<u64>,
    pub before_ns: Option<u64>,
    pub symbolize: bool,
    pub names: NameSources,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Written {
    pub samples: u64,
    pub threads: u64,
    pub bytes: u64,
    /// From the first sample to now.
    pub covered_ns: u64,
}

/// Writes the window.
///
/// # Errors
///
/// When the session's trace cannot be read or the output cannot be written.
pub(super) fn write(frozen: Frozen, window: &Window) -> io::Result<Written> {
    let same = |a: &Path, b: &Path| a.canonicalize().ok() == b.canonicalize().ok();
    if window.output.exists() && same(&window.output, &frozen.trace) {
        return Err(io::Error::other("is the session's own trace"));
    }
    let now_ns = frozen.now.monotonic_ns;
    let before_ns = window.before_ns.unwrap_or(now_ns);
    let from_ns = window.last_ns.map_or(0, |ns| before_ns.saturating_sub(ns));
    let mut content = Content::read(&frozen, from_ns)?;
    let writer = Writer::create(&window.output, window.overwrite)?;
    let mut out = Out {
        writer,
        pending: Vec::new(),
        packets: 0,
    };
    out.writer
        .write_header(content.header(from_ns, &frozen.now))?;
    let mut dump = Dump {
        from_ns,
        threads: content.threads(&frozen, from_ns),
        used: BTreeSet::new(),
        waited_for: BTreeSet::new(),
        written: Written::default(),
        first_ns: now_ns,
        unit_ns: frozen.unit_ns,
    };
    content.begin(from_ns, &dump.threads, &mut out)?;
    each_packet(&frozen, |packet| match packet {
        packet::Body::Samples(batch) => dump.batch(&batch, &mut out),
        packet::Body::Counters(batch) => dump.counters(batch, &mut out),
        packet::Body::Event(event) => dump.event(event, &mut out),
        body => dump.wakeup(body, &mut out),
    })?;
    // A thread's events stand before its samples, as in the session's own trace.
    let (events, others): (Vec<_>, Vec<_>) =
        (frozen.events.into_iter()).partition(|body| matches!(body, packet::Body::Event(_)));
    for body in events {
        if let packet::Body::Event(event) = body {
            dump.event(event, &mut out)?;
        }
    }
    for (utid, rows) in &frozen.rows {
        dump.take(*utid, rows, &mut out)?;
    }
    for body in others {
        match body {
            packet::Body::Counters(batch) => dump.counters(batch, &mut out)?,
            body => dump.wakeup(body, &mut out)?,
        }
    }
    for (utid, waits) in std::mem::take(&mut content.waits) {
        dump.waits(utid, waits, &mut out)?;
    }
    let queries = content.nodes(&dump.used, &mut out)?;
    for thread in dump.threads.values() {
        out.say(packet::Body::Thread(thread.packet.clone()))?;
        if let Some(end) = thread.end() {
            out.say(packet::Body::ThreadEnd(end))?;
        }
    }
    let mut without_names = Vec::new();
    if window.symbolize {
        let symbolizer = Symbolizer::new(stackbeat_symbolize::Options {
            sources: window.names.clone(),
            ..Default::default()
        });
        content.write_qualified(&dump.used, &mut out)?;
        if let Some(maps) = &window.names.source_maps {
            content.write_sources(&queries, &**maps, &mut out)?;
        }
        without_names = content.add_names(&symbolizer, &queries, &dump.waited_for, &mut out)?;
    }
    dump.written.covered_ns = now_ns - dump.first_ns.min(now_ns);
    dump.written.threads = dump.threads.len() as u64;
    let summary = Summary {
        outcome: summary::Outcome::Finished.into(),
        records_written: dump.written.samples,
        records_stored: dump.written.samples,
        ..Default::default()
    };
    out.say(packet::Body::Footer(v1::Footer {
        end_ns: now_ns,
        packets: out.writer.packets() + out.packets + 1,
        samples: dump.written.samples,
        end: Some(clock_packet(&frozen.now)),
        figures: Vec::new(),
        summary: (!out.writer.is_regular()).then(|| summary.clone()),
        without_names,
    }))?;
    out.flush()?;
    out.writer.update_summary(&summary)?;
    dump.written.bytes = out.writer.bytes();
    Ok(dump.written)
}

/// Reads the session's trace as far as it went.
fn each_packet(
    frozen: &Frozen,
    mut take: impl FnMut(packet::Body) -> io::Result<()>,
) -> io::Result<()> {
    let file = File::open(&frozen.trace)?.take(frozen.bytes);
    for item in PacketReader::new(file) {
        let (_, packet) = item.map_err(io::Error::other)?;
        if let Some(body) = packet.body {
            take(body)?;
        }
    }
    Ok(())
}

/// Packets on their way to the file.
struct Out {
    writer: Writer,
    pending: Vec<u8>,
    packets: u64,
}

impl Out {
    fn say(&mut self, body: packet::Body) -> io::Result<()> {
        encode(body, &mut self.pending);
        self.packets += 1;
        if self.pending.len() >= FLUSH_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let packets = std::mem::take(&mut self.packets);
        self.writer.append(&self.pending, packets)?;
        self.pending.clear();
        Ok(())
    }
}
