//! The frames of Ruby (CRuby), read from the structures of its virtual machine, without its lock and without
//! a call into it.
//!
//! Where a field lies depends on the version, and is a table here (`offsets`), computed by the headers of
//! these versions. Other versions are left alone: their stacks stay native.
//!
//! A thread finds its `rb_thread_t` by what `pthread_self` gives. That leads to the execution context of the
//! fiber which it runs, and this to control frames: an array that grows downward from the end of the fiber's
//! VM stack. A frame with the flag FINISH is the outermost of a call of the interpreter (`rb_vm_exec`), so
//! frames up to it are a run.
//!
//! What leads to the virtual machine, and the function with the interpreter, may be hidden symbols. Then the
//! machine code tells (`code`), and the stack.
//!
//! Nothing in a frame says where on the native stack its call is. But each call has a native frame of
//! `rb_vm_exec`, and in it a tag, to which an exception jumps, and all tags of a fiber are a chain. So runs
//! are given to native frames one by one if there are as many of both, and if each of these native frames has
//! a tag of the fiber in it. Between two instructions of a call that begins or ends, and while fibers are
//! switched, this does not hold. Then all of them are left out, and the stack counts as truncated.
//!
//! A method is its name (`names`), its file, its first line and the length of its code: code objects are
//! freed and their memory is used again, and the same code is another object in each process.

mod code;
mod lines;
mod names;
mod offsets;

use self::code::Functions;
use self::names::{Name, Text};
use self::offsets::{Offsets, TAG_OUTER, of_version};
use super::cpython::TextBuffer;
use super::found_once::FoundOnce;
use super::frame_sources::NativeFrames;
use super::key::Key;
use super::lines::format;
use super::memory::{Copied, Memory};
use super::{Found, Frame, Frames, Module};
use crate::address::Svma;
use crate::platform;
use crate::shm::methods::{
    Description, FILE_BYTES, Methods, NAME_BYTES, NO_POSITION, Runtime as Language,
};
use crate::unwind::elf;

const MOST_RACTORS: usize = 256;
/// Threads of all ractors together.
const MOST_THREADS: usize = 1 << 14;
/// Control frames and tags of one stack; where there are more, nothing is said.
const MOST_CONTROL_FRAMES: u64 = 1 << 13;
const MOST_TAGS: usize = 1 << 13;
/// Words of the code of one method. Of longer ones there is no line table.
const MOST_WORDS: u32 = 1 << 15;

/// `VM_FRAME_FLAG_FINISH`: the call of the interpreter ends with this frame.
const FINISH: u64 = 0x20;
/// `VM_FRAME_FLAG_CFRAME`: it is a function in C.
const IS_C: u64 = 0x80;
/// What kind of frame it is, and the kind with which each stack begins (`VM_FRAME_MAGIC_DUMMY`).
const KIND_MASK: u64 = 0x7fff_0001;
const DUMMY: u64 = 0x7999_0001;

/// Whether a frame with these flags is one of a method, a block or a file.
fn is_code(flags: u64) -> bool {
    flags & IS_C == 0 && flags & KIND_MASK != DUMMY
}

/// Types of objects, in the lowest bits of their flags.
const TYPE_MASK: u64 = 0x1f;
const ARRAY: u64 = 7;
/// `T_IMEMO`, and what says which one: `imemo_iseq`.
const INTERNAL: u64 = 0x1a;
const INTERNAL_MASK: u64 = 0xf << 12 | TYPE_MASK;
const CODE: u64 = 7 << 12 | INTERNAL;
/// `FL_USER1`: a string's content, and not an array's, is elsewhere.
const USER_1: u64 = 1 << 13;

/// The virtual machine in this process.
#[derive(Clone, Copy, Debug)]
pub struct Runtime {
    /// Address of `ruby_current_vm_ptr`.
    vm: u64,
    /// Where its code lies.
    text: (u64, u64),
    evaluator: Evaluator,
    offsets: Offsets,
}

/// How `rb_vm_exec` is found.
#[derive(Clone, Copy, Debug)]
enum Evaluator {
    /// Where it begins and ends.
    Known(u64, u64),
    /// On a stack, by where functions begin.
    Hidden(Functions),
}

