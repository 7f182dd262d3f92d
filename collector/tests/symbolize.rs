//! Names and lines that the symbolizer finds in real binaries, compared with binutils.

use stackbeat_collector::symbolize::{
    ModuleError, Options, Progress, Query, Report, Symbolizer, demangle,
};
use stackbeat_proto::v1::{self, NodeKind};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A frame as both sides know it: name, file, line.
type Frame = (String, String, u32);

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {arguments:?} failed");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn source(name: &str) -> String {
    format!("{}/tests/symbolize/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// `nm`: address, type, name.
fn nm(path: &Path, option: &str) -> Vec<(u64, char, String)> {
    run("nm", &[option, text(path)])
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            Some((
                address,
                words.next()?.chars().next()?,
                // Without its version.
                words.next()?.split('@').next()?.to_owned(),
            ))
        })
        .collect()
}

fn build_id(path: &Path) -> Vec<u8> {
    let notes = run("readelf", &["-n", text(path)]);
    let hex = notes.split("Build ID: ").nth(1).unwrap_or_default();
    let hex = hex.split_whitespace().next().unwrap_or_default();
    (0..hex.len() / 2)
        .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
        .collect()
}

struct Found {
    frames: BTreeMap<u64, Vec<Frame>>,
    mangled: BTreeMap<String, String>,
    report: Report,
}

/// Looks up file addresses of one module that is loaded at a made-up bias.
fn look_up(path: &Path, id: Vec<u8>, addresses: &[u64], kind: NodeKind, options: Options) -> Found {
    const BIAS: u64 = 0x5555_0000_0000;
    let mut symbolizer = Symbolizer::new(options);
    symbolizer.add_module(&v1::Module {
        process_uid: 1,
        path: text(path).into(),
        build_id: id,
        start: BIAS,
        end: BIAS + (1 << 32),
        bias: BIAS,
        ..Default::default()
    });
    let queries: Vec<Query> = addresses
        .iter()
        .map(|address| Query {
            process_uid: 1,
            epoch: 3,
            address: BIAS + address,
            kind,
        })
        .collect();
    let mut frames = BTreeMap::new();
    let mut mangled = BTreeMap::new();
    let report = symbolizer.symbolize(&queries, &mut |_| {}, &mut |packet| {
        let string = |index: u32| packet.strings[index as usize].clone();
        for entry in &packet.addresses {
            let mut list = Vec::new();
            for (i, function) in entry.function.iter().enumerate() {
                let function = &packet.functions[*function as usize];
                let file = if entry.file[i] == 0 {
                    function.file
                } else {
                    entry.file[i]
                };
                list.push((string(function.name), string(file), entry.line[i]));
                mangled.insert(string(function.name), string(function.mangled));
            }
            frames.insert(entry.address - BIAS, list);
        }
    });
    Found {
        frames,
        mangled,
        report,
    }
}

fn options(debug_root: &Path) -> Options {
    Options {
        debug_roots: vec![debug_root.into()],
        ..Default::default()
    }
}

/// The frames that binutils' `addr2line` prints, outermost first.
fn binutils(path: &Path, addresses: &[u64]) -> BTreeMap<u64, Vec<Frame>> {
    let mut out = BTreeMap::new();
    for chunk in addresses.chunks(500) {
        let mut arguments = vec!["-a", "-f", "-i", "-e", text(path)];
        let hex: Vec<String> = chunk.iter().map(|a| format!("{a:#x}")).collect();
        arguments.extend(hex.iter().map(String::as_str));
        let output = run("addr2line", &arguments);
        let mut lines = output.lines().peekable();
        while let Some(address) = lines.next() {
            let address = u64::from_str_radix(address.trim_start_matches("0x"), 16).unwrap();
            let mut frames = Vec::new();
            while lines.peek().is_some_and(|line| !line.starts_with("0x")) {
                let name = lines.next().unwrap();
                let place = lines.next().unwrap();
                let (file, line) = place.rsplit_once(':').unwrap();
                let line = line.split(' ').next().unwrap().parse().unwrap_or(0);
                frames.insert(0, (demangle(name), file.to_owned(), line));
            }
            out.insert(address, frames);
        }
    }
    out
}

