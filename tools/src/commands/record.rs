//! `stackbeat record`: resolves the arguments, runs the session, shows where it stands and how it ended.
//!
//! Standard output belongs to the recorded program; everything said here goes to standard error.

pub(crate) mod outcome;
pub(crate) mod progress;

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use anyhow::{Result, anyhow, bail};
use rustix::process::Signal;
use stackbeat_collector::session::{Dumps, Options, Outcome, Systrace};
use stackbeat_core::shm::layout::Mode;
use stackbeat_symbolize::NameSources;

use crate::EXIT_ERROR;
use crate::agent_library;
use crate::cli::local::{ClockArg, DumpArgs, DumpSignal, LogArgs, Period, RecordArgs, SystraceArg};
use crate::commands::requests::{interval, parse_probes};
use crate::commands::{open, recover};
use crate::debuginfod;
use crate::source_maps;
use crate::terminal::{self, refuse_to_replace};
use crate::user_folders::symbol_cache;

/// Interval where none is asked for, ns.
const INTERVAL_NS: u64 = 1_000_000;

/// Runs the command. The exit code is the program's; after one that a signal has ended, so does this.
pub(crate) fn run(args: &RecordArgs) -> Result<u8> {
    let options = resolve(args)?;
    if !args.log.quiet && !args.log.json {
        recover::tidy(recover::Announced::Once);
    }
    let outcome = match args.in_process {
        true => record_in_process(args, &options)?,
        false => record(&options, args.log.quiet)?,
    };
    outcome::print(&options, &outcome, &args.log);
    show(&options, &args.log);
    if let Some(signal) = ExitStatus::from_raw(outcome.wait_status).signal() {
        stackbeat_collector::die_of(signal);
    }
    Ok(exit_code(outcome.wait_status))
}

/// Opens the page where that was asked for. A page that cannot be made does not change how the program ended.
pub(crate) fn show(options: &Options, how: &LogArgs) {
    if !how.open {
        return;
    }
    // Who reads from a pipe has the trace already, and nobody writes it again.
    let opened = match options.output.is_file() {
        true => open::open(&options.output, how.quiet || how.json),
        false => Err(anyhow!("{} is no file", options.output.display())),
    };
    if let Err(error) = opened {
        terminal::warn(&format!("--open: {error:#}"));
    }
}

/// Records with progress and warnings on standard error.
pub(crate) fn record(options: &Options, quiet: bool) -> Result<Outcome> {
    let mut display = progress::Display::new(quiet);
    let outcome = stackbeat_collector::record(options, &mut |p| display.show(p));
    display.clear();
    Ok(outcome?)
}

/// Records by a session inside the program.
fn record_in_process(args: &RecordArgs, options: &Options) -> Result<Outcome> {
    let refused = [
        ("wait-children", args.wait_children),
        ("no-interrupt", args.watch.no_interrupt),
        ("clock", args.watch.clock != ClockArg::Auto),
        ("systrace", options.systrace.is_some()),
        ("dump-on", options.dumps != Dumps::default()),
    ];
    if let Some((name, _)) = refused.iter().find(|(_, is_asked)| *is_asked) {
        bail!(
            "--in-process does without --{name}: a session inside the program has no process beside it that could do that"
        );
    }
    let library = agent_library::locate_session(args.agent.as_deref())?;
    let mut display = progress::Display::new(args.log.quiet);
    let outcome =
        stackbeat_collector::record_in_process(options, &library, &mut |p| display.show(p));
    display.clear();
    Ok(outcome?)
}

