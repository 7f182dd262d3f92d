//! The verdict for tools of continuous integration: JUnit, SARIF, and GitHub's workflow commands.

use std::fmt::Write;

use serde_json::{Value, json};
use stackbeat_gate::compare::Answer;
use stackbeat_gate::decide::{Finding, Verdict};
use stackbeat_gate::run::NameId;

use super::read_run::Sources;
use super::view::{self, Gate};
use crate::render::markup::escape;

/// What such tools get.
#[derive(Debug)]
pub(super) struct CiReport {
    /// `stackbeat gate`.
    pub tool: &'static str,
    pub verdict: Verdict,
    pub headline: String,
    pub cases: Vec<Case>,
}

/// A test case.
#[derive(Debug)]
pub(super) struct Case {
    pub name: String,
    pub result: CaseResult,
}

#[derive(Debug)]
pub(super) enum CaseResult {
    Passed,
    /// Cannot tell, and why.
    Skipped(String),
    /// More was counted, which is no failure.
    Noted(Failure),
    Failed(Failure),
}

/// Something that became worse.
#[derive(Debug)]
pub(super) struct Failure {
    pub headline: String,
    /// What is known of it, one line each.
    pub details: String,
    /// What kind it is, for SARIF.
    pub rule: String,
    pub function: String,
    /// File and line of the function, where known.
    pub source: Option<(String, u32)>,
}

impl Failure {
    /// A budget that was exceeded, as the line says.
    pub(super) fn over_budget(line: String) -> Failure {
        Failure {
            headline: line,
            details: String::new(),
            rule: "over-budget".into(),
            function: String::new(),
            source: None,
        }
    }
}

impl CiReport {
    /// What became worse or more, and whether it fails.
    fn reported(&self) -> impl Iterator<Item = (bool, &Failure)> {
        self.cases.iter().filter_map(|case| match &case.result {
            CaseResult::Failed(failure) => Some((true, failure)),
            CaseResult::Noted(failure) => Some((false, failure)),
            _ => None,
        })
    }
}

/// One test case for each metric of the whole run, and one for each finding beyond those.
pub(super) fn report(gate: &Gate) -> CiReport {
    let outcome = &gate.outcome;
    let case = |finding: &Finding, result: fn(Failure) -> CaseResult, kind: &str| {
        let e = &finding.explanation;
        Case {
            name: match gate.function(finding) {
                Some(function) => format!("{}: {function}", finding.row.metric.title()),
                None => finding.row.metric.title().to_string(),
            },
            result: result(Failure {
                headline: gate.finding_line(finding),
                details: details(gate, finding),
                rule: format!("{kind}/{}", e.cause.name()),
                function: e.function.map_or("", |f| gate.table.names.text(f)).into(),
                source: e.function.and_then(|f| source(&gate.sources, f)),
            }),
        }
    };
    let failed = outcome.findings.iter();
    let mut cases: Vec<Case> = failed
        .map(|finding| case(finding, CaseResult::Failed, "slower"))
        .collect();
    let noted = outcome.notices.iter();
    cases.extend(noted.map(|finding| case(finding, CaseResult::Noted, "more")));
    cases.extend(gate.budget_lines().into_iter().map(|line| Case {
        name: "budget".into(),
        result: CaseResult::Failed(Failure::over_budget(line)),
    }));
    let found = |metric| gate.reported().any(|(_, f)| f.row.metric == metric);
    if outcome.verdict == Verdict::CannotTell && outcome.obstacle.is_some() {
        cases.push(Case {
            name: "gate".into(),
            result: CaseResult::Skipped(format!("cannot tell: {}", gate.headline())),
        });
    }
    cases.extend(
        gate.rows()
            .into_iter()
            .filter(|r| !found(r.metric))
            .map(|row| {
                // Found, but not confirmed by fresh runs.
                let c = &row.comparison;
                let is_retracted =
                    row.metric.is_cost() && c.answer == Answer::Higher && c.p.is_some();
                let is_open = outcome.verdict == Verdict::CannotTell
                    && (is_retracted || row.comparison.runs_needed.is_some());
                Case {
                    name: row.metric.title().into(),
                    result: match is_open {
                        true => CaseResult::Skipped(format!(
                            "cannot tell: {}",
                            gate.interval(&row.comparison)
                        )),
                        false => CaseResult::Passed,
                    },
                }
            }),
    );
    CiReport {
        tool: "stackbeat gate",
        verdict: outcome.verdict,
        headline: gate.headline(),
        cases,
    }
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

/// The file and line of a function, the file relative to the working directory when it is in it.
pub(super) fn source(sources: &Sources, function: NameId) -> Option<(String, u32)> {
    let (file, line) = sources.get(&function)?;
    let here = std::env::current_dir().ok();
    let inside = here.and_then(|here| {
        let path = std::path::Path::new(file).strip_prefix(here).ok()?;
        Some(path.display().to_string())
    });
    Some((inside.unwrap_or_else(|| file.clone()), *line))
}

/// The report that most CI systems show as test results.
pub(super) fn junit(report: &CiReport) -> String {
    let class = report.tool.replace(' ', ".");
    let mut cases = String::new();
    let (mut failures, mut skipped) = (0, 0);
    for case in &report.cases {
        let _ = write!(
            cases,
            "  <testcase classname=\"{class}\" name=\"{}\"",
            escape(&case.name)
        );
        let (tag, message, text) = match &case.result {
            CaseResult::Passed => {
                cases.push_str("/>\n");
                continue;
            }
            CaseResult::Noted(f) => {
                let text = format!("{}\n{}", f.headline, f.details);
                let text = escape(&text);
                let _ = writeln!(
                    cases,
                    ">\n    <system-out>{text}</system-out>\n  </testcase>"
                );
                continue;
            }
            CaseResult::Skipped(why) => ("skipped", why, ""),
            CaseResult::Failed(f) => ("failure", &f.headline, f.details.as_str()),
        };
        failures += usize::from(tag == "failure");
        skipped += usize::from(tag == "skipped");
        let _ = writeln!(
            cases,
            ">\n    <{tag} message=\"{}\">{}</{tag}>\n  </testcase>",
            escape(message),
            escape(text)
        );
    }
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"{}\" tests=\"{}\" \
         failures=\"{failures}\" errors=\"0\" skipped=\"{skipped}\">\n{cases}</testsuite>\n",
        report.tool,
        report.cases.len()
    )
}

