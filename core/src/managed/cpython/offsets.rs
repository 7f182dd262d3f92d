//! Where the fields of CPython's structures lie, by version: checked against the DWARF of builds of these versions.

use super::super::lines::format;
use super::super::memory::Memory;

/// `PyThreadState::next` and `interp`: behind `prev`.
pub(super) const THREAD_NEXT: u64 = 8;
pub(super) const THREAD_INTERPRETER: u64 = 16;

/// How frames hang together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chain {
    /// A `PyFrameObject` for each call of the interpreter (3.10).
    Objects,
    /// A `_PyCFrame` for each call of the interpreter, whose last frame has `is_entry` (3.11).
    Entries,
    /// A frame that the interpreter owns below those of each call (3.12 and later).
    Shims,
}

/// Offsets of the fields of one version.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offsets {
    pub(super) chain: Chain,
    /// `_PyRuntimeState`: `_finalizing`, and `interpreters.head`.
    pub(super) finalizing: u64,
    pub(super) interpreters: u64,
    /// `PyInterpreterState`: `next` and `threads.head`.
    pub(super) interpreter_next: u64,
    pub(super) threads: u64,
    /// `PyThreadState`: `thread_id`, which is that of `pthread_self`, and `native_thread_id`, the kernel's (0: there is none).
    pub(super) thread_id: u64,
    pub(super) native_id: u64,
    /// `PyThreadState::cframe`; 3.13: `current_frame`.
    pub(super) thread_frames: u64,
    /// `_PyCFrame`: `current_frame` (3.10 has none: `PyThreadState::frame`) and `previous`.
    pub(super) cframe_current: u64,
    pub(super) cframe_previous: u64,
    /// The frame: code, `previous`, position, `owner`, `is_entry`.
    pub(super) code: u64,
    pub(super) previous: u64,
    pub(super) position: u64,
    pub(super) owner: u64,
    pub(super) is_entry: u64,
    /// `PyCodeObject`.
    pub(super) name: u64,
    pub(super) file: u64,
    pub(super) first_line: u64,
    pub(super) lines: u64,
    pub(super) instructions: u64,
    /// `ob_type` of any object.
    pub(super) object_type: u64,
    /// `PyBytesObject`: `ob_size` and `ob_sval`.
    pub(super) bytes_size: u64,
    pub(super) bytes_content: u64,
    /// `PyASCIIObject`: length and state.
    pub(super) text_length: u64,
    pub(super) text_state: u64,
    /// Sizes of `PyASCIIObject` and `PyCompactUnicodeObject`, behind which the characters lie.
    pub(super) ascii_bytes: u64,
    pub(super) compact_bytes: u64,
    pub(super) line_format: u8,
}

pub(super) const V3_10: Offsets = Offsets {
    chain: Chain::Objects,
    finalizing: 16,
    interpreters: 32,
    interpreter_next: 0,
    threads: 8,
    thread_id: 176,
    native_id: 0,
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

pub(super) const V3_11: Offsets = Offsets {
    chain: Chain::Entries,
    finalizing: 24,
    interpreters: 40,
    interpreter_next: 0,
    threads: 16,
    thread_id: 152,
    native_id: 160,
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

pub(super) const V3_12: Offsets = Offsets {
    chain: Chain::Shims,
    finalizing: 24,
    interpreters: 40,
    interpreter_next: 0,
    threads: 72,
    thread_id: 136,
    native_id: 144,
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
    pub(super) fn of_3_13(memory: &mut impl Memory, runtime: u64) -> Option<Offsets> {
        let mut at = |word: u64| {
            memory
                .word(runtime + 8 * word)
                .filter(|offset| *offset < 1 << 20)
        };
        let ascii_bytes = at(70)?;
        let offsets = Offsets {
            chain: Chain::Shims,
            finalizing: at(4)?,
            interpreters: at(5)?,
            interpreter_next: at(8)?,
            threads: at(9)?,
            thread_id: at(24)?,
            native_id: at(25)?,
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
