//! Dobby: a jump over a function's first instructions, which run elsewhere instead.
//!
//! The crate `dobby-sys` brings Dobby 223aabc of March 2022 as static libraries. Facts of that version, seen
//! in its code:
//!
//! - It has no lock. [`Dobby`] has one.
//! - `DobbyHook` answers 0 whatever happened behind its argument check, and writes the original before the
//!   jump is there.
//! - On x86-64 the jump is `jmp [rip + N]`, 6 bytes; its pointer lies within 2 GiB. On arm64 it is `adrp`,
//!   `add`, `br`, 12 bytes, or 4 words with a literal.
//! - `DobbyDestroy` writes the old instructions back. The moved ones stay mapped, so a thread may be in them.
//! - On x86-64 a conditional jump with an 8-bit distance is moved wrongly: it arrives 4 bytes behind its
//!   target. A loop instruction ends the process. [`moved`] refuses functions that begin with such.
//! - Code is changed by a function `CodePatch` that copies byte by byte, into one page even where two are
//!   touched, and answers success whatever mprotect said. [`CodePatch`] below takes its place: the linker
//!   needs no other.
//!
//! **Other threads.** Those that enter the function while a hook comes or goes run the old code or the new
//! one ([`code_change::write`]), if the jump lies in one aligned word, as it does at the start of any
//! function that compilers align. On arm64 that is so for 4-byte jumps only; a longer one can be met half
//! written. A thread that is between two of the first instructions at that very moment would go on within the
//! jump. It is a window of a few instructions in each call. Dobby does nothing about it. Who cannot exclude
//! it stops those threads first, as ART can.
//!
//! Where code of the function jumps back into its first bytes, the hook is refused on x86-64 if the
//! function's size is given. On arm64 nobody notices.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr;
use core::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::code_change;
#[cfg(target_arch = "x86_64")]
use super::moved;
use super::own_code;
use super::{HookBackend, HookError, Placed, Refusal, Request};

const NAME: &str = "dobby";

/// More than the jump and the instructions that it cuts.
const SAVED: usize = 32;

/// Bytes of the shortest jump.
#[cfg(target_arch = "x86_64")]
const JUMP: usize = 6;
#[cfg(not(target_arch = "x86_64"))]
const JUMP: usize = 12;

/// Hooks by Dobby.
#[derive(Debug, Default)]
pub struct Dobby(());

#[derive(Debug)]
struct Entry {
    target: usize,
    before: Vec<u8>,
    after: Vec<u8>,
}

/// Dobby's list of hooks is one for the process, and so is ours.
static ENTRIES: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

/// What changing code answered last, as an errno; -1: it was not asked for.
static PATCHED: AtomicI32 = AtomicI32::new(-1);

fn entries() -> MutexGuard<'static, Vec<Entry>> {
    ENTRIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the place of Dobby's function of this name.
///
/// # Safety
///
/// Dobby alone calls it, with code that is mapped.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
unsafe extern "C" fn CodePatch(address: *mut c_void, bytes: *mut u8, size: c_uint) -> c_uint {
    // SAFETY: Dobby's buffer.
    let bytes = unsafe { core::slice::from_raw_parts(bytes, size as usize) };
    // SAFETY: Dobby gives code.
    let written = unsafe { code_change::write(address.expose_provenance(), bytes) };
    PATCHED.store(written.err().unwrap_or(0), Ordering::Relaxed);
    u32::from(written.is_err())
}

/// The errno of the last change of code. Refers to [`CodePatch`], so that the linker takes it before it sees
/// Dobby's.
fn patched() -> Result<(), Refusal> {
    core::hint::black_box(CodePatch as unsafe extern "C" fn(_, _, _) -> _);
    match PATCHED.swap(-1, Ordering::Relaxed) {
        0 => Ok(()),
        -1 => Err(Refusal::Backend {
            code: -1,
            message: "it changed no code, or not by our function".to_owned(),
        }),
        errno => Err(Refusal::Protected(errno)),
    }
}

impl Dobby {
    /// The backend.
    pub fn new() -> Dobby {
        // Its messages would go to the app's output. 99 is above all its levels.
        // SAFETY: stores a number.
        unsafe { dobby_sys::ffi::log_set_level(99) };
        Dobby(())
    }
}

