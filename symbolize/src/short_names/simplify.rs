//! C++ names without what the reader does not need: inline namespaces and arguments of templates that are the
//! default.

use std::borrow::Cow;

use super::brackets::{Brackets, is_word};
use super::{LONGEST, MOST_NESTING};

/// Inline namespaces of `std`: libstdc++'s new ABI and versions, libc++'s, the NDK's.
const INLINE_NAMESPACES: [&str; 7] = ["__cxx11", "__1", "__2", "__ndk1", "_V2", "__7", "__8"];

/// Templates of `std` over a character, and what they are called for `char`. Others get
/// `std::basic_…<wchar_t>`.
const CHARACTER_NAMES: [(&str, &str); 18] = [
    ("std::basic_string", "std::string"),
    ("std::basic_string_view", "std::string_view"),
    ("std::basic_ios", "std::ios"),
    ("std::basic_istream", "std::istream"),
    ("std::basic_ostream", "std::ostream"),
    ("std::basic_iostream", "std::iostream"),
    ("std::basic_ifstream", "std::ifstream"),
    ("std::basic_ofstream", "std::ofstream"),
    ("std::basic_fstream", "std::fstream"),
    ("std::basic_istringstream", "std::istringstream"),
    ("std::basic_ostringstream", "std::ostringstream"),
    ("std::basic_stringstream", "std::stringstream"),
    ("std::basic_streambuf", "std::streambuf"),
    ("std::basic_filebuf", "std::filebuf"),
    ("std::basic_stringbuf", "std::stringbuf"),
    ("std::basic_regex", "std::regex"),
    ("std::basic_syncbuf", "std::syncbuf"),
    ("std::basic_osyncstream", "std::osyncstream"),
];

/// Templates of `std` that are defaults of other templates, made from the first argument.
const OF_FIRST_ARGUMENT: [&str; 6] = [
    "std::less",
    "std::hash",
    "std::equal_to",
    "std::char_traits",
    "std::default_delete",
    "std::regex_traits",
];

/// What libstdc++'s own templates of trees and hash tables have besides: it follows from their other
/// arguments.
const POLICIES: [&str; 8] = [
    "std::_Select1st",
    "std::_Identity",
    "std::__detail::_Select1st",
    "std::__detail::_Identity",
    "std::__detail::_Mod_range_hashing",
    "std::__detail::_Default_ranged_hash",
    "std::__detail::_Prime_rehash_policy",
    "std::__detail::_Hashtable_traits",
];

/// A function's name as people write it: `std::string` for `std::__cxx11::basic_string<char,
/// std::char_traits<char>, std::allocator<char> >`, `std::vector<int>` for `std::vector<int,
/// std::allocator<int> >`. Names of other languages come back as they are.
pub fn simplify(name: &str) -> Cow<'_, str> {
    let is_worth_it = ["<", "::__", "::_V2", "[abi:"]
        .iter()
        .any(|part| name.contains(part));
    if !is_worth_it || name.len() > LONGEST {
        return Cow::Borrowed(name);
    }
    let brackets = Brackets::of(name);
    if brackets.depth() > MOST_NESTING {
        return Cow::Borrowed(name);
    }
    let rewriter = Rewriter { name, brackets };
    let simple = rewriter.rewrite(0, name.len());
    match simple == name {
        true => Cow::Borrowed(name),
        false => Cow::Owned(simple),
    }
}

struct Rewriter<'a> {
    name: &'a str,
    brackets: Brackets,
}

