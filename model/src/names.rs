//! Names: which functions and lines stand at an address of a process.

use std::ops::Range;

use hashbrown::HashMap;
use stackbeat_core::address::Svma;
use stackbeat_core::ids::Upid;
use stackbeat_proto::v1::{self, NodeKind};

use stackbeat_symbolize::short_names::simplify;
use stackbeat_symbolize::{self as symbolize, ModuleFile, Modules};

use super::lock_functions::{BelowLock, waits_for_lock};
use super::methods::{self, Methods};
use super::program::{Module, Origin, Process};
use super::{Frame, FrameIndex, Function, FunctionIndex, ProbeId, ProcessIndex};

/// Most functions inlined into each other that one address may have.
const INLINE_LIMIT: usize = 1000;
/// Forks and execs to follow upwards in search of a module.
const ANCESTOR_LIMIT: usize = 64;

/// Addresses at which a program may have code: not those that a call through a null pointer leads to, nor the
/// kernel's.
const CODE_ADDRESSES: Range<u64> = 1 << 16..1 << 63;

/// A process, epoch, address, kind.
type Place<P> = (P, u32, u64, u8);
/// What an address is called.
#[derive(Clone, Copy, Debug)]
enum Run {
    /// The first of `symbol_frames`, and how many.
    Frames(u32, u16),
    /// The number of the method that its code was made of.
    Method(u32),
}

/// Functions, and the frames of every address that stacks name.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub functions: Vec<Function>,
    pub frames: Vec<Frame>,
    function_index: HashMap<Function, FunctionIndex>,
    /// Of each function: whether who waits below it waits for a lock.
    are_locks: Vec<bool>,
    symbols: HashMap<Place<Upid>, Run>,
    /// By file, address in it and kind.
    in_files: HashMap<ModuleFile, HashMap<(Svma, u8), Run>>,
    /// As `symbols`, of addresses whose names change: from when on, ns, and the run, which may be empty.
    later: HashMap<Place<Upid>, Vec<(u64, Run)>>,
    /// Function and line.
    symbol_frames: Vec<(FunctionIndex, u32)>,
    /// Runs of `frames`.
    known: HashMap<Place<ProcessIndex>, (u32, u32)>,
    /// The same, of one of `later`.
    known_later: HashMap<(Place<ProcessIndex>, usize), (u32, u32)>,
    methods: Methods,
    modules: ModuleMap,
    /// First of 256 frames, one for each probe, then the gap's.
    synthetic: u32,
}

impl Names {
    pub(crate) fn new() -> Names {
        let mut this = Names::default();
        for probe in 0..=255 {
            let name = ProbeId(probe).name().into_owned();
            this.synthetic_frame(name);
        }
        this.synthetic_frame("[no evidence]".to_owned());
        this
    }

    fn synthetic_frame(&mut self, name: String) {
        let function = self.intern(Function {
            name,
            ..Function::default()
        });
        self.frames.push(Frame {
            function,
            address: 0,
            line: 0,
            inlined: false,
            truncated: false,
        });
    }

    pub(crate) fn probe_frame(&self, probe: ProbeId) -> FrameIndex {
        FrameIndex(self.synthetic + u32::from(probe.0))
    }

    pub(crate) fn gap_frame(&self) -> FrameIndex {
        FrameIndex(self.synthetic + 256)
    }

    fn intern(&mut self, function: Function) -> FunctionIndex {
        if let Some(index) = self.function_index.get(&function) {
            return *index;
        }
        let index = FunctionIndex(self.functions.len() as u32);
        self.are_locks.push(waits_for_lock(&function.name));
        self.functions.push(function.clone());
        self.function_index.insert(function, index);
        index
    }

