//! Walks stacks of other processes that nobody stops: those of threads that wait, so that their stacks stay
//! as they are. The caller makes sure that the thread still waits afterwards.
//!
//! One system call copies the stack; rules are found once for each code address.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use std::os::unix::fs::{FileExt, OpenOptionsExt};

use stackbeat_core::ids::{Pid, Tid, Upid};
use stackbeat_core::managed::cpython::Runtime;
use stackbeat_core::managed::cpython::asyncio::{self, Asyncio};
use stackbeat_core::managed::memory::Memory;
use stackbeat_core::managed::{self, Placing, ruby};
use stackbeat_core::native::generated_code::elsewhere;
use stackbeat_core::platform;
use stackbeat_core::shm::layout::node_kind;
use stackbeat_core::shm::methods::{Methods, managed_address};
use stackbeat_core::unwind::full::AllRegisters;
use stackbeat_core::unwind::rule::Rule;
use stackbeat_core::unwind::walk::{self, ReadStack, Rules};
use stackbeat_core::unwind::{Registers, Start, WalkEnd};
use stackbeat_proto::v1;

use super::{Module, first_mappings, lookup, memory};
use crate::host::Stack;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
use crate::host::ToWalk;
use crate::host::code_source::{Code, CodeSource, Frames};

/// Bytes of a stack that are copied at once; what lies further out is read word by word.
const COPY_BYTES: usize = 8 << 10;
/// Distance between two reads of what is mapped, when an address is in nothing known.
const MAPS_AGAIN: Duration = Duration::from_secs(1);

/// A process whose stacks are walked.
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    memory: std::fs::File,
    state: RefCell<Loaded>,
    /// Where it has the agent's tables of generated code; 0: nowhere.
    generated_code: Cell<u64>,
    /// Who tells of generated code besides.
    source: Option<Box<dyn CodeSource>>,
}

/// What libraries in a process have told the agent there of generated code.
#[derive(Debug)]
struct AgentsTables<'a> {
    directory: u64,
    memory: &'a std::fs::File,
    /// Where methods get their numbers; without it there are no frames.
    methods: Option<&'a Methods<'a>>,
}

impl CodeSource for AgentsTables<'_> {
    fn look(&self, address: u64, _exact: bool) -> Option<Code> {
        let mut read = |at, bytes: &mut [u8]| self.memory.read_exact_at(bytes, at).is_ok();
        let found = elsewhere::look(self.directory, address, &mut read)?;
        let mut nodes = Vec::new();
        if let Some(methods) = self.methods {
            for (i, frame) in found.frames.iter().enumerate() {
                let text = elsewhere::method(self.directory, frame.method, &mut read);
                let number = text.and_then(|(key, text)| methods.insert_words(key, &text).ok());
                let kind = match i {
                    0 => node_kind::MANAGED,
                    _ => node_kind::MANAGED_INLINED,
                };
                nodes.push((managed_address(number.unwrap_or(0), frame.position), kind));
            }
        }
        Some(Code {
            rule: Some(found.rule),
            frames: Frames::Nodes(nodes),
        })
    }
}

/// Rules that are kept of one process; more code addresses than that do not come back.
const MOST_RULES: usize = 1 << 16;

/// What is known of what a process has loaded.
#[derive(Debug)]
struct Loaded {
    epoch: u32,
    read_at: Instant,
    /// Sorted.
    mappings: Vec<(u64, String)>,
    modules: Vec<Module>,
    rules: HashMap<(u64, bool), Rule>,
    /// Modules from here on are not in the trace.
    recorded: usize,
    /// How many of the modules were searched for runtimes and asyncio, and what was found.
    searched: usize,
    runtime: Option<Runtime>,
    ruby: Option<ruby::Runtime>,
    asyncio: Option<Asyncio>,
}

impl Loaded {
    fn read(pid: Pid, epoch: u32) -> io::Result<Loaded> {
        let mut mappings = first_mappings(pid)?;
        mappings.sort_unstable();
        Ok(Loaded {
            epoch,
            read_at: Instant::now(),
            mappings,
            modules: Vec::new(),
            rules: HashMap::new(),
            recorded: 0,
            searched: 0,
            runtime: None,
            ruby: None,
            asyncio: None,
        })
    }

