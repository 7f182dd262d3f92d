//! From the segments of one thread to slices: calls of functions, each with its begin and end.
//!
//! At depth i a slice goes on from one stack to the next if the functions at all depths up to i are
//! equal, the call sites at all depths above are equal, and no iteration of an event loop began in between.

use super::names::Names;
use super::stacks::Stacks;
use super::{
    Frame, FrameIndex, Metrics, Segment, SegmentKind, Slice, StackIndex, ThreadIndex, Trace, each,
};

/// Frames to compare when a truncated stack is laid beside the one before it.
const ALIGN_LIMIT: usize = 512;

/// What a thread has spent so far. What a slice spent with its callees is the difference between its end
/// and its begin, so that nothing has to be handed up from callee to caller.
#[derive(Clone, Copy, Debug, Default)]
struct SpentSoFar {
    metrics: Metrics,
    blocked_ns: u64,
    gap_ns: u64,
}

/// Slices that began at the same moment: they differ in their frames only.
#[derive(Clone, Copy, Debug)]
struct Group {
    begin_ns: u64,
    spent_before: SpentSoFar,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    /// Where it was first seen, and where it is now.
    first: FrameIndex,
    now: FrameIndex,
    /// Index into `Slicer::groups`.
    group: u32,
}

/// What a slice has spent itself, kept apart because most slices only call others.
#[derive(Clone, Copy, Debug, Default)]
struct Own {
    depth: u32,
    metrics: Metrics,
    self_ns: u64,
}

/// Takes slices as they begin and end. For one thread, times never go back: what ends at a moment comes
/// before what begins there, callees end before callers and begin after them.
pub trait SliceSink {
    /// A call of a function began. Blocking calls and gaps are only told when they are over.
    fn open(&mut self, depth: u32, frame: FrameIndex, begin_ns: u64) {
        let _ = (depth, frame, begin_ns);
    }

    /// A slice is over.
    fn close(&mut self, slice: &Slice);
}

impl<F: FnMut(&Slice)> SliceSink for F {
    fn close(&mut self, slice: &Slice) {
        self(slice);
    }
}

/// Keeps the open slices of one thread.
#[derive(Debug)]
pub struct Slicer {
    thread: ThreadIndex,
    open: Vec<Open>,
    /// Those that open slices belong to, in the order of their begin.
    groups: Vec<Group>,
    /// Of those open slices that have spent something, outermost first.
    own: Vec<Own>,
    spent: SpentSoFar,
    /// The stack that `open` shows.
    stack: StackIndex,
    /// The nodes of that stack, outermost first; empty when `open` shows other frames than these.
    nodes: Vec<StackIndex>,
    /// Frames of the event loop, as its last wait showed them.
    event_loop: Vec<FrameIndex>,
    /// A gap whose other side is not known yet.
    gap: Option<Segment>,
    /// Frames of a new stack, beyond those that it has in common with the one before.
    frames: Vec<FrameIndex>,
    end_ns: u64,
}

impl Slicer {
    /// For the segments of this thread.
    pub fn new(thread: ThreadIndex) -> Slicer {
        Slicer {
            thread,
            open: Vec::new(),
            groups: Vec::new(),
            own: Vec::new(),
            spent: SpentSoFar::default(),
            stack: StackIndex::NONE,
            nodes: Vec::new(),
            event_loop: Vec::new(),
            gap: None,
            frames: Vec::new(),
            end_ns: 0,
        }
    }

    /// Takes the thread's next segment.
    pub fn advance(&mut self, trace: &Trace, segment: &Segment, out: &mut impl SliceSink) {
        self.segment(segment, &trace.stacks, &trace.names, out);
    }

    /// The thread has no more segments.
    pub fn end(&mut self, trace: &Trace, out: &mut impl SliceSink) {
        self.finish(&trace.names, out);
    }

    /// Lets the next stack be compared frame by frame.
    #[cfg(test)]
    pub(super) fn forget_nodes(&mut self) {
        self.nodes.clear();
    }

    /// Takes the next segment; closed slices go to `out`, callees before callers.
    pub(super) fn segment(
        &mut self,
        segment: &Segment,
        stacks: &Stacks,
        names: &Names,
        out: &mut impl SliceSink,
    ) {
        self.end_ns = segment.end_ns;
        if segment.kind == SegmentKind::Gap {
            // Which slices last through it shows the segment behind it.
            if let Some(gap) = self.gap.replace(*segment) {
                self.close_gap(&gap, 0, names, out);
                self.nodes.clear();
            }
            return;
        }
        if segment.new_iteration || segment.stack != self.stack || self.gap.is_some() {
            self.change(segment, stacks, names, out);
        }
        if let SegmentKind::Blocked(probe) = segment.kind
            && !segment.runs()
        {
            let wall = segment.wall_ns();
            out.close(&Slice {
                thread: self.thread,
                depth: self.open.len() as u32,
                frame: names.probe_frame(probe),
                begin_ns: segment.begin_ns,
                end_ns: segment.end_ns,
                total: segment.metrics,
                own: segment.metrics,
                self_ns: 0,
                blocked_ns: wall,
                gap_ns: 0,
                blocking: Some(probe),
                gap: false,
                arg: segment.arg,
                result: segment.result,
                waker_tid: segment.waker_tid,
                is_inferred: segment.is_inferred,
            });
            add(&mut self.spent.metrics, &segment.metrics);
            self.spent.blocked_ns += wall;
            if probe.category() == Some(stackbeat_core::probe::Category::Poll) {
                self.event_loop.clear();
                self.event_loop
                    .extend(self.open.iter().map(|open| open.now));
            }
        } else if let Some(depth) = self.open.len().checked_sub(1) {
            add(&mut self.spent.metrics, &segment.metrics);
            self.spent.gap_ns += segment.unseen_ns();
            let depth = depth as u32;
            match self.own.last_mut() {
                Some(own) if own.depth == depth => {
                    add(&mut own.metrics, &segment.metrics);
                    own.self_ns += segment.running_ns();
                }
                _ => self.own.push(Own {
                    depth,
                    metrics: segment.metrics,
                    self_ns: segment.running_ns(),
                }),
            }
        }
    }

