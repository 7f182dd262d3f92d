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
//! One thread at a time takes a module in; others that need the same yield to it a few times, and
//! then end their walk, marked.

mod linker;
mod source;

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

pub(crate) use self::linker::set_find_object;
use self::linker::{FoundObject, find_object};
use self::source::ARENA;
use super::{rule_cache, unwind_memory};
use crate::address::{Bias, Svma};
use crate::managed::{self, cpython, ruby};
use crate::platform;
use crate::unwind::cfi::Tables;
use crate::unwind::elf::{self, BUILD_ID_BYTES};

/// How often a thread yields to the one that is taking a module in (some ten microseconds of work)
/// before it gives its own walk up.
const MOST_ATTEMPTS: u32 = 300;
/// Most modules that are told apart, unloaded ones included.
const MAX_MODULES: usize = 4096;

/// One loaded file.
#[derive(Debug)]
pub struct Module {
    /// First address in this process.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Where it is loaded.
    pub bias: Bias,
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

/// `Module::gone` while the new epoch's number is being taken.
const PENDING_EPOCH: u32 = u32::MAX;
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

    /// The tables as they are when it is loaded with another bias.
    fn tables_at(&self, bias: Bias) -> Option<Tables<'static>> {
        let mut tables = self.tables?;
        let moved = bias.0.wrapping_sub(self.bias.0);
        tables.header.address = tables.header.address.wrapping_add(moved);
        tables.frames.address = tables.frames.address.wrapping_add(moved);
        Some(tables)
    }
}

/// A place in the table of modules. The range lies beside the pointer so that a search touches no
/// module; `end` is 0 until the place is filled and after the module has gone.
struct Place {
    start: AtomicU64,
    end: AtomicU64,
    module: AtomicPtr<Module>,
}

impl Place {
    fn module(&self) -> Option<&'static Module> {
        // SAFETY: null or a published module, which is never freed.
        unsafe { self.module.load(Ordering::Acquire).as_ref() }
    }

    /// Whether its module has gone and the epoch says so.
    fn is_reusable(&self) -> bool {
        self.end.load(Ordering::Relaxed) == 0
            && self.module().is_some_and(|module| {
                module.announced.load(Ordering::Relaxed) & ANNOUNCED_GONE != 0
            })
    }
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
/// Held by the thread that takes a module in.
static BUSY: AtomicBool = AtomicBool::new(false);
/// Why to look whether modules are still there.
struct Changes {
    /// Calls under way that may unload something.
    unloading: AtomicU32,
    /// Looks asked for, and the last of them that was done. All threads look until one has finished.
    wanted: AtomicU32,
    done: AtomicU32,
    /// Threads that are taking a module out of the table.
    retiring: AtomicU32,
}

static CHANGES: Changes = Changes {
    unloading: AtomicU32::new(0),
    wanted: AtomicU32::new(0),
    done: AtomicU32::new(0),
    retiring: AtomicU32::new(0),
};
/// Something is to be reported.
static PENDING: AtomicBool = AtomicBool::new(false);
/// Code of the agent library: its frames are left out of stacks.
static OWN_CODE: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
static CAN_READ: AtomicBool = AtomicBool::new(false);

/// The epoch in force.
#[inline(always)]
pub fn epoch() -> u32 {
    EPOCH.load(Ordering::Acquire)
}

/// A library may be unloaded from here on: until `unloading_ends`, every walk looks whether the
/// modules are still there. Another thread can load a library to the same place before `dlclose`
/// has returned.
pub fn unloading_begins() {
    CHANGES.unloading.fetch_add(1, Ordering::AcqRel);
}

/// `dlclose` has returned: look once more before the next walk.
pub fn unloading_ends() {
    CHANGES.wanted.fetch_add(1, Ordering::AcqRel);
    CHANGES.unloading.fetch_sub(1, Ordering::AcqRel);
}

/// Whether a look is due before the next walk.
#[inline(always)]
pub(crate) fn is_dirty() -> bool {
    let done = CHANGES.done.load(Ordering::Acquire);
    CHANGES.wanted.load(Ordering::Acquire) != done || CHANGES.unloading.load(Ordering::Acquire) != 0
}

