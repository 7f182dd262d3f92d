//! The way into a process that runs already: every loaded module calls the functions of others through
//! slots that the dynamic linker has filled in; those that hold the original of a hook get the hook.
//!
//! A slot is only taken if it holds exactly what the hook calls, or if it is still to be bound lazily to
//! exactly that: another version of the name, another allocator or an earlier interposer stays in place. What
//! it held is kept, and is put back when the agent leaves if the slot still holds ours. libc's tables of the
//! functions that read and write streams (`stdio`) get hooks in the same way, also where the library was
//! preloaded. Not touched: our own slots, the dynamic linker's, and pointers in data (`R_X86_64_64`): a
//! program may compare those with each other.
//!
//! Everything runs inside `dl_iterate_phdr`, whose lock keeps modules from coming and going and lets one
//! thread in at a time. Called where a program may call `dlopen`; nothing here allocates by malloc.
//! `unpatch` comes without that lock: a second one ([`SlotsLock`]) keeps it and this apart.
//!
//! - this file: going through the modules, putting hooks in and taking them out again
//! - `loaded_module`: a loaded module and its slots
//! - `saved`: what slots held before
//! - `writable`: who may change slots, and making them writable
//! - `library`: `dlopen` and its relatives, by which modules come and go
//! - `unpatch`: takes away hooks that cost too much, from anywhere in the program

mod library;
mod loaded_module;
mod saved;
pub(crate) mod unpatch;
mod writable;

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use libc::dl_phdr_info;
use stackbeat_core::platform;

use loaded_module::{Module, Slot, TableHooks};
use saved::SAVED;
use writable::{SlotsLock, Writable};

/// Whether slots are to hold hooks now.
static ON: AtomicBool = AtomicBool::new(false);
/// `dlpi_adds` at the last look: how many modules had ever been loaded.
static MODULES_SEEN: AtomicU64 = AtomicU64::new(0);
/// That look met a module which was not relocated yet, or another thread at work.
static INCOMPLETE: AtomicBool = AtomicBool::new(false);

/// Puts hooks into the slots of all loaded modules. Gives the number of slots that hold one. Modules are left
/// out if another thread changes slots for longer than `MOST_WAITS`: one that unpatches hooks for the session
/// before this one.
pub(crate) fn patch() -> usize {
    ON.store(true, Ordering::Relaxed);
    look(Slots::All)
}

/// Puts hooks into libc's tables only, where all others stand before libc's functions already. Gives the
/// number of entries that hold one.
pub(crate) fn patch_tables() -> usize {
    look(Slots::OfTables)
}

/// Does the same for modules that have been loaded since; quick when there are none.
pub(crate) fn look_for_new() {
    if ON.load(Ordering::Relaxed) {
        look(Slots::OfNewModules);
    }
}

/// Puts back what the slots held. Gives the number of those put back. Slots keep their hooks if another
/// thread changes slots for longer than `MOST_WAITS`; so they do if that is this thread, which was borrowed
/// in the middle of it.
pub(crate) fn restore() -> usize {
    ON.store(false, Ordering::Relaxed);
    let mut restoration = Restoration {
        waits: Waits(MOST_WAITS),
        table_hooks: TableHooks::find(),
        slots: 0,
    };
    // SAFETY: the callback has the right type and does not unwind; the data is its own.
    unsafe { libc::dl_iterate_phdr(Some(restore_module), (&raw mut restoration).cast()) };
    restoration.slots
}

/// How often attaching or detaching waits for another thread, all together, and how long each time.
const MOST_WAITS: u32 = 100;
const WAIT_NS: u64 = 1_000_000;

/// How many waits are left.
struct Waits(u32);

impl Waits {
    fn slots_lock(&mut self) -> Option<SlotsLock> {
        loop {
            let slots_lock = SlotsLock::take();
            if slots_lock.is_some() || self.0 == 0 {
                return slots_lock;
            }
            self.0 -= 1;
            // Nobody wakes it.
            platform::wait(&AtomicU32::new(0), 0, Some(WAIT_NS));
        }
    }
}

