//! From registers to a node of the CallstackTable.

use super::scratch::Scratch;
use super::session;
use crate::managed;
#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::native::generated_code;
use crate::shm::buffer::Pool;
use crate::shm::callstack::{NodeValue, Table, root_address};
use crate::shm::layout::{ThreadEntry, drops, node_id, node_kind};
use crate::shm::mapping::Mapping;
#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::shm::methods::{Methods, managed_address};
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
        mapping,
        scratch,
        registers,
        exact,
        limit,
        nodes_are_good,
        table.as_ref(),
        root,
    );
    if found.managed.is_truncated && end == WalkEnd::Root {
        session::count(entry, drops::TRUNCATED_DEPTH);
    }
    if found.managed.table_low {
        mapping.want_drain();
    }
    if found.managed.table_full {
        session::count(entry, drops::METHOD_TABLE_FULL);
    }
    match end {
        WalkEnd::Root => {}
        WalkEnd::Depth => session::count(entry, drops::TRUNCATED_DEPTH),
        _ => session::count(entry, drops::TRUNCATED_UNWIND),
    }
    scratch.nodes_root = root;
    let is_whole = !found.cut && !found.managed.table_full;
    scratch.nodes_generation = if is_whole { of_generation } else { 0 };
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
#[derive(Default)]
struct Found {
    node: u32,
    cut: bool,
    managed: managed::Found,
}

impl Found {
    fn cut_at(node: u32) -> Found {
        Found {
            node,
            cut: true,
            ..Found::default()
        }
    }
}

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
#[expect(clippy::too_many_arguments, reason = "one call, on the hot path")]
#[inline]
fn walk(
    mapping: &Mapping,
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
        return (end, Found::cut_at(0));
    };
    let stack = scratch.walker.stack_mut();
    let frames = stack.frames();
    let native = |index: usize| {
        let frame = frames.get(frames.len().checked_sub(index + 1)?)?;
        Some([frame.pc, frame.sp])
    };
    let (blocked, sp) = (scratch.program_mask, scratch.program_registers.sp);
    // A mapping is never dropped, so its place is its own.
    let session = (core::ptr::from_ref(mapping).addr() >> 4) as u32;
    let is_cut = end == WalkEnd::Depth;
    let (managed, mut managed_found) = scratch
        .managed
        .find(mapping, &native, is_cut, session, blocked, sp);
    let mut kept = if nodes_are_good { stack.kept() } else { 0 };
    // Managed frames change without a change of the native stack below them.
    let first_managed = match managed {
        Some(managed) => first_managed(stack.frames(), bounds.high, managed),
        None => usize::MAX,
    };
    let first_before = core::mem::replace(&mut scratch.managed_from, first_managed.wrapping_add(1));
    kept = kept.min(first_managed).min(first_before.wrapping_sub(1));
    let last_kept = kept.checked_sub(1).and_then(|i| stack.frames().get(i));
    let begin = match last_kept {
        Some(frame) => Some(Path {
            table,
            node: frame.node,
        }),
        None => Path::begin(table, root, end),
    };
    let Some(mut path) = begin else {
        return (end, Found::cut_at(0));
    };
    let mut placing =
        managed::Placing::new(managed, last_kept.map_or(bounds.high, |frame| frame.sp));
    for frame in stack.frames_mut().iter_mut().skip(kept) {
        let mut has_room = true;
        let is_managed = placing.next(frame.sp, |managed| {
            has_room &= path.go(managed.address(), managed.kind()).is_some();
        });
        let is_named = is_managed
            || frame.is_generated()
                && generated_code::frames(called_at(frame), |compiled, is_inlined| {
                    let methods = &Methods::mapped(mapping);
                    let method = managed_found.number(session, methods, compiled.method);
                    let kind = match is_inlined {
                        true => node_kind::MANAGED_INLINED,
                        false => node_kind::MANAGED,
                    };
                    let address = managed_address(method, compiled.position);
                    has_room &= path.go(address, kind).is_some();
                });
        if !is_named {
            let kind = if frame.is_exact() {
                node_kind::LEAF_PC
            } else {
                node_kind::NATIVE
            };
            has_room = path.go(frame.pc, kind).is_some();
        }
        if !has_room {
            return (end, Found::cut_at(path.node));
        }
        frame.node = path.node;
    }
    let found = Found {
        node: path.node,
        cut: false,
        managed: managed_found,
    };
    (end, found)
}

/// The instruction that a frame is at: a return address is the one behind it.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn called_at(frame: &crate::unwind::walk::Frame) -> u64 {
    match frame.is_exact() {
        true => frame.pc,
        false => frame.pc.wrapping_sub(1),
    }
}

/// How many of these frames, root first, stand above the outermost managed ones; `usize::MAX`: there are
/// none.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[inline]
fn first_managed(
    frames: &[crate::unwind::walk::Frame],
    high: u64,
    managed: &managed::Frames,
) -> usize {
    let mut placing = managed::Placing::new(Some(managed), high);
    let first = frames
        .iter()
        .position(|frame| placing.next(frame.sp, |_| {}));
    first.unwrap_or(usize::MAX)
}

/// Walks, and looks up the nodes of what is not the same as in the last walk.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
#[expect(clippy::too_many_arguments, reason = "as the other one")]
fn walk(
    _mapping: &Mapping,
    scratch: &mut Scratch,
    registers: &Registers,
    exact: bool,
    limit: usize,
    nodes_are_good: bool,
    table: Option<&Table>,
    root: u64,
) -> (WalkEnd, Found) {
    use crate::unwind::StackWalker;
    let bounds = scratch.bounds();
    let frames = &mut scratch.frames;
    frames.clear(limit);
    let end = scratch.walker.walk(registers, &bounds, exact, frames);
    let Some(table) = table else {
        return (end, Found::cut_at(0));
    };
    let kept = if nodes_are_good {
        frames.same_outermost
    } else {
        0
    };
    let last_kept = kept.checked_sub(1).and_then(|i| scratch.frame_nodes.get(i));
    let begin = match last_kept {
        Some(node) => Some(Path { table, node: *node }),
        None => Path::begin(table, root, end),
    };
    let Some(mut path) = begin else {
        return (end, Found::cut_at(0));
    };
    let frames = &*frames;
    let addresses = frames.addresses().iter().rev();
    let leaf = frames.len().wrapping_sub(1);
    let places = scratch.frame_nodes.iter_mut().enumerate();
    for (address, (i, place)) in addresses.zip(places).skip(kept) {
        // Own code at the leaf end is left out.
        let kind = if exact && i == leaf && *address == registers.pc {
            node_kind::LEAF_PC
        } else if frames.is_awaiting(leaf - i) {
            node_kind::AWAITING
        } else {
            node_kind::NATIVE
        };
        if path.go(*address, kind).is_none() {
            return (end, Found::cut_at(path.node));
        }
        *place = path.node;
    }
    let found = Found {
        node: path.node,
        ..Found::default()
    };
    (end, found)
}
