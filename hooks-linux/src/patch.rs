//! The way into a process that runs already: every loaded module calls the functions of others through
//! slots that the dynamic linker has filled in; those that hold the original of a hook get the hook.
//!
//! A slot is only taken if it holds exactly what the hook calls, or if it is still to be bound lazily to
//! exactly that: another version of the name, another allocator or an earlier interposer stays in
//! place. What it held is kept, and is put back when the agent leaves if the slot still holds ours.
//! Not touched: our own slots, the dynamic linker's, and pointers in data (`R_X86_64_64`): a program may
//! compare those with each other.
//!
//! Everything runs inside `dl_iterate_phdr`, whose lock keeps modules from coming and going and lets one
//! thread in at a time. Called where a program may call `dlopen`; nothing here allocates by malloc.
//! `withdraw` comes without that lock: a second one ([`Turn`]) keeps it and this apart.

use crate::{library, memory, resolve, withdraw};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use libc::{PT_DYNAMIC, PT_GNU_RELRO, PT_LOAD, dl_phdr_info};
use resolve::{DT_STRTAB, DT_SYMTAB, DT_VERSYM, Dynamic, Symbol};
use stackbeat_core::sys;

// Tags of <elf.h>.
const DT_PLTRELSZ: isize = 2;
const DT_RELA: isize = 7;
const DT_RELASZ: isize = 8;
const DT_JMPREL: isize = 23;
const DT_VERNEED: isize = 0x6fff_fffe;

// Relocations that fill slots for calls, and pointers in data (psABI of each machine).
#[cfg(target_arch = "x86_64")]
const GLOB_DAT: u32 = 6;
#[cfg(target_arch = "x86_64")]
const JUMP_SLOT: u32 = 7;
#[cfg(target_arch = "x86_64")]
const ABSOLUTE: u32 = 1;
#[cfg(target_arch = "aarch64")]
const GLOB_DAT: u32 = 1025;
#[cfg(target_arch = "aarch64")]
const JUMP_SLOT: u32 = 1026;
#[cfg(target_arch = "aarch64")]
const ABSOLUTE: u32 = 257;

/// `Elf64_Rela`.
#[repr(C)]
struct Relocation {
    offset: usize,
    info: u64,
    addend: i64,
}

/// Whether slots are to hold hooks now.
static ON: AtomicBool = AtomicBool::new(false);
/// `dlpi_adds` at the last look: how many modules had ever been loaded.
static MODULES_SEEN: AtomicU64 = AtomicU64::new(0);
/// That look met a module which was not relocated yet, or another thread at work.
static INCOMPLETE: AtomicBool = AtomicBool::new(false);

/// Puts hooks into the slots of all loaded modules. Gives the number of slots that hold one.
pub(crate) fn patch() -> usize {
    ON.store(true, Ordering::Relaxed);
    look(true)
}

/// Does the same for modules that have been loaded since; quick when there are none.
pub(crate) fn look_for_new() {
    if ON.load(Ordering::Relaxed) {
        look(false);
    }
}

/// Puts back what the slots held. Gives the number of those put back. Slots keep their hooks if another thread changes
/// slots for longer than `MOST_WAITS`; so they do if that is this thread, which was borrowed in the middle of it.
pub(crate) fn restore() -> usize {
    ON.store(false, Ordering::Relaxed);
    let mut restoration = Restoration {
        waits_left: MOST_WAITS,
        slots: 0,
    };
    // SAFETY: the callback has the right type and does not unwind; the data is its own.
    unsafe { libc::dl_iterate_phdr(Some(restore_module), (&raw mut restoration).cast()) };
    restoration.slots
}

/// How often a restoration waits for another thread, all together, and how long each time.
const MOST_WAITS: u32 = 100;
const WAIT_NS: u64 = 1_000_000;

struct Restoration {
    waits_left: u32,
    slots: usize,
}

