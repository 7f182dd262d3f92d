//! What a session's trace says besides samples, as much of it as a window needs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::rc::Rc;

use stackbeat_core::clock::Snapshot;
use stackbeat_core::ids::{Upid, Utid};
use stackbeat_core::shm::callstack::process_of_root;
use stackbeat_core::shm::layout::node_kind;
use stackbeat_proto::columns::{Rusage, SampleRow};
use stackbeat_proto::nodes;
use stackbeat_proto::v1::symbols::AddressSymbol;
use stackbeat_proto::v1::{self, NodeKind, drops, event, packet};

use super::window::Thread;
use super::{Frozen, Out, each_packet};
use crate::drain::generated_code::{Named, in_sources, methods_of_code};
use crate::drain::methods::{Batch, qualified};
use stackbeat_symbolize::python::{Unqualified, program_began_at};
use stackbeat_symbolize::{Modules, Query, SourceMaps, Symbolizer, Wanted};

const NODES_PER_PACKET: usize = 64 << 10;

/// What the session's trace says besides samples.
#[derive(Default)]
pub(super) struct Content {
    header: v1::SessionHeader,
    clocks: Vec<v1::ClockSnapshot>,
    processes: BTreeMap<Upid, v1::Process>,
    process_ends: BTreeMap<Upid, v1::ProcessEnd>,
    threads: BTreeMap<Utid, v1::Thread>,
    ends: BTreeMap<Utid, v1::ThreadEnd>,
    modules: BTreeMap<(Upid, u64, u32), v1::Module>,
    /// By id: parent, address, kind.
    nodes: HashMap<u32, (u32, u64, u32)>,
    /// By number: the method, and the strings of its packet.
    methods: BTreeMap<u32, (v1::methods::Method, Rc<Vec<String>>)>,
    drops: BTreeMap<(Utid, i32), v1::Drops>,
    /// Names of generated code, in order of time.
    of_code: HashMap<Named, Vec<AddressSymbol>>,
    /// The settings in force when the window begins, by kind, process, thread and name.
    settings: BTreeMap<(i32, Upid, Utid, String), v1::Event>,
    /// By thread, of one wait each.
    pub(super) waits: HashMap<Utid, Vec<v1::Waits>>,
}

