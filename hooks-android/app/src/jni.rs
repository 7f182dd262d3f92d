//! The natives of `dev.stackbeat.Native`. What goes wrong is thrown as an `IllegalStateException`.

use core::ffi::{CStr, c_char, c_void};
use core::mem::transmute;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use stackbeat_android::art;
use stackbeat_collector::embedded;
use stackbeat_core::agent;

use crate::error::SessionError;
use crate::{last_run, log, session, switch};

type Pointer = *mut c_void;

/// JNI's functions by their places in its tables (jni.h).
mod place {
    pub(super) const GET_ENV: usize = 6;
    pub(super) const FIND_CLASS: usize = 6;
    pub(super) const THROW_NEW: usize = 14;
    pub(super) const NEW_STRING_UTF: usize = 167;
    pub(super) const GET_STRING_LENGTH: usize = 164;
    pub(super) const GET_STRING_UTF_LENGTH: usize = 168;
    pub(super) const GET_STRING_UTF_REGION: usize = 221;
}

/// `JNI_VERSION_1_6`.
const VERSION: i32 = 0x0001_0006;
/// Bytes of an event's name; longer ones are cut by the agent, too.
const NAME_BYTES: usize = 1024;

/// A thread's `JNIEnv`.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Env(*const *const Pointer);

impl Env {
    /// # Safety
    /// `T` is the type of the function at this place of JNI's table.
    unsafe fn function<T>(self, place: usize) -> T {
        const { assert!(size_of::<T>() == size_of::<Pointer>()) };
        // SAFETY: the table of a thread that runs native code; by contract.
        unsafe { core::mem::transmute_copy::<Pointer, T>(&*(*self.0).add(place)) }
    }

    /// The bytes of a Java string (JNI's form of UTF-8), without one that does not fit; `None`: null.
    fn bytes(self, string: Pointer, buffer: &mut [u8]) -> Option<&[u8]> {
        type Length = unsafe extern "C" fn(Env, Pointer) -> i32;
        type Region = unsafe extern "C" fn(Env, Pointer, i32, i32, *mut u8);
        if string.is_null() {
            return None;
        }
        // SAFETY: JNI's functions of these types. The region is the whole string, whose bytes fit, with a
        // NUL.
        unsafe {
            let utf_length: Length = self.function(place::GET_STRING_UTF_LENGTH);
            let length: Length = self.function(place::GET_STRING_LENGTH);
            let region: Region = self.function(place::GET_STRING_UTF_REGION);
            let mut characters = length(self, string);
            let mut bytes = usize::try_from(utf_length(self, string)).unwrap_or(0);
            if bytes >= buffer.len() {
                // A character takes at most three bytes.
                characters = characters.min((buffer.len() / 3) as i32 - 1);
                bytes = 0;
            }
            buffer.fill(0);
            region(self, string, 0, characters, buffer.as_mut_ptr());
            if bytes == 0 {
                bytes = buffer.iter().position(|b| *b == 0).unwrap_or(0);
            }
            buffer.get(..bytes)
        }
    }

    fn path(self, string: Pointer) -> Option<PathBuf> {
        let mut buffer = vec![0; libc::PATH_MAX as usize];
        let bytes = self.bytes(string, &mut buffer)?;
        Some(Path::new(OsStr::from_bytes(bytes)).to_path_buf())
    }

    /// A Java string, null on failure.
    fn string(self, text: &str) -> Pointer {
        type New = unsafe extern "C" fn(Env, *const c_char) -> Pointer;
        let text = CString::new(text).unwrap_or_default();
        // SAFETY: JNI's function of this type; the text lives during the call.
        unsafe { self.function::<New>(place::NEW_STRING_UTF)(self, text.as_ptr()) }
    }

    fn throw(self, why: &str) {
        type Find = unsafe extern "C" fn(Env, *const c_char) -> Pointer;
        type Throw = unsafe extern "C" fn(Env, Pointer, *const c_char) -> i32;
        let class: &CStr = c"java/lang/IllegalStateException";
        let why = CString::new(format!("stackbeat: {why}")).unwrap_or_default();
        // SAFETY: JNI's functions of these types; the texts live during the calls.
        unsafe {
            let class = self.function::<Find>(place::FIND_CLASS)(self, class.as_ptr());
            if !class.is_null() {
                self.function::<Throw>(place::THROW_NEW)(self, class, why.as_ptr());
            }
        }
    }

    /// A Java string of what this gives, or null for nothing. Errors and panics are thrown.
    fn answer(self, f: impl FnOnce() -> Result<Option<String>, SessionError>) -> Pointer {
        let result = catch_unwind(AssertUnwindSafe(f));
        match result.unwrap_or(Err(SessionError::Panicked)) {
            Ok(Some(text)) => self.string(&text),
            Ok(None) => core::ptr::null_mut(),
            Err(why) => {
                self.throw(&embedded::error_text(&why));
                core::ptr::null_mut()
            }
        }
    }
}

