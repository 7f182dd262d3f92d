//! Names that a shrinker (R8, ProGuard) has replaced, back as they were: the file `mapping.txt` of a build.
//!
//! ```text
//! com.example.Server -> a.b:
//! # {"id":"sourceFile","fileName":"Server.kt"}
//!     int port -> a
//!     4:9:void serve(int):40:45 -> a
//!     10:10:void com.example.Log.write():7:7 -> a
//!     10:10:void serve(int):46 -> a
//! ```
//!
//! A line of a method says: lines 4 to 9 of `a.b.a` were lines 40 to 45 of `serve`. Several ones with the
//! same range are inlined calls, the innermost first. What is not understood is skipped, because new versions
//! of R8 add to the format.

use std::collections::HashMap;
use std::ops::RangeInclusive;

/// The names of one build.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retrace {
    classes: HashMap<String, Class>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Class {
    name: String,
    /// The file that it was written in, where the mapping says so.
    file: Option<String>,
    /// By the name in the build.
    methods: HashMap<String, Vec<Method>>,
}

/// A line of the mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Method {
    /// Lines in the build; `None`: all.
    lines: Option<RangeInclusive<u32>>,
    /// The class, where it is another one.
    class: Option<String>,
    name: String,
    /// The first and the last line in the source, where the mapping has them.
    source: Option<(u32, u32)>,
}

/// A call as it stands in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFrame {
    /// Its class.
    pub class: String,
    /// Its method.
    pub method: String,
    /// The file, where the mapping names it.
    pub file: Option<String>,
    /// The line; 0: not known.
    pub line: u32,
}

impl Retrace {
    /// Reads a mapping.
    pub fn parse(text: &str) -> Retrace {
        let mut classes: HashMap<String, Class> = HashMap::new();
        let mut now: Option<&mut Class> = None;
        for line in text.lines() {
            let is_member = line.starts_with(char::is_whitespace);
            let line = line.trim();
            if let Some(comment) = line.strip_prefix('#') {
                if let (Some(class), Some(file)) = (now.as_mut(), source_file(comment)) {
                    class.file = Some(file.to_owned());
                }
            } else if is_member {
                if let (Some(class), Some((name, method))) = (now.as_mut(), method(line)) {
                    class.methods.entry(name).or_default().push(method);
                }
            } else if let Some((name, replaced)) = line.trim_end_matches(':').split_once(" -> ") {
                let class = classes.entry(replaced.to_owned()).or_default();
                name.clone_into(&mut class.name);
                now = Some(class);
            }
        }
        Retrace { classes }
    }

    /// How many classes have other names in the build.
    pub fn classes(&self) -> usize {
        self.classes.len()
    }

    /// The calls that a frame of the build stands for, the innermost first. `line` 0: not known; then the
    /// method's names are given if they agree, without lines. `None`: the mapping does not name it, so it is
    /// as it was.
    pub fn frames(&self, class: &str, method: &str, line: u32) -> Option<Vec<SourceFrame>> {
        let found = self.classes.get(class)?;
        let Some(methods) = found.methods.get(method) else {
            return Some(vec![self.frame(found, None, method, line)]);
        };
        if line == 0 {
            // The outermost of each range is the method itself; overloads have one name in the build, and may
            // have several.
            let mut names: Vec<_> = methods.iter().map(|m| (&m.class, &m.name)).collect();
            let outermost = names.pop()?;
            let of_this_class = |(class, _): &&(&Option<String>, &String)| class.is_none();
            let differ = names
                .iter()
                .filter(of_this_class)
                .any(|name| *name != outermost);
            let name = match differ {
                true => method,
                false => outermost.1,
            };
            return Some(vec![self.frame(found, outermost.0.as_deref(), name, 0)]);
        }
        let has_line = |m: &&Method| m.lines.as_ref().is_none_or(|lines| lines.contains(&line));
        let frames = methods.iter().filter(has_line).map(|m| {
            let line = m.line_in_source(line);
            self.frame(found, m.class.as_deref(), &m.name, line)
        });
        let frames: Vec<_> = frames.collect();
        Some(match frames.is_empty() {
            true => vec![self.frame(found, None, method, 0)],
            false => frames,
        })
    }

    /// A qualified name of the build, `a.b.c`, as `class.method` of the source. `None`: it is as it was.
    pub fn qualified(&self, name: &str) -> Option<String> {
        let (class, method) = name.rsplit_once('.')?;
        let frame = self.frames(class, method, 0)?.pop()?;
        let renamed = format!("{}.{}", frame.class, frame.method);
        (renamed != name).then_some(renamed)
    }

    fn frame(&self, of: &Class, class: Option<&str>, method: &str, line: u32) -> SourceFrame {
        // The file of another class stands with that one.
        let file = match class {
            None => of.file.as_ref(),
            Some(name) => {
                let other = self.classes.values().find(|class| class.name == name);
                other.and_then(|class| class.file.as_ref())
            }
        };
        SourceFrame {
            class: class.unwrap_or(&of.name).to_owned(),
            method: method.to_owned(),
            file: file.cloned(),
            line,
        }
    }
}

