//! Frames that are not native: which functions of a runtime (CPython, Ruby) stand where on a thread's stack.
//!
//! Stands between the walk of the native stack and the CallstackTable (`agent::stack`). A runtime keeps
//! frames of its own, apart from the native stack. Those that one call of its interpreter runs form a *run*,
//! which is anchored at an address on the native stack: the native frame around that address is the
//! interpreter's, and the run takes its place.
//!
//! Compiled code of a runtime has native frames, but no file: its runtime registers it
//! (`native::generated_code`), and its frames are named by that.
//!
//! - `cpython`: finds the runs of a thread in CPython's structures
//! - `ruby`: the same in Ruby's
//! - `frame_sources`: runtimes that find the runs of a thread by functions of their own
//! - `own_methods`: methods that runtimes tell of by themselves
//! - `memory`: reads memory that may not be there
//! - `lines`: line tables, for whoever writes the trace
//! - `key`: what identifies a method
//! - `found_once`: a runtime that was found in this process
//!
//! # Signal safety
//! All of it runs in captures: no allocation, no lock, no call into the runtime.

pub mod cpython;
mod found_once;
pub mod frame_sources;
mod key;
pub mod lines;
pub mod memory;
pub mod own_methods;
pub mod ruby;

use crate::address::{Bias, Svma};
use crate::shm::callstack::Full;
use crate::shm::layout::node_kind;
use crate::shm::mapping::Mapping;
use crate::shm::methods::{Methods, managed_address};
use crate::shm::record_format::NAME_BYTES;
use core::sync::atomic::Ordering;
use frame_sources::NativeFrames;

/// Most managed frames of one stack; outer ones beyond that are left out.
const MOST_FRAMES: usize = 1024;
/// Most runs of one stack.
const MOST_RUNS: usize = 1024;

/// A loaded file that may be an interpreter.
#[derive(Clone, Copy, Debug)]
pub struct Module<'a> {
    /// Its path.
    pub path: &'a [u8],
    /// Its dynamic section; 0: it has none.
    pub dynamic: Svma,
    /// Where it is loaded.
    pub bias: Bias,
    /// Where its code lies.
    pub text: (u64, u64),
    /// Its `.eh_frame_hdr`; 0: it has none.
    pub unwind_table: Svma,
}

/// One managed frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Frame {
    /// The method's number in the shared table; 0: not known.
    pub method: u32,
    /// Bytes from the begin of the method's code; `u32::MAX`: not known.
    pub position: u32,
    /// It waits for the frame above it, which it has not called.
    pub is_awaiting: bool,
}

impl Frame {
    /// A call.
    pub fn new(method: u32, position: u32) -> Frame {
        Frame {
            method,
            position,
            is_awaiting: false,
        }
    }

    /// The address field of the frame's node.
    pub fn address(&self) -> u64 {
        managed_address(self.method, self.position)
    }

    /// The kind of the frame's node.
    pub fn kind(&self) -> u32 {
        match self.is_awaiting {
            true => node_kind::MANAGED_AWAITING,
            false => node_kind::MANAGED_INTERPRETED,
        }
    }
}

/// Frames that one call of the interpreter runs.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Run {
    /// An address in the native frame of the interpreter.
    anchor: u64,
    /// So many frames from here on, leaf first.
    first: u32,
    count: u32,
}

/// The managed frames of one stack, leaf first. All-zero is a valid one without frames.
#[derive(Debug)]
#[repr(C)]
pub struct Frames {
    frames_len: u32,
    runs_len: u32,
    /// Frames that were looked at.
    room_taken: u32,
    /// The native stack has more frames than were walked: outer ones are missing.
    is_cut: bool,
    frames: [Frame; MOST_FRAMES],
    runs: [Run; MOST_RUNS],
}

impl Frames {
    /// Takes all away.
    pub fn clear(&mut self) {
        self.frames_len = 0;
        self.runs_len = 0;
        self.room_taken = 0;
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.frames_len as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.runs_len == 0
    }

    /// Begins the next outer run. False: there are too many.
    fn begin_run(&mut self, anchor: u64) -> bool {
        let Some(run) = self.runs.get_mut(self.runs_len as usize) else {
            return false;
        };
        *run = Run {
            anchor,
            first: self.frames_len,
            count: 0,
        };
        self.runs_len += 1;
        true
    }

