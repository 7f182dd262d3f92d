//! The modules (program, libraries, vDSO) of this process: where they lie, what they are called, and
//! their unwind tables.
//!
//! A module is taken in when an address inside it is first met on a stack, so nothing is paid for
//! libraries that never run. The dynamic linker is asked through glibc's `_dl_find_object` (2.35 and
//! later), which takes no lock and may be called from a signal handler. Where it is missing, the
//! modules loaded at the start are known and later ones are not: their frames end a stack, marked.
//!
//! The tables are mapped from the module's file, so that they outlive `dlclose`; when the file is
//! gone, replaced or has no name (vDSO), they are copied from memory. Nothing here is ever freed:
//! a walk on another thread may be using it.
//!
//! # Signal safety
//! Everything but `init` may run on a hook's path or in a signal handler: no allocation, no lock.
//! One thread at a time takes a module in; others meanwhile treat its code as unknown.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::sys;
use crate::unwind::cfi::{Section, Tables};
use crate::unwind::elf::{self, BUILD_ID_BYTES, Image};
use crate::unwind::{native, os};

/// Most modules that are told apart, unloaded ones included.
const MAX_MODULES: usize = 4096;
/// Longest path that is kept (Linux' PATH_MAX).
const MAX_PATH: usize = 4096;
/// Tables larger than this are not copied from memory.
const MAX_COPY: u64 = 64 << 20;

/// One loaded file.
#[derive(Debug)]
pub struct Module {
    /// Addresses in this process: `start..end`.
    pub start: u64,
    pub end: u64,
    /// Address in the process minus address in the file.
    pub bias: u64,
    text: (u64, u64),
    tables: Option<Tables<'static>>,
    path: &'static CStr,
    build_id: [u8; BUILD_ID_BYTES],
    build_id_bytes: usize,
    /// Its program headers in memory: address and number.
    headers: (u64, usize),
    link_map: u64,
    /// First epoch in which it was known.
    pub epoch: u32,
    /// First epoch without it; 0: it is loaded.
    gone: AtomicU32,
    /// What of it was reported: `ANNOUNCED`, `ANNOUNCED_GONE`.
    announced: AtomicU32,
}

const ANNOUNCED: u32 = 1;
const ANNOUNCED_GONE: u32 = 2;

impl Module {
    /// Path of the file as the dynamic linker knows it; `[vdso]` for the vDSO.
    pub fn path(&self) -> &[u8] {
        self.path.to_bytes()
    }

    /// The build id; empty when it has none.
    pub fn build_id(&self) -> &[u8] {
        &self.build_id[..self.build_id_bytes]
    }

    /// Whether an address lies in its executable segments.
    pub fn is_code(&self, address: u64) -> bool {
        self.text.0 <= address && address < self.text.1
    }

    /// Its unwind tables, if it has any.
    pub fn tables(&self) -> Option<&Tables<'static>> {
        self.tables.as_ref()
    }
}

/// A place in the table of modules. The range lies beside the pointer so that a search touches no
/// module; `end` is 0 until the place is filled and after the module has gone.
struct Place {
    start: AtomicU64,
    end: AtomicU64,
    module: AtomicPtr<Module>,
}

static PLACES: [Place; MAX_MODULES] = [const {
    Place {
        start: AtomicU64::new(0),
        end: AtomicU64::new(0),
        module: AtomicPtr::new(core::ptr::null_mut()),
    }
}; MAX_MODULES];
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Number of the current epoch: which code lies where changes only with it.
static EPOCH: AtomicU32 = AtomicU32::new(1);
/// Held by the thread that takes a module in or looks for gone ones. Others do not wait for it.
static BUSY: AtomicBool = AtomicBool::new(false);
static DIRTY: AtomicBool = AtomicBool::new(false);
/// Something is to be reported.
static PENDING: AtomicBool = AtomicBool::new(false);
/// Address of `_dl_find_object`, 0: not there.
static FIND_OBJECT: AtomicUsize = AtomicUsize::new(0);
/// Code of the agent library: its frames are left out of stacks.
static OWN_CODE: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
static CAN_READ: AtomicBool = AtomicBool::new(false);

