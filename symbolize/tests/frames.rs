//! Functions, files and lines equal those of binutils.

use super::*;

#[test]
fn cpp_frames_equal_those_of_binutils() {
    let directory = tempfile::tempdir().unwrap();
    for extra in [&[][..], &["-gdwarf-4"], &["-gz=zlib"], &["-no-pie"]] {
        let program = compile_cpp(directory.path(), extra);
        let addresses = addresses_in_functions(&program, 3);
        let ours = look_up(
            &program,
            build_id(&program),
            &addresses,
            NodeKind::LeafPc,
            options(directory.path()),
        );
        let share = agreement(&ours.frames, &binutils(&program, &addresses));
        assert!(share > 0.97, "{extra:?}: only {share} equal");
        let deepest = ours.frames.values().map(Vec::len).max().unwrap();
        assert!(deepest >= 3, "no inlined frames: {deepest}");
        let name = "long shapes::total<shapes::Square>(std::vector<shapes::Square, std::allocator<shapes::Square> > const&)";
        let name = name.trim_start_matches("long ");
        assert!(ours.mangled.contains_key(name), "{:?}", ours.mangled.keys());
    }
}

#[test]
fn rust_frames_equal_those_of_binutils() {
    let directory = tempfile::tempdir().unwrap();
    for mangling in [&[][..], &["-Csymbol-mangling-version=v0"]] {
        let program = directory.path().join("sample-rs");
        let source = source("sample.rs");
        let mut arguments = vec!["-g", "-Copt-level=2", "-Clink-arg=-Wl,--build-id"];
        arguments.extend(["-o", text(&program), &source]);
        arguments.extend(mangling);
        run("rustc", &arguments);
        let mut addresses = addresses_in_functions(&program, 37);
        addresses.truncate(4000);
        let ours = look_up(
            &program,
            build_id(&program),
            &addresses,
            NodeKind::LeafPc,
            options(directory.path()),
        );
        let share = agreement(&ours.frames, &binutils(&program, &addresses));
        assert!(share > 0.95, "{mangling:?}: only {share} equal");
        let own = nm(&program, "-n")
            .into_iter()
            .find(|s| s.2.contains("histogram"))
            .unwrap();
        let found = look_up(
            &program,
            vec![],
            &[own.0 + 1],
            NodeKind::Native,
            options(directory.path()),
        );
        assert_eq!(found.frames[&(own.0 + 1)][0].0, "sample::histogram");
        let names: HashSet<&str> = (ours.frames.values().flatten())
            .map(|frame| frame.0.as_str())
            .collect();
        // An inlined generic has the namespaces that it stands in.
        let begins = |with: &str| names.iter().any(|name| name.starts_with(with));
        assert!(begins("sample::shapes::total"), "{names:?}");
        assert!(!begins("total"), "{names:?}");
    }
}

/// Lines alone are what many release builds have: entries do not say where functions are defined.
#[test]
fn functions_have_a_line_where_there_are_only_line_tables() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("sample-rs");
    let source = source("sample.rs");
    let written = std::fs::read_to_string(&source).unwrap();
    let line = 1
        + (written.lines())
            .position(|line| line.starts_with("fn histogram"))
            .unwrap() as u32;
    for level in ["full", "line-tables-only"] {
        let level = format!("-Cdebuginfo={level}");
        let arguments = ["-Copt-level=2", &level, "-o", text(&program), &source];
        run("rustc", &arguments);
        let symbols = nm(&program, "-n");
        let own = symbols.iter().find(|s| s.2.contains("histogram")).unwrap();
        // In its middle.
        let address = own.0 + 40;
        let options = options(directory.path());
        let found = look_up(&program, vec![], &[address], NodeKind::LeafPc, options);
        assert_eq!(found.lines["sample::histogram"], line, "{level}");
    }
}

