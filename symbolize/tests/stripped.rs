//! Programs as distributions ship them: without symbols but for those of the dynamic linker and a packed
//! table of the rest.

use super::*;

/// Where functions lie, and the names that `nm` has for each.
fn functions(path: &Path) -> BTreeMap<(u64, u64), HashSet<String>> {
    let mut found: BTreeMap<(u64, u64), HashSet<String>> = BTreeMap::new();
    for line in run("nm", &["-S", text(path)]).lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [start, size, kind, name] = words[..]
            && "tTwW".contains(kind)
        {
            let hex = |text| u64::from_str_radix(text, 16).unwrap();
            let name = demangle(name.split('@').next().unwrap());
            found
                .entry((hex(start), hex(size)))
                .or_default()
                .insert(name);
        }
    }
    found
}

/// The names at the begins of these functions.
fn names(path: &Path, functions: &BTreeMap<(u64, u64), HashSet<String>>) -> Vec<String> {
    let starts: Vec<u64> = functions.keys().map(|(start, _)| *start).collect();
    let nowhere = options(Path::new("/nonexistent"));
    let found = look_up(path, vec![], &starts, NodeKind::LeafPc, nowhere);
    let name = |start: &u64| {
        found
            .frames
            .get(start)
            .map_or(String::new(), |frames| frames[0].0.clone())
    };
    starts.iter().map(name).collect()
}

/// How many of the functions have one of their names.
fn right(path: &Path, functions: &BTreeMap<(u64, u64), HashSet<String>>) -> usize {
    let found = names(path, functions);
    let pairs = functions.values().zip(&found);
    pairs
        .filter(|(names, found)| names.contains(*found))
        .count()
}

/// Programs made of one: whole, without any symbol table, and a way to add a section with packed symbols.
struct Made {
    directory: tempfile::TempDir,
    whole: PathBuf,
    stripped: PathBuf,
    packed: PathBuf,
}

impl Made {
    /// By the recipe of gdb's manual, "Debugging information in a special section".
    fn new() -> Made {
        let directory = tempfile::tempdir().unwrap();
        // Some functions are for the dynamic linker.
        let whole = compile_cpp(directory.path(), &["-Wl,--export-dynamic-symbol=main"]);
        let script = r#"
            cd "$1"
            nm -D sample-cpp --format=posix --defined-only | awk '{ print $1 }' | sort > dynsyms
            nm sample-cpp --format=posix --defined-only |
                awk '{ if ($2 == "T" || $2 == "t" || $2 == "D") print $1 }' | sort > funcsyms
            comm -13 dynsyms funcsyms > keep_symbols
            objcopy --only-keep-debug sample-cpp debug
            objcopy -S --remove-section .gdb_index --remove-section .comment \
                --keep-symbols=keep_symbols debug mini_debuginfo
            strip --strip-all -R .comment -o stripped sample-cpp
            xz mini_debuginfo
        "#;
        run("sh", &["-euc", script, "sh", text(directory.path())]);
        let at = |name| directory.path().join(name);
        let (stripped, packed) = (at("stripped"), at("mini_debuginfo.xz"));
        Made {
            directory,
            whole,
            stripped,
            packed,
        }
    }

    fn with_section(&self, content: &[u8]) -> PathBuf {
        let section = self.directory.path().join("section");
        std::fs::write(&section, content).unwrap();
        let out = self.directory.path().join("with-section");
        let add = format!("--add-section=.gnu_debugdata={}", text(&section));
        run("objcopy", &[&add, text(&self.stripped), text(&out)]);
        out
    }
}

#[test]
fn packed_symbols_name_what_the_unstripped_program_has() {
    let made = Made::new();
    let packed = std::fs::read(&made.packed).unwrap();
    let functions = functions(&made.whole);
    assert!(functions.len() > 5, "{functions:?}");
    let main = functions.values().find(|names| names.contains("main"));
    assert!(main.is_some());
    // Weak ones are left out by the recipe.
    let kept = run("cat", &[text(&made.directory.path().join("keep_symbols"))]);
    let kept: HashSet<String> = kept.lines().map(demangle).collect();
    let in_table = functions
        .values()
        .filter(|names| names.iter().any(|name| kept.contains(name)));
    let in_table = in_table.count();
    assert!(in_table > 3, "{kept:?}");

    assert_eq!(right(&made.whole, &functions), functions.len());
    // The dynamic linker's alone.
    let dynamic = right(&made.stripped, &functions);
    assert!((1..in_table).contains(&dynamic), "{dynamic}");
    let all = right(&made.with_section(&packed), &functions);
    assert!(
        all >= in_table && all > dynamic,
        "{all} of {}: {dynamic} without the table of {in_table}",
        functions.len()
    );
}

#[test]
fn packed_symbols_that_cannot_be_read_leave_those_of_the_dynamic_linker() {
    let made = Made::new();
    let packed = std::fs::read(&made.packed).unwrap();
    let functions = functions(&made.whole);
    let expected = names(&made.stripped, &functions);
    assert!(expected.iter().any(|name| name == "main"));
    assert!(expected.iter().any(|name| name.starts_with("stripped+0x")));
    let without_module = |names: Vec<String>| -> Vec<String> {
        let plain = |name: String| name.replace("with-section+", "stripped+");
        names.into_iter().map(plain).collect()
    };
    let pack = |content: &[u8]| {
        let plain = made.directory.path().join("plain");
        std::fs::write(&plain, content).unwrap();
        run("xz", &["--force", text(&plain)]);
        std::fs::read(made.directory.path().join("plain.xz")).unwrap()
    };
    let other = std::fs::read(&made.stripped).unwrap();
    let mut damaged = packed.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0x55;
    for (what, content) in [
        ("nothing", vec![]),
        ("no xz", b"symbols".to_vec()),
        ("cut", packed[..middle].to_vec()),
        ("damaged", damaged),
        ("no ELF", pack(b"symbols")),
        ("an ELF without symbols", pack(&other)),
        ("half an ELF", pack(&other[..other.len() / 2])),
    ] {
        let found = names(&made.with_section(&content), &functions);
        assert_eq!(without_module(found), expected, "{what}");
    }
    // A section that the file does not hold.
    let cut = made.directory.path().join("cut");
    let whole = std::fs::read(made.with_section(&packed)).unwrap();
    std::fs::write(&cut, &whole[..whole.len() - 64]).unwrap();
    names(&cut, &functions);
}
