//! Whether this app is to be recorded, and how: by the environment, or by the user's defaults.
//!
//! ```text
//! environment               user defaults            value
//! STACKBEAT_RECORD          StackbeatRecord          1, YES or true: record from the start on
//! STACKBEAT_OUTPUT          StackbeatOutput          where the trace goes; default: the app's caches
//! STACKBEAT_INTERVAL_US     StackbeatIntervalUs      time between samples of a thread
//! STACKBEAT_DURATION_MS     StackbeatDurationMs      the session ends by itself after this time
//! STACKBEAT_DISABLED        StackbeatDisabled        1: capture nothing until it is asked for
//! ```
//!
//! Each value is looked for in the environment first. Defaults are those of the app's domain, as `defaults
//! write BUNDLE …` and the app itself set them; arguments of the form `-StackbeatRecord YES` are read here as
//! `NSUserDefaults` reads them.

use std::path::PathBuf;
use std::time::Duration;

use stackbeat_collector::embedded::Wanted;

/// A setting: its names.
struct Name {
    variable: &'static str,
    default: &'static str,
}

const RECORD: Name = Name {
    variable: "STACKBEAT_RECORD",
    default: "StackbeatRecord",
};
const OUTPUT: Name = Name {
    variable: "STACKBEAT_OUTPUT",
    default: "StackbeatOutput",
};
const INTERVAL: Name = Name {
    variable: "STACKBEAT_INTERVAL_US",
    default: "StackbeatIntervalUs",
};
const DURATION: Name = Name {
    variable: "STACKBEAT_DURATION_MS",
    default: "StackbeatDurationMs",
};
const DISABLED: Name = Name {
    variable: "STACKBEAT_DISABLED",
    default: "StackbeatDisabled",
};

/// Intervals that a session accepts, µs.
const INTERVALS_US: std::ops::RangeInclusive<u64> = 50..=4_000_000;
/// Longest recording that ends by itself: a day, ms.
const LONGEST_MS: u64 = 24 * 3600 * 1000;

/// What a recording of this app is to be.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Switched {
    /// Where the trace goes; `None`: the app's caches.
    pub output: Option<PathBuf>,
    /// Time between samples, ns.
    pub interval_ns: Option<u64>,
    /// When the session ends by itself.
    pub duration: Option<Duration>,
    /// Capture nothing until it is asked for.
    pub start_disabled: bool,
    /// Values that make no sense. The recording goes on without them.
    pub complaints: Vec<String>,
}

/// What is wanted of this process; `None`: nothing.
pub fn switched() -> Option<Switched> {
    let arguments: Vec<String> = std::env::args_os()
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    read(
        |name| std::env::var(name).ok(),
        |name| argument(&arguments, name).or_else(|| default_of(name)),
    )
}

fn read(
    variable: impl Fn(&str) -> Option<String>,
    default: impl Fn(&str) -> Option<String>,
) -> Option<Switched> {
    let get = |name: &Name| {
        let given = |text: &String| !text.is_empty();
        let found = variable(name.variable).filter(given);
        found.or_else(|| default(name.default).filter(given))
    };
    if !is_yes(&get(&RECORD)?) {
        return None;
    }
    let mut switched = Switched {
        output: get(&OUTPUT).map(PathBuf::from),
        start_disabled: get(&DISABLED).is_some_and(|text| is_yes(&text)),
        ..Switched::default()
    };
    let mut number = |name: &Name, allowed: std::ops::RangeInclusive<u64>| {
        let text = get(name)?;
        let found = text.parse().ok().filter(|value| allowed.contains(value));
        if found.is_none() {
            switched.complaints.push(format!(
                "{} is `{text}`, not a number from {} to {}: the default is used",
                name.variable,
                allowed.start(),
                allowed.end()
            ));
        }
        found
    };
    let interval_us = number(&INTERVAL, INTERVALS_US);
    let duration_ms = number(&DURATION, 1..=LONGEST_MS);
    switched.interval_ns = interval_us.map(|us| us * 1000);
    switched.duration = duration_ms.map(Duration::from_millis);
    Some(switched)
}

/// As `NSUserDefaults` takes a word for a boolean.
fn is_yes(text: &str) -> bool {
    ["1", "yes", "true"]
        .iter()
        .any(|yes| text.eq_ignore_ascii_case(yes))
}

