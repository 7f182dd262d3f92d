//! Which functions are not the program's own: a system's, a runtime's, and packages'.

use stackbeat_model::is_runtime;

use super::metadata::FunctionName;

/// Whether a function is interpreted, or was compiled by a runtime that says where its source is.
pub(crate) fn is_managed(function: &FunctionName) -> bool {
    is_runtime(&function.module) || function.module.is_empty() && !function.file.is_empty()
}

/// Where Cargo and Go keep the sources of packages that are compiled into a program: `registry/src` and
/// `git/checkouts` of Cargo's home, `pkg/mod` of Go's.
const PACKAGES: [&str; 3] = ["/registry/src/", "/git/checkouts/", "/pkg/mod/"];

/// The package that a native function's source is of, with its version: `regex-automata-0.4.18`.
pub(crate) fn package(function: &FunctionName) -> Option<&str> {
    let [registry, ..] = PACKAGES;
    let (_, path) = function.file.split_once(registry)?;
    // The first folder is the registry's.
    path.split('/').nth(1).filter(|_| !is_managed(function))
}

/// Crates that run a program's futures, jobs and waits. Where nothing says where sources are, they are known
/// by their names.
const CRATES: [&str; 14] = [
    "tokio",
    "mio",
    "hyper",
    "futures_executor",
    "futures_util",
    "async_std",
    "async_executor",
    "async_io",
    "polling",
    "rayon",
    "rayon_core",
    "crossbeam_channel",
    "parking_lot",
    "parking_lot_core",
];

/// Whether a function is of one of these crates: `<tokio::runtime::park::Inner>::park`.
fn is_of_crate(name: &str) -> bool {
    let name = name.trim_start_matches(['<', '&']);
    name.split_once("::")
        .is_some_and(|(begin, _)| CRATES.contains(&begin))
}

/// Whether a function is not the program's own: it belongs to the system or the runtime, or was installed for
/// it.
pub(crate) fn is_library(function: &FunctionName) -> bool {
    const PARTS: [&str; 5] = [
        "/lib/python",
        "/site-packages/",
        "/node_modules/",
        "/lib/ruby/",
        "/gems/",
    ];
    /// Code that Python was given in its command line or its standard input.
    const GIVEN: [&str; 2] = ["<string>", "<stdin>"];
    match is_managed(function) {
        true => {
            let file = function.file.as_str();
            let is_made = file.starts_with(['<', '(']) && !GIVEN.contains(&file);
            is_made || file.starts_with("node:") || PARTS.iter().any(|part| file.contains(part))
        }
        false => {
            let is_package = PACKAGES.iter().any(|part| function.file.contains(part));
            // The last are `[vdso]` and the like.
            let mut begins = ["/lib", "/usr/lib", "["].iter();
            is_package
                || function.file.is_empty() && is_of_crate(&function.name)
                || function.file.starts_with("/usr/include/")
                || begins.any(|begin| function.module.starts_with(begin))
        }
    }
}

/// Whether a function has no name: `libfoo.so+0x1240`, or the address alone.
pub(crate) fn is_address(name: &str) -> bool {
    name.starts_with("0x") || name.contains("+0x")
}
