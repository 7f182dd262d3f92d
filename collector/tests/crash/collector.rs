//! The collector of the crash test: a real session over the writer.

use std::path::PathBuf;

use stackbeat_collector::record;
use stackbeat_collector::session::{Options, Progress};

/// OUTPUT NOTES PACE COMPRESS
pub fn main(arguments: &[String]) {
    let [output, notes, pace_ns, compress] = arguments else {
        panic!("four arguments");
    };
    let own = std::env::current_exe().expect("own path");
    let command = vec![own.into(), "writer".into(), notes.into(), pace_ns.into()];
    // Something harmless to preload: the writer is an agent itself.
    let agent = loaded_library("libc.so.6");
    let mut options = Options::new(command, agent, PathBuf::from(output));
    options.symbolize = false;
    options.interrupt_running = false;
    options.buffer_bytes = 1 << 20;
    options.compress = compress == "true";
    let outcome = record(&options, &mut |progress| {
        if let Progress::Started { pid } = progress {
            println!("{pid}");
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
