//! The functions of `include/stackbeat_app.h`, and those that `stackbeat.h` looks for.
//!
//! No panic leaves them.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use stackbeat_collector::embedded::{Wanted, error_text};
use stackbeat_collector::session::protocol::Settings;
use stackbeat_core::agent;
use stackbeat_core::probe::{Category, Probe};

use crate::own_session::{self, SessionError};

/// `stackbeat_app_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Size of the structure as the caller knows it.
    pub bytes: usize,
    /// Where the trace goes; null: the default.
    pub output: *const c_char,
    /// Time between samples; 0: the default.
    pub interval_ns: u64,
    /// The same for main threads.
    pub main_interval_ns: u64,
    /// Percent of the app's CPU time; 0: no limit.
    pub budget_percent: f64,
    /// Names of groups with commas; null: the default.
    pub probes: *const c_char,
    /// When the session ends by itself; 0: it does not.
    pub duration_ns: u64,
    /// Not 0: nothing is captured at first.
    pub start_disabled: c_int,
}

impl Options {
    /// All defaults.
    const DEFAULT: Options = Options {
        bytes: size_of::<Options>(),
        output: std::ptr::null(),
        interval_ns: 0,
        main_interval_ns: 0,
        budget_percent: 0.0,
        probes: std::ptr::null(),
        duration_ns: 0,
        start_disabled: 0,
    };

    /// What the caller has given: an older app knows fewer fields, which come first.
    ///
    /// # Safety
    /// Null, or options of the header.
    unsafe fn read(options: *const Options) -> Options {
        let mut read = Options::DEFAULT;
        if !options.is_null() {
            // SAFETY: by contract there are so many bytes; all bytes are valid in these fields.
            unsafe {
                let bytes = (*options).bytes.min(size_of::<Options>());
                std::ptr::copy_nonoverlapping(
                    options.cast::<u8>(),
                    (&raw mut read).cast::<u8>(),
                    bytes,
                );
            }
        }
        read
    }
}

/// Why the last function failed.
static ERROR: Mutex<String> = Mutex::new(String::new());

fn answer(f: impl FnOnce() -> Result<(), SessionError> + std::panic::UnwindSafe) -> c_int {
    let text = match std::panic::catch_unwind(f) {
        Ok(Ok(())) => return 0,
        Ok(Err(error)) => error_text(&error),
        Err(_) => "a defect of stackbeat's".to_owned(),
    };
    *ERROR.lock().unwrap_or_else(PoisonError::into_inner) = text;
    -1
}

/// A text of the caller's.
///
/// # Safety
/// Null or a C string.
unsafe fn text<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: by contract.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

fn path(text: &CStr) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(text.to_bytes()))
}

