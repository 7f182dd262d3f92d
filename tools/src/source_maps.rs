//! Source maps: where the sources are of JavaScript that a compiler or a bundler wrote (ECMA-426, version 3).
//!
//! V8 names a function by its place in the file that it runs. That file says at its end where its map is
//! (`//# sourceMappingURL=`), or the map lies beside it. Maps are read once, when the first name of their
//! file is looked up.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use stackbeat_symbolize::{SourceMaps, SourcePlace};

use crate::units::bytes;

/// Larger files are not read.
const MOST_BYTES: u64 = 256 << 20;
/// What a line begins with that names the map; the second one is the old way to write it.
const COMMENTS: [&str; 2] = ["//# sourceMappingURL=", "//@ sourceMappingURL="];

/// Letters between a function's name and the place that V8 says: none, or those of `n=`, `n = `, `n=function`
/// and `n = function`, and as many with `n:`.
const BETWEEN: [usize; 6] = [
    0,
    "=".len(),
    " = ".len(),
    ": ".len(),
    "=function".len(),
    " = function".len(),
];

/// The maps of this file system's files.
#[derive(Debug, Default)]
pub(crate) struct FromFiles {
    maps: Mutex<HashMap<PathBuf, Option<Arc<Map>>>>,
    complaints: Mutex<BTreeSet<String>>,
}

impl SourceMaps for FromFiles {
    fn original(&self, file: &str, name: &str, line: u32, column: u32) -> Option<SourcePlace> {
        let file = Path::new(file);
        if !file.is_absolute() {
            return None;
        }
        let mut maps = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
        let known = maps.get(file).cloned();
        let map = known.unwrap_or_else(|| {
            let map = match read(file) {
                Ok(map) => map.map(Arc::new),
                Err(complaint) => {
                    let complaints = self.complaints.lock();
                    let mut complaints = complaints.unwrap_or_else(PoisonError::into_inner);
                    complaints.insert(complaint);
                    None
                }
            };
            maps.insert(file.to_owned(), map.clone());
            map
        })?;
        map.original(name, line, column)
    }

    fn complaints(&self) -> Vec<String> {
        let complaints = self.complaints.lock();
        let complaints = complaints.unwrap_or_else(PoisonError::into_inner);
        complaints.iter().cloned().collect()
    }
}

/// The maps of files, if somebody wants them.
pub(crate) fn wanted(is_wanted: bool) -> Option<Arc<dyn SourceMaps>> {
    is_wanted.then(|| Arc::new(FromFiles::default()) as Arc<dyn SourceMaps>)
}

/// A stretch of a line that was written for one place of a source; it ends where the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    /// Counted from 0, as the line in the source.
    column: u32,
    /// Index of the source, its line, and index of the name there; `None`: of no source.
    source: Option<(u32, u32, Option<u32>)>,
}

/// A map, with the places of its sources.
#[derive(Debug, Default)]
struct Map {
    /// By line of the generated file; each in order of its columns.
    lines: Vec<Vec<Segment>>,
    sources: Vec<String>,
    names: Vec<String>,
}

impl Map {
    /// `line` and `column` count from 1; V8's column is that of the parenthesis behind a function's name.
    fn original(&self, name: &str, line: u32, column: u32) -> Option<SourcePlace> {
        let segments = self.lines.get(line.checked_sub(1)? as usize)?;
        let column = column.saturating_sub(1);
        let at = segments.partition_point(|segment| segment.column <= column);
        let (source, line, _) = segments[..at].last()?.source?;
        let length = u32::try_from(name.chars().count()).ok()?;
        let at_name = BETWEEN.iter().find_map(|between| {
            let begin = column.checked_sub(length + *between as u32)?;
            let end = segments.partition_point(|segment| segment.column <= begin);
            let is_there = |segment: &&Segment| segment.column == begin;
            let mut there = segments[..end].iter().rev().take_while(is_there).peekable();
            there.peek()?;
            Some(there.find_map(|segment| segment.source?.2))
        });
        let index = at_name.flatten().filter(|_| !name.is_empty());
        Some(SourcePlace {
            file: self.sources.get(source as usize)?.clone(),
            line: line.checked_add(1)?,
            name: index.and_then(|index| self.names.get(index as usize).cloned()),
        })
    }
}