    /// Takes over a packet of symbols. Returns how many of its entries make no sense.
    pub(crate) fn add_symbols(&mut self, packet: &v1::Symbols) -> u64 {
        let string = |index: u32| {
            packet
                .strings
                .get(index as usize)
                .map_or("", |s| s.as_str())
        };
        let functions: Vec<FunctionIndex> = packet
            .functions
            .iter()
            .map(|function| {
                self.intern(Function {
                    name: simplify(string(function.name)).into_owned(),
                    module: string(function.module).to_owned(),
                    file: string(function.file).to_owned(),
                    line: function.line,
                })
            })
            .collect();
        let mut in_file = packet.file.as_ref().map(|file| {
            let file = ModuleFile {
                path: file.path.clone(),
                build_id: file.build_id.clone(),
            };
            self.in_files.entry(file).or_default()
        });
        let mut odd = 0;
        for address in &packet.addresses {
            let count = address.function.len();
            let from = self.symbol_frames.len();
            let is_named = count != 0 || address.method != 0;
            if (!is_named && address.from_ns == 0) || count > INLINE_LIMIT {
                odd += u64::from(count != 0);
                continue;
            }
            for (i, function) in address.function.iter().enumerate() {
                match functions.get(*function as usize) {
                    Some(function) => {
                        let line = address.line.get(i).copied().unwrap_or(0);
                        self.symbol_frames.push((*function, line));
                    }
                    None => odd += 1,
                }
            }
            let count = self.symbol_frames.len() - from;
            let key = (
                Upid(address.upid),
                address.epoch,
                address.address,
                address.kind as u8,
            );
            let run = match address.method {
                0 => Run::Frames(from as u32, count as u16),
                number => Run::Method(number),
            };
            if let Some(in_file) = &mut in_file {
                in_file.insert((Svma(address.address), address.kind as u8), run);
            } else if address.from_ns != 0 {
                self.later
                    .entry(key)
                    .or_default()
                    .push((address.from_ns, run));
            } else if is_named {
                self.symbols.insert(key, run);
            }
        }
        odd
    }

    /// Takes over a packet of methods. Returns how many of them make no sense.
    pub(crate) fn add_methods(&mut self, packet: &v1::Methods) -> u64 {
        self.methods.add(packet)
    }

    /// The modules and processes that addresses without symbols are named by.
    pub(crate) fn set_modules(&mut self, modules: &[Module], processes: &[Process]) {
        self.modules = ModuleMap::new(modules, processes);
        for later in self.later.values_mut() {
            later.sort_by_key(|(from_ns, _)| *from_ns);
        }
    }

    /// Whether there are addresses whose names change.
    pub(crate) fn change(&self) -> bool {
        !self.later.is_empty()
    }

    /// The names that an address gets after its first one.
    fn later(&self, process: ProcessIndex, epoch: u32, address: u64, kind: u8) -> &[(u64, Run)] {
        let upid = self.modules.upid(process);
        let later = self.later.get(&(upid, epoch, address, named_as(kind)));
        later.map_or(&[], Vec::as_slice)
    }

    pub(crate) fn changes(
        &self,
        process: ProcessIndex,
        epoch: u32,
        address: u64,
        kind: u8,
    ) -> bool {
        !self.later(process, epoch, address, kind).is_empty()
    }

    /// Which of an address' names holds at a time, and when it does: 0 is the first one.
    pub(crate) fn version(
        &self,
        process: ProcessIndex,
        epoch: u32,
        address: u64,
        kind: u8,
        at_ns: u64,
    ) -> (usize, Range<u64>) {
        let later = self.later(process, epoch, address, kind);
        let version = later.partition_point(|(from_ns, _)| *from_ns <= at_ns);
        let from_ns = version.checked_sub(1).map_or(0, |i| later[i].0);
        let to_ns = later.get(version).map_or(u64::MAX, |next| next.0);
        (version, from_ns..to_ns)
    }

    /// The frames of this version of an address' name.
    pub(crate) fn frames_of_version(
        &mut self,
        process: ProcessIndex,
        epoch: u32,
        address: u64,
        kind: u8,
        version: usize,
    ) -> Range<u32> {
        let Some(before) = version.checked_sub(1) else {
            return self.frames_of(process, epoch, address, kind);
        };
        let key = ((process, epoch, address, kind), version);
        if let Some(&(from, to)) = self.known_later.get(&key) {
            return from..to;
        }
        let (_, run) = self.later(process, epoch, address, kind)[before];
        let run = Some(run).filter(|run| !matches!(run, Run::Frames(_, 0)));
        let frames = self.push_frames(process, epoch, address, kind, run);
        self.known_later.insert(key, (frames.start, frames.end));
        frames
    }

