//! `stackbeat android`, with a script in the place of adb and of the device. The app is a program on this
//! machine with a session inside, reached as on a device: by the name of its socket, through a port.

#[cfg(target_arch = "x86_64")]
mod calls;
#[cfg(target_arch = "x86_64")]
mod framework;
#[cfg(target_arch = "x86_64")]
mod session;

use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;

use stackbeat_tests::process_tree::send;
use stackbeat_tests::tool::{binary, command, text};
use stackbeat_tests::{compile_file, report, scratch, workspace};
use tempfile::TempDir;

const APP: &str = "com.example.app";

/// A device with the app, and the computer's side of it.
struct Device {
    folder: TempDir,
}

impl Device {
    fn new() -> Device {
        let device = Device { folder: scratch() };
        device.write("devices", "emulator-5554\tdevice\n");
        device.write("installed", "");
        device.write("debuggable", "");
        let source = workspace().join("tests/tests/in_process/ends.c");
        let program = compile_file(device.folder.path(), &source, &[]);
        let trace = device.at("app.beat");
        device.write(
            "app",
            &format!(
                "#!/bin/sh\nexec {} record --in-process -f -o {} -- {} forever\n",
                binary(),
                trace.display(),
                program.display()
            ),
        );
        let may_run = fs::Permissions::from_mode(0o755);
        fs::set_permissions(device.at("app"), may_run).expect("is ours");
        device.forward();
        device
    }

    /// The app's own code.
    fn program(&self) -> PathBuf {
        let app = fs::read_to_string(self.at("app")).expect("is there");
        let command = app.split(" -- ").nth(1).expect("a program");
        PathBuf::from(command.split(' ').next().expect("its path"))
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, content: &str) {
        fs::write(self.at(name), content).expect("is written");
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.at(name)).expect("is there");
    }

    /// What adb forwards: each connection of a port to the socket that was named last.
    fn forward(&self) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("is bound").port();
        self.write("port", &format!("{port}\n"));
        let forwarded = self.at("forwarded");
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let forwarded = forwarded.clone();
                thread::spawn(move || pass_on(client, &forwarded));
            }
        });
    }

    fn record(&self, arguments: &[&str]) -> Output {
        self.run("record", arguments)
    }

    fn run(&self, what: &str, arguments: &[&str]) -> Output {
        let output = command(&["android", what, "-p", APP])
            .args([
                "--adb",
                &workspace()
                    .join("tests/tests/android/adb.sh")
                    .display()
                    .to_string(),
            ])
            .args(arguments)
            .env("FAKE_ADB", self.folder.path())
            .current_dir(self.folder.path())
            .output();
        output.expect("runs")
    }

    /// What went wrong.
    #[track_caller]
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.record(arguments);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        text(&output.stderr)
    }

    fn calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.at("calls")).expect("adb was called");
        calls.lines().map(str::to_owned).collect()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let recorder = fs::read_to_string(self.at("recorder")).unwrap_or_default();
        if let Ok(pid) = recorder.trim().parse()
            && Path::new(&format!("/proc/{pid}")).exists()
        {
            send("-TERM", pid);
        }
    }
}

fn pass_on(client: TcpStream, forwarded: &Path) {
    let name = fs::read_to_string(forwarded).unwrap_or_default();
    let name = name.trim().trim_start_matches("localabstract:").to_owned();
    let address = SocketAddr::from_abstract_name(name).expect("a name");
    // Where nobody listens the connection ends, as with adb.
    let Ok(session) = UnixStream::connect_addr(&address) else {
        return;
    };
    let (mut from, mut to) = (
        client.try_clone().expect("copied"),
        session.try_clone().expect("copied"),
    );
    thread::spawn(move || _ = io::copy(&mut from, &mut to));
    let (mut from, mut to) = (session, client);
    let _ = io::copy(&mut from, &mut to);
}

