//! Call chains in C, C++ and assembly, compiled in many ways, loaded and unloaded again.

use std::cell::RefCell;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use stackbeat_core::native::own_modules;
use stackbeat_core::native::own_walk::NativeWalker;
use stackbeat_core::unwind::{Registers, StackBounds, WalkEnd};

use super::in_process::{Comparison, bounds, compare};

/// What the callback found in one run of a library's chains.
struct Run {
    walker: Box<NativeWalker>,
    bounds: StackBounds,
    comparisons: Vec<Comparison>,
}

thread_local! {
    static RUN: RefCell<Option<Run>> = const { RefCell::new(None) };
}

extern "C" fn look() {
    RUN.with_borrow_mut(|run| {
        let run = run.as_mut().expect("a run is under way");
        let comparison = compare(&mut run.walker, &run.bounds);
        run.comparisons.push(comparison);
    });
}

/// Compiles a source of this folder into a library of its own name.
fn compile(folder: &Path, source: &str, flags: &[&str]) -> PathBuf {
    let library = folder.join(format!("{source}{}.so", flags.concat()));
    let compiler = if source.ends_with(".cc") {
        "g++"
    } else {
        "gcc"
    };
    let status = Command::new(compiler)
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .args(flags)
        .arg(
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("tests/unwind")
                .join(source),
        )
        .status()
        .expect("a C compiler is installed");
    assert!(status.success(), "{source} with {flags:?} does not compile");
    library
}

/// Loads a library, runs its chains with a walker, unloads it.
fn run(library: &Path, walker: Box<NativeWalker>) -> (Box<NativeWalker>, Vec<Comparison>) {
    let name = CString::new(library.to_str().expect("a plain path")).expect("no NUL");
    RUN.set(Some(Run {
        walker,
        bounds: bounds(),
        comparisons: Vec::new(),
    }));
    // SAFETY: the library is ours, and `run_chains` has this type.
    unsafe {
        let handle = libc::dlopen(name.as_ptr(), libc::RTLD_NOW);
        assert!(!handle.is_null(), "{library:?} does not load");
        let function = libc::dlsym(handle, c"run_chains".as_ptr());
        assert!(!function.is_null());
        let function: extern "C-unwind" fn(extern "C" fn()) = core::mem::transmute(function);
        function(look);
        own_modules::unloading_begins();
        libc::dlclose(handle);
        own_modules::unloading_ends();
    }
    let run = RUN.take().expect("it was put there");
    (run.walker, run.comparisons)
}

/// Walks that ended early because another test's thread was taking a module in and did not get on.
static GIVEN_UP: AtomicUsize = AtomicUsize::new(0);

fn assert_equal(comparisons: &[Comparison], what: &str) {
    for (i, c) in comparisons.iter().enumerate() {
        if c.end == WalkEnd::Unsupported && GIVEN_UP.fetch_add(1, Relaxed) < 20 {
            assert_eq!(c.ours, c.libgcc[..c.ours.len()], "{what}, look {i}");
            continue;
        }
        assert_eq!(c.end, WalkEnd::Root, "{what}, look {i}: {c:x?}");
        assert_eq!(c.ours, c.libgcc, "{what}, look {i}: kept {}", c.kept);
        assert!(!c.guessed, "{what}, look {i}: {c:x?}");
    }
}

#[test]
fn chains_equal_libgcc() {
    let _only = super::LIBRARIES.lock();
    own_modules::init();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut walker = NativeWalker::boxed();
    let mut kept = 0;
    let mut total = 0;
    for source in ["chains.c", "chains.cc"] {
        for optimization in ["-O0", "-O1", "-O2", "-O3", "-Os"] {
            for frame_pointer in ["-fomit-frame-pointer", "-fno-omit-frame-pointer"] {
                let flags = [optimization, frame_pointer];
                let library = compile(folder.path(), source, &flags);
                for _ in 0..2 {
                    let comparisons;
                    (walker, comparisons) = run(&library, walker);
                    let least = if source == "chains.c" { 20 } else { 10 };
                    assert!(comparisons.len() >= least, "{}", comparisons.len());
                    assert_equal(&comparisons, &format!("{source} {flags:?}"));
                    kept += comparisons.iter().map(|c| c.kept).sum::<usize>();
                    total += comparisons.iter().map(|c| c.ours.len()).sum::<usize>();
                }
            }
        }
    }
    // The test would say nothing about reuse if there were none.
    assert!(kept > total / 4, "{kept} of {total} frames were reused");
}

