//! A declared budget moves the interval, and what the recording says of its cost is true.

use super::*;

fn program(folder: &Path) -> String {
    let program = compile(folder, "budget.c", include_str!("budget.c"), &[]);
    program.display().to_string()
}

/// Waits until the interval in force is as wanted; gives it. `None`: other programs leave this one less than
/// a processor, and the recorder alone can then cost what its part of the budget is. The test then says that
/// it has not seen this.
#[track_caller]
fn await_interval(recording: &Recording, wanted: impl Fn(u64) -> bool) -> Option<u64> {
    let (began, before) = (Instant::now(), cpu_ticks(recording));
    loop {
        let kept_ns = recording.status().kept_interval_ns;
        if wanted(kept_ns) {
            return Some(kept_ns);
        }
        if began.elapsed() > Duration::from_secs(60) {
            let used = cpu_ticks(recording) - before;
            assert!(used < 60 * 100, "{kept_ns} ns, {used} ticks used");
            eprintln!(
                "the program got {used} hundredths of a second of CPU time in 60 s and its interval stayed at \
                 {kept_ns} ns: what it does with a processor of its own is not tested"
            );
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The longest interval in force within that time, ns.
fn longest_interval_ns(recording: &Recording, time: Duration) -> u64 {
    let began = Instant::now();
    let mut longest_ns = 0;
    while began.elapsed() < time {
        longest_ns = longest_ns.max(recording.status().kept_interval_ns);
        std::thread::sleep(Duration::from_millis(20));
    }
    longest_ns
}

/// CPU time of the program, in hundredths of a second.
pub(super) fn cpu_ticks(recording: &Recording) -> u64 {
    stackbeat_tests::process_tree::cpu_ticks(recording.status().program_pid)
}

#[test]
fn the_interval_follows_what_the_program_uses_and_the_trace_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = program(folder.path());
    let files = ["light", "heavy"].map(|name| folder.path().join(name));
    for file in &files {
        fs::write(file, "").expect("writes");
    }
    let [light, heavy] = files.each_ref().map(|f| f.to_str().expect("UTF-8"));
    let options = ["-q", "--interval", "200us", "--budget", "8%"];
    let mut recording = Recording::of(folder, &options, &[&program, light, heavy]);
    // Little may be spent on this program: 8 ms a second, which is less than 2 µs for each tick that was
    // asked for.
    await_interval(&recording, |ns| ns >= 3 * 200_000).expect("it uses little");
    let far_ns = longest_interval_ns(&recording, Duration::from_secs(3));
    fs::remove_file(light).expect("is there");
    let near_ns = await_interval(&recording, |ns| ns < far_ns * 3 / 4);
    fs::remove_file(heavy).expect("is there");
    recording.end();

    let trace = recording.path("t.beat");
    let info = json(&["info", &trace, "--json"]);
    let of_threads: Vec<u64> = info["intervals"]
        .as_array()
        .expect("intervals")
        .iter()
        .filter(|i| i["of"] == "threads")
        .map(|i| i["interval_ns"].as_u64().expect("a number"))
        .collect();
    assert_eq!(of_threads[0], 200_000, "{of_threads:?}");
    for seen_ns in [Some(far_ns), near_ns].into_iter().flatten() {
        assert!(of_threads.contains(&seen_ns), "{seen_ns}: {of_threads:?}");
    }
    assert!(of_threads.iter().all(|ns| *ns <= 100_000_000));
    let report = json(&["report", &trace, "--json"]);
    let counters = report["counters"].as_array().expect("counters");
    for (name, unit) in [("recording cost", "ppm"), ("interval of threads", "ns")] {
        let found = counters.iter().find(|c| c["name"] == name);
        assert_eq!(found.expect(name)["unit"], unit);
    }
    check(&trace);
}

/// CPU time that a command's program took, ns.
fn program_cpu_ns(trace: &str, options: &[&str], program: &[&str]) -> u64 {
    let arguments = [&["record", "--json", "--force", "-o", trace], options].concat();
    let output = command(&[&arguments[..], &["--"], program].concat()).output();
    let output = output.expect("runs");
    let said = text(&output.stderr) + &text(&output.stdout);
    let json = &said[said.find('{').expect("JSON")..];
    let json: Value = serde_json::from_str(json).expect("JSON");
    json["program_cpu_ns"].as_u64().expect("a number")
}

/// The program is interrupted thousands of times a second. What its captures are said to have taken is
/// compared with what the kernel says that it used beyond a run without captures.
#[test]
fn captures_cost_what_they_are_said_to_cost() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = program(folder.path());
    let trace = folder.path().join("t.beat").display().to_string();
    let work = [program.as_str(), "work", "150000000"];
    let mut pairs = Vec::new();
    for _ in 0..10 {
        let without = program_cpu_ns(&trace, &["--start-disabled"], &work);
        let with = program_cpu_ns(&trace, &["--interval", "100us", "--budget", "0"], &work);
        let report = json(&["report", &trace, "--json"]);
        let threads = report["threads"].as_array().expect("threads");
        let said = threads
            .iter()
            .map(|t| t["capture_ns"].as_u64().expect("ns"));
        let (said, with, without) = (said.sum::<u64>() as f64, with as f64, without as f64);
        let seen = with - without;
        // Clocks of a busy machine are noisy: one pair that agrees is enough, and chance will not make one.
        // Where captures are so cheap that they are lost in the noise, they may not have been costly either.
        let agrees = if said > 0.02 * without {
            (seen * 0.4..seen * 2.5).contains(&said)
        } else {
            seen.abs() < 0.04 * without
        };
        if agrees {
            return;
        }
        pairs.push((without, with, said));
    }
    panic!("without, with, said: {pairs:?}");
}

/// A program that does nothing but allocate, within a budget that counting alone exceeds: its hooks are taken
/// away, and everything that shows counts says so.
#[test]
fn hooks_that_cost_more_than_the_budget_are_unpatched() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = program(folder.path());
    let traces = ["a", "b"].map(|name| folder.path().join(name).display().to_string());
    for (trace, budget) in traces.iter().zip(["1%", "0"]) {
        let arguments = ["record", "-o", trace, "--budget", budget, "--", &program];
        let output = stackbeat(&[&arguments[..], &["churn", "3"]].concat());
        let made: u64 = text(&output.stdout).trim().parse().expect("a number");
        let report = json(&["report", trace, "--json"]);
        let threads = report["threads"].as_array().expect("threads");
        let counted = threads.iter().map(|t| t["allocations"].as_u64());
        let counted: u64 = counted.map(|n| n.expect("a number")).sum();
        let end_ns = report["recording"]["counts_end_ns"].as_u64();
        let said = text(&output.stderr);
        if budget == "0" {
            assert_eq!(
                (end_ns, counted >= made),
                (None, true),
                "{counted} of {made}"
            );
            assert!(!said.contains("taken away"), "{said}");
        } else {
            assert!(
                end_ns.is_some() && counted < made * 9 / 10,
                "{end_ns:?}, {counted} of {made}"
            );
            assert!(said.contains("taken away"), "{said}");
            let table = text(&stackbeat(&["report", trace, "--all", "--top", "0"]).stdout);
            assert!(table.contains("hooks withdrawn: alloc"), "{table}");
            assert!(table.contains("counted up to"), "{table}");
        }
        check(trace);
    }
    let gate = command(&["gate", "--baseline", &traces[1], "--candidate", &traces[0]]);
    let gate = { gate }.output().expect("runs");
    let said = text(&gate.stdout);
    assert!(said.contains("allocations are not compared"), "{said}");
    assert!(!said.contains("fewer allocations"), "{said}");
    // What was not counted is not within a limit.
    let policy = folder.path().join("policy.toml").display().to_string();
    let limit = "[[budget]]\nmetric = \"allocations\"\nmax = 1000000000000\n";
    std::fs::write(&policy, limit).expect("a policy");
    let limited = |trace: &str| {
        let sides = ["--baseline", trace, "--candidate", trace];
        let gate = command(&[&["gate", "--policy", &policy][..], &sides].concat()).output();
        text(&gate.expect("runs").stdout)
    };
    assert!(
        limited(&traces[0]).contains("cannot be judged"),
        "{}",
        limited(&traces[0])
    );
    assert!(!limited(&traces[1]).contains("cannot be judged"));
}

