//! Any bytes as a trace: opened, visited, checked and named. Nothing may panic, and memory stays small
//! (run with `-rss_limit_mb=512`).
//!
//!     cargo +nightly fuzz run trace -- -rss_limit_mb=512 -max_len=65536

#![no_main]

use libfuzzer_sys::fuzz_target;
use stackbeat_model::{StackIndex, Trace, conservation};

fuzz_target!(|bytes: &[u8]| {
    let Ok(trace) = Trace::from_bytes("fuzzed.beat", bytes.to_vec()) else {
        return;
    };
    conservation(&trace).expect("bytes in memory are readable");
    for stack in 0..trace.stack_count().min(1000) {
        for frame in trace.stack_frames(StackIndex(stack)) {
            let _ = trace.function(trace.frame(frame).function);
        }
    }
    for process in trace.processes() {
        assert!(process.start_ns <= process.end_ns);
    }
    for thread in trace.threads() {
        assert!(thread.start_ns <= thread.end_ns);
        assert!((thread.process.0 as usize) < trace.processes().len());
    }
});
