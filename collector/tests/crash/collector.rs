//! The collector of the crash test: a real session over the writer.

use std::iter;
use std::path::PathBuf;

use super::Work;
use stackbeat_collector::record;
use stackbeat_collector::session::{Options, Progress};

/// Stands before the program's pid.
pub(super) const STARTED: &str = "program ";

/// Not a test: the collector.
#[test]
#[ignore = "is run by another test"]
fn collector() {
    let work = Work::given();
    let own = std::env::current_exe().expect("own path");
    let test = [
        "--ignored",
        "--exact",
        "crash::writing_threads::writer",
        "--test-threads=1",
    ];
    let command = iter::once(own.into()).chain(test.map(Into::into)).collect();
    // Something harmless to preload: the writer is an agent itself.
    let agent = loaded_library("libc.so.6");
    let mut options = Options::new(command, agent, work.output);
    options.symbolize = false;
    options.interrupt_running = false;
    options.buffer_bytes = 1 << 20;
    options.compress = work.compress;
    let outcome = record(&options, &mut |progress| {
        if let Progress::Started { pid } = progress {
            // At once: the program has the same output.
            let line = format!("\n{STARTED}{pid}\n");
            print!("{line}");
        }
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

fn loaded_library(name: &str) -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let line = maps.lines().find(|l| l.ends_with(name));
    let path = line.and_then(|l| l.split_whitespace().last());
    PathBuf::from(path.expect("a dynamically linked test"))
}
