//! Variables with functions that the system's libraries call: who has them, and what becomes of a call.

use std::ptr::null_mut;
use std::sync::atomic::Ordering;

use stackbeat_apple::system;
use stackbeat_core::agent;
use stackbeat_core::probe::Probe;

use crate::darwin::{self, SYSCALL_LOGGER, TASK_SELF, mach_vm_allocate, mach_vm_deallocate};
use crate::posix::{is_alone, samples, session};

const BYTES: usize = 3 << 14;

/// Maps and unmaps memory of a task. Gives what was recorded of either.
fn mapped(mapping: &stackbeat_core::shm::mapping::Mapping, task: u32) -> [Vec<Option<u64>>; 2] {
    let of = |probe| {
        let samples = samples(mapping, probe).into_iter();
        samples
            .map(|sample| sample.arg.map(|(bytes, _)| bytes))
            .collect()
    };
    let memory = mach_vm_allocate(task, BYTES);
    let allocated = of(Probe::VmAllocate);
    mach_vm_deallocate(task, memory, BYTES);
    [allocated, of(Probe::VmDeallocate)]
}

#[test]
fn mapped_memory_is_recorded_and_other_tools_loggers_stay() {
    if !is_alone("loggers::mapped_memory_is_recorded_and_other_tools_loggers_stay") {
        return;
    }
    let functions = darwin::functions();
    system::prepare(&|name| functions.get(name).copied());
    let mapping = &session();
    let none = [Vec::new(), Vec::new()];
    let both = [vec![Some(BYTES as u64)], vec![Some(BYTES as u64)]];

    // A tool that has come before keeps its place.
    extern "C" fn of_another_tool(_: u32, _: usize, _: usize, _: usize, _: usize, _: u32) {}
    let other = of_another_tool as *mut std::ffi::c_void;
    SYSCALL_LOGGER.store(other, Ordering::SeqCst);
    // SAFETY: what was found stays.
    unsafe {
        system::place();
        system::take_away();
    }
    assert_eq!(SYSCALL_LOGGER.swap(null_mut(), Ordering::SeqCst), other);

    // SAFETY: as above.
    unsafe { system::place() };
    // Mapping memory for a thread's own entry must not make one.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(mapped(mapping, TASK_SELF), none);
            agent::thread_started(None, agent::Creator::UNKNOWN);
            assert_eq!(mapped(mapping, TASK_SELF), both);
        });
    });
    // What is mapped into other tasks is not this one's.
    assert_eq!(mapped(mapping, TASK_SELF + 4), none);

    // SAFETY: as above.
    unsafe { system::take_away() };
    assert!(SYSCALL_LOGGER.load(Ordering::SeqCst).is_null());
    agent::thread_started(None, agent::Creator::UNKNOWN);
    assert_eq!(mapped(mapping, TASK_SELF), none);
}
