//! Draining: from the shared mapping into packets.
//!
//! One pass reads the registry (who is new, who has ended), copies what threads committed since the
//! last pass, reads the nodes that those records refer to, and hands everything to the sink. Only when
//! the sink has stored it, the sub-buffers are marked as drained. So at any moment of death a record
//! is in the mapping, in the file, or (between the two steps) in both, where its number tells.
//!
//! When the sink fails (a full disk), nothing is marked: the pool keeps what it holds, the program's
//! threads count what finds no room any more, and the next pass tries again.

#![forbid(unsafe_code)]

pub(crate) mod counters;
pub(crate) mod crash;
pub(crate) mod decode_record;
pub(crate) mod generated_code;
pub(crate) mod lifecycle;
pub(crate) mod methods;
pub(crate) mod nodes;
mod sample_rows;
mod scan;
pub(crate) mod seen_waits;
pub(crate) mod suspended;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::Arc;

use stackbeat_core::clock::{Converter, Snapshot};
use stackbeat_core::cycles::Cycles;
use stackbeat_core::ids::{Upid, Utid};
use stackbeat_core::shm::buffer::{self, Drained};
use stackbeat_core::shm::layout::{ClockSource, buffer_state};
use stackbeat_core::shm::mapping::Mapping;
use stackbeat_core::shm::record_format::event_kind::COUNTER;
use stackbeat_core::shm::registry;
use stackbeat_core::sync::Ordering;
use stackbeat_proto::columns::SampleRow;
use stackbeat_proto::v1::{self, packet};

use crate::host::Host;
use crate::writer::encode;
pub(crate) use sample_rows::clock_packet;
use stackbeat_symbolize::Wanted;

use counters::Counters;
use decode_record::Record;
use generated_code::GeneratedCode;
use lifecycle::{Changed, Lifecycle};
use methods::Methods;
use nodes::Nodes;

/// Bytes of encoded samples after which a pass stores what it has: bounds the memory of a pass.
const FLUSH_BYTES: usize = 1 << 20;
/// Time between two clock packets.
const CLOCK_PACKET_NS: u64 = 1_000_000_000;

/// Addresses of ended processes that a pass sorts by file, about: this many, or this part of all, because
/// they may come faster. 1 µs each, in which nothing is drained.
const MOST_FORGOTTEN: usize = 8192;
const FORGOTTEN_PART: usize = 8;

/// Sub-buffers that are read, about, to see how full the pool is.
const FILL_SAMPLE: u32 = 512;

/// Where packets go.
pub(crate) trait Sink {
    /// Stores these complete packets, all or none of them.
    ///
    /// # Errors
    ///
    /// When they are not stored.
    fn append(&mut self, bytes: &[u8], packets: u64) -> io::Result<()>;
}

impl Sink for crate::writer::Writer {
    fn append(&mut self, bytes: &[u8], packets: u64) -> io::Result<()> {
        crate::writer::Writer::append(self, bytes, packets)
    }
}

/// What a pass leaves in the sub-buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Records are stored and their sub-buffers freed.
    Nothing,
    /// Records stay: the ring overwrites its oldest, the startup recorder stops when it is full.
    Records,
}

/// Counts of what passes have done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    /// Samples and records stored in the trace.
    pub samples: u64,
    pub stored: u64,
    /// Records that contradicted themselves.
    pub damaged: u64,
    /// Bytes of records that were read.
    pub bytes_drained: u64,
    pub flushes: u64,
}

/// What a sub-buffer gave, to be marked once it is stored.
#[derive(Debug)]
struct Claim {
    drained: Drained,
    /// Records that went into packets.
    stored: u64,
    samples: u64,
    damaged: u64,
    bytes: u64,
}

/// Packets on their way to the sink.
#[derive(Debug, Default)]
struct Batch {
    samples: Vec<u8>,
    packets: u64,
    claims: Vec<Claim>,
}

