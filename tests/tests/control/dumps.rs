//! Dumps of the last seconds, asked for by a command or by a signal.

use std::os::unix::process::ExitStatusExt;

use super::*;

#[test]
fn the_ring_is_dumped_while_the_session_goes_on() {
    let mut recording = Recording::start(&["--mode", "ring", "--buffer", "256KiB"]);
    let pid = recording.pid();
    std::thread::sleep(Duration::from_millis(2500));
    let out = recording.path("dump.beat");
    let dump = json(&["dump", &pid, "--last", "500ms", "-o", &out, "--json"]);
    assert_eq!(dump["schema"], "stackbeat.dump.v1");
    assert!(dump["samples"].as_u64() > Some(100), "{dump}");
    assert!(dump["covered_ns"].as_u64() <= Some(500_000_000), "{dump}");
    assert!(recording.status().capturing);
    // A name that is taken is refused, and --force takes it.
    let again = command(&["dump", &pid, "-o", &out]).output().expect("runs");
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("--force"));
    let own = recording.path("t.beat");
    let again = command(&["dump", &pid, "-f", "-o", &own]).output();
    assert_eq!(again.expect("runs").status.code(), Some(2), "its own trace");
    let all = recording.path("all.beat");
    let dump = json(&["dump", &pid, "-o", &all, "--json"]);
    // What the ring holds is counted where it is.
    let held = dump["samples"].as_u64().expect("a number");
    let counted = recording.status().samples;
    assert!(
        (held / 2..=held * 2).contains(&counted),
        "{counted} in memory, {dump}"
    );
    assert_eq!(recording.end(), "worked 4\n");

    for trace in [&out, &all, &own] {
        check(trace);
    }
    let report = json(&["report", &out, "--json"]);
    let duration = report["recording"]["duration_ns"]
        .as_u64()
        .expect("a number");
    assert!(
        (300_000_000..=510_000_000).contains(&duration),
        "{duration}"
    );
    let totals = &report["totals"];
    // Four workers for half a second, nothing of the time before.
    assert!(
        totals["wall_ns"].as_u64() < Some(5 * 510_000_000),
        "{totals}"
    );
    assert!(
        totals["cpu_ns"].as_u64() < Some(2 * 510_000_000),
        "{totals}"
    );
    let functions = report["functions"].to_string();
    assert!(
        functions.contains("PyEval"),
        "names are inside: {functions}"
    );
}

/// The interval that is in force when the window begins is that of the dump.
#[test]
fn a_dump_after_a_change_of_the_interval_has_one_interval() {
    let mut recording = Recording::start(&[]);
    let pid = recording.pid();
    std::thread::sleep(Duration::from_millis(300));
    stackbeat(&["set", &pid, "--interval", "7ms"]);
    std::thread::sleep(Duration::from_millis(800));
    let out = recording.path("dump.beat");
    stackbeat(&["dump", &pid, "--last", "300ms", "-o", &out]);
    recording.end();
    check(&out);
    let report = json(&["report", &out, "--json"]);
    for name in ["interval_ns", "main_interval_ns"] {
        assert_eq!(report["recording"][name], 7_000_000, "{report}");
    }
    let events = report["events"].as_array().expect("a list");
    assert!(events.iter().all(|e| e["kind"] != "interval"), "{events:?}");
    let heading = text(&command(&["report", &out]).output().expect("runs").stdout);
    let second = heading.lines().nth(1).expect("a second line");
    assert!(second.contains("every 7.00 ms"), "{heading}");
    assert!(!heading.contains("for a while"), "{heading}");
}

