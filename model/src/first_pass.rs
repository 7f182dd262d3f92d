//! The first pass over a file: everything but the samples, of which only the outlines are kept.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use stackbeat_core::address::Bias;
use stackbeat_core::ids::{Pid, Tid, Upid, Utid};
use stackbeat_core::system_call::SystemCalls;
use stackbeat_proto::columns::{self, Columns};
use stackbeat_proto::nodes::Node;
use stackbeat_proto::stream::{FORMAT_VERSION, PacketReader, RawPacket, StreamError};
use stackbeat_proto::v1::{self, packet::Body};

use super::names::Names;
use super::settings_in_force::Settings;
use super::stacks::Stacks;
use super::trace::{Source, open_source};
use super::variables::VariablesOfFiles;
use super::{
    Damage, Deadlock, DeadlockMember, Drops, Metrics, Module, Origin, ProbeId, Process,
    ProcessIndex, SampleRow, StackIndex, Thread, ThreadIndex, Trace, TraceError, UnrecordedSums,
    inferred_waits,
};

/// Notes of damage that are kept in full.
const DAMAGE_LIMIT: usize = 100;
/// Deadlocks that are kept.
const DEADLOCK_LIMIT: usize = 1000;

impl Trace {
    /// Opens a trace and reads everything but its samples. Damage behind a good header does not fail it: see
    /// [`Trace::damage`]. What can be read only once, a pipe, is copied to a nameless temporary file
    /// meanwhile.
    pub fn open(path: impl AsRef<Path>) -> Result<Trace, TraceError> {
        let path = path.as_ref();
        let failed = |source| TraceError::Open {
            path: path.to_owned(),
            source,
        };
        let input = File::open(path).map_err(failed)?;
        let kind = input.metadata().map_err(failed)?.file_type();
        if kind.is_file() || kind.is_dir() {
            return load(path, input, Source::File(path.to_owned()));
        }
        let copy = Arc::new(tempfile::tempfile().map_err(|error| failed(no_copy(error)))?);
        let input = Copied {
            input,
            copy: copy.clone(),
        };
        load(path, input, Source::Copy(copy))
    }

    /// Reads the header only: whether the file begins as a trace that can be read.
    pub fn check(path: impl AsRef<Path>) -> Result<(), TraceError> {
        let path = path.as_ref();
        let input = File::open(path).map_err(|source| TraceError::Open {
            path: path.to_owned(),
            source,
        })?;
        check(path, input)
    }

    /// As [`Trace::open`] for a trace in memory; `name` stands for the path in messages.
    pub fn from_bytes(name: impl AsRef<Path>, bytes: Vec<u8>) -> Result<Trace, TraceError> {
        let bytes: Arc<[u8]> = bytes.into();
        load(name.as_ref(), &bytes.clone()[..], Source::Bytes(bytes))
    }
}

/// Keeps what is read of `input` in `copy`.
struct Copied {
    input: File,
    copy: Arc<File>,
}

impl Read for Copied {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.input.read(buffer)?;
        (&*self.copy)
            .write_all(&buffer[..length])
            .map_err(no_copy)?;
        Ok(length)
    }
}

fn no_copy(error: io::Error) -> io::Error {
    io::Error::other(format!(
        "it is no regular file, and its temporary copy cannot be written ({error}); set TMPDIR to a folder with \
         room, or write it to a file first"
    ))
}

/// Reads `input`, which is at the beginning of `source`, to its end.
fn load(path: &Path, input: impl std::io::Read, source: Source) -> Result<Trace, TraceError> {
    let mut loader = Loader::default();
    {
        let mut reader = PacketReader::new(input);
        let header = first_packet(path, &mut reader)?;
        loader.header(header);
        while let Some(item) = reader.next_raw() {
            match item {
                Ok(raw) => loader.packet(raw),
                Err(StreamError::Io { source, .. }) => {
                    return Err(TraceError::Read {
                        path: path.to_owned(),
                        source,
                    });
                }
                Err(error) => loader.damage(error.offset(), error.to_string()),
            }
        }
        loader.bytes = reader.good_end();
    }
    Ok(loader.finish(path, source))
}

