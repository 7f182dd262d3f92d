//! Stacks: the nodes of the file's CallstackTables, each with the logical frames of its address.
//!
//! Nodes of different generations that mean the same stack become one. A node whose parent is not
//! there, stands after it, or lies absurdly deep hangs below a "truncated" node, so that no chain has a
//! cycle and every walk is short.

use std::ops::Range;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use stackbeat_proto::v1::NodeKind;

use super::names::Names;
use super::{FrameIndex, ProcessIndex, StackIndex};

/// Nodes that a chain may have; the deepest stacks that an agent captures are far shorter.
const DEPTH_LIMIT: u32 = 4096;

/// A node as the file has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawNode {
    pub id: u32,
    /// 0 for roots.
    pub parent: u32,
    pub address: u64,
    pub kind: u8,
}

#[derive(Clone, Copy, Debug)]
struct Stack {
    parent: u32,
    frames_from: u32,
    frames: u16,
    depth: u16,
    /// Process index, `u32::MAX` when not known.
    process: u32,
    epoch: u32,
}

#[derive(Debug)]
pub(super) struct Stacks {
    stacks: Vec<Stack>,
    of_node: HashMap<u32, u32>,
    /// Nodes that contradict others or have no parent.
    pub odd_nodes: u64,
}

impl Stacks {
    /// Builds the stacks of `nodes`, which come in the order of the file. `process_of_uid` tells the
    /// index of a process.
    pub fn build(
        nodes: &[RawNode],
        names: &mut Names,
        process_of_uid: &HashMap<u32, ProcessIndex>,
    ) -> Stacks {
        let none = Stack {
            parent: 0,
            frames_from: 0,
            frames: 0,
            depth: 0,
            process: u32::MAX,
            epoch: 0,
        };
        let mut this = Stacks {
            stacks: vec![none],
            of_node: HashMap::with_capacity(nodes.len()),
            odd_nodes: 0,
        };
        // (parent stack, address, kind) → stack
        let mut known: HashMap<(u32, u64, u8), u32> = HashMap::with_capacity(nodes.len());
        for node in nodes {
            if node.id == 0 || this.of_node.contains_key(&node.id) {
                this.odd_nodes += 1;
                continue;
            }
            let is_root = node.kind == NodeKind::Root as u8;
            let parent = if is_root {
                0
            } else {
                match this.of_node.get(&node.parent) {
                    Some(&parent)
                        if u32::from(this.stacks[parent as usize].depth) < DEPTH_LIMIT =>
                    {
                        parent
                    }
                    Some(&deep) => {
                        let Stack { process, epoch, .. } = this.stacks[deep as usize];
                        this.odd_nodes += 1;
                        this.truncated(&mut known, names, process, epoch)
                    }
                    None => {
                        this.odd_nodes += 1;
                        this.truncated(&mut known, names, u32::MAX, 0)
                    }
                }
            };
            let stack = match known.entry((parent, node.address, node.kind)) {
                Entry::Occupied(entry) => *entry.get(),
                Entry::Vacant(entry) => {
                    let above = this.stacks[parent as usize];
                    let stack = if is_root {
                        let uid = (node.address >> 32) as u32;
                        Stack {
                            process: process_of_uid.get(&uid).map_or(u32::MAX, |index| index.0),
                            epoch: node.address as u32,
                            ..none
                        }
                    } else {
                        let frames =
                            names.frames_of(above.process, above.epoch, node.address, node.kind);
                        if names.are_the_agents(&frames) {
                            this.of_node.insert(node.id, *entry.insert(parent));
                            continue;
                        }
                        Stack {
                            parent,
                            frames_from: frames.start,
                            frames: (frames.end - frames.start) as u16,
                            depth: above.depth + 1,
                            ..above
                        }
                    };
                    let index = this.stacks.len() as u32;
                    this.stacks.push(stack);
                    *entry.insert(index)
                }
            };
            this.of_node.insert(node.id, stack);
        }
        this.of_node.shrink_to_fit();
        this
    }

    /// The stack that stands for unknown frames of a process.
    fn truncated(
        &mut self,
        known: &mut HashMap<(u32, u64, u8), u32>,
        names: &mut Names,
        process: u32,
        epoch: u32,
    ) -> u32 {
        let key = (
            u32::MAX,
            u64::from(process) << 32 | u64::from(epoch),
            NodeKind::Truncated as u8,
        );
        *known.entry(key).or_insert_with(|| {
            let frames = names.frames_of(process, epoch, 0, NodeKind::Truncated as u8);
            self.stacks.push(Stack {
                parent: 0,
                frames_from: frames.start,
                frames: (frames.end - frames.start) as u16,
                depth: 1,
                process,
                epoch,
            });
            self.stacks.len() as u32 - 1
        })
    }

    pub fn count(&self) -> u32 {
        self.stacks.len() as u32
    }

    /// The stack of a node id in a sample; `NONE` when the file has no such node.
    #[inline]
    pub fn of_node(&self, id: u32) -> StackIndex {
        if id == 0 {
            return StackIndex::NONE;
        }
        StackIndex(self.of_node.get(&id).copied().unwrap_or(0))
    }

    pub fn parent(&self, stack: StackIndex) -> StackIndex {
        StackIndex(self.stacks[stack.0 as usize].parent)
    }

    pub fn tip(&self, stack: StackIndex) -> Range<u32> {
        let stack = &self.stacks[stack.0 as usize];
        stack.frames_from..stack.frames_from + u32::from(stack.frames)
    }

    pub fn process(&self, stack: StackIndex) -> Option<ProcessIndex> {
        let process = self.stacks[stack.0 as usize].process;
        (process != u32::MAX).then_some(ProcessIndex(process))
    }

    /// Replaces the content of `frames` with the stack's frames, outermost first.
    pub fn frames_into(&self, stack: StackIndex, frames: &mut Vec<FrameIndex>) {
        frames.clear();
        let mut at = stack;
        while at != StackIndex::NONE {
            frames.extend(self.tip(at).rev().map(FrameIndex));
            at = self.parent(at);
        }
        frames.reverse();
    }

    /// The deepest stack that both contain.
    pub fn common(&self, mut a: StackIndex, mut b: StackIndex) -> StackIndex {
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
