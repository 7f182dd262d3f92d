//! Names of Ruby's methods, as its backtraces print them: a label, from 3.4 on with the class in it
//! (`calculate_iseq_label` and `rb_gen_method_name`, vm_backtrace.c).

use super::offsets::{Classes, Offsets};
use super::{CODE, INTERNAL, INTERNAL_MASK, TYPE_MASK, USER_1};
use crate::managed::key::Key;
use crate::managed::memory::Memory;

pub(super) const STRING: u64 = 5;
const CLASS: u64 = 2;
const MODULE: u64 = 3;
const INCLUDED: u64 = 0x1c;
/// What is left of an object that is gone, or at another place.
const GONE: [u64; 3] = [0, 0x1d, 0x1e];
/// `RUBY_FL_SINGLETON` of 3.4.
const SINGLETON: u64 = USER_1;
/// `imemo_svar`, `imemo_ment`.
const SPECIAL: u64 = 2 << 12 | INTERNAL;
const METHOD_ENTRY: u64 = 6 << 12 | INTERNAL;
/// `VM_ENV_FLAG_LOCAL`: it is the environment of a method, not of a block.
const LOCAL: u64 = 2;
/// Blocks in blocks of one method.
const MOST_LEVELS: usize = 64;
/// A file or label is shorter.
const MOST_TEXT: u64 = 1 << 16;

/// `enum rb_iseq_type`: what code is of.
mod kind {
    pub(super) const METHOD: u32 = 1;
    pub(super) const BLOCK: u32 = 2;
    pub(super) const RESCUE: u32 = 4;
    pub(super) const ENSURE: u32 = 5;
    pub(super) const EVAL: u32 = 6;
    pub(super) const PLAIN: u32 = 8;
}

/// The bytes of a string, mostly UTF-8.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text {
    at: u64,
    bytes: u64,
}

impl Text {
    /// Where the bytes of a string lie.
    pub(super) fn of(memory: &mut impl Memory, offsets: &Offsets, object: u64) -> Option<Text> {
        /// `struct RString`: length and pointer. Of short ones the length is in the flags, or the bytes
        /// are in the pointer's place.
        const LENGTH: u64 = 16;
        const POINTER: u64 = 24;
        const LENGTH_BITS: u32 = 14;

        let flags = memory.word(object)?;
        if flags & TYPE_MASK != STRING {
            return None;
        }
        let is_elsewhere = flags & USER_1 != 0;
        let bytes = match is_elsewhere || offsets.short_strings_have_length {
            true => memory.word(object + LENGTH)?,
            false => flags >> LENGTH_BITS & 0x1f,
        };
        let at = match (is_elsewhere, offsets.short_strings_have_length) {
            (true, _) => memory.word(object + POINTER)?,
            (false, true) => object + POINTER,
            (false, false) => object + LENGTH,
        };
        is_still(memory, object, flags)?;
        (bytes < MOST_TEXT).then_some(Text { at, bytes })
    }

    fn of_label(memory: &mut impl Memory, offsets: &Offsets, body: u64) -> Option<Text> {
        let label = memory.word(body.checked_add(offsets.label)?)?;
        Text::of(memory, offsets, label)
    }

    /// Adds its content to a key. Zeros are what is left of a string that has been moved.
    pub(super) fn add(&self, memory: &mut impl Memory, key: &mut Key) -> Option<()> {
        /// Of longer ones the rest is not looked at.
        const MOST_BYTES: u64 = 2048;

        key.add(self.bytes);
        let bytes = self.bytes.min(MOST_BYTES);
        for at in (0..bytes).step_by(8) {
            let mut part = [0; 8];
            let count = (bytes - at).min(8) as usize;
            if !memory.bytes(self.at.checked_add(at)?, &mut part[..count])
                || part[..count].contains(&0)
            {
                return None;
            }
            key.add(u64::from_le_bytes(part));
        }
        Some(())
    }

    /// Copies it, cut at a character. Gives the bytes.
    pub(super) fn copy(&self, memory: &mut impl Memory, to: &mut [u8]) -> Option<usize> {
        let whole = usize::try_from(self.bytes).ok()?;
        let mut bytes = whole.min(to.len());
        if !memory.bytes(self.at, to.get_mut(..bytes)?) || to[..bytes].contains(&0) {
            return None;
        }
        if bytes < whole {
            let is_inside = |byte: &u8| byte & 0xc0 == 0x80;
            while bytes > 0 && to.get(bytes - 1).is_some_and(is_inside) {
                bytes -= 1;
            }
            bytes = bytes.saturating_sub(1);
        }
        Some(bytes)
    }