    /// Adds the next outer frame to the last run. False: there are too many.
    fn push(&mut self, frame: Frame) -> bool {
        let (Some(place), Some(run)) = (
            self.frames.get_mut(self.frames_len as usize),
            last(&mut self.runs, self.runs_len),
        ) else {
            return false;
        };
        *place = frame;
        run.count += 1;
        self.frames_len += 1;
        true
    }

    /// Takes the outer frames of the last run away: those behind so many of all.
    fn shorten(&mut self, frames: usize) {
        if let Some(run) = last(&mut self.runs, self.runs_len) {
            let gone = self.frames_len.saturating_sub(frames as u32).min(run.count);
            run.count -= gone;
            self.frames_len -= gone;
        }
    }

    /// Turns the order of the outer frames round: of those behind so many of all.
    fn turn_round(&mut self, frames: usize) {
        if let Some(frames) = self.frames.get_mut(frames..self.frames_len as usize) {
            frames.reverse();
        }
    }

    /// Gives the last run its anchor.
    fn anchor_last(&mut self, anchor: u64) {
        if let Some(run) = last(&mut self.runs, self.runs_len) {
            run.anchor = anchor;
        }
    }

    /// Brings the runs of several sources into order: those of each are.
    fn sort(&mut self) {
        let runs = self.runs.get_mut(..self.runs_len as usize);
        let runs = runs.unwrap_or_default();
        for i in 1..runs.len() {
            let mut at = i;
            while let Some(outer) = at.checked_sub(1)
                && runs[outer].anchor > runs[at].anchor
            {
                runs.swap(outer, at);
                at = outer;
            }
        }
    }

    /// Counts a frame that is looked at. False: there were too many.
    fn take_room(&mut self) -> bool {
        self.room_taken += 1;
        self.room_taken as usize <= 2 * MOST_FRAMES
    }

    /// What is there now, for [`Frames::go_back`].
    fn mark(&self) -> (u32, u32) {
        (self.runs_len, self.frames_len)
    }

    /// Takes away what came after a mark.
    fn go_back(&mut self, (runs, frames): (u32, u32)) {
        self.runs_len = runs;
        self.frames_len = frames;
    }

    /// A run, counted from the leaf: its anchor and its frames, leaf first.
    fn run(&self, i: usize) -> Option<(u64, &[Frame])> {
        let run = self.runs.get(..self.runs_len as usize)?.get(i)?;
        let frames = self.frames.get(run.first as usize..)?;
        Some((run.anchor, frames.get(..run.count as usize)?))
    }
}

/// The last of the first `len`.
fn last(runs: &mut [Run], len: u32) -> Option<&mut Run> {
    runs.get_mut((len as usize).checked_sub(1)?)
}

/// Puts managed frames into a native stack, from its root to its leaf.
#[derive(Debug)]
pub struct Placing<'a> {
    frames: Option<&'a Frames>,
    /// Runs that are not placed yet: the outermost so many.
    runs: usize,
    /// Where the native frame above the next one begins.
    above: u64,
}

impl<'a> Placing<'a> {
    /// Begins below the native frame whose stack pointer is `above`, or at the stack's upper end.
    #[inline]
    pub fn new(frames: Option<&'a Frames>, above: u64) -> Placing<'a> {
        Placing {
            frames,
            runs: frames.map_or(0, |frames| frames.runs_len as usize),
            above,
        }
    }

    /// Goes on to the next native frame, whose stack pointer is `sp`. Calls `each` with the managed frames
    /// that take its place, outermost first. False: there are none, and the native frame stays.
    #[inline]
    pub fn next(&mut self, sp: u64, mut each: impl FnMut(&Frame)) -> bool {
        let above = core::mem::replace(&mut self.above, sp);
        let mut is_interpreter = false;
        while let Some(last) = self.runs.checked_sub(1)
            && let Some((anchor, frames)) = self.frames.and_then(|frames| frames.run(last))
            && anchor >= sp
        {
            self.runs = last;
            // Those of native frames that the walk did not find are left out.
            if anchor < above {
                is_interpreter |= !frames.is_empty();
                frames.iter().rev().for_each(&mut each);
            }
        }
        is_interpreter
    }
}

/// What a thread keeps for its managed frames. All-zero is a valid one.
#[derive(Debug)]
#[repr(C)]
pub struct Thread {
    /// For threads whose faults nobody catches.
    copied: memory::Copied<64>,
    cpython: cpython::Thread,
    ruby: ruby::Thread,
    /// Those that the last search found.
    pub frames: Frames,
}

impl Thread {
    /// A new one on the heap, for searches in other processes.
    pub fn boxed() -> std::boxed::Box<Thread> {
        // SAFETY: all-zero is a valid one.
        unsafe { crate::unwind::walk::zeroed() }
    }

