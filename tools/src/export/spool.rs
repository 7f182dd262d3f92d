//! Segments sorted by thread, for formats that want one thread after the other: a nameless temporary
//! file holds a chain of blocks for each thread, memory only the block that is being filled.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::{Context, Result};
use stackbeat_model::{
    Evidence, Metrics, ProbeId, Segment, SegmentKind, StackIndex, ThreadIndex, Trace,
};
use stackbeat_proto::v1;

use super::feed::{self, Sink};
use super::{Exported, Selection};
use crate::scopes::Work;

/// Words of a stored segment.
const WORDS: usize = 16;
const SEGMENT_BYTES: usize = WORDS * 8;
/// A block holds that many segments: 8 KiB, so that 10,000 threads need 80 MB at most.
const BLOCK_SEGMENTS: usize = 64;

/// All selected segments of a trace, thread by thread.
#[derive(Debug)]
pub(super) struct Spool {
    file: File,
    /// For each thread with segments: its blocks (offset, bytes) in order of time.
    threads: Vec<(ThreadIndex, Vec<(u64, u32)>)>,
    pub exported: Exported,
    /// In the order of the trace.
    pub events: Vec<(Option<ThreadIndex>, v1::Event)>,
    pub asynchronous: Vec<Work>,
}

impl Spool {
    /// Reads the whole trace into a temporary file in `folder`, or the system's folder for them.
    pub(super) fn fill(
        trace: &Trace,
        selection: &Selection,
        folder: Option<&Path>,
    ) -> Result<Spool> {
        let file = match folder {
            Some(folder) => tempfile::tempfile_in(folder),
            None => tempfile::tempfile(),
        }
        .context("cannot make a temporary file (set TMPDIR to a folder with room)")?;
        let mut filler = Filler {
            file,
            end: 0,
            threads: Vec::new(),
            events: Vec::new(),
            asynchronous: Vec::new(),
        };
        let exported = feed::run(trace, selection, &mut filler)?;
        for thread in 0..filler.threads.len() {
            filler.flush(thread)?;
        }
        let threads = filler
            .threads
            .into_iter()
            .enumerate()
            .filter(|(_, thread)| !thread.blocks.is_empty())
            .map(|(index, thread)| (ThreadIndex(index as u32), thread.blocks))
            .collect();
        Ok(Spool {
            file: filler.file,
            threads,
            exported,
            events: filler.events,
            asynchronous: filler.asynchronous,
        })
    }

    /// The threads that have segments.
    pub(super) fn threads(&self) -> Vec<ThreadIndex> {
        self.threads.iter().map(|(thread, _)| *thread).collect()
    }