/// All nodes that samples, events, long waits and wakes name, with their times: what `visit` reads.
fn uses(path: &Path, source: &Source, add: &mut impl FnMut((u32, u64))) {
    let Ok(input) = open_source(path, source) else {
        return;
    };
    let mut rows = Vec::new();
    let mut reader = PacketReader::new(input);
    while let Some(item) = reader.next_raw() {
        let raw = match item {
            Ok(raw) => raw,
            Err(StreamError::Io { .. }) => return,
            Err(_) => continue,
        };
        let encoded = match raw.samples() {
            Some(batch) => batch.to_vec(),
            None => match raw.decode().map(|packet| packet.body) {
                Ok(Some(Body::Samples(batch))) => prost::Message::encode_to_vec(&batch),
                Ok(Some(Body::Event(event))) => {
                    add((event.node, event.time_ns));
                    continue;
                }
                Ok(Some(Body::LongWait(wait))) => {
                    add((wait.node, wait.end_ns));
                    continue;
                }
                Ok(Some(Body::Wake(wake))) => {
                    add((wake.node, wake.time_ns));
                    continue;
                }
                _ => continue,
            },
        };
        if let Some(batch) = Columns::of(&encoded)
            && batch.rows_into(&mut rows).is_ok()
        {
            rows.iter().for_each(|row| add((row.node, row.time_ns)));
        }
    }
}

/// Whether a file begins with a header that can be read.
pub(super) fn check(path: &Path, input: File) -> Result<(), TraceError> {
    first_packet(path, &mut PacketReader::new(input)).map(|_| ())
}

/// The header, or why this is no trace that can be read.
fn first_packet<R: std::io::Read>(
    path: &Path,
    reader: &mut PacketReader<R>,
) -> Result<v1::SessionHeader, TraceError> {
    let path = path.to_owned();
    let not = |reason: String| TraceError::NotATrace {
        path: path.clone(),
        reason,
    };
    let header = match reader.next() {
        None => return Err(TraceError::Empty { path }),
        Some(Err(StreamError::Io { source, .. })) => return Err(TraceError::Read { path, source }),
        Some(Err(error)) => return Err(not(error.to_string())),
        Some(Ok((_, packet))) => match packet.body {
            Some(Body::Header(header)) => header,
            _ => return Err(not("its first packet is no session header".to_owned())),
        },
    };
    match header.format_version {
        0 => Err(not("its header has no format version".to_owned())),
        version if version > FORMAT_VERSION => Err(TraceError::Newer {
            path,
            version,
            writer: header.stackbeat_version,
        }),
        _ => Ok(header),
    }
}

#[derive(Default)]
struct Loader {
    header: v1::SessionHeader,
    clock: Vec<v1::ClockSnapshot>,
    footer: Option<v1::Footer>,
    processes: Vec<Process>,
    parent_upids: Vec<u32>,
    process_of_upid: HashMap<u32, ProcessIndex>,
    threads: Vec<ThreadMetadata>,
    thread_of_utid: HashMap<u32, ThreadIndex>,
    modules: Vec<Module>,
    module_of: HashMap<(ProcessIndex, u64, u32), usize>,
    nodes: Vec<Node>,
    names: Option<Names>,
    drops: Vec<Drops>,
    drops_of: HashMap<(u32, i32), usize>,
    iterations: Vec<(ThreadIndex, u64)>,
    has_scopes: bool,
    waits: inferred_waits::Loading,
    variables: VariablesOfFiles,
    deadlocks: Vec<Deadlock>,
    settings: Vec<v1::Event>,
    call_counts: Vec<v1::CallCounts>,
    unrecorded: UnrecordedSums,
    /// Of the batch at hand.
    rows: Vec<SampleRow>,
    damage: Vec<Damage>,
    more_damage: u64,
    bytes: u64,
    /// Bytes of packets, expanded, and of those that are samples.
    content_bytes: u64,
    sample_bytes: u64,
    samples: u64,
    unknown_packets: u64,
}

