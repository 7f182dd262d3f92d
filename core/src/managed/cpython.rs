//! The frames of CPython, read from the structures of the interpreter, without its lock and without a call
//! into it.
//!
//! Where a field lies depends on the version: from 3.13 on the interpreter says it itself
//! (`_Py_DebugOffsets`, at the begin of `_PyRuntime`), before that it is a table here, checked against the
//! DWARF of builds of these versions. Other versions are left alone: their stacks stay native.
//!
//! A thread finds its `PyThreadState` by `thread_id`, which is what `pthread_self` gives. Frames hang on it,
//! each with its code object. It has one in each interpreter that it has come through to a sub-interpreter
//! ([`states`]); the frames of all of them are on its stack. What one call of `_PyEval_EvalFrameDefault` runs
//! is a run, anchored at a structure that this call has on the native stack: its `_PyCFrame` (3.10 and 3.11),
//! or the frame that it pushes below its own (3.12 and later; `FRAME_OWNED_BY_CSTACK`). In 3.9 it has none:
//! there the native frames of that function are counted, which are as many as frames.
//!
//! A method is its qualified name, its file, its first line and the length of its line table: code objects
//! are freed and their memory is used again, and the same code is another object in each process.

pub mod asyncio;
mod offsets;
mod states;
mod thread_name;

use self::asyncio::{Asyncio, Task};
use self::offsets::{Chain, Offsets, V3_9, V3_10, V3_11, V3_12};
use self::states::{Owner, State, States};
pub use self::thread_name::ThreadName;
use super::found_once::FoundOnce;
use super::frame_sources::NativeFrames;
use super::key::Key;
use super::lines::format;
use super::memory::{Copied, Memory};
use super::{Found, Frame, Frames, Module};
use crate::address::Svma;
use crate::platform;
use crate::shm::methods::{
    Description, FILE_BYTES, LINES_BYTES, Methods, NAME_BYTES, NO_POSITION, Runtime as Language,
};
use crate::unwind::elf;

/// Code of one method is shorter.
const MOST_POSITION: u64 = 1 << 24;

/// The interpreter in this process.
#[derive(Clone, Copy, Debug)]
pub struct Runtime {
    /// Address of `_PyRuntime` and of `PyCode_Type`.
    runtime: u64,
    code_type: u64,
    /// Those of `PyCoro_Type` and `PyGen_Type`.
    coroutine_types: Option<[u64; 2]>,
    /// Where its code lies.
    text: (u64, u64),
    /// Where `_PyEval_EvalFrameDefault` begins and ends, if its calls are counted.
    evaluator: (u64, u64),
    offsets: Offsets,
    /// 3.13 and later: the frame hangs on the thread state itself.
    is_direct: bool,
}

/// `PyFrameObject` of 3.10: `f_gen`.
const GENERATOR_3_10: u64 = 88;

static RUNTIME: FoundOnce<Runtime> = FoundOnce::new();

/// The interpreter, if one was found in this process.
#[inline]
pub fn runtime() -> Option<&'static Runtime> {
    RUNTIME.get()
}

/// A module is there. If it is an interpreter of a known version, captures look for its frames from now on.
#[cfg_attr(
    not(any(target_os = "linux", target_os = "android")),
    allow(dead_code, reason = "nobody tells of modules there")
)]
pub(crate) fn module_came(module: &Module) {
    let Some(found) = Runtime::of_module(&mut Copied::<4>::new(), module) else {
        return;
    };
    // Of two interpreters in one process the first one is read.
    if RUNTIME.put(found) {
        platform::fault_guard::want();
    }
}

impl Runtime {
    /// Whether an address is one of the interpreter's code. Where none is on a stack, no frames of it are.
    #[inline]
    pub fn is_code(&self, address: u64) -> bool {
        self.text.0 <= address && address < self.text.1
    }

    /// The interpreter that a module is, if its version is known.
    pub fn of_module(memory: &mut impl Memory, module: &Module) -> Option<Runtime> {
        let file = module.path.rsplit(|byte| *byte == b'/').next()?;
        let has = |text: &[u8]| file.windows(text.len()).any(|part| part == text);
        // A program may have it inside of it, and any name.
        let may_be_it = has(b"python") || !has(b".so");
        if module.dynamic == Svma(0) || !may_be_it {
            return None;
        }
        let mut symbol = |name: &[u8]| {
            let mut read = |address, buffer: &mut [u8]| memory.bytes(address, buffer);
            elf::symbol(&mut read, module.dynamic, module.bias, name)
        };
        let runtime = symbol(b"_PyRuntime")?;
        let code_type = symbol(b"PyCode_Type")?;
        let coroutine_types = symbol(b"PyCoro_Type").zip(symbol(b"PyGen_Type"));
        // `Py_Version` is exported from 3.11 on, `Py_NewRef` from 3.10 on, `PyFrame_GetBack` from 3.9 on.
        let version = symbol(b"Py_Version");
        let has_new_ref = symbol(b"Py_NewRef").is_some();
        let has_get_back = symbol(b"PyFrame_GetBack").is_some();
        let version = match version {
            Some(address) => memory.word(address)? >> 16,
            None if has_new_ref => 0x030a,
            None if has_get_back => 0x0309,
            None => return None,
        };
        let evaluator = match version {
            0x0309 => {
                let name = b"_PyEval_EvalFrameDefault";
                let mut read = |address, buffer: &mut [u8]| memory.bytes(address, buffer);
                let found = elf::symbol_and_size(&mut read, module.dynamic, module.bias, name);
                let (begin, bytes) = found?;
                (begin, begin.checked_add(bytes)?)
            }
            _ => (0, 0),
        };
        let offsets = match version {
            0x0309 => V3_9,
            0x030a => V3_10,
            0x030b => V3_11,
            0x030c => V3_12,
            0x030d.. => Offsets::published(memory, runtime, version)?,
            _ => return None,
        };
        Some(Runtime {
            runtime,
            code_type,
            coroutine_types: coroutine_types.map(|(coroutine, generator)| [coroutine, generator]),
            text: module.text,
            evaluator,
            offsets,
            is_direct: version >= 0x030d,
        })
    }