    /// Its first bytes, and the others.
    fn split(&self, bytes: u64) -> Option<[Text; 2]> {
        let first = Text { at: self.at, bytes };
        let rest = Text {
            at: self.at.checked_add(bytes)?,
            bytes: self.bytes.checked_sub(bytes)?,
        };
        Some([first, rest])
    }
}

/// What a method is called.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name {
    label: Text,
    class: Option<InLabel>,
}

/// A class in a label.
#[derive(Clone, Copy, Debug)]
struct InLabel {
    /// Bytes of the label before it: `block in `.
    begin: u64,
    class: Class,
}

/// A class that has a name, and what stands between it and the method's.
#[derive(Clone, Copy, Debug)]
struct Class {
    path: Text,
    separator: u8,
}

impl Name {
    /// The name of a frame with this environment and code.
    pub(super) fn of(
        memory: &mut impl Memory,
        offsets: &Offsets,
        environment: u64,
        body: u64,
    ) -> Option<Name> {
        let Some(classes) = &offsets.classes else {
            return Some(Name {
                label: Text::of_label(memory, offsets, body)?,
                class: None,
            });
        };
        let (body, kind) = shown(memory, offsets, classes, body)?;
        let mut name = Name {
            label: Text::of_label(memory, offsets, body)?,
            class: None,
        };
        if !matches!(kind, kind::METHOD | kind::BLOCK | kind::PLAIN) {
            return Some(name);
        }
        let local = body_of(memory, offsets, body.checked_add(classes.local)?)?;
        if memory.half(local)? != kind::METHOD {
            return Some(name);
        }
        let own = Text::of_label(memory, offsets, local)?;
        let begin = name.label.bytes.checked_sub(own.bytes)?;
        if let Some(owner) = owner(memory, classes, environment)? {
            let class = Class::of(memory, offsets, classes, owner)?;
            name.class = class.map(|class| InLabel { begin, class });
        }
        Some(name)
    }

    /// Adds it to a key.
    pub(super) fn add(&self, memory: &mut impl Memory, key: &mut Key) -> Option<()> {
        self.label.add(memory, key)?;
        if let Some(InLabel { begin, class }) = &self.class {
            key.add(begin << 8 | u64::from(class.separator));
            class.path.add(memory, key)?;
        }
        Some(())
    }

    /// Copies it, cut at a character. Gives the bytes.
    pub(super) fn copy(&self, memory: &mut impl Memory, to: &mut [u8]) -> Option<usize> {
        let Some(InLabel { begin, class }) = &self.class else {
            return self.label.copy(memory, to);
        };
        let [before, method] = self.label.split(*begin)?;
        let mut bytes = before.copy(memory, to)?;
        bytes += class.path.copy(memory, to.get_mut(bytes..)?)?;
        if let Some(next) = to.get_mut(bytes) {
            *next = class.separator;
            bytes += 1;
        }
        bytes += method.copy(memory, to.get_mut(bytes..)?)?;
        Some(bytes)
    }
}

impl Class {
    /// How a class is shown. Outer `None`: it cannot be read; inner: it has no name.
    fn of(
        memory: &mut impl Memory,
        offsets: &Offsets,
        classes: &Classes,
        owner: u64,
    ) -> Option<Option<Class>> {
        let flags = memory.word(owner)?;
        let (class, flags, separator) = match flags & TYPE_MASK {
            CLASS if flags & SINGLETON != 0 => {
                let attached = memory.word(owner.checked_add(classes.attached)?)?;
                is_still(memory, owner, flags)?;
                // Small numbers and such are no objects.
                if attached == 0 || !attached.is_multiple_of(8) {
                    return Some(None);
                }
                let flags = memory.word(attached)?;
                match flags & TYPE_MASK {
                    CLASS | MODULE => (attached, flags, b'.'),
                    kind => return (!GONE.contains(&kind)).then_some(None),
                }
            }
            CLASS | MODULE => (owner, flags, b'#'),
            INCLUDED => return Some(None),
            _ => return None,
        };
        let is_permanent = memory.byte(class.checked_add(classes.permanent)?)? & 1 != 0;
        is_still(memory, class, flags)?;
        if !is_permanent {
            return Some(None);
        }
        let path = memory.word(class.checked_add(classes.path)?)?;
        let path = Text::of(memory, offsets, path)?;
        Some(Some(Class { path, separator }))
    }
}

