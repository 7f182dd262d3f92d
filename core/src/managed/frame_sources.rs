//! Runtimes that find the managed frames of a thread by a function of their own: interpreters that another
//! library knows.

use super::memory::{Memory, Own};
use super::{Found, Frame, Frames};
use crate::shm::methods::Methods;
use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Most sources of a process.
pub const MOST_SOURCES: usize = 8;

/// A runtime that has interpreted frames.
#[derive(Debug)]
pub struct FrameSource {
    /// Where its interpreter's code lies, from and to. Where none of that is on a stack, no frames of it are.
    pub code: (u64, u64),
    /// Finds the frames of the calling thread, from the leaf on. Called in captures, on a stack of the
    /// agent's: it takes no lock, allocates nothing, and reads by [`Search::read`].
    pub find: unsafe extern "C-unwind" fn(*mut c_void, &mut Search),
    /// What `find` gets.
    pub argument: *mut c_void,
}

// SAFETY: the argument is only passed on, to a function that may be called on any thread.
unsafe impl Sync for FrameSource {}

static SOURCES: [AtomicPtr<FrameSource>; MOST_SOURCES] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; MOST_SOURCES];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Adds a source for good. False: there are too many.
pub fn add(source: &'static FrameSource) -> bool {
    let index = COUNT.fetch_add(1, Ordering::AcqRel);
    let Some(place) = SOURCES.get(index) else {
        COUNT.fetch_sub(1, Ordering::AcqRel);
        return false;
    };
    place.store((&raw const *source).cast_mut(), Ordering::Release);
    crate::platform::fault_guard::want();
    true
}

/// Whether there are any.
#[inline]
pub(super) fn has_some() -> bool {
    COUNT.load(Ordering::Relaxed) != 0
}

fn all() -> impl Iterator<Item = (u32, &'static FrameSource)> {
    let count = COUNT.load(Ordering::Acquire).min(MOST_SOURCES);
    let sources = SOURCES.iter().take(count).enumerate();
    sources.filter_map(|(i, place)| {
        // SAFETY: null, or what `add` stored for good.
        let source = unsafe { place.load(Ordering::Acquire).as_ref() };
        Some((1 << i, source?))
    })
}

/// The sources that have code at an address, as bits.
#[inline]
pub(super) fn with_code_at(address: u64) -> u32 {
    if !has_some() {
        return 0;
    }
    all()
        .filter(|(_, source)| source.code.0 <= address && address < source.code.1)
        .fold(0, |bits, (bit, _)| bits | bit)
}

/// The native frames of a stack, leaf first: pc and stack pointer of one of them.
pub type NativeFrames<'a> = &'a dyn Fn(usize) -> Option<[u64; 2]>;

/// Finds the frames of these sources, whose methods get numbers of the session's table.
pub(super) fn find(
    wanted: u32,
    session: u32,
    methods: &Methods,
    native: NativeFrames,
    memory: &mut Own,
    frames: &mut Frames,
    found: &mut Found,
) {
    for (_, source) in all().filter(|(bit, _)| wanted & bit != 0) {
        let had_some = !frames.is_empty();
        let mut search = Search {
            memory,
            frames,
            session,
            methods,
            native,
            found,
        };
        // SAFETY: by the source's contract.
        unsafe { (source.find)(source.argument, &mut search) };
        if had_some {
            frames.sort();
        }
    }
}

/// One search of a source.
#[expect(missing_debug_implementations, reason = "it has a function")]
pub struct Search<'a, 'm, 'o> {
    memory: &'a mut Own<'o>,
    frames: &'a mut Frames,
    session: u32,
    methods: &'a Methods<'m>,
    native: NativeFrames<'a>,
    found: &'a mut Found,
}

impl Search<'_, '_, '_> {
    /// Fills the buffer from an address. False: some of it cannot be read.
    pub fn read(&mut self, address: u64, buffer: &mut [u8]) -> bool {
        self.memory.bytes(address, buffer)
    }

    /// Pc and stack pointer of a native frame, counted from the leaf. `None`: there are no more.
    pub fn native_frame(&self, index: usize) -> Option<[u64; 2]> {
        (self.native)(index)
    }

    /// Begins the run of the next outer call of the interpreter, which has something on the native stack at
    /// this address. False: there are too many.
    pub fn begin_run(&mut self, anchor: u64) -> bool {
        let has_room = self.frames.begin_run(anchor);
        self.found.is_truncated |= !has_room;
        has_room
    }

    /// Adds the next outer frame to the last run, of a method with this own number; 0: not known. False:
    /// there is no run, or no room.
    pub fn add(&mut self, own: u32, position: u32) -> bool {
        let method = match own {
            0 => 0,
            own => self.found.number(self.session, self.methods, own),
        };
        let has_room = self.frames.push(Frame::new(method, position));
        self.found.is_truncated |= !has_room;
        has_room
    }
}
