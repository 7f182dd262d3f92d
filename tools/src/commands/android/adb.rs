//! adb, and what it says when something is missing.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Result, bail};

/// adb with the device that it talks to.
#[derive(Debug)]
pub(super) struct Adb {
    program: PathBuf,
    serial: String,
}

impl Adb {
    /// Finds adb and the device: the one with this serial number, or the only one.
    pub(super) fn connect(program: Option<&Path>, serial: Option<&str>) -> Result<Adb> {
        let program = program.map_or_else(|| PathBuf::from("adb"), Path::to_path_buf);
        let listed = text(run(&program, ["devices"])?, "adb devices")?;
        let serial = choose(&listed, serial)?;
        Ok(Adb { program, serial })
    }

    /// The device's serial number.
    pub(super) fn serial(&self) -> &str {
        &self.serial
    }

    /// Runs adb for the device. An error has adb's own words.
    pub(super) fn run<const N: usize>(&self, arguments: [&str; N]) -> Result<Vec<u8>> {
        let output = self.try_to(&arguments)?;
        if !output.status.success() {
            bail!("adb {}: {}", arguments.join(" "), complaint(&output));
        }
        Ok(output.stdout)
    }

    /// The same; gives what it printed as text, without the line's end.
    pub(super) fn say<const N: usize>(&self, arguments: [&str; N]) -> Result<String> {
        let bytes = self.run(arguments)?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// Runs a command of the device's shell. `None`: it failed.
    pub(super) fn shell(&self, command: &str) -> Result<Option<String>> {
        let output = self.try_to(&["shell", command])?;
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Ok(output.status.success().then_some(said))
    }

    /// Runs a command of the device's shell, whatever its status: what it said on both streams.
    pub(super) fn shell_words(&self, command: &str) -> Result<(bool, String)> {
        let output = self.try_to(&["shell", command])?;
        let (said, errors) = (&output.stdout, &output.stderr);
        let all = [said.as_slice(), errors.as_slice()].concat();
        let all = String::from_utf8_lossy(&all).trim().to_owned();
        Ok((output.status.success(), all))
    }

    fn try_to(&self, arguments: &[&str]) -> Result<Output> {
        let all = ["-s", &self.serial]
            .into_iter()
            .chain(arguments.iter().copied());
        run(&self.program, all)
    }
}

fn run(program: &Path, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<Output> {
    match Command::new(program).args(arguments).output() {
        Ok(output) => Ok(output),
        Err(error) if error.kind() == ErrorKind::NotFound => bail!(
            "there is no `{}`: install Android's platform tools, or name adb with --adb",
            program.display()
        ),
        Err(error) => bail!("{} cannot be run: {error}", program.display()),
    }
}

fn complaint(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    let said = String::from_utf8_lossy(&output.stdout);
    match [errors.trim(), said.trim()]
        .into_iter()
        .find(|t| !t.is_empty())
    {
        Some(text) => text.to_owned(),
        None => output.status.to_string(),
    }
}

fn text(output: Output, what: &str) -> Result<String> {
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => bail!("{what}: {}", complaint(&output)),
    }
}

/// The device that is meant, of the lines that `adb devices` prints: serial number, tab, state.
fn choose(listed: &str, wanted: Option<&str>) -> Result<String> {
    let lines = listed.lines().filter_map(|line| line.split_once('\t'));
    let devices: Vec<(&str, &str)> = lines.map(|(s, state)| (s, state.trim())).collect();
    let names = || {
        let all: Vec<&str> = devices.iter().map(|(serial, _)| *serial).collect();
        all.join(", ")
    };
    let found = match (wanted, devices.as_slice()) {
        (_, []) => bail!(
            "adb knows no device: connect one, switch USB debugging on, and see that `adb devices` lists it"
        ),
        (None, [one]) => one,
        (None, _) => bail!(
            "{} devices are connected; name one with --serial: {}",
            devices.len(),
            names()
        ),
        (Some(serial), _) => match devices.iter().find(|(s, _)| *s == serial) {
            Some(device) => device,
            None => bail!("adb knows no device {serial}, only {}", names()),
        },
    };
    match found {
        (serial, "device") => Ok((*serial).to_owned()),
        (serial, "unauthorized") => bail!(
            "{serial} does not trust this computer: unlock the device and allow USB debugging in its dialog"
        ),
        (serial, state) => bail!("{serial} cannot be used: adb says `{state}`; reconnect it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "List of devices attached\n";

    fn error(lines: &str, wanted: Option<&str>) -> String {
        choose(&format!("{HEAD}{lines}"), wanted)
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn the_only_device_or_the_named_one() {
        let one = format!("{HEAD}emulator-5554\tdevice\n\n");
        assert_eq!(choose(&one, None).unwrap(), "emulator-5554");
        let two = format!("{HEAD}A1\tdevice\nB2\tdevice\n");
        assert_eq!(choose(&two, Some("B2")).unwrap(), "B2");
        assert_eq!(
            error("A1\tdevice\nB2\tdevice\n", None),
            "2 devices are connected; name one with --serial: A1, B2"
        );
        assert_eq!(
            error("A1\tdevice\n", Some("C3")),
            "adb knows no device C3, only A1"
        );
        assert!(error("", None).contains("adb knows no device: connect one"));
        assert!(error("A1\tunauthorized\n", None).contains("allow USB debugging"));
        assert_eq!(
            error("A1\toffline\n", None),
            "A1 cannot be used: adb says `offline`; reconnect it"
        );
    }
}
