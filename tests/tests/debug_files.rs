//! Programs without symbols: names from a server, and what is said where there are none.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use stackbeat_tests::tool::{command_in, text};
use stackbeat_tests::tool_json::array;
use stackbeat_tests::{compile, report, scratch};

const SOURCE: &str = r#"
#include <stdio.h>
#include <time.h>
__attribute__((noinline)) static long turn(long n) {
    long sum = 0;
    for (long i = 0; i < n; i++) { sum += i ^ n; __asm__ volatile("" : "+r"(sum)); }
    return sum;
}
int main(void) {
    long sum = 0;
    while (clock() < CLOCKS_PER_SEC * 3 / 10) sum += turn(100000);
    printf("%d\n", sum == 1);
}
"#;

/// Serves debug files from this folder; notes the paths that it was asked for.
fn serve(folder: &Path) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let url = format!("http://{}", listener.local_addr().expect("has one"));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&asked);
    let folder = folder.to_owned();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("connects");
            let mut lines = BufReader::new(stream.try_clone().expect("a clone"))
                .lines()
                .map_while(Result::ok);
            let first = lines.next().unwrap_or_default();
            lines.find(String::is_empty);
            let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
            let file = fs::read(folder.join(path.trim_start_matches('/')));
            noted.lock().expect("whole").push(path);
            let (status, body) = match file {
                Ok(body) => ("200 OK", body),
                Err(_) => ("404 Not Found", Vec::new()),
            };
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all(&[head.into_bytes(), body].concat());
        }
    });
    (url, asked)
}

fn run(program: &str, arguments: &[&str], folder: &Path) -> String {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .stderr(Stdio::inherit())
        .output();
    let output = output.expect("runs");
    assert!(output.status.success(), "{program} {arguments:?}");
    text(&output.stdout)
}

/// The function's file and line.
fn place(report: &Value, name: &str) -> Option<(String, u64)> {
    let function = array(report, "functions").find(|function| function["name"] == name)?;
    let file = function["file"].as_str()?.rsplit('/').next()?.to_owned();
    Some((file, function["line"].as_u64()?))
}

#[test]
fn a_stripped_program_has_its_names_from_a_server() {
    let folder = scratch();
    let at = folder.path();
    compile(at, "busy.c", SOURCE, &["-Wl,--build-id"]);
    let notes = run("readelf", &["-n", "busy"], at);
    let id = notes
        .split("Build ID: ")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().next());
    let id = id.expect("a build id");
    let served = at.join("served/buildid").join(id);
    fs::create_dir_all(&served).expect("is made");
    let debug = served.join("debuginfo");
    run(
        "objcopy",
        &["--only-keep-debug", "busy", debug.to_str().expect("UTF-8")],
        at,
    );
    run("strip", &["busy"], at);
    let (url, asked) = serve(&at.join("served"));
    // Settings that spoil what comes from a server.
    fs::write(at.join(".curlrc"), "fail\ninclude\n").expect("writes");
    let record = |options: &[&str]| {
        let arguments = [
            &["record", "-f", "-o", "t.beat"],
            options,
            &["--", "./busy"],
        ]
        .concat();
        let mut command = command_in(at, &arguments);
        command
            .env("CURL_HOME", at)
            .env("DEBUGINFOD_URLS", &url)
            .env("DEBUGINFOD_CACHE_PATH", at.join("cache"));
        let output = command.output().expect("runs");
        let said = text(&output.stderr);
        assert!(output.status.success(), "{said}");
        (report(&at.join("t.beat")), said)
    };

    let (without, said) = record(&["--no-debuginfod"]);
    assert_eq!(place(&without, "turn"), None);
    assert!(said.contains("no function names in busy ("), "{said}");
    assert!(
        said.contains("build busy without stripping symbols"),
        "{said}"
    );
    assert_eq!(*asked.lock().expect("whole"), Vec::<String>::new());

    let (with, said) = record(&[]);
    assert_eq!(place(&with, "turn"), Some(("busy.c".to_owned(), 4)));
    assert!(!said.contains("no function names in busy"), "{said}");
    let first = asked.lock().expect("whole").clone();
    let ours = format!("/buildid/{id}/debuginfo");
    assert_eq!(
        first.iter().filter(|path| **path == ours).count(),
        1,
        "{first:?}"
    );

    // Neither what is there nor what nobody has is asked for again.
    let (again, _) = record(&[]);
    assert_eq!(place(&again, "turn"), place(&with, "turn"));
    let all = asked.lock().expect("whole").clone();
    assert!(all.starts_with(&first), "{all:?}");
    // A module that no sample was in before may be asked for.
    let distinct: BTreeSet<&String> = all.iter().collect();
    assert_eq!(distinct.len(), all.len(), "{all:?}");

    // A server that is not there costs the names and nothing else.
    let mut command = command_in(at, &["record", "-f", "-o", "t.beat", "--", "./busy"]);
    command
        .env("DEBUGINFOD_URLS", "http://127.0.0.1:1")
        .env("DEBUGINFOD_CACHE_PATH", at.join("other"));
    let output = command.output().expect("runs");
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(text(&output.stdout), "0\n");
    assert!(said.contains("debuginfod http://127.0.0.1:1: "), "{said}");
}

#[test]
fn ctrl_c_ends_a_download_and_names_that_are_here_stay() {
    let folder = scratch();
    let at = folder.path();
    compile(at, "busy.c", SOURCE, &["-Wl,--build-id"]);
    run("strip", &["--strip-debug", "busy"], at);
    // A server that never answers.
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let url = format!("http://{}", listener.local_addr().expect("has one"));
    let (asks, asked) = channel();
    thread::spawn(move || {
        let mut held = Vec::new();
        for stream in listener.incoming() {
            held.push(stream);
            let _ = asks.send(());
        }
    });
    let recorder = command_in(at, &["record", "-o", "t.beat", "--", "./busy"])
        .env("DEBUGINFOD_URLS", &url)
        .env("DEBUGINFOD_CACHE_PATH", at.join("cache"))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .expect("starts");
    asked
        .recv_timeout(Duration::from_secs(60))
        .expect("is asked");
    let began = Instant::now();
    // A terminal sends it to all of the group.
    let group = format!("-{}", recorder.id());
    run("kill", &["-s", "INT", "--", &group], at);
    let output = recorder.wait_with_output().expect("ends");
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(began.elapsed() < Duration::from_secs(30), "{said}");
    assert!(!said.contains("asked to end"), "{said}");
    let report = report(&at.join("t.beat"));
    let functions: Vec<&Value> = array(&report, "functions")
        .map(|function| &function["name"])
        .collect();
    assert!(
        functions.iter().any(|name| **name == "turn"),
        "{functions:?}"
    );
}
