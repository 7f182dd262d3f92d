//! What the seccomp filters of this process let the agent do. Every system call of the agent passes
//! [`allows`] first: a filter may kill the program for a call that the program itself never makes.
//!
//! Filters that the process installs are noted here before the kernel has them, with their programs; the
//! agent then makes only calls that all of them allow. A filter holds for a thread and its children; what is
//! noted here holds for the whole process, which is never too little. Forked children inherit this memory. An
//! image that is started under a filter cannot ask the kernel for the program: it finds a copy in the mapping
//! (`found`), or is left alone.
//!
//! # Signal safety
//! Everything here may be called from hooks and signal handlers: nothing allocates or waits for a lock.

mod found;

pub use found::{Image, Start, Status, baseline, leave_copy, status};

use crate::platform;
use crate::platform::filter::{self, ARCHITECTURE, Call, Instruction, MOST_INSTRUCTIONS};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// What is known.
mod mode {
    /// No filter, or one that was there before the recording and lets programs start.
    pub(super) const OPEN: u32 = 0;
    /// There is a filter, and nothing is known but that this library could be loaded under it.
    pub(super) const LOADER: u32 = 1;
    /// The filters of `WORDS`.
    pub(super) const FILTERED: u32 = 2;
    /// No call at all.
    pub(super) const CLOSED: u32 = 3;
}

/// More than the kernel takes for a process (`MAX_INSNS_PER_PATH`, which counts four more for each filter).
const CAPACITY: usize = 1 << 15;

static MODE: AtomicU32 = AtomicU32::new(mode::OPEN);
/// Filters one after another: a header ([`VALID`] and the number of instructions), then the instructions. A
/// header of 0 is one whose filter is being noted at this moment.
static WORDS: [AtomicU64; CAPACITY] = [const { AtomicU64::new(0) }; CAPACITY];
static USED: AtomicUsize = AtomicUsize::new(0);
/// The agent's calls under way, for filters that come to threads which did not ask for them: in two sets of
/// counters that alternate, so that those from before a moment can be told from those since.
static CALLS: [[Calls; SHARDS]; 2] = [const { [const { Calls(AtomicU32::new(0)) }; SHARDS] }; 2];
/// Calls count in the set of this number, modulo 2.
static CURRENT_SET: AtomicUsize = AtomicUsize::new(0);

/// Calls under way of some of the threads: all threads together would wait for one cache line.
#[repr(align(64))]
struct Calls(AtomicU32);

const SHARDS: usize = 16;

/// The counter of the calling thread: by its stack, which is its own without asking for anything.
#[inline(always)]
fn calls_of_thread() -> &'static AtomicU32 {
    const STACK_SHIFT: u32 = 16;
    let here = 0u8;
    let shard = (&raw const here).addr() >> STACK_SHIFT;
    let set = CURRENT_SET.load(Ordering::Relaxed) % 2;
    &CALLS[set][(shard ^ shard >> 4) % SHARDS].0
}

/// The filter is in force, or about to be.
const VALID: u64 = 1 << 32;

fn instructions_of(header: u64) -> usize {
    header as u32 as usize
}

