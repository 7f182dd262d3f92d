//! Writes a synthetic trace of a given size, for measuring what reads traces; see
//! `scripts/large-trace.sh`.
//!
//!     large_trace FILE MEGABYTES

use std::io::{BufWriter, Write};

use stackbeat_model::synthetic::Program;

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(Ok(megabytes))) = (
        arguments.next(),
        arguments.next().map(|number| number.parse::<u64>()),
    ) else {
        eprintln!("usage: large_trace FILE MEGABYTES");
        std::process::exit(2);
    };
    let mut out = BufWriter::new(std::fs::File::create(path)?);
    let samples = Program::new(32).write(megabytes << 20, &mut out)?;
    out.flush()?;
    println!("{samples}");
    Ok(())
}
