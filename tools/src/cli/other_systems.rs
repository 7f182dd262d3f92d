//! What somebody is told who types a command that this system's `stackbeat` does not have.

use std::ffi::OsString;

use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

/// The commands of `cli::local`.
const ON_LINUX: [&str; 7] = ["record", "attach", "top", "ab", "doctor", "probes", "demo"];

/// Words for an error that is about a command of Linux. `None` for all others.
pub(crate) fn exists_on_linux(
    error: &Error,
    definition: &Command,
    mut arguments: impl Iterator<Item = OsString>,
) -> Option<String> {
    let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let is_command = |word: &OsString| {
        let word = word.to_str().unwrap_or_default();
        word == name || definition.find_subcommand(word).is_some()
    };
    // `stackbeat apple top` is about another one.
    let is_first = arguments
        .find(is_command)
        .is_some_and(|word| word == name.as_str());
    let is_known =
        error.kind() == ErrorKind::InvalidSubcommand && ON_LINUX.contains(&name.as_str());
    (is_first && is_known).then(|| {
        format!(
            "{name}: programs of this machine can be recorded on Linux only; `stackbeat apple record` and `stackbeat \
             android record` record apps from here, and all commands that read traces work"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn all_commands_of_linux_are_listed() {
        use clap::Subcommand;
        let local = crate::cli::local::LocalCommand::augment_subcommands(Command::new("stackbeat"));
        let visible = local.get_subcommands().filter(|c| !c.is_hide_set());
        assert_eq!(Vec::from_iter(visible.map(Command::get_name)), ON_LINUX);
    }

    #[test]
    fn a_command_of_linux_is_named_as_such_elsewhere() {
        let apple = Command::new("apple").subcommand(Command::new("record"));
        let definition = Command::new("stackbeat")
            .subcommand_required(true)
            .subcommands([Command::new("report"), apple.subcommand_required(true)]);
        let said = |words: &[&str]| {
            let arguments = || ["stackbeat"].iter().chain(words).map(OsString::from);
            let error = definition.clone().try_get_matches_from(arguments());
            exists_on_linux(&error.unwrap_err(), &definition, arguments().skip(1))
        };
        let record = said(&["record", "ls", "-l"]).expect("is of Linux");
        assert!(record.starts_with("record: ") && record.contains("stackbeat apple record"));
        assert_eq!(said(&["recrod"]), None);
        assert_eq!(said(&["apple", "top"]), None);
        assert_eq!(said(&["report", "--wrong"]), None);
    }
}
