//! Stacks: the nodes of the file's CallstackTables, each with the logical frames of its address.
//!
//! Nodes of different generations that mean the same stack become one. A node whose parent is not
//! there, stands after it, or lies absurdly deep hangs below a "truncated" node, so that no chain has a
//! cycle and every walk is short.

use std::ops::Range;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use stackbeat_proto::nodes::Node;
use stackbeat_proto::v1::NodeKind;

use super::lock_functions::BelowLock;
use super::names::Names;
use super::{FrameIndex, ProbeId, ProcessIndex, StackIndex};

/// Nodes that a chain may have; the deepest stacks that an agent captures are far shorter.
const DEPTH_LIMIT: u32 = 4096;

/// Small, because walks over many stacks wait for memory.
#[derive(Clone, Copy, Debug)]
struct Stack {
    parent: u32,
    frames_from: u32,
    /// Frames from the outermost one to here.
    level: u32,
    frames: u16,
    /// Nodes above.
    depth: u16,
}

/// Where a stack's addresses count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Space {
    process: ProcessIndex,
    epoch: u32,
}

const NOWHERE: Space = Space {
    process: ProcessIndex::UNKNOWN,
    epoch: 0,
};

#[derive(Debug)]
pub(super) struct Stacks {
    stacks: Vec<Stack>,
    /// Of each stack.
    spaces: Vec<Space>,
    /// Of each stack, too.
    below_locks: Vec<BelowLock>,
    of_node: NodeMap,
    /// Nodes whose stack changes with time, because a name in it does: when it is which, in order.
    at_times: HashMap<u32, Vec<(Range<u64>, u32)>>,
    /// Nodes that contradict others or have no parent.
    pub odd_nodes: u64,
}

/// A node with an address, its own or one above, whose name changes.
#[derive(Clone, Copy, Debug)]
struct Changing {
    /// The node above if that is one, too; 0: it stands for `parent_stack`.
    parent: u32,
    parent_stack: u32,
    address: u64,
    kind: u8,
}

/// What is only needed while stacks are built.
#[derive(Debug, Default)]
pub(super) struct Building {
    /// (parent stack, address, kind) → stack
    known: HashMap<(u32, u64, u8), u32>,
    /// The same for a later name of the address.
    known_later: HashMap<(u32, u64, u8, usize), u32>,
    changing: HashMap<u32, Changing>,
}

/// From node ids to stacks. Ids of one generation follow each other, so that usually an array does.
#[derive(Debug)]
enum NodeMap {
    /// By id; `UNKNOWN` where the file has no such node.
    Array(Vec<u32>),
    Hashed(HashMap<u32, u32>),
}

const UNKNOWN: u32 = u32::MAX;

impl NodeMap {
    fn new(nodes: &[Node]) -> NodeMap {
        // Ids are whatever the file says: the array may be larger than the nodes only within bounds.
        const SPARE_IDS: usize = 1 << 20;
        let highest = nodes.iter().map(|node| node.id).max().unwrap_or(0) as usize;
        if highest <= nodes.len() * 4 + SPARE_IDS {
            NodeMap::Array(vec![UNKNOWN; highest + 1])
        } else {
            NodeMap::Hashed(HashMap::with_capacity(nodes.len()))
        }
    }

    #[inline]
    fn get(&self, id: u32) -> Option<u32> {
        match self {
            NodeMap::Array(stacks) => stacks
                .get(id as usize)
                .copied()
                .filter(|stack| *stack != UNKNOWN),
            NodeMap::Hashed(stacks) => stacks.get(&id).copied(),
        }
    }

    /// Takes over one of the nodes that the map was made for.
    fn insert(&mut self, id: u32, stack: u32) {
        match self {
            NodeMap::Array(stacks) => {
                if let Some(place) = stacks.get_mut(id as usize) {
                    *place = stack;
                }
            }
            NodeMap::Hashed(stacks) => {
                stacks.insert(id, stack);
            }
        }
    }
}