impl Restoration {
    fn turn(&mut self) -> Option<Turn> {
        loop {
            let turn = Turn::take();
            if turn.is_some() || self.waits_left == 0 {
                return turn;
            }
            self.waits_left -= 1;
            // Nobody wakes it.
            sys::wait(&AtomicU32::new(0), 0, Some(WAIT_NS));
        }
    }
}

/// What a look is for, and what it finds.
struct Look {
    everything: bool,
    begun: bool,
    slots: usize,
}

fn look(everything: bool) -> usize {
    let mut look = Look {
        everything,
        begun: false,
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
    if !look.begun {
        look.begun = true;
        let seen = MODULES_SEEN.swap(info.dlpi_adds, Ordering::Relaxed);
        let incomplete = INCOMPLETE.swap(false, Ordering::Relaxed);
        if !look.everything && seen == info.dlpi_adds && !incomplete {
            return 1;
        }
    }
    // SAFETY: `info` describes a loaded module.
    if let Some(module) = unsafe { Module::of(info) } {
        let Some(turn) = Turn::take() else {
            INCOMPLETE.store(true, Ordering::Relaxed);
            return 0;
        };
        let mut writable = Writable::new(&turn, &module);
        module.for_each_slot(|slot| {
            let held = slot.value().load(Ordering::Acquire);
            if held == slot.hook {
                look.slots += 1;
            } else if module.bias != 0 && held < module.range.1 - module.range.0 {
                // Still the file's own address, or nothing: it is being loaded.
                INCOMPLETE.store(true, Ordering::Relaxed);
            } else if !withdraw::is_gone(slot.name)
                && module.calls_original(&slot, held)
                && writable.make(slot.address)
                && SAVED.keep(slot.address, held)
            {
                // Lazy binding may have come in between: then the slot is left as it is.
                let taken = slot.value().compare_exchange(
                    held,
                    slot.hook,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                );
                look.slots += usize::from(taken.is_ok());
            }
        });
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
        && let Some(turn) = restoration.turn()
    {
        let mut writable = Writable::new(&turn, &module);
        module.for_each_slot(|slot| {
            if slot.value().load(Ordering::Acquire) == slot.hook
                && let Some(held) = SAVED.kept(slot.address)
                && writable.make(slot.address)
            {
                let put_back = slot.value().compare_exchange(
                    slot.hook,
                    held,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                );
                restoration.slots += usize::from(put_back.is_ok());
            }
        });
    }
    0
}

/// A slot whose function has a hook.
pub(crate) struct Slot<'a> {
    pub address: usize,
    pub hook: usize,
    pub name: &'a CStr,
    symbol: usize,
    /// For calls only; others may be read for the function's address too.
    pub is_call: bool,
}

impl Slot<'_> {
    pub(crate) fn value(&self) -> &AtomicUsize {
        // SAFETY: the relocation says that a pointer lies here; the module is loaded as long as the
        // lock of `dl_iterate_phdr` is held, or for good. Only slots of hooks are stored to.
        unsafe { AtomicUsize::from_ptr(self.address as *mut usize) }
    }
}

/// A loaded module: the tables that its slots were filled in by.
pub(crate) struct Module {
    bias: usize,
    dynamic: usize,
    /// Addresses of its segments.
    range: (usize, usize),
    /// Made read-only by the dynamic linker after relocation.
    relro: (usize, usize),
    strings: usize,
    symbols: usize,
    versions: usize,
    needed: usize,
    /// Relocations and their bytes.
    tables: [(usize, usize); 2],
}

