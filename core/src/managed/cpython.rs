//! The frames of CPython, read from the structures of the interpreter, without its lock and without a call into it.
//!
//! Where a field lies depends on the version: from 3.13 on the interpreter says it itself (`_Py_DebugOffsets`, at the
//! begin of `_PyRuntime`), before that it is a table here, checked against the DWARF of builds of these versions. Other
//! versions are left alone: their stacks stay native.
//!
//! A thread finds its `PyThreadState` by `thread_id`, which is what `pthread_self` gives. Frames hang on it, each with
//! its code object. What one call of `_PyEval_EvalFrameDefault` runs is a run, anchored at a structure that this call
//! has on the native stack: its `_PyCFrame` (3.10 and 3.11), or the frame that it pushes below its own (3.12 and later;
//! `FRAME_OWNED_BY_CSTACK`).
//!
//! A method is its qualified name, its file, its first line and the length of its line table: code objects are freed
//! and their memory is used again, and the same code is another object in each process.

use super::lines::format;
use super::pages::Pages;
use super::{Found, Frame, Frames};
use crate::shm::methods::{
    Description, FILE_BYTES, LINES_BYTES, Methods, NAME_BYTES, NO_POSITION, Runtime as Language,
};
use crate::unwind::elf;
use core::sync::atomic::{AtomicU32, Ordering};

const MOST_INTERPRETERS: usize = 64;
const MOST_THREADS: usize = 1 << 14;
/// Code of one method is shorter.
const MOST_POSITION: u64 = 1 << 24;

/// `PyThreadState::next` and `interp`: behind `prev`.
const THREAD_NEXT: u64 = 8;
const THREAD_INTERPRETER: u64 = 16;

/// How frames hang together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chain {
    /// A `PyFrameObject` for each call of the interpreter (3.10).
    Objects,
    /// A `_PyCFrame` for each call of the interpreter, whose last frame has `is_entry` (3.11).
    Entries,
    /// A frame that the interpreter owns below those of each call (3.12 and later).
    Shims,
}

/// Offsets of the fields of one version.
#[derive(Clone, Copy, Debug)]
struct Offsets {
    chain: Chain,
    /// `_PyRuntimeState::interpreters.head`.
    interpreters: u64,
    /// `PyInterpreterState`: `next` and `threads.head`.
    interpreter_next: u64,
    threads: u64,
    /// `PyThreadState::thread_id`.
    thread_id: u64,
    /// `PyThreadState::cframe`; 3.13: `current_frame`.
    thread_frames: u64,
    /// `_PyCFrame`: `current_frame` (3.10 has none: `PyThreadState::frame`) and `previous`.
    cframe_current: u64,
    cframe_previous: u64,
    /// The frame: code, `previous`, position, `owner`, `is_entry`.
    code: u64,
    previous: u64,
    position: u64,
    owner: u64,
    is_entry: u64,
    /// `PyCodeObject`.
    name: u64,
    file: u64,
    first_line: u64,
    lines: u64,
    instructions: u64,
    /// `ob_type` of any object.
    object_type: u64,
    /// `PyBytesObject`: `ob_size` and `ob_sval`.
    bytes_size: u64,
    bytes_content: u64,
    /// `PyASCIIObject`: length and state.
    text_length: u64,
    text_state: u64,
    /// Sizes of `PyASCIIObject` and `PyCompactUnicodeObject`, behind which the characters lie.
    ascii_bytes: u64,
    compact_bytes: u64,
    line_format: u8,
}

const V3_10: Offsets = Offsets {
    chain: Chain::Objects,
    interpreters: 32,
    interpreter_next: 0,
    threads: 8,
    thread_id: 176,
    thread_frames: 48,
    cframe_current: 24,
    cframe_previous: 8,
    code: 32,
    previous: 24,
    position: 96,
    owner: 0,
    is_entry: 0,
    name: 112,
    file: 104,
    first_line: 40,
    lines: 120,
    instructions: 0,
    object_type: 8,
    bytes_size: 16,
    bytes_content: 32,
    text_length: 16,
    text_state: 32,
    ascii_bytes: 48,
    compact_bytes: 72,
    line_format: format::CPYTHON_PAIRS,
};

