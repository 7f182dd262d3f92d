//! The bindings beside the real header and the real libraries, from ShadowHook's AAR.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use shadowhook_sys::{DECLARATIONS, ERRNOS, RECORD_ITEMS, VERSION};

/// Where the AAR is unpacked.
fn aar() -> &'static Path {
    static AAR: OnceLock<PathBuf> = OnceLock::new();
    AAR.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let cache = root.join("tests/.cache");
        let script = root.join("scripts/android/fetch-shadowhook.sh");
        let output = Command::new(script).arg(cache).output().unwrap();
        PathBuf::from(text(output).trim())
    })
}

fn text(output: Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn header() -> String {
    std::fs::read_to_string(aar().join("prefab/modules/shadowhook/include/shadowhook.h")).unwrap()
}

/// The names in the header that stand before a parenthesis and are no macros.
fn declared() -> BTreeSet<String> {
    let header = header();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let calls = header.lines().filter(|line| !line.starts_with(['#', ' ']));
    let names = calls.flat_map(|line| {
        line.match_indices('(').map(|(at, _)| {
            line[..at]
                .rsplit(|c| !is_word(c))
                .next()
                .unwrap_or("")
                .to_owned()
        })
    });
    names
        .filter(|name| name.starts_with("shadowhook_"))
        .collect()
}

fn of_bindings() -> BTreeSet<String> {
    DECLARATIONS
        .iter()
        .map(|(name, ..)| (*name).to_owned())
        .collect()
}

#[test]
fn each_function_of_the_header_is_bound_and_no_other() {
    assert!(header().contains(&format!("#define SHADOWHOOK_VERSION \"{VERSION}\"")));
    assert_eq!(of_bindings(), declared());
}

fn c_type(rust: &str) -> &str {
    match rust.replace(' ', "").as_str() {
        "" => "void",
        "*constc_char" => "const char *",
        "*mutc_char" => "char *",
        "*mutc_void" => "void *",
        "*mut*mutc_void" => "void **",
        "c_int" => "int",
        "u32" => "uint32_t",
        "bool" => "bool",
        "Mode" => "shadowhook_mode_t",
        "Option<shadowhook_hooked_t>" => "shadowhook_hooked_t",
        other => panic!("{other} has no C type here"),
    }
}

/// A C compiler says whether the bindings are what the header declares: types, sizes, numbers.
#[test]
fn a_compiler_agrees_with_the_bindings() {
    let folder = tempfile::tempdir().unwrap();
    let mut source = String::from("#include <shadowhook.h>\n");
    for (name, arguments, result) in DECLARATIONS {
        let arguments: Vec<_> = arguments.iter().map(|a| c_type(a)).collect();
        let arguments = match arguments.is_empty() {
            true => "void".to_owned(),
            false => arguments.join(", "),
        };
        let result = c_type(result);
        writeln!(source, "{result} (*p_{name})({arguments}) = {name};").unwrap();
    }
    for (name, value) in ERRNOS.iter().chain(RECORD_ITEMS) {
        writeln!(source, "_Static_assert({name} == {value}, \"{name}\");").unwrap();
    }
    source.push_str(
        "_Static_assert(sizeof(shadowhook_mode_t) == 4 && (shadowhook_mode_t)-1 > 0, \"mode\");\n\
         _Static_assert(SHADOWHOOK_MODE_SHARED == 0 && SHADOWHOOK_MODE_UNIQUE == 1, \"modes\");\n\
         static void hooked(int e, const char *l, const char *s, void *a, void *n, void *o, void *x) {}\n\
         shadowhook_hooked_t p_hooked = hooked;\n",
    );
    let file = folder.path().join("bindings.c");
    std::fs::write(&file, source).unwrap();
    let include = aar().join("prefab/modules/shadowhook/include");
    let output = Command::new("cc")
        .args(["-std=c11", "-Werror", "-c", "-o", "/dev/null", "-I"])
        .args([&include, &file])
        .output()
        .unwrap();
    text(output);
    // All numbers of the header are here.
    let numbers = |prefix| header().matches(&format!("#define {prefix}")).count();
    assert_eq!(numbers("SHADOWHOOK_ERRNO_"), ERRNOS.len());
    assert_eq!(numbers("SHADOWHOOK_RECORD_ITEM_"), RECORD_ITEMS.len());
}

/// The header declares one more than there is.
#[test]
fn the_real_libraries_export_each_function_that_the_bindings_need() {
    let mut needed = of_bindings();
    assert!(needed.remove("shadowhook_get_init_errno"));
    for abi in ["arm64-v8a", "armeabi-v7a"] {
        let library = aar().join(format!("jni/{abi}/libshadowhook.so"));
        let output = Command::new("readelf")
            .args(["-W", "--dyn-syms"])
            .arg(library)
            .output();
        let symbols = text(output.unwrap());
        let exported: BTreeSet<String> = symbols
            .lines()
            .filter(|line| line.contains(" FUNC ") && !line.contains(" UND "))
            .filter_map(|line| Some(line.split_whitespace().last()?.to_owned()))
            .filter(|name| name.starts_with("shadowhook_"))
            .collect();
        assert_eq!(needed, exported, "{abi}");
    }
}

/// The first instructions of each exported function, on arm64.
fn instructions(name: &str) -> Vec<u32> {
    let library = aar().join("jni/arm64-v8a/libshadowhook.so");
    let output = Command::new("readelf")
        .args(["-W", "--dyn-syms"])
        .arg(&library)
        .output();
    let symbols = text(output.unwrap());
    let line = symbols.lines().find(|l| l.ends_with(&format!(" {name}")));
    let address = line.and_then(|l| l.split_whitespace().nth(1)).unwrap();
    // The segment with the code is mapped where it lies in the file.
    let at = usize::from_str_radix(address, 16).unwrap();
    let bytes = std::fs::read(library).unwrap();
    let words = bytes[at..].chunks_exact(4).take(12);
    words
        .map(|w| u32::from_le_bytes(w.try_into().unwrap()))
        .collect()
}

/// Which registers the code reads its arguments from. A function that hands on to a common one adds what that
/// one gets besides, in the first register that its own arguments leave free.
#[test]
fn the_code_takes_arguments_where_the_bindings_put_them() {
    // mov wD, wM or mov xD, xM, for any D.
    let moves = |code: &[u32], from: u32, wide: bool| {
        let pattern = if wide { 0xaa00_03e0 } else { 0x2a00_03e0 };
        code.iter().any(|i| i & !0x1f == pattern | from << 16)
    };
    // mov xD, x30: the caller's address.
    let caller_in = |name, register: u32| {
        assert!(
            instructions(name).contains(&(0xaa1e_03e0 | register)),
            "{name}"
        );
    };
    // Mode and bool are 32-bit, in w0 and w1.
    let init = instructions("shadowhook_init");
    assert!(
        moves(&init, 0, false) && moves(&init, 1, false),
        "{init:x?}"
    );
    // Three pointers, then a flag.
    caller_in("shadowhook_hook_func_addr", 4);
    caller_in("shadowhook_hook_sym_addr", 4);
    // Four pointers, then two that are null here.
    caller_in("shadowhook_hook_sym_name", 6);
    let by_name = instructions("shadowhook_hook_sym_name");
    assert!(by_name.contains(&0xaa1f_03e4) && by_name.contains(&0xaa1f_03e5));
    caller_in("shadowhook_hook_sym_name_callback", 6);
    // tst w0, #1: a bool. cmp w0, #33: the last error number. and w8, w2, #0x3ff: the record items, from w1.
    assert_eq!(instructions("shadowhook_set_debuggable")[0], 0x7200_001f);
    assert_eq!(instructions("shadowhook_to_errmsg")[0], 0x7100_841f);
    assert_eq!(ERRNOS.iter().map(|(_, n)| *n).max(), Some(33));
    let dump = instructions("shadowhook_dump_records");
    assert!(
        moves(&dump, 0, false) && moves(&dump, 1, false),
        "{dump:x?}"
    );
    assert!(dump.contains(&0x1200_2448));
}
