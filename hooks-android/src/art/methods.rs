//! ART's methods, and the agent's numbers for them.
//!
//! A method gets its name when a stack has it in a hook where ART can be asked (`Place::Hook`): it is alive
//! there, because a stack keeps it. The other methods of its class are *wanted* then: the next such hooks of
//! any thread name them, some at a time, so that captures in signal handlers and hooks of libc know them.
//! There no method gets a name. One that they meet first is wanted, too, with its class: a thread that stays
//! in one native method may pass no hook of ART's in the whole recording.
//!
//! ART may unload a class loader and use the memory of its methods again. Before it does, all numbers are
//! forgotten here: the agent keeps its own, and equal methods get them again. Nobody asks for a name
//! meanwhile.

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::agent::{Agent, Line, Search};
use super::library::Art;
use super::versions::Function;

/// A power of two.
const PLACES: usize = 1 << 16;
/// Places that are looked at for a method.
const PROBES: usize = 32;
const NUMBER_BITS: u32 = 17;
/// Numbers of the agent end here.
const NUMBERS: u64 = 1 << NUMBER_BITS;
/// What has no frame of its own: a method of the runtime.
const NO_FRAME: u64 = NUMBERS - 1;
/// What is wanted, and has no number yet.
const IS_WANTED: u64 = NUMBERS - 2;

/// A method's address without its two lowest bits, which are 0, and its number.
static TABLE: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

const MOST_WANTED: usize = 4096;
/// So many of them are named at a hook.
const NAMED_AT_ONCE: usize = 4;
/// Their addresses, each in the place of its turn; 0 in the others.
static WANTED: [AtomicU64; MOST_WANTED] = [const { AtomicU64::new(0) }; MOST_WANTED];
static HAS_WANTED: AtomicBool = AtomicBool::new(false);
/// Taken by who names wanted methods, and by who forgets all.
static NAMING: AtomicBool = AtomicBool::new(false);

/// Frames without a name.
pub(crate) static UNNAMED: AtomicU32 = AtomicU32::new(0);
/// Methods that got one.
pub(crate) static NAMED: AtomicU32 = AtomicU32::new(0);
/// Class loaders that were unloaded.
pub(crate) static FORGOTTEN: AtomicU32 = AtomicU32::new(0);

/// What a frame of a method is recorded as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// It has this number.
    Number(u32),
    /// It is none of Java's.
    NoFrame,
    /// It has no number yet.
    No,
}

fn places(method: u64) -> impl Iterator<Item = &'static AtomicU64> {
    let hash = (method >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    (0..PROBES).filter_map(move |i| TABLE.get((hash as usize).wrapping_add(i) % PLACES))
}

/// The number that is kept for a method.
fn kept(method: u64) -> Option<u64> {
    let words = places(method).map(|place| place.load(Ordering::Acquire));
    let mut words = words.take_while(|word| *word != 0);
    let word = words.find(|word| word >> NUMBER_BITS == method >> 2)?;
    Some(word % NUMBERS)
}

/// What is known of a method. Takes no lock, calls nothing.
pub(crate) fn known(method: u64) -> Known {
    match kept(method) {
        None | Some(IS_WANTED) => Known::No,
        Some(NO_FRAME) => Known::NoFrame,
        Some(number) => Known::Number(number as u32),
    }
}

fn remember(method: u64, number: u64) {
    let word_of = |number| (method >> 2) << NUMBER_BITS | number;
    for place in places(method) {
        let kept = place.load(Ordering::Relaxed);
        if kept != 0 && kept != word_of(IS_WANTED) {
            if kept >> NUMBER_BITS == method >> 2 {
                return;
            }
            continue;
        }
        let word = word_of(number);
        let placed = place.compare_exchange(kept, word, Ordering::AcqRel, Ordering::Relaxed);
        if placed.is_ok() {
            return;
        }
    }
    // Without a place it is named anew each time.
}

/// Asks for the name of a method. False: there is no room.
fn want(method: u64) -> bool {
    let next = NEXT_WANTED.fetch_add(1, Ordering::Relaxed) as usize % MOST_WANTED;
    let Some(place) = WANTED.get(next) else {
        return false;
    };
    let placed = place.compare_exchange(0, method, Ordering::AcqRel, Ordering::Relaxed);
    if placed.is_ok() {
        remember(method, IS_WANTED);
        HAS_WANTED.store(true, Ordering::Release);
    }
    placed.is_ok()
}

fn is_empty(place: &AtomicU64) -> bool {
    place.load(Ordering::Relaxed) == 0
}

/// Whether a name can be asked for, as far as can be seen.
fn has_room() -> bool {
    let next = NEXT_WANTED.load(Ordering::Relaxed) as usize % MOST_WANTED;
    let place = WANTED.get(next);
    place.is_some_and(is_empty)
}

