//! Counters of servers' processes, compared with what the kernel said of the same processes at the same time.

use super::postgres_locks::{Client, pid_of};
use super::*;
use stackbeat_core::platform;
use stackbeat_tests::plain_reader::Trace;
use stackbeat_tests::process_tree::status;
use stackbeat_tests::wait_until;
use std::fs;
use std::time::Duration;

/// What the recorder reads a process' counters in, and how long a process is watched in such steps.
const PERIOD: Duration = Duration::from_millis(100);
const READINGS: usize = 30;

/// What /proc says of a process at one moment (proc(5)).
#[derive(Clone, Copy, Debug)]
struct Reading {
    at_ns: u64,
    cpu_ns: u64,
    minor_faults: u64,
    threads: i64,
    resident: i64,
    descriptors: i64,
}

impl Reading {
    fn of(pid: u32) -> Reading {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
        let (_, fields) = stat.rsplit_once(") ").expect("a name");
        let fields: Vec<i64> = fields
            .split(' ')
            .map(|f| f.trim().parse().unwrap_or(0))
            .collect();
        // SAFETY: asks for constants of the system.
        let (page, tick) = unsafe {
            (
                libc::sysconf(libc::_SC_PAGESIZE),
                libc::sysconf(libc::_SC_CLK_TCK),
            )
        };
        let open = fs::read_dir(format!("/proc/{pid}/fd")).expect("it lives");
        Reading {
            at_ns: platform::clock_ns(libc::CLOCK_MONOTONIC),
            cpu_ns: ((fields[11] + fields[12]) * (1_000_000_000 / tick)) as u64,
            minor_faults: fields[7] as u64,
            threads: fields[17],
            resident: fields[21] * page,
            descriptors: open.count() as i64,
        }
    }
}

/// What was seen of a process.
struct Watched {
    pid: u32,
    busy: Vec<Reading>,
    at_rest: Reading,
    /// Voluntary and involuntary ones of its main thread so far.
    switches: [u64; 2],
}

/// Reads a process that is busy.
fn watch(pid: u32) -> Vec<Reading> {
    let read = |_| {
        std::thread::sleep(PERIOD);
        Reading::of(pid)
    };
    (0..READINGS).map(read).collect()
}

/// Reads it once more when it has come to rest, and the recorder has seen that.
fn watched(server: &Server, pid: u32, busy: Vec<Reading>) -> Watched {
    server.at_rest();
    let most_ns = 20_000_000;
    wait_until("it computes no more", || {
        let before = Reading::of(pid).cpu_ns;
        std::thread::sleep(PERIOD * 5);
        Reading::of(pid).cpu_ns - before <= most_ns
    });
    std::thread::sleep(PERIOD * 12);
    let switches = ["voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"];
    Watched {
        pid,
        busy,
        at_rest: Reading::of(pid),
        switches: switches.map(|key| status(pid, key).parse().expect("a number")),
    }
}

/// One counter of a process.
struct Series<'a>(&'a [(u64, i64)]);

impl Series<'_> {
    /// The value that holds at a moment.
    fn at(&self, ns: u64) -> i64 {
        let later = self.0.partition_point(|(time, _)| *time <= ns);
        self.0[later.saturating_sub(1)].1
    }

    /// Lowest and highest value in a stretch.
    fn range(&self, from_ns: u64, to_ns: u64) -> (i64, i64) {
        let inside = self
            .0
            .iter()
            .filter(|(time, _)| (from_ns..to_ns).contains(time));
        let values = inside.map(|(_, value)| *value).chain([self.at(from_ns)]);
        values.fold((i64::MAX, i64::MIN), |(low, high), v| {
            (low.min(v), high.max(v))
        })
    }

    /// What a rate a second comes to in a stretch. A value stands for the period before it; it is not
    /// repeated while it stays the same.
    fn sum(&self, from_ns: u64, to_ns: u64) -> f64 {
        let mut sum = 0.0;
        let (mut last_ns, mut last) = (from_ns, self.at(from_ns));
        let rest = self.0.iter().filter(|(time, _)| *time > from_ns);
        for (time, value) in rest.copied().chain([(u64::MAX, 0)]) {
            let end_ns = time.min(to_ns);
            let period = PERIOD.as_nanos() as u64 * 3 / 2;
            let begins = time.saturating_sub(period).clamp(last_ns, end_ns);
            sum += last as f64 * (begins - last_ns) as f64 / 1e9;
            sum += value as f64 * (end_ns - begins) as f64 / 1e9;
            (last_ns, last) = (end_ns, value);
            if time >= to_ns {
                break;
            }
        }
        sum
    }
}

