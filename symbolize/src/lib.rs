//! Names for addresses: function, file, line and inlined frames, looked up in the modules' files when
//! a recording ends, so that the trace needs nothing else afterwards.
//!
//! Addresses are looked up and written by file: the same library in a thousand processes is read once and has
//! its names in the trace once. Two files are read at the same time, the largest first; a module's debug
//! information is dropped before the next is opened.

#![forbid(unsafe_code)]

mod boundaries;
mod builds;
mod debug_files;
mod demangle;
mod dwarf;
mod dwarf_units;
mod files;
mod module;
mod modules;
mod namespaces;
mod object_file;
pub mod paths;
pub mod perf_map;
mod plt;
pub mod python;
pub mod retrace;
mod section_cache;
pub mod short_names;
mod symtab;
mod variables;
mod wanted;

pub use builds::FilesOfBuilds;
pub use debug_files::is_file_of_build;
pub use demangle::demangle;
pub use module::{ModuleError, NamedFrame};
pub use modules::{Module, ModuleFile, Modules};
pub use section_cache::SymbolCache;
pub use wanted::{AddressSet, MOST_ADDRESSES, Query, Wanted};

use stackbeat_core::address::Svma;
use stackbeat_proto::v1::{self, NodeKind};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use variables::NamedVariable;

/// Addresses in one `Symbols` packet.
const ADDRESSES_PER_PACKET: usize = 8192;

/// Where debug files come from that this system does not have.
pub trait DebugSource: std::fmt::Debug + Send + Sync {
    /// The debug file of a build, once it is here; `None`: there is none. May take long, and ends when
    /// `goes_on`, which it asks before it fetches and all the while, says no.
    fn debug_file(&self, build_id: &[u8], goes_on: &mut dyn FnMut() -> bool) -> Option<PathBuf>;

    /// What it fetches at this moment, for people.
    fn under_way(&self) -> Option<String>;

    /// What went wrong so far, for people.
    fn complaints(&self) -> Vec<String>;
}

/// Where the sources are of JavaScript that a compiler wrote.
pub trait SourceMaps: std::fmt::Debug + Send + Sync {
    /// The place in a source of a function of this name, whose parameters begin at this place of a file; line
    /// and column count from 1. `None`: nothing is known of it.
    fn original(&self, file: &str, name: &str, line: u32, column: u32) -> Option<SourcePlace>;

    /// What went wrong so far, for people.
    fn complaints(&self) -> Vec<String>;
}

/// A place in a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePlace {
    /// Path, or whatever the compiler calls the file.
    pub file: String,
    /// Counts from 1.
    pub line: u32,
    /// What the function is called there, if the compiler says that.
    pub name: Option<String>,
}

/// Where else than on this system names come from, and what is kept of them.
#[derive(Clone, Debug, Default)]
pub struct NameSources {
    /// Where the program's files lie, if it sees others than we (a container's, a chroot's): looked into
    /// first.
    pub root: Option<PathBuf>,
    /// What of names is kept for other recordings.
    pub cache: Option<SymbolCache>,
    /// Who is asked for debug files that this system does not have.
    pub debug: Option<Arc<dyn DebugSource>>,
    /// Where the sources of JavaScript are looked up; `None`: functions have their places in what runs.
    pub source_maps: Option<Arc<dyn SourceMaps>>,
}

impl NameSources {
    /// Where a file of the program lies, by the path that it has there.
    fn place_of(&self, path: &Path) -> PathBuf {
        let root = self.root.as_ref();
        let inside = root.map(|root| root.join(path.strip_prefix("/").unwrap_or(path)));
        inside
            .filter(|file| file.is_file())
            .unwrap_or_else(|| path.to_owned())
    }

    /// What went wrong so far, for people.
    pub fn complaints(&self) -> Vec<String> {
        let debug = self.debug.as_ref().map(|source| source.complaints());
        let maps = self.source_maps.as_ref().map(|maps| maps.complaints());
        debug.into_iter().chain(maps).flatten().collect()
    }
}

/// Where names are looked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// Roots of installed debug files: `ROOT/.build-id/xx/yyyy.debug`, `ROOT/path/of/binary.debug`.
    pub debug_roots: Vec<PathBuf>,
    /// Where names come from that are not below these roots, and what is kept from one search to the next.
    pub sources: NameSources,
    /// Looked into instead of the files that modules name.
    pub files_of_builds: Arc<FilesOfBuilds>,
    /// Start no thread: all is done on the calling one.
    pub without_threads: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            debug_roots: vec!["/usr/lib/debug".into()],
            sources: NameSources::default(),
            files_of_builds: Arc::default(),
            without_threads: false,
        }
    }
}

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress<'a> {
    /// Addresses of the modules that were read so far.
    pub addresses_done: usize,
    /// All addresses of the run.
    pub addresses: usize,
    /// Path of the module that is about to be read.
    pub module: &'a str,
}

