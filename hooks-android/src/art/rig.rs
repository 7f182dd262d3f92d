//! What tests want of the adapter besides: counts, walks at each hook, a look at ART's code when the hooks
//! are gone, and suspensions. Variables of the environment say which.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};
use std::fmt::Write as _;

use super::entry_points;
use super::error::ArtError;
use super::fallback::{self, Suspenders};
use super::frames;
use super::heap;
use super::hooks;
use super::library::Art;
use super::methods;
use super::monitors;
use super::start::{self, Checks, art};
use super::trial;

/// A file that gets what was placed, and counts, at the end.
const LOG: &str = "ART_AGENT_LOG";
/// [`Checks::compares`] and [`Checks::always`].
const CHECK: &str = "ART_AGENT_CHECK";
const ALWAYS: &str = "ART_AGENT_ALWAYS";
/// Threads are suspended at random, all the time.
const SUSPEND: &str = "ART_AGENT_SUSPEND";
/// The heap's listener comes and goes, all the time.
const LISTEN: &str = "ART_AGENT_LISTEN";
/// [`Checks::is_blind`].
const BLIND: &str = "ART_AGENT_BLIND";
/// One thread suspends all.
const ONE_GROUP: &str = "ART_AGENT_ONE_GROUP";

/// The hash of ART's code without hooks, where a log is asked for.
static CODE_BEFORE: AtomicU64 = AtomicU64::new(0);

fn has(variable: &str) -> bool {
    std::env::var_os(variable).is_some()
}

/// As [`start::begin`].
///
/// # Errors
/// As there.
///
/// # Safety
/// As there; `vm` is the machine, which has only begun.
pub unsafe fn begin(
    agent: *const c_void,
    vm: *mut *const [*mut c_void; 8],
    env: *mut c_void,
) -> Result<(), ArtError> {
    if has(LOG) {
        hooks::count_calls_of(hooks::ALL_THREADS);
        let art = Art::find().map_err(ArtError::NotFound)?;
        CODE_BEFORE.store(hash_of_code(&art), Ordering::Relaxed);
    }
    let checks = Checks {
        compares: has(CHECK),
        always: has(ALWAYS),
        is_blind: has(BLIND),
    };
    let suspenders = Suspenders {
        start: |run| {
            let thread = std::thread::Builder::new().name("stackbeat java".to_owned());
            thread.spawn(run).map(drop)
        },
        groups: match has(ONE_GROUP) {
            true => 0,
            false => fallback::DEFAULT_GROUPS,
        },
    };
    // SAFETY: by contract.
    let hooks = unsafe { start::begin_with(agent, env, Some(suspenders), checks)? };
    hooks
        .missing()
        .for_each(|line| eprintln!("stackbeat: {line}"));
    if let Some(art) = art().filter(|_| has(SUSPEND)) {
        // SAFETY: by contract.
        let is_started = unsafe { trial::begin_to_suspend(art, vm) };
        if !is_started {
            let version = art.version;
            return Err(ArtError::NoSuspension { version });
        }
    }
    if let Some(art) = art().filter(|_| has(LISTEN)) {
        // SAFETY: by contract.
        unsafe { trial::begin_to_listen(art, vm) };
    }
    Ok(())
}

/// As [`start::end`], and writes the log.
///
/// # Safety
/// As there.
pub unsafe fn end() {
    let Some(art) = art() else { return };
    trial::end();
    let log = std::env::var_os(LOG).map(|path| (path, status(art)));
    // SAFETY: by contract.
    unsafe { start::end() };
    if let Some((path, mut text)) = log {
        let is_as_before = hash_of_code(art) == CODE_BEFORE.load(Ordering::Relaxed);
        let _ = writeln!(text, "restored {}", u8::from(is_as_before));
        // A test that finds no file fails.
        let _ = std::fs::write(path, text);
    }
}

/// A hash of all of ART's code (FNV-1a, by words).
fn hash_of_code(art: &Art) -> u64 {
    let (start, end) = art.code;
    let words = core::ptr::with_exposed_provenance::<u64>(start as usize);
    let count = ((end - start) / 8) as usize;
    // SAFETY: the library's own code, which is never unloaded.
    let words = unsafe { core::slice::from_raw_parts(words, count) };
    words.iter().fold(0xcbf2_9ce4_8422_2325, |hash, word| {
        (hash ^ word).wrapping_mul(0x100_0000_01b3)
    })
}

/// A line for each hook and each count.
fn status(art: &Art) -> String {
    let mut text = format!("version {}\n", art.version);
    for hook in hooks::ALL {
        let state = match hook.is_placed() {
            true => "placed",
            false => "not available",
        };
        let calls = hook.calls.load(Ordering::Relaxed);
        let _ = writeln!(text, "hook {:?} {state} {calls}", hook.function);
    }
    let objects = heap::OBJECTS.load(Ordering::Relaxed);
    let state = match heap::is_listening() {
        true => "placed",
        false => "not available",
    };
    let _ = writeln!(text, "hook ObjectAllocated {state} {objects}");
    for (name, place) in monitors::places() {
        let _ = writeln!(text, "{name} {place}");
    }
    for (name, count) in [
        ("walks", &frames::WALKS),
        ("reads", &frames::READS),
        ("different", &frames::DIFFERENT),
        ("not-known", &frames::NOT_KNOWN),
        ("unnamed", &methods::UNNAMED),
        ("named", &methods::NAMED),
        ("forgotten", &methods::FORGOTTEN),
        ("faults", &fallback::FAULTS),
    ] {
        let _ = writeln!(text, "{name} {}", count.load(Ordering::Relaxed));
    }
    let suspensions = entry_points::SUSPENSIONS.load(Ordering::Relaxed);
    let _ = writeln!(text, "suspended-all-for-the-listener {suspensions}");
    for (name, count) in [
        ("changed-at-checkpoints", &entry_points::CHANGED),
        ("listened", &trial::LISTENED),
        ("longest-change-of-the-listener-ms", &trial::LONGEST_MS),
        ("suspended", &trial::SUSPENDED),
        ("suspended-frames", &trial::FRAMES),
        ("suspension-timed-out", &trial::GIVEN_UP),
        ("brought-to-safepoints", &fallback::SUSPENDED),
    ] {
        let _ = writeln!(text, "{name} {}", count.load(Ordering::Relaxed));
    }
    text
}