/// Addresses all over the functions that `nm` lists, every `step` bytes.
fn addresses_in_functions(path: &Path, step: u64) -> Vec<u64> {
    let mut all = Vec::new();
    for line in run("nm", &["-S", text(path)]).lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.len() == 4 && "tTwW".contains(words[2]) {
            let start = u64::from_str_radix(words[0], 16).unwrap();
            let size = u64::from_str_radix(words[1], 16).unwrap();
            all.extend((start..start + size).step_by(step as usize));
        }
    }
    all.sort_unstable();
    all.dedup();
    assert!(all.len() > 50, "{path:?}: only {} addresses", all.len());
    all
}

/// File names differ in how they are joined (`./a`, `x/../a`): the last parts count.
fn same_file(a: &str, b: &str) -> bool {
    let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    last(a) == last(b) || b == "??" && a.is_empty()
}

/// Where there is no linkage name, binutils leave the namespaces out.
fn same_name(ours: &str, theirs: &str) -> bool {
    (ours.strip_suffix(theirs)).is_some_and(|scope| scope.is_empty() || scope.ends_with("::"))
}

/// Share of addresses where all frames have equal names, files and lines; prints the first others.
fn agreement(ours: &BTreeMap<u64, Vec<Frame>>, theirs: &BTreeMap<u64, Vec<Frame>>) -> f64 {
    let mut equal = 0;
    let mut shown = 0;
    for (address, expected) in theirs {
        let empty = Vec::new();
        let got = ours.get(address).unwrap_or(&empty);
        let same = got.len() == expected.len()
            && got
                .iter()
                .zip(expected)
                .all(|(a, b)| same_name(&a.0, &b.0) && a.2 == b.2 && same_file(&a.1, &b.1));
        equal += usize::from(same);
        if !same && shown < 10 {
            shown += 1;
            eprintln!("{address:#x}\n  ours   {got:?}\n  theirs {expected:?}");
        }
    }
    equal as f64 / theirs.len() as f64
}

fn compile_cpp(directory: &Path, extra: &[&str]) -> PathBuf {
    let out = directory.join("sample-cpp");
    let source = source("sample.cpp");
    let mut arguments = vec!["-g", "-O2", "-Wl,--build-id", "-o", text(&out), &source];
    arguments.extend(extra);
    run("g++", &arguments);
    out
}

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
fn debug_files_are_found_by_build_id_by_debuglink_and_in_debugdata() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("debug");
    let whole = compile_cpp(directory.path(), &[]);
    let addresses = addresses_in_functions(&whole, 5);
    let expected = binutils(&whole, &addresses);
    let id = build_id(&whole);
    let hex: String = id.iter().map(|b| format!("{b:02x}")).collect();

    let stripped = directory.path().join("stripped");
    run("strip", &["-o", text(&stripped), text(&whole)]);
    let share = |program: &Path| {
        let found = look_up(
            program,
            id.clone(),
            &addresses,
            NodeKind::LeafPc,
            options(&root),
        );
        agreement(&found.frames, &expected)
    };
    assert!(share(&stripped) < 0.1, "stripped, nothing installed");

    let debug = root
        .join(".build-id")
        .join(&hex[..2])
        .join(format!("{}.debug", &hex[2..]));
    std::fs::create_dir_all(debug.parent().unwrap()).unwrap();
    run(
        "objcopy",
        &[
            "--only-keep-debug",
            "--compress-debug-sections=zlib",
            text(&whole),
            text(&debug),
        ],
    );
    assert!(share(&stripped) > 0.97, "by build id");

    let beside = directory.path().join("beside.debug");
    std::fs::rename(&debug, &beside).unwrap();
    let linked = directory.path().join("linked");
    let link = format!("--add-gnu-debuglink={}", text(&beside));
    run("objcopy", &[&link, text(&stripped), text(&linked)]);
    assert!(share(&linked) > 0.97, "by debuglink");

    // A debug file of another build must not be believed.
    let other = directory.path().join("other");
    std::fs::create_dir_all(&other).unwrap();
    let other = compile_cpp(&other, &["-O1"]);
    run(
        "objcopy",
        &["--only-keep-debug", text(&other), text(&beside)],
    );
    assert!(share(&linked) < 0.1, "another build's debug file");
    std::fs::remove_file(&beside).unwrap();

    // .gnu_debugdata as Fedora makes it: the symbol table, xz-compressed, inside the binary.
    let mini = directory.path().join("mini");
    run(
        "objcopy",
        &[
            "--only-keep-debug",
            "--remove-section=.debug*",
            text(&whole),
            text(&mini),
        ],
    );
    run("xz", &["--force", text(&mini)]);
    let add = format!("--add-section=.gnu_debugdata={}.xz", text(&mini));
    let with_mini = directory.path().join("with-mini");
    run("objcopy", &[&add, text(&stripped), text(&with_mini)]);
    let own = nm(&whole, "-n")
        .into_iter()
        .find(|s| s.2.contains("compare"))
        .unwrap();
    let found = look_up(&with_mini, id, &[own.0], NodeKind::LeafPc, options(&root));
    assert_eq!(found.frames[&own.0][0].0, demangle(&own.2));
}

