//! Marks, scopes, counters, flows and asynchronous work of a program in its stackbeat trace.
//!
//! The program does not link to stackbeat: on first use the functions look for the agent in the process;
//! when the program is not being recorded they do nothing. With the feature `noop` they compile to
//! nothing. `include/stackbeat.h` beside this crate is the same for C and C++.
//!
//! ```
//! let _parse = stackbeat_api::scope("parse");
//! stackbeat_api::mark("cache flushed");
//! stackbeat_api::counter("queue length", 3);
//! ```
//!
//! [`session_start`] records the program from inside, without a recorder beside it.
//!
//! Names are copied, at most 1024 bytes of them. An event costs about 50 ns while recording.

#![cfg_attr(not(test), no_std)]

#[cfg(not(feature = "noop"))]
mod agent_functions;
mod session;
#[cfg(test)]
mod tests;

#[cfg(feature = "noop")]
mod agent_functions {
    #[inline(always)]
    pub(crate) fn is_active() -> bool {
        false
    }

    #[inline(always)]
    pub(crate) fn event(_kind: u32, _name: &str, _value: i64) {}

    #[inline(always)]
    pub(crate) fn capture() {}
}

pub use session::{SessionError, session_start, session_stop};

/// Numbers of `stackbeat.v1.Event.Kind`; `COUNTER` is none of them.
mod kind {
    pub(crate) const MARK: u32 = 0;
    pub(crate) const SCOPE_BEGIN: u32 = 1;
    pub(crate) const SCOPE_END: u32 = 2;
    pub(crate) const FLOW_BEGIN: u32 = 7;
    pub(crate) const FLOW_STEP: u32 = 8;
    pub(crate) const FLOW_END: u32 = 9;
    pub(crate) const COUNTER: u32 = 10;
    pub(crate) const ASYNC_BEGIN: u32 = 11;
    pub(crate) const ASYNC_END: u32 = 12;
}

/// Whether the program is being recorded (or was when it first asked).
#[inline]
pub fn is_active() -> bool {
    agent_functions::is_active()
}

/// Something happened now.
#[inline]
pub fn mark(name: &str) {
    agent_functions::event(kind::MARK, name, 0);
}

/// Something happened now, with a number.
#[inline]
pub fn mark_value(name: &str, value: i64) {
    agent_functions::event(kind::MARK, name, value);
}

/// A scope of this thread, until the value is dropped.
#[derive(Debug)]
#[must_use = "a scope ends when this is dropped"]
pub struct Scope {
    /// Scopes belong to their thread.
    _of_thread: core::marker::PhantomData<*const ()>,
}

/// Begins a scope. Scopes of a thread nest.
#[inline]
pub fn scope(name: &str) -> Scope {
    agent_functions::event(kind::SCOPE_BEGIN, name, 0);
    Scope {
        _of_thread: core::marker::PhantomData,
    }
}

impl Drop for Scope {
    #[inline]
    fn drop(&mut self) {
        agent_functions::event(kind::SCOPE_END, "", 0);
    }
}

/// A counter of the process has this value from now on.
#[inline]
pub fn counter(name: &str, value: i64) {
    agent_functions::event(kind::COUNTER, name, value);
}

/// Work begins that goes from thread to thread; `id` tells it from others.
#[inline]
pub fn flow_begin(name: &str, id: u64) {
    agent_functions::event(kind::FLOW_BEGIN, name, id as i64);
}

/// The work has come to this thread.
#[inline]
pub fn flow_step(name: &str, id: u64) {
    agent_functions::event(kind::FLOW_STEP, name, id as i64);
}

/// The work ends here.
#[inline]
pub fn flow_end(name: &str, id: u64) {
    agent_functions::event(kind::FLOW_END, name, id as i64);
}

/// Work begins that is not one thread's: any thread of the process ends it, and other work may overlap. `id`
/// tells it from others of this name.
#[inline]
pub fn async_begin(name: &str, id: u64) {
    agent_functions::event(kind::ASYNC_BEGIN, name, id as i64);
}

/// That work ends.
#[inline]
pub fn async_end(name: &str, id: u64) {
    agent_functions::event(kind::ASYNC_END, name, id as i64);
}

/// Captures this thread's stack now, whatever the interval; a thread may do this 2000 times a second.
#[inline]
pub fn capture() {
    agent_functions::capture();
}