    /// Finds the calling thread's managed frames; `None`: there are none. Methods get their numbers in the
    /// table of `mapping`, which is that of this session of the process; `native` are the frames of the
    /// native stack, of which outer ones are missing if it `is_cut`, `blocked` the signals that the program
    /// blocks, and `sp` is where its stack pointer stands.
    #[inline]
    pub fn find(
        &mut self,
        mapping: &Mapping,
        native: NativeFrames,
        is_cut: bool,
        session: u32,
        blocked: u64,
        sp: u64,
    ) -> (Option<&Frames>, Found) {
        if cpython::runtime().is_none() && ruby::runtime().is_none() && !frame_sources::has_some() {
            return (None, Found::default());
        }
        let addresses = (0..).map_while(native).map(|[pc, _]| pc);
        let wanted = Wanted::by(session, addresses);
        if wanted.is_empty() {
            return (None, Found::default());
        }
        self.frames.is_cut = is_cut;
        let found = self.find_in(&wanted, mapping, native, blocked, sp);
        ((!self.frames.is_empty()).then_some(&self.frames), found)
    }

    /// What the program calls the calling thread, where a runtime knows it: NUL padded.
    pub fn name(&self) -> Option<&[u8; NAME_BYTES]> {
        self.cpython.name.get()
    }

    /// Forgets what is the thread's: the memory is another one's from now on.
    pub fn forget(&mut self) {
        self.cpython.forget();
    }

    #[cold]
    #[inline(never)]
    fn find_in(
        &mut self,
        wanted: &Wanted,
        mapping: &Mapping,
        native: NativeFrames,
        blocked: u64,
        sp: u64,
    ) -> Found {
        self.frames.clear();
        self.copied.forget();
        // Without room for it, methods get no number, and that is counted.
        let methods = &Methods::mapped(mapping);
        let mut memory = match memory::Guarded::begin(blocked, sp as usize) {
            Some(guarded) => memory::Own::Guarded(guarded),
            None => memory::Own::Copied(&mut self.copied),
        };
        let wants_chains = mapping.control().await_chains.load(Ordering::Relaxed) != 0;
        let asyncio = cpython::asyncio::own().filter(|_| wants_chains);
        let mut found = match wanted.cpython {
            Some(runtime) => {
                let (cpython, frames) = (&mut self.cpython, &mut self.frames);
                cpython.find(runtime, &mut memory, methods, asyncio, native, frames)
            }
            None => Found::default(),
        };
        if let Some(runtime) = wanted.ruby {
            let had_some = !self.frames.is_empty();
            let (text, frames) = (&mut self.cpython.text, &mut self.frames);
            found.add(
                self.ruby
                    .find(runtime, &mut memory, methods, native, text, frames),
            );
            if had_some {
                self.frames.sort();
            }
        }
        frame_sources::find(
            wanted.sources,
            wanted.session,
            methods,
            native,
            &mut memory,
            &mut self.frames,
            &mut found,
        );
        memory.end();
        found
    }
}

/// Which runtimes have code on a stack.
struct Wanted {
    session: u32,
    cpython: Option<&'static cpython::Runtime>,
    ruby: Option<&'static ruby::Runtime>,
    /// Those registered, as bits.
    sources: u32,
}

impl Wanted {
    fn by(session: u32, addresses: impl Iterator<Item = u64>) -> Wanted {
        let mut wanted = Wanted {
            session,
            cpython: None,
            ruby: None,
            sources: 0,
        };
        let (cpython, ruby) = (cpython::runtime(), ruby::runtime());
        for address in addresses {
            wanted.cpython = wanted
                .cpython
                .or(cpython.filter(|runtime| runtime.is_code(address)));
            wanted.ruby = wanted
                .ruby
                .or(ruby.filter(|runtime| runtime.is_code(address)));
            wanted.sources |= frame_sources::with_code_at(address);
        }
        wanted
    }