const V3_11: Offsets = Offsets {
    chain: Chain::Entries,
    interpreters: 40,
    interpreter_next: 0,
    threads: 16,
    thread_id: 152,
    thread_frames: 56,
    cframe_current: 8,
    cframe_previous: 16,
    code: 32,
    previous: 48,
    position: 56,
    owner: 69,
    is_entry: 68,
    name: 128,
    file: 112,
    first_line: 72,
    lines: 136,
    instructions: 184,
    object_type: 8,
    bytes_size: 16,
    bytes_content: 32,
    text_length: 16,
    text_state: 32,
    ascii_bytes: 48,
    compact_bytes: 72,
    line_format: format::CPYTHON_LOCATIONS,
};

const V3_12: Offsets = Offsets {
    chain: Chain::Shims,
    interpreters: 40,
    interpreter_next: 0,
    threads: 72,
    thread_id: 136,
    thread_frames: 56,
    cframe_current: 0,
    cframe_previous: 8,
    code: 0,
    previous: 8,
    position: 56,
    owner: 70,
    is_entry: 0,
    name: 128,
    file: 112,
    first_line: 68,
    lines: 136,
    instructions: 192,
    object_type: 8,
    bytes_size: 16,
    bytes_content: 32,
    text_length: 16,
    text_state: 32,
    ascii_bytes: 40,
    compact_bytes: 56,
    line_format: format::CPYTHON_LOCATIONS,
};

impl Offsets {
    /// As 3.13 publishes them (Include/internal/pycore_runtime.h, `_Py_DebugOffsets`): word by word.
    fn of_3_13(pages: &mut Pages, runtime: u64) -> Option<Offsets> {
        let mut at = |word: u64| {
            pages
                .word(runtime + 8 * word)
                .filter(|offset| *offset < 1 << 20)
        };
        let ascii_bytes = at(70)?;
        let offsets = Offsets {
            chain: Chain::Shims,
            interpreters: at(5)?,
            interpreter_next: at(8)?,
            threads: at(9)?,
            thread_id: at(24)?,
            thread_frames: at(23)?,
            cframe_current: 0,
            cframe_previous: 0,
            code: at(30)?,
            previous: at(29)?,
            position: at(31)?,
            owner: at(33)?,
            is_entry: 0,
            name: at(37)?,
            file: at(35)?,
            first_line: at(39)?,
            lines: at(38)?,
            instructions: at(43)?,
            object_type: at(45)?,
            bytes_size: at(65)?,
            bytes_content: at(66)?,
            text_length: at(69)?,
            text_state: at(68)?,
            ascii_bytes,
            // `utf8_length` and `utf8` follow.
            compact_bytes: ascii_bytes + 16,
            line_format: format::CPYTHON_LOCATIONS,
        };
        let is_as_expected = at(21)? == THREAD_NEXT && at(22)? == THREAD_INTERPRETER;
        is_as_expected.then_some(offsets)
    }
}

/// The interpreter in this process.
#[derive(Clone, Copy, Debug)]
pub struct Runtime {
    /// Address of `_PyRuntime` and of `PyCode_Type`.
    runtime: u64,
    code_type: u64,
    /// Where its code lies.
    text: (u64, u64),
    offsets: Offsets,
    /// 3.13 and later: the frame hangs on the thread state itself.
    is_direct: bool,
}

/// Whether there is one: [`ABSENT`], [`COMING`] while it is written, [`PRESENT`].
static STATE: AtomicU32 = AtomicU32::new(ABSENT);
const ABSENT: u32 = 0;
const COMING: u32 = 1;
const PRESENT: u32 = 2;

struct Place(core::cell::UnsafeCell<core::mem::MaybeUninit<Runtime>>);

// SAFETY: written once, by who changed `STATE` to `COMING`, and read only when it is `PRESENT`.
unsafe impl Sync for Place {}

static RUNTIME: Place = Place(core::cell::UnsafeCell::new(core::mem::MaybeUninit::uninit()));

/// The interpreter, if one was found in this process.
#[inline]
pub fn runtime() -> Option<&'static Runtime> {
    (STATE.load(Ordering::Acquire) == PRESENT)
        // SAFETY: written before the state said so, and never again.
        .then(|| unsafe { (*RUNTIME.0.get()).assume_init_ref() })
}