/// glibc's `struct dl_find_object` (dlfcn.h, 2.35) on processors without `DLFO_STRUCT_HAS_EH_DBASE`.
#[repr(C)]
struct FoundObject {
    flags: u64,
    map_start: *mut c_void,
    map_end: *mut c_void,
    link_map: *mut LinkMap,
    eh_frame: *mut c_void,
    reserved: [u64; 7],
}

/// The public head of glibc's `struct link_map` (link.h).
#[repr(C)]
struct LinkMap {
    address: u64,
    name: *const libc::c_char,
}

/// The epoch in force.
#[inline(always)]
pub fn epoch() -> u32 {
    EPOCH.load(Ordering::Acquire)
}

/// A library was unloaded: check before the next walk. Call it after `dlclose` returned.
pub fn mark_dirty() {
    DIRTY.store(true, Ordering::Release);
}

/// True after `mark_dirty`.
#[inline(always)]
pub(crate) fn is_dirty() -> bool {
    DIRTY.load(Ordering::Relaxed)
}

/// Finds the dynamic linker's lookup function, or takes all modules in when there is none. Runs in
/// the agent's constructor (it takes the dynamic linker's lock); must not run on a hook's path.
pub fn init() {
    CAN_READ.store(os::can_read_memory(), Ordering::Relaxed);
    // SAFETY: the callback has the right type and does not unwind.
    unsafe { libc::dl_iterate_phdr(Some(look_for_find_object), core::ptr::null_mut()) };
    if FIND_OBJECT.load(Ordering::Relaxed) == 0 {
        // SAFETY: as above.
        unsafe { libc::dl_iterate_phdr(Some(take_in_at_start), core::ptr::null_mut()) };
    }
    // SAFETY: reads the auxiliary vector.
    let entry = unsafe { libc::getauxval(libc::AT_ENTRY) };
    let here: fn() = init;
    if let Lookup::Module(module) = find_or_take_in(here as usize as u64)
        && !module.is_code(entry)
    {
        OWN_CODE[0].store(module.text.0, Ordering::Relaxed);
        OWN_CODE[1].store(module.text.1, Ordering::Relaxed);
    }
}

/// The executable addresses of the agent library; empty where this code is part of a program.
#[inline(always)]
pub(crate) fn own_code() -> (u64, u64) {
    (
        OWN_CODE[0].load(Ordering::Relaxed),
        OWN_CODE[1].load(Ordering::Relaxed),
    )
}

/// Child of fork: another thread may have been at work when the memory was copied, and the child's
/// modules are to be reported anew.
pub fn after_fork() {
    BUSY.store(false, Ordering::Release);
    forget_reports();
}

/// Makes `report_changes` report every module that is loaded once more.
pub fn forget_reports() {
    for place in &PLACES[..COUNT.load(Ordering::Acquire).min(MAX_MODULES)] {
        let module = place.module.load(Ordering::Acquire);
        // SAFETY: a published module is never freed.
        if let Some(module) = unsafe { module.as_ref() } {
            let gone = module.gone.load(Ordering::Relaxed) != 0;
            let seen = if gone { ANNOUNCED | ANNOUNCED_GONE } else { 0 };
            module.announced.store(seen, Ordering::Relaxed);
        }
    }
    PENDING.store(true, Ordering::Release);
}

/// The module at an address, if it is known and loaded.
pub fn find(address: u64) -> Option<&'static Module> {
    let count = COUNT.load(Ordering::Acquire).min(MAX_MODULES);
    PLACES[..count].iter().find_map(|place| {
        let inside = place.start.load(Ordering::Relaxed) <= address
            && address < place.end.load(Ordering::Acquire);
        if !inside {
            return None;
        }
        let module = place.module.load(Ordering::Acquire);
        // SAFETY: a published module is never freed.
        unsafe { module.as_ref() }
    })
}

