//! What the samples of a trace hold: for each column the values a sample, its bytes in the file, and its
//! entropy, below which no coder gets that takes the values of a column one by one.
//!
//!     columns TRACE
//!
//! The entropy of few values says too little: take a trace with tens of thousands of samples.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;

use prost::Message;
use stackbeat_proto::stream::PacketReader;
use stackbeat_proto::v1::{SampleBatch, packet::Body};

/// Bits a value of a source that gives each value as often as it is here (Shannon 1948).
fn entropy(values: &[i64]) -> f64 {
    let mut counts: HashMap<i64, f64> = HashMap::new();
    for value in values {
        *counts.entry(*value).or_default() += 1.0;
    }
    let share = |count: &f64| count / values.len() as f64;
    -counts
        .values()
        .map(|n| share(n) * share(n).log2())
        .sum::<f64>()
}

/// Bytes of the same batch without a column less than with it.
fn bytes(batch: &SampleBatch, clear: impl FnOnce(&mut SampleBatch)) -> usize {
    let mut without = batch.clone();
    clear(&mut without);
    batch.encoded_len() - without.encoded_len()
}

#[derive(Default)]
struct Column {
    values: Vec<i64>,
    bytes: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: columns TRACE")?;
    let mut reader = PacketReader::new(std::fs::File::open(path)?);
    let mut columns: BTreeMap<&str, Column> = BTreeMap::new();
    let (mut samples, mut total, mut others) = (0, 0, 0);
    while let Some(raw) = reader.next_raw() {
        let packet = raw?.decode()?;
        let length = packet.encoded_len();
        let Some(Body::Samples(batch)) = packet.body else {
            others += length;
            continue;
        };
        samples += batch.time.len();
        total += length;
        macro_rules! columns {
            ($($name:ident)*) => {$(
                let column = columns.entry(stringify!($name)).or_default();
                column.values.extend(batch.$name.iter().map(|v| *v as i64));
                column.bytes += bytes(&batch, |b| b.$name.clear());
            )*};
        }
        columns!(time cpu node allocations allocated_bytes live kinds kind_steps duration arg result usage waker_tid record_at record_skip);
    }
    let a_sample = |n: f64| n / samples as f64;
    println!(
        "{samples} samples, {:.2} bytes each; all else {:.2} (names included)",
        a_sample(total as f64),
        a_sample(others as f64)
    );
    println!(
        "{:<16} {:>8} {:>8} {:>8}",
        "column", "values", "bytes", "entropy"
    );
    let mut sum = 0.0;
    for (name, column) in columns {
        let least = a_sample(entropy(&column.values) * column.values.len() as f64 / 8.0);
        sum += least;
        println!(
            "{name:<16} {:>8.2} {:>8.2} {least:>8.2}",
            a_sample(column.values.len() as f64),
            a_sample(column.bytes as f64)
        );
    }
    println!("{:<16} {:>8} {:>8} {sum:>8.2}", "together", "", "");
    Ok(())
}
