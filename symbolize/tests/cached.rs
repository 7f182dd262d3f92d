//! A search for few addresses and one with a cache find what a search for all finds.

use super::*;
use stackbeat_symbolize::{NameSources, SymbolCache};

/// A program of many units, with functions that were inlined into those of others.
fn many_units(directory: &Path, extra: &[&str]) -> PathBuf {
    let out = directory.join("many");
    let mut sources = vec![source("sample.cpp")];
    for i in 0..40 {
        let unit = directory.join(format!("unit{i}.cpp"));
        let code = format!(
            "static inline int twice{i}(int x) {{ return x * {i} + (x >> 3); }}\n\
             namespace unit{i} {{\n\
             __attribute__((noinline)) int outer(int x) {{\n  return twice{i}(x) ^ twice{i}(x / 7);\n}}\n}}\n"
        );
        std::fs::write(&unit, code).unwrap();
        sources.push(text(&unit).to_owned());
    }
    let mut arguments = vec!["-g", "-O2", "-Wl,--build-id", "-o", text(&out)];
    arguments.extend(extra);
    arguments.extend(sources.iter().map(String::as_str));
    run("g++", &arguments);
    out
}

fn in_folder(folder: &Path) -> Options {
    Options {
        sources: NameSources {
            cache: SymbolCache::at(folder.join("cache/symbols")),
            ..NameSources::default()
        },
        ..options(folder)
    }
}

fn kept(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder.join("cache/symbols")).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn one_address_has_the_names_that_it_has_among_all() {
    let directory = tempfile::tempdir().unwrap();
    // Packed units, and units that refer to each other.
    for extra in [&[][..], &["-gdwarf-4", "-gz=zlib"], &["-flto"]] {
        let program = many_units(directory.path(), extra);
        let addresses = addresses_in_functions(&program, 1);
        for kind in [NodeKind::LeafPc, NodeKind::Native] {
            let look_up = |some: &[u64]| {
                let options = in_folder(directory.path());
                look_up(&program, build_id(&program), some, kind, options)
            };
            let all = look_up(&addresses);
            assert!(all.frames.values().any(|frames| frames.len() > 1));
            for some in addresses.chunks(addresses.len() / 60) {
                let few = look_up(&[some[0], some[some.len() / 2]]);
                for (address, frames) in few.frames {
                    assert_eq!(frames, all.frames[&address], "{extra:?}: {address:#x}");
                }
            }
        }
    }
}

#[test]
fn names_follow_the_debug_file_whatever_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path();
    // Large enough to be kept.
    let whole = compile_cpp(folder, &["-include", "regex"]);
    let addresses = addresses_in_functions(&whole, 5);
    let id = build_id(&whole);
    let hex: String = id.iter().map(|b| format!("{b:02x}")).collect();
    let debug = folder.join(format!(".build-id/{}/{}.debug", &hex[..2], &hex[2..]));
    std::fs::create_dir_all(debug.parent().unwrap()).unwrap();
    let install = |from: &Path, packing: &str| {
        let packing = format!("--compress-debug-sections={packing}");
        let arguments = ["--only-keep-debug", &packing, text(from), text(&debug)];
        run("objcopy", &arguments);
    };
    let stripped = folder.join("stripped");
    run("strip", &["-o", text(&stripped), text(&whole)]);
    let look_up = |options| look_up(&stripped, id.clone(), &addresses, NodeKind::LeafPc, options);
    let without = || look_up(options(folder));
    let with = || look_up(in_folder(folder));

    let nothing_installed = with();
    assert_eq!(nothing_installed, without());
    assert!(kept(folder).is_empty());

    // What needs no unpacking is not kept.
    install(&whole, "none");
    let expected = without();
    assert!(agreement(&nothing_installed.frames, &expected.frames) < 0.1);
    assert_eq!(with(), expected);
    assert!(kept(folder).is_empty());

    install(&whole, "zlib");
    assert_eq!(with(), expected);
    let [file] = &kept(folder)[..] else {
        panic!("{:?}", kept(folder));
    };
    let written = std::fs::metadata(file).unwrap().modified().unwrap();
    assert_eq!(with(), expected, "from what was kept");
    assert_eq!(
        std::fs::metadata(file).unwrap().modified().unwrap(),
        written
    );

    std::fs::write(file, "damaged").unwrap();
    assert_eq!(with(), expected);
    assert!(
        std::fs::metadata(file).unwrap().len() > 64 << 10,
        "replaced"
    );

    std::fs::remove_file(&debug).unwrap();
    assert_eq!(with(), nothing_installed, "the debug file was removed");

    // Another debug file with the same build id, as after a rebuild that keeps it: other lines.
    let moved = folder.join("moved");
    std::fs::create_dir(&moved).unwrap();
    let build_id = format!("-Wl,--build-id=0x{hex}");
    let other = compile_cpp(&moved, &["-include", "regex", &build_id, "-O1"]);
    install(&other, "zlib");
    let expected_of_other = without();
    assert_ne!(expected_of_other, expected);
    assert_eq!(with(), expected_of_other);
    assert_eq!(with(), expected_of_other, "from what was kept");
}