impl Content {
    pub(super) fn read(frozen: &Frozen, from_ns: u64) -> io::Result<Content> {
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
            packet::Body::Process(p) => drop(self.processes.insert(Upid(p.upid), p)),
            packet::Body::ProcessEnd(end) => drop(self.process_ends.insert(Upid(end.upid), end)),
            packet::Body::Thread(t) => drop(self.threads.insert(Utid(t.utid), t)),
            packet::Body::ThreadEnd(end) => drop(self.ends.insert(Utid(end.utid), end)),
            packet::Body::Module(m) => {
                self.modules.insert((Upid(m.upid), m.start, m.epoch), m);
            }
            packet::Body::Drops(dropped) => {
                self.drops
                    .insert((Utid(dropped.utid), dropped.cause), dropped);
            }
            packet::Body::Nodes(nodes) => self.take_nodes(&nodes),
            packet::Body::Methods(packet) => {
                let strings = Rc::new(packet.strings);
                for method in packet.methods {
                    let described = (method, strings.clone());
                    self.methods.entry(described.0.number).or_insert(described);
                }
            }
            packet::Body::Symbols(symbols) => {
                for entry in symbols.addresses {
                    let named = (Upid(entry.upid), entry.epoch, entry.address, entry.kind());
                    self.of_code.entry(named).or_default().push(entry);
                }
            }
            packet::Body::Waits(waits) => self.take_waits(&waits, from_ns),
            packet::Body::Event(event) if is_setting(&event) && event.time_ns < from_ns => {
                let name = event.name.clone();
                let key = (event.kind, Upid(event.upid), Utid(event.utid), name);
                self.settings.insert(key, event);
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
            let waits = self.waits.entry(Utid(wait.utid)).or_default();
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
    pub(super) fn header(&self, from_ns: u64, last: &Snapshot) -> v1::SessionHeader {
        let mut header = self.header.clone();
        if let Some(config) = &mut header.config {
            config.main_interval_ns = match self.interval_ns("main threads") {
                Some(ns) => ns,
                // That of the others.
                None if config.main_interval_ns == 0 => config.interval_ns,
                None => config.main_interval_ns,
            };
            config.interval_ns = self.interval_ns("threads").unwrap_or(config.interval_ns);
        }
        if let Some(start) = &mut header.start
            && from_ns > start.monotonic_ns
            && last.monotonic_ns > start.monotonic_ns
        {
            let later = from_ns - start.monotonic_ns;
            let wide = u128::from(last.cycles.0 - start.cycles) * u128::from(later)
                / u128::from(last.monotonic_ns - start.monotonic_ns);
            start.cycles += wide as u64;
            start.monotonic_ns = from_ns;
            start.boottime_ns += later;
            start.realtime_ns += later;
        }
        header
    }

    /// The interval of all threads of a kind when the window begins, if it had been changed by then.
    fn interval_ns(&self, name: &str) -> Option<u64> {
        let kind = event::Kind::IntervalChanged as i32;
        let key = (kind, Upid(0), Utid(0), name.to_owned());
        self.settings.get(&key)?.value.try_into().ok()
    }

    /// Threads that live in the window.
    pub(super) fn threads(&self, frozen: &Frozen, from_ns: u64) -> BTreeMap<Utid, Thread> {
        let living: HashMap<Utid, &(v1::ThreadEnd, u64)> =
            frozen.living.iter().map(|l| (Utid(l.0.utid), l)).collect();
        let mut threads = BTreeMap::new();
        for (utid, packet) in &self.threads {
            let key = (*utid, drops::Cause::Overwritten as i32);
            let ended = self.ends.get(utid);
            let (end, overwritten) = match (ended, living.get(utid)) {
                (Some(end), _) => (Some(end), self.drops.get(&key).map_or(0, |l| l.count)),
                (None, Some((end, overwritten))) => (Some(end), *overwritten),
                (None, None) => (None, 0),
            };
            if end.is_some_and(|end| end.end_ns < from_ns) {
                continue;
            }
            let is_whole = packet.start_ns >= from_ns && overwritten == 0;
            let thread = Thread {
                packet: v1::Thread {
                    start_ns: packet.start_ns.max(from_ns),
                    cpu_before_ns: match is_whole {
                        true => packet.cpu_before_ns,
                        false => 0,
                    },
                    ..packet.clone()
                },
                end: end.cloned(),
                base: is_whole.then(SampleRow::default),
                base_rusage: is_whole.then(Rusage::default),
                rows: 0,
            };
            threads.insert(*utid, thread);
        }
        threads
    }

    /// Everything that stands before the samples.
    pub(super) fn begin(
        &self,
        from_ns: u64,
        threads: &BTreeMap<Utid, Thread>,
        out: &mut Out,
    ) -> io::Result<()> {
        let is_over =
            |upid: Upid| (self.process_ends.get(&upid)).is_some_and(|end| end.end_ns < from_ns);
        for clock in self.clocks.iter().filter(|c| c.monotonic_ns >= from_ns) {
            out.say(packet::Body::Clock(*clock))?;
        }
        for process in self.processes.values().filter(|p| !is_over(Upid(p.upid))) {
            out.say(packet::Body::Process(v1::Process {
                start_ns: process.start_ns.max(from_ns),
                ..process.clone()
            }))?;
        }
        for end in self
            .process_ends
            .values()
            .filter(|p| !is_over(Upid(p.upid)))
        {
            out.say(packet::Body::ProcessEnd(*end))?;
        }
        let modules = self.modules.values();
        for module in modules.filter(|m| !is_over(Upid(m.upid))) {
            out.say(packet::Body::Module(module.clone()))?;
        }
        // The intervals of all threads are in the header.
        let is_own =
            |e: &&v1::Event| e.kind() != event::Kind::IntervalChanged || (e.upid, e.utid) != (0, 0);
        for event in self.settings.values().filter(is_own) {
            out.say(packet::Body::Event(v1::Event {
                time_ns: from_ns,
                ..event.clone()
            }))?;
        }
        // What the ring forgot by then is no loss of what is written here, nor what threads lost that ended
        // before.
        let overwritten = drops::Cause::Overwritten as i32;
        let is_here = |utid: Utid| utid == Utid(0) || threads.contains_key(&utid);
        let drops = self.drops.values();
        for dropped in drops.filter(|l| l.cause != overwritten && is_here(Utid(l.utid))) {
            out.say(packet::Body::Drops(*dropped))?;
        }
        Ok(())
    }

    /// Writes these nodes and those above them, and the methods that they name; gives what wants a name.
    pub(super) fn nodes(&self, used: &BTreeSet<u32>, out: &mut Out) -> io::Result<Vec<Query>> {
        let wanted = self.with_outer(used);
        let queries = self.queries(&wanted);
        self.write_methods(&wanted, &queries, out)?;
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
        }
        out.say(packet::Body::Nodes(columns))?;
        let addresses: Vec<AddressSymbol> = self.names_of_code(&queries).cloned().collect();
        for addresses in addresses.chunks(NODES_PER_PACKET) {
            out.say(packet::Body::Symbols(v1::Symbols {
                addresses: addresses.to_vec(),
                ..v1::Symbols::default()
            }))?;
        }
        Ok(queries)
    }

    /// These nodes and those above them.
    fn with_outer(&self, used: &BTreeSet<u32>) -> BTreeSet<u32> {
        let mut found = BTreeSet::new();
        for id in used {
            let mut at = *id;
            while found.insert(at) {
                match self.nodes.get(&at) {
                    Some((parent, ..)) if *parent != 0 => at = *parent,
                    _ => break,
                }
            }
        }
        found
    }

    /// The numbers of the methods that these nodes name.
    fn methods_of(&self, nodes: &BTreeSet<u32>) -> impl Iterator<Item = u32> {
        let nodes = nodes.iter().filter_map(|id| self.nodes.get(id));
        nodes
            .filter(|(_, _, kind)| node_kind::is_managed(*kind))
            .map(|(_, address, _)| (address >> 32) as u32)
    }

    /// What of these nodes wants a name.
    fn queries(&self, nodes: &BTreeSet<u32>) -> Vec<Query> {
        let mut queries = BTreeSet::new();
        for id in nodes {
            if let Some((_, address, kind)) = self.nodes.get(id).copied()
                && matches!(
                    kind,
                    node_kind::NATIVE | node_kind::LEAF_PC | node_kind::AWAITING
                )
            {
                let is_exact = kind != node_kind::NATIVE;
                queries.insert((process_of_root(self.root(*id)), address, is_exact));
            }
        }
        let query = |((upid, epoch), address, is_exact)| Query {
            upid,
            epoch,
            address,
            kind: match is_exact {
                true => NodeKind::LeafPc,
                false => NodeKind::Native,
            },
        };
        queries.into_iter().map(query).collect()
    }

    /// The names of those of these that lie in generated code.
    fn names_of_code(&self, queries: &[Query]) -> impl Iterator<Item = &AddressSymbol> {
        let named = |query: &Query| (query.upid, query.epoch, query.address, query.kind);
        queries
            .iter()
            .filter_map(move |query| self.of_code.get(&named(query)))
            .flatten()
    }

    /// Writes the methods that these nodes and names of code name.
    fn write_methods(
        &self,
        nodes: &BTreeSet<u32>,
        queries: &[Query],
        out: &mut Out,
    ) -> io::Result<()> {
        let of_nodes = self.methods_of(nodes);
        let of_code = self.names_of_code(queries).map(|entry| entry.method);
        let numbers: BTreeSet<u32> = of_nodes.chain(of_code).collect();
        let mut batch = Batch::default();
        for (method, strings) in numbers.iter().filter_map(|number| self.methods.get(number)) {
            batch.add(method, strings);
            if let Some(full) = batch.take_full() {
                out.say(packet::Body::Methods(full))?;
            }
        }
        match batch.take_rest() {
            Some(rest) => out.say(packet::Body::Methods(rest)),
            None => Ok(()),
        }
    }

    /// Writes the qualified names of methods that had none.
    pub(super) fn write_qualified(&self, used: &BTreeSet<u32>, out: &mut Out) -> io::Result<()> {
        let nodes = self.with_outer(used);
        let numbers: BTreeSet<u32> = self.methods_of(&nodes).collect();
        let mut unqualified = Unqualified::new(program_began_at(&self.header));
        for (method, strings) in numbers.iter().filter_map(|number| self.methods.get(number)) {
            unqualified.take_of(method, strings);
        }
        for packet in qualified(&unqualified) {
            out.say(packet::Body::Methods(packet))?;
        }
        Ok(())
    }

    /// Writes where the sources are of the methods that names of code name.
    pub(super) fn write_sources(
        &self,
        queries: &[Query],
        maps: &dyn SourceMaps,
        out: &mut Out,
    ) -> io::Result<()> {
        let of_code = self.names_of_code(queries).map(|entry| entry.method);
        let numbers: BTreeSet<u32> = of_code.collect();
        let mut batch = Batch::default();
        for (method, strings) in numbers.iter().filter_map(|number| self.methods.get(number)) {
            batch.add(method, strings);
        }
        let packet = batch.take_rest().unwrap_or_default();
        let methods: Vec<_> = methods_of_code(&packet).collect();
        let methods = methods.iter().map(|(method, number)| (method, *number));
        for packet in in_sources(methods, maps) {
            out.say(packet::Body::Methods(packet))?;
        }
        Ok(())
    }

    /// The address field of a node's root: process upid and epoch.
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

    pub(super) fn add_names(
        &self,
        symbolizer: &Symbolizer,
        queries: &[Query],
        waited_for: &BTreeSet<(Utid, u64)>,
        out: &mut Out,
    ) -> io::Result<Vec<String>> {
        let mut modules = Modules::default();
        for module in self.modules.values() {
            modules.insert(module);
        }
        let mut wanted = Wanted::default();
        for query in queries {
            wanted.add(&modules, query);
        }
        for (utid, object) in waited_for {
            if let Some(thread) = self.threads.get(utid) {
                wanted.add_variable(&modules, Upid(thread.upid), *object);
            }
        }
        let mut result = Ok(());
        let report = symbolizer.symbolize(wanted, &mut |_| true, &mut |symbols| {
            if result.is_ok() {
                result = out.say(packet::Body::Symbols(symbols));
            }
        });
        result.map(|()| report.reasons())
    }
}

fn is_setting(event: &v1::Event) -> bool {
    matches!(
        event.kind(),
        event::Kind::IntervalChanged | event::Kind::ConfigChanged
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writer::Writer;
    use stackbeat_proto::stream::PacketReader;

    #[test]
    fn a_window_has_the_methods_that_its_nodes_name() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("dump.beat");
        let mut content = Content::default();
        let method = |number, name, file| v1::methods::Method {
            number,
            name,
            file,
            position: vec![1, 2],
            line: vec![3, -4],
            ..Default::default()
        };
        let strings = |texts: [&str; 3]| texts.map(str::to_owned).to_vec();
        let packets = [
            (strings(["", "f", "f.py"]), vec![method(1, 1, 2)]),
            (
                strings(["", "h", "g"]),
                vec![method(2, 2, 0), method(3, 1, 0)],
            ),
        ];
        for (strings, methods) in packets {
            content.take(packet::Body::Methods(v1::Methods { strings, methods }), 0);
        }
        let kind_runs = [1, node_kind::ROOT, 3, node_kind::MANAGED].to_vec();
        content.take_nodes(&v1::CallstackNodes {
            id: vec![1],
            parent: vec![0, 1, 1, 1],
            address: vec![1 << 32, 0, 2 << 32, 0],
            kind_runs,
        });
        let mut out = Out {
            writer: Writer::create(&path, false).expect("made"),
            pending: Vec::new(),
            packets: 0,
        };
        let queries = content
            .nodes(&BTreeSet::from([3]), &mut out)
            .expect("written");
        assert!(queries.is_empty());
        let bodies: Vec<_> = PacketReader::new(&out.pending[..])
            .map(|packet| packet.expect("good").1.body.expect("a body"))
            .collect();
        let [packet::Body::Methods(methods), packet::Body::Nodes(nodes)] = &bodies[..] else {
            panic!("{bodies:?}");
        };
        assert_eq!(nodes::nodes(nodes).expect("fit").count(), 3);
        let named = |m: &v1::methods::Method| {
            let string = |index: u32| methods.strings[index as usize].clone();
            (m.number, string(m.name), string(m.file), m.line.clone())
        };
        let methods: Vec<_> = methods.methods.iter().map(named).collect();
        let expected = [(1, "f", "f.py"), (3, "h", "")];
        let expected = expected.map(|(n, name, file)| (n, name.into(), file.into(), vec![3, -4]));
        assert_eq!(methods, expected);
    }
}
