//! `Trace`: what a file says apart from its samples.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use stackbeat_proto::stream::FORMAT_VERSION;
use stackbeat_proto::v1;

use super::inferred_waits::Wait;
use super::names::Names;
use super::program::{Module, Origin, Process, Thread};
use super::stacks::Stacks;
use super::variables::Variables;
use super::{
    Frame, FrameIndex, Function, FunctionIndex, ProbeId, ProcessIndex, StackIndex, ThreadIndex,
    UnrecordedSums,
};

/// Why a trace cannot be opened or read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be opened.
    #[error("cannot open {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Reading failed.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file has no bytes.
    #[error(
        "{} is empty: the recording ended before it wrote anything; record again, or try \
         `stackbeat recover` on its mapping in /dev/shm",
        path.display()
    )]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The file is something else.
    #[error(
        "{} is not a stackbeat trace ({reason}); expected a file written by `stackbeat record`",
        path.display()
    )]
    NotATrace {
        /// The file.
        path: PathBuf,
        /// What was found instead.
        reason: String,
    },
    /// A newer stackbeat wrote the file.
    #[error(
        "{} has format version {version} (written by stackbeat {writer}), this stackbeat reads up to \
         version {FORMAT_VERSION}; use stackbeat {writer} or newer",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Version of its format.
        version: u32,
        /// Version of the stackbeat that wrote it.
        writer: String,
    },
}

/// Something in the file that could not be read; the rest of the trace is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Byte of the file near which it stands.
    pub offset: u64,
    /// What is wrong with it.
    pub what: String,
}

/// Something that was lost, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drops {
    /// `None`: the whole session.
    pub thread: Option<ThreadIndex>,
    /// `proto::v1::drops::Cause`, or a number that a newer version has given it.
    pub cause: i32,
    /// How often it happened.
    pub count: u64,
}

impl Drops {
    /// What happened, in words.
    pub fn name(&self) -> String {
        use v1::drops::Cause;
        match Cause::try_from(self.cause) {
            Ok(Cause::Unknown) => "unknown".to_owned(),
            Ok(Cause::BufferFull) => "no free buffer".to_owned(),
            Ok(Cause::Overwritten) => "overwritten by newer records".to_owned(),
            Ok(Cause::TableFull) => "stack cut: callstack table full".to_owned(),
            Ok(Cause::TruncatedDepth) => "stack cut: deeper than the limit".to_owned(),
            Ok(Cause::TruncatedUnwind) => "stack cut: could not be walked further".to_owned(),
            Ok(Cause::ForcedOverBudget) => "forced capture over its budget".to_owned(),
            Ok(Cause::Reentrant) => "capture within a capture".to_owned(),
            Ok(Cause::ThreadTableFull) => "thread not registered: table full".to_owned(),
            Ok(Cause::ProcessTableFull) => "process not registered: table full".to_owned(),
            Ok(Cause::Disk) => "not written to disk".to_owned(),
            Ok(Cause::Damaged) => "damaged record".to_owned(),
            Ok(Cause::NotHooked) => "child program not followed".to_owned(),
            Ok(Cause::SignalMissed) => "interruption at a bad moment".to_owned(),
            Ok(Cause::AgentDisabled) => "agent switched itself off".to_owned(),
            Ok(Cause::WaitLeftOut) => "waits left out to keep the budget".to_owned(),
            Ok(Cause::WaitersFull) => "wait without a waker: table of waiters full".to_owned(),
            Ok(Cause::NoAddressSpace) => "process not recorded: address space limited".to_owned(),
            Ok(Cause::MethodTableFull) => "frame without a name: table of methods full".to_owned(),
            Err(_) => format!("cause {}", self.cause),
        }
    }

    /// True when records are missing for it, false when a record is only less complete.
    pub fn loses_records(&self) -> bool {
        use v1::drops::Cause;
        matches!(
            Cause::try_from(self.cause),
            Ok(Cause::BufferFull | Cause::Overwritten | Cause::Disk | Cause::Damaged) | Err(_)
        )
    }
}

/// Threads that waited for each other's locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlock {
    /// When it was noticed.
    pub time_ns: u64,
    /// Each waits for a lock that the next one holds, the last for one of the first.
    pub members: Vec<DeadlockMember>,
}

/// A thread in a deadlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadlockMember {
    /// The thread that waits.
    pub thread: ThreadIndex,
    /// The call that waits.
    pub probe: ProbeId,
    /// Address of the lock.
    pub lock: u64,
}

/// Where the bytes of a trace are.
#[derive(Clone, Debug)]
pub(super) enum Source {
    File(PathBuf),
    /// A nameless file with what was read of something that can be read only once.
    Copy(Arc<File>),
    Bytes(Arc<[u8]>),
}