/// The compiler makes two functions of one that is async, and what it does is in the second.
#[test]
fn the_body_of_an_async_function_has_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let (program, source) = (
        directory.path().join("wait"),
        directory.path().join("wait.rs"),
    );
    let written = "\
        #[inline(never)] fn parse(n: u64) -> u64 { std::hint::black_box(n) + 1 }\n\
        async fn load(n: u64) -> u64 { parse(n) * 3 }\n\
        fn main() {\n\
            let mut future = std::pin::pin!(load(7));\n\
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());\n\
            let _ = std::hint::black_box(future.as_mut().poll(&mut context));\n\
        }\n";
    std::fs::write(&source, written).unwrap();
    for mangling in [&[][..], &["-Csymbol-mangling-version=v0"]] {
        let mut arguments = vec!["--edition=2024", "-g", "-o", text(&program), text(&source)];
        arguments.extend(mangling);
        run("rustc", &arguments);
        let symbols = nm(&program, "-n").into_iter();
        let begins = ["_ZN4wait4load", "_RNvCs", "_RNCNvCs"];
        let of_load = symbols.filter(|(_, _, name)| {
            name.contains("4wait4load") && begins.iter().any(|begin| name.starts_with(begin))
        });
        let addresses: Vec<u64> = of_load.map(|s| s.0 + 8).collect();
        assert_eq!(addresses.len(), 2, "the function, and its body");
        let options = options(directory.path());
        let found = look_up(&program, vec![], &addresses, NodeKind::LeafPc, options);
        for address in addresses {
            assert_eq!(found.frames[&address][0].0, "wait::load");
        }
    }
}

/// Compilers give a lambda's type no name that could be shown, and its function no linkage name.
#[test]
fn an_inlined_lambda_is_named_by_the_function_that_it_stands_in() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile_cpp(directory.path(), &[]);
    let symbols = nm(&program, "-n");
    let main = symbols.iter().find(|s| s.2 == "main").unwrap().0;
    let addresses: Vec<u64> = (main..main + 0x80).collect();
    let options = options(directory.path());
    let found = look_up(&program, vec![], &addresses, NodeKind::LeafPc, options);
    let stacks = found.frames.values().map(|frames| {
        let names: Vec<&str> = frames.iter().map(|frame| &*frame.0).collect();
        names
    });
    let stacks: HashSet<_> = stacks.collect();
    let expected = vec!["main", "main::{lambda}::operator()"];
    assert!(stacks.contains(&expected), "{stacks:?}");
}

#[test]
fn a_return_address_belongs_to_the_call_before_it() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile_cpp(directory.path(), &[]);
    let symbols = nm(&program, "-n");
    let (start, _, name) = symbols
        .iter()
        .find(|s| s.2 == "plain_c_name")
        .expect("plain_c_name");
    let at = |kind| {
        let found = look_up(&program, vec![], &[*start], kind, options(directory.path()));
        found.frames.get(start).map(|frames| frames[0].0.clone())
    };
    assert_eq!(at(NodeKind::LeafPc).as_ref(), Some(name));
    assert_ne!(at(NodeKind::Native).as_ref(), Some(name));
}

#[test]
fn stubs_have_the_name_that_objdump_gives_them() {
    let directory = tempfile::tempdir().unwrap();
    for extra in [
        &[][..],
        &["-Wl,-z,now"],
        &["-fcf-protection=full", "-Wl,-z,ibtplt"],
    ] {
        let program = compile_cpp(directory.path(), extra);
        let stubs: Vec<(u64, String)> = run("objdump", &["-d", text(&program)])
            .lines()
            .filter_map(|line| {
                let (address, name) = line.split_once(" <")?;
                let name = name.strip_suffix(">:")?;
                name.ends_with("@plt")
                    .then(|| (u64::from_str_radix(address, 16).unwrap(), name.to_owned()))
            })
            .collect();
        assert!(stubs.len() > 5, "{stubs:?}");
        let addresses: Vec<u64> = stubs.iter().map(|(address, _)| address + 4).collect();
        let found = look_up(
            &program,
            vec![],
            &addresses,
            NodeKind::LeafPc,
            options(directory.path()),
        );
        for (address, name) in stubs {
            let expected = format!("{}@plt", demangle(name.trim_end_matches("@plt")));
            assert_eq!(
                found.frames[&(address + 4)][0].0,
                expected,
                "{extra:?} {address:#x}"
            );
        }
    }
}

