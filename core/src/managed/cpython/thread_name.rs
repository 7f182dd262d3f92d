//! The name of a thread of the module `threading`. CPython before 3.14 does not tell the system of it, and
//! later ones cut it at 15 bytes.
//!
//! The outermost frame of such a thread is `Thread._bootstrap`, whose first local variable is the thread's
//! object. Its attribute `_name` has the name. Where attributes lie depends on the version ([`Attributes`]);
//! the tables were checked with the headers of 3.9 to 3.15, also as free-threaded builds see them, and with
//! objects of running interpreters.

use super::offsets::{Attributes, Offsets};
use super::{Memory, Reader};
use crate::shm::record_format::NAME_BYTES;

/// After so many searches it is looked up anew: an object's attributes may have moved.
const LOOKED_UP_AFTER: u8 = 64;

/// Most attributes that are looked at.
const MOST_ATTRIBUTES: u64 = 256;

/// What a thread knows of its own name. All-zero: nothing.
#[derive(Debug)]
#[repr(C)]
pub struct ThreadName {
    /// The frame that it was looked up from.
    frame: u64,
    /// Where the attribute is, 0: there is none; and its value.
    place: u64,
    value: u64,
    searches: u8,
    /// NUL padded, and cut at a character.
    bytes: [u8; NAME_BYTES],
}

impl ThreadName {
    /// The name, NUL padded; `None`: the thread is not one of `threading`, as far as is known.
    pub(crate) fn get(&self) -> Option<&[u8; NAME_BYTES]> {
        (self.bytes[0] != 0).then_some(&self.bytes)
    }

    /// The outermost frame of the last stack that was found whole; 0: there was none.
    pub(super) fn frame(&self) -> u64 {
        self.frame
    }

    /// Forgets everything: the memory is another thread's from now on.
    pub(crate) fn forget(&mut self) {
        self.frame = 0;
        self.bytes = [0; NAME_BYTES];
    }

    /// Looks whether it has changed, by the thread's outermost frame.
    pub(super) fn update<M: Memory>(&mut self, frame: u64, reader: &mut Reader<M>) {
        self.searches = self.searches.wrapping_add(1) % LOOKED_UP_AFTER;
        let is_known = frame == self.frame && self.searches != 0;
        if is_known && (self.place == 0 || reader.memory.word(self.place) == Some(self.value)) {
            return;
        }
        self.frame = frame;
        let place = reader.thread_object(frame);
        let place = place.and_then(|object| reader.attribute(object, b"_name"));
        self.place = place.unwrap_or(0);
        let Some(place) = place else {
            return;
        };
        let mut bytes = [0; NAME_BYTES];
        let Some(value) = reader.memory.word(place) else {
            return;
        };
        let text = reader.text_of(value);
        let length = text.and_then(|text| text.copy(reader.memory, &mut bytes));
        // What changed meanwhile may be memory of something else by now: the next search finds the new one.
        if length.is_some_and(|length| length > 0) && reader.memory.word(place) == Some(value) {
            self.value = value;
            self.bytes = bytes;
        }
    }
}

impl<M: Memory> Reader<'_, '_, M> {
    fn offsets(&self) -> Offsets {
        self.runtime.offsets
    }

    /// The object of the thread whose outermost frame this is.
    fn thread_object(&mut self, frame: u64) -> Option<u64> {
        let o = self.offsets();
        let code = self.memory.word(frame.checked_add(o.code)?)? & !7;
        let name = self.memory.word(code.checked_add(o.name)?)?;
        let is_bootstrap = match o.attributes {
            // 3.9 and 3.10 have the name without the class.
            Attributes::Dict => self.is(name, b"_bootstrap")?,
            _ => self.is(name, b"Thread._bootstrap")?,
        };
        match is_bootstrap {
            // The lowest bits say who counts the reference (3.14 and later).
            true => Some(self.memory.word(frame.checked_add(o.locals)?)? & !7),
            false => None,
        }
    }

    /// Whether a text is this.
    fn is(&mut self, object: u64, expected: &[u8]) -> Option<bool> {
        const LONGEST: usize = 24;
        let text = self.text_of(object)?;
        if text.length != expected.len() || text.width != 1 {
            return Some(false);
        }
        let mut bytes = [0; LONGEST];
        let bytes = bytes.get_mut(..expected.len())?;
        let is_read = self.memory.bytes(text.characters, bytes);
        is_read.then_some(bytes == expected)
    }

