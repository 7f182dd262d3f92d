//! Whether this app is to be recorded, and how: properties of the device, which a developer sets by adb.
//!
//! ```text
//! adb shell setprop debug.stackbeat.package com.example.app      who is recorded
//! adb shell setprop debug.stackbeat.interval_us 2000             time between samples; empty: the default
//! adb shell setprop debug.stackbeat.disabled 1                   capture nothing until `start`
//! adb shell setprop debug.stackbeat.doctor 1                     try which hooks their calls pass
//! adb shell setprop debug.stackbeat.in_memory 1                  records have no file: none outlive the app
//! adb shell setprop debug.stackbeat.java_groups 4                groups of threads that are suspended, beside the main one
//! ```
//!
//! Everything else is asked of the session's socket once it runs (docs/control.md). The properties are read
//! once, when the session is about to begin; a device that restarts has forgotten them.
//! `__system_property_get` is looked up at run time: it is in all of bionic's versions, and nowhere else.

use core::ffi::{CStr, c_char, c_int};
use std::ffi::CString;
use std::fmt::Display;
use std::mem;
use std::ops::RangeInclusive;
use std::str::FromStr;

use stackbeat_android::art;

/// What the properties' names begin with.
const PREFIX: &str = "debug.stackbeat.";
/// Bytes of a property's value, with the NUL: `PROP_VALUE_MAX` of bionic's `sys/system_properties.h`.
const VALUE_BYTES: usize = 92;
/// Intervals that a session accepts, µs.
const INTERVALS_US: RangeInclusive<u64> = 50..=4_000_000;
/// Numbers of groups; 0: one thread suspends all.
const JAVA_GROUPS: RangeInclusive<u32> = 0..=art::MOST_GROUPS;

/// What a recording of this app is to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Time between samples of a thread, ns; `None`: the default.
    pub(crate) interval_ns: Option<u64>,
    /// Capture nothing until it is asked for.
    pub(crate) start_disabled: bool,
    /// Try which hooks their calls pass.
    pub(crate) tries_hooks: bool,
    /// Records have no file: no write waits for a disk, and none of them outlive the app.
    pub(crate) in_memory: bool,
    /// Groups of threads other than the main one, in which those that pass no hook are suspended; `None`: the
    /// default.
    pub(crate) java_groups: Option<u32>,
    /// Properties whose values make no sense, for the log. The recording goes on without them.
    pub(crate) complaints: Vec<String>,
}

/// The device's API level; `None`: this is no Android.
pub(crate) fn api_level() -> Option<u32> {
    Properties::find()?
        .get(c"ro.build.version.sdk")?
        .parse()
        .ok()
}

/// What the device's properties want of this process; `None`: nothing.
pub(crate) fn wanted() -> Option<Wanted> {
    let properties = Properties::find()?;
    read(&own_package(), |name| properties.get(name))
}

/// The same for a package, with any way of reading properties.
fn read(package: &str, get: impl Fn(&CStr) -> Option<String>) -> Option<Wanted> {
    let get = |name: &str| {
        let name = CString::new(format!("{PREFIX}{name}")).ok()?;
        get(&name).filter(|value| !value.is_empty())
    };
    if package.is_empty() || get("package")? != package {
        return None;
    }
    let mut wanted = Wanted::default();
    wanted.interval_ns = number(&mut wanted, "interval_us", INTERVALS_US, get).map(|us| us * 1000);
    wanted.java_groups = number(&mut wanted, "java_groups", JAVA_GROUPS, get);
    let is_set = |name| get(name).is_some_and(|value| value == "1" || value == "true");
    wanted.start_disabled = is_set("disabled");
    wanted.tries_hooks = is_set("doctor");
    wanted.in_memory = is_set("in_memory");
    Some(wanted)
}

