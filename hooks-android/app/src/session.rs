//! The process' recording, from its begin to its end. One at a time; another one may begin afterwards.

use core::ffi::c_void;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{SystemTime, UNIX_EPOCH};

use stackbeat_android::art::{self, Suspenders};
use stackbeat_android::backend::slots::Slots;
use stackbeat_android::backend::{self, Placed};
use stackbeat_android::{bionic, framework};
use stackbeat_collector::embedded::{self, Wanted};
use stackbeat_collector::session::protocol::{DumpRequest, Request};
use stackbeat_core::{agent, platform};

use crate::error::SessionError;
use crate::{log, signal, switch};

/// Traces in the folder that a new one leaves there.
const MOST_KEPT: usize = 4;
const ENDING: &str = "beat";

struct Running {
    trace: PathBuf,
    hooks: Vec<Placed>,
    /// What became of them (`stackbeat_android::doctor`).
    lines: Vec<String>,
    /// Whether calls have been tried.
    is_tried: bool,
}

static RUNNING: Mutex<Option<Running>> = Mutex::new(None);
static SLOTS: LazyLock<Slots> = LazyLock::new(Slots::default);

fn running() -> MutexGuard<'static, Option<Running>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

extern "C" fn own_thread() {
    agent::own_thread();
}

/// Begins to record into a file of its own in `folder`. Gives the trace's path.
///
/// # Errors
/// Why it does not.
///
/// # Safety
/// `env` is the calling thread's, which runs native code.
pub(crate) unsafe fn begin(
    asked: &switch::Wanted,
    folder: &Path,
    env: *mut c_void,
) -> Result<PathBuf, SessionError> {
    let mut running = running();
    if running.is_some() {
        return Err(SessionError::IsRecorded);
    }
    let table = agent::runtime_table(agent::RUNTIME_VERSION);
    if art::agent_of_process().is_some_and(|other| other != table) {
        return Err(SessionError::OtherRecorder);
    }
    // Before the session makes its first system call.
    if let Some(level) = switch::api_level() {
        platform::set_api_level(level);
    }
    std::fs::create_dir_all(folder).map_err(|source| SessionError::Folder {
        folder: folder.to_path_buf(),
        source,
    })?;
    remove_oldest(folder);
    let trace = new_path(folder);
    let wanted = Wanted {
        output: trace.clone(),
        interval_ns: asked.interval_ns,
        start_disabled: asked.start_disabled,
        mapping_folder: Some(folder.to_path_buf()),
        // `last_run` does that, and says so.
        keeps_leftovers: true,
        // What an app starts has no agent.
        no_children: true,
        ..Wanted::default()
    };
    let joined = match asked.in_memory {
        true => agent::attach_with(embedded::begin_in_memory(wanted, own_thread)?)
            .map_err(SessionError::StaysOut),
        false => join_file(embedded::begin(wanted, None, own_thread)?),
    };
    if let Err(why) = joined {
        embedded::end();
        return Err(why);
    }
    signal::start();
    // SAFETY: the agent takes part in the session; slots are changed by this library alone.
    let placed = unsafe { bionic::place(&SLOTS) };
    let mut lines = placed.hooks().lines();
    let mut hooks = placed.report.placed;
    // SAFETY: as above.
    let placed = unsafe { framework::place(&SLOTS) };
    lines.extend(placed.hooks.lines());
    hooks.extend(placed.placed);
    let suspenders = Suspenders {
        start: start_java_thread,
        groups: asked.java_groups.unwrap_or(art::DEFAULT_GROUPS),
    };
    // SAFETY: by contract; the table is this library's own.
    lines.extend(unsafe { begin_java(table, env, Some(suspenders)) });
    lines.iter().for_each(|line| agent::say(line.as_bytes()));
    *running = Some(Running {
        trace: trace.clone(),
        hooks,
        lines,
        is_tried: false,
    });
    if asked.tries_hooks {
        // SAFETY: by contract.
        unsafe { try_hooks(&mut running, env) };
    }
    Ok(trace)
}

/// The agent takes part in the session with this mapping.
fn join_file(mapping: PathBuf) -> Result<(), SessionError> {
    let path = CString::new(mapping.into_os_string().into_vec())?;
    // SAFETY: the function is looked for, in native code that may ask the dynamic linker.
    unsafe { agent::attach(&path, 0).map_err(SessionError::StaysOut) }
}

