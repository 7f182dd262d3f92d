//! `stackbeat apple record` and `doctor`, with a script in the place of Xcode's tools, of a simulator and of
//! a device. The app is a program on this machine with the library for apps, whose constructor begins the
//! session as in an app.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use stackbeat_model::{Segment, StackIndex, ThreadIndex, Trace, Visitor};
use stackbeat_proto::v1::{Event, event::Kind};
use stackbeat_tests::process_tree::send;
use stackbeat_tests::tool::{command, text};
use stackbeat_tests::{built, scratch, target_folder, workspace};
use tempfile::TempDir;

const APP: &str = "com.example.app";
const SIMULATORS: &str = r#"{"devices":{"com.apple.CoreSimulator.SimRuntime.iOS-18-0":[
    {"udid":"S-1","name":"Phone","state":"Booted"},{"udid":"S-2","name":"Old","state":"Shutdown"}]}}"#;
const DEVICES: &str = r#"{"devices":[{"identifier":"D-1","hardwareProperties":{"udid":"u-1"},
    "deviceProperties":{"name":"Red"},"connectionProperties":{"tunnelState":"connected"}}]}"#;

/// A Mac with a simulator and a device, and the app in both.
struct Mac {
    folder: TempDir,
}

impl Mac {
    fn new() -> Mac {
        let mac = Mac { folder: scratch() };
        mac.write("simulators", SIMULATORS);
        mac.write("devices", DEVICES);
        mac.write("installed", "");
        // Where it is also when only the package's tests were built.
        let library = target_folder().join("deps/libstackbeat_apple_app.so");
        let library = built(library, &["--package", "stackbeat-apple"]);
        let libraries = library.parent().expect("a folder");
        let output = Command::new("cc")
            .args(["-Wall", "-Werror", "-I"])
            .arg(workspace().join("apple/include"))
            .arg(workspace().join("tests/tests/apple/app.c"))
            .arg("-o")
            .arg(mac.at("app"))
            .arg(format!("-L{}", libraries.display()))
            .arg(format!("-Wl,-rpath,{}", libraries.display()))
            .arg("-lstackbeat_apple_app")
            .output()
            .expect("cc");
        assert!(output.status.success(), "{}", text(&output.stderr));
        mac
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

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.at(name)).expect("is there")
    }

    fn record(&self, arguments: &[&str]) -> Output {
        self.run("record", arguments)
    }

    fn run(&self, what: &str, arguments: &[&str]) -> Output {
        let xcrun = workspace().join("tests/tests/apple/xcrun.sh");
        let output = command(&["apple", what, "-b", APP, "--xcrun"])
            .arg(xcrun)
            .args(arguments)
            .env("FAKE_XCRUN", self.folder.path())
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

    /// Calls, each sort of them once: how often it looks depends on the time.
    fn calls(&self) -> Vec<String> {
        let calls = self.read("calls");
        let mut calls: Vec<_> = calls.lines().map(str::to_owned).collect();
        calls.dedup();
        calls
    }
}

impl Drop for Mac {
    fn drop(&mut self) {
        let pid = fs::read_to_string(self.at("pid")).unwrap_or_default();
        if let Ok(pid) = pid.trim().parse()
            && Path::new(&format!("/proc/{pid}")).exists()
        {
            send("-KILL", pid);
        }
    }
}

#[derive(Default)]
struct Marks(usize);

impl Visitor for Marks {
    fn segment(&mut self, _: &Trace, _: &Segment) {}

    fn event(&mut self, _: &Trace, _: Option<ThreadIndex>, event: &Event, _: StackIndex) {
        self.0 += usize::from(event.kind() == Kind::Mark && event.name == "beat");
    }
}

