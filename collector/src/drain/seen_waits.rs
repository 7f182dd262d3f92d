//! Waits that were seen from outside: their stacks become nodes of the CallstackTable, and threads that wait
//! in the same place share a packet.

use std::collections::BTreeMap;

use stackbeat_core::cycles::Cycles;
use stackbeat_core::ids::{Upid, Utid};
use stackbeat_core::shm::callstack::{NodeValue, Table, root_address};
use stackbeat_core::shm::layout::{node_id, node_kind};
use stackbeat_core::shm::mapping::Mapping;
use stackbeat_core::sync::Ordering;
use stackbeat_proto::v1::{self, packet, waits};

use super::Drainer;
use crate::host::Stack;

/// When a wait began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// As its hook wrote it down.
    Cycles(Cycles),
    Ns(u64),
}

/// A wait that was seen from outside.
#[derive(Clone, Debug)]
pub(crate) struct SeenWait {
    pub utid: Utid,
    pub upid: Upid,
    /// The process' module epoch when the stack was walked.
    pub epoch: u32,
    pub probe: u8,
    /// Number of the system call + 1; 0: not known.
    pub system_call: u32,
    pub begin: Begin,
    /// 0: it goes on.
    pub end_ns: u64,
    pub arg: u64,
    /// It may be several waits in the same place.
    pub is_inferred: bool,
    /// Without frames when it could not be walked.
    pub stack: Stack,
}

impl Drainer {
    /// Queues what was seen. Modules first: the frames lie in them.
    pub(crate) fn take_waits(
        &mut self,
        mapping: &Mapping,
        modules: Vec<v1::Module>,
        seen: &[SeenWait],
    ) {
        for module in modules {
            self.lifecycle.add_module(module);
        }
        let mut groups: BTreeMap<(u32, u32, u32), Vec<waits::Wait>> = BTreeMap::new();
        for wait in seen {
            self.want_variable(wait.upid, wait.probe, wait.arg);
            let begin_ns = match wait.begin {
                Begin::Cycles(cycles) => {
                    let ns = self.converter.to_ns(cycles);
                    self.lifecycle.tells_wait(wait.utid, ns);
                    ns
                }
                Begin::Ns(ns) => ns,
            };
            let key = (
                node_of(mapping, (wait.upid, wait.epoch), &wait.stack),
                u32::from(wait.probe),
                wait.system_call,
            );
            groups.entry(key).or_default().push(waits::Wait {
                utid: wait.utid.0,
                begin_ns,
                end_ns: wait.end_ns,
                arg: wait.arg,
                inferred: wait.is_inferred,
            });
        }
        for ((node, probe, system_call), wait) in groups {
            self.lifecycle.say(packet::Body::Waits(v1::Waits {
                node,
                probe,
                system_call,
                wait,
            }));
        }
    }
}

/// The id of a stack's node, made if there is none. 0: no stack, or no room. Only the drain may call this,
/// because it is the one that begins new generations.
pub(super) fn node_of(mapping: &Mapping, (upid, epoch): (Upid, u32), stack: &Stack) -> u32 {
    let generation = mapping.control().generation.load(Ordering::Acquire);
    let Some(table) = Table::of(mapping, generation).filter(|_| !stack.frames.is_empty()) else {
        return 0;
    };
    let root = (root_address(upid, epoch), node_kind::ROOT);
    let cut = (!stack.is_whole).then_some((0, node_kind::TRUNCATED));
    let frames = stack.frames.iter().copied();
    let mut node = 0;
    for (address, kind) in std::iter::once(root).chain(cut).chain(frames) {
        let value = NodeValue {
            parent: node,
            address,
            kind,
        };
        match table.insert(value) {
            Ok(next) => node = next,
            Err(_) => return 0,
        }
    }
    node_id(generation, table.nodes.len() as u32, node)
}
