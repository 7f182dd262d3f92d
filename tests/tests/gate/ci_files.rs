//! The files of `examples/ci`: they are YAML, and their shell lines do what they say, run as the CI would run
//! them. Verdicts come from counts, which are the same on a loaded machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use stackbeat_tests::tool::binary;
use stackbeat_tests::workspace;

const POLICY: &str = "[gate]\nrequired = [\"allocations\"]\n\
                      ignore-metrics = [\"wall\", \"cpu\", \"lock\", \"io\", \"net\", \"sleep\", \"minor-faults\", \"major-faults\"]\n";

fn example(name: &str) -> PathBuf {
    workspace().join("examples/ci").join(name)
}

/// A file of YAML, as another program reads it.
fn yaml(name: &str) -> Value {
    let code =
        "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1])), default=str))";
    let output = Command::new("python3")
        .args(["-c", code])
        .arg(example(name))
        .output()
        .expect("python3 runs");
    assert!(output.status.success(), "{name}: {output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

/// A project with a program that allocates so often, built by `make bench`, with its policy.
fn project(folder: &Path, allocations: u32) {
    let source = include_str!("shop.c");
    let (count, rounds) = ("more ? 15000 : 10000", ": 100;");
    assert!(source.contains(count) && source.contains(rounds));
    let source = source
        .replace(count, &allocations.to_string())
        .replace(rounds, ": 2;");
    std::fs::create_dir_all(folder).expect("is made");
    let write =
        |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("is written");
    write("bench.c", &source);
    write("Makefile", "bench: bench.c\n\tcc -g -pthread -o $@ $<\n");
    write("stackbeat.toml", POLICY);
}

/// Runs lines as GitHub and GitLab do: in bash, which stops at the first failure.
fn shell(folder: &Path, lines: &str, environment: &BTreeMap<String, String>) -> Output {
    let binaries = Path::new(binary()).parent().expect("a folder").display();
    let path = std::env::var("PATH").expect("a PATH");
    Command::new("bash")
        .args(["--noprofile", "--norc", "-eo", "pipefail", "-c", lines])
        .current_dir(folder)
        .env_remove("STACKBEAT_AGENT")
        .env("NO_COLOR", "1")
        .env("PATH", format!("{binaries}:{path}"))
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .envs(environment)
        .stdin(Stdio::null())
        .output()
        .expect("bash runs")
}

fn commit(folder: &Path, subject: &str) -> String {
    let lines = format!(
        "[ -d .git ] || git init -q -b main; git add bench.c Makefile stackbeat.toml
         git -c user.name=A -c user.email=a@example.com commit -qm '{subject}'; git rev-parse HEAD"
    );
    let output = shell(folder, &lines, &BTreeMap::new());
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_string()
}

/// The `run` of a step and its environment, with what stands for `${{ … }}`.
fn step(steps: &Value, name: &str, context: &[(&str, &str)]) -> (String, BTreeMap<String, String>) {
    let steps = steps.as_array().expect("a list");
    let step = steps.iter().find(|s| s["name"] == name);
    let step = step.unwrap_or_else(|| panic!("no step {name}"));
    let value = |text: &str| match text
        .strip_prefix("${{ ")
        .and_then(|t| t.strip_suffix(" }}"))
    {
        None => text.to_string(),
        Some(expression) => {
            let found = context.iter().find(|(known, _)| *known == expression);
            found
                .unwrap_or_else(|| panic!("{expression} is not given"))
                .1
                .to_string()
        }
    };
    let environment = step["env"].as_object().into_iter().flatten();
    let environment = environment.map(|(key, v)| (key.clone(), value(text(v))));
    let lines = text(&step["run"]);
    assert!(
        !lines.contains("${{"),
        "{name}: expressions belong into env: {lines}"
    );
    (lines.to_string(), environment.collect())
}

#[test]
fn the_action_gates_two_commands() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let workflow = yaml("github/workflow.yml");
    let action = yaml("github/action/action.yml");
    for (name, allocations) in [("baseline", 1000), ("candidate", 1300)] {
        project(&at.join(name), allocations);
    }
    let steps = &workflow["jobs"]["gate"]["steps"];
    let (lines, environment) = step(steps, "Build both", &[]);
    let built = shell(at, &lines, &environment);
    assert!(built.status.success(), "{built:?}");

    // What the workflow hands to the action, the action knows.
    let gate = steps
        .as_array()
        .expect("a list")
        .iter()
        .find(|s| s["name"] == "Gate");
    let given = gate.expect("a step")["with"].as_object().expect("inputs");
    let known = action["inputs"].as_object().expect("inputs");
    assert!(given.keys().all(|key| known.contains_key(key)), "{given:?}");
    let input = |key: &str| given.get(key).unwrap_or(&known[key]["default"]);

    let gate = |candidate: &str, policy: &str, together: &str, unknown: &str| {
        let context = [
            ("inputs.baseline", text(input("baseline"))),
            ("inputs.candidate", candidate),
            ("inputs.policy", policy),
            ("inputs.runs", "2"),
            ("inputs.together", together),
            ("inputs.unknown", unknown),
            ("inputs.output", text(input("output"))),
        ];
        let (lines, mut environment) = step(&action["runs"]["steps"], "Gate", &context);
        for file in ["GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"] {
            std::fs::write(at.join(file), "").expect("is written");
            environment.insert(file.into(), file.into());
        }
        let output = shell(at, &lines, &environment);
        let read = |file: &str| std::fs::read_to_string(at.join(file)).expect("is there");
        (output, read("GITHUB_OUTPUT"), read("GITHUB_STEP_SUMMARY"))
    };
    let policy = text(input("policy"));
    let (output, said, summary) = gate(text(input("candidate")), policy, "false", "pass");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(said, "code=1\n");
    assert!(
        summary.starts_with("### ❌") && summary.contains("allocat"),
        "{summary}"
    );
    assert!(
        String::from_utf8_lossy(&output.stdout).starts_with("::error "),
        "{output:?}"
    );
    assert!(at.join("stackbeat-ab/report.html").exists());

    let (output, said, _) = gate(
        text(input("baseline")),
        policy,
        text(input("together")),
        "fail",
    );
    assert_eq!(
        (output.status.code(), said.as_str()),
        (Some(0), "code=0\n"),
        "{output:?}"
    );

    // Two runs say nothing of times, and without a policy times count.
    for (together, unknown, code) in [("false", "pass", 0), ("true", text(input("unknown")), 3)] {
        let (output, said, _) = gate(text(input("baseline")), "", together, unknown);
        assert_eq!(
            (output.status.code(), said.as_str()),
            (Some(code), "code=3\n"),
            "{output:?}"
        );
    }
    // A mistake is a failure, and is said.
    let (output, said, _) = gate("no/such/program", policy, "true", "pass");
    assert_eq!(
        (output.status.code(), said.as_str()),
        (Some(2), "code=2\n"),
        "{output:?}"
    );
}

#[test]
fn the_workflow_records_a_series_and_names_the_commit() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let workflow = yaml("github/workflow.yml");
    let steps = &workflow["jobs"]["trend"]["steps"];
    let trend = |hash: &str| {
        for name in ["Record", "Keep the newest 100 commits"] {
            let (lines, environment) = step(steps, name, &[("github.sha", hash)]);
            let output = shell(at, &lines, &environment);
            assert!(output.status.success(), "{name}: {output:?}");
        }
        let (lines, mut environment) = step(steps, "Trend", &[]);
        environment.insert("GITHUB_STEP_SUMMARY".into(), "summary".into());
        let output = shell(at, &lines, &environment);
        let summary = std::fs::read_to_string(at.join("summary")).expect("was written");
        std::fs::remove_file(at.join("summary")).expect("is removed");
        (output.status.code(), summary)
    };
    project(at, 1000);
    let first = commit(at, "Begin");
    // A series of another repository that the cache still has.
    std::fs::create_dir_all(at.join("runs/gone")).expect("is made");
    let (code, summary) = trend(&first);
    assert_eq!(code, Some(0), "{summary}");
    assert!(!at.join("runs/gone").exists());
    project(at, 1300);
    let second = commit(at, "Copy each text");
    let (code, summary) = trend(&second);
    assert_eq!(code, Some(1), "{summary}");
    assert!(
        summary.contains(&second[..7]) && summary.contains("Copy each text"),
        "{summary}"
    );
    assert!(at.join("trend.html").exists());
}

