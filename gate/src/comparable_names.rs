//! Names that mean the same in two builds.
//!
//! A compiler writes into names what changes with every build: hashes, numbers of closures, suffixes of
//! clones. Names are made equal no further than needed: what has the same name on both sides stays
//! apart from everything else, and only what would otherwise look like one function that vanished and
//! another that is new is compared by coarser and coarser forms of its name.

use std::collections::HashMap;

/// How far a name was reduced before it was found on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Form {
    /// The name itself, without hashes and suffixes of clones.
    Name,
    /// Without the numbers of closures and lambdas.
    Closures,
    /// Without template and generic arguments.
    Generics,
    /// Without the types of parameters; addresses without symbol count as their module.
    Parameters,
    /// Another name in the same place (`crate::pairs`).
    Place,
}

impl Form {
    /// What the reports say about a match of this form.
    pub fn describe(self) -> &'static str {
        match self {
            Form::Name => "same name",
            Form::Closures => "same name apart from the numbers of closures",
            Form::Generics => "same name apart from template or generic arguments",
            Form::Parameters => {
                "same name apart from parameters, or the same module without symbols"
            }
            Form::Place => "another name, but the same callers, callees and a similar cost",
        }
    }
}

/// A function's name in one of its forms.
pub fn reduce(name: &str, form: Form) -> String {
    let mut text = without_build_marks(name);
    if form >= Form::Closures {
        text = without_closure_numbers(&text);
    }
    if form >= Form::Generics {
        text = without_generics(&text);
    }
    if form >= Form::Parameters {
        text = without_parameters(&text);
    }
    text
}

/// Drops what a build adds: `::h0123456789abcdef`, `.constprop.0`, `.isra.0`, `.part.0`, `.cold`,
/// `.llvm.123`, `.lto_priv.0`, ` [clone .cold]`, `@@GLIBC_2.2.5`.
fn without_build_marks(name: &str) -> String {
    let mut text = name.trim();
    if let Some(at) = text.find(" [clone ") {
        text = &text[..at];
    }
    if let Some(at) = text.find('@')
        && at > 0
        && text[at..].trim_start_matches('@').starts_with("GLIBC")
    {
        text = &text[..at];
    }
    loop {
        let before = text;
        if let Some((head, tail)) = text.rsplit_once("::h")
            && tail.len() == 16
            && tail.bytes().all(|b| b.is_ascii_hexdigit())
        {
            text = head;
        }
        if let Some((head, tail)) = text.rsplit_once('.') {
            let is_number = !tail.is_empty() && tail.bytes().all(|b| b.is_ascii_digit());
            if is_clone_mark(tail) {
                text = head;
            } else if is_number
                && let Some((head, mark)) = head.rsplit_once('.')
                && is_clone_mark(mark)
            {
                text = head;
            }
        }
        if text == before || text.is_empty() {
            break;
        }
    }
    match text {
        "" => name.to_owned(),
        text => text.to_owned(),
    }
}

fn is_clone_mark(word: &str) -> bool {
    const MARKS: [&str; 10] = [
        "constprop",
        "isra",
        "part",
        "cold",
        "llvm",
        "lto_priv",
        "localalias",
        "clone",
        "actor",
        "warm",
    ];
    MARKS.contains(&word)
}

/// What a Java machine names by itself, with a number or an address of this run.
const OF_JAVA: [&str; 5] = [
    "$$Lambda",
    "$Proxy",
    "LambdaForm$MH",
    "MethodAccessor",
    "ConstructorAccessor",
];

/// `{closure#3}` → `{closure}`, `{lambda(int)#2}` → `{lambda}`, `'lambda0'` → `'lambda'`, `$_4` → `$_`;
/// `Shop$$Lambda$14/0x00007f0c0100.run` → `Shop$$Lambda.run`, `$Proxy12.call` → `$Proxy.call`.
fn without_closure_numbers(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        if let Some(tail) = rest.strip_prefix('{')
            && let Some(end) = tail.find('}')
        {
            let inner = &tail[..end];
            let word = inner.split(['#', '(']).next().unwrap_or(inner).trim_end();
            out.push('{');
            out.push_str(word);
            out.push('}');
            rest = &tail[end + 1..];
            continue;
        }
        let marked = ["$_", "'lambda"]
            .iter()
            .find(|mark| rest.starts_with(**mark));
        if let Some(mark) = marked {
            out.push_str(mark);
            rest = rest[mark.len()..].trim_start_matches(|c: char| c.is_ascii_digit());
            continue;
        }
        if let Some(mark) = OF_JAVA.iter().find(|mark| rest.starts_with(**mark)) {
            out.push_str(mark);
            rest = without_number_of_java(&rest[mark.len()..]);
            continue;
        }
        out.push(first);
        rest = &rest[first.len_utf8()..];
    }
    out
}