/// Turns what was typed into what the session takes.
pub(crate) fn resolve(args: &RecordArgs) -> Result<Options> {
    let interval_ns = interval("--interval", args.capture.interval.unwrap_or(INTERVAL_NS))?;
    let main_interval_ns = match args.capture.main_interval {
        Some(ns) => interval("--main-interval", ns)?,
        None => interval_ns,
    };
    let probes = parse_probes(&args.capture.probes)?;
    if args.no_children && args.wait_children {
        bail!(
            "no-children and wait-children exclude each other; take one back with \
             --no-children=false or --wait-children=false"
        );
    }
    let output = match &args.destination.output {
        Some(path) => path.clone(),
        None => default_output(&args.command[0], args.destination.force),
    };
    if output.is_dir() {
        bail!("{}: is a directory; name a file with -o", output.display());
    }
    refuse_to_replace(&output, args.destination.force)?;
    let agent = agent_library::locate(args.agent.as_deref())?;
    let mut options = Options::new(args.command.clone(), agent, output);
    options.overwrite = args.destination.force;
    options.interval_ns = interval_ns;
    options.main_interval_ns = main_interval_ns;
    options.budget_percent = args.capture.budget;
    options.probes = probes;
    options.depth_limit = args.capture.depth;
    options.await_chains = args.capture.await_chains;
    options.buffer_bytes = args.capture.buffer;
    options.mode = args.capture.mode.into();
    options.follow_children = !args.no_children;
    options.wait_children = args.wait_children;
    options.cpus = args.cpus.clone();
    options.interrupt_running = !args.watch.no_interrupt;
    let keeps_interval = (args.capture.interval)
        .or(args.capture.main_interval)
        .is_some();
    options.clock = args.watch.clock_choice(keeps_interval)?;
    options.compress = args.trace.compress;
    options.names = NameSources {
        root: None,
        cache: symbol_cache(args.trace.no_symbol_cache),
        debug: debuginfod::source(args.trace.no_debuginfod),
        source_maps: source_maps::wanted(args.trace.source_maps),
    };
    options.label = args.trace.label.clone();
    options.commit = args.trace.commit.clone();
    options.shares_processor = args.shares_processor;
    options.runtime_options = !args.no_runtime_options;
    options.counters_ns = match args.watch.counters {
        Some(Period::Ns(ns)) => Some(ns),
        Some(Period::Off) => None,
        None if options.mode == Mode::Ring => None,
        None => options.counters_ns,
    };
    options.long_wait_ns = match args.watch.long_wait {
        Period::Ns(ns) => Some(ns),
        Period::Off => None,
    };
    options.dumps = dumps(&args.dumps);
    options.start_disabled = args.switch.start_disabled;
    options.systrace = match &args.trace.systrace {
        None | Some(SystraceArg::Off) => None,
        Some(SystraceArg::Auto) => Some(Systrace::Usual),
        Some(SystraceArg::At(path)) => Some(Systrace::At(path.clone())),
    };
    options.validate()?;
    Ok(options)
}

fn dumps(args: &DumpArgs) -> Dumps {
    Dumps {
        signal: args.dump_on.map(|signal| match signal {
            DumpSignal::Usr1 => Signal::USR1.as_raw(),
            DumpSignal::Usr2 => Signal::USR2.as_raw(),
            DumpSignal::Hup => Signal::HUP.as_raw(),
        }),
        slow_iteration_ns: args.dump_on_slow_iteration,
        block_ns: args.dump_on_block,
        causes: args.dump_on_block_in.clone(),
        crash: args.dump_on_crash,
        every_ns: args.dump_every,
        most: args.dump_most,
        last_ns: args.dump_last,
    }
}

/// The name of a program's file. One that runs may have put a title in the place of its arguments:
/// `redis-server unixsocket:/run/redis.sock`, `postgres: checkpointer`.
fn program_name(program: &OsStr) -> String {
    let text = program.to_string_lossy();
    let file = match text.split_once(char::is_whitespace) {
        Some((first, _)) if !Path::new(program).exists() => first.trim_end_matches(':'),
        _ => &*text,
    };
    let name = Path::new(file).file_name().unwrap_or_default();
    match name.is_empty() {
        true => "program".to_owned(),
        false => name.to_string_lossy().into_owned(),
    }
}

/// `PROGRAM.beat`, or `PROGRAM.2.beat` and so on: a recording never replaces one by accident.
fn default_output(program: &OsStr, force: bool) -> PathBuf {
    terminal::unused(Path::new(""), &program_name(program), "beat", force)
}

/// The program's exit status in a shell's convention: 128 + signal for one that was killed.
pub(crate) fn exit_code(wait_status: i32) -> u8 {
    let status = ExitStatus::from_raw(wait_status);
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128u8.wrapping_add(signal as u8),
        (None, None) => EXIT_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_of_processes_are_no_names_of_files() {
        for (program, name) in [
            ("/usr/bin/python3", "python3"),
            ("redis-server unixsocket:/run/redis.sock", "redis-server"),
            ("postgres: checkpointer ", "postgres"),
            ("nginx: master process /usr/sbin/nginx -g daemon", "nginx"),
            ("", "program"),
            ("/", "program"),
        ] {
            assert_eq!(program_name(OsStr::new(program)), name, "{program}");
        }
        let folder = tempfile::tempdir().expect("a folder");
        let spaced = folder.path().join("my program");
        std::fs::write(&spaced, "").expect("writes");
        assert_eq!(program_name(spaced.as_os_str()), "my program");
    }

    #[test]
    fn exit_codes_follow_the_shell() {
        assert_eq!(exit_code(0), 0);
        assert_eq!(exit_code(3 << 8), 3);
        assert_eq!(exit_code(9), 137);
    }
}