    /// The frames at an address of a process ([`ProcessIndex::UNKNOWN`] when not known), outermost first.
    pub(crate) fn frames_of(
        &mut self,
        process: ProcessIndex,
        epoch: u32,
        address: u64,
        kind: u8,
    ) -> Range<u32> {
        let is_managed = methods::is_managed(kind);
        let key = match is_managed {
            // Methods have the same numbers in all processes.
            true => (ProcessIndex::UNKNOWN, 0, address, kind),
            false => (process, epoch, address, kind),
        };
        if let Some(&(from, to)) = self.known.get(&key) {
            return from..to;
        }
        if is_managed {
            let frames = self.push_managed(address, kind);
            self.known.insert(key, (frames.start, frames.end));
            return frames;
        }
        let upid = self.modules.upid(process);
        let named_as = named_as(kind);
        let of_process = self.symbols.get(&(upid, epoch, address, named_as)).copied();
        let symbol = of_process.or_else(|| {
            let module = self.modules.find(process, epoch, address, named_as)?;
            let in_file = self.in_files.get(&*module.file)?;
            in_file
                .get(&(module.bias.in_file(address), named_as))
                .copied()
        });
        let frames = self.push_frames(process, epoch, address, kind, symbol);
        self.known.insert(key, (frames.start, frames.end));
        frames
    }

    /// A new frame, of a managed node.
    fn push_managed(&mut self, address: u64, kind: u8) -> Range<u32> {
        let (function, line) = self.methods.frame(address);
        let function = self.intern(function);
        let from = self.frames.len() as u32;
        self.frames.push(Frame {
            function,
            address,
            line,
            inlined: kind == NodeKind::ManagedInlined as u8,
            truncated: false,
        });
        if kind == NodeKind::ManagedAwaiting as u8 {
            self.mark_async(from as usize);
        }
        from..from + 1
    }

    /// New frames, by what the address is called.
    fn push_frames(
        &mut self,
        process: ProcessIndex,
        epoch: u32,
        address: u64,
        kind: u8,
        symbol: Option<Run>,
    ) -> Range<u32> {
        let from = self.frames.len() as u32;
        let truncated = kind == NodeKind::Truncated as u8;
        match symbol {
            Some(Run::Frames(start, count)) if !truncated => {
                for i in 0..u32::from(count) {
                    let (function, line) = self.symbol_frames[(start + i) as usize];
                    self.frames.push(Frame {
                        function,
                        address,
                        line,
                        inlined: i != 0,
                        truncated: false,
                    });
                }
            }
            _ => {
                let function = match symbol {
                    _ if truncated => Function {
                        name: "[truncated]".to_owned(),
                        ..Function::default()
                    },
                    Some(Run::Method(number)) => self.methods.function(number),
                    _ => self.modules.name(process, epoch, address, named_as(kind)),
                };
                let function = self.intern(function);
                self.frames.push(Frame {
                    function,
                    address,
                    line: 0,
                    inlined: false,
                    truncated,
                });
            }
        }
        if kind == NodeKind::Awaiting as u8 {
            self.mark_async(from as usize);
        }
        from..self.frames.len() as u32
    }

    /// Frames from this one on are no callers. Swift's own backtraces say it so.
    fn mark_async(&mut self, from: usize) {
        for i in from..self.frames.len() {
            let mut function = self.functions[self.frames[i].function.0 as usize].clone();
            function.name.push_str(" [async]");
            self.frames[i].function = self.intern(function);
        }
    }

    /// How far a stack with these frames more is from the function of a lock.
    pub(crate) fn below_lock(&self, above: BelowLock, frames: &Range<u32>) -> BelowLock {
        let frames = &self.frames[frames.start as usize..frames.end as usize];
        let is_lock = |frame: &Frame| self.are_locks[frame.function.0 as usize];
        (frames.iter()).fold(above, |below, frame| below.with(is_lock(frame)))
    }

    /// Whether these frames are the agent's own: the start of a thread passes through it, and that is
    /// nothing of the program's.
    pub(crate) fn are_the_agents(&self, frames: &Range<u32>) -> bool {
        self.frames.get(frames.start as usize).is_some_and(|frame| {
            let module = &self.functions[frame.function.0 as usize].module;
            let file = module.rsplit('/').next().unwrap_or(module);
            file.starts_with("libstackbeat") && file.ends_with(".so")
        })
    }