/// Drops `$14` or `12`, and `/0x00007f0c0100`, from the begin.
fn without_number_of_java(text: &str) -> &str {
    let number = text.strip_prefix('$').unwrap_or(text);
    let mut rest = number.trim_start_matches(|c: char| c.is_ascii_digit());
    if rest.len() == number.len() {
        rest = text;
    }
    match rest.strip_prefix("/0x") {
        Some(address) => address.trim_start_matches(|c: char| c.is_ascii_hexdigit()),
        None => rest,
    }
}

/// `a<b<c>>::d` → `a<>::d`. Operators and `<impl …>` of Rust keep what tells them apart.
fn without_generics(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut depth = 0usize;
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        if depth == 0 {
            const OPERATORS: [&str; 6] = [
                "operator<<=",
                "operator<=>",
                "operator<<",
                "operator<=",
                "operator->",
                "operator>>",
            ];
            if let Some(operator) = OPERATORS.iter().find(|o| rest.starts_with(**o)) {
                out.push_str(operator);
                rest = &rest[operator.len()..];
                continue;
            }
            // `<shop::Store as Trait>::get` and `<impl Trait for Store>` are names, not arguments.
            if rest.starts_with('<') && (out.is_empty() || rest.starts_with("<impl ")) {
                let end = closing(rest);
                out.push('<');
                out.push_str(&without_generics(&rest[1..end]));
                out.push('>');
                rest = rest.get(end + 1..).unwrap_or("");
                continue;
            }
        }
        match first {
            '<' => {
                if depth == 0 {
                    out.push_str("<>");
                }
                depth += 1;
            }
            '>' if depth > 0 && !rest_is_arrow(name, rest) => depth -= 1,
            c if depth == 0 => out.push(c),
            _ => {}
        }
        rest = &rest[first.len_utf8()..];
    }
    // Rust writes `Vec::<T>::new` in some manglings and `Vec<T>::new` in others.
    out.replace("::<>", "<>")
}

/// Whether the `>` at the begin of `rest` is that of `->`.
fn rest_is_arrow(name: &str, rest: &str) -> bool {
    name[..name.len() - rest.len()].ends_with('-')
}

/// Where the bracket closes that a text begins with; its length when it does not.
fn closing(text: &str) -> usize {
    let mut depth = 0usize;
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if before != '-' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at;
                }
            }
            _ => {}
        }
        before = c;
    }
    text.len()
}

/// The module of a function that has no name of its own: `libx.so` of `libx.so+0x1240`; nothing of
/// `0x7f0f65fc8388`, code that was made while the program ran.
pub(crate) fn module_of_address(name: &str) -> Option<&str> {
    let (module, offset) = match name.strip_prefix("0x") {
        Some(offset) => ("", offset),
        None => name.rsplit_once("+0x")?,
    };
    let is_number = !offset.is_empty() && offset.bytes().all(|b| b.is_ascii_hexdigit());
    is_number.then_some(module)
}

/// `f(int, char) const` → `f`, `libx.so+0x1240` → `libx.so+…`, `0x7f0f65fc8388` → `+…`.
fn without_parameters(name: &str) -> String {
    if let Some(module) = module_of_address(name) {
        return format!("{module}+…");
    }
    let text = name.replace("(anonymous namespace)", "{anonymous}");
    match text.find('(') {
        Some(at) if at > 0 && !text.contains("operator()") => text[..at].to_owned(),
        _ => text,
    }
}

/// A thread's or process' role: its name with each number as `*`, so that `worker-12` is a `worker-*`.
pub fn role(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut in_number = false;
    for c in name.trim().chars() {
        if c.is_ascii_digit() {
            if !in_number {
                out.push('*');
            }
            in_number = true;
        } else {
            in_number = false;
            out.push(c);
        }
    }
    out
}

/// Whether a name is what a pattern says, in which `*` stands for any characters.
pub fn is_like(name: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => name == pattern,
        Some((head, rest)) => name.strip_prefix(head).is_some_and(|tail| {
            let mut ends = tail.char_indices().map(|(at, _)| at).chain([tail.len()]);
            ends.any(|at| is_like(&tail[at..], rest))
        }),
    }
}