impl Stacks {
    /// Builds the stacks of `nodes`, which come in the order of the file. `process_of_upid` tells the
    /// index of a process.
    pub(crate) fn build(
        nodes: &[Node],
        names: &mut Names,
        process_of_upid: &HashMap<u32, ProcessIndex>,
    ) -> (Stacks, Building) {
        let mut this = Stacks {
            stacks: Vec::new(),
            spaces: Vec::new(),
            below_locks: Vec::new(),
            of_node: NodeMap::new(nodes),
            at_times: HashMap::new(),
            odd_nodes: 0,
        };
        let names_change = names.change();
        let mut changing = HashMap::new();
        let no_frames = Range::default();
        this.push(None, no_frames.clone(), NOWHERE, names);
        let mut known: HashMap<(u32, u64, u8), u32> = HashMap::with_capacity(nodes.len());
        for node in nodes {
            if node.id == 0 || this.of_node.get(node.id).is_some() {
                this.odd_nodes += 1;
                continue;
            }
            let kind = node.kind.min(255) as u8;
            let is_root = kind == NodeKind::Root as u8;
            let mut above = 0;
            let parent = if is_root {
                0
            } else {
                match this.of_node.get(node.parent) {
                    Some(parent) if u32::from(this.stacks[parent as usize].depth) < DEPTH_LIMIT => {
                        above = node.parent;
                        parent
                    }
                    found => {
                        let space = found.map_or(NOWHERE, |deep| this.spaces[deep as usize]);
                        this.odd_nodes += 1;
                        this.truncated(&mut known, names, space)
                    }
                }
            };
            let stack = match known.entry((parent, node.address, kind)) {
                Entry::Occupied(entry) => *entry.get(),
                Entry::Vacant(entry) => {
                    let stack = if is_root {
                        let upid = (node.address >> 32) as u32;
                        let space = Space {
                            process: process_of_upid
                                .get(&upid)
                                .copied()
                                .unwrap_or(ProcessIndex::UNKNOWN),
                            epoch: node.address as u32,
                        };
                        this.push(None, no_frames.clone(), space, names)
                    } else {
                        let space = this.spaces[parent as usize];
                        let frames =
                            names.frames_of(space.process, space.epoch, node.address, kind);
                        if names.are_the_agents(&frames) {
                            parent
                        } else {
                            this.push(Some(parent), frames, space, names)
                        }
                    };
                    *entry.insert(stack)
                }
            };
            this.of_node.insert(node.id, stack);
            if names_change && !is_root {
                let Space { process, epoch } = this.spaces[parent as usize];
                let above_changes = changing.contains_key(&above);
                if above_changes || names.changes(process, epoch, node.address, kind) {
                    let one = Changing {
                        parent: if above_changes { above } else { 0 },
                        parent_stack: parent,
                        address: node.address,
                        kind,
                    };
                    changing.insert(node.id, one);
                }
            }
        }
        let building = Building {
            known,
            known_later: HashMap::new(),
            changing,
        };
        (this, building)
    }

    /// Makes the stack that a node stands for at this time, if it changes.
    pub(crate) fn add_use(
        &mut self,
        id: u32,
        at_ns: u64,
        building: &mut Building,
        names: &mut Names,
    ) {
        if !building.changing.contains_key(&id) || self.at_time(id, at_ns).is_some() {
            return;
        }
        let mut chain = Vec::new();
        let mut at = id;
        while let Some(one) = building.changing.get(&at) {
            chain.push(*one);
            at = one.parent;
        }
        let mut stack = chain.last().map_or(0, |outermost| outermost.parent_stack);
        let mut holds = 0..u64::MAX;
        for one in chain.iter().rev() {
            let space = self.spaces[stack as usize];
            let Space { process, epoch } = space;
            let (version, times) = names.version(process, epoch, one.address, one.kind, at_ns);
            holds = holds.start.max(times.start)..holds.end.min(times.end);
            let key = (stack, one.address, one.kind, version);
            let made = match version {
                0 => building.known.get(&(stack, one.address, one.kind)),
                _ => building.known_later.get(&key),
            };
            stack = match made {
                Some(made) => *made,
                None => {
                    let frames =
                        names.frames_of_version(process, epoch, one.address, one.kind, version);
                    let made = match names.are_the_agents(&frames) {
                        true => stack,
                        false => self.push(Some(stack), frames, space, names),
                    };
                    match version {
                        0 => building.known.insert((stack, one.address, one.kind), made),
                        _ => building.known_later.insert(key, made),
                    };
                    made
                }
            };
        }
        let stacks = self.at_times.entry(id).or_default();
        let place = stacks.partition_point(|(times, _)| times.start < holds.start);
        stacks.insert(place, (holds, stack));
    }