/// What is collected about a thread before its process and its times are settled.
struct ThreadMetadata {
    thread: Thread,
    creator_utid: u32,
    creator_node: u32,
    end: Option<u64>,
    /// Times of samples seen, `first > last` while there is none.
    first_ns: u64,
    last_ns: u64,
}

impl Loader {
    fn damage(&mut self, offset: u64, what: String) {
        if self.damage.len() < DAMAGE_LIMIT {
            self.damage.push(Damage { offset, what });
        } else {
            self.more_damage += 1;
        }
    }

    fn header(&mut self, header: v1::SessionHeader) {
        self.clock.extend(header.start);
        self.header = header;
    }

    fn packet(&mut self, raw: RawPacket<'_>) {
        self.content_bytes += raw.body.len() as u64;
        if let Some(batch) = raw.samples() {
            self.sample_bytes += raw.body.len() as u64;
            self.batch(batch, raw.offset);
            return;
        }
        let packet = match raw.decode() {
            Ok(packet) => packet,
            Err(error) => return self.damage(raw.offset, error.to_string()),
        };
        match packet.body {
            None => self.unknown_packets += 1,
            Some(Body::Header(_)) => self.damage(
                raw.offset,
                format!(
                    "a second session header stands at byte {}: two traces in one file? The first \
                     one counts",
                    raw.offset
                ),
            ),
            Some(Body::Process(process)) => self.process(process),
            Some(Body::ProcessEnd(end)) => self.process_end(&end),
            Some(Body::Thread(thread)) => self.thread(thread),
            Some(Body::ThreadEnd(end)) => self.thread_end(&end),
            Some(Body::Module(module)) => self.module(module),
            Some(Body::Nodes(nodes)) => self.nodes(&nodes, raw.offset),
            Some(Body::Samples(batch)) => {
                // Not the usual encoding, but the same message.
                let bytes = prost::Message::encode_to_vec(&batch);
                self.batch(&bytes, raw.offset);
            }
            Some(Body::Clock(clock)) => self.clock.push(clock),
            Some(Body::Event(event)) => {
                use v1::event::Kind;
                match event.kind() {
                    Kind::LoopIteration => {
                        let thread = self.thread_index(event.utid);
                        self.iterations.push((thread, event.time_ns));
                    }
                    Kind::ScopeBegin => self.has_scopes = true,
                    Kind::IntervalChanged | Kind::ConfigChanged => self.settings.push(event),
                    _ => {}
                }
            }
            Some(Body::Counters(_) | Body::LongWait(_) | Body::Wake(_)) => {}
            // Names are looked up already.
            Some(Body::JitMap(_)) => {}
            Some(Body::Deadlock(deadlock)) => self.deadlock(&deadlock),
            Some(Body::Waits(waits)) => self.waits(&waits),
            Some(Body::CallCounts(counts)) => self.call_counts.push(counts),
            Some(Body::Unrecorded(process)) => self.unrecorded.add(&process),
            Some(Body::Drops(dropped)) => self.drops(&dropped),
            Some(Body::Symbols(symbols)) => {
                self.variables.add(&symbols);
                let odd = self
                    .names
                    .get_or_insert_with(Names::new)
                    .add_symbols(&symbols);
                if odd != 0 {
                    self.damage(raw.offset, format!("{odd} symbols do not fit the others"));
                }
            }
            Some(Body::Methods(methods)) => {
                let odd = self
                    .names
                    .get_or_insert_with(Names::new)
                    .add_methods(&methods);
                if odd != 0 {
                    self.damage(raw.offset, format!("{odd} methods make no sense"));
                }
            }
            Some(Body::Footer(footer)) => {
                self.clock.extend(footer.end);
                self.footer = Some(footer);
            }
            Some(Body::CompressedPackets(_)) => self.damage(
                raw.offset,
                format!("the packet at byte {} is compressed twice", raw.offset),
            ),
        }
    }

