//! `stackbeat attach`: records a program that is running already. What can be asked for is what `record`
//! takes, so the arguments become those of `record` with the process' own command line.

mod named_process;

use std::time::Duration;

use anyhow::{Result, bail};
use stackbeat_collector::Target;
use stackbeat_collector::session::Attachment;
use stackbeat_core::ids::Pid;

use crate::cli::{AttachArgs, DumpArgs, ProcessArg, RecordArgs};
use crate::commands::record::{self, outcome, progress};

/// Runs the command.
pub(crate) fn run(args: AttachArgs) -> Result<u8> {
    if !args.others.is_empty() {
        bail!(
            "attach {} {}: one recording is of one process; name the parent of all with --children, or give each an attach of \
             its own",
            match &args.process {
                ProcessArg::Pid(pid) => pid.to_string(),
                ProcessArg::Name(name) => name.clone(),
            },
            args.others.join(" ")
        );
    }
    let pid = match &args.process {
        ProcessArg::Pid(pid) => *pid,
        ProcessArg::Name(name) => named_process::find(name)?,
    };
    let target = Target::examine(Pid(pid), args.allow_seccomp)?;
    let attachment = Attachment {
        duration: args.duration.map(Duration::from_nanos),
        descendants: args.children,
        allow_seccomp: args.allow_seccomp,
    };
    let args = RecordArgs {
        destination: args.destination,
        capture: args.capture,
        no_children: args.no_children,
        wait_children: false,
        in_process: false,
        cpus: None,
        no_runtime_options: false,
        shares_processor: false,
        watch: args.watch,
        dumps: DumpArgs::default(),
        switch: args.switch,
        trace: args.trace,
        agent: args.agent,
        log: args.log,
        command: target.command.iter().map(Into::into).collect(),
    };
    let options = record::resolve(&args)?;
    let mut display = progress::Display::new(args.log.quiet);
    let outcome =
        stackbeat_collector::attach(&options, &target, &attachment, &mut |p| display.show(p));
    display.clear();
    let outcome = outcome?;
    outcome::print(&options, &outcome, &args.log);
    record::show(&options, &args.log);
    Ok(0)
}
