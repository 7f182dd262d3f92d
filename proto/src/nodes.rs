//! The nodes of a CallstackTable, from the columns of `CallstackNodes`.

use crate::v1::{CallstackNodes, NodeKind};

/// One node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Unique in the trace.
    pub id: u32,
    /// Id of its parent; 0 for roots.
    pub parent: u32,
    /// Return address in the process, or what the kind says.
    pub address: u64,
    /// A `NodeKind`, or a number that a newer version has given it.
    pub kind: u32,
}

/// The nodes of a packet; `None` when its columns do not fit each other.
pub fn nodes(columns: &CallstackNodes) -> Option<impl Iterator<Item = Node> + '_> {
    let n = columns.parent.len();
    if columns.id.len() > n || columns.address.len() != n {
        return None;
    }
    let ids = columns.id.iter().copied().chain(std::iter::repeat(1));
    let kinds = columns.kind_runs.chunks(2).flat_map(|run| {
        let kind = run.get(1).copied().unwrap_or(0);
        std::iter::repeat_n(kind, run[0] as usize)
    });
    let kinds = kinds.chain(std::iter::repeat(NodeKind::Native as u32));
    let (mut id, mut address) = (0u32, 0u64);
    let values = ids.zip(&columns.parent).zip(&columns.address).zip(kinds);
    Some(values.map(move |(((id_delta, up), address_delta), kind)| {
        id = id.wrapping_add(id_delta as u32);
        address = address.wrapping_add(*address_delta as u64);
        let parent = match kind == NodeKind::Root as u32 {
            true => 0,
            false => id.wrapping_sub(*up as u32),
        };
        Node {
            id,
            parent,
            address,
            kind,
        }
    }))
}
