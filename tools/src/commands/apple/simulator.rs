//! A simulator: its apps are processes of the Mac, and their files are the Mac's.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::xcrun::{self, Listed, Xcrun, complaint};
use super::{Place, TRACE};

/// A simulator that runs.
#[derive(Debug)]
pub(super) struct Simulator {
    xcrun: Xcrun,
    chosen: Listed,
    /// Inserted into the app.
    library: Option<PathBuf>,
}

impl Simulator {
    /// Finds the simulator that is wanted among those that are booted.
    pub(super) fn find(xcrun: Xcrun, wanted: &str, library: Option<&Path>) -> Result<Simulator> {
        let library = library.map(|library| {
            let absolute = library.canonicalize();
            absolute.with_context(|| format!("{}: there is no such library", library.display()))
        });
        let library = library.transpose()?;
        let text = xcrun.run(&["simctl", "list", "devices", "booted", "--json"], &[])?;
        let said = serde_json::from_str(&text).context("what simctl lists is no JSON")?;
        let wanted = (wanted != "booted").then_some(wanted);
        let how = "open one in Xcode, or `xcrun simctl boot NAME`";
        let chosen = xcrun::choose(
            booted(&said),
            wanted,
            ("simulator that runs", "--simulator", how),
        )?;
        Ok(Simulator {
            xcrun,
            chosen,
            library,
        })
    }

    fn container(&self, bundle: &str) -> Result<PathBuf> {
        let arguments = [
            "simctl",
            "get_app_container",
            &self.chosen.id,
            bundle,
            "data",
        ];
        let output = self.xcrun.try_to(&arguments, &[])?;
        if !output.status.success() {
            bail!(
                "{bundle} is not installed in {} (simctl says: {}); `xcrun simctl install {} APP` installs it",
                self.chosen.name,
                complaint(&output),
                self.chosen.id
            );
        }
        Ok(PathBuf::from(
            String::from_utf8_lossy(&output.stdout).trim(),
        ))
    }
}

/// The simulators in what simctl lists: by runtime.
fn booted(said: &Value) -> Vec<Listed> {
    let runtimes = said["devices"].as_object().into_iter().flatten();
    let devices = runtimes.flat_map(|(_, devices)| devices.as_array().into_iter().flatten());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    devices
        .filter(|device| device["state"] == "Booted")
        .map(|device| Listed {
            id: text(&device["udid"]),
            udid: text(&device["udid"]),
            name: text(&device["name"]),
        })
        .collect()
}

impl Place for Simulator {
    fn name(&self) -> &str {
        &self.chosen.name
    }

    fn check(&self, bundle: &str) -> Result<()> {
        self.container(bundle).map(drop)
    }

    fn launch(&self, bundle: &str, variables: &[(&str, String)]) -> Result<u32> {
        // simctl hands on what begins so, without it.
        let mut all: Vec<(String, String)> = variables
            .iter()
            .map(|(name, value)| (format!("SIMCTL_CHILD_{name}"), value.clone()))
            .collect();
        if let Some(library) = &self.library {
            let name = "SIMCTL_CHILD_DYLD_INSERT_LIBRARIES".to_owned();
            all.push((name, library.display().to_string()));
        }
        let arguments = [
            "simctl",
            "launch",
            "--terminate-running-process",
            &self.chosen.id,
            bundle,
        ];
        let said = self.xcrun.run(&arguments, &all)?;
        // It says `BUNDLE: PID`.
        let pid = said.trim().rsplit(' ').next();
        pid.and_then(|pid| pid.parse().ok())
            .with_context(|| format!("simctl does not say which process {bundle} is: {said}"))
    }

    fn is_running(&self, pid: u32) -> Result<bool> {
        let pid = pid.to_string();
        let asked = Command::new("ps")
            .args(["-p", &pid])
            .stdout(Stdio::null())
            .status();
        Ok(asked.context("ps cannot be run")?.success())
    }

    fn fetch(&self, bundle: &str, to: &Path) -> Result<()> {
        let trace = self.container(bundle)?.join(TRACE);
        std::fs::copy(&trace, to)
            .with_context(|| format!("{} cannot be copied", trace.display()))?;
        Ok(())
    }
}