/// A module is there: `path` is its file, `dynamic` the file's address of its dynamic section, `bias` what was added to
/// the file's addresses, `text` where its code lies. If it is an interpreter of a known version, captures look for its frames from now on.
pub(crate) fn module_came(path: &[u8], dynamic: u64, bias: u64, text: (u64, u64)) {
    let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    if dynamic == 0 || !file.windows(6).any(|part| part == b"python") {
        return;
    }
    let mut pages = Pages::new();
    let Some(found) = Runtime::of_module(&mut pages, dynamic, bias, text) else {
        return;
    };
    // Of two interpreters in one process the first one is read.
    if STATE
        .compare_exchange(ABSENT, COMING, Ordering::Acquire, Ordering::Relaxed)
        .is_ok()
    {
        // SAFETY: nobody reads it before the state says that it is there, and nobody else writes it.
        unsafe { (*RUNTIME.0.get()).write(found) };
        STATE.store(PRESENT, Ordering::Release);
    }
}

impl Runtime {
    /// Whether an address is one of the interpreter's code. Where none is on a stack, no frames of it are.
    #[inline]
    pub fn is_code(&self, address: u64) -> bool {
        self.text.0 <= address && address < self.text.1
    }

    fn of_module(pages: &mut Pages, dynamic: u64, bias: u64, text: (u64, u64)) -> Option<Runtime> {
        let mut symbol = |name: &[u8]| elf::symbol(pages, dynamic, bias, name);
        let runtime = symbol(b"_PyRuntime")?;
        let code_type = symbol(b"PyCode_Type")?;
        // `Py_Version` is exported from 3.11 on, `Py_NewRef` from 3.10 on.
        let (version, has_new_ref) = (symbol(b"Py_Version"), symbol(b"Py_NewRef").is_some());
        let version = match version {
            Some(address) => pages.word(address)? >> 16,
            None if has_new_ref => 0x030a,
            None => return None,
        };
        let offsets = match version {
            0x030a => V3_10,
            0x030b => V3_11,
            0x030c => V3_12,
            0x030d => Offsets::of_3_13(pages, runtime)?,
            _ => return None,
        };
        Some(Runtime {
            runtime,
            code_type,
            text,
            offsets,
            is_direct: version >= 0x030d,
        })
    }
}

/// Whether this `_PyCFrame` is the one inside a thread state, below which there is none: its `previous` is not always set.
fn is_outermost(state: u64, cframe: u64) -> bool {
    const MOST_STATE_BYTES: u64 = 512;
    cframe.wrapping_sub(state) < MOST_STATE_BYTES
}

/// What a thread remembers of its `PyThreadState`. All-zero: nothing.
#[derive(Debug)]
#[repr(C)]
pub struct Thread {
    state: u64,
    interpreter: u64,
    text: [u8; NAME_BYTES + FILE_BYTES + LINES_BYTES],
}

/// One search for the frames of the calling thread.
pub(super) struct Reader<'a, 'm> {
    pub(super) runtime: &'a Runtime,
    pub(super) pages: &'a mut Pages,
    pub(super) methods: &'a Methods<'m>,
    pub(super) thread: &'a mut Thread,
    pub(super) found: Found,
}

impl Reader<'_, '_> {
    pub(super) fn find(&mut self, out: &mut Frames) {
        let Some(state) = self.thread_state() else {
            return;
        };
        // What cannot be read ends the search: what was found so far stands.
        let _ = match self.runtime.offsets.chain {
            Chain::Objects => self.follow_objects(state, out),
            Chain::Entries => self.follow_entries(state, out),
            Chain::Shims => self.follow_shims(state, out),
        };
    }

    fn thread_state(&mut self) -> Option<u64> {
        let o = &self.runtime.offsets;
        // SAFETY: asks for the calling thread's own number.
        let me = unsafe { libc::pthread_self() } as u64;
        let known = self.thread.state;
        if known != 0
            && self.pages.word(known + o.thread_id) == Some(me)
            && self.pages.word(known + THREAD_INTERPRETER) == Some(self.thread.interpreter)
        {
            return Some(known);
        }
        self.thread.state = 0;
        let mut interpreter = self.pages.word(self.runtime.runtime + o.interpreters)?;
        for _ in 0..MOST_INTERPRETERS {
            if interpreter == 0 {
                break;
            }
            let mut at = self.pages.word(interpreter.checked_add(o.threads)?)?;
            for _ in 0..MOST_THREADS {
                if at == 0 {
                    break;
                }
                if self.pages.word(at.checked_add(o.thread_id)?)? == me {
                    self.thread.state = at;
                    self.thread.interpreter = self.pages.word(at + THREAD_INTERPRETER)?;
                    return Some(at);
                }
                at = self.pages.word(at + THREAD_NEXT)?;
            }
            interpreter = self
                .pages
                .word(interpreter.checked_add(o.interpreter_next)?)?;
        }
        None
    }

