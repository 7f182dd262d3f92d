//! ShadowHook: inline hooks on arm and arm64 Android.
//!
//! Facts of version 1.0.6, from `arch/arm64/sh_inst.c` of its sources:
//!
//! - The original is stored before the jump is written. After a failure it is null.
//! - Where memory is found within 128 MiB the jump is one branch of 4 bytes, stored at once: other threads
//!   run the old code or the new one. Else it has 16 bytes. Then a thread that stands in them goes on within
//!   the jump, as with every inline hook.
//! - The function's pages stay writable.
//! - After a hook is removed, the memory of the moved instructions may be used again, so a thread that is
//!   still in them is not safe. Remove hooks while nobody runs the functions.
//!
//! It is used in unique mode. An app that has initialized it in shared mode keeps that: our replacements do
//! not use the macros that shared mode needs, so the backend is not available then.

use core::ffi::{CStr, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use shadowhook_sys::{Functions, errno, mode};

use super::own_code;
use super::{HookBackend, HookError, Placed, Refusal, Request};

const NAME: &str = "shadowhook";

/// More than its longest jump.
const SAVED: usize = 32;

/// The library's name in an app.
pub const LIBRARY: &CStr = c"libshadowhook.so";

/// Hooks by ShadowHook.
#[derive(Debug)]
pub struct ShadowHook {
    functions: Functions,
    entries: Mutex<Vec<Entry>>,
}

#[derive(Debug)]
struct Entry {
    target: usize,
    /// ShadowHook's handle.
    stub: usize,
    before: Vec<u8>,
}

impl ShadowHook {
    /// Loads and initializes it. [`LIBRARY`] is its name in an app.
    ///
    /// # Safety
    ///
    /// The library of this name is ShadowHook.
    pub unsafe fn load(library: &CStr) -> Result<ShadowHook, HookError> {
        // SAFETY: as the caller says.
        let functions =
            unsafe { Functions::load(library) }.map_err(|e| unavailable(e.to_string()))?;
        // SAFETY: may be called at any time; calls after the first change nothing.
        let error = unsafe { (functions.shadowhook_init)(mode::UNIQUE, false) };
        if error != errno::OK {
            let message = functions.message(error);
            return Err(unavailable(format!(
                "its initialization failed with {error}: {message}"
            )));
        }
        if !functions.is_unique_mode() {
            return Err(unavailable(
                "the app has initialized it in shared mode; let the app use unique mode".to_owned(),
            ));
        }
        Ok(ShadowHook {
            functions,
            entries: Mutex::default(),
        })
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Safety
    ///
    /// As [`HookBackend::place`].
    unsafe fn try_to_place(&self, request: &Request) -> Result<(), Refusal> {
        let mut entries = self.entries();
        let target = request.target.expose_provenance();
        if target == 0 || request.replacement.is_null() {
            return Err(Refusal::NoAddress);
        }
        // Thumb code has an odd address.
        let code = target & !usize::from(cfg!(target_arch = "arm"));
        if !own_code::regions(code, 1)
            .iter()
            .any(own_code::Region::is_code)
        {
            return Err(Refusal::NotCode);
        }
        // SAFETY: code of a function that stays loaded.
        let before = unsafe { own_code::read(code, SAVED) };
        // SAFETY: as the caller says. Its own search for the symbol would miss functions that only `.symtab`
        // names.
        let stub: *mut c_void = unsafe {
            (self.functions.shadowhook_hook_func_addr)(
                request.target,
                request.replacement,
                request.original.as_ptr(),
            )
        };
        if stub.is_null() {
            return Err(self.refusal());
        }
        entries.push(Entry {
            target,
            stub: stub.expose_provenance(),
            before,
        });
        Ok(())
    }

    /// # Safety
    ///
    /// As [`HookBackend::remove`].
    unsafe fn try_to_remove(&self, target: usize) -> Result<(), Refusal> {
        let mut entries = self.entries();
        let found = entries.iter().position(|e| e.target == target);
        let index = found.ok_or(Refusal::NotHooked)?;
        let stub = core::ptr::with_exposed_provenance_mut(entries[index].stub);
        // SAFETY: a handle of `hook_func_addr`, used once: it leaves the list when it is gone.
        if unsafe { (self.functions.shadowhook_unhook)(stub) } != 0 {
            return Err(self.refusal());
        }
        let entry = entries.swap_remove(index);
        let code = target & !usize::from(cfg!(target_arch = "arm"));
        // SAFETY: the function is still loaded.
        match unsafe { own_code::read(code, SAVED) } == entry.before {
            true => Ok(()),
            false => Err(Refusal::NotRestored),
        }
    }

    /// What the last call of this thread failed of.
    fn refusal(&self) -> Refusal {
        // SAFETY: reads a word of this thread's.
        let code = unsafe { (self.functions.shadowhook_get_errno)() };
        match code {
            errno::HOOK_DUP => Refusal::AlreadyHooked,
            errno::UNHOOK_NOTFOUND => Refusal::NotHooked,
            errno::HOOK_REWRITE_FAILED => Refusal::NotRelocatable,
            errno::UNHOOK_TRAMPO_MISMATCH | errno::UNHOOK_EXIT_MISMATCH => Refusal::ChangedByOthers,
            code => Refusal::Backend {
                code,
                message: self.functions.message(code),
            },
        }
    }
}

fn unavailable(why: String) -> HookError {
    HookError::Unavailable { backend: NAME, why }
}

impl HookBackend for ShadowHook {
    fn name(&self) -> &'static str {
        NAME
    }

    unsafe fn place(&self, request: &Request) -> Result<Placed, HookError> {
        // SAFETY: as the caller says.
        let placed = unsafe { self.try_to_place(request) };
        request.answer(NAME, placed)
    }

    unsafe fn remove(&self, hook: Placed) -> Result<(), HookError> {
        // SAFETY: as the caller says.
        unsafe { self.try_to_remove(hook.target) }.map_err(|why| hook.refused(why))
    }
}