static RUNTIME: FoundOnce<Runtime> = FoundOnce::new();

/// The virtual machine, if one was found in this process.
#[inline]
pub fn runtime() -> Option<&'static Runtime> {
    RUNTIME.get()
}

/// A module is there. If it is a Ruby of a known version, captures look for its frames from now on.
#[cfg_attr(
    not(any(target_os = "linux", target_os = "android")),
    allow(dead_code, reason = "nobody tells of modules there")
)]
pub(crate) fn module_came(module: &Module) {
    if let Some(found) = Runtime::of_module(&mut Copied::<4>::new(), module)
        && RUNTIME.put(found)
    {
        platform::fault_guard::want();
    }
}

impl Runtime {
    /// Whether an address is one of its code. Where none is on a stack, no frames of it are.
    #[inline]
    pub fn is_code(&self, address: u64) -> bool {
        self.text.0 <= address && address < self.text.1
    }

    /// The virtual machine that a module is, if its version is known.
    pub fn of_module(memory: &mut impl Memory, module: &Module) -> Option<Runtime> {
        let file = module.path.rsplit(|byte| *byte == b'/').next()?;
        let may_be = file.starts_with(b"libruby") || file.starts_with(b"ruby");
        if module.dynamic == Svma(0) || !may_be {
            return None;
        }
        let mut symbol = |name: &[u8]| {
            let mut read = |address, buffer: &mut [u8]| memory.bytes(address, buffer);
            elf::symbol_and_size(&mut read, module.dynamic, module.bias, name)
        };
        let (version, _) = symbol(b"ruby_api_version")?;
        let vm = symbol(b"ruby_current_vm_ptr");
        let evaluator = symbol(b"rb_vm_exec");
        // It is exported, and begins with the virtual machine.
        let begins_with_vm = symbol(b"ruby_vm_at_exit");
        let version = (memory.half(version)?, memory.half(version + 4)?);
        let offsets = of_version(version)?;
        let vm = match (vm, begins_with_vm) {
            (Some((vm, _)), _) => vm,
            (None, Some((function, bytes))) => code::first_load(memory, function, bytes)?,
            (None, None) => return None,
        };
        let evaluator = match evaluator {
            Some((begin, bytes)) => Evaluator::Known(begin, begin.checked_add(bytes)?),
            None => {
                let table = module.bias.in_process(module.unwind_table);
                Evaluator::Hidden(Functions::at(memory, table)?)
            }
        };
        Some(Runtime {
            vm,
            text: module.text,
            evaluator,
            offsets,
        })
    }

    /// The `rb_vm_t`. `None`: there is none yet, or no more.
    fn machine(&self, memory: &mut impl Memory) -> Option<u64> {
        memory.word(self.vm).filter(|vm| *vm != 0)
    }

    /// Whether this is the thread that is called so, and not what once was one.
    fn is_thread(&self, memory: &mut impl Memory, at: u64, vm: u64, who: Who) -> Option<bool> {
        let o = &self.offsets;
        let native = match o.native_thread {
            Some(native) => memory.word(at.checked_add(native)?)?,
            None => at,
        };
        if native == 0 {
            // It runs in none at this moment.
            return Some(false);
        }
        let is_called_so = match who {
            Who::Handle(handle) => memory.word(native.checked_add(o.thread_handle)?)? == handle,
            Who::Number(number) => memory.half(native.checked_add(o.thread_number)?)? == number,
        };
        let is_thread = is_called_so && memory.word(at.checked_add(o.thread_vm)?)? == vm;
        if !is_thread {
            return Some(false);
        }
        let context = memory.word(at.checked_add(o.context)?)?;
        Some(memory.word(context.checked_add(o.context_thread)?)? == at)
    }

    /// The `rb_thread_t` of a thread: ractors of the machine, threads of each.
    fn thread_of(&self, memory: &mut impl Memory, vm: u64, who: Who) -> Option<u64> {
        let o = &self.offsets;
        let ractors = vm.checked_add(o.ractors)?;
        let mut ractor = memory.word(ractors)?;
        let mut threads_left = MOST_THREADS;
        for _ in 0..MOST_RACTORS {
            if ractor == ractors {
                break;
            }
            let threads = ractor.checked_sub(o.ractor_node)?.checked_add(o.threads)?;
            let mut at = memory.word(threads)?;
            while at != threads {
                threads_left = threads_left.checked_sub(1)?;
                let thread = at.checked_sub(o.thread_node)?;
                if self.is_thread(memory, thread, vm, who)? {
                    return Some(thread);
                }
                at = memory.word(at)?;
            }
            ractor = memory.word(ractor)?;
        }
        None
    }

