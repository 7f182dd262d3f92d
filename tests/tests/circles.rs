//! Modules of a crate depend on each other in one direction: at each module, its children (each with all that
//! stands below it) form no circle. What a parent and its children use of each other does not count, and
//! neither does `#[cfg(test)]`.
//!
//! Paths are read as text: in `use`, and where they begin with `crate`, `super`, `self` or an imported
//! module. What a module re-exports counts where it is defined. Calls of methods are not seen.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use stackbeat_tests::workspace;

/// Crates of the workspace whose modules are looked at.
const CRATES: [&str; 11] = [
    "core",
    "hooks-linux",
    "hooks-apple",
    "proto",
    "symbolize",
    "model",
    "collector",
    "embedded",
    "gate",
    "tools",
    "api",
];

#[test]
fn modules_form_no_circle() {
    let (mut references, mut wrong) = (0, Vec::new());
    for folder in CRATES {
        let crate_ = Crate::read(workspace(), folder);
        let edges = crate_.edges();
        references += edges.len();
        let circles = circles_between_siblings(&edges).into_iter();
        wrong.extend(circles.map(|circle| format!("{folder}: {}", circle.describe())));
    }
    assert!(references > 1000, "{references} references were found");
    assert!(
        wrong.is_empty(),
        "modules that use each other in a circle; move what both need into a module of its own:\n{}",
        wrong.join("\n")
    );
}

/// The parts of a path: `crate::a::b` has three.
type Names = Vec<String>;

#[derive(Clone, Debug, PartialEq)]
struct Token {
    text: String,
    line: usize,
    /// A name, not punctuation, a number or a text.
    is_name: bool,
}

/// Cuts source text into tokens.
struct Lexer<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Lexer<'a> {
    /// Tokens without comments and spaces; a text is one token that is no name.
    fn tokens(source: &'a str) -> Vec<Token> {
        let mut lexer = Lexer {
            rest: source,
            line: 1,
        };
        let mut tokens = Vec::new();
        while let Some(first) = lexer.rest.chars().next() {
            let line = lexer.line;
            let is_comment = lexer.rest.starts_with("//") || lexer.rest.starts_with("/*");
            let (length, is_name) = lexer.length();
            let text = lexer.take(length);
            if !first.is_whitespace() && !is_comment {
                let text = text.to_owned();
                tokens.push(Token {
                    text,
                    line,
                    is_name,
                });
            }
        }
        tokens
    }

    fn take(&mut self, length: usize) -> &'a str {
        let (text, rest) = self.rest.split_at(length);
        self.line += text.matches('\n').count();
        self.rest = rest;
        text
    }

    /// Bytes of the token that comes next, and whether it is a name.
    fn length(&self) -> (usize, bool) {
        let rest = self.rest;
        let first = rest.chars().next().expect("there is more");
        let is_of_word = |c: char| c.is_alphanumeric() || c == '_';
        let word = rest.find(|c| !is_of_word(c)).unwrap_or(rest.len());
        let after_word = &rest[word..];
        let length = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => comment(rest),
            '"' => quoted(rest, '"'),
            '\'' if is_character(rest) => quoted(rest, '\''),
            // A lifetime.
            '\'' => 1 + rest[1..].find(|c| !is_of_word(c)).unwrap_or(rest.len() - 1),
            ':' if rest.starts_with("::") => 2,
            first if !is_of_word(first) => first.len_utf8(),
            first if first.is_ascii_digit() => word,
            _ => match &rest[..word] {
                "r" | "br" | "cr" if after_word.trim_start_matches('#').starts_with('"') => {
                    word + raw(after_word)
                }
                "b" | "c" if after_word.starts_with('"') => word + quoted(after_word, '"'),
                "b" if after_word.starts_with('\'') => word + quoted(after_word, '\''),
                _ => return (word, true),
            },
        };
        (length, false)
    }
}

/// Length of a block comment; they nest.
fn comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let step = match &text[at..] {
            rest if rest.starts_with("/*") => {
                depth += 1;
                2
            }
            rest if rest.starts_with("*/") => {
                depth -= 1;
                2
            }
            rest => rest.chars().next().map_or(1, char::len_utf8),
        };
        at += step;
        if depth == 0 {
            break;
        }
    }
    at
}

