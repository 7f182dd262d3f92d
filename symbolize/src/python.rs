//! Qualified names of Python functions (`Shop.run`) whose interpreter says only the last part: code objects
//! of CPython before 3.11 have no `co_qualname`. The source says what a function stands in.
//!
//! A wrong name is worse than none. So a source counts only if nobody has changed it since the program
//! began, and if all methods that name it are in it: their names begin on their lines, and all their lines
//! are among those of the functions.

mod scopes;

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use stackbeat_proto::v1;

use self::scopes::{Found, Scopes};

/// A larger file is no source that somebody has written.
const MOST_BYTES: u64 = 4 << 20;
/// What is read of all files.
const MOST_OF_ALL: u64 = 128 << 20;

/// What an interpreter says of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Method<'a> {
    /// `co_name`.
    pub name: &'a str,
    /// `co_filename`.
    pub file: &'a str,
    /// `co_firstlineno`.
    pub first_line: u32,
    /// From the first to behind the last line that its line table has; empty: it has none.
    pub lines: Range<u32>,
}

/// Methods of traces whose names lack what they stand in.
#[derive(Debug, Default)]
pub struct Unqualified {
    /// By number, with name and file.
    methods: BTreeMap<u32, (v1::methods::Method, String, String)>,
    /// Sources that were changed later are others; `None`: nobody knows.
    pub not_after: Option<SystemTime>,
}

/// When the program of a trace began; `None`: nobody knows.
pub fn program_began_at(header: &v1::SessionHeader) -> Option<SystemTime> {
    let ns = header.config.as_ref()?.program_began_ns;
    (ns != 0).then(|| SystemTime::UNIX_EPOCH + Duration::from_nanos(ns))
}

impl Unqualified {
    /// None so far. `not_after` is when the program began.
    pub fn new(not_after: Option<SystemTime>) -> Unqualified {
        Unqualified {
            methods: BTreeMap::new(),
            not_after,
        }
    }

    /// Takes a method in, if its name lacks something. Of several for a number the last one counts.
    pub fn take(&mut self, method: v1::methods::Method, name: String, file: String) {
        match method.is_unqualified {
            true => _ = self.methods.insert(method.number, (method, name, file)),
            false => _ = self.methods.remove(&method.number),
        }
    }

    /// The same with a method of a packet that has these strings.
    pub fn take_of(&mut self, method: &v1::methods::Method, strings: &[String]) {
        let string = |index: u32| strings.get(index as usize).cloned().unwrap_or_default();
        self.take(method.clone(), string(method.name), string(method.file));
    }

    /// Keeps the methods whose numbers `is_wanted`.
    pub fn keep(&mut self, mut is_wanted: impl FnMut(u32) -> bool) {
        self.methods.retain(|number, _| is_wanted(*number));
    }

    /// Takes in all of these.
    pub fn extend(&mut self, others: Unqualified) {
        self.methods.extend(others.methods);
    }

    /// Those whose sources say what they stand in, described anew. Their strings are 0: the qualified name,
    /// and 1: the file.
    pub fn qualify(&self) -> Vec<(v1::methods::Method, [String; 2])> {
        let Some(not_after) = self.not_after else {
            return Vec::new();
        };
        let methods = self.methods.values().map(|(method, name, file)| Method {
            name,
            file,
            first_line: method.first_line,
            lines: lines(method),
        });
        let methods: Vec<_> = methods.collect();
        let names = qualified_names(&methods, not_after);
        let qualified = |((method, _, file), name): (&(v1::methods::Method, _, String), _)| {
            let method = v1::methods::Method {
                name: 0,
                file: 1,
                is_unqualified: false,
                ..method.clone()
            };
            Some((method, [name?, file.clone()]))
        };
        let all = self.methods.values().zip(names);
        all.filter_map(qualified).collect()
    }
}

/// From the first to behind the last line of a method's line table.
fn lines(method: &v1::methods::Method) -> Range<u32> {
    let (mut line, mut lines) = (0u32, 0..0u32);
    for further in &method.line {
        line = line.wrapping_add(*further as u32);
        if line != 0 && line != u32::MAX {
            let first = if lines.is_empty() { line } else { lines.start };
            lines = first.min(line)..lines.end.max(line + 1);
        }
    }
    lines
}

/// The qualified name of each method. `None`: it is not certain. Files that were changed after `not_after`
/// are not read.
pub fn qualified_names(methods: &[Method<'_>], not_after: SystemTime) -> Vec<Option<String>> {
    let mut by_file = BTreeMap::<&str, Vec<usize>>::new();
    for (at, method) in methods.iter().enumerate() {
        by_file.entry(method.file).or_default().push(at);
    }
    let mut names = vec![None; methods.len()];
    let mut room = MOST_OF_ALL;
    for (file, of_file) in by_file {
        let Some(text) = read(Path::new(file), not_after, room.min(MOST_BYTES)) else {
            continue;
        };
        room = room.saturating_sub(text.len() as u64);
        let of_text = names_in(&text, of_file.iter().map(|at| &methods[*at]));
        for (at, name) in of_file.iter().zip(of_text.unwrap_or_default()) {
            names[*at] = name;
        }
    }
    names
}

/// The names of methods that a source has; `None`: it is not the one that they were made of.
fn names_in<'a>(
    text: &[u8],
    methods: impl Iterator<Item = &'a Method<'a>>,
) -> Option<Vec<Option<String>>> {
    if !is_ascii_superset(text) {
        return None;
    }
    let scopes = Scopes::of(text)?;
    let name = |method: &Method<'_>| {
        let found = scopes.find(method.name, method.first_line, &method.lines);
        match found {
            Found::Name(name) => Some(Some(name)),
            Found::Unsure => Some(None),
            // CPython may say another line of what stands in a string.
            Found::Nothing if method.name.starts_with('<') => Some(None),
            Found::Nothing => None,
        }
    };
    methods.map(name).collect()
}

