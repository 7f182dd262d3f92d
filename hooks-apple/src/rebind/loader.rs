//! dyld: originals by name, and images as they come and go.
//!
//! Source: `mach-o/dyld.h`. The callback for an added image runs for each loaded image during registration,
//! later when an image is bound and before its initializers run; that for a removed one before it is
//! unmapped. Neither can be unregistered.

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use stackbeat_core::address::Bias;
use stackbeat_core::agent;
use stackbeat_core::probe::Probe;

use super::{Loaded, Rebinder, Replacement, Resolver, list_image, unlist_image};

unsafe extern "C" {
    fn _dyld_register_func_for_add_image(
        callback: unsafe extern "C" fn(header: *const c_void, slide: isize),
    );
    fn _dyld_register_func_for_remove_image(
        callback: unsafe extern "C" fn(header: *const c_void, slide: isize),
    );
    fn _dyld_image_count() -> u32;
    fn _dyld_get_image_header(index: u32) -> *const c_void;
    fn _dyld_get_image_vmaddr_slide(index: u32) -> isize;
}

static REBINDER: OnceLock<Rebinder> = OnceLock::new();
static IS_ON: AtomicBool = AtomicBool::new(false);

/// The images that were there at first have been announced.
static IS_INSTALLED: AtomicBool = AtomicBool::new(false);

/// Images whose slots could not be found, or only those of calls.
static INCOMPLETE: AtomicUsize = AtomicUsize::new(0);

/// dyld's own tables.
struct Dyld;

impl Resolver for Dyld {
    fn by_name(&self, name: &str) -> Option<u64> {
        symbol(libc::RTLD_DEFAULT, name)
    }

    fn in_library(&self, library: &[u8], name: &str) -> Option<u64> {
        let library = CString::new(library).ok()?;
        // SAFETY: a name; nothing is loaded.
        let handle = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if handle.is_null() {
            return None;
        }
        let found = symbol(handle, name);
        // SAFETY: opened above; whoever has loaded it keeps it.
        unsafe { libc::dlclose(handle) };
        found
    }
}

fn symbol(handle: *mut c_void, name: &str) -> Option<u64> {
    let name = CString::new(name).ok()?;
    // SAFETY: a handle of dyld's, and a name.
    let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
    Some(address.expose_provenance() as u64).filter(|address| *address != 0)
}

/// The image of an address: header and path.
fn image_of(address: *const c_void) -> Option<(u64, *const c_char)> {
    let mut info = core::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: fills the structure if there is an image.
    unsafe {
        if libc::dladdr(address, info.as_mut_ptr()) == 0 {
            return None;
        }
        let info = info.assume_init();
        Some((info.dli_fbase.expose_provenance() as u64, info.dli_fname))
    }
}

/// Puts the hooks into all images, also into those that are loaded later. While they are there, another call
/// changes nothing.
///
/// # Safety
/// Each hook can stand in for the function of its name, and stays loaded until the process ends: dyld calls
/// back as long. After [`unpatch`]: the same hooks, and no thread loads or unloads images meanwhile.
pub unsafe fn install(replacements: &[Replacement]) -> &'static Rebinder {
    let mut is_first = false;
    let rebinder = REBINDER.get_or_init(|| {
        is_first = true;
        Rebinder::new(replacements, &Dyld)
    });
    if is_first {
        IS_ON.store(true, Ordering::Release);
        // SAFETY: functions of this library, which stays.
        unsafe {
            _dyld_register_func_for_remove_image(removed);
            _dyld_register_func_for_add_image(added);
        }
        IS_INSTALLED.store(true, Ordering::Release);
    } else if !IS_ON.swap(true, Ordering::AcqRel) {
        INCOMPLETE.store(0, Ordering::Relaxed);
        // SAFETY: images that are loaded, and stay so by the contract.
        unsafe {
            for index in 0.._dyld_image_count() {
                added(
                    _dyld_get_image_header(index),
                    _dyld_get_image_vmaddr_slide(index),
                );
            }
        }
    }
    rebinder
}

/// Puts the originals back, and leaves images alone that are loaded later. Gives the number of slots where a
/// hook may still be called from.
///
/// # Safety
/// No thread loads or unloads images meanwhile.
pub unsafe fn unpatch() -> usize {
    IS_ON.store(false, Ordering::Release);
    // SAFETY: images that were unloaded have been removed.
    REBINDER
        .get()
        .map_or(0, |rebinder| unsafe { rebinder.restore() })
}

/// How many images have calls or pointers that are not seen.
pub fn incomplete_images() -> usize {
    INCOMPLETE.load(Ordering::Relaxed)
}

unsafe extern "C" fn added(header: *const c_void, slide: isize) {
    let own = image_of(added as *const c_void);
    let image = image_of(header);
    let (Some(rebinder), Some((_, path))) = (REBINDER.get(), image) else {
        return;
    };
    let address = header.expose_provenance() as u64;
    let loaded = Loaded {
        header: address,
        slide: Bias(slide as u64),
    };
    // SAFETY: dyld's name of an image.
    let path = unsafe { CStr::from_ptr(path) };
    // An image whose header cannot be read has no names.
    let _ = list_image(loaded, path.to_bytes());
    // The own calls go to the originals.
    let is_own = own.is_some_and(|(header, _)| header == address);
    if is_own || !IS_ON.load(Ordering::Acquire) {
        return;
    }
    // Also what comes as a dependency.
    if IS_INSTALLED.load(Ordering::Acquire) {
        agent::hit(Probe::LibraryLoad, address);
    }
    // SAFETY: an image that dyld has bound, until it says otherwise; hooks by the promise at `install`.
    let report = unsafe {
        let path = OsStr::from_bytes(path.to_bytes());
        rebinder.add_image(loaded, || File::open(path).ok(), &Dyld)
    };
    if report.map_or(true, |report| report.without_data || report.signed > 0) {
        INCOMPLETE.fetch_add(1, Ordering::Relaxed);
    }
}

unsafe extern "C" fn removed(header: *const c_void, slide: isize) {
    if let Some(rebinder) = REBINDER.get() {
        let header = header.expose_provenance() as u64;
        rebinder.remove_image(header);
        unlist_image(Loaded {
            header,
            slide: Bias(slide as u64),
        });
    }
}
