//! What other tools read of a verdict: SARIF by types made of its schema, JUnit by another program's XML
//! parser.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use serde_sarif::sarif::Sarif;

/// Checks both reports of a gate: their form, and that they tell of at least so many failures, or of none.
pub(super) fn are_valid(sarif: &Path, junit: &Path, least_failures: usize) {
    let failures = is_sarif(sarif);
    assert!(failures >= least_failures, "{failures} results");
    assert_eq!(failures == 0, least_failures == 0, "{failures} results");
    is_junit(junit, failures);
}

/// Gives its number of results. The types want the fields that the schema requires and drop those that it
/// does not name, so what is written again must be the same; what it says beyond types is asserted here.
fn is_sarif(path: &Path) -> usize {
    let text = std::fs::read_to_string(path).expect("was written");
    let sarif: Sarif = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    let again = serde_json::to_value(&sarif).expect("is written");
    let original: Value = serde_json::from_str(&text).expect("is JSON");
    assert_eq!(again, original, "has what the schema does not name");
    assert_eq!(sarif.version, "2.1.0");
    let [run] = &sarif.runs[..] else {
        panic!("one run is expected: {text}");
    };
    let rules = run.tool.driver.rules.as_deref().unwrap_or_default();
    let results = run.results.as_deref().expect("no result is a list, too");
    for result in results {
        let id = result.rule_id.as_deref().expect("names its rule");
        assert!(rules.iter().any(|rule| rule.id == id), "{id}: {text}");
        assert!(
            result
                .message
                .text
                .as_deref()
                .is_some_and(|t| !t.is_empty())
        );
        for location in result.locations.iter().flatten() {
            let Some(place) = &location.physical_location else {
                continue;
            };
            let artifact = place.artifact_location.as_ref().expect("a file");
            let uri = artifact.uri.as_deref().expect("a reference");
            assert!(!uri.contains([' ', '\\', '"', '<']), "{uri}");
            let line = place.region.as_ref().and_then(|region| region.start_line);
            assert!(line.is_some_and(|line| line >= 1), "{text}");
        }
    }
    results.len()
}

/// JUnit has no standard; these are the rules of the schema that Jenkins' xUnit plugin has for it
/// (junit-10.xsd).
fn is_junit(path: &Path, failures: usize) {
    const RULES: &str = r#"
import sys, xml.etree.ElementTree as tree
suite = tree.parse(sys.argv[1]).getroot()
assert suite.tag == "testsuite", suite.tag
assert set(suite.attrib) <= {"name", "tests", "failures", "errors", "skipped", "time", "timestamp", "hostname", "id"}
assert suite.get("name")
cases = list(suite)
assert all(case.tag == "testcase" for case in cases)
assert int(suite.get("tests")) == len(cases) > 0
for tag in ("failure", "error", "skipped"):
    counted = suite.get({"failure": "failures", "error": "errors"}.get(tag, tag))
    assert int(counted) == len(suite.findall("testcase/" + tag)), tag
for case in cases:
    assert set(case.attrib) <= {"name", "classname", "time", "status", "assertions"} and case.get("name") and case.get("classname")
    assert len(case) <= 1
    for result in case:
        assert result.tag in ("failure", "error", "skipped")
        assert set(result.attrib) <= {"message", "type"} and result.get("message")
        assert chr(0xfffd) not in (result.text or ""), result.text
        if result.tag == "failure" and result.text:
            assert "\nwhy: " in result.text, result.text
print(suite.get("failures"))
"#;
    let output = Command::new("python3")
        .args(["-c", RULES])
        .arg(path)
        .output()
        .expect("python3");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        failures.to_string()
    );
}