/// Whether ASCII means itself in a source, by its declaration (PEP 263).
fn is_ascii_superset(text: &[u8]) -> bool {
    const KNOWN: [&[u8]; 9] = [
        b"utf-8",
        b"utf8",
        b"utf_8",
        b"ascii",
        b"us-ascii",
        b"latin",
        b"iso-8859",
        b"iso8859",
        b"cp125",
    ];
    let mut rest = text;
    let mut line = || {
        let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
        let end = rest.iter().position(is_end).unwrap_or(rest.len());
        let (line, behind) = rest.split_at(end);
        let end = if behind.starts_with(b"\r\n") { 2 } else { 1 };
        rest = behind.get(end..).unwrap_or_default();
        line
    };
    [line(), line()].into_iter().all(|line| {
        if !line.trim_ascii_start().starts_with(b"#") {
            return true;
        }
        let words = line.windows(6).enumerate();
        let mut names = words.filter_map(|(at, word)| match line.get(at + 6..)? {
            [b':' | b'=', name @ ..] if word == b"coding" => {
                Some(name.trim_ascii_start().to_ascii_lowercase())
            }
            _ => None,
        });
        (names.next()).is_none_or(|name| KNOWN.iter().any(|known| name.starts_with(known)))
    })
}

fn read(path: &Path, not_after: SystemTime, most: u64) -> Option<Vec<u8>> {
    if !path.is_absolute() {
        return None;
    }
    let is_good = |meta: &Metadata| {
        let changed = Duration::new(
            meta.ctime().try_into().unwrap_or(0),
            meta.ctime_nsec().try_into().unwrap_or(0),
        );
        let is_old = meta.modified().is_ok_and(|at| at <= not_after)
            && SystemTime::UNIX_EPOCH + changed <= not_after;
        meta.is_file() && is_old && (1..=most).contains(&meta.len())
    };
    // Devices are not opened, and a pipe is not waited for.
    std::fs::metadata(path).ok().filter(is_good)?;
    let mut options = File::options();
    let options = options
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    let file = options.open(path).ok()?;
    let meta = file.metadata().ok().filter(is_good)?;
    let mut text = Vec::new();
    file.take(meta.len()).read_to_end(&mut text).ok()?;
    (text.len() as u64 == meta.len()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn method<'a>(name: &'a str, file: &'a str, first_line: u32) -> Method<'a> {
        Method {
            name,
            file,
            first_line,
            lines: first_line..first_line + 1,
        }
    }

    #[test]
    fn a_source_counts_if_it_is_the_one_that_ran() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| {
            let path = folder.path().join(name);
            path.into_os_string().into_string().expect("UTF-8")
        };
        let [shop, other, fifo] = ["shop.py", "other.py", "fifo"].map(path);
        let text = "class Shop:\n  def run(self): pass\n  def stop(self): pass\n";
        std::fs::write(&shop, text).expect("written");
        std::fs::write(&other, text).expect("written");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &*fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .expect("made");
        let now = SystemTime::now();
        let methods = [
            method("run", &shop, 2),
            method("run", &other, 2),
            method("stop", &shop, 3),
            // There it has another line: this is not what ran.
            method("stop", &other, 4),
            method("run", &fifo, 2),
            method("run", "shop.py", 2),
            method("run", "<string>", 2),
            method("run", "/dev/zero", 2),
            method("run", "", 2),
        ];
        let mut expected = vec![None; methods.len()];
        expected[0] = Some("Shop.run".to_owned());
        expected[2] = Some("Shop.stop".to_owned());
        assert_eq!(qualified_names(&methods, now), expected);
        let before = now - Duration::from_secs(60);
        assert_eq!(qualified_names(&methods, before), vec![None; methods.len()]);
    }

    #[test]
    fn a_source_of_another_coding_is_not_read() {
        let is_read = |text: &str| is_ascii_superset(text.as_bytes());
        assert!(is_read("x = 1\n"));
        assert!(is_read("#!/usr/bin/python3\n# -*- coding: latin-1 -*-\n"));
        assert!(is_read("# vim: set fileencoding=UTF-8 :\n"));
        assert!(!is_read("# coding: shift_jis\n"));
        assert!(!is_read("\n# coding=utf-16\n"));
        assert!(is_read("\n\n# coding=utf-16\n"));
        assert!(!is_read("#!/usr/bin/python3\r\n# coding: shift_jis\r\n"));
        assert!(!is_read("# the encoding of it, coding: utf-16\n"));
    }
}
