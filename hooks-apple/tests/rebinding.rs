//! Rebinding in mapped images: every slot compared with another reader's, x86-64 code called.

use core::ffi::{c_int, c_long, c_void};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;

use stackbeat_apple::macho::{Image, InFile, indirect_slots, slots};
use stackbeat_apple::rebind::{Rebinder, Replacement, Report, list_image, unlist_image};
use stackbeat_core::native::image_list::{self, LoadedImage};

use crate::linkers::{ARCHITECTURES, LINKERS, Linker, OWN, image};
use crate::truth::{Truth, truth};
use crate::world::{Functions, Libraries, Mapped, map, read};

/// What is rebound. `read` is what the images' libraries have; the last one they do not have.
pub(crate) const NAMES: [&str; 5] = ["malloc", "free", "read", "pthread_mutex_lock", "arc4random"];

pub(crate) fn wanted(name: &[u8]) -> Option<usize> {
    NAMES
        .iter()
        .position(|wanted| name.strip_prefix(b"_") == Some(wanted.as_bytes()))
}

/// Addresses that nobody calls.
pub(crate) fn no_functions() -> Functions {
    let names = [
        "malloc",
        "free",
        "read",
        "pthread_mutex_lock",
        "pthread_mutex_unlock",
    ];
    names.into_iter().zip((0x10_0000..).step_by(64)).collect()
}

#[test]
fn slots_are_those_that_another_reader_finds() {
    for linker in LINKERS {
        for architecture in ARCHITECTURES {
            let path = image(linker, architecture);
            let file = read(&path);
            let image = Image::read(&file).expect("an image");
            let source = InFile(&file);
            let found = slots(&image, &source, Some(&source), &wanted).expect("slots");
            assert!(!found.without_data);
            let found: BTreeSet<_> = (found.slots.iter())
                .map(|slot| (slot.address, NAMES[slot.symbol], slot.addend, slot.library))
                .collect();
            let truth = truth(&path);
            let expected: BTreeSet<_> = (truth.binds.iter())
                .filter_map(|bind| {
                    let symbol = wanted(bind.name.as_bytes())?;
                    Some((bind.address, NAMES[symbol], bind.addend, bind.library))
                })
                .collect();
            assert_eq!(found, expected, "{path:?}");
            // Calls of four functions, five pointers in data.
            assert!(found.len() >= 9, "{path:?}: {found:?}");

            // Without the file: the same, less what is in data.
            let calls = indirect_slots(&image, &source, &wanted).expect("slots");
            let calls: BTreeSet<_> = calls.slots.iter().map(|slot| slot.address).collect();
            let sections = image.pointers.iter();
            let sections: Vec<_> = sections.map(|s| s.address..s.address + s.bytes).collect();
            let expected: BTreeSet<_> = (expected.iter().map(|slot| slot.0))
                .filter(|address| sections.iter().any(|range| range.contains(address)))
                .collect();
            assert_eq!(calls, expected, "{path:?}");
            assert!(calls.len() >= 4, "{path:?}: {calls:?}");
        }
    }
}

/// Hooks that nobody calls.
pub(crate) fn hooks() -> Functions {
    NAMES.into_iter().zip((0x20_0000..).step_by(64)).collect()
}

/// Where originals are put, one each.
fn originals() -> &'static [AtomicPtr<c_void>; NAMES.len()] {
    Box::leak(Box::default())
}

pub(crate) fn replacements(hooks: &Functions) -> Vec<Replacement> {
    let all = NAMES.iter().zip(originals());
    all.map(|(name, original)| Replacement {
        name,
        hook: core::ptr::with_exposed_provenance(hooks[name] as usize),
        original,
    })
    .collect()
}

/// What the slots must hold once hooks are there.
fn expected(mapped: &Mapped, truth: &Truth, hooks: &Functions) -> BTreeMap<u64, u64> {
    let mut slots = mapped.slots();
    for bind in &truth.binds {
        let name = bind.name.trim_start_matches('_');
        if let Some(hook) = hooks.get(name).filter(|_| bind.addend == 0) {
            slots.insert(bind.address, *hook);
        }
    }
    slots
}

