//! Puts a trace together packet by packet.

use std::collections::HashMap;

use stackbeat_core::probe::Probe;
use stackbeat_core::system_call::SystemCall;

use super::super::{Metrics, SampleRow};
use super::wire::Message;

pub const NATIVE: u64 = 0;
pub const ROOT: u64 = 1;
pub const TRUNCATED: u64 = 2;
pub const LEAF_PC: u64 = 3;
pub const MANAGED: u64 = 4;
pub const MANAGED_INTERPRETED: u64 = 5;
pub const MANAGED_INLINED: u64 = 6;
pub const AWAITING: u64 = 7;
pub const MANAGED_AWAITING: u64 = 8;

/// A trace under construction. `bytes` is a valid file at any moment.
#[derive(Debug, Default)]
pub struct Builder {
    pub bytes: Vec<u8>,
    nodes: HashMap<(u64, u64, u64), u64>,
    strings: Vec<String>,
    functions: Vec<Message>,
    addresses: Vec<Message>,
}

/// A function at a line, for `Builder::symbol`.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    pub function: &'static str,
    pub file: &'static str,
    pub defined: u64,
    pub line: u64,
}

impl Builder {
    /// Begins with a header. `interval_ns` holds for all threads.
    pub fn new(interval_ns: u64, command: &[&str], start_ns: u64) -> Builder {
        let mut this = Builder {
            strings: vec![String::new()],
            ..Builder::default()
        };
        let config = Message::default()
            .varint(1, interval_ns)
            .varint(2, interval_ns)
            .varint(3, 256)
            .string(4, "alloc")
            .string(4, "lock")
            .string(4, "io")
            .varint(5, 8 << 20)
            .varint(7, 1);
        let mut header = Message::default()
            .varint(1, 1)
            .bytes(2, &[7; 16])
            .string(3, "0.1.0");
        for word in command {
            header = header.string(4, word);
        }
        let header = header
            .string(5, "/home/someone")
            .string(6, "testhost")
            .string(7, "Linux 6.1.0")
            .string(8, "x86_64")
            .varint(9, 4)
            .string(10, "Synthetic CPU")
            .message(11, &config)
            .message(12, &Self::clock(start_ns))
            .varint(13, 4096);
        this.packet(1, &header);
        this
    }

    fn clock(monotonic_ns: u64) -> Message {
        Message::default()
            .varint(1, monotonic_ns.wrapping_mul(2))
            .varint(2, monotonic_ns)
            .varint(3, monotonic_ns.wrapping_add(1_000))
            .varint(4, monotonic_ns.wrapping_add(1_700_000_000_000_000_000))
    }

    /// Appends a packet whose body is field `number`.
    pub fn packet(&mut self, number: u32, body: &Message) {
        let packet = Message::default().message(number, body);
        let trace = Message::default().message(1, &packet);
        self.bytes.extend(trace.0);
    }

    /// `summary` is written by the collector in place; here a second header would be wrong, so it
    /// is part of what `new` leaves out.
    pub fn process(&mut self, upid: u64, pid: u64, parent_upid: u64, start_ns: u64, path: &str) {
        let origin = u64::from(parent_upid != 0);
        let body = Message::default()
            .varint(1, upid)
            .varint(2, pid)
            .varint(3, 1)
            .varint(4, parent_upid)
            .varint(5, start_ns)
            .string(6, path)
            .string(6, "--verbose")
            .string(7, path)
            .varint(8, origin)
            .string(9, "malloc: active");
        self.packet(2, &body);
    }

    pub fn process_end(&mut self, upid: u64, end_ns: u64, wait_status: Option<i64>) {
        let mut body = Message::default().varint(1, upid).varint(2, end_ns);
        if let Some(status) = wait_status {
            body = body.int(3, status);
        }
        self.packet(15, &body);
    }

    pub fn thread(&mut self, utid: u64, process: u64, tid: u64, name: &str, start_ns: u64) {
        let body = Message::default()
            .varint(1, utid)
            .varint(2, process)
            .varint(3, tid)
            .string(4, name)
            .varint(5, u64::from(tid.is_multiple_of(1000)))
            .varint(6, start_ns);
        self.packet(3, &body);
    }

    /// The only thread of process 1, which was there before and has used this CPU time.
    pub fn found(&mut self, start_ns: u64, cpu_before_ns: u64) {
        let body = Message::default()
            .varint(1, 1)
            .varint(2, 1)
            .varint(3, 1000)
            .varint(6, start_ns)
            .varint(9, cpu_before_ns);
        self.packet(3, &body);
    }

    pub fn thread_end(&mut self, utid: u64, end_ns: u64, totals: &Metrics, records: u64) {
        self.thread_end_with_calls(utid, end_ns, totals, records, &[]);
    }

