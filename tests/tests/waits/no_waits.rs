//! Calls that could wait and have worked: for as long as they computed, they are no waits. The witness is the
//! program, which asks the kernel how often it gave the processor up, and how long it then waited for one.

use serde_json::Value;
use stackbeat_tests::{Program, report, scratch};

/// Reads cached pages and computes in turns, and says how often its thread gave the processor up, and for
/// how long it waited for one (the second figure of `schedstat`, Documentation/scheduler/sched-stats.rst).
const READS: &str = "
import os, resource, sys
path = sys.argv[1]
with open(path, 'wb') as file:
    file.write(b'x' * (8 << 20))
fd = os.open(path, os.O_RDONLY)
buffer = bytearray(8 << 20)
usage = lambda: resource.getrusage(resource.RUSAGE_THREAD)
ready = lambda: int(open('/proc/thread-self/schedstat').read().split()[1]) / 1e9
ready_before = ready()
before = usage()
for _ in range(250):
    os.preadv(fd, [buffer], 0)
    sum(range(20000))
now = usage()
cpu = now.ru_utime + now.ru_stime - before.ru_utime - before.ru_stime
print(now.ru_nvcsw - before.ru_nvcsw, cpu, ready() - ready_before)
";

#[test]
fn a_read_from_the_page_cache_is_no_wait_whatever_the_clock() {
    for clock in ["auto", "tick", "timer"] {
        let folder = scratch();
        let file = folder.path().join("cached");
        let file = file.to_str().expect("UTF-8");
        let recorded = Program::new(["python3", "-c", READS, file])
            .options(&["--clock", clock])
            .record(folder.path());
        let said = recorded.run.stdout();
        let mut said = said.split_whitespace().map(|word| word.parse::<f64>());
        let mut next = || said.next().and_then(Result::ok).expect("a number");
        let (switches, cpu_s, ready_s) = (next(), next(), next());
        let report = report(&recorded.trace);
        // A wrapper may start the interpreter.
        let threads = report["threads"].as_array().expect("threads");
        let busiest = threads.iter().max_by_key(|t| t["running_ns"].as_u64());
        let thread = busiest.expect("a thread");
        let seconds = |time: &Value| time.as_f64().unwrap_or(0.0) / 1e9;
        let io_s = seconds(&thread["blocked_by_cause_ns"]["io"]);
        let running_s = seconds(&thread["running_ns"]);
        // Besides, the interpreter reads its modules at first. The reads are more than half of the CPU time.
        assert!(
            io_s <= 0.06 * cpu_s + 0.02 * switches + ready_s + 0.02 && running_s >= 0.9 * cpu_s,
            "{clock}: {io_s} s of waits and {running_s} s of running, with {switches} switches in {cpu_s} s, \
             {ready_s} s without a processor"
        );
    }
}
