//! What a walk costs, by depth: ours (full, with verified reuse, along frame pointers) next to
//! framehop alone, libgcc's unwinder and libunwind.
//!
//! `cargo bench -p stackbeat-core --bench unwind`. The stacks consist of different functions without
//! frame pointers. "Three changed": between two walks the innermost three frames are replaced, as
//! in a program that goes on working. "Cold": the processor's caches are filled with other data
//! before each walk, as between captures a millisecond apart.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use core::ffi::{c_int, c_void};
use core::hint::black_box;
use std::sync::LazyLock;

use divan::Bencher;
use framehop::Unwinder as _;
use stackbeat_core::native::own_modules;
use stackbeat_core::native::own_walk::NativeWalker;
use stackbeat_core::unwind::{
    FramePointerWalker, Frames, Registers, StackBounds, StackWalker, WalkEnd,
};

const DEPTHS: [usize; 4] = [10, 30, 60, 120];
const LEVELS: usize = 128;
/// Frames that are not of the chain: those of the benchmark harness and of the walking functions.
const HARNESS: usize = 18;

fn main() {
    own_modules::init();
    divan::main();
}

/// What happens at the bottom of the chain.
type Work<'a> = &'a mut dyn FnMut();

static TABLE: [fn(usize, Work); LEVELS] = table();

macro_rules! levels {
    ($($n:literal)*) => { [$(level::<$n>, level::<{ $n + 16 }>, level::<{ $n + 32 }>, level::<{ $n + 48 }>,
        level::<{ $n + 64 }>, level::<{ $n + 80 }>, level::<{ $n + 96 }>, level::<{ $n + 112 }>,)*] };
}

const fn table() -> [fn(usize, Work); LEVELS] {
    levels!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
}

/// One of the functions of a chain, each with a frame of another size.
#[inline(never)]
fn level<const N: usize>(depth: usize, work: Work) {
    let local = [N as u8; 8];
    black_box(&local);
    if depth == 0 {
        work();
    } else {
        TABLE[(N * 5 + depth) % LEVELS](depth - 1, work);
    }
    black_box(&local);
}

/// Runs `work` below `depth` frames of the chain.
fn at_depth(depth: usize, work: Work) {
    // So 10 is really 18.
    TABLE[0](depth.saturating_sub(HARNESS), work);
}

/// Three frames of either of two kinds, then `work`.
#[inline(never)]
fn three<const KIND: usize>(left: usize, work: Work) {
    let local = [KIND as u8; 16];
    black_box(&local);
    if left == 0 {
        work();
    } else {
        three::<KIND>(left - 1, work);
    }
    black_box(&local);
}

fn bounds() -> StackBounds {
    // SAFETY: plain queries about the calling thread, whose stack it is.
    unsafe {
        let mut attributes = core::mem::zeroed();
        libc::pthread_getattr_np(libc::pthread_self(), &mut attributes);
        let (mut low, mut size) = (core::ptr::null_mut(), 0);
        libc::pthread_attr_getstack(&attributes, &mut low, &mut size);
        libc::pthread_attr_destroy(&mut attributes);
        StackBounds::of_stack(low as u64, low as u64 + size as u64)
    }
}

/// Benchmarks `walk` below a chain, warm.
fn warm(bencher: Bencher, depth: usize, mut walk: impl FnMut()) {
    let mut bencher = Some(bencher);
    at_depth(depth, &mut || {
        if let Some(bencher) = bencher.take() {
            bencher.bench_local(&mut walk);
        }
    });
}

/// The same with the caches full of other data before each walk.
fn cold(bencher: Bencher, depth: usize, mut walk: impl FnMut()) {
    let mut other = vec![0u8; 64 << 20];
    let mut bencher = Some(bencher);
    at_depth(depth, &mut || {
        if let Some(bencher) = bencher.take() {
            bencher
                .with_inputs(|| {
                    for place in other.iter_mut().step_by(64) {
                        *place = place.wrapping_add(1);
                    }
                })
                .bench_local_values(|()| walk());
        }
    });
}

/// A full walk, nothing reused.
fn full() -> impl FnMut() {
    let (mut walker, bounds) = (NativeWalker::boxed(), bounds());
    move || {
        walker.stack_mut().forget();
        let end = walker.walk_stack(&Registers::here(), &bounds, true, 256);
        assert_eq!(end, WalkEnd::Root);
    }
}

/// A walk after one that differs in the innermost three frames.
fn reusing() -> impl FnMut() {
    let (mut walker, bounds) = (NativeWalker::boxed(), bounds());
    let mut odd = false;
    move || {
        let mut walk = || {
            let end = walker.walk_stack(&Registers::here(), &bounds, true, 256);
            assert_eq!(end, WalkEnd::Root);
        };
        odd = !odd;
        if odd {
            three::<1>(2, &mut walk);
        } else {
            three::<2>(2, &mut walk);
        }
    }
}

#[divan::bench(args = DEPTHS, sample_size = 100, sample_count = 50)]
fn warm_1_reusing(bencher: Bencher, depth: usize) {
    warm(bencher, depth, reusing());
}

#[divan::bench(args = DEPTHS, sample_size = 100, sample_count = 50)]
fn warm_2_full(bencher: Bencher, depth: usize) {
    warm(bencher, depth, full());
}

#[divan::bench(args = DEPTHS, sample_size = 100, sample_count = 50)]
fn warm_3_framehop(bencher: Bencher, depth: usize) {
    warm(bencher, depth, Framehop::new().walker());
}

#[divan::bench(args = DEPTHS, sample_size = 100, sample_count = 50)]
fn warm_4_libunwind(bencher: Bencher, depth: usize) {
    if let Some(walker) = libunwind() {
        warm(bencher, depth, walker);
    }
}

