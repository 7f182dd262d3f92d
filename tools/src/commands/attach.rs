//! `stackbeat attach`: records a program that is running already. What can be asked for is what `record`
//! takes, so the arguments become those of `record` with the process' own command line.

pub(crate) mod named_process;

use std::time::Duration;

use anyhow::{Result, bail};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use stackbeat_collector::Target;
use stackbeat_collector::session::Attachment;
use stackbeat_core::ids::Pid;

use crate::cli::local::{AttachArgs, DumpArgs, ProcessArg, RecordArgs};
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
        ProcessArg::Name(name) => named_process::find("attach", name)?,
    };
    if let Some(parent) = args.live {
        end_with(parent)?;
    }
    let target = Target::examine(Pid(pid), args.allow_seccomp)?;
    let attachment = Attachment {
        duration: args.duration.map(Duration::from_nanos),
        descendants: args.children,
        allow_seccomp: args.allow_seccomp,
    };
    let is_live = args.live.is_some();
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
    let mut options = record::resolve(&args)?;
    options.symbolize = !is_live;
    let mut display = progress::Display::new(args.log.quiet);
    let outcome =
        stackbeat_collector::attach(&options, &target, &attachment, &mut |p| display.show(p));
    display.clear();
    let outcome = outcome?;
    outcome::print(&options, &outcome, &args.log);
    record::show(&options, &args.log);
    Ok(0)
}

/// Detaches when the process ends that started this one, however it ends.
fn end_with(parent: u32) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    // It may have ended before.
    let is_there = getppid().is_some_and(|pid| u32::try_from(pid.as_raw_pid()) == Ok(parent));
    if !is_there {
        bail!("attach --live {parent}: that process has not started this one, or has ended");
    }
    Ok(())
}
