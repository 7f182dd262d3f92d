//! Finds the original of a hooked function: the next definition after ours in the order of the link
//! map, as `dlsym(RTLD_NEXT)` would. In a process that the agent was brought into later it comes last in
//! that order, so there it is the first definition that is not ours.
//!
//! `dlsym` itself cannot be used: it allocates, and the first call of all is often `malloc`. So the
//! dynamic symbol tables of the loaded libraries are read directly. Nothing here allocates, locks or
//! calls a function that can be interposed; it works in a signal handler, in a vfork child, before our
//! constructor and after our destructor.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use libc::{dl_phdr_info, size_t};
use stackbeat_core::address::{Bias, Svma};

/// The library was loaded into a running process.
static LATE: AtomicBool = AtomicBool::new(false);

/// Whether nothing that hooks stand before comes behind this library.
pub(crate) fn comes_last() -> bool {
    !is_late() && next_definition(c"malloc").is_none()
}

/// From here on originals are looked for from the beginning of the link map. To be called before any
/// hook can be reached.
pub(crate) fn come_late() {
    LATE.store(true, Ordering::Relaxed);
}

/// Whether the library was loaded into a running process.
pub(crate) fn is_late() -> bool {
    LATE.load(Ordering::Relaxed)
}

/// The original of one hooked function. It starts as a function of the same signature that looks the
/// real one up on the first call, so that a call costs one load and no test.
#[repr(C)]
pub(crate) struct Original {
    address: AtomicPtr<c_void>,
    name: &'static CStr,
}

impl Original {
    /// `first` must have the signature of the function called `name`, and call what
    /// [`Original::find`] returns.
    pub(crate) const fn new(name: &'static CStr, first: *mut c_void) -> Original {
        Original {
            address: AtomicPtr::new(first),
            name,
        }
    }

    /// What to call: the original, or the function that finds it.
    #[inline(always)]
    pub(crate) fn address(&self) -> *mut c_void {
        self.address.load(Ordering::Relaxed)
    }

    /// Finds the original and keeps it. A name that no library defines (an older libc, or a library
    /// that is loaded later) yields a function that fails with ENOSYS, and is looked for again at the
    /// next call.
    #[cold]
    #[inline(never)]
    pub(crate) fn find(&self) -> *mut c_void {
        match next_definition(self.name).or_else(|| next_of_plain_name(self.name)) {
            Some(address) => {
                self.address.store(address, Ordering::Relaxed);
                address
            }
            None => missing as *mut c_void,
        }
    }
}

