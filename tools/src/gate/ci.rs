//! The verdict for tools of continuous integration: JUnit, SARIF, and GitHub's workflow commands.

use std::fmt::Write;

use serde_json::{Value, json};
use stackbeat_gate::decide::{Finding, Verdict};

use super::html::escape;
use super::view::{self, Gate};

/// One test case for each metric of the whole run, and one for each finding beyond those.
pub fn junit(gate: &Gate) -> String {
    let mut cases = String::new();
    let (mut failures, mut skipped) = (0, 0);
    let mut add = |name: &str, child: Option<(&str, String, String)>| {
        let _ = write!(
            cases,
            "  <testcase classname=\"stackbeat.gate\" name=\"{}\"",
            escape(name)
        );
        match child {
            None => cases.push_str("/>\n"),
            Some((tag, message, text)) => {
                failures += usize::from(tag == "failure");
                skipped += usize::from(tag == "skipped");
                let _ = writeln!(
                    cases,
                    ">\n    <{tag} message=\"{}\">{}</{tag}>\n  </testcase>",
                    escape(&message),
                    escape(&text)
                );
            }
        }
    };
    let outcome = &gate.outcome;
    for finding in &outcome.findings {
        let line = gate.finding_line(finding);
        let name = match gate.function(finding) {
            Some(function) => format!("{}: {function}", finding.row.metric.title()),
            None => finding.row.metric.title().to_string(),
        };
        add(&name, Some(("failure", line, details(gate, finding))));
    }
    for line in gate.budget_lines() {
        add("budget", Some(("failure", line, String::new())));
    }
    let found = |metric| outcome.findings.iter().any(|f| f.row.metric == metric);
    for row in gate.rows().into_iter().filter(|r| !found(r.metric)) {
        let is_open =
            outcome.verdict == Verdict::CannotTell && row.comparison.runs_needed.is_some();
        let child = is_open.then(|| {
            let message = format!("cannot tell: {}", gate.interval(&row.comparison));
            ("skipped", message, String::new())
        });
        add(row.metric.title(), child);
    }
    let count = cases.matches("<testcase").count();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"stackbeat gate\" tests=\"{count}\" \
         failures=\"{failures}\" errors=\"0\" skipped=\"{skipped}\">\n{cases}</testsuite>\n"
    )
}

/// What is known of a finding, one line each.
fn details(gate: &Gate, finding: &Finding) -> String {
    let mut lines = vec![format!("where: {}", gate.place(finding))];
    lines.extend(gate.function(finding));
    lines.push(format!("why: {}", finding.explanation.cause.describe()));
    lines.extend(gate.evidence(finding));
    lines.extend(gate.also(finding).map(|also| format!("also: {also}")));
    lines.join("\n")
}

/// SARIF 2.1.0 (OASIS): a result for each finding, at the file and line of its function where known.
pub fn sarif(gate: &Gate) -> Value {
    let results: Vec<Value> = gate
        .outcome
        .findings
        .iter()
        .map(|finding| {
            let e = &finding.explanation;
            let name = e.function.map_or("", |f| gate.table.names.text(f));
            let mut location = json!({ "logicalLocations": [{ "name": name, "kind": "function" }] });
            if let Some((file, line)) = source(gate, finding) {
                location["physicalLocation"] = json!({
                    "artifactLocation": { "uri": file },
                    "region": { "startLine": line },
                });
            }
            json!({
                "ruleId": format!("slower/{}", e.cause.name()),
                "level": "error",
                "message": { "text": format!("{}\n{}", gate.finding_line(finding), details(gate, finding)) },
                "locations": [location],
            })
        })
        .collect();
    let mut rules: Vec<&str> = gate
        .outcome
        .findings
        .iter()
        .map(|f| f.explanation.cause.name())
        .collect();
    rules.sort_unstable();
    rules.dedup();
    let rules = rules
        .into_iter()
        .map(|cause| json!({ "id": format!("slower/{cause}") }));
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "stackbeat gate",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules.collect::<Vec<_>>(),
            } },
            "results": results,
        }],
    })
}

/// The file and line of a finding's function, the file relative to the working directory when it is in it.
fn source(gate: &Gate, finding: &Finding) -> Option<(String, u32)> {
    let (file, line) = gate.sources.get(&finding.explanation.function?)?;
    let here = std::env::current_dir().ok();
    let inside = here.and_then(|here| {
        let path = std::path::Path::new(file).strip_prefix(here).ok()?;
        Some(path.display().to_string())
    });
    Some((inside.unwrap_or_else(|| file.clone()), *line))
}

/// GitHub's workflow commands: an annotation for each finding, or one line that says how it went.
/// <https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands>
pub fn github(gate: &Gate) -> String {
    let data = |text: &str| {
        text.replace('%', "%25")
            .replace('\r', "%0D")
            .replace('\n', "%0A")
    };
    let property = |text: &str| data(text).replace(':', "%3A").replace(',', "%2C");
    let mut out = String::new();
    for finding in &gate.outcome.findings {
        let at = match source(gate, finding) {
            Some((file, line)) => format!("file={},line={line},", property(&file)),
            None => String::new(),
        };
        let _ = writeln!(
            out,
            "::error {at}title={}::{}",
            property(&gate.finding_line(finding)),
            data(&details(gate, finding))
        );
    }
    for line in gate.budget_lines() {
        let _ = writeln!(out, "::error title=stackbeat::{}", data(&line));
    }
    let level = match gate.outcome.verdict {
        Verdict::Regression => return out,
        Verdict::NoRegression => "notice",
        Verdict::CannotTell => "warning",
    };
    let _ = writeln!(
        out,
        "::{level} title=stackbeat%3A {}::{}",
        view::verdict_text(gate.outcome.verdict),
        data(&gate.headline())
    );
    out
}

#[cfg(test)]
mod tests {
    use super::super::tests::gate;
    use super::*;

    #[test]
    fn a_regression_fails_in_every_form() {
        let slower = gate(1.5);
        let junit = junit(&slower);
        assert!(junit.contains("failures=\"1\""), "{junit}");
        assert!(
            junit.contains("<failure message=\"wall time +13"),
            "{junit}"
        );
        let sarif = sarif(&slower);
        let result = &sarif["runs"][0]["results"][0];
        assert_eq!(result["ruleId"], "slower/cpu");
        let location = &result["locations"][0];
        assert_eq!(location["logicalLocations"][0]["name"], "shop::price");
        assert_eq!(
            location["physicalLocation"]["artifactLocation"]["uri"],
            "src/price.rs"
        );
        let github = github(&slower);
        assert!(
            github.starts_with("::error file=src/price.rs,line=42,title=wall time"),
            "{github}"
        );
        assert_eq!(github.lines().count(), 1);
    }

    #[test]
    fn no_regression_passes_in_every_form() {
        let same = gate(1.0);
        assert!(junit(&same).contains("failures=\"0\""));
        assert_eq!(sarif(&same)["runs"][0]["results"], json!([]));
        assert!(github(&same).starts_with("::notice title=stackbeat%3A no regression::"));
    }
}