/// Whether an apostrophe begins a character and not a lifetime.
fn is_character(text: &str) -> bool {
    let mut chars = text.chars().skip(1);
    chars.next() == Some('\\') || chars.next() == Some('\'')
}

/// Length of a text or character that begins and ends with `mark`, escapes in it.
fn quoted(text: &str, mark: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if c == mark && !is_escaped {
            return at + 1;
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    text.len()
}

/// Length of a raw text without its prefix: `#"…"#`.
fn raw(text: &str) -> usize {
    let hashes = text.len() - text.trim_start_matches('#').len();
    let end = format!("\"{}", "#".repeat(hashes));
    let begin = hashes + 1;
    let inside = text[begin..].find(&end);
    inside.map_or(text.len(), |inside| begin + inside + end.len())
}

fn is(tokens: &[Token], at: usize, text: &str) -> bool {
    tokens.get(at).is_some_and(|token| token.text == text)
}

/// The index after the group that opens at `at`.
fn after_group(tokens: &[Token], mut at: usize) -> usize {
    let mut depth = 0;
    while at < tokens.len() {
        match &*tokens[at].text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            break;
        }
    }
    at
}

/// The index after the item, field or arm that begins at `at`.
fn after_item(tokens: &[Token], mut at: usize) -> usize {
    while at < tokens.len() {
        match &*tokens[at].text {
            ";" | "," => return at + 1,
            ")" | "]" | "}" => return at,
            "{" => {
                let end = after_group(tokens, at);
                return end + usize::from(is(tokens, end, ";"));
            }
            "(" | "[" => at = after_group(tokens, at),
            _ => at += 1,
        }
    }
    at
}

/// Leaves out what is `#[cfg(test)]`; of a file that is, everything.
fn without_tests(tokens: &[Token]) -> Vec<Token> {
    const OF_TESTS: [&str; 4] = [
        "[cfg(test)",
        "[cfg(test,",
        "[cfg(all(test,",
        "[cfg(all(test)",
    ];
    let is_of_tests = |attribute: &[Token]| {
        let text: String = attribute.iter().map(|token| &*token.text).collect();
        let text = text.trim_start_matches(['#', '!']);
        OF_TESTS.iter().any(|begin| text.starts_with(begin))
    };
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if is(tokens, at, "#") && is(tokens, at + 1, "!") {
            let end = after_group(tokens, at + 2);
            if is_of_tests(&tokens[at..end]) {
                return Vec::new();
            }
            at = end;
        } else if is(tokens, at, "#") && is(tokens, at + 1, "[") {
            // All attributes of an item.
            let mut end = at;
            let mut is_test = false;
            while is(tokens, end, "#") {
                let begin = end;
                end = after_group(tokens, begin + 1);
                is_test |= is_of_tests(&tokens[begin..end]);
            }
            match is_test {
                true => end = after_item(tokens, end),
                false => kept.extend_from_slice(&tokens[at..end]),
            }
            at = end;
        } else {
            kept.push(tokens[at].clone());
            at += 1;
        }
    }
    kept
}

/// The leaves of a `use` whose tree begins at `at`: paths, and the names that they get (`None`: a glob).
/// Gives the index after it.
fn use_tree(
    tokens: &[Token],
    mut at: usize,
    prefix: &[String],
    leaves: &mut Vec<(Names, Option<String>)>,
) -> usize {
    let mut names = prefix.to_vec();
    while at < tokens.len() {
        match &*tokens[at].text {
            "::" => at += 1,
            "{" => {
                at += 1;
                while at < tokens.len() && !is(tokens, at, "}") {
                    at = use_tree(tokens, at, &names, leaves);
                    at += usize::from(is(tokens, at, ","));
                }
                return at + 1;
            }
            "*" => {
                if names.is_empty() {
                    names.push("self".to_owned());
                }
                leaves.push((names, None));
                return at + 1;
            }
            name => {
                if name != "self" || names.is_empty() {
                    names.push(name.to_owned());
                }
                at += 1;
                if is(tokens, at, "::") {
                    continue;
                }
                let mut alias = names.last().cloned().unwrap_or_default();
                if is(tokens, at, "as") {
                    alias = tokens[at + 1].text.clone();
                    at += 2;
                }
                leaves.push((names, Some(alias)));
                return at;
            }
        }
    }
    at
}

