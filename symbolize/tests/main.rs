//! Names and lines that the symbolizer finds in real binaries, compared with binutils.

mod cached;
mod frames;
mod macho;
mod no_file;
mod separate_files;
mod short_names;
mod stripped;
mod variables;

use stackbeat_core::ids::Upid;
use stackbeat_proto::v1::{self, NodeKind};
use stackbeat_symbolize::{
    DebugSource, FilesOfBuilds, ModuleError, Modules, Options, Progress, Query, Report, Symbolizer,
    Wanted, demangle,
};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

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
    format!("{}/tests/{name}", env!("CARGO_MANIFEST_DIR"))
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

#[derive(Debug, PartialEq)]
struct Found {
    frames: BTreeMap<u64, Vec<Frame>>,
    mangled: BTreeMap<String, String>,
    /// Where functions are defined.
    lines: BTreeMap<String, u32>,
    report: Report,
}

/// What these addresses are, where these modules are loaded.
fn wanted(modules: &[v1::Module], queries: &[Query]) -> Wanted {
    let mut known = Modules::default();
    for module in modules {
        known.insert(module);
    }
    let mut wanted = Wanted::default();
    for query in queries {
        assert!(wanted.add(&known, query));
    }
    wanted
}

/// Looks up file addresses of one module that is loaded at a made-up bias.
fn look_up(path: &Path, id: Vec<u8>, addresses: &[u64], kind: NodeKind, options: Options) -> Found {
    const BIAS: u64 = 0x5555_0000_0000;
    let symbolizer = Symbolizer::new(options);
    let module = v1::Module {
        upid: 1,
        path: text(path).into(),
        build_id: id,
        start: BIAS,
        end: BIAS + (1 << 32),
        bias: BIAS,
        ..Default::default()
    };
    let queries: Vec<Query> = addresses
        .iter()
        .map(|address| Query {
            upid: Upid(1),
            epoch: 3,
            address: BIAS + address,
            kind,
        })
        .collect();
    let mut frames = BTreeMap::new();
    let mut mangled = BTreeMap::new();
    let mut lines = BTreeMap::new();
    let wanted = wanted(std::slice::from_ref(&module), &queries);
    let report = symbolizer.symbolize(wanted, &mut |_| true, &mut |packet| {
        let file = packet.file.as_ref().expect("a file");
        assert_eq!(
            (file.path.as_str(), &file.build_id),
            (text(path), &module.build_id)
        );
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
                lines.insert(string(function.name), function.line);
            }
            frames.insert(entry.address, list);
        }
    });
    Found {
        frames,
        mangled,
        lines,
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
