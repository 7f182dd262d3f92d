//! From registers to a node of the CallstackTable.

use super::scratch::Scratch;
use super::session;
use crate::shm::callstack::{NodeValue, Table, root_address};
use crate::shm::layout::{ThreadEntry, drops, node_id, node_kind};
use crate::shm::mapping::Mapping;
use crate::unwind::{Registers, WalkEnd};

/// Walks the calling thread's stack and finds its node's id; 0: none. The flag: the table was full,
/// and the leaf end of the stack is missing.
#[inline]
pub(super) fn find(
    mapping: &Mapping,
    entry: &ThreadEntry,
    scratch: &mut Scratch,
    registers: &Registers,
    exact: bool,
    limit: usize,
    generation: u32,
) -> (u32, bool) {
    let root = root_address(session::upid(), session::epoch());
    let of_generation = generation as u64 + 1;
    let nodes_are_good = scratch.nodes_generation == of_generation && scratch.nodes_root == root;
    let table = Table::of(mapping, generation);
    let (end, found) = walk(
        scratch,
        registers,
        exact,
        limit,
        nodes_are_good,
        table.as_ref(),
        root,
    );
    match end {
        WalkEnd::Root => {}
        WalkEnd::Depth => session::count(entry, drops::TRUNCATED_DEPTH),
        _ => session::count(entry, drops::TRUNCATED_UNWIND),
    }
    scratch.nodes_root = root;
    scratch.nodes_generation = if found.cut { 0 } else { of_generation };
    if found.cut {
        session::count(entry, drops::TABLE_FULL);
    }
    let id = match (found.node, table) {
        (0, _) | (_, None) => 0,
        (node, Some(table)) => node_id(generation, table.nodes.len() as u32, node),
    };
    (id, found.cut)
}

/// The node that a walk led to.
struct Found {
    node: u32,
    cut: bool,
}

const NOTHING: Found = Found { node: 0, cut: true };

/// Finds nodes from the root to the leaf.
struct Path<'a> {
    table: &'a Table<'a>,
    node: u32,
}

impl<'a> Path<'a> {
    /// Begins at what the outermost frame hangs on.
    fn begin(table: &'a Table<'a>, root: u64, end: WalkEnd) -> Option<Path<'a>> {
        let mut path = Path { table, node: 0 };
        path.go(root, node_kind::ROOT)?;
        if end != WalkEnd::Root {
            path.go(0, node_kind::TRUNCATED)?;
        }
        Some(path)
    }

    /// One frame towards the leaf.
    #[inline]
    fn go(&mut self, address: u64, kind: u32) -> Option<u32> {
        let value = NodeValue {
            parent: self.node,
            address,
            kind,
        };
        self.node = self.table.insert(value).ok()?;
        Some(self.node)
    }
}

/// Walks, and looks up the nodes of what is not the same as in the last walk.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[inline]
fn walk(
    scratch: &mut Scratch,
    registers: &Registers,
    exact: bool,
    limit: usize,
    nodes_are_good: bool,
    table: Option<&Table>,
    root: u64,
) -> (WalkEnd, Found) {
    let bounds = scratch.bounds();
    let end = scratch.walker.walk_stack(registers, &bounds, exact, limit);
    let Some(table) = table else {
        return (end, NOTHING);
    };
    let stack = scratch.walker.stack_mut();
    let kept = if nodes_are_good { stack.kept() } else { 0 };
    let last_kept = kept.checked_sub(1).and_then(|i| stack.frames().get(i));
    let begin = match last_kept {
        Some(frame) => Some(Path {
            table,
            node: frame.node,
        }),
        None => Path::begin(table, root, end),
    };
    let Some(mut path) = begin else {
        return (end, NOTHING);
    };
    for frame in stack.frames_mut().iter_mut().skip(kept) {
        let kind = if frame.is_exact() {
            node_kind::LEAF_PC
        } else {
            node_kind::NATIVE
        };
        match path.go(frame.pc, kind) {
            Some(node) => frame.node = node,
            None => {
                let node = path.node;
                return (end, Found { node, cut: true });
            }
        }
    }
    (
        end,
        Found {
            node: path.node,
            cut: false,
        },
    )
}

/// Walks, and looks up all nodes.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn walk(
    scratch: &mut Scratch,
    registers: &Registers,
    exact: bool,
    limit: usize,
    _nodes_are_good: bool,
    table: Option<&Table>,
    root: u64,
) -> (WalkEnd, Found) {
    use crate::unwind::StackWalker;
    let bounds = scratch.bounds();
    scratch.frames.clear(limit);
    let end = scratch
        .walker
        .walk(registers, &bounds, exact, &mut scratch.frames);
    let Some(mut path) = table.and_then(|t| Path::begin(t, root, end)) else {
        return (end, NOTHING);
    };
    let addresses = scratch.frames.addresses();
    for (i, address) in addresses.iter().enumerate().rev() {
        let kind = if exact && i == 0 {
            node_kind::LEAF_PC
        } else {
            node_kind::NATIVE
        };
        if path.go(*address, kind).is_none() {
            let node = path.node;
            return (end, Found { node, cut: true });
        }
    }
    let node = path.node;
    (end, Found { node, cut: false })
}
