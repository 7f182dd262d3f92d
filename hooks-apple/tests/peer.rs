//! fishhook as a peer: it rebinds a second copy of each image, whose slots are compared with those of ours.
//!
//! - The crate (0.3.0): its module for macOS as it is, built for Linux (`fishhook/`), and given the image by
//!   a stand-in for dyld.
//! - The C original, of which it is a translation: compiled for macOS, linked, mapped into this process and
//!   called. It is loaded from GitHub, which not every machine can reach, so that test is asked for: `--
//!   --ignored peer`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, c_char, c_int, c_void};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::null_mut;

use stackbeat_apple::macho::Image;
use stackbeat_apple::rebind::Rebinder;

use crate::linkers::{LINKERS, OWN, folder, image, lld, run, zig};
use crate::posix::function;
use crate::rebinding::{NAMES, hooks, no_functions, replacements};
use crate::truth::truth;
use crate::world::{Functions, Libraries, Mapped, map, read};

/// fishhook.h.
#[repr(C)]
struct Rebinding {
    name: *const c_char,
    replacement: *mut c_void,
    replaced: *mut *mut c_void,
}

fn build() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("a workspace");
    let sources = root.join("target/fishhook");
    run(Command::new(root.join("scripts/install-fishhook.sh"))
        .arg(&sources)
        .arg("original"));
    let (object, library) = (folder().join("fishhook.o"), folder().join("fishhook.dylib"));
    let target = format!("{}-macos.11.0", OWN.1);
    run(zig()
        .args([
            "cc",
            "-target",
            &target,
            "-c",
            "-O1",
            "-fno-stack-protector",
            "-DFISHHOOK_EXPORT",
            "-o",
        ])
        .args([&object, &sources.join("fishhook.c")]));
    run(Command::new(lld())
        .args([
            "-flavor",
            "darwin",
            "-arch",
            OWN.0,
            "-dylib",
            "-undefined",
            "dynamic_lookup",
        ])
        .args(["-platform_version", "macos", "11.0", "14.0", "-o"])
        .args([&library, &object]));
    library
}

unsafe extern "C" fn dladdr(_: *const c_void, _: *mut c_void) -> c_int {
    1
}

/// Pages of 4 KiB become writable.
unsafe extern "C" fn vm_protect(_: u32, address: usize, bytes: usize, _: c_int, _: c_int) -> c_int {
    let begin = address & !4095;
    let pages = std::ptr::with_exposed_provenance_mut(begin);
    // SAFETY: pages of a mapped image.
    unsafe {
        libc::mprotect(
            pages,
            address + bytes - begin,
            libc::PROT_READ | libc::PROT_WRITE,
        )
    }
}

static TASK_SELF: u32 = 1;