    /// The managed frames of a thread of another process that stands still, as the kernel numbers it there.
    /// With `asyncio`, those that await its task are among them. None: it has no state in the interpreter, or
    /// cannot be found (3.9 and 3.10).
    pub fn frames_of(
        &self,
        memory: &mut impl Memory,
        methods: &Methods,
        tid: u32,
        asyncio: Option<Asyncio>,
        to: &mut super::Thread,
    ) {
        to.frames.clear();
        let owner = Owner {
            offset: self.offsets.native_id,
            value: u64::from(tid),
        };
        let Thread { states, text, .. } = &mut to.cpython;
        states.forget();
        if owner.offset != 0
            && let Some(states) = states.find(self, memory, owner)
        {
            let frames = &mut to.frames;
            self.follow(
                states,
                memory,
                methods,
                asyncio,
                &|_| None,
                text,
                frames,
                None,
            );
        }
    }

    /// Follows the frames from a thread's states, and looks whether the thread's name has changed. `native`
    /// are the frames of its native stack, where they are counted.
    #[expect(
        clippy::too_many_arguments,
        reason = "two callers, and all of it differs"
    )]
    fn follow(
        &self,
        states: &[State],
        memory: &mut impl Memory,
        methods: &Methods,
        asyncio: Option<Asyncio>,
        native: NativeFrames,
        text: &mut TextBuffer,
        out: &mut Frames,
        name: Option<&mut ThreadName>,
    ) -> Found {
        let mut reader = Reader {
            runtime: self,
            memory,
            methods,
            asyncio,
            text,
            outermost: 0,
            found: Found::default(),
        };
        // What cannot be read ends the search: what was found so far stands.
        let is_whole = match self.offsets.chain {
            Chain::Counted => {
                let before = name.as_deref().map_or(0, ThreadName::frame);
                reader.follow_counted(states, native, before, out)
            }
            chain => states.iter().try_for_each(|state| match chain {
                Chain::Objects => reader.follow_objects(state.address, out),
                Chain::Shims if self.is_direct => reader.follow_shims(state.address, out),
                _ => reader.follow_calls(state.address, out),
            }),
        };
        if let (Some(()), Some(name)) = (is_whole, name)
            && reader.outermost != 0
        {
            name.update(reader.outermost, &mut reader);
        }
        reader.found
    }
}

/// Whether this `_PyCFrame` is the one inside a thread state, below which there is none: its `previous` is
/// not always set.
fn is_outermost(state: u64, cframe: u64) -> bool {
    const MOST_STATE_BYTES: u64 = 512;
    cframe.wrapping_sub(state) < MOST_STATE_BYTES
}

/// What a thread remembers of its `PyThreadState`s. All-zero: nothing.
#[derive(Debug)]
#[repr(C)]
pub struct Thread {
    states: States,
    /// What the program calls the thread.
    pub(super) name: ThreadName,
    pub(super) text: TextBuffer,
}

/// Room for what a method says of itself.
pub(super) type TextBuffer = [u8; NAME_BYTES + FILE_BYTES + LINES_BYTES];

impl Thread {
    /// Forgets everything: the memory is another thread's from now on.
    pub(super) fn forget(&mut self) {
        self.states.forget();
        self.name.forget();
    }

    /// Finds the calling thread's frames. With `asyncio`, those that await its task are among them.
    pub(super) fn find(
        &mut self,
        runtime: &Runtime,
        memory: &mut impl Memory,
        methods: &Methods,
        asyncio: Option<Asyncio>,
        native: NativeFrames,
        out: &mut Frames,
    ) -> Found {
        let owner = Owner {
            offset: runtime.offsets.thread_id,
            // SAFETY: asks for the calling thread's own number.
            value: unsafe { libc::pthread_self() } as u64,
        };
        let finalizing = memory.word(runtime.runtime + runtime.offsets.finalizing);
        // Another thread ends the interpreter, and with it the states and frames of all others.
        let is_ended_by_other = match finalizing {
            Some(0) => false,
            Some(by) => {
                by.checked_add(owner.offset).and_then(|at| memory.word(at)) != Some(owner.value)
            }
            None => true,
        };
        if is_ended_by_other {
            return Found::default();
        }
        let Some(states) = self.states.find(runtime, memory, owner) else {
            return Found::default();
        };
        let (name, text) = (Some(&mut self.name), &mut self.text);
        let found = runtime.follow(states, memory, methods, asyncio, native, text, out, name);
        // Before 3.12 a state is another thread's at first, so that one may have been passed over.
        if out.is_empty() {
            self.states.forget();
        }
        found
    }
}

/// One search for the frames of a thread.
struct Reader<'a, 'm, M> {
    runtime: &'a Runtime,
    memory: &'a mut M,
    methods: &'a Methods<'m>,
    asyncio: Option<Asyncio>,
    text: &'a mut TextBuffer,
    /// The outermost frame so far.
    outermost: u64,
    found: Found,
}

