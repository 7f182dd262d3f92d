//! Source lines for a page: those around the line of a function, of the functions that matter most.
//!
//! Names of files come from the trace, which may be somebody else's. So only absolute paths of regular files
//! that are named as source files are read, and none that changed since the recording: its lines would be
//! wrong.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::summary::metadata::FunctionName;

/// Functions that have lines in a page, at most.
const MOST_FUNCTIONS: usize = 200;
/// Lines before and after a function's line.
const BEFORE: usize = 3;
const AFTER: usize = 24;
/// Longer lines are cut, in bytes.
const LONGEST_LINE: usize = 240;
/// Larger files are generated ones.
const LARGEST_FILE: u64 = 4 << 20;
const EXTENSIONS: [&str; 44] = [
    "asm", "c", "cc", "cpp", "cs", "cts", "cxx", "d", "ex", "exs", "f", "f90", "go", "h", "hh",
    "hpp", "hs", "hxx", "java", "jl", "js", "jsx", "kt", "lua", "m", "mjs", "ml", "mm", "nim",
    "php", "pl", "pm", "py", "pyi", "pyx", "rb", "rs", "s", "scala", "sh", "swift", "ts", "tsx",
    "zig",
];

/// Lines of a file.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct SourceLines {
    /// Number of the first one.
    from: usize,
    /// Where the function is.
    line: usize,
    text: Vec<String>,
}

/// Lines of functions by their number. `order` has those that matter most first; `recorded` is when the
/// recording began.
pub(super) fn read(
    functions: &[&FunctionName],
    order: impl Iterator<Item = usize>,
    recorded: SystemTime,
) -> BTreeMap<usize, SourceLines> {
    let mut files: HashMap<&str, Option<String>> = HashMap::new();
    let mut found = BTreeMap::new();
    for number in order {
        let Some(function) = functions.get(number) else {
            continue;
        };
        let text = (files.entry(&function.file))
            .or_insert_with(|| read_file(Path::new(&function.file), recorded));
        let Some(lines) = text
            .as_deref()
            .and_then(|t| around(t, function.line as usize))
        else {
            continue;
        };
        found.insert(number, lines);
        if found.len() == MOST_FUNCTIONS {
            break;
        }
    }
    found
}

fn read_file(path: &Path, recorded: SystemTime) -> Option<String> {
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    if !path.is_absolute() || !EXTENSIONS.contains(&extension.as_str()) {
        return None;
    }
    let metadata = path.metadata().ok()?;
    let is_older = metadata.modified().ok()? <= recorded + Duration::from_secs(1);
    if !metadata.is_file() || metadata.len() > LARGEST_FILE || !is_older {
        return None;
    }
    std::fs::read_to_string(path).ok()
}

fn around(text: &str, line: usize) -> Option<SourceLines> {
    let from = line.checked_sub(1)?.saturating_sub(BEFORE) + 1;
    let lines: Vec<String> = (text.lines().skip(from - 1).take(line - from + 1 + AFTER))
        .map(|text| text[..text.floor_char_boundary(LONGEST_LINE)].to_owned())
        .collect();
    (lines.len() > line - from).then_some(SourceLines {
        from,
        line,
        text: lines,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_one(file: &Path, line: u32, recorded: SystemTime) -> Option<SourceLines> {
        let function = FunctionName {
            file: file.display().to_string(),
            line,
            ..FunctionName::default()
        };
        read(&[&function], [0].into_iter(), recorded).remove(&0)
    }

    #[test]
    fn lines_come_from_source_files_that_did_not_change() {
        let folder = tempfile::tempdir().expect("a folder");
        let text: String = (1..=50).map(|n| format!("line {n}\n")).collect();
        let file = folder.path().join("shop.py");
        let secret = folder.path().join("id_rsa");
        for path in [&file, &secret] {
            std::fs::write(path, &text).expect("writes");
        }
        let now = SystemTime::now();
        let lines = read_one(&file, 10, now).expect("lines");
        assert_eq!((lines.from, lines.line), (7, 10));
        assert_eq!(lines.text[3], "line 10");
        assert_eq!(lines.text.len(), 3 + 1 + AFTER);
        assert_eq!(read_one(&file, 1, now).expect("lines").from, 1);
        assert_eq!(read_one(&file, 50, now).expect("lines").text.len(), 4);
        for line in [0, 51] {
            assert_eq!(read_one(&file, line, now), None);
        }
        assert_eq!(read_one(&secret, 10, now), None, "no source file");
        assert_eq!(read_one(folder.path(), 10, now), None);
        let earlier = now - Duration::from_secs(60);
        assert_eq!(read_one(&file, 10, earlier), None, "changed since");
    }
}