    /// The same with the thread's system calls by kind, which are not known when there are none.
    pub fn thread_end_with_calls(
        &mut self,
        utid: u64,
        end_ns: u64,
        totals: &Metrics,
        records: u64,
        calls: &[u64],
    ) {
        let body = Message::default()
            .varint(1, utid)
            .varint(2, end_ns)
            .varint(3, 1)
            .varint(4, totals.cpu_ns)
            .varint(5, totals.allocations)
            .varint(6, totals.allocated_bytes)
            .varint(7, totals.frees)
            .varint(8, records)
            .varint(9, totals.minor_faults)
            .varint(10, totals.major_faults)
            .varint(11, totals.voluntary_switches)
            .varint(12, totals.involuntary_switches);
        let body = calls.iter().fold(body, |body, n| body.varint(14, *n));
        self.packet(14, &body);
    }

    pub fn module(&mut self, process: u64, path: &str, start: u64, end: u64) {
        let body = Message::default()
            .varint(1, process)
            .varint(2, 1)
            .string(4, path)
            .bytes(5, &[0xab; 20])
            .fixed64(6, start)
            .fixed64(7, end)
            .fixed64(8, start);
        self.packet(4, &body);
    }

    /// The node for `address` under `parent`, written when it is new. Roots: parent 0, address
    /// process upid << 32 | epoch.
    pub fn node(&mut self, parent: u64, address: u64, kind: u64) -> u32 {
        let next = self.nodes.len() as u64 + 1;
        let id = *self.nodes.entry((parent, address, kind)).or_insert(next);
        if id == next {
            let to_parent = if kind == ROOT { 0 } else { id - parent };
            let body = Message::default()
                .deltas(1, [id])
                .signed(2, [to_parent as i64])
                .deltas(3, [address])
                .packed(4, [1, kind]);
            self.packet(5, &body);
        }
        id as u32
    }

    /// The node of a whole stack, outermost address first. `leaf` is the kind of the last one.
    pub fn stack(&mut self, process: u64, addresses: &[u64], leaf: u64) -> u32 {
        let mut node = self.node(0, process << 32 | 1, ROOT);
        for (i, address) in addresses.iter().enumerate() {
            let kind = match (*address, i + 1 == addresses.len()) {
                (0, _) => TRUNCATED,
                (_, true) => leaf,
                _ => NATIVE,
            };
            node = self.node(u64::from(node), *address, kind);
        }
        node
    }

    /// The node of a whole stack, outermost frame first: addresses and kinds.
    pub fn mixed_stack(&mut self, process: u64, frames: &[(u64, u64)]) -> u32 {
        let root = self.node(0, process << 32 | 1, ROOT);
        frames.iter().fold(root, |node, (address, kind)| {
            self.node(u64::from(node), *address, *kind)
        })
    }

    /// A method of CPython's; `lines` are positions and the lines from there on.
    pub fn method(
        &mut self,
        number: u64,
        name: &str,
        file: &str,
        first_line: u64,
        lines: &[(u64, u64)],
    ) {
        let method = Message::default()
            .varint(1, number)
            .varint(2, 1)
            .varint(3, 2)
            .varint(4, first_line)
            .varint(5, 1)
            .growth(6, lines.iter().map(|(position, _)| *position))
            .deltas(7, lines.iter().map(|(_, line)| *line));
        let body = Message::default()
            .string(1, "")
            .string(1, name)
            .string(1, file)
            .message(2, &method);
        self.packet(24, &body);
    }

    /// A batch of samples, in the plainest encoding that the format allows.
    pub fn samples(&mut self, thread: u64, rows: &[SampleRow]) {
        self.samples_and_others(thread, rows, 0);
    }