/// Of a path inside `depth` inline modules, as the module of the file would write it; `None`: it stays
/// inside.
fn outside_of_inline(mut names: Names, mut depth: usize) -> Option<Names> {
    let is_super = |names: &Names| names.first().is_some_and(|name| name == "super");
    while depth > 0 && is_super(&names) {
        names.remove(0);
        depth -= 1;
        if depth == 0 && !is_super(&names) {
            names.insert(0, "self".to_owned());
        }
    }
    let is_of_file = depth == 0 || names.first().is_some_and(|name| name == "crate");
    (is_of_file && !names.is_empty()).then_some(names)
}

/// A path that code names, and the file and line where it does.
#[derive(Debug)]
struct Reference {
    names: Names,
    place: String,
}

#[derive(Debug, Default)]
struct Module {
    children: BTreeSet<String>,
    /// Imported names, and their paths as written.
    uses: HashMap<String, Names>,
    globs: Vec<Names>,
    references: Vec<Reference>,
    /// Names that stand alone, which a glob may bring in.
    words: Vec<Reference>,
}

/// A module that names another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Edge {
    from: Names,
    to: Names,
    place: String,
    item: String,
}

/// The modules of a crate by their paths; its root's is empty.
#[derive(Debug, Default)]
struct Crate(BTreeMap<Names, Module>);

impl Crate {
    /// The crate in a folder of the workspace.
    fn read(root: &Path, folder: &str) -> Crate {
        let mut modules = Crate::default();
        let entries = ["lib.rs", "main.rs"].map(|entry| root.join(folder).join("src").join(entry));
        let entry = entries.iter().find(|file| file.exists());
        modules.read_file(root, entry.expect("a crate has a root"), &[]);
        modules
    }

    fn read_file(&mut self, root: &Path, file: &Path, path: &[String]) {
        let source = std::fs::read_to_string(file).expect("a module can be read");
        let place = file.strip_prefix(root).unwrap_or(file);
        let children = self.add(&source, &place.display().to_string(), path);
        let beside = file.parent().expect("a folder");
        let below = match file.file_name().and_then(|name| name.to_str()) {
            Some("lib.rs" | "main.rs" | "mod.rs") => beside.to_owned(),
            _ => file.with_extension(""),
        };
        for (name, named) in children {
            let named = named.iter().map(|file| beside.join(file));
            let usual = [format!("{name}.rs"), format!("{name}/mod.rs")].map(|f| below.join(f));
            let files: Vec<PathBuf> = named.chain(usual).filter(|file| file.exists()).collect();
            let child = [path, &[name]].concat();
            for file in files {
                self.read_file(root, &file, &child);
            }
        }
    }

    /// Takes in a module's text. Gives its children that stand in files of their own, with their `#[path]`s.
    fn add(&mut self, source: &str, file: &str, path: &[String]) -> Vec<(String, Vec<String>)> {
        let module = self.0.entry(path.to_vec()).or_default();
        let tokens = without_tests(&Lexer::tokens(source));
        let children = module.scan(&tokens, file, 0);
        let names = children.iter().map(|(name, _)| name.clone());
        module.children.extend(names);
        children
    }
}

