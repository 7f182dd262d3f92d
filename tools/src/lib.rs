//! The `stackbeat` command line: record a program, look at what was recorded, hand it to other tools.
//!
//! Raw arguments are parsed in `cli` (one definition feeds `--help`, the man page and the shell
//! completions), each command resolves its own into options.
//!
//! - `commands`: what each command does
//! - `summary`: sums over a trace; `render`: what they look like as text, JSON and page
//! - `export`: other formats
//! - `debuginfod`: debug files from servers
//! - `drop_causes`: words for what was lost
//!
//! Everything here runs outside the traced
//! program and may allocate, block and fail; it fails with one line that says what to do next.

#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod agent_library;
mod cli;
mod commands;
mod debuginfod;
mod drop_causes;
pub mod export;
mod meters;
mod render;
mod scopes;
mod settings;
mod source_maps;
mod summary;
mod table;
mod terminal;
#[cfg(test)]
mod testing;
mod units;
mod unrecorded;
mod user_folders;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::FromArgMatches;

/// Exit code for errors of our own (wrong usage, unreadable files).
const EXIT_ERROR: u8 = 2;
/// Exit code for "it worked, and the answer is no": a failed check.
const EXIT_NEGATIVE: u8 = 1;
/// Exit code for "it worked, and there is no answer yet": a gate with too few runs, or too noisy ones.
const EXIT_UNKNOWN: u8 = 3;

/// Parses the arguments, runs the command and turns its result into the process' exit code.
pub fn main() -> ExitCode {
    match parse().and_then(|command| command.map_or(Ok(0), run)) {
        Ok(code) => ExitCode::from(code),
        Err(error) if terminal::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::say(&format!("{}: {error:#}", terminal::error_label()));
            ExitCode::from(EXIT_ERROR)
        }
    }
}

/// What was typed; what a recording is not told comes from the settings. `None`: it was a wish for help,
/// which is printed.
fn parse() -> anyhow::Result<Option<cli::Command>> {
    let Some(mut matches) = matches(settings::definition())? else {
        return Ok(None);
    };
    let has_settings = |name| settings::COMMANDS.contains(&name);
    if matches.subcommand_name().is_some_and(has_settings) {
        let Some(with_settings) = self::matches(settings::command()?)? else {
            return Ok(None);
        };
        matches = with_settings;
    }
    let cli = cli::Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    terminal::set_color(cli.color);
    Ok(Some(cli.command))
}

/// What was typed, or `None` after the help or the version was printed. Ends the process where it makes no
/// sense.
fn matches(definition: clap::Command) -> anyhow::Result<Option<clap::ArgMatches>> {
    let asked = match definition.clone().try_get_matches() {
        Ok(matches) => return Ok(Some(matches)),
        Err(error) if error.use_stderr() => {
            let arguments = std::env::args_os().skip(1);
            match cli::exists_on_linux(&error, &definition, arguments) {
                Some(said) => bail!(said),
                None => error.exit(),
            }
        }
        Err(asked) => asked,
    };
    // `exit` would drop the error of an output that is full.
    (asked.print().and_then(|()| io::stdout().flush())).context(terminal::NOT_WRITTEN)?;
    Ok(None)
}

fn run(command: cli::Command) -> anyhow::Result<u8> {
    use cli::Command;
    use commands::{
        android, apple, control, convert, documents, gate, info, open, recover, report,
    };
    match command {
        #[cfg(target_os = "linux")]
        Command::Local(command) => commands::run_local(*command),
        Command::Status(args) => control::status(&args),
        Command::Start(args) => control::start(&args),
        Command::Stop(args) => control::stop(&args),
        Command::Set(args) => control::set(&args),
        Command::Mark(args) => control::mark(&args),
        Command::Dump(args) => control::dump(&args),
        Command::Android(args) => android::run(&args),
        Command::Apple(args) => apple::run(&args),
        Command::Recover(args) => recover::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Open(args) => open::run(&args),
        Command::Export(args) => convert::run(&args),
        Command::Gate(args) => gate::run(&args),
        Command::Trend(args) => gate::trend::run(&args),
        Command::Diff(args) => gate::diff::run(&args),
        Command::Info(args) => info::run(&args),
        Command::Completions { shell } => documents::print_completions(shell),
        Command::Man => documents::print_man_page(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_as_documented() {
        let mut command = settings::definition().term_width(100);
        command.build();
        testing::golden("help.txt", &command.render_long_help().to_string());
        for sub in command.get_subcommands_mut() {
            if sub.is_hide_set() || sub.get_name() == "help" {
                continue;
            }
            let name = format!("help-{}.txt", sub.get_name());
            testing::golden(&name, &sub.render_long_help().to_string());
        }
    }

    #[test]
    fn a_letter_forces_everywhere_or_nowhere() {
        let command = settings::definition();
        for sub in command.get_subcommands() {
            let options = sub.get_arguments().filter(|a| a.get_short() == Some('f'));
            for option in options {
                assert_eq!(option.get_long(), Some("force"), "{}", sub.get_name());
            }
        }
    }

    /// What needs more room is for `--help`.
    #[test]
    fn short_help_of_every_command_fits_a_screen() {
        let mut command = settings::definition().term_width(80);
        command.build();
        short_help_fits(&mut command);
    }

    fn short_help_fits(command: &mut clap::Command) {
        let help = command.render_help().to_string();
        assert!(help.lines().count() <= 24, "{help}");
        // clap does not wrap the line of the usage.
        let mut lines = help.lines().filter(|line| !line.starts_with("Usage:"));
        assert!(lines.all(|line| line.chars().count() <= 80), "{help}");
        // clap makes `help` itself.
        let is_ours = |sub: &&mut clap::Command| !sub.is_hide_set() && sub.get_name() != "help";
        command
            .get_subcommands_mut()
            .filter(is_ours)
            .for_each(short_help_fits);
    }
}
