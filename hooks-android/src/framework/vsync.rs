//! Frames of the display: what Choreographer is told of each vsync that the app has asked for. Up to three
//! marks in the thread that is told:
//!
//! | mark | value | since |
//! |---|---|---|
//! | `vsync` | its number, which the display counts | 8 |
//! | `vsync id` | the number of the app's frame, as SurfaceFlinger's own traces have it | 12 |
//! | `expected presentation` | when the frame is to be seen, ns of `CLOCK_MONOTONIC` | 13 |
//!
//! The hook is a jump: `VsyncEventData` is passed by value, and its size differs from version to version. So
//! arguments stay where they are.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use stackbeat_core::agent;
use stackbeat_core::shm::record_format::event_kind::MARK;

use super::table::Data;

/// Read by the jump.
pub(super) static ORIGINAL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// What comes with a vsync: a [`Data`].
static DATA: AtomicU8 = AtomicU8::new(Data::None as u8);

/// Before the hook is placed.
pub(super) fn begin(data: Data) {
    DATA.store(data as u8, Ordering::Release);
}

/// `NativeDisplayEventReceiver::dispatchVsync`: (this, nsecs_t timestamp, display, uint32_t count, data). The
/// data lies on the caller's stack; on arm64 its address comes in a register, on x86-64 it begins behind the
/// return address.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn dispatch_vsync() {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "lea rdx, [rsp + 40]",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 40",
        "mov rdi, rsi",
        "mov esi, ecx",
        "call {comes}",
        "add rsp, 8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        ".cfi_adjust_cfa_offset -40",
        "jmp [rip + {original}]",
        ".cfi_endproc",
        comes = sym comes,
        original = sym ORIGINAL,
    );
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-64]!",
        ".cfi_def_cfa_offset 64",
        ".cfi_offset x29, -64",
        ".cfi_offset x30, -56",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "stp x2, x3, [sp, #32]",
        "str x4, [sp, #48]",
        "mov x0, x1",
        "mov w1, w3",
        "mov x2, x4",
        "bl {comes}",
        "ldr x4, [sp, #48]",
        "ldp x2, x3, [sp, #32]",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #64",
        "adrp x16, {original}",
        "ldr x16, [x16, :lo12:{original}]",
        "br x16",
        ".cfi_endproc",
        comes = sym comes,
        original = sym ORIGINAL,
    );
}

extern "C" fn comes(timestamp_ns: i64, count: u32, data: *const u64) {
    agent::event(MARK, b"vsync", count.into());
    let data_kind = DATA.load(Ordering::Acquire);
    if data_kind == Data::Number as u8 {
        // SAFETY: by the signature of the row with this data: `android::VsyncEventData` begins there.
        let number = unsafe { data.read_unaligned() };
        agent::event(MARK, b"vsync id", number.cast_signed());
    } else if data_kind == Data::Timelines as u8 {
        // SAFETY: the same of `android::gui::VsyncEventData`. In the smallest version the last word is one
        // more, on the stack of the caller, too.
        let words = unsafe { data.cast::<[u64; WORDS]>().read_unaligned() };
        if let Some(frame) = preferred(&words, timestamp_ns) {
            agent::event(MARK, b"vsync id", frame.number);
            agent::event(MARK, b"expected presentation", frame.expected_ns);
        }
    }
}

/// Seven timelines of three words, behind two words or three.
const TIMELINES: usize = 7;
const WORDS: usize = 3 + 3 * TIMELINES;

#[derive(Debug, PartialEq, Eq)]
struct Frame {
    number: i64,
    expected_ns: i64,
}

/// The timeline that the platform prefers: frameworks/native, libs/gui/include/gui/VsyncEventData.h. The
/// timelines stand in the third word on. Where `numberQueuedBuffers` comes before them, as in Android 16,
/// they stand in the fourth. Which it is the times say; where they say neither, nothing is known.
fn preferred(words: &[u64; WORDS], timestamp_ns: i64) -> Option<Frame> {
    /// Frames are shown within this time.
    const MOST_NS: i64 = 1_000_000_000;
    let index = usize::try_from(words[1] & u64::from(u32::MAX)).ok()?;
    if index >= TIMELINES {
        return None;
    }
    [2, 3].into_iter().find_map(|first| {
        let timeline = words.get(first + 3 * index..)?;
        let (&[number, deadline, expected], _) = timeline.split_first_chunk::<3>()?;
        let [number, deadline_ns, expected_ns] = [number, deadline, expected].map(u64::cast_signed);
        let latest_ns = timestamp_ns.saturating_add(MOST_NS);
        let is_one = number >= 0
            && deadline_ns > timestamp_ns.saturating_sub(MOST_NS)
            && deadline_ns <= expected_ns
            && expected_ns <= latest_ns;
        is_one.then_some(Frame {
            number,
            expected_ns,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_NS: i64 = 500_000_000_000;

    /// Timelines behind so many words, of which the third is preferred.
    fn data(before: usize) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        words[0] = 16_666_667;
        words[1] = 2 | 7 << 32;
        if before == 3 {
            words[2] = 1;
        }
        for (n, timeline) in words[before..].chunks_exact_mut(3).enumerate() {
            let shown = NOW_NS.cast_unsigned() + 16_666_667 * (n as u64 + 1);
            timeline.copy_from_slice(&[1000 + n as u64, shown - 5_000_000, shown]);
        }
        words
    }

    #[test]
    fn the_times_say_where_timelines_stand() {
        let third = Frame {
            number: 1002,
            expected_ns: NOW_NS + 3 * 16_666_667,
        };
        assert_eq!(preferred(&data(2), NOW_NS).as_ref(), Some(&third));
        assert_eq!(preferred(&data(3), NOW_NS).as_ref(), Some(&third));
    }

    #[test]
    fn what_is_no_timeline_says_nothing() {
        assert_eq!(preferred(&[0; WORDS], NOW_NS), None);
        assert_eq!(preferred(&[u64::MAX; WORDS], NOW_NS), None);
        let mut other = data(2);
        other[1] = 7;
        assert_eq!(preferred(&other, NOW_NS), None);
        // Of another time, as where a vsync is dispatched without one having come.
        assert_eq!(preferred(&data(2), NOW_NS * 2), None);
    }
}