fn world() -> Functions {
    let all: [(&'static str, *const c_void); 7] = [
        ("malloc", libc::malloc as *const c_void),
        ("free", libc::free as *const c_void),
        ("memcpy", libc::memcpy as *const c_void),
        ("strcmp", libc::strcmp as *const c_void),
        ("dladdr", dladdr as *const c_void),
        ("vm_protect", vm_protect as *const c_void),
        ("mach_task_self_", (&raw const TASK_SELF).cast()),
    ];
    all.map(|(name, at)| (name, at.expose_provenance() as u64))
        .into()
}

/// Slots that hold a hook, by its name.
fn hooked(image: &Mapped) -> BTreeSet<(u64, &'static str)> {
    let names: BTreeMap<u64, &str> = hooks().into_iter().map(|(name, at)| (at, name)).collect();
    let slots = image.slots().into_iter();
    slots
        .filter_map(|(slot, holds)| Some((slot, *names.get(&holds)?)))
        .collect()
}

/// Whether a slot is one that calls pass, not a pointer in data.
fn is_call(image: &Image, slot: u64) -> bool {
    let mut sections = image.pointers.iter();
    sections.any(|section| (section.address..section.address + section.bytes).contains(&slot))
}

#[test]
#[ignore = "loads fishhook from GitHub"]
fn slots_are_those_of_fishhook_and_pointers_in_data() {
    let path = build();
    let fishhook = map(&read(&path), &truth(&path), &world(), false);
    // SAFETY: the function of fishhook.h.
    let rebind = unsafe {
        type Rebind = extern "C" fn(*mut c_void, isize, *const Rebinding, usize) -> c_int;
        function::<Rebind>(&fishhook, "rebind_symbols_image")
    };
    let (functions, hooks) = (no_functions(), hooks());
    let libraries = Libraries(functions.clone());
    for linker in LINKERS {
        let path = image(linker, OWN);
        let truth = truth(&path);
        let [ours, theirs] = [0, 1].map(|_| map(&read(&path), &truth, &functions, false));
        let rebinder = Rebinder::new(&replacements(&hooks), &libraries);
        // SAFETY: a mapped image whose code is not called.
        let report =
            unsafe { rebinder.add_image(ours.loaded, || File::open(&path).ok(), &libraries) };
        report.expect("an image");

        let names = NAMES.map(|name| CString::new(name).expect("no NUL"));
        let rebindings: Vec<Rebinding> = (names.iter().zip(NAMES))
            .map(|(name, of)| Rebinding {
                name: name.as_ptr(),
                replacement: std::ptr::with_exposed_provenance_mut(hooks[of] as usize),
                replaced: null_mut(),
            })
            .collect();
        let header = std::ptr::with_exposed_provenance_mut(theirs.loaded.header as usize);
        let slide = theirs.loaded.slide.0 as isize;
        assert_eq!(
            rebind(header, slide, rebindings.as_ptr(), rebindings.len()),
            0
        );

        let (ours, theirs) = (hooked(&ours), hooked(&theirs));
        assert!(theirs.len() >= 4, "{linker:?}: {theirs:x?}");
        // What it does not know: pointers that the program has in its data.
        let image = Image::read(&read(&path)).expect("an image");
        let (calls, in_data): (BTreeSet<_>, BTreeSet<_>) = ours
            .into_iter()
            .partition(|(slot, _)| is_call(&image, *slot));
        assert_eq!(calls, theirs, "{linker:?}");
        assert!(in_data.len() >= 4, "{linker:?}: {in_data:x?}");
    }
}

/// The crate, built for this machine.
#[cfg(target_arch = "x86_64")]
type Rebind = unsafe extern "C" fn(usize, usize, usize, *const *const c_char, *const usize, usize);

#[cfg(target_arch = "x86_64")]
fn load_crate() -> Rebind {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("a workspace");
    let folder = root.join("target/fishhook");
    run(Command::new(root.join("scripts/install-fishhook.sh"))
        .arg(&folder)
        .arg("crate"));
    let library = folder.join("libfishhook_peer.so");
    let library = CString::new(library.as_os_str().as_encoded_bytes()).expect("no NUL");
    // SAFETY: its initializers do nothing; the function has this type (`fishhook/peer.rs`).
    unsafe {
        let handle = libc::dlopen(library.as_ptr(), libc::RTLD_NOW);
        assert!(!handle.is_null(), "{library:?}");
        let rebind = libc::dlsym(handle, c"rebind".as_ptr());
        assert!(!rebind.is_null());
        std::mem::transmute::<*mut c_void, Rebind>(rebind)
    }
}

/// Where it works: near addresses, and a section whose names begin the table.
#[test]
#[cfg(target_arch = "x86_64")]
fn the_crate_finds_some_of_the_calls_and_takes_some_for_others() {
    let rebind = load_crate();
    let (functions, hooks) = (no_functions(), hooks());
    let libraries = Libraries(functions.clone());
    let names = NAMES.map(|name| CString::new(name).expect("no NUL"));
    let names = names.each_ref().map(|name| name.as_ptr());
    let addresses = NAMES.map(|name| hooks[name] as usize);
    let by_crate = |image: &Mapped| {
        let (begin, bytes) = image.range();
        // SAFETY: a mapped image whose code is not called.
        unsafe {
            rebind(
                begin,
                bytes,
                image.loaded.slide.0 as usize,
                names.as_ptr(),
                addresses.as_ptr(),
                names.len(),
            );
        }
        hooked(image)
    };
    for linker in LINKERS {
        let path = image(linker, OWN);
        let truth = truth(&path);
        let far = map(&read(&path), &truth, &functions, false);
        let near = crate::world::map_low(&read(&path), &truth, &functions);
        let ours = map(&read(&path), &truth, &functions, false);
        let rebinder = Rebinder::new(&replacements(&hooks), &libraries);
        // SAFETY: a mapped image whose code is not called.
        let report =
            unsafe { rebinder.add_image(ours.loaded, || File::open(&path).ok(), &libraries) };
        report.expect("an image");
        let ours = hooked(&ours);
        // It cuts the slide to 32 bits.
        assert!(by_crate(&far).is_empty(), "{linker:?}");
        let before = near.protections();
        let theirs = by_crate(&near);
        // What it made writable stays so.
        assert_ne!(near.protections(), before, "{linker:?}");
        let image = Image::read(&read(&path)).expect("an image");
        assert!(theirs.iter().all(|(slot, _)| is_call(&image, *slot)));
        let (right, wrong): (BTreeSet<_>, BTreeSet<_>) =
            theirs.iter().partition(|found| ours.contains(found));
        let calls = ours.iter().filter(|(slot, _)| is_call(&image, *slot));
        match linker {
            // One section of pointers.
            crate::linkers::Linker::LldChains => {
                assert!(wrong.is_empty() && calls.eq(&right), "{theirs:x?}")
            }
            // It reads the names of each section from the begin of the table.
            _ => assert!(!wrong.is_empty() && calls.count() >= 4, "{theirs:x?}"),
        }
    }
}