    /// The managed frames of a thread of another process that stands still, as the kernel numbers it there;
    /// `native` are those of its native stack. None: it is no thread of Ruby's.
    pub fn frames_of(
        &self,
        memory: &mut impl Memory,
        methods: &Methods,
        tid: u32,
        native: NativeFrames,
        to: &mut super::Thread,
    ) {
        to.frames.clear();
        let vm = self.machine(memory);
        let thread = vm.and_then(|vm| self.thread_of(memory, vm, Who::Number(tid)));
        if let Some(thread) = thread {
            let (text, frames) = (&mut to.cpython.text, &mut to.frames);
            let evaluator = &mut (0, 0);
            self.follow(thread, evaluator, memory, methods, native, text, frames);
        }
    }

    /// Follows the frames of a thread. Where it is not certain what belongs where, there are none.
    /// `evaluator`: where `rb_vm_exec` was found before in this process.
    #[expect(clippy::too_many_arguments, reason = "parts of what a thread keeps")]
    fn follow(
        &self,
        thread: u64,
        evaluator: &mut (u64, u64),
        memory: &mut impl Memory,
        methods: &Methods,
        native: NativeFrames,
        text: &mut TextBuffer,
        out: &mut Frames,
    ) -> Found {
        let mut reader = Reader {
            runtime: self,
            evaluator,
            memory,
            methods,
            text,
            stands_for_next: false,
            found: Found::default(),
        };
        let empty = out.mark();
        if reader.follow(thread, native, out).is_none() {
            out.go_back(empty);
            reader.found.is_truncated = true;
        }
        reader.found
    }
}

/// What a thread is called.
#[derive(Clone, Copy, Debug)]
enum Who {
    /// What `pthread_self` gives there.
    Handle(u64),
    /// The kernel's number.
    Number(u32),
}

/// What stands in an execution context.
#[derive(Clone, Copy, Debug)]
struct Context {
    /// The innermost control frame, and where the outermost one ends.
    frames: (u64, u64),
    /// The innermost tag.
    tag: u64,
}

/// What a thread remembers of its `rb_thread_t`. All-zero: nothing.
#[derive(Debug)]
#[repr(C)]
pub struct Thread {
    thread: u64,
    /// Where `rb_vm_exec` begins and ends, if its symbol is hidden and a stack has shown it.
    evaluator: (u64, u64),
}

impl Thread {
    /// The calling thread's, as remembered or searched.
    fn own(&mut self, runtime: &Runtime, memory: &mut impl Memory) -> Option<u64> {
        let vm = runtime.machine(memory)?;
        // SAFETY: asks for the calling thread's own handle.
        let me = Who::Handle(unsafe { libc::pthread_self() } as u64);
        let known = core::mem::take(&mut self.thread);
        let is_known = known != 0 && runtime.is_thread(memory, known, vm, me) == Some(true);
        self.thread = match is_known {
            true => known,
            false => runtime.thread_of(memory, vm, me)?,
        };
        Some(self.thread)
    }

    /// Finds the calling thread's frames; `native` are those of its native stack.
    pub(super) fn find(
        &mut self,
        runtime: &Runtime,
        memory: &mut impl Memory,
        methods: &Methods,
        native: NativeFrames,
        text: &mut TextBuffer,
        out: &mut Frames,
    ) -> Found {
        let Some(thread) = self.own(runtime, memory) else {
            return Found::default();
        };
        let evaluator = &mut self.evaluator;
        let found = runtime.follow(thread, evaluator, memory, methods, native, text, out);
        if found.is_truncated {
            // It may be one that has ended, whose memory still says so.
            self.thread = 0;
        }
        found
    }
}