    /// The module at an address, read from the process when it is met for the first time.
    fn module(&mut self, memory: &std::fs::File, address: u64) -> Option<&Module> {
        if let Some(known) = self.modules.iter().position(|m| m.contains(address)) {
            return self.modules.get(known);
        }
        let behind = self
            .mappings
            .partition_point(|(start, _)| *start <= address);
        let (start, path) = self.mappings.get(behind.checked_sub(1)?)?;
        if self.modules.iter().any(|m| m.start == *start) {
            return None;
        }
        let module = Module::read(memory, *start, path)?;
        self.modules.push(module);
        self.modules.last().filter(|m| m.contains(address))
    }
}

impl Process {
    /// # Errors
    ///
    /// When the process is gone, or we have not the rights of a debugger there.
    pub fn open(pid: Pid, epoch: u32) -> io::Result<Process> {
        Ok(Process {
            pid,
            memory: memory(pid)?,
            state: RefCell::new(Loaded::read(pid, epoch)?),
            generated_code: Cell::new(0),
            source: None,
        })
    }

    /// The same, where somebody tells of generated code besides the agent's tables.
    pub(crate) fn with_source(mut self, source: Box<dyn CodeSource>) -> Process {
        self.source = Some(source);
        self
    }

    /// Reads again when the agent has noticed that modules have come or gone.
    fn update(&self, epoch: u32) {
        if self.state.borrow().epoch != epoch {
            self.read_again(epoch);
        }
    }

    fn read_again(&self, epoch: u32) {
        if let Ok(mut now) = Loaded::read(self.pid, epoch) {
            let mut before = self.state.borrow_mut();
            let modules = std::mem::take(&mut before.modules).into_iter().enumerate();
            for (i, module) in modules {
                let there = (module.start, module.path.clone());
                if now.mappings.binary_search(&there).is_ok() {
                    now.recorded += usize::from(i < before.recorded);
                    now.modules.push(module);
                }
            }
            *before = now;
        }
    }

    /// Modules that walks have met since the last call.
    pub fn each_new_module(&self, mut record: impl FnMut(&Module)) {
        let mut state = self.state.borrow_mut();
        let recorded = std::mem::replace(&mut state.recorded, usize::MAX);
        state.modules.iter().skip(recorded).for_each(&mut record);
        state.recorded = state.modules.len();
    }

    /// The same as the trace has them.
    pub fn new_modules(&self, upid: Upid, epoch: u32) -> Vec<v1::Module> {
        let mut modules = Vec::new();
        self.each_new_module(|module| {
            modules.push(v1::Module {
                upid: upid.0,
                epoch,
                end_epoch: 0,
                path: module.path.clone(),
                build_id: module.build_id.clone(),
                start: module.start,
                end: module.end,
                bias: module.bias.0,
            });
        });
        modules
    }

    /// Finds the managed frames of a thread that stands still. `stack` is its native stack.
    fn find_managed(
        &self,
        place: &Place,
        stack: &walk::Stack,
        methods: &Methods,
        to: &mut managed::Thread,
    ) {
        let mut memory = RemotePages::of(self);
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        while let Some(module) = state.modules.get(state.searched) {
            let module = managed::Module {
                path: module.path.as_bytes(),
                dynamic: module.dynamic,
                bias: module.bias,
                text: (module.start, module.end),
                unwind_table: module.unwind_table,
            };
            state.searched += 1;
            state.runtime = (state.runtime).or_else(|| Runtime::of_module(&mut memory, &module));
            state.ruby = (state.ruby).or_else(|| ruby::Runtime::of_module(&mut memory, &module));
            if state.asyncio.is_none() {
                state.asyncio = self.asyncio_in(&module, &mut memory);
            }
        }
        if let Some(runtime) = state.runtime
            && stack.frames().iter().any(|frame| runtime.is_code(frame.pc))
        {
            let asyncio = state.asyncio.filter(|_| place.await_chains);
            runtime.frames_of(&mut memory, methods, place.tid.0, asyncio, to);
        }
        let frames = stack.frames();
        if let Some(ruby) = state.ruby
            && frames.iter().any(|frame| ruby.is_code(frame.pc))
            && to.frames.is_empty()
        {
            let native = |index: usize| {
                let frame = frames.get(frames.len().checked_sub(index + 1)?)?;
                Some([frame.pc, frame.sp])
            };
            ruby.frames_of(&mut memory, methods, place.tid.0, &native, to);
        }
    }

