//! Backends place hooks in real libraries, and take them out again.
#![cfg(target_os = "linux")]

mod bindings;
mod bionic;
#[cfg(target_arch = "x86_64")]
mod dobby;
mod framework;
mod library;
#[cfg(target_arch = "x86_64")]
mod shadowhook;
mod versions;
