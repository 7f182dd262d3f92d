//! The threads of this process: Mach calls them by port, everything else of ours by tid.
//!
//! A tid is the lower half of the number that `pthread_threadid_np` and `THREAD_IDENTIFIER_INFO` give:
//! numbers begin anew when the system starts, so the upper half is 0 for the first four thousand million
//! threads.

use std::collections::HashMap;
use std::ffi::c_int;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use stackbeat_core::ids::Tid;

use super::mach::{
    IDENTIFIER_INFO, IdentifierInfo, Port, SUCCESS, mach_port_deallocate, mach_task_self_,
    task_threads, thread_info, vm_deallocate, words_of,
};

/// Known threads. Each port is held once.
#[derive(Debug, Default)]
pub(super) struct Threads(Mutex<HashMap<Tid, Port>>);

impl Threads {
    /// The port of a thread; looks anew for one that is not known.
    pub(super) fn port(&self, tid: Tid) -> Option<Port> {
        if let Some(port) = self.known(tid) {
            return Some(port);
        }
        self.all();
        self.known(tid)
    }

    fn known(&self, tid: Tid) -> Option<Port> {
        let ports = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ports.get(&tid).copied()
    }

    /// All threads that live. Forgets the others.
    pub(super) fn all(&self) -> Vec<Tid> {
        let mut ports = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut living = HashMap::new();
        for port in list() {
            match tid_of(port) {
                Some(tid) if !living.contains_key(&tid) => _ = living.insert(tid, port),
                // It has just ended.
                _ => release(port),
            }
        }
        let tids = living.keys().copied().collect();
        // The ports of before are held a second time by the new list, or their threads have ended.
        for (_, port) in std::mem::replace(&mut *ports, living) {
            release(port);
        }
        tids
    }

    /// How many threads there are.
    pub(super) fn count() -> u64 {
        let ports = list();
        let count = ports.len() as u64;
        ports.into_iter().for_each(release);
        count
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        let ports = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        ports.values().copied().for_each(release);
    }
}

/// The ports of all threads, each held once for the caller.
fn list() -> Vec<Port> {
    let (mut ports, mut count) = (ptr::null_mut::<Port>(), 0);
    // SAFETY: the kernel gives memory with so many ports, which is ours to give back.
    unsafe {
        if task_threads(mach_task_self_, &raw mut ports, &raw mut count) != SUCCESS {
            return Vec::new();
        }
        let count = count as usize;
        let list = std::slice::from_raw_parts(ports, count).to_vec();
        vm_deallocate(
            mach_task_self_,
            ports.expose_provenance(),
            count * size_of::<Port>(),
        );
        list
    }
}

fn tid_of(port: Port) -> Option<Tid> {
    let mut info = IdentifierInfo::default();
    let mut count = words_of::<IdentifierInfo>();
    // SAFETY: the kernel writes at most `count` words there.
    let result = unsafe {
        let to = (&raw mut info).cast::<c_int>();
        thread_info(port, IDENTIFIER_INFO, to, &raw mut count)
    };
    (result == SUCCESS).then_some(Tid(info.thread_id as u32))
}

fn release(port: Port) {
    // SAFETY: gives back one use of the name, which is ours.
    unsafe { mach_port_deallocate(mach_task_self_, port) };
}