impl Module {
    /// `None`: none that is patched.
    ///
    /// # Safety
    /// `info` describes a loaded module.
    pub(crate) unsafe fn of(info: &dl_phdr_info) -> Option<Module> {
        let bias = info.dlpi_addr as usize;
        let mut module = Module {
            bias,
            dynamic: 0,
            range: (usize::MAX, 0),
            relro: (0, 0),
            strings: 0,
            symbols: 0,
            versions: 0,
            needed: 0,
            tables: [(0, 0); 2],
        };
        let mut dynamic: *const Dynamic = core::ptr::null();
        // SAFETY: reads the auxiliary vector.
        let page = unsafe { libc::getauxval(libc::AT_PAGESZ) } as usize;
        let loader = resolve::loader_base();
        let page_start = |address: usize| address & !(page - 1);
        for i in 0..info.dlpi_phnum as usize {
            // SAFETY: by contract there are so many headers.
            let header = unsafe { &*info.dlpi_phdr.add(i) };
            let start = bias.wrapping_add(header.p_vaddr as usize);
            let end = start.wrapping_add(header.p_memsz as usize);
            match header.p_type {
                PT_LOAD => module.range = (module.range.0.min(start), module.range.1.max(end)),
                PT_DYNAMIC => dynamic = start as *const Dynamic,
                // Rounded as glibc's _dl_protect_relro does.
                PT_GNU_RELRO => module.relro = (page_start(start), page_start(end)),
                _ => {}
            }
        }
        let is_loader = module.range.0 <= loader && loader < module.range.1;
        if dynamic.is_null() || is_loader || core::ptr::eq(dynamic, resolve::own_dynamic()) {
            return None;
        }
        module.dynamic = dynamic.addr();
        // glibc relocates these in place, except where the section is read-only.
        let absolute = |value: usize| if value < bias { value + bias } else { value };
        let mut entry = dynamic;
        loop {
            // SAFETY: a dynamic section ends with a null tag.
            let d = unsafe { *entry };
            match d.tag {
                0 => break,
                DT_STRTAB => module.strings = absolute(d.value),
                DT_SYMTAB => module.symbols = absolute(d.value),
                DT_VERSYM => module.versions = absolute(d.value),
                DT_VERNEED => module.needed = absolute(d.value),
                DT_JMPREL => module.tables[0].0 = absolute(d.value),
                DT_PLTRELSZ => module.tables[0].1 = d.value,
                DT_RELA => module.tables[1].0 = absolute(d.value),
                DT_RELASZ => module.tables[1].1 = d.value,
                _ => {}
            }
            // SAFETY: not the last entry.
            entry = unsafe { entry.add(1) };
        }
        (module.strings != 0 && module.symbols != 0).then_some(module)
    }

    /// Whether its dynamic section lies here.
    pub(crate) fn has_dynamic(&self, dynamic: *const Dynamic) -> bool {
        self.dynamic == dynamic.addr()
    }

    /// Goes through the slots whose functions have a hook.
    pub(crate) fn for_each_slot(&self, f: impl FnMut(Slot)) {
        self.for_each(&[JUMP_SLOT, GLOB_DAT], f);
    }

    /// Goes through the pointers in data to functions that have a hook.
    pub(crate) fn for_each_pointer(&self, f: impl FnMut(Slot)) {
        self.for_each(&[ABSOLUTE], f);
    }

    fn for_each(&self, kinds: &[u32], mut f: impl FnMut(Slot)) {
        for (table, bytes) in self.tables {
            if table == 0 {
                continue;
            }
            for i in 0..bytes / size_of::<Relocation>() {
                // SAFETY: the table has so many entries; each names a symbol of the module's table
                // and that a string of its.
                let (relocation, symbol, name) = unsafe {
                    let relocation = &*(table as *const Relocation).add(i);
                    let index = (relocation.info >> 32) as usize;
                    let symbol = &*(self.symbols as *const Symbol).add(index);
                    let name = (self.strings + symbol.name as usize) as *const c_char;
                    (relocation, index, CStr::from_ptr(name))
                };
                let kind = relocation.info as u32;
                if !kinds.contains(&kind) {
                    continue;
                }
                if let Some(hook) = hook(name) {
                    f(Slot {
                        address: self.bias.wrapping_add(relocation.offset),
                        hook,
                        name,
                        symbol,
                        is_call: kind == JUMP_SLOT,
                    });
                }
            }
        }
    }

