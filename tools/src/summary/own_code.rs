//! Which function a sentence names for an amount: one that somebody wrote for this program, not what serves
//! it. The rule, as docs/reading-a-report.md says it:
//!
//! - A function's total is what it did itself and what it called. What a library does counts for the
//!   program's own functions around it.
//! - Where a function has half of the whole in its total, the innermost such function is named, with the
//!   function below it that has the largest total.
//! - Elsewhere those with the largest totals are named, each stack once.
//! - A function that does little but call another of the program's own is passed over for that one.

use std::cmp::Reverse;
use std::collections::HashMap;

use stackbeat_model::layers::{Layer, is_entry};
use stackbeat_model::{FunctionIndex, waits_for_lock};

use super::call_tree::{Label, Tree};
use super::libraries::{is_address, is_library, is_managed};
use super::metadata::{FunctionName, Metadata};

/// A callee with this part of its caller's total is what the caller does.
const NEARLY_ALL: f64 = 0.9;
/// A function with this part of its caller's total is what the caller is about.
const ABOVE_ALL: f64 = 0.3;
/// Functions named where none has half of the whole.
const NAMED: usize = 3;

/// What a function is for a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Own,
    /// The program's own, and every stack has it.
    Entry,
    Library,
    /// The program's own, known by its address: the program is stripped.
    Nameless,
    /// Its name tells nothing.
    Other,
}

/// Whether a function is all of a module: in Python, and Node.js' wrapper of one.
fn is_top_level(function: &FunctionName) -> bool {
    match &*function.name {
        "<module>" => true,
        "(anonymous)" => function.line == 1 && is_managed(function),
        _ => false,
    }
}

fn class(function: &FunctionName, layer: Layer) -> Class {
    if is_address(&function.name) {
        return match layer == Layer::Nameless && !is_library(function) {
            true => Class::Nameless,
            false => Class::Other,
        };
    }
    match layer {
        Layer::Program if is_library(function) || waits_for_lock(&function.name) => Class::Library,
        Layer::Program if is_entry(&function.name) || is_top_level(function) => Class::Entry,
        Layer::Program => Class::Own,
        Layer::Allocator | Layer::SystemFile => Class::Library,
        _ => Class::Other,
    }
}

/// A stack, and what was spent there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stack {
    /// The functions that may be named, outermost first, each once.
    functions: Vec<FunctionIndex>,
    /// Whether they are the program's own.
    is_own: bool,
    /// Entries around them, which are not among them.
    entries: Vec<FunctionIndex>,
    /// What the innermost of them calls of a library.
    library: Option<FunctionIndex>,
    ns: u64,
}

impl Stack {
    fn has(&self, function: FunctionIndex) -> bool {
        self.functions.contains(&function) || self.entries.contains(&function)
    }

    /// The functions below another one.
    fn below(&self, function: FunctionIndex) -> &[FunctionIndex] {
        let at = self.functions.iter().position(|f| *f == function);
        match at {
            Some(at) => &self.functions[at + 1..],
            None if self.entries.contains(&function) => &self.functions,
            None => &[],
        }
    }
}

/// Knows which functions are the program's own.
pub(crate) struct OwnCode<'a> {
    metadata: &'a Metadata,
    tree: &'a Tree,
    layers: Vec<Layer>,
    classes: Vec<Class>,
    is_managed: Vec<bool>,
}

/// Places of a stack between which its functions tell a reader something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    /// Where the program's own code calls a library, or its innermost function where that does the rest
    /// itself.
    pub(crate) from: u32,
    /// The outermost function of the program's own.
    pub(crate) to: u32,
}

