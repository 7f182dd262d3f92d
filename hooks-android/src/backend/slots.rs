//! The slots through which loaded libraries call functions of others (GOT): a hook is an address in them.
//!
//! This reaches calls from one library into another, not those within a library: bionic's `fopen` calls its
//! own `malloc` directly. It changes no code, works on every processor, and needs no other library.
//!
//! - A slot is taken if it holds the function's address. So an allocator or a hook that somebody else has put
//!   there stays.
//! - Everything runs inside `dl_iterate_phdr`, whose lock keeps libraries from coming and going.
//! - A slot is one aligned word: other threads see the old function or the new one. The original is the
//!   function itself, so a thread may be in a hook for as long as it likes after the hook is removed.
//! - [`Slots::look_for_loaded`] is for libraries that have been loaded since. Removal skips those that are
//!   gone.
//! - Relocations are read where the dynamic linker reads them, the packed ones (`DT_ANDROID_RELA`) not:
//!   linkers pack the slots of pointers in data, not those of calls (`DT_JMPREL`).
//! - Untouched: our own library, the dynamic linker, and pointers in data, which a program may compare with
//!   each other.
//!
//! 64-bit only: 32-bit arm has another form of relocations.

use core::ffi::{CStr, c_int, c_void};
use core::mem;
use core::ops::Range;
use core::ptr;
use core::slice;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use libc::{PT_DYNAMIC, PT_GNU_RELRO, PT_LOAD, dl_phdr_info};

use super::{HookBackend, HookError, Placed, Refusal, Request};

const NAME: &str = "slots";

// Tags of <elf.h>.
const DT_PLTRELSZ: usize = 2;
const DT_RELA: usize = 7;
const DT_RELASZ: usize = 8;
const DT_JMPREL: usize = 23;

// Relocations that fill slots for calls (psABI of each machine).
#[cfg(target_arch = "x86_64")]
const OF_CALLS: [u32; 2] = [6, 7];
#[cfg(target_arch = "aarch64")]
const OF_CALLS: [u32; 2] = [1025, 1026];

/// `Elf64_Dyn`.
#[repr(C)]
struct Dynamic {
    tag: usize,
    value: usize,
}

/// `Elf64_Rela`.
#[repr(C)]
struct Relocation {
    offset: usize,
    info: u64,
    addend: i64,
}

/// Hooks in slots. One value serves a process.
#[derive(Debug, Default)]
pub struct Slots {
    hooks: Mutex<Vec<Hook>>,
    /// What [`loaded`] gave when all libraries had their hooks.
    seen: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
struct Hook {
    target: usize,
    replacement: usize,
}

/// What a walk through all slots does: what it puts in the place of a value.
type Changes = HashMap<usize, usize>;

impl Slots {
    /// Puts the hooks into libraries that have been loaded since. Gives the number of slots that got one.
    /// Waits for nobody but the dynamic linker, whose lock the calling thread may have: where another thread
    /// changes slots, the next call looks.
    pub fn look_for_loaded(&self) -> usize {
        let loaded = loaded();
        if loaded == self.seen.load(Ordering::Acquire) {
            return 0;
        }
        let hooks = match self.hooks.try_lock() {
            Ok(hooks) => hooks,
            Err(TryLockError::Poisoned(hooks)) => hooks.into_inner(),
            Err(TryLockError::WouldBlock) => return 0,
        };
        let changes: Changes = hooks.iter().map(|h| (h.target, h.replacement)).collect();
        let count = change_all(&changes).values().sum();
        self.seen.store(loaded, Ordering::Release);
        count
    }