/// Calls of a function on a native stack, leaf first: which frame, and its stack pointer.
fn calls(
    (begin, end): (u64, u64),
    native: NativeFrames,
) -> impl Iterator<Item = (usize, u64)> + Clone {
    let frames = (0..).map_while(move |i| Some((i, native(i)?)));
    let calls = frames.filter(move |(_, [pc, _])| begin < *pc && *pc < end);
    calls.map(|(i, [_, sp])| (i, sp))
}

/// The tags of a fiber, from the innermost on.
#[derive(Clone, Copy, Debug)]
struct Tags {
    innermost: u64,
    /// Where each says which is the next outer one.
    outer: u64,
    /// So many are looked at.
    left: usize,
}

impl Tags {
    /// The innermost one at or above an address. It is the innermost one from then on.
    fn first_above(&mut self, memory: &mut impl Memory, address: u64) -> Option<u64> {
        while self.innermost < address {
            self.left = self.left.checked_sub(1)?;
            self.innermost = memory.word(self.innermost.checked_add(self.outer)?)?;
        }
        Some(self.innermost)
    }
}

/// One search for the frames of a thread.
struct Reader<'a, 'm, M> {
    runtime: &'a Runtime,
    evaluator: &'a mut (u64, u64),
    memory: &'a mut M,
    methods: &'a Methods<'m>,
    text: &'a mut TextBuffer,
    /// The frame that was read last takes the place of the next one.
    stands_for_next: bool,
    found: Found,
}

impl<M: Memory> Reader<'_, '_, M> {
    /// Finds the runs, from the leaf on. `None`: it is not certain which frames belong where.
    fn follow(&mut self, thread: u64, native: NativeFrames, out: &mut Frames) -> Option<()> {
        let context = self.context(thread)?;
        let runs = self.count_runs(&context)?;
        let is_hidden = matches!(self.runtime.evaluator, Evaluator::Hidden(_));
        if runs == 0 && is_hidden && self.evaluator.1 == 0 {
            // No method has run in this thread so far, and none is missing.
            return Some(());
        }
        let mut layouts = TAG_OUTER.into_iter();
        let (begin, end) = layouts.find_map(|outer| {
            let tags = Tags {
                innermost: context.tag,
                outer,
                left: MOST_TAGS,
            };
            let evaluator = self.evaluator(&context, tags, native)?;
            self.fits(evaluator, runs, tags, native)
                .then_some(evaluator)
        })?;
        *self.evaluator = (begin, end);
        let mut frame = context.frames.0;
        for (i, sp) in calls((begin, end), native) {
            let anchor = self.loop_of(i, native).unwrap_or(sp);
            let has_room =
                out.begin_run(anchor) && self.push_run(&mut frame, context.frames.1, out)?;
            if !has_room {
                // The innermost ones stand.
                self.found.is_truncated = true;
                return Some(());
            }
        }
        Some(())
    }

    /// Whether there are as many native frames of the evaluator as runs, and each has a tag in it.
    fn fits(
        &mut self,
        evaluator: (u64, u64),
        runs: usize,
        mut tags: Tags,
        native: NativeFrames,
    ) -> bool {
        let mut calls = calls(evaluator, native);
        calls.clone().count() == runs
            && calls.all(|(i, sp)| {
                let tag = tags.first_above(self.memory, sp);
                tag.is_some_and(|tag| native(i + 1).is_none_or(|[_, outer]| tag < outer))
            })
    }

    /// Where `rb_vm_exec` begins and ends. It is the function with a tag that calls the one with the loop, or
    /// has the loop in it. Each instruction of a method is an address in the loop.
    fn evaluator(
        &mut self,
        context: &Context,
        mut tags: Tags,
        native: NativeFrames,
    ) -> Option<(u64, u64)> {
        let functions = match self.runtime.evaluator {
            Evaluator::Known(begin, end) => return Some((begin, end)),
            Evaluator::Hidden(_) if self.evaluator.1 != 0 => return Some(*self.evaluator),
            Evaluator::Hidden(functions) => functions,
        };
        let handler = self.first_handler(context)?;
        let the_loop = functions.around(self.memory, handler)?;
        let (i, sp) = calls(the_loop, native).next()?;
        let [caller, caller_sp] = native(i + 1)?;
        let [_, above] = native(i + 2)?;
        match tags.first_above(self.memory, sp)? {
            tag if tag < caller_sp => Some(the_loop),
            // A call ends before the address that it returns to.
            tag if tag < above => functions.around(self.memory, caller.checked_sub(1)?),
            _ => None,
        }
    }