    /// The same with so many records that are no samples.
    pub fn samples_and_others(&mut self, thread: u64, rows: &[SampleRow], others: u64) {
        let positions = |wanted: &dyn Fn(&SampleRow) -> bool| {
            let at: Vec<u64> = (0..rows.len() as u64)
                .filter(|i| wanted(&rows[*i as usize]))
                .collect();
            at
        };
        let mut last_arg = HashMap::new();
        let with_arg = rows.iter().filter_map(|row| Some((row.probe, row.arg?)));
        let args: Vec<i64> = with_arg
            .clone()
            .map(|(probe, (arg, _))| {
                let before = last_arg.insert(probe, arg).unwrap_or(0);
                arg.wrapping_sub(before) as i64
            })
            .collect();
        let usages: Vec<_> = rows.iter().filter_map(|row| row.rusage).collect();
        let skip_after: Vec<(u64, u64)> = rows
            .windows(2)
            .enumerate()
            .map(|(i, pair)| (i as u64, pair[1].record - pair[0].record - 1))
            .filter(|(_, skip)| *skip != 0)
            .collect();
        let body = Message::default()
            .varint(1, thread)
            .varint(2, rows.first().map_or(0, |row| row.record))
            .varint(3, 1)
            .deltas(4, rows.iter().map(|row| row.time_ns))
            .deltas(5, rows.iter().map(|row| row.cpu_ns))
            .deltas(7, rows.iter().map(|row| u64::from(row.node)))
            .packed(
                8,
                rows.iter()
                    .flat_map(|row| [1, u64::from(row.probe) | u64::from(row.flags) << 8]),
            )
            .growth(9, rows.iter().map(|row| row.allocations))
            .growth(10, rows.iter().map(|row| row.allocated_bytes))
            .deltas(
                11,
                rows.iter()
                    .map(|row| row.allocations.wrapping_sub(row.frees)),
            )
            .growth(12, positions(&|row| row.duration_ns != 0))
            .packed(
                13,
                rows.iter().map(|row| row.duration_ns).filter(|d| *d != 0),
            )
            .growth(14, positions(&|row| row.arg.is_some()))
            .signed(15, args)
            .signed(16, with_arg.map(|(_, (_, result))| result))
            .growth(17, positions(&|row| row.rusage.is_some()))
            .deltas(18, usages.iter().map(|u| u.minor_faults))
            .deltas(19, usages.iter().map(|u| u.major_faults))
            .deltas(20, usages.iter().map(|u| u.voluntary_switches))
            .deltas(21, usages.iter().map(|u| u.involuntary_switches))
            .growth(22, positions(&|row| row.waker_tid.is_some()))
            .packed(
                23,
                rows.iter().filter_map(|row| row.waker_tid.map(u64::from)),
            )
            .growth(24, skip_after.iter().map(|(at, _)| *at))
            .packed(25, skip_after.iter().map(|(_, skip)| *skip))
            .varint(26, others);
        self.packet(6, &body);
    }

    pub fn iteration(&mut self, thread: u64, time_ns: u64) {
        let body = Message::default()
            .varint(1, thread)
            .varint(2, time_ns)
            .varint(4, 5);
        self.packet(8, &body);
    }

    pub fn mark(&mut self, thread: u64, time_ns: u64, name: &str, value: i64) {
        let body = Message::default()
            .varint(1, thread)
            .varint(2, time_ns)
            .string(3, name)
            .int(5, value);
        self.packet(8, &body);
    }

    /// Capturing begins or ends.
    pub fn switch(&mut self, time_ns: u64, on: bool) {
        let body = Message::default()
            .varint(2, time_ns)
            .string(3, "capture")
            .varint(4, 4)
            .int(5, on.into());
        self.packet(8, &body);
    }

    pub fn counter(&mut self, process: u64, name: &str, unit: &str, values: &[(u64, u64)]) {
        let body = Message::default()
            .varint(1, process)
            .string(3, name)
            .string(4, unit)
            .deltas(5, values.iter().map(|(time, _)| *time))
            .deltas(6, values.iter().map(|(_, value)| *value));
        self.packet(9, &body);
    }

    /// A wait that was seen from outside; `end_ns` 0: it goes on.
    pub fn wait(&mut self, thread: u64, node: u32, probe: Probe, begin_ns: u64, end_ns: u64) {
        let wait = Message::default()
            .varint(1, thread)
            .varint(2, begin_ns)
            .varint(3, end_ns)
            .varint(4, 7);
        let body = Message::default()
            .varint(1, node.into())
            .varint(2, probe as u64)
            .message(4, &wait);
        self.packet(16, &body);
    }

    pub fn drops(&mut self, thread: u64, cause: u64, count: u64) {
        let body = Message::default()
            .varint(1, thread)
            .varint(2, cause)
            .varint(3, count);
        self.packet(10, &body);
    }

    fn string(&mut self, text: &str) -> u64 {
        if let Some(at) = self.strings.iter().position(|known| known == text) {
            return at as u64;
        }
        self.strings.push(text.to_owned());
        self.strings.len() as u64 - 1
    }

    /// Names an address: `names` outermost first, the further ones are inlined into the first.
    pub fn symbol(&mut self, process: u64, address: u64, kind: u64, module: &str, names: &[Name]) {
        self.symbol_from(process, address, kind, module, names, 0);
    }

    /// The same, from a time on.
    pub fn symbol_from(
        &mut self,
        process: u64,
        address: u64,
        kind: u64,
        module: &str,
        names: &[Name],
        from_ns: u64,
    ) {
        let first = self.functions.len() as u64;
        for name in names {
            let function = Message::default()
                .varint(1, self.string(name.function))
                .varint(3, self.string(name.file))
                .varint(4, self.string(module))
                .varint(5, name.defined);
            self.functions.push(function);
        }
        let body = Message::default()
            .varint(1, process)
            .varint(2, 1)
            .fixed64(3, address)
            .varint(4, kind)
            .packed(5, first..first + names.len() as u64)
            .packed(6, names.iter().map(|name| name.line))
            .varint(8, from_ns);
        self.addresses.push(body);
    }

