//! The coroutines that wait for the task which a thread runs: those of the task that awaits it, of the one
//! that awaits that, and so on (CPython 3.14 and later).
//!
//! A coroutine that another one awaits is on the interpreter's stack as its caller. What awaits a task is
//! not: the event loop calls the task. But each task says who awaits it. Where it says that, `_asyncio` tells
//! in a section of its file that has no symbol (`_AsyncioDebug`, Modules/_asynciomodule.c). An awaiting task
//! is suspended: its coroutine has its frame inside of itself, and the coroutine that it awaits in turn on
//! that frame's stack.
//!
//! A task that several others await ends the chain: a stack has one caller.
//!
//! As all reading of an interpreter this runs in signal handlers, while other threads change and free what is
//! read: by `Memory` alone, without allocating, and each loop has a bound.

use super::super::memory::Memory;
use super::super::{Frames, Module};
use super::{Copied, Reader};
use crate::unwind::elf::{self, ReadBytes};
use core::sync::atomic::{AtomicU64, Ordering};

/// Most tasks and futures of a chain, and most coroutines of one task. Programs have some ten.
const MOST_TASKS: usize = 128;
const MOST_COROUTINES: usize = 256;
/// Frames of what awaits after which the chain ends: most of the room is for calls.
const MOST_AWAITING: usize = 256;
/// Most places of a set that are looked at: one that shrank to a single entry keeps those of before.
const MOST_ENTRIES: u64 = 256;

/// Where asyncio's fields lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asyncio {
    /// `_PyThreadStateImpl::asyncio_running_task`.
    running_task: u16,
    /// `TaskObj`: `task_awaited_by`, `task_awaited_by_is_set` (behind `task_is_task`), `task_coro`.
    awaited_by: u16,
    is_set: u16,
    coroutine: u16,
}

/// The one of this process, as [`Asyncio::to_bits`] gives it; 0: there is none.
static OWN: AtomicU64 = AtomicU64::new(0);

/// The asyncio of this process, if it was found.
#[inline]
pub fn own() -> Option<Asyncio> {
    Asyncio::from_bits(OWN.load(Ordering::Relaxed))
}

/// Whether a module may have it: `_asyncio`, or an interpreter that has it built in.
pub fn may_be_in(path: &[u8]) -> bool {
    const BEGINS: [&[u8]; 3] = [b"_asyncio.", b"python", b"libpython"];
    let file = path.rsplit(|byte| *byte == b'/').next();
    file.is_some_and(|file| BEGINS.iter().any(|begin| file.starts_with(begin)))
}

/// Whether the file of a module of this process is to be read for it: files are not read for interpreters
/// that have none.
#[cfg_attr(
    not(any(target_os = "linux", target_os = "android")),
    allow(dead_code, reason = "nobody tells of modules there")
)]
pub(crate) fn is_looked_for_in(path: &[u8]) -> bool {
    let has_chains = super::runtime().is_some_and(|runtime| runtime.offsets.coroutines.is_some());
    has_chains && own().is_none() && may_be_in(path)
}