#[test]
fn an_app_is_started_recorded_and_its_trace_fetched() {
    let device = Device::new();
    let output = device.record(&[
        "--duration",
        "2s",
        "--interval",
        "2ms",
        "--in-memory",
        "-o",
        "fetched.beat",
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = report(&device.at("fetched.beat"));
    let functions = report["functions"].as_array().expect("functions");
    assert!(
        functions.iter().any(|f| f["name"] == "computes"),
        "{functions:?}"
    );

    let forwarded = fs::read_to_string(device.at("forwarded")).expect("forwarded");
    let socket = forwarded.trim();
    let port = fs::read_to_string(device.at("port")).expect("a port");
    let port = format!("tcp:{}", port.trim());
    let pulled = device.at("pulled.beat").display().to_string();
    let calls = device.calls();
    let once: Vec<&str> = calls
        .iter()
        .map(|call| call.trim_start_matches("-s emulator-5554 "))
        .filter(|call| !call.starts_with("shell pidof") && *call != "shell cat /proc/net/unix")
        .collect();
    let expected = [
        "devices".to_owned(),
        format!("shell pm path {APP}"),
        format!("shell run-as {APP} true"),
        "shell setprop debug.stackbeat.interval_us 2000".to_owned(),
        "shell setprop debug.stackbeat.doctor ''".to_owned(),
        "shell setprop debug.stackbeat.in_memory 1".to_owned(),
        format!("shell setprop debug.stackbeat.package {APP}"),
        format!("shell am force-stop {APP}"),
        format!("shell monkey -p {APP} -c android.intent.category.LAUNCHER 1"),
        format!("forward tcp:0 {socket}"),
        format!("exec-out run-as {APP} cat {pulled}"),
        format!("shell run-as {APP} rm -f {pulled}"),
        format!("forward --remove {port}"),
        "shell setprop debug.stackbeat.package ''".to_owned(),
    ];
    assert_eq!(once, expected);
}

/// The app's own words of its hooks, and what its trace shows of them.
#[test]
fn the_doctor_says_what_works_in_an_app() {
    let device = Device::new();
    let output = device.run("doctor", &["--duration", "1s"]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    let title = format!("{APP} on emulator-5554, Android 14 (API level 34), arm64-v8a\n");
    assert!(said.starts_with(&title), "{said}");
    assert!(said.contains("  ok       hooks: "), "{said}");
    assert!(said.contains(" hooks in place\n"), "{said}");
    let calls = device.calls();
    let tries = "-s emulator-5554 shell setprop debug.stackbeat.doctor 1".to_owned();
    assert!(calls.contains(&tries), "{calls:?}");
    let json = device.run("doctor", &["--duration", "1s", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(
        (&json["ok"], &json["app"][0]["status"]),
        (&true.into(), &"ok".into())
    );
}

/// The device has a stripped program, this computer the one that it was made of, below a folder and under
/// another name.
#[test]
fn native_functions_have_the_names_of_the_unstripped_libraries() {
    let device = Device::new();
    let program = device.program();
    let folder = device.at("symbols/obj/arm64-v8a");
    fs::create_dir_all(&folder).expect("is made");
    fs::copy(&program, folder.join("libapp.so")).expect("is copied");
    // A file of another build, and none at all.
    fs::copy("/bin/true", folder.join("other")).expect("is copied");
    fs::write(folder.join("notes.txt"), "no library").expect("is written");
    let strip = Command::new("strip")
        .arg("--strip-all")
        .arg(&program)
        .status();
    assert!(strip.expect("strip runs").success());

    let symbols = device.at("symbols").display().to_string();
    let output = device.record(&[
        "--duration",
        "2s",
        "--symbols",
        &symbols,
        "-o",
        "named.beat",
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("1 of "), "{output:?}");
    let names = |trace: &str| -> Vec<String> {
        let report = report(&device.at(trace));
        let functions = report["functions"].as_array().expect("functions");
        let name = |f: &serde_json::Value| f["name"].as_str().unwrap_or_default().to_owned();
        functions.iter().map(name).collect()
    };
    let named = names("named.beat");
    assert!(named.iter().any(|name| name == "computes"), "{named:?}");
    let plain = device.record(&["--duration", "2s", "-o", "plain.beat"]);
    assert!(plain.status.success(), "{}", text(&plain.stderr));
    let plain = names("plain.beat");
    assert!(!plain.iter().any(|name| name == "computes"), "{plain:?}");

    let empty = device.at("empty");
    fs::create_dir(&empty).expect("is made");
    let said = device.refused(&["--symbols", &empty.display().to_string(), "-o", "no.beat"]);
    assert!(said.contains("has no library with a build id"), "{said}");
}

#[test]
fn the_devices_own_trace_comes_along() {
    let device = Device::new();
    // A trace of one packet: `Trace.packet` with `trusted_uid` 9999 (perfetto/trace/trace_packet.proto).
    let system = [0x0a, 0x03, 0x18, 0x8f, 0x4e];
    fs::write(device.at("system.pftrace"), system).expect("is written");
    let output = device.record(&["--duration", "2s", "--system-trace", "-o", "app2.beat"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let merged = fs::read(device.at("app2.pftrace")).expect("is there");
    assert!(merged.starts_with(&system) && merged.len() > 1000);
}

#[test]
fn what_is_missing_is_said() {
    let device = Device::new();
    let none = command(&["android", "record", "-p", APP, "--adb", "/nowhere/adb"]).output();
    let none = text(&none.expect("runs").stderr);
    assert!(
        none.contains("there is no `/nowhere/adb`: install Android's platform tools"),
        "{none}"
    );
    let wrong = command(&["android", "record", "-p", "no name"]).output();
    assert!(text(&wrong.expect("runs").stderr).contains("is no package name"));

    device.write("no_activity", "");
    let said = device.refused(&[]);
    assert!(
        said.contains("cannot be started: ** No activities found"),
        "{said}"
    );
    device.remove("debuggable");
    let said = device.refused(&[]);
    assert!(
        said.contains("is not debuggable") && said.contains("run-as: package not debuggable"),
        "{said}"
    );
    device.remove("installed");
    assert!(
        device
            .refused(&[])
            .contains("com.example.app is not installed on emulator-5554")
    );
    device.write("devices", "A1\tdevice\nB2\tdevice\n");
    assert!(
        device
            .refused(&[])
            .contains("2 devices are connected; name one with --serial: A1, B2")
    );
    device.write("devices", "");
    assert!(
        device
            .refused(&[])
            .contains("adb knows no device: connect one")
    );
    // Nothing stays set.
    let set = device
        .calls()
        .into_iter()
        .rfind(|call| call.contains("setprop"));
    assert!(set.is_some_and(|call| call.ends_with("debug.stackbeat.package ''")));
}

#[test]
fn an_app_that_dies_is_said() {
    let device = Device::new();
    let recorder = device.at("recorder");
    let killer = thread::spawn(move || {
        let read = || {
            fs::read_to_string(&recorder)
                .ok()?
                .trim()
                .parse::<u32>()
                .ok()
        };
        let pid = stackbeat_tests::until("the app starts", read);
        let children = format!("/proc/{pid}/task/{pid}/children");
        // Beside the app the recorder has a helper, which was there before.
        let app = || {
            let children = fs::read_to_string(&children).ok()?;
            let mut pids = children.split_whitespace().skip(1);
            pids.next()?.parse::<u32>().ok()
        };
        let app = stackbeat_tests::until("the app runs", app);
        // It is recorded for a while.
        thread::sleep(std::time::Duration::from_secs(3));
        send("-KILL", app);
    });
    let said = device.refused(&["--duration", "60s"]);
    killer.join().expect("has killed");
    assert!(said.contains("com.example.app has ended after "), "{said}");
    assert!(said.contains("is completed at its next start"), "{said}");
}
