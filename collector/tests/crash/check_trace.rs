//! Counts what a trace holds and compares it with what was written.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use stackbeat_proto::columns;
use stackbeat_proto::stream::PacketReader;
use stackbeat_proto::v1::{self, drops::Cause, packet, summary};

use super::writing_threads::{leaf, method_name, seal};

/// Sums over all rounds.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub written: u64,
    pub rows: u64,
    pub lost: u64,
    pub from_mapping: u64,
}

impl Totals {
    pub(super) fn add(&mut self, other: &Totals) {
        self.written += other.written;
        self.rows += other.rows;
        self.lost += other.lost;
        self.from_mapping += other.from_mapping;
    }
}

/// One thread as the trace tells it.
#[derive(Debug, Default)]
struct Thread {
    rows: u64,
    next: u64,
    written: Option<u64>,
    declared_lost: u64,
    announced: u32,
}

macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}

/// Checks a trace against the notes of the program: (utid, records finished).
pub(super) fn check(
    path: &Path,
    notes: &[(u32, u64)],
    from_mapping: u64,
) -> Result<Totals, String> {
    let mut threads: HashMap<u32, Thread> = HashMap::new();
    let mut nodes: HashMap<u32, (u32, u64, u32)> = HashMap::new();
    let mut methods: HashMap<u32, String> = HashMap::new();
    let mut upids = Vec::new();
    let mut summary = None;
    let mut footers = 0;
    let file = File::open(path).map_err(|e| format!("{}: {e}", path.display()))?;
    for packet in PacketReader::new(file) {
        let (offset, packet) = packet.map_err(|e| e.to_string())?;
        match packet.body.ok_or("an empty packet")? {
            packet::Body::Header(header) => {
                ensure!(offset == 0, "a second header");
                summary = header.summary;
            }
            packet::Body::Process(process) => upids.push(process.upid),
            packet::Body::Thread(thread) => threads.entry(thread.utid).or_default().announced += 1,
            packet::Body::Methods(packet) => {
                for method in packet.methods {
                    let name = packet.strings[method.name as usize].clone();
                    let before = methods.insert(method.number, name);
                    ensure!(before.is_none(), "method {} comes twice", method.number);
                }
            }
            packet::Body::Nodes(columns) => add_nodes(&columns, &mut nodes)?,
            packet::Body::Samples(batch) => {
                let utid = batch.utid;
                let thread = threads.entry(utid).or_default();
                let rows = columns::decode(&batch).map_err(|e| e.to_string())?;
                for row in rows {
                    let n = row.record;
                    ensure!(
                        n >= thread.next,
                        "thread {utid}: record {n} comes twice or too late"
                    );
                    thread.next = n + 1;
                    thread.rows += 1;
                    let numbers = (row.allocations, row.allocated_bytes, row.frees);
                    ensure!(
                        numbers == (n + 1, n * 7, n / 2)
                            && row.arg == Some((seal(utid, n), n as i64))
                            && row.cpu_ns.abs_diff(n * 1000) < 1_000_000,
                        "thread {utid}: record {n} is corrupt: {row:?}"
                    );
                    ensure!(row.node != 0, "thread {utid}: record {n} has no stack");
                    let stack = stack(&nodes, row.node)?;
                    let [leaf_address, managed, outer, root] = stack[..] else {
                        return Err(format!("record {n} has the stack {stack:x?}"));
                    };
                    ensure!(
                        leaf_address == leaf(utid, n)
                            && outer == 0x1000 + u64::from(utid)
                            && methods.get(&((managed >> 32) as u32)) == Some(&method_name(n))
                            && upids.contains(&((root >> 32) as u32)),
                        "thread {utid}: record {n} has the stack {stack:x?}"
                    );
                }
            }
            packet::Body::Drops(dropped) if dropped.cause == Cause::BufferFull as i32 => {
                threads.entry(dropped.utid).or_default().declared_lost = dropped.count;
            }
            packet::Body::Drops(dropped) => {
                return Err(format!("an unexpected loss: {dropped:?}"));
            }
            packet::Body::ThreadEnd(end) => {
                let thread = threads.entry(end.utid).or_default();
                ensure!(thread.written.is_none(), "thread {} ends twice", end.utid);
                thread.written = Some(end.records_written);
            }
            packet::Body::Footer(_) => footers += 1,
            _ => {}
        }
    }
    ensure!(footers == 1, "{footers} footers");
    let summary = summary.ok_or("no summary")?;
    ensure!(
        matches!(
            summary.outcome(),
            summary::Outcome::Finished | summary::Outcome::Recovered
        ),
        "{summary:?}"
    );
    compare(&threads, notes, &summary, from_mapping)
}

