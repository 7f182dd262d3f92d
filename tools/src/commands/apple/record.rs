//! A recording of an app: start it with the switch in its environment, wait, fetch the trace.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use stackbeat_model::Trace;

use super::Place;
use super::device::Device;
use super::simulator::Simulator;
use super::xcrun::Xcrun;
use crate::cli::apple::{AppleAppArgs, AppleRecordArgs};
use crate::commands::native_names;
use crate::{terminal, units};

/// What a build leaves for names.
const DSYMS: &str =
    "dSYM; Xcode leaves them beside the app in the build's Products, or in an archive's dSYMs";
/// Between two polls of whether it still runs.
const POLL: Duration = Duration::from_secs(1);
/// How long a session may take from its end to its complete trace. Names of functions are not looked up
/// there.
const FINISH: Duration = Duration::from_secs(20);

/// What is recorded.
pub(super) struct Wanted {
    pub(super) duration_ns: u64,
    pub(super) interval_ns: Option<u64>,
}

/// Runs the command.
pub(super) fn run(args: &AppleRecordArgs) -> Result<u8> {
    let bundle = &args.app.bundle;
    let output = args.recording.output_of(bundle);
    terminal::refuse_to_replace(&output, args.recording.force)?;
    // What is wrong with it is said before anything is recorded.
    let symbols = args.symbols.as_deref();
    let symbols = symbols.map(|folder| native_names::read(folder, DSYMS));
    let symbols = symbols.transpose()?;
    let place = connect(&args.app)?;
    let wanted = Wanted {
        duration_ns: args.recording.duration_ns,
        interval_ns: args.recording.interval_ns,
    };
    let fetched = record(&*place, bundle, &wanted)?;
    let bytes = fs::read(fetched.path()).context("the fetched trace cannot be read")?;
    fs::write(&output, bytes).with_context(|| format!("{} cannot be written", output.display()))?;
    if let Some(symbols) = &symbols {
        native_names::add_and_say(&output, symbols)?;
    }
    let trace = Trace::open(&output)?;
    terminal::say(&format!(
        "{}: {} samples of {bundle} on {}",
        output.display(),
        units::count(trace.samples()),
        place.name()
    ));
    Ok(0)
}

/// Finds where the app runs, and checks that it is there.
pub(super) fn connect(app: &AppleAppArgs) -> Result<Box<dyn Place>> {
    let xcrun = Xcrun::new(app.xcrun.as_deref());
    let place: Box<dyn Place> = match &app.simulator {
        Some(wanted) => Box::new(Simulator::find(xcrun, wanted, app.library.as_deref())?),
        None => Box::new(Device::find(xcrun, app.device.as_deref())?),
    };
    place.check(&app.bundle)?;
    Ok(place)
}

/// Starts the app anew, and fetches the trace of this recording.
pub(super) fn record(
    place: &dyn Place,
    bundle: &str,
    wanted: &Wanted,
) -> Result<tempfile::NamedTempFile> {
    let pid = place.launch(bundle, &variables(wanted))?;
    watch(place, bundle, wanted, pid)?;
    fetch(place, bundle, pid)
}

/// What the library's switch reads (apple/src/switch.rs).
fn variables(wanted: &Wanted) -> Vec<(&'static str, String)> {
    let milliseconds = wanted.duration_ns.div_ceil(1_000_000).max(1);
    let mut all = vec![
        ("STACKBEAT_RECORD", "1".to_owned()),
        ("STACKBEAT_DURATION_MS", milliseconds.to_string()),
    ];
    if let Some(ns) = wanted.interval_ns {
        all.push(("STACKBEAT_INTERVAL_US", (ns / 1000).to_string()));
    }
    all
}

/// Waits until the recording is as long as was asked for.
fn watch(place: &dyn Place, bundle: &str, wanted: &Wanted, pid: u32) -> Result<()> {
    let began = Instant::now();
    let duration = Duration::from_nanos(wanted.duration_ns);
    loop {
        let left = duration.saturating_sub(began.elapsed());
        sleep(left.min(POLL));
        if !place.is_running(pid)? {
            bail!(
                "{bundle} has ended after {:.1} s of recording; what it had recorded by then is completed at its next start",
                began.elapsed().as_secs_f64()
            );
        }
        if left.is_zero() {
            return Ok(());
        }
    }
}

/// Copies the trace as soon as it is complete.
fn fetch(place: &dyn Place, bundle: &str, pid: u32) -> Result<tempfile::NamedTempFile> {
    let fetched = tempfile::NamedTempFile::new().context("no file for what is fetched")?;
    let began = Instant::now();
    loop {
        let copied = place.fetch(bundle, fetched.path());
        let is_complete = copied
            .as_ref()
            .ok()
            .and_then(|()| is_complete(fetched.path(), pid));
        if is_complete == Some(true) {
            return Ok(fetched);
        }
        if began.elapsed() > FINISH {
            return Err(match (is_complete, copied) {
                (None, Err(error)) => error.context(format!(
                    "{bundle} runs and its trace cannot be fetched: does it link Stackbeat, and is this build not the \
                     one with StackbeatNoop? In a simulator --library brings it in (docs/platforms/apple-app.md)"
                )),
                (None, Ok(())) => anyhow!(
                    "{bundle} runs, and the trace there is that of an earlier run: does this build link Stackbeat, and \
                     not StackbeatNoop? (docs/platforms/apple-app.md)"
                ),
                (Some(_), _) => anyhow!(
                    "the session in {bundle} does not end: its trace is not complete after {} s",
                    FINISH.as_secs()
                ),
            });
        }
        sleep(POLL);
    }
}

/// Whether a trace has come to its end. `None`: it is none of this process, but one that was there before.
fn is_complete(trace: &Path, pid: u32) -> Option<bool> {
    let trace = Trace::open(trace).ok()?;
    let mut processes = trace.processes().iter();
    processes
        .any(|process| process.pid.0 == pid)
        .then(|| trace.footer().is_some())
}