    /// Where the value of an object's attribute stands.
    fn attribute(&mut self, object: u64, name: &[u8]) -> Option<u64> {
        /// `PyTypeObject` behind its header: `tp_basicsize`, `tp_flags`, `tp_dictoffset` (3.9 to 3.15).
        const BASIC_BYTES: u64 = 16;
        const FLAGS: u64 = 152;
        const DICT_OFFSET: u64 = 272;
        /// `Py_TPFLAGS_INLINE_VALUES` and `Py_TPFLAGS_MANAGED_DICT`.
        const HAS_INLINE_VALUES: u64 = 1 << 2;
        const HAS_MANAGED_DICT: u64 = 1 << 4;
        /// In front of an object (`_PyObject_ValuesPointer`).
        const VALUES_3_11: u64 = 32;

        let o = self.offsets();
        let of_type = self.memory.word(object.checked_add(o.object_type)?)?;
        let behind_header = of_type.checked_add(o.header())?;
        let flags = self.memory.word(behind_header.checked_add(FLAGS)?)?;
        let is_managed = !matches!(o.attributes, Attributes::Dict) && flags & HAS_MANAGED_DICT != 0;
        if !is_managed {
            let offset = self.memory.word(behind_header + DICT_OFFSET)?;
            let is_offset = (16..1 << 16).contains(&offset);
            let dict = self
                .memory
                .word(object.checked_add(offset).filter(|_| is_offset)?)?;
            return self.in_dict(dict, name);
        }
        let dict = self.memory.word(object.checked_sub(o.managed_dict)?)?;
        // An object without a dictionary has its values alone, in the order of the keys that its class has.
        let (values, keys) = match o.attributes {
            Attributes::Apart { keys } => {
                (self.memory.word(object.checked_sub(VALUES_3_11)?)?, keys)
            }
            Attributes::Tagged { keys } if dict & 1 != 0 => (dict.checked_add(1)?, keys),
            Attributes::Inline { keys } if dict == 0 && flags & HAS_INLINE_VALUES != 0 => {
                let bytes = self.memory.word(behind_header + BASIC_BYTES)?;
                (object.checked_add(bytes)?, keys)
            }
            _ => (0, 0),
        };
        if values == 0 {
            return self.in_dict(dict, name);
        }
        let keys = self.memory.word(of_type.checked_add(keys)?)?;
        let (_, index) = self.key(keys, name)?;
        self.in_values(values, index)
    }

    /// The same, of a dictionary.
    fn in_dict(&mut self, dict: u64, name: &[u8]) -> Option<u64> {
        /// `PyDictObject` behind its header: `ma_keys` and `ma_values` (3.9 to 3.15).
        const KEYS: u64 = 16;
        const VALUES: u64 = 24;

        let behind_header = dict.checked_add(self.offsets().header())?;
        let keys = self.memory.word(behind_header.checked_add(KEYS)?)?;
        let values = self.memory.word(behind_header + VALUES)?;
        let (value, index) = self.key(keys, name)?;
        match values {
            0 => Some(value),
            values => self.in_values(values, index),
        }
    }

    /// The place of a value in `PyDictValues`, behind what it says of itself from 3.13 on.
    fn in_values(&self, values: u64, index: u64) -> Option<u64> {
        let header = match self.offsets().attributes {
            Attributes::Inline { .. } => 8,
            _ => 0,
        };
        values.checked_add(header + 8 * index)
    }

    /// Where the value of a key stands if its `PyDictKeysObject` has the values, too; and which one of the
    /// keys it is.
    fn key(&mut self, keys: u64, name: &[u8]) -> Option<(u64, u64)> {
        /// `DICT_KEYS_GENERAL`: entries have hashes.
        const GENERAL: u8 = 0;
        const OF_KEYS: u64 = 24;

        let (count, entries, bytes, at_key) = match self.offsets().attributes {
            // `dk_size`, `dk_nentries`, `dk_indices`.
            Attributes::Dict => {
                let size = self.memory.word(keys.checked_add(8)?)?;
                let index_bytes = match size {
                    0..=0xff => size,
                    0x100..=0xffff => 2 * size,
                    _ => return None,
                };
                (self.memory.word(keys + 32)?, 40 + index_bytes, OF_KEYS, 8)
            }
            // `dk_log2_index_bytes`, `dk_kind`, `dk_nentries`, `dk_indices`.
            _ => {
                let shift = self.memory.byte(keys.checked_add(9)?)?;
                let index_bytes = 1_u64.checked_shl(u32::from(shift)).filter(|_| shift < 20)?;
                let count = self.memory.word(keys + 24)?;
                match self.memory.byte(keys + 10)? {
                    GENERAL => (count, 32 + index_bytes, OF_KEYS, 8),
                    _ => (count, 32 + index_bytes, 16, 0),
                }
            }
        };
        for index in 0..count.min(MOST_ATTRIBUTES) {
            let entry = keys.checked_add(entries + index * bytes)?;
            let key = self.memory.word(entry + at_key)?;
            if key != 0 && self.is(key, name) == Some(true) {
                return Some((entry + at_key + 8, index));
            }
        }
        None
    }
}