    fn process_index(&mut self, upid: u32) -> ProcessIndex {
        *self.process_of_upid.entry(upid).or_insert_with(|| {
            self.parent_upids.push(0);
            self.processes.push(Process {
                upid: Upid(upid),
                pid: Pid(0),
                parent_pid: Pid(0),
                parent: None,
                start_ns: 0,
                end_ns: 0,
                command_line: Vec::new(),
                executable: String::new(),
                started_as: String::new(),
                origin: Origin::Started,
                capabilities: Vec::new(),
                exec_ns: 0,
                wait_status: None,
                execed: false,
                ended: false,
            });
            ProcessIndex(self.processes.len() as u32 - 1)
        })
    }

    fn process(&mut self, from: v1::Process) {
        let index = self.process_index(from.upid).0 as usize;
        self.parent_upids[index] = from.parent_upid;
        let process = &mut self.processes[index];
        process.origin = from.origin();
        process.pid = Pid(from.pid);
        process.parent_pid = Pid(from.parent_pid);
        process.start_ns = from.start_ns;
        process.command_line = from.command_line;
        process.executable = from.executable;
        process.started_as = from.started_as;
        process.capabilities = from.capabilities;
        process.exec_ns = from.exec_ns;
    }

    fn process_end(&mut self, end: &v1::ProcessEnd) {
        let index = self.process_index(end.upid).0 as usize;
        let process = &mut self.processes[index];
        process.end_ns = end.end_ns;
        process.wait_status = end.wait_status;
        process.execed = end.execed;
        process.ended = true;
    }

    fn thread_index(&mut self, utid: u32) -> ThreadIndex {
        *self.thread_of_utid.entry(utid).or_insert_with(|| {
            self.threads.push(ThreadMetadata {
                thread: Thread {
                    utid: Utid(utid),
                    // Of no process until a Thread packet says otherwise.
                    process: ProcessIndex(u32::MAX),
                    tid: Tid(0),
                    name: String::new(),
                    is_main: false,
                    start_ns: 0,
                    cpu_before_ns: 0,
                    end_ns: 0,
                    exited: false,
                    creator: None,
                    creator_stack: StackIndex::NONE,
                    samples: 0,
                    records_written: None,
                    capture_ns: 0,
                    totals: None,
                    system_calls: None,
                    knows_call_bytes: false,
                    batches: 0,
                },
                creator_utid: 0,
                creator_node: 0,
                end: None,
                first_ns: u64::MAX,
                last_ns: 0,
            });
            ThreadIndex(self.threads.len() as u32 - 1)
        })
    }

    fn thread(&mut self, from: v1::Thread) {
        let process = self.process_index(from.upid);
        let index = self.thread_index(from.utid).0 as usize;
        let metadata = &mut self.threads[index];
        metadata.creator_utid = from.creator_utid;
        metadata.creator_node = from.creator_node;
        let thread = &mut metadata.thread;
        thread.process = process;
        thread.tid = Tid(from.tid);
        if !from.name.is_empty() {
            thread.name = from.name;
        }
        thread.is_main = from.is_main;
        thread.start_ns = from.start_ns;
        thread.cpu_before_ns = from.cpu_before_ns;
    }

    fn thread_end(&mut self, end: &v1::ThreadEnd) {
        let index = self.thread_index(end.utid).0 as usize;
        let metadata = &mut self.threads[index];
        metadata.end = Some(end.end_ns);
        metadata.thread.exited = end.exited;
        metadata.thread.records_written = Some(end.records_written);
        metadata.thread.capture_ns = end.capture_ns;
        metadata.thread.system_calls = SystemCalls::from_list(&end.system_calls);
        metadata.thread.knows_call_bytes = SystemCalls::list_has_bytes(&end.system_calls);
        metadata.thread.totals = Some(Metrics {
            cpu_ns: end.cpu_ns,
            allocations: end.allocations,
            allocated_bytes: end.allocated_bytes,
            frees: end.frees,
            minor_faults: end.minor_faults,
            major_faults: end.major_faults,
            voluntary_switches: end.voluntary_switches,
            involuntary_switches: end.involuntary_switches,
            runnable_ns: 0,
            samples: 0,
        });
    }