impl<M: Memory> Reader<'_, '_, M> {
    /// 3.9: one frame for each native frame of the evaluator. A call that is just beginning or ending has no
    /// frame, and above it at most the check of its result (`_Py_CheckFunctionResult`). On a greenlet's stack
    /// outer native frames have none, either: one that is too many is the innermost only if the outermost
    /// frame is the one of `before`. Where the counts differ otherwise, nobody knows which frame belongs
    /// where. Only a native stack that is cut has all of its inner calls: the frames outside of it are in the
    /// outermost run.
    fn follow_counted(
        &mut self,
        states: &[State],
        native: NativeFrames,
        before: u64,
        out: &mut Frames,
    ) -> Option<()> {
        let o = self.runtime.offsets;
        let (begin, end) = self.runtime.evaluator;
        let is_evaluator = |pc: u64| begin <= pc && pc < end;
        let mut frames = 0;
        for state in states {
            let innermost = self.memory.word(state.address + o.cframe_current)?;
            frames += self.count(innermost, o.previous, |_| false)?;
        }
        let calls = (0..).map_while(native).filter(|[pc, _]| is_evaluator(*pc));
        let more = match calls.clone().count() {
            calls if calls < frames && out.is_cut => 0,
            calls => calls.wrapping_sub(frames),
        };
        let is_between = more == 1 && (0..=1).map_while(native).any(|[pc, _]| is_evaluator(pc));
        self.room(more == 0 || is_between)?;
        let empty = out.mark();
        let mut states = states.iter();
        let mut frame = 0;
        for [_, sp] in calls.skip(more) {
            while frame == 0 {
                frame = self
                    .memory
                    .word(states.next()?.address + o.cframe_current)?;
            }
            self.room(out.begin_run(sp))?;
            self.push(frame, out)?;
            frame = self.memory.word(frame + o.previous)?;
        }
        while frame != 0 {
            self.push(frame, out)?;
            frame = self.memory.word(frame + o.previous)?;
        }
        let outermost = self.outermost;
        let is_certain = outermost == 0
            || (more == 0 || outermost == before) && !self.is_suspended(outermost)?;
        if !is_certain {
            out.go_back(empty);
            self.outermost = 0;
        }
        self.room(is_certain)
    }

    /// Whether a frame of 3.9 is that of a suspended generator. It ends the chain where an exception is
    /// thrown through it into another one: those that run outside of it are not in the chain.
    fn is_suspended(&mut self, frame: u64) -> Option<bool> {
        /// `PyFrameObject`: `f_gen` and `f_executing`.
        const GENERATOR: u64 = 96;
        const IS_EXECUTING: u64 = 116;

        let has_generator = self.memory.word(frame.checked_add(GENERATOR)?)? != 0;
        Some(has_generator && self.memory.byte(frame.checked_add(IS_EXECUTING)?)? == 0)
    }

    /// How many there are in a chain, up to a few more than may be.
    fn count(&mut self, from: u64, next: u64, is_end: impl Fn(u64) -> bool) -> Option<usize> {
        let (mut at, mut count) = (from, 0usize);
        while at != 0 && !is_end(at) && count <= super::MOST_FRAMES {
            at = self.memory.word(at.checked_add(next)?)?;
            count += 1;
        }
        Some(count)
    }

    /// 3.10: one frame for each `CFrame`. Inside the interpreter's first and last instructions there is one
    /// `CFrame` more. Generators that an exception is thrown through have none: each stands in the run of the
    /// next outer frame that has one.
    fn follow_objects(&mut self, state: u64, out: &mut Frames) -> Option<()> {
        let o = self.runtime.offsets;
        let mut anchor = self.memory.word(state + o.thread_frames)?;
        let mut frame = self.memory.word(state + o.cframe_current)?;
        let anchors = self.count(anchor, o.cframe_previous, |at| is_outermost(state, at))?;
        // A frame object may lie right behind the state.
        let frames = self.count(frame, o.previous, |_| false)?;
        let passed = self.count_passed(frame, frames)?;
        let fits = |frames: usize| matches!(anchors.wrapping_sub(frames), 0 | 1);
        // While a function is traced, generators that run look like those.
        // So does a single one whose trace function runs.
        let has_passed = fits(frames - passed) && !(passed == 1 && anchors == frames);
        self.room(has_passed || fits(frames))?;
        let passed = if has_passed { passed } else { 0 };
        for _ in frames - passed..anchors {
            anchor = self.memory.word(anchor + o.cframe_previous)?;
        }
        let mut is_in_run = false;
        while frame != 0 {
            if !is_in_run {
                self.room(out.begin_run(anchor))?;
            }
            self.push(frame, out)?;
            is_in_run = passed > 0 && self.is_passed_object(frame)?;
            if !is_in_run {
                anchor = self.memory.word(anchor + o.cframe_previous)?;
            }
            frame = self.memory.word(frame + o.previous)?;
        }
        Some(())
    }

    /// How many of so many frames of 3.10 no call of the interpreter runs. `None`: the outermost one is of a
    /// generator, so there are more outside of it.
    fn count_passed(&mut self, innermost: u64, frames: usize) -> Option<usize> {
        let (mut frame, mut passed) = (innermost, 0);
        let mut is_generator = false;
        for _ in 0..frames {
            is_generator = self.memory.word(frame.checked_add(GENERATOR_3_10)?)? != 0;
            passed += usize::from(is_generator && self.is_passed_object(frame)?);
            frame = self.memory.word(frame + self.runtime.offsets.previous)?;
        }
        self.room(!is_generator)?;
        Some(passed)
    }

    /// Whether a frame of 3.10 is that of a generator, and no call of the interpreter runs it: such a call
    /// takes the depth of its stack of values out of it.
    fn is_passed_object(&mut self, frame: u64) -> Option<bool> {
        /// `PyFrameObject`: `f_stackdepth`.
        const STACK_DEPTH: u64 = 80;

        let is_generator = self.memory.word(frame.checked_add(GENERATOR_3_10)?)? != 0;
        Some(is_generator && self.memory.half(frame + STACK_DEPTH)? as i32 >= 0)
    }

