//! Names that demanglers write, and how short they become.

use super::brackets::Brackets;
use super::*;

/// Names as demanglers write them, and as people do.
const SIMPLIFIED: &[(&str, &str)] = &[
    ("main", "main"),
    (
        "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >::append(char const*)",
        "std::string::append(char const*)",
    ),
    (
        "std::__1::basic_string<char, std::__1::char_traits<char>, std::__1::allocator<char>>::append(char const*)",
        "std::string::append(char const*)",
    ),
    (
        "std::__ndk1::vector<int, std::__ndk1::allocator<int>>::push_back(int const&)",
        "std::vector<int>::push_back(int const&)",
    ),
    (
        "std::chrono::_V2::steady_clock::now()",
        "std::chrono::steady_clock::now()",
    ),
    (
        "std::filesystem::__cxx11::path::_M_split_cmpts()",
        "std::filesystem::path::_M_split_cmpts()",
    ),
    ("my::__cxx11::thing()", "my::__cxx11::thing()"),
    ("my::std::__1::thing()", "my::std::__1::thing()"),
    (
        "std::map<std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >, int, \
         std::less<std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> > >, \
         std::allocator<std::pair<std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> > const, \
         int> > >::operator[](std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> > const&)",
        "std::map<std::string, int>::operator[](std::string const&)",
    ),
    (
        "std::map<int, int, std::greater<int>, std::allocator<std::pair<int const, int> > >::find(int const&)",
        "std::map<int, int, std::greater<int>>::find(int const&)",
    ),
    (
        "std::map<int, int, std::less<long>, std::allocator<std::pair<int const, int> > >::find(int const&)",
        "std::map<int, int, std::less<long>>::find(int const&)",
    ),
    (
        "std::vector<int, pool<int> >::push_back(int&&)",
        "std::vector<int, pool<int>>::push_back(int&&)",
    ),
    (
        "std::unordered_map<char const*, long, std::hash<char const*>, std::equal_to<char const*>, \
         std::allocator<std::pair<char const* const, long> > >::clear()",
        "std::unordered_map<char const*, long>::clear()",
    ),
    (
        "std::_Hashtable<int, std::pair<int const, long>, std::allocator<std::pair<int const, long> >, \
         std::__detail::_Select1st, std::equal_to<int>, std::hash<int>, std::__detail::_Mod_range_hashing, \
         std::__detail::_Default_ranged_hash, std::__detail::_Prime_rehash_policy, \
         std::__detail::_Hashtable_traits<false, false, true> >::_M_rehash(unsigned long, unsigned long const&)",
        "std::_Hashtable<int, std::pair<int const, long>>::_M_rehash(unsigned long, unsigned long const&)",
    ),
    (
        "std::_Rb_tree<int, std::pair<int const, A>, std::_Select1st<std::pair<int const, A> >, std::less<int>, \
         std::allocator<std::pair<int const, A> > >::_M_erase(std::_Rb_tree_node<std::pair<int const, A> >*)",
        "std::_Rb_tree<int, std::pair<int const, A>>::_M_erase(std::_Rb_tree_node<std::pair<int const, A>>*)",
    ),
    (
        "std::unique_ptr<Shape, std::default_delete<Shape> >::~unique_ptr()",
        "std::unique_ptr<Shape>::~unique_ptr()",
    ),
    (
        "std::unique_ptr<Shape, Closer>::~unique_ptr()",
        "std::unique_ptr<Shape, Closer>::~unique_ptr()",
    ),
    (
        "std::priority_queue<int, std::vector<int, std::allocator<int> >, std::less<int> >::pop()",
        "std::priority_queue<int>::pop()",
    ),
    (
        "std::queue<int, std::deque<int, std::allocator<int> > >::pop()",
        "std::queue<int>::pop()",
    ),
    (
        "std::ostream_iterator<int, char, std::char_traits<char> >::operator=(int const&)",
        "std::ostream_iterator<int>::operator=(int const&)",
    ),
    (
        "std::basic_ostream<char, std::char_traits<char> >& std::operator<< <std::char_traits<char> >\
         (std::basic_ostream<char, std::char_traits<char> >&, char const*)",
        "std::ostream& std::operator<< <std::char_traits<char>>(std::ostream&, char const*)",
    ),
    (
        "std::basic_string<wchar_t, std::char_traits<wchar_t>, std::allocator<wchar_t> >::size() const",
        "std::wstring::size() const",
    ),
    (
        "boost::container::vector<int, std::allocator<int> >::clear()",
        "boost::container::vector<int>::clear()",
    ),
    (
        "my::set<int, std::less<int> >::clear()",
        "my::set<int>::clear()",
    ),
    (
        "my::map<A, B, std::hash<A>, std::equal_to<A>, std::allocator<std::pair<A const, B> > >::find(A)",
        "my::map<A, B>::find(A)",
    ),
    (
        "my::map<A, B, std::hash<B>, std::equal_to<A> >::find(my::set<A, std::less<A> >&)",
        "my::map<A, B, std::hash<B>>::find(my::set<A>&)",
    ),
    (
        "my::holder<A, std::default_delete<A> >::text<char, std::char_traits<char> >(char)",
        "my::holder<A>::text<char, std::char_traits<char>>(char)",
    ),
    // The functions differ by what they are given.
    (
        "my::time<int, std::less<int> >(int)",
        "my::time<int, std::less<int>>(int)",
    ),
    (
        "my::time<int, std::hash<int> >",
        "my::time<int, std::hash<int>>",
    ),
    ("name[abi:cxx11](int)", "name(int)"),
    (
        "std::function<void (std::vector<int, std::allocator<int> >)>::operator()(std::vector<int, std::allocator<int> >) const",
        "std::function<void (std::vector<int>)>::operator()(std::vector<int>) const",
    ),
    (
        "run(int)::{lambda(std::vector<int, std::allocator<int> >)#1}::operator()(std::vector<int, std::allocator<int> >) const",
        "run(int)::{lambda(std::vector<int>)#1}::operator()(std::vector<int>) const",
    ),
    (
        "(anonymous namespace)::f(std::vector<int, std::allocator<int> >)",
        "(anonymous namespace)::f(std::vector<int>)",
    ),
    ("pick<((int)3)>(4), (a)2>()", "pick<((int)3)>(4), (a)2>()"),
    // Other languages.
    (
        "<alloc::vec::Vec<u8> as std::io::Write>::write",
        "<alloc::vec::Vec<u8> as std::io::Write>::write",
    ),
    (
        "core::ops::function::FnOnce::call_once{{vtable.shim}}",
        "core::ops::function::FnOnce::call_once{{vtable.shim}}",
    ),
    ("main.(*Server).Serve", "main.(*Server).Serve"),
    ("Shop.<locals>.sum", "Shop.<locals>.sum"),
    ("<module>", "<module>"),
    (
        "int std::max<int>(int, int) -> decltype (a < b)",
        "int std::max<int>(int, int) -> decltype (a < b)",
    ),
];

