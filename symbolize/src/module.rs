//! Names for the addresses of one module: its file, its debug files, its symbols, its PLT. Everything
//! read for it is dropped when it is done, so memory follows the largest module, not their sum.

use super::Options;
use super::boundaries::{Boundaries, Function};
use super::debug_files::{self, Buffers, Files};
use super::demangle::{demangle, is_mangled};
use super::dwarf::{Dwarf, DwarfFrame};
use super::object_file::{FileContent, ObjectFile, build_id as id_of, vdso_image};
use super::plt::Plt;
use super::section_cache::Identity;
use super::symtab::SymbolTable;
use super::variables::{self, NamedVariable};
use object::{Object, ObjectSection};
use stackbeat_core::address::Svma;
use stackbeat_proto::v1::NodeKind;
use std::collections::BTreeSet;
use std::path::Path;

const ADDRESSES_BETWEEN_QUESTIONS: usize = 64;

/// What a search does when it asks whether to go on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Doing {
    /// It fetches a debug file.
    Fetch,
    /// So many addresses are done.
    Addresses(usize),
}

/// What a search finds.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    /// The frames at one of the addresses, by its position, outermost first.
    Frames(usize, Vec<NamedFrame>),
    Variable(NamedVariable),
}

/// One frame: a function at a line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NamedFrame {
    /// Demangled.
    pub name: String,
    /// Empty when equal to `name`.
    pub mangled: String,
    /// File of the definition, empty when unknown.
    pub definition_file: String,
    /// Line of the definition, 0 when unknown.
    pub definition_line: u32,
    /// File of the line being executed, empty when unknown.
    pub file: String,
    /// Line being executed, 0 when unknown.
    pub line: u32,
}

/// Why a module's addresses stay without names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModuleError {
    /// The file is not there any more, or not readable.
    #[error("{path}: cannot be opened any more ({reason}); its functions stay without names")]
    Gone {
        /// The module's file.
        path: String,
        /// What the system said.
        reason: String,
    },
    /// Another file has the path.
    #[error(
        "{path}: changed since it was loaded (another build id); its functions stay without names"
    )]
    Changed {
        /// The module's file.
        path: String,
    },
    /// The file is damaged or no object file.
    #[error(
        "{path}: not an object file that can be read ({reason}); its functions stay without names"
    )]
    Unreadable {
        /// The module's file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// Looks up `addresses` (the file's own virtual addresses, ascending) and those in `variables`, and hands
/// what it finds to `found`. An address that nothing is known about is not handed over. `goes_on` is asked
/// now and then, and ends by false what is being done: a fetch, after which what is here is looked up, or the
/// search.
pub(crate) fn symbolize(
    path: &str,
    build_id: &[u8],
    options: &Options,
    addresses: &[Address],
    variables: &BTreeSet<Svma>,
    found: &mut dyn FnMut(Found),
    goes_on: &mut dyn FnMut(Doing) -> bool,
) -> Result<(), ModuleError> {
    let debug_roots = &options.debug_roots;
    let files = Files::new();
    let buffers = Buffers::new();
    let file_path = match options.files_of_builds.get(build_id) {
        Some(elsewhere) => elsewhere.to_owned(),
        None => options.sources.place_of(Path::new(path)),
    };
    let file_path = file_path.as_path();
    let binary = open(path, file_path, build_id, &files)?;
    if !build_id.is_empty()
        && let Some(actual) = id_of(&binary)
        && actual != build_id
    {
        return Err(ModuleError::Changed { path: path.into() });
    }

    let source = options.sources.debug.as_deref();
    let mut fetch = |id: Option<&[u8]>| {
        let (id, source) = (id.filter(|id| !id.is_empty())?, source?);
        debug_files::fetched(id, source, &files, &mut || goes_on(Doing::Fetch))
    };
    let has_dwarf = |file: &ObjectFile<'_>| file.section_by_name(".debug_info").is_some();
    let mut debug = debug_files::separate(file_path, &binary, debug_roots, &files);
    if debug.is_none() && !has_dwarf(&binary) {
        debug = fetch(id_of(&binary).as_deref());
    }
    let (source, with_dwarf) = match &debug {
        Some((path, file)) if has_dwarf(file) => (path.as_path(), file),
        _ => (file_path, &binary),
    };
    let debug = debug.as_ref().map(|(_, file)| file);
    let supplementary = debug_files::supplementary(source, with_dwarf, debug_roots, &files)
        .or_else(|| Some(fetch(debug_files::supplementary_id(with_dwarf))?.1));
    let kept = options.sources.cache.as_ref().and_then(|cache| {
        let identity = Identity::of(source, id_of(with_dwarf).as_deref())?;
        Some((cache, identity))
    });
    let looked_at = looked_at(addresses);
    let dwarf = Dwarf::open(
        with_dwarf,
        supplementary.as_ref(),
        kept,
        &looked_at,
        &files,
        &buffers,
    );
    let mini = debug_files::mini_debug_info(&binary)
        .and_then(|image| files.alloc(FileContent::from_memory(image)).parse().ok());

    let mut symbols = SymbolTable::default();
    let with_symbols = || [Some(&binary), debug, mini.as_ref()].into_iter().flatten();
    for file in with_symbols() {
        symbols.add(file);
    }
    if !variables.is_empty() {
        for variable in variables::named(with_symbols(), variables) {
            found(Found::Variable(variable));
        }
    }
    symbols.finish(&looked_at, |svma| section_end(&binary, svma));
    let names = Names {
        dwarf,
        symbols,
        plt: Plt::of(&binary),
        boundaries: Boundaries::open(&binary),
        module: base_name(path),
    };
    for (i, address) in addresses.iter().enumerate() {
        if i % ADDRESSES_BETWEEN_QUESTIONS == 0 && !goes_on(Doing::Addresses(i)) {
            break;
        }
        let frames = names.at(*address);
        if !frames.is_empty() {
            found(Found::Frames(i, frames));
        }
    }
    Ok(())
}

/// An address to look up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// Where it is in the file.
    pub svma: Svma,
    /// It is a return address: the call before it is what is meant.
    pub is_return: bool,
}