/// A system call of the agent that goes on.
#[derive(Debug)]
pub(crate) struct UnderWay(&'static AtomicU32);

impl UnderWay {
    /// To be called before the filters are read: [`settle`] sees the call, or the call sees the filter. Not a
    /// guard: a thread that is cancelled here is not to run anything of ours.
    #[inline(always)]
    pub(crate) fn begin() -> UnderWay {
        let calls = calls_of_thread();
        calls.fetch_add(1, Ordering::SeqCst);
        UnderWay(calls)
    }

    #[inline(always)]
    pub(crate) fn end(self) {
        // A child that nobody announced is noticed inside of a call, and begins with none.
        if self.0.load(Ordering::Relaxed) != 0 {
            self.0.fetch_sub(1, Ordering::Release);
        }
    }
}

/// Whether the agent may make this system call.
#[inline(always)]
pub fn allows(number: i64, arguments: &[usize; 6]) -> bool {
    MODE.load(Ordering::SeqCst) == mode::OPEN || is_known_to_be_allowed(number, arguments)
}

#[cold]
#[inline(never)]
fn is_known_to_be_allowed(number: i64, arguments: &[usize; 6]) -> bool {
    match MODE.load(Ordering::SeqCst) {
        mode::OPEN => true,
        mode::LOADER => LOADER.contains(&number),
        mode::FILTERED => all_allow(number, arguments, None),
        _ => false,
    }
}

/// What the dynamic loader has done to load this library.
const LOADER: [i64; 8] = [
    libc::SYS_openat,
    libc::SYS_read,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_close,
    platform::number::FSTAT,
    // What glibc 2.33 and later have instead.
    platform::number::NEWFSTATAT,
    // For the size of the main thread's stack.
    libc::SYS_prlimit64,
];

/// Whether all filters allow a call, and the one at `candidate`, which is not in force yet.
fn all_allow(number: i64, arguments: &[usize; 6], candidate: Option<usize>) -> bool {
    let here: fn(i64, &[usize; 6]) -> bool = is_known_to_be_allowed;
    let call = Call {
        number: number as i32,
        architecture: ARCHITECTURE,
        // Somewhere in the agent's code, as the call itself is.
        instruction_pointer: here as usize as u64,
        arguments: arguments.map(|argument| argument as u64),
    };
    let mut at = 0;
    while at < USED.load(Ordering::Acquire) {
        let Some(header) = WORDS.get(at).map(|word| word.load(Ordering::Acquire)) else {
            return false;
        };
        let length = instructions_of(header);
        if length == 0 {
            return false;
        }
        if header & VALID != 0 || candidate == Some(at) {
            let instruction = |i: usize| {
                let word = WORDS.get(at + 1 + i)?;
                Some(Instruction::from_word(word.load(Ordering::Relaxed)))
            };
            if !filter::is_allowed(filter::evaluate(length, instruction, &call)) {
                return false;
            }
        }
        at += 1 + length;
    }
    true
}

/// A filter that the process is about to install.
#[derive(Debug)]
#[must_use]
pub struct Candidate {
    at: usize,
    instructions: usize,
}

/// Why a filter is not noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotNoted {
    /// The kernel will refuse it.
    Invalid,
    /// It may be installed, and nothing is known of it.
    Unknown,
}

/// Reads memory of the program that may not be there.
fn read(address: u64, buffer: &mut [u8]) -> Result<(), NotNoted> {
    match platform::read_memory(platform::process_id(), address, buffer) {
        Ok(length) if length == buffer.len() => Ok(()),
        Ok(_) | Err(platform::Errno(libc::EFAULT)) => Err(NotNoted::Invalid),
        // Never the program's: the first page, and the kernel's half.
        Err(_) if address < 4096 || address > i64::MAX as u64 => Err(NotNoted::Invalid),
        Err(_) => {
            // SAFETY: the caller of the hook says that it lies there, and the kernel is about to read it;
            // only where the call that would look is refused is that believed.
            unsafe {
                let from = core::ptr::with_exposed_provenance::<u8>(address as usize);
                core::ptr::copy_nonoverlapping(from, buffer.as_mut_ptr(), buffer.len());
            }
            Ok(())
        }
    }
}

impl Candidate {
    /// Takes a filter down: the `struct sock_fprog` at `program`.
    pub fn read(program: u64) -> Result<Candidate, NotNoted> {
        let mut head = [0u8; 16];
        read(program, &mut head)?;
        let [low, high, .., a, b, c, d, e, f, g, h] = head;
        let instructions = usize::from(u16::from_ne_bytes([low, high]));
        let from = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
        if instructions == 0 || instructions > MOST_INSTRUCTIONS {
            return Err(NotNoted::Invalid);
        }
        let candidate = Candidate::reserve(instructions).ok_or(NotNoted::Unknown)?;
        let mut piece = [0u8; 512];
        let mut done = 0;
        while done < instructions {
            let count = (instructions - done).min(piece.len() / 8);
            if let Err(error) = read(from + done as u64 * 8, &mut piece[..count * 8]) {
                candidate.discard();
                return Err(error);
            }
            for (i, word) in piece[..count * 8].chunks_exact(8).enumerate() {
                let word = word.try_into().map_or(0, u64::from_ne_bytes);
                candidate.set(done + i, word);
            }
            done += count;
        }
        Ok(candidate)
    }

