//! Which functions are the program's own, and which only serve it: allocators, the standard library, an
//! interpreter. Every view asks here for whom an amount counts.

use std::hash::Hash;

use super::call_tree::{CallTree, Label, ROOT};
use super::lock_functions::without_arguments;
use super::methods::is_runtime;

/// What a function is to the program's own code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layer {
    /// None of the others: the program, or a library that it uses.
    Program,
    /// The same, and all that is known of it is its address.
    Nameless,
    /// Hands out memory for its caller.
    Allocator,
    /// Code of a standard library in the program's own file: templates, generics, and what was inlined.
    StandardCode,
    /// A standard library's own file.
    StandardFile,
    /// The C library's files and the loader.
    SystemFile,
    /// The machine code of an interpreter, which works for the interpreted function around it.
    Interpreter,
    /// Interpreted code that loads modules, for the module that imports them.
    ModuleLoader,
    /// Every stack, or every thread's, begins with it.
    Entry,
}

/// Names of functions that allocate for their callers.
const ALLOCATORS: &[&str] = &[
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "aligned_alloc",
    "memalign",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "strdup",
    "strndup",
    // gnulib's, which many programs have.
    "xmalloc",
    "xcalloc",
    "xrealloc",
    "xreallocarray",
    "xzalloc",
    "xnmalloc",
    "xnrealloc",
    "x2realloc",
    "x2nrealloc",
    "xmemdup",
    "xstrdup",
    "xstrndup",
    // Redis and its kin, PHP, PostgreSQL, OpenSSL, APR.
    "zmalloc",
    "zcalloc",
    "zrealloc",
    "emalloc",
    "ecalloc",
    "erealloc",
    "palloc",
    "palloc0",
    "repalloc",
    "CRYPTO_malloc",
    "CRYPTO_zalloc",
    "CRYPTO_realloc",
    "apr_palloc",
    "apr_pcalloc",
    "ngx_alloc",
    "ngx_calloc",
    "ngx_palloc",
    "ngx_pnalloc",
    "ngx_pcalloc",
];

/// How such names begin.
const ALLOCATOR_FAMILIES: &[&str] = &[
    "operator new",
    // glibc's functions behind `malloc`.
    "__libc_malloc",
    "__libc_calloc",
    "__libc_realloc",
    "__libc_memalign",
    "_int_malloc",
    "_int_realloc",
    "_int_memalign",
    // Rust: what `alloc::alloc` calls.
    "__rust_alloc",
    "__rust_realloc",
    "__rdl_",
    "__rg_",
    "__rustc::",
    "exchange_malloc",
    // GLib.
    "g_malloc",
    "g_realloc",
    "g_try_malloc",
    "g_try_realloc",
    "g_aligned_alloc",
    "g_slice_alloc",
    "g_strdup",
    "g_strndup",
    // CPython and NumPy.
    "PyObject_Malloc",
    "PyObject_Calloc",
    "PyObject_Realloc",
    "_PyObject_Malloc",
    "_PyObject_Calloc",
    "_PyObject_Realloc",
    "PyMem_",
    "_PyMem_",
    "PyDataMem_",
    // jemalloc, mimalloc, tcmalloc.
    "je_",
    "_rjem_",
    "mi_malloc",
    "mi_calloc",
    "mi_realloc",
    "mi_zalloc",
    "mi_heap_",
    "_mi_",
    "tc_malloc",
    "tc_calloc",
    "tc_realloc",
    "tc_new",
    "tcmalloc::",
    // SQLite, PostgreSQL, PHP, Ruby, HotSpot.
    "sqlite3Malloc",
    "sqlite3DbMalloc",
    "sqlite3DbRealloc",
    "sqlite3MemMalloc",
    "sqlite3MemRealloc",
    "sqlite3_malloc",
    "sqlite3_realloc",
    "MemoryContextAlloc",
    "AllocSetAlloc",
    "AllocSetRealloc",
    "_emalloc",
    "ruby_xmalloc",
    "ruby_xcalloc",
    "ruby_xrealloc",
    "rb_gc_impl_malloc",
    "rb_gc_impl_calloc",
    "rb_gc_impl_realloc",
    "os::malloc",
    "os::realloc",
    "AllocateHeap",
];

