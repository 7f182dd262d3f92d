//! Java frames without a call of ART: the chain of the thread's stack fragments and of the interpreter's
//! frames, which are read as what may not be there. So it works in any capture, also in signal handlers.
//!
//! A fragment of frames on the native stack (compiled code, nterp, native methods) tells its innermost frame
//! only, and only in a call that the thread has made: what it says is old while its code runs. Outside of
//! hooks these frames are left out; those of nterp are found on the native stack (`nterp`).
//!
//! Where the chain begins in ART's `Thread` differs from version to version. It is found by comparison with
//! walks of ART's.

use core::sync::atomic::{AtomicU32, Ordering};

use super::agent::Search;
use super::methods::{self, Known};
use super::walk::{Frames, JavaFrame};

/// Words of a `Thread` that are looked at.
const THREAD_WORDS: u32 = 512;
/// Most fragments of a stack.
const MOST_FRAGMENTS: usize = 512;
/// A stack of fewer frames may look like another one.
const ENOUGH_FRAMES: usize = 3;
/// So many walks have to agree.
const ENOUGH_WALKS: u32 = 4;

/// Words from the begin of a `Thread` to its `ManagedStack`, by which walks agree with it; the walks in the
/// upper half.
static CANDIDATE: AtomicU32 = AtomicU32::new(0);
/// No position: `dex::kDexNoIndex`.
pub(crate) const NO_DEX_PC: u32 = u32::MAX;

/// runtime/managed_stack.h: `tagged_top_quick_frame_`, `link_`, `top_shadow_frame_`, in this order from
/// Android 8 on.
const FRAGMENT_WORDS: usize = 3;
/// The lowest bits say which stub made the frame.
const QUICK_TAGS: u64 = 3;

/// Where an interpreter's frame says at which instruction it is. All begin with `link_` and `method_`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Position {
    /// runtime/stack.h of Android 8: `result_register_`, `dex_pc_ptr_`, `code_item_`, `lock_count_data_`,
    /// `number_of_vregs_` and `dex_pc_` of 32 bits. Instructions lie 16 bytes behind a code item's begin
    /// (runtime/dex_file.h, `CodeItem`).
    CodeItem = 1,
    /// runtime/interpreter/shadow_frame.h from Android 9 to 15: as above, with `dex_instructions_` for the
    /// code item.
    Instructions = 2,
    /// The same of Android 16: `lock_count_data_`, `number_of_vregs_` and `dex_pc_`.
    Number = 3,
}

static POSITION: AtomicU32 = AtomicU32::new(Position::Instructions as u32);

/// Reads as this version of Android has it.
pub(crate) fn begin(version: u8) {
    let position = match version {
        ..=8 => Position::CodeItem,
        9..=15 => Position::Instructions,
        16.. => Position::Number,
    };
    POSITION.store(position as u32, Ordering::Relaxed);
}

const CODE_ITEM_BYTES: u64 = 16;
const SHADOW_WORDS: usize = 7;

impl Position {
    /// The position that a frame's words say, from `link_` on.
    fn of(words: [u64; SHADOW_WORDS]) -> u32 {
        let [_, _, _, pointer, begin, _, last] = words;
        let between = |begin: u64| match pointer {
            0 => (last >> 32) as u32,
            _ => u32::try_from(pointer.wrapping_sub(begin) >> 1).unwrap_or(NO_DEX_PC),
        };
        match POSITION.load(Ordering::Relaxed) {
            position if position == Position::CodeItem as u32 => {
                between(begin.wrapping_add(CODE_ITEM_BYTES))
            }
            // The fourth word is that of the two numbers.
            position if position == Position::Number as u32 => (pointer >> 32) as u32,
            _ => between(begin),
        }
    }
}

/// Where a capture stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// In a call that the thread has made.
    Call,
    /// At any instruction, with the stack pointer there.
    Interrupted(u64),
}

/// Reads the frames of a fragment chain that begins here, leaf first. False: some of it cannot be read.
fn read_from(search: &Search, mut fragment: u64, moment: Moment, frames: &mut Frames) -> bool {
    for _ in 0..MOST_FRAGMENTS {
        let Some([quick, link, shadow]) = search.words::<FRAGMENT_WORDS>(fragment) else {
            return false;
        };
        let is_read = match (quick & !QUICK_TAGS, shadow) {
            (0, 0) => true,
            (0, shadow) => read_shadow_frames(search, shadow, moment, frames),
            (quick, 0) => read_quick_frame(search, quick, moment, frames),
            _ => false,
        };
        if !is_read {
            return false;
        }
        if link == 0 {
            return true;
        }
        fragment = link;
    }
    false
}

fn read_shadow_frames(search: &Search, mut at: u64, moment: Moment, frames: &mut Frames) -> bool {
    while at != 0 {
        // What has been left lies below the stack pointer.
        if matches!(moment, Moment::Interrupted(sp) if at < sp) {
            return false;
        }
        let Some(words) = search.words::<SHADOW_WORDS>(at) else {
            return false;
        };
        let ([link, method, ..], dex_pc) = (words, Position::of(words));
        if method & 3 != 0 || !frames.push(JavaFrame { method, dex_pc, at }) {
            return false;
        }
        at = link;
    }
    true
}

