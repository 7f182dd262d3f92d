//! A walk of the calling thread's Java stack by ART's own StackVisitor.
//!
//! Nothing is assumed of the visitor's fields: ART's constructor fills a place that is larger than any
//! version needs, and then our table of virtual functions goes in. No context is given, because only reads of
//! registers need one.
//!
//! Only at [`Place::Hook`](super::threads::Place): walks of compiled code look into the method's tables and
//! may take the lock of the compiler's code.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::library::Art;
use super::versions::Function;

/// Most frames of a walk.
pub(crate) const MOST_FRAMES: usize = 512;
/// A visitor takes some 700 bytes in Android 14.
const VISITOR_WORDS: usize = 512;
/// The last words, which the constructor must not touch.
const UNTOUCHED: usize = 64;
const MARK: u64 = 0x5bea_7bea_75be_a75b;

/// A frame of a Java method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JavaFrame {
    /// `ArtMethod*`.
    pub(crate) method: u64,
    pub(crate) dex_pc: u32,
    /// Where it lies on the native stack; 0: not known.
    pub(crate) at: u64,
}

impl JavaFrame {
    pub(crate) const NONE: JavaFrame = JavaFrame {
        method: 0,
        dex_pc: 0,
        at: 0,
    };
}

/// Frames, leaf first.
pub(crate) struct Frames {
    frames: [JavaFrame; MOST_FRAMES],
    len: usize,
}

impl Frames {
    pub(crate) const fn new() -> Frames {
        Frames {
            frames: [JavaFrame::NONE; MOST_FRAMES],
            len: 0,
        }
    }

    /// False: there is no room.
    pub(crate) fn push(&mut self, frame: JavaFrame) -> bool {
        let Some(place) = self.frames.get_mut(self.len) else {
            return false;
        };
        *place = frame;
        self.len += 1;
        true
    }

    #[cfg(feature = "rig")]
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Brings frames of several kinds into the order of the stack.
    pub(crate) fn sort(&mut self) {
        let frames = self.frames.get_mut(..self.len).unwrap_or_default();
        frames.sort_unstable_by_key(|frame| frame.at);
    }

    pub(crate) fn all(&self) -> &[JavaFrame] {
        self.frames.get(..self.len).unwrap_or_default()
    }
}

type Construct = unsafe extern "C" fn(*mut Visitor, *mut c_void, *mut c_void, u32, bool);
type Walk = unsafe extern "C" fn(*mut Visitor, bool);
type GetMethod = unsafe extern "C" fn(*const Visitor) -> u64;
type GetDexPc = unsafe extern "C" fn(*const Visitor, bool) -> u32;

/// ART's functions for walks.
pub(crate) struct Walker {
    construct: Construct,
    walk: Walk,
    get_method: GetMethod,
    get_dex_pc: GetDexPc,
}

/// ART's object, and ours behind it.
#[repr(C, align(16))]
struct Visitor {
    vtable: *const Vtable,
    art: [u64; VISITOR_WORDS],
    walker: *const Walker,
    frames: *mut Frames,
    /// Where the innermost frame lies; 0: not known.
    innermost: u64,
}

/// Words of the visitor that are looked at for where its frame lies, of those behind the table of virtual
/// functions.
const PLACE_WORDS: usize = 32;
/// Bits of the words that may be it: they were it in all walks so far. A visitor has two, of which the other
/// one is null: for the interpreter's frames and for those on the native stack.
static PLACES: [AtomicU32; 2] = [const { AtomicU32::new(u32::MAX) }; 2];

impl Visitor {
    /// Learns where a visitor says where its frame lies, from the innermost one.
    fn learn(&self) {
        // Which of the two comes first does not matter: where one is not null, the other one is.
        for places in &PLACES {
            let known = places.load(Ordering::Relaxed);
            let is_it = |place: &u32| self.art.get(*place as usize) == Some(&self.innermost);
            let found = (0..PLACE_WORDS as u32)
                .filter(is_it)
                .fold(0, |bits, place| bits | 1 << place);
            if found & known != 0 {
                places.store(found & known, Ordering::Relaxed);
                return;
            }
        }
    }

    /// Where the frame lies; 0: not known.
    fn at(&self) -> u64 {
        let only = |places: &AtomicU32| {
            let places = places.load(Ordering::Relaxed);
            (places.count_ones() == 1).then_some(places.trailing_zeros() as usize)
        };
        let words = PLACES
            .iter()
            .filter_map(only)
            .filter_map(|place| self.art.get(place));
        words.copied().find(|word| *word != 0).unwrap_or(0)
    }
}

/// Itanium C++ ABI: two destructors, then `VisitFrame`.
#[repr(C)]
struct Vtable {
    destroy: [extern "C" fn(*mut Visitor); 2],
    visit_frame: unsafe extern "C" fn(*mut Visitor) -> bool,
}

extern "C" fn destroy(_: *mut Visitor) {}

static VTABLE: Vtable = Vtable {
    destroy: [destroy; 2],
    visit_frame,
};

/// Constructors that wrote past what we thought they would.
static TOO_LARGE: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn visit_frame(visitor: *mut Visitor) -> bool {
    // SAFETY: `Walker::walk` made it, and waits for the walk's end.
    unsafe {
        let (walker, frames) = (&*(*visitor).walker, &mut *(*visitor).frames);
        let method = (walker.get_method)(visitor);
        if method == 0 {
            return true;
        }
        let dex_pc = (walker.get_dex_pc)(visitor, false);
        let visitor = &*visitor;
        if frames.len == 0 && visitor.innermost != 0 {
            visitor.learn();
        }
        let at = visitor.at();
        frames.push(JavaFrame { method, dex_pc, at })
    }
}

impl Walker {
    /// `None`: this ART lacks one of the functions.
    pub(crate) fn of(art: &Art) -> Option<Walker> {
        // SAFETY: functions of these types, as the table of versions has them.
        unsafe {
            Some(Walker {
                construct: core::mem::transmute::<*mut c_void, Construct>(
                    art.address(Function::StackVisitor)?,
                ),
                walk: core::mem::transmute::<*mut c_void, Walk>(art.address(Function::WalkStack)?),
                get_method: core::mem::transmute::<*mut c_void, GetMethod>(
                    art.address(Function::GetMethod)?,
                ),
                get_dex_pc: core::mem::transmute::<*mut c_void, GetDexPc>(
                    art.address(Function::GetDexPc)?,
                ),
            })
        }
    }

    /// Walks the calling thread's stack, whose innermost frame lies there (0: not known).
    ///
    /// # Safety
    /// `thread` is the calling thread's, and the thread is at [`Place::Hook`](super::threads::Place); or it
    /// is suspended.
    pub(crate) unsafe fn walk(&self, thread: *mut c_void, innermost: u64, frames: &mut Frames) {
        if TOO_LARGE.load(Ordering::Relaxed) != 0 {
            return;
        }
        let mut visitor = Visitor {
            vtable: core::ptr::null(),
            art: [MARK; VISITOR_WORDS],
            walker: self,
            frames,
            innermost,
        };
        let place = &raw mut visitor;
        // SAFETY: room for the visitor; all that it refers to lives until the walk's end.
        unsafe {
            (self.construct)(place, thread, core::ptr::null_mut(), 0, false);
            let end = &(&(*place).art)[VISITOR_WORDS - UNTOUCHED..];
            if end.iter().any(|word| *word != MARK) {
                TOO_LARGE.fetch_add(1, Ordering::Relaxed);
                return;
            }
            (*place).vtable = &raw const VTABLE;
            (self.walk)(place, false);
        }
    }
}
