//! Puts hooks into the slots of loaded images, and the originals back.
//!
//! - [`Rebinder`]: what is rebound, in which images, and what was there before;
//! - `memory`: reads and writes the process's memory, and changes its protection;
//! - `signing`: signs pointers for arm64e;
//! - `loader`: dyld's announcements of images (Apple's systems only).
//!
//! # Rules
//!
//! - A slot is changed only while it holds the function that the hook calls as its original. Two libraries
//!   may define one name, and dyld binds each image to one of them. A hook with one original would give some
//!   images another function.
//! - A slot is changed by one compare-and-exchange. A thread that calls through it calls the original or the
//!   hook.
//! - A page that was read-only is so again afterwards. Between, this process can write to it.
//! - Pointers that the program has copied stay as they are.
//!
//! # Locks
//!
//! dyld calls with its own lock held, and one lock here is taken inside. With that lock held nothing calls
//! dyld.
//!
//! The crate `fishhook` (0.3.0) is not used: it does not build for iOS, it reads each section's names from
//! the begin of the indirect symbol table, it cuts the slide to 32 bits, it looks for `__LINKEDIT` at the
//! file's offset from the header, it leaves pages writable, knows no pointers in data, and puts no original
//! back.

#[cfg(target_vendor = "apple")]
pub mod loader;
mod memory;
mod signing;

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use stackbeat_core::address::{Bias, Svma};
use stackbeat_core::native::image_list;

use crate::macho::{
    Image, ImageError, InMemory, Slot, SlotKind, Source, commands_length, slice_of_file, slots,
};

pub use memory::Process;

/// A hook for a function.
#[derive(Clone, Copy, Debug)]
pub struct Replacement {
    /// The function's name in C.
    pub name: &'static str,
    /// What is called instead. It has the same signature.
    pub hook: *const c_void,
    /// Where the hook finds the function itself.
    pub original: &'static AtomicPtr<c_void>,
}

// SAFETY: addresses of functions and of statics.
unsafe impl Send for Replacement {}
// SAFETY: as above.
unsafe impl Sync for Replacement {}

/// How names become addresses.
pub trait Resolver {
    /// The function of a name, as the program as a whole sees it.
    fn by_name(&self, name: &str) -> Option<u64>;
    /// The function of a name in a library by its install name, if that is loaded.
    fn in_library(&self, library: &[u8], name: &str) -> Option<u64>;
}

/// An image in this process.
#[derive(Clone, Copy, Debug)]
pub struct Loaded {
    /// Where its header is.
    pub header: u64,
    /// What is added to its addresses.
    pub slide: Bias,
}

/// What became of the slots of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// They hold hooks.
    pub rebound: usize,
    /// They hold another function of the same name, or what another library has put there.
    pub elsewhere: usize,
    /// They hold signed pointers, which this build cannot sign.
    pub signed: usize,
    /// They hold a function's address with something added, or lie across two words.
    pub unusual: usize,
    /// Their pages could not be made writable.
    pub protected: usize,
    /// Pointers in data may be missing, because the image's file could not be used.
    pub without_data: bool,
}

/// What a slot held before.
struct Changed {
    name: &'static str,
    header: u64,
    slot: u64,
    is_read_only: bool,
    original: u64,
    hook: u64,
}

/// Hooks, and where they are.
pub struct Rebinder {
    replacements: Vec<Replacement>,
    missing: Vec<&'static str>,
    changed: Mutex<Vec<Changed>>,
}

impl Rebinder {
    /// Looks up the originals. What the system does not have is left out: see [`Rebinder::missing`].
    pub fn new(replacements: &[Replacement], resolver: &impl Resolver) -> Rebinder {
        let mut missing = Vec::new();
        let mut present = Vec::new();
        for replacement in replacements {
            let Some(original) = resolver.by_name(replacement.name) else {
                missing.push(replacement.name);
                continue;
            };
            let original = core::ptr::with_exposed_provenance_mut(original as usize);
            // Before any slot has the hook.
            replacement.original.store(original, Ordering::Release);
            present.push(*replacement);
        }
        Rebinder {
            replacements: present,
            missing,
            changed: Mutex::default(),
        }
    }

