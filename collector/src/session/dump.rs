//! The flight recorder: writes what a session holds at one moment, or the last seconds of it, as a trace
//! of its own, while the session goes on.
//!
//! The drain stops for the moment it takes to copy the sub-buffers ([`Frozen::take`]); the rest happens
//! on another thread, from that copy and from what the session's own trace holds by then. A window that
//! begins in the middle is a trace like any other: totals of threads count from its begin.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use stackbeat_core::clock::Snapshot;
use stackbeat_core::layout::node_kind;
use stackbeat_core::mapping::Mapping;
use stackbeat_proto::columns::{self, Rusage, SampleRow};
use stackbeat_proto::nodes;
use stackbeat_proto::stream::PacketReader;
use stackbeat_proto::v1::{self, NodeKind, Summary, event, loss, packet, summary};

use crate::drain::{Drainer, clock_packet};
use crate::symbolize::{self, Query, Symbolizer};
use crate::writer::{Writer, encode};

/// Bytes of packets collected before they are written.
const FLUSH_BYTES: usize = 1 << 20;
const NODES_PER_PACKET: usize = 64 << 10;

/// What a session holds at one moment.
#[derive(Debug)]
pub struct Frozen {
    /// Its trace, and how much of it there was.
    trace: PathBuf,
    bytes: u64,
    /// What the trace does not have: samples by thread, events and counters.
    rows: Vec<(u32, Vec<SampleRow>)>,
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
    pub fn take(
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
        Ok(Frozen {
            trace: writer.path().to_path_buf(),
            bytes: writer.bytes(),
            rows,
            events,
            living: drainer.census.totals_of_living(mapping, &drainer.converter),
            now: drainer.take_snapshot(),
            unit_ns: drainer.unit_ns,
        })
    }
}

/// What to write.
#[derive(Clone, Debug)]
pub struct Window {
    pub output: PathBuf,
    pub overwrite: bool,
    /// Only this long before now; `None`: everything.
    pub last_ns: Option<u64>,
    pub symbolize: bool,
    /// Maps of compiled code that are older belong to other processes.
    pub jit_maps_not_before: SystemTime,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
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
pub fn write(frozen: Frozen, window: &Window) -> io::Result<Written> {
    let same = |a: &Path, b: &Path| a.canonicalize().ok() == b.canonicalize().ok();
    if window.output.exists() && same(&window.output, &frozen.trace) {
        return Err(io::Error::other("is the session's own trace"));
    }
    let now_ns = frozen.now.monotonic_ns;
    let from_ns = window.last_ns.map_or(0, |ns| now_ns.saturating_sub(ns));
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
        written: Written::default(),
        first_ns: now_ns,
        unit_ns: frozen.unit_ns,
    };
    content.begin(from_ns, &mut out)?;
    each_packet(&frozen, |packet| match packet {
        packet::Body::Samples(batch) => dump.batch(&batch, &mut out),
        packet::Body::Counters(batch) => dump.counters(batch, &mut out),
        packet::Body::Event(event) => dump.event(event, &mut out),
        body => dump.wakeup(body, &mut out),
    })?;
    for (uid, rows) in &frozen.rows {
        dump.take(*uid, rows, &mut out)?;
    }
    for body in frozen.events {
        match body {
            packet::Body::Event(event) => dump.event(event, &mut out)?,
            packet::Body::Counters(batch) => dump.counters(batch, &mut out)?,
            body => dump.wakeup(body, &mut out)?,
        }
    }
    for (uid, waits) in std::mem::take(&mut content.waits) {
        dump.waits(uid, waits, &mut out)?;
    }
    let queries = content.nodes(&dump.used, &mut out)?;
    for thread in dump.threads.values() {
        out.say(packet::Body::Thread(thread.packet.clone()))?;
        if let Some(end) = thread.end() {
            out.say(packet::Body::ThreadEnd(end))?;
        }
    }
    if window.symbolize {
        let mut symbolizer = Symbolizer::new(symbolize::Options {
            jit_maps_not_before: Some(window.jit_maps_not_before),
            ..Default::default()
        });
        content.add_names(&mut symbolizer, &queries, &mut out)?;
    }
    dump.written.covered_ns = now_ns - dump.first_ns.min(now_ns);
    dump.written.threads = dump.threads.len() as u64;
    out.say(packet::Body::Footer(v1::Footer {
        end_ns: now_ns,
        packets: out.writer.packets() + out.packets + 1,
        samples: dump.written.samples,
        end: Some(clock_packet(&frozen.now)),
        figures: Vec::new(),
    }))?;
    out.flush()?;
    out.writer.update_summary(&Summary {
        outcome: summary::Outcome::Finished.into(),
        records_written: dump.written.samples,
        records_stored: dump.written.samples,
        ..Default::default()
    })?;
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

/// What the session's trace says besides samples.
#[derive(Default)]
struct Content {
    header: v1::SessionHeader,
    clocks: Vec<v1::ClockSnapshot>,
    processes: BTreeMap<u32, v1::Process>,
    process_ends: BTreeMap<u32, v1::ProcessEnd>,
    threads: BTreeMap<u32, v1::Thread>,
    ends: BTreeMap<u32, v1::ThreadEnd>,
    modules: BTreeMap<(u32, u64, u32), v1::Module>,
    /// By id: parent, address, kind.
    nodes: HashMap<u32, (u32, u64, u32)>,
    losses: BTreeMap<(u32, i32), v1::Loss>,
    /// The settings in force when the window begins, by kind and name.
    settings: BTreeMap<(i32, String), v1::Event>,
    /// By thread, of one wait each.
    waits: HashMap<u32, Vec<v1::Waits>>,
}

impl Content {
    fn read(frozen: &Frozen, from_ns: u64) -> io::Result<Content> {
        let mut content = Content::default();
        each_packet(frozen, |packet| {
            content.take(packet, from_ns);
            Ok(())
        })?;
        Ok(content)
    }

