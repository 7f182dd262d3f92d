//! Dumps that servers' recordings write by themselves: for a slow iteration of an event loop, a wait that is
//! too long, the crash of a process.

use super::postgres_locks::{Client, ask, pid_of};
use super::*;
use stackbeat_tests::process_tree::send;
use stackbeat_tests::servers::NGINX;
use stackbeat_tests::{run, stackbeat, wait_until};
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;

/// Looks for dumps with numbers below this.
const DUMPS: usize = 20;

/// Where a server's dump with this number lies.
fn dump_path(server: &Server, number: usize) -> std::path::PathBuf {
    server.trace().with_extension(format!("dump-{number}.beat"))
}

/// A dump's report; `None` until it is written.
fn dumped(path: &Path) -> Option<Value> {
    if !path.exists() {
        return None;
    }
    let mut command = Command::new(stackbeat());
    command.args(["report", "--json", "--top", "0"]).arg(path);
    let report: Value = serde_json::from_slice(&run(command).output.stdout).ok()?;
    (report["recording"]["outcome"] == "finished").then_some(report)
}

/// Waits for the first dump with a note for which this holds; gives its report and the note.
#[track_caller]
fn dump_about(server: &Server, holds: impl Fn(&str) -> bool) -> (Value, Value) {
    let mut found = None;
    let mut next = 1;
    wait_until("the dump is written", || {
        while let Some(report) = (next < DUMPS)
            .then(|| dumped(&dump_path(server, next)))
            .flatten()
        {
            next += 1;
            let note = array(&report, "events")
                .find(|e| e["kind"] == "note" && e["text"].as_str().is_some_and(&holds))
                .cloned();
            if let Some(note) = note {
                found = Some((report, note));
                return true;
            }
        }
        false
    });
    found.expect("was found")
}

/// The thread that a note is about.
#[track_caller]
fn thread_of<'a>(report: &'a Value, note: &Value) -> &'a Value {
    let mut threads = array(report, "threads");
    let thread = threads.find(|thread| thread["utid"] == note["utid"]);
    thread.unwrap_or_else(|| panic!("nobody is meant by {note}"))
}

/// A named pipe that everybody may use.
fn pipe(server: &Server, name: &str) -> String {
    let path = server.path(name);
    let mut make = Command::new("mkfifo");
    make.args(["-m", "666", &path]);
    assert!(run(make).output.status.success(), "{path}");
    path
}

#[test]
fn a_slow_iteration_of_node_is_dumped() {
    let slow_iterations = ["--dump-on-slow-iteration", "600ms", "--dump-every", "1ms"];
    let options = [&slow_iterations[..], &["--dump-last", "3s"]].concat();
    let server = Server::recorded(Kind::Node, &options);
    server.address().ask();
    let main = server.pid();
    server.address().get("/slow");
    let of_main = format!("thread {main} (");
    let is_iteration = |text: &str| text.starts_with(&of_main) && text.contains("iteration");
    let (dump, note) = dump_about(&server, is_iteration);
    let thread = thread_of(&dump, &note);
    assert_eq!(thread["is_main"], true, "{thread}");
    // It computed meanwhile, and was seen to.
    assert!(number(thread, "running_ns") > 300_000_000, "{thread}");
    assert!(number(thread, "samples") > 20, "{thread}");
    server.address().ask();
    server.end();
}

/// The log is a pipe that nobody empties: the iteration in which the worker writes to it lasts until somebody
/// does.
#[test]
fn an_iteration_of_nginx_that_waits_for_its_log_is_dumped() {
    let options = ["--dump-on-slow-iteration", "600ms", "--dump-every", "1ms"];
    let server = Server::recorded(Kind::Nginx, &options);
    let log = pipe(&server, "access.pipe");
    let mut log = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(log)
        .expect("opens");
    let logging = NGINX
        .replace("access_log off", "access_log access.pipe")
        .replace("worker_processes 2", "worker_processes 1");
    fs::write(server.at("nginx.conf"), logging).expect("is written");
    let before = server.family();
    send("-HUP", server.pid());
    wait_until("the new worker is alone", || {
        let now = server.family();
        now.len() == 2 && !before.contains(&now[1])
    });
    let worker = server.family()[1];
    server.address().ask();
    let blocked = fill(&mut log);
    let address = server.address();
    let client = std::thread::spawn(move || address.get("/"));
    let of_worker = format!("thread {worker} (");
    let is_iteration = |text: &str| text.starts_with(&of_worker) && text.contains("iteration");
    let (dump, note) = dump_about(&server, is_iteration);
    let thread = thread_of(&dump, &note);
    assert_eq!(number(thread, "pid"), u64::from(worker));
    let site = array(&dump, "blocking_sites")
        .find(|site| site["call"] == "write" && site["longest_utid"] == thread["utid"]);
    let site = site.unwrap_or_else(|| panic!("{:#}", dump["blocking_sites"]));
    assert!(number(site, "longest_ns") > 400_000_000, "{site}");
    let emptied = empty(&mut log);
    assert!(emptied >= blocked, "{emptied} of {blocked}");
    client.join().expect("is answered");
    empty(&mut log);
    server.end();
}

/// Writes to a pipe until it is full; gives how much that was.
fn fill(pipe: &mut File) -> usize {
    let mut bytes = 0;
    loop {
        match pipe.write(b"\n") {
            Ok(more) => bytes += more,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                return bytes;
            }
        }
    }
}

/// Reads what is there; gives how much that was.
fn empty(pipe: &mut File) -> usize {
    let mut bytes = 0;
    let mut buffer = [0; 4096];
    loop {
        match pipe.read(&mut buffer) {
            Ok(more) => bytes += more,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                return bytes;
            }
        }
    }
}

