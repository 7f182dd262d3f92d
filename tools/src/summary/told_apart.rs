//! What tells processes of one program apart: the arguments that not all of them have, as the file that each
//! compiler of a build is given.

use std::collections::{BTreeMap, BTreeSet};

use super::metadata::{Metadata, ProcessRow};

/// Arguments of a process that are shown.
const SHOWN: usize = 2;

/// By the process' place in the list: what to say beside its name; empty where nothing tells it apart.
pub(crate) fn by_arguments(metadata: &Metadata) -> Vec<String> {
    let mut of_name: BTreeMap<&str, Vec<&ProcessRow>> = BTreeMap::new();
    for process in &metadata.processes {
        of_name.entry(&process.name).or_default().push(process);
    }
    // How many of a program have an argument.
    let common: BTreeMap<&str, BTreeMap<&str, usize>> = (of_name.iter())
        .map(|(name, processes)| {
            let mut counts = BTreeMap::new();
            for process in processes {
                for argument in BTreeSet::from_iter(arguments(process)) {
                    *counts.entry(argument).or_default() += 1;
                }
            }
            (*name, counts)
        })
        .collect();
    let text = |process: &ProcessRow| {
        let count = of_name[&*process.name].len();
        let is_own = |argument: &&str| common[&*process.name][argument] < count;
        let mut shown: Vec<&str> = Vec::new();
        for argument in arguments(process).filter(is_own) {
            let short = argument.rsplit('/').find(|part| !part.is_empty());
            let short = short.unwrap_or(argument);
            if shown.len() < SHOWN && !shown.contains(&short) {
                shown.push(short);
            }
        }
        shown.join(" ")
    };
    metadata.processes.iter().map(text).collect()
}

/// Those that say what a process works on: no options, and no files that exist for a moment.
fn arguments(process: &ProcessRow) -> impl Iterator<Item = &str> {
    let arguments = process.command.iter().skip(1).map(String::as_str);
    arguments.filter(|argument| {
        !argument.is_empty() && !argument.starts_with('-') && !argument.starts_with("/tmp/cc")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_compiler_of_a_build_is_told_by_its_file() {
        let process = |name: &str, command: &str| ProcessRow {
            name: name.to_owned(),
            command: command.split(' ').map(str::to_owned).collect(),
            ..ProcessRow::default()
        };
        let metadata = Metadata {
            processes: vec![
                process("make", "make -j2"),
                process(
                    "cc1",
                    "cc1 -quiet -O2 src/tables.c -dumpbase tables.c -o /tmp/ccA.s",
                ),
                process(
                    "cc1",
                    "cc1 -quiet -O2 src/main.c -dumpbase main.c -o /tmp/ccB.s",
                ),
                process("grep", "grep -rn first all/"),
                process("grep", "grep -rn second all/"),
                process("sh", "sh run.sh"),
                process("sh", "sh run.sh"),
            ],
            ..Metadata::default()
        };
        let told = by_arguments(&metadata);
        assert_eq!(told, ["", "tables.c", "main.c", "first", "second", "", ""]);
    }
}