/// That an object has not been moved since its flags were read. Another thread that compacts memory
/// overwrites the old place with zeros, its flags first, and a zero read there would mean: it has no name.
fn is_still(memory: &mut impl Memory, object: u64, flags: u64) -> Option<()> {
    (memory.word(object)? & TYPE_MASK == flags & TYPE_MASK).then_some(())
}

/// Whether code is of a `rescue` or `ensure`. Its frame stands for that of the method below it, from 3.4 on.
pub(super) fn stands_for_next(memory: &mut impl Memory, offsets: &Offsets, body: u64) -> bool {
    offsets.classes.is_some() && matches!(memory.half(body), Some(kind::RESCUE | kind::ENSURE))
}

/// The body of the code that a word refers to. Code that has been moved has its new address in the body's
/// place.
pub(super) fn body_of(memory: &mut impl Memory, offsets: &Offsets, at: u64) -> Option<u64> {
    let code = memory.word(at)?;
    let body = memory.word(code.checked_add(offsets.body)?)?;
    let is_code = memory.word(code)? & INTERNAL_MASK == CODE;
    is_code.then_some(body)
}

/// The code whose label is shown, and its kind: of a `rescue` and such that of what it stands in.
fn shown(
    memory: &mut impl Memory,
    offsets: &Offsets,
    classes: &Classes,
    mut body: u64,
) -> Option<(u64, u32)> {
    for _ in 0..MOST_LEVELS {
        let kind = memory.half(body)?;
        if !matches!(kind, kind::RESCUE | kind::ENSURE | kind::EVAL) {
            return Some((body, kind));
        }
        body = body_of(memory, offsets, body.checked_add(classes.parent)?)?;
    }
    None
}