    /// What a module tells of asyncio, by its file.
    fn asyncio_in(&self, module: &managed::Module, memory: &mut RemotePages) -> Option<Asyncio> {
        if !asyncio::may_be_in(module.path) {
            return None;
        }
        // The path is one of the process' own root, and may name anything by now: never block in a pipe or
        // take a terminal.
        let mut path = OsString::from(format!("/proc/{}/root", self.pid.0));
        path.push(OsStr::from_bytes(module.path));
        let flags = libc::O_NOCTTY | libc::O_NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
        let file = file.ok()?;
        let mut read = |offset, buffer: &mut [u8]| file.read_exact_at(buffer, offset).is_ok();
        Asyncio::of_module(memory, module, &mut read)
    }

    /// What is known of generated code at an address: the first source that knows it says. They are asked
    /// each time: such code goes, and other code comes to its place.
    fn generated(&self, address: u64, exact: bool, methods: Option<&Methods>) -> Option<Code> {
        let tables = AgentsTables {
            directory: self.generated_code.get(),
            memory: &self.memory,
            methods,
        };
        let known = (tables.directory != 0).then(|| tables.look(address, exact));
        known
            .flatten()
            .or_else(|| self.source.as_ref()?.look(address, exact))
    }

    /// Calls `each` with the nodes' addresses and kinds of generated code at a frame, outermost first. False:
    /// it has none of its own.
    fn each_compiled(
        &self,
        address: u64,
        methods: &Methods,
        mut each: impl FnMut(u64, u32),
    ) -> bool {
        match self
            .generated(address, false, Some(methods))
            .map(|code| code.frames)
        {
            Some(Frames::Nodes(nodes)) => {
                nodes
                    .iter()
                    .for_each(|(address, kind)| each(*address, *kind));
                !nodes.is_empty()
            }
            Some(Frames::NamedByTheDrain) | None => false,
        }
    }

    /// The range of the agent, if its code is at an address; nothing otherwise.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    fn agent_at(&self, address: u64) -> (u64, u64) {
        let mut state = self.state.borrow_mut();
        let module = state.module(&self.memory, address);
        let agent = module.filter(|m| m.file_name().starts_with("libstackbeat"));
        agent.map_or((0, 0), |m| (m.start, m.end))
    }

    /// The range of the module at an address; nothing when there is none.
    fn range(&self, address: u64) -> (u64, u64) {
        let mut state = self.state.borrow_mut();
        let module = state.module(&self.memory, address);
        module.map_or((0, 0), |m| (m.start, m.end))
    }
}

impl Rules for &Process {
    fn rule(&self, pc: u64, exact: bool) -> Rule {
        let mut state = self.state.borrow_mut();
        if let Some(known) = state.rules.get(&(pc, exact)) {
            return *known;
        }
        let address = lookup(pc, exact);
        if state.module(&self.memory, address).is_none() && state.read_at.elapsed() > MAPS_AGAIN {
            let epoch = state.epoch;
            drop(state);
            self.read_again(epoch);
            state = self.state.borrow_mut();
        }
        let module = state.module(&self.memory, address);
        let rule = module.map_or(Rule::NOWHERE, |m| m.rule(pc, exact));
        if state.rules.len() >= MOST_RULES {
            state.rules.clear();
        }
        state.rules.insert((pc, exact), rule);
        rule
    }

    fn full_step(
        &self,
        registers: &mut AllRegisters,
        exact: bool,
        read: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Option<bool> {
        let mut state = self.state.borrow_mut();
        let module = state.module(&self.memory, lookup(registers.state().0, exact))?;
        module.full_step(registers, exact, read)
    }

    fn generated_rule(&self, pc: u64, exact: bool) -> Option<Rule> {
        self.generated(lookup(pc, exact), exact, None)?.rule
    }

    fn generation(&self) -> u32 {
        1
    }
}

/// Pages of a process, read once each.
struct RemotePages<'a> {
    file: &'a std::fs::File,
    pages: HashMap<u64, Option<Box<[u8; PAGE]>>>,
}

const PAGE: usize = 4096;

impl RemotePages<'_> {
    fn of(process: &Process) -> RemotePages<'_> {
        RemotePages {
            file: &process.memory,
            pages: HashMap::new(),
        }
    }
}