/// The state of draining one mapping.
#[derive(Debug)]
pub(crate) struct Drainer {
    host: Arc<dyn Host>,
    source: ClockSource,
    pub converter: Converter,
    newest_cycles: Cycles,
    last_clock_packet_ns: u64,
    pub lifecycle: Lifecycle,
    pub nodes: Nodes,
    pub methods: Methods,
    pub generated: GeneratedCode,
    /// What wants a name of processes that are forgotten.
    wanted: Wanted,
    /// What threads waited for: names of variables are wanted for these addresses.
    waited_for: BTreeSet<(Upid, u64)>,
    pub totals: Totals,
    /// Unit of times in columns, ns.
    pub unit_ns: u32,
    compress: bool,
    words: Vec<u64>,
    rows: Vec<SampleRow>,
    suspended: suspended::Waiting,
    /// Bytes of encoded samples after which a pass stores what it has: few after a failure, because
    /// what fits on a disk that is nearly full shall get there.
    flush_bytes: usize,
    /// By sub-buffer, what was peeked at: its use and what was committed.
    peeked: HashMap<u32, (u32, u64)>,
    /// By sub-buffer, its use and what was committed at the last [`Drainer::revoke_idle`].
    held: Vec<(u32, u64)>,
}

impl Drainer {
    /// Begins with the first reading of the clocks.
    pub(crate) fn new(
        host: Arc<dyn Host>,
        source: ClockSource,
        first: &Snapshot,
        unit_ns: u32,
        compress: bool,
    ) -> Drainer {
        let mut drainer = Drainer {
            host,
            source,
            converter: Converter::new(),
            newest_cycles: Cycles(0),
            last_clock_packet_ns: first.monotonic_ns,
            lifecycle: Lifecycle::default(),
            nodes: Nodes::default(),
            methods: Methods::default(),
            generated: GeneratedCode::default(),
            wanted: Wanted::default(),
            waited_for: BTreeSet::new(),
            totals: Totals::default(),
            unit_ns,
            compress,
            words: Vec::new(),
            rows: Vec::new(),
            suspended: suspended::Waiting::default(),
            flush_bytes: FLUSH_BYTES,
            peeked: HashMap::new(),
            held: Vec::new(),
        };
        drainer.add_snapshot(first);
        drainer
    }

    /// A drainer that goes on after a partial trace, over a mapping that nobody writes to any more.
    pub(crate) fn after(
        host: Arc<dyn Host>,
        source: ClockSource,
        converter: Converter,
        seed: lifecycle::Seed,
        unit_ns: u32,
    ) -> Drainer {
        Drainer {
            host,
            source,
            converter,
            // There is no later reading of the clocks to wait for.
            newest_cycles: Cycles::MAX,
            last_clock_packet_ns: 0,
            lifecycle: Lifecycle::of_the_dead(seed),
            nodes: Nodes::default(),
            methods: Methods::default(),
            generated: GeneratedCode::default(),
            wanted: Wanted::default(),
            waited_for: BTreeSet::new(),
            totals: Totals::default(),
            unit_ns,
            compress: false,
            words: Vec::new(),
            rows: Vec::new(),
            suspended: suspended::Waiting::default(),
            flush_bytes: FLUSH_BYTES,
            peeked: HashMap::new(),
            held: Vec::new(),
        }
    }

    /// Reads the clocks.
    pub(crate) fn take_snapshot(&mut self) -> Snapshot {
        let snapshot = Snapshot::take(self.source);
        self.add_snapshot(&snapshot);
        snapshot
    }

    /// Adds a reading of the clocks.
    pub(crate) fn add_snapshot(&mut self, snapshot: &Snapshot) {
        self.converter.add(snapshot.cycles, snapshot.monotonic_ns);
        self.newest_cycles = self.newest_cycles.max(snapshot.cycles);
    }

    /// Stores everything that can be stored now, or with `Keep::Records` only what stands beside the
    /// records.
    ///
    /// # Errors
    ///
    /// Those of the sink. What was not stored stays where it is; call again.
    pub(crate) fn pass(
        &mut self,
        mapping: &Mapping,
        sink: &mut dyn Sink,
        keep: Keep,
    ) -> io::Result<()> {
        self.pass_changed(mapping, sink, keep, Changed::All)
    }