    /// The address of an instruction's code: the first one of the innermost method.
    fn first_handler(&mut self, context: &Context) -> Option<u64> {
        let o = self.runtime.offsets;
        let (mut frame, end) = context.frames;
        while frame < end && !is_code(self.flags(frame)?) {
            frame += o.frame_bytes;
        }
        let code = self.memory.word(frame.checked_add(o.code)?)?;
        let body = self.memory.word(code.checked_add(o.body)?)?;
        let instructions = self.memory.word(body.checked_add(o.instructions)?)?;
        let handler = self.memory.word(instructions)?;
        self.runtime.is_code(handler).then_some(handler)
    }

    /// Where `rb_vm_exec` only calls the function with the loop (`vm_exec_core`), that one's native frame is
    /// the one whose time is the methods': its stack pointer.
    fn loop_of(&self, index: usize, native: NativeFrames) -> Option<u64> {
        /// It is larger with the loop inside, and smaller without it.
        const LEAST_LOOP: u64 = 8 << 10;

        let (begin, end) = *self.evaluator;
        let [pc, sp] = native(index.checked_sub(1)?)?;
        (end - begin < LEAST_LOOP && self.runtime.is_code(pc)).then_some(sp)
    }

    /// The context that a thread runs in.
    fn context(&mut self, thread: u64) -> Option<Context> {
        let o = self.runtime.offsets;
        let context = self.memory.word(thread.checked_add(o.context)?)?;
        let stack = self.memory.word(context.checked_add(o.stack)?)?;
        let words = self.memory.word(context.checked_add(o.stack_words)?)?;
        let innermost = self.memory.word(context.checked_add(o.innermost)?)?;
        let end = stack.checked_add(words.checked_mul(8)?)?;
        let bytes = end.checked_sub(innermost)?;
        let is_inside = stack != 0
            && stack <= innermost
            && bytes.is_multiple_of(o.frame_bytes)
            && bytes / o.frame_bytes <= MOST_CONTROL_FRAMES;
        is_inside.then_some(Context {
            frames: (innermost, end),
            tag: self.memory.word(context.checked_add(o.tag)?)?,
        })
    }

    /// How many calls of the interpreter the control frames are of. `None`: a frame is just being pushed, and
    /// does not say yet that its call begins with it.
    fn count_runs(&mut self, context: &Context) -> Option<usize> {
        let (mut at, end) = context.frames;
        let (mut runs, mut is_inside) = (0, false);
        while at < end {
            let flags = self.flags(at)?;
            if is_code(flags) {
                is_inside = flags & FINISH == 0;
                runs += usize::from(!is_inside);
            } else if is_inside {
                // What a function in C calls begins another call.
                return None;
            }
            at += self.runtime.offsets.frame_bytes;
        }
        (!is_inside).then_some(runs)
    }

    /// The flags of a control frame, at the begin of its environment.
    fn flags(&mut self, frame: u64) -> Option<u64> {
        let environment = self.memory.word(frame + self.runtime.offsets.environment)?;
        self.memory.word(environment)
    }

    /// The run that begins with a control frame, which then is that of the next one; `end`: of all. False:
    /// there was no room.
    fn push_run(&mut self, frame: &mut u64, end: u64, out: &mut Frames) -> Option<bool> {
        while *frame < end {
            let at = *frame;
            *frame = at.checked_add(self.runtime.offsets.frame_bytes)?;
            let flags = self.flags(at)?;
            if !is_code(flags) {
                continue;
            }
            let is_shown = !core::mem::take(&mut self.stands_for_next);
            if !out.take_room() || is_shown && !out.push(self.read(at)?) {
                return Some(false);
            }
            if flags & FINISH != 0 {
                return Some(true);
            }
        }
        None
    }

