//! A plain reader of traces, independent of the collector's model: packets in, stacks and samples out.

use stackbeat_core::probe::{Cause, Probe};
use stackbeat_proto::columns::{self, SampleRow};
use stackbeat_proto::stream::PacketReader;
use stackbeat_proto::v1::{self, NodeKind, packet::Body};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

/// Everything in one trace.
#[derive(Debug, Default)]
pub struct Trace {
    /// The first packet.
    pub header: v1::SessionHeader,
    /// The last packet; `None`: the recording was cut off.
    pub footer: Option<v1::Footer>,
    /// By upid.
    pub processes: BTreeMap<u32, v1::Process>,
    /// By upid.
    pub process_ends: BTreeMap<u32, v1::ProcessEnd>,
    /// By utid.
    pub threads: BTreeMap<u32, v1::Thread>,
    /// By utid.
    pub thread_ends: BTreeMap<u32, v1::ThreadEnd>,
    /// Of all processes.
    pub modules: Vec<v1::Module>,
    /// By utid, in the order of the file.
    pub samples: BTreeMap<u32, Vec<SampleRow>>,
    /// Counts of lost records, by utid and cause.
    pub drops: BTreeMap<(u32, i32), u64>,
    /// Of processes, by upid and name: times (ns) and values.
    pub counters: BTreeMap<(u32, String), Vec<(u64, i64)>>,
    /// Waits that had not ended, as the off-CPU sampler has found them.
    pub waits: Vec<v1::Waits>,
    nodes: HashMap<u32, Node>,
    /// Of managed code, by number.
    pub methods: BTreeMap<u32, Method>,
    names: HashMap<(u32, u32, u64, i32), Vec<String>>,
    /// By file (path, build id), address in it and kind.
    names_in_files: HashMap<(String, Vec<u8>, u64, i32), Vec<String>>,
}

/// A method of managed code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Method {
    /// With its class, as the runtime names it.
    pub name: String,
    /// Its source file.
    pub file: String,
    /// Where it begins there.
    pub first_line: u32,
    /// Number of the runtime in the format.
    pub runtime: i32,
    /// Positions, and the lines from there on.
    pub lines: Vec<(u32, u32)>,
}

/// A frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Of the function.
    pub name: String,
    /// How the frame was found.
    pub kind: NodeKind,
    /// Of a managed frame, as far as it is known; otherwise 0.
    pub line: u32,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    parent: u32,
    address: u64,
    kind: NodeKind,
}

impl Method {
    /// The line of a position; 0: not known.
    pub fn line_at(&self, position: u32) -> u32 {
        if position == u32::MAX {
            return 0;
        }
        let line = self.lines.iter().rev().find(|(from, _)| *from <= position);
        line.map_or(0, |(_, line)| *line)
    }
}

impl Trace {
    /// Reads a file; fails the test where it is damaged.
    pub fn read(path: &Path) -> Trace {
        let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let mut trace = Trace::default();
        let mut header_seen = false;
        for item in PacketReader::new(std::io::Cursor::new(bytes)) {
            let (offset, packet) = item.unwrap_or_else(|error| panic!("{path:?}: {error}"));
            let Some(body) = packet.body else { continue };
            if let Body::Header(_) = body {
                assert!(!header_seen, "a second header at {offset}");
                header_seen = true;
            }
            trace.take(body);
        }
        assert!(header_seen, "{path:?} has no header");
        for rows in trace.samples.values_mut() {
            rows.sort_by_key(|row| row.record);
        }
        trace
    }

