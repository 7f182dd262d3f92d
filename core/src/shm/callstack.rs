//! The CallstackTable: stacks as nodes {parent, address}, insert-only, shared by all processes.
//!
//! A node's index is taken by `fetch_add`, the node is written, and only then published in the hash
//! index by compare-and-swap. Whoever finds an index in the hash therefore finds the node written.
//! Who dies in between leaves a hole: what is no root and has no parent. Nothing is ever removed; a full
//! generation is replaced by the next one as a whole.
//!
//! Nodes are also read in order of their indices, while they are being written. So what makes a node one is
//! written last: its parent, or of a root its kind.

use crate::ids::Upid;
use crate::shm::layout::{GenerationHeader, Node, node_kind};
use crate::sync::{AtomicU32, Ordering};

/// How far from its place an entry may lie.
const MAX_PROBES: usize = 64;

/// The table holds no more nodes, or too many lie around the right place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// One generation of the table.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    /// Its number and how far the nodes are used.
    pub header: &'a GenerationHeader,
    /// Twice as many as nodes, a power of two.
    pub index: &'a [AtomicU32],
    /// Node 0 is never used.
    pub nodes: &'a [Node],
}

/// What a node says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeValue {
    /// The caller's node in the same generation; 0 for roots.
    pub parent: u32,
    /// Return address; of other kinds than native see `layout::node_kind`.
    pub address: u64,
    /// See `layout::node_kind`.
    pub kind: u32,
}

/// The address field of a root node.
pub const fn root_address(upid: Upid, epoch: u32) -> u64 {
    (upid.0 as u64) << 32 | epoch as u64
}

/// The process and its module epoch of a root node's address field.
pub const fn process_of_root(address: u64) -> (Upid, u32) {
    (Upid((address >> 32) as u32), address as u32)
}

/// Multiplies into 128 bits and folds: every input bit reaches every output bit used.
fn hash(parent: u32, address: u64, kind: u32) -> usize {
    let key = address ^ (parent as u64) << 40 ^ (parent as u64).rotate_left(17) ^ kind as u64;
    let wide = (key ^ 0x9e37_79b9_7f4a_7c15) as u128
        * (0xd6e8_feb8_6659_fd93 ^ (parent as u64).wrapping_mul(0xa076_1d64_78bd_642f) | 1) as u128;
    (wide ^ wide >> 64) as usize
}

