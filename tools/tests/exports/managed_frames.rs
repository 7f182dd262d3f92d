//! Managed frames arrive everywhere with their names, and with their lines where a format has lines.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use prost::Message;
use serde_json::Value;
use stackbeat_model::synthetic;
use stackbeat_proto::{perfetto, pprof};

use super::*;

/// Name and line of the managed frames in [`synthetic::managed`] whose line is known.
const LINES: [(&str, u64); 4] = [
    ("handle.<locals>.answer", 12),
    ("Page.render", 31),
    ("Page.render", 33),
    ("escape", 52),
];
/// The time that each function takes itself, ms, about: samples change in the middle between two.
const OWN_MS: [(&str, u64); 3] = [
    ("Page.render", 20),
    ("escape", 10),
    ("[unknown method]", 10),
];

fn trace() -> Trace {
    Trace::from_bytes("managed.beat", synthetic::managed()).unwrap()
}

#[test]
fn every_format_has_the_names() {
    let (trace, folder) = (trace(), tempfile::tempdir().unwrap());
    for format in Format::ALL {
        let (path, _) = write(&trace, format, &Options::default(), folder.path());
        if format == Format::Perfetto {
            continue;
        }
        let sample_type = (format == Format::Pprof).then_some("wall");
        let totals = viewers::totals(format.name(), &path, sample_type);
        let sum: u64 = totals.values().sum();
        for (name, own_ms) in OWN_MS {
            let own = totals.get(name).copied().unwrap_or(0);
            let share = own as f64 / sum as f64;
            assert!(
                (share - own_ms as f64 / 40.0).abs() < 0.03,
                "{format}: {totals:?}"
            );
        }
    }
}