    /// Whether a slot that holds `held` leads to what the hook calls.
    pub(crate) fn calls_original(&self, slot: &Slot, held: usize) -> bool {
        let target = resolve::original(slot.name, 0).map(|f| f as usize);
        if target.is_none() || target == Some(held) {
            return target == Some(held);
        }
        // Not bound yet: the slot leads back into the module's own linkage table.
        let is_lazy = slot.is_call && self.range.0 <= held && held < self.range.1;
        let version = self.version_hash(slot.symbol);
        is_lazy && resolve::original(slot.name, version).map(|f| f as usize) == target
    }

    /// The hash of the version in which this module needs a symbol; 0: none.
    fn version_hash(&self, symbol: usize) -> u32 {
        /// `Elf64_Verneed` and `Elf64_Vernaux` (gABI, "Symbol Versioning").
        #[repr(C)]
        struct Needed {
            version: u16,
            count: u16,
            file: u32,
            auxiliary: u32,
            next: u32,
        }
        #[repr(C)]
        struct Auxiliary {
            hash: u32,
            flags: u16,
            index: u16,
            name: u32,
            next: u32,
        }
        if self.versions == 0 || self.needed == 0 {
            return 0;
        }
        // SAFETY: the table has an entry for each symbol.
        let index = unsafe { *(self.versions as *const u16).add(symbol) } & 0x7fff;
        let mut at = self.needed;
        loop {
            // SAFETY: distances lead from entry to entry, 0 ends a list.
            unsafe {
                let needed = &*(at as *const Needed);
                let mut aux = at + needed.auxiliary as usize;
                for _ in 0..needed.count {
                    let auxiliary = &*(aux as *const Auxiliary);
                    if auxiliary.index & 0x7fff == index {
                        return auxiliary.hash;
                    }
                    aux += auxiliary.next as usize;
                }
                if needed.next == 0 {
                    return 0;
                }
                at += needed.next as usize;
            }
        }
    }
}

/// The hook for a name.
fn hook(name: &CStr) -> Option<usize> {
    match name.to_bytes() {
        // Asked for by AddressSanitizer, not a hook.
        b"__asan_default_options" => None,
        // Only here: preloaded, the library need not know when a program looks for a symbol.
        b"dlsym" => Some(library::dlsym_when_late as *const () as usize),
        b"dlvsym" => Some(library::dlvsym_when_late as *const () as usize),
        _ => resolve::hook(name).map(|f| f as usize),
    }
}

/// A thread changes slots.
static IN_TURN: AtomicBool = AtomicBool::new(false);

/// The right to change slots, which one thread has at a time: the protection of a module's pages is one for all
/// threads. Nobody waits for it without a bound, because who has it may be the very thread that asks.
pub(crate) struct Turn(());

impl Turn {
    /// `None`: taken.
    pub(crate) fn take() -> Option<Turn> {
        let free = IN_TURN.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        free.is_ok().then_some(Turn(()))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        IN_TURN.store(false, Ordering::Release);
    }
}

/// In a forked child: who had the turn is not there. Whether somebody had it, and left things half done.
pub(crate) fn after_fork() -> bool {
    IN_TURN.swap(false, Ordering::Relaxed)
}

/// The part of a module that is read-only, while it is made writable for a moment.
pub(crate) struct Writable<'a> {
    _turn: &'a Turn,
    range: (usize, usize),
    is_open: bool,
}