#[test]
fn a_stripped_library_has_its_dynamic_names_and_function_boundaries() {
    let libc = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
    let nowhere = Path::new("/nonexistent");
    let symbols: Vec<(u64, char, String)> = nm(libc, "-D")
        .into_iter()
        .filter(|s| "TW".contains(s.1))
        .collect();
    assert!(symbols.len() > 2000);
    let addresses: Vec<u64> = symbols.iter().map(|s| s.0).collect();
    let found = look_up(
        libc,
        build_id(libc),
        &addresses,
        NodeKind::LeafPc,
        options(nowhere),
    );
    let mut by_address: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for (address, _, name) in &symbols {
        by_address.entry(*address).or_default().push(name);
    }
    for (address, names) in &by_address {
        let got = &found.frames[address][0].0;
        assert!(
            names.contains(&got.as_str()),
            "{address:#x}: {got} is none of {names:?}"
        );
    }
    let public = |name: &str| {
        let address = symbols.iter().find(|s| s.2 == name).unwrap().0;
        found.frames[&address][0].0.clone()
    };
    for name in ["malloc", "read", "write", "nanosleep", "poll"] {
        assert_eq!(public(name), name);
    }
    // Static functions: two addresses of one function have one name, made of its start.
    let all: Vec<u64> = (addresses[10]..addresses[10] + 200_000)
        .step_by(16)
        .collect();
    let found = look_up(libc, vec![], &all, NodeKind::LeafPc, options(nowhere));
    let unnamed: Vec<&String> = found
        .frames
        .values()
        .map(|frames| &frames[0].0)
        .filter(|name| name.starts_with("libc.so.6+0x"))
        .collect();
    let distinct: std::collections::BTreeSet<_> = unnamed.iter().collect();
    assert!(unnamed.len() > 50 && distinct.len() * 2 < unnamed.len());
}

#[test]
fn a_large_program_is_named_as_nm_says() {
    let Ok(node) = std::fs::canonicalize(run("sh", &["-c", "command -v node"]).trim()) else {
        panic!("node is not installed");
    };
    // Debian's is a small program with a large library, both stripped; others are one piece with names.
    let linked = run("ldd", &[text(&node)]);
    let library = linked.split_whitespace().find(|w| w.contains("/libnode."));
    let (node, symbols) = match library {
        Some(library) => (PathBuf::from(library), nm(Path::new(library), "-D")),
        None => (node.clone(), nm(&node, "-n")),
    };
    let symbols: Vec<(u64, char, String)> = symbols
        .into_iter()
        .filter(|s| "tTwW".contains(s.1))
        .collect();
    let addresses: Vec<u64> = symbols.iter().map(|s| s.0).step_by(7).collect();
    assert!(
        addresses.len() > 5000,
        "{node:?}: {} functions",
        addresses.len()
    );
    let found = look_up(
        &node,
        vec![],
        &addresses,
        NodeKind::LeafPc,
        options(Path::new("/nonexistent")),
    );
    let mut names: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for (address, _, name) in &symbols {
        names.entry(*address).or_default().push(demangle(name));
    }
    let named = addresses
        .iter()
        .filter(|a| {
            found
                .frames
                .get(a)
                .is_some_and(|frames| names[a].contains(&frames[0].0))
        })
        .count();
    assert!(
        named as f64 > 0.97 * addresses.len() as f64,
        "{named} of {}",
        addresses.len()
    );
}

#[test]
fn libc_has_lines_when_its_debug_files_are_installed() {
    let libc = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
    let addresses: Vec<u64> = nm(libc, "-D")
        .into_iter()
        .filter(|s| s.1 == 'T')
        .map(|s| s.0 + 4)
        .step_by(3)
        .collect();
    let begin = std::time::Instant::now();
    let found = look_up(
        libc,
        build_id(libc),
        &addresses,
        NodeKind::LeafPc,
        Options::default(),
    );
    eprintln!(
        "{} addresses of libc in {:?}",
        addresses.len(),
        begin.elapsed()
    );
    let with_line = found
        .frames
        .values()
        .filter(|frames| frames.iter().all(|f| f.2 > 0 && f.1.contains('/')))
        .count();
    assert!(
        with_line * 10 > addresses.len() * 9,
        "{with_line} of {}",
        addresses.len()
    );
    // Names are not compared: of several (`read`, `__GI___libc_read`) we show the public one.
    let lines = |frames: &BTreeMap<u64, Vec<Frame>>| -> BTreeMap<u64, Vec<u32>> {
        let of = |frames: &Vec<Frame>| frames.iter().map(|f| f.2).collect();
        frames
            .iter()
            .map(|(address, frames)| (*address, of(frames)))
            .collect()
    };
    let (ours, theirs) = (lines(&found.frames), lines(&binutils(libc, &addresses)));
    let equal = theirs
        .iter()
        .filter(|(address, lines)| ours.get(address) == Some(lines))
        .count();
    assert!(
        equal * 100 > theirs.len() * 97,
        "{equal} of {}",
        theirs.len()
    );
}
