//! Reads the CallstackTable into packets, gives it more room in time, and begins a new generation when
//! one is nearly full.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::RangeInclusive;

use stackbeat_core::ids::Upid;
use stackbeat_core::shm::callstack::{NodeValue, Table, process_of_root};
use stackbeat_core::shm::layout::{ThreadEntry, node_id, node_kind};
use stackbeat_core::shm::mapping::Mapping;
use stackbeat_core::sync::Ordering;
use stackbeat_proto::v1::{CallstackNodes, NodeKind, packet};

use crate::writer::encode;
use stackbeat_symbolize::Query;
use stackbeat_symbolize::{AddressSet, MOST_ADDRESSES};

/// Nodes of one packet.
const NODES_PER_PACKET: usize = 64 << 10;

/// How far one generation has been read.
#[derive(Clone, Debug, Default)]
struct Cursor {
    generation: u32,
    /// Nodes below were read, except `holes`.
    next: u32,
    /// Taken but not written yet when they were read.
    holes: Vec<u32>,
    /// By node: its root's address field (process upid and epoch); `None`: not read.
    roots: Vec<Option<u64>>,
}

/// A node that goes into the trace.
type Row = (u32, NodeValue);

/// A node that is in the trace from an earlier life.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeedNode {
    pub address: u64,
    pub kind: u32,
    /// The address field of its root.
    pub root: u64,
}

/// The reading side of the table.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    cursors: [Option<Cursor>; 2],
    /// Ids that are in the trace already (`recover`).
    seeded: HashSet<u32>,
    /// By root, which tells process and epoch: the addresses that a name is wanted for.
    addresses: BTreeMap<u64, AddressSet>,
    address_count: usize,
    /// Those that came since the last [`Nodes::take_fresh`], some twice.
    fresh: Vec<Query>,
    /// Times a name was wanted for an address beyond `MOST_ADDRESSES`.
    pub unnamed: u64,
    /// Nodes read.
    pub count: u64,
    /// Generations begun.
    pub generations: u32,
}

impl Nodes {
    /// Takes nodes for stored that a partial trace holds.
    pub(crate) fn seed(&mut self, nodes: &HashMap<u32, SeedNode>) {
        self.seeded.extend(nodes.keys());
        for node in nodes.values() {
            self.want_name(node.root, node.address, node.kind);
        }
    }

    fn want_name(&mut self, root: u64, address: u64, kind: u32) {
        let kind = match kind {
            node_kind::NATIVE => NodeKind::Native,
            node_kind::LEAF_PC | node_kind::AWAITING => NodeKind::LeafPc,
            _ => return,
        };
        // A program with more has written over the table, or makes code all the time.
        if self.address_count >= MOST_ADDRESSES {
            let known = self.addresses.get(&root);
            self.unnamed += u64::from(known.is_none_or(|set| !set.contains(address, kind)));
            return;
        }
        let set = self.addresses.entry(root).or_default();
        if !set.contains(address, kind) {
            self.fresh.push(query(root, address, kind));
        }
        let more = set.insert(address, kind);
        self.address_count = self.address_count.wrapping_add_signed(more);
    }

    /// Encodes what was added to the table since the last `commit`. What a record that was read before
    /// refers to is among it. Gives the state to commit once the packets are stored.
    pub(crate) fn encode_new(&self, mapping: &Mapping, out: &mut Vec<u8>) -> (Step, u64) {
        let mut step = Step::default();
        let mut packets = 0;
        for slot in 0..2 {
            let generation = mapping.generation(slot).generation.load(Ordering::Acquire);
            // A slot that was never used says 0.
            if generation as usize % 2 != slot {
                continue;
            }
            let Some(table) = Table::of(mapping, generation) else {
                continue;
            };
            let (next, holes, roots): (u32, &[u32], &[Option<u64>]) = match &self.cursors[slot] {
                Some(c) if c.generation == generation => (c.next, &c.holes, &c.roots),
                _ => (1, &[], &[]),
            };
            let used = table.used();
            if used <= next && holes.is_empty() {
                continue;
            }
            let mut read = Read {
                generation,
                next: used.max(next),
                ..Default::default()
            };
            for i in holes.iter().copied().chain(next..used) {
                let value = table.read(i);
                let root = value.and_then(|v| match v.kind {
                    node_kind::ROOT => Some(v.address),
                    // A child of what is still a hole waits with it: parents come before children.
                    _ => read.root_of(v.parent).or_else(|| known(roots, v.parent)),
                });
                match (value, root) {
                    (Some(value), Some(root)) => read.rows.push((i, value, root)),
                    _ => read.holes.push(i),
                }
            }
            let nodes = mapping.layout().capacity.generation_nodes;
            for chunk in read.rows.chunks(NODES_PER_PACKET) {
                let id = |i| node_id(generation, nodes, i);
                let rows: Vec<Row> = chunk
                    .iter()
                    .map(|(i, value, _)| (*i, *value))
                    .filter(|(i, _)| self.seeded.is_empty() || !self.seeded.contains(&id(*i)))
                    .collect();
                if rows.is_empty() {
                    continue;
                }
                encode(packet::Body::Nodes(columns(&rows, id)), out);
                packets += 1;
            }
            step.reads[slot] = Some(read);
        }
        (step, packets)
    }