    /// 3.11 and 3.12: a `_PyCFrame` for each call of the interpreter. The innermost one may not have its
    /// frame yet, and has something else in its place: then the call is left out.
    fn follow_calls(&mut self, state: u64, out: &mut Frames) -> Option<()> {
        let o = self.runtime.offsets;
        let mut cframe = self.memory.word(state + o.thread_frames)?;
        let mut is_innermost = true;
        // 0: the state is being made.
        while cframe != 0 && !is_outermost(state, cframe) {
            let outer = self.memory.word(cframe.checked_add(o.cframe_previous)?)?;
            let before = out.mark();
            let is_call = self.follow_call(cframe, outer, out);
            if is_call != Some(true) {
                out.go_back(before);
                if !is_innermost {
                    self.found.is_truncated = true;
                }
                if self.found.is_truncated {
                    return None;
                }
            }
            is_innermost = false;
            cframe = outer;
        }
        Some(())
    }

    /// The run of one call. It ends at the frame that hangs on the one that the outer call is in: false: it
    /// does not. In 3.11 generators that an exception is thrown through are in it, too: each has the mark of
    /// the call that it ran in before.
    fn follow_call(&mut self, cframe: u64, outer: u64, out: &mut Frames) -> Option<bool> {
        let o = self.runtime.offsets;
        let mut frame = self.memory.word(cframe.checked_add(o.cframe_current)?)?;
        // The one that a greenlet begins with is no call of the interpreter.
        if frame == 0 {
            let has_room = out.take_room();
            return self.room(has_room).map(|()| true);
        }
        let outer_frame = self.memory.word(outer.checked_add(o.cframe_current)?)?;
        self.room(out.begin_run(cframe))?;
        loop {
            let is_entry = match o.chain {
                Chain::Shims => self.is_shim(frame)?,
                _ => self.memory.byte(frame.checked_add(o.is_entry)?)? != 0,
            };
            match o.chain {
                Chain::Shims if is_entry => out.anchor_last(frame),
                _ => self.push(frame, out)?,
            }
            let inner = frame;
            frame = self.memory.word(frame.checked_add(o.previous)?)?;
            if is_entry && (frame == outer_frame || !self.is_passed(inner)?) {
                return Some(frame == outer_frame);
            }
        }
    }

    /// Whether a frame is of a generator, and the call it is marked for may be over (3.11).
    fn is_passed(&mut self, frame: u64) -> Option<bool> {
        const OWNED_BY_GENERATOR: u8 = 1;

        let o = self.runtime.offsets;
        let is_generator = self.memory.byte(frame.checked_add(o.owner)?)? == OWNED_BY_GENERATOR;
        Some(o.chain == Chain::Entries && is_generator)
    }

    /// 3.13 and later: one chain of frames, in which each call of the interpreter begins with a shim.
    fn follow_shims(&mut self, state: u64, out: &mut Frames) -> Option<()> {
        let o = self.runtime.offsets;
        let mut frame = self.memory.word(state + o.thread_frames)?;
        let base = match o.base_frame {
            0 => 0,
            offset => self.memory.word(state + offset)?,
        };
        let mut task = self.running_task(state);
        while frame != 0 && frame != base {
            let before = out.mark();
            let end = self.follow_to_shim(frame, &mut task, out);
            if end.is_none() {
                out.go_back(before);
            }
            frame = end?;
        }
        Some(())
    }

    /// The run of one call, from its innermost frame on. Gives the frame of the call outside of it. If it
    /// runs the coroutine of `task`, the run ends with what awaits that.
    fn follow_to_shim(
        &mut self,
        innermost: u64,
        task: &mut Option<Task>,
        out: &mut Frames,
    ) -> Option<u64> {
        let o = self.runtime.offsets;
        let (mut frame, mut outermost) = (innermost, 0);
        self.room(out.begin_run(0))?;
        while !self.is_shim(frame)? {
            self.push(frame, out)?;
            outermost = frame;
            frame = self.memory.word(frame.checked_add(o.previous)?)?;
        }
        if let Some(task) = task.take_if(|task| task.frame == outermost) {
            self.push_awaiting(task, out);
        }
        out.anchor_last(frame);
        self.memory.word(frame.checked_add(o.previous)?)
    }

    /// Whether the interpreter owns a frame (`enum _frameowner`): it has no code of the program.
    fn is_shim(&mut self, frame: u64) -> Option<bool> {
        const OWNED_BY_INTERPRETER: u8 = 3;

        let owner = frame.checked_add(self.runtime.offsets.owner)?;
        Some(self.memory.byte(owner)? >= OWNED_BY_INTERPRETER)
    }

    /// `None`: there was no room.
    fn room(&mut self, has_room: bool) -> Option<()> {
        self.found.is_truncated |= !has_room;
        has_room.then_some(())
    }

    /// Adds a frame. `None`: it makes no sense, or there is no room. Frames that are left out take some, too,
    /// so that whatever memory says, a search ends.
    fn push(&mut self, frame: u64, out: &mut Frames) -> Option<()> {
        let has_room = out.take_room();
        self.room(has_room)?;
        if let Some(of_frame) = self.read(frame)? {
            let has_room = out.push(of_frame);
            self.room(has_room)?;
            self.outermost = frame;
        }
        Some(())
    }

    /// The same of a frame that waits for the one above.
    fn push_suspended(&mut self, frame: u64, out: &mut Frames) -> Option<()> {
        let has_room = out.take_room();
        self.room(has_room)?;
        let Some(of_frame) = self.read(frame)? else {
            return Some(());
        };
        let has_room = out.push(Frame {
            is_awaiting: true,
            ..of_frame
        });
        self.room(has_room)
    }