/// Files of interpreters whose functions are seen.
const INTERPRETERS: &[&str] = &["python", "libpython", "ruby", "libruby"];

/// Node.js: its files have V8 and the libraries that JavaScript's own modules work by (libuv, zlib, OpenSSL).
const NODE: &[&str] = &["node", "nodejs"];

/// Where the parts of Python's standard library lie that are written in C.
const PYTHON_LIBRARY: &str = "/lib-dynload/";

/// The functions in which every stack begins, beside `main`.
const ENTRIES: &[&str] = &[
    "_start",
    "__libc_start_main",
    "__libc_start_main_impl",
    "__libc_start_call_main",
    "start_thread",
    "clone",
    "clone3",
];

/// How names begin of what standard libraries have: Rust's and C++'s.
const STANDARD: &[&str] = &[
    "std::",
    "core::",
    "alloc::",
    "__rust_try",
    "__gthread",
    "__gnu_cxx::",
];

/// Where the sources of templates, generics and inlined functions of these libraries lie.
const STANDARD_SOURCES: &[&str] = &[
    "/rustc/",
    "/rust/deps/",
    "/usr/include/c++/",
    "/usr/lib/gcc/",
];

/// The same, where a Rust toolchain has its own sources, wherever it is.
const RUST_SOURCES: &str = "/lib/rustlib/src/rust/library/";

/// How the files of these libraries are named.
const STANDARD_FILES: &[&str] = &["libstdc++", "libc++", "libstd-"];

/// The same of the C library. The last two are the kernel's part of it.
const SYSTEM_FILES: &[&str] = &[
    "libc.so",
    "libc-",
    "libm.so",
    "libm-",
    "libpthread",
    "libdl",
    "librt",
    "ld-linux",
    "ld-musl",
    "libgcc_s",
    "[vdso]",
    "linux-vdso",
];

/// How the sources of what loads modules are called: Python's `import` and Node.js' `require`.
const MODULE_LOADERS: &[&str] = &[
    "<frozen importlib",
    "<frozen zipimport",
    "node:internal/modules/",
];

/// How the names of what V8 does for functions in JavaScript begin.
const V8: &[&str] = &["Builtins_", "v8::"];

/// What V8 does for none of them: its garbage is everybody's.
const V8_GARBAGE: &str = "v8::internal::Heap::CollectGarbage";

/// Whether a function belongs to Rust's or C++'s standard library, by its name.
fn is_standard(name: &str) -> bool {
    let name = name.trim_start_matches(['<', '&']);
    STANDARD.iter().any(|begin| name.starts_with(begin))
}

/// Whether every stack, or every thread's, begins with a function.
pub fn is_entry(name: &str) -> bool {
    name == "main" || ENTRIES.contains(&name)
}

/// How names begin of crates by which others wait.
const PARKING: &[&str] = &["parking_lot", "parking::"];

/// Whether a wait is that of an executor, for whatever lets its future go on: by the functions around it,
/// innermost first. Between its `block_on` and the wait is only its own crate's code, and what that waits by.
/// It is an event loop of that crate's. A wait in the future itself has the future's functions around it.
pub fn is_of_executor<'a>(functions: impl Iterator<Item = (Layer, &'a str)>) -> bool {
    let mut executor = None;
    for (layer, name) in functions {
        let waits = matches!(
            layer,
            Layer::StandardCode | Layer::StandardFile | Layer::SystemFile
        ) || PARKING.iter().any(|begin| name.starts_with(begin));
        if waits {
            continue;
        }
        let name = without_arguments(name).replace(['<', '>'], "");
        let Some((here, _)) = name.split_once("::") else {
            return false;
        };
        if *executor.get_or_insert_with(|| here.to_owned()) != here {
            return false;
        }
        if name.ends_with("::block_on") {
            return true;
        }
    }
    false
}