impl Memory for RemotePages<'_> {
    fn word(&mut self, address: u64) -> Option<u64> {
        let page = address / PAGE as u64;
        let read = || {
            let mut bytes = Box::new([0; PAGE]);
            let read = self.file.read_exact_at(&mut *bytes, page * PAGE as u64);
            read.ok().map(|()| bytes)
        };
        let bytes = self.pages.entry(page).or_insert_with(read).as_ref()?;
        let at = address as usize % PAGE;
        let word = bytes.get(at..at + 8).filter(|_| at.is_multiple_of(8))?;
        Some(u64::from_le_bytes(word.try_into().ok()?))
    }
}

/// A copy of the upper part of a stack.
struct Copy<'a> {
    /// What is read beyond it; `None`: nothing is.
    pages: Option<RemotePages<'a>>,
    low: u64,
    words: &'a [u64],
}

// SAFETY: `read_own` gives 0 for what `own` does not name.
unsafe impl ReadStack for Copy<'_> {
    fn read(&mut self, address: u64) -> Option<u64> {
        self.pages.as_mut()?.word(address)
    }

    fn own(&self) -> (u64, u64) {
        (self.low, size_of_val(self.words) as u64)
    }

    unsafe fn read_own(&self, address: u64) -> u64 {
        let at = address.wrapping_sub(self.low) / 8;
        self.words.get(at as usize).copied().unwrap_or(0)
    }
}

/// Where a thread waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub pc: u64,
    pub sp: u64,
    /// 0: not known. A frame that needs it ends the walk.
    pub fp: u64,
    /// Upper end of its stack, 0: not known.
    pub high: u64,
    /// It stands in a hook: frames of that module are left out.
    pub in_hook: bool,
    /// The thread, as its own pid namespace numbers it.
    pub tid: Tid,
    /// Where the process has what is known of generated code, as its entry says.
    pub generated_code: u64,
    /// What awaits the thread's task is wanted ([`Options::await_chains`](crate::Options)).
    pub await_chains: bool,
}

/// Memory for walks.
#[derive(Debug)]
pub(crate) struct Walker {
    stack: Box<walk::Stack>,
    bytes: Vec<u8>,
    words: Vec<u64>,
    managed: Box<managed::Thread>,
}

impl Default for Walker {
    fn default() -> Walker {
        Walker {
            stack: walk::Stack::boxed(),
            bytes: vec![0; COPY_BYTES],
            words: Vec::with_capacity(COPY_BYTES / 8),
            managed: managed::Thread::boxed(),
        }
    }
}

impl Walker {
    /// Walks a stack. `epoch` is the process' module epoch. With `methods`, where they get their numbers,
    /// frames of runtimes are among it.
    ///
    /// # Errors
    ///
    /// Those of `process_vm_readv`: the process is gone, or reading is not allowed.
    pub(crate) fn walk(
        &mut self,
        process: &Process,
        epoch: u32,
        place: &Place,
        depth: usize,
        methods: Option<&Methods>,
    ) -> io::Result<Stack> {
        process.update(epoch);
        process.generated_code.set(place.generated_code);
        let low = place.sp & !7;
        let room = place.high.checked_sub(low).filter(|room| *room > 0);
        let length = room.map_or(COPY_BYTES, |room| room.min(COPY_BYTES as u64) as usize) & !7;
        let copied = platform::read_memory(process.pid.0, low, &mut self.bytes[..length])
            .map_err(|error| io::Error::from_raw_os_error(error.0))?;
        self.words.clear();
        let words = self.bytes[..copied].chunks_exact(8);
        self.words.extend(words.map(|word| {
            word.iter()
                .rev()
                .fold(0, |all, byte| all << 8 | u64::from(*byte))
        }));
        let registers = Registers {
            pc: place.pc,
            sp: place.sp,
            fp: place.fp,
            ..Registers::default()
        };
        let skip = match place.in_hook {
            true => process.range(place.pc),
            false => (0, 0),
        };
        let start = Start {
            registers: &registers,
            exact: true,
            high: place.high,
            skip,
        };
        let mut copy = Copy {
            pages: Some(RemotePages::of(process)),
            low,
            words: &self.words,
        };
        self.stack.forget();
        let end = self.stack.walk(&start, depth, &process, &mut copy);
        self.managed.frames.clear();
        if let Some(methods) = methods {
            process.find_managed(place, &self.stack, methods, &mut self.managed);
        }
        Ok(self.found(end, place.high, |address, each| {
            methods.is_some_and(|methods| process.each_compiled(address, methods, each))
        }))
    }