/// Whether a module is the dynamic linker.
pub(crate) fn is_loader(module: &Module) -> bool {
    // SAFETY: reads the auxiliary vector.
    let (base, entry) = unsafe {
        (
            libc::getauxval(libc::AT_BASE),
            libc::getauxval(libc::AT_ENTRY),
        )
    };
    // Started by hand (`ld.so PROGRAM`) it is what the kernel has loaded as the program.
    module.start == base || (base == 0 && module.is_code(entry))
}

/// What is known about the code at an address.
#[derive(Debug)]
pub enum Lookup {
    Module(&'static Module),
    /// No module lies there.
    Nothing,
    /// Not known now: another thread is taking a module in.
    Busy,
}

/// The module at an address; takes it in when it is new.
pub fn find_or_take_in(address: u64) -> Lookup {
    if let Some(module) = find(address) {
        return Lookup::Module(module);
    }
    let Some(found) = find_object(address) else {
        return Lookup::Nothing;
    };
    if BUSY.swap(true, Ordering::Acquire) {
        return Lookup::Busy;
    }
    // Another thread may have taken it in between.
    let module = find(address).or_else(|| take_in_object(&found));
    BUSY.store(false, Ordering::Release);
    module.map_or(Lookup::Nothing, Lookup::Module)
}

/// Looks whether the known modules are still what lies at their addresses, and begins a new epoch
/// when one is not. About 50 ns a module.
#[cold]
pub fn revalidate() {
    if FIND_OBJECT.load(Ordering::Relaxed) == 0 || BUSY.swap(true, Ordering::Acquire) {
        return;
    }
    DIRTY.store(false, Ordering::Relaxed);
    for place in &PLACES[..COUNT.load(Ordering::Acquire).min(MAX_MODULES)] {
        if place.end.load(Ordering::Relaxed) == 0 {
            continue;
        }
        // SAFETY: a published module is never freed.
        let Some(module) = (unsafe { place.module.load(Ordering::Acquire).as_ref() }) else {
            continue;
        };
        if !is_still_there(module) {
            retire(place, module);
        }
    }
    BUSY.store(false, Ordering::Release);
}

/// Calls `report` for what came or went since the last call: the module, and for those gone the first
/// epoch without it. The flag is true when there may be something: one load.
pub fn report_changes(mut report: impl FnMut(&'static Module, Option<u32>)) {
    if !PENDING.load(Ordering::Relaxed) || !PENDING.swap(false, Ordering::AcqRel) {
        return;
    }
    for place in &PLACES[..COUNT.load(Ordering::Acquire).min(MAX_MODULES)] {
        // SAFETY: a published module is never freed.
        let Some(module) = (unsafe { place.module.load(Ordering::Acquire).as_ref() }) else {
            continue;
        };
        if module.announced.fetch_or(ANNOUNCED, Ordering::Relaxed) & ANNOUNCED == 0 {
            report(module, None);
        }
        let gone = module.gone.load(Ordering::Acquire);
        if gone != 0
            && module.announced.fetch_or(ANNOUNCED_GONE, Ordering::Relaxed) & ANNOUNCED_GONE == 0
        {
            report(module, Some(gone));
        }
    }
}

/// Asks the dynamic linker which object lies at an address.
fn find_object(address: u64) -> Option<FoundObject> {
    let function = FIND_OBJECT.load(Ordering::Relaxed);
    if function == 0 {
        return None;
    }
    // SAFETY: the address is that of glibc's `_dl_find_object`, whose type this is (dlfcn.h).
    let function: extern "C" fn(*mut c_void, *mut FoundObject) -> c_int =
        unsafe { core::mem::transmute(function) };
    let mut found = FoundObject {
        flags: 0,
        map_start: core::ptr::null_mut(),
        map_end: core::ptr::null_mut(),
        link_map: core::ptr::null_mut(),
        eh_frame: core::ptr::null_mut(),
        reserved: [0; 7],
    };
    (function(address as *mut c_void, &mut found) == 0).then_some(found)
}

/// Whether a module is what the dynamic linker has at its address.
fn is_still_there(module: &Module) -> bool {
    let Some(found) = find_object(module.text.0) else {
        return false;
    };
    if found.link_map as u64 != module.link_map {
        return false;
    }
    // Another library can come to lie at the same place under a link map at the same place.
    let (headers, count) = module.headers;
    let image = elf::image(&mut read_safely, headers, count);
    image.is_some_and(|image| {
        let (id, length) = elf::build_id(&mut read_safely, &image, module.bias);
        id[..length] == *module.build_id()
            && image.text_start.wrapping_add(module.bias) == module.text.0
            && image.text_end.wrapping_add(module.bias) == module.text.1
    })
}

/// Begins an epoch without a module.
fn retire(place: &Place, module: &Module) {
    place.end.store(0, Ordering::Release);
    // The epoch rises after the module is out of the table: no rule of the new epoch is made from it.
    let epoch = EPOCH.fetch_add(1, Ordering::AcqRel) + 1;
    module.gone.store(epoch, Ordering::Release);
    native::module_went();
    PENDING.store(true, Ordering::Release);
}

/// Takes in what `find_object` found. The caller holds `BUSY`.
fn take_in_object(found: &FoundObject) -> Option<&'static Module> {
    // SAFETY: the dynamic linker keeps the link map of an object whose code is on a stack.
    let (bias, name) = unsafe { ((*found.link_map).address, (*found.link_map).name) };
    let headers = headers(found, bias)?;
    let name = if name.is_null() {
        c""
    } else {
        // SAFETY: `l_name` is a NUL-terminated text, alive as long as the link map.
        unsafe { CStr::from_ptr(name) }
    };
    take_in(bias, headers, name, found.link_map as u64)
}

/// Where the program headers of an object lie, and how many there are. The range that was found
/// begins with the ELF header, except in objects with holes between their segments: there it is
/// only the segment.
fn headers(found: &FoundObject, bias: u64) -> Option<(u64, usize)> {
    // SAFETY: reads the auxiliary vector.
    let (program, count) = unsafe {
        (
            libc::getauxval(libc::AT_PHDR),
            libc::getauxval(libc::AT_PHNUM),
        )
    };
    if find_object(program).is_some_and(|p| p.link_map == found.link_map) {
        return Some((program, count as usize));
    }
    elf::program_headers(&mut read_safely, found.map_start as u64)
        .or_else(|| elf::program_headers(&mut read_safely, bias))
}

/// Builds and publishes a module.
fn take_in(
    bias: u64,
    headers: (u64, usize),
    name: &CStr,
    link_map: u64,
) -> Option<&'static Module> {
    let image = elf::image(&mut read_safely, headers.0, headers.1)?;
    let start = image.start.wrapping_add(bias);
    let end = image.end.wrapping_add(bias);
    let index = COUNT.load(Ordering::Relaxed);
    let place = PLACES.get(index)?;
    // Whatever was known there before is gone, noticed or not.
    for old in &PLACES[..index] {
        if old.start.load(Ordering::Relaxed) < end && start < old.end.load(Ordering::Relaxed) {
            // SAFETY: a published module is never freed.
            if let Some(module) = unsafe { old.module.load(Ordering::Acquire).as_ref() } {
                retire(old, module);
            }
        }
    }
    let (build_id, build_id_bytes) = elf::build_id(&mut read_safely, &image, bias);
    let path = path(name, start);
    let module = Module {
        start,
        end,
        bias,
        text: (
            image.text_start.wrapping_add(bias),
            image.text_end.wrapping_add(bias),
        ),
        tables: tables(&image, bias, path),
        path,
        build_id,
        build_id_bytes,
        headers,
        link_map,
        epoch: epoch(),
        gone: AtomicU32::new(0),
        announced: AtomicU32::new(0),
    };
    let memory = ARENA.take(size_of::<Module>())?.cast::<Module>();
    // SAFETY: the arena gave fresh memory, aligned to 16, of this size.
    unsafe { memory.write(module) };
    place.module.store(memory, Ordering::Release);
    place.start.store(start, Ordering::Relaxed);
    place.end.store(end, Ordering::Release);
    COUNT.store(index + 1, Ordering::Release);
    native::module_came();
    PENDING.store(true, Ordering::Release);
    // SAFETY: just written, never freed.
    Some(unsafe { &*memory })
}

