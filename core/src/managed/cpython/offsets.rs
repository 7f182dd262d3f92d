//! Where the fields of CPython's structures lie, by version: checked against the DWARF of builds of these
//! versions.

use super::super::lines::format;
use super::super::memory::Memory;

/// `PyThreadState::next` and `interp`: behind `prev`.
pub(super) const THREAD_NEXT: u64 = 8;
pub(super) const THREAD_INTERPRETER: u64 = 16;

/// How frames hang together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chain {
    /// A `PyFrameObject` for each call of the interpreter, and nothing else (3.9).
    Counted,
    /// The same, and a `_PyCFrame` (3.10).
    Objects,
    /// A `_PyCFrame` for each call of the interpreter, whose last frame has `is_entry` (3.11).
    Entries,
    /// A frame that the interpreter owns below those of each call (3.12 and later).
    Shims,
}

/// Where objects of classes have their attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attributes {
    /// In a dictionary, `tp_dictoffset` behind the object (3.9 and 3.10).
    Dict,
    /// In values that a pointer of their own leads to, or in a dictionary (3.11). `keys`:
    /// `PyHeapTypeObject::ht_cached_keys`, here and below.
    Apart { keys: u64 },
    /// In values or a dictionary, as the lowest bit of the pointer says (3.12).
    Tagged { keys: u64 },
    /// In values behind the object, as long as it has no dictionary (3.13 and later).
    Inline { keys: u64 },
}

/// Offsets of the fields of one version.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offsets {
    pub(super) chain: Chain,
    /// `_PyRuntimeState`: `_finalizing`, and `interpreters.head`.
    pub(super) finalizing: u64,
    pub(super) interpreters: u64,
    /// `PyInterpreterState`: `id`, `next` and `threads.head` (before 3.11 `tstate_head`).
    pub(super) interpreter_id: u64,
    pub(super) interpreter_next: u64,
    pub(super) threads: u64,
    /// `PyThreadState::id`, which counts those that the interpreter has ever made (3.9 and 3.10); 0: the word
    /// before `threads.head` has this count (`threads.next_unique_id`).
    pub(super) state_number: u64,
    /// `PyThreadState`: `thread_id`, which is that of `pthread_self`, and `native_thread_id`, the kernel's
    /// (0: there is none).
    pub(super) thread_id: u64,
    pub(super) native_id: u64,
    /// `PyThreadState::cframe`; 3.13: `current_frame`.
    pub(super) thread_frames: u64,
    /// `PyThreadState::base_frame`, below which there is none (3.15); 0: the last one has no `previous`.
    pub(super) base_frame: u64,
    /// `_PyCFrame`: `current_frame` (3.9 and 3.10 have none: `PyThreadState::frame`) and `previous`.
    pub(super) cframe_current: u64,
    pub(super) cframe_previous: u64,
    /// The frame: code, `previous`, position, `owner`, `is_entry`.
    pub(super) code: u64,
    pub(super) previous: u64,
    pub(super) position: u64,
    /// `None`: positions are of the code's own instructions.
    pub(super) copies: Option<Copies>,
    pub(super) owner: u64,
    pub(super) is_entry: u64,
    /// Where a frame's local variables begin.
    pub(super) locals: u64,
    pub(super) attributes: Attributes,
    /// How far in front of an object the pointer to its dictionary stands (`MANAGED_DICT_OFFSET`).
    pub(super) managed_dict: u64,
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
    /// `PyASCIIObject`: length, state, and at which bit of that `kind` begins.
    pub(super) text_length: u64,
    pub(super) text_state: u64,
    pub(super) text_kind_bit: u32,
    /// Sizes of `PyASCIIObject` and `PyCompactUnicodeObject`, behind which the characters lie.
    pub(super) ascii_bytes: u64,
    pub(super) compact_bytes: u64,
    pub(super) line_format: u8,
    /// `None`: it is not known who awaits a task (before 3.14).
    pub(super) coroutines: Option<Coroutines>,
}

/// Where a thread finds its own copy of a code object's instructions (free-threaded builds of 3.14 and
/// later).
#[derive(Clone, Copy, Debug)]
pub(super) struct Copies {
    /// The frame's `tlbc_index`, 32 bits: which one it runs; 0: the code's own instructions.
    pub(super) index: u64,
    /// `PyCodeObject::co_tlbc`: the count of copies, and a pointer to each.
    pub(super) list: u64,
}