/// What a map's file holds.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Content {
    version: u32,
    #[serde(default)]
    source_root: Option<String>,
    #[serde(default)]
    sources: Vec<Option<String>>,
    #[serde(default)]
    names: Vec<String>,
    #[serde(default)]
    mappings: String,
    /// An index map: maps of parts of the file.
    #[serde(default)]
    sections: Vec<Section>,
}

#[derive(Deserialize)]
struct Section {
    offset: Offset,
    map: Content,
}

#[derive(Deserialize)]
struct Offset {
    line: u32,
    column: u32,
}

/// The map of a generated file; `None`: it has none.
fn read(file: &Path) -> Result<Option<Map>, String> {
    let Some(text) = content(file)? else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(&text);
    let beside = PathBuf::from(format!("{}.map", file.display()));
    let url = text.lines().rev().find_map(url_of).map(str::trim);
    let (at, json) = match url {
        Some(inline) if inline.starts_with("data:") => {
            let Some((_, packed)) = inline.split_once(";base64,") else {
                return Err(format!("source map in {}: not in base64", file.display()));
            };
            let json = STANDARD.decode(packed);
            let json = json.map_err(|e| format!("source map in {}: {e}", file.display()))?;
            (file.to_owned(), json)
        }
        Some(url) if url.contains("://") => return Ok(None),
        Some(url) => {
            let at = file.parent().unwrap_or(Path::new("/")).join(url);
            let Some(json) = content(&at)? else {
                let (at, file) = (at.display(), file.display());
                return Err(format!("source map {at}, which {file} names: not there"));
            };
            (at, json)
        }
        None => match content(&beside)? {
            Some(json) => (beside, json),
            None => return Ok(None),
        },
    };
    // A first line that keeps browsers from running it (ECMA-426, 9.1).
    let json = match json.strip_prefix(b")]}'") {
        Some(rest) => rest.splitn(2, |byte| *byte == b'\n').nth(1),
        None => Some(&*json),
    };
    let content = serde_json::from_slice(json.unwrap_or_default());
    let folder = at.parent().unwrap_or(Path::new("/"));
    let map = content
        .map_err(|e| e.to_string())
        .and_then(|content| parse(content, folder));
    map.map(Some)
        .map_err(|e| format!("source map {}: {e}", at.display()))
}

/// Where a line says that the map is.
fn url_of(line: &str) -> Option<&str> {
    COMMENTS.iter().find_map(|begin| line.strip_prefix(begin))
}

/// A file's bytes; `None`: it is not there.
fn content(file: &Path) -> Result<Option<Vec<u8>>, String> {
    let said = |e: std::io::Error| format!("{}: {e}", file.display());
    let meta = match fs::metadata(file) {
        Ok(meta) => meta,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(said(e)),
    };
    if !meta.is_file() {
        return Ok(None);
    }
    if meta.len() > MOST_BYTES {
        let most = bytes(MOST_BYTES);
        return Err(format!("{}: larger than {most}, not read", file.display()));
    }
    fs::read(file).map(Some).map_err(said)
}

fn parse(content: Content, folder: &Path) -> Result<Map, String> {
    let mut map = Map::default();
    add(content, folder, (0, 0), &mut map)?;
    for line in &mut map.lines {
        line.sort_by_key(|segment| segment.column);
    }
    Ok(map)
}