    /// As [`Drainer::pass`], where only these entries of threads have changed since the one before.
    ///
    /// # Errors
    ///
    /// As there.
    pub(crate) fn pass_changed(
        &mut self,
        mapping: &Mapping,
        sink: &mut dyn Sink,
        keep: Keep,
        changed: Changed,
    ) -> io::Result<()> {
        self.suspended.take_back();
        let snapshot = self.take_snapshot();
        self.lifecycle
            .poll(mapping, &self.converter, &snapshot, changed, &*self.host);
        let waiting = self.waiting(mapping);
        if waiting
            .iter()
            .any(|(i, _)| self.is_of_unregistered(mapping, *i))
        {
            // A process that came after the poll and has records already: it goes into the file before them.
            self.lifecycle
                .meet_newcomers(mapping, &self.converter, &snapshot, &*self.host);
        }
        let mut batch = Batch::default();
        if keep == Keep::Nothing {
            for (i, next) in waiting {
                self.copy(mapping, i, next, &mut batch);
                if batch.samples.len() >= self.flush_bytes {
                    self.flush(mapping, sink, &mut batch)?;
                }
            }
        } else {
            for (i, _) in waiting {
                self.peek(mapping, i);
            }
        }
        self.encode_all_suspended(&mut batch);
        if snapshot.monotonic_ns - self.last_clock_packet_ns >= CLOCK_PACKET_NS
            && !batch.claims.is_empty()
        {
            self.last_clock_packet_ns = snapshot.monotonic_ns;
            self.lifecycle
                .say(packet::Body::Clock(clock_packet(&snapshot)));
        }
        self.flush(mapping, sink, &mut batch)?;
        self.name_generated_code();
        // Everything of the threads that had ended before the copying is stored.
        self.lifecycle.conclude(mapping, &self.converter);
        self.flush(mapping, sink, &mut batch)?;
        self.lifecycle.release(mapping, keep, &*self.host);
        self.forget_the_ended(snapshot.monotonic_ns, keep);
        Ok(())
    }

    /// Keeps of processes that ended a while ago only what names will be looked up for.
    fn forget_the_ended(&mut self, now_ns: u64, keep: Keep) {
        let most = MOST_FORGOTTEN.max(self.nodes.wanted_count() / FORGOTTEN_PART);
        let mut addresses = 0;
        while addresses < most
            && let Some(upid) = self.lifecycle.next_to_forget(now_ns)
        {
            self.forget_generated(upid);
            addresses += self.want_names(Some(upid)) + 1;
            let has_map = self.generated.has_met(upid);
            self.lifecycle.forget(upid, keep, has_map);
        }
    }

    /// Puts the addresses of a process, or of all, by the files that they lie in. Gives how many there were.
    fn want_names(&mut self, upid: Option<Upid>) -> usize {
        let objects = match upid {
            Some(upid) => (upid, 0)..=(upid, u64::MAX),
            None => (Upid(0), 0)..=(Upid(u32::MAX), u64::MAX),
        };
        for (upid, object) in self.waited_for.extract_if(objects, |_| true) {
            let modules = self.lifecycle.modules();
            self.wanted.add_variable(modules, upid, object);
        }
        let queries = self.nodes.take_wanted(upid);
        for query in &queries {
            let has_room = self.wanted.add(self.lifecycle.modules(), query);
            self.nodes.unnamed += u64::from(!has_room);
        }
        queries.len()
    }

    /// Takes what a process has mapped of its modules' code a second time for modules too.
    pub(crate) fn find_copies_of_code(&mut self, upid: Upid) {
        self.lifecycle.find_copies_of_code(upid, &*self.host);
    }

    /// Takes out all addresses of the trace that want a name.
    pub(crate) fn take_wanted(&mut self) -> Wanted {
        self.want_names(None);
        std::mem::take(&mut self.wanted)
    }