impl Address {
    pub fn kind(self) -> NodeKind {
        match self.is_return {
            true => NodeKind::Native,
            false => NodeKind::LeafPc,
        }
    }
}

/// What [`Names::at`] may ask for, ascending.
fn looked_at(addresses: &[Address]) -> Vec<Svma> {
    let svmas = addresses.iter().flat_map(|address| {
        let call = address.is_return.then(|| address.svma.wrapping_sub(1));
        call.into_iter().chain([address.svma])
    });
    let mut svmas: Vec<Svma> = svmas.collect();
    svmas.sort_unstable();
    svmas.dedup();
    svmas
}

/// Opens a module's file, which lies at `at`.
fn open<'a>(
    path: &str,
    at: &Path,
    build_id: &[u8],
    files: &'a Files,
) -> Result<ObjectFile<'a>, ModuleError> {
    let file = if path == "[vdso]" {
        vdso_image().map(FileContent::from_memory)
    } else {
        FileContent::open(at)
    };
    let file = file.map_err(|reason| ModuleError::Gone {
        path: path.into(),
        reason: reason.to_string(),
    })?;
    let part = file.part_of_build(build_id);
    let part = part.ok_or_else(|| ModuleError::Changed { path: path.into() })?;
    files
        .alloc(part)
        .parse()
        .map_err(|reason| ModuleError::Unreadable {
            path: path.into(),
            reason: reason.to_string(),
        })
}

fn section_end(binary: &ObjectFile<'_>, svma: Svma) -> Option<Svma> {
    binary
        .sections()
        .find(|s| s.address() != 0 && (s.address()..s.address() + s.size()).contains(&svma.0))
        .map(|s| Svma(s.address() + s.size()))
}

/// The last part of a path, as modules are shown.
pub(crate) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

struct Names<'a> {
    dwarf: Option<Dwarf<'a>>,
    symbols: SymbolTable<'a>,
    plt: Plt<'a>,
    boundaries: Option<Boundaries<'a>>,
    module: &'a str,
}

impl Names<'_> {
    /// Frames at an address, outermost first.
    fn at(&self, address: Address) -> Vec<NamedFrame> {
        if !address.is_return {
            return self.exactly_at(address.svma);
        }
        let call = address.svma.wrapping_sub(1);
        match self.function(call) {
            // A signal handler "returns" to the first instruction of the trampoline, whose unwind entry
            // begins one byte early for the sake of those who subtract one.
            Some(function) if function.returns_from_signal => self.exactly_at(address.svma),
            _ => self.exactly_at(call),
        }
    }

    fn function(&self, svma: Svma) -> Option<Function> {
        self.boundaries.as_ref()?.function(svma)
    }

    fn exactly_at(&self, svma: Svma) -> Vec<NamedFrame> {
        if let Some(stub) = self.plt.find(svma) {
            let name = match stub {
                Some((_, name)) => name.to_owned(),
                None => format!("{}@plt", self.module),
            };
            return vec![NamedFrame {
                name,
                ..Default::default()
            }];
        }
        let frames = self.dwarf.as_ref().map(|dwarf| dwarf.frames(svma));
        let mut frames = frames.unwrap_or_default();
        // Without a function DWARF knows at most the line (assembly).
        if frames.is_empty() {
            frames.push(DwarfFrame::default());
        }
        let outermost = frames.len() - 1;
        frames[outermost].name = self.outermost_name(svma, frames[outermost].name.take());
        if frames[outermost].name.is_none() {
            frames[outermost].name = self.function(svma).map(|function| {
                if function.returns_from_signal {
                    "<signal handler called>".to_owned()
                } else {
                    format!("{}+{:#x}", self.module, function.start)
                }
            });
        }
        if frames.iter().any(|frame| frame.name.is_none()) {
            frames.retain(|frame| frame.name.is_some());
        }
        frames.into_iter().rev().map(named).collect()
    }

    /// DWARF's name for a function that is not inlined, or the symbol table's when that says more: its
    /// mangled name, or the public name (`read`) of a function with several (`__GI___libc_read`).
    fn outermost_name(&self, svma: Svma, dwarf_name: Option<String>) -> Option<String> {
        let symbol = self.symbols.find(svma);
        match (dwarf_name, symbol) {
            (Some(name), Some(symbol)) => {
                let replace = !is_mangled(&name)
                    && (is_mangled(symbol.name) || self.symbols.has_alias(symbol.start, &name));
                Some(if replace {
                    symbol.name.to_owned()
                } else {
                    name
                })
            }
            (name, symbol) => name.or_else(|| symbol.map(|symbol| symbol.name.to_owned())),
        }
    }
}

fn named(frame: DwarfFrame) -> NamedFrame {
    let mangled = frame.name.unwrap_or_default();
    let mut name = demangle(&mangled);
    // `shop::load::{{closure}}`, or `shop::load::{async_fn#0}`.
    if frame.is_async_body
        && let Some(end) = name.rfind("::{")
    {
        name.truncate(end);
    }
    let file = frame.file.unwrap_or_default();
    NamedFrame {
        definition_file: frame.definition_file.unwrap_or_else(|| file.clone()),
        definition_line: frame.definition_line,
        mangled: if mangled == name {
            String::new()
        } else {
            mangled
        },
        name,
        file,
        line: frame.line,
    }
}