static NEXT_WANTED: AtomicU32 = AtomicU32::new(0);
/// Where those that are to be named are looked for first.
static NEXT_NAMED: AtomicU32 = AtomicU32::new(0);

/// Bytes of an `ArtMethod` on 64-bit machines, 0: not known. runtime/art_method.h
static METHOD_BYTES: AtomicU64 = AtomicU64::new(0);

/// Reads as this version of Android has it.
pub(crate) fn begin(version: u8) {
    let bytes = match version {
        ..=8 => 0,
        9..=11 => 40,
        12.. => 32,
    };
    METHOD_BYTES.store(bytes, Ordering::Relaxed);
}

/// Most methods of a class that are looked at.
const MOST_OF_CLASS: u64 = 4096;
/// Of a class with more only those are asked for that stacks have.
const MOST_WANTED_OF_CLASS: u64 = 256;

/// Asks for the names of all methods of the class that has this one, which is on the calling thread's stack.
/// Where that was done before it looks no further. Of a large class it asks for this one only.
///
/// They lie in one array, behind its length (libartbase/base/length_prefixed_array.h), and each begins with
/// its class. It is taken for the array only where the length says the same as the classes.
pub(crate) fn want_all_of_class(search: &Search, method: u64) {
    if kept(method).is_some() || !has_room() {
        return;
    }
    let bytes = METHOD_BYTES.load(Ordering::Relaxed);
    let class_of = |method: u64| search.words(method).map(|[word]| word as u32);
    let Some(class) = class_of(method).filter(|class| bytes != 0 && *class != 0) else {
        return;
    };
    let is_of_class = |method: &u64| class_of(*method) == Some(class);
    let behind = (1..MOST_OF_CLASS)
        .map(|i| method + i * bytes)
        .take_while(is_of_class)
        .last();
    let end = behind.unwrap_or(method) + bytes;
    let before = (0..MOST_OF_CLASS)
        .map(|i| method.wrapping_sub(i * bytes))
        .take_while(is_of_class);
    let starts_array = |first: &u64| {
        let length = search
            .words(first.wrapping_sub(8))
            .map(|[word]| word as u32);
        length.map(u64::from) == Some((end - first) / bytes)
    };
    let mut before = before;
    let Some(first) = before.find(starts_array) else {
        return;
    };
    let count = (end - first) / bytes;
    if count > MOST_WANTED_OF_CLASS {
        want(method);
        return;
    }
    for method in (0..count).map(|i| first + i * bytes) {
        if kept(method).is_none() && !want(method) {
            return;
        }
    }
}

/// Whether a word is a method whose code begins there, as far as its last word says so
/// (runtime/art_method.h: `entry_point_from_quick_compiled_code_`).
pub(crate) fn begins_at(search: &Search, method: u64, code: u64) -> bool {
    let bytes = METHOD_BYTES.load(Ordering::Relaxed);
    let last = (bytes != 0 && method & 7 == 0).then(|| method.wrapping_add(bytes - 8));
    last.and_then(|last| search.words(last)) == Some([code])
}

/// ART's functions for names.
pub(crate) struct Names {
    pretty_method: PrettyMethod,
    translate_location: Option<TranslateLocation>,
    is_host: bool,
}

type PrettyMethod = unsafe extern "C" fn(*mut CxxString, u64, bool) -> *mut CxxString;
type TranslateLocation = unsafe extern "C" fn(u64, u32, *mut *const c_char, *mut i32);

/// `std::string` of either C++ library.
#[repr(C, align(8))]
struct CxxString([u64; 4]);

impl CxxString {
    /// Where its bytes are, how many there are, and what is to be freed.
    fn parts(&self, is_host: bool) -> (*const u8, usize, *mut c_void) {
        let own = self.0.as_ptr().cast::<u8>();
        let pointer = |word: u64| core::ptr::with_exposed_provenance_mut::<c_void>(word as usize);
        if is_host {
            // libstdc++, bits/basic_string.h: pointer, length, and a buffer of 16 bytes that the pointer may
            // lead to.
            let [data, length, ..] = self.0;
            let inside = (&raw const self.0[2]).addr() as u64;
            let to_free = if data == inside { 0 } else { data };
            return (pointer(data).cast(), length as usize, pointer(to_free));
        }
        // libc++, string: where the lowest bit is set, capacity, length and pointer; otherwise twice the
        // length in one byte, and the bytes.
        let [first, length, data, _] = self.0;
        match first & 1 {
            1 => (pointer(data).cast(), length as usize, pointer(data)),
            _ => (
                // SAFETY: inside the object.
                unsafe { own.add(1) },
                (first as u8 >> 1).into(),
                core::ptr::null_mut(),
            ),
        }
    }
}

/// Lines of a method are asked for up to here. Its first instructions may have none: D8 puts constants there.
const MOST_POSITIONS: u32 = 2048;
/// So many positions without another line, and it is taken for the end.
const LAST_POSITIONS: u32 = 64;
const MOST_LINES: usize = 256;