    /// The thread has ended.
    pub(super) fn finish(&mut self, names: &Names, out: &mut impl SliceSink) {
        if let Some(gap) = self.gap.take() {
            self.close_gap(&gap, 0, names, out);
        }
        self.close(0, self.end_ns, out);
    }

    /// Closes what the new segment's stack does not continue and opens the rest.
    fn change(
        &mut self,
        segment: &Segment,
        stacks: &Stacks,
        names: &Names,
        out: &mut impl SliceSink,
    ) {
        let mut outer = self.share_nodes(segment.stack, stacks);
        if self.is_truncated(outer, names) {
            outer = 0;
            stacks.frames_into(segment.stack, &mut self.frames);
            if self.align(names) {
                self.nodes.clear();
            }
        }
        let mut keep = outer + self.common(outer, names);
        if segment.new_iteration {
            keep = keep.min(common(names, &self.event_loop, |i| {
                self.open.get(i).map(|open| open.now)
            }));
        }
        if keep < outer {
            let again = self.open[keep..outer].iter().map(|open| open.now);
            self.frames.splice(..0, again);
            outer = keep;
        }
        if let Some(gap) = self.gap.take() {
            self.close_gap(&gap, keep, names, out);
        }
        self.close(keep, segment.begin_ns, out);
        let (kept, new) = self.frames.split_at(keep - outer);
        for (open, frame) in self.open[outer..].iter_mut().zip(kept) {
            open.now = *frame;
        }
        if !new.is_empty() {
            let group = self.groups.len() as u32;
            self.groups.push(Group {
                begin_ns: segment.begin_ns,
                spent_before: self.spent,
            });
            for frame in new {
                out.open(self.open.len() as u32, *frame, segment.begin_ns);
                self.open.push(Open {
                    first: *frame,
                    now: *frame,
                    group,
                });
            }
        }
        self.stack = segment.stack;
    }

    /// How many frames, from the outermost on, `stack` shares with the open slices because their nodes
    /// are the same; the others come to stand in `frames`. `nodes` is that of the new stack then.
    fn share_nodes(&mut self, stack: StackIndex, stacks: &Stacks) -> usize {
        self.frames.clear();
        let known = self.nodes.len();
        let count = match stack {
            StackIndex::NONE => 0,
            _ => stacks.depth(stack) + 1,
        };
        self.nodes.resize(count, StackIndex::NONE);
        let mut at = stack;
        while at != StackIndex::NONE {
            let depth = stacks.depth(at);
            if depth < known && self.nodes[depth] == at {
                break;
            }
            self.nodes[depth] = at;
            self.frames.extend(stacks.tip(at).rev().map(FrameIndex));
            at = stacks.parent(at);
        }
        self.frames.reverse();
        stacks.level(at)
    }

    /// Whether the new stack has lost its root: `outer` of its frames are those of the open slices, the
    /// others stand in `frames`.
    fn is_truncated(&self, outer: usize, names: &Names) -> bool {
        let first = match outer {
            0 => self.frames.first(),
            _ => self.open.first().map(|open| &open.now),
        };
        first.is_some_and(|frame| names.frames[frame.0 as usize].truncated)
    }

    /// Closes all slices but the outermost `keep` at the gap's begin, and writes the gap itself as
    /// a slice within them.
    fn close_gap(&mut self, gap: &Segment, keep: usize, names: &Names, out: &mut impl SliceSink) {
        self.close(keep, gap.begin_ns, out);
        let wall = gap.wall_ns();
        out.close(&Slice {
            thread: self.thread,
            depth: self.open.len() as u32,
            frame: names.gap_frame(),
            begin_ns: gap.begin_ns,
            end_ns: gap.end_ns,
            total: gap.metrics,
            own: gap.metrics,
            self_ns: 0,
            blocked_ns: 0,
            gap_ns: wall,
            blocking: None,
            gap: true,
            arg: None,
            result: None,
            waker_tid: None,
            is_inferred: false,
        });
        add(&mut self.spent.metrics, &gap.metrics);
        self.spent.gap_ns += wall;
    }

