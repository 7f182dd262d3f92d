//! Switches by which a runtime names the code that it makes, set for the recorded program without a word of
//! the user's.
//!
//! Node.js: V8 writes the names of compiled and interpreted functions to `/tmp/perf-PID.map`, and gives each
//! interpreted function an entry of its own, so that it has a frame with its name (`node --help`; both may
//! stand in `NODE_OPTIONS` from Node 12 on).
//!
//! .NET: the runtime writes the names of compiled methods to `/tmp/perf-PID.map` (`PerfMapType::PERFMAP` of
//! src/coreclr/vm/perfmap.h; `DOTNET_` is read from .NET 6 on), and the assemblies that it has loaded to
//! `/tmp/perfinfo-PID.map`.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

const NODE_VARIABLE: &str = "NODE_OPTIONS";
const NODE_SWITCHES: [&str; 2] = ["--perf-basic-prof", "--interpreted-frames-native-stack"];
const DOTNET_VARIABLE: &str = "DOTNET_PerfMapEnabled";
/// A map alone: 1 is one and a dump of the code besides.
const DOTNET_MAP: &str = "3";
/// What older versions read, and newer ones where the other is not set.
const OLD_DOTNET_VARIABLE: &str = "COMPlus_PerfMapEnabled";
/// The longest first line of a script that the kernel reads (`BINPRM_BUF_SIZE` of
/// include/uapi/linux/binfmts.h).
const FIRST_LINE_BYTES: u64 = 256;

/// How the environment of a program is extended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Extension {
    /// The variable.
    pub name: &'static str,
    /// All of its value.
    pub value: OsString,
    /// The program writes maps because of this alone, and nobody has asked for them.
    pub brings_maps: bool,
}

/// What to add for a program that is started by this command. `None`: nothing.
pub(crate) fn extension(program: &Path, command: &[OsString]) -> Option<Extension> {
    let existing = std::env::var_os(NODE_VARIABLE);
    let of_node = extended(program, command, existing.as_deref());
    // What the user has chosen stays.
    let is_chosen = || {
        let variables = [DOTNET_VARIABLE, OLD_DOTNET_VARIABLE];
        variables
            .into_iter()
            .any(|name| std::env::var_os(name).is_some())
    };
    of_node.or_else(|| (is_dotnet(program) && !is_chosen()).then(of_dotnet))
}

fn of_dotnet() -> Extension {
    Extension {
        name: DOTNET_VARIABLE,
        value: DOTNET_MAP.into(),
        brings_maps: true,
    }
}

/// Whether a program is .NET's host, or one of an application: that has a file for its runtime beside it.
fn is_dotnet(program: &Path) -> bool {
    let file = fs::canonicalize(program).unwrap_or_else(|_| program.to_path_buf());
    let is_host = |path: &Path| path.file_name().is_some_and(|name| name == "dotnet");
    if is_host(program) || is_host(&file) {
        return true;
    }
    let mut settings = file.into_os_string();
    settings.push(".runtimeconfig.json");
    Path::new(&settings).is_file()
}

/// Whether a switch has V8 write a map; it takes `_` for `-`.
fn writes_map(switch: &[u8]) -> bool {
    let switch: Vec<u8> = switch
        .iter()
        .map(|byte| if *byte == b'_' { b'-' } else { *byte })
        .collect();
    switch.starts_with(b"--perf-basic-prof")
}

fn extended(program: &Path, command: &[OsString], existing: Option<&OsStr>) -> Option<Extension> {
    let existing = existing.unwrap_or_default().as_bytes();
    let is_there = |switch: &str| {
        let mut words = existing.split(u8::is_ascii_whitespace);
        words.any(|word| word == switch.as_bytes())
    };
    let missing = NODE_SWITCHES.iter().filter(|switch| !is_there(switch));
    let missing: Vec<&str> = missing.copied().collect();
    if missing.is_empty() || !is_node(program) {
        return None;
    }
    let mut value = existing.to_vec();
    for switch in missing {
        if !value.is_empty() {
            value.push(b' ');
        }
        value.extend_from_slice(switch.as_bytes());
    }
    let mut asked = (existing.split(u8::is_ascii_whitespace))
        .chain(command.iter().map(|argument| argument.as_bytes()));
    Some(Extension {
        name: NODE_VARIABLE,
        value: OsString::from_vec(value),
        brings_maps: !asked.any(writes_map),
    })
}