impl Names {
    /// `None`: this ART cannot be asked.
    pub(crate) fn of(art: &Art) -> Option<Names> {
        // SAFETY: functions of these types, as the table of versions has them.
        unsafe {
            Some(Names {
                pretty_method: core::mem::transmute::<*mut c_void, PrettyMethod>(
                    art.address(Function::PrettyMethod)?,
                ),
                translate_location: art
                    .address(Function::TranslateLocation)
                    .map(|at| core::mem::transmute::<*mut c_void, TranslateLocation>(at)),
                is_host: !cfg!(target_os = "android"),
            })
        }
    }

    /// Gives a method its number.
    ///
    /// # Safety
    /// The method is alive, and the thread is at [`Place::Hook`](super::threads::Place).
    pub(crate) unsafe fn name(&self, agent: &Agent, method: u64) -> Known {
        let mut string = CxxString([0; 4]);
        // SAFETY: by contract; the string is one of the library's own.
        let (text, length, to_free) = unsafe {
            (self.pretty_method)(&raw mut string, method, false);
            string.parts(self.is_host)
        };
        // SAFETY: so says the string.
        let name = unsafe { core::slice::from_raw_parts(text, length) };
        let number = if name.first() == Some(&b'<') {
            NO_FRAME
        } else {
            let mut lines = [Line {
                position: 0,
                line: 0,
            }; MOST_LINES];
            // SAFETY: by contract.
            let (file, count) = unsafe { self.lines(method, &mut lines) };
            agent
                .add_method(name, file, lines.get(..count).unwrap_or_default())
                .into()
        };
        // SAFETY: what `operator new` of the C++ library gave, which is malloc's.
        unsafe { libc::free(to_free) };
        if number == 0 {
            return Known::No;
        }
        NAMED.fetch_add(1, Ordering::Relaxed);
        remember(method, number);
        known(method)
    }

    /// The method's file, and how many entries its line table has. It is asked position by position, because
    /// ART gives no table.
    ///
    /// # Safety
    /// As `name`.
    unsafe fn lines(&self, method: u64, lines: &mut [Line; MOST_LINES]) -> (&'static [u8], usize) {
        let Some(translate) = self.translate_location else {
            return (b"", 0);
        };
        let (mut file, mut count, mut last) = (core::ptr::null(), 0, (0, u32::MAX));
        for position in 0..MOST_POSITIONS {
            let mut line = 0;
            // SAFETY: by contract.
            unsafe { translate(method, position, &raw mut file, &raw mut line) };
            let line = u32::try_from(line).unwrap_or(0);
            if line != last.1 {
                let Some(place) = lines.get_mut(count) else {
                    break;
                };
                *place = Line { position, line };
                count += 1;
                last = (position, line);
            }
            if position - last.0 >= LAST_POSITIONS {
                break;
            }
        }
        let file = match file.is_null() {
            true => b"",
            // SAFETY: a string of the method's dex file.
            false => unsafe { CStr::from_ptr(file) }.to_bytes(),
        };
        (file, count)
    }

    /// Names what captures have met elsewhere.
    ///
    /// # Safety
    /// The thread is at [`Place::Hook`](super::threads::Place).
    pub(crate) unsafe fn name_wanted(&self, agent: &Agent) {
        if !HAS_WANTED.load(Ordering::Relaxed) || NAMING.swap(true, Ordering::Acquire) {
            return;
        }
        // Before the places are read: who fills one that was read as empty says so again.
        HAS_WANTED.swap(false, Ordering::AcqRel);
        let mut named = 0;
        let from = NEXT_NAMED.load(Ordering::Relaxed) as usize;
        for at in (0..MOST_WANTED).map(|i| (from + i) % MOST_WANTED) {
            if named == NAMED_AT_ONCE {
                NEXT_NAMED.store(at as u32, Ordering::Relaxed);
                HAS_WANTED.store(true, Ordering::Relaxed);
                break;
            }
            let Some(place) = WANTED.get(at).filter(|place| !is_empty(place)) else {
                continue;
            };
            let method = place.swap(0, Ordering::AcqRel);
            if known(method) == Known::No {
                // SAFETY: by contract. Its class was on a stack, and its class loader is not unloaded,
                // because `forget` waits.
                unsafe { self.name(agent, method) };
                named += 1;
            }
        }
        NAMING.store(false, Ordering::Release);
    }
}

/// A class loader is about to be unloaded. No stack has its methods.
pub(crate) fn forget() {
    // Who names is in the middle of some microseconds' work, and waits for nobody.
    while NAMING.swap(true, Ordering::Acquire) {
        // SAFETY: no arguments.
        unsafe { libc::sched_yield() };
    }
    for place in WANTED.iter().chain(&TABLE) {
        place.store(0, Ordering::Release);
    }
    FORGOTTEN.fetch_add(1, Ordering::Relaxed);
    NAMING.store(false, Ordering::Release);
}
