//! The arguments, as they are typed. This one definition feeds `--help`, the man page and the shell
//! completions; the commands resolve what they get here into options.

pub(crate) mod android;
pub(crate) mod apple;
mod common_arguments;
pub(crate) mod control;
mod groups;
#[cfg(target_os = "linux")]
pub(crate) mod local;
mod other_systems;
mod recover;
mod verdict;
mod view_arguments;

use clap::{ColorChoice, Parser, Subcommand};

pub(crate) use common_arguments::ModeArg;
pub(crate) use groups::grouped;
pub(crate) use other_systems::exists_on_linux;
pub(crate) use recover::RecoverArgs;
pub(crate) use verdict::{CommitOrder, GateArgs, GateFormat, TrendArgs};
pub(crate) use view_arguments::{DiffArgs, ExportArgs, InfoArgs, OpenArgs, ReportArgs};

#[cfg(target_os = "linux")]
const EXAMPLES: &str = "\
Examples:
  stackbeat record -- python3 script.py    record it into python3.beat
  stackbeat report python3.beat            where did its time go?
  stackbeat open python3.beat              flame graph, in the browser
  stackbeat top 4711                       what does this process do now?
  stackbeat demo                           record two programs, show all";
#[cfg(not(target_os = "linux"))]
const EXAMPLES: &str = "\
Examples:
  stackbeat apple record -b com.example.app      record an app in a simulator or on a device
  stackbeat android record -p com.example.app    the same on an Android device
  stackbeat report com.example.app.beat          where did its time go?
  stackbeat open com.example.app.beat            flame graph, in the browser

Programs of this machine are recorded on Linux only.";

/// A tracer that needs no instrumentation: it shows where the time of a program goes.
///
/// It hooks the calls that a program makes anyway and records the calling thread's stack.
#[derive(Debug, Parser)]
#[command(name = "stackbeat", version, arg_required_else_help = true)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n
Exit codes: 0 it worked, 1 a check said no, 2 an error, 3 a gate cannot tell;
`record` exits as the recorded program did."))]
pub(crate) struct Cli {
    /// When to use colours; `auto` honours NO_COLOR.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    #[arg(hide_short_help = true, display_order = 900)]
    pub color: ColorChoice,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[cfg(target_os = "linux")]
    #[command(flatten)]
    Local(Box<local::LocalCommand>),
    Android(android::AndroidArgs),
    Apple(apple::AppleArgs),
    Status(control::StatusArgs),
    Start(control::StartArgs),
    Stop(control::StopArgs),
    Set(control::SetArgs),
    Mark(control::MarkArgs),
    Dump(control::DumpArgs),
    Recover(RecoverArgs),
    Report(ReportArgs),
    Open(OpenArgs),
    Export(ExportArgs),
    Gate(GateArgs),
    Trend(TrendArgs),
    Diff(DiffArgs),
    Info(InfoArgs),
    /// Print the shell completions of this command.
    #[command(after_help = "\
Examples:
  stackbeat completions bash > ~/.local/share/bash-completion/completions/stackbeat
  stackbeat completions zsh > ~/.zfunc/_stackbeat
  stackbeat completions fish > ~/.config/fish/completions/stackbeat.fish")]
    Completions {
        /// The shell to complete for.
        shell: clap_complete::Shell,
    },
    /// Print the manual page in roff: `stackbeat man | man -l -`.
    Man,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_command_keeps_its_own_flags() {
        let cli = Cli::try_parse_from(["stackbeat", "record", "--json", "ls", "-l", "--json"]);
        let Ok(Command::Local(command)) = cli.map(|c| c.command) else {
            panic!("parses as a command of Linux");
        };
        let local::LocalCommand::Record(args) = *command else {
            panic!("parses as record");
        };
        assert!(args.log.json);
        assert_eq!(args.command, ["ls", "-l", "--json"]);
    }
}
