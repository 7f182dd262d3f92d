//! Programs for Apple's systems and their dSYMs, compared with LLVM's symbolizer.

use super::*;

/// Tools of `scripts/install-apple-tools.sh`, which is run if they are missing.
fn zig() -> Command {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let folder = root.join("target/apple-tools");
    run(
        text(&root.join("scripts/install-apple-tools.sh")),
        &[text(&folder)],
    );
    let mut zig = Command::new(folder.join("python/ziglang/zig"));
    for cache in ["ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"] {
        zig.env(cache, Path::new(env!("CARGO_TARGET_TMPDIR")).join("zig"));
    }
    zig
}

/// LLVM's tool of that name, of Debian's package.
fn llvm(tool: &str, arguments: &[&str]) -> String {
    run(&format!("/usr/lib/llvm-14/bin/{tool}"), arguments)
}

/// A library and the file with its debug information.
fn build(directory: &Path, architecture: &str) -> (PathBuf, PathBuf) {
    let library = directory.join(format!("{architecture}.dylib"));
    let target = format!("{architecture}-macos.11.0");
    let options = ["c++", "-target", &target, "-g", "-O2", "-dynamiclib"];
    let linked = zig()
        .args(options)
        .args(["-nostdlib", "-o", text(&library), &source("macho.cpp")])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&linked.stderr);
    assert!(linked.status.success(), "{errors}");
    let bundle = directory.join(format!("{architecture}.dylib.dSYM"));
    llvm("dsymutil", &["-o", text(&bundle), text(&library)]);
    let debug = bundle
        .join("Contents/Resources/DWARF")
        .join(library.file_name().unwrap());
    (library, debug)
}

fn uuid(path: &Path) -> Vec<u8> {
    let said = llvm("llvm-dwarfdump", &["--uuid", text(path)]);
    let digits: Vec<u8> = said
        .lines()
        .find_map(|line| line.split_whitespace().find(|word| word.len() == 36))
        .unwrap_or_else(|| panic!("{said}"))
        .bytes()
        .filter(|digit| *digit != b'-')
        .collect();
    let pairs = digits
        .chunks(2)
        .map(|pair| std::str::from_utf8(pair).unwrap());
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).unwrap())
        .collect()
}

