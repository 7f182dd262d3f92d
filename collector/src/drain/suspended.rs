//! Samples of threads that the sampler has suspended: no records of theirs, so they stand in batches of their
//! own, among those of the thread in the order of time.

use std::collections::{HashMap, VecDeque};

use stackbeat_core::cycles::Cycles;
use stackbeat_core::ids::{Upid, Utid};
use stackbeat_core::probe::Probe;
use stackbeat_core::shm::mapping::Mapping;
use stackbeat_proto::columns::{self, SampleRow};
use stackbeat_proto::v1::{self, packet};

use super::seen_waits::node_of;
use super::{Batch, Drainer};
use crate::host::Stack;
use crate::writer::encode;

/// A sample of a thread that was suspended.
#[derive(Debug)]
pub(crate) struct SuspendedSample {
    pub utid: Utid,
    pub upid: Upid,
    /// The process' module epoch then.
    pub epoch: u32,
    /// Number of the last record that the thread had written; 0 also when there was none.
    pub record: u64,
    pub cycles: Cycles,
    pub cpu_ns: u64,
    pub allocations: u64,
    pub allocated_bytes: u64,
    pub frees: u64,
    pub stack: Stack,
}

/// Those that are not in the file yet.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// By thread, in order of time.
    rows: HashMap<Utid, VecDeque<SampleRow>>,
    /// Encoded, and not known to be stored.
    encoded: Vec<(Utid, SampleRow)>,
}

impl Waiting {
    /// What was encoded is stored.
    pub(super) fn stored(&mut self) {
        self.encoded.clear();
    }

    /// What was encoded could not be stored: it is encoded again.
    pub(super) fn take_back(&mut self) {
        for (utid, row) in self.encoded.drain(..).rev() {
            self.rows.entry(utid).or_default().push_front(row);
        }
    }
}

impl Drainer {
    /// Takes one. Modules first: the frames lie in them.
    pub(crate) fn take_suspended(
        &mut self,
        mapping: &Mapping,
        modules: Vec<v1::Module>,
        sample: &SuspendedSample,
    ) {
        for module in modules {
            self.lifecycle.add_module(module);
        }
        let row = SampleRow {
            record: sample.record,
            time_ns: self.date(sample.cycles),
            cpu_ns: sample.cpu_ns,
            allocations: sample.allocations,
            allocated_bytes: sample.allocated_bytes,
            frees: sample.frees,
            node: node_of(mapping, (sample.upid, sample.epoch), &sample.stack),
            probe: Probe::Running as u8,
            ..SampleRow::default()
        };
        let waiting = self.suspended.rows.entry(sample.utid).or_default();
        waiting.push_back(row);
    }

    /// Encodes a thread's own samples, and before each of them those by suspension that are older.
    pub(super) fn encode_rows(
        &mut self,
        utid: Utid,
        rows: &[SampleRow],
        others: u64,
        batch: &mut Batch,
    ) {
        let mut rest = rows;
        while let Some(first) = self.suspended.rows.get(&utid).and_then(VecDeque::front)
            && rows.last().is_some_and(|row| row.time_ns >= first.time_ns)
        {
            let before = rest.partition_point(|row| row.time_ns < first.time_ns);
            let (older, newer) = rest.split_at(before);
            self.encode_batch(utid, older, 0, batch);
            let until_ns = newer.first().map_or(u64::MAX, |row| row.time_ns);
            self.encode_suspended(utid, until_ns, batch);
            rest = newer;
        }
        self.encode_batch(utid, rest, others, batch);
    }

    fn encode_batch(&mut self, utid: Utid, rows: &[SampleRow], others: u64, batch: &mut Batch) {
        if rows.is_empty() {
            return;
        }
        let mut columns = columns::encode(utid.0, rows, self.unit_ns);
        columns.other_records = others as u32;
        encode(packet::Body::Samples(columns), &mut batch.samples);
        batch.packets += 1;
        if let Some(last) = rows.last() {
            self.lifecycle.note_sample(utid, last);
        }
    }

    /// Encodes what is left: nothing that the threads have written themselves is older.
    pub(super) fn encode_all_suspended(&mut self, batch: &mut Batch) {
        let mut utids: Vec<Utid> = self.suspended.rows.keys().copied().collect();
        utids.sort_unstable();
        for utid in utids {
            self.encode_suspended(utid, u64::MAX, batch);
        }
        self.suspended.rows.clear();
    }

    /// Encodes a thread's samples by suspension until then. Those after the same record share a batch.
    fn encode_suspended(&mut self, utid: Utid, until_ns: u64, batch: &mut Batch) {
        let Some(waiting) = self.suspended.rows.get_mut(&utid) else {
            return;
        };
        let due = waiting.partition_point(|row| row.time_ns <= until_ns);
        let due: Vec<SampleRow> = waiting.drain(..due).collect();
        let encoded = due.iter().map(|row| (utid, *row));
        self.suspended.encoded.extend(encoded);
        for same in due.chunk_by(|one, next| one.record == next.record) {
            // Columns count records up; the batch says that these are none.
            let mut rows = same.to_vec();
            for (i, row) in rows.iter_mut().enumerate() {
                row.record = row.record.wrapping_add(i as u64);
            }
            let mut columns = columns::encode(utid.0, &rows, self.unit_ns);
            columns.by_suspension = true;
            encode(packet::Body::Samples(columns), &mut batch.samples);
            batch.packets += 1;
            if let Some(last) = rows.last() {
                self.lifecycle.note_sample(utid, last);
            }
        }
    }
}