impl<'a> OwnCode<'a> {
    pub(crate) fn new(metadata: &'a Metadata, tree: &'a Tree) -> OwnCode<'a> {
        let functions = &metadata.functions;
        let layers: Vec<Layer> = functions.iter().map(FunctionName::layer).collect();
        let classes = functions.iter().zip(&layers);
        let classes = classes.map(|(function, layer)| class(function, *layer));
        OwnCode {
            metadata,
            tree,
            classes: classes.collect(),
            is_managed: functions.iter().map(is_managed).collect(),
            layers,
        }
    }

    pub(crate) fn metadata(&self) -> &'a Metadata {
        self.metadata
    }

    pub(crate) fn tree(&self) -> &'a Tree {
        self.tree
    }

    fn class(&self, function: FunctionIndex) -> Class {
        let known = self.classes.get(function.0 as usize);
        known.copied().unwrap_or(Class::Other)
    }

    fn is_managed(&self, function: FunctionIndex) -> bool {
        let known = self.is_managed.get(function.0 as usize);
        known.copied().unwrap_or(false)
    }

    fn layer(&self, function: FunctionIndex) -> Layer {
        let known = self.layers.get(function.0 as usize);
        known.copied().unwrap_or(Layer::Program)
    }

    /// What a label's function is to the program, where it is one.
    pub(crate) fn layer_of(&self, label: Label) -> Option<Layer> {
        match label {
            Label::Function(function) => Some(self.layer(function)),
            _ => None,
        }
    }

    /// The functions at a place with theirs, outermost first. Of an interpreted program only interpreted
    /// ones.
    fn calls(&self, place: u32) -> Vec<(u32, FunctionIndex)> {
        let mut all: Vec<(u32, FunctionIndex)> = (self.tree.outwards(place))
            .filter_map(|(at, label)| match label {
                Label::Function(function) => Some((at, function)),
                _ => None,
            })
            .collect();
        all.reverse();
        if all.iter().any(|(_, f)| self.is_managed(*f)) {
            all.retain(|(_, f)| self.is_managed(*f));
        }
        all
    }

    /// The same without their places.
    fn functions(&self, place: u32) -> Vec<FunctionIndex> {
        let calls = self.calls(place).into_iter();
        calls.map(|(_, function)| function).collect()
    }

    /// What of a stack tells a reader something; `None` where no function is the program's own. What a
    /// standard library is called by has the name of the call, or says less.
    pub(crate) fn told(&self, place: u32) -> Option<Told> {
        let mut all = self.calls(place);
        // What lies around an entry is a thread's begin.
        let entry = all
            .iter()
            .rposition(|(_, f)| self.layer(*f) == Layer::Entry);
        all.drain(..entry.map_or(0, |at| at + 1));
        let class = |(_, f): &(u32, FunctionIndex)| self.class(*f);
        let innermost = [Class::Own, Class::Entry, Class::Nameless].into_iter();
        let innermost = innermost
            .map(|wanted| all.iter().rposition(|call| class(call) == wanted))
            .find_map(|at| at)?;
        let is_called = |call: &&(u32, FunctionIndex)| {
            class(call) == Class::Library || self.layer(call.1).is_standard()
        };
        let called = all[innermost + 1..].iter().find(is_called);
        let called = called.filter(|(_, f)| !self.layer(*f).is_standard());
        let is_own = |call: &(u32, FunctionIndex)| {
            matches!(class(call), Class::Own | Class::Entry | Class::Nameless)
        };
        // Rust's `main` for C calls the program's by this.
        let is_rusts = |(_, f): &(u32, FunctionIndex)| {
            let function = self.metadata.functions.get(f.0 as usize);
            function.is_some_and(|f| f.name.starts_with("std::rt::lang_start"))
        };
        let begin = all[..innermost].iter().position(is_rusts).unwrap_or(0);
        let outermost = all[begin..].iter().find(|call| is_own(call));
        let (from, _) = called.unwrap_or(&all[innermost]);
        let (to, _) = outermost?;
        Some(Told {
            from: *from,
            to: *to,
        })
    }

    /// The stack of a place. Of an interpreted program only interpreted functions may be named.
    pub(crate) fn stack(&self, place: u32, ns: u64) -> Stack {
        let all = self.functions(place);
        let classes = [Class::Own, Class::Entry, Class::Library];
        let class = classes
            .into_iter()
            .find(|class| all.iter().any(|f| self.class(*f) == *class));
        let mut functions: Vec<FunctionIndex> = Vec::new();
        let mut library = None;
        let mut before = None;
        for function in &all {
            let class_before = before.replace(self.class(*function));
            if class == Some(self.class(*function)) {
                library = None;
                // Of a library that one which was called, and not what it does it by.
                let is_inside = class == Some(Class::Library) && class_before == class;
                if !is_inside && !functions.contains(function) {
                    functions.push(*function);
                }
            } else if self.class(*function) == Class::Library {
                library.get_or_insert(*function);
            }
        }
        // What a library calls back says more than the library (`std::async` by `pthread_once`).
        let is_code = |f: &FunctionIndex| self.layer(*f) == Layer::StandardCode;
        let by_library = all
            .iter()
            .rposition(|f| self.class(*f) == Class::Library)
            .filter(|_| class == Some(Class::Library));
        let called_back = by_library.map_or(&[][..], |at| &all[at + 1..]);
        if called_back.iter().any(is_code) {
            functions.clear();
            for function in called_back.iter().copied().filter(is_code) {
                if !functions.contains(&function) {
                    functions.push(function);
                }
            }
        }
        if functions.is_empty() {
            functions.extend(all.last());
        }
        let mut entries = all;
        entries.retain(|f| class == Some(Class::Own) && self.class(*f) == Class::Entry);
        Stack {
            functions,
            entries,
            is_own: matches!(class, Some(Class::Own | Class::Entry)),
            library,
            ns,
        }
    }

    /// The innermost function at a place that may be named.
    pub(crate) fn innermost(&self, place: u32) -> Option<FunctionIndex> {
        self.stack(place, 0).functions.last().copied()
    }

    /// The same; where of the program's own only a module's code is around, as of an event loop or a pool's
    /// worker, the innermost function.
    pub(crate) fn innermost_at_work(&self, place: u32) -> Option<FunctionIndex> {
        let all = self.functions(place);
        match all.iter().any(|f| self.class(*f) == Class::Own) {
            true => self.innermost(place),
            false => all.last().copied(),
        }
    }
}