    fn module(&mut self, from: v1::Module) {
        let process = self.process_index(from.upid);
        let module = Module {
            process,
            epoch: from.epoch,
            end_epoch: from.end_epoch,
            path: from.path,
            build_id: from.build_id,
            start: from.start,
            end: from.end,
            bias: Bias(from.bias),
        };
        // A module that is gone is written again, with its end.
        match self.module_of.entry((process, module.start, module.epoch)) {
            Entry::Occupied(entry) => self.modules[*entry.get()] = module,
            Entry::Vacant(entry) => {
                entry.insert(self.modules.len());
                self.modules.push(module);
            }
        }
    }

    fn nodes(&mut self, nodes: &v1::CallstackNodes, offset: u64) {
        match stackbeat_proto::nodes::nodes(nodes) {
            Some(nodes) => self.nodes.extend(nodes),
            None => {
                let what = format!("the columns of the nodes at byte {offset} differ in length");
                self.damage(offset, what);
            }
        }
    }

    /// Takes a batch's outline. All of it is decoded to know whether `visit` will be able to.
    fn batch(&mut self, batch: &[u8], offset: u64) {
        let columns = Columns::of(batch);
        let is_good = columns.is_some_and(|columns| columns.rows_into(&mut self.rows).is_ok());
        if let Some(outline) = columns::outline(batch) {
            self.samples(outline);
        }
        if !is_good {
            let what = format!("the samples in the packet at byte {offset} are damaged");
            self.damage(offset, what);
        }
    }

    fn samples(&mut self, outline: columns::Outline) {
        let index = self.thread_index(outline.utid).0 as usize;
        let metadata = &mut self.threads[index];
        metadata.thread.batches += 1;
        metadata.thread.samples += outline.rows;
        self.samples += outline.rows;
        if outline.rows != 0 {
            metadata.first_ns = metadata.first_ns.min(outline.first_ns);
            metadata.last_ns = metadata.last_ns.max(outline.last_ns);
        }
    }

    fn waits(&mut self, packet: &v1::Waits) {
        let mut waits = std::mem::take(&mut self.waits);
        waits.add(packet, |utid| self.thread_index(utid));
        self.waits = waits;
    }

    fn deadlock(&mut self, from: &v1::Deadlock) {
        if self.deadlocks.len() >= DEADLOCK_LIMIT {
            return;
        }
        let member = |member: &v1::deadlock::Member| DeadlockMember {
            thread: self.thread_index(member.utid),
            probe: ProbeId(u8::try_from(member.probe).unwrap_or(0)),
            lock: member.lock,
        };
        let members = from.member.iter().map(member).collect();
        self.deadlocks.push(Deadlock {
            time_ns: from.time_ns,
            members,
        });
    }

    fn drops(&mut self, from: &v1::Drops) {
        let thread = match from.utid {
            0 => None,
            utid => Some(self.thread_index(utid)),
        };
        let dropped = Drops {
            thread,
            cause: from.cause,
            count: from.count,
        };
        match self.drops_of.entry((from.utid, from.cause)) {
            Entry::Occupied(entry) => self.drops[*entry.get()] = dropped,
            Entry::Vacant(entry) => {
                entry.insert(self.drops.len());
                self.drops.push(dropped);
            }
        }
    }

