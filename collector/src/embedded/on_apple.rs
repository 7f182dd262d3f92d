//! A session inside an app or a program on Apple's systems.

use std::ffi::{CStr, OsString};
use std::sync::Arc;
use std::time::SystemTime;

use stackbeat_core::ids::Pid;
use stackbeat_core::shm::layout::SamplingClock;
use stackbeat_proto::v1::CounterBatch;

use crate::apple::host::Inside;
use crate::host::Host;
use crate::session::error::RecordError;
use crate::session::options::{Chosen, ClockChoice, Options};
use crate::session::protocol::LocksReply;
use crate::session::shared::Shared;

/// The surroundings of the session.
pub(super) fn host(_mapping_name: &[u8], own_pid: Pid) -> Arc<dyn Host> {
    Arc::new(Inside::new(own_pid))
}

/// There are ticks only.
pub(super) fn choose_clock(options: &mut Options) -> Result<Chosen, RecordError> {
    options.clock = ClockChoice::Tick;
    Ok(Chosen::of(SamplingClock::Tick))
}

/// When the program began: nobody is asked.
pub(super) fn began_at(_own_pid: Pid) -> Option<SystemTime> {
    None
}

/// Threads that wait are suspended and looked at while the session lasts.
pub(super) fn look_at_waits(_shared: &Arc<Shared>, _mapping_name: &[u8]) {}

/// Transfers are not counted here.
pub(super) enum Transfers {}

/// What the program has read and written so far is not known.
pub(super) fn transfers() -> Option<Transfers> {
    None
}

/// Nor what came since.
pub(super) fn transfers_since(_: Option<Transfers>, _shared: &Shared) -> Option<Vec<CounterBatch>> {
    None
}

/// Who holds a lock is not known.
pub(super) fn locks(_shared: &Arc<Shared>, _mapping_name: &[u8]) -> LocksReply {
    LocksReply::default()
}

/// The program's arguments.
pub(super) fn command_line() -> Vec<OsString> {
    std::env::args_os().collect()
}

/// A set of signals, as the system has it.
pub(super) type Signals = libc::sigset_t;

/// Blocks all signals but those of faults. Gives what was blocked before.
pub(super) fn block_signals() -> Signals {
    let faults = [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGSYS,
    ];
    // SAFETY: sets of the calling thread.
    unsafe {
        let (mut mask, mut before): (Signals, Signals) = std::mem::zeroed();
        libc::sigfillset(&raw mut mask);
        for signal in faults {
            libc::sigdelset(&raw mut mask, signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, &raw mut before);
        before
    }
}

/// Blocks what was blocked before.
pub(super) fn restore_signals(before: Signals) {
    // SAFETY: a set of the calling thread.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
    }
}

/// The calling thread begins as one of the session's. Descriptors are the whole process' there.
pub(super) fn enter_thread(name: &CStr) {
    // SAFETY: sets the calling thread's name.
    unsafe { libc::pthread_setname_np(name.as_ptr()) };
}

/// The calling thread, which is one of the session's, is about to end.
pub(super) fn leave_thread() {}
