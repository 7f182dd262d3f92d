//! A preloaded library that does nothing but walk: every `malloc` of the program, at most once per
//! so many microseconds a thread, walks the stack, checks it against a full walk, and at exit the
//! counts are written to a file. The tests run real programs under it; with
//! `WALK_TIME=1` it measures instead of checking.
//!
//! `WALK_RESULT=FILE WALK_INTERVAL_US=100 LD_PRELOAD=…/libwalk_on_malloc.so PROGRAM…`
#![cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::Relaxed};
use std::fmt::Write as _;

use stackbeat_core::native::own_modules;
use stackbeat_core::native::own_walk::{self, NativeWalker};
use stackbeat_core::platform::{self, Backing};
use stackbeat_core::unwind::{Registers, StackBounds, WalkEnd};

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    static __libc_stack_end: *const c_void;
}

/// What a thread needs; found by its thread pointer.
struct Thread {
    pointer: AtomicU64,
    last: AtomicU64,
    busy: AtomicBool,
    walker: AtomicPtr<NativeWalker>,
}

static THREADS: [Thread; 512] = [const {
    Thread {
        pointer: AtomicU64::new(0),
        last: AtomicU64::new(0),
        busy: AtomicBool::new(false),
        walker: AtomicPtr::new(core::ptr::null_mut()),
    }
}; 512];
static READY: AtomicBool = AtomicBool::new(false);
static MEASURE: AtomicBool = AtomicBool::new(false);
static INTERVAL: AtomicU64 = AtomicU64::new(0);
static WALKS: AtomicU64 = AtomicU64::new(0);
static CYCLES: AtomicU64 = AtomicU64::new(0);
static FRAMES: AtomicU64 = AtomicU64::new(0);
static KEPT: AtomicU64 = AtomicU64::new(0);
static GUESSED: AtomicU64 = AtomicU64::new(0);
static ENDS: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];
/// Where truncated walks ended, the last of them.
static STUCK: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

struct Result(UnsafeCell<Option<String>>);
// SAFETY: written in the constructor, read at exit.
unsafe impl Sync for Result {}
static RESULT: Result = Result(UnsafeCell::new(None));

fn thread_pointer() -> u64 {
    let pointer;
    // SAFETY: the thread control block begins with its own address (x86-64 psABI, TLS variant 2).
    unsafe { core::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, readonly)) };
    pointer
}

fn cycles() -> u64 {
    // SAFETY: every x86-64 has it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// # Safety
/// As malloc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn malloc(size: usize) -> *mut c_void {
    if READY.load(Relaxed) {
        on_hit();
    }
    // SAFETY: passed on.
    unsafe { __libc_malloc(size) }
}

#[inline(never)]
fn on_hit() {
    let pointer = thread_pointer();
    let begin = (pointer >> 6) as usize % THREADS.len();
    let Some(thread) = (0..THREADS.len())
        .map(|i| &THREADS[(begin + i) % THREADS.len()])
        .find(|t| {
            let other = t.pointer.load(Relaxed);
            other == pointer
                || other == 0
                    && t.pointer
                        .compare_exchange(0, pointer, Relaxed, Relaxed)
                        .is_ok()
        })
    else {
        return;
    };
    let now = cycles();
    if now.wrapping_sub(thread.last.load(Relaxed)) < INTERVAL.load(Relaxed)
        || thread.busy.swap(true, Relaxed)
    {
        return;
    }
    let mut walker = thread.walker.load(Relaxed);
    if walker.is_null() {
        let bytes = size_of::<NativeWalker>();
        walker =
            platform::map(bytes, Backing::Anonymous, 0).map_or(core::ptr::null_mut(), |m| m.cast());
        thread.walker.store(walker, Relaxed);
    }
    // SAFETY: zeroed memory is a walker; `busy` keeps it to this call.
    if let Some(walker) = unsafe { walker.as_mut() } {
        look(walker, pointer);
    }
    thread.last.store(cycles(), Relaxed);
    thread.busy.store(false, Relaxed);
}

#[inline(never)]
fn look(walker: &mut NativeWalker, pointer: u64) {
    let main = platform::process_id() == platform::thread_id();
    // The thread control block lies at the upper end of a thread's stack.
    let high = if main {
        // SAFETY: set by the dynamic linker before anything runs.
        unsafe { __libc_stack_end as u64 }
    } else {
        pointer
    };
    // SAFETY: from the stack pointer to there it is all stack; nothing lower is read directly.
    let bounds = unsafe { StackBounds::of_stack(high.saturating_sub(8 << 20), high) };
    let begin = cycles();
    let end = walker.walk_stack(&Registers::here(), &bounds, true, 512);
    CYCLES.fetch_add(cycles() - begin, Relaxed);
    let count = WALKS.fetch_add(1, Relaxed);
    FRAMES.fetch_add(walker.stack().frames().len() as u64, Relaxed);
    KEPT.fetch_add(walker.stack().kept() as u64, Relaxed);
    GUESSED.fetch_add(walker.stack().is_guessed() as u64, Relaxed);
    ENDS[end as usize].fetch_add(1, Relaxed);
    if end != WalkEnd::Root {
        let root = walker.stack().frames().first().map_or(0, |frame| frame.pc);
        STUCK[count as usize % STUCK.len()].store(root, Relaxed);
    }
    own_modules::report_changes(|_, _| {});
}

extern "C" fn begin() {
    let number = |name| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let Ok(result) = std::env::var("WALK_RESULT") else {
        return;
    };
    // SAFETY: the constructor runs alone.
    unsafe { *RESULT.0.get() = Some(result) };
    MEASURE.store(number("WALK_TIME") == Some(1), Relaxed);
    INTERVAL.store(number("WALK_INTERVAL_US").unwrap_or(100) * 2000, Relaxed);
    own_modules::init();
    if !MEASURE.load(Relaxed) {
        own_walk::check_walks();
    }
    READY.store(true, Relaxed);
    // The stack of a constructor begins in the dynamic linker.
    on_hit();
}

extern "C" fn end() {
    if !READY.swap(false, Relaxed) {
        return;
    }
    let (checked, differing) = own_walk::checked_walks();
    let all = |counter: &AtomicU64| counter.load(Relaxed);
    let walks = all(&WALKS);
    let mut text = format!(
        "walks {walks}\nframes {}\nkept {}\nguessed {}\ncycles {}\nchecked {checked}\ndiffering {differing}\n",
        all(&FRAMES),
        all(&KEPT),
        all(&GUESSED),
        all(&CYCLES),
    );
    let names = ["root", "depth", "unknown", "bad_stack", "unsupported"];
    for (name, count) in names.iter().zip(&ENDS) {
        let _ = writeln!(text, "{name} {}", all(count));
    }
    for address in STUCK.iter().map(all).filter(|a| *a != 0) {
        let module = own_modules::find(address);
        let (path, offset) = module.map_or(("?".into(), address), |m| {
            (
                String::from_utf8_lossy(m.path()).into_owned(),
                m.bias.in_file(address).0,
            )
        });
        let _ = writeln!(text, "stuck {path}+{offset:#x}");
    }
    // SAFETY: the destructor runs alone.
    if let Some(path) = unsafe { (*RESULT.0.get()).take() } {
        let _ = std::fs::write(format!("{path}.{}", std::process::id()), text);
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;