    fn is_empty(&self) -> bool {
        self.cpython.is_none() && self.ruby.is_none() && self.sources == 0
    }
}

/// What went wrong in a search for managed frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Outer frames were left out.
    pub is_truncated: bool,
    /// A method got no number.
    pub table_full: bool,
    /// A method got one, and there is little room left.
    pub table_low: bool,
}

impl Found {
    /// What went wrong in another search of the same stack.
    fn add(&mut self, other: Found) {
        self.is_truncated |= other.is_truncated;
        self.table_full |= other.table_full;
        self.table_low |= other.table_low;
    }

    /// The number in a session's table of a method with this own number; 0: there is no room.
    pub(crate) fn number(&mut self, session: u32, methods: &Methods, own: u32) -> u32 {
        self.take(methods, own_methods::number_in(session, methods, own))
    }

    /// The number that a session's table has given; 0: there is no room.
    fn take(&mut self, methods: &Methods, number: Result<u32, Full>) -> u32 {
        self.table_full |= number.is_err();
        self.table_low |= methods.is_low();
        number.unwrap_or(0)
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn frame(method: u32) -> Frame {
        Frame::new(method, 8)
    }

    /// Zeroed memory, as a thread's scratch is.
    fn frames() -> std::boxed::Box<Frames> {
        // SAFETY: all-zero is a valid one without frames.
        unsafe { crate::unwind::walk::zeroed() }
    }

    fn shown(frames: &Frames) -> Vec<(u64, Vec<u32>)> {
        let runs = (0..frames.runs_len as usize).rev();
        let methods = |frames: &[Frame]| frames.iter().map(|frame| frame.method).collect();
        runs.filter_map(|i| frames.run(i))
            .map(|(anchor, frames)| (anchor, methods(frames)))
            .collect()
    }

    #[test]
    fn runs_come_outermost_first_with_their_frames_leaf_first() {
        let mut frames = frames();
        assert!(frames.is_empty() && shown(&frames).is_empty());
        assert!(frames.begin_run(0));
        assert!(frames.push(frame(1)) && frames.push(frame(2)));
        frames.anchor_last(0x1000);
        assert!(frames.begin_run(0x2000));
        assert!(frames.push(frame(3)));
        // One whose anchor is never found.
        let before = frames.mark();
        assert!(frames.begin_run(0));
        assert!(frames.push(frame(4)));
        frames.go_back(before);
        let expected = [(0x2000, [3].to_vec()), (0x1000, [1, 2].to_vec())];
        assert_eq!(shown(&frames), expected);
        frames.clear();
        assert!(frames.is_empty());
        frames.anchor_last(1);
        assert!(frames.is_empty());
    }

    #[test]
    fn a_run_takes_the_place_of_the_native_frame_around_its_anchor() {
        let mut frames = frames();
        for (anchor, methods) in [
            (0x100, &[1, 2][..]),
            (0x350, &[3]),
            (0x380, &[4]),
            (0x900, &[5]),
        ] {
            assert!(frames.begin_run(anchor));
            assert!(methods.iter().all(|method| frames.push(frame(*method))));
        }
        // Native frames by their stack pointers, root first; the outermost run lies above them.
        let mut placing = Placing::new(Some(&frames), 0x800);
        let mut at = |sp| {
            let mut methods = Vec::new();
            let is_managed = placing.next(sp, |frame| methods.push(frame.method));
            assert_eq!(is_managed, !methods.is_empty());
            methods
        };
        assert_eq!(
            [at(0x400), at(0x300), at(0x200), at(0x100)],
            [&[][..], &[4, 3], &[], &[2, 1]]
        );
        assert!(!Placing::new(None, 0x800).next(0, |_| panic!("there are none")));
    }

    #[test]
    fn what_finds_no_room_says_so() {
        let mut frames = frames();
        for i in 0..MOST_RUNS as u64 {
            assert!(frames.begin_run(i));
        }
        assert!(!frames.begin_run(0));
        for i in 0..MOST_FRAMES as u32 {
            assert!(frames.push(frame(i)));
        }
        assert!(!frames.push(frame(0)));
        assert_eq!(shown(&frames)[0].1.len(), MOST_FRAMES);
        assert_eq!(frame(3).address(), 3 << 32 | 8);
    }
}