    /// A frame of a method or block.
    fn read(&mut self, frame: u64) -> Option<Frame> {
        let o = self.runtime.offsets;
        let body = names::body_of(self.memory, &o, frame + o.code)?;
        let words = self.memory.half(body.checked_add(o.words)?)?;
        let next = self.memory.word(frame)?;
        let begin = self.memory.word(body.checked_add(o.instructions)?)?;
        let position = match next.checked_sub(begin).map(|bytes| bytes / 8) {
            // What is next stands behind the instruction that runs.
            Some(next) if next <= u64::from(words) => next.saturating_sub(1) as u32,
            _ => NO_POSITION,
        };
        let environment = self.memory.word(frame + o.environment)?;
        let method = self.method(environment, body, words)?;
        self.stands_for_next = names::stands_for_next(self.memory, &o, body);
        Some(Frame::new(method, position))
    }

    /// The number of the method with this environment, body and words of code. 0: there is no room for it.
    fn method(&mut self, environment: u64, body: u64, words: u32) -> Option<u32> {
        let o = self.runtime.offsets;
        let name = Name::of(self.memory, &o, environment, body)?;
        let file = self.file_of(body)?;
        let first_line = self.memory.word(body.checked_add(o.first_line)?)?;
        let first_line = match o.first_line_is_plain {
            true => first_line as u32,
            false => (first_line >> 1) as u32,
        };
        // 0 of a file.
        let first_line = first_line.max(1);
        let mut key = Key::new();
        key.add(Language::Ruby as u64);
        key.add(u64::from(first_line) << 32 | u64::from(words));
        name.add(self.memory, &mut key)?;
        file.add(self.memory, &mut key)?;
        let key = key.finish();
        match self.methods.find(key) {
            Some(number) => Some(number),
            None => self.describe(key, &name, &file, first_line, (body, words)),
        }
    }

    /// The path of a method's file: that of the file system, if there is one.
    fn file_of(&mut self, body: u64) -> Option<Text> {
        /// `PATHOBJ_PATH`, `PATHOBJ_REALPATH`: the elements of an array of two, which are inside of it.
        const ELEMENTS: u64 = 16;
        /// `nil`: 8 in 3.1, 4 in later versions. No object has such an address.
        const NIL: u64 = 8;

        let o = self.runtime.offsets;
        let mut object = self.memory.word(body.checked_add(o.file)?)?;
        let flags = self.memory.word(object)?;
        if flags & TYPE_MASK == ARRAY && flags & USER_1 != 0 {
            let path = object + ELEMENTS;
            object = match self.memory.word(path + 8)? {
                ..=NIL => self.memory.word(path)?,
                real => real,
            };
        }
        Text::of(self.memory, &o, object)
    }

