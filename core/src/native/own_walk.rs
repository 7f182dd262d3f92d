//! Walks of this process' own threads: its rules, its memory.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::rule_cache::{CACHE, GENERATION, KNOWS_NOWHERE};
use super::{generated_code, unwind_memory};
use crate::native::own_modules::{self, Lookup};
use crate::unwind::cfi::RegisterNumbers;
use crate::unwind::full::{self, AllRegisters};
use crate::unwind::rule::Rule;
use crate::unwind::walk::{ReadStack, Rules, Stack};
use crate::unwind::{Frames, Registers, StackBounds, StackWalker, Start, WalkEnd};

/// The rules of this process' code.
///
/// # Signal safety
/// Takes no lock, allocates nothing. A miss costs about a microsecond, a new module some ten.
#[derive(Clone, Debug)]
pub struct NativeRules {
    /// Of the cached rules when the walk began.
    generation: u32,
    /// Of those that it believes now. Differs once the walk itself took in a module: what the cache
    /// says of addresses there is from before.
    cached: Cell<u32>,
    /// The same of generated code, whose rules are not in the cache.
    of_generated: u32,
}

impl NativeRules {
    /// The rules as they are now.
    #[inline(always)]
    pub fn now() -> NativeRules {
        let generation = GENERATION.load(Ordering::Acquire);
        NativeRules {
            generation,
            cached: Cell::new(generation),
            of_generated: generated_code::generation(),
        }
    }
}

impl Rules for NativeRules {
    #[inline(always)]
    fn rule(&self, pc: u64, exact: bool) -> Rule {
        match CACHE.get(pc, exact, self.cached.get()) {
            Some(rule) => rule,
            None => {
                let rule = derive(pc, exact);
                self.cached.set(GENERATION.load(Ordering::Acquire));
                rule
            }
        }
    }

    fn full_step(
        &self,
        registers: &mut AllRegisters,
        exact: bool,
        read: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Option<bool> {
        let (pc, _) = registers.state();
        let lookup = if exact { pc } else { pc.wrapping_sub(1) };
        let tables = own_modules::find(lookup)?.tables()?;
        full::step(tables, lookup, &RegisterNumbers::NATIVE, registers, read)
    }

    #[cold]
    fn generated_rule(&self, pc: u64, exact: bool) -> Option<Rule> {
        generated_code::rule(if exact { pc } else { pc.wrapping_sub(1) })
    }

    #[inline(always)]
    fn generation(&self) -> u32 {
        // Both only grow.
        self.generation.wrapping_add(self.of_generated)
    }
}

/// Makes the rule of an address that the cache does not hold.
#[cold]
#[inline(never)]
fn derive(pc: u64, exact: bool) -> Rule {
    let generation = GENERATION.load(Ordering::Acquire);
    // A call can be the last instruction of a function: the return address then belongs to the next.
    let lookup = if exact { pc } else { pc.wrapping_sub(1) };
    let rule = match own_modules::find_or_take_in(lookup) {
        Lookup::Module(module) if module.is_code(lookup) => match module.tables() {
            Some(tables) => match tables.rule(lookup, pc, &RegisterNumbers::NATIVE) {
                // The dynamic linker's entry code has no tables; below it there is nothing.
                Rule::UNKNOWN if own_modules::is_loader(module) => Rule::END,
                rule => rule,
            },
            None => Rule::UNKNOWN,
        },
        Lookup::Busy => return Rule::NOT_NOW,
        Lookup::Module(_) => nowhere(),
        Lookup::Nothing => {
            let rule = nowhere();
            // A module that came before the cache was known to hold such a rule raised no generation.
            if own_modules::find(lookup).is_some() {
                return Rule::NOT_NOW;
            }
            rule
        }
    };
    CACHE.insert(pc, exact, generation, rule);
    rule
}

/// The rule of an address where no module's code lies.
fn nowhere() -> Rule {
    // Before the caller's look at the modules, so that one of both sees the other's.
    KNOWS_NOWHERE.swap(1, Ordering::AcqRel);
    Rule::NOWHERE
}

/// Words read at once from outside the thread's own stack.
const WINDOW: usize = 64;
/// Most such reads in one walk.
const WINDOW_READS: u32 = 64;

/// The memory that a walk of the current thread reads: its own stack directly, anything else (an
/// alternate signal stack, a coroutine's) through the kernel, which fails instead of faulting.
#[derive(Debug)]
pub struct NativeMemory<'a> {
    bounds: StackBounds,
    low: u64,
    bytes: u64,
    window: &'a mut Window,
    reads_left: u32,
}