    /// 3.10: one frame for each `CFrame`. Inside the interpreter's first and last instructions there is one `CFrame` more.
    fn follow_objects(&mut self, state: u64, out: &mut Frames) -> Option<()> {
        let o = self.runtime.offsets;
        let count = |pages: &mut Pages, from: u64, offset: u64| {
            let (mut at, mut count) = (from, 0usize);
            while at != 0 && !is_outermost(state, at) && count <= super::MOST_FRAMES {
                at = pages.word(at.checked_add(offset)?)?;
                count += 1;
            }
            Some(count)
        };
        let mut anchor = self.pages.word(state + o.thread_frames)?;
        let mut frame = self.pages.word(state + o.cframe_current)?;
        let anchors = count(self.pages, anchor, o.cframe_previous)?;
        let frames = count(self.pages, frame, o.previous)?;
        for _ in frames..anchors {
            anchor = self.pages.word(anchor + o.cframe_previous)?;
        }
        for _ in anchors..frames {
            frame = self.pages.word(frame + o.previous)?;
        }
        while frame != 0 {
            if !out.begin_run(anchor) || !self.push(frame, out) {
                self.found.is_truncated = true;
                return None;
            }
            anchor = self.pages.word(anchor + o.cframe_previous)?;
            frame = self.pages.word(frame + o.previous)?;
        }
        Some(())
    }

    fn follow_entries(&mut self, state: u64, out: &mut Frames) -> Option<()> {
        let o = self.runtime.offsets;
        let mut cframe = self.pages.word(state + o.thread_frames)?;
        while !is_outermost(state, cframe) {
            let mut frame = self.pages.word(cframe.checked_add(o.cframe_current)?)?;
            let has_room = frame == 0 || out.begin_run(cframe);
            while frame != 0 {
                if !has_room || !self.push(frame, out) {
                    self.found.is_truncated = true;
                    return None;
                }
                if self.pages.byte(frame + o.is_entry)? != 0 {
                    break;
                }
                frame = self.pages.word(frame + o.previous)?;
            }
            cframe = self.pages.word(cframe + o.cframe_previous)?;
        }
        Some(())
    }

    fn follow_shims(&mut self, state: u64, out: &mut Frames) -> Option<()> {
        /// From here on the interpreter owns the frame (`enum _frameowner`).
        const OWNED_BY_INTERPRETER: u8 = 3;

        let o = self.runtime.offsets;
        let mut frame = self.pages.word(state + o.thread_frames)?;
        if !self.runtime.is_direct {
            frame = self.pages.word(frame.checked_add(o.cframe_current)?)?;
        }
        let mut is_open = false;
        while frame != 0 {
            if self.pages.byte(frame.checked_add(o.owner)?)? >= OWNED_BY_INTERPRETER {
                if is_open {
                    out.anchor_last(frame);
                    is_open = false;
                }
            } else {
                let has_room = is_open || out.begin_run(0);
                is_open = has_room;
                if !has_room || !self.push(frame, out) {
                    self.found.is_truncated = true;
                    break;
                }
            }
            let Some(previous) = self.pages.word(frame + o.previous) else {
                break;
            };
            frame = previous;
        }
        if is_open {
            out.drop_last();
        }
        Some(())
    }

    /// Adds a frame. One whose code makes no sense has been caught while it was made, and is left out. False: no room.
    fn push(&mut self, frame: u64, out: &mut Frames) -> bool {
        match self.read(frame) {
            Some(frame) => out.push(frame),
            None => true,
        }
    }

