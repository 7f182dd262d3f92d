//! Walks by frame pointers over real arm64 code whose return addresses are signed, next to libgcc's unwinder,
//! which goes by tables. Under emulation as well (`scripts/cross/cross-check.sh run`): where the processor
//! does not sign, the code is the same, and its signing instructions do nothing.
#![cfg(all(target_os = "linux", target_env = "gnu", target_arch = "aarch64"))]

use crate::stack_bounds::bounds;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use stackbeat_core::unwind::{
    Aarch64, CodeMask, FramePointerWalker, Frames, Registers, StackBounds, Start, WalkEnd,
};
use std::ffi::CString;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, OnceLock};

unsafe extern "C" {
    fn backtrace(buffer: *mut *mut c_void, size: c_int) -> c_int;
}

/// From asm/hwcap.h: addresses can be signed.
const HWCAP_PACA: u64 = 1 << 30;

/// The library with the chains, compiled with these flags.
fn load(folder: &Path, flags: &[&str]) -> *mut c_void {
    let library = folder.join(format!("chains{}.so", flags.concat()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/frame_pointers/chains.c");
    let status = Command::new("aarch64-linux-gnu-gcc")
        .args(["-shared", "-fPIC", "-fno-omit-frame-pointer"])
        .args(["-mbranch-protection=pac-ret", "-funwind-tables", "-o"])
        .arg(&library)
        .args(flags)
        .arg(source)
        .status()
        .expect("a C compiler is installed");
    assert!(status.success());
    let name = CString::new(library.to_str().expect("a plain path")).expect("no NUL");
    // SAFETY: the library is ours.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    assert!(!handle.is_null(), "{library:?} does not load");
    handle
}

fn function(library: *mut c_void, name: &core::ffi::CStr) -> *mut c_void {
    // SAFETY: the library is loaded.
    let function = unsafe { libc::dlsym(library, name.as_ptr()) };
    assert!(!function.is_null(), "{name:?} is missing");
    function
}

fn walk(
    walker: &mut FramePointerWalker,
    registers: &Registers,
    bounds: &StackBounds,
    exact: bool,
) -> (Vec<u64>, WalkEnd, usize) {
    let mut read = |address: u64| match bounds.read(address) {
        // SAFETY: what is not on the stack is code around the pc, which runs.
        None => Some(unsafe { core::ptr::with_exposed_provenance::<u64>(address as usize).read() }),
        word => word,
    };
    let from = Start {
        registers,
        exact,
        high: bounds.high,
        skip: (0, 0),
    };
    let mut out = Frames::new(256);
    let mask = CodeMask::native();
    let end = walker.walk_stack::<Aarch64>(&from, bounds.low, mask, &mut read, &mut out);
    (out.addresses().to_vec(), end, out.same_outermost)
}

/// The frames of a library, and the one that it was called from.
fn of_library(addresses: &[u64], library: &core::ops::Range<u64>) -> Vec<u64> {
    let inside = addresses
        .iter()
        .take_while(|address| library.contains(address));
    let count = inside.count();
    addresses[..(count + 1).min(addresses.len())].to_vec()
}

/// Where the library's code lies that has this function.
fn range_around(function: *mut c_void) -> core::ops::Range<u64> {
    let address = function as u64;
    let maps = std::fs::read_to_string("/proc/self/maps").expect("is read");
    maps.lines()
        .find_map(|line| {
            let (low, high) = line.split_once(' ')?.0.split_once('-')?;
            let parsed = |text| u64::from_str_radix(text, 16).ok();
            let range = parsed(low)?..parsed(high)?;
            range.contains(&address).then_some(range)
        })
        .expect("the library is mapped")
}

/// What the callback of the chains has found.
#[derive(Default)]
struct Looked {
    walker: FramePointerWalker,
    library: core::ops::Range<u64>,
    compared: usize,
    signed: usize,
    reused: usize,
}

static LOOKED: Mutex<Option<Box<Looked>>> = Mutex::new(None);

extern "C" fn look(frame: u64, addresses: *const u64, count: c_int) {
    let bounds = bounds();
    let mut looked = LOOKED.lock().expect("no panic");
    let looked = looked.as_mut().expect("a run is under way");
    // SAFETY: libgcc has filled so many.
    let truth = unsafe { core::slice::from_raw_parts(addresses, count as usize) };
    let registers = Registers {
        pc: truth[0],
        sp: frame,
        fp: frame,
        ..Registers::default()
    };
    let (found, _, same) = walk(&mut looked.walker, &registers, &bounds, false);
    let truth = of_library(truth, &looked.library);
    assert_eq!(found[..truth.len().min(found.len())], truth);
    looked.compared += truth.len();
    looked.reused += same;
    let mut at = frame;
    for address in &truth[1..] {
        let raw = bounds.read(at + 8).expect("a record");
        assert_eq!(CodeMask::native().strip(raw), *address);
        looked.signed += usize::from(raw != *address);
        at = bounds.read(at).expect("a record");
    }
}

#[test]
fn signed_return_addresses_are_those_of_libgcc() {
    let folder = tempfile::tempdir().expect("made");
    // SAFETY: a plain query.
    let signs = unsafe { libc::getauxval(libc::AT_HWCAP) } & HWCAP_PACA != 0;
    for optimize in ["-O0", "-O2"] {
        let library = load(folder.path(), &[optimize, "-fno-optimize-sibling-calls"]);
        let run = function(library, c"run_chains");
        *LOOKED.lock().expect("no panic") = Some(Box::new(Looked {
            library: range_around(run),
            ..Looked::default()
        }));
        // SAFETY: it has this type.
        let run: extern "C" fn(extern "C" fn(u64, *const u64, c_int)) =
            unsafe { core::mem::transmute(run) };
        run(look);
        let looked = LOOKED
            .lock()
            .expect("no panic")
            .take()
            .expect("was put there");
        assert!(looked.compared > 100, "{} frames", looked.compared);
        // The frames of the library itself: those above may sign or not.
        match signs {
            true => assert!(looked.signed > 80, "{} signed", looked.signed),
            false => assert_eq!(looked.signed, 0),
        }
        println!("signed {}, reused {}", looked.signed, looked.reused);
    }
}

const WANTED: usize = 600;

/// What the handler needs. It interrupts only code that holds no lock and allocates nothing.
struct Interrupted {
    library: core::ops::Range<u64>,
    bounds: StackBounds,
    samples: Mutex<(FramePointerWalker, Vec<Sample>)>,
}

struct Sample {
    found: Vec<u64>,
    truth: Vec<u64>,
    leaf: u32,
}

static INTERRUPTED: OnceLock<Interrupted> = OnceLock::new();
static STOP: AtomicI32 = AtomicI32::new(0);
static MET: AtomicUsize = AtomicUsize::new(0);
/// Handlers that have run. The next signal comes when the program has gone on for a while.
static HANDLED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn interrupt(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    look_at(context);
    HANDLED.fetch_add(1, Ordering::Release);
}

fn look_at(context: *mut c_void) {
    let Some(interrupted) = INTERRUPTED.get() else {
        return;
    };
    // SAFETY: the third argument is a `ucontext_t`.
    let machine = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
    if !interrupted.library.contains(&machine.pc) {
        return;
    }
    let registers = Registers {
        pc: machine.pc,
        sp: machine.sp,
        fp: machine.regs[29],
        lr: machine.regs[30],
        ..Registers::default()
    };
    let mut samples = interrupted.samples.lock().expect("no panic");
    let (walker, samples) = &mut *samples;
    let (found, ..) = walk(walker, &registers, &interrupted.bounds, true);
    let mut truth = [core::ptr::null_mut(); 256];
    // SAFETY: libgcc is loaded, as it was called before; so many addresses fit.
    let count = unsafe { backtrace(truth.as_mut_ptr(), 256) };
    let truth: Vec<u64> = truth[..count as usize].iter().map(|a| *a as u64).collect();
    let from = truth.iter().position(|address| *address == machine.pc);
    let truth = of_library(
        &truth[from.expect("libgcc finds it")..],
        &interrupted.library,
    );
    // SAFETY: it was about to run.
    let leaf = unsafe { *core::ptr::with_exposed_provenance::<u32>(machine.pc as usize) };
    samples.push(Sample { found, truth, leaf });
    if MET.fetch_add(1, Ordering::Relaxed) >= WANTED {
        STOP.store(1, Ordering::Relaxed);
    }
}

#[test]
fn interrupted_leaves_have_their_callers_once() {
    let folder = tempfile::tempdir().expect("made");
    let library = load(folder.path(), &["-O2", "-momit-leaf-frame-pointer"]);
    let run = function(library, c"run_work");
    let mut first = [core::ptr::null_mut(); 4];
    // SAFETY: loads libgcc.
    unsafe { backtrace(first.as_mut_ptr(), 4) };
    let interrupted = INTERRUPTED.get_or_init(|| Interrupted {
        library: range_around(run),
        bounds: bounds(),
        samples: Mutex::default(),
    });
    // SAFETY: a handler of the right type; the timer and the function are the test's own.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = interrupt as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        assert_eq!(
            libc::sigaction(libc::SIGUSR2, &action, core::ptr::null_mut()),
            0
        );
        let (pid, tid) = (libc::getpid(), libc::gettid());
        let sender = std::thread::spawn(move || {
            for i in 1.. {
                libc::syscall(libc::SYS_tgkill, pid, tid, libc::SIGUSR2);
                while HANDLED.load(Ordering::Acquire) < i {
                    std::thread::yield_now();
                }
                if STOP.load(Ordering::Relaxed) != 0 {
                    break;
                }
                let pause = std::time::Duration::from_micros(50 + i as u64 * 37 % 211);
                std::thread::sleep(pause);
            }
        });
        let run: extern "C" fn(*const AtomicI32) = core::mem::transmute(run);
        run(&raw const STOP);
        sender.join().expect("no panic");
    }
    let samples = interrupted.samples.lock().expect("no panic");
    let mut leaves = std::collections::BTreeSet::new();
    for sample in &samples.1 {
        let length = sample.truth.len().min(sample.found.len());
        assert_eq!(
            sample.found[..length],
            sample.truth[..],
            "at {:#x}: {:#010x}",
            sample.truth[0],
            sample.leaf
        );
        leaves.insert(sample.truth[0]);
    }
    // Emulation stops where blocks of code begin, unless it is told to make blocks of one instruction.
    println!("{} samples at {} places", samples.1.len(), leaves.len());
    assert!(samples.1.len() > WANTED / 2 && leaves.len() > 10);
}