fn check(request: &Request, entries: &[Entry]) -> Result<(), Refusal> {
    let target = request.target.expose_provenance();
    if target == 0 || request.replacement.is_null() {
        return Err(Refusal::NoAddress);
    }
    if entries.iter().any(|e| e.target == target) {
        return Err(Refusal::AlreadyHooked);
    }
    let regions = own_code::regions(target, 1);
    if !regions.iter().any(own_code::Region::is_code) {
        return Err(Refusal::NotCode);
    }
    if (1..JUMP).contains(&request.size) {
        return Err(Refusal::TooShort {
            size: request.size,
            needed: JUMP,
        });
    }
    Ok(())
}

/// Whether Dobby moves the first instructions rightly.
///
/// # Safety
///
/// The target is code.
unsafe fn check_instructions(request: &Request) -> Result<(), Refusal> {
    #[cfg(target_arch = "x86_64")]
    {
        let target = request.target.expose_provenance();
        // SAFETY: as the caller says.
        let code = unsafe { own_code::read(target, request.size.max(SAVED)) };
        moved::check(&code, target as u64, request.size, JUMP)?;
    }
    let _ = request;
    Ok(())
}

/// # Safety
///
/// As [`HookBackend::place`].
unsafe fn place(request: &Request) -> Result<(), Refusal> {
    let mut entries = entries();
    check(request, &entries)?;
    // SAFETY: it is in executable memory.
    unsafe { check_instructions(request) }?;
    let target = request.target.expose_provenance();
    // SAFETY: code of a function that stays loaded.
    let before = unsafe { own_code::read(target, SAVED) };
    PATCHED.store(-1, Ordering::Relaxed);
    // SAFETY: code, as it was checked; under the lock.
    let answer: c_int = unsafe {
        dobby_sys::ffi::DobbyHook(
            request.target,
            request.replacement,
            request.original.as_ptr(),
        )
    };
    if answer != 0 {
        return Err(Refusal::Backend {
            code: answer,
            message: "DobbyHook failed".to_owned(),
        });
    }
    let changed = patched();
    if request.original.load(Ordering::Relaxed).is_null() {
        // SAFETY: there is an entry without an original.
        unsafe { dobby_sys::ffi::DobbyDestroy(request.target) };
        return Err(Refusal::NotRelocatable);
    }
    if let Err(refusal) = changed {
        // SAFETY: takes Dobby's entry out; the code has not changed.
        unsafe { dobby_sys::ffi::DobbyDestroy(request.target) };
        return Err(refusal);
    }
    // SAFETY: as above.
    let after = unsafe { own_code::read(target, SAVED) };
    entries.push(Entry {
        target,
        before,
        after,
    });
    Ok(())
}

/// # Safety
///
/// As [`HookBackend::remove`].
unsafe fn remove(target: usize) -> Result<(), Refusal> {
    let mut entries = entries();
    let found = entries.iter().position(|e| e.target == target);
    let index = found.ok_or(Refusal::NotHooked)?;
    let entry = &entries[index];
    // SAFETY: the function is still loaded.
    if unsafe { own_code::read(target, SAVED) } != entry.after {
        return Err(Refusal::ChangedByOthers);
    }
    PATCHED.store(-1, Ordering::Relaxed);
    let address: *mut c_void = ptr::with_exposed_provenance_mut(target);
    // SAFETY: a hook of ours; under the lock.
    let answer: c_int = unsafe { dobby_sys::ffi::DobbyDestroy(address) };
    if answer != 0 {
        return Err(Refusal::Backend {
            code: answer,
            message: "DobbyDestroy failed".to_owned(),
        });
    }
    // Dobby has forgotten the hook, whether or not the code could be changed.
    let entry = entries.swap_remove(index);
    patched()?;
    // SAFETY: as above.
    match unsafe { own_code::read(target, SAVED) } == entry.before {
        true => Ok(()),
        false => Err(Refusal::NotRestored),
    }
}

impl HookBackend for Dobby {
    fn name(&self) -> &'static str {
        NAME
    }

    unsafe fn place(&self, request: &Request) -> Result<Placed, HookError> {
        // SAFETY: as the caller says.
        let placed = unsafe { place(request) };
        request.answer(NAME, placed)
    }

    unsafe fn remove(&self, hook: Placed) -> Result<(), HookError> {
        // SAFETY: as the caller says.
        unsafe { remove(hook.target) }.map_err(|why| hook.refused(why))
    }
}