#[test]
fn every_slot_of_mapped_images_is_rebound_and_restored() {
    let functions = no_functions();
    let hooks = hooks();
    let world = Libraries(functions.clone());
    for linker in LINKERS {
        for architecture in ARCHITECTURES {
            let path = image(linker, architecture);
            let truth = truth(&path);
            // An image that is bound, and another one whose lazy slots are not.
            let mapped = [false, true].map(|lazily| map(&read(&path), &truth, &functions, lazily));
            let rebinder = Rebinder::new(&replacements(&hooks), &world);
            assert_eq!(rebinder.missing(), ["arc4random"]);
            let before = mapped.each_ref().map(Mapped::slots);
            let contents = mapped.each_ref().map(Mapped::contents);
            let protections = mapped.each_ref().map(Mapped::protections);
            assert!(protections[0].values().any(|p| p == "r--p") && protections[0].len() > 4);
            let mut rebound = 0;
            for (mapped, before) in mapped.iter().zip(&before) {
                let expected = expected(mapped, &truth, &hooks);
                // SAFETY: a mapped image whose code is not called.
                let report =
                    unsafe { rebinder.add_image(mapped.loaded, || File::open(&path).ok(), &world) };
                let report = report.expect("an image");
                let unusual = report.unusual;
                rebound += report.rebound;
                let changed = expected
                    .iter()
                    .filter(|(at, value)| before[*at] != **value)
                    .count();
                let all = Report {
                    rebound: changed,
                    unusual,
                    ..Report::default()
                };
                assert_eq!(report, all, "{path:?}");
                assert_eq!(mapped.slots(), expected, "{path:?}");
                // Once more changes nothing.
                // SAFETY: as above.
                let again =
                    unsafe { rebinder.add_image(mapped.loaded, || File::open(&path).ok(), &world) };
                assert_eq!(again, Ok(report));
            }
            assert_eq!(rebinder.count(), rebound);
            assert_eq!(
                mapped.each_ref().map(Mapped::protections),
                protections,
                "{path:?}"
            );
            // SAFETY: the images are mapped.
            assert_eq!(unsafe { rebinder.restore() }, 0);
            assert_eq!(mapped.each_ref().map(Mapped::protections), protections);
            assert_eq!(mapped[0].contents(), contents[0], "{path:?}");
            // Lazy slots are bound by now.
            assert_eq!(mapped[1].slots(), {
                let mut slots = before[1].clone();
                for bind in truth.binds.iter().filter(|bind| bind.is_lazy) {
                    if NAMES.contains(&bind.name.trim_start_matches('_')) {
                        slots.insert(bind.address, before[0][&bind.address]);
                    }
                }
                slots
            });
        }
    }
}

#[test]
fn a_slot_that_holds_something_else_stays() {
    let path = image(Linker::LldChains, ARCHITECTURES[0]);
    let truth = truth(&path);
    let functions = no_functions();
    let hooks = hooks();
    // This image has its `read` from another library.
    let mut elsewhere = functions.clone();
    elsewhere.insert("read", 0x30_0000);
    let mapped = map(&read(&path), &truth, &elsewhere, false);
    let world = Libraries(functions.clone());
    let rebinder = Rebinder::new(&replacements(&hooks), &world);
    // SAFETY: a mapped image whose code is not called.
    let report = unsafe { rebinder.add_image(mapped.loaded, || File::open(&path).ok(), &world) };
    assert_eq!(report.expect("an image").elsewhere, 1);
    assert!(mapped.slots().values().any(|value| *value == 0x30_0000));

    // Without its file, pointers in data are not found, and that is said.
    let other = map(&read(&path), &truth, &functions, false);
    // SAFETY: as above.
    let report = unsafe { rebinder.add_image(other.loaded, || None::<File>, &world) };
    let report = report.expect("an image");
    assert!(report.without_data && report.rebound == 4, "{report:?}");
    // A file of another image is none.
    let not_ours = image(Linker::LldChains, ARCHITECTURES[1]);
    // SAFETY: as above.
    let report = unsafe { rebinder.add_image(other.loaded, || File::open(&not_ours).ok(), &world) };
    assert!(report.expect("an image").without_data);

    // An image that is unloaded is not touched any more.
    let slots = other.slots();
    rebinder.remove_image(other.loaded.header);
    // SAFETY: the other image is mapped.
    assert_eq!(unsafe { rebinder.restore() }, 0);
    assert_eq!(other.slots(), slots);
    assert!(
        mapped
            .slots()
            .values()
            .all(|value| !hooks.values().any(|hook| hook == value))
    );
}