/// The trace is the app's, and complete.
#[track_caller]
fn check(mac: &Mac, name: &str) {
    let trace = Trace::open(mac.at(name)).expect("a trace");
    assert!(trace.footer().is_some());
    let pid: u32 = mac.read("pid").trim().parse().expect("a pid");
    assert_eq!(trace.processes()[0].pid.0, pid);
    let mut marks = Marks::default();
    trace.visit(&mut marks).expect("it can be read");
    // Two seconds of one each 10 ms.
    assert!((50..=210).contains(&marks.0), "{}", marks.0);
}

#[test]
fn an_app_in_a_simulator_is_recorded() {
    let mac = Mac::new();
    mac.write("library.dylib", "");
    let output = mac.record(&[
        "--simulator",
        "booted",
        "--duration",
        "2s",
        "--interval",
        "2ms",
        "--library",
        "library.dylib",
        "-o",
        "s.beat",
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("samples of com.example.app on Phone"));
    check(&mac, "s.beat");
    let library = mac.at("library.dylib").canonicalize().expect("is there");
    let environment = format!(
        "DYLD_INSERT_LIBRARIES={}\nSTACKBEAT_DURATION_MS=2000\nSTACKBEAT_INTERVAL_US=2000\nSTACKBEAT_RECORD=1\n",
        library.display()
    );
    assert_eq!(mac.read("environment"), environment);
    let container = format!("simctl get_app_container S-1 {APP} data");
    assert_eq!(
        mac.calls(),
        [
            "simctl list devices booted --json".to_owned(),
            container.clone(),
            format!("simctl launch --terminate-running-process S-1 {APP}"),
            container,
        ]
    );
    // A file that is there is somebody's.
    let said = mac.refused(&["--simulator", "booted", "-o", "s.beat"]);
    assert!(
        said.contains("s.beat") && said.contains("--force"),
        "{said}"
    );
}

#[test]
fn an_app_on_a_device_is_recorded() {
    let mac = Mac::new();
    // What an earlier recording has left is not taken for this one's.
    fs::create_dir_all(mac.at("home/Library/Caches/stackbeat")).expect("a folder");
    mac.write("home/Library/Caches/stackbeat/app.beat", "old");
    let output = mac.record(&["--duration", "2s"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("samples of com.example.app on Red"));
    check(&mac, &format!("{APP}.beat"));
    assert_eq!(
        mac.read("environment"),
        "{\"STACKBEAT_DURATION_MS\":\"2000\",\"STACKBEAT_RECORD\":\"1\"}\n"
    );
    let mut calls = mac.calls();
    // Where the trace goes has a name of its own each time.
    for call in &mut calls {
        if let Some((begin, _)) = call.split_once(" --destination ") {
            *call = begin.to_owned();
        }
    }
    calls.dedup();
    assert_eq!(
        calls,
        [
            "devicectl list devices".to_owned(),
            format!("devicectl device info apps --device D-1 --bundle-id {APP}"),
            format!(
                "devicectl device process launch --device D-1 --terminate-existing --environment-variables {} {APP}",
                mac.read("environment").trim()
            ),
            "devicectl device info processes --device D-1".to_owned(),
            format!(
                "devicectl device copy from --device D-1 --domain-type appDataContainer --domain-identifier {APP} \
                 --source Library/Caches/stackbeat/app.beat"
            ),
        ]
    );
}

/// The app is stripped; what it was made of lies below a folder, under another name. That dSYMs are found by
/// UUID is tested in `symbolize/tests/macho.rs`: this app is a program of Linux.
#[test]
fn functions_have_the_names_of_the_build() {
    let mac = Mac::new();
    mac.write("captured", "");
    let folder = mac.at("Products/App.app.dSYM");
    fs::create_dir_all(&folder).expect("is made");
    fs::copy(mac.at("app"), folder.join("App")).expect("is copied");
    let strip = Command::new("strip")
        .arg("--strip-all")
        .arg(mac.at("app"))
        .status();
    assert!(strip.expect("strip runs").success());
    let names = |trace: &str| -> Vec<String> {
        let trace = Trace::open(mac.at(trace)).expect("a trace");
        let stacks = (0..trace.stack_count()).map(StackIndex);
        let frames = stacks.flat_map(|stack| trace.stack_frames(stack).to_vec());
        let name = |frame| trace.function(trace.frame(frame).function).name.to_string();
        frames.map(name).collect()
    };
    for (others, output, is_named) in [
        (&["--symbols", "Products"][..], "named.beat", true),
        (&[], "plain.beat", false),
    ] {
        let arguments = [&["--duration", "1s", "-o", output], others].concat();
        let recorded = mac.record(&arguments);
        let said = text(&recorded.stderr);
        assert!(recorded.status.success(), "{said}");
        assert_eq!(said.contains("1 of "), is_named, "{said}");
        let names = names(output);
        assert_eq!(
            names.iter().any(|n| n == "is_captured"),
            is_named,
            "{names:?}"
        );
    }
    fs::create_dir(mac.at("empty")).expect("is made");
    let said = mac.refused(&["--symbols", "empty", "-o", "no.beat"]);
    assert!(
        said.contains("empty: has no dSYM; Xcode leaves them"),
        "{said}"
    );
}

/// The app here is a program of Linux, whose library has no hooks to place: the doctor says so. What it says
/// of hooks that are placed is tested beside its table.
#[test]
fn the_doctor_says_what_works_in_an_app() {
    let mac = Mac::new();
    mac.write("captured", "");
    let output = mac.run("doctor", &["--duration", "1s"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said.contains("com.example.app on Red"), "{said}");
    assert!(
        said.contains("FAILED   hooks: the app says nothing of its hooks"),
        "{said}"
    );
    assert!(said.contains("ok       session in the app: "), "{said}");
    assert!(
        mac.read("environment")
            .contains("\"STACKBEAT_DURATION_MS\":\"1000\"")
    );
    let json = mac.run(
        "doctor",
        &["--duration", "1s", "--simulator", "booted", "--json"],
    );
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(json["schema"], "stackbeat.apple-doctor.v1");
    assert_eq!(
        (&json["ok"], &json["device"]),
        (&false.into(), &"Phone".into())
    );
    assert_eq!(json["app"][1]["name"], "hooks");
    // No trace stays behind.
    assert!(!mac.at(&format!("{APP}.beat")).exists());
}

#[test]
fn what_is_missing_is_said() {
    let mac = Mac::new();
    let none = command(&["apple", "record", "-b", APP, "--xcrun", "/nowhere/xcrun"]).output();
    let none = text(&none.expect("runs").stderr);
    assert!(
        none.contains("there is no `/nowhere/xcrun`: this needs a Mac with Xcode"),
        "{none}"
    );
    let said = mac.refused(&["--device", "Blue"]);
    assert!(
        said.contains("Xcode knows no device `Blue`, only Red (D-1)"),
        "{said}"
    );
    let said = mac.refused(&["--simulator", "Old"]);
    assert!(
        said.contains("Xcode knows no simulator that runs `Old`, only Phone (S-1)"),
        "{said}"
    );
    let said = mac.refused(&["--simulator", "booted", "--library", "none.dylib"]);
    assert!(
        said.contains("none.dylib: there is no such library"),
        "{said}"
    );
    mac.write("ends", "");
    let said = mac.refused(&["--duration", "5s"]);
    assert!(said.contains("com.example.app has ended after "), "{said}");
    assert!(said.contains("is completed at its next start"), "{said}");
    mac.remove("installed");
    let said = mac.refused(&[]);
    assert!(
        said.contains("com.example.app is not installed on Red"),
        "{said}"
    );
    let said = mac.refused(&["--simulator", "Phone"]);
    assert!(
        said.contains("is not installed in Phone (simctl says: No such file or directory)"),
        "{said}"
    );
    mac.write("devices", r#"{"devices":[]}"#);
    let said = mac.refused(&[]);
    assert!(
        said.contains("Xcode knows no device: connect one"),
        "{said}"
    );
}