    fn finish(mut self, path: &Path, source: Source) -> Trace {
        if self.unknown_packets != 0 {
            let what = format!(
                "{} packets are of kinds that this version does not know",
                self.unknown_packets
            );
            self.damage(0, what);
        }
        for (index, parent) in self.parent_upids.iter().enumerate() {
            self.processes[index].parent = self.process_of_upid.get(parent).copied();
        }
        let mut names = self.names.take().unwrap_or_default();
        names.set_modules(&self.modules, &self.processes);
        let nodes = std::mem::take(&mut self.nodes);
        let (mut stacks, mut building) = Stacks::build(&nodes, &mut names, &self.process_of_upid);
        drop(nodes);
        if names.change() {
            let creations = (self.threads.iter())
                .map(|metadata| (metadata.creator_node, metadata.thread.start_ns));
            let mut add = |(node, at_ns): (u32, u64)| {
                stacks.add_use(node, at_ns, &mut building, &mut names);
            };
            self.waits.uses().chain(creations).for_each(&mut add);
            uses(path, &source, &mut add);
        }
        drop(building);
        names.finish();
        if stacks.odd_nodes != 0 {
            let what = format!(
                "{} nodes of the callstack table contradict others or have no parent",
                stacks.odd_nodes
            );
            self.damage(0, what);
        }
        self.settle_threads(&stacks);
        if self.more_damage != 0 {
            let what = format!("and {} more faults", self.more_damage);
            self.damage.push(Damage { offset: 0, what });
        }
        self.iterations.sort_unstable();
        let threads = &self.threads;
        let start_ns = |thread: ThreadIndex| threads[thread.0 as usize].thread.start_ns;
        let waits = std::mem::take(&mut self.waits).finish(&stacks, start_ns);
        let variables = self.variables.place(&self.modules, &self.processes);
        let config = self.header.config.clone().unwrap_or_default();
        Trace {
            settings: Settings::new(&config, &self.settings),
            path: path.to_owned(),
            source,
            config,
            summary: (self.footer.as_ref().and_then(|f| f.summary.clone()))
                .or_else(|| self.header.summary.clone())
                .unwrap_or_default(),
            header: self.header,
            footer: self.footer,
            clock: self.clock,
            processes: self.processes,
            threads: self
                .threads
                .into_iter()
                .map(|metadata| metadata.thread)
                .collect(),
            modules: self.modules,
            drops: self.drops,
            damage: self.damage,
            names,
            stacks,
            thread_of_utid: self.thread_of_utid,
            process_of_upid: self.process_of_upid,
            iterations: self.iterations,
            has_scopes: self.has_scopes,
            waits,
            variables,
            deadlocks: self.deadlocks,
            call_counts: self.call_counts,
            unrecorded: self.unrecorded,
            bytes: self.bytes,
            sample_bytes: (u128::from(self.bytes) * u128::from(self.sample_bytes)
                / u128::from(self.content_bytes.max(1))) as u64,
            samples: self.samples,
            start_ns: OnceLock::new(),
        }
    }

    /// Gives each thread its process, creator, begin and end, and each process its end.
    fn settle_threads(&mut self, stacks: &Stacks) {
        let session_end = self.footer.as_ref().map_or(0, |footer| footer.end_ns);
        let last_sample = self.threads.iter().map(|metadata| metadata.last_ns).max();
        let session_end = session_end.max(last_sample.unwrap_or(0));
        for index in 0..self.threads.len() {
            if self.threads[index].thread.process.0 == u32::MAX {
                self.threads[index].thread.process = self.process_index(0);
            }
            let metadata = &mut self.threads[index];
            let process = &self.processes[metadata.thread.process.0 as usize];
            let has_samples = metadata.first_ns <= metadata.last_ns;
            let thread = &mut metadata.thread;
            thread.creator_stack = stacks.of_node(metadata.creator_node, thread.start_ns);
            if thread.start_ns == 0 {
                thread.start_ns = match (has_samples, process.start_ns) {
                    (true, start) if start == 0 || start > metadata.first_ns => metadata.first_ns,
                    (_, start) => start,
                };
            }
            let end = match metadata.end {
                // The collector may see a thread's end after its process has exec'd another image.
                Some(end) if process.ended && process.end_ns != 0 => end.min(process.end_ns),
                Some(end) => end,
                None if process.ended && process.end_ns != 0 => process.end_ns,
                None => session_end,
            };
            thread.end_ns = end.max(metadata.last_ns).max(thread.start_ns);
            if thread.start_ns == 0 {
                // Only a loss or an event names it: nothing says how long it lived.
                thread.start_ns = thread.end_ns;
            }
            thread.creator = self.thread_of_utid.get(&metadata.creator_utid).copied();
        }
        for metadata in &self.threads {
            let process = &mut self.processes[metadata.thread.process.0 as usize];
            if !process.ended {
                process.end_ns = process.end_ns.max(metadata.thread.end_ns);
            }
            if process.start_ns == 0 {
                process.start_ns = metadata.thread.start_ns;
            }
        }
        for process in &mut self.processes {
            process.end_ns = process.end_ns.max(process.start_ns);
        }
    }
}