/// What the hooks have seen.
static MALLOCS: AtomicUsize = AtomicUsize::new(0);
static READS: AtomicUsize = AtomicUsize::new(0);
static LOCKS: AtomicUsize = AtomicUsize::new(0);
static FREES: AtomicUsize = AtomicUsize::new(0);
static REAL_MALLOC: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static REAL_READ: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static REAL_LOCK: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static REAL_FREE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

macro_rules! hook {
    ($name:ident($($argument:ident: $type:ty),*) -> $result:ty = $original:ident, $count:ident) => {
        extern "C" fn $name($($argument: $type),*) -> $result {
            $count.fetch_add(1, Ordering::Relaxed);
            // SAFETY: the function that was found by this name; the caller's arguments.
            unsafe {
                let original = core::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> $result>(
                    $original.load(Ordering::Relaxed),
                );
                original($($argument),*)
            }
        }
    };
}
hook!(hook_malloc(bytes: usize) -> *mut c_void = REAL_MALLOC, MALLOCS);
hook!(hook_read(file: c_int, buffer: *mut c_void, bytes: usize) -> isize = REAL_READ, READS);
hook!(hook_lock(lock: *mut c_void) -> c_int = REAL_LOCK, LOCKS);
hook!(hook_free(block: *mut c_void) -> () = REAL_FREE, FREES);

/// libc's functions, under the names that the image imports.
pub(crate) fn libc_functions() -> Functions {
    Functions::from([
        ("malloc", libc::malloc as *const () as u64),
        ("free", libc::free as *const () as u64),
        ("read", libc::read as *const () as u64),
        (
            "pthread_mutex_lock",
            libc::pthread_mutex_lock as *const () as u64,
        ),
        (
            "pthread_mutex_unlock",
            libc::pthread_mutex_unlock as *const () as u64,
        ),
    ])
}

/// Calls each function of the image, checks what it gives, and gives the counts of what hooks have seen.
fn call_all(mapped: &Mapped) -> [usize; 4] {
    // SAFETY: functions of `image.c`, with their signatures.
    unsafe {
        type Allocate = extern "C" fn(usize) -> *mut c_void;
        let malloc: Allocate = core::mem::transmute(mapped.function("call_malloc"));
        let by_pointer: Allocate = core::mem::transmute(mapped.function("call_malloc_by_pointer"));
        let free: extern "C" fn(*mut c_void) -> c_int =
            core::mem::transmute(mapped.function("call_free_compares"));
        let read: extern "C" fn(c_int, *mut c_void, usize) -> c_long =
            core::mem::transmute(mapped.function("call_read"));
        let lock: extern "C" fn(*mut c_void) -> c_int =
            core::mem::transmute(mapped.function("call_lock"));
        let lock_by_pointer: extern "C" fn(*mut c_void) -> c_int =
            core::mem::transmute(mapped.function("call_lock_by_pointer"));
        let number: extern "C" fn() -> c_int = core::mem::transmute(mapped.function("call_number"));

        assert_eq!(number(), 42);
        for allocate in [malloc, by_pointer] {
            let block = allocate(100);
            assert!(!block.is_null());
            // The program's comparison of a pointer in data with the function, whatever both are.
            assert_eq!(free(block), 1);
        }
        let mut buffer = [0u8; 16];
        let zeros = File::open("/dev/zero").expect("there");
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&zeros);
        assert_eq!(read(descriptor, buffer.as_mut_ptr().cast(), 16), 16);
        assert_eq!(read(-1, buffer.as_mut_ptr().cast(), 16), -1);
        let mut mutex = libc::PTHREAD_MUTEX_INITIALIZER;
        assert_eq!(lock((&raw mut mutex).cast()), 0);
        assert_eq!(lock_by_pointer((&raw mut mutex).cast()), 0);
        libc::pthread_mutex_unlock(&raw mut mutex);
    }
    [&MALLOCS, &FREES, &READS, &LOCKS].map(|count| count.swap(0, Ordering::Relaxed))
}