/// Adds a map whose first line and column are these of the file.
fn add(
    content: Content,
    folder: &Path,
    (line, column): (u32, u32),
    to: &mut Map,
) -> Result<(), String> {
    if content.version != 3 {
        return Err(format!("version {}, not 3", content.version));
    }
    for section in content.sections {
        let Offset { line, column } = section.offset;
        if !section.map.sections.is_empty() {
            return Err("an index within an index".to_owned());
        }
        add(section.map, folder, (line, column), to)?;
    }
    let (first_source, first_name) = (to.sources.len() as i64, to.names.len() as i64);
    let root = content.source_root.unwrap_or_default();
    to.sources.extend(content.sources.iter().map(|source| {
        let source = source.as_deref().unwrap_or_default();
        absolute(folder, &root, source)
    }));
    to.names.extend(content.names);
    let mut of = [first_source, 0, 0, first_name];
    for (number, text) in content.mappings.split(';').enumerate() {
        let number = line as usize + number;
        let mut at = if number == line as usize {
            i64::from(column)
        } else {
            0
        };
        for text in text.split(',').filter(|text| !text.is_empty()) {
            let mut bytes = text.bytes();
            let mut fields = [0_i64; 5];
            let mut count = 0;
            while bytes.len() > 0 {
                let value =
                    vlq::decode(&mut bytes).map_err(|e| format!("mapping {text}: {e:?}"))?;
                *fields
                    .get_mut(count)
                    .ok_or("a mapping of more than five fields")? = value;
                count += 1;
            }
            let index = |value: i64| u32::try_from(value).map_err(|_| format!("mapping {text}"));
            at = at
                .checked_add(fields[0])
                .ok_or("a column that is too large")?;
            let is_of_source = count >= 4;
            if is_of_source {
                for (sum, more) in of.iter_mut().zip(&fields[1..]) {
                    *sum = sum.checked_add(*more).ok_or("a number that is too large")?;
                }
            }
            let segment = Segment {
                column: index(at)?,
                source: match is_of_source {
                    true => Some((
                        index(of[0])?,
                        index(of[1])?,
                        if count == 5 {
                            Some(index(of[3])?)
                        } else {
                            None
                        },
                    )),
                    false => None,
                },
            };
            if to.lines.len() <= number {
                to.lines.resize_with(number + 1, Vec::new);
            }
            to.lines[number].push(segment);
        }
    }
    Ok(())
}

