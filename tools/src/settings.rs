//! Settings of `record` and `attach` from a file, from the environment and from flags.
//!
//! The arguments in [`crate::cli`] are the one definition: a setting is a flag that [`SETTINGS`] names. Its
//! key in the file is the flag's name, its variable is `STACKBEAT_` and that name in capitals; values
//! are read by the flag's own parser, wherever they come from. What a flag says counts before the
//! variable, that before the file, that before the default. `docs/configuration.md` is made from the same.

mod file;
#[cfg(test)]
mod page;

pub(crate) use file::place;

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::builder::BoolishValueParser;
use clap::{Arg, ArgAction, Command, CommandFactory};

use crate::cli::{self, Cli};

/// The command that has settings, and names their table in the file.
pub(crate) const COMMAND: &str = "record";
/// The commands that take them, each those that it has.
pub(crate) const COMMANDS: &[&str] = match cfg!(target_os = "linux") {
    true => &[COMMAND, "attach"],
    false => &[],
};
/// Its flags that are settings. Not among them: what names one recording (command, output), and
/// `--agent`, because a file that lies in a folder must not name code to run.
pub(crate) const SETTINGS: [&str; 32] = [
    "interval",
    "main-interval",
    "budget",
    "probes",
    "depth",
    "await-chains",
    "buffer",
    "mode",
    "counters",
    "long-wait",
    "dump-on",
    "dump-on-slow-iteration",
    "dump-on-block",
    "dump-on-block-in",
    "dump-on-crash",
    "dump-every",
    "dump-most",
    "dump-last",
    "no-children",
    "wait-children",
    "cpus",
    "no-runtime-options",
    "no-interrupt",
    "clock",
    "start-disabled",
    "systrace",
    "compress",
    "source-maps",
    "no-symbol-cache",
    "no-debuginfod",
    "label",
    "commit",
];
/// Names the file.
pub(crate) const FILE_VARIABLE: &str = "STACKBEAT_CONFIG";
/// What the file is called.
pub(crate) const FILE_NAME: &str = "stackbeat.toml";
/// Variables that are no settings: name and what it is.
pub(crate) const OTHER_VARIABLES: [(&str, &str); 9] = [
    (
        "STACKBEAT_CONFIG",
        "the file to read settings from; empty for none",
    ),
    (
        "STACKBEAT_AGENT",
        "the agent library to preload, like `--agent`",
    ),
    (
        "STACKBEAT_SESSION",
        "set by `record` for the program: where its agent finds the session",
    ),
    (
        "STACKBEAT_IN_PROCESS",
        "set by `record --in-process` for the program: the library with the session",
    ),
    (
        "STACKBEAT_IN_PROCESS_OPTIONS",
        "the same: what that session is to record",
    ),
    (
        "STACKBEAT_IN_PROCESS_OWNER",
        "set by the program with that session: its pid, so that what it starts begins none",
    ),
    (
        "STACKBEAT_CHECK_UNWIND",
        "1: the agent repeats each reused stack as a full walk and counts differences (docs/internals/unwinding.md)",
    ),
    (
        "STACKBEAT_NO_EVENTS",
        "1: no events for `--clock auto`, for tests (docs/internals/clocks.md)",
    ),
    (
        "STACKBEAT_SUSPEND",
        "1: the recorder suspends threads in place of signals, for tests (docs/internals/clocks.md)",
    ),
];

/// Where the value of a setting comes from when no flag says it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Given {
    name: &'static str,
    value: String,
    source: Source,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    Variable(String),
    File { path: PathBuf, at: String },
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Variable(name) => f.write_str(name),
            Source::File { path, at } => write!(f, "{}:{at}", path.display()),
        }
    }
}

/// The variable of a setting.
pub(crate) fn variable(name: &str) -> String {
    format!("STACKBEAT_{}", name.to_uppercase().replace('-', "_"))
}

/// The command line's definition, with what file and environment say as defaults.
///
/// # Errors
///
/// A file that cannot be read or has something wrong in it, a variable with a wrong value; where it is
/// and what would be right.
pub(crate) fn command() -> Result<Command> {
    let command = definition();
    let mut given = file::read()?;
    for (name, value) in variables() {
        given.retain(|g| g.name != name);
        given.push(Given {
            name,
            value,
            source: Source::Variable(variable(name)),
        });
    }
    for given in &given {
        judge(&command, given)?;
    }
    Ok(COMMANDS.iter().fold(command, |command, name| {
        command.mut_subcommand(name, |recorder| {
            given.iter().fold(recorder, |recorder, given| {
                let has_it = recorder
                    .get_arguments()
                    .any(|a| a.get_long() == Some(given.name));
                match has_it {
                    true => recorder.mut_arg(id_of(given.name), |arg| {
                        arg.default_value(given.value.clone())
                    }),
                    false => recorder,
                }
            })
        })
    }))
}