    fn reserve(instructions: usize) -> Option<Candidate> {
        let end = |at: usize| Some(at + 1 + instructions).filter(|end| *end <= CAPACITY);
        let at = USED
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, end)
            .ok()?;
        WORDS[at].store(instructions as u64, Ordering::Release);
        Some(Candidate { at, instructions })
    }

    fn set(&self, i: usize, word: u64) {
        if let Some(place) = WORDS.get(self.at + 1 + i) {
            place.store(word, Ordering::Relaxed);
        }
    }

    /// Whether the agent may still make this call with the filter in force.
    pub fn allows(&self, number: i64, arguments: &[usize; 6]) -> bool {
        allows(number, arguments) && all_allow(number, arguments, Some(self.at))
    }

    /// From here on the agent makes no call that the filter does not allow.
    pub fn apply(&self) {
        WORDS[self.at].fetch_or(VALID, Ordering::SeqCst);
        let _ = MODE.compare_exchange(
            mode::OPEN,
            mode::FILTERED,
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
    }

    /// The kernel has refused it: it is forgotten.
    pub fn discard(self) {
        WORDS[self.at].fetch_and(!VALID, Ordering::SeqCst);
        let end = self.at + 1 + self.instructions;
        if USED.load(Ordering::Acquire) == end {
            WORDS[self.at].store(0, Ordering::Release);
            let _ = USED.compare_exchange(end, self.at, Ordering::AcqRel, Ordering::Relaxed);
        }
        if USED.load(Ordering::Acquire) == 0 {
            let _ = MODE.compare_exchange(
                mode::FILTERED,
                mode::OPEN,
                Ordering::SeqCst,
                Ordering::SeqCst,
            );
        }
    }
}

/// From here on the agent makes no call at all. Gives what [`reopen`] takes.
pub fn close() -> u32 {
    MODE.swap(mode::CLOSED, Ordering::SeqCst)
}

/// What [`close`] was called for has not come to be.
pub fn reopen(before: u32) {
    MODE.store(before, Ordering::SeqCst);
}

/// Whether there are filters that are known, or anything that closes all calls.
pub fn is_filtered() -> bool {
    MODE.load(Ordering::SeqCst) != mode::OPEN
}

/// Waits for calls that other threads have begun before what was just noted; they are about to get a filter
/// that they have not asked for. Gives up after a moment when a thread has left one by a longjmp.
pub fn settle() {
    const MOST_LOOKS: u32 = 20_000;
    // On a busy machine others get the processor between two polls.
    const LONGEST_NS: u64 = 50_000_000;
    let now = || platform::clock_ns(libc::CLOCK_MONOTONIC);
    let before = &CALLS[CURRENT_SET.fetch_add(1, Ordering::SeqCst) % 2];
    let until = now().saturating_add(LONGEST_NS);
    for _ in 0..MOST_LOOKS {
        let is_quiet = |calls: &Calls| calls.0.load(Ordering::SeqCst) == 0;
        // The clock is 0 where the filter refuses it.
        if before.iter().all(is_quiet) || now() > until {
            return;
        }
        // Spins where the filter refuses it.
        platform::yield_now();
    }
}

/// In a forked child: other threads' calls are not under way here.
pub fn after_fork() {
    for calls in CALLS.as_flattened() {
        calls.0.store(0, Ordering::Relaxed);
    }
}

#[cfg(all(test, target_os = "linux", not(miri), not(loom)))]
mod tests;