/// Finds the dynamic linker's lookup function, or takes all modules in when there is none. Runs in
/// the agent's constructor (it takes the dynamic linker's lock); must not run on a hook's path.
pub fn init() {
    CAN_READ.store(unwind_memory::can_read_memory(), Ordering::Relaxed);
    if !linker::look_for_find_object() {
        // SAFETY: the callback has the right type and does not unwind.
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
pub fn own_code() -> (u64, u64) {
    (
        OWN_CODE[0].load(Ordering::Relaxed),
        OWN_CODE[1].load(Ordering::Relaxed),
    )
}

/// Child of fork: another thread may have been at work when the memory was copied, and the child's
/// modules are to be reported anew.
pub fn after_fork() {
    BUSY.store(false, Ordering::Release);
    CHANGES.unloading.store(0, Ordering::Relaxed);
    CHANGES.retiring.store(0, Ordering::Relaxed);
    CHANGES.wanted.fetch_add(1, Ordering::AcqRel);
    forget_reports();
}

/// Another session begins, some time after the last one: nobody watched what was unloaded meanwhile, and
/// modules are to be reported anew.
pub fn begin_anew() {
    CHANGES.wanted.fetch_add(1, Ordering::AcqRel);
    forget_reports();
}

/// Makes `report_changes` report every module that is loaded once more.
pub fn forget_reports() {
    for place in &PLACES[..COUNT.load(Ordering::Acquire).min(MAX_MODULES)] {
        if let Some(module) = place.module() {
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
        let module = place.module();
        // The place may have got another module since.
        module.filter(|module| module.start <= address && address < module.end)
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
    /// The address lies in this module.
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
    let mut attempts_left = MOST_ATTEMPTS;
    while BUSY.swap(true, Ordering::Acquire) {
        attempts_left -= 1;
        if attempts_left == 0 {
            return Lookup::Busy;
        }
        platform::yield_now();
    }
    // Another thread may have taken it in between.
    let module = find(address).or_else(|| take_in_object(&found));
    BUSY.store(false, Ordering::Release);
    module.map_or(Lookup::Nothing, Lookup::Module)
}

/// Looks whether the known modules are still what lies at their addresses, and begins a new epoch
/// when one is not. About 50 ns a module. Several threads may do so at once.
#[cold]
pub fn revalidate() {
    let wanted = CHANGES.wanted.load(Ordering::Acquire);
    if linker::can_find_object() {
        for place in &PLACES[..COUNT.load(Ordering::Acquire).min(MAX_MODULES)] {
            if place.end.load(Ordering::Relaxed) != 0
                && let Some(module) = place.module()
                && !is_still_there(module)
            {
                retire(place, module);
            }
        }
    }
    // Another thread may have emptied a place and not yet have raised the generation.
    if CHANGES.retiring.load(Ordering::Acquire) != 0 {
        rule_cache::module_went();
    }
    CHANGES.done.store(wanted, Ordering::Release);
}

/// Calls `report` for what came or went since the last call: the module, and for those gone the first
/// epoch without it. The flag is true when there may be something: one load.
pub fn report_changes(mut report: impl FnMut(&'static Module, Option<u32>)) {
    if !PENDING.load(Ordering::Relaxed) || !PENDING.swap(false, Ordering::AcqRel) {
        return;
    }
    for place in &PLACES[..COUNT.load(Ordering::Acquire).min(MAX_MODULES)] {
        let Some(module) = place.module() else {
            continue;
        };
        if module.announced.fetch_or(ANNOUNCED, Ordering::Relaxed) & ANNOUNCED == 0 {
            report(module, None);
        }
        let gone = module.gone.load(Ordering::Acquire);
        if gone != 0
            && gone != PENDING_EPOCH
            && module.announced.fetch_or(ANNOUNCED_GONE, Ordering::Relaxed) & ANNOUNCED_GONE == 0
        {
            report(module, Some(gone));
        }
    }
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
            && module.bias.in_process(image.text_start) == module.text.0
            && module.bias.in_process(image.text_end) == module.text.1
    })
}

/// Begins an epoch without a module.
fn retire(place: &Place, module: &Module) {
    let first = module
        .gone
        .compare_exchange(0, PENDING_EPOCH, Ordering::AcqRel, Ordering::Relaxed);
    CHANGES.retiring.fetch_add(1, Ordering::AcqRel);
    // If another module got the place meanwhile and has the same end, it will be taken in again.
    let _ = place
        .end
        .compare_exchange(module.end, 0, Ordering::AcqRel, Ordering::Relaxed);
    // After the module is out of the table: no rule of the new generation is made from it.
    rule_cache::module_went();
    if first.is_ok() {
        let epoch = EPOCH.fetch_add(1, Ordering::AcqRel) + 1;
        module.gone.store(epoch, Ordering::Release);
        PENDING.store(true, Ordering::Release);
    }
    CHANGES.retiring.fetch_sub(1, Ordering::AcqRel);
}

/// Takes in what `find_object` found. The caller holds `BUSY`.
fn take_in_object(found: &FoundObject) -> Option<&'static Module> {
    // SAFETY: the dynamic linker keeps the link map of an object whose code is on a stack.
    let (bias, name) = unsafe { ((*found.link_map).address, (*found.link_map).name) };
    let bias = Bias(bias);
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
fn headers(found: &FoundObject, bias: Bias) -> Option<(u64, usize)> {
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
        .or_else(|| elf::program_headers(&mut read_safely, bias.in_process(Svma(0))))
}

/// Builds and publishes a module.
fn take_in(
    bias: Bias,
    headers: (u64, usize),
    name: &CStr,
    link_map: u64,
) -> Option<&'static Module> {
    let image = elf::image(&mut read_safely, headers.0, headers.1)?;
    let start = bias.in_process(image.start);
    let end = bias.in_process(image.end);
    let count = COUNT.load(Ordering::Relaxed).min(MAX_MODULES);
    // Whatever was known there before is gone, noticed or not.
    for old in &PLACES[..count] {
        if old.start.load(Ordering::Relaxed) < end
            && start < old.end.load(Ordering::Relaxed)
            && let Some(module) = old.module()
        {
            retire(old, module);
        }
    }
    let (build_id, build_id_bytes) = elf::build_id(&mut read_safely, &image, bias);
    let known_before = PLACES[..count]
        .iter()
        .filter_map(Place::module)
        .find(|module| {
            build_id_bytes != 0
                && module.build_id() == &build_id[..build_id_bytes]
                && module.path() == name.to_bytes()
        });
    // A library that comes back keeps its path and its tables.
    let (path, tables) = match known_before {
        Some(module) => (module.path, module.tables_at(bias)),
        None => {
            let path = source::path(name, start);
            (path, source::tables(&image, bias, path))
        }
    };
    let index = PLACES[..count]
        .iter()
        .position(Place::is_reusable)
        .unwrap_or(count);
    let place = PLACES.get(index)?;
    let module = Module {
        start,
        end,
        bias,
        text: (
            bias.in_process(image.text_start),
            bias.in_process(image.text_end),
        ),
        tables,
        path,
        build_id,
        build_id_bytes,
        headers,
        link_map,
        epoch: epoch(),
        gone: AtomicU32::new(0),
        announced: AtomicU32::new(0),
    };
    // While it was read, another thread may have unloaded it, and another library may lie there now.
    if link_map != 0 && find_object(module.text.0).is_none_or(|now| now.link_map as u64 != link_map)
    {
        return None;
    }
    let memory = ARENA.take(size_of::<Module>())?.cast::<Module>();
    // SAFETY: the arena gave fresh memory, aligned to 16, of this size.
    unsafe { memory.write(module) };
    place.module.store(memory, Ordering::Release);
    place.start.store(start, Ordering::Relaxed);
    place.end.store(end, Ordering::Release);
    COUNT.store(count.max(index + 1), Ordering::Release);
    rule_cache::module_came();
    PENDING.store(true, Ordering::Release);
    let text = (
        bias.in_process(image.text_start),
        bias.in_process(image.text_end),
    );
    let managed_module = managed::Module {
        path: path.to_bytes(),
        dynamic: image.dynamic,
        bias,
        text,
        unwind_table: image.eh_frame_header,
    };
    cpython::module_came(&managed_module);
    ruby::module_came(&managed_module);
    if cpython::asyncio::is_looked_for_in(path.to_bytes()) {
        source::with_file(path, |file| {
            cpython::asyncio::module_came(&managed_module, file);
        });
    }
    // SAFETY: just written, never freed.
    Some(unsafe { &*memory })
}

/// Reads memory that another thread might unmap at this moment. Where the system call is refused,
/// it is read directly: the objects asked for are loaded.
fn read_safely(address: u64, buffer: &mut [u8]) -> bool {
    if CAN_READ.load(Ordering::Relaxed) {
        return unwind_memory::read_memory(address, buffer);
    }
    // SAFETY: callers pass addresses inside an object that the dynamic linker says is loaded.
    unsafe {
        core::ptr::copy_nonoverlapping(address as *const u8, buffer.as_mut_ptr(), buffer.len());
    }
    true
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
    take_in(Bias(info.dlpi_addr), headers, name, 0);
    0
}