/// The library was loaded. Where another agent records the process, as `stackbeat record` does on Linux, only
/// Java is added to that.
#[unsafe(no_mangle)]
extern "C" fn JNI_OnLoad(vm: *mut *const [Pointer; 8], _reserved: Pointer) -> i32 {
    type GetEnv = unsafe extern "C" fn(Pointer, *mut Pointer, i32) -> i32;
    let own = agent::runtime_table(agent::RUNTIME_VERSION);
    let Some(other) = art::agent_of_process().filter(|table| *table != own) else {
        return VERSION;
    };
    let mut env = core::ptr::null_mut();
    // SAFETY: JNI's table, whose function at this place is of this type. The thread runs native code.
    unsafe {
        let get_env = transmute::<Pointer, GetEnv>((**vm)[place::GET_ENV]);
        if get_env(vm.cast(), &raw mut env, VERSION) == 0 {
            // That recorder's trace has no room for what became of the hooks; what is missing is in the log.
            session::begin_java(other, env, None);
        }
    }
    VERSION
}

/// `String start(String folder, boolean asks, boolean inMemory)`: records into the folder and gives the
/// trace's path. With `asks` only if the device's properties want it, and as they say; null: they do not.
/// With `inMemory` records have no file.
#[unsafe(no_mangle)]
extern "C" fn Java_dev_stackbeat_Native_start(
    env: Env,
    _class: Pointer,
    folder: Pointer,
    asks: u8,
    in_memory: u8,
) -> Pointer {
    env.answer(|| {
        let folder = env.path(folder).ok_or(SessionError::NoFolder)?;
        let wanted = match asks {
            0 => switch::Wanted {
                in_memory: in_memory != 0,
                ..switch::Wanted::default()
            },
            _ => match switch::wanted() {
                Some(wanted) => wanted,
                None => return Ok(None),
            },
        };
        for complaint in &wanted.complaints {
            log::say(complaint);
        }
        // SAFETY: the calling thread's own, which runs native code.
        let trace = unsafe { session::begin(&wanted, &folder, env.0.cast_mut().cast())? };
        Ok(Some(trace.to_string_lossy().into_owned()))
    })
}

/// `String stop()`: gives the trace's path, which is complete; null: nothing was recorded.
#[unsafe(no_mangle)]
extern "C" fn Java_dev_stackbeat_Native_stop(env: Env, _class: Pointer) -> Pointer {
    env.answer(|| {
        // SAFETY: the calling thread runs native code.
        let trace = unsafe { session::end() };
        Ok(trace.map(|trace| trace.to_string_lossy().into_owned()))
    })
}

/// `String doctor()`: what became of each hook, a line each, and which hooks their calls pass.
#[unsafe(no_mangle)]
extern "C" fn Java_dev_stackbeat_Native_doctor(env: Env, _class: Pointer) -> Pointer {
    env.answer(|| {
        // SAFETY: the calling thread's own, which runs native code.
        let lines = unsafe { session::doctor(env.0.cast_mut().cast())? };
        Ok(Some(lines))
    })
}

/// `void dump(String path, long lastMs)`: writes what was recorded so far, or the last of it, if that is
/// not 0.
#[unsafe(no_mangle)]
extern "C" fn Java_dev_stackbeat_Native_dump(
    env: Env,
    _class: Pointer,
    path: Pointer,
    last_ms: i64,
) {
    env.answer(|| {
        let path = env.path(path).ok_or(SessionError::NoFile)?;
        let last_ms = u64::try_from(last_ms).ok().filter(|ms| *ms != 0);
        session::dump(path, last_ms.map(|ms| ms.saturating_mul(1_000_000)))?;
        Ok(None)
    });
}

/// `String save(String folder)`: completes what killed runs have left there, and says so (`last_run`).
#[unsafe(no_mangle)]
extern "C" fn Java_dev_stackbeat_Native_save(
    env: Env,
    _class: Pointer,
    folder: Pointer,
) -> Pointer {
    env.answer(|| {
        let folder = env.path(folder).ok_or(SessionError::NoFolder)?;
        Ok(Some(last_run::save(&folder)))
    })
}

/// `void event(int kind, String name, long value)`: what `stackbeat_v1_event` takes.
#[unsafe(no_mangle)]
extern "C" fn Java_dev_stackbeat_Native_event(
    env: Env,
    _class: Pointer,
    kind: i32,
    name: Pointer,
    value: i64,
) {
    let mut buffer = [0; NAME_BYTES];
    let name = env.bytes(name, &mut buffer).unwrap_or(b"");
    if let Ok(kind) = u8::try_from(kind) {
        agent::event(kind, name, value);
    }
}