    fn close(&mut self, keep: usize, end_ns: u64, out: &mut impl SliceSink) {
        if self.open.len() <= keep {
            return;
        }
        let mut group = u32::MAX;
        let mut slice = Slice {
            thread: self.thread,
            depth: 0,
            frame: FrameIndex(0),
            begin_ns: 0,
            end_ns,
            total: Metrics::default(),
            own: Metrics::default(),
            self_ns: 0,
            blocked_ns: 0,
            gap_ns: 0,
            blocking: None,
            gap: false,
            arg: None,
            result: None,
            waker_tid: None,
            is_inferred: false,
        };
        for (depth, open) in self.open.iter().enumerate().skip(keep).rev() {
            if open.group != group {
                group = open.group;
                let Group {
                    begin_ns,
                    spent_before,
                } = &self.groups[group as usize];
                slice.begin_ns = *begin_ns;
                slice.total = difference(&self.spent.metrics, &spent_before.metrics);
                slice.blocked_ns = self.spent.blocked_ns - spent_before.blocked_ns;
                slice.gap_ns = self.spent.gap_ns - spent_before.gap_ns;
            }
            let depth = depth as u32;
            slice.depth = depth;
            slice.frame = open.first;
            match self.own.pop_if(|own| own.depth == depth) {
                Some(own) => {
                    slice.own = own.metrics;
                    slice.self_ns = own.self_ns;
                    out.close(&slice);
                    slice.own = Metrics::default();
                    slice.self_ns = 0;
                }
                None => out.close(&slice),
            }
        }
        self.open.truncate(keep);
        let groups = self.open.last().map_or(0, |open| open.group + 1);
        self.groups.truncate(groups as usize);
    }

    /// How many of the open slices beyond `outer` go on in `frames`.
    fn common(&self, outer: usize, names: &Names) -> usize {
        let open = &self.open[outer..];
        common(names, &self.frames, |i| open.get(i).map(|open| open.now))
    }

    /// The stack in `frames`, which has lost its root, is laid beside the one before it: where a run of
    /// frames from one's outermost known frame stands in the other, they are the same calls, and what the
    /// open slices know further out stays. True when that changed `frames`.
    fn align(&mut self, names: &Names) -> bool {
        let truncated = |frame: FrameIndex| names.frames[frame.0 as usize].truncated;
        let frames = &mut self.frames;
        let (Some(open), Some(known)) = (self.open.first(), frames.get(1..)) else {
            return false;
        };
        let open_is_truncated = truncated(open.now);
        let old: Vec<FrameIndex> = self.open.iter().map(|open| open.now).collect();
        let old_known = if open_is_truncated {
            &old[1..]
        } else {
            &old[..]
        };
        let run = |a: &[FrameIndex], b: &[FrameIndex]| common(names, a, |i| b.get(i).copied());
        // The new stack begins further in than the old one …
        let mut best = (0, 0, true);
        for skip in 0..old_known.len().min(ALIGN_LIMIT) {
            let length = run(known, &old_known[skip..]);
            if length > best.0 {
                best = (length, skip, true);
            }
        }
        // … or further out, which only a truncated old one leaves open.
        if open_is_truncated {
            for skip in 1..known.len().min(ALIGN_LIMIT) {
                let length = run(&known[skip..], old_known);
                if length > best.0 {
                    best = (length, skip, false);
                }
            }
        }
        let (length, skip, inwards) = best;
        if length == 0 {
            return false;
        }
        if inwards {
            let outer = &old[..old.len() - old_known.len() + skip];
            if frames[..1] == *outer {
                return false;
            }
            frames.splice(..1, outer.iter().copied());
        } else {
            frames.drain(1..=skip);
        }
        true
    }
}

/// Adds up a thread's amounts, whose sums are counters of 64 bits.
#[inline]
fn add(to: &mut Metrics, more: &Metrics) {
    each(to, more, u64::wrapping_add);
}

#[inline]
fn difference(now: &Metrics, then: &Metrics) -> Metrics {
    let mut metrics = *now;
    each(&mut metrics, then, u64::wrapping_sub);
    metrics
}

/// How many frames, from the outermost on, belong to the same calls in both stacks.
fn common(names: &Names, new: &[FrameIndex], old: impl Fn(usize) -> Option<FrameIndex>) -> usize {
    let frame = |index: FrameIndex| -> &Frame { &names.frames[index.0 as usize] };
    for (i, now) in new.iter().enumerate() {
        let Some(then) = old(i) else { return i };
        let (now, then) = (frame(*now), frame(then));
        if now.function != then.function {
            return i;
        }
        // Is the next frame called from the same place?
        let next = new.get(i + 1).map(|next| frame(*next).inlined);
        let next_old = old(i + 1).map(|next| frame(next).inlined);
        let same = match (next, next_old) {
            (Some(true), Some(true)) => now.line == then.line,
            (Some(false), Some(false)) => now.address == then.address,
            _ => false,
        };
        if !same {
            return i + 1;
        }
    }
    new.len()
}
