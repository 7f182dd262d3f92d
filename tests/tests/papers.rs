//! The form of the project's papers: what they name is there (links and paths in every document, and paths in
//! the comments of the code), and their lines end at the last column.

use std::path::{Component, Path, PathBuf};
use std::process::Command;

use stackbeat_tests::workspace;

/// Endings of files that a path in backticks means; others may be anything.
const ENDINGS: [&str; 8] = ["rs", "py", "sh", "md", "c", "toml", "proto", "yml"];
/// Folders of Linux' and glibc's sources, which comments name as well.
const ELSEWHERE: [&str; 8] = [
    "arch", "fs", "include", "io_uring", "kernel", "mm", "net", "sysdeps",
];

/// Files under version control, from the root of the project.
fn files(root: &Path) -> Vec<PathBuf> {
    let output = Command::new("git")
        .args(["-c", "safe.directory=*", "ls-files"])
        .args(["--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .expect("git runs");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.lines().map(PathBuf::from).collect()
}

/// Without `.` and `..`.
fn resolved(path: &Path) -> PathBuf {
    let mut whole = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(whole.pop()),
            Component::CurDir => {}
            part => whole.push(part),
        }
    }
    whole
}

/// Whether `path`, named in `document`, is a file or a folder: from the root, from the document, or the end
/// of a longer path, as papers about one crate have it.
fn is_there(files: &[PathBuf], document: &Path, path: &str) -> bool {
    let beside = resolved(&document.parent().unwrap_or(Path::new("")).join(path));
    let path = Path::new(path);
    files.iter().any(|file| {
        file.ancestors()
            .any(|part| !part.as_os_str().is_empty() && (part.ends_with(path) || part == beside))
    })
}

/// Targets of links, without those to other sites.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'));
    let files = targets.map(|(target, _)| target.split_once('#').map_or(target, |(file, _)| file));
    files.filter(|file| !file.is_empty() && !file.contains("://"))
}

/// Paths in backticks.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter(|path| {
        let is_word = path
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "._/-".contains(c));
        let ending = Path::new(path).extension().and_then(|e| e.to_str());
        let is_file = ending.is_some_and(|ending| ENDINGS.contains(&ending));
        let is_ours = !ELSEWHERE.iter().any(|folder| path.starts_with(folder));
        is_word && is_file && is_ours && path.contains('/') && !path.starts_with(['/', '.'])
    })
}

#[test]
fn paths_that_papers_name_exist() {
    let root = workspace();
    let files = files(root);
    let mut missing = Vec::new();
    let mut seen = 0;
    for file in &files {
        let Ok(text) = std::fs::read_to_string(root.join(file)) else {
            continue;
        };
        let ending = file.extension().and_then(|e| e.to_str());
        let named: Vec<String> = match ending {
            Some("md") => {
                let quoted = text.split("\n\n").flat_map(paths);
                links(&text).chain(quoted).map(str::to_owned).collect()
            }
            Some("rs") => {
                // A line each: backticks need not be in pairs elsewhere.
                let comments = text
                    .lines()
                    .filter(|line| line.trim_start().starts_with("//"));
                comments.flat_map(paths).map(str::to_owned).collect()
            }
            _ => continue,
        };
        seen += named.len();
        let gone = named.iter().filter(|path| !is_there(&files, file, path));
        missing.extend(gone.map(|path| format!("{}: {path}", file.display())));
    }
    assert!(seen > 100, "{seen} paths were found");
    // The user's own.
    missing.retain(|line| line != "docs/configuration.md: stackbeat/stackbeat.toml");
    assert!(missing.is_empty(), "not there:\n{}", missing.join("\n"));
}

#[test]
fn text_ends_at_its_last_column() {
    let output = Command::new("python3")
        .args(["scripts/wrap.py", "--check"])
        .current_dir(workspace())
        .output()
        .expect("python3 runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{output:?}");
}
