//! `stackbeat attach`: records a program that is running already. What can be asked for is what `record`
//! takes, so the arguments become those of `record` with the process' own command line.

use std::time::Duration;

use anyhow::Result;
use stackbeat_collector::attach::Target;
use stackbeat_collector::session::{self, Attachment};

use crate::cli::{AttachArgs, DumpArgs, RecordArgs};
use crate::record::{self, progress, summary};

/// Runs the command.
pub fn run(args: AttachArgs) -> Result<u8> {
    let target = Target::examine(args.pid, args.allow_seccomp)?;
    let attachment = Attachment {
        duration: args.duration.map(Duration::from_nanos),
        descendants: args.children,
        allow_seccomp: args.allow_seccomp,
    };
    let args = RecordArgs {
        dumps: DumpArgs::default(),
        command: target.command.iter().map(Into::into).collect(),
        output: args.output,
        force: args.force,
        interval: args.interval,
        main_interval: args.main_interval,
        budget: args.budget,
        probes: args.probes,
        depth: args.depth,
        buffer: args.buffer,
        mode: args.mode,
        no_children: args.no_children,
        wait_children: false,
        no_interrupt: args.no_interrupt,
        counters: args.counters,
        long_wait: args.long_wait,
        start_disabled: args.start_disabled,
        systrace: args.systrace,
        compress: args.compress,
        series: args.series,
        agent: args.agent,
        quiet: args.quiet,
        json: args.json,
    };
    let options = record::resolve(&args)?;
    let mut display = progress::Display::new(args.quiet);
    let outcome = session::attach(&options, &target, &attachment, &mut |p| display.show(p));
    display.clear();
    let outcome = outcome?;
    if args.json {
        eprintln!("{}", summary::json(&options, &outcome));
    } else if !args.quiet {
        eprint!("{}", summary::text(&options, &outcome));
    }
    Ok(0)
}
