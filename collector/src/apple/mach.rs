//! Functions, structures and constants of Mach. Source: xnu's osfmk/mach (thread_info.h, thread_act.defs,
//! task.defs, kern_return.h, message.h, arm/_structs.h, i386/_structs.h), the same in Apple's SDKs since
//! macOS 11 and iOS 14.

use std::ffi::{CStr, c_int};
use std::mem::offset_of;

/// `mach_port_t`: a name of something in the kernel.
pub(super) type Port = u32;
/// `kern_return_t`.
pub(super) type Return = c_int;

/// kern_return.h.
pub(super) const SUCCESS: Return = 0;
/// kern_return.h, `KERN_INVALID_ARGUMENT`: thread calls say so of a thread that has ended
/// (osfmk/kern/thread_act.c).
pub(super) const INVALID_ARGUMENT: Return = 4;
/// kern_return.h, `KERN_TERMINATED`.
pub(super) const TERMINATED: Return = 37;
/// message.h, `MACH_SEND_INVALID_DEST`: the port's thread is gone.
pub(super) const INVALID_DESTINATION: Return = 0x1000_0003;

/// thread_info.h, `THREAD_IDENTIFIER_INFO`.
pub(super) const IDENTIFIER_INFO: c_int = 4;
/// thread_info.h, `THREAD_EXTENDED_INFO`.
pub(super) const EXTENDED_INFO: c_int = 5;

/// thread_info.h, `struct thread_identifier_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IdentifierInfo {
    pub thread_id: u64,
    pub thread_handle: u64,
    pub dispatch_queue_address: u64,
}

/// thread_info.h, `struct thread_extended_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct ExtendedInfo {
    pub user_ns: u64,
    pub system_ns: u64,
    pub cpu_usage: i32,
    pub policy: i32,
    pub run_state: i32,
    pub flags: i32,
    pub sleep_time: i32,
    pub current_priority: i32,
    pub priority: i32,
    pub maximum_priority: i32,
    pub name: [u8; 64],
}

impl ExtendedInfo {
    pub(super) const ZERO: ExtendedInfo = ExtendedInfo {
        user_ns: 0,
        system_ns: 0,
        cpu_usage: 0,
        policy: 0,
        run_state: 0,
        flags: 0,
        sleep_time: 0,
        current_priority: 0,
        priority: 0,
        maximum_priority: 0,
        name: [0; 64],
    };
}

/// thread_info.h, `TH_STATE_RUNNING`: on a processor, or ready for one.
pub(super) const STATE_RUNNING: i32 = 1;

/// The registers of a thread.
#[cfg(target_arch = "aarch64")]
pub(super) mod registers {
    use super::*;

    /// arm/thread_status.h, `ARM_THREAD_STATE64`.
    pub(in super::super) const FLAVOR: c_int = 6;

    /// arm/_structs.h, `struct __darwin_arm_thread_state64`.
    #[repr(C)]
    #[derive(Clone, Copy, Debug, Default)]
    pub(in super::super) struct ThreadState {
        pub x: [u64; 29],
        pub fp: u64,
        pub lr: u64,
        pub sp: u64,
        pub pc: u64,
        pub cpsr: u32,
        /// On arm64e: which of the addresses are signed.
        pub flags: u32,
    }
    const _: () = assert!(size_of::<ThreadState>() == 4 * 68);
    const _: () = assert!(offset_of!(ThreadState, pc) == 256);
}

/// The registers of a thread.
#[cfg(target_arch = "x86_64")]
pub(super) mod registers {
    use super::*;

    /// i386/thread_status.h, `x86_THREAD_STATE64`.
    pub(in super::super) const FLAVOR: c_int = 4;

    /// i386/_structs.h, `struct __darwin_x86_thread_state64`.
    #[repr(C)]
    #[derive(Clone, Copy, Debug, Default)]
    pub(in super::super) struct ThreadState {
        pub rax: u64,
        pub rbx: u64,
        pub rcx: u64,
        pub rdx: u64,
        pub rdi: u64,
        pub rsi: u64,
        pub rbp: u64,
        pub rsp: u64,
        pub r8_to_r15: [u64; 8],
        pub rip: u64,
        pub rflags: u64,
        pub cs: u64,
        pub fs: u64,
        pub gs: u64,
    }
    const _: () = assert!(size_of::<ThreadState>() == 4 * 42);
    const _: () = assert!(offset_of!(ThreadState, rip) == 128);
}

/// Counts are in words of four bytes.
pub(super) const fn words_of<T>() -> u32 {
    (size_of::<T>() / size_of::<c_int>()) as u32
}

const _: () = assert!(words_of::<IdentifierInfo>() == 6);
const _: () = assert!(words_of::<ExtendedInfo>() == 28);
const _: () = assert!(offset_of!(ExtendedInfo, name) == 48);

/// A function that some systems do not have: an import of it would keep a program from starting there.
///
/// # Safety
/// `F` is the type of its address.
pub(super) unsafe fn look_up<F: Copy>(name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<usize>()) };
    #[cfg(target_vendor = "apple")]
    // SAFETY: a name.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    #[cfg(not(target_vendor = "apple"))]
    let found = super::tests::look_up(name);
    // SAFETY: by contract.
    (!found.is_null()).then(|| unsafe { std::mem::transmute_copy(&found) })
}

unsafe extern "C" {
    /// mach_init.h: what `mach_task_self()` reads.
    pub(super) static mach_task_self_: Port;

    pub(super) fn task_threads(task: Port, threads: *mut *mut Port, count: *mut u32) -> Return;
    pub(super) fn thread_info(
        thread: Port,
        flavor: c_int,
        info: *mut c_int,
        count: *mut u32,
    ) -> Return;
    pub(super) fn thread_suspend(thread: Port) -> Return;
    pub(super) fn thread_resume(thread: Port) -> Return;
    pub(super) fn thread_get_state(
        thread: Port,
        flavor: c_int,
        state: *mut c_int,
        count: *mut u32,
    ) -> Return;
    pub(super) fn mach_port_deallocate(task: Port, name: Port) -> Return;
    pub(super) fn vm_deallocate(task: Port, address: usize, bytes: usize) -> Return;
    pub(super) fn vm_read_overwrite(
        task: Port,
        address: usize,
        bytes: usize,
        to: usize,
        copied: *mut usize,
    ) -> Return;
    /// mach_time.h.
    pub(super) fn mach_absolute_time() -> u64;
    pub(super) fn mach_wait_until(deadline: u64) -> Return;
    /// mach_time.h: `struct mach_timebase_info` is two words, numerator and denominator, from units to ns.
    pub(super) fn mach_timebase_info(info: *mut [u32; 2]) -> Return;
}