#[test]
fn pprof_has_the_lines() {
    let (trace, folder) = (trace(), tempfile::tempdir().unwrap());
    let (path, _) = write(&trace, Format::Pprof, &Options::default(), folder.path());
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).unwrap();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(file), &mut bytes).unwrap();
    let profile = pprof::Profile::decode(&bytes[..]).unwrap();
    let string = |index: i64| profile.string_table[index as usize].as_str();
    let function = |id: u64| {
        let function = profile.function.iter().find(|f| f.id == id);
        function.unwrap()
    };
    let lines: BTreeSet<(&str, u64)> = profile
        .location
        .iter()
        .flat_map(|location| &location.line)
        .map(|line| (string(function(line.function_id).name), line.line as u64))
        .collect();
    assert!(LINES.iter().all(|line| lines.contains(line)), "{lines:?}");
    let render = profile
        .function
        .iter()
        .find(|f| string(f.name) == "Page.render");
    let render = render.unwrap();
    assert_eq!(
        (string(render.filename), render.start_line),
        ("/srv/page.py", 30)
    );
    // What is compiled into a frame shares its place.
    let inlined = profile.location.iter().filter(|l| l.line.len() == 2);
    let inlined: Vec<_> = inlined
        .map(|l| {
            l.line
                .iter()
                .map(|l| string(function(l.function_id).name))
                .collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(inlined, [["escape", "Page.render"]]);
}

/// The stream of packets, as Perfetto reads it.
#[derive(Clone, PartialEq, prost::Message)]
struct PerfettoTrace {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<perfetto::TracePacket>,
}

#[test]
fn perfetto_has_the_lines() {
    let (trace, folder) = (trace(), tempfile::tempdir().unwrap());
    let (path, _) = write(&trace, Format::Perfetto, &Options::default(), folder.path());
    let read = PerfettoTrace::decode(&std::fs::read(path).unwrap()[..]).unwrap();
    let mut names = BTreeMap::new();
    let mut files = BTreeMap::new();
    let mut frames = BTreeSet::new();
    for interned in read.packet.iter().filter_map(|p| p.interned_data.as_ref()) {
        let text =
            |s: &perfetto::InternedString| String::from_utf8(s.str.clone().unwrap()).unwrap();
        names.extend(interned.function_names.iter().map(|s| (s.iid, text(s))));
        files.extend(interned.source_paths.iter().map(|s| (s.iid, text(s))));
        for frame in &interned.frames {
            let name = names[&frame.function_name_id].clone();
            let file = files
                .get(&frame.source_path_iid)
                .cloned()
                .unwrap_or_default();
            frames.insert((name, file, frame.line_number.unwrap_or(0)));
        }
    }
    for (name, line) in LINES {
        let has = |(n, file, l): &(String, String, u32)| {
            n == name && u64::from(*l) == line && file.ends_with(".py")
        };
        assert!(frames.iter().any(has), "{name}: {frames:?}");
    }
    assert!(frames.iter().any(|(name, ..)| name == "[unknown method]"));
    // Frames of one function are told apart by it, also where no line is known.
    let render = read.packet.iter().filter_map(|p| p.interned_data.as_ref());
    let pcs: Vec<_> = render
        .flat_map(|i| &i.frames)
        .map(|f| (f.mapping_id, f.rel_pc))
        .collect();
    assert_eq!(pcs.iter().collect::<BTreeSet<_>>().len(), pcs.len());
}

#[test]
fn firefox_has_the_lines() {
    let (trace, folder) = (trace(), tempfile::tempdir().unwrap());
    let (path, _) = write(&trace, Format::Firefox, &Options::default(), folder.path());
    let text = std::fs::read_to_string(path).unwrap();
    let profile: Value = serde_json::from_str(&text).unwrap();
    for (name, line) in LINES {
        assert!(
            firefox_frames(&profile).contains(&(name.to_owned(), line)),
            "{name}"
        );
    }
}

fn firefox_frames(profile: &Value) -> BTreeSet<(String, u64)> {
    let mut frames = BTreeSet::new();
    for thread in profile["threads"].as_array().unwrap() {
        let (table, functions) = (&thread["frameTable"], &thread["funcTable"]);
        let strings = match &thread["stringArray"] {
            Value::Null => &profile["shared"]["stringArray"],
            strings => strings,
        };
        for (i, function) in table["func"].as_array().unwrap().iter().enumerate() {
            let name = functions["name"][function.as_u64().unwrap() as usize].as_u64();
            let name = strings[name.unwrap() as usize].as_str().unwrap();
            frames.insert((name.to_owned(), table["line"][i].as_u64().unwrap_or(0)));
        }
    }
    frames
}

#[test]
fn speedscope_has_the_files() {
    let (trace, folder) = (trace(), tempfile::tempdir().unwrap());
    let (path, _) = write(
        &trace,
        Format::Speedscope,
        &Options::default(),
        folder.path(),
    );
    let text = std::fs::read_to_string(path).unwrap();
    let profile: Value = serde_json::from_str(&text).unwrap();
    let frames = profile["shared"]["frames"].as_array().unwrap();
    let render = frames.iter().find(|f| f["name"] == "Page.render").unwrap();
    assert_eq!(
        (&render["file"], &render["line"]),
        (&"/srv/page.py".into(), &30.into())
    );
}

/// The standard output of a command that must succeed.
fn stackbeat(arguments: &[&str], folder: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_stackbeat"))
        .args(arguments)
        .current_dir(folder)
        .env("NO_COLOR", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn reports_and_comparisons_have_the_names() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for side in ["a", "b"] {
        std::fs::create_dir(folder.join(side)).unwrap();
        for run in 0..5 {
            let path = folder.join(side).join(format!("{run}.beat"));
            std::fs::write(path, synthetic::managed()).unwrap();
        }
    }
    let text = stackbeat(&["report", "a/0.beat"], folder);
    for name in [
        "Page.render  [page.py:30]",
        "escape  [text.py:50]",
        "[unknown method]",
    ] {
        assert!(text.contains(name), "{text}");
    }
    let text = stackbeat(&["report", "a/0.beat", "--function", "Page.render"], folder);
    assert!(
        text.contains("/srv/page.py:30") && text.contains("handle_request"),
        "{text}"
    );

    let json: Value =
        serde_json::from_str(&stackbeat(&["report", "a/0.beat", "--json"], folder)).unwrap();
    let functions = json["functions"].as_array().unwrap();
    let render = functions
        .iter()
        .find(|f| f["name"] == "Page.render")
        .unwrap();
    assert_eq!(
        (&render["module"], &render["file"]),
        (&"python".into(), &"/srv/page.py".into())
    );

    stackbeat(&["report", "a/0.beat", "--html", "page.html"], folder);
    let page = std::fs::read_to_string(folder.join("page.html")).unwrap();
    for name in [
        "Page.render",
        "handle.\\u003clocals>.answer",
        "[unknown method]",
    ] {
        assert!(page.contains(name), "{name}");
    }

    let same = stackbeat(&["diff", "a", "b"], folder);
    assert!(!same.is_empty());
    let verdict = stackbeat(
        &[
            "gate",
            "--baseline",
            "a",
            "--candidate",
            "b",
            "--format",
            "json",
        ],
        folder,
    );
    let verdict: Value = serde_json::from_str(&verdict).unwrap();
    assert!(verdict.is_object());

    let checked = stackbeat(&["info", "a/0.beat", "--check"], folder);
    assert!(!checked.is_empty());
}