    fn take(&mut self, packet: packet::Body, from_ns: u64) {
        match packet {
            packet::Body::Header(header) => self.header = header,
            packet::Body::Clock(clock) => self.clocks.push(clock),
            packet::Body::Process(p) => drop(self.processes.insert(p.uid, p)),
            packet::Body::ProcessEnd(end) => drop(self.process_ends.insert(end.uid, end)),
            packet::Body::Thread(t) => drop(self.threads.insert(t.uid, t)),
            packet::Body::ThreadEnd(end) => drop(self.ends.insert(end.uid, end)),
            packet::Body::Module(m) => {
                self.modules.insert((m.process_uid, m.start, m.epoch), m);
            }
            packet::Body::Loss(loss) => {
                self.losses.insert((loss.thread_uid, loss.cause), loss);
            }
            packet::Body::Nodes(nodes) => self.take_nodes(&nodes),
            packet::Body::Waits(waits) => self.take_waits(&waits, from_ns),
            packet::Body::Event(event) if is_setting(&event) && event.time_ns < from_ns => {
                self.settings
                    .insert((event.kind, event.name.clone()), event);
            }
            _ => {}
        }
    }

    fn take_nodes(&mut self, columns: &v1::CallstackNodes) {
        // The drain of this session wrote them: columns that do not fit are nobody's.
        for node in nodes::nodes(columns).into_iter().flatten() {
            self.nodes
                .insert(node.id, (node.parent, node.address, node.kind));
        }
    }

    /// Each thread's waits that reach into the window, as far as their begins tell.
    fn take_waits(&mut self, packet: &v1::Waits, from_ns: u64) {
        for wait in &packet.wait {
            let waits = self.waits.entry(wait.thread_uid).or_default();
            let is_over = |seen: &v1::Waits| {
                let begin_ns = seen.wait[0].begin_ns;
                begin_ns == wait.begin_ns || begin_ns.max(wait.begin_ns) < from_ns
            };
            waits.retain(|seen| !is_over(seen));
            waits.push(v1::Waits {
                wait: vec![*wait],
                ..*packet
            });
        }
    }

    /// The header of a trace that begins with the window.
    fn header(&self, from_ns: u64, last: &Snapshot) -> v1::SessionHeader {
        let mut header = self.header.clone();
        if let Some(start) = &mut header.start
            && from_ns > start.monotonic_ns
            && last.monotonic_ns > start.monotonic_ns
        {
            let later = from_ns - start.monotonic_ns;
            let wide = u128::from(last.cycles - start.cycles) * u128::from(later)
                / u128::from(last.monotonic_ns - start.monotonic_ns);
            start.cycles += wide as u64;
            start.monotonic_ns = from_ns;
            start.boottime_ns += later;
            start.realtime_ns += later;
        }
        header
    }