    /// Frees what is only needed while stacks are built.
    pub(crate) fn finish(&mut self) {
        self.function_index = HashMap::new();
        self.are_locks = Vec::new();
        self.symbols = HashMap::new();
        self.in_files = HashMap::new();
        self.later = HashMap::new();
        self.known_later = HashMap::new();
        self.symbol_frames = Vec::new();
        self.known = HashMap::new();
        self.methods = Methods::default();
        self.modules = ModuleMap::default();
    }
}

/// Modules by process and address.
#[derive(Debug, Default)]
struct ModuleMap {
    modules: Modules,
    /// Of each process: where to look further, for one that was forked.
    parents: Vec<Option<ProcessIndex>>,
    upids: Vec<Upid>,
    /// Of each process: what code without a file and a name is called.
    generated: Vec<String>,
}

impl ModuleMap {
    fn new(modules: &[Module], processes: &[Process]) -> ModuleMap {
        let mut map = ModuleMap {
            modules: Modules::default(),
            parents: processes
                .iter()
                .map(|process| match process.origin {
                    Origin::Forked => process.parent,
                    _ => None,
                })
                .collect(),
            upids: processes.iter().map(|process| process.upid).collect(),
            generated: (0..processes.len())
                .map(|index| generated(processes, index))
                .collect(),
        };
        for module in modules {
            map.modules.insert(&v1::Module {
                upid: map.upid(module.process).0,
                epoch: module.epoch,
                end_epoch: module.end_epoch,
                path: module.path.clone(),
                build_id: module.build_id.clone(),
                start: module.start,
                end: module.end,
                bias: module.bias.0,
            });
        }
        map
    }

    fn upid(&self, process: ProcessIndex) -> Upid {
        let upid = self.upids.get(process.0 as usize);
        upid.copied().unwrap_or_default()
    }

    /// The module of an address, in the process or those that it was forked from.
    fn find(
        &self,
        process: ProcessIndex,
        epoch: u32,
        address: u64,
        kind: u8,
    ) -> Option<&symbolize::Module> {
        // A return address stands behind its call, which may be the module's last instruction.
        let inside = if kind == NodeKind::LeafPc as u8 {
            address
        } else {
            address.wrapping_sub(1)
        };
        let own = self.modules.at(self.upid(process), Some(epoch), inside);
        if own.is_some() {
            return own;
        }
        let mut at = process;
        for _ in 0..ANCESTOR_LIMIT {
            at = self.parents.get(at.0 as usize).copied().flatten()?;
            let found = self.modules.at(self.upid(at), None, inside);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// A name for an address without symbol.
    fn name(&self, process: ProcessIndex, epoch: u32, address: u64, kind: u8) -> Function {
        match self.find(process, epoch, address, kind) {
            Some(module) => {
                let path = &module.file.path;
                let file = path.rsplit('/').next().unwrap_or(path);
                Function {
                    name: format!("{file}+{:#x}", module.bias.in_file(address)),
                    module: path.clone(),
                    ..Function::default()
                }
            }
            None => {
                let generated = self.generated.get(process.0 as usize);
                let generated = generated.filter(|_| CODE_ADDRESSES.contains(&address));
                Function {
                    name: generated.map_or_else(|| format!("{address:#x}"), Clone::clone),
                    ..Function::default()
                }
            }
        }
    }
}

/// What code without a file and a name is called in a process: most of it was made by a run-time compiler. By
/// address it would be a thousand functions with a sample each. The kind that a node's name is stored with.
fn named_as(kind: u8) -> u8 {
    // It is the begin of code, no return address.
    match kind == NodeKind::Awaiting as u8 {
        true => NodeKind::LeafPc as u8,
        false => kind,
    }
}

fn generated(processes: &[Process], index: usize) -> String {
    let mut process = &processes[index];
    for _ in 0..ANCESTOR_LIMIT {
        let is_nameless = process.executable.is_empty() && process.command_line.is_empty();
        match process
            .parent
            .and_then(|parent| processes.get(parent.0 as usize))
        {
            Some(parent) if is_nameless => process = parent,
            _ => break,
        }
    }
    format!("{GENERATED}{}]", process.name())
}

/// How names of code begin that no file holds and nothing names; the program's and `]` follow.
pub const GENERATED: &str = "[JIT ";
