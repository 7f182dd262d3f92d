//! Names for addresses: function, file, line and inlined frames, looked up in the modules' files when
//! a recording ends, so that the trace needs nothing else afterwards.
//!
//! Addresses are grouped by module file (the same library in a hundred processes is read once), each
//! group is sorted, and a module's debug information is dropped before the next is opened.

mod boundaries;
mod debug_files;
mod demangle;
mod dwarf;
mod elf;
mod jit;
mod module;
mod plt;
mod scopes;
mod symtab;

pub use demangle::demangle;
pub use module::{ModuleError, NamedFrame};

use jit::{Growth, JitNames};
use module::Address;
use stackbeat_proto::v1::{self, NodeKind};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::SystemTime;

/// Addresses in one `Symbols` packet.
const ADDRESSES_PER_PACKET: usize = 8192;

/// Where names are looked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// Roots of installed debug files: `ROOT/.build-id/xx/yyyy.debug`, `ROOT/path/of/binary.debug`.
    pub debug_roots: Vec<PathBuf>,
    /// Where runtimes leave `perf-PID.map` files.
    pub jit_map_directory: PathBuf,
    /// Older `perf-PID.map` files belong to earlier processes.
    pub jit_maps_not_before: Option<SystemTime>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            debug_roots: vec!["/usr/lib/debug".into()],
            jit_map_directory: "/tmp".into(),
            jit_maps_not_before: None,
        }
    }
}

/// An address of the trace that wants a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    pub process_uid: u32,
    pub epoch: u32,
    pub address: u64,
    /// `Native` is a return address: its call, one byte before, is looked up. `LeafPc` is exact.
    pub kind: NodeKind,
}

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress<'a> {
    pub addresses_done: usize,
    pub addresses: usize,
    /// Path of the module that is about to be read.
    pub module: &'a str,
}

/// What a run achieved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub addresses: usize,
    pub named: usize,
    /// Modules whose functions stay without names, with the reason.
    pub failures: Vec<ModuleError>,
    /// Addresses that were not looked up any more.
    pub skipped: usize,
}

/// What makes a module file: path and build id.
type ModuleKey<'a> = (&'a str, &'a [u8]);

/// Knows the modules of the session and names addresses in them.
#[derive(Debug, Default)]
pub struct Symbolizer {
    options: Options,
    /// By process: modules in the order they were added.
    modules: HashMap<u32, Vec<Loaded>>,
    pids: HashMap<u32, u32>,
    /// By process: when its `perf-PID.map` grew.
    growths: HashMap<u32, Growth>,
}

#[derive(Debug)]
struct Loaded {
    path: String,
    build_id: Vec<u8>,
    start: u64,
    end: u64,
    bias: u64,
    epoch: u32,
    end_epoch: u32,
}

impl Symbolizer {
    pub fn new(options: Options) -> Symbolizer {
        Symbolizer {
            options,
            ..Default::default()
        }
    }

    /// Tells a process' pid, for the maps that its run-time compilers write.
    pub fn add_process(&mut self, process_uid: u32, pid: u32) {
        self.pids.insert(process_uid, pid);
    }

    /// Adds a module of a process. A later packet about the same module (its end) may be added too.
    pub fn add_module(&mut self, module: &v1::Module) {
        self.modules
            .entry(module.process_uid)
            .or_default()
            .push(Loaded {
                path: module.path.clone(),
                build_id: module.build_id.clone(),
                start: module.start,
                end: module.end,
                bias: module.bias,
                epoch: module.epoch,
                end_epoch: module.end_epoch,
            });
    }

    /// Tells how far the map of a process' run-time compiler had grown; in order of time.
    pub fn add_jit_map(&mut self, map: &v1::JitMap) {
        self.growths.entry(map.process_uid).or_default().add(map);
    }

    /// Names the addresses. Packets go to `emit` as they are ready; `progress` is told before each
    /// module and now and then in between.
    pub fn symbolize(
        &self,
        queries: &[Query],
        progress: &mut dyn FnMut(Progress<'_>),
        emit: &mut dyn FnMut(v1::Symbols),
    ) -> Report {
        let mut progress = |p: Progress<'_>| {
            progress(p);
            true
        };
        self.symbolize_while(queries, &mut progress, emit)
    }