#[test]
fn code_of_an_image_calls_hooks_until_they_are_taken_out() {
    let functions = libc_functions();
    let world = Libraries(functions.clone());
    let hooks: [(_, *const (), _); 4] = [
        ("malloc", hook_malloc as *const (), &REAL_MALLOC),
        ("read", hook_read as *const (), &REAL_READ),
        ("pthread_mutex_lock", hook_lock as *const (), &REAL_LOCK),
        ("free", hook_free as *const (), &REAL_FREE),
    ];
    let replacements = hooks.map(|(name, hook, original)| Replacement {
        name,
        hook: hook.cast(),
        original,
    });
    for linker in LINKERS {
        let path = image(linker, OWN);
        let mapped = map(&read(&path), &truth(&path), &functions, false);
        assert_eq!(call_all(&mapped), [0; 4], "{linker:?}");
        let rebinder = Rebinder::new(&replacements, &world);
        // SAFETY: a mapped image; the hooks call the originals.
        let report =
            unsafe { rebinder.add_image(mapped.loaded, || File::open(&path).ok(), &world) };
        assert!(!report.expect("an image").without_data);
        assert_eq!(call_all(&mapped), [2, 2, 2, 2], "{linker:?}");
        // SAFETY: the image is mapped.
        assert_eq!(unsafe { rebinder.restore() }, 0);
        assert_eq!(call_all(&mapped), [0; 4], "{linker:?}");
    }
}

#[test]
fn threads_call_while_hooks_come_and_go() {
    let path = image(Linker::LldChains, OWN);
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    hook!(hook_it(file: c_int, buffer: *mut c_void, bytes: usize) -> isize = REAL, SEEN);
    let functions = libc_functions();
    let world = Libraries(functions.clone());
    let mapped = &map(&read(&path), &truth(&path), &functions, false);
    let replacement = Replacement {
        name: "read",
        hook: hook_it as *const c_void,
        original: &REAL,
    };
    let rebinder = &Rebinder::new(&[replacement], &world);
    let function = mapped.function("call_read").expose_provenance();
    let calls = &AtomicUsize::new(0);
    let is_over = &AtomicUsize::new(0);
    /// Ends the threads, also where an assertion fails.
    struct End<'a>(&'a AtomicUsize);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(1, Ordering::Relaxed);
        }
    }
    std::thread::scope(|scope| {
        let _end = End(is_over);
        for _ in 0..2 {
            scope.spawn(move || {
                // SAFETY: the function of `image.c`.
                let read: extern "C" fn(c_int, *mut c_void, usize) -> c_long =
                    unsafe { core::mem::transmute(function) };
                while is_over.load(Ordering::Relaxed) == 0 {
                    assert_eq!(read(-1, core::ptr::null_mut(), 0), -1);
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // Until the threads have met both many times.
        let mut rounds = 0;
        while rounds < 200 || SEEN.load(Ordering::Relaxed) < 1_000 {
            // SAFETY: a mapped image; the hook calls the original and stays.
            let report =
                unsafe { rebinder.add_image(mapped.loaded, || File::open(&path).ok(), &world) };
            assert_eq!(report.map(|report| report.rebound), Ok(1));
            // SAFETY: the image is mapped.
            assert_eq!(unsafe { rebinder.restore() }, 0);
            rounds += 1;
        }
    });
    assert!(SEEN.load(Ordering::Relaxed) <= calls.load(Ordering::Relaxed));
}

#[test]
fn images_are_listed_with_range_file_and_uuid() {
    for linker in LINKERS {
        let path = image(linker, OWN);
        let truth = truth(&path);
        let mapped = map(&read(&path), &truth, &no_functions(), false);
        let name = path.as_os_str().as_encoded_bytes();
        // What is listed twice is there once.
        for _ in 0..2 {
            list_image(mapped.loaded, name).expect("an image");
        }
        let mut reports = Vec::new();
        let mut see = |image: &LoadedImage, epoch: u32, gone: Option<u32>| {
            if image.start == mapped.loaded.header {
                let uuid: String = image
                    .uuid
                    .iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect();
                assert_eq!((&*image.path, image.slide), (name, mapped.loaded.slide));
                let code = mapped.function("call_malloc").addr() as u64;
                assert!((image.start..image.end).contains(&code));
                reports.push((uuid, epoch, gone));
            }
        };
        image_list::report_changes(&mut see);
        image_list::report_changes(&mut see);
        let epoch = image_list::epoch();
        unlist_image(mapped.loaded);
        image_list::report_changes(&mut see);
        assert_eq!(image_list::epoch(), epoch + 1);
        let of = |gone| (truth.uuid.clone(), epoch, gone);
        assert_eq!(reports, [of(None), of(Some(epoch + 1))]);
        // LLVM's linker and Zig's both give one.
        assert_eq!(truth.uuid.len(), 32, "{linker:?}");
    }
}