    /// The packets of this step are in the trace.
    pub(crate) fn commit(&mut self, step: Step) {
        let mut names = Vec::new();
        for (slot, read) in step.reads.into_iter().enumerate() {
            let Some(read) = read else { continue };
            let cursor = match &mut self.cursors[slot] {
                Some(c) if c.generation == read.generation => c,
                other => {
                    self.generations += 1;
                    other.insert(Cursor {
                        generation: read.generation,
                        ..Default::default()
                    })
                }
            };
            cursor.next = read.next;
            cursor.holes = read.holes;
            cursor.roots.resize(read.next as usize, None);
            self.count += read.rows.len() as u64;
            for (i, value, root) in read.rows {
                cursor.roots[i as usize] = Some(root);
                names.push((root, value.address, value.kind));
            }
        }
        for (root, address, kind) in names {
            self.want_name(root, address, kind);
        }
    }

    /// How many addresses want a name, some counted twice.
    pub(crate) fn wanted_count(&self) -> usize {
        self.address_count
    }

    /// Takes out the addresses that names are wanted for: those of one process, or all.
    pub(crate) fn take_wanted(&mut self, upid: Option<Upid>) -> Vec<Query> {
        let roots = roots(upid.unwrap_or(Upid(0)), upid.unwrap_or(Upid(u32::MAX)));
        let mut queries = Vec::new();
        for (root, set) in self.addresses.extract_if(roots, |_, _| true) {
            self.address_count -= set.len();
            queries.extend(set.iter().map(|(address, kind)| query(root, address, kind)));
        }
        queries
    }

    /// Takes out what came since the last call.
    pub(crate) fn take_fresh(&mut self) -> Vec<Query> {
        std::mem::take(&mut self.fresh)
    }

    /// The addresses of a process that names are wanted for, some twice.
    pub(crate) fn wanted_of(&self, upid: Upid) -> impl Iterator<Item = Query> {
        let sets = self.addresses.range(roots(upid, upid));
        sets.flat_map(|(root, set)| {
            set.iter()
                .map(|(address, kind)| query(*root, address, kind))
        })
    }

    /// The processes with such addresses.
    pub(crate) fn processes(&self) -> BTreeSet<Upid> {
        let roots = self.addresses.keys();
        roots.map(|root| process_of_root(*root).0).collect()
    }

    /// Whether every node of this generation is in the trace.
    fn has_read_all(&self, mapping: &Mapping, generation: u32) -> bool {
        let slot = generation as usize % 2;
        let used = Table::of(mapping, generation).map_or(0, |table| table.used());
        match &self.cursors[slot] {
            Some(c) if c.generation == generation => c.next >= used && c.holes.is_empty(),
            // Slots begin with node 1.
            _ => used <= 1,
        }
    }

    /// Begins the next generation when the current one is nearly full, everything of the one before
    /// it has been read, and no thread uses that any more.
    pub(crate) fn roll_over<'a>(
        &self,
        mapping: &Mapping,
        threads: impl Iterator<Item = &'a ThreadEntry>,
    ) -> bool {
        let control = mapping.control();
        let generation = control.generation.load(Ordering::Relaxed);
        let Some(table) = Table::of(mapping, generation) else {
            return false;
        };
        let capacity = mapping.layout().capacity.generation_nodes;
        if table.used() < capacity / 4 * 3 {
            return false;
        }
        if generation > 0 && !self.has_read_all(mapping, generation - 1) {
            return false;
        }
        // A capture notes generation + 1 before it reads the slot.
        let current = generation.wrapping_add(1);
        for thread in threads {
            let capturing = thread.capturing.load(Ordering::SeqCst);
            if capturing != 0 && capturing != current {
                return false;
            }
        }
        if mapping.prepare_generation(current).is_err() {
            return false;
        }
        control.generation.store(current, Ordering::SeqCst);
        true
    }
}

