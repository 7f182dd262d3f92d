//! A window of a session: samples, waits, events and counters in it, with totals that count from its begin.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use stackbeat_core::ids::Utid;
use stackbeat_proto::columns::{self, Rusage, SampleRow};
use stackbeat_proto::v1::{self, packet};

use super::{Out, Written};

/// A thread in the window.
pub(super) struct Thread {
    pub(super) packet: v1::Thread,
    pub(super) end: Option<v1::ThreadEnd>,
    /// Its totals when the window begins; `None` until they are known.
    pub(super) base: Option<SampleRow>,
    pub(super) base_rusage: Option<Rusage>,
    pub(super) rows: u64,
}

impl Thread {
    /// Its totals at the end, counted from the begin of the window.
    pub(super) fn end(&self) -> Option<v1::ThreadEnd> {
        let end = self.end.as_ref()?;
        let base = self.base.unwrap_or(SampleRow {
            cpu_ns: end.cpu_ns,
            allocations: end.allocations,
            allocated_bytes: end.allocated_bytes,
            frees: end.frees,
            ..Default::default()
        });
        let none = Rusage {
            minor_faults: end.minor_faults,
            major_faults: end.major_faults,
            voluntary_switches: end.voluntary_switches,
            involuntary_switches: end.involuntary_switches,
        };
        let usage = self.base_rusage.unwrap_or(none);
        let less = u64::saturating_sub;
        Some(v1::ThreadEnd {
            cpu_ns: less(end.cpu_ns, base.cpu_ns),
            allocations: less(end.allocations, base.allocations),
            allocated_bytes: less(end.allocated_bytes, base.allocated_bytes),
            frees: less(end.frees, base.frees),
            records_written: self.rows,
            minor_faults: less(end.minor_faults, usage.minor_faults),
            major_faults: less(end.major_faults, usage.major_faults),
            voluntary_switches: less(end.voluntary_switches, usage.voluntary_switches),
            involuntary_switches: less(end.involuntary_switches, usage.involuntary_switches),
            // How many there had been when the window began is not known.
            system_calls: Vec::new(),
            ..*end
        })
    }

    /// A row with totals that count from the begin of the window; `None` for one before it.
    fn in_window(&mut self, row: &SampleRow, from_ns: u64) -> Option<SampleRow> {
        if row.time_ns < from_ns {
            self.base = Some(*row);
            self.base_rusage = row.rusage.or(self.base_rusage);
            return None;
        }
        let base = *self.base.get_or_insert_with(|| {
            // Nothing is known of the time before.
            let begin = row.time_ns - row.duration_ns.min(row.time_ns);
            self.packet.start_ns = begin.max(self.packet.start_ns);
            *row
        });
        let less = u64::saturating_sub;
        let rusage = row.rusage.map(|usage| {
            let base = *self.base_rusage.get_or_insert(usage);
            Rusage {
                minor_faults: less(usage.minor_faults, base.minor_faults),
                major_faults: less(usage.major_faults, base.major_faults),
                voluntary_switches: less(usage.voluntary_switches, base.voluntary_switches),
                involuntary_switches: less(usage.involuntary_switches, base.involuntary_switches),
            }
        });
        self.rows += 1;
        Some(SampleRow {
            cpu_ns: less(row.cpu_ns, base.cpu_ns),
            allocations: less(row.allocations, base.allocations),
            allocated_bytes: less(row.allocated_bytes, base.allocated_bytes),
            frees: less(row.frees, base.frees),
            rusage,
            ..*row
        })
    }
}

/// The state of writing a window.
pub(super) struct Dump {
    pub(super) from_ns: u64,
    pub(super) threads: BTreeMap<Utid, Thread>,
    /// Nodes that samples refer to.
    pub(super) used: BTreeSet<u32>,
    /// What threads waited for.
    pub(super) waited_for: BTreeSet<(Utid, u64)>,
    pub(super) written: Written,
    pub(super) first_ns: u64,
    pub(super) unit_ns: u32,
}