impl Module {
    /// Notes what is named, `depth` inline modules deep; gives the children in files of their own.
    fn scan(&mut self, tokens: &[Token], file: &str, depth: usize) -> Vec<(String, Vec<String>)> {
        let mut children = Vec::new();
        // Of `#[path]`s since the last item.
        let mut own_files = Vec::new();
        let mut at = 0;
        while at < tokens.len() {
            let token = &tokens[at];
            let place = format!("{file}:{}", token.line);
            let is_inside_path = at > 0 && matches!(&*tokens[at - 1].text, "::" | ".");
            let is_module = token.text == "mod" && tokens.get(at + 1).is_some_and(|t| t.is_name);
            if token.text == "#" && is(tokens, at + 1, "[") {
                let end = after_group(tokens, at + 1);
                if is(tokens, at + 2, "path") || is(tokens, at + 2, "cfg_attr") {
                    let paths = (at..end).filter(|k| is(tokens, *k, "path"));
                    let texts = paths.filter_map(|k| tokens.get(k + 2));
                    own_files.extend(texts.map(|text| text.text.trim_matches('"').to_owned()));
                }
                at = end;
            } else if is_module && is(tokens, at + 2, ";") {
                if depth == 0 {
                    let name = tokens[at + 1].text.clone();
                    children.push((name, std::mem::take(&mut own_files)));
                }
                at += 3;
            } else if is_module && is(tokens, at + 2, "{") {
                let end = after_group(tokens, at + 2);
                let inside = &tokens[at + 3..end - 1];
                self.scan(inside, file, depth + 1);
                at = end;
            } else if token.text == "use" && !is_inside_path && !is(tokens, at + 1, "<") {
                let mut leaves = Vec::new();
                at = use_tree(tokens, at + 1, &[], &mut leaves);
                for (names, alias) in leaves {
                    let Some(names) = outside_of_inline(names, depth) else {
                        continue;
                    };
                    match alias {
                        _ if depth > 0 => {}
                        None => self.globs.push(names.clone()),
                        Some(alias) => drop(self.uses.entry(alias).or_insert(names.clone())),
                    }
                    let place = place.clone();
                    self.references.push(Reference { names, place });
                }
            } else if token.is_name && !is_inside_path {
                let mut names = vec![token.text.clone()];
                at += 1;
                while is(tokens, at, "::") && tokens.get(at + 1).is_some_and(|t| t.is_name) {
                    names.push(tokens[at + 1].text.clone());
                    at += 2;
                }
                if names.len() == 1 {
                    self.words.push(Reference { names, place });
                } else if let Some(names) = outside_of_inline(names, depth) {
                    self.references.push(Reference { names, place });
                }
            } else {
                if matches!(&*token.text, ";" | "}") {
                    own_files.clear();
                }
                at += 1;
            }
        }
        children
    }
}

/// Imports that were followed, so that those that lead to each other come to an end.
type Followed = HashSet<(Names, String)>;

impl Crate {
    /// Where a path leads from module `at`, through imports: a module, and the item there. `None`: into
    /// another crate.
    fn resolve(
        &self,
        at: &[String],
        names: &[String],
        followed: &mut Followed,
    ) -> Option<(Names, String)> {
        let module = self.0.get(at)?;
        let (mut here, mut rest) = match &*names[0] {
            "crate" => (Vec::new(), &names[1..]),
            "self" => (at.to_vec(), &names[1..]),
            "super" => {
                let up = names.iter().take_while(|name| *name == "super").count();
                (at[..at.len().checked_sub(up)?].to_vec(), &names[up..])
            }
            name if module.children.contains(name) => (at.to_vec(), names),
            name => {
                let target = module.uses.get(name)?;
                if !followed.insert((at.to_vec(), name.to_owned())) || target[..] == names[..1] {
                    return None;
                }
                return self.resolve(at, &[target, &names[1..]].concat(), followed);
            }
        };
        while let [name, more @ ..] = rest
            && let child = [&here[..], std::slice::from_ref(name)].concat()
            && self.0.contains_key(&child)
        {
            here = child;
            rest = more;
        }
        let through = self.through_re_export(&here, rest, followed);
        Some(through.unwrap_or_else(|| (here, rest.join("::"))))
    }

    /// Where `rest`, which module `here` re-exports, is defined.
    fn through_re_export(
        &self,
        here: &[String],
        rest: &[String],
        followed: &mut Followed,
    ) -> Option<(Names, String)> {
        let (name, more) = rest.split_first()?;
        let module = &self.0[here];
        let by_name = module.uses.get(name).map(|target| [target, more].concat());
        let by_glob = module.globs.iter().map(|glob| [glob, rest].concat());
        for (number, target) in by_name.into_iter().chain(by_glob).enumerate() {
            let is_itself = target[0] == *name;
            if is_itself || !followed.insert((here.to_vec(), format!("{number}{name}"))) {
                continue;
            }
            if let Some((module_of_it, item)) = self.resolve(here, &target, followed)
                && module_of_it != here
                && (module.uses.contains_key(name) || self.0[&module_of_it].uses.contains_key(name))
            {
                return Some((module_of_it, item));
            }
        }
        None
    }