/// The recorder's counters say what the kernel said. Gives the trace and the process' upid in it.
fn agrees(trace: &Path, seen: &Watched) -> (Trace, u32) {
    let pid = seen.pid;
    let decoded = Trace::read(trace);
    let process = decoded.processes.values().find(|p| p.pid == pid);
    let upid = process.expect("is recorded").upid;
    {
        let series = |name: &str| {
            let found = decoded.counters.get(&(upid, name.to_owned()));
            Series(found.unwrap_or_else(|| panic!("{name} of {pid}")))
        };
        let (memory, threads) = (series("memory"), series("threads"));
        let at_rest = seen.at_rest;
        let resident = memory.at(at_rest.at_ns);
        let differ = resident.abs_diff(at_rest.resident);
        assert!(differ <= 512 << 10, "{resident} bytes, {at_rest:?}");
        assert_eq!(threads.at(at_rest.at_ns), at_rest.threads);
        let descriptors = series("descriptors");
        assert_eq!(
            descriptors.at(at_rest.at_ns),
            at_rest.descriptors,
            "{at_rest:?}"
        );
        let near = 10 * PERIOD.as_nanos() as u64;
        for reading in &seen.busy {
            let (from, to) = (reading.at_ns - near, reading.at_ns + near);
            let (low, high) = memory.range(from, to);
            // What is taken and given back between two readings of the recorder is in neither.
            let around = low - (4 << 20)..=high + (4 << 20);
            assert!(
                around.contains(&reading.resident),
                "{around:?}, {reading:?}"
            );
            let (low, high) = threads.range(from, to);
            assert!(
                (low..=high).contains(&reading.threads),
                "{low}..={high}, {reading:?}"
            );
        }

        let (first, last) = (seen.busy[0], seen.busy[READINGS - 1]);
        let sum = |name: &str| series(name).sum(first.at_ns, last.at_ns);
        let (cpu, used) = (
            sum("CPU") / 100.0,
            (last.cpu_ns - first.cpu_ns) as f64 / 1e9,
        );
        // So much that a counter which stands still differs by more than is allowed below.
        assert!(used >= 0.08, "{pid} is busy: {used} s");
        assert!(
            (cpu - used).abs() <= 0.2 * used + 0.06,
            "{cpu} s, the kernel says {used} s"
        );
        let faults = match decoded
            .counters
            .contains_key(&(upid, "minor faults".to_owned()))
        {
            true => sum("minor faults"),
            false => 0.0,
        };
        let had = (last.minor_faults - first.minor_faults) as f64;
        assert!(
            (faults - had).abs() <= 0.25 * had + 60.0,
            "{faults} faults of {had}"
        );
    }

    let report = report(trace);
    let mut main = array(&report, "threads");
    let main =
        main.find(|t| number(t, "tid") == u64::from(pid) && number(t, "pid") == u64::from(pid));
    let main = main.expect("its main thread");
    let switches = ["voluntary_switches", "involuntary_switches"].map(|key| number(main, key));
    for (counted, then) in switches.into_iter().zip(seen.switches) {
        // Some more came until it ended.
        let most = then + then / 5 + 500;
        assert!(
            (then * 9 / 10..=most).contains(&counted),
            "{switches:?}, {:?}",
            seen.switches
        );
    }
    for counter in ["voluntary switches", "CPU", "allocations"] {
        let row = array(&report, "counters")
            .find(|row| row["name"] == counter && number(row, "upid") == u64::from(upid));
        assert!(
            row.is_some_and(|row| row["max"].as_i64() > Some(0)),
            "{counter}: {row:?}"
        );
    }
    // The main thread does nearly all of what the process does.
    let of_thread = array(main, "counters").find(|row| row["name"] == "CPU");
    let highest = of_thread.and_then(|row| row["max"].as_i64());
    assert!(highest > Some(0), "{main}");
    (decoded, upid)
}

#[test]
fn counters_of_redis_are_those_of_the_kernel() {
    let server = Server::recorded(Kind::Redis, &[]);
    let pid = server.pid();
    let load = server.load();
    load.rounds(1);
    let busy = watch(pid);
    load.end();
    let seen = watched(&server, pid, busy);
    let ended = server.end();
    let (trace, upid) = agrees(&ended.trace(), &seen);
    // Allocations are counted by hooks: what was read in time is what the threads come to in the end, but for
    // the start.
    let series = &trace.counters[&(upid, "allocations".to_owned())];
    let (first, last) = (series[0].0, series[series.len() - 1].0);
    let sum = Series(series).sum(first, last);
    let of_process = trace.threads.values().filter(|t| t.upid == upid);
    let all: u64 = of_process
        .map(|t| trace.thread_ends[&t.utid].allocations)
        .sum();
    let all = all as f64;
    assert!((0.6 * all..=1.1 * all).contains(&sum), "{sum} of {all}");
}

#[test]
fn counters_of_a_worker_of_nginx_are_those_of_the_kernel() {
    let server = Server::recorded(Kind::Nginx, &[]);
    let load = server.load();
    load.rounds(2);
    // The one that answers more.
    let workers = server.family();
    let before = workers.iter().map(|pid| Reading::of(*pid).cpu_ns);
    let before: Vec<u64> = before.collect();
    load.rounds(10);
    let used = workers.iter().zip(before);
    let (pid, _) = used
        .max_by_key(|(pid, before)| Reading::of(**pid).cpu_ns - before)
        .expect("workers");
    let busy = watch(*pid);
    load.end();
    let seen = watched(&server, *pid, busy);
    let ended = server.end();
    agrees(&ended.trace(), &seen);
}

#[test]
fn counters_of_a_backend_of_postgres_are_those_of_the_kernel() {
    let server = Server::recorded(Kind::Postgres, &[]);
    let mut client = Client::new(&server);
    client.says("set application_name = 'busy';");
    let pid = pid_of(&server, "busy") as u32;
    // Longer than it is watched, and memory that it takes and gives back.
    client.says(
        "do $$ declare s bigint; t timestamp := clock_timestamp(); begin
            while clock_timestamp() < t + interval '5 s' loop
                select sum(length(x)) into s from
                    (select array_to_string(array_agg(i), ',') x from generate_series(1, 50000) i) y;
            end loop; end $$;",
    );
    let busy = watch(pid);
    let seen = watched(&server, pid, busy);
    client.end();
    let ended = server.end();
    agrees(&ended.trace(), &seen);
}