/// Where a source is, as the map says it: seen from the map's folder.
fn absolute(folder: &Path, root: &str, source: &str) -> String {
    let source = match root {
        "" => source.to_owned(),
        root => format!("{}/{source}", root.trim_end_matches('/')),
    };
    if let Some(path) = source.strip_prefix("file://") {
        return path.to_owned();
    }
    // `webpack://shop/./src/page.ts`: the bundler's own.
    if source.contains("://") {
        return source;
    }
    let mut path = PathBuf::new();
    for part in folder.join(source).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Line 1: column 0 is of line 1 of `a.ts`, column 9 of line 3 there by the name `render`, column 10 as
    /// well without one. Line 3: column 4 is of `b.ts`, line 1; column 8 of no source.
    const MAPPINGS: &str = "AAAA,SAEEA,CAAA;;ICFF,I";

    fn map(json: &str) -> Result<Map, String> {
        let content = serde_json::from_str(json).map_err(|e| e.to_string());
        content.and_then(|content| parse(content, Path::new("/srv/dist")))
    }

    fn of(mappings: &str) -> String {
        format!(
            r#"{{"version": 3, "sources": ["../src/a.ts", "webpack://shop/./b.ts"], "names": ["render"], "mappings": "{mappings}"}}"#
        )
    }

    #[test]
    fn a_place_is_that_of_the_segment_it_lies_in() {
        let map = map(&of(MAPPINGS)).expect("a map");
        let place = |name: &str, line, column| {
            let found = map.original(name, line, column)?;
            Some((found.file, found.line, found.name))
        };
        let a = |line, name: Option<&str>| {
            Some(("/srv/src/a.ts".to_owned(), line, name.map(str::to_owned)))
        };
        assert_eq!(place("", 1, 5), a(1, None));
        // `function a(`: the parenthesis is in column 11, the name in column 10.
        assert_eq!(place("a", 1, 11), a(3, Some("render")));
        assert_eq!(place("ab", 1, 11), a(3, None));
        assert_eq!(place("", 1, 500), a(3, None));
        let b = Some(("webpack://shop/./b.ts".to_owned(), 1, None));
        assert_eq!(place("", 3, 6), b);
        for (line, column) in [(2, 1), (3, 1), (3, 9), (4, 1), (0, 0)] {
            assert_eq!(place("", line, column), None, "{line}:{column}");
        }
    }

    #[test]
    fn a_function_that_a_name_is_given_to_has_that_name() {
        // `a=t=>` and `a = t =>`, of which `a` is in column 10; V8's column is that of `t`.
        for (mappings, column) in [("AAAA,SAEEA,EAAA", 12), ("AAAA,SAEEA,IAAA", 14)] {
            let map = map(&of(mappings)).expect("a map");
            let name = |name: &str| map.original(name, 1, column)?.name;
            assert_eq!(name("a").as_deref(), Some("render"), "{mappings}");
            assert_eq!(name("abcdefgh"), None, "{mappings}");
            assert_eq!(name(""), None, "{mappings}");
        }
        // What stands before it is another one's.
        let map = map(&of("AAAA,OAEEA,EAAA,EAAA")).expect("a map");
        let name = |name: &str| map.original(name, 1, 12).and_then(|found| found.name);
        assert_eq!(name("a"), None);
    }

    #[test]
    fn parts_of_an_index_begin_where_it_says() {
        let index = format!(
            r#"{{"version": 3, "sections": [{{"offset": {{"line": 2, "column": 100}}, "map": {}}}]}}"#,
            of(MAPPINGS)
        );
        let map = map(&index).expect("a map");
        assert_eq!(map.original("", 3, 101).map(|found| found.line), Some(1));
        assert_eq!(map.original("", 3, 110).map(|found| found.line), Some(3));
        assert_eq!(map.original("", 5, 5).map(|found| found.line), Some(1));
        assert_eq!(map.original("", 1, 101), None);
    }

    #[test]
    fn what_is_no_map_is_said() {
        for (json, reason) in [
            ("{", "EOF"),
            (r#"{"version": 2}"#, "version 2"),
            (&of("AAAAAAA"), "five fields"),
            (&of("D"), "mapping D"),
            (&of("A!"), "mapping A!"),
        ] {
            let said = map(json).expect_err(json);
            assert!(said.contains(reason), "{json}: {said}");
        }
    }

    #[test]
    fn maps_are_found_by_the_comment_inline_and_beside() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).expect("writes");
            path.to_str().expect("UTF-8").to_owned()
        };
        let map = format!(")]}}'\n{}", of("AAEA"));
        write("named.map", &map);
        let named = write("named.js", "x\n//# sourceMappingURL=named.map\n");
        let inline = STANDARD.encode(of("AAEA"));
        let inline = format!("x\n//# sourceMappingURL=data:application/json;base64,{inline}");
        let inline = write("inline.js", &inline);
        write("beside.js.map", &map);
        // A bundler's own code may write such comments.
        let beside = write("beside.js", "x = '\\n//# sourceMappingURL=' + url");
        let maps = FromFiles::default();
        for file in [&named, &inline, &beside] {
            let found = maps.original(file, "", 1, 1).expect(file);
            assert_eq!(found.line, 3, "{file}");
        }
        assert_eq!(maps.complaints(), Vec::<String>::new());
        for file in ["node:fs", "/nowhere/a.js", &write("plain.js", "x")] {
            assert_eq!(maps.original(file, "", 1, 1), None, "{file}");
        }
        assert_eq!(maps.complaints(), Vec::<String>::new());
        let gone = write("gone.js", "//# sourceMappingURL=gone.map");
        assert_eq!(maps.original(&gone, "", 1, 1), None);
        let [said] = &maps.complaints()[..] else {
            panic!("{:?}", maps.complaints());
        };
        assert!(said.contains("gone.map"), "{said}");
    }
}
