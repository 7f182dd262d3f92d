//! From the segments of one thread to slices: calls of functions, each with its begin and end.
//!
//! At depth i a slice goes on from one stack to the next if the functions at all depths up to i are
//! equal, the call sites at all depths above are equal, and no turn of an event loop began in between.

use super::names::Names;
use super::stacks::Stacks;
use super::{
    Amounts, Frame, FrameIndex, Segment, SegmentKind, Slice, StackIndex, ThreadIndex, Trace,
};

/// Frames to compare when a truncated stack is laid beside the one before it.
const ALIGN_LIMIT: usize = 512;

#[derive(Clone, Copy, Debug)]
struct Open {
    /// Where it was first seen, and where it is now.
    first: FrameIndex,
    now: FrameIndex,
    begin_ns: u64,
    /// Of closed callees.
    callees: Amounts,
    own: Amounts,
    self_ns: u64,
    blocked_ns: u64,
    gap_ns: u64,
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
    /// The stack that `open` shows.
    stack: StackIndex,
    /// Frames of the event loop, as its last wait showed them.
    event_loop: Vec<FrameIndex>,
    /// A gap whose other side is not known yet.
    gap: Option<Segment>,
    frames: Vec<FrameIndex>,
    end_ns: u64,
}

impl Slicer {
    pub fn new(thread: ThreadIndex) -> Slicer {
        Slicer {
            thread,
            open: Vec::new(),
            stack: StackIndex::NONE,
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
            }
            return;
        }
        if segment.new_turn || segment.stack != self.stack || self.gap.is_some() {
            self.change(segment, stacks, names, out);
        }
        if let SegmentKind::Blocked(probe) = segment.kind {
            let wall = segment.wall_ns();
            out.close(&Slice {
                thread: self.thread,
                depth: self.open.len() as u32,
                frame: names.probe_frame(probe),
                begin_ns: segment.begin_ns,
                end_ns: segment.end_ns,
                total: segment.amounts,
                own: segment.amounts,
                self_ns: 0,
                blocked_ns: wall,
                gap_ns: 0,
                blocking: Some(probe),
                gap: false,
                arg: segment.arg,
                result: segment.result,
                waker_tid: segment.waker_tid,
            });
            if let Some(leaf) = self.open.last_mut() {
                leaf.callees.add(&segment.amounts);
                leaf.blocked_ns += wall;
            }
            if probe.category() == Some(stackbeat_core::probe::Category::Poll) {
                self.event_loop.clear();
                self.event_loop
                    .extend(self.open.iter().map(|open| open.now));
            }
        } else if let Some(leaf) = self.open.last_mut() {
            leaf.own.add(&segment.amounts);
            leaf.self_ns += segment.wall_ns();
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
        let mut frames = std::mem::take(&mut self.frames);
        stacks.frames_into(segment.stack, &mut frames);
        self.align(&mut frames, names);
        let mut keep = self.common(&frames, names);
        if segment.new_turn {
            keep = keep.min(common(names, &self.event_loop, |i| {
                self.open.get(i).map(|open| open.now)
            }));
        }
        if let Some(gap) = self.gap.take() {
            self.close_gap(&gap, keep, names, out);
        }
        self.close(keep, segment.begin_ns, out);
        for (open, frame) in self.open.iter_mut().zip(&frames) {
            open.now = *frame;
        }
        for frame in &frames[keep..] {
            out.open(self.open.len() as u32, *frame, segment.begin_ns);
            self.open.push(Open {
                first: *frame,
                now: *frame,
                begin_ns: segment.begin_ns,
                callees: Amounts::default(),
                own: Amounts::default(),
                self_ns: 0,
                blocked_ns: 0,
                gap_ns: 0,
            });
        }
        self.stack = segment.stack;
        self.frames = frames;
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
            total: gap.amounts,
            own: gap.amounts,
            self_ns: 0,
            blocked_ns: 0,
            gap_ns: wall,
            blocking: None,
            gap: true,
            arg: None,
            result: None,
            waker_tid: None,
        });
        if let Some(leaf) = self.open.last_mut() {
            leaf.callees.add(&gap.amounts);
            leaf.gap_ns += wall;
        }
    }

    fn close(&mut self, keep: usize, end_ns: u64, out: &mut impl SliceSink) {
        while self.open.len() > keep {
            let Some(open) = self.open.pop() else { return };
            let mut total = open.callees;
            total.add(&open.own);
            if let Some(caller) = self.open.last_mut() {
                caller.callees.add(&total);
                caller.blocked_ns += open.blocked_ns;
                caller.gap_ns += open.gap_ns;
            }
            out.close(&Slice {
                thread: self.thread,
                depth: self.open.len() as u32,
                frame: open.first,
                begin_ns: open.begin_ns,
                end_ns,
                total,
                own: open.own,
                self_ns: open.self_ns,
                blocked_ns: open.blocked_ns,
                gap_ns: open.gap_ns,
                blocking: None,
                gap: false,
                arg: None,
                result: None,
                waker_tid: None,
            });
        }
    }

    /// How many of the open slices go on in `frames`.
    fn common(&self, frames: &[FrameIndex], names: &Names) -> usize {
        common(names, frames, |i| self.open.get(i).map(|open| open.now))
    }

    /// A stack without its root is laid beside the one before it: where a run of frames from one's
    /// outermost known frame stands in the other, they are the same calls, and what the open slices
    /// know further out stays.
    fn align(&self, frames: &mut Vec<FrameIndex>, names: &Names) {
        let truncated = |frame: FrameIndex| names.frames[frame.0 as usize].truncated;
        let Some(first) = frames.first() else { return };
        if !truncated(*first) || self.open.is_empty() {
            return;
        }
        let known = &frames[1..];
        let open_is_truncated = truncated(self.open[0].now);
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
            return;
        }
        if inwards {
            let outer = old.len() - old_known.len() + skip;
            frames.splice(..1, old[..outer].iter().copied());
        } else {
            frames.drain(1..=skip);
        }
    }
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