    /// All that modules name of others, parents and children left out.
    fn edges(&self) -> BTreeSet<Edge> {
        let mut edges = BTreeSet::new();
        for (from, module) in &self.0 {
            let mut add = |names: &[String], place: &str| {
                let found = self.resolve(from, names, &mut HashSet::new());
                let found = found.filter(|(to, _)| !from.starts_with(to) && !to.starts_with(from));
                edges.extend(found.map(|(to, item)| Edge {
                    from: from.clone(),
                    to,
                    place: place.to_owned(),
                    item,
                }));
            };
            for reference in &module.references {
                add(&reference.names, &reference.place);
            }
            // What a glob brings in, where the other module has it from elsewhere.
            for glob in &module.globs {
                let source = self.resolve(from, glob, &mut HashSet::new());
                let Some((source, _)) = source else { continue };
                for word in module.words.iter().chain(&module.references) {
                    if self.0[&source].uses.contains_key(&word.names[0]) {
                        add(&[glob, &word.names[..]].concat(), &word.place);
                    }
                }
            }
        }
        edges
    }
}

/// Children of a module that use each other in a circle.
#[derive(Debug)]
struct Circle {
    /// `crate`, or the module's path.
    parent: String,
    members: BTreeSet<String>,
    /// One of each pair of members.
    edges: Vec<Edge>,
}

impl Circle {
    fn describe(&self) -> String {
        let members: Vec<&str> = self.members.iter().map(|name| &**name).collect();
        let mut text = format!("in {}: {}\n", self.parent, members.join(", "));
        for edge in &self.edges {
            let (from, to) = (edge.from.join("::"), edge.to.join("::"));
            text += &format!("  {}: {from} names {to}::{}\n", edge.place, edge.item);
        }
        text
    }
}

fn circles_between_siblings(edges: &BTreeSet<Edge>) -> Vec<Circle> {
    // By the module that both stand below.
    let mut by_parent: BTreeMap<&[String], BTreeMap<(&str, &str), &Edge>> = BTreeMap::new();
    for edge in edges {
        let both = edge.from.iter().zip(&edge.to);
        let common = both.take_while(|(from, to)| from == to).count();
        let siblings = by_parent.entry(&edge.from[..common]).or_default();
        let pair = (&*edge.from[common], &*edge.to[common]);
        siblings.entry(pair).or_insert(edge);
    }
    let mut circles = Vec::new();
    for (parent, pairs) in by_parent {
        let mut graph: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (from, to) in pairs.keys() {
            graph.entry(from).or_default().insert(to);
        }
        for members in strongly_connected(&graph) {
            let inside = pairs
                .iter()
                .filter(|((from, to), _)| members.contains(*from) && members.contains(*to));
            circles.push(Circle {
                parent: match parent {
                    [] => "crate".to_owned(),
                    parent => parent.join("::"),
                },
                edges: inside.map(|(_, edge)| (*edge).clone()).collect(),
                members,
            });
        }
    }
    circles
}

/// Sets of nodes that lead to each other.
fn strongly_connected(graph: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<BTreeSet<String>> {
    let reached_from = |from: &str| {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from.to_owned()]);
        while let Some(node) = open.pop() {
            for next in graph.get(&*node).into_iter().flatten() {
                if reached.insert((*next).to_owned()) {
                    open.push((*next).to_owned());
                }
            }
        }
        reached
    };
    let reached: BTreeMap<&str, BTreeSet<String>> = graph
        .keys()
        .map(|node| (*node, reached_from(node)))
        .collect();
    let mut sets: Vec<BTreeSet<String>> = Vec::new();
    for (node, there) in &reached {
        if there.contains(*node) && !sets.iter().any(|set| set.contains(*node)) {
            let leads_back = |other: &&String| {
                let from_there = reached.get(other.as_str());
                from_there.is_some_and(|reached| reached.contains(*node))
            };
            sets.push(there.iter().filter(leads_back).cloned().collect());
        }
    }
    sets
}