/// SARIF 2.1.0 (OASIS): a result for each failure and notice, at the file and line of its function where
/// known.
pub(super) fn sarif(report: &CiReport) -> Value {
    let results: Vec<Value> = report
        .reported()
        .map(|(is_failure, failure)| {
            let mut location = json!({});
            if !failure.function.is_empty() {
                location["logicalLocations"] =
                    json!([{ "name": failure.function, "kind": "function" }]);
            }
            if let Some((file, line)) = &failure.source {
                let physical = &mut location["physicalLocation"];
                physical["artifactLocation"] = json!({ "uri": uri(file) });
                // Lines begin at 1 there.
                if *line > 0 {
                    physical["region"] = json!({ "startLine": line });
                }
            }
            json!({
                "ruleId": failure.rule,
                "level": if is_failure { "error" } else { "note" },
                "message": { "text": format!("{}\n{}", failure.headline, failure.details) },
                "locations": [location],
            })
        })
        .collect();
    let mut rules: Vec<&str> = report.reported().map(|(_, f)| f.rule.as_str()).collect();
    rules.sort_unstable();
    rules.dedup();
    let rules = rules.into_iter().map(|rule| json!({ "id": rule }));
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": report.tool,
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules.collect::<Vec<_>>(),
            } },
            "results": results,
        }],
    })
}

/// A path as a reference of RFC 3986: all but its unreserved characters and slashes encoded; an absolute one
/// as a `file:` URI.
fn uri(path: &str) -> String {
    let mut uri = String::from(if path.starts_with('/') { "file://" } else { "" });
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                uri.push(byte.into())
            }
            _ => {
                let _ = write!(uri, "%{byte:02X}");
            }
        }
    }
    uri
}

/// GitHub's workflow commands: an annotation for each failure and notice, and without a failure one line that
/// says how it went.
/// <https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands>
pub(super) fn github(report: &CiReport) -> String {
    let data = |text: &str| {
        text.replace('%', "%25")
            .replace('\r', "%0D")
            .replace('\n', "%0A")
    };
    let property = |text: &str| data(text).replace(':', "%3A").replace(',', "%2C");
    let mut out = String::new();
    for (is_failure, failure) in report.reported() {
        let at = match &failure.source {
            Some((file, 0)) => format!("file={},", property(file)),
            Some((file, line)) => format!("file={},line={line},", property(file)),
            None => String::new(),
        };
        let (title, text) = match failure.details.as_str() {
            "" => ("stackbeat", failure.headline.as_str()),
            details => (failure.headline.as_str(), details),
        };
        let level = if is_failure { "error" } else { "notice" };
        let _ = writeln!(
            out,
            "::{level} {at}title={}::{}",
            property(title),
            data(text)
        );
    }
    let level = match report.verdict {
        Verdict::Regression => return out,
        Verdict::NoRegression => "notice",
        Verdict::CannotTell => "warning",
    };
    let _ = writeln!(
        out,
        "::{level} title=stackbeat%3A {}::{}",
        view::verdict_text(report.verdict),
        data(&report.headline)
    );
    out
}

#[cfg(test)]
mod tests {
    use super::super::tests::gate;
    use super::*;

    #[test]
    fn a_regression_fails_in_every_form() {
        let slower = report(&gate(1.5));
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
        // A line that is not known is in none of them.
        let mut no_line = slower;
        for case in &mut no_line.cases {
            if let CaseResult::Failed(failure) = &mut case.result {
                failure.source = Some(("src/price.rs".to_owned(), 0));
            }
        }
        let text = super::github(&no_line);
        assert!(
            text.starts_with("::error file=src/price.rs,title="),
            "{text}"
        );
        let result = &super::sarif(&no_line)["runs"][0]["results"][0];
        let physical = &result["locations"][0]["physicalLocation"];
        assert_eq!(physical["region"], Value::Null);
        assert_eq!(physical["artifactLocation"]["uri"], "src/price.rs");
    }

    #[test]
    fn paths_are_references() {
        assert_eq!(uri("src/price.rs"), "src/price.rs");
        assert_eq!(uri("a b/c:ü.rs"), "a%20b/c%3A%C3%BC.rs");
        assert_eq!(uri("/usr/src/a.c"), "file:///usr/src/a.c");
    }

    #[test]
    fn no_regression_passes_in_every_form() {
        let same = report(&gate(1.0));
        assert!(junit(&same).contains("failures=\"0\""));
        assert_eq!(sarif(&same)["runs"][0]["results"], json!([]));
        assert!(github(&same).starts_with("::notice title=stackbeat%3A no regression::"));
    }
}
