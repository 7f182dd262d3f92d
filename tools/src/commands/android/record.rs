//! A recording of an app: properties, start, wait, dump, pull, and what belongs to it afterwards.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use stackbeat_collector::session::protocol::{DumpRequest, Request, SessionStatus};
use stackbeat_model::Trace;

use super::adb::Adb;
use super::device_session::DeviceSession;
use super::names;
use crate::cli::android::{AndroidRecordArgs, DeviceAppArgs};
use crate::commands::native_names;
use crate::{export, terminal, units};

/// Properties of the device that an app's session reads when it begins (hooks-android/app/src/switch.rs).
const PACKAGE: &str = "debug.stackbeat.package";
const INTERVAL: &str = "debug.stackbeat.interval_us";
const DOCTOR: &str = "debug.stackbeat.doctor";
const IN_MEMORY: &str = "debug.stackbeat.in_memory";
/// A property's value that is none, for the device's shell.
const UNSET: &str = "''";
/// What a build leaves for names.
const UNSTRIPPED: &str = "library with a build id; Gradle leaves the unstripped ones in \
                          app/build/intermediates/merged_native_libs/BUILD";
/// Between two polls of whether the app still runs.
const POLL: Duration = Duration::from_secs(1);
/// What the device's own tracer records beside an app: scheduling, and what Android's framework marks.
const SYSTEM_CATEGORIES: &str = "sched freq idle am wm gfx view binder_driver dalvik";
/// Where the device's tracer may write.
const SYSTEM_TRACE: &str = "/data/misc/perfetto-traces/stackbeat.pftrace";

/// Runs the command.
pub(super) fn run(args: &AndroidRecordArgs) -> Result<u8> {
    let package = &args.app.package;
    check_name(package)?;
    let output = args.recording.output_of(package);
    terminal::refuse_to_replace(&output, args.recording.force)?;
    // What is wrong with it is said before anything is recorded.
    let retrace = args.mapping.as_deref().map(names::read).transpose()?;
    let libraries = args.symbols.as_deref();
    let libraries = libraries.map(|folder| native_names::read(folder, UNSTRIPPED));
    let libraries = libraries.transpose()?;
    let adb = connect(&args.app)?;
    let wanted = Wanted {
        duration_ns: args.recording.duration_ns,
        interval_ns: args.recording.interval_ns,
        tries_hooks: false,
        in_memory: args.in_memory,
        system_trace: args.system_trace,
    };
    let (bytes, status, system) = record(&adb, &args.app, &wanted)?;
    let bytes = match &retrace {
        Some(retrace) => {
            let (bytes, renamed) = names::replace(&bytes, retrace)?;
            terminal::say(&format!(
                "{renamed} Java methods have their names of the source"
            ));
            bytes
        }
        None => bytes,
    };
    fs::write(&output, bytes).with_context(|| format!("{} cannot be written", output.display()))?;
    if let Some(libraries) = &libraries {
        native_names::add_and_say(&output, libraries)?;
    }
    let samples = status.samples;
    terminal::say(&format!(
        "{}: {} samples of {package} on {}",
        output.display(),
        units::count(samples),
        adb.serial()
    ));
    if let Some(system) = system {
        let merged = output.with_extension("pftrace");
        system.merge_into(&output, &merged)?;
        terminal::say(&format!(
            "{}: the device's trace and the app's, on one clock, for the viewer of Perfetto",
            merged.display()
        ));
    }
    Ok(0)
}

/// What is recorded, and how.
pub(super) struct Wanted {
    pub(super) duration_ns: u64,
    pub(super) interval_ns: Option<u64>,
    /// The app tries which hooks their calls pass.
    pub(super) tries_hooks: bool,
    /// The app's records have no file.
    pub(super) in_memory: bool,
    /// With the device's own tracer beside it.
    pub(super) system_trace: bool,
}

/// The device with the app, which can be recorded there.
pub(super) fn connect(app: &DeviceAppArgs) -> Result<Adb> {
    check_name(&app.package)?;
    let adb = Adb::connect(app.adb.as_deref(), app.serial.as_deref())?;
    check_package(&adb, &app.package)?;
    Ok(adb)
}

/// Starts the app anew and records it. Gives the trace, where the session stood at its end, and the device's
/// own trace.
pub(super) fn record<'a>(
    adb: &'a Adb,
    app: &DeviceAppArgs,
    wanted: &Wanted,
) -> Result<(Vec<u8>, SessionStatus, Option<SystemTrace<'a>>)> {
    let package = &app.package;
    let _properties = Properties::set(adb, package, wanted)?;
    start(adb, package, app.activity.as_deref())?;
    let session = DeviceSession::wait(adb, package)?;
    let system = wanted
        .system_trace
        .then(|| SystemTrace::start(adb, wanted.duration_ns));
    let system = system.transpose()?;
    let status = watch(&session, package, wanted)?;
    let on_device = dump(&session, &status)?;
    // The app goes on without being recorded.
    session.ask(&Request::Stop {})?;
    let bytes = pull(adb, package, &on_device)?;
    Ok((bytes, status, system))
}

/// What stands in commands of the device's shell is a name and nothing else.
fn check_name(package: &str) -> Result<()> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    match !package.is_empty() && package.chars().all(is_part) {
        true => Ok(()),
        false => bail!("`{package}` is no package name, such as com.example.app"),
    }
}

/// The app is there, and its files can be read.
fn check_package(adb: &Adb, package: &str) -> Result<()> {
    if adb
        .shell(&format!("pm path {package}"))?
        .is_none_or(|p| p.is_empty())
    {
        bail!(
            "{package} is not installed on {}; `adb shell pm list packages` has those that are",
            adb.serial()
        );
    }
    let (is_done, said) = adb.shell_words(&format!("run-as {package} true"))?;
    if !is_done {
        bail!(
            "{package} is not debuggable, so its recording cannot be fetched: install a build with \
             android:debuggable (run-as says: {said})"
        );
    }
    Ok(())
}

