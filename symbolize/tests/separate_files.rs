//! Debug information that lies in other files, and files that are not what they were.

use super::*;
use stackbeat_symbolize::NameSources;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

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
        upid: Upid(1),
        epoch: 0,
        address,
        kind: NodeKind::Native,
    };
    let alone = wanted(&[], &[query(1)]);
    let report = symbolizer.symbolize(alone, &mut |_| false, &mut |_| {});
    // Without a module there is nobody to ask.
    assert_eq!(report.skipped, 0);

    let modules = [("/a", 0x1000), ("/b", 0x2000)].map(|(path, start)| v1::Module {
        upid: 1,
        path: path.into(),
        start,
        end: start + 0x1000,
        ..Default::default()
    });
    let queries = [query(0x1001), query(0x1002), query(0x2001), query(0x9000)];
    let mut asked = 0;
    let mut once = |_: Progress<'_>| {
        asked += 1;
        asked == 1
    };
    let wanted = wanted(&modules, &queries);
    let report = symbolizer.symbolize(wanted, &mut once, &mut |_| {});
    // What no file holds is not looked up.
    assert_eq!((asked, report.named, report.skipped), (2, 0, 1));
}

/// Fetches without an end.
#[derive(Debug, Default)]
struct Endless {
    fetches: AtomicBool,
}

impl DebugSource for Endless {
    fn debug_file(&self, _: &[u8], goes_on: &mut dyn FnMut() -> bool) -> Option<PathBuf> {
        let began = Instant::now();
        self.fetches.store(true, Ordering::Relaxed);
        while goes_on() {
            assert!(began.elapsed() < Duration::from_secs(60), "nobody ends it");
            std::thread::sleep(Duration::from_millis(1));
        }
        self.fetches.store(false, Ordering::Relaxed);
        None
    }

    fn under_way(&self) -> Option<String> {
        let fetches = self.fetches.load(Ordering::Relaxed);
        fetches.then(|| "a download".into())
    }

    fn complaints(&self) -> Vec<String> {
        Vec::new()
    }
}

#[test]
fn who_does_not_want_to_wait_for_a_download_gets_the_names_that_are_here() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile_cpp(directory.path(), &["-Wl,--build-id"]);
    let addresses = addresses_in_functions(&program, 7);
    let id = build_id(&program);
    run("strip", &["--strip-debug", text(&program)]);
    let source = Arc::new(Endless::default());
    let symbolizer = Symbolizer::new(Options {
        sources: NameSources {
            debug: Some(source.clone()),
            ..NameSources::default()
        },
        ..options(directory.path())
    });
    let module = v1::Module {
        upid: 1,
        path: text(&program).into(),
        build_id: id,
        end: 1 << 32,
        ..Default::default()
    };
    let query = |address: &u64| Query {
        upid: Upid(1),
        epoch: 0,
        address: *address,
        kind: NodeKind::LeafPc,
    };
    let queries: Vec<Query> = addresses.iter().map(query).collect();
    let mut said_no = false;
    let mut once = |_: Progress<'_>| {
        let says_no = !said_no && source.under_way().is_some();
        said_no |= says_no;
        !says_no
    };
    let report = symbolizer.symbolize(wanted(&[module], &queries), &mut once, &mut |_| {});
    assert!(said_no);
    assert_eq!(report.skipped, 0);
    assert!(report.named > 10, "{report:?}");
}
