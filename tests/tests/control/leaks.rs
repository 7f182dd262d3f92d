//! Switched on and off a thousand times under load: nothing stays behind, nobody notices.

use super::*;

#[test]
fn a_thousand_switches_under_load_leave_nothing_behind() {
    let mut recording = Recording::start(&["--interval", "200us"]);
    recording.wait_for_samples(100);
    let status = recording.status();
    let pids = [status.program_pid, status.collector_pid];
    let before = pids.map(|pid| (descriptors(pid), mappings(pid)));
    let ask = |request: &Request| {
        let reply = client::ask(&status.session, request).expect("is done");
        reply.session.expect("a status")
    };
    for round in 0..500u64 {
        assert!(!ask(&Request::Stop {}).capturing);
        let settings = Settings {
            interval_ns: Some(100_000 + round % 7 * 100_000),
            probes: (round % 50 == 0).then(|| vec!["lock".to_owned(), "sleep".to_owned()]),
            ..Settings::default()
        };
        ask(&Request::Set(settings));
        assert!(ask(&Request::Start {}).capturing);
        if round % 25 == 0 {
            recording.wait_for_samples(1);
        }
    }
    recording.wait_for_samples(100);
    std::thread::sleep(Duration::from_millis(100));
    for (pid, (files, maps)) in pids.into_iter().zip(before) {
        // The program may close what it had open for its start, the sampler keep a file a thread, a
        // connection that is being closed count. What stays behind at each switch would be hundreds.
        assert!(
            descriptors(pid) <= files + 20,
            "{} files, {files} before",
            descriptors(pid)
        );
        // The session's mapping grows in a few pieces.
        let left = mappings(pid);
        assert!(left <= maps + 5, "{left} mappings, {maps} before");
    }
    assert_eq!(recording.end(), "worked 4\n");
    let trace = recording.path("t.beat");
    let report = json(&["report", &trace, "--json"]);
    let switches = report["events"].as_array().expect("events");
    let switches = switches.iter().filter(|e| e["kind"] == "setting");
    assert_eq!(switches.count(), 1000 + 10);
    check(&trace);
}

/// redis answers a benchmark while its recording is switched a thousand times.
#[test]
fn redis_under_load_does_not_notice_the_switch() {
    let is_here = |name: &str| Command::new(name).arg("--version").output().is_ok();
    if !is_here("redis-server") || !is_here("redis-benchmark") {
        eprintln!("redis is not installed: not tested");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("redis.sock").display().to_string();
    let server = [
        "redis-server",
        "--port",
        "0",
        "--unixsocket",
        &socket,
        "--save",
        "",
        "--daemonize",
        "no",
        "--dir",
        &folder.path().display().to_string(),
    ]
    .map(str::to_owned);
    let server: Vec<&str> = server.iter().map(String::as_str).collect();
    let mut recording = Recording::of(folder, &["-q"], &server);
    wait_until("redis listens", || Path::new(&socket).exists());
    // What it opens while it starts is closed once it answers.
    let mut ping = Command::new("redis-cli");
    ping.args(["-s", &socket, "ping"]);
    assert!(ping.output().expect("runs").status.success());
    std::thread::sleep(Duration::from_millis(300));
    let status = recording.status();
    let before = (
        descriptors(status.program_pid),
        mappings(status.program_pid),
    );
    let load = Command::new("redis-benchmark")
        .args([
            "-s",
            &socket,
            "-n",
            "60000",
            "-c",
            "20",
            "-t",
            "set,get,lpush",
            "-q",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    for _ in 0..500 {
        for request in [Request::Stop {}, Request::Start {}] {
            client::ask(&status.session, &request).expect("is done");
        }
    }
    let load = load.wait_with_output().expect("ends");
    assert!(load.status.success(), "{}", text(&load.stderr));
    assert!(
        !text(&load.stderr).contains("rror"),
        "{}",
        text(&load.stderr)
    );
    std::thread::sleep(Duration::from_millis(300));
    let after = (
        descriptors(status.program_pid),
        mappings(status.program_pid),
    );
    assert_eq!(after, before);
    let mut down = Command::new("redis-cli");
    down.args(["-s", &socket, "shutdown", "nosave"]);
    assert!(down.status().expect("runs").success());
    recording.end();
    let trace = recording.path("t.beat");
    check(&trace);
}
