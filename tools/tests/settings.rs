//! Where the settings of a recording come from, seen from outside.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const STACKBEAT: &str = env!("CARGO_BIN_EXE_stackbeat");

/// Runs `stackbeat` in a folder that is also its home, with these variables.
fn stackbeat(folder: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut command = Command::new(STACKBEAT);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("STACKBEAT_") {
            command.env_remove(name);
        }
    }
    command
        .args(arguments)
        .current_dir(folder)
        .env("HOME", folder)
        .env_remove("XDG_CONFIG_HOME")
        .env("NO_COLOR", "1")
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Records something short; gives what `info` says about it.
#[track_caller]
fn recorded(folder: &Path, variables: &[(&str, &str)], flags: &[&str]) -> Value {
    let mut arguments = vec!["record", "-q", "-f", "-o", "t.beat"];
    arguments.extend(flags);
    arguments.extend(["--", "true"]);
    let output = stackbeat(folder, variables, &arguments);
    assert!(output.status.success(), "{}", stderr(&output));
    let output = stackbeat(folder, &[], &["info", "t.beat", "--json"]);
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn flags_before_variables_before_the_file_before_defaults() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let interval = |info: &Value| info["recording"]["interval_ns"].as_u64().expect("a number");
    assert_eq!(interval(&recorded(at, &[], &[])), 1_000_000);

    let of_user = at.join(".config/stackbeat");
    fs::create_dir_all(&of_user).expect("a folder");
    fs::write(
        of_user.join("stackbeat.toml"),
        "[record]\ninterval = \"2ms\"\n",
    )
    .expect("writes");
    assert_eq!(interval(&recorded(at, &[], &[])), 2_000_000);

    let file = "[record]\ninterval = \"3ms\"\nno-children = true\nprobes = [\"lock\", \"io\"]\n\
                depth = 32\nmode = \"ring\"\n";
    fs::write(at.join("stackbeat.toml"), file).expect("writes");
    let info = recorded(at, &[], &[]);
    assert_eq!(interval(&info), 3_000_000);
    assert_eq!(
        info["recording"]["probes"],
        serde_json::json!(["lock", "io"])
    );
    assert_eq!(info["config"]["depth_limit"], 32);
    assert_eq!(info["config"]["mode"], "ring");
    assert_eq!(info["config"]["follow_children"], false);

    let variables = [
        ("STACKBEAT_INTERVAL", "4ms"),
        ("STACKBEAT_NO_CHILDREN", "0"),
    ];
    let info = recorded(at, &variables, &[]);
    assert_eq!(interval(&info), 4_000_000);
    assert_eq!(info["config"]["follow_children"], true);
    assert_eq!(info["config"]["depth_limit"], 32);

    let info = recorded(at, &variables, &["--interval", "5ms", "--no-children"]);
    assert_eq!(interval(&info), 5_000_000);
    assert_eq!(info["config"]["follow_children"], false);
    let info = recorded(at, &[], &["--no-children=false"]);
    assert_eq!(info["config"]["follow_children"], true);

    // No file at all, and one that is named.
    let none = [("STACKBEAT_CONFIG", "")];
    assert_eq!(interval(&recorded(at, &none, &[])), 1_000_000);
    fs::write(at.join("other.toml"), "[record]\ninterval = \"6ms\"\n").expect("writes");
    let named = [("STACKBEAT_CONFIG", "other.toml")];
    assert_eq!(interval(&recorded(at, &named, &[])), 6_000_000);
}

#[test]
fn what_is_wrong_is_an_error_with_its_place_and_nothing_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let refused = |variables: &[(&str, &str)]| {
        let ran = at.join("ran");
        let arguments = ["record", "-q", "-f", "-o", "t.beat", "--", "touch", "ran"];
        let output = stackbeat(at, variables, &arguments);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(!ran.exists() && !at.join("t.beat").exists());
        stderr(&output)
    };
    for (file, part) in [
        (
            "[record]\n\nintervall = \"1ms\"\n",
            "stackbeat.toml:3:1: no such setting `intervall`",
        ),
        (
            "[record]\ninterval = \"1\"\n",
            "stackbeat.toml:2:1: invalid value '1' for '--interval",
        ),
        ("[record]\ninterval = 1ms\n", "stackbeat.toml:2:"),
        ("[record]\nmode = \"round\"\n", "endless, ring, startup"),
    ] {
        fs::write(at.join("stackbeat.toml"), file).expect("writes");
        let said = refused(&[]);
        assert!(said.contains(part), "{said}");
        // Other commands have no settings and do not care.
        let demo = stackbeat(at, &[], &["status", "--json"]);
        assert_ne!(demo.status.code(), Some(2), "{}", stderr(&demo));
    }
    fs::remove_file(at.join("stackbeat.toml")).expect("removes");
    let said = refused(&[("STACKBEAT_DEPTH", "deep")]);
    assert!(
        said.contains("STACKBEAT_DEPTH: invalid value 'deep'"),
        "{said}"
    );
    let said = refused(&[("STACKBEAT_CONFIG", "missing.toml")]);
    assert!(
        said.contains("missing.toml: the settings cannot be read"),
        "{said}"
    );

    // A variable that only looks like a setting does not stop anybody.
    let variables = [("STACKBEAT_INTERVALL", "1ms")];
    let output = stackbeat(
        at,
        &variables,
        &["record", "-q", "-f", "-o", "t.beat", "--", "true"],
    );
    assert!(output.status.success());
    assert!(stderr(&output).contains("STACKBEAT_INTERVALL: no such setting; known are"));
}

#[test]
fn attach_takes_the_settings_that_it_has_a_flag_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let file = "[record]\ninterval = \"3ms\"\ndump-on = \"usr2\"\nno-children = true\n";
    fs::write(at.join("stackbeat.toml"), file).expect("writes");
    let mut program = Command::new("sleep").arg("600").spawn().expect("starts");
    let pid = program.id().to_string();
    let attached = |variables: &[(&str, &str)], flags: &[&str]| -> Value {
        let arguments = ["attach", "-q", "-f", "-o", "t.beat", "-d", "10ms"];
        let arguments = [&arguments[..], flags, &[&pid]].concat();
        let output = stackbeat(at, variables, &arguments);
        assert!(output.status.success(), "{}", stderr(&output));
        let output = stackbeat(at, &[], &["info", "t.beat", "--json"]);
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let info = attached(&[], &[]);
    assert_eq!(info["recording"]["interval_ns"], 3_000_000);
    assert_eq!(info["config"]["follow_children"], false);
    let info = attached(&[("STACKBEAT_INTERVAL", "4ms")], &["--no-children=false"]);
    assert_eq!(info["recording"]["interval_ns"], 4_000_000);
    assert_eq!(info["config"]["follow_children"], true);
    let info = attached(&[("STACKBEAT_INTERVAL", "4ms")], &["-i", "5ms"]);
    assert_eq!(info["recording"]["interval_ns"], 5_000_000);
    program.kill().expect("is there");
    program.wait().expect("ends");
}