    /// Queues the ends of those that live on. Follow with [`Drainer::flush_queue`].
    pub(crate) fn conclude_living(&mut self, mapping: &Mapping) {
        self.lifecycle
            .conclude_living(mapping, &self.converter, &*self.host);
    }

    /// Stores what was queued.
    ///
    /// # Errors
    ///
    /// Those of the sink.
    pub(crate) fn flush_queue(&mut self, mapping: &Mapping, sink: &mut dyn Sink) -> io::Result<()> {
        self.flush(mapping, sink, &mut Batch::default())
    }

    /// Whether this sub-buffer's thread or process was not there when the registry was read.
    fn is_of_unregistered(&self, mapping: &Mapping, i: u32) -> bool {
        mapping.buffer(i).is_some_and(|header| {
            let thread = header.utid();
            let process = header.upid();
            !self.lifecycle.knows(thread) || !self.lifecycle.knows_process(process)
        })
    }

    /// Copies and encodes one sub-buffer.
    fn copy(&mut self, mapping: &Mapping, i: u32, next: u64, batch: &mut Batch) {
        let mut words = std::mem::take(&mut self.words);
        if let Some(drained) = buffer::drain(mapping, i, true, &mut words) {
            self.lifecycle
                .note_thread(mapping, &drained, &self.converter);
            if !self.lifecycle.knows(drained.utid) {
                // Nobody's: none of it can be believed.
                self.lifecycle.contradictions += 1;
                words.clear();
            }
            let claim = self.encode_records(drained, next, &words, batch);
            batch.claims.push(claim);
        }
        self.words = words;
    }

    /// Takes what stands between the samples (modules, names) and leaves everything where it is: a ring
    /// that overwrites its samples must not forget what they refer to.
    fn peek(&mut self, mapping: &Mapping, i: u32) {
        let Some(header) = mapping.buffer(i) else {
            return;
        };
        let seen = (
            header.uses.load(Ordering::Relaxed),
            header.committed.load(Ordering::Acquire),
        );
        if self.peeked.insert(i, seen) == Some(seen) {
            return;
        }
        let mut words = std::mem::take(&mut self.words);
        if let Some(drained) = buffer::drain(mapping, i, true, &mut words) {
            self.lifecycle
                .note_thread(mapping, &drained, &self.converter);
            let mut rest = &words[..];
            while let Ok(Some(record)) = decode_record::next(&mut rest) {
                self.lifecycle.take(&drained, record, &*self.host);
            }
        }
        self.words = words;
    }

    /// Copies what stands in the sub-buffers and leaves it there: samples by thread, in the order of
    /// their records, and the packets of events and counters.
    pub(crate) fn copy_records(
        &mut self,
        mapping: &Mapping,
    ) -> (Vec<(Utid, Vec<SampleRow>)>, Vec<packet::Body>) {
        let (mut samples, mut events) = (Vec::new(), Vec::new());
        let mut counters = Counters::default();
        let mut words = std::mem::take(&mut self.words);
        for (i, next) in self.waiting(mapping) {
            let Some(drained) = buffer::drain(mapping, i, true, &mut words) else {
                continue;
            };
            self.lifecycle
                .note_thread(mapping, &drained, &self.converter);
            let mut rows = Vec::new();
            let mut rest = &words[..];
            for number in 0..u64::from(drained.records) {
                let Ok(Some(record)) = decode_record::next(&mut rest) else {
                    break;
                };
                let number = drained.first_record.wrapping_add(number);
                match record {
                    _ if number < next => {}
                    Record::Sample(sample) => rows.push(self.row(drained.upid, number, &sample)),
                    Record::Mark {
                        kind,
                        cycles,
                        value,
                        name,
                    } => {
                        let event = self.event(drained.utid, kind, cycles, value, name);
                        if kind == COUNTER {
                            counters.add(drained.upid, event);
                        } else {
                            events.push(packet::Body::Event(event));
                        }
                    }
                    Record::Wait(wait) => events.push(self.wait(drained.upid, drained.utid, &wait)),
                    Record::Wake(wake) => events.push(self.wake(drained.utid, &wake)),
                    other => self.lifecycle.take(&drained, other, &*self.host),
                }
            }
            samples.push((drained.utid, rows));
        }
        self.words = words;
        events.extend(counters.finish().map(packet::Body::Counters));
        (samples, events)
    }