/// A property that is a number of this range; `None`: it is not set, or makes no sense.
fn number<T: FromStr + PartialOrd + Display>(
    wanted: &mut Wanted,
    name: &str,
    range: RangeInclusive<T>,
    get: impl Fn(&str) -> Option<String>,
) -> Option<T> {
    let text = get(name)?;
    let value = text.parse().ok().filter(|value| range.contains(value));
    if value.is_none() {
        wanted.complaints.push(format!(
            "{PREFIX}{name} is `{text}`, not a number from {} to {}: the default is used",
            range.start(),
            range.end()
        ));
    }
    value
}

/// The app's name: that of its process, which may have a part of its own behind a colon.
fn own_package() -> String {
    let line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    package_of(&line)
}

fn package_of(command_line: &[u8]) -> String {
    let name = command_line.split(|b| *b == 0 || *b == b':').next();
    String::from_utf8_lossy(name.unwrap_or_default()).into_owned()
}

type Get = unsafe extern "C" fn(*const c_char, *mut c_char) -> c_int;

/// bionic's function.
struct Properties(Get);

impl Properties {
    /// `None`: this is no Android.
    fn find() -> Option<Properties> {
        // SAFETY: a name.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__system_property_get".as_ptr()) };
        // SAFETY: bionic's `sys/system_properties.h` declares it so.
        (!found.is_null())
            .then(|| Properties(unsafe { mem::transmute::<*mut libc::c_void, Get>(found) }))
    }

    fn get(&self, name: &CStr) -> Option<String> {
        let mut value = [0 as c_char; VALUE_BYTES];
        // SAFETY: it writes at most so many bytes, with a NUL.
        let length = unsafe { (self.0)(name.as_ptr(), value.as_mut_ptr()) };
        if length <= 0 {
            return None;
        }
        // SAFETY: ends with a NUL, as it was zeroed and at least the last byte is left.
        let value = unsafe { CStr::from_ptr(value.as_ptr()) };
        Some(value.to_string_lossy().into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(properties: &[(&str, &str)], package: &str) -> Option<Wanted> {
        read(package, |name| {
            let name = name.to_str().unwrap().strip_prefix(PREFIX)?;
            let found = properties.iter().find(|(n, _)| *n == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn only_the_named_app_is_recorded() {
        let named = [("package", "com.example.app")];
        assert_eq!(with(&named, "com.example.app"), Some(Wanted::default()));
        assert_eq!(with(&named, "com.example.other"), None);
        assert_eq!(with(&[("package", "")], ""), None);
        assert_eq!(with(&[], "com.example.app"), None);
    }

    #[test]
    fn values_are_read_and_nonsense_is_said() {
        let app = ("package", "a.b");
        let options = [("interval_us", "500"), ("disabled", "1"), ("doctor", "1")];
        let fast = with(&[&[app], &options[..]].concat(), "a.b").unwrap();
        assert!(fast.tries_hooks && !fast.in_memory);
        assert!(with(&[app, ("in_memory", "1")], "a.b").unwrap().in_memory);
        assert_eq!(
            (fast.interval_ns, fast.start_disabled),
            (Some(500_000), true)
        );
        for (text, groups) in [("0", Some(0)), ("8", Some(8)), ("9", None)] {
            let said = with(&[app, ("java_groups", text)], "a.b").unwrap();
            assert_eq!(said.java_groups, groups);
            assert_eq!(said.complaints.is_empty(), groups.is_some());
        }
        for wrong in ["7 ms", "0", "-1"] {
            let said = with(&[app, ("interval_us", wrong)], "a.b").unwrap();
            assert_eq!(said.interval_ns, None);
            assert!(said.complaints[0].contains(&format!("interval_us is `{wrong}`")));
        }
    }

    #[test]
    fn the_package_of_a_process() {
        assert_eq!(package_of(b"com.example.app\0"), "com.example.app");
        assert_eq!(package_of(b"com.example.app:remote\0\0"), "com.example.app");
        assert_eq!(package_of(b""), "");
    }

    #[test]
    fn linux_has_no_properties() {
        assert!(cfg!(target_os = "android") || wanted().is_none());
    }
}
