//! Images that real linkers make for macOS, on Linux: read, mapped, bound by a loader of the tests, rebound,
//! called. And the library for an app, in a program of C.
#![cfg(target_os = "linux")]

mod app;
mod damage;
mod darwin;
mod dyld;
mod formats;
mod headers;
mod linkers;
mod loggers;
mod objc;
mod peer;
#[cfg(target_arch = "x86_64")]
mod perfetto;
mod posix;
mod rebinding;
mod system;
mod truth;
mod world;