    /// Functions that this system does not have.
    pub fn missing(&self) -> &[&'static str] {
        &self.missing
    }

    /// Functions that are called through a hook by now, and those that no image calls.
    pub fn called(&self) -> (Vec<&'static str>, Vec<&'static str>) {
        let changed: BTreeSet<_> = self.changed().iter().map(|entry| entry.name).collect();
        let names = self.replacements.iter().map(|replacement| replacement.name);
        names.partition(|name| changed.contains(name))
    }

    fn changed(&self) -> std::sync::MutexGuard<'_, Vec<Changed>> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the hooks into an image. `open` gives the file that it was loaded from, and is asked only where
    /// that is needed.
    ///
    /// An image of the dyld shared cache has no slots of its own.
    ///
    /// # Safety
    /// The image is loaded, bound, and stays so until [`Rebinder::remove_image`] has returned. Each hook can
    /// stand in for the function of its name, at once and until [`Rebinder::restore`] has returned and no
    /// thread is in a hook any more.
    pub unsafe fn add_image<S: Source>(
        &self,
        loaded: Loaded,
        open: impl FnOnce() -> Option<S>,
        resolver: &impl Resolver,
    ) -> Result<Report, ImageError> {
        let image = read_commands(loaded.header)?;
        if image.is_in_cache {
            return Ok(Report::default());
        }
        let source = InMemory {
            image: &image,
            slide: loaded.slide,
            memory: &Process,
        };
        let of_name = |name: &[u8]| {
            let name = name.strip_prefix(b"_")?;
            let mut all = self.replacements.iter();
            all.position(|replacement| replacement.name.as_bytes() == name)
        };
        let file = if image.has_chains() { open() } else { None };
        // A file that was replaced since is as good as none.
        let file = file
            .as_ref()
            .and_then(|file| slice_of_file(file, &image).ok());
        let found = slots(&image, &source, file.as_ref(), &of_name)?;
        let mut report = Report {
            without_data: found.without_data,
            ..Report::default()
        };
        // Asks dyld, so before the lock.
        let resolved: Vec<bool> = (found.slots.iter())
            .map(|slot| self.is_resolved_so(&image, slot, resolver))
            .collect();
        let mut changed = self.changed();
        for (slot, is_resolved_so) in found.slots.iter().zip(resolved) {
            let Some(replacement) = self.replacements.get(slot.symbol) else {
                continue;
            };
            // SAFETY: the caller's promise; the slot is one of the image's.
            let entry = unsafe { put(&image, loaded, slot, replacement, is_resolved_so) };
            match entry {
                Ok(entry) => {
                    report.rebound += 1;
                    changed.push(entry);
                }
                Err(Refused::Elsewhere) => report.elsewhere += 1,
                Err(Refused::AlreadyThere) => report.rebound += 1,
                Err(Refused::Signed) => report.signed += 1,
                Err(Refused::Unusual) => report.unusual += 1,
                Err(Refused::Protected) => report.protected += 1,
            }
        }
        Ok(report)
    }

    /// Whether a lazy slot that is not bound yet will be bound to the original.
    fn is_resolved_so(&self, image: &Image, slot: &Slot, resolver: &impl Resolver) -> bool {
        if slot.kind != SlotKind::Lazy {
            return false;
        }
        let Some(replacement) = self.replacements.get(slot.symbol) else {
            return false;
        };
        let library = usize::try_from(slot.library).ok();
        let library = library.and_then(|ordinal| image.libraries.get(ordinal.checked_sub(1)?));
        let address = match library {
            Some(library) => resolver.in_library(library, replacement.name),
            None => resolver.by_name(replacement.name),
        };
        address == Some(original_of(replacement))
    }

    /// Forgets an image that is about to be unloaded.
    pub fn remove_image(&self, header: u64) {
        self.changed().retain(|entry| entry.header != header);
    }

