//! Names as people write them: Rust (v0 and legacy) and C++ (Itanium) symbols, demangled.

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};

/// Longer results help nobody and fill the trace.
const LONGEST_NAME: usize = 4096;

/// Nesting that a demangler may follow: enough for real symbols, and hostile ones stay within a stack
/// of 2 MB, in a debug build too.
const RECURSION_LIMIT: u32 = 96;

/// Places at which the name in a C++ symbol may end that are tried.
const MOST_ENDS: usize = 64;

/// The name to show for a symbol of an object file.
///
/// A version (`@@GLIBC_2.14`) and the suffixes of split-off cold parts (`.cold`, `.cold.7`) go: the
/// cold part of a function is that function. So does what glibc writes before the names by which it calls
/// itself (`hidden_proto` of its include/libc-symbols.h). Names in no known mangling come back as they are.
pub fn demangle(symbol: &str) -> String {
    let symbol = without_cold_suffix(without_version(symbol));
    let symbol = symbol.strip_prefix("__GI_").unwrap_or(symbol);
    let mut name = if let Some(rust) = demangle_rust(symbol) {
        rust
    } else if symbol.starts_with("_Z") || symbol.starts_with("__Z") {
        demangle_cpp(symbol).unwrap_or_else(|| symbol.to_owned())
    } else {
        symbol.to_owned()
    };
    if name.len() > LONGEST_NAME {
        let end = (0..=LONGEST_NAME)
            .rev()
            .find(|&end| name.is_char_boundary(end));
        name.truncate(end.unwrap_or(0));
        name.push('…');
    }
    name
}

/// Whether a name is mangled, so that it says more than a plain one.
pub(crate) fn is_mangled(symbol: &str) -> bool {
    symbol.starts_with("_Z") || symbol.starts_with("_R")
}

fn without_version(symbol: &str) -> &str {
    match symbol.find('@') {
        Some(at) if at > 0 => &symbol[..at],
        _ => symbol,
    }
}

fn without_cold_suffix(symbol: &str) -> &str {
    match symbol.rfind(".cold") {
        Some(at) if at > 0 => {
            let rest = &symbol[at + ".cold".len()..];
            let number = rest.strip_prefix('.').unwrap_or(rest);
            if number.bytes().all(|b| b.is_ascii_digit()) {
                &symbol[..at]
            } else {
                symbol
            }
        }
        _ => symbol,
    }
}

fn demangle_rust(symbol: &str) -> Option<String> {
    // A legacy Rust name is a C++ name whose last part is a hash: without the hash it is C++.
    if symbol.starts_with("_ZN") && !has_legacy_hash(symbol) {
        return None;
    }
    let demangled = rustc_demangle::try_demangle(symbol).ok()?;
    Some(format!("{demangled:#}"))
}

/// `17h` + 16 hexadecimal digits + `E`, at the end or before a suffix such as `.llvm.123`.
fn has_legacy_hash(symbol: &str) -> bool {
    symbol.match_indices("17h").any(|(at, _)| {
        let rest = &symbol.as_bytes()[at + 3..];
        rest.len() >= 17
            && rest[..16].iter().all(u8::is_ascii_hexdigit)
            && rest[16] == b'E'
            && matches!(rest.get(17), None | Some(b'.'))
    })
}

fn demangle_cpp(symbol: &str) -> Option<String> {
    let show = DemangleOptions::new().no_return_type();
    demangle_cpp_as(symbol, show).or_else(|| demangle_cpp_name(symbol))
}

fn demangle_cpp_as(symbol: &str, show: DemangleOptions) -> Option<String> {
    let parse = ParseOptions::default().recursion_limit(RECURSION_LIMIT);
    Symbol::new_with_options(symbol, &parse)
        .ok()?
        .demangle_with_options(&show.recursion_limit(RECURSION_LIMIT))
        .ok()
}