    /// The stack that a node with changing names stands for at this time.
    fn at_time(&self, id: u32, at_ns: u64) -> Option<u32> {
        let stacks = self.at_times.get(&id)?;
        let after = stacks.partition_point(|(times, _)| times.start <= at_ns);
        let (times, stack) = &stacks[after.checked_sub(1)?];
        times.contains(&at_ns).then_some(*stack)
    }

    fn push(
        &mut self,
        parent: Option<u32>,
        frames: Range<u32>,
        space: Space,
        names: &Names,
    ) -> u32 {
        let above = parent.map_or(BelowLock::default(), |p| self.below_locks[p as usize]);
        self.below_locks.push(names.below_lock(above, &frames));
        let (level, depth) = match parent {
            Some(parent) => {
                let above = &self.stacks[parent as usize];
                (above.level, above.depth + 1)
            }
            None => (0, 0),
        };
        let count = frames.len() as u16;
        self.stacks.push(Stack {
            parent: parent.unwrap_or(0),
            frames_from: frames.start,
            level: level + u32::from(count),
            frames: count,
            depth,
        });
        self.spaces.push(space);
        self.stacks.len() as u32 - 1
    }

    /// The stack that stands for unknown frames of a process.
    fn truncated(
        &mut self,
        known: &mut HashMap<(u32, u64, u8), u32>,
        names: &mut Names,
        space: Space,
    ) -> u32 {
        let Space { process, epoch } = space;
        let key = (
            u32::MAX,
            u64::from(process.0) << 32 | u64::from(epoch),
            NodeKind::Truncated as u8,
        );
        *known.entry(key).or_insert_with(|| {
            let frames = names.frames_of(process, epoch, 0, NodeKind::Truncated as u8);
            self.push(Some(0), frames, space, names)
        })
    }

    pub(crate) fn count(&self) -> u32 {
        self.stacks.len() as u32
    }

    /// The stack of a node id in a sample of this time; `NONE` when the file has no such node.
    #[inline]
    pub(crate) fn of_node(&self, id: u32, at_ns: u64) -> StackIndex {
        if id == 0 {
            return StackIndex::NONE;
        }
        if !self.at_times.is_empty()
            && let Some(stack) = self.at_time(id, at_ns)
        {
            return StackIndex(stack);
        }
        StackIndex(self.of_node.get(id).unwrap_or(0))
    }

    /// What a call with this probe is in this stack: a wait may be one for a lock.
    #[inline]
    pub(crate) fn probe(&self, probe: ProbeId, stack: StackIndex) -> ProbeId {
        self.below_locks[stack.0 as usize].probe(probe)
    }

    pub(crate) fn parent(&self, stack: StackIndex) -> StackIndex {
        StackIndex(self.stacks[stack.0 as usize].parent)
    }

    /// Frames of the whole stack.
    pub(crate) fn level(&self, stack: StackIndex) -> usize {
        self.stacks[stack.0 as usize].level as usize
    }

    /// Nodes above the innermost one.
    pub(crate) fn depth(&self, stack: StackIndex) -> usize {
        usize::from(self.stacks[stack.0 as usize].depth)
    }

    pub(crate) fn tip(&self, stack: StackIndex) -> Range<u32> {
        let stack = &self.stacks[stack.0 as usize];
        stack.frames_from..stack.frames_from + u32::from(stack.frames)
    }

    pub(crate) fn process(&self, stack: StackIndex) -> Option<ProcessIndex> {
        let process = self.spaces[stack.0 as usize].process;
        (process != ProcessIndex::UNKNOWN).then_some(process)
    }

    /// Replaces the content of `frames` with the stack's frames, outermost first.
    pub(crate) fn frames_into(&self, stack: StackIndex, frames: &mut Vec<FrameIndex>) {
        frames.clear();
        let mut at = stack;
        while at != StackIndex::NONE {
            frames.extend(self.tip(at).rev().map(FrameIndex));
            at = self.parent(at);
        }
        frames.reverse();
    }

    /// The deepest stack that both contain.
    pub(crate) fn common(&self, mut a: StackIndex, mut b: StackIndex) -> StackIndex {
        let depth = |stack: StackIndex| self.stacks[stack.0 as usize].depth;
        while a != b {
            let (above, below) = (depth(a), depth(b));
            if above >= below {
                a = self.parent(a);
            }
            if below >= above {
                b = self.parent(b);
            }
        }
        a
    }
}
