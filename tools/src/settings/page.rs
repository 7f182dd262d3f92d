//! The page about settings, from the definition of the command line. A test compares it with what is kept.

use std::ffi::OsStr;
use std::fmt::Write;

use clap::{Arg, Command};

use super::{COMMAND, FILE_NAME, FILE_VARIABLE, OTHER_VARIABLES, SETTINGS, definition, variable};

/// docs/configuration.md.
pub(crate) fn page() -> String {
    let command = definition();
    let mut out = format!(
        "# Configuration

Settings of `stackbeat record` and `stackbeat attach` come from flags, from the environment and from a file,
with the same names, the same units and the same checks. A flag counts before a variable, a variable before
the file, the file before the default.

The file is the one that `{FILE_VARIABLE}` names, otherwise `{FILE_NAME}` in the current folder, otherwise
`stackbeat/{FILE_NAME}` in `$XDG_CONFIG_HOME` (`~/.config`). One file is read, they are not merged.
`{FILE_VARIABLE}=` (empty) reads none. What is wrong in it is said with line and column, and nothing is
recorded. Example:

    [record]
    interval = \"250us\"
    probes = [\"lock\", \"wait\", \"io\"]
    mode = \"ring\"
    buffer = \"64MiB\"
    no-children = true

Switches can be taken back by a flag: `--no-children=false`. `attach` reads the same table and takes what it
has a flag for; the rest is about programs that it would start.

<!-- Made from the definition of the flags; `cargo test` compares. -->

| key in `[record]`, flag `--` | variable | default | what it is |
|---|---|---|---|
"
    );
    for name in SETTINGS {
        let Some(arg) = arg_of(&command, name) else {
            continue;
        };
        let values: Vec<_> = arg
            .get_possible_values()
            .iter()
            .filter(|_| !arg.is_hide_possible_values_set())
            .map(|v| format!("`{}`", v.get_name()))
            .collect();
        let help = arg.get_long_help().or(arg.get_help());
        let help = help.map_or(String::new(), |help| help.to_string().replace("\n\n", " "));
        let mut what = help.trim_end_matches('.').to_owned();
        if !values.is_empty() {
            let _ = write!(what, ": {}", values.join(", "));
        }
        let default = match default_of(arg) {
            text if text.is_empty() => String::new(),
            text => format!("`{text}`"),
        };
        let _ = writeln!(
            out,
            "| `{name}` | `{}` | {default} | {what} |",
            variable(name)
        );
    }
    out.push_str("\nOther variables:\n\n| variable | what it is |\n|---|---|\n");
    for (name, what) in OTHER_VARIABLES {
        let _ = writeln!(out, "| `{name}` | {what} |");
    }
    out
}

/// The argument of a setting, in the definition.
pub(super) fn arg_of<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    let record = command.find_subcommand(COMMAND)?;
    record.get_arguments().find(|a| a.get_long() == Some(name))
}

/// Its default as a text.
pub(super) fn default_of(arg: &Arg) -> String {
    let values = arg.get_default_values();
    let texts = values.iter().map(|v| OsStr::to_string_lossy(v));
    texts.collect::<Vec<_>>().join(",")
}