/// A name, and its form for each room that is tried.
const FITTED: &[(&str, &[(usize, &str)])] = &[
    (
        "shop::Basket<shop::Item, 4>::add(shop::Item const&, int) const",
        &[
            (
                100,
                "shop::Basket<shop::Item, 4>::add(shop::Item const&, int) const",
            ),
            (61, "shop::Basket<shop::Item, 4>::add"),
            (32, "shop::Basket<shop::Item, 4>::add"),
            (31, "shop::Basket::add"),
            (17, "shop::Basket::add"),
            (16, "Basket::add"),
            (10, "add"),
            (3, "add"),
            (2, "…d"),
        ],
    ),
    (
        "add_everything_to_basket(int)  [libshop.so.1]",
        &[
            (45, "add_everything_to_basket(int)  [libshop.so.1]"),
            (44, "add_everything_to_basket  [libshop.so.1]"),
            (39, "add_everything_to_basket(int)"),
            (28, "add_everything_to_basket"),
            (23, "add_everything…o_basket"),
        ],
    ),
    (
        "run(int) const::{lambda(int)#1}::operator()(int) const",
        &[
            (50, "run(int) const::{lambda(int)#1}::operator()"),
            (40, "run::{lambda#1}::operator()"),
            (26, "run::{#1}::operator()"),
            (10, "run::{…r()"),
        ],
    ),
    (
        "my::Id::operator std::vector<int>() const",
        &[
            (38, "my::Id::operator std::vector<int>"),
            (30, "my::Id::operator std::vector"),
            (27, "Id::operator std::vector"),
            (23, "operator std::vector"),
        ],
    ),
    (
        "a::Id::operator char const*() const",
        &[
            (34, "a::Id::operator char const*"),
            (26, "Id::operator char const*"),
            (23, "operator char const*"),
        ],
    ),
    (
        "a::Id::operator()",
        &[(16, "Id::operator()"), (8, "Id::…r()")],
    ),
    ("a::Id::operator()(int)", &[(21, "a::Id::operator()")]),
    (
        "a::operator<(a::B<c> const&, int)",
        &[(32, "a::operator<"), (11, "operator<")],
    ),
    (
        "a::operator< <int>(a::B<int> const&)",
        &[
            (35, "a::operator< <int>"),
            (17, "a::operator<"),
            (11, "operator<"),
        ],
    ),
    (
        "a::B<c>::operator->() const",
        &[
            (26, "a::B<c>::operator->"),
            (18, "a::B::operator->"),
            (15, "B::operator->"),
        ],
    ),
    (
        "a::operator<=>(a::B<c>, a::B<c>)",
        &[(31, "a::operator<=>"), (13, "operator<=>")],
    ),
    (
        "a::(anonymous namespace)::f<int>(int)",
        &[
            (36, "a::(anonymous namespace)::f<int>"),
            (31, "a::(anonymous namespace)::f"),
            (26, "(anonymous namespace)::f"),
            (23, "f"),
        ],
    ),
    ("a::f(int) [clone .isra.0]", &[(24, "a::f"), (3, "f")]),
    ("a::f(int) const (.isra.0)", &[(24, "a::f"), (3, "f")]),
    (
        "a::B<c>::f(int) const &&",
        &[(20, "a::B<c>::f"), (9, "a::B::f")],
    ),
    (
        "std::string::_M_replace(int)  [libstdc++.so.6]",
        &[
            (45, "std::string::_M_replace  [libstdc++.so.6]"),
            (40, "std::string::_M_replace(int)"),
            (27, "std::string::_M_replace"),
            (22, "string::_M_replace"),
        ],
    ),
    (
        "a::b::f(int)@plt",
        &[(15, "a::b::f@plt"), (10, "b::f@plt"), (7, "f@plt")],
    ),
    (
        "<std::fs::File as std::io::Write>::write",
        &[(20, "std::fs::File::write"), (12, "File::write")],
    ),
    ("<&mut a::B<C> as a::D<E>>::f::<G>", &[(20, "a::B::f")]),
    ("<[T] as a::D>::f", &[(15, "[T]::f")]),
    (
        "k::run::{{closure}}",
        &[
            (18, "k::run::{closure}"),
            (16, "run::{closure}"),
            (8, "run::{…}"),
        ],
    ),
    (
        "k::run::{closure#0}",
        &[(18, "run::{closure#0}"), (15, "run::{#0}")],
    ),
    ("<module>", &[(7, "<mod…e>")]),
    ("main.(*Server).Serve", &[(19, "main.(*Serve….Serve")]),
    (
        "LazyCompile:*sum(a) /shop/basket.js:12",
        &[(20, "LazyCompile:…t.js:12")],
    ),
];

