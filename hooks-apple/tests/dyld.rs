//! dyld's announcements: images that are there, come and go. The loader's file is compiled here a second
//! time, and its functions of dyld are those below, which announce images that the tests have mapped.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use stackbeat_apple::rebind::{Loaded, Rebinder, Replacement, Resolver, list_image, unlist_image};
use stackbeat_core::address::Bias;
use stackbeat_core::agent;
use stackbeat_core::native::image_list::{self, LoadedImage};
use stackbeat_core::probe::Probe;

use crate::linkers::{Linker, OWN, image};
use crate::posix::{function, is_alone, samples, session};
use crate::rebinding::libc_functions;
use crate::truth::truth;
use crate::world::{Mapped, map, read};

#[path = "../src/rebind/loader.rs"]
#[allow(unreachable_pub, reason = "the library has it public")]
mod loader;

type Callback = unsafe extern "C" fn(*const c_void, isize);

/// What is loaded: header, slide and path.
static LOADED: Mutex<Vec<(u64, u64, CString)>> = Mutex::new(Vec::new());
static ADDED: Mutex<Option<Callback>> = Mutex::new(None);
static REMOVED: Mutex<Option<Callback>> = Mutex::new(None);

fn header(of: u64) -> *const c_void {
    core::ptr::with_exposed_provenance(of as usize)
}

fn loaded() -> Vec<(u64, u64, CString)> {
    LOADED.lock().expect("not poisoned").clone()
}

