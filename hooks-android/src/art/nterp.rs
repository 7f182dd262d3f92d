//! Frames of nterp, the interpreter whose frames lie on the native stack as those of compiled code do: the
//! method is the word at the frame's stack pointer (runtime/interpreter/mterp, `ExecuteNterpImpl`; from
//! Android 11 on). So where the native walk comes through its code, its methods are known without a call of
//! ART, also in signal handlers. At which instruction they are is not.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};

use super::agent::Search;
use super::chain::NO_DEX_PC;
use super::library::Art;
use super::methods::{self, Known};
use super::versions::Function;
use super::walk::{Frames, JavaFrame};

/// 256 instructions of 128 bytes, and what they have in common before and behind them: 57,446 bytes in
/// Debian's ART 11, 59,531 in its 14 (the range of their unwind rules). What lies behind has other frames.
const CODE_BYTES: u64 = 56 << 10;
/// What it has before its first instruction, at most: 1,371 bytes in Debian's ART 11, 1,713 in its 14 (up to
/// the jump to an instruction).
const PROLOGUE_BYTES: u64 = 2 << 10;

static CODE: AtomicU64 = AtomicU64::new(0);

/// Looks where its code is, if this ART has it.
pub(crate) fn begin(art: &Art) {
    if let Some(entry) = art.address(Function::NterpEntry) {
        // SAFETY: a function without arguments that gives an address.
        let entry: extern "C" fn() -> *const c_void = unsafe { core::mem::transmute(entry) };
        CODE.store(entry().addr() as u64, Ordering::Relaxed);
    }
}

/// Adds its frames on the native stack, leaf first. Where a frame is not whole yet, its word is anything: it
/// is taken for a method only if it is a known one, or begins with this code.
pub(crate) fn read(search: &Search, frames: &mut Frames) {
    let code = CODE.load(Ordering::Relaxed);
    if code == 0 {
        return;
    }
    // It stores the method before it comes to the first instruction.
    let is_whole = |pc: u64| pc.wrapping_sub(code) >= PROLOGUE_BYTES;
    for [pc, at] in (0..).map_while(|index| search.native_frame(index)) {
        if pc.wrapping_sub(code) >= CODE_BYTES {
            continue;
        }
        let method = search.words(at).map_or(0, |[method]| method);
        let method = match methods::known(method) {
            Known::Number(_) => method,
            Known::NoFrame => continue,
            Known::No if is_whole(pc) && methods::begins_at(search, method, code) => method,
            Known::No => 0,
        };
        let frame = JavaFrame {
            method,
            dex_pc: NO_DEX_PC,
            at,
        };
        if !frames.push(frame) {
            return;
        }
    }
}