/// For each name (by its place in `names`) the place of the name that stands for it, and how they were
/// matched. Names are different ones in `Form::Name`. `sides` says where a name occurs: bit 0 in the
/// baseline, bit 1 in the candidate.
pub fn matched(names: &[String], sides: &[u8]) -> Vec<(usize, Form)> {
    const BOTH: u8 = 3;
    let mut result: Vec<(usize, Form)> = (0..names.len()).map(|at| (at, Form::Name)).collect();
    let mut open: Vec<usize> = (0..names.len()).filter(|at| sides[*at] != BOTH).collect();
    for form in [Form::Closures, Form::Generics, Form::Parameters] {
        let mut groups: HashMap<String, (u8, usize)> = HashMap::new();
        for at in &open {
            let group = groups.entry(reduce(&names[*at], form)).or_insert((0, *at));
            group.0 |= sides[*at];
        }
        open.retain(|at| {
            let (found_on, first) = groups[&reduce(&names[*at], form)];
            if found_on == BOTH {
                result[*at] = (first, form);
            }
            found_on != BOTH
        });
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn reduces(form: Form, cases: &[(&str, &str)]) {
        for (name, expected) in cases {
            assert_eq!(reduce(name, form), *expected, "{name}");
        }
    }

    #[test]
    fn marks_of_a_build_are_dropped() {
        reduces(
            Form::Name,
            &[
                ("shop::price::h0123456789abcdef", "shop::price"),
                ("shop::price::hello", "shop::price::hello"),
                ("parse.constprop.0", "parse"),
                ("parse.isra.0.part.3.cold", "parse"),
                ("parse.cold", "parse"),
                ("parse.llvm.1234567", "parse"),
                ("parse(int) [clone .constprop.1]", "parse(int)"),
                ("memcpy@@GLIBC_2.14", "memcpy"),
                ("module.function", "module.function"),
                ("a.out+0x40", "a.out+0x40"),
                (".cold", ".cold"),
            ],
        );
    }

    #[test]
    fn closures_lose_their_numbers() {
        reduces(
            Form::Closures,
            &[
                ("shop::serve::{closure#12}", "shop::serve::{closure}"),
                ("Shop$$Lambda$14/0x00007f0c0100.run", "Shop$$Lambda.run"),
                ("Shop$$Lambda/0x0000000008000c10.run", "Shop$$Lambda.run"),
                ("Shop$$LambdaBox.run", "Shop$$LambdaBox.run"),
                ("com.sun.proxy.$Proxy12.call", "com.sun.proxy.$Proxy.call"),
                (
                    "GeneratedMethodAccessor7.invoke",
                    "GeneratedMethodAccessor.invoke",
                ),
                (
                    "LambdaForm$MH/0x00007f0c0100.invoke",
                    "LambdaForm$MH.invoke",
                ),
                ("Shop$Inner$1.run", "Shop$Inner$1.run"),
                ("shop::serve::{{closure}}", "shop::serve::{{closure}}"),
                (
                    "run()::{lambda(int)#2}::operator()",
                    "run()::{lambda}::operator()",
                ),
                ("run()::$_4::operator()", "run()::$_::operator()"),
                ("run()::'lambda12'(int)", "run()::'lambda'(int)"),
            ],
        );
    }

    #[test]
    fn generic_arguments_go_but_names_in_brackets_stay() {
        reduces(
            Form::Generics,
            &[
                (
                    "std::map<std::string, std::vector<int>>::at",
                    "std::map<>::at",
                ),
                ("alloc::vec::Vec<T>::push", "alloc::vec::Vec<>::push"),
                ("alloc::vec::Vec::<u8>::push", "alloc::vec::Vec<>::push"),
                (
                    "<shop::Store<K> as shop::Get>::get",
                    "<shop::Store<> as shop::Get>::get",
                ),
                (
                    "a::<impl b::C for d::E<F>>::g",
                    "a::<impl b::C for d::E<>>::g",
                ),
                ("std::operator<< <char>", "std::operator<< <>"),
                ("call<fn(u8) -> u8>::go", "call<>::go"),
            ],
        );
    }

    #[test]
    fn parameters_and_offsets_are_the_last_to_go() {
        reduces(
            Form::Parameters,
            &[
                ("parse(char const*, int) const", "parse"),
                ("(anonymous namespace)::f(int)", "{anonymous}::f"),
                ("S::operator()(int)", "S::operator()(int)"),
                ("libx.so+0x1f40", "libx.so+…"),
                ("0x7f0f65fc8388", "+…"),
                ("0xor", "0xor"),
            ],
        );
    }

    #[test]
    fn patterns() {
        assert!(is_like("log_write", "log_*") && is_like("log_", "log_*"));
        assert!(is_like("std::io::Write::write", "std::*::write") && is_like("a", "*"));
        assert!(!is_like("blog_write", "log_*") && !is_like("log", "log_*"));
    }

    #[test]
    fn roles_forget_numbers() {
        assert_eq!(role("worker-12"), "worker-*");
        assert_eq!(role("tokio-runtime-w"), "tokio-runtime-w");
        assert_eq!(role("T10.2 "), "T*.*");
    }

    #[test]
    fn only_what_is_missing_on_a_side_is_matched_coarsely() {
        let table = [
            ("f<int>", 3),           // 0: in both, so it stays apart from the others
            ("f<long>", 1),          // 1: gone
            ("f<unsigned long>", 2), // 2: new: the same as 1
            ("run::{closure#0}", 1), // 3
            ("run::{closure#1}", 2), // 4
            ("gone", 1),             // 5
            ("new", 2),              // 6
        ];
        let names: Vec<String> = table.iter().map(|(n, _)| (*n).to_owned()).collect();
        let sides: Vec<u8> = table.iter().map(|(_, s)| *s).collect();
        let result = matched(&names, &sides);
        assert_eq!(result[0], (0, Form::Name));
        assert_eq!(
            (result[1].1, result[2]),
            (Form::Generics, (1, Form::Generics))
        );
        assert_eq!(result[4], (3, Form::Closures));
        assert_eq!((result[5].0, result[6].0), (5, 6));
    }
}
