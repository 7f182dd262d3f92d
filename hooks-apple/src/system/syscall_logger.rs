//! libsystem_kernel's logger: the system calls it when memory is mapped and unmapped, also from inside the
//! dyld shared cache.
//!
//! Source: xnu's libsyscall (12377): mach/stack_logging_internal.h has the kinds, mach/mach_vm.c and
//! wrappers/unix03/mmap.c call it after memory was mapped and before it is unmapped. Stacks of threads are
//! left out there.
//!
//! # Signal safety
//!
//! libmalloc maps memory with its locks held, and the agent maps memory for itself: so nothing here registers
//! a thread.

use stackbeat_core::agent;
use stackbeat_core::probe::Probe;

use super::logger::Logger;
use super::symbols::{SYSCALL_LOGGER, TASK_SELF};

/// stack_logging_internal.h: `stack_logging_type_vm_allocate`, `…_vm_deallocate`. The highest byte is the
/// memory's tag.
const VM_ALLOCATE: u32 = 16;
const VM_DEALLOCATE: u32 = 32;

pub(super) static LOGGER: Logger = Logger {
    variable: &SYSCALL_LOGGER,
    function: logger,
};

/// `malloc_logger_t`: the task, then bytes, or an address and bytes.
unsafe extern "C" fn logger(
    kind: u32,
    task: usize,
    first: usize,
    second: usize,
    _result: usize,
    _hot_frames: u32,
) {
    // SAFETY: mach_init.h, a variable that is set before any other image runs.
    let own = unsafe { TASK_SELF.get::<&'static u32>() };
    if own.is_none_or(|own| *own as usize != task) {
        return;
    }
    if kind & VM_ALLOCATE != 0 {
        agent::hit_of_registered(Probe::VmAllocate, first as u64);
    } else if kind & VM_DEALLOCATE != 0 {
        agent::hit_of_registered(Probe::VmDeallocate, second as u64);
    }
}