#[test]
fn defaults_and_inline_namespaces_are_left_out() {
    for (name, expected) in SIMPLIFIED {
        assert_eq!(simplify(name), *expected, "{name}");
        assert_eq!(simplify(expected), *expected, "twice: {name}");
    }
}

#[test]
fn parameters_go_first_and_the_last_component_stays() {
    let mut wrong = String::new();
    for (name, forms) in FITTED {
        for (room, expected) in *forms {
            let form = fit(name, *room);
            if form != *expected {
                wrong += &format!("{name} in {room}: {form}, not {expected}\n");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Names that one room makes the same, and how they are told apart.
const APART: &[(usize, &[(&str, &str)])] = &[
    (
        40,
        &[
            (
                "std::_Rb_tree<std::string, std::pair<std::string const, int>>::find(std::string const&) const",
                "std::_Rb_tree<…int>::find(…)",
            ),
            (
                "std::_Rb_tree<std::string, std::pair<std::string const, std::string>>::find(std::string const&) const",
                "std::_Rb_tree<…std::string>::find(…)",
            ),
        ],
    ),
    (
        22,
        &[
            (
                "std::_Rb_tree<std::string, std::pair<std::string const, int>>::find(std::string const&) const",
                "_Rb_tree<…int>::find",
            ),
            (
                "std::_Rb_tree<std::string, std::pair<std::string const, std::string>>::find(std::string const&) const",
                "…<…std::string>::find",
            ),
        ],
    ),
    (
        16,
        &[
            ("a::Map<std::string>::find(int) const", "…<std::s…>::find"),
            ("a::Map<long>::find(int) const", "Map<long>::find"),
        ],
    ),
    (
        24,
        &[
            (
                "shop::join(std::vector<int> const&, char)",
                "shop::join(…int…)",
            ),
            (
                "shop::join(std::vector<long> const&, char)",
                "shop::join(…long…)",
            ),
        ],
    ),
    (
        18,
        &[
            ("shop::Basket::begin() const", "begin() const"),
            ("shop::Basket::begin()", "Basket::begin()"),
        ],
    ),
    (
        20,
        &[
            (
                "shop::store::Basket<shop::Item>::add(int)",
                "store::Basket::add",
            ),
            (
                "shop::cache::Basket<shop::Item>::add(int)",
                "cache::Basket::add",
            ),
        ],
    ),
    (
        16,
        &[
            ("shop::store::Basket<shop::Item>::add(int)", "store::…::add"),
            ("shop::cache::Basket<shop::Item>::add(int)", "cache::…::add"),
        ],
    ),
    (
        34,
        &[
            (
                "<shop::Price as core::convert::From<u8>>::from",
                "<shop::Price as …u8>::from",
            ),
            (
                "<shop::Price as core::convert::From<i64>>::from",
                "<shop::Price as …i64>::from",
            ),
        ],
    ),
    (
        24,
        &[
            ("shop::run(int)  [libshop.so.1]", "run  [libshop.so.1]"),
            ("shop::run(int)  [libshop.so.2]", "run  [libshop.so.2]"),
        ],
    ),
    (
        20,
        &[
            (
                "the_function_that_adds_prices_of_a_basket",
                "the_functi…add…asket",
            ),
            (
                "the_function_that_takes_prices_of_a_basket",
                "the_funct…take…asket",
            ),
        ],
    ),
];

#[test]
fn names_that_became_one_show_what_they_differ_in() {
    let mut wrong = String::new();
    for (room, names) in APART {
        let (long, expected): (Vec<&str>, Vec<&str>) = names.iter().copied().unzip();
        let apart = fit_apart(&long, *room);
        if apart != expected {
            wrong += &format!("in {room}: {apart:?}, not {expected:?}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// A C++ name and its last component.
fn random_function(random: &mut impl FnMut() -> usize) -> (String, String) {
    const OUTER: [&str; 8] = [
        "shop",
        "(anonymous namespace)",
        "Basket<int>",
        "std",
        "map<std::string, std::vector<int>>",
        "run(int) const",
        "Tree<(a)3, void (*)(int)>",
        "Ünit",
    ];
    const LAST: [&str; 12] = [
        "find",
        "~Basket",
        "operator()",
        "operator<",
        "operator<=>",
        "operator->",
        "operator new[]",
        "operator bool",
        "_M_lower_bound",
        "{lambda(int)#12}::operator()",
        "{lambda()#1}",
        "operator\"\"_km",
    ];
    const ARGUMENTS: [&str; 4] = [
        "",
        "<int>",
        "<std::less<int>, (b)1>",
        "<a::f<int>, &a::operator< <int>>",
    ];
    const BEHIND: [&str; 9] = [
        "",
        "()",
        "(int)",
        "(std::map<int, int> const&, ...)",
        "(int) const",
        "() const &",
        "(a::B&&) &&",
        "(int) volatile [clone .isra.0] [clone .cold]",
        "(void (*)(int)) const (.part.0)",
    ];
    let last = LAST[random() % LAST.len()];
    let mut name: String = (0..random() % 4)
        .map(|_| OUTER[random() % OUTER.len()].to_owned() + "::")
        .collect();
    let needs_outer = last.starts_with('{') || last == "operator()";
    if needs_outer {
        name += "run(int)::";
    }
    name += last;
    // Behind `operator<` they would be its own.
    if last.ends_with(|c: char| c.is_alphabetic()) && !last.contains("operator") {
        name += ARGUMENTS[random() % ARGUMENTS.len()];
    }
    name += BEHIND[random() % BEHIND.len()];
    let last = last.replace("lambda(int)", "").replace("lambda()", "");
    match needs_outer {
        true => (name, format!("run::{last}")),
        false => (name, last),
    }
}

#[test]
fn the_last_component_is_whole_in_any_room_that_it_has() {
    let mut random = random_numbers();
    for _ in 0..300 {
        let (name, last) = random_function(&mut random);
        let other = format!("other::{}", name.replace("int", "long"));
        let plain = |form: &str| {
            let lambdas = ["lambda(int)", "lambda()", "lambda"];
            let without = |form: String, part: &&str| form.replace(part, "");
            let form = lambdas.iter().fold(form.to_owned(), without);
            form.replace("run(int)", "run")
        };
        for room in text_width(&last)..=text_width(&name) {
            let form = fit(&name, room);
            assert!(plain(&form).contains(&last), "{name} in {room}: {form}");
            for form in fit_apart(&[&name, &other], room) {
                assert!(text_width(&form) <= room, "{name} in {room}: {form}");
                assert!(
                    last.starts_with("run::") || plain(&form).contains(&last),
                    "{name} in {room}: {form}"
                );
            }
        }
    }
}

/// Some bytes that look like names.
fn random_name(random: &mut impl FnMut() -> usize) -> String {
    const PIECES: [&str; 40] = [
        "std::",
        "vector",
        "<",
        ">",
        "(",
        ")",
        ", ",
        "int",
        "::",
        "operator",
        "operator<",
        "operator()",
        "operator->",
        "operator<<",
        " const",
        "&",
        "*",
        "{lambda(int)#1}",
        "(anonymous namespace)",
        "[abi:cxx11]",
        "allocator<int>",
        "__cxx11::",
        "basic_string<char, std::char_traits<char>, std::allocator<char> >",
        "~",
        "a",
        "é",
        "{",
        "}",
        "[",
        "]",
        " ",
        "->",
        " as ",
        "@plt",
        " [clone .cold]",
        "  [lib.so]",
        "<module>",
        "operator bool",
        "…",
        "'",
    ];
    (0..random() % 24)
        .map(|_| PIECES[random() % PIECES.len()])
        .collect()
}

fn random_numbers() -> impl FnMut() -> usize {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    move || {
        // xorshift
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize
    }
}

#[test]
fn whatever_the_name_is_forms_fit_and_stay_balanced() {
    let mut random = random_numbers();
    for _ in 0..2_000 {
        let name = random_name(&mut random);
        let simple = simplify(&name);
        let is_balanced = |text: &str| {
            ["()", "[]", "{}"].iter().all(|pair| {
                let count = |c: char| text.matches(c).count();
                count(pair.as_bytes()[0].into()) == count(pair.as_bytes()[1].into())
            })
        };
        if is_balanced(&name) {
            assert!(is_balanced(&simple), "{name:?}: {simple:?}");
        }
        let mut longest = usize::MAX;
        for room in (0..=text_width(&name)).rev() {
            let form = fit(&name, room);
            let length = text_width(&form);
            assert!(
                length <= room && length <= longest,
                "{name:?} in {room}: {form:?}"
            );
            longest = length.max(if form.contains("  [") { 0 } else { length });
            let other = name.replacen("int", "long", 1) + "x";
            if room % 16 != 0 {
                continue;
            }
            let apart = fit_apart(&[&name, &other, "a::f(int)"], room);
            assert!(
                apart.iter().all(|form| form.chars().count() <= room),
                "{name:?} in {room}: {apart:?}"
            );
        }
    }
}

#[test]
fn letters_that_take_two_cells_count_as_two() {
    let name = "shop::店::集計する関数";
    assert_eq!(text_width(name), 22);
    for (room, short) in [
        (22, name),
        (21, "店::集計する関数"),
        (15, "集計する関数"),
        (11, "集計す…関数"),
        (10, "集計す…数"),
        (2, "…"),
    ] {
        assert_eq!(fit(name, room), short);
    }
    // An accent stays with its letter.
    assert_eq!(beginning("e\u{301}te\u{301}", 1), "e\u{301}");
    assert_eq!(ending("日本", 3), "本");
    assert_eq!(without_middle("😀😀😀", 5), "😀…😀");
}

#[test]
fn hostile_names_take_no_time() {
    for piece in [
        "<", "(", "(<", "a<(", "operator", "::", "<a as ", "{{", "> ", "a<b,",
    ] {
        let name = piece.repeat(4096 / piece.len());
        assert!(simplify(&name).len() <= name.len(), "{piece}");
        assert!(text_width(&fit(&name, 40)) <= 40, "{piece}");
        let other = name.replacen(piece, "b", 1);
        let apart = fit_apart(&[&name, &other], 40);
        assert!(apart.iter().all(|form| text_width(form) <= 40), "{piece}");
    }
    let longer = "a::b<c>::".repeat(1 << 20);
    assert_eq!(simplify(&longer), longer);
    assert_eq!(text_width(&fit(&longer, 10)), 10);
}

#[test]
fn brackets_of_operators_are_none() {
    let name = "a::operator<(b<c>)";
    let brackets = Brackets::of(name);
    assert_eq!(brackets.partner(11), None);
    assert_eq!(brackets.operator_end(3), Some(12));
    assert_eq!(brackets.partner(12), Some(17));
    assert_eq!(brackets.partner(16), Some(14));
}