impl<'a> Writable<'a> {
    pub(crate) fn new(turn: &'a Turn, module: &Module) -> Writable<'a> {
        Writable {
            _turn: turn,
            range: module.relro,
            is_open: false,
        }
    }

    /// Makes a slot writable, if it is not.
    pub(crate) fn make(&mut self, address: usize) -> bool {
        if !(self.range.0..self.range.1).contains(&address) || self.is_open {
            return true;
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: more rights for pages of data; `drop` takes them back.
        self.is_open =
            unsafe { memory::protect(self.range.0, self.range.1 - self.range.0, protection) };
        self.is_open
    }
}

impl Drop for Writable<'_> {
    fn drop(&mut self) {
        if self.is_open {
            // SAFETY: as the dynamic linker had it.
            unsafe { memory::protect(self.range.0, self.range.1 - self.range.0, libc::PROT_READ) };
        }
    }
}

/// What slots held before: a hash table in mapped memory. Used under the lock of `dl_iterate_phdr` only.
/// An entry of a module that was unloaded does no harm: what comes to lie there is only looked up if it
/// holds a hook of ours, and then it has an entry of its own.
struct Saved {
    places: AtomicPtr<Place>,
    capacity: AtomicUsize,
    used: AtomicUsize,
}

/// A slot's address (0: free) and what it held.
#[repr(C)]
struct Place {
    slot: AtomicUsize,
    held: AtomicUsize,
}

static SAVED: Saved = Saved {
    places: AtomicPtr::new(core::ptr::null_mut()),
    capacity: AtomicUsize::new(0),
    used: AtomicUsize::new(0),
};

impl Saved {
    fn places(&self) -> &[Place] {
        let places = self.places.load(Ordering::Relaxed);
        if places.is_null() {
            return &[];
        }
        // SAFETY: a mapping of this many places, of zeros at first, which `grow` alone replaces.
        unsafe { core::slice::from_raw_parts(places, self.capacity.load(Ordering::Relaxed)) }
    }

    /// The place of a slot, or the free one where it would be. There always is a free one.
    fn place(places: &[Place], slot: usize) -> Option<&Place> {
        let mask = places.len().checked_sub(1)?;
        let mut i = (slot >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20 & mask;
        loop {
            let place = &places[i];
            let found = place.slot.load(Ordering::Relaxed);
            if found == slot || found == 0 {
                return Some(place);
            }
            i = (i + 1) & mask;
        }
    }

    fn kept(&self, slot: usize) -> Option<usize> {
        let place = Self::place(self.places(), slot)?;
        let is_it = place.slot.load(Ordering::Relaxed) == slot;
        is_it.then(|| place.held.load(Ordering::Relaxed))
    }

    /// False: no memory.
    fn keep(&self, slot: usize, held: usize) -> bool {
        if self.used.load(Ordering::Relaxed) * 2 >= self.capacity.load(Ordering::Relaxed)
            && !self.grow()
        {
            return false;
        }
        let Some(place) = Self::place(self.places(), slot) else {
            return false;
        };
        if place.slot.swap(slot, Ordering::Relaxed) == 0 {
            self.used.fetch_add(1, Ordering::Relaxed);
        }
        place.held.store(held, Ordering::Relaxed);
        true
    }

    fn grow(&self) -> bool {
        const FIRST: usize = 4096;
        let old = self.places();
        let capacity = (old.len() * 2).max(FIRST);
        let Some(memory) = memory::map_anonymous(capacity * size_of::<Place>()) else {
            return false;
        };
        let places = memory.cast::<Place>();
        // SAFETY: a fresh mapping of that size; zeros are free places.
        let new = unsafe { core::slice::from_raw_parts(places, capacity) };
        for place in old {
            let slot = place.slot.load(Ordering::Relaxed);
            if slot != 0
                && let Some(to) = Self::place(new, slot)
            {
                to.slot.store(slot, Ordering::Relaxed);
                to.held
                    .store(place.held.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
        let (old, bytes) = (old.as_ptr(), core::mem::size_of_val(old));
        self.places.store(places, Ordering::Relaxed);
        self.capacity.store(capacity, Ordering::Relaxed);
        if bytes != 0 {
            // SAFETY: the mapping of the last time; nobody but us knows it.
            unsafe { memory::unmap(old.cast_mut().cast(), bytes) };
        }
        true
    }
}