/// The path under which a module's file can be opened.
fn path(name: &CStr, start: u64) -> &'static CStr {
    let bytes = name.to_bytes();
    if is_vdso(start) || bytes.starts_with(b"linux-vdso") {
        return c"[vdso]";
    }
    if !bytes.is_empty() {
        return ARENA.copy(bytes).unwrap_or(c"");
    }
    // The program itself has no name in the dynamic linker's list.
    let Some(memory) = ARENA.take(MAX_PATH) else {
        return c"";
    };
    // SAFETY: fresh zeroed memory of that size.
    let buffer = unsafe { core::slice::from_raw_parts_mut(memory, MAX_PATH) };
    let _ = sys::read_link(c"/proc/self/exe", &mut buffer[..MAX_PATH - 1]);
    CStr::from_bytes_until_nul(buffer).unwrap_or(c"")
}

fn is_vdso(start: u64) -> bool {
    // SAFETY: reads the auxiliary vector; takes no lock.
    unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) == start }
}

/// The unwind tables of an image: mapped from its file, or copied from memory.
fn tables(image: &Image, bias: u64, path: &CStr) -> Option<Tables<'static>> {
    if image.eh_frame_header == 0 {
        return None;
    }
    let segment = image.tables;
    let bytes = map_tables(image, bias, path).or_else(|| {
        let size = segment.memory_bytes;
        let from = segment.address.wrapping_add(bias);
        if size > MAX_COPY {
            return None;
        }
        let copy = os::map_memory(size as usize);
        if copy.is_null() {
            return None;
        }
        // SAFETY: just mapped, that many bytes, used by nobody else.
        let copy = unsafe { core::slice::from_raw_parts_mut(copy, size as usize) };
        read_safely(from, copy).then_some(&*copy)
    })?;
    let at = |address: u64| -> Option<Section<'static>> {
        let offset = usize::try_from(address.checked_sub(segment.address)?).ok()?;
        Some(Section {
            bytes: bytes.get(offset..)?,
            address: address.wrapping_add(bias),
        })
    };
    let header = at(image.eh_frame_header)?;
    let frames = crate::unwind::cfi::frames_address(&header)?;
    Some(Tables {
        header,
        frames: at(frames.wrapping_sub(bias))?,
    })
}