    /// A frame; `Some(None)`: one that is nobody's function.
    fn read(&mut self, frame: u64) -> Option<Option<Frame>> {
        let o = self.runtime.offsets;
        let code = self.memory.word(frame.checked_add(o.code)?)? & !7;
        if code == 0
            || self.memory.word(code.checked_add(o.object_type)?)? != self.runtime.code_type
        {
            return None;
        }
        let position = match o.chain {
            // In bytes (3.9), or in units of two of them; −1: not begun.
            Chain::Counted | Chain::Objects => {
                let last = self.memory.half(frame + o.position)? as i32;
                let unit = if o.chain == Chain::Objects { 2 } else { 1 };
                u64::from(last.max(0) as u32) * unit
            }
            _ => {
                let at = self.memory.word(frame + o.position)?;
                at.saturating_sub(self.instructions(frame, code)?)
            }
        };
        let position = match position {
            position if position < MOST_POSITION => position as u32,
            _ => NO_POSITION,
        };
        let method = self.method(code)?;
        Some(method.map(|method| Frame::new(method, position)))
    }

    /// Where the instructions begin that a frame of this code runs. 0: that cannot be said.
    fn instructions(&mut self, frame: u64, code: u64) -> Option<u64> {
        let o = self.runtime.offsets;
        let index = match o.copies {
            Some(copies) => u64::from(self.memory.half(frame + copies.index)?),
            None => 0,
        };
        match o.copies.filter(|_| index != 0) {
            None => Some(code + o.instructions),
            // Another thread may be changing the list.
            Some(copies) => Some(self.copy(code + copies.list, index).unwrap_or(0)),
        }
    }

    /// One of a code object's copies, whose list a word leads to.
    fn copy(&mut self, list: u64, index: u64) -> Option<u64> {
        let list = self.memory.word(list)?;
        let count = self.memory.word(list)?;
        match index < count {
            true => self.memory.word(list.checked_add(8 * (index + 1))?),
            false => None,
        }
    }