#[divan::bench(args = DEPTHS, sample_size = 100, sample_count = 50)]
fn warm_5_libgcc(bencher: Bencher, depth: usize) {
    warm(bencher, depth, libgcc());
}

/// Made of words, since this program keeps no frame pointers.
#[divan::bench(args = DEPTHS, sample_size = 100, sample_count = 50)]
fn warm_6_frame_pointers(bencher: Bencher, depth: usize) {
    let mut words = vec![0u64; depth * 8];
    for i in 0..depth {
        words[i * 8] = if i + 1 < depth {
            0x10000 + (i as u64 + 1) * 64
        } else {
            0
        };
        words[i * 8 + 1] = 0x40_0000 + i as u64;
    }
    // SAFETY: the words outlive the bounds.
    let bounds = unsafe {
        let bytes = core::slice::from_raw_parts(words.as_ptr().cast::<u8>(), words.len() * 8);
        StackBounds::of_copy(0x10000, bytes)
    };
    let registers = Registers {
        pc: 1,
        sp: 0x10000,
        fp: 0x10000,
        ..Registers::default()
    };
    let mut frames = Frames::new(256);
    let mut walker = FramePointerWalker::new();
    bencher.bench_local(|| {
        frames.clear(256);
        walker.walk(&registers, &bounds, true, &mut frames)
    });
}

#[divan::bench(args = DEPTHS, sample_size = 1, sample_count = 100)]
fn cold_1_reusing(bencher: Bencher, depth: usize) {
    cold(bencher, depth, reusing());
}

#[divan::bench(args = DEPTHS, sample_size = 1, sample_count = 100)]
fn cold_2_full(bencher: Bencher, depth: usize) {
    cold(bencher, depth, full());
}

#[divan::bench(args = DEPTHS, sample_size = 1, sample_count = 100)]
fn cold_3_framehop(bencher: Bencher, depth: usize) {
    cold(bencher, depth, Framehop::new().walker());
}

#[divan::bench(args = DEPTHS, sample_size = 1, sample_count = 100)]
fn cold_4_libunwind(bencher: Bencher, depth: usize) {
    if let Some(walker) = libunwind() {
        cold(bencher, depth, walker);
    }
}

#[divan::bench(args = DEPTHS, sample_size = 1, sample_count = 100)]
fn cold_5_libgcc(bencher: Bencher, depth: usize) {
    cold(bencher, depth, libgcc());
}

/// framehop with its own rule cache, over the modules that are loaded.
struct Framehop {
    unwinder: framehop::x86_64::UnwinderX86_64<Vec<u8>>,
    cache: framehop::x86_64::CacheX86_64,
}

impl Framehop {
    fn new() -> Framehop {
        let mut unwinder = framehop::x86_64::UnwinderX86_64::new();
        // A walk makes the modules known whose code it meets.
        full()();
        own_modules::forget_reports();
        own_modules::report_changes(|module, _| {
            let Some(tables) = module.tables() else {
                return;
            };
            let header = tables.header.address;
            let frames = tables.frames.address;
            let sections = framehop::ExplicitModuleSectionInfo {
                base_svma: module.start,
                eh_frame_hdr_svma: Some(header..header + tables.header.bytes.len() as u64),
                eh_frame_hdr: Some(tables.header.bytes.to_vec()),
                eh_frame_svma: Some(frames..frames + tables.frames.bytes.len() as u64),
                eh_frame: Some(tables.frames.bytes.to_vec()),
                ..Default::default()
            };
            let name = String::from_utf8_lossy(module.path()).into_owned();
            let range = module.start..module.end;
            unwinder.add_module(framehop::Module::new(name, range, module.start, sections));
        });
        Framehop {
            unwinder,
            cache: framehop::x86_64::CacheX86_64::new(),
        }
    }

    fn walker(mut self) -> impl FnMut() {
        let bounds = bounds();
        move || {
            let here = Registers::here();
            let registers = framehop::x86_64::UnwindRegsX86_64::new(here.pc, here.sp, here.fp);
            let mut read = |address| bounds.read(address).ok_or(());
            let mut frames =
                self.unwinder
                    .iter_frames(here.pc, registers, &mut self.cache, &mut read);
            let mut count = 0;
            while let Ok(Some(frame)) = frames.next() {
                black_box(frame);
                count += 1;
            }
            assert!(count > 8, "{count}");
        }
    }
}

unsafe extern "C" {
    fn _Unwind_Backtrace(
        callback: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> u64;
}

extern "C" fn note(context: *mut c_void, _: *mut c_void) -> c_int {
    // SAFETY: libgcc passes its context.
    black_box(unsafe { _Unwind_GetIP(context) });
    0
}

fn libgcc() -> impl FnMut() {
    || {
        // SAFETY: the callback fits.
        unsafe { _Unwind_Backtrace(note, core::ptr::null_mut()) };
    }
}

/// `unw_backtrace` of libunwind, if it is installed.
fn libunwind() -> Option<impl FnMut()> {
    type Backtrace = extern "C" fn(*mut *mut c_void, c_int) -> c_int;
    static FOUND: LazyLock<Option<Backtrace>> = LazyLock::new(|| {
        // SAFETY: the function has this type (libunwind.h, 1.6).
        unsafe {
            let library = libc::dlopen(c"libunwind.so.8".as_ptr(), libc::RTLD_NOW);
            if library.is_null() {
                return None;
            }
            let function = libc::dlsym(library, c"unw_backtrace".as_ptr());
            (!function.is_null()).then(|| core::mem::transmute::<*mut c_void, Backtrace>(function))
        }
    });
    let function = (*FOUND)?;
    let mut addresses = [core::ptr::null_mut(); 256];
    Some(move || {
        assert!(function(addresses.as_mut_ptr(), 256) > 8);
    })
}