    /// Threads that live in the window.
    fn threads(&self, frozen: &Frozen, from_ns: u64) -> BTreeMap<u32, Thread> {
        let living: HashMap<u32, &(v1::ThreadEnd, u64)> =
            frozen.living.iter().map(|l| (l.0.uid, l)).collect();
        let mut threads = BTreeMap::new();
        for (uid, packet) in &self.threads {
            let key = (*uid, loss::Cause::Overwritten as i32);
            let ended = self.ends.get(uid);
            let (end, overwritten) = match (ended, living.get(uid)) {
                (Some(end), _) => (Some(*end), self.losses.get(&key).map_or(0, |l| l.count)),
                (None, Some((end, overwritten))) => (Some(*end), *overwritten),
                (None, None) => (None, 0),
            };
            if end.is_some_and(|end| end.end_ns < from_ns) {
                continue;
            }
            let is_whole = packet.start_ns >= from_ns && overwritten == 0;
            let thread = Thread {
                packet: v1::Thread {
                    start_ns: packet.start_ns.max(from_ns),
                    ..packet.clone()
                },
                end,
                base: is_whole.then(SampleRow::default),
                base_rusage: is_whole.then(Rusage::default),
                rows: 0,
            };
            threads.insert(*uid, thread);
        }
        threads
    }

    /// Everything that stands before the samples.
    fn begin(&self, from_ns: u64, out: &mut Out) -> io::Result<()> {
        let is_over =
            |uid: u32| (self.process_ends.get(&uid)).is_some_and(|end| end.end_ns < from_ns);
        for clock in self.clocks.iter().filter(|c| c.monotonic_ns >= from_ns) {
            out.say(packet::Body::Clock(*clock))?;
        }
        for process in self.processes.values().filter(|p| !is_over(p.uid)) {
            out.say(packet::Body::Process(v1::Process {
                start_ns: process.start_ns.max(from_ns),
                ..process.clone()
            }))?;
        }
        for end in self.process_ends.values().filter(|p| !is_over(p.uid)) {
            out.say(packet::Body::ProcessEnd(*end))?;
        }
        let modules = self.modules.values();
        for module in modules.filter(|m| !is_over(m.process_uid)) {
            out.say(packet::Body::Module(module.clone()))?;
        }
        for event in self.settings.values() {
            out.say(packet::Body::Event(v1::Event {
                time_ns: from_ns,
                ..event.clone()
            }))?;
        }
        // What the ring forgot by then is no loss of what is written here.
        let overwritten = loss::Cause::Overwritten as i32;
        for loss in self.losses.values().filter(|l| l.cause != overwritten) {
            out.say(packet::Body::Loss(*loss))?;
        }
        Ok(())
    }

    /// Writes these nodes and those above them; gives what wants a name.
    fn nodes(&self, used: &BTreeSet<u32>, out: &mut Out) -> io::Result<Vec<Query>> {
        let mut wanted = BTreeSet::new();
        for id in used {
            let mut at = *id;
            while wanted.insert(at) {
                match self.nodes.get(&at) {
                    Some((parent, ..)) if *parent != 0 => at = *parent,
                    _ => break,
                }
            }
        }
        let mut queries = BTreeSet::new();
        let mut columns = v1::CallstackNodes::default();
        let (mut last_id, mut last_address) = (0i64, 0i64);
        // A parent has a lower id than its children.
        for id in wanted {
            if columns.id.len() == NODES_PER_PACKET {
                out.say(packet::Body::Nodes(std::mem::take(&mut columns)))?;
                (last_id, last_address) = (0, 0);
            }
            let Some((parent, address, kind)) = self.nodes.get(&id).copied() else {
                continue;
            };
            columns.id.push(i64::from(id) - last_id);
            last_id = id.into();
            columns.parent.push(match parent {
                0 => 0,
                parent => i64::from(id) - i64::from(parent),
            });
            columns
                .address
                .push((address as i64).wrapping_sub(last_address));
            last_address = address as i64;
            columns.kind_runs.extend([1, kind]);
            if matches!(kind, node_kind::NATIVE | node_kind::LEAF_PC) {
                let root = self.root(id);
                queries.insert(((root >> 32) as u32, root as u32, address, kind));
            }
        }
        out.say(packet::Body::Nodes(columns))?;
        let query = |(process_uid, epoch, address, kind)| Query {
            process_uid,
            epoch,
            address,
            kind: match kind {
                node_kind::LEAF_PC => NodeKind::LeafPc,
                _ => NodeKind::Native,
            },
        };
        Ok(queries.into_iter().map(query).collect())
    }

