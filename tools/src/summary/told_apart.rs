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
    // Options say what a process does with what it is given, so they count where all are given the same.
    let of_program = |processes: &[&ProcessRow]| {
        let mut texts = told_apart(processes, &|argument| !argument.starts_with('-'));
        if texts.iter().all(String::is_empty) {
            texts = told_apart(processes, &|_| true);
        }
        texts
    };
    let mut by_name: BTreeMap<&str, std::vec::IntoIter<String>> = (of_name.iter())
        .map(|(name, processes)| (*name, of_program(processes).into_iter()))
        .collect();
    let text = |process: &ProcessRow| by_name.get_mut(&*process.name)?.next();
    let texts = metadata.processes.iter().map(text);
    texts.map(Option::unwrap_or_default).collect()
}

/// The names of processes, with what tells those of one program apart: `sort`, `sort [-rn]`.
pub(crate) fn names(metadata: &Metadata) -> Vec<String> {
    let told_apart = by_arguments(metadata).into_iter();
    let named = metadata.processes.iter().zip(told_apart);
    let name = |(process, which): (&ProcessRow, String)| match which.is_empty() {
        true => process.name.clone(),
        false => format!("{} [{which}]", process.name),
    };
    named.map(name).collect()
}

/// Of each process of one program: its arguments that not all of them have, of those that may be shown. Files
/// that exist for a moment are left out.
fn told_apart(processes: &[&ProcessRow], may_be_shown: &dyn Fn(&str) -> bool) -> Vec<String> {
    let is_shown = |argument: &&str| {
        !argument.is_empty() && !argument.starts_with("/tmp/cc") && may_be_shown(argument)
    };
    let arguments = |process: &&ProcessRow| -> Vec<String> {
        let all = process.command.iter().skip(1).map(String::as_str);
        all.filter(is_shown).map(str::to_owned).collect()
    };
    let arguments: Vec<Vec<String>> = processes.iter().map(arguments).collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for of_process in &arguments {
        for argument in of_process.iter().collect::<BTreeSet<_>>() {
            *counts.entry(argument).or_default() += 1;
        }
    }
    let text = |of_process: &Vec<String>| {
        let mut shown: Vec<&str> = Vec::new();
        for argument in of_process
            .iter()
            .filter(|argument| counts[argument.as_str()] < processes.len())
        {
            let short = argument.rsplit('/').find(|part| !part.is_empty());
            let short = short.unwrap_or(argument);
            if shown.len() < SHOWN && !shown.contains(&short) {
                shown.push(short);
            }
        }
        shown.join(" ")
    };
    arguments.iter().map(text).collect()
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
                process("sort", "sort"),
                process("sort", "sort -rn"),
            ],
            ..Metadata::default()
        };
        let told = by_arguments(&metadata);
        let expected = [
            "", "tables.c", "main.c", "first", "second", "", "", "", "-rn",
        ];
        assert_eq!(told, expected);
    }
}