/// The value of `-NAME VALUE` among the arguments.
fn argument(arguments: &[String], name: &str) -> Option<String> {
    let named = |argument: &String| argument.strip_prefix('-') == Some(name);
    let at = arguments.iter().position(named)?;
    arguments.get(at + 1).cloned()
}

impl Switched {
    /// As the session takes it.
    ///
    /// # Errors
    /// Nothing says where the trace goes.
    pub fn wanted(&self) -> Result<Wanted, crate::own_session::SessionError> {
        let output = match &self.output {
            Some(output) => output.clone(),
            None => crate::own_session::default_output()?,
        };
        Ok(Wanted {
            overwrite: true,
            interval_ns: self.interval_ns,
            start_disabled: self.start_disabled,
            symbolize: cfg!(target_os = "linux"),
            ..Wanted::to(output)
        })
    }
}

/// A value of the app's domain, as text. CoreFoundation's functions are looked up, because an import would
/// bring it in: a program without it has no preferences.
#[cfg(target_vendor = "apple")]
fn default_of(name: &str) -> Option<String> {
    preferences::text(name, |name| {
        // SAFETY: a name.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    })
}

/// There are none.
#[cfg(not(target_vendor = "apple"))]
fn default_of(_: &str) -> Option<String> {
    None
}

#[cfg(any(target_vendor = "apple", test))]
mod preferences {
    //! CoreFoundation's preferences.

    use core::ffi::{CStr, c_char, c_void};
    use std::ffi::CString;
    use std::mem;
    use std::ptr;

    /// CFBase.h: `CFIndex` is a `long`, `CFTypeID` an `unsigned long`, `Boolean` an `unsigned char`.
    type Index = isize;
    /// CFString.h, `kCFStringEncodingUTF8`.
    const UTF8: u32 = 0x0800_0100;

    /// A value of the app's domain, as text. `find` gives a symbol of CoreFoundation's.
    pub(super) fn text(name: &str, find: impl Fn(&CStr) -> Option<*mut c_void>) -> Option<String> {
        let name = CString::new(name).ok()?;
        // SAFETY: CoreFoundation's functions have these types (CFString.h, CFPreferences.h, CFBase.h); what
        // is created or copied is released once.
        unsafe {
            type Create = unsafe extern "C" fn(*const c_void, *const c_char, u32) -> *const c_void;
            type Copy = unsafe extern "C" fn(*const c_void, *const c_void) -> *const c_void;
            type GetText = unsafe extern "C" fn(*const c_void, *mut c_char, Index, u32) -> u8;
            type TypeOf = unsafe extern "C" fn(*const c_void) -> usize;
            type TypeId = unsafe extern "C" fn() -> usize;
            type Release = unsafe extern "C" fn(*const c_void);
            let create: Create = mem::transmute(find(c"CFStringCreateWithCString")?);
            let copy: Copy = mem::transmute(find(c"CFPreferencesCopyAppValue")?);
            let get_text: GetText = mem::transmute(find(c"CFStringGetCString")?);
            let type_of: TypeOf = mem::transmute(find(c"CFGetTypeID")?);
            let string: TypeId = mem::transmute(find(c"CFStringGetTypeID")?);
            let boolean: TypeId = mem::transmute(find(c"CFBooleanGetTypeID")?);
            let number: TypeId = mem::transmute(find(c"CFNumberGetTypeID")?);
            let release: Release = mem::transmute(find(c"CFRelease")?);
            // CFPreferences.h: `kCFPreferencesCurrentApplication` is a variable.
            let application = *find(c"kCFPreferencesCurrentApplication")?.cast::<*const c_void>();
            let key = create(ptr::null(), name.as_ptr(), UTF8);
            if key.is_null() {
                return None;
            }
            let value = copy(key, application);
            release(key);
            if value.is_null() {
                return None;
            }
            let mut bytes = [0 as c_char; 1024];
            let kind = type_of(value);
            let text = if kind == string() {
                let is_done = get_text(value, bytes.as_mut_ptr(), bytes.len() as Index, UTF8) != 0;
                is_done.then(|| {
                    CStr::from_ptr(bytes.as_ptr())
                        .to_string_lossy()
                        .into_owned()
                })
            } else if kind == boolean() {
                type Value = unsafe extern "C" fn(*const c_void) -> u8;
                find(c"CFBooleanGetValue").map(|get| {
                    let get: Value = mem::transmute(get);
                    get(value).to_string()
                })
            } else if kind == number() {
                /// CFNumber.h, `kCFNumberSInt64Type`.
                const SINT64: Index = 4;
                type Value = unsafe extern "C" fn(*const c_void, Index, *mut i64) -> u8;
                find(c"CFNumberGetValue").map(|get| {
                    let get: Value = mem::transmute(get);
                    let mut found = 0;
                    get(value, SINT64, &raw mut found);
                    found.to_string()
                })
            } else {
                None
            };
            release(value);
            text
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)], defaults: &[(&str, &str)]) -> Option<Switched> {
        let of = |list: &[(&str, &str)], name: &str| {
            let found = list.iter().find(|(n, _)| *n == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        read(|name| of(variables, name), |name| of(defaults, name))
    }

    /// CoreFoundation as far as preferences need it.
    mod stand_in {
        use std::ffi::{CStr, CString, c_char, c_void};
        use std::ptr;
        use std::sync::atomic::{AtomicIsize, Ordering};

        enum Value {
            Text(CString),
            Yes(bool),
            Number(i64),
            Date,
        }

        /// Values that nobody has released.
        pub(super) static LIVE: AtomicIsize = AtomicIsize::new(0);
        static CURRENT_APPLICATION: usize = 7;

        fn made(value: Value) -> *const c_void {
            LIVE.fetch_add(1, Ordering::Relaxed);
            Box::into_raw(Box::new(value)).cast()
        }
        unsafe fn of<'a>(value: *const c_void) -> &'a Value {
            // SAFETY: one that `made` gave.
            unsafe { &*value.cast() }
        }
        unsafe extern "C" fn create(
            _: *const c_void,
            text: *const c_char,
            code: u32,
        ) -> *const c_void {
            // kCFStringEncodingUTF8.
            assert_eq!(code, 0x0800_0100);
            // SAFETY: a C string.
            made(Value::Text(unsafe { CStr::from_ptr(text) }.to_owned()))
        }
        unsafe extern "C" fn copy(key: *const c_void, application: *const c_void) -> *const c_void {
            assert_eq!(application as usize, CURRENT_APPLICATION);
            // SAFETY: a key that was made here.
            let Value::Text(key) = (unsafe { of(key) }) else {
                panic!("a key is text");
            };
            match key.to_str() {
                Ok("StackbeatRecord") => made(Value::Yes(true)),
                Ok("StackbeatDisabled") => made(Value::Yes(false)),
                Ok("StackbeatOutput") => made(Value::Text(c"/tmp/a.beat".to_owned())),
                Ok("StackbeatIntervalUs") => made(Value::Number(500)),
                Ok("StackbeatDurationMs") => made(Value::Date),
                _ => ptr::null(),
            }
        }
        unsafe extern "C" fn get_text(
            value: *const c_void,
            to: *mut c_char,
            room: isize,
            _: u32,
        ) -> u8 {
            // SAFETY: a value that was made here.
            let Value::Text(text) = (unsafe { of(value) }) else {
                return 0;
            };
            let bytes = text.as_bytes_with_nul();
            if bytes.len() > room as usize {
                return 0;
            }
            // SAFETY: there is room.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr().cast(), to, bytes.len()) };
            1
        }
        unsafe extern "C" fn type_of(value: *const c_void) -> usize {
            // SAFETY: a value that was made here.
            match unsafe { of(value) } {
                Value::Text(_) => string(),
                Value::Yes(_) => boolean(),
                Value::Number(_) => number(),
                Value::Date => 42,
            }
        }
        extern "C" fn string() -> usize {
            1
        }
        extern "C" fn boolean() -> usize {
            2
        }
        extern "C" fn number() -> usize {
            3
        }
        unsafe extern "C" fn yes(value: *const c_void) -> u8 {
            // SAFETY: a value that was made here.
            u8::from(matches!(unsafe { of(value) }, Value::Yes(true)))
        }
        unsafe extern "C" fn get_number(value: *const c_void, kind: isize, to: *mut i64) -> u8 {
            // kCFNumberSInt64Type.
            assert_eq!(kind, 4);
            // SAFETY: a value that was made here.
            let Value::Number(found) = (unsafe { of(value) }) else {
                return 0;
            };
            // SAFETY: where it goes.
            unsafe { *to = *found };
            1
        }
        unsafe extern "C" fn release(value: *const c_void) {
            LIVE.fetch_sub(1, Ordering::Relaxed);
            // SAFETY: a value that was made here, and is released once.
            drop(unsafe { Box::from_raw(value.cast_mut().cast::<Value>()) });
        }

        pub(super) fn find(name: &CStr) -> Option<*mut c_void> {
            let found = match name.to_str().expect("a name") {
                "CFStringCreateWithCString" => create as *mut c_void,
                "CFPreferencesCopyAppValue" => copy as *mut c_void,
                "CFStringGetCString" => get_text as *mut c_void,
                "CFGetTypeID" => type_of as *mut c_void,
                "CFStringGetTypeID" => string as *mut c_void,
                "CFBooleanGetTypeID" => boolean as *mut c_void,
                "CFNumberGetTypeID" => number as *mut c_void,
                "CFBooleanGetValue" => yes as *mut c_void,
                "CFNumberGetValue" => get_number as *mut c_void,
                "CFRelease" => release as *mut c_void,
                "kCFPreferencesCurrentApplication" => {
                    (&raw const CURRENT_APPLICATION) as *mut c_void
                }
                _ => return None,
            };
            Some(found)
        }
    }

    #[test]
    fn values_of_preferences_are_text_whatever_their_type() {
        let text = |name: &str| preferences::text(name, stand_in::find);
        assert_eq!(text("StackbeatOther"), None);
        // A date is no setting.
        assert_eq!(text("StackbeatDurationMs"), None);
        let switched = read(|_| None, text).expect("to be recorded");
        let expected = Switched {
            output: Some("/tmp/a.beat".into()),
            interval_ns: Some(500_000),
            ..Switched::default()
        };
        assert_eq!(switched, expected);
        assert_eq!(stand_in::LIVE.load(std::sync::atomic::Ordering::Relaxed), 0);
        // A program without CoreFoundation has none.
        assert_eq!(preferences::text("StackbeatRecord", |_| None), None);
    }

    #[test]
    fn nothing_is_recorded_unasked() {
        assert_eq!(with(&[], &[]), None);
        assert_eq!(with(&[("STACKBEAT_RECORD", "0")], &[]), None);
        assert_eq!(with(&[("STACKBEAT_RECORD", "")], &[]), None);
        // The environment goes first.
        let off = with(&[("STACKBEAT_RECORD", "no")], &[("StackbeatRecord", "YES")]);
        assert_eq!(off, None);
    }

    #[test]
    fn both_ways_say_the_same() {
        let by_environment = with(
            &[
                ("STACKBEAT_RECORD", "1"),
                ("STACKBEAT_INTERVAL_US", "500"),
                ("STACKBEAT_DURATION_MS", "1500"),
                ("STACKBEAT_OUTPUT", "/tmp/a.beat"),
                ("STACKBEAT_DISABLED", "true"),
            ],
            &[],
        );
        let by_defaults = with(
            &[],
            &[
                ("StackbeatRecord", "YES"),
                ("StackbeatIntervalUs", "500"),
                ("StackbeatDurationMs", "1500"),
                ("StackbeatOutput", "/tmp/a.beat"),
                ("StackbeatDisabled", "1"),
            ],
        );
        assert_eq!(by_environment, by_defaults);
        assert_eq!(
            by_defaults,
            Some(Switched {
                output: Some("/tmp/a.beat".into()),
                interval_ns: Some(500_000),
                duration: Some(Duration::from_millis(1500)),
                start_disabled: true,
                complaints: Vec::new(),
            })
        );
    }

    #[test]
    fn nonsense_is_said() {
        let record = ("STACKBEAT_RECORD", "1");
        for wrong in ["7 ms", "0", "-1"] {
            let said = with(&[record, ("STACKBEAT_INTERVAL_US", wrong)], &[]).expect("recorded");
            assert_eq!(said.interval_ns, None);
            let expected = format!("STACKBEAT_INTERVAL_US is `{wrong}`");
            assert!(said.complaints[0].contains(&expected), "{said:?}");
        }
    }

    #[test]
    fn arguments_are_defaults() {
        let arguments = ["app", "-StackbeatRecord", "YES", "-Other"].map(str::to_owned);
        assert_eq!(
            argument(&arguments, "StackbeatRecord").as_deref(),
            Some("YES")
        );
        assert_eq!(argument(&arguments, "Other"), None);
    }
}
