//! A loaded module as its dynamic section describes it: through which slots it calls others, and which
//! version of each function it asks for.

use super::library;
use crate::{own_session, resolve, stdio};
use core::ffi::{CStr, c_char, c_void};
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};
use libc::{PT_DYNAMIC, PT_GNU_RELRO, PT_LOAD, dl_phdr_info};
use resolve::{DT_STRTAB, DT_SYMTAB, DT_VERSYM, Dynamic, Symbol};
use stackbeat_core::address::{Bias, Svma};

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
    offset: Svma,
    info: u64,
    addend: i64,
}

/// Where a slot lies.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct SlotAddress(pub usize);

/// What a slot holds: the address of a function, or what it is before it is bound.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Target(pub usize);

impl Target {
    pub(super) fn of(function: *const c_void) -> Target {
        Target(function.addr())
    }

    /// What a function's hook calls.
    pub(super) fn original(name: &CStr, version: u32) -> Option<Target> {
        resolve::original(name, version).map(|f| Target::of(f))
    }
}

/// A slot whose function has a hook.
pub(super) struct Slot<'a> {
    pub address: SlotAddress,
    pub hook: Target,
    pub name: &'a CStr,
    symbol: usize,
    /// For calls only; others may be read for the function's address too.
    pub is_call: bool,
}

impl Slot<'_> {
    fn value(&self) -> &AtomicUsize {
        // SAFETY: a pointer lies here, by a relocation or in memory of the module's; the module is loaded as
        // long as the lock of `dl_iterate_phdr` is held, or for good. Only slots of hooks are stored to.
        unsafe { AtomicUsize::from_ptr(self.address.0 as *mut usize) }
    }

    pub(super) fn held(&self) -> Target {
        Target(self.value().load(Ordering::Acquire))
    }

    /// Stores `to`. False: it does not hold `from` any more, because lazy binding came in between, and is
    /// left as it is.
    pub(super) fn exchange(&self, from: Target, to: Target) -> bool {
        self.value()
            .compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

/// The functions that libc calls by tables of its own, as far as it has them.
pub(super) struct TableHooks([Option<TableHook>; stdio::IN_TABLES.len()]);

struct TableHook {
    name: &'static CStr,
    original: Target,
    hook: Target,
}

impl TableHooks {
    /// Looks them up, which takes a walk through the loaded libraries for each.
    pub(super) fn find() -> TableHooks {
        TableHooks(stdio::IN_TABLES.map(|name| {
            Some(TableHook {
                name,
                original: Target::original(name, 0)?,
                hook: hook(name)?,
            })
        }))
    }
}

/// A loaded module: the tables that its slots were filled in by.
pub(super) struct Module {
    bias: Bias,
    dynamic: usize,
    /// Addresses of its segments.
    range: Range<usize>,
    /// Made read-only by the dynamic linker after relocation.
    relro: Range<usize>,
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
    pub(super) unsafe fn of(info: &dl_phdr_info) -> Option<Module> {
        let bias = Bias(info.dlpi_addr);
        let mut module = Module {
            bias,
            dynamic: 0,
            range: Range {
                start: usize::MAX,
                end: 0,
            },
            relro: 0..0,
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
            let start = bias.in_process(Svma(header.p_vaddr)) as usize;
            let end = start.wrapping_add(header.p_memsz as usize);
            match header.p_type {
                PT_LOAD => module.range = module.range.start.min(start)..module.range.end.max(end),
                PT_DYNAMIC => dynamic = start as *const Dynamic,
                // Rounded as glibc's _dl_protect_relro does.
                PT_GNU_RELRO => module.relro = page_start(start)..page_start(end),
                _ => {}
            }
        }
        let is_loader = module.range.contains(&loader);
        let is_ours = core::ptr::eq(dynamic, resolve::own_dynamic());
        if dynamic.is_null() || is_loader || is_ours || own_session::is_library(&module.range) {
            return None;
        }
        module.dynamic = dynamic.addr();
        // glibc relocates these in place, except where the section is read-only.
        let absolute = |value: usize| match value < bias.0 as usize {
            true => bias.in_process(Svma(value as u64)) as usize,
            false => value,
        };
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

    /// Whether a slot that holds this has still the file's own address, or nothing: the module is being
    /// loaded.
    pub(super) fn is_unrelocated(&self, held: Target) -> bool {
        self.bias != Bias(0) && held.0 < self.range.len()
    }

    /// What the dynamic linker made read-only after relocation.
    pub(super) fn read_only(&self) -> Range<usize> {
        self.relro.clone()
    }

    /// Whether its dynamic section lies here.
    pub(super) fn has_dynamic(&self, dynamic: *const Dynamic) -> bool {
        self.dynamic == dynamic.addr()
    }

    /// Goes through the slots whose functions have a hook.
    pub(super) fn for_each_slot(&self, f: impl FnMut(Slot)) {
        self.for_each(&[JUMP_SLOT, GLOB_DAT], f);
    }

    /// Goes through the entries of tables by which libc calls these functions, if this is libc. The dynamic
    /// linker makes them read-only, and no relocation names them: an entry is known by what it holds. False:
    /// it is another module.
    pub(super) fn for_each_table_entry(&self, hooks: &TableHooks, mut f: impl FnMut(Slot)) -> bool {
        let hooks = || hooks.0.iter().flatten();
        if !hooks().any(|hook| self.range.contains(&hook.original.0)) {
            return false;
        }
        for address in self.relro.clone().step_by(size_of::<usize>()) {
            // SAFETY: an aligned word of the module, which stays loaded.
            let held = unsafe { AtomicUsize::from_ptr(address as *mut usize) };
            let held = Target(held.load(Ordering::Relaxed));
            if let Some(found) = hooks().find(|h| held == h.original || held == h.hook) {
                f(Slot {
                    address: SlotAddress(address),
                    hook: found.hook,
                    name: found.name,
                    symbol: 0,
                    is_call: false,
                });
            }
        }
        true
    }

    /// Goes through the pointers in data to functions that have a hook.
    pub(super) fn for_each_pointer(&self, f: impl FnMut(Slot)) {
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
                        address: SlotAddress(self.bias.in_process(relocation.offset) as usize),
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
    pub(super) fn calls_original(&self, slot: &Slot, held: Target) -> bool {
        let target = Target::original(slot.name, 0);
        if target.is_none() || target == Some(held) {
            return target == Some(held);
        }
        // Not bound yet: the slot leads back into the module's own linkage table.
        let is_lazy = slot.is_call && self.range.contains(&held.0);
        let version = self.version_hash(slot.symbol);
        is_lazy && Target::original(slot.name, version) == target
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
fn hook(name: &CStr) -> Option<Target> {
    match name.to_bytes() {
        // Asked for by AddressSanitizer, not a hook.
        b"__asan_default_options" => None,
        // Only here: preloaded, the library need not know when a program looks for a symbol.
        b"dlsym" => Some(Target::of(library::dlsym_when_late as *const c_void)),
        b"dlvsym" => Some(Target::of(library::dlvsym_when_late as *const c_void)),
        _ => resolve::hook(name).map(|f| Target::of(f)),
    }
}