/// Maps the segment with the tables from the module's file, if that file is still the one that was
/// loaded: the whole `.eh_frame_hdr` prefix must equal what lies in memory.
fn map_tables(image: &Image, bias: u64, path: &CStr) -> Option<&'static [u8]> {
    if !path.to_bytes().starts_with(b"/") {
        return None;
    }
    let segment = image.tables;
    // Pages are at most 64 KB (arm64).
    let skew = segment.file_offset % (64 << 10);
    let bytes = usize::try_from(segment.file_bytes + skew).ok()?;
    let mapped = os::map_file(path, segment.file_offset - skew, bytes)?;
    // SAFETY: a read-only private mapping of that many bytes that lies inside the file.
    let mapped_bytes = unsafe { core::slice::from_raw_parts(mapped, bytes) };
    let tables = &mapped_bytes[skew as usize..];
    let offset = (image.eh_frame_header - segment.address) as usize;
    let mut loaded = [0u8; 512];
    let length = loaded.len().min(tables.len().saturating_sub(offset));
    let from = image.eh_frame_header.wrapping_add(bias);
    if read_safely(from, &mut loaded[..length])
        && tables[offset..offset + length] == loaded[..length]
    {
        return Some(tables);
    }
    // SAFETY: nothing refers to it.
    unsafe { sys::unmap(mapped, bytes) };
    None
}