    /// Puts the originals back. Gives the number of slots that hold something else than a hook by now: who
    /// has put that there may call the hook.
    ///
    /// # Safety
    /// The images of [`Rebinder::add_image`] are loaded, except those that were removed.
    pub unsafe fn restore(&self) -> usize {
        let mut changed = self.changed();
        // In what fails the hook stays, and so does its entry.
        changed.retain(|entry| {
            // SAFETY: a slot of an image that is loaded.
            let result = unsafe {
                memory::exchange(entry.slot, entry.hook, entry.original, entry.is_read_only)
            };
            result.is_err()
        });
        changed.len()
    }

    /// How many slots hold hooks.
    pub fn count(&self) -> usize {
        self.changed().len()
    }
}

/// Why a slot stays as it is.
enum Refused {
    Elsewhere,
    AlreadyThere,
    Signed,
    Unusual,
    Protected,
}

fn original_of(replacement: &Replacement) -> u64 {
    replacement
        .original
        .load(Ordering::Acquire)
        .expose_provenance() as u64
}

/// # Safety
/// That of [`Rebinder::add_image`].
unsafe fn put(
    image: &Image,
    loaded: Loaded,
    slot: &Slot,
    replacement: &Replacement,
    is_resolved_so: bool,
) -> Result<Changed, Refused> {
    let address = loaded.slide.in_process(Svma(slot.address));
    if slot.addend != 0 || !address.is_multiple_of(8) {
        return Err(Refused::Unusual);
    }
    let signed = |pointer: u64| match slot.authentication {
        None => Ok(pointer),
        Some(how) => signing::sign(pointer, address, how).ok_or(Refused::Signed),
    };
    let original = signed(original_of(replacement))?;
    let hook = signed(replacement.hook.expose_provenance() as u64)?;
    let segment = image.segment_of_slot(slot.address);
    let is_read_only = segment.is_some_and(|segment| segment.is_read_only_later);
    let holds = memory::word(address).ok_or(Refused::Protected)?;
    let is_unbound = is_resolved_so && is_helper(image, loaded.slide.in_file(holds));
    if holds == hook {
        return Err(Refused::AlreadyThere);
    }
    if holds != original && !is_unbound {
        return Err(Refused::Elsewhere);
    }
    // SAFETY: a slot of a loaded image.
    match unsafe { memory::exchange(address, holds, hook, is_read_only) } {
        Ok(()) => {}
        Err(memory::Failed::Protected) => return Err(Refused::Protected),
        // Bound just now.
        Err(memory::Failed::Other) => return Err(Refused::Elsewhere),
    }
    Ok(Changed {
        name: replacement.name,
        header: loaded.header,
        slot: address,
        is_read_only,
        // Never the helper, which would bind the slot.
        original,
        hook,
    })
}

/// Whether an address is one of the helpers that bind lazy slots.
fn is_helper(image: &Image, address: Svma) -> bool {
    let inside = |(begin, bytes): (u64, u64)| address.bytes_since(Svma(begin)) < bytes;
    image.stub_helper.is_some_and(inside)
}

/// Lists an image that is loaded, for the names of its functions: where its code lies, its file and its UUID.
///
/// # Errors
/// What is wrong with its header.
pub fn list_image(loaded: Loaded, path: &[u8]) -> Result<(), ImageError> {
    let image = read_commands(loaded.header)?;
    let code = image
        .segments
        .iter()
        .find(|segment| segment.name == b"__TEXT");
    if let Some(code) = code {
        let start = loaded.slide.in_process(Svma(code.address));
        let range = (start, start.wrapping_add(code.memory_bytes));
        let uuid = image.uuid.as_ref().map_or(&[][..], |uuid| uuid);
        image_list::add(range, loaded.slide, path, uuid);
    }
    Ok(())
}

/// The opposite, before it is unloaded.
pub fn unlist_image(loaded: Loaded) {
    // The header is where its code begins.
    image_list::remove(loaded.header);
}

/// Header and load commands at an address.
fn read_commands(header: u64) -> Result<Image, ImageError> {
    use crate::macho::Memory;

    let unreadable = |what| ImageError::Unreadable { what, offset: 0 };
    let mut first = [0; 32];
    if !Process.read(header, &mut first) {
        return Err(unreadable("the header"));
    }
    let mut commands = vec![0; commands_length(&first)?];
    if !Process.read(header, &mut commands) {
        return Err(unreadable("the list of load commands"));
    }
    Image::read(&commands)
}