/// One run of [`a_thread_with_expensive_stacks_is_slowed_alone`].
struct Uneven {
    /// Part of its own CPU time that captures took of the thread with deep stacks.
    deep_share: f64,
    deep_samples: f64,
    flat_samples: f64,
    /// The intervals that the trace names for one thread alone, ns.
    own_of_deep: Vec<u64>,
    own_of_flat: Vec<u64>,
}

impl Uneven {
    fn record(program: &str, trace: &str, budget: &str) -> Uneven {
        let asked = ["-i", "1ms", "--main-interval", "20ms", "--budget", budget];
        let arguments = [&["record", "-q", "-f", "-o", trace][..], &asked].concat();
        stackbeat(&[&arguments[..], &["--", program, "deep", "2"]].concat());
        check(trace);
        let report = json(&["report", trace, "--json"]);
        let info = json(&["info", trace, "--json"]);
        let threads = report["threads"].as_array().expect("threads");
        let [deep, flat] = ["deep", "flat"].map(|name| {
            let found = threads.iter().find(|t| t["name"] == name);
            found.expect(name)
        });
        let own = |utid: &Value| {
            let intervals = info["intervals"].as_array().expect("intervals");
            let own = intervals.iter().filter(|i| i["of"] == "thread");
            let own = own.filter(|i| i["utid"] == *utid);
            own.map(|i| i["interval_ns"].as_u64().expect("a number"))
                .collect()
        };
        let number = |of: &Value| of.as_f64().expect("a number");
        Uneven {
            deep_share: number(&deep["capture_ns"]) / number(&deep["cpu_ns"]),
            deep_samples: number(&deep["samples"]),
            flat_samples: number(&flat["samples"]),
            own_of_deep: own(&deep["utid"]),
            own_of_flat: own(&flat["utid"]),
        }
    }
}

/// The interval of one thread is its own: the thread beside it is captured as often as before. One is far
/// more costly by construction (asked twenty times as often, at deep stacks), and over the budget because
/// that is half of what it was seen to cost on this machine.
#[test]
fn a_thread_with_expensive_stacks_is_slowed_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = program(folder.path());
    let trace = folder.path().join("t.beat").display().to_string();
    let free = Uneven::record(&program, &trace, "0");
    assert!(free.own_of_deep.is_empty(), "{:?}", free.own_of_deep);
    let percent = (free.deep_share * 50.0).clamp(0.01, 50.0);
    let kept = Uneven::record(&program, &trace, &format!("{percent:.2}%"));
    // Captures that lose their processor seem costly: on a busy machine the other thread may be slowed for a
    // moment, too.
    let is_slowed = kept.own_of_deep.iter().any(|ns| *ns >= 2_000_000);
    let ratio = |of: &Uneven| of.flat_samples / of.deep_samples;
    assert!(
        is_slowed && ratio(&kept) > ratio(&free) * 1.4,
        "{percent} %, samples of the deep and the flat thread without and with it: {:?}, intervals of either: {:?}",
        [&free, &kept].map(|r| (r.deep_samples, r.flat_samples)),
        (kept.own_of_deep, kept.own_of_flat)
    );
}
