//! Mach's calls, answered by Linux, so that what asks them can run here. Threads are suspended by a signal
//! whose handler waits. So a suspended thread that was in a system call leaves it, which it does not on Mach,
//! and a thread that blocks the signal is not suspended. What it shows: that our side of each call is right
//! as far as the headers say what the other side does. What not: what Mach does beyond them.
//!
//! No call allocates, except `task_threads`, whose memory is mapped.

use std::ffi::{CStr, c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

use stackbeat_core::platform;

use crate::apple::mach::registers::{FLAVOR, ThreadState};
use crate::apple::mach::{
    EXTENDED_INFO, ExtendedInfo, IDENTIFIER_INFO, INVALID_ARGUMENT, IdentifierInfo, Port, Return,
    STATE_RUNNING, SUCCESS, words_of,
};
use crate::apple::resources::UsageInfo;

/// kern_return.h, `KERN_FAILURE`.
const FAILURE: Return = 5;
/// thread_info.h, `TH_STATE_WAITING`.
const STATE_WAITING: i32 = 3;
/// A port is a thread's tid and this.
const PORTS: Port = 0x0100_0000;
/// What suspends.
const SIGNAL: c_int = 40;

/// Ports that are held, all together.
pub(super) static HELD: AtomicI64 = AtomicI64::new(0);

/// The tid of the thread that is suspended, or is to be; 0: none.
static WHOM: AtomicU32 = AtomicU32::new(0);
/// What its handler has reached.
static STEP: AtomicU32 = AtomicU32::new(0);
const ASKED: u32 = 1;
const STILL: u32 = 2;
const MAY_GO: u32 = 3;
/// Its registers: rip, rsp, rbp.
static REGISTERS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

#[unsafe(no_mangle)]
static mach_task_self_: Port = 1;

extern "C" fn stand_still(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: what the kernel gives a handler.
    let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    if WHOM.load(Ordering::SeqCst) != platform::thread_id() {
        return;
    }
    for (place, register) in [libc::REG_RIP, libc::REG_RSP, libc::REG_RBP]
        .iter()
        .enumerate()
    {
        REGISTERS[place].store(registers[*register as usize] as u64, Ordering::Relaxed);
    }
    STEP.store(STILL, Ordering::SeqCst);
    platform::wake(&STEP, 1);
    while STEP.load(Ordering::SeqCst) == STILL {
        platform::wait(&STEP, STILL, None);
    }
    WHOM.store(0, Ordering::SeqCst);
    platform::wake(&WHOM, 1);
}

fn tid_of(port: Port) -> u32 {
    port - PORTS
}

fn signal(tid: u32, signal: c_int) -> c_int {
    // SAFETY: asks for a signal to a thread of this process.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, signal) as c_int }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn thread_suspend(thread: Port) -> Return {
    static HANDLER: Once = Once::new();
    HANDLER.call_once(|| {
        // SAFETY: a handler for a signal that nobody else here uses.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = stand_still as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigfillset(&raw mut action.sa_mask);
            libc::sigaction(SIGNAL, &raw const action, ptr::null_mut());
        }
    });
    let tid = tid_of(thread);
    // The one before is on its way out of the handler.
    loop {
        let before = WHOM.load(Ordering::SeqCst);
        if before == 0 {
            break;
        }
        platform::wait(&WHOM, before, Some(1_000_000));
    }
    STEP.store(ASKED, Ordering::SeqCst);
    WHOM.store(tid, Ordering::SeqCst);
    let is_gone = || {
        WHOM.store(0, Ordering::SeqCst);
        INVALID_ARGUMENT
    };
    if signal(tid, SIGNAL) != 0 {
        return is_gone();
    }
    while STEP.load(Ordering::SeqCst) == ASKED {
        if signal(tid, 0) != 0 {
            return is_gone();
        }
        platform::wait(&STEP, ASKED, Some(1_000_000));
    }
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn thread_resume(thread: Port) -> Return {
    assert_eq!(WHOM.load(Ordering::SeqCst), tid_of(thread), "resumed once");
    STEP.store(MAY_GO, Ordering::SeqCst);
    platform::wake(&STEP, 1);
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn thread_get_state(
    thread: Port,
    flavor: c_int,
    state: *mut c_int,
    count: *mut u32,
) -> Return {
    // SAFETY: by contract of the call.
    let room = unsafe { *count };
    if flavor != FLAVOR || room < words_of::<ThreadState>() {
        return INVALID_ARGUMENT;
    }
    if STEP.load(Ordering::SeqCst) != STILL || WHOM.load(Ordering::SeqCst) != tid_of(thread) {
        return FAILURE;
    }
    let [rip, rsp, rbp] = [0, 1, 2].map(|i: usize| REGISTERS[i].load(Ordering::Relaxed));
    // SAFETY: there is room for it.
    unsafe {
        state.cast::<ThreadState>().write(ThreadState {
            rip,
            rsp,
            rbp,
            ..ThreadState::default()
        });
        *count = words_of::<ThreadState>();
    }
    SUCCESS
}

/// Reads a small file of /proc without allocating.
fn read_file<'a>(tid: u32, name: &str, room: &'a mut [u8; 512]) -> Option<&'a [u8]> {
    use std::io::Write;
    let mut path = [0u8; 64];
    write!(&mut path[..63], "/proc/self/task/{tid}/{name}").ok()?;
    let path = std::ffi::CStr::from_bytes_until_nul(&path).ok()?;
    let file = platform::open(path, libc::O_RDONLY, 0).ok()?;
    let read = platform::read(file, room);
    platform::close(file);
    room.get(..read.ok()?)
}