/// Adds Java to what the agent with this table records. Gives what there is to say of its hooks; what cannot
/// be is in the log, too.
///
/// # Safety
/// As [`art::begin`].
pub(crate) unsafe fn begin_java(
    agent: *const c_void,
    env: *mut c_void,
    suspenders: Option<Suspenders>,
) -> Vec<String> {
    // SAFETY: by contract.
    match unsafe { art::begin(agent, env, suspenders) } {
        Ok(hooks) => {
            hooks.missing().for_each(|line| log::say(&line));
            hooks.lines()
        }
        Err(why) => {
            let line = format!("art, not available: Java stays unrecorded: {why}");
            log::say(&line);
            vec![line]
        }
    }
}

/// What became of each hook, and which are passed by the calls that they are for. The trace says it, too.
///
/// # Errors
/// There is no recording.
///
/// # Safety
/// `env` is the calling thread's, which runs native code.
pub(crate) unsafe fn doctor(env: *mut c_void) -> Result<String, SessionError> {
    let mut running = running();
    // SAFETY: by contract.
    let lines = unsafe { try_hooks(&mut running, env) };
    let lines = lines.ok_or(SessionError::IsNotRecorded)?;
    Ok(lines.join("\n"))
}

/// Once in a recording.
///
/// # Safety
/// As [`doctor`].
unsafe fn try_hooks(running: &mut Option<Running>, env: *mut c_void) -> Option<&[String]> {
    let running = running.as_mut()?;
    if !std::mem::replace(&mut running.is_tried, true) {
        // SAFETY: by contract; the session's threads are none of the machine's.
        let tried = unsafe { art::self_test(env, in_own_thread) };
        tried.iter().for_each(|line| agent::say(line.as_bytes()));
        running.lines.extend(tried);
    }
    Some(&running.lines)
}

/// Starts a thread for threads that pass no hook: one of the session's own.
fn start_java_thread(run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    embedded::start_thread("stackbeat java", own_thread, run)
}

/// Runs this in a thread that is the session's own, and waits for it.
fn in_own_thread(run: Box<dyn FnOnce() -> Vec<String> + Send>) -> Vec<String> {
    let (result, results) = mpsc::channel();
    let run = move || _ = result.send(run());
    match embedded::start_thread("stackbeat doctor", own_thread, run) {
        // It ends without a result if it panics.
        Ok(()) => results.recv().unwrap_or_default(),
        Err(error) => vec![format!("art: no thread for the test of its hooks: {error}")],
    }
}

/// Ends it. Gives the trace, which is complete; `None`: there was none. The app runs on without hooks.
///
/// # Safety
/// The calling thread runs native code.
pub(crate) unsafe fn end() -> Option<PathBuf> {
    let Running { trace, hooks, .. } = running().take()?;
    // SAFETY: by contract; what is hooked stays loaded.
    let errors = unsafe {
        art::end();
        backend::remove_all(&framework::backends(&SLOTS), hooks)
    };
    framework::end();
    errors.iter().for_each(|error| log::say(&error.to_string()));
    agent::detach();
    embedded::end();
    Some(trace)
}

/// Writes what the session holds, or the last of it, into a trace of its own.
///
/// # Errors
/// Why it does not.
pub(crate) fn dump(output: PathBuf, last_ns: Option<u64>) -> Result<(), SessionError> {
    let request = Request::Dump(DumpRequest {
        output,
        overwrite: true,
        last_ns,
        symbolize: false,
    });
    let reply = embedded::ask(&request).ok_or(SessionError::IsNotRecorded)?;
    match reply.error {
        Some(why) => Err(SessionError::Refused(why)),
        None => Ok(()),
    }
}

/// `PROCESS-SECONDS.beat`, after the process and the time: what the last run has left stays until it is
/// completed.
fn new_path(folder: &Path) -> PathBuf {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = since_epoch.map_or(0, |since| since.as_secs());
    let names = (0u32..).map(|n| match n {
        0 => format!("{seconds}-{}.{ENDING}", std::process::id()),
        n => format!("{seconds}-{}-{n}.{ENDING}", std::process::id()),
    });
    let mut paths = names.map(|name| folder.join(name));
    paths.find(|path| !path.exists()).unwrap_or_default()
}

/// Names begin with the time, so the first ones are the oldest.
fn remove_oldest(folder: &Path) {
    let Ok(items) = std::fs::read_dir(folder) else {
        return;
    };
    let paths = items.flatten().map(|item| item.path());
    let mut traces: Vec<PathBuf> = paths
        .filter(|path| {
            path.extension()
                .is_some_and(|e| e.as_bytes() == ENDING.as_bytes())
        })
        .collect();
    traces.sort();
    let count = traces.len().saturating_sub(MOST_KEPT);
    for trace in traces.iter().take(count) {
        // It takes room until the next time.
        let _ = std::fs::remove_file(trace);
    }
}
