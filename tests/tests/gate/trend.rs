//! `stackbeat trend` on real recordings of the commits of a real repository. Counts only: they are the same
//! on a loaded machine.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use prost::Message;
use serde_json::Value;
use stackbeat_proto::v1::{Trace, packet::Body};
use stackbeat_tests::tool::binary;

/// Only allocations must be known for "no regression".
const POLICY: &str = "[gate]\nrequired = [\"allocations\"]\n\
                      ignore-metrics = [\"wall\", \"cpu\", \"lock\", \"io\", \"net\", \"sleep\", \"minor-faults\", \"major-faults\"]\n";

fn run(program: &str, folder: &Path, arguments: &[&str]) -> Output {
    Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .env_remove("STACKBEAT_AGENT")
        .env("NO_COLOR", "1")
        // No settings of this machine's user.
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .stdin(Stdio::null())
        .output()
        .expect("runs")
}

fn done(program: &str, folder: &Path, arguments: &[&str]) -> String {
    let output = run(program, folder, arguments);
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {output:?}"
    );
    String::from_utf8_lossy(&output.stdout).trim().to_string()
}

/// A repository with a commit for each number of allocations a round, and its program in `bin/HASH`. Gives
/// the hashes.
fn commits(folder: &Path, allocations: &[u32]) -> Vec<String> {
    let source = include_str!("shop.c");
    let usual = "more ? 15000 : 10000";
    assert!(source.contains(usual));
    std::fs::write(folder.join("policy.toml"), POLICY).expect("is written");
    done("git", folder, &["init", "-q", "-b", "main"]);
    let mut hashes = Vec::new();
    for (at, count) in allocations.iter().enumerate() {
        let text = source.replace(usual, &count.to_string());
        std::fs::write(folder.join("shop.c"), format!("{text}// {at}\n")).expect("is written");
        done("git", folder, &["add", "shop.c"]);
        let subject = format!("Change {at}: {count} texts");
        let who = ["-c", "user.name=A", "-c", "user.email=a@example.com"];
        let commit = ["commit", "-q", "-m", &subject];
        done("git", folder, &[&who[..], &commit].concat());
        let hash = done("git", folder, &["rev-parse", "HEAD"]);
        let program = format!("bin/{hash}/shop");
        std::fs::create_dir_all(folder.join("bin").join(&hash)).expect("is made");
        done("cc", folder, &["-g", "-pthread", "-o", &program, "shop.c"]);
        hashes.push(hash);
    }
    hashes
}

/// Records a commit's program.
fn record(folder: &Path, hash: &str, output: &str, more: &[&str]) {
    let file = folder.join(output);
    std::fs::create_dir_all(file.parent().expect("a folder")).expect("is made");
    let record = ["record", "-q", "-o", output];
    let program = format!("bin/{hash}/shop");
    done(
        binary(),
        folder,
        &[&record[..], more, &["--", &program, "2"]].concat(),
    );
}

fn trend(folder: &Path, arguments: &[&str]) -> (Option<i32>, Value) {
    let usual = [
        "trend",
        "runs",
        "--policy",
        "policy.toml",
        "--format",
        "json",
    ];
    let output = run(binary(), folder, &[&usual[..], arguments].concat());
    let json = serde_json::from_slice(&output.stdout);
    let json = json.unwrap_or_else(|e| panic!("{e}: {output:?}"));
    (output.status.code(), json)
}

/// Name of the commit and first text of each finding of the only series.
fn findings(json: &Value) -> Vec<(String, String)> {
    let series = json["series"].as_array().expect("a list");
    assert_eq!(series.len(), 1, "{json:#}");
    let found = series[0]["findings"].as_array().expect("a list");
    let text = |value: &Value| value.as_str().expect("a text").to_string();
    found
        .iter()
        .map(|f| (text(&f["name"]), text(&f["changes"][0]["text"])))
        .collect()
}