struct Restoration {
    waits: Waits,
    table_hooks: TableHooks,
    slots: usize,
}

/// Where hooks are to be put.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slots {
    All,
    /// All of them if modules have been loaded since the last look.
    OfNewModules,
    /// Those of libc's tables.
    OfTables,
}

/// What a look is for, and what it finds.
struct Look {
    wanted: Slots,
    started: bool,
    waits: Waits,
    /// Looked up when the first module is read.
    table_hooks: Option<TableHooks>,
    slots: usize,
}

fn look(wanted: Slots) -> usize {
    let mut look = Look {
        wanted,
        started: wanted == Slots::OfTables,
        // A look for new modules is made again.
        waits: Waits(if wanted == Slots::All { MOST_WAITS } else { 0 }),
        table_hooks: None,
        slots: 0,
    };
    // SAFETY: the callback has the right type and does not unwind; the data is its own.
    unsafe { libc::dl_iterate_phdr(Some(patch_module), (&raw mut look).cast()) };
    look.slots
}

unsafe extern "C" fn patch_module(
    info: *mut dl_phdr_info,
    _size: libc::size_t,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the dynamic linker's description of a loaded module, and our own data.
    let (info, look) = unsafe { (&*info, &mut *data.cast::<Look>()) };
    if !look.started {
        look.started = true;
        let seen = MODULES_SEEN.swap(info.dlpi_adds, Ordering::Relaxed);
        let incomplete = INCOMPLETE.swap(false, Ordering::Relaxed);
        if look.wanted == Slots::OfNewModules && seen == info.dlpi_adds && !incomplete {
            return 1;
        }
    }
    // SAFETY: `info` describes a loaded module.
    if let Some(module) = unsafe { Module::of(info) } {
        let Some(slots_lock) = look.waits.slots_lock() else {
            INCOMPLETE.store(true, Ordering::Relaxed);
            return 0;
        };
        let mut writable = match look.wanted {
            // libc has been loaded where there is a look at its tables alone.
            Slots::OfTables => Writable::new(&slots_lock, &module),
            _ => Writable::of_any(&slots_lock, &module),
        };
        let table_hooks = look.table_hooks.get_or_insert_with(TableHooks::find);
        let mut put = |slot: Slot| {
            let held = slot.held();
            if held == slot.hook {
                look.slots += 1;
            } else if module.is_unrelocated(held) {
                INCOMPLETE.store(true, Ordering::Relaxed);
            } else if !unpatch::is_gone(slot.name)
                && module.calls_original(&slot, held)
                && writable.make(slot.address)
                && SAVED.keep(slot.address, held)
            {
                look.slots += usize::from(slot.exchange(held, slot.hook));
            }
        };
        if look.wanted != Slots::OfTables {
            module.for_each_slot(&mut put);
        }
        let is_libc = module.for_each_table_entry(table_hooks, &mut put);
        if writable.is_loading {
            INCOMPLETE.store(true, Ordering::Relaxed);
        }
        if is_libc && look.wanted == Slots::OfTables {
            return 1;
        }
    }
    0
}

unsafe extern "C" fn restore_module(
    info: *mut dl_phdr_info,
    _size: libc::size_t,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the dynamic linker's description of a loaded module, and our own data.
    let (info, restoration) = unsafe { (&*info, &mut *data.cast::<Restoration>()) };
    // SAFETY: `info` describes a loaded module.
    if let Some(module) = unsafe { Module::of(info) }
        && let Some(slots_lock) = restoration.waits.slots_lock()
    {
        let mut writable = Writable::of_any(&slots_lock, &module);
        let mut restore = |slot: Slot| {
            if slot.held() == slot.hook
                && let Some(held) = SAVED.kept(slot.address)
                && writable.make(slot.address)
            {
                restoration.slots += usize::from(slot.exchange(slot.hook, held));
            }
        };
        module.for_each_slot(&mut restore);
        module.for_each_table_entry(&restoration.table_hooks, &mut restore);
    }
    0
}