    /// Hands out a thread's segments in order of time. A thread can be read more than once.
    pub(super) fn read(
        &mut self,
        thread: ThreadIndex,
        mut take: impl FnMut(&Segment) -> io::Result<()>,
    ) -> io::Result<()> {
        let Ok(position) = self
            .threads
            .binary_search_by_key(&thread, |(index, _)| *index)
        else {
            return Ok(());
        };
        let mut block = Vec::new();
        for (offset, bytes) in &self.threads[position].1 {
            block.resize(*bytes as usize, 0);
            self.file.seek(SeekFrom::Start(*offset))?;
            self.file.read_exact(&mut block)?;
            for record in block.chunks_exact(SEGMENT_BYTES) {
                take(&decode(thread, record))?;
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct Pending {
    buffer: Vec<u8>,
    blocks: Vec<(u64, u32)>,
}

struct Filler {
    file: File,
    end: u64,
    threads: Vec<Pending>,
    events: Vec<(Option<ThreadIndex>, v1::Event)>,
    asynchronous: Vec<Work>,
}

impl Filler {
    fn flush(&mut self, thread: usize) -> io::Result<()> {
        let pending = &mut self.threads[thread];
        if pending.buffer.is_empty() {
            return Ok(());
        }
        self.file.write_all(&pending.buffer)?;
        pending.blocks.push((self.end, pending.buffer.len() as u32));
        self.end += pending.buffer.len() as u64;
        pending.buffer.clear();
        Ok(())
    }
}

impl Sink for Filler {
    fn asynchronous(&mut self, _: &Trace, work: Vec<Work>) -> io::Result<()> {
        self.asynchronous = work;
        Ok(())
    }

    fn segment(&mut self, _: &Trace, segment: &Segment) -> io::Result<()> {
        let thread = segment.thread.0 as usize;
        if self.threads.len() <= thread {
            self.threads.resize_with(thread + 1, Pending::default);
        }
        let buffer = &mut self.threads[thread].buffer;
        encode(segment, buffer);
        if buffer.len() >= BLOCK_SEGMENTS * SEGMENT_BYTES {
            self.flush(thread)?;
        }
        Ok(())
    }

    fn event(
        &mut self,
        _: &Trace,
        thread: Option<ThreadIndex>,
        event: &v1::Event,
    ) -> io::Result<()> {
        self.events.push((thread, event.clone()));
        Ok(())
    }

    fn thread_end(&mut self, _: &Trace, thread: ThreadIndex) -> io::Result<()> {
        match self.threads.get_mut(thread.0 as usize) {
            None => Ok(()),
            Some(_) => {
                self.flush(thread.0 as usize)?;
                self.threads[thread.0 as usize].buffer = Vec::new();
                Ok(())
            }
        }
    }
}

// One word: kind (0 running, 1 gap, 2 + probe number blocked) and which optional values are there.
const HAS_ARGUMENT: u64 = 1 << 16;
const HAS_RESULT: u64 = 1 << 17;
const HAS_WAKER: u64 = 1 << 18;
const NEW_ITERATION: u64 = 1 << 19;
const INFERRED: u64 = 1 << 20;

fn encode(segment: &Segment, buffer: &mut Vec<u8>) {
    let mut tag = match segment.kind {
        SegmentKind::Running => 0,
        SegmentKind::Gap => 1,
        SegmentKind::Blocked(probe) => 2 + u64::from(probe.0),
    };
    for (is_set, bit) in [
        (segment.arg.is_some(), HAS_ARGUMENT),
        (segment.result.is_some(), HAS_RESULT),
        (segment.waker_tid.is_some(), HAS_WAKER),
        (segment.new_iteration, NEW_ITERATION),
        (segment.is_inferred, INFERRED),
    ] {
        if is_set {
            tag |= bit;
        }
    }
    let metrics = &segment.metrics;
    let words: [u64; WORDS] = [
        segment.begin_ns,
        segment.end_ns,
        u64::from(segment.stack.0) | u64::from(segment.waker_tid.unwrap_or(0)) << 32,
        tag,
        segment.arg.unwrap_or(0),
        segment.result.unwrap_or(0) as u64,
        metrics.cpu_ns,
        metrics.allocations,
        metrics.allocated_bytes,
        metrics.frees,
        metrics.minor_faults,
        metrics.major_faults,
        metrics.voluntary_switches,
        metrics.involuntary_switches,
        metrics.samples,
        metrics.runnable_ns,
    ];
    for word in words {
        buffer.extend_from_slice(&word.to_le_bytes());
    }
}

fn decode(thread: ThreadIndex, record: &[u8]) -> Segment {
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(record.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    let tag = words[3];
    let kind = match tag & 0xffff {
        0 => SegmentKind::Running,
        1 => SegmentKind::Gap,
        number => SegmentKind::Blocked(ProbeId((number - 2) as u8)),
    };
    let has = |bit: u64| tag & bit != 0;
    Segment {
        thread,
        begin_ns: words[0],
        end_ns: words[1],
        stack: StackIndex(words[2] as u32),
        kind,
        metrics: Metrics {
            cpu_ns: words[6],
            allocations: words[7],
            allocated_bytes: words[8],
            frees: words[9],
            minor_faults: words[10],
            major_faults: words[11],
            voluntary_switches: words[12],
            involuntary_switches: words[13],
            samples: words[14],
            runnable_ns: words[15],
        },
        // Exports do not show it.
        evidence: Evidence::default(),
        arg: has(HAS_ARGUMENT).then_some(words[4]),
        result: has(HAS_RESULT).then_some(words[5] as i64),
        waker_tid: has(HAS_WAKER).then_some((words[2] >> 32) as u32),
        new_iteration: has(NEW_ITERATION),
        is_inferred: has(INFERRED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_segment_comes_back_as_it_was() {
        let segment = Segment {
            thread: ThreadIndex(7),
            begin_ns: 1 << 60,
            end_ns: (1 << 60) + 5,
            stack: StackIndex(u32::MAX),
            kind: SegmentKind::Blocked(ProbeId(255)),
            metrics: Metrics {
                cpu_ns: 1,
                allocations: 2,
                allocated_bytes: 3,
                frees: 4,
                minor_faults: 5,
                major_faults: 6,
                voluntary_switches: 7,
                involuntary_switches: 8,
                samples: 9,
                runnable_ns: 10,
            },
            evidence: Evidence::default(),
            arg: Some(u64::MAX),
            result: Some(-1),
            waker_tid: Some(u32::MAX),
            new_iteration: true,
            is_inferred: true,
        };
        let plain = Segment {
            kind: SegmentKind::Gap,
            arg: None,
            result: None,
            waker_tid: None,
            new_iteration: false,
            is_inferred: false,
            ..segment
        };
        let running = Segment {
            kind: SegmentKind::Running,
            ..plain
        };
        for segment in [segment, plain, running] {
            let mut buffer = Vec::new();
            encode(&segment, &mut buffer);
            assert_eq!(buffer.len(), SEGMENT_BYTES);
            assert_eq!(decode(segment.thread, &buffer), segment);
        }
    }
}