/// Where the fields of coroutines and of sets lie, and what tells of a coroutine that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coroutines {
    /// `PyGenObject`: `gi_iframe` and `gi_frame_state`.
    pub(super) frame: u64,
    pub(super) state: u64,
    /// The frame's `stackpointer`.
    pub(super) stack_pointer: u64,
    /// Values of the state (`enum _framestate`): the range of those that are suspended, and the range of
    /// those that await something.
    pub(super) suspended: (i8, i8),
    pub(super) awaits: (i8, i8),
    /// How far below the stack pointer that is then.
    pub(super) awaited_below: u64,
    /// `PySetObject`: `used`, `table` and `mask`.
    pub(super) set_used: u64,
    pub(super) set_table: u64,
    pub(super) set_mask: u64,
}

/// Checked against the headers.
pub(super) const V3_9: Offsets = Offsets {
    chain: Chain::Counted,
    position: 104,
    locals: 360,
    line_format: format::CPYTHON_LNOTAB,
    ..V3_10
};

pub(super) const V3_10: Offsets = Offsets {
    chain: Chain::Objects,
    finalizing: 16,
    interpreters: 32,
    interpreter_id: 24,
    interpreter_next: 0,
    threads: 8,
    state_number: 256,
    thread_id: 176,
    native_id: 0,
    thread_frames: 48,
    base_frame: 0,
    cframe_current: 24,
    cframe_previous: 8,
    code: 32,
    previous: 24,
    position: 96,
    copies: None,
    owner: 0,
    is_entry: 0,
    locals: 352,
    attributes: Attributes::Dict,
    managed_dict: 24,
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
    text_kind_bit: 2,
    ascii_bytes: 48,
    compact_bytes: 72,
    line_format: format::CPYTHON_PAIRS,
    coroutines: None,
};

pub(super) const V3_11: Offsets = Offsets {
    chain: Chain::Entries,
    finalizing: 24,
    interpreters: 40,
    interpreter_id: 48,
    interpreter_next: 0,
    threads: 16,
    state_number: 0,
    thread_id: 152,
    native_id: 160,
    thread_frames: 56,
    base_frame: 0,
    cframe_current: 8,
    cframe_previous: 16,
    code: 32,
    previous: 48,
    position: 56,
    copies: None,
    owner: 69,
    is_entry: 68,
    locals: 72,
    attributes: Attributes::Apart { keys: 872 },
    managed_dict: 24,
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
    text_kind_bit: 2,
    ascii_bytes: 48,
    compact_bytes: 72,
    line_format: format::CPYTHON_LOCATIONS,
    coroutines: None,
};

pub(super) const V3_12: Offsets = Offsets {
    chain: Chain::Shims,
    finalizing: 24,
    interpreters: 40,
    interpreter_id: 8,
    interpreter_next: 0,
    threads: 72,
    state_number: 0,
    thread_id: 136,
    native_id: 144,
    thread_frames: 56,
    base_frame: 0,
    cframe_current: 0,
    cframe_previous: 8,
    code: 0,
    previous: 8,
    position: 56,
    copies: None,
    owner: 70,
    is_entry: 0,
    locals: 72,
    attributes: Attributes::Tagged { keys: 880 },
    managed_dict: 24,
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
    text_kind_bit: 2,
    ascii_bytes: 40,
    compact_bytes: 56,
    line_format: format::CPYTHON_LOCATIONS,
    coroutines: None,
};

/// Which word of `_Py_DebugOffsets` says where a field lies (Include/internal/pycore_runtime.h of 3.13,
/// pycore_debug_offsets.h of later ones).
#[derive(Clone, Copy)]
struct Published {
    /// The first one of `thread_state`, `interpreter_frame`, `code_object`, `pyobject`, `bytes_object` and
    /// `unicode_object`: its size.
    thread: u64,
    frame: u64,
    code: u64,
    object: u64,
    bytes: u64,
    text: u64,
    /// `thread_id`, behind which `native_thread_id` follows; and `base_frame`, 0: there is none.
    thread_id: u64,
    base_frame: u64,
    /// `co_code_adaptive`.
    instructions: u64,
    /// Not published: `PyHeapTypeObject::ht_cached_keys` itself.
    class_keys: u64,
    coroutines: Option<PublishedCoroutines>,
}

/// The same of what [`Coroutines`] has.
#[derive(Clone, Copy)]
struct PublishedCoroutines {
    /// The first one of `gen_object` and `set_object`: its size.
    generator: u64,
    set: u64,
    /// Not published: values of `enum _framestate`.
    suspended: (i8, i8),
    awaits: (i8, i8),
    /// Not published: on top of the stack, or below the index of an iteration (3.15).
    awaited_below: u64,
}

const PUBLISHED_3_13: Published = Published {
    thread: 19,
    frame: 28,
    code: 34,
    object: 44,
    bytes: 64,
    text: 67,
    thread_id: 24,
    base_frame: 0,
    instructions: 43,
    class_keys: 880,
    coroutines: None,
};