    fn take(&mut self, body: Body) {
        match body {
            Body::Header(header) => self.header = header,
            Body::Process(p) => drop(self.processes.insert(p.upid, p)),
            Body::ProcessEnd(p) => drop(self.process_ends.insert(p.upid, p)),
            Body::Thread(t) => drop(self.threads.insert(t.utid, t)),
            Body::ThreadEnd(t) => drop(self.thread_ends.insert(t.utid, t)),
            Body::Module(module) => self.modules.push(module),
            Body::Nodes(nodes) => self.take_nodes(&nodes),
            Body::Methods(methods) => self.take_methods(&methods),
            Body::Samples(batch) => {
                let rows = columns::decode(&batch).expect("columns decode");
                self.samples.entry(batch.utid).or_default().extend(rows);
            }
            Body::Waits(waits) => self.waits.push(waits),
            Body::Drops(dropped) => drop(
                self.drops
                    .insert((dropped.utid, dropped.cause), dropped.count),
            ),
            Body::Symbols(symbols) => {
                // The last name of each address, if it is one.
                let addresses = symbols.addresses.iter();
                for entry in addresses.filter(|entry| !entry.function.is_empty()) {
                    let names = entry.function.iter().map(|function| {
                        let name = symbols.functions[*function as usize].name;
                        symbols.strings[name as usize].clone()
                    });
                    let names = names.collect();
                    let (address, kind) = (entry.address, entry.kind);
                    if let Some(v1::symbols::File { path, build_id }) = symbols.file.clone() {
                        let place = (path, build_id, address, kind);
                        self.names_in_files.insert(place, names);
                    } else {
                        let place = (entry.upid, entry.epoch, address, kind);
                        self.names.insert(place, names);
                    }
                }
            }
            Body::Counters(batch) if batch.utid == 0 => self.take_counters(batch),
            Body::Footer(footer) => self.footer = Some(footer),
            _ => {}
        }
    }

    fn take_counters(&mut self, batch: v1::CounterBatch) {
        let key = (batch.upid, batch.name);
        let series = self.counters.entry(key).or_default();
        let (mut time, mut value) = (0, 0);
        for (later, more) in batch.time.iter().zip(&batch.value) {
            time += later;
            value += more;
            series.push((time as u64, value));
        }
    }

    fn take_nodes(&mut self, nodes: &v1::CallstackNodes) {
        for node in stackbeat_proto::nodes::nodes(nodes).expect("columns that fit") {
            let kind = NodeKind::try_from(node.kind as i32).expect("a known kind");
            let kept = Node {
                parent: node.parent,
                address: node.address,
                kind,
            };
            self.nodes.insert(node.id, kept);
        }
    }

    fn take_methods(&mut self, packet: &v1::Methods) {
        for method in &packet.methods {
            let string = |index: u32| match index {
                0 => String::new(),
                _ => packet.strings[index as usize].clone(),
            };
            assert_eq!(method.position.len(), method.line.len());
            let (mut position, mut line) = (0, 0i64);
            let lines = method.position.iter().zip(&method.line);
            let lines = lines.map(|(further, more)| {
                position += further;
                line += i64::from(*more);
                (position, line as u32)
            });
            let method_here = Method {
                name: string(method.name),
                file: string(method.file),
                first_line: method.first_line,
                runtime: method.runtime,
                lines: lines.collect(),
            };
            // Of several for a number the last one counts.
            self.methods.insert(method.number, method_here);
        }
    }

    /// Names of a stack, outermost first, inlined frames included; `?` where no name is known. Empty
    /// without a stack.
    pub fn stack(&self, node: u32) -> Vec<String> {
        self.frames(node)
            .into_iter()
            .map(|frame| frame.name)
            .collect()
    }

    /// The same with what is known besides names.
    pub fn frames(&self, node: u32) -> Vec<Frame> {
        let mut chain = Vec::new();
        let mut at = node;
        while at != 0 {
            let node = self
                .nodes
                .get(&at)
                .unwrap_or_else(|| panic!("node {at} is missing"));
            if node.kind == NodeKind::Root {
                let (process, epoch) = ((node.address >> 32) as u32, node.address as u32);
                return self.frames_of(chain, process, epoch);
            }
            chain.push(*node);
            at = node.parent;
            assert!(chain.len() < 100_000, "the nodes form a cycle");
        }
        assert!(chain.is_empty(), "node {node} has no root");
        Vec::new()
    }