/// What a run achieved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Addresses that were looked up.
    pub addresses: usize,
    /// Addresses that have names now.
    pub named: usize,
    /// Modules whose functions stay without names, with the reason.
    pub failures: Vec<ModuleError>,
    /// Addresses that were not looked up any more.
    pub skipped: usize,
}

/// Names addresses.
#[derive(Debug, Default)]
pub struct Symbolizer {
    options: Options,
}

impl Report {
    /// Why modules stay without names, each once; of many the first.
    pub fn reasons(&self) -> Vec<String> {
        const MOST: usize = 16;
        let mut reasons: Vec<String> = self.failures.iter().map(ToString::to_string).collect();
        reasons.sort_unstable();
        reasons.dedup();
        let more = reasons.len().saturating_sub(MOST);
        reasons.truncate(MOST);
        if more > 0 {
            reasons.push(format!("{more} more modules stay without names"));
        }
        reasons
    }
}

impl Symbolizer {
    /// One that looks there.
    pub fn new(options: Options) -> Symbolizer {
        Symbolizer { options }
    }

    /// Names the addresses. Packets go to `emit` as they are ready; `progress` is called before each
    /// module and now and then in between, and says whether to go on. The names found by then are kept. While
    /// [`DebugSource::under_way`] names a download, the first no ends downloads only.
    pub fn symbolize(
        &self,
        mut wanted: Wanted,
        progress: &mut dyn FnMut(Progress<'_>) -> bool,
        emit: &mut dyn FnMut(v1::Symbols),
    ) -> Report {
        let total = wanted.put_in_order();
        let mut report = Report {
            addresses: total,
            ..Default::default()
        };
        let mut variables = std::mem::take(&mut wanted.variables);
        let mut files = std::mem::take(&mut wanted.by_file);
        for file in variables.keys() {
            files.entry(Arc::clone(file)).or_default();
        }
        let files = files.into_iter().map(|(file, addresses)| {
            let variables = variables.remove(&file).unwrap_or_default();
            files::Job::new(file, addresses, variables)
        });
        let files = files.collect();
        files::symbolize(files, &self.options, &mut report, progress, emit);
        report
    }
}

/// A `Symbols` packet in the making.
struct Packet {
    symbols: v1::Symbols,
    strings: HashMap<String, u32>,
    functions: HashMap<(u32, u32, u32), u32>,
    module: u32,
}

impl Packet {
    fn of_file(file: &ModuleFile) -> Packet {
        let mut packet = Packet {
            symbols: v1::Symbols::default(),
            strings: HashMap::new(),
            functions: HashMap::new(),
            module: 0,
        };
        packet.string("");
        packet.module = packet.string(&file.path);
        packet.symbols.file = Some(v1::symbols::File {
            path: file.path.clone(),
            build_id: file.build_id.clone(),
        });
        packet
    }

    fn is_full(&self) -> bool {
        self.symbols.addresses.len() >= ADDRESSES_PER_PACKET
    }

    fn string(&mut self, text: &str) -> u32 {
        if let Some(&index) = self.strings.get(text) {
            return index;
        }
        let index = self.symbols.strings.len() as u32;
        self.symbols.strings.push(text.to_owned());
        self.strings.insert(text.to_owned(), index);
        index
    }

    fn function(&mut self, frame: &NamedFrame) -> u32 {
        let name = self.string(&frame.name);
        let mangled = self.string(&frame.mangled);
        let file = self.string(&frame.definition_file);
        let functions = &mut self.symbols.functions;
        let index = *self
            .functions
            .entry((name, mangled, file))
            .or_insert_with(|| {
                functions.push(v1::symbols::Function {
                    name,
                    mangled,
                    file,
                    module: self.module,
                    line: 0,
                });
                functions.len() as u32 - 1
            });
        let line = &mut functions[index as usize].line;
        *line = (*line).max(frame.definition_line);
        index
    }

    /// The variable of the file that holds an address.
    fn add_variable(&mut self, variable: &NamedVariable) {
        let name = self.string(&variable.name);
        self.symbols.variables.push(v1::symbols::Variable {
            address: variable.svma.0,
            name,
            offset: variable.offset,
        });
    }

    /// Frames at an address of the file.
    fn add(&mut self, svma: Svma, kind: NodeKind, frames: &[NamedFrame]) {
        let mut entry = v1::symbols::AddressSymbol {
            address: svma.0,
            kind: kind.into(),
            ..Default::default()
        };
        for frame in frames {
            let function = self.function(frame);
            let file = if frame.file == frame.definition_file {
                0
            } else {
                self.string(&frame.file)
            };
            entry.function.push(function);
            entry.line.push(frame.line);
            entry.file.push(file);
        }
        self.symbols.addresses.push(entry);
    }

    fn finish(self, emit: &mut dyn FnMut(v1::Symbols)) {
        if !self.symbols.addresses.is_empty() || !self.symbols.variables.is_empty() {
            emit(self.symbols);
        }
    }
}
