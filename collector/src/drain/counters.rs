//! Values of counters on their way into packets: one packet for each counter of a batch.

use std::collections::BTreeMap;

use stackbeat_core::ids::Upid;
use stackbeat_proto::v1::{CounterBatch, Event};

/// Process, name and unit.
type Key = (Upid, String, &'static str);

/// Times and values by counter.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    values: BTreeMap<Key, Vec<(u64, i64)>>,
}

impl Counters {
    /// A value that the program gave.
    pub(crate) fn add(&mut self, upid: Upid, event: Event) {
        self.push(upid, event.name, "", event.time_ns, event.value);
    }

    /// A value; process 0 is the machine.
    pub(crate) fn push(
        &mut self,
        upid: Upid,
        name: String,
        unit: &'static str,
        time_ns: u64,
        value: i64,
    ) {
        let values = self.values.entry((upid, name, unit)).or_default();
        values.push((time_ns, value));
    }

    /// The packets; none are left behind.
    pub(crate) fn finish(&mut self) -> impl Iterator<Item = CounterBatch> + use<> {
        std::mem::take(&mut self.values)
            .into_iter()
            .map(|((upid, name, unit), values)| {
                let (mut time, mut value) = (0, 0);
                let deltas = values.into_iter().map(|(t, v)| {
                    let deltas = ((t as i64).wrapping_sub(time), v.wrapping_sub(value));
                    (time, value) = (t as i64, v);
                    deltas
                });
                let (times, values) = deltas.unzip();
                CounterBatch {
                    upid: upid.0,
                    utid: 0,
                    name,
                    unit: unit.to_owned(),
                    time: times,
                    value: values,
                }
            })
    }
}
