//! xcrun, which finds and runs Xcode's tools.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The program.
#[derive(Debug)]
pub(super) struct Xcrun(PathBuf);

impl Xcrun {
    pub(super) fn new(program: Option<&Path>) -> Xcrun {
        Xcrun(program.map_or_else(|| PathBuf::from("xcrun"), Path::to_path_buf))
    }

    /// Runs a tool, whatever its status. `variables` are added to its environment.
    pub(super) fn try_to(
        &self,
        arguments: &[&str],
        variables: &[(String, String)],
    ) -> Result<Output> {
        let mut command = Command::new(&self.0);
        command
            .args(arguments)
            .envs(variables.iter().map(|(name, value)| (name, value)));
        match command.output() {
            Ok(output) => Ok(output),
            Err(error) if error.kind() == ErrorKind::NotFound => bail!(
                "there is no `{}`: this needs a Mac with Xcode, or name xcrun with --xcrun",
                self.0.display()
            ),
            Err(error) => bail!("{} cannot be run: {error}", self.0.display()),
        }
    }

    /// Runs a tool, and gives what it prints. An error has the tool's own words.
    pub(super) fn run(&self, arguments: &[&str], variables: &[(String, String)]) -> Result<String> {
        let output = self.try_to(arguments, variables)?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => bail!("xcrun {}: {}", arguments.join(" "), complaint(&output)),
        }
    }

    /// Runs devicectl, and gives the result that it writes as JSON: what it prints is for people, and
    /// changes.
    pub(super) fn devicectl(&self, arguments: &[&str]) -> Result<Value> {
        let folder = tempfile::tempdir().context("no folder for what devicectl says")?;
        let file = folder.path().join("said.json");
        let name = file.display().to_string();
        let mut all = vec!["devicectl"];
        all.extend(arguments);
        all.extend(["--json-output", name.as_str()]);
        self.run(&all, &[])?;
        let what = || format!("what devicectl {} says cannot be read", arguments.join(" "));
        let text = std::fs::read(&file).with_context(what)?;
        let mut said: Value = serde_json::from_slice(&text).with_context(what)?;
        Ok(said["result"].take())
    }
}

/// What a tool that failed has said.
pub(super) fn complaint(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    let said = String::from_utf8_lossy(&output.stdout);
    let words = [errors.trim(), said.trim()];
    match words.into_iter().find(|text| !text.is_empty()) {
        Some(text) => text.to_owned(),
        None => output.status.to_string(),
    }
}

/// A simulator or a device: its identifier, other words for it, and the name that people give it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) id: String,
    pub(super) udid: String,
    pub(super) name: String,
}

/// The one that is wanted, or the only one. `kind` and `option` are for errors.
pub(super) fn choose(
    listed: Vec<Listed>,
    wanted: Option<&str>,
    (kind, option, how): (&str, &str, &str),
) -> Result<Listed> {
    let names = || {
        let all = listed
            .iter()
            .map(|one| format!("{} ({})", one.name, one.id));
        all.collect::<Vec<_>>().join(", ")
    };
    if listed.is_empty() {
        bail!("Xcode knows no {kind}: {how}");
    }
    let fits = |one: &&Listed| {
        wanted.is_none_or(|wanted| {
            [&one.id, &one.udid, &one.name]
                .iter()
                .any(|is| *is == wanted)
        })
    };
    let found: Vec<_> = listed.iter().filter(fits).collect();
    match (found.as_slice(), wanted) {
        ([one], _) => Ok((*one).clone()),
        ([], Some(wanted)) => bail!("Xcode knows no {kind} `{wanted}`, only {}", names()),
        _ => bail!(
            "there are {} of them; name one {kind} with {option}: {}",
            found.len(),
            names()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_one_or_the_named_one() {
        let one = |id: &str, name: &str| Listed {
            id: id.to_owned(),
            udid: format!("udid of {id}"),
            name: name.to_owned(),
        };
        let words = ("device", "--device", "connect one");
        let both = || vec![one("A", "Red"), one("B", "Blue")];
        let error = |listed, wanted| choose(listed, wanted, words).unwrap_err().to_string();
        assert_eq!(choose(vec![one("A", "Red")], None, words).unwrap().id, "A");
        for wanted in ["B", "Blue", "udid of B"] {
            assert_eq!(choose(both(), Some(wanted), words).unwrap().id, "B");
        }
        assert_eq!(
            error(both(), None),
            "there are 2 of them; name one device with --device: Red (A), Blue (B)"
        );
        assert_eq!(
            error(both(), Some("C")),
            "Xcode knows no device `C`, only Red (A), Blue (B)"
        );
        assert_eq!(
            error(Vec::new(), None),
            "Xcode knows no device: connect one"
        );
    }
}