mod of_the_parser {
    use super::*;

    fn names(path: &str) -> Names {
        path.split("::").map(str::to_owned).collect()
    }

    /// A crate of modules given by path and text; the root is `crate`.
    fn made_of(modules: &[(&str, &str)]) -> Crate {
        let mut made = Crate::default();
        for (path, source) in modules {
            let path = names(path).split_off(1);
            made.add(source, "some.rs", &path);
        }
        made
    }

    /// Edges as `from -> to::item`.
    fn edges(modules: &[(&str, &str)]) -> Vec<String> {
        let edges = made_of(modules).edges();
        let text = |edge: &Edge| {
            format!(
                "{} -> {}::{}",
                edge.from.join("::"),
                edge.to.join("::"),
                edge.item
            )
        };
        edges.iter().map(text).collect()
    }

    #[test]
    fn texts_characters_and_comments_name_nothing() {
        let source = r##"a /* b /* c */ d */ "e \" f" b"g" r#"h " i"# 'j' '\'' 'k // l
            m::n 0x1f"##;
        let tokens = Lexer::tokens(source);
        let found: Vec<_> = (tokens.iter().filter(|token| token.is_name))
            .map(|token| (&*token.text, token.line))
            .collect();
        assert_eq!(found, [("a", 1), ("m", 2), ("n", 2)]);
    }

    #[test]
    fn tests_are_left_out() {
        let left = |source| {
            let tokens = without_tests(&Lexer::tokens(source));
            tokens.iter().map(|token| &*token.text).collect::<String>()
        };
        assert_eq!(
            left("#[cfg(test)] mod tests { a::b(); } fn c() {}"),
            "fnc(){}"
        );
        assert_eq!(left("#[cfg(test)]\n#[path = \"x.rs\"] mod tests; d"), "d");
        assert_eq!(left("#[cfg(all(test, unix))] use a::{b, c}; d"), "d");
        assert_eq!(left("#![cfg(test)] a"), "");
        assert_eq!(left("#[cfg(not(test))] a"), "#[cfg(not(test))]a");
    }

    #[test]
    fn a_use_has_leaves() {
        let mut leaves = Vec::new();
        use_tree(
            &Lexer::tokens("a::{self, b::{c as d, *}};"),
            0,
            &[],
            &mut leaves,
        );
        let leaf = |path: &str, alias: Option<&str>| (names(path), alias.map(str::to_owned));
        assert_eq!(
            leaves,
            [
                leaf("a", Some("a")),
                leaf("a::b::c", Some("d")),
                leaf("a::b", None)
            ]
        );
    }

    #[test]
    fn paths_lead_through_imports_and_re_exports() {
        let found = edges(&[
            ("crate", "mod a; mod b; mod c; pub use c::Thing;"),
            ("crate::a", "use crate::b; fn f() { b::g(); }"),
            ("crate::b", "use super::Thing; use std::fmt;"),
            ("crate::c", "pub struct Thing;"),
        ]);
        assert_eq!(found, ["a -> b::", "a -> b::g", "b -> c::Thing"]);
    }

    #[test]
    fn inline_modules_belong_to_their_file() {
        let found = edges(&[
            ("crate", "mod a; mod b;"),
            (
                "crate::a",
                "mod inside { use super::super::b::B; use super::Own; }",
            ),
            ("crate::b", ""),
        ]);
        assert_eq!(found, ["a -> b::B"]);
    }

    #[test]
    fn a_circle_is_one_between_siblings() {
        let modules = [
            ("crate", "mod a; mod b;"),
            ("crate::a", "mod inner; use inner::I;"),
            ("crate::a::inner", "use crate::b::B; use super::A;"),
            ("crate::b", "use crate::a::A;"),
        ];
        let circles = circles_between_siblings(&made_of(&modules).edges());
        let [circle] = &circles[..] else {
            panic!("{circles:?}");
        };
        assert_eq!(circle.parent, "crate");
        assert_eq!(circle.members, ["a", "b"].map(str::to_owned).into());
        let one_way = [modules[0], modules[1], modules[2], ("crate::b", "")];
        assert!(circles_between_siblings(&made_of(&one_way).edges()).is_empty());
    }
}