/// The class that has the method with this environment. Inner `None`: it is of no method.
fn owner(memory: &mut impl Memory, classes: &Classes, mut environment: u64) -> Option<Option<u64>> {
    /// `VM_ENV_DATA_INDEX_ME_CREF`, `VM_ENV_DATA_INDEX_SPECVAL`: words before the flags.
    const ENTRY: u64 = 16;
    const OUTER: u64 = 8;
    /// `struct vm_svar`: what stands there otherwise.
    const INSIDE: u64 = 8;

    for _ in 0..MOST_LEVELS {
        let is_local = memory.word(environment)? & LOCAL != 0;
        let mut entry = memory.word(environment.checked_sub(ENTRY)?)?;
        if is_local && entry != 0 && memory.word(entry)? & INTERNAL_MASK == SPECIAL {
            let around = entry;
            entry = memory.word(around.checked_add(INSIDE)?)?;
            is_still(memory, around, SPECIAL)?;
        }
        if entry != 0 {
            let flags = memory.word(entry)?;
            if flags & INTERNAL_MASK == METHOD_ENTRY {
                return memory.word(entry.checked_add(classes.owner)?).map(Some);
            }
            if flags & TYPE_MASK != INTERNAL {
                return None;
            }
        }
        if is_local {
            return Some(None);
        }
        // Its lowest bits are marks.
        environment = memory.word(environment.checked_sub(OUTER)?)? & !3;
    }
    None
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::super::offsets::of_version;
    use super::*;
    use std::collections::HashMap;
    use std::string::String;
    use std::vec;

    struct Words(HashMap<u64, u64>);

    impl Memory for Words {
        fn word(&mut self, address: u64) -> Option<u64> {
            Some(self.0.get(&address).copied().unwrap_or(0))
        }
    }

    const CODE_AT: u64 = 0x1000;
    const BODY: u64 = 0x2000;
    const METHOD_CODE: u64 = 0x3000;
    const METHOD_BODY: u64 = 0x4000;
    const ENVIRONMENT: u64 = 0x5000;
    const METHOD_ENVIRONMENT: u64 = 0x6000;
    const ENTRY: u64 = 0x7000;
    const OWNER: u64 = 0x8000;
    const ATTACHED: u64 = 0x9000;

    fn string(memory: &mut Words, at: u64, text: &str) {
        let mut bytes = text.as_bytes().to_vec();
        memory.0.insert(at, STRING);
        memory.0.insert(at + 16, bytes.len() as u64);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        for (i, word) in (0..).zip(bytes.as_chunks::<8>().0) {
            memory.0.insert(at + 24 + 8 * i, u64::from_le_bytes(*word));
        }
    }

    /// A block of a method of a class, in 3.4.
    fn block() -> (Offsets, Words) {
        let o = of_version((3, 4)).expect("is known");
        let classes = o.classes.expect("has them");
        let mut memory = Words(HashMap::from([
            (CODE_AT, CODE),
            (CODE_AT + o.body, BODY),
            (METHOD_CODE, CODE),
            (METHOD_CODE + o.body, METHOD_BODY),
            (BODY, kind::BLOCK.into()),
            (BODY + classes.parent, METHOD_CODE),
            (BODY + classes.local, METHOD_CODE),
            (BODY + o.label, 0x1_0000),
            (METHOD_BODY, kind::METHOD.into()),
            (METHOD_BODY + classes.local, METHOD_CODE),
            (METHOD_BODY + o.label, 0x2_0000),
            (ENVIRONMENT - 8, METHOD_ENVIRONMENT | 1),
            (METHOD_ENVIRONMENT, LOCAL),
            (METHOD_ENVIRONMENT - 16, ENTRY),
            (ENTRY, METHOD_ENTRY),
            (ENTRY + classes.owner, OWNER),
            (OWNER, CLASS),
            (OWNER + classes.attached, ATTACHED),
            (ATTACHED, MODULE),
        ]));
        string(&mut memory, 0x1_0000, "block in pay");
        string(&mut memory, 0x2_0000, "pay");
        for (at, path) in [(OWNER, "Shop::Cart"), (ATTACHED, "Till")] {
            memory.0.insert((at + classes.permanent) & !7, 1 << 40);
            memory.0.insert(at + classes.path, 0x2_0000 + 2 * at);
            string(&mut memory, 0x2_0000 + 2 * at, path);
        }
        (o, memory)
    }

    fn name(memory: &mut Words, o: &Offsets, body: u64) -> Option<String> {
        let name = Name::of(memory, o, ENVIRONMENT, body)?;
        let mut to = vec![0; 64];
        let bytes = name.copy(memory, &mut to)?;
        Some(String::from_utf8_lossy(&to[..bytes]).into_owned())
    }

    #[test]
    fn names_have_the_class_that_backtraces_print() {
        let (o, mut memory) = block();
        let shown = |memory: &mut Words| name(memory, &o, BODY);
        let is = |name: &str| Some(String::from(name));
        assert_eq!(shown(&mut memory), is("block in Shop::Cart#pay"));
        assert_eq!(name(&mut memory, &o, METHOD_BODY), is("Shop::Cart#pay"));
        // Where something else stands before the method.
        memory.0.insert(METHOD_ENVIRONMENT - 16, 0xa000);
        memory.0.insert(0xa000, SPECIAL);
        memory.0.insert(0xa008, ENTRY);
        assert_eq!(shown(&mut memory), is("block in Shop::Cart#pay"));
        // A method of a module itself.
        memory.0.insert(OWNER, CLASS | SINGLETON);
        assert_eq!(shown(&mut memory), is("block in Till.pay"));
        // Of one other object, or of a class without a name.
        memory.0.insert(ATTACHED, STRING);
        assert_eq!(shown(&mut memory), is("block in pay"));
        memory.0.insert(OWNER, CLASS);
        let permanent = (OWNER + o.classes.expect("has them").permanent) & !7;
        memory.0.insert(permanent, 0);
        assert_eq!(shown(&mut memory), is("block in pay"));
        // It was moved.
        memory.0.insert(OWNER, 0x1e);
        assert_eq!(shown(&mut memory), None);
        // So was the method's code.
        let (o, mut memory) = block();
        memory.0.insert(METHOD_CODE, 0x1e);
        memory.0.insert(METHOD_CODE + o.body, 0xb000);
        assert_eq!(name(&mut memory, &o, BODY), None);
    }

    #[test]
    fn a_rescue_is_called_as_what_it_is_in() {
        let (o, mut memory) = block();
        memory.0.insert(BODY, kind::RESCUE.into());
        assert_eq!(name(&mut memory, &o, BODY), Some("Shop::Cart#pay".into()));
        assert!(stands_for_next(&mut memory, &o, BODY));
        assert!(!stands_for_next(&mut memory, &o, METHOD_BODY));
        // Before 3.4 it is one of its own.
        let o = of_version((3, 3)).expect("is known");
        assert_eq!(name(&mut memory, &o, BODY), Some("block in pay".into()));
        assert!(!stands_for_next(&mut memory, &o, BODY));
    }
}
