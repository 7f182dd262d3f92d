//! What a process' entry says of its sandbox, in words.

use stackbeat_core::shm::layout::sandboxed;

/// What bits of `sandboxed` mean for what the trace shows of the process.
const MEANING: [(u32, &str); 7] = [
    (
        sandboxed::FILTERED,
        "sandbox: a seccomp filter, the agent makes no system call that it does not allow",
    ),
    (
        sandboxed::NO_SIGNALS,
        "sandbox: threads are not interrupted (the filter refuses rt_sigreturn), so what they compute between \
         two hooks has CPU time but no stack",
    ),
    (
        sandboxed::THREADS_MISSING,
        "sandbox: threads that began under the filter are not recorded (it refuses mmap or gettid)",
    ),
    (
        sandboxed::OFF_STRICT,
        "sandbox: not recorded from here on (seccomp's strict mode, or a filter that could not be read)",
    ),
    (
        sandboxed::OFF_NO_CLOCK,
        "sandbox: not recorded from here on (the filter refuses clock_gettime)",
    ),
    (
        sandboxed::OFF_UNKNOWN,
        "sandbox: not recorded (it began under a seccomp filter of which nothing is known)",
    ),
    (
        sandboxed::OFF_NO_CALLS,
        "sandbox: not recorded from here on (system calls or the cycle counter are kept from it)",
    ),
];

/// What is to be said of these bits.
pub(super) fn texts(bits: u32) -> impl Iterator<Item = &'static str> {
    MEANING
        .into_iter()
        .filter(move |(bit, _)| bits & bit != 0)
        .map(|(_, text)| text)
}