extern "C" fn missing() -> isize {
    // SAFETY: errno of the calling thread is always there.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}

// `struct r_debug` and `struct link_map` of glibc's <link.h>: the part that is ABI.
#[repr(C)]
struct Debug {
    version: c_int,
    map: *const LinkMap,
    breakpoint: usize,
    state: c_int,
    loader_base: usize,
}

#[repr(C)]
struct LinkMap {
    bias: Bias,
    name: *const c_char,
    dynamic: *const Dynamic,
    next: *const LinkMap,
    previous: *const LinkMap,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Dynamic {
    pub tag: isize,
    pub value: usize,
}

#[repr(C)]
pub(crate) struct Symbol {
    pub name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: Svma,
    size: usize,
}

unsafe extern "C" {
    static _DYNAMIC: Dynamic;
    /// The linker's name for the beginning of this library.
    static __ehdr_start: libc::Elf64_Ehdr;
}

/// Where a symbol lies that not every dynamic linker has; 0: it has not.
macro_rules! weak_address {
    ($name:literal) => {{
        let address: usize;
        // SAFETY: loads the symbol's address from the GOT.
        unsafe {
            core::arch::asm!(
                concat!(".weak ", $name),
                #[cfg(target_arch = "x86_64")]
                concat!("mov {0}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                #[cfg(target_arch = "aarch64")]
                concat!("adrp {0}, :got:", $name),
                #[cfg(target_arch = "aarch64")]
                concat!("ldr {0}, [{0}, :got_lo12:", $name, "]"),
                out(reg) address,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        address
    }};
}

/// The dynamic linker's list of modules.
#[derive(Clone, Copy)]
struct List {
    debug: &'static Debug,
    /// glibc relocates addresses in dynamic sections in place, musl does not.
    is_relocated: bool,
}

/// The list, filled in before any code of a library runs.
fn list() -> Option<List> {
    let glibc = weak_address!("_r_debug") as *const Debug;
    // SAFETY: glibc's `struct r_debug`, or null.
    if let Some(debug) = unsafe { glibc.as_ref() } {
        return Some(List {
            debug,
            is_relocated: true,
        });
    }
    let musl = weak_address!("_dl_debug_addr") as *const *const Debug;
    // SAFETY: musl's pointer to a structure with the same fields (`struct debug` in ldso/dynlink.c), or null.
    let debug = unsafe { musl.as_ref()?.as_ref()? };
    Some(List {
        debug,
        is_relocated: false,
    })
}

/// The first module.
fn first_map() -> *const LinkMap {
    list().map_or(core::ptr::null(), |list| list.debug.map)
}

/// Whether the dynamic linker is glibc's, whose threads and modules the agent knows.
pub(crate) fn is_glibc() -> bool {
    list().is_some_and(|list| list.is_relocated)
}

/// Begin and end of this library, and its table for unwinding (PT_GNU_EH_FRAME).
pub(crate) fn own_image() -> Option<(usize, usize, usize)> {
    // SAFETY: the first page of this library, which holds its program headers.
    let (start, headers) = unsafe {
        let header = &raw const __ehdr_start;
        let headers = header.byte_add((*header).e_phoff as usize);
        let count = (*header).e_phnum as usize;
        let headers = core::slice::from_raw_parts(headers.cast::<libc::Elf64_Phdr>(), count);
        (header.addr(), headers)
    };
    let of_kind = |kind| headers.iter().filter(move |h| h.p_type == kind);
    let end = of_kind(libc::PT_LOAD)
        .map(|h| h.p_vaddr + h.p_memsz)
        .max()?;
    let table = of_kind(libc::PT_GNU_EH_FRAME).next()?.p_vaddr;
    Some((start, start + end as usize, start + table as usize))
}

// Tags of <elf.h>.
const DT_HASH: isize = 4;
pub(crate) const DT_STRTAB: isize = 5;
pub(crate) const DT_SYMTAB: isize = 6;
const DT_GNU_HASH: isize = 0x6fff_fef5;
pub(crate) const DT_VERSYM: isize = 0x6fff_fff0;
const DT_VERDEF: isize = 0x6fff_fffc;
const STT_FUNC: u8 = 2;
const STT_GNU_IFUNC: u8 = 10;
/// Set in a versym entry of a definition that is not the default version of its name.
const VERSYM_HIDDEN: u16 = 0x8000;

/// The dynamic section of this library.
pub(crate) fn own_dynamic() -> *const Dynamic {
    &raw const _DYNAMIC
}

/// The hook of this name, if there is one.
pub(crate) fn hook(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: our own entry, which stays.
    unsafe { definition_in(own_map()?, name, Version::Any) }
}

/// What a caller of `name` reaches without us, when it asks for a version with this hash (0: none).
pub(crate) fn original(name: &CStr, version: u32) -> Option<*mut c_void> {
    match version {
        0 => next_definition(name),
        hash => definition(name, &[Version::Hash(hash)]),
    }
}

/// Which definition of a name is meant.
#[derive(Clone, Copy)]
enum Version {
    /// The default one.
    Default,
    Any,
    /// The one whose version has this hash (`vd_hash` and `vna_hash` of the gABI).
    Hash(u32),
}

/// The entry of this library in the link map.
fn own_map() -> Option<&'static LinkMap> {
    // SAFETY: the loader fills its list before any code of a library runs, and the entries of
    // libraries loaded at start stay for the life of the process.
    unsafe {
        let mut map = first_map().as_ref();
        while let Some(m) = map {
            if m.dynamic == &raw const _DYNAMIC {
                return Some(m);
            }
            map = m.next.as_ref();
        }
    }
    None
}

/// The path by which this library was loaded, as the loader keeps it.
pub(crate) fn own_path() -> Option<&'static CStr> {
    let map = own_map()?;
    // SAFETY: `l_name` is a C string that lives as long as the library.
    (!map.name.is_null()).then(|| unsafe { CStr::from_ptr(map.name) })
}

/// Where the dynamic linker lies; 0: unknown. It says so itself: the kernel's AT_BASE is 0 in a program that
/// was started as an argument of the dynamic linker.
pub(crate) fn loader_base() -> usize {
    list().map_or(0, |list| list.debug.loader_base)
}

/// Calls `f` with the modules that the program was started with, which are never unloaded: bias, dynamic
/// section, and whether it is the program itself. What the dynamic linker loads at the start comes before
/// itself in its list, nearly always. With none where the list does not name the dynamic linker.
pub(crate) fn for_each_at_start(mut f: impl FnMut(Bias, *const Dynamic, bool)) {
    let loader = loader_base();
    // SAFETY: as in `own_map`; the walk ends before entries that may come and go.
    unsafe {
        let first = first_map();
        let mut end = first;
        while let Some(m) = end.as_ref()
            && (loader == 0 || m.bias != Bias(loader as u64))
        {
            end = m.next;
        }
        let mut map = first;
        while !end.is_null()
            && !core::ptr::eq(map, end)
            && let Some(m) = map.as_ref()
        {
            f(m.bias, m.dynamic, core::ptr::eq(m, first));
            map = m.next;
        }
    }
}

/// Calls `f` while no module comes or goes: the dynamic linker's lock of `dl_iterate_phdr` is held.
pub(crate) fn with_modules_kept(f: &mut dyn FnMut()) {
    /// # Safety
    /// `data` is the address of a reference to what is to be called.
    unsafe extern "C" fn call(_: *mut dl_phdr_info, _: size_t, data: *mut c_void) -> c_int {
        // SAFETY: by contract.
        unsafe { (*data.cast::<&mut dyn FnMut()>())() };
        // Once is enough.
        1
    }
    let mut f = f;
    // SAFETY: the callback gets the address of a local that lives during the call.
    unsafe { libc::dl_iterate_phdr(Some(call), (&raw mut f).cast()) };
}

/// Whether a library whose file name begins with one of `prefixes` is loaded.
pub(crate) fn any_loaded(prefixes: &[&[u8]]) -> bool {
    // SAFETY: as in `own_map`.
    unsafe {
        let mut map = first_map().as_ref();
        while let Some(m) = map {
            if !m.name.is_null() {
                let path = CStr::from_ptr(m.name).to_bytes();
                let file = path.rsplit(|b| *b == b'/').next().unwrap_or(path);
                if prefixes.iter().any(|p| file.starts_with(p)) {
                    return true;
                }
            }
            map = m.next.as_ref();
        }
    }
    false
}

/// The library whose definition of `name` the program reaches before ours, by its path; the program
/// itself has an empty one.
pub(crate) fn stands_before_us(name: &CStr) -> Option<&'static CStr> {
    if is_late() {
        return None;
    }
    // SAFETY: as in `own_map`.
    unsafe {
        let mut map = first_map();
        while let Some(m) = map.as_ref() {
            if m.dynamic == &raw const _DYNAMIC {
                return None;
            }
            if definition_in(m, name, Version::Any).is_some() {
                return (!m.name.is_null()).then(|| CStr::from_ptr(m.name));
            }
            map = m.next;
        }
    }
    None
}

fn next_definition(name: &CStr) -> Option<*mut c_void> {
    // Names kept only for old programs (`__pthread_mutex_lock`) have no default version.
    definition(name, &[Version::Default, Version::Any])
}

/// musl from 1.2.4 on has `open` and its relatives without their twins for large files. Its dynamic linker
/// takes the one for the other (ldso/dynlink.c), unless somebody defines the twin, as this library does.
fn next_of_plain_name(name: &CStr) -> Option<*mut c_void> {
    let plain = name.to_bytes().strip_suffix(b"64")?;
    let mut buffer = [0; 32];
    buffer.get_mut(..plain.len())?.copy_from_slice(plain);
    let plain = CStr::from_bytes_until_nul(&buffer).ok()?;
    if is_glibc() {
        return None;
    }
    next_definition(plain)
}

/// The first library that defines one of the wanted versions decides.
fn definition(name: &CStr, wanted: &[Version]) -> Option<*mut c_void> {
    let own = own_map()?;
    let is_libc = |map: &LinkMap| {
        // SAFETY: `l_name` is a C string that lives as long as the entry.
        let path = (!map.name.is_null()).then(|| unsafe { CStr::from_ptr(map.name) });
        let path = path.map_or(&b""[..], CStr::to_bytes);
        let file = path.rsplit(|b| *b == b'/').next().unwrap_or(path);
        file.starts_with(b"libc.") || file.starts_with(b"ld-musl")
    };
    // Gives the definition, or the library behind which the search has to go on.
    let search = |first: *const LinkMap, to_libc: bool| {
        // SAFETY: as in `own_map`; libraries are appended. What was loaded at the start comes up to libc
        // before those that may go; behind it the caller keeps them.
        unsafe {
            let mut map = first;
            while let Some(m) = map.as_ref() {
                if !core::ptr::eq(m, own) {
                    for version in wanted {
                        if let Some(address) = definition_in(m, name, *version) {
                            return Ok(address);
                        }
                    }
                    if to_libc && is_libc(m) {
                        return Err(map);
                    }
                }
                map = m.next;
            }
        }
        Err(core::ptr::null())
    };
    let first = if is_late() { first_map() } else { own.next };
    match search(first, true) {
        Ok(address) => Some(address),
        Err(libc) => {
            // SAFETY: libc's entry stays; null where there is none.
            let libc = unsafe { libc.as_ref() }?;
            let mut found = None;
            with_modules_kept(&mut || found = search(libc.next, false).ok());
            found
        }
    }
}

/// Looks `name` up in one library.
///
/// # Safety
/// `map` is an entry of the loader's list, relocated.
unsafe fn definition_in(map: &LinkMap, name: &CStr, version: Version) -> Option<*mut c_void> {
    let (mut strings, mut symbols, mut gnu, mut hash, mut versions) = (0, 0, 0, 0, 0);
    let mut definitions = 0;
    let bias = map.bias.0 as usize;
    let mut entry = map.dynamic;
    if entry.is_null() {
        return None;
    }
    loop {
        // SAFETY: a dynamic section ends with a null tag.
        let d = unsafe { *entry };
        match d.tag {
            0 => break,
            DT_STRTAB => strings = d.value,
            DT_SYMTAB => symbols = d.value,
            DT_GNU_HASH => gnu = d.value,
            DT_HASH => hash = d.value,
            DT_VERSYM => versions = d.value,
            DT_VERDEF => definitions = d.value,
            _ => {}
        }
        // SAFETY: not the last entry.
        entry = unsafe { entry.add(1) };
    }
    if !list()?.is_relocated {
        for value in [
            &mut strings,
            &mut symbols,
            &mut gnu,
            &mut hash,
            &mut versions,
            &mut definitions,
        ] {
            *value += if *value == 0 { 0 } else { bias };
        }
    }
    // glibc relocates these in place, except in the vDSO (read-only), whose functions are not a next
    // definition anyway.
    if strings < bias || symbols < bias || strings == 0 || symbols == 0 {
        return None;
    }
    // This one glibc leaves as it is in the file.
    if definitions != 0 && definitions < bias {
        definitions += bias;
    }
    let found = |index: u32| {
        // SAFETY: the index comes from the library's own hash table.
        unsafe {
            let symbol = &*(symbols as *const Symbol).add(index as usize);
            let kind = symbol.info & 15;
            if symbol.section == 0 || (kind != STT_FUNC && kind != STT_GNU_IFUNC) {
                return None;
            }
            if CStr::from_ptr((strings + symbol.name as usize) as *const c_char) != name {
                return None;
            }
            if versions != 0 {
                let number = *(versions as *const u16).add(index as usize);
                let is_meant = match version {
                    Version::Any => true,
                    Version::Default => number & VERSYM_HIDDEN == 0,
                    // Local or without a version: the loader takes it for any.
                    Version::Hash(_) if number & !VERSYM_HIDDEN <= 1 => true,
                    Version::Hash(hash) => version_hash(definitions, number) == Some(hash),
                };
                if !is_meant {
                    return None;
                }
            }
            let address = map.bias.in_process(symbol.value) as usize;
            if kind == STT_GNU_IFUNC {
                let resolver: extern "C" fn(u64) -> *mut c_void =
                    core::mem::transmute(address as *const c_void);
                return Some(resolver(libc::getauxval(libc::AT_HWCAP)));
            }
            Some(address as *mut c_void)
        }
    };
    if gnu != 0 {
        // SAFETY: `gnu` is the library's DT_GNU_HASH table.
        unsafe { search_gnu_hash(gnu as *const u32, name, found) }
    } else if hash != 0 {
        // SAFETY: `hash` is the library's DT_HASH table.
        unsafe { search_hash(hash as *const u32, name, found) }
    } else {
        None
    }
}

/// The hash of the version with this number, among those that a library defines.
///
/// # Safety
/// `definitions` is 0 or a DT_VERDEF table.
unsafe fn version_hash(definitions: usize, number: u16) -> Option<u32> {
    /// `Elf64_Verdef` (gABI, "Symbol Versioning").
    #[repr(C)]
    struct Definition {
        version: u16,
        flags: u16,
        index: u16,
        names: u16,
        hash: u32,
        auxiliary: u32,
        next: u32,
    }
    let mut at = definitions;
    while at != 0 {
        // SAFETY: by contract; `next` is the distance to the next entry, 0 at the last.
        let definition = unsafe { &*(at as *const Definition) };
        if definition.index == number & !VERSYM_HIDDEN {
            return Some(definition.hash);
        }
        if definition.next == 0 {
            return None;
        }
        at += definition.next as usize;
    }
    None
}

/// # Safety
/// `table` is a DT_GNU_HASH table: bucket count, first symbol, bloom words, bloom shift, bloom filter
/// of 64-bit words, buckets, chains.
unsafe fn search_gnu_hash<T>(
    table: *const u32,
    name: &CStr,
    found: impl Fn(u32) -> Option<T>,
) -> Option<T> {
    let hash = name
        .to_bytes()
        .iter()
        .fold(5381u32, |h, b| h.wrapping_mul(33).wrapping_add(*b as u32));
    // SAFETY: indices are bounded by the counts in the table's head and by the end mark of a chain.
    unsafe {
        let [buckets, first, blooms, shift] = [0, 1, 2, 3].map(|i| *table.add(i));
        if buckets == 0 || blooms == 0 {
            return None;
        }
        let bloom = table.add(4) as *const u64;
        let word = *bloom.add((hash / 64 % blooms) as usize);
        if word >> (hash % 64) & word >> (hash >> shift & 63) & 1 == 0 {
            return None;
        }
        let bucket = bloom.add(blooms as usize) as *const u32;
        let chain = bucket.add(buckets as usize);
        let mut index = *bucket.add((hash % buckets) as usize);
        if index < first {
            return None;
        }
        loop {
            let h = *chain.add((index - first) as usize);
            if h | 1 == hash | 1
                && let Some(value) = found(index)
            {
                return Some(value);
            }
            if h & 1 == 1 {
                return None;
            }
            index += 1;
        }
    }
}

/// # Safety
/// `table` is a DT_HASH table: bucket count, chain count, buckets, chains.
unsafe fn search_hash<T>(
    table: *const u32,
    name: &CStr,
    found: impl Fn(u32) -> Option<T>,
) -> Option<T> {
    let hash = name.to_bytes().iter().fold(0u32, |h, b| {
        let h = (h << 4).wrapping_add(*b as u32);
        let top = h & 0xf000_0000;
        (h ^ top >> 24) & !top
    });
    // SAFETY: indices are bounded by the counts in the table's head; a chain ends with 0.
    unsafe {
        let buckets = *table;
        if buckets == 0 {
            return None;
        }
        let chain = table.add(2 + buckets as usize);
        let mut index = *table.add(2 + (hash % buckets) as usize);
        while index != 0 {
            if let Some(value) = found(index) {
                return Some(value);
            }
            index = *chain.add(index as usize);
        }
    }
    None
}