    /// Turns words into packets. Records below `next` are in the trace already.
    fn encode_records(
        &mut self,
        drained: Drained,
        next: u64,
        words: &[u64],
        batch: &mut Batch,
    ) -> Claim {
        let mut claim = Claim {
            drained,
            stored: 0,
            samples: 0,
            damaged: 0,
            bytes: words.len() as u64 * 8,
        };
        self.rows.clear();
        let mut last_words = None;
        let mut counters = Counters::default();
        let mut wakeups = Vec::new();
        let mut rest = words;
        for number in 0..u64::from(drained.records) {
            let record = match decode_record::next(&mut rest) {
                Ok(Some(record)) => record,
                _ => {
                    // There are no more records than words, whatever the head says.
                    let left = u64::from(drained.records) - number;
                    claim.damaged = left.min(words.len() as u64);
                    break;
                }
            };
            let number = drained.first_record.wrapping_add(number);
            if number < next {
                continue;
            }
            claim.stored += 1;
            match record {
                Record::Sample(sample) => {
                    claim.samples += 1;
                    let row = self.row(drained.upid, number, &sample);
                    self.rows.push(row);
                }
                Record::Mark {
                    kind,
                    cycles,
                    value,
                    name,
                } => {
                    let mark = self.event(drained.utid, kind, cycles, value, name);
                    if kind == COUNTER {
                        counters.add(drained.upid, mark);
                    } else if !self.lifecycle.event_is_known(&mark) {
                        encode(packet::Body::Event(mark), &mut batch.samples);
                        batch.packets += 1;
                    }
                }
                Record::Wait(wait) => wakeups.push(self.wait(drained.upid, drained.utid, &wait)),
                Record::Wake(wake) => wakeups.push(self.wake(drained.utid, &wake)),
                other => self.lifecycle.take(&drained, other, &*self.host),
            }
        }
        let end = drained
            .first_record
            .wrapping_add(u64::from(drained.records));
        if claim.stored > 0
            && self
                .rows
                .last()
                .is_none_or(|r| r.record.wrapping_add(1) != end)
        {
            // Records that are no samples came last. `recover` has to know that they are done with.
            last_words = Some(v1::SampleBatch {
                utid: drained.utid.0,
                first_record: end,
                other_records: match claim.samples {
                    0 => claim.stored as u32,
                    _ => 0,
                },
                ..Default::default()
            });
        }
        let rows = std::mem::take(&mut self.rows);
        self.encode_rows(drained.utid, &rows, claim.stored - claim.samples, batch);
        self.rows = rows;
        for counter in counters.finish() {
            encode(packet::Body::Counters(counter), &mut batch.samples);
            batch.packets += 1;
        }
        if let Some(end) = last_words {
            encode(packet::Body::Samples(end), &mut batch.samples);
            batch.packets += 1;
        }
        // Behind the samples, whose numbers say what is in the file: a file that is cut off in between has
        // none of them twice after `recover`.
        for half in wakeups {
            encode(half, &mut batch.samples);
            batch.packets += 1;
        }
        claim
    }

