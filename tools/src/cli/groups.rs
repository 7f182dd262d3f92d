//! The commands under headings, in place of clap's one list of them: `-h` is a screen, `--help` has a line
//! for each.

use std::fmt::Write;

use clap::Command;

/// What the commands are for, and which ones.
const GROUPS: [(&str, &[&str]); 6] = [
    (
        "Make a trace",
        &["record", "attach", "android", "apple", "recover"],
    ),
    (
        "Watch and steer what runs",
        &["top", "status", "start", "stop", "set", "mark", "dump"],
    ),
    (
        "See what a trace says",
        &["report", "open", "export", "diff", "info"],
    ),
    (
        "Tell whether a program became slower",
        &["gate", "ab", "trend"],
    ),
    (
        "See what works on this machine",
        &["doctor", "probes", "demo"],
    ),
    (
        "Set up the shell, read the manual",
        &["completions", "man", "help"],
    ),
];

/// Gives the command line's help its groups.
pub(crate) fn grouped(command: Command) -> Command {
    let header = *command.get_styles().get_header();
    let literal = *command.get_styles().get_literal();
    let mut short = format!("{header}Commands:{header:#}");
    let mut long = String::new();
    for (what, names) in GROUPS {
        // Some commands exist on Linux only; clap makes `help` only when it parses.
        let exists = |name: &&str| *name == "help" || command.find_subcommand(name).is_some();
        let names = Vec::from_iter(names.iter().copied().filter(exists));
        if names.is_empty() {
            continue;
        }
        let list = names
            .iter()
            .map(|name| format!("{literal}{name}{literal:#}"))
            .collect::<Vec<_>>();
        let width: usize = names.iter().map(|name| name.len() + 2).sum();
        let gap = 46_usize.saturating_sub(width);
        let _ = write!(short, "\n  {}{:gap$}{what}", list.join(", "), "");
        let _ = writeln!(long, "{header}{what}:{header:#}");
        for name in names {
            let about = command
                .find_subcommand(name)
                .and_then(Command::get_about)
                .map_or(
                    "Print the help of a command".to_owned(),
                    ToString::to_string,
                );
            let _ = writeln!(long, "  {literal}{name:<11}{literal:#}  {about}");
        }
        long.push('\n');
    }
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{{before-help}}\
         {header}Options:{header:#}\n{{options}}{{after-help}}"
    );
    command
        .before_help(short)
        .before_long_help(long.trim_end().to_owned())
        .help_template(template)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn every_command_is_in_one_group() {
        let command = Cli::command();
        let visible = command.get_subcommands().filter(|c| !c.is_hide_set());
        let mut expected: Vec<_> = visible.map(Command::get_name).chain(["help"]).collect();
        let mut grouped: Vec<_> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        expected.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, expected);
    }
}