    /// Walks a stack in a copy that was taken while its thread stood still. Frames of runtimes are not found:
    /// their own records of them have changed since.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    pub(crate) fn walk_taken(&mut self, process: &Process, taken: &ToWalk<'_>) -> Stack {
        process.update(taken.epoch);
        process.generated_code.set(0);
        let start = Start {
            registers: taken.registers,
            exact: true,
            high: taken.high,
            skip: process.agent_at(taken.registers.pc),
        };
        let mut copy = Copy {
            pages: None,
            low: taken.registers.sp & !7,
            words: taken.words,
        };
        self.stack.forget();
        let end = self.stack.walk(&start, taken.depth, &process, &mut copy);
        self.managed.frames.clear();
        self.found(end, taken.high, |_, _| false)
    }

    /// What the last walk found. `compiled` gives the frames of generated code at an address.
    fn found(
        &self,
        end: WalkEnd,
        high: u64,
        compiled: impl Fn(u64, &mut dyn FnMut(u64, u32)) -> bool,
    ) -> Stack {
        let mut placing = Placing::new(Some(&self.managed.frames), high);
        let mut frames = Vec::with_capacity(self.stack.frames().len());
        for frame in self.stack.frames() {
            let add = |managed: &managed::Frame| frames.push((managed.address(), managed.kind()));
            let is_placed = placing.next(frame.sp, add);
            let mut add = |address, kind| frames.push((address, kind));
            let is_named = is_placed
                || frame.is_generated() && compiled(lookup(frame.pc, frame.is_exact()), &mut add);
            if !is_named {
                let kind = match frame.is_exact() {
                    true => node_kind::LEAF_PC,
                    false => node_kind::NATIVE,
                };
                frames.push((frame.pc, kind));
            }
        }
        Stack {
            frames,
            is_whole: end == WalkEnd::Root,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Knows one piece of code, which keeps frame pointers.
    #[derive(Debug)]
    struct OnePiece(u64);

    impl CodeSource for OnePiece {
        fn look(&self, address: u64, _exact: bool) -> Option<Code> {
            (self.0..self.0 + 0x100).contains(&address).then_some(Code {
                rule: Some(Rule::FRAME_POINTER),
                frames: Frames::NamedByTheDrain,
            })
        }
    }

    /// A stack of nothing but generated code, as a coroutine has it. Nobody believes a frame pointer in code
    /// that nobody knows.
    #[test]
    fn a_stack_of_code_that_a_source_knows_is_whole() {
        const CODE: u64 = 0x5000_0000;

        // Records of {frame pointer, return address}; the outermost one returns to nowhere.
        let mut stack = vec![0u64; 64];
        let base = stack.as_ptr().addr() as u64;
        let at = |word: u64| base + 8 * word;
        for (record, (fp, pc)) in [
            (8, (at(16), CODE + 0x20)),
            (16, (at(24), CODE + 0x30)),
            (24, (0, 0)),
        ] {
            stack[record] = fp;
            stack[record + 1] = pc;
        }
        let place = Place {
            pc: CODE + 0x10,
            sp: at(4),
            fp: at(8),
            high: at(64),
            in_hook: false,
            tid: Tid(1),
            generated_code: 0,
            await_chains: false,
        };
        let walk = |process: &Process| {
            let mut walker = Walker::default();
            let stack = walker.walk(process, 0, &place, 64, None);
            stack.expect("our own memory")
        };
        let open = || Process::open(Pid(std::process::id()), 0).expect("our own process");
        let known = walk(&open().with_source(Box::new(OnePiece(CODE))));
        let expected = [
            (CODE + 0x30, node_kind::NATIVE),
            (CODE + 0x20, node_kind::NATIVE),
            (CODE + 0x10, node_kind::LEAF_PC),
        ];
        assert!(known.is_whole && known.frames == expected, "{known:x?}");
        let unknown = walk(&open());
        assert!(
            !unknown.is_whole && unknown.frames == expected[2..],
            "{unknown:x?}"
        );
    }
}
