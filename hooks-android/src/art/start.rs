//! Where the adapter begins: when the virtual machine is up, by whoever loads this library.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::fmt::Write as _;

use super::agent::Agent;
use super::chain;
use super::frames::{self, Capture};
use super::heap;
use super::hooks;
use super::library::Art;
use super::methods::{self, Names};
use super::nterp;
use super::suspend;
use super::threads;
use super::versions::Function;
use super::walk::Walker;

/// A file that gets what was placed, and counts, at the end: for tests.
const LOG: &str = "ART_AGENT_LOG";
/// Each walk of ART's is compared with what is read: for tests.
const CHECK: &str = "ART_AGENT_CHECK";

/// Each hook walks and names, whether or not a capture is due: for tests.
const ALWAYS: &str = "ART_AGENT_ALWAYS";

/// Threads are suspended at random, all the time: for tests.
const SUSPEND: &str = "ART_AGENT_SUSPEND";

static BEGUN: AtomicBool = AtomicBool::new(false);
/// The hash of ART's code without hooks, where a log is asked for.
static CODE_BEFORE: AtomicU64 = AtomicU64::new(0);
static ART: AtomicPtr<Art> = AtomicPtr::new(core::ptr::null_mut());

fn art() -> Option<&'static Art> {
    // SAFETY: null, or what `begin` has stored for good.
    unsafe { ART.load(Ordering::Acquire).as_ref() }
}

/// Suspends all threads that run Java code for as long as this runs. Without the functions it runs as it is.
fn while_suspended(art: &Art, mut f: impl FnMut()) {
    type Suspend = unsafe extern "C" fn(*mut u64, *const core::ffi::c_char, bool);
    type Resume = unsafe extern "C" fn(*mut u64);
    let functions = art
        .address(Function::SuspendAll)
        .zip(art.address(Function::ResumeAll));
    let Some((suspend, resume)) = functions else {
        return f();
    };
    let mut object = 0;
    // SAFETY: functions of these types; the object has no fields.
    unsafe {
        let suspend: Suspend = core::mem::transmute(suspend);
        let resume: Resume = core::mem::transmute(resume);
        suspend(&raw mut object, c"stackbeat".as_ptr(), false);
        f();
        resume(&raw mut object);
    }
}

/// Begins, once. An error is what is said, because nothing is hooked then.
///
/// # Safety
/// `env` is the calling thread's, which runs native code.
unsafe fn begin(env: *mut c_void) -> Result<(), String> {
    let Some(agent) = Agent::find() else {
        // Not recorded: nothing to do.
        return Ok(());
    };
    if BEGUN.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    let art = Art::find().map_err(|error| error.to_string())?;
    let art: &'static Art = Box::leak(Box::new(art));
    ART.store((&raw const *art).cast_mut(), Ordering::Release);
    let lacks = |what| format!("ART {} lacks {what}: {:?}", art.version, art.lacking());
    let key = art
        .address(Function::SelfKey)
        .ok_or_else(|| lacks("the key of its threads"))?;
    if std::env::var_os(LOG).is_some() {
        hooks::begin_to_count();
        CODE_BEFORE.store(hash_of_code(art), Ordering::Relaxed);
    }
    let capture = Capture {
        agent,
        walker: Walker::of(art).ok_or_else(|| lacks("walks"))?,
        names: Names::of(art).ok_or_else(|| lacks("names"))?,
        compares: std::env::var_os(CHECK).is_some(),
        always: std::env::var_os(ALWAYS).is_some(),
    };
    if !threads::begin(key.cast()) || !frames::begin(capture, art.code) {
        return Err("no room for another runtime".into());
    }
    chain::begin(art.version);
    methods::begin(art.version);
    nterp::begin(art);
    hooks::begin(agent);
    let mut refused = Vec::new();
    while_suspended(art, || {
        for hook in hooks::ALL {
            // SAFETY: whoever runs these functions is suspended.
            if let Err(why) = unsafe { hook.place(art) } {
                refused.push(format!("{:?}: {why}", hook.function));
            }
        }
    });
    if !refused.is_empty() {
        let (version, refused) = (art.version, refused.join(", "));
        eprintln!("stackbeat: ART {version} stays without these hooks: {refused}");
    }
    // SAFETY: by contract.
    unsafe {
        heap::find(art, env, |f| while_suspended(art, f));
        heap::listen(art);
    }
    Ok(())
}

/// The virtual machine is up.
#[unsafe(no_mangle)]
extern "C" fn art_agent_vm(vm: *mut *const [*mut c_void; 8], env: *mut c_void) {
    // SAFETY: so it is called.
    if let Err(error) = unsafe { begin(env) } {
        eprintln!("stackbeat: Java stays unrecorded: {error}");
    }
    if std::env::var_os(SUSPEND).is_some()
        && let Some(art) = art()
    {
        // SAFETY: the machine that has just begun.
        let is_begun = unsafe { suspend::begin(art, vm, || while_suspended(art, || {})) };
        if !is_begun {
            eprintln!(
                "stackbeat: ART {} cannot suspend single threads",
                art.version
            );
        }
    }
}

/// The library was loaded by Java: `System.loadLibrary("stackbeat_android")`.
#[unsafe(no_mangle)]
extern "C" fn JNI_OnLoad(vm: *mut *const [*mut c_void; 8], _reserved: *mut c_void) -> i32 {
    const VERSION: i32 = 0x0001_0006;
    /// `GetEnv` in JNI's table of a machine (jni.h).
    const GET_ENV: usize = 6;
    type GetEnv = unsafe extern "C" fn(*mut c_void, *mut *mut c_void, i32) -> i32;
    let mut env = core::ptr::null_mut();
    // SAFETY: JNI's table, whose function at this place is of this type. The thread runs native code.
    unsafe {
        let get_env: GetEnv = core::mem::transmute((**vm)[GET_ENV]);
        if get_env(vm.cast(), &raw mut env, VERSION) == 0
            && let Err(error) = begin(env)
        {
            eprintln!("stackbeat: Java stays unrecorded: {error}");
        }
    }
    VERSION
}

/// `main` has returned: the hooks are taken away.
#[unsafe(no_mangle)]
extern "C" fn art_agent_end(_vm: *mut c_void, _env: *mut c_void) {
    let Some(art) = art() else { return };
    suspend::end();
    let mut status = std::env::var_os(LOG).map(|path| (path, status(art)));
    // SAFETY: it is called in native code.
    unsafe { heap::end(art) };
    while_suspended(art, || {
        for hook in hooks::ALL {
            // SAFETY: whoever runs these functions is suspended.
            unsafe { hook.remove() };
        }
    });
    if let Some((path, text)) = &mut status {
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
    for (name, place) in super::monitors::places() {
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
    ] {
        let _ = writeln!(text, "{name} {}", count.load(Ordering::Relaxed));
    }
    for (name, count) in [
        ("suspended", &suspend::SUSPENDED),
        ("suspended-frames", &suspend::FRAMES),
        ("suspension-timed-out", &suspend::TIMED_OUT),
    ] {
        let _ = writeln!(text, "{name} {}", count.load(Ordering::Relaxed));
    }
    text
}