/// Functions with their totals in ns.
pub(crate) type Totals = Vec<(FunctionIndex, u64)>;

/// Where most of an amount is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lead {
    /// In one function, and above all in one below it.
    One((FunctionIndex, u64), Option<(FunctionIndex, u64)>),
    Several(Totals),
}

/// The functions to name for some stacks; `None` where there is nothing.
pub(crate) fn lead(stacks: &[Stack]) -> Option<Lead> {
    let whole = sum(stacks.iter());
    let stacks: Vec<&Stack> = stacks.iter().collect();
    let all = totals(&stacks, |stack| &stack.functions);
    let innermost_half = |totals: &HashMap<FunctionIndex, Total>| {
        let with_half = totals
            .iter()
            .filter(|(_, total)| total.ns >= whole.div_ceil(2));
        let innermost = with_half.min_by_key(|(f, total)| total.innermost(**f));
        innermost.map(|(function, _)| *function)
    };
    let Some(mut function) = innermost_half(&all) else {
        // Beside the program's own code nobody looks for what a library did without it, where that is not
        // nearly all: of a program without symbols only a few functions are known to be its own.
        let own = stacks.iter().copied().filter(|stack| stack.is_own);
        let own: Vec<&Stack> = own.collect();
        let is_told = sum(own.iter().copied()) as f64 >= (1.0 - NEARLY_ALL) * whole as f64;
        let several = several(if is_told { own } else { stacks });
        return (!several.is_empty()).then_some(Lead::Several(several));
    };
    // One below it may have a larger total, because it is also called from elsewhere.
    let mut passed = vec![function];
    while let Some(inner) = innermost_half(&totals(&stacks, |stack| stack.below(function)))
        && !passed.contains(&inner)
    {
        function = inner;
        passed.push(inner);
    }
    let stacks: Vec<&Stack> = (stacks.into_iter())
        .filter(|stack| stack.has(function))
        .collect();
    // With what lies below an entry where that was not looked at.
    let total_ns = sum(stacks.iter().copied());
    let own = totals(&stacks, |stack| stack.below(function));
    let own = largest(&own).map(|found| passed_on(&stacks, found));
    // What functions below it call of a library counts for those.
    let library = totals(&stacks, |stack| match stack.functions.last() {
        Some(last) if *last == function => stack.library.as_slice(),
        _ => &[],
    });
    let library = largest(&library);
    let inner = match (own, library) {
        (Some(own), Some(library)) if library.1 > own.1 => Some(library),
        (own, library) => own.or(library),
    };
    let is_worth = |inner: &(FunctionIndex, u64)| inner.1 as f64 >= ABOVE_ALL * total_ns as f64;
    Some(Lead::One((function, total_ns), inner.filter(is_worth)))
}

fn sum<'a>(stacks: impl Iterator<Item = &'a Stack>) -> u64 {
    stacks.fold(0, |sum, stack| sum.saturating_add(stack.ns))
}

/// What a function has in its total, and how deep it was met.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    ns: u64,
    depth: usize,
}

impl Total {
    /// The least of several is the innermost function.
    fn innermost(self, function: FunctionIndex) -> (u64, Reverse<usize>, FunctionIndex) {
        (self.ns, Reverse(self.depth), function)
    }
}

