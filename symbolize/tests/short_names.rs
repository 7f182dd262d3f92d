//! Names of real programs, as people write them.

use super::*;
use stackbeat_symbolize::short_names::{fit, simplify, text_width};

/// Mangled names of functions, and what `c++filt` makes of them.
fn demangled(path: &Path) -> Vec<(String, String)> {
    let functions = nm(path, "-n").into_iter();
    let mangled: Vec<String> = functions
        .filter(|(_, kind, name)| "tTwW".contains(*kind) && name.starts_with("_"))
        .map(|(_, _, name)| name)
        .collect();
    let list = path.with_extension("names");
    std::fs::write(&list, mangled.join("\n")).unwrap();
    let filtered = run("sh", &["-c", "c++filt < \"$1\"", "sh", text(&list)]);
    mangled
        .into_iter()
        .zip(filtered.lines().map(str::to_owned))
        .collect()
}

fn is_balanced(name: &str) -> bool {
    let plain = name.replace("operator()", "").replace("->", "");
    [('(', ')'), ('[', ']'), ('{', '}')]
        .iter()
        .all(|(open, close)| plain.matches(*open).count() == plain.matches(*close).count())
}

#[test]
fn functions_of_a_program_with_templates_read_as_in_its_source() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("templates");
    let source = source("templates.cpp");
    run("g++", &["-std=c++17", "-O1", "-o", text(&program), &source]);
    let names = demangled(&program);
    assert!(names.len() > 200, "{}", names.len());
    let simple: HashSet<String> = names
        .iter()
        .map(|(_, name)| simplify(name).into_owned())
        .collect();
    for expected in [
        "shop::Item::operator<(shop::Item const&) const",
        "shop::Item::operator std::string() const",
        "shop::Item::operator()(int) const",
        "shop::Item::operator->() const",
        "shop::Item::operator<<(int)",
        "shop::Basket<int, std::map<std::string, int>>::add(std::string const&, std::vector<int>)",
        "shop::Basket<shop::Item, std::unordered_map<std::string, shop::Item>>::take(std::string const&)",
        "shop::sum(std::unordered_map<std::string, std::vector<int>> const&)",
        "shop::largest(std::priority_queue<int>, std::set<std::string, std::greater<void>>)",
        "(anonymous namespace)::hidden(std::deque<std::pair<int, std::string>>&)",
        "std::unique_ptr<shop::Item>::~unique_ptr()",
    ] {
        assert!(
            simple.contains(expected),
            "{expected} is not among {simple:#?}"
        );
    }
    let (mut long, mut same) = (0, 0);
    for (mangled, filtered) in &names {
        let simple = simplify(filtered);
        assert_eq!(simplify(&simple), simple, "{filtered}");
        assert!(
            is_balanced(&simple) || !is_balanced(filtered),
            "{filtered}: {simple}"
        );
        for left_out in [
            "__cxx11::",
            "std::char_traits<",
            "std::default_delete<",
            "> >",
            "[abi:",
        ] {
            let is_own = |name: &str| name.contains(&format!("{left_out}char>::"));
            // `std::operator<< <std::char_traits<char>>` has it as its only argument.
            let is_only = simple.contains(&format!("<{left_out}"));
            assert!(
                !simple.contains(left_out) || is_own(&simple) || is_only,
                "{filtered}: {simple}"
            );
        }
        same += usize::from(simple.ends_with(&*simplify(&demangle(mangled))));
        for room in [16, 24, 40, 80] {
            let form = fit(&simple, room);
            assert!(text_width(&form) <= room, "{form}");
            long += usize::from(simple.len() > room);
        }
    }
    assert!(long > 100);
    // What the recorder writes, without return types, reads the same, but for a few that cpp_demangle writes
    // otherwise.
    assert!(same * 100 > names.len() * 90, "{same} of {}", names.len());
}

#[test]
fn names_of_rust_keep_what_they_say() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("sample-rs");
    run(
        "rustc",
        &["-g", "-O", "-o", text(&program), &source("sample.rs")],
    );
    let functions = nm(&program, "-n").into_iter();
    let mut generic = 0;
    for (_, _, mangled) in functions.filter(|(_, kind, _)| "tT".contains(*kind)) {
        let name = demangle(&mangled);
        let without_spaces = |name: &str| name.replace(' ', "");
        assert_eq!(without_spaces(&simplify(&name)), without_spaces(&name));
        let form = fit(&name, 32);
        assert!(
            text_width(&form) <= 32 && !form.is_empty(),
            "{name}: {form}"
        );
        // `<alloc::vec::Vec<T> as core::iter::Extend<T>>::extend`
        if name.starts_with('<') && name.contains(" as ") && !form.contains('…') && form != name {
            generic += 1;
            assert!(!form.contains(" as "), "{name}: {form}");
            let last = name.rsplit("::").next().unwrap();
            assert!(
                form.ends_with(last) || last.contains(['<', '>', '{']),
                "{name}: {form}"
            );
        }
    }
    assert!(generic > 20, "{generic}");
}