impl Dump {
    pub(super) fn batch(&mut self, batch: &v1::SampleBatch, out: &mut Out) -> io::Result<()> {
        let rows = columns::decode(batch).map_err(io::Error::other)?;
        self.take(Utid(batch.utid), &rows, out)
    }

    pub(super) fn take(&mut self, utid: Utid, rows: &[SampleRow], out: &mut Out) -> io::Result<()> {
        let Some(thread) = self.threads.get_mut(&utid) else {
            return Ok(());
        };
        let from_ns = self.from_ns;
        let rows: Vec<SampleRow> = rows
            .iter()
            .filter_map(|row| thread.in_window(row, from_ns))
            .collect();
        let Some(first) = rows.first() else {
            return Ok(());
        };
        self.first_ns = self.first_ns.min(first.time_ns);
        self.written.samples += rows.len() as u64;
        self.used.extend(rows.iter().map(|row| row.node));
        out.say(packet::Body::Samples(columns::encode(
            utid.0,
            &rows,
            self.unit_ns,
        )))
    }

    /// A wait that began before the window and was still going on begins with it.
    pub(super) fn waits(
        &mut self,
        utid: Utid,
        waits: Vec<v1::Waits>,
        out: &mut Out,
    ) -> io::Result<()> {
        let Some(thread) = self.threads.get(&utid) else {
            return Ok(());
        };
        let last_before_ns = thread.base.map_or(0, |row| row.time_ns);
        for mut packet in waits {
            let wait = &mut packet.wait[0];
            let is_over =
                wait.begin_ns < last_before_ns || (1..self.from_ns).contains(&wait.end_ns);
            if wait.begin_ns < self.from_ns && is_over {
                continue;
            }
            wait.begin_ns = wait.begin_ns.max(self.from_ns);
            self.used.insert(packet.node);
            out.say(packet::Body::Waits(packet))?;
        }
        Ok(())
    }

    pub(super) fn event(&mut self, event: v1::Event, out: &mut Out) -> io::Result<()> {
        if event.time_ns < self.from_ns {
            return Ok(());
        }
        if event.node != 0 {
            self.used.insert(event.node);
        }
        out.say(packet::Body::Event(event))
    }

    /// A long wait, a wake or a deadlock; nothing else is taken.
    pub(super) fn wakeup(&mut self, body: packet::Body, out: &mut Out) -> io::Result<()> {
        let (time_ns, node) = match &body {
            packet::Body::LongWait(wait) => (wait.end_ns, wait.node),
            packet::Body::Wake(wake) => (wake.time_ns, wake.node),
            packet::Body::Deadlock(deadlock) => (deadlock.time_ns, 0),
            _ => return Ok(()),
        };
        if time_ns < self.from_ns {
            return Ok(());
        }
        self.used.extend((node != 0).then_some(node));
        match &body {
            packet::Body::LongWait(wait) => {
                self.waited_for.insert((Utid(wait.utid), wait.object));
            }
            packet::Body::Deadlock(deadlock) => {
                let locks = deadlock.member.iter();
                self.waited_for
                    .extend(locks.map(|member| (Utid(member.utid), member.lock)));
            }
            _ => {}
        }
        out.say(body)
    }

    pub(super) fn counters(&self, mut batch: v1::CounterBatch, out: &mut Out) -> io::Result<()> {
        let (mut time, mut value) = (0i64, 0i64);
        let absolute = batch.time.iter().zip(&batch.value).map(|(t, v)| {
            time = time.wrapping_add(*t);
            value = value.wrapping_add(*v);
            (time, value)
        });
        let kept: Vec<_> = absolute
            .filter(|(time, _)| *time as u64 >= self.from_ns)
            .collect();
        if kept.is_empty() {
            return Ok(());
        }
        let (mut time, mut value) = (0i64, 0i64);
        (batch.time, batch.value) = kept
            .into_iter()
            .map(|(t, v)| {
                let deltas = (t.wrapping_sub(time), v.wrapping_sub(value));
                (time, value) = (t, v);
                deltas
            })
            .unzip();
        out.say(packet::Body::Counters(batch))
    }
}