    /// The numbers of the methods on a stack, leaf first; 0: it was not known which.
    pub fn methods_of(&self, node: u32) -> Vec<u32> {
        let stack =
            std::iter::successors(self.nodes.get(&node), |node| self.nodes.get(&node.parent));
        let managed = stack.filter(|node| {
            matches!(
                node.kind,
                NodeKind::Managed
                    | NodeKind::ManagedInterpreted
                    | NodeKind::ManagedInlined
                    | NodeKind::ManagedAwaiting
            )
        });
        managed.map(|node| (node.address >> 32) as u32).collect()
    }

    fn frames_of(&self, leaf_first: Vec<Node>, process: u32, epoch: u32) -> Vec<Frame> {
        let mut frames = Vec::new();
        for node in leaf_first.iter().rev() {
            let mut add = |name: &str, line| {
                frames.push(Frame {
                    name: name.to_owned(),
                    kind: node.kind,
                    line,
                });
            };
            match node.kind {
                NodeKind::Truncated => add("[truncated]", 0),
                NodeKind::Managed
                | NodeKind::ManagedInterpreted
                | NodeKind::ManagedInlined
                | NodeKind::ManagedAwaiting => {
                    let position = node.address as u32;
                    match self.methods.get(&((node.address >> 32) as u32)) {
                        Some(method) => add(&method.name, method.line_at(position)),
                        None => add("?", 0),
                    }
                }
                NodeKind::Native | NodeKind::LeafPc | NodeKind::Awaiting | NodeKind::Root => {
                    match self.name(process, epoch, node) {
                        Some(found) => found.iter().for_each(|name| add(name, 0)),
                        None => add("?", 0),
                    }
                }
            }
        }
        frames
    }

    fn name(&self, process: u32, epoch: u32, node: &Node) -> Option<&Vec<String>> {
        // Where an async function goes on is no return address either.
        let is_exact = matches!(node.kind, NodeKind::LeafPc | NodeKind::Awaiting);
        let kind = match is_exact {
            true => NodeKind::LeafPc,
            false => node.kind,
        } as i32;
        let of_process = self.names.get(&(process, epoch, node.address, kind));
        of_process.or_else(|| {
            let inside = node.address - u64::from(!is_exact);
            let loaded = self.modules.iter().filter(|module| {
                module.upid == process
                    && (module.start..module.end).contains(&inside)
                    && module.epoch <= epoch
                    && (module.end_epoch == 0 || epoch < module.end_epoch)
            });
            let module = loaded.max_by_key(|module| module.epoch)?;
            let own = node.address.wrapping_sub(module.bias);
            let place = (module.path.clone(), module.build_id.clone(), own, kind);
            self.names_in_files.get(&place)
        })
    }

    /// All samples, with their threads.
    pub fn all_samples(&self) -> impl Iterator<Item = (u32, &SampleRow)> {
        self.samples
            .iter()
            .flat_map(|(thread, rows)| rows.iter().map(move |row| (*thread, row)))
    }

    /// How many samples there are.
    pub fn sample_count(&self) -> usize {
        self.samples.values().map(Vec::len).sum()
    }

    /// Records that a thread committed and that are not in the file.
    pub fn lost_records(&self) -> u64 {
        self.drops
            .iter()
            .filter(|((_, cause), _)| {
                use v1::drops::Cause;
                matches!(
                    Cause::try_from(*cause),
                    Ok(Cause::BufferFull | Cause::Overwritten | Cause::Disk | Cause::Damaged)
                )
            })
            .map(|(_, count)| count)
            .sum()
    }

    /// CPU time by function, callees included: the CPU time between two samples of a thread goes to the
    /// functions of the second one's stack.
    pub fn cpu_by_function(&self) -> BTreeMap<String, u64> {
        let mut out = BTreeMap::new();
        let mut stacks: HashMap<u32, BTreeSet<String>> = HashMap::new();
        for rows in self.samples.values() {
            let mut before = 0;
            for row in rows {
                let spent = row.cpu_ns.saturating_sub(before);
                before = before.max(row.cpu_ns);
                let functions = stacks
                    .entry(row.node)
                    .or_insert_with(|| self.stack(row.node).into_iter().collect());
                for function in functions.iter() {
                    *out.entry(function.clone()).or_insert(0) += spent;
                }
            }
        }
        out
    }