/// Scratch memory for words from elsewhere.
#[derive(Debug)]
pub struct Window {
    start: u64,
    words: usize,
    content: [u64; WINDOW],
}

impl Window {
    /// A window that has read nothing yet.
    pub const fn new() -> Window {
        Window {
            start: 0,
            words: 0,
            content: [0; WINDOW],
        }
    }
}

impl Default for Window {
    fn default() -> Self {
        Window::new()
    }
}

impl<'a> NativeMemory<'a> {
    /// Memory of a walk that begins at stack pointer `sp`. Outside of `bounds`, and below `sp`, it is
    /// read through the kernel.
    pub fn new(sp: u64, bounds: StackBounds, window: &'a mut Window) -> NativeMemory<'a> {
        let inside = bounds.low <= sp && sp < bounds.high;
        window.words = 0;
        NativeMemory {
            bounds,
            low: sp,
            // Whole words only.
            bytes: if inside {
                (bounds.high & !7).saturating_sub(sp)
            } else {
                0
            },
            window,
            reads_left: WINDOW_READS,
        }
    }

    #[cold]
    #[inline(never)]
    fn read_elsewhere(&mut self, address: u64) -> Option<u64> {
        if !address.is_multiple_of(8) || address < 4096 {
            return None;
        }
        let offset = address.wrapping_sub(self.window.start) / 8;
        if offset < self.window.words as u64 {
            return Some(self.window.content[offset as usize]);
        }
        self.reads_left = self.reads_left.checked_sub(1)?;
        let words = unwind_memory::read_words(address, &mut self.window.content);
        self.window.start = address;
        self.window.words = words;
        (words > 0).then(|| self.window.content[0])
    }
}

// SAFETY: what `own` names lies in the bounds, whose maker promised that they can be read.
unsafe impl ReadStack for NativeMemory<'_> {
    fn read(&mut self, address: u64) -> Option<u64> {
        let (low, bytes) = self.own();
        if address.is_multiple_of(8) && address.wrapping_sub(low) < bytes {
            // SAFETY: aligned and own.
            Some(unsafe { self.read_own(address) })
        } else {
            self.read_elsewhere(address)
        }
    }

    #[inline(always)]
    fn own(&self) -> (u64, u64) {
        (self.low, self.bytes)
    }

    #[inline(always)]
    unsafe fn read_own(&self, address: u64) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { self.bounds.read_unchecked(address) }
    }
}

/// Looks of a thread at whether the known modules are still there come after so many walks. Libraries
/// can go without `dlclose` being called: glibc closes its own plug-ins from inside.
const WALKS_BETWEEN_LOOKS: u32 = 1024;

/// The mode that repeats each walk that reused something as a full one, and counts differences.
struct Checks {
    is_on: AtomicBool,
    walks: AtomicU64,
    differing: AtomicU64,
}

static CHECKS: Checks = Checks {
    is_on: AtomicBool::new(false),
    walks: AtomicU64::new(0),
    differing: AtomicU64::new(0),
};

/// From now on each walk that reuses frames is checked against a full walk, which replaces it where
/// they differ.
pub fn check_walks() {
    CHECKS.is_on.store(true, Ordering::Relaxed);
}

/// Walks checked so far, and how many of them differed.
pub fn checked_walks() -> (u64, u64) {
    (
        CHECKS.walks.load(Ordering::Relaxed),
        CHECKS.differing.load(Ordering::Relaxed),
    )
}

/// A thread's walker over this process' code, with the thread's last stack.
#[derive(Debug)]
#[repr(C)]
pub struct NativeWalker {
    window: Window,
    walks: u32,
    stack: Stack,
}

impl NativeWalker {
    /// Walks the current thread's stack and keeps it.
    ///
    /// `bounds` are those of the current thread's stack, or of a copy of it.
    #[inline]
    pub fn walk_stack(
        &mut self,
        registers: &Registers,
        bounds: &StackBounds,
        exact: bool,
        limit: usize,
    ) -> WalkEnd {
        self.walks = self.walks.wrapping_add(1);
        if own_modules::is_dirty() || self.walks.is_multiple_of(WALKS_BETWEEN_LOOKS) {
            own_modules::revalidate();
        }
        let mut memory = NativeMemory::new(registers.sp, *bounds, &mut self.window);
        let from = Start {
            registers,
            exact,
            high: bounds.high,
            skip: own_modules::own_code(),
        };
        let end = self
            .stack
            .walk(&from, limit, &NativeRules::now(), &mut memory);
        if CHECKS.is_on.load(Ordering::Relaxed) && self.stack.kept() > 0 {
            CHECKS.walks.fetch_add(1, Ordering::Relaxed);
            let rules = NativeRules::now();
            if !self.stack.equals_full_walk(&from, &rules, &mut memory) {
                CHECKS.differing.fetch_add(1, Ordering::Relaxed);
                self.stack.forget();
                return self.stack.walk(&from, limit, &rules, &mut memory);
            }
        }
        end
    }