/// Whether a function allocates for its caller.
fn is_allocator(name: &str) -> bool {
    let name = without_arguments(name);
    // `malloc.part.0`, `malloc@plt`.
    let end = name.find(['.', '@']).filter(|end| *end > 0);
    let name = end.map_or(name, |end| &name[..end]);
    ALLOCATORS.contains(&name)
        || ALLOCATOR_FAMILIES.iter().any(|begin| name.starts_with(begin))
        // A class' own operator, and a program's own allocator in Rust.
        || name.contains("::operator new")
        || name.contains("GlobalAlloc>::")
}

impl Layer {
    /// What a function of this name, module and source file is.
    pub fn of(name: &str, module: &str, source: &str) -> Layer {
        let is_of =
            |begins: &[&str], text: &str| begins.iter().any(|begin| text.starts_with(begin));
        if is_of(MODULE_LOADERS, source) {
            return Layer::ModuleLoader;
        }
        if is_runtime(module) {
            return Layer::Program;
        }
        let file = module.rsplit('/').next().unwrap_or_default();
        if is_allocator(name) {
            return Layer::Allocator;
        }
        if ENTRIES.contains(&name) {
            return Layer::Entry;
        }
        let is_source = is_of(STANDARD_SOURCES, source) || source.contains(RUST_SOURCES);
        if is_standard(name) || is_source {
            return match is_of(STANDARD_FILES, file) {
                true => Layer::StandardFile,
                false => Layer::StandardCode,
            };
        }
        let is_node = NODE.contains(&file) || file.starts_with("libnode.so");
        if is_of(INTERPRETERS, file) {
            return Layer::Interpreter;
        }
        if (is_node || is_of(V8, name)) && !name.starts_with(V8_GARBAGE) {
            return Layer::Interpreter;
        }
        if module.contains(PYTHON_LIBRARY) {
            return Layer::StandardFile;
        }
        match () {
            () if is_of(STANDARD_FILES, file) => Layer::StandardFile,
            () if is_of(SYSTEM_FILES, file) => Layer::SystemFile,
            () if name.starts_with("0x") || name.contains("+0x") => Layer::Nameless,
            () => Layer::Program,
        }
    }

    /// Whether it is a standard library's.
    pub fn is_standard(self) -> bool {
        matches!(self, Layer::StandardCode | Layer::StandardFile)
    }

    /// Whether it is in the file of a library that serves all programs.
    fn is_library(self) -> bool {
        matches!(self, Layer::StandardFile | Layer::SystemFile)
    }

    /// Whether what it allocates is its own: the program's, or a library's that it uses.
    fn allocates(self) -> bool {
        matches!(self, Layer::Program | Layer::Nameless | Layer::SystemFile)
    }

    /// Whether running time in such a function counts for the one around it that it serves. What a nameless
    /// function calls of a library stands for itself: its name says more.
    fn serves(self, served: Option<Layer>) -> bool {
        match self {
            Layer::StandardCode | Layer::Interpreter | Layer::ModuleLoader => true,
            Layer::Allocator | Layer::StandardFile | Layer::SystemFile => {
                served.is_some_and(|served| served != Layer::Nameless)
            }
            Layer::Program | Layer::Nameless | Layer::Entry => false,
        }
    }
}

/// By place of a call tree: the place for whose function amounts count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CountsFor {
    /// What is allocated: the innermost function that is the program's own, and no allocator, standard
    /// library or interpreter; where there is none, the innermost that is no allocator.
    pub allocated: Vec<u32>,
    /// Running time: the innermost function that does not only serve another ([`Layer::serves`]).
    pub running: Vec<u32>,
}

