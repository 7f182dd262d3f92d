//! Who waits for one of Swift's async functions.
//!
//! Such a function's record is *extended*: bit 60 of its first word is set, and the word in front of it leads
//! to the function's async context (LLVM, AArch64FrameLowering.cpp and X86FrameLowering.cpp,
//! `hasSwiftAsyncContext`). A context begins with {context of the function that waits for this one, code at
//! which that one goes on} (Swift, include/swift/ABI/Task.h, `AsyncContext`: `Parent`, `ResumeParent`). The
//! outermost one has no parent (stdlib/public/Concurrency/Task.cpp). Both words may be signed.
//!
//! Nothing is guessed: unless every context up to the outermost one is as it should be, none of them gives a
//! frame. Programs for systems before macOS 12 and iOS 15 mark no records.

use super::leaf::EXTENDED;
use super::{Architecture, CodeMask, Frames};

/// Contexts are aligned for anything (Task.h, `alignas(MaximumAlignment)`).
const ALIGNMENT: u64 = 16;

/// Whether the record with this first word is that of an async function.
pub(super) fn is_extended(fp: u64) -> bool {
    fp & EXTENDED != 0
}

/// Pushes where those go on that wait for the function whose record lies at `record`. False: there is no room
/// for all of them.
pub(super) fn push<A: Architecture>(
    record: u64,
    mask: CodeMask,
    read: &mut impl FnMut(u64) -> Option<u64>,
    out: &mut Frames,
) -> bool {
    let begin = out.len();
    let chain = follow::<A>(record, mask, read, out);
    match chain {
        Chain::Whole => out.awaiting = (begin, out.len()),
        Chain::Broken => out.len = begin,
        Chain::Long => {
            out.awaiting = (begin, out.len());
            return false;
        }
    }
    true
}

enum Chain {
    Whole,
    Broken,
    /// There is no room for more.
    Long,
}

fn follow<A: Architecture>(
    record: u64,
    mask: CodeMask,
    read: &mut impl FnMut(u64) -> Option<u64>,
    out: &mut Frames,
) -> Chain {
    let Some(first) = record.checked_sub(8).and_then(&mut *read) else {
        return Chain::Broken;
    };
    let mut context = mask.strip(first);
    // A loop comes back to a context that was met: this one moves on to the 1st, 2nd, 4th, 8th … (Brent).
    let (mut met, mut steps, mut until) = (context, 0u32, 1);
    loop {
        if context == 0 || !context.is_multiple_of(ALIGNMENT) {
            return Chain::Broken;
        }
        let (Some(parent), Some(resume)) = (read(context), read(context.wrapping_add(8))) else {
            return Chain::Broken;
        };
        let (parent, resume) = (mask.strip(parent), mask.strip(resume));
        if !A::is_code(resume) {
            return Chain::Broken;
        }
        if !out.push(resume) {
            return Chain::Long;
        }
        if parent == 0 {
            return Chain::Whole;
        }
        if parent == met {
            return Chain::Broken;
        }
        context = parent;
        steps += 1;
        if steps == until {
            (met, steps, until) = (context, 0, until * 2);
        }
    }
}
