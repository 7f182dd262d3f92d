//! `syscall()`: raw system calls of programs that bring their own locks and parking (Rust, folly,
//! abseil, Go through cgo).
//!
//! Only futex calls and the numbers that block are looked at. Everything else is a jump to the
//! original with all registers as they came.

use core::arch::naked_asm;
use core::ffi::c_long;
use libc::*;
use stackbeat_core::agent;
use stackbeat_core::probe::Probe;

mod original {
    use super::*;
    original!(fn syscall(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long);
}

/// Numbers up to here are in [`LOOKED_AT`].
const NUMBERS: usize = 512;

/// The blocking calls and what they report.
const BLOCKING: &[(c_long, Probe)] = &[
    (SYS_read, Probe::Read),
    (SYS_readv, Probe::Read),
    (SYS_pread64, Probe::Read),
    (SYS_preadv, Probe::Read),
    (SYS_preadv2, Probe::Read),
    (SYS_write, Probe::Write),
    (SYS_writev, Probe::Write),
    (SYS_pwrite64, Probe::Write),
    (SYS_pwritev, Probe::Write),
    (SYS_pwritev2, Probe::Write),
    (SYS_sendfile, Probe::Sendfile),
    (SYS_copy_file_range, Probe::Sendfile),
    (SYS_splice, Probe::Splice),
    (SYS_tee, Probe::Splice),
    (SYS_vmsplice, Probe::Splice),
    (SYS_openat, Probe::Open),
    (SYS_openat2, Probe::Open),
    (SYS_fsync, Probe::Fsync),
    (SYS_fdatasync, Probe::Fsync),
    (SYS_fcntl, Probe::Fcntl),
    (SYS_flock, Probe::FileLock),
    (SYS_connect, Probe::Connect),
    (SYS_accept, Probe::Accept),
    (SYS_accept4, Probe::Accept),
    (SYS_sendto, Probe::Send),
    (SYS_sendmsg, Probe::Send),
    (SYS_sendmmsg, Probe::Send),
    (SYS_recvfrom, Probe::Recv),
    (SYS_recvmsg, Probe::Recv),
    (SYS_recvmmsg, Probe::Recv),
    (SYS_ppoll, Probe::Poll),
    (SYS_io_getevents, Probe::Poll),
    (SYS_io_uring_enter, Probe::Poll),
    (SYS_pselect6, Probe::Select),
    (SYS_epoll_pwait, Probe::EpollWait),
    (SYS_epoll_pwait2, Probe::EpollWait),
    (SYS_nanosleep, Probe::Nanosleep),
    (SYS_clock_nanosleep, Probe::Nanosleep),
    (SYS_semop, Probe::SemWait),
    (SYS_semtimedop, Probe::SemWait),
    (SYS_msgrcv, Probe::Read),
    (SYS_msgsnd, Probe::Write),
    (SYS_mq_timedreceive, Probe::Read),
    (SYS_mq_timedsend, Probe::Write),
    (SYS_rt_sigtimedwait, Probe::SignalWait),
    (SYS_rt_sigsuspend, Probe::SignalWait),
    (SYS_wait4, Probe::Wait),
    (SYS_waitid, Probe::Wait),
    (SYS_getrandom, Probe::Read),
    #[cfg(target_arch = "x86_64")]
    (SYS_open, Probe::Open),
    #[cfg(target_arch = "x86_64")]
    (SYS_poll, Probe::Poll),
    #[cfg(target_arch = "x86_64")]
    (SYS_select, Probe::Select),
    #[cfg(target_arch = "x86_64")]
    (SYS_epoll_wait, Probe::EpollWait),
    #[cfg(target_arch = "x86_64")]
    (SYS_pause, Probe::SignalWait),
    // futex_wait and futex_waitv of Linux 5.16 and 6.7.
    (449, Probe::FutexWait),
    (455, Probe::FutexWait),
    (SYS_futex, Probe::FutexWait),
];

/// A bit for each number of [`BLOCKING`], for the assembly.
static LOOKED_AT: [u64; NUMBERS / 64] = {
    let mut bits = [0; NUMBERS / 64];
    let mut i = 0;
    while i < BLOCKING.len() {
        let number = BLOCKING[i].0 as usize;
        bits[number / 64] |= 1 << (number % 64);
        i += 1;
    }
    bits
};

#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn syscall() {
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        "cmp rdi, {numbers}",
        "jae 2f",
        "lea rax, [rip + {looked_at}]",
        "bt qword ptr [rax], rdi",
        "jc {looked}",
        "2: jmp [rip + {original}]",
        numbers = const NUMBERS,
        looked_at = sym LOOKED_AT,
        looked = sym looked,
        original = sym original::syscall::ORIGINAL,
    );
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        "cmp x0, #{numbers}",
        "b.hs 2f",
        "adrp x16, {looked_at}",
        "add x16, x16, :lo12:{looked_at}",
        "lsr x17, x0, #6",
        "ldr x16, [x16, x17, lsl #3]",
        "lsr x16, x16, x0",
        "tbnz x16, #0, {looked}",
        "2: adrp x16, {original}",
        "ldr x16, [x16, :lo12:{original}]",
        "br x16",
        numbers = const NUMBERS,
        looked_at = sym LOOKED_AT,
        looked = sym looked,
        original = sym original::syscall::ORIGINAL,
    );
}

/// What a futex operation does to the calling thread.
enum Futex {
    Waits,
    Wakes,
    Neither,
}

fn futex_kind(operation: c_long) -> Futex {
    match operation as c_int & FUTEX_CMD_MASK {
        // FUTEX_LOCK_PI2 is 13.
        FUTEX_WAIT | FUTEX_WAIT_BITSET | FUTEX_LOCK_PI | FUTEX_WAIT_REQUEUE_PI | 13 => Futex::Waits,
        FUTEX_WAKE | FUTEX_WAKE_BITSET | FUTEX_WAKE_OP | FUTEX_REQUEUE | FUTEX_CMP_REQUEUE
        | FUTEX_CMP_REQUEUE_PI | FUTEX_UNLOCK_PI => Futex::Wakes,
        _ => Futex::Neither,
    }
}

/// A system call whose number is in [`LOOKED_AT`].
unsafe extern "C-unwind" fn looked(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    let probe = if number == SYS_futex {
        match futex_kind(b) {
            Futex::Waits => Probe::FutexWait,
            Futex::Wakes => {
                // SAFETY: the caller's arguments, passed on.
                let result = unsafe { original::syscall::call(number, a, b, c, d, e, f) };
                agent::hit(Probe::FutexWake, a as u64);
                return result;
            }
            // SAFETY: the caller's arguments, passed on.
            Futex::Neither => return unsafe { original::syscall::call(number, a, b, c, d, e, f) },
        }
    } else {
        BLOCKING
            .iter()
            .find(|(n, _)| *n == number)
            .map_or(Probe::FutexWait, |(_, probe)| *probe)
    };
    let wait = agent::begin_wait(probe, a as u64);
    // SAFETY: the caller's arguments, passed on.
    let result = unsafe { original::syscall::call(number, a, b, c, d, e, f) };
    wait.end(result);
    result
}
