//! The session of this app: begun, steered, ended.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use stackbeat_collector::embedded::{self, BeginError, Wanted};
use stackbeat_collector::session::protocol::{DumpRequest, Reply, Request, Settings};
use stackbeat_core::agent;

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// There is no folder of the app's own.
    #[error("HOME is not set, so the trace has no place: name an output")]
    NoHome,
    /// The folder of the trace cannot be made.
    #[error("{}: the folder cannot be made", folder.display())]
    Folder {
        /// Which one.
        folder: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The session could not begin.
    #[error(transparent)]
    Begin(#[from] BeginError),
    /// The agent takes part in another session, or has switched itself off.
    #[error("the agent cannot take part in the session: {0}")]
    Join(String),
    /// A thread for the end could not be started.
    #[error("the thread that ends the session cannot be started")]
    Timer(#[source] std::io::Error),
    /// A thread for the begin could not be started.
    #[error("the thread that begins the session cannot be started")]
    Beginner(#[source] std::io::Error),
    /// No session is under way.
    #[error("there is no session: call stackbeat_app_start first")]
    None,
    /// The session has refused it.
    #[error("{0}")]
    Refused(String),
}

/// Held by the thread that begins or ends a session.
static SESSIONS: Mutex<Sessions> = Mutex::new(Sessions {
    started_count: 0,
    one_is_coming: false,
});
/// None is coming any more.
static NONE_IS_COMING: Condvar = Condvar::new();

struct Sessions {
    /// How many have begun.
    started_count: u64,
    /// [`start_soon`] was called, and its session has neither begun nor failed.
    one_is_coming: bool,
}

/// Waits until no other thread begins or ends a session.
fn alone() -> MutexGuard<'static, Sessions> {
    let sessions = SESSIONS.lock().unwrap_or_else(PoisonError::into_inner);
    NONE_IS_COMING
        .wait_while(sessions, |sessions| sessions.one_is_coming)
        .unwrap_or_else(PoisonError::into_inner)
}

extern "C" fn own_thread() {
    agent::own_thread();
}

/// It writes into the trace what became of the hooks, so it is one of the trace's threads.
extern "C" fn recorded_thread() {}

/// Where the trace goes if nobody says where: a folder that the system does not save elsewhere, and that a
/// computer can read.
///
/// # Errors
/// The app has no home.
pub fn default_output() -> Result<PathBuf, SessionError> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    let home = PathBuf::from(home.ok_or(SessionError::NoHome)?);
    Ok(home.join("Library/Caches/stackbeat/app.beat"))
}

/// Begins the session, and ends it after `duration`. Returns when hooks are in place.
///
/// # Errors
/// Why there is none; then nothing is left of the attempt.
pub fn start(wanted: Wanted, duration: Option<Duration>) -> Result<(), SessionError> {
    begin(&mut alone(), wanted, duration)
}

/// The same on a thread of its own: this one waits for nothing. What goes wrong is told to `failed`. Whoever
/// asks something of the session meanwhile waits until it has begun.
///
/// # Errors
/// There is no such thread.
pub fn start_soon(
    wanted: Wanted,
    duration: Option<Duration>,
    failed: fn(&SessionError),
) -> Result<(), SessionError> {
    let is_coming = |is_coming| {
        let mut sessions = SESSIONS.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.one_is_coming = is_coming;
        sessions
    };
    drop(is_coming(true));
    let begin = move || {
        // A panic is a thread's end; nobody may wait for it.
        let outcome = std::panic::catch_unwind(|| {
            let mut sessions = SESSIONS.lock().unwrap_or_else(PoisonError::into_inner);
            begin(&mut sessions, wanted, duration)
        });
        drop(is_coming(false));
        NONE_IS_COMING.notify_all();
        if let Ok(Err(error)) = outcome {
            failed(&error);
        }
    };
    embedded::start_thread("stackbeat start", recorded_thread, begin).map_err(|error| {
        drop(is_coming(false));
        SessionError::Beginner(error)
    })
}

fn begin(
    sessions: &mut Sessions,
    wanted: Wanted,
    duration: Option<Duration>,
) -> Result<(), SessionError> {
    static AT_EXIT: Once = Once::new();
    if let Some(folder) = wanted.output.parent() {
        std::fs::create_dir_all(folder).map_err(|source| SessionError::Folder {
            folder: folder.to_owned(),
            source,
        })?;
    }
    let mapping = embedded::begin(wanted, None, own_thread)?;
    let joined = CString::new(mapping.as_os_str().as_bytes())
        .map_err(|error| error.to_string())
        .and_then(|path| {
            // Threads of the session run already, so this is no process that begins. SAFETY: the function is
            // looked for.
            unsafe { agent::attach(&path, 0) }.map_err(|refusal| format!("{refusal:?}"))
        });
    if let Err(reason) = joined {
        embedded::end();
        return Err(SessionError::Join(reason));
    }
    for line in hooks::place() {
        agent::say(line.as_bytes());
    }
    // SAFETY: a function of this library, which stays.
    AT_EXIT.call_once(|| _ = unsafe { libc::atexit(process_ends) });
    sessions.started_count += 1;
    let number = sessions.started_count;
    if let Some(duration) = duration {
        let timer = move || {
            std::thread::sleep(duration);
            // Somebody else may have ended it, and begun another one.
            let sessions = alone();
            if sessions.started_count == number && embedded::is_recording() {
                end();
            }
        };
        let started = embedded::start_thread("stackbeat timer", own_thread, timer);
        if let Err(error) = started {
            end();
            return Err(SessionError::Timer(error));
        }
    }
    Ok(())
}

/// Ends the session. The trace is complete then.
///
/// # Errors
/// There is none.
pub fn stop() -> Result<(), SessionError> {
    let _alone = alone();
    if !embedded::is_recording() {
        return Err(SessionError::None);
    }
    end();
    Ok(())
}

fn end() {
    hooks::take_away();
    agent::detach();
    embedded::end();
}

/// The process ends: its trace is complete afterwards. Hooks stay, for what other threads still do.
extern "C" fn process_ends() {
    let _ = std::panic::catch_unwind(|| {
        agent::process_exiting();
        embedded::end();
    });
}

fn ask(request: &Request) -> Result<Reply, SessionError> {
    drop(alone());
    let reply = embedded::ask(request).ok_or(SessionError::None)?;
    match reply.error {
        None => Ok(reply),
        Some(error) => Err(SessionError::Refused(error)),
    }
}

/// Captures, or not.
///
/// # Errors
/// There is no session.
pub fn capture(on: bool) -> Result<(), SessionError> {
    let request = match on {
        true => Request::Start {},
        false => Request::Stop {},
    };
    ask(&request).map(drop)
}

/// Changes settings.
///
/// # Errors
/// There is no session, or a value is wrong.
pub fn set(settings: Settings) -> Result<(), SessionError> {
    ask(&Request::Set(settings)).map(drop)
}

/// Writes what the session holds.
///
/// # Errors
/// There is no session, or the file cannot be written.
pub fn dump(output: PathBuf, last: Option<Duration>) -> Result<(), SessionError> {
    let request = DumpRequest {
        output,
        overwrite: true,
        last_ns: last.map(|last| last.as_nanos() as u64),
        symbolize: cfg!(target_os = "linux"),
    };
    ask(&Request::Dump(request)).map(drop)
}

/// Where the session stands, as JSON.
///
/// # Errors
/// There is none.
pub fn status() -> Result<String, SessionError> {
    let reply = ask(&Request::Status {})?;
    let status = reply.session.ok_or(SessionError::None)?;
    Ok(serde_json::to_string(&status).unwrap_or_default())
}

#[cfg(target_vendor = "apple")]
mod hooks {
    //! Slots of all images, by dyld; loggers and observers.

    use std::ffi::CString;

    use stackbeat_apple::rebind::loader;
    use stackbeat_apple::system;

    fn find(name: &str) -> Option<u64> {
        let name = CString::new(name).ok()?;
        // SAFETY: a name.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        (!found.is_null()).then(|| found.expose_provenance() as u64)
    }

    /// Gives what there is to say of them.
    pub(super) fn place() -> Vec<String> {
        let functions = system::prepare(&find);
        // SAFETY: the hooks are of this library, which is never unloaded: dyld keeps one that has registered
        // callbacks.
        let rebinder = unsafe {
            let rebinder = loader::install(&functions);
            system::place();
            rebinder
        };
        system::lines(rebinder, loader::incomplete_images())
    }

    pub(super) fn take_away() {
        // SAFETY: this library stays. An app that unloads code while it ends a recording is not there; dyld
        // would have to say so first.
        unsafe {
            system::take_away();
            loader::unpatch();
        }
    }
}

#[cfg(not(target_vendor = "apple"))]
mod hooks {
    //! Tests place them.

    pub(super) fn place() -> Vec<String> {
        Vec::new()
    }

    pub(super) fn take_away() {}
}
