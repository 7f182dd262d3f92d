//! The ShadowHook backend over a library that stands in for the real one, which is for arm only.

use std::ffi::{CString, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use stackbeat_android::backend::shadowhook::ShadowHook;
use stackbeat_android::backend::{HookBackend, HookError, Request, place_all, remove_all};

use crate::library::{self, Library, code};

/// ShadowHook's header, of its AAR.
fn include() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new(root.join("scripts/android/fetch-shadowhook.sh"))
        .arg(root.join("tests/.cache"))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let folder = String::from_utf8(output.stdout).unwrap();
    PathBuf::from(folder.trim()).join("prefab/modules/shadowhook/include")
}

/// Loads a fake of this behaviour.
fn load(folder: &Path, name: &str, options: &[&str]) -> Result<ShadowHook, HookError> {
    let include = format!("-I{}", include().display());
    let mut all = vec![
        include.as_str(),
        "-std=gnu11",
        "-Wall",
        "-Wextra",
        "-Werror",
    ];
    all.extend(options);
    let library = library::build(folder, name, include_str!("fake_shadowhook.c"), &all);
    let library = CString::new(library.to_str().unwrap()).unwrap();
    // SAFETY: it does nothing when it is loaded.
    unsafe { ShadowHook::load(&library) }
}

const TARGETS: &str = r#"
__asm__(".text\n.globl first\n.p2align 4\nfirst: .fill 16, 1, 0x90\nlea 1(%rdi), %eax\nret\n.p2align 6\n"
        ".globl second\nsecond: .fill 16, 1, 0x90\nlea 2(%rdi), %eax\nret\n.p2align 6\n"
        ".globl other\nother: lea 3(%rdi), %eax\nret\n.skip 64\n");
"#;

type Int = unsafe extern "C" fn(c_int) -> c_int;

static ORIGINAL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

unsafe extern "C" fn thousand_more(a: c_int) -> c_int {
    // SAFETY: the original was set before the hook was there.
    let original: Int = unsafe { std::mem::transmute(ORIGINAL.load(Ordering::Acquire)) };
    // SAFETY: it has this signature.
    unsafe { original(a) + 1000 }
}

#[test]
fn hooks_come_and_go_and_errors_are_said() {
    let folder = tempfile::tempdir().unwrap();
    let hooks = load(folder.path(), "shadowhook", &[]).unwrap();
    let made = Library::open(&library::build(folder.path(), "targets", TARGETS, &[]));
    let request = |name| Request {
        name,
        target: made.address(name),
        size: 0,
        replacement: (thousand_more as *const ()).cast_mut().cast(),
        original: &ORIGINAL,
    };
    let target = made.address("first");
    // SAFETY: it takes and gives an int.
    let first: Int = unsafe { std::mem::transmute(target) };
    let before = code(target);
    let nothing = Request {
        target: ptr::null_mut(),
        ..request("first")
    };
    let all = [
        request("other"),
        nothing,
        request("first"),
        request("first"),
    ];
    // SAFETY: the replacement has the signature of all of them, and the library stays.
    let report = unsafe { place_all(&[&hooks], &all) };
    let said: Vec<String> = report
        .refused
        .iter()
        .map(|(_, why)| why[0].to_string())
        .collect();
    assert_eq!(
        said,
        [
            "shadowhook cannot hook other: its first instructions cannot be moved",
            "shadowhook cannot hook first: its address is not known",
            "shadowhook cannot hook first: it is hooked already; remove that hook first",
        ]
    );
    // SAFETY: as above.
    assert_eq!(unsafe { first(1) }, 1002);
    // SAFETY: as above.
    let errors = unsafe { remove_all(&[&hooks], report.placed) };
    assert_eq!(errors, []);
    // SAFETY: as above.
    assert_eq!((unsafe { first(1) }, code(target)), (2, before));

    // Somebody else's change is not undone.
    // SAFETY: as above.
    let placed = unsafe { hooks.place(&request("second")) }.unwrap();
    let byte = made.address("second").cast::<u8>();
    // SAFETY: the fake has left the page writable, as ShadowHook does.
    unsafe { byte.add(15).write(0xcc) };
    // SAFETY: as above.
    let error = unsafe { hooks.remove(placed) }.unwrap_err();
    assert_eq!(
        error.to_string(),
        "shadowhook cannot hook second: somebody else has changed its code since; remove their hook first"
    );
}

#[test]
fn a_library_that_cannot_be_used_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let error =
        |name, options: &[&str]| load(folder.path(), name, options).unwrap_err().to_string();
    assert_eq!(
        error("no_linker", &["-DINIT_ERROR=12"]),
        "shadowhook cannot be used: its initialization failed with 12: Initialization linker failed"
    );
    assert_eq!(
        error("shared", &["-DPRESET_MODE=0"]),
        "shadowhook cannot be used: the app has initialized it in shared mode; let the app use unique mode"
    );
    assert_eq!(
        error("old", &["-DNO_UNHOOK"]),
        "shadowhook cannot be used: the loaded libshadowhook.so has no shadowhook_unhook; use version 1.0.6"
    );
    // SAFETY: there is none.
    let none = unsafe { ShadowHook::load(c"libnothing_of_this_name.so") }.unwrap_err();
    let none = none.to_string();
    assert!(
        none.contains("cannot be loaded: libnothing_of_this_name.so: cannot open"),
        "{none}"
    );
}
