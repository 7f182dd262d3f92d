//! A device, reached by devicectl.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::xcrun::{self, Listed, Xcrun};
use super::{Place, TRACE};

/// A device that is paired with this Mac.
#[derive(Debug)]
pub(super) struct Device {
    xcrun: Xcrun,
    chosen: Listed,
}

impl Device {
    /// Finds the device that is wanted, or the only one that can be reached.
    pub(super) fn find(xcrun: Xcrun, wanted: Option<&str>) -> Result<Device> {
        let said = xcrun.devicectl(&["list", "devices"])?;
        let how = "connect one, trust this Mac on it, and see that `xcrun devicectl list devices` has it; or \
                   record in a simulator with --simulator booted";
        let chosen = xcrun::choose(reachable(&said), wanted, ("device", "--device", how))?;
        Ok(Device { xcrun, chosen })
    }

    fn ask(&self, words: &[&str], options: &[&str]) -> Result<Value> {
        let mut all = vec!["device"];
        all.extend(words);
        all.extend(["--device", self.chosen.id.as_str()]);
        all.extend(options);
        self.xcrun.devicectl(&all)
    }
}

/// The devices in what devicectl lists, without those that are paired and away.
fn reachable(said: &Value) -> Vec<Listed> {
    let devices = said["devices"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    devices
        .filter(|device| device["connectionProperties"]["tunnelState"] != "unavailable")
        .map(|device| Listed {
            id: text(&device["identifier"]),
            udid: text(&device["hardwareProperties"]["udid"]),
            name: text(&device["deviceProperties"]["name"]),
        })
        .collect()
}

impl Place for Device {
    fn name(&self) -> &str {
        &self.chosen.name
    }

    fn check(&self, bundle: &str) -> Result<()> {
        let said = self.ask(&["info", "apps"], &["--bundle-id", bundle])?;
        let apps = said["apps"].as_array().into_iter().flatten();
        let mut identifiers = apps.map(|app| &app["bundleIdentifier"]);
        match identifiers.any(|identifier| identifier == bundle) {
            true => Ok(()),
            false => bail!(
                "{bundle} is not installed on {}; run it from Xcode once, with a development certificate",
                self.chosen.name
            ),
        }
    }

    fn launch(&self, bundle: &str, variables: &[(&str, String)]) -> Result<u32> {
        let environment: serde_json::Map<String, Value> = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Value::from(value.as_str())))
            .collect();
        let environment = Value::Object(environment).to_string();
        let options = [
            "--terminate-existing",
            "--environment-variables",
            &environment,
            bundle,
        ];
        let said = self.ask(&["process", "launch"], &options)?;
        let pid = said["process"]["processIdentifier"].as_u64();
        pid.and_then(|pid| u32::try_from(pid).ok())
            .with_context(|| format!("devicectl does not say which process {bundle} is: {said}"))
    }

    fn is_running(&self, pid: u32) -> Result<bool> {
        let said = self.ask(&["info", "processes"], &[])?;
        let mut all = said["runningProcesses"].as_array().into_iter().flatten();
        Ok(all.any(|process| process["processIdentifier"] == pid))
    }

    fn fetch(&self, bundle: &str, to: &Path) -> Result<()> {
        let to = to.to_str().context("a path that is no text")?;
        let options = [
            "--domain-type",
            "appDataContainer",
            "--domain-identifier",
            bundle,
            "--source",
            TRACE,
            "--destination",
            to,
        ];
        self.ask(&["copy", "from"], &options).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_that_are_away_are_left_out() {
        let device = |name: &str, state: &str| {
            serde_json::json!({
                "identifier": format!("id of {name}"),
                "hardwareProperties": {"udid": "u"},
                "deviceProperties": {"name": name},
                "connectionProperties": {"tunnelState": state},
            })
        };
        let said = serde_json::json!({
            "devices": [device("here", "connected"), device("away", "unavailable"), device("idle", "disconnected")]
        });
        let names: Vec<_> = reachable(&said).into_iter().map(|one| one.name).collect();
        assert_eq!(names, ["here", "idle"]);
        assert!(reachable(&Value::Null).is_empty());
    }
}