/// Reads memory that another thread might unmap at this moment. Where the system call is refused,
/// it is read directly: the objects asked for are loaded.
fn read_safely(address: u64, buffer: &mut [u8]) -> bool {
    if CAN_READ.load(Ordering::Relaxed) {
        return os::read_memory(address, buffer);
    }
    // SAFETY: callers pass addresses inside an object that the dynamic linker says is loaded.
    unsafe {
        core::ptr::copy_nonoverlapping(address as *const u8, buffer.as_mut_ptr(), buffer.len());
    }
    true
}

unsafe extern "C" fn look_for_find_object(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    _data: *mut c_void,
) -> c_int {
    // SAFETY: the dynamic linker passes a valid description.
    let info = unsafe { &*info };
    let headers = info.dlpi_phdr as u64;
    let Some(image) = elf::image(&mut read_safely, headers, info.dlpi_phnum as usize) else {
        return 0;
    };
    if image.dynamic == 0 {
        return 0;
    }
    match elf::symbol(
        &mut read_safely,
        image.dynamic,
        info.dlpi_addr,
        b"_dl_find_object",
    ) {
        Some(address) => {
            FIND_OBJECT.store(address as usize, Ordering::Release);
            1
        }
        None => 0,
    }
}

unsafe extern "C" fn take_in_at_start(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    _data: *mut c_void,
) -> c_int {
    // SAFETY: the dynamic linker passes a valid description.
    let info = unsafe { &*info };
    let name = if info.dlpi_name.is_null() {
        c""
    } else {
        // SAFETY: a NUL-terminated text.
        unsafe { CStr::from_ptr(info.dlpi_name) }
    };
    let headers = (info.dlpi_phdr as u64, info.dlpi_phnum as usize);
    take_in(info.dlpi_addr, headers, name, 0);
    0
}

/// Memory for modules and paths: only taken from, by the thread that holds `BUSY`.
struct Arena {
    next: AtomicUsize,
    left: AtomicUsize,
}

static ARENA: Arena = Arena {
    next: AtomicUsize::new(0),
    left: AtomicUsize::new(0),
};

impl Arena {
    const CHUNK: usize = 64 << 10;

    /// Fresh zeroed memory aligned to 16; `None` when there is none. At most `CHUNK` bytes.
    fn take(&self, bytes: usize) -> Option<*mut u8> {
        let bytes = bytes.next_multiple_of(16);
        if bytes > Self::CHUNK {
            return None;
        }
        if self.left.load(Ordering::Relaxed) < bytes {
            let chunk = os::map_memory(Self::CHUNK);
            if chunk.is_null() {
                return None;
            }
            self.next.store(chunk as usize, Ordering::Relaxed);
            self.left.store(Self::CHUNK, Ordering::Relaxed);
        }
        self.left.fetch_sub(bytes, Ordering::Relaxed);
        Some(self.next.fetch_add(bytes, Ordering::Relaxed) as *mut u8)
    }

    /// A copy with a NUL behind it.
    fn copy(&self, bytes: &[u8]) -> Option<&'static CStr> {
        let memory = self.take(bytes.len() + 1)?;
        // SAFETY: fresh zeroed memory of at least that size, written once.
        let copy = unsafe {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), memory, bytes.len());
            core::slice::from_raw_parts(memory, bytes.len() + 1)
        };
        CStr::from_bytes_until_nul(copy).ok()
    }
}
