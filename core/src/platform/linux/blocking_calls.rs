//! System calls that can block, and the probes that stand for them.

use crate::probe::Probe;
use libc::*;

/// sendfile(2) in include/uapi/asm-generic/unistd.h; `libc` lacks it here.
#[cfg(all(target_os = "android", target_arch = "aarch64"))]
#[allow(non_upper_case_globals, reason = "named as libc names it elsewhere")]
const SYS_sendfile: c_long = 71;

/// The calls that can block, by number.
pub const BLOCKING: &[(c_long, Probe)] = &[
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
    (SYS_semop, Probe::SemaphoreSet),
    (SYS_semtimedop, Probe::SemaphoreSet),
    (SYS_msgrcv, Probe::MessageReceive),
    (SYS_msgsnd, Probe::MessageSend),
    (SYS_mq_timedreceive, Probe::QueueReceive),
    (SYS_mq_timedsend, Probe::QueueSend),
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
];

/// The probe of an `fcntl` with this command: some wait for a lock.
pub fn control_probe(command: c_int) -> Probe {
    match command {
        F_SETLKW | F_OFD_SETLKW => Probe::FileLock,
        _ => Probe::Fcntl,
    }
}

/// The probe that stands for a system call that can block; of futex calls, those that wait. `operation`: its
/// second argument.
pub fn probe_of(number: c_long, operation: c_int) -> Option<Probe> {
    if number == SYS_futex {
        return Some(Probe::FutexWait);
    }
    if number == SYS_fcntl {
        return Some(control_probe(operation));
    }
    let mut known = BLOCKING.iter();
    known.find(|(n, _)| *n == number).map(|(_, probe)| *probe)
}