#[test]
fn split_dwarf_and_dwz_are_followed() {
    let directory = tempfile::tempdir().unwrap();
    let object = directory.path().join("sample.o");
    let program = directory.path().join("split");
    run(
        "g++",
        &[
            "-g",
            "-O2",
            "-gsplit-dwarf",
            "-c",
            "-o",
            text(&object),
            &source("sample.cpp"),
        ],
    );
    run("g++", &["-o", text(&program), text(&object)]);
    assert!(directory.path().join("sample.dwo").exists());
    let reference = compile_cpp(directory.path(), &[]);
    let inlined = |program: &Path| {
        let addresses = addresses_in_functions(program, 1);
        let found = look_up(
            program,
            vec![],
            &addresses,
            NodeKind::LeafPc,
            options(directory.path()),
        );
        found
            .frames
            .values()
            .filter(|frames| {
                frames
                    .iter()
                    .any(|f| f.0 == "shapes::Square::area() const" && f.2 > 0)
            })
            .count()
    };
    assert!(inlined(&program) > 10);
    assert_eq!(inlined(&program), inlined(&reference));

    // dwz needs two files that share something.
    let second = directory.path().join("second");
    let shared = directory.path().join("shared.dwz");
    std::fs::copy(&reference, &second).unwrap();
    let before = inlined(&reference);
    run(
        "dwz",
        &[
            "-m",
            text(&shared),
            "-M",
            text(&shared),
            text(&reference),
            text(&second),
        ],
    );
    assert!(shared.exists(), "dwz found nothing to share");
    assert_eq!(inlined(&reference), before);
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
fn the_vdso_is_named() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.ends_with("[vdso]")).unwrap();
    let start = u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
    let mut symbolizer = Symbolizer::new(Options::default());
    symbolizer.add_module(&v1::Module {
        process_uid: 1,
        path: "[vdso]".into(),
        start,
        end: start + 0x4000,
        bias: start,
        ..Default::default()
    });
    let queries: Vec<Query> = (0..0x1000)
        .map(|offset| Query {
            process_uid: 1,
            epoch: 0,
            address: start + offset,
            kind: NodeKind::LeafPc,
        })
        .collect();
    let mut names = std::collections::BTreeSet::new();
    symbolizer.symbolize(&queries, &mut |_| {}, &mut |packet| {
        names.extend(
            packet
                .functions
                .iter()
                .map(|f| packet.strings[f.name as usize].clone()),
        );
    });
    assert!(
        names.iter().any(|name| name.ends_with("clock_gettime")),
        "{names:?}"
    );
}

#[test]
fn the_frame_below_a_signal_handler_is_the_trampoline() {
    let libc = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
    // mov $15, %rax; syscall: the trampoline's only instructions.
    let code = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
    let bytes = std::fs::read(libc).unwrap();
    let at = bytes.windows(code.len()).position(|w| w == code).unwrap() as u64;
    let found = look_up(
        libc,
        vec![],
        &[at],
        NodeKind::Native,
        options(Path::new("/nonexistent")),
    );
    assert_eq!(found.frames[&at][0].0, "<signal handler called>");
}