#[test]
fn a_signal_to_the_recorder_asks_for_a_dump_and_does_not_reach_the_program() {
    let options = ["--mode", "ring", "--dump-on", "usr2", "--dump-last", "1s"];
    let mut recording = Recording::start(&options);
    recording.wait_for_threads(5);
    std::thread::sleep(Duration::from_millis(500));
    let began = Instant::now();
    let first = recording.path("t.dump-1.beat");
    let signal = |pid: &str| Command::new("kill").args(["-USR2", pid]).status();
    assert!(signal(&recording.pid()).expect("runs").success());
    while command(&["info", &first])
        .output()
        .map(|o| o.status.success())
        .ok()
        != Some(true)
    {
        assert!(began.elapsed() < Duration::from_secs(30), "the dump comes");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(recording.status().capturing);
    // The next one is under way or begins when the program ends: it is finished all the same.
    assert!(signal(&recording.pid()).expect("runs").success());
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(recording.end(), "worked 4\n");
    for trace in [
        &first,
        &recording.path("t.dump-2.beat"),
        &recording.path("t.beat"),
    ] {
        check(trace);
    }
    let report = json(&["report", &first, "--json"]);
    let duration = report["recording"]["duration_ns"].as_u64();
    assert!(duration <= Some(1_050_000_000), "{duration:?}");
    assert!(report["totals"]["samples"].as_u64() > Some(50));
}

/// redis answers, is held up in one iteration of its event loop, and crashes with a handler of its own: each
/// is a dump.
#[test]
fn a_slow_iteration_and_the_death_of_redis_are_dumped() {
    let is_here = |name: &str| Command::new(name).arg("--version").output().is_ok();
    if !is_here("redis-server") || !is_here("redis-cli") {
        eprintln!("redis is not installed: not tested");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (socket, log) = (at("redis.sock"), at("redis.log"));
    let server = ["redis-server", "--port", "0", "--unixsocket", &socket];
    // Its handler would overwrite all memory for a test, the agent's included, and put it back: not while
    // that is used.
    let untested = ["--crash-memcheck-enabled", "no"];
    let quiet = [&["--save", "", "--logfile", &log][..], &untested].concat();
    let server = [&server[..], &quiet, &["--enable-debug-command", "yes"]].concat();
    let dumps = ["--dump-on-slow-iteration", "400ms", "--dump-on-crash"];
    let options = [&["-q"], &dumps[..], &["--dump-every", "1ms"]].concat();
    let mut recording = Recording::of(folder, &options, &server);
    let began = Instant::now();
    let pause_until = |what: &str| {
        assert!(began.elapsed() < Duration::from_secs(90), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    };
    let client = |arguments: &[&str]| {
        let mut client = Command::new("redis-cli");
        client.args(["-s", &socket]).args(arguments);
        client.output().expect("runs")
    };
    while text(&client(&["ping"]).stdout).trim() != "PONG" {
        pause_until("redis answers");
    }
    client(&["debug", "sleep", "1"]);
    let first = recording.path("t.dump-1.beat");
    let is_whole = |path: &str| command(&["info", path]).output().expect("runs");
    while !is_whole(&first).status.success() {
        pause_until("the slow iteration is dumped");
    }
    // One is written after the other: this one has begun when that one is there.
    while recording.status().samples == 0 {
        pause_until("samples come");
    }
    client(&["debug", "segfault"]);
    let status = recording.recorder.wait().expect("ends");
    assert_eq!(status.signal(), Some(11));
    let notes = |path: &str| {
        let report = json(&["report", path, "--json"]);
        let events = report["events"].as_array().expect("events").iter();
        let notes = events.filter(|e| e["kind"] == "note");
        notes.map(|e| e["text"].to_string()).collect::<String>()
    };
    assert!(
        notes(&first).contains("in one iteration"),
        "{}",
        notes(&first)
    );
    let own = notes(&recording.path("t.beat"));
    assert!(own.contains("died of SIGSEGV"), "{own}");
    let mut dumped = (2..20).map(|n| recording.path(&format!("t.dump-{n}.beat")));
    let last = dumped.rfind(|path| Path::new(path).exists());
    // Its handler has said what it has to say, and raised the signal again.
    let last = json(&["report", &last.expect("another dump"), "--json"]);
    let events = last["events"].as_array().expect("events").iter();
    let mut deaths = events.filter(|e| e["text"].to_string().contains("died of SIGSEGV"));
    let death = deaths.next().expect("a note");
    assert!(death["text"].to_string().contains("in thread"), "{death}");
    assert!(
        death["stack"].to_string().contains("debugCommand"),
        "{death}"
    );
    let log = fs::read_to_string(&log).expect("redis writes one");
    assert!(
        log.contains("crashed by signal"),
        "redis' own handler ran: {log}"
    );
}