    /// Hands the batch to the sink: what the lifecycle has to say, new methods, new nodes, samples, in this
    /// order, so that a cut-off file holds no sample whose stack it does not know.
    fn flush(
        &mut self,
        mapping: &Mapping,
        sink: &mut dyn Sink,
        batch: &mut Batch,
    ) -> io::Result<()> {
        let (mut out, mut packets) = self.lifecycle.said();
        // Nodes are read first: the methods that they name are in the table by then.
        let mut nodes = Vec::new();
        let (step, node_packets) = self.nodes.encode_new(mapping, &mut nodes);
        let (methods, method_packets) = self.methods.encode_new(mapping, &mut out);
        out.append(&mut nodes);
        if out.is_empty() && batch.claims.is_empty() && batch.samples.is_empty() {
            return Ok(());
        }
        packets += method_packets + node_packets + batch.packets;
        out.extend_from_slice(&batch.samples);
        if self.compress {
            let mut packed = Vec::new();
            stackbeat_proto::stream::write_compressed(&out, 3, &mut packed);
            out = packed;
        }
        if !out.is_empty() {
            let stored = sink.append(&out, packets);
            self.flush_bytes = match stored {
                Ok(()) => (self.flush_bytes * 2).min(FLUSH_BYTES),
                Err(_) => 1,
            };
            stored?;
        }
        self.lifecycle.heard();
        self.suspended.stored();
        self.nodes.commit(step);
        self.methods.commit(methods);
        self.totals.flushes += 1;
        for claim in batch.claims.drain(..) {
            let d = &claim.drained;
            let end = d.first_record.wrapping_add(u64::from(d.records));
            self.lifecycle.stored(d.utid, end, &claim.counts());
            self.totals.samples += claim.samples;
            self.totals.stored += claim.stored;
            self.totals.damaged += claim.damaged;
            self.totals.bytes_drained += claim.bytes;
            buffer::stored(mapping, &claim.drained);
        }
        batch.samples.clear();
        batch.packets = 0;
        Ok(())
    }

    /// How full the pool is, 0 to 1, by a sample of it.
    pub(crate) fn fill(&self, mapping: &Mapping) -> f64 {
        let step = (mapping.buffers() / FILL_SAMPLE).max(1);
        let states = (0..mapping.buffers())
            .step_by(step as usize)
            .filter_map(|i| mapping.buffer(i))
            .map(|header| header.state.load(Ordering::Relaxed) as u32);
        let (mut all, mut taken) = (0, 0);
        for state in states {
            all += 1;
            taken += u32::from(state != buffer_state::FREE);
        }
        f64::from(taken) / f64::from(all.max(1))
    }

    /// Takes sub-buffers away from threads that have written nothing since they were last drained, so
    /// that sleeping threads do not keep the pool from those that run. `busy`: from all threads that have
    /// written anything. The next pass stores what they hold and frees them.
    pub(crate) fn revoke(&self, mapping: &Mapping, busy: bool) {
        for i in 0..mapping.buffers() {
            let Some(header) = mapping.buffer(i) else {
                continue;
            };
            let committed = header.committed.load(Ordering::Acquire);
            let is_drained = committed == header.drained.load(Ordering::Relaxed);
            if (is_drained || (busy && committed != 0))
                && header.state.load(Ordering::Relaxed) as u32 == buffer_state::WRITING
            {
                buffer::revoke(mapping, i);
            }
        }
    }

    /// Takes sub-buffers away from threads that have written nothing since the last call.
    pub(crate) fn revoke_idle(&mut self, mapping: &Mapping) {
        self.held.resize(mapping.buffers() as usize, (0, 0));
        for (i, held) in (0..).zip(&mut self.held) {
            let Some(header) = mapping.buffer(i) else {
                continue;
            };
            let committed = header.committed.load(Ordering::Acquire);
            let now = (header.uses.load(Ordering::Relaxed), committed);
            let is_idle = std::mem::replace(held, now) == now
                && committed == header.drained.load(Ordering::Relaxed);
            if is_idle && header.state.load(Ordering::Relaxed) as u32 == buffer_state::WRITING {
                buffer::revoke(mapping, i);
            }
        }
    }

    /// Makes room in the CallstackTable and in the table of methods.
    pub(crate) fn tend_nodes(&mut self, mapping: &Mapping) {
        nodes::extend(mapping);
        methods::extend(mapping);
        let live = registry::threads(mapping)
            .map(|(_, entry)| entry)
            .filter(|entry| !lifecycle::is_over(entry));
        self.nodes.roll_over(mapping, live);
    }
}

impl Claim {
    fn counts(&self) -> lifecycle::Counts {
        lifecycle::Counts {
            stored: self.stored,
            samples: self.samples,
            damaged: self.damaged,
        }
    }
}

#[cfg(test)]
mod tests;