#[test]
fn the_commit_that_allocates_more_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let hashes = commits(at, &[1000, 1000, 1000, 1300, 1300, 1300]);
    // The newest is recorded first: the history orders, not the clock. One names its commit by its folder,
    // one by its file, the others by what was recorded. The fifth was never measured.
    for nth in [5, 0, 3, 1, 2] {
        for again in 0..2 {
            let hash = hashes[nth].as_str();
            let (file, more) = match nth {
                0 => (format!("runs/{}/{again}.beat", &hash[..10]), vec![]),
                1 => (format!("runs/{hash}-{again}.beat"), vec![]),
                _ => (format!("runs/r{nth}/{again}.beat"), vec!["--commit", hash]),
            };
            record(at, hash, &file, &more);
        }
    }
    let (code, json) = trend(at, &[]);
    assert_eq!(code, Some(1), "{json:#}");
    assert_eq!(json["order"], "git");
    let found = findings(&json);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(hashes[3].starts_with(&found[0].0), "{found:?}");
    assert!(
        found[0].1.starts_with("allocations +") && found[0].1.contains("exactly"),
        "{found:?}"
    );
    let series = &json["series"][0];
    assert_eq!(series["commits"].as_array().map(Vec::len), Some(5));
    let part = &series["findings"][0]["parts"][0];
    assert_eq!(
        (&part["role"]["process"], &part["share"]),
        (&"shop".into(), &1.0.into())
    );

    // Looked at from a later commit on, nothing became worse, also when that commit was not measured.
    for since in [4, 5] {
        let (code, json) = trend(at, &["--since", &hashes[since]]);
        assert_eq!(code, Some(0), "{json:#}");
    }
    assert_eq!(trend(at, &["--since", &hashes[3]]).0, Some(1));

    // Times cannot be told with five commits.
    let text = run(binary(), at, &["trend", "runs", "--since", &hashes[5]]);
    assert_eq!(text.status.code(), Some(3), "{text:?}");
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(
        text.starts_with("cannot tell: 5 more commits at least would tell"),
        "{text}"
    );

    // A budget that the newest commit exceeds is a regression, whatever the commits before did.
    let budget = |max: u32| {
        let budget = format!("[[budget]]\nmetric = \"allocations\"\nmax = {max}\n");
        let unknown = "[[budget]]\nfunction = \"nowhere\"\nmetric = \"cpu\"\nmax = \"1s\"\n";
        std::fs::write(at.join("budget.toml"), format!("{POLICY}{budget}{unknown}"))
            .expect("is written");
        let late = ["--policy", "budget.toml", "--since", &hashes[5]];
        let arguments = [&["trend", "runs", "--format", "json"], &late[..]].concat();
        let output = run(binary(), at, &arguments);
        let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        (output.status.code(), json)
    };
    let (code, json) = budget(100);
    assert_eq!(code, Some(1), "{json:#}");
    let headline = json["headline"].as_str().expect("a text");
    assert!(
        headline.starts_with("over budget: allocations is "),
        "{headline}"
    );
    assert_eq!(
        json["series"][0]["over_budget"].as_array().map(Vec::len),
        Some(1)
    );
    let (code, json) = budget(100_000_000);
    assert_eq!(code, Some(0), "{json:#}");
    let notes = json["series"][0]["notes"].to_string();
    assert!(notes.contains("function nowhere holds nothing"), "{notes}");

    // All forms name the commit and what it did.
    let usual = [
        "trend",
        "runs",
        "--policy",
        "policy.toml",
        "--format",
        "github",
    ];
    let files = [
        "-o", "t.md", "-o", "t.html", "-o", "t.xml", "-o", "t.sarif", "-o", "t.txt",
    ];
    let output = run(binary(), at, &[&usual[..], &files].concat());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let github = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(github.starts_with("::error "), "{github}");
    for name in ["t.md", "t.html", "t.xml", "t.sarif", "t.txt"] {
        let text = std::fs::read_to_string(at.join(name)).expect("was written");
        for part in ["Change 3: 1300 texts", "allocations +", &hashes[3][..7]] {
            assert!(text.contains(part), "{name} has no {part}: {text}");
        }
    }
    let text = std::fs::read_to_string(at.join("t.txt")).expect("was written");
    assert!(
        text.contains("stackbeat gate -b runs/r2 -c runs/r3 --policy policy.toml"),
        "{text}"
    );
    // What it tells to run says why.
    let pair = ["-b", "runs/r2", "-c", "runs/r3", "--policy", "policy.toml"];
    let gate = run(binary(), at, &[&["gate"], &pair[..]].concat());
    assert_eq!(gate.status.code(), Some(1), "{gate:?}");
}

#[test]
fn a_series_without_a_change_has_no_finding_and_machines_are_kept_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let hashes = commits(at, &[1000, 1000, 1000]);
    for hash in &hashes {
        for again in 0..2 {
            record(at, hash, &format!("runs/{hash}/{again}.beat"), &[]);
        }
    }
    let (code, json) = trend(at, &[]);
    assert_eq!(code, Some(0), "{json:#}");
    assert_eq!(findings(&json), []);

    // The same program on a machine where it allocates more: one trace of each commit moves there.
    for hash in &hashes {
        record(at, &hashes[0], "other.beat", &["-f", "--commit", hash]);
        let bytes = std::fs::read(at.join("other.beat")).expect("is read");
        let mut trace = Trace::decode(&bytes[..]).expect("a trace");
        for packet in &mut trace.packet {
            if let Some(Body::Header(header)) = &mut packet.body {
                header.cpu_model = "Other CPU".into();
            }
        }
        for again in 0..2 {
            let file = format!("runs/{hash}/other-{again}.beat");
            std::fs::write(at.join(file), trace.encode_to_vec()).expect("is written");
        }
    }
    let (code, json) = trend(at, &[]);
    assert_eq!(code, Some(0), "{json:#}");
    let series = json["series"].as_array().expect("a list");
    let mut models: Vec<bool> = series
        .iter()
        .map(|s| {
            s["machine"]
                .as_str()
                .expect("a text")
                .starts_with("Other CPU")
        })
        .collect();
    models.sort_unstable();
    assert_eq!(models, [false, true]);
    for one in series {
        assert_eq!(one["commits"].as_array().map(Vec::len), Some(3));
        let traces = one["traces"].as_array().expect("a list").iter();
        assert!(traces.flat_map(|t| t.as_array()).all(|t| t.len() == 2));
        let notes = one["notes"].to_string();
        assert!(notes.contains("kept apart"), "{notes}");
    }
}

#[test]
fn mistakes_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let says = |arguments: &[&str]| {
        let output = run(binary(), at, arguments);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let text = says(&["trend", "nowhere"]);
    assert!(text.contains("nowhere: no such folder"), "{text}");
    std::fs::create_dir(at.join("empty")).expect("is made");
    let text = says(&["trend", "empty"]);
    assert!(text.contains("empty: no .beat file"), "{text}");
    let hashes = commits(at, &[1000]);
    record(at, &hashes[0], "runs/first/1.beat", &[]);
    let text = says(&["trend", "runs", "--repo", "empty/nothing"]);
    assert!(
        text.contains("--repo") && text.contains("empty/nothing"),
        "{text}"
    );
    let text = says(&["trend", "runs", "--repo", "."]);
    for part in ["runs/first/1.beat", "no commit or tag", "--commit", "first"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text = says(&["trend", "runs", "--since", "nothing"]);
    assert!(text.contains("--since nothing"), "{text}");
}