    fn hooks(&self) -> MutexGuard<'_, Vec<Hook>> {
        self.hooks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Changes when a library has been loaded: how many there have ever been, or, before Android 11, the sum of
/// the addresses of those that are there.
fn loaded() -> u64 {
    unsafe extern "C" fn each(info: *mut dl_phdr_info, bytes: usize, sum: *mut c_void) -> c_int {
        /// Fields of Android 11.
        const WITH_ADDS: usize = mem::offset_of!(dl_phdr_info, dlpi_subs);
        // SAFETY: what dl_iterate_phdr gives, so many bytes of it, and the argument below.
        unsafe {
            let sum = &mut *sum.cast::<u64>();
            if bytes >= WITH_ADDS {
                *sum = (*info).dlpi_adds;
                return 1;
            }
            *sum = sum.wrapping_add((*info).dlpi_phdr.addr() as u64);
        }
        0
    }
    let mut sum = 0u64;
    // SAFETY: the function takes this argument.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut sum).cast()) };
    sum
}

fn check(request: &Request, hooks: &[Hook]) -> Result<Hook, Refusal> {
    let hook = Hook {
        target: request.target.expose_provenance(),
        replacement: request.replacement.expose_provenance(),
    };
    match () {
        () if hook.target == 0 || hook.replacement == 0 => Err(Refusal::NoAddress),
        () if hooks.iter().any(|h| h.target == hook.target) => Err(Refusal::AlreadyHooked),
        () => Ok(hook),
    }
}

impl HookBackend for Slots {
    fn name(&self) -> &'static str {
        NAME
    }

    unsafe fn place(&self, request: &Request) -> Result<Placed, HookError> {
        // SAFETY: as the caller says.
        let mut results = unsafe { self.place_many(&[*request]) };
        results.remove(0)
    }

    /// One walk through all libraries for all of them.
    unsafe fn place_many(&self, requests: &[Request]) -> Vec<Result<Placed, HookError>> {
        let mut hooks = self.hooks();
        let mut changes = Changes::new();
        let mut checked = Vec::new();
        for request in requests {
            let hook = check(request, &hooks);
            if let Ok(hook) = hook {
                request.original.store(request.target, Ordering::Release);
                changes.insert(hook.target, hook.replacement);
                hooks.push(hook);
            }
            checked.push(hook.map(|hook| hook.target));
        }
        self.seen.store(0, Ordering::Release);
        let counts = change_all(&changes);
        let results = requests.iter().zip(checked).map(|(request, target)| {
            let placed = target.and_then(|target| match counts.contains_key(&target) {
                true => Ok(()),
                false => {
                    hooks.retain(|h| h.target != target);
                    Err(Refusal::NoSlots)
                }
            });
            request.answer(NAME, placed)
        });
        results.collect()
    }

    unsafe fn remove(&self, hook: Placed) -> Result<(), HookError> {
        let mut hooks = self.hooks();
        let found = hooks.iter().position(|h| h.target == hook.target);
        let found = hooks.swap_remove(found.ok_or_else(|| hook.refused(Refusal::NotHooked))?);
        // What holds neither is somebody else's by now, and stays.
        change_all(&Changes::from([(found.replacement, found.target)]));
        Ok(())
    }
}

/// The walk's changes, and how many slots held each value.
struct Walk<'a> {
    changes: &'a Changes,
    counts: HashMap<usize, usize>,
}

/// Goes through the slots of all libraries. Gives how many slots held each value that was to be changed and
/// could be.
fn change_all(changes: &Changes) -> HashMap<usize, usize> {
    let mut walk = Walk {
        changes,
        counts: HashMap::new(),
    };
    if !changes.is_empty() {
        // SAFETY: the callback has the right type and does not unwind; the data is its own.
        unsafe { libc::dl_iterate_phdr(Some(change_in), (&raw mut walk).cast()) };
    }
    walk.counts
}

/// # Safety
///
/// Called by `dl_iterate_phdr` with a [`Walk`].
unsafe extern "C" fn change_in(info: *mut dl_phdr_info, _: usize, walk: *mut c_void) -> c_int {
    // SAFETY: by contract.
    let (info, walk) = unsafe { (&*info, &mut *walk.cast::<Walk>()) };
    // SAFETY: a library that the lock keeps loaded.
    if let Some(library) = unsafe { Library::of(info) } {
        library.change(walk);
    }
    0
}

/// A loaded library.
struct Library {
    bias: usize,
    /// Made read-only by the dynamic linker after relocation.
    relro: Range<usize>,
    /// Addresses and bytes of its relocations.
    tables: [Range<usize>; 2],
}