/// The command line's definition. Settings that are switches take a value, so that a flag can take back
/// what a file says.
pub(crate) fn definition() -> Command {
    COMMANDS
        .iter()
        .fold(cli::grouped(Cli::command()), |command, name| {
            command.mut_subcommand(name, |recorder| {
                recorder.mut_args(|arg| match is_setting(&arg) {
                    true if matches!(arg.get_action(), ArgAction::SetTrue) => as_switch(arg),
                    _ => arg,
                })
            })
        })
}

fn as_switch(arg: Arg) -> Arg {
    arg.action(ArgAction::Set)
        .num_args(0..=1)
        .require_equals(true)
        .default_missing_value("true")
        .default_value("false")
        .hide_default_value(true)
        .value_parser(BoolishValueParser::new())
        .value_name("BOOL")
        .hide_possible_values(true)
}

fn is_setting(arg: &Arg) -> bool {
    arg.get_long().is_some_and(|name| SETTINGS.contains(&name))
}

/// The argument's name in the definition.
fn id_of(name: &str) -> String {
    name.replace('-', "_")
}

/// What the environment says. A variable that begins like a setting and is none gets a warning.
fn variables() -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    for (name, value) in std::env::vars_os() {
        let Some(name) = name.to_str().filter(|n| n.starts_with("STACKBEAT_")) else {
            continue;
        };
        if let Some(setting) = SETTINGS.into_iter().find(|s| variable(s) == name) {
            let value: OsString = value;
            if !value.is_empty() {
                found.push((setting, value.to_string_lossy().into_owned()));
            }
        } else if !is_known(name) {
            crate::terminal::warn(&format!(
                "{name}: no such setting; known are {}",
                SETTINGS.map(variable).join(", ")
            ));
        }
    }
    found
}

fn is_known(name: &str) -> bool {
    /// Of this workspace's own tests and builds.
    const OWN: [&str; 8] = [
        "BLESS",
        "CORPUS",
        "CRASH",
        "EMBED",
        "REQUIRE",
        "SAMPLE",
        "SCREENSHOTS",
        "TEST",
    ];
    let is_own = |rest: &str| OWN.iter().any(|own| rest.starts_with(own));
    OTHER_VARIABLES.iter().any(|(known, _)| *known == name)
        || name.strip_prefix("STACKBEAT_").is_some_and(is_own)
}

/// Reads a value as the flag would.
fn judge(command: &Command, given: &Given) -> Result<()> {
    let flag = format!("--{}={}", given.name, given.value);
    let arguments = ["stackbeat", COMMAND, &flag, "program"].map(OsString::from);
    let parsed = command.clone().try_get_matches_from(arguments);
    let Err(error) = parsed else { return Ok(()) };
    let said = error.to_string();
    // The first paragraph names value and flag; what follows is about the command line.
    let said = said.trim_start_matches("error: ");
    let said = said.split("\n\n").next().unwrap_or(said).trim();
    Err(anyhow::anyhow!("{said}")).with_context(|| given.source.to_string())
}

#[cfg(test)]
mod tests {
    use super::page::{arg_of, page};
    use super::*;
    use crate::testing::golden_at;

    #[test]
    fn every_setting_is_a_flag() {
        let command = definition();
        for name in SETTINGS {
            let arg = arg_of(&command, name).expect(name);
            assert_eq!(arg.get_id().as_str(), id_of(name));
            assert!(arg.get_help().is_some(), "{name}");
        }
        command.debug_assert();
    }

    #[test]
    fn the_documentation_is_made_from_the_definition() {
        golden_at("../docs/configuration.md", &page());
    }

    #[test]
    fn values_are_judged_by_the_flags_own_parser() {
        let command = definition();
        let given = |name, value: &str| Given {
            name,
            value: value.to_owned(),
            source: Source::Variable(variable(name)),
        };
        for (name, value) in [
            ("interval", "250us"),
            ("no-children", "yes"),
            ("no-children", "0"),
            ("mode", "ring"),
            ("depth", "64"),
        ] {
            judge(&command, &given(name, value)).expect(value);
        }
        for (name, value, part) in [
            ("interval", "1", "the unit is missing"),
            ("mode", "round", "[possible values: endless, ring, startup]"),
            ("no-children", "perhaps", "perhaps"),
            ("depth", "deep", "invalid digit"),
        ] {
            let error = judge(&command, &given(name, value)).expect_err(value);
            let error = format!("{error:#}");
            assert!(error.starts_with(&variable(name)), "{error}");
            assert!(error.contains(part), "{error}");
        }
    }
}