impl Rewriter<'_> {
    fn rewrite(&self, begin: usize, end: usize) -> String {
        let text = self.name.as_bytes();
        let mut out = String::with_capacity(end - begin);
        // Where in `out` the qualified name begins that stands at its end.
        let mut path = 0;
        let mut at = begin;
        while at < end {
            if let Some(after) = self.brackets.operator_end(at) {
                let after = after.min(end);
                out.push_str(&self.name[at..after]);
                at = after;
                continue;
            }
            let byte = text[at];
            let partner = self.brackets.partner(at).filter(|partner| *partner < end);
            match (byte, partner) {
                (b'<', Some(close)) if close > at => {
                    self.template(at, close, path, &mut out);
                    at = close + 1;
                    continue;
                }
                (b'[', Some(close)) if close > at && self.name[at..].starts_with("[abi:") => {
                    at = close + 1;
                    continue;
                }
                (b'(' | b'[' | b'{', Some(close)) if close > at => {
                    out.push(char::from(byte));
                    out.push_str(&self.rewrite(at + 1, close));
                    out.push(char::from(text[close]));
                    // Of `(anonymous namespace)::f` and `f()::{lambda()#1}` the path goes on.
                    at = close + 1;
                    continue;
                }
                _ => {}
            }
            if is_word(byte) {
                let word_end = (at..end).find(|i| !is_word(text[*i])).unwrap_or(end);
                let word = &self.name[at..word_end];
                let is_path = out.len() > path && (out.ends_with("::") || out.ends_with('~'));
                if !is_path {
                    path = out.len();
                }
                let goes_on = self.name[word_end..end].starts_with("::");
                if is_path && goes_on && is_inline_namespace(&out[path..], word) {
                    at = word_end + 2;
                    continue;
                }
                out.push_str(word);
                at = word_end;
                continue;
            }
            // A character as a whole: the others are ASCII.
            out.push(char::from(byte));
            at += 1;
        }
        out
    }

    /// Adds the arguments between two brackets to the name at the end of `out`.
    fn template(&self, open: usize, close: usize, path: usize, out: &mut String) {
        let follows_word = out.bytes().next_back().is_some_and(is_word);
        let mut arguments = self.arguments(open + 1, close);
        if !follows_word {
            // `operator< <int>`, `<A as B>` of Rust.
            out.push('<');
            out.push_str(&arguments.join(", "));
            out.push('>');
            return;
        }
        let name = out[path..].to_owned();
        let rest = &self.name[close + 1..];
        let is_function = rest.is_empty() || rest.starts_with('(') || rest.starts_with(" [clone ");
        while arguments.len() > 1 && is_default(&name, is_function, &arguments) {
            arguments.pop();
        }
        if let [only] = arguments.as_slice() {
            let alias = CHARACTER_NAMES.iter().find(|alias| alias.0 == name);
            match (alias, only.as_str()) {
                (Some((_, alias)), "char") => {
                    out.truncate(path);
                    out.push_str(alias);
                    return;
                }
                (Some((_, alias)), "wchar_t") => {
                    out.truncate(path);
                    out.push_str(&alias.replacen("std::", "std::w", 1));
                    return;
                }
                _ => {}
            }
        }
        out.push('<');
        out.push_str(&arguments.join(", "));
        out.push('>');
    }

    fn arguments(&self, begin: usize, end: usize) -> Vec<String> {
        let text = self.name.as_bytes();
        let mut arguments = Vec::new();
        let mut from = begin;
        let mut at = begin;
        while at < end {
            if let Some(after) = self.brackets.operator_end(at) {
                at = after;
                continue;
            }
            if let Some(close) = self
                .brackets
                .partner(at)
                .filter(|close| (at..end).contains(close))
            {
                at = close.max(at + 1);
                continue;
            }
            if text[at] == b',' {
                arguments.push(self.rewrite(from, at).trim().to_owned());
                from = at + 1;
            }
            at += 1;
        }
        arguments.push(self.rewrite(from, end).trim().to_owned());
        arguments
    }
}

/// Whether `word`, which stands behind `path`, is one that programs do not write.
fn is_inline_namespace(path: &str, word: &str) -> bool {
    path.starts_with("std::") && INLINE_NAMESPACES.contains(&word)
}

/// Whether the last argument is what the template has without it. A function that is given `std::less<T>` was
/// told so: its arguments have no defaults like these.
fn is_default(template: &str, is_function: bool, arguments: &[String]) -> bool {
    let Some((last, before)) = arguments.split_last() else {
        return false;
    };
    let Some(first) = before.first() else {
        return false;
    };
    let (name, of) = match last.split_once('<') {
        Some((name, of)) => (name, of.strip_suffix('>').unwrap_or(of)),
        None => (last.as_str(), ""),
    };
    let is_pair = || {
        let pair = of
            .strip_prefix("std::pair<")
            .and_then(|of| of.strip_suffix('>'));
        pair.zip(before.get(1)).is_some_and(|(pair, second)| {
            pair == format!("{first} const, {second}") || pair == format!("const {first}, {second}")
        })
    };
    if name == "std::allocator" {
        let is_sub_match = || of == format!("std::sub_match<{first}>");
        return before.iter().any(|argument| argument == of) || is_pair() || is_sub_match();
    }
    if !template.starts_with("std::") {
        return !is_function && OF_FIRST_ARGUMENT.contains(&name) && of == first;
    }
    match name {
        "std::deque" => ["std::stack", "std::queue"].contains(&template) && of == first,
        "std::vector" => template == "std::priority_queue" && of == first,
        // `std::istream_iterator<T, char, std::char_traits<char>, long>`.
        "long" => template == "std::istream_iterator" && before.len() == 3,
        "char" => template.ends_with("stream_iterator") && before.len() == 1,
        "std::char_traits" if template.ends_with("stream_iterator") => {
            before.get(1).is_some_and(|character| character == of)
        }
        name if POLICIES.contains(&name) => true,
        name => OF_FIRST_ARGUMENT.contains(&name) && of == first,
    }
}
