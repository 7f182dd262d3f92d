//! The preload and the session in the environment: whether this process was started with them, and how a
//! child gets them back that lost them (`env -i`, a hand-made `envp`), so that it is recorded too.
//!
//! [`with`] runs in vfork children and on small stacks: no malloc, and what is built lies elsewhere
//! (`agent::lend`).

use core::ffi::{CStr, c_char};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use stackbeat_core::agent;
use stackbeat_core::shm::layout::SESSION_VARIABLE;

const PRELOAD: &[u8] = b"LD_PRELOAD=";
/// Linux' PATH_MAX, and the name of the variable before it.
const ENTRY_BYTES: usize = 4096 + 32;

static PRELOADED: AtomicBool = AtomicBool::new(false);

/// The constructor has joined a session.
pub(crate) fn set_preloaded() {
    PRELOADED.store(true, Ordering::Relaxed);
}

/// Whether the constructor has joined a session.
pub(crate) fn was_preloaded() -> bool {
    PRELOADED.load(Ordering::Relaxed)
}

/// A `NAME=value` kept for children.
struct Entry {
    bytes: [u8; ENTRY_BYTES],
    /// Bytes used, without the NUL.
    length: usize,
}

impl Entry {
    fn new(parts: &[&[u8]]) -> Option<Entry> {
        let mut entry = Entry {
            bytes: [0; ENTRY_BYTES],
            length: 0,
        };
        for part in parts {
            let end = entry.length + part.len();
            entry
                .bytes
                .get_mut(entry.length..end)?
                .copy_from_slice(part);
            entry.length = end;
        }
        (entry.length < ENTRY_BYTES).then_some(entry)
    }
}

struct Kept {
    session: Entry,
    preload: Entry,
}

/// Null: nothing is put back. What it pointed to is never freed: somebody may be reading it.
static KEPT: AtomicPtr<Kept> = AtomicPtr::new(null_mut());

/// Remembers what children need. Called at the beginning of a session.
pub(crate) fn keep(session: &CStr, own_path: &CStr) {
    let name = SESSION_VARIABLE.as_bytes();
    let session = Entry::new(&[name, b"=", session.to_bytes()]);
    let preload = Entry::new(&[PRELOAD, own_path.to_bytes()]);
    if let (Some(session), Some(preload)) = (session, preload) {
        let kept = Box::into_raw(Box::new(Kept { session, preload }));
        KEPT.store(kept, Ordering::Release);
    }
}

/// Children are left alone from here on.
pub(crate) fn forget() {
    KEPT.store(null_mut(), Ordering::Release);
}

/// The value of `variable` in an environment.
///
/// # Safety
/// `environment` is null or a null-terminated array of C strings.
pub(crate) unsafe fn find(
    environment: *const *const c_char,
    variable: &[u8],
) -> Option<&'static CStr> {
    // SAFETY: by contract.
    unsafe {
        entries(environment)
            .map(|e| CStr::from_ptr(e))
            .find(|e| is_entry(e.to_bytes(), variable))
            .map(|e| CStr::from_ptr(e.as_ptr().add(variable.len() + 1)))
    }
}

fn is_entry(entry: &[u8], variable: &[u8]) -> bool {
    entry
        .strip_prefix(variable)
        .is_some_and(|rest| rest.first() == Some(&b'='))
}

/// # Safety
/// `environment` is null or a null-terminated array.
unsafe fn entries(environment: *const *const c_char) -> impl Iterator<Item = *const c_char> {
    let mut next = environment;
    core::iter::from_fn(move || {
        // SAFETY: by contract; a null entry is not passed.
        unsafe {
            if next.is_null() || (*next).is_null() {
                return None;
            }
            let entry = *next;
            next = next.add(1);
            Some(entry)
        }
    })
}

/// Calls `f` with `environment`, or with a copy that has the session and the preload again.
///
/// # Safety
/// `environment` is null or a null-terminated array of C strings.
pub(crate) unsafe fn with<R>(
    environment: *const *const c_char,
    f: impl FnOnce(*const *const c_char) -> R,
) -> R {
    let may_join = agent::images_can_join();
    // SAFETY: null or what `keep` stored, which is never freed.
    let Some(kept) = (unsafe { KEPT.load(Ordering::Acquire).as_ref() }) else {
        return f(environment);
    };
    let own_path = &kept.preload.bytes[PRELOAD.len()..kept.preload.length];
    let mut count = 0;
    let mut session = false;
    let mut preload: Option<&[u8]> = None;
    // SAFETY: by contract.
    for entry in unsafe { entries(environment) } {
        count += 1;
        // SAFETY: by contract.
        let entry = unsafe { CStr::from_ptr(entry) }.to_bytes();
        session |= is_entry(entry, SESSION_VARIABLE.as_bytes());
        if let (None, Some(value)) = (preload, entry.strip_prefix(PRELOAD)) {
            preload = Some(value);
        }
    }
    let preloaded = preload.is_some_and(|value| {
        value
            .split(|b| matches!(b, b':' | b' '))
            .any(|path| path == own_path)
    });
    if may_join && session && preloaded || !may_join && !session {
        return f(environment);
    }
    let lost = Lost {
        kept,
        environment,
        may_join,
        add_session: may_join && !session,
        old_preload: preload,
        preloaded: preloaded || !may_join,
    };
    // SAFETY: by contract.
    unsafe { lost.put_back(count, f) }
}

struct Lost<'a> {
    kept: &'static Kept,
    environment: *const *const c_char,
    /// The image may look for the session without being killed for it; else it must not know of one.
    may_join: bool,
    add_session: bool,
    old_preload: Option<&'a [u8]>,
    preloaded: bool,
}

impl Lost<'_> {
    /// # Safety
    /// `environment` holds `count` C strings and a null.
    #[cold]
    #[inline(never)]
    unsafe fn put_back<R>(self, count: usize, f: impl FnOnce(*const *const c_char) -> R) -> R {
        let pointers = count + 3;
        let bytes = self.kept.preload.length + 2 + self.old_preload.map_or(0, |old| old.len());
        agent::lend(pointers + bytes.div_ceil(size_of::<usize>()), |memory| {
            let Some(array) = memory else {
                return f(self.environment);
            };
            // SAFETY: there is room for both.
            unsafe { self.build(array, array.add(pointers).cast()) };
            f(array)
        })
    }

    /// # Safety
    /// `array` has room for the entries, two more and a null; `text` for the combined preload entry.
    unsafe fn build(&self, array: *mut *const c_char, text: *mut u8) {
        let mut at = array;
        // SAFETY: by contract.
        unsafe {
            for entry in entries(self.environment) {
                let known = CStr::from_ptr(entry).to_bytes();
                if !self.preloaded && known.starts_with(PRELOAD)
                    || !self.may_join && is_entry(known, SESSION_VARIABLE.as_bytes())
                {
                    continue;
                }
                *at = entry;
                at = at.add(1);
            }
            if self.add_session {
                *at = self.kept.session.bytes.as_ptr().cast();
                at = at.add(1);
            }
            if !self.preloaded {
                let own = &self.kept.preload.bytes[..self.kept.preload.length];
                let old = self.old_preload.unwrap_or_default();
                let separator: &[u8] = if old.is_empty() { b"" } else { b":" };
                let mut end = text;
                for part in [own, separator, old, b"\0"] {
                    core::ptr::copy_nonoverlapping(part.as_ptr(), end, part.len());
                    end = end.add(part.len());
                }
                *at = text.cast();
                at = at.add(1);
            }
            *at = core::ptr::null();
        }
    }
}