    /// The stack of the last walk.
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    /// The stack of the last walk, to note nodes in or to forget it.
    pub fn stack_mut(&mut self) -> &mut Stack {
        &mut self.stack
    }

    /// A new walker on the heap, for tests and benchmarks.
    pub fn boxed() -> std::boxed::Box<NativeWalker> {
        // SAFETY: all-zero is a valid walker (see the implementation of `StackWalker`).
        unsafe { crate::unwind::walk::zeroed() }
    }
}

// SAFETY: numbers, and a `Stack`, for which all-zero means that it has seen nothing.
unsafe impl StackWalker for NativeWalker {
    fn walk(
        &mut self,
        registers: &Registers,
        bounds: &StackBounds,
        exact_leaf: bool,
        out: &mut Frames,
    ) -> WalkEnd {
        let end = self.walk_stack(registers, bounds, exact_leaf, out.limit());
        let frames = self.stack.frames();
        let kept = self.stack.kept();
        for frame in frames.iter().rev() {
            if !out.push(frame.pc) {
                // Reuse may go a little beyond the limit.
                return WalkEnd::Depth;
            }
        }
        out.same_outermost = kept;
        end
    }
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;
    use core::ffi::{c_int, c_void};
    use std::vec::Vec;

    #[allow(improper_ctypes)]
    unsafe extern "C" {
        fn _Unwind_Backtrace(
            callback: extern "C" fn(*mut c_void, *mut Vec<u64>) -> c_int,
            data: *mut Vec<u64>,
        ) -> c_int;
        fn _Unwind_GetIP(context: *mut c_void) -> u64;
    }

    extern "C" fn note(context: *mut c_void, addresses: *mut Vec<u64>) -> c_int {
        // SAFETY: libgcc passes its context and what `_Unwind_Backtrace` was given.
        unsafe {
            match _Unwind_GetIP(context) {
                0 => {}
                address => (*addresses).push(address),
            }
        }
        0
    }

    /// The frames from the caller outward: ours and libgcc's.
    #[inline(never)]
    fn both(walker: &mut NativeWalker) -> (Vec<u64>, Vec<u64>) {
        // SAFETY: plain queries about the calling thread, whose stack it is.
        let bounds = unsafe {
            let mut attributes = core::mem::zeroed();
            libc::pthread_getattr_np(libc::pthread_self(), &mut attributes);
            let (mut low, mut size) = (core::ptr::null_mut(), 0);
            libc::pthread_attr_getstack(&attributes, &mut low, &mut size);
            libc::pthread_attr_destroy(&mut attributes);
            StackBounds::of_stack(low as u64, low as u64 + size as u64)
        };
        let end = walker.walk_stack(&Registers::here(), &bounds, true, 256);
        assert_eq!(end, WalkEnd::Root);
        let mut libgcc = Vec::new();
        // SAFETY: the callback takes what is passed.
        unsafe { _Unwind_Backtrace(note, &mut libgcc) };
        let frames = walker.stack().frames().iter().rev();
        let ours = frames.skip(1).map(|frame| frame.pc).collect();
        (ours, libgcc[1..].to_vec())
    }

    /// Frames of different sizes, some with much saved.
    #[inline(never)]
    fn deep(depth: usize, values: [u64; 4], walker: &mut NativeWalker) -> u64 {
        let local = [values[0]; 3];
        core::hint::black_box(&local);
        if depth == 0 {
            let (ours, libgcc) = both(walker);
            assert_eq!(ours, libgcc);
            return ours.len() as u64;
        }
        let [a, b, c, d] = values;
        let inner = deep(depth - 1, [b ^ a, c + b, d | c, a & d], walker);
        core::hint::black_box(&local);
        core::hint::black_box(a.wrapping_mul(b) ^ c.wrapping_mul(d));
        inner
    }

    #[test]
    fn a_thread_of_ours_equals_libgcc() {
        own_modules::init();
        let generated_before = generated_code::generation();
        let mut walker = NativeWalker::boxed();
        for depth in [0, 1, 5, 30, 30, 3, 100] {
            assert!(deep(depth, [1, 2, 3, 4], &mut walker) > depth as u64);
        }
        // Other tests of this process may add and remove code.
        let is_as_before = generated_code::generation() == generated_before;
        assert!(walker.stack().kept() > 0 || !is_as_before);
    }
}