/// All roots of these processes.
fn roots(first: Upid, last: Upid) -> RangeInclusive<u64> {
    u64::from(first.0) << 32..=u64::from(last.0) << 32 | u64::from(u32::MAX)
}

fn query(root: u64, address: u64, kind: NodeKind) -> Query {
    let (upid, epoch) = process_of_root(root);
    Query {
        upid,
        epoch,
        address,
        kind,
    }
}

/// Gives the table's slots more storage before they need it.
pub(crate) fn extend(mapping: &Mapping) {
    for slot in 0..2 {
        let header = mapping.generation(slot);
        let limit = header.nodes_limit.load(Ordering::Relaxed);
        let used = header.nodes_used.load(Ordering::Relaxed);
        if limit > 0 && used >= limit / 2 && limit < mapping.layout().capacity.generation_nodes {
            // Without room stacks are cut short, and agents count them.
            let _ = mapping.extend_nodes(slot, limit.saturating_mul(2));
        }
    }
}

/// What one encoding read; see [`Nodes::commit`].
#[derive(Debug, Default)]
pub(crate) struct Step {
    reads: [Option<Read>; 2],
}

#[derive(Debug, Default)]
struct Read {
    generation: u32,
    next: u32,
    holes: Vec<u32>,
    /// Index, node, root; indices rise, because holes lie below the new nodes.
    rows: Vec<(u32, NodeValue, u64)>,
}

impl Read {
    fn root_of(&self, i: u32) -> Option<u64> {
        let at = self.rows.binary_search_by_key(&i, |row| row.0).ok()?;
        Some(self.rows[at].2)
    }
}

fn known(roots: &[Option<u64>], i: u32) -> Option<u64> {
    roots.get(i as usize).copied().flatten()
}

/// The columns of these nodes.
fn columns(rows: &[Row], id_of: impl Fn(u32) -> u32) -> CallstackNodes {
    let mut columns = CallstackNodes::default();
    let (mut last_id, mut last_address) = (0i64, 0u64);
    for (i, value) in rows {
        let id = i64::from(id_of(*i));
        columns.id.push(id - last_id);
        last_id = id;
        let parent = match value.parent {
            0 => 0,
            parent => id - i64::from(id_of(parent)),
        };
        columns.parent.push(parent);
        columns
            .address
            .push(value.address.wrapping_sub(last_address) as i64);
        last_address = value.address;
        match columns.kind_runs.as_mut_slice() {
            [.., count, kind] if *kind == value.kind => *count += 1,
            _ => columns.kind_runs.extend([1, value.kind]),
        }
    }
    // Ids usually follow each other, which need not be written.
    while columns.id.len() > 1 && columns.id.last() == Some(&1) {
        columns.id.pop();
    }
    if columns.kind_runs.get(1) == Some(&node_kind::NATIVE) && columns.kind_runs.len() == 2 {
        columns.kind_runs.clear();
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_kept_once_however_often_they_are_wanted() {
        let mut nodes = Nodes::default();
        for _ in 0..3 {
            for i in 0..1000u64 {
                let kind = [node_kind::NATIVE, node_kind::LEAF_PC][i as usize % 2];
                nodes.want_name((7 << 32) | (i % 3), (1 << 46) | (i * 7919 % 1000), kind);
            }
            nodes.want_name(7 << 32, 5, node_kind::ROOT);
        }
        nodes.want_name(8 << 32, 6, node_kind::NATIVE);
        assert!(nodes.address_count < 2001, "{}", nodes.address_count);
        let mut queries = nodes.take_wanted(Some(Upid(7)));
        queries.sort_unstable_by_key(|q| (q.epoch, q.address));
        queries.dedup();
        assert_eq!((queries.len(), nodes.unnamed), (1000, 0));
        let first = &queries[0];
        assert_eq!((first.upid, first.epoch), (Upid(7), 0));
        let exact = queries.iter().filter(|q| q.kind == NodeKind::LeafPc);
        assert_eq!(exact.count(), 500);
        assert!(queries.iter().all(|q| q.address >> 46 == 1));
        assert_eq!(nodes.address_count, 1);
        assert_eq!(nodes.take_wanted(None).len(), 1);
        assert_eq!(nodes.address_count, 0);
    }

    #[test]
    fn more_addresses_than_names_are_made_for_are_reported() {
        let mut nodes = Nodes::default();
        for address in 0..MOST_ADDRESSES as u64 + 10 {
            nodes.want_name(1 << 32, address, node_kind::NATIVE);
        }
        nodes.want_name(1 << 32, 0, node_kind::NATIVE);
        assert_eq!(nodes.unnamed, 10);
        assert_eq!(nodes.take_wanted(None).len(), MOST_ADDRESSES);
    }
}