    fn read(&mut self, frame: u64) -> Option<Frame> {
        let o = self.runtime.offsets;
        let code = self.pages.word(frame.checked_add(o.code)?)? & !7;
        if code == 0 || self.pages.word(code.checked_add(o.object_type)?)? != self.runtime.code_type
        {
            return None;
        }
        let position = match o.chain {
            // In units of two bytes; −1: not begun.
            Chain::Objects => {
                let last = self.pages.half(frame + o.position)? as i32;
                u64::from(last.max(0) as u32) * 2
            }
            _ => {
                let at = self.pages.word(frame + o.position)?;
                at.saturating_sub(code + o.instructions)
            }
        };
        let position = match position {
            position if position < MOST_POSITION => position as u32,
            _ => NO_POSITION,
        };
        let method = self.method(code)?;
        Some(Frame { method, position })
    }

    /// The number of a code object's method; 0: there is no room for it.
    fn method(&mut self, code: u64) -> Option<u32> {
        let o = self.runtime.offsets;
        let name_object = self.pages.word(code + o.name)?;
        let file_object = self.pages.word(code + o.file)?;
        let first_line = self.pages.half(code + o.first_line)?;
        // What the interpreter puts below `__init__` is no function of anybody's (`_Py_InitCleanup`, Python/specialize.c).
        if name_object == file_object && first_line == 0 {
            return None;
        }
        let name = self.text(name_object)?;
        let file = self.text(file_object)?;
        let lines = self.pages.word(code + o.lines)?;
        let lines_bytes = self.pages.word(lines.checked_add(o.bytes_size)?)?;
        let mut key = Key::new();
        key.add(Language::CPython as u64);
        key.add(u64::from(first_line) << 32 | lines_bytes & 0xffff_ffff);
        self.add(&name, &mut key)?;
        self.add(&file, &mut key)?;
        let key = key.finish();
        match self.methods.find(key) {
            Some(number) => Some(number),
            None => self.describe(key, &name, &file, first_line, (lines, lines_bytes)),
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
        let (name_text, rest) = self.thread.text.split_at_mut(NAME_BYTES);
        let (file_text, lines_text) = rest.split_at_mut(FILE_BYTES);
        let name_bytes = name.copy(self.pages, name_text)?;
        let file_bytes = file.copy(self.pages, file_text)?;
        // Longer ones are left out.
        let lines_text = lines_text.get_mut(..lines.1 as usize).unwrap_or(&mut []);
        let has_lines = self
            .pages
            .bytes(lines.0 + self.runtime.offsets.bytes_content, lines_text);
        let description = Description {
            runtime: Language::CPython,
            first_line,
            line_format: match has_lines && !lines_text.is_empty() {
                true => self.runtime.offsets.line_format,
                false => format::NONE,
            },
            name: name_text.get(..name_bytes)?,
            file: file_text.get(..file_bytes)?,
            lines: if has_lines { lines_text } else { &[] },
        };
        match self.methods.insert(key, &description) {
            Ok(number) => {
                self.found.table_low = self.methods.is_low();
                Some(number)
            }
            Err(_) => {
                self.found.table_full = true;
                Some(0)
            }
        }
    }

    /// Where the characters of a text lie.
    fn text(&mut self, object: u64) -> Option<Text> {
        let o = self.runtime.offsets;
        let length = self.pages.word(object.checked_add(o.text_length)?)?;
        let state = self.pages.half(object + o.text_state)?;
        let (width, is_compact, is_ascii) =
            (state >> 2 & 7, state >> 5 & 1 != 0, state >> 6 & 1 != 0);
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
            let word = self.pages.word(at)?;
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
    fn copy(&self, pages: &mut Pages, to: &mut [u8]) -> Option<usize> {
        let mut used = 0;
        for i in 0..self.length {
            let at = self.characters + (i * self.width) as u64;
            let mut raw = [0; 4];
            if !pages.bytes(at, raw.get_mut(..self.width)?) {
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

/// A method's identity.
struct Key(u64);

impl Key {
    fn new() -> Key {
        Key(0x9e37_79b9_7f4a_7c15)
    }

    /// Multiplies into 128 bits and folds.
    #[inline]
    fn add(&mut self, word: u64) {
        let wide = u128::from(self.0 ^ word) * u128::from(0xa076_1d64_78bd_642f_u64);
        self.0 = (wide ^ wide >> 64) as u64 ^ self.0.rotate_left(23);
    }

    fn finish(mut self) -> u64 {
        self.add(0);
        self.0.max(1)
    }
}