#[test]
fn gitlab_compares_with_the_baseline_that_was_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let pipeline = yaml("gitlab-ci.yml");
    let job = |name: &str, hash: &str| {
        let mut environment: BTreeMap<String, String> = BTreeMap::new();
        for (key, value) in pipeline["variables"].as_object().expect("variables") {
            environment.insert(key.clone(), text(value).to_string());
        }
        environment.insert("RUNS".into(), "2".into());
        environment.insert("CI_COMMIT_SHA".into(), hash.to_string());
        let lines = pipeline[name]["script"].as_array().expect("a list");
        let lines: Vec<&str> = lines.iter().map(text).collect();
        shell(at, &lines.join("\n"), &environment)
    };
    project(at, 1000);
    let first = commit(at, "Begin");
    let output = job("baseline", &first);
    assert!(output.status.success(), "{output:?}");
    for file in pipeline["baseline"]["artifacts"]["paths"]
        .as_array()
        .expect("a list")
    {
        assert!(at.join(text(file)).exists(), "{file}");
    }
    let output = job("gate", &first);
    assert!(output.status.success(), "{output:?}");
    std::fs::remove_dir_all(at.join("candidate")).expect("is removed");
    project(at, 1300);
    let second = commit(at, "Copy each text");
    let output = job("gate", &second);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report = text(&pipeline["gate"]["artifacts"]["reports"]["junit"]);
    let report = std::fs::read_to_string(at.join(report)).expect("was written");
    assert!(report.contains("<failure"), "{report}");
    let allowed = &pipeline["gate"]["allow_failure"]["exit_codes"];
    assert_eq!(allowed, 3);
}

#[test]
fn the_policy_is_a_good_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let policy = example("stackbeat.toml").display().to_string();
    let lines = format!("stackbeat gate -b none -c none --policy '{policy}'");
    let output = shell(folder.path(), &lines, &BTreeMap::new());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    // The policy is read first; it is the traces that are missing.
    assert!(text.contains("--baseline none: no such file"), "{text}");
}
