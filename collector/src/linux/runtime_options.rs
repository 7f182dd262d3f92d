//! Switches by which a runtime names the code that it makes, set for the recorded program without a word of the user's.
//!
//! Node.js: V8 writes the names of compiled and interpreted functions to `/tmp/perf-PID.map`, and gives each interpreted function an
//! entry of its own, so that it has a frame with its name (`node --help`; both may stand in `NODE_OPTIONS` from Node 12 on).

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

const NODE_VARIABLE: &str = "NODE_OPTIONS";
const NODE_SWITCHES: [&str; 2] = ["--perf-basic-prof", "--interpreted-frames-native-stack"];
/// The longest first line of a script that the kernel reads (`BINPRM_BUF_SIZE` of include/uapi/linux/binfmts.h).
const FIRST_LINE_BYTES: u64 = 256;

/// The variable to set for a program, with what our environment has of it. `None`: nothing is to be added.
pub(crate) fn variable(program: &Path) -> Option<(&'static str, OsString)> {
    extended(program, std::env::var_os(NODE_VARIABLE).as_deref())
}

fn extended(program: &Path, existing: Option<&OsStr>) -> Option<(&'static str, OsString)> {
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
    Some((NODE_VARIABLE, OsString::from_vec(value)))
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
    fn only_node_gets_switches_and_keeps_its_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, content: &str| {
            let path = folder.path().join(name);
            fs::write(&path, content).expect("written");
            path
        };
        let node = write("node", "\x7fELF");
        let both = "--perf-basic-prof --interpreted-frames-native-stack";
        let set = |program: &Path, existing: &str| {
            let value = extended(program, Some(OsStr::new(existing)));
            value.map(|(name, value)| (name, value.into_string().expect("UTF-8")))
        };
        assert_eq!(set(&node, ""), Some((NODE_VARIABLE, both.to_owned())));
        assert_eq!(
            extended(&node, None),
            set(&node, "").map(|(n, v)| (n, v.into()))
        );
        let more = set(&node, "--max-old-space-size=99 --perf-basic-prof");
        let expected =
            "--max-old-space-size=99 --perf-basic-prof --interpreted-frames-native-stack";
        assert_eq!(more.map(|(_, value)| value).as_deref(), Some(expected));
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