    /// CPU time of all samples.
    pub fn cpu_ns(&self) -> u64 {
        self.samples
            .values()
            .filter_map(|rows| rows.iter().map(|row| row.cpu_ns).max())
            .sum()
    }

    /// Share (0–1) of the CPU time spent in functions whose name passes, callees included: of functions
    /// that call each other the largest counts.
    pub fn cpu_share(&self, function: impl Fn(&str) -> bool) -> f64 {
        let mut inside = 0;
        let mut stacks: HashMap<u32, bool> = HashMap::new();
        for rows in self.samples.values() {
            let mut before = 0;
            for row in rows {
                let spent = row.cpu_ns.saturating_sub(before);
                before = before.max(row.cpu_ns);
                let hit = *stacks
                    .entry(row.node)
                    .or_insert_with(|| self.stack(row.node).iter().any(|name| function(name)));
                inside += if hit { spent } else { 0 };
            }
        }
        inside as f64 / self.cpu_ns().max(1) as f64
    }

    /// Time that samples say was spent blocked for a cause, ns, by function with callees.
    pub fn blocked_in(&self, cause: Cause, function: &str) -> u64 {
        self.all_samples()
            .filter(|(_, row)| Probe::from_number(row.probe).is_some_and(|p| p.cause() == cause))
            .filter(|(_, row)| row.duration_ns > 0)
            .filter(|(_, row)| {
                self.stack(row.node)
                    .iter()
                    .any(|name| name.contains(function))
            })
            .map(|(_, row)| row.duration_ns)
            .sum()
    }

    /// What must hold in the trace of any finished recording.
    pub fn assert_sound(&self) {
        let footer = self
            .footer
            .as_ref()
            .expect("a finished recording has a footer");
        let summary = self.header.summary.as_ref().expect("a summary");
        assert_eq!(summary.outcome(), v1::summary::Outcome::Finished);
        assert_eq!(
            summary.records_written,
            summary.records_stored + summary.records_lost,
            "written = stored + lost"
        );
        assert_eq!(
            footer.samples,
            self.sample_count() as u64,
            "the footer's count"
        );
        assert!(!self.processes.is_empty() && !self.threads.is_empty());
        for (utid, thread) in &self.threads {
            assert!(
                self.processes.contains_key(&thread.upid),
                "thread {utid} of no process"
            );
        }
        for (thread, rows) in &self.samples {
            assert!(
                self.threads.contains_key(thread),
                "samples of unknown thread {thread}"
            );
            for pair in rows.windows(2) {
                assert!(
                    pair[0].record < pair[1].record,
                    "records of thread {thread} in order"
                );
                assert!(
                    pair[0].time_ns <= pair[1].time_ns,
                    "time of thread {thread} goes back"
                );
                assert!(
                    pair[0].cpu_ns <= pair[1].cpu_ns,
                    "CPU time of thread {thread} goes back"
                );
                assert!(pair[0].allocations <= pair[1].allocations);
                assert!(pair[0].allocated_bytes <= pair[1].allocated_bytes);
            }
        }
        for (thread, end) in &self.thread_ends {
            let stored = self.samples.get(thread).map_or(0, Vec::len) as u64;
            assert!(
                stored <= end.records_written,
                "thread {thread} has more than it wrote"
            );
            let last = self.samples.get(thread).and_then(|rows| rows.last());
            if let Some(last) = last {
                assert!(
                    last.allocations <= end.allocations,
                    "thread {thread}: allocations"
                );
                assert!(last.cpu_ns <= end.cpu_ns.max(last.cpu_ns));
            }
        }
    }
}