/// A trace: everything but its samples, which [`Trace::visit`] streams.
#[derive(Debug)]
pub struct Trace {
    pub(super) path: PathBuf,
    pub(super) source: Source,
    pub(super) header: v1::SessionHeader,
    pub(super) config: v1::Config,
    pub(super) summary: v1::Summary,
    pub(super) footer: Option<v1::Footer>,
    pub(super) clock: Vec<v1::ClockSnapshot>,
    pub(super) processes: Vec<Process>,
    pub(super) threads: Vec<Thread>,
    pub(super) modules: Vec<Module>,
    pub(super) drops: Vec<Drops>,
    pub(super) damage: Vec<Damage>,
    pub(super) names: Names,
    pub(super) stacks: Stacks,
    pub(super) thread_of_utid: hashbrown::HashMap<u32, ThreadIndex>,
    pub(super) process_of_upid: hashbrown::HashMap<u32, ProcessIndex>,
    /// Iterations of event loops that the file marks, by thread and time.
    pub(super) iterations: Vec<(ThreadIndex, u64)>,
    pub(super) has_scopes: bool,
    /// By thread and begin.
    pub(super) waits: Vec<Wait>,
    pub(super) variables: Variables,
    pub(super) deadlocks: Vec<Deadlock>,
    pub(super) call_counts: Vec<v1::CallCounts>,
    pub(super) unrecorded: UnrecordedSums,
    pub(super) settings: super::Settings,
    pub(super) bytes: u64,
    pub(super) sample_bytes: u64,
    pub(super) samples: u64,
    pub(super) start_ns: OnceLock<u64>,
}

impl Trace {
    /// Whether the program has scopes of its own.
    pub fn has_scopes(&self) -> bool {
        self.has_scopes
    }

    /// The file it was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the file that were read.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Of these, what samples take; the rest are nodes, names, processes and threads. Where packets are
    /// compressed, by their share of the content.
    pub fn sample_bytes(&self) -> u64 {
        self.sample_bytes
    }

    /// Samples in the file.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// How and with which program the recording began.
    pub fn header(&self) -> &v1::SessionHeader {
        &self.header
    }

    /// Calls of hooked functions by thread, of a session that counted them.
    pub fn call_counts(&self) -> &[v1::CallCounts] {
        &self.call_counts
    }

    /// Programs that ran without an agent.
    pub fn unrecorded(&self) -> &UnrecordedSums {
        &self.unrecorded
    }

    /// CPU time of the program that belongs neither to a recorded thread nor to what [`Trace::unrecorded`]
    /// names, ns: of processes that were too short to be seen, and of the starts and ends of all.
    pub fn unseen_cpu_ns(&self) -> u64 {
        let figures = self.figures().iter();
        (figures
            .filter(|f| f.name == "unseen_cpu_ns")
            .map(|f| f.value))
        .fold(0, u64::saturating_add)
    }

    /// Settings of the recording; what changed later is in [`Trace::settings`].
    pub fn config(&self) -> &v1::Config {
        &self.config
    }

    /// What was switched while it ran.
    pub fn settings(&self) -> &super::Settings {
        &self.settings
    }

    /// How the recording ended, and what it wrote, stored and lost.
    pub fn summary(&self) -> &v1::Summary {
        &self.summary
    }

    /// The last packet of a finished recording.
    pub fn footer(&self) -> Option<&v1::Footer> {
        self.footer.as_ref()
    }

    /// What the collector measured about itself.
    pub fn figures(&self) -> &[v1::footer::CollectorFigure] {
        self.footer.as_ref().map_or(&[], |footer| &footer.figures)
    }

    /// Instants read on several clocks, in the order of the file.
    pub fn clock(&self) -> &[v1::ClockSnapshot] {
        &self.clock
    }

    /// All images of processes; [`ProcessIndex`] counts in these.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// All threads; [`ThreadIndex`] counts in these.
    pub fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// The files with code of all processes.
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// Deadlocks that were noticed, in order of time.
    pub fn deadlocks(&self) -> &[Deadlock] {
        &self.deadlocks
    }

    /// What was lost, by thread and cause.
    pub fn drops(&self) -> &[Drops] {
        &self.drops
    }

    /// What could not be read.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// All functions that frames are in; [`FunctionIndex`] counts in these.
    pub fn functions(&self) -> &[Function] {
        &self.names.functions
    }

    /// All frames; [`FrameIndex`] counts in these.
    pub fn frames(&self) -> &[Frame] {
        &self.names.frames
    }

    /// The process with this index.
    ///
    /// # Panics
    /// If the index is not from this trace; so do the others.
    pub fn process(&self, index: ProcessIndex) -> &Process {
        &self.processes[index.0 as usize]
    }

    /// The thread with this index.
    pub fn thread(&self, index: ThreadIndex) -> &Thread {
        &self.threads[index.0 as usize]
    }