    /// The address field of a node's root: process uid and epoch.
    fn root(&self, id: u32) -> u64 {
        let mut at = id;
        while let Some((parent, address, kind)) = self.nodes.get(&at) {
            if *kind == node_kind::ROOT || *parent == 0 || *parent >= at {
                return *address;
            }
            at = *parent;
        }
        0
    }

    fn add_names(
        &self,
        symbolizer: &mut Symbolizer,
        queries: &[Query],
        out: &mut Out,
    ) -> io::Result<()> {
        for process in self.processes.values() {
            symbolizer.add_process(process.uid, process.pid);
        }
        for module in self.modules.values() {
            symbolizer.add_module(module);
        }
        let mut result = Ok(());
        symbolizer.symbolize(queries, &mut |_| {}, &mut |symbols| {
            if result.is_ok() {
                result = out.say(packet::Body::Symbols(symbols));
            }
        });
        result
    }
}

fn is_setting(event: &v1::Event) -> bool {
    matches!(
        event.kind(),
        event::Kind::IntervalChanged | event::Kind::ConfigChanged
    )
}

/// A thread in the window.
struct Thread {
    packet: v1::Thread,
    end: Option<v1::ThreadEnd>,
    /// Its totals when the window begins; `None` until they are known.
    base: Option<SampleRow>,
    base_rusage: Option<Rusage>,
    rows: u64,
}

impl Thread {
    /// Its totals at the end, counted from the begin of the window.
    fn end(&self) -> Option<v1::ThreadEnd> {
        let end = self.end?;
        let base = self.base.unwrap_or(SampleRow {
            cpu_ns: end.cpu_ns,
            allocations: end.allocations,
            allocated_bytes: end.allocated_bytes,
            frees: end.frees,
            ..Default::default()
        });
        let none = Rusage {
            minor_faults: end.minor_faults,
            major_faults: end.major_faults,
            voluntary_switches: end.voluntary_switches,
            involuntary_switches: end.involuntary_switches,
        };
        let usage = self.base_rusage.unwrap_or(none);
        let less = u64::saturating_sub;
        Some(v1::ThreadEnd {
            cpu_ns: less(end.cpu_ns, base.cpu_ns),
            allocations: less(end.allocations, base.allocations),
            allocated_bytes: less(end.allocated_bytes, base.allocated_bytes),
            frees: less(end.frees, base.frees),
            records_written: self.rows,
            minor_faults: less(end.minor_faults, usage.minor_faults),
            major_faults: less(end.major_faults, usage.major_faults),
            voluntary_switches: less(end.voluntary_switches, usage.voluntary_switches),
            involuntary_switches: less(end.involuntary_switches, usage.involuntary_switches),
            ..end
        })
    }

    /// A row with totals that count from the begin of the window; `None` for one before it.
    fn in_window(&mut self, row: &SampleRow, from_ns: u64) -> Option<SampleRow> {
        if row.time_ns < from_ns {
            self.base = Some(*row);
            self.base_rusage = row.rusage.or(self.base_rusage);
            return None;
        }
        let base = *self.base.get_or_insert_with(|| {
            // Nothing is known of the time before.
            let begin = row.time_ns - row.duration_ns.min(row.time_ns);
            self.packet.start_ns = begin.max(self.packet.start_ns);
            *row
        });
        let less = u64::saturating_sub;
        let rusage = row.rusage.map(|usage| {
            let base = *self.base_rusage.get_or_insert(usage);
            Rusage {
                minor_faults: less(usage.minor_faults, base.minor_faults),
                major_faults: less(usage.major_faults, base.major_faults),
                voluntary_switches: less(usage.voluntary_switches, base.voluntary_switches),
                involuntary_switches: less(usage.involuntary_switches, base.involuntary_switches),
            }
        });
        self.rows += 1;
        Some(SampleRow {
            cpu_ns: less(row.cpu_ns, base.cpu_ns),
            allocations: less(row.allocations, base.allocations),
            allocated_bytes: less(row.allocated_bytes, base.allocated_bytes),
            frees: less(row.frees, base.frees),
            rusage,
            ..*row
        })
    }
}

/// The state of writing a window.
struct Dump {
    from_ns: u64,
    threads: BTreeMap<u32, Thread>,
    /// Nodes that samples refer to.
    used: BTreeSet<u32>,
    written: Written,
    first_ns: u64,
    unit_ns: u32,
}

impl Dump {
    fn batch(&mut self, batch: &v1::SampleBatch, out: &mut Out) -> io::Result<()> {
        let rows = columns::decode(batch).map_err(io::Error::other)?;
        self.take(batch.thread_uid, &rows, out)
    }