/// A backend that reads a large object from a pipe waits until somebody opens its other end.
#[test]
fn a_backend_of_postgres_that_waits_for_long_is_dumped() {
    let options = ["--dump-on-block", "1s", "--dump-every", "1ms"];
    let server = Server::recorded(Kind::Postgres, &options);
    let source = pipe(&server, "source.pipe");
    let mut client = Client::new(&server);
    client.says("set application_name = 'importer';");
    let backend = pid_of(&server, "importer");
    client.says(&format!("select 'imported', lo_import('{source}') > 0;"));
    let of_backend = format!("thread {backend} (");
    let (dump, note) = dump_about(&server, |text| {
        text.starts_with(&of_backend) && text.contains("has waited")
    });
    assert!(note["text"].to_string().contains(" s in open"), "{note}");
    let thread = thread_of(&dump, &note);
    assert_eq!(number(thread, "pid"), backend);
    let site = array(&dump, "blocking_sites")
        .find(|site| site["call"] == "open" && site["longest_utid"] == thread["utid"]);
    let site = site.unwrap_or_else(|| panic!("{:#}", dump["blocking_sites"]));
    assert!(number(site, "longest_ns") > 900_000_000, "{site}");
    let stack = site["stack"].to_string();
    assert!(stack.contains("lo_import"), "{stack}");
    fs::write(&source, "what is imported").expect("somebody reads it");
    client.end();
    let imported =
        "select count(*) from pg_largeobject where convert_from(data, 'UTF8') like 'what is%'";
    assert_eq!(ask(&server, imported), "1");
    server.address().ask();
    server.end();
}

/// Has two workers die; gives their pids and what they died of.
fn crash_workers(server: &Server) -> Vec<(u32, &'static str)> {
    let deaths = [("-SEGV", "SIGSEGV"), ("-ABRT", "SIGABRT")];
    let deaths = deaths.into_iter().map(|(flag, name)| {
        server.address().ask();
        let worker = server.family()[1];
        send(flag, worker);
        wait_until("another worker is there", || {
            let now = server.family();
            now.len() == 3 && !now.contains(&worker)
        });
        (worker, name)
    });
    let deaths = deaths.collect();
    server.address().ask();
    deaths
}

/// How the log says that processes ended.
fn ends(log: &str, mark: &str) -> Vec<String> {
    let lines = log.lines().filter_map(|line| line.split_once(mark));
    lines.map(|(_, end)| end.to_owned()).collect()
}

/// The master starts other workers, as it does alone.
#[test]
fn crashes_of_workers_of_nginx_are_dumped() {
    let options = ["--dump-on-crash", "--dump-every", "1ms"];
    let server = Server::recorded(Kind::Nginx, &options);
    for (worker, name) in crash_workers(&server) {
        let death = format!("process {worker} (nginx) died of {name} in thread {worker} (nginx)");
        let (dump, note) = dump_about(&server, |text| text == death);
        let thread = thread_of(&dump, &note);
        assert_eq!(number(thread, "pid"), u64::from(worker));
        // It waited for requests.
        let stack = note["stack"].to_string();
        assert!(stack.contains("epoll_wait"), "{stack}");
        assert!(stack.contains("ngx_process_events_and_timers"), "{stack}");
    }
    let log = fs::read_to_string(server.at("nginx.log")).expect("is there");
    server.end();
    let alone = Server::alone(Kind::Nginx);
    crash_workers(&alone);
    let log_alone = fs::read_to_string(alone.at("nginx.log")).expect("is there");
    alone.end();
    let ends = |log: &str| ends(log, " exited ");
    assert_eq!(ends(&log), ["on signal 11", "on signal 6"]);
    assert_eq!(ends(&log), ends(&log_alone));
}

/// Has a client's backend die, which makes the server begin anew; gives the backend's pid.
fn crash_backend(server: &Server) -> u64 {
    let mut client = Client::new(server);
    client.says("set application_name = 'victim';");
    let backend = pid_of(server, "victim");
    send("-SEGV", backend as u32);
    let ready = "database system is ready to accept connections";
    wait_until("the server is there again", || {
        server.log().matches(ready).count() == 2
    });
    client.says("select 1;");
    client.fails();
    server.address().ask();
    backend
}

#[test]
fn the_crash_of_a_backend_of_postgres_is_dumped() {
    let server = Server::recorded(Kind::Postgres, &["--dump-on-crash"]);
    let backend = crash_backend(&server);
    let death =
        format!("process {backend} (postgres) died of SIGSEGV in thread {backend} (postgres)");
    let (dump, note) = dump_about(&server, |text| text == death);
    assert_eq!(number(thread_of(&dump, &note), "pid"), backend);
    let stack = note["stack"].to_string();
    assert!(stack.contains("PostgresMain"), "{stack}");
    let ended = server.end();
    // All others were told to go, and that is no crash.
    let report = report(&ended.trace());
    let crashes = array(&report, "events").filter(|e| e["text"].to_string().contains("died of"));
    assert_eq!(crashes.count(), 1, "{:#}", report["events"]);

    let alone = Server::alone(Kind::Postgres);
    crash_backend(&alone);
    let alone = alone.end();
    for mark in [") was terminated by ", "LOG:  all server processes "] {
        let (with, without) = (ends(&ended.log(), mark), ends(&alone.log(), mark));
        assert_eq!(with.len(), 1, "{}", ended.log());
        assert_eq!(with, without);
    }
}
