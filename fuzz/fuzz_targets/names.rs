//! Any text as a symbol or a name: demangled, simplified, and fitted into any width. Nothing may panic or
//! take long, and what is fitted fits.
//!
//!     cargo +nightly fuzz run names -- -max_len=4096 -timeout=5

#![no_main]

use libfuzzer_sys::fuzz_target;
use stackbeat_symbolize::demangle;
use stackbeat_symbolize::short_names::{fit, fit_apart, simplify, text_width};

fuzz_target!(|text: &str| {
    for name in [text, &demangle(text)] {
        let name = simplify(name);
        for room in [0, 1, 2, 8, 24, 80] {
            assert!(text_width(&fit(&name, room)) <= room);
            for form in fit_apart(&[&name, "a::f<int>(int)"], room) {
                assert!(text_width(&form) <= room);
            }
        }
    }
});