    fn take(&mut self, uid: u32, rows: &[SampleRow], out: &mut Out) -> io::Result<()> {
        let Some(thread) = self.threads.get_mut(&uid) else {
            return Ok(());
        };
        let from_ns = self.from_ns;
        let rows: Vec<SampleRow> = rows
            .iter()
            .filter_map(|row| thread.in_window(row, from_ns))
            .collect();
        let Some(first) = rows.first() else {
            return Ok(());
        };
        self.first_ns = self.first_ns.min(first.time_ns);
        self.written.samples += rows.len() as u64;
        self.used.extend(rows.iter().map(|row| row.node));
        out.say(packet::Body::Samples(columns::encode(
            uid,
            &rows,
            self.unit_ns,
        )))
    }

    /// A wait that began before the window and was still going on begins with it.
    fn waits(&mut self, uid: u32, waits: Vec<v1::Waits>, out: &mut Out) -> io::Result<()> {
        let Some(thread) = self.threads.get(&uid) else {
            return Ok(());
        };
        let last_before_ns = thread.base.map_or(0, |row| row.time_ns);
        for mut packet in waits {
            let wait = &mut packet.wait[0];
            let is_over =
                wait.begin_ns < last_before_ns || (1..self.from_ns).contains(&wait.end_ns);
            if wait.begin_ns < self.from_ns && is_over {
                continue;
            }
            wait.begin_ns = wait.begin_ns.max(self.from_ns);
            self.used.insert(packet.node);
            out.say(packet::Body::Waits(packet))?;
        }
        Ok(())
    }

    fn event(&mut self, event: v1::Event, out: &mut Out) -> io::Result<()> {
        if event.time_ns < self.from_ns {
            return Ok(());
        }
        if event.node != 0 {
            self.used.insert(event.node);
        }
        out.say(packet::Body::Event(event))
    }

    /// A long wait, a wake or a deadlock; nothing else is taken.
    fn wakeup(&mut self, body: packet::Body, out: &mut Out) -> io::Result<()> {
        let (time_ns, node) = match &body {
            packet::Body::LongWait(wait) => (wait.end_ns, wait.node),
            packet::Body::Wake(wake) => (wake.time_ns, wake.node),
            packet::Body::Deadlock(deadlock) => (deadlock.time_ns, 0),
            _ => return Ok(()),
        };
        if time_ns < self.from_ns {
            return Ok(());
        }
        self.used.extend((node != 0).then_some(node));
        out.say(body)
    }

    fn counters(&self, mut batch: v1::CounterBatch, out: &mut Out) -> io::Result<()> {
        let (mut time, mut value) = (0i64, 0i64);
        let absolute = batch.time.iter().zip(&batch.value).map(|(t, v)| {
            time = time.wrapping_add(*t);
            value = value.wrapping_add(*v);
            (time, value)
        });
        let kept: Vec<_> = absolute
            .filter(|(time, _)| *time as u64 >= self.from_ns)
            .collect();
        if kept.is_empty() {
            return Ok(());
        }
        let (mut time, mut value) = (0i64, 0i64);
        (batch.time, batch.value) = kept
            .into_iter()
            .map(|(t, v)| {
                let deltas = (t.wrapping_sub(time), v.wrapping_sub(value));
                (time, value) = (t, v);
                deltas
            })
            .unzip();
        out.say(packet::Body::Counters(batch))
    }
}