impl Library {
    /// `None`: none whose slots are changed.
    ///
    /// # Safety
    ///
    /// `info` describes a library that stays loaded meanwhile.
    unsafe fn of(info: &dl_phdr_info) -> Option<Library> {
        let bias = info.dlpi_addr as usize;
        // SAFETY: so many headers stand there.
        let headers = unsafe { slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        // SAFETY: questions.
        let (page, linker) = unsafe {
            let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
            (page, libc::getauxval(libc::AT_BASE) as usize)
        };
        let own = change_all as fn(_) -> _ as usize;
        let (mut relro, mut dynamic) = (0..0, None);
        for header in headers {
            let begin = bias.wrapping_add(header.p_vaddr as usize);
            let end = begin.wrapping_add(header.p_memsz as usize);
            match header.p_type {
                PT_LOAD if (begin..end).contains(&own) || (begin..end).contains(&linker) => {
                    return None;
                }
                PT_DYNAMIC => dynamic = Some(begin),
                PT_GNU_RELRO => relro = begin & !(page - 1)..end & !(page - 1),
                _ => {}
            }
        }
        // SAFETY: it has one dynamic section.
        let tables = unsafe { tables(dynamic?, bias) };
        Some(Library {
            bias,
            relro,
            tables,
        })
    }

    /// Takes the slots that hold a value which is to be changed.
    fn change(&self, walk: &mut Walk) {
        let mut open = false;
        for table in self.tables.iter().filter(|table| !table.is_empty()) {
            let count = table.len() / size_of::<Relocation>();
            // SAFETY: the relocations of a library that is loaded.
            let relocations: &[Relocation] =
                unsafe { slice::from_raw_parts(ptr::with_exposed_provenance(table.start), count) };
            let calls = relocations
                .iter()
                .filter(|r| OF_CALLS.contains(&(r.info as u32)));
            for address in calls.map(|r| self.bias.wrapping_add(r.offset)) {
                if !address.is_multiple_of(align_of::<usize>()) {
                    continue;
                }
                // SAFETY: a slot: an aligned word of the library, which the dynamic linker has filled in.
                let slot =
                    unsafe { AtomicUsize::from_ptr(ptr::with_exposed_provenance_mut(address)) };
                let held = slot.load(Ordering::Relaxed);
                let Some(&new) = walk.changes.get(&held) else {
                    continue;
                };
                if self.relro.contains(&address) && !open {
                    open = self.protect(libc::PROT_READ | libc::PROT_WRITE);
                    if !open {
                        continue;
                    }
                }
                slot.store(new, Ordering::Release);
                *walk.counts.entry(held).or_default() += 1;
            }
        }
        if open {
            self.protect(libc::PROT_READ);
        }
    }

    fn protect(&self, protection: c_int) -> bool {
        let begin = ptr::with_exposed_provenance_mut(self.relro.start);
        // SAFETY: pages of slots and the like; nobody executes them.
        unsafe { libc::mprotect(begin, self.relro.len(), protection) == 0 }
    }
}

/// Where the relocations lie.
///
/// # Safety
///
/// A dynamic section begins at the address.
unsafe fn tables(dynamic: usize, bias: usize) -> [Range<usize>; 2] {
    // glibc has relocated these in place, bionic has not.
    let absolute = |value: usize| if value < bias { value + bias } else { value };
    let (mut starts, mut bytes) = ([0; 2], [0; 2]);
    let mut entry: *const Dynamic = ptr::with_exposed_provenance(dynamic);
    loop {
        // SAFETY: a dynamic section ends with a null tag.
        let Dynamic { tag, value } = unsafe { entry.read() };
        match tag {
            0 => break,
            DT_JMPREL => starts[0] = absolute(value),
            DT_PLTRELSZ => bytes[0] = value,
            DT_RELA => starts[1] = absolute(value),
            DT_RELASZ => bytes[1] = value,
            _ => {}
        }
        // SAFETY: not the last one.
        entry = unsafe { entry.add(1) };
    }
    // One without the other is no table.
    [0, 1].map(|i| match starts[i] {
        0 => 0..0,
        start => start..start + bytes[i],
    })
}

/// The address that calls of this name reach; null: no library has it.
pub fn function(name: &CStr) -> *mut c_void {
    // SAFETY: a name.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}