impl CountsFor {
    /// `layer` says what a function is.
    pub fn of<G, F: Copy, C>(
        tree: &CallTree<Label<G, F, C>>,
        layer: impl Fn(F) -> Layer,
    ) -> CountsFor
    where
        Label<G, F, C>: Copy + Eq + Hash,
    {
        let layers = tree.places().iter().map(|place| match place.label {
            Label::Function(function) => Some(layer(function)),
            _ => None,
        });
        let layers: Vec<Option<Layer>> = layers.collect();
        // The nearest function outwards that is not passed, by its own layer and that of the one found around
        // it. Modules that are loaded before there is a function of the program count for who loads them.
        let nearest = |is_passed: &dyn Fn(Layer, Option<Layer>) -> bool| {
            let mut found: Vec<Option<u32>> = vec![None];
            for (at, place) in (0..).zip(tree.places()).skip(1) {
                let around = found[place.parent as usize];
                let layer_around = around.and_then(|place| layers[place as usize]);
                found.push(match layers[at as usize] {
                    Some(Layer::Entry) => None,
                    // What a library calls back says more than the library (`std::async` by `pthread_once`).
                    Some(Layer::StandardCode) if layer_around.is_some_and(Layer::is_library) => {
                        None
                    }
                    Some(layer) if !is_passed(layer, layer_around) => Some(at),
                    Some(Layer::ModuleLoader) => around.or(Some(at)),
                    _ => around,
                });
            }
            found
        };
        let own = nearest(&|layer, _| !layer.allocates());
        let outside = nearest(&|layer, _| layer == Layer::Allocator);
        let served = nearest(&Layer::serves);
        let places = || ROOT..tree.places().len() as u32;
        let allocated = places().map(|at| {
            let index = at as usize;
            own[index].or(outside[index]).unwrap_or(at)
        });
        let running = places().map(|at| served[at as usize].unwrap_or(at));
        CountsFor {
            allocated: allocated.collect(),
            running: running.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocators_are_known_and_their_callers_are_not() {
        for name in [
            "malloc",
            "malloc@plt",
            "xrealloc",
            "operator new(unsigned long)",
            "operator new[](unsigned long, std::nothrow_t const&)",
            "shop::Pool::operator new(unsigned long)",
            "__rust_alloc",
            "__rustc::__rust_alloc_zeroed",
            "<mimalloc::MiMalloc as core::alloc::global::GlobalAlloc>::alloc",
            "g_malloc0_n",
            "PyObject_Malloc",
            "_PyObject_Malloc.cold",
        ] {
            let layer = Layer::of(name, "/srv/shop", "");
            assert_eq!(layer, Layer::Allocator, "{name}");
        }
        for name in [
            "mallocate",
            "parse",
            "operator<<(std::ostream&, Shop const&)",
            "shop::operator_new",
            "mi_menu",
            "PyObject_Call",
            "<shop::Order as core::fmt::Display>::fmt",
        ] {
            let layer = Layer::of(name, "/srv/shop", "");
            assert_eq!(layer, Layer::Program, "{name}");
        }
        // What a runtime names is somebody's function, whatever its name.
        let method = Layer::of("malloc", "python", "");
        assert_eq!(method, Layer::Program);
    }

    #[test]
    fn standard_libraries_are_known_by_name_source_and_file() {
        let of = |name, module| Layer::of(name, module, "");
        let vector = "std::vector<int>::push_back(int const&)";
        assert_eq!(of(vector, "/srv/shop"), Layer::StandardCode);
        let print = "std::ostream::operator<<(double)";
        let library = "/usr/lib/libstdc++.so.6";
        assert_eq!(of(print, library), Layer::StandardFile);
        assert_eq!(of("__cxa_throw", library), Layer::StandardFile);
        let grow = "<alloc::vec::Vec<T> as core::ops::drop::Drop>::drop";
        assert_eq!(of(grow, "/srv/shop"), Layer::StandardCode);
        let table = "hashbrown::raw::RawTable<T>::find";
        assert_eq!(of(table, "/srv/shop"), Layer::Program);
        for source in [
            "/rust/deps/hashbrown-0.15.2/src/raw/mod.rs",
            "/home/me/.rustup/toolchains/stable/lib/rustlib/src/rust/library/core/src/num/mod.rs",
        ] {
            let layer = Layer::of(table, "/srv/shop", source);
            assert_eq!(layer, Layer::StandardCode, "{source}");
        }
        let interpreter = of("PyUnicode_New", "/usr/lib/libpython3.11.so.1.0");
        assert_eq!(interpreter, Layer::Interpreter);
        let extension = "/srv/_json.cpython-311-x86_64-linux-gnu.so";
        assert_eq!(of("scan", extension), Layer::Program);
        let own = "/usr/lib/python3.11/lib-dynload/_socket.cpython-311-x86_64-linux-gnu.so";
        assert_eq!(of("sock_send_impl", own), Layer::StandardFile);
        let node = "/usr/bin/node";
        assert_eq!(of("deflate_slow", node), Layer::Interpreter);
        assert_eq!(of("scan", "/srv/node_sqlite3.node"), Layer::Program);
        let garbage = "v8::internal::Heap::CollectGarbage(v8::internal::AllocationSpace)";
        assert_eq!(of(garbage, node), Layer::Program);
    }

    #[test]
    fn an_executor_waits_by_its_own_code_alone() {
        let is = |names: &[&str]| {
            let functions = names.iter().rev();
            is_of_executor(functions.map(|name| (Layer::of(name, "/srv/shop", ""), *name)))
        };
        let begin = ["shop::main", "tokio::runtime::runtime::Runtime::block_on"];
        let park = [
            "tokio::runtime::park::CachedParkThread::block_on",
            "std::thread::local::LocalKey<T>::try_with",
            "tokio::runtime::park::Inner::park",
            "<std::sys::sync::condvar::futex::Condvar>::wait",
        ];
        assert!(is(&[&begin[..], &park].concat()));
        assert!(is(&[
            "shop::main",
            park[0],
            park[2],
            "parking_lot::condvar::Condvar::wait"
        ]));
        let own = [
            "shop::main",
            "futures_executor::local_pool::block_on",
            "std::thread::park",
        ];
        assert!(is(&own));
        // The future waits, the program does, and a pool's worker.
        let future = [
            "shop::load::{{closure}}",
            "std::sync::mpsc::Receiver<T>::recv",
        ];
        assert!(!is(&[&begin[..], &park[..1], &future].concat()));
        assert!(!is(&[
            "shop::main",
            "shop::block_on_all",
            "std::sync::mpsc::Receiver<T>::recv"
        ]));
        assert!(!is(&[
            "start_thread",
            "tokio::runtime::park::Inner::park",
            park[3]
        ]));
        assert!(!is(&["main", "wait_for_jobs", "pthread_cond_wait"]));
        assert!(!is(&[]));
    }

    /// By the functions of a stack, outermost first: for which of them allocated bytes and running time
    /// count.
    fn counts_for(stack: &[(&str, &str)]) -> (u32, u32) {
        let mut tree = CallTree::<Label<(), u32, u32>>::default();
        let numbers: Vec<u32> = (0..).take(stack.len()).collect();
        let place = tree.path(&numbers) as usize;
        let layer = |number: u32| {
            let (name, module) = stack[number as usize];
            Layer::of(name, module, "")
        };
        let counts = CountsFor::of(&tree, layer);
        // The first function's place is 1.
        (counts.allocated[place] - 1, counts.running[place] - 1)
    }

    #[test]
    fn amounts_count_for_the_innermost_function_of_the_program() {
        let (shop, libc, python) = ("/srv/shop", "/lib/libc.so.6", "/usr/bin/python3.11");
        let c = [
            ("_start", shop),
            ("main", shop),
            ("parse", shop),
            ("xmalloc", shop),
        ];
        assert_eq!(counts_for(&c), (2, 2));
        let vector = ("std::vector<int>::push_back(int&&)", shop);
        let new = ("operator new(unsigned long)", "/usr/lib/libstdc++.so.6");
        assert_eq!(counts_for(&[c[0], c[1], vector, new]), (1, 1));
        assert_eq!(counts_for(&[c[0], c[1], vector]), (1, 1));
        // Nothing of the program is around it: it is the library's.
        let thread = ("std::sys::thread_start", shop);
        let boxed = ("__rust_alloc", shop);
        let start = ("start_thread", libc);
        assert_eq!(counts_for(&[start, thread, boxed]), (1, 2));
        assert_eq!(counts_for(&[start, thread]), (1, 1));
        // `std::async`, without lines: the program's function is in the names of templates only.
        let once = ("__pthread_once_slow", libc);
        let sort = ("std::__introsort_loop<int*>(int*, int*)", shop);
        assert_eq!(counts_for(&[start, thread, once, thread, sort]), (4, 4));
        assert_eq!(counts_for(&[start, thread, once]), (2, 2));
        assert_eq!(
            counts_for(&[start, thread, once, thread, c[2], sort]),
            (4, 4)
        );
        // Of an interpreter's own code the interpreted function around it; of an extension that one itself.
        let [run, list] = ["Py_RunMain", "list_resize"].map(|name| (name, python));
        let load = ("load", "python");
        assert_eq!(counts_for(&[c[0], run, load, list]), (2, 2));
        let scan = ("scan", "/srv/_json.cpython-311-x86_64-linux-gnu.so");
        assert_eq!(counts_for(&[c[0], run, load, scan, list]), (3, 3));
        assert_eq!(counts_for(&[c[0], run, list]), (2, 2));
        let sort = ("Builtins_ArrayTimSort", "/usr/bin/node");
        assert_eq!(counts_for(&[c[0], ("sortRows", ""), sort]), (1, 1));
        let [stringify, collect, scavenge] = [
            "v8::internal::JsonStringifier::Serialize_",
            "v8::internal::Heap::CollectGarbage(v8::internal::AllocationSpace)",
            "v8::internal::Heap::Scavenge()",
        ]
        .map(|name| (name, "/usr/bin/node"));
        let render = ("render", "");
        assert_eq!(counts_for(&[c[0], render, stringify]), (1, 1));
        assert_eq!(counts_for(&[c[0], render, collect, scavenge]).1, 2);
        let memory = ("_PyObject_Malloc", python);
        assert_eq!(counts_for(&[c[0], run, load, list, memory]), (2, 2));
    }

    #[test]
    fn the_c_library_counts_for_its_caller_where_that_has_a_name() {
        let (shop, libc) = ("/srv/shop", "/lib/x86_64-linux-gnu/libc.so.6");
        let [main, parse, nameless] = ["main", "parse", "shop+0x1230"].map(|name| (name, shop));
        let library = [
            "bsearch",
            "memcmp",
            "__memcmp_evex_movbe",
            "malloc",
            "_int_malloc",
        ];
        let [search, compare, inner, malloc, chunk] = library.map(|name| (name, libc));
        assert_eq!(counts_for(&[main, parse, compare, inner]).1, 1);
        assert_eq!(counts_for(&[main, parse, malloc, chunk]).1, 1);
        assert_eq!(counts_for(&[main, search, parse]).1, 2);
        // What opens a file for the program allocates for itself.
        let open = ("fopen", libc);
        assert_eq!(counts_for(&[main, parse, open, malloc]), (2, 1));
        // The outermost name is the one that was called.
        assert_eq!(counts_for(&[main, nameless, compare, inner]).1, 2);
        assert_eq!(counts_for(&[main, nameless, malloc, chunk]).1, 2);
        assert_eq!(counts_for(&[main, nameless]).1, 1);
        assert_eq!(counts_for(&[("_start", shop), inner]).1, 1);
    }

    #[test]
    fn what_loads_modules_counts_for_who_imports_them() {
        let mut tree = CallTree::<Label<(), u32, u32>>::default();
        let files = [
            "/srv/shop.py",
            "<frozen importlib._bootstrap>",
            "<frozen importlib._bootstrap_external>",
            "/srv/orders.py",
        ];
        let layer = |number: u32| Layer::of("f", "python", files[number as usize]);
        let imports = tree.path(&[0, 1, 2, 1]) as usize;
        let imported = tree.path(&[0, 1, 2, 1, 3]) as usize;
        let at_start = tree.path(&[1, 2, 1]) as usize;
        let counts = CountsFor::of(&tree, layer).running;
        assert_eq!(counts[imports], 1);
        assert_eq!(counts[imported], imported as u32);
        // Before there is a program they are one row.
        assert_eq!(counts[at_start], tree.path(&[1]));
    }
}