#[test]
fn modules_that_changed_or_vanished_are_said_and_stay_unnamed() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile_cpp(directory.path(), &[]);
    let addresses = addresses_in_functions(&program, 7);
    let failure = |path: &Path, id: Vec<u8>| {
        let found = look_up(
            path,
            id,
            &addresses,
            NodeKind::LeafPc,
            options(directory.path()),
        );
        assert_eq!(found.report.named, 0);
        assert!(found.frames.is_empty());
        found.report.failures.into_iter().next().unwrap()
    };
    assert!(matches!(
        failure(&program, vec![1; 20]),
        ModuleError::Changed { .. }
    ));
    let gone = directory.path().join("gone");
    assert!(matches!(failure(&gone, vec![]), ModuleError::Gone { .. }));
    let text_file = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    assert!(matches!(
        failure(&text_file, vec![]),
        ModuleError::Unreadable { .. }
    ));
    let cut = directory.path().join("cut");
    let bytes = std::fs::read(&program).unwrap();
    std::fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    let found = look_up(
        &cut,
        vec![],
        &addresses,
        NodeKind::LeafPc,
        options(directory.path()),
    );
    assert!(found.report.named <= addresses.len());
}

#[test]
fn who_does_not_want_to_wait_keeps_what_was_found() {
    let symbolizer = Symbolizer::default();
    let query = |address| Query {
        process_uid: 1,
        epoch: 0,
        address,
        kind: NodeKind::Native,
    };
    let report = symbolizer.symbolize_while(&[query(1)], &mut |_| false, &mut |_| {});
    // Without a module there is nobody to ask.
    assert_eq!(report.skipped, 0);

    let mut symbolizer = Symbolizer::default();
    for (path, start) in [("/a", 0x1000), ("/b", 0x2000)] {
        symbolizer.add_module(&v1::Module {
            process_uid: 1,
            path: path.into(),
            start,
            end: start + 0x1000,
            ..Default::default()
        });
    }
    let queries = [query(0x1001), query(0x1002), query(0x2001), query(0x9000)];
    let mut asked = 0;
    let mut once = |_: Progress<'_>| {
        asked += 1;
        asked == 1
    };
    let report = symbolizer.symbolize_while(&queries, &mut once, &mut |_| {});
    assert_eq!((asked, report.named, report.skipped), (2, 0, 2));
}

#[test]
fn code_compiled_at_run_time_takes_its_names_from_the_perf_map() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(
        directory.path().join("perf-77.map"),
        "7f0000001000 100 LazyCompile:*hot /a.js:3\n",
    )
    .unwrap();
    let mut symbolizer = Symbolizer::new(Options {
        jit_map_directory: directory.path().into(),
        ..Default::default()
    });
    symbolizer.add_process(1, 77);
    let query = |address, kind| Query {
        process_uid: 1,
        epoch: 0,
        address,
        kind,
    };
    let queries = [
        query(0x7f00_0000_1000, NodeKind::LeafPc),
        query(0x7f00_0000_1100, NodeKind::Native),
        query(0x7f00_0000_1100, NodeKind::LeafPc),
    ];
    let mut found = Vec::new();
    let report = symbolizer.symbolize(&queries, &mut |_| {}, &mut |packet| {
        assert_eq!(
            packet.strings[packet.functions[0].name as usize],
            "LazyCompile:*hot /a.js:3"
        );
        found.extend(packet.addresses.iter().map(|a| (a.address, a.kind())));
    });
    assert_eq!(report.named, 2);
    assert_eq!(
        found,
        [
            (0x7f00_0000_1000, NodeKind::LeafPc),
            (0x7f00_0000_1100, NodeKind::Native)
        ]
    );
}

#[test]
fn a_large_program_is_named_quickly_and_as_nm_says() {
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
    let begin = std::time::Instant::now();
    let found = look_up(
        &node,
        vec![],
        &addresses,
        NodeKind::LeafPc,
        options(Path::new("/nonexistent")),
    );
    let took = begin.elapsed();
    eprintln!("{} addresses of {node:?} in {took:?}", addresses.len());
    assert!(took.as_secs() < 20, "{took:?}");
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