/// The properties are set as long as this lives.
struct Properties<'a>(&'a Adb);

impl Properties<'_> {
    fn set<'a>(adb: &'a Adb, package: &str, wanted: &Wanted) -> Result<Properties<'a>> {
        let properties = Properties(adb);
        let us = wanted.interval_ns.map(|ns| (ns / 1000).to_string());
        let interval = us.as_deref().unwrap_or(UNSET);
        let set = |is_wanted| if is_wanted { "1" } else { UNSET };
        for (name, value) in [
            (INTERVAL, interval),
            (DOCTOR, set(wanted.tries_hooks)),
            (IN_MEMORY, set(wanted.in_memory)),
            // The last one makes the app record.
            (PACKAGE, package),
        ] {
            let (is_done, said) = adb.shell_words(&format!("setprop {name} {value}"))?;
            if !is_done {
                bail!(
                    "the property {name} cannot be set on {}: {said}",
                    adb.serial()
                );
            }
        }
        Ok(properties)
    }
}

impl Drop for Properties<'_> {
    fn drop(&mut self) {
        // Where the device is gone there is nothing to do; properties end with its next start.
        let _ = self.0.shell(&format!("setprop {PACKAGE} {UNSET}"));
    }
}

/// Starts the app anew: properties are read when its session begins.
fn start(adb: &Adb, package: &str, activity: Option<&str>) -> Result<()> {
    adb.run(["shell", &format!("am force-stop {package}")])?;
    let command = match activity {
        Some(activity) => format!("am start -n {package}/{}", shlex::try_quote(activity)?),
        None => format!("monkey -p {package} -c android.intent.category.LAUNCHER 1"),
    };
    let (is_done, said) = adb.shell_words(&command)?;
    // Both say so on failure; `am` ends with status 0 all the same.
    if !is_done || said.contains("Error") || said.contains("No activities found") {
        bail!("{package} cannot be started: {said}; name what to start with --activity");
    }
    Ok(())
}

/// Waits until the recording is as long as was asked for. Gives where the session stands then.
fn watch(session: &DeviceSession, package: &str, wanted: &Wanted) -> Result<SessionStatus> {
    let began = Instant::now();
    let duration = Duration::from_nanos(wanted.duration_ns);
    let what_is_left = match wanted.in_memory {
        true => {
            "only what its trace had by then is left; without --in-memory the rest survives, too"
        }
        false => "what it had recorded by then is completed at its next start",
    };
    loop {
        let status = session.ask(&Request::Status {}).with_context(|| {
            format!(
                "{package} has ended after {:.1} s of recording; {what_is_left}",
                began.elapsed().as_secs_f64()
            )
        })?;
        let left = duration.saturating_sub(began.elapsed());
        if left.is_zero() {
            return status
                .session
                .context("the session does not say where it stands");
        }
        std::thread::sleep(left.min(POLL));
    }
}

/// Has the session write what it holds, beside its own trace. Gives where that is.
fn dump(session: &DeviceSession, status: &SessionStatus) -> Result<PathBuf> {
    let folder = Path::new(&status.trace).parent();
    let output = folder
        .context("the session's trace has no folder")?
        .join("pulled.beat");
    session.ask(&Request::Dump(DumpRequest {
        output: output.clone(),
        overwrite: true,
        last_ns: None,
        symbolize: true,
    }))?;
    Ok(output)
}

/// Fetches a file of the app's.
fn pull(adb: &Adb, package: &str, from: &Path) -> Result<Vec<u8>> {
    let quoted = from.to_str().context("a path that is no text")?;
    let quoted = shlex::try_quote(quoted)?;
    let bytes = adb.run(["exec-out", &format!("run-as {package} cat {quoted}")])?;
    if bytes.is_empty() {
        bail!("{} of {package} is empty", from.display());
    }
    // It is here; the app's folder is no place to fill.
    let _ = adb.shell(&format!("run-as {package} rm -f {quoted}"));
    Ok(bytes)
}

/// The device's own trace, recorded meanwhile.
pub(super) struct SystemTrace<'a>(&'a Adb);

impl SystemTrace<'_> {
    fn start(adb: &Adb, duration_ns: u64) -> Result<SystemTrace<'_>> {
        let seconds = duration_ns.div_ceil(1_000_000_000);
        let (is_done, said) = adb.shell_words(&format!(
            "perfetto --background -o {SYSTEM_TRACE} -t {seconds}s {SYSTEM_CATEGORIES}"
        ))?;
        match is_done {
            true => Ok(SystemTrace(adb)),
            false => bail!(
                "the device's own tracer cannot be started: {said}; do without --system-trace"
            ),
        }
    }

    /// Both in one file. Perfetto traces can be put one after the other: each says which clock its times are
    /// of, and how it relates to the others.
    fn merge_into(self, trace: &Path, merged: &Path) -> Result<()> {
        let mut all = self.0.run(["exec-out", &format!("cat {SYSTEM_TRACE}")])?;
        let format = export::Format::Perfetto;
        let options = export::Options::default();
        export::export(&Trace::open(trace)?, format, &options, &mut all)?;
        fs::write(merged, all)
            .with_context(|| format!("{} cannot be written", merged.display()))?;
        let _ = self.0.shell(&format!("rm -f {SYSTEM_TRACE}"));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_name_is_no_command() {
        assert!(check_name("com.example.app_2").is_ok());
        for wrong in ["", "com.example; reboot", "a b", "$(id)"] {
            assert!(check_name(wrong).is_err(), "{wrong}");
        }
    }
}