/// Each fourth byte of the code.
fn addresses(path: &Path) -> Vec<u64> {
    let said = llvm(
        "llvm-objdump",
        &["--macho", "--section-headers", text(path)],
    );
    let line = said.lines().find(|line| line.contains("__text")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |word: &str| u64::from_str_radix(word, 16).unwrap();
    let (size, start) = (number(words[2]), number(words[3]));
    (start..start + size).step_by(4).collect()
}

/// What LLVM says, outermost first.
fn expected(path: &Path, addresses: &[u64]) -> BTreeMap<u64, Vec<Frame>> {
    let of = |address: &u64| {
        let hex = format!("{address:#x}");
        let said = llvm("llvm-symbolizer", &["--obj", text(path), &hex]);
        let lines: Vec<&str> = said.lines().filter(|line| !line.is_empty()).collect();
        let frames = lines.chunks(2).map(|pair| {
            let mut parts = pair[1].rsplitn(3, ':').skip(1);
            let line = parts.next().unwrap().parse().unwrap();
            (pair[0].to_owned(), parts.next().unwrap().to_owned(), line)
        });
        let mut frames: Vec<Frame> = frames.collect();
        frames.reverse();
        (*address, frames)
    };
    addresses.iter().map(of).collect()
}

/// What the file itself says.
fn names_in(path: &Path, id: Vec<u8>, addresses: &[u64]) -> Found {
    look_up(path, id, addresses, NodeKind::LeafPc, Options::default())
}

#[test]
fn names_of_a_dsym_are_those_that_llvm_finds() {
    let directory = tempfile::tempdir().unwrap();
    for architecture in ["aarch64", "x86_64"] {
        let (library, debug) = build(directory.path(), architecture);
        let id = uuid(&debug);
        assert_eq!(id, uuid(&library));
        let addresses = addresses(&library);
        assert!(addresses.len() > 30, "{}", addresses.len());
        let expected = expected(&debug, &addresses);
        assert!(expected.values().any(|frames| frames.len() == 2));
        let found = names_in(&debug, id.clone(), &addresses);
        assert_eq!(found.report.failures, []);
        let share = agreement(&found.frames, &expected);
        assert!(share > 0.97, "{architecture}: {share}");

        // The symbol table of the library itself, without Mach-O's underscores.
        let found = names_in(&library, id, &addresses);
        let names: HashSet<&str> = (found.frames.values())
            .map(|frames| frames[0].0.as_str())
            .collect();
        for name in ["plain", "run", "shop::Order::total"] {
            assert!(
                names.iter().any(|n| n.starts_with(name)),
                "{name}: {names:?}"
            );
        }
        let other = names_in(&debug, vec![7; 16], &addresses);
        assert!(matches!(
            &other.report.failures[..],
            [ModuleError::Changed { .. }]
        ));
    }
}

#[test]
fn of_a_file_for_several_processors_the_part_with_the_uuid_counts() {
    let directory = tempfile::tempdir().unwrap();
    let (_, arm) = build(directory.path(), "aarch64");
    let (_, x86) = build(directory.path(), "x86_64");
    let both = directory.path().join("both");
    llvm(
        "llvm-lipo",
        &["-create", text(&arm), text(&x86), "-output", text(&both)],
    );
    for one in [&arm, &x86] {
        let addresses = addresses(one);
        let alone = names_in(one, uuid(one), &addresses);
        let of_both = names_in(&both, uuid(one), &addresses);
        assert!(!alone.frames.is_empty());
        assert_eq!(alone.frames, of_both.frames);
    }
    let neither = names_in(&both, vec![7; 16], &[0x1000]);
    assert!(matches!(
        &neither.report.failures[..],
        [ModuleError::Changed { .. }]
    ));
}

/// A build that leaves no dSYM: the library with its symbol table names functions, without lines.
#[test]
fn without_a_dsym_the_symbol_table_of_a_build_names_functions() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("Products");
    std::fs::create_dir_all(&folder).unwrap();
    let (library, debug) = build(directory.path(), "aarch64");
    std::fs::copy(&library, folder.join("App")).unwrap();
    let files = Arc::new(FilesOfBuilds::below(&folder).unwrap());
    let id = uuid(&library);
    assert_eq!(files.get(&id), Some(&*folder.join("App")));
    let addresses = addresses(&library);
    let options = Options {
        files_of_builds: files,
        ..Options::default()
    };
    let on_phone = Path::new("/private/var/containers/Bundle/Application/A/App.app/App");
    let found = look_up(on_phone, id, &addresses, NodeKind::LeafPc, options);
    assert_eq!(found.report.failures, []);
    // As the dSYM names the outermost function of each address.
    let expected = expected(&debug, &addresses);
    let base = |name: &str| name.split('(').next().unwrap_or_default().to_owned();
    let same = addresses.iter().filter(|address| {
        let [ours, theirs] = [found.frames.get(address), expected.get(address)];
        let [ours, theirs] = [ours, theirs].map(|frames| frames.map(|all| base(&all[0].0)));
        ours.is_some() && ours == theirs
    });
    let same = same.count();
    assert!(
        same * 100 > addresses.len() * 97,
        "{same} of {}",
        addresses.len()
    );
    assert!(
        found
            .frames
            .values()
            .all(|frames| frames.len() == 1 && frames[0].2 == 0)
    );
}

/// A folder as Xcode leaves it: bundles, one with the debug information for two processors, below other
/// folders.
#[test]
fn dsyms_below_a_folder_are_found_by_uuid() {
    let directory = tempfile::tempdir().unwrap();
    let (library, arm) = build(directory.path(), "aarch64");
    let (_, x86) = build(directory.path(), "x86_64");
    let folder = directory.path().join("Products");
    let bundle = folder.join("Release/App.framework.dSYM/Contents/Resources/DWARF");
    std::fs::create_dir_all(&bundle).unwrap();
    std::fs::write(bundle.join("notes.txt"), "no object file").unwrap();
    // The library has the UUID, too, and less to say.
    std::fs::copy(&library, folder.join("App")).unwrap();
    let both = bundle.join("App");
    llvm(
        "llvm-lipo",
        &["-create", text(&arm), text(&x86), "-output", text(&both)],
    );
    let files = Arc::new(FilesOfBuilds::below(&folder).unwrap());
    assert_eq!(files.len(), 2);
    assert_eq!(files.get(&[7; 16]), None);
    for one in [&arm, &x86] {
        assert_eq!(files.get(&uuid(one)), Some(&*both));
        let addresses = addresses(one);
        let alone = names_in(one, uuid(one), &addresses);
        let on_phone = Path::new("/private/var/containers/Bundle/Application/A/App.app/App");
        let options = Options {
            files_of_builds: Arc::clone(&files),
            ..Options::default()
        };
        let of_folder = look_up(on_phone, uuid(one), &addresses, NodeKind::LeafPc, options);
        assert_eq!(of_folder.report.failures, []);
        assert!(alone.frames.len() > 30);
        assert_eq!(alone.frames, of_folder.frames);
    }
}