/// The summary in the header says what happened, although nothing could be appended any more.
pub(super) fn says_disk_full(path: &Path) -> Result<(), String> {
    let file = File::open(path).map_err(|e| e.to_string())?;
    let first = PacketReader::new(file).next().ok_or("an empty file")?;
    let Some(packet::Body::Header(header)) = first.map_err(|e| e.to_string())?.1.body else {
        return Err("no header".to_owned());
    };
    let summary = header.summary.ok_or("no summary")?;
    ensure!(
        summary.outcome() == summary::Outcome::DiskFull,
        "{summary:?}"
    );
    ensure!(summary.records_lost > 0, "{summary:?}");
    Ok(())
}

/// The equation, thread by thread and as a whole.
fn compare(
    threads: &HashMap<u32, Thread>,
    notes: &[(u32, u64)],
    summary: &v1::Summary,
    from_mapping: u64,
) -> Result<Totals, String> {
    let mut totals = Totals {
        from_mapping,
        ..Default::default()
    };
    for (utid, finished) in notes {
        let Some(thread) = threads.get(utid) else {
            return Err(format!(
                "thread {utid} is missing, it wrote {finished} records"
            ));
        };
        let written = thread.written.ok_or(format!("thread {utid} has no end"))?;
        ensure!(thread.announced > 0, "thread {utid} was not announced");
        // At the moment of death one record may be written and not yet noted.
        ensure!(
            written == *finished || written == finished + 1,
            "thread {utid} wrote {finished}, the trace says {written}"
        );
        let missing = written - thread.rows;
        // Likewise one may be counted as lost and not yet as written.
        ensure!(
            thread.declared_lost == missing || thread.declared_lost == missing + 1,
            "thread {utid}: {written} written, {} there, {} declared lost",
            thread.rows,
            thread.declared_lost
        );
        totals.written += written;
        totals.rows += thread.rows;
    }
    totals.lost = totals.written - totals.rows;
    ensure!(
        (
            summary.records_written,
            summary.records_stored,
            summary.records_lost
        ) == (totals.written, totals.rows, totals.lost),
        "{totals:?}, but {summary:?}"
    );
    Ok(totals)
}

fn add_nodes(
    columns: &v1::CallstackNodes,
    nodes: &mut HashMap<u32, (u32, u64, u32)>,
) -> Result<(), String> {
    let found = stackbeat_proto::nodes::nodes(columns).ok_or("columns of nodes do not fit")?;
    for node in found {
        let (id, parent) = (node.id, node.parent);
        ensure!(
            parent == 0 || nodes.contains_key(&parent),
            "node {id} comes before its parent {parent}"
        );
        let before = nodes.insert(id, (parent, node.address, node.kind));
        ensure!(before.is_none(), "node {id} comes twice");
    }
    Ok(())
}

/// Addresses from the leaf to the root.
fn stack(nodes: &HashMap<u32, (u32, u64, u32)>, leaf: u32) -> Result<Vec<u64>, String> {
    let mut addresses = Vec::new();
    let mut at = leaf;
    while at != 0 {
        let (parent, address, _) = nodes
            .get(&at)
            .ok_or(format!("node {at} is not in the trace"))?;
        addresses.push(*address);
        at = *parent;
    }
    Ok(addresses)
}
