//! What a partial trace already holds: read once, so that the mapping's share can be joined to it
//! without doubles.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use stackbeat_core::clock::Converter;
use stackbeat_core::cycles::Cycles;
use stackbeat_core::ids::{Upid, Utid};
use stackbeat_proto::columns;
use stackbeat_proto::stream::PacketReader;
use stackbeat_proto::v1::{self, packet};
use stackbeat_symbolize::perf_map::Method;
use stackbeat_symbolize::python::Unqualified;

use crate::drain::generated_code::{Named, methods_of_code};
use crate::drain::lifecycle::{Seed, SeedThread};
use crate::drain::nodes::SeedNode;

/// A partial trace.
#[derive(Debug, Default)]
pub(super) struct Partial {
    pub header: Option<v1::SessionHeader>,
    /// Where the header's packet ends and where the last complete packet ends.
    header_end: u64,
    good_end: u64,
    pub clocks: Vec<v1::ClockSnapshot>,
    pub seed: Seed,
    pub nodes: HashMap<u32, SeedNode>,
    /// Numbers of methods, and those of generated code.
    pub methods: HashSet<u32>,
    pub described: HashMap<Method, u32>,
    /// Methods that want qualified names.
    pub unqualified: Unqualified,
    /// Addresses of generated code that have names.
    pub named: HashSet<Named>,
    /// Packets that could not be read.
    pub damaged: u64,
    pub packets: u64,
    pub samples: u64,
    pub is_finished: bool,
}

impl Partial {
    /// Reads a trace as far as it goes.
    pub(super) fn read(path: &Path) -> io::Result<Partial> {
        let mut partial = Partial::default();
        let mut reader = PacketReader::new(File::open(path)?);
        let mut events = HashSet::new();
        loop {
            let next = reader.next();
            let good_end = reader.good_end();
            match next {
                None => break,
                Some(Ok((_, packet))) => {
                    partial.packets += 1;
                    if let Some(body) = packet.body {
                        partial.take(body, good_end, &mut events);
                    }
                }
                Some(Err(error)) if error.is_fatal() => break,
                Some(Err(_)) => partial.damaged += 1,
            }
        }
        partial.good_end = reader.good_end();
        partial.seed.events = events;
        Ok(partial)
    }

    fn take(&mut self, body: packet::Body, end: u64, events: &mut HashSet<(Utid, u64, String)>) {
        match body {
            packet::Body::Header(header) => {
                if self.header.is_none() {
                    self.clocks.extend(header.start);
                    self.header = Some(header);
                    self.header_end = end;
                }
            }
            packet::Body::Process(process) => {
                self.seed.processes.insert(Upid(process.upid), process);
            }
            packet::Body::Thread(thread) => {
                let utid = thread.utid;
                self.seed.thread(Utid(utid)).packet = thread;
            }
            packet::Body::Module(module) => {
                self.seed.modules.insert(&module);
            }
            packet::Body::Nodes(nodes) => self.take_nodes(&nodes),
            packet::Body::Methods(packet) => {
                let numbers = packet.methods.iter().map(|method| method.number);
                self.methods.extend(numbers);
                self.described.extend(methods_of_code(&packet));
                for method in &packet.methods {
                    self.unqualified.take_of(method, &packet.strings);
                }
            }
            packet::Body::Symbols(symbols) => {
                let of_code = symbols.addresses.iter().filter(|entry| entry.method != 0);
                self.named.extend(of_code.map(|entry| {
                    let upid = Upid(entry.upid);
                    (upid, entry.epoch, entry.address, entry.kind())
                }));
            }
            packet::Body::Samples(batch) => self.take_samples(&batch),
            packet::Body::Clock(clock) => self.clocks.push(clock),
            packet::Body::Event(event) => {
                events.insert((Utid(event.utid), event.time_ns, event.name));
            }
            packet::Body::Drops(dropped) => {
                let thread = self.seed.thread(Utid(dropped.utid));
                if let Some(count) = thread.drops.get_mut(dropped.cause as usize) {
                    *count = dropped.count;
                }
            }
            packet::Body::ThreadEnd(end) => {
                let utid = end.utid;
                self.seed.thread(Utid(utid)).end = Some(end);
            }
            packet::Body::ProcessEnd(end) => {
                self.seed.ended_processes.insert(Upid(end.upid));
            }
            packet::Body::Footer(_) => self.is_finished = true,
            packet::Body::Counters(_)
            | packet::Body::LongWait(_)
            | packet::Body::Wake(_)
            | packet::Body::Deadlock(_)
            | packet::Body::JitMap(_)
            | packet::Body::Waits(_)
            | packet::Body::CallCounts(_)
            | packet::Body::Unrecorded(_)
            | packet::Body::CompressedPackets(_) => {}
        }
    }

    fn take_samples(&mut self, batch: &v1::SampleBatch) {
        let thread: &mut SeedThread = self.seed.thread(Utid(batch.utid));
        let Ok(rows) = columns::decode(batch) else {
            self.damaged += 1;
            return;
        };
        let next = match rows.last() {
            Some(row) => {
                thread.cpu_ns = thread.cpu_ns.max(row.cpu_ns);
                thread.last_ns = thread.last_ns.max(row.time_ns);
                if row.rusage.is_some() {
                    thread.rusage = row.rusage;
                }
                row.record.wrapping_add(1)
            }
            // Says that records which were no samples are in the trace up to here.
            None => batch.first_record,
        };
        // Samples by suspension are no records.
        if !batch.by_suspension {
            thread.next_record = thread.next_record.max(next);
            thread.stored += rows.len() as u64 + u64::from(batch.other_records);
        }
        self.samples += rows.len() as u64;
    }

    fn take_nodes(&mut self, nodes: &v1::CallstackNodes) {
        for node in stackbeat_proto::nodes::nodes(nodes).into_iter().flatten() {
            let root = if node.kind == v1::NodeKind::Root as u32 {
                Some(node.address)
            } else {
                self.nodes.get(&node.parent).map(|parent| parent.root)
            };
            if let Some(root) = root {
                let seed = SeedNode {
                    address: node.address,
                    kind: node.kind,
                    root,
                };
                self.nodes.insert(node.id, seed);
            }
        }
    }

    /// Adds this trace's readings of the clocks.
    pub(super) fn add_clocks(&self, converter: &mut Converter) {
        for clock in &self.clocks {
            converter.add(Cycles(clock.cycles), clock.monotonic_ns);
        }
    }

    /// Copies everything after the header, as it is.
    pub(super) fn copy_packets(&self, path: &Path, to: &mut impl Write) -> io::Result<u64> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(self.header_end))?;
        let length = self.good_end.saturating_sub(self.header_end);
        io::copy(&mut file.take(length), to)
    }
}
