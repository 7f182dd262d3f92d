//! What the crate says of Apple's headers, against the headers themselves: clang compiles a file of
//! assertions for macOS.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::Command;

use stackbeat_apple::posix::functions;

use crate::linkers::{ARCHITECTURES, folder, programs, run, tools, zig};

/// Constants of the crate that are sizes.
const SIZES: [(&str, &str); 3] = [
    ("HEADER_BYTES", "sizeof(struct mach_header_64)"),
    ("SECTION_BYTES", "sizeof(struct section_64)"),
    ("NLIST_BYTES", "sizeof(struct nlist_64)"),
];

#[test]
fn constants_and_layouts_are_those_of_apples_headers() {
    let source = include_str!("../src/macho/format.rs");
    let mut code = std::fs::read_to_string(programs().join("layouts.c")).expect("readable");
    let mut count = 0;
    for line in source
        .lines()
        .filter_map(|line| line.strip_prefix("pub(super) const "))
    {
        let (name, rest) = line.split_once(": ").expect("a type");
        let (_, value) = rest
            .trim_end_matches(';')
            .split_once(" = ")
            .expect("a value");
        let size = SIZES.iter().find(|(constant, _)| *constant == name);
        let theirs = size.map_or(name, |(_, size)| size);
        // Digits of a number, not the names of others.
        let value = match value.starts_with("0x") && !value.contains(' ') {
            true => value.replace('_', ""),
            false => value.to_owned(),
        };
        writeln!(
            code,
            "_Static_assert((unsigned)({theirs}) == (unsigned)({value}), \"{name}\");"
        )
        .expect("room");
        count += 1;
    }
    assert!(count >= 48, "{count}");
    for (arch, clang_arch) in ARCHITECTURES {
        let path = folder().join(format!("layouts-{arch}.c"));
        std::fs::write(&path, &code).expect("written");
        let target = format!("{clang_arch}-macos.11.0");
        run(zig()
            .args(["cc", "-target", &target, "-c", "-o"])
            .args([&path.with_extension("o"), &path]));
    }
}

/// The C of the sample and of the product that does nothing compiles for macOS.
#[test]
fn c_of_the_sample_and_of_the_package_compiles() {
    let root = programs().join("../../..");
    let sources = [
        (
            "examples/apple/Sources/cooks/cooks.c",
            "examples/apple/Sources/cooks/include",
        ),
        (
            "apple/swift/Sources/CStackbeatNoop/noop.c",
            "apple/swift/Sources/CStackbeatNoop/include",
        ),
        ("hooks-apple/tests/programs/app.c", "apple/include"),
    ];
    for (arch, clang_arch) in ARCHITECTURES {
        for (source, headers) in sources {
            let object = folder().join(format!("sample-{arch}.o"));
            let target = format!("{clang_arch}-macos.11.0");
            run(zig()
                .args([
                    "cc", "-target", &target, "-c", "-fblocks", "-Wall", "-Wextra", "-Werror", "-I",
                ])
                .arg(root.join(headers))
                .arg("-o")
                .args([&object, &root.join(source)]));
        }
    }
}

/// Each function of the table is called as Apple's headers declare it: by which symbol depends on the
/// processor, and on what a program is compiled for.
#[test]
fn symbols_are_those_that_programs_import() {
    let variants = ["-DPLAIN", "-D_DARWIN_C_SOURCE"];
    let mut listed: BTreeSet<_> = functions().iter().map(|function| function.name).collect();
    listed.retain(|name| !name.contains('$'));
    let mut code = std::fs::read_to_string(programs().join("calls.h")).expect("readable");
    let pointers = listed.iter().map(|name| format!("(void *){name}"));
    let pointers = pointers.collect::<Vec<_>>().join(", ");
    writeln!(code, "void *volatile all[] = {{{pointers}}};").expect("room");
    let path = folder().join("calls.c");
    std::fs::write(&path, code).expect("written");
    for (arch, clang_arch) in ARCHITECTURES {
        for variant in variants {
            let object = folder().join(format!("calls-{arch}{variant}.o"));
            let target = format!("{clang_arch}-macos.11.0");
            run(zig()
                .args([
                    "cc",
                    "-target",
                    &target,
                    "-c",
                    variant,
                    "-Wno-deprecated-declarations",
                    "-o",
                ])
                .args([&object, &path]));
            let script = programs().join("undefined.py");
            let said = run(Command::new("python3")
                .arg(script)
                .arg(tools())
                .arg(&object));
            let imported: BTreeSet<_> = said
                .lines()
                .filter_map(|line| line.strip_prefix('_'))
                .collect();
            // The names that the table has there.
            let expected: BTreeSet<String> = listed
                .iter()
                .map(|name| match (*name, arch, variant) {
                    ("select" | "pselect", _, "-D_DARWIN_C_SOURCE") => {
                        format!("{name}$DARWIN_EXTSN")
                    }
                    ("select" | "pselect", "x86_64", _) => format!("{name}$1050"),
                    ("stat" | "lstat" | "fstat" | "fstatat", "x86_64", _) => {
                        format!("{name}$INODE64")
                    }
                    _ => (*name).to_owned(),
                })
                .collect();
            let expected: BTreeSet<_> = expected.iter().map(String::as_str).collect();
            let differ: Vec<_> = imported.symmetric_difference(&expected).collect();
            assert!(differ.is_empty(), "{arch} {variant}: {differ:?}");
        }
    }
}