    /// The number of a code object's method, 0: there is no room for it; `Some(None)`: it is nobody's.
    fn method(&mut self, code: u64) -> Option<Option<u32>> {
        let o = self.runtime.offsets;
        let name_object = self.memory.word(code + o.name)?;
        let file_object = self.memory.word(code + o.file)?;
        let first_line = self.memory.half(code + o.first_line)?;
        // What the interpreter puts below `__init__` is no function of anybody's (`_Py_InitCleanup`,
        // Python/specialize.c). Zeros are memory that has just come anew.
        if name_object == file_object && name_object != 0 && first_line == 0 {
            return Some(None);
        }
        let name = self.text_of(name_object)?;
        let file = self.text_of(file_object)?;
        let lines = self.memory.word(code + o.lines)?;
        let lines_bytes = self.memory.word(lines.checked_add(o.bytes_size)?)?;
        let mut key = Key::new();
        key.add(Language::CPython as u64);
        key.add(u64::from(first_line) << 32 | lines_bytes & 0xffff_ffff);
        self.add(&name, &mut key)?;
        self.add(&file, &mut key)?;
        let key = key.finish();
        match self.methods.find(key) {
            Some(number) => Some(Some(number)),
            None => {
                let described = self.describe(key, &name, &file, first_line, (lines, lines_bytes));
                described.map(Some)
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn describe(
        &mut self,
        key: u64,
        name: &Text,
        file: &Text,
        first_line: u32,
        lines: (u64, u64),
    ) -> Option<u32> {
        let (name_text, rest) = self.text.split_at_mut(NAME_BYTES);
        let (file_text, lines_text) = rest.split_at_mut(FILE_BYTES);
        let name_bytes = name.copy(self.memory, name_text)?;
        let file_bytes = file.copy(self.memory, file_text)?;
        // Longer ones are left out. An empty one says something in 3.9.
        let address = lines.0 + self.runtime.offsets.bytes_content;
        let lines_text = lines_text.get_mut(..lines.1 as usize);
        let lines_text =
            lines_text.and_then(|text| self.memory.bytes(address, text).then_some(text));
        let description = Description {
            runtime: Language::CPython,
            first_line,
            line_format: match lines_text {
                Some(_) => self.runtime.offsets.line_format,
                None => format::NONE,
            },
            name: name_text.get(..name_bytes)?,
            file: file_text.get(..file_bytes)?,
            lines: lines_text.unwrap_or_default(),
        };
        let number = self.methods.insert(key, &description);
        Some(self.found.take(self.methods, number))
    }

    /// Where the characters of a text lie.
    fn text_of(&mut self, object: u64) -> Option<Text> {
        let o = self.runtime.offsets;
        let length = self.memory.word(object.checked_add(o.text_length)?)?;
        let state = self.memory.half(object + o.text_state)? >> o.text_kind_bit;
        let (width, is_compact, is_ascii) = (state & 7, state >> 3 & 1 != 0, state >> 4 & 1 != 0);
        let is_text = is_compact && matches!(width, 1 | 2 | 4) && length < 1 << 20;
        is_text.then_some(Text {
            characters: object
                + if is_ascii {
                    o.ascii_bytes
                } else {
                    o.compact_bytes
                },
            length: length as usize,
            width: width as usize,
        })
    }

    /// Adds a text's content to a key.
    fn add(&mut self, text: &Text, key: &mut Key) -> Option<()> {
        /// Of longer ones the rest is not looked at.
        const MOST_BYTES: usize = 2048;

        let mut bytes = (text.length * text.width).min(MOST_BYTES);
        key.add(text.length as u64);
        let mut at = text.characters;
        while bytes > 0 {
            let word = self.memory.word(at)?;
            let count = bytes.min(8);
            key.add(if count == 8 {
                word
            } else {
                word & ((1 << (8 * count)) - 1)
            });
            bytes -= count;
            at += 8;
        }
        Some(())
    }
}

/// The characters of a text of CPython.
#[derive(Clone, Copy, Debug)]
struct Text {
    characters: u64,
    length: usize,
    /// Bytes of a character: Latin-1, UCS-2 or UCS-4.
    width: usize,
}

impl Text {
    /// Copies it as UTF-8, cut at a character. Gives the bytes.
    fn copy(&self, memory: &mut impl Memory, to: &mut [u8]) -> Option<usize> {
        let mut used = 0;
        for i in 0..self.length {
            let at = self.characters + (i * self.width) as u64;
            let mut raw = [0; 4];
            if !memory.bytes(at, raw.get_mut(..self.width)?) {
                return None;
            }
            let character = char::from_u32(u32::from_le_bytes(raw)).unwrap_or('\u{fffd}');
            let Some(place) = to.get_mut(used..used + character.len_utf8()) else {
                break;
            };
            character.encode_utf8(place);
            used += character.len_utf8();
        }
        Some(used)
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::asyncio::tests::ASYNCIO;
    use super::offsets::{Copies, Coroutines};
    use super::*;
    use crate::shm::mapping::tests::small;
    use std::vec::Vec;

    /// Memory in which nearly every word leads to another one: chains without an end.
    pub(super) struct Garbage {
        pub(super) seed: u64,
        pub(super) reads: u64,
    }

    const BASE: u64 = 1 << 32;
    const WORDS: u64 = 96;
    const CODE_TYPE: u64 = BASE + 8 * 7;
    const EVALUATOR: (u64, u64) = (0x1000, 0x2000);

    const COROUTINES: Coroutines = Coroutines {
        frame: 72,
        state: 67,
        stack_pointer: 64,
        suspended: (-128, 127),
        awaits: (-128, 127),
        awaited_below: 8,
        set_used: 24,
        set_table: 40,
        set_mask: 32,
    };

    pub(super) fn of(offsets: Offsets, is_direct: bool) -> Runtime {
        Runtime {
            runtime: BASE,
            code_type: CODE_TYPE,
            coroutine_types: Some([CODE_TYPE; 2]),
            text: (0, 0),
            evaluator: EVALUATOR,
            offsets,
            is_direct,
        }
    }

    impl Memory for Garbage {
        fn word(&mut self, address: u64) -> Option<u64> {
            self.reads += 1;
            if !address.is_multiple_of(8) {
                return None;
            }
            let mut key = Key(self.seed);
            key.add(address);
            let random = key.finish();
            match random % 32 {
                0 => None,
                1..=3 => Some(0),
                4..=11 => Some(CODE_TYPE),
                12 => Some(random),
                // A short text, compact and ASCII: its state has these bits.
                13..=15 => Some(0x64),
                _ => Some(BASE + 8 * (random >> 32) % (8 * WORDS) / 8 * 8),
            }
        }
    }

    #[test]
    fn a_search_ends_whatever_memory_says() {
        let mapping = small();
        let methods = Methods::of(&mapping);
        let mut thread = super::super::Thread::boxed();
        let mut most_reads = 0;
        for seed in 0..20_000 {
            let awaited = Offsets {
                coroutines: Some(COROUTINES),
                copies: Some(Copies {
                    index: 72,
                    list: 224,
                }),
                ..V3_12
            };
            let offsets = [V3_10, V3_11, V3_12, awaited, V3_9][seed as usize % 5];
            let runtime = of(offsets, seed % 5 == 3);
            let mut memory = Garbage { seed, reads: 0 };
            let to = &mut *thread;
            to.frames.clear();
            let Thread { text, name, .. } = &mut to.cpython;
            let frames = &mut to.frames;
            runtime.follow(
                &[State::of(BASE)],
                &mut memory,
                &methods,
                Some(ASYNCIO),
                &|i| (i < 40).then(|| [EVALUATOR.0, 16 * i as u64]),
                text,
                frames,
                Some(name),
            );
            let frames = to.frames.len();
            assert!(frames <= super::super::MOST_FRAMES);
            most_reads = most_reads.max(memory.reads);
        }
        // It has found its way into such memory, and out again.
        assert!((100..1_000_000).contains(&most_reads), "{most_reads}");
    }

    /// Words at addresses; all others are 0.
    struct Words(std::collections::HashMap<u64, u64>);

    impl Memory for Words {
        fn word(&mut self, address: u64) -> Option<u64> {
            Some(self.0.get(&address).copied().unwrap_or(0))
        }
    }

    /// Puts code with a short name where `o` says.
    fn put_code(words: &mut Words, o: &Offsets, code: u64, name: u64, file: u64) {
        let mut put = |address: u64, value: u64| words.0.insert(address, value);
        put(code + o.object_type, CODE_TYPE);
        put(code + o.name, name);
        put(code + o.file, file);
        for text in [name, file] {
            put(text + o.text_length, 3);
            put(
                text + o.text_state,
                (1 | 1 << 3 | 1 << 4) << o.text_kind_bit,
            );
            put(text + o.ascii_bytes, u64::from_le_bytes(*b"abc\0\0\0\0\0"));
        }
    }

    /// Threads of free-threaded builds run copies of the code of their own.
    #[test]
    fn positions_are_of_the_copy_that_the_thread_runs() {
        let [state, frame, shim, code, name, file, list, copy] =
            [0, 1, 2, 3, 4, 5, 6, 7].map(|page| BASE + (page << 12));
        let offsets = Offsets {
            thread_frames: 56,
            copies: Some(Copies {
                index: 80,
                list: 224,
            }),
            text_kind_bit: 8,
            object_type: 24,
            ..V3_12
        };
        let o = &offsets;
        let mapping = small();
        let methods = Methods::of(&mapping);
        let own = code + o.instructions;
        for (index, at, position) in [
            (0, own + 6, 6),
            (2, copy + 8, 8),
            // There are so many.
            (3, copy + 8, NO_POSITION),
        ] {
            let mut words = Words(std::collections::HashMap::new());
            put_code(&mut words, o, code, name, file);
            for (address, value) in [
                (state + o.thread_frames, frame),
                // The lowest bit: a reference that is not counted.
                (frame + o.code, code | 1),
                (frame + o.previous, shim),
                (frame + o.position, at),
                (frame + 80, index),
                (shim + (o.owner & !7), 3 << (8 * (o.owner & 7))),
                (code + 224, list),
                (list, 3),
                (list + 8, own),
                (list + 24, copy),
                (list + 32, copy),
            ] {
                words.0.insert(address, value);
            }
            let runtime = of(offsets, true);
            let mut thread = super::super::Thread::boxed();
            let to = &mut *thread;
            let (text, frames) = (&mut to.cpython.text, &mut to.frames);
            let found = runtime.follow(
                &[State::of(state)],
                &mut words,
                &methods,
                None,
                &|_| None,
                text,
                frames,
                None,
            );
            assert_eq!(found, Found::default(), "{index}");
            let (anchor, frames) = frames.run(0).expect("there is one");
            assert_eq!((anchor, frames), (shim, &[Frame::new(1, position)][..]));
        }
    }

    /// 3.9: frames are given to the native frames of the evaluator from the outermost on.
    #[test]
    fn frames_are_counted_where_they_have_no_anchor() {
        let o = &V3_9;
        let (state, code, name, file) = (BASE, BASE + 0x1000, BASE + 0x2000, BASE + 0x3000);
        let mut words = Words(std::collections::HashMap::new());
        put_code(&mut words, o, code, name, file);
        // Two frames, the innermost at position 8.
        let frames = [BASE + 0x4000, BASE + 0x5000];
        for (i, at) in frames.into_iter().enumerate() {
            words.0.insert(at + o.code, code);
            words.0.insert(at + o.position, 8 + 2 * i as u64);
        }
        words.0.insert(frames[0] + o.previous, frames[1]);
        words.0.insert(state + o.cframe_current, frames[0]);
        let mapping = small();
        let methods = Methods::of(&mapping);
        let runtime = of(V3_9, false);
        let mut thread = super::super::Thread::boxed();
        let mut follow = |words: &mut Words, native: &str| {
            let (native, is_cut) = match native.strip_suffix(" cut") {
                Some(native) => (native, true),
                None => (native, false),
            };
            let kinds = native.as_bytes();
            let native = |i: usize| {
                let (inside, outside) = EVALUATOR;
                let is_evaluator = *kinds.get(i)? == b'e';
                let pc = if is_evaluator { inside } else { outside };
                Some([pc, 16 * i as u64])
            };
            let to = &mut *thread;
            to.frames.clear();
            to.frames.is_cut = is_cut;
            let Thread { text, name, .. } = &mut to.cpython;
            let (out, name) = (&mut to.frames, Some(name));
            let found = runtime.follow(
                &[State::of(state)],
                words,
                &methods,
                None,
                &native,
                text,
                out,
                name,
            );
            let runs = (0..).map_while(|i| out.run(i));
            let runs: Vec<_> = runs
                .map(|(anchor, run)| (anchor, run[0].position))
                .collect();
            assert_eq!(found.is_truncated, runs.is_empty(), "{kinds:?}");
            assert_eq!(out.len(), if runs.is_empty() { 0 } else { 2 }, "{kinds:?}");
            runs
        };
        // Native frames from the leaf on: `e` is one of the evaluator.
        for (native, expected) in [
            // On the stack of a greenlet an outer one has no frame.
            ("ecece", &[][..]),
            ("cecec", &[(0x10, 8), (0x30, 10)]),
            ("ecec", &[(0, 8), (0x20, 10)]),
            // A call that has no frame yet.
            ("ececec", &[(0x20, 8), (0x40, 10)]),
            // One whose result is checked.
            ("cececec", &[(0x30, 8), (0x50, 10)]),
            // It would have no more above it.
            ("ccececec", &[]),
            ("ecececec", &[]),
            ("cec", &[]),
            // Cut: the outer frame is in the run of the inner one.
            ("cec cut", &[(0x10, 8)]),
            ("cecec cut", &[(0x10, 8), (0x30, 10)]),
        ] {
            assert_eq!(follow(&mut words, native), expected, "{native}");
        }
        // The outermost one is a suspended generator's.
        words.0.insert(frames[1] + 96, BASE + 0x6000);
        assert_eq!(follow(&mut words, "ee"), []);
    }

    /// The runs below a state, each with its anchor and its length, and whether the stack is truncated.
    fn followed(
        runtime: &Runtime,
        state: u64,
        words: &mut Words,
        methods: &Methods<'_>,
        thread: &mut super::super::Thread,
    ) -> (Vec<(u64, usize)>, bool) {
        thread.frames.clear();
        let (text, out) = (&mut thread.cpython.text, &mut thread.frames);
        let states = [State::of(state)];
        let found = runtime.follow(&states, words, methods, None, &|_| None, text, out, None);
        let runs = (0..).map_while(|i| out.run(i));
        let runs = runs.map(|(anchor, run)| (anchor, run.len())).collect();
        (runs, found.is_truncated)
    }

    /// 3.10: generators that an exception is thrown through stand in the run of who threw it.
    #[test]
    fn frames_that_no_call_runs_are_in_the_run_outside_of_them() {
        let o = &V3_10;
        let [state, code, name, file, root] = [0, 1, 2, 3, 4].map(|page| BASE + (page << 12));
        // Behind the state, closer than the end of the calls may be.
        let frame = |i: u64| state + 256 + 128 * i;
        let cframe = |i: u64| BASE + 0x8000 + 64 * i;
        // Frames from the innermost on: one that is called, a generator that runs, two that are passed, one
        // that throws and the outermost one.
        let generators = [false, true, true, true, false, false];
        let depths = [-1, -1, 1, 1, -1, -1];
        let mapping = small();
        let methods = Methods::of(&mapping);
        let runtime = of(V3_10, false);
        let mut thread = super::super::Thread::boxed();
        let mut follow = |frames: std::ops::Range<usize>, calls: u64| {
            let mut words = Words(std::collections::HashMap::new());
            put_code(&mut words, o, code, name, file);
            let mut put = |address: u64, value: u64| words.0.insert(address, value);
            put(state + o.cframe_current, frame(frames.start as u64));
            put(state + o.thread_frames, cframe(0));
            for i in 0..calls {
                let outer = if i + 1 == calls {
                    state + 8
                } else {
                    cframe(i + 1)
                };
                put(cframe(i) + o.cframe_previous, outer);
            }
            for i in frames.clone() {
                let at = frame(i as u64);
                let outer = if i + 1 == frames.end {
                    0
                } else {
                    frame(i as u64 + 1)
                };
                put(at + o.code, code);
                put(at + o.previous, outer);
                put(at + GENERATOR_3_10, if generators[i] { root } else { 0 });
                put(at + 80, depths[i] as u32 as u64);
            }
            let (runs, is_truncated) = followed(&runtime, state, &mut words, &methods, &mut thread);
            let runs: Vec<_> = runs
                .into_iter()
                .map(|(anchor, length)| ((anchor - cframe(0)) / 64, length))
                .collect();
            assert_eq!(is_truncated, runs.is_empty(), "{frames:?} {calls}");
            runs
        };
        for (frames, calls, expected) in [
            (0..6, 4, &[(0, 1), (1, 1), (2, 3), (3, 1)][..]),
            // The innermost call has no frame yet.
            (0..6, 5, &[(1, 1), (2, 1), (3, 3), (4, 1)]),
            (4..6, 3, &[(1, 1), (2, 1)]),
            // One is passed; or it is traced, and runs.
            (3..6, 2, &[(0, 2), (1, 1)]),
            (3..6, 3, &[(0, 1), (1, 1), (2, 1)]),
            // Functions are traced: all of them run.
            (0..6, 6, &[(0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (5, 1)]),
            // The chain ends at a generator, or has too few calls.
            (0..4, 2, &[]),
            (0..6, 3, &[]),
            (4..6, 4, &[]),
        ] {
            assert_eq!(follow(frames, calls), expected, "{calls}");
        }
    }

    /// 3.11: they are in the run of the call that they hang on, with the mark of the call before.
    #[test]
    fn generators_that_are_passed_do_not_end_a_run() {
        let o = &V3_11;
        let [state, code, name, file] = [0, 1, 2, 3].map(|page| BASE + (page << 12));
        let frame = |i: u64| BASE + 0x4000 + 256 * i;
        let cframe = |i: u64| BASE + 0x8000 + 64 * i;
        let mapping = small();
        let methods = Methods::of(&mapping);
        let runtime = of(V3_11, false);
        let mut thread = super::super::Thread::boxed();
        // Owned by a generator, or by the thread.
        for (owner, expected) in [(1, &[1, 2][..]), (0, &[1][..])] {
            let mut words = Words(std::collections::HashMap::new());
            put_code(&mut words, o, code, name, file);
            let mut put = |address: u64, value: u64| words.0.insert(address, value);
            put(state + o.thread_frames, cframe(0));
            for (i, current) in [(0, 0), (1, 1), (2, 3)] {
                put(cframe(i) + o.cframe_current, frame(current));
                put(cframe(i) + o.cframe_previous, cframe(i + 1));
            }
            // The last one is what a greenlet begins with.
            put(cframe(2) + o.cframe_current, 0);
            put(cframe(2) + o.cframe_previous, state + 8);
            for (i, outer) in [(0, frame(1)), (1, frame(2)), (2, 0)] {
                put(frame(i) + o.code, code);
                put(frame(i) + o.previous, outer);
                put(frame(i) + (o.is_entry & !7), (1 | owner << 8) << 32);
            }
            let (runs, is_truncated) = followed(&runtime, state, &mut words, &methods, &mut thread);
            let lengths: Vec<_> = runs.into_iter().map(|(_, length)| length).collect();
            assert_eq!(lengths, expected);
            assert_eq!(is_truncated, owner == 0);
        }
    }

    /// A frame that hangs on itself, with good code.
    #[test]
    fn a_circle_of_good_frames_is_cut() {
        let [state, cframe, frame, code, name, file] =
            [0, 1, 2, 3, 4, 5].map(|page| BASE + (page << 12));
        let mapping = small();
        let methods = Methods::of(&mapping);
        for (offsets, is_direct) in [
            (V3_10, false),
            (V3_11, false),
            (V3_12, false),
            (V3_12, true),
        ] {
            let o = &offsets;
            let mut words = Words(std::collections::HashMap::new());
            let mut put = |address: u64, value: u64| words.0.insert(address, value);
            put(
                state + o.thread_frames,
                if is_direct { frame } else { cframe },
            );
            put(state + o.cframe_current, frame);
            put(cframe + o.cframe_current, frame);
            put(cframe + o.cframe_previous, cframe);
            put(frame + o.code, code);
            put(frame + o.previous, frame);
            put_code(&mut words, o, code, name, file);
            let runtime = of(offsets, is_direct);
            let mut thread = super::super::Thread::boxed();
            let to = &mut *thread;
            let (text, frames) = (&mut to.cpython.text, &mut to.frames);
            let found = runtime.follow(
                &[State::of(state)],
                &mut words,
                &methods,
                None,
                &|_| None,
                text,
                frames,
                None,
            );
            assert!(found.is_truncated, "{:?} {is_direct}", offsets.chain);
            let method = methods.read(1).expect("the method was described");
            assert_eq!((&*method.name, &*method.file), ("abc", "abc"));
        }
    }
}