impl Method {
    fn line_in_source(&self, line: u32) -> u32 {
        match (&self.lines, self.source) {
            (_, None) => line,
            // One line of the source for all: an inlined call's place.
            (_, Some((first, last))) if first == last => first,
            (Some(lines), Some((first, _))) => first + (line - lines.start()),
            (None, Some((first, _))) => first,
        }
    }
}

/// `{"id":"sourceFile","fileName":"Server.kt"}`.
fn source_file(comment: &str) -> Option<&str> {
    let comment = comment
        .replace(' ', "")
        .contains("\"id\":\"sourceFile\"")
        .then_some(comment)?;
    let (_, rest) = comment.split_once("\"fileName\"")?;
    rest.split('"').nth(1)
}

/// `4:9:void serve(int):40:45 -> a`. `None`: a field, or something else.
fn method(line: &str) -> Option<(String, Method)> {
    let (original, replaced) = line.rsplit_once(" -> ")?;
    let (before, after) = original.split_once('(')?;
    let (_, after) = after.split_once(')')?;
    let (range, signature) = match before.splitn(3, ':').collect::<Vec<_>>()[..] {
        [first, last, rest] => (Some((first.parse().ok()?, last.parse().ok()?)), rest),
        _ => (None, before),
    };
    let qualified = signature.split_whitespace().last()?;
    let (class, name) = match qualified.rsplit_once('.') {
        Some((class, name)) => (Some(class.to_owned()), name),
        None => (None, qualified),
    };
    let numbers: Vec<u32> = after.split(':').filter_map(|n| n.parse().ok()).collect();
    let method = Method {
        lines: range.map(|(first, last): (u32, u32)| first..=last),
        class,
        name: name.to_owned(),
        source: match numbers[..] {
            [] => None,
            [line] => Some((line, line)),
            [first, last, ..] => Some((first, last)),
        },
    };
    Some((replaced.to_owned(), method))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPPING: &str = r#"# compiler: R8
# {"id":"com.android.tools.r8.mapping","version":"2.0"}
com.example.Log -> a.a:
# {"id":"sourceFile","fileName":"Log.kt"}
    void write() -> a
com.example.Server -> a.b:
# {"id":"sourceFile","fileName":"Server.kt"}
    int port -> a
    4:9:void serve(int):40:45 -> a
    10:10:void com.example.Log.write():7:7 -> a
    10:10:void serve(int):46 -> a
    1:3:void stop():50:52 -> b
    1:1:void close():60:60 -> c
    2:2:void open():70:70 -> c
    com.example.Server self() -> d
broken line
    5:void half -> e
"#;

    fn frame(class: &str, method: &str, file: Option<&str>, line: u32) -> SourceFrame {
        SourceFrame {
            class: class.to_owned(),
            method: method.to_owned(),
            file: file.map(str::to_owned),
            line,
        }
    }

    #[test]
    fn lines_and_inlined_calls_are_as_in_the_source() {
        let retrace = Retrace::parse(MAPPING);
        assert_eq!(retrace.classes(), 2);
        let (server, log) = ("com.example.Server", "com.example.Log");
        let of = |line| retrace.frames("a.b", "a", line).unwrap();
        assert_eq!(of(6), [frame(server, "serve", Some("Server.kt"), 42)]);
        let inlined = [
            frame(log, "write", Some("Log.kt"), 7),
            frame(server, "serve", Some("Server.kt"), 46),
        ];
        assert_eq!(of(10), inlined);
        // A line that no range has: the class is known, the method is not.
        assert_eq!(of(99), [frame(server, "a", Some("Server.kt"), 0)]);
        let single = retrace.frames("a.b", "d", 3).unwrap();
        assert_eq!(single, [frame(server, "self", Some("Server.kt"), 3)]);
    }

    #[test]
    fn names_without_lines_are_given_where_they_are_certain() {
        let retrace = Retrace::parse(MAPPING);
        let of = |name| retrace.qualified(name);
        assert_eq!(of("a.b.a").as_deref(), Some("com.example.Server.serve"));
        assert_eq!(of("a.a.a").as_deref(), Some("com.example.Log.write"));
        // `close` or `open`: not guessed.
        assert_eq!(of("a.b.c").as_deref(), Some("com.example.Server.c"));
        assert_eq!(of("java.lang.String.format"), None);
        assert_eq!(of("main"), None);
    }

    #[test]
    fn what_is_no_mapping_is_none() {
        for text in [
            "",
            "\n\n",
            "a -> \n -> b:\n    (:) -> x\n    1:x:y() -> z",
            " -> ",
        ] {
            let retrace = Retrace::parse(text);
            assert_eq!(retrace.qualified("no.such.name"), None, "{text}");
        }
    }
}