/// As mach-o/dyld.h has it: once for each image that is there, and for each that comes.
#[unsafe(no_mangle)]
unsafe extern "C" fn _dyld_register_func_for_add_image(callback: Callback) {
    *ADDED.lock().expect("not poisoned") = Some(callback);
    for (at, slide, _) in loaded() {
        // SAFETY: the loader's function, and an image that is mapped.
        unsafe { callback(header(at), slide as isize) };
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _dyld_register_func_for_remove_image(callback: Callback) {
    *REMOVED.lock().expect("not poisoned") = Some(callback);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _dyld_image_count() -> u32 {
    loaded().len() as u32
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _dyld_get_image_header(index: u32) -> *const c_void {
    header(loaded()[index as usize].0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _dyld_get_image_vmaddr_slide(index: u32) -> isize {
    loaded()[index as usize].1 as isize
}

/// Knows the mapped images by their headers, and leaves the rest to glibc.
#[unsafe(no_mangle)]
unsafe extern "C" fn dladdr(address: *const c_void, info: *mut libc::Dl_info) -> c_int {
    static PATHS: Mutex<Vec<&'static CStr>> = Mutex::new(Vec::new());
    if let Some((_, _, path)) = loaded()
        .iter()
        .find(|image| image.0 == address.addr() as u64)
    {
        let mut paths = PATHS.lock().expect("not poisoned");
        let known = paths.iter().find(|known| **known == path.as_c_str());
        let path = known.copied().unwrap_or_else(|| {
            let kept: &'static CStr = Box::leak(path.clone().into_boxed_c_str());
            paths.push(kept);
            kept
        });
        // SAFETY: by contract of the call.
        unsafe {
            (*info).dli_fbase = address.cast_mut();
            (*info).dli_fname = path.as_ptr();
        }
        return 1;
    }
    // SAFETY: glibc's function of this name has this type.
    unsafe {
        type Real = unsafe extern "C" fn(*const c_void, *mut libc::Dl_info) -> c_int;
        let real = libc::dlsym(libc::RTLD_NEXT, c"dladdr".as_ptr());
        core::mem::transmute::<*mut c_void, Real>(real)(address, info)
    }
}

/// Maps an image, as dyld does before it announces it.
fn map_image(linker: Linker) -> (Mapped, PathBuf) {
    let path = image(linker, OWN);
    let mapped = map(&read(&path), &truth(&path), &libc_functions(), false);
    add(mapped.loaded, &path);
    (mapped, path)
}

fn add(image: Loaded, path: &Path) {
    let path = CString::new(path.as_os_str().as_bytes()).expect("no NUL");
    LOADED
        .lock()
        .expect("not poisoned")
        .push((image.header, image.slide.0, path));
}

fn announce(of: &Mutex<Option<Callback>>, image: Loaded) {
    let callback = of.lock().expect("not poisoned").expect("registered");
    // SAFETY: the loader's function, and an image that is mapped.
    unsafe { callback(header(image.header), image.slide.0 as isize) };
}

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static MALLOC: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

unsafe extern "C" fn hook(bytes: usize) -> *mut c_void {
    ALLOCATED.fetch_add(1, Ordering::SeqCst);
    // SAFETY: the function that was found by its name.
    unsafe {
        type Malloc = unsafe extern "C" fn(usize) -> *mut c_void;
        core::mem::transmute::<*mut c_void, Malloc>(MALLOC.load(Ordering::Relaxed))(bytes)
    }
}

/// How often the hook runs in a call of the image's.
fn hooked(image: &Mapped) -> usize {
    ALLOCATED.store(0, Ordering::SeqCst);
    // SAFETY: functions of `image.c`.
    unsafe {
        type Malloc = extern "C" fn(usize) -> *mut c_void;
        let block = function::<Malloc>(image, "call_malloc")(24);
        assert!(!block.is_null());
        libc::free(block);
    }
    ALLOCATED.load(Ordering::SeqCst)
}

/// What the list of images has said so far: header, file, whether it is gone.
type Known = Vec<(u64, Vec<u8>, bool)>;

/// Which of these are in the list of images, with their files.
fn listed(known: &mut Known, images: &[&(Mapped, PathBuf)]) -> Vec<bool> {
    image_list::report_changes(&mut |image: &LoadedImage, _, gone: Option<u32>| {
        known.push((image.start, image.path.to_vec(), gone.is_some()));
    });
    let of = |(mapped, path): &&(Mapped, PathBuf)| {
        let name = path.as_os_str().as_bytes();
        let mut it = known.iter().filter(|image| image.0 == mapped.loaded.header);
        it.next_back()
            .is_some_and(|(_, path, is_gone)| path == name && !is_gone)
    };
    images.iter().map(of).collect()
}

#[test]
fn images_get_hooks_when_they_come_and_are_left_alone_when_they_go() {
    if !is_alone("dyld::images_get_hooks_when_they_come_and_are_left_alone_when_they_go") {
        return;
    }
    let (mapping, known) = (&session(), &mut Known::new());
    agent::thread_started(None, agent::Creator::UNKNOWN);
    let replacements = [Replacement {
        name: "malloc",
        hook: hook as *const c_void,
        original: &MALLOC,
    }];
    // There before.
    let first = map_image(Linker::LldChains);
    let second = map_image(Linker::LldOpcodes);
    assert_eq!([hooked(&first.0), hooked(&second.0)], [0, 0]);
    // SAFETY: the hook calls its original, and stays.
    let rebinder = unsafe { loader::install(&replacements) };
    assert_eq!([hooked(&first.0), hooked(&second.0)], [1, 1]);
    assert!(rebinder.missing().is_empty());
    assert!(samples(mapping, Probe::LibraryLoad).is_empty());
    // Once more changes nothing.
    let slots = rebinder.count();
    // SAFETY: as above.
    unsafe { loader::install(&replacements) };
    assert_eq!(rebinder.count(), slots);

    // One that is loaded later, by whoever.
    let later = map_image(Linker::Zig);
    assert_eq!(hooked(&later.0), 0);
    announce(&ADDED, later.0.loaded);
    assert_eq!(hooked(&later.0), 1);
    let seen = samples(mapping, Probe::LibraryLoad);
    let seen: Vec<_> = seen
        .iter()
        .map(|sample| sample.arg.map(|arg| arg.0))
        .collect();
    assert_eq!(seen, [Some(later.0.loaded.header)]);
    assert_eq!(listed(known, &[&first, &second, &later]), [true; 3]);

    // The own image keeps its calls, and one that is none of Mach-O's has none.
    assert_eq!(loader::incomplete_images(), 0);
    let mut own = core::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: fills the structure.
    let own = unsafe {
        assert_eq!(dladdr(hook as *const c_void, own.as_mut_ptr()), 1);
        own.assume_init().dli_fbase.expose_provenance() as u64
    };
    let at = |header| Loaded {
        header,
        slide: Bias(0),
    };
    add(at(own), Path::new("own"));
    announce(&ADDED, at(own));
    assert_eq!(loader::incomplete_images(), 0);
    let nothing = Box::leak(Box::new([0u64; 16]));
    let nothing = at((&raw const *nothing).expose_provenance() as u64);
    add(nothing, Path::new("nothing"));
    announce(&ADDED, nothing);
    assert_eq!(loader::incomplete_images(), 1);

    // What is unloaded is not touched any more.
    announce(&REMOVED, later.0.loaded);
    LOADED
        .lock()
        .expect("not poisoned")
        .retain(|image| ![later.0.loaded.header, own, nothing.header].contains(&image.0));
    let slots = later.0.slots();
    // SAFETY: no thread loads images.
    assert_eq!(unsafe { loader::unpatch() }, 0);
    assert_eq!(later.0.slots(), slots);
    assert_eq!([hooked(&first.0), hooked(&second.0)], [0, 0]);
    assert_eq!(
        listed(known, &[&first, &second, &later]),
        [true, true, false]
    );

    // Between sessions images come as they are; the next session finds them.
    let between = map_image(Linker::Zig);
    announce(&ADDED, between.0.loaded);
    assert_eq!(hooked(&between.0), 0);
    // SAFETY: as above.
    unsafe { loader::install(&replacements) };
    let all = [&first, &second, &between].map(|image| hooked(&image.0));
    assert_eq!((all, loader::incomplete_images()), ([1; 3], 0));
    // SAFETY: as above.
    assert_eq!(unsafe { loader::unpatch() }, 0);
}
