//! Waits that the collector saw from outside: evidence for stretches without samples.

use stackbeat_core::probe::Probe;
use stackbeat_proto::v1;

use super::stacks::Stacks;
use super::{ProbeId, StackIndex, ThreadIndex};

/// A wait seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    pub thread: ThreadIndex,
    pub begin_ns: u64,
    /// `u64::MAX`: not seen to end.
    pub end_ns: u64,
    pub probe: ProbeId,
    pub arg: u64,
    pub stack: StackIndex,
    /// A hook published it, so it is one.
    pub is_hooked: bool,
    /// It may be several in the same place.
    pub is_inferred: bool,
}

/// By so much the begins of a thread and of its first wait may differ that were one moment, because both were
/// made from cycles apart, ns.
const SAME_NS: u64 = 10_000_000;

/// Waits as they are read; nodes become stacks when all are known.
#[derive(Debug, Default)]
pub(super) struct Loading {
    waits: Vec<(Wait, u32)>,
}

impl Loading {
    /// Takes a packet. `index` finds threads.
    pub(crate) fn add(&mut self, packet: &v1::Waits, mut index: impl FnMut(u32) -> ThreadIndex) {
        // A number that does not fit is none that a newer version would write either.
        let probe = ProbeId(u8::try_from(packet.probe).unwrap_or(0));
        let is_outside = matches!(
            probe.known(),
            Some(Probe::BlockedOutside | Probe::PageFault)
        );
        self.waits.extend(packet.wait.iter().map(|wait| {
            let wait = Wait {
                thread: index(wait.utid),
                begin_ns: wait.begin_ns,
                end_ns: match wait.end_ns {
                    0 => u64::MAX,
                    known => known,
                },
                probe,
                arg: wait.arg,
                stack: StackIndex::NONE,
                is_hooked: packet.system_call == 0 && !is_outside,
                is_inferred: wait.inferred,
            };
            (wait, packet.node)
        }));
    }

    /// The nodes, and when.
    pub(crate) fn uses(&self) -> impl Iterator<Item = (u32, u64)> {
        (self.waits.iter()).map(|(wait, node)| (*node, wait.begin_ns))
    }

    /// By thread and begin, each once: the last word about it. `start_ns` gives the begins of threads.
    pub(crate) fn finish(
        mut self,
        stacks: &Stacks,
        start_ns: impl Fn(ThreadIndex) -> u64,
    ) -> Vec<Wait> {
        for (wait, node) in &mut self.waits {
            wait.stack = stacks.of_node(*node, wait.begin_ns);
            let start_ns = start_ns(wait.thread);
            if start_ns.saturating_sub(wait.begin_ns) < SAME_NS {
                wait.begin_ns = wait.begin_ns.max(start_ns);
            }
        }
        self.waits
            .sort_by_key(|(wait, _)| (wait.thread, wait.begin_ns));
        let mut waits: Vec<Wait> = Vec::with_capacity(self.waits.len());
        for (mut wait, _) in self.waits {
            wait.probe = stacks.probe(wait.probe, wait.stack);
            match waits.last_mut() {
                Some(last) if (last.thread, last.begin_ns) == (wait.thread, wait.begin_ns) => {
                    *last = wait;
                }
                _ => waits.push(wait),
            }
        }
        waits
    }
}

/// A thread's waits, in order.
pub(super) fn of_thread(waits: &[Wait], thread: ThreadIndex) -> &[Wait] {
    let begin = waits.partition_point(|wait| wait.thread < thread);
    let rest = &waits[begin..];
    &rest[..rest.partition_point(|wait| wait.thread == thread)]
}

/// A thread's waits that begin between two moments. Whatever came next, it was the end of one.
pub(super) fn between(
    waits: &[Wait],
    thread: ThreadIndex,
    from: u64,
    to: u64,
) -> impl Iterator<Item = Wait> {
    let waits = of_thread(waits, thread);
    let waits = &waits[waits.partition_point(|wait| wait.begin_ns < from)..];
    let next = waits.iter().skip(1).map(|next| next.begin_ns);
    let with_next = waits.iter().zip(next.chain([to]));
    with_next
        .take_while(move |(wait, _)| wait.begin_ns < to)
        .map(move |(wait, next)| Wait {
            end_ns: wait.end_ns.min(next).clamp(wait.begin_ns, to),
            ..*wait
        })
}