/// Whether a program is Node.js, or a script for it.
fn is_node(program: &Path) -> bool {
    let is_its_name = |name: &[u8]| matches!(name, b"node" | b"nodejs");
    let file = fs::canonicalize(program).unwrap_or_else(|_| program.to_path_buf());
    if [program, &file]
        .into_iter()
        .filter_map(|path| path.file_name())
        .any(|name| is_its_name(name.as_bytes()))
    {
        return true;
    }
    let mut first = Vec::new();
    let is_read =
        File::open(&file).and_then(|file| file.take(FIRST_LINE_BYTES).read_to_end(&mut first));
    let line = first.split(|byte| *byte == b'\n').next();
    let Some(interpreter) = line
        .filter(|_| is_read.is_ok())
        .and_then(|line| line.strip_prefix(b"#!"))
    else {
        return false;
    };
    // `#!/usr/bin/node`, `#!/usr/bin/env -S node --flag`.
    let mut words = interpreter.split(u8::is_ascii_whitespace);
    words.any(|word| {
        word.rsplit(|byte| *byte == b'/')
            .next()
            .is_some_and(is_its_name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dotnet_is_known_by_its_host_or_by_what_lies_beside_an_application() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str| {
            let path = folder.path().join(name);
            fs::write(&path, "").expect("written");
            path
        };
        assert!(is_dotnet(&write("dotnet")));
        let link = folder.path().join("linked");
        std::os::unix::fs::symlink(folder.path().join("dotnet"), &link).expect("linked");
        assert!(is_dotnet(&link));
        let shop = write("Shop");
        assert!(!is_dotnet(&shop));
        write("Shop.runtimeconfig.json");
        assert!(is_dotnet(&shop));
        assert!(!is_dotnet(&folder.path().join("nowhere")));
        let added = of_dotnet();
        assert_eq!(
            (added.name, &*added.value),
            (DOTNET_VARIABLE, OsStr::new("3"))
        );
        assert!(added.brings_maps);
    }

    #[test]
    fn only_node_gets_switches_and_keeps_its_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, content: &str| {
            let path = folder.path().join(name);
            fs::write(&path, content).expect("written");
            path
        };
        let node = write("node", "\x7fELF");
        let both = "--perf-basic-prof --interpreted-frames-native-stack";
        let with = |program: &Path, argument: &str, existing: &str| {
            let command = [OsString::from("node"), argument.into()];
            let found = extended(program, &command, Some(OsStr::new(existing)))?;
            assert_eq!(found.name, NODE_VARIABLE);
            Some((found.value.into_string().expect("UTF-8"), found.brings_maps))
        };
        let set = |program: &Path, existing: &str| with(program, "x.js", existing);
        assert_eq!(set(&node, ""), Some((both.to_owned(), true)));
        let without = extended(&node, &[], None).expect("is node");
        assert_eq!((without.value, without.brings_maps), (both.into(), true));
        // Maps that the user asks for are the user's.
        let asked = with(&node, "--perf_basic_prof_only_functions", "");
        assert_eq!(asked, Some((both.to_owned(), false)));
        let more = set(&node, "--max-old-space-size=99 --perf-basic-prof");
        let expected =
            "--max-old-space-size=99 --perf-basic-prof --interpreted-frames-native-stack";
        assert_eq!(more, Some((expected.to_owned(), false)));
        assert_eq!(set(&node, both), None);
        for (name, content, is_node) in [
            ("npm", "#!/usr/bin/env node\n", true),
            ("tool", "#!/usr/bin/env -S node --no-warnings\n//", true),
            ("direct", "#! /opt/node/bin/nodejs\n", true),
            ("script", "#!/bin/sh\nnode x.js\n", false),
            ("nodes", "\x7fELF node", false),
            ("empty", "", false),
        ] {
            let program = write(name, content);
            assert_eq!(set(&program, "").is_some(), is_node, "{name}");
        }
        let link = folder.path().join("linked");
        std::os::unix::fs::symlink(&node, &link).expect("linked");
        assert!(set(&link, "").is_some());
        assert!(set(&folder.path().join("nowhere"), "").is_none());
    }
}