/// The name and template arguments of a function whose return or parameter types cannot be read.
///
/// GCC writes the type before `::` in an expression (`sr`, as in `enable_if<is_scalar<T>::value>`) as a whole
/// `<type>`, where the ABI has `<unresolved-type>`, and counts it among the types that `S1_` refers to.
/// `cpp_demangle` follows the ABI and refuses such names; `std::swap` and `std::fill` of libstdc++ are among
/// them. In a mangled name the types stand behind the name, and the name of a template ends with an `E`.
fn demangle_cpp_name(symbol: &str) -> Option<String> {
    let (symbol, clone) = match symbol.find('.') {
        Some(at) => symbol.split_at(at),
        None => (symbol, ""),
    };
    let ends = symbol.match_indices('E').take(MOST_ENDS);
    let name = ends
        .filter_map(|(at, _)| demangle_cpp_as(&symbol[..=at], DemangleOptions::new().no_params()))
        .next()?;
    Some(match clone {
        "" => name,
        clone => format!("{name} [clone {clone}]"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_names_lose_mangling_and_hash() {
        assert_eq!(
            demangle("_ZN4core3fmt5Write9write_fmt17h1234567890abcdefE"),
            "core::fmt::Write::write_fmt"
        );
        assert_eq!(
            demangle("_ZN4core3fmt5Write9write_fmt17h1234567890abcdefE.llvm.42"),
            "core::fmt::Write::write_fmt"
        );
        assert_eq!(
            demangle("_RNvCs15kBYyAo9fc_7mycrate7example"),
            "mycrate::example"
        );
    }

    #[test]
    fn cpp_names_keep_their_arguments() {
        assert_eq!(demangle("_ZN3foo3barEiPKc"), "foo::bar(int, char const*)");
        assert_eq!(
            demangle("_ZNSt6vectorIiSaIiEE9push_backERKi"),
            "std::vector<int, std::allocator<int> >::push_back(int const&)"
        );
    }

    #[test]
    fn cpp_names_lose_types_that_cannot_be_read() {
        let types = "NSt9enable_ifIXsrSt6__and_IJSt6__not_ISt15__is_tuple_likeIT_EESt21is_move_constructibleIS5_E\
                     St18is_move_assignableIS5_EEE5valueEvE4typeERS5_SF_";
        for (name, expected) in [
            ("St4swapIPiE", "std::swap<int*>"),
            ("St4swapIPFivEE", "std::swap<int (*)()>"),
            ("N4shop3BoxIiE4swapIPiEE", "shop::Box<int>::swap<int*>"),
        ] {
            assert_eq!(demangle(&format!("_Z{name}{types}")), expected);
            assert_eq!(
                demangle(&format!("_Z{name}{types}.isra.0")),
                format!("{expected} [clone .isra.0]")
            );
        }
        assert_eq!(
            demangle(
                "_ZSt9__fill_a1IPiiEN9__gnu_cxx11__enable_ifIXsrSt11__is_scalarIT0_E7__valueEvE6__typeET_S8_RKS4_"
            ),
            "std::__fill_a1<int*, int>"
        );
    }

    #[test]
    fn suffixes_that_do_not_make_another_function_go() {
        assert_eq!(demangle("parse_line.cold"), "parse_line");
        assert_eq!(demangle("_ZN3foo3barEi.cold"), "foo::bar(int)");
        assert_eq!(demangle("memcpy@@GLIBC_2.14"), "memcpy");
        assert_eq!(demangle("parse_line.part.0"), "parse_line.part.0");
        assert_eq!(
            demangle("__GI_____strtod_l_internal"),
            "____strtod_l_internal"
        );
        assert_eq!(demangle("main"), "main");
    }

    #[test]
    fn garbage_comes_back_unchanged_and_bounded() {
        assert_eq!(demangle("_ZZZZ"), "_ZZZZ");
        assert_eq!(demangle(""), "");
        let nested = format!("_Z1f{}i", "P".repeat(100_000));
        assert!(demangle(&nested).len() <= nested.len());
        let ends = format!("_Z1fI{}", "E".repeat(100_000));
        assert!(demangle(&ends).len() <= ends.len());
    }
}
