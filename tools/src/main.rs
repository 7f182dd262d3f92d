//! The `stackbeat` command.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    stackbeat_tools::main()
}