    #[cold]
    #[inline(never)]
    fn describe(
        &mut self,
        key: u64,
        name: &Name,
        file: &Text,
        first_line: u32,
        (body, words): (u64, u32),
    ) -> Option<u32> {
        let (name_text, rest) = self.text.split_at_mut(NAME_BYTES);
        let (file_text, lines_text) = rest.split_at_mut(FILE_BYTES);
        let name_bytes = name.copy(self.memory, name_text)?;
        let file_bytes = file.copy(self.memory, file_text)?;
        let lines = lines::read(self.memory, &self.runtime.offsets, body, words, lines_text);
        let lines = lines.and_then(|bytes| lines_text.get(..bytes));
        let description = Description {
            runtime: Language::Ruby,
            first_line,
            line_format: match lines {
                Some(_) => format::PLAIN,
                None => format::NONE,
            },
            name: name_text.get(..name_bytes)?,
            file: file_text.get(..file_bytes)?,
            lines: lines.unwrap_or_default(),
        };
        let number = self.methods.insert(key, &description);
        Some(self.found.take(self.methods, number))
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::names::STRING;
    use super::*;
    use crate::shm::mapping::tests::small;
    use std::collections::HashMap;
    use std::vec;
    use std::vec::Vec;

    const BASE: u64 = 1 << 32;
    const EVALUATOR: (u64, u64) = (0x1000, 0x2000);
    const THREAD: u64 = BASE;
    const CONTEXT: u64 = BASE + 0x1000;
    const STACK: u64 = BASE + 0x2000;
    const STACK_END: u64 = BASE + 0x3000;
    const BODY: u64 = BASE + 0x4000;
    const CODE_AT: u64 = BASE + 0x5000;
    const LABEL: u64 = BASE + 0x6000;
    const INSTRUCTIONS: u64 = BASE + 0x7000;
    const FLAGS: u64 = BASE + 0x8000;
    const LOOP: (u64, u64) = (0x4000, 0x5000);
    /// Where functions begin.
    const TABLE: u64 = 0x9000;

    fn runtime() -> Runtime {
        Runtime {
            vm: BASE,
            text: (0, 0),
            evaluator: Evaluator::Known(EVALUATOR.0, EVALUATOR.1),
            offsets: of_version((3, 1)).expect("is known"),
        }
    }

    /// Memory in which nearly every word leads to another one: chains without an end.
    struct Garbage {
        seed: u64,
        reads: u64,
    }

    impl Memory for Garbage {
        fn word(&mut self, address: u64) -> Option<u64> {
            const WORDS: u64 = 96;

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
                4..=7 => Some(CODE),
                8..=10 => Some(STRING | 3 << 14),
                11 => Some(random),
                12..=14 => Some(random % 512),
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
            let mut memory = Garbage { seed, reads: 0 };
            let native = |i| (i < 40).then(|| [EVALUATOR.0 + i as u64 % 2, BASE + 16 * i as u64]);
            let runtime = runtime();
            runtime.frames_of(&mut memory, &methods, 0, &native, &mut thread);
            thread.frames.clear();
            let (text, frames) = (&mut thread.cpython.text, &mut thread.frames);
            runtime.follow(
                BASE,
                &mut (0, 0),
                &mut memory,
                &methods,
                &native,
                text,
                frames,
            );
            most_reads = most_reads.max(memory.reads);
        }
        // It has found its way into such memory, and out again.
        assert!((100..1_000_000).contains(&most_reads), "{most_reads}");
    }

    /// Words at addresses; all others are 0.
    struct Words(HashMap<u64, u64>);

    impl Memory for Words {
        fn word(&mut self, address: u64) -> Option<u64> {
            Some(self.0.get(&address).copied().unwrap_or(0))
        }
    }

    /// A thread with control frames, innermost first: `f` begins a call, `m` is a method inside of one, `c` a
    /// function in C. The position of each method is its place in the list.
    fn words(control: &str, tags: &[u64], tag_outer: u64) -> Words {
        let runtime = runtime();
        let o = &runtime.offsets;
        let innermost = STACK_END - (control.len() as u64 + 1) * o.frame_bytes;
        let mut words = HashMap::from([
            (THREAD + o.context, CONTEXT),
            (CONTEXT + o.stack, STACK),
            (CONTEXT + o.stack_words, (STACK_END - STACK) / 8),
            (CONTEXT + o.innermost, innermost),
            (CONTEXT + o.tag, tags[0]),
            (CODE_AT, CODE),
            (CODE_AT + o.body, BODY),
            (BODY, 100 << 32),
            (BODY + o.instructions, INSTRUCTIONS),
            (BODY + o.file, LABEL),
            (BODY + o.label, LABEL),
            (LABEL, STRING | 3 << 14),
            (LABEL + 16, u64::from_le_bytes(*b"abc\0\0\0\0\0")),
            (INSTRUCTIONS, LOOP.0 + 8),
            (TABLE, 0x3b03_1b01),
            (TABLE + 8, 6),
        ]);
        let begins = [0, EVALUATOR.0, EVALUATOR.1, LOOP.0, LOOP.1, 0x6000];
        for (i, begin) in (0..).zip(begins) {
            // Relative to the table, and the frame's rules.
            let entry = begin.wrapping_sub(TABLE) as u32;
            *words.entry(TABLE + 8 + 8 * i).or_insert(0) |= u64::from(entry) << 32;
        }
        for pair in tags.windows(2) {
            words.insert(pair[0] + tag_outer, pair[1]);
        }
        for (i, kind) in (0..).zip(control.bytes().chain(*b"d")) {
            let (frame, flags) = (innermost + i * o.frame_bytes, FLAGS + 8 * i);
            words.insert(frame, INSTRUCTIONS + 8 * (i + 1));
            words.insert(frame + o.code, CODE_AT);
            words.insert(frame + o.environment, flags);
            let kind = match kind {
                b'f' => FINISH | 0x1111_0001,
                b'm' => 0x1111_0001,
                b'c' => IS_C | 0x5555_0001,
                _ => FINISH | DUMMY,
            };
            words.insert(flags, kind);
        }
        Words(words)
    }

    /// The runs of a thread: anchor and positions. Native frames from the leaf on, 16 bytes each: `e` is one
    /// of the evaluator, `l` one of the function with the loop.
    fn runs(
        runtime: &Runtime,
        native: &str,
        control: &str,
        (tags, tag_outer): (&[u64], u64),
    ) -> Vec<(u64, Vec<u32>)> {
        let mapping = small();
        let methods = Methods::of(&mapping);
        let mut thread = super::super::Thread::boxed();
        let native = |i: usize| {
            let pc = match *native.as_bytes().get(i)? {
                b'e' => EVALUATOR.0 + 4,
                b'l' => LOOP.0 + 4,
                _ => 0x3000,
            };
            Some([pc, 16 * i as u64])
        };
        let (text, out) = (&mut thread.cpython.text, &mut thread.frames);
        let mut memory = words(control, tags, tag_outer);
        let evaluator = &mut (0, 0);
        let found = runtime.follow(THREAD, evaluator, &mut memory, &methods, &native, text, out);
        let runs = (0..).map_while(|i| out.run(i)).map(|(anchor, frames)| {
            let positions = frames.iter().map(|frame| frame.position);
            (anchor, positions.collect::<Vec<_>>())
        });
        let runs: Vec<_> = runs.collect();
        assert_eq!(found.is_truncated, runs.is_empty());
        runs
    }

    #[test]
    fn runs_are_given_to_native_frames_only_where_all_have_one() {
        let runtime = runtime();
        for outer in TAG_OUTER {
            let follow = |native: &str, control: &str, tags: &[u64]| {
                runs(&runtime, native, control, (tags, outer))
            };
            let both = [(0x10, vec![1, 2]), (0x30, vec![4])];
            // One tag is of C's, between them.
            assert_eq!(follow("cecec", "cmfcf", &[0x18, 0x24, 0x38]), both);
            // A call that has no frame any more, or no native frame yet.
            assert_eq!(follow("ececec", "cmfcf", &[0x8, 0x28, 0x48]), []);
            assert_eq!(follow("cececc", "fcmfcf", &[0x18, 0x38]), []);
            // Its tags are on the stack of another fiber.
            assert_eq!(follow("cecec", "cmfcf", &[0x1018, 0x1038]), []);
            assert_eq!(follow("cecec", "cmfcf", &[0x18, 0x48]), []);
            // A frame below one in C does not say yet that it begins a call.
            assert_eq!(follow("cecec", "mcmfcf", &[0x18, 0x38]), []);
            assert_eq!(follow("cecec", "cmfcm", &[0x18, 0x38]), []);
        }
    }

    #[test]
    fn a_hidden_evaluator_is_what_calls_the_loop_and_has_a_tag() {
        let mut table = words("f", &[0], 0);
        let runtime = Runtime {
            text: (LOOP.0, LOOP.1),
            evaluator: Evaluator::Hidden(Functions::at(&mut table, TABLE).expect("a table")),
            ..runtime()
        };
        for outer in TAG_OUTER {
            let follow =
                |native: &str, tags: &[u64]| runs(&runtime, native, "cmfcf", (tags, outer));
            // The loop is in a function of its own, whose frame the methods take.
            let both = [(0x10, vec![1, 2]), (0x40, vec![4])];
            assert_eq!(follow("cleclecc", &[0x28, 0x34, 0x58]), both);
            // It is in the evaluator itself.
            let both = [(0x10, vec![1, 2]), (0x30, vec![4])];
            assert_eq!(follow("clclcc", &[0x18, 0x24, 0x38]), both);
            // What calls it has no tag; nothing calls it; one of the calls is somewhere else.
            assert_eq!(follow("cleclecc", &[0x38, 0x58]), []);
            assert_eq!(follow("ceececc", &[0x18, 0x48]), []);
            assert_eq!(follow("cleclccc", &[0x28, 0x58]), []);
        }
    }
}