    /// The function with this index.
    pub fn function(&self, index: FunctionIndex) -> &Function {
        &self.names.functions[index.0 as usize]
    }

    /// The frame with this index.
    pub fn frame(&self, index: FrameIndex) -> &Frame {
        &self.names.frames[index.0 as usize]
    }

    /// What the variable at an address of a process is called, where a thread waited for it: `cache`, or
    /// `table+0x40` inside of one.
    pub fn variable(&self, process: ProcessIndex, address: u64) -> Option<&Arc<str>> {
        self.variables.at(process, address)
    }

    /// The frame that names a blocking call where slices and stacks show it as innermost.
    pub fn probe_frame(&self, probe: ProbeId) -> FrameIndex {
        self.names.probe_frame(probe)
    }

    /// The frame that names a stretch without evidence.
    pub fn gap_frame(&self) -> FrameIndex {
        self.names.gap_frame()
    }

    /// Number of stacks, `StackIndex::NONE` included: each index below it is a stack.
    pub fn stack_count(&self) -> u32 {
        self.stacks.count()
    }

    /// The stack without its innermost node; `NONE` for the outermost ones.
    pub fn stack_parent(&self, stack: StackIndex) -> StackIndex {
        self.stacks.parent(stack)
    }

    /// The frames of a stack's innermost node, outermost first: one, more with inlined functions,
    /// none for a root.
    pub fn stack_tip(
        &self,
        stack: StackIndex,
    ) -> impl DoubleEndedIterator<Item = FrameIndex> + use<> {
        self.stacks.tip(stack).map(FrameIndex)
    }

    /// All frames of a stack, outermost first; none for `StackIndex::NONE`.
    pub fn stack_frames(&self, stack: StackIndex) -> Vec<FrameIndex> {
        let mut frames = Vec::new();
        self.stacks.frames_into(stack, &mut frames);
        frames
    }

    /// The process in whose addresses a stack is, when the file says it.
    pub fn stack_process(&self, stack: StackIndex) -> Option<ProcessIndex> {
        self.stacks.process(stack)
    }

    /// The image of the same process that exec replaced by this one, where the trace has it.
    pub fn image_before(&self, process: ProcessIndex) -> Option<ProcessIndex> {
        let this = self.process(process);
        let before = this.parent.filter(|_| this.origin == Origin::Execed)?;
        (before < process && self.process(before).pid == this.pid).then_some(before)
    }

    /// How many processes there are. One that executed other programs has an image for each, and is one
    /// process.
    pub fn process_count(&self) -> usize {
        let images = (0..self.processes.len() as u32).map(ProcessIndex);
        images
            .filter(|image| self.image_before(*image).is_none())
            .count()
    }

    /// How many threads there are: the main thread of a process goes on when it executes another program.
    pub fn thread_count(&self) -> usize {
        let goes_on =
            |thread: &&Thread| thread.is_main && self.image_before(thread.process).is_some();
        self.threads.len() - self.threads.iter().filter(goes_on).count()
    }

    /// Start of the recording.
    pub fn start_ns(&self) -> u64 {
        *self.start_ns.get_or_init(|| {
            let first = self.threads.iter().map(|thread| thread.start_ns).min();
            match &self.header.start {
                Some(start) if start.monotonic_ns != 0 => {
                    start.monotonic_ns.min(first.unwrap_or(start.monotonic_ns))
                }
                _ => first.unwrap_or(0),
            }
        })
    }

    /// End of the recording: of its last thread, or as its footer says.
    pub fn end_ns(&self) -> u64 {
        let last = self.threads.iter().map(|thread| thread.end_ns).max();
        let said = self.footer.as_ref().map_or(0, |footer| footer.end_ns);
        last.unwrap_or(0).max(said).max(self.start_ns())
    }

    /// The bytes from the beginning.
    pub(super) fn input(&self) -> Result<Box<dyn Read + '_>, TraceError> {
        open_source(&self.path, &self.source)
    }
}

pub(super) fn open_source<'a>(
    path: &Path,
    source: &'a Source,
) -> Result<Box<dyn Read + 'a>, TraceError> {
    Ok(match source {
        Source::File(file) => {
            let input = File::open(file).map_err(|source| TraceError::Open {
                path: path.to_owned(),
                source,
            })?;
            Box::new(input)
        }
        Source::Copy(file) => Box::new(FromStart { file, at: 0 }),
        Source::Bytes(bytes) => Box::new(&bytes[..]),
    })
}

/// Reads a file by an offset of its own, whatever else reads it.
struct FromStart<'a> {
    file: &'a File,
    at: u64,
}

impl Read for FromStart<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.file.read_at(buffer, self.at)?;
        self.at += length as u64;
        Ok(length)
    }
}