fn read_quick_frame(search: &Search, at: u64, moment: Moment, frames: &mut Frames) -> bool {
    if moment != Moment::Call {
        return true;
    }
    let Some([method]) = search.words(at) else {
        return false;
    };
    frames.push(JavaFrame {
        method,
        dex_pc: NO_DEX_PC,
        at,
    })
}

fn place_known() -> Option<u64> {
    let candidate = CANDIDATE.load(Ordering::Relaxed);
    (candidate >> 16 >= ENOUGH_WALKS).then_some((candidate & 0xffff).into())
}

/// The frames of a thread of ART's, leaf first, as far as they are known at this moment. False: they cannot
/// be read.
pub(crate) fn read(search: &Search, thread: u64, moment: Moment, frames: &mut Frames) -> bool {
    place_known()
        .is_some_and(|place| read_from(search, thread.wrapping_add(8 * place), moment, frames))
}

/// Whether it is known where a thread's chain begins.
pub(crate) fn is_known() -> bool {
    place_known().is_some()
}

/// Looks where the chain begins of which ART's walk of this thread has given the frames.
#[cold]
pub(crate) fn learn(search: &Search, thread: u64, walked: &[JavaFrame]) {
    if walked.len() < ENOUGH_FRAMES || is_known() {
        return;
    }
    let candidate = CANDIDATE.load(Ordering::Relaxed);
    let (place, walks) = (candidate & 0xffff, candidate >> 16);
    let agrees = |place: u32| {
        let mut frames = Frames::new();
        let fragment = thread.wrapping_add(8 * u64::from(place));
        read_from(search, fragment, Moment::Call, &mut frames) && is_part_of(walked, frames.all())
    };
    let agreed = match place != 0 && agrees(place) {
        true => Some((place, walks + 1)),
        false => (1..THREAD_WORDS)
            .find(|place| agrees(*place))
            .map(|place| (place, 1)),
    };
    let (place, walks) = agreed.unwrap_or((0, 0));
    CANDIDATE.store(walks << 16 | place, Ordering::Relaxed);
}

/// Whether what was read is what a walk of ART's has found, less what only ART knows: frames between those of
/// two fragments.
pub(crate) fn is_part_of(walked: &[JavaFrame], read: &[JavaFrame]) -> bool {
    let is_same = |walked: &JavaFrame, read: &JavaFrame| {
        walked.method == read.method && (walked.dex_pc == read.dex_pc || read.dex_pc == NO_DEX_PC)
    };
    if walked.is_empty() {
        return read.is_empty();
    }
    let mut rest = walked.iter();
    let (first, others) = (read.first(), read.get(1..).unwrap_or_default());
    if !first
        .zip(rest.next())
        .is_some_and(|(read, walked)| is_same(walked, read))
    {
        return false;
    }
    others
        .iter()
        .all(|read| rest.any(|walked| is_same(walked, read)))
}

/// What a thread does, as far as it says so itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Top {
    /// It runs code whose frames lie on the native stack.
    Code,
    /// It has called something from such code: a native method, or the runtime. Not named: that frame's
    /// method has no number yet.
    Called {
        is_named: bool,
    },
    /// It interprets. Not named: one of the innermost methods has no number yet.
    Interpreted {
        is_named: bool,
    },
    NotKnown,
}

/// Innermost frames that are looked at.
const LOOKED_AT: usize = 64;

/// What the calling thread does, which has this stack, if that is known. By plain loads: no memory is read
/// but the thread's own.
pub(crate) fn top(thread: u64, stack: Option<core::ops::Range<u64>>) -> Top {
    let (Some(place), Some(stack)) = (place_known(), stack) else {
        return Top::NotKnown;
    };
    let words = |address: u64| {
        let at = core::ptr::with_exposed_provenance::<u64>(address as usize);
        // SAFETY: in the calling thread's `Thread`, or on its stack, as the callers see to.
        unsafe { [at.read_volatile(), at.add(1).read_volatile()] }
    };
    let fragment = thread.wrapping_add(8 * place);
    let ([quick, _], [_, shadow]) = (words(fragment), words(fragment + 8));
    let is_on_stack = |at: u64| at.is_multiple_of(8) && stack.contains(&at) && stack.end - at > 16;
    match (quick & !QUICK_TAGS, shadow) {
        (0, 0) => return Top::Code,
        (0, _) => {}
        (quick, _) => {
            let is_named = !is_on_stack(quick) || methods::known(words(quick)[0]) != Known::No;
            return Top::Called { is_named };
        }
    }
    let (mut at, mut is_named) = (shadow, true);
    for _ in 0..LOOKED_AT {
        if !is_on_stack(at) {
            break;
        }
        let [link, method] = words(at);
        is_named &= methods::known(method) != Known::No;
        if link <= at {
            break;
        }
        at = link;
    }
    Top::Interpreted { is_named }
}

/// The address of the thread's innermost frame on its stack; `None`: it is not known.
pub(crate) fn innermost(search: &Search, thread: u64) -> Option<u64> {
    let [quick, _, shadow] =
        search.words::<FRAGMENT_WORDS>(thread.wrapping_add(8 * place_known()?))?;
    let (quick, shadow) = (quick & !QUICK_TAGS, shadow);
    (quick != 0 || shadow != 0).then_some(quick | shadow)
}