fn totals<'a>(
    stacks: &[&'a Stack],
    functions: impl Fn(&'a Stack) -> &'a [FunctionIndex],
) -> HashMap<FunctionIndex, Total> {
    let mut totals: HashMap<FunctionIndex, Total> = HashMap::new();
    for stack in stacks {
        for (depth, function) in functions(stack).iter().enumerate() {
            let total = totals.entry(*function).or_default();
            total.ns = total.ns.saturating_add(stack.ns);
            total.depth = total.depth.max(depth);
        }
    }
    totals
}

fn largest(totals: &HashMap<FunctionIndex, Total>) -> Option<(FunctionIndex, u64)> {
    let found = totals
        .iter()
        .max_by_key(|(f, total)| (total.ns, Reverse(**f)));
    found.map(|(function, total)| (*function, total.ns))
}

/// A function, or the innermost below it that has nearly all of its total.
fn passed_on(stacks: &[&Stack], found: (FunctionIndex, u64)) -> (FunctionIndex, u64) {
    let (function, ns) = found;
    let below = totals(stacks, |stack| stack.below(function));
    let does_it = below
        .iter()
        .filter(|(_, total)| total.ns as f64 >= NEARLY_ALL * ns as f64);
    let innermost = does_it.min_by_key(|(f, total)| total.innermost(**f));
    innermost.map_or(found, |(f, total)| (*f, total.ns))
}

/// The functions with the largest totals, each stack counted for the first of them that it has.
fn several(mut stacks: Vec<&Stack>) -> Totals {
    let mut named = Totals::new();
    while named.len() < NAMED
        && let Some(found) = largest(&totals(&stacks, |stack| &stack.functions))
    {
        let (function, _) = passed_on(&stacks, found);
        named.push((
            function,
            sum(stacks.iter().copied().filter(|s| s.has(function))),
        ));
        stacks.retain(|stack| !stack.has(function));
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::labels::chain;

    /// A stack of functions with these numbers, outermost first.
    fn stack(functions: &[u32], library: Option<u32>, ns: u64) -> Stack {
        Stack {
            functions: functions.iter().copied().map(FunctionIndex).collect(),
            is_own: true,
            entries: Vec::new(),
            library: library.map(FunctionIndex),
            ns,
        }
    }

    fn one(function: (u32, u64), inner: Option<(u32, u64)>) -> Option<Lead> {
        let named = |(function, ns)| (FunctionIndex(function), ns);
        Some(Lead::One(named(function), inner.map(named)))
    }

    const RUN: u32 = 1;
    const PARSE: u32 = 2;
    const SPLIT: u32 = 3;
    const BUILD: u32 = 4;
    const DIGEST: u32 = 5;
    const SHA: u32 = 9;

    #[test]
    fn the_largest_total_counts_and_not_who_calls_the_largest_leaf() {
        let stacks = [
            stack(&[RUN, PARSE], None, 10),
            stack(&[RUN, PARSE, SPLIT], None, 20),
            stack(&[RUN, PARSE, BUILD], None, 15),
            stack(&[RUN, DIGEST], Some(SHA), 40),
            stack(&[RUN], None, 15),
        ];
        assert_eq!(lead(&stacks), one((RUN, 100), Some((PARSE, 45))));
    }

    #[test]
    fn the_innermost_with_half_is_named_wherever_it_was_called_from() {
        let stacks = [
            stack(&[RUN, PARSE, SPLIT], None, 30),
            stack(&[RUN, BUILD, SPLIT], Some(SHA), 30),
            stack(&[RUN, DIGEST], None, 40),
        ];
        assert_eq!(lead(&stacks), one((SPLIT, 60), Some((SHA, 30))));
        // A library counts for who calls it.
        let everywhere = [
            stack(&[RUN, PARSE], Some(SHA), 40),
            stack(&[RUN, DIGEST], Some(SHA), 35),
            stack(&[RUN], Some(SHA), 25),
        ];
        assert_eq!(lead(&everywhere), one((RUN, 100), Some((PARSE, 40))));
        // From elsewhere, too, and so with a larger total than the function around it.
        let also_at_start = [
            stack(&[RUN, PARSE], None, 90),
            stack(&[PARSE], None, 5),
            stack(&[BUILD], None, 5),
        ];
        assert_eq!(lead(&also_at_start), one((PARSE, 95), None));
        // Recursion counts once.
        let recursive = [stack(&[PARSE, BUILD], None, 40), stack(&[PARSE], None, 60)];
        assert_eq!(lead(&recursive), one((PARSE, 100), Some((BUILD, 40))));
    }

    #[test]
    fn a_modules_total_has_what_its_functions_do() {
        let main = RUN;
        let of_main = |mut stack: Stack| {
            stack.entries.push(FunctionIndex(main));
            stack
        };
        let stacks = [
            of_main(stack(&[PARSE], None, 36)),
            stack(&[main], Some(SHA), 54),
            stack(&[main], None, 10),
        ];
        assert_eq!(lead(&stacks), one((main, 100), Some((SHA, 54))));
        // It is not named before what is below it.
        let few = [
            of_main(stack(&[PARSE], None, 56)),
            of_main(stack(&[DIGEST], None, 40)),
            stack(&[main], None, 4),
        ];
        assert_eq!(lead(&few), one((PARSE, 56), None));
    }

    #[test]
    fn where_none_has_half_no_stack_is_named_twice() {
        let stacks = [
            stack(&[RUN, PARSE], None, 1),
            stack(&[RUN, PARSE, SPLIT], None, 44),
            stack(&[DIGEST], Some(SHA), 35),
            stack(&[BUILD], None, 20),
        ];
        let named = [(SPLIT, 44), (DIGEST, 35), (BUILD, 20)];
        let named = named.map(|(function, ns)| (FunctionIndex(function), ns));
        assert_eq!(lead(&stacks), Some(Lead::Several(named.to_vec())));
        // What a library does by itself is not among them, except where there is nothing else.
        let others = stacks.map(|stack| Stack {
            is_own: stack.has(FunctionIndex(DIGEST)),
            ..stack
        });
        let digest = vec![(FunctionIndex(DIGEST), 35)];
        assert_eq!(lead(&others), Some(Lead::Several(digest)));
        assert_eq!(lead(&[]), None);
    }

    #[test]
    fn callers_are_told_from_where_the_program_calls_a_library() {
        let name = |(name, module, file): &(&str, &str, &str)| FunctionName {
            name: (*name).to_owned(),
            module: (*module).to_owned(),
            file: (*file).to_owned(),
            line: 3,
        };
        let [shop, libc] = ["/srv/shop", "/lib/x86_64-linux-gnu/libc.so.6"];
        let [js, py] = ["/srv/shop.js", "/srv/shop.py"];
        let standard = "/usr/include/c++/12/mutex";
        let [queue, threading] = [
            "/usr/lib/python3.11/queue.py",
            "/usr/lib/python3.11/threading.py",
        ];
        /// What calls what, outermost first, and what is told of it.
        type Case<'a> = (&'a [(&'a str, &'a str, &'a str)], &'a str);
        let main = ("main", shop, "");
        let start = [("_start", shop, ""), ("__libc_start_main", libc, ""), main];
        let load = ("load", shop, "");
        let of_node = [
            ("uv_run", "/usr/bin/node", ""),
            ("Module._compile", "", "node:internal/modules/cjs/loader"),
            ("load", "", js),
            ("readFileSync", "", "node:fs"),
            ("Builtins_CEntry", "/usr/bin/node", ""),
            ("readSync", "", "node:fs"),
            ("uv_fs_read", "/usr/bin/node", ""),
        ];
        let thread = [
            ("Thread._bootstrap", "python", threading),
            ("Thread.run", "python", threading),
            ("worker", "python", py),
            ("Queue.get", "python", queue),
            ("Condition.wait", "python", threading),
        ];
        let [price, sort] = [("shop+0x1230", shop, ""), ("shop+0x1450", shop, "")];
        let cases: [Case<'_>; 11] = [
            (&of_node, "readFileSync ← load"),
            (&thread, "Queue.get ← worker"),
            (
                &[
                    start[0],
                    start[1],
                    main,
                    load,
                    ("fgets", libc, ""),
                    ("_IO_file_underflow", libc, ""),
                ],
                "fgets ← load ← main",
            ),
            (&[start[0], main, load], "load ← main"),
            // A standard library's function has the name of the call or says less.
            (
                &[
                    main,
                    load,
                    ("std::mutex::lock()", shop, standard),
                    ("__gthread_mutex_lock", shop, standard),
                ],
                "load ← main",
            ),
            (
                &[
                    main,
                    load,
                    ("std::call_once", shop, standard),
                    ("__pthread_once_slow", libc, ""),
                ],
                "load ← main",
            ),
            // A library calls the program back.
            (&[main, ("qsort", libc, ""), load], "load ← qsort ← main"),
            // A stripped program's functions are its own.
            (
                &[
                    ("shop+0x1080", shop, ""),
                    start[1],
                    price,
                    sort,
                    ("fgets", libc, ""),
                ],
                "fgets ← shop+0x1450 ← shop+0x1230",
            ),
            (&[("shop+0x1080", shop, ""), start[1], sort], "shop+0x1450"),
            // Rust's `main` for C is no function of the program's, and a package without debug information
            // none either.
            (
                &[
                    start[1],
                    main,
                    ("std::rt::lang_start_internal", shop, ""),
                    ("shop::main", shop, ""),
                    ("<tokio::runtime::Runtime>::block_on", shop, ""),
                    ("tokio::park::Inner::park", shop, ""),
                ],
                "<tokio::runtime::Runtime>::block_on ← shop::main",
            ),
            // Nothing is the program's own.
            (&thread[..2], "Thread.run ← Thread._bootstrap"),
        ];
        for (stack, told) in cases {
            let metadata = Metadata {
                functions: stack.iter().map(name).collect(),
                ..Metadata::default()
            };
            let mut tree = Tree::default();
            let functions: Vec<_> = (0..).take(stack.len()).map(FunctionIndex).collect();
            let place = tree.path(&functions);
            assert_eq!(chain(&OwnCode::new(&metadata, &tree), place), told);
        }
    }

    #[test]
    fn libraries_count_for_the_code_around_them() {
        let name = |name: &str, module: &str, file: &str| FunctionName {
            name: name.to_owned(),
            module: module.to_owned(),
            file: file.to_owned(),
            line: 1,
        };
        let [shop, libc] = ["/srv/shop", "/lib/x86_64-linux-gnu/libc.so.6"];
        let metadata = Metadata {
            functions: vec![
                name("_start", shop, ""),
                name("main", shop, ""),
                name("parse", shop, ""),
                name("strtod", libc, ""),
                name("shop+0x1230", shop, ""),
                name("<module>", "python", "/srv/shop.py"),
                name("load", "python", "/srv/shop.py"),
                name("loads", "python", "/usr/lib/python3.11/json/__init__.py"),
                name("given", "python", "<string>"),
                name("strtod_l", libc, ""),
                name("(anonymous)", "", "/srv/shop.js"),
                name("pack", "", "/srv/shop.js"),
                name("Builtins_CEntry_Return1", "/usr/bin/node", ""),
                name(
                    "regex::Regex::is_match",
                    shop,
                    "/home/me/.cargo/registry/src/index-1f/regex-1.13.2/src/regex.rs",
                ),
                name("std::_Function_handler::_M_invoke", shop, ""),
                name("std::__introsort_loop", shop, ""),
            ],
            ..Metadata::default()
        };
        let mut tree = Tree::default();
        let mut place = |functions: &[u32]| {
            let functions: Vec<_> = functions.iter().copied().map(FunctionIndex).collect();
            tree.path(&functions)
        };
        /// A stack, what may be named of it, whether that is the program's own, and the library below.
        type Case = (&'static [u32], &'static [u32], bool, Option<u32>);
        let cases: [Case; 12] = [
            // What a library calls back.
            (&[0, 14, 3, 14, 15], &[14, 15], false, None),
            (&[0, 14, 3, 9], &[3], false, None),
            (&[0, 1, 2, 3, 9], &[2], true, Some(3)),
            (&[0, 1, 3], &[1], true, Some(3)),
            // A package that is compiled into the program.
            (&[0, 1, 2, 13, 3], &[2], true, Some(13)),
            // Nothing of the program has a name.
            (&[0, 4, 3, 9], &[3], false, None),
            (&[0, 4], &[4], false, None),
            // Interpreted functions count, and not what interprets them.
            (&[0, 1, 2, 5, 6, 2, 7, 3], &[6], true, Some(7)),
            (&[0, 1, 5, 7], &[5], true, Some(7)),
            (&[0, 1, 7], &[7], false, None),
            (&[0, 5, 8], &[8], true, None),
            (&[0, 1, 10, 11, 12], &[11], true, None),
        ];
        let places: Vec<u32> = cases.iter().map(|(all, ..)| place(all)).collect();
        let own = OwnCode::new(&metadata, &tree);
        for ((all, named, is_own, library), place) in cases.into_iter().zip(places) {
            let expected = Stack {
                is_own,
                ..stack(named, library, 7)
            };
            let found = Stack {
                entries: Vec::new(),
                ..own.stack(place, 7)
            };
            assert_eq!(found, expected, "{all:?}");
        }
    }
}