    /// The same; `progress` says whether to go on. The names found by then are kept.
    pub fn symbolize_while(
        &self,
        queries: &[Query],
        progress: &mut dyn FnMut(Progress<'_>) -> bool,
        emit: &mut dyn FnMut(v1::Symbols),
    ) -> Report {
        let mut report = Report {
            addresses: queries.len(),
            ..Default::default()
        };
        let mut by_module: BTreeMap<ModuleKey<'_>, Vec<(Address, u32)>> = BTreeMap::new();
        let mut by_process: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (i, query) in queries.iter().enumerate() {
            match self.module_of(query) {
                Some(module) => {
                    let address = Address {
                        svma: query.address.wrapping_sub(module.bias),
                        is_return: query.kind != NodeKind::LeafPc,
                    };
                    by_module
                        .entry((&module.path, &module.build_id))
                        .or_default()
                        .push((address, i as u32));
                }
                None => by_process
                    .entry(query.process_uid)
                    .or_default()
                    .push(i as u32),
            }
        }

        let mut done = 0;
        let mut goes_on = true;
        for ((path, build_id), mut wanted) in by_module {
            let mut ask = |in_module| {
                goes_on = goes_on
                    && progress(Progress {
                        addresses_done: done + in_module,
                        addresses: queries.len(),
                        module: path,
                    });
                goes_on
            };
            if !ask(0) {
                report.skipped += wanted.len();
                continue;
            }
            let before = report.named;
            wanted.sort_unstable();
            let mut distinct: Vec<Address> = wanted.iter().map(|(address, _)| *address).collect();
            distinct.dedup();
            let mut packet = Packet::new(path);
            let mut rest = wanted.as_slice();
            let mut named = 0;
            let result = module::symbolize(
                path,
                build_id,
                &self.options.debug_roots,
                &distinct,
                &mut |i, frames| {
                    let first = rest.partition_point(|(address, _)| *address < distinct[i]);
                    rest = &rest[first..];
                    let count = rest.partition_point(|(address, _)| *address == distinct[i]);
                    for (_, query) in &rest[..count] {
                        packet.add(&queries[*query as usize], &frames);
                        named += 1;
                    }
                    if packet.symbols.addresses.len() >= ADDRESSES_PER_PACKET {
                        emit(std::mem::replace(&mut packet, Packet::new(path)).symbols);
                    }
                },
                &mut ask,
            );
            report.named += named;
            if !goes_on {
                report.skipped += wanted.len() - (report.named - before);
            }
            done += wanted.len();
            report.failures.extend(result.err());
            packet.finish(emit);
        }
        for (process_uid, wanted) in by_process {
            if !goes_on {
                report.skipped += wanted.len();
                continue;
            }
            self.symbolize_jit(process_uid, &wanted, queries, &mut report, emit);
        }
        report
    }

    fn symbolize_jit(
        &self,
        process_uid: u32,
        wanted: &[u32],
        queries: &[Query],
        report: &mut Report,
        emit: &mut dyn FnMut(v1::Symbols),
    ) {
        let Some(pid) = self.pids.get(&process_uid) else {
            return;
        };
        let path = self
            .options
            .jit_map_directory
            .join(format!("perf-{pid}.map"));
        let exact = |query: &Query| {
            query.address - u64::from(query.kind != NodeKind::LeafPc && query.address > 0)
        };
        let wanted = || wanted.iter().map(|i| &queries[*i as usize]);
        let mut addresses: Vec<u64> = wanted().map(exact).collect();
        addresses.sort_unstable();
        addresses.dedup();
        let unknown = Growth::default();
        let growth = self.growths.get(&process_uid).unwrap_or(&unknown);
        let not_before = self.options.jit_maps_not_before;
        let Some(found) = JitNames::open(&path, not_before, growth, &addresses) else {
            return;
        };
        report.skipped += found.left_out;
        let mut packet = Packet::new("");
        for query in wanted() {
            let at = addresses.partition_point(|address| *address < exact(query));
            let timeline = &found.timelines[at];
            report.named += usize::from(!timeline.is_empty());
            for (i, (from_ns, name)) in timeline.iter().enumerate() {
                if i > 0 && *from_ns == u64::MAX {
                    // Written after the last sample.
                    break;
                }
                let frame = name.map(|name| NamedFrame {
                    name: found.names[name as usize].clone(),
                    ..Default::default()
                });
                // What holds first is the best guess for what was before.
                let from_ns = if i == 0 { 0 } else { *from_ns };
                packet.add_from(query, frame.as_slice(), from_ns);
                if packet.symbols.addresses.len() >= ADDRESSES_PER_PACKET {
                    emit(std::mem::replace(&mut packet, Packet::new("")).symbols);
                }
            }
        }
        packet.finish(emit);
    }

    /// The module at an address: loaded by then, not gone by then; of several the latest.
    fn module_of(&self, query: &Query) -> Option<&Loaded> {
        let modules = self.modules.get(&query.process_uid)?;
        modules
            .iter()
            .filter(|m| {
                (m.start..m.end).contains(&query.address)
                    && m.epoch <= query.epoch
                    && (m.end_epoch == 0 || query.epoch < m.end_epoch)
            })
            .max_by_key(|m| m.epoch)
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
    fn new(module: &str) -> Packet {
        let mut packet = Packet {
            symbols: v1::Symbols::default(),
            strings: HashMap::new(),
            functions: HashMap::new(),
            module: 0,
        };
        packet.string("");
        packet.module = packet.string(module);
        packet
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

    fn add(&mut self, query: &Query, frames: &[NamedFrame]) {
        self.add_from(query, frames, 0);
    }

    /// Frames that hold from this time on.
    fn add_from(&mut self, query: &Query, frames: &[NamedFrame], from_ns: u64) {
        let mut entry = v1::symbols::AddressSymbol {
            process_uid: query.process_uid,
            epoch: query.epoch,
            address: query.address,
            kind: query.kind as i32,
            from_ns,
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
        if !self.symbols.addresses.is_empty() {
            emit(self.symbols);
        }
    }
}
