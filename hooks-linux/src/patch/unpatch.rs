//! Takes hooks away from a process that stays in the session: the slots through which its modules call them
//! get the hooks' originals. A hook that only counts costs a nanosecond or two, which is more than a small
//! budget where a program allocates all the time; one that is unpatched costs nothing. The collector asks for
//! it (`Control::unpatched`), and the engine calls [`unpatch`] from a hook (`agent::unpatch_by`).
//!
//! That is anywhere in the program. So unlike [`super`] it may not take the dynamic linker's lock: a thread
//! that holds it could wait for one that the caller holds. It does without by keeping to the modules that the
//! program was started with, which are never unloaded. They are those up to the dynamic linker in the link
//! map; what was loaded later keeps its hooks, and so does code that has read a slot before, or asked
//! `dlsym`.
//!
//! A function's address has to stay what it was: where data of a module holds a hook's, slots that are not
//! for calls alone keep the hook.
//!
//! Only hooks that do nothing but count and capture can go: those of locks, waits and descriptors keep books
//! together.

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, Ordering};

use stackbeat_core::address::{Bias, Svma};
use stackbeat_core::probe::Category;
use stackbeat_core::{agent, platform};

use super::loaded_module::{Module, Target};
use super::writable::{self, SlotsLock, Writable};
use crate::resolve::{self, Dynamic};
use crate::signal;

/// The hooks of `alloc.rs`.
const ALLOCATION: [&CStr; 9] = [
    c"malloc",
    c"calloc",
    c"realloc",
    c"free",
    c"memalign",
    c"aligned_alloc",
    c"posix_memalign",
    c"valloc",
    c"pvalloc",
];

/// `Elf64_Ehdr`.
#[repr(C)]
struct FileHeader {
    magic: [u8; 16],
    kind: u16,
    machine: u16,
    version: u32,
    entry: u64,
    headers_at: u64,
    sections_at: u64,
    flags: u32,
    bytes: u16,
    header_bytes: u16,
    headers: u16,
}

/// The hooks of `ALLOCATION` are to be in no slot.
static ALLOCATION_IS_GONE: AtomicBool = AtomicBool::new(false);

/// A session begins: its hooks may be in all slots until it says otherwise.
pub(crate) fn start() {
    ALLOCATION_IS_GONE.store(false, Ordering::Relaxed);
    agent::unpatch_by(unpatch);
}

/// Whether a hook is not to be put into slots any more. Asked while the caller holds the [`SlotsLock`].
pub(crate) fn is_gone(name: &CStr) -> bool {
    ALLOCATION_IS_GONE.load(Ordering::Relaxed) && ALLOCATION.contains(&name)
}

/// In a forked child: what another thread was at is done here, by the next hook.
pub(crate) fn after_fork() {
    if writable::after_fork() {
        agent::unpatch_by(unpatch);
    }
}

/// Unpatches the hooks of these categories (`Category::bit`), of those that can go. errno stays as it is.
/// False: another thread is changing slots.
fn unpatch(categories: u64) -> bool {
    if categories & Category::Alloc.bit() == 0 {
        return true;
    }
    // SAFETY: errno of the calling thread is always there.
    let errno = unsafe { *libc::__errno_location() };
    // A handler could leave by longjmp, with the lock held, or find the pages of the slots closed behind it.
    let is_done = signal::with_all_blocked(|_| {
        let Some(slots_lock) = SlotsLock::take() else {
            return false;
        };
        ALLOCATION_IS_GONE.store(true, Ordering::Relaxed);
        let for_each_module = |f: &mut dyn FnMut(&Module)| {
            resolve::for_each_at_start(|bias, dynamic, is_program| {
                if let Some(module) = describe(bias, dynamic, is_program) {
                    f(&module);
                }
            });
        };
        let mut in_data = [false; ALLOCATION.len()];
        for_each_module(&mut |module| find_in_data(module, &mut in_data));
        for_each_module(&mut |module| empty(&slots_lock, module, &in_data));
        true
    });
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    is_done
}

/// Where a hook of `ALLOCATION` has its place in there.
fn place(name: &CStr) -> Option<usize> {
    ALLOCATION.iter().position(|known| *known == name)
}

/// Says which hooks the module's data points to: the program may compare those pointers with the function's
/// address.
fn find_in_data(module: &Module, in_data: &mut [bool; ALLOCATION.len()]) {
    module.for_each_pointer(|pointer| {
        if let Some(at) = place(pointer.name) {
            in_data[at] |= pointer.held() == pointer.hook;
        }
    });
}

/// Puts the originals into a module's slots.
fn empty(slots_lock: &SlotsLock, module: &Module, in_data: &[bool; ALLOCATION.len()]) {
    let mut writable = Writable::new(slots_lock, module);
    module.for_each_slot(|slot| {
        let Some(at) = place(slot.name) else { return };
        // What another library stands before us for, an unbound slot would lead to.
        if !slot.is_call && in_data[at] || resolve::stands_before_us(slot.name).is_some() {
            return;
        }
        let Some(original) = Target::original(slot.name, 0) else {
            return;
        };
        let held = slot.held();
        let leads_to_hook =
            held == slot.hook || held != original && module.calls_original(&slot, held);
        if leads_to_hook && writable.make(slot.address) {
            // One that was bound in between holds the hook, and keeps it.
            slot.exchange(held, original);
        }
    });
}

/// A module that was there from the start.
fn describe(bias: Bias, dynamic: *const Dynamic, is_program: bool) -> Option<Module> {
    let (headers, count) = if is_program {
        // SAFETY: reads the auxiliary vector.
        unsafe {
            (
                libc::getauxval(libc::AT_PHDR) as usize,
                libc::getauxval(libc::AT_PHNUM) as usize,
            )
        }
    } else {
        // Libraries are linked to address 0, where the file begins; one that is not may have nothing there.
        let mut bytes = [0u8; size_of::<FileHeader>()];
        let read =
            platform::read_memory(platform::process_id(), bias.in_process(Svma(0)), &mut bytes);
        if read.ok()? != bytes.len() {
            return None;
        }
        // SAFETY: as many bytes, of a type for which all are valid.
        let header: FileHeader = unsafe { core::ptr::read_unaligned(bytes.as_ptr().cast()) };
        let is_elf = header.magic.starts_with(b"\x7fELF")
            && usize::from(header.header_bytes) == size_of::<libc::Elf64_Phdr>();
        let at = usize::try_from(bias.0.checked_add(header.headers_at)?).ok()?;
        is_elf.then_some((at, usize::from(header.headers)))?
    };
    let info = libc::dl_phdr_info {
        dlpi_addr: bias.0,
        dlpi_name: core::ptr::null(),
        dlpi_phdr: headers as *const libc::Elf64_Phdr,
        dlpi_phnum: u16::try_from(count).ok()?,
        dlpi_adds: 0,
        dlpi_subs: 0,
        dlpi_tls_modid: 0,
        dlpi_tls_data: core::ptr::null_mut(),
    };
    // SAFETY: the module's headers, which are loaded with its first segment and stay.
    let module = unsafe { Module::of(&info) };
    module.filter(|m| m.has_dynamic(dynamic))
}