impl<'a> Table<'a> {
    #[cfg(not(loom))]
    /// The table in the slot of a generation, if it is that generation's still.
    pub fn of(mapping: &'a crate::shm::mapping::Mapping, generation: u32) -> Option<Table<'a>> {
        let slot = generation as usize % 2;
        let header = mapping.generation(slot);
        (header.generation.load(Ordering::Acquire) == generation).then(|| Table {
            header,
            index: mapping.index(slot),
            nodes: mapping.nodes(slot),
        })
    }

    /// The node with these values, made if there is none.
    ///
    /// # Signal safety
    /// Allocates nothing, waits for nobody: a call interrupted anywhere disturbs no other.
    pub fn insert(&self, value: NodeValue) -> Result<u32, Full> {
        let mask = self.index.len() - 1;
        let start = hash(value.parent, value.address, value.kind);
        let mut mine = 0;
        for step in 0..MAX_PROBES {
            // The mask keeps it in bounds: the length is a power of two.
            let Some(place) = self.index.get(start.wrapping_add(step) & mask) else {
                break;
            };
            let mut found = place.load(Ordering::Acquire);
            if found == 0 {
                if mine == 0 {
                    mine = self.make(value)?;
                }
                match place.compare_exchange(0, mine, Ordering::Release, Ordering::Acquire) {
                    Ok(_) => return Ok(mine),
                    Err(other) => found = other,
                }
            }
            if self.holds(found, value) {
                // Another thread was faster: the node made here becomes a hole.
                self.clear(mine);
                return Ok(found);
            }
        }
        self.clear(mine);
        Err(Full)
    }

    /// Takes the next free node and writes it.
    fn make(&self, value: NodeValue) -> Result<u32, Full> {
        let limit = self
            .header
            .nodes_limit
            .load(Ordering::Acquire)
            .min(self.nodes.len() as u32);
        // Read first, so that a full table's counter does not run on and wrap.
        if self.header.nodes_used.load(Ordering::Relaxed) >= limit {
            return Err(Full);
        }
        let i = self.header.nodes_used.fetch_add(1, Ordering::Relaxed);
        if i == 0 || i >= limit {
            return Err(Full);
        }
        let node = self.nodes.get(i as usize).ok_or(Full)?;
        node.address.store(value.address, Ordering::Relaxed);
        node.kind.store(value.kind, Ordering::Release);
        node.parent.store(value.parent, Ordering::Release);
        Ok(i)
    }

    /// Makes a node a hole again.
    fn clear(&self, i: u32) {
        if i != 0
            && let Some(node) = self.nodes.get(i as usize)
        {
            match node.kind.load(Ordering::Relaxed) {
                node_kind::ROOT => node.kind.store(node_kind::NATIVE, Ordering::Relaxed),
                _ => node.parent.store(0, Ordering::Relaxed),
            }
        }
    }

    fn holds(&self, i: u32, value: NodeValue) -> bool {
        self.nodes.get(i as usize).is_some_and(|node| {
            node.address.load(Ordering::Relaxed) == value.address
                && node.parent.load(Ordering::Relaxed) == value.parent
                && node.kind.load(Ordering::Relaxed) == value.kind
        })
    }

    /// Nodes that have been given out: those below may be read.
    pub fn used(&self) -> u32 {
        let limit = self.header.nodes_limit.load(Ordering::Relaxed);
        self.header
            .nodes_used
            .load(Ordering::Acquire)
            .min(limit)
            .min(self.nodes.len() as u32)
    }

    /// A node; `None` for holes (which may be filled later) and for what no agent writes: a parent
    /// that is not older than its child. Following parents therefore always ends.
    pub fn read(&self, i: u32) -> Option<NodeValue> {
        if i == 0 || i >= self.used() {
            return None;
        }
        let node = self.nodes.get(i as usize)?;
        // In this order: see the head of this file.
        let parent = node.parent.load(Ordering::Acquire);
        let kind = node.kind.load(Ordering::Acquire);
        let address = node.address.load(Ordering::Relaxed);
        // A root hangs on nothing, anything else on something.
        let is_node = parent < i && (kind == node_kind::ROOT) == (parent == 0);
        is_node.then_some(NodeValue {
            parent,
            address,
            kind,
        })
    }
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use super::*;
    use crate::shm::mapping::tests::small;
    use std::collections::HashMap;
    use std::vec::Vec;

    fn native(parent: u32, address: u64) -> NodeValue {
        NodeValue {
            parent,
            address,
            kind: node_kind::NATIVE,
        }
    }

    fn root(table: &Table) -> u32 {
        table
            .insert(NodeValue {
                parent: 0,
                address: root_address(Upid(1), 0),
                kind: node_kind::ROOT,
            })
            .expect("an empty table has room")
    }

    #[test]
    fn equal_stacks_are_one_node() {
        let mapping = small();
        let table = Table::of(&mapping, 0).expect("generation 0 is there");
        let root = root(&table);
        let a = table.insert(native(root, 0x1000)).expect("room");
        let b = table.insert(native(a, 0x2000)).expect("room");
        assert_eq!(table.insert(native(a, 0x2000)), Ok(b));
        assert_ne!(table.insert(native(root, 0x2000)), Ok(b));
        assert_eq!(table.read(b), Some(native(a, 0x2000)));
        assert_eq!(table.read(0), None);
        assert_eq!(table.read(1 << 20), None);
        assert!(Table::of(&mapping, 1).is_none());
    }

    #[test]
    fn a_full_table_says_so_and_still_finds() {
        let mapping = small();
        let table = Table::of(&mapping, 0).expect("generation 0 is there");
        let root = root(&table);
        let mut made = Vec::new();
        let mut address = 0x1000;
        while let Ok(i) = table.insert(native(root, address)) {
            made.push((address, i));
            address += 16;
        }
        // 1024 nodes: number 0 is not used, one is the root.
        assert_eq!(made.len(), 1022);
        for (address, i) in made {
            assert_eq!(table.insert(native(root, address)), Ok(i));
        }
        for _ in 0..10 {
            assert_eq!(table.insert(native(root, 1)), Err(Full));
        }
    }

    #[test]
    fn threads_agree_on_the_nodes() {
        let mapping = small();
        let table = Table::of(&mapping, 0).expect("generation 0 is there");
        let root = root(&table);
        let results: Vec<HashMap<u64, u32>> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|w| {
                    scope.spawn(move || {
                        (0..200u64)
                            .map(|i| {
                                let address = 0x1000 + (i * 7 + w * 50) % 200;
                                (address, table.insert(native(root, address)).expect("room"))
                            })
                            .collect()
                    })
                })
                .collect();
            workers
                .into_iter()
                .map(|w| w.join().expect("no panic"))
                .collect()
        });
        for other in &results[1..] {
            assert_eq!(&results[0], other);
        }
        for (address, i) in &results[0] {
            assert_eq!(table.read(*i), Some(native(root, *address)));
        }
    }

    #[test]
    fn nonsense_is_not_read() {
        let mapping = small();
        let table = Table::of(&mapping, 0).expect("generation 0 is there");
        let root = root(&table);
        let a = table.insert(native(root, 0x1000)).expect("room");
        table.nodes[a as usize].parent.store(a, Ordering::Relaxed);
        assert_eq!(table.read(a), None);
        table.nodes[a as usize]
            .parent
            .store(u32::MAX, Ordering::Relaxed);
        assert_eq!(table.read(a), None);
        table.header.nodes_used.store(u32::MAX, Ordering::Relaxed);
        assert_eq!(table.used(), 1024);
        assert_eq!(table.insert(native(root, 0x5000)), Err(Full));
    }
}