const PUBLISHED_3_14: Published = Published {
    thread: 22,
    frame: 31,
    code: 39,
    object: 50,
    bytes: 74,
    text: 77,
    thread_id: 27,
    base_frame: 0,
    instructions: 48,
    class_keys: 880,
    coroutines: Some(PublishedCoroutines {
        generator: 83,
        set: 62,
        suspended: (-2, -1),
        awaits: (-1, -1),
        awaited_below: 8,
    }),
};

const PUBLISHED_3_15: Published = Published {
    thread: 22,
    frame: 39,
    code: 47,
    object: 58,
    bytes: 86,
    text: 89,
    thread_id: 30,
    base_frame: 27,
    instructions: 56,
    class_keys: 888,
    coroutines: Some(PublishedCoroutines {
        generator: 99,
        set: 74,
        suspended: (1, 3),
        awaits: (2, 3),
        awaited_below: 16,
    }),
};

impl Offsets {
    /// Bytes of an object's header, of which the type is the last word.
    pub(super) fn header(&self) -> u64 {
        self.object_type + 8
    }

    /// As 3.13 and later publish them at the begin of `_PyRuntime`. `None`: they are not as expected, or the
    /// version is unknown.
    pub(super) fn published(
        memory: &mut impl Memory,
        runtime: u64,
        version: u64,
    ) -> Option<Offsets> {
        /// `version` and `free_threaded`.
        const VERSION: u64 = 1;
        const FREE_THREADED: u64 = 2;

        let p = match version {
            0x030d => PUBLISHED_3_13,
            0x030e => PUBLISHED_3_14,
            0x030f => PUBLISHED_3_15,
            _ => return None,
        };
        if memory.word(runtime + 8 * VERSION)? >> 16 != version {
            return None;
        }
        let is_free_threaded = memory.word(runtime + 8 * FREE_THREADED)? != 0;
        let has_copies = is_free_threaded && version > 0x030d;
        // Not published: by how much an object's header is longer then.
        let longer_header = if is_free_threaded { 16 } else { 0 };
        let mut at = |word: u64| {
            memory
                .word(runtime + 8 * word)
                .filter(|offset| *offset < 1 << 20)
        };
        let ascii_bytes = at(p.text + 3)?;
        let offsets = Offsets {
            chain: Chain::Shims,
            finalizing: at(4)?,
            interpreters: at(5)?,
            interpreter_id: at(7)?,
            interpreter_next: at(8)?,
            threads: at(9)?,
            state_number: 0,
            thread_id: at(p.thread_id)?,
            native_id: at(p.thread_id + 1)?,
            thread_frames: at(p.thread + 4)?,
            base_frame: match p.base_frame {
                0 => 0,
                word => at(word)?,
            },
            cframe_current: 0,
            cframe_previous: 0,
            code: at(p.frame + 2)?,
            previous: at(p.frame + 1)?,
            position: at(p.frame + 3)?,
            copies: match has_copies {
                true => Some(Copies {
                    index: at(p.frame + 7)?,
                    list: at(p.instructions + 1)?,
                }),
                false => None,
            },
            owner: at(p.frame + 5)?,
            is_entry: 0,
            locals: at(p.frame + 4)?,
            attributes: Attributes::Inline {
                keys: p.class_keys + longer_header,
            },
            // There is no header of the garbage collector in between.
            managed_dict: if is_free_threaded { 8 } else { 24 },
            name: at(p.code + 3)?,
            file: at(p.code + 1)?,
            first_line: at(p.code + 5)?,
            lines: at(p.code + 4)?,
            instructions: at(p.instructions)?,
            object_type: at(p.object + 1)?,
            bytes_size: at(p.bytes + 1)?,
            bytes_content: at(p.bytes + 2)?,
            text_length: at(p.text + 2)?,
            text_state: at(p.text + 1)?,
            // `interned` is a byte of its own.
            text_kind_bit: if has_copies { 8 } else { 2 },
            ascii_bytes,
            // `utf8_length` and `utf8` follow.
            compact_bytes: ascii_bytes + 16,
            line_format: format::CPYTHON_LOCATIONS,
            coroutines: match p.coroutines {
                None => None,
                Some(of) => Some(Coroutines {
                    frame: at(of.generator + 2)?,
                    state: at(of.generator + 3)?,
                    stack_pointer: at(p.frame + 6)?,
                    suspended: of.suspended,
                    awaits: of.awaits,
                    awaited_below: of.awaited_below,
                    set_used: at(of.set + 1)?,
                    set_table: at(of.set + 2)?,
                    set_mask: at(of.set + 3)?,
                }),
            },
        };
        let is_as_expected = at(p.thread + 2)? == THREAD_NEXT
            && at(p.thread + 3)? == THREAD_INTERPRETER
            && offsets.header() == V3_12.header() + longer_header;
        is_as_expected.then_some(offsets)
    }
}