/// Names of groups, as the header has them.
fn groups(probes: &CStr) -> Vec<String> {
    let text = probes.to_string_lossy();
    let names = text.split(',').map(str::trim);
    names
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

fn mask(names: &[String]) -> Result<u64, SessionError> {
    names.iter().try_fold(0, |mask, name| {
        let unknown = || {
            let known: Vec<_> = Category::SELECTABLE.iter().map(|c| c.name()).collect();
            SessionError::Refused(format!(
                "`{name}` is no group of probes: {}",
                known.join(", ")
            ))
        };
        let group = Category::from_name(name).ok_or_else(unknown)?;
        Ok(mask | group.bit())
    })
}

/// # Safety
/// Null, or options of the header with C strings.
unsafe fn wanted(options: &Options) -> Result<Wanted, SessionError> {
    // SAFETY: by contract.
    let (output, probes) = unsafe { (text(options.output), text(options.probes)) };
    let output = match output {
        Some(output) => path(output),
        None => own_session::default_output()?,
    };
    let given = |value: u64| (value != 0).then_some(value);
    Ok(Wanted {
        overwrite: true,
        interval_ns: given(options.interval_ns),
        main_interval_ns: given(options.main_interval_ns),
        budget_percent: (options.budget_percent != 0.0).then_some(options.budget_percent),
        probes: probes.map(|probes| mask(&groups(probes))).transpose()?,
        start_disabled: options.start_disabled != 0,
        // Names come from the files that the app was built of, on the computer.
        symbolize: cfg!(target_os = "linux"),
        ..Wanted::to(output)
    })
}

/// See the header.
///
/// # Safety
/// Null, or options of the header with C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stackbeat_app_start(options: *const Options) -> c_int {
    // SAFETY: by contract.
    let options = unsafe { Options::read(options) };
    answer(move || {
        // SAFETY: by contract.
        let wanted = unsafe { wanted(&options) }?;
        let duration = Some(options.duration_ns).filter(|ns| *ns != 0);
        own_session::start(wanted, duration.map(Duration::from_nanos))
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn stackbeat_app_stop() -> c_int {
    answer(own_session::stop)
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn stackbeat_app_capture(on: c_int) -> c_int {
    answer(move || own_session::capture(on != 0))
}

/// See the header.
///
/// # Safety
/// Null, or options of the header with C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stackbeat_app_set(options: *const Options) -> c_int {
    // SAFETY: by contract.
    let options = unsafe { Options::read(options) };
    answer(move || {
        let given = |value: u64| (value != 0).then_some(value);
        // SAFETY: by contract.
        let probes = unsafe { text(options.probes) };
        own_session::set(Settings {
            interval_ns: given(options.interval_ns),
            main_interval_ns: given(options.main_interval_ns),
            probes: probes.map(groups),
            mode: None,
        })
    })
}

/// See the header.
///
/// # Safety
/// A C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stackbeat_app_mark(name: *const c_char) {
    /// `MARK` of `stackbeat.v1.Event.Kind`.
    const MARK: u8 = 0;
    // SAFETY: by contract.
    if let Some(name) = unsafe { text(name) } {
        agent::event(MARK, name.to_bytes(), 0);
    }
}

/// See the header.
///
/// # Safety
/// Null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stackbeat_app_dump(output: *const c_char, last_ns: u64) -> c_int {
    // SAFETY: by contract.
    let output = unsafe { text(output) };
    answer(move || {
        let missing = || SessionError::Refused("the dump has no output".to_owned());
        let output = path(output.ok_or_else(missing)?);
        let last = Some(last_ns).filter(|ns| *ns != 0);
        own_session::dump(output, last.map(Duration::from_nanos))
    })
}

/// See the header.
///
/// # Safety
/// Room for so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stackbeat_app_status(to: *mut c_char, bytes: usize) -> usize {
    let status = std::panic::catch_unwind(own_session::status);
    let status = status.ok().and_then(Result::ok).unwrap_or_default();
    // SAFETY: by contract.
    unsafe { give(&status, to, bytes) }
}

/// See the header.
///
/// # Safety
/// Room for so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stackbeat_app_error(to: *mut c_char, bytes: usize) -> usize {
    let error = ERROR.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: by contract.
    unsafe { give(&error, to, bytes) }
}

/// Writes a text with a NUL, as much of it as there is room for. Gives its length.
///
/// # Safety
/// Room for so many bytes.
unsafe fn give(text: &str, to: *mut c_char, bytes: usize) -> usize {
    if !to.is_null() && bytes > 0 {
        let fits = text.len().min(bytes - 1);
        // SAFETY: by contract.
        unsafe {
            to.cast::<u8>()
                .copy_from_nonoverlapping(text.as_ptr(), fits);
            to.add(fits).write(0);
        }
    }
    text.len()
}

/// What `stackbeat.h` looks for: a mark, a scope, a counter, a flow.
///
/// # Safety
/// `name` is readable for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stackbeat_v1_event(
    kind: u32,
    name: *const c_char,
    length: usize,
    value: i64,
) {
    // SAFETY: by contract.
    unsafe { agent::event_of_c(kind, name, length, value) }
}

/// The same: the calling thread's stack, now.
#[unsafe(no_mangle)]
pub extern "C" fn stackbeat_v1_capture() {
    agent::force(Probe::Mark, 0);
}