/// A module is there that may have it, and its file can be read. Of two in one process the first is taken.
#[cfg_attr(
    not(any(target_os = "linux", target_os = "android")),
    allow(dead_code, reason = "nobody tells of modules there")
)]
pub(crate) fn module_came(module: &Module, mut file: impl ReadBytes) {
    if let Some(found) = Asyncio::of_module(&mut Copied::<2>::new(), module, &mut file) {
        let _ = OWN.compare_exchange(0, found.to_bits(), Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl Asyncio {
    /// What a module publishes, of whose file `file` reads parts.
    pub fn of_module(
        memory: &mut impl Memory,
        module: &Module,
        file: &mut impl ReadBytes,
    ) -> Option<Asyncio> {
        let (address, bytes) = elf::section(file, b".AsyncioDebug")?;
        let mut words = [0; 13];
        if bytes < size_of_val(&words) as u64 {
            return None;
        }
        let address = module.bias.in_process(address);
        for (i, word) in (0..).zip(&mut words) {
            *word = memory.word(address.checked_add(8 * i)?)?;
        }
        Asyncio::published(words)
    }

    /// From the words of `Py_AsyncioModuleDebugOffsets`. `None`: they make no sense, because the file is
    /// another one by now.
    fn published(words: [u64; 13]) -> Option<Asyncio> {
        let [task_bytes, _, awaited_by, is_task, is_set, coroutine, ..] = words;
        let [.., thread_bytes, running_loop, running_task, _] = words;
        let is_sensible = task_bytes < 1 << 12
            && thread_bytes < 1 << 16
            && [awaited_by, is_set, coroutine]
                .iter()
                .all(|offset| (1..task_bytes).contains(offset))
            && is_task.checked_add(1) == Some(is_set)
            && running_loop.checked_add(8) == Some(running_task)
            && (1..thread_bytes).contains(&running_task);
        is_sensible.then_some(Asyncio {
            running_task: running_task as u16,
            awaited_by: awaited_by as u16,
            is_set: is_set as u16,
            coroutine: coroutine as u16,
        })
    }

    fn to_bits(self) -> u64 {
        [
            self.running_task,
            self.awaited_by,
            self.is_set,
            self.coroutine,
        ]
        .iter()
        .fold(0, |bits, offset| bits << 16 | u64::from(*offset))
    }

    fn from_bits(bits: u64) -> Option<Asyncio> {
        let [running_task, awaited_by, is_set, coroutine] =
            [48, 32, 16, 0].map(|shift| (bits >> shift) as u16);
        (bits != 0).then_some(Asyncio {
            running_task,
            awaited_by,
            is_set,
            coroutine,
        })
    }
}

/// The task that a thread runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    object: u64,
    /// The frame of its coroutine.
    pub(super) frame: u64,
}

impl<M: Memory> Reader<'_, '_, M> {
    /// The task that runs in the thread with this state. `None`: none does, or it is not asked for.
    pub(super) fn running_task(&mut self, state: u64) -> Option<Task> {
        let (asyncio, of) = (self.asyncio?, self.runtime.offsets.coroutines?);
        let object = self.memory.word(state + u64::from(asyncio.running_task))?;
        if object == 0 {
            return None;
        }
        let coroutine = object.checked_add(asyncio.coroutine.into())?;
        let frame = self.memory.word(coroutine)?.checked_add(of.frame)?;
        Some(Task { object, frame })
    }

    /// Adds the frames of what awaits a task. A task of which something cannot be read ends the chain before
    /// it.
    pub(super) fn push_awaiting(&mut self, task: Task, out: &mut Frames) {
        let mut at = task.object;
        let begin = out.len();
        for _ in 0..MOST_TASKS {
            let before = out.len();
            if before - begin >= MOST_AWAITING {
                self.found.is_truncated = true;
                return;
            }
            match self.push_awaiting_one(at, out) {
                Some(next) => at = next,
                None => {
                    out.shorten(before);
                    return;
                }
            }
        }
    }

    /// Adds the frames of the only one that awaits a task or a future, and gives it. `None`: there is none.
    fn push_awaiting_one(&mut self, awaited: u64, out: &mut Frames) -> Option<u64> {
        let asyncio = self.asyncio?;
        let before = out.len();
        // A future has no frame, and takes room all the same.
        let has_room = out.take_room();
        self.room(has_room)?;
        let waiter = self.only_waiter(awaited, asyncio)?;
        let is_task = self
            .memory
            .byte(waiter.checked_add(u64::from(asyncio.is_set) - 1)?)?;
        if is_task != 0 {
            let coroutine = waiter.checked_add(asyncio.coroutine.into())?;
            let mut awaits = self.memory.word(coroutine)?;
            for _ in 0..MOST_COROUTINES {
                match self.push_coroutine(awaits, out)? {
                    Some(next) => awaits = next,
                    None => break,
                }
            }
            // They were met from the outermost on.
            out.turn_round(before);
        }
        Some(waiter)
    }

    /// Who awaits a task or a future, if that is one.
    fn only_waiter(&mut self, awaited: u64, asyncio: Asyncio) -> Option<u64> {
        let of = self.runtime.offsets.coroutines?;
        let waiters = self
            .memory
            .word(awaited.checked_add(asyncio.awaited_by.into())?)?;
        let is_set = self
            .memory
            .byte(awaited.checked_add(asyncio.is_set.into())?)?
            != 0;
        if waiters == 0 || !is_set {
            return Some(waiters).filter(|waiter| *waiter != 0);
        }
        if self.memory.word(waiters.checked_add(of.set_used)?)? != 1 {
            return None;
        }
        let table = self.memory.word(waiters + of.set_table)?;
        let mask = self.memory.word(waiters + of.set_mask)?;
        // `setentry`: a key and its hash, which is −1 only where a key was taken away.
        for index in 0..=mask.min(MOST_ENTRIES) {
            let entry = table.checked_add(16 * index)?;
            let (key, hash) = (self.memory.word(entry)?, self.memory.word(entry + 8)?);
            if key != 0 && hash != u64::MAX {
                return Some(key);
            }
        }
        None
    }

    /// Adds the frame of a coroutine, if it is a suspended one, and gives what it awaits.
    fn push_coroutine(&mut self, object: u64, out: &mut Frames) -> Option<Option<u64>> {
        let of = self.runtime.offsets.coroutines?;
        let kind = object.checked_add(self.runtime.offsets.object_type)?;
        let types = self.runtime.coroutine_types?;
        if !types.contains(&self.memory.word(kind)?) {
            return Some(None);
        }
        let state = self.memory.byte(object.checked_add(of.state)?)? as i8;
        if !(of.suspended.0..=of.suspended.1).contains(&state) {
            return Some(None);
        }
        let frame = object + of.frame;
        self.push_suspended(frame, out)?;
        if !(of.awaits.0..=of.awaits.1).contains(&state) {
            return Some(None);
        }
        let top = self.memory.word(frame + of.stack_pointer)?;
        // The lowest bits say who counts the reference.
        Some(Some(
            self.memory.word(top.checked_sub(of.awaited_below)?)? & !7,
        ))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) const ASYNCIO: Asyncio = Asyncio {
        running_task: 8,
        awaited_by: 16,
        is_set: 26,
        coroutine: 32,
    };

    /// Those of 3.14.
    const WORDS: [u64; 13] = [
        176, 136, 96, 108, 109, 128, 144, 4096, 2048, 800, 600, 608, 616,
    ];

    #[test]
    fn offsets_that_make_no_sense_are_refused() {
        let good = Asyncio::published(WORDS).expect("they make sense");
        assert_eq!(
            (good.awaited_by, good.is_set, good.coroutine),
            (96, 109, 128)
        );
        assert_eq!(Asyncio::from_bits(good.to_bits()), Some(good));
        assert_eq!(Asyncio::from_bits(0), None);
        for (index, value) in [
            (0, 100),
            (2, 0),
            (3, u64::MAX),
            (5, 1 << 40),
            (9, 4),
            (11, 600),
        ] {
            let mut words = WORDS;
            words[index] = value;
            assert_eq!(Asyncio::published(words), None, "{index} {value}");
        }
    }
}