    /// Writes the symbols and the footer.
    pub fn finish(mut self, end_ns: u64, samples: u64) -> Vec<u8> {
        let mut symbols = Message::default();
        for text in &self.strings {
            symbols = symbols.string(1, text);
        }
        for function in &self.functions {
            symbols = symbols.message(2, function);
        }
        for address in &self.addresses {
            symbols = symbols.message(3, address);
        }
        self.packet(11, &symbols);
        let figure = Message::default().string(1, "cpu_ns").varint(2, 1_500_000);
        let footer = Message::default()
            .varint(1, end_ns)
            .varint(2, 100)
            .varint(3, samples)
            .message(4, &Self::clock(end_ns))
            .message(5, &figure);
        self.packet(12, &footer);
        self.bytes
    }
}

/// Plays one thread: keeps its clocks and counters and collects its samples.
#[derive(Debug)]
pub struct Script {
    pub utid: u64,
    pub now_ns: u64,
    pub start_ns: u64,
    pub totals: Metrics,
    /// By kind; empty: not known.
    pub system_calls: Vec<u64>,
    pub rows: Vec<SampleRow>,
    record: u64,
    pub written: u64,
    others: u64,
}

impl Script {
    pub fn new(utid: u64, start_ns: u64) -> Script {
        Script {
            utid,
            now_ns: start_ns,
            start_ns,
            totals: Metrics::default(),
            system_calls: Vec::new(),
            rows: Vec::new(),
            record: 0,
            written: 0,
            others: 0,
        }
    }

    fn row(&mut self, node: u32, probe: Probe) -> &mut SampleRow {
        self.rows.push(SampleRow {
            record: self.record,
            time_ns: self.now_ns,
            duration_ns: 0,
            cpu_ns: self.totals.cpu_ns,
            allocations: self.totals.allocations,
            allocated_bytes: self.totals.allocated_bytes,
            frees: self.totals.frees,
            node,
            probe: probe as u8,
            ..SampleRow::default()
        });
        self.record += 1;
        self.written += 1;
        let last = self.rows.len() - 1;
        &mut self.rows[last]
    }

    /// Runs code for `ns`, then is sampled by `probe`.
    pub fn run(&mut self, node: u32, ns: u64, probe: Probe) -> &mut SampleRow {
        self.now_ns += ns;
        self.totals.cpu_ns += ns;
        if probe == Probe::Malloc {
            self.totals.allocations += 3;
            self.totals.allocated_bytes += 4096;
            self.totals.frees += 2;
        }
        self.row(node, probe)
    }

    /// Allocates, and is sampled because of that: no time passes for the sample.
    pub fn count(
        &mut self,
        node: u32,
        allocations: u64,
        bytes: u64,
        probe: Probe,
    ) -> &mut SampleRow {
        self.totals.allocations += allocations;
        self.totals.allocated_bytes += bytes;
        self.row(node, probe)
    }

    /// Makes a system call that is sampled: so many of its kind since the last such sample.
    pub fn call(&mut self, node: u32, call: SystemCall, count: i64) {
        self.row(node, Probe::SampledCall).arg = Some((call as u64, count));
    }

    /// Blocks for `ns` with `cpu_ns` of work at its edges.
    pub fn block(&mut self, node: u32, probe: Probe, ns: u64, arg: (u64, i64)) -> &mut SampleRow {
        self.now_ns += ns;
        self.totals.cpu_ns += 5_000.min(ns);
        self.totals.voluntary_switches += 1;
        let usage = super::super::Rusage {
            minor_faults: self.totals.minor_faults,
            major_faults: self.totals.major_faults,
            voluntary_switches: self.totals.voluntary_switches,
            involuntary_switches: self.totals.involuntary_switches,
        };
        let row = self.row(node, probe);
        row.duration_ns = ns;
        row.arg = Some(arg);
        row.flags = 16;
        row.rusage = Some(usage);
        row
    }

    /// Time passes off the CPU without evidence.
    pub fn vanish(&mut self, ns: u64) {
        self.now_ns += ns;
    }

    /// `count` records are written and lost.
    pub fn lose(&mut self, count: u64) {
        self.record += count;
        self.written += count;
    }

    /// `count` records are written that are no samples.
    pub fn tell(&mut self, count: u64) {
        self.lose(count);
        self.others += count;
    }

    /// Hands the samples so far to `builder`.
    pub fn flush(&mut self, builder: &mut Builder) {
        builder.samples_and_others(self.utid, &self.rows, std::mem::take(&mut self.others));
        self.rows.clear();
    }
}