/// CPU time of a thread of this process (`MAKE_THREAD_CPUCLOCK` of the kernel's
/// include/linux/posix-timers_types.h).
fn cpu_ns(tid: u32) -> u64 {
    const SCHED_AND_PER_THREAD: libc::clockid_t = 2 | 4;
    platform::clock_ns((!(tid as libc::clockid_t) << 3) | SCHED_AND_PER_THREAD)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn thread_info(
    thread: Port,
    flavor: c_int,
    info: *mut c_int,
    count: *mut u32,
) -> Return {
    let tid = tid_of(thread);
    // SAFETY: by contract of the call.
    let room = unsafe { *count };
    let mut text = [0; 512];
    match flavor {
        IDENTIFIER_INFO if room >= words_of::<IdentifierInfo>() => {
            if signal(tid, 0) != 0 {
                return INVALID_ARGUMENT;
            }
            let found = IdentifierInfo {
                thread_id: tid.into(),
                ..IdentifierInfo::default()
            };
            // SAFETY: there is room for it.
            unsafe { info.cast::<IdentifierInfo>().write(found) };
        }
        EXTENDED_INFO if room >= words_of::<ExtendedInfo>() => {
            let mut found = ExtendedInfo::ZERO;
            found.user_ns = cpu_ns(tid);
            let Some(stat) = read_file(tid, "stat", &mut text) else {
                return INVALID_ARGUMENT;
            };
            // After the name, which may have any bytes.
            let state = stat
                .iter()
                .rposition(|byte| *byte == b')')
                .and_then(|at| stat.get(at + 2));
            found.run_state = match state {
                Some(b'R') => STATE_RUNNING,
                _ => STATE_WAITING,
            };
            if let Some(name) = read_file(tid, "comm", &mut text) {
                let name = name.strip_suffix(b"\n").unwrap_or(name);
                found.name[..name.len()].copy_from_slice(name);
            }
            // SAFETY: there is room for it.
            unsafe { info.cast::<ExtendedInfo>().write(found) };
        }
        _ => return INVALID_ARGUMENT,
    }
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn task_threads(task: Port, threads: *mut *mut Port, count: *mut u32) -> Return {
    assert_eq!(task, mach_task_self_);
    let entries = std::fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten();
    let tids: Vec<u32> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    // SAFETY: new memory, which is large enough.
    unsafe {
        let bytes = tids.len() * size_of::<Port>();
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        let memory = libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0);
        assert_ne!(memory, libc::MAP_FAILED);
        let memory = memory.cast::<Port>();
        for (at, tid) in tids.iter().enumerate() {
            memory.add(at).write(PORTS + tid);
        }
        *threads = memory;
        *count = tids.len() as u32;
    }
    HELD.fetch_add(tids.len() as i64, Ordering::Relaxed);
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mach_port_deallocate(task: Port, name: Port) -> Return {
    assert!(task == mach_task_self_ && name > PORTS);
    HELD.fetch_sub(1, Ordering::Relaxed);
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vm_deallocate(_: Port, address: usize, bytes: usize) -> Return {
    // SAFETY: what `task_threads` has mapped.
    match unsafe { libc::munmap(ptr::with_exposed_provenance_mut(address), bytes) } {
        0 => SUCCESS,
        _ => FAILURE,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vm_read_overwrite(
    _: Port,
    address: usize,
    bytes: usize,
    to: usize,
    copied: *mut usize,
) -> Return {
    // SAFETY: by contract of the call.
    let to = unsafe { std::slice::from_raw_parts_mut(ptr::with_exposed_provenance_mut(to), bytes) };
    match platform::read_memory(platform::process_id(), address as u64, to) {
        Ok(read) if read == bytes => {
            // SAFETY: by contract of the call.
            unsafe { *copied = bytes };
            SUCCESS
        }
        _ => INVALID_ARGUMENT,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mach_absolute_time() -> u64 {
    // Units of 125/3 ns, as on Apple's own processors.
    platform::clock_ns(libc::CLOCK_MONOTONIC) * 3 / 125
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mach_timebase_info(info: *mut [u32; 2]) -> Return {
    // SAFETY: by contract of the call.
    unsafe { *info = [125, 3] };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mach_wait_until(deadline: u64) -> Return {
    let ns = deadline * 125 / 3;
    let now = platform::clock_ns(libc::CLOCK_MONOTONIC);
    std::thread::sleep(std::time::Duration::from_nanos(ns.saturating_sub(now)));
    SUCCESS
}

/// What is looked for by name.
pub(in super::super) fn look_up(name: &CStr) -> *mut c_void {
    match name.to_bytes() {
        b"proc_pid_rusage" => proc_pid_rusage as *mut c_void,
        _ => ptr::null_mut(),
    }
}

/// What a process uses: each second of CPU time takes 2 J here, and writes 1 GB.
unsafe extern "C" fn proc_pid_rusage(pid: c_int, flavor: c_int, info: *mut UsageInfo) -> c_int {
    if pid != std::process::id() as c_int || flavor != 4 {
        return -1;
    }
    let cpu_ns = platform::clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID);
    let found = UsageInfo {
        resident_bytes: 70 << 20,
        footprint_bytes: 50 << 20,
        disk_written_bytes: cpu_ns,
        billed_energy_nj: 2 * cpu_ns,
        ..UsageInfo::default()
    };
    // SAFETY: by contract of the call.
    unsafe { info.write(found) };
    0
}