/// Code comes to lie where a thread has asked for rules when there was none: the walk that finds it first
/// goes on through all of it.
#[test]
fn code_that_comes_where_none_was_is_walked_through() {
    let _only = super::LIBRARIES.lock();
    own_modules::init();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let library = compile(folder.path(), "chains.c", &["-O2", "-fomit-frame-pointer"]);
    let (mut walker, first) = run(&library, NativeWalker::boxed());
    let deepest = first.iter().max_by_key(|c| c.ours.len()).expect("some");
    let words = [0u64; 64];
    let low = words.as_ptr() as u64;
    // SAFETY: the words outlive the bounds.
    let nothing = unsafe { StackBounds::of_stack(low, low + size_of_val(&words) as u64) };
    // All but the library's innermost frame, which is to be the one that finds the module.
    let innermost = deepest.ours.iter().position(|pc| is_gone(*pc));
    for pc in &deepest.ours[innermost.expect("a frame of the library") + 1..] {
        let registers = Registers {
            pc: *pc,
            sp: low,
            ..Registers::here()
        };
        walker.walk_stack(&registers, &nothing, false, 4);
    }
    let (_, second) = run(&library, walker);
    assert_equal(&second, "second");
}

/// Whether no module lies there, as the dynamic linker says.
fn is_gone(pc: u64) -> bool {
    // SAFETY: pointers may be null; looks for an address.
    unsafe {
        let mut info: libc::Dl_info = core::mem::zeroed();
        libc::dladdr(pc as *const libc::c_void, &mut info) == 0
    }
}

/// A library that goes is reported once, with the epoch that begins without it.
#[test]
fn unloading_begins_an_epoch() {
    let _only = super::LIBRARIES.lock();
    own_modules::init();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let library = compile(folder.path(), "chains.cc", &["-O2", "-DUNLOADED"]);
    let before = own_modules::epoch();
    let (mut walker, first) = run(&library, NativeWalker::boxed());
    // A walk while it is gone: if nothing else comes to its place, it might never have been away.
    compare(&mut walker, &bounds());
    let (mut walker, second) = run(&library, walker);
    assert!(
        own_modules::epoch() > before,
        "the first unloading was noticed"
    );
    assert_equal(&first, "first");
    assert_equal(&second, "second");
    compare(&mut walker, &bounds());
    let mut reports = Vec::new();
    let name = library.to_str().expect("a plain path");
    own_modules::report_changes(|module, gone| {
        if module.path() == name.as_bytes() {
            assert!(gone.is_none_or(|epoch| epoch > module.epoch && epoch <= own_modules::epoch()));
            assert_eq!(module.build_id().len(), 20);
            reports.push(gone.is_some());
        }
    });
    assert_eq!(reports, [false, true, false, true]);
}

/// More loads than the table of modules has places, and none costs another mapping.
#[test]
fn a_library_may_come_back_many_times() {
    let _only = super::LIBRARIES.lock();
    own_modules::init();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let source = folder.path().join("small.c");
    std::fs::write(&source, "void run_chains(void (*f)(void)) { f(); f(); }").expect("writable");
    let library = folder.path().join("small.so");
    let flags = ["-O1", "-shared", "-fPIC", "-Wl,--build-id", "-o"];
    let status = Command::new("gcc")
        .args(flags)
        .arg(&library)
        .arg(&source)
        .status();
    assert!(status.is_ok_and(|s| s.success()));
    let mappings = || {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("it can be read");
        maps.lines()
            .filter(|line| line.ends_with("small.so"))
            .count()
    };
    let mut walker = NativeWalker::boxed();
    for round in 0..4500 {
        let comparisons;
        (walker, comparisons) = run(&library, walker);
        assert_equal(&comparisons, &format!("round {round}"));
        own_modules::report_changes(|_, _| {});
    }
    assert!(mappings() <= 2, "{} mappings stay", mappings());
}
